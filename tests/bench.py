"""Benchmarks: each figure is a ratio against a floor measured in the same run.

    python tests/bench.py            every part
    python tests/bench.py core scale only these parts

Not run by pytest, and nothing here is asserted: a machine's speed is no property of tam. Parts are
core, starts, scale, filters, loop, crowd, drain, mcp and tick. Use a virtual environment whose
Python has no start-up hooks. The aims in the words are those of the project.
"""
from __future__ import annotations

import compileall
import itertools
import json
import os
import select
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
import tam  # noqa: E402

RUNS = 40
#: The smallest script that does what `tam task next --claim --json` does to the same file.
FLOOR = r'''
import json, sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA foreign_keys = ON")
db.execute("PRAGMA journal_mode = WAL")
now = int(time.time())
db.execute("BEGIN IMMEDIATE")
row = db.execute(sys.argv[2], {"project": 1, "now": now, "limit": 1}).fetchone()
db.execute("UPDATE task SET status = 1, assigned_agent = 'a', lease_expires_at = ?,"
           " revision = revision + 1 WHERE id = ?", (now + 900, row[0]))
db.execute("INSERT INTO task_events (task_id, project_id, event, actor, from_status, to_status)"
           " VALUES (?, 1, 'claimed', 'a', ?, 1)", (row[0], row[4]))
view = db.execute("SELECT * FROM task WHERE id = ?", row[:1]).fetchone()
db.execute("COMMIT")
print(json.dumps({"ok": True, "data": view}))
db.close()
'''


def environment(home: str) -> dict:
    """Return the environment of a measured process: nothing of the caller's but its PATH."""
    return {"PATH": os.environ["PATH"], "TAM_HOME": home, "TAM_PROJECT": "bench", "TAM_AGENT": "a"}


def fill(home: str, tasks: int) -> str:
    """Make a home with a project of `tasks` tasks; return the database's path."""
    with_tam = tam.Tam(env=environment(home))
    with_tam.call("project.add", {"name": "bench"})
    path = with_tam.config["db_file"]
    with_tam.close()
    query(
        path, "INSERT INTO task (title, project_id, priority, created) WITH RECURSIVE n(i) AS"
        " (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) SELECT 'task ' || i, 1, 1 + i % 5,"
        " datetime(1700000000 + i, 'unixepoch') FROM n LIMIT ?", tasks, tasks,
    )
    return path


def query(path: str, sql: str, *parameters: object) -> None:
    """Run one statement on a database and keep what it changes."""
    db = sqlite3.connect(path)
    with db:
        db.execute(sql, parameters)
    db.close()


