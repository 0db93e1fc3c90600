"""Hostile and odd lines: each gets exactly the reply that it should, and the server goes on."""
from __future__ import annotations

import json
import os
import threading

import pytest

import tam
import tam_mcp
from mcp_support import closing  # noqa: F401 (used by every test)
from mcp_support import (
    CAPABILITIES_KEY, DEADLINE, MODERN_META, PING, PONG, SERVER_META, VERSION_KEY, Client, data_of,
    make_project, modern, opening, request, tool,
)

NOTHING = object()
NEWEST = tam_mcp.LEGACY[-1]


class Error:
    """Equal to an error reply with this id and code whose message holds the words."""

    def __init__(self, identity: object, code: int, words: str = "", data: object = None) -> None:
        self.expected = (identity, code, data)
        self.words = words

    def __eq__(self, reply: object) -> bool:
        if not isinstance(reply, dict) or set(reply) != {"jsonrpc", "id", "error"}:
            return False
        error = reply["error"]
        seen = (reply["id"], error["code"], error.get("data"))
        same_type = type(reply["id"]) is type(self.expected[0])
        return seen == self.expected and same_type and self.words in error["message"]

    def __repr__(self) -> str:
        return f"Error{self.expected} with {self.words!r}"


class Refusal:
    """Equal to a tool error with this code that speaks of the words."""

    def __init__(self, code: str, *words: str, **extra: object) -> None:
        self.code, self.words, self.extra = code, words, extra

    def __eq__(self, reply: object) -> bool:
        data = data_of(reply)
        error = data.pop("error")
        said = json.dumps(error, ensure_ascii=False)
        return (
            reply["result"]["isError"] is True and error["code"] == self.code and data == self.extra
            and all(word in said for word in self.words)
        )

    def __repr__(self) -> str:
        return f"Refusal({self.code}) with {self.words} and {self.extra}"


def result(body: object, identity: object = 1) -> dict:
    return {"jsonrpc": "2.0", "id": identity, "result": body}


def listing(limit: int = 100, **extra: object) -> dict:
    """What tam_task_list answers where there is nothing to list."""
    data = {"tasks": [], "count": 0, "total": 0, "total_is_exact": True, "limit": limit,
            "truncated": False, "next_cursor": None, **extra}
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    return result({"content": [{"type": "text", "text": text}], "isError": False})


def opened(version: str, identity: object = "opening") -> dict:
    return result({
        "protocolVersion": version, "capabilities": {"tools": {}},
        "serverInfo": {"name": "tam", "version": tam.VERSION},
        "instructions": tam_mcp.INSTRUCTIONS,
    }, identity)


def modern_result(body: dict) -> dict:
    return result({"resultType": "complete", **body, "_meta": SERVER_META})


def unsupported(version: str) -> Error:
    return Error(1, -32022, "unsupported", {"supported": ["2026-07-28"], "requested": version})


def deep(levels: int) -> bytes:
    """A ping whose parameters are so many levels deep, the message itself included."""
    inner = b"[" * (levels - 2) + b"0" + b"]" * (levels - 2)
    return b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":' + inner + b"}}"


def with_id(text: str) -> bytes:
    return b'{"jsonrpc":"2.0","id":' + text.encode() + b',"method":"ping"}'


PARSE = Error(None, -32700)
NO_OBJECT = Error(None, -32600, "one JSON object")
NO_ID = Error(None, -32600, "id must be")
PINGED = result({})
UNKNOWN = Error(1, -32601, "unknown method")
BATCHES = "2025-03-26"

