"""The host's protocol session in memory: bytes in, events out (T §2, §3, §5, §6, §8)."""
from __future__ import annotations

import copy
import json

import pytest

import tam
from hosting import DESCRIPTOR, answer, begun, fails, host, line, update

MIB = 1024 * 1024


def updates(events: list) -> list[int]:
    """The seqs of the updates among the events, each of which follows its line."""
    assert [event.kind for event in events] == ["←", "update"] * (len(events) // 2)
    return [event.value["seq"] for event in events[1::2]]


def rules(session: object) -> set[str]:
    return set(session.findings)


#: A line from the Tick, the rule it breaks, and whether that ends the session. Request 3, a
#: tick/call, is in flight.
LINES = [
    (b"hello\n", "wire.json", True),
    (b"\n", "wire.json", True),
    (b"   \n", "wire.json", True),
    (b"\xff\xfe\n", "wire.json", True),
    (b'"\xed\xa0\x80"\n', "wire.json", True),
    (b'{"jsonrpc":"2.0","id":3,"result":NaN}\n', "wire.json", True),
    (b'{"jsonrpc":"2.0","id":3,"result":-Infinity}\n', "wire.json", True),
    (b'{"jsonrpc":"2.0","id":3,"result":1e999}\n', "wire.json", True),
    (b'{"jsonrpc":"2.0","id":3,"result":' + b"9" * 5000 + b"}\n", "wire.json", True),
    (b"[" * 100_000 + b"]" * 100_000 + b"\n", "wire.json", True),
    (b'{"jsonrpc":"2.0","id":3,"result":1} {}\n', "wire.json", True),
    (b'{"jsonrpc":"2.0","id"{"jsonrpc":"2.0","id":3,"result":1}\n', "wire.json", True),
    (b'{"jsonrpc":"2.0","id":3,"result":"a\nb"}\n', "wire.json", True),
    (b"7\n", "wire.jsonrpc", True),
    (b"null\n", "wire.jsonrpc", True),
    (b"[]\n", "wire.jsonrpc", True),
    (b'[{"jsonrpc":"2.0","id":3,"result":1}]\n', "wire.jsonrpc", True),
    (b'{"id":3,"result":1}\n', "wire.jsonrpc", True),
    (b'{"jsonrpc":2.0,"id":3,"result":1}\n', "wire.jsonrpc", True),
    (b'{"jsonrpc":"1.0","id":3,"result":1}\n', "wire.jsonrpc", True),
    (b'{"jsonrpc":"2.0"}\n', "wire.kind", True),
    (b'{"jsonrpc":"2.0","result":1}\n', "wire.kind", True),
    (b'{"jsonrpc":"2.0","id":"3","result":1}\n', "wire.kind", True),
    (b'{"jsonrpc":"2.0","id":true,"result":1}\n', "wire.kind", True),
    (b'{"jsonrpc":"2.0","id":3.5,"result":1}\n', "wire.kind", True),
    (b'{"jsonrpc":"2.0","id":[3],"result":1}\n', "wire.kind", True),
    (b'{"jsonrpc":"2.0","id":9007199254740992,"result":1}\n', "wire.kind", True),
    (b'{"jsonrpc":"2.0","method":7}\n', "wire.kind", True),
    (b'{"jsonrpc":"2.0","id":null,"result":1}\n', "answer.null-id", True),
    (b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}\n', "answer.null-id", True),
    (b'{"jsonrpc":"2.0","id":4,"result":1}\n', "answer.id", False),
    (b'{"jsonrpc":"2.0","id":0,"result":1}\n', "answer.id", False),
    (b'{"jsonrpc":"2.0","id":-3,"result":1}\n', "answer.id", False),
    (b'{"jsonrpc":"2.0","id":1,"result":1}\n', "answer.once", False),
    (b'{"jsonrpc":"2.0","id":3}\n', "answer.shape", False),
    (b'{"jsonrpc":"2.0","id":3,"result":1,"error":{"code":1,"message":""}}\n', "answer.shape",
     False),
    (b'{"jsonrpc":"2.0","id":3,"result":1,"error":null}\n', "answer.shape", False),
    (b'{"jsonrpc":"2.0","id":3,"error":null}\n', "answer.error", False),
    (b'{"jsonrpc":"2.0","id":3,"error":"no"}\n', "answer.error", False),
    (b'{"jsonrpc":"2.0","id":3,"error":{"code":-32000}}\n', "answer.error", False),
    (b'{"jsonrpc":"2.0","id":3,"error":{"code":"x","message":""}}\n', "answer.error", False),
    (b'{"jsonrpc":"2.0","id":3,"error":{"code":true,"message":""}}\n', "answer.error", False),
    (b'{"jsonrpc":"2.0","id":3,"result":"\\ud800"}\n', "wire.unicode", False),
    (b'{"jsonrpc":"2.0","id":3,"error":{"code":1,"message":"\\udfff"}}\n', "wire.unicode", False),
    (b'{"jsonrpc":"2.0","id":9,"method":"host/ask"}\n', "message.request", False),
    (b'{"jsonrpc":"2.0","id":"x","method":"tick/update","params":{}}\n', "message.request", False),
    (b'{"jsonrpc":"2.0","method":"tick/log","params":7}\n', "message.notification", False),
    (update(-1), "update.seq", True),
    (update(1.5), "update.seq", True),
    (update(True), "update.seq", True),
    (update("1"), "update.seq", True),
    (update(2**53), "update.seq", True),
    (update(1, None), "update.data", True),
    (line({"jsonrpc": "2.0", "method": "tick/update", "params": {"seq": 1}}), "update.data", True),
    (line({"jsonrpc": "2.0", "method": "tick/update"}), "update.object", True),
    (line({"jsonrpc": "2.0", "method": "tick/update", "params": []}), "update.object", True),
    (update(1, at="2023-02-30T00:00:00Z"), "update.at", True),
    (update(1, at=None), "update.at", True),
    (update(1, "\ud800"), "wire.unicode", True),
    (update(1, "x" * (512 * 1024)), "update.size", True),
]


@pytest.mark.parametrize("pieces", ["whole", "bytes", "trailing"])
def test_each_line_breaks_its_rule(pieces: str) -> None:
    for data, rule, fatal in LINES:
        if pieces == "bytes" and len(data) > 2000:
            continue
        session = begun()
        call = session.request("tick/call", {}, 60, 0)
        assert call.id == 3
        if pieces == "bytes":
            for index in range(len(data)):
                session.receive(data[index:index + 1], 0)
        else:
            session.receive(data + (b'{"jso' if pieces == "trailing" else b""), 0)
        shown = data[:80]
        assert rules(session) == {rule}, shown
        assert session.findings[rule].fatal is fatal, shown
        assert (session.ended is not None) is fatal, shown
        assert rule in {known.id for known in host.HOST_RULES}
        if fatal:
            assert session.ended.kind == "violation"
            assert call.reply.kind == "ended", shown
        elif rule.startswith(("answer.shape", "answer.error", "wire.unicode")):
            assert call.reply.kind == "bad" and call.reply.details == {"rule": rule}, shown
        else:
            assert call.reply is None, shown
            session.receive((b"" if pieces != "trailing" else b'nrpc":"2.0","id":77}\n')
                            + answer(3, "fine"), 1)
            assert call.reply.value == "fine", shown


#: Lines that are right, though they look odd.
ODD = [
    b'{"jsonrpc":"2.0","id":3,"result":null}\n',
    b'{"jsonrpc":"2.0","id":3.0,"result":1}\n',
    b' {"jsonrpc":"2.0","id":3,"result":1,"extra":[1]} \r\n',
    b'{"id":7,"jsonrpc":"2.0","id":3,"result":1}\n',
    b'{"jsonrpc":"2.0","id":3,"result":"\\ud83d\\ude00\\u0000"}\n',
    b'{"jsonrpc":"2.0","id":3,"result":' + b"9" * 300 + b"}\n",
    b'{"jsonrpc":"2.0","id":3,"error":{"code":-1,"message":"","data":null,"more":1}}\n',
    b'{"jsonrpc":"2.0","id":3,"error":{"code":-32602.0,"message":""}}\n',
]


def test_a_request_that_carries_an_answer_is_taken_as_the_answer_too() -> None:
    session = begun()
    call = session.request("tick/call", {}, 60, 0)
    session.receive(b'{"jsonrpc":"2.0","id":3,"method":"host/ask","result":1}\n', 0)
    assert rules(session) == {"message.request"} and session.ended is None
    assert (call.reply.kind, call.reply.value) == ("result", 1)


@pytest.mark.parametrize("data", ODD)
def test_odd_but_right(data: bytes) -> None:
    session = begun()
    call = session.request("tick/call", {}, 60, 0)
    session.receive(data, 0)
    assert not session.findings and session.ended is None
    assert call.reply.kind in ("result", "error")


def test_end_of_output_in_the_middle_of_a_line() -> None:
    session = begun()
    call = session.request("tick/call", {}, 60, 0)
    session.receive(answer(3, 1)[:-1], 0)
    assert call.reply is None
    session.end_of_output("it exited")
    assert rules(session) == {"wire.newline"} and session.ended.kind == "violation"
    assert call.reply.kind == "ended"


def test_end_of_output_after_a_line() -> None:
    session = begun()
    sent = [session.request("tick/call", {}, 60, 0) for _ in range(9)]
    session.end_of_output("it exited")
    assert session.ended == ("exit", "it exited") and not session.findings
    assert [request.reply.kind for request in sent] == ["ended"] * 8 + ["unsent"]
    assert session.request("tick/read", {}, 10, 0).reply.kind == "unsent"


def test_a_line_of_the_longest_size_and_one_more_byte() -> None:
    for size, rule in ((900, set()), (901, {"wire.line-size"})):
        session = begun(line=900)
        session.request("tick/call", {}, 60, 0)
        filler = size - len(answer(3, "")) + 1
        session.receive(answer(3, "x" * filler), 0)
        assert rules(session) == rule, size


def test_a_line_without_end_is_cut_off_early() -> None:
    session = begun(line=1000)
    for _ in range(12):
        session.receive(b"x" * 100, 0)
    assert session.ended.kind == "violation" and rules(session) == {"wire.line-size"}
    assert session.findings["wire.line-size"].head.startswith("xxx")


def test_sizes_are_of_the_re_encoding() -> None:
    """T §3.5: 1e15 comes in with 4 bytes and counts with 18."""
    for result, rule in (([1e15] * 5, {"answer.size"}), (["\u00e9" * 40], set())):
        session = begun(result=90)
        call = session.request("tick/call", {}, 60, 0)
        text = json.dumps(result).replace("1000000000000000.0", "1e15")
        session.receive(b'{"jsonrpc":"2.0","id":3,"result":%s}\n' % text.encode(), 0)
        assert rules(session) == rule
        assert call.reply.kind == ("bad" if rule else "result")
        assert session.ended is None


def test_a_big_descriptor_and_state_fail_only_their_request_later_on() -> None:
    session = begun()
    describe = session.request("tick/describe", {}, 10, 0)
    session.receive(answer(3, DESCRIPTOR | {"description": "x" * (512 * 1024)}), 0)
    read = session.request("tick/read", {}, 10, 0)
    session.receive(answer(4, {"seq": 0, "data": "x" * (512 * 1024)}), 0)
    assert describe.reply.details == {"rule": "describe.size"}
    assert read.reply.details == {"rule": "read.size"}
    assert session.ended is None and session.descriptor == DESCRIPTOR


# Concurrency, time, order.


def test_eight_in_flight_and_the_ninth_waits() -> None:
    session = begun()
    sent = [session.request("tick/read", {}, 10, 0) for _ in range(10)]
    assert len(session.take_output()) == 8 and len(session.in_flight) == 8
    session.receive(answer(sent[5].id, {"seq": 0, "data": None}), 1)
    assert [json.loads(frame)["id"] for frame in session.take_output()] == [sent[8].id]
    assert sent[8].sent_at == 1 and sent[9].sent_at is None


def test_a_timeout_runs_from_the_sending_and_frees_the_place() -> None:
    session = begun()
    sent = [session.request("tick/call", {}, 60, 0) for _ in range(9)]
    session.take_output()
    assert session.next_deadline() == 60
    session.expire(59.9)
    assert {request.reply for request in sent} == {None}
    session.expire(60)
    assert {request.reply.kind for request in sent[:8]} == {"timeout"}
    assert sent[8].reply is None and sent[8].sent_at == 60 and session.next_deadline() == 120


def test_a_late_answer_is_dropped_and_no_second_one() -> None:
    session = begun()
    call = session.request("tick/call", {}, 60, 0)
    session.expire(60)
    session.receive(answer(call.id, "late"), 61)
    assert call.reply.kind == "timeout" and not session.findings
    assert session.counts["dropped answers"] == 1
    session.receive(answer(call.id, "later"), 62)
    assert rules(session) == {"answer.once"}


def test_answers_in_any_order() -> None:
    session = begun()
    sent = [session.request("tick/call", {"n": n}, 60, 0) for n in range(8)]
    for request in reversed(sent):
        session.receive(answer(request.id, request.id), 0)
    assert all(request.reply.value == request.id for request in sent)


def test_ids_are_never_used_twice() -> None:
    session = begun()
    frames = []
    for _ in range(50):
        request = session.request("tick/call", {}, 60, 0)
        frames += session.take_output()
        session.receive(answer(request.id, 1), 0)
    ids = [json.loads(frame)["id"] for frame in frames]
    assert ids == sorted(set(ids)) and all(type(number) is int and number > 0 for number in ids)


def test_requests_are_whole_lines_of_the_form_that_t_shows() -> None:
    session = host.HostSession()
    session.request("tick/describe", {}, 10, 0)
    session.request("tick/call", {"tool": "a\nb", "args": {}, "revision": "é"}, 10, 0)
    assert session.take_output() == [
        b'{"jsonrpc":"2.0","id":1,"method":"tick/describe","params":{}}\n',
        '{"jsonrpc":"2.0","id":2,"method":"tick/call","params":{"tool":"a\\nb","args":{},'
        '"revision":"é"}}\n'.encode()]


def test_a_request_that_is_too_long_is_not_sent() -> None:
    session = begun(line=900)
    with fails("unsent"):
        session.request("tick/call", {"text": "x" * 900}, 60, 0)
    assert session.take_output() == []


# States.


def test_the_floor_of_a_read_is_noted_when_it_is_sent() -> None:
    """T §6.3: neither an update after the sending nor one before the answer raises it."""
    session = begun()
    session.receive(update(5), 0)
    read = session.request("tick/read", {}, 10, 0)
    session.receive(update(9) + answer(read.id, {"seq": 5, "data": 1}), 0)
    assert read.reply.kind == "result" and session.state["seq"] == 9
    below = session.request("tick/read", {}, 10, 0)
    session.receive(answer(below.id, {"seq": 8, "data": 1}), 0)
    assert below.reply.details == {"rule": "read.floor"} and session.ended is None


def test_the_floor_counts_the_last_read_too() -> None:
    session = begun()
    for seq, kind in ((7, "result"), (6, "bad"), (7, "result")):
        read = session.request("tick/read", {}, 10, 0)
        session.receive(answer(read.id, {"seq": seq, "data": 1}), 0)
        assert read.reply.kind == kind


def test_an_update_may_be_older_than_a_read() -> None:
    session = begun()
    read = session.request("tick/read", {}, 10, 0)
    session.receive(answer(read.id, {"seq": 4, "data": "new"}) + update(3, "old"), 0)
    assert session.ended is None and session.state["data"] == "new"


@pytest.mark.parametrize("second", [3, 2, 0])
def test_updates_grow_strictly(second: int) -> None:
    session = begun()
    session.receive(update(3) + update(second), 0)
    assert rules(session) == {"update.seq"} and session.ended.kind == "violation"


def test_updates_before_the_start_is_done_are_taken() -> None:
    session = host.HostSession()
    session.request("tick/describe", {}, 10, 0)
    events = session.receive(update(0) + update(7), 0)
    assert updates(events) == [0, 7] and session.state["seq"] == 7


def test_a_state_without_a_time_gets_that_of_its_receipt() -> None:
    session = host.HostSession(wall=lambda: 86400.0)
    session.receive(update(1) + update(2, at="2024-06-30T23:59:60Z"), 0)
    told = session.receive(update(3), 0)
    assert [event.value["at"] for event in told[1:]] == ["1970-01-02T00:00:00Z"]
    assert session.state == {"seq": 3, "data": 1, "at": "1970-01-02T00:00:00Z"}


def test_unknown_fields_are_ignored() -> None:
    session = begun()
    session.receive(update(1, more=[1], other=2), 0)
    assert session.state.keys() == {"seq", "data", "at"}
    assert not session.findings


# Descriptors.


def broken(**changes: object) -> list[str]:
    """The rules that a changed descriptor breaks; ... takes a member away."""
    return faults({name: value for name, value in (DESCRIPTOR | changes).items()
                   if value is not ...})


def faults(result: object) -> list[str]:
    """The rules that the first describe result of a session breaks."""
    session = host.HostSession()
    request = session.request("tick/describe", {}, 10, 0)
    session.receive(answer(1, result), 0)
    assert (request.reply.kind == "bad") == bool(session.findings)
    return list(session.findings)


def tool(**changes: object) -> list[dict]:
    entry = {name: value for name, value in (DESCRIPTOR["tools"][0] | changes).items()
             if value is not ...}
    return [entry, DESCRIPTOR["tools"][1]]


def series(*entries: object) -> dict:
    return {"series": list(entries)}


LAST = {"newest": "last"}


@pytest.mark.parametrize(("rule", "changes"), [
    ("describe.protocol", {"protocol": 2}), ("describe.protocol", {"protocol": "3"}),
    ("describe.protocol", {"protocol": ...}), ("describe.protocol", {"protocol": True}),
    ("describe.kind", {"kind": " "}), ("describe.kind", {"kind": ...}),
    ("describe.kind", {"kind": 5}), ("describe.title", {"title": "\n\u3000"}),
    ("describe.description", {"description": ...}), ("describe.revision", {"revision": ""}),
    ("describe.revision", {"revision": 1}), ("describe.tools", {"tools": {}}),
    ("describe.tools", {"tools": ...}), ("describe.tools", {"tools": [7]}),
    ("describe.tools", {"tools": tool(mutates="yes")}),
    ("describe.tools", {"tools": tool(mutates=...)}),
    ("describe.tools", {"tools": tool(description=...)}),
    ("describe.tool-names", {"tools": tool(name="\t")}),
    ("describe.tool-names", {"tools": tool(name=...)}),
    ("describe.tool-names", {"tools": tool(name="get")}),
    ("describe.schemas", {"tools": tool(input_schema=True)}),
    ("describe.schemas", {"tools": tool(input_schema=...)}),
    ("describe.schemas", {"tools": tool(input_schema={"type": 7})}),
    ("describe.schemas", {"tools": tool(input_schema={"properties": {"a": {"minimum": "1"}}})}),
    ("describe.schemas", {"tools": tool(input_schema={"$ref": "#/$defs/none"})}),
    ("describe.recover-with", {"recover_with": "set"}),
    ("describe.recover-with", {"recover_with": "none"}),
    ("describe.recover-with", {"recover_with": None}),
    ("describe.recover-with", {"recover_with": ["get"]}),
    ("describe.series", {"state": None}), ("describe.series", {"state": {"series": {}}}),
    ("describe.series", {"state": series({"path": "a", **LAST})}),
    ("describe.series", {"state": series({"path": "/a~2", **LAST})}),
    ("describe.series", {"state": series({"path": "/a", "newest": "middle"})}),
    ("describe.series", {"state": series({"path": "/a"})}),
    ("describe.series", {"state": series({"path": "/a", **LAST}, {"path": "/a", **LAST})}),
    ("describe.series", {"state": series("/a")}),
    ("describe.size", {"description": "x" * (512 * 1024)}),
    ("wire.unicode", {"title": "\ud800"}),
])
def test_a_descriptor_breaks_exactly_one_rule(rule: str, changes: dict) -> None:
    assert broken(**changes) == [rule]


@pytest.mark.parametrize("changes", [
    {"protocol": 3.0}, {"tools": []}, {"unknown": {"a": 1}}, {"recover_with": "get"},
    {"state": {}}, {"state": series()}, {"description": ""},
    {"state": series({"path": "", **LAST}, {"path": "/", **LAST}, {"path": "/a~1b~0/0", **LAST})},
    {"tools": tool(input_schema={})},
])
def test_a_descriptor_that_is_right(changes: dict) -> None:
    assert broken(**changes) == []


def test_a_descriptor_that_is_none() -> None:
    for value in ([], None, 3, "3"):
        assert faults(value) == ["describe.object"]


def test_the_words_for_another_version() -> None:
    """T §4.3."""
    assert host.host_faults("descriptor", {"protocol": 2})[0][1] == (
        "unsupported Tick protocol version 2; this host speaks Tick protocol 3")


def test_several_faults_of_a_descriptor_are_all_found() -> None:
    session = begun()
    session.request("tick/describe", {}, 10, 0)
    session.receive(answer(3, DESCRIPTOR | {"kind": "", "title": "", "revision": ""}), 0)
    assert rules(session) == {"describe.kind", "describe.title", "describe.revision"}


def test_a_changed_catalogue_needs_a_new_revision() -> None:
    """T §5.5; the order of tools and unknown fields are no change."""
    session = begun()
    other = copy.deepcopy(DESCRIPTOR)
    other["tools"].reverse()
    other["title"] = "Another"
    other["tools"][0]["note"] = 1
    for number, (changes, kind) in enumerate([
            ({}, "result"), ({"tools": tool(description="Other.")}, "bad"),
            ({"tools": tool(description="Other."), "revision": "r2"}, "result")], 3):
        request = session.request("tick/describe", {}, 10, 0)
        session.receive(answer(number, other | changes), 0)
        assert request.reply.kind == kind
    assert rules(session) == {"describe.new-revision"} and session.descriptor["revision"] == "r2"


def test_words_outside_the_subset_are_reported_as_unchecked() -> None:
    session = begun()
    tools = tool(input_schema={"type": "object", "unevaluatedProperties": False})
    session.request("tick/describe", {}, 10, 0)
    session.receive(answer(3, DESCRIPTOR | {"revision": "r2", "tools": tools}), 0)
    assert session.unchecked == {"set": ["unevaluatedProperties"]} and not session.findings


@pytest.mark.parametrize(("schema", "word"), [
    ({"properties": {"text": {"pattern": "(?<=a+)b", "maxLength": 3}}}, "pattern"),
    ({"patternProperties": {r"^\p{Script=Greek}$": True}}, "patternProperties"),
    ({"$ref": "https://example.org/schema.json"}, "$ref"),
])
def test_a_legal_schema_beyond_the_validator_is_unchecked_and_not_wrong(
        schema: dict, word: str) -> None:
    session = begun()
    tools = tool(input_schema={"type": "object"} | schema)
    session.request("tick/describe", {}, 10, 0)
    session.receive(answer(3, DESCRIPTOR | {"revision": "r2", "tools": tools}), 0)
    assert session.unchecked == {"set": [word]} and not session.findings
    entry = session.descriptor["tools"][0]
    assert host.host_unfit(entry, {"text": "b"}) == ""


def test_what_stands_beside_an_unchecked_word_is_checked() -> None:
    schema = {"properties": {"text": {"pattern": "(?<=a+)b", "maxLength": 3}}}
    assert "text" in host.host_unfit({"name": "set", "input_schema": schema}, {"text": "long"})
    wrong = {"allOf": [{"pattern": "(?<=a+)b"}, {"pattern": "("}]}
    assert broken(tools=tool(input_schema=wrong)) == ["describe.schemas"]


def test_a_schema_too_deep_to_be_looked_through_is_unchecked_and_not_wrong() -> None:
    links = [{"$ref": f"#/links/{number + 1}"} for number in range(1_100)]
    schema = {"$ref": "#/links/0", "links": [*links, {"type": "object"}]}
    session = begun()
    session.request("tick/describe", {}, 10, 0)
    tools = tool(input_schema=schema)
    session.receive(answer(3, DESCRIPTOR | {"revision": "r2", "tools": tools}), 0)
    assert session.unchecked == {"set": ["the schema is nested over 200 deep"]}
    assert not session.findings
    assert "cannot be checked" in host.host_unfit(session.descriptor["tools"][0], {})
    assert host.host_misfits(session.descriptor["tools"][0], {}) == []


def test_arguments_that_do_not_fit_are_found_where_there_are_any() -> None:
    open_to_all = {"name": "set", "input_schema": {"type": "object"}}
    assert host.host_misfits(open_to_all, {}) == []
    closed = {"name": "set", "input_schema": {"type": "object", "additionalProperties": False}}
    assert host.host_misfits(closed, {}) == [{host.HOST_NO_SUCH: True}]
    typed = {"name": "set", "input_schema": {"properties": {"n": {"type": ["null", "array"]}}}}
    assert host.host_misfits(typed, {}) == [{"n": "1"}, {"n": 0.5}, {"n": ""}]
    needed = {"name": "set", "input_schema": {"properties": {"n": {"type": "integer"}},
                                              "required": ["n"]}}
    assert {"n": "1"} in host.host_misfits(needed, {"n": 1}), "a text of digits is no integer"
    assert {} in host.host_misfits(needed, {"n": 1})


def test_schemas_of_another_draft_are_unchecked_where_they_are_not_valid_in_this_one() -> None:
    old = "http://json-schema.org/draft-07/schema#"
    pair = {"$schema": old, "properties": {"p": {"items": [{"type": "string"}]}}}
    plain = {"$schema": old, "properties": {"n": {"type": "integer"}}}
    for schema, unchecked in ((pair, {"set": [f"$schema {old}"]}), (plain, {})):
        session = begun()
        session.request("tick/describe", {}, 10, 0)
        tools = tool(input_schema=schema)
        session.receive(answer(3, DESCRIPTOR | {"revision": "r2", "tools": tools}), 0)
        assert not session.findings and session.unchecked == unchecked
        assert not host.host_unfit(session.descriptor["tools"][0], {"p": [1]})
    assert host.host_unfit({"name": "set", "input_schema": plain}, {"n": "1"})
    undated = {"properties": {"p": {"items": [{"type": "string"}]}}}
    assert broken(tools=tool(input_schema=undated)) == ["describe.schemas"]


def test_a_recovery_tool_that_does_not_say_whether_it_mutates_breaks_one_rule() -> None:
    tools = tool()
    del tools[0]["mutates"]
    assert broken(tools=tools, recover_with=tools[0]["name"]) == ["describe.tools"]


# Values.


def test_a_pointer_leads_through_objects_and_lists() -> None:
    value = {"a/b": [10, {"~": 5}]}
    assert host.pointed(value, []) == value
    assert host.pointed(value, host.pointer_tokens("/a~1b/1/~0")) == 5
    for nowhere in ("/a~1b/2", "/a~1b/x", "/a~1b/01", "/a", "/a~1b/0/0"):
        assert host.pointed(value, host.pointer_tokens(nowhere)) is None, nowhere


@pytest.mark.parametrize("text", [
    "2024-02-29T12:00:00Z", "2024-02-29t12:00:00z", "0000-02-29T00:00:00Z",
    "2023-01-01T00:00:00.123456789+23:59", "2023-01-01T00:00:00-00:00",
    "1990-12-31T23:59:60Z", "1990-12-31T15:59:60-08:00", "1991-01-01T05:29:60.5+05:30",
    "2024-02-29T23:59:60Z", "9999-12-31T23:59:59Z",
])
def test_times(text: str) -> None:
    assert host.host_is_time(text)


@pytest.mark.parametrize("value", [
    "2023-02-29T00:00:00Z", "2023-02-30T00:00:00Z", "1900-02-29T00:00:00Z", "2023-04-31T00:00:00Z",
    "2023-13-01T00:00:00Z", "2023-00-01T00:00:00Z", "2023-01-00T00:00:00Z", "2023-01-01T24:00:00Z",
    "2023-01-01T00:60:00Z", "2023-01-01T00:00:61Z", "2023-01-01T00:00:60Z", "2023-01-30T23:59:60Z",
    "1990-12-31T23:59:60-08:00", "2023-01-01T00:00:00", "2023-01-01T00:00:00+24:00",
    "2023-01-01T00:00:00+00:60", "2023-01-01T00:00:00+0000", "2023-01-01 00:00:00Z", "2023-01-01",
    "2023-01-01T00:00:00.Z", "2023-1-1T00:00:00Z", "12023-01-01T00:00:00Z", "２０２３-01-01T00:00:00Z",
    "2023-01-01T00:00:00Z\n", "", None, 1700000000, ["2023-01-01T00:00:00Z"],
])
def test_what_is_no_time(value: object) -> None:
    assert not host.host_is_time(value)


@pytest.mark.parametrize(("value", "number"), [
    (0, 0), (2**53 - 1, 2**53 - 1), (1.0, 1), (1e15, 10**15), (-1, None), (2**53, None),
    (1e16, None), (1.5, None), (True, None), (False, None), ("1", None), (None, None), ([], None),
])
def test_unsigned_integers(value: object, number: int | None) -> None:
    assert host.host_uinteger(value) == number


def test_findings_are_bounded_and_counted() -> None:
    session = begun()
    for _ in range(5000):
        session.receive(line({"jsonrpc": "2.0", "method": "x" * 1000}), 0)
    assert len(session.findings) == 1 and session.counts["message.notification"] == 5000
    finding = session.findings["message.notification"]
    assert len(finding.head) <= host.HEAD + 1 and len(finding.detail) < 200


def test_nothing_is_kept_after_the_end() -> None:
    session = begun()
    session.end("closed", "enough")
    assert session.receive(b"x" * MIB, 0) == [] and session.receive(update(1), 0) == []
    session.write(b"x")
    session.end("exit", "again")
    assert session.take_output() == []
    assert session.ended.kind == "closed"


def test_every_rule_has_an_id_a_section_and_advice_of_its_own() -> None:
    ids = [rule.id for rule in host.HOST_RULES]
    assert len(ids) == len(set(ids))
    for rule in host.HOST_RULES:
        assert rule.level in ("must", "should") and rule.sentence.endswith(".") and rule.advice
        assert rule.section[0] in "345678"
        assert callable(rule.wrong) or rule.subject == "experiment"


def test_error_codes_tell_what_was_executed() -> None:
    """T §3.4."""
    for code in (-32600, -32601, -32602, -32004):
        assert host.HostError("", "error", code=code).executed is False
    for code in (-32000, -32603, 0, 7):
        assert host.HostError("", "error", code=code).executed is None
    for kind, executed in (("unsent", False), ("bad", None), ("timeout", None), ("ended", None)):
        assert host.HostError("", kind).executed is executed
    assert issubclass(host.HostError, tam.TamError)


def test_the_limits_are_those_of_the_contract() -> None:
    """T §3.5, §4.1, §4.2, §7.3; contract section 7."""
    limits = host.HostLimits()
    assert (limits.in_flight, limits.line, limits.result) == (8, 8 * MIB, 8 * MIB)
    assert limits.descriptor == limits.state == 512 * 1024
    assert (limits.start, limits.call, limits.columns, limits.rows) == (10, 60, 120, 30)
