"""`tam guide` finds llms.txt wherever tam runs from; completions work in the shells themselves."""
from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tam
import tam_mcp

ROOT = Path(__file__).resolve().parent.parent
GUIDE = ROOT / "llms.txt"
PYTHON = sys.executable


def run(*words: object, **options: object) -> subprocess.CompletedProcess:
    words = tuple(map(str, words))
    return subprocess.run(words, capture_output=True, timeout=120, **options)


# The guide.


def test_guide_of_a_source_tree() -> None:
    told = run(PYTHON, ROOT / "tam.py", "guide", cwd="/")
    assert (told.returncode, told.stdout, told.stderr) == (0, GUIDE.read_bytes(), b"")


def test_guide_as_an_envelope() -> None:
    for words in (("guide", "--json"), ("--json", "guide")):
        told = json.loads(run(PYTHON, ROOT / "tam.py", *words).stdout)
        assert told["command"] == "guide" and told["data"] == {"text": GUIDE.read_text("utf-8")}


def test_guide_of_a_copy(tmp_path: Path) -> None:
    shutil.copy(ROOT / "tam.py", tmp_path)
    alone = run(PYTHON, tmp_path / "tam.py", "guide")
    assert (alone.returncode, alone.stdout) == (1, b"")
    assert alone.stderr.startswith(b"ERROR llms.txt is not beside tam.py: copy it there")
    error = json.loads(run(PYTHON, tmp_path / "tam.py", "guide", "--json").stderr)["error"]
    assert error["code"] == "internal" and error["details"] == {"missing_file": "llms.txt"}
    shutil.copy(GUIDE, tmp_path)
    assert run(PYTHON, tmp_path / "tam.py", "guide").stdout == GUIDE.read_bytes()


