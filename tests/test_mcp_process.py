"""The server as a process: its life and its end, its descriptors, its files, its options."""
from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

import tam
import tam_mcp
from mcp_support import closing  # noqa: F401 (used by every test)
from mcp_support import (
    DEADLINE, PING, PONG, ROOT, Client, data_of, make_project, opening, request, tool,
)

#: Runs the server with a core that prints, in every way there is, at each call.
PRINTING = """
import os, subprocess, sys
sys.path.insert(0, {root!r})
import tam, tam_mcp
honest = tam.Tam.call
def call(self, name, arguments):
    print("printed", flush=True)
    sys.__stdout__.write("written")
    sys.__stdout__.flush()
    os.write(1, b"raw")
    subprocess.run(["echo", "from a child"])
    assert sys.stdin.read() == ""
    return honest(self, name, arguments)
tam.Tam.call = call
sys.exit(tam_mcp.main([]))
"""
#: Runs the server with a core that never comes back from a call.
HANGING = """
import sys
sys.path.insert(0, {root!r})
import sqlite3, tam, tam_mcp
def call(self, name, arguments):
    tam_mcp.os.write(2, b"waiting\\n")
    sqlite3.connect(":memory:").execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT count(*) FROM n")
tam.Tam.call = call
sys.exit(tam_mcp.main([]))
"""


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code.format(root=str(ROOT))]


# ---- the whole way (P §7, item 9) ----------------------------------------------------------------


def test_whole_way_from_initialize_to_done() -> None:
    make_project().close()
    with Client() as client:
        assert client.ask(opening("2024-11-05"))["result"]["protocolVersion"] == "2024-11-05"
        client.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        tools = client.ask(request("tools/list"))["result"]["tools"]
        assert [listed["name"] for listed in tools] == list(tam_mcp.TOOLS)
        made = client.call("tam_task_create", title="one", priority=2, tags=["a"])["task"]
        assert (made["status"], made["priority"], made["tags"]) == ("todo", 2, ["a"])
        assert client.call("tam_task_list", status="todo")["tasks"] == [made]
        held = client.call("tam_task_claim", id=made["id"], agent="agent-a")["task"]
        assert (held["status"], held["assigned_agent"]) == ("in-progress", "agent-a")
        done = client.call("tam_task_complete", id=made["id"], agent="agent-a")["task"]
        assert (done["status"], done["assigned_agent"], done["revision"]) == ("done", None, 3)
        assert client.ask(request("tasks/list"))["error"]["code"] == -32601
    events = tam.Tam().call("task.events", {"id": made["id"]})["events"]
    assert [event["event"] for event in events] == ["created", "claimed", "completed"]
    assert [event["actor"] for event in events] == ["human", "agent-a", "agent-a"]


def test_two_servers_see_one_file() -> None:
    make_project(tasks=1).close()
    with Client("--agent", "a") as first, Client("--agent", "b") as second:
        assert first.call("tam_task_next", claim=True)["task"]["assigned_agent"] == "a"
        assert second.call("tam_task_next", claim=True)["task"] is None
        refused = second.ask(tool("tam_task_claim", {"id": 1}))
        assert data_of(refused)["error"]["code"] == "conflict"
        first.call("tam_task_release", id=1)
        assert second.call("tam_task_claim", id=1)["task"]["assigned_agent"] == "b"


# ---- the end -------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_quietly_at_once(number: signal.Signals) -> None:
    client = Client()
    assert client.ask(PING) == PONG
    assert ended_by(client, number) == (-number, b"", b"")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_a_call_that_hangs_in_the_database(number: signal.Signals) -> None:
    client = Client(command=python(HANGING))
    client.post(tool("tam_status"))
    assert client.process.stderr.readline() == b"waiting\n"
    assert ended_by(client, number) == (-number, b"", b"")


def test_signal_right_after_the_start_is_quiet() -> None:
    """The TypeScript client ends its probe process 5 ms after it has started it."""
    for delay in (0.0, 0.005, 0.02, 0.05):
        client = Client()
        client.process.stdin.close()
        try:
            client.process.wait(delay)
        except subprocess.TimeoutExpired:
            client.process.terminate()
        status, output, errors = client.end()
        client.kill()
        assert status in (0, -signal.SIGTERM) and (output, errors) == (b"", b"")


def ended_by(client: Client, number: signal.Signals) -> tuple[int, bytes, bytes]:
    client.process.send_signal(number)
    seen = client.process.wait(DEADLINE), client.process.stdout.read(), client.process.stderr.read()
    client.kill()
    return seen


def test_reader_that_goes_away_is_an_end() -> None:
    client = Client()
    assert client.ask(PING) == PONG
    client.process.stdout.close()
    client.post(PING)
    assert client.process.wait(DEADLINE) == 0
    assert client.process.stderr.read() == b""
    client.kill()


