"""Run tam in this process, or as a process of its own where process behaviour is the point."""
from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import tam

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "tam.py"
#: Seconds after which a process that does not end is a failure; far above what any of them takes.
DEADLINE = 60


@contextlib.contextmanager
def ending() -> Iterator[None]:
    """Fail what goes on and on: of this process's own time it may take as much as DEADLINE."""
    def give_up(*_: object) -> None:
        raise AssertionError(f"still at work after {DEADLINE} s")

    before = signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, DEADLINE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


class Result:
    """How a command ended: `code`, what it wrote as text (`out`, `err`), and the envelope."""

    def __init__(self, code: int, out: bytes, err: bytes) -> None:
        self.code = code
        self.raw = out
        self.out = out.decode("utf-8")
        self.err = err.decode("utf-8")

    def __repr__(self) -> str:
        return f"<{self.code} out={self.out!r} err={self.err!r}>"

    @property
    def json(self) -> dict:
        """The one envelope, of the stream where it belongs; the other stream must be empty."""
        assert not (self.out and self.err), self
        text = self.err if self.code else self.out
        assert text.endswith("\n") and text.count("\n") == 1, self
        envelope = json.loads(text)
        assert envelope["ok"] is (self.code == 0), self
        return envelope

    @property
    def data(self) -> object:
        """The data of a success."""
        assert self.code == 0, self
        return self.json["data"]

    @property
    def error(self) -> dict:
        """The error of a failure."""
        assert self.code != 0, self
        return self.json["error"]


def run(*words: object, stdin: bytes = b"", **env: str) -> Result:
    """Run a command line in this process, with these environment variables beside the others."""
    before = dict(os.environ)
    files = [tempfile.TemporaryFile() for _ in range(3)]
    os.environ.update(env)
    try:
        files[0].write(stdin)
        files[0].seek(0)
        code = _redirected(files, [str(word) for word in words])
        for file in files:
            file.seek(0)
        return Result(code, files[1].read(), files[2].read())
    finally:
        for file in files:
            file.close()
        for name in env.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def _redirected(files: list, argv: list[str]) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    saved = [os.dup(fd) for fd in range(3)]
    try:
        for fd, file in enumerate(files):
            os.dup2(file.fileno(), fd)
        return tam.main(argv)
    finally:
        for fd, copy in enumerate(saved):
            os.dup2(copy, fd)
            os.close(copy)


def spawn(*words: object, stdin: bytes = b"", script: Path = SCRIPT, **env: str) -> Result:
    """Run a command line as a process of its own, where every warning is an error."""
    command = [sys.executable, "-W", "error", str(script), *words]
    ended = subprocess.run(
        command, input=stdin, capture_output=True, timeout=DEADLINE, env={**os.environ, **env}
    )
    return Result(ended.returncode, ended.stdout, ended.stderr)


_OPENED: list = []


def opened(thing: object) -> object:
    """Have something closed at the end of the test, and return it; `closing` must be there."""
    _OPENED.append(thing)
    return thing


@pytest.fixture(autouse=True)
def closing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close whatever a test has opened in this process: Python 3.13 warns of what is left open.

    A module whose tests open a tam imports this.
    """
    make = tam.Tam.__init__

    def remember(self: tam.Tam, **options: object) -> None:
        opened(self)
        make(self, **options)

    monkeypatch.setattr(tam.Tam, "__init__", remember)
    yield
    while _OPENED:
        _OPENED.pop().close()


def make_project(name: str = "p", tasks: int = 0, title: str = "Task {}") -> tam.Tam:
    """An opened tam in the scratch home, with a current project and so many tasks in it."""
    home = tam.Tam()
    home.call("project.add", {"name": name})
    home.call("project.use", {"name": name})
    for number in range(1, tasks + 1):
        home.call("task.add", {"title": title.format(number), "project": name})
    return home
