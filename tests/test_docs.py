"""The documents do what they say, and name nothing that does not exist."""
from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

import docs_support
import processes
import tam
import tam_mcp
import tam_tick
from mcp_support import ROOT

GUIDE = ROOT / "llms.txt"
REFERENCE = ROOT / "skills/tam-agent/references/agent-protocol.md"
SKILL = ROOT / "skills/tam-agent/SKILL.md"
README = ROOT / "README.md"
#: The documents whose commands are run; AGENTS.md has only what the README runs.
RUN = (GUIDE, SKILL, REFERENCE, README)
DOCUMENTS = (*RUN, ROOT / "AGENTS.md", *sorted((ROOT / "skills").glob("*/SKILL.md")))
WHOLE = (GUIDE, REFERENCE)

ERROR_CODES = {
    error.code: error.exit_status
    for error in (
        tam.Invalid, tam.NotFound, tam.Conflict, tam.MissingProject, tam.MissingAgent, tam.Internal,
    )
}
EVENTS = (
    "created", "updated", "claimed", "heartbeat", "released", "completed", "reopened", "deleted",
)
#: Words of the tables that documents may call by these names, beside the operations.
PROGRAMS = ("mcp", "tick", "bundle", "guide", "completion", "help", "tick host", "tick check")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def every(paths: tuple) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", dict.fromkeys(paths), ids=name_of)


# What exists.


def program_modules() -> list:
    """The modules behind `tam mcp` and `tam tick`, as far as they are there."""
    names = [name for name, *_ in tam.PROGRAMS.values()]
    return [__import__(name) for name in names if (ROOT / f"{name}.py").exists()]


def operation_options() -> set[str]:
    """Every option of every operation's command."""
    return {
        flag
        for command in tam.COMMANDS
        for action in tam.command_parser(command)._actions
        for flag in action.option_strings
        if flag.startswith("--")
    }


def all_options() -> set[str]:
    """Every option that tam knows anywhere."""
    found = operation_options() | {"--help", "--version", "--interactive"}
    for module in program_modules():
        found |= set(re.findall(r'add_argument\(\s*"(--[a-z-]+)"', text_of(Path(module.__file__))))
    return found - {"--board"}  # what `-i` hands to tam_tick.py: nobody types it


def environment() -> set[str]:
    """Every environment variable of tam's own that the code looks at."""
    sources = "".join(text_of(path) for path in ROOT.glob("tam*.py"))
    found = set(re.findall(r'"(TAM_[A-Z]+)"', sources))
    assert found == set(re.findall(r"TAM_[A-Z]+", tam.ENVIRONMENT)), "the help and the code differ"
    return found


def command_paths() -> set[tuple[str, ...]]:
    """The words of every command, with its aliases."""
    found = {tuple(words.split()) for words in PROGRAMS}
    found |= {(name,) for group, (alias, _) in tam.GROUPS.items() for name in (group, alias)}
    for command in tam.COMMANDS:
        group, *rest = command.words
        for head in (group, tam.GROUPS[group][0]) if group in tam.GROUPS else (group,):
            found.add((head, *rest))
            if command.alias:
                found.add((head, command.alias))
    return found


# What the documents name.

#: Where a command line calls tam, and the words after it.
CALL = r"(?:^|&& |-- |\| |\$\(|\w+=\S+ )(?:tam|python3? (?:tam\.py|-m tam)) ([^|&]*)"


def typed_lines(text: str) -> list[str]:
    """Every command of the blocks, and every span of code that begins like one."""
    lines = [
        step.command
        for block in docs_support.blocks(text)
        if block.language in ("console", "sh", "")
        for step in docs_support.steps(block)
    ]
    return lines + re.findall(r"`((?:tam|python3 tam\.py|python3? -m tam) [^`]*)`", text)


def named_paths(text: str) -> set[tuple[str, ...]]:
    """The command words that follow `tam`, at most two of them."""
    found = set()
    for line in typed_lines(text):
        for rest in re.findall(CALL, line):
            rest = re.sub(r"--(?:project|agent)[ =]\S+ |--json ", "", rest)
            match = re.match(r"[a-z]+(?: [a-z]+)?(?![\w…])", rest)
            if match:
                words = match.group().split()
                group = words[0] in ("project", "p", "task", "t", "tick")
                found.add(tuple(words if group else words[:1]))
    return found


