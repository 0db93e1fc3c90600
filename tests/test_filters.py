"""What `task.list` finds, and that it takes no longer the more tasks there are.

Contract, operations; P 4.1, P 7 item 6.
"""
from __future__ import annotations

import itertools
import os
import random
import sqlite3
import unicodedata
from pathlib import Path

import pytest
import tam

from processes import query
from support import closing, make_project  # noqa: F401

#: Half of the tasks are of the first kind and half of the second: a filter of each finds few.
FIRST = {"status": "todo", "assigned": "a", "priority": 1, "tag": ["red"], "search": "alpha"}
SECOND = {
    "status": "done", "assigned": "unassigned", "priority": 3, "tag": ["blue"], "search": "beta",
}
RARE = {"status": "in-progress", "assigned": "x", "priority": 5, "tag": ["rare"], "search": "rare"}
PAIRS = list(itertools.combinations(FIRST, 2))
#: The first 32 tasks have every mixture of the two kinds, the 40th is of a third.
FILL = """
INSERT INTO task (title, project_id, status, assigned_agent, lease_expires_at, priority, tags,
  created) WITH RECURSIVE n(i, kinds) AS (
    SELECT 1, 1 UNION ALL SELECT i + 1, CASE WHEN i < 32 THEN i + 1 ELSE -(i % 2) END FROM n
    WHERE i < ?)
  SELECT CASE WHEN i = 40 THEN 'rare' WHEN kinds & 1 THEN 'alpha ' ELSE 'beta ' END || i, 1,
    CASE WHEN i = 40 THEN 1 WHEN kinds & 2 THEN 0 ELSE 2 END,
    CASE WHEN i = 40 THEN 'x' WHEN kinds & 4 THEN 'a' END, 4000000000,
    CASE WHEN i = 40 THEN 5 WHEN kinds & 8 THEN 1 ELSE 3 END,
    CASE WHEN i = 40 THEN 'rare' WHEN kinds & 16 THEN 'red,both' ELSE 'both,blue' END,
    datetime(1700000000 + i, 'unixepoch') FROM n
"""


def filled(home: Path, count: int) -> tam.Tam:
    """A tam in a directory of its own, with so many tasks."""
    opened = tam.Tam(env={"TAM_HOME": str(home), "TAM_PROJECT": "p"})
    opened.call("project.add", {"name": "p"})
    query(home / "tam.db3", FILL, count)
    return opened


@pytest.fixture(scope="module")
def sizes(tmp_path_factory: pytest.TempPathFactory) -> list:
    """Two homes that differ only in how many tasks there are."""
    homes = [filled(tmp_path_factory.mktemp("size"), count) for count in (2_500, 10_000)]
    yield homes
    for home in homes:
        home.close()


def steps_of(opened: tam.Tam, arguments: dict) -> tuple[dict, int]:
    """List; return the data, and how many steps SQLite's machine took, in tens."""
    steps = itertools.count()
    with opened.store.reading() as db:
        db.set_progress_handler(lambda: next(steps) and 0, 10)
    try:
        return opened.call("task.list", arguments), next(steps)
    finally:
        db.set_progress_handler(None, 10)


QUESTIONS = {
    "none": {},
    **{name: {name: value} for name, value in FIRST.items()},
    **{f"rare {name}": {name: value} for name, value in RARE.items() if name != "search"},
    **{f"{one} {other}": {one: FIRST[one], other: FIRST[other]} for one, other in PAIRS},
    **{f"few {one} {other}": {one: FIRST[one], other: SECOND[other]}
       for one, other in PAIRS if other != "search"},
    "all": FIRST,
}


@pytest.mark.parametrize("limit", [10, 1000])
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_takes_as_many_steps_with_four_times_the_tasks(
    sizes: list, question: str, limit: int
) -> None:
    arguments = {**QUESTIONS[question], "limit": limit}
    for cursor in ({}, {"cursor": 2400}):
        (little, few), (much, many) = (steps_of(one, {**arguments, **cursor}) for one in sizes)
        assert many <= 1.1 * few + 20
        if not cursor:
            assert little["count"] == much["count"] and little["count"] > 0
            exact = little["total"] < tam.TOTAL_MAX
            counted = not arguments.keys() & {"assigned", "priority", "tag", "search"}
            assert little["total_is_exact"] is much["total_is_exact"] is (exact or counted)


