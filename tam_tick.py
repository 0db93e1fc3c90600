"""tam as a Tick: one process, one state, a person at the keys and an agent on the wire.

`tam tick` speaks the Tick protocol (version 3) on its standard input and output and draws a board
on its controlling terminal. `tam -i`, and `tam tick` typed by a person, draw the same board without
the wire. `tam tick host` and `tam tick check` are the other side of the protocol, for people who
write Ticks of their own.

The sections, in this order; each uses only what stands above it. What both sides share:

    protocol            versions, sizes, error codes, and the line that carries a message
    text of strangers   cut, and made harmless, for logs and errors
    bell and signals    how a waiting thread is woken, and signals taken for a while

The Tick, from values to threads: frames and pictures are made without a descriptor or a clock.

    limits              named numbers, each with its reason
    catalogue           the tools of the operation table, and the revision that names them
    state               the summary of a project that agents read, never more than 4 KiB
    session             `Session`: frames in, frames out
    board               what the person sees: `press(board, key)`, and what arrives from the store
    render              `render(board, width, height)`: lines of styled text
    terminal            bytes to keys, lines to curses, and the terminal given back as it was
    threads             those that look at the store, call it, and draw
    loop                requests, keys, signals and readings meet in one thread

The reference host, again from values to threads, and what is built on it:

    foreign schemas     the words of JSON Schema beyond tam's own, and ECMAScript's patterns
    host: limits        `HostLimits`: each can be lowered by a test
    host: errors        what a call can end in, and whether it may have had an effect
    host: values        integers, times and sizes as T means them
    host: catalogue     the tools of a descriptor, and arguments that fit them
    host: rules         `HOST_RULES`: what T demands, and what is wrong where it is not kept
    host: session       `HostSession`: bytes and times in, events and lines out
    host: screen        `HostScreen`: what the Tick draws, as text
    host: process       a child on pipes and a pseudo-terminal of its own
    host: runner        a process, a screen and a session, and the thread that joins them
    host: TickHost      `TickHost`: a running Tick, for programs
    host: probes        what the conformance check tries
    host: report        `host_check`: the conformance report
    host: signals       a host that is ended ends its Tick
    host: check command `tam tick check`
    host: host command  `tam tick host`

    command line        `main`: which of all that was asked for
"""
from __future__ import annotations

import argparse
import codecs
import collections
import contextlib
import dataclasses
import datetime
import functools
import hashlib
import io
import json
import os
import queue
import re
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence

import tam

# ---- protocol ------------------------------------------------------------------------------------

#: The protocol version that the Tick implements and the host speaks (T §4.3).
PROTOCOL = 3
#: The largest integer of the wire (T §2.2): beyond it, JavaScript and others lose digits.
MAX_INTEGER = 2**53 - 1
#: Requests in flight at most, describe and read included (T §3.5).
IN_FLIGHT = 8
#: Bytes of a result at most, as the host encodes it anew (T §3.5).
MAX_RESULT = 8 << 20
#: The same for a describe result, and for a state as it is read or sent (T §3.5).
MAX_DESCRIPTOR = MAX_STATE = 512 << 10
#: Bytes that a typical state should keep to (T §6.4).
STATE_ADVISED = 4096
#: Seconds that the start, describe and read may take together, and that a call may (T §4.2, §7.3).
START_TIME, CALL_TIME = 10.0, 60.0
#: Columns and rows of the view at the start (T §4.1).
VIEW_SIZE = (120, 30)
#: The variable that tells a Tick that a host has started it, and that only logs may show (T §4.1).
INSTANCE_ID = "TICKLOOP_INSTANCE_ID"

#: Error codes (T §3.4). Those of NOT_EXECUTED say that the call had no effect.
NOT_A_REQUEST = -32600
UNKNOWN_METHOD = -32601
BAD_ARGUMENTS = tam.Invalid.tick_code
CATALOGUE_CHANGED = -32004
TOOL_FAILED = tam.Internal.tick_code
NOT_EXECUTED = (NOT_A_REQUEST, UNKNOWN_METHOD, BAD_ARGUMENTS, CATALOGUE_CHANGED)


def message_line(**members: object) -> bytes:
    """Return a message as the line that carries it (T §3.1, §3.2).

    Raises tam.BadJSON where a member has no JSON form.
    """
    return tam.encode_json({"jsonrpc": "2.0", **members}) + b"\n"


# ---- text of strangers ---------------------------------------------------------------------------

#: Bytes of a line that a log or a finding shows: enough to recognise a print statement.
HEAD = 120


def cut(text: str, length: int) -> str:
    """Return `text` in at most `length` characters, with a sign where something is missing."""
    return text if len(text) <= length else text[: max(length - 1, 0)] + "…"


def shown(value: object, length: int = 60) -> str:
    """Return a value that a stranger sent, in a few characters that are safe to show."""
    return tam.printable(cut(repr(value), length))


def head(line: bytes) -> str:
    """Return the start of a line, as text that still has to pass tam.printable."""
    text = line[:HEAD].decode("utf-8", "backslashreplace")
    return text + ("…" if len(line) > HEAD else "")


# ---- bell and signals ----------------------------------------------------------------------------

#: Bytes taken from a pipe or terminal at once: a Linux pipe holds this much.
CHUNK = 1 << 16
#: Signals that end the program; its status is then 128 and their number, as a shell has it.
ENDING = (signal.SIGTERM, signal.SIGHUP)


class Bell:
    """Wakes a thread that waits in select: `fd` is readable once somebody has rung."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.fd, self.rope = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self.rope, False)

    def ring(self) -> None:
        """Ring, from any thread; nothing happens once the bell is closed."""
        with self._lock:
            if self.rope < 0:
                return
            with contextlib.suppress(BlockingIOError):  # full of rings, so the thread will wake
                os.write(self.rope, b"\0")

    def hush(self) -> None:
        """Forget the rings; by the thread that they woke, before it looks why."""
        with contextlib.suppress(BlockingIOError):  # the thread may have woken for another reason
            os.read(self.fd, CHUNK)

    def close(self) -> None:
        """Give the descriptors back. May be called again."""
        with self._lock:
            if self.rope >= 0:
                os.close(self.fd)
                os.close(self.rope)
            self.fd = self.rope = -1


class Handlers:
    """While it is entered, `handler` takes these signals; then whoever had them before does."""

    def __init__(self, numbers: Sequence[int], handler: object) -> None:
        """`handler` is as for signal.signal, which only the main thread may call."""
        self._numbers, self._handler = numbers, handler
        self._before: dict[int, object] = {}

    def __enter__(self) -> Handlers:
        for number in self._numbers:
            self._before[number] = signal.signal(number, self._handler)
        return self

    def __exit__(self, *failure: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


# ---- limits --------------------------------------------------------------------------------------

#: Requests that are read but not yet answered on the wire; no more is read until some are.
MAX_PENDING = 64
#: Unwritten answers in bytes; beyond it no more requests are read, so that memory stays bounded.
MAX_UNSENT = 16 << 20
#: Seconds between two updates at least: faster than a person or a model can look (T §8.3).
UPDATE_GAP = 0.05
#: Seconds between two glances at the store's files: a foreign commit is on the wire soon after, and
#: a dozen glances a second cost next to nothing.
POLL = 0.08
#: Glances between two looks at what they may not show: the config, another file, a commit within
#: the same tick of the clock as the one before.
POLLS_AROUND = 10
#: Seconds after which a look that failed is tried again.
RETRY = 1.0
#: Seconds for which the first request may wait for the first look at the store.
FIRST_LOOK = 1.0
#: Seconds for which the end waits, twice at most, for a picture that is being painted.
PAINT_WAIT = 0.3
#: Seconds for which the end waits for a host that does not read what is left for it.
LAST_WRITE = 5.0
#: Seconds after which an escape byte that stands alone is the Esc key.
ESCAPE_WAIT = 0.03
#: Seconds that a person needs at least to act on what has just appeared: a key that comes sooner
#: was meant for what stood there before.
REACTION = 0.15
#: Tasks of one column that the board loads; the search finds the others.
COLUMN_CAP = 500
#: Rejected lines noted in the log one by one; later ones are only counted.
NOTED_LINES = 20

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


def project_state(snapshot: dict) -> dict | None:
    """Return the `data` of a Tick state (T §6) from `Tam.snapshot`; None without a project.

    With sequence number and time it encodes to at most STATE_ADVISED bytes: lists get shorter and
    names are cut until it fits, and the counts beside them tell what is missing.
    """
    if snapshot["project"] is None:
        return None
    for share in SHARES:
        data = _shared_out(snapshot, share)
        if len(tam.encode_json(data)) <= STATE_ADVISED - STATE_FRAME:
            return data
    raise tam.Internal("the smallest state of a project is over its limit", bytes=STATE_ADVISED)


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
    return message_line(id=request_id, error=error)


def carry_out(store: tam.Tam, call: Call) -> bytes:
    """Run a call and return the line that answers it, whatever happens (contract, Tick).

    Runs in a thread of its own; `store` is the thread's. A result that would be longer than a line
    may be becomes an error, since the host would have to end the session over it (T §3.6).
    """
    try:
        line = result_line(call.id, tam.encode_json(store.call(call.operation, call.arguments)))
    except tam.TamError as error:
        return error_line(call.id, error.tick_code, error.message, error.as_dict())
    except Exception:  # every request is answered once
        return _failure(call.id, unexpected(store, "the tool"))
    if len(line) <= tam.MAX_LINE:
        return line
    text = "the result is longer than the protocol allows: ask for less with `limit`"
    return _failure(call.id, tam.Internal(text, bytes=len(line), limit=tam.MAX_LINE))


def unexpected(store: tam.Tam, what: str) -> tam.Internal:
    """Log the exception that is being handled, and return what is told of it."""
    store.log(traceback.format_exc())
    return tam.Internal(f"{what} failed unexpectedly; see tam's log")


def _failure(request_id: int, error: tam.TamError) -> bytes:
    return error_line(request_id, TOOL_FAILED, error.message, error.as_dict())


class Outbox:
    """Lines on their way to the host: all answers, and of the updates the newest (T §8.3)."""

    def __init__(self) -> None:
        self.answers: collections.deque[bytes] = collections.deque()
        self.update: bytes | None = None
        self.size = 0

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
        self.behind = False
        self._readers: list[int] = []
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
            text = f"there is no method {shown(request['method'])}"
            self._refuse(request_id, UNKNOWN_METHOD, text)
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
        # Stricter than the host is with numbers: the answer has to repeat the id as it was sent.
        if type(request_id) is not int or not 0 <= request_id <= MAX_INTEGER:
            return self._drop("has no unsigned integer as id", line)
        return message

    def _drop(self, reason: str, line: bytes) -> None:
        self._dropped += 1
        if self._dropped <= NOTED_LINES or self._dropped % 1000 == 0:
            self._log(f"tick: line dropped ({self._dropped} so far), it {reason}: {head(line)!r}")

    def _refuse(self, request_id: int, code: int, message: str, data: dict | None = None) -> None:
        self.outbox.put(error_line(request_id, code, message, data))

    def _describe(self, request_id: int, params: dict) -> None:
        self.outbox.put(result_line(request_id, self._described))

    def _read(self, request_id: int, params: dict) -> None:
        if self.behind:
            self.pending += 1
            self._readers.append(request_id)
        else:
            self.outbox.put(result_line(request_id, self._state))

    def caught_up(self) -> None:
        """Answer the reads that waited while the state was `behind` the effect of a call."""
        self.behind = False
        for request_id in self._readers:
            self.answer(result_line(request_id, self._state))
        self._readers.clear()

    def _call(self, request_id: int, params: dict) -> Call | None:
        if params.get("revision") != self.revision:
            text = "the catalogue is another one now: describe the Tick and prepare the call again"
            data = {"code": "conflict", "message": text, "details": {"revision": self.revision}}
            self._refuse(request_id, CATALOGUE_CHANGED, text, data)
            return None
        operation = self._operation(params.get("tool"))
        if operation is None:
            text = f"there is no tool {shown(params.get('tool'))}"
            self._misfit(request_id, text, tools=sorted(self._tools))
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


# ---- board ---------------------------------------------------------------------------------------

COLUMNS = (("todo", "Todo"), ("in-progress", "In Progress"), ("done", "Done"))
NOTHING: tuple[tuple[dict, ...], ...] = ((), (), ())
#: Titles of what is told: what others have done meanwhile is no failure.
FAILED, NEWS = "That did not work", "Meanwhile"


@dataclasses.dataclass(frozen=True)
class Command:
    """What a key asks of the world outside the board.

    `verb` is "call" (the operation `name` with `arguments` and what was `expected`, see
    `Tam.call`), "theme" (save the theme `name`) or "quit". `origin` is the text input or the
    question that it came from, opened again should the command fail.
    """

    verb: str
    name: str = ""
    arguments: dict = dataclasses.field(default_factory=dict)
    expected: dict | None = None
    origin: Prompt | Confirm | None = None


QUIT = Command("quit")


@dataclasses.dataclass(frozen=True)
class Prompt:
    """A one-line text input, as what stands before and after the cursor.

    Enter calls `operation` with `arguments`, the text as `argument`, and what is `expected` to
    stand there; without an operation the text is the search, which takes effect while it is typed.
    """

    title: str
    operation: str
    argument: str
    arguments: dict
    before: str = ""
    after: str = ""
    expected: dict = dataclasses.field(default_factory=dict)

    @property
    def text(self) -> str:
        """All that stands in the input."""
        return self.before + self.after


@dataclasses.dataclass(frozen=True)
class Confirm:
    """A question whether to call `operation` with `arguments`: Enter does, Esc does not.

    `subject` is what it would be done to, read again while the question stands: a TaskView, or of
    a project its id, name, and how many `tasks` it has and how many `leases` agents have on them.
    `note` is why it is asked again.
    """

    operation: str
    arguments: dict
    subject: dict
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Tip:
    """Something to be read; Enter closes it and shows what was there before."""

    text: str
    back: Prompt | Confirm | Tip | Help | None = None
    title: str = FAILED


@dataclasses.dataclass(frozen=True)
class Help:
    """All keys; `top` is the first line shown."""

    top: int = 0


@dataclasses.dataclass(frozen=True)
class Board:
    """All that a picture of the board depends on, but for its size. Tasks are TaskViews (P §3.3).

    `screen` is "projects", "tasks" or "task". `served` is the project whose state agents read, and
    `wired` says that some may. `project` is the opened one, None on the first screen. `columns`,
    `totals` and `exact` (False where there are more) go with COLUMNS; a selection (`chosen`) is the
    id of a task, so that it survives what others do. `follow` is a task to select once it appears,
    `sent` one as it was when a command about it went out. `note` stands in the help bar until the
    next key. `now` is in Unix seconds, `page` in rows.
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
    exact: tuple[bool, ...] = (True, True, True)
    column: int = 0
    chosen: tuple[int | None, ...] = (None, None, None)
    follow: int | None = None
    sent: dict | None = None
    search: str = ""
    task_id: int | None = None
    task: dict | None = None
    events: tuple[dict, ...] = ()
    top: int = 0
    overlay: Prompt | Confirm | Tip | Help | None = None
    trouble: str = ""
    note: str = ""
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
    """Select another project: a single step goes around the ends, a longer one does not."""
    if not board.projects:
        return board, ()
    count = len(board.projects)
    at = place_of(board.projects, "name", board.chosen_project) + by
    at = at % count if abs(by) == 1 else min(max(at, 0), count - 1)
    return replace(board, chosen_project=board.projects[at]["name"]), ()


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
    return Board(
        screen="tasks", project=project, projects=board.projects, page=board.page, now=board.now,
        theme=board.theme, wired=board.wired, served=board.served,
    )


def closed(board: Board) -> Board:
    """Return the board with the project screen, on the project that was open."""
    return replace(
        board, screen="projects", project=None,
        chosen_project=board.project or board.chosen_project, search="", task=None, task_id=None,
        overlay=None,
    )


def _open_task(board: Board, task: dict) -> Step:
    return replace(board, screen="task", task_id=task["id"], task=task, events=(), top=0), ()


def _close_task(board: Board) -> Step:
    return replace(board, screen="tasks", task_id=None, task=None, events=()), ()


def _back(board: Board) -> Step:
    """Leave the search if there is one, else the project."""
    return (replace(board, search="") if board.search else closed(board)), ()


def _switch_theme(board: Board) -> Step:
    theme = "light" if board.theme == "dark" else "dark"
    return replace(board, theme=theme), (Command("theme", theme),)


# -- keys that write --


def _asking(board: Board, asked: Prompt | Confirm) -> Step:
    return replace(board, overlay=asked), ()


def _edit_project(board: Board, project: dict) -> Step:
    name = project["name"]
    return _asking(board, Prompt(
        "Edit the project", "project.edit", "new_name", {"name": name}, name,
        expected=_known(project),
    ))


def _delete_project(board: Board, project: dict) -> Step:
    subject = {**_known(project), "tasks": None, "leases": None}  # they are read while it is asked
    return _asking(board, Confirm("project.del", {"name": project["name"]}, subject))


def _use_project(board: Board, project: dict) -> Step:
    name = {"name": project["name"]}
    return board, (Command("call", "project.use", name, _known(project)),)


def _known(project: dict) -> dict:
    return {name: project[name] for name in ("id", "name")}


def _edit_task(board: Board, task: dict) -> Step:
    return _asking(board, Prompt(
        f"Edit task {task['id']}", "task.edit", "title", _target(task), task["title"],
        expected={"title": task["title"]},
    ))


def _calling(board: Board, command: Command) -> Step:
    task = chosen_task(board)
    about = task is not None and task["id"] == command.arguments.get("id")
    return replace(board, sent=task if about else None), (command,)


def _start_task(board: Board, task: dict) -> Step:
    return _calling(board, Command("call", "task.start", _target(task), tam.seen_of(task)))


def _complete_task(board: Board, task: dict) -> Step:
    """Complete a task; one that an agent holds only after a question."""
    if tam.seen_of(task)["holder"] is not None:
        return _asking(board, Confirm("task.done", _target(task), task))
    return _calling(board, Command("call", "task.done", _target(task), tam.seen_of(task)))


def _delete_task(board: Board, task: dict) -> Step:
    return _asking(board, Confirm("task.del", _target(task), task))


def _target(task: dict) -> dict:
    return {"id": task["id"], "project": task["project"]}


# -- the tables of keys --

ANYWHERE: dict[str, Callable[[Board], Step]] = {
    "t": _switch_theme,
    "?": lambda board: (replace(board, overlay=Help()), ()),
    "q": lambda board: (board, (QUIT,)),
}


def _with(
    chosen: Callable[[Board], dict | None], action: Callable[[Board, dict], Step]
) -> Callable[[Board], Step]:
    """Return the key that does something with what is selected, if anything is."""

    def step(board: Board) -> Step:
        found = chosen(board)
        return (board, ()) if found is None else action(board, found)

    return step


