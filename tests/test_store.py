"""The store: all or nothing, reads that write nothing, and files in every state.

Contract, data model and migration; P 2.1, P 7 item 5.
"""
from __future__ import annotations

import os
import re
import shutil
import sqlite3
from pathlib import Path

import pytest
import tam

from processes import (
    DROP_RIGHTS, fill, finish, leave_wal, legacy_home, python, query, together, without_rights,
)
from support import run

READS = (
    ("task", "list"), ("task", "list", "--search", "É"), ("task", "show", "1"),
    ("task", "events", "1"), ("task", "next"), ("status",), ("history",), ("project", "list"),
    ("project", "current"),
)


@pytest.fixture
def home(scratch_home: Path) -> Path:
    """A home with project p and three tasks, one of them claimed."""
    fill_home()
    return scratch_home


def fill_home() -> None:
    tam_ = opened()
    tam_.call("project.add", {"name": "p"})
    tam_.call("project.use", {"name": "p"})
    for title in ("one", "two", "three"):
        tam_.call("task.add", {"title": title})
    tam_.call("task.claim", {"id": 2, "agent": "a"})
    tam_.close()


def opened(**options: object) -> tam.Tam:
    return tam.Tam(env=dict(os.environ), **options)


@pytest.fixture
def long_lived() -> tam.Tam:
    """One Tam that stays open, as in a server."""
    tam_ = opened(project="p")
    yield tam_
    tam_.close()


def state(path: Path) -> list:
    """All that a task operation may change."""
    return [query(path, f"SELECT * FROM {name}") for name in ("task", "task_events", "task_count")]


def stamps(directory: Path) -> dict:
    """What a file is, when it changed and what is in it, for everything in a directory."""
    return {
        path.name: (path.stat().st_ino, path.stat().st_mtime_ns, path.stat().st_mode,
                    path.read_bytes() if path.is_file() else None)
        for path in sorted(directory.iterdir())
    }


# -- transactions --

FAILING_WRITES = (
    ("task.add", {"title": "t"}), ("task.update", {"id": 1, "title": "t"}),
    ("task.update", {"id": 1, "status": "done"}), ("task.claim", {"id": 1, "agent": "a"}),
    ("task.heartbeat", {"id": 2, "agent": "a"}), ("task.release", {"id": 2, "agent": "a"}),
    ("task.done", {"id": 2, "agent": "a"}), ("task.del", {"id": 1}), ("task.start", {"id": 1}),
    ("task.next", {"claim": True, "agent": "a"}), ("task.edit", {"id": 1, "title": "t"}),
)


@pytest.mark.parametrize("operation, arguments", FAILING_WRITES)
def test_a_write_whose_event_cannot_be_written_changes_nothing(
    home: Path, long_lived: tam.Tam, operation: str, arguments: dict
) -> None:
    path = home / "tam.db3"
    query(path, "CREATE TRIGGER stop BEFORE INSERT ON task_events"
                " BEGIN SELECT RAISE(ABORT, 'no event'); END")
    before = state(path)
    with pytest.raises(tam.Internal, match="no event"):
        long_lived.call(operation, arguments)
    assert state(path) == before
    query(path, "DROP TRIGGER stop")
    assert long_lived.call(operation, arguments)["task"] is not None


def test_every_write_is_one_commit_of_task_revision_and_event(
    home: Path, long_lived: tam.Tam
) -> None:
    watcher = sqlite3.connect(home / "tam.db3", isolation_level=None)
    for operation, arguments in (
        ("task.add", {"title": "t"}), ("task.claim", {"id": 1, "agent": "a"}),
        ("task.heartbeat", {"id": 1, "agent": "a"}), ("task.update", {"id": 1, "priority": 1}),
        ("task.release", {"id": 1, "agent": "a"}), ("task.done", {"id": 1}),
    ):
        before = watcher.execute("PRAGMA data_version").fetchone()[0]
        task = long_lived.call(operation, arguments)["task"]
        assert watcher.execute("PRAGMA data_version").fetchone()[0] == before + 1
        count = watcher.execute("SELECT count(*) FROM task_events WHERE task_id = ?", (task["id"],))
        assert count.fetchone()[0] == task["revision"]
    watcher.close()