#: What a document takes to be there already.
BEFORE = {
    SKILL: 'tam project add web && tam task add "Fix login" --project web',
}


@every(RUN)
def test_every_command_does_what_is_shown(path: Path, tmp_path: Path) -> None:
    desk = docs_support.Desk(tmp_path)
    if path in BEFORE:
        desk.type([docs_support.Step(0, BEFORE[path], None)])
    for block in docs_support.blocks(text_of(path)):
        desk.work_through(block)


@every(DOCUMENTS)
def test_every_option_exists(path: Path) -> None:
    text = "\n".join(
        line for line in text_of(path).splitlines()
        if not docs_support.outside(line.strip().removeprefix("$ ").strip("`- "))
    )
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) <= all_options()


@every(DOCUMENTS)
def test_every_command_exists(path: Path) -> None:
    assert named_paths(text_of(path)) <= command_paths()


@every(DOCUMENTS)
def test_every_tool_and_variable_exists(path: Path) -> None:
    text = text_of(path)
    modules = {name for name, *_ in tam.PROGRAMS.values()}
    assert set(re.findall(r"\btam_[a-z_]+\b", text)) <= set(tam_mcp.TOOLS) | modules
    assert set(re.findall(r"\bTAM_[A-Z_]+\b", text)) <= environment()


@every(DOCUMENTS)
def test_every_error_code_exists(path: Path) -> None:
    text = text_of(path)
    codes = set(re.findall(r'"code":"(\w+)"', text)) | {code for code, _ in error_rows(text)}
    assert codes <= set(ERROR_CODES)


def error_rows(text: str) -> list[tuple[str, str]]:
    """Code and exit status of each row of a table whose first heads are these."""
    found = []
    table = False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[:2] == ["code", "exit"]:
            table = True
        elif not line.startswith("|"):
            table = False
        elif table and not cells[0].startswith("-"):
            found.append((cells[0].strip("`"), cells[1]))
    return found


@every(WHOLE)
def test_nothing_is_missing(path: Path) -> None:
    text = text_of(path)
    wanted = {f"tam {' '.join(command.words)}" for command in tam.COMMANDS}
    wanted |= {f"tam {words}" for words in PROGRAMS if words != "help"} | {"tam -i"}
    wanted |= all_options() | set(tam_mcp.TOOLS) | environment() | {"NO_COLOR"}
    wanted |= set(tam_mcp.CLIENTS) | set(tam.STATUSES)
    missing = {
        name for name in wanted if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)
    }
    assert missing == set()


@every(WHOLE)
def test_error_codes_have_their_exit_status(path: Path) -> None:
    rows = dict(error_rows(text_of(path)))
    assert set(rows) == set(ERROR_CODES)
    for code, status in ERROR_CODES.items():
        assert rows[code].startswith(str(status)), code
    assert re.search(r"\b130\b", text_of(path)) and re.search(r"\b2\b", rows["invalid"])


def test_the_reference_has_every_argument_and_event() -> None:
    text = text_of(REFERENCE)
    names = {name for operation in tam.OPERATIONS.values() for name in operation.properties}
    tools = {operation.tool for operation in tam.OPERATIONS.values() if operation.tool}
    keys = {"TaskView", "ProjectView", "EventView", *tam.CONFIG_KEYS}
    for name in names | tools | keys | set(EVENTS) | set(tam.OPERATIONS):
        assert f"`{name}`" in text, name


def test_limits_are_those_of_the_program() -> None:
    text = re.sub(r"(?<=\d),(?=\d{3})", "", text_of(REFERENCE))
    limits = (
        tam.TITLE_MAX, tam.NAME_MAX, tam.AGENT_MAX, tam.KEY_MAX, tam.TAG_MAX, tam.TAGS_MAX,
        tam.LEASE_MIN, tam.LEASE_MAX, tam.LEASE_DEFAULT, tam.LIMIT_MAX, tam.LIMIT_DEFAULT,
        tam_mcp.RESULT_BUDGET,
    )
    for limit in limits:
        assert re.search(rf"\b{limit}\b", text), limit
    assert tam.DESCRIPTION_MAX == 64 * 1024 and "64 KiB" in text


