"""The board never undoes what somebody else did: what stands between a look and a key.

First what follows from a call that was refused (see test_expected.py) and from what the person can
have seen, without a process; then the board as a process, with an agent beside it.
"""
from __future__ import annotations

import contextlib
import dataclasses
import random
import re
import sys
import time
from collections.abc import Iterator

import pytest
from test_board import HELD, arrived, keys, selected, shown, task, tasks_board
from tick_support import BOARD, ROOT, Process, closing, database, make_project  # noqa: F401

import tam
import tam_tick
from tam_tick import NEWS, Board, Confirm, Eyes, Prompt, Tip

# ---- what a refusal leads to ----


def failing(board: Board, *pressed: str, **changed: object) -> Board:
    """Press keys whose command fails since others have changed something."""
    board, (command,) = keys(board, *pressed)
    error = tam.Conflict("agent-q changed it meanwhile", changed=changed, by="agent-q")
    return tam_tick.failed(board, command, error)


def test_a_second_enter_saves_over_what_the_first_one_told() -> None:
    board = failing(tasks_board([1]), "e", "x", "enter", title="New")
    assert (board.overlay.text, board.overlay.title) == ("agent-q changed it meanwhile", NEWS)
    _, (command,) = keys(board, "enter", "enter")
    assert command.arguments["title"] == "Task 1x" and command.expected == {"title": "New"}
    projects = Board(projects=({"id": 4, "name": "old"},), loaded=True)
    board = failing(projects, "e", "x", "enter", name="new")
    _, (command,) = keys(board, "enter", "enter")
    assert command.arguments == {"name": "new", "new_name": "oldx"}
    assert command.expected == {"id": 4, "name": "new"}


def test_a_question_is_asked_again_with_the_reason() -> None:
    board = failing(tasks_board([1]), "d", "enter", title="New")
    assert shown(board) == "agent-q changed it meanwhile.\nDelete task 1 'New'?"
    _, (command,) = keys(board, "enter")
    assert command.expected["title"] == "New"
    typing, _ = keys(tasks_board([1, 2]), "d", "enter")
    held = dataclasses.replace(tasks_board([]), columns=((task(1, **HELD),), (), ()))
    done = failing(held, "c", "enter", status="done")
    assert isinstance(done.overlay, Tip), "what is done already is not asked"


def test_a_question_does_not_get_in_the_way_of_typing() -> None:
    board, (command,) = keys(tasks_board([1]), "d", "enter")
    board, _ = keys(board, "a", "x")
    error = tam.Conflict("changed", changed={"title": "New"})
    board = tam_tick.failed(board, command, error)
    assert isinstance(board.overlay, Tip) and board.overlay.back.text == "x"


def test_start_and_complete_are_told_and_not_asked() -> None:
    board = failing(tasks_board([1]), "s", status="in-progress")
    assert board.overlay == Tip("agent-q changed it meanwhile", None, NEWS)


# ---- the eyes ----


class Person:
    """A board and the eyes before it, with a clock that only the test moves."""

    def __init__(self, board: Board) -> None:
        self.now = 100.0
        self.eyes = Eyes(board, timer=lambda: self.now)
        self.board = board

    def press(self, *pressed: str) -> list[tam_tick.Command]:
        commands: list[tam_tick.Command] = []
        for key in pressed:
            self.board, more = self.eyes.press(self.board, key)
            commands += more
        return commands

    def sees(self, board: Board, seconds: float = tam_tick.REACTION) -> None:
        self.board = board
        self.eyes.painted(board, self.eyes.keys)
        self.now += seconds


def ids(commands: list[tam_tick.Command]) -> list[int]:
    return [command.arguments["id"] for command in commands]