ON_A_TASK = {
    "e": _with(chosen_task, _edit_task),
    "s": _with(chosen_task, _start_task),
    "c": _with(chosen_task, _complete_task),
    "d": _with(chosen_task, _delete_task),
}
KEYS: dict[str, dict[str, Callable[[Board], Step]]] = {
    "projects": {
        "up": lambda board: _move_project(board, -1),
        "down": lambda board: _move_project(board, 1),
        "pgup": _page(_move_project, -1),
        "pgdn": _page(_move_project, 1),
        "home": lambda board: _move_project(board, -sys.maxsize),
        "end": lambda board: _move_project(board, sys.maxsize),
        "enter": _with(chosen_project, lambda board, it: (opened(board, it["name"]), ())),
        "a": lambda board: _asking(board, Prompt("Add a project", "project.add", "name", {})),
        "e": _with(chosen_project, _edit_project),
        "d": _with(chosen_project, _delete_project),
        "u": _with(chosen_project, _use_project),
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
        "enter": _with(chosen_task, _open_task),
        "esc": _back,
        "a": lambda board: _asking(board, Prompt(
            "Add a task", "task.add", "title", {"project": board.project})),
        "/": lambda board: _asking(board, Prompt("Search", "", "", {}, board.search)),
        **ON_A_TASK,
        **ANYWHERE,
    },
    "task": {
        "up": lambda board: _scroll(board, -1),
        "down": lambda board: _scroll(board, 1),
        "pgup": _page(_scroll, -1),
        "pgdn": _page(_scroll, 1),
        "home": lambda board: (replace(board, top=0), ()),
        "end": lambda board: (replace(board, top=sys.maxsize), ()),
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
        text = re.sub(r"[\t-\r\x1c-\x1e\x85\u2028\u2029]+", " ", key.removeprefix(PASTE)).strip()
    else:
        text = key if len(key) == 1 else ""
    return "".join(c for c in text if c.isprintable() or c in JOINERS or _is_typeable(c))


def _is_typeable(char: str) -> bool:
    """Whether a character that Python holds for unprintable is one that people do type: a wide
    space, or an emoji that is newer than this Python."""
    import unicodedata

    return unicodedata.category(char) in ("Zs", "Cn", "Co")


#: Characters that the text input takes: no name or title may have as many, and whoever enters it
#: is told so, while a flood of keys takes time that grows with the square of the text.
INPUT_LIMIT = 4 * tam.TITLE_MAX
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
    elif (room := INPUT_LIMIT - len(prompt.before) - len(prompt.after)) > 0:
        prompt = replace(prompt, before=prompt.before + typed(key)[:room])
    search = board.search if prompt.operation else prompt.text
    return replace(board, overlay=prompt, search=search), ()


def _submit(board: Board, prompt: Prompt) -> Step:
    if not prompt.operation:
        return replace(board, search=prompt.text.strip()), ()
    arguments = {**prompt.arguments, prompt.argument: prompt.text}
    return _calling(board, Command("call", prompt.operation, arguments, prompt.expected, prompt))


def _press_confirm(board: Board, key: str) -> Step:
    if key not in ("enter", "esc"):
        return board, ()
    asked, board = board.overlay, replace(board, overlay=None)
    if key == "esc":
        return board, ()
    expected = tam.seen_of(asked.subject) if "title" in asked.subject else asked.subject
    step = _calling(board, Command("call", asked.operation, asked.arguments, expected, asked))
    return (_close_task(step[0])[0], step[1]) if asked.operation == "task.del" else step


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
    """What of the store a board shows, and so what the watcher reads for it.

    `asked` are the arguments of what a question is about.
    """

    screen: str
    project: str | None
    task_id: int | None
    search: str
    asked: dict | None = None


@dataclasses.dataclass(frozen=True)
class View:
    """What the watcher read for an interest: `content` by the screen, or `problem`."""

    interest: Interest
    served: str | None
    content: dict = dataclasses.field(default_factory=dict)
    problem: tam.TamError | None = None


def interest(board: Board) -> Interest:
    """Return what the board shows."""
    asked = board.overlay.arguments if isinstance(board.overlay, Confirm) else None
    return Interest(board.screen, board.project, board.task_id, board.search, asked)


def arrange(board: Board, view: View) -> Board:
    """Return the board with what was read.

    A selection stays on its task; when that leaves the column, on its place there.
    """
    follows = board.wired and board.project == board.served and view.served != board.served
    board = replace(board, served=view.served)
    typing = isinstance(board.overlay, (Prompt, Confirm))
    if follows and view.served is not None and not typing:
        return opened(board, view.served)
    if view.interest != interest(board):
        return board
    if view.problem is not None:
        return _trouble(board, view.problem)
    if isinstance(board.overlay, Confirm):
        board = replace(board, overlay=replace(board.overlay, subject=view.content["asked"]))
    return ARRANGERS[board.screen](replace(board, trouble="", loaded=True), view.content)


def _trouble(board: Board, problem: tam.TamError) -> Board:
    """Leave what is gone, and show each other problem once, not at every look."""
    tip = told(board, problem)
    if problem.code == "not_found":
        left = _close_task(board)[0] if "task_id" in problem.details else closed(board)
        return replace(left, overlay=tip)
    if problem.message == board.trouble or board.overlay is not None:
        return board
    return replace(board, overlay=tip, trouble=problem.message)


def told(board: Board, problem: tam.TamError, back: Prompt | Confirm | Tip | None = None) -> Tip:
    """Return the tip that tells of a problem."""
    text, gone = problem.message, problem.code == "not_found"
    if gone and "task_id" not in problem.details and board.loaded:
        text = f"project {problem.details.get('project')} was deleted or renamed meanwhile"
    if gone or "changed" in problem.details:
        return Tip(text, back, NEWS)
    return Tip(text, back)


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
    totals = {name: tuple(content[name]) for name in ("totals", "exact")}
    board = replace(board, columns=columns, chosen=chosen, **totals)
    if board.search and not columns[board.column]:
        found = next((column for column, tasks in enumerate(columns) if tasks), board.column)
        board = replace(board, column=found)
    for column, tasks in enumerate(columns):
        if any(task["id"] == board.follow for task in tasks):
            return _choose(replace(board, column=column), board.follow)
    return board


def _kept(old: Sequence[dict], new: Sequence[dict], key: str, wanted: object) -> object:
    """Return `wanted` if it is still there, else what stands in its place now; None in no list."""
    if not new:
        return None
    if any(item[key] == wanted for item in new):
        return wanted
    return new[min(place_of(old, key, wanted), len(new) - 1)][key]


ARRANGERS: dict[str, Callable[[Board, dict], Board]] = {
    "projects": _arrange_projects,
    "tasks": _arrange_tasks,
    "task": lambda board, content: replace(
        board, task=content["task"], events=tuple(content["events"])),
}


def settled(board: Board, command: Command, result: object) -> Board:
    """Return the board after a command that succeeded: what was made gets selected."""
    if command.name == "task.add":
        return replace(board, follow=result["task"]["id"])
    if command.name in ("project.add", "project.edit"):
        return replace(board, chosen_project=result["project"]["name"])
    if board.sent is not None and result == {"task": board.sent}:
        return replace(board, sent=None)  # it was so already, and so nothing new will appear
    return board


def failed(board: Board, command: Command, problem: tam.TamError) -> Board:
    """Return the board with the reason why a command failed; Enter leads back to its text.

    Where others have changed what was shown, the text goes by that from now on, and a question is
    asked again.
    """
    board, origin, back = replace(board, sent=None), command.origin, board.overlay
    changed = problem.details.get("changed", {})
    if origin is not None and back is None and problem.code != "not_found":
        arguments = {name: changed.get(name, value) for name, value in origin.arguments.items()}
        if isinstance(origin, Prompt):
            back = replace(origin, arguments=arguments, expected={**origin.expected, **changed})
        elif changed and (origin.operation, changed.get("status")) != ("task.done", "done"):
            subject = {**origin.subject, **changed}
            asked = Confirm(origin.operation, arguments, subject, problem.message)
            return replace(board, overlay=asked)
    return replace(board, overlay=told(board, problem, back))


# -- what the person has seen --


def aim(board: Board, key: str) -> object:
    """Return what a key would act on, or close although it is to be read; None if it does neither.

    What has been acted on already is nothing to aim at before that is seen.
    """
    overlay = board.overlay
    if overlay is not None:
        if isinstance(overlay, Help) or key not in ("enter", "esc"):
            return None
        return overlay if isinstance(overlay, Tip) else (overlay.operation, overlay.arguments)
    if key == "a":
        return board.screen, board.project
    if key not in ("s", "c", "e", "d", "u"):
        return None
    chosen = (chosen_project if board.screen == "projects" else chosen_task)(board)
    if chosen is not None and chosen == board.sent:
        return object()
    return board.screen, chosen and chosen["id"]


class Eyes:
    """The board as the person has it before their eyes: it is what they mean with a key.

    That is what was painted REACTION seconds ago, and what their own keys have made of it since.
    `timer` gives seconds that never jump.
    """

    def __init__(self, board: Board, timer: Callable[[], float] = time.monotonic) -> None:
        self.board, self.keys = board, 0
        self._timer = timer
        self._painted: collections.deque[tuple[float, Board]] = collections.deque()

    def painted(self, board: Board, keys: int) -> None:
        """Take what is on the screen now: `board`, as it was after so many keys."""
        if keys == self.keys:  # or else another picture is on its way
            self._painted.append((self._timer() + REACTION, board))
        self._look()

    def press(self, board: Board, key: str) -> Step:
        """Return `board` after a key, and what the key asks of the world as the person sees it.

        What would hit something else than the person has seen is left out, with a note.
        """
        self._look()
        if aim(board, key) != aim(self.board, key):
            return replace(board, note="This has just changed: press again"), ()
        self.keys += 1
        self._painted.clear()
        self.board, commands = press(self.board, key)
        return press(replace(board, note=""), key)[0], commands

    def _look(self) -> None:
        while self._painted and self._painted[0][0] <= self._timer():
            self.board = self._painted.popleft()[1]


# ---- render --------------------------------------------------------------------------------------

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
        if line is None or tam.cell_width(line) < width < tam.cell_width(word):
            word = longer  # it is cut in any case, as text without spaces is: from here on
        else:
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
    except ValueError:  # not tam.iso_time's: written by other hands, and over if none can read it
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
    if rest:
        left = fill([(" " * 4, "base"), (rest, "base")], space + 4)
        lines.append(spread(left, about, width, "base"))
    elif about:
        lines.append(fill([(" " * 4, "base"), *about], width))
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
        return _nothing(board, (" nothing found" if board.search else " no tasks", "dim")), 0, 0
    kind = tall_card if rows >= TALL_COLUMN else short_card
    at = place_of(tasks, "id", board.chosen[column])

    def draw(place: int) -> list[Line]:
        card = kind(tasks[place], board.now, width)
        marked = place == at and column == board.column
        return [restyled(line, "chosen") for line in card] if marked else card

    first, shown = visible(len(tasks), at, rows, draw)
    below = max(board.totals[column], len(tasks)) - first - len(shown)
    return [line for card in shown for line in card], first, below


def _nothing(board: Board, *said: Span) -> list[Line]:
    """Return what stands where nothing is, or nothing yet."""
    return [list(said) if board.loaded else [(" loading …", "dim")]]


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
    total = _at_least(board, column, board.totals[column])
    return boxed(
        lines, (width, height), style,
        title=[(f" {COLUMNS[column][1]} ", name), (f"{total} ", "dim")],
        above=[(f" ▲ {above} more ", "more")] if above else [],
        below=[(_more_below(board, column, below), "more")] if below else [],
    )


def _more_below(board: Board, column: int, below: int) -> str:
    """Return the sign for more tasks; at the last one that can be reached, how to find the rest."""
    if below == board.totals[column] - len(board.columns[column]):
        return f" {_at_least(board, column, below)} more: search / "
    return f" ▼ {_at_least(board, column, below)} more "


def _at_least(board: Board, column: int, number: int) -> str:
    """Return a number of a column's tasks, with a plus where that may have more of them."""
    return f"{number}" if board.exact[column] else f"{number}+"


def one_column(board: Board, width: int, height: int) -> list[Line]:
    """Return the chosen column alone, under a line that names all three, or as many as fit."""
    lines, above, below = cards(board, board.column, width, height - 1)
    under = _at_least(board, board.column, below)
    signs = f"▲{above} " * (above > 0) + f"▼{under} " * (below > 0)
    names: Line = []
    for column, (_, title) in enumerate(COLUMNS):
        style = "tab" if column == board.column else "dim"
        names.append((f" {title} {_at_least(board, column, board.totals[column])} ", style))
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
    if not lines:
        lines = _nothing(board, (" no projects yet: ", "dim"), ("a", "focus"), (" adds one", "dim"))
    title: Line = [(" Projects ", "focus"), (f"{len(board.projects)} ", "dim")]
    beyond = (first, len(board.projects) - first - room)
    return listed(lines, beyond, (width, height), title if framed else None)


def listed(
    lines: list[Line], beyond: tuple[int, int], size: tuple[int, int], title: Line | None
) -> list[Line]:
    """Return lines and how many more are above and below: in a frame, or without a title bare."""
    above, below = beyond
    if title is None:
        return signed(lines, above, below, size[0])
    return boxed(
        lines, size, "focus", title=title,
        above=[(f" ▲ {above} more ", "more")] if above else [],
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


def task_lines(board: Board, width: int) -> list[Line]:
    """Return all lines of a task's detail: facts, description and events, newest first."""
    task = board.task
    if task is None:
        return [[("loading …", "dim")]]
    lines: list[Line] = [[(text, "title")] for text in wrapped(task["title"], width)]
    lines.append([])
    for name, value in _facts(board, task):
        lines += labelled((f"{name:<10}", "dim"), value, width)
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


def labelled(label: Span, value: Span, width: int) -> list[Line]:
    """Return a text beside its label, wrapped; below it where the screen is too narrow."""
    text, style = value
    room = width - tam.cell_width(label[0])
    if room < min(tam.cell_width(text), 20):
        return [[label], *([("  " + part, style)] for part in wrapped(text, max(width - 2, 1)))]
    first, *rest = wrapped(text, room)
    return [[label, (first, style)], *([(" " * (width - room) + part, style)] for part in rest)]


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
    title: Line | None = None
    if framed:
        shown = [[(" ", "base"), *line] for line in shown]
        title = [(f" Task {board.task_id} ", "focus")]
    return listed(shown, (top, len(lines) - top - room), (width, height), title)


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
    if board.note:
        return fill([(f" {board.note} ", "key")], width, "bar")
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


def help_lines(width: int) -> list[Line]:
    """Return the keys of all screens."""
    lines: list[Line] = []
    for heading, rows in HELP.items():
        lines += [[(heading, "focus")]]
        for key, meaning in rows:
            lines += labelled((f"  {key:<11}", "title"), (meaning, "base"), width)
    return lines


def over(board: Board, width: int, height: int) -> tuple[list[Line], tuple[int, int] | None]:
    """Return the box of the board's overlay, and the cursor in it."""
    overlay = board.overlay
    if isinstance(overlay, Prompt):
        return prompt_box(overlay, width, height)
    if isinstance(overlay, Help):
        return _help_box(overlay, width, height), None
    if isinstance(overlay, Confirm):
        keys = f" Enter {VERBS[overlay.operation].lower()} · Esc cancel "
        return _message_box(question(overlay, board.now), " Sure? ", keys, (width, height)), None
    title = f" {overlay.title} "
    return _message_box(overlay.text, title, " Enter closes ", (width, height)), None


#: What a question is about, by its operation.
VERBS = {"task.del": "Delete", "task.done": "Complete", "project.del": "Delete"}


def question(asked: Confirm, now: float) -> str:
    """Return what is asked, with all that is to be known for the answer."""
    subject, note = asked.subject, f"{asked.note}.\n" if asked.note else ""
    verb = VERBS[asked.operation]
    if asked.operation == "project.del":
        tasks, held = subject["tasks"], subject["leases"]
        what = "its tasks" if tasks is None else f"{tasks} task{'s' * (tasks != 1)}"
        agents = f", {held} of them held by agents" if held else ""
        return f"{note}{verb} project '{subject['name']}' with {what}{agents}?"
    left = lease_left(subject, now)
    holder = f"{subject['assigned_agent']} holds it for {left_text(left)}. " if left else ""
    return f"{note}{holder}{verb} task {subject['id']} '{subject['title']}'?"


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
    outer = min(width, 54)
    lines = help_lines(outer - 4)
    room = max(height - 2, 1)
    top = min(overlay.top, _last_top(len(lines), room))
    if height < 3 or width < 10:
        return [fill(line, width) for line in lines[top : top + height]]
    below = len(lines) - top - room
    size = (outer, min(len(lines), room) + 2)
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
        count = len(help_lines(min(width, 54) - 4))
        overlay = Help(min(overlay.top, _last_top(count, max(height - 2, 1))))
    return replace(board, page=page, top=top, overlay=overlay)


# ---- terminal ------------------------------------------------------------------------------------

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


def next_key(text: str, at: int) -> tuple[str, int]:
    """Return the key that begins at a place in what a terminal sent, and where the next one does.

    The key is "" for what means nothing here. While it is incomplete the place stays the same.
    """
    if text.startswith(PASTE_START, at):
        end = text.find(PASTE_END, at)
        if end >= 0:
            return PASTE + text[at + len(PASTE_START) : end], end + len(PASTE_END)
        return "", (len(text) if len(text) - at > PASTE_LIMIT else at)
    if text[at] != ESCAPE:
        key = text[at]
        return CONTROLS.get(key, key if key >= " " else ""), at + 1
    found = _SEQUENCE.match(text, at + 1)
    if found is not None:
        return SEQUENCES.get(found.group(), ""), found.end()
    return ("", at) if _UNFINISHED.match(text, at + 1) else ("esc", at + 1)


class Keyboard:
    """Turns the bytes of a terminal into keys, however they are cut into pieces."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""

    def feed(self, data: bytes) -> list[str]:
        """Return the keys that are complete with these bytes."""
        text = self._text + self._decoder.decode(data)
        keys, at, end = [], -1, 0
        while at < end < len(text):
            at = end
            key, end = next_key(text, at)
            keys.append(key)
        self._text = text[end:]
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


@dataclasses.dataclass(frozen=True)
class Picture:
    """What is to be painted: the `screen` of a board, at the terminal's `size` of columns and rows.

    `keys` is how many had been pressed. `anew` has all of it painted, not only what differs from
    the picture before.
    """

    screen: Screen
    board: Board
    keys: int
    size: tuple[int, int]
    anew: bool = False


class Terminal:
    """The controlling terminal while the board is on it; descriptors 0 and 1 must point at it.

    What it was like is saved once, before it is opened, and given back by `close`. OSError means
    that it is gone. Whoever draws may have to wait for whoever reads the view: see Painter.
    """

    def __init__(self, fd: int, env: dict) -> None:
        import termios

        self.fd = fd
        self._coloured = not env.get("NO_COLOR")
        self._saved = termios.tcgetattr(fd)
        self._window: object = None
        self._size = (0, 0)
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

    def size(self) -> tuple[int, int]:
        """Return the columns and rows that the terminal has now."""
        found = os.get_terminal_size(self.fd)
        return found.columns or 80, found.lines or 24

    def paint(self, picture: Picture) -> None:
        """Show a picture; curses sends only what differs from the one before."""
        import curses

        screen = picture.screen
        if picture.anew:
            curses.reset_prog_mode()
            self._window.clearok(True)
        if picture.size != self._size:
            self._size = picture.size
            curses.resizeterm(picture.size[1], picture.size[0])
        if picture.board.theme != self._theme:
            self._theme = picture.board.theme
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

    def discard(self) -> None:
        """Drop what the terminal has not shown yet, which frees whoever waits to write more."""
        import termios

        with contextlib.suppress(termios.error):  # it is gone
            termios.tcflush(self.fd, termios.TCOFLUSH)

    def close(self, free: bool = True) -> None:
        """Give the terminal back exactly as it was found; one that is gone needs nothing.

        Nothing is written unless it is `free`: a painter may be stuck in the middle of a write.
        """
        import curses
        import termios

        try:
            if self._window is not None and free:
                tam.write_all(self.fd, b"\x1b[?2004l")
                curses.endwin()
        except (OSError, curses.error):
            return
        finally:
            self._window = None
            # To set a terminal stops a process in the background, unless it ignores the signal;
            # one that is gone has lost what it was like.
            with Handlers((signal.SIGTTOU,), signal.SIG_IGN), contextlib.suppress(termios.error):
                when = termios.TCSADRAIN if free else termios.TCSANOW
                termios.tcsetattr(self.fd, when, self._saved)


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
    with contextlib.suppress(OSError):  # hung up it has no foreground group: as good as none
        if os.tcgetpgrp(fd) == os.getpgrp():
            return fd
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


# ---- threads -------------------------------------------------------------------------------------


class Mailbox:
    """What threads and signals tell the loop, with a bell that wakes it."""

    def __init__(self) -> None:
        self._items: collections.deque[object] = collections.deque()
        self.bell = Bell()

    def post(self, item: object) -> None:
        """Add something, from any thread."""
        self._items.append(item)
        self.bell.ring()

    def signalled(self, number: int, frame: object) -> None:
        """Add a signal; as its handler, while the bell's rope is where signals ring."""
        self._items.append(signal.Signals(number))

    def take(self) -> Iterator[object]:
        """Return what has come since, oldest first."""
        self.bell.hush()
        while self._items:
            yield self._items.popleft()


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
        return Acted(command, store.call(command.name, command.arguments, command.expected))
    except tam.TamError as problem:
        return Acted(command, problem=problem)
    except Exception:  # whoever waits for the command must hear of it all the same
        return Acted(command, problem=unexpected(store, "the command"))


# -- painting --


@dataclasses.dataclass(frozen=True)
class Unpainted:
    """Why a picture could not be painted: an OSError, where the terminal is gone, or another."""

    error: Exception


class Painter:
    """The thread that draws, and of the pictures only the newest.

    A view that nobody reads takes nothing after a while, and whoever writes to it waits. Requests
    and signals are not to wait with it (T §1.2).
    """

    def __init__(self, terminal: Terminal, post: Callable[[object], None]) -> None:
        self._terminal, self._post = terminal, post
        self._lock = threading.Lock()
        self._given = threading.Event()
        self._next: Picture | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def show(self, picture: Picture) -> None:
        """Have a picture painted, in place of one that still waits; the first starts the thread."""
        with self._lock:
            waiting, self._next = self._next, picture
            if waiting is not None and waiting.anew:
                self._next = replace(picture, anew=True)
        self._given.set()
        if self._thread.ident is None:
            self._thread.start()

    def close(self) -> None:
        """End the thread and give the terminal back, whether anybody reads it or not."""
        self._stopping = True
        self._given.set()
        if self._ended(PAINT_WAIT):
            self._terminal.close()
            return
        self._terminal.discard()
        self._terminal.close(free=self._ended(PAINT_WAIT))

    def _ended(self, seconds: float) -> bool:
        if self._thread.ident is not None:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            self._given.wait()
            self._given.clear()
            if self._stopping:
                return
            with self._lock:
                picture, self._next = self._next, None
            try:
                if picture is not None:
                    self._terminal.paint(picture)
                    self._post(picture)
            except Exception as error:  # the loop decides what follows from it
                self._post(Unpainted(error))
                return


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
        content = LOOKS[wanted.screen](store, wanted)
        if wanted.asked is not None:
            content = {**content, "asked": _look_at_question(store, wanted)}
        return View(wanted, served, content)
    except tam.TamError as problem:
        return View(wanted, served, problem=problem)


def _columns(snapshot: dict) -> dict:
    return {
        "columns": [snapshot["columns"][status] for status, _ in COLUMNS],
        "totals": [snapshot["counts"][status.replace("-", "_")] for status, _ in COLUMNS],
        "exact": [snapshot["exact"][status] for status, _ in COLUMNS],
    }


def _look_at_projects(store: tam.Tam, wanted: Interest) -> dict:
    return {"projects": store.call("project.list", {})}


def _look_at_tasks(store: tam.Tam, wanted: Interest) -> dict:
    return _columns(store.snapshot(wanted.project, columns=COLUMN_CAP, search=wanted.search))


def _look_at_task(store: tam.Tam, wanted: Interest) -> dict:
    return store.call("task.show", {"id": wanted.task_id, "project": wanted.project}, {})


def _look_at_question(store: tam.Tam, wanted: Interest) -> dict:
    """Return the subject of a question, as `Confirm` has it."""
    if "id" in wanted.asked:
        return store.call("task.show", wanted.asked, {})["task"]
    found = store.snapshot(wanted.asked["name"], columns=0)
    tasks = sum(found["counts"].values())
    return {**_known(found["project"]), "tasks": tasks, "leases": found["leased_count"]}


LOOKS: dict[str, Callable[[tam.Tam, Interest], dict]] = {
    "projects": _look_at_projects,
    "tasks": _look_at_tasks,
    "task": _look_at_task,
}


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
        self._served: str | None = None
        self._files: tam.Store | None = None
        self._glanced: object = None
        self._version: object = None
        self._rounds = 0
        self._expiry = float("inf")
        self._bell = Bell()  # to wait for it costs less than for an Event
        self._stopping = False
        self.thread = threading.Thread(target=self._run, daemon=True)

    def ask(self, wanted: Interest | None) -> int:
        """Have the store looked at; return the number that the next reading will have at least."""
        self._wanted = wanted
        self._asked += 1
        self._bell.ring()
        return self._asked

    def stop(self) -> threading.Thread:
        """Let the thread end, and return it."""
        self._stopping = True
        self._bell.ring()
        return self.thread

    def _run(self) -> None:
        store = self._open_store()
        while not self._stopping:
            select.select([self._bell.fd], [], [], self._round(store))
            self._bell.hush()
        self._bell.close()
        store.close()

    def _round(self, store: tam.Tam) -> float:
        """Look if there is a reason to; return how many seconds to wait until the next time."""
        number = self._asked  # before all else: what is asked from now on needs another look
        try:
            seen = self._version_of(store)
            late = self._clock() >= self._expiry
            if number != self._answered or seen != self._seen or late:
                self._look(store, number)
                self._seen = seen
            return POLL
        except tam.TamError as problem:
            self._report(number, problem)
        except Exception:  # whoever waits for this look must hear of it all the same
            self._report(number, unexpected(store, "looking at the store"))
        return RETRY

    def _version_of(self, store: tam.Tam) -> object:
        """Return what differs once the store may hold something else."""
        glanced = self._files and self._files.glance()
        if glanced != self._glanced:
            self._glanced, self._rounds = glanced, 0
        # For a while after a change too: a commit is seen in the files before it is one.
        if self._rounds < POLLS_AROUND or self._rounds % POLLS_AROUND == 0:
            self._files = store.store
            self._version = store.default_project(), store.store.path, store.data_version()
        self._rounds += 1
        return self._version

    def _look(self, store: tam.Tam, number: int) -> None:
        """Read for the session first: whoever waits for it need not wait for the board."""
        wanted = self._wanted
        snapshot = look_for_session(store, wanted)
        expiry = snapshot["next_expiry"]
        self._expiry = float("inf") if expiry is None else expiry
        self._answered = number
        self._served = snapshot["project"] and snapshot["project"]["name"]
        self._post(Reading(number, project_state(snapshot)))
        if wanted is not None:
            self._post(look_for_board(store, wanted, snapshot))

    def _report(self, number: int, problem: tam.TamError) -> None:
        self._answered, self._seen, self._rounds = number, None, 0
        self._post(Reading(number, problem=problem))
        if self._wanted is not None:
            self._post(View(self._wanted, self._served, problem=problem))


# ---- loop ----------------------------------------------------------------------------------------

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
        self._painter = None if terminal is None else Painter(terminal, self._mailbox.post)
        self._session = None if wire is None else Session(log=stores[0]().log)
        self._watcher = Watcher(stores[0], self._mailbox.post)
        self._calls = Crew(IN_FLIGHT, stores[0], self._mailbox.post)
        self._hands = Crew(1, stores[1], self._mailbox.post)
        self._keyboard, self._eyes = Keyboard(), Eyes(board)
        self._lines: collections.deque[bytes] = collections.deque()
        self._awaited = 0
        self._status: int | None = None
        self._closing = False
        self._dirty = True
        self._renewed = False
        self._blocked = False
        self._timers: dict[str, float] = {}

    def run(self) -> int:
        """Serve until the end; return the exit status."""
        with Handlers(SIGNALS, self._mailbox.signalled):
            before = signal.set_wakeup_fd(self._mailbox.bell.rope, warn_on_full_buffer=False)
            try:
                self._begin()
                while self._status is None:
                    self._turn()
            finally:
                signal.set_wakeup_fd(before)
                self._end()
        return self._status

    def _begin(self) -> None:
        if self._terminal is not None:
            self._terminal.open()
            self._watcher.ask(interest(self._board))
        self._watcher.thread.start()
        self._timers["first look"] = time.monotonic() + FIRST_LOOK

    def _end(self) -> None:
        if self._terminal is not None:
            self._painter.close()
        if self._wire is not None:
            self._wire.close()
        deadline = time.monotonic() + (0.2 if self._status else 2.0)
        threads = [self._watcher.stop(), *self._calls.stop(), *self._hands.stop()]
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0))
        self._mailbox.bell.close()

    # -- one turn --

    def _turn(self) -> None:
        readers = [self._mailbox.bell.fd]
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
        if self._session is not None and reading.number >= self._awaited:
            self._session.caught_up()

    def _take_view(self, view: View) -> None:
        self._show(arrange(self._board, view))

    def _take_answered(self, answered: Answered) -> None:
        """Answer a call; if it may have changed something, reads wait until its effect is seen.

        So whoever reads the state after the answer finds the effect in it.
        """
        self._calls.finished()
        self._session.answer(answered.line)
        if answered.call.mutates:
            self._session.behind = True
            self._awaited = self._watcher.ask(self._wanted())

    def _take_acted(self, acted: Acted) -> None:
        self._hands.finished()
        if acted.problem is not None:
            self._show(failed(self._board, acted.command, acted.problem))
        else:
            self._show(settled(self._board, acted.command, acted.result))
        self._watcher.ask(self._wanted())

    def _take_picture(self, picture: Picture) -> None:
        self._eyes.painted(picture.board, picture.keys)

    def _take_unpainted(self, unpainted: Unpainted) -> None:
        if not isinstance(unpainted.error, OSError):
            raise unpainted.error
        if self._terminal is not None:
            self._lose_terminal()

    TAKEN: dict[type, Callable[[Loop, object], None]] = {
        signal.Signals: _take_signal,
        Reading: _take_reading,
        View: _take_view,
        Answered: _take_answered,
        Acted: _take_acted,
        Picture: _take_picture,
        Unpainted: _take_unpainted,
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
            board, commands = self._eyes.press(self._board, key)
            self._show(board)
            for command in commands:
                self._command(command)

    def _command(self, command: Command) -> None:
        if command.verb == "quit" and self._closing:
            self._status = 0  # the second time: whoever is still waited for is not
        elif command.verb == "quit":
            self._close()
        else:
            self._hands.give(functools.partial(act, command=command))

    def _paint(self) -> None:
        if not self._dirty or self._terminal is None:
            return
        try:
            width, height = self._terminal.size()
        except OSError:
            self._lose_terminal()
            return
        self._board = replace(within(self._board, width, height), now=int(time.time()))
        screen = render(self._board, width, height)
        size, keys = (width, height), self._eyes.keys
        self._painter.show(Picture(screen, self._board, keys, size, self._renewed))
        self._dirty = self._renewed = False
        change = next_change(self._board)
        if change is None:
            self._timers.pop("clock", None)
        else:
            self._timers["clock"] = time.monotonic() + change

    def _lose_terminal(self) -> None:
        """Go on without the view if there is a host, end if there is none."""
        self._painter.close()
        self._terminal = None
        self._timers.pop("clock", None)
        if self._session is None:
            self._close()


def _answered(call: Call, store: tam.Tam) -> Answered:
    return Answered(call, carry_out(store, call))


# ---- foreign schemas -----------------------------------------------------------------------------
# The words of JSON Schema that only the descriptors of other Ticks need, as rows for tam's table;
# the check that a schema is a right one; and patterns. Schemas and values are a stranger's: all
# work is counted in steps, and what `re` does for a pattern is ended with its process.

#: How long a pattern may be, in characters: generated ones are longer, and no person reads them.
PATTERN_LENGTH = 10_000
#: What one look for a pattern costs in steps, beside those for its length: some 25 microseconds.
PATTERN_STEPS = 50
#: Seconds of processor time that all patterns of one check may take.
PATTERN_TIME = 1.0


def violations(
    schema: object, value: object, *, steps: int = tam.SCHEMA_STEPS,
    skipped: set[str] | None = None,
) -> list[tuple[str, str]]:
    """Return all that is wrong with a JSON value, as (JSON Pointer, sentence): [] where it fits.

    tam.SchemaError where the schema cannot be used (see `StrangersCheck.unchecked`), where the check
    takes more than `steps` or goes too deep, where the patterns take too long, and where the value
    is none that JSON has. With a set as `skipped` a keyword that needs what is not supported is
    left unchecked and put in there.
    """
    check = StrangersCheck(schema, steps, skipped)
    for _, beyond in check.unchecked():
        if beyond is not None and skipped is None:
            raise beyond
    with contextlib.closing(check.searcher):
        return list(check.sentences(value))


class StrangersCheck(tam.SchemaCheck):
    """A check with all words of KEYWORDS, for a schema that may be wrong. See `violations`."""

    def __init__(
        self, root: object, steps: int = tam.SCHEMA_STEPS, skipped: set[str] | None = None
    ) -> None:
        super().__init__(root, steps)
        self.keywords = KEYWORDS
        self.skipped = skipped
        self.searcher = Searcher(PATTERN_TIME)

    # -- values --

    def sentences(self, value: object) -> Iterator[tuple[str, str]]:
        """Yield all that is wrong with a value, as (JSON Pointer, sentence); nothing if it fits.

        A sentence says what must be so and, in short, what was found; lone surrogates appear as
        escapes. tam.SchemaError where the check takes too many steps or goes too deep, and where the
        value is none that JSON has. The schema must be a right one: see `unchecked`.
        """
        try:
            for at, must, part in self.violations(self.root, value, ()):
                self.spend(4)
                yield self.pointer(at), f"{must}; found {tam.shown_value(part)}"
        except RecursionError:
            text = "the schema and the value are nested too deep to be checked"
            raise tam.SchemaError(text, unsupported=True) from None

    def of_keyword(self, word: str, schema: dict, value: object, at: tuple) -> Iterator[tuple]:
        """As in tam; a keyword that needs what is not supported is skipped, if that was asked."""
        try:
            yield from super().of_keyword(word, schema, value, at)
        except tam.SchemaError as error:
            if self.skipped is None or self.left < 0 or "unsupported" not in error.details:
                raise
            self.spend(10)
            self.skipped.add(word)

    def first(self, schema: object, value: object, at: tuple) -> tuple | None:
        """Return the first thing that is wrong; None where the value fits.

        Nothing is skipped in here: "not" would take what was not looked at for what fits. So a
        keyword that cannot tell is skipped as a whole, by the one that asks.
        """
        outside, self.skipped = self.skipped, None
        try:
            return next(self.violations(schema, value, at), None)
        finally:
            self.skipped = outside

    def search(self, pattern: str, text: str) -> bool:
        """Say whether a stranger's pattern matches anywhere in a text."""
        self.spend(PATTERN_STEPS + (len(pattern) + len(text) >> 6))
        found = self.searcher.search(translated(pattern), text)
        if found is None:
            self.left = -1  # whatever was asked to be skipped: the next pattern would take as long
            text = f"the pattern {tam.shown_value(pattern)} takes too long"
            raise tam.SchemaError(text, unsupported=True)
        return found

    def key(self, value: object) -> object:
        """Return what is the same for equal JSON values: 1 and 1.0 are equal, 1 and true are not.

        Numbers become text because their own hashes are known: a stranger could make them collide.
        """
        kind = type(value)
        if kind is str:
            self.spend(len(value) >> 8)
            return value
        if kind is int or kind is float and value.is_integer():
            return int, hex(int(value))
        if kind is list:
            self.spend(len(value))
            return (list, *[self.key(item) for item in value])
        if kind is dict:
            self.spend(len(value))
            return dict, frozenset([(name, self.key(item)) for name, item in value.items()])
        if kind not in tam.TYPE_NAMES:
            raise tam.SchemaError(f"{tam.shown_value(value)} is no JSON value")
        return kind, repr(value)

    def target(self, ref: str) -> object:
        """Return the schema that a `$ref` means."""
        tokens = _ref_tokens(ref)
        target = None if tokens is None else pointed(self.root, tokens)
        if type(target) not in (dict, bool):
            elsewhere = {"unsupported": True} if tokens is None else {}
            text = f"$ref {tam.shown_value(ref)} leads to no schema in this document"
            raise tam.SchemaError(text, **elsewhere)
        return target

    def translate(self, pattern: str) -> str:
        """Return a pattern as `re` has it."""
        self.spend(PATTERN_STEPS * 8 + len(pattern))  # `re` compiles it, to see that it can
        return translated(pattern)

    def translate_all(self, patterns: dict) -> None:
        """Look at all names of `patternProperties`."""
        for pattern in patterns:
            self.translate(pattern)

    # -- the schema --

    def unchecked(self) -> list[tuple[str, tam.SchemaError | None]]:
        """Return the words in the schema that may have a say but are not checked.

        These are, with None, all that are neither in A_SCHEMA nor begin with "x-", and `$id` below
        the top, where it changes what a `$ref` means; and with an error, whose `details` have
        `unsupported` and the `pointer` to the place: a pattern that `re` cannot say, and a `$ref`
        to another document or to an anchor. tam.SchemaError with its `pointer` where something is
        wrong for certain: a keyword whose own value has a wrong shape, at any depth and in
        annotations too; a `$ref` that leads to no schema, or in a circle; a wrong pattern. It is
        `unsupported` where the schema is nested over tam.MAX_DEPTH or takes too many steps.
        """
        found: list[tuple[str, tam.SchemaError | None]] = []
        places = self.places()
        for schema, at in places:
            for where, must, part in self.violations(A_SCHEMA, schema, at):
                text = f"{must}; found {tam.shown_value(part)}"
                raise tam.SchemaError(text, pointer=self.pointer(where))
            for word in schema if type(schema) is dict else ():
                found += self._unchecked(word, schema[word], (at, word))
        self._refuse_circles(places)
        return found

    def _unchecked(self, word: str, held: object, at: tuple) -> list:
        if word in UNCHECKED or word not in A_SCHEMA["properties"] and not word.startswith("x-"):
            return [] if at == ((), "$id") else [(word, None)]
        try:
            if word in USES:
                USES[word](self, held)
        except tam.SchemaError as error:
            found = tam.SchemaError(error.message, **error.details, pointer=self.pointer(at))
            if "unsupported" in error.details and self.left >= 0:
                return [(word, found)]
            raise found from None
        return []

    def places(self) -> list[tuple[object, tuple]]:
        """Return every place where a schema stands, or a `$ref` leads: (schema, at)."""
        places: dict[int, tuple[object, tuple]] = {}
        level: list[tuple[object, tuple]] = [(self.root, ())]
        for _ in range(tam.MAX_DEPTH):
            below: list[tuple[object, tuple]] = []
            for schema, at in level:
                if id(schema) not in places:
                    places[id(schema)] = schema, at
                    below += self._parts(schema, schema, at)
            level = below
        if level:
            text = f"the schema is nested over {tam.MAX_DEPTH} deep"
            raise tam.SchemaError(text, pointer="", unsupported=True)
        return list(places.values())

    def _parts(self, schema: object, words: Iterable[str], at: tuple) -> list:
        """Return the schemas that stand under these words of a schema, each with its place."""
        parts: list[tuple[object, tuple]] = []
        for word in words if type(schema) is dict else ():
            held = schema.get(word)
            if word in HOLD_ONE and word in schema:
                parts.append((held, (at, word)))
            elif word in HOLD_LIST and type(held) is list:
                parts += [(part, ((at, word), index)) for index, part in enumerate(held)]
            elif word in HOLD_MAP and type(held) is dict:
                parts += [(part, ((at, word), name)) for name, part in held.items()]
            elif word == "$ref" and type(held) is str:
                parts += self._referred(held)
        return parts

    def _referred(self, ref: str) -> list[tuple[object, tuple]]:
        """Return the schema that a `$ref` leads to, at its own place."""
        tokens = _ref_tokens(ref)
        target = None if tokens is None else pointed(self.root, tokens)
        place: tuple = ()
        for token in tokens or ():
            place = place, token
        return [(target, place)] if type(target) is dict else []

    def _refuse_circles(self, places: list[tuple[object, tuple]]) -> None:
        """Refuse schemas that would apply themselves again to the same value, without end."""
        waiting = {
            id(schema): ([id(part) for part, _ in self._parts(schema, IN_PLACE, at)], at)
            for schema, at in places
        }
        before = -1
        while waiting and len(waiting) != before:
            before = len(waiting)
            for key in reversed(list(waiting)):  # parts stand behind what holds them, mostly
                self.spend(1)
                if not any(part in waiting for part in waiting[key][0]):
                    del waiting[key]
        for _, at in waiting.values():
            text = "the schema applies itself to one value without end"
            raise tam.SchemaError(text, pointer=self.pointer(at))


def _ref_tokens(ref: str) -> list[str] | None:
    """Return the tokens of a `$ref` that is "#" or "#/…", decoded; None for every other."""
    if ref != "#" and not ref.startswith("#/"):
        return None
    import urllib.parse

    return pointer_tokens(urllib.parse.unquote(ref[1:], errors="replace"))


def pointer_tokens(pointer: str) -> list[str]:
    """Return the tokens of a JSON Pointer (RFC 6901)."""
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]


def pointed(value: object, tokens: list[str]) -> object:
    """Return what the tokens of a JSON Pointer lead to; None if to nothing."""
    for token in tokens:
        if isinstance(value, list) and re.fullmatch("0|[1-9][0-9]{0,8}", token):
            value = value[int(token)] if int(token) < len(value) else None
        else:
            value = value.get(token) if isinstance(value, dict) else None
    return value


# -- the rules --


def _ref(check: StrangersCheck, word: str, schema: dict, value: object, at: tuple) -> Iterator:
    yield from check.violations(check.target(schema[word]), value, at)


def _all_of(check: StrangersCheck, word: str, schema: dict, value: object, at: tuple) -> Iterator:
    for part in schema[word]:
        yield from check.violations(part, value, at)


def _forms(check: StrangersCheck, word: str, schema: dict, value: object, at: tuple) -> Iterator:
    """anyOf and oneOf."""
    fitting, reasons = [], []
    for number, form in enumerate(schema[word], 1):
        failure = check.first(form, value, at)
        if failure is None and word == "anyOf":
            return
        if failure is None:
            fitting.append(number)
        elif len(reasons) < 4:
            reasons.append(f"({number}) {_reason(check, failure, at)}")
    if len(fitting) != 1:
        check.spend(100)
        exactly = "exactly " if word == "oneOf" else ""
        forms = tam.counted(len(schema[word]), "form")
        fits = f"several: {tam.listed(fitting)}" if fitting else f"none: {', '.join(reasons)}"
        yield at, f"must fit {exactly}one of {forms}, but fits {fits}", value


def _reason(check: StrangersCheck, failure: tuple, base: tuple) -> str:
    """Return a failure as a part of a sentence about the value at `base`."""
    at, must, value = failure
    if at is base:
        return must[:200]
    return f"{check.pointer(at, base)[:100]} {must[:200]} (found {tam.shown_value(value)})"


def _not(check: StrangersCheck, word: str, schema: dict, value: object, at: tuple) -> Iterator:
    if check.first(schema[word], value, at) is None:
        yield at, 'must be other than what "not" describes', value


def _if(check: StrangersCheck, word: str, schema: dict, value: object, at: tuple) -> Iterator:
    branch = "then" if check.first(schema[word], value, at) is None else "else"
    yield from check.violations(schema.get(branch, True), value, at)


def _above(check: StrangersCheck, word: str, schema: dict, value: float, at: tuple) -> Iterator:
    if value <= schema[word]:
        yield at, f"must be greater than {tam.shown_value(schema[word])}", value


def _below(check: StrangersCheck, word: str, schema: dict, value: float, at: tuple) -> Iterator:
    if value >= schema[word]:
        yield at, f"must be less than {tam.shown_value(schema[word])}", value


def _multiple(check: StrangersCheck, word: str, schema: dict, value: float, at: tuple) -> Iterator:
    """In decimal, as people read numbers: 0.0075 is a multiple of 0.0001."""
    (top, high), (bottom, low) = _decimal(value), _decimal(schema[word])
    top, bottom = top * 10 ** max(high - low, 0), bottom * 10 ** max(low - high, 0)
    check.spend(top.bit_length() * bottom.bit_length() >> 18)
    if top % bottom:
        yield at, f"must be a multiple of {tam.shown_value(schema[word])}", value


def _decimal(number: int | float) -> tuple[int, int]:
    """Return a number in its shortest decimal form: (digits, power of ten)."""
    if type(number) is int:
        return number, 0
    digits, _, power = repr(number).partition("e")
    whole, _, fraction = digits.partition(".")
    return int(whole + fraction), int(power or 0) - len(fraction)


def _prefix(check: StrangersCheck, word: str, schema: dict, value: list, at: tuple) -> Iterator:
    for index, (part, item) in enumerate(zip(schema[word], value)):
        yield from check.violations(part, item, (at, index))


def _contains(check: StrangersCheck, word: str, schema: dict, value: list, at: tuple) -> Iterator:
    part, least, most = schema[word], schema.get("minContains", 1), schema.get("maxContains")
    count = sum(check.first(part, item, (at, index)) is None for index, item in enumerate(value))
    if count < least or most is not None and count > most:
        bound = ("least ", least) if count < least else ("most ", most)
        wanted = bound[0] + tam.counted(bound[1], "item")
        yield at, f'must have at {wanted} that "contains" describes, not {count:,}', value


def _unique(check: StrangersCheck, word: str, schema: dict, value: list, at: tuple) -> Iterator:
    seen: dict[object, int] = {}
    check.spend(len(value))
    for index, item in enumerate(value if schema[word] else ()):
        first = seen.setdefault(check.key(item), index)
        if first != index:
            must = f"must differ from the other items, as from item {first}"
            yield (at, index), must, item


def _patterns(check: StrangersCheck, word: str, schema: dict, value: dict, at: tuple) -> Iterator:
    for pattern, part in schema[word].items():
        for name in value:
            if check.search(pattern, name):
                yield from check.violations(part, value[name], (at, name))


def _names(check: StrangersCheck, word: str, schema: dict, value: dict, at: tuple) -> Iterator:
    for name in value:
        failure = check.first(schema[word], name, ())
        if failure is not None:
            yield (at, name), f"must have another name: the name {failure[1]}", name


def _dependent(check: StrangersCheck, word: str, schema: dict, value: dict, at: tuple) -> Iterator:
    check.spend(len(schema[word]))
    for name, needed in schema[word].items():
        check.spend(len(needed))
        for other in needed if name in value else ():
            if other not in value:
                both = f"{tam.shown_value(other)} because it has {tam.shown_value(name)}"
                yield at, f"must have the property {both}", value


KEYWORDS = tam.KEYWORDS | {
    "$ref": (tam.ANY, _ref),
    "const": (tam.ANY, tam.KEYWORDS["enum"][1]),
    "allOf": (tam.ANY, _all_of),
    "anyOf": (tam.ANY, _forms),
    "oneOf": (tam.ANY, _forms),
    "not": (tam.ANY, _not),
    "if": (tam.ANY, _if),
    "exclusiveMinimum": (tam.NUMBERS, _above),
    "exclusiveMaximum": (tam.NUMBERS, _below),
    "multipleOf": (tam.NUMBERS, _multiple),
    "prefixItems": ((list,), _prefix),
    "contains": ((list,), _contains),
    "uniqueItems": ((list,), _unique),
    "patternProperties": ((dict,), _patterns),
    "propertyNames": ((dict,), _names),
    "dependentRequired": ((dict,), _dependent),
    "minProperties": ((dict,), tam.KEYWORDS["minItems"][1]),
    "maxProperties": ((dict,), tam.KEYWORDS["maxItems"][1]),
}


# -- the schema of schemas, each place for itself --

HOLD_ONE = (
    "not", "if", "then", "else", "items", "contains", "additionalProperties", "propertyNames",
    "contentSchema", "unevaluatedItems", "unevaluatedProperties",
)
HOLD_LIST = ("allOf", "anyOf", "oneOf", "prefixItems")
HOLD_MAP = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
#: The words that apply what they hold to the very same value.
IN_PLACE = ("$ref", "allOf", "anyOf", "oneOf", "not", "if", "then", "else")
#: Words of draft 2020-12 that have a say and are not checked, nor `$id` where it means something.
UNCHECKED = ("$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "dependentSchemas",
             "unevaluatedItems", "unevaluatedProperties")
#: What has to be looked at beside the shape of a word's own value.
USES = {
    "$ref": StrangersCheck.target,
    "pattern": StrangersCheck.translate,
    "patternProperties": StrangersCheck.translate_all,
}
_NAMES = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
_A_TYPE = {"enum": list(tam.TYPE_PHRASES)}
A_SCHEMA = {"type": ["object", "boolean"], "properties": {
    **dict.fromkeys(HOLD_ONE, {"type": ["object", "boolean"]}),
    **dict.fromkeys(HOLD_LIST, {"type": "array", "minItems": 1}),
    **dict.fromkeys((*HOLD_MAP, "$vocabulary"), {"type": "object"}),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
                    {"type": "number"}),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains",
                     "minProperties", "maxProperties"), {"type": "integer", "minimum": 0}),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), {"type": "boolean"}),
    **dict.fromkeys(("$ref", "pattern", "$schema", "$comment", "title", "description", "format",
                     "contentEncoding", "contentMediaType", "$id", "$anchor", "$dynamicRef",
                     "$dynamicAnchor"), {"type": "string"}),
    **dict.fromkeys(("enum", "examples"), {"type": "array"}),
    **dict.fromkeys(("const", "default"), True),
    "type": {"anyOf": [_A_TYPE, {"type": "array", "items": _A_TYPE, "minItems": 1,
                                 "uniqueItems": True}]},
    "multipleOf": {"type": "number", "exclusiveMinimum": 0},
    "required": _NAMES,
    "dependentRequired": {"type": "object", "additionalProperties": _NAMES},
}}


