"""The protocol as a value: handle() in every version, checked against the published schemas."""
from __future__ import annotations

import json

import pytest

import tam
import tam_mcp
import tam_tick
from mcp_support import closing  # noqa: F401 (used by every test)
from mcp_support import DATA, MODERN_META, SERVER_META, modern, opening, request, tool

#: The published definitions of each version, as tam's own validator reads them.
SCHEMAS = {
    path.stem: json.loads(path.read_text()) for path in sorted((DATA / "schema").glob("*.json"))
}
VERSIONS = (*tam_mcp.LEGACY, *tam_mcp.MODERN)
CORE_FOUR = {"tam_status", "tam_task_next", "tam_task_claim", "tam_task_complete"}

#: P §5, in its order, with what contract section 6 adds: the arguments of every tool.
TOOLS = {
    "tam_status": {"project"},
    "tam_project_list": {"cursor"},
    "tam_task_list": {"project", "status", "assigned", "priority", "tag", "search", "limit",
                      "cursor", "agent"},
    "tam_task_get": {"id", "offset", "project"},
    "tam_task_create": {"project", "title", "description", "priority", "tags", "idempotency_key",
                        "agent"},
    "tam_task_update": {"id", "title", "description", "status", "priority", "tags", "if_revision",
                        "project", "agent"},
    "tam_task_claim": {"id", "agent", "lease_seconds", "force", "project"},
    "tam_task_heartbeat": {"id", "agent", "lease_seconds", "project"},
    "tam_task_release": {"id", "agent", "force", "project"},
    "tam_task_complete": {"id", "agent", "if_revision", "project"},
    "tam_task_next": {"agent", "project", "lease_seconds", "claim"},
    "tam_task_events": {"id", "since", "limit", "project"},
}
READ_ONLY = {"tam_status", "tam_project_list", "tam_task_list", "tam_task_get", "tam_task_events"}


def conforms(version: str, definition: str, value: object) -> None:
    """Fail unless the value is what the version's schema calls by that name."""
    schema = {"$ref": f"#/$defs/{definition}", **SCHEMAS[version]}
    assert tam_tick.violations(schema, value) == []


@pytest.fixture
def server() -> tam_mcp.Server:
    return tam_mcp.Server(tam.Tam())


def opened(server: tam_mcp.Server, version: str) -> tam_mcp.Server:
    tam_mcp.handle(server, opening(version))
    return server


def ask(server: tam_mcp.Server, version: str, method: str, params: dict | None = None) -> dict:
    """The reply to one request in this version, its result or error checked by the schema."""
    if version in tam_mcp.MODERN:
        reply = tam_mcp.handle(server, modern(method, params))
    else:
        reply = tam_mcp.handle(opened(server, version), request(method, params))
    newer = version in ("2025-11-25", *tam_mcp.MODERN)
    if "error" in reply:
        conforms(version, "JSONRPCErrorResponse" if newer else "JSONRPCError", reply)
    else:
        conforms(version, "JSONRPCResultResponse" if newer else "JSONRPCResponse", reply)
    return reply


def tools_of(version: str, agent: str | None = None) -> list[dict]:
    server = tam_mcp.Server(tam.Tam(agent=agent))
    return ask(server, version, "tools/list")["result"]["tools"]


def test_the_schemas_are_those_of_every_version() -> None:
    assert tuple(SCHEMAS) == VERSIONS


# ---- versions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", tam_mcp.LEGACY)
def test_initialize_gives_the_version_asked_for(server: tam_mcp.Server, version: str) -> None:
    result = tam_mcp.handle(server, opening(version))["result"]
    conforms(version, "InitializeResult", result)
    assert result["protocolVersion"] == server.version == version
    assert result["capabilities"] == {"tools": {}}
    assert result["serverInfo"] == {"name": "tam", "version": tam.VERSION}


@pytest.mark.parametrize("asked", ["2026-07-28", "2099-01-01", "1", ""])
def test_initialize_gives_the_newest_where_it_does_not_know_the_version(
    server: tam_mcp.Server, asked: str
) -> None:
    assert tam_mcp.handle(server, opening(asked))["result"]["protocolVersion"] == "2025-11-25"