@pytest.mark.parametrize("key", ["s", "c", "e", "d"])
def test_a_key_does_not_hit_what_has_just_moved_under_the_cursor(key: str) -> None:
    person = Person(tasks_board([1, 2, 3]))
    for seconds in (0.0, tam_tick.REACTION - 0.01):
        person.sees(arrived(tasks_board([1, 2, 3]), [2, 3]), seconds)
        assert person.press(key) == [] and person.board.overlay is None
        assert "press again" in person.board.note and selected(person.board) == 2
    person.now += 0.02
    commands = person.press(key)
    assert ids(commands) == [2] if key in "sc" else person.board.overlay.arguments["id"] == 2
    assert person.board.note == ""


def test_starting_one_after_the_other_works_at_the_pace_of_the_eyes() -> None:
    person = Person(tasks_board([1, 2, 3]))
    started = []
    for left in ([2, 3], [3], []):
        started += ids(person.press("s"))
        assert person.press("s") == [] == person.press("c"), "its effect is not seen yet"
        person.sees(arrived(person.board, left))
    assert started == [1, 2, 3]


def test_a_selection_that_stands_is_acted_on_however_much_goes_on_around_it() -> None:
    person = Person(tasks_board([1, 2, 3]))
    person.press("down")
    for others in ([9, 1, 2, 3], [2, 3], [8, 2]):
        person.sees(arrived(person.board, others), 0.01)
    assert ids(person.press("s")) == [2]


def test_a_move_in_a_list_that_has_just_changed_is_no_aim_yet() -> None:
    person = Person(tasks_board([1, 2]))
    assert ids(person.press("down", "s")) == [2], "a known neighbour needs no second look"
    person = Person(tasks_board([1, 2]))
    person.sees(arrived(person.board, [1, 9, 2]), 0.01)
    assert person.press("down", "s") == [] and selected(person.board) == 9
    person.sees(person.board)
    assert ids(person.press("s")) == [9]


def test_what_a_key_expects_is_what_was_seen() -> None:
    person = Person(tasks_board([1]))
    renamed = dataclasses.replace(person.board, columns=((task(1, title="New"),), (), ()))
    person.sees(renamed, 0.01)
    assert person.press("s")[0].expected["title"] == "Task 1"
    person = Person(tasks_board([1]))
    person.sees(renamed)
    assert person.press("s")[0].expected["title"] == "New"


@pytest.mark.parametrize("key", ["enter", "esc"])
@pytest.mark.parametrize("overlay", [Tip("x"), Confirm("task.del", {"id": 1}, task(1), "again")])
def test_what_has_just_appeared_is_not_closed_unread(overlay: object, key: str) -> None:
    person = Person(tasks_board([1]))
    person.sees(dataclasses.replace(person.board, overlay=overlay), 0.05)
    assert person.press(key) == [] and person.board.overlay == overlay
    person.now += tam_tick.REACTION
    person.press(key)
    assert person.board.overlay is None


def test_an_answer_expects_what_the_question_showed() -> None:
    person = Person(tasks_board([1]))
    person.press("d")
    asked = dataclasses.replace(person.board.overlay, subject=task(1, **HELD))
    person.sees(dataclasses.replace(person.board, overlay=asked), 0.05)
    (command,) = person.press("enter")
    assert command.expected["holder"] is None, "so it will be asked again"


def test_the_project_under_a_new_task_is_the_one_that_was_seen() -> None:
    person = Person(tasks_board([1]))
    person.sees(tam_tick.opened(person.board, "other"), 0.05)
    person.press("a")
    assert person.board.overlay is None
    person.now += tam_tick.REACTION
    person.press("a")
    assert person.board.overlay.arguments == {"project": "other"}


def test_an_edit_that_changes_nothing_leaves_the_task_to_be_acted_on() -> None:
    person = Person(tasks_board([1]))
    (command,) = person.press("e", "enter")
    assert person.press("s") == []
    person.sees(tam_tick.settled(person.board, command, {"task": task(1)}))
    assert ids(person.press("s")) == [1]


