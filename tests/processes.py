"""Processes under test: workers that import tam, and children without the rights of root."""
from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from support import DEADLINE, ROOT, Result

DATA = Path(__file__).resolve().parent / "data"
#: A user that owns nothing, for what root's rights would hide.
NOBODY = 65534

#: What a worker needs before it begins; `go()` returns when every worker of the test is ready.
PREAMBLE = """
import json, os, sys
import tempfile
import tam

def answer(value):
    tam.write_all(1, json.dumps(value).encode() + b"\\n")

def go():
    answer("ready")
    sys.stdin.readline()
"""
#: What tam imports late is imported before, since root's own Python may be out of reach after.
DROP_RIGHTS = f"""
import locale, logging.handlers, mmap, shutil, tomllib, traceback, unicodedata
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid({NOBODY})
    os.setuid({NOBODY})
"""


def python(code: str, *args: object, **env: str) -> subprocess.Popen:
    """Start a process that imports tam and runs `code`; its standard streams are pipes."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PREAMBLE + code, *map(str, args)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
    )


def finish(process: subprocess.Popen) -> Result:
    """Wait for the end of a process; return what it wrote."""
    out, err = process.communicate(timeout=DEADLINE)
    return Result(process.returncode, out, err)


def together(processes: list[subprocess.Popen]) -> list[Result]:
    """Let workers that call `go()` begin in one moment; return how each of them ended."""
    for process in processes:
        line = process.stdout.readline()
        assert line == b'"ready"\n', (line, process.stderr.read())
    for process in processes:
        process.stdin.write(b"\n")
        process.stdin.flush()
    return [finish(process) for process in processes]


def answers(result: Result) -> list:
    """Return what a worker gave to `answer`; a worker that failed is a failure."""
    assert result.code == 0 and not result.err, result
    return [json.loads(line) for line in result.out.splitlines() if line != '"ready"']


def without_rights(*commands: tuple, **env: str) -> list[Result]:
    """Run command lines with --json as a user who owns nothing here, all in one process."""
    code = DROP_RIGHTS + """
for words in json.loads(sys.argv[1]):
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        saved = os.dup(1), os.dup(2)
        os.dup2(out.fileno(), 1), os.dup2(err.fileno(), 2)
        code = tam.main([*words, "--json"])
        os.dup2(saved[0], 1), os.dup2(saved[1], 2)
        answer([code, *(os.pread(file.fileno(), 10_000_000, 0).decode() for file in (out, err))])
"""
    ended = answers(finish(python(code, json.dumps(commands), **env)))
    return [Result(code, out.encode(), err.encode()) for code, out, err in ended]


def fill(directory: Path, spare: int) -> Path:
    """Fill a file system up to `spare` bytes; return the file to delete for room."""
    ballast = directory / "ballast"
    with open(ballast, "wb", buffering=0) as file:
        with pytest.raises(OSError):
            while True:
                file.write(b"x" * 4096)
        file.truncate(file.tell() - spare)
    return ballast


def leave_wal(path: Path, *statements: str) -> None:
    """Commit into the WAL of a file and die before it is moved into the file."""
    code = """
import signal, sqlite3
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA journal_mode = WAL")
for statement in sys.argv[2:]:
    db.execute(statement)
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert finish(python(code, path, *statements)).code == -signal.SIGKILL
    assert os.path.getsize(f"{path}-wal") > 0


def legacy_home(home: Path, kind: str = "typical") -> Path:
    """Put a home of tam 1.0.13 (or of a v1 file) at `home`; return its database file."""
    home.mkdir(parents=True, exist_ok=True)
    config = (DATA / "v0" / kind / "tam.config.toml").read_text("utf-8")
    (home / "tam.config.toml").write_text(config.replace("@HOME@", str(home.parent)), "utf-8")
    shutil.copyfile(DATA / "v0" / kind / "tam.db3", home / "tam.db3")
    return home / "tam.db3"


def query(path: Path, sql: str, *parameters: object) -> list[tuple]:
    """Return the rows of a statement, by a connection that has nothing to do with tam."""
    db = sqlite3.connect(path, isolation_level=None)
    try:
        return db.execute(sql, parameters).fetchall()
    finally:
        db.close()


def files(directory: Path) -> dict[str, bytes | None]:
    """Return the content of everything under `directory` by relative name."""
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None
        for path in sorted(directory.rglob("*"))
    }
