"""The operation table, and the one way in that all doors share."""
from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import tam
import tam_tick
from support import ending, run
from tam import COMMANDS, OPERATIONS, Tam

ROWS = list(OPERATIONS.values())
NAMES = list(OPERATIONS)
#: P 5's names, without the prefix that MCP gives them.
TOOLS = {
    "status": "status", "project_list": "project.list", "task_list": "task.list",
    "task_get": "task.show", "task_create": "task.add", "task_update": "task.update",
    "task_claim": "task.claim", "task_heartbeat": "task.heartbeat", "task_release": "task.release",
    "task_complete": "task.done", "task_next": "task.next", "task_events": "task.events",
    "history": "history",
}
#: The rest: P 4.1's projects, P 4.2's deletion, and what 1.0.13 had.
WITHOUT_TOOL = {
    "project.current", "project.add", "project.use", "project.del", "project.edit", "task.edit",
    "task.start", "task.del", "config",
}
WRITES = {
    "project.add", "project.use", "project.del", "project.edit", "task.add", "task.update",
    "task.edit", "task.start", "task.claim", "task.heartbeat", "task.release", "task.done",
    "task.next", "task.del",
}


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Tam:
    """One tam with a project p, for calls that are refused and so change nothing."""
    one = Tam(env={"TAM_HOME": str(tmp_path_factory.mktemp("operations") / ".tam")})
    one.call("project.add", {"name": "p"})
    yield one
    one.close()


# ---- the table


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_a_row_publishes_a_schema_that_the_validator_accepts(row: tam.Operation) -> None:
    schema = row.input_schema()
    assert tam_tick.StrangersCheck(schema).unchecked() == []
    assert schema["type"] == "object" and schema["additionalProperties"] is False
    assert set(schema["required"]) == set(row.required) <= set(row.properties)


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_each_property_has_one_type_and_a_description_and_a_default_that_fits(
    row: tam.Operation
) -> None:
    for name, rule in row.properties.items():
        assert rule["type"] in ("string", "integer", "boolean", "array"), name
        assert rule["description"].strip(), name
        if rule["type"] == "array":
            assert rule["items"]["type"] == "string", name
        if "default" in rule:
            assert tam_tick.violations(rule, rule["default"]) == [] and name not in row.required, name


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_a_row_says_what_it_is(row: tam.Operation) -> None:
    assert OPERATIONS[row.name] is row
    assert row.summary and "\n" not in row.summary and not row.summary.endswith(".")
    assert row.access in ("none", "read", "write")
    assert row.project in ("needs", "checks", "current", "none") and row.agent in ("takes", "none")
    assert ("project" in row.properties) is (row.project != "none")
    assert ("agent" in row.properties) is (row.agent == "takes")
    assert row.mutates is (row.name in WRITES)
    if row.tool is not None:
        assert row.title and 0 < len(row.description) < 300


def test_the_table_is_complete_and_its_tools_have_the_names_of_the_protocol() -> None:
    assert {row.tool: row.name for row in ROWS if row.tool} == TOOLS
    assert set(NAMES) - set(TOOLS.values()) == WITHOUT_TOOL


def test_the_doors_are_those_of_the_protocol() -> None:
    assert all(row.doors[0] == "cli" and set(row.doors) <= {"cli", "mcp", "tick"} for row in ROWS)
    assert {row.tool for row in ROWS if "mcp" in row.doors} == set(TOOLS) - {"history"}
    assert {row.tool for row in ROWS if "tick" in row.doors} == set(TOOLS)


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_each_row_is_a_command_whose_flags_are_its_properties(row: tam.Operation) -> None:
    (command,) = [one for one in COMMANDS if one.operation is row]
    parser = tam.command_parser(command)
    spelt = {action.dest for action in parser._actions} - {"help", "json", "description_file"}
    assert spelt == set(row.properties) | {"project", "agent"}
    page = run(*command.words, "-h").out
    for flag in (flag for name in row.properties for flag in tam.flags_of(row, name)):
        if flag.lstrip("-").replace("-", "_") not in command.positionals:
            assert re.search(rf"(?m)^  ([^ ].*)?{flag}\b", page), flag


def test_the_ranges_in_the_help_are_those_of_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, words in (("lease_seconds", "7 to 77"), ("limit", "3 to 33")):
        for row in (OPERATIONS["task.next"], OPERATIONS["history"]):
            if name in row.properties:
                changed = {**row.properties[name], "description": words}
                monkeypatch.setitem(row.properties, name, changed)
    assert "7 to 77" in run("task", "next", "-h").out
    assert "3 to 33" in run("history", "-h").out


