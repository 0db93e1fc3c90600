"""Files of tam 1.0.13 and of schema v1: they open and lose nothing, or stay as they are.

Contract, data model and migration (P 2.1, P 7 item 2).
"""
from __future__ import annotations

import os
import signal
import sqlite3
from pathlib import Path

import pytest
import tam

from processes import (
    files, fill, finish, leave_wal, legacy_home, python, query, together, without_rights,
)
from support import run

#: The columns that 1.0.13 knows; storage classes too, since a migration must not convert values.
OLD_TASKS = (
    "SELECT id, title, content, created, updated, status, project_id, is_deleted, typeof(title),"
    " typeof(content), typeof(status), typeof(is_deleted), typeof(created) FROM task ORDER BY id"
)
OLD_PROJECTS = "SELECT id, name, created, updated, is_deleted FROM project ORDER BY id"
COLUMNS = "SELECT name, type, \"notnull\", dflt_value FROM pragma_table_info('task')"
NEW_COLUMNS = {
    "priority": ("INTEGER", "3"), "tags": ("TEXT", "''"), "assigned_agent": ("TEXT", None),
    "lease_expires_at": ("INTEGER", None), "revision": ("INTEGER", "1"),
    "idempotency_key": ("TEXT", None),
}
READS = (
    ("task", "list"), ("task", "show", "1"), ("task", "events", "1"), ("task", "next"),
    ("status",), ("history",), ("project", "list"), ("project", "current"),
)


def old_rows(path: Path) -> tuple[list, list]:
    return query(path, OLD_TASKS), query(path, OLD_PROJECTS)


def version(path: Path) -> int:
    return query(path, "PRAGMA user_version")[0][0]


def tables(path: Path) -> dict[str, str]:
    return dict(query(path, "SELECT name, sql FROM sqlite_master"))


def big_legacy_file(path: Path, count: int) -> None:
    """Add `count` tasks to a v0 file, as 1.0.13 would."""
    db = sqlite3.connect(path)
    with db:
        db.executemany(
            "INSERT INTO task(title, project_id, status) VALUES (?, 1, ?)",
            ((f"bulk task {number}", number % 3) for number in range(count)),
        )
    db.close()


# -- what a migration does --


def test_p7_item_2_a_v0_file_gets_columns_tables_indexes_and_a_backup(scratch_home: Path) -> None:
    path = legacy_home(scratch_home)
    original, rows = path.read_bytes(), old_rows(path)
    listed = run("task", "list", "--json")
    assert listed.code == 0
    assert version(path) == 2
    columns = {name: (kind, default) for name, kind, _, default in query(path, COLUMNS)}
    assert NEW_COLUMNS.items() <= columns.items()
    found = tables(path)
    assert {"task_events", "idx_task_project_status", "idx_task_assignee"} <= found.keys()
    assert "is_deleted = 0" in found["idx_task_idempotency"]
    assert old_rows(path) == rows
    assert query(path, "PRAGMA integrity_check") == [("ok",)]
    backup = scratch_home / "tam.db3.bak.v1"
    assert backup.read_bytes() == original
    assert version(backup) == 0


def test_p7_item_2_running_again_changes_nothing(scratch_home: Path) -> None:
    path = legacy_home(scratch_home)
    assert run("task", "list", "--json").code == 0
    before = files(scratch_home)
    for words in READS:
        assert run(*words, "--json").code == 0
    assert files(scratch_home) == before
    assert run("task", "add", "one more", "--json").code == 0
    assert len(old_rows(path)[0]) == 41
    assert files(scratch_home)["tam.db3.bak.v1"] == before["tam.db3.bak.v1"]