# -- patterns: ECMAScript's regular expressions with the u flag, in the words of `re` --

#: Run in a process of its own, which the kernel ends when its time is up. In this process nothing
#: could stop `re`: it looks for signals on the main thread only, and hosts check in others.
SEARCHER = """\
import json, re, signal, sys
signal.setitimer(signal.ITIMER_PROF, float(sys.argv[1]))
for line in sys.stdin.buffer:
    pattern, text = json.loads(line)
    sys.stdout.write("01"[re.search(pattern, text, re.ASCII) is not None])
    sys.stdout.flush()
"""


class Searcher:
    """Searches patterns in a process of its own, started when it is needed, until `close`."""

    def __init__(self, seconds: float) -> None:
        """`seconds` of processor time are all that it may take, its start included."""
        self._seconds = seconds
        self._process: object = None

    def search(self, pattern: str, text: str) -> bool | None:
        """Say whether a pattern of `re` matches anywhere in a text; None when time is up."""
        import subprocess

        if self._process is None:
            words = [sys.executable, "-I", "-S", "-c", SEARCHER, str(self._seconds)]
            self._process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                bufsize=0,
            )
        try:
            line = json.dumps([pattern, text]).encode() + b"\n"  # any text, lone surrogates too
            tam.write_all(self._process.stdin.fileno(), line)
        except BrokenPipeError:
            return None
        answer = self._process.stdout.read(1)
        return answer == b"1" if answer else None

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


