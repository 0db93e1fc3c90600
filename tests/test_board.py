"""The board as a value: keys, selection, text input, what arrives, and the keys of a terminal."""
from __future__ import annotations

import dataclasses

import pytest
from tick_support import closing, make_project  # noqa: F401

import tam
import tam_tick
from tam_tick import Board, Command, Confirm, Help, Interest, Prompt, Tip, View, press

NOW = 1_800_000_000


def task(task_id: int, status: str = "todo", **fields: object) -> dict:
    """Return a TaskView."""
    return {
        "id": task_id, "project_id": 1, "project": "demo", "title": f"Task {task_id}",
        "description": "", "status": status, "priority": 3, "tags": [], "assigned_agent": None,
        "lease_expires_at": None, "lease_expired": False, "revision": 1,
        "created": "2026-11-08T09:00:00Z", "updated": "2026-11-08T09:30:00Z", **fields,
    }


def project(name: str) -> dict:
    return {"id": sum(map(ord, name)), "name": name, "created": "2026-11-08T09:00:00Z",
            "updated": "2026-11-08T09:00:00Z"}


def tasks_board(*columns: list[int], **fields: object) -> Board:
    """Return an opened board whose columns hold tasks of these ids."""
    statuses = [status for status, _ in tam_tick.COLUMNS]
    filled = tuple(
        tuple(task(i, status) for i in ids)
        for ids, status in zip([*columns, [], [], []], statuses, strict=False)
    )
    chosen = tuple(column[0]["id"] if column else None for column in filled)
    return Board(
        screen="tasks", project="demo", loaded=True, columns=filled, chosen=chosen, now=NOW,
        totals=tuple(len(column) for column in filled), **fields,
    )


def projects_board(*names: str, **fields: object) -> Board:
    return Board(projects=tuple(project(name) for name in names), loaded=True, **fields)


def keys(board: Board, *pressed: str) -> tuple[Board, list[Command]]:
    """Press keys; return the board and everything they asked for."""
    commands: list[Command] = []
    for key in pressed:
        board, more = press(board, key)
        commands += more
    return board, commands


def arrived(board: Board, *columns: list[int]) -> Board:
    """Return the board after a reading with these tasks."""
    found = tasks_board(*columns)
    content = {"columns": found.columns, "totals": found.totals, "exact": found.exact}
    return tam_tick.arrange(board, View(tam_tick.interest(board), board.served, content))


def shown(board: Board) -> str:
    """Return the question that is asked."""
    return tam_tick.question(board.overlay, NOW)


def selected(board: Board) -> int | None:
    found = tam_tick.chosen_task(board)
    return found and found["id"]


# ---- moving ----


def test_projects_wrap_around_and_open() -> None:
    board = projects_board("a", "b", "c", chosen_project="a")
    board, _ = keys(board, "up")
    assert board.chosen_project == "c"
    board, _ = keys(board, "down", "down")
    assert board.chosen_project == "b"
    board, commands = keys(board, "enter")
    assert (board.screen, board.project, board.loaded, commands) == ("tasks", "b", False, [])
    board, _ = keys(board, "esc")
    assert (board.screen, board.project, board.chosen_project) == ("projects", None, "b")
    assert keys(board, "home")[0].chosen_project == "a"
    assert keys(board, "end")[0].chosen_project == "c"


def test_columns_wrap_around_and_tasks_do_not() -> None:
    board = tasks_board([1, 2, 3], [4], [5])
    assert keys(board, "left")[0].column == 2
    assert keys(board, "right", "right", "right")[0].column == 0
    assert selected(keys(board, "up")[0]) == 1
    assert selected(keys(board, "down", "down", "down", "down")[0]) == 3
    assert selected(keys(board, "end")[0]) == 3 and selected(keys(board, "end", "home")[0]) == 1
    page = dataclasses.replace(tasks_board(list(range(1, 40))), page=10)
    assert selected(keys(page, "pgdn")[0]) == 10 and selected(keys(page, "pgdn", "pgup")[0]) == 1


