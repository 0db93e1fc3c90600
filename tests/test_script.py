"""tam.py as people really use it: one file, copied somewhere, run by whatever python3 there is."""
from __future__ import annotations

import ast
import glob
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support import DEADLINE, ROOT, SCRIPT, Result, run, spawn

#: Where other interpreters may be: the path, and pyenv in the real home (tests change HOME).
OLD_PYTHONS = sorted({
    found for minor in (8, 9, 10) for found in (
        shutil.which(f"python3.{minor}"),
        *glob.glob(os.path.expanduser(f"~/.pyenv/versions/3.{minor}.*/bin/python3.{minor}")),
    ) if found and ".pyenv/shims" not in found
})


@pytest.fixture
def alone(tmp_path: Path) -> Path:
    """tam.py copied into an empty folder."""
    folder = tmp_path / "alone"
    folder.mkdir()
    return Path(shutil.copy(SCRIPT, folder))


def python(*words: object, cwd: Path, interpreter: str = sys.executable, **env: str) -> Result:
    """Run an interpreter with these words, in a folder."""
    command = [interpreter, "-W", "error", *map(str, words)]
    ended = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, cwd=cwd, timeout=DEADLINE,
        env={**os.environ, **env},
    )
    return Result(ended.returncode, ended.stdout, ended.stderr)


def test_copied_alone_it_does_everything_but_the_three_programs(alone: Path) -> None:
    def tam(*words: str) -> dict:
        return spawn(*words, "--json", script=alone).data

    assert tam("project", "add", "website")["project"]["name"] == "website"
    tam("project", "use", "website")
    assert tam("task", "add", "Fix login", "--tag", "bug")["task"]["id"] == 1
    assert tam("task", "next", "--claim", "--agent", "a")["task"]["assigned_agent"] == "a"
    assert tam("task", "heartbeat", "1", "--agent", "a")["task"]["lease_expired"] is False
    assert tam("task", "done", "1", "--agent", "a")["task"]["status"] == "done"
    assert [event["event"] for event in tam("task", "events", "1")["events"]] == [
        "created", "claimed", "heartbeat", "completed"
    ]
    assert tam("status")["counts"] == {"todo": 0, "in_progress": 0, "done": 1}
    assert spawn("task", script=alone).out.count("Fix login") == 1
    assert set(os.listdir(alone.parent)) <= {"tam.py", "__pycache__"}


@pytest.mark.parametrize("words, called, missing", [
    (["mcp"], "tam mcp", "tam_mcp.py"), (["mcp", "--project", "p"], "tam mcp", "tam_mcp.py"),
    (["tick"], "tam tick", "tam_tick.py"), (["tick", "host", "--", "x"], "tam tick", "tam_tick.py"),
    (["-i"], "tam -i", "tam_tick.py"), (["--interactive"], "tam --interactive", "tam_tick.py"),
    (["--project", "p", "mcp"], "tam mcp", "tam_mcp.py"),
])
def test_copied_alone_it_says_which_file_the_three_programs_need(
    alone: Path, words: list, called: str, missing: str
) -> None:
    ended = python("-S", alone, *words, cwd=alone.parent)  # without what is installed beside pytest
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == (
        f"ERROR `{called}` needs {missing} beside {alone}: copy it there, or install tam-agent\n"
    )


def test_copied_alone_with_json_a_missing_file_is_an_envelope(alone: Path) -> None:
    error = python("-S", alone, "tick", "--json", cwd=alone.parent).error
    assert error["code"] == "internal" and error["details"] == {"missing_file": "tam_tick.py"}


def test_copied_alone_the_guide_says_where_it_would_be(alone: Path) -> None:
    ended = spawn("guide", script=alone)
    assert (ended.code, ended.out) == (1, "")
    assert (
        ended.err.startswith("ERROR llms.txt is not beside tam.py") and ended.err.count("\n") == 1
    )


