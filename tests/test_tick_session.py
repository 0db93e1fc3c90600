"""The Tick session without input or output: frames in, frames out (T sections 2 to 9)."""
from __future__ import annotations

import json
import random
import re

import pytest
from tick_support import closing, database, make_project  # noqa: F401

import tam
import tam_tick


class Host:
    """A session with a clock that stands still, and what a host would have received."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0
        self.log: list[str] = []
        self.session = tam_tick.Session(
            log=self.log.append, clock=lambda: self.now, timer=lambda: self.now
        )
        self.calls: list[tam_tick.Call] = []

    def send(self, line: bytes) -> None:
        call = self.session.receive(line)
        if call is not None:
            self.calls.append(call)

    def request(self, request_id: object, method: object = "tick/read", **fields: object) -> None:
        body = {"jsonrpc": "2.0", "id": request_id, "method": method, **fields}
        self.send(json.dumps(body).encode())

    def received(self) -> list[dict]:
        frames = []
        while line := self.session.outbox.take():
            assert line.endswith(b"\n") and line.count(b"\n") == 1
            frames.append(json.loads(line))
        return frames

    def one(self) -> dict:
        (frame,) = self.received()
        assert frame["jsonrpc"] == "2.0"
        return frame

    def call(self, tool: object, args: object = None, **fields: object) -> dict:
        """Call a tool on the test's home and return the answer."""
        params = {"tool": tool, "args": {} if args is None else args,
                  "revision": self.session.revision, **fields}
        self.request(7, "tick/call", params=params)
        while self.calls:
            self.session.answer(tam_tick.carry_out(tam.Tam(), self.calls.pop()))
        return self.one()


@pytest.fixture
def host() -> Host:
    return Host()


def state_of(project: str) -> dict:
    return tam_tick.project_state(tam.Tam().snapshot(project, columns=0))


# ---- lines that get no answer ----

DROPPED = {
    "no JSON": b"{",
    "words": b"hello, Tick",
    "empty": b"",
    "an array": b"[]",
    "a batch": b'[{"jsonrpc":"2.0","id":1,"method":"tick/read"}]',
    "a number": b"7",
    "a string": b'"tick/read"',
    "null": b"null",
    "no id": b'{"jsonrpc":"2.0","method":"tick/read"}',
    "id null": b'{"jsonrpc":"2.0","id":null,"method":"tick/read"}',
    "id string": b'{"jsonrpc":"2.0","id":"1","method":"tick/read"}',
    "id true": b'{"jsonrpc":"2.0","id":true,"method":"tick/read"}',
    "id 1.5": b'{"jsonrpc":"2.0","id":1.5,"method":"tick/read"}',
    "id 1.0": b'{"jsonrpc":"2.0","id":1.0,"method":"tick/read"}',
    "id 1e3": b'{"jsonrpc":"2.0","id":1e3,"method":"tick/read"}',
    "id -1": b'{"jsonrpc":"2.0","id":-1,"method":"tick/read"}',
    "id 2^53": b'{"jsonrpc":"2.0","id":9007199254740992,"method":"tick/read"}',
    "id huge": b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"tick/read"}',
    "id list": b'{"jsonrpc":"2.0","id":[1],"method":"tick/read"}',
    "id object": b'{"jsonrpc":"2.0","id":{},"method":"tick/read"}',
    "bad UTF-8": b'{"jsonrpc":"2.0","id":1,"method":"tick/\xff"}',
    "NaN": b'{"jsonrpc":"2.0","id":1,"method":"tick/read","x":NaN}',
    "Infinity": b'{"jsonrpc":"2.0","id":1,"method":"tick/read","x":-Infinity}',
    "1e999": b'{"jsonrpc":"2.0","id":1,"method":"tick/read","x":1e999}',
    "bottomless": b'{"jsonrpc":"2.0","id":1,"method":"tick/read","x":' + b"[" * 100_000,
    "too deep": b'{"jsonrpc":"2.0","id":1,"method":"m","x":' + b"[" * 300 + b"]" * 300 + b"}",
    "two values": b'{"jsonrpc":"2.0","id":1,"method":"tick/read"}{}',
    "over-long": tam.Overlong(b'{"jsonrpc":"2.0","id":1,"method":"tick/read"}'),
}


