"""The JSON command line, rule by rule: P sections 3 and 4, contract sections 4 and 5."""
from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest

import tam
from support import Result, run, spawn

TASK_VIEW = [
    "id", "project_id", "project", "title", "description", "status", "priority", "tags",
    "assigned_agent", "lease_expires_at", "lease_expired", "revision", "created", "updated",
]
EVENT_VIEW = [
    "id", "task_id", "event", "actor", "from_status", "to_status", "metadata", "created",
]
PROJECT_VIEW = ["id", "name", "created", "updated"]
#: 2027-01-15 08:00:00 UTC, the first moment of the tests' clock.
NOON = 1_800_000_000


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now + 0.9  # a moment is a whole second, whatever the fraction


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of every command that runs in this process."""
    one = Clock()
    monkeypatch.setitem(tam.Tam.__init__.__kwdefaults__, "clock", one)
    return one


def js(line: str, **env: str) -> Result:
    """Run a command line, as a shell would split it, with --json."""
    return run(*shlex.split(line), "--json", **env)


def tasks_of(line: str, **env: str) -> list[str]:
    """The titles that a list gives."""
    return [task["title"] for task in js(line, **env).data["tasks"]]


def events_of(task_id: int) -> list[tuple]:
    """What the log of a task says: (event, actor, from, to, metadata)."""
    return [
        (
            event["event"],
            event["actor"],
            event["from_status"],
            event["to_status"],
            event["metadata"],
        )
        for event in js(f"task events {task_id}").data["events"]
    ]


@pytest.fixture
def project(clock: Clock) -> None:
    """A current project p with one task."""
    js("project add p")
    js("project use p")
    js("task add one")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """The environment of a home for commands that fail and so change nothing: current project p,
    task 1 todo, task 2 done, task 3 leased by a; project other with task 4; project gone deleted
    with task 5."""
    env = {"TAM_HOME": str(tmp_path_factory.mktemp("shared") / ".tam")}
    for line in (
        "project add p", "project use p", "project add other", "project add gone", "task add one",
        "task add two", "task done 2", "task add three", "task claim 3 --agent a",
        "task add four --project other", "task add five --project gone", "project del gone",
    ):
        assert js(line, **env).code == 0
    return env


def fails(result: Result, code: str, exit_status: int, details: dict | None = None) -> dict:
    """Check a failure: its envelope whole on standard error, nothing on standard output."""
    assert result.out == "" and result.code == exit_status, result
    envelope = result.json
    assert list(envelope) == ["ok", "schema", "command", "error"]
    assert envelope["ok"] is False and envelope["schema"] == "tam.agent/v1"
    assert list(envelope["error"]) == ["code", "message", "details"]
    assert envelope["error"]["code"] == code, envelope
    assert envelope["error"]["message"] and "\n" not in envelope["error"]["message"]
    if details is not None:
        found = envelope["error"]["details"]
        more = ("suggestion", "allowed", "character")  # what else may help; these have own tests
        assert {key: found[key] for key in found if key in details or key not in more} == details
    return envelope


# ---- envelopes: every operation once, in an order in which all of them work

TASK = {"task"}
PAGE = {"count", "total", "total_is_exact", "limit", "truncated", "next_cursor"}
SCENARIO = [
    ("project add website", "project.add", {"project", "restored"}),
    ("project list", "project.list", None),
    ("project use website", "project.use", {"project"}),
    ("project current", "project.current", {"project"}),
    ("task add Fix --tag bug", "task.add", {"task", "deduplicated"}),
    ("task list", "task.list", {"tasks", *PAGE}),
    ("task show 1", "task.show", {"task", "events"}),
    ("task edit 1 Mend", "task.edit", TASK),
    ("task update 1 --priority 1", "task.update", TASK),
    ("task start 1", "task.start", TASK),
    ("task claim 1 --agent a", "task.claim", TASK),
    ("task heartbeat 1 --agent a", "task.heartbeat", TASK),
    ("status", "status", {"project", "counts", "leased", "unassigned", "next"}),
    ("task release 1 --agent a", "task.release", TASK),
    ("task next", "task.next", TASK),
    ("task next --claim --agent a", "task.next", TASK),
    ("task done 1 --agent a", "task.done", TASK),
    ("task events 1", "task.events", {"events", *PAGE}),
    ("history", "history", {"events", *PAGE}),
    ("task del 1", "task.del", TASK),
    ("config", "config", {"db_file", "current_project", "logfile_path", "logfile_pattern", "theme",
                          "config_file", "home"}),
    ("project edit website site", "project.edit", {"project"}),
    ("project del site", "project.del", {"project"}),
]


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    """What every command of the scenario answered."""
    home = str(tmp_path_factory.mktemp("scenario") / ".tam")
    return {line: js(line, TAM_HOME=home) for line, _, _ in SCENARIO}


def check_views(value: object) -> None:
    """Check every view in an answer, wherever it is: all keys, in P's order, with their types."""
    if isinstance(value, list):
        for item in value:
            check_views(item)
    elif isinstance(value, dict):
        if "lease_expired" in value:
            assert list(value) == TASK_VIEW
            assert value["status"] in ("todo", "in-progress", "done")
            assert value["lease_expired"] in (True, False) and isinstance(value["tags"], list)
        elif "event" in value:
            assert list(value) == EVENT_VIEW and isinstance(value["metadata"], dict)
        elif "created" in value:
            assert list(value) == PROJECT_VIEW
        if "created" in value:
            assert tam.re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", value["created"])
        check_views(list(value.values()))


def test_the_scenario_has_every_operation() -> None:
    assert {command for _, command, _ in SCENARIO} == set(tam.OPERATIONS)


@pytest.mark.parametrize("line, command, keys", SCENARIO, ids=[line for line, _, _ in SCENARIO])
def test_a_success_is_one_envelope_on_standard_output(
    scenario: dict, line: str, command: str, keys: set | None
) -> None:
    result = scenario[line]
    assert (result.code, result.err) == (0, "")
    envelope = result.json
    assert list(envelope) == ["ok", "schema", "command", "data", "meta"]
    assert (envelope["ok"], envelope["schema"], envelope["command"]) == (
        True,
        "tam.agent/v1",
        command,
    )
    assert list(envelope["meta"]) == ["project", "agent"]
    assert envelope["meta"]["agent"] == ("a" if "--agent a" in line else None)
    assert (set(envelope["data"]) if keys else type(envelope["data"])) == (keys or list)
    check_views(envelope["data"])
    assert result.raw == tam.encode_json(envelope) + b"\n"  # compact UTF-8, one line


def test_the_envelope_names_the_project_and_agent_in_force(shared: dict) -> None:
    def meta(line: str, **env: str) -> tuple:
        return tuple(js(line, **shared, **env).json["meta"].values())

    assert meta("status") == ("p", None)
    assert meta("status", TAM_PROJECT="other", TAM_AGENT="env") == ("other", "env")
    assert meta("status --project p --agent flag", TAM_PROJECT="other", TAM_AGENT="env") == (
        "p", "flag"
    )
    assert meta("status", TAM_PROJECT="", TAM_AGENT="") == ("p", None)
    assert meta("task show 4") == ("p", None)
    assert meta("task show 1 --agent ''", TAM_AGENT="env") == ("p", None)