def test_the_counters_follow_every_way_to_change_a_task(home: Path) -> None:
    path = home / "tam.db3"
    query(path, "INSERT INTO project(name) VALUES ('q')")
    for statement in (
        "UPDATE task SET project_id = 2 WHERE id = 1", "UPDATE task SET status = 2 - status",
        "UPDATE task SET is_deleted = NULL", "UPDATE task SET is_deleted = 1 WHERE id = 2",
        "UPDATE task SET project_id = 1, status = 1, is_deleted = 0 WHERE id < 3",
        "DELETE FROM task WHERE id = 2", "DELETE FROM task",
    ):
        query(path, statement)
        assert query(path, "SELECT * FROM task_count WHERE n <> 0 ORDER BY 1, 2") == query(
            path, "SELECT project_id, status, count(*) FROM task WHERE IFNULL(is_deleted, 0) = 0"
                  " GROUP BY 1, 2 ORDER BY 1, 2"), statement


def test_now_is_taken_once_under_the_write_lock(home: Path) -> None:
    watcher = sqlite3.connect(home / "tam.db3", isolation_level=None, timeout=0)
    readings: list[tuple[int, bool]] = []

    def clock() -> int:
        try:
            watcher.execute("BEGIN IMMEDIATE")
            watcher.execute("ROLLBACK")
            locked = False
        except sqlite3.OperationalError:
            locked = True
        readings.append((2_000_000_000 + 1_000 * len(readings), locked))
        return readings[-1][0]

    tam_ = opened(project="p", clock=clock)
    task = tam_.call("task.claim", {"id": 1, "agent": "a", "lease_seconds": 60})["task"]
    tam_.close()
    watcher.close()
    [moment] = [moment for moment, locked in readings if locked]
    assert task["lease_expires_at"] == tam.iso_time(moment + 60)


def test_the_connection_is_as_durable_as_promised(home: Path, long_lived: tam.Tam) -> None:
    with long_lived.store.writing() as db:
        pragmas = [db.execute(f"PRAGMA {name}").fetchone()[0] for name in
                   ("synchronous", "journal_mode", "foreign_keys", "busy_timeout")]
    assert pragmas == [2, "wal", 1, 5000]


def test_p7_item_5_a_key_makes_a_retry_harmless(home: Path, long_lived: tam.Tam) -> None:
    long_lived.call("project.add", {"name": "q"})
    arguments = {"title": "t", "idempotency_key": "k"}
    first = long_lived.call("task.add", arguments)
    again = long_lived.call("task.add", {**arguments, "title": "another"})
    assert (first["deduplicated"], again["deduplicated"]) == (False, True)
    assert first["task"] == again["task"]
    other = long_lived.call("task.add", {**arguments, "project": "q"})
    assert (other["deduplicated"], other["task"]["id"]) == (False, first["task"]["id"] + 1)
    long_lived.call("task.del", {"id": first["task"]["id"]})
    new = long_lived.call("task.add", arguments)
    assert (new["deduplicated"], new["task"]["id"]) == (False, first["task"]["id"] + 2)


def test_p7_item_5_one_key_from_several_processes_makes_one_task(home: Path) -> None:
    code = """
go()
words = ["task", "add", "t", "--project", "p", "--idempotency-key", "same", "--json"]
sys.exit(tam.main(words))
"""
    ended = together([python(code) for _ in range(6)])
    made = [one.data for one in ended]
    assert len({data["task"]["id"] for data in made}) == 1
    assert sorted(data["deduplicated"] for data in made) == [False] + [True] * 5


# -- reads write nothing --


def test_reads_leave_no_trace(home: Path) -> None:
    before = stamps(home)
    for words in READS:
        assert run(*words, "--json").code == 0
        assert run(*words).code == 0
    assert stamps(home) == before


def test_reads_beside_a_writer_leave_its_files_alone(home: Path, long_lived: tam.Tam) -> None:
    long_lived.call("task.add", {"title": "in the WAL"})
    before = stamps(home)
    assert before["tam.db3-wal"][3]
    for words in READS:
        assert run(*words, "--json").code == 0
    after = stamps(home)
    for name in ("tam.db3", "tam.db3-wal"):
        assert after[name] == before[name], name
    assert after.keys() == before.keys()