@pytest.mark.parametrize("arguments", [
    *QUESTIONS.values(), {"search": "rare"}, {"tag": ["both", "red"]},
])
def test_every_stretch_is_read_from_an_index_in_the_order_of_the_list(
    sizes: list, arguments: dict
) -> None:
    with sizes[0].store.reading() as db:
        work = tam.Work(db, 0, None)
        work.project = tam.find_project(db, "p")
        stretches, parameters = tam._stretches(work, arguments)
        for stretch, order in itertools.product(stretches, ("", "DESC")):
            sql = f"SELECT made, task_id {stretch} ORDER BY made {order}, task_id {order}"
            plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", parameters)]
            assert "idx_" in plan[0] and "project" in plan[0], plan
            assert not any("SCAN" in step or "TEMP B-TREE" in step for step in plan), plan


@pytest.mark.parametrize("column", range(3))
def test_a_column_of_the_board_takes_as_many_steps_with_four_times_the_tasks(
    sizes: list, column: int
) -> None:
    counts = []
    for opened in sizes:
        steps = itertools.count()
        with opened.store.reading() as db:
            db.set_progress_handler(lambda: next(steps) and 0, 10)  # noqa: B023
            work = tam.Work(db, 0, None)
            work.project = tam.find_project(db, "p")
            tam._column(work, column, 500, "")
            db.set_progress_handler(None, 10)
        counts.append(next(steps))
    assert counts[1] <= 1.1 * counts[0] + 20


# -- what is found, whoever wrote it --

#: Tasks as no tam would write them: title, content, status, priority, agent, tags, created, gone.
ODDITIES = [
    ("plain", "", 0, 3, None, "bug", "2026-01-01 00:00:00", 0),
    ("of old", None, 0, 3, None, "", None, None),
    ("out of range", "", 1, 9, "a", "bug,web", "2026-01-01 00:00:00", 0),
    ("out of range", "", 1, -1, "a", "web", "2026-01-03 00:00:00", 0),
    ("no number", "", 0, "high", None, " web , bug,bug,,", "2026-01-02 00:00:00", 0),
    ("half", "", 2, 2.5, "b", "bug", "2026-01-02 00:00:00", 0),
    ("gone", "", 0, 1, None, "bug", "2026-01-02 00:00:00", 1),
    ("a time that is a number", "", 0, 1, "a", "web", 17, 0),
]
LEVELS = {9: 5, -1: 1, "high": 5, 2.5: 2}


def wanted(task: tuple, arguments: dict) -> bool:
    """Say by a plain look whether a task of ODDITIES is asked for."""
    title, _, status, priority, agent, tags, _, gone = task
    owner = arguments.get("assigned", agent)
    return (
        not gone and tam.STATUSES[status] == arguments.get("status", tam.STATUSES[status])
        and arguments.get("priority", priority) in (priority, LEVELS.get(priority))
        and (None if owner == "unassigned" else owner) == agent
        and set(arguments.get("tag", ())) <= {tag.strip() for tag in tags.split(",")}
        and arguments.get("search", "") in title
    )


@pytest.fixture
def odd(scratch_home: Path) -> tam.Tam:
    """A tam with ODDITIES, written by another program."""
    opened = make_project()
    add_all(scratch_home)
    return opened


def add_all(home: Path) -> None:
    db = sqlite3.connect(home / "tam.db3")
    with db:
        db.executemany(
            "INSERT INTO task (title, content, status, priority, assigned_agent, tags, created,"
            " is_deleted, project_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1)", ODDITIES)
    db.close()


CHOICES = {
    "status": [None, "todo", "in-progress", "done"], "priority": [None, 1, 2, 3, 5],
    "assigned": [None, "a", "unassigned", "nobody"],
    "tag": [None, ["bug"], ["bug", "web"], ["none"]], "search": [None, "o"],
}


