"""Mutations of what a right Tick writes: each ends in a defined outcome (T §3.6)."""
from __future__ import annotations

import json
import random

import pytest

from hosting import DESCRIPTOR, answer, host, line, update

#: What a right Tick writes in one session, whose requests `session_under_way` makes.
DIALOGUE = [
    answer(1, DESCRIPTOR | {"recover_with": "get", "state": {"series": [
        {"path": "/recent", "newest": "last"}]}}),
    answer(2, {"seq": 0, "data": {"value": 0, "recent": []}, "at": "2024-06-30T23:59:60Z"}),
    update(1, {"value": 2, "recent": [{"seq": 1}]}, at="2024-02-29T01:02:03.5+01:00"),
    answer(3, {"value": 2}),
    line({"jsonrpc": "2.0", "id": 4, "error": {"code": -32004, "message": "变了", "data": {}}}),
    update(2, [1.5, "é", None, True, 10**15]),
    answer(5, {"seq": 2, "data": None}),
    answer(6, "x" * 50),
]
#: Pieces that matter to the protocol or to a parser of JSON.
PIECES = [
    b"null", b"true", b"-1", b"1.5", b"1e15", b"1e999", b"9007199254740992", b"9" * 400, b"NaN",
    b'"\\ud800"', b"\xff", b"\xc3\x28", b"\x00", b"\n", b"\r\n", b"{}", b"[]", b"[" * 300, b'"',
    b"\\", b",", b'"id":3,', b'"id":null,', b'"method":"tick/update",', b'"error":{"code":1},',
    b'"jsonrpc":"2.0",', b'"2023-02-30T00:00:00Z"', b'"seq":0', "中".encode(), b"x" * 2000,
]
KINDS = {"result", "error", "bad", "timeout", "ended", "unsent"}


def session_under_way() -> tuple[object, list]:
    """A session with six requests sent, small limits, and room for one more."""
    limits = host.HostLimits(line=1500, result=600, state=400, descriptor=1200)
    session = host.HostSession(limits)
    methods = ["describe", "read", "call", "call", "read", "call"]
    return session, [session.request(f"tick/{method}", {}, 10, 0) for method in methods]


def mutate(chance: random.Random, lines: list[bytes]) -> bytes:
    """One to four changes of a dialogue: of lines, of bytes, or of values within the JSON."""
    lines = list(lines)
    for _ in range(chance.randint(1, 4)):
        index = chance.randrange(len(lines))
        what = chance.randrange(6)
        if what == 0:
            lines.insert(chance.randrange(len(lines) + 1), chance.choice(lines))
        elif what == 1 and len(lines) > 1:
            del lines[index]
        elif what == 2:
            lines[index] = mutate_value(chance, lines[index])
        else:
            lines[index] = mutate_bytes(chance, lines[index])
    return b"".join(lines)


def mutate_bytes(chance: random.Random, data: bytes) -> bytes:
    start = chance.randint(0, len(data))
    end = min(len(data), start + chance.choice((0, 0, 1, 1, 3, 20)))
    middle = chance.choice(PIECES) if chance.random() < 0.7 else chance.randbytes(2)
    return data[:start] + middle + data[end:]


def mutate_value(chance: random.Random, data: bytes) -> bytes:
    """Replace, rename or remove a member somewhere within a message."""
    try:
        message = json.loads(data)
    except ValueError:
        return data
    place = message
    while isinstance(place, dict) and place:
        name = chance.choice(list(place))
        if isinstance(place[name], dict) and place[name] and chance.random() < 0.7:
            place = place[name]
            continue
        odd = chance.choice([None, True, -1, 0, 1.5, 2**53, "", " ", "x" * 900, [], {}, 7,
                             "\ud800"])
        value = place.pop(name)
        if chance.random() < 0.8:
            name = name if chance.random() < 0.8 else "extra"
            place[name] = odd if chance.random() < 0.8 else value
        break
    return line(message)


def check_outcome(seed: int) -> str:
    """Run one mutation in random pieces; return how the session ended."""
    chance = random.Random(seed)
    data = mutate(chance, DIALOGUE)
    session, requests = session_under_way()
    now = 0.0
    while data:
        size = chance.choice((1, 7, 100, 5000))
        events = session.receive(data[:size], now)
        data, now = data[size:], now + chance.choice((0, 0.001))
        assert all(event.kind in ("update", "←") for event in events)
    if chance.random() < 0.5:
        session.expire(now + 10)
    session.end_of_output("it exited")
    known = {rule.id for rule in host.HOST_RULES}
    assert session.ended.kind in ("violation", "exit")
    assert set(session.findings) <= known
    assert all(request.reply is not None and request.reply.kind in KINDS for request in requests)
    fatal = [finding for finding in session.findings.values() if finding.fatal]
    assert (session.ended.kind == "violation") == (len(fatal) == 1)
    assert not session.in_flight and session.next_deadline() is None
    return session.ended.kind


def test_the_dialogue_itself_is_right() -> None:
    session, requests = session_under_way()
    session.receive(b"".join(DIALOGUE), 0)
    assert not session.findings and session.ended is None
    assert [request.reply.kind for request in requests] == [
        "result", "result", "result", "error", "result", "result"]


def test_mutations_end_in_a_defined_outcome() -> None:
    outcomes = {check_outcome(seed) for seed in range(2500)}
    assert outcomes == {"violation", "exit"}


@pytest.mark.slow
def test_twenty_thousand_mutations() -> None:
    for seed in range(20_000):
        check_outcome(seed)


def test_random_bytes_end_in_a_defined_outcome() -> None:
    chance = random.Random(3)
    for _ in range(500):
        session, requests = session_under_way()
        session.receive(chance.randbytes(chance.randint(0, 3000)), 0)
        session.end_of_output("it exited")
        assert all(request.reply is not None for request in requests)