def timed(argv: list, env: dict) -> float:
    """Return the seconds that one whole process takes."""
    started = time.perf_counter()
    subprocess.run(argv, env=env, cwd="/", check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def alternated(commands: dict, runs: int = RUNS) -> dict:
    """Time (argv, env) pairs in turn, so that all meet a drifting machine; return the medians."""
    samples: dict = {name: [] for name in commands}
    for number in range(runs + 2):
        for name, (argv, env) in commands.items():
            seconds = timed(argv, env)
            if number >= 2:
                samples[name].append(seconds)
    return {name: statistics.median(values) for name, values in samples.items()}


def tam_command(*words: str) -> list:
    """Return the argv of an installed tam, with the interpreter that runs this benchmark."""
    start = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tam import main; sys.exit(main())"
    return [sys.executable, "-c", start, *words]


def bench_core() -> None:
    """Whole process: `task next --claim --json` against the smallest script (aim 1.25)."""
    with tempfile.TemporaryDirectory() as home:
        path, env = fill(home, 10_000), environment(home)
        imports = "import argparse, fcntl, json, math, re, sqlite3, sys, time"
        module = f"{imports}; sys.path.insert(0, {str(ROOT)!r}); import tam"
        words = ("task", "next", "--claim", "--json")
        medians = alternated({
            "floor": ([sys.executable, "-c", FLOOR, path, tam.NEXT_TASKS], env),
            "tam": (tam_command(*words), env),
            "interpreter": ([sys.executable, "-c", "pass"], env),
            "imports": ([sys.executable, "-c", imports], env),
            "module": ([sys.executable, "-c", module], env),
            "script": ([sys.executable, str(ROOT / "tam.py"), *words], env),
        })
    for name, seconds in medians.items():
        print(f"  {name:<12}{seconds * 1000:7.1f} ms  {seconds / medians['floor']:5.2f} x floor")


def copied(folder: str, bytecode: bool) -> str:
    """Copy the modules into a folder, with or without bytecode beside them; return the folder."""
    for name in ("tam.py", "tam_mcp.py", "tam_tick.py"):
        shutil.copy(ROOT / name, folder)
    if bytecode:
        compileall.compile_dir(folder, quiet=1)
    return folder


def ways(folder: str) -> dict:
    """Return the words by which tam is started, for each way to have it in a folder."""
    warm, cold = (os.path.join(folder, name) for name in ("warm", "cold"))
    for place in (warm, cold):
        os.mkdir(place)
        copied(place, bytecode=place == warm)
    bundle = os.path.join(folder, "tam.pyz")
    subprocess.run([sys.executable, str(ROOT / "tam.py"), "bundle", bundle], check=True,
                   stdout=subprocess.DEVNULL)
    start = "import sys; sys.path.insert(0, {!r}); from tam import main; sys.exit(main())"
    return {
        "installed": [sys.executable, "-c", start.format(warm)],
        "bundle": [sys.executable, bundle],
        "by path": [sys.executable, os.path.join(warm, "tam.py")],
        "python -m tam": [sys.executable, "-m", "tam"],
        "installed, no bytecode": [sys.executable, "-c", start.format(cold)],
        "-m, no bytecode": [sys.executable, "-m", "tam"],
    }


def bench_starts() -> None:
    """`task next --claim --json` as a whole process, by each way to start it, against the floor
    (aims: installed 1.2, bundle 1.6, by path 2.5). The rows without bytecode are what a machine
    with PYTHONDONTWRITEBYTECODE=1 pays each time; the others read what is there."""
    words = ("task", "next", "--claim", "--json")
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as folder:
        path, env = fill(home, 10_000), environment(home) | {"PYTHONDONTWRITEBYTECODE": "1"}
        started = ways(folder)
        commands = {"floor": ([sys.executable, "-c", FLOOR, path, tam.NEXT_TASKS], env)}
        for name, argv in started.items():
            place = "cold" if "no bytecode" in name else "warm"
            commands[name] = ([*argv, *words], env | {"PYTHONPATH": os.path.join(folder, place)})
        medians = alternated(commands)
        counts = {name: modules(argv, env) for name, (argv, env) in commands.items()}
        answers = {name: first_answer([*argv, "mcp"], commands[name][1])
                   for name, argv in started.items()}
    source = (ROOT / "tam.py").read_text("utf-8")
    begun = time.perf_counter()
    compile(source, "tam.py", "exec")
    compiling = time.perf_counter() - begun
    for name, seconds in medians.items():
        answer = f"{answers[name] * 1000:7.1f} ms" if name in answers else " " * 10
        compiled = "by path" in name or "no bytecode" in name
        share = f"{compiling / seconds:4.0%} compiling" if compiled else ""
        print(f"  {name:<24}{seconds * 1000:7.1f} ms {seconds / medians['floor']:5.2f} x floor;"
              f" mcp's first answer {answer}; {counts[name]} modules {share}")


def modules(argv: list, env: dict) -> int:
    """Return how many modules a command imports, those of the interpreter's start included."""
    told = subprocess.run([argv[0], "-X", "importtime", *argv[1:]], env=env, cwd="/", check=True,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True).stderr
    return told.count("import time:") - 1


def bench_scale() -> None:
    """The same commands at 1,000 and at 1,000,000 tasks (aim: at most 1.2 apart)."""
    commands = {
        "next": ("task", "next", "--json"),
        "claim": ("task", "next", "--claim", "--json"),
        "list": ("task", "list", "--limit", "20", "--json"),
        "todo": ("task", "list", "--status", "todo", "--limit", "20", "--json"),
        "add": ("task", "add", "another", "--json"),
        "status": ("status", "--json"),
    }
    with tempfile.TemporaryDirectory() as small, tempfile.TemporaryDirectory() as large:
        fill(small, 1000)
        fill(large, 1_000_000)
        for name, words in commands.items():
            print_growth(name, words, {"small": small, "large": large}, RUNS)


#: Half of the tasks are of one kind and half of another; what is of both kinds, or rare, is few.
TWO_KINDS = """
INSERT INTO task (title, content, project_id, status, assigned_agent, lease_expires_at, priority,
  tags, created) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
  SELECT CASE WHEN i % 2 THEN 'alpha ' ELSE 'beta ' END || i, 'What is to be done, and how.', 1,
    CASE WHEN i % 2 THEN 0 ELSE 2 END, CASE WHEN i % 4 = 1 THEN 'b' WHEN i % 4 = 3 THEN 'c' END,
    4000000000, CASE WHEN i % 2 THEN 1 ELSE 3 END,
    CASE WHEN i % 2 THEN 'red,green' ELSE 'blue' END, datetime(1700000000 + i, 'unixepoch') FROM n
"""
ONE_KIND = {"status": "todo", "assigned": "b", "priority": "1", "tag": "red", "search": "alpha"}
OTHER_KIND = {
    "status": "done", "assigned": "unassigned", "priority": "3", "tag": "blue", "search": "beta",
}
RARE = {"status": "in-progress", "assigned": "d", "priority": "5", "tag": "rare", "search": "zzz"}


def questions() -> dict:
    """Return the flags of every filter and pair, of many tasks and of few, by what to call them."""
    pairs = list(itertools.combinations(ONE_KIND, 2))
    asked = {f"{name}, {much}": {name: kind[name]} for name in ONE_KIND
             for much, kind in (("many", ONE_KIND), ("few", RARE))}
    for one, other in pairs:
        asked[f"{one} + {other}, many"] = {one: ONE_KIND[one], other: ONE_KIND[other]}
        asked[f"{one} + {other}, few"] = {one: ONE_KIND[one], other: OTHER_KIND[other]}
    return {"none": [], **{
        name: [word for flag in flags.items() for word in (f"--{flag[0]}", flag[1])]
        for name, flags in asked.items()
    }}


def bench_filters() -> None:
    """Whole process: every filter and pair at 1,000 and 200,000 tasks (aim 1.3; 3 with search)."""
    sizes = {"small": 1000, "large": 200_000}
    with tempfile.TemporaryDirectory() as small, tempfile.TemporaryDirectory() as large:
        homes = {"small": small, "large": large}
        for name, home in homes.items():
            query(fill(home, 0), TWO_KINDS, sizes[name])
        for name, flags in questions().items():
            for cursor in ([], ["--cursor", "900"]):
                words = ("task", "list", *flags, *cursor, "--json")
                print_growth(name + " after 900" * bool(cursor), words, homes, 10)
        for words in (("task", "next", "--claim"), ("task", "add", "x", "--tag", "red")):
            print_growth(" ".join(words[1:3]), (*words, "--json"), homes, RUNS)


def print_growth(name: str, words: tuple, homes: dict, runs: int) -> None:
    """Print how long a command takes in a small and in a large home."""
    medians = alternated(
        {size: (tam_command(*words), environment(home)) for size, home in homes.items()}, runs
    )
    print(f"  {name:<36}{medians['small'] * 1000:7.1f} ms{medians['large'] * 1000:7.1f} ms"
          f"  {medians['large'] / medians['small']:5.2f} x", flush=True)


def bench_loop() -> None:
    """Claims a second in one process: `Tam.call` against the bare SQL."""
    with tempfile.TemporaryDirectory() as home:
        path = fill(home, 20_000)
        ratios = []
        for _ in range(5):
            bare = bare_claims(path, 400)
            through = tam_claims(home, 400)
            ratios.append((bare, through, bare / through))
        bare, through, ratio = sorted(ratios, key=lambda item: item[2])[2]
    print(f"  bare {bare:8.0f}/s   Tam.call {through:8.0f}/s   {ratio:5.2f} x (median of 5)")


def bare_claims(path: str, count: int) -> float:
    """Return claims a second of a loop of bare SQL on a connection as tam's."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA foreign_keys = ON")
    started = time.perf_counter()
    for _ in range(count):
        now = int(time.time())
        db.execute("BEGIN IMMEDIATE")
        row = db.execute(tam.NEXT_TASKS, {"project": 1, "now": now, "limit": 1}).fetchone()
        db.execute("UPDATE task SET status = 1, assigned_agent = 'a', lease_expires_at = ?,"
                   " revision = revision + 1 WHERE id = ?", (now + 900, row[0]))
        db.execute(tam.ADD_EVENT, (row[0], 1, "claimed", "a", 0, 1, "{}", tam.stored_time(now)))
        db.execute(tam.GET_TASK, (row[0],)).fetchone()
        db.execute("COMMIT")
    seconds = time.perf_counter() - started
    db.close()
    return count / seconds


def tam_claims(home: str, count: int) -> float:
    """Return claims a second through the only way in."""
    with_tam = tam.Tam(env=environment(home))
    with_tam.call("task.next", {})
    started = time.perf_counter()
    for _ in range(count):
        with_tam.call("task.next", {"claim": True})
    seconds = time.perf_counter() - started
    with_tam.close()
    return count / seconds


CLAIMER = r'''
import sys, time
sys.path.insert(0, sys.argv[1])
import tam
with_tam = tam.Tam()
end, waits, errors, ids = time.monotonic() + float(sys.argv[2]), [], 0, []
while time.monotonic() < end:
    started = time.monotonic()
    try:
        ids.append(with_tam.call("task.next", {"claim": True})["task"]["id"])
    except tam.TamError as error:
        errors += 1
    waits.append(time.monotonic() - started)
print(len(waits), errors, max(waits), ",".join(map(str, ids)))
'''


def bench_crowd() -> None:
    """Sixteen processes claim without pause for 10 s (aim: no error, no wait over 1 s)."""
    with tempfile.TemporaryDirectory() as home:
        fill(home, 200_000)
        for workers in (1, 2, 16):
            argv = [sys.executable, "-c", CLAIMER, str(ROOT), "10"]
            options = {"env": environment(home), "stdout": subprocess.PIPE, "text": True}
            crowd = [subprocess.Popen(argv, **options) for _ in range(workers)]
            lines = [process.communicate()[0].split() for process in crowd]
            claimed = [number for line in lines for number in line[3].split(",")]
            print(f"  {workers:2} workers: {len(claimed) / 10:6.0f} claims/s, errors"
                  f" {sum(int(line[1]) for line in lines)}, longest wait"
                  f" {max(float(line[2]) for line in lines) * 1000:.0f} ms, claimed twice"
                  f" {len(claimed) - len(set(claimed))}")


def bench_drain() -> None:
    """Eight command-line workers drain 200 tasks, one process a claim, against one worker."""
    loop = 'while [ "$($0 task next --claim --json | grep -c \'"task":null\')" = 0 ]; do :; done'
    rates = {}
    for workers in (1, 8):
        with tempfile.TemporaryDirectory() as home:
            fill(home, 200)
            script = Path(home, "tam")
            python, _, start = tam_command()
            script.write_text(f'#!/bin/sh\nexec {python} -c "{start}" "$@"\n')
            script.chmod(0o755)
            started = time.perf_counter()
            crowd = [subprocess.Popen(["sh", "-c", loop, str(script)], env=environment(home))
                     for _ in range(workers)]
            for process in crowd:
                process.wait()
            rates[workers] = 200 / (time.perf_counter() - started)
    print(f"  1 worker {rates[1]:.0f}/s, 8 workers {rates[8]:.0f}/s, {rates[8] / rates[1]:.2f} x")


#: Bytes of English and JSON to one token, roughly, for the usual tokenizers.
BYTES_PER_TOKEN = 4
ROUNDS = 400
#: Answers every line with a line of the size of a claim's reply: the pipes' own round trip.
ECHO = "import os\nwhile os.read(0, 65536): os.write(1, b'x' * 600 + b'\\n')"


class Pipe:
    """A process that answers one line with one line."""

    def __init__(self, argv: list, env: dict) -> None:
        self.process = subprocess.Popen(
            argv, env=env, cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self.output = self.process.stdout.fileno()

    def line(self, data: bytes) -> bytes:
        """Send a line; return the answer, without its newline."""
        self.process.stdin.write(data)
        answer = os.read(self.output, 1 << 20)
        while not answer.endswith(b"\n"):
            answer += os.read(self.output, 1 << 20)
        return answer[:-1]

    def ask(self, method: str, params: dict) -> dict:
        """Send a request; return its result."""
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return json.loads(self.line(json.dumps(message).encode() + b"\n"))["result"]

    def call(self, name: str, **arguments: object) -> str:
        """Call a tool; return the text that a model reads."""
        return self.ask("tools/call", {"name": name, "arguments": arguments})["content"][0]["text"]

    def end(self) -> None:
        """Close the process's input and wait for its end."""
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def mcp_server(home: str) -> Pipe:
    """Return a running server that has been opened as Claude Code opens it."""
    start = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import tam; sys.exit(tam.main(['mcp']))"
    server = Pipe([sys.executable, "-c", start], environment(home))
    server.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})
    return server


