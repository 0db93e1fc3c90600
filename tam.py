#!/usr/bin/env python3
"""tam: a task manager for coding agents and the people beside them.

One SQLite file holds projects, tasks, leases and an event log. People use the command line and
the terminal board (`tam -i`); agents use the same commands with `--json`, or MCP (`tam mcp`), or
the Tick protocol (`tam tick`). Every door leads to one function, `Tam.call`, and one table,
`OPERATIONS`:

    argv ───────────┐
    MCP tools/call ─┼─ name, arguments ─ OPERATIONS[name] ─ check ─ one transaction ─ view
    tick/call ──────┘

This file works when it is copied alone; `mcp`, `tick` and `-i` need `tam_mcp.py` and
`tam_tick.py` beside it. The sections below use only what stands above them:

    limits · errors · schema validator · wire framing · terminal text · config and log ·
    SQL and migrations · store · views · operations · the operation table · call ·
    people's output · command line

"contract" in a docstring names a section of skills/tam-agent/references/agent-protocol.md.
"""
from __future__ import annotations

import sys

if sys.version_info < (3, 11):
    sys.stderr.write(
        "tam needs Python 3.11 or newer; this is Python %d.%d. Run it with a newer python3.\n"
        % sys.version_info[:2]
    )
    raise SystemExit(1)


def end_on_interrupt() -> None:
    """Let Ctrl-C end this process at once: status 130 and not a word.

    As an exception it could come up in a callback or a finalizer, which lose it or print it, or
    when `main` is over. Nothing needs it: SQLite takes back what was not committed.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def _leave(signal_number: int, frame: object) -> None:
    os._exit(130)


try:
    import gc
    import os
    import signal

    if __name__ == "__main__":
        end_on_interrupt()
    # Modules that load leave no garbage, and looking for it takes 6% of a whole command.
    _COLLECTS = gc.isenabled()
    gc.disable()
    import argparse
    import codecs
    import errno
    import json
    import math
    import re
    import sqlite3
    import time
    from collections.abc import Iterable, Iterator
except KeyboardInterrupt:  # Ctrl-C while the interpreter still loads: the same end as later
    raise SystemExit(130) from None

try:
    import fcntl
except ImportError:  # not a Unix: SQLite's own lock must do, with bounded retries
    fcntl = None

# A sibling module says `import tam`; run as a script this module is called `__main__`, and a
# second copy would bring second exception classes that `except` does not recognise.
sys.modules.setdefault("tam", sys.modules[__name__])

VERSION = "2.0.0"
#: Name of the JSON envelope (contract, JSON output).
SCHEMA = "tam.agent/v1"


# ---- limits --------------------------------------------------------------------------------------

#: Bytes in one line of a protocol: what T 3.5 allows, far above any honest message.
MAX_LINE = 8 * 1024 * 1024
#: Nesting of a JSON value: deeper is an attack, and the interpreter's own stack ends near 1,000.
MAX_DEPTH = 200
#: Seconds to wait for another writer before giving up with a retryable error (P 2.1).
BUSY_TIMEOUT = 5.0
#: Seconds between two looks at a lock that another holds. SQLite's own handler looks ten times a
#: second, in vain for seconds while others write in turns.
BUSY_LOOK = 0.002
#: Lease lengths in seconds (P 4.2).
LEASE_DEFAULT, LEASE_MIN, LEASE_MAX = 900, 5, 86_400
#: Items in one answer (P 4.1): the default, and what an asked limit is clamped to.
LIMIT_DEFAULT, LIMIT_MAX = 100, 1000
#: Where counting ends, so that it takes no longer the more there is. At least LIMIT_MAX.
TOTAL_MAX = 1000
#: Bytes of a description: long enough for a page of context, short enough for a model's window.
DESCRIPTION_MAX = 64 * 1024
TITLE_MAX = 1000
NAME_MAX = 255
AGENT_MAX = 128
KEY_MAX = 255
TAG_MAX, TAGS_MAX = 64, 32
#: The log rolls at this size and keeps this many old files, as tam 1.0.13 did.
LOG_BYTES, LOG_FILES = 10 * 1024 * 1024, 5
#: Largest integer that SQLite stores; an id beyond it exists nowhere.
INT64_MAX = 2**63 - 1


# ---- errors --------------------------------------------------------------------------------------


class TamError(Exception):
    """Something the caller must act on (contract, errors).

    `message` is one sentence for people and models; `details` are the same facts as data.
    Each subclass carries the envelope's `code`, the command line's `exit_status` and the Tick's
    JSON-RPC `tick_code`.
    """

    code = "internal"
    exit_status = 1
    tick_code = -32000

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def as_dict(self) -> dict:
        """Return `{"code", "message", "details"}`, the error object of every door."""
        return {"code": self.code, "message": self.message, "details": self.details}


class Invalid(TamError):
    """A value of the right shape and the wrong domain."""

    code = "invalid"
    tick_code = -32602


class Usage(Invalid):
    """A command line that cannot be understood."""

    exit_status = 2


class NotFound(TamError):
    """A task or project that does not exist, or not in the project that was named."""

    code = "not_found"
    exit_status = 3
    tick_code = -32602


class Conflict(TamError):
    """Another's lease, a name that is taken, or a revision that has moved on."""

    code = "conflict"
    exit_status = 4


class MissingProject(TamError):
    """A project is needed and none was given, set or chosen."""

    code = "missing_project"
    tick_code = -32602


class MissingAgent(TamError):
    """An agent id is needed and none was given."""

    code = "missing_agent"
    tick_code = -32602


class Internal(TamError):
    """tam or its surroundings failed; the log has the rest."""


class Startup(Internal):
    """The config or the database cannot be opened; nothing was read or written."""


class Busy(Internal):
    """Another writer held the database for longer than the busy timeout; trying again is safe."""

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message, retryable=True, **details)


class SchemaError(Invalid):
    """A JSON Schema that is not valid, or that this validator cannot apply.

    `details` have `unsupported`: True where the schema may well be valid, and only goes beyond
    what is supported here or what a check may cost.
    """


class BadJSON(Invalid):
    """Bytes that are no JSON value, or a value that has no JSON form."""


# ---- schema validator ----------------------------------------------------------------------------
# JSON Schema, draft 2020-12: the words that tam's own arguments need. tam_tick.py has those that
# only strangers' schemas need, as further rows for the same table, and the check of a schema.
#
# A rule is `_…(check, word, schema, value, at)` and yields what is wrong as (at, what must be so,
# the value there). `at` is () for the top, else (the at of what holds it, key or index), so that a
# pointer costs nothing until it is needed.

#: What one check may cost. A step takes about half a microsecond: the limit is about a second.
SCHEMA_STEPS = 2_000_000
#: How deep schemas may apply within one another: each level is up to four frames of recursion, and
#: the interpreter has a thousand for the whole program.
SCHEMA_DEPTH = 200

#: The names that `type` has for a Python type; a float without a fraction is an integer too.
TYPE_NAMES = {
    type(None): ("null",), bool: ("boolean",), int: ("integer", "number"), float: ("number",),
    str: ("string",), list: ("array",), dict: ("object",),
}
TYPE_PHRASES = {
    "null": "null", "boolean": "true or false", "integer": "an integer", "number": "a number",
    "string": "a string", "array": "a list", "object": "an object",
}
_UNITS = {str: ("character",), list: ("item",), dict: ("property", "properties")}


class SchemaCheck:
    """One evaluation of a schema, and what it may still cost: `steps` in all."""

    def __init__(self, root: object, steps: int = SCHEMA_STEPS) -> None:
        self.root = root
        self.keywords = KEYWORDS
        self.limit = self.left = steps
        self.depth = 0

    def violations(self, schema: object, value: object, at: tuple) -> Iterator[tuple]:
        """Yield what a part of the schema finds wrong with a part of the value."""
        if type(value) not in TYPE_NAMES or type(value) is float and not math.isfinite(value):
            text = f"{shown_value(value)} is no JSON value"
            raise SchemaError(text, pointer=self.pointer(at))
        if schema is False:
            yield at, "must be left out", value
        if type(schema) is bool:
            return
        self.spend(8 + len(schema))
        self.depth += 1
        if self.depth > SCHEMA_DEPTH:
            raise SchemaError(f"schemas apply within one another over {SCHEMA_DEPTH} deep")
        try:
            for word in schema:
                yield from self.of_keyword(word, schema, value, at)
        finally:
            self.depth -= 1

    def of_keyword(self, word: str, schema: dict, value: object, at: tuple) -> Iterator[tuple]:
        """Yield what one word of a schema finds wrong."""
        kinds, rule = self.keywords.get(word, ((), None))
        if type(value) in kinds:
            yield from rule(self, word, schema, value, at)

    def spend(self, steps: int) -> None:
        """Take steps off the budget; SchemaError when it is used up."""
        self.left -= steps
        if self.left < 0:
            text = f"the check takes more than {self.limit:,} steps"
            raise SchemaError(text, steps=self.limit, unsupported=True)

    def pointer(self, at: tuple, base: tuple = ()) -> str:
        """Return `at` as a JSON Pointer, relative to `base`."""
        tokens = []
        while at and at is not base:
            at, token = at
            tokens.append("/" + str(token).replace("~", "~0").replace("/", "~1"))
        pointer = _escaped("".join(reversed(tokens)))
        self.spend(len(pointer) >> 4)
        return pointer

    def search(self, pattern: str, text: str) -> bool:
        """Say whether a pattern matches anywhere in a text. tam's own are plain enough for `re`."""
        return re.search(pattern, text) is not None

    def same(self, one: object, other: object) -> bool:
        """Say whether two JSON values are equal: 1 and 1.0 are, 1 and true are not."""
        kind = type(one)
        if kind in (list, dict):
            if kind is not type(other) or len(one) != len(other):
                return False
            self.spend(len(one))
            if kind is list:
                return all(self.same(item, twin) for item, twin in zip(one, other))
            return all(name in other and self.same(one[name], other[name]) for name in one)
        if kind is str:
            self.spend(len(one) >> 8)
        return one == other and (kind is bool) is (type(other) is bool)


def _escaped(text: str) -> str:
    """Return the text with lone surrogates as escapes, so that it can be sent on."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def shown_value(value: object, depth: int = 2) -> str:
    """Return a value for a sentence: as JSON, cut short wherever it is long or deep."""
    kind = type(value)
    if kind is str:
        quoted = _escaped(json.dumps(value[:60], ensure_ascii=False))
        return quoted if len(value) <= 60 else f'{quoted[:-1]}…" ({len(value):,} characters)'
    if kind is int and value.bit_length() > 100:
        return f"an integer of about {int(value.bit_length() * math.log10(2)) + 1:,} digits"
    if kind not in (list, dict):
        return json.dumps(value) if kind in TYPE_NAMES else f"a Python {kind.__name__}"
    if depth == 0:
        return "…"
    parts = [shown_value(item, depth - 1) for item, _ in zip(value, range(5))]
    if kind is dict:
        held = [shown_value(value[name], depth - 1) for name, _ in zip(value, range(5))]
        parts = [f"{name}: {item}" for name, item in zip(parts, held)]
    if len(value) > 5:
        parts.append(f"… {len(value):,} in all")
    return f"{{{', '.join(parts)}}}" if kind is dict else f"[{', '.join(parts)}]"


def counted(count: int | float, one: str, many: str = "") -> str:
    """Return a count with its noun: "1 item", "2 items"."""
    number = f"{int(count):,}" if count < 10**15 else shown_value(count)
    return f"{number} {one if count == 1 else many or one + 's'}"


def listed(values: list | dict) -> str:
    """Return the first twenty values for a sentence."""
    shown = [shown_value(value) for value, _ in zip(values, range(20))]
    return ", ".join(shown) + (", …" if len(values) > 20 else "")


# -- the rules --


def _type(check: SchemaCheck, word: str, schema: dict, value: object, at: tuple) -> Iterator:
    wanted, names = schema[word], TYPE_NAMES[type(value)]
    allowed = [wanted] if type(wanted) is str else wanted
    if type(value) is float and value.is_integer():
        names = "integer", "number"
    if not any(name in names for name in allowed):
        yield at, "must be " + " or ".join(map(TYPE_PHRASES.get, allowed)), value


def _enum(check: SchemaCheck, word: str, schema: dict, value: object, at: tuple) -> Iterator:
    """Enum, and const with its one value."""
    allowed = schema[word] if word == "enum" else [schema[word]]
    check.spend(len(allowed))
    if not any(check.same(one, value) for one in allowed):
        choice = "one of " if len(allowed) > 1 else ""
        yield at, f"must be {choice}{listed(allowed) or 'left out'}", value


def _minimum(check: SchemaCheck, word: str, schema: dict, value: object, at: tuple) -> Iterator:
    if value < schema[word]:
        yield at, f"must be at least {shown_value(schema[word])}", value


def _maximum(check: SchemaCheck, word: str, schema: dict, value: object, at: tuple) -> Iterator:
    if value > schema[word]:
        yield at, f"must be at most {shown_value(schema[word])}", value


def _size(check: SchemaCheck, word: str, schema: dict, value: object, at: tuple) -> Iterator:
    size, bound, least = len(value), schema[word], word.startswith("min")
    if size < bound if least else size > bound:
        wanted = counted(bound, *_UNITS[type(value)])
        yield at, f"must have at {'least' if least else 'most'} {wanted}, not {size:,}", value


def _pattern(check: SchemaCheck, word: str, schema: dict, value: str, at: tuple) -> Iterator:
    if not check.search(schema[word], value):
        yield at, f"must match the pattern {shown_value(schema[word])}", value


def _items(check: SchemaCheck, word: str, schema: dict, value: list, at: tuple) -> Iterator:
    check.spend(len(value))
    for index in range(len(schema.get("prefixItems", ())), len(value)):
        yield from check.violations(schema[word], value[index], (at, index))


def _properties(check: SchemaCheck, word: str, schema: dict, value: dict, at: tuple) -> Iterator:
    check.spend(len(value))
    for name in value:
        if name in schema[word]:
            yield from check.violations(schema[word][name], value[name], (at, name))


def _additional(check: SchemaCheck, word: str, schema: dict, value: dict, at: tuple) -> Iterator:
    part, known = schema[word], schema.get("properties", {})
    patterns = schema.get("patternProperties", {})
    check.spend(len(value))
    for name in value:
        if name in known or any(check.search(pattern, name) for pattern in patterns):
            continue
        if part is False:
            matching = f"those that match {listed(patterns)}" if patterns else ""
            allowed = " and ".join(filter(None, (listed(known), matching))) or "none"
            must = f"must be left out: the names allowed here are {allowed}"
            yield (at, name), must, value[name]
        else:
            yield from check.violations(part, value[name], (at, name))


def _required(check: SchemaCheck, word: str, schema: dict, value: dict, at: tuple) -> Iterator:
    check.spend(len(schema[word]))
    for name in schema[word]:
        if name not in value:
            yield at, f"must have the property {shown_value(name)}", value


#: Each word that is checked: the Python types of the values that it has a say about, and its rule.
ANY, NUMBERS = tuple(TYPE_NAMES), (int, float)
KEYWORDS = {
    "type": (ANY, _type),
    "enum": (ANY, _enum),
    "minimum": (NUMBERS, _minimum),
    "maximum": (NUMBERS, _maximum),
    "minLength": ((str,), _size),
    "maxLength": ((str,), _size),
    "pattern": ((str,), _pattern),
    "minItems": ((list,), _size),
    "maxItems": ((list,), _size),
    "items": ((list,), _items),
    "properties": ((dict,), _properties),
    "required": ((dict,), _required),
    "additionalProperties": ((dict,), _additional),
}


# ---- wire framing --------------------------------------------------------------------------------

_OPENING = re.compile(rb"[\[{]")


class Overlong(bytes):
    """The first bytes of a line that exceeded the limit; its rest was dropped while it came in."""


class Lines:
    """Push-style framing: bytes in, complete lines out, in bounded memory.

    `limit` is the longest line in bytes, its newline not counted. A longer one comes out once, as
    an `Overlong` that holds its beginning. A trailing carriage return is taken off.
    """

    #: Bytes that are kept of an over-long line, enough to recognise it in a log.
    KEPT = 256

    def __init__(self, limit: int = MAX_LINE) -> None:
        self.limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._overlong: bytes | None = None

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes of the stream; return the lines that are complete with them."""
        *complete, tail = data.split(b"\n")
        lines = []
        for piece in complete:
            self._take(piece)
            lines.append(self._finish())
        self._take(tail)
        return lines

    @property
    def rest(self) -> bytes:
        """What came after the last newline (of an over-long line only the beginning)."""
        return self._overlong if self._overlong is not None else b"".join(self._parts)

    def _take(self, piece: bytes) -> None:
        if self._overlong is not None or not piece:
            return
        self._parts.append(piece)
        self._size += len(piece)
        if self._size > self.limit + 1:  # one more for a carriage return
            self._give_up()

    def _give_up(self) -> None:
        self._overlong = Overlong(b"".join(self._parts)[: self.KEPT])
        self._parts.clear()

    def _finish(self) -> bytes:
        line = self.rest
        if self._overlong is None:
            line = line[:-1] if line.endswith(b"\r") else line
            if len(line) > self.limit:
                line = Overlong(line[: self.KEPT])
        self._parts, self._size, self._overlong = [], 0, None
        return line


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:40]} is out of range")
    return value


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is no JSON number")


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_no_constant)


def parse_json(line: bytes, max_depth: int = MAX_DEPTH) -> object:
    """Return the JSON value that `line` holds.

    Raises BadJSON for bytes that are no UTF-8, no JSON, NaN or Infinity, a number out of range,
    and a value nested deeper than `max_depth`. A lone surrogate written as an escape does parse;
    `has_surrogate` tells.
    """
    try:
        value = _DECODER.decode(line.decode("utf-8"))
    except RecursionError:
        raise BadJSON(f"the value is nested deeper than {max_depth} levels") from None
    except ValueError as error:
        raise BadJSON(f"not a JSON value: {error}") from None
    # Only a line with that many brackets can be too deep; counting them is cheap.
    if len(_OPENING.findall(line)) > max_depth and _depth_exceeds(value, max_depth):
        raise BadJSON(f"the value is nested deeper than {max_depth} levels")
    return value


def _depth_exceeds(value: object, limit: int) -> bool:
    layer = _inside([value])
    for _ in range(limit):  # each time to the arrays and objects one level further in
        layer = [child for item in layer for child in _inside(item)]
        if not layer:
            return False
    return True


def _inside(value: object) -> list:
    children = value.values() if isinstance(value, dict) else value
    return [child for child in children if isinstance(child, (dict, list))]


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
#: What JSON lets stand in a string and many readers of lines take for the end of one.
_LINE_ENDS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}


def encode_json(value: object) -> bytes:
    """Return `value` as compact JSON in UTF-8, which no reader of lines takes for more than one.

    Raises BadJSON for NaN, a lone surrogate, and what has no JSON form.
    """
    try:
        return on_one_line(_ENCODER.encode(value)).encode("utf-8")
    except (ValueError, TypeError, RecursionError) as error:
        raise BadJSON(f"no JSON form: {error}") from None


def on_one_line(text: str) -> str:
    """Return JSON or TOML with the ends of lines that a string may hold as escapes."""
    return text if text.isascii() else text.translate(_LINE_ENDS)