def test_guide_takes_no_words() -> None:
    assert run(PYTHON, ROOT / "tam.py", "guide", "me").returncode == 2
    assert b"llms.txt" in run(PYTHON, ROOT / "tam.py", "guide", "-h").stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel, built from a copy so that the source tree stays clean."""
    source = tmp_path_factory.mktemp("source") / "tam"
    source.mkdir()
    for path in ROOT.iterdir():
        if path.suffix in (".py", ".toml", ".txt", ".md") or path.name == "LICENSE":
            shutil.copy(path, source)
    built = run(PYTHON, "-m", "pip", "wheel", "-q", "--no-deps", "-w", source.parent, source)
    assert built.returncode == 0, built.stderr.decode()
    return next(source.parent.glob("*.whl"))


@pytest.mark.slow
def test_guide_of_an_installed_wheel(wheel: Path, tmp_path: Path) -> None:
    assert run(PYTHON, "-m", "venv", tmp_path / "venv").returncode == 0
    python, command = tmp_path / "venv/bin/python", tmp_path / "venv/bin/tam"
    assert run(python, "-m", "pip", "install", "-q", "--no-index", wheel).returncode == 0
    assert run(command, "guide", cwd="/").stdout == GUIDE.read_bytes()
    assert run(python, "-m", "tam", "guide", cwd="/").stdout == GUIDE.read_bytes()
    config = json.loads(run(command, "mcp", "--config", "claude", cwd="/").stdout)
    assert config["mcpServers"]["tam"]["command"] == str(command)


@pytest.mark.slow
def test_guide_of_other_ways_to_install(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    install = (PYTHON, "-m", "pip", "install", "-q", "--no-index", "--no-deps")
    assert run(*install, "--target", target, wheel).returncode == 0
    env = {**os.environ, "PYTHONPATH": str(target)}
    assert run(PYTHON, "-m", "tam", "guide", env=env, cwd="/").stdout == GUIDE.read_bytes()
    base = Path(sys._base_executable)
    if run(base, "-m", "pip", "--version").returncode:
        pytest.skip("the system's Python has no pip")
    env = {**os.environ, "PYTHONUSERBASE": str(tmp_path / "user"), "PIP_BREAK_SYSTEM_PACKAGES": "1"}
    user = run(base, *install[1:], "--user", "--ignore-installed", wheel, env=env)
    assert user.returncode == 0, user.stderr.decode()
    told = run(tmp_path / "user/bin/tam", "guide", env=env, cwd="/")
    assert told.stdout == GUIDE.read_bytes()


# Completion. Each case: what is typed before Tab, and what is offered.

CASES = {
    "": {"bundle", "completion", "config", "guide", "history", "mcp", "project", "status", "task",
         "tick"},
    "task he": {"heartbeat"},
    "t he": {"heartbeat"},
    "project ": {"list", "add", "use", "current", "edit", "del"},
    "--project web --json task re": {"release"},
    "task claim 1 --l": {"--lease"},
    "t a Title --desc": {"--description", "--description-file"},
    "task list --status ": set(tam.STATUSES),
    "task list --assigned ": {"me", "unassigned"},
    "task update 3 --status d": {"done"},
    "task add task --pr": {"--project", "--priority"},
    "task --st": {"--status"},
    "history --si": {"--since"},
    "completion ": {"bash", "zsh", "fish"},
    "tick ": {"host", "check"},
    "tick check --c": {"--call"},
    "mcp --config c": {"claude", "codex", "cursor"},
    "task list --project ": set(),
    "nonsense ": set(),
}


def script(shell: str) -> str:
    return run(PYTHON, ROOT / "tam.py", "completion", shell).stdout.decode()


def needs(shell: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"there is no {shell} here")


@needs("bash")
def test_bash_offers_the_right_words() -> None:
    asked = "".join(
        "COMP_WORDS=(tam {}); COMP_CWORD=$((${{#COMP_WORDS[@]}}-1)); COMPREPLY=(); _tam;"
        ' echo "${{COMPREPLY[*]}}"\n'.format(typed if typed[-1:].strip() else typed + "''")
        for typed in CASES
    )
    told = run("bash", "--norc", "-c", f"set -u\n{script('bash')}\n{asked}")
    assert told.stderr == b""
    offered = [set(line.split()) for line in told.stdout.decode().splitlines()]
    assert dict(zip(CASES, offered, strict=True)) == CASES


@needs("bash")
def test_bash_offers_files(tmp_path: Path) -> None:
    (tmp_path / "my notes.md").touch()
    (tmp_path / "tam.bash").write_text(script("bash"))
    with Shell("bash", "--norc", "-i", cwd=tmp_path) as shell:
        shell.type("source ./tam.bash; tam() { printf '<%s>' \"$@\"; echo; }; echo rea''dy\n")
        shell.wait("ready")
        shell.type("tam task add x --description-file my\t\n")
        shell.wait("<--description-file><my notes.md>")


@needs("fish")
def test_fish_offers_the_right_words(tmp_path: Path) -> None:
    (tmp_path / "tam.fish").write_text(script("fish"))
    asked = "".join(f"complete -C 'tam {typed}' | string join ' '\necho =\n" for typed in CASES)
    told = run("fish", "--no-config", "-c", f"source {tmp_path}/tam.fish\n{asked}", cwd=tmp_path)
    assert told.stderr == b""
    parts = told.stdout.decode().replace("/", " ").split("=\n")[:-1]
    offered = [set(part.split()) for part in parts]
    files = {path.name for path in tmp_path.iterdir()}  # offered where nothing else fits
    assert dict(zip(CASES, (words - files for words in offered), strict=True)) == CASES


@needs("zsh")
def test_zsh_completes_as_it_is_typed(tmp_path: Path) -> None:
    (tmp_path / "tam.zsh").write_text(script("zsh"))
    typed = {"tam task hea\t": "task heartbeat", "tam t list --sta\tto\t": "t list --status todo"}
    with Shell("zsh", "-f", "-i", cwd=tmp_path) as shell:
        shell.type("autoload -U +X compinit; compinit -u -D; source ./tam.zsh\n")
        shell.type("tam() { echo was ty''ped: $* ; }; echo rea''dy\n")
        shell.wait("ready")
        for keys, wanted in typed.items():
            shell.type(f"{keys}\n")
            shell.wait(f"was typed: {wanted}")


class Shell:
    """An interactive shell on a terminal of its own."""

    def __init__(self, *words: str, cwd: Path) -> None:
        self.fd, terminal = pty.openpty()
        env = {**os.environ, "TERM": "dumb", "HOME": str(cwd), "PS1": "> "}
        self.process = subprocess.Popen(
            words, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
            cwd=cwd, env=env,
        )
        os.close(terminal)
        self.screen = ""

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.fd)

    def type(self, keys: str) -> None:
        os.write(self.fd, keys.encode())

    def wait(self, wanted: str) -> None:
        """Read until the screen shows a text."""
        until = time.monotonic() + 15
        while wanted not in self.screen:
            ready = select.select([self.fd], [], [], max(until - time.monotonic(), 0))[0]
            assert ready, (wanted, self.screen)
            self.screen += os.read(self.fd, 4096).decode("utf-8", "replace")


def test_completion_knows_the_options_of_the_programs() -> None:
    for path, (_, flags) in tam.PROGRAM_WORDS.items():
        page = run(PYTHON, ROOT / "tam.py", *path.split(), "--help").stdout.decode()
        assert set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", page, re.MULTILINE)) == set(flags), path
    assert tam.FLAG_VALUES["--config"] == tam_mcp.CLIENTS


def test_completion_refuses_other_shells() -> None:
    told = run(PYTHON, ROOT / "tam.py", "completion", "tcsh", "--json")
    assert told.returncode == 1 and json.loads(told.stderr)["error"]["code"] == "invalid"
