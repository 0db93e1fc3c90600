"""`tam bundle`: one file that is tam, the same wherever it was made and run."""
from __future__ import annotations

import json
import os
import shlex
import shutil
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import tam
import tam_mcp

from support import DEADLINE, ROOT, SCRIPT, Result, run
from test_script import OLD_PYTHONS


def command(*words: object, cwd: object = "/", **env: str) -> Result:
    """Run a program."""
    ended = subprocess.run(
        list(map(str, words)), stdin=subprocess.DEVNULL, capture_output=True, cwd=cwd,
        timeout=DEADLINE, env={**os.environ, **env},
    )
    return Result(ended.returncode, ended.stdout, ended.stderr)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of this source tree, in a folder with a space and Chinese in its name."""
    path = tmp_path_factory.mktemp("one file") / "中文" / "tam.pyz"
    path.parent.mkdir()
    assert command(sys.executable, SCRIPT, "bundle", path).code == 0
    return path


def test_it_is_an_archive_that_zipapp_would_make_with_bytecode_and_texts(made: Path) -> None:
    assert made.read_bytes().startswith(b"#!/usr/bin/env python3\nPK")
    with zipfile.ZipFile(made) as archive:
        held = {entry.filename: entry for entry in archive.infolist()}
        assert all(entry.compress_type == zipfile.ZIP_STORED for entry in held.values())
        for name in (*tam_mcp.MODULES, *tam_mcp.TEXTS):
            assert archive.read(name) == (ROOT / name).read_bytes(), name
    assert {"__main__.py", "__main__.pyc", *(name + "c" for name in tam_mcp.MODULES)} <= set(held)


def test_the_mode_is_what_the_umask_leaves_of_0755(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    for mask, mode in ((0o022, 0o755), (0o077, 0o700)):
        before = os.umask(mask)
        try:
            assert command(sys.executable, SCRIPT, "bundle", place / "tam.pyz").code == 0
        finally:
            os.umask(before)
        assert stat.S_IMODE((place / "tam.pyz").stat().st_mode) == mode
    assert os.listdir(place) == ["tam.pyz"]


def test_every_origin_gives_the_same_bytes(made: Path, tmp_path: Path) -> None:
    copies = tmp_path / "copies"
    copies.mkdir()
    for name in (*tam_mcp.MODULES, *tam_mcp.TEXTS):
        (copies / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copies / name)
    (tmp_path / "python3").symlink_to(sys.executable)  # other versions make other bytecode
    path = f"{tmp_path}:{os.environ['PATH']}"
    for number, words in enumerate((
        [made], [sys.executable, made], [sys.executable, copies / "tam.py"],
        [sys.executable, "-OO", copies / "tam.py"],
    )):
        again = tmp_path / f"{number}.pyz"
        assert command(*words, "bundle", again, PATH=path, PYTHONHASHSEED=str(number)).code == 0
        assert again.read_bytes() == made.read_bytes(), words


def test_copied_modules_make_one_without_the_texts_and_say_so(tmp_path: Path) -> None:
    for name in tam_mcp.MODULES:
        shutil.copy(ROOT / name, tmp_path)
    told = command(sys.executable, tmp_path / "tam.py", "bundle", "x.pyz", cwd=tmp_path)
    assert told.code == 0 and "Not beside this tam, and so not in it: llms.txt, LICENSE" in told.out
    error = command(sys.executable, tmp_path / "x.pyz", "guide", "--json").error
    assert error["details"] == {"missing_file": "llms.txt"}
    assert command(sys.executable, tmp_path / "x.pyz", "mcp", "-h").code == 0


def test_without_a_module_there_is_no_bundle(tmp_path: Path) -> None:
    for name in ("tam.py", "tam_mcp.py"):
        shutil.copy(ROOT / name, tmp_path)
    told = command(sys.executable, "-S", tmp_path / "tam.py", "bundle", tmp_path / "x", "--json")
    assert told.code == 1 and "tam_tick.py" in told.error["details"]["missing_files"]
    (tmp_path / "tam_mcp.py").unlink()
    told = command(sys.executable, "-S", tmp_path / "tam.py", "bundle", tmp_path / "x")
    assert told.code == 1 and "`tam bundle` needs tam_mcp.py beside" in told.err
    assert not (tmp_path / "x").exists()


def test_what_is_there_is_replaced_only_if_it_is_a_bundle(made: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    refused = run("bundle", str(mine), "--json")
    assert (refused.code, refused.error["code"]) == (4, "conflict")
    assert "--force" in refused.error["message"] and mine.read_text() == "mine"
    assert run("bundle", str(mine), "--force").code == 0
    assert mine.read_bytes() == made.read_bytes() and os.access(mine, os.X_OK)
    mine.write_bytes(made.read_bytes() + b"older")
    assert run("bundle", str(mine)).code == 0 and mine.read_bytes() == made.read_bytes()


@pytest.mark.parametrize("where", ["", "missing/x.pyz", "big.pyz"])
def test_where_it_cannot_be_written_one_line_says_why(tmp_path: Path, where: str) -> None:
    place = tmp_path / "place"
    place.mkdir()
    words = f"{shlex.quote(sys.executable)} {shlex.quote(str(SCRIPT))} bundle --force"
    told = command("sh", "-c", f'ulimit -f 100; {words} "$0"', place / where)
    assert told.code == 1 and told.err.count("\n") == 1
    assert told.err.startswith("ERROR cannot write") and "Nothing was changed" in told.err
    assert list(place.iterdir()) == []


# -- it does what the installed tam does --


def test_all_commands_work(made: Path) -> None:
    assert command(made, "project", "add", "p").code == 0
    assert command(made, "task", "add", "t", "--project", "p", "--json").data["task"]["id"] == 1
    assert command(made, "guide").out == (ROOT / "llms.txt").read_text("utf-8")
    assert command(made, "-V").out == f"tam {tam.VERSION}\n"
    assert str(made) in command(made, "completion", "bash").out
    assert "tam tam.pyz" in command(made, "completion", "fish").out
    assert command(made, "completion", "bash", "--", "task", "he").out == "heartbeat\n"
    config = json.loads(command("./tam.pyz", "mcp", "--config", "json", cwd=made.parent).out)
    entry = config["mcpServers"]["tam"]
    assert entry["args"][:2] == [str(made), "mcp"] and command(entry["command"], "-V").code == 0
    requests = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n'
    served = subprocess.run([entry["command"], *entry["args"]], input=requests,
                            capture_output=True, timeout=DEADLINE)
    assert len(json.loads(served.stdout)["result"]["tools"]) == len(tam_mcp.TOOLS)


def test_it_is_a_tick_that_passes_its_own_check(made: Path) -> None:
    assert command(made, "project", "add", "p").code == 0
    told = command(made, "tick", "check", "--call", "task_create", '{"title": "x"}', "--", made,
                   "tick", "--project", "p")
    assert told.code == 0 and "conforms (outcome ok)" in told.out, told.out


def test_it_runs_through_a_link_and_where_nothing_may_be_written(
    made: Path, tmp_path: Path
) -> None:
    place = tmp_path / "read only"
    place.mkdir()
    shutil.copy(made, place / "tam.pyz")
    (tmp_path / "tam-link").symlink_to(place / "tam.pyz")
    place.chmod(0o555)
    try:
        assert command(tmp_path / "tam-link", "project", "add", "p").code == 0
        config = json.loads(command(tmp_path / "tam-link", "mcp", "--config", "json").out)
        assert config["mcpServers"]["tam"]["args"][0] == str(tmp_path / "tam-link")
        assert os.listdir(place) == ["tam.pyz"]
    finally:
        place.chmod(0o755)


def test_another_python_runs_the_source_inside(made: Path, tmp_path: Path) -> None:
    """Bytecode of another version is told by its first bytes; here they are made wrong."""
    repaired = tmp_path / "repaired.pyz"
    with zipfile.ZipFile(made) as source, zipfile.ZipFile(repaired, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            target.writestr(name, b"\0\0\r\n" + data[4:] if name.endswith(".pyc") else data)
    assert command(sys.executable, repaired, "project", "add", "p").code == 0


@pytest.mark.skipif(not OLD_PYTHONS, reason="no older Python on this machine")
def test_an_older_python_is_told_which_it_needs(made: Path) -> None:
    for interpreter in OLD_PYTHONS:
        told = command(interpreter, made, "task", "list")
        assert told.code == 1 and told.err.startswith("tam needs Python 3.11 or newer; this is")
        assert told.err.count("\n") == 1
