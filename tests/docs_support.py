"""Reads the documents as a reader does: what to type, and what tam is said to answer.

The conventions, all of them ordinary Markdown:

- ```` ```console ````: lines after `$ ` are typed, the lines below are the answer;
- ```` ```sh ```` and lines indented by four spaces: typed, and must end with 0; lines that reach
  outside this machine or change it (OUTSIDE) are only read;
- ```` ```json ```` with an envelope: the answer of the command before it;
- ```` ```text ```` with arrows: `→` is sent, `←` comes back. `{"name": …, "arguments": …}` is a
  tool call of MCP and its text; frames with `"jsonrpc"` go to `tam mcp`, or to `tam tick` when the
  first method is one of the Tick protocol.

In shown JSON a `…` outside of strings stands for more keys or items, or for any value; in other
answers for the rest of a line, and alone on a line for more lines.
"""
from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

from mcp_support import ROOT, Client, tool

#: Commands of the documents that are not run: they install, or need another machine or a client.
OUTSIDE = (
    "pip", "pipx", "uv", "git", "ssh", "scp", "cp", "mv", "sudo", "litestream", "claude", "codex",
    "gemini", "mkdir", "rm", "ln", "eval", "python3 -m venv", ".venv/bin/pip", "sqlite3",
)
TEST_LINE = re.compile(r"^    python3 -m venv .*pytest.*$", re.MULTILINE)
#: Starts a program of Python in a session of its own, so that a Tick draws on no one's terminal.
WITHOUT_TERMINAL = (
    sys.executable, "-c",
    "import os, sys; os.setsid(); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])",
)
ELLIPSIS = "…"
#: Values that differ from run to run.
VOLATILE = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\dZ?|(?<![\w.:/~])/[\w./-]+")


class Block:
    """A fenced or indented block: its language ("" for an indented one), its place, its lines."""

    def __init__(self, language: str, number: int) -> None:
        self.language = language
        self.number = number
        self.lines: list[str] = []


def blocks(text: str) -> list[Block]:
    """The code blocks of a Markdown text, in order."""
    found: list[Block] = []
    fence = False
    blank = True
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fence = not fence
            if fence:
                found.append(Block(line.strip().removeprefix("```").strip(), number))
        elif fence:
            found[-1].lines.append(line)
        elif line.startswith("    ") and blank:
            found.append(Block("", number))
            found[-1].lines.append(line[4:])
        blank = not line.strip()
    return found


class Step:
    """Something to type, where it stands, and the lines shown as its answer (None: none shown)."""

    def __init__(self, number: int, command: str, shown: list[str] | None) -> None:
        self.number = number
        self.command = command
        self.shown = shown


def steps(block: Block) -> list[Step]:
    """The commands of a block with their answers."""
    found: list[Step] = []
    for number, line in enumerate(block.lines, block.number + 1):
        if block.language == "console":
            if line.startswith("$ "):
                found.append(Step(number, line[2:], []))
            else:
                found[-1].shown.append(line)
        elif line.strip() and not line.lstrip().startswith("#"):
            found.append(Step(number, line, None))
    return found


def outside(command: str) -> bool:
    """Whether a command is only to be read."""
    return command.startswith(tuple(word + " " for word in OUTSIDE)) or bool(
        TEST_LINE.match("    " + command)
    )


