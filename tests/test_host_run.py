"""TickHost with real processes, pipes and terminals: start, calls, updates, view, end (T §4–§8)."""
from __future__ import annotations

import os
import signal
import sys
import threading
import time

import pytest

import tam
from hosting import descriptors, eventually, fails, gone, host, tick
from support import DEADLINE

LINUX = os.path.isdir("/proc/self")
HURRIED = host.HostLimits(grace=0.3)


def yes(tool: dict, args: dict, revision: str) -> bool:
    return True


@pytest.fixture(autouse=True)
def nothing_left() -> object:
    """Every test leaves the descriptors and threads as they were, and no child."""
    before, threads = descriptors(), threading.active_count()
    yield
    assert descriptors() == before
    assert threading.active_count() == threads
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def script(text: str) -> list[str]:
    """A Tick of a few lines of Python, whose answers come from `say(id, result)`."""
    head = ("import json, os, sys, time\n"
            "say = lambda number, result: print(json.dumps({'jsonrpc': '2.0', 'id': number, "
            "'result': result}), flush=True)\n"
            "D = {'protocol': 3, 'kind': 'a.b', 'title': 't', 'description': '', 'revision': '1', "
            "'tools': []}\n"
            "def start():\n"
            "    input(); say(1, D); input(); say(2, {'seq': 0, 'data': None})\n")
    return [sys.executable, "-S", "-c", head + text]


# Start.


@pytest.mark.skipif(not LINUX, reason="looks into /proc")
def test_the_surroundings_of_a_tick(tmp_path: object) -> None:
    """T §3.1 and §4.1: command, directory, environment, pipes, terminal, session."""
    env = dict(os.environ, TICKLOOP_INSTANCE_ID="old", TICKLOOP_SECRET="x", LINES="9", COLUMNS="9",
               WEIRD="é\n", TERM="dumb")
    env.pop("LC_CTYPE", None)
    os.symlink(sys.executable, tmp_path / "link")
    env["PATH"] = f"{tmp_path}:{env['PATH']}"
    with host.TickHost(["link", *tick("facts.py")[1:]], cwd=str(tmp_path), env=env) as running:
        facts = running.call("facts")
        assert facts["argv0"] == str(tmp_path / "link")
        assert facts["cwd"] == str(tmp_path)
        assert facts["kinds"] == ["pipe", "pipe", "terminal"]
        assert facts["size"] == [120, 30] and facts["same terminal"]
        assert facts["leads"] == [True, True] and facts["foreground"]
        assert facts["descriptors"] == []
        got = facts["env"]
        assert got.pop("TERM") == "xterm-256color"
        instance = got.pop("TICKLOOP_INSTANCE_ID")
        assert len(instance) >= 32 and instance != "old"
        got.pop("LC_CTYPE", None)  # Python sets it for itself in a C locale
        assert got == {name: value for name, value in env.items() if name not in (
            "TICKLOOP_INSTANCE_ID", "TICKLOOP_SECRET", "LINES", "COLUMNS", "TERM")}


@pytest.mark.skipif(not LINUX, reason="looks into /proc")
def test_a_tick_inherits_no_ignored_or_blocked_signals(tmp_path: object) -> None:
    """The host's Python ignores SIGPIPE; a Tick in another language would notice."""
    look = f"grep 'Sig[IB]' /proc/self/status > {tmp_path}/signals; exec \"$@\""
    with host.TickHost(["sh", "-c", look, "sh", *tick("shell.sh")]):
        words = (tmp_path / "signals").read_text().split()
    assert words[::2] == ["SigBlk:", "SigIgn:"] and set(words[1::2]) == {"0" * 16}


def test_instance_ids_differ() -> None:
    ids = {host.host_environment({})["TICKLOOP_INSTANCE_ID"] for _ in range(100)}
    assert len(ids) == 100