@pytest.mark.parametrize("most", [1, 1000])
def test_every_set_of_filters_finds_what_a_plain_look_finds(
    odd: tam.Tam, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(tam, "TOTAL_MAX", most)
    order = [row[0] for row in query(
        Path(os.environ["TAM_HOME"]) / "tam.db3",
        "SELECT id FROM task ORDER BY IFNULL(created, '') DESC, id DESC")]
    for choice in itertools.product(*CHOICES.values()):
        arguments = {name: one for name, one in zip(CHOICES, choice) if one is not None}
        expected = [number for number in order if wanted(ODDITIES[number - 1], arguments)]
        counted = not arguments.keys() - {"status"}
        page, found = {}, []
        while page is not None:
            data = odd.call("task.list", {**arguments, "limit": 2, **page})
            found += [task["id"] for task in data["tasks"]]
            assert data["total_is_exact"] is (counted or len(expected) <= most)
            assert data["total"] == (len(expected) if counted else min(len(expected), most))
            page = {"cursor": data["next_cursor"]} if data["truncated"] else None
        assert found == expected, arguments


TAGS = "SELECT task_id, tag, project, state, level, agent, made FROM task_tag ORDER BY 1, 2"


def test_the_tags_follow_every_way_to_change_a_task(odd: tam.Tam, scratch_home: Path) -> None:
    path = scratch_home / "tam.db3"
    query(path, "INSERT INTO project(name) VALUES ('q')")
    for statement in (
        "UPDATE task SET status = 2 - status", "UPDATE task SET priority = 4 WHERE id < 4",
        "UPDATE task SET project_id = 2 WHERE id = 1",
        "UPDATE task SET is_deleted = 1 - is_deleted",
        "UPDATE task SET tags = '' WHERE id = 3",
        "UPDATE task SET tags = 'x,y' WHERE id IN (2, 3)",
        "UPDATE task SET created = '2020-02-02 00:00:00', assigned_agent = 'z'",
        "UPDATE task SET status = 0, tags = 'v,w', project_id = 1, assigned_agent = NULL",
        "UPDATE task SET id = 99 WHERE id = 5", "DELETE FROM task WHERE id = 1", "DELETE FROM task",
    ):
        query(path, statement)
        kept = query(path, TAGS)
        query(path, "DELETE FROM task_tag")
        query(path, tam.ADD_TAGS % "tags <> ''")
        assert kept == query(path, TAGS), statement
    assert kept == []


def test_the_longest_tags_come_through(odd: tam.Tam) -> None:
    tags = [f"{number:02}" + "標" * 62 for number in range(tam.TAGS_MAX)]
    task = odd.call("task.add", {"title": "much", "tags": tags})["task"]
    for tag in tags:
        found = odd.call("task.list", {"tag": [tag, tags[0]]})["tasks"]
        assert [one["id"] for one in found] == [task["id"]]
    assert odd.call("task.claim", {"id": task["id"], "agent": "a"})["task"]["tags"] == tags
    assert odd.call("task.list", {"tag": tags, "assigned": "a"})["count"] == 1


# -- search --

#: Signs that change, compose or expand when texts are compared, and some that do not.
ALPHABET = [
    *"aAeEiksSß%_\\*[]^-, \n\0", "é", "É", "\u0301", "\u0323", "İ", "ı", "ſ", "\u212a", "µ", "ﬁ",
    *"σςΣпПйЙ\u0306登録かが\u3099각가\u11a8\u1100", "\uf900", "豈", "Ａ", "ａ", "！", "👍", "\ufe0f",
    "\U0001f1e6", "\U00010400", "क\u093c", "\u0958", "\u0130", "\ufffd", "\u2126", "≠", "=\u0338",
]


def test_plain_characters_are_what_a_search_takes_them_for() -> None:
    plain, rest = set(), tam.PLAIN
    while rest:
        first, last = (rest[0], rest[2]) if rest[1:2] == "-" else (rest[0], rest[0])
        plain |= set(map(chr, range(ord(first), ord(last) + 1)))
        rest = rest[3:] if rest[1:2] == "-" else rest[1:]
    assert set("\t\n azAZ09~%_\\é登録かが각！") < plain and "É" not in plain
    follows = {chr(code) for code in (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))}
    for code in range(0x110000):
        parts = unicodedata.decomposition(chr(code)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            follows.add(chr(int(parts[1], 16)))
    for char in plain:
        assert tam.fold(char) == (char.lower() if char.isascii() else char), char
        assert not unicodedata.combining(char) and char not in follows, char


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> tuple[tam.Tam, list]:
    """A tam whose tasks have texts of ALPHABET, in any type and encoding, and these texts."""
    home = tmp_path_factory.mktemp("texts")
    opened = tam.Tam(env={"TAM_HOME": str(home), "TAM_PROJECT": "p"})
    opened.call("project.add", {"name": "p"})
    choice = random.Random(7)
    rows = [tuple("".join(choice.choices(ALPHABET, k=choice.randrange(1, 9))) for _ in range(2))
            for _ in range(1_500)]
    rows += [(title, None) for title, _ in rows[:50]]
    rows += [(title.encode(), content.encode()) for title, content in rows[:50]]
    rows += [(b"\xff" + title.encode(), b"caf\xe9") for title, _ in rows[50:100]]
    rows += [("plain " * 3, "x" * 70_000), (f"{'y' * 1_000}é", "z" * 60_000 + "é")]
    db = sqlite3.connect(home / "tam.db3")
    with db:
        db.executemany("INSERT INTO task (title, content, project_id) VALUES (?, ?, 1)", rows)
        db.execute("UPDATE task SET title = CAST(title AS TEXT) WHERE id % 3 = 0")
        db.execute("UPDATE task SET content = CAST(content AS TEXT) WHERE id % 2 = 0")
    db.close()
    shown = []
    for row in rows:
        shown.append([one.decode("utf-8", "replace") if isinstance(one, bytes) else one or ""
                      for one in row])
    yield opened, shown
    opened.close()


def found_by(opened: tam.Tam, needle: str) -> set:
    found, page = set(), {}
    while page is not None:
        data = opened.call("task.list", {"search": needle, "limit": 1000, **page})
        found |= {task["id"] for task in data["tasks"]}
        page = {"cursor": data["next_cursor"]} if data["truncated"] else None
    return found


def test_a_search_finds_what_a_comparison_of_all_texts_finds(texts: tuple) -> None:
    opened, rows = texts
    choice = random.Random(11)
    needles = [*ALPHABET, "paris", "caf", "CAFÉ", "x" * 60_000, "z" * 60_000 + "É", "y" * 999 + "Y",
               "x" * 60_000 + "y", "%%", "__", "%_", "a_", "_a", "\\%", "f\ufffd", "a\ufffdb"]
    needles += ["".join(choice.choices(ALPHABET, k=choice.choice((2, 2, 3)))) for _ in range(150)]
    for needle in needles:
        wanted = tam.fold(needle)
        expected = {number for number, row in enumerate(rows, 1)
                    if any(wanted in tam.fold(text) for text in row)}
        assert found_by(opened, needle) == expected, ascii(needle)[:50]


@pytest.mark.parametrize("stored", ["cafe\u0301", "caf\u00e9"])
@pytest.mark.parametrize("needle, found", [
    ("é", True), ("e\u0301", True), ("É", True), ("f\u00e9", True), ("fe\u0301", True),
    ("e", False), ("fe", False), ("\u0301", False), ("f", True), ("caf", True),
])
def test_what_is_one_character_to_a_reader_is_found_whole_in_either_form(
    scratch_home: Path, stored: str, needle: str, found: bool
) -> None:
    opened = make_project()
    opened.call("task.add", {"title": stored})
    opened.call("task.add", {"title": "t", "description": f"x {stored} x"})
    assert opened.call("task.list", {"search": needle})["count"] == (2 if found else 0)


def test_marks_that_compose_with_nothing_are_characters_of_their_own(scratch_home: Path) -> None:
    opened = make_project()
    opened.call("task.add", {"title": "x\u0301\u0323"})
    for needle in ("\u0301", "\u0323\u0301", "\u0301\u0323", "x", "X\u0323"):
        assert opened.call("task.list", {"search": needle})["count"] == 1, ascii(needle)


def test_python_looks_only_at_what_sqlite_cannot_decide(
    texts: tuple, monkeypatch: pytest.MonkeyPatch, scratch_home: Path
) -> None:
    opened = make_project("p", 40, "Task 登録 {} 100%")
    opened.call("task.add", {"title": "É"})
    looks, fold = [], tam.fold
    monkeypatch.setattr(tam, "fold", lambda text: looks.append(text) or fold(text))
    for needle, found in (("zzz", 0), ("登陆", 0), ("TASK 登録 12 ", 1), ("00%", 40), ("é", 1)):
        looks.clear()
        assert opened.call("task.list", {"search": needle})["count"] == found
        assert len(looks) <= 1 + 2 * (found + 1), needle
