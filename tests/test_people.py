"""What people see: words of tam 1.0.13, aligned tables, a terminal that is never steered."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

import tam
from processes import query
from support import SCRIPT, run

TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
FAMILY = "👩‍👩‍👧"


def seen(*words: str, **env: str) -> list[str]:
    """The lines that a command that works shows, with every time as TIME."""
    ended = run(*words, **env)
    assert (ended.code, ended.err) == (0, ""), ended
    return TIME.sub("TIME", ended.out).splitlines()


def complaint(*words: str, **env: str) -> tuple[int, str]:
    """The exit code and the one line of a command that fails; standard output stays empty."""
    ended = run(*words, **env)
    assert ended.out == "" and ended.err.count("\n") == 1, ended
    return ended.code, ended.err.rstrip("\n")


@pytest.fixture
def project() -> None:
    """A current project, called website."""
    run("project", "add", "website")
    run("project", "use", "website")


def on_terminal(*words: str, columns: int = 80, **env: str) -> str:
    """What a command writes to a real pseudo-terminal of that width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-W", "error", str(SCRIPT), *words],
        stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm", **env},
    )
    os.close(theirs)
    received = b""
    try:
        while piece := os.read(ours, 1 << 16):
            received += piece
    except OSError:  # Linux's way to say that the other end is closed
        pass
    os.close(ours)
    process.wait()
    return received.decode("utf-8").replace("\r\n", "\n")


# ---- the words of tam 1.0.13


def test_the_words_of_the_project_commands() -> None:
    assert seen("project", "current") == [
        "INFO No current project set. Use `tam project use <name>` to set a project."
    ]
    assert seen("project", "add", "website") == [
        "SUCCESS Project 'website' added successfully.",
        "INFO Use `tam project use website` to switch to this project.",
    ]
    for name, word in (("网站-2.0", "网站-2.0"), ("two words", "'two words'"), ("-x;y", "'-x;y'")):
        assert seen("project", "add", "--", name)[1] == (
            f"INFO Use `tam project use {word}` to switch to this project.")
        run("project", "del", "--", name)
    assert seen("project", "use", "website") == ["SUCCESS Project 'website' switched successfully."]
    assert seen("project", "current") == ["INFO Current project: website"]
    assert seen("project", "edit", "website", "site") == [
        "SUCCESS Project 'website' updated to 'site' successfully."
    ]
    assert seen("project", "current") == ["INFO Current project: site"]
    assert seen("project", "edit", "site", "site") == [
        "INFO Project name is the same, no changes made."
    ]
    assert seen("project", "del", "site") == ["SUCCESS Project 'site' deleted successfully."]
    assert seen("project", "current")[0].startswith("INFO No current project set.")
    assert seen("project", "add", "site")[0] == "SUCCESS Project 'site' restored successfully."


def test_the_words_of_the_task_commands(project: None) -> None:
    assert seen("task", "add", "Fix login") == ["SUCCESS Task 'Fix login' added successfully."]
    assert seen("task", "edit", "1", "Fix it") == ["SUCCESS Task '1' updated successfully."]
    assert seen("task", "start", "1") == ["SUCCESS Task '1' started successfully."]
    assert complaint("task", "start", "1") == (1, "ERROR Task 'Fix it' is already in progress.")
    assert seen("task", "done", "1") == ["SUCCESS Task '1' marked as done successfully."]
    assert complaint("task", "done", "1") == (1, "ERROR Task 'Fix it' is already done.")
    assert seen("task", "del", "1") == ["SUCCESS Task '1' deleted successfully."]