@pytest.mark.parametrize("key", sorted({k for table in tam_tick.KEYS.values() for k in table}))
@pytest.mark.parametrize("screen", ["projects", "tasks", "task"])
def test_no_key_needs_anything_to_be_there(screen: str, key: str) -> None:
    board, commands = press(Board(screen=screen, project="demo"), key)
    assert all(command.verb != "call" for command in commands)
    tam_tick.render(board, 80, 24)


# ---- writing ----

SEEN = {"title": "Task 1", "description": "", "status": "todo", "holder": None}
WRITES = {
    "s": Command("call", "task.start", {"id": 1, "project": "demo"}, SEEN),
    "c": Command("call", "task.done", {"id": 1, "project": "demo"}, SEEN),
}
QUESTION = Confirm("task.del", {"id": 1, "project": "demo"}, task(1))
HELD = {"assigned_agent": "agent-q", "lease_expires_at": tam.iso_time(NOW + 905)}


@pytest.mark.parametrize("key", WRITES)
@pytest.mark.parametrize("opened", [False, True])
def test_start_and_complete_act_on_the_chosen_task(key: str, opened: bool) -> None:
    board = tasks_board([1, 2])
    if opened:
        board, _ = keys(board, "enter")
        assert (board.screen, board.task_id) == ("task", 1)
    assert keys(board, key)[1] == [WRITES[key]]


def test_a_title_is_added_and_edited() -> None:
    board, commands = keys(tasks_board([1]), "a", *"Fix it", "enter")
    assert board.overlay is None
    (command,) = commands
    assert (command.name, command.arguments) == ("task.add", {"project": "demo", "title": "Fix it"})
    _, (command,) = keys(tasks_board([1]), "e", "backspace", "2", "enter")
    assert command.name == "task.edit"
    assert command.arguments == {"id": 1, "project": "demo", "title": "Task 2"}
    board, commands = keys(tasks_board([1]), "e", "x", "esc")
    assert board.overlay is None and commands == []


def test_projects_are_added_renamed_used_and_deleted() -> None:
    board = projects_board("a", "b", chosen_project="b")
    assert keys(board, "a", "n", "enter")[1][0].arguments == {"name": "n"}
    assert keys(board, "e", "2", "enter")[1][0].arguments == {"name": "b", "new_name": "b2"}
    known = {"id": ord("b"), "name": "b"}
    assert keys(board, "e", "enter")[1][0].expected == known
    assert keys(board, "u")[1] == [Command("call", "project.use", {"name": "b"}, known)]
    asked, commands = keys(board, "d")
    assert isinstance(asked.overlay, Confirm) and commands == []
    assert keys(asked, "x", "d", "q")[0] == asked, "only Enter and Esc answer"
    assert keys(asked, "esc")[1] == []
    assert shown(asked).startswith("Delete project 'b' with its tasks?")
    counted = dataclasses.replace(asked.overlay, subject={**known, "tasks": 1, "leases": 1})
    asked = dataclasses.replace(asked, overlay=counted)
    assert shown(asked) == "Delete project 'b' with 1 task, 1 of them held by agents?"
    _, (command,) = keys(asked, "enter")
    assert (command.name, command.arguments) == ("project.del", {"name": "b"})
    assert command.expected == {**known, "tasks": 1, "leases": 1}


def test_deleting_a_task_names_it_and_asks() -> None:
    board, _ = keys(tasks_board([1, 2]), "down", "d")
    assert shown(board) == "Delete task 2 'Task 2'?"
    _, (command,) = keys(board, "enter")
    assert (command.name, command.arguments) == ("task.del", {"id": 2, "project": "demo"})
    assert command.expected == {**SEEN, "title": "Task 2"}


def test_completing_what_an_agent_holds_asks() -> None:
    board = tasks_board([], [1], column=1)
    held = dataclasses.replace(board, columns=((), (task(1, "in-progress", **HELD),), ()))
    asked, commands = keys(held, "c")
    assert commands == [] and shown(asked) == "agent-q holds it for 15m. Complete task 1 'Task 1'?"
    _, (command,) = keys(asked, "enter")
    assert (command.name, command.expected["holder"]) == ("task.done", "agent-q")
    over = task(1, "in-progress", **HELD, lease_expired=True)
    _, (command,) = keys(dataclasses.replace(board, columns=((), (over,), ())), "c")
    assert command.expected["holder"] is None, "nobody holds it any more"