def test_citations_name_sections_of_the_reference() -> None:
    headings = {line.lstrip("# ").lower() for line in headings_of(REFERENCE)}
    for path in sorted(ROOT.glob("tam*.py")):
        for cited in re.findall(r"\(contract,? ([\w ]+?)\)", text_of(path)):
            assert cited.lower() in headings, (path.name, cited)


def test_sizes() -> None:
    assert len(GUIDE.read_bytes()) < 16 * 1024
    assert len(text_of(SKILL).split("---\n", 2)[2].encode()) < 2 * 1024


def test_the_guide_has_the_shape_of_llms_txt() -> None:
    lines = text_of(GUIDE).splitlines()
    assert lines[0] == "# tam" and lines[2].startswith("> ")
    assert [line for line in lines if line.startswith("# ")] == lines[:1]
    assert any(line.startswith("## ") for line in lines)


@every(tuple((ROOT / "skills").glob("*/SKILL.md")))
def test_front_matter_of_skills(path: Path) -> None:
    opening, front, _ = text_of(path).split("---\n", 2)
    fields = dict(line.split(": ", 1) for line in front.splitlines())
    assert opening == "" and fields["name"] == path.parent.name
    assert 20 < len(fields["description"]) <= 1024


@every(DOCUMENTS)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(path)):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        linked = (path.parent / name).resolve() if name else path
        assert linked.exists(), target
        if anchor:
            assert anchor in {slug(line) for line in headings_of(linked)}


def headings_of(path: Path) -> list[str]:
    return [line for line in text_of(path).splitlines() if line.startswith("#")]


def slug(heading: str) -> str:
    """The anchor of a heading, as forges make it."""
    return re.sub(r"[^\w -]", "", heading.lstrip("# ").lower()).replace(" ", "-")


def test_the_readme_has_one_test_line_and_the_main_job() -> None:
    text = text_of(README)
    assert len(docs_support.TEST_LINE.findall(text)) == 1
    assert text.count("    python3 tam.py project add demo && ") == 1


@every(DOCUMENTS)
def test_nothing_of_this_machine_is_in_the_documents(path: Path) -> None:
    assert not re.search(r"/(?:root\b|work\b|home/(?!you/))", text_of(path))


def test_the_way_back_to_the_old_tam(tmp_path: Path) -> None:
    """The README's two lines bring back, byte for byte, what tam 1.0.13 had left."""
    desk = docs_support.Desk(tmp_path)
    database = processes.legacy_home(tmp_path / "home" / ".tam")
    before = database.read_bytes()
    back = next(
        block for block in docs_support.blocks(text_of(README))
        if any("mv ~/.tam/tam.db3.bak.v1" in line for line in block.lines)
    )
    for _ in range(2):  # a second upgrade makes a second backup
        desk.type([docs_support.Step(0, "tam task add New --agent a", None)])
        assert database.read_bytes() != before
        subprocess.run(["bash", "-ec", "\n".join(back.lines)], env=desk.env, check=True)
        assert database.read_bytes() == before


def test_the_picture_of_the_board_is_a_real_one() -> None:
    """The tasks of the picture, put on a board of its size, give the picture."""
    now = 1_800_000_000
    store = tam.Tam(project="web", env={**os.environ}, clock=lambda: now)
    store.call("project.add", {"name": "web"})
    titles = {
        "Fix login": 1, "Write the release notes": 4, "Update dependencies": 2, "修复搜索": 3,
        "Set up CI": 1, "Choose a name": 3,
    }
    for title, priority in titles.items():
        tags = ["bug"] if title == "Fix login" else []
        store.call("task.add", {"title": title, "priority": priority, "tags": tags})
    store.call("task.claim", {"id": 1, "agent": "agent-a", "lease_seconds": 1800})
    store.call("task.claim", {"id": 3, "agent": "agent-b"})
    for number in (5, 6):
        store.call("task.done", {"id": number})
    board = tam_tick.opened(tam_tick.Board(now=now), "web")
    snapshot = store.snapshot("web")
    store.close()
    content = {
        "columns": [snapshot["columns"][status] for status in tam.STATUSES],
        "totals": list(snapshot["counts"].values()),
        "exact": (True, True, True),
    }
    view = tam_tick.View(tam_tick.interest(board), None, content)
    shown = next(block.lines for block in docs_support.blocks(text_of(README)))
    screen = tam_tick.render(tam_tick.arrange(board, view), 84, len(shown))
    assert [line.rstrip() for line in screen.text()] == shown