#: name: (line, expected reply), or (line, expected reply, version to open with first)
CASES = {
    # -- lines that hold no message
    "empty line": (b"", NOTHING),
    "blanks": (b" \t ", NOTHING),
    "carriage return": (b"\r", NOTHING),
    "words": (b"hello", PARSE),
    "header of another protocol": (b"Content-Length: 5", PARSE),
    "half a message": (b'{"jsonrpc":"2.0","id":1', PARSE),
    "message and rubbish": (b'{"jsonrpc":"2.0","id":1,"method":"ping"}x', PARSE),
    "two messages": (b'{"id":1}{"id":2}', PARSE),
    "trailing comma": (b'{"jsonrpc":"2.0","id":1,"method":"ping",}', PARSE),
    "single quotes": (b"{'id':1}", PARSE),
    "comment": (b'{"id":1} // ping', PARSE),
    "bare escape": (b"\x1b[31m", PARSE),
    "zero bytes": (b"\x00\x00", PARSE),
    "no UTF-8": (b'{"id":"\xff\xfe"}', PARSE),
    "cut UTF-8": (b'{"id":"\xe2\x82"}', PARSE),
    "UTF-8 of a surrogate": (b'{"id":"\xed\xa0\x80"}', PARSE),
    "UTF-16": ('{"id":1}'.encode("utf-16-be").replace(b"\n", b""), PARSE),
    "byte order mark": (b"\xef\xbb\xbf" + with_id("1"), PARSE),
    "control character in a string": (b'{"id":"a\x01b"}', PARSE),
    "NaN": (with_id("NaN"), PARSE),
    "Infinity": (with_id("-Infinity"), PARSE),
    "number out of range": (with_id("1e999"), PARSE),
    "5,000 digits": (with_id("1" * 5000), PARSE),
    "as deep as allowed": (deep(tam.MAX_DEPTH), PINGED),
    "one level too deep": (deep(tam.MAX_DEPTH + 1), PARSE),
    "far too deep": (b"[" * 100_000, PARSE),
    # -- values that are no message
    "number": (b"5", NO_OBJECT),
    "string": (b'"ping"', NO_OBJECT),
    "true": (b"true", NO_OBJECT),
    "null": (b"null", NO_OBJECT),
    "empty list": (b"[]", NO_OBJECT),
    "batch before 2025-03-26": ([request("ping")], NO_OBJECT, "2024-11-05"),
    "batch after 2025-03-26": ([request("ping")], NO_OBJECT, "2025-06-18"),
    "batch of the stateless version": ([modern("tools/list")], NO_OBJECT, NEWEST),
    # -- ids
    "id 0": (with_id("0"), result({}, 0)),
    "id -1": (with_id("-1"), result({}, -1)),
    "id 1.0": (with_id("1.0"), result({}, 1.0)),
    "id beyond 64 bits": (with_id(str(2**70)), result({}, 2**70)),
    "id empty": (with_id('""'), result({}, "")),
    "id a UUID": (with_id('"6f1c-9"'), result({}, "6f1c-9")),
    "id \"1\"": (with_id('"1"'), result({}, "1")),
    "id an emoji": (with_id('"\\ud83d\\ude00"'), result({}, "😀")),
    "id null": (with_id("null"), NO_ID),
    "id true": (with_id("true"), NO_ID),
    "id 1.5": (with_id("1.5"), NO_ID),
    "id a list": (with_id("[1]"), NO_ID),
    "id an object": (with_id("{}"), NO_ID),
    "id half a surrogate pair": (with_id('"\\ud800"'), NO_ID),
    "id twice": (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', result({}, 2)),
    # -- messages without an id are never answered
    "empty object": (b"{}", NOTHING),
    "ping without id": (b'{"jsonrpc":"2.0","method":"ping"}', NOTHING),
    "wrong notification": (b'{"jsonrpc":1,"method":[],"params":5}', NOTHING),
    "initialized": (b'{"jsonrpc":"2.0","method":"notifications/initialized"}', NOTHING),
    "cancelled, finished": (
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}', NOTHING),
    "cancelled, malformed": (b'{"jsonrpc":"2.0","method":"notifications/cancelled"}', NOTHING),
    "unknown notification": (b'{"jsonrpc":"2.0","method":"notifications/nothing"}', NOTHING),
    "tools/call without id": (
        b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":"tam_task_create",'
        b'"arguments":{"title":"never"}}}', NOTHING),
    "a result": (b'{"jsonrpc":"2.0","id":1,"result":{}}', NOTHING),
    "an error": (b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}', NOTHING),
    # -- envelopes
    "carriage return after a message": (with_id("1") + b"\r", PINGED),
    "blanks around a message": (b"  " + with_id("1") + b"\t ", PINGED),
    "no jsonrpc": (b'{"id":1,"method":"ping"}', Error(1, -32600, "jsonrpc")),
    "jsonrpc 1.0": (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', Error(1, -32600, "jsonrpc")),
    "jsonrpc a number": (b'{"jsonrpc":2.0,"id":1,"method":"ping"}', Error(1, -32600, "jsonrpc")),
    "no method": (b'{"jsonrpc":"2.0","id":1}', Error(1, -32600, "method")),
    "method a number": (b'{"jsonrpc":"2.0","id":1,"method":5}', Error(1, -32600, "method")),
    "method null": (b'{"jsonrpc":"2.0","id":"x","method":null}', Error("x", -32600, "method")),
    "method empty": (request(""), UNKNOWN),
    "method in capitals": (request("PING"), UNKNOWN),
    "method half a surrogate pair": (
        b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}', Error(1, -32601, "\ufffd")),
    "method with an escape sequence": (
        b'{"jsonrpc":"2.0","id":1,"method":"\\u001b[2J"}', Error(1, -32601, "\u241b[2J")),
    "method of 100,000 letters": (request("m" * 100_000), Error(1, -32601, "m" * 64)),
    "method of Python": (request("__class__"), UNKNOWN),
    "resources/list": (request("resources/list"), UNKNOWN),
    "resources/templates/list": (request("resources/templates/list"), UNKNOWN),
    "prompts/list": (request("prompts/list", {}), UNKNOWN),
    "logging/setLevel": (request("logging/setLevel", {"level": "debug"}), UNKNOWN),
    "params a list": (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}',
                      Error(1, -32602, "params")),
    "params a string": (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":"x"}',
                        Error(1, -32602, "params")),
    "params null": (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":null}', PINGED),
    "_meta a list": (request("ping", {"_meta": []}), Error(1, -32602, "_meta")),
    "_meta null": (request("ping", {"_meta": None}), PINGED),
    "progress token 0": (request("ping", {"_meta": {"progressToken": 0}}), PINGED),
    "unknown parameter": (request("ping", {"x": 1}), PINGED),
    # -- initialize
    "initialize without params": (request("initialize"), Error(1, -32602, "protocolVersion")),
    "initialize, version a number": (
        request("initialize", {"protocolVersion": 2025}), Error(1, -32602, "protocolVersion")),
    "initialize 2024-11-05": (opening("2024-11-05"), opened("2024-11-05")),
    "initialize 2025-03-26": (opening("2025-03-26"), opened("2025-03-26")),
    "initialize 2025-06-18": (opening("2025-06-18"), opened("2025-06-18")),
    "initialize 2025-11-25": (opening("2025-11-25"), opened("2025-11-25")),
    "initialize, unknown version": (opening("2031-01-01"), opened(NEWEST)),
    "initialize, no version at all": (opening("\x00"), opened(NEWEST)),
    "initialize, stateless version": (opening("2026-07-28"), opened(NEWEST)),
    "initialize again": (opening("2025-06-18"), opened("2025-06-18"), NEWEST),
    "initialize with the stateless envelope": (
        request("initialize", {"protocolVersion": "2025-11-25", "_meta": MODERN_META}),
        opened(NEWEST, 1)),
    # -- batches where they were negotiated
    "batch, empty": ([], NO_OBJECT, BATCHES),
    "batch of two": ([request("ping", identity=1), request("ping", identity="b")],
                     [PINGED, result({}, "b")], BATCHES),
    "batch with a notification": (
        [{"jsonrpc": "2.0", "method": "notifications/initialized"}, request("ping")],
        [PINGED], BATCHES),
    "batch of notifications": ([{"jsonrpc": "2.0", "method": "x"}] * 3, NOTHING, BATCHES),
    "batch of rubbish": ([1, "a", [request("ping")]], [NO_OBJECT] * 3, BATCHES),
    "batch with initialize": ([opening(NEWEST)], [Error("opening", -32600, "batch")], BATCHES),
    "batch, too long": ([request("ping")] * 1001, Error(None, -32600, "1000"), BATCHES),
    "batch, one wrong": ([request("ping"), request("nothing")], [PINGED, UNKNOWN], BATCHES),
    "batch, cut": (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}', PARSE, BATCHES),
    # -- tools
    "tools/list with a cursor": (
        request("tools/list", {"cursor": "x"}), Error(1, -32602, "cursor")),
    "tools/call without params": (request("tools/call"), Error(1, -32602, "name")),
    "tools/call, name a number": (request("tools/call", {"name": 5}), Error(1, -32602, "name")),
    "unknown tool": (tool("no_such_tool"), Error(1, -32602, "unknown tool: no_such_tool")),
    "tool without its prefix": (tool("task_list"), Error(1, -32602, "unknown tool: task_list")),
    "tool with control characters": (tool("a\x07\u202eb"), Error(1, -32602, "a\u2407<U+202E>b")),
    "no arguments": (request("tools/call", {"name": "tam_task_list"}), listing()),
    "arguments null": (tool("tam_task_list", None), listing()),
    "arguments as text": (tool("tam_task_list", '{"limit": 7}'), listing(7)),
    "arguments an empty text": (tool("tam_task_list", ""), listing()),
    "arguments no JSON": (tool("tam_task_list", "limit=7"), Refusal("invalid", "arguments")),
    "arguments a list": (tool("tam_task_list", [1]), Refusal("invalid", "arguments")),
    "arguments text of a list": (tool("tam_task_list", "[1]"), Refusal("invalid", "arguments")),
    "optional null": (tool("tam_task_list", {"limit": None, "status": None}), listing()),
    "required null": (tool("tam_task_get", {"id": None}), Refusal("invalid", "id", "null")),
    "required missing": (tool("tam_task_get", {}), Refusal("invalid", "id")),
    "integer as text": (tool("tam_task_list", {"limit": " 5 "}), listing(5)),
    "integer as 5.0": (tool("tam_task_list", {"limit": 5.0}), listing(5)),
    "integer 1.5": (tool("tam_task_list", {"limit": 1.5}), Refusal("invalid", "limit", "1.5")),
    "integer 1.5 as text": (
        tool("tam_task_list", {"limit": "1.5"}), Refusal("invalid", "limit", "1.5")),
    "integer true": (tool("tam_task_list", {"limit": True}), Refusal("invalid", "limit", "true")),
    "integer a list": (tool("tam_task_list", {"limit": [5]}), Refusal("invalid", "limit", "[5]")),
    "integer a word": (tool("tam_task_get", {"id": "first"}), Refusal("invalid", "id", "first")),
    "id beyond 64 bits as argument": (
        tool("tam_task_get", {"id": 2**70}), Refusal("not_found", str(2**70))),
    "boolean a word": (
        tool("tam_task_next", {"agent": "a", "claim": "yes"}), Refusal("invalid", "claim", "yes")),
    "boolean 1": (
        tool("tam_task_next", {"agent": "a", "claim": 1}), Refusal("invalid", "claim", "1")),
    "list as JSON text": (tool("tam_task_list", {"tag": '["a","b"]'}), listing()),
    "list as words": (tool("tam_task_list", {"tag": "a, b"}), listing()),
    "list as broken JSON": (tool("tam_task_list", {"tag": '["a"'}), Refusal("invalid", "tag")),
    "list of numbers": (tool("tam_task_list", {"tag": [1]}), Refusal("invalid", "tag")),
    "wrong word": (
        tool("tam_task_list", {"status": "bogus"}),
        Refusal("invalid", "status", "bogus", "todo", "in-progress", "done")),
    "out of range": (
        tool("tam_task_list", {"priority": 9}), Refusal("invalid", "priority", "9", "5")),
    "undeclared argument": (
        tool("tam_task_list", {"stauts": "done"}), listing(ignored_arguments=["stauts"])),
    "arguments that clients add": (
        tool("tam_task_list", {"wait_for_previous": True, "task_progress": "x"}),
        listing(ignored_arguments=["wait_for_previous", "task_progress"])),
    "undeclared argument of an error": (
        tool("tam_task_get", {"number": 5}),
        Refusal("invalid", "id", ignored_arguments=["number"])),
    "undeclared argument with an escape sequence": (
        tool("tam_task_list", {"\x1b[2J": 1}), listing(ignored_arguments=["\u241b[2J"])),
    "half a surrogate pair in an argument": (
        tool("tam_task_list", {"search": "\ud800"}), Refusal("invalid", "search", "Unicode")),
    "unknown project": (
        tool("tam_status", {"project": "nowhere"}), Refusal("not_found", "nowhere")),
    # -- the stateless version
    "discover": (modern("server/discover"), modern_result({
        "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
        "instructions": tam_mcp.INSTRUCTIONS, "ttlMs": 3_600_000, "cacheScope": "private"})),
    "discover without _meta": (request("server/discover"), Error(1, -32602, VERSION_KEY)),
    "discover without capabilities": (
        request("server/discover", {"_meta": {VERSION_KEY: "2026-07-28"}}),
        Error(1, -32602, CAPABILITIES_KEY)),
    "call without a version": (
        request("tools/list", {"_meta": {CAPABILITIES_KEY: {}}}), Error(1, -32602, VERSION_KEY)),
    "version a number": (
        request("tools/list", {"_meta": {VERSION_KEY: 2026, CAPABILITIES_KEY: {}}}),
        Error(1, -32602, VERSION_KEY)),
    "capabilities a list": (
        request("tools/list", {"_meta": {VERSION_KEY: "2026-07-28", CAPABILITIES_KEY: []}}),
        Error(1, -32602, CAPABILITIES_KEY)),
    "unknown version": (
        request("server/discover", {"_meta": {VERSION_KEY: "1900-01-01", CAPABILITIES_KEY: {}}}),
        unsupported("1900-01-01")),
    "legacy version in _meta": (
        request("tools/list", {"_meta": {VERSION_KEY: "2025-11-25", CAPABILITIES_KEY: {}}}),
        unsupported("2025-11-25")),
    "unknown version of an unknown method": (
        request("nothing", {"_meta": {VERSION_KEY: "x", CAPABILITIES_KEY: {}}}), unsupported("x")),
    "stateless ping": (modern("ping"), UNKNOWN),
    "stateless resources/list": (modern("resources/list"), UNKNOWN),
    "stateless unknown tool": (
        modern("tools/call", {"name": "x"}), Error(1, -32602, "unknown tool: x")),
    "stateless call": (
        modern("tools/call", {"name": "tam_task_list"}), modern_result(listing()["result"])),
    "listen": (modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}), {
        "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
        "params": {"_meta": {"io.modelcontextprotocol/subscriptionId": 1}, "notifications": {}}}),
    "listen to nothing": (modern("subscriptions/listen"), Error(1, -32602, "notifications")),
    "listen without _meta": (
        request("subscriptions/listen", {"notifications": {}}), Error(1, -32602, VERSION_KEY)),
}