def test_p7_item_3_success_on_stdout_failure_on_stderr_and_the_five_exit_codes(
    project: None, scratch_home: Path
) -> None:
    assert js("task list").json["command"] == "task.list"  # 0
    fails(js("task add ''"), "invalid", 1, {"argument": "title", "value": "", "length": 0})
    fails(js("task claim 1"), "missing_agent", 1, {})
    fails(js("task list --project ''"), "missing_project", 1, {})
    assert fails(js("task show x"), "invalid", 2)["command"] == "task.show"
    fails(js("task show 7"), "not_found", 3, {"task_id": 7})
    js("task claim 1 --agent a")
    conflict = fails(js("task claim 1 --agent b"), "conflict", 4, {
        "task_id": 1, "assigned_agent": "a", "lease_expires_at": "2027-01-15T08:15:00Z",
    })
    assert conflict["error"]["message"].startswith(
        "task 1 is leased by a until 2027-01-15T08:15:00Z"
    )
    (scratch_home / "tam.config.toml").write_text("theme = dark = light\n")
    broken = fails(spawn("task", "list", "--json"), "internal", 1)
    assert broken["command"] == "startup"


# ---- usage errors: exit 2

USAGE = [
    "task show x",
    "task show ''",
    "task show 1.0",
    "task show 1e3",
    "task show 0x1",
    "task show 1_000",
    "task show ' 1'",
    "task show １",
    "task show 1,2",
    "task show",
    "task show 1 2",
    "task show True",
    "task claim x --agent a",
    "task claim 1 --agent a --lease x",
    "task claim 1 --agent a --lease 1.5",
    "task next --lease ''",
    "task list --limit x",
    "task list --limit",
    "task list --limit 1.5",
    "task list --priority high",
    "task add x --priority 1.5",
    "task add",
    "task add a b",
    "task update 1 --if-revision x",
    "task update",
    "task events 1 --since x",
    "task list --cursor x",
    "task list --bogus",
    "task list --js",
    "task list --lim 5",
    "task list -x",
    "task list extra",
    "task bogus",
    "project bogus",
    "project edit p",
    "project add",
    "bogus",
    "--bogus",
    "-x",
    "-j",
    "status extra",
    "status --status todo",
    "task next --force",
    "task done 1 --force",
    "task update 1 --description a --description-file b",
    "task claim 1 --agent",
    "task list --tag",
    "task del",
    "task edit 1",
    "",
    "--agent",
    "--project p",
    "task add --title x",
    "config x",
]


@pytest.mark.parametrize("line", USAGE)
def test_a_command_line_that_cannot_be_understood_is_exit_2(shared: dict, line: str) -> None:
    envelope = fails(run(*["--json", *shlex.split(line)], **shared), "invalid", 2)
    assert "-h`" in envelope["error"]["message"] or "--description-file" in line
    assert envelope["command"] != "startup"


def test_a_usage_error_names_the_command_as_far_as_it_is_known(shared: dict) -> None:
    for line, command in (("task show x", "task.show"), ("task fly", "task"), ("fly", "tam"),
                          ("p e x", "project.edit"), ("status x", "status"), ("t", "task.list")):
        words = shlex.split(line) + (["--fly"] if line == "t" else [])
        assert fails(run("--json", *words, **shared), "invalid", 2)["command"] == command
    assert "usage: tam task show" in js("task show x", **shared).error["details"]["usage"]


def test_json_after_two_dashes_is_a_title_and_before_them_a_flag(project: None) -> None:
    assert run("task", "add", "--json", "--", "--json").data["task"]["title"] == "--json"
    assert run("task", "add", "--", "--json").out == "SUCCESS Task '--json' added successfully.\n"
    assert run("task", "add", "--json", "--", "-5").data["task"]["title"] == "-5"
    assert run("task", "show", "--", "--json").err.startswith("ERROR ")  # no flag: words for people


# ---- values of the right shape and the wrong domain: exit 1

A = "task claim 1 --agent a"
DOMAIN = [
    ("task add x --priority 9", {"argument": "priority", "value": 9}),
    ("task add x --priority 0", {"argument": "priority", "value": 0}),
    ("task add x --priority -1", {"argument": "priority", "value": -1}),
    ("task list --priority 6", {"argument": "priority", "value": 6}),
    ("task update 1 --priority 6", {"argument": "priority", "value": 6}),
    (f"{A} --lease 4", {"argument": "lease_seconds", "value": 4}),
    (f"{A} --lease 86401", {"argument": "lease_seconds", "value": 86401}),
    (f"{A} --lease -5", {"argument": "lease_seconds", "value": -5}),
    (f"{A} --lease {10**25}", {"argument": "lease_seconds", "value": 10**25}),
    ("task next --lease 0", {"argument": "lease_seconds", "value": 0}),
    ("task heartbeat 3 --agent a --lease 2", {"argument": "lease_seconds", "value": 2}),
    ("task list --status bogus", {"argument": "status", "value": "bogus", "length": 5}),
    ("task list --status TODO", {"argument": "status", "value": "TODO", "length": 4}),
    ("task list --status ''", {"argument": "status", "value": "", "length": 0}),
    ("task update 1 --status open", {"argument": "status", "value": "open", "length": 4}),
    ("task add ''", {"argument": "title", "value": "", "length": 0}),
    ("task add '  \t '", {"argument": "title", "value": "", "length": 0}),
    ("task edit 1 ' '", {"argument": "title", "value": "", "length": 0}),
    ("task update 1 --title ''", {"argument": "title", "value": "", "length": 0}),
    ("task add 'a\nb'", {"argument": "title", "value": "a␊b", "length": 3}),
    ("task add 'a\rb'", {"argument": "title", "value": "a␍b", "length": 3}),
    ("task add 'a\u2028b'", {"argument": "title", "value": "a<U+2028>b", "length": 3}),
    (
        f"task add {'é' * 1001}",
        {"argument": "title", "value": "é" * 59 + "…", "length": 1001, "limit": 1000},
    ),
    ("project add ''", {"argument": "name", "value": "", "length": 0}),
    ("project add 'a\nb'", {"argument": "name", "value": "a␊b", "length": 3}),
    (
        f"project add {'n' * 256}",
        {"argument": "name", "value": "n" * 59 + "…", "length": 256, "limit": 255},
    ),
    ("project edit p ' '", {"argument": "new_name", "value": "", "length": 0}),
    ("task add x --tag ''", {"argument": "tags", "value": '[""]'}),
    ("task add x --tag a,b", {"argument": "tags", "value": '["a,b"]'}),
    ("task add x --tag 'a\tb'", {"argument": "tags", "value": '["a\\tb"]'}),
    ("task list --tag ' '", {"argument": "tag", "value": '[""]'}),
    ("task add x --idempotency-key ''", {"argument": "idempotency_key", "value": "", "length": 0}),
    ("task list --assigned ''", {"argument": "assigned", "value": "", "length": 0}),
    ("task add x --agent human", {"argument": "agent", "value": "human"}),
    ("task add x --agent 'a\tb'", {"argument": "agent", "value": "a␉b", "length": 3}),
    ("task add x --agent 'a\x9bb'", {"argument": "agent", "value": "a<U+009B>b", "length": 3}),
    (
        f"task add x --agent {'a' * 129}",
        {"argument": "agent", "value": "a" * 59 + "…", "length": 129, "limit": 128},
    ),
    (
        f"task add x --idempotency-key {'k' * 256}",
        {"argument": "idempotency_key", "value": "k" * 59 + "…", "length": 256, "limit": 255},
    ),
    ("task update 1", {"allowed": ["title", "description", "status", "priority", "tags"]}),
    (
        "task update 1 --if-revision 1",
        {"allowed": ["title", "description", "status", "priority", "tags"]},
    ),
    ("task list --cursor 99", {"argument": "cursor", "value": 99}),
    ("task list --cursor -1", {"argument": "cursor", "value": -1}),
    ("task list --cursor 4", {"argument": "cursor", "value": 4}),
    ("completion tcsh", {}),
]