def test_the_theme_changes_at_once_and_is_saved() -> None:
    board, commands = keys(tasks_board([1]), "t")
    assert board.theme == "light" and commands == [Command("theme", "light")]
    assert keys(board, "t")[0].theme == "dark"


@pytest.mark.parametrize("overlay", [None, Help(), Tip("x"), QUESTION,
                                     Prompt("t", "task.add", "title", {})])
def test_ctrl_c_quits_from_anywhere(overlay: object) -> None:
    board = dataclasses.replace(tasks_board([1]), overlay=overlay)
    assert keys(board, "ctrl-c")[1] == [tam_tick.QUIT]


def test_a_page_of_projects_does_not_wrap_around() -> None:
    projects = tuple({"name": f"p{number}"} for number in range(30))
    board = Board(screen="projects", projects=projects, chosen_project="p3", page=11)
    for key, wanted in (("pgup", "p0"), ("pgdn", "p10"), ("pgdn", "p20"), ("pgdn", "p29")):
        board, _ = press(board, key)
        assert board.chosen_project == wanted
    assert press(Board(screen="projects"), "pgdn") == (Board(screen="projects"), ())


def test_end_shows_the_end_of_a_detail() -> None:
    long = {**task(1), "description": "\n".join(f"line {number}" for number in range(60))}
    board = keys(Board(screen="task", project="p", task_id=1, task=long), "end")[0]
    board = tam_tick.within(board, 80, 24)
    assert any("line 59" in "".join(text for text, _ in line)
               for line in tam_tick.render(board, 80, 24).lines)
    assert keys(board, "up")[0].top == board.top - 1


@pytest.mark.parametrize("text", ["全角\u3000空格", "🩷🫨", "a\u00a0b", "👩\u200d💻"])
def test_what_people_type_is_not_lost(text: str) -> None:
    board, _ = keys(Board(screen="tasks", project="p"), "a", *text)
    assert board.overlay.text == text
    board, _ = keys(Board(screen="tasks", project="p"), "a", tam_tick.PASTE + text)
    assert board.overlay.text == text


def test_a_pasted_text_is_no_command() -> None:
    board = tasks_board([1])
    assert keys(board, "paste:dq\n") == (board, [])
    board, _ = keys(board, "a", "paste:two\nlines\x1b[2J and\ttabs")
    assert board.overlay.text == "two lines[2J and tabs"


def test_the_card_of_a_task_that_is_deleted_closes() -> None:
    card, _ = keys(tasks_board([1, 2]), "enter")
    asked, _ = keys(card, "d")
    assert keys(asked, "esc")[0].screen == "task"
    card, (command,) = keys(asked, "enter")
    assert command.name == "task.del" and card.screen == "tasks"


def test_a_board_reads_otherwise_when_the_lease_on_it_does() -> None:
    lease = {"assigned_agent": "a", "lease_expires_at": tam.iso_time(NOW + 150)}
    board = dataclasses.replace(tasks_board([1]), task=task(1, "in-progress", **lease))
    assert tam_tick.next_change(board) is None, "the card is not shown"
    card = dataclasses.replace(board, screen="task")
    assert tam_tick.next_change(card) == 31
    assert tam_tick.next_change(dataclasses.replace(card, now=NOW + 100)) == 1
    assert tam_tick.next_change(dataclasses.replace(card, now=NOW + 200)) is None


# ---- errors ----


def test_a_failure_is_shown_and_leads_back_to_the_text() -> None:
    board, (command,) = keys(tasks_board([1]), "a", *"bad", "enter")
    board = tam_tick.failed(board, command, tam.Conflict("too bad"))
    assert board.overlay.text == "too bad"
    assert keys(board, "x")[0] == board
    board, _ = keys(board, "enter")
    assert board.overlay == command.origin and board.overlay.text == "bad"


def test_trouble_is_shown_once_and_does_not_disturb_typing() -> None:
    board = tasks_board([1])
    view = View(tam_tick.interest(board), None, problem=tam.Internal("disk on fire"))
    board = tam_tick.arrange(board, view)
    assert board.overlay == Tip("disk on fire")
    board, _ = keys(board, "enter")
    assert tam_tick.arrange(board, view).overlay is None
    typing, _ = keys(board, "a", "x")
    other = dataclasses.replace(view, problem=tam.Internal("flood"))
    assert tam_tick.arrange(typing, other).overlay.text == "x"