def test_a_command_takes_its_arguments_to_call_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}
    monkeypatch.setattr(Tam, "call", lambda self, name, args: seen.update({name: args}) or {})
    run("task", "list", "--status", "x", "--priority", "77", "--tag", "A", "--tag", "b", "--json")
    run("task", "add", "T", "--tag", "A", "--tag", "b", "--idempotency-key", "k", "--json")
    run("task", "update", "1", "--tags", "A, b", "--if-revision", "3", "--json")
    run("task", "next", "--claim", "--lease", "1", "--json")
    run("task", "claim", "-7", "--force", "--json")
    run("history", "--since", "4", "--limit", "9999", "--json")
    run("status", "--json")
    assert seen == {
        "task.list": {"status": "x", "priority": 77, "tag": ["A", "b"]},
        "task.add": {"title": "T", "tags": ["A", "b"], "idempotency_key": "k"},
        "task.update": {"id": 1, "tags": ["A", " b"], "if_revision": 3},
        "task.next": {"claim": True, "lease_seconds": 1},
        "task.claim": {"id": -7, "force": True},
        "history": {"since": 4, "limit": 9999},
        "status": {},
    }


# ---- call


@pytest.mark.parametrize("name", NAMES)
def test_call_refuses_an_argument_that_it_does_not_know(opened: Tam, name: str) -> None:
    arguments = {"id": 1, "name": "q", "new_name": "r", "title": "t", "project": "p", "agent": "a"}
    known = {key: value for key, value in arguments.items() if key in OPERATIONS[name].properties}
    with pytest.raises(tam.Invalid, match="colour") as caught:
        opened.call(name, {**known, "colour": "red"})
    assert type(caught.value) is tam.Invalid
    assert caught.value.details["argument"] == "colour"


@pytest.mark.parametrize("name, missing", [
    (row.name, name) for row in ROWS for name in row.required
])
def test_call_names_a_required_argument_that_is_missing(
    opened: Tam, name: str, missing: str
) -> None:
    arguments = {"id": 1, "name": "q", "new_name": "r", "title": "t"}
    given = {key: arguments[key] for key in OPERATIONS[name].required if key != missing}
    with pytest.raises(tam.Invalid, match="is missing") as caught:
        opened.call(name, given)
    assert caught.value.details["argument"] == missing


WRONG = {"string": [1, True, None, ["x"], {}], "integer": ["1", 1.5, True, None, [1]],
         "boolean": ["true", 1, None], "array": ["a,b", 1, None, [1], [None], [["a"]]]}


@pytest.mark.parametrize("name, argument", [
    (row.name, name) for row in ROWS for name in row.properties
])
def test_call_refuses_a_wrong_type_by_the_name_of_the_argument(
    opened: Tam, name: str, argument: str
) -> None:
    row = OPERATIONS[name]
    right = {"id": 1, "name": "q", "new_name": "r", "title": "t"}
    for value in WRONG[row.properties[argument]["type"]]:
        given = {key: right[key] for key in row.required} | {argument: value}
        with pytest.raises(tam.Invalid) as caught:
            opened.call(name, given)
        assert caught.value.details["argument"] == argument, value
        assert " must be " in caught.value.message and "string" not in caught.value.message
    assert opened.call("task.list", {"project": "p"})["tasks"] == []


@pytest.mark.parametrize("name, argument", [
    (row.name, name) for row in ROWS for name, rule in row.properties.items()
    if {"maxLength", "maxItems"} & set(rule)
])
def test_call_refuses_what_is_far_too_long_by_name(
    opened: Tam, name: str, argument: str
) -> None:
    right = {"id": 1, "name": "q", "new_name": "r", "title": "t"}
    tags = OPERATIONS[name].properties[argument]["type"] == "array"
    for value in ([["x" * 1_000_000], ["x"] + [f"x{n}" for n in range(300_000)]] if tags
                  else ["x" * 1_000_000]):
        given = {key: right[key] for key in OPERATIONS[name].required} | {argument: value}
        with ending(), pytest.raises(tam.Invalid) as caught:
            opened.call(name, given)
        assert caught.value.details["argument"] == argument
        assert "at most" in caught.value.message


@pytest.mark.parametrize("name, given, argument", [
    ("task.add", {"title": "\ud800"}, "title"),
    ("task.add", {"title": "t", "description": "x\udfff"}, "description"),
    ("task.add", {"title": "t", "tags": ["ok", "\ud800"]}, "tags"),
    ("task.add", {"title": "t", "agent": "\ud800"}, "agent"),
    ("task.add", {"title": "t", "\ud800": 1}, "\ufffd"),
    ("task.list", {"search": "\ud800"}, "search"),
    ("task.list", {"project": "\ud800"}, "project"),
    ("project.add", {"name": "a\udc00"}, "name"),
])
def test_call_refuses_half_a_surrogate_pair_anywhere(
    opened: Tam, name: str, given: dict, argument: str
) -> None:
    with pytest.raises(tam.Invalid, match="Unicode") as caught:
        opened.call(name, {"project": "p", **given} if name != "project.add" else given)
    assert caught.value.details == {"argument": argument}
    tam.encode_json(caught.value.as_dict())