def test_typing_needs_no_eyes() -> None:
    person = Person(tasks_board([1]))
    (command,) = person.press("a", *"secdu", "enter")
    assert command.arguments["title"] == "secdu"
    assert isinstance(person.press("e") or person.board.overlay, Prompt)


def test_pictures_that_nobody_presses_a_key_at_are_forgotten() -> None:
    person = Person(tasks_board([1]))
    for _ in range(1000):
        person.sees(person.board, 0.01)
    assert len(person.eyes._painted) <= tam_tick.REACTION / 0.01 + 2


# ---- the board with an agent beside it ----


@pytest.fixture
def agent() -> tam.Tam:
    """An agent in a project of three tasks."""
    make_project("demo", 3)
    return tam.Tam(agent="agent-q")


def opened(argv: tuple[str, ...] = BOARD) -> Process:
    board = Process(argv, piped=False, size=(80, 24))
    board.sees("Task 3")
    return board


CLAIM = (
    "UPDATE task SET status = 1, assigned_agent = 'agent-q', lease_expires_at = 9999999999"
    " WHERE id = 1",
    "INSERT INTO task_events (task_id, project_id, event, actor, from_status, to_status)"
    " VALUES (1, 1, 'claimed', 'agent-q', 0, 1)",
)


@contextlib.contextmanager
def unseen(board: Process, *statements: str) -> Iterator[None]:
    """Write what the board cannot see before the keys of the block are under way."""
    lock = database()
    lock.execute("BEGIN IMMEDIATE")
    for statement in statements:
        lock.execute(statement)
    yield
    board.press("")
    lock.execute("COMMIT")


def titles(agent: tam.Tam) -> dict[int, str]:
    return {view["id"]: view["title"] for view in agent.call("task.list", {})["tasks"]}


def test_a_title_that_an_agent_changes_meanwhile_is_not_written_over(agent: tam.Tam) -> None:
    with opened() as board:
        board.press("e")
        board.sees("Edit task 1")
        agent.call("task.update", {"id": 1, "title": "新标题"})
        board.type("X\r")
        board.sees("agent-q changed the title to '新标题' meanwhile")
        assert "That did not work" not in board.text() and titles(agent)[1] == "新标题"
        board.press("\r")
        board.sees("Task 1X")
        board.press("\r")
        board.until(lambda: titles(agent)[1] == "Task 1X", "the decision")


def test_the_question_follows_the_file_and_is_asked_again(agent: tam.Tam) -> None:
    with opened() as board:
        board.press("d")
        board.sees("Delete task 1 'Task 1'?")
        agent.call("task.claim", {"id": 1})
        board.sees("agent-q holds it for")
        with unseen(board, "UPDATE task SET title = 'Renamed' WHERE id = 1"):
            board.press("\r")
        board.sees("somebody changed the title to 'Renamed' meanwhile")
        board.sees("Delete task 1 'Renamed'?")
        assert 1 in titles(agent)
        board.press("\r")
        board.until(lambda: 1 not in titles(agent), "the deletion")


def test_completing_what_an_agent_has_just_claimed_is_told_and_then_asked(agent: tam.Tam) -> None:
    with opened() as board:
        with unseen(board, *CLAIM):
            board.press("c")
        board.sees("agent-q changed the status to 'in-progress' and the holder")
        assert agent.call("task.show", {"id": 1})["task"]["status"] == "in-progress"
        board.press("\r")
        board.loses("meanwhile")
        board.press("\x1b[C")
        board.press("c")
        board.sees("Complete task 1 'Task 1'?")
        assert "agent-q holds it for" in board.text()
        board.press("\r")
        board.sees("Done 1")


def test_complete_right_after_start_does_not_hit_the_neighbour(agent: tam.Tam) -> None:
    with opened() as board:
        board.press("sc")
        board.sees("In Progress 1")
        board.sees("press again")
        board.press("c")
        board.sees("Done 1")
    done = agent.call("task.list", {"status": "done"})["tasks"]
    assert [view["id"] for view in done] == [2], "what was shown as selected by then"
    assert agent.call("task.show", {"id": 1})["task"]["status"] == "in-progress"


