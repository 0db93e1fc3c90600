"""Random operations against a second, plain implementation of the rules.

The model below is written from the contract (operations; P 3.3, 4.2, 4.3), not from tam.py: lists
and dicts, no SQL, every rule spelt out. Two long-lived Tams with one fake clock and tam 1.0.13's
own SQL work on one file; after every step answer or error must be the model's, and from time to
time the whole file must be.
"""
from __future__ import annotations

import os
import random
import sqlite3
import time
import unicodedata
from pathlib import Path

import pytest
import tam

STATUSES = ["todo", "in-progress", "done"]
TITLES = [
    "Fix login", "fix LOGIN again", "修复登录", "É clair", "e\u0301 clair", "100% a_b", "STRASSE",
    "straße", "a\ttab", "  padded  ", "'; DROP TABLE task; --",
]
TEXTS = ["", "because", "zwei\nZeilen", "É", "100%"]
SEARCHES = ["login", "é", "100%", "_", "strasse", "登", "'", "zwei\n", "nothing has this"]
TAGS = ["bug", "Bug ", "UI", "deep work", "é"]
KEYS = ["k1", "k2", "k3"]
AGENTS = ["a", "b", "c"]
NAMES = ["p0", "p1", "p2", "项目"]


def iso(seconds: int | None) -> str | None:
    if seconds is None:
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def folded(text: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


class Refused(Exception):
    """What the model answers instead of data: an error code."""


class Model:
    """Projects, tasks and events as the contract describes them."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.projects: list[dict] = []
        self.tasks: dict[int, dict] = {}
        self.last_task = 0
        self.events: list[dict] = []
        self.scope: dict | None = None
        self.agent: str | None = None

    # what a call is checked for, in the order in which it is

    def call(self, name: str, args: dict, default_project: str | None) -> dict:
        self.check(name, args)
        self.agent = args.get("agent") or None
        self.scope = None
        project = args.get("project", default_project)
        if project is not None and not name.startswith("project."):
            self.scope = self.live_project(project)
        elif name in ("status", "history", "task.list", "task.add", "task.next"):
            raise Refused("missing_project")
        wants_agent = name in ("task.claim", "task.heartbeat") \
            or name == "task.release" and not args.get("force") \
            or name == "task.next" and args.get("claim") or args.get("assigned") == "me"
        if wants_agent and self.agent is None:
            raise Refused("missing_agent")
        rule = getattr(self, name.replace(".", "_"))
        return rule(args, self.task(args["id"])) if "id" in args else rule(args)

    def check(self, name: str, args: dict) -> None:
        title = args.get("title", "t").strip()
        bad = not title or len(title) > 1000 or "\n" in title
        bad |= not 1 <= args.get("priority", 3) <= 5
        bad |= not 5 <= args.get("lease_seconds", 900) <= 86_400
        bad |= args.get("status", "todo") not in STATUSES
        bad |= args.get("agent") == "human"
        bad |= any(not tag.strip() or "," in tag for tag in args.get("tags", []))
        if bad:
            raise Refused("invalid")

    def live_project(self, name: str) -> dict:
        for project in self.projects:
            if project["name"] == name and not project["deleted"]:
                return project
        raise Refused("not_found")

    def task(self, number: int) -> dict:
        task = self.tasks.get(number)
        if task is None or task["deleted"] or task["project"]["deleted"]:
            raise Refused("not_found")
        if self.scope is not None and task["project"] is not self.scope:
            raise Refused("not_found")
        return task

    # views

    def view(self, task: dict) -> dict:
        return {
            "id": task["id"], "project_id": task["project"]["id"],
            "project": task["project"]["name"], "title": task["title"],
            "description": task["description"], "status": task["status"],
            "priority": task["priority"], "tags": task["tags"], "assigned_agent": task["agent"],
            "lease_expires_at": iso(task["expires"]),
            "lease_expired": task["agent"] is not None and task["expires"] is not None
            and task["expires"] <= self.now,
            "revision": task["revision"], "created": task["created"],
        }

    def leased(self, task: dict) -> bool:
        return task["agent"] is not None and (task["expires"] or 0) > self.now

    def record(
        self, task: dict, event: str, before: str | None, metadata: dict | None = None
    ) -> None:
        self.events.append({
            "id": len(self.events) + 1, "task_id": task["id"], "event": event,
            "actor": self.agent or "human", "from_status": before, "to_status": task["status"],
            "created": iso(self.now), "forced": metadata or {}, "project": task["project"],
        })

    def write(self, task: dict, event: str, changes: dict, metadata: dict | None = None) -> dict:
        before = task["status"]
        task.update(changes)
        task["revision"] += 1
        self.record(task, event, before, metadata)
        return {"task": self.view(task)}

    def guard(self, args: dict, task: dict) -> None:
        if args.get("if_revision", task["revision"]) != task["revision"]:
            raise Refused("conflict")
        if self.agent is not None and self.leased(task) and task["agent"] != self.agent:
            raise Refused("conflict")

    # projects

    def project_list(self, args: dict) -> list:
        return [project["name"] for project in self.projects if not project["deleted"]]

    def project_add(self, args: dict) -> dict:
        for project in self.projects:
            if project["name"] == args["name"]:
                if not project["deleted"]:
                    raise Refused("conflict")
                project["deleted"] = False
                return {"project": project["name"], "restored": True}
        self.add_project(args["name"])
        return {"project": args["name"], "restored": False}

    def add_project(self, name: str) -> None:
        self.projects.append({"id": len(self.projects) + 1, "name": name, "deleted": False})

    def project_del(self, args: dict) -> dict:
        project = self.live_project(args["name"])
        project["deleted"] = True
        return {"project": project["name"]}

    def project_edit(self, args: dict) -> dict:
        project = self.live_project(args["name"])
        taken = [other for other in self.projects if other["name"] == args["new_name"]]
        if taken and taken != [project]:
            raise Refused("conflict")
        project["name"] = args["new_name"]
        return {"project": project["name"]}

    # reading

    def live(self) -> list[dict]:
        return [task for task in self.tasks.values()
                if task["project"] is self.scope and not task["deleted"]]

    def free(self) -> list[dict]:
        found = [task for task in self.live() if task["status"] != "done" and not self.leased(task)]
        return sorted(found, key=lambda task: (task["priority"], task["created"], task["id"]))

    def status(self, args: dict) -> dict:
        live = self.live()
        open_tasks = [task for task in live if task["status"] != "done"]
        return {
            "project": self.scope["name"],
            "counts": {
                status.replace("-", "_"): len([task for task in live if task["status"] == status])
                for status in STATUSES
            },
            "leased": len([task for task in open_tasks if self.leased(task)]),
            "unassigned": len([task for task in open_tasks if task["agent"] is None]),
            "next": [self.view(task) for task in self.free()[:5]],
        }

    def task_list(self, args: dict) -> dict:
        found = [task for task in self.live() if self.matches(task, args)]
        found.sort(key=lambda task: (task["created"], task["id"]), reverse=True)
        limit = min(max(args.get("limit", 100), 1), 1000)
        return {
            "tasks": [self.view(task) for task in found[:limit]], "count": len(found[:limit]),
            "total": len(found), "total_is_exact": True, "limit": limit, "truncated": len(found) > limit,
            "all": [task["id"] for task in found],
        }

    def matches(self, task: dict, args: dict) -> bool:
        wanted = args.get("assigned", "any")
        owner = {"any": task["agent"], "unassigned": None, "me": self.agent}.get(wanted, wanted)
        tags = {tag.strip().lower() for tag in args.get("tag", [])}
        texts = folded(task["title"]), folded(task["description"])
        return (
            args.get("status", task["status"]) == task["status"]
            and args.get("priority", task["priority"]) == task["priority"]
            and owner == task["agent"] and tags <= set(task["tags"])
            and any(folded(args.get("search", "")) in text for text in texts)
        )

    def task_show(self, args: dict, task: dict) -> dict:
        events = [event for event in self.events if event["task_id"] == task["id"]]
        return {"task": self.view(task), "events": events[-100:]}

    def task_events(self, args: dict, task: dict) -> dict:
        return self.page([event for event in self.events if event["task_id"] == task["id"]], args)

    def history(self, args: dict) -> dict:
        return self.page([event for event in self.events if event["project"] is self.scope], args)

    def page(self, events: list, args: dict) -> dict:
        limit = min(max(args.get("limit", 100), 1), 1000)
        total = len(events)
        if "since" in args:
            later = [event for event in events if event["id"] > args["since"]]
            shown, truncated = later[:limit], len(later) > limit
        else:
            shown, truncated = events[-limit:], total > limit
        return {"events": shown, "count": len(shown), "total": total,
                "total_is_exact": True, "limit": limit, "truncated": truncated}

    # writing

    def task_add(self, args: dict) -> dict:
        key = args.get("idempotency_key")
        for task in self.live():
            if key is not None and task["key"] == key:
                return {"task": self.view(task), "deduplicated": True}
        task = self.add_task(self.scope, args["title"].strip(), iso(self.now))
        task["description"] = args.get("description", "")
        task["priority"] = args.get("priority", 3)
        task["tags"] = self.canonical(args.get("tags", []))
        task["key"] = key
        self.record(task, "created", None)
        return {"task": self.view(task), "deduplicated": False}

    def canonical(self, tags: list) -> list:
        return list(dict.fromkeys(tag.strip().lower() for tag in tags))

    def add_task(self, project: dict, title: str, created: str) -> dict:
        self.last_task += 1
        task = self.tasks[self.last_task] = {
            "id": self.last_task, "project": project, "title": title, "description": "",
            "status": "todo", "priority": 3, "tags": [], "agent": None, "expires": None,
            "revision": 1, "key": None, "deleted": False, "created": created,
        }
        return task

    def task_update(self, args: dict, task: dict) -> dict:
        plain = ("description", "status", "priority")
        wanted = {name: args[name] for name in plain if name in args}
        if "title" in args:
            wanted["title"] = args["title"].strip()
        if "tags" in args:
            wanted["tags"] = self.canonical(args["tags"])
        if not wanted:
            raise Refused("invalid")
        self.guard(args, task)
        if wanted.get("status", "in-progress") != "in-progress":
            wanted |= {"agent": None, "expires": None}
        if all(task[name] == value for name, value in wanted.items()):
            return {"task": self.view(task)}
        before, after = task["status"], wanted.get("status", task["status"])
        event = "updated"
        if before != after and "done" in (before, after):
            event = "completed" if after == "done" else "reopened"
        return self.write(task, event, wanted)

    def task_edit(self, args: dict, task: dict) -> dict:
        return self.task_update(args, task)

    def task_start(self, args: dict, task: dict) -> dict:
        if task["status"] == "in-progress":
            raise Refused("conflict")
        return self.task_update({"status": "in-progress"}, task)

    def task_claim(self, args: dict, task: dict) -> dict:
        if task["status"] == "done":
            raise Refused("conflict")
        metadata = {}
        if self.leased(task) and task["agent"] != self.agent:
            if not args.get("force"):
                raise Refused("conflict")
            metadata = {"force": True, "previous_agent": task["agent"]}
        expires = self.now + args.get("lease_seconds", 900)
        changes = {"status": "in-progress", "agent": self.agent, "expires": expires}
        return self.write(task, "claimed", changes, metadata)

    def task_heartbeat(self, args: dict, task: dict) -> dict:
        if task["status"] == "done" or task["agent"] != self.agent:
            raise Refused("conflict")
        return self.write(task, "heartbeat", {"expires": self.now + args.get("lease_seconds", 900)})

    def task_release(self, args: dict, task: dict) -> dict:
        own = task["agent"] is not None and task["agent"] == self.agent
        if not own and not args.get("force"):
            raise Refused("conflict")
        changes = {"agent": None, "expires": None}
        if task["status"] == "in-progress":
            changes["status"] = "todo"
        if all(task[name] == value for name, value in changes.items()):
            return {"task": self.view(task)}
        metadata = {} if own else {"force": True, "previous_agent": task["agent"]}
        return self.write(task, "released", changes, metadata)

    def task_done(self, args: dict, task: dict) -> dict:
        if task["status"] == "done":
            raise Refused("conflict")
        self.guard(args, task)
        return self.write(task, "completed", {"status": "done", "agent": None, "expires": None})

    def task_del(self, args: dict, task: dict) -> dict:
        self.guard(args, task)
        return self.write(task, "deleted", {"deleted": True})

    def task_next(self, args: dict) -> dict:
        free = self.free()
        if not free:
            return {"task": None}
        return self.task_claim(args, free[0]) if args.get("claim") else {"task": self.view(free[0])}


class World:
    """The file, its users, and the model beside it."""

    def __init__(self, seed: int, path: Path) -> None:
        self.choice = random.Random(seed)
        self.path = path
        self.model = Model(int(time.time()))
        clock = lambda: self.model.now  # noqa: E731
        env = dict(os.environ)
        self.users = {None: tam.Tam(env=env, clock=clock),
                      "p0": tam.Tam(env=env, clock=clock, project="p0")}
        self.outcomes: dict[str, int] = {}
        for name in NAMES[:3]:
            self.do("project.add", {"name": name}, None)
        self.raw = sqlite3.connect(path, isolation_level=None)

    def close(self) -> None:
        for user in self.users.values():
            user.close()
        self.raw.close()

    # one step

    def step(self) -> None:
        self.model.now += self.choice.choice([0, 0, 0, 1, 3, 60, 1_000])
        kind = self.choice.random()
        if kind < 0.08:
            self.old_program()
        elif kind < 0.10:
            self.users[self.choice.choice([None, "p0"])].close()
        elif kind < 0.13:
            self.compare_snapshot()
        else:
            name = self.choice.choice(OPERATIONS)
            self.do(name, self.arguments(name), self.choice.choice([None, None, "p0"]))

    def do(self, name: str, args: dict, user: str | None) -> None:
        try:
            wanted = self.model.call(name, args, user)
        except Refused as refused:
            wanted = str(refused)
        try:
            got = self.users[user].call(name, args)
        except tam.TamError as error:
            got = error.code
        what = f"{name} {args} by {user}"
        outcome = f"{name} {wanted if isinstance(wanted, str) else 'ok'}"
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        if isinstance(wanted, str) or isinstance(got, str):
            assert got == wanted, what
        else:
            getattr(self, "same_" + name.replace(".", "_"), self.same)(got, wanted, what, user)

    def same(self, got: dict, wanted: dict, what: str, user: str | None) -> None:
        for key, value in wanted.items():
            if key == "task" and value is not None:
                assert self.shown(got[key]) == value, what
            elif key == "project" and not isinstance(got[key], str):
                assert got[key]["name"] == value, what
            elif key == "events":
                self.same_events(got[key], value, what)
            elif key == "next" or key == "tasks":
                assert [self.shown(view) for view in got[key]] == value, what
            elif key != "all":
                assert got[key] == value, (what, key)

    def shown(self, view: dict) -> dict:
        # The time of the last change is the file's own: its trigger takes the system's clock.
        assert len(view["updated"]) == 20
        return {key: value for key, value in view.items() if key != "updated"}

    def same_events(self, got: list, wanted: list, what: str) -> None:
        keys = ("id", "task_id", "event", "actor", "from_status", "to_status", "created")
        assert [[event[key] for key in keys] for event in got] \
            == [[event[key] for key in keys] for event in wanted], what
        for one, other in zip(got, wanted):
            forced = {key: one["metadata"][key] for key in ("force", "previous_agent")
                      if key in one["metadata"]}
            assert forced == other["forced"], what

    def same_project_list(self, got: list, wanted: list, what: str, user: str | None) -> None:
        assert [project["name"] for project in got] == wanted, what

    def same_task_list(self, got: dict, wanted: dict, what: str, user: str | None) -> None:
        self.same(got, wanted, what, user)
        pages, data = [task["id"] for task in got["tasks"]], got
        for _ in range(5):  # the pages join without a gap or an overlap
            if not data["truncated"]:
                break
            data = self.users[user].call("task.list", {**self.last, "cursor": data["next_cursor"]})
            assert data["total"] == wanted["total"], what
            pages += [task["id"] for task in data["tasks"]]
        assert pages == wanted["all"][:len(pages)], what
        assert data["truncated"] or pages == wanted["all"], what

    # arguments

    def arguments(self, name: str) -> dict:
        args = getattr(self, "args_" + name.replace(".", "_"))()
        if not name.startswith("project.") and self.choice.random() < 0.6:
            args["project"] = self.choice.choice(NAMES + ["p0"] * 8 + ["no such project"])
        if name not in NO_AGENT and self.choice.random() < 0.8:
            holder = self.model.tasks.get(args.get("id"), {}).get("agent")
            agents = AGENTS * 3 + [holder or "a"] * 9 + ["", "human", "human"]
            args["agent"] = self.choice.choice(agents)
        self.last = args
        return args

    def some(self, **options: object) -> dict:
        """Choose some of the options, each with a value from its list."""
        return {name: self.choice.choice(values) for name, values in options.items()
                if self.choice.random() < 0.4}

    def an_id(self) -> int:
        newest = self.model.last_task
        if self.choice.random() < 0.03:
            return self.choice.choice([0, -1, newest + 1, 2**63, 10**30])
        live = [number for number, task in self.model.tasks.items() if not task["deleted"]]
        if live and self.choice.random() < 0.9:
            return self.choice.choice(live[-10:])
        return self.choice.randint(1, max(1, newest))

    def tags(self) -> list:
        wrong = [[" "], ["a,b"]] if self.choice.random() < 0.1 else []
        return self.choice.choice(wrong + [self.choice.sample(TAGS, 3), [], ["bug", "Bug", "BUG "]])

    def guarded(self) -> dict:
        args: dict = {"id": self.an_id()}
        task = self.model.tasks.get(args["id"])
        if task is not None and self.choice.random() < 0.3:
            args["if_revision"] = task["revision"] - self.choice.choice([0, 0, 1])
        return args

    def args_project_list(self) -> dict:
        return {}

    def args_project_add(self) -> dict:
        return {"name": self.choice.choice(NAMES)}

    def args_project_del(self) -> dict:
        return {"name": self.choice.choice(NAMES[1:])}

    def args_project_edit(self) -> dict:
        names = [*NAMES[1:], "p3"]
        return {"name": self.choice.choice(names), "new_name": self.choice.choice(names + ["p0"])}

    def args_status(self) -> dict:
        return {}

    def args_history(self) -> dict:
        recent = max(0, len(self.model.events) - 20)
        return self.some(since=[0, -5, recent, 2**70], limit=[1, 5, 0, 2000])

    def args_task_events(self) -> dict:
        return {"id": self.an_id(), **self.args_history()}

    def args_task_list(self) -> dict:
        args = self.some(
            status=[*STATUSES, "bogus"], priority=[1, 2, 3, 3, 9], limit=[1, 3, 7, 0, -4, 5000],
            assigned=["me"] * 5 + ["unassigned", *AGENTS], search=SEARCHES,
        )
        if self.choice.random() < 0.3:
            args["tag"] = self.choice.sample(["bug", "UI", "É"], self.choice.choice([1, 1, 2]))
        return args

    def args_task_show(self) -> dict:
        return {"id": self.an_id()}

    args_task_start = args_task_show

    def args_task_add(self) -> dict:
        title = self.choice.choice(TITLES * 4 + ["  ", "two\nlines", "x" * 1001])
        return {"title": title, "tags": self.tags(), **self.some(
            description=TEXTS, priority=[1, 2, 3, 4, 5, 5, 5, 0], idempotency_key=KEYS,
        )}

    def args_task_update(self) -> dict:
        args = self.guarded() | self.some(
            title=TITLES + [""], description=TEXTS, status=STATUSES * 3 + ["bogus"],
            priority=[1, 2, 3, 4, 5, 6],
        )
        return args | ({"tags": self.tags()} if self.choice.random() < 0.3 else {})

    def args_task_edit(self) -> dict:
        return {"id": self.an_id(), "title": self.choice.choice(TITLES)}

    def args_task_claim(self) -> dict:
        return {"id": self.an_id()} | self.some(
            lease_seconds=[5, 60, 900, 86_400, 86_401, 4], force=[True, False])

    def args_task_heartbeat(self) -> dict:
        return {"id": self.an_id()} | self.some(lease_seconds=[5, 900])

    def args_task_release(self) -> dict:
        return {"id": self.an_id()} | self.some(force=[True, False])

    args_task_done = args_task_del = guarded

    def args_task_next(self) -> dict:
        return self.some(claim=[True, True, False], lease_seconds=[5, 60, 900])

    # tam 1.0.13 on the same file

    def old_program(self) -> None:
        number = self.an_id()
        project = self.choice.choice(self.model.projects[:1] * 5 + self.model.projects)
        task = self.model.tasks.get(number)
        statement = self.choice.choice(
            ["add", "status", "title", "delete", "delete project", "erase"])
        if statement == "add":
            insert = "INSERT INTO task(title, project_id) VALUES ('raw', ?)"
            self.raw.execute(insert, (project["id"],))
            [(created,)] = self.raw.execute("SELECT created FROM task ORDER BY id DESC LIMIT 1")
            self.model.add_task(project, "raw", f"{created[:10]}T{created[11:]}Z")
        elif statement == "delete project":
            project["deleted"] = self.choice.random() < 0.2
            self.raw.execute("UPDATE project SET is_deleted = ? WHERE id = ?",
                             (project["deleted"], project["id"]))
        elif task is None:
            return
        elif statement == "status":
            status = self.choice.randrange(3)
            task["status"] = STATUSES[status]
            self.raw.execute("UPDATE task SET status = ? WHERE id = ?", (status, number))
        elif statement == "title":
            task["title"] = "renamed"
            self.raw.execute("UPDATE task SET title = ? WHERE id = ?", ("renamed", number))
        elif statement == "delete":
            # No task with a key comes back: the key may be another's now, and the index forbids it.
            task["deleted"] = task["key"] is not None or not task["deleted"]
            stored = 1 if task["deleted"] else self.choice.choice([0, None])
            self.raw.execute("UPDATE task SET is_deleted = ? WHERE id = ?", (stored, number))
        elif self.choice.random() < 0.2:
            del self.model.tasks[number]
            self.raw.execute("DELETE FROM task WHERE id = ?", (number,))
        self.compare_counters()

    # the whole file

    def compare_counters(self) -> None:
        counted = self.raw.execute(
            "SELECT project_id, status, n FROM task_count WHERE n <> 0 ORDER BY 1, 2").fetchall()
        recounted = self.raw.execute(
            "SELECT project_id, status, count(*) FROM task WHERE IFNULL(is_deleted, 0) = 0"
            " GROUP BY 1, 2 ORDER BY 1, 2").fetchall()
        assert counted == recounted

    def compare_snapshot(self) -> None:
        name, model = self.choice.choice(NAMES), self.model
        try:
            model.scope = model.live_project(name)
        except Refused:
            with pytest.raises(tam.NotFound):
                self.users[None].snapshot(name)
            return
        got, live = self.users[None].snapshot(name), model.live()
        leased = [task for task in live if model.leased(task) and task["status"] != "done"]
        assert got["counts"] == model.status({})["counts"]
        assert got["leased_count"] == len(leased)
        assert got["next_expiry"] == min((task["expires"] for task in leased), default=None)
        leased.sort(key=lambda task: (task["expires"], task["id"]))
        assert [task["id"] for task in got["leased"]] == [task["id"] for task in leased][:50]
        self.compare_columns(got["columns"], live)
        mine = [event for event in model.events if event["project"] is model.scope]
        assert got["cursor"] == (mine[-1]["id"] if mine else 0)
        self.same_events(got["events"], mine[-20:], "snapshot")

    def compare_columns(self, columns: dict, live: list[dict]) -> None:
        """Each in the order of the work; when a task was updated is SQLite's own clock's to say."""
        updated = {view["id"]: view["updated"] for view in columns["done"]}
        orders = {
            "todo": lambda task: (task["priority"], task["created"], task["id"]),
            "in-progress": lambda task: (task["expires"] or 2**63, task["id"]),
            "done": lambda task: (updated[task["id"]], task["id"]),
        }
        for status, order in orders.items():
            ours = [task for task in live if task["status"] == status]
            ours.sort(key=order, reverse=status == "done")
            assert [self.shown(view) for view in columns[status]] == [
                self.model.view(task) for task in ours][:500]

    def compare_file(self) -> None:
        self.compare_counters()
        rows = self.raw.execute(
            "SELECT id, project_id, title, content, status, priority, tags, assigned_agent,"
            " lease_expires_at, revision, idempotency_key,"
            " IFNULL(is_deleted, 0) FROM task ORDER BY id")
        assert rows.fetchall() == [
            (task["id"], task["project"]["id"], task["title"], task["description"],
             STATUSES.index(task["status"]), task["priority"], ",".join(task["tags"]),
             task["agent"], task["expires"], task["revision"], task["key"], int(task["deleted"]))
            for task in self.model.tasks.values()
        ]
        events = self.raw.execute("SELECT id, task_id, event, actor FROM task_events ORDER BY id")
        assert events.fetchall() == [
            (event["id"], event["task_id"], event["event"], event["actor"])
            for event in self.model.events
        ]
        assert self.raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


NO_AGENT = ("status", "history", "project.list", "project.add", "project.del", "project.edit",
            "task.show", "task.events")
OPERATIONS = [
    *["task.add"] * 5, *["task.update"] * 5, *["task.claim"] * 5, *["task.next"] * 5,
    *["task.list"] * 3, *["task.heartbeat"] * 3, *["task.release"] * 3, *["task.done"] * 3,
    *["task.show", "task.events", "task.edit", "task.start", "task.del", "history", "status"] * 2,
    *["project.add"] * 3, "project.list", "project.del", "project.edit",
]


@pytest.mark.parametrize("seed", [101, 102, 103, 104])
def test_random_operations_agree_with_the_model(scratch_home: Path, seed: int) -> None:
    world = World(seed, scratch_home / "tam.db3")
    try:
        for number in range(1, 2_501):
            world.step()
            if number % 250 == 0:
                world.compare_file()
    finally:
        world.close()
    # The walk went everywhere: each operation has worked and, where it can, has been refused.
    wanted = {f"{name} ok" for name in OPERATIONS} | {
        f"task.{name} {code}" for name in ("claim", "update", "heartbeat", "release", "done")
        for code in ("conflict", "not_found", "invalid")
    } | {f"task.{name} missing_agent" for name in ("claim", "heartbeat", "next", "list")}
    assert wanted <= world.outcomes.keys(), wanted - world.outcomes.keys()
