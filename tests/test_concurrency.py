"""Real processes on one file: races, writers that wait for each other, and kill -9 at any instant.

P 7 item 4; contract, data model (durability, one transaction for each command).
"""
from __future__ import annotations

import json
import os
import random
import select
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest
import tam

from processes import answers, finish, python, query, together
from support import DEADLINE, run

COMMAND = "go()\nsys.exit(tam.main(sys.argv[1:]))\n"


@pytest.fixture
def home(scratch_home: Path) -> Path:
    """A home with the project p."""
    assert run("project", "add", "p").code == 0
    return scratch_home


def add_tasks(count: int, **fields: object) -> None:
    tam_ = tam.Tam(project="p", env=dict(os.environ))
    for number in range(count):
        tam_.call("task.add", {"title": f"task {number}", **fields})
    tam_.close()


# -- races --


def test_p7_item_4_eight_processes_race_for_one_task(home: Path) -> None:
    add_tasks(1)
    for _ in range(2):
        claims = [
            python(COMMAND, "task", "claim", "1", "--agent", f"agent-{number}", "--json")
            for number in range(8)
        ]
        ended = together(claims)
        assert sorted(one.code for one in ended) == [0] + [4] * 7
        [winner] = [one for one in ended if one.code == 0]
        holder = winner.data["task"]["assigned_agent"]
        for loser in ended:
            if loser is not winner:
                assert loser.error["code"] == "conflict"
                assert loser.error["details"]["assigned_agent"] == holder
        assert run("task", "show", "1", "--json").data["task"] == winner.data["task"]
        assert run("task", "release", "1", "--agent", holder).code == 0
    events = run("task", "events", "1", "--json").data["events"]
    assert [event["event"] for event in events] == ["created"] + ["claimed", "released"] * 2


def test_p7_item_4_a_claim_ends_with_its_lease_heartbeat_or_release(home: Path) -> None:
    add_tasks(1)
    moment = [2_000_000_000]
    tam_ = tam.Tam(project="p", env=dict(os.environ), clock=lambda: moment[0])
    tam_.call("task.claim", {"id": 1, "agent": "a", "lease_seconds": 10})
    moment[0] += 9
    tam_.call("task.heartbeat", {"id": 1, "agent": "a", "lease_seconds": 10})
    moment[0] += 9
    with pytest.raises(tam.Conflict):
        tam_.call("task.claim", {"id": 1, "agent": "b"})
    moment[0] += 1
    assert tam_.call("task.claim", {"id": 1, "agent": "b"})["task"]["assigned_agent"] == "b"
    tam_.call("task.release", {"id": 1, "agent": "b"})
    assert tam_.call("task.claim", {"id": 1, "agent": "a"})["task"]["assigned_agent"] == "a"
    tam_.close()


def test_p7_item_4_eight_processes_drain_two_hundred_tasks(home: Path) -> None:
    add_tasks(200)
    code = """
go()
words = ["task", "next", "--claim", "--agent", sys.argv[1], "--project", "p", "--json"]
with tempfile.TemporaryFile() as answered:
    out = os.dup(1)
    os.dup2(answered.fileno(), 1)
    while (code := tam.main(words)) == 0:
        data = json.loads(os.pread(answered.fileno(), 10_000, 0))["data"]
        if data["task"] is None:
            break
        tam.write_all(out, b"%d\\n" % data["task"]["id"])
        answered.seek(0)
        answered.truncate()
sys.exit(code)
"""
    ended = together([python(code, f"agent-{number}") for number in range(8)])
    assert [(one.code, one.err) for one in ended] == [(0, "")] * 8
    claimed = [int(line) for one in ended for line in one.out.splitlines()]
    assert sorted(claimed) == list(range(1, 201))
    assert query(home / "tam.db3", "SELECT DISTINCT status, revision FROM task") == [(1, 2)]
    events = "SELECT event, count(*) FROM task_events GROUP BY event"
    assert query(home / "tam.db3", events) == [("claimed", 200), ("created", 200)]


