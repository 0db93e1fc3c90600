"""Hard weather: what tam answers, and what its files hold, when the world around it misbehaves.

Real processes, signals, file systems and locales (contract, storage; output; exit codes).
"""
from __future__ import annotations

import itertools
import json
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

from processes import fill, finish, python, query
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
import locale, pwd, traceback, unicodedata  # the interpreter itself may be out of reach afterwards
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


# -- a full disk while the config is saved --


def config_text(home: Path) -> bytes:
    return (home / "tam.config.toml").read_bytes()


@pytest.mark.parametrize("words", [
    ("project", "use", "q"), ("project", "edit", "p", "r"), ("project", "del", "p"),
])
def test_a_disk_that_gets_full_at_any_moment_of_a_config_save(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch, words: tuple
) -> None:
    home = small_disk / "home"
    monkeypatch.setenv("TAM_HOME", str(home))
    a_home_with_work(1)
    before, failures = config_text(home), []
    for spare in range(0, 64, 4):
        ballast = fill(small_disk, spare * 1024)
        result = run(*words, "--json")
        ballast.unlink()
        if result.code == 0:
            break
        failures.append(result.error["message"])
        assert config_text(home) == before
        assert not leftovers(home)
        assert [one["name"] for one in run("project", "list", "--json").data] == ["p", "q"]
        assert run("task", "list", "--json").data["total"] == 1
    else:
        pytest.fail("even with room it does not work")
    assert any("No space left on device" in message for message in failures)
    assert all("full" in message or "No space" in message for message in failures)
    sound(home / "tam.db3")


def test_a_file_size_limit_while_a_big_config_is_saved(scratch_home: Path) -> None:
    a_home_with_work(1)
    config = scratch_home / "tam.config.toml"
    config.write_bytes(config.read_bytes() + b"# a note of the user\n" * 20_000)
    before = config.read_bytes()
    result = finish(python("""
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
sys.exit(tam.main(["project", "edit", "p", "r", "--json"]))
"""))
    assert (result.code, result.error["code"]) == (1, "internal")
    assert "File too large" in result.error["message"]
    assert config.read_bytes() == before and not leftovers(scratch_home)
    assert run("task", "list", "--json").data["tasks"][0]["project"] == "p"
    assert run("project", "edit", "p", "r", "--json").code == 0
    assert config.read_bytes() == before.replace(b'"p"', b'"r"')


# -- closed and full streams --

STREAMS = [" ".join(parts) for parts in itertools.product(("", "<&-"), ("", ">&-"), ("", "2>&-"))][1:]
STREAMS += [">/dev/full", "2>/dev/full", ">/dev/full 2>/dev/full"]


@pytest.mark.parametrize("streams", STREAMS)
def test_closed_and_full_streams_never_reach_a_file_of_tam(scratch_home: Path, streams: str) -> None:
    if "/dev/full" in streams and not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    a_home_with_work(1)
    unwritable = ">/dev/full" in streams.split()
    config = config_text(scratch_home)
    for words, code in (
        ("task add 'written nowhere' --description - --json", 0), ("task show 99 --json", 3),
        ("task list", 0),
    ):
        shell = f'exec "{sys.executable}" -W error "{SCRIPT}" {words} {streams}'
        told = subprocess.run(["sh", "-c", shell], input=b"a description", capture_output=True,
                              timeout=DEADLINE)
        assert told.returncode == (1 if unwritable and code == 0 else code), (words, told)
        assert b"Traceback" not in told.stderr
        if unwritable and code == 0 and "2>" not in streams:
            assert b"was carried out, but its answer cannot be written" in told.stderr
        if "2>&-" in streams:
            assert not told.stderr
    assert config_text(scratch_home) == config
    assert {path.name for path in scratch_home.iterdir()} == {
        "tam.config.toml", "tam.config.toml.lock", "tam.db3", "tam.db3.lock"
    }
    assert all(path.stat().st_size == 0 for path in scratch_home.glob("*.lock"))
    sound(scratch_home / "tam.db3")
    [added] = query(scratch_home / "tam.db3", "SELECT title, content FROM task WHERE id = 2")
    assert added == ("written nowhere", "" if "<&-" in streams else "a description")