def test_a_command_is_found_as_a_shell_would(tmp_path: object) -> None:
    """T §4.1: argv[0] becomes absolute; links stay links, since programs look at their name."""
    program = tmp_path / "bin" / "program"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (tmp_path / "bin" / "data").write_text("")
    env = {"PATH": f"/nowhere:{tmp_path}/bin"}
    assert host.host_resolve(["program", "a"], "/", env) == [str(program), "a"]
    assert host.host_resolve(["bin/program"], str(tmp_path), {}) == [str(program)]
    assert host.host_resolve(["./program"], str(tmp_path / "bin"), {}) == [str(program)]
    for name in ("data", "bin", "nothing", "", "./bin/program"):
        with pytest.raises(host.HostStartError):
            host.host_resolve([name], "/", env)


@pytest.mark.parametrize("command", [["/nowhere/tick"], ["no-such-tick-at-all"], []])
def test_a_command_that_does_not_exist(command: list[str]) -> None:
    with pytest.raises(host.HostStartError) as failure:
        host.TickHost(command).start()
    assert failure.value.details["rule"] == "start.run"
    assert failure.value.details["outcome"] == "init"


def test_a_file_that_is_no_program(tmp_path: object) -> None:
    program = tmp_path / "tick"
    program.write_bytes(b"\x00\x01")
    program.chmod(0o755)
    with pytest.raises(host.HostStartError, match="cannot be started.*Exec format"):
        host.TickHost([str(program)]).start()


def test_a_directory_that_does_not_exist() -> None:
    with pytest.raises(host.HostStartError, match="cannot be started"):
        host.TickHost([sys.executable], cwd="/nowhere/at/all").start()


@pytest.mark.parametrize(("rule", "outcome"), [
    ("describe.protocol", "init"), ("start.describe", "init"), ("start.read", "init"),
    ("read.at", "init"),
])
def test_a_start_that_fails(rule: str, outcome: str) -> None:
    running = host.TickHost(tick("wrong.py", rule))
    with pytest.raises(host.HostStartError) as failure:
        running.start()
    assert failure.value.details["rule"] == rule
    assert failure.value.details["outcome"] == outcome
    assert running.pid == 0 and running.ended is not None


def test_the_words_of_a_version_mismatch() -> None:
    with pytest.raises(host.HostStartError, match="unsupported Tick protocol version 2; this host "
                                                  "speaks Tick protocol 3"):
        host.TickHost(tick("wrong.py", "describe.protocol")).start()


def test_a_failed_start_tells_what_the_screen_shows() -> None:
    """T §4.2: the first 256 characters."""
    command = script("os.write(2, b'\\x1b[31mno database\\x1b[0m\\n' + b'x' * 500); sys.exit(4)")
    with pytest.raises(host.HostStartError, match="exit status 4") as failure:
        host.TickHost(command).start()
    screen = failure.value.details["screen"]
    assert screen.startswith("no database\nxxx") and len(screen) == 256
    assert failure.value.details["outcome"] == "exit"


def test_the_start_has_one_time_limit_in_all() -> None:
    """T §4.2: describe alone may take most of it, and then read has only the rest."""
    given = []

    class Noting(host.TickHost):
        def request(self, method: str, params: dict, timeout: float) -> host.HostRequest:
            given.append(timeout)
            return super().request(method, params, timeout)

    with Noting(script("time.sleep(0.4); start(); input()")):
        assert given[1] <= given[0] - 0.4 < 10


@pytest.mark.parametrize(("text", "method"), [
    ("time.sleep(600)", "describe"), ("input(); say(1, D); time.sleep(600)", "read"),
])
def test_a_silent_tick_fails_the_start(text: str, method: str) -> None:
    limits = host.HostLimits(start=1.0)
    with pytest.raises(host.HostStartError,
                       match=f"no answer to tick/{method} within 1 s of the start") as failure:
        host.TickHost(script(text), limits=limits).start()
    assert failure.value.details["rule"] == f"start.{method}"


def test_output_that_is_no_message_fails_the_start_as_a_violation() -> None:
    with pytest.raises(host.HostStartError) as failure:
        host.TickHost(script("print('loading', flush=True); input()")).start()
    assert failure.value.details["outcome"] == "violation"
    assert failure.value.details["rule"] == "wire.json" and "loading" in failure.value.message


# Calls.


