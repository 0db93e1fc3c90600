"""For the tests of the Tick: a real process on real pipes, with a pseudo-terminal of its own."""
from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import sqlite3
import struct
import subprocess
import sys
import termios
import time
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tam

ROOT = Path(__file__).resolve().parent.parent
#: Seconds that anything awaited may take; only what never comes takes so long.
PATIENCE = 20.0
TICK = (sys.executable, str(ROOT / "tam.py"), "tick")
BOARD = (sys.executable, str(ROOT / "tam.py"), "-i")

_ESCAPE = re.compile(
    r"\x1b(?:\[([?>!]?[0-9;:]*)([ -/]*[@-~])|[()][0-9A-Za-z]|\][^\x07]*\x07|([=>78DEHM]))"
)


class Screen:
    """As much of a terminal as shows what curses draws: text, cursor, erasing, scrolling."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.row = self.column = 0
        self.region = (0, rows - 1)
        self._last = " "
        self._rest = ""
        self._lines = [self._blank() for _ in range(rows)]

    def lines(self) -> list[str]:
        return ["".join(line).rstrip() for line in self._lines]

    def text(self) -> str:
        return "\n".join(self.lines())

    def resize(self, columns: int, rows: int) -> None:
        self.__init__(columns, rows)

    def feed(self, text: str) -> None:
        text = self._rest + text
        self._rest = ""
        at = 0
        while at < len(text):
            if text[at] != "\x1b":
                self._character(text[at])
                at += 1
                continue
            found = _ESCAPE.match(text, at)
            if found is None:
                self._rest = text[at:]
                return
            self._sequence(found)
            at = found.end()

    def _blank(self) -> list[str]:
        return [" "] * self.columns

    def _character(self, character: str) -> None:
        if character == "\r":
            self.column = 0
        elif character == "\n":
            self._down()
        elif character == "\b":
            self.column = max(self.column - 1, 0)
        elif character >= " ":
            self._put(character)

    def _put(self, character: str) -> None:
        if unicodedata.category(character) in ("Mn", "Me", "Cf"):
            self._lines[self.row][max(self.column - 1, 0)] += character
            return
        width = 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if self.column + width > self.columns:
            self.column = 0
            self._down()
        self._lines[self.row][self.column] = self._last = character
        if width == 2:
            self._lines[self.row][self.column + 1] = ""
        self.column += width

    def _down(self) -> None:
        if self.row == self.region[1]:
            self._scroll(1)
        else:
            self.row = min(self.row + 1, self.rows - 1)

    def _scroll(self, count: int) -> None:
        top, bottom = self.region
        for _ in range(abs(count)):
            if count > 0:
                del self._lines[top]
                self._lines.insert(bottom, self._blank())
            else:
                del self._lines[bottom]
                self._lines.insert(top, self._blank())

    def _sequence(self, found: re.Match) -> None:
        parameters, final, simple = found.groups()
        if simple == "M":
            if self.row == self.region[0]:
                self._scroll(-1)
            else:
                self.row -= 1
        if final is None or parameters[:1] in ("?", ">", "!"):
            return
        numbers = [int(n) if n else 0 for n in parameters.split(";")] if parameters else []
        action = self.ACTIONS.get(final)
        if action is not None:
            action(self, numbers, max(numbers[0], 1) if numbers else 1)

    def _move(self, row: int | None, column: int | None) -> None:
        if row is not None:
            self.row = min(max(row, 0), self.rows - 1)
        if column is not None:
            self.column = min(max(column, 0), self.columns - 1)

    def _erase(self, first: int, last: int) -> None:
        self._lines[self.row][first:last] = [" "] * (min(last, self.columns) - first)

    def _erase_line(self, kind: int) -> None:
        first, last = ((self.column, self.columns), (0, self.column + 1), (0, self.columns))[kind]
        self._erase(first, last)

    def _erase_screen(self, kind: int) -> None:
        if kind == 0:
            self._erase_line(0)
        for row in range(self.row + 1 if kind == 0 else 0, self.rows):
            self._lines[row] = self._blank()

    def _lines_at_cursor(self, count: int) -> None:
        region, self.region = self.region, (self.row, self.region[1])
        self._scroll(-count)
        self.region = region

    def _delete(self, count: int) -> None:
        line = self._lines[self.row]
        del line[self.column : self.column + count]
        line.extend([" "] * count)

    def _insert(self, count: int) -> None:
        line = self._lines[self.row]
        line[self.column : self.column] = [" "] * count
        del line[self.columns :]

    def _region(self, numbers: list[int]) -> None:
        top, bottom = [*numbers, 0, 0][:2]
        self.region = (max(top, 1) - 1, (bottom or self.rows) - 1)
        self._move(0, 0)

    ACTIONS: dict[str, Callable[[Screen, list[int], int], None]] = {
        "H": lambda s, n, c: s._move(max([*n, 1][0], 1) - 1, max([*n, 1, 1][1], 1) - 1),
        "d": lambda s, n, c: s._move(c - 1, None),
        "G": lambda s, n, c: s._move(None, c - 1),
        "A": lambda s, n, c: s._move(s.row - c, None),
        "B": lambda s, n, c: s._move(s.row + c, None),
        "C": lambda s, n, c: s._move(None, s.column + c),
        "D": lambda s, n, c: s._move(None, s.column - c),
        "J": lambda s, n, c: s._erase_screen([*n, 0][0]),
        "K": lambda s, n, c: s._erase_line([*n, 0][0]),
        "X": lambda s, n, c: s._erase(s.column, s.column + c),
        "b": lambda s, n, c: [s._put(s._last) for _ in range(c)],
        "L": lambda s, n, c: s._lines_at_cursor(c),
        "M": lambda s, n, c: s._lines_at_cursor(-c),
        "P": lambda s, n, c: s._delete(c),
        "@": lambda s, n, c: s._insert(c),
        "S": lambda s, n, c: s._scroll(c),
        "T": lambda s, n, c: s._scroll(-c),
        "r": lambda s, n, c: s._region(n),
    }


class Process:
    """A program with pipes for its input and output, and a controlling terminal or none.

    Nothing is read in a thread: `pump` moves what has come since, and everything that waits pumps.
    """

    def __init__(
        self,
        argv: tuple[str, ...] = TICK,
        *,
        size: tuple[int, int] | None = (120, 30),
        piped: bool = True,
        env: dict | None = None,
    ) -> None:
        self.screen = Screen(*(size or (80, 24)))
        self.master, self.slave = pty.openpty() if size else (None, None)
        if size:
            self.resize(*size, signalled=False)
        self.first_modes = self.modes() if size else b""
        inherited = {**os.environ, "TERM": "xterm-256color", **(env or {})}
        if piped:
            inherited["TICKLOOP_INSTANCE_ID"] = "test-instance"
        ends = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        if not piped:
            ends = {"stdin": self.slave, "stdout": self.slave}
        self.popen = subprocess.Popen(
            argv, **ends, stderr=self.slave if size else subprocess.PIPE, env=inherited,
            bufsize=0, start_new_session=True, preexec_fn=self._take_terminal if size else None,
        )
        self.frames: list[dict] = []
        self.raw = b""
        self.terminal_bytes = 0
        self.reading = True
        self._partial = b""
        self._next_id = 0

    def _take_terminal(self) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()
        for stream in (self.popen.stdin, self.popen.stdout, self.popen.stderr):
            if stream is not None:
                stream.close()
        for fd in (self.master, self.slave):
            if fd is not None:
                os.close(fd)

    # -- what it writes --

    def pump(self, seconds: float = 0.0) -> bool:
        """Move what the program has written into `frames` and `screen`; say if there was any."""
        sources = [fd for fd in (self.master,) if fd is not None]
        if self.reading and self.popen.stdout is not None:
            sources.append(self.popen.stdout.fileno())
        ready, _, _ = select.select(sources, [], [], seconds)
        return any([self._take(fd) for fd in ready])

    def _take(self, fd: int) -> bool:
        try:
            data = os.read(fd, 1 << 16)
        except OSError:
            data = b""
        if fd == self.master:
            self.terminal_bytes += len(data)
            self.screen.feed(data.decode("utf-8", "replace"))
            return bool(data)
        if not data:
            self.reading = False
            return True
        self.raw += data
        *lines, self._partial = (self._partial + data).split(b"\n")
        self.frames += [json.loads(line) for line in lines]
        return True

    def until(self, seen: Callable[[], object], what: str = "it") -> object:
        """Pump until `seen` returns something true, and return that."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            found = seen()
            if found:
                return found
            if not self.pump(0.05) and self.popen.poll() is not None and not seen():
                break
        seen_last = f"{self.screen.text()}\n{self.frames[-5:]}"
        raise AssertionError(f"{what} never came; this was seen last:\n{seen_last}")

    def sees(self, text: str) -> None:
        """Wait until the screen shows a text."""
        self.until(lambda: text in self.screen.text(), repr(text))

    def loses(self, text: str) -> None:
        """Wait until the screen no longer shows a text."""
        self.until(lambda: text not in self.screen.text(), f"the end of {text!r}")

    # -- what it gets --

    def send(self, line: bytes) -> None:
        tam.write_all(self.popen.stdin.fileno(), line + b"\n")

    def request(self, method: str, params: dict | None = None) -> int:
        """Send a request and return its id."""
        self._next_id += 1
        body = {"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": params or {}}
        self.send(tam.encode_json(body))
        return self._next_id

    def answer(self, request_id: int) -> dict:
        """Wait for the answer to a request."""
        def found() -> list[dict]:
            return [frame for frame in self.frames if frame.get("id") == request_id]
        return self.until(found, f"answer {request_id}")[0]

    def ask(self, method: str, params: dict | None = None) -> dict:
        return self.answer(self.request(method, params))

    def describe(self) -> dict:
        return self.ask("tick/describe")["result"]

    def read(self) -> dict:
        return self.ask("tick/read")["result"]

    def call(self, tool: str, **args: object) -> dict:
        """Call a tool by the newest catalogue and return the whole answer."""
        params = {"tool": tool, "args": args, "revision": self.describe()["revision"]}
        return self.ask("tick/call", params)

    def updates(self) -> list[dict]:
        return [frame["params"] for frame in self.frames if frame.get("method") == "tick/update"]

    def update(self, fits: Callable[[dict], object], what: str = "the update") -> dict:
        """Wait for an update whose data fits, and return its parameters."""
        def found() -> list[dict]:
            return [update for update in self.updates() if fits(update["data"])]
        return self.until(found, what)[0]

    def type(self, keys: str) -> None:
        tam.write_all(self.master, keys.encode("utf-8"))

    def resize(self, columns: int, rows: int, signalled: bool = True) -> None:
        """Give the terminal another size; the kernel tells the program."""
        self.screen.resize(columns, rows)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def modes(self) -> bytes:
        """Return what `stty -a` tells of the terminal."""
        return subprocess.run(
            ["stty", "-a"], stdin=self.slave, capture_output=True, check=True
        ).stdout

    def end_of_input(self) -> None:
        self.popen.stdin.close()

    def signal(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def wait(self) -> int:
        """Wait for the end, reading all that is still to come; return the status."""
        deadline = time.monotonic() + PATIENCE
        while self.popen.poll() is None and time.monotonic() < deadline:
            self.pump(0.05)
        while self.pump(0.0):
            pass
        return self.popen.wait(timeout=1)


_OPENED: list = []


@pytest.fixture(autouse=True)
def closed_stores() -> Iterator[None]:
    """Close what `store` and `database` have opened; a test module imports this to have it."""
    yield
    while _OPENED:
        _OPENED.pop().close()


def store(**options: object) -> tam.Tam:
    """Return a Tam of another process's kind: a connection of its own on the test's home."""
    _OPENED.append(tam.Tam(**options))
    return _OPENED[-1]


def database() -> sqlite3.Connection:
    """Return a bare connection to the database of the test's home, which commits by itself."""
    _OPENED.append(sqlite3.connect(store().config["db_file"], isolation_level=None))
    return _OPENED[-1]


def fill(project: str, count: int = 0, title: str = "Task {}") -> tam.Tam:
    """Make a project with tasks, make it the current one, and return the Tam that did it."""
    home = store()
    home.call("project.add", {"name": project})
    home.call("project.use", {"name": project})
    for number in range(1, count + 1):
        home.call("task.add", {"title": title.format(number), "project": project})
    return home