@pytest.mark.parametrize("line, details", DOMAIN, ids=[line[:40] for line, _ in DOMAIN])
def test_a_value_of_the_wrong_domain_is_invalid_and_named(
    shared: dict, line: str, details: dict
) -> None:
    error = fails(js(line, **shared), "invalid", 1, details)["error"]
    words = error["message"].casefold()
    for machine in ("^[", "pattern", "must have at", "found ", "minlength", "none", "/"):
        assert machine not in words, words


@pytest.mark.parametrize("tags", [["t" * 65], [f"t{n}" for n in range(33)]], ids=["long", "many"])
def test_too_many_or_too_long_tags_are_invalid(shared: dict, tags: list) -> None:
    flags = [word for tag in tags for word in ("--tag", tag)]
    result = run("task", "add", "x", *flags, "--json", **shared)
    assert fails(result, "invalid", 1)["error"]["details"]["argument"] == "tags"
    assert fails(
        run("task", "update", "1", "--tags", ",".join(tags), "--json", **shared), "invalid", 1
    )


@pytest.mark.parametrize("words, argument", [
    (["task", "add", "\udcff"], "title"), (["project", "add", "a\udcff"], "name"),
    (["task", "add", "x", "--description", "\udcff"], "description"),
    (["task", "add", "x", "--tag", "\udcff"], "tags"),
    (["task", "list", "--search", "\udcff"], "search"),
    (["task", "claim", "1", "--agent", "\udcff"], "agent"),
    (["task", "list", "--project", "\udcff"], "project"),
    (["project", "list", "--agent", "\udcff"], "agent"),
    (["config", "--project", "\udcff"], "project"),
], ids=str)
def test_bytes_that_are_no_utf8_are_invalid_wherever_they_stand(
    shared: dict, words: list, argument: str
) -> None:
    assert fails(run(*words, "--json", **shared), "invalid", 1, {"argument": argument})
    text = run(*words, **shared)
    assert text.code == 1 and "Unicode" in text.err


def test_bytes_that_are_no_utf8_from_a_real_shell_and_in_the_environment(shared: dict) -> None:
    result = spawn("task", "add", os.fsdecode(b"a\xff"), "--json", **shared)
    fails(result, "invalid", 1, {"argument": "title"})
    env = {**shared, "TAM_AGENT": os.fsdecode(b"\xff")}
    fails(spawn("project", "add", "new", "--json", **env), "invalid", 1, {"argument": "agent"})
    assert "new" not in js("project list", **shared).out
    fails(spawn("task", os.fsdecode(b"\xff"), "--json", **shared), "invalid", 2)


@pytest.mark.parametrize(
    "line",
    [
        "task add " + "t" * 1000,
        "task add " + "😀" * 1000,
        "project add " + "n" * 255,
        "task add x --priority 1",
        "task add x --priority 5",
        "task add x --agent " + "a" * 128,
        "task add x --idempotency-key " + "k" * 255,
        "task add x --tag " + "t" * 64,
        "task claim 1 --agent a --lease 5",
        "task claim 1 --agent a --lease 86400",
        "task add x " + " ".join(f"--tag t{n}" for n in range(32)),
        "task add '\u001b[31m'",
        "task list --limit 99999999999999999999",
        "task list --search ''",
        "task list --assigned nobody",
    ],
    ids=lambda line: line[:32],
)
def test_the_bounds_themselves_are_allowed(project: None, line: str) -> None:
    assert js(line).code == 0


# ---- missing project, missing agent, empty values

NEEDS_AGENT = ["task claim 1", "task heartbeat 3", "task release 3", "task next --claim",
               "task list --assigned me"]
NEEDS_PROJECT = ["task list", "task add x", "status", "task next", "task next --claim --agent a",
                 "history"]
BY_ID = ["task show {}", "task update {} --title x", "task edit {} x", "task start {}",
         "task claim {} --agent b", "task heartbeat {} --agent b", "task release {} --agent b",
         "task done {}", "task events {}", "task del {}"]


@pytest.mark.parametrize("line", NEEDS_AGENT)
def test_without_an_agent_id_it_is_missing_agent(shared: dict, line: str) -> None:
    fails(js(line, **shared), "missing_agent", 1, {})
    fails(js(line, TAM_AGENT="", **shared), "missing_agent", 1, {})
    fails(js(f"{line} --agent ''", **shared), "missing_agent", 1, {})
    fails(js(f"{line} --agent ''", TAM_AGENT="a", **shared), "missing_agent", 1, {})


@pytest.mark.parametrize("line", NEEDS_PROJECT)
def test_without_a_project_it_is_missing_project(line: str) -> None:
    fails(js(line), "missing_project", 1, {})
    fails(js(line, TAM_PROJECT=""), "missing_project", 1, {})


@pytest.mark.parametrize("line", NEEDS_PROJECT + [line.format(1) for line in BY_ID])
def test_an_empty_project_flag_is_missing_project_and_not_the_current_one(
    shared: dict, line: str
) -> None:
    fails(js(f"{line} --project ''", **shared), "missing_project", 1, {})
    fails(js(f"{line} --project ''", TAM_PROJECT="p", **shared), "missing_project", 1, {})


def test_an_empty_environment_variable_counts_as_unset(shared: dict) -> None:
    assert js("status", TAM_PROJECT="", **shared).data["project"] == "p"
    assert (
        js("task show 4", TAM_PROJECT="", TAM_AGENT="", **shared).data["task"]["project"] == "other"
    )
    assert js("task list --assigned me", TAM_AGENT="a", **shared).data["count"] == 1


@pytest.mark.parametrize("line", NEEDS_PROJECT + [line.format(1) for line in BY_ID])
def test_a_project_that_does_not_exist_is_not_found_by_flag_and_by_environment(
    shared: dict, line: str
) -> None:
    for name in ("nothing", "gone", "P"):
        fails(js(f"{line} --project {name}", **shared), "not_found", 3, {"project": name})
        fails(js(line, TAM_PROJECT=name, **shared), "not_found", 3, {"project": name})