def bench_mcp() -> None:
    """Bytes that a model reads, and the door's cost for a claim (aim 1.3 x + echo)."""
    with tempfile.TemporaryDirectory() as home:
        fill(home, 20)
        server = mcp_server(home)
        print_list(server)
        print_job(server)
        server.end()
    print_round_trip()


def print_list(server: Pipe) -> None:
    """Print the size of tools/list, per tool and whole (aim: under 6,000 bytes, 1,500 tokens)."""
    result = server.ask("tools/list", {})
    for listed in result["tools"]:
        size = len(tam.encode_json(listed))
        print(f"  {listed['name']:<20}{size:6} bytes{size // BYTES_PER_TOKEN:6} tokens")
    size = len(tam.encode_json(result))
    print(f"  {'tools/list':<20}{size:6} bytes{size // BYTES_PER_TOKEN:6} tokens")


def print_job(server: Pipe) -> None:
    """Print what a model reads for one whole job, with 20 tasks in the project."""
    texts = {"list": server.call("tam_task_list", limit=20)}
    texts["next, claim"] = server.call("tam_task_next", claim=True)
    task = json.loads(texts["next, claim"])["task"]["id"]
    texts["update"] = server.call("tam_task_update", id=task, description="halfway there")
    texts["heartbeat"] = server.call("tam_task_heartbeat", id=task)
    texts["complete"] = server.call("tam_task_complete", id=task)
    sizes = {name: len(text.encode()) for name, text in texts.items()}
    print("  one job: " + ", ".join(f"{name} {size}" for name, size in sizes.items())
          + f": {sum(sizes.values())} bytes, {sum(sizes.values()) // BYTES_PER_TOKEN} tokens")