def test_a_broken_module_beside_it_ends_in_one_line_and_a_traceback_in_the_log(
    alone: Path, scratch_home: Path
) -> None:
    (alone.parent / "tam_mcp.py").write_text("import tam_mcp_parts\n")
    ended = spawn("mcp", script=alone)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("ERROR unexpected ModuleNotFoundError: No module named 'tam_mcp_p")
    assert ended.err.count("\n") == 1
    assert "Traceback" in (scratch_home / "logs" / "tam.log").read_text()


def test_run_as_a_script_the_module_is_also_tam_for_what_it_imports(alone: Path) -> None:
    (alone.parent / "tam_mcp.py").write_text(
        "import sys, tam\n"
        "def main(argv):\n"
        "    same = sys.modules['tam'] is sys.modules['__main__'] is tam\n"
        "    opened = sys.modules['__main__'].Tam()\n"
        "    try:\n"
        "        opened.call('task.show', {'id': 1})\n"
        "    except tam.NotFound:\n"
        "        tam.write_stdout(f'{same} {argv}\\n'.encode())\n"
        "    opened.close()\n"
        "    return 7\n"
    )
    for start in (["tam.py"], ["-m", "tam"]):
        ended = python(*start, "mcp", "--project", "p", cwd=alone.parent)
        assert (ended.code, ended.out, ended.err) == (7, "True ['--project', 'p']\n", "")


@pytest.mark.parametrize(
    "words",
    [
        ["-O", "tam.py"],
        ["-OO", "tam.py"],
        ["-m", "tam"],
        ["-I", SCRIPT],
        ["-X", "dev", "-bb", "tam.py"],
    ],
    ids=str,
)
def test_it_works_under_every_way_to_start_it(alone: Path, words: list) -> None:
    added = python(*words, "project", "add", "p", "--json", cwd=alone.parent)
    assert added.data["project"]["name"] == "p"
    again = python(*words, "project", "add", "p", "--json", cwd=alone.parent)
    assert (again.code, again.error["code"]) == (4, "conflict")
    help_page = python(*words, "task", "add", "-h", cwd=alone.parent)
    assert help_page.code == 0 and "arguments:" in help_page.out


def test_it_is_clean_where_every_warning_is_an_error() -> None:
    for words in (["project", "add", "p"], ["task", "add", "t", "--project", "p"], ["-h"],
                  ["task", "list", "--project", "p"], ["config", "--json"], ["status", "-h"],
                  ["task", "next", "--claim", "--project", "p", "--agent", "a"]):
        ended = spawn(*words)
        assert (ended.code, ended.err) == (0, ""), words


def test_it_imports_only_the_standard_library_and_little_of_it() -> None:
    code = ("import sys; before = set(sys.modules); import tam;"
            "print(*sorted(set(sys.modules) - before))")
    loaded = set(python("-I", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}",
                        cwd=ROOT).out.split())
    assert {name.partition(".")[0] for name in loaded} <= sys.stdlib_module_names | {"tam"}
    heavy = {"typing", "dataclasses", "pathlib", "logging", "shutil", "subprocess", "tomllib",
             "unicodedata", "traceback", "tempfile", "contextlib", "asyncio", "inspect"}
    assert not loaded & heavy


# ---- an older Python


def test_the_source_parses_as_python_3_7() -> None:
    ast.parse(SCRIPT.read_text(encoding="utf-8"), feature_version=(3, 7))


def guarded_start() -> str:
    """The source up to its first `try`: what an older interpreter gets to run."""
    source = SCRIPT.read_text(encoding="utf-8")
    first = next(node for node in ast.parse(source).body if isinstance(node, ast.Try))
    return "\n".join(source.splitlines()[: first.lineno - 1])