def test_what_is_gone_is_left_and_told_as_news() -> None:
    board = tasks_board([1])
    opened, _ = keys(board, "enter")
    gone = tam.NotFound("task 1 was deleted meanwhile by agent-q", task_id=1)
    back = tam_tick.arrange(opened, View(tam_tick.interest(opened), None, problem=gone))
    assert (back.screen, back.overlay) == ("tasks", Tip(gone.message, None, tam_tick.NEWS))
    asked, _ = keys(board, "d")
    back = tam_tick.arrange(asked, View(tam_tick.interest(asked), None, problem=gone))
    assert (back.screen, back.overlay.title) == ("tasks", tam_tick.NEWS)
    gone = tam.NotFound("project demo not found", project="demo")
    back = tam_tick.arrange(board, View(tam_tick.interest(board), None, problem=gone))
    assert (back.screen, back.project, back.overlay.title) == ("projects", None, tam_tick.NEWS)
    assert back.overlay.text == "project demo was deleted or renamed meanwhile"
    never = Board(screen="tasks", project="demo")
    back = tam_tick.arrange(never, View(tam_tick.interest(never), None, problem=gone))
    assert back.overlay.text == "project demo not found", "it was never there"


# ---- what others do ----


def test_the_selection_stays_on_its_task() -> None:
    board, _ = keys(tasks_board([3, 2, 1]), "down")
    assert selected(arrived(board, [9, 8, 3, 2, 1])) == 2
    assert selected(arrived(board, [2])) == 2
    assert selected(arrived(board, [3, 1])) == 1, "its place, when it is gone"
    assert selected(arrived(board, [3])) == 3
    assert selected(arrived(board, [])) is None


def test_the_selection_stays_in_its_place_when_the_task_leaves_the_column() -> None:
    board, _ = keys(tasks_board([3, 2, 1]), "down")
    moved = arrived(board, [3, 1], [2])
    assert (moved.column, selected(moved)) == (0, 1)
    board, _ = keys(tasks_board([3, 2, 1]), "down", "s")
    moved = arrived(board, [3, 1], [2])
    assert (moved.column, selected(moved)) == (0, 1)
    assert selected(arrived(moved, [3], [1, 2])) == 3


def test_a_new_task_is_selected_when_it_appears() -> None:
    board, (command,) = keys(tasks_board([1], [2], column=1), "a", "x", "enter")
    board = tam_tick.settled(board, command, {"task": task(7)})
    board = arrived(board, [1], [2])
    assert selected(board) == 2, "an older reading does not have it yet"
    board = arrived(board, [7, 1], [2])
    assert (board.column, selected(board)) == (0, 7)


def test_a_reading_for_another_screen_is_put_aside() -> None:
    board = tasks_board([1])
    content = {"columns": ((), (), ()), "totals": (0, 0, 0), "exact": (True, True, True)}
    view = View(Interest("tasks", "other", None, ""), None, content)
    assert tam_tick.arrange(board, view) == board


def test_the_board_follows_the_project_that_agents_see() -> None:
    board = Board(wired=True)
    board = tam_tick.arrange(board, View(tam_tick.interest(board), "first", {"projects": []}))
    assert (board.screen, board.project) == ("tasks", "first")
    board = tam_tick.arrange(board, View(tam_tick.interest(board), "second", {}))
    assert board.project == "second"
    away, _ = keys(board, "esc")
    away = tam_tick.arrange(away, View(tam_tick.interest(away), "third", {"projects": []}))
    assert (away.screen, away.served) == ("projects", "third"), "not while looking elsewhere"


def test_a_person_alone_is_not_led_away() -> None:
    board = Board()
    board = tam_tick.arrange(board, View(tam_tick.interest(board), "first", {"projects": []}))
    assert board.screen == "projects"


# ---- searching ----