def line_of(frame: object) -> bytes:
    return frame if isinstance(frame, bytes) else json.dumps(frame).encode()


def whole(data: bytes) -> list[bytes]:
    return [data + b"\n"]


def byte_by_byte(data: bytes) -> list[bytes]:
    return [bytes([byte]) for byte in data + b"\n"]


def with_trailing_bytes(data: bytes) -> list[bytes]:
    """The frame with half of a healthy ping behind it, and then the other half."""
    ping = json.dumps(PING).encode() + b"\n"
    return [data + b"\n" + ping[:20], ping[20:]]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Client:
    """One server for all cases: what one case breaks, the next one shows."""
    home = str(tmp_path_factory.mktemp("frames"))
    patch = pytest.MonkeyPatch()
    patch.setenv("TAM_HOME", home)
    make_project().close()
    with Client(env={"TAM_HOME": home}) as client:
        patch.undo()
        yield client


@pytest.mark.parametrize("cut", [whole, byte_by_byte, with_trailing_bytes])
@pytest.mark.parametrize("name", CASES)
def test_frame(shared: Client, name: str, cut: object) -> None:
    frame, expected, *before = CASES[name]
    if before:
        assert shared.ask(opening(before[0]))["result"]["protocolVersion"] == before[0]
    data = line_of(frame)
    if cut is byte_by_byte and len(data) > 10_000:
        pieces = [data[start:start + 997] for start in range(0, len(data), 997)] + [b"\n"]
    else:
        pieces = cut(data)
    for piece in pieces:
        shared.send(piece)
    if expected is not NOTHING:
        assert json.loads(shared.line()) == expected
    if cut is not with_trailing_bytes:
        shared.post(PING)
    assert json.loads(shared.line()) == PONG
    assert shared.received == b""


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 70