def has_surrogate(value: object) -> bool:
    """Say whether any text in `value`, keys included, holds a lone surrogate."""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data` to descriptor `fd`, however short the single writes are (OSError)."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view):]


# ---- terminal text -------------------------------------------------------------------------------

_JOINER, _EMOJI_STYLE = "\u200d", "\ufe0f"
#: Invisible characters that text needs: joiners of scripts and emoji, variation selectors.
_HARMLESS = frozenset("\u200c\u200d\ufe0e\ufe0f")


def printable(text: str) -> str:
    """Return `text` as one line that cannot steer a terminal (contract, output).

    Control characters become their pictures; escape sequences, bidirectional overrides, line
    separators and lone surrogates become visible marks.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in _HARMLESS else _mark(char) for char in text
    )


def _mark(char: str) -> str:
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    if char.isspace() and code < 0x2028 or code == 0x3000 or code in (0x202F, 0x205F):
        return " "
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"
    return f"<U+{code:04X}>"


def cell_width(text: str) -> int:
    """Return how many terminal cells `text` takes: 2 for CJK and emoji, 0 for combining marks."""
    return len(text) if text.isascii() else sum(width for _, width in glyphs(text))


def glyphs(text: str) -> list[tuple[str, int]]:
    """Split `text` into (glyph, cells): a base character with its marks, a joined emoji as one."""
    import unicodedata

    found: list[tuple[str, int]] = []
    flag = False  # whether the last glyph is one half of a flag
    for char in text:
        if not found or not _extends(found[-1][0], char, flag, unicodedata):
            flag = _is_regional(char)
            found.append((char, _char_width(char, unicodedata)))
            continue
        glyph, width = found[-1]
        if char == _EMOJI_STYLE or _is_regional(char):
            width = 2
        found[-1] = (glyph + char, width)
        flag = flag and not _is_regional(char)
    return found


def _extends(glyph: str, char: str, flag: bool, unicodedata: object) -> bool:
    if glyph[-1] == _JOINER and ord(char) > 0x2000:
        return True
    if _is_regional(char):
        return flag
    return _char_width(char, unicodedata) == 0 or 0x1F3FB <= ord(char) <= 0x1F3FF


def _is_regional(char: str) -> bool:
    return 0x1F1E6 <= ord(char) <= 0x1F1FF


def _char_width(char: str, unicodedata: object) -> int:
    if char.isascii():
        return 1
    if unicodedata.category(char) in ("Mn", "Me", "Cf") or 0x1160 <= ord(char) <= 0x11FF:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def fit(text: str, width: int) -> str:
    """Return `text` cut to `width` cells, with an ellipsis where something was cut."""
    if width <= 0:
        return ""
    if len(text) <= width and text.isascii() or cell_width(text) <= width:
        return text
    kept, room = [], width - 1
    for glyph, cells in glyphs(text):
        if cells > room:
            break
        kept.append(glyph)
        room -= cells
    return "".join(kept) + "…"


def pad(text: str, width: int) -> str:
    """Return `text` as exactly `width` cells: cut, or filled up with spaces."""
    text = fit(text, width)
    return text + " " * (width - cell_width(text))


def iso_time(seconds: object) -> str | None:
    """Return Unix `seconds` as `YYYY-MM-DDTHH:MM:SSZ`; None for None and for what is no time."""
    if seconds is None:
        return None
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
    except (TypeError, ValueError, OverflowError, OSError):
        return None


# ---- config and log ------------------------------------------------------------------------------

CONFIG_NAME = "tam.config.toml"
CONFIG_KEYS = ("db_file", "current_project", "logfile_path", "logfile_pattern", "theme")
THEMES = ("dark", "light")
#: A line that tam itself writes, a comment, or nothing. A config of such lines only is read
#: without tomllib, whose import costs a fifth of a whole command.
_PLAIN_LINE = re.compile(
    r'\s*(?:([A-Za-z0-9_-]+)\s*=\s*"([^"\\\x00-\x1f\x7f]*)"\s*)?'
    r"(?:#[^\x00-\x08\x0a-\x1f\x7f]*)?"
)


class Home:
    """The directory of tam's files and the config in it (contract, files).

    `env` gives TAM_HOME, else HOME. Nothing is read before `config` is asked for.
    """

    def __init__(self, env: dict) -> None:
        chosen = env.get("TAM_HOME") or os.path.join(env.get("HOME") or _account_home(), ".tam")
        if not os.path.isabs(chosen) and not env.get("TAM_HOME"):
            raise Startup("no home directory is known: set TAM_HOME to a directory for tam's files")
        try:
            self.directory = os.path.abspath(chosen)
        except FileNotFoundError:
            raise Startup(
                "TAM_HOME is a relative path, and the current directory is gone: set TAM_HOME to an"
                " absolute one", tam_home=path_text(chosen),
            ) from None
        self.config_file = os.path.join(self.directory, CONFIG_NAME)
        self.shown_config = path_text(self.config_file)  # for answers and messages
        self.unknown: list[str] = []  # keys of the config that are none of tam's, once it is read
        self._config: dict = {}
        self._seen: object = ()

    @property
    def config(self) -> dict:
        """The five settings by key; `current_project` is None when unset. Startup when unreadable.

        The file is read again when another process has changed it.
        """
        seen = file_stamp(self.config_file)  # before it is read: what comes later is seen later
        if seen != self._seen:
            self._config = self._settings(self._read(create=True))
            self._seen = seen
        return self._config

    def path(self, key: str) -> str:
        """Return a setting as an absolute path; a relative one starts at tam's own directory."""
        setting = self.config[key]
        if "\0" in setting:
            raise Startup(
                f"{key} in {self.shown_config} is a name that no file can have",
                config_file=self.shown_config, key=key,
            )
        return os.path.join(self.directory, os.path.expanduser(native_path(setting)))

    def save(self, **changes: str | None) -> None:
        """Set or (with None) remove keys, keeping the rest of the file; atomic, under a lock."""
        self.make()
        with FileLock(self.config_file + ".lock"):
            old = self._read(create=False)
            new = _edit_toml(old, changes)
            if not _holds(new, _merged(_parse_toml(old), changes)):
                raise Internal(
                    f"{self.shown_config} is written in a way that tam cannot edit safely:"
                    f" set {', '.join(changes)} in it by hand",
                    config_file=self.shown_config,
                )
            if new != old:
                replace_file(self.config_file, new.encode("utf-8"))

    def make(self) -> None:
        """Create the directory, for its owner only, where it is missing (OSError)."""
        os.makedirs(self.directory, mode=0o700, exist_ok=True)

    def log(self, text: str, limit: int = LOG_BYTES) -> None:
        """Append one record to the log, which rolls at `limit` bytes.

        A log that cannot be written stops nothing.
        """
        try:
            _append_log(self.path("logfile_path"), self.path("logfile_pattern"), text, limit)
        except (OSError, ValueError, TamError):  # ValueError: a path that no file can have
            return  # the log is the last resort: there is no better place to report to

    def _read(self, create: bool) -> str:
        try:
            need_file(self.config_file)
            with open(self.config_file, "rb") as file:
                return file.read().decode("utf-8")
        except FileNotFoundError:
            text = self._defaults_text()
        except (OSError, UnicodeDecodeError) as error:
            raise Startup(
                f"cannot read {self.shown_config}: {getattr(error, 'strerror', error)}",
                config_file=self.shown_config,
            ) from None
        if create:
            self._create(text)
        return text

    def _create(self, text: str) -> None:
        try:
            self.make()
            replace_file(self.config_file, text.encode("utf-8"), overwrite=False)
        except OSError:
            return  # a read-only home: the defaults hold, and a write will say what is wrong

    def _defaults(self) -> dict:
        # The config is UTF-8. What its bytes cannot name, it names from here: a relative path.
        inside = path_text(self.directory)
        if native_path(inside) != self.directory:
            inside = ""
        return {
            "db_file": os.path.join(inside, "tam.db3"),
            "current_project": None,
            "logfile_path": os.path.join(inside, "logs", "tam.log"),
            "logfile_pattern": os.path.join(inside, "logs", "tam.{}.log"),
            "theme": THEMES[0],
        }

    def _defaults_text(self) -> str:
        known = ((key, value) for key, value in self._defaults().items() if value is not None)
        return "".join(f"{key} = {toml_string(value)}\n" for key, value in known)

    def _settings(self, text: str) -> dict:
        try:
            found = _parse_toml(text)
        except ValueError as error:
            raise Startup(
                f"{self.shown_config} is no valid TOML ({error}): mend it, or move it away and tam"
                " makes a new one",
                config_file=self.shown_config,
            ) from None
        for key in CONFIG_KEYS:
            if not isinstance(found.get(key, ""), str):
                raise Startup(
                    f"{key} in {self.shown_config} must be a string, not {found[key]!r}",
                    config_file=self.shown_config, key=key,
                )
        self.unknown = [key for key in found if key not in CONFIG_KEYS]
        defaults = self._defaults()
        return {key: found.get(key) or defaults[key] for key in CONFIG_KEYS}


def need_file(path: str) -> None:
    """Raise OSError for a pipe, a device or the like: to open one may take for ever."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(errno.EINVAL, "it is no ordinary file", path)


def file_stamp(path: str) -> tuple | None:
    """Return what changes when a file is written or replaced; None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _account_home() -> str:
    """Return the home directory that the system knows for this process's user, else ""."""
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_dir
    except ImportError:  # not a Unix
        return os.path.expanduser("~")
    except KeyError:  # a user without an account, as in many containers
        return ""


def utf8_text(text: str) -> str:
    """Return an argument or a variable as the UTF-8 that its bytes are, whatever the locale."""
    try:
        return os.fsencode(text).decode("utf-8")
    except UnicodeError:
        return text


def path_text(path: str) -> str:
    """Return the path of a file as text to show or to save, the same in every locale."""
    return os.fsencode(path).decode("utf-8", "replace")


def native_path(text: str) -> str:
    """Return the path whose bytes are `text` in UTF-8, as this locale's calls want it."""
    return os.fsdecode(text.encode("utf-8", "surrogateescape"))


def _parse_toml(text: str) -> dict:
    """Return the document; ValueError where it is no TOML."""
    values: dict = {}
    for line in text.split("\n"):
        match = _PLAIN_LINE.fullmatch(line)
        key = match and match.group(1)
        if not match or key in values:
            import tomllib

            return tomllib.loads(text)
        if key:
            values[key] = match.group(2)
    return values


def _merged(values: dict, changes: dict) -> dict:
    merged = {**values, **changes}
    return {key: value for key, value in merged.items() if value is not None}


def _holds(text: str, wanted: dict) -> bool:
    try:
        return _parse_toml(text) == wanted
    except ValueError:
        return False


def _edit_toml(text: str, changes: dict) -> str:
    """Replace, add or drop top-level keys by line; the caller checks the result by parsing it."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    for key, value in changes.items():
        pattern = re.compile(rf'\s*["\']?{re.escape(key)}["\']?\s*=')
        # Below the first [table] a key is the table's; so a new one goes to the top.
        top = next((number for number, line in enumerate(lines) if _TABLE.match(line)), len(lines))
        places = [number for number in range(top) if pattern.match(lines[number])]
        new = f"{key} = {toml_string(value)}" if value is not None else None
        if places:
            old = lines[places[0]]
            lines[places[0]] = "" if new is None else new + _after_value(old)
        elif new is not None:
            lines.insert(0, new + "\n")
    return "".join(lines)


_TABLE = re.compile(r"\s*\[[^\[\]]+\]\s*(#|$)|\s*\[\[")


def _after_value(line: str) -> str:
    """Return what follows the value in a line that tam reads itself: a comment, the end."""
    found = _PLAIN_LINE.fullmatch(line.rstrip("\r\n"))
    return line[found.end(2) + 1:] if found and found[1] else "\n"


def toml_string(value: str) -> str:
    """Return a text as a basic string of TOML."""
    # JSON's escapes are a subset of TOML's basic strings, but for the raw DEL that TOML forbids.
    return on_one_line(json.dumps(value, ensure_ascii=False)).replace("\x7f", "\\u007f")


def replace_file(
    path: str, data: bytes, overwrite: bool = True, mode: int | None = None
) -> None:
    """Write `data` under a temporary name and rename it, so that no one ever reads half of it.

    An existing file keeps its permissions and a new one is its owner's only, unless `mode` says
    what they are. A symbolic link stays and its target is replaced. With `overwrite=False` an
    existing file is left alone. OSError, also where a device or a pipe would be replaced.
    """
    path = os.path.realpath(path)
    if overwrite:
        need_file(path)
    temporary = f"{path}.{os.urandom(8).hex()}.tmp"
    with Unbroken():
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode or 0o600)
        try:
            try:
                write_all(fd, data)
                if mode is None:
                    _copy_mode(path, fd)
                _sync(fd)
            finally:
                os.close(fd)
            _put_in_place(temporary, path, overwrite)
        except BaseException:
            os.unlink(temporary)
            raise


def _sync(fd: int) -> None:
    """Bring a file to the disk: on macOS fsync alone leaves it in the disk's own cache."""
    try:
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    except (AttributeError, OSError):  # not macOS, or a file system that does not know it
        os.fsync(fd)


def _copy_mode(path: str, fd: int) -> None:
    if os.path.exists(path) and hasattr(os, "fchmod"):
        os.fchmod(fd, os.stat(path).st_mode & 0o7777)


def _put_in_place(temporary: str, path: str, overwrite: bool) -> None:
    if overwrite:
        os.replace(temporary, path)
        return
    try:
        os.link(temporary, path)  # unlike a rename, a link never replaces what is there
    except FileExistsError:
        pass
    except OSError:  # a file system without hard links, or a system that forbids them
        if not os.path.exists(path):
            os.rename(temporary, path)
            return
    os.unlink(temporary)


class Unbroken:
    """A stretch of work that Ctrl-C and a polite kill end after, not within.

    For what would leave a temporary file behind. Without signal masks they end it as they come.
    """

    SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")

    def __enter__(self) -> None:
        if hasattr(signal, "pthread_sigmask"):
            numbers = [getattr(signal, name) for name in self.SIGNALS]
            self._before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)

    def __exit__(self, *exc_info: object) -> None:
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_SETMASK, self._before)


class FileLock:
    """An advisory lock on a file of its own, held by one of tam's processes at a time.

    Waits at most `timeout` seconds, then raises Busy. Without locks, or where no lock file can be
    made, it holds nothing: whoever writes then reports what is wrong.
    """

    def __init__(self, path: str, timeout: float = BUSY_TIMEOUT) -> None:
        self.path = path
        self.timeout = timeout
        self._fd = -1

    def __enter__(self) -> FileLock:
        until = time.monotonic() + self.timeout
        try:
            if fcntl is not None:
                self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return self
        while not self._taken():
            if time.monotonic() >= until:
                self.__exit__()
                raise busy_error(self.timeout)
            time.sleep(BUSY_LOOK)
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _taken(self) -> bool:
        try:
            if self._fd >= 0:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks
            return True
        return True


def busy_error(timeout: float) -> Busy:
    """Return the error for a writer that waited `timeout` seconds in vain."""
    return Busy(
        f"the database is busy: another writer held it for more than {timeout:g} s."
        " Nothing was changed; try again",
        busy_timeout_ms=round(timeout * 1000),
    )


def _append_log(path: str, pattern: str, text: str, limit: int) -> None:
    import logging.handlers  # only those pay for it who have something to report

    class PrivateLog(logging.handlers.RotatingFileHandler):
        def _open(self) -> object:
            return open(
                self.baseFilename, self.mode, encoding="utf-8", errors="backslashreplace",
                opener=lambda name, flags: os.open(name, flags, 0o600),
            )

        def handleError(self, record: object) -> None:
            return  # a full disk must not print a traceback; the work goes on

    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    need_file(path)
    handler = PrivateLog(path, maxBytes=limit, backupCount=LOG_FILES)
    if "{}" in pattern:
        handler.namer = lambda name: pattern.replace("{}", name.rsplit(".", 1)[1])
    try:
        safe = "\n".join(map(printable, text.split("\n")))
        record = logging.makeLogRecord({"msg": safe, "levelname": "INFO", "process": os.getpid()})
        handler.setFormatter(logging.Formatter("%(asctime)s [%(process)d] %(message)s"))
        handler.emit(record)
    finally:
        handler.close()


# ---- SQL and migrations --------------------------------------------------------------------------

USER_VERSION = 2
#: Marks a file that has tam's own indexes and counters beside what P 2 asks for: "tam", layout 1.
APPLICATION_ID = 0x74616D01

#: Conditions that the partial indexes below share with the queries; the texts must be the same.
LIVE = "IFNULL(is_deleted, 0) = 0"
OPEN = "status <> 2"
CREATED = "IFNULL(created, '')"
FREE = "assigned_agent IS NULL"
HELD = "assigned_agent IS NOT NULL"
ENDS = "IFNULL(lease_expires_at, 0)"
#: The priority: one of LEVELS, also where another program wrote one that is out of range.
LEVEL = "CAST(min(max(priority, 1), 5) AS INTEGER)"
LEVELS = range(1, 6)
#: How the indexes for the filters end: a stretch with one status and one level is in the order of
#: the list. So two indexes serve every set of filters: what is not asked for, all its values are.
STRETCH = f"status, {LEVEL}, {CREATED}, id"
#: Ranges of characters that a search takes as they are, but for the case of ASCII, and that compose
#: with none of these: in a text of no others SQLite's LIKE finds what a comparison by `fold` does.
PLAIN = (
    "\t-~\xa1-\xb4\xb6-\xbf\xe0-\xff\u0430-\u045f\u2010-\u2027\u2190-\u22ff\u2500-\u27bf"
    "\u3001-\u3029\u3030-\u3098\u309b-\u9fff\uac00-\ud7a3\ufe0f-\ufe0f\uff01-\uff20"
    "\uff5b-\uff9d\U0001f300-\U0001faff\U00020000-\U0002f7ff"
)
ODD = "({0})".format(" OR ".join(
    f"typeof({text}) = 'blob' OR length({text}) <> length(CAST({text} AS BLOB))"
    f" AND ({text} GLOB '*[^{PLAIN}]*' OR instr({text}, char(0)) > 0)"
    for text in ("title", "content")
))

#: What tam 1.0.13 has on disk (contract, data model).
BASE_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS project (
  id INTEGER PRIMARY KEY AUTOINCREMENT, name CHAR(255) NOT NULL UNIQUE,
  created DATETIME DEFAULT CURRENT_TIMESTAMP, updated DATETIME DEFAULT CURRENT_TIMESTAMP,
  is_deleted BOOLEAN DEFAULT 0)""",
    """CREATE TRIGGER IF NOT EXISTS project_update_timestamp AFTER UPDATE ON project FOR EACH ROW
  BEGIN UPDATE project SET updated = CURRENT_TIMESTAMP WHERE id = NEW.id; END""",
    """CREATE TABLE IF NOT EXISTS task (
  id INTEGER PRIMARY KEY AUTOINCREMENT, title TEXT NOT NULL, content TEXT DEFAULT '',
  created DATETIME DEFAULT CURRENT_TIMESTAMP, updated DATETIME DEFAULT CURRENT_TIMESTAMP,
  status INTEGER NOT NULL DEFAULT '0' CHECK (status IN ('0', '1', '2')),
  project_id INTEGER NOT NULL, is_deleted BOOLEAN DEFAULT 0,
  FOREIGN KEY (project_id) REFERENCES project(id))""",
    """CREATE TRIGGER IF NOT EXISTS task_update_timestamp AFTER UPDATE ON task FOR EACH ROW
  BEGIN UPDATE task SET updated = CURRENT_TIMESTAMP WHERE id = NEW.id; END""",
)
#: Columns without which a table is not tam's at all.
BASE_COLUMNS = {
    "project": {"id", "name", "created", "updated", "is_deleted"},
    "task": {"id", "title", "content", "created", "updated", "status", "project_id", "is_deleted"},
}
#: v0 to v1, first half: columns that are added where they are missing (P 2).
V1_COLUMNS = {
    "priority": "INTEGER NOT NULL DEFAULT 3",
    "tags": "TEXT NOT NULL DEFAULT ''",
    "assigned_agent": "TEXT",
    "lease_expires_at": "INTEGER",
    "revision": "INTEGER NOT NULL DEFAULT 1",
    "idempotency_key": "TEXT",
}
KEYED = "idempotency_key IS NOT NULL AND idempotency_key <> ''"
V1_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS task_events (
  id INTEGER PRIMARY KEY AUTOINCREMENT, task_id INTEGER NOT NULL, project_id INTEGER NOT NULL,
  event TEXT NOT NULL, actor TEXT NOT NULL DEFAULT '', from_status INTEGER, to_status INTEGER,
  metadata TEXT NOT NULL DEFAULT '{}', created DATETIME DEFAULT CURRENT_TIMESTAMP)""",
    "CREATE INDEX IF NOT EXISTS idx_task_project_status ON task(project_id, status, is_deleted)",
    "CREATE INDEX IF NOT EXISTS idx_task_assignee ON task(assigned_agent)",
)
V2_SCHEMA = (
    "DROP INDEX IF EXISTS idx_task_idempotency",
    f"""CREATE UNIQUE INDEX idx_task_idempotency ON task(project_id, idempotency_key)
  WHERE {KEYED} AND is_deleted = 0""",
)
#: The tasks as `task list` asks for them. task_tag has the same columns, for each tag of a task.
LISTED = (
    f"(SELECT id AS task_id, project_id AS project, status AS state, {LEVEL} AS level,"
    f" assigned_agent AS agent, {CREATED} AS made FROM task WHERE {LIVE})"
)
#: Splits the tags of the tasks that fit a condition. A recursive query, because what stands in a
#: trigger must be known to the SQLite of every program that writes to the file.
ADD_TAGS = f"""INSERT INTO task_tag WITH RECURSIVE cut(task_id, tag, rest) AS (
      SELECT id, '', tags || ',' FROM task WHERE %s UNION ALL
      SELECT task_id, trim(substr(rest, 1, instr(rest, ',') - 1)),
        substr(rest, instr(rest, ',') + 1) FROM cut WHERE rest <> '')
    SELECT DISTINCT tag, listed.* FROM cut JOIN {LISTED} AS listed USING (task_id)
    WHERE tag <> ''"""
#: What measured queries need beyond P 2: they stay as fast with a million tasks as with a thousand.
#: Counters and tags are kept by triggers, so that 1.0.13's writes count too.
LAYOUT_SCHEMA = (
    f"CREATE INDEX IF NOT EXISTS idx_task_free ON task(project_id, priority, {CREATED}, id)"
    f" WHERE {LIVE} AND {OPEN} AND {FREE}",
    f"CREATE INDEX IF NOT EXISTS idx_task_held ON task(project_id, {ENDS})"
    f" WHERE {LIVE} AND {OPEN} AND {HELD}",
    f"CREATE INDEX IF NOT EXISTS idx_task_list ON task(project_id, {CREATED}, id) WHERE {LIVE}",
    "DROP INDEX IF EXISTS idx_task_status",
    f"CREATE INDEX IF NOT EXISTS idx_task_level ON task(project_id, {STRETCH}) WHERE {LIVE}",
    f"CREATE INDEX IF NOT EXISTS idx_task_agent ON task(project_id, assigned_agent, {STRETCH})"
    f" WHERE {LIVE}",
    f"CREATE INDEX IF NOT EXISTS idx_task_odd ON task(project_id) WHERE {LIVE} AND {ODD}",
    "CREATE INDEX IF NOT EXISTS idx_events_task ON task_events(task_id, id)",
    "CREATE INDEX IF NOT EXISTS idx_events_project ON task_events(project_id, id)",
    """CREATE TABLE IF NOT EXISTS task_count (
  project_id INTEGER NOT NULL, status INTEGER NOT NULL, n INTEGER NOT NULL,
  PRIMARY KEY (project_id, status)) WITHOUT ROWID""",
    """CREATE TRIGGER IF NOT EXISTS task_count_insert AFTER INSERT ON task
  WHEN IFNULL(NEW.is_deleted, 0) = 0 BEGIN
    INSERT INTO task_count VALUES (NEW.project_id, NEW.status, 1)
      ON CONFLICT (project_id, status) DO UPDATE SET n = n + 1; END""",
    """CREATE TRIGGER IF NOT EXISTS task_count_delete AFTER DELETE ON task
  WHEN IFNULL(OLD.is_deleted, 0) = 0 BEGIN
    UPDATE task_count SET n = n - 1
      WHERE project_id = OLD.project_id AND status = OLD.status; END""",
    """CREATE TRIGGER IF NOT EXISTS task_count_update
  AFTER UPDATE OF project_id, status, is_deleted ON task BEGIN
    UPDATE task_count SET n = n - 1 WHERE IFNULL(OLD.is_deleted, 0) = 0
      AND project_id = OLD.project_id AND status = OLD.status;
    INSERT INTO task_count SELECT NEW.project_id, NEW.status, 1 WHERE IFNULL(NEW.is_deleted, 0) = 0
      ON CONFLICT (project_id, status) DO UPDATE SET n = n + 1; END""",
    """CREATE TABLE IF NOT EXISTS task_tag (
  tag TEXT, task_id INTEGER, project INTEGER, state INTEGER, level INTEGER, agent TEXT, made TEXT,
  PRIMARY KEY (task_id, tag)) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS idx_tag_level"
    " ON task_tag(project, tag, state, level, made, task_id)",
    "CREATE INDEX IF NOT EXISTS idx_tag_agent"
    " ON task_tag(project, tag, agent, state, level, made, task_id)",
    f"""CREATE TRIGGER IF NOT EXISTS task_tag_insert AFTER INSERT ON task WHEN NEW.tags <> '' BEGIN
    {ADD_TAGS % "id = NEW.id"}; END""",
    """CREATE TRIGGER IF NOT EXISTS task_tag_delete AFTER DELETE ON task WHEN OLD.tags <> '' BEGIN
    DELETE FROM task_tag WHERE task_id = OLD.id; END""",
    """CREATE TRIGGER IF NOT EXISTS task_tag_claim AFTER UPDATE OF status, assigned_agent ON task
  WHEN NEW.tags <> '' BEGIN
    UPDATE task_tag SET state = NEW.status, agent = NEW.assigned_agent WHERE task_id = NEW.id; END""",
    f"""CREATE TRIGGER IF NOT EXISTS task_tag_update
  AFTER UPDATE OF id, project_id, priority, tags, created, is_deleted ON task
  WHEN OLD.tags <> '' OR NEW.tags <> '' BEGIN
    DELETE FROM task_tag WHERE task_id = OLD.id;
    {ADD_TAGS % "id = NEW.id"}; END""",
    "DELETE FROM task_count",
    f"INSERT INTO task_count SELECT project_id, status, count(*) FROM task WHERE {LIVE}"
    " GROUP BY project_id, status",
    "DELETE FROM task_tag",
    ADD_TAGS % "tags <> ''",
    f"PRAGMA application_id = {APPLICATION_ID}",
)
#: How each column of the board is ordered, by its status: as `next` gives them, by the end of the
#: lease, and the last finished first. The first is the order of idx_task_level.
COLUMN_ORDERS = (
    f"{LEVEL}, {CREATED}, id",
    f"IFNULL(lease_expires_at, {INT64_MAX}), id",
    "IFNULL(updated, '') DESC, id DESC",
)
COLUMN_SCHEMA = tuple(
    f"CREATE INDEX IF NOT EXISTS idx_task_column_{status} ON task(project_id,"
    f" {COLUMN_ORDERS[status]}) WHERE {LIVE} AND status = {status}"
    for status in (1, 2)
)

TASK_COLUMNS = (
    "id, project_id, title, content, status, priority, tags, assigned_agent, lease_expires_at,"
    " revision, created, updated"
)
EVENT_COLUMNS = "id, task_id, event, actor, from_status, to_status, metadata, created"
GET_PROJECT = f"SELECT id, name, created, updated FROM project WHERE name = ? AND {LIVE}"
ANY_PROJECT = f"SELECT id, name, created, updated, NOT ({LIVE}) AS gone FROM project WHERE name = ?"
PROJECT_BY_ID = "SELECT id, name, created, updated FROM project WHERE id = ?"
LIVE_PROJECT_BY_ID = f"{PROJECT_BY_ID} AND {LIVE}"
LIST_PROJECTS = (
    f"SELECT id, name, created, updated FROM project WHERE {LIVE} AND id > :after ORDER BY id"
)
ADD_PROJECT = "INSERT INTO project (name, created, updated) VALUES (?, ?, ?)"
RESTORE_PROJECT = "UPDATE project SET is_deleted = 0 WHERE id = ?"
DELETE_PROJECT = "UPDATE project SET is_deleted = 1 WHERE id = ?"
RENAME_PROJECT = "UPDATE project SET name = ? WHERE id = ?"

GET_TASK = (
    f"SELECT {TASK_COLUMNS}, (SELECT name FROM project WHERE id = task.project_id AND {LIVE})"
    f" AS project FROM task WHERE id = ? AND {LIVE}"
)
KEYED_TASK = (
    f"SELECT id FROM task WHERE project_id = ? AND idempotency_key = ? AND {KEYED}"
    " AND is_deleted = 0"
)
ADD_TASK = (
    "INSERT INTO task (title, content, project_id, priority, tags, idempotency_key, created,"
    " updated) VALUES (:title, :content, :project_id, :priority, :tags, :idempotency_key, :created,"
    " :created)"
)
ADD_EVENT = (
    "INSERT INTO task_events (task_id, project_id, event, actor, from_status, to_status, metadata,"
    " created) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
#: Who last changed a field of a task: an update tells which fields, another event is the change.
AUTHOR = """SELECT actor FROM task_events WHERE task_id = :task AND (
  instr(metadata, '"' || :field || '"') OR :field = event
  OR :field = 'status' AND from_status <> to_status
  OR :field = 'holder' AND event IN ('claimed', 'heartbeat')) ORDER BY id DESC LIMIT 1"""
_BY_URGENCY = f"ORDER BY priority, {CREATED}, id LIMIT :limit"
_CANDIDATES = (
    f"SELECT {TASK_COLUMNS} FROM task WHERE project_id = :project AND {LIVE} AND {OPEN}"
)
#: The free ones and those whose lease has run out at :now, each from an index of its own: so the
#: tasks that others hold cost nothing, however many they are.
NEXT_TASKS = (
    f"SELECT * FROM (SELECT * FROM ({_CANDIDATES} AND {FREE} {_BY_URGENCY}) UNION ALL"
    f" SELECT * FROM ({_CANDIDATES} AND {HELD} AND {ENDS} <= :now {_BY_URGENCY})) {_BY_URGENCY}"
)
LEASED_FROM = f"FROM task WHERE project_id = :project AND {LIVE} AND {OPEN} AND {HELD}"
COUNT_LEASED = (
    f"SELECT (SELECT count(*) {LEASED_FROM} AND {ENDS} > :now),"
    f" (SELECT count(*) {LEASED_FROM} AND {ENDS} <= :now)"
)
LEASED_TASKS = (
    f"SELECT {TASK_COLUMNS} {LEASED_FROM} AND {ENDS} > :now ORDER BY {ENDS}, id LIMIT :limit"
)
NEXT_EXPIRY = f"SELECT min({ENDS}) {LEASED_FROM} AND {ENDS} > :now"
COUNTS = "SELECT status, n FROM task_count WHERE project_id = ?"
LAST_EVENT = "SELECT IFNULL(max(id), 0) FROM task_events WHERE project_id = ?"
#: Also whether the file has what came into the layout last. A new number would not do for that: a
#: tam that does not know it would set it back, and two in turn would each make the layout anew.
VERSIONS = (
    "SELECT user_version, application_id, EXISTS (SELECT * FROM sqlite_master WHERE name ="
    " 'idx_task_column_2') FROM pragma_user_version, pragma_application_id"
)
HAS_TABLES = "SELECT count(*) FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"


# ---- store ---------------------------------------------------------------------------------------


class Store:
    """One database file, used by one thread: its connections, transactions and migrations.

    `path` is the file, `busy_timeout` how many seconds a writer waits for others. Connections are
    opened when they are first needed. sqlite3.Error leaves it unconverted; `Tam.call` is the one
    place that meets it. Startup is raised for a file that cannot be opened or used.
    """

    def __init__(self, path: str, busy_timeout: float = BUSY_TIMEOUT) -> None:
        self.path = path
        self.busy_timeout = busy_timeout
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._look: object = _identity  # what must stay the same for the connections to be used,
        self._opened: tuple | None = None  # and what it was when they were opened
        self._changes = 0
        self._seen: tuple = ()

    def reading(self) -> _Reading:
        """Return a context manager: a connection that sees one moment and can change nothing."""
        self._forget_replaced()
        if self._writer is not None:
            return _Reading(self._writer)
        if self._reader is None:
            before = _contents(self.path)
            self._reader, in_place = _open_reader(self)
            self._look = _identity if in_place else _contents
            self._opened = before and before[0][:2] if in_place else before
        return _Reading(self._reader)

    def writing(self) -> _Writing:
        """Return a context manager: one transaction under the write lock, all or nothing."""
        self._forget_replaced()
        if self._writer is None:
            before = _identity(self.path)
            self._writer = self.open_writer()
            self._look, self._opened = _identity, before or _identity(self.path)
        return _Writing(self._writer, self.busy_timeout)

    def glance(self) -> tuple | None:
        """Return what differs after any process has committed, for the price of three stats.

        Two commits within one tick of the file system's clock can look alike, so `data_version`
        is to be asked as well, now and then.
        """
        return _contents(self.path)

    def data_version(self) -> int:
        """Return a number that changes when another connection has committed."""
        with self.reading() as db:
            # SQLite's number means something for one connection only.
            number = db.execute("PRAGMA data_version").fetchone()[0]
        seen = self._opened, db is self._writer, number
        self._changes += seen != self._seen
        self._seen = seen
        return self._changes

    def open_writer(self) -> sqlite3.Connection:
        """Return a new connection to the file, made and migrated where it has to be."""
        try:
            if _size(self.path + "-wal") and os.path.exists(self.path):
                _refuse_unusable(self)
            return self._prepared_writer()
        except (OSError, sqlite3.Error) as error:
            if isinstance(error, sqlite3.Error) and is_busy(error):
                raise
            raise _cannot_open(self.path, error) from None

    def close(self) -> None:
        """Close what is open; the store can be used again afterwards."""
        for db in (self._reader, self._writer):
            if db is not None:
                db.close()
        self._reader = self._writer = self._opened = None

    def _prepared_writer(self) -> sqlite3.Connection:
        db = _connect(self.path, self.busy_timeout)
        try:
            db.execute("PRAGMA foreign_keys = ON")
            # SQLite's own default, but some builds take less for a WAL: an answered write stays.
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA fullfsync = ON")  # has a meaning on macOS only: see _sync
            if not is_current(db, self.path):
                migrate(db, self.path)
            _use_wal(db, self.path)
        except BaseException:
            db.close()
            raise
        return db

    def _forget_replaced(self) -> None:
        # A file that was moved away, restored or newly made since: writes to the old one are lost.
        if (self._reader or self._writer) and self._opened != self._look(self.path):
            try:
                if self._writer:  # else the WAL would be taken for that of the new file
                    self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            finally:
                self.close()


class _Reading:
    """A read transaction as a context manager."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db

    def __enter__(self) -> sqlite3.Connection:
        self.db.execute("BEGIN")
        return self.db

    def __exit__(self, *exc_info: object) -> None:
        if self.db.in_transaction:
            self.db.execute("ROLLBACK")


class _Writing:
    """A write transaction as a context manager: BEGIN IMMEDIATE, COMMIT or ROLLBACK."""

    def __init__(self, db: sqlite3.Connection, timeout: float) -> None:
        self.db = db
        self.timeout = timeout

    def __enter__(self) -> sqlite3.Connection:
        until = time.monotonic() + self.timeout
        self.db.execute("PRAGMA busy_timeout = 0")
        try:
            while not self._began(until):
                time.sleep(BUSY_LOOK)
        finally:
            self.db.execute(f"PRAGMA busy_timeout = {round(self.timeout * 1000)}")
        return self.db

    def _began(self, until: float) -> bool:
        try:
            self.db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() >= until:
                raise
            return False
        return True

    def __exit__(self, kind: object, *exc_info: object) -> None:
        try:
            if kind is None:
                self.db.execute("COMMIT")
        finally:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")


def is_busy(error: sqlite3.Error) -> bool:
    """Say whether `error` means that another connection holds a lock."""
    # PROTOCOL: so many took the WAL's locks at once that this one never had its turn.
    busy = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in busy


def _identity(path: str) -> tuple | None:
    stamp = file_stamp(path)
    return stamp and stamp[:2]


def _contents(path: str) -> tuple | None:
    stamp = file_stamp(path)
    return stamp and (stamp, file_stamp(path + "-wal"), file_stamp(path + "-journal"))


def _text(data: bytes) -> str:
    return str(data, "utf-8", "replace")  # 1.0.13's files may hold bytes that are no UTF-8


def _connect(path: str, timeout: float) -> sqlite3.Connection:
    os.makedirs(os.path.dirname(path) or ".", mode=0o700, exist_ok=True)
    if not os.path.exists(path):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # SQLite alone would make it 0644
    return _prepared(sqlite3.connect(path, **_connection_options(timeout)))


def _connection_options(timeout: float) -> dict:
    return {"timeout": timeout, "isolation_level": None, "check_same_thread": False}


def _prepared(db: sqlite3.Connection) -> sqlite3.Connection:
    db.text_factory = _text
    db.row_factory = sqlite3.Row
    return db


def _use_wal(db: sqlite3.Connection, path: str) -> None:
    mode = db.execute("PRAGMA journal_mode").fetchone()[0]
    if mode == "wal" or not _has_shared_memory(path):
        return
    try:
        db.execute("PRAGMA journal_mode = WAL")
    except sqlite3.OperationalError:
        # With a reader in the way the rollback journal gives the same guarantees, only with less
        # room for readers beside a writer; the next process tries again.
        db.execute("PRAGMA journal_mode").fetchone()


def _has_shared_memory(path: str) -> bool:
    # SQLite itself finds out only when the file has become one that nobody there can write.
    import mmap

    probe = f"{path}.{os.urandom(8).hex()}.tmp"
    try:
        fd = os.open(probe, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            write_all(fd, bytes(mmap.PAGESIZE))
            mmap.mmap(fd, mmap.PAGESIZE).close()
        finally:
            os.close(fd)
            os.unlink(probe)
    except OSError:
        return False
    return not os.path.isdir(path + "-shm")


def is_current(db: sqlite3.Connection, path: str) -> bool:
    """Say whether the file needs no migration; Startup for one of a newer tam."""
    version, layout, has_latest = db.execute(VERSIONS).fetchone()
    if version > USER_VERSION:
        path = path_text(path)
        raise Startup(
            f"{path} has schema version {version}; this tam ({VERSION}) knows versions up to"
            f" {USER_VERSION}. Use the newer tam that wrote it; nothing was changed",
            db_file=path, found_version=version, known_version=USER_VERSION,
        )
    return version == USER_VERSION and layout == APPLICATION_ID and has_latest == 1


def migrate(db: sqlite3.Connection, path: str) -> None:
    """Bring the file to USER_VERSION in one transaction, with a backup first (contract, migration).

    Safe to run in several processes at once and again after a crash. Startup when the file is not
    tam's or is damaged; it is then untouched.
    """
    _refuse_foreign(db, path)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.execute("BEGIN IMMEDIATE")
    try:
        if not is_current(db, path):  # another process may have done it while this one waited
            version = db.execute(VERSIONS).fetchone()[0]
            if version == 0 and db.execute(HAS_TABLES).fetchone()[0]:
                _backup(db, path + ".bak.v1")
            for statement in _migration(db, version):
                db.execute(statement)
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def _migration(db: sqlite3.Connection, version: int) -> list[str]:
    """Return the statements that are missing, in order; each version's steps can be repeated."""
    steps: list[str] = []
    if version < 1:
        steps += BASE_SCHEMA
        present = _columns(db, "task")
        steps += [
            f"ALTER TABLE task ADD COLUMN {name} {kind}"
            for name, kind in V1_COLUMNS.items() if name not in present
        ]
        steps += V1_SCHEMA
    if version < 2:
        steps += V2_SCHEMA
    return [*steps, f"PRAGMA user_version = {USER_VERSION}", *LAYOUT_SCHEMA, *COLUMN_SCHEMA]


def _columns(db: sqlite3.Connection, table: str) -> set[str]:
    return {row["name"] for row in db.execute(f"PRAGMA table_info({table})")}


def _refuse_unusable(store: Store) -> None:
    """Refuse by a look alone: an ordinary connection would move a WAL's frames when it closes."""
    db = _connect_uri(store.path, "mode=ro", store.busy_timeout)
    try:
        if not is_current(db, store.path):
            _refuse_foreign(db, store.path)
    finally:
        db.close()


def _refuse_foreign(db: sqlite3.Connection, path: str) -> None:
    path = path_text(path)
    if not db.execute(HAS_TABLES).fetchone()[0]:
        return
    for table, expected in BASE_COLUMNS.items():
        present = _columns(db, table)
        # A table that 1.0.13 had no time to make is made; one of another shape is not tam's.
        if present and not expected <= present or not present and not _columns(db, "project"):
            raise Startup(
                f"{path} is an SQLite file of another program: db_file in tam's config names it."
                " Nothing was changed",
                db_file=path,
            )
    verdict = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    if verdict != "ok":
        raise Startup(
            f"{path} is damaged ({verdict}): restore a copy, or recover it with `sqlite3"
            f" {path} .recover`. Nothing was changed",
            db_file=path,
        )


