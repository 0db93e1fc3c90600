"""`tam tick check`: right Ticks pass without a warning, wrong ones fail the rule they break."""
from __future__ import annotations

import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

import tam
from hosting import ROOT, host, tick

#: Rules that a wrong Tick breaks without ending the session or failing the start.
GOES_ON = {
    "describe.kind-name", "describe.new-revision", "describe.prompt", "read.prompt", "read.floor",
    "state.size", "state.series", "request.pure", "method.unknown", "call.revision", "call.tool",
    "call.args", "call.no-effect", "call.query", "call.approved", "call.beside", "query.pure",
    "answer.eight", "answer.once", "answer.id", "answer.shape", "answer.error", "answer.size",
    "update.told", "resize.silent", "end.answers", "end.input", "end.sigterm", "message.request",
    "message.notification", "wire.unicode", "stderr.quiet",
}
#: Rules by which a Tick comes to its end in another way than the start fails.
OTHERWISE = {
    **dict.fromkeys(("junk.line", "junk.null-id", "run.stays"), "exit"),
    **dict.fromkeys(("update.object", "update.seq", "update.data", "update.at", "update.size",
                     "answer.null-id", "wire.json", "wire.jsonrpc", "wire.kind", "wire.newline",
                     "wire.line-size"), "violation"),
}
#: Rules that are broken by silence, which the check has to wait for.
SILENT = {"answer.eight", "end.answers", "end.input", "end.sigterm"}
BREAKABLE = [rule for rule in host.HOST_RULES if rule.id != "start.run"]


def broken(report: dict) -> list[str]:
    return [row["id"] for row in report["checks"] if row["ok"] is False]


def row(report: dict, rule: str) -> dict:
    return next(row for row in report["checks"] if row["id"] == rule)


@pytest.fixture(scope="module")
def reports() -> dict[str, dict]:
    """The report on wrong.py for every rule, four at a time: a check mostly waits."""
    def check(rule: str) -> dict:
        timeout = 3.0 if rule in SILENT else 30.0
        return host.host_check(tick("wrong.py", rule), [("set", {"text": "x"})], timeout)

    rules = [rule.id for rule in BREAKABLE]
    with ThreadPoolExecutor(4) as pool:
        return dict(zip(rules, pool.map(check, rules)))


@pytest.mark.parametrize("rule", BREAKABLE, ids=lambda rule: rule.id)
def test_a_wrong_tick_fails_exactly_its_rule(rule: object, reports: dict) -> None:
    report = reports[rule.id]
    assert broken(report) == [rule.id], [row for row in report["checks"] if row["ok"] is False]
    outcome = "ok" if rule.id in GOES_ON else OTHERWISE.get(rule.id, "init")
    assert report["outcome"] == outcome
    assert report["conforms"] is (rule.level == "should")
    assert (report["descriptor"] is None) is (outcome == "init")
    assert row(report, rule.id)["detail"] and row(report, rule.id)["section"] == rule.section


@pytest.mark.parametrize("rule", [
    "call.revision", "call.args", "call.no-effect", "query.pure",
])
def test_what_only_one_tool_or_a_named_call_shows_is_seen(rule: str) -> None:
    report = host.host_check(tick("wrong.py", rule + "+"), [("set", {"text": "x"})], 30.0)
    assert broken(report) == [rule] and report["outcome"] == "ok"


@pytest.mark.parametrize("pace", ["0.1", "0.3", "0.36", "0.6", "0.85"])
def test_a_state_that_moves_at_a_steady_pace_is_not_put_down_to_the_check(pace: str) -> None:
    report = host.host_check(tick("wrong.py", "steady", pace), [("set", {"text": "x"})], 30.0)
    assert broken(report) == [] and report["outcome"] == "ok"


def test_a_command_that_does_not_exist() -> None:
    report = host.host_check(["/nowhere/tick"], [], 30.0)
    assert broken(report) == ["start.run"] and report["outcome"] == "init"
    assert report["conforms"] is False and report["descriptor"] is None


