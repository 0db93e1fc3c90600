"""What a tool's answer looks like: the door's leniency, and the budget of characters."""
from __future__ import annotations

import json

import pytest

import tam
import tam_mcp
from mcp_support import closing  # noqa: F401 (used by every test)
from mcp_support import data_of, make_project, tool

LIST, GET = tam.OPERATIONS["task.list"], tam.OPERATIONS["task.show"]
NEXT, CREATE = tam.OPERATIONS["task.next"], tam.OPERATIONS["task.add"]
BUDGET = tam_mcp.RESULT_BUDGET
#: The longest description that there can be.
LONG = tam.DESCRIPTION_MAX


# ---- leniency ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("operation", "raw", "kept", "ignored"), [
    (LIST, None, {}, []),
    (LIST, "", {}, []),
    (LIST, "null", {}, []),
    (LIST, '{"limit": "5"}', {"limit": 5}, []),
    (LIST, {"limit": None, "status": None}, {}, []),
    (LIST, {"project": "", "agent": "", "search": ""}, {"search": ""}, []),
    (GET, {"id": None}, {"id": None}, []),
    (GET, {"id": "5"}, {"id": 5}, []),
    (GET, {"id": " -5\n"}, {"id": -5}, []),
    (GET, {"id": "+5"}, {"id": 5}, []),
    (GET, {"id": "99999999999999999999"}, {"id": 99999999999999999999}, []),
    (GET, {"id": "9" * 5000}, {"id": "9" * 5000}, []),
    (GET, {"id": "٥"}, {"id": "٥"}, []),
    (GET, {"id": "5.0"}, {"id": "5.0"}, []),
    (GET, {"id": ""}, {"id": ""}, []),
    (GET, {"id": 5.0}, {"id": 5}, []),
    (GET, {"id": 1.5}, {"id": 1.5}, []),
    (GET, {"id": True}, {"id": True}, []),
    (NEXT, {"claim": "true"}, {"claim": True}, []),
    (NEXT, {"claim": " False "}, {"claim": False}, []),
    (NEXT, {"claim": "yes"}, {"claim": "yes"}, []),
    (NEXT, {"claim": 1}, {"claim": 1}, []),
    (CREATE, {"tags": "a,b"}, {"tags": ["a", "b"]}, []),
    (CREATE, {"tags": " a , ,b "}, {"tags": ["a", "b"]}, []),
    (CREATE, {"tags": ""}, {"tags": []}, []),
    (CREATE, {"tags": "[]"}, {"tags": []}, []),
    (CREATE, {"tags": ' ["a"]'}, {"tags": ["a"]}, []),
    (CREATE, {"tags": '["a"'}, {"tags": '["a"'}, []),
    (CREATE, {"tags": ["a"]}, {"tags": ["a"]}, []),
    (CREATE, {"tags": {"a": 1}}, {"tags": {"a": 1}}, []),
    (CREATE, {"title": "5", "description": "null"}, {"title": "5", "description": "null"}, []),
    (CREATE, {"title": 5}, {"title": 5}, []),
    (LIST, {"tasks": 1, "limit": 2, "_x": None}, {"limit": 2}, ["tasks", "_x"]),
])
def test_arguments_are_put_right(
    operation: tam.Operation, raw: object, kept: dict, ignored: list[str]
) -> None:
    seen = tam_mcp.lenient(operation, raw)
    assert seen == (kept, ignored)
    assert [type(value) for value in seen[0].values()] == [type(value) for value in kept.values()]


def test_an_empty_agent_makes_nobody_a_person() -> None:
    make_project(tasks=1).call("task.claim", {"id": 1, "agent": "agent-b"})
    server = tam_mcp.Server(tam.Tam(project="p", agent="agent-a"))
    wrong = tool("tam_task_update", {"id": 1, "agent": "", "project": "", "title": "mine"})
    assert data_of(tam_mcp.handle(server, wrong))["error"]["code"] == "conflict"


@pytest.mark.parametrize(
    "raw", [[], [1], 5, True, "[]", "5", "limit=5", '"x"', '{"limit":', "\ud800"]
)
def test_arguments_that_are_no_object_are_refused(raw: object) -> None:
    with pytest.raises(tam.Invalid, match="arguments"):
        tam_mcp.lenient(LIST, raw)