def test_end_of_input_in_the_middle_of_a_line() -> None:
    client = Client()
    client.send(b'{"jsonrpc":"2.0","id":1,')
    status, output, errors = client.end()
    client.kill()
    assert (status, errors) == (0, b"")
    assert json.loads(output)["error"]["code"] == -32700


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&-"])
def test_start_without_the_pipes_ends_quietly(closed: str) -> None:
    command = f'exec "{sys.executable}" "{ROOT / "tam.py"}" mcp {closed}'
    ended = subprocess.run(
        ["sh", "-c", command], input=b"", capture_output=True, timeout=DEADLINE, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


# ---- the descriptors -----------------------------------------------------------------------------


def test_nothing_but_messages_reaches_standard_output() -> None:
    make_project().close()
    with Client(command=python(PRINTING)) as client:
        assert client.call("tam_status")["project"] == "p"
        assert client.ask(PING) == PONG


def test_every_reply_is_one_write() -> None:
    make_project(tasks=60).close()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, subprocess.Popen(
        [sys.executable, str(ROOT / "tam.py"), "mcp"], stdin=subprocess.PIPE, stdout=theirs
    ) as server:
        theirs.close()
        ours.settimeout(DEADLINE)
        for message in (PING, request("tools/list"), tool("tam_task_list"), PING):
            server.stdin.write(json.dumps(message).encode() + b"\n")
            server.stdin.flush()
            packet = ours.recv(1 << 20)
            assert packet.count(b"\n") == 1 and packet.endswith(b"\n")
            assert json.loads(packet)["id"] == message["id"]
        server.stdin.close()


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no /proc here")
def test_endless_line_takes_bounded_memory() -> None:
    with Client() as client:
        assert client.ask(PING) == PONG
        before = peak_memory(client)
        for _ in range(64):
            client.send(b"x" * (1 << 20))
        client.send(b"\n")
        assert json.loads(client.line())["error"]["code"] == -32700
        assert client.ask(PING) == PONG
        assert peak_memory(client) - before < 3 * tam.MAX_LINE


def peak_memory(client: Client) -> int:
    """The most memory that the server has had, in bytes."""
    status = Path(f"/proc/{client.process.pid}/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def test_eight_mebibytes_are_one_message() -> None:
    with Client() as client:
        filler = "x" * (tam.MAX_LINE - len(json.dumps(request("ping", {"filler": ""}))))
        assert client.ask(request("ping", {"filler": filler}))["result"] == {}
        assert client.ask(request("ping", {"filler": filler + "x"}))["error"]["code"] == -32700
        assert client.ask(PING) == PONG


# ---- the files -----------------------------------------------------------------------------------


def test_nothing_is_opened_before_the_first_call(scratch_home: Path) -> None:
    with Client() as client:
        client.ask(opening("2025-11-25"))
        client.ask(request("tools/list"))
        assert not scratch_home.exists()
        assert client.call("tam_project_list") == {"projects": []}


@pytest.mark.parametrize("content", [b"no database " * 100, b"SQLite format 3\0" + b"\xff" * 4000])
def test_unusable_database_is_a_tool_error(scratch_home: Path, content: bytes) -> None:
    make_project().close()
    database = scratch_home / "tam.db3"
    database.write_bytes(content)
    with Client() as client:
        assert "result" in client.ask(opening("2025-06-18"))
        error = data_of(client.ask(tool("tam_status")))["error"]
        assert error["code"] == "internal" and str(database) in error["message"]
    assert database.read_bytes() == content


def test_database_that_comes_back_is_used_again(scratch_home: Path) -> None:
    make_project().close()
    database, aside = scratch_home / "tam.db3", scratch_home / "aside"
    database.rename(aside)
    database.write_bytes(b"damaged" * 100)
    with Client() as client:
        assert client.ask(tool("tam_status"))["result"]["isError"] is True
        aside.rename(database)
        assert client.call("tam_status")["project"] == "p"


def test_broken_configuration_is_a_tool_error(scratch_home: Path) -> None:
    make_project().close()
    (scratch_home / "tam.config.toml").write_text("db_file = [\n")
    with Client() as client:
        assert "result" in client.ask(opening("2025-06-18"))
        error = data_of(client.ask(tool("tam_status")))["error"]
        assert error["code"] == "internal" and "tam.config.toml" in error["message"]


def test_busy_database_is_waited_for_and_then_retryable() -> None:
    make_project(tasks=1).close()
    other = tam.Tam(busy_timeout=0.05)
    server = tam_mcp.Server(tam.Tam(busy_timeout=0.05))
    with other.store.writing():
        reply = tam_mcp.handle(server, tool("tam_task_claim", {"id": 1, "agent": "a"}))
    error = data_of(reply)["error"]
    assert (error["code"], error["details"]["retryable"]) == ("internal", True)
    reply = tam_mcp.handle(server, tool("tam_task_claim", {"id": 1, "agent": "a"}))
    assert reply["result"]["isError"] is False


# ---- the options ---------------------------------------------------------------------------------


def test_options_set_the_defaults(tmp_path: Path) -> None:
    home = str(tmp_path / "elsewhere")
    opened = tam.Tam(env={**os.environ, "TAM_HOME": home})
    opened.call("project.add", {"name": "q"})
    opened.close()
    with Client("--project", "q", "--agent", "agent-q", "--home", home) as client:
        claim = {
            listed["name"]: listed["inputSchema"]["required"]
            for listed in client.ask(request("tools/list"))["result"]["tools"]
        }["tam_task_claim"]
        assert claim == ["id"]
        made = client.call("tam_task_create", title="one")["task"]
        assert made["project"] == "q"
        assert client.call("tam_task_claim", id=made["id"])["task"]["assigned_agent"] == "agent-q"


def test_environment_sets_the_defaults() -> None:
    make_project("q", tasks=1).close()
    with Client(env={"TAM_PROJECT": "q", "TAM_AGENT": "agent-e"}) as client:
        assert client.call("tam_task_next", claim="true")["task"]["assigned_agent"] == "agent-e"


@pytest.mark.parametrize("words", [["--nonsense"], ["--config", "emacs"], ["--config"], ["word"]])
def test_wrong_options_are_a_usage_error(words: list[str]) -> None:
    ended = run_tam("mcp", *words)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "Traceback" not in ended.stderr and words[-1] in ended.stderr
    as_json = run_tam("--json", "mcp", *words)
    assert (as_json.returncode, as_json.stdout) == (2, "")
    envelope = json.loads(as_json.stderr)
    assert (envelope["ok"], envelope["command"], envelope["error"]["code"]) == (
        False, "mcp", "invalid")


def test_global_options_may_stand_before_the_word() -> None:
    ended = run_tam("--json", "--agent", "agent-a", "mcp", "--config", "json")
    assert configured_command("json", ended.stdout)[2:] == [
        "mcp", "--agent", "agent-a", "--home", os.environ["TAM_HOME"]]


def test_help_says_where_a_configuration_goes() -> None:
    ended = run_tam("mcp", "--help")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ".mcp.json" in ended.stdout and "~/.codex/config.toml" in ended.stdout


def run_tam(*words: str, env: dict | None = None) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, str(ROOT / "tam.py"), *words], capture_output=True, text=True,
        timeout=DEADLINE, check=False, env=env,
    )