#: One character, as it stands or escaped; what stands for several; and what refers to others.
PATTERN_ONE = (
    r"\\u[dD][89abAB][0-9A-Fa-f]{2}\\u[dD][c-fC-F][0-9A-Fa-f]{2}|\\u\{0*[0-9A-Fa-f]{1,6}\}"
    r"|\\u[0-9A-Fa-f]{4}|\\x[0-9A-Fa-f]{2}|\\c[A-Za-z]|\\[tnvfr]|\\0(?![0-9])|\\[^A-Za-z0-9]|[^\\]"
)
PATTERN_SET = r"\\[dDwWsS]|\\[pP]\{(?:(?:gc|General_Category)=)?[A-Za-z_]+\}"
PATTERN_TOKEN = re.compile(
    r"(?P<repeat>(?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})\??)"
    r"|(?P<group>\((?:\?(?:[:=!]|<[=!]|<[A-Za-z_$][A-Za-z0-9_$]*>)|(?!\?)))"
    r"|(?P<edge>\\[bB]|[$.^|)])"
    r"|(?P<bracket>\[(?:\\.|[^\]\\])*\])"
    rf"|(?P<set>{PATTERN_SET})|(?P<one>(?![(\[])(?:{PATTERN_ONE}))|(?P<refused>.)", re.DOTALL)
#: Within brackets: a range, and else as outside.
PATTERN_MEMBER = re.compile(
    rf"(?P<low>\\b|{PATTERN_ONE})-(?P<high>\\b|{PATTERN_ONE})"
    rf"|(?P<set>{PATTERN_SET})|(?P<one>\\b|{PATTERN_ONE})|(?P<refused>.)", re.DOTALL)
#: What others understand and `re` cannot say: references, flags of a group, a script's name.
PATTERN_BEYOND = re.compile(
    r"\\[1-9k]|\\[pP]\{\w+=\w+\}|\(\?(?=[ims-]+:)[ims]*(?:-[ims]*)?:", re.ASCII)
PATTERN_EDGES = {"$": r"\Z", ".": r"[^\n\r\u2028\u2029]"}
PATTERN_SETS = {
    "s": r"\s\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff",
    "S": r"\x00-\x08\x0e-\x1f!-\x9f\xa1-\u167f\u1681-\u1fff\u200b-\u2027\u202a-\u202e\u2030-\u205e"
         r"\u2060-\u2fff\u3001-\ufefe\uff00-\U0010ffff",
}
PATTERN_SIGNS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "0": 0, "b": 8}
PATTERN_CATEGORIES = (
    "L/Letter LC/Cased_Letter Lu/Uppercase_Letter Ll/Lowercase_Letter Lt/Titlecase_Letter "
    "Lm/Modifier_Letter Lo/Other_Letter M/Mark/Combining_Mark Mn/Nonspacing_Mark Mc/Spacing_Mark "
    "Me/Enclosing_Mark N/Number Nd/Decimal_Number/digit Nl/Letter_Number No/Other_Number "
    "P/Punctuation/punct Pc/Connector_Punctuation Pd/Dash_Punctuation Ps/Open_Punctuation "
    "Pe/Close_Punctuation Pi/Initial_Punctuation Pf/Final_Punctuation Po/Other_Punctuation "
    "S/Symbol Sm/Math_Symbol Sc/Currency_Symbol Sk/Modifier_Symbol So/Other_Symbol Z/Separator "
    "Zs/Space_Separator Zl/Line_Separator Zp/Paragraph_Separator C/Other Cc/Control/cntrl "
    "Cf/Format Cs/Surrogate Co/Private_Use Cn/Unassigned"
)


@functools.lru_cache(maxsize=100)
def translated(pattern: str) -> str:
    """Return what means the same to `re` with re.ASCII; tam.SchemaError where nothing does.

    A lookbehind must have one length. More lenient than the u flag: escaped punctuation, a single
    brace, and a dash beside \\w are themselves.
    """
    if len(pattern) > PATTERN_LENGTH:
        raise _pattern_fault(pattern, f"it has more than {PATTERN_LENGTH:,} characters", True)
    parts, before = [], ""
    for token in PATTERN_TOKEN.finditer(pattern):
        if token.lastgroup == before == "repeat":  # to `re` it would mean "possessive"
            raise _pattern_fault(pattern, f"there is nothing to repeat at character {token.end()}")
        before = token.lastgroup
        parts.append(_translated_token(token))
    text = "".join(parts)
    try:
        re.compile(text, re.ASCII)
    except re.error as error:
        raise _pattern_fault(pattern, error.msg, "look-behind" in error.msg) from None
    except (OverflowError, RecursionError, ValueError):
        raise _pattern_fault(pattern, "it repeats too often or is nested too deep", True) from None
    return text


def _pattern_fault(pattern: str, why: str, beyond: bool = False) -> tam.SchemaError:
    details = {"unsupported": True} if beyond else {}
    return tam.SchemaError(f"the pattern {tam.shown_value(pattern)}: {why}", **details)


def _translated_token(token: re.Match[str]) -> str:
    kind, text = token.lastgroup, token[0]
    if kind == "refused":
        beyond = PATTERN_BEYOND.match(token.string, token.start()) is not None
        what = f"{tam.shown_value(token.string[token.start():token.start() + 3])} is not supported"
        raise _pattern_fault(token.string, what, beyond)
    if kind == "group":  # nothing refers to one, so none needs a number or a name
        return "(?:" if text == "(" or text.endswith(">") else text
    if kind == "bracket":
        return _bracket(text)
    if kind in ("set", "one"):
        return f"[{_set_member(token)}]"
    return PATTERN_EDGES.get(text, text)


def _bracket(text: str) -> str:
    inside = text[1:-1].removeprefix("^")
    if not inside:
        return "(?!)" if text == "[]" else r"[\x00-\U0010ffff]"
    sign = "^" if text.startswith("[^") else ""
    return f"[{sign}{PATTERN_MEMBER.sub(_set_member, inside)}]"


def _set_member(token: re.Match[str]) -> str:
    """Return a member of a bracket, as `re` has it within brackets."""
    kind, text = token.lastgroup, token[0]
    if kind == "high":
        return f"{_character(token['low'])}-{_character(token['high'])}"
    if kind == "one":
        return _character(text)
    if kind == "set":
        return PATTERN_SETS.get(text[1:]) or (text if len(text) == 2 else _category(text))
    return _translated_token(token)


def _character(text: str) -> str:
    if text[0] != "\\":
        number = ord(text)
    elif text[1:] in PATTERN_SIGNS:
        number = PATTERN_SIGNS[text[1:]]
    elif text[1] == "c":
        number = ord(text[2]) % 32
    elif text.count("u") == 2:
        number = ord(bytes.fromhex(text[2:6] + text[8:]).decode("utf-16-be"))
    else:
        number = int(text[2:].strip("{}"), 16) if text[1] in "xu" else ord(text[1])
    return f"\\U{number:08x}"


def _category(text: str) -> str:
    """Return the characters that \\p{…} or \\P{…} means, as ranges."""
    name = text[3:-1].rpartition("=")[2]
    for names in PATTERN_CATEGORIES.split():
        if name in names.split("/"):
            prefix = names.split("/")[0]
            wanted = ("Lu", "Ll", "Lt") if prefix == "LC" else prefix
            spans = [span for category, span in _categories()
                     if category.startswith(wanted) == (text[1] == "p")]
            return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in spans)
    raise tam.SchemaError(f"the Unicode property {name} is not supported", unsupported=True)


@functools.cache
def _categories() -> list[tuple[str, tuple[int, int]]]:
    """Return the runs of characters of one general category."""
    import itertools
    import unicodedata

    every = range(sys.maxunicode + 1)
    runs = itertools.groupby(every, lambda number: unicodedata.category(chr(number)))
    spans = ((category, list(run)) for category, run in runs)
    return [(category, (span[0], span[-1])) for category, span in spans]


# ---- host: limits --------------------------------------------------------------------------------

#: How much of the screen a failed start reports, in characters (T §4.2).
HOST_SCREEN_EXCERPT = 256
#: Bytes that are kept of standard error, and of keys that the Tick has not read.
HOST_KEPT = 1 << 16
#: What a Tick that has exited can still have in its pipe: the largest that Linux lets one have.
HOST_PIPE_MOST = 1 << 20
#: Remembered seqs of updates, to say how many were merged, and ids that were given up.
HOST_REMEMBERED = 4096
#: How many times the processes of a Tick are looked for and killed, since they may fork.
HOST_KILLS = 200
#: After how many rounds in a row without any of them nothing is taken to be left.
HOST_EMPTY = 3
#: How often the host looks for the Tick's end where the system has no pidfd, in seconds.
HOST_POLL = 0.02


@dataclasses.dataclass(frozen=True)
class HostLimits:
    """The limits of T §3.5 and §4.2, each of which a test may lower.

    Sizes are bytes of compact UTF-8 JSON, times are seconds, the terminal is in cells. `grace` is
    how long a Tick may take to end after SIGTERM before SIGKILL; T §4.5 demands none.
    """

    in_flight: int = IN_FLIGHT
    line: int = tam.MAX_LINE
    result: int = MAX_RESULT
    state: int = MAX_STATE
    descriptor: int = MAX_DESCRIPTOR
    start: float = START_TIME
    call: float = CALL_TIME
    grace: float = 0.5
    columns: int = VIEW_SIZE[0]
    rows: int = VIEW_SIZE[1]


# ---- host: errors --------------------------------------------------------------------------------


class HostError(tam.Internal):
    """Something the host could not do, or that came of a request in the place of its result.

    `kind` is that of the reply, see `HostReply`; "unsent" for what the host has refused.
    `executed` is False where the call has certainly had no effect, None where it took effect or
    may have (T §3.4, §7.3).
    """

    def __init__(self, message: str, kind: str = "unsent", **details: object) -> None:
        super().__init__(message, **details)
        self.kind = kind
        refused = kind == "error" and details["code"] in NOT_EXECUTED
        self.executed = False if refused or kind == "unsent" else None


class HostStartError(HostError):
    """The Tick was not initialised (T §4.2).

    Details: `outcome` ("init", "violation" or "exit"), `rule` (an id of HOST_RULES) and `screen`
    (the first 256 characters of the Tick's screen).
    """

    def __init__(self, message: str, outcome: str = "init", rule: str = "start.run",
                 screen: str = "") -> None:
        super().__init__(message, outcome=outcome, rule=rule, screen=screen)


# ---- host: values --------------------------------------------------------------------------------

HOST_TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-5][0-9]|60)(?:\.[0-9]+)?"
    r"(?:[Zz]|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))")


def host_integer(value: object) -> int | None:
    """The value as an integer of T §2.2, or None where it is none.

    True is no integer; 1.0 is one, since T's types are about values and not about spelling.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not int or abs(value) > MAX_INTEGER:
        return None
    return value


def host_uinteger(value: object) -> int | None:
    """The value as an unsigned integer of T §2.2, or None where it is none."""
    number = host_integer(value)
    return None if number is None or number < 0 else number


def host_is_time(value: object) -> bool:
    """Whether a value is an RFC 3339 time (T §2.2, §6.2).

    A second 60 is one where, in UTC, it ends the last minute of a month: only there can a leap
    second be, and which months had one is no matter of syntax.
    """
    match = HOST_TIME.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return False
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    try:  # datetime has no year 0 and no second 60; the calendar is the same every 400 years
        moment = datetime.datetime(2000 + year % 400, month, day, hour, minute)
    except ValueError:
        return False
    zone = datetime.timedelta(hours=int(match[8] or 0), minutes=int(match[9] or 0))
    minute_after = moment + (zone if match[7] == "-" else -zone) + datetime.timedelta(minutes=1)
    return second < 60 or (minute_after.day, minute_after.hour, minute_after.minute) == (1, 0, 0)


def host_is_text(value: object) -> bool:
    """Whether a value is a text that is more than white space."""
    return isinstance(value, str) and value.strip() != ""


def host_size(value: object) -> int:
    """Bytes of a value's own re-encoding (T §3.5); 0 where it has none (a lone surrogate)."""
    try:
        return len(tam.encode_json(value))
    except tam.BadJSON:
        return 0


def host_is_pointer(value: object) -> bool:
    """Whether a value is a JSON Pointer (RFC 6901)."""
    return isinstance(value, str) and re.fullmatch("(/([^~/]|~[01])*)*", value) is not None


# ---- host: catalogue -----------------------------------------------------------------------------

#: How `host_unfit` begins where it cannot tell.
HOST_UNCHECKABLE = "args cannot be checked"