@pytest.mark.parametrize("with_shm", [True, False])
def test_reads_see_the_wal_of_a_killed_writer_and_leave_it(home: Path, with_shm: bool) -> None:
    leave_wal(home / "tam.db3", "INSERT INTO task(title, project_id) VALUES ('left over', 1)")
    if not with_shm:
        (home / "tam.db3-shm").unlink()
    before = stamps(home)
    for words in READS:
        assert run(*words, "--json").code == 0
    assert run("task", "list", "--json").data["tasks"][0]["title"] == "left over"
    after = stamps(home)
    for name in ("tam.db3", "tam.db3-wal"):
        assert after[name] == before[name], name


def test_a_writer_takes_over_the_wal_of_a_killed_one(home: Path) -> None:
    leave_wal(home / "tam.db3", "INSERT INTO task(title, project_id) VALUES ('left over', 1)")
    assert run("task", "add", "next", "--json").data["task"]["id"] == 5
    assert run("task", "list", "--json").data["total"] == 5
    assert query(home / "tam.db3", "PRAGMA integrity_check") == [("ok",)]


def test_a_read_of_an_empty_home_makes_no_database(scratch_home: Path) -> None:
    assert run("project", "list", "--json").data == []
    assert run("task", "list", "--json").error["code"] == "missing_project"
    assert [path.name for path in scratch_home.iterdir()] == [tam.CONFIG_NAME]


def test_a_reading_transaction_can_change_nothing(home: Path, long_lived: tam.Tam) -> None:
    with long_lived.store.reading() as db:
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            db.execute("UPDATE task SET title = 'changed'")
    assert long_lived.call("task.show", {"id": 1})["task"]["title"] == "one"


def test_an_expired_lease_is_computed_at_reading(home: Path) -> None:
    before = stamps(home)
    later = opened(project="p", clock=lambda: 4_000_000_000)
    task = later.call("task.show", {"id": 2})["task"]
    assert (task["assigned_agent"], task["lease_expired"], task["revision"]) == ("a", True, 2)
    assert later.call("status", {})["leased"] == 0
    later.close()
    assert stamps(home) == before


def test_an_expired_lease_is_taken_over(home: Path, long_lived: tam.Tam) -> None:
    with pytest.raises(tam.Conflict):
        long_lived.call("task.claim", {"id": 2, "agent": "b"})
    later = opened(project="p", clock=lambda: 4_000_000_000)
    assert later.call("task.claim", {"id": 2, "agent": "b"})["task"]["assigned_agent"] == "b"
    with pytest.raises(tam.Conflict):
        later.call("task.heartbeat", {"id": 2, "agent": "a"})
    later.close()


# -- without permission --


def protect(home: Path) -> None:
    for path in home.iterdir():
        if path.is_file():
            path.chmod(0o444)
    home.chmod(0o555)