def test_a_reader_that_goes_away_in_the_middle_of_a_long_answer() -> None:
    a_home_with_work(400)
    for words in (("task", "list"), ("task", "list", "--json", "--limit", "1000")):
        started = process(*words)
        assert started.stdout.read(1)
        started.stdout.close()
        assert (started.stderr.read(), started.wait(DEADLINE)) == (b"", 0)
        started.stdin.close(), started.stderr.close()


# -- locale and time zone --

ODD = [
    {"LC_ALL": "C"}, {"LC_ALL": "POSIX", "PYTHONUTF8": "0"}, ASCII, {"LANG": "zh_CN.GBK", "LC_ALL": ""},
    {"PYTHONIOENCODING": "latin-1"}, {"PYTHONIOENCODING": "ascii:strict"}, {"PYTHONIOENCODING": "gb18030"},
    {"PYTHONIOENCODING": "cp037"}, {"LC_ALL": "tlh_QO.nonsense"}, {"PYTHONUTF8": "1", "LC_ALL": "C"},
    {"TZ": "Asia/Kathmandu"}, {"TZ": "garbage/../../etc/passwd"}, {"TZ": ":"}, {"TZ": "XXX-99:99:99"},
    {"TZ": "\udcff\udcfe"}, {"LANGUAGE": "ar:he", "LC_ALL": "ar_EG.UTF-8"}, {"COLUMNS": "-3", "TERM": "lie"},
    {"PYTHONDEVMODE": "1"}, {"PYTHONHASHSEED": "1", "PYTHONOPTIMIZE": "2"}, "gbk",
]
SHOWN = (("task", "list"), ("task", "show", "1"), ("history",), ("status",), ("config",))


@pytest.mark.parametrize("env", ODD, ids=lambda env: " ".join(env).encode("ascii", "replace").decode())
def test_json_is_the_same_and_people_get_an_answer_in_every_environment(
    scratch_home: Path, env: dict | str, request: pytest.FixtureRequest
) -> None:
    env = request.getfixturevalue(env) if isinstance(env, str) else env
    title = "Größe 語 😀 \u202eRTL\u202c e\u0301 ✅"
    run("project", "add", "項目")
    run("project", "use", "項目")
    assert run("task", "add", title, "--tag", "é", "--description", "日本\n語").code == 0
    code = """
import tempfile
for words in json.loads(sys.argv[1]):
    with tempfile.TemporaryFile() as file:
        saved = os.dup(1)
        os.dup2(file.fileno(), 1)
        code = tam.main(words)
        os.dup2(saved, 1)
        os.close(saved)
        answer([code, os.pread(file.fileno(), 1_000_000, 0).hex()])
sys.exit(tam.main(["task", "start", "1", "--project", "\\u8a9e"]))
"""
    commands = [[*words, *more] for words in SHOWN for more in ([], ["--json"])]
    started = python(code, json.dumps(commands), **env)
    out, err = started.communicate(timeout=DEADLINE)
    assert started.returncode == 1 and err.count(b"\n") + err.count(b"\x25") == 1, err
    for words, line in zip(commands, out.splitlines(), strict=True):
        code, data = json.loads(line)
        assert code == 0, words
        if "--json" in words:
            assert bytes.fromhex(data) == run(*words).raw, words
        else:
            assert "LOCPATH" not in env or words == ["history"] or "項" in bytes.fromhex(data).decode("gbk")


def test_times_are_utc_in_every_zone() -> None:
    a_home_with_work(0)
    before = time.time()
    task = spawn("task", "add", "t", "--json", TZ="Asia/Kathmandu").data["task"]
    assert tam.iso_time(int(before)) <= task["created"] <= tam.iso_time(int(time.time()))