def host_tools(descriptor: dict) -> list[dict]:
    """The entries of a descriptor's catalogue that are objects, whatever else is wrong with it."""
    tools = descriptor.get("tools")
    return [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []


def host_tool(descriptor: dict, name: object) -> dict | None:
    """The catalogue's entry of a tool, or None."""
    return next((tool for tool in host_tools(descriptor) if tool.get("name") == name), None)


def host_names(descriptor: dict) -> dict[str, tuple]:
    """What a revision names (T §5.5): per tool its description, schema and `mutates`."""
    return {tool["name"]: (tool["description"], tam.encode_json(tool["input_schema"]),
                           tool["mutates"]) for tool in host_tools(descriptor)}


def host_other_draft(schema: dict) -> bool:
    """Whether a schema says that it is of another draft than 2020-12, the one that is checked."""
    named = schema.get("$schema")
    return isinstance(named, str) and "2020-12" not in named


def host_schema(tool: dict) -> tuple[str | None, list[str]]:
    """Why a tool's schema is not valid, None where it is or may be; and what is not checked of it.

    That is a list of keywords, or of one reason why nothing is.
    """
    schema = tool["input_schema"]
    try:
        return None, sorted({word for word, _ in StrangersCheck(schema).unchecked()})
    except tam.SchemaError as error:
        if host_other_draft(schema):
            return None, [f"$schema {schema['$schema']}"]
        if "unsupported" in error.details:  # too deep or too big to be looked through
            return None, [error.message]
        pointer = error.details.get("pointer", "")
        return f"input_schema{pointer} is no valid JSON Schema: {error.message}", []


def host_invalid(tool: dict) -> str | None:
    """Why a tool's schema is not valid; None where it is, or may be."""
    return host_schema(tool)[0]


def host_unfit(tool: dict | None, args: object) -> str:
    """Why a tool cannot be called with arguments, in one sentence; "" where it can (T §7.2).

    They are not held against what `host_schema` leaves unchecked: the Tick has to check them itself.
    """
    if tool is None:
        return "the catalogue has no such tool"
    if not isinstance(args, dict):
        return "args must be an object"
    try:
        unfit = violations(tool["input_schema"], args, skipped=set())
    except tam.SchemaError as error:
        if host_other_draft(tool["input_schema"]):
            return ""
        return f"{HOST_UNCHECKABLE}: {error.message}"
    return f"args{unfit[0][0]} {unfit[0][1]}" if unfit else ""


# ---- host: rules ---------------------------------------------------------------------------------

#: A rule of T that a host can observe: its id, its section, "must" or "should", the rule itself,
#: what to do where it is broken, what it is about, and what is wrong.
#:
#: `wrong(value, known, limits)` returns words, or something false, on one of these values: a "line"
#: (the message, or what it is instead), a "message", an "answer", a "descriptor" and then
#: "catalogue" (both a describe result), a "comparison" (the same, with the one before), a "read", a
#: "result" (of any other request), an "update", an "output" (what follows the last newline), an
#: "exchange" (a reply, which speaks for itself). `known` is what the host knew before. A rule that
#: is about an "experiment" is judged by a probe of the check.
HostRule = collections.namedtuple("HostRule", "id section level sentence advice subject wrong",
                                  defaults=("experiment", None))
#: What is wrong with these ends the session; else it is only noted, or fails its request (T §3.6).
HOST_FATAL = ("line", "update", "output")


def host_sort(message: dict) -> str:
    """What a message is (T §3.2): "answer" or "update"; or else "notification", "request", "null"
    (an answer with that id) or "", none of which a Tick may send."""
    named = isinstance(message.get("method"), str)
    answers = "result" in message or "error" in message
    if named and "id" not in message:
        return "update" if message["method"] == "tick/update" else "notification"
    if host_integer(message.get("id")) is not None and (answers or not named):
        return "answer"
    if named:
        return "request"
    return "null" if answers and message.get("id", 0) is None else ""


def host_faults(subject: str, value: object, known: object = None,
                limits: HostLimits = HostLimits()) -> list[tuple[str, str]]:
    """The ids of the rules about a subject that a value breaks, each with what is wrong.

    Where one is broken the next may make no sense, so it is only the first; but of a catalogue all.
    """
    found = []
    for rule in HOST_RULES:
        wrong = subject in rule.subject.split() and rule.wrong(value, known, limits)
        if wrong:
            found.append((rule.id, wrong))
            if subject != "catalogue":
                break
    return found


def _object(value: object, *_: object) -> str | None:
    return None if isinstance(value, dict) else f"{shown(value)} is no object"


def _member(name: str, fits: type | Callable[[object], object], needed: bool = True) -> Callable:
    """What says that a member of an object is missing, or what it is instead of what fits."""
    good = (lambda value: isinstance(value, fits)) if isinstance(fits, type) else fits

    def wrong(value: dict, *_: object) -> str | None:
        if name not in value:
            return f"{name} is missing" if needed else None
        return None if good(value[name]) else f"{name} is {shown(value[name])}"

    return wrong


def _fault(value: object, *checks: Callable) -> str | None:
    """The first thing that is wrong with a value."""
    return next(filter(None, (check(value) for check in checks)), None)


def _among(place: str, entries: object, *checks: Callable, unique: str = "") -> str | None:
    """The first thing that is wrong with an array or, each at its place, with its entries."""
    if not isinstance(entries, list):
        return f"{place} is missing or no array"
    seen: set[str] = set()
    for index, entry in enumerate(entries):
        wrong = _fault(entry, *checks)
        if unique and not wrong:
            wrong = entry[unique] in seen and f"{unique} {shown(entry[unique])} is there twice"
            seen.add(entry[unique])
        if wrong:
            return f"{place}/{index}: {wrong}"
    return None


def _too_big(value: object, most: int) -> str | None:
    size = host_size(value)
    return f"it has {size:,} bytes, more than {most:,}" if size > most else None


def _wrong_recovery(descriptor: dict, *_: object) -> str | None:
    name = descriptor.get("recover_with", "")
    tool = host_tool(descriptor, name) if isinstance(name, str) else None
    if "recover_with" not in descriptor or (tool and tool.get("mutates") is not True):
        return None
    return f"recover_with {shown(name)} {'mutates' if tool else 'names no tool of the catalogue'}"


def _wrong_series(descriptor: dict, *_: object) -> str | None:
    state = descriptor.get("state", {})
    if not isinstance(state, dict):
        return f"state is {shown(state)}"
    return _among("/state/series", state.get("series", []), _object,
                  _member("path", host_is_pointer),
                  _member("newest", lambda newest: newest in ("first", "last")), unique="path")


_seq = _member("seq", lambda seq: host_uinteger(seq) is not None)


def _unlike(code: int) -> Callable:
    """What finds whether a reply is anything but an error with a code."""
    return lambda reply, *_: reply.details.get("code") != code


def _not_carried_out(reply: HostReply, *_: object) -> bool:
    return reply.kind == "timeout" or reply.details.get("code") in (
        NOT_A_REQUEST, UNKNOWN_METHOD, CATALOGUE_CHANGED)


#: In the order in which they are tried and reported.
HOST_RULES = tuple(HostRule(*row) for row in (
    ("start.run", "4.1", "must", "The command can be started.",
     "give a program that exists and may be executed"),
    ("start.describe", "4.2", "must", "tick/describe is answered with a result within 10 s.",
     "read lines until input ends, flush each answer, do slow work in the background"),
    ("start.read", "4.2", "must", "tick/read is answered with a result, 10 s after the start at "
     "most.", "answer with data null while there is no content yet"),
    ("describe.object", "5.2", "must", "A describe result is an object.",
     "answer with a TickDescriptor", "descriptor", _object),
    ("describe.protocol", "4.3", "must", "protocol is 3.",
     'write "protocol": 3, a number', "descriptor",
     lambda descriptor, *_: host_integer(descriptor.get("protocol")) != PROTOCOL
     and f"unsupported Tick protocol version {shown(descriptor.get('protocol'))}; "
     f"this host speaks Tick protocol {PROTOCOL}"),
    ("describe.kind", "5.3", "must", "kind is not blank.",
     "name the program, such as example.counter", "catalogue", _member("kind", host_is_text)),
    ("describe.title", "5.3", "must", "title is not blank.",
     "give a short name for people", "catalogue", _member("title", host_is_text)),
    ("describe.description", "5.2", "must", "description is a string.",
     "say in a sentence what the Tick shows and does", "catalogue", _member("description", str)),
    ("describe.revision", "5.3", "must", "revision is not empty.",
     "give any string that changes with the catalogue", "catalogue",
     _member("revision", lambda revision: isinstance(revision, str) and revision)),
    ("describe.tools", "5.2", "must", "tools is an array of objects, each with a description and "
     "with mutates.", "give every tool a description and mutates true or false", "catalogue",
     lambda descriptor, *_: _among("/tools", descriptor.get("tools"), _object,
                                   _member("description", str), _member("mutates", bool))),
    ("describe.tool-names", "5.3", "must", "Tool names are not blank, and unique.",
     "rename the tool", "catalogue", lambda descriptor, *_: _among(
         "/tools", host_tools(descriptor), _member("name", host_is_text), unique="name")),
    ("describe.schemas", "5.3", "must", "Each input_schema is an object and valid JSON Schema.",
     "mend the schema where the pointer shows", "catalogue", lambda descriptor, *_: _among(
         "/tools", host_tools(descriptor), _member("input_schema", dict), host_invalid)),
    ("describe.recover-with", "5.3", "must", "recover_with names a tool that does not mutate.",
     "name a query tool, or leave recover_with out", "catalogue", _wrong_recovery),
    ("describe.series", "5.3", "must", "Series have different JSON Pointers, and newest.",
     'write each path as "" or "/name", once', "catalogue", _wrong_series),
    ("describe.size", "5.3", "must", "A describe result has at most 512 KiB.",
     "shorten descriptions and schemas", "descriptor",
     lambda descriptor, _, limits: _too_big(descriptor, limits.descriptor)),
    ("describe.kind-name", "5.4", "should", "kind is of lower case, with the publisher before a "
     "dot.", "write it like acme.orderbook"),
    ("state.size", "6.4", "should", "The state has about 4 KiB or less.",
     "put what is big behind a query tool and name that in the state"),
    ("state.series", "5.2", "should", "A declared series is an array of the state.",
     "let the path lead to an array"),
    ("describe.prompt", "4.4", "should", "describe answers in milliseconds.",
     "build the catalogue once"),
    ("read.prompt", "4.4", "should", "read answers in milliseconds.", "answer from memory"),
    ("request.pure", "4.4", "must", "describe and read have no side effects.",
     "let them tell the state, and count seq for changes only"),
    ("method.unknown", "3.4", "must", "An unknown method is answered with -32601.",
     "answer every other method with error -32601", "exchange", _unlike(UNKNOWN_METHOD)),
    ("call.revision", "7.2", "must", "A call with another revision is answered with -32004.",
     "compare revision before anything else", "exchange", _unlike(CATALOGUE_CHANGED)),
    ("call.tool", "7.2", "must", "A call of an unknown tool is answered with -32602.",
     "look the tool up in the catalogue", "exchange", _unlike(BAD_ARGUMENTS)),
    ("call.args", "7.2", "must", "A call with unfit arguments is answered with -32602.",
     "check args against input_schema, do not leave it to the host", "exchange",
     _unlike(BAD_ARGUMENTS)),
    ("call.no-effect", "3.4", "must", "A call that is refused as not executed has no effect.",
     "check first, and act afterwards"),
    ("answer.eight", "3.3", "must", "Eight requests at once are each answered.",
     "read on while you work, or queue"),
    ("call.query", "7.2", "must", "A query that fits the catalogue is carried out.",
     "let the catalogue and the code agree", "exchange", _not_carried_out),
    ("query.pure", "5.6", "must", "A tool with mutates false changes nothing.",
     "declare mutates true"),
    ("call.approved", "7.2", "must", "A call that the user named is carried out.",
     "let the catalogue and the code agree", "exchange", _not_carried_out),
    ("update.told", "8.1", "must", "A change of the state is told by tick/update.",
     "send tick/update whenever the state has changed"),
    ("call.beside", "3.3", "should", "describe and read do not wait for a call that runs.",
     "carry calls out in another thread or task"),
    ("resize.silent", "8.3", "must", "A resize sends no update and changes no state.",
     "keep the size of the view out of the state"),
    ("junk.line", "3.2", "must", "A line that is no JSON is dropped without an answer.",
     "catch the parser's error and go on with the next line"),
    ("junk.null-id", "3.2", "must", "A request without a usable id is dropped without an answer.",
     "answer only what has an integer id"),
    ("end.answers", "4.5", "should", "At the end of input, calls in flight are finished.",
     "wait for them before you exit"),
    ("end.input", "4.5", "should", "The Tick ends soon after the end of its input.",
     "exit when standard input ends, also if a view is open"),
    ("end.sigterm", "4.5", "should", "The Tick ends soon after SIGTERM.",
     "do not ignore SIGTERM, and do not wait in its handler"),
    ("run.stays", "4.5", "must", "The Tick runs until it is ended.",
     "see its last words on the screen"),
    ("wire.line-size", "3.5", "must", "A line has at most 8 MiB.", "page what is big", "line",
     lambda line, _, limits: isinstance(line, tam.Overlong)
     and f"a line is longer than {limits.line:,} bytes"),
    ("wire.json", "3.6", "must", "Each line is one JSON value in UTF-8.",
     "write nothing else to standard output, each message whole on one line, under a lock", "line",
     lambda line, *_: isinstance(line, tam.BadJSON) and f"a line is no JSON ({line.message})"),
    ("wire.jsonrpc", "3.2", "must", 'Each message is an object with "jsonrpc": "2.0".',
     "add it to every message; batches are not allowed", "line",
     lambda line, *_: (not isinstance(line, dict) or line.get("jsonrpc") != "2.0")
     and 'a message is no object with "jsonrpc": "2.0"'),
    ("wire.kind", "3.6", "must", "Each message has an integer id or a method.",
     "copy the request's id as the number it is", "line",
     lambda line, *_: host_sort(line) == "" and "a message has neither an integer id nor a method"),
    ("wire.newline", "3.1", "must", "The last message ends with a newline.",
     "write the newline with the message, and flush", "output",
     lambda rest, *_: rest and "the output ended in the middle of a line"),
    ("describe.new-revision", "5.5", "must", "A changed catalogue has a new revision.",
     "derive revision from the catalogue", "comparison",
     lambda descriptor, before, _: descriptor["revision"] == before["revision"]
     and host_names(descriptor) != host_names(before)
     and "the catalogue changed and its revision did not"),
    ("read.object", "6.2", "must", "A read result is an object.",
     "answer with seq and data", "read", _object),
    ("read.seq", "6.2", "must", "seq of a read is an integer of 0 to 2^53-1.",
     "count with integers", "read", _seq),
    ("read.data", "6.2", "must", "A read result has data.",
     "write data null while there is no content", "read", _member("data", object)),
    ("read.at", "6.2", "must", "at of a read, where present, is an RFC 3339 time.",
     "write it like 2030-01-31T23:59:00Z, or leave it out", "read",
     _member("at", host_is_time, needed=False)),
    ("read.size", "3.5", "must", "A read result has at most 512 KiB.",
     "put what is big behind a query tool", "read",
     lambda state, _, limits: _too_big(state, limits.state)),
    ("read.floor", "6.3", "must", "seq of a read is not below what the host has seen.",
     "take seq and data together, under one lock, after the updates that went out", "read",
     lambda state, floor, _: host_uinteger(state["seq"]) < floor
     and f"seq {shown(state['seq'])} is below {floor}, which the host had seen"),
    ("update.object", "8.1", "must", "An update's params are an object.",
     "send seq and data", "update", _object),
    ("update.seq", "8.2", "must", "seq of updates is an integer and grows.",
     "count each update, and write them in that order", "update",
     lambda state, last, _: _seq(state) or host_uinteger(state["seq"]) <= last
     and f"seq {shown(state['seq'])} follows seq {last}"),
    ("update.data", "8.2", "must", "An update has data that is not null.",
     "send nothing until there is content", "update",
     _member("data", lambda data: data is not None)),
    ("update.at", "8.2", "must", "at of an update, where present, is an RFC 3339 time.",
     "write it like 2030-01-31T23:59:00Z, or leave it out", "update",
     _member("at", host_is_time, needed=False)),
    ("update.size", "8.2", "must", "An update has at most 512 KiB.",
     "put what is big behind a query tool", "update",
     lambda state, _, limits: _too_big(state, limits.state)),
    ("answer.once", "3.2", "must", "A request is answered once.",
     "answer at one place of the code only", "answer",
     lambda answer, last_id, _: last_id is not None and 1 <= host_integer(answer["id"]) <= last_id
     and f"a second answer to request {shown(answer['id'])}"),
    ("answer.id", "3.2", "must", "An answer has the id of a request.",
     "copy the request's id", "answer",
     lambda answer, last_id, _: last_id is not None
     and f"an answer to {shown(answer['id'])}, which no request has"),
    ("answer.null-id", "3.2", "must", "No answer has the id null.",
     "drop what has no id; JSON-RPC libraries answer it by default", "line",
     lambda line, *_: host_sort(line) == "null" and "a response with the id null"),
    ("answer.shape", "3.6", "must", "An answer has result or error, and not both.",
     "leave the other member out instead of writing null", "answer",
     lambda answer, *_: ("result" in answer) == ("error" in answer)
     and f"it has {'both' if 'result' in answer else 'neither'} of result and error"),
    ("answer.error", "3.2", "must", "An error has an integer code and a message.",
     'write {"code": -32000, "message": "…"}', "answer",
     lambda answer, *_: "error" in answer and _fault(
         answer["error"], _object, _member("message", str),
         _member("code", lambda code: host_integer(code) is not None))),
    ("answer.size", "3.5", "must", "A result has at most 8 MiB.", "page what is big", "result",
     lambda result, _, limits: _too_big(result, limits.result)),
    ("message.request", "3.2", "must", "The Tick sends no requests.",
     "send notifications without an id", "message",
     lambda message, *_: isinstance(message.get("method"), str) and "id" in message
     and f"a request {shown(message['method'])} from the Tick"),
    ("message.notification", "3.2", "must", "The Tick sends no notification but tick/update.",
     "drop it, or put the news into the state", "message",
     lambda message, *_: host_sort(message) == "notification"
     and f"a notification {shown(message['method'])}"),
    ("wire.unicode", "3.1", "must", "Texts can be written as UTF-8.",
     "keep lone surrogates out of strings", "answer update",
     lambda value, *_: tam.has_surrogate(value) and "a text has a lone surrogate"),
    ("stderr.quiet", "3.1", "should", "Nothing is logged to standard error, which is the view.",
     "log to a file"),
))


# ---- host: session -------------------------------------------------------------------------------

#: A rule that was broken: its id in HOST_RULES, what was seen, the start of the line, and whether
#: it ended the session (T §3.6).
HostFinding = collections.namedtuple("HostFinding", "rule detail head fatal")
#: How a request came out: `kind` is "result" (with the `value`), "error" (details: code, data),
#: "bad" (detail: the rule), "timeout", or, where the session has ended, "ended" and "unsent"
#: (detail: its outcome). `message` says it in words.
HostReply = collections.namedtuple("HostReply", "kind message value details",
                                   defaults=("", None, {}))
#: What a client may be told: kind "update" (value: the state) or "←" (the line that has come).
HostEvent = collections.namedtuple("HostEvent", "kind value")
#: How a session ended: "closed" by the host, "violation", "exit" or "fault" (of the host itself).
HostEnd = collections.namedtuple("HostEnd", "kind reason")


@dataclasses.dataclass(eq=False)
class HostRequest:
    """A request on its way. Times are of the session's clock, in seconds; None: not yet."""

    id: int
    method: str
    params: dict
    timeout: float
    #: The least seq that may answer a read (T §6.3).
    floor: int = 0
    sent_at: float | None = None
    answered_at: float | None = None
    reply: HostReply | None = None


class HostSession:
    """The host's side of one protocol session, without input or output.

    Feed it what the Tick wrote, and the time; it answers with events, and keeps what is to be
    written for `take_output`. No input makes it raise. Memory is bounded by the limits of T §3.5:
    one unfinished line, the requests in flight, the newest state and one finding per rule.
    """

    def __init__(self, limits: HostLimits | None = None,
                 wall: Callable[[], float] = time.time) -> None:
        """`wall` gives unix seconds: an `at` for states that have none (T §6.2)."""
        self.limits = limits or HostLimits()
        self.descriptor: dict | None = None
        self.unchecked: dict[str, list[str]] = {}
        self.state: dict | None = None
        self.update: dict | None = None
        self.ended: HostEnd | None = None
        self.findings: dict[str, HostFinding] = {}
        #: How often each rule was broken, and how many of what rules are about broke none.
        self.counts: collections.Counter[str] = collections.Counter()
        self.update_seqs: collections.deque[int] = collections.deque(maxlen=HOST_REMEMBERED)
        self.in_flight: dict[int, HostRequest] = {}
        self._wall = wall
        self._lines = tam.Lines(self.limits.line)
        self._unfinished = 0
        self._waiting: collections.deque[tuple[HostRequest, bytes]] = collections.deque()
        self._given_up: collections.deque[int] = collections.deque(maxlen=HOST_REMEMBERED)
        self._last_id = 0
        self._last_read = 0
        self._last_update = -1
        self._output: list[bytes] = []
        self._events: list[HostEvent] = []

    # -- what the host asks of it --

    def request(self, method: str, params: dict, timeout: float, now: float) -> HostRequest:
        """Queue a request. `timeout` seconds run from when it is sent, which can be later (T §3.3).

        Raises tam.BadJSON where params cannot be encoded, HostError where the line is too long.
        """
        request = HostRequest(self._last_id + 1, method, params, timeout)
        frame = message_line(id=request.id, method=method, params=params)
        if len(frame) > self.limits.line:
            raise HostError(f"the request has {len(frame):,} bytes, more than {self.limits.line:,}")
        self._last_id = request.id
        self._waiting.append((request, frame))
        if self.ended is None:
            self._send_waiting(now)
        else:
            self._drop_waiting()
        return request

    def write(self, line: bytes) -> None:
        """Queue a line that is no request. A host sends none (T §3.2); a check may."""
        if self.ended is None:
            self._output.append(line + b"\n")

    def take_output(self) -> list[bytes]:
        """The lines to be written to the Tick's standard input since the last time."""
        output, self._output = self._output, []
        return output

    def receive(self, data: bytes, now: float) -> list[HostEvent]:
        """Take bytes of the Tick's standard output, in pieces of any size."""
        if self.ended is not None:
            return []
        for line in self._lines.feed(data):
            if self.ended is None:
                self._line(line, now)
        end = data.rfind(b"\n")
        self._unfinished = self._unfinished + len(data) if end < 0 else len(data) - end - 1
        if self.ended is None and self._unfinished > self.limits.line + 1:  # a \r may be the last
            self._judge("line", self._lines.rest, self._lines.rest)
        events, self._events = self._events, []
        return events

    def end_of_output(self, reason: str) -> None:
        """The Tick has closed its output or exited; `reason` says which (T §3.6, §4.5)."""
        if self.ended is None:
            self._judge("output", self._lines.rest, self._lines.rest)
        self.end("exit", reason)

    def end(self, kind: str, reason: str) -> None:
        """End the session, once: requests in flight are unknown, waiting ones not executed."""
        if self.ended is not None:
            return
        self.ended = HostEnd(kind, reason)
        for request in list(self.in_flight.values()):
            self._resolve(request, HostReply("ended", reason, details={"outcome": kind}))
        self._drop_waiting()
        self._output.clear()

    def expire(self, now: float) -> None:
        """Give up the requests whose time has run out; their late answers are dropped (T §7.3)."""
        for request in list(self.in_flight.values()):
            if now >= request.sent_at + request.timeout:
                self._given_up.append(request.id)
                message = f"no answer to {request.method} in {request.timeout:g} s"
                self._resolve(request, HostReply("timeout", message), now)
        self._send_waiting(now)

    def next_deadline(self) -> float | None:
        """When `expire` has something to do, on the session's clock; None: never."""
        return min((request.sent_at + request.timeout for request in self.in_flight.values()),
                   default=None)

    # -- what comes in --

    def _judge(self, subject: str, value: object, line: bytes,
               known: object = None) -> HostFinding | None:
        """Hold what came against the rules about it; return the first that it breaks.

        The first finding of each rule is kept, and all are counted.
        """
        faults = host_faults(subject, value, known, self.limits)
        found = [HostFinding(*fault, head(line), subject in HOST_FATAL) for fault in faults]
        for finding in found:
            self.counts[finding.rule] += 1
            self.findings.setdefault(finding.rule, finding)
            if finding.fatal:
                self.end("violation", f"{finding.rule}: {finding.detail}: {finding.head!r}")
        self.counts[subject] += not found
        return found[0] if found else None

    def _line(self, line: bytes, now: float) -> None:
        """One whole line (T §3.2)."""
        self._events.append(HostEvent("←", line))
        message: object = line
        if not isinstance(line, tam.Overlong):
            try:
                message = tam.parse_json(line)
            except tam.BadJSON as error:
                message = error
        if self._judge("line", message, line):
            return
        self._judge("message", message, line)
        sort = host_sort(message)
        if sort == "update":
            self._update(message.get("params"), line)
        elif sort == "answer":
            self._answer(message, line, now)

    def _update(self, params: object, line: bytes) -> None:
        """Take an update, or end the session over it (T §8.2)."""
        if self._judge("update", params, line, self._last_update):
            return
        self.update = self._stamped(params)
        self._last_update = self.update["seq"]
        self.update_seqs.append(self._last_update)
        self._events.append(HostEvent("update", self.update))

    def _stamped(self, state: dict) -> dict:
        """A checked state with the fields that T knows, and the time of receipt as its default.

        The newest is kept; an update beside a read can be older than its result (T §6.3).
        """
        received = state["at"] if "at" in state else tam.iso_time(int(self._wall()))
        stamped = {"seq": host_uinteger(state["seq"]), "data": state["data"], "at": received}
        if self.state is None or stamped["seq"] >= self.state["seq"]:
            self.state = stamped
        return stamped

    def _answer(self, message: dict, line: bytes, now: float) -> None:
        """An answer to a request in flight, or one that is dropped (T §3.2, §3.6)."""
        number = host_integer(message["id"])
        request = self.in_flight.get(number)
        if request is None:
            self.counts["dropped answers"] += 1
            if number in self._given_up:
                self._given_up.remove(number)
            else:
                self._judge("answer", message, line, self._last_id)
            return
        finding = self._judge("answer", message, line)
        if finding is None and "result" in message:
            finding = self._take(request, message["result"], line)
        if finding is not None:
            reply = HostReply("bad", finding.detail, details={"rule": finding.rule})
        elif "error" in message:
            code, text = host_integer(message["error"]["code"]), message["error"]["message"]
            reply = HostReply("error", f"error {code}: {text}",
                              details={"code": code, "data": message["error"].get("data")})
        else:
            reply = HostReply("result", value=message["result"])
        self._resolve(request, reply, now)
        self._send_waiting(now)

    def _take(self, request: HostRequest, result: object, line: bytes) -> HostFinding | None:
        """Take a result, unless something is wrong with it (T §3.5, §5.3, §6.3)."""
        if request.method == "tick/describe":
            return self._take_descriptor(result, line)
        if request.method != "tick/read":
            return self._judge("result", result, line)
        finding = self._judge("read", result, line, request.floor)
        if finding is None:
            self._last_read = self._stamped(result)["seq"]
        return finding

    def _take_descriptor(self, result: object, line: bytes) -> HostFinding | None:
        finding = self._judge("descriptor", result, line) or self._judge("catalogue", result, line)
        if finding is None and self.descriptor is not None:
            finding = self._judge("comparison", result, line, self.descriptor)
        if finding is None:
            self.descriptor = result
            words = ((tool["name"], host_schema(tool)[1]) for tool in host_tools(result))
            self.unchecked = {name: found for name, found in words if found}
        return finding

    # -- requests --

    def _send_waiting(self, now: float) -> None:
        """Send what waits, up to the limit of T §3.3; note the floor of each read."""
        while self._waiting and len(self.in_flight) < self.limits.in_flight:
            request, frame = self._waiting.popleft()
            request.sent_at = now
            request.floor = max(self._last_read, self._last_update)
            self.in_flight[request.id] = request
            self._output.append(frame)

    def _drop_waiting(self) -> None:
        """What waits will not be sent, since the session has ended."""
        for request, _ in self._waiting:
            request.reply = HostReply("unsent", f"the session has ended: {self.ended.reason}",
                                      details={"outcome": self.ended.kind})
        self._waiting.clear()

    def _resolve(self, request: HostRequest, reply: HostReply, now: float | None = None) -> None:
        del self.in_flight[request.id]
        request.reply, request.answered_at = reply, now


# ---- host: screen --------------------------------------------------------------------------------

#: The last is the start of an escape sequence whose rest may still come.
HOST_TOKEN = re.compile(
    r"(?P<text>[^\x00-\x1f\x7f-\x9f]+)"
    r"|\x1b\[(?P<private>[<-?]*)(?P<params>[0-9:;]*)(?P<between>[ -/]*)(?P<final>[@-~])"
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"
    r"|\x1b(?P<shift>[ #%()*+./-])(?P<set>[^\x1b])"
    r"|(?P<escape>\x1b[^\x00-\x1f #%()*+./\[\]PX^_-])"
    r"|(?P<control>[\x00-\x1a\x1c-\x1f\x7f-\x9f])"
    r"|(?P<unfinished>\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ #%()*+./-])?)\Z")
#: How long an escape sequence may be, in characters; of a longer one the end is shown as text.
HOST_ESCAPE_MOST = 4096
#: The line drawing set that terminfo's acsc speaks of.
HOST_GRAPHICS = str.maketrans("`afghjklmnopqrstuvwxyz{|}~+,-.0",
                              "◆▒°±▒┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·→←↑↓█")
#: How many characters a cell may gather: a letter and its marks, not a flood of them.
HOST_CELL_MOST = 12


class HostScreen:
    """What a terminal of the kind xterm-256color shows, as a list of lines; colours are ignored.

    It knows what curses sends for that terminal, see HOST_TERMINAL. Rows and columns count from 0.
    A cell is a character with its combining marks; the right half of a wide one is "".
    """

    def __init__(self, columns: int = 120, rows: int = 30) -> None:
        self.columns, self.rows = columns, rows
        #: What the terminal answers, to be typed to the program (status and cursor reports).
        self.replies = bytearray()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending = ""
        self._reset()

    @property
    def display(self) -> list[str]:
        """The rows from the top, each as wide as the screen."""
        return ["".join(line) for line in self._lines]

    def feed(self, data: bytes) -> None:
        """Take what the program wrote, in pieces of any size."""
        text = self._pending + self._decoder.decode(data)
        self._pending = ""
        for match in HOST_TOKEN.finditer(text):
            if match["unfinished"] and len(match[0]) < HOST_ESCAPE_MOST:
                self._pending = match[0]
            else:
                self._token(match)

    def resize(self, columns: int, rows: int) -> None:
        """Take another size, in cells: lines are cut or filled, and the cursor stays on."""
        surplus = max(0, min(len(self._lines) - rows, self._row - rows + 1))
        self.columns, self.rows = columns, rows
        self._lines = self._fitted(self._lines[surplus:])
        if self._behind is not None:
            self._behind = self._fitted(self._behind)
        self._top, self._bottom = 0, rows - 1
        self._move(self._row - surplus, self._column)

    # -- state --

    def _reset(self) -> None:
        """RIS: the state of a terminal that was just switched on."""
        self._lines = self._fitted([])
        self._behind: list[list[str]] | None = None
        self._row = self._column = 0
        self._saved = (0, 0)
        self._last = " "
        self._soft_reset()

    def _soft_reset(self) -> None:
        self._top, self._bottom = 0, self.rows - 1
        self._wraps, self._inserts, self._from_top = True, False, False
        self._sets, self._shifted = ["B", "B"], 0

    @property
    def _at(self) -> int:
        """The cursor's column; `_column` is one more after the last, where the next text wraps."""
        return min(self._column, self.columns - 1)

    def _fitted(self, lines: list[list[str]]) -> list[list[str]]:
        """Lines in the present size."""
        missing = max(0, self.rows - len(lines))
        fitted = lines[:self.rows] + [[] for _ in range(missing)]
        for line in fitted:
            self._fit(line)
        return fitted

    def _fit(self, line: list[str]) -> None:
        """Cut or fill a line to the screen's width."""
        self._heal(line, self.columns)
        del line[self.columns:]
        line.extend([" "] * (self.columns - len(line)))

    @staticmethod
    def _heal(line: list[str], column: int) -> None:
        """Replace a wide character that an edge at `column` would cut in half."""
        if 0 < column < len(line) and line[column] == "":
            line[column - 1] = line[column] = " "

    def _token(self, match: re.Match[str]) -> None:
        """Write a text, or do what HOST_TERMINAL has for anything else."""
        kind, name, params = match.lastgroup, match[0], [0]
        if kind == "text":
            self._text(name)
            return
        if kind == "final":
            words = match["params"].replace(":", ";").split(";")
            params = [int(word[:6] or 0) for word in words[:32]]
            name = "[" + match["private"] + match["between"] + match["final"]
        elif kind == "set" and match["shift"] in "()":
            self._sets["()".index(match["shift"])] = match["set"]
        act = HOST_TERMINAL.get(name)
        if act is not None:
            act(self, min(max(1, params[0]), self.columns * self.rows), params)

    # -- writing and erasing --

    def _text(self, text: str) -> None:
        """Write printable characters at the cursor."""
        if self._sets[self._shifted] == "0":
            text = text.translate(HOST_GRAPHICS)
        if not text.isascii() or self._inserts or not self._wraps:
            for char in text:
                self._put(char)
            return
        while text:
            if self._column >= self.columns:
                self._next_line()
            part = text[:self.columns - self._column]
            self._place(list(part))
            text = text[len(part):]
            self._last = part[-1]

    def _put(self, char: str, times: int = 1) -> None:
        """Write one character of 0, 1 or 2 cells."""
        width = tam.cell_width(char)
        if width == 0 or char == "\u200d":
            self._join(char)
            return
        self._last = char
        for _ in range(times):
            if self._column + width > self.columns:
                if self._wraps:
                    self._next_line()
                self._column = max(0, min(self._column, self.columns - width))
            self._place([char, ""][:width] if self.columns > 1 else [char])

    def _join(self, mark: str) -> None:
        """Add a combining mark to the character before the cursor."""
        line = self._lines[self._row]
        column = min(self._column, self.columns) - 1
        if column > 0 and line[column] == "":
            column -= 1
        if column >= 0 and len(line[column]) < HOST_CELL_MOST:
            line[column] += mark

    def _place(self, cells: list[str]) -> None:
        """Write cells at the cursor, over others or, in insert mode, before them."""
        end = self._column + len(cells)
        self._splice(self._column, self._column if self._inserts else end, cells)
        self._column = end

    def _splice(self, start: int, end: int, cells: list[str]) -> None:
        """Put cells in the place of those from `start` to `end` of the cursor's line."""
        line = self._lines[self._row]
        self._heal(line, start)
        self._heal(line, end)
        line[start:end] = cells
        self._fit(line)

    def _erase_line(self, mode: int) -> None:
        """EL: from the cursor on (0), up to it (1), or all (2)."""
        start = 0 if mode in (1, 2) else self._at
        end = self._at + 1 if mode == 1 else self.columns
        self._splice(start, end, [" "] * (end - start))

    def _erase_screen(self, mode: int) -> None:
        """ED: as EL, with the lines below or above."""
        if mode in (0, 1):
            self._erase_line(mode)
        rows = {0: range(self._row + 1, self.rows), 1: range(self._row), 2: range(self.rows)}
        for row in rows.get(mode, ()):
            self._lines[row] = [" "] * self.columns

    # -- moving and scrolling --

    def _move(self, row: int, column: int) -> None:
        """Put the cursor somewhere on the screen."""
        self._row = max(0, min(row, self.rows - 1))
        self._column = max(0, min(column, self.columns - 1))

    def _to(self, row: int, column: int) -> None:
        """To a row and column that count from 1, within the region in origin mode."""
        if self._from_top:
            row = min(row + self._top, self._bottom + 1)
        self._move(row - 1, column - 1)

    def _down(self, count: int, column: int) -> None:
        """Rows down, or up where `count` is negative; the cursor does not leave the region."""
        first = self._top if self._row >= self._top else 0
        last = self._bottom if self._row <= self._bottom else self.rows - 1
        self._move(max(first, min(self._row + count, last)), column)

    def _step(self, by: int) -> None:
        """One row down (1) or up (-1); at the region's edge, the region scrolls."""
        if self._row == (self._bottom if by > 0 else self._top):
            self._scroll(by, self._top)
        else:
            self._row = max(0, min(self._row + by, self.rows - 1))

    def _next_line(self) -> None:
        self._column = 0
        self._step(1)

    def _scroll(self, count: int, first: int) -> None:
        """Move the region's lines from `first` on up by `count`, or down where it is negative."""
        if not self._top <= first <= self._bottom:
            return  # insertion and deletion of lines outside of the region
        gap, back = (self._bottom, first) if count > 0 else (first, self._bottom)
        for _ in range(min(abs(count), self._bottom - first + 1)):
            del self._lines[back]
            self._lines.insert(gap, [" "] * self.columns)

    def _region(self, top: int, bottom: int) -> None:
        """DECSTBM: which rows scroll, counted from 1; bottom 0 is the last."""
        bottom = min(bottom or self.rows, self.rows)
        if top < bottom:
            self._top, self._bottom = top - 1, bottom - 1
            self._to(1, 1)

    # -- modes and reports --

    def _save(self) -> None:
        self._saved = (self._row, self._column)

    def _shift(self, which: int) -> None:
        self._shifted = which

    def _mode(self, params: list[int], on: bool) -> None:
        if 4 in params:
            self._inserts = on

    def _private(self, params: list[int], on: bool) -> None:
        for mode in params:
            if mode == 6:
                self._from_top = on
                self._to(1, 1)
            elif mode == 7:
                self._wraps = on
            elif mode in (47, 1047, 1049):
                self._switch(on, mode == 1049)
            elif mode == 1048 and on:
                self._save()
            elif mode == 1048:
                self._move(*self._saved)

    def _switch(self, alternate: bool, cursor: bool) -> None:
        """Go to the alternate screen, blank, or back to the one behind it."""
        if alternate and self._behind is None:
            if cursor:
                self._save()
            self._behind, self._lines = self._lines, self._fitted([])
        elif not alternate and self._behind is not None:
            self._lines, self._behind = self._behind, None
            if cursor:
                self._move(*self._saved)

    def _reply(self, text: str) -> None:
        """Answer a question of the program; more than a screenful of answers is dropped."""
        if len(self.replies) <= HOST_ESCAPE_MOST:
            self.replies += text.encode()

    def _report(self, kind: int) -> None:
        """DSR: the status, or where the cursor is."""
        reports = {5: "\x1b[0n", 6: f"\x1b[{self._row + 1};{self._at + 1}R"}
        self._reply(reports.get(kind, ""))


#: What the terminal does at a control character, an escape or, behind a "[", a control sequence:
#: a function of the screen s, the first parameter n, whose default and least is 1, and all, p.
#: What is missing is ignored: colours, titles, keyboards, mice.
HOST_TERMINAL = {
    "\b": lambda s, n, p: s._move(s._row, s._at - 1),
    "\t": lambda s, n, p: s._move(s._row, (s._at // 8 + 1) * 8),
    "\r": lambda s, n, p: s._move(s._row, 0),
    **dict.fromkeys(("\n", "\v", "\f", "\x84", "\x1bD"), lambda s, n, p: s._step(1)),
    **dict.fromkeys(("\x85", "\x1bE"), lambda s, n, p: s._next_line()),
    "\x0e": lambda s, n, p: s._shift(1),
    "\x0f": lambda s, n, p: s._shift(0),
    **dict.fromkeys(("\x1b7", "[s"), lambda s, n, p: s._save()),
    **dict.fromkeys(("\x1b8", "[u"), lambda s, n, p: s._move(*s._saved)),
    "\x1bM": lambda s, n, p: s._step(-1),
    "\x1bc": lambda s, n, p: s._reset(),
    "[@": lambda s, n, p: s._splice(s._at, s._at, [" "] * n),
    "[A": lambda s, n, p: s._down(-n, s._column),
    **dict.fromkeys(("[B", "[e"), lambda s, n, p: s._down(n, s._column)),
    **dict.fromkeys(("[C", "[a"), lambda s, n, p: s._move(s._row, s._at + n)),
    "[D": lambda s, n, p: s._move(s._row, s._at - n),
    "[E": lambda s, n, p: s._down(n, 0),
    "[F": lambda s, n, p: s._down(-n, 0),
    **dict.fromkeys(("[G", "[`"), lambda s, n, p: s._move(s._row, n - 1)),
    **dict.fromkeys(("[H", "[f"), lambda s, n, p: s._to(n, (p[1:] or [1])[0])),
    "[I": lambda s, n, p: s._move(s._row, (s._at // 8 + n) * 8),
    "[J": lambda s, n, p: s._erase_screen(p[0]),
    "[K": lambda s, n, p: s._erase_line(p[0]),
    "[L": lambda s, n, p: s._scroll(-n, s._row),
    "[M": lambda s, n, p: s._scroll(n, s._row),
    "[P": lambda s, n, p: s._splice(s._at, s._at + n, []),
    "[S": lambda s, n, p: s._scroll(n, s._top),
    "[T": lambda s, n, p: s._scroll(-n, s._top),
    "[X": lambda s, n, p: s._splice(s._at, s._at + n, [" "] * n),
    "[Z": lambda s, n, p: s._move(s._row, ((s._at + 7) // 8 - n) * 8),
    "[b": lambda s, n, p: s._put(s._last, n),
    "[c": lambda s, n, p: s._reply("\x1b[?1;2c"),
    "[d": lambda s, n, p: s._to(n, s._column + 1),
    "[h": lambda s, n, p: s._mode(p, True),
    "[l": lambda s, n, p: s._mode(p, False),
    "[n": lambda s, n, p: s._report(p[0]),
    "[r": lambda s, n, p: s._region(n, (p[1:] or [0])[0]),
    "[?h": lambda s, n, p: s._private(p, True),
    "[?l": lambda s, n, p: s._private(p, False),
    "[!p": lambda s, n, p: s._soft_reset(),
}


# ---- host: process -------------------------------------------------------------------------------

#: Run in a fresh interpreter, which becomes the Tick: takes the controlling terminal and execs.
#: A fork of the host itself would do it without a second start of Python (some 15 ms), but a fork
#: copies the locks of the other threads, subprocess's preexec_fn included, and can hang; and
#: posix_spawn can neither set the directory nor, everywhere, the controlling terminal. Python
#: ignores SIGPIPE and may set LC_CTYPE, which the Tick must not inherit.
HOST_LAUNCHER = """\
import fcntl, os, signal, sys, termios
terminal, report, locale = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
for descriptor in (terminal, report):
    os.set_inheritable(descriptor, False)
if locale:
    os.environ["LC_CTYPE"] = locale
else:
    os.environ.pop("LC_CTYPE", None)
for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_SETMASK, ())
try:
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    os.execv(sys.argv[4], sys.argv[4:])
except OSError as error:
    os.write(report, str(error).encode("utf-8", "backslashreplace"))
"""


def host_environment(env: dict[str, str]) -> dict[str, str]:
    """The Tick's environment (T §4.1): a fresh instance id, the terminal's name, and no other
    TICKLOOP_ variable. LINES and COLUMNS go, since the terminal has a size of its own."""
    import secrets

    kept = {name: value for name, value in env.items()
            if not name.startswith("TICKLOOP_") and name not in ("LINES", "COLUMNS")}
    return kept | {INSTANCE_ID: secrets.token_hex(16), "TERM": "xterm-256color"}


def host_resolve(argv: list[str], cwd: str, env: dict[str, str]) -> list[str]:
    """The command with an absolute argv[0], found as a shell in `cwd` would (T §4.1).

    Raises HostStartError where nothing can be run under that name.
    """
    name = argv[0] if argv else ""
    places = [""] if "/" in name else env.get("PATH", os.defpath).split(os.pathsep)
    for place in places if name else ():
        path = os.path.abspath(os.path.join(cwd, place, name))
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return [path, *argv[1:]]
    raise HostStartError(f"there is no program {name!r} that can be run")


class HostProcess:
    """A Tick's process with its pipes and its terminal, and nothing of the protocol.

    `stdin`, `stdout`, `terminal` and `errors` are its files: unbuffered, not inherited by others,
    and None comes of reading or writing where that would have to wait. `exit` can be read once the
    process has ended. Where there is none of these, it is None. Raises HostStartError where the
    program cannot be started.
    """

    def __init__(self, argv: list[str], cwd: str, env: dict[str, str], *,
                 size: tuple[int, int], stderr_apart: bool = False) -> None:
        """`size` is columns and rows. With `stderr_apart` standard error is a terminal of its own,
        `errors`, so that a check can tell it from the view."""
        self._files = contextlib.ExitStack()
        self.pid = 0
        self.errors = self.exit = None
        try:
            self.argv = host_resolve(argv, cwd, env)
            self._launch(cwd, env, size, stderr_apart)
        except OSError as error:
            self.close()
            raise HostStartError(f"the program cannot be started: {error}") from error
        except BaseException:
            self.close()
            raise

    def _opened(self, *descriptors: int) -> list[io.FileIO]:
        """Files of descriptors, which `close` closes."""
        return [self._files.enter_context(open(descriptor, "r+b", buffering=0))
                for descriptor in descriptors]

    def _launch(self, cwd: str, env: dict[str, str], size: tuple[int, int],
                stderr_apart: bool) -> None:
        import subprocess

        # The Tick's side of a terminal stays open here too: else the last it wrote could be lost.
        self.terminal, slave = self._opened(*os.openpty())
        tick_err = slave
        if stderr_apart:
            self.errors, tick_err = self._opened(*os.openpty())
        self.resize(*size)
        report, tick_report = self._opened(*os.pipe())
        given = [slave.fileno(), tick_report.fileno()]
        launcher = [sys.executable, "-I", "-S", "-c", HOST_LAUNCHER, *map(str, given),
                    env.get("LC_CTYPE", ""), *self.argv]
        with tam.Unbroken():  # what unwinds the host must not come between the fork and its pid
            self._child = subprocess.Popen(
                launcher, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=tick_err, cwd=cwd, env=env, start_new_session=True, pass_fds=given)
            self.pid = self._child.pid
        self.stdin = self._files.enter_context(self._child.stdin)
        self.stdout = self._files.enter_context(self._child.stdout)
        tick_report.close()
        failure = report.readall().decode("utf-8", "replace")
        if failure:
            raise HostStartError(f"the program cannot be started: {failure}")
        try:
            self.exit, = self._opened(os.pidfd_open(self.pid))
        except (AttributeError, OSError):
            self.exit = None  # not Linux, or an old kernel, or forbidden: see HOST_POLL
        for file in filter(None, (self.stdin, self.stdout, self.terminal, self.errors)):
            os.set_blocking(file.fileno(), False)

    def resize(self, columns: int, rows: int) -> None:
        """Give the terminal a size in cells; the kernel sends SIGWINCH to the Tick (T §4.1)."""
        import termios

        for terminal in filter(None, (self.terminal, self.errors)):
            if not terminal.closed:
                termios.tcsetwinsize(terminal, (rows, columns))

    def exit_reason(self) -> str | None:
        """How the process ended, in words, or None while it runs. It stays a zombie until `close`,
        so that its id and its group's cannot become those of others."""
        if not hasattr(os, "waitid"):  # macOS before Python 3.13
            status = self._child.poll()
        else:
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                return None
            status = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        if status is None:
            return None
        return f"exit status {status}" if status >= 0 else f"killed by signal {-status}"

    def signal(self, number: int) -> None:
        """Send a signal to the Tick's process group (T §4.5); none once it is reaped."""
        try:
            if self.pid:  # group 0 would be the host's own
                os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return  # only zombies are left in it, for which macOS says "permission"

    def kill_all(self) -> None:
        """SIGKILL for the group and, where /proc shows them, for other groups of the session.

        What forks meanwhile is met in another round; one round alone can miss it.
        """
        empty = 0
        for _ in range(HOST_KILLS):
            self.signal(signal.SIGKILL)
            found = any([self._kill(member) for member in self._members()])
            empty = 0 if found else empty + 1
            if empty == HOST_EMPTY:
                return

    def _members(self) -> Iterator[int]:
        """The ids of the session's processes, but for the Tick's own."""
        for name in reversed(os.listdir("/proc") if os.path.isdir("/proc/self") else []):
            try:
                if name.isdecimal() and int(name) != self.pid and os.getsid(int(name)) == self.pid:
                    yield int(name)
            except (ProcessLookupError, PermissionError):
                continue  # it has just ended, or is another user's

    def _kill(self, pid: int) -> bool:
        """Kill a process; False where it is dead already, and only waits to be reaped.

        One that is gone by now may have left another, as one does that is being killed.
        """
        try:
            os.kill(pid, signal.SIGKILL)
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                return file.read().rpartition(")")[2].split()[0] not in "ZX"
        except PermissionError:
            return False  # it has become another user's
        except (OSError, IndexError):
            return True

    def close(self) -> None:
        """Kill what is left, reap the Tick and close every file. May be called again."""
        if self.pid:
            self.kill_all()
            self._child.wait()
            self.pid = 0
        self._files.close()


# ---- host: runner --------------------------------------------------------------------------------


class HostRunner:
    """A Tick's process with its screen and its session, and the thread that moves bytes between.

    The thread has `changed`, which guards all of them, whenever it does not wait; so whoever else
    has it meets them between two turns, and is notified after each. The thread ends the Tick when
    the session ends or `close` is called, reaps it and closes everything.
    """

    def __init__(self, argv: list[str], cwd: str | None, env: dict[str, str] | None,
                 limits: HostLimits | None) -> None:
        self.argv = list(argv)
        self.cwd = os.path.abspath(cwd or os.getcwd())
        self.env = host_environment(dict(os.environ if env is None else env))
        self.limits = limits or HostLimits()
        self.changed = threading.Condition()
        #: The protocol session: findings, counts and what else it keeps.
        self.session = HostSession(self.limits)
        #: To be set before the start: called in the thread for every update, and must not wait.
        self.on_update: Callable[[dict], None] = lambda state: None
        #: To be set before the start: called in the thread with "→" or "←" and each line.
        self.on_traffic: Callable[[str, bytes], None] = lambda arrow, line: None
        #: To be set before the start: give standard error a terminal of its own.
        self.stderr_apart = False
        #: The start of what the Tick wrote to that.
        self.stderr_text = bytearray()
        self._screen = HostScreen(self.limits.columns, self.limits.rows)
        self._process: HostProcess | None = None
        self._thread: threading.Thread | None = None

    def launch(self) -> None:
        """Start the process and the thread. Raises HostStartError, or RuntimeError where the
        system has no more threads."""
        self.session = HostSession(self.limits)
        self._to_tick, self._to_terminal = bytearray(), bytearray()
        self._input_ended = self._closing = False
        self._output_ended_at: float | None = None
        self._bell = Bell()
        try:
            self._process = HostProcess(self.argv, self.cwd, self.env,
                                        size=(self._screen.columns, self._screen.rows),
                                        stderr_apart=self.stderr_apart)
            self.argv = self._process.argv
            self._thread = threading.Thread(target=self._run, name="tick-host", daemon=True)
            self._thread.start()
        except BaseException:
            self.close()
            self._release()
            raise

    def close(self) -> None:
        """End the Tick (T §4.5) and wait until everything of it is gone. May be called again."""
        self._closing = True
        started = self._thread is not None and self._thread.ident is not None
        if started and self._thread is not threading.current_thread():
            self._bell.ring()
            self._thread.join()

    # -- for other threads --

    @contextlib.contextmanager
    def _between_turns(self) -> Iterator[HostProcess]:
        """While it is entered the thread waits; afterwards it looks at what there is to do."""
        if self._process is None:
            raise HostError("the Tick was not started")
        with self.changed:
            yield self._process
        self._bell.ring()

    @property
    def pid(self) -> int:
        """The Tick's process id, 0 once it is reaped."""
        return 0 if self._process is None else self._process.pid

    @property
    def ended(self) -> HostEnd | None:
        """How the session ended, or None while it goes on."""
        return self.session.ended

    def wait_until(self, seen: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait at most `timeout` seconds until a condition holds; it is looked at anew whenever
        something arrives or ends. It may use this host's properties and `screen`."""
        with self._between_turns():
            return self.changed.wait_for(seen, timeout)

    def send(self, method: str, params: dict | None = None,
             timeout: float | None = None) -> HostRequest:
        """Send a request as it is, without waiting: `wait_reply` waits, at most `timeout` seconds
        once it is sent, by default those of T. It neither checks arguments nor asks for approval.
        """
        if timeout is None:
            timeout = self.limits.call if method == "tick/call" else self.limits.start
        with self._between_turns():
            if threading.current_thread() is self._thread:
                raise HostError("a callback of the host cannot send: it would wait for itself")
            return self.session.request(method, params or {}, timeout, time.monotonic())

    def request(self, method: str, params: dict | None = None,
                timeout: float | None = None) -> HostRequest:
        """Send a request as `send` does, and wait for its reply."""
        return self.wait_reply(self.send(method, params, timeout))

    def wait_reply(self, request: HostRequest) -> HostRequest:
        """Wait until a sent request has its reply; the session sees to that."""
        self.wait_until(lambda: request.reply is not None)
        return request

    def resize(self, columns: int, rows: int) -> None:
        """Resize the view, in cells; the Tick gets SIGWINCH and no message (T §4.1)."""
        with self._between_turns() as process:
            self._screen.resize(columns, rows)
            process.resize(columns, rows)

    def type(self, keys: str) -> None:
        """Type into the view, as a person at its terminal. Raises HostError where the Tick has
        left too many keys unread."""
        data = keys.encode("utf-8", "replace")
        with self._between_turns():
            if len(self._to_terminal) + len(data) > HOST_KEPT:
                raise HostError("the Tick does not read its terminal")
            self._to_terminal += data

    def screen(self) -> list[str]:
        """What the view shows: one string per row. It is the Tick's text: see tam.printable."""
        with self.changed:
            return self._screen.display

    def screen_excerpt(self) -> str:
        """The first 256 characters of the screen, without the blanks at the ends of its lines."""
        text = "\n".join(line.rstrip() for line in self.screen())
        return text.strip("\n")[:HOST_SCREEN_EXCERPT]

    # -- for checks: lines that a host does not send, and what T §4.5 lets happen to a Tick --

    def send_line(self, line: bytes) -> None:
        """Write a line to the Tick that is no request."""
        with self._between_turns():
            self.session.write(line)

    def end_input(self) -> None:
        """Close the Tick's standard input once what is queued is written."""
        with self._between_turns():
            self._input_ended = True

    def terminate(self) -> None:
        """Send SIGTERM to the Tick's process group, and nothing after it."""
        with self._between_turns() as process:
            process.signal(signal.SIGTERM)

    # -- the thread --

    def _run(self) -> None:
        with self.changed:
            try:
                while self.session.ended is None and not self._closing:
                    self._turn()
                    self._look_for_end()
                self._end_tick()
            except BaseException as error:  # whatever it was, those who wait must learn of it
                self.session.end("fault", f"the host failed: {type(error).__name__}: {error}")
            finally:
                self._release()

    def _end_tick(self) -> None:
        """SIGTERM, and a while to end in (T §4.5); what is left is killed when it is reaped."""
        self.session.end("closed", "the host ended the Tick")
        self._process.signal(signal.SIGTERM)
        until = time.monotonic() + self.limits.grace
        while self._process.exit_reason() is None and time.monotonic() < until:
            self._turn(until)
        self._draw()

    def _release(self) -> None:
        with self.changed:
            if self._process is not None:
                self._process.close()
            self._bell.close()
            self.changed.notify_all()

    def _turn(self, until: float | None = None) -> None:
        """Send, wait for something to do, at most until a time, and do it."""
        self._send()
        self._wait([until, self.session.next_deadline()])
        self._bell.hush()
        self._receive()
        self.session.expire(time.monotonic())

    def _wait(self, times: list[float | None]) -> None:
        """Wait until something can be read or written, or the first of the times has come."""
        process, now = self._process, time.monotonic()
        output = process.stdout if self._output_ended_at is None else None
        readers = [self._bell.fd, process.terminal]
        readers += filter(None, (process.errors, process.exit, output))
        if process.exit is None or output is None:
            times.append(now + HOST_POLL)
        writers = [file for file, queued in ((process.stdin, self._to_tick),
                                             (process.terminal, self._to_terminal)) if queued]
        end = min((one for one in times if one is not None), default=None)
        self.changed.notify_all()
        self.changed.release()
        try:
            select.select(readers, writers, (), None if end is None else max(0.0, end - now))
        finally:
            self.changed.acquire()

    def _receive(self) -> int:
        """Feed the session and tell the client what happened; return how many bytes there were."""
        data = self._process.stdout.read(CHUNK) if self._output_ended_at is None else None
        if data == b"":
            self._output_ended_at = time.monotonic()
        self._draw()  # what was drawn before a message is on the screen with it
        for kind, value in self.session.receive(data or b"", time.monotonic()):
            if kind == "update":
                self.on_update(value)
            else:
                self.on_traffic(kind, value)
        return len(data or b"")

    def _draw(self) -> None:
        """Show what the Tick drew and, in the view as well, what it wrote to standard error
        (T §3.1); type what the keys and the terminal's answers need."""
        for file in filter(None, (self._process.terminal, self._process.errors)):
            data = b""
            with contextlib.suppress(OSError):  # EIO is how a terminal says that nobody has it
                data = file.read(CHUNK) or b""
            self._screen.feed(data)
            if file is self._process.errors:
                self.stderr_text += data[:max(0, HOST_KEPT - len(self.stderr_text))]
        if len(self._to_terminal) < HOST_KEPT:
            self._to_terminal += self._screen.replies
        self._screen.replies.clear()
        with contextlib.suppress(OSError):
            del self._to_terminal[:self._process.terminal.write(self._to_terminal) or 0]

    def _send(self) -> None:
        """Write what the Tick's pipe takes of what the session has for it."""
        for line in self.session.take_output():
            self.on_traffic("→", line.rstrip(b"\n"))
            self._to_tick += line
        stdin = self._process.stdin
        if stdin.closed:
            self._to_tick.clear()
            return
        try:
            del self._to_tick[:stdin.write(self._to_tick) or 0]
        except BrokenPipeError:
            self._to_tick.clear()  # it reads no more; what follows from that, time will tell
            self._input_ended = True
        if self._input_ended and not self._to_tick:
            stdin.close()

    def _look_for_end(self) -> None:
        """See whether the Tick has exited, or has closed its output and goes on (T §4.5)."""
        reason = self._process.exit_reason()
        if reason is None:
            closed = self._output_ended_at
            if closed is None or time.monotonic() < closed + self.limits.grace:
                return
            reason = "it closed its standard output"
        taken = 0
        while taken < HOST_PIPE_MOST and (size := self._receive()):
            taken += size
        self.session.end_of_output(f"the Tick ended by itself: {reason}")


# ---- host: TickHost ------------------------------------------------------------------------------


class TickHost(HostRunner):
    """A running Tick (T §4): a process on a terminal of its own, driven by the protocol.

    Use it in a `with` statement, or call `start` and `close`. Its methods may be called from any
    thread. When the session ends, so does the Tick's process, and nothing of it is left behind.
    """

    def __init__(self, argv: list[str], *, cwd: str | None = None,
                 env: dict[str, str] | None = None,
                 approve: Callable[[dict, dict, str], bool] | None = None,
                 on_update: Callable[[dict], None] | None = None,
                 limits: HostLimits | None = None) -> None:
        """`argv` is the command; `cwd` and `env` default to those of this process.

        `approve(tool, args, revision)` is asked in the calling thread before each call of a tool
        that mutates; `tool` is its catalogue entry. Without it such calls are refused.
        `on_update(state)` is called in the host's thread for every update, and must not wait.
        """
        super().__init__(argv, cwd, env, limits)
        self._approve = approve
        if on_update is not None:
            self.on_update = on_update

    def __enter__(self) -> TickHost:
        self.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the Tick and initialise the session: describe, then read (T §4.2).

        Raises HostStartError, with the process ended, where any of it fails.
        """
        begun = time.monotonic()
        self.launch()
        try:
            for method in ("tick/describe", "tick/read"):
                left = begun + self.limits.start - time.monotonic()
                reply = self.request(method, {}, max(0.0, left)).reply
                if reply.kind != "result":
                    self._start_failed(method, reply)
        except BaseException:
            self.close()
            raise

    def _start_failed(self, method: str, reply: HostReply) -> None:
        """End the process and raise the reason, with what is on the screen by then (T §4.2)."""
        self.close()
        reason = reply.message
        if reply.kind == "timeout":
            reason = f"no answer to {method} within {self.limits.start:g} s of the start"
        elif reply.kind == "error":
            reason = f"{method} was answered with {reply.message}"
        kind = self.session.ended.kind
        fatal = [found.rule for found in self.session.findings.values() if found.fatal]
        rule = reply.details.get("rule", method.replace("tick/", "start."))
        raise HostStartError(f"the Tick was not initialised: {reason}",
                             outcome="init" if kind == "closed" else kind,
                             rule=fatal[0] if fatal else rule, screen=self.screen_excerpt())

    @property
    def descriptor(self) -> dict | None:
        """The catalogue as last described and accepted, or None before that."""
        return self.session.descriptor

    def describe(self) -> dict:
        """Ask for the catalogue anew (T §5). Raises HostError."""
        return self._value("tick/describe", self.request("tick/describe"))

    def read(self) -> dict:
        """Read the state: seq, data and, where the Tick gives it, at (T §6). Raises HostError."""
        result = self._value("tick/read", self.request("tick/read"))
        return {name: result[name] for name in ("seq", "data", "at") if name in result}

    def call(self, tool: str, args: dict | None = None, revision: str | None = None) -> object:
        """Call a tool once and return its result (T §7).

        `revision` is that of the catalogue the call was prepared against, by default the present
        one. Raises HostError: of kind "unsent" where the tool is unknown, the arguments do not
        fit, the revision is no longer the catalogue's or `approve` says no. Its `executed` tells
        whether the call may have had an effect. Nothing is ever sent twice.
        """
        args = {} if args is None else args
        if self.descriptor is None:
            raise HostError("the Tick was not described")
        prepared = self.descriptor["revision"] if revision is None else revision
        self._same_catalogue(prepared)
        entry = host_tool(self.descriptor, tool)
        unfit = host_unfit(entry, args)
        if unfit:
            raise HostError(f"{tool} was not called: {unfit}")
        if entry["mutates"]:
            if self._approve is None or not self._approve(entry, args, prepared):
                raise HostError(f"the call of {tool} was not approved")
            self._same_catalogue(prepared)
        params = {"tool": tool, "args": args, "revision": prepared}
        return self._value(tool, self.request("tick/call", params))

    def _same_catalogue(self, revision: str) -> None:
        """An approval does not outlive the catalogue it was given for (T §5.5, §10)."""
        present = self.descriptor["revision"]
        if revision != present:
            raise HostError(f"the catalogue has changed from revision {revision!r} to "
                            f"{present!r}: describe, and prepare the call again",
                            code=CATALOGUE_CHANGED)

    def _value(self, what: str, request: HostRequest) -> object:
        """A request's result, or the exception that its reply means."""
        kind, message, value, details = request.reply
        if kind == "result":
            return value
        raise HostError(f"{what}: {message}", kind, **details)

    def wait_update(self, after_seq: int, timeout: float) -> dict | None:
        """Wait at most `timeout` seconds for an update with a seq above `after_seq`.

        Returns the newest, with `merged` for how many others it stands (T §8.3), or None. Raises
        HostError where the session has ended and none will come.
        """
        session = self.session

        def arrived() -> bool:
            return session.update is not None and session.update["seq"] > after_seq

        with self._between_turns():
            self.changed.wait_for(lambda: arrived() or session.ended is not None, timeout)
            if arrived():
                newer = sum(1 for seq in session.update_seqs if seq > after_seq)
                return session.update | {"merged": newer - 1}
            if session.ended is not None:
                raise HostError(f"no update will come: {session.ended.reason}", "ended",
                                outcome=session.ended.kind)
        return None


# ---- host: probes --------------------------------------------------------------------------------

#: How long nothing must come for the check to say that nothing came, in seconds.
HOST_SETTLE = 0.12
#: How long nothing must come of itself between actions, in seconds: see `HostCheck.provoked`.
HOST_QUIET = (0.3, 0.55, 0.8)
#: Within how many seconds describe and read should answer (T §4.4: "a few milliseconds").
HOST_PROMPT = 0.1
#: How many times are taken before a Tick is said to be slow: the best counts.
HOST_SPEED_TRIES = 5
#: What a machine may take for itself, in seconds: a single time below it says nothing.
HOST_STUMBLE = 1.0
#: Within how many seconds a Tick should end at the end of its input or at SIGTERM (T §4.5).
HOST_END_SOON = 2.0
#: How long a change may take to be told as an update, in seconds (T §8.1).
HOST_UPDATE_SOON = 3.0
#: How many of the query tools are tried for side effects: each costs a wait for silence.
HOST_PURITY_TRIED = 10
#: How many kinds of arguments that do not fit are tried with each tool.
HOST_MISFITS_TRIED = 12
#: A name that no Tick gives to a tool, a method or an argument.
HOST_NO_SUCH = "no-such-name-2f9d"
#: Verdicts on a rule: not judged, kept, broken. Of several, the last in this order stands.
HOST_VERDICTS = (None, True, False)


def host_last_words(screen: str) -> str:
    """What is on the screen of a Tick that has ended, as the end of a sentence."""
    return f"; screen: {tam.printable(screen)}" if screen else ""


def host_misfits(tool: dict, args: dict) -> list[dict]:
    """Arguments that do not fit a tool's schema, each in another way; `args` may fit it."""
    properties = tool["input_schema"].get("properties")
    names = list(properties) if isinstance(properties, dict) else []
    tried = [{**args, HOST_NO_SUCH: True}, {}]
    tried += [{**args, name: value} for value in ("1", None, [], 0.5, "") for name in names]
    tried += [{key: value for key, value in args.items() if key != name} for name in names]
    misfits: list[dict] = []
    for wrong in tried:
        why = host_unfit(tool, wrong)
        if why.startswith(HOST_UNCHECKABLE):
            return []  # too costly to check: whether anything fits is not known
        if why and wrong not in misfits:
            misfits.append(wrong)
    return misfits[:HOST_MISFITS_TRIED]


class HostCheck:
    """One check of a Tick: the sessions it runs, and the verdicts of the probes.

    A verdict is (True, False or None, what was seen) under a rule's id; None means not judged.
    What the protocol session itself found broken overrides verdicts.
    """

    def __init__(self, argv: list[str], calls: list[tuple[str, dict]],
                 timeout: float | None) -> None:
        """`calls` are (tool, args) that the user approves; `timeout` is per answer, in seconds:
        by default those of T, 10 and for calls 60."""
        self.argv, self.calls = argv, calls
        self.limits = HostLimits(start=min(timeout or HostLimits.start, HostLimits.start),
                                 call=timeout or HostLimits.call)
        self.verdicts: dict[str, tuple[bool | None, str]] = {}
        self.findings: dict[str, HostFinding] = {}
        self.counts: collections.Counter[str] = collections.Counter()
        self.outcome = "ok"
        self.descriptor: dict | None = None
        self.host: TickHost | None = None
        #: The rule that is being tried: broken, if the Tick ends meanwhile.
        self.subject = ""

    def judge(self, rule: str, kept: bool | None, detail: str, otherwise: str = "") -> None:
        """Note whether a rule was kept, and what was seen: `otherwise` where it is broken."""
        verdict = kept, otherwise if otherwise and kept is False else detail
        before = self.verdicts.setdefault(rule, verdict)
        if HOST_VERDICTS.index(kept) > HOST_VERDICTS.index(before[0]):
            self.verdicts[rule] = verdict

    def broken(self, rule: str) -> bool:
        """Whether a probe has seen a rule broken."""
        return self.verdicts.get(rule, (None,))[0] is False

    def run(self, probe: Callable[[HostProbes], None]) -> None:
        """Run a probe, and note if the session ends under it: that is a result of the check.

        A probe that may be why a Tick ends says so by setting `subject` to the rule it tries.
        """
        self.subject = "run.stays"
        try:
            probe(self)
        except HostError:
            if self.host is None or self.host.ended is None:
                raise
        end = None if self.host is None else self.host.ended
        if end is None or self.outcome != "ok":
            return
        if end.kind == "fault":
            raise HostError(end.reason)
        self.outcome = end.kind
        if end.kind == "exit":
            screen = self.host.screen_excerpt()
            self.judge(self.subject, False, end.reason + host_last_words(screen))

    def start(self) -> TickHost:
        """Start the Tick, in place of one that was started before. Raises HostStartError."""
        self.finish()
        self.host = TickHost(self.argv, limits=self.limits)
        self.host.stderr_apart = True
        self.host.start()
        return self.host

    def finish(self) -> None:
        """End the Tick and keep what its session has found."""
        if self.host is None:
            return
        self.host.close()
        session = self.host.session
        self.findings = session.findings | self.findings
        self.counts.update(session.counts)
        noise = self.host.stderr_text
        if noise and b"\x1b" not in noise and self.outcome == "ok":  # a crash says why, else
            self.judge("stderr.quiet", False, f"{len(noise):,} bytes: {head(noise)!r}")
        self.host = None

    # -- requests that need no approval, or have it --

    def send_call(self, tool: str, args: dict, stale: str = "") -> HostRequest:
        """Send a call unchecked: only of query tools, of tools the user named, or of none."""
        revision = self.host.descriptor["revision"] + stale
        return self.host.send("tick/call", {"tool": tool, "args": args, "revision": revision})

    def answer(self, request: HostRequest) -> HostRequest:
        """Wait for the reply of a sent request. Raises HostError where the session ended."""
        reply = self.host.wait_reply(request).reply
        if reply.kind in ("ended", "unsent"):
            raise HostError(reply.message, reply.kind)
        return request

    def ask(self, method: str) -> HostRequest:
        """Send a request and wait for its reply. Raises HostError where the session ended."""
        return self.answer(self.host.send(method))

    def kept(self, rule: str, request: HostRequest) -> bool:
        """Judge the reply to a request by a rule about exchanges; True where it was kept."""
        self.subject = rule
        reply = self.answer(request).reply
        wrong = next(one for one in HOST_RULES if one.id == rule).wrong(reply)
        seen = {"result": f"answered with the result {shown(reply.value)}",
                "error": "answered " + reply.message.removeprefix("error ")}
        detail = seen.get(reply.kind, reply.message)
        unchecked = self.host.session.unchecked.get(request.params.get("tool"), ())
        if unchecked:
            detail += f"; its args were unchecked by {', '.join(unchecked)}"
        if wrong and self.outdated(request):
            self.judge(rule, None, "the catalogue changed meanwhile")
        elif reply.kind != "bad":  # then another rule is broken
            self.judge(rule, not wrong, detail)
        return not wrong

    def outdated(self, request: HostRequest) -> bool:
        """Whether a call was refused for its revision, and rightly: there is another by now."""
        if request.reply.details.get("code") != CATALOGUE_CHANGED:
            return False
        self.ask("tick/describe")
        revision = self.host.descriptor["revision"]
        return request.params.get("revision", revision) != revision

    def queries(self) -> list[dict]:
        """The query tools that need no argument: they may be called freely."""
        return [tool for tool in host_tools(self.descriptor)
                if not tool["mutates"] and not host_unfit(tool, {})]

    def unsent(self, tool: str, args: dict) -> str:
        """Why a call that the user named is not sent; "" where it is."""
        return host_unfit(host_tool(self.descriptor, tool), args)

    # -- whether something changed --

    def look(self) -> tuple[int, bytes]:
        """What there is to compare: how many updates came, and the state's data."""
        reply = self.ask("tick/read").reply
        data = reply.value.get("data") if reply.kind == "result" else None
        return self.host.session.counts["update"], tam.encode_json(data)

    def updated(self, count: int, seconds: float) -> bool:
        """Whether, at most so many seconds later, more than `count` updates have come."""
        session = self.host.session
        self.host.wait_until(
            lambda: session.counts["update"] > count or session.ended is not None, seconds)
        return session.counts["update"] > count

    def moved(self, action: Callable[[], object], settle: float = HOST_SETTLE) -> bool:
        """Whether the state changed or an update came while an action ran or `settle` s after."""
        before = self.look()
        action()
        return self.updated(before[0], settle) or self.look() != before

    def provoked(self, action: Callable[[], object]) -> bool:
        """Whether an action changes the state: each of three times, and never without it.

        No Tick whose state moves by itself at a steady pace is taken for one whose state is moved:
        what comes just after one of the waits without the action cannot come just after another,
        since these differ by more than a wait with it lasts. One that moves at random times is,
        with a probability below 0.1 %.
        """
        return all(self.moved(action) and not self.moved(lambda: None, quiet)
                   for quiet in HOST_QUIET)

    def judge_pure(self, rule: str, action: Callable[[], object], otherwise: str) -> None:
        """Judge by a rule that an action does not change the state."""
        self.judge(rule, not self.provoked(action), "no change was seen", otherwise)


class HostProbes(HostCheck):
    """What the check tries: each is for the rules that its verdicts name."""

    def try_start(self) -> None:
        """Start the Tick and initialise it (T §4.2)."""
        begun = time.monotonic()
        try:
            host = self.start()
        except HostStartError as error:
            if error.details["outcome"] == "fault":
                raise
            self.outcome = error.details["outcome"]
            self.judge("start.run", True, "it starts")
            self.judge(error.details["rule"], False,
                       error.message + host_last_words(error.details["screen"]))
            return
        took = time.monotonic() - begun
        self.descriptor = host.descriptor
        self.judge("start.run", True, tam.printable(host.argv[0]))
        self.judge("start.describe", True,
                   f"protocol {PROTOCOL}, {len(host.descriptor['tools'])} tools")
        self.judge("start.read", True, f"after {took * 1000:.0f} ms")
        if host.session.unchecked:
            words = "; ".join(f"{tool}: {', '.join(found)}"
                              for tool, found in host.session.unchecked.items())
            self.judge("describe.schemas", None, f"unchecked: {words}; valid but for that")

    def try_descriptor(self) -> None:
        """What a descriptor and a state should be like beyond what they must (T §5.4, §6.4)."""
        kind, data = self.descriptor["kind"], self.host.session.state["data"]
        good = re.fullmatch(r"[a-z0-9_-]+(\.[a-z0-9_-]+)+", kind)
        self.judge("describe.kind-name", good is not None, shown(kind))
        size = host_size(data)
        self.judge("state.size", size <= STATE_ADVISED, f"{size:,} bytes")
        series = self.descriptor.get("state", {}).get("series", [])
        for entry in series:
            if not isinstance(pointed(data, pointer_tokens(entry["path"])), list | None):
                self.judge("state.series", False, f"{shown(entry['path'])} is no array")
        judged = True if series and data is not None else None
        self.judge("state.series", judged, f"{len(series)} declared")

    def try_speed(self) -> None:
        """describe and read answer at once, and change nothing (T §4.4).

        The best time of five counts, since machines stumble. A change after each of five, and none
        while nothing is asked, is a side effect.
        """
        session = self.host.session
        for name in ("describe", "read"):
            times, marks = [], set()
            for _ in range(HOST_SPEED_TRIES):
                request = self.ask(f"tick/{name}")
                times.append(request.answered_at - request.sent_at)
                marks.add((session.counts["update"], session.state["seq"]))
            best = min(times)
            self.judge(f"{name}.prompt", best <= HOST_PROMPT, f"{best * 1000:.1f} ms")
            moved = (len(marks) == HOST_SPEED_TRIES
                     and not self.updated(session.counts["update"], HOST_SETTLE))
            self.judge("request.pure", not moved, f"{name}: {len(marks) - 1} changes in five")

    def refusals(self) -> list[tuple[str, str, dict, str]]:
        """Calls that must be refused, each behind the rule that says so and with what makes its
        revision another one: of no tool, of queries, and of what the user named."""
        stale = [(tool, args) for tool, args in self.calls if not self.unsent(tool, args)]
        stale += [(tool["name"], {}) for tool in self.queries()]
        named = dict(reversed(self.calls))
        misfits = [(tool["name"], args) for tool in host_tools(self.descriptor)
                   if not tool["mutates"] or tool["name"] in named
                   for args in host_misfits(tool, named.get(tool["name"], {}))]
        return [*(("call.revision", *call, "~stale") for call in stale or [(HOST_NO_SUCH, {})]),
                ("call.tool", HOST_NO_SUCH, {}, ""),
                *(("call.args", *call, "") for call in misfits)]

    def try_refusals(self) -> None:
        """What must be refused is refused, and has no effect (T §3.4, §7.2)."""
        calls = self.refusals()
        if all(rule != "call.args" for rule, *_ in calls):
            self.judge("call.args", None, "no tool with a schema to break; name one with --call")
        good = []

        def refuse() -> None:
            """All refusals; a Tick that did not refuse one is not asked again."""
            if all(good):
                good.append(self.kept("method.unknown", self.host.send(f"example/{HOST_NO_SUCH}")))
                for rule, tool, args, stale in calls:
                    if not self.broken(rule):
                        good.append(self.kept(rule, self.send_call(tool, args, stale)))

        provoked = self.provoked(refuse)
        if all(good):
            self.judge("call.no-effect", not provoked, "no change came of refused calls",
                       otherwise="a change came of refused calls")

    def try_eight(self) -> None:
        """As many requests at once as a host may have in flight are each answered (T §3.3)."""
        sent = [self.send_call(query["name"], {}) for query in self.queries()[:2]]
        while len(sent) < HostLimits.in_flight:
            sent.append(self.host.send("tick/read" if len(sent) % 2 else "tick/describe"))
        kinds = [self.answer(request).reply.kind for request in sent]
        missing = kinds.count("timeout")
        self.judge("answer.eight", not missing, f"{missing} of {len(kinds)} had no answer in time")

    def try_queries(self) -> None:
        """Query tools without arguments answer and change nothing (T §5.6, §7.2)."""
        for rule in ("call.query", "query.pure"):
            self.judge(rule, None, "no query tool that needs no argument")
        for tool in self.queries():
            self._call_in_company("call.query", tool["name"], {})
        for tool in self.queries()[:HOST_PURITY_TRIED]:
            self._query_purely(tool["name"], {})

    def _query_purely(self, tool: str, args: dict) -> None:
        self.subject = "query.pure"
        self.judge_pure("query.pure", lambda: self.answer(self.send_call(tool, args)),
                        f"{shown(tool)} changes the state")

    def _call_in_company(self, rule: str, tool: str, args: dict) -> HostRequest:
        """Judge a call by a rule. A describe and a read beside it should not wait for it (T §3.3).

        A Tick that lets them wait does so at each of several tries. Where there is only one, since
        the tool may mutate, a short wait says nothing: machines stumble.
        """
        once = rule == "call.approved"
        tries, limit = (1, HOST_STUMBLE) if once else (HOST_SPEED_TRIES, HOST_PROMPT)
        self.subject = rule
        for _ in range(tries):
            call, waited = self._beside(tool, args, limit)
            if not waited:
                break
        slow = self.broken("describe.prompt") or self.broken("read.prompt")
        self.judge("call.beside", not waited or slow, waited or "neither waited")
        self.kept(rule, call)
        return call

    def _beside(self, tool: str, args: dict, limit: float) -> tuple[HostRequest, str]:
        """One such call, and what waited for it for more than `limit` seconds; "" for nothing."""
        call = self.send_call(tool, args)
        beside = [self.host.send("tick/describe"), self.host.send("tick/read")]
        self.answer(call)
        waited = ""
        for request in beside:
            self.answer(request)
            took = request.answered_at - request.sent_at
            after = request.answered_at >= call.answered_at
            if request.reply.kind != "bad" and after and took > limit:
                waited = f"{request.method} waited {took * 1000:.0f} ms for {shown(tool)}"
        return call, waited

    def try_calls(self) -> None:
        """The calls that the user named, each once; a change they make is told (T §7, §8.1)."""
        for rule in ("call.approved", "update.told", "call.beside") if not self.calls else ():
            self.judge(rule, None, "no call was named with --call")
        for tool, args in self.calls:
            why = self.unsent(tool, args)
            if why:
                self.judge("call.approved", False,
                           f"{tool} was not called: {why}; mend the --call, or the catalogue")
            elif self.broken("call.revision"):
                self.judge("call.approved", None, f"{tool} was not called: a refused one has run")
            else:
                self._call_named(tool, args)

    def _call_named(self, tool: str, args: dict) -> None:
        still = self.look() == self.look()
        updates, data = self.look()
        call = self._call_in_company("call.approved", tool, args)
        if self.look()[1] == data or not still:
            self.judge("update.told", None, "no change of the state could be put down to a call")
            return
        told = self.updated(updates, HOST_UPDATE_SOON)
        self.subject = "update.told"
        self.judge("update.told", told, f"{tool} changed the state, and an update came",
                   otherwise=f"{tool} changed the state, and no update came")
        self._judge_change(call)

    def _judge_change(self, call: HostRequest) -> None:
        """A call seems to have changed the state: whether it may have (T §3.4, §5.6)."""
        tool, args = call.params["tool"], call.params["args"]
        if call.reply.details.get("code") in NOT_EXECUTED:
            if not self.moved(lambda: None, HOST_QUIET[-1]):
                self.judge("call.no-effect", False,
                           f"{shown(tool)} was refused, and changed the state")
        elif not host_tool(self.descriptor, tool)["mutates"]:
            self._query_purely(tool, args)

    def try_resize(self) -> None:
        """A resize is no business of the protocol (T §4.1, §8.3)."""
        sizes = [(110, 29), (120, 30), (100, 28)]
        self.judge_pure("resize.silent", lambda: self.host.resize(*sizes.pop()),
                        "each was followed by an update or another state")

    def try_junk(self) -> None:
        """What is no message, or a request without a usable id, is dropped (T §3.2)."""
        request = b'{"jsonrpc":"2.0",%s"method":"tick/read","params":{}}'
        lines = (("junk.line", b"this line is no JSON"),
                 ("junk.null-id", request % b'"id":null,'), ("junk.null-id", request % b""))
        for rule, line in lines:
            self.subject = rule
            self.host.send_line(line)
            answered = self.ask("tick/describe").reply.kind != "timeout"
            self.judge(rule, answered, "dropped without an answer",
                       otherwise="the describe after it was not answered")

    def try_end_of_input(self) -> None:
        """At the end of input, what is in flight is answered and the Tick ends (T §4.5)."""
        queries = self.queries()
        last = self.send_call(queries[0]["name"], {}) if queries else self.host.send("tick/read")
        self.host.end_input()
        kind = self.host.wait_reply(last).reply.kind
        self.judge("end.answers", kind not in ("ended", "timeout"), f"{last.method} was answered",
                   otherwise=f"{last.method} was in flight and was not answered")
        self._judge_end("end.input")

    def try_sigterm(self) -> None:
        """A Tick ends soon at SIGTERM (T §4.5); it takes a second start to see."""
        try:
            self.start().terminate()
        except HostStartError as error:
            self.judge("end.sigterm", None, f"a second start failed: {error.message}")
            self.finish()
            return
        self._judge_end("end.sigterm")

    def _judge_end(self, rule: str) -> None:
        """The Tick was asked to end: it should soon, and only a violation meanwhile is a fault."""
        soon = min(self.limits.start, HOST_END_SOON)
        ended = self.host.wait_until(lambda: self.host.ended is not None, soon)
        self.judge(rule, ended, "it ended", otherwise=f"it still ran {soon:g} s later")
        if ended and self.host.ended.kind == "violation":
            self.outcome = "violation"
        self.finish()


#: In this order, each while the session goes on.
HOST_PROBES = (
    HostProbes.try_start, HostProbes.try_descriptor, HostProbes.try_speed, HostProbes.try_refusals,
    HostProbes.try_eight, HostProbes.try_queries, HostProbes.try_calls, HostProbes.try_resize,
    HostProbes.try_junk, HostProbes.try_end_of_input, HostProbes.try_sigterm,
)


# ---- host: report --------------------------------------------------------------------------------


def host_check(argv: list[str], calls: list[tuple[str, dict]],
               timeout: float | None = None) -> dict:
    """Check a Tick against HOST_RULES and return the report, as `tam tick check --json` gives it.

    `calls` are (tool, args) that the user approves; `timeout` is the wait for each answer, in
    seconds, above 0 and at most 60. The Tick is started twice.
    """
    check = HostProbes(argv, calls, timeout)
    try:
        for probe in HOST_PROBES:
            if check.outcome == "ok":
                check.run(probe)
    finally:
        check.finish()
    if check.outcome == "ok":
        check.judge("run.stays", True, "it did")
        check.judge("stderr.quiet", True, "nothing but what draws")
    checks = [_host_row(check, rule) for rule in HOST_RULES]
    broken = any(row["ok"] is False and row["level"] == "must" for row in checks)
    return {"conforms": check.outcome == "ok" and not broken, "outcome": check.outcome,
            "descriptor": check.descriptor, "checks": checks}


def _host_row(check: HostCheck, rule: HostRule) -> dict:
    """What became of a rule, for the report."""
    ok, detail = _host_verdict(check, rule)
    return {"id": rule.id, "section": rule.section, "level": rule.level,
            "rule": rule.sentence, "ok": ok, "detail": cut(tam.printable(detail), 400)}


def _host_verdict(check: HostCheck, rule: HostRule) -> tuple[bool | None, str]:
    """What the session found goes before what a probe saw; what it held good was kept."""
    finding = check.findings.get(rule.id)
    if finding is not None:
        times = f" ({check.counts[rule.id]} times)" if check.counts[rule.id] > 1 else ""
        return False, finding.detail + times + (f": {finding.head}" if finding.head else "")
    if rule.id in check.verdicts or rule.subject in ("experiment", "exchange"):
        return check.verdicts.get(rule.id, (None, "not tried"))
    count = sum(check.counts[subject] for subject in rule.subject.split())
    subjects = rule.subject.replace(" ", "s and ") + "s"
    return (True, f"{count} {subjects}") if count else (None, f"no {subjects} were seen")


# ---- host: signals -------------------------------------------------------------------------------


def unwinding() -> Handlers:
    """Return what lets signals unwind the program, Ctrl-C included, so that the Tick ends with it.

    Outside the main thread they cannot be taken, and what nohup ignores stays ignored.
    """
    here = threading.current_thread() is threading.main_thread()
    signals = (*ENDING, signal.SIGINT) if here else ()
    return Handlers([n for n in signals if signal.getsignal(n) != signal.SIG_IGN], _unwind)


def _unwind(number: int, frame: object) -> None:
    # To end a Tick takes a moment, and what interrupts that would leave it running.
    for other in (*ENDING, signal.SIGINT):
        signal.signal(other, signal.SIG_IGN)
    raise SystemExit(128 + number)


# ---- host: check command -------------------------------------------------------------------------

#: What is safe in JSON and not on a terminal: C1 controls and bidirectional overrides.
HOST_UNSAFE = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
#: For terminals and files that know ASCII only.
HOST_ASCII = str.maketrans({"✓": "+", "✗": "x", "–": "-", "→": ">", "←": "<", "§": "section ",
                            "…": "..."})
HOST_CHECK_HELP = """\
The Tick is started twice. Query tools that need no argument are called; a tool that mutates is
called only where --call names it, which is your approval: with the arguments you give, and with
ones that it must refuse.

examples:
  tam tick check -- python3 my_tick.py
  tam tick check --call set_note '{"text": "hello"}' --json -- ./note

exit codes: 0 it conforms (warnings allowed); 1 it does not, or a --call could not be made; 2 the
command line is wrong
"""


def host_say(text: str) -> None:
    """Write lines for people to standard output, in whatever encoding that has (OSError)."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        data = text.encode(encoding)
    except UnicodeEncodeError:
        data = text.translate(HOST_ASCII).encode(encoding, "replace")
    tam.write_stdout(data)


def host_split(argv: list[str]) -> tuple[list[str], list[str]]:
    """The options before the first `--` and the command after it."""
    end = argv.index("--") if "--" in argv else len(argv)
    return argv[:end], argv[end + 1:]


class HostParser(tam.Parser):
    """The parser of a `tam tick` command that ends with `-- COMMAND [ARG…]`."""

    def __init__(self, word: str, purpose: str, more: str) -> None:
        super().__init__(prog=f"tam tick {word}", description=purpose, epilog=more,
                         usage=f"tam tick {word} [OPTION…] -- COMMAND [ARG…]", allow_abbrev=False,
                         formatter_class=argparse.RawDescriptionHelpFormatter)

    def parsed(self, argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
        """The options and the command. Raises tam.Usage."""
        options, command = host_split(argv)
        parsed = self.parse_args(options)
        if not command:
            self.error("the Tick's command is missing: … -- COMMAND [ARG…]")
        return parsed, command


def _host_check_arguments(argv: list[str]) -> tuple[list[str], list, float | None]:
    """The command, the approved calls and the timeout. Raises tam.Usage."""
    parser = HostParser("check", "Check a Tick against the protocol.", HOST_CHECK_HELP)
    parser.add_argument("--call", nargs=2, action="append", default=[], metavar=("TOOL", "JSON"),
                        help="call this tool with these arguments; may be repeated")
    parser.add_argument("--timeout", type=float, metavar="S",
                        help="seconds to wait for each answer (default: 10, and 60 for a call)")
    parser.add_argument("--json", action="store_true", help="print one JSON envelope")
    parsed, command = parser.parsed(argv)
    if parsed.timeout is not None and not 0 < parsed.timeout <= HostLimits.call:
        parser.error("argument --timeout: it must be above 0 and at most 60")
    calls = [(tool, _host_call_arguments(parser, text)) for tool, text in parsed.call]
    return command, calls, parsed.timeout


def _host_call_arguments(parser: tam.Parser, text: str) -> dict:
    try:
        args = tam.parse_json(text.encode("utf-8", "surrogateescape"))
    except tam.BadJSON as error:
        parser.error(f"argument --call: {tam.printable(error.message)}")
    if not isinstance(args, dict) or tam.has_surrogate(args):
        parser.error("argument --call: the arguments must be a JSON object")
    return args


def check_main(argv: list[str]) -> int:
    """`tam tick check`: print the report on a Tick. Returns 0, 1 or, for usage errors, 2."""
    as_json = "--json" in host_split(argv)[0]
    try:
        with unwinding():
            report = host_check(*_host_check_arguments(argv))
    except tam.TamError as error:
        tam.report(error, "tick.check", as_json)
        return error.exit_status
    if as_json:
        text = tam.success("tick.check", report, None, None).decode("utf-8")
        escaped = HOST_UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
        tam.write_stdout(escaped.encode("utf-8"))
    else:
        host_say(host_report_text(report))
    return 0 if report["conforms"] else 1


def host_report_text(report: dict) -> str:
    """The report for people: a line per rule, what is to mend last, and a summary."""
    advice = {rule.id: rule.advice for rule in HOST_RULES}
    lines, counts = [], collections.Counter()
    for row in sorted(report["checks"], key=lambda row: row["ok"] is False):
        mark = {True: "✓", None: "–"}.get(row["ok"], "!" if row["level"] == "should" else "✗")
        counts[mark] += 1
        line = f"{mark} {row['id']:<22} §{row['section']}  {row['detail']}"
        lines.append(line + (f" → {advice[row['id']]}" if row["ok"] is False else ""))
    lines.append(f"{'conforms' if report['conforms'] else 'does not conform'} "
                 f"(outcome {report['outcome']}): {counts['✓']} rules kept, {counts['✗']} broken, "
                 f"{counts['!']} warnings, {counts['–']} not judged")
    return "\n".join(lines) + "\n"


# ---- host: host command --------------------------------------------------------------------------

#: How much of a line a terminal shows, in characters; a script gets all of it.
HOST_LINE_SHOWN = 4000
HOST_KEYS = {"n": "\n", "r": "\r", "t": "\t", "e": "\x1b", "\\": "\\"}
HOST_COMMANDS_HELP = """\
commands, one a line:
  describe            ask for the catalogue
  read                read the state
  call TOOL [JSON]    call a tool; one that mutates is asked about first, on a terminal
  type KEYS           type into the view; \\r is Enter, \\e Escape, \\t \\n \\xHH \\uHHHH \\\\
  resize COLS ROWS    resize the view
  screen              show the view
  wait [SECS]         wait for an update that no `wait` has shown, at most 10 s
  help, quit

Traffic is shown as it passes: → from the host, ← from the Tick. With a script on standard input,
the script's `call` lines are your approval, and the exit code is 1 if a command failed.

example:
  printf 'read\\ncall add {"amount": 2}\\nwait\\n' | tam tick host -- ./counter
"""


class HostDriver:
    """Drives a Tick by commands, one a line, and shows the traffic."""

    def __init__(self, argv: list[str], interactive: bool) -> None:
        """On a terminal it is `interactive`: it prompts, and asks before calls that mutate."""
        self.interactive = interactive
        self.failed = self.unread = False
        self.waited_for = -1
        self._writing = threading.Lock()
        self.host = TickHost(argv, approve=self._approve)
        self.host.on_traffic = self._traffic

    def say(self, text: str) -> None:
        """Show a line that is safe to show."""
        with self._writing:
            host_say(text + "\n")

    def _traffic(self, arrow: str, line: bytes) -> None:
        """Show a line; when nobody reads any more, the commands stop too."""
        cut_off = self.interactive and len(line) > HOST_LINE_SHOWN
        text = line[:HOST_LINE_SHOWN if cut_off else None].decode("utf-8", "backslashreplace")
        more = f"… ({len(line):,} bytes)" if cut_off else ""
        try:
            if not self.unread:
                self.say(f"{arrow} {tam.printable(text)}{more}")
        except BrokenPipeError:
            self.unread = True

    def _approve(self, tool: dict, args: dict, revision: str) -> bool:
        """Ask the person; a script has said so by its line."""
        if not self.interactive:
            return True
        self.say(f"{tam.printable(tool['name'])}: {tam.printable(tool['description'])}\n"
                 f"  with {tam.printable(tam.encode_json(args).decode())}, "
                 f"revision {tam.printable(revision)}")
        try:
            return input("call it? [y/N] ").strip().lower() in ("y", "yes")
        except EOFError:
            return False

    def run(self, lines: Iterator[str]) -> int:
        """Start the Tick, do what the lines say, end it. Returns the exit status."""
        with self.host:
            for line in lines:
                word, _, rest = _utf8(line).strip().partition(" ")
                if word == "quit":
                    break
                if word and not word.startswith("#"):
                    self._do(word, rest.strip())
                if self.unread:
                    break
                if self.host.ended is not None:
                    self.say(f"the session has ended: {tam.printable(self.host.ended.reason)}")
                    self.failed = True
                    break
        return 1 if self.failed else 0

    def _do(self, word: str, rest: str) -> None:
        command = HOST_COMMANDS.get(word)
        try:
            if command is None:
                raise tam.Usage(f"there is no command {word}; `help` lists them")
            command(self, rest)
        except tam.TamError as error:
            self.failed = True
            unknown = getattr(error, "executed", False) is None and word == "call"
            note = " (outcome unknown)" if unknown else ""
            self.say(f"! {tam.printable(error.message)}{note}")

    def call(self, rest: str) -> None:
        """`call TOOL [JSON]`."""
        tool, _, text = rest.partition(" ")
        words = ", ".join(self.host.session.unchecked.get(tool, ()))
        if words:
            self.say(f"the arguments are unchecked by {tam.printable(words)}")
        args = tam.parse_json(text.encode("utf-8", "surrogateescape")) if text.strip() else {}
        self.host.call(tool, args)

    def type(self, rest: str) -> None:
        """`type KEYS`, with escapes for the keys that cannot stand in a line."""
        self.host.type(re.sub(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|([nrte\\]))", _host_key,
                              rest))

    def resize(self, rest: str) -> None:
        """`resize COLS ROWS`."""
        match = re.fullmatch(r"([1-9][0-9]{0,2}) +([1-9][0-9]{0,2})", rest)
        if match is None:
            raise tam.Usage("resize takes columns and rows, each 1 to 999")
        self.host.resize(int(match[1]), int(match[2]))

    def screen(self, rest: str) -> None:
        """`screen`: the rows down to the last that is not blank."""
        text = "\n".join(tam.printable(line.rstrip()) for line in self.host.screen())
        self.say(text.rstrip("\n"))

    def wait(self, rest: str) -> None:
        """`wait [SECS]`: each update is waited for once."""
        if not re.fullmatch(r"([0-9]{1,5}(\.[0-9]+)?)?", rest):
            raise tam.Usage("wait takes a number of seconds")
        update = self.host.wait_update(self.waited_for, float(rest or HostLimits.start))
        if update is None:
            self.say("no update came")
            return
        self.waited_for = update["seq"]
        self.say(f"update {update['seq']}, and {update['merged']} before it")


def _utf8(line: str) -> str:
    """A line of a script as the UTF-8 that it is, where the locale has taken it for something else.

    Bytes that are no UTF-8 stay surrogates, which `call` refuses and `type` replaces.
    """
    return line.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


def _host_key(match: re.Match[str]) -> str:
    """The key that an escape of `type` means."""
    return HOST_KEYS[match[3]] if match[3] else chr(int(match[1] or match[2], 16))


#: Each takes what follows its word. The traffic shows the answers of the first two.
HOST_COMMANDS = {
    "describe": lambda driver, rest: driver.host.describe(),
    "read": lambda driver, rest: driver.host.read(),
    "call": HostDriver.call, "type": HostDriver.type, "resize": HostDriver.resize,
    "screen": HostDriver.screen, "wait": HostDriver.wait,
    "help": lambda driver, rest: driver.say(HOST_COMMANDS_HELP.rstrip()),
}


def _host_typed_lines() -> Iterator[str]:
    """What a person types, with history where the system has readline."""
    try:
        import readline  # noqa: F401  (input() uses it)
    except ImportError:
        pass  # without it there is no history
    while True:
        try:
            yield input("tick> ")
        except EOFError:
            return


def host_main(argv: list[str]) -> int:
    """`tam tick host`: drive a Tick by commands. Returns 0, 1 where one failed, 2 for usage."""
    parser = HostParser("host", "Drive a Tick by hand or by script.", HOST_COMMANDS_HELP)
    try:
        command = parser.parsed(argv)[1]
        interactive = sys.stdin is not None and sys.stdin.isatty()
        with unwinding():
            driver = HostDriver(command, interactive)
            return driver.run(_host_typed_lines() if interactive else sys.stdin)
    except tam.TamError as error:
        tam.report(error, "tick.host", False)
        for line in error.details.get("screen", "").splitlines():
            tam.write_stderr(f"  | {tam.printable(line)}\n".encode("utf-8", "replace"))
        return error.exit_status


# ---- command line --------------------------------------------------------------------------------

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
    typed_by_a_person = INSTANCE_ID not in os.environ and os.isatty(0)
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
        board = _first_board(stores[0](), wired)
        return Loop(stores, wire, terminal, board).run()
    except tam.TamError:
        raise
    except Exception:  # the terminal is given back by now; nobody is to see a traceback on it
        raise unexpected(stores[0](), "the Tick") from None
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


def _first_board(store: tam.Tam, wired: bool) -> Board:
    """Return the board as it opens: on the project that is named or current, else on the list."""
    try:
        theme, project = store.config["theme"], store.default_project()
    except tam.TamError:
        if not wired:
            raise
        return Board(wired=True)  # the board and the host will be told at the first look
    board = Board(theme=theme if theme in PALETTES else "dark", wired=wired, served=project)
    return opened(board, project) if project else board