def test_ids_come_back_with_their_type() -> None:
    server = tam_mcp.Server(tam.Tam())
    assert b'"id":1.0,' in tam_mcp.answer(server, with_id("1.0"))
    assert b'"id":"1",' in tam_mcp.answer(server, with_id('"1"'))


class Piped:
    """serve() in a thread, over pipes, with a limit of its own."""

    def __init__(self, limit: int) -> None:
        source, self.into = os.pipe()
        self.out, sink = os.pipe()
        self.thread = threading.Thread(target=self._serve, args=(source, sink, limit))
        self.thread.start()

    def _serve(self, source: int, sink: int, limit: int) -> None:
        try:
            tam_mcp.serve(tam_mcp.Server(tam.Tam()), source, sink, limit)
        finally:
            os.close(source)
            os.close(sink)

    def finish(self, data: bytes) -> list:
        """Send the last bytes; return all replies."""
        os.write(self.into, data)
        os.close(self.into)
        replies = b""
        while piece := os.read(self.out, 1 << 16):
            replies += piece
        os.close(self.out)
        self.thread.join(DEADLINE)
        return [json.loads(line) for line in replies.splitlines()]


def test_line_over_the_limit_is_one_parse_error() -> None:
    pipes = Piped(limit=100)
    for piece in byte_by_byte(b"x" * 101)[:-1]:
        os.write(pipes.into, piece)
    replies = pipes.finish(b"\n" + with_id("7") + b"\n")
    assert replies == [Error(None, -32700, "too long"), result({}, 7)]


def test_line_of_exactly_the_limit_is_read() -> None:
    line = with_id("7")
    assert Piped(limit=len(line)).finish(line + b"\r\n") == [result({}, 7)]


def test_last_line_without_newline_is_answered() -> None:
    assert Piped(limit=1000).finish(with_id("1") + b"\n" + with_id("2")) == [PINGED, result({}, 2)]


def test_hundreds_of_messages_in_one_write_are_answered_in_order() -> None:
    lines = b"".join(with_id(str(number)) + b"\n" for number in range(500))
    assert [reply["id"] for reply in Piped(limit=1000).finish(lines)] == list(range(500))
