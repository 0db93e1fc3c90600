"""Many starts and ends in a row: nothing is left behind, however a Tick ends (T §4.5)."""
from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time

import pytest

from hosting import descriptors, eventually, gone, host, tick
from support import DEADLINE


def yes(tool: dict, args: dict, revision: str) -> bool:
    return True


def one_life(chance: random.Random, number: int) -> list[int]:
    """Start a Tick, let it end in one of several ways, and return the processes there were."""
    limits = host.HostLimits(grace=0.2)
    if number % 3 == 0:
        return killed_life(chance, limits)
    if number % 3 == 1:
        with host.TickHost(tick("facts.py"), approve=yes, limits=limits) as running:
            return [running.pid, running.call("spawn", {"apart": chance.random() < 0.5})]
    if number % 2:
        with host.TickHost(tick("shell.sh"), limits=limits) as running:
            running.call("requests")
            return [running.pid]
    rule = chance.choice(["wire.json", "describe.kind", "run.stays", "start.read", "update.seq"])
    running = host.TickHost(tick("wrong.py", rule), limits=limits)
    try:
        with running:
            running.wait_until(lambda: running.ended is not None, DEADLINE)
    except host.HostStartError:
        pass
    return []


def killed_life(chance: random.Random, limits: object) -> list[int]:
    """A life that SIGKILL ends in the middle of a call, sometimes of the start."""
    running = host.TickHost(tick("counter.py"), approve=yes, limits=limits)
    if chance.random() < 0.3:
        running.on_traffic = lambda arrow, line: os.kill(running.pid, signal.SIGKILL)
        with pytest.raises(host.HostStartError):
            running.start()
        return []
    with running:
        pid = running.pid
        params = {"tool": "nap", "args": {"ms": 5000}, "revision": "1"}
        sent = [running.send("tick/call", params, DEADLINE) for _ in range(chance.randint(0, 9))]
        os.kill(pid, signal.SIGKILL)
        for request in sent:
            assert running.wait_reply(request).reply.kind in ("ended", "unsent")
        assert running.wait_until(lambda: running.ended is not None, DEADLINE)
    return [pid]


def live(count: int) -> None:
    before, threads = descriptors(), threading.active_count()
    chance = random.Random(7)
    seen: list[int] = []
    for number in range(count):
        seen += one_life(chance, number)
        assert descriptors() == before and threading.active_count() == threads
        with pytest.raises(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)
    assert eventually(lambda: all(gone(pid) for pid in seen)), seen


def test_starts_and_ends_leave_nothing() -> None:
    live(18)


@pytest.mark.slow
def test_five_hundred_starts_and_ends_leave_nothing() -> None:
    live(500)


FORKING = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.setpgid(0, 0) if os.fork() == 0 else os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
while True:  # one leaves, another comes, each in a group of its own
    if os.fork():
        os._exit(0)
    os.setpgid(0, 0)
    with open(os.environ["SEEN"], "a") as seen:
        seen.write(f"{os.getpid()}\\n")
    time.sleep(0.001)
"""


def test_a_tick_that_forks_on_and_on_leaves_nothing(tmp_path: object) -> None:
    seen = tmp_path / "seen"
    argv = [sys.executable, "-c", FORKING, *tick("note.py")[1:]]
    for _ in range(3):
        with host.TickHost(argv, env={**os.environ, "SEEN": str(seen)},
                           limits=host.HostLimits(grace=0.05)):
            assert eventually(lambda: seen.exists() and seen.stat().st_size > 40)
        size = seen.stat().st_size
        time.sleep(0.1)
        assert seen.stat().st_size == size
        seen.unlink()


def test_many_at_once_leave_nothing() -> None:
    before, threads = descriptors(), threading.active_count()

    def work(number: int) -> None:
        try:
            one_life(random.Random(number), number)
        except BaseException as error:
            failures.append(error)

    failures: list[BaseException] = []
    workers = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert failures == []
    assert descriptors() == before and threading.active_count() == threads


def test_a_host_that_cannot_open_more_files_says_so_and_leaves_nothing() -> None:
    import resource

    before = descriptors()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for spare in range(0, 16, 2):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(before) + 1 + spare, hard))
        try:
            running = host.TickHost(tick("note.py"))
            running.start()
        except (host.HostError, OSError):
            pass
        finally:
            running.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert descriptors() == before, spare