def print_round_trip() -> None:
    """Print a claim over MCP against the same claim in process, and the pipes' own round trip."""
    message = (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":'
               b'{"name":"tam_task_next","arguments":{"claim":true}}}\n')
    with tempfile.TemporaryDirectory() as near, tempfile.TemporaryDirectory() as far:
        fill(near, 10_000)
        fill(far, 10_000)
        opened = tam.Tam(env=environment(near))
        server, echo = mcp_server(far), Pipe([sys.executable, "-c", ECHO], environment(far))
        medians = in_turn({
            "in process": lambda: opened.call("task.next", {"claim": True}),
            "over MCP": lambda: server.line(message),
            "echo": lambda: echo.line(message),
        })
        server.end()
        echo.end()
        opened.close()
    inside, outside, pipe = medians.values()
    print(f"  claim: in process {inside * 1e6:.0f} us, over MCP {outside * 1e6:.0f} us, echo"
          f" {pipe * 1e6:.0f} us; MCP less echo = {(outside - pipe) / inside:.2f} x in process")


def in_turn(actions: dict) -> dict:
    """Time actions one after the other, many times; return the medians in seconds."""
    samples: dict = {name: [] for name in actions}
    for _ in range(ROUNDS):
        for name, action in actions.items():
            started = time.perf_counter()
            action()
            samples[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) for name, values in samples.items()}


