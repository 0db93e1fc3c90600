"""What the tests of the reference host share: its module, the Ticks, and small helpers."""
from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import tam_tick as host
from support import DEADLINE, ROOT

TICKS = ROOT / "tests" / "ticks"

DESCRIPTOR = {
    "protocol": 3, "kind": "test.tick", "title": "Test", "description": "For tests.",
    "revision": "r1", "tools": [
        {"name": "set", "description": "Set.", "mutates": True, "input_schema": {"type": "object"}},
        {"name": "get", "description": "Get.", "mutates": False,
         "input_schema": {"type": "object", "additionalProperties": False}},
    ],
}


def tick(name: str, *arguments: str) -> list[str]:
    """The command of one of the Ticks in `ticks`, by its file's name."""
    programs = {".py": sys.executable, ".sh": "/bin/sh", ".js": "node"}
    return [programs[Path(name).suffix], str(TICKS / name), *arguments]


def line(message: object) -> bytes:
    """A message as a Tick writes it."""
    return json.dumps(message).encode() + b"\n"


def answer(number: int, result: object) -> bytes:
    """A response with a result."""
    return line({"jsonrpc": "2.0", "id": number, "result": result})


def update(seq: object, data: object = 1, **more: object) -> bytes:
    """A tick/update."""
    params = {"seq": seq, "data": data, **more}
    return line({"jsonrpc": "2.0", "method": "tick/update", "params": params})


def begun(**limits: float) -> object:
    """A session in memory, initialised at time 0 with DESCRIPTOR and seq 0."""
    session = host.HostSession(host.HostLimits(**limits))
    session.request("tick/describe", {}, 10, 0)
    session.receive(answer(1, DESCRIPTOR), 0)
    session.request("tick/read", {}, 10, 0)
    session.receive(answer(2, {"seq": 0, "data": None}), 0)
    session.take_output()
    assert session.state is not None and session.ended is None
    return session


@contextmanager
def fails(kind: str, match: str | None = None) -> Iterator[object]:
    """What is done here raises a HostError of a kind, whose message fits a pattern."""
    with pytest.raises(host.HostError, match=match) as caught:
        yield caught
    assert caught.value.kind == kind


def descriptors() -> set[int]:
    """The open file descriptors of this process."""
    place = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
    listed = [int(name) for name in os.listdir(place)]
    return {number for number in listed if is_open(number)}


def is_open(number: int) -> bool:
    """Whether a descriptor is open: the one that listed the directory is not any more."""
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def gone(pid: int) -> bool:
    """Whether a process is gone; a zombie that another process has to reap counts as gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def eventually(condition: Callable[[], bool], seconds: float = DEADLINE) -> bool:
    """Whether a condition outside of any host becomes true in time."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True