def test_the_words_of_the_new_commands(project: None) -> None:
    run("task", "add", "Fix login", "--priority", "1")
    assert seen("task", "claim", "1", "--agent", "a")[0] == (
        "SUCCESS Task 'Fix login' claimed by a until TIME UTC."
    )
    assert seen("task", "heartbeat", "1", "--agent", "a") == [
        "SUCCESS Task '1' leased until TIME UTC."
    ]
    assert seen("task", "next") == ["INFO No task to do: all are done or leased."]
    assert seen("task", "release", "1", "--agent", "a") == [
        "SUCCESS Task '1' released successfully."
    ]
    assert seen("task", "update", "1", "--priority", "2") == [
        "SUCCESS Task '1' updated successfully."
    ]
    assert seen("task", "add", "x", "--idempotency-key", "k") == [
        "SUCCESS Task 'x' added successfully."
    ]
    assert seen("task", "add", "x", "--idempotency-key", "k") == [
        "INFO Task 'x' is there already (#2)."
    ]


def test_lists_are_tables_with_rounded_corners(project: None) -> None:
    for title in ("Write", "Test", "Ship"):
        run("task", "add", title)
    run("task", "start", "2")
    run("task", "done", "1")
    assert seen("project", "list") == [
        "╭─────────┬─────────────────────┬─────────────────────╮",
        "│ Project │ Created             │ Updated             │",
        "├─────────┼─────────────────────┼─────────────────────┤",
        "│ website │ TIME │ TIME │",
        "╰─────────┴─────────────────────┴─────────────────────╯",
    ]
    assert seen("task", "list") == [
        "INFO Current project: website",
        "╭────┬───────┬────────────────╮",
        "│ ID │ Title │ Status         │",
        "├────┼───────┼────────────────┤",
        "│ 3  │ Ship  │ ⏳ Todo        │",
        "│ 2  │ Test  │ 🚧 In Progress │",
        "│ 1  │ Write │ ✅ Done        │",
        "╰────┴───────┴────────────────╯",
    ]


def test_empty_lists_print_a_hint(project: None) -> None:
    assert seen("task", "list") == ["INFO No tasks found. Use `tam task add` to add a task."]
    run("project", "del", "website")
    assert seen("project", "list") == [
        "No projects found. Use `tam project add` to add a project."
    ]
    assert complaint("task", "list")[1].startswith("ERROR a project is needed: give --project NAME")


@pytest.mark.parametrize("short, long", [
    ("p", "project list"), ("project", "project list"), ("p l", "project list"),
    ("p c", "project current"), ("t", "task list"), ("task", "task list"), ("t l", "task list"),
    ("task l", "task list"), ("t show 1", "task show 1"), ("t events 1", "task events 1"),
])
def test_a_short_name_shows_the_same(project: None, short: str, long: str) -> None:
    run("task", "add", "one")
    assert run(*short.split()).out == run(*long.split()).out != ""


@pytest.mark.parametrize(
    "short, then",
    [
        ("p a other", "Project 'other' added"),
        ("p u website", "Project 'website' switched"),
        ("p e website site", "Project 'website' updated to 'site'"),
        ("p d website", "Project 'website' del"),
        ("t a two", "Task 'two' added"),
        ("t e 1 uno", "Task '1' updated"),
        ("t d 1", "Task '1' deleted"),
        ("t start 1", "Task '1' started"),
        ("t done 1", "Task '1' marked as done"),
    ],
)
def test_a_short_name_does_the_same(project: None, short: str, then: str) -> None:
    run("task", "add", "one")
    assert seen(*short.split())[0].startswith(f"SUCCESS {then}")