def first_answer(argv: list, env: dict) -> float:
    """Return the median seconds of ten starts of `tam mcp`, up to its first answer."""
    times = []
    for _ in range(10):
        started = time.perf_counter()
        server = Pipe(argv, env)
        server.ask("initialize", {"protocolVersion": "2025-11-25"})
        times.append(time.perf_counter() - started)
        server.end()
    return statistics.median(times)


LINE_ECHO = r"""
import os, sys
line = sys.argv[1].encode() + b"\n"
while data := os.read(0, 65536):
    os.write(1, line * data.count(b"\n"))
"""


class Piped:
    """A process to which lines go and from which lines come; without a terminal."""

    def __init__(self, argv: list, env: dict) -> None:
        self.process = subprocess.Popen(
            argv, env={**env, "TICKLOOP_INSTANCE_ID": "bench"}, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, bufsize=0, start_new_session=True,
        )
        self.lines: list[bytes] = []
        self._partial = b""

    def send(self, line: bytes) -> None:
        os.write(self.process.stdin.fileno(), line + b"\n")

    def receive(self, wanted: bytes, seconds: float = 30.0) -> bytes:
        """Return the next line that begins with `wanted`; lines before it are dropped."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            while self.lines:
                line = self.lines.pop(0)
                if line.startswith(wanted):
                    return line
            if select.select([self.process.stdout], [], [], 0.5)[0]:
                *whole, self._partial = (self._partial + os.read(
                    self.process.stdout.fileno(), 65536)).split(b"\n")
                self.lines += whole
        raise TimeoutError(wanted)

    def round_trips(self, request: bytes, count: int) -> float:
        """Return the median seconds from a request to its answer."""
        samples = []
        for _ in range(count):
            started = time.perf_counter()
            self.send(request)
            self.receive(b'{"jsonrpc":"2.0","id":1,')
            samples.append(time.perf_counter() - started)
        return statistics.median(samples)

    def processor_seconds(self) -> float:
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def tick_process(home: str) -> Piped:
    start = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tam import main; sys.exit(main())"
    return Piped([sys.executable, "-c", start, "tick"], environment(home))


def request_of(method: str, **params: object) -> bytes:
    return tam.encode_json({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})


def bench_tick() -> None:
    """A Tick's round trips against an echo of the same bytes and the same work in process."""
    with tempfile.TemporaryDirectory() as home:
        fill(home, 1000)
        tick = tick_process(home)
        tick.send(request_of("tick/describe"))
        described = json.loads(tick.receive(b'{"jsonrpc":"2.0","id":1,'))["result"]
        bench_tick_read(tick)
        bench_tick_claim(tick, home, described["revision"])
        bench_tick_foreign(tick, home)
        bench_tick_idle(tick)
        tick.close()