@pytest.mark.parametrize("line", DROPPED.values(), ids=DROPPED)
def test_a_line_without_a_usable_id_is_dropped_and_noted(host: Host, line: bytes) -> None:
    host.send(line)
    assert host.received() == [] and host.calls == []
    assert len(host.log) == 1
    host.request(2)
    assert host.one()["id"] == 2


def test_the_log_of_dropped_lines_stays_short(host: Host) -> None:
    for _ in range(5000):
        host.send(b"junk")
    assert host.received() == []
    assert len(host.log) == tam_tick.NOTED_LINES + 5


# ---- requests that are refused ----

NOT_REQUESTS = {
    "no jsonrpc": {"jsonrpc": None},
    "jsonrpc 1.0": {"jsonrpc": "1.0"},
    "jsonrpc 2.0 as a number": {"jsonrpc": 2.0},
    "no method": {"method": None},
    "method 5": {"method": 5},
    "method list": {"method": ["tick/read"]},
    "params list": {"params": []},
    "params null": {"params": None},
    "params string": {"params": "x"},
}


@pytest.mark.parametrize("fields", NOT_REQUESTS.values(), ids=NOT_REQUESTS)
def test_a_wrong_envelope_with_a_usable_id_is_no_request(host: Host, fields: dict) -> None:
    body = {"jsonrpc": "2.0", "id": 3, "method": "tick/read", **fields}
    if fields in ({"jsonrpc": None}, {"method": None}):
        body = {key: value for key, value in body.items() if value is not None}
    host.send(json.dumps(body).encode())
    answer = host.one()
    assert answer["id"] == 3 and answer["error"]["code"] == -32600 and "result" not in answer


UNKNOWN = ["tick/update", "tick/", "ping", "", "tick/Read", "x" * 9999, "\ud800"]


@pytest.mark.parametrize("method", UNKNOWN, ids=ascii)
def test_an_unknown_method_is_answered_as_such(host: Host, method: str) -> None:
    host.request(4, method)
    error = host.one()["error"]
    assert error["code"] == -32601 and len(error["message"]) < 200


@pytest.mark.parametrize("request_id", [0, 1, tam_tick.MAX_INTEGER])
def test_every_unsigned_integer_is_an_id(host: Host, request_id: int) -> None:
    host.request(request_id)
    assert host.one()["id"] == request_id


def test_unknown_fields_are_ignored_and_params_may_be_missing(host: Host) -> None:
    host.request(1, "tick/describe", extra=[1], params={"verbose": True})
    host.request(2, "tick/read")
    assert [frame["id"] for frame in host.received()] == [1, 2]


# ---- describe ----

PLAIN_NAMES = [
    "status", "project_list", "task_list", "task_get", "task_create", "task_update", "task_claim",
    "task_heartbeat", "task_release", "task_complete", "task_next", "task_events", "history",
]


def test_describe_offers_the_tools_under_their_plain_names(host: Host) -> None:
    host.request(1, "tick/describe", params={})
    described = host.one()["result"]
    assert described["protocol"] == 3
    assert re.fullmatch(r"[a-z]+(\.[a-z]+)+", described["kind"]) and described["title"].strip()
    assert sorted(tool["name"] for tool in described["tools"]) == sorted(PLAIN_NAMES)
    assert described["state"] == {"series": [{"path": "/events", "newest": "last"}]}
    assert len(tam.encode_json(described)) < 512 << 10


def test_tools_tell_the_truth_about_mutating(host: Host) -> None:
    host.request(1, "tick/describe")
    described = host.one()["result"]
    tools = {tool["name"]: tool for tool in described["tools"]}
    queries = {name for name, tool in tools.items() if tool["mutates"] is False}
    assert queries == {
        "status", "project_list", "task_list", "task_get", "task_events", "history",
    }
    assert tools["task_next"]["mutates"] is True
    assert described["recover_with"] in queries
    for tool in tools.values():
        assert tool["description"] and tool["input_schema"]["type"] == "object"
        assert tam_tick.StrangersCheck(tool["input_schema"]).unchecked() == []


