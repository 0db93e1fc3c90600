"""Pictures of the board, compared with those that were looked at and found good.

`python tests/test_board_render.py` draws them anew into tests/golden/; look at the difference
before you keep it.
"""
from __future__ import annotations

import dataclasses
import random
import sys
import unicodedata
from pathlib import Path

import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import tam
import tam_tick
from tam_tick import Board, Confirm, Help, Prompt, Tip

GOLDEN = Path(__file__).parent / "golden"
SIZES = [(120, 30), (80, 24), (66, 12), (40, 10), (20, 5)]
NOW = 1_800_000_000


def task(task_id: int, title: str, **fields: object) -> dict:
    view = {
        "id": task_id, "project_id": 1, "project": "website", "title": title, "description": "",
        "status": "todo", "priority": 3, "tags": [], "assigned_agent": None,
        "lease_expires_at": None, "lease_expired": False, "revision": 1,
        "created": "2027-01-10T09:00:00Z", "updated": "2027-01-15T07:30:00Z",
    }
    return {**view, **fields}


def leased(agent: str, seconds: int) -> dict:
    return {"assigned_agent": agent, "lease_expires_at": tam.iso_time(NOW + seconds),
            "status": "in-progress", "lease_expired": seconds <= 0}


TODO = (
    task(12, "修复登录页面的重定向问题，并补充单元测试和端到端测试", priority=1,
         tags=["bug", "前端"]),
    task(11, "Fix the login redirect after the session times out", priority=2),
    task(10, "Family 👨‍👩‍👧 joined, ❤️ heart, 👍🏽 tone, 🇩🇪 flag", tags=["emoji"]),
    task(9, "Combining e\u0301 a\u0308 n\u0303 marks", priority=4),
    task(8, "Escape \x1b[31mred\x1b[0m, bell \x07, \u202eoverride", priority=5, tags=["evil"]),
    *(task(number, f"Chore {number}", priority=5) for number in range(31, 38)),
)
DOING = (
    task(19, "Left behind", **leased("gone", -5)),
    task(20, "Nearly over", priority=1, **leased("agent-b", 42)),
    task(21, "日本語のタイトル", **leased("agent-a", 734)),
    task(22, "Upgrade the database and measure slow queries before and after", priority=2,
         tags=["ops", "db"], **leased("codex-worker-17", 7500)),
    task(18, "By a person", status="in-progress"),
)
DONE = (task(30, "Déjà vu: café naïve", status="done"),)
DESCRIPTION = (
    "Steps:\n  1. log in\n  2. wait for half an hour\n\n"
    "会话超时后应当回到登录页。\t\x1b[2Jgone?"
)
EVENTS = (
    {"id": 1, "task_id": 12, "event": "created", "actor": "human", "from_status": None,
     "to_status": "todo", "metadata": {}, "created": "2027-01-10T09:00:00Z"},
    {"id": 2, "task_id": 12, "event": "claimed", "actor": "agent-a", "from_status": "todo",
     "to_status": "in-progress", "metadata": {}, "created": "2027-01-15T07:30:00Z"},
    {"id": 3, "task_id": 12, "event": "heartbeat", "actor": "agent-a",
     "from_status": "in-progress", "to_status": "in-progress", "metadata": {},
     "created": "2027-01-15T07:31:00Z"},
)
BOARD = Board(
    screen="tasks", project="website", served="website", wired=True, loaded=True, now=NOW,
    columns=(TODO, DOING, DONE), totals=(1012, 5, 1), chosen=(12, 22, 30),
)
OPENED = {**TODO[0], "description": DESCRIPTION, **leased("agent-a", 734)}
PROJECTS = tuple(
    {"id": number, "name": name, **dict.fromkeys(("created", "updated"), "2027-01-10T09:00:00Z")}
    for number, name in enumerate(("website", "后端服务", "an \x1b[31mugly one"), 1)
)


def scene(**changes: object) -> Board:
    return dataclasses.replace(BOARD, **changes)