def test_every_type_of_the_published_schemas_has_a_reader() -> None:
    types = {
        schema["type"] for operation in tam_mcp.TOOLS.values()
        for schema in operation.properties.values()
    }
    assert types == set(tam_mcp.READERS)


def test_endless_undeclared_arguments_do_not_swell_the_answer() -> None:
    server = tam_mcp.Server(make_project())
    names = {f"{number}" + "x" * 1000: number for number in range(1000)}
    data = data_of(tam_mcp.handle(server, tool("tam_status", names)))
    assert len(data["ignored_arguments"]) == tam_mcp.IGNORED_NAMED
    assert max(map(len, data["ignored_arguments"])) == tam_mcp.NAME_SHOWN


# ---- errors --------------------------------------------------------------------------------------


@pytest.fixture
def server() -> tam_mcp.Server:
    """A server on a project with one task, which agent-a holds."""
    opened = make_project(tasks=1)
    opened.call("task.claim", {"id": 1, "agent": "agent-a"})
    return tam_mcp.Server(opened)


def call(server: tam_mcp.Server, name: str, **arguments: object) -> tuple[dict, bool, int]:
    """The data of a call, whether it is an error, and the characters of its text."""
    result = tam_mcp.handle(server, tool(name, arguments))["result"]
    text = result["content"][0]["text"]
    return json.loads(text), result["isError"], len(text)


@pytest.mark.parametrize(("name", "arguments", "code", "step"), [
    ("tam_task_claim", {"id": 1, "agent": "b"}, "conflict", "tam_task_next"),
    ("tam_task_complete", {"id": 1, "agent": "b"}, "conflict", "tam_task_get"),
    ("tam_task_update", {"id": 1, "title": "x", "if_revision": 9}, "conflict", "tam_task_get"),
    ("tam_task_get", {"id": 9}, "not_found", "tam_task_list"),
    ("tam_status", {"project": "q"}, "not_found", "tam_project_list"),
    ("tam_task_claim", {"id": 1}, "missing_agent", "name of your own"),
    ("tam_task_create", {"title": ""}, "invalid", "Mend"),
    ("tam_task_update", {"id": 1}, "invalid", "Mend"),
])
def test_error_reads_as_one_and_says_what_to_do(
    server: tam_mcp.Server, name: str, arguments: dict, code: str, step: str
) -> None:
    data, failed, _size = call(server, name, **arguments)
    assert failed
    assert list(data) == ["error"]
    assert list(data["error"]) == ["code", "message", "details"]
    assert data["error"]["code"] == code
    assert step in data["error"]["message"].split(". ", 1)[1]


def test_missing_project_says_where_the_names_are(server: tam_mcp.Server) -> None:
    server.tam.set_config(current_project=None)
    data, failed, _size = call(server, "tam_status")
    assert (failed, data["error"]["code"]) == (True, "missing_project")
    assert "tam_project_list" in data["error"]["message"]


def test_every_error_code_has_a_next_step() -> None:
    def below(kind: type) -> set[str]:
        return {kind.code}.union(*map(below, kind.__subclasses__()))

    assert below(tam.TamError) == set(tam_mcp.NEXT_STEP)


def test_busy_is_retryable_and_says_so(server: tam_mcp.Server) -> None:
    server.tam.call = _raises(tam.Busy("the database is busy"))
    data, failed, _size = call(server, "tam_status")
    assert failed
    assert data["error"]["details"] == {"retryable": True}
    assert data["error"]["message"].endswith(tam_mcp.RETRY_STEP)


def test_error_about_a_long_text_stays_within_the_budget(server: tam_mcp.Server) -> None:
    server.tam.call = _raises(tam.Invalid("x" * 50_000, value="y" * 100))
    data, failed, size = call(server, "tam_status")
    assert failed and size <= BUDGET
    assert data["error"]["message_length"] > 50_000
    assert data["truncated"] is True


def test_lone_surrogate_in_stored_text_is_replaced(server: tam_mcp.Server) -> None:
    server.tam.call = lambda name, arguments: {"task": {"title": "a\ud800b"}}
    line = tam_mcp.answer(server, json.dumps(tool("tam_task_get", {"id": 1})).encode())
    assert data_of(json.loads(line)) == {"task": {"title": "a?b"}}