def test_a_dialogue_as_in_appendix_a() -> None:
    updates = []
    with host.TickHost(tick("counter.py"), approve=yes, on_update=updates.append) as running:
        assert running.descriptor["recover_with"] == "history"
        assert running.read() == {"seq": 0, "data": {"value": 0, "recent": []}}
        assert running.call("increment", {"amount": 2}) == {"value": 2}
        assert running.wait_update(0, DEADLINE)["data"]["value"] == 2
        running.type("+")
        assert running.wait_update(1, DEADLINE) | {"at": ""} == {
            "seq": 2, "at": "", "merged": 0,
            "data": {"value": 3, "recent": [{"seq": 1, "value": 2}, {"seq": 2, "value": 3}]}}
        with fails("unsent") as refusal:
            running.call("increment", {"amount": 1}, revision="0")
        assert refusal.value.details["code"] == -32004
        params = {"tool": "increment", "args": {"amount": 1}, "revision": "0"}
        reply = running.request("tick/call", params, DEADLINE).reply
        assert (reply.kind, reply.details["code"]) == ("error", -32004)
        assert running.call("history") == updates[-1]["data"]["recent"]
        assert [update["seq"] for update in updates] == [1, 2]


def test_what_is_not_sent() -> None:
    """T §7.2, §5.6, §10: unfit arguments, unknown tools, no approval."""
    asked = []

    def approve(tool: dict, args: dict, revision: str) -> bool:
        asked.append((tool["name"], args, revision))
        return args != {"amount": 13}

    with host.TickHost(tick("counter.py"), approve=approve) as running:
        for tool, args in (("increment", {}), ("increment", {"amount": "1"}), ("nothing", {}),
                           ("increment", {"amount": True}), ("history", {"more": 1}),
                           ("nap", {"ms": -1}), ("history", [])):
            with fails("unsent") as refusal:
                running.call(tool, args)
            assert refusal.value.executed is False
        assert asked == []
        with fails("unsent", "not approved"):
            running.call("increment", {"amount": 13})
        running.call("increment", {"amount": 1})
        running.call("history")
        assert asked == [("increment", {"amount": 13}, "1"), ("increment", {"amount": 1}, "1")]
        assert running.session.counts["answer"] == 4


def test_without_an_approver_nothing_mutates() -> None:
    with host.TickHost(tick("counter.py")) as running:
        with fails("unsent", "not approved"):
            running.call("increment", {"amount": 1})
        assert running.read()["seq"] == 0


CHANGING = """
D['tools'] = [{'name': 't', 'description': '', 'mutates': True, 'input_schema': {}}]
for line in sys.stdin:
    r = json.loads(line)
    if r['method'] == 'tick/describe':
        say(r['id'], D); D['revision'] += 'x'; D['tools'][0]['description'] += 'x'
    elif r['method'] == 'tick/read': say(r['id'], {'seq': 0, 'data': None})
    else: say(r['id'], r['params']['revision'])
"""


def test_an_approval_ends_with_its_catalogue() -> None:
    """T §10: the catalogue changes while the person thinks."""
    def approve(tool: dict, args: dict, revision: str) -> bool:
        running.describe()
        return True

    with host.TickHost(script(CHANGING), approve=approve) as running:
        with fails("unsent", "'1' to '1x'"):
            running.call("t")
        with fails("unsent", "'1' to '1x'"):
            running.call("t", revision="1")


def test_errors_tell_whether_the_call_was_executed() -> None:
    """T §3.4."""
    with host.TickHost(tick("facts.py")) as running:
        for code, executed in ((-32600, False), (-32601, False), (-32602, False), (-32004, False),
                               (-32000, None), (-32603, None), (17, None)):
            with fails("error", "as you wish") as refusal:
                running.call("fail", {"code": code})
            assert refusal.value.executed is executed
            assert refusal.value.details == {"code": code, "data": [1]}


def test_nine_calls_at_once_are_eight_and_one() -> None:
    """T §3.3, §3.5."""
    most = 0
    with host.TickHost(tick("counter.py")) as running:
        begun = time.monotonic()
        params = {"tool": "nap", "args": {"ms": 150}, "revision": "1"}
        sent = [running.send("tick/call", params, DEADLINE) for _ in range(9)]
        running.read()
        most = len(running.session.in_flight)
        for request in sent:
            assert running.wait_reply(request).reply.value == {"slept": 150}
        took = time.monotonic() - begun
        assert sent[8].sent_at >= min(request.answered_at for request in sent[:8])
    assert most <= 8 and took >= 0.3


