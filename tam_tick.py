"""tam as a Tick: one process, one state, a person at the keys and an agent on the wire.

`tam tick` speaks the Tick protocol (version 3) on its standard input and output and draws a board
on its controlling terminal. `tam -i`, and `tam tick` typed by a person, draw the same board without
the wire. `tam tick host` and `tam tick check` are the other side of the protocol, for people who
write Ticks of their own.

The parts, each using only what stands above it:

    limits       named numbers, each with its reason
    catalogue    the tools of the operation table, and the revision that names them
    state        the summary of a project that agents read, never more than 4 KiB
    session      frames in, frames out: no descriptor, no thread, no terminal
    board        what the person sees: a value, `press(board, key)`, and what arrives from the store
    render       `render(board, width, height)`: lines of styled text
    terminal     bytes to keys, lines to curses, and the terminal given back as it was
    threads      the watcher that looks at the store, and the crews that call it
    loop         requests, keys, signals and readings meet in one thread
"""
from __future__ import annotations

import argparse
import codecs
import collections
import dataclasses
import datetime
import functools
import hashlib
import os
import queue
import re
import select
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence

import tam

# ---- limits --------------------------------------------------------------------------------------

#: The protocol version of every descriptor (T §4.3).
PROTOCOL = 3
#: The largest integer that every JSON reader keeps exactly (T §2.2).
MAX_ID = 2**53 - 1
#: Room that a subscription gives one state (T §6.4), sequence number and time included.
STATE_LIMIT = 4096
#: Requests that a host may have in flight (T §3.5): so many calls run side by side.
CALLS_AT_ONCE = 8
#: Requests that are read but not yet answered on the wire; no more is read until some are.
MAX_PENDING = 64
#: Unwritten answers in bytes; beyond it no more requests are read, so that memory stays bounded.
MAX_UNSENT = 16 << 20
#: Seconds between two updates at least: faster than a person or a model can look (T §8.3).
UPDATE_GAP = 0.05
#: Seconds between two looks at the store's version: a foreign commit is on the wire soon after,
#: and ten looks a second cost next to nothing.
POLL = 0.1
#: Looks at the version between two looks at what changes without a commit: the config, the file.
POLLS_AROUND = 5
#: Seconds after which a look that failed is tried again.
RETRY = 1.0
#: Seconds for which the first request may wait for the first look at the store.
FIRST_LOOK = 1.0
#: Seconds for which the end waits for a host that does not read what is left for it.
LAST_WRITE = 5.0
#: Seconds after which an escape byte that stands alone is the Esc key.
ESCAPE_WAIT = 0.03
#: Tasks of one column that the board loads, newest first; the search finds the others.
COLUMN_CAP = 500
#: Rejected lines noted in the log one by one; later ones are only counted.
NOTED_LINES = 20
#: Bytes that one read of the request pipe or the terminal takes.
CHUNK = 1 << 16

# ---- catalogue -----------------------------------------------------------------------------------

KIND = "tam.board"
DESCRIPTION = (
    "The task board of one project, shared by people and agents: its counts, who holds which task, "
    "what to do next and what happened last. Claim a task before working on it."
)


def catalogue() -> list[dict]:
    """Return the tools of the operation table that a Tick offers (T §5.2), in table order."""
    return [
        {
            "name": operation.tool,
            "description": operation.description,
            "input_schema": operation.input_schema(),
            "mutates": operation.mutates,
        }
        for operation in tam.OPERATIONS.values()
        if "tick" in operation.doors
    ]


def revision_of(tools: list[dict]) -> str:
    """Name a catalogue by its content: another name whenever any tool changes (T §5.5)."""
    return hashlib.blake2b(tam.encode_json(tools), digest_size=8).hexdigest()


def descriptor() -> dict:
    """Return the answer to tick/describe (T §5.2)."""
    tools = catalogue()
    return {
        "protocol": PROTOCOL,
        "kind": KIND,
        "title": "tam",
        "description": DESCRIPTION,
        "revision": revision_of(tools),
        "tools": tools,
        "recover_with": "history",
        "state": {"series": [{"path": "/events", "newest": "last"}]},
    }


# ---- state ---------------------------------------------------------------------------------------

#: What each tool adds to the summary: the large things stand behind query tools (T §6.4).
MORE = {
    "task_get": "one task with its description and events",
    "task_list": "all tasks, filtered",
    "history": "events after `since`",
}
#: Ever smaller shares, tried until the state fits: leased tasks, next tasks, events, characters of
#: a title, characters of any other name. The last one fits whatever the names are.
SHARES = (
    (8, 5, 10, 80, 255),
    (8, 5, 8, 40, 255),
    (6, 5, 8, 40, 128),
    (6, 5, 6, 24, 64),
    (4, 3, 5, 24, 32),
    (2, 2, 2, 16, 16),
    (0, 0, 0, 0, 16),
)
#: What the sequence number, the time and the brackets take at most, in bytes.
STATE_FRAME = 100


def cut(text: str, length: int) -> str:
    """Return `text` in at most `length` characters, with a sign where something is missing."""
    return text if len(text) <= length else text[: max(length - 1, 0)] + "…"


def project_state(snapshot: dict) -> dict | None:
    """Return the `data` of a Tick state (T §6) from `Tam.snapshot`; None without a project.

    With sequence number and time it encodes to at most STATE_LIMIT bytes: lists get shorter and
    names are cut until it fits, and the counts beside them tell what is missing.
    """
    if snapshot["project"] is None:
        return None
    for share in SHARES:
        data = _shared_out(snapshot, share)
        if len(tam.encode_json(data)) <= STATE_LIMIT - STATE_FRAME:
            return data
    raise tam.Internal("the smallest state of a project is over its limit", bytes=STATE_LIMIT)


def _shared_out(snapshot: dict, share: tuple[int, int, int, int, int]) -> dict:
    """Return the state with at most that many leased tasks, next tasks, events and characters."""
    leased, following, events, title, name = share
    project = snapshot["project"]
    return {
        "project": {"id": project["id"], "name": cut(project["name"], name)},
        "counts": snapshot["counts"],
        "leased_count": snapshot["leased_count"],
        "leased": [_leased_task(task, title, name) for task in snapshot["leased"][:leased]],
        "next": [_next_task(task, title) for task in snapshot["next"][:following]],
        "events": [_event(event, name) for event in _last(snapshot["events"], events)],
        "cursor": snapshot["cursor"],
        "more": MORE,
    }


def _leased_task(task: dict, title: int, name: int) -> dict:
    return {
        "id": task["id"],
        "title": cut(task["title"], title),
        "assigned_agent": cut(task["assigned_agent"], name),
        "lease_expires_at": task["lease_expires_at"],
    }


def _next_task(task: dict, title: int) -> dict:
    return {"id": task["id"], "title": cut(task["title"], title), "priority": task["priority"]}


def _event(event: dict, name: int) -> dict:
    return {
        "id": event["id"],
        "task_id": event["task_id"],
        "event": event["event"],
        "actor": cut(event["actor"], name),
        "to_status": event["to_status"],
        "created": event["created"],
    }


def _last(items: Sequence, count: int) -> Sequence:
    """Return the last `count` items; `items[-0:]` would be all of them."""
    return items[len(items) - min(count, len(items)):]


# ---- session -------------------------------------------------------------------------------------

NOT_A_REQUEST = -32600
UNKNOWN_METHOD = -32601
BAD_ARGUMENTS = -32602
CATALOGUE_CHANGED = -32004
TOOL_FAILED = -32000


@dataclasses.dataclass(frozen=True)
class Call:
    """A tick/call that passed the session: `carry_out` runs it, and its line answers it."""

    id: int
    operation: str
    mutates: bool
    arguments: object


def result_line(request_id: int, result: bytes) -> bytes:
    """Return the answer to a request, whose result is encoded already."""
    return b'{"jsonrpc":"2.0","id":%d,"result":%s}\n' % (request_id, result)


def error_line(request_id: int, code: int, message: str, data: dict | None = None) -> bytes:
    """Return the error that answers a request (T §3.4); text that is no Unicode is left out."""
    error: dict = {"code": code, "message": tam.printable(message)}
    if data is not None and not tam.has_surrogate(data):
        error["data"] = data
    return tam.encode_json({"jsonrpc": "2.0", "id": request_id, "error": error}) + b"\n"


def carry_out(store: tam.Tam, call: Call) -> bytes:
    """Run a call and return the line that answers it, whatever happens (contract, Tick).

    Runs in a thread of its own; `store` is the thread's. A result that would be longer than a line
    may be becomes an error, since the host would have to end the session over it (T §3.6).
    """
    try:
        line = result_line(call.id, tam.encode_json(store.call(call.operation, call.arguments)))
    except tam.TamError as error:
        return error_line(call.id, error.tick_code, error.message, error.as_dict())
    except Exception:  # every request is answered once; the traceback goes to the log
        store.log(traceback.format_exc())
        return _failure(call.id, tam.Internal("the tool failed unexpectedly; see tam's log"))
    if len(line) <= tam.MAX_LINE:
        return line
    text = "the result is longer than the protocol allows: ask for less with `limit`"
    return _failure(call.id, tam.Internal(text, bytes=len(line), limit=tam.MAX_LINE))


def _failure(request_id: int, error: tam.TamError) -> bytes:
    return error_line(request_id, TOOL_FAILED, error.message, error.as_dict())


class Outbox:
    """Lines on their way to the host: all answers, and of the updates the newest (T §8.3)."""

    def __init__(self) -> None:
        self.answers: collections.deque[bytes] = collections.deque()
        self.update: bytes | None = None
        self.size = 0

    def __len__(self) -> int:
        return len(self.answers) + (self.update is not None)

    def put(self, line: bytes) -> None:
        """Add an answer; it is never dropped."""
        self.answers.append(line)
        self.size += len(line)

    def take(self) -> bytes:
        """Return the next line to be written whole; b"" when there is none.

        The update goes first: its state is at least as old as the answers' effects.
        """
        if self.update is not None:
            line, self.update = self.update, None
            return line
        if not self.answers:
            return b""
        line = self.answers.popleft()
        self.size -= len(line)
        return line