RIGHT = [
    (tick("note.py"), []),
    (tick("note.py"), [("set_note", {"text": "你好"})]),
    (tick("counter.py"), [("increment", {"amount": 2}), ("nap", {"ms": 250})]),
    (tick("shell.sh"), []),
    (tick("list.js"), [("add", {"word": "eins"})]),
    (tick("wrong.py", "none"), [("set", {"text": "x"})]),
    (tick("wrong.py", "lively"), [("set", {"text": "x"})]),
    (tick("wrong.py", "stumbles"), [("set", {"text": "x"})]),
]


@pytest.mark.parametrize(("command", "calls"), RIGHT, ids=lambda value: value[1][-10:]
                         if value and isinstance(value[0], str) else None)
def test_a_right_tick_passes_without_a_warning(command: list[str], calls: list) -> None:
    if command[0] == "node" and shutil.which("node") is None:
        pytest.skip("node is not installed, so the Tick in JavaScript cannot run")
    report = host.host_check(command, calls, 30.0)
    assert broken(report) == [] and report["conforms"] and report["outcome"] == "ok"
    assert report["descriptor"]["protocol"] == 3
    if calls:
        untried = [row["id"] for row in report["checks"] if row["ok"] is None]
        assert set(untried) <= {"state.series", "call.query", "query.pure", "update.told"}