def test_describe_and_read_while_a_call_runs() -> None:
    with host.TickHost(tick("counter.py")) as running:
        params = {"tool": "nap", "args": {"ms": 300}, "revision": "1"}
        slow = running.send("tick/call", params, DEADLINE)
        running.describe()
        running.read()
        assert slow.reply is None
        running.wait_reply(slow)


def test_threads_may_share_a_host() -> None:
    failures = []
    with host.TickHost(tick("counter.py"), approve=yes) as running:
        def work() -> None:
            try:
                for _ in range(20):
                    running.call("increment", {"amount": 1})
                    running.read()
            except tam.TamError as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures and running.read()["data"]["value"] == 240
        assert running.session.state["seq"] == 240 and running.ended is None


def test_a_call_without_an_answer_is_unknown_and_is_not_sent_again() -> None:
    """T §7.3."""
    sent = []
    running = host.TickHost(tick("facts.py"), approve=yes, limits=host.HostLimits(call=0.2))
    running.on_traffic = lambda arrow, line: sent.append(line) if arrow == "→" else None
    with running:
        with fails("timeout") as failure:
            running.call("never")
        assert failure.value.executed is None
        running.read()
        count = {"tool": "count", "args": {}, "revision": running.descriptor["revision"]}
        assert running.request("tick/call", count, DEADLINE).reply.value == 1
    assert sum(b'"never"' in line for line in sent) == 1
    assert sum(b'"count"' in line for line in sent) == 1


def test_a_late_answer_changes_nothing() -> None:
    limits = host.HostLimits(call=0.1)
    with host.TickHost(tick("counter.py"), limits=limits) as running:
        with fails("timeout"):
            running.call("nap", {"ms": 200})
        assert running.wait_until(lambda: running.session.counts["dropped answers"] == 1, DEADLINE)
        assert running.ended is None and not running.session.findings


# Violations and ends.


def test_a_violation_ends_the_session_and_the_process() -> None:
    """T §3.6: in flight is unknown; what was not sent is not executed."""
    command = script("start(); [input() for _ in range(8)]; print('oops', flush=True); "
                     "time.sleep(600)")
    running = host.TickHost(command)
    with running:
        pid = running.pid
        sent = [running.send("tick/read", {}, DEADLINE) for _ in range(9)]
        replies = [running.wait_reply(request).reply.kind for request in sent]
        assert replies == ["ended"] * 8 + ["unsent"]
        assert running.ended.kind == "violation" and "'oops'" in running.ended.reason
        assert eventually(lambda: gone(pid))
        with fails("unsent", "the session has ended") as failure:
            running.call("anything") if running.descriptor is None else running.read()
        assert failure.value.executed is False
        assert failure.value.details["outcome"] == "violation"
        with fails("ended"):
            running.wait_update(0, DEADLINE)


def test_a_tick_that_ends_by_itself() -> None:
    """T §4.5."""
    with host.TickHost(script("start(); input(); sys.exit(3)")) as running:
        with fails("ended", "exit status 3") as failure:
            running.read()
        assert failure.value.executed is None and failure.value.details["outcome"] == "exit"


def test_a_tick_that_is_killed() -> None:
    with host.TickHost(script("start(); time.sleep(600)")) as running:
        os.kill(running.pid, signal.SIGKILL)
        assert running.wait_until(lambda: running.ended is not None, DEADLINE)
        assert running.ended == ("exit", "the Tick ended by itself: killed by signal 9")


def test_what_was_written_before_the_end_counts() -> None:
    text = "start(); [print(json.dumps({'jsonrpc': '2.0', 'method': 'tick/update', 'params': " \
           "{'seq': n, 'data': 'x' * 1000}})) for n in range(1, 200)]; sys.stdout.flush(); " \
           "os._exit(0)"
    updates = []
    with host.TickHost(script(text), on_update=updates.append) as running:
        assert running.wait_until(lambda: running.ended is not None, DEADLINE)
    assert len(updates) == 199 and running.ended.kind == "exit"


