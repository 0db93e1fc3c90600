"""What six real clients sent, sent again: every answer is the one that is expected."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

import tam
import tam_mcp
from mcp_support import closing  # noqa: F401 (used by every test)
from mcp_support import DATA, SERVER_META, Client, make_project

TRANSCRIPTS = sorted(DATA.glob("*.jsonl"))

STATUS = {"project": "p", "counts": {"todo": 0, "in_progress": 0, "done": 0}, "leased": 0,
          "unassigned": 0, "next": []}
NO_SUCH_TASK = {"error": {
    "code": "not_found",
    "message": "task 999999 not found. tam_task_list finds ids, tam_project_list names.",
    "details": {"task_id": 999999},
}}
#: The answers of the tools that the transcripts call: (data, isError).
TOOL_ANSWERS = {"tam_status": (STATUS, False), "tam_task_get": (NO_SUCH_TASK, True)}


def processes(path: Path) -> list[list[dict]]:
    """The messages of a transcript, one list for each start of the server."""
    runs: list[list[dict]] = [[]]
    for line in path.read_text().splitlines():
        message = json.loads(line)
        if message == {"new_process": True}:
            runs.append([])
        else:
            runs[-1].append(message)
    return runs


def expected_reply(message: dict, version: str) -> dict | None:
    """The exact reply to a message, in the legacy version that was opened before."""
    if "id" not in message:
        return None
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    method, params = message["method"], message.get("params", {})
    if method == "tools/call" and params["name"] not in TOOL_ANSWERS:
        error = {"code": -32602, "message": f"unknown tool: {params['name']}"}
        return {**reply, "error": error}
    if method not in RESULTS:
        return {**reply, "error": {"code": -32601, "message": f"unknown method: {method}"}}
    return {**reply, "result": RESULTS[method](params, version)}


def tool_answer(params: dict, version: str) -> dict:
    data, failed = TOOL_ANSWERS[params["name"]]
    text = json.dumps(data, separators=(",", ":"))
    return {"content": [{"type": "text", "text": text}], "isError": failed}


RESULTS = {
    "ping": lambda params, version: {},
    "server/discover": lambda params, version: {
        "resultType": "complete", "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}}, "instructions": tam_mcp.INSTRUCTIONS,
        "ttlMs": 3_600_000, "cacheScope": "private", "_meta": SERVER_META,
    },
    "initialize": lambda params, version: {
        "protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
        "serverInfo": {"name": "tam", "version": tam.VERSION},
        "instructions": tam_mcp.INSTRUCTIONS,
    },
    "tools/list": lambda params, version: {
        "tools": [tam_mcp.describe_tool(name, version, False) for name in tam_mcp.TOOLS],
    },
    "tools/call": tool_answer,
}


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_replay(path: Path) -> None:
    make_project().close()
    for messages in processes(path):
        version = tam_mcp.BASE_VERSION
        with Client() as client:
            for message in messages:
                if message["method"] == "initialize":
                    version = message["params"]["protocolVersion"]
                client.post(message)
                expected = expected_reply(message, version)
                if expected is not None:
                    assert json.loads(client.line()) == expected


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_replay_in_one_write_with_the_end_behind_it(path: Path) -> None:
    """A client that does not wait still gets every answer, in order."""
    make_project().close()
    for messages in processes(path):
        client = Client()
        client.send(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
        status, output, errors = client.end()
        client.kill()
        replies = [json.loads(line)["id"] for line in output.splitlines()]
        assert replies == [message["id"] for message in messages if "id" in message]
        assert (status, errors) == (0, b"")


def test_all_transcripts_are_there() -> None:
    assert {path.stem for path in TRANSCRIPTS} == {
        "claude-code", "codex", "gemini-cli-call", "py-mcp", "py-mcp-v1", "ts-sdk-v2auto",
    }