def test_the_deletion_by_others_is_news_and_leads_one_level_back(agent: tam.Tam) -> None:
    with opened() as board:
        board.type("\r")
        board.sees("Events")
        agent.call("task.del", {"id": 1})
        board.sees("task 1 was deleted meanwhile by agent-q")
        board.sees("Todo 2")
        assert "That did not work" not in board.text()
        board.press("\r")
        board.press("d")
        board.sees("Delete task 2")
        agent.call("task.del", {"id": 2})
        board.sees("task 2 was deleted meanwhile by agent-q")
        board.press("\r")
        agent.call("project.edit", {"name": "demo", "new_name": "other"})
        board.sees("project demo was deleted or renamed meanwhile")
        board.sees("Projects 1")


def test_the_question_about_a_project_counts_its_tasks(agent: tam.Tam) -> None:
    with opened() as board:
        board.type("\x1b")
        board.sees("Projects 1")
        board.press("d")
        board.sees("Delete project 'demo' with 3 tasks?")
        with unseen(board, "INSERT INTO task (title, project_id) VALUES ('x', 1)", *CLAIM):
            board.press("\r")
        board.sees("somebody changed the tasks to '4' and the leases to '1'")
        board.sees("Delete project 'demo' with 4 tasks, 1 of them held by")
        assert agent.call("project.list", {}) != []
        board.press("\r")
        board.sees("no projects yet")


def test_the_board_opens_on_the_current_project(agent: tam.Tam) -> None:
    agent.call("project.add", {"name": "other"})
    with opened() as board:
        board.type("\x1b")
        board.sees("Projects 2")
        board.type("q")
        assert board.wait() == 0


# ---- at random instants ----

#: The board with a sign before the selected card, which otherwise only its colour marks.
MARKED = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import tam_tick
def marked(line, style):
    return [("▶" if text == " " else text, style) for text, _ in line]