@pytest.mark.parametrize("version", [(3, 8, 0), (3, 9, 18), (3, 10, 13)])
def test_under_an_older_version_it_says_in_one_line_what_it_needs(
    tmp_path: Path, version: tuple
) -> None:
    code = f"import sys\nsys.version_info = {version}\nexec({guarded_start()!r})\nprint('went on')"
    ended = python("-c", code, cwd=tmp_path)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == (
        f"tam needs Python 3.11 or newer; this is Python {version[0]}.{version[1]}."
        " Run it with a newer python3.\n"
    )


def test_under_a_version_that_is_new_enough_it_goes_on(tmp_path: Path) -> None:
    code = f"import sys\nsys.version_info = (3, 11, 0)\nexec({guarded_start()!r})\nprint('went on')"
    assert python("-c", code, cwd=tmp_path).out == "went on\n"


@pytest.mark.skipif(not OLD_PYTHONS, reason="no older Python on this machine")
@pytest.mark.parametrize("interpreter", OLD_PYTHONS, ids=[Path(one).name for one in OLD_PYTHONS])
def test_a_real_older_interpreter_gets_the_same_line(alone: Path, interpreter: str) -> None:
    ended = python("tam.py", "task", "list", "--json", cwd=alone.parent, interpreter=interpreter)
    minor = interpreter.rpartition(".")[2]
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == (
        f"tam needs Python 3.11 or newer; this is Python 3.{minor}. Run it with a newer python3.\n"
    )


# ---- signals, streams and the locale


#: A program that calls `main`, as `tam.py` itself does not.
GUEST = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import tam; " \
        "sys.exit(tam.main(sys.argv[1:]))"


@pytest.mark.parametrize("program", [(str(SCRIPT),), ("-c", GUEST)], ids=["script", "guest"])
def test_ctrl_c_is_exit_130_without_a_word(tmp_path: Path, program: tuple) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    process = subprocess.Popen(
        [sys.executable, *program, "task", "add", "t", "--description-file", str(fifo)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )
    with open(fifo, "wb"):  # opens when tam has opened the other end, and then it waits
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE)
    assert (process.returncode, out, err) == (130, b"", b"")


def test_a_program_that_calls_main_keeps_its_own_answer_to_ctrl_c() -> None:
    before = signal.getsignal(signal.SIGINT)
    assert run("mcp", "--config", "claude").code == 0
    assert signal.getsignal(signal.SIGINT) is before


