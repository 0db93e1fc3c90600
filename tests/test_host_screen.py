"""The host's terminal: what programs for xterm-256color write, as a list of lines."""
from __future__ import annotations

import random

import pytest

from hosting import host

#: What is written to a screen of 8 columns and 3 rows, and what it shows.
SCREENS = [
    ("abc", ["abc"]),
    ("abc\r\nde", ["abc", "de"]),
    ("a\nb", ["a", " b"]),
    ("abcdefghi", ["abcdefgh", "i"]),
    ("abcdefgh\rX", ["Xbcdefgh"]),
    ("abcdefgh\bX", ["abcdefXh"]),
    ("1\r\n2\r\n3\r\n4", ["2", "3", "4"]),
    ("\x1b[2;3Hx\x1b[Hy", ["y", "  x"]),
    ("\x1b[99;99Hx", ["", "", "       x"]),
    ("a\tb\tc", ["a      c"]),
    ("abcdef\x1b[3G\x1b[K", ["ab"]),
    ("abcdef\x1b[3G\x1b[1K", ["   def"]),
    ("abcdef\x1b[3G\x1b[2K", [""]),
    ("abc\r\ndef\r\nghi\x1b[2;2H\x1b[J", ["abc", "d"]),
    ("abc\r\ndef\r\nghi\x1b[2;2H\x1b[1J", ["", "  f", "ghi"]),
    ("abc\r\ndef\x1b[2J", [""]),
    ("abcdef\x1b[2G\x1b[2P", ["adef"]),
    ("abcdef\x1b[2G\x1b[2@", ["a  bcdef"]),
    ("abcdef\x1b[2G\x1b[3X", ["a   ef"]),
    ("1\r\n2\r\n3\x1b[1;1H\x1b[L", ["", "1", "2"]),
    ("1\r\n2\r\n3\x1b[1;1H\x1b[M", ["2", "3"]),
    ("1\r\n2\r\n3\x1b[2;3r\x1b[3;1H\nx", ["1", "3", "x"]),
    ("1\r\n2\r\n3\x1b[1;2r\x1b[1;1H\x1bMx", ["x", "1", "3"]),
    ("1\r\n2\r\n3\x1b[S", ["2", "3"]),
    ("1\r\n2\r\n3\x1b[T", ["", "1", "2"]),
    ("ab\x1b[3b", ["abbbb"]),
    ("\x1b7abc\x1b8X", ["Xbc"]),
    ("abc\x1b[?1049h\x1b[Hxyz", ["xyz"]),
    ("abc\x1b[?1049hxyz\x1b[?1049lD", ["abcD"]),
    ("\x1b[1;31mred\x1b[0m \x1b[38;5;7mx\x1b[m", ["red x"]),
    ("\x1b]0;title\x07ab\x1b]2;t\x1b\\c\x1bPq\x1b\\d", ["abcd"]),
    ("\x1b(0lqk\x1b(Bq", ["┌─┐q"]),
    ("\x1b)0\x0eqx\x0fqx", ["─│qx"]),
    ("中文ab", ["中文ab"]),
    ("abcdefg中", ["abcdefg", "中"]),
    ("中文\x1b[2Gx", [" x文"]),
    ("中文\x1b[3Gx", ["中x"]),
    ("中\x1b[2G\x1b[K", [""]),
    ("e\u0301x", ["e\u0301x"]),
    ("中\u0301x", ["中\u0301x"]),
    ("\x1b[4hab\x1b[1Gx\x1b[4l", ["xab"]),
    ("\x1b[?7labcdefghij", ["abcdefgj"]),
    ("\x1b[2;3r\x1b[?6h\x1b[1;1Hx", ["", "x"]),
    ("a\x1bcb", ["b"]),
    ("\x1b#8\x1b[2J", [""]),
    ("a\x1b[?2004h\x1b[>4;1m\x1b[?25l\x1b=\x1b>b", ["ab"]),
    ("a\x07\x00b", ["ab"]),
    ("\x1b[3;1Ha\x1bDb", ["", "a", " b"]),
    ("a\x1bEb", ["a", "b"]),
    ("\x1b[2;5H\x1b[Ax\x1b[2Dy\x1b[Bz\x1b[Cw", ["   yx", "    z w"]),
    ("\x1b[3d\x1b[5`x", ["", "", "    x"]),
    ("abc\x1b[2Zx", ["xbc"]),
    ("\x1b[1:2mx", ["x"]),
    ("a\x85b", ["a", "b"]),
    ("ab\x1b#3c", ["abc"]),
    ("1\r\n2\x1bMx", ["1x", "2"]),
    ("1\r\n2\r\n3\x1b[2;3r\x1b[1;1H\x1bMx", ["x", "2", "3"]),
    ("1\x1b[2Ex", ["1", "", "x"]),
    ("\x1b[3;5H\x1b[2Fx", ["x"]),
    ("\x1b[Ix", ["       x"]),
    ("\x1b[2;3H\x1b[?1048h\x1b[Hx\x1b[?1048ly", ["x", "  y"]),
    ("abc\x1b[?47hxyz\x1b[?47lD", ["abc   D"]),
    ("ab\x1b[?1049h\x1b[?1049hX\x1b[?1049l\x1b[?1049lc", ["abc"]),
    ("\x1b[2;3r\x1b[4h\x1b(0\x1b[!pab\x1b[1Gq", ["qb"]),
]