def test_search_takes_effect_while_it_is_typed() -> None:
    board, _ = keys(tasks_board([1]), "/", "f", "x", "backspace")
    assert board.search == "f" and tam_tick.interest(board).search == "f"
    kept, _ = keys(board, "enter")
    assert (kept.search, kept.overlay) == ("f", None)
    assert keys(kept, "esc")[0].search == "" and keys(kept, "esc")[0].screen == "tasks"
    assert keys(board, "esc")[0].search == ""


def test_search_goes_to_the_column_where_something_is() -> None:
    board, _ = keys(tasks_board([1], [], [2]), "/", "f")
    found = arrived(board, [], [], [2])
    assert (found.column, selected(found)) == (2, 2)


def test_a_total_that_was_not_counted_to_its_end_has_a_plus() -> None:
    board = dataclasses.replace(
        tasks_board([3, 2, 1], [4]), totals=(1000, 1, 0), exact=(False, True, True),
    )
    wide, narrow = ("\n".join(tam_tick.render(board, width, 8).text()) for width in (100, 50))
    assert "Todo 1000+ " in wide and "In Progress 1 " in wide and "more" in wide
    assert "Todo 1000+ " in narrow and "+ " in narrow.split("▼")[1]
    assert "997+ more: search /" in tam_tick._more_below(board, 0, 997)
    found = arrived(board, [3])
    assert found.exact == (True, True, True)


def test_what_the_store_is_asked_for() -> None:
    home = make_project("demo", 3)
    home.call("task.add", {"title": "DÉJÀ vu", "project": "demo"})
    home.call("task.done", {"id": 2})
    def look(served: str | None, *wanted: object) -> View:
        agents = tam.Tam(project=served)
        snapshot = tam_tick.look_for_session(agents, Interest(*wanted))
        return tam_tick.look_for_board(agents, Interest(*wanted), snapshot)

    view = look("demo", "tasks", "demo", None, "")
    assert view.content["totals"] == [3, 0, 1] and view.served == "demo"
    assert look("other", "tasks", "demo", None, "").content == view.content
    view = look("demo", "tasks", "demo", None, "déjà")
    assert [[t["id"] for t in column] for column in view.content["columns"]] == [[4], [], []]
    view = look("gone", "task", "demo", 2, "")
    assert view.content["task"]["status"] == "done" and len(view.content["events"]) == 2
    assert view.served is None
    view = look("demo", "projects", None, None, "")
    assert [p["name"] for p in view.content["projects"]] == ["demo"]
    assert look("gone", "tasks", "gone", None, "").problem.code == "not_found"


def test_the_person_acts_as_human() -> None:
    make_project("demo", 1)
    person = tam.Tam(env={k: v for k, v in tam.Tam().env.items() if k not in tam_tick.PERSONAL})
    acted = tam_tick.act(person, WRITES["s"])
    assert acted.problem is None
    events = person.call("task.events", {"id": 1})["events"]
    assert events[-1]["actor"] == "human"
    assert tam_tick.act(person, WRITES["s"]).problem.code == "conflict"
    assert tam_tick.act(person, Command("theme", "light")).problem is None
    assert tam.Tam().config["theme"] == "light"


# ---- the text input ----

EDITS = {
    "typing": ("ab", ["c"], ("abc", "")),
    "left": ("ab", ["left", "x"], ("ax", "b")),
    "left at the start": ("", ["left"], ("", "")),
    "right": ("ab", ["home", "right"], ("a", "b")),
    "right at the end": ("ab", ["right"], ("ab", "")),
    "home and end": ("ab", ["home", "x", "end", "y"], ("xaby", "")),
    "backspace": ("ab", ["backspace"], ("a", "")),
    "backspace at the start": ("ab", ["home", "backspace"], ("", "ab")),
    "delete": ("ab", ["home", "delete"], ("", "b")),
    "delete at the end": ("ab", ["delete"], ("ab", "")),
    "ctrl-u": ("ab", ["left", "ctrl-u"], ("", "b")),
    "ctrl-k": ("ab", ["left", "ctrl-k"], ("a", "")),
    "ctrl-w": ("one two  ", ["ctrl-w"], ("one ", "")),
    "wide": ("中文", ["left", "x"], ("中x", "文")),
    "marks stay with their letter": ("e\u0301o", ["left", "left", "x"], ("x", "e\u0301o")),
    "rubbing out a letter with its marks": ("ae\u0301", ["backspace"], ("a", "")),
    "a joined emoji is one": ("a👨\u200d👩\u200d👧", ["backspace"], ("a", "")),
    "control characters are not typed": ("", ["tab", "\x00", "up", "pgdn", "\u202e"], ("", "")),
}