def test_before_initialize_the_oldest_version_is_spoken(server: tam_mcp.Server) -> None:
    listed = tam_mcp.handle(server, request("tools/list"))["result"]["tools"]
    assert listed == tools_of("2024-11-05")


def test_discover_conforms_and_names_the_stateless_versions_only(server: tam_mcp.Server) -> None:
    result = ask(server, "2026-07-28", "server/discover")["result"]
    conforms("2026-07-28", "DiscoverResult", result)
    assert result["supportedVersions"] == ["2026-07-28"]
    assert result["_meta"] == SERVER_META


def test_refused_version_conforms(server: tam_mcp.Server) -> None:
    meta = {**MODERN_META, "io.modelcontextprotocol/protocolVersion": "2027-01-01"}
    reply = tam_mcp.handle(server, request("tools/list", {"_meta": meta}))
    conforms("2026-07-28", "UnsupportedProtocolVersionError", reply)


def test_acknowledgement_of_a_subscription_conforms(server: tam_mcp.Server) -> None:
    notice = tam_mcp.handle(server, modern("subscriptions/listen", {"notifications": {}}, "s"))
    conforms("2026-07-28", "SubscriptionsAcknowledgedNotification", notice)


def test_nothing_is_remembered_of_a_stateless_request(server: tam_mcp.Server) -> None:
    opened(server, "2025-03-26")
    ask(server, "2026-07-28", "tools/list")
    assert server.version == "2025-03-26"


def test_both_eras_are_served_side_by_side(server: tam_mcp.Server) -> None:
    assert "resultType" in tam_mcp.handle(server, modern("server/discover"))["result"]
    assert "resultType" not in tam_mcp.handle(server, opening("2025-11-25"))["result"]
    assert "resultType" in tam_mcp.handle(server, modern("tools/list"))["result"]
    assert "resultType" not in tam_mcp.handle(server, request("tools/list"))["result"]


@pytest.mark.parametrize("version", VERSIONS)
def test_calls_conform_whether_they_succeed_or_fail(server: tam_mcp.Server, version: str) -> None:
    for name in ("tam_project_list", "tam_status"):
        result = ask(server, version, "tools/call", {"name": name})["result"]
        conforms(version, "CallToolResult", result)
        assert result["isError"] is (name == "tam_status")
        assert set(result) - {"_meta", "resultType"} == {"content", "isError"}


@pytest.mark.parametrize("version", VERSIONS)
def test_errors_conform(server: tam_mcp.Server, version: str) -> None:
    assert ask(server, version, "tools/call", {"name": "x"})["error"]["code"] == -32602
    assert ask(server, version, "prompts/list")["error"]["code"] == -32601


@pytest.mark.parametrize("version", tam_mcp.LEGACY)
def test_ping_conforms(server: tam_mcp.Server, version: str) -> None:
    conforms(version, "EmptyResult", ask(server, version, "ping")["result"])


def test_fault_of_the_program_is_an_internal_error_and_logged(
    server: tam_mcp.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.tam, "call", lambda name, arguments: 1 / 0)
    reply = json.loads(tam_mcp.answer(server, json.dumps(tool("tam_status", {}, 9)).encode()))
    assert (reply["id"], reply["error"]["code"]) == (9, -32603)
    with open(server.tam.config["logfile_path"], encoding="utf-8") as log:
        assert "ZeroDivisionError" in log.read()


# ---- the tools -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_tools_are_those_of_the_protocol_in_its_order(version: str) -> None:
    tools = tools_of(version)
    assert {tool["name"]: set(tool["inputSchema"]["properties"]) for tool in tools} == TOOLS
    assert [tool["name"] for tool in tools] == list(TOOLS)
    assert tools == tools_of(version)


@pytest.mark.parametrize("version", VERSIONS)
def test_list_conforms(version: str) -> None:
    server = tam_mcp.Server(tam.Tam())
    conforms(version, "ListToolsResult", ask(server, version, "tools/list")["result"])


