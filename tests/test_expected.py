"""What a person saw before they decided, compared where the row is read (see `Tam.call`)."""
from __future__ import annotations

import time

import pytest
from support import closing, make_project  # noqa: F401

import tam

#: What there is to see of the first task of `make_project`.
SEEN = {"title": "Task 1", "description": "", "status": "todo", "holder": None}


def refused(home: tam.Tam, name: str, arguments: dict, expected: dict) -> tam.TamError:
    """Have a call refused, and see that it has written nothing."""
    before = home.snapshot("demo")
    with pytest.raises(tam.TamError) as caught:
        home.call(name, arguments, expected)
    assert home.snapshot("demo") == before
    return caught.value


def test_what_is_as_expected_is_done() -> None:
    home = make_project("demo", 1)
    seen = tam.seen_of(home.call("task.show", {"id": 1})["task"])
    assert seen == SEEN
    assert home.call("task.start", {"id": 1}, seen)["task"]["status"] == "in-progress"
    assert home.call("task.edit", {"id": 1, "title": "x"}, {"title": "Task 1"})["task"]["id"] == 1


@pytest.mark.parametrize("name", ["task.start", "task.done", "task.del", "task.edit"])
def test_what_has_changed_is_told_with_who_did_it(name: str) -> None:
    home = make_project("demo", 1)
    home.call("task.update", {"id": 1, "title": "New", "agent": "agent-p"})
    home.call("task.claim", {"id": 1, "agent": "agent-q"})
    home.call("task.heartbeat", {"id": 1, "agent": "agent-q"})
    arguments = {"id": 1, "title": "Mine"} if name == "task.edit" else {"id": 1}
    error = refused(home, name, arguments, SEEN)
    assert (error.code, error.details["by"]) == ("conflict", "agent-p")
    assert error.details["changed"] == {
        "title": "New", "status": "in-progress", "holder": "agent-q"}
    assert error.message == (
        "agent-p changed the title to 'New', agent-q changed the status to 'in-progress'"
        " and the holder to 'agent-q' meanwhile")


def test_a_heartbeat_and_another_field_are_no_change() -> None:
    home = make_project("demo", 1)
    home.call("task.claim", {"id": 1, "agent": "agent-q"})
    seen = tam.seen_of(home.call("task.show", {"id": 1})["task"])
    home.call("task.heartbeat", {"id": 1, "agent": "agent-q", "lease_seconds": 5000})
    home.call("task.update", {"id": 1, "priority": 1, "tags": ["x"]})
    assert home.call("task.done", {"id": 1}, seen)["task"]["status"] == "done"


def test_a_lease_that_was_renewed_is_a_change_and_one_that_ended_is_none() -> None:
    home = make_project("demo", 2)
    now = time.time()
    later = tam.Tam(clock=lambda: now + 1000)
    for number in (1, 2):
        home.call("task.claim", {"id": number, "agent": "agent-q"})
    held = tam.seen_of(home.call("task.show", {"id": 1})["task"])
    free = tam.seen_of(later.call("task.show", {"id": 1})["task"])
    assert (held["holder"], free["holder"]) == ("agent-q", None)
    later.call("task.heartbeat", {"id": 1, "agent": "agent-q"})
    with pytest.raises(tam.Conflict, match="agent-q changed the holder to 'agent-q' meanwhile"):
        later.call("task.done", {"id": 1}, free)
    held |= {"title": "Task 2"}
    assert later.call("task.done", {"id": 2}, held)["task"]["status"] == "done"


def test_what_was_deleted_is_told_with_who_did_it() -> None:
    home = make_project("demo", 1)
    home.call("task.del", {"id": 1, "agent": "agent-q"})
    error = refused(home, "task.start", {"id": 1}, {})
    assert (error.code, error.message) == (
        "not_found", "task 1 was deleted meanwhile by agent-q")
    with pytest.raises(tam.NotFound, match="task 9 was deleted meanwhile by somebody"):
        home.call("task.start", {"id": 9}, {})
    with pytest.raises(tam.NotFound, match="task 1 not found"):
        home.call("task.start", {"id": 1})


def test_a_project_is_the_one_that_was_seen() -> None:
    home = make_project("demo", 3)
    home.call("task.claim", {"id": 1, "agent": "agent-q"})
    (project,) = home.call("project.list", {})
    seen = {"id": project["id"], "name": "demo", "tasks": 3, "leases": 1}
    for change in ({"tasks": 2}, {"leases": 0}, {"name": "old"}):
        error = refused(home, "project.del", {"name": "demo"}, {**seen, **change})
        assert error.details["changed"] == {name: seen[name] for name in change}
    home.call("project.edit", {"name": "demo", "new_name": "other"})
    home.call("project.add", {"name": "demo"})
    known = {"id": project["id"], "name": "demo"}
    for name, more in (("project.use", {}), ("project.edit", {"new_name": "mine"})):
        error = refused(home, name, {"name": "demo", **more}, known)
        assert error.message == "somebody changed the name to 'other' meanwhile"
    home.call("project.edit", {"name": "other", "new_name": "mine"}, {**known, "name": "other"})
    home.call("project.del", {"name": "mine"})
    assert refused(home, "project.del", {"name": "demo"}, seen).code == "conflict"