def test_a_current_project_that_does_not_exist_is_not_found(project: None) -> None:
    opened = tam.Tam()
    opened.set_config(current_project="vanished")
    opened.close()
    for line in [*NEEDS_PROJECT, "project current"]:
        fails(js(line), "not_found", 3, {"project": "vanished"})
    assert js("task show 1").code == 0  # by id the current project is no one's scope


@pytest.mark.parametrize("id", [0, 99, -1, -99, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 10**30])
def test_an_id_that_does_not_exist_is_not_found_in_every_command(shared: dict, id: object) -> None:
    for line in BY_ID:
        fails(js(line.format(id), **shared), "not_found", 3, {"task_id": id})


@pytest.mark.parametrize("id", ["+99", "099", "-0", "9" * 5000])
def test_an_id_in_an_odd_spelling_is_an_integer_all_the_same(shared: dict, id: object) -> None:
    assert fails(js(f"task show {id}", **shared), "not_found", 3)
    assert js("task show +1", **shared).data["task"]["id"] == 1
    assert js("task show 001", **shared).data["task"]["id"] == 1


def test_p7_item_8_an_explicit_project_isolates_and_none_keeps_the_old_global_ids(
    shared: dict
) -> None:
    for line in BY_ID:
        details = {"task_id": 4, "project": "p"}
        fails(js(f"{line.format(4)} --project p", **shared), "not_found", 3, details)
        fails(js(line.format(4), TAM_PROJECT="p", **shared), "not_found", 3, details)
    assert js("task show 4 --project other", **shared).data["task"]["id"] == 4
    assert js("task show 4", **shared).data["task"]["project"] == "other"  # p is the current one
    assert js("task events 4", **shared).data["count"] == 1
    assert js("task update 4 --title four", **shared).data["task"]["title"] == "four"
    assert tasks_of("task list --project other", **shared) == ["four"]
    assert "four" not in tasks_of("task list", **shared)


def test_tasks_of_a_deleted_project_are_not_found_by_id(shared: dict) -> None:
    for line in BY_ID:
        fails(js(line.format(5), **shared), "not_found", 3, {"task_id": 5})


# ---- flags before, between and after the words

SPELLINGS = [
    "--json --project p --agent a task show 1",
    "--project=p --agent=a --json task show 1",
    "task --json --project p --agent a show 1",
    "task show --json --project p 1 --agent a",
    "task show 1 --project p --agent a --json",
    "--json task --project p show --agent a 1",
    "t --agent=a show 1 --json --project=p",
    "--project nothing task show 1 --json --project p --agent a",
]


@pytest.mark.parametrize("line", SPELLINGS)
def test_global_flags_may_stand_before_between_and_after_the_words(shared: dict, line: str) -> None:
    result = run(*shlex.split(line), **shared)
    assert result.json["meta"] == {"project": "p", "agent": "a"}
    assert result.data["task"]["id"] == 1


def test_the_default_command_of_a_group_takes_flags_too(shared: dict) -> None:
    expected = js("task list --status done", **shared).data
    assert run("task", "--status", "done", "--json", **shared).data == expected
    assert run("--json", "task", "--status", "done", **shared).data == expected
    assert run("--json", "project", **shared).data == js("project list", **shared).data


# ---- projects


def test_a_project_is_added_deleted_and_restored_with_its_tasks(project: None) -> None:
    fails(js("project add p"), "conflict", 4, {"project": "p"})
    assert js("project add ' q '").data["project"]["name"] == "q"
    before = js("task show 1").data
    assert js("project del p").data["project"]["name"] == "p"
    assert js("project current").data == {"project": None}
    fails(js("task show 1"), "not_found", 3, {"task_id": 1})
    fails(js("project del p"), "not_found", 3, {"project": "p"})
    restored = js("project add p").data
    assert restored["restored"] is True and restored["project"]["id"] == 1
    assert js("task show 1").data == before
    assert js("project add r").data["restored"] is False
    assert [one["name"] for one in js("project list").data] == ["p", "q", "r"]


def test_the_current_project_follows_a_new_name_and_only_its_own(project: None) -> None:
    js("project add q")
    assert js("project edit q q2").data["project"]["name"] == "q2"
    assert js("project current").data["project"]["name"] == "p"
    assert js("project edit p p2").data["project"] == js("project current").data["project"]
    assert js("task list").data["tasks"][0]["project"] == "p2"
    fails(js("project edit p2 q2"), "conflict", 4, {"project": "q2"})
    js("project del q2")
    fails(js("project edit p2 q2"), "conflict", 4, {"project": "q2"})
    assert js("project edit p2 p2").data["project"]["name"] == "p2"
    for line in ("project edit no x", "project use no", "project del no"):
        fails(js(line), "not_found", 3, {"project": "no"})
    assert js("project use p2 --project no").data["project"]["name"] == "p2"


# ---- leases


def test_a_claim_of_a_free_task_sets_it_in_progress_with_a_lease(project: None) -> None:
    task = js("task claim 1 --agent a --lease 60").data["task"]
    assert (task["status"], task["assigned_agent"], task["revision"]) == ("in-progress", "a", 2)
    assert (task["lease_expires_at"], task["lease_expired"]) == ("2027-01-15T08:01:00Z", False)
    assert events_of(1)[-1] == ("claimed", "a", "todo", "in-progress", {})


def test_a_lease_is_900_seconds_unless_it_is_said_otherwise(project: None) -> None:
    assert js("task claim 1 --agent a").data["task"]["lease_expires_at"] == "2027-01-15T08:15:00Z"


def test_a_claim_of_my_own_renews_it_and_is_logged_again(project: None, clock: Clock) -> None:
    js("task claim 1 --agent a")
    clock.now += 100
    task = js("task claim 1 --agent a").data["task"]
    assert (task["lease_expires_at"], task["revision"]) == ("2027-01-15T08:16:40Z", 3)
    assert events_of(1)[-1] == ("claimed", "a", "in-progress", "in-progress", {})


def test_a_lease_holds_until_its_last_second_and_then_others_may_claim(
    project: None, clock: Clock
) -> None:
    js("task claim 1 --agent a --lease 60")
    clock.now += 59
    fails(js("task claim 1 --agent b"), "conflict", 4)
    assert js("task show 1").data["task"]["lease_expired"] is False
    clock.now += 1
    assert js("task show 1").data["task"]["lease_expired"] is True
    task = js("task claim 1 --agent b").data["task"]
    assert (task["assigned_agent"], task["lease_expired"]) == ("b", False)
    assert events_of(1)[-1] == ("claimed", "b", "in-progress", "in-progress", {})


def test_force_takes_a_valid_lease_and_the_log_says_from_whom(project: None) -> None:
    js("task claim 1 --agent a")
    assert js("task claim 1 --agent b --force").data["task"]["assigned_agent"] == "b"
    assert events_of(1)[-1] == (
        "claimed", "b", "in-progress", "in-progress", {"force": True, "previous_agent": "a"}
    )
    fails(js("task heartbeat 1 --agent a"), "conflict", 4)
    js("task add two")
    js("task claim 2 --agent b --force")  # with nothing to override it is an ordinary claim
    assert events_of(2)[-1] == ("claimed", "b", "todo", "in-progress", {})