@pytest.mark.parametrize("version", VERSIONS)
def test_tools_show_what_their_version_knows(version: str) -> None:
    first = tools_of(version)[0]
    annotated, titled = version >= "2025-03-26", version >= "2025-06-18"
    shown = "annotations" in first, "title" in first, "_meta" in first
    assert shown == (annotated, titled, titled)
    if annotated and not titled:
        assert first["annotations"]["title"] == "Status"


def test_annotations_follow_what_the_operations_do() -> None:
    for listed in tools_of("2025-11-25"):
        hints = dict(listed["annotations"])
        reads = listed["name"] in READ_ONLY
        assert hints.pop("readOnlyHint") is reads
        assert hints.pop("openWorldHint") is False
        assert set(hints) == (set() if reads else {"destructiveHint", "idempotentHint"})
    destructive = [
        listed["name"] for listed in tools_of("2025-11-25")
        if listed["annotations"].get("destructiveHint")
    ]
    assert destructive == ["tam_task_update"]


def test_the_core_four_are_always_loaded() -> None:
    marked = {listed["name"] for listed in tools_of("2025-11-25") if "_meta" in listed}
    assert marked == CORE_FOUR


@pytest.mark.parametrize("listed", tools_of("2025-11-25"), ids=lambda listed: listed["name"])
def test_schema_has_the_shape_that_every_client_takes(listed: dict) -> None:
    """One schema that a client dislikes hides the whole server there."""
    schema = listed["inputSchema"]
    assert set(schema) == {"type", "properties", "required"}
    assert schema["type"] == "object"
    assert isinstance(schema["required"], list)
    assert set(schema["required"]) <= set(schema["properties"])
    for name, words in schema["properties"].items():
        assert name.isidentifier() and name == name.lower()
        assert words["type"] in ("string", "integer", "boolean", "array")
        assert set(words) <= {"type", "description", "enum", "items"}
        assert ("items" in words) == (words["type"] == "array")
        assert words.get("items", {"type": "string"}) == {"type": "string"}
        assert all(isinstance(word, str) for word in words.get("enum", []))
        assert "enum" not in words or words["type"] == "string"
    assert tam_tick.StrangersCheck(schema).unchecked() == []


def test_ranges_and_defaults_are_said_in_words() -> None:
    """Codex drops minimum, maximum and default."""
    listed = tools_of("2025-11-25")
    tools = {tool["name"]: tool["inputSchema"]["properties"] for tool in listed}
    assert "5 to 86400, default 900" in tools["tam_task_claim"]["lease_seconds"]["description"]
    assert "1 to 1000, default 100" in tools["tam_task_list"]["limit"]["description"]
    assert "1 (highest) to 5, default 3" in tools["tam_task_create"]["priority"]["description"]
    assert "default false" in tools["tam_task_next"]["claim"]["description"]


@pytest.mark.parametrize("agent", [None, "", "agent-a"])
def test_agent_is_required_exactly_where_the_server_has_none(agent: str | None) -> None:
    needing = {
        listed["name"] for listed in tools_of("2025-11-25", agent)
        if "agent" in listed["inputSchema"]["required"]
    }
    never_without = {"tam_task_claim", "tam_task_heartbeat", "tam_task_next"}
    assert needing == (set() if agent else never_without)


def test_agent_of_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAM_AGENT", "agent-a")
    required = [listed["inputSchema"]["required"] for listed in tools_of("2025-11-25")]
    assert all("agent" not in names for names in required)


@pytest.mark.parametrize("version", VERSIONS)
def test_list_is_small(version: str) -> None:
    """Every session of every client pays for these bytes."""
    tools = tools_of(version)
    assert len(tam.encode_json({"tools": tools})) < 6_500
    assert all(len(listed["description"]) < 300 for listed in tools)


def test_instructions_are_short_and_teach_the_loop() -> None:
    text = tam_mcp.INSTRUCTIONS
    assert len(text) <= 600
    steps = [text.index(name) for name in ("tam_task_next", "tam_task_heartbeat",
                                           "tam_task_complete", "tam_task_release")]
    assert steps == sorted(steps)


def test_published_schema_is_no_copy_that_changes_the_table() -> None:
    tools_of("2025-11-25")
    assert tam.OPERATIONS["task.show"].properties["id"]["description"]