def test_the_revision_follows_the_catalogue() -> None:
    tools = tam_tick.catalogue()
    revision = tam_tick.revision_of(tools)
    assert revision == tam_tick.descriptor()["revision"] != ""
    for change in (
        {"name": "other"}, {"description": "other"}, {"mutates": True}, {"input_schema": {}},
    ):
        changed = [{**tools[0], **change}, *tools[1:]]
        assert tam_tick.revision_of(changed) != revision
    assert tam_tick.revision_of(tools[1:]) != revision


# ---- call ----


def test_a_wrong_revision_comes_before_everything_else(host: Host) -> None:
    for params in (
        {"tool": "task_create", "args": {"title": "x"}, "revision": "0"},
        {"tool": "nothing", "args": 5, "revision": None},
        {"revision": "\ud800"},
        {},
    ):
        host.request(5, "tick/call", params=params)
        assert host.one()["error"]["code"] == -32004
    assert host.calls == []


NO_TOOLS = ["nothing", "tam_status", "task.add", "project_add", "", None, 5, ["status"], "\ud800"]


@pytest.mark.parametrize("tool", NO_TOOLS, ids=ascii)
def test_an_unknown_tool_is_refused(host: Host, tool: object) -> None:
    error = host.call(tool)["error"]
    assert error["code"] == -32602 and error["data"]["code"] == "invalid"


WRONG_ARGUMENTS = {
    "no object": ("status", []),
    "a string": ("status", "{}"),
    "missing": ("task_create", {}),
    "undeclared": ("status", {"verbose": True}),
    "wrong type": ("task_get", {"id": "1"}),
    "true is no integer": ("task_get", {"id": True}),
    "out of range": ("task_create", {"title": "x", "priority": 9}),
    "not in the list": ("task_list", {"status": "bogus"}),
    "blank title": ("task_create", {"title": "  "}),
    "a lone surrogate": ("task_create", {"title": "a\ud800b"}),
    "a lone surrogate in a list": ("task_create", {"title": "a", "tags": ["\udfff"]}),
    "a lone surrogate as a name": ("task_create", {"title": "a", "\ud800": 1}),
    "no such task": ("task_get", {"id": 99}),
    "no such project": ("status", {"project": "nowhere"}),
    "no agent": ("task_claim", {"id": 1}),
    "human as an agent": ("task_claim", {"id": 1, "agent": "human"}),
}


@pytest.mark.parametrize("tool, args", WRONG_ARGUMENTS.values(), ids=WRONG_ARGUMENTS)
def test_what_was_not_carried_out_says_so(host: Host, tool: str, args: object) -> None:
    home = make_project("p", 1)
    before = home.data_version()
    error = host.call(tool, args)["error"]
    assert error["code"] == -32602 and error["message"]
    assert set(error.get("data", {"code": 0, "message": 0, "details": 0})) == {
        "code", "message", "details",
    }
    assert home.data_version() == before


def test_without_a_project_a_call_says_so(host: Host) -> None:
    error = host.call("status")["error"]
    assert (error["code"], error["data"]["code"]) == (-32602, "missing_project")


def test_a_conflict_is_a_failed_tool(host: Host) -> None:
    make_project("p", 1).call("task.claim", {"id": 1, "agent": "first"})
    error = host.call("task_claim", {"id": 1, "agent": "second"})["error"]
    assert (error["code"], error["data"]["code"]) == (-32000, "conflict")
    assert error["data"]["details"]["assigned_agent"] == "first"


def test_the_unexpected_is_a_failed_tool_with_the_traceback_in_the_log(host: Host) -> None:
    class Broken(tam.Tam):
        def call(self, name: str, arguments: dict) -> object:
            raise ZeroDivisionError(name)

    broken = Broken()
    line = tam_tick.carry_out(broken, tam_tick.Call(9, "status", False, {}))
    error = json.loads(line)["error"]
    assert error["code"] == -32000 and "ZeroDivision" not in error["message"]
    with open(broken.config["logfile_path"], encoding="utf-8") as log:
        assert "ZeroDivisionError" in log.read()


def test_a_result_longer_than_a_line_becomes_an_error(host: Host) -> None:
    class Long(tam.Tam):
        def call(self, name: str, arguments: dict) -> object:
            return "x" * tam.MAX_LINE

    line = tam_tick.carry_out(Long(), tam_tick.Call(9, "task.list", False, {}))
    assert json.loads(line)["error"]["code"] == -32000