def test_a_done_task_can_be_claimed_renewed_or_finished_by_nobody(project: None) -> None:
    js("task done 1")
    for line in ("task claim 1 --agent a", "task claim 1 --agent a --force", "task done 1",
                 "task heartbeat 1 --agent a"):
        error = fails(js(line), "conflict", 4, {"task_id": 1, "status": "done"})["error"]
        assert error["message"] == "Task 'one' is already done."
    error = fails(js("task release 1 --agent a"), "conflict", 4)["error"]
    assert error["details"]["status"] == "done"


def test_heartbeat_renews_for_the_holder_also_after_the_end(project: None, clock: Clock) -> None:
    js("task claim 1 --agent a --lease 60")
    clock.now += 30
    task = js("task heartbeat 1 --agent a --lease 60").data["task"]
    assert (task["lease_expires_at"], task["revision"]) == ("2027-01-15T08:01:30Z", 3)
    assert events_of(1)[-1] == ("heartbeat", "a", "in-progress", "in-progress", {})
    clock.now += 1000
    assert js("task heartbeat 1 --agent a").data["task"]["lease_expired"] is False


def test_heartbeat_is_for_the_holder_alone(project: None, clock: Clock) -> None:
    fails(js("task heartbeat 1 --agent a"), "conflict", 4, {
        "task_id": 1, "assigned_agent": None, "lease_expires_at": None, "status": "todo",
    })
    js("task claim 1 --agent a --lease 60")
    fails(js("task heartbeat 1 --agent b"), "conflict", 4, {
        "task_id": 1, "assigned_agent": "a", "lease_expires_at": "2027-01-15T08:01:00Z",
        "status": "in-progress",
    })
    clock.now += 60
    fails(js("task heartbeat 1 --agent b"), "conflict", 4)
    js("task claim 1 --agent b")
    fails(js("task heartbeat 1 --agent a"), "conflict", 4)


def test_release_by_the_holder_makes_it_todo_also_after_the_end(
    project: None, clock: Clock
) -> None:
    js("task claim 1 --agent a")
    task = js("task release 1 --agent a").data["task"]
    assert (task["status"], task["assigned_agent"], task["lease_expires_at"]) == (
        "todo",
        None,
        None,
    )
    assert events_of(1)[-1] == ("released", "a", "in-progress", "todo", {})
    js("task claim 1 --agent a --lease 5")
    clock.now += 5
    assert js("task release 1 --agent a").data["task"]["status"] == "todo"


def test_release_by_another_needs_force(project: None) -> None:
    fails(js("task release 1 --agent a"), "conflict", 4, {
        "task_id": 1, "assigned_agent": None, "lease_expires_at": None, "status": "todo",
    })
    js("task claim 1 --agent a")
    details = fails(js("task release 1 --agent b"), "conflict", 4)["error"]["details"]
    assert details["assigned_agent"] == "a"
    assert js("task release 1 --agent b --force").data["task"]["assigned_agent"] is None
    assert events_of(1)[-1] == (
        "released", "b", "in-progress", "todo", {"force": True, "previous_agent": "a"}
    )
    js("task start 1")
    assert js("task release 1 --force --agent b").data["task"]["status"] == "todo"


def test_another_agents_valid_lease_keeps_every_write_away(project: None, clock: Clock) -> None:
    js("task claim 1 --agent a --lease 60")
    lease = {"task_id": 1, "assigned_agent": "a", "lease_expires_at": "2027-01-15T08:01:00Z"}
    for line in ("task update 1 --title x", "task update 1 --description x", "task done 1",
                 "task update 1 --status done", "task update 1 --tags x", "task edit 1 x",
                 "task update 1 --priority 1", "task update 1 --title one"):
        fails(js(f"{line} --agent b"), "conflict", 4, lease)
    assert len(events_of(1)) == 2
    assert js("task update 1 --title mine --agent a").data["task"]["title"] == "mine"
    assert js("task update 1 --title human").data["task"]["title"] == "human"
    clock.now += 60
    assert js("task update 1 --title late --agent b").data["task"]["title"] == "late"
    js("task claim 1 --agent a")
    assert js("task done 1").data["task"]["status"] == "done"  # a person may


def test_done_by_its_holder_ends_the_lease(project: None) -> None:
    js("task claim 1 --agent a")
    task = js("task done 1 --agent a").data["task"]
    assert (task["status"], task["assigned_agent"], task["lease_expires_at"]) == (
        "done",
        None,
        None,
    )
    assert events_of(1)[-1] == ("completed", "a", "in-progress", "done", {})


# ---- updates


def test_an_update_changes_the_given_fields_only(project: None) -> None:
    before = js("task add two --description d --priority 2 --tag a").data["task"]
    after = js("task update 2 --priority 1").data["task"]
    changed = {"priority": 1, "revision": 2, "updated": after["updated"]}
    assert after == {**before, **changed}
    after = js("task update 2 --title T --description D --status in-progress --tags x,y").data[
        "task"
    ]
    assert [after[key] for key in ("title", "description", "status", "tags", "revision")] == [
        "T", "D", "in-progress", ["x", "y"], 3
    ]
    assert events_of(2)[-1] == (
        "updated", "human", "todo", "in-progress",
        {"fields": ["title", "description", "status", "tags"]},
    )


def test_empty_tags_and_an_empty_description_clear(project: None) -> None:
    js("task add two --description d --tag a")
    task = js("task update 2 --tags '' --description ''").data["task"]
    assert (task["tags"], task["description"], task["revision"]) == ([], "", 2)


def test_tags_are_lower_case_trimmed_and_each_there_once(project: None) -> None:
    assert js("task add t --tag ' Bug ' --tag bug --tag ÉTÉ").data["task"]["tags"] == ["bug", "été"]
    assert js("task update 1 --tags 'B, a ,b,'").data["task"]["tags"] == ["b", "a"]


def test_a_status_of_todo_or_done_clears_the_lease_and_in_progress_keeps_it(project: None) -> None:
    js("task claim 1 --agent a")
    task = js("task update 1 --status in-progress --title t --agent a").data["task"]
    assert (task["assigned_agent"], task["lease_expires_at"]) == ("a", "2027-01-15T08:15:00Z")
    for status, event in (("todo", "updated"), ("done", "completed")):
        task = js(f"task update 1 --status {status} --agent a").data["task"]
        assert (task["assigned_agent"], task["lease_expires_at"]) == (None, None)
        assert events_of(1)[-1][0] == event
        js("task claim 1 --agent a")


def test_out_of_done_is_reopened(project: None) -> None:
    for status in ("todo", "in-progress"):
        js("task done 1")
        js(f"task update 1 --status {status}")
        assert events_of(1)[-1][:4] == ("reopened", "human", "done", status)
    js("task done 1")
    assert js("task start 1").data["task"]["status"] == "in-progress"
    assert events_of(1)[-1][0] == "reopened"
    fails(js("task start 1"), "conflict", 4, {"task_id": 1, "status": "in-progress"})