def closed_pipe(*words: str) -> tuple[int, bytes]:
    """Run a command whose reader is gone before it starts; return its status and errors."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    ended = subprocess.run(
        [sys.executable, "-W", "error", str(SCRIPT), *words], stdin=subprocess.DEVNULL,
        stdout=write_end, stderr=subprocess.PIPE, timeout=DEADLINE,
    )
    os.close(write_end)
    return ended.returncode, ended.stderr


@pytest.mark.parametrize("words", [
    ["task", "list"], ["task", "list", "--json"], ["-h"], ["task", "-h"], ["task", "add", "-h"],
    ["-V"], ["completion", "bash"], ["status"],
], ids=" ".join)
def test_a_closed_pipe_ends_quietly(words: list) -> None:
    run("project", "add", "p")
    run("task", "add", "t", "--project", "p")
    run("project", "use", "p")
    assert closed_pipe(*words) == (0, b"")


def test_a_list_into_head_ends_quietly() -> None:
    run("project", "add", "p")
    run("project", "use", "p")
    for number in range(3):
        run("task", "add", f"task {number}")
    shell = f'"{sys.executable}" "{SCRIPT}" task list | head -1'
    ended = subprocess.run(["sh", "-c", shell], capture_output=True, timeout=DEADLINE)
    assert (ended.stdout, ended.stderr) == (b"INFO Current project: p\n", b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_an_answer_that_cannot_be_written_is_an_error_of_its_own() -> None:
    with open("/dev/full", "wb") as full:
        for words, start in (
            (["project", "add", "p", "--json"], b'{"ok":false'),
            (["-h"], b"ERROR "),
        ):
            ended = subprocess.run([sys.executable, str(SCRIPT), *words], stdout=full,
                                   stderr=subprocess.PIPE, timeout=DEADLINE)
            assert ended.returncode == 1 and ended.stderr.startswith(start)
            assert b"cannot be written" in ended.stderr and ended.stderr.count(b"\n") == 1
    assert run("project", "list", "--json").data[0]["name"] == "p"


def test_closed_standard_streams_never_get_the_answer_into_a_file(scratch_home: Path) -> None:
    shell = f'"{sys.executable}" "{SCRIPT}" project add p --json <&- >&- 2>&-'
    assert subprocess.run(["sh", "-c", shell], timeout=DEADLINE).returncode == 0
    assert run("project", "list", "--json").data[0]["name"] == "p"
    for path in scratch_home.iterdir():
        if path.is_file():
            assert b'"ok":true' not in path.read_bytes(), path


LOCALES = {
    "C": {"LC_ALL": "C"},
    "C without UTF-8 mode": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "POSIX": {"LC_ALL": "POSIX"},
    "ASCII streams": {"PYTHONIOENCODING": "ascii:strict"},
    "Latin-1 streams": {"PYTHONIOENCODING": "latin-1:strict"},
}


@pytest.mark.parametrize("env", LOCALES.values(), ids=LOCALES)
def test_json_is_utf8_whatever_the_locale(env: dict) -> None:
    title = "Größe 語 😀"
    run("project", "add", "p")
    added = spawn("task", "add", title, "--project", "p", "--json", **env)
    assert added.data["task"]["title"] == title and title.encode() in added.raw
    failed = spawn("project", "add", "é\nü", "--json", **env)
    assert failed.error["details"]["value"] == "é␊ü"


@pytest.mark.parametrize("env", LOCALES.values(), ids=LOCALES)
def test_people_get_something_readable_whatever_the_locale(env: dict) -> None:
    run("project", "add", "p")
    run("task", "add", "plain", "--project", "p")
    for words in (["task", "list", "--project", "p"], ["task", "-h"]):
        command = [sys.executable, "-W", "error", str(SCRIPT), *words]
        ended = subprocess.run(
            command, capture_output=True, timeout=DEADLINE, env={**os.environ, **env}
        )
        assert (ended.returncode, ended.stderr) == (0, b""), words
        assert b"plain" in ended.stdout or words[-1] == "-h"


# ---- completion


@pytest.mark.parametrize("typed, offered", [
    (["pro"], {"project"}), (["task", "c"], {"claim"}), (["task", "add", "--pri"], {"--priority"}),
    (["t", "a", "--id"], {"--idempotency-key"}), (["completion", ""], {"bash", "zsh", "fish"}),
    (["status", "--pro"], {"--project"}), (["p", "u"], {"use"}), (["t", "heart"], {"heartbeat"}),
    (["--project", "task", "task", "show", "1", "--j"], {"--json"}),
], ids=str)
@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
def test_bash_completion_offers_commands_and_flags(typed: list, offered: set) -> None:
    words = " ".join(f"'{word}'" for word in ["tam", *typed])
    code = (f'eval "$("{sys.executable}" "{SCRIPT}" completion bash)"\nCOMP_WORDS=({words})\n'
            f'COMP_CWORD={len(typed)}\n_tam\nprintf "%s\\n" "${{COMPREPLY[@]}}"')
    ended = subprocess.run(["bash", "-c", code], capture_output=True, timeout=DEADLINE, text=True)
    assert ended.stderr == ""
    found = set(ended.stdout.split())
    assert offered <= found


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command(shell: str) -> None:
    assert f"completion {'fish' if shell == 'fish' else 'bash'} -- " in run("completion", shell).out
    offered = [run("completion", shell, "--", *typed, "").out for typed in ((), ("task",), ("p",))]
    for word in ("project", "task", "status", "history", "heartbeat", "release", "current"):
        assert word in "".join(offered).split()
    assert run("completion", "tcsh").code == 1 and run("completion").code == 2
