"""Hard weather: what tam answers, and what its files hold, when the world around it misbehaves.

Real processes, signals, file systems and locales (contract, storage; output; exit codes).
"""
from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tam

from processes import finish, python, query
from support import DEADLINE, ROOT, SCRIPT, Result, run, spawn

slow = pytest.mark.slow


def process(*words: object, program: tuple = (str(SCRIPT),), **streams: object) -> subprocess.Popen:
    """Start a command line as a process of its own whose output is two pipes."""
    pipes = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}
    return subprocess.Popen([sys.executable, "-W", "error", *program, *map(str, words)], **pipes | streams)


def ended(started: subprocess.Popen) -> Result:
    """Wait for the end of a process; a traceback is a failure whatever else was asked."""
    out, err = started.communicate(timeout=DEADLINE)
    assert b"Traceback" not in err and b"Exception ignored" not in err, err.decode()
    return Result(started.returncode, out, err)


def sound(path: Path) -> None:
    """Fail unless a database is whole: its pages, its counters, an event for every revision."""
    assert query(path, "PRAGMA integrity_check") == [("ok",)]
    counted = "SELECT project_id, status, count(*) FROM task WHERE NOT is_deleted GROUP BY 1, 2"
    assert query(path, "SELECT * FROM task_count WHERE n ORDER BY 1, 2") == query(path, counted)
    assert query(path, "SELECT id FROM task WHERE revision <> (SELECT count(*) FROM task_events"
                       " WHERE task_id = task.id)") == []


def leftovers(home: Path) -> list[Path]:
    """Return the temporary files that somebody forgot."""
    return [path for path in home.rglob("*") if path.name.endswith((".tmp", "-journal"))]