class Desk:
    """A scratch directory in which a document is worked through, as its reader would."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "desk"
        self.directory.mkdir()
        (directory / "bin").mkdir()
        for name in ("tam.py", "tam_mcp.py", "tam_tick.py", "llms.txt", "LICENSE"):
            if (ROOT / name).exists():
                shutil.copy(ROOT / name, self.directory)
        shutil.copytree(ROOT / "tests" / "ticks", self.directory / "tests" / "ticks")
        shutil.copytree(ROOT / "skills", self.directory / "skills")
        self.env = {
            "HOME": str(directory / "home"), "TERM": "xterm", "LANG": "C.UTF-8",
            "PATH": f"{directory / 'bin'}{os.pathsep}{os.environ['PATH']}",
        }
        (directory / "home").mkdir(exist_ok=True)
        # The same few lines that an installer writes for a console script.
        script = directory / "bin" / "tam"
        script.write_text(
            f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
            "from tam import main\nsys.exit(main())\n"
        )
        script.chmod(0o755)
        (directory / "bin" / "python3").symlink_to(sys.executable)
        self.answer = b""

    def work_through(self, block: Block) -> None:
        """Do what a block says and compare what it shows."""
        if block.language in ("console", "sh", ""):
            self.type(steps(block))
        elif block.language == "json":
            shown = parse_shown("\n".join(block.lines))
            if "schema" in shown:
                compare(shown, json.loads(self.answer.splitlines()[-1]), f"line {block.number}")
        elif any(line.startswith("→ ") for line in block.lines):
            self._exchange(block)

    def type(self, commands: list[Step]) -> None:
        """Type commands into one shell and judge each."""
        typed = [step for step in commands if not outside(step.command)]
        script = "".join(
            f"{{ {step.command}\n}} >{n}.out 2>{n}.err </dev/null; echo $? >{n}.status\n"
            for n, step in enumerate(typed)
        )
        subprocess.run(["bash", "-c", script], cwd=self.directory, env=self.env, timeout=60)
        for n, step in enumerate(typed):
            out, err, status = (
                (self.directory / f"{n}.{kind}").read_bytes() for kind in ("out", "err", "status")
            )
            self.answer = out
            self._judge(step, out + err, int(status))

    def _judge(self, step: Step, output: bytes, status: int) -> None:
        where = f"line {step.number}: {step.command}"
        if step.shown is None:
            assert status == 0, (where, output)
            return
        compare_text(step.shown, output.decode(), where)
        failed = any(line.startswith(("ERROR", '{"ok":false')) for line in step.shown)
        assert failed == (status != 0), (where, status)

    def _exchange(self, block: Block) -> None:
        sent = [json.loads(line[2:]) for line in block.lines if line.startswith("→ ")]
        back = [parse_shown(line[2:]) for line in block.lines if line.startswith("← ")]
        if "name" in sent[0]:
            self._call_tools(sent, back, block.number)
        elif sent[0]["method"].startswith("tick/"):
            self._speak(["tick", "--project", "web"], sent, back)
        else:
            self._speak(["mcp"], sent, back)

    def _call_tools(self, sent: list[dict], back: list[dict], number: int) -> None:
        assert len(sent) == len(back), f"line {number}: each call needs its answer"
        with Client(env=self.env) as client:
            for call, shown in zip(sent, back):
                result = client.ask(tool(call["name"], call["arguments"]))["result"]
                real = json.loads(result["content"][0]["text"])
                assert "ignored_arguments" not in real, (number, call, real)
                assert result["isError"] == ("error" in shown), (number, call, real)
                compare(shown, real, f"line {number}: {call['name']}")

    def _speak(self, words: list[str], sent: list[dict], back: list[dict]) -> None:
        """Exchange frames; answers are matched by id, notifications by their method."""
        command = [*WITHOUT_TERMINAL, str(ROOT / "tam.py")]
        with Client(*words, command=command, env=self.env) as client:
            revision = None
            for frame in sent:
                if "revision" in frame.get("params", {}) and frame["params"]["revision"] != "0":
                    frame["params"]["revision"] = revision
                client.post(frame)
                if "id" not in frame:
                    continue
                wanted = next(shown for shown in back if shown.get("id") == frame["id"])
                real = self._reply(client, frame["id"])
                revision = real.get("result", {}).get("revision", revision)
                compare(wanted, real, f"{words[0]}: {frame['method']}")
            for shown in back:
                if "id" not in shown:
                    compare(shown, self._reply(client, None), f"{words[0]}: {shown['method']}")
            self.backlog = []
            assert client.end()[0] == 0
            client.received = b""

    backlog: list[dict] = []

    def _reply(self, client: Client, identity: object) -> dict:
        for frame in self.backlog:
            if frame.get("id") == identity:
                self.backlog.remove(frame)
                return frame
        until = time.monotonic() + 10
        while time.monotonic() < until:
            frame = json.loads(client.line())
            if frame.get("id") == identity:
                return frame
            self.backlog.append(frame)
        raise AssertionError(f"no frame with id {identity}")


# What is shown, and what came.


def parse_shown(text: str) -> object:
    """JSON as documents show it: a `…` outside of strings becomes a key, an item or a value "…"."""
    out: list[str] = []
    closers: list[str] = []
    in_string = escaped = False
    for character in text:
        if in_string:
            in_string = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == ELLIPSIS:
            more_keys = closers[-1] == "}" and out[-1] != ":"
            character = '"…":null' if more_keys else '"…"'
        elif character == '"':
            in_string = True
        elif character in "{[":
            closers.append("}" if character == "{" else "]")
        elif character in "}]":
            closers.pop()
        out.append(character)
    return json.loads("".join(out))


def compare(shown: object, real: object, where: str) -> None:
    """Fail unless the answer has the keys, types and lasting values that are shown."""
    if shown == ELLIPSIS:
        return
    assert type(shown) is type(real), (where, shown, real)
    if isinstance(shown, dict):
        named = set(shown) - {ELLIPSIS}
        complete = ELLIPSIS in shown or named == set(real)
        assert complete and named <= set(real), (where, shown, real)
        for key in named:
            compare(shown[key], real[key], f"{where} /{key}")
    elif isinstance(shown, list):
        named = [item for item in shown if item != ELLIPSIS]
        complete = ELLIPSIS in shown or len(named) == len(real)
        assert complete and len(named) <= len(real), (where, shown, real)
        for number, (item, answer) in enumerate(zip(named, real)):
            compare(item, answer, f"{where} /{number}")
    elif isinstance(shown, str):
        assert lasting(shown) == lasting(real), (where, shown, real)
    else:
        assert shown == real, (where, shown, real)


def lasting(text: str) -> str:
    """The text without times and paths."""
    return VOLATILE.sub("#", text)


def compare_text(shown: list[str], output: str, where: str) -> None:
    """Compare what a console block shows with what was printed."""
    text = "\n".join(shown).strip()
    if text == ELLIPSIS:
        return
    if text.startswith("{"):
        compare(parse_shown(text), json.loads(output), where)
    elif text.startswith("["):
        compare(tomllib.loads(text), tomllib.loads(output), where)
    else:
        lines = [lasting(line.rstrip()) for line in output.strip().splitlines()]
        wanted = [lasting(line.rstrip()) for line in text.splitlines()]
        pattern = "\n".join(
            ".*" if line == ELLIPSIS else re.escape(line).replace(ELLIPSIS, "[^\n]*")
            for line in wanted
        )
        assert re.fullmatch(pattern, "\n".join(lines), re.DOTALL), (where, wanted, lines)
