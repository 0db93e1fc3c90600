"""Hard weather: what tam answers, and what its files hold, when the world around it misbehaves.

Real processes, signals, file systems and locales (contract, storage; output; exit codes).
"""
from __future__ import annotations

import ast
import itertools
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tam

from processes import answers, fill, finish, legacy_home, python, query, together
from support import DEADLINE, ROOT, SCRIPT, Result, run, spawn

slow = pytest.mark.slow


def process(*words: object, program: tuple = (str(SCRIPT),)) -> subprocess.Popen:
    """Start a command line as a process of its own whose standard streams are pipes."""
    pipes = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}
    return subprocess.Popen([sys.executable, "-W", "error", *program, *map(str, words)], **pipes)


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
        b"tam.config.toml", b"tam.config.toml.lock", b"tam.db3"
    ]
    assert os.listdir(place) == [b".tam"]
    with open(place + b"/.tam/tam.db3", "wb") as file:
        file.write(b"no database" * 100)
    failed = run("task", "list", "--json", **env)
    assert (failed.code, failed.json["command"]) == (1, "startup")
    assert failed.error["details"]["db_file"] == shown["home"] + "/tam.db3"


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
    for words in (("config",), ("task", "show", "1")):
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
    assert (tmp_path / "here" / "tam" / "tam.db3").exists()
    monkeypatch.chdir("/")
    assert run("project", "list", "--json", TAM_HOME=str(tmp_path / "here/tam")).data
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
import pwd
tam.main(["project", "add", "p"])  # imports what it needs: later that may be out of reach
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
    for empty in ("", "set"):
        result = finish(python(code, empty, "", TAM_HOME=str(tmp_path / f"warm{empty}")))
        assert result.code == 1 and "set TAM_HOME" in result.err and result.err.count("\n") == 1
    result = finish(python(code, "", public / "tam", TAM_HOME=str(tmp_path / "warm last")))
    assert (result.code, result.err) == (0, ""), result


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
#: The same with a busy timeout that no test lives to see the end of; `go` when it waits for it.
WAITING = ("-c", f"""
import functools, os, sys, time
sys.path.insert(0, {str(ROOT)!r})
import tam
tam.end_on_interrupt()
tam.Tam = functools.partial(tam.Tam, busy_timeout=600)
tam.time.sleep = lambda seconds, sleep=time.sleep: (os.write(1, b"go"), sleep(600))
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


def test_an_interrupt_while_tam_waits_for_another_writer(scratch_home: Path) -> None:
    a_home_with_work(1)
    holder = sqlite3.connect(scratch_home / "tam.db3", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    waiting = process("task", "done", "1", program=WAITING)
    assert waiting.stdout.read(2) == b"go"
    waiting.send_signal(signal.SIGINT)
    result = ended(waiting)
    assert (result.code, result.out, result.err) == (130, "", "")
    holder.close()
    assert run("task", "done", "1", "--json").data["task"]["revision"] == 2


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

CLOSED = itertools.product(("", "<&-"), ("", ">&-"), ("", "2>&-"))
STREAMS = [" ".join(parts) for parts in CLOSED][1:]
STREAMS += [">/dev/full", "2>/dev/full", ">/dev/full 2>/dev/full"]


@pytest.mark.parametrize("streams", STREAMS)
def test_closed_and_full_streams_never_reach_a_file_of_tam(
    scratch_home: Path, streams: str
) -> None:
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
        if "<&-" in streams and "--description -" in words:
            assert told.returncode == 1  # a closed input is no empty description
            continue
        assert told.returncode == (1 if unwritable and code == 0 else code), (words, told)
        assert b"Traceback" not in told.stderr
        if unwritable and code == 0 and "2>" not in streams:
            assert b"was carried out, but its answer cannot be written" in told.stderr
        if "2>&-" in streams:
            assert not told.stderr
    assert config_text(scratch_home) == config
    assert {path.name for path in scratch_home.iterdir()} == {
        "tam.config.toml", "tam.config.toml.lock", "tam.db3"
    }
    assert all(path.stat().st_size == 0 for path in scratch_home.glob("*.lock"))
    sound(scratch_home / "tam.db3")
    added = query(scratch_home / "tam.db3", "SELECT title, content FROM task WHERE id = 2")
    assert added == ([] if "<&-" in streams else [("written nowhere", "a description")])


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
    {"LC_ALL": "C"}, {"LC_ALL": "POSIX", "PYTHONUTF8": "0"}, ASCII, "gbk",
    {"LANG": "zh_CN.GBK", "LC_ALL": ""}, {"LC_ALL": "tlh_QO.nonsense"},
    {"LC_ALL": "C", "PYTHONUTF8": "1"}, {"LANGUAGE": "ar:he", "LC_ALL": "ar_EG.UTF-8"},
    {"PYTHONIOENCODING": "latin-1"}, {"PYTHONIOENCODING": "ascii:strict"},
    {"PYTHONIOENCODING": "gb18030"}, {"PYTHONIOENCODING": "cp037"},
    {"TZ": "Asia/Kathmandu"}, {"TZ": "garbage/../../etc/passwd"}, {"TZ": ":"},
    {"TZ": "XXX-99:99:99"}, {"TZ": "\udcff\udcfe"}, {"COLUMNS": "-3", "TERM": "lie"},
    {"PYTHONDEVMODE": "1"}, {"PYTHONHASHSEED": "1", "PYTHONOPTIMIZE": "2"},
]
SHOWN = (("task", "list"), ("task", "show", "1"), ("history",), ("status",), ("config",))


@pytest.mark.parametrize("env", ODD, ids=ascii)
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
            text = bytes.fromhex(data)
            assert "LOCPATH" not in env or words == ["history"] or "項" in text.decode("gbk")


def test_mcp_is_the_same_without_a_locale(tmp_path: Path) -> None:
    place = str(tmp_path / "家")
    run("project", "add", "项目", TAM_HOME=place)
    words = ("mcp", "--project", "项目", "--home", place)
    here, there = (spawn(*words, "--config", "claude", **env) for env in ({}, ASCII))
    assert here.code == there.code == 0 and here.raw == there.raw and "项目" in here.out
    call = {"name": "tam_status", "arguments": {}}
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    line = json.dumps(request).encode() + b"\n"
    here, there = (spawn(*words, stdin=line, **env) for env in ({}, ASCII))
    assert here.code == there.code == 0 and here.raw == there.raw and "项目" in here.out


def test_times_are_utc_in_every_zone() -> None:
    a_home_with_work(0)
    before = time.time()
    task = spawn("task", "add", "t", "--json", TZ="Asia/Kathmandu").data["task"]
    assert tam.iso_time(int(before)) <= task["created"] <= tam.iso_time(int(time.time()))


# -- a writer that holds the lock too long --


def test_a_writer_that_holds_the_lock_longer_than_the_busy_timeout(scratch_home: Path) -> None:
    a_home_with_work(2)
    holder = sqlite3.connect(scratch_home / "tam.db3", isolation_level=None)
    impatient = tam.Tam(agent="a", busy_timeout=0.05)
    for begin in ("BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"):
        holder.execute(begin)
        for name, arguments in (
            ("task.add", {"title": "t"}), ("task.claim", {"id": 1}), ("task.done", {"id": 1}),
            ("task.next", {"claim": True}), ("task.del", {"id": 2}), ("project.add", {"name": "r"}),
            ("project.edit", {"name": "p", "new_name": "r"}), ("project.del", {"name": "p"}),
        ):
            with pytest.raises(tam.Busy) as caught:
                impatient.call(name, arguments)
            assert caught.value.exit_status == 1
            assert caught.value.details == {"busy_timeout_ms": 50, "retryable": True}
            assert "busy" in caught.value.message and "try again" in caught.value.message
        assert impatient.call("status", {})["counts"]["todo"] == 2
        holder.execute("ROLLBACK")
    assert impatient.default_project() == "p"
    assert impatient.call("task.claim", {"id": 1})["task"]["revision"] == 2
    impatient.close(), holder.close()
    sound(scratch_home / "tam.db3")


@slow
def test_a_command_waits_five_seconds_for_another_writer_and_says_so(scratch_home: Path) -> None:
    a_home_with_work(1)
    holder = sqlite3.connect(scratch_home / "tam.db3", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    begin = time.monotonic()
    failed = spawn("task", "done", "1", "--json")
    assert time.monotonic() - begin >= 5
    assert (failed.code, failed.error["details"]["retryable"]) == (1, True)
    assert "5 s" in spawn("task", "done", "1").err
    holder.execute("ROLLBACK")
    holder.close()
    assert spawn("task", "done", "1", "--json").data["task"]["revision"] == 2


# -- the clock --


def test_a_clock_that_is_set_back_and_forward_during_a_lease(scratch_home: Path) -> None:
    a_home_with_work(1)
    now = [1_800_000_000.7]
    one, two = (tam.Tam(agent=agent, clock=lambda: now[0]) for agent in ("one", "two"))
    until = one.call("task.claim", {"id": 1})["task"]["lease_expires_at"]
    assert until == tam.iso_time(1_800_000_900)
    now[0] -= 3600  # back: the lease lasts longer, and nobody else gets in
    with pytest.raises(tam.Conflict):
        two.call("task.claim", {"id": 1})
    assert two.call("task.next", {"claim": True}) == {"task": None}
    assert one.call("status", {})["leased"] == 1
    shorter = one.call("task.heartbeat", {"id": 1})["task"]["lease_expires_at"]
    assert shorter == tam.iso_time(1_800_000_900 - 3600)
    now[0] += 7200  # forward: it is over, and whoever comes next has it
    task = one.call("task.show", {"id": 1})["task"]
    assert (task["assigned_agent"], task["lease_expired"]) == ("one", True)
    assert two.call("task.next", {"claim": True})["task"]["assigned_agent"] == "two"
    with pytest.raises(tam.Conflict):
        one.call("task.heartbeat", {"id": 1})
    now[0] -= 3600  # back again: still one holder
    with pytest.raises(tam.Conflict):
        one.call("task.done", {"id": 1})
    assert two.call("task.done", {"id": 1})["task"]["status"] == "done"
    events = one.call("task.events", {"id": 1})["events"]
    assert [event["event"] for event in events] == [
        "created", "claimed", "heartbeat", "claimed", "completed"
    ]
    assert [event["id"] for event in events] == sorted(event["id"] for event in events)
    snapshot = one.snapshot("p")
    assert (snapshot["leased"], snapshot["next_expiry"]) == ([], None)
    one.close(), two.close()
    sound(scratch_home / "tam.db3")


@pytest.mark.parametrize("now", [0, -1, 1, 2**31, 2**32 + 1, 253_402_300_799])
def test_a_clock_that_is_far_off(scratch_home: Path, now: int) -> None:
    a_home_with_work(1)
    far = tam.Tam(agent="a", clock=lambda: now)
    task = far.call("task.add", {"title": "t"})["task"]
    assert task["created"] == tam.iso_time(now)
    assert far.call("task.claim", {"id": 2})["task"]["lease_expired"] is False
    renewed = far.call("task.heartbeat", {"id": 2})["task"]
    assert renewed["lease_expires_at"] == tam.iso_time(now + 900)
    assert far.call("task.list", {})["count"] == 2
    assert far.call("history", {})["count"] == 4
    far.close()
    assert run("task", "list").code == run("history").code == run("task", "show", "2").code == 0
    sound(scratch_home / "tam.db3")


# -- the log --


@pytest.mark.parametrize("kind", ["file", "directory", "full", "read-only", "nonsense"])
def test_work_goes_on_without_a_log(
    scratch_home: Path, tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    a_home_with_work(1)
    place = scratch_home / "logs"
    if kind == "file":
        place.write_text("in the way")
    elif kind == "directory":
        (place / "tam.log").mkdir(parents=True)
    elif kind == "full":
        place = request.getfixturevalue("small_disk")
        fill(place, 0)
    path = {"read-only": "/proc/tam.log", "nonsense": "\x00"}.get(kind, str(place / "tam.log"))
    opened = tam.Tam()
    opened.set_config(logfile_path=path, logfile_pattern=path.replace(".log", ".{}.log"))
    opened.log("what nobody reads")
    data = bytearray((scratch_home / "tam.db3").read_bytes())
    root = "SELECT rootpage FROM sqlite_master WHERE name = 'task'"
    [(page,)] = query(scratch_home / "tam.db3", root)
    data[(page - 1) * 4096:page * 4096] = b"\xa5" * 4096
    (tmp_path / "spoiled.db3").write_bytes(data)
    opened.set_config(db_file=str(tmp_path / "spoiled.db3"))
    for words in (("task", "show", "1"), ("task", "add", "t")):
        failed = run(*words, "--json")  # such a failure goes into the log
        assert (failed.code, failed.error["code"]) == (1, "internal"), failed
        assert "malformed" in failed.error["message"]
    opened.set_config(db_file=None)
    assert run("task", "add", "t", "--json").code == 0
    assert run("task", "list", "--json").data["total"] == 2
    opened.close()
    if kind == "file":
        assert place.read_text() == "in the way"


# -- much of everything --


def steps_of(worker: tam.Tam, name: str, arguments: dict) -> tuple[object, int]:
    """Call an operation; return its result, and how many steps SQLite's machine took for it."""
    steps = itertools.count()
    with worker.store.reading() as db:
        db.set_progress_handler(lambda: next(steps) and 0, 1)
    try:
        return worker.call(name, arguments), next(steps)
    finally:
        db.set_progress_handler(None, 1)


def test_a_hundred_thousand_events_on_one_task(scratch_home: Path) -> None:
    a_home_with_work(2)
    db = sqlite3.connect(scratch_home / "tam.db3")
    with db:
        db.executemany(
            "INSERT INTO task_events (task_id, project_id, event, actor, from_status, to_status)"
            " VALUES (1, 1, 'heartbeat', ?, 0, 0)",
            ((f"agent-{number % 7}",) for number in range(99_999)),
        )
        db.execute("UPDATE task SET revision = 100000 WHERE id = 1")
    db.close()
    worker = tam.Tam(agent="agent-1")
    shown = worker.call("task.show", {"id": 1})
    assert len(shown["events"]) == 100 and shown["events"][-1]["id"] == 100_001
    newest = worker.call("task.events", {"id": 1, "limit": 7})
    assert (newest["count"], newest["truncated"]) == (7, True)
    assert (newest["total"], newest["total_is_exact"]) == (tam.TOTAL_MAX, False)
    assert newest["next_cursor"] == newest["events"][-1]["id"] == 100_001
    seen, cursor, pages = [], 0, []
    while True:
        page, steps = steps_of(worker, "task.events", {"id": 1, "since": cursor, "limit": 1000})
        pages.append(steps)
        seen += [event["id"] for event in page["events"]]
        cursor = page["next_cursor"]
        if not page["truncated"]:
            break
    assert len(seen) == len(set(seen)) == 100_000 and seen == sorted(seen)
    assert pages[-2] <= pages[0], "the last cost what the first ones do"
    assert worker.call("history", {"limit": 1000})["count"] == 1000
    worker.call("task.update", {"id": 2, "priority": 1})  # from here on it has a connection to write
    few, many = (steps_of(worker, "task.claim", {"id": task})[1] for task in (2, 1))
    assert few * 0.9 < many < few * 1.1, "a write does not care how many events there are"
    assert steps_of(worker, "status", {})[1] < 1000
    assert len(worker.snapshot("p")["events"]) == 20
    worker.close()
    assert run("task", "events", "1").out.count("\n") == 101
    sound(scratch_home / "tam.db3")


PLANES = [*range(0xA1, 0x3000), 0x3001, 0xFDD0, 0xFDEF, 0xFE0F, 0xFEFF, 0xFFF9, 0xFFFD, 0xFFFE,
          0xFFFF]
PLANES += [plane << 16 | low for plane in range(1, 17)
           for low in (0, 1, 0x41, 0x7F, 0xF600, 0xFFFD, 0xFFFE, 0xFFFF, *range(0x100, 0x1F0, 7))]


def titles(points: list[int]) -> list[str]:
    """Return titles that hold these code points, but for those that no line of text may hold."""
    allowed = [chr(point) for point in points if not 0xD800 <= point <= 0xDFFF
               and point not in (0x85, 0x2028, 0x2029)]
    return ["x" + "".join(allowed[at:at + 900]) + "x" for at in range(0, len(allowed), 900)]


def test_titles_of_every_plane_come_back_as_they_were(scratch_home: Path) -> None:
    a_home_with_work(0)
    for number, title in enumerate(titles(PLANES), 1):
        added = run("task", "add", title, "--json")
        assert added.data["task"]["title"] == title
        assert run("task", "show", number, "--json").data["task"]["title"] == title
        found = run("task", "list", "--search", title, "--json").data
        assert [task["id"] for task in found["tasks"]] == [number]
    spawned = spawn("task", "add", title := titles(PLANES)[-1], "--json")
    assert spawned.data["task"]["title"] == title
    assert run("task", "list").code == 0


@slow
def test_every_code_point_in_a_title_a_tag_and_a_description(scratch_home: Path) -> None:
    a_home_with_work(0)
    worker = tam.Tam()
    for title in titles(list(range(0xA0, 0x110000))):
        task = worker.call("task.add", {"title": title, "description": title})["task"]
        assert (task["title"], task["description"]) == (title, title)
        assert worker.call("task.show", {"id": task["id"]})["task"]["title"] == title
        tam.Paper(1, {}).table(("T",), [(title,)], 0)
    worker.close()


# -- two versions at once --

#: What tam 1.0.13 writes, by a connection with the settings that sqlite3 has anyway.
OLD_VERSION = """
import sqlite3
db = sqlite3.connect(sys.argv[1], isolation_level=None)
go()
tasks = []
for number in range(int(sys.argv[2])):
    tasks.append(db.execute(
        "INSERT INTO task (title, project_id) VALUES (?, ?)",
        (f"old {number}", int(sys.argv[3]))).lastrowid)
    db.execute("UPDATE task SET status = ? WHERE id = ?", (number % 3, tasks[-1]))
    db.execute("UPDATE task SET title = ? WHERE id = ?", (f"title {number}", tasks[number // 2]))
    if number % 5 == 4:
        db.execute("UPDATE task SET is_deleted = 1 WHERE id = ?", (tasks[-2],))
    name = f"old project {number} of {os.getpid()}"
    project = db.execute("INSERT INTO project (name) VALUES (?)", (name,)).lastrowid
    db.execute("UPDATE project SET name = ? WHERE id = ?", (name + "!", project))
    db.execute("UPDATE project SET is_deleted = 1 WHERE id = ?", (project,))
db.close()
answer(len(tasks))
"""
NEW_VERSION = """
worker = tam.Tam(project="p", agent=sys.argv[1])
go()
done = 0
for number in range(int(sys.argv[2])):
    worker.call("task.add", {"title": f"new {number}"})
    taken = worker.call("task.next", {"claim": True})["task"]
    try:
        worker.call("task.update", {"id": taken["id"], "description": f"note {number}"})
        worker.call("task.done", {"id": taken["id"]})
        done += 1
    except (tam.Conflict, tam.NotFound):
        pass  # the old version, which knows no lease, has done or deleted it meanwhile
    worker.call("status", {})
worker.close()
answer(done)
"""


@pytest.mark.parametrize("rounds", [15, pytest.param(400, marks=slow)])
def test_tam_1_0_13_writes_while_this_one_works(scratch_home: Path, rounds: int) -> None:
    path = legacy_home(scratch_home)
    query(path, "INSERT INTO project (name) VALUES ('p')")
    [(project,)] = query(path, "SELECT id FROM project WHERE name = 'p'")
    before = query(path, "SELECT count(*) FROM task")[0][0]
    assert run("task", "list", "--project", "p", "--json").code == 0  # this migrates it
    workers = [python(OLD_VERSION, path, rounds, project) for _ in range(2)]
    workers += [python(NEW_VERSION, f"agent-{number}", rounds) for number in range(2)]
    counts = [answers(worker)[0] for worker in together(workers)]
    assert counts[:2] == [rounds, rounds] and min(counts[2:]) > 0
    assert query(path, "SELECT count(*) FROM task") == [(before + 4 * rounds,)]
    assert query(path, "SELECT count(*) FROM project WHERE name LIKE 'old project %!'"
                       " AND is_deleted") == [(2 * rounds,)]
    counted = run("status", "--project", "p", "--json").data["counts"]
    real = query(path, f"SELECT status, count(*) FROM task WHERE project_id = {project}"
                       " AND NOT is_deleted GROUP BY 1 ORDER BY 1")
    words = ("todo", "in_progress", "done")
    assert counted == {word: dict(real).get(number, 0) for number, word in enumerate(words)}
    done = query(path, "SELECT count(*) FROM task_events"
                       " WHERE event = 'completed'")
    assert done == [(sum(counts[2:]),)]
    assert query(path, "PRAGMA integrity_check") == [("ok",)]


# -- privacy --


def modes(home: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in [home, *home.rglob("*")]}


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077], ids=oct)
def test_what_tam_makes_is_its_owners_only(scratch_home: Path, umask: int) -> None:
    path = legacy_home(scratch_home.with_name("legacy") / ".tam")
    old = os.umask(umask)
    try:
        a_home_with_work(1)
        opened = tam.Tam()
        opened.call("task.add", {"title": "t"})
        opened.log("x" * 1000)
        with open(scratch_home / "logs" / "tam.log", "ab") as file:
            file.truncate(tam.LOG_BYTES)
        opened.log("this one rolls it")
        opened.set_config(theme="light")
        found = modes(scratch_home)
        opened.close()
        assert run("task", "list", "--json", TAM_HOME=str(path.parent)).code == 0
        for name, mode in modes(path.parent).items():
            if name.endswith((".bak.v1", ".lock")):
                assert mode == 0o600, name
    finally:
        os.umask(old)
    assert found.pop(".tam") == found.pop("logs") == 0o700
    assert set(found) == {
        "tam.config.toml", "tam.config.toml.lock", "tam.db3", "tam.db3-wal", "tam.db3-shm",
        "tam.log", "tam.1.log",
    }
    assert set(found.values()) == {0o600}, found