def test_call_takes_a_whole_float_for_an_integer_as_json_has_it(opened: Tam) -> None:
    task = opened.call("task.add", {"title": "t", "project": "p", "priority": 2.0})["task"]
    assert task["priority"] == 2 and type(task["priority"]) is int
    assert opened.call("task.show", {"id": float(task["id"])})["task"] == task
    with pytest.raises(tam.NotFound):
        opened.call("task.show", {"id": 1e300})


@pytest.mark.parametrize("id", [0, -1, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 10**30])
def test_an_id_that_no_task_has_is_not_found(opened: Tam, id: object) -> None:
    with pytest.raises(tam.NotFound) as caught:
        opened.call("task.show", {"id": id})
    assert caught.value.details == {"task_id": id}


def test_an_unknown_operation_is_invalid_and_the_known_ones_are_named(opened: Tam) -> None:
    with pytest.raises(tam.Invalid, match="task.fly") as caught:
        opened.call("task.fly", {})
    assert caught.value.details == {"allowed": NAMES}


def test_what_nobody_foresaw_is_internal_and_the_log_has_the_rest(
    opened: Tam, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(work: object, args: dict) -> None:
        raise ZeroDivisionError("a secret\nplace")

    monkeypatch.setattr(OPERATIONS["status"], "run", broken)
    with pytest.raises(tam.Internal, match="ZeroDivisionError: a secret␊place; the log") as caught:
        opened.call("status", {"project": "p"})
    assert type(caught.value) is tam.Internal and caught.value.exit_status == 1
    with open(opened.config["logfile_path"], encoding="utf-8") as log:
        assert "Traceback" in log.read()


def test_arguments_come_before_flags_and_flags_before_the_environment(scratch_home: Path) -> None:
    for name in ("one", "two", "three", "four"):
        run("project", "add", name)
    run("project", "use", "four")

    def scopes(env: dict, **flags: str) -> list:
        opened = Tam(env={"TAM_HOME": str(scratch_home), **env}, **flags)
        found = [opened.call("status", {})["project"], opened.default_agent()]
        found.append(opened.call("status", {"project": "three"})["project"])
        opened.close()
        return found

    env = {"TAM_PROJECT": "two", "TAM_AGENT": "env"}
    assert scopes({}) == ["four", None, "three"]
    assert scopes(env) == ["two", "env", "three"]
    assert scopes(env, project="one", agent="flag") == ["one", "flag", "three"]
    assert scopes({"TAM_PROJECT": "", "TAM_AGENT": ""}) == ["four", None, "three"]


def test_an_unknown_argument_is_named_harmlessly(opened: Tam) -> None:
    with pytest.raises(tam.Invalid) as caught:
        opened.call("status", {"\x1b[1m": 1})
    assert caught.value.details == {"argument": "␛[1m", "allowed": ["project"]}
    assert caught.value.message == "There is no argument ␛[1m"


def test_a_failure_is_one_line_of_json_whatever_it_quotes() -> None:
    line = tam.failure("task.add", tam.Internal("half \udcff", raw="\ud800"))
    assert line.isascii() and line.endswith(b"\n") and line.count(b"\n") == 1
    error = json.loads(line)["error"]
    assert (error["message"], error["details"]["raw"]) == ("half \udcff", "\ud800")


@pytest.mark.parametrize("kind, code, exit_status, tick_code", [
    (tam.Invalid, "invalid", 1, -32602), (tam.Usage, "invalid", 2, -32602),
    (tam.NotFound, "not_found", 3, -32602), (tam.Conflict, "conflict", 4, -32000),
    (tam.MissingProject, "missing_project", 1, -32602), (tam.Startup, "internal", 1, -32000),
    (tam.MissingAgent, "missing_agent", 1, -32602), (tam.Internal, "internal", 1, -32000),
    (tam.Busy, "internal", 1, -32000), (tam.SchemaError, "invalid", 1, -32602),
    (tam.BadJSON, "invalid", 1, -32602),
], ids=lambda value: getattr(value, "__name__", None))
def test_each_error_has_its_code_and_its_two_statuses(
    kind: type, code: int, exit_status: int, tick_code: int
) -> None:
    error = kind("words", fact=1)
    assert (error.exit_status, error.tick_code) == (exit_status, tick_code)
    details = {"fact": 1, "retryable": True} if kind is tam.Busy else {"fact": 1}
    assert error.as_dict() == {"code": code, "message": "words", "details": details}
    assert str(error) == "words"