def _backup(db: sqlite3.Connection, target: str) -> None:
    """Write the file as it is before anything changes; an existing backup is never replaced."""
    if not os.path.exists(target):
        # Not a file copy: closing a second descriptor of the file would drop SQLite's locks.
        replace_file(target, db.serialize(), overwrite=False)


def _cannot_open(path: str, error: Exception) -> Startup:
    path = path_text(path)
    return Startup(f"cannot use the database {path}: {_in_words(error)}", db_file=path)


def _in_words(error: Exception) -> str:
    if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_IOERR:
        return f"{error} (the disk may be full)"  # SQLite's own words for that differ
    return getattr(error, "strerror", None) or str(error)  # the message names the file itself


# A reader must leave no trace: not in the file, not beside it, and also where it may not write.


def _open_reader(store: Store) -> tuple[sqlite3.Connection, bool]:
    """Return a connection, and whether it goes on seeing the file as it changes."""
    if _is_missing(store.path):
        return _in_memory(None), True
    try:
        return _open_in_place(store)
    except sqlite3.DatabaseError as error:
        if is_busy(error):
            raise
        if _lacks_permission(error) or _lacks_shared_memory(error):
            return _open_aside(store.path), False
        raise _cannot_open(store.path, error) from None


def _is_missing(path: str) -> bool:
    try:
        os.stat(path)
    except FileNotFoundError:
        return True
    except OSError as error:  # out of reach, which is not empty
        raise _cannot_open(path, error) from None
    return False