def test_an_update_that_changes_nothing_writes_nothing(project: None) -> None:
    js("task update 1 --tags a,b --description d")
    before, log = js("task show 1").data, events_of(1)
    for line in ("--title one", "--title ' one '", "--tags A,b", "--description d", "--priority 3",
                 "--status todo", "--title one --priority 3 --status todo"):
        assert js(f"task update 1 {line}").data["task"] == before["task"]
    assert js("task edit 1 one").data["task"] == before["task"]
    assert js("task show 1").data == before and events_of(1) == log


def test_a_revision_that_has_moved_on_is_a_conflict_with_both_numbers(project: None) -> None:
    js("task update 1 --title two")
    for line in (
        "task update 1 --title three",
        "task done 1",
        "task del 1",
        "task update 1 --title two",
    ):
        fails(
            js(f"{line} --if-revision 1"), "conflict", 4, {"task_id": 1, "expected": 1, "actual": 2}
        )
        fails(js(f"{line} --if-revision {10**25}"), "conflict", 4)
    assert js("task update 1 --title three --if-revision 2").data["task"]["revision"] == 3
    assert js("task done 1 --if-revision 3").data["task"]["revision"] == 4
    assert js("task del 1 --if-revision 4").data["task"]["revision"] == 5


def test_a_deleted_task_is_answered_as_it_was_and_gone(project: None) -> None:
    before = js("task show 1").data["task"]
    deleted = js("task del 1").data["task"]
    changed = {"revision": 2, "updated": deleted["updated"]}
    assert deleted == {**before, **changed}
    fails(js("task show 1"), "not_found", 3, {"task_id": 1})
    fails(js("task del 1"), "not_found", 3, {"task_id": 1})
    event = js("history").data["events"][-1]
    assert (event["event"], event["task_id"], event["from_status"]) == ("deleted", 1, "todo")
    assert js("task list").data["total"] == 0


# ---- descriptions


def test_a_description_comes_from_standard_input_or_a_file_byte_for_byte(
    project: None, tmp_path: Path
) -> None:
    text = "`ls` \"$HOME\" 'x' \\n\n\n日本語 😀\r\n\ttab\n"
    task = run("task", "add", "x", "--description", "-", "--json", stdin=text.encode()).data["task"]
    assert task["description"] == text
    path = tmp_path / "notes ü.md"
    path.write_bytes(text.encode())
    updated = run("task", "update", "1", "--description-file", path, "--json").data["task"]
    assert updated["description"] == text
    assert (
        run("task", "update", "1", "--description", "-", "--json").data["task"]["description"] == ""
    )
    assert (
        spawn("task", "add", "y", "--description", "-", "--json", stdin=text.encode()).data["task"][
            "description"
        ]
        == text
    )


@pytest.mark.parametrize(
    "text, size",
    [("x" * 65537, 65537), ("é" * 32769, 65538), ("語" * 70_000, 210_000)],
    ids=["ASCII", "é", "long"],
)
def test_an_overlong_description_is_refused_with_its_length_and_the_limit(
    shared: dict, tmp_path: Path, text: str, size: int
) -> None:
    details = {"argument": "description", "length": size, "limit": 65536}
    path = tmp_path / "long"
    path.write_text(text, encoding="utf-8")
    for words in (["--description-file", path], ["--description", "-"]):
        result = run("task", "add", "x", *words, "--json", stdin=text.encode(), **shared)
        message = fails(result, "invalid", 1, details)["error"]["message"]
        assert f"{size:,}" in message and "65,536" in message
    fails(
        run("task", "update", "1", "--description", text, "--json", **shared), "invalid", 1, details
    )


def test_a_description_of_exactly_the_limit_is_kept_whole(project: None) -> None:
    for text in ("x" * 65536, "é" * 32768):
        result = run("task", "add", "x", "--description", "-", "--json", stdin=text.encode())
        assert result.data["task"]["description"] == text


def test_a_description_without_end_is_not_read_to_its_end(shared: dict) -> None:
    result = run("task", "add", "x", "--description-file", "/dev/zero", "--json", **shared)
    details = fails(result, "invalid", 1)["error"]["details"]
    assert details["limit"] == 65536 and details["length"] > 65536


def test_a_description_that_cannot_be_read_is_invalid(shared: dict, tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path, ""):
        result = run("task", "add", "x", "--description-file", path, "--json", **shared)
        fails(result, "invalid", 1, {"argument": "description"})
    result = run("task", "add", "x", "--description", "-", "--json", stdin=b"ab\xff", **shared)
    error = fails(result, "invalid", 1, {"argument": "description"})["error"]
    assert "standard input" in error["message"] and "byte 2" in error["message"]
    (tmp_path / "raw").write_bytes("é".encode("latin-1"))
    result = run("task", "add", "x", "--description-file", tmp_path / "raw", "--json", **shared)
    fails(result, "invalid", 1, {"argument": "description"})


# ---- idempotency


def test_p7_item_5_a_key_makes_one_task_per_project_and_is_free_after_a_deletion(
    project: None
) -> None:
    js("project add other")
    first = js("task add Fix --idempotency-key k").data
    again = js("task add Different --priority 1 --idempotency-key k").data
    assert first["deduplicated"] is False and again["deduplicated"] is True
    assert again["task"] == first["task"]
    elsewhere = js("task add Fix --idempotency-key k --project other").data
    assert elsewhere["deduplicated"] is False and elsewhere["task"]["id"] != first["task"]["id"]
    assert js("task add Fix --idempotency-key K").data["deduplicated"] is False
    js(f"task del {first['task']['id']}")
    anew = js("task add Fix --idempotency-key k").data
    assert anew["deduplicated"] is False and anew["task"]["id"] > elsewhere["task"]["id"]
    assert js("task add Fix --idempotency-key k").data["task"] == anew["task"]
    assert [event[0] for event in events_of(anew["task"]["id"])] == ["created"]


# ---- lists


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """The environment of a home whose project has tasks of every kind."""
    env = {"TAM_HOME": str(tmp_path_factory.mktemp("many") / ".tam"), "TAM_PROJECT": "p"}
    for line in (
        "project add p",
        "project add q",
        "task add decoy --project q --tag bug",
        "task add alpha --priority 1 --tag bug --tag web",
        "task add beta --priority 2 --tag bug",
        "task add gamma --priority 1 --tag web",
        "task add 'École 100%' --tag bugs",
        "task add 'under_score' --description 'ÉTÉ à Paris'",
        "task add ΣΊΣΥΦΟΣ --description Straße",
        "task add '日本語タイトル'",
        "task claim 2 --agent a",
        "task claim 3 --agent b",
        "task done 4",
        "task add gone --tag bug",
        "task del 9",
    ):
        assert js(line, **env).code == 0, line
    return env