def test_six_processes_start_at_once_on_an_empty_home(scratch_home: Path) -> None:
    ended = together([
        python(COMMAND, "project", "add", f"project-{number}", "--json") for number in range(6)
    ])
    assert [(one.code, one.err) for one in ended] == [(0, "")] * 6
    assert len(run("project", "list", "--json").data) == 6
    names = {path.name for path in scratch_home.iterdir()}
    assert names == {tam.CONFIG_NAME, "tam.db3"}


def test_adds_of_many_processes_are_all_there(home: Path) -> None:
    code = """
go()
tam_ = tam.Tam(project="p")
for number in range(25):
    answer(tam_.call("task.add", {"title": f"{sys.argv[1]}-{number}"})["task"]["id"])
tam_.close()
"""
    ended = together([python(code, name) for name in range(8)])
    made = [number for one in ended for number in answers(one)]
    assert sorted(made) == list(range(1, 201))
    assert query(home / "tam.db3", "SELECT count(DISTINCT title) FROM task") == [(200,)]


def test_sixteen_processes_that_claim_without_pause_wait_but_never_fail(home: Path) -> None:
    add_tasks(16 * 30)
    code = """
go()
tam_ = tam.Tam(project="p", agent=sys.argv[1])
for _ in range(30):
    answer(tam_.call("task.next", {"claim": True})["task"]["id"])
tam_.close()
"""
    ended = together([python(code, f"agent-{number}") for number in range(16)])
    claimed = [number for one in ended for number in answers(one)]
    assert sorted(claimed) == list(range(1, 16 * 30 + 1))


def test_readers_see_whole_commits_while_others_write(home: Path) -> None:
    add_tasks(20)
    writer = python("""
go()
tam_ = tam.Tam(project="p", agent="w")
while not os.path.exists(sys.argv[1]):
    for number in range(1, 21):
        tam_.call("task.claim", {"id": number})
        tam_.call("task.release", {"id": number})
tam_.close()
""", home / "stop")
    assert writer.stdout.readline() == b'"ready"\n'
    writer.stdin.write(b"\n")
    writer.stdin.flush()
    reader = tam.Tam(project="p", env=dict(os.environ))
    seen = set()
    while len(seen) < 50:
        data = reader.call("task.show", {"id": 1})
        seen.add(data["task"]["revision"])
        last = data["events"][-1]
        state = "in-progress" if data["task"]["assigned_agent"] else "todo"
        assert data["task"]["status"] == last["to_status"] == state
        snapshot = reader.snapshot("p")
        assert sum(snapshot["counts"].values()) == 20
        assert snapshot["leased_count"] == snapshot["counts"]["in_progress"] <= 1
        assert len(snapshot["columns"]["in-progress"]) == snapshot["leased_count"]
    reader.close()
    (home / "stop").touch()
    ended = finish(writer)
    assert (ended.code, ended.err) == (0, "")


# -- kill -9 --

#: A writer under load: every answer goes out before the next call begins.
LOAD = """
import random
choice = random.Random(int(sys.argv[1]))
agent = "agent-" + sys.argv[1]
tam_ = tam.Tam(project="p", agent=agent, busy_timeout=60)
answer("ready")
mine = []
while True:
    if not mine or choice.random() < 0.2:
        name, arguments = "task.add", {"title": f"{agent} {choice.random()}", "tags": ["load"]}
    else:
        name = "task." + choice.choice(["claim", "heartbeat", "update", "release", "done"])
        arguments = {"id": choice.choice(mine)}
        if name == "task.update":
            arguments["title"] = str(choice.random())
    try:
        task = tam_.call(name, arguments)["task"]
    except tam.Conflict:
        continue
    if name == "task.add":
        mine.append(task["id"])
    if task["status"] == "done":
        mine.remove(task["id"])
    answer([name, task["id"], task["revision"]])
"""
EVENT_OF = {
    "task.add": "created", "task.claim": "claimed", "task.heartbeat": "heartbeat",
    "task.update": "updated", "task.release": "released", "task.done": "completed",
}