@pytest.fixture
def public_home(public: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A filled home that another user may read but not write, once a test has protected it."""
    monkeypatch.setenv("TAM_HOME", str(public / ".tam"))
    fill_home()
    return public / ".tam"


@pytest.mark.parametrize("state_of_file", ["closed", "wal", "wal without shm", "rollback journal"])
def test_reads_work_without_write_permission(public_home: Path, state_of_file: str) -> None:
    path, total = public_home / "tam.db3", 3
    if state_of_file == "rollback journal":
        query(path, "PRAGMA journal_mode = DELETE")
    if state_of_file.startswith("wal"):
        leave_wal(path, "INSERT INTO task(title, project_id) VALUES ('left over', 1)")
        total = 4
    if state_of_file == "wal without shm":
        (public_home / "tam.db3-shm").unlink()
    protect(public_home)
    before = stamps(public_home)
    ended = without_rights(*READS)
    assert [one.code for one in ended] == [0] * len(READS), ended
    assert ended[0].data["total"] == total
    assert [task["id"] for task in ended[0].data["tasks"]] == list(range(total, 0, -1))
    assert stamps(public_home) == before


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_a_write_without_permission_says_so_and_changes_nothing(
    public_home: Path, mode: str
) -> None:
    query(public_home / "tam.db3", f"PRAGMA journal_mode = {mode}")
    protect(public_home)
    before = stamps(public_home)
    for ended in without_rights(("task", "add", "t"), ("task", "claim", "1", "--agent", "b")):
        assert (ended.code, ended.error["code"]) == (1, "internal")
        assert "retryable" not in ended.error["details"]
        assert "tam.db3" in ended.error["message"]
    assert stamps(public_home) == before


@pytest.mark.parametrize("place", ["file/tam.db3", "loop/tam.db3", "n" * 300])
def test_a_database_out_of_reach_is_not_read_as_an_empty_one(home: Path, place: str) -> None:
    (home / "file").write_text("no directory")
    (home / "loop").symlink_to("loop")
    opened().set_config(db_file=str(home / place))
    for words in (("project", "list"), ("task", "show", "1"), ("project", "add", "q")):
        ended = run(*words, "--json")
        assert (ended.code, ended.json["command"]) == (1, "startup"), words
        assert ended.error["message"].count(place) == 1 and "[Errno" not in ended.error["message"]


def test_a_database_in_a_directory_without_permission_is_not_read_as_an_empty_one(
    public_home: Path
) -> None:
    closed = public_home / "closed"
    closed.mkdir()
    (public_home / "tam.db3").rename(closed / "tam.db3")
    opened().set_config(db_file=str(closed / "tam.db3"))
    protect(public_home)
    closed.chmod(0o700 if os.geteuid() == 0 else 0)
    for ended in without_rights(("project", "list"), ("task", "show", "1")):
        assert (ended.code, ended.json["command"]) == (1, "startup")
        assert "Permission denied" in ended.error["message"]
    closed.chmod(0o700)


def test_a_half_written_transaction_is_not_read_without_permission(public_home: Path) -> None:
    path = public_home / "tam.db3"
    query(path, "PRAGMA journal_mode = DELETE")
    # A cache of few pages is written into the file before the end of the transaction.
    code = """
import signal, sqlite3
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA cache_size = 2")
db.execute("BEGIN")
for number in range(400):
    db.execute("INSERT INTO task(title, project_id) VALUES (?, 1)", ("half" * 50,))
os.kill(os.getpid(), signal.SIGKILL)
"""
    finish(python(code, path))
    assert (public_home / "tam.db3-journal").stat().st_size > 0
    protect(public_home)
    before = stamps(public_home)
    ended = without_rights(*READS)
    assert [one.code for one in ended] == [0] * len(READS), ended
    assert ended[0].data["total"] == ended[0].data["count"] == 3
    assert stamps(public_home) == before
    public_home.chmod(0o755)
    for file in public_home.iterdir():
        file.chmod(0o644)
    assert run("task", "add", "t", "--json").data["task"]["id"] == 4


def test_a_reader_without_permission_sees_what_others_write_later(public_home: Path) -> None:
    protect(public_home)
    code = DROP_RIGHTS + """
reader = tam.Tam(project="p")
for _ in range(3):
    answer([reader.call("task.list", {})["total"], reader.data_version()])
    sys.stdin.readline()
reader.close()
"""
    reader = python(code)
    seen = [tam.parse_json(reader.stdout.readline())]
    for file in public_home.iterdir():
        file.chmod(0o644)
    public_home.chmod(0o755)
    for title in ("fourth", "fifth"):
        run("task", "add", title)
        reader.stdin.write(b"\n")
        reader.stdin.flush()
        seen.append(tam.parse_json(reader.stdout.readline()))
    ended = finish(reader)
    assert (ended.code, ended.err) == (0, "")
    assert [total for total, _ in seen] == [3, 4, 5]
    assert len({version for _, version in seen}) == 3


# -- busy --


def test_a_busy_database_is_a_retryable_error(home: Path) -> None:
    writer = sqlite3.connect(home / "tam.db3", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    impatient = opened(project="p", busy_timeout=0.05)
    with pytest.raises(tam.Busy) as caught:
        impatient.call("task.add", {"title": "t"})
    assert caught.value.as_dict()["code"] == "internal"
    assert caught.value.details["retryable"] is True
    assert impatient.call("task.list", {})["total"] == 3  # readers do not wait
    writer.execute("ROLLBACK")
    writer.close()
    assert impatient.call("task.add", {"title": "t"})["task"]["id"] == 4
    impatient.close()


@pytest.mark.parametrize("code, busy", [
    (sqlite3.SQLITE_BUSY, True), (sqlite3.SQLITE_BUSY_SNAPSHOT, True),
    (sqlite3.SQLITE_LOCKED, True), (sqlite3.SQLITE_PROTOCOL, True),
    (sqlite3.SQLITE_FULL, False), (sqlite3.SQLITE_READONLY, False),
])
def test_only_the_locks_of_others_are_retryable(code: int, busy: bool) -> None:
    error = sqlite3.OperationalError("any words")
    error.sqlite_errorcode = code
    assert tam.is_busy(error) is busy


def test_a_failed_write_leaves_the_lock_free(home: Path, long_lived: tam.Tam) -> None:
    with pytest.raises(tam.NotFound):
        long_lived.call("task.done", {"id": 99})
    other = opened(project="p", busy_timeout=0.05)
    assert other.call("task.add", {"title": "t"})["task"]["id"] == 4
    other.close()


def test_a_killed_writer_stops_nobody(home: Path, long_lived: tam.Tam) -> None:
    holder = python("""
tam_ = tam.Tam(project="p")
with tam_.store.writing() as db:
    db.execute("UPDATE task SET title = 'never'")
    go()
""")
    assert holder.stdout.readline() == b'"ready"\n'
    holder.kill()
    finish(holder)
    assert long_lived.call("task.show", {"id": 1})["task"]["title"] == "one"
    assert long_lived.call("task.add", {"title": "t"})["task"]["id"] == 4


# -- files that change under a long-lived process --


def test_a_file_that_is_replaced_is_opened_anew(home: Path, long_lived: tam.Tam) -> None:
    saved = home / "saved"
    shutil.copyfile(home / "tam.db3", saved)
    for arguments in ({"title": "lost"}, {"title": "lost too"}):
        long_lived.call("task.add", arguments)
    version = long_lived.data_version()
    os.replace(saved, home / "tam.db3")
    assert long_lived.data_version() != version
    assert long_lived.call("task.list", {})["total"] == 3
    assert long_lived.call("task.add", {"title": "kept"})["task"]["id"] == 4
    long_lived.close()
    assert run("task", "show", "4", "--json").data["task"]["title"] == "kept"
    assert query(home / "tam.db3", "PRAGMA integrity_check") == [("ok",)]


@pytest.mark.parametrize("after", ["task.add", "task.list"])
def test_a_file_that_is_moved_away_is_made_anew(
    home: Path, long_lived: tam.Tam, after: str
) -> None:
    long_lived.call("task.add", {"title": "t"})
    (home / "tam.db3").rename(home / "old.db3")
    if after == "task.list":
        with pytest.raises(tam.NotFound):
            long_lived.call("task.list", {})
    long_lived.call("project.add", {"name": "p"})
    assert long_lived.call("task.add", {"title": "t"})["task"]["id"] == 1
    assert query(home / "old.db3", "SELECT count(*) FROM task") == [(4,)]


def test_a_file_that_appears_is_seen(scratch_home: Path, long_lived: tam.Tam) -> None:
    assert long_lived.call("project.list", {}) == []
    version = long_lived.data_version()
    fill_home()
    assert long_lived.data_version() != version
    assert [view["name"] for view in long_lived.call("project.list", {})] == ["p"]


def test_data_version_follows_the_commits_of_others(home: Path, long_lived: tam.Tam) -> None:
    seen = [long_lived.data_version(), long_lived.data_version()]
    run("task", "add", "t")
    seen.append(long_lived.data_version())
    long_lived.call("task.add", {"title": "its own"})
    own = long_lived.data_version()
    run("task", "add", "t")
    seen.append(long_lived.data_version())
    assert seen[0] == seen[1]
    assert len({*seen, own}) in (3, 4) and seen[2] != seen[1] and seen[3] not in (own, seen[2])


def test_a_config_that_names_another_database_is_followed(
    home: Path, long_lived: tam.Tam
) -> None:
    assert long_lived.call("task.list", {})["total"] == 3
    long_lived.set_config(db_file=str(home / "other.db3"))
    assert long_lived.call("project.list", {}) == []


# -- odd places --


@pytest.mark.parametrize("name", [
    "a b.db3", "100%.db3", "what?.db3", "#1;&.db3", "数据\n库.db3", "-wal",
])
def test_a_database_may_have_any_name(home: Path, name: str) -> None:
    shutil.copyfile(home / "tam.db3", home / name)
    tam_ = opened()
    tam_.set_config(db_file=str(home / name))
    tam_.close()
    before = stamps(home)
    assert run("task", "list", "--json").data["total"] == 3
    assert stamps(home) == before
    assert run("task", "add", "t", "--json").data["task"]["id"] == 4
    assert query(home / "tam.db3", "SELECT count(*) FROM task") == [(3,)]


def test_a_database_behind_a_symbolic_link(home: Path, tmp_path: Path) -> None:
    away = tmp_path / "away"
    away.mkdir()
    (home / "tam.db3").rename(away / "real.db3")
    (home / "tam.db3").symlink_to(away / "real.db3")
    leave_wal(away / "real.db3", "INSERT INTO task(title, project_id) VALUES ('left over', 1)")
    before = stamps(away)
    assert run("task", "list", "--json").data["total"] == 4
    after = stamps(away)
    for file in ("real.db3", "real.db3-wal"):
        assert after[file] == before[file], file
    assert run("task", "add", "t", "--json").data["task"]["id"] == 5
    assert (home / "tam.db3").is_symlink()


def test_a_v0_file_behind_a_symbolic_link_has_its_backup_beside_it(
    scratch_home: Path, tmp_path: Path
) -> None:
    path = legacy_home(scratch_home)
    path.rename(tmp_path / "real.db3")
    path.symlink_to(tmp_path / "real.db3")
    assert run("task", "list", "--json").code == 0
    assert (tmp_path / "real.db3.bak.v1").exists()


def test_files_are_their_owners_only_and_existing_ones_stay_as_they_are(
    scratch_home: Path,
) -> None:
    before = os.umask(0o022)
    try:
        fill_home()
        modes = {path.name: path.stat().st_mode & 0o777 for path in scratch_home.iterdir()}
        assert scratch_home.stat().st_mode & 0o777 == 0o700
        assert set(modes.values()) == {0o600}, modes
        scratch_home.chmod(0o750)
        (scratch_home / "tam.db3").chmod(0o640)
        assert run("task", "add", "t").code == 0
        assert scratch_home.stat().st_mode & 0o777 == 0o750
        assert (scratch_home / "tam.db3").stat().st_mode & 0o777 == 0o640
    finally:
        os.umask(before)


@pytest.mark.parametrize("kind", ["new", "v0"])
def test_the_rollback_journal_serves_where_there_is_no_wal(scratch_home: Path, kind: str) -> None:
    scratch_home.mkdir()
    if kind == "v0":
        legacy_home(scratch_home)
    (scratch_home / "tam.db3-shm").mkdir()
    assert run("project", "add", "p", "--json").code == 0
    first = run("task", "add", "t", "--project", "p", "--json").data["task"]["id"]
    done = run("task", "done", first, "--project", "p", "--json").data["task"]
    assert done["status"] == "done"
    assert run("task", "list", "--project", "p", "--json").data["total"] == 1
    assert query(scratch_home / "tam.db3", "PRAGMA journal_mode") == [("delete",)]
    assert query(scratch_home / "tam.db3", "PRAGMA integrity_check") == [("ok",)]
    ended = together([python("go(); sys.exit(tam.main(sys.argv[1:]))", "task", "add", "t",
                             "--project", "p", "--json") for _ in range(4)])
    assert [one.code for one in ended] == [0] * 4, ended


def test_each_column_of_the_board_is_an_index_read_in_its_order(home: Path) -> None:
    """So it is as fast with 200,000 tasks as with three."""
    tam_ = opened()
    with tam_.store.reading() as db:
        pass
    asked: list[str] = []
    db.set_trace_callback(asked.append)
    tam_.snapshot("p", columns=500)
    db.set_trace_callback(None)
    columns = [sql for sql in asked if sql.endswith("LIMIT 500")]
    assert len(columns) == 3
    for sql in columns:
        plan = " ".join(row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}"))
        assert re.search("USING INDEX idx_task_(level|column_[12]) ", plan), plan
        assert "TEMP B-TREE" not in plan, plan
    tam_.close()


def test_a_reader_in_the_way_of_the_wal_delays_it_but_no_write_after_it(home: Path) -> None:
    path = home / "tam.db3"
    query(path, "PRAGMA journal_mode = DELETE")
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM task").fetchone()
    writer = opened(project="p", busy_timeout=0.05)
    with pytest.raises(tam.Busy):
        writer.call("task.add", {"title": "too early"})
    reader.close()
    assert writer.call("task.add", {"title": "in time"})["task"]["id"] == 4
    writer.close()
    assert query(path, "PRAGMA journal_mode") == [("delete",)]
    assert run("task", "add", "and later", "--json").data["task"]["id"] == 5
    assert query(path, "PRAGMA journal_mode") == [("wal",)]


# -- damage and a full disk --


def test_a_damaged_page_is_an_error_with_the_file_in_it_and_changes_nothing(home: Path) -> None:
    path = home / "tam.db3"
    [(root,)] = query(path, "SELECT rootpage FROM sqlite_master WHERE name = 'task'")
    data = bytearray(path.read_bytes())
    data[(root - 1) * 4096:root * 4096] = b"\xa5" * 4096
    path.write_bytes(data)
    for words in (("task", "list"), ("task", "show", "1"), ("task", "add", "t"),
                  ("task", "next", "--claim", "--agent", "a")):
        ended = run(*words, "--json")
        assert (ended.code, ended.error["code"]) == (1, "internal"), words
        assert str(path) in ended.error["message"]
        assert path.read_bytes() == data
        assert "Traceback" not in run(*words).err
    assert "malformed" in (home / "logs" / "tam.log").read_text()


@pytest.mark.parametrize("metadata", ["{", "[1]", "[" * 100_000, b"\xff"])
def test_an_event_whose_metadata_is_damaged_is_still_shown(home: Path, metadata: object) -> None:
    query(home / "tam.db3", "UPDATE task_events SET metadata = ?", metadata)
    events = run("task", "events", "2", "--json").data["events"]
    assert [(one["event"], one["metadata"]) for one in events] == [("created", {}), ("claimed", {})]


def test_a_write_on_a_full_disk_changes_nothing_and_works_again_later(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAM_HOME", str(small_disk / "home"))
    fill_home()
    path = small_disk / "home" / "tam.db3"
    before = state(path)
    ballast = fill(small_disk, 0)
    ended = run("task", "add", "t", "--description", "x" * 60_000, "--json")
    assert (ended.code, ended.error["code"]) == (1, "internal")
    assert run("task", "list", "--json").data["total"] == 3
    ballast.unlink()
    assert state(path) == before
    assert run("task", "add", "t", "--json").data["task"]["id"] == 4
    assert query(path, "PRAGMA integrity_check") == [("ok",)]


def test_a_long_lived_writer_survives_a_full_disk(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAM_HOME", str(small_disk / "home"))
    fill_home()
    writer = opened(project="p")
    writer.call("task.add", {"title": "fourth"})
    ballast = fill(small_disk, 0)
    failures = 0
    for number in range(40):
        try:
            writer.call("task.add", {"title": "t", "description": "x" * 4_000})
        except tam.Internal as error:
            failures += 1
            assert "full" in error.message or "I/O" in error.message
    assert failures
    assert writer.call("task.show", {"id": 4})["task"]["title"] == "fourth"
    ballast.unlink()
    total = writer.call("task.list", {})["total"]
    assert total == 4 + 40 - failures
    assert writer.call("task.add", {"title": "t"})["task"]["revision"] == 1
    writer.close()
    path = small_disk / "home" / "tam.db3"
    assert query(path, "SELECT count(*) FROM task") == [(total + 1,)]
    assert query(path, "SELECT count(*) FROM task_events") == [(total + 2,)]
    assert query(path, "PRAGMA integrity_check") == [("ok",)]
