"""`tam tick host`: a Tick driven by a script or by a person, with the traffic of appendix A."""
from __future__ import annotations

import io
import os
import select
import signal
import subprocess
import sys
import time

import pytest

from hosting import ROOT, eventually, gone, host, tick
from support import DEADLINE, SCRIPT

MAIN = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {host.__name__} as host; " \
       "sys.exit(host.host_main(sys.argv[1:]))"


def run(capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, script: str,
        *command: str) -> tuple[int, list[str], str]:
    monkeypatch.setattr(sys, "stdin", io.StringIO(script))
    status = host.host_main(["--", *command])
    out, err = capfd.readouterr()
    return status, out.splitlines(), err


def test_a_script_shows_the_dialogue_of_appendix_a(capfd: pytest.CaptureFixture,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    script = """
    # the user approves by writing the script
    read
    call increment {"amount": 2}
    wait
    type +
    wait 5
    screen
    quit
    call increment {"amount": 99}
    """
    status, lines, err = run(capfd, monkeypatch, script, *tick("counter.py"))
    assert (status, err) == (0, "")
    assert lines[0] == '→ {"jsonrpc":"2.0","id":1,"method":"tick/describe","params":{}}'
    assert lines[1].startswith('← {"jsonrpc": "2.0", "id": 1, "result": {"protocol": 3')
    assert lines[2] == '→ {"jsonrpc":"2.0","id":2,"method":"tick/read","params":{}}'
    assert lines[3].startswith('← {"jsonrpc": "2.0", "id": 2, "result": {"seq": 0')
    assert lines[6] == ('→ {"jsonrpc":"2.0","id":4,"method":"tick/call","params":{"tool":'
                        '"increment","args":{"amount":2},"revision":"1"}}')
    assert lines[7].startswith('← {"jsonrpc": "2.0", "method": "tick/update"')
    assert lines[8] == '← {"jsonrpc": "2.0", "id": 4, "result": {"value": 2}}'
    assert lines[9] == "update 1, and 0 before it"
    assert lines[10].startswith('← {"jsonrpc": "2.0", "method": "tick/update"')
    assert lines[11] == "update 2, and 0 before it"
    assert lines[12:] == ["计数器 Counter", "", "    3", *[""] * 26, "120x30 + adds, q quits"]


def test_commands_that_fail(capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    script = ("dance\ncall\ncall increment {\ncall increment {}\nresize 0 5\nresize 5\nwait soon\n"
              "wait 0.01\nresize 100 20\ncall history\n")
    status, lines, err = run(capfd, monkeypatch, script, *tick("counter.py"))
    assert (status, err) == (1, "")
    complaints = [line for line in lines if line.startswith("!")]
    assert len(complaints) == 7
    assert complaints[0] == "! there is no command dance; `help` lists them"
    assert complaints[3].startswith("! increment was not called: args") and "amount" in complaints[3]
    assert "no update came" in lines and lines[-1].endswith('"result": []}')


def test_what_there_is_to_be_asked(capfd: pytest.CaptureFixture,
                                   monkeypatch: pytest.MonkeyPatch) -> None:
    status, lines, err = run(capfd, monkeypatch, "help\ndescribe\n", *tick("note.py"))
    assert (status, err) == (0, "")
    assert "\n".join(lines[4:-2]) == host.HOST_COMMANDS_HELP.rstrip()
    assert lines[-2].startswith("→") and '"method":"tick/describe"' in lines[-2]
    assert '"kind": "example.note"' in lines[-1]


def test_a_call_says_what_of_its_arguments_is_unchecked(
        capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    program = tmp_path / "tick.py"
    source = (ROOT / "tests" / "ticks" / "note.py").read_text()
    program.write_text(source.replace('"type": "object"', '"unevaluatedItems": False'))
    script = 'call set_note {"text": "x"}\n'
    status, lines, _ = run(capfd, monkeypatch, script, sys.executable, str(program))
    assert status == 0 and "the arguments are unchecked by unevaluatedItems" in lines


def test_an_unknown_outcome_is_called_so(capfd: pytest.CaptureFixture,
                                         monkeypatch: pytest.MonkeyPatch) -> None:
    script = "call fail {\"code\": -32000}\ncall fail {\"code\": -32602}\n"
    _, lines, _ = run(capfd, monkeypatch, script, *tick("facts.py"))
    complaints = [line for line in lines if line.startswith("!")]
    assert complaints == ["! fail: error -32000: as you wish (outcome unknown)",
                          "! fail: error -32602: as you wish"]


def test_a_violation_ends_the_script(capfd: pytest.CaptureFixture,
                                     monkeypatch: pytest.MonkeyPatch) -> None:
    status, lines, err = run(capfd, monkeypatch, "wait 5\nread\nread\n",
                             *tick("wrong.py", "wire.json"))
    assert (status, err) == (1, "")
    assert "← debug: loaded 3 rows" in lines
    assert lines[-1].startswith("the session has ended: wire.json: a line is no JSON")


def test_a_start_that_fails(capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-c", "import os; os.write(2, b'no \\x1b[1mdata\\n'); os._exit(7)"]
    status, lines, err = run(capfd, monkeypatch, "read\n", *command)
    assert status == 1 and err.splitlines() == [
        "ERROR the Tick was not initialised: the Tick ended by itself: exit status 7",
        "  | no data"]


def test_traffic_is_shown_harmlessly(capfd: pytest.CaptureFixture,
                                     monkeypatch: pytest.MonkeyPatch) -> None:
    code = "print('\\x1b]0;x\\x07\\x9b1m\\u202e', flush=True); input(); input()"
    status, lines, err = run(capfd, monkeypatch, "read\n", sys.executable, "-c", code)
    assert status == 1 and all(char.isprintable() for line in lines for char in line)
    assert all(char == "\n" or char.isprintable() for char in err)


@pytest.mark.parametrize("argv", [[], ["--"], ["--bogus", "--", "x"], ["x"]])
def test_usage_errors(argv: list[str], capfd: pytest.CaptureFixture) -> None:
    assert host.host_main(argv) == 2
    out, err = capfd.readouterr()
    assert out == "" and err.startswith("ERROR") and "Traceback" not in err


@pytest.mark.parametrize(("typed", "keys"), [
    ("a\\r", "a\r"), ("\\e[A", "\x1b[A"), ("\\x03\\u4e2d\\\\n", "\x03中\\n"), ("\\t\\n", "\t\n"),
    ("\\q", "\\q"), ("+ +", "+ +"),
])
def test_keys_that_cannot_stand_in_a_line(typed: str, keys: str) -> None:
    got = []
    driver = host.HostDriver(["x"], interactive=False)
    driver.host.type = got.append
    driver.type(typed)
    assert got == [keys]


def converse(dialogue: list[tuple[str, str]], *command: str) -> tuple[int, str]:
    """Drive `tam tick host` on a terminal: wait for each text, then type the answer to it."""
    here, there = os.openpty()
    program = subprocess.Popen([sys.executable, "-c", MAIN, "--", *command], stdin=there,
                               stdout=there, stderr=there, start_new_session=True)
    os.close(there)
    text, seen = "", 0
    try:
        for wanted, typed in dialogue:
            while wanted not in text[seen:]:
                assert select.select([here], [], [], DEADLINE)[0], f"{wanted!r} did not come: {text}"
                text += os.read(here, 65536).decode("utf-8", "replace")
            seen = text.index(wanted, seen) + len(wanted)
            os.write(here, typed.encode())
        status = program.wait(DEADLINE)
    finally:
        program.kill()
        program.wait()
        os.close(here)
    return status, text


def test_a_person_is_asked_before_a_call_that_mutates() -> None:
    status, text = converse([
        ("tick> ", 'call increment {"amount": 5}\n'), ("call it? [y/N] ", "n\n"),
        ("not approved", ""), ("tick> ", 'call increment {"amount": 7}\n'),
        ("Add an integer to the value.", ""), ("call it? [y/N] ", "y\n"), ('{"value": 7}', ""),
        ("tick> ", "call history\n"), ('"result"', ""), ("tick> ", "quit\n"),
    ], *tick("counter.py"))
    assert status == 1  # a command was refused
    assert text.count('"method":"tick/call"') == 2 and '"amount":5},"rev' not in text


def test_the_end_of_input_at_the_question_is_a_no() -> None:
    status, text = converse([
        ("tick> ", 'call increment {"amount": 5}\n'), ("call it? [y/N] ", "\x04"),
        ("not approved", ""), ("tick> ", "quit\n"),
    ], *tick("counter.py"))
    assert status == 1 and "EOFError" not in text


def test_a_person_sees_the_beginning_of_a_long_line(tmp_path: object) -> None:
    program = tmp_path / "tick.py"
    source = (ROOT / "tests" / "ticks" / "note.py").read_text()
    program.write_text(source.replace("Keeps one line", "x" * host.HOST_LINE_SHOWN + "the rest"))
    status, text = converse([("tick> ", "quit\n")], sys.executable, str(program))
    assert status == 0 and "xxx… (4," in text and "the rest" not in text


def test_the_end_of_a_persons_input_ends_it() -> None:
    status, _ = converse([("tick> ", "read\n"), ("← ", ""), ("tick> ", "\x04")], *tick("note.py"))
    assert status == 0


def start(*words: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, *words], text=True, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def spawn(*command: str) -> subprocess.Popen:
    return start("-c", MAIN, "--", *command)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_tick_too(number: int, tmp_path: object) -> None:
    note = f"echo $$ > {tmp_path}/pid; exec \"$@\""
    with spawn("sh", "-c", note, "sh", *tick("counter.py")) as program:
        assert "→" in program.stdout.readline() and "←" in program.stdout.readline()
        pid = int((tmp_path / "pid").read_text())
        program.send_signal(number)
        _, err = program.communicate(timeout=DEADLINE)
        assert program.returncode == 128 + number and err == ""
    assert gone(pid)


def test_ctrl_c_ends_the_tick_too(tmp_path: object) -> None:
    note = f"echo $$ > {tmp_path}/pid; exec \"$@\""
    command = [str(SCRIPT), "tick", "host", "--", "sh", "-c", note, "sh", *tick("counter.py")]
    with start(*command) as program:
        assert "→" in program.stdout.readline() and "←" in program.stdout.readline()
        program.send_signal(signal.SIGINT)
        _, err = program.communicate(timeout=DEADLINE)
        assert program.returncode == 130 and err == ""
    assert gone(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_a_script_is_utf8_in_every_locale(locale: str) -> None:
    script = 'call set_note {"text":"你好"}\ntype 你\n'.encode() + b'call set_note {"text":"\xff"}\n'
    program = subprocess.run(
        [sys.executable, str(SCRIPT), "tick", "host", "--", "env", "LC_ALL=C.UTF-8",
         *tick("note.py")],
        input=script + b"read\xff\ntype \xff\nread\n", capture_output=True, timeout=DEADLINE,
        env={**os.environ, "LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"})
    out = program.stdout.decode("utf-8")
    assert program.returncode == 1 and program.stderr == b""
    assert [line[2:18] for line in out.splitlines() if line.startswith("!")] == [
        "not a JSON value", "there is no comm"]
    assert '"data": {"note": "\\u4f60\\u597d"}' in out.splitlines()[-1]


DEAF = """
import os, signal, sys
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
with open(sys.argv[1], "w") as file:
    file.write(str(os.getpid()))
while True:
    signal.pause()
"""


@pytest.mark.parametrize("word", ["check", "host"])
def test_an_impatient_ctrl_c_leaves_no_tick_behind(tmp_path: object, word: str) -> None:
    """The second one comes while the Tick is being ended, which is deaf to all but SIGKILL."""
    pid = tmp_path / "pid"
    with start(str(SCRIPT), "tick", word, "--", sys.executable, "-c", DEAF, str(pid)) as program:
        assert eventually(lambda: pid.exists() and pid.read_text())
        for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGINT):
            program.send_signal(number)
            time.sleep(0.1)
        _, err = program.communicate(timeout=DEADLINE)
        assert program.returncode == 130 and err == ""
    assert gone(int(pid.read_text()))


def test_a_host_that_is_killed_takes_its_tick_along(tmp_path: object) -> None:
    """The kernel ends the Tick's input and hangs up its terminal."""
    note = f"echo $$ > {tmp_path}/pid; exec \"$@\""
    with spawn("sh", "-c", note, "sh", *tick("counter.py")) as program:
        assert "→" in program.stdout.readline() and "←" in program.stdout.readline()
        program.kill()
        program.communicate(timeout=DEADLINE)
    assert eventually(lambda: gone(int((tmp_path / "pid").read_text())))


def test_a_reader_that_has_seen_enough() -> None:
    with spawn(*tick("note.py")) as program:
        program.stdout.readline()
        program.stdout.close()
        program.stdin.write("read\n" * 50)
        program.stdin.close()
        assert program.wait(DEADLINE) == 0 and program.stderr.read() == ""