def test_a_result_is_the_data_of_the_operation(host: Host) -> None:
    make_project("p", 2)
    assert host.call("task_get", {"id": 2})["result"]["task"]["title"] == "Task 2"
    assert host.call("project_list")["result"][0]["name"] == "p"
    page = host.call("history", {"since": 1, "limit": 5})["result"]
    assert [event["id"] for event in page["events"]] == [2]


# ---- the state ----


def test_there_is_no_data_without_a_project(host: Host) -> None:
    host.session.observe(tam_tick.project_state(tam.Tam().snapshot(None)))
    host.request(1)
    assert host.one()["result"] == {"seq": 0, "data": None, "at": "2027-01-15T08:00:00Z"}


def test_the_state_tells_what_there_is_to_do() -> None:
    home = make_project("p", 3)
    home.call("task.claim", {"id": 2, "agent": "a", "lease_seconds": 600})
    home.call("task.done", {"id": 3})
    data = state_of("p")
    assert data["project"] == {"id": 1, "name": "p"}
    assert data["counts"] == {"todo": 1, "in_progress": 1, "done": 1}
    (leased,) = data["leased"]
    assert (leased["id"], leased["title"], leased["assigned_agent"]) == (2, "Task 2", "a")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", leased["lease_expires_at"])
    assert data["next"] == [{"id": 1, "title": "Task 1", "priority": 3}]
    assert [event["event"] for event in data["events"]][-2:] == ["claimed", "completed"]
    assert data["cursor"] == data["events"][-1]["id"]
    assert set(data["more"]) <= set(PLAIN_NAMES)


def hardest_snapshot(character: str, count: int) -> dict:
    """Return a snapshot with every name as long as the rules allow, or longer."""
    title, name = character * 1000, character * 128
    task = {"id": 2**63 - 1, "title": title, "assigned_agent": name, "priority": 5,
            "lease_expires_at": "2026-11-08T10:00:00Z"}
    event = {"id": 2**63 - 1, "task_id": 2**63 - 1, "event": "heartbeat", "actor": name,
             "to_status": "in-progress", "created": "2026-11-08T10:00:00Z"}
    return {
        "project": {"id": 2**63 - 1, "name": character * 255},
        "counts": dict.fromkeys(("todo", "in_progress", "done"), 2**63 - 1),
        "leased_count": 2**63 - 1, "leased": [task] * count, "next": [task] * min(count, 5),
        "events": [event] * min(count, 20), "cursor": 2**63 - 1, "next_expiry": None,
    }


@pytest.mark.parametrize("character", ["a", "é", "标", "🚧", '"', "\x1b", "\x00", "\u2028"])
@pytest.mark.parametrize("count", [0, 1, 3, 50])
def test_the_hardest_state_fits(character: str, count: int) -> None:
    data = tam_tick.project_state(hardest_snapshot(character, count))
    whole = {"seq": tam_tick.MAX_INTEGER, "data": data, "at": "2026-11-08T10:00:00Z"}
    assert len(tam.encode_json(whole)) <= tam_tick.STATE_ADVISED
    if count:
        assert data["leased"] and data["next"] and data["events"], "something of everything"


def test_a_thousand_long_chinese_titles_fit() -> None:
    home = make_project("一个名字很长的项目", 1)
    title = "修复登录页面的重定向问题并补充端到端测试" * 40
    bare = database()
    bare.execute("BEGIN")
    bare.executemany(
        "INSERT INTO task (title, project_id) VALUES (?, 1)",
        [(f"{title}{number}",) for number in range(999)],
    )
    bare.execute("COMMIT")
    for task_id in range(1, 30):
        home.call("task.claim", {"id": task_id, "agent": f"代理-{task_id}"})
    data = state_of("一个名字很长的项目")
    assert len(tam.encode_json(data)) <= tam_tick.STATE_ADVISED - tam_tick.STATE_FRAME
    assert data["leased_count"] == 29 and data["counts"]["todo"] == 971
    assert len(data["leased"]) >= 4 and len(data["next"]) >= 3 and len(data["events"]) >= 5


# ---- updates ----