def configured_command(client: str, text: str) -> list[str]:
    """The command in a printed configuration, read as that client reads it."""
    if client == "codex":
        entry = tomllib.loads(text)["mcp_servers"]["tam"]
    else:
        entry = json.loads(text)["servers" if client == "vscode" else "mcpServers"]["tam"]
    assert entry.pop("type", "stdio") == "stdio"
    assert set(entry) == {"command", "args"}
    return [entry["command"], *entry["args"]]


@pytest.mark.parametrize("client", tam_mcp.CLIENTS)
def test_printed_configuration_works_from_anywhere(client: str, tmp_path: Path) -> None:
    home = str(tmp_path / 'a "home" ü')
    ended = run_tam(
        "mcp", "--config", client, "--project", 'p"q', env={**os.environ, "TAM_HOME": home,
                                                           "TAM_AGENT": "agent-c"},
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    command = configured_command(client, ended.stdout)
    assert command == [sys.executable, str(ROOT / "tam.py"), "mcp", "--project", 'p"q',
                       "--agent", "agent-c", "--home", home]
    opened = tam.Tam(env={"TAM_HOME": home})
    opened.call("project.add", {"name": 'p"q'})
    opened.close()
    bare = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    lines = json.dumps(tool("tam_task_create", {"title": "one"})) + "\n"
    served = subprocess.run(
        command, input=lines, capture_output=True, text=True, cwd="/", env=bare, timeout=DEADLINE,
        check=True,
    )
    assert data_of(json.loads(served.stdout))["task"]["project"] == 'p"q'


def test_configuration_names_an_installed_command(tmp_path: Path) -> None:
    script = tmp_path / "tam"
    script.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "import tam\nsys.exit(tam.main())\n"
    )
    script.chmod(0o755)
    bare = {name: value for name, value in os.environ.items() if name != "TAM_HOME"}
    printed = subprocess.run(
        [str(script), "mcp", "--config", "claude"], capture_output=True, text=True, env=bare,
        timeout=DEADLINE, check=True,
    )
    assert json.loads(printed.stdout) == {
        "mcpServers": {"tam": {"type": "stdio", "command": str(script), "args": ["mcp"]}}
    }


def test_configuration_takes_no_options_that_nobody_set() -> None:
    words = tam_mcp.server_command({"project": None, "agent": "", "home": None})
    assert words == [sys.executable, str(ROOT / "tam.py"), "mcp"]
