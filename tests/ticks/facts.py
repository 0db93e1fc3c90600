#!/usr/bin/env python3
"""Tells what it finds itself in: arguments, environment, descriptors, process group, terminal.

Its tools `spawn` (a child, in the process group or, with "apart", in another group of the
session) and `count` (how often it was called) serve tests of the host's side.
"""
import json
import os
import stat
import subprocess
import sys

EMPTY = {"type": "object", "additionalProperties": False}
FREE = {"type": "object"}
CATALOGUE = {
    "protocol": 3, "kind": "example.facts", "title": "Facts", "revision": "1", "x-unknown": {},
    "description": "Tells about its surroundings.",
    "tools": [
        {"name": "facts", "description": "The facts.", "mutates": False, "input_schema": EMPTY,
         "x-unknown": 1},
        {"name": "count", "description": "Count calls.", "mutates": True, "input_schema": FREE},
        {"name": "spawn", "description": "Start a child.", "mutates": True, "input_schema": FREE},
        {"name": "fail", "description": "Answer with an error.", "mutates": False,
         "input_schema": {"type": "object", "properties": {"code": {"type": "integer"}}}},
        {"name": "never", "description": "Do not answer.", "mutates": True, "input_schema": FREE},
    ],
}
seq, counted = 0, 0
children = []


def kind_of(descriptor):
    mode = os.fstat(descriptor).st_mode
    return "pipe" if stat.S_ISFIFO(mode) else "terminal" if os.isatty(descriptor) else "other"


def facts():
    terminal = os.open("/dev/tty", os.O_RDWR)
    size = os.get_terminal_size(terminal)
    found = {
        "argv0": open("/proc/self/cmdline", "rb").read().split(b"\0")[0].decode()
        if os.path.exists("/proc/self") else sys.executable,
        "cwd": os.getcwd(), "env": dict(os.environ), "size": [size.columns, size.lines],
        "kinds": [kind_of(number) for number in range(3)],
        "leads": [os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid()],
        "foreground": os.tcgetpgrp(terminal) == os.getpgrp(),
        "same terminal": os.fstat(2).st_rdev == controlling(),
        "descriptors": [number for number in range(3, 64) if number != terminal and open_(number)],
    }
    os.close(terminal)
    return found


def controlling():
    with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
        return int(file.read().rpartition(")")[2].split()[4])


def open_(number):
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def call(tool, args):
    global counted, seq
    if tool == "facts":
        return {"result": facts()}
    if tool == "count":
        counted += 1
        seq += 1
        write({"method": "tick/update", "params": {"seq": seq, "data": {"counted": counted}}})
        return {"result": counted}
    if tool == "spawn":
        code = "import signal,time; signal.signal(1, signal.SIG_IGN); time.sleep(600)"
        child = subprocess.Popen([sys.executable, "-S", "-c", code],
                                 process_group=0 if args.get("apart") else None)
        children.append(child)
        return {"result": child.pid}
    if tool == "fail":
        return {"error": {"code": args.get("code", -32000), "message": "as you wish", "data": [1]}}
    return None


def write(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


for line in sys.stdin:
    request = json.loads(line)
    params = request["params"]
    if request["method"] == "tick/describe":
        answer = {"result": CATALOGUE}
    elif request["method"] == "tick/read":
        answer = {"result": {"seq": seq, "data": {"counted": counted}, "x-unknown": 1}}
    elif request["method"] != "tick/call":
        answer = {"error": {"code": -32601, "message": "no such method"}}
    elif params["revision"] != CATALOGUE["revision"]:
        answer = {"error": {"code": -32004, "message": "describe again"}}
    else:
        answer = call(params["tool"], params["args"])
    if answer is not None:
        write({"id": request["id"], **answer})
