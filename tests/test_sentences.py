"""What tam says when something is wrong, for the one who must act on it; as data for an agent."""
from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import tam
import tam_mcp

from mcp_support import Client, tool
from support import DEADLINE, SCRIPT, run
from tick_support import make_project


@pytest.fixture
def home(scratch_home: Path) -> Path:
    """A home with the project website as the current one, and a task."""
    run("project", "add", "website")
    run("project", "use", "website")
    run("task", "add", "Fix login")
    return scratch_home


def said(line: str) -> str:
    """What a command says on standard error, without the word ERROR and the hint at its help."""
    ended = run(*shlex.split(line))
    assert ended.code in (1, 2, 3, 4) and ended.out == "" and ended.err.count("\n") == 1
    return ended.err.removeprefix("ERROR ").partition(" See `")[0].rstrip("\n")


@pytest.mark.parametrize("line, sentence", [
    ("task add -fix", "unknown option '-fix'. A text that begins with - goes behind --."),
    ("task add Fix login", "'login' is too much: put quotes around a text of many words."),
    ("task add", "TITLE is missing."),
    ("task show x", "ID must be a whole number, not 'x'."),
    ("task add x --description -foo",
     "--description needs a value; one that begins with - is written --description=-…."),
    ("task add ''", "The title is empty"),
    ("task add 'a\nb'", "The title has U+000A as its character 2: it must be one line"),
    ("task add x --priority 9", "The priority goes from 1 (highest) to 5, and cannot be 9"),
    ("task next --claim --agent a --lease 2",
     "The lease in seconds goes from 5 to 86400, and cannot be 2"),
    ("task list --status doing", 'The status is todo, in-progress or done, not "doing"'),
    ("task add x --tag a,b",
     "A tag has U+002C as its character 2: commas and control characters are not allowed"),
    ("task add x --agent human", 'The agent id "human" is reserved for people. Choose an id of your'
     " own; leave it out to act as a person"),
    ("task list --project nowhere",
     "project nowhere not found. List the projects to see what there is"),
    ("mcp --config emacs", "--config is one of claude, codex, gemini, vscode, cursor, json, not"
     " 'emacs'."),
])
def test_an_error_is_a_sentence_about_the_task(home: Path, line: str, sentence: str) -> None:
    assert said(line) == sentence


@pytest.mark.parametrize("line, meant", [
    ("taks list", "task"), ("task lsit", "list"), ("task claims 1", "claim"), ("histroy", "history"),
    ("task add x --pririty 3", "--priority"), ("--porject x task", "--project"),
    ("task list --status in_progress", "in-progress"), ("task list --status Todo", "todo"),
    ("task list --project websit", "website"), ("mcp --config claud", "claude"),
])
def test_what_was_meant_is_asked_and_is_a_detail(home: Path, line: str, meant: str) -> None:
    assert said(line).endswith(f"Did you mean {meant}?")
    words = shlex.split(line)
    assert run(*words, "--json").error["details"]["suggestion"] == meant


@pytest.mark.parametrize("line", ["zzz", "task zzz", "task add x --zzz 3", "task --project q"])
def test_nothing_is_suggested_where_nothing_is_near(home: Path, line: str) -> None:
    assert "mean" not in said(line)
    assert "suggestion" not in run(*shlex.split(line), "--json").error["details"]


def test_a_wrong_key_of_the_config_is_named(home: Path) -> None:
    with open(home / tam.CONFIG_NAME, "a", encoding="utf-8") as file:
        file.write('them = "light"\nown_key = "kept"\n')
    assert run("config", "--json").data["unknown"] == {"them": "theme", "own_key": None}
    out = run("config").out
    assert "INFO them is no setting of tam. Did you mean theme?\n" in out
    assert "INFO own_key is no setting of tam.\n" in out


def test_a_closed_input_is_no_empty_description(home: Path) -> None:
    shell = f'exec "{sys.executable}" "{SCRIPT}" task add x --description - --project website <&-'
    ended = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, timeout=DEADLINE)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == (
        "ERROR The description cannot be read from standard input: it is closed\n")
    assert len(run("task", "list", "--json").data["tasks"]) == 1


@pytest.mark.parametrize("which", ["config", "log"])
def test_a_pipe_in_the_place_of_a_file_stops_nobody(home: Path, which: str) -> None:
    path = home / (tam.CONFIG_NAME if which == "config" else "logs/tam.log")
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    if which == "config":
        error = run("task", "list", "--json").error
        assert "it is no ordinary file" in error["message"]
    else:
        opened = tam.Tam()
        opened.log("nobody reads this")  # it returns
        opened.close()


# -- text that ends a line for some readers

ENDS = "\v\f\x1c\x1d\x1e\x85\u2028\u2029"


def test_no_answer_is_more_than_one_line_for_anybody(home: Path) -> None:
    text = "".join(f"{number}{end}" for number, end in enumerate(ENDS))
    added = run("task", "add", "t", "--description", text, "--idempotency-key", "k\u2028", "--tag",
                "a\u2029", "--agent", "b\u2028", "--json")
    assert added.data["task"]["description"] == text
    for words in (("task", "show", "2"), ("task", "list"), ("history",), ("task", "next"),
                  ("task", "list", "--search", "\u2028"), ("config",)):
        line = run(*words, "--json").out
        assert len(line.splitlines()) == 1, words
    for words in (("project", "add", f"x{ENDS}y"), ("task", "list", "--project", "a\u2028b"),
                  ("task", "list", "--assigned", "me", "--agent", "\x85"), (f"fl\u2029y{ENDS}",)):
        assert len(run(*words, "--json").err.splitlines()) == 1, words
    assert all(len(line.splitlines()) <= 1 for line in run("task", "list").out.split("\n"))


def test_no_message_of_mcp_and_no_line_of_the_log_is_more_than_one(home: Path) -> None:
    make_project("q").close()
    with Client(env={"TAM_PROJECT": "q", "TAM_AGENT": "a\u2028"}) as client:
        client.call("tam_task_create", title="t", description=ENDS)
        for name in ("tam_task_list", "tam_task_next", "tam_status"):
            client.post(tool(name, {}))
            assert len(client.line().decode().splitlines()) == 1
    opened = tam.Tam()
    opened.log(f"one{ENDS}two")
    opened.close()
    assert len((home / "logs" / "tam.log").read_text(encoding="utf-8").splitlines()) == 1


def test_a_printed_configuration_has_the_lines_that_it_shows(home: Path) -> None:
    for client in tam_mcp.CLIENTS:
        text = run("mcp", "--config", client, "--project", "a\u2028\x85b").out
        assert text.splitlines() == text.split("\n")[:-1]


def test_a_config_with_such_text_is_edited_by_its_lines(home: Path) -> None:
    path = home / tam.CONFIG_NAME
    path.write_text(path.read_text() + '# a comment\u2028theme = "light"\n')
    opened = tam.Tam()
    opened.set_config(theme="light")
    opened.close()
    assert '# a comment\u2028theme = "light"\n' in path.read_text(encoding="utf-8")