class Session:
    """The Tick side of the protocol without any input or output (T §2 to §9).

    Lines of the host go into `receive`, which returns the call to be carried out, if it is one;
    lines for the host come out of `outbox`. `observe` takes what the store holds now.
    `clock` gives Unix seconds, `timer` seconds that never jump, `log` takes one sentence.
    """

    def __init__(
        self,
        *,
        log: Callable[[str], None],
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        described = descriptor()
        self.revision: str = described["revision"]
        self.outbox = Outbox()
        self.pending = 0
        self.looked = False
        self._clock, self._timer, self._log = clock, timer, log
        self._described = tam.encode_json(described)
        self._tools = {tool["name"] for tool in described["tools"]}
        self._seq = 0
        self._data: dict | None = None
        self._state = b""
        self._dropped = 0
        self._due: float | None = None
        self._last_update = float("-inf")
        self._set_state(None)

    # -- what the host sends --

    def receive(self, line: bytes) -> Call | None:
        """Take one line of the host: answer it at once, or return the call that will be.

        A line from which no usable id can be had is dropped without an answer (T §3.2).
        """
        request = self._parsed(line)
        if request is None:
            return None
        request_id = request["id"]
        fault = _envelope_fault(request)
        if fault is not None:
            self._refuse(request_id, NOT_A_REQUEST, fault)
            return None
        method = self.METHODS.get(request["method"])
        if method is None:
            named = cut(repr(request["method"]), 80)
            self._refuse(request_id, UNKNOWN_METHOD, f"there is no method {named}")
            return None
        return method(self, request_id, request.get("params", {}))

    def answer(self, line: bytes) -> None:
        """Send the line that `carry_out` made of a call that `receive` had returned."""
        self.pending -= 1
        self.outbox.put(line)

    def room(self) -> bool:
        """Say whether more may be received; while the host does not read, memory stays bounded."""
        unanswered = self.pending + len(self.outbox.answers)
        return unanswered < MAX_PENDING and self.outbox.size < MAX_UNSENT

    def _parsed(self, line: bytes) -> dict | None:
        if isinstance(line, tam.Overlong):
            return self._drop("is longer than a line may be", line)
        try:
            message = tam.parse_json(line)
        except tam.BadJSON as error:
            return self._drop(error.message, line)
        if not isinstance(message, dict):
            return self._drop("is no object", line)
        request_id = message.get("id")
        if type(request_id) is not int or not 0 <= request_id <= MAX_ID:
            return self._drop("has no unsigned integer as id", line)
        return message

    def _drop(self, reason: str, line: bytes) -> None:
        self._dropped += 1
        if self._dropped <= NOTED_LINES or self._dropped % 1000 == 0:
            self._log(f"tick: line dropped ({self._dropped} so far), it {reason}: {line[:80]!r}")

    def _refuse(self, request_id: int, code: int, message: str, data: dict | None = None) -> None:
        self.outbox.put(error_line(request_id, code, message, data))

    def _describe(self, request_id: int, params: dict) -> None:
        self.outbox.put(result_line(request_id, self._described))

    def _read(self, request_id: int, params: dict) -> None:
        self.outbox.put(result_line(request_id, self._state))

    def _call(self, request_id: int, params: dict) -> Call | None:
        if params.get("revision") != self.revision:
            text = "the catalogue is another one now: describe the Tick and prepare the call again"
            data = {"code": "conflict", "message": text, "details": {"revision": self.revision}}
            self._refuse(request_id, CATALOGUE_CHANGED, text, data)
            return None
        operation = self._operation(params.get("tool"))
        if operation is None:
            named = cut(repr(params.get("tool")), 80)
            self._misfit(request_id, f"there is no tool {named}", tools=sorted(self._tools))
            return None
        if not isinstance(params.get("args"), dict):
            self._misfit(request_id, "args must be an object; it is {} where a tool takes none")
            return None
        self.pending += 1
        return Call(request_id, operation.name, operation.mutates, params["args"])

    def _misfit(self, request_id: int, message: str, **details: object) -> None:
        error = tam.Invalid(message, **details)
        self._refuse(request_id, BAD_ARGUMENTS, message, error.as_dict())

    def _operation(self, tool: object) -> tam.Operation | None:
        if not isinstance(tool, str) or tool not in self._tools:
            return None
        return next(o for o in tam.OPERATIONS.values() if o.tool == tool and "tick" in o.doors)

    METHODS = {"tick/describe": _describe, "tick/read": _read, "tick/call": _call}

    # -- what the store holds --

    def observe(self, data: dict | None) -> None:
        """Take the state as it is now; an update goes out if it is another one (T §8).

        The first look only fills the state. A state of null has no update (T §8.2): reading it is
        the only way to see it, and an update of the project before it is withdrawn.
        """
        if self.looked and data == self._data:
            return
        if self.looked:
            self._seq += 1
        self.looked = True
        self._set_state(data)
        if self._seq == 0 or data is None:
            self.outbox.update = self._due = None
        else:
            self._due = max(self._timer(), self._last_update + UPDATE_GAP)
            self.flush()

    def due(self) -> float | None:
        """Return when `flush` has something to do, in seconds of `timer`; None if never."""
        return self._due

    def flush(self) -> None:
        """Put the newest state into the outbox as an update, if one is due by now."""
        now = self._timer()
        if self._due is None or now < self._due:
            return
        self._due, self._last_update = None, now
        line = b'{"jsonrpc":"2.0","method":"tick/update","params":%s}\n' % self._state
        self.outbox.update = line

    def _set_state(self, data: dict | None) -> None:
        self._data = data
        at = tam.iso_time(int(self._clock()))
        self._state = tam.encode_json({"seq": self._seq, "data": data, "at": at})


def _envelope_fault(request: dict) -> str | None:
    """Return what makes a message with a usable id no request (T §3.2); None if it is one."""
    if request.get("jsonrpc") != "2.0":
        return 'jsonrpc must be "2.0"'
    if not isinstance(request.get("method"), str):
        return "method must be a string"
    if not isinstance(request.get("params", {}), dict):
        return "params must be an object"
    return None


# ---- board: what the person sees, as a value -----------------------------------------------------

COLUMNS = (("todo", "Todo"), ("in-progress", "In Progress"), ("done", "Done"))
NOTHING: tuple[tuple[dict, ...], ...] = ((), (), ())


@dataclasses.dataclass(frozen=True)
class Command:
    """What a key asks of the world outside the board.

    `verb` is "call" (the operation `name` with `arguments`), "theme" (save the theme `name`) or
    "quit". `origin` is the text input it came from, opened again should the command fail.
    """

    verb: str
    name: str = ""
    arguments: dict = dataclasses.field(default_factory=dict)
    origin: Prompt | None = None


QUIT = Command("quit")


@dataclasses.dataclass(frozen=True)
class Prompt:
    """A one-line text input, as what stands before and after the cursor.

    Enter calls `operation` with `arguments` and the text as `argument`; without an operation the
    text is the search, which takes effect while it is typed.
    """

    title: str
    operation: str
    argument: str
    arguments: dict
    before: str = ""
    after: str = ""

    @property
    def text(self) -> str:
        return self.before + self.after


@dataclasses.dataclass(frozen=True)
class Confirm:
    """A question that Enter answers with `command`, and Esc with nothing."""

    question: str
    command: Command


@dataclasses.dataclass(frozen=True)
class Tip:
    """An error to be read; Enter closes it and shows what was there before."""

    text: str
    back: Prompt | Confirm | Help | None = None


@dataclasses.dataclass(frozen=True)
class Help:
    """All keys; `top` is the first line shown."""

    top: int = 0


@dataclasses.dataclass(frozen=True)
class Board:
    """All that a picture of the board depends on, but for its size. Tasks are TaskViews (P §3.3).

    `screen` is "projects", "tasks" or "task". `served` is the project whose state agents read, and
    `wired` says that some may. `project` is the opened one, None on the first screen. `columns` and
    `totals` go with COLUMNS; a selection (`chosen`) is the id of a task, so that it survives what
    others do. `follow` is a task to select once it appears, `leaving` one that leaves its column by
    a key of this board. `now` is in Unix seconds, `page` in rows.
    """

    screen: str = "projects"
    theme: str = "dark"
    wired: bool = False
    served: str | None = None
    loaded: bool = False
    projects: tuple[dict, ...] = ()
    chosen_project: str | None = None
    project: str | None = None
    columns: tuple[tuple[dict, ...], ...] = NOTHING
    totals: tuple[int, ...] = (0, 0, 0)
    column: int = 0
    chosen: tuple[int | None, ...] = (None, None, None)
    follow: int | None = None
    leaving: int | None = None
    search: str = ""
    task_id: int | None = None
    task: dict | None = None
    events: tuple[dict, ...] = ()
    top: int = 0
    overlay: Prompt | Confirm | Tip | Help | None = None
    trouble: str = ""
    now: int = 0
    page: int = 10


Step = tuple[Board, tuple[Command, ...]]
replace = dataclasses.replace

# -- what is selected --


def place_of(items: Sequence[dict], key: str, value: object) -> int:
    """Return the index of the item whose `key` is `value`; 0 when there is none."""
    return next((i for i, item in enumerate(items) if item[key] == value), 0)


def chosen_task(board: Board) -> dict | None:
    """Return the task that keys act on: the opened one, or the selected one; None without tasks."""
    if board.screen == "task":
        return board.task
    tasks = board.columns[board.column]
    return tasks[place_of(tasks, "id", board.chosen[board.column])] if tasks else None


def chosen_project(board: Board) -> dict | None:
    """Return the selected project; None when there is no project."""
    if not board.projects:
        return None
    return board.projects[place_of(board.projects, "name", board.chosen_project)]


def _choose(board: Board, task_id: int | None) -> Board:
    chosen = list(board.chosen)
    chosen[board.column] = task_id
    return replace(board, chosen=tuple(chosen), follow=None)


# -- keys that move --


def _move_project(board: Board, by: int) -> Step:
    if not board.projects:
        return board, ()
    at = place_of(board.projects, "name", board.chosen_project) + by
    return replace(board, chosen_project=board.projects[at % len(board.projects)]["name"]), ()


def _move_task(board: Board, by: int) -> Step:
    tasks = board.columns[board.column]
    if not tasks:
        return board, ()
    at = place_of(tasks, "id", board.chosen[board.column]) + by
    return _choose(board, tasks[min(max(at, 0), len(tasks) - 1)]["id"]), ()


def _move_column(board: Board, by: int) -> Step:
    return replace(board, column=(board.column + by) % len(COLUMNS), follow=None), ()


def _scroll(board: Board, by: int) -> Step:
    return replace(board, top=max(board.top + by, 0)), ()


def _page(move: Callable[[Board, int], Step], sign: int) -> Callable[[Board], Step]:
    return lambda board: move(board, sign * max(board.page - 1, 1))


# -- keys that open and close --


def opened(board: Board, project: str) -> Board:
    """Return the board with the task screen of `project`, still to be filled."""
    fresh = Board(theme=board.theme, wired=board.wired, served=board.served, now=board.now)
    return replace(
        fresh, screen="tasks", project=project, projects=board.projects, page=board.page
    )


def closed(board: Board) -> Board:
    """Return the board with the project screen, on the project that was open."""
    return replace(
        board, screen="projects", project=None, chosen_project=board.project,
        search="", task=None, task_id=None, overlay=None,
    )


def _open_project(board: Board) -> Step:
    project = chosen_project(board)
    return (board if project is None else opened(board, project["name"])), ()


def _open_task(board: Board) -> Step:
    task = chosen_task(board)
    if task is None:
        return board, ()
    return replace(board, screen="task", task_id=task["id"], task=task, events=(), top=0), ()


def _close_task(board: Board) -> Step:
    return replace(board, screen="tasks", task_id=None, task=None, events=()), ()


def _back(board: Board) -> Step:
    """Leave the search if there is one, else the project."""
    return (replace(board, search="") if board.search else closed(board)), ()


def _help(board: Board) -> Step:
    return replace(board, overlay=Help()), ()


def _quit(board: Board) -> Step:
    return board, (QUIT,)


def _switch_theme(board: Board) -> Step:
    theme = "light" if board.theme == "dark" else "dark"
    return replace(board, theme=theme), (Command("theme", theme),)


# -- keys that write --


def _asking(board: Board, prompt: Prompt) -> Step:
    return replace(board, overlay=prompt), ()


def _add_project(board: Board) -> Step:
    return _asking(board, Prompt("Add a project", "project.add", "name", {}))


def _edit_project(board: Board) -> Step:
    project = chosen_project(board)
    if project is None:
        return board, ()
    name = project["name"]
    return _asking(
        board, Prompt("Edit the project", "project.edit", "new_name", {"name": name}, before=name)
    )


def _delete_project(board: Board) -> Step:
    project = chosen_project(board)
    if project is None:
        return board, ()
    command = Command("call", "project.del", {"name": project["name"]})
    question = f"Delete project '{project['name']}' with its tasks?"
    return replace(board, overlay=Confirm(question, command)), ()


def _use_project(board: Board) -> Step:
    project = chosen_project(board)
    if project is None:
        return board, ()
    return board, (Command("call", "project.use", {"name": project["name"]}),)


def _add_task(board: Board) -> Step:
    return _asking(board, Prompt("Add a task", "task.add", "title", {"project": board.project}))


def _edit_task(board: Board) -> Step:
    task = chosen_task(board)
    if task is None:
        return board, ()
    target = {"id": task["id"], "project": board.project}
    title = f"Edit task {task['id']}"
    return _asking(board, Prompt(title, "task.edit", "title", target, before=task["title"]))


def _advance(operation: str) -> Callable[[Board], Step]:
    """Return the key that moves the chosen task by `operation`; the selection stays behind."""

    def step(board: Board) -> Step:
        task = chosen_task(board)
        if task is None:
            return board, ()
        target = {"id": task["id"], "project": board.project}
        return replace(board, leaving=task["id"]), (Command("call", operation, target),)

    return step


def _delete_task(board: Board) -> Step:
    task = chosen_task(board)
    if task is None:
        return board, ()
    command = Command("call", "task.del", {"id": task["id"], "project": board.project})
    question = f"Delete task {task['id']} '{task['title']}'?"
    return replace(board, overlay=Confirm(question, command)), ()


def _search(board: Board) -> Step:
    return _asking(board, Prompt("Search", "", "", {}, before=board.search))


# -- the tables of keys --

ANYWHERE = {"t": _switch_theme, "?": _help, "q": _quit}
ON_A_TASK = {
    "e": _edit_task,
    "s": _advance("task.start"),
    "c": _advance("task.done"),
    "d": _delete_task,
}
KEYS: dict[str, dict[str, Callable[[Board], Step]]] = {
    "projects": {
        "up": lambda board: _move_project(board, -1),
        "down": lambda board: _move_project(board, 1),
        "home": lambda board: _move_project(replace(board, chosen_project=None), 0),
        "end": lambda board: _move_project(replace(board, chosen_project=None), -1),
        "enter": _open_project,
        "a": _add_project,
        "e": _edit_project,
        "d": _delete_project,
        "u": _use_project,
        **ANYWHERE,
    },
    "tasks": {
        "left": lambda board: _move_column(board, -1),
        "right": lambda board: _move_column(board, 1),
        "up": lambda board: _move_task(board, -1),
        "down": lambda board: _move_task(board, 1),
        "pgup": _page(_move_task, -1),
        "pgdn": _page(_move_task, 1),
        "home": lambda board: _move_task(board, -COLUMN_CAP),
        "end": lambda board: _move_task(board, COLUMN_CAP),
        "enter": _open_task,
        "esc": _back,
        "a": _add_task,
        "/": _search,
        **ON_A_TASK,
        **ANYWHERE,
    },
    "task": {
        "up": lambda board: _scroll(board, -1),
        "down": lambda board: _scroll(board, 1),
        "pgup": _page(_scroll, -1),
        "pgdn": _page(_scroll, 1),
        "home": lambda board: (replace(board, top=0), ()),
        "enter": _close_task,
        "esc": _close_task,
        **ON_A_TASK,
        **ANYWHERE,
    },
}

# -- the text input --


def clusters(text: str) -> list[tuple[str, int]]:
    """Split text into what the cursor moves over, each with its cells (see `tam.glyphs`)."""
    return [(character, 1) for character in text] if text.isascii() else tam.glyphs(text)


def _first(text: str) -> str:
    return clusters(text)[0][0] if text else ""


def _but_last(text: str) -> str:
    return "".join(glyph for glyph, _ in clusters(text)[:-1])


def _left(prompt: Prompt) -> Prompt:
    before = _but_last(prompt.before)
    return replace(prompt, before=before, after=prompt.before[len(before) :] + prompt.after)


def _right(prompt: Prompt) -> Prompt:
    first = _first(prompt.after)
    return replace(prompt, before=prompt.before + first, after=prompt.after[len(first) :])


def _rub_out(prompt: Prompt) -> Prompt:
    return replace(prompt, before=_but_last(prompt.before))


def _rub_out_word(prompt: Prompt) -> Prompt:
    words = prompt.before.rstrip(" ")
    return replace(prompt, before=words[: words.rfind(" ") + 1])


EDITING: dict[str, Callable[[Prompt], Prompt]] = {
    "left": _left,
    "right": _right,
    "home": lambda prompt: replace(prompt, before="", after=prompt.text),
    "end": lambda prompt: replace(prompt, before=prompt.text, after=""),
    "backspace": _rub_out,
    "delete": lambda prompt: replace(prompt, after=prompt.after[len(_first(prompt.after)) :]),
    "ctrl-u": lambda prompt: replace(prompt, before=""),
    "ctrl-k": lambda prompt: replace(prompt, after=""),
    "ctrl-w": _rub_out_word,
}


def typed(key: str) -> str:
    """Return the text that a key types, on one line and without control characters; "" if none."""
    if key.startswith(PASTE):
        text = " ".join(key.removeprefix(PASTE).split())
    else:
        text = key if len(key) == 1 else ""
    return "".join(c for c in text if c.isprintable() or c in JOINERS)


#: A key of this beginning is a pasted text: it is never taken for commands.
PASTE = "paste:"
#: Format characters inside joined emoji and some scripts: typed text may hold them.
JOINERS = "\u200c\u200d"


def _press_prompt(board: Board, key: str) -> Step:
    prompt = board.overlay
    if key == "esc":
        search = board.search if prompt.operation else ""
        return replace(board, overlay=None, search=search), ()
    if key == "enter":
        return _submit(replace(board, overlay=None), prompt)
    if key in EDITING:
        prompt = EDITING[key](prompt)
    else:
        prompt = replace(prompt, before=prompt.before + typed(key))
    search = board.search if prompt.operation else prompt.text
    return replace(board, overlay=prompt, search=search), ()


def _submit(board: Board, prompt: Prompt) -> Step:
    if not prompt.operation:
        return replace(board, search=prompt.text.strip()), ()
    arguments = {**prompt.arguments, prompt.argument: prompt.text}
    return board, (Command("call", prompt.operation, arguments, origin=prompt),)


def _press_confirm(board: Board, key: str) -> Step:
    if key == "enter":
        return replace(board, overlay=None), (board.overlay.command,)
    return (replace(board, overlay=None) if key == "esc" else board), ()


def _press_tip(board: Board, key: str) -> Step:
    return (replace(board, overlay=board.overlay.back) if key in ("enter", "esc") else board), ()


def _press_help(board: Board, key: str) -> Step:
    moves = {"up": -1, "down": 1, "pgup": -board.page, "pgdn": board.page}
    if key in moves:
        return replace(board, overlay=Help(max(board.overlay.top + moves[key], 0))), ()
    return replace(board, overlay=None), ()


OVERLAY_KEYS: dict[type, Callable[[Board, str], Step]] = {
    Prompt: _press_prompt,
    Confirm: _press_confirm,
    Tip: _press_tip,
    Help: _press_help,
}


def press(board: Board, key: str) -> Step:
    """Return the board after a key, and what the key asks of the world.

    Keys are characters, the names in SEQUENCES and CONTROLS, and PASTE with a text.
    """
    if key == "ctrl-c":
        return board, (QUIT,)
    if board.overlay is not None:
        return OVERLAY_KEYS[type(board.overlay)](board, key)
    action = KEYS[board.screen].get(key)
    return (board, ()) if action is None else action(board)


# -- what arrives --


@dataclasses.dataclass(frozen=True)
class Interest:
    """What of the store a board shows, and so what the watcher reads for it."""

    screen: str
    project: str | None
    task_id: int | None
    search: str


@dataclasses.dataclass(frozen=True)
class View:
    """What the watcher read for an interest: `content` by the screen, or `problem`."""

    interest: Interest
    served: str | None
    content: dict = dataclasses.field(default_factory=dict)
    problem: tam.TamError | None = None


def interest(board: Board) -> Interest:
    """Return what the board shows."""
    return Interest(board.screen, board.project, board.task_id, board.search)


def arrange(board: Board, view: View) -> Board:
    """Return the board with what was read; nothing that others do moves the selection away."""
    follows = board.wired and board.project == board.served and view.served != board.served
    board = replace(board, served=view.served)
    typing = isinstance(board.overlay, (Prompt, Confirm))
    if follows and view.served is not None and not typing:
        return opened(board, view.served)
    if view.interest != interest(board):
        return board
    if view.problem is not None:
        return _trouble(board, view.problem)
    return ARRANGERS[board.screen](replace(board, trouble="", loaded=True), view.content)


def _trouble(board: Board, problem: tam.TamError) -> Board:
    """Leave what is gone, and show each other problem once, not at every look."""
    tip = Tip(problem.message)
    if problem.code == "not_found" and board.screen == "task":
        return replace(_close_task(board)[0], overlay=tip)
    if problem.code == "not_found" and board.screen == "tasks":
        return replace(closed(board), overlay=tip)
    if problem.message == board.trouble or board.overlay is not None:
        return board
    return replace(board, overlay=tip, trouble=problem.message)


def _arrange_projects(board: Board, content: dict) -> Board:
    projects = tuple(content["projects"])
    wanted = board.chosen_project if board.chosen_project is not None else board.served
    kept = _kept(board.projects, projects, "name", wanted)
    return replace(board, projects=projects, chosen_project=kept)


def _arrange_tasks(board: Board, content: dict) -> Board:
    columns = tuple(tuple(tasks) for tasks in content["columns"])
    chosen = tuple(
        _kept(old, new, "id", wanted)
        for old, new, wanted in zip(board.columns, columns, board.chosen, strict=True)
    )
    wanted = board.follow
    if wanted is None and board.chosen[board.column] != board.leaving:
        wanted = board.chosen[board.column]
    board = replace(board, columns=columns, totals=tuple(content["totals"]), chosen=chosen)
    if board.leaving is not None and board.leaving not in map(_id, columns[board.column]):
        board = replace(board, leaving=None)
    if board.search and not columns[board.column]:
        found = next((column for column, tasks in enumerate(columns) if tasks), board.column)
        board = replace(board, column=found)
    return _selected(board, wanted)


def _selected(board: Board, task_id: int | None) -> Board:
    """Return the board with that task selected, in whichever column it is now."""
    for column, tasks in enumerate(board.columns):
        if task_id in map(_id, tasks):
            return _choose(replace(board, column=column), task_id)
    return board


def _id(task: dict) -> int:
    return task["id"]


def _kept(old: Sequence[dict], new: Sequence[dict], key: str, wanted: object) -> object:
    """Return `wanted` if it is still there, else what stands in its place now; None in no list."""
    if not new:
        return None
    if any(item[key] == wanted for item in new):
        return wanted
    return new[min(place_of(old, key, wanted), len(new) - 1)][key]


def _arrange_task(board: Board, content: dict) -> Board:
    return replace(board, task=content["task"], events=tuple(content["events"]))


ARRANGERS: dict[str, Callable[[Board, dict], Board]] = {
    "projects": _arrange_projects,
    "tasks": _arrange_tasks,
    "task": _arrange_task,
}


def settled(board: Board, command: Command, result: object) -> Board:
    """Return the board after a command that succeeded: what was made gets selected."""
    if command.name == "task.add":
        return replace(board, follow=result["task"]["id"])
    if command.name in ("project.add", "project.edit"):
        return replace(board, chosen_project=result["project"]["name"])
    if command.name == "task.del" and board.task_id == command.arguments["id"]:
        return _close_task(board)[0]
    return board


def failed(board: Board, command: Command, message: str) -> Board:
    """Return the board with the reason why a command failed; Enter leads back to its text."""
    return replace(board, leaving=None, overlay=Tip(message, board.overlay or command.origin))


# ---- render: the board as lines of styled text ---------------------------------------------------

#: A piece of a line: its text, and the name of its style in STYLES.
Span = tuple[str, str]
Line = list[Span]

#: From this width on the three columns stand side by side; below it only the chosen one is shown.
WIDE = 66
#: From this height on there is a title bar; from the second on a help bar.
TITLE_HEIGHT, HELP_HEIGHT = 8, 4
#: Rows of a column from which on a card has two lines.
TALL_COLUMN = 8


@dataclasses.dataclass(frozen=True)
class Screen:
    """A picture: exactly `height` lines of exactly `width` cells, and where the cursor is shown."""

    lines: list[Line]
    cursor: tuple[int, int] | None = None

    def text(self) -> list[str]:
        """Return the lines without their styles."""
        return ["".join(text for text, _ in line) for line in self.lines]


# -- text that is safe to show --

#: Selectors of a style, and the tags of a regional flag: no terminal agrees on their width.
UNSEEN = frozenset("\ufe0e\ufe0f") | {chr(code) for code in range(0xE0020, 0xE0080)}
SKIN_TONES = frozenset(chr(code) for code in range(0x1F3FB, 0x1F400))
ZERO_WIDTH_JOINER = "\u200d"


@functools.lru_cache(maxsize=4096)
def screen_text(text: str) -> str:
    """Return one harmless line whose width all terminals agree on.

    Control characters, escapes and overrides are made visible by `tam.printable`. Of a joined
    emoji the first member is shown, since terminals give the others two cells each, or none.
    """
    return tam.printable(text if text.isascii() else _plain_emoji(text))


def _plain_emoji(text: str) -> str:
    shown: list[str] = []
    joined = False  # whether the last character shown is joined to what comes
    for character in text:
        pictured = bool(shown) and _is_emoji(shown[-1])
        if character in UNSEEN:
            continue
        if character == ZERO_WIDTH_JOINER:
            joined = True
        elif character in SKIN_TONES:
            shown += [] if pictured else ["\ufffd"]
        elif not (joined and pictured and _is_emoji(character)):
            # Some scripts need the joiner; behind anything else it would only confuse.
            shown.append(ZERO_WIDTH_JOINER if joined and character < "\u2000" else "")
            shown.append(character)
            joined = False
        else:
            joined = False
    return "".join(shown)


def _is_emoji(character: str) -> bool:
    return character >= "\U0001f000" or "\u2600" <= character <= "\u27bf"


def _pieces(word: str, width: int) -> list[str]:
    """Cut a word into pieces of at most `width` cells; a glyph that is wider stands alone."""
    pieces = [""]
    room = width
    for glyph, cells in clusters(word):
        if cells > room and pieces[-1]:
            pieces.append("")
            room = width
        pieces[-1] += glyph
        room -= cells
    return pieces


@functools.lru_cache(maxsize=64)
def wrapped(text: str, width: int) -> tuple[str, ...]:
    """Break text into harmless lines of at most `width` cells, at spaces where there are some."""
    lines: list[str] = []
    for paragraph in text.expandtabs(4).split("\n"):
        lines.extend(_wrapped_paragraph(screen_text(paragraph), width))
    return tuple(lines)


def _wrapped_paragraph(text: str, width: int) -> list[str]:
    lines: list[str] = []
    line: str | None = None
    for word in text.split(" "):
        longer = word if line is None else f"{line} {word}"
        if tam.cell_width(longer) <= width:
            line = longer
            continue
        if line is not None:
            lines.append(line)
        *full, line = _pieces(word, width)
        lines.extend(full)
    return [*lines, line or ""]


def left_text(seconds: float) -> str:
    """Return a time that is left, in seconds, in at most six characters: 45s, 12m, 2h05m, 3d04h."""
    seconds = int(seconds)
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m"
    if seconds < 86400:
        return f"{seconds // 3600}h{seconds % 3600 // 60:02}m"
    return f"{seconds // 86400}d{seconds % 86400 // 3600:02}h"


def moment(text: str | None) -> str:
    """Return a time of a view for people: 2026-11-08 09:00:05Z."""
    return "-" if text is None else screen_text(text).replace("T", " ")


def lease_left(task: dict, now: float) -> int | None:
    """Return the whole seconds that a task's lease still runs, 0 once it is over; None without."""
    if task["assigned_agent"] is None or task["lease_expires_at"] is None:
        return None
    try:
        end = datetime.datetime.fromisoformat(task["lease_expires_at"]).timestamp()
    except ValueError:  # written by other hands: a time that nobody can read is over
        return 0
    return max(int(end - now), 0)


def next_change(board: Board) -> int | None:
    """Return the seconds after which a time on the board reads otherwise; None if none is shown."""
    tasks = board.columns[1] if board.screen == "tasks" else ()
    if board.screen == "task" and board.task is not None:
        tasks = (board.task,)
    running = [left for left in (lease_left(task, board.now) for task in tasks) if left]
    return min((1 if left < 60 else left % 60 + 1 for left in running), default=None)


# -- lines --


def line_width(line: Line) -> int:
    """Return the cells of a line."""
    return sum(tam.cell_width(text) for text, _ in line)


def fill(line: Line, width: int, style: str = "base") -> Line:
    """Return the line in exactly `width` cells: cut with a sign, or filled with spaces."""
    filled: Line = []
    room = width
    for text, name in line:
        shown = tam.fit(text, room) if room > 0 else ""
        if shown:
            filled.append((shown, name))
            room -= tam.cell_width(shown)
        if shown != text:
            break
    return [*filled, (" " * room, style)] if room > 0 else filled


def slice_line(line: Line, start: int, stop: int) -> Line:
    """Return the cells `start` to `stop` of a line; half of a wide character becomes a space."""
    sliced: Line = []
    at = 0
    for text, style in line:
        kept = ""
        for glyph, width in clusters(text):
            inside = min(at + width, stop) - max(at, start)
            if inside > 0:
                kept += glyph if inside == width else " " * inside
            at += width
        if kept:
            sliced.append((kept, style))
    return sliced


def spread(left: Line, right: Line, width: int, style: str) -> Line:
    """Return a line with one part at its left and, where there is room for it, one at its right."""
    gap = width - line_width(left) - line_width(right)
    if gap < 1:
        return fill(left, width, style)
    return [*left, (" " * gap, style), *right]


def restyled(line: Line, style: str) -> Line:
    """Return the line in one style."""
    return [(text, style) for text, _ in line]


def boxed(content: list[Line], size: tuple[int, int], style: str, **labels: Line) -> list[Line]:
    """Return a frame of `size` (width, height) in `style` around the content.

    `labels` are lines set into the frame: `title` and `above` in its upper edge, `below` in its
    lower one.
    """
    width, height = size
    inner = max(width - 2, 0)
    lines = content[: max(height - 2, 0)]
    lines += [[] for _ in range(height - 2 - len(lines))]
    upper = _edge(labels.get("title", []), labels.get("above", []), inner, style)
    lower = _edge([], labels.get("below", []), inner, style)
    body = [[("│", style), *fill(line, inner), ("│", style)] for line in lines]
    return [[("╭", style), *upper, ("╮", style)], *body, [("╰", style), *lower, ("╯", style)]]


def _edge(left: Line, right: Line, width: int, style: str) -> Line:
    """Return a frame's edge with a label near either end; the right one gives way."""
    start: Line = [("─", style), *left] if left else []
    end: Line = [*right, ("─", style)] if right else []
    room = width - line_width(start) - line_width(end)
    if room < 0:
        start = fill(start, min(line_width(start), width), style)
        end = fill(end, min(line_width(end), width - line_width(start)), style)
        room = width - line_width(start) - line_width(end)
    return [*start, ("─" * room, style), *end]


def signed(lines: list[Line], above: int, below: int, width: int) -> list[Line]:
    """Return unframed lines, the first and the last with a sign of what is beyond them."""
    signed_lines = list(lines)
    for at, sign, count in ((0, "▲", above), (-1, "▼", below)):
        if count > 0 and lines:
            mark = f" {sign}{count}"
            signed_lines[at] = [*fill(signed_lines[at], width - len(mark)), (mark, "more")]
    return signed_lines


def window(count: int, at: int, room: int) -> int:
    """Return the first of `room` items shown of `count`, so that `at` stands in the middle."""
    return max(min(at - room // 2, count - room), 0)


# -- cards and columns --


def priority(task: dict) -> Span:
    """Return a task's priority, which is never left out of a card."""
    level = task["priority"]
    return (f"P{level}", f"p{level}" if level in (1, 2, 4, 5) else "p3")


def holder(task: dict, now: float, room: int) -> Line:
    """Return who holds the task's lease and for how long, in at most `room` cells."""
    left = lease_left(task, now)
    if left is None:
        return []
    rest = f" {left_text(left)}" if left else " expired"
    style = "lease" if left else "late"
    name = "@" + screen_text(task["assigned_agent"])
    if room < len(rest) + 6:
        return [(tam.fit(name, room), style)]
    return [(tam.fit(name, room - len(rest)) + rest, style)]


def short_card(task: dict, now: float, width: int) -> list[Line]:
    """Return a card of one line: priority, id, title, and the holder at the right."""
    right = holder(task, now, max(width // 3, 5))
    left: Line = [priority(task), (f" {task['id']} ", "dim"), (screen_text(task["title"]), "base")]
    room = width - line_width(right) - (1 if right else 0)
    return [spread(fill(left, max(room, 0)), right, width, "base")]


def tall_card(task: dict, now: float, width: int) -> list[Line]:
    """Return a card of one line, or of two where there is more of the title, a holder or tags."""
    first: Line = [(" ", "base"), priority(task), (f" {task['id']} ", "dim")]
    room = max(width - line_width(first), 1)
    title = screen_text(task["title"])
    shown = _wrapped_paragraph(title, room)[0]
    rest = title[len(shown) :].strip()
    about = _about(task, now, width - 4)
    space = width - 4 - line_width(about) - (1 if about else 0)
    if rest and space < 12:
        shown, rest = tam.fit(title, room), ""
    lines = [fill([*first, (shown, "base")], width)]
    if rest or about:
        left = fill([(" " * 4, "base"), (rest, "base")], space + 4) if rest else [(" " * 4, "base")]
        lines.append(spread(left, about, width, "base") if rest else fill([*left, *about], width))
    return lines


def _about(task: dict, now: float, room: int) -> Line:
    """Return who holds a task, and its tags."""
    about = holder(task, now, max(room, 0))
    if task["tags"]:
        tags = " ".join("#" + screen_text(tag) for tag in task["tags"])
        about.append(((" " if about else "") + tags, "tag"))
    return about if line_width(about) <= room else fill(about, max(room, 0))


def visible(
    count: int, at: int, rows: int, draw: Callable[[int], list[Line]]
) -> tuple[int, list[list[Line]]]:
    """Return the first of the cards that fit into `rows` lines around the one at `at`, and them.

    `draw` returns the lines of a card. The chosen card stands in the middle where it can.
    """
    first, shown = at, collections.deque([draw(at)])
    free = rows - len(shown[0])
    for half, step in ((free // 2, -1), (0, 1), (0, -1)):
        while 0 <= (place := first - 1 if step < 0 else first + len(shown)) < count:
            card = draw(place)
            if free - len(card) < half:
                break
            free -= len(card)
            if step < 0:
                shown.appendleft(card)
                first = place
            else:
                shown.append(card)
    return first, list(shown)


def cards(board: Board, column: int, width: int, rows: int) -> tuple[list[Line], int, int]:
    """Return a column's cards in at most `rows` lines, and how many tasks are above and below."""
    tasks = board.columns[column]
    if not tasks:
        return _no_tasks(board), 0, 0
    kind = tall_card if rows >= TALL_COLUMN else short_card
    at = place_of(tasks, "id", board.chosen[column])

    def draw(place: int) -> list[Line]:
        card = kind(tasks[place], board.now, width)
        marked = place == at and column == board.column
        return [restyled(line, "chosen") for line in card] if marked else card

    first, shown = visible(len(tasks), at, rows, draw)
    below = max(board.totals[column], len(tasks)) - first - len(shown)
    return [line for card in shown for line in card], first, below


def _no_tasks(board: Board) -> list[Line]:
    if not board.loaded:
        return [[(" loading …", "dim")]]
    return [[(" nothing found" if board.search else " no tasks", "dim")]]


def side_by_side(board: Board, width: int, height: int) -> list[Line]:
    """Return the three columns, each in a frame; the chosen one is marked by its colour."""
    widths = [width // 3 + (1 if column < width % 3 else 0) for column in range(3)]
    boxes = [
        _column_box(board, column, widths[column], height) for column in range(len(COLUMNS))
    ]
    return [[*left, *middle, *right] for left, middle, right in zip(*boxes, strict=True)]


def _column_box(board: Board, column: int, width: int, height: int) -> list[Line]:
    style, name = ("focus", "focus") if column == board.column else ("border", "title")
    lines, above, below = cards(board, column, width - 2, height - 2)
    return boxed(
        lines, (width, height), style,
        title=[(f" {COLUMNS[column][1]} ", name), (f"{board.totals[column]} ", "dim")],
        above=[(f" ▲ {above} more ", "more")] if above else [],
        below=[(f" ▼ {below} more ", "more")] if below else [],
    )


def one_column(board: Board, width: int, height: int) -> list[Line]:
    """Return the chosen column alone, under a line that names all three, or as many as fit."""
    lines, above, below = cards(board, board.column, width, height - 1)
    signs = f"▲{above} " * (above > 0) + f"▼{below} " * (below > 0)
    names: Line = []
    for column, (_, title) in enumerate(COLUMNS):
        style = "tab" if column == board.column else "dim"
        names.append((f" {title} {board.totals[column]} ", style))
    if line_width(names) + len(signs) + 1 > width:
        names = [("‹", "focus"), names[board.column], ("›", "focus")]
    if line_width(names) + len(signs) + 1 > width:
        signs = "▲" * (above > 0) + "▼" * (below > 0)
    return [spread(names, [(signs, "more")], width, "base"), *lines]


def tasks_screen(board: Board, width: int, height: int) -> list[Line]:
    """Return the body of the task screen."""
    return (side_by_side if width >= WIDE else one_column)(board, width, height)


# -- the other screens --


def projects_screen(board: Board, width: int, height: int) -> list[Line]:
    """Return the body of the project screen: one project a line, the current one marked."""
    framed = height >= 5 and width >= 10
    room = max(height - 2 * framed, 1)
    at = place_of(board.projects, "name", board.chosen_project)
    first = window(len(board.projects), at, room)
    inner = width - 2 * framed
    lines = [
        _project_line(board, project, inner, place == at)
        for place, project in enumerate(board.projects[first : first + room], first)
    ]
    below = len(board.projects) - first - room
    if not framed:
        return signed(lines, first, below, width) or _no_projects(board)
    return boxed(
        lines or _no_projects(board), (width, height), "focus",
        title=[(" Projects ", "focus"), (f"{len(board.projects)} ", "dim")],
        above=[(f" ▲ {first} more ", "more")] if first else [],
        below=[(f" ▼ {below} more ", "more")] if below > 0 else [],
    )


def _project_line(board: Board, project: dict, width: int, marked: bool) -> Line:
    current = project["name"] == board.served
    left: Line = [
        (" ● " if current else "   ", "lease"),
        (screen_text(project["name"]), "title" if current else "base"),
    ]
    right: Line = [(f"created {moment(project['created'])[:10]} ", "dim")] if width >= 50 else []
    room = width - line_width(right) - (1 if right else 0)
    line = spread(fill(left, room), right, width, "base")
    return restyled(line, "chosen") if marked else line


def _no_projects(board: Board) -> list[Line]:
    if not board.loaded:
        return [[(" loading …", "dim")]]
    return [[(" no projects yet: ", "dim"), ("a", "focus"), (" adds one", "dim")]]


def task_lines(board: Board, width: int) -> list[Line]:
    """Return all lines of a task's detail: facts, description and events, newest first."""
    task = board.task
    if task is None:
        return [[("loading …", "dim")]]
    lines: list[Line] = [[(text, "title")] for text in wrapped(task["title"], width)]
    lines.append([])
    for name, value in _facts(board, task):
        lines += _fact(name, value, width)
    if task["description"]:
        lines += [[], [("Description", "focus")]]
        lines += [[(text, "base")] for text in wrapped(task["description"], width)]
    if board.events:
        lines += [[], [("Events", "focus"), (" newest first", "dim")]]
        lines += [_event_line(event) for event in reversed(board.events)]
    return lines


def _facts(board: Board, task: dict) -> list[tuple[str, Span]]:
    """Return the facts of a task, each with its name."""
    left = lease_left(task, board.now)
    lease: Span = ("nobody holds it", "dim")
    if left is not None:
        rest = f"{left_text(left)} left, until" if left else "expired at"
        agent = screen_text(task["assigned_agent"])
        until = moment(task["lease_expires_at"])
        lease = (f"{agent}, {rest} {until}", "lease" if left else "late")
    tags = ", ".join(screen_text(tag) for tag in task["tags"])
    return [
        ("Status", (dict(COLUMNS)[task["status"]], "base")),
        ("Priority", priority(task)),
        ("Tags", (tags or "none", "tag" if tags else "dim")),
        ("Lease", lease),
        ("Created", (moment(task["created"]), "base")),
        ("Updated", (f"{moment(task['updated'])}, revision {task['revision']}", "base")),
    ]


def _fact(name: str, value: Span, width: int) -> list[Line]:
    """Return a fact beside its name, wrapped; below it where the screen is too narrow."""
    text, style = value
    margin = 10 if width >= 30 else 0
    first: Line = [(f"{name:<10}" if margin else f"{name}: ", "dim")]
    if not margin:
        return [[*first, (text, style)]]
    lines: list[Line] = [[(part, style)] for part in wrapped(text, width - margin)]
    return [[*first, *lines[0]], *([(" " * margin, "base"), *line] for line in lines[1:])]


def _event_line(event: dict) -> Line:
    """Return what happened to a task in one line: when, what, who, and from where to where."""
    line: Line = [
        (moment(event["created"]), "dim"),
        (f"  {screen_text(event['event']):<9}  ", "base"),
        (screen_text(event["actor"]), "lease" if event["actor"] != "human" else "base"),
    ]
    if event["from_status"] != event["to_status"] and event["to_status"] is not None:
        start = f"{event['from_status']} → " if event["from_status"] is not None else ""
        line.append((f"  {start}{event['to_status']}", "dim"))
    return line


def task_screen(board: Board, width: int, height: int) -> list[Line]:
    """Return the body of the detail screen, from the line `top` on."""
    framed = width >= 40 and height >= 5
    inner, room = (width - 4, height - 2) if framed else (width, height)
    lines = task_lines(board, inner)
    top = min(board.top, _last_top(len(lines), room))
    shown = lines[top : top + room]
    below = len(lines) - top - room
    if not framed:
        return signed(shown, top, below, width)
    return boxed(
        [[(" ", "base"), *line] for line in shown], (width, height), "focus",
        title=[(f" Task {board.task_id} ", "focus")],
        above=[(f" ▲ {top} more ", "more")] if top else [],
        below=[(f" ▼ {below} more ", "more")] if below > 0 else [],
    )


def _last_top(count: int, room: int) -> int:
    return max(count - room, 0)


SCREENS: dict[str, Callable[[Board, int, int], list[Line]]] = {
    "projects": projects_screen,
    "tasks": tasks_screen,
    "task": task_screen,
}

# -- the bars --

#: The help bar of each screen, the most important first: what does not fit is left to `?`.
HELP_BARS = {
    "projects": "Enter open|a add|e edit|d delete|u use|t theme|↑↓ move",
    "tasks": "a add|e edit|s start|c complete|d delete|Enter detail|/ search|Esc back|t theme|"
    "←→ column|↑↓ move",
    "task": "Esc back|s start|c complete|e edit|d delete|↑↓ scroll|t theme",
}
ALWAYS = "? help|q quit"


def title_bar(board: Board, width: int) -> Line:
    """Return the first line: where one is, what is searched for, and what agents see."""
    left: Line = [(" tam ", "brand")]
    if board.project is not None:
        left.append((f" {screen_text(board.project)} ", "bar"))
    if board.search:
        left.append((f" /{screen_text(board.search)} ", "key"))
    right: Line = []
    if board.wired and board.served is None:
        right = [(" agents see no project ", "bar")]
    elif board.wired and board.served == board.project:
        right = [(" ● agents see this project ", "bar")]
    elif board.wired:
        right = [(f" agents see {screen_text(board.served)} ", "bar")]
    return spread(left, right, width, "bar")


def help_bar(board: Board, width: int) -> Line:
    """Return the last line: as many keys as fit, and always how to see the others."""
    always = _keys(ALWAYS)
    room = width - line_width(always)
    line: Line = []
    for key in HELP_BARS[board.screen].split("|"):
        span = _keys(key)
        if line_width(line) + line_width(span) > room:
            break
        line += span
    return fill([*line, *always], width, "bar")


def _keys(text: str) -> Line:
    line: Line = []
    for part in text.split("|"):
        key, meaning = part.split(" ", 1)
        line += [(f" {key}", "key"), (f" {meaning} ", "bar")]
    return line


# -- what lies over the screen --

HELP = {
    "Projects": (
        ("↑ ↓", "choose, around the ends"),
        ("Enter", "open"),
        ("a  e  d", "add, edit the name, delete"),
        ("u", "use: make it the current project"),
    ),
    "Tasks": (
        ("← →", "column, around the ends"),
        ("↑ ↓", "task; PgUp PgDn Home End too"),
        ("Enter", "show all of a task"),
        ("a  e", "add, edit the title"),
        ("s  c", "start, complete"),
        ("d", "delete, after a question"),
        ("/", "search titles and descriptions"),
        ("Esc", "leave the search, then the project"),
    ),
    "Everywhere": (
        ("t", "dark or light, kept for next time"),
        ("?", "this help"),
        ("q", "quit; Ctrl-C too"),
    ),
    "A card": (
        ("P1 … P5", "priority, 1 is the highest"),
        ("@agent 12m", "who holds it, and for how long"),
        ("●", "the current project"),
    ),
}


def help_lines() -> list[Line]:
    """Return the keys of all screens."""
    lines: list[Line] = []
    for heading, rows in HELP.items():
        lines += [[(heading, "focus")]]
        lines += [[(f"  {key:<11}", "title"), (meaning, "base")] for key, meaning in rows]
    return lines


def over(board: Board, width: int, height: int) -> tuple[list[Line], tuple[int, int] | None]:
    """Return the box of the board's overlay, and the cursor in it."""
    overlay = board.overlay
    if isinstance(overlay, Prompt):
        return prompt_box(overlay, width, height)
    if isinstance(overlay, Help):
        return _help_box(overlay, width, height), None
    if isinstance(overlay, Confirm):
        keys = " Enter delete · Esc cancel "
        return _message_box(overlay.question, " Sure? ", keys, (width, height)), None
    keys = " Enter closes "
    return _message_box(overlay.text, " That did not work ", keys, (width, height)), None


def prompt_box(prompt: Prompt, width: int, height: int) -> tuple[list[Line], tuple[int, int]]:
    """Return the text input, scrolled sideways so that the cursor is in it, and the cursor."""
    outer = min(width, 72)
    framed = height >= 3 and outer >= 10
    inner = max(outer - 4 if framed else outer, 1)
    before, after = screen_text(prompt.before), screen_text(prompt.after)
    used = tam.cell_width(before)
    shift = max(used - inner + 1, 0)
    cells: Line = [(before, "base"), (after + " " * inner, "base")]
    line = fill(slice_line(cells, shift, shift + inner), inner)
    if not framed:
        return [line], (0, used - shift)
    keys = "Enter keep · Esc clear" if not prompt.operation else "Enter save · Esc cancel"
    box = boxed(
        [[(" ", "base"), *line]], (outer, 3), "focus",
        title=[(f" {screen_text(prompt.title)} ", "focus")], below=[(f" {keys} ", "dim")],
    )
    return box, (1, 2 + used - shift)


def _message_box(text: str, title: str, keys: str, size: tuple[int, int]) -> list[Line]:
    width, height = min(size[0], 64), size[1]
    lines: list[Line] = [[(part, "base")] for part in wrapped(text, max(width - 4, 1))]
    if height < 3 or width < 10:
        return [fill(line, width) for line in lines[:height]]
    room = height - 2
    if len(lines) > room:
        lines = [*lines[: room - 1], [("…", "base")]]
    inset: list[Line] = [[(" ", "base"), *line] for line in lines]
    return boxed(
        inset, (width, len(lines) + 2), "alert", title=[(title, "alert")], below=[(keys, "dim")]
    )


def _help_box(overlay: Help, width: int, height: int) -> list[Line]:
    lines = help_lines()
    room = max(height - 2, 1)
    top = min(overlay.top, _last_top(len(lines), room))
    if height < 3 or width < 10:
        return [fill(line, width) for line in lines[top : top + height]]
    below = len(lines) - top - room
    size = (min(width, 54), min(len(lines), room) + 2)
    inset: list[Line] = [[(" ", "base"), *line] for line in lines[top : top + room]]
    sign = f" ▼ {below} more · ↓ " if below > 0 else " any key closes "
    return boxed(inset, size, "focus", title=[(" Keys ", "focus")], below=[(sign, "more")])


# -- the whole --


def render(board: Board, width: int, height: int) -> Screen:
    """Return the picture of a board in `width` by `height` cells, each at least 1.

    Pure: the same board and size give the same picture. Small sizes leave things out, in the order
    of their importance, and never fail.
    """
    lines = _chrome(board, width, height)
    lines = [fill(line, width) for line in lines[:height]]
    lines += [fill([], width) for _ in range(height - len(lines))]
    if board.overlay is None:
        return Screen(lines)
    box, cursor = over(board, width, height)
    searching = isinstance(board.overlay, Prompt) and not board.overlay.operation
    row = max(height - len(box) if searching else (height - len(box)) // 2, 0)
    column = max((width - line_width(box[0])) // 2, 0)
    for at, line in enumerate(box[: height - row], row):
        end = column + line_width(line)
        under = lines[at]
        lines[at] = [*slice_line(under, 0, column), *line, *slice_line(under, end, width)]
    if cursor is None:
        return Screen(lines)
    return Screen(lines, (min(row + cursor[0], height - 1), min(column + cursor[1], width - 1)))


def _chrome(board: Board, width: int, height: int) -> list[Line]:
    """Return the lines of the screen and of the bars for which there is room."""
    titled, helped = height >= TITLE_HEIGHT, height >= HELP_HEIGHT
    room = height - titled - helped
    body = [fill(line, width) for line in SCREENS[board.screen](board, width, room)][:room]
    body += [[] for _ in range(room - len(body))]
    top = [title_bar(board, width)] if titled else []
    return [*top, *body, *([help_bar(board, width)] if helped else [])]


def within(board: Board, width: int, height: int) -> Board:
    """Return the board with its scrolling kept inside what there is to see at this size."""
    page = max(height - (height >= TITLE_HEIGHT) - (height >= HELP_HEIGHT) - 2, 1)
    top, overlay = board.top, board.overlay
    if board.screen == "task":
        framed = width >= 40
        count = len(task_lines(board, width - 4 if framed else width))
        top = min(top, _last_top(count, page if framed else page + 2))
    if isinstance(overlay, Help):
        overlay = Help(min(overlay.top, _last_top(len(help_lines()), max(height - 2, 1))))
    return replace(board, page=page, top=top, overlay=overlay)


# ---- terminal: bytes to keys, lines to curses, and all of it given back --------------------------

ESCAPE = "\x1b"
CONTROLS = {
    "\r": "enter", "\n": "enter", "\t": "tab", "\x7f": "backspace", "\x08": "backspace",
    "\x01": "home", "\x03": "ctrl-c", "\x05": "end", "\x0b": "ctrl-k", "\x15": "ctrl-u",
    "\x17": "ctrl-w",
}
#: What terminals send after an escape byte for the keys that the board knows.
SEQUENCES = {
    "[A": "up", "[B": "down", "[C": "right", "[D": "left",
    "OA": "up", "OB": "down", "OC": "right", "OD": "left",
    "[H": "home", "OH": "home", "[1~": "home", "[7~": "home",
    "[F": "end", "OF": "end", "[4~": "end", "[8~": "end",
    "[5~": "pgup", "[6~": "pgdn", "[3~": "delete", "OM": "enter",
}
_SEQUENCE = re.compile(r"\[[0-?]*[ -/]*[@-~]|O[@-~]")
_UNFINISHED = re.compile(r"(\[[0-?]*[ -/]*|O)?\Z")
PASTE_START, PASTE_END = ESCAPE + "[200~", ESCAPE + "[201~"
#: Characters of one paste that are taken at most; what is longer is dropped whole.
PASTE_LIMIT = 1 << 16


def next_key(text: str) -> tuple[str, int]:
    """Return the first key of what a terminal sent, and its length in characters.

    The key is "" for what means nothing here. The length is 0 while the key is incomplete.
    """
    if text.startswith(PASTE_START):
        end = text.find(PASTE_END)
        if end >= 0:
            return PASTE + text[len(PASTE_START) : end], end + len(PASTE_END)
        return "", (len(text) if len(text) > PASTE_LIMIT else 0)
    if text[0] != ESCAPE:
        key = text[0]
        return CONTROLS.get(key, key if key >= " " else ""), 1
    found = _SEQUENCE.match(text, 1)
    if found is not None:
        return SEQUENCES.get(found.group(), ""), found.end()
    return ("", 0) if _UNFINISHED.match(text, 1) else ("esc", 1)


class Keyboard:
    """Turns the bytes of a terminal into keys, however they are cut into pieces."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""

    def feed(self, data: bytes) -> list[str]:
        """Return the keys that are complete with these bytes."""
        self._text += self._decoder.decode(data)
        keys = []
        while self._text:
            key, length = next_key(self._text)
            if not length:
                break
            self._text = self._text[length:]
            keys.append(key)
        return [key for key in keys if key]

    @property
    def waiting(self) -> bool:
        """Say whether an escape byte stands there that may be the Esc key or begin another."""
        return bool(self._text) and not self._text.startswith(PASTE_START)

    def give_up(self) -> list[str]:
        """Take what is incomplete for the keys that its bytes are by themselves."""
        text, self._text = self._text, ""
        return ["esc" if character == ESCAPE else character for character in text]


#: Colours of the themes: the number among 256, and the one among 8 where there are no more.
PALETTES = {
    "dark": {
        "paper": (234, 0), "text": (252, 7), "dim": (246, 7), "faint": (240, 7),
        "accent": (81, 6), "red": (203, 1), "yellow": (221, 3), "green": (114, 2),
        "blue": (111, 4), "bar": (237, 0), "mark": (25, 6), "marked": (231, 7),
    },
    "light": {
        "paper": (231, 7), "text": (236, 0), "dim": (242, 0), "faint": (250, 0),
        "accent": (25, 4), "red": (160, 1), "yellow": (130, 1), "green": (28, 2),
        "blue": (26, 4), "bar": (254, 7), "mark": (153, 6), "marked": (16, 0),
    },
}
#: Each style: ink and paper, and the attributes with colours and without.
STYLES = {
    "base": ("text", "paper", "", ""),
    "title": ("text", "paper", "bold", "bold"),
    "dim": ("dim", "paper", "", ""),
    "border": ("faint", "paper", "", ""),
    "focus": ("accent", "paper", "bold", "bold"),
    "alert": ("red", "paper", "bold", "bold"),
    "more": ("accent", "paper", "", ""),
    "chosen": ("marked", "mark", "bold", "reverse"),
    "tab": ("marked", "mark", "bold", "reverse"),
    "bar": ("text", "bar", "", "reverse"),
    "brand": ("accent", "bar", "bold", "reverse"),
    "key": ("accent", "bar", "bold", "reverse"),
    "lease": ("green", "paper", "", "bold"),
    "late": ("red", "paper", "", ""),
    "tag": ("blue", "paper", "", ""),
    "p1": ("red", "paper", "bold", "bold"),
    "p2": ("yellow", "paper", "bold", "bold"),
    "p3": ("text", "paper", "", ""),
    "p4": ("dim", "paper", "", ""),
    "p5": ("dim", "paper", "", ""),
}


class Terminal:
    """The controlling terminal while the board is on it; descriptors 0 and 1 must point at it.

    What it was like is saved once, before it is opened, and given back by `close`. `size` is the
    columns and rows that curses draws on, which `renew` takes over from the terminal. OSError
    means that it is gone.
    """

    def __init__(self, fd: int, env: dict) -> None:
        import termios

        self.fd = fd
        self._coloured = not env.get("NO_COLOR")
        self._saved = termios.tcgetattr(fd)
        self._window: object = None
        self.size = (80, 24)
        self._attributes: dict[tuple[str, str], int] = {}
        self._theme = ""

    def open(self) -> None:
        """Begin to draw: raw keys, no echo, the other screen, pastes marked as such."""
        import curses

        _speak_utf8()
        self._window = curses.initscr()
        curses.raw()
        curses.noecho()
        curses.nonl()
        self._coloured = self._coloured and curses.has_colors()
        if self._coloured:
            curses.start_color()
        tam.write_all(self.fd, b"\x1b[?2004h")
        self._take_size()

    def renew(self) -> None:
        """Take over the size that the terminal has now, and draw everything anew."""
        import curses

        curses.reset_prog_mode()
        self._take_size()
        self._window.clearok(True)

    def _take_size(self) -> None:
        import curses

        found = os.get_terminal_size(self.fd)
        self.size = (found.columns or 80, found.lines or 24)
        curses.resizeterm(self.size[1], self.size[0])

    def paint(self, screen: Screen, theme: str) -> None:
        """Show a picture; curses sends only what differs from the one before."""
        import curses

        if theme != self._theme:
            self._theme = theme
            self._window.bkgd(" ", self._attribute("base"))
        self._window.erase()
        for row, line in enumerate(screen.lines):
            self._paint_line(row, line, last=row == len(screen.lines) - 1)
        if screen.cursor is not None:
            self._window.move(*screen.cursor)
        if curses.tigetstr("civis"):
            curses.curs_set(screen.cursor is not None)
        self._window.refresh()

    def _paint_line(self, row: int, line: Line, last: bool) -> None:
        import curses

        column = 0
        for text, style in line:
            try:
                self._window.addstr(row, column, text, self._attribute(style))
            except curses.error:
                if not last:
                    raise
                return  # the last cell is written, but the cursor cannot stand behind it
            column += tam.cell_width(text)

    def _attribute(self, style: str) -> int:
        key = (self._theme, style)
        if key not in self._attributes:
            self._attributes[key] = self._make_attribute(style)
        return self._attributes[key]

    def _make_attribute(self, style: str) -> int:
        import curses

        ink, paper, coloured, plain = STYLES[style]
        bits = {"": 0, "bold": curses.A_BOLD, "reverse": curses.A_REVERSE}
        if not self._coloured:
            return bits[plain]
        few = curses.COLORS < 256
        palette = PALETTES[self._theme]
        number = len(self._attributes) + 1
        curses.init_pair(number, palette[ink][few], palette[paper][few])
        return curses.color_pair(number) | bits[coloured]

    def close(self) -> None:
        """Give the terminal back exactly as it was found; one that is gone needs nothing."""
        import curses
        import termios

        try:
            if self._window is not None:
                tam.write_all(self.fd, b"\x1b[?2004l")
                curses.endwin()
        except (OSError, curses.error):
            return
        finally:
            self._window = None
            _give_back(self.fd, self._saved, termios)


def _give_back(fd: int, saved: list, termios: object) -> None:
    # In the background, setting a terminal stops the process, unless the signal is ignored.
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        termios.tcsetattr(fd, termios.TCSADRAIN, saved)
    except termios.error:
        return  # it is gone, and with it what it was like
    finally:
        signal.signal(signal.SIGTTOU, before)


def _speak_utf8() -> None:
    """Make curses write UTF-8, which every text here is, whatever the locale says."""
    import locale

    for name in ("", "C.UTF-8", "en_US.UTF-8"):
        try:
            locale.setlocale(locale.LC_CTYPE, name)
        except locale.Error:
            continue
        if locale.nl_langinfo(locale.CODESET).upper().replace("-", "") == "UTF8":
            return


def controlling_terminal() -> int | None:
    """Return a descriptor of the terminal that this process may draw on; None without one."""
    try:
        fd = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if os.tcgetpgrp(fd) == os.getpgrp():
            return fd
    except OSError:
        pass  # a terminal that is hung up has no foreground group: as good as none
    os.close(fd)
    return None


class Channels:
    """The three standard descriptors, set aside, so that nothing stray reaches the wire (T §3.1).

    Meanwhile 0, 1 and 2 are the terminal, or nowhere without one.
    """

    def __init__(self) -> None:
        self.requests, self.answers, self._errors = (os.dup(fd) for fd in range(3))
        self.terminal = controlling_terminal()
        nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for fd in range(3):
            os.dup2(nowhere if self.terminal is None else self.terminal, fd)
        os.close(nowhere)

    def restore(self) -> None:
        """Put the descriptors back where they were."""
        for fd, saved in enumerate((self.requests, self.answers, self._errors)):
            os.dup2(saved, fd)
            os.close(saved)
        if self.terminal is not None:
            os.close(self.terminal)


class Wire:
    """The host's two pipes. Writing never waits: what does not go through now goes later."""

    def __init__(self, requests: int, answers: int) -> None:
        self.requests, self.answers = requests, answers
        self._lines = tam.Lines()
        self._rest = memoryview(b"")
        self._was_blocking = os.get_blocking(answers)
        os.set_blocking(answers, False)

    def read(self) -> list[bytes] | None:
        """Return the lines that are complete by now; None at the end of the requests."""
        try:
            data = os.read(self.requests, CHUNK)
        except BlockingIOError:  # one socket for both ways, in one mode: nothing has come yet
            return []
        except ConnectionResetError:
            return None
        return self._lines.feed(data) if data else None

    def write(self, outbox: Outbox) -> bool:
        """Write what the pipe takes, line after line; say whether anything is left over.

        BrokenPipeError when the host is gone.
        """
        while True:
            if not self._rest:
                self._rest = memoryview(outbox.take())
                if not self._rest:
                    return False
            try:
                self._rest = self._rest[os.write(self.answers, self._rest) :]
            except BlockingIOError:
                return True

    def close(self) -> None:
        """Leave the pipe in the mode in which it was found; others may hold it too."""
        os.set_blocking(self.answers, self._was_blocking)


# ---- threads: the watcher that looks at the store, and the crews that call it --------------------


class Mailbox:
    """What threads and signals tell the loop, with a descriptor that wakes it."""

    def __init__(self) -> None:
        self._items: collections.deque[object] = collections.deque()
        self.wake_fd, self.bell_fd = os.pipe()
        os.set_blocking(self.wake_fd, False)
        os.set_blocking(self.bell_fd, False)

    def post(self, item: object) -> None:
        """Add something, from any thread."""
        self._items.append(item)
        try:
            os.write(self.bell_fd, b"\0")
        except BlockingIOError:
            return  # the pipe is full of bells, so the loop will wake

    def signalled(self, number: int, frame: object) -> None:
        """Add a signal; as its handler, while `bell_fd` is where signals ring."""
        self._items.append(signal.Signals(number))

    def take(self) -> Iterator[object]:
        """Return what has come since, oldest first."""
        try:
            os.read(self.wake_fd, CHUNK)
        except BlockingIOError:
            pass  # nothing rang: the loop woke for another reason
        while self._items:
            yield self._items.popleft()

    def close(self) -> None:
        """Close both ends, once nobody can post any more."""
        os.close(self.wake_fd)
        os.close(self.bell_fd)


@dataclasses.dataclass(frozen=True)
class Answered:
    """The line that answers a call."""

    call: Call
    line: bytes


@dataclasses.dataclass(frozen=True)
class Acted:
    """What became of a command of the board."""

    command: Command
    result: object = None
    problem: tam.TamError | None = None


@dataclasses.dataclass(frozen=True)
class Reading:
    """One look at the store for the session: all that was asked for up to `number` is in it.

    `state` is the data of the Tick's state, unless `problem` says why there is none.
    """

    number: int
    state: dict | None = None
    problem: tam.TamError | None = None


class Crew:
    """Up to `size` threads that run jobs, each with a Tam of its own; started when needed."""

    def __init__(
        self, size: int, open_store: Callable[[], tam.Tam], post: Callable[[object], None]
    ) -> None:
        self._size, self._open_store, self._post = size, open_store, post
        self._jobs: queue.SimpleQueue = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self.unfinished = 0

    def give(self, job: Callable[[tam.Tam], object]) -> None:
        """Have a job run, which must not raise; what it returns is posted."""
        self.unfinished += 1
        self._jobs.put(job)
        if len(self._threads) < min(self.unfinished, self._size):
            thread = threading.Thread(target=self._work, daemon=True)
            self._threads.append(thread)
            thread.start()

    def finished(self) -> None:
        """Count a job as done; by the thread that gave it, once it has taken the result."""
        self.unfinished -= 1

    def stop(self) -> list[threading.Thread]:
        """Let the threads end after what they are doing, and return them."""
        for _ in self._threads:
            self._jobs.put(None)
        return self._threads

    def _work(self) -> None:
        store = self._open_store()
        while (job := self._jobs.get()) is not None:
            self._post(job(store))
        store.close()


def act(store: tam.Tam, command: Command) -> Acted:
    """Carry out a command of the board: a call as the person at the keys, or the theme."""
    try:
        if command.verb == "theme":
            return Acted(command, store.set_config(theme=command.name))
        return Acted(command, store.call(command.name, command.arguments))
    except tam.TamError as problem:
        return Acted(command, problem=problem)


# -- looking --


def look_for_session(store: tam.Tam, wanted: Interest | None) -> dict:
    """Return the snapshot of the project that agents see, with its columns if `wanted` shows them.

    It is that of no project where the named one is not made yet, or deleted. TamError.
    """
    served = store.default_project() or None
    shown = wanted == Interest("tasks", served, None, "")
    try:
        return store.snapshot(served, columns=COLUMN_CAP if shown else 0)
    except tam.NotFound:
        return store.snapshot(None)


def look_for_board(store: tam.Tam, wanted: Interest, snapshot: dict) -> View:
    """Return what a board wants to show, from the snapshot for the session if it is in there."""
    served = snapshot["project"] and snapshot["project"]["name"]
    try:
        if wanted == Interest("tasks", served, None, ""):
            return View(wanted, served, _columns(snapshot))
        return View(wanted, served, LOOKS[wanted.screen](store, wanted))
    except tam.TamError as problem:
        return View(wanted, served, problem=problem)


def _columns(snapshot: dict) -> dict:
    return {
        "columns": [snapshot["columns"][status] for status, _ in COLUMNS],
        "totals": [snapshot["counts"][status.replace("-", "_")] for status, _ in COLUMNS],
    }


def _look_at_projects(store: tam.Tam, wanted: Interest) -> dict:
    return {"projects": store.call("project.list", {})}


def _look_at_tasks(store: tam.Tam, wanted: Interest) -> dict:
    if not wanted.search:
        return _columns(store.snapshot(wanted.project, columns=COLUMN_CAP))
    scope = {"project": wanted.project, "search": wanted.search, "limit": COLUMN_CAP}
    found = [store.call("task.list", {**scope, "status": status}) for status, _ in COLUMNS]
    return {
        "columns": [page["tasks"] for page in found],
        "totals": [page["total"] for page in found],
    }


def _look_at_task(store: tam.Tam, wanted: Interest) -> dict:
    return store.call("task.show", {"id": wanted.task_id, "project": wanted.project})


LOOKS: dict[str, Callable[[tam.Tam, Interest], dict]] = {
    "projects": _look_at_projects,
    "tasks": _look_at_tasks,
    "task": _look_at_task,
}


def _identity(path: str) -> tuple[int, int] | None:
    """Return which file stands at a path; None if none does."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class Watcher:
    """The thread that looks at the store whenever it has changed, and when it is asked to.

    Changes are another connection's commit, another project in the config, another file in the
    database's place, and the end of a lease, since that changes what can be claimed.
    """

    def __init__(
        self,
        open_store: Callable[[], tam.Tam],
        post: Callable[[object], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._open_store, self._post, self._clock = open_store, post, clock
        self._wanted: Interest | None = None
        self._asked = 1
        self._answered = 0
        self._seen: object = None
        self._around: object = None
        self._rounds = 0
        self._expiry = float("inf")
        self._wake = threading.Event()
        self._stopping = False
        self.thread = threading.Thread(target=self._run, daemon=True)

    def ask(self, wanted: Interest | None) -> int:
        """Have the store looked at; return the number that the next reading will have at least."""
        self._wanted = wanted
        self._asked += 1
        self._wake.set()
        return self._asked

    def stop(self) -> threading.Thread:
        """Let the thread end, and return it."""
        self._stopping = True
        self._wake.set()
        return self.thread

    def _run(self) -> None:
        store = self._open_store()
        while not self._stopping:
            self._wake.wait(self._round(store))
            self._wake.clear()
        store.close()

    def _round(self, store: tam.Tam) -> float:
        """Look if there is a reason to; return how many seconds to wait until the next time."""
        number = self._asked  # before all else: what is asked from now on needs another look
        try:
            seen = self._version(store)
            late = self._clock() >= self._expiry
            if number != self._answered or seen != self._seen or late:
                self._look(store, number)
                self._seen = seen
            return POLL
        except tam.TamError as problem:
            self._report(number, problem)
        except Exception:  # whoever waits for this look must hear of it all the same
            store.log(traceback.format_exc())
            self._report(number, tam.Internal("looking at the store failed; see tam's log"))
        return RETRY

    def _version(self, store: tam.Tam) -> tuple:
        """Return what differs once the store may hold something else."""
        self._rounds += 1
        if self._rounds % POLLS_AROUND == 1:
            self._around = (store.default_project(), _identity(store.store.path))
        return store.data_version(), self._around

    def _look(self, store: tam.Tam, number: int) -> None:
        """Read for the session first: whoever waits for it need not wait for the board."""
        wanted = self._wanted
        snapshot = look_for_session(store, wanted)
        expiry = snapshot["next_expiry"]
        self._expiry = float("inf") if expiry is None else expiry
        self._answered = number
        self._post(Reading(number, project_state(snapshot)))
        if wanted is not None:
            self._post(look_for_board(store, wanted, snapshot))

    def _report(self, number: int, problem: tam.TamError) -> None:
        self._answered, self._seen = number, None
        self._post(Reading(number, problem=problem))
        if self._wanted is not None:
            self._post(View(self._wanted, None, problem=problem))


# ---- loop: requests, keys, signals and readings meet in one thread -------------------------------

#: Signals that end the program; its status is then 128 and their number, as a shell has it.
ENDING = (signal.SIGTERM, signal.SIGHUP)
SIGNALS = (*ENDING, signal.SIGINT, signal.SIGWINCH, signal.SIGCONT)


class Loop:
    """The one thread in which everything is decided; it never waits for the store.

    `stores` are the ways to open the store: for agents' calls and for looking, and for the person
    at the keys. Without a `wire` there is no session, without a `terminal` no board.
    """

    def __init__(
        self,
        stores: tuple[Callable[[], tam.Tam], Callable[[], tam.Tam]],
        wire: Wire | None,
        terminal: Terminal | None,
        board: Board,
    ) -> None:
        self._mailbox = Mailbox()
        self._wire, self._terminal, self._board = wire, terminal, board
        self._session = None if wire is None else Session(log=stores[0]().log)
        self._watcher = Watcher(stores[0], self._mailbox.post)
        self._calls = Crew(CALLS_AT_ONCE, stores[0], self._mailbox.post)
        self._hands = Crew(1, stores[1], self._mailbox.post)
        self._keyboard = Keyboard()
        self._lines: collections.deque[bytes] = collections.deque()
        self._held: list[tuple[int, bytes]] = []
        self._status: int | None = None
        self._closing = False
        self._dirty = True
        self._renewed = False
        self._blocked = False
        self._timers: dict[str, float] = {}

    def run(self) -> int:
        """Serve until the end; return the exit status."""
        handlers = {number: signal.signal(number, self._mailbox.signalled) for number in SIGNALS}
        bell = signal.set_wakeup_fd(self._mailbox.bell_fd, warn_on_full_buffer=False)
        try:
            self._begin()
            while self._status is None:
                self._turn()
        finally:
            signal.set_wakeup_fd(bell)
            self._end()
            for number, handler in handlers.items():
                signal.signal(number, handler)
        return self._status

    def _begin(self) -> None:
        if self._terminal is not None:
            self._terminal.open()
            self._watcher.ask(interest(self._board))
        self._watcher.thread.start()
        self._timers["first look"] = time.monotonic() + FIRST_LOOK

    def _end(self) -> None:
        if self._terminal is not None:
            self._terminal.close()
        if self._wire is not None:
            self._wire.close()
        deadline = time.monotonic() + (0.2 if self._status else 2.0)
        threads = [self._watcher.stop(), *self._calls.stop(), *self._hands.stop()]
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0))
        if not any(thread.is_alive() for thread in threads):
            self._mailbox.close()

    # -- one turn --

    def _turn(self) -> None:
        readers = [self._mailbox.wake_fd]
        if self._terminal is not None:
            readers.append(self._terminal.fd)
        if self._wants_requests():
            readers.append(self._wire.requests)
        writers = [self._wire.answers] if self._blocked else []
        ready, _, _ = select.select(readers, writers, [], self._patience())
        for item in self._mailbox.take():
            self._take(item)
        if self._terminal is not None and self._terminal.fd in ready:
            self._read_keys()
        if self._wire is not None and self._wire.requests in ready:
            self._read_requests()
        self._on_time()
        self._receive()
        self._write()
        self._paint()
        self._finish()

    def _patience(self) -> float | None:
        """Return the seconds until something is due, whatever else happens; None for ever."""
        due = list(self._timers.values())
        if self._session is not None and self._session.due() is not None:
            due.append(self._session.due())
        return max(min(due) - time.monotonic(), 0) if due else None

    def _on_time(self) -> None:
        now = time.monotonic()
        for name in [name for name, due in self._timers.items() if due <= now]:
            del self._timers[name]
            self.ON_TIME[name](self)
        if self._session is not None:
            self._session.flush()

    def _escape_alone(self) -> None:
        self._press(self._keyboard.give_up())

    def _time_reads_otherwise(self) -> None:
        self._dirty = True

    def _nothing_seen(self) -> None:
        """Answer requests although the store has not been seen yet: with no content."""
        if self._session is not None and not self._session.looked:
            self._session.observe(None)

    def _host_is_deaf(self) -> None:
        self._status = 0

    ON_TIME: dict[str, Callable[[Loop], None]] = {
        "escape": _escape_alone,
        "clock": _time_reads_otherwise,
        "first look": _nothing_seen,
        "last write": _host_is_deaf,
    }

    # -- requests and answers --

    def _wants_requests(self) -> bool:
        """Say whether requests are read now: not before the first look, nor without room."""
        if self._session is None or self._closing:
            return False
        return self._session.looked and not self._lines and self._session.room()

    def _read_requests(self) -> None:
        lines = self._wire.read()
        if lines is None:
            self._close()
        else:
            self._lines.extend(lines)

    def _receive(self) -> None:
        while self._lines and self._session.room():
            call = self._session.receive(self._lines.popleft())
            if call is not None:
                self._calls.give(functools.partial(_answered, call))

    def _write(self) -> None:
        if self._wire is None:
            return
        try:
            self._blocked = self._wire.write(self._session.outbox)
        except (BrokenPipeError, ConnectionResetError):
            self._status = 0
            return
        if not self._blocked:
            self._timers.pop("last write", None)
        elif self._closing:
            self._timers.setdefault("last write", time.monotonic() + LAST_WRITE)

    def _close(self) -> None:
        """Take no more requests; what is under way is finished."""
        self._closing = True

    def _finish(self) -> None:
        if not self._closing or self._status is not None or self._hands.unfinished:
            return
        busy = self._session is not None and (self._session.pending or self._lines)
        if not busy and not self._blocked:
            self._status = 0

    # -- what arrives --

    def _take(self, item: object) -> None:
        self.TAKEN[type(item)](self, item)

    def _take_signal(self, number: signal.Signals) -> None:
        if number in ENDING:
            self._status = 128 + number
        elif number == signal.SIGINT:
            self._close()
        else:  # another size, or back from a shell that has used the terminal meanwhile
            self._dirty = self._renewed = True

    def _take_reading(self, reading: Reading) -> None:
        if self._session is not None and (reading.problem is None or not self._session.looked):
            self._session.observe(reading.state)
        ready = [line for number, line in self._held if number <= reading.number]
        self._held = [held for held in self._held if held[0] > reading.number]
        for line in ready:
            self._session.answer(line)

    def _take_view(self, view: View) -> None:
        self._show(arrange(self._board, view))

    def _take_answered(self, answered: Answered) -> None:
        """Hold the answer to a call that may have changed something until its effect is seen.

        So whoever reads the state after the answer finds the effect in it.
        """
        self._calls.finished()
        if answered.call.mutates:
            self._held.append((self._watcher.ask(self._wanted()), answered.line))
        else:
            self._session.answer(answered.line)

    def _take_acted(self, acted: Acted) -> None:
        self._hands.finished()
        if acted.problem is not None:
            self._show(failed(self._board, acted.command, acted.problem.message))
        else:
            self._show(settled(self._board, acted.command, acted.result))
        self._watcher.ask(self._wanted())

    TAKEN: dict[type, Callable[[Loop, object], None]] = {
        signal.Signals: _take_signal,
        Reading: _take_reading,
        View: _take_view,
        Answered: _take_answered,
        Acted: _take_acted,
    }

    # -- the person --

    def _wanted(self) -> Interest | None:
        return None if self._terminal is None else interest(self._board)

    def _show(self, board: Board) -> None:
        """Take a new board, and have read what it shows and the old one did not."""
        before, self._board = interest(self._board), board
        if interest(board) != before:
            self._watcher.ask(interest(board))
        self._dirty = True

    def _read_keys(self) -> None:
        try:
            data = os.read(self._terminal.fd, CHUNK)
        except OSError:
            data = b""
        if not data:
            self._lose_terminal()
            return
        self._timers.pop("escape", None)
        self._press(self._keyboard.feed(data))
        if self._keyboard.waiting:
            self._timers["escape"] = time.monotonic() + ESCAPE_WAIT

    def _press(self, keys: list[str]) -> None:
        for key in keys:
            board, commands = press(self._board, key)
            self._show(board)
            for command in commands:
                self._command(command)

    def _command(self, command: Command) -> None:
        if command.verb == "quit" and self._closing:
            self._status = 0  # the second time: whoever is still waited for is not
        elif command.verb == "quit":
            self._close()
        else:
            self._hands.give(functools.partial(_acted, command))

    def _paint(self) -> None:
        if not self._dirty or self._terminal is None:
            return
        try:
            if self._renewed:
                self._terminal.renew()
            width, height = self._terminal.size
            self._board = replace(within(self._board, width, height), now=int(time.time()))
            self._terminal.paint(render(self._board, width, height), self._board.theme)
        except OSError:
            self._lose_terminal()
            return
        self._dirty = self._renewed = False
        change = next_change(self._board)
        if change is None:
            self._timers.pop("clock", None)
        else:
            self._timers["clock"] = time.monotonic() + change

    def _lose_terminal(self) -> None:
        """Go on without the view if there is a host, end if there is none."""
        self._terminal.close()
        self._terminal = None
        self._timers.pop("clock", None)
        if self._session is None:
            self._close()


def _answered(call: Call, store: tam.Tam) -> Answered:
    return Answered(call, carry_out(store, call))


def _acted(command: Command, store: tam.Tam) -> Acted:
    return act(store, command)


# ---- the command line ----------------------------------------------------------------------------

#: Options that may stand before `host` and `check`, since tam moves its own options there.
VALUED = ("--project", "--agent")


def main(argv: list[str]) -> int:
    """Run `tam tick` with the words after it; return the exit status.

    `host` and `check` are the other side of the protocol; `--board` (for `tam -i`) draws the board
    without the wire, as does a person who types `tam tick`.
    """
    try:
        before, word, rest = _split(argv)
        if word == "host":
            return host_main(before + rest)
        if word == "check":
            return check_main(before + rest)
        return _run(_parsed(argv))
    except tam.TamError as error:
        tam.report(error, "tick", "--json" in argv)
        return error.exit_status


def _split(argv: list[str]) -> tuple[list[str], str, list[str]]:
    """Return the options before the first word, the word or "", and what follows it."""
    at = 0
    while at < len(argv) and argv[at].startswith("--") and argv[at] != "--":
        at += 2 if argv[at] in VALUED else 1
    return argv[:at], argv[at] if at < len(argv) else "", argv[at + 1 :]


def _parsed(argv: list[str]) -> argparse.Namespace:
    parser = tam.Parser(
        prog="tam tick",
        description="Run the board as a Tick: protocol on standard input and output, the board on"
        " the terminal. Typed by a person it is the board alone, as `tam -i`.",
        epilog="`tam tick host -- COMMAND…` drives another Tick, `tam tick check -- COMMAND…`"
        " tests it.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--project", metavar="NAME", help="the project (else TAM_PROJECT, else the current one)"
    )
    parser.add_argument(
        "--agent", metavar="ID", help="the agent of calls that name none (else TAM_AGENT)"
    )
    parser.add_argument("--json", action="store_true", help="tell of a failure in one envelope")
    parser.add_argument("--board", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def _run(options: argparse.Namespace) -> int:
    typed_by_a_person = "TICKLOOP_INSTANCE_ID" not in os.environ and os.isatty(0)
    wired = not (options.board or typed_by_a_person)
    person = {name: value for name, value in os.environ.items() if name not in PERSONAL}
    stores = (
        lambda: tam.Tam(project=options.project, agent=options.agent),
        lambda: tam.Tam(env=person),
    )
    channels = Channels()
    try:
        if channels.terminal is None and not wired:
            raise tam.Invalid("the board needs a terminal, and this process has none")
        wire = Wire(channels.requests, channels.answers) if wired else None
        terminal = _terminal(channels.terminal, wired)
        named = bool(options.project or os.environ.get("TAM_PROJECT"))
        board = _first_board(stores[0](), wired, named)
        return Loop(stores, wire, terminal, board).run()
    except tam.TamError:
        raise
    except Exception:  # the terminal is given back by now; nobody is to see a traceback on it
        stores[0]().log(traceback.format_exc())
        raise tam.Internal("the Tick failed unexpectedly; tam's log has more") from None
    finally:
        channels.restore()


#: What of the environment is for agents: the person at the keys is none, and sees every project.
PERSONAL = ("TAM_AGENT", "TAM_PROJECT")


def _terminal(fd: int | None, wired: bool) -> Terminal | None:
    """Return the terminal if it can be drawn on; without one a Tick works all the same."""
    import curses

    if fd is None:
        return None
    kind = os.environ.get("TERM") or "unknown"
    try:
        curses.setupterm(kind, fd)
        drawable = curses.tigetstr("cup") is not None
    except curses.error:  # nobody knows this type
        drawable = False
    if drawable:
        return Terminal(fd, os.environ)
    if wired:
        return None
    raise tam.Invalid(f"the board cannot draw on a terminal of type {tam.printable(kind)!r}")


def _first_board(store: tam.Tam, wired: bool, named: bool) -> Board:
    """Return the board as it opens: on the project that is served or named, else on the list."""
    try:
        theme, project = store.config["theme"], store.default_project()
    except tam.TamError:
        if not wired:
            raise
        return Board(wired=True)  # the board and the host will be told at the first look
    board = Board(theme=theme if theme in PALETTES else "dark", wired=wired, served=project)
    return opened(board, project) if project and (wired or named) else board