def test_a_tick_that_closes_its_output_is_ended() -> None:
    with host.TickHost(script("start(); os.close(1); time.sleep(600)"), limits=HURRIED) as running:
        pid = running.pid
        assert running.wait_until(lambda: running.ended is not None, DEADLINE)
        assert "closed its standard output" in running.ended.reason
        assert eventually(lambda: gone(pid))


def test_a_tick_that_closes_its_input_gets_nothing_and_the_host_lives() -> None:
    command = script("start(); os.close(0); time.sleep(600)")
    with host.TickHost(command, limits=HURRIED) as running:
        for _ in range(3):
            assert running.request("tick/read", {}, 0.1).reply.kind == "timeout"


def test_a_tick_that_stops_reading_blocks_nobody() -> None:
    with host.TickHost(script("start(); time.sleep(600)"), limits=HURRIED) as running:
        running.send_line(b"x" * 1_000_000)
        for _ in range(2):
            assert running.request("tick/read", {}, 0.1).reply.kind == "timeout"


def test_a_bad_answer_after_the_start_fails_its_request_alone() -> None:
    text = ("start(); input(); say(3, {'seq': 0, 'data': 'x' * (512 * 1024)}); "
            "input(); say(4, {'seq': 0, 'data': 1}); input()")
    with host.TickHost(script(text)) as running:
        with fails("bad") as caught:
            running.read()
        assert caught.value.details["rule"] == "read.size"
        assert running.read()["data"] == 1


def test_a_child_that_holds_the_output_open_does_not_hold_the_host() -> None:
    command = script("import subprocess; start(); "
                     "subprocess.Popen(['sleep', '600']); sys.exit(0)")
    with host.TickHost(command) as running:
        assert running.wait_until(lambda: running.ended is not None, DEADLINE)
        assert running.ended.kind == "exit"


@pytest.mark.parametrize("args", [{}, {"apart": True}])
def test_children_go_with_the_tick(args: dict) -> None:
    """T §4.5; those in another process group of the session too, where /proc shows them."""
    if args and not LINUX:
        pytest.skip("other process groups are found through /proc")
    with host.TickHost(tick("facts.py"), approve=yes) as running:
        tick_pid, child = running.pid, running.call("spawn", args)
        assert not gone(child)
    assert eventually(lambda: gone(child)) and gone(tick_pid)


def test_a_tick_that_is_deaf_to_sigterm_is_killed() -> None:
    limits = host.HostLimits(grace=0.1)
    with host.TickHost(tick("wrong.py", "end.sigterm"), limits=limits) as running:
        pid = running.pid
    assert gone(pid)


def test_sigterm_comes_first() -> None:
    """T §4.5: a Tick that gives its terminal back at SIGTERM can do so."""
    with host.TickHost(tick("counter.py")) as running:
        assert running.wait_until(lambda: "计数器" in running.screen()[0], DEADLINE)
    assert "".join(running.screen()).strip() == ""


def test_close_may_be_called_again_and_before_the_start() -> None:
    running = host.TickHost(tick("note.py"))
    running.close()
    running.start()
    running.close()
    running.close()
    assert running.ended.kind == "closed" and running.pid == 0
    with fails("unsent"):
        running.read()


def test_before_the_start_there_is_nothing_to_ask() -> None:
    running = host.TickHost(tick("note.py"))
    for ask in (running.read, running.describe, lambda: running.type("x"),
                lambda: running.call("set_note")):
        with pytest.raises(host.HostError):
            ask()
    assert running.screen()[0].strip() == "" and running.pid == 0


def test_a_callback_that_fails_ends_the_session() -> None:
    def fail(state: dict) -> None:
        raise ValueError("my mistake")

    with host.TickHost(tick("counter.py"), approve=yes, on_update=fail) as running:
        with pytest.raises(host.HostError, match="my mistake"):
            running.call("increment", {"amount": 1})
            running.read()
        assert running.ended.kind == "fault"


def test_a_callback_cannot_wait_for_itself() -> None:
    said = []

    def ask(state: dict) -> None:
        try:
            running.read()
        except host.HostError as error:
            said.append(error.message)

    with host.TickHost(tick("counter.py"), approve=yes, on_update=ask) as running:
        running.call("increment", {"amount": 1})
        running.read()
    assert said == ["a callback of the host cannot send: it would wait for itself"]


