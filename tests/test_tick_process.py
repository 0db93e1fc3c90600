"""The Tick as a process: real pipes, and a real pseudo-terminal that controls it."""
from __future__ import annotations

import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tick_support import (  # noqa: F401
    BOARD,
    DEADLINE,
    ROOT,
    TICK,
    Process,
    closing,
    database,
    make_project,
)

import tam
import tam_tick


@pytest.fixture
def tick() -> Iterator[Process]:
    """A Tick in a project with two tasks, its first state read."""
    make_project("demo", 2)
    with Process() as process:
        assert process.read()["seq"] == 0
        yield process


def command_line(*words: str) -> None:
    """Run tam as another process would."""
    subprocess.run([sys.executable, str(ROOT / "tam.py"), *words], check=True, capture_output=True)


def resident(process: Process) -> int:
    """Return the bytes of memory that a process holds."""
    with open(f"/proc/{process.popen.pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# ---- the dialogue of appendix A ----


def test_the_dialogue_of_appendix_a() -> None:
    make_project("demo", 1)
    with Process() as tick:
        described = tick.describe()
        assert described["protocol"] == 3 and described["recover_with"] == "history"
        assert described["state"]["series"] == [{"path": "/events", "newest": "last"}]
        first = tick.read()
        assert first["seq"] == 0 and first["data"]["counts"]["todo"] == 1
        revision = described["revision"]

        params = {"tool": "task_create", "args": {"title": "By an agent"}, "revision": revision}
        answer = tick.ask("tick/call", params)
        assert answer["result"]["task"]["id"] == 2
        assert tick.read()["data"]["counts"]["todo"] == 2, "what is read shows what was done"
        update = tick.update(lambda data: data["counts"]["todo"] == 2)
        assert update["seq"] == 1
        tick.sees("2 By an agent")

        tick.press("s")  # a person starts the selected task, which is the first one still
        moved = tick.update(lambda data: data["counts"]["in_progress"] == 1)
        assert moved["seq"] == 2 and moved["data"]["events"][-1]["actor"] == "human"

        stale = tick.ask("tick/call", {**params, "revision": "0"})
        assert stale["error"]["code"] == -32004
        assert tam.Tam().call("task.list", {})["total"] == 2, "it was not carried out"
        assert b"test-instance" not in tick.raw
        tick.end_of_input()
        assert tick.wait() == 0
    assert tick.raw.endswith(b"\n")


# ---- requests ----


def test_eight_calls_run_beside_describe_and_read_and_are_answered_once(tick: Process) -> None:
    revision = tick.describe()["revision"]
    blocker = database()
    blocker.execute("BEGIN IMMEDIATE")
    calls = [
        tick.request("tick/call", {"tool": "task_create", "args": {"title": f"n{n}"},
                                   "revision": revision})
        for n in range(8)
    ]
    for _ in range(20):
        tick.describe()
        tick.read()
    assert not any(frame.get("id") in calls for frame in tick.frames), "all eight still wait"
    blocker.execute("ROLLBACK")
    titles = {tick.answer(call)["result"]["task"]["title"] for call in calls}
    assert titles == {f"n{n}" for n in range(8)}
    final = tick.update(lambda data: data["counts"]["todo"] == 10)
    assert tick.read()["seq"] >= final["seq"]
    ids = [frame["id"] for frame in tick.frames if "id" in frame]
    assert len(ids) == len(set(ids))


def test_a_read_after_an_answer_shows_what_the_call_did(tick: Process) -> None:
    revision = tick.describe()["revision"]
    for number in range(3, 30):
        params = {"tool": "task_create", "args": {"title": "x"}, "revision": revision}
        assert "result" in tick.ask("tick/call", params)
        assert tick.read()["data"]["counts"]["todo"] == number
    seqs = [update["seq"] for update in tick.updates()]
    assert seqs == sorted(set(seqs))


def test_five_thousand_junk_lines_get_no_answer_and_do_no_harm(tick: Process) -> None:
    junk = [b"junk", b"[]", b'{"id":null}', b"\xff\xfe", b"{" * 300, b"", b'{"jsonrpc":"2.0"}']
    before = len(tick.frames)
    for start in range(0, 5000, 50):
        tick.send(b"\n".join(junk[n % len(junk)] for n in range(start, start + 50)))
    assert tick.read()["data"]["counts"]["todo"] == 2
    assert len(tick.frames) == before + 1


def test_an_overlong_line_is_dropped_in_bounded_memory(tick: Process) -> None:
    before = resident(tick)
    chunk = b'{"jsonrpc":"2.0","id":1,"x":"' + b"x" * (1 << 20)
    for _ in range(40):
        tam.write_all(tick.popen.stdin.fileno(), chunk)
    tick.send(b"")
    count = len(tick.frames)
    assert tick.read()["seq"] == 0 and len(tick.frames) == count + 1
    assert resident(tick) - before < 32 << 20


def test_answers_to_a_host_that_does_not_read_are_kept_and_bounded(tick: Process) -> None:
    tick.read()
    tick.reading = False
    ids = [tick.request("tick/describe") for _ in range(600)]
    before = resident(tick)
    tick.type("aStill alive\r")
    tick.sees("Still alive")
    assert resident(tick) - before < 16 << 20
    tick.reading = True
    for request_id in ids:
        tick.answer(request_id)
    assert sorted(f["id"] for f in tick.frames if "id" in f) == sorted({*range(1, ids[0]), *ids})


def test_requests_that_came_in_one_piece_or_byte_by_byte(tick: Process) -> None:
    line = b'{"jsonrpc":"2.0","id":%d,"method":"tick/read","params":{}}'
    tick.send(b"\n".join(line % number for number in range(1000, 1100)) + b"\r")
    for number in range(1000, 1100):
        tick.answer(number)
    for byte in line % 2000 + b"\n":
        tam.write_all(tick.popen.stdin.fileno(), bytes([byte]))
    assert tick.answer(2000)["result"]["seq"] == 0


# ---- updates ----


def test_another_process_reaches_the_wire_and_the_screen(tick: Process) -> None:
    command_line("task", "add", "From the command line", "--project", "demo")
    tick.update(lambda data: data["counts"]["todo"] == 3)
    tick.sees("3 From the command line")


def test_each_foreign_commit_is_seen(tick: Process) -> None:
    """How soon is for the benchmark to say."""
    home = tam.Tam()
    for number in range(3, 23):
        home.call("task.add", {"title": "x", "project": "demo"})
        tick.update(lambda data, n=number: data["counts"]["todo"] >= n)
    home.close()


def test_the_end_of_a_lease_is_an_update(tick: Process) -> None:
    tick.call("task_claim", id=1, agent="a", lease_seconds=900)
    claimed = tick.update(lambda data: data["leased_count"] == 1)
    assert [task["id"] for task in claimed["data"]["next"]] == [2]
    database().execute("UPDATE task SET lease_expires_at = ? WHERE id = 1", (int(time.time()) + 2,))
    tick.update(lambda data: data["leased"] and data["leased"][0]["lease_expires_at"]
                != claimed["data"]["leased"][0]["lease_expires_at"])
    ended = tick.updates()[-1]["seq"]
    over = tick.until(lambda: [u for u in tick.updates() if u["seq"] > ended], "the expiry")[0]
    assert over["data"]["leased"] == [] and [t["id"] for t in over["data"]["next"]] == [1, 2]
    assert over["data"]["cursor"] == claimed["data"]["cursor"], "no event, and yet a change"
    tick.sees("expired")


def test_what_is_only_seen_makes_no_update(tick: Process) -> None:
    tick.sees("Task 1")
    for columns in (100, 20, 66, 40, 200, 65, 30, 1, 80, 120):
        drawn = tick.terminal_bytes
        tick.resize(columns, columns // 4 + 1)
        tick.until(lambda n=drawn: tick.terminal_bytes > n, f"the picture of {columns} columns")
    tick.sees("● agents see this project")
    for key, text in (("\x1b[B\x1b[C\x1b[At", "Todo 2"), ("?", "Everywhere"), ("/", "Todo 2"),
                      ("/", "Search"), ("T", "/T"), ("\r", "? help"), ("\r", "Task 1 ")):
        tick.type(key)
        tick.sees(text)
    tick.type("\x1b")
    tick.loses("Priority")
    tick.type("\x1b")
    tick.loses("/T")
    tick.type("\x1b")
    tick.sees("● demo")
    assert tick.read()["seq"] == 0 and tick.updates() == []


def storm(tick: Process, seconds: float) -> None:
    """Let the host be deaf under a storm of writes, and see that nothing is lost or grows."""
    tick.reading = False
    home, count = tam.Tam(), 2
    memory = resident(tick)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        home.call("task.add", {"title": "长长的标题" * 30, "project": "demo"})
        count += 1
        tick.pump()
    home.call("task.add", {"title": "The most urgent", "priority": 1, "project": "demo"})
    count += 1
    tick.sees(f"Todo {count} ")
    tick.sees("The most urgent")
    tick.type("aTyped meanwhile\r")
    tick.sees(f"Todo {count + 1} ")
    assert resident(tick) - memory < 24 << 20
    tick.reading = True
    newest = tick.update(lambda data: data["counts"]["todo"] == count + 1)
    assert tick.read()["seq"] >= newest["seq"]
    seqs = [update["seq"] for update in tick.updates()]
    assert seqs == sorted(set(seqs)) and len(seqs) < 60 < count


def test_a_deaf_host_under_a_storm_of_writes(tick: Process) -> None:
    storm(tick, 2.5)


@pytest.mark.parametrize("end", ["SIGTERM", "quit"])
def test_a_view_that_nobody_reads_stops_neither_requests_nor_the_end(
        tick: Process, end: str) -> None:
    tick.sees("Task 2")
    tick.viewing = False
    for number in range(150):
        tick.type("t")  # another theme: all of the screen is painted anew
        time.sleep(0.005)
        if number % 50 == 49:
            tick.describe()
    assert "result" in tick.call("task_create", title="x")
    tick.update(lambda data: data["counts"]["todo"] == 3)
    if end == "quit":
        tick.type("q")
    else:
        tick.signal(signal.SIGTERM)
    assert tick.wait() == (0 if end == "quit" else 143)
    assert tick.modes() == tick.first_modes


@pytest.mark.slow
def test_a_deaf_host_under_ten_seconds_of_storm(tick: Process) -> None:
    storm(tick, 10.0)


# ---- which project ----


def test_the_project_may_come_later_and_go_again() -> None:
    home = tam.Tam()
    with Process() as tick:
        assert tick.read() == {"seq": 0, "data": None, "at": tick.frames[-1]["result"]["at"]}
        tick.sees("no projects yet")
        home.call("project.add", {"name": "first"})
        tick.sees("first")
        assert tick.read()["data"] is None, "made, but not chosen"
        command_line("project", "use", "first")
        tick.update(lambda data: data["project"]["name"] == "first")
        tick.sees("● agents see this project")
        home.call("project.add", {"name": "second"})
        home.call("project.use", {"name": "second"})
        tick.update(lambda data: data["project"]["name"] == "second")
        home.call("project.del", {"name": "second"})
        tick.until(lambda: tick.read()["data"] is None, "null")
        assert all(update["data"] is not None for update in tick.updates())


@pytest.mark.parametrize("given", ["flag", "environment"])
def test_a_named_project_is_served_once_it_is_made(given: str) -> None:
    make_project("current", 1)
    argv = (*TICK, "--project", "later") if given == "flag" else TICK
    env = {} if given == "flag" else {"TAM_PROJECT": "later"}
    with Process(argv, env=env) as tick:
        assert tick.read()["data"] is None
        tick.sees("agents see no project")
        tam.Tam().call("project.add", {"name": "later"})
        tick.update(lambda data: data["project"]["name"] == "later")
        tick.sees("● agents see this project")
        assert tick.call("task_create", title="x")["result"]["task"]["project"] == "later"
        assert tick.call("task_get", id=1)["error"]["data"]["code"] == "not_found"


def test_another_file_in_the_place_of_the_database_is_seen(tick: Process) -> None:
    path = tam.Tam().config["db_file"]
    for suffix in ("", "-wal", "-shm"):
        if os.path.exists(path + suffix):
            os.rename(path + suffix, path + suffix + ".old")
    tick.until(lambda: tick.read()["data"] is None, "null")
    tam.Tam().call("project.add", {"name": "demo"})
    tick.update(lambda data: data["counts"]["todo"] == 0)


# ---- the wire and the screen ----


@pytest.mark.parametrize("end", ["quit", "ctrl-c", "eof", "SIGTERM", "SIGHUP", "SIGINT", "broken"])
def test_every_way_out_gives_the_terminal_back(end: str) -> None:
    make_project("demo", 2)
    with Process() as tick:
        tick.sees("Task 2")
        assert tick.modes() != tick.first_modes
        statuses = {"SIGTERM": 143, "SIGHUP": 129}
        if end in ("quit", "ctrl-c"):
            tick.type("q" if end == "quit" else "\x03")
        elif end == "eof":
            tick.end_of_input()
        elif end == "broken":
            tick.reading = False
            tick.popen.stdout.close()
            tick.popen.stdout = None
            tick.request("tick/read")
        else:
            tick.signal(signal.Signals[end])
        assert tick.wait() == statuses.get(end, 0)
        assert tick.modes() == tick.first_modes
        assert "Traceback" not in tick.text()


def test_sigterm_during_calls_ends_at_once(tick: Process) -> None:
    tick.sees("Task 2")
    blocker = database()
    blocker.execute("BEGIN IMMEDIATE")
    revision = tick.describe()["revision"]
    calls = [
        tick.request("tick/call", {"tool": "task_next", "args": {"agent": "a", "claim": True},
                                   "revision": revision})
        for _ in range(8)
    ]
    tick.read()
    tick.signal(signal.SIGTERM)
    assert tick.wait() == 143
    assert not any(frame.get("id") in calls for frame in tick.frames), "it waited for no call"
    assert tick.modes() == tick.first_modes
    blocker.execute("ROLLBACK")
    assert tam.Tam().call("status", {})["leased"] == 0


def test_the_end_of_input_waits_for_the_calls_under_way(tick: Process) -> None:
    blocker = database()
    blocker.execute("BEGIN IMMEDIATE")
    revision = tick.describe()["revision"]
    calls = [
        tick.request("tick/call", {"tool": "task_create", "args": {"title": f"n{n}"},
                                   "revision": revision})
        for n in range(3)
    ]
    tick.send(b'{"jsonrpc":"2.0","id":999,"method":"tick/read"')  # the newline is in the middle
    tam.write_all(tick.popen.stdin.fileno(), b"no line of its own")
    tick.end_of_input()
    for _ in range(5):
        tick.pump(0.05)
    assert tick.popen.poll() is None, "it waits"
    blocker.execute("ROLLBACK")
    assert tick.wait() == 0
    assert {tick.answer(call)["result"]["task"]["title"] for call in calls} == {"n0", "n1", "n2"}
    assert tick.raw.endswith(b"\n")


def test_quitting_finishes_what_the_person_has_just_entered(tick: Process) -> None:
    tick.sees("Task 2")
    blocker = database()
    blocker.execute("BEGIN IMMEDIATE")
    tick.type("aJust in time\rq")
    tick.loses("Add a task")
    blocker.execute("ROLLBACK")
    assert tick.wait() == 0
    assert tam.Tam().call("task.list", {})["tasks"][0]["title"] == "Just in time"


LAST_WRITE = """
import sys
sys.path.insert(0, {root!r})
import tam_tick
tam_tick.LAST_WRITE = {seconds}
sys.exit(tam_tick.main([]))
"""


def test_a_host_that_is_deaf_at_the_end_is_given_up() -> None:
    make_project("demo", 1)
    with Process((sys.executable, "-c", LAST_WRITE.format(root=str(ROOT), seconds=0.3))) as tick:
        tick.read()
        tick.reading = False
        for _ in range(60):
            tick.request("tick/describe")
        tick.end_of_input()
        assert tick.popen.wait(DEADLINE) == 0


def test_quitting_twice_waits_for_nobody() -> None:
    make_project("demo", 1)
    with Process((sys.executable, "-c", LAST_WRITE.format(root=str(ROOT), seconds=600))) as tick:
        tick.read()
        tick.reading = False
        for _ in range(60):
            tick.request("tick/describe")
        tick.type("qq")
        assert tick.popen.wait(DEADLINE) == 0


def test_it_works_without_a_terminal() -> None:
    make_project("demo", 1)
    with Process(size=None) as tick:
        assert tick.read()["data"]["counts"]["todo"] == 1
        assert "result" in tick.call("task_create", title="x")
        tick.update(lambda data: data["counts"]["todo"] == 2)
        tick.end_of_input()
        assert tick.wait() == 0
        assert tick.popen.stderr.read() == b""


@pytest.mark.parametrize("kind", ["no-such-terminal", "dumb", ""])
def test_it_works_on_a_terminal_that_cannot_be_drawn_on(kind: str) -> None:
    make_project("demo", 1)
    with Process(env={"TERM": kind}) as tick:
        assert tick.read()["data"]["counts"]["todo"] == 1
    with Process(BOARD, piped=False, env={"TERM": kind}) as board:
        board.sees("cannot draw")
        assert board.wait() == 1


@pytest.mark.parametrize("kind", ["xterm", "linux", "vt100", "screen-256color", "no colour"])
def test_every_terminal_that_can_be_drawn_on_shows_the_board(kind: str) -> None:
    make_project("demo", 1)
    env = {"TERM": kind} if kind != "no colour" else {"NO_COLOR": "1"}
    with Process(env=env) as tick:
        tick.sees("Task 1")
        tick.type("tt?")
        tick.sees("Everywhere")
        tick.type("xq")
        assert tick.wait() == 0
        assert tick.modes() == tick.first_modes


def test_it_goes_on_when_the_requests_come_from_a_file(tmp_path: object) -> None:
    make_project("demo", 1)
    requests, answers = tmp_path / "requests", tmp_path / "answers"
    requests.write_bytes(b'{"jsonrpc":"2.0","id":1,"method":"tick/read"}\n' * 3)
    with open(requests, "rb") as source, open(answers, "wb") as target:
        done = subprocess.run(
            TICK, stdin=source, stdout=target, stderr=subprocess.PIPE, timeout=DEADLINE,
            start_new_session=True, env={**os.environ, "TICKLOOP_INSTANCE_ID": "x"},
        )
    assert done.returncode == 0 and done.stderr == b""
    assert answers.read_bytes().count(b'"seq":0') == 3


STRAY = """
import os, sys, threading, time
sys.path.insert(0, {root!r})
import tam_tick
def noise():
    while True:
        print("noise"); sys.stdout.flush(); os.write(1, b"more"); os.write(2, b"noise")
        os.system("echo from a child"); time.sleep(0.01)
threading.Timer(0.3, noise).start() or None
os._exit(tam_tick.main([]))
"""


def test_stray_output_never_reaches_the_wire() -> None:
    make_project("demo", 1)
    argv = (sys.executable, "-c", STRAY.format(root=str(ROOT)))
    with Process(argv) as tick:
        tick.sees("noise")
        for _ in range(50):
            tick.read()
        assert b"noise" not in tick.raw and b"child" not in tick.raw
        tick.end_of_input()
        assert tick.wait() == 0


def test_a_locale_that_is_not_utf8_still_shows_every_script() -> None:
    make_project("demo", 1, "任务 {} 🚧")
    with Process(env={"LC_ALL": "C", "LANG": "zh_CN.GBK"}) as tick:
        tick.sees("任务 1 🚧")
        tick.type("a标题\r")
        tick.sees("2 标题")


def test_a_database_that_cannot_be_used_leaves_a_tick_that_says_so() -> None:
    home = tam.Tam()
    home.home.make()
    with open(home.config["db_file"], "wb") as file:
        file.write(b"this is no database, and long enough to be looked at" * 100)
    with Process() as tick:
        assert tick.describe()["protocol"] == 3
        assert tick.read()["data"] is None
        assert tick.call("project_list")["error"]["code"] == -32000
        tick.sees("That did not work")
        tick.press("\r")
        tick.loses("That did not work")
        tick.type("q")
        assert tick.wait() == 0


def test_a_config_that_breaks_is_told_and_what_agents_see_stays(tick: Process) -> None:
    tick.sees("● agents see this project")
    config = Path(os.environ["TAM_HOME"], "tam.config.toml")
    whole = config.read_text("utf-8")
    config.write_text("no TOML", "utf-8")
    tick.sees("no valid TOML")
    assert "● agents see this project" in tick.text()
    assert tick.read()["data"]["counts"]["todo"] == 2
    assert tick.call("task_list")["error"]["code"] == -32000
    config.write_text(whole, "utf-8")
    tick.press("\r")
    tick.loses("no valid TOML")
    tick.until(lambda: "result" in tick.call("task_list"), "a call that works again")


@pytest.mark.parametrize("program", [TICK, BOARD], ids=["tick", "board"])
def test_a_config_that_cannot_be_read_is_told(program: tuple[str, ...]) -> None:
    home = tam.Tam().home
    home.make()
    with open(home.config_file, "wb") as file:
        file.write(b"theme = \n")
    with Process(program, piped=program is TICK) as started:
        started.sees("no valid TOML")
        if program is BOARD:
            assert started.wait() == 1
            return
        assert started.read()["data"] is None
        assert started.call("project_list")["error"]["code"] == -32000
        started.end_of_input()
        assert started.wait() == 0


def test_requests_are_answered_while_the_database_is_locked() -> None:
    make_project("demo", 1).close()
    lock = database()
    lock.execute("PRAGMA journal_mode = DELETE")
    lock.execute("BEGIN EXCLUSIVE")
    with Process() as tick:
        assert tick.describe()["protocol"] == 3
        assert tick.read()["data"] is None
        lock.execute("ROLLBACK")
        tick.update(lambda data: data["counts"]["todo"] == 1)


def test_in_the_background_of_a_terminal_it_works_and_leaves_it_alone() -> None:
    make_project("demo", 1)
    shell = 'set -m; exec 3<&0; "$@" <&3 3<&- & exec 3<&-; wait $!'
    with Process(("sh", "-c", shell, "sh", *TICK)) as tick:
        assert tick.read()["data"]["counts"]["todo"] == 1
        assert "result" in tick.call("task_create", title="x")
        assert tick.text().strip() == "" and tick.modes() == tick.first_modes
        tick.end_of_input()
        assert tick.wait() == 0


def test_a_tick_whose_terminal_is_hung_up_goes_on_without_the_view() -> None:
    """The shell leads the session here, so the hangup's signal is for the shell alone."""
    make_project("demo", 1)
    with Process(("sh", "-c", 'trap "" HUP; "$@"; exit $?', "sh", *TICK)) as tick:
        tick.sees("Task 1")
        os.close(tick.slave)
        os.close(tick.master)
        tick.master = tick.slave = None
        assert "result" in tick.call("task_create", title="x")
        tick.update(lambda data: data["counts"]["todo"] == 2)
        tick.end_of_input()
        assert tick.wait() == 0


@pytest.mark.parametrize("answered", [True, False])
def test_one_socket_may_be_both_ends(answered: bool) -> None:
    make_project("demo", 1)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        tick = subprocess.Popen(
            TICK, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, start_new_session=True,
            env={**os.environ, "TICKLOOP_INSTANCE_ID": "x"},
        )
        theirs.close()
        ours.sendall(b'{"jsonrpc":"2.0","id":1,"method":"tick/read"}\n')
        ours.settimeout(DEADLINE)
        found = ours.recv(1 << 16, 0 if answered else socket.MSG_PEEK)
        assert b'"seq":0' in found
        ours.close()  # with an unread answer the other end gets a reset instead of an end
        _, errors = tick.communicate(timeout=DEADLINE)
    assert (tick.returncode, errors) == (0, b"")


# ---- the threads ----


def test_a_bell_may_be_rung_for_ever_and_closed_twice() -> None:
    bell = tam_tick.Bell()
    for _ in range(1 << 17):  # more than a pipe holds
        bell.ring()
    assert select.select([bell.fd], [], [], 0)[0]
    bell.close()
    bell.close()
    bell.ring()


class Failing(tam.Tam):
    """A store whose config cannot be written, for a reason that nobody has thought of."""

    def set_config(self, **changes: object) -> dict:
        raise ZeroDivisionError


def test_a_command_that_fails_in_any_way_is_told() -> None:
    acted = tam_tick.act(Failing(), tam_tick.Command("theme", "light"))
    assert acted.problem.code == "internal" and "log" in acted.problem.message


class Broken(tam.Tam):
    """A store that fails in a way that nobody has thought of."""

    def data_version(self) -> int:
        raise ZeroDivisionError


def test_a_look_that_fails_is_reported_to_whoever_waits_for_it() -> None:
    posted: queue.SimpleQueue = queue.SimpleQueue()
    watcher = tam_tick.Watcher(Broken, posted.put)
    watcher.thread.start()
    number = watcher.ask(None)
    while (reading := posted.get(timeout=DEADLINE)).number < number:
        pass
    assert reading.problem.code == "internal" and reading.state is None
    watcher.stop().join()


def test_a_crew_runs_so_many_jobs_at_once_and_no_more() -> None:
    posted: queue.SimpleQueue = queue.SimpleQueue()
    together, running = threading.Barrier(3), []

    def job(home: tam.Tam) -> int:
        running.append(home)
        together.wait(timeout=DEADLINE)
        return len(running)

    crew = tam_tick.Crew(3, tam.Tam, posted.put)
    for _ in range(6):
        crew.give(job)
    assert len([posted.get(timeout=DEADLINE) for _ in range(6)]) == 6
    assert len(set(map(id, running))) == 3, "one store for each thread"
    threads = crew.stop()
    for thread in threads:
        thread.join()
    assert len(threads) == 3


# ---- the board as a person has it ----


@pytest.mark.parametrize("argv", [BOARD, TICK], ids=["tam -i", "tam tick"])
def test_a_person_gets_the_board_without_the_wire(argv: tuple[str, ...]) -> None:
    home = make_project("demo", 1)
    with Process(argv, piped=False, env={"TAM_AGENT": "agent-a"}) as board:
        board.sees("Task 1")
        board.type("\x1b")
        board.sees("● demo")
        board.type("\r")
        board.sees("Task 1")
        board.press("a新任务 X\x7fY\r")
        board.sees("2 新任务 Y")
        board.press("c")
        board.sees("Done 1")
        home.call("task.add", {"title": "foreign", "project": "demo"})
        board.sees("3 foreign")
        board.type("q")
        assert board.wait() == 0
        assert board.modes() == board.first_modes
        assert "jsonrpc" not in board.text()
    events = home.call("history", {})["events"]
    assert {event["actor"] for event in events} == {"human"}


def test_the_board_goes_through_all_its_keys() -> None:
    home = make_project("alpha", 2)
    home.call("project.add", {"name": "beta"})
    with Process(BOARD, piped=False) as board:
        board.sees("Task 1")
        board.type("\x1b")
        board.sees("beta")
        board.type("\x1b[B\x1b[B\x1b[A")  # around the end, twice
        board.type("agamma\r")
        board.sees("gamma")
        board.press("e\x15delta\r")
        board.sees("delta")
        board.loses("gamma")
        board.press("d")
        board.sees("Delete project 'delta' with 0 tasks?")
        board.press("\r")
        board.loses("delta")
        board.press("u\r")
        board.sees("Todo")
        board.type("?")
        board.sees("Everywhere")
        board.type("x")
        board.loses("Everywhere")
        board.type("t")
        board.until(lambda: tam.Tam().config["theme"] == "light", "the theme")
        board.type("q")
        assert board.wait() == 0
    assert {project["name"] for project in home.call("project.list", {})} == {"alpha", "beta"}


def test_an_error_is_a_tip_and_leads_back_to_what_was_typed() -> None:
    home = make_project("demo", 1)
    with Process((*BOARD, "--project", "demo"), piped=False) as board:
        board.sees("Task 1")
        board.type("a" + "x" * 1001 + "\r")
        board.sees("That did not work")
        board.press("\r")
        board.sees("Add a task")
        board.type("\x15Short\r")
        board.sees("2 Short")
        board.type("q")
        assert board.wait() == 0
    assert home.call("task.list", {})["total"] == 2


def test_a_hung_up_terminal_ends_the_board() -> None:
    make_project("demo", 1)
    with Process(BOARD, piped=False, env={}) as board:
        board.sees("demo")
        os.close(board.slave)
        os.close(board.master)
        board.master = board.slave = None
        assert board.popen.wait(timeout=DEADLINE) in (0, 129)


def test_without_a_terminal_there_is_no_board() -> None:
    done = subprocess.run(BOARD, stdin=subprocess.DEVNULL, capture_output=True,
                          start_new_session=True, timeout=DEADLINE)
    assert done.returncode == 1 and done.stdout == b"" and b"needs a terminal" in done.stderr


def test_wrong_options_are_told_before_anything_is_drawn() -> None:
    done = subprocess.run([*TICK, "--nonsense"], stdin=subprocess.DEVNULL, capture_output=True,
                          start_new_session=True, timeout=DEADLINE)
    assert done.returncode == 2 and done.stdout == b"" and b"--nonsense" in done.stderr