@pytest.mark.parametrize("text, pressed, wanted", EDITS.values(), ids=EDITS)
def test_editing(text: str, pressed: list[str], wanted: tuple[str, str]) -> None:
    prompt = Prompt("t", "task.add", "title", {}, before=text)
    board, _ = keys(dataclasses.replace(tasks_board([1]), overlay=prompt), *pressed)
    assert (board.overlay.before, board.overlay.after) == wanted


# ---- the keys of a terminal ----

SENT = {
    "letters": (b"aZ1?", ["a", "Z", "1", "?"]),
    "arrows": (b"\x1b[A\x1b[B\x1b[C\x1b[D", ["up", "down", "right", "left"]),
    "arrows in the other mode": (b"\x1bOA\x1bOB\x1bOC\x1bOD", ["up", "down", "right", "left"]),
    "home and end": (b"\x1b[H\x1b[1~\x1bOH\x1b[F\x1b[4~\x1bOF", ["home"] * 3 + ["end"] * 3),
    "pages": (b"\x1b[5~\x1b[6~\x1b[3~", ["pgup", "pgdn", "delete"]),
    "enter": (b"\r\n", ["enter", "enter"]),
    "rubbing out": (b"\x7f\x08", ["backspace", "backspace"]),
    "control": (b"\x03\x15\x17\x0b", ["ctrl-c", "ctrl-u", "ctrl-w", "ctrl-k"]),
    "the shell's home and end": (b"\x01\x05", ["home", "end"]),
    "meaningless control": (b"\x00\x02\x1c", []),
    "unknown sequences": (b"\x1b[99~\x1b[1;5A\x1b[?1;2c\x1bOPx", ["x"]),
    "other scripts": ("中é🚧".encode(), ["中", "é", "🚧"]),
    "bad bytes": (b"\xff\xfea", ["\ufffd", "\ufffd", "a"]),
    "esc and a letter": (b"\x1bq", ["esc", "q"]),
    "esc twice, and a letter": (b"\x1b\x1bq", ["esc", "esc", "q"]),
    "a paste": (b"\x1b[200~one\rtwo\x1b[D\x1b[201~x", ["paste:one\rtwo\x1b[D", "x"]),
}


@pytest.mark.parametrize("data, wanted", SENT.values(), ids=SENT)
def test_keys_come_out_however_their_bytes_arrive(data: bytes, wanted: list[str]) -> None:
    assert tam_tick.Keyboard().feed(data) == wanted
    slow = tam_tick.Keyboard()
    assert [key for byte in data for key in slow.feed(bytes([byte]))] == wanted
    assert not slow.waiting


def test_an_escape_byte_alone_is_esc_after_a_while() -> None:
    keyboard = tam_tick.Keyboard()
    assert keyboard.feed(b"\x1b") == [] and keyboard.waiting
    assert keyboard.give_up() == ["esc"] and not keyboard.waiting
    assert keyboard.feed(b"\x1b[") == [] and keyboard.give_up() == ["esc", "["]
    assert keyboard.feed(b"\x1b") + keyboard.feed(b"[A") == ["up"]


def test_an_endless_paste_is_dropped() -> None:
    keyboard = tam_tick.Keyboard()
    got = keyboard.feed(b"\x1b[200~" + b"x" * tam_tick.PASTE_LIMIT + b"\x1b[200")
    assert got == [] and not keyboard.waiting


def test_a_flood_of_keys_is_kept_up_to_a_limit() -> None:
    """As a terminal sends it that does not mark what is pasted."""
    keyboard = tam_tick.Keyboard()
    board, _ = press(Board(screen="tasks", project="p"), "a")
    for key in keyboard.feed("宽x".encode() * 50_000):
        board, _ = press(board, key)
    assert board.overlay.before == "宽x" * (tam_tick.INPUT_LIMIT // 2)
    board, commands = press(board, "enter")
    assert len(commands[0].arguments["title"]) > tam.TITLE_MAX, "so that it is refused, not cut"