SCENES = {
    "tasks": BOARD,
    "tasks, deep in a column": scene(chosen=(35, 22, 30)),
    "tasks, in progress, another project served": scene(column=1, served="后端服务"),
    "nothing there yet": scene(columns=((), (), ()), totals=(0, 0, 0), loaded=False, served=None),
    "search": scene(search="fix", columns=((TODO[1],), (), ()), totals=(1, 0, 0), overlay=Prompt(
        "Search", "", "", {}, before="fix")),
    "projects": scene(screen="projects", project=None, projects=PROJECTS, wired=False),
    "no projects": Board(loaded=True),
    "task": scene(screen="task", task_id=12, task=OPENED, events=EVENTS),
    "task, scrolled": scene(screen="task", task_id=12, task=OPENED, events=EVENTS, top=99),
    "help": scene(overlay=Help()),
    "help, scrolled": scene(overlay=Help(99)),
    "adding": scene(overlay=Prompt(
        "Add a task", "task.add", "title", {}, before="写一个", after="标题")),
    "adding something long": scene(overlay=Prompt(
        "Add a task", "task.add", "title", {}, before="一个很长的标题" * 9 + "x", after="tail")),
    "deleting": scene(overlay=Confirm("task.del", {"id": 12}, TODO[0])),
    "deleting, asked again": scene(overlay=Confirm(
        "task.del", {"id": 12}, OPENED, "agent-a changed the status to 'in-progress' meanwhile")),
    "deleting a project": scene(screen="projects", project=None, projects=PROJECTS, overlay=Confirm(
        "project.del", {"name": "后端服务"}, {"id": 2, "name": "后端服务", "tasks": 12, "leases": 3})),
    "a key that came too soon": scene(note="This has just changed: press again"),
    "error": scene(overlay=Tip("task 12 is leased by agent-b until 2027-01-15T08:15:00Z. " * 3)),
}


def picture(board: Board, width: int, height: int) -> tam_tick.Screen:
    return tam_tick.render(tam_tick.within(board, width, height), width, height)


def drawn(width: int, height: int) -> str:
    """Return all scenes at one size, with the cursor, and with the styles of the first."""
    parts = []
    for name, board in SCENES.items():
        screen = picture(board, width, height)
        parts.append(f"== {name}" + (f", cursor {screen.cursor}" if screen.cursor else ""))
        parts += screen.text()
        if name == "tasks":
            parts.append("== its styles")
            parts += [" ".join(f"{style}:{tam.cell_width(text)}" for text, style in line)
                      for line in screen.lines]
    return "\n".join(parts) + "\n"


@pytest.mark.parametrize("width, height", SIZES)
def test_the_board_looks_as_it_did(width: int, height: int) -> None:
    wanted = (GOLDEN / f"board-{width}x{height}.txt").read_text(encoding="utf-8")
    assert drawn(width, height).splitlines() == wanted.splitlines()


@pytest.mark.parametrize("name", SCENES)
def test_every_size_gives_whole_lines(name: str) -> None:
    for width in (*range(1, 13), 19, 20, 39, 40, 65, 66, 80, 120, 333):
        for height in (*range(1, 11), 24, 30):
            screen = picture(SCENES[name], width, height)
            assert len(screen.lines) == height
            assert [tam_tick.line_width(line) for line in screen.lines] == [width] * height
            if screen.cursor is not None:
                assert 0 <= screen.cursor[0] < height and 0 <= screen.cursor[1] < width


STRANGE = (
    "aé中🚧👨\u200d👩\u0301\ufe0f\u0000\x1b\x07\u202e\u2028\u1100\u1161\U000e0041🇩🇪🏽\ud800\t\n"
    "\u3000\u0e33"
)


@pytest.mark.parametrize("seed", range(20))
def test_no_text_breaks_a_line_or_reaches_the_terminal_raw(seed: int) -> None:
    chooser = random.Random(seed)
    text = "".join(chooser.choices(STRANGE, k=60))
    strange = task(1, text, tags=[text], assigned_agent=text, description=text,
                   lease_expires_at=tam.iso_time(NOW + 5))
    event = {**EVENTS[0], "actor": text, "event": text}
    board = scene(
        columns=((strange,), (strange,), (strange,)), totals=(1, 1, 1), chosen=(1, 1, 1),
        task=strange, task_id=1, events=(event,), projects=({**PROJECTS[0], "name": text},),
        project=text, served=text, search=text,
    )
    prompt = Prompt(text, "x", "y", {}, text, text)
    for screen in tam_tick.SCREENS:
        for overlay in (None, prompt, Tip(text), Confirm("task.del", {"id": 1}, strange, text)):
            width, height = chooser.randint(1, 130), chooser.randint(1, 40)
            strange_board = dataclasses.replace(board, screen=screen, overlay=overlay)
            shown = picture(strange_board, width, height)
            assert [tam_tick.line_width(line) for line in shown.lines] == [width] * height
            for character in "".join(shown.text()):
                assert unicodedata.category(character) not in ("Cc", "Cs", "Zl", "Zp")
                assert character not in "\u202e\u202d\u2066\u2067"