def test_only_a_change_makes_an_update_and_seq_grows(host: Host) -> None:
    seen = []
    for data in ({"a": 1}, {"a": 1}, {"a": 2}, {"a": 2}, {"a": 1}):
        host.session.observe(data)
        host.now += 1
        seen += [(f["params"]["seq"], f["params"]["data"]) for f in host.received()]
    assert seen == [(1, {"a": 2}), (2, {"a": 1})]


def test_no_update_carries_null_and_none_goes_out_for_what_is_gone(host: Host) -> None:
    host.session.observe({"a": 1})
    host.session.observe({"a": 2})
    host.session.observe(None)
    assert host.received() == []
    host.request(1)
    assert host.one()["result"]["data"] is None
    host.now += 1
    host.session.observe({"a": 3})
    (update,) = host.received()
    assert update["method"] == "tick/update" and update["params"]["data"] == {"a": 3}
    assert update["params"]["seq"] == 3 and "id" not in update


def test_a_burst_is_merged_and_its_last_state_goes_out(host: Host) -> None:
    host.session.observe({"n": 0})
    for number in range(1, 100):
        host.session.observe({"n": number})
    assert [f["params"]["data"]["n"] for f in host.received()] == [1]
    assert host.session.due() == pytest.approx(host.now + tam_tick.UPDATE_GAP)
    host.session.flush()
    assert host.received() == []
    host.now += tam_tick.UPDATE_GAP
    host.session.flush()
    assert [f["params"] for f in host.received()] == [
        {"seq": 99, "data": {"n": 99}, "at": "2027-01-15T08:00:00Z"}
    ]
    assert host.session.due() is None


def test_while_the_host_does_not_read_the_newest_update_is_kept(host: Host) -> None:
    host.session.observe({"n": 0})
    for number in range(1, 100):
        host.now += 1
        host.session.observe({"n": number})
    host.request(1)
    update, answer = host.received()
    assert update["params"]["seq"] == 99 and answer["result"]["seq"] == 99


def test_no_more_is_taken_while_answers_pile_up(host: Host) -> None:
    host.session.observe({"n": 0})
    count = 0
    while host.session.room():
        host.request(count)
        count += 1
    assert count == tam_tick.MAX_PENDING
    assert len(host.received()) == count and host.session.room()
    host.session.outbox.put(b"x" * tam_tick.MAX_UNSENT)
    assert not host.session.room()


def test_calls_under_way_count_against_the_room(host: Host) -> None:
    params = {"tool": "status", "args": {}, "revision": host.session.revision}
    for number in range(tam_tick.MAX_PENDING):
        host.request(number, "tick/call", params=params)
    assert not host.session.room()
    for call in host.calls:
        host.session.answer(tam_tick.carry_out(tam.Tam(), call))
    assert sorted(frame["id"] for frame in host.received()) == list(range(tam_tick.MAX_PENDING))
    assert host.session.room()


# ---- everything at once ----

KEYS = [
    "up", "down", "left", "right", "enter", "esc", "a", "e", "s", "c", "d", "t", "?", "/", "u",
    "q", "x", "好", "backspace", "home", "end", "pgup", "pgdn", "ctrl-u", "paste:a\nb", "\u0301",
]