def echo_of(line: bytes) -> Piped:
    return Piped([sys.executable, "-c", LINE_ECHO, line.decode()], {"PATH": os.environ["PATH"]})


def bench_tick_read(tick: Piped, count: int = 2000) -> None:
    request = request_of("tick/read")
    tick.send(request)
    echo = echo_of(tick.receive(b'{"jsonrpc":"2.0","id":1,'))
    tick.round_trips(request, 200)
    floor = statistics.median(echo.round_trips(request, count // 4) for _ in range(3))
    spent = statistics.median(tick.round_trips(request, count // 4) for _ in range(3))
    echo.close()
    print(f"tick/read: {spent * 1e6:.0f} us, {spent / floor:.2f} times an echo ({floor * 1e6:.0f} us)")


def bench_tick_claim(tick: Piped, home: str, revision: str, count: int = 150) -> None:
    """Claims over the wire, in process, and an echo of the same bytes, in turn."""
    arguments = {"claim": True, "agent": "a"}
    request = request_of("tick/call", tool="task_next", args=arguments, revision=revision)
    tick.send(request)
    echo = echo_of(tick.receive(b'{"jsonrpc":"2.0","id":1,'))
    inside = tam.Tam(env=environment(home))
    samples: dict = {"tick": [], "inside": [], "echo": []}
    for _ in range(count):
        samples["tick"].append(tick.round_trips(request, 1))
        started = time.perf_counter()
        inside.call("task.next", arguments)
        samples["inside"].append(time.perf_counter() - started)
        samples["echo"].append(echo.round_trips(request, 1))
    echo.close()
    inside.close()
    spent, floor, piped = (statistics.median(samples[name]) for name in samples)
    print(f"claiming tick/call: {spent * 1e6:.0f} us, {spent / (floor + piped):.2f} times the same"
          f" in process ({floor * 1e6:.0f} us) plus an echo ({piped * 1e6:.0f} us)")


def bench_tick_foreign(tick: Piped, home: str, count: int = 200) -> None:
    """The time from another process's commit to the update on the wire."""
    other = tam.Tam(env=environment(home))
    delays = []
    for number in range(count):
        time.sleep(0.01 * (number % 13))  # so that commits meet every phase of the looking
        title = f"foreign {number}"
        task_id = other.call("task.add", {"title": title})["task"]["id"]
        started = time.perf_counter()
        while b'"task_id":%d,' % task_id not in tick.receive(b'{"jsonrpc":"2.0","method"'):
            pass
        delays.append(time.perf_counter() - started)
    other.close()
    delays.sort()
    print(f"foreign commit to update: p50 {delays[count // 2] * 1e3:.0f} ms,"
          f" p99 {delays[count * 99 // 100] * 1e3:.0f} ms (aim: at most 150)")


def bench_tick_idle(tick: Piped, seconds: float = 30.0) -> None:
    before = tick.processor_seconds()
    time.sleep(seconds)
    spent = tick.processor_seconds() - before
    print(f"idle Tick: {spent * 1e3:.0f} ms of processor time in {seconds:.0f} s"
          f" ({spent / seconds:.2%})")


PARTS = {
    "core": bench_core, "starts": bench_starts, "scale": bench_scale, "filters": bench_filters,
    "loop": bench_loop, "crowd": bench_crowd, "drain": bench_drain, "mcp": bench_mcp,
    "tick": bench_tick,
}


def main(names: list) -> None:
    """Run the parts that are named, or all."""
    for name, part in PARTS.items():
        if not names or name in names:
            print(f"{name}: {part.__doc__}", flush=True)
            part()


if __name__ == "__main__":
    main(sys.argv[1:])
