"""A client for the tests of the MCP server: real pipes, one line at a time, with a deadline."""
from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time

import tam
from support import DEADLINE, ROOT, closing, make_project  # noqa: F401 (for the tests)

DATA = ROOT / "tests" / "data" / "mcp"

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
MODERN_META = {VERSION_KEY: "2026-07-28", CAPABILITIES_KEY: {}}
SERVER_META = {"io.modelcontextprotocol/serverInfo": {"name": "tam", "version": tam.VERSION}}
PING = {"jsonrpc": "2.0", "id": "healthy?", "method": "ping"}
PONG = {"jsonrpc": "2.0", "id": "healthy?", "result": {}}


def request(method: str, params: dict | None = None, identity: object = 1) -> dict:
    """A JSON-RPC request."""
    message = {"jsonrpc": "2.0", "id": identity, "method": method}
    return message if params is None else {**message, "params": params}


def modern(method: str, params: dict | None = None, identity: object = 1) -> dict:
    """A request of the stateless version."""
    return request(method, {**(params or {}), "_meta": MODERN_META}, identity)


def tool(name: str, arguments: object = None, identity: object = 1) -> dict:
    """A legacy tools/call."""
    return request("tools/call", {"name": name, "arguments": arguments}, identity)


def opening(version: str) -> dict:
    """An initialize request that asks for a version."""
    client = {"name": "test", "version": "1"}
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": client}
    return request("initialize", params, "opening")


def data_of(reply: dict) -> dict:
    """The data in the text of a tool's answer, whether it failed or not."""
    return json.loads(reply["result"]["content"][0]["text"])


class Client:
    """One server process. As a context manager it ends by closing standard input, and checks that
    the server then ends by itself, with status 0 and nothing on standard error."""

    def __init__(self, *words: str, env: dict | None = None, command: list | None = None) -> None:
        self.process = subprocess.Popen(
            [*(command or [sys.executable, str(ROOT / "tam.py"), "mcp"]), *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
            env={**os.environ, **(env or {})},
        )
        self.received = b""

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: object, *exc_info: object) -> None:
        try:
            if kind is None:
                assert self.end() == (0, b"", b"")
        finally:
            self.kill()

    def send(self, data: bytes) -> None:
        """Write bytes as they are."""
        self.process.stdin.write(data)

    def post(self, message: object) -> None:
        """Write one message as a line."""
        self.send(json.dumps(message).encode() + b"\n")

    def line(self, deadline: float = DEADLINE) -> bytes:
        """The next line that the server writes, without its newline."""
        until = time.monotonic() + deadline
        while b"\n" not in self.received:
            left = until - time.monotonic()
            ready = left > 0 and select.select([self.process.stdout], [], [], left)[0]
            assert ready, f"no answer within {deadline} s"
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            assert data, f"the server has ended: {self.process.stderr.read().decode()}"
            self.received += data
        line, _, self.received = self.received.partition(b"\n")
        return line

    def ask(self, message: object) -> object:
        """Send one message and return the reply to it."""
        self.post(message)
        return json.loads(self.line())

    def call(self, name: str, **arguments: object) -> dict:
        """Call a tool and return its data, or fail."""
        reply = self.ask(tool(name, arguments))
        assert reply["result"]["isError"] is False, reply
        return data_of(reply)

    def end(self) -> tuple[int, bytes, bytes]:
        """Close standard input; return the exit status and what is left on the two outputs."""
        if not self.process.stdin.closed:
            self.process.stdin.close()
        left = self.received + self.process.stdout.read()
        return self.process.wait(DEADLINE), left, self.process.stderr.read()

    def kill(self) -> None:
        """End the process for certain and give its descriptors back."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            stream.close()