def test_a_callback_may_close_the_host() -> None:
    with host.TickHost(tick("counter.py"), approve=yes,
                       on_update=lambda state: running.close()) as running:
        pid = running.pid
        with pytest.raises(host.HostError, match="the host ended the Tick"):
            running.call("increment", {"amount": 1})
            running.read()
        assert running.wait_until(lambda: running.ended is not None, DEADLINE)
    assert gone(pid)


# Updates.


def test_the_newest_update_stands_for_the_others() -> None:
    """T §8.3: the newest is kept, and how many were merged."""
    with host.TickHost(tick("counter.py"), approve=yes) as running:
        for _ in range(5):
            running.call("increment", {"amount": 1})
        running.read()
        newest = running.wait_update(1, DEADLINE)
        assert (newest["seq"], newest["merged"], newest["data"]["value"]) == (5, 3, 5)
        assert running.wait_update(5, 0.01) is None


def test_wait_update_wakes_for_a_key() -> None:
    with host.TickHost(tick("counter.py")) as running:
        got = []
        waiter = threading.Thread(target=lambda: got.append(running.wait_update(0, DEADLINE)))
        waiter.start()
        running.type("+")
        waiter.join()
        assert got[0]["seq"] == 1


# View.


def test_the_view_is_a_terminal_that_can_be_resized() -> None:
    with host.TickHost(tick("counter.py")) as running:
        assert running.wait_until(lambda: "120x30" in running.screen()[29], DEADLINE)
        running.resize(50, 6)
        assert running.wait_until(lambda: "50x6" in running.screen()[-1], DEADLINE)
        assert len(running.screen()) == 6
        running.type("++")
        assert running.wait_until(lambda: running.screen()[2].strip() == "2", DEADLINE)
        assert running.read()["seq"] == 2


def test_standard_error_shows_in_the_view() -> None:
    command = script("start(); os.write(2, '错误 ok'.encode()); input()")
    with host.TickHost(command) as running:
        assert running.wait_until(lambda: running.screen()[0].startswith("错误 ok"), DEADLINE)


def test_a_terminal_that_nobody_reads_does_not_take_endless_keys() -> None:
    with host.TickHost(script("import tty; tty.setraw(2); start(); input()")) as running:
        with pytest.raises(host.HostError, match="does not read its terminal"):
            for _ in range(100):
                running.type("x" * 4000)
        running.request("tick/describe", {}, 0.05)


def test_a_flood_on_the_terminal_does_not_drown_the_protocol() -> None:
    text = ("import threading; t = os.open('/dev/tty', os.O_RDWR)\n"
            "def flood():\n"
            "    while True: os.write(t, b'\\x1b[Hflood' * 500)\n"
            "threading.Thread(target=flood, daemon=True).start()\n"
            "for line in sys.stdin:\n"
            "    r = json.loads(line)\n"
            "    say(r['id'], D if 'describe' in line else {'seq': 0, 'data': None})\n")
    with host.TickHost(script(text)) as running:
        for _ in range(20):
            running.read()


def test_a_question_of_the_terminal_is_answered() -> None:
    text = ("import tty; tty.setraw(2); start(); os.write(2, b'ab\\x1b[6n')\n"
            "answer = os.read(2, 20); os.write(2, repr(answer).encode()); input()")
    with host.TickHost(script(text)) as running:
        assert running.wait_until(lambda: "1;3R" in running.screen()[0], DEADLINE)


def test_a_big_request_and_answer_pass() -> None:
    text = ("D['tools'] = [{'name': 'echo', 'description': '', 'mutates': False, "
            "'input_schema': {}}]\nstart()\n"
            "for line in sys.stdin:\n"
            "    r = json.loads(line)\n"
            "    time.sleep(0.1)\n"
            "    say(r['id'], r['params']['args'])\n")
    args = {"text": "x" * 6_000_000}
    with host.TickHost(script(text)) as running:
        assert running.call("echo", args) == args


def test_limits_have_names() -> None:
    with pytest.raises(TypeError):
        host.HostLimits(lines=1)
