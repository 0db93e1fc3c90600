"""Text for terminals: harmless, measured in cells, cut and padded exactly."""
from __future__ import annotations

import unicodedata

import pytest

from tam import cell_width, fit, glyphs, iso_time, pad, printable

FAMILY = "👩‍👩‍👧"  # three people and two joiners, one glyph
FLAG = "🇩🇪"
KEYCAP = "1️⃣"
THUMB = "👍🏽"
HEART = "❤️"

HARMLESS = {
    "plain": ("Fix login", "Fix login"),
    "empty": ("", ""),
    "any script": ("Ünï 日本語 한국어 עברית हिन्दी", "Ünï 日本語 한국어 עברית हिन्दी"),
    "emoji": (FAMILY + FLAG + KEYCAP + THUMB + HEART, FAMILY + FLAG + KEYCAP + THUMB + HEART),
    "combining": ("e\u0301", "e\u0301"),
    "joiners of scripts": ("می\u200cخواهم", "می\u200cخواهم"),
    "newline and tab": ("a\nb\tc\r", "a␊b␉c␍"),
    "escape sequence": ("\x1b[31mred\x1b[0m", "␛[31mred␛[0m"),
    "title sequence": ("\x1b]0;x\x07", "␛]0;x␇"),
    "NUL and DEL": ("\0\x7f", "␀␡"),
    "one-byte CSI": ("\x9b31m", "<U+009B>31m"),
    "next line": ("a\x85b", "a b"),
    "line separators": ("a\u2028b\u2029c", "a<U+2028>b<U+2029>c"),
    "bidirectional overrides": ("a\u202eb\u202c", "a<U+202E>b<U+202C>"),
    "bidirectional isolates": ("\u2066x\u2069", "<U+2066>x<U+2069>"),
    "zero width": ("a\u200bb\ufeffc", "a<U+200B>b<U+FEFF>c"),
    "odd spaces": ("a\u00a0b\u2003c\u3000d", "a b c d"),
    "lone surrogate": ("a\ud800b", "a\ufffdb"),
    "private use": ("\ue000", "<U+E000>"),
}


@pytest.mark.parametrize("text, shown", HARMLESS.values(), ids=HARMLESS)
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown) == shown


def test_nothing_that_steers_a_terminal_gets_through_printable() -> None:
    for code in range(0x110000):
        char = chr(code)
        if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") or unicodedata.bidirectional(
            char
        ) in ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"):
            shown = printable(char)
            assert char not in shown and shown.isprintable() and shown, hex(code)


WIDTHS = {
    "nothing": ("", 0), "ASCII": ("abc", 3), "accent": ("é", 1), "combining accent": ("e\u0301", 1),
    "many marks": ("e" + "\u0301" * 20, 1), "CJK": ("日本語", 6), "fullwidth": ("ＡＢ", 4),
    "halfwidth": ("ｱｲ", 2), "Hangul": ("한글", 4), "Hangul in jamo": ("\u1112\u1161\u11ab", 2),
    "emoji": ("🚧✅⏳", 6), "joined emoji": (FAMILY, 2), "flag": (FLAG, 2),
    "two flags": (FLAG * 2, 4), "keycap": (KEYCAP, 2),
    "skin tone": (THUMB, 2), "emoji style": (HEART, 2),
    "without emoji style": ("❤", 1), "spacing marks": ("क्षि", 3), "box": ("│─", 2),
    "a mark alone": ("\u0301", 0), "mixed": ("a日" + FAMILY + "b", 6),
}


@pytest.mark.parametrize("text, width", WIDTHS.values(), ids=WIDTHS)
def test_cell_width(text: str, width: int) -> None:
    assert cell_width(text) == width


@pytest.mark.parametrize("text, found", [
    ("ab", [("a", 1), ("b", 1)]), ("e\u0301x", [("e\u0301", 1), ("x", 1)]), (FAMILY, [(FAMILY, 2)]),
    ("日" + THUMB, [("日", 2), (THUMB, 2)]), (FLAG + "🇫🇷", [(FLAG, 2), ("🇫🇷", 2)]),
    (KEYCAP, [(KEYCAP, 2)]), ("", []),
])
def test_glyphs(text: str, found: object) -> None:
    assert glyphs(text) == found
    assert "".join(glyph for glyph, _ in glyphs(text)) == text


CUTS = [
    ("abc", 3, "abc"),
    ("abcd", 3, "ab…"),
    ("abc", 1, "…"),
    ("abc", 0, ""),
    ("abc", -5, ""),
    ("", 0, ""),
    ("日本語", 6, "日本語"),
    ("日本語", 5, "日本…"),
    ("日本語", 4, "日…"),
    ("日本語", 2, "…"),
    (FAMILY + "abc", 4, FAMILY + "a…"),
    (FAMILY + "abc", 2, "…"),
    ("e\u0301e\u0301e\u0301", 2, "e\u0301…"),
    ("e\u0301e\u0301", 2, "e\u0301e\u0301"),
    (FLAG * 3, 5, FLAG * 2 + "…"),
]


@pytest.mark.parametrize("text, width, shown", CUTS)
def test_fit_cuts_between_glyphs_and_never_exceeds_the_width(
    text: str, width: int, shown: str
) -> None:
    assert fit(text, width) == shown
    assert cell_width(shown) <= max(width, 0)


@pytest.mark.parametrize(
    "text", ["", "abc", "日本語", FAMILY * 3, "e\u0301" * 5, FLAG, "a日" * 9, "\u0301"]
)
def test_pad_is_exact_at_every_width(text: str) -> None:
    for width in range(12):
        assert cell_width(pad(text, width)) == width
    assert pad(text, 30).rstrip() == text.rstrip()


@pytest.mark.parametrize("seconds, text", [
    (0, "1970-01-01T00:00:00Z"), (1793613600, "2026-11-02T10:00:00Z"), (-1, "1969-12-31T23:59:59Z"),
    (None, None), ("x", None), (10**30, None),
])
def test_iso_time(seconds: object, text: str) -> None:
    assert iso_time(seconds) == text
