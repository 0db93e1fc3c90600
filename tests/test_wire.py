"""Framing and JSON: what comes off a pipe, whole, in pieces and hostile."""
from __future__ import annotations

import os
import threading
import tracemalloc

import pytest

import tam
from tam import BadJSON, Lines, Overlong, encode_json, has_surrogate, parse_json, write_all


def byte_by_byte(data: bytes, limit: int = tam.MAX_LINE) -> tuple[list[bytes], bytes]:
    lines, found = Lines(limit), []
    for at in range(len(data)):
        found += lines.feed(data[at:at + 1])
    return found, lines.rest


def at_once(data: bytes, limit: int = tam.MAX_LINE) -> tuple[list[bytes], bytes]:
    lines = Lines(limit)
    return lines.feed(data), lines.rest


STREAMS = {
    "nothing": (b"", [], b""),
    "one line": (b"a\n", [b"a"], b""),
    "no newline yet": (b"ab", [], b"ab"),
    "two lines and a rest": (b"a\nbc\nd", [b"a", b"bc"], b"d"),
    "empty lines": (b"\n\n", [b"", b""], b""),
    "CRLF": (b"a\r\nb\r\n", [b"a", b"b"], b""),
    "only one carriage return goes": (b"a\r\r\n", [b"a\r"], b""),
    "a carriage return inside stays": (b"a\rb\n", [b"a\rb"], b""),
    "a lone carriage return ends nothing": (b"a\r", [], b"a\r"),
    "UTF-8 and NUL": ("é\0語\n".encode(), ["é\0語".encode()], b""),
    "exactly the limit": (b"12345678\n", [b"12345678"], b""),
    "exactly the limit, CRLF": (b"12345678\r\n", [b"12345678"], b""),
}


@pytest.mark.parametrize("feed", [at_once, byte_by_byte])
@pytest.mark.parametrize("data, lines, rest", STREAMS.values(), ids=STREAMS)
def test_lines_come_out_whole_however_they_come_in(
    feed: object, data: bytes, lines: list, rest: bytes
) -> None:
    assert feed(data, 8) == (lines, rest)
    assert not any(isinstance(line, Overlong) for line in feed(data, 8)[0])


@pytest.mark.parametrize("feed", [at_once, byte_by_byte])
@pytest.mark.parametrize("line", [b"123456789", b"12345678\r\r", b"1" * 300, b"1" * 5000])
def test_an_overlong_line_comes_out_once_with_its_beginning_and_the_next_is_whole(
    feed: object, line: bytes
) -> None:
    (first, second), rest = feed(line + b"\nnext\nrest", 8)
    assert isinstance(first, Overlong)
    assert line.startswith(first) and 8 < len(first) <= 256
    assert (second, rest) == (b"next", b"rest")
    assert not isinstance(second, Overlong)


def test_an_overlong_line_is_dropped_while_it_comes_in() -> None:
    lines, piece = Lines(limit=1000), b"x" * 4096
    lines.feed(piece)
    tracemalloc.start()
    for _ in range(2000):
        assert lines.feed(piece) == []
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < 50_000
    assert len(lines.rest) == Lines.KEPT
    assert lines.feed(b"\nok\n") == [piece[:256], b"ok"]


def test_the_limit_of_a_line_is_eight_mebibytes() -> None:
    line = b"x" * (8 * 1024 * 1024)
    whole, longer = Lines().feed(line + b"\n" + line + b"x\n")
    assert whole == line and not isinstance(whole, Overlong)
    assert isinstance(longer, Overlong)


VALUES = [
    (b"null", None), (b" true ", True), (b"-0", 0), (b"1.5e3", 1500.0), (b'"\\u00e9\\n"', "é\n"),
    ('"語😀"'.encode(), "語😀"), (b'{"a":[1,{"b":""}]}', {"a": [1, {"b": ""}]}),
    (b'{"a":1,"a":2}', {"a": 2}), (b'"\\ud83d\\ude00"', "😀"), (b'"\\ud800"', "\ud800"),
    (b"1e-999", 0.0), (b"1e308", 1e308), (b"9" * 4000, int("9" * 4000)),
]


@pytest.mark.parametrize("line, value", VALUES, ids=[line[:20] for line, _ in VALUES])
def test_parse_json_reads_a_value(line: bytes, value: object) -> None:
    found = parse_json(line)
    assert found == value and type(found) is type(value)


