#!/usr/bin/env python3
"""A counter with a view: `+` adds one, `q` quits; every call runs in a thread of its own."""
import json
import os
import select
import signal
import sys
import termios
import threading
import time
import tty

INTEGER = {"type": "integer"}
TOOLS = [
    {"name": "increment", "description": "Add an integer to the value.", "mutates": True,
     "input_schema": {"type": "object", "properties": {"amount": INTEGER}, "required": ["amount"],
                      "additionalProperties": False}},
    {"name": "history", "description": "The last 256 changes.", "mutates": False,
     "input_schema": {"type": "object", "additionalProperties": False}},
    {"name": "nap", "description": "Answer after some milliseconds.", "mutates": False,
     "input_schema": {"type": "object", "required": ["ms"], "additionalProperties": False,
                      "properties": {"ms": {"type": "integer", "minimum": 0}}}},
]
CATALOGUE = {
    "protocol": 3, "kind": "example.counter", "title": "Counter", "revision": "1", "tools": TOOLS,
    "description": "Keys and calls share one value.", "recover_with": "history",
    "state": {"series": [{"path": "/recent", "newest": "last"}]},
}
lock = threading.RLock()
changes = []
sizes = []


class Refusal(Exception):
    """An error answer: code, message."""


def write(message):
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def state():
    with lock:
        value = changes[-1]["value"] if changes else 0
        return {"seq": len(changes), "data": {"value": value, "recent": changes[-5:]}}


def add(amount):
    with lock:
        changes.append({"seq": len(changes) + 1, "value": state()["data"]["value"] + amount})
        draw()
        write({"method": "tick/update", "params": state()})
        return {"value": changes[-1]["value"]}


def call(params):
    tool, args = params.get("tool"), params.get("args")
    if params.get("revision") != CATALOGUE["revision"]:
        raise Refusal(-32004, "describe again")
    if tool not in ("increment", "history", "nap") or not isinstance(args, dict):
        raise Refusal(-32602, "no such tool")
    wanted = {"increment": ["amount"], "history": [], "nap": ["ms"]}[tool]
    if sorted(args) != wanted or any(type(value) is not int for value in args.values()):
        raise Refusal(-32602, f"{tool} takes {wanted}")
    if tool == "increment":
        return add(args["amount"])
    if tool == "nap":
        time.sleep(args["ms"] / 1000)
        return {"slept": args["ms"]}
    with lock:
        return changes[-256:]


def carry_out(request):
    try:
        write({"id": request["id"], "result": call(request.get("params") or {})})
    except Refusal as refusal:
        code, message = refusal.args
        write({"id": request["id"], "error": {"code": code, "message": message}})


def take(line):
    try:
        request = json.loads(line)
    except ValueError:
        return
    if not isinstance(request, dict) or type(request.get("id")) is not int:
        return
    if request.get("method") == "tick/describe":
        write({"id": request["id"], "result": CATALOGUE})
    elif request.get("method") == "tick/read":
        write({"id": request["id"], "result": state()})
    elif request.get("method") == "tick/call":
        threading.Thread(target=carry_out, args=(request,)).start()
    else:
        write({"id": request["id"], "error": {"code": -32601, "message": "no such method"}})


def draw(*_):
    with lock:
        size = os.get_terminal_size(terminal)
        sizes.append(size)
        text = f"\x1b[H\x1b[2J计数器 Counter\x1b[3;5H\x1b[1m{state()['data']['value']}\x1b[0m" \
               f"\x1b[{size.lines};1H{size.columns}x{size.lines} + adds, q quits"
        os.write(terminal, text.encode())


def serve_keys():
    while True:
        key = os.read(terminal, 1)
        if key == b"+":
            add(1)
        elif key in (b"q", b"\x03", b""):
            os.kill(os.getpid(), signal.SIGTERM)


def leave(*_):
    termios.tcsetattr(terminal, termios.TCSADRAIN, before)
    os.write(terminal, b"\x1b[?1049l")
    os._exit(0)


terminal = os.open("/dev/tty", os.O_RDWR)
before = termios.tcgetattr(terminal)
signal.signal(signal.SIGTERM, leave)
signal.signal(signal.SIGWINCH, draw)
tty.setcbreak(terminal)
os.write(terminal, b"\x1b[?1049h")
draw()
threading.Thread(target=serve_keys, daemon=True).start()
waiting = b""
while True:
    chunk = os.read(0, 65536) if select.select([0], [], [])[0] else b""
    if not chunk:
        break
    *lines, waiting = (waiting + chunk).split(b"\n")
    for one in lines:
        take(one)
for thread in threading.enumerate():
    if thread is not threading.current_thread() and not thread.daemon:
        thread.join()
leave()
