"""Benchmarks: each figure is a ratio against a floor measured in the same run.

    python tests/bench.py            every part
    python tests/bench.py core scale only these parts

Not run by pytest, and nothing here is asserted: a machine's speed is no property of tam. Parts are
core, scale, loop, crowd, drain, mcp and tick. Use a virtual environment whose Python has no start-up
hooks. The aims in the words are those of the project.
"""
from __future__ import annotations

import json
import os
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
row = db.execute("""SELECT id, status FROM task WHERE project_id = 1 AND IFNULL(is_deleted, 0) = 0
  AND status <> 2 AND (assigned_agent IS NULL OR IFNULL(lease_expires_at, 0) <= ?)
  ORDER BY priority, IFNULL(created, ''), id LIMIT 1""", (now,)).fetchone()
db.execute("UPDATE task SET status = 1, assigned_agent = 'a', lease_expires_at = ?,"
           " revision = revision + 1 WHERE id = ?", (now + 900, row[0]))
db.execute("INSERT INTO task_events (task_id, project_id, event, actor, from_status, to_status)"
           " VALUES (?, 1, 'claimed', 'a', ?, 1)", row)
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
    db = sqlite3.connect(path)
    db.execute(
        "INSERT INTO task (title, project_id, priority, created) WITH RECURSIVE n(i) AS"
        " (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) SELECT 'task ' || i, 1, 1 + i % 5,"
        " datetime(1700000000 + i, 'unixepoch') FROM n", (tasks,),
    )
    db.commit()
    db.close()
    return path


def timed(argv: list, env: dict) -> float:
    """Return the seconds that one whole process takes."""
    started = time.perf_counter()
    subprocess.run(argv, env=env, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def alternated(commands: dict, runs: int = RUNS) -> dict:
    """Time (argv, env) pairs in turn, so that a drifting machine meets all alike; return medians."""
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
        imports = "import argparse, fcntl, json, math, random, re, sqlite3, time"
        medians = alternated({
            "floor": ([sys.executable, "-c", FLOOR, path], env),
            "tam": (tam_command("task", "next", "--claim", "--json"), env),
            "interpreter": ([sys.executable, "-c", "pass"], env),
            "imports": ([sys.executable, "-c", imports], env),
            "module": ([sys.executable, "-c", imports + f"; import sys; sys.path.insert(0, {str(ROOT)!r}); import tam"], env),
            "script": ([sys.executable, str(ROOT / "tam.py"), "task", "next", "--claim", "--json"], env),
        })
    for name, seconds in medians.items():
        print(f"  {name:<12}{seconds * 1000:7.1f} ms  {seconds / medians['floor']:5.2f} x floor")


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
            medians = alternated({
                "small": (tam_command(*words), environment(small)),
                "large": (tam_command(*words), environment(large)),
            })
            print(f"  {name:<8}{medians['small'] * 1000:7.1f} ms{medians['large'] * 1000:7.1f} ms"
                  f"  {medians['large'] / medians['small']:5.2f} x")


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
            crowd = [subprocess.Popen(argv, env=environment(home), stdout=subprocess.PIPE, text=True)
                     for _ in range(workers)]
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
            script.write_text(f'#!/bin/sh\nexec {sys.executable} -c "import sys; sys.path.insert(0, \'{ROOT}\');'
                              ' from tam import main; sys.exit(main())" "$@"\n')
            script.chmod(0o755)
            started = time.perf_counter()
            crowd = [subprocess.Popen(["sh", "-c", loop, str(script)], env=environment(home))
                     for _ in range(workers)]
            for process in crowd:
                process.wait()
            rates[workers] = 200 / (time.perf_counter() - started)
    print(f"  1 worker {rates[1]:.0f}/s, 8 workers {rates[8]:.0f}/s, {rates[8] / rates[1]:.2f} x")


PARTS = {
    "core": bench_core, "scale": bench_scale, "loop": bench_loop, "crowd": bench_crowd,
    "drain": bench_drain,
}


def main(names: list) -> None:
    """Run the parts that are named, or all."""
    for name, part in PARTS.items():
        if not names or name in names:
            print(f"{name}: {part.__doc__}", flush=True)
            part()


if __name__ == "__main__":
    main(sys.argv[1:])