def shown(screen: object) -> list[str]:
    lines = [row.rstrip() for row in screen.display]
    while len(lines) > 1 and not lines[-1]:
        lines.pop()
    return lines


@pytest.mark.parametrize(("text", "lines"), SCREENS)
def test_what_is_shown(text: str, lines: list[str]) -> None:
    screen = host.HostScreen(8, 3)
    screen.feed(text.encode())
    assert shown(screen) == lines
    piecewise = host.HostScreen(8, 3)
    for byte in text.encode():
        piecewise.feed(bytes([byte]))
    assert shown(piecewise) == lines


def test_every_row_is_as_wide_as_the_screen() -> None:
    screen = host.HostScreen(5, 2)
    assert screen.display == ["     ", "     "]
    screen.feed("中a".encode())
    assert screen.display == ["中a  ", "     "]


def test_bytes_that_are_no_utf8_are_shown_as_such() -> None:
    screen = host.HostScreen(8, 1)
    screen.feed(b"a\xffb\xe4\xb8")
    screen.feed(b"\xad")
    assert shown(screen) == ["a\ufffdb中"]


def test_resize_cuts_and_fills_and_keeps_the_cursor_in_view() -> None:
    screen = host.HostScreen(8, 3)
    screen.feed("abcdefgh\r\n中中中中\r\n3".encode())
    screen.resize(5, 2)
    assert screen.display == ["中中 ", "3    "]
    screen.feed(b"!")
    screen.resize(6, 4)
    assert screen.display == ["中中  ", "3!    ", "      ", "      "]


def test_reports_are_answered() -> None:
    screen = host.HostScreen(8, 3)
    screen.feed(b"ab\x1b[6n\x1b[5n\x1b[c")
    assert bytes(screen.replies) == b"\x1b[1;3R\x1b[0n\x1b[?1;2c"
    screen.replies.clear()
    screen.feed(b"\x1b[7n")  # no report that there is
    assert not screen.replies


def test_a_flood_of_anything_stays_bounded() -> None:
    screen = host.HostScreen(8, 3)
    screen.feed(b"\x1b[6n" * 100_000)
    screen.feed(b"\x1b[c" * 100_000)
    screen.feed(b"\x1b]0;" + b"x" * 100_000)
    screen.feed("e".encode() + "\u0301".encode() * 100_000)
    screen.feed(b"\x1b[999999999999b\x1b[99999999L\x1b[9999999S\x1b[" + b"1;" * 50_000 + b"m")
    assert len(screen.replies) < 10_000
    assert all(len(row) <= 8 * host.HOST_CELL_MOST for row in screen.display)


def test_random_bytes_never_break_it() -> None:
    chance = random.Random(5)
    pieces = [text for text, _ in SCREENS] + ["\x1b[", "\x1b", "0", ";", "中", "\u0301", "\x9b3A"]
    for _ in range(150):
        columns, rows = chance.randint(1, 12), chance.randint(1, 5)
        screen = host.HostScreen(columns, rows)
        for _ in range(40):
            if chance.random() < 0.1:
                columns, rows = chance.randint(1, 12), chance.randint(1, 5)
                screen.resize(columns, rows)
            piece = chance.choice(pieces).encode() if chance.random() < 0.8 else chance.randbytes(6)
            screen.feed(piece)
            lines = screen._lines
            assert len(lines) == rows and all(len(row) == columns for row in lines)
