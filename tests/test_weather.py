"""Hard weather: what tam answers, and what its files hold, when the world around it misbehaves.

Real processes, signals, file systems and locales (contract, storage; output; exit codes).
"""
from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tam

from processes import finish, python, query
from support import DEADLINE, ROOT, SCRIPT, Result, run

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