class Writers:
    """Processes that write without pause, and what each of them was answered."""

    def __init__(self, count: int) -> None:
        self.started = 0
        self.answered: list[tuple] = []
        self.running = [self.start() for _ in range(count)]
        self.rests = {process.pid: b"" for process in self.running}

    def start(self) -> subprocess.Popen:
        self.started += 1
        return python(LOAD, self.started)

    def listen(self, wanted: int) -> None:
        """Read answers until there are `wanted` new ones."""
        target = len(self.answered) + wanted
        deadline = time.monotonic() + DEADLINE
        while len(self.answered) < target:
            assert time.monotonic() < deadline, "the writers do not write"
            ready, _, _ = select.select([process.stdout for process in self.running], [], [], 1)
            for process in self.running:
                if process.stdout in ready:
                    self.take(process, os.read(process.stdout.fileno(), 65_536))

    def take(self, process: subprocess.Popen, data: bytes) -> None:
        if not data:
            pytest.fail(f"a writer ended: {process.stderr.read().decode()}")
        *lines, rest = (self.rests.get(process.pid, b"") + data).split(b"\n")
        self.rests[process.pid] = rest
        self.answered += [tuple(json.loads(line)) for line in lines if line != b'"ready"']

    def kill(self, victim: int) -> None:
        """Kill a writer, and hear what it was answered before."""
        process = self.running.pop(victim)
        process.kill()
        out, err = process.communicate(timeout=DEADLINE)
        assert (process.returncode, err) == (-signal.SIGKILL, b"")
        if out:
            self.take(process, out)

    def replace(self) -> None:
        self.running.append(self.start())


def check_file(path: Path, answered: list[tuple]) -> None:
    """Every answered write is in the file, and every task has exactly its events."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN")
    assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    events: dict[int, list[str]] = {}
    for task_id, event in db.execute("SELECT task_id, event FROM task_events ORDER BY id"):
        events.setdefault(task_id, []).append(event)
    revisions = dict(db.execute("SELECT id, revision FROM task"))
    last = db.execute(
        "SELECT task.status, task_events.to_status FROM task JOIN task_events ON task_events.id ="
        " (SELECT max(id) FROM task_events WHERE task_id = task.id)"
    ).fetchall()
    counts = db.execute("SELECT status, count(*) FROM task GROUP BY status").fetchall()
    counted = db.execute("SELECT status, n FROM task_count WHERE n > 0 ORDER BY status").fetchall()
    db.close()
    assert {task_id: len(names) for task_id, names in events.items()} == revisions
    assert all(status == to_status for status, to_status in last)
    assert counts == counted
    for name, task_id, revision in answered:
        assert events[task_id][revision - 1] == EVENT_OF[name]


def kill_at_random_instants(path: Path, instants: int, seed: int) -> None:
    choice = random.Random(seed)
    writers = Writers(3)
    try:
        checked = 0
        for _ in range(instants):
            writers.listen(choice.randint(1, 12))
            time.sleep(choice.random() * 0.002)  # anywhere within a write, not right after one
            writers.kill(choice.randrange(3))
            check_file(path, writers.answered[checked:])
            checked = len(writers.answered)
            writers.replace()
    finally:
        for process in writers.running:
            process.kill()
            process.communicate(timeout=DEADLINE)
    check_file(path, writers.answered)
    assert len(writers.answered) >= instants


def test_kill_9_under_write_load_loses_nothing_that_was_answered(home: Path) -> None:
    kill_at_random_instants(home / "tam.db3", 15, seed=1)
    assert run("task", "add", "after", "--project", "p").code == 0


@pytest.mark.slow
def test_kill_9_at_two_hundred_instants(home: Path) -> None:
    kill_at_random_instants(home / "tam.db3", 200, seed=2)
    assert run("task", "add", "after", "--project", "p").code == 0