class World:
    """A session and a board on one store, with other processes beside them, step by step."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.host = Host()
        clock = {"clock": lambda: self.host.now}
        self.home, self.other = make_project("p", 3), tam.Tam(**clock)
        self.agents = tam.Tam(project="p", **clock)
        self.person = tam.Tam(env=dict(self.home.env), **clock)
        self.board = tam_tick.opened(tam_tick.Board(wired=True), "p")
        self.next_id = 0
        self.sent: dict[int, int | None] = {}
        self.answered: list[int] = []
        self.update_seq, self.read_seq = -1, -1
        self.look()

    def step(self) -> None:
        self.random.choice(self.STEPS)(self)
        self.check_picture()

    def look(self) -> None:
        wanted = tam_tick.interest(self.board)
        snapshot = tam_tick.look_for_session(self.agents, wanted)
        self.host.session.observe(tam_tick.project_state(snapshot))
        view = tam_tick.look_for_board(self.agents, wanted, snapshot)
        self.board = tam_tick.arrange(self.board, view)

    def pass_time(self) -> None:
        self.host.now += self.random.choice([0.01, 0.1, 7, 900])
        self.host.session.flush()

    def request(self) -> None:
        if not self.host.session.room():
            return
        self.next_id += 1
        method = self.random.choice(["tick/read", "tick/describe", "tick/call", "tick/none"])
        params: dict = {}
        if method == "tick/call":
            params = {
                "tool": self.random.choice([*PLAIN_NAMES, "none"]),
                "args": self.arguments(),
                "revision": self.random.choice([self.host.session.revision] * 5 + ["old"]),
            }
        floor = max(self.update_seq, self.read_seq) if method == "tick/read" else None
        self.sent[self.next_id] = floor
        self.host.request(self.next_id, method, params=params)

    def arguments(self) -> dict:
        pool = {
            "id": self.random.randint(0, 9), "agent": self.random.choice("ab"), "claim": True,
            "title": self.random.choice(["x", "长" * 500, "\x1b[2J", "\ud800"]),
            "lease_seconds": self.random.choice([5, 900, 1]), "status": "todo", "limit": 3,
        }
        return dict(self.random.sample(sorted(pool.items()), self.random.randint(0, 3)))

    def junk(self) -> None:
        self.host.send(self.random.choice(list(DROPPED.values())))

    def carry_out(self) -> None:
        if self.host.calls:
            call = self.host.calls.pop(self.random.randrange(len(self.host.calls)))
            self.host.session.answer(tam_tick.carry_out(self.agents, call))

    def foreign(self) -> None:
        task_id = self.random.randint(1, 9)
        name, arguments = self.random.choice([
            ("task.add", {"title": "他人" * 100, "project": "p"}),
            ("task.claim", {"id": task_id, "agent": "other", "lease_seconds": 5}),
            ("task.done", {"id": task_id}), ("task.del", {"id": task_id}),
        ])
        try:
            self.other.call(name, arguments)
        except tam.TamError:
            pass  # a task that is done, gone or another's: as good a step as any

    def key(self) -> None:
        self.board, commands = tam_tick.press(self.board, self.random.choice(KEYS))
        for command in commands:
            if command.verb == "quit" or command.name == "project.del":
                continue
            acted = tam_tick.act(self.person, command)
            if acted.problem is None:
                self.board = tam_tick.settled(self.board, command, acted.result)
            else:
                self.board = tam_tick.failed(self.board, command, acted.problem)

    def read_pipe(self) -> None:
        for frame in self.host.received():
            if "id" in frame:
                self.take_answer(frame)
                continue
            update = frame["params"]
            assert update["seq"] > self.update_seq and update["data"] is not None
            self.update_seq = update["seq"]
            assert len(tam.encode_json(update)) <= tam_tick.STATE_ADVISED

    def take_answer(self, frame: dict) -> None:
        assert ("result" in frame) != ("error" in frame)
        floor = self.sent.pop(frame["id"])
        self.answered.append(frame["id"])
        if floor is not None:
            assert frame["result"]["seq"] >= floor
            self.read_seq = frame["result"]["seq"]
            assert len(tam.encode_json(frame["result"])) <= tam_tick.STATE_ADVISED

    def check_picture(self) -> None:
        width, height = self.random.choice([(120, 30), (80, 24), (40, 10), (20, 5), (3, 2)])
        self.board = tam_tick.within(self.board, width, height)
        screen = tam_tick.render(self.board, width, height)
        assert [tam_tick.line_width(line) for line in screen.lines] == [width] * height

    STEPS = [look, look, pass_time, request, request, request, junk, carry_out, carry_out,
             foreign, foreign, key, key, key, read_pipe, read_pipe]


SEEDS = [pytest.param(seed, marks=[pytest.mark.slow] if seed > 2 else []) for seed in range(12)]


@pytest.mark.parametrize("seed", SEEDS)
def test_random_interleavings_never_break_a_promise(seed: int) -> None:
    world = World(seed)
    for _ in range(400):
        world.step()
    while world.host.calls:
        world.carry_out()
    world.look()
    world.pass_time()
    world.read_pipe()
    assert world.sent == {} and len(set(world.answered)) == len(world.answered) == world.next_id
