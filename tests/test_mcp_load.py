"""Eight servers on one file under mixed load, some of them killed in the middle of their work."""
from __future__ import annotations

import json
import random
import sqlite3
import threading
import time
from collections import Counter

import pytest

import tam
from mcp_support import closing  # noqa: F401 (used by every test)
from mcp_support import Client, data_of, make_project, tool

SERVERS = 8
#: Requests after which a server is killed without reading its answer.
KILL_EVERY = 40
#: Requests of each worker, however slow the machine is.
FEWEST = 60


class Worker(threading.Thread):
    """One client that works as one agent until `until`, on one server after the other."""

    def __init__(self, number: int, until: float) -> None:
        super().__init__(name=f"agent-{number}")
        self.until = until
        self.chance = random.Random(number)
        self.requests = self.kills = 0
        self.held: list[int] = []
        #: (task, revision) of every change that a server has said is made.
        self.changes: list[tuple[int, int]] = []
        self.outcomes: Counter = Counter()
        self.failure: BaseException | None = None
        self.client = Client("--agent", self.name)

    def run(self) -> None:
        try:
            while time.monotonic() < self.until or self.requests < FEWEST:
                self.step()
            assert self.client.end() == (0, b"", b"")
        except BaseException as error:
            self.failure = error
        finally:
            self.client.kill()

    def step(self) -> None:
        """Send one request; take its answer, or kill the server before there is one."""
        name, arguments = self.chance.choice(STEPS)(self)
        self.requests += 1
        self.client.post(tool(name, arguments, self.requests))
        if self.requests % KILL_EVERY == 0:
            self.client.kill()
            self.kills += 1
            self.client = Client("--agent", self.name)
            return
        reply = json.loads(self.client.line())
        assert reply["id"] == self.requests
        self.learn(name, reply)

    def learn(self, name: str, reply: dict) -> None:
        """Remember what the answer says; only a conflict may refuse a step."""
        data = data_of(reply)
        if reply["result"]["isError"]:
            assert data["error"]["code"] == "conflict", data
            self.outcomes["conflict"] += 1
            return
        self.outcomes[name] += 1
        task = data.get("task")
        if task is None or name == "tam_task_get":
            return
        self.changes.append((task["id"], task["revision"]))
        if name == "tam_task_next":
            self.held.append(task["id"])

    def some_task(self) -> int:
        """A task of its own if it has one, else any."""
        return self.chance.choice(self.held) if self.held else self.chance.randint(1, 40)

    def finished(self) -> int:
        return self.held.pop(self.chance.randrange(len(self.held))) if self.held else 1


STEPS = (
    lambda worker: ("tam_task_create", {"title": f"by {worker.name}", "priority": 1}),
    lambda worker: ("tam_task_next", {"claim": True}),
    lambda worker: ("tam_task_next", {"claim": True, "lease_seconds": 86_400}),
    lambda worker: ("tam_task_heartbeat", {"id": worker.some_task()}),
    lambda worker: ("tam_task_release", {"id": worker.finished()}),
    lambda worker: ("tam_task_complete", {"id": worker.finished()}),
    lambda worker: ("tam_task_claim", {"id": worker.some_task()}),
    lambda worker: ("tam_task_list", {"limit": 20}),
    lambda worker: ("tam_status", {}),
    lambda worker: ("tam_task_get", {"id": worker.some_task()}),
)


def load(seconds: float) -> list[Worker]:
    """Run all workers for so long; fail on what any of them saw."""
    make_project(tasks=40).close()
    until = time.monotonic() + seconds
    workers = [Worker(number, until) for number in range(SERVERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for worker in workers:
        if worker.failure is not None:
            raise worker.failure
    return workers


def check_answers(workers: list[Worker]) -> None:
    """No two answers speak of the same change, and every worker has had a server killed."""
    changes = [change for worker in workers for change in worker.changes]
    assert len(changes) == len(set(changes))
    assert len(changes) > 100
    assert all(worker.kills for worker in workers)


def check_history(opened: tam.Tam, workers: list[Worker]) -> None:
    """Every change is one event, and no task was ever held by two agents at once."""
    acknowledged: dict[int, int] = {}
    for worker in workers:
        for task, revision in worker.changes:
            acknowledged[task] = max(revision, acknowledged.get(task, 0))
    for task, revision in acknowledged.items():
        view = opened.call("task.show", {"id": task})["task"]
        events = opened.call("task.events", {"id": task, "since": 0, "limit": 1000})["events"]
        assert view["revision"] >= revision
        assert len(events) == min(view["revision"], 1000)
        check_holders(events)


def check_holders(events: list[dict]) -> None:
    """Replay one task's events: leases are longer than the test, so only their holder ends them."""
    holder = None
    for event in events:
        if event["event"] == "claimed":
            assert holder in (None, event["actor"]), events
            holder = event["actor"]
        elif event["event"] in ("released", "completed"):
            assert holder in (None, event["actor"]), events
            holder = None
        elif event["event"] == "heartbeat":
            assert holder == event["actor"], events


def check_file(opened: tam.Tam) -> None:
    """The file is whole, and what the program counts is what is there."""
    with sqlite3.connect(opened.config["db_file"]) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        found = dict(db.execute("SELECT status, count(*) FROM task GROUP BY status").fetchall())
    db.close()
    counts = opened.call("status", {})["counts"]
    assert list(counts.values()) == [found.get(status, 0) for status in range(3)]


def check_all(workers: list[Worker]) -> None:
    opened = tam.Tam()
    check_answers(workers)
    check_history(opened, workers)
    check_file(opened)
    opened.close()


def test_eight_servers_for_three_seconds() -> None:
    check_all(load(3.0))


@pytest.mark.slow
def test_eight_servers_for_thirty_seconds() -> None:
    workers = load(30.0)
    check_all(workers)
    outcomes = sum((worker.outcomes for worker in workers), Counter())
    print(f"\n{sum(worker.requests for worker in workers)} requests,"
          f" {sum(worker.kills for worker in workers)} kills, {dict(outcomes)}")