FILTERS = [
    ("", ["日本語タイトル", "ΣΊΣΥΦΟΣ", "under_score", "École 100%", "gamma", "beta", "alpha"]),
    ("--status todo", ["日本語タイトル", "ΣΊΣΥΦΟΣ", "under_score", "École 100%"]),
    ("--status in-progress", ["beta", "alpha"]),
    ("--status done", ["gamma"]),
    ("--priority 1", ["gamma", "alpha"]),
    ("--priority 5", []),
    ("--tag bug", ["beta", "alpha"]),
    ("--tag BUG --tag ' web '", ["alpha"]),
    ("--tag bugs", ["École 100%"]),
    ("--tag bu", []),
    ("--tag b_g", []),
    ("--tag %", []),
    ("--assigned a", ["alpha"]),
    ("--assigned me --agent b", ["beta"]),
    ("--assigned A", []),
    ("--assigned unassigned", ["日本語タイトル", "ΣΊΣΥΦΟΣ", "under_score", "École 100%", "gamma"]),
    ("--priority 1 --status done", ["gamma"]),
    ("--priority 1 --status todo", []),
    ("--tag web --assigned unassigned", ["gamma"]),
    ("--status in-progress --priority 2 --tag bug", ["beta"]),
    ("--search ALPHA", ["alpha"]),
    ("--search école", ["École 100%"]),
    ("--search ECOLE", []),
    ("--search 'E\u0301COLE'", ["École 100%"]),
    ("--search été", ["under_score"]),
    ("--search %", ["École 100%"]),
    ("--search _", ["under_score"]),
    ("--search '100%'", ["École 100%"]),
    ("--search STRASSE", ["ΣΊΣΥΦΟΣ"]),
    ("--search σίσυφος", ["ΣΊΣΥΦΟΣ"]),
    ("--search 本語", ["日本語タイトル"]),
    ("--search paris --status todo", ["under_score"]),
    ("--search paris --status done", []),
    ('--search "a\' OR 1=1"', []),
    (
        "--search ''",
        ["日本語タイトル", "ΣΊΣΥΦΟΣ", "under_score", "École 100%", "gamma", "beta", "alpha"],
    ),
    ("--limit 2", ["日本語タイトル", "ΣΊΣΥΦΟΣ"]),
    ("--tag bug --limit 1", ["beta"]),
    ("--project q", ["decoy"]),
    ("--search mma --tag web --priority 1 --status done", ["gamma"]),
]


@pytest.mark.parametrize("flags, titles", FILTERS, ids=[flags or "all" for flags, _ in FILTERS])
def test_filters_alone_and_combined(many: dict, flags: str, titles: list) -> None:
    data = js(f"task list {flags}", **many).data
    assert [task["title"] for task in data["tasks"]] == titles
    assert data["count"] == len(titles)
    assert data["truncated"] is (data["total"] > data["count"])
    assert data["truncated"] is ("--limit" in flags)


@pytest.mark.parametrize("limit, used", [
    (0, 1), (-5, 1), (1, 1), (1000, 1000), (1001, 1000), (10**30, 1000), (-(10**30), 1), (100, 100),
])
def test_a_limit_is_clamped_and_never_an_error(many: dict, limit: int, used: int) -> None:
    for line in ("task list", "history", "task events 2"):
        data = js(f"{line} --limit {limit}", **many).data
        assert data["limit"] == used and data["count"] == min(used, data["total"])


def test_the_default_limit_is_100(many: dict) -> None:
    for line in ("task list", "history", "task events 2"):
        assert js(line, **many).data["limit"] == 100