def _raises(error: Exception) -> object:
    def fail(name: str, arguments: dict) -> object:
        raise error

    return fail


# ---- budget --------------------------------------------------------------------------------------


def add(server: tam_mcp.Server, count: int, **fields: object) -> None:
    for number in range(count):
        server.tam.call("task.add", {"title": f"t{number}", **fields})


def test_short_answers_are_left_alone(server: tam_mcp.Server) -> None:
    data, _failed, _size = call(server, "tam_task_list")
    assert data == server.tam.call("task.list", {})


def test_listed_descriptions_are_cut_and_measured(server: tam_mcp.Server) -> None:
    add(server, 1, description="é" * 201)
    add(server, 1, description="é" * 200)
    for name, key in (("tam_task_list", "tasks"), ("tam_status", "next")):
        data, _failed, _size = call(server, name)
        by_title = {len(task["description"]): task for task in data[key]}
        assert set(by_title) <= {0, 200}
        lengths = [task.get("description_length") for task in data[key]]
        assert lengths.count(201) == 1 and lengths.count(200) == 0


def test_description_length_stands_beside_the_description(server: tam_mcp.Server) -> None:
    add(server, 1, description="x" * 500)
    task = call(server, "tam_task_list")[0]["tasks"][0]
    keys = list(task)
    assert keys[keys.index("description") + 1] == "description_length"
    assert len(call(server, "tam_task_get", id=task["id"])[0]["task"]["description"]) == 500


@pytest.mark.parametrize("size", [0, 150, 5_000])
def test_pages_of_a_long_list_are_whole_and_lose_nothing(server: tam_mcp.Server, size: int) -> None:
    add(server, 120, description='"' * size)
    seen: list[int] = []
    cursor = None
    while True:
        data, _failed, length = call(server, "tam_task_list", cursor=cursor, limit=1000)
        assert length <= BUDGET
        assert data["count"] == len(data["tasks"]) > 0
        assert data["total"] == 121
        seen += [task["id"] for task in data["tasks"]]
        assert data["truncated"] is (data["next_cursor"] is not None)
        if data["next_cursor"] is None:
            break
        cursor = data["next_cursor"]
    assert seen == list(range(121, 0, -1))


def test_a_page_uses_most_of_the_budget(server: tam_mcp.Server) -> None:
    add(server, 120)
    assert call(server, "tam_task_list")[2] > BUDGET * 0.85


@pytest.mark.parametrize("since", [None, 0])
def test_events_keep_the_newest_or_go_forward(server: tam_mcp.Server, since: int | None) -> None:
    for _ in range(150):
        server.tam.call("task.heartbeat", {"id": 1, "agent": "agent-a"})
    data, _failed, size = call(server, "tam_task_events", id=1, since=since, limit=1000)
    ids = [event["id"] for event in data["events"]]
    assert size <= BUDGET and data["truncated"] is True
    assert (data["total"], data["total_is_exact"]) == (152, True)
    assert data["count"] == len(ids) and data["next_cursor"] == ids[-1]
    assert ids == (list(range(1, len(ids) + 1)) if since == 0 else list(range(153 - len(ids), 153)))


def test_all_events_can_be_read_forward(server: tam_mcp.Server) -> None:
    for _ in range(150):
        server.tam.call("task.heartbeat", {"id": 1, "agent": "agent-a"})
    seen = [0]
    while (page := call(server, "tam_task_events", id=1, since=seen[-1])[0])["count"]:
        seen += [event["id"] for event in page["events"]]
    assert seen == list(range(153))


def test_get_drops_old_events_before_it_cuts_the_description(server: tam_mcp.Server) -> None:
    description = "d" * 5_000
    server.tam.call("task.update", {"id": 1, "description": description, "agent": "agent-a"})
    for _ in range(120):
        server.tam.call("task.heartbeat", {"id": 1, "agent": "agent-a"})
    data, _failed, size = call(server, "tam_task_get", id=1)
    assert size <= BUDGET
    assert data["task"]["description"] == description
    assert data["truncated"] is True
    assert (data["total"], data["total_is_exact"]) == (100, False)  # no answer has older ones
    assert 0 < len(data["events"]) < 100
    assert data["events"][-1]["event"] == "heartbeat"


