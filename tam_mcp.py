"""The MCP server of tam: `tam mcp` serves twelve tools over standard input and output.

A message is one line of JSON-RPC 2.0. Two eras of the protocol are served side by side:

- legacy, 2024-11-05 to 2025-11-25: the client opens with `initialize`, which settles the version
  for the rest of the process;
- modern, 2026-07-28: every request carries its version and the client's capabilities in
  `params._meta`, and nothing is remembered between requests.

The way of one message, each step a section below:

    line -> answer() -> handle() -> METHODS -> call_tool() -> lenient() -> Tam.call() -> fit()

`handle(server, message)` is the protocol as a value: a parsed message in, a reply or None out. It
knows no pipe. `serve()` is the loop around it, `client_config()` prints what a client has to be
told, and `main()` is the command. There are no rules about tasks here: they are all in tam.py.
"""
from __future__ import annotations

import argparse
import json
import os
import signal
from collections.abc import Iterable, Iterator, Mapping

import tam

# ---- limits --------------------------------------------------------------------------------------

#: Characters of a tool's text. Codex cuts a result at about 12,000, others a little later.
RESULT_BUDGET = 10_000
#: Characters of a description inside a list; tam_task_get gives it whole.
LISTED_DESCRIPTION = 200
#: Where a list without a limit of its own ends: so long, it need not be all that there is.
LISTED_MAX = {"events": tam.LIMIT_DEFAULT, "next": tam.STATUS_NEXT}
#: Characters kept free for what fit() itself adds: the marks, the note and a cursor.
MARK_ROOM = 400
#: Messages of one batch: the reply to it is one line too, and could be a hundred times as long.
MAX_BATCH = 1_000
#: Undeclared arguments that an answer names, and the characters of each name.
IGNORED_NAMED = 20
NAME_SHOWN = 64
#: Bytes of one read of standard input.
CHUNK = 1 << 16

# ---- protocol versions ---------------------------------------------------------------------------

LEGACY = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN = ("2026-07-28",)
#: Spoken to a client that asks for something before it has sent `initialize` (P §5).
BASE_VERSION = LEGACY[0]
#: The only version in which several messages may share a line.
BATCH_VERSION = "2025-03-26"
#: The first versions that know a tool's annotations, and its `title` and `_meta`.
ANNOTATIONS_SINCE = "2025-03-26"
TITLES_SINCE = "2025-06-18"

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
SERVER_KEY = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
UNSUPPORTED_VERSION = -32022

#: Milliseconds for which a client may keep what discover and tools/list say: neither changes while
#: the process lives. Both depend on how this server was started, so no cache may share them.
CACHE = {"ttlMs": 3_600_000, "cacheScope": "private"}
CAPABILITIES = {"tools": {}}
SERVER_INFO = {"name": "tam", "version": tam.VERSION}

INSTRUCTIONS = (
    "tam is a task list shared by agents and people. The loop: tam_task_next with claim true gives"
    " you a task under a lease; do the work; call tam_task_heartbeat before lease_seconds run out;"
    " end with tam_task_complete, or tam_task_release if you give up. On conflict the task is"
    " another's: take the next one, and use force only when a person tells you to. agent is your"
    " own name, the same in every call. project is a name from tam_project_list. Leave either out"
    " where this server has a default. ids are numbers, valid across projects."
)


# ---- the tools -----------------------------------------------------------------------------------

TOOLS = {
    "tam_" + operation.tool: operation
    for operation in tam.OPERATIONS.values()
    if "mcp" in operation.doors
}

#: Tools that a client which hides tools behind a search should show at once.
ALWAYS_SHOWN = ("tam_status", "tam_task_next", "tam_task_claim", "tam_task_complete")

#: What is published of a property's schema. Ranges and defaults are said in its description,
#: because clients drop the other keywords; the operation checks them all the same.
PUBLISHED = ("type", "description", "enum", "items")
#: Arguments whose names say it all, or that INSTRUCTIONS explain once for all tools.
SELF_EXPLAINING = (
    "id", "project", "agent", "title", "description", "status", "search", "cursor", "offset",
    "idempotency_key",
)

#: Operations that never run without an agent (P §5).
AGENT_OPERATIONS = ("task.claim", "task.heartbeat", "task.next")