def test_people_see_the_whole_list_as_in_1_0_13(
    project: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(8):
        run("task", "add", f"task {number}")
    monkeypatch.setitem(tam.PROPERTIES["limit"], "default", 2)
    monkeypatch.setattr(tam, "LIMIT_MAX", 3)
    titles = re.findall(r"task \d", "\n".join(seen("task", "list")))
    assert titles == [f"task {number}" for number in reversed(range(8))]
    cut = seen("task", "list", "--limit", "2")
    assert cut[-1] == "INFO 2 of 8 shown; go on with --cursor 7."
    assert re.findall(
        r"task \d", "\n".join(seen("task", "list", "--limit", "2", "--cursor", "7"))
    ) == ["task 5", "task 4"]
    monkeypatch.setattr(tam, "TOTAL_MAX", 3)
    assert seen("task", "list", "--limit", "2")[-1] == cut[-1]
    cut = seen("task", "list", "--limit", "2", "--priority", "3")
    assert cut[-1] == "INFO 2 of more than 3 shown; go on with --cursor 7."
    assert seen("history", "--limit", "1")[-1].startswith("INFO The newest 1 of more than 3 shown")


def test_the_config_shows_the_files_in_use(project: None, scratch_home: Path) -> None:
    lines = dict(line.split(None, 1) for line in seen("config"))
    assert lines == {
        "db_file": str(scratch_home / "tam.db3"), "current_project": "website", "theme": "dark",
        "logfile_path": str(scratch_home / "logs" / "tam.log"),
        "logfile_pattern": str(scratch_home / "logs" / "tam.{}.log"),
        "config_file": str(scratch_home / "tam.config.toml"), "home": str(scratch_home),
    }
    run("project", "del", "website")
    assert "current_project  (not set)" in seen("config")


# ---- the new commands, readable


def test_a_task_is_a_card_with_its_events(project: None) -> None:
    run("task", "add", "Fix login", "--priority", "1", "--tag", "bug", "--tag", "web",
        "--description", "It fails.\n\nSee the log.\n")
    run("task", "claim", "1", "--agent", "agent-with-a-long-name")
    run("task", "update", "1", "--title", "Fix it", "--tags", "")
    assert seen("task", "show", "1") == [
        "#1  Fix it",
        "  Project   website",
        "  Status    🚧 In Progress",
        "  Priority  1 (1 is highest)",
        "  Lease     agent-with-a-long-name, until TIME UTC",
        "  Revision  3",
        "  Created   TIME",
        "  Updated   TIME",
        "",
        "  It fails.",
        "",
        "  See the log.",
        "",
        "  TIME  #1  created  human                   → todo",
        "  TIME  #1  claimed  agent-with-a-long-name  todo → in-progress",
        "  TIME  #1  updated  human                   fields: title, tags",
    ]


def test_status_is_a_summary_with_a_bar(project: None) -> None:
    for number in range(4):
        run("task", "add", f"task {number}", "--priority", str(4 - number))
    run("task", "done", "1")
    run("task", "claim", "2", "--agent", "a")
    assert seen("status") == [
        "INFO Current project: website",
        "  ███████░░░░░░░░░░░░░░░░░░░░░░░  1 of 4 done",
        "  ⏳ Todo              2",
        "  🚧 In Progress       1",
        "  ✅ Done              1",
        "  Leased               1",
        "  Unassigned           2",
        "  Next:",
        "    #4  P1  task 3",
        "    #3  P2  task 2",
    ]


def test_next_shows_a_card_and_what_happened_reads_as_a_log(project: None) -> None:
    run("task", "add", "one")
    run("task", "add", "zwei 日本")
    assert seen("task", "next")[0] == "#1  one"
    run("task", "claim", "1", "--agent", "a")
    run("task", "claim", "1", "--agent", "b", "--force")
    assert seen("history") == [
        "  TIME  #1  created  human  → todo",
        "  TIME  #2  created  human  → todo",
        "  TIME  #1  claimed  a      todo → in-progress",
        "  TIME  #1  claimed  b      force: true; previous_agent: a",
    ]
    assert seen("task", "events", "2") == ["  TIME  #2  created  human  → todo"]
    assert seen("history", "--limit", "1")[-1] == (
        "INFO The newest 1 of 4 shown; --since 0 begins at the first."
    )
    assert seen("history", "--limit", "1", "--since", "2")[-1] == (
        "INFO 1 of 4 shown; go on with --since 3."
    )
    assert seen("history", "--since", "4") == ["INFO No events."]


def test_a_lease_that_ran_out_says_so(project: None, monkeypatch: pytest.MonkeyPatch) -> None:
    run("task", "add", "one")
    run("task", "claim", "1", "--agent", "a", "--lease", "5")
    now = tam.time.time()
    monkeypatch.setattr(tam.Tam.__init__, "__kwdefaults__", {
        **tam.Tam.__init__.__kwdefaults__, "clock": lambda: now + 60
    })
    assert "  Lease     a, expired TIME UTC" in seen("task", "show", "1")


def test_a_lease_without_an_end_shows_its_agent_alone(project: None, scratch_home: Path) -> None:
    run("task", "add", "one")
    run("task", "claim", "1", "--agent", "a")
    query(scratch_home / "tam.db3", "UPDATE task SET lease_expires_at = NULL")
    assert "  Lease     a" in seen("task", "show", "1")


# ---- columns line up, text stays harmless


WIDE = ["plain", "日本語のタイトル", "🚧 works ✅", "e\u0301te\u0301", FAMILY + " family", "🇩🇪🇫🇷",
        "한글", "ＡＢＣ", "1️⃣ first", "❤️ heart", "👍🏽", "a\u0300\u0301\u0302\u0303"]


def test_columns_line_up_in_every_script(project: None) -> None:
    for title in WIDE:
        run("task", "add", title)
    run("project", "add", "日本語 " + FAMILY)
    for lines in (seen("task", "list")[1:], run("project", "list").out.splitlines()):
        assert len(lines) > 5
        assert len({tam.cell_width(line) for line in lines}) == 1
        edges = {
            tuple(tam.cell_width(line[:at]) for at, char in enumerate(line) if char in "│├┼┤╭┬╮╰┴╯")
            for line in lines
        }
        assert len(edges) == 1


HOSTILE = {
    "colour": "\x1b[31mred",
    "title": "\x1b]0;owned\x07",
    "clear": "\x1b[2J\x1b[H",
    "bell": "\x07",
    "one-byte CSI": "\x9b2J",
    "override": "\u202egnp.exe",
    "isolate": "\u2066x",
    "backspace": "\x08\x08",
    "NUL": "a\0b",
    "DEL": "\x7f",
    "zero width": "a\u200bb",
}
STEERING = re.compile("[\0-\x09\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069]")


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_stored_text_never_steers_the_terminal(scratch_home: Path, text: str) -> None:
    opened = tam.Tam()  # no command line could carry a NUL
    for name in (text, "p" + text):
        opened.call("project.add", {"name": name})
    opened.call("project.use", {"name": text})
    opened.call("task.add", {"title": text, "description": f"one{text}\ntwo"})
    if not re.search("[\0-\x1f\x7f-\x9f]", text):  # agent ids and tags have no control characters
        opened.call("task.update", {"id": 1, "tags": [text]})
        opened.call("task.claim", {"id": 1, "agent": text})
    opened.close()
    for words in ("project list", "project current", "task list", "task show 1", "task events 1",
                  "history", "status", "task next", "config", "task start 1", "task done 1",
                  "task done 1", "task add x", "project edit x y"):
        ended = run(*words.split())
        assert not STEERING.search(ended.out + ended.err), (words, ended)
    for words in (
        ["task", text],
        [text],
        ["task", "show", text],
        ["--" + text],
        ["task", "list", text],
        ["task", "list", "--status", text],
        ["project", "use", "no" + text],
    ):
        if "\0" not in text:
            ended = run(*words)
            assert ended.code and not STEERING.search(ended.out + ended.err), (words, ended)
            assert ended.err.count("\n") == 1, ended


def test_bytes_that_are_no_utf8_in_an_old_file_are_shown_as_replacements(project: None) -> None:
    run("task", "add", "x")
    opened = tam.Tam()
    with opened.store.writing() as db:
        db.execute("UPDATE task SET title = CAST(x'61ff62' AS TEXT), content = NULL WHERE id = 1")
    opened.close()
    assert "a\ufffdb" in seen("task", "list")[4]


# ---- on a terminal and elsewhere


def test_colour_is_on_a_terminal_only_and_never_with_no_color() -> None:
    assert on_terminal("project", "add", "p").splitlines()[0] == (
        "\x1b[1;42mSUCCESS\x1b[0m Project 'p' added successfully."
    )
    assert on_terminal("project", "current").startswith("\x1b[1;44mINFO\x1b[0m No current project")
    failed = on_terminal("project", "add", "p")
    assert failed == "\x1b[1;41mERROR\x1b[0m project p already exists\n"
    assert "\x1b" not in on_terminal("project", "add", "p", NO_COLOR="1")
    assert "\x1b[1;41m" in on_terminal("project", "add", "p", NO_COLOR="")
    assert "\x1b" not in on_terminal("project", "list", "--json")
    for words in (["project", "add", "q"], ["project", "add", "q"], ["project", "current"]):
        ended = run(*words)
        assert "\x1b" not in ended.out + ended.err


LONG = "A long title 日本語 " * 12


def test_long_titles_are_cut_to_the_width_of_a_terminal_only(project: None) -> None:
    run("task", "add", LONG)
    run("task", "update", "1", "--tags", "x")
    for columns in (40, 61):
        lines = on_terminal("task", "list", columns=columns, NO_COLOR="1").splitlines()
        assert [tam.cell_width(line) for line in lines[1:]] == [columns] * 5
        assert "A long" in lines[4] and "… │" in lines[4] and lines[4].endswith("⏳ Todo │")
    lines = on_terminal("status", columns=50, NO_COLOR="1").splitlines()
    assert tam.cell_width(lines[-1]) in (49, 50) and lines[-1].endswith("…")
    lines = on_terminal("history", columns=40).splitlines()
    assert all(tam.cell_width(line) <= 40 for line in lines) and lines[0].endswith("…")
    whole = LONG.strip()
    assert whole in run("task", "list").out and whole in run("status").out
    assert whole in on_terminal("task", "show", "1", columns=40)
    assert whole in on_terminal("task", "list", "--json", columns=40)


def test_a_terminal_too_narrow_for_the_table_still_gets_one(project: None) -> None:
    run("task", "add", "A long title of a task")
    lines = on_terminal("task", "list", columns=10).splitlines()
    assert "│ A long … │" in lines[4]


# ---- exit codes


OLD_FAILURES = {
    "project add website": 1, "project use nothing": 1, "project del nothing": 1,
    "project edit nothing x": 1, "project edit website other": 1, "task list --project nothing": 1,
    "task add x --project nothing": 1, "task add ": 1, "task edit 99 x": 1, "task start 99": 1,
    "task done 99": 1, "task del 99": 1, "task start 1": 1, "task done 2": 1, "task del 0": 1,
    "task add x --priority 9": 1, "task done 1 --if-revision 77": 1, "task edit 1": 2,
    "task done x": 2, "task fly": 2, "project add": 2, "project add a b": 2, "task list --fly": 2,
}
NEW_FAILURES = {
    "task show 99": 3,
    "task update 99 --title x": 3,
    "task update 1": 1,
    "task claim 99 --agent a": 3,
    "task claim 1 --agent b": 4,
    "task claim 1": 1,
    "task claim 1 --agent a --lease 1": 1,
    "task heartbeat 1 --agent b": 4,
    "task release 1 --agent b": 4,
    "task next --claim": 1,
    "task events 99": 3,
    "status --project nothing": 3,
    "history --project nothing": 3,
    "task update 1 --title x --if-revision 77": 4,
    "task show x": 2,
    "status extra": 2,
    "fly": 2,
    "task claim 2 --agent b": 4,
}


@pytest.fixture(scope="module")
def busy_home(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A home with two projects, a leased task and a done one, for commands that change nothing."""
    home = str(tmp_path_factory.mktemp("busy") / ".tam")
    for command in ("project add website", "project use website", "project add other",
                    "task add leased", "task claim 1 --agent a", "task add done", "task done 2"):
        assert run(*command.split(), TAM_HOME=home).code == 0
    return home


@pytest.mark.parametrize("command, code", [*OLD_FAILURES.items(), *NEW_FAILURES.items()])
def test_for_people_old_commands_fail_with_1_and_new_ones_with_their_own_code(
    busy_home: str, command: str, code: int
) -> None:
    found, line = complaint(*command.split(" "), TAM_HOME=busy_home)
    assert found == code and line.startswith("ERROR ")
    with_json = run(*command.split(" "), "--json", TAM_HOME=busy_home)
    own = {"missing_agent": 1, "invalid": 1, "not_found": 3, "conflict": 4}
    assert with_json.code == (2 if code == 2 else own[with_json.error["code"]])


def test_usage_errors_point_to_the_help_page() -> None:
    assert complaint("task", "show", "x") == (
        2, "ERROR ID must be a whole number, not 'x'. See `tam task show -h`"
    )
    assert complaint("task", "fly") == (2, "ERROR unknown command 'fly'. See `tam task -h`")
    assert complaint("fly") == (2, "ERROR unknown command 'fly'. See `tam -h`")
    assert complaint("") == (2, "ERROR unknown command ''. See `tam -h`")
    assert complaint("task", "") == (2, "ERROR unknown command ''. See `tam task -h`")
    assert complaint("--fly", "task") == (2, "ERROR unknown option '--fly'. See `tam -h`")
    assert complaint("--agent") == (2, "ERROR --agent needs a value. See `tam -h`")
    assert complaint("project", "edit", "x") == (
        2, "ERROR NEW_NAME is missing. See `tam project edit -h`"
    )


# ---- help


PAGES = [[], ["project"], ["task"], *([*command.words] for command in tam.COMMANDS)]


@pytest.mark.parametrize("words", PAGES, ids=" ".join)
def test_help_at_every_level_reads_well(words: list) -> None:
    page = run(*words, "-h")
    assert (page.code, page.err) == (0, "")
    assert page.out == run(*words, "--help").out
    lines = page.out.splitlines()
    assert max(map(len, lines)) <= 90 and not any(line != line.rstrip() for line in lines)
    for part in ("usage: tam ", "exit codes:", "--json" if len(words) != 1 else "tam"):
        assert part in page.out
    if words in (["project"], ["task"]):
        assert "-h` tells a command's arguments, with examples." in page.out
    else:
        examples = page.out.partition("\nexamples:\n")[2].partition("\n\n")[0].splitlines()
        assert examples and all(line.startswith("  tam ") for line in examples)


@pytest.mark.parametrize("command", tam.COMMANDS, ids=lambda command: " ".join(command.words))
def test_the_examples_of_the_help_are_command_lines_that_are_understood(
    command: tam.Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.md").write_text("Context.")
    for example in command.examples:
        program, *words = shlex.split(example)
        assert program == "tam"
        assert run(*words).code != 2, example


@pytest.mark.parametrize(
    "words", [[], ["-h"], ["--help"], ["help"], ["--project", "x", "-h"]], ids=str
)
def test_tam_alone_prints_the_help(words: list) -> None:
    page = run(*words)
    assert page.code == 0 and page.out == tam.top_help()
    for command in tam.COMMANDS:
        assert re.search(
            rf"(?m)^  {command.words[-1]}\b.*{re.escape(command.operation.summary)}$", page.out
        )
    for word in ("TAM_PROJECT", "TAM_AGENT", "TAM_HOME", "NO_COLOR", "tam -i", "mcp", "tick"):
        assert word in page.out


def test_the_help_of_a_group_names_its_short_forms() -> None:
    page = run("task", "-h").out
    assert page == run("t", "--help").out == run("task", "help").out
    assert "(short: tam t …)" in page and "  add, a " in page and "TAM_AGENT" in page


def test_the_version() -> None:
    assert run("-V").out == run("--version").out == f"tam {tam.VERSION}\n"


def test_the_help_says_where_a_description_may_come_from_and_what_a_range_is() -> None:
    page = " ".join(run("task", "add", "-h").out.split())
    assert "--description TEXT context, up to 64 KiB; - reads it from standard input" in page
    assert "--description-file PATH read the description from this file" in page
    assert "--priority N 1 (highest) to 5, default 3" in page
    assert "how long it is yours: 5 to 86400" in " ".join(run("task", "claim", "-h").out.split())