@pytest.mark.parametrize(
    "text", ["x" * LONG, "é" * (LONG // 2), "\n" * LONG, "\x01" * LONG, '"' * LONG]
)
def test_get_cuts_an_endless_description_last_and_says_so(
    server: tam_mcp.Server, text: str
) -> None:
    server.tam.call("task.update", {"id": 1, "description": text, "agent": "agent-a"})
    data, _failed, size = call(server, "tam_task_get", id=1)
    assert size <= BUDGET
    assert data["task"]["description_length"] == len(text)
    assert text.startswith(data["task"]["description"])
    assert data["truncated"] is True and "description" in data["note"]
    read, calls = data["task"]["description"], 1
    while "next_offset" in data:
        data, _failed, size = call(server, "tam_task_get", id=1, offset=data["next_offset"])
        assert size <= BUDGET and data["task"]["description_offset"] == len(read)
        read += data["task"]["description"]
        calls += 1
    assert read == text and calls <= 7 * LONG // BUDGET + 2


@pytest.mark.parametrize("offset, rest", [(0, "abcé"), (2, "cé"), (4, ""), (9, ""), (-3, "abcé")])
def test_an_offset_skips_characters(server: tam_mcp.Server, offset: int, rest: str) -> None:
    server.tam.call("task.update", {"id": 1, "description": "abcé", "agent": "agent-a"})
    data, _failed, _size = call(server, "tam_task_get", id=1, offset=offset)
    assert data["task"]["description"] == rest and "next_offset" not in data


@pytest.mark.parametrize("name", ["tam_task_claim", "tam_task_heartbeat", "tam_task_complete"])
def test_every_answer_with_a_task_stays_within_the_budget(
    server: tam_mcp.Server, name: str
) -> None:
    server.tam.call("task.update", {"id": 1, "description": "x" * LONG, "agent": "agent-a"})
    data, failed, size = call(server, name, id=1, agent="agent-a")
    assert not failed and size <= BUDGET
    assert data["task"]["description_length"] == LONG


def test_long_fields_of_a_whole_status_fit(server: tam_mcp.Server) -> None:
    tags = [f"{number:02}" + "é" * 62 for number in range(32)]
    add(server, 6, description='"' * 1000, tags=tags)
    data, _failed, size = call(server, "tam_status")
    assert size <= BUDGET
    assert data["truncated"] is True and 1 <= len(data["next"]) < data["total"] == 5
    assert data["total_is_exact"] is False  # a status never has more of them


def test_projects_have_a_name_and_are_cut_whole(server: tam_mcp.Server) -> None:
    data, _failed, _size = call(server, "tam_project_list")
    assert [project["name"] for project in data["projects"]] == ["p"]
    for number in range(200):
        server.tam.call("project.add", {"name": f"project {number}"})
    data, _failed, size = call(server, "tam_project_list")
    assert size <= BUDGET
    assert (data["truncated"], data["total"], data["total_is_exact"]) == (True, 201, True)
    found = [project["name"] for project in data["projects"]]
    while data.get("truncated"):
        cursor = data["next_cursor"]
        data, _failed, size = call(server, "tam_project_list", cursor=cursor)
        assert size <= BUDGET
        found += [project["name"] for project in data["projects"]]
    assert found == ["p", *(f"project {number}" for number in range(200))]


def test_budget_is_a_parameter() -> None:
    opened = make_project(tasks=3)
    server = tam_mcp.Server(opened, budget=800)
    data, _failed, size = call(server, "tam_task_list")
    assert size <= 800 and data["count"] == 1 and data["total"] == 3
    assert tam_mcp.fit({"task": None}, 1) == '{"task":null}'  # there is nothing to leave out


def test_endless_title_of_an_old_file_does_not_stop_the_paging(server: tam_mcp.Server) -> None:
    """tam 1.0.13 had no limit for titles."""
    with server.tam.store.writing() as db:
        db.execute("UPDATE task SET title = ? WHERE id = 1", ("x" * 50_000,))
    add(server, 1)
    newest, _failed, _size = call(server, "tam_task_list")
    oldest, _failed, size = call(server, "tam_task_list", cursor=newest["next_cursor"])
    assert [task["id"] for task in newest["tasks"] + oldest["tasks"]] == [2, 1]
    assert size <= BUDGET and oldest["tasks"][0]["title_length"] == 50_000