@pytest.mark.skipif(not (ROOT / "tam_tick.py").exists(), reason="tam_tick.py is not there yet")
def test_the_tick_of_tam_itself_passes_in_a_project_with_a_thousand_tasks(
        scratch_home: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    store = tam.Tam(project="big", agent="agent-a")
    store.call("project.add", {"name": "big"})
    for number in range(1000):
        store.call("task.add", {"title": f"任务 {number} " + "长" * 60, "project": "big"})
    store.close()
    monkeypatch.setenv("TAM_PROJECT", "big")
    calls = [("task_create", {"title": "from the check"})]
    report = host.host_check([sys.executable, "-m", "tam", "tick"], calls, 30.0)
    assert broken(report) == [] and report["conforms"] and report["outcome"] == "ok"


def test_nothing_that_mutates_is_called_without_approval() -> None:
    report = host.host_check(tick("wrong.py", "call.revision"), [], 30.0)
    assert broken(report) == ["call.revision"]
    for rule in ("none", "call.args"):
        silent = host.host_check(tick("wrong.py", rule), [], 30.0)
        assert row(silent, "call.approved")["ok"] is None
        assert row(silent, "update.seq")["detail"] == "no updates were seen"


@pytest.mark.parametrize(("calls", "why"), [
    ([("set", {"text": 5}), ("nothing", {})], "set was not called: args/text must be a string; "
                                              "found 5"),
    ([("set", {"text": "x"}), ("nothing", {})], "nothing was not called: the catalogue has no "
                                                "such tool"),
])
def test_a_call_that_cannot_be_sent_fails_the_check_and_says_why(calls: list, why: str) -> None:
    report = host.host_check(tick("wrong.py", "none"), calls, 30.0)
    assert report["conforms"] is False and report["outcome"] == "ok"
    assert broken(report) == ["call.approved"]
    assert row(report, "call.approved") | {"rule": ""} == {
        "id": "call.approved", "section": "7.2", "level": "must", "rule": "", "ok": False,
        "detail": f"{why}; mend the --call, or the catalogue"}


def test_schema_words_that_are_not_checked_are_named(tmp_path: object) -> None:
    program = tmp_path / "tick.py"
    source = (ROOT / "tests" / "ticks" / "note.py").read_text()
    program.write_text(source.replace('"type": "object", "properties"',
                                      '"unevaluatedProperties": false, "properties"')
                       .replace("false", "False"))
    report = host.host_check([sys.executable, str(program)], [], 30.0)
    assert report["conforms"]
    assert row(report, "describe.schemas")["ok"] is None
    assert "set_note: unevaluatedProperties" in row(report, "describe.schemas")["detail"]


def test_a_pattern_beyond_the_validator_is_unchecked_and_the_tick_conforms(
        tmp_path: object) -> None:
    program = tmp_path / "tick.py"
    source = (ROOT / "tests" / "ticks" / "note.py").read_text()
    program.write_text(source.replace('{"type": "string"}',
                                      '{"type": "string", "pattern": "(?<!a*)b|x"}'))
    calls = [("set_note", {"text": "x"})]
    report = host.host_check([sys.executable, str(program)], calls, 30.0)
    assert report["conforms"] and broken(report) == []
    assert row(report, "describe.schemas")["ok"] is None
    assert "unchecked: set_note: pattern" in row(report, "describe.schemas")["detail"]
    assert row(report, "call.approved")["ok"] is True
    assert "unchecked by pattern" in row(report, "call.approved")["detail"]
    assert row(report, "call.args")["ok"] is True, "what can be checked is tried"


@pytest.mark.parametrize(("when", "rule"), [
    ('params == {"tool": "set_note", "args": {"text": "x"}, "revision": "1"}', "call.approved"),
    ('params["tool"] != "set_note" and params["revision"] == "1"', "call.tool"),
])
def test_a_catalogue_that_changes_before_a_call_leaves_the_call_unjudged(
        tmp_path: object, when: str, rule: str) -> None:
    program = tmp_path / "tick.py"
    source = (ROOT / "tests" / "ticks" / "note.py").read_text()
    program.write_text(source.replace("def call(params):\n", f"""def call(params):
    if {when}:
        CATALOGUE.update(revision="2", title="Another note")
"""))
    report = host.host_check([sys.executable, str(program)], [("set_note", {"text": "x"})], 30.0)
    assert report["conforms"] and broken(report) == []
    assert row(report, rule)["ok"] is None
    assert "the catalogue changed meanwhile" in row(report, rule)["detail"]


def test_a_tick_that_starts_only_once_leaves_sigterm_untried(tmp_path: object) -> None:
    once = ["sh", "-c", f'mkdir "{tmp_path}/once" 2>/dev/null && exec "$@"', "sh", *tick("note.py")]
    report = host.host_check(once, [], 30.0)
    assert report["conforms"] and broken(report) == []
    assert row(report, "end.sigterm")["ok"] is None
    assert "a second start failed" in row(report, "end.sigterm")["detail"]


# The command.


def run(capfd: pytest.CaptureFixture, *argv: str) -> tuple[int, str, str]:
    status = host.check_main(list(argv))
    out, err = capfd.readouterr()
    return status, out, err


def test_the_envelope_of_a_right_tick(capfd: pytest.CaptureFixture) -> None:
    status, out, err = run(capfd, "--json", "--call", "set_note", '{"text":"x"}', "--",
                           *tick("note.py"))
    envelope = json.loads(out)
    assert (status, err, out.count("\n")) == (0, "", 1)
    data = envelope.pop("data")
    assert envelope == {"ok": True, "schema": "tam.agent/v1", "command": "tick.check",
                        "meta": {"project": None, "agent": None}}
    assert data.keys() == {"conforms", "outcome", "descriptor", "checks"}
    assert data["conforms"] is True and data["outcome"] == "ok"
    assert [entry["id"] for entry in data["checks"]] == [rule.id for rule in host.HOST_RULES]
    for entry in data["checks"]:
        assert entry.keys() == {"id", "section", "level", "rule", "ok", "detail"}
        assert entry["ok"] in (True, None) and entry["level"] in ("must", "should")


def test_the_envelope_of_a_wrong_tick(capfd: pytest.CaptureFixture) -> None:
    status, out, err = run(capfd, "--json", "--", *tick("wrong.py", "wire.json"))
    envelope = json.loads(out)
    assert (status, err, envelope["ok"]) == (1, "", True)
    assert envelope["data"]["conforms"] is False and envelope["data"]["outcome"] == "violation"


def test_the_report_for_people(capfd: pytest.CaptureFixture) -> None:
    status, out, err = run(capfd, "--", *tick("wrong.py", "wire.json"))
    lines = out.splitlines()
    assert (status, err) == (1, "") and len(lines) == len(host.HOST_RULES) + 1
    bad = next(line for line in lines if line.startswith("✗"))
    assert bad.split()[1:3] == ["wire.json", "§3.6"]
    assert "debug: loaded 3 rows" in bad and "→ write nothing else to standard output" in bad
    assert any(line.startswith("✓ start.run") for line in lines)
    assert any(line.startswith("– junk.line") for line in lines)
    assert lines[-1].startswith("does not conform (outcome violation): ")
    assert ", 1 broken, 0 warnings, " in lines[-1]


def test_a_call_that_cannot_be_sent_is_a_status(capfd: pytest.CaptureFixture) -> None:
    status, out, err = run(capfd, "--call", "no_such_tool", "{}", "--", *tick("note.py"))
    assert (status, err) == (1, "")
    assert "✗ call.approved" in out and "no_such_tool was not called: the catalogue has no" in out


def test_a_warning_for_people(capfd: pytest.CaptureFixture) -> None:
    status, out, _ = run(capfd, "--", *tick("wrong.py", "describe.kind-name"))
    assert status == 0 and "! describe.kind-name" in out and "1 warnings" in out
    assert "→ write it like acme.orderbook" in out


@pytest.mark.parametrize("argv", [
    [], ["--"], ["--json"], ["note.py"], ["--bogus", "--", "x"], ["--call", "set", "--", "x"],
    ["--call", "set", "{", "--", "x"], ["--call", "set", "[]", "--", "x"],
    ["--call", "set", '{"a":"\\ud800"}', "--", "x"], ["--timeout", "soon", "--", "x"],
    ["--timeout", "0", "--", "x"], ["--timeout", "nan", "--", "x"], ["--timeout", "61", "--", "x"],
])
def test_usage_errors(argv: list[str], capfd: pytest.CaptureFixture) -> None:
    status, out, err = run(capfd, *argv)
    assert (status, out) == (2, "") and "Traceback" not in err and err.startswith(
        "{" if argv == ["--json"] else "ERROR")
    status, out, err = run(capfd, "--json", *argv)
    envelope = json.loads(err)
    assert (status, out) == (2, "") and err.count("\n") == 1
    assert envelope["error"]["code"] == "invalid" and envelope["command"] == "tick.check"


def test_options_after_the_command_are_the_ticks() -> None:
    options, command = host.host_split(["--json", "--", "tick", "--", "--json"])
    assert (options, command) == (["--json"], ["tick", "--", "--json"])


HOSTILE = r'''
import json, sys
evil = "\x1b]0;pwned\x07\x9b31m\u202eevil\u2066\r\x00"
tool = {"name": "t" + evil, "description": evil, "mutates": False, "input_schema": {}}
descriptor = {"protocol": 3, "kind": "a.b" + evil, "title": evil, "description": evil,
              "revision": evil, "tools": [tool], "state": {"series": [
                  {"path": "/" + evil, "newest": "last"}]}}
import os
os.write(2, evil.encode())
for line in sys.stdin:
    try: request = json.loads(line)
    except ValueError: continue
    if type(request.get("id")) is not int: continue
    answer = {"error": {"code": -32000, "message": evil}}
    if request["method"] == "tick/describe": answer = {"result": descriptor}
    if request["method"] == "tick/read": answer = {"result": {"seq": 0, "data": evil}}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}), flush=True)
    if request["method"] == "tick/call": print(evil, flush=True)
'''


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_nothing_of_a_tick_reaches_the_terminal_unescaped(
        option: list[str], capfd: pytest.CaptureFixture) -> None:
    status, out, err = run(capfd, *option, "--timeout", "2", "--", sys.executable, "-c", HOSTILE)
    assert status == 1 and err == "" and "evil" in out
    for char in out:
        assert char == "\n" or char.isprintable(), repr(char)
    for char in "\u202e\u2066\x9b":
        assert char not in out


def test_the_help_shows_examples(capfd: pytest.CaptureFixture) -> None:
    for main, word in ((host.check_main, "check"), (host.host_main, "host")):
        with pytest.raises(SystemExit) as leave:
            main(["-h"])
        out = capfd.readouterr().out
        assert leave.value.code == 0 and f"tam tick {word}" in out and "example" in out
