"""Shared by every test: the path to the modules, and a home that is never the real one."""
from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

#: What a tam process under test may inherit; everything else of the caller's environment stays out.
KEPT = ("PATH", "LANG", "LC_ALL", "TERM", "TMPDIR", "VIRTUAL_ENV", "COVERAGE_PROCESS_START")


@pytest.fixture(autouse=True)
def scratch_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point HOME and TAM_HOME into the test's own directory, and clear what would steer tam."""
    for name in list(os.environ):
        if name.startswith(("TAM_", "TICKLOOP_")):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("TAM_HOME", str(home / ".tam"))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", os.environ.get("PYTHONDONTWRITEBYTECODE", ""))
    return home / ".tam"