def test_what_exists_keeps_its_modes(scratch_home: Path) -> None:
    a_home_with_work(1)
    tam.Tam().log("a line")
    for path in [scratch_home, *scratch_home.rglob("*")]:
        path.chmod(0o775 if path.is_dir() else 0o664)
    before = modes(scratch_home)
    opened = tam.Tam()
    opened.call("task.add", {"title": "t"})
    opened.call("project.use", {"name": "q"})
    opened.log("a line")
    found = modes(scratch_home)
    opened.close()
    assert {name: mode for name, mode in found.items() if name in before} == before
    assert {found[name] for name in ("tam.db3-wal", "tam.db3-shm")} == {0o664}  # as the database


# -- the interpreter's switches --


@pytest.mark.parametrize("switches", [("-OO",), ("-I", "-X", "dev", "-W", "error")], ids=" ".join)
def test_the_interpreters_switches_change_nothing(scratch_home: Path, switches: tuple) -> None:
    for words, code in (
        (("project", "add", "p"), 0), (("task", "add", "t", "--project", "p", "--tag", "a"), 0),
        (("task", "next", "--claim", "--project", "p", "--agent", "a"), 0),
        (("task", "done", "1", "--agent", "b"), 4), (("task", "done", "1", "--agent", "a"), 0),
        (("task", "show", "2"), 3), (("task", "list", "--project", "p", "--limit", "x"), 2),
        (("history", "--project", "p"), 0),
    ):
        result = ended(process(*words, "--json", program=(*switches, str(SCRIPT))))
        assert result.code == code, (words, result)
        assert result.json["command"].startswith(words[0])
    sound(scratch_home / "tam.db3")


def test_nothing_is_left_to_the_assert_statement() -> None:
    for module in ROOT.glob("tam*.py"):
        tree = ast.parse(module.read_text("utf-8"))
        found = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Assert)]
        assert not found, (module.name, found)