def _lacks_permission(error: sqlite3.Error) -> bool:
    primary = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return primary in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)


def _lacks_shared_memory(error: sqlite3.Error) -> bool:
    # A full disk has no room for it either, and reading must go on there.
    return getattr(error, "sqlite_errorcode", 0) in (
        sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMMAP,
        sqlite3.SQLITE_IOERR_SHMLOCK,
    )


def _open_in_place(store: Store) -> tuple[sqlite3.Connection, bool]:
    # Left-over frames in the WAL would be moved into the file when a writer closes, so then the
    # connection must be read-only; with no frames an ordinary one removes what it made beside.
    mode = "ro" if _size(store.path + "-wal") or not os.access(store.path, os.W_OK) else "rw"
    db = _connect_uri(store.path, f"mode={mode}", store.busy_timeout)
    try:
        if is_current(db, store.path):
            db.execute("PRAGMA query_only = ON")
            return db, True
    except BaseException:
        db.close()
        raise
    db.close()
    return _migrated_reader(store)


def _migrated_reader(store: Store) -> tuple[sqlite3.Connection, bool]:
    try:
        store.open_writer().close()
    except Startup:
        if os.access(store.path, os.W_OK) and os.access(os.path.dirname(store.path), os.W_OK):
            raise
        return _open_aside(store.path), False
    return _open_in_place(store)


def _open_aside(path: str) -> sqlite3.Connection:
    """Open a file whose directory may not be written: as immutable, or as a copy in memory."""
    if not os.access(path, os.R_OK) or os.path.isdir(path):
        raise _cannot_open(path, PermissionError("it is no file that this user may read"))
    unfinished = [suffix for suffix in ("-wal", "-journal") if _size(path + suffix)]
    if not unfinished:
        db = _connect_uri(path, "mode=ro&immutable=1", 0)
        if is_current(db, path):
            return db
        return _in_memory(db)
    import shutil
    import tempfile

    with Unbroken(), tempfile.TemporaryDirectory() as directory:
        copy = os.path.join(directory, "copy")
        for suffix in ("", *unfinished):
            shutil.copyfile(path + suffix, copy + suffix)
        return _in_memory(_prepared(sqlite3.connect(copy, **_connection_options(0))))


def _in_memory(source: sqlite3.Connection | None) -> sqlite3.Connection:
    db = _prepared(sqlite3.connect(":memory:", **_connection_options(0)))
    if source is not None:
        source.backup(db)
        source.close()
    if not is_current(db, "the database"):
        for statement in _migration(db, db.execute(VERSIONS).fetchone()[0]):
            db.execute(statement)
    return db


def _connect_uri(path: str, query: str, timeout: float) -> sqlite3.Connection:
    quoted = "".join(
        chr(byte) if chr(byte) in _URI_SAFE else f"%{byte:02x}" for byte in os.fsencode(path)
    )
    options = _connection_options(timeout)
    return _prepared(sqlite3.connect(f"file:{quoted}?{query}", uri=True, **options))