def test_only_the_first_of_a_joined_emoji_is_shown() -> None:
    shown = {
        "👨\u200d👩\u200d👧!": "👨!", "👍🏽!": "👍!", "❤\ufe0f": "❤",
        "🏴\U000e0067\U000e007f": "🏴",
        "क\u094d\u200dष": "क\u094d\u200dष", "🏽": "\ufffd", "🇩🇪": "🇩🇪",
        "中\u200d文": "中文",
    }
    assert {text: tam_tick.screen_text(text) for text in shown} == shown


def test_the_time_that_is_left_stays_short() -> None:
    shown = {0: "0s", 59: "59s", 60: "1m", 3599: "59m", 3600: "1h00m", 86399: "23h59m"}
    shown[86400] = "1d00h"
    assert {seconds: tam_tick.left_text(seconds) for seconds in shown} == shown


def test_the_next_change_is_when_a_time_reads_otherwise() -> None:
    def change(*leases: int) -> int | None:
        doing = tuple(task(n, "x", **leased("a", left)) for n, left in enumerate(leases))
        return tam_tick.next_change(scene(columns=((), doing, ())))

    assert change() is None and change(-5) is None
    assert change(734) == 734 % 60 + 1 and change(120) == 1 and change(59, 734) == 1


def test_values_that_other_hands_wrote_do_no_harm() -> None:
    odd = task(1, "x", priority=None, **leased("a", 9))
    odd |= {"lease_expires_at": "never", "created": None}
    board = scene(columns=((odd,), (), ()), totals=(1, 0, 0), chosen=(1, None, None), task=odd)
    for screen in tam_tick.SCREENS:
        picture(dataclasses.replace(board, screen=screen), 80, 24)


def test_wrapping_keeps_every_character_and_the_width() -> None:
    text = "one two  three, 中文字符没有空格所以在任何地方断开 " + "x" * 50 + "\n\n  indented"
    for width in (2, 7, 20, 200):
        lines = tam_tick.wrapped(text, width)
        assert all(tam.cell_width(line) <= width for line in lines)
        assert "".join("".join(lines).split()) == "".join(text.split())


def test_text_without_spaces_begins_where_there_is_room() -> None:
    assert tam_tick.wrapped("任务 12 修复登录页面的重定向问题", 12) == (
        "任务 12 修复", "登录页面的重", "定向问题")
    assert tam_tick.wrapped("one 中文字符", 9) == ("one", "中文字符"), "what fits stays whole"


# ---- colours ----


def red_green_blue(number: int) -> tuple[int, ...]:
    """Return the colour of one of xterm's numbers from 16 on."""
    if number >= 232:
        return (8 + (number - 232) * 10,) * 3
    steps = (0, 95, 135, 175, 215, 255)
    return tuple(steps[(number - 16) // size % 6] for size in (36, 6, 1))


def brightness(number: int) -> float:
    channels = [value / 255 for value in red_green_blue(number)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", tam_tick.PALETTES)
def test_every_text_can_be_read_in_both_themes(theme: str) -> None:
    palette = tam_tick.PALETTES[theme]
    for style, (ink, paper, _, _) in tam_tick.STYLES.items():
        light, dark = sorted((brightness(palette[ink][0]), brightness(palette[paper][0])))[::-1]
        assert (light + 0.05) / (dark + 0.05) >= (1.5 if style == "border" else 4.5), style
        assert palette[ink][1] != palette[paper][1], f"{style} among eight colours"


def test_every_style_that_is_used_is_known() -> None:
    used = {
        style for board in SCENES.values() for size in SIZES
        for line in picture(board, *size).lines for _, style in line
    }
    assert used <= set(tam_tick.STYLES)


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for columns, rows in SIZES:
        path = GOLDEN / f"board-{columns}x{rows}.txt"
        path.write_text(drawn(columns, rows), encoding="utf-8")