def describe_tool(name: str, version: str, agent_known: bool) -> dict:
    """One entry of tools/list, with what the protocol version knows.

    Arguments: the tool's name, a key of TOOLS; a protocol version; whether the server has an
    agent of its own, so that the caller need not give one (contract, MCP).
    """
    operation = TOOLS[name]
    tool: dict = {"name": name}
    if version >= TITLES_SINCE:
        tool["title"] = operation.title
    tool["description"] = operation.description
    tool["inputSchema"] = _input_schema(operation, agent_known)
    if version >= ANNOTATIONS_SINCE:
        tool["annotations"] = _annotations(operation, version)
    if version >= TITLES_SINCE and name in ALWAYS_SHOWN:
        tool["_meta"] = {"anthropic/alwaysLoad": True}
    return tool


def _input_schema(operation: tam.Operation, agent_known: bool) -> dict:
    """The schema as clients get it: open, because some of them add arguments of their own."""
    required = list(operation.required)
    if operation.name in AGENT_OPERATIONS and not agent_known:
        required.append("agent")
    properties = {name: _published(schema) for name, schema in operation.properties.items()}
    for name in SELF_EXPLAINING:
        properties.get(name, {}).pop("description", None)
    return {"type": "object", "properties": properties, "required": required}


def _published(schema: dict) -> dict:
    return {
        word: _published(value) if word == "items" else value
        for word, value in schema.items()
        if word in PUBLISHED
    }


def _annotations(operation: tam.Operation, version: str) -> dict:
    """The hints of one tool; two of them mean something only for a tool that writes."""
    hints: dict = {"readOnlyHint": not operation.mutates}
    if version < TITLES_SINCE:
        hints["title"] = operation.title
    if operation.mutates:
        hints["destructiveHint"] = operation.destructive
        hints["idempotentHint"] = operation.idempotent
    hints["openWorldHint"] = False
    return hints


# ---- leniency of this door -----------------------------------------------------------------------
# Models send "5" for 5 and null for what they leave out, and clients add arguments of their own.
# What is unmistakable by the schema's type is put right here, and only here; everything else goes
# on as it came, and the operation refuses it by name.


def lenient(operation: tam.Operation, raw: object) -> tuple[dict, list[str]]:
    """The arguments as the operation wants them, and the names of those it does not declare.

    Argument: what stood in `params.arguments`: an object, its text as JSON, or nothing.
    Errors: tam.Invalid when that is no object.
    """
    arguments = _as_object(raw)
    kept = {}
    ignored = []
    for name, value in arguments.items():
        schema = operation.properties.get(name)
        if schema is None:
            ignored.append(name)
        elif name in operation.required or not _is_left_out(name, value):
            kept[name] = READERS[schema["type"]](value)
    return kept, ignored


def _is_left_out(name: str, value: object) -> bool:
    """Whether a model says with this value that it gives none.

    No project and no agent is called "". Taken for an agent it would make the caller a person,
    who may write against every lease.
    """
    return value is None or value == "" and name in ("project", "agent")


def _as_object(raw: object) -> dict:
    value = _from_json(raw) if isinstance(raw, str) else raw
    if value is None or value == "":
        return {}
    if not isinstance(value, dict):
        raise tam.Invalid("arguments must be an object of named arguments")
    return value


def _from_json(text: str) -> object:
    """The value that the text stands for, or the text itself when it is no JSON."""
    try:
        return tam.parse_json(text.encode("utf-8", "surrogatepass"))
    except tam.BadJSON:
        return text


def _read_integer(value: object) -> object:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str):
        digits = value.strip()
        unsigned = digits[1:] if digits[:1] in ("-", "+") else digits
        # Longer numbers are no id, limit or time of anything, and int() refuses absurd ones.
        if unsigned.isascii() and unsigned.isdigit() and len(unsigned) <= 20:
            return int(digits)
    return value


def _read_boolean(value: object) -> object:
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower(), value)
    return value