def test_p7_item_2_the_home_of_the_user_is_not_touched(
    scratch_home: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    real = legacy_home(scratch_home)
    before = files(real.parent)
    for words in (("project", "add", "p"), ("task", "add", "t", "--project", "p")):
        assert run(*words, "--json", TAM_HOME=str(elsewhere)).code == 0
    assert files(real.parent) == before
    assert (elsewhere / "tam.db3").exists()


def test_old_tasks_have_the_defaults_and_go_through_the_whole_life_of_a_lease(
    scratch_home: Path,
) -> None:
    path = legacy_home(scratch_home)
    rows = old_rows(path)
    task = run("task", "next", "--claim", "--agent", "a", "--json").data["task"]
    assert (task["id"], task["status"], task["priority"], task["revision"]) == (
        20, "in-progress", 3, 2  # the oldest of the open tasks
    )
    number = task["id"]
    assert run("task", "heartbeat", number, "--agent", "a", "--json").data["task"]["revision"] == 3
    assert run("task", "done", number, "--agent", "a", "--json").data["task"]["status"] == "done"
    events = run("task", "events", number, "--json").data["events"]
    assert [event["event"] for event in events] == ["claimed", "heartbeat", "completed"]
    others = [row for row in old_rows(path)[0] if row[0] != number]
    assert others == [row for row in rows[0] if row[0] != number]


def test_counts_of_a_migrated_file_are_those_of_its_rows(scratch_home: Path) -> None:
    path = legacy_home(scratch_home)
    live = query(path, "SELECT status FROM task WHERE project_id = 1 AND is_deleted = 0")
    counts = run("status", "--json").data["counts"]
    assert list(counts.values()) == [live.count((number,)) for number in range(3)] == [9, 3, 5]


def test_a_v1_file_gets_the_new_index_and_no_backup(scratch_home: Path) -> None:
    path = legacy_home(scratch_home, "v1")
    rows = query(path, "SELECT * FROM task ORDER BY id")
    assert run("task", "list", "--json").code == 0
    assert version(path) == 2
    assert query(path, "SELECT * FROM task ORDER BY id") == rows
    assert "is_deleted = 0" in tables(path)["idx_task_idempotency"]
    assert not list(scratch_home.glob("*.bak*"))


def test_a_key_of_a_deleted_v1_task_can_be_used_again(scratch_home: Path) -> None:
    legacy_home(scratch_home, "v1")
    again = run("task", "add", "again", "--idempotency-key", "k-2", "--json").data
    assert (again["deduplicated"], again["task"]["id"]) == (False, 41)
    same = run("task", "add", "again", "--idempotency-key", "k-1", "--json").data
    assert (same["deduplicated"], same["task"]["id"]) == (True, 1)


def test_a_new_file_and_an_empty_file_get_no_backup(scratch_home: Path) -> None:
    scratch_home.mkdir()
    (scratch_home / "tam.db3").touch()
    assert run("project", "add", "p", "--json").code == 0
    assert version(scratch_home / "tam.db3") == 2
    assert not list(scratch_home.glob("*.bak*"))


def test_an_existing_backup_stays(scratch_home: Path) -> None:
    legacy_home(scratch_home)
    backup = scratch_home / "tam.db3.bak.v1"
    backup.write_bytes(b"an earlier one")
    assert run("task", "list", "--json").code == 0
    assert backup.read_bytes() == b"an earlier one"


def test_a_backup_is_made_where_hard_links_are_not_allowed(
    scratch_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    path = legacy_home(scratch_home)
    backup = scratch_home / "tam.db3.bak.v1"
    original = path.read_bytes()
    monkeypatch.setattr(os, "link", refuse)
    assert run("task", "list", "--json").code == 0
    assert backup.read_bytes() == original
    tam.replace_file(str(backup), b"another one", overwrite=False)
    assert backup.read_bytes() == original
    assert not list(scratch_home.glob("*.tmp"))


# -- files in a poor state --


def test_an_unfinished_wal_is_part_of_a_v0_file_and_of_its_backup(scratch_home: Path) -> None:
    path = legacy_home(scratch_home)
    leave_wal(path, "INSERT INTO task(title, project_id) VALUES ('only in the WAL', 1)")
    tasks = run("task", "list", "--json").data["tasks"]
    assert tasks[0]["title"] == "only in the WAL"
    backup = scratch_home / "tam.db3.bak.v1"
    assert query(backup, "SELECT count(*) FROM task") == [(41,)]
    assert version(backup) == 0


@pytest.mark.parametrize("columns", [1, 3, 6])
def test_a_migration_cut_off_after_some_columns_is_finished(
    scratch_home: Path, columns: int
) -> None:
    path = legacy_home(scratch_home)
    rows = old_rows(path)
    for name, kind in list(tam.V1_COLUMNS.items())[:columns]:
        query(path, f"ALTER TABLE task ADD COLUMN {name} {kind}")
    if columns == 6:
        query(path, "CREATE UNIQUE INDEX idx_task_idempotency ON task(project_id, idempotency_key)")
    assert run("task", "next", "--claim", "--agent", "a", "--json").code == 0
    assert version(path) == 2
    assert "is_deleted = 0" in tables(path)["idx_task_idempotency"]
    assert [row[0] for row in old_rows(path)[0]] == [row[0] for row in rows[0]]


@pytest.mark.parametrize("mark", ["PRAGMA application_id = 0", "PRAGMA user_version = 0"])
def test_a_file_that_lost_its_marks_on_the_way_through_a_dump_is_marked_again(
    scratch_home: Path, mark: str
) -> None:
    path = legacy_home(scratch_home)
    assert run("task", "claim", "1", "--agent", "a", "--json").code == 0
    rows = query(path, "SELECT * FROM task ORDER BY id")
    counts = run("status", "--json").data
    query(path, mark)
    assert run("status", "--json").data == counts
    assert query(path, "SELECT * FROM task ORDER BY id") == rows
    assert version(path) == 2
    assert run("task", "add", "t", "--json").code == 0


def test_a_file_of_the_first_layout_gets_what_came_later_once_and_keeps_its_marks(
    scratch_home: Path,
) -> None:
    path = legacy_home(scratch_home)
    assert run("task", "update", "1", "--tags", "bug,web", "--json").code == 0
    rows = query(path, "SELECT * FROM task ORDER BY id")
    marks = query(path, tam.VERSIONS)
    for name, kind in query(path, "SELECT name, type FROM sqlite_master ORDER BY type = 'table'"):
        if name.startswith(("task_tag", "idx_task_level", "idx_task_agent", "idx_task_odd",
                            "idx_task_column")):
            query(path, f"DROP {kind} {name}")
    query(path, "CREATE INDEX idx_task_status ON task(project_id, status)")
    assert query(path, tam.VERSIONS) != marks
    assert run("task", "list", "--tag", "web", "--json").data["tasks"][0]["id"] == 1
    assert query(path, "SELECT * FROM task ORDER BY id") == rows
    assert query(path, tam.VERSIONS) == marks
    assert "idx_task_status" not in tables(path)
    query(path, "CREATE INDEX idx_task_status ON task(project_id, status)")  # an earlier tam's
    before = files(scratch_home)
    assert run("task", "list", "--tag", "bug", "--json").data["total"] == 1
    assert files(scratch_home) == before


def test_1_0_13_goes_on_writing_to_a_file_with_tags(scratch_home: Path) -> None:
    path = legacy_home(scratch_home)
    assert run("task", "update", "1", "--tags", "bug,web", "--json").code == 0
    query(path, "INSERT INTO task(title, project_id) VALUES ('written by 1.0.13', 1)")
    for status, word in enumerate(tam.STATUSES):
        query(path, "UPDATE task SET status = ? WHERE id = 1", status)
        found = run("task", "list", "--tag", "web", "--status", word, "--json").data
        assert [task["id"] for task in found["tasks"]] == [1]
    query(path, "UPDATE task SET is_deleted = 1 WHERE id = 1")
    assert run("task", "list", "--tag", "bug", "--json").data["total"] == 0


def test_a_v0_file_that_lost_its_task_table_gets_it(scratch_home: Path) -> None:
    path = legacy_home(scratch_home)
    query(path, "DROP TABLE task")
    assert run("task", "add", "first", "--json").data["task"]["project"] == "tam"
    assert (scratch_home / "tam.db3.bak.v1").exists()


def test_nulls_bad_bytes_and_orphans_neither_crash_a_read_nor_change(scratch_home: Path) -> None:
    path = legacy_home(scratch_home)
    for statement in (
        "UPDATE task SET content = NULL WHERE id = 1",
        "UPDATE task SET is_deleted = NULL, created = NULL, updated = NULL WHERE id = 2",
        "UPDATE task SET title = CAST(X'ff66c328' AS TEXT), content = X'fffe00' WHERE id = 7",
        "UPDATE project SET is_deleted = NULL, created = NULL WHERE id = 1",
        "INSERT INTO project(name) VALUES (CAST(X'636166e9' AS TEXT))",
        "INSERT INTO task(id, title, project_id) VALUES (900, 'orphan', 77)",
    ):
        query(path, statement)
    query(path, "DROP TRIGGER task_update_timestamp")
    query(path, "UPDATE task SET updated = NULL WHERE id = 2")
    raw = (
        "SELECT id, CAST(title AS BLOB), CAST(content AS BLOB), typeof(content), created, updated,"
        " is_deleted, project_id FROM task ORDER BY id"
    )
    before = query(path, raw)
    data = run("task", "list", "--limit", "1000", "--json").data
    shown = {task["id"]: task for task in data["tasks"]}
    assert data["count"] == data["total"] == 17
    assert shown[1]["description"] == ""
    assert (shown[2]["created"], shown[2]["updated"]) == (None, None)
    assert shown[7]["title"].startswith("\ufffdf")
    assert 900 not in shown
    tam_, pages, cursor = tam.Tam(env=dict(os.environ)), [], {}
    while cursor is not None:
        page = tam_.call("task.list", {"limit": 2, **cursor})
        pages += [task["id"] for task in page["tasks"]]
        cursor = {"cursor": page["next_cursor"]} if page["truncated"] else None
    tam_.close()
    assert pages == [task["id"] for task in data["tasks"]]
    odd = ("task", "show", "2"), ("task", "show", "7"), ("task", "list", "--search", "é")
    for words in (*READS, *odd):
        assert run(*words, "--json").code == 0, words
        assert run(*words).code == 0, words
    assert run("task", "show", "900", "--json").error["code"] == "not_found"
    assert "caf\ufffd" in [project["name"] for project in run("project", "list", "--json").data]
    assert query(path, raw) == before


def test_a_row_with_nulls_can_be_worked_on(scratch_home: Path) -> None:
    path = legacy_home(scratch_home)
    query(path, "UPDATE task SET content = NULL, is_deleted = NULL, created = NULL WHERE id = 12")
    assert run("task", "update", 12, "--description", "", "--json").data["task"]["revision"] == 1
    task = run("task", "next", "--claim", "--agent", "a", "--json").data["task"]
    assert task["id"] == 12  # no time of creation counts as the oldest
    assert run("task", "done", 12, "--agent", "a", "--json").code == 0
    assert run("task", "del", 12, "--json").code == 0
    assert run("task", "show", 12, "--json").error["code"] == "not_found"
    assert query(path, "SELECT is_deleted, revision FROM task WHERE id = 12") == [(1, 4)]


def test_twenty_thousand_tasks_migrate(scratch_home: Path) -> None:
    path = legacy_home(scratch_home)
    big_legacy_file(path, 20_000)
    rows = old_rows(path)
    data = run("task", "list", "--json").data
    assert (data["count"], data["total"], data["truncated"]) == (100, 20_017, True)
    assert old_rows(path) == rows
    assert query(scratch_home / "tam.db3.bak.v1", "SELECT count(*) FROM task") == [(20_040,)]


# -- several at once, and cut off --


def test_six_processes_start_at_once_on_a_v0_file(scratch_home: Path) -> None:
    path = legacy_home(scratch_home)
    big_legacy_file(path, 2_000)
    original = path.read_bytes()
    code = """
go()
words = [["task", "list"], ["task", "add", "from " + sys.argv[1]]][int(sys.argv[1]) % 2]
sys.exit(tam.main([*words, "--json"]))
"""
    for ended in together([python(code, number) for number in range(6)]):
        assert ended.code == 0 and not ended.err, ended
    assert version(path) == 2
    assert query(path, "SELECT count(*) FROM task") == [(2_043,)]
    assert query(path, "SELECT count(*) FROM task_events") == [(3,)]
    assert (scratch_home / "tam.db3.bak.v1").read_bytes() == original
    assert sorted(tables(path)) == sorted(set(tables(path)))


@pytest.mark.parametrize("lock", ["BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"])
@pytest.mark.parametrize("words", [("task.list", {}), ("task.add", {"title": "t"})])
def test_a_v0_file_that_another_program_is_writing_is_busy(
    scratch_home: Path, lock: str, words: tuple
) -> None:
    path = legacy_home(scratch_home)
    original = path.read_bytes()
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute(lock)
    tam_ = tam.Tam(env=dict(os.environ), busy_timeout=0.05)
    with pytest.raises(tam.Busy):
        tam_.call(*words)
    assert path.read_bytes() == original
    writer.execute("ROLLBACK")
    writer.close()
    tam_.call(*words)
    tam_.close()


def test_a_migration_that_is_killed_leaves_the_old_file_or_the_new_one(scratch_home: Path) -> None:
    path = legacy_home(scratch_home)
    big_legacy_file(path, 2_000)
    original, rows = path.read_bytes(), old_rows(path)
    # Killed right before each of its statements in turn, until it comes through.
    code = """
import signal
left = int(sys.argv[1])

def count(statement):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)

connect = tam._connect
def watched(*args):
    db = connect(*args)
    db.set_trace_callback(count)
    return db

tam._connect = watched
sys.exit(tam.main(["task", "add", "after", "--json"]))
"""
    seen = set()
    for number in range(2, 100, 7):
        for leftover in scratch_home.glob("tam.db3*"):
            leftover.unlink()
        path.write_bytes(original)
        ended = finish(python(code, number))
        if ended.code == 0:
            break
        assert ended.code == -signal.SIGKILL, ended
        assert query(path, "PRAGMA integrity_check") == [("ok",)]
        assert old_rows(path)[1] == rows[1]
        assert [row for row in old_rows(path)[0] if row[1] != "after"] == rows[0]
        seen.add(version(path))
        assert version(path) == (2 if "task_count" in tables(path) else 0)
        assert run("task", "list", "--json").data["total"] >= 2_017
        assert query(scratch_home / "tam.db3.bak.v1", "SELECT count(*) FROM task") == [(2_040,)]
    else:
        pytest.fail("the migration never came through")
    assert 0 in seen


def test_a_file_size_limit_during_the_migration_leaves_the_file_as_it_was(
    scratch_home: Path,
) -> None:
    path = legacy_home(scratch_home)
    original = path.read_bytes()
    code = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
sys.exit(tam.main(["task", "list", "--json"]))
"""
    for limit in (8_192, len(original) + 512):  # too small for the backup; for the new file
        ended = finish(python(code, limit))
        assert ended.code == 1
        assert ended.error["code"] == "internal"
        assert "retryable" not in ended.error["details"]
        assert path.read_bytes() == original
        assert not list(scratch_home.glob("*.tmp")) and not list(scratch_home.glob("*-journal"))
    assert (scratch_home / "tam.db3.bak.v1").read_bytes() == original
    assert run("task", "list", "--json").code == 0


@pytest.mark.parametrize("spare", [0, 16, 40, 80])
def test_a_disk_that_gets_full_during_the_migration(small_disk: Path, spare: int) -> None:
    home = small_disk / "home" / ".tam"
    path = legacy_home(home)
    big_legacy_file(path, 300)
    rows, original = old_rows(path), path.read_bytes()
    ballast = fill(small_disk, spare * 1024)
    ended = run("task", "list", "--json", TAM_HOME=str(home))
    assert ended.code == 1
    assert ended.error["code"] == "internal"
    assert path.read_bytes() == original
    assert not list(home.glob("*.tmp"))
    ballast.unlink()
    assert run("task", "list", "--json", TAM_HOME=str(home)).code == 0
    assert old_rows(path) == rows
    assert query(home / "tam.db3.bak.v1", OLD_TASKS) == rows[0]


# -- refused and untouched --


def break_page(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096 * 3 + 8:4096 * 4] = os.urandom(4096 - 8)
    path.write_bytes(data)


def not_sqlite(path: Path) -> None:
    path.write_text("dear diary\n" * 500)


def newer(path: Path) -> None:
    query(path, "PRAGMA user_version = 7")


def another_program(path: Path) -> None:
    path.unlink()
    query(path, "CREATE TABLE task (id INTEGER PRIMARY KEY, due TEXT)")


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:9_000])


WRITES = (("task", "add", "t", "--project", "tam"), ("project", "add", "p"))


@pytest.mark.parametrize("words", [*WRITES, ("task", "list"), ("project", "list")])
@pytest.mark.parametrize("spoil", [break_page, not_sqlite, newer, another_program, cut_short])
def test_what_cannot_be_used_is_refused_and_untouched(
    scratch_home: Path, spoil: object, words: tuple
) -> None:
    path = legacy_home(scratch_home)
    spoil(path)
    before, modified = path.read_bytes(), path.stat().st_mtime_ns
    ended = run(*words, "--json")
    assert ended.code == 1
    assert ended.json["command"] == "startup"
    assert ended.error["code"] == "internal"
    assert str(path) in ended.error["message"]
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (before, modified)
    assert [name for name in files(scratch_home) if name.startswith("tam.db3")] == ["tam.db3"]


def test_a_newer_version_is_named_with_the_known_one(scratch_home: Path) -> None:
    newer(legacy_home(scratch_home))
    error = run("task", "list", "--json").error
    assert "version 7" in error["message"] and "up to 2" in error["message"]
    assert (error["details"]["found_version"], error["details"]["known_version"]) == (7, 2)


@pytest.mark.parametrize("words", [WRITES[0], ("task", "list")])
def test_a_newer_file_with_an_unfinished_wal_keeps_it(scratch_home: Path, words: tuple) -> None:
    path = legacy_home(scratch_home)
    leave_wal(path, "PRAGMA user_version = 7")
    before = files(scratch_home)
    assert run(*words, "--json").json["command"] == "startup"
    after = files(scratch_home)
    for name in ("tam.db3", "tam.db3-wal"):
        assert after[name] == before[name], name


@pytest.mark.parametrize("words", [*WRITES, ("task", "list")])
def test_a_directory_in_the_place_of_the_database(scratch_home: Path, words: tuple) -> None:
    path = legacy_home(scratch_home)
    path.unlink()
    path.mkdir()
    ended = run(*words, "--json")
    assert (ended.code, ended.json["command"]) == (1, "startup")
    assert str(path) in ended.error["message"]
    assert list(path.iterdir()) == []


# -- where nothing may be written --


@pytest.mark.parametrize("file_mode", [0o444, 0o666])
def test_a_v0_file_in_a_directory_without_write_permission_can_be_read(
    public: Path, file_mode: int
) -> None:
    path = legacy_home(public / ".tam")
    path.chmod(file_mode)
    path.parent.chmod(0o555)
    before = files(public)
    reads = without_rights(*READS, TAM_HOME=str(path.parent))
    assert [ended.code for ended in reads] == [0] * len(READS), reads
    assert reads[0].data["total"] == 17
    [refused] = without_rights(("task", "add", "t"), TAM_HOME=str(path.parent))
    assert (refused.code, refused.error["code"]) == (1, "internal")
    assert files(public) == before
