"""For the tests of the Tick: a real process on real pipes, with a pseudo-terminal of its own."""
from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import sqlite3
import subprocess
import sys
import termios
import time
from collections.abc import Callable

import tam
import tam_tick
from support import DEADLINE, ROOT, closing, make_project, opened  # noqa: F401 (for the tests)

TICK = (sys.executable, str(ROOT / "tam.py"), "tick")
BOARD = (sys.executable, str(ROOT / "tam.py"), "-i")


class Process:
    """A program with pipes for its input and output, and a controlling terminal or none.

    Nothing is read in a thread: `pump` moves what has come since, and everything that waits pumps.
    The reference host would do much of this, but not for these tests: they write what no host may,
    leave pipes unread, compare the terminal's modes, and must not take over the host's mistakes.
    Only its screen serves here too: it is judged by tests of its own, character by character.
    """

    def __init__(
        self,
        argv: tuple[str, ...] = TICK,
        *,
        size: tuple[int, int] | None = (120, 30),
        piped: bool = True,
        env: dict | None = None,
    ) -> None:
        self.screen = tam_tick.HostScreen(*(size or (80, 24)))
        self.master, self.slave = pty.openpty() if size else (None, None)
        if size:
            self.resize(*size)
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
        self.reading = self.viewing = True
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
        sources = [self.master] if self.viewing and self.master is not None else []
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
            self.screen.feed(data)
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
        deadline = time.monotonic() + DEADLINE
        while time.monotonic() < deadline:
            found = seen()
            if found:
                return found
            if not self.pump(0.05) and self.popen.poll() is not None and not seen():
                break
        seen_last = f"{self.text()}\n{self.frames[-5:]}"
        raise AssertionError(f"{what} never came; this was seen last:\n{seen_last}")

    def text(self) -> str:
        """Return what the screen shows, without the blanks at the ends of its lines."""
        return "\n".join(line.rstrip() for line in self.screen.display)

    def sees(self, text: str) -> None:
        """Wait until the screen shows a text."""
        self.until(lambda: text in self.text(), repr(text))

    def loses(self, text: str) -> None:
        """Wait until the screen no longer shows a text."""
        self.until(lambda: text not in self.text(), f"the end of {text!r}")

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

    def press(self, keys: str) -> None:
        """Type what acts on what the screen shows, as one who has looked at it."""
        seen = time.monotonic() + 3 * tam_tick.REACTION
        while (left := seen - time.monotonic()) > 0:
            self.pump(left)
        self.type(keys)

    def resize(self, columns: int, rows: int) -> None:
        """Give the terminal another size; the kernel tells the program."""
        self.screen.resize(columns, rows)
        termios.tcsetwinsize(self.master, (rows, columns))

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
        deadline = time.monotonic() + DEADLINE
        while self.popen.poll() is None and time.monotonic() < deadline:
            self.pump(0.05)
        while self.pump(0.0):
            pass
        return self.popen.wait(timeout=DEADLINE)


def database() -> sqlite3.Connection:
    """Return a bare connection to the database of the test's home, which commits by itself."""
    return opened(sqlite3.connect(tam.Tam().config["db_file"], isolation_level=None))