NO_JSON = {
    "nothing": b"",
    "space": b"  ",
    "two values": b"1 2",
    "trailing comma": b"[1,]",
    "single quotes": b"{'a':1}",
    "NaN": b"NaN",
    "NaN inside": b'{"a":[NaN]}',
    "Infinity": b"Infinity",
    "-Infinity": b"[-Infinity]",
    "1e999": b"1e999",
    "-1e999": b"-1e999",
    "a leading zero": b"01",
    "a raw control character": b'"a\nb"',
    "a byte order mark": b"\xef\xbb\xbf1",
    "no UTF-8": b'"\xff"',
    "cut UTF-8": b'"\xc3"',
    "UTF-8 of a surrogate": b'"\xed\xa0\x80"',
    "UTF-16": '"a"'.encode("utf-16"),
    "an endless integer": b"9" * 100_000,
    "brackets without end": b"[" * 1_000_000,
    "objects without end": b'{"a":' * 100_000,
    "a million levels": b"[" * 1_000_000 + b"]" * 1_000_000,
}


@pytest.mark.parametrize("line", NO_JSON.values(), ids=NO_JSON)
def test_parse_json_refuses_what_is_no_value(line: bytes) -> None:
    with pytest.raises(BadJSON) as caught:
        parse_json(line)
    assert caught.value.code == "invalid"
    assert len(caught.value.message) < 300


def nested(levels: int, opening: bytes = b"[", closing: bytes = b"]", core: bytes = b"") -> bytes:
    return opening * levels + core + closing * levels


def test_depth_is_limited_exactly_and_only_depth() -> None:
    assert parse_json(nested(200)) is not None
    assert parse_json(nested(200, b'{"a":', b"}", b"1")) is not None
    assert parse_json(b"[" + b",".join([nested(3)] * 500) + b"]")  # wide is not deep
    assert parse_json(b'"' + b"[" * 500 + b'"') == "[" * 500  # and text is not nesting
    for line in (nested(201), nested(201, b'{"a":', b"}", b"1")):
        with pytest.raises(BadJSON, match="200 levels"):
            parse_json(line)
    with pytest.raises(BadJSON, match="2 levels"):
        parse_json(b"[[[]]]", max_depth=2)


@pytest.mark.parametrize("value, line", [
    ({"é": ["語", 1.5, None, True]}, '{"é":["語",1.5,null,true]}'), ("\u2028\0", '"\\u2028\\u0000"'),
    ({}, "{}"), ("a/b\"\\", '"a/b\\"\\\\"'),
])
def test_encode_json_is_compact_utf8_on_one_line(value: object, line: str) -> None:
    assert encode_json(value) == line.encode("utf-8")
    assert b"\n" not in encode_json(value)


CYCLE: list = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize("value", [
    float("nan"), float("inf"), [-float("inf")], "\ud800", {"\udfff": 1}, object(), b"bytes",
    {(1, 2): 3}, {1, 2}, 10**5000, CYCLE,
], ids=lambda value: type(value).__name__)
def test_encode_json_refuses_what_has_no_json_form(value: object) -> None:
    with pytest.raises(BadJSON):
        encode_json(value)


@pytest.mark.parametrize("value, found", [
    ("\ud800", True), ({"\udc00": 1}, True), ([{"a": ["x", "\udfff"]}], True),
    ("😀", False), ({"é": [1, None, "語"]}, False), ("", False), (float("nan"), False),
])
def test_has_surrogate_looks_into_keys_and_values(value: object, found: object) -> None:
    assert has_surrogate(value) is found


def test_write_all_writes_the_whole_message_through_a_small_pipe() -> None:
    data = bytes(range(256)) * 4096  # a mebibyte, far more than a pipe holds
    read_end, write_end = os.pipe()
    received: list[bytes] = []

    def drain() -> None:
        while piece := os.read(read_end, 1000):
            received.append(piece)

    reader = threading.Thread(target=drain)
    reader.start()
    write_all(write_end, data)
    os.close(write_end)
    reader.join()
    os.close(read_end)
    assert b"".join(received) == data


def test_write_all_goes_on_after_short_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []

    def short(fd: int, data: bytes) -> int:
        written.append(bytes(data[:3]))
        return len(written[-1])

    monkeypatch.setattr(os, "write", short)
    write_all(99, b"0123456789")
    monkeypatch.undo()
    assert written == [b"012", b"345", b"678", b"9"]