@pytest.fixture(scope="session")
def gbk(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a Chinese locale before UTF-8, compiled for the test."""
    place = tmp_path_factory.mktemp("locales")
    command = ["localedef", "-i", "zh_CN", "-f", "GBK", str(place / "zh_CN.GBK")]
    if shutil.which(command[0]) is None or not any(Path("/usr/share/i18n/charmaps").glob("GBK*")):
        pytest.skip("no GBK locale can be made here")
    subprocess.run(command, capture_output=True)  # it warns, and then it has its own exit status
    return {"LOCPATH": str(place), "LC_ALL": "zh_CN.GBK", "PYTHONUTF8": "0"}


ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


# -- homes --

NAMES = [b"a b", "中文".encode(), b"q?#%41&;'\"", b"line\nfeed", b"no \xff\xfe utf-8", b"-n"]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_home_of_any_name(tmp_path: Path, name: bytes) -> None:
    place = os.fsencode(tmp_path) + b"/" + name
    env = {"TAM_HOME": "", "HOME": os.fsdecode(place)}
    assert run("project", "add", "p", "--json", **env).code == 0
    assert run("project", "use", "p", **env).code == 0
    assert run("task", "add", "t", "--json", **env).data["task"]["id"] == 1
    assert run("task", "list", "--json", **env).data["total"] == 1
    assert run("config", **env).code == 0
    shown = run("config", "--json", **env).data
    assert shown["home"] == (place + b"/.tam").decode("utf-8", "replace")
    assert sorted(os.listdir(place + b"/.tam")) == [
        b"tam.config.toml", b"tam.config.toml.lock", b"tam.db3", b"tam.db3.lock"
    ]
    assert os.listdir(place) == [b".tam"]
    with open(place + b"/.tam/tam.db3", "wb") as file:
        file.write(b"no database" * 100)
    failed = run("task", "list", "--json", **env)
    assert (failed.code, failed.json["command"]) == (1, "startup")
    assert failed.error["details"]["db_file"] == (place + b"/.tam/tam.db3").decode("utf-8", "replace")


@pytest.mark.parametrize("name", NAMES[1::3], ids=ascii)
@pytest.mark.parametrize("kind", ["ascii", "gbk"])
def test_a_home_is_the_same_in_every_locale(
    tmp_path: Path, name: bytes, kind: str, request: pytest.FixtureRequest
) -> None:
    odd = ASCII if kind == "ascii" else request.getfixturevalue("gbk")
    place = os.path.join(os.fsdecode(tmp_path), os.fsdecode(name))
    home = {"TAM_HOME": place, "TAM_PROJECT": "项目", "TAM_AGENT": "代理"}
    assert spawn("project", "add", "项目", "--json", **home, **odd).code == 0
    note = tmp_path / "说明.txt"
    note.write_text("描述", "utf-8")
    added = spawn("task", "add", "任务", "--description-file", note, "--json", **home, **odd)
    assert added.json["meta"] == {"project": "项目", "agent": "代理"}
    assert added.data["task"]["description"] == "描述"
    for words in (("config",), ("task", "show", "1"), ("task", "show", "9"), ("history",)):
        there, here = (spawn(*words, "--json", **home, **env) for env in (odd, {}))
        assert (there.code, there.out, there.err) == (here.code, here.out, here.err)
    Path(place, "tam.db3").write_bytes(b"no database" * 100)
    there, here = (spawn("task", "list", "--json", **home, **env) for env in (odd, {}))
    assert there.code == 1 and there.err == here.err


def test_a_home_that_is_missing_is_made_with_its_parents(tmp_path: Path) -> None:
    deep = tmp_path / "not" / "yet" / "there"
    assert run("task", "list", "--json", TAM_HOME=str(deep)).error["code"] == "missing_project"
    assert run("project", "add", "p", "--json", TAM_HOME=str(deep)).code == 0
    assert deep.stat().st_mode & 0o777 == 0o700


def test_a_home_behind_symbolic_links(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "later").symlink_to("made later")
    for name in ("link", "later"):  # the second one's directory is still missing
        assert run("project", "add", "p", "--json", TAM_HOME=str(tmp_path / name)).code == 0
        assert run("project", "use", "p", TAM_HOME=str(tmp_path / name)).code == 0
        assert (tmp_path / name).is_symlink()
    assert (tmp_path / "made later").stat().st_mode & 0o777 == 0o700
    config = tmp_path / "real" / "tam.config.toml"
    config.rename(tmp_path / "dotfiles.toml")
    config.symlink_to(tmp_path / "dotfiles.toml")
    assert run("project", "use", "p", TAM_HOME=str(tmp_path / "link")).code == 0
    assert config.is_symlink() and 'current_project = "p"' in config.read_text("utf-8")


def test_a_relative_home_starts_at_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TAM_HOME", "here/tam")
    assert run("project", "add", "p", "--json").code == 0
    assert str(tmp_path / "here" / "tam" / "tam.db3") in (tmp_path / "here/tam/tam.config.toml").read_text()
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    for words in (("project", "list"), ("project", "add", "q"), ("config",), ("-V",)):
        failed = run(*words, "--json")
        assert failed.code == 0 if words == ("-V",) else "current directory is gone" in failed.err
    assert run("project", "list", "--json", TAM_HOME=str(tmp_path / "here" / "tam")).data
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("home", ["relative", "/dev/null", "/proc/nowhere"])
def test_a_home_where_nothing_can_be_says_so(home: str) -> None:
    for words in (("project", "list"), ("project", "add", "p"), ("config",)):
        result = run(*words, "--json", HOME=home, TAM_HOME="")
        if home == "/proc/nowhere" and words[-1] != "p":
            assert result.code == 0  # there is nothing to read, and a read makes nothing
            continue
        assert (result.code, result.error["code"]) == (1, "internal")
        assert home in result.error["message"] or "no home directory" in result.error["message"]
    assert run("-h", HOME=home, TAM_HOME="").code == 0


def test_without_home_and_without_an_account(tmp_path: Path, public: Path) -> None:
    public.chmod(0o777)
    code = """
import locale, pwd, traceback  # the interpreter itself may be out of reach afterwards
os.environ.pop("HOME", None)
if sys.argv[1]:
    os.environ["HOME"] = ""
os.environ["TAM_HOME"] = sys.argv[2]
if os.geteuid() == 0:
    os.setgroups([]), os.setgid(54321), os.setuid(54321)
tam.main(["-h"])
sys.exit(tam.main(["project", "add", "p", "--json"]))
"""
    if os.geteuid():
        pytest.skip("only root can become a user without an account")
    for empty in ("", "yes"):
        result = finish(python(code, empty, ""))
        assert result.code == 1 and "set TAM_HOME" in result.err and result.err.count("\n") == 1
    result = finish(python(code, "", public / "tam"))
    assert (result.code, result.err) == (0, "")


# -- Ctrl-C --

#: tam's own code has begun when `go` appears; from there on no instant may be a bad one.
INTERRUPTED = ("-c", f"""
import os, sys
sys.path.insert(0, {str(ROOT)!r})
import tam
tam.end_on_interrupt()
os.write(1, b"go")
sys.exit(tam.main())
""")
EVERY_COMMAND = [line.split() for line in """\
-h
-V
guide
completion fish
config
project list
project add new
project use q
project use p
project current
project edit q r
project edit r q
project del new
task list --search é
task list --json
task add t --tag a --tag b --json
task edit 1 other
task update 2 --priority 1 --description text
task show 1
task events 1 --json
task start 3
task claim 4 --agent a --json
task heartbeat 4 --agent a
task release 4 --agent a --json
task next --claim --agent b
task done 5
task del 6
status
history --limit 3
""".splitlines()]


def a_home_with_work(tasks: int = 8) -> None:
    for name in ("p", "q"):
        run("project", "add", name)
    run("project", "use", "p")
    opened = tam.Tam()
    for number in range(tasks):
        opened.call("task.add", {"title": f"task {number} Éé", "description": "x" * 500})
    opened.close()


def interrupted(words: list[str], seconds: float, number: int) -> tuple[Result, float]:
    """Signal a command this long after tam began; return how it ended and how long it took."""
    started = process(*words, program=INTERRUPTED)
    assert started.stdout.read(2) == b"go"
    begin = time.monotonic()
    try:
        started.wait(seconds)
    except subprocess.TimeoutExpired:
        started.send_signal(number)
    result = ended(started)
    return result, time.monotonic() - begin


def interrupt_all(home: Path, commands: list[list[str]], seed: int, number: int) -> None:
    chance = random.Random(seed)
    a_home_with_work()
    lasts = 0.05
    by_signal = 130 if number == signal.SIGINT else -number
    seen = set()
    for words in commands:
        result, took = interrupted(words, chance.uniform(0, lasts), number)
        seen.add(result.code)
        assert result.code in (by_signal, 0, 1, 3, 4), (words, result)
        assert "unexpected" not in result.err and "user-defined" not in result.err, (words, result)
        if result.code == 0:
            lasts = 0.8 * lasts + 0.25 * took  # a little beyond the usual length of a command
        assert not leftovers(home), words
        assert run("config", "--json").code == 0
    assert {0, by_signal} <= seen
    sound(home / "tam.db3")


def test_an_interrupt_at_a_random_instant_of_every_command(scratch_home: Path) -> None:
    some = random.Random(7).sample(EVERY_COMMAND, 15)
    interrupt_all(scratch_home, some, 20261130, signal.SIGINT)


@slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_at_many_instants(scratch_home: Path, number: signal.Signals) -> None:
    interrupt_all(scratch_home, EVERY_COMMAND * 15, int(number), number)


@pytest.mark.parametrize("number, code", [
    (signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGHUP, -signal.SIGHUP),
])
@pytest.mark.parametrize("call", ["open", "write", "fsync", "replace"])
def test_a_signal_while_the_config_is_saved_leaves_no_temporary_file(
    scratch_home: Path, call: str, number: signal.Signals, code: int
) -> None:
    a_home_with_work(0)
    result = finish(python("""
number, call = int(sys.argv.pop(1)), sys.argv.pop(1)
real = getattr(os, call)

def signalled(*args):
    returned = real(*args)
    if ".tmp" in str(args[0]) or call in ("write", "fsync"):
        os.kill(os.getpid(), number)
    return returned

setattr(os, call, signalled)
sys.exit(tam.main())
""", int(number), call, "project", "use", "q"))
    assert (result.code, result.err) == (code, "")
    assert not leftovers(scratch_home)
    assert run("project", "current", "--json").data["project"]["name"] == "q"