tam_tick.restyled = marked
sys.exit(tam_tick.main(["--board"]))
"""


class Instants:
    """A person and an agent on one board, in any order and at any moment."""

    def __init__(self, board: Process, seed: int) -> None:
        self.board, self.random = board, random.Random(seed)
        self.agent, self.person = tam.Tam(agent="agent-q"), tam.Tam()
        self.count = 0
        self.meant: list[tuple] = []  # what keys meant: event, task, the newest event, the screen
        self.told: set[str] = set()  # what has been read, of all that agents wrote
        self.written: dict[int, str] = {}  # titles by their event

    def step(self) -> None:
        for _ in range(self.random.randint(0, 2)):
            self.act_as_agent()
        self.look(self.random.choice([0, 0.01, 0.05, 0.2, 0.3]))
        self.act_as_person()
        if self.random.random() < 0.5:
            self.act_as_agent()

    def act_as_agent(self) -> None:
        self.count += 1
        live = [view["id"] for view in self.agent.call("task.list", {})["tasks"]]
        title = {"title": f"A{self.count}"}
        name, arguments = self.random.choice([
            ("task.update", title), ("task.update", title), ("task.claim", {}),
            ("task.claim", {}), ("task.done", {}), ("task.release", {"force": True}),
            ("task.update", {"status": "todo"}), ("task.del", {}), ("task.add", title),
            ("task.add", title),
        ])
        if len(live) < 6:
            name, arguments = "task.add", title
        if name != "task.add":
            arguments = {"id": self.random.choice(live), **arguments}
        cursor = self.agent.snapshot("demo", 0)["cursor"]
        try:
            view = self.agent.call(name, arguments)["task"]
        except (tam.Conflict, tam.NotFound):
            return  # done already, nobody's, or deleted by the person just now
        for event in self.agent.call("history", {"since": cursor})["events"]:
            if "title" in arguments and (event["actor"], event["task_id"]) == (
                    "agent-q", view["id"]):
                self.written[event["id"]] = arguments["title"]

    def look(self, seconds: float) -> str:
        end = time.monotonic() + seconds
        while self.board.pump(max(end - time.monotonic(), 0)) or time.monotonic() < end:
            pass
        text = self.board.text()
        self.told |= set(re.findall(r"\bA\d+\b", text))
        return text

    def act_as_person(self) -> None:
        text = self.look(0)
        if "Projects" in text:
            self.type("\x1b" if "Esc cancel" in text else "\r")
            return
        if "Esc cancel" in text or "Enter closes" in text:
            self.answer(text)
            return
        key = self.random.choice(["s", "c", "s", "c", "d", "e", "e", "\x1b[B", "\x1b[A", "\x1b[C"])
        found = re.search(r"(?:▶P\d|╭─ Task) (\d+) ", text)
        if found and key in "sc":
            self.mean("completed" if key == "c" else "started", found[1], text)
        self.type(key)
        if key == "e" and self.random.random() < 0.8:
            self.look(0.02)
            self.count += 1
            self.board.type(f"\x15P{self.count}")

    def mean(self, event: str, number: str, text: str) -> None:
        cursor = self.person.snapshot("demo", 0)["cursor"]
        self.meant.append((event, int(number), cursor, text))

    def answer(self, text: str) -> None:
        found = re.search(r"(Delete|Complete|Edit)\W+task\W+(\d+)", text)
        if found:
            event = {"Delete": "deleted", "Complete": "completed", "Edit": "edited"}[found[1]]
            self.mean(event, found[2], text)
        self.type("\r" if self.random.random() < 0.8 or "Edit task" in text else "\x1b")

    def type(self, key: str) -> None:
        self.board.type(key)
        if key[0] == "\x1b":
            self.look(0.3)  # where it leads has to be on the test's screen as well

    def judge(self) -> set[str]:
        """See in the log that all was meant, and nothing undone that had not been told."""
        events = self.person.call("history", {"limit": 1000, "since": 0})["events"]
        done, held, named = set(), set(), {}
        for event in events:
            number, kind = event["task_id"], event["event"]
            if event["actor"] == "human" and kind != "created":
                if kind in ("updated", "reopened"):
                    kind = "edited" if event["metadata"]["fields"] == ["title"] else "started"
                screens = self.screens(kind, event)
                assert screens, f"nobody meant that: {event}"
                if kind in ("deleted", "completed") and number in held:
                    assert "agent-q holds it" in "".join(screens), f"not told: {event}"
                if kind == "edited":
                    assert named.pop(number, None) in {None, *self.told}, f"not told: {event}"
                done.add(kind)
            if event["id"] in self.written:
                named[number] = self.written[event["id"]]
            if event["event"] == "claimed":
                held.add(number)
            elif event["from_status"] != event["to_status"]:
                held.discard(number)
        return done

    def screens(self, kind: str, event: dict) -> list[str]:
        """Return what the screen showed at the last keys that may have meant an event."""
        keys = [meant for meant in self.meant if meant[2] < event["id"]][-4:]
        return [text for what, number, _, text in keys if (what, number) ==
                (kind, event["task_id"])]


def instants(count: int, seed: int) -> set[str]:
    make_project("demo", 6)
    with opened((sys.executable, "-c", MARKED)) as board:
        world = Instants(board, seed)
        for _ in range(count):
            world.step()
        world.look(0.5)
        assert board.popen.poll() is None and "Traceback" not in board.text()
        return world.judge()


def test_a_person_and_an_agent_at_random_instants() -> None:
    instants(20, 1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_person_and_an_agent_at_a_thousand_random_instants(seed: int) -> None:
    assert instants(250, 100 + seed) >= {"started", "completed", "deleted", "edited"}