def _read_list(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        return _from_json(value)
    return [part.strip() for part in value.split(",") if part.strip()]


def _read_string(value: object) -> object:
    return value


READERS = {
    "integer": _read_integer,
    "boolean": _read_boolean,
    "array": _read_list,
    "string": _read_string,
}


# ---- budget of a result --------------------------------------------------------------------------


def fit(data: dict, budget: int, forward: bool = False) -> str:
    """The text of an answer, in at most `budget` characters.

    Descriptions in lists are always shortened. If that is not enough, a list loses whole items and
    the answer says `truncated`, of how many and where to go on; if even that is not enough, the
    longest text is cut last, with its full length beside it. Of events the newest are kept, or the
    oldest when the caller reads `forward` from an event that it named.
    """
    data = _shorten_listed(data)
    text = _compact(data)
    if len(text) > budget:
        data = _drop_items(data, budget, forward)
        text = _compact(data)
    if len(text) > budget:
        data = _cut_longest(data, len(text) - budget)
        text = _compact(data)
    return text


def _compact(value: object) -> str:
    return encode(value).decode("utf-8")


def _shorten_listed(data: dict) -> dict:
    short = dict(data)
    for key in ("tasks", "next"):
        if isinstance(data.get(key), list):
            short[key] = [_shorten_task(task) for task in data[key]]
    return short


def _shorten_task(task: dict) -> dict:
    """The task with at most LISTED_DESCRIPTION characters of description, and its length beside."""
    length = len(task["description"])
    if length <= LISTED_DESCRIPTION:
        return task
    short = {}
    for key, value in task.items():
        short[key] = value
        if key == "description":
            short["description"] = value[:LISTED_DESCRIPTION]
            short["description_length"] = length
    return short


def _drop_items(data: dict, budget: int, forward: bool) -> dict:
    """The answer with as many whole items of its list as the budget holds, but one at least."""
    key = next((name for name in ("tasks", "events", "projects", "next") if data.get(name)), None)
    if key is None:
        return data
    items = data[key]
    newest = key == "events" and not forward
    room = budget - MARK_ROOM - len(_compact({**data, key: []}))
    count = max(1, _holds(reversed(items) if newest else items, room))
    kept = items[len(items) - count:] if newest else items[:count]
    return {**data, key: kept, **_marks(key, kept, data)}


def _holds(items: Iterable[dict], room: int) -> int:
    """How many of the items, from the first on, fit into so many characters."""
    count = 0
    for item in items:
        room -= len(_compact(item)) + 1
        if room < 0:
            break
        count += 1
    return count


def _marks(key: str, kept: list, data: dict) -> dict:
    """What a shortened list says of itself: that it is one, of how many, and where to go on."""
    length = len(data[key])
    marks = {"truncated": True, "total": data.get("total", length)}
    marks["total_is_exact"] = data.get("total_is_exact", length != LISTED_MAX.get(key))
    if "count" in data:
        marks["count"] = len(kept)
    if "next_cursor" in data:
        marks["next_cursor"] = kept[-1]["id"]
    if key == "projects":
        marks |= {"count": len(kept), "next_cursor": kept[-1]["id"]}
    return marks


def _cut_longest(data: dict, excess: int) -> dict:
    """The answer with its longest text cut by `excess` characters and the room for saying so."""
    _length, path = max(_texts(data, ()), default=(0, ()))
    if not path:
        return data
    field = path[-1]
    inner = data = data.copy()
    for key in path[:-1]:
        inner[key] = inner[key].copy()
        inner = inner[key]
    text = inner[field]
    inner[field] = _beginning(text, len(_compact(text)) - excess - MARK_ROOM)
    inner[field + "_length"] = len(text)
    data["truncated"] = True
    data["note"] = f"{field} is cut"
    if field == "description":
        offset = inner.get("description_offset", 0) + len(inner[field])
        data |= {"note": "description is cut; tam_task_get with offset next_offset has what follows",
                 "next_offset": offset}
    return data


def _beginning(text: str, room: int) -> str:
    """As much of a text as takes at most so many characters in JSON, which has escapes."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if len(_compact(text[:middle])) <= room:
            low = middle
        else:
            high = middle - 1
    return text[:low]


def _texts(value: dict | list, path: tuple) -> Iterator[tuple[int, tuple]]:
    """The length of every named text within a value, with the keys and places that lead to it."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(inner, str) and isinstance(key, str):
            yield len(inner), (*path, key)
        elif isinstance(inner, (dict, list)):
            yield from _texts(inner, (*path, key))


# ---- server --------------------------------------------------------------------------------------


class Server:
    """What one `tam mcp` process keeps between messages.

    Arguments: `opened`, which does the work and opens its database at the first call; `budget`,
    the characters of a tool's text. `version` is the legacy version that was settled last.
    """

    def __init__(self, opened: tam.Tam, budget: int = RESULT_BUDGET) -> None:
        self.tam = opened
        self.budget = budget
        self.version = BASE_VERSION


# ---- requests and replies ------------------------------------------------------------------------


#: What a request may be named by; it comes back with its value and type.
Identity = str | int | float


class RpcError(Exception):
    """A request that is answered with a JSON-RPC error, not with a result.

    Arguments: the error's code, a sentence, and what `data` should carry, if anything.
    """

    def __init__(self, code: int, message: str, data: dict | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class Request:
    """One well-formed request, and the protocol version that it is to be answered in."""

    __slots__ = ("id", "method", "params", "version")

    def __init__(self, identity: Identity, method: str, params: dict, version: str) -> None:
        self.id = identity
        self.method = method
        self.params = params
        self.version = version

    @property
    def modern(self) -> bool:
        """Whether the request belongs to the stateless era."""
        return self.version in MODERN

    def result(self, body: dict) -> dict:
        """The reply that carries this result, with what the request's era adds to every result."""
        if self.modern:
            body = {"resultType": "complete", **body, "_meta": {SERVER_KEY: SERVER_INFO}}
        return {"jsonrpc": "2.0", "id": self.id, "result": body}


def encode(value: object) -> bytes:
    """The value as compact JSON in UTF-8.

    A lone surrogate becomes "?": sent on it would spoil the client's history for good, and no
    answer at all would leave the client waiting.
    """
    try:
        return tam.encode_json(value)
    except tam.BadJSON:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return tam.on_one_line(text).encode("utf-8", "replace")


def error_reply(identity: Identity | None, error: RpcError) -> dict:
    """The reply that carries this error; `identity` is None when the id could not be read."""
    body = {"code": error.code, "message": error.message}
    if error.data is not None:
        body["data"] = error.data
    return {"jsonrpc": "2.0", "id": identity, "error": body}


def _shown(text: str) -> str:
    """What a peer sent, fit to stand in a sentence."""
    return tam.printable(text[:NAME_SHOWN])


# ---- methods -------------------------------------------------------------------------------------


def initialize(server: Server, request: Request) -> dict:
    """Settle the version: the one asked for if it is a legacy one, else the newest of those."""
    asked = request.params.get("protocolVersion")
    if not isinstance(asked, str):
        raise RpcError(INVALID_PARAMS, "initialize needs params.protocolVersion, a string")
    server.version = asked if asked in LEGACY else LEGACY[-1]
    return request.result({
        "protocolVersion": server.version,
        "capabilities": CAPABILITIES,
        "serverInfo": SERVER_INFO,
        "instructions": INSTRUCTIONS,
    })


def ping(server: Server, request: Request) -> dict:
    """Say that the server is alive."""
    return request.result({})


def discover(server: Server, request: Request) -> dict:
    """Say what the server is, as a modern client asks first.

    Versions that need initialize are not in the list, since the client picks from it what it puts
    into `_meta`.
    """
    return request.result({
        "supportedVersions": list(MODERN),
        "capabilities": CAPABILITIES,
        "instructions": INSTRUCTIONS,
        **CACHE,
    })


def listen(server: Server, request: Request) -> dict:
    """Open a stream of change notices: acknowledged with none, since the tools never change.

    The acknowledgement is all that is ever sent; the stream ends when the client cancels it or the
    process ends, and neither is answered.
    """
    if not isinstance(request.params.get("notifications"), dict):
        raise RpcError(INVALID_PARAMS, "subscriptions/listen needs params.notifications, an object")
    return {
        "jsonrpc": "2.0",
        "method": "notifications/subscriptions/acknowledged",
        "params": {"_meta": {SUBSCRIPTION_KEY: request.id}, "notifications": {}},
    }


def list_tools(server: Server, request: Request) -> dict:
    """All tools on one page, always in the same order."""
    if request.params.get("cursor"):
        raise RpcError(INVALID_PARAMS, "unknown cursor: tools/list has one page only")
    agent_known = bool(server.tam.default_agent())
    tools = [describe_tool(name, request.version, agent_known) for name in TOOLS]
    body: dict = {"tools": tools}
    if request.modern:
        body.update(CACHE)
    return request.result(body)


def call_tool(server: Server, request: Request) -> dict:
    """Run one tool. What goes wrong within it is a result with isError, so that a model sees it."""
    name = request.params.get("name")
    if not isinstance(name, str):
        raise RpcError(INVALID_PARAMS, "tools/call needs params.name, a string")
    if name not in TOOLS:
        raise RpcError(INVALID_PARAMS, f"unknown tool: {_shown(name)}")
    text, failed = _run(server, TOOLS[name], request.params.get("arguments"))
    return request.result({"content": [{"type": "text", "text": text}], "isError": failed})


def _run(server: Server, operation: tam.Operation, raw: object) -> tuple[str, bool]:
    """The text of one call, and whether it failed."""
    arguments: dict = {}
    ignored: list[str] = []
    failed = False
    try:
        arguments, ignored = lenient(operation, raw)
        data = _as_answer(server.tam.call(operation.name, arguments))
    except tam.TamError as error:
        data = failure(error)
        failed = True
    if ignored:
        data["ignored_arguments"] = [_shown(name) for name in ignored[:IGNORED_NAMED]]
    return fit(data, server.budget, forward="since" in arguments), failed


def _as_answer(data: object) -> dict:
    """An operation's data as an object: the list of projects gets a name (contract, MCP)."""
    return {"projects": data} if isinstance(data, list) else dict(data)


#: What a model should do next, by the code of the error; the message itself has the particulars.
NEXT_STEP = {
    "invalid": "Mend the call and try again.",
    "not_found": "tam_task_list finds ids, tam_project_list names.",
    "conflict": "Use tam_task_get to look at it, or tam_task_next for another task.",
    "missing_project": "tam_project_list has the names; if there is none, ask a person to add one.",
    "missing_agent": "Choose a name of your own and use it in every call.",
    "internal": "Report this to the person you work for; tam's log file has the details.",
}
RETRY_STEP = "Call again in a few seconds."


def failure(error: tam.TamError) -> dict:
    """The answer of a call that failed: what is wrong, and in the last sentence what to do."""
    step = RETRY_STEP if error.details.get("retryable") else NEXT_STEP[error.code]
    end = "" if error.message.endswith((".", "?")) else "."
    return {"error": {**error.as_dict(), "message": f"{error.message}{end} {step}"}}


LEGACY_METHODS = {
    "initialize": initialize,
    "ping": ping,
    "tools/list": list_tools,
    "tools/call": call_tool,
}
#: The stateless version has no initialize and no ping.
MODERN_METHODS = {
    "server/discover": discover,
    "subscriptions/listen": listen,
    "tools/list": list_tools,
    "tools/call": call_tool,
}


# ---- handle --------------------------------------------------------------------------------------


def handle(server: Server, message: object) -> dict | list | None:
    """The reply to one parsed message, or None when it gets none.

    A list is a batch where that version was negotiated, and a wrong message everywhere else.
    Changes nothing but `server` and, through a tool, the database.
    """
    if not isinstance(message, list):
        return _handle_one(server, message)
    if server.version != BATCH_VERSION or not message:
        return error_reply(None, RpcError(INVALID_REQUEST, "a message must be one JSON object"))
    if len(message) > MAX_BATCH:
        limit = f"a batch must have at most {MAX_BATCH} messages"
        return error_reply(None, RpcError(INVALID_REQUEST, limit))
    replies = [_handle_one(server, item, batched=True) for item in message]
    return [reply for reply in replies if reply is not None] or None


def _handle_one(server: Server, message: object, batched: bool = False) -> dict | None:
    if not isinstance(message, dict):
        return error_reply(None, RpcError(INVALID_REQUEST, "a message must be one JSON object"))
    if "id" not in message or _is_response(message):
        # Notifications are never answered, whatever they say, and none of them changes anything
        # here: calls are finished before the next line is read, so there is nothing to cancel.
        return None
    identity = message["id"]
    if not _is_identity(identity):
        return error_reply(None, RpcError(INVALID_REQUEST, "id must be a string or an integer"))
    try:
        request = _read_request(server, identity, message)
        if batched and request.method == "initialize":
            raise RpcError(INVALID_REQUEST, "initialize must not be part of a batch")
        methods = MODERN_METHODS if request.modern else LEGACY_METHODS
        if request.method not in methods:
            raise RpcError(METHOD_NOT_FOUND, f"unknown method: {_shown(request.method)}")
        return methods[request.method](server, request)
    except RpcError as error:
        return error_reply(identity, error)


def _is_response(message: dict) -> bool:
    """Whether this answers a request; the server sends none, and an answer to it would be noise."""
    return "method" not in message and ("result" in message or "error" in message)


def _is_identity(value: object) -> bool:
    """Whether a reply can carry this id: a number without a fraction, or valid Unicode."""
    if isinstance(value, str):
        return not tam.has_surrogate(value)
    if isinstance(value, float):
        return value.is_integer()
    return isinstance(value, int) and not isinstance(value, bool)


def _read_request(server: Server, identity: Identity, message: dict) -> Request:
    """The request in a message whose id is sound. Errors: RpcError."""
    if message.get("jsonrpc") != "2.0":
        raise RpcError(INVALID_REQUEST, 'jsonrpc must be "2.0"')
    method = message.get("method")
    if not isinstance(method, str):
        raise RpcError(INVALID_REQUEST, "method must be a string")
    params = _object_or_nothing(message.get("params"), "params")
    meta = _object_or_nothing(params.get("_meta"), "params._meta")
    if _is_modern(method, meta):
        return Request(identity, method, params, _modern_version(meta))
    return Request(identity, method, params, server.version)


def _object_or_nothing(value: object, name: str) -> dict:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RpcError(INVALID_PARAMS, f"{name} must be an object")
    return value


def _is_modern(method: str, meta: dict) -> bool:
    """Whether a request is of the stateless era; initialize never is, whatever it carries."""
    if method == "initialize":
        return False
    modern_only = method in MODERN_METHODS and method not in LEGACY_METHODS
    return modern_only or VERSION_KEY in meta or CAPABILITIES_KEY in meta


def _modern_version(meta: dict) -> str:
    """The version that a modern request declares. Errors: RpcError as that version rules."""
    missing = [key for key in (VERSION_KEY, CAPABILITIES_KEY) if key not in meta]
    if missing:
        raise RpcError(INVALID_PARAMS, f"params._meta lacks {' and '.join(missing)}")
    version = meta[VERSION_KEY]
    if not isinstance(version, str):
        raise RpcError(INVALID_PARAMS, f"{VERSION_KEY} must be a string")
    if not isinstance(meta[CAPABILITIES_KEY], dict):
        raise RpcError(INVALID_PARAMS, f"{CAPABILITIES_KEY} must be an object")
    if version not in MODERN:
        supported = {"supported": list(MODERN), "requested": version}
        raise RpcError(UNSUPPORTED_VERSION, "unsupported protocol version", supported)
    return version


# ---- loop ----------------------------------------------------------------------------------------


def answer(server: Server, line: bytes) -> bytes | None:
    """The bytes to send for one received line, without the newline; None for nothing."""
    if isinstance(line, tam.Overlong):
        return encode(error_reply(None, RpcError(PARSE_ERROR, "the line is too long")))
    if not line.strip():
        return None
    try:
        message = tam.parse_json(line)
    except tam.BadJSON as error:
        return encode(error_reply(None, RpcError(PARSE_ERROR, error.message)))
    try:
        reply = handle(server, message)
    except Exception as error:
        # A fault of this program: the client still gets its answer, the log gets the fault.
        reply = _unexpected(server, message, error)
    return None if reply is None else encode(reply)


def _unexpected(server: Server, message: object, error: Exception) -> dict:
    import traceback

    server.tam.log("".join(traceback.format_exception(error)))
    identity = message.get("id") if isinstance(message, dict) else None
    return error_reply(identity, RpcError(INTERNAL_ERROR, "internal error; tam's log has details"))


def serve(server: Server, source: int, sink: int, limit: int = tam.MAX_LINE) -> None:
    """Answer what comes from the descriptor `source` on `sink`, until either is closed.

    Each reply is one write. A last line without its newline is answered too, and of a line of more
    than `limit` bytes only the beginning is kept.
    """
    lines = tam.Lines(limit)
    try:
        while data := os.read(source, CHUNK):
            for line in lines.feed(data):
                _send(server, line, sink)
        _send(server, lines.rest, sink)
    except OSError:
        # One of the two is closed or broken: the client is gone, and that is an end like any other.
        return


def _send(server: Server, line: bytes, sink: int) -> None:
    reply = answer(server, line)
    if reply is not None:
        tam.write_all(sink, reply + b"\n")


def set_pipes_aside() -> tuple[int, int]:
    """Two new descriptors for the real standard input and output, which nothing else knows of.

    Whatever is printed later, by a library or a child process, goes nowhere; whoever reads standard
    input finds it empty.
    """
    source, sink = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard, real in ((0, source), (1, sink)):
        # A terminal may come non-blocking from whoever had it before.
        os.set_blocking(real, True)
        os.dup2(nowhere, standard)
    os.close(nowhere)
    return source, sink


# ---- client configuration ------------------------------------------------------------------------

#: For each client: the key that its file keeps servers under, and whether it wants their type.
JSON_CLIENTS = {
    "claude": ("mcpServers", True),
    "gemini": ("mcpServers", False),
    "vscode": ("servers", True),
    "cursor": ("mcpServers", False),
    "json": ("mcpServers", False),
}
CLIENTS = ("claude", "codex", "gemini", "vscode", "cursor", "json")

PLACES = """\
where the printed configuration goes:
  claude  .mcp.json of a project       gemini  ~/.gemini/settings.json
  codex   ~/.codex/config.toml         vscode  .vscode/mcp.json
  cursor  ~/.cursor/mcp.json           json    any other client
"""


def client_config(client: str, command: list[str]) -> str:
    """What to write into a client's file so that it starts the server.

    Arguments: one of CLIENTS; the command's words. Result: TOML for codex, else JSON.
    """
    if client == "codex":
        words = [tam.toml_string(word) for word in command]
        return f"[mcp_servers.tam]\ncommand = {words[0]}\nargs = [{', '.join(words[1:])}]\n"
    key, typed = JSON_CLIENTS[client]
    entry = {"type": "stdio"} if typed else {}
    entry |= {"command": command[0], "args": command[1:]}
    return tam.on_one_line(json.dumps({key: {"tam": entry}}, indent=2, ensure_ascii=False)) + "\n"


def server_command(options: Mapping[str, str | None]) -> list[str]:
    """The words that start this installation's server from any directory.

    Argument: the options to give it, by name without the dashes; those that are None or empty are
    left out.
    """
    words = [*tam.own_command(), "mcp"]
    for name, value in options.items():
        if value:
            words += ["--" + name, value]
    return words


# ---- bundle --------------------------------------------------------------------------------------

#: What a bundle holds beside its start: without the modules it would not be tam.
MODULES = ("tam.py", "tam_mcp.py", "tam_tick.py")
TEXTS = (
    "llms.txt", "LICENSE", "skills/tam-agent/SKILL.md",
    "skills/tam-agent/references/agent-protocol.md", "skills/tam-tick/SKILL.md",
)
#: Looks at the version before anything that an older Python could not read.
BUNDLE_START = """\
import sys
if sys.version_info < (3, 11):
    sys.exit("tam needs Python 3.11 or newer; this is Python %d.%d. Run it with a newer python3."
             % sys.version_info[:2])
from tam import main
sys.exit(main())
"""


def bundle(argv: list[str]) -> int:
    """Run `tam bundle` with the words after it: write tam into one file. Result: the exit status.

    The same content gives the same bytes, under one version of Python; another one runs it from
    the source inside. Texts that are missing beside this tam are left out, modules are not.
    """
    as_json = "--json" in argv
    try:
        parsed = _bundle_parser().parse_args(argv)
        missing = _bundle_to(tam.argument_path(parsed.path), parsed.force)
    except tam.TamError as error:
        tam.report(error, "bundle", as_json)
        return error.exit_status
    if as_json:
        data = {"path": tam.path_text(os.path.abspath(parsed.path)), "missing": missing}
        tam.write_stdout(tam.success("bundle", data, None, None))
        return 0
    paper = tam.paper_for(1)
    paper.success(f"Bundle '{parsed.path}' written successfully.")
    if missing:
        paper.info(f"Not beside this tam, and so not in it: {', '.join(missing)}.")
    paper.write()
    return 0


def _bundle_to(path: str, force: bool) -> list[str]:
    """Write the bundle; return what is not in it. Errors: tam.Internal, tam.Conflict."""
    files = {name: tam.shipped(name) for name in (*MODULES, *TEXTS)}
    missing = [name for name, content in files.items() if content is None]
    if set(missing) & set(MODULES):
        where = tam.path_text(tam.__file__)
        raise tam.Internal(f"a bundle needs {', '.join(missing)} beside {where}: copy them there",
                           missing_files=missing)
    shown = tam.path_text(path)
    if os.path.lexists(path) and not (force or _is_bundle(path)):
        raise tam.Conflict(f"{shown} is there and is no bundle of tam: give another path, or"
                           " --force to replace it", path=shown)
    data = _archive({name: content for name, content in files.items() if content is not None})
    try:
        tam.replace_file(path, data, mode=0o755)
    except OSError as error:
        raise tam.Internal(f"cannot write {shown}: {error.strerror}. Nothing was changed",
                           path=shown) from None
    return missing


def _is_bundle(path: str) -> bool:
    import zipfile

    try:
        with zipfile.ZipFile(path) as archive:
            return {"__main__.py", *MODULES} <= set(archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return False


def _archive(files: dict[str, bytes]) -> bytes:
    """The bytes of the archive: what zipapp makes, with bytecode beside each module."""
    import io
    import zipfile

    data = io.BytesIO()
    data.write(b"#!/usr/bin/env python3\n")
    with zipfile.ZipFile(data, "a") as archive:  # stored: to inflate costs more than to read
        for name, content in {"__main__.py": BUNDLE_START.encode(), **files}.items():
            archive.writestr(zipfile.ZipInfo(name), content)  # its time is 1980, not now
            if name.endswith(".py"):
                archive.writestr(zipfile.ZipInfo(name + "c"), _bytecode(name, content))
    return data.getvalue()


def _bytecode(name: str, source: bytes) -> bytes:
    """Return what Python loads without a look at the source: PEP 552's unchecked form.

    The second version of marshal tells nothing of how often an object is referred to, which
    depends on what else runs: so the same source gives the same bytes.
    """
    import importlib.util
    import marshal

    code = compile(source, name, "exec", dont_inherit=True, optimize=0)
    flags = (1).to_bytes(4, "little")
    return (importlib.util.MAGIC_NUMBER + flags + importlib.util.source_hash(source)
            + marshal.dumps(code, 2))


def _bundle_parser() -> argparse.ArgumentParser:
    parser = tam.Parser(
        prog="tam bundle",
        description="Write tam into one file that any Python 3.11 or newer runs.",
        epilog="example:\n  tam bundle tam.pyz && ./tam.pyz status",
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )
    parser.add_argument("path", metavar="PATH", help="where to, such as tam.pyz")
    parser.add_argument("--force", action="store_true", help="replace a file that is no bundle")
    parser.add_argument("--json", action="store_true", help="print one JSON envelope")
    return parser


# ---- command -------------------------------------------------------------------------------------


def main(argv: list[str]) -> int:
    """Run `tam mcp` with the words after `mcp`. Result: the exit status.

    Ends with 0 when the client closes standard input or stops reading, and with 2 when it does not
    understand the words. SIGINT and SIGTERM end it at once even while it waits for the database,
    whose file is safe at any moment.
    """
    try:
        options = _parser().parse_args(argv)
    except tam.Usage as error:
        tam.report(error, "mcp", "--json" in argv)
        return error.exit_status
    env = dict(os.environ)
    if options.home:
        env["TAM_HOME"] = os.path.abspath(os.path.expanduser(tam.native_path(options.home)))
    if options.config:
        # Words are text and paths may be any bytes, in a locale that may know neither.
        tam.write_stdout(_config_text(options, env).encode("utf-8", "surrogateescape"))
        return 0
    return _serve_client(tam.Tam(project=options.project, agent=options.agent, env=env))


def _serve_client(opened: tam.Tam) -> int:
    # The system's own handling: Python's would wait until SQLite gives the turn back.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    source, sink = set_pipes_aside()
    try:
        serve(Server(opened), source, sink)
    finally:
        opened.close()
    return 0


def _config_text(options: argparse.Namespace, env: Mapping[str, str]) -> str:
    """The configuration that was asked for.

    What this shell's environment sets becomes an option in it, because most clients hand no
    environment on.
    """
    given = {
        "project": env.get("TAM_PROJECT") if options.project is None else options.project,
        "agent": env.get("TAM_AGENT") if options.agent is None else options.agent,
        "home": os.path.abspath(env["TAM_HOME"]) if env.get("TAM_HOME") else None,
    }
    return client_config(options.config, server_command(given))


def _parser() -> argparse.ArgumentParser:
    parser = tam.Parser(
        prog="tam mcp",
        description="Serve the tasks to an MCP client over standard input and output.",
        epilog=PLACES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--project", metavar="NAME", help="project of calls that name none")
    parser.add_argument("--agent", metavar="ID", help="agent of calls that name none")
    parser.add_argument("--home", metavar="DIR", help="directory of tam's files, like TAM_HOME")
    parser.add_argument("--config", choices=CLIENTS, metavar="CLIENT",
                        help="print the configuration for a client: " + ", ".join(CLIENTS))
    # A global option of tam; here everything is JSON anyway.
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    return parser