_URI_SAFE = frozenset("/abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


# ---- views ---------------------------------------------------------------------------------------

STATUSES = ("todo", "in-progress", "done")
TODO, IN_PROGRESS, DONE = range(3)


def status_name(value: object) -> str | None:
    """Return the word for a stored status; None where there is none."""
    return STATUSES[value] if value in (TODO, IN_PROGRESS, DONE) else None


def project_view(row: sqlite3.Row) -> dict:
    """Return the ProjectView of a project row (contract, data model)."""
    return {
        "id": row["id"],
        "name": row["name"],
        "created": _stored_time(row["created"]),
        "updated": _stored_time(row["updated"]),
    }


def task_view(row: sqlite3.Row, project: str, now: int) -> dict:
    """Return the TaskView of a row as it stands at `now`, Unix seconds (contract, data model)."""
    expires = row["lease_expires_at"]
    agent = row["assigned_agent"]
    return {
        "id": row["id"],
        "project_id": row["project_id"],
        "project": project,
        "title": _stored_text(row["title"]),
        "description": _stored_text(row["content"]),
        "status": status_name(row["status"]) or STATUSES[TODO],
        "priority": row["priority"],
        "tags": _stored_tags(row["tags"]),
        "assigned_agent": agent,
        "lease_expires_at": iso_time(expires),
        "lease_expired": agent is not None and isinstance(expires, int) and expires <= now,
        "revision": row["revision"],
        "created": _stored_time(row["created"]),
        "updated": _stored_time(row["updated"]),
    }


def seen_of(task: dict) -> dict:
    """Return what of a TaskView a person decides by: no times, which every heartbeat changes."""
    holder = None if task["lease_expired"] else task["assigned_agent"]
    return {name: task[name] for name in ("title", "description", "status")} | {"holder": holder}


def event_view(row: sqlite3.Row) -> dict:
    """Return the EventView of an event row (contract, data model)."""
    return {
        "id": row["id"],
        "task_id": row["task_id"],
        "event": row["event"],
        "actor": row["actor"],
        "from_status": status_name(row["from_status"]),
        "to_status": status_name(row["to_status"]),
        "metadata": _stored_object(row["metadata"]),
        "created": _stored_time(row["created"]),
    }


def _stored_text(value: object) -> str:
    if isinstance(value, bytes):
        return _text(value)
    return "" if value is None else str(value)


def _stored_tags(value: object) -> list[str]:
    return [tag for tag in (part.strip() for part in _stored_text(value).split(",")) if tag]


def _stored_time(value: object) -> str | None:
    if value is None:
        return None
    text = _stored_text(value)
    return f"{text[:10]}T{text[11:]}Z" if len(text) == 19 and text[10] == " " else text


def _stored_object(value: object) -> dict:
    try:
        found = json.loads(_stored_text(value))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def stored_time(seconds: int) -> str:
    """Return Unix `seconds` as the database writes times: UTC, `YYYY-MM-DD HH:MM:SS`."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))


# ---- operations ----------------------------------------------------------------------------------
# Each takes a Work and the checked arguments, and returns the envelope's `data`.


class Work:
    """What one operation works with: one transaction, one moment, one caller.

    `db` is the connection inside its transaction, `now` the moment in whole Unix seconds, taken
    once; `agent` the caller's id or None for a person; `project` the row of the project in scope,
    or None; `expected` what the caller's person saw (see `Tam.call`); `home` where the settings
    are; `config_changes` which of them to save with the transaction.
    """

    def __init__(self, db: sqlite3.Connection | None, now: int, agent: str | None) -> None:
        self.db = db
        self.now = now
        self.agent = agent
        self.project: sqlite3.Row | None = None
        self.expected: dict | None = None
        self.home: Home | None = None
        self.config_changes: dict = {}

    @property
    def actor(self) -> str:
        """Who goes into the event log."""
        return HUMAN if self.agent is None else self.agent

    def need_agent(self, otherwise: str = "") -> str:
        """Return the caller's agent id, or raise MissingAgent, which says what else there is."""
        if self.agent is None:
            raise MissingAgent(
                "an agent id is needed: give --agent ID (argument `agent`), or set TAM_AGENT"
                + otherwise
            )
        return self.agent

    def view(self, task_id: int) -> dict:
        """Return the TaskView of a task of this transaction, read anew."""
        return self.view_of(self.row(task_id))

    def view_of(self, row: sqlite3.Row) -> dict:
        """Return the TaskView of a row that `row` gave."""
        return task_view(row, row["project"], self.now)

    def row(self, task_id: int) -> sqlite3.Row:
        """Return the row of a live task in scope; NotFound otherwise (P 4.3)."""
        row = None
        if 0 < task_id <= INT64_MAX:
            row = self.db.execute(GET_TASK, (task_id,)).fetchone()
        if row is None or row["project"] is None:
            what = "not found"
            if self.expected is not None:
                what = f"was deleted meanwhile by {self._author(task_id, 'deleted')}"
            raise NotFound(f"task {task_id} {what}", task_id=task_id)
        if self.project is not None and row["project_id"] != self.project["id"]:
            name = self.project["name"]
            raise NotFound(
                f"task {task_id} not found in project {name}", task_id=task_id, project=name
            )
        self._compare(seen_of(self.view_of(row)), task_id)
        return row

    def named(self, name: str) -> sqlite3.Row:
        """Return the row of a live project: the one of the name, or the one that was seen."""
        if self.expected is None:
            return find_project(self.db, name)
        seen = self.db.execute(LIVE_PROJECT_BY_ID, (self.expected["id"],)).fetchone()
        row = self.project = seen or find_project(self.db, name)
        leases = _leases(self)[1]
        self._compare({**project_view(row), "tasks": sum(_counts(self)), "leases": leases}, None)
        return row

    def _compare(self, now: dict, task_id: int | None) -> None:
        """Raise Conflict where a row is no longer what the caller's person saw.

        Only for the first row: whatever differs in the next, this call has changed itself.
        """
        seen, self.expected = self.expected or {}, None
        changed = {name: now[name] for name in seen if now[name] not in (seen[name], None)}
        if not changed:
            return
        told: dict[str, list] = {}
        for name, value in changed.items():
            clauses = told.setdefault(self._author(task_id, name), [])
            clauses.append(f"the {name} to '{str(value)[:60]}'")
        sentence = ", ".join(f"{who} changed {' and '.join(what)}" for who, what in told.items())
        raise Conflict(f"{sentence} meanwhile", task_id=task_id, changed=changed, by=[*told][0])

    def _author(self, task_id: int | None, field: str) -> str:
        row = self.db.execute(AUTHOR, {"task": task_id, "field": field}).fetchone()
        return "somebody" if row is None else row["actor"]  # tam 1.0.13 writes no events

    def add_event(self, before: tuple, event: str, to_status: int | None, metadata: dict) -> int:
        """Append to the log what happened to `before` = (task id, project id, status)."""
        task_id, project_id, from_status = before
        cursor = self.db.execute(ADD_EVENT, (
            task_id, project_id, event, self.actor, from_status, to_status,
            json.dumps(metadata, ensure_ascii=False), stored_time(self.now),
        ))
        return cursor.lastrowid

    def write(
        self, row: sqlite3.Row, event: str, changes: dict, metadata: dict | None = None
    ) -> dict:
        """Set columns of a task, count its revision up, log the event; return the new view."""
        columns = "".join(f"{name} = ?, " for name in changes)
        self.db.execute(
            f"UPDATE task SET {columns}revision = revision + 1 WHERE id = ?",
            (*changes.values(), row["id"]),
        )
        before = (row["id"], row["project_id"], row["status"])
        self.add_event(before, event, changes.get("status", row["status"]), metadata or {})
        return self.view(row["id"]) if not changes.get("is_deleted") else self._last_view(row)

    def _last_view(self, row: sqlite3.Row) -> dict:
        return {**self.view_of(row), "revision": row["revision"] + 1, "updated": iso_time(self.now)}


HUMAN = "human"
NO_LEASE = {"assigned_agent": None, "lease_expires_at": None}


def holds(row: sqlite3.Row, now: int) -> bool:
    """Say whether anybody holds a valid lease on the task at `now`."""
    return row["assigned_agent"] is not None and (row["lease_expires_at"] or 0) > now


def _leased_error(row: sqlite3.Row, what_next: str) -> Conflict:
    until = iso_time(row["lease_expires_at"])
    return Conflict(
        f"task {row['id']} is leased by {row['assigned_agent']} until {until}. {what_next}",
        task_id=row["id"], assigned_agent=row["assigned_agent"], lease_expires_at=until,
    )


def _guard(work: Work, row: sqlite3.Row, args: dict) -> None:
    """Refuse a write against another agent's valid lease or another revision (P 4.2)."""
    expected = args.get("if_revision")
    if expected is not None and expected != row["revision"]:
        raise Conflict(
            f"task {row['id']} is at revision {row['revision']}, not {expected}."
            " Read it again and decide anew",
            task_id=row["id"], expected=expected, actual=row["revision"],
        )
    if work.agent is not None and holds(row, work.now) and row["assigned_agent"] != work.agent:
        raise _leased_error(row, "Work on another task, or wait until the lease ends")


def config_show(work: Work, args: dict) -> dict:
    """The settings, and where they and the files are."""
    home = work.home
    settings = home.config
    unknown = {key: nearest(key, CONFIG_KEYS) for key in home.unknown}
    return {
        **settings, "config_file": home.shown_config, "home": path_text(home.directory),
        **({"unknown": unknown} if unknown else {}),
    }


def status(work: Work, args: dict) -> dict:
    """Counts of live tasks, valid leases, open tasks without an agent, the first candidates."""
    counts = _counts(work)
    assigned, leased = _leases(work)
    return {
        "project": work.project["name"],
        "counts": {name.replace("-", "_"): counts[number] for number, name in enumerate(STATUSES)},
        "leased": leased,
        "unassigned": counts[TODO] + counts[IN_PROGRESS] - assigned,
        "next": _candidates(work, STATUS_NEXT),
    }


#: How many candidates `status` shows (contract, operations).
STATUS_NEXT = 5


def _counts(work: Work) -> list[int]:
    found = dict(work.db.execute(COUNTS, (work.project["id"],)).fetchall())
    return [found.get(number, 0) for number in range(len(STATUSES))]


def _leases(work: Work) -> tuple[int, int]:
    """Return how many open tasks name an agent, and how many of these leases are valid."""
    valid, expired = work.db.execute(COUNT_LEASED, _scope(work)).fetchone()
    return valid + expired, valid


def _scope(work: Work, **more: object) -> dict:
    return {"project": work.project["id"], "now": work.now, **more}


def _views(work: Work, sql: str, parameters: dict) -> list[dict]:
    name = work.project["name"]
    return [task_view(row, name, work.now) for row in work.db.execute(sql, parameters)]


def _candidates(work: Work, limit: int) -> list[dict]:
    return _views(work, NEXT_TASKS, _scope(work, limit=limit))


# -- projects --


def project_list(work: Work, args: dict) -> list[dict]:
    """All live projects, or those after the cursor, oldest first."""
    after = {"after": bounded(args.get("cursor") or 0)}
    return [project_view(row) for row in work.db.execute(LIST_PROJECTS, after)]


def project_current(work: Work, args: dict) -> dict:
    """The project in scope, or null."""
    return {"project": project_view(work.project) if work.project else None}


def project_add(work: Work, args: dict) -> dict:
    """A new project, or a deleted one restored with its tasks; Conflict for a live name."""
    name = args["name"]
    row = work.db.execute(ANY_PROJECT, (name,)).fetchone()
    if row is not None and not row["gone"]:
        raise Conflict(f"project {name} already exists", project=name)
    if row is not None:
        work.db.execute(RESTORE_PROJECT, (row["id"],))
    else:
        created = stored_time(work.now)
        work.db.execute(ADD_PROJECT, (name, created, created))
    return {"project": project_view(find_project(work.db, name)), "restored": row is not None}


def find_project(db: sqlite3.Connection, name: str) -> sqlite3.Row:
    """Return the row of a live project; NotFound with its name otherwise."""
    row = db.execute(GET_PROJECT, (name,)).fetchone()
    if row is None:
        names = [live["name"] for live in db.execute(LIST_PROJECTS, {"after": 0})]
        near = nearest(name, names)
        what_next = did_you_mean(near) or ". List the projects to see what there is"
        raise NotFound(f"project {name} not found{what_next}", project=name, **suggestion(near))
    return row


def project_use(work: Work, args: dict) -> dict:
    """Make it the config's current project."""
    row = work.named(args["name"])
    work.config_changes["current_project"] = row["name"]
    return {"project": project_view(row)}


def project_del(work: Work, args: dict) -> dict:
    """Soft-delete it, and clear it from the config; its tasks come back with it."""
    row = work.named(args["name"])
    work.db.execute(DELETE_PROJECT, (row["id"],))
    if work.home.config["current_project"] == row["name"]:
        work.config_changes["current_project"] = None
    return {"project": project_view(work.db.execute(PROJECT_BY_ID, (row["id"],)).fetchone())}


def project_edit(work: Work, args: dict) -> dict:
    """Rename it, in the config too; Conflict for any name that is taken, deleted ones included."""
    row, new_name = work.named(args["name"]), args["new_name"]
    if new_name == row["name"]:
        return {"project": project_view(row)}
    taken = work.db.execute(ANY_PROJECT, (new_name,)).fetchone()
    if taken is not None:
        deleted = " (deleted; `tam project add` restores it)" if taken["gone"] else ""
        raise Conflict(f"project {new_name} already exists{deleted}", project=new_name)
    work.db.execute(RENAME_PROJECT, (new_name, row["id"]))
    if work.home.config["current_project"] == row["name"]:
        work.config_changes["current_project"] = new_name
    return {"project": project_view(find_project(work.db, new_name))}


# -- reading tasks --


def task_list(work: Work, args: dict) -> dict:
    """One page of the matching tasks, newest first, with the total of all pages."""
    limit = clamp_limit(args["limit"])
    stretches, parameters = _stretches(work, args)
    page, page_parameters = _after(work, args.get("cursor"))
    total = _counted(work, args)
    if total is None:
        stretches, total = _sounded(work, stretches, parameters)
    parameters |= page_parameters | {"limit": limit + 1}
    tasks = _newest(work, stretches, page, parameters)
    more = len(tasks) > limit
    del tasks[limit:]
    return {
        "tasks": tasks,
        "count": len(tasks),
        **total,
        "limit": limit,
        "truncated": more,
        "next_cursor": tasks[-1]["id"] if more else None,
    }


def bounded(number: int) -> int:
    """Return an asked id or place as one that SQLite can compare."""
    return min(max(number, 0), INT64_MAX)


def bounded_total(found: int) -> dict:
    """Return what a list says of how much there is, of up to TOTAL_MAX + 1 that were found."""
    return {"total": min(found, TOTAL_MAX), "total_is_exact": found <= TOTAL_MAX}


def _counted(work: Work, args: dict) -> dict | None:
    """Return the total that the counters know: without a filter, or of a status alone."""
    if any(args.get(name) for name in ("priority", "assigned", "tag", "search")):
        return None
    counts = _counts(work)
    wanted = args.get("status")
    total = sum(counts) if wanted is None else counts[STATUSES.index(wanted)]
    return {"total": total, "total_is_exact": True}


def _sounded(work: Work, stretches: list[str], parameters: dict) -> tuple[list[str], dict]:
    """Read as far as a total needs; return what is left to be read for a page, and the total.

    The ids that were found stand for the stretches that were read to their end.
    """
    known, room = ["NULL"], TOTAL_MAX + 1  # with nothing in its place SQLite would plan a scan
    while stretches and room:
        # Oldest first: so the rows stand in the file.
        sql = f"SELECT task_id {stretches[0]} ORDER BY made, task_id LIMIT {room}"
        ids = [row["task_id"] for row in work.db.execute(sql, parameters)]
        room -= len(ids)
        if room:
            known += ids
            del stretches[0]
    among = f"FROM {LISTED} WHERE task_id IN ({', '.join(map(str, known))})"
    return [*stretches, among], bounded_total(TOTAL_MAX + 1 - room)


def _newest(work: Work, stretches: list[str], page: str, parameters: dict) -> list[dict]:
    """Return the newest :limit tasks of a page; SQLite merges the stretches, and stops there."""
    merged = " UNION ALL ".join(f"SELECT made, task_id {stretch}{page}" for stretch in stretches)
    newest = f"SELECT task_id FROM ({merged} ORDER BY made DESC, task_id DESC LIMIT :limit)"
    order = f"ORDER BY {CREATED} DESC, id DESC"
    sql = f"SELECT {TASK_COLUMNS} FROM task WHERE id IN ({newest}) {order}"
    return _views(work, sql, parameters)


def clamp_limit(limit: int) -> int:
    """Return an asked limit within 1..LIMIT_MAX (P 4.1: clamped, no error)."""
    return min(max(limit, 1), LIMIT_MAX)


def _stretches(work: Work, args: dict) -> tuple[list[str], dict]:
    """Return what `task list` asks for as FROM and WHERE, and the parameters.

    Each is one stretch of an index, in the order of the list; no task is in two.
    """
    source, where, parameters = LISTED, ["project = :project"], _scope(work)
    for number, tag in enumerate(args.get("tag") or ()):
        where.append(f"{OTHER_TAG}:tag{number})" if number else "tag = :tag0")
        source, parameters[f"tag{number}"] = "task_tag", tag
    if args.get("assigned") == UNASSIGNED:
        where.append("agent IS NULL")
    elif args.get("assigned") is not None:
        where.append("agent = :agent")
        parameters["agent"] = work.need_agent() if args["assigned"] == ME else args["assigned"]
    if args.get("search"):
        source += " CROSS JOIN task ON id = task_id"
        has_text, parameters["text"] = _search(work, args["search"])
        where.append(has_text)
    every = f"FROM {source} WHERE {' AND '.join(where)}"
    if not any(args.get(name) for name in ("status", "priority", "assigned", "tag")):
        return [every], parameters
    return [
        f"{every} AND state = {number} AND level = {level}"
        for number, name in enumerate(STATUSES) if args.get("status") in (None, name)
        for level in LEVELS if args.get("priority") in (None, level)
    ], parameters


ME, UNASSIGNED = "me", "unassigned"
OTHER_TAG = "EXISTS (SELECT 1 FROM task_tag AS t WHERE t.task_id = task_tag.task_id AND t.tag = "
#: SQLite looks through the plain texts, Python through the odd ones and at what SQLite has found:
#: to call Python for a row costs more than all else that is done with it.
HAS_TEXT = (
    f"({{}} OR id IN (SELECT id FROM task WHERE project_id = :project AND {LIVE} AND {ODD}))"
    " AND tam_matches(CAST(title AS BLOB), CAST(content AS BLOB))"
)


def _search(work: Work, wanted: str) -> tuple[str, str]:
    """Return the condition for tasks with a text in them, and its parameter :text."""
    needle = fold(wanted)

    def matches(title: bytes | None, content: bytes | None) -> bool:
        return needle in fold(_text(title or b"")) or needle in fold(_text(content or b""))

    work.db.create_function("tam_matches", 2, matches)
    # Patterns have a limit, and U+FFFD may stand for other bytes; but what has all of the needle
    # has the beginning of it.
    text = needle[:TITLE_MAX].split("\ufffd")[0]
    if not text.encode().islower():  # of bytes: no letters of ASCII, whose case could differ
        return HAS_TEXT.format("instr(title, :text) OR instr(content, :text)"), text
    pattern = text.replace("%", "_")  # which is any character
    return HAS_TEXT.format("title LIKE :text OR content LIKE :text"), f"%{pattern}%"


def fold(text: str) -> str:
    """Return `text` as it is compared in a search: the same for É and é in any form of writing.

    What is one character to a reader is one here: neither e nor a lone accent is a part of é, in
    whichever of its forms it is stored or searched.
    """
    if text.isascii():
        return text.lower()
    import unicodedata

    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


def _after(work: Work, cursor: int | None) -> tuple[str, dict]:
    """Return the condition for what comes after the task `cursor` in the order of the list."""
    if cursor is None:
        return "", {}
    row = work.db.execute(
        f"SELECT {CREATED} AS created FROM task WHERE id = ? AND project_id = ?",
        (bounded(cursor), work.project["id"]),
    ).fetchone()
    if row is None:
        raise Invalid(
            f"cursor: {cursor} is no cursor of this list; give the next_cursor of a page before",
            argument="cursor", value=cursor,
        )
    clause = " AND made <= :after AND (made < :after OR task_id < :cursor)"
    return clause, {"after": row["created"], "cursor": cursor}


def task_show(work: Work, args: dict) -> dict:
    """The task and its newest events; with an offset, the rest of the description from there."""
    row = work.row(args["id"])
    events = _event_views(work, "task_id", row["id"], (None, LIMIT_DEFAULT))
    view = work.view_of(row)
    if args.get("offset"):
        offset = bounded(args["offset"])
        view |= {"description": view["description"][offset:], "description_offset": offset}
    return {"task": view, "events": events}


def task_events(work: Work, args: dict) -> dict:
    """The task's events."""
    return _events(work, "task_id", work.row(args["id"])["id"], args)


def history(work: Work, args: dict) -> dict:
    """The project's events, those of all its tasks together."""
    return _events(work, "project_id", work.project["id"], args)


def _events(work: Work, column: str, key: int, args: dict) -> dict:
    """Return events oldest first: the newest ones, or with `since` the first ones after it."""
    limit, since = clamp_limit(args["limit"]), args.get("since")
    events = _event_views(work, column, key, (since, limit + 1))
    more = len(events) > limit
    if more:
        del events[0 if since is None else limit]
    every = f"SELECT 1 FROM task_events WHERE {column} = ? LIMIT {TOTAL_MAX + 1}"
    return {
        "events": events,
        "count": len(events),
        **bounded_total(len(work.db.execute(every, (key,)).fetchall())),
        "limit": limit,
        "truncated": more,
        "next_cursor": events[-1]["id"] if events else since or 0,
    }


def _event_views(work: Work, column: str, key: int, page: tuple) -> list[dict]:
    since, limit = page
    newest = since is None
    after = bounded(since or 0)
    rows = work.db.execute(
        f"SELECT {EVENT_COLUMNS} FROM task_events WHERE {column} = ? AND id > ?"
        f" ORDER BY id {'DESC' if newest else 'ASC'} LIMIT ?", (key, after, limit),
    ).fetchall()
    return [event_view(row) for row in (reversed(rows) if newest else rows)]


# -- writing tasks --


def task_add(work: Work, args: dict) -> dict:
    """A new task, or the earlier one of the same idempotency key (P 4.2)."""
    key = args.get("idempotency_key")
    if key:
        earlier = work.db.execute(KEYED_TASK, (work.project["id"], key)).fetchone()
        if earlier is not None:
            return {"task": work.view(earlier["id"]), "deduplicated": True}
    task_id = work.db.execute(ADD_TASK, {
        "title": args["title"],
        "content": args["description"],
        "project_id": work.project["id"],
        "priority": args["priority"],
        "tags": ",".join(args["tags"]),
        "idempotency_key": key,
        "created": stored_time(work.now),
    }).lastrowid
    work.add_event((task_id, work.project["id"], None), "created", TODO, {})
    return {"task": work.view(task_id), "deduplicated": False}


def task_update(work: Work, args: dict) -> dict:
    """Set the given fields; what changes nothing writes nothing."""
    row = work.row(args["id"])
    wanted = _wanted_columns(args)
    if not wanted:
        raise Invalid(
            f"nothing to update: give at least one of {', '.join(UPDATABLE)}",
            allowed=list(UPDATABLE),
        )
    _guard(work, row, args)
    changes = {name: value for name, value in wanted.items() if _differs(row[name], value)}
    if not changes:
        return {"task": work.view_of(row)}
    event = _update_event(row["status"], changes.get("status", row["status"]))
    fields = [name for name in UPDATABLE if UPDATABLE[name] in changes]
    return {"task": work.write(row, event, changes, {"fields": fields})}


#: Arguments of an update and their columns.
UPDATABLE = {
    "title": "title", "description": "content", "status": "status", "priority": "priority",
    "tags": "tags",
}


def _wanted_columns(args: dict) -> dict:
    wanted = {
        column: args[name] for name, column in UPDATABLE.items() if args.get(name) is not None
    }
    if "tags" in wanted:
        wanted["tags"] = ",".join(wanted["tags"])
    if "status" in wanted:
        wanted["status"] = STATUSES.index(wanted["status"])
        if wanted["status"] != IN_PROGRESS:
            wanted |= NO_LEASE
    return wanted


def _differs(stored: object, wanted: object) -> bool:
    return stored != wanted and not (stored is None and wanted == "")  # NULL reads as ""


def _update_event(before: int, after: int) -> str:
    if before != DONE and after == DONE:
        return "completed"
    return "reopened" if before == DONE and after != DONE else "updated"


def task_edit(work: Work, args: dict) -> dict:
    """The old name for an update of the title."""
    return task_update(work, args)


def task_start(work: Work, args: dict) -> dict:
    """The old name for an update to in-progress; Conflict when it is so already."""
    row = work.row(args["id"])
    if row["status"] == IN_PROGRESS:
        raise _already(row, "in progress")
    return task_update(work, {"id": args["id"], "status": STATUSES[IN_PROGRESS]})


def _already(row: sqlite3.Row, state: str) -> Conflict:
    return Conflict(
        f"Task '{_stored_text(row['title'])}' is already {state}.",
        task_id=row["id"], status=status_name(row["status"]),
    )


def task_claim(work: Work, args: dict) -> dict:
    """A lease for the caller: granted when there is none, an own or an expired one."""
    work.need_agent()
    return {"task": _claim(work, work.row(args["id"]), args)}


def _claim(work: Work, row: sqlite3.Row, args: dict) -> dict:
    if row["status"] == DONE:
        raise _already(row, "done")
    metadata: dict = {}
    if holds(row, work.now) and row["assigned_agent"] != work.agent:
        if not args.get("force"):
            raise _leased_error(row, "Claim another task, or wait until the lease ends")
        metadata = {"force": True, "previous_agent": row["assigned_agent"]}
    lease = {
        "status": IN_PROGRESS,
        "assigned_agent": work.agent,
        "lease_expires_at": work.now + args["lease_seconds"],
    }
    return work.write(row, "claimed", lease, metadata)


def task_heartbeat(work: Work, args: dict) -> dict:
    """A longer lease for its holder, also an expired one that nobody else has taken."""
    agent, row = work.need_agent(), work.row(args["id"])
    if row["status"] == DONE:
        raise _already(row, "done")
    if row["assigned_agent"] != agent:
        raise _not_holder(row, "Stop working on it, and claim a task anew")
    lease = {"lease_expires_at": work.now + args["lease_seconds"]}
    return {"task": work.write(row, "heartbeat", lease)}


def _not_holder(row: sqlite3.Row, what_next: str) -> Conflict:
    holder = row["assigned_agent"]
    state = f"assigned to {holder}" if holder is not None else "assigned to nobody"
    return Conflict(
        f"task {row['id']} is {state}. {what_next}", task_id=row["id"], assigned_agent=holder,
        lease_expires_at=iso_time(row["lease_expires_at"]), status=status_name(row["status"]),
    )


def task_release(work: Work, args: dict) -> dict:
    """End the lease; in-progress goes back to todo. Only the holder, or with force."""
    force = args.get("force")
    if not force:
        work.need_agent("; a person may use --force")
    row = work.row(args["id"])
    own = row["assigned_agent"] is not None and row["assigned_agent"] == work.agent
    if not own and not force:
        nobody = row["assigned_agent"] is None
        raise _not_holder(row, "There is nothing to release" if nobody else
                          "Only its holder releases it; a person may use --force")
    changes = dict(NO_LEASE)
    if row["status"] == IN_PROGRESS:
        changes["status"] = TODO
    if all(row[name] == value for name, value in changes.items()):
        return {"task": work.view_of(row)}
    metadata = {} if own else {"force": True, "previous_agent": row["assigned_agent"]}
    return {"task": work.write(row, "released", changes, metadata)}


def task_done(work: Work, args: dict) -> dict:
    """Complete the task and end its lease."""
    row = work.row(args["id"])
    if row["status"] == DONE:
        raise _already(row, "done")
    _guard(work, row, args)
    return {"task": work.write(row, "completed", {"status": DONE, **NO_LEASE})}


def task_next(work: Work, args: dict) -> dict:
    """The candidate of highest priority, then oldest; claimed too when asked."""
    if args["claim"]:
        work.need_agent()
    row = work.db.execute(NEXT_TASKS, _scope(work, limit=1)).fetchone()
    if row is None:
        return {"task": None}
    if args["claim"]:
        return {"task": _claim(work, work.row(row["id"]), args)}
    return {"task": task_view(row, work.project["name"], work.now)}


def task_del(work: Work, args: dict) -> dict:
    """Soft-delete the task; its idempotency key is free again."""
    row = work.row(args["id"])
    _guard(work, row, args)
    return {"task": work.write(row, "deleted", {"is_deleted": 1})}


# ---- the operation table -------------------------------------------------------------------------

_ONE_LINE = "^[^\n\r\x0b\x0c\x85\u2028\u2029]*$"
_NO_CONTROLS = "^[^\x00-\x1f\x7f-\x9f]*$"
_NO_COMMA = "^[^,\x00-\x1f\x7f-\x9f]*$"
#: What the patterns ask for, in words: an error says this instead.
PATTERN_WORDS = {
    _ONE_LINE: "it must be one line",
    _NO_CONTROLS: "control characters are not allowed",
    _NO_COMMA: "commas and control characters are not allowed",
}
#: Here as in the rest of the table sizes stand first: what is too big is not looked into.
_TAG_LIST = {
    "type": "array",
    "maxItems": TAGS_MAX,
    "items": {"type": "string", "minLength": 1, "maxLength": TAG_MAX, "pattern": _NO_COMMA},
}
_NAME = {"type": "string", "minLength": 1, "maxLength": NAME_MAX, "pattern": _ONE_LINE}
_LIMIT_WORDS = f"1 to {LIMIT_MAX}, default {LIMIT_DEFAULT}"

#: Every argument of every operation: its JSON Schema, in the words that all doors show.
PROPERTIES = {
    "id": {"type": "integer", "description": "Task id"},
    "name": {**_NAME, "description": "Project name"},
    "new_name": {**_NAME, "description": "New project name"},
    "project": {"type": "string", "maxLength": NAME_MAX, "description": "Project name"},
    "agent": {
        "type": "string", "maxLength": AGENT_MAX, "pattern": _NO_CONTROLS,
        "description": "Your agent id",
    },
    "title": {
        "type": "string", "minLength": 1, "maxLength": TITLE_MAX, "pattern": _ONE_LINE,
        "description": "One line",
    },
    "description": {
        "type": "string", "maxLength": DESCRIPTION_MAX,
        "description": 'Context, up to 64 KiB; "" clears',
    },
    "status": {
        "type": "string", "enum": list(STATUSES), "description": "todo, in-progress or done",
    },
    "priority": {
        "type": "integer", "minimum": 1, "maximum": 5, "description": "1 (highest) to 5",
    },
    "tags": {**_TAG_LIST, "description": "Replaces all, [] clears"},
    "tag": {**_TAG_LIST, "description": "All of these"},
    "assigned": {
        "type": "string", "minLength": 1, "maxLength": AGENT_MAX,
        "description": "Agent id, me or unassigned",
    },
    "search": {"type": "string", "description": "Text in title or description, any case"},
    "limit": {"type": "integer", "default": LIMIT_DEFAULT, "description": _LIMIT_WORDS},
    "cursor": {"type": "integer", "description": "next_cursor of the page before"},
    "offset": {"type": "integer", "description": "Skips so much of the description"},
    "since": {
        "type": "integer", "description": "After this event id; 0 from the start; else the newest",
    },
    "lease_seconds": {
        "type": "integer", "minimum": LEASE_MIN, "maximum": LEASE_MAX, "default": LEASE_DEFAULT,
        "description": f"{LEASE_MIN} to {LEASE_MAX}, default {LEASE_DEFAULT}",
    },
    "force": {"type": "boolean", "default": False, "description": "Override another's lease"},
    "claim": {"type": "boolean", "default": False, "description": "Claim it too; default false"},
    "if_revision": {"type": "integer", "description": "Conflict if changed since"},
    "idempotency_key": {
        "type": "string", "minLength": 1, "maxLength": KEY_MAX,
        "description": "The same key again returns the same task",
    },
}
_NEW_PRIORITY = {
    **PROPERTIES["priority"], "default": 3, "description": "1 (highest) to 5, default 3",
}
_NEW_DESCRIPTION = {
    **PROPERTIES["description"], "default": "", "description": "Context, up to 64 KiB",
}
_NEW_TAGS = {**PROPERTIES["tags"], "default": [], "description": "Labels, lower case"}


class Operation:
    """One row of the table.

    `name` is the envelope's `command`; `tool` the plain tool name or None; `doors` where it is
    offered; `summary` one line for help and `description` for a model that decides; `properties`
    and `required` make the JSON Schema; `access` is "none", "read" or "write": which transaction
    it runs in; `project` is "needs" (one must be resolved), "checks" (a given one must match) or
    "none"; `agent` is "takes" or "none".
    """

    access = "read"
    mutates = False
    idempotent = False
    destructive = False
    tool: str | None = None
    doors: tuple = ("cli",)
    title = ""
    description = ""
    required: tuple = ()
    project = "none"
    agent = "none"

    def __init__(self, name: str, run: object, summary: str, **fields: object) -> None:
        self.name = name
        self.run = run
        self.summary = summary
        properties = fields.pop("properties", ())
        self.__dict__.update(fields)
        self.mutates = fields.get("mutates", self.access == "write")
        self.properties = self._schemas(properties)

    def _schemas(self, properties: tuple) -> dict:
        chosen = dict(
            item if isinstance(item, tuple) else (item, PROPERTIES[item]) for item in properties
        )
        for scope in ("project", "agent"):
            if getattr(self, scope) != "none":
                chosen[scope] = PROPERTIES[scope]
        return chosen

    def input_schema(self) -> dict:
        """Return the JSON Schema of the arguments."""
        return {
            "type": "object",
            "properties": self.properties,
            "required": list(self.required),
            "additionalProperties": False,
        }

    def access_for(self, args: dict) -> str:
        """Return which transaction these arguments need: `next` without a claim only reads."""
        return "read" if args.get("claim") is False else self.access


_ALL_DOORS = ("cli", "mcp", "tick")
_ID = ("id",)

#: The one truth of what tam can do. P 5 gives the tool names, P 4 the commands.
OPERATIONS = {operation.name: operation for operation in (
    Operation(
        "status", status, "Show the counts, the leases and what comes next",
        tool="status", doors=_ALL_DOORS, project="needs", title="Status",
        description="Look here first: a project's counts, running leases and next 5 tasks.",
    ),
    Operation(
        "project.list", project_list, "List the projects",
        tool="project_list", doors=_ALL_DOORS, title="List projects", properties=("cursor",),
        description="Names to pass as project.",
    ),
    Operation(
        "project.current", project_current, "Show the project that commands use",
        project="current",
    ),
    Operation(
        "project.add", project_add, "Add a project, or restore a deleted one",
        properties=("name",), required=("name",), access="write",
    ),
    Operation(
        "project.use", project_use, "Make a project the current one",
        # It writes no row, but nobody must delete or rename the project in the meantime.
        properties=("name",), required=("name",), access="write", idempotent=True,
    ),
    Operation(
        "project.del", project_del, "Delete a project; adding it again restores it and its tasks",
        properties=("name",), required=("name",), access="write", destructive=True,
    ),
    Operation(
        "project.edit", project_edit, "Rename a project",
        properties=("name", "new_name"), required=("name", "new_name"), access="write",
    ),
    Operation(
        "task.list", task_list, "List tasks, newest first",
        tool="task_list", doors=_ALL_DOORS, project="needs", agent="takes", title="List tasks",
        properties=("status", "assigned", "priority", "tag", "search", "limit", "cursor"),
        description="Find tasks, newest first, descriptions cut short."
        " When truncated, pass next_cursor as cursor.",
    ),
    Operation(
        "task.show", task_show, "Show one task with its newest events",
        tool="task_get", doors=_ALL_DOORS, project="checks", title="Show a task",
        properties=("id", "offset"), required=_ID,
        description="One task whole, with its newest events."
        " If its description was cut, pass next_offset as offset.",
    ),
    Operation(
        "task.add", task_add, "Add a task",
        tool="task_create", doors=_ALL_DOORS, project="needs", agent="takes", access="write",
        title="Create a task", required=("title",),
        properties=("title", ("description", _NEW_DESCRIPTION), ("priority", _NEW_PRIORITY),
                    ("tags", _NEW_TAGS), "idempotency_key"),
        description="Add a task and get it back."
        " With idempotency_key a retry creates nothing twice.",
    ),
    Operation(
        "task.update", task_update, "Change fields of a task",
        tool="task_update", doors=_ALL_DOORS, project="checks", agent="takes", access="write",
        title="Change a task", required=_ID, destructive=True, idempotent=True,
        properties=("id", "title", "description", "status", "priority", "tags", "if_revision"),
        description="Change only the given fields. On conflict another agent holds it or changed"
        " it: get it again before you decide.",
    ),
    Operation(
        "task.edit", task_edit, "Change the title of a task",
        project="checks", agent="takes", access="write",
        properties=("id", "title"), required=("id", "title"),
    ),
    Operation(
        "task.start", task_start, "Set a task in progress",
        project="checks", agent="takes", access="write", properties=_ID, required=_ID,
    ),
    Operation(
        "task.claim", task_claim, "Claim a task: it is yours until the lease ends",
        tool="task_claim", doors=_ALL_DOORS, project="checks", agent="takes", access="write",
        title="Claim a task", properties=("id", "lease_seconds", "force"), required=_ID,
        description="Reserve this task for yourself before you work on it."
        " On conflict take the next task instead.",
    ),
    Operation(
        "task.heartbeat", task_heartbeat, "Renew your lease while you work",
        tool="task_heartbeat", doors=_ALL_DOORS, project="checks", agent="takes", access="write",
        title="Renew a lease", properties=("id", "lease_seconds"), required=_ID,
        description="Extend your lease while you work."
        " On conflict stop: the task is no longer yours.",
    ),
    Operation(
        "task.release", task_release, "Give a claimed task back",
        tool="task_release", doors=_ALL_DOORS, project="checks", agent="takes", access="write",
        title="Release a task", properties=("id", "force"), required=_ID, idempotent=True,
        description="Give back a task you will not finish; it is todo again.",
    ),
    Operation(
        "task.done", task_done, "Mark a task as done",
        tool="task_complete", doors=_ALL_DOORS, project="checks", agent="takes", access="write",
        title="Complete a task", properties=("id", "if_revision"), required=_ID, idempotent=True,
        description="Mark your task done, ending its lease."
        " On conflict it is done already or another agent's.",
    ),
    Operation(
        "task.next", task_next, "Show the next task to work on; with --claim take it",
        tool="task_next", doors=_ALL_DOORS, project="needs", agent="takes", access="write",
        title="Next task", properties=("lease_seconds", "claim"),
        description="The most urgent free task; with claim true it is yours at once."
        " task null means nothing to do.",
    ),
    Operation(
        "task.events", task_events, "Show what happened to a task",
        tool="task_events", doors=_ALL_DOORS, project="checks", title="Task history",
        properties=("id", "since", "limit"), required=_ID,
        description="What happened to a task, oldest first.",
    ),
    Operation(
        "task.del", task_del, "Delete a task",
        project="checks", agent="takes", access="write", destructive=True,
        properties=("id", "if_revision"), required=_ID,
    ),
    Operation(
        "history", history, "Show what happened in a project",
        tool="history", doors=("cli", "tick"), project="needs", title="Project history",
        properties=("since", "limit"),
        description="What happened in the whole project, oldest first; pass next_cursor as since.",
    ),
    Operation("config", config_show, "Show the configuration and the files in use", access="none"),
)}


# ---- call ----------------------------------------------------------------------------------------


def _canonical_tags(value: object) -> object:
    if not isinstance(value, list) or not all(isinstance(tag, str) for tag in value):
        return value  # the schema says what is wrong with it
    return list(dict.fromkeys(tag.strip().lower() for tag in value))


#: How an argument is written in one way before it is checked (P 2).
NORMAL_FORMS = {
    "title": str.strip, "name": str.strip, "new_name": str.strip, "project": str.strip,
    "tags": _canonical_tags, "tag": _canonical_tags,
}


def checked(operation: Operation, arguments: dict) -> dict:
    """Return the arguments in normal form, with defaults; Invalid names the first that is wrong."""
    schema = operation.input_schema()
    args = {}
    for name, value in arguments.items():
        _need_unicode(name, value)
        args[name] = _normal(name, value, schema["properties"].get(name, {}))
    for name in operation.required:
        if name not in args:
            raise Invalid(f"{_label(name)} is missing", argument=name,
                          required=list(operation.required))
    _check_size(args.get("description"))
    for at, _, value in SchemaCheck(schema).violations(schema, args, ()):
        raise _complaint(at, value, operation, args)
    if args.get("agent") == HUMAN:
        raise Invalid(
            f'The agent id "{HUMAN}" is reserved for people. Choose an id of your own; leave it out'
            " to act as a person", argument="agent", value=HUMAN,
        )
    for name, rule in operation.properties.items():
        if "default" in rule:
            args.setdefault(name, rule["default"])
    return args


def _need_unicode(name: str, value: object) -> None:
    if has_surrogate([name, value]):
        raise Invalid(
            f"{printable(name)}: the text is no valid Unicode (bytes that are no UTF-8, or half of"
            " a surrogate pair). Send it as UTF-8", argument=printable(name),
        )


def _normal(name: str, value: object, rule: dict) -> object:
    if isinstance(value, float) and rule.get("type") == "integer" and value.is_integer():
        return int(value)
    if name in NORMAL_FORMS and (isinstance(value, str) or name in ("tags", "tag")):
        return NORMAL_FORMS[name](value)
    return value


def _check_size(description: object) -> None:
    # In bytes, which a schema cannot count.
    size = len(description.encode("utf-8")) if isinstance(description, str) else 0
    if size > DESCRIPTION_MAX:
        raise Invalid(
            f"The description has {size:,} bytes; at most {DESCRIPTION_MAX:,} are allowed",
            argument="description", length=size, limit=DESCRIPTION_MAX,
        )


def _complaint(at: tuple, value: object, operation: Operation, args: dict) -> Invalid:
    """Return the error for the argument at a place where the schema finds something wrong."""
    path: list = []
    while at:
        at, key = at
        path.insert(0, key)
    name = printable(str(path[0]))
    rule = operation.properties.get(path[0])
    if rule is None:
        near = nearest(name, operation.properties)
        return Invalid(f"There is no argument {name}{did_you_mean(near)}", argument=name,
                       allowed=list(operation.properties), **suggestion(near))
    if len(path) > 1:
        rule, label = rule["items"], "A tag"
    else:
        label = _label(name)
    # The schema's first word that the value breaks is the one to tell of.
    word = next(word for word in rule if word in COMPLAINTS and _breaks(word, rule, value))
    sentence, details = COMPLAINTS[word](label, rule, value)
    whole = args[path[0]]
    length = {"length": len(whole)} if isinstance(whole, str) else {}
    return Invalid(sentence, argument=name, value=_shortened(whole), **length, **details)


def _breaks(word: str, rule: dict, value: object) -> bool:
    return any(True for _ in SchemaCheck(rule).of_keyword(word, rule, value, ()))


#: How a sentence calls an argument, where its name would say too little.
LABELS = {
    "id": "The task's id", "name": "The project's name", "new_name": "The new name",
    "agent": "The agent id", "lease_seconds": "The lease in seconds",
    "assigned": "The agent to look for", "search": "The text to look for",
    "idempotency_key": "The idempotency key", "if_revision": "The revision",
    "tag": "The list of tags", "tags": "The list of tags",
}


def _label(name: str) -> str:
    return LABELS.get(name, f"The {name}")


def _wrong_type(label: str, rule: dict, value: object) -> tuple[str, dict]:
    return f"{label} must be {TYPE_WORDS[rule['type']]}, not {shown_value(value)}", {}


def _wrong_choice(label: str, rule: dict, value: object) -> tuple[str, dict]:
    *most, last = rule["enum"]
    near = nearest(str(value), rule["enum"])
    sentence = f"{label} is {', '.join(most)} or {last}, not {shown_value(value)}"
    return sentence + did_you_mean(near), {"allowed": rule["enum"], **suggestion(near)}


def _out_of_range(label: str, rule: dict, value: object) -> tuple[str, dict]:
    span = rule["description"].partition(",")[0]
    sentence = f"{label} goes from {span}, and cannot be {shown_value(value)}"
    return sentence, {"allowed": {"minimum": rule["minimum"], "maximum": rule["maximum"]}}


def _empty(label: str, rule: dict, value: object) -> tuple[str, dict]:
    return f"{label} is empty", {}


def _too_long(label: str, rule: dict, value: str) -> tuple[str, dict]:
    limit = rule["maxLength"]
    sentence = f"{label} has {len(value):,} characters; at most {limit:,} are allowed"
    return sentence, {"limit": limit}


def _too_many(label: str, rule: dict, value: list) -> tuple[str, dict]:
    limit = rule["maxItems"]
    sentence = f"{label} has {len(value):,} items; at most {limit} are allowed"
    return sentence, {"limit": limit}


def _wrong_character(label: str, rule: dict, value: str) -> tuple[str, dict]:
    pattern = rule["pattern"]
    place = re.match(pattern.removesuffix("$"), value).end()  # as far as the characters fit
    what = f"U+{ord(value[place]):04X} as its character {place + 1}"
    sentence = f"{label} has {what}: {PATTERN_WORDS[pattern]}"
    return sentence, {"character": place + 1}


#: What is said of a value that breaks a word of its argument's schema, for people and as data.
COMPLAINTS = {
    "type": _wrong_type, "enum": _wrong_choice, "minimum": _out_of_range,
    "maximum": _out_of_range, "minLength": _empty, "maxLength": _too_long,
    "maxItems": _too_many, "pattern": _wrong_character,
}
TYPE_WORDS = {
    "integer": "a whole number", "string": "text", "array": "a list of texts",
    "boolean": "true or false",
}


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return which of the known words was meant, if one is near enough."""
    import difflib

    found = difflib.get_close_matches(word.lower(), [str(one) for one in known], 1, 0.7)
    return found[0] if found else None


def did_you_mean(near: str | None) -> str:
    """Return the question for the end of a sentence; "" where nothing was near enough."""
    return f". Did you mean {near}?" if near else ""


def suggestion(near: str | None) -> dict:
    """Return the same as a detail of an error."""
    return {"suggestion": near} if near else {}


def _shortened(value: object) -> object:
    if not isinstance(value, (str, list, dict)):
        return value
    text = printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return text if len(text) <= 60 else text[:59] + "…"


class Tam:
    """One opened tam: settings, and one lazily opened database connection. One thread uses it.

    `project` and `agent` are what flags gave (None: not given); then TAM_PROJECT and TAM_AGENT of
    `env` hold, then (project only) the config (P 4.3). `clock` returns Unix seconds;
    `busy_timeout` is in seconds. Making one touches nothing on disk.
    """

    def __init__(
        self, *, project: str | None = None, agent: str | None = None, env: dict = os.environ,
        clock: object = time.time, busy_timeout: float = BUSY_TIMEOUT,
    ) -> None:
        self.env = env
        self.clock = clock
        self.busy_timeout = busy_timeout
        self._project = project
        self._agent = agent
        self._home: Home | None = None
        self._store: Store | None = None

    def call(self, name: str, arguments: dict, expected: dict | None = None) -> object:
        """Run the operation `name` and return its data: the only way in (contract, operations).

        `arguments` are the operation's properties; `project` and `agent` among them override the
        defaults. Raises TamError and nothing else: Invalid, NotFound, Conflict, MissingProject,
        MissingAgent, Busy (safe to retry), Startup, Internal. What it returned is on disk.

        `expected` is what a person saw before they decided: of a task some of `seen_of`, of a
        project its `id` and more (see `Work.named`). Where it reads otherwise by now, Conflict
        tells in its details what was `changed` and `by` whom, and nothing is written.
        """
        operation = OPERATIONS.get(name)
        if operation is None:
            raise Invalid(f"there is no operation {printable(name)}", allowed=list(OPERATIONS))
        return self._guarded(lambda: self._run(operation, arguments, expected))

    def snapshot(self, project: str | None, columns: int = 500, search: str = "") -> dict:
        """Return what the board and the Tick's state show, read at one moment.

        `columns` caps each of the three columns of tasks; they and `counts` (which are `exact` or
        end at a limit) are of those in which `search` is found. NotFound for an unknown project.
        """
        return self._guarded(lambda: self._snapshot(project, columns, search))

    def data_version(self) -> int:
        """Return a number that changes when another connection has committed."""
        return self._guarded(lambda: self.store.data_version())

    def default_project(self) -> str | None:
        """Return the project in scope: flag, TAM_PROJECT, config; an empty flag counts as given."""
        explicit = self._explicit_project()
        return self.config["current_project"] if explicit is None else explicit

    def default_agent(self) -> str | None:
        """Return the agent: flag, then TAM_AGENT."""
        return self._agent if self._agent is not None else self._variable("TAM_AGENT")

    @property
    def home(self) -> Home:
        """Where tam's files are."""
        if self._home is None:
            self._home = Home(self.env)
        return self._home

    @property
    def config(self) -> dict:
        """The five settings (contract, files)."""
        return self.home.config

    @property
    def store(self) -> Store:
        """The database that the config names, opened anew when the config names another."""
        # SQLite keeps its other files beside the file that a symbolic link leads to.
        path = os.path.realpath(self.home.path("db_file"))
        if self._store is None or self._store.path != path:
            self.close()
            self._store = Store(path, self.busy_timeout)
        return self._store

    def set_config(self, **changes: str | None) -> None:
        """Save settings; None removes one. Raises TamError."""
        self._guarded(lambda: self.home.save(**changes))

    def log(self, text: str) -> None:
        """Append a record to the rolling log; never raises."""
        try:
            self.home.log(text)
        except TamError:
            return  # there is no home, so there is no log

    def close(self) -> None:
        """Close the database; the object can be used again."""
        if self._store is not None:
            self._store.close()

    def _explicit_project(self) -> str | None:
        return self._project if self._project is not None else self._variable("TAM_PROJECT")

    def _variable(self, name: str) -> str | None:
        return utf8_text(self.env.get(name, "")) or None

    def _run(self, operation: Operation, arguments: dict, expected: dict | None) -> object:
        _need_unicode("project", self._explicit_project())  # also where the operation needs none:
        _need_unicode("agent", self.default_agent())  # the envelope names them
        args = checked(operation, self._with_defaults(operation, arguments))
        access = operation.access_for(args)
        work = Work(None, int(self.clock()), args.get("agent") or None)
        work.home, work.expected = self.home, expected
        if access == "none":
            return operation.run(work, args)
        settings = self.home.config if access == "write" else {}
        try:
            with self.store.writing() if access == "write" else self.store.reading() as db:
                work.db = db
                work.now = int(self.clock())  # after the wait for the lock
                work.project = self._project_in_scope(db, operation, args.get("project"))
                data = operation.run(work, args)
                if work.config_changes:  # before the commit: if it fails, nothing has happened
                    self.home.save(**work.config_changes)
        except sqlite3.Error:
            if work.config_changes:  # it was the commit that failed
                self.close()  # on a full disk this gives the room for the settings back
                self.home.save(**{key: settings[key] for key in work.config_changes})
            raise
        return data

    def _with_defaults(self, operation: Operation, arguments: dict) -> dict:
        given = {"agent": self.default_agent() if operation.agent != "none" else None}
        if operation.project == "checks":
            given["project"] = self._explicit_project()
        elif operation.project != "none":
            given["project"] = self.default_project()
        return {key: value for key, value in given.items() if value is not None} | arguments

    def _project_in_scope(
        self, db: sqlite3.Connection, operation: Operation, name: str | None
    ) -> sqlite3.Row | None:
        if name:
            return find_project(db, name)
        if name == "" or operation.project == "needs":
            raise MissingProject(
                "a project is needed: give --project NAME (argument `project`) or set TAM_PROJECT;"
                " a person may choose one for all with `tam project use NAME`"
            )
        return None

    def _snapshot(self, project: str | None, columns: int, search: str) -> dict:
        work = Work(None, int(self.clock()), None)
        with self.store.reading() as db:
            work.db = db
            work.project = find_project(db, project) if project else None
            return snapshot(work, columns, search) if project else {**EMPTY_SNAPSHOT}

    def _guarded(self, action: object) -> object:
        try:
            return action()
        except TamError:
            raise
        except sqlite3.Error as error:
            raise self._sql_error(error) from None
        except OSError as error:
            where = path_text(error.filename or self.home.directory)
            raise Internal(f"{error.strerror or error}: {where}") from None
        except Exception as error:  # the last line of defence: no caller ever sees a traceback
            raise self.unexpected(error) from None

    def _sql_error(self, error: sqlite3.Error) -> TamError:
        if is_busy(error):
            return busy_error(self.busy_timeout)
        self.log(f"database error: {error!r}")
        path = path_text(self._store.path if self._store else self.home.directory)
        reason = _in_words(error)
        return Internal(f"the database {path} failed: {reason}. Nothing was changed", db_file=path)

    def unexpected(self, error: Exception) -> Internal:
        """Return the error for what nobody foresaw; its traceback goes to the log."""
        import traceback

        self.log("unexpected error\n" + "".join(traceback.format_exception(error)))
        what = f"unexpected {type(error).__name__}: {printable(str(error))[:200]}"
        return Internal(f"{what}; the log has more")


#: What `Tam.snapshot` returns where there is no project.
EMPTY_SNAPSHOT = {
    "project": None, "counts": {"todo": 0, "in_progress": 0, "done": 0}, "leased_count": 0,
    "columns": {name: [] for name in STATUSES}, "leased": [], "next": [], "events": [],
    "cursor": 0, "next_expiry": None,
}
#: How much of each kind a snapshot holds; what is more is behind `task_list` and `history`.
SNAPSHOT_LEASED, SNAPSHOT_EVENTS = 8, 20


def snapshot(work: Work, columns: int, search: str) -> dict:
    """Return the state of the project in scope (see `Tam.snapshot`)."""
    answer = status(work, {})
    key = work.project["id"]
    filled = {
        name: _column(work, number, columns, search) for number, name in enumerate(STATUSES)
    }
    return {
        "project": project_view(work.project),
        "counts": {name.replace("-", "_"): total["total"] for name, (_, total) in filled.items()},
        "leased_count": answer["leased"],
        "columns": {name: tasks for name, (tasks, _) in filled.items()},
        "exact": {name: total["total_is_exact"] for name, (_, total) in filled.items()},
        "leased": _views(work, LEASED_TASKS, _scope(work, limit=SNAPSHOT_LEASED)),
        "next": answer["next"],
        "events": _event_views(work, "project_id", key, (None, SNAPSHOT_EVENTS)),
        "cursor": work.db.execute(LAST_EVENT, (key,)).fetchone()[0],
        "next_expiry": work.db.execute(NEXT_EXPIRY, _scope(work)).fetchone()[0],
    }


def _column(work: Work, number: int, limit: int, search: str) -> tuple[list[dict], dict]:
    """Return the first tasks of a status in the order of its column, and the total of all."""
    where = f"FROM task WHERE project_id = :project AND {LIVE} AND status = {number}"
    parameters = _scope(work, limit=limit)
    if search:
        has_text, parameters["text"] = _search(work, search)
        where += f" AND {has_text}"
    sql = f"SELECT {TASK_COLUMNS} {where} ORDER BY {COLUMN_ORDERS[number]} LIMIT :limit"
    tasks = _views(work, sql, parameters)
    total = _counted(work, {"search": search, "status": STATUSES[number]})
    if total is None and len(tasks) < limit:
        total = bounded_total(len(tasks))
    elif total is None:
        every = f"SELECT 1 {where} LIMIT {TOTAL_MAX + 1}"
        total = bounded_total(len(work.db.execute(every, parameters).fetchall()))
    return tasks, total


# ---- people's output -----------------------------------------------------------------------------

STATUS_LABELS = {"todo": "⏳ Todo", "in-progress": "🚧 In Progress", "done": "✅ Done"}
_WORD_COLOURS = {"SUCCESS": "42", "INFO": "44", "ERROR": "41"}
#: For terminals whose encoding has no box characters.
_ASCII_BOXES = str.maketrans("╭╮╰╯├┤┬┴┼─│█░…→", "+++++++++-|#.>>")


class Paper:
    """Text for a person, collected and written at once to a descriptor.

    Colour and cutting to the terminal's width happen on a terminal only, colour never with
    NO_COLOR (contract, output). Text from the store goes through `printable` on its way.
    """

    def __init__(self, fd: int, env: dict, encoding: str = "utf-8") -> None:
        self.fd = fd
        self.encoding = encoding
        terminal = os.isatty(fd)
        self.colour = terminal and not env.get("NO_COLOR")
        self.width = _terminal_width(fd) if terminal else None
        self._parts: list[str] = []

    def line(self, text: str = "") -> None:
        """Add a line as it stands."""
        self._parts.append(text + "\n")

    def word(self, word: str, message: str) -> None:
        """Add a line that begins with SUCCESS, INFO or ERROR on its colour."""
        mark = f"\x1b[1;{_WORD_COLOURS[word]}m{word}\x1b[0m" if self.colour else word
        self.line(f"{mark} {printable(message)}")

    def success(self, message: str) -> None:
        """Add a success line."""
        self.word("SUCCESS", message)

    def info(self, message: str) -> None:
        """Add a note."""
        self.word("INFO", message)

    def table(self, headers: tuple, rows: list[tuple], wide: int) -> None:
        """Add a table with rounded corners; on a terminal column `wide` is cut to fit."""
        cells = [headers] + [tuple(printable(str(cell)) for cell in row) for row in rows]
        widths = [max(cell_width(row[column]) for row in cells) for column in range(len(headers))]
        if self.width is not None:
            room = self.width - sum(widths) - 3 * len(widths) - 1
            widths[wide] = max(widths[wide] + min(room, 0), cell_width(headers[wide]), 8)
        bars = ["─" * (width + 2) for width in widths]
        self.line(f"╭{'┬'.join(bars)}╮")
        self._row(headers, widths)
        self.line(f"├{'┼'.join(bars)}┤")
        for row in cells[1:]:
            self._row(row, widths)
        self.line(f"╰{'┴'.join(bars)}╯")

    def write(self) -> None:
        """Write what was collected (OSError)."""
        text = "".join(self._parts)
        self._parts.clear()
        try:
            data = text.encode(self.encoding)
        except UnicodeEncodeError:
            codecs.register_error("tam.cells", _question_marks)
            data = text.translate(_ASCII_BOXES).encode(self.encoding, "tam.cells")
        write_all(self.fd, data)

    def _row(self, row: tuple, widths: list[int]) -> None:
        self.line("│" + "│".join(f" {pad(cell, width)} " for cell, width in zip(row, widths)) + "│")


def _question_marks(error: UnicodeEncodeError) -> tuple[str, int]:
    # As wide as what they stand for, so that columns still line up.
    return "?" * cell_width(error.object[error.start:error.end]), error.end


def _terminal_width(fd: int) -> int | None:
    try:
        return os.get_terminal_size(fd).columns or None
    except OSError:
        return None


def _people_time(text: str | None) -> str:
    return (text or "").replace("T", " ").removesuffix("Z")


def show_config(paper: Paper, data: dict, args: dict) -> None:
    unknown = data.get("unknown", {})
    width = max(map(len, data))
    for key, value in data.items():
        if value is not unknown:
            paper.line(f"{key:<{width}}  {printable(value) if value is not None else '(not set)'}")
    for key, near in unknown.items():
        paper.info(f"{key} is no setting of tam{did_you_mean(near) or '.'}")


def show_status(paper: Paper, data: dict, args: dict) -> None:
    counts = data["counts"]
    paper.info(f"Current project: {data['project']}")
    total = sum(counts.values())
    paper.line(f"  {_bar(counts['done'], total)}  {counts['done']} of {total} done")
    for name, label in STATUS_LABELS.items():
        paper.line(f"  {pad(label, 16)}{counts[name.replace('-', '_')]:>6}")
    paper.line(f"  {pad('Leased', 16)}{data['leased']:>6}")
    paper.line(f"  {pad('Unassigned', 16)}{data['unassigned']:>6}")
    if data["next"]:
        paper.line("  Next:")
    for task in data["next"]:
        paper.line(_short_line(paper, task))


BAR_CELLS = 30


def _bar(part: int, whole: int) -> str:
    filled = BAR_CELLS * part // whole if whole else 0
    return "█" * filled + "░" * (BAR_CELLS - filled)


def _short_line(paper: Paper, task: dict) -> str:
    line = f"    #{task['id']}  P{task['priority']}  {printable(task['title'])}"
    return line if paper.width is None else fit(line, paper.width)


def show_projects(paper: Paper, data: list, args: dict) -> None:
    if not data:
        paper.line("No projects found. Use `tam project add` to add a project.")
        return
    rows = [
        (project["name"], _people_time(project["created"]), _people_time(project["updated"]))
        for project in data
    ]
    paper.table(("Project", "Created", "Updated"), rows, wide=0)


def show_current(paper: Paper, data: dict, args: dict) -> None:
    if data["project"] is None:
        paper.info("No current project set. Use `tam project use <name>` to set a project.")
    else:
        paper.info(f"Current project: {data['project']['name']}")


def show_project_added(paper: Paper, data: dict, args: dict) -> None:
    name = data["project"]["name"]
    paper.success(f"Project '{name}' {'restored' if data['restored'] else 'added'} successfully.")
    paper.info(f"Use `tam project use {_shell_word(name)}` to switch to this project.")


def _shell_word(text: str) -> str:
    """Return a name as it can be copied into a shell: quoted, where it is more than a word."""
    if text.translate({ord(char): None for char in "-._"}).isalnum() and text[0] != "-":
        return text
    import shlex

    return shlex.quote(text)


def _told(key: str, words: str) -> object:
    """Return what shows a change of a `key`, "task" or "project", in 1.0.13's words."""
    named = {"task": "id", "project": "name"}[key]

    def show(paper: Paper, data: dict, args: dict) -> None:
        paper.success(f"{key.capitalize()} '{data[key][named]}' {words} successfully.")

    return show


def show_project_edited(paper: Paper, data: dict, args: dict) -> None:
    old, new = args["name"].strip(), data["project"]["name"]
    if old == new:
        paper.info("Project name is the same, no changes made.")
    else:
        paper.success(f"Project '{old}' updated to '{new}' successfully.")


def show_tasks(paper: Paper, data: dict, args: dict) -> None:
    if not data["tasks"]:
        paper.info("No tasks found. Use `tam task add` to add a task.")
        return
    paper.info(f"Current project: {data['tasks'][0]['project']}")
    rows = [
        (task["id"], task["title"], STATUS_LABELS[task["status"]]) for task in data["tasks"]
    ]
    paper.table(("ID", "Title", "Status"), rows, wide=1)
    _tell_of_more(paper, data, "--cursor")


def _tell_of_more(paper: Paper, data: dict, flag: str) -> None:
    if data.get("truncated"):
        paper.info(f"{_shown(data)}; go on with {flag} {data['next_cursor']}.")


def _shown(data: dict) -> str:
    total = data["total"] if data["total_is_exact"] else f"more than {data['total']:,}"
    return f"{data['count']} of {total} shown"


def show_task(paper: Paper, data: dict, args: dict) -> None:
    task = data["task"]
    _card(paper, task)
    if task["description"]:
        paper.line()
        for line in task["description"].splitlines():
            paper.line(f"  {printable(line)}".rstrip())
    paper.line()
    show_events(paper, data, args)


def _card(paper: Paper, task: dict) -> None:
    paper.line(f"#{task['id']}  {printable(task['title'])}")
    facts = {
        "Project": task["project"],
        "Status": STATUS_LABELS[task["status"]],
        "Priority": f"{task['priority']} (1 is highest)",
        "Tags": ", ".join(task["tags"]),
        "Lease": _lease_words(task),
        "Revision": task["revision"],
        "Created": _people_time(task["created"]),
        "Updated": _people_time(task["updated"]),
    }
    for name, value in facts.items():
        if value != "":
            paper.line(f"  {pad(name, 10)}{printable(str(value))}")


def _lease_words(task: dict) -> str:
    if task["assigned_agent"] is None:
        return ""
    if task["lease_expires_at"] is None:
        return task["assigned_agent"]
    state = "expired" if task["lease_expired"] else "until"
    return f"{task['assigned_agent']}, {state} {_people_time(task['lease_expires_at'])} UTC"


def show_events(paper: Paper, data: dict, args: dict) -> None:
    if not data["events"]:
        paper.info("No events.")
    rows = [
        tuple(printable(cell) for cell in (
            _people_time(event["created"]), f"#{event['task_id']}", event["event"],
            event["actor"], _event_words(event),
        ))
        for event in data["events"]
    ]
    widths = [max(cell_width(row[column]) for row in rows) for column in range(4) if rows]
    for row in rows:
        line = "  ".join(["", *map(pad, row, widths), row[-1]]).rstrip()
        paper.line(line if paper.width is None else fit(line, paper.width))
    if "since" in args:
        _tell_of_more(paper, data, "--since")
    elif data.get("truncated"):  # the newest are shown: what is missing came before them
        paper.info(f"The newest {_shown(data)}; --since 0 begins at the first.")


def _event_words(event: dict) -> str:
    words = [f"{key}: {_plain(value)}" for key, value in event["metadata"].items()]
    if event["from_status"] != event["to_status"]:
        words.insert(0, f"{event['from_status'] or ''} → {event['to_status'] or ''}".strip())
    return "; ".join(words)


def _plain(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def show_added(paper: Paper, data: dict, args: dict) -> None:
    if data["deduplicated"]:
        paper.info(f"Task '{data['task']['title']}' is there already (#{data['task']['id']}).")
    else:
        paper.success(f"Task '{data['task']['title']}' added successfully.")


def show_claimed(paper: Paper, data: dict, args: dict) -> None:
    agent, until = data["task"]["assigned_agent"], _people_time(data["task"]["lease_expires_at"])
    paper.success(f"Task '{data['task']['title']}' claimed by {agent} until {until} UTC.")
    _card(paper, data["task"])


def show_heartbeat(paper: Paper, data: dict, args: dict) -> None:
    until = _people_time(data["task"]["lease_expires_at"])
    paper.success(f"Task '{data['task']['id']}' leased until {until} UTC.")


def show_next(paper: Paper, data: dict, args: dict) -> None:
    if data["task"] is None:
        paper.info("No task to do: all are done or leased.")
    elif args.get("claim"):
        show_claimed(paper, data, args)
    else:
        _card(paper, data["task"])


# ---- command line --------------------------------------------------------------------------------


class Command:
    """One command: the words that call it, and how its arguments become an operation's.

    `words` are group and word, `alias` a short second word; `positionals` name properties that
    stand without a flag; `show` prints the data for people; `legacy` commands of tam 1.0.13 fail
    with 1 for people, as they did.
    """

    def __init__(self, words: str, operation: str, show: object, **fields: object) -> None:
        self.words = tuple(words.split())
        self.operation = OPERATIONS[operation]
        self.show = show
        self.alias: str | None = fields.get("alias")
        self.positionals: tuple = fields.get("positionals", ())
        self.legacy: bool = fields.get("legacy", False)
        self.examples: tuple = fields.get("examples", ())


COMMANDS = (
    Command("project list", "project.list", show_projects, alias="l", legacy=True,
            examples=("tam project", "tam project list --json")),
    Command("project add", "project.add", show_project_added, alias="a", legacy=True,
            positionals=("name",), examples=("tam project add website",)),
    Command("project use", "project.use", _told("project", "switched"), alias="u", legacy=True,
            positionals=("name",), examples=("tam project use website",)),
    Command("project current", "project.current", show_current, alias="c", legacy=True,
            examples=("tam project current --json",)),
    Command("project edit", "project.edit", show_project_edited, alias="e", legacy=True,
            positionals=("name", "new_name"), examples=("tam project edit website site",)),
    Command("project del", "project.del", _told("project", "deleted"), alias="d", legacy=True,
            positionals=("name",), examples=("tam project del website",)),
    Command("task list", "task.list", show_tasks, alias="l", legacy=True, examples=(
        "tam task", "tam task list --status todo --tag bug --json",
        "tam task list --assigned me --agent agent-a --json")),
    Command("task add", "task.add", show_added, alias="a", legacy=True, positionals=("title",),
            examples=('tam task add "Fix login"',
                      'tam task add "Fix login" --priority 1 --tag bug --idempotency-key fix-login',
                      'tam task add "Fix login" --description-file notes.md --json')),
    Command("task show", "task.show", show_task, positionals=("id",),
            examples=("tam task show 12 --json",)),
    Command("task edit", "task.edit", _told("task", "updated"), alias="e", legacy=True,
            positionals=("id", "title"), examples=('tam task edit 12 "Fix the login page"',)),
    Command("task update", "task.update", _told("task", "updated"), positionals=("id",), examples=(
        "tam task update 12 --priority 1 --tags bug,backend --json",
        "tam task update 12 --status todo --if-revision 3 --json")),
    Command("task start", "task.start", _told("task", "started"), legacy=True, positionals=("id",),
            examples=("tam task start 12",)),
    Command("task done", "task.done", _told("task", "marked as done"), legacy=True,
            positionals=("id",),
            examples=("tam task done 12", "tam task done 12 --agent agent-a --json")),
    Command("task del", "task.del", _told("task", "deleted"), alias="d", legacy=True,
            positionals=("id",), examples=("tam task del 12",)),
    Command("task next", "task.next", show_next,
            examples=("tam task next --json", "tam task next --claim --agent agent-a --json")),
    Command("task claim", "task.claim", show_claimed, positionals=("id",),
            examples=("tam task claim 12 --agent agent-a --lease 1800 --json",)),
    Command("task heartbeat", "task.heartbeat", show_heartbeat, positionals=("id",),
            examples=("tam task heartbeat 12 --agent agent-a --json",)),
    Command("task release", "task.release", _told("task", "released"), positionals=("id",),
            examples=("tam task release 12 --agent agent-a --json",)),
    Command("task events", "task.events", show_events, positionals=("id",),
            examples=("tam task events 12 --json", "tam task events 12 --since 40 --json")),
    Command("status", "status", show_status, examples=("tam status --project website --json",)),
    Command("history", "history", show_events,
            examples=("tam history --json", "tam history --since 40 --limit 50 --json")),
    Command("config", "config", show_config, legacy=True, examples=("tam config",)),
)

#: Groups of commands, with their aliases and what they are for; `list` is each one's default.
GROUPS = {"project": ("p", "Manage projects"), "task": ("t", "Manage tasks")}
#: Commands that are programs of their own: (module, function, what for).
PROGRAMS = {
    "mcp": ("tam_mcp", "main", "Serve the tools to an MCP client over standard input and output"),
    "tick": ("tam_tick", "main",
             "Run the board as a Tick; `tick host` and `tick check` test Ticks"),
    "bundle": ("tam_mcp", "bundle", "Write tam into one file that any Python 3.11 or newer runs"),
}
#: Where a flag is not the property's own name. A plural one takes a comma-separated list.
FLAGS = {
    ("task.add", "tags"): ("--tag",),
    "lease_seconds": ("--lease",),
    "since": ("--since", "--cursor"),
}
ENVIRONMENT = """\
environment:
  TAM_PROJECT  the project, where --project is not given
  TAM_AGENT    the agent id, where --agent is not given
  TAM_HOME     the directory of tam's files, instead of ~/.tam
  NO_COLOR     no colour, unless empty
"""
EXIT_CODES = """\
exit codes:
  0  done
  1  a value is not allowed, project or agent is missing, or tam itself failed
  2  the command line cannot be understood
  3  no such task or project
  4  conflict: another's lease, a taken name, a task changed since or done
"""


LEGACY_EXIT_CODES = """\
  Without --json this command ends with 1 instead of 3 or 4, as tam 1 did.
"""
#: How a help page calls the value of a flag, where "N" or "TEXT" would say too little.
METAVARS = {
    "status": "STATUS", "assigned": "WHO", "tag": "TAG", "tags": "TAG", "idempotency_key": "KEY",
    "lease_seconds": "SECONDS", "since": "EVENT", "cursor": "ID", "if_revision": "REVISION",
}
#: What a help page says of an argument; "{}" is what the schema says, which has the ranges.
HELP_WORDS = {
    "id": "the task's number, as `tam task list` shows it",
    "name": "the project's name",
    "new_name": "its new name",
    "title": "the task in one line",
    "description": "{}; - reads it from standard input",
    ("task.list", "status"): "only tasks that are {}",
    ("task.list", "priority"): "only tasks of this priority: {}",
    ("task.add", "tags"): "a label; may be repeated",
    ("task.update", "tags"): 'labels, comma-separated; replaces all, "" clears',
    "tag": "only tasks with this label; repeated: with all of them",
    "assigned": "only tasks of this agent's id, of `me`, or `unassigned` ones",
    "search": "only tasks with this text in title or description, in any case",
    "limit": f"at most this many: {{}}; a total is exact up to {TOTAL_MAX}",
    ("task.list", "limit"): "at most this many: {} with --json, else all",
    "cursor": "go on after this one: the next_cursor of the page before",
    ("project.list", "cursor"): "only projects after the one with this id",
    "offset": "skip so many characters of the description",
    "since": "what came after this event, oldest first; 0 begins at the start; without it"
    " the newest",
    "lease_seconds": "how long it is yours: {}",
    ("task.claim", "force"): "take it although another's lease is running: a person decides that",
    ("task.release", "force"): "also if it is another's: a person decides that",
    "claim": "claim it at once; needs an agent id",
    "if_revision": "conflict unless the task is still at this revision",
    "idempotency_key": "a retry with the same key finds the task and adds no second one",
}


# tam speaks English everywhere: looking for translations of argparse's words, once for each of
# them, costs as much as a query and would make an error's text depend on the locale.
argparse._ = str


class Parser(argparse.ArgumentParser):
    """argparse, with errors as exceptions and in words that say what to do next.

    The caller decides where they go; `words` are what was parsed last.
    """

    words: list[str] = []

    def parse_args(self, words: list[str]) -> argparse.Namespace:
        """Return the options in these words; Usage where they cannot be understood."""
        self.words = words
        return super().parse_args(words)

    def error(self, message: str) -> None:
        sentence, near = self._in_plain_words(message)
        end = "" if sentence.endswith("?") else "."
        usage = self.format_usage().strip()
        raise Usage(f"{sentence}{end} See `{self.prog} -h`", usage=usage, **suggestion(near))

    def _in_plain_words(self, message: str) -> tuple[str, str | None]:
        """Return what argparse says as a sentence for the one who typed it, and what was meant."""
        about, _, what = message.removeprefix("argument ").partition(": ")
        if what.startswith("expected "):
            return f"{about} needs a value; one that begins with - is written {about}=-…", None
        choices = next((action.choices for action in self._actions
                        if action.choices and about in action.option_strings), None)
        if choices:
            word = what.split("'")[1]
            near = nearest(word, choices)
            sentence = f"{about} is one of {', '.join(choices)}, not {printable(word)!r}"
            return sentence + did_you_mean(near), near
        known = [flag for action in self._actions for flag in action.option_strings]
        for word in before_dashes(self.words):
            if re.match("-[^0-9]", word) and word.partition("=")[0] not in known:
                near = nearest(word.partition("=")[0], known)
                free = "" if near else ". A text that begins with - goes behind --"
                return f"unknown option {printable(word)!r}{did_you_mean(near)}{free}", near
        if "are required" in about:
            return f"{what} is missing", None
        if about == "unrecognized arguments":
            return f"{printable(what)!r} is too much: put quotes around a text of many words", None
        return f"{about} {what}" if message.startswith("argument ") else message, None

    def print_help(self, file: object = None) -> None:
        _say(self.format_help())  # at once and whole, so that a closed pipe is noticed here


def _help_formatter(prog: str) -> argparse.HelpFormatter:
    # Left to find the width itself, argparse imports shutil, and not for help only.
    return argparse.RawDescriptionHelpFormatter(prog, width=min(_terminal_width(1) or 80, 100) - 2)


def strict_integer(text: str) -> int:
    """Return an argument as an integer; argparse reports what is none."""
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise argparse.ArgumentTypeError(f"must be a whole number, not {printable(text)!r}")
    # Beyond any stored number all values are alike, and int() refuses absurdly many digits.
    return int(text) if len(text) < 40 else (INT64_MAX + 1) * (-1 if text[0] == "-" else 1)


def _tag_list(text: str) -> list[str]:
    return [tag for tag in text.split(",") if tag.strip()]


def _add_globals(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("options of every command")
    group.add_argument("--json", action="store_true", help="print one JSON envelope")
    group.add_argument("--project", metavar="NAME",
                       help="the project (else TAM_PROJECT, else the current one)")
    group.add_argument("--agent", metavar="ID",
                       help="your agent id (else TAM_AGENT); without one you are a person")
    group.add_argument("-h", "--help", action="help", help="print this page")


def command_parser(command: Command) -> argparse.ArgumentParser:
    """Return the parser of one command, made from its operation's schema."""
    operation = command.operation
    parser = Parser(
        prog="tam " + " ".join(command.words), description=operation.summary + ".",
        epilog="examples:\n" + "".join(f"  {example}\n" for example in command.examples)
        + "\n" + EXIT_CODES + (LEGACY_EXIT_CODES if command.legacy else ""),
        formatter_class=_help_formatter, allow_abbrev=False, add_help=False,
    )
    arguments, options = map(parser.add_argument_group, ("arguments", "options"))
    for name in command.positionals:
        rule = operation.properties[name]
        kind = strict_integer if rule["type"] == "integer" else str
        arguments.add_argument(name, metavar=name.upper(), type=kind,
                               help=_help_words(operation, name, rule))
    for name, rule in operation.properties.items():
        if name not in command.positionals and name not in ("project", "agent"):
            _add_option(options, operation, name, rule)
    _add_globals(parser)
    return parser


def flags_of(operation: Operation, name: str) -> tuple:
    """Return the flags of a property."""
    return FLAGS.get((operation.name, name)) or FLAGS.get(name) or ("--" + name.replace("_", "-"),)


def _help_words(operation: Operation, name: str, rule: dict) -> str:
    words = HELP_WORDS.get((operation.name, name)) or HELP_WORDS.get(name) or "{}"
    said = rule["description"]
    return words.format(said[:1].lower() + said[1:]).replace("%", "%%")


def _add_option(group: object, operation: Operation, name: str, rule: dict) -> None:
    flags = flags_of(operation, name)
    options: dict = {"dest": name, "default": argparse.SUPPRESS}
    options["help"] = _help_words(operation, name, rule)
    if rule["type"] == "boolean":
        options["action"] = "store_true"
    else:
        options["metavar"] = METAVARS.get(name, "N" if rule["type"] == "integer" else "TEXT")
    if rule["type"] == "integer":
        options["type"] = strict_integer
    elif rule["type"] == "array" and flags[0].endswith("s"):
        options |= {"type": _tag_list, "metavar": "TAG,TAG"}
    elif rule["type"] == "array":
        options["action"] = "append"
    group.add_argument(*flags, **options)
    if name == "description":
        group.add_argument(
            "--description-file", dest="description_file", default=argparse.SUPPRESS,
            metavar="PATH", help="read the description from this file",
        )


def before_dashes(words: list[str]) -> list[str]:
    """Return the words before the first `--`: behind it all are texts."""
    return words[:words.index("--")] if "--" in words else words


class Line:
    """A command line, taken apart as far as its command: globals before it, the words, the rest."""

    VALUED = ("--project", "--agent")

    def __init__(self, argv: list[str]) -> None:
        self.before: list[str] = []
        self.words: list[str] = []
        self.command: Command | None = None
        self.rest = list(argv)
        self._take_words()

    @property
    def json(self) -> bool:
        """Whether --json was asked for, however wrong the rest is."""
        return "--json" in self.before or "--json" in before_dashes(self.rest)

    def _take_words(self) -> None:
        while self.rest and self.command is None:
            word = self.rest[0]
            if word == "--json" or word.startswith(tuple(f"{flag}=" for flag in self.VALUED)):
                self.before.append(self.rest.pop(0))
            elif word in self.VALUED and len(self.rest) > 1:
                self.before += [self.rest.pop(0), self.rest.pop(0)]
            elif word.startswith("-") or not self._take_word(word):
                break
        if self.command is None and self.words in (["project"], ["task"]) and not self._unclear():
            self.command = _find_command((self.words[0], "list"))

    def _take_word(self, word: str) -> bool:
        if not self.words:
            aliases = {alias: name for name, (alias, _) in GROUPS.items()}
            name = aliases.get(word, word)
            known = name in GROUPS or name in PROGRAMS or name in EXTRAS
            self.command = _find_command((name,))
        else:
            name = word
            self.command = _find_command((self.words[0], name))
            known = False
        if known or self.command is not None:
            self.words.append(name)
            self.rest.pop(0)
        return known and name in GROUPS or self.command is not None

    def _unclear(self) -> bool:
        first = self.rest[0] if self.rest else "--"
        return first in ("-h", "--help") or not first.startswith("-")


def _find_command(words: tuple) -> Command | None:
    for command in COMMANDS:
        if command.words == words or command.words[:-1] + (command.alias,) == words:
            return command
    return None


def success(command: str, data: object, project: str | None, agent: str | None) -> bytes:
    """Return the envelope of a success as one line of bytes (P 3.1)."""
    envelope = {"ok": True, "schema": SCHEMA, "command": command, "data": data}
    return encode_json({**envelope, "meta": {"project": project, "agent": agent}}) + b"\n"


def failure(command: str, error: TamError) -> bytes:
    """Return the envelope of a failure as one line of bytes (P 3.2)."""
    name = "startup" if isinstance(error, Startup) else command
    envelope = {"ok": False, "schema": SCHEMA, "command": name, "error": error.as_dict()}
    try:
        return encode_json(envelope) + b"\n"
    except BadJSON:  # a lone surrogate in what was quoted back: say it in escapes
        return json.dumps(envelope, default=str, separators=(",", ":")).encode("ascii") + b"\n"


def write_stdout(data: bytes) -> None:
    """Write to standard output (OSError)."""
    write_all(1, data)


def write_stderr(data: bytes) -> None:
    """Write to standard error, which may be closed or full: there is nowhere else to say so."""
    try:
        write_all(2, data)
    except OSError:
        return


def report(error: TamError, command: str, as_json: bool) -> None:
    """Tell of a failure on standard error, as an envelope or in words."""
    if as_json:
        write_stderr(failure(command, error))
        return
    paper = paper_for(2)
    paper.word("ERROR", error.message)
    try:
        paper.write()
    except OSError:
        return  # as in write_stderr


def paper_for(fd: int) -> Paper:
    """Return the paper for a descriptor, in the encoding of its stream."""
    stream = sys.stdout if fd == 1 else sys.stderr
    return Paper(fd, os.environ, getattr(stream, "encoding", None) or "utf-8")


def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's own); return the exit status (P 3.2)."""
    if argv is not None:
        return _main(argv)
    end_on_interrupt()
    status = _main(sys.argv[1:])
    if signal.getsignal(signal.SIGINT) in (_leave, signal.default_int_handler):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is over, and this is how it ended
    return status


def _main(argv: list[str]) -> int:
    argv = [utf8_text(word) for word in argv]
    try:
        _hold_descriptors()
        return _dispatch(argv)
    except BrokenPipeError:  # `tam task list | head -1`: the reader has seen enough
        return 0
    except KeyboardInterrupt:
        return 130
    except SystemExit as ended:  # argparse, after a help page
        return ended.code or 0
    except Exception as error:  # the last line of defence: nobody ever sees a traceback
        report(Tam().unexpected(error), "tam", "--json" in argv)
        return 1


def _hold_descriptors() -> None:
    # A closed standard stream would hand its number to the next file that is opened, and the
    # answer would be written into that file.
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            # Nothing can be read from it: a closed input is not an empty one.
            os.open(os.devnull, os.O_WRONLY if fd == 0 else os.O_RDWR)


def _dispatch(argv: list[str]) -> int:
    if argv and argv[0] in PROGRAMS:  # protocols start fast, and have options of their own
        return _run_program(argv[0], argv[1:])
    line = Line(argv)
    if line.words and line.words[0] in PROGRAMS:
        return _run_program(line.words[0], line.before + line.rest)
    name = line.command.operation.name if line.command else ".".join(line.words) or "tam"
    try:
        if line.command is None:
            return _without_command(line)
        return _run_command(line.command, line.before + line.rest)
    except TamError as error:
        report(error, name, line.json)
        legacy = line.command is not None and line.command.legacy and not line.json
        return 1 if legacy and not isinstance(error, Usage) else error.exit_status
    except BrokenPipeError:
        raise
    except OSError as error:
        done = "the command was carried out, but its answer cannot be written"
        report(Internal(f"{done}: {error.strerror}"), name, line.json)
        return 1


def _run_command(command: Command, argv: list[str]) -> int:
    parsed = vars(command_parser(command).parse_args(argv))
    as_json, project, agent = (parsed.pop(name) for name in ("json", "project", "agent"))
    _read_description(parsed)
    tam = Tam(project=project, agent=agent)
    try:
        if as_json:
            data = tam.call(command.operation.name, parsed)
            write_stdout(success(command.operation.name, data, tam.default_project() or None,
                                 tam.default_agent() or None))
        else:
            paper = paper_for(1)
            command.show(paper, _call_for_people(tam, command, parsed), parsed)
            paper.write()
    finally:
        tam.close()
    return 0


def _call_for_people(tam: Tam, command: Command, args: dict) -> object:
    data = tam.call(command.operation.name, args)
    if command.operation.name != "task.list" or "limit" in args:
        return data
    # People's list is whole, as it was in 1.0.13; agents page through it.
    while data["truncated"]:
        page = tam.call("task.list", {**args, "limit": LIMIT_MAX, "cursor": data["next_cursor"]})
        data = {**page, "tasks": data["tasks"] + page["tasks"]}
    return data


def _read_description(args: dict) -> None:
    path = args.pop("description_file", None)
    if path is not None and "description" in args:
        raise Usage("give --description or --description-file, not both")
    if path is None and args.get("description") != "-":
        return
    name = "standard input" if path is None else printable(path)
    source = 0 if path is None else argument_path(path)
    try:
        with open(source, "rb", closefd=path is not None) as file:
            args["description"] = _decoded(file.read(MAX_LINE + 1))
    except OSError as error:
        reason = "it is closed" if error.errno == errno.EBADF else error.strerror
        raise Invalid(f"The description cannot be read from {name}: {reason}",
                      argument="description") from None
    except UnicodeDecodeError as error:
        reason = f"{error.reason} at byte {error.start}"
        raise Invalid(f"The description in {name} is no UTF-8 text ({reason})",
                      argument="description") from None


def argument_path(text: str) -> str:
    """Return the path that a word of the command line names."""
    # In a locale that is not UTF-8 the words of the command line may be either encoding's.
    return text if os.path.exists(text) else native_path(text)


def _decoded(data: bytes) -> str:
    if len(data) > MAX_LINE:  # longer than anything sensible: its end may never come
        raise Invalid(
            f"The description has more than {MAX_LINE:,} bytes; at most {DESCRIPTION_MAX:,} are allowed",
            argument="description", length=len(data), limit=DESCRIPTION_MAX,
        )
    return data.decode("utf-8")


def _run_program(word: str, argv: list[str], called: str = "") -> int:
    module_name, function, _ = PROGRAMS[word]
    if signal.getsignal(signal.SIGINT) is _leave:  # it has a terminal or children to look after
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        module = __import__(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name:
            raise
        missing = Internal(
            f"`tam {called or word}` needs {module_name}.py beside {path_text(__file__)}:"
            " copy it there, or install tam-agent", missing_file=f"{module_name}.py",
        )
        report(missing, word, "--json" in argv)
        return missing.exit_status
    return getattr(module, function)(argv)


def _without_command(line: Line) -> int:
    if line.words and line.words[0] in EXTRAS:
        return EXTRAS[line.words[0]](line.before + line.rest)
    first = line.rest[0] if line.rest else None
    if first in ("-i", "--interactive") and not line.words:
        return _run_program("tick", ["--board"] + line.before + line.rest[1:], first)
    if first in ("-V", "--version") and not line.words:
        return _say(f"tam {VERSION}\n")
    if first in ("-h", "--help", "help") or first is None and not line.json:
        return _say(group_help(line.words[0]) if line.words else top_help())
    sentence, near = _what_is_wrong(first, line)
    end = "" if near else "."
    page = " ".join(["tam", *line.words])
    raise Usage(f"{sentence}{end} See `{page} -h`", **suggestion(near))


def _what_is_wrong(word: str | None, line: Line) -> tuple[str, str | None]:
    """Return the sentence for a word that is no command, and the word that was meant."""
    if word is None:
        return "a command is missing", None
    if word in Line.VALUED:
        return f"{word} needs a value", None
    after, flags, _ = _offered(Line(line.words), " ".join(line.words))
    dashed = word.startswith("-")
    near = nearest(word, flags if dashed else after)
    kind = "option" if dashed else "command"
    return f"unknown {kind} {printable(word)!r}{did_you_mean(near)}", near


def _say(text: str) -> int:
    paper = paper_for(1)
    paper.line(text.rstrip("\n"))
    paper.write()
    return 0


def group_help(group: str) -> str:
    """Return the help page of `tam project` or `tam task`."""
    alias, purpose = GROUPS[group]
    return (
        f"{purpose}; `tam {group}` alone lists them.\n\n"
        f"usage: tam {group} COMMAND [ARGUMENT…] (short: tam {alias} …)\n\n"
        f"commands:\n{_command_lines(group)}\n"
        f"`tam {group} COMMAND -h` tells a command's arguments, with examples.\n\n"
        f"{ENVIRONMENT}\n{EXIT_CODES}"
    )


def top_help() -> str:
    """Return the help page of `tam`."""
    groups = "\n".join(
        f"{name} (short: {alias}): {purpose.lower()}\n{_command_lines(name)}"
        for name, (alias, purpose) in GROUPS.items()
    )
    others = [
        (command.words[0], command.operation.summary)
        for command in COMMANDS if len(command.words) == 1
    ]
    others += [(name, purpose) for name, (_, _, purpose) in PROGRAMS.items()]
    others += [(name, run.__doc__.split("\n")[0].rstrip(".")) for name, run in EXTRAS.items()]
    return (
        f"tam {VERSION}: a task manager for coding agents and the people beside them.\n\n"
        "usage: tam [--json] [--project NAME] [--agent ID] COMMAND [ARGUMENT…]\n"
        "       tam -i | --interactive    open the board\n"
        "       tam -V | --version        print the version\n\n"
        f"{groups}\n"
        f"everything else:\n{_aligned(others)}\n"
        "examples:\n"
        "  tam project add website\n"
        '  tam task add "Fix login" --project website --priority 1\n'
        "  tam task next --claim --project website --agent agent-a --json\n"
        "  tam task done 1 --agent agent-a --json\n\n"
        "`tam COMMAND -h` tells more. With --json every answer is one JSON envelope: on standard\n"
        "output where it worked, on standard error where it did not.\n\n"
        f"{ENVIRONMENT}\n{EXIT_CODES}"
    )


def _command_lines(group: str) -> str:
    return _aligned([
        (", ".join(filter(None, (command.words[1], command.alias))), command.operation.summary)
        for command in COMMANDS if command.words[0] == group
    ])


def _aligned(rows: list[tuple]) -> str:
    width = max(len(name) for name, _ in rows)
    return "".join(f"  {name:<{width}}  {text}\n" for name, text in rows)


def _extra_parser(name: str, run: object, *arguments: tuple) -> argparse.ArgumentParser:
    parser = Parser(
        prog=f"tam {name}", description=run.__doc__, formatter_class=_help_formatter,
        allow_abbrev=False, add_help=False,
    )
    group = parser.add_argument_group("arguments")
    for metavar, words in arguments:
        group.add_argument(metavar.lower(), metavar=metavar, help=words)
    _add_globals(parser)
    return parser


def _give(name: str, text: str, as_json: bool) -> int:
    data = success(name, {"text": text}, None, None) if as_json else text.encode("utf-8")
    write_stdout(data)
    return 0


def guide(argv: list[str]) -> int:
    """Print the guide for agents (llms.txt)."""
    as_json = _extra_parser("guide", guide).parse_args(argv).json
    text = shipped("llms.txt")
    if text is None:
        raise Internal(
            "llms.txt is not beside tam.py: copy it there from the top of tam's source tree, or"
            " install the distribution tam-agent, which has it. `tam -h` tells the commands",
            missing_file="llms.txt",
        )
    return _give("guide", text.decode("utf-8"), as_json)


def own_bundle() -> str | None:
    """Return the archive that tam runs from, as it was named; None where it runs from files."""
    return getattr(globals().get("__loader__"), "archive", None)


def own_command() -> list[str]:
    """Return the words that start this very tam from any directory."""
    started = os.path.abspath(sys.argv[0])
    if os.path.basename(started) in ("tam", "tam.exe") and os.path.isfile(started):
        return [started]
    return [sys.executable or "python3", os.path.abspath(own_bundle() or __file__)]


def shipped(name: str) -> bytes | None:
    """Return a file that comes with tam, by its path in the source tree; None where it is not."""
    if own_bundle():
        try:
            return __loader__.get_data(os.path.join(own_bundle(), name))
        except OSError:
            return None
    for directory in _shipping_places():
        path = os.path.join(directory, name)
        if os.path.isfile(path):
            with open(path, "rb") as file:
                return file.read()
    return None


def _shipping_places() -> list[str]:
    """Return where tam's files may be: beside tam.py, or with the data of an installation."""
    import sysconfig

    here = os.path.dirname(os.path.abspath(__file__))
    user = sysconfig.get_path("data", sysconfig.get_preferred_scheme("user"))
    # `pip install --target DIR` puts the data below the modules' own directory.
    return [here] + [os.path.join(base, "share", "tam-agent")
                     for base in (sysconfig.get_path("data"), user, here)]


def completion(argv: list[str]) -> int:
    """Print the completion script for a shell: bash, zsh or fish."""
    parser = _extra_parser("completion", completion, ("SHELL", "bash, zsh or fish"))
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)  # what the scripts ask for
    parsed = parser.parse_args(argv)
    if parsed.shell not in COMPLETIONS:
        shells = ", ".join(COMPLETIONS)
        raise Invalid(f"shell: {printable(parsed.shell)!r} is not one of {shells}")
    if parsed.words:
        return _give("completion", "".join(word + "\n" for word in offers(parsed.words)), False)
    import shlex

    names = ["tam"] + ([os.path.basename(own_bundle())] if own_bundle() else [])
    script = COMPLETIONS[parsed.shell].replace("COMMAND", shlex.join(own_command()))
    return _give("completion", script.replace("NAMES", " ".join(names)), parsed.json)


#: Words and flags of the commands that are programs, whose own parsers are in other files.
PROGRAM_WORDS = {
    "mcp": ((), ("--project", "--agent", "--home", "--config", "--help")),
    "tick": (("host", "check"), ("--project", "--agent", "--json", "--help")),
    "tick host": ((), ("--help",)),
    "tick check": ((), ("--call", "--timeout", "--json", "--help")),
    "bundle": ((), ("--force", "--json", "--help")),
}
#: What may stand after a flag, where no schema says so; nothing where a text of one's own must.
FLAG_VALUES = {
    "--priority": tuple("12345"), "--assigned": (ME, UNASSIGNED),
    "--config": ("claude", "codex", "gemini", "vscode", "cursor", "json"),
    **dict.fromkeys(("--project", "--agent", "--home", "--call", "--timeout"), ()),
}
TOP_FLAGS = ("--json", "--project", "--agent", "--interactive", "--version", "--help")


def offers(words: list[str]) -> list[str]:
    """Return what the last of the words after `tam`, which is only begun, may become."""
    *typed, begun = words
    line = Line(typed)
    after, flags, values = _offered(line, " ".join(line.words))
    if typed and typed[-1] in values:
        offered = values[typed[-1]]
    else:
        offered = flags if begun.startswith("-") else after or flags
    return [word for word in offered if word.startswith(begun)]


def _offered(line: Line, path: str) -> tuple:
    """Return the words and the flags that may follow a line, and what may follow its flags."""
    if path in PROGRAM_WORDS:
        longer = " ".join([path, *line.rest[:1]])
        return (*PROGRAM_WORDS.get(longer, PROGRAM_WORDS[path]), FLAG_VALUES)
    if path in EXTRAS:
        shells = tuple(COMPLETIONS) if path == "completion" else ()
        return shells, _flags(_extra_parser(path, EXTRAS[path])), FLAG_VALUES
    if path in GROUPS:
        words = [command.words[1] for command in COMMANDS if command.words[0] == path]
        return words, _flags(command_parser(_find_command((path, "list")))), FLAG_VALUES
    if line.command is not None:
        parser = command_parser(line.command)
        return (), _flags(parser), _flag_values(parser, line.command.operation)
    top = [*GROUPS, *PROGRAMS, *EXTRAS, *(c.words[0] for c in COMMANDS if len(c.words) == 1)]
    return ((), (), FLAG_VALUES) if line.rest else (sorted(top), TOP_FLAGS, FLAG_VALUES)


def _flags(parser: argparse.ArgumentParser) -> list[str]:
    flags = [flag for action in parser._actions for flag in action.option_strings]
    return [flag for flag in flags if flag.startswith("--")]


def _flag_values(parser: argparse.ArgumentParser, operation: Operation) -> dict[str, tuple]:
    """Return what may follow each flag that takes a value: () for any text."""
    valued = [action for action in parser._actions if action.nargs != 0]
    return {
        flag: tuple(operation.properties.get(action.dest, {}).get("enum", ()))
        for action in valued for flag in action.option_strings
    } | FLAG_VALUES


#: The shells ask tam itself what fits. Where it offers nothing they offer the names of files.
BASH_COMPLETION = """\
_tam() {
  local IFS=$'\\n'
  COMPREPLY=($(COMMAND completion bash -- "${COMP_WORDS[@]:1:$((COMP_CWORD))}" 2>/dev/null))
}
complete -o default -F _tam NAMES
"""
COMPLETIONS = {
    "bash": '# bash completion for tam: put this into ~/.bashrc:  eval "$(tam completion bash)"\n'
    + BASH_COMPLETION,
    "zsh": '# zsh completion for tam: put this into ~/.zshrc:  eval "$(tam completion zsh)"\n'
    "autoload -Uz compinit bashcompinit\n"
    "(( $+functions[compdef] )) || compinit\nbashcompinit\n" + BASH_COMPLETION,
    "fish": """\
# fish completion for tam: tam completion fish > ~/.config/fish/completions/tam.fish
function __tam_offers
  set -l offers (COMMAND completion fish -- (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)
  test -n "$offers"; and printf '%s\\n' $offers; or __fish_complete_path (commandline -ct)
end
complete -f -a '(__tam_offers)' -c NAMES
""",
}
#: Commands of the program itself, beside the operations.
EXTRAS = {"guide": guide, "completion": completion}

if _COLLECTS:
    gc.freeze()  # what is loaded by now stays: no later look need pass over it
    gc.enable()


if __name__ == "__main__":
    sys.exit(main())