@pytest.mark.parametrize(
    "flags", ["", "--status todo", "--tag bug", "--search a", "--assigned unassigned"]
)
def test_cursors_page_through_the_whole_list_once(many: dict, flags: str) -> None:
    whole, total = tasks_of(f"task list {flags}", **many), None
    for limit in (1, 2, 3):
        found, cursor, pages = [], "", 0
        while cursor is not None:
            after = f"--cursor {cursor}" if cursor else ""
            data = js(f"task list {flags} --limit {limit} {after}", **many).data
            found += [task["title"] for task in data["tasks"]]
            assert (data["next_cursor"] is None) is not data["truncated"]
            assert total in (None, data["total"])
            cursor, total, pages = data["next_cursor"], data["total"], pages + 1
        assert found == whole and total == len(whole) and pages == -(-len(whole) // limit)


def test_a_list_that_is_whole_is_not_counted_again(
    many: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    fold = tam.fold
    monkeypatch.setattr(tam, "fold", lambda text: looks.append(text) or fold(text))
    data = js("task list --search zzz", **many).data
    total = js("task list", **many).data["total"]
    assert data["total"] == 0 and len(looks) <= 1 + 2 * total  # the word; titles and descriptions
    assert js("task list --limit 1 --search zzz", **many).data["total"] == 0
    whole, second = (js(f"task list --search e {more}", **many).data for more in ("", "--limit 1"))
    assert whole["total"] == whole["count"] == second["total"] > 1


def test_a_total_ends_somewhere_and_says_so(
    many: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = js("task list", **many).data["total"]
    monkeypatch.setattr(tam, "TOTAL_MAX", 3)

    def total(line: str) -> tuple:
        data = js(line, **many).data
        return data["total"], data["total_is_exact"]

    for cursor in ("", " --cursor 3"):
        assert total(f"task list --limit 1{cursor}") == (whole, True)  # the counters know
        assert total(f"task list --limit 1 --assigned unassigned{cursor}") == (3, False)
        assert total(f"task list --limit 1 --search _ --priority 3{cursor}") == (1, True)
        assert total(f"task list --limit 1 --tag none{cursor}") == (0, True)
    assert total("task list --status todo --limit 1")[1] is True
    assert total("history --limit 1") == total("history --since 0 --limit 2") == (3, False)
    assert total("task events 2 --limit 1") == (2, True)


def test_a_cursor_survives_the_deletion_of_its_task_and_new_tasks(project: None) -> None:
    for number in range(4):
        js(f"task add t{number}")
    page = js("task list --limit 2").data
    assert [task["title"] for task in page["tasks"]] == ["t3", "t2"]
    js(f"task del {page['next_cursor']}")
    js("task add newest")
    assert tasks_of(f"task list --limit 2 --cursor {page['next_cursor']}") == ["t1", "t0"]


# ---- next and status


def test_p7_item_6_filters_combine_and_next_goes_by_priority_then_age(
    project: None, clock: Clock
) -> None:
    js("task done 1")
    for title, priority in (("old", 3), ("urgent", 1), ("older urgent", 1), ("low", 5)):
        js(f"task add '{title}' --priority {priority} --tag x")
        clock.now += 1
    assert tasks_of("task list --priority 1 --tag x --status todo --search URGENT --limit 1") == [
        "older urgent"
    ]
    order = []
    while (task := js("task next --claim --agent a").data["task"]) is not None:
        assert task == js(f"task show {task['id']}").data["task"]
        order.append(task["title"])
    assert order == ["urgent", "older urgent", "old", "low"]  # the done one is never given out
    assert js("task next --agent a").data == {"task": None}  # the caller's own are skipped, too
    clock.now += 900
    assert js("task next").data["task"]["title"] == "urgent"  # its lease has run out
    assert js("task next --claim --agent b").data["task"]["assigned_agent"] == "b"


def test_next_without_a_claim_changes_nothing(project: None) -> None:
    before = js("task show 1").data
    assert js("task next --agent a").data["task"] == before["task"]
    assert js("task show 1").data == before


def test_next_breaks_a_tie_by_id_and_gives_a_started_task_without_lease(project: None) -> None:
    js("task add two")
    js("task start 1")
    assert js("task next").data["task"]["id"] == 1


def test_status_counts_live_tasks_leases_and_the_first_five_candidates(
    project: None, clock: Clock
) -> None:
    for number in range(8):
        js(f"task add t{number} --priority {1 + number % 5}")
    js("task done 2")
    js("task del 3")
    js("task claim 4 --agent a --lease 60")
    js("task claim 5 --agent a --lease 3600")
    js("task start 6")  # in progress, and nobody's
    clock.now += 60
    data = js("status").data
    assert data["project"] == "p"
    assert data["counts"] == {"todo": 4, "in_progress": 3, "done": 1}
    assert (data["leased"], data["unassigned"]) == (1, 5)
    assert [task["id"] for task in data["next"]] == [7, 8, 1, 4, 9]


# ---- events


def test_p7_item_7_the_log_has_every_event_in_order_with_its_actor_and_statuses(
    project: None, clock: Clock
) -> None:
    for line in ("update 1 --title two", "claim 1 --agent a", "heartbeat 1 --agent a",
                 "release 1 --agent a", "claim 1 --agent b", "done 1 --agent b",
                 "update 1 --status todo", "start 1", "del 1"):
        assert js(f"task {line}").code == 0
    events = js("history").data["events"]
    assert [(e["event"], e["actor"], e["from_status"], e["to_status"]) for e in events] == [
        ("created", "human", None, "todo"),
        ("updated", "human", "todo", "todo"),
        ("claimed", "a", "todo", "in-progress"),
        ("heartbeat", "a", "in-progress", "in-progress"),
        ("released", "a", "in-progress", "todo"),
        ("claimed", "b", "todo", "in-progress"),
        ("completed", "b", "in-progress", "done"),
        ("reopened", "human", "done", "todo"),
        ("updated", "human", "todo", "in-progress"),
        ("deleted", "human", "in-progress", "in-progress"),
    ]
    assert [event["id"] for event in events] == sorted({event["id"] for event in events})
    assert {event["created"] for event in events} == {"2027-01-15T08:00:00Z"}


def test_every_event_counts_the_revision_up_by_one(project: None) -> None:
    for line in (
        "claim 1 --agent a",
        "heartbeat 1 --agent a",
        "claim 1 --agent a",
        "done 1 --agent a",
    ):
        before = js("task show 1").data
        after = js(f"task {line}").data["task"]
        assert after["revision"] == before["task"]["revision"] + 1 == len(before["events"]) + 1


def test_events_are_oldest_first_the_newest_kept_and_since_pages_forward(project: None) -> None:
    js("task claim 1 --agent a")
    js("task add other")  # its event stands between
    for _ in range(3):
        js("task heartbeat 1 --agent a")
    ids = [event["id"] for event in js("task events 1").data["events"]]
    assert ids == sorted(ids) and len(ids) == 5

    def page(flags: str) -> tuple:
        data = js(f"task events 1 {flags}").data
        assert data["count"] == len(data["events"]) and data["total"] == 5
        return (
            [ids.index(event["id"]) for event in data["events"]],
            data["truncated"],
            data["next_cursor"],
        )

    assert page("") == ([0, 1, 2, 3, 4], False, ids[4])
    assert page("--limit 2") == ([3, 4], True, ids[4])
    assert page("--since 0 --limit 2") == ([0, 1], True, ids[1])
    assert page(f"--since {ids[1]} --limit 2") == ([2, 3], True, ids[3])
    assert page(f"--cursor {ids[3]} --limit 2") == ([4], False, ids[4])
    assert page(f"--since {ids[4]}") == ([], False, ids[4])
    assert page(f"--since {10**30}") == ([], False, 10**30)
    assert page("--since -7")[0] == [0, 1, 2, 3, 4]
    assert len(js("task show 1").data["events"]) == 5


def test_show_includes_the_newest_hundred_events(project: None) -> None:
    js("task claim 1 --agent a")
    opened = tam.Tam(agent="a")
    for _ in range(103):
        opened.call("task.heartbeat", {"id": 1})
    opened.close()
    shown, log = js("task show 1").data["events"], js("task events 1 --limit 1000").data["events"]
    assert len(shown) == 100 and len(log) == 105 and shown == log[-100:]


# ---- failures at start-up


def broken_toml(home: Path) -> None:
    (home / "tam.config.toml").write_text("db_file = [")


def config_of_wrong_type(home: Path) -> None:
    (home / "tam.config.toml").write_text("theme = 5\n")


def config_not_utf8(home: Path) -> None:
    (home / "tam.config.toml").write_bytes(b'theme = "\xff"\n')


def config_a_directory(home: Path) -> None:
    (home / "tam.config.toml").mkdir()


def database_a_directory(home: Path) -> None:
    (home / "tam.db3").mkdir()


def database_no_sqlite(home: Path) -> None:
    (home / "tam.db3").write_bytes(b"This is a letter, not a database.\n" * 100)


def database_of_a_newer_tam(home: Path) -> None:
    import sqlite3

    db = sqlite3.connect(home / "tam.db3")
    db.execute("PRAGMA user_version = 99")
    db.close()


@pytest.mark.parametrize("breaks", [
    broken_toml, config_of_wrong_type, config_not_utf8, config_a_directory, database_a_directory,
    database_no_sqlite, database_of_a_newer_tam,
], ids=lambda one: one.__name__)
@pytest.mark.parametrize(
    "line", ["task list --project p", "task add x --project p", "task claim 1 --agent a"]
)
def test_a_failure_at_start_is_an_envelope_of_the_command_startup(
    scratch_home: Path, breaks: object, line: str
) -> None:
    scratch_home.mkdir()
    breaks(scratch_home)
    envelope = fails(js(line), "internal", 1)
    assert envelope["command"] == "startup"
    assert str(scratch_home) in envelope["error"]["message"]
    people = run(*shlex.split(line))
    assert people.code == 1 and people.err.startswith("ERROR ") and people.err.count("\n") == 1
    assert "Traceback" not in people.err


def test_a_file_in_the_place_of_the_home_is_a_failure_at_start(scratch_home: Path) -> None:
    scratch_home.write_text("")
    assert fails(js("project list"), "internal", 1)["command"] == "startup"


def test_a_real_process_keeps_to_its_streams_and_codes(project: None) -> None:
    listed = spawn("task", "list", "--json")
    assert listed.code == 0 and listed.err == "" and json.loads(listed.out)["ok"] is True
    for words, code in (
        (["task", "show", "9"], 3),
        (["task", "show", "x"], 2),
        (["task", "add", ""], 1),
    ):
        fails(spawn(*words, "--json"), "not_found" if code == 3 else "invalid", code)
