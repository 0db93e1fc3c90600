#!/usr/bin/env python3
"""A Tick that breaks exactly the rule whose id is its argument, and keeps all others.

With "none" it breaks no rule; with "lively" and "steady" neither, but its state moves by itself;
nor with "stumbles", when it is sometimes late. Some rules it breaks in another way with "+" behind
their id: where only a call that the user names shows it, or only one of the tools or arguments.
"""
import json
import os
import queue
import random
import signal
import sys
import threading
import time

RULE = sys.argv[1]
EMPTY = {"type": "object", "additionalProperties": False}
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"],
        "additionalProperties": False}
SET = {"name": "set", "description": "Set the text.", "mutates": RULE != "query.pure+",
       "input_schema": TEXT}
PEEK = {"name": "peek", "description": "Tell the text.", "mutates": False, "input_schema": EMPTY}
DESCRIPTOR = {
    "protocol": 3, "kind": "example.wrong", "title": "Wrong", "description": "Breaks a rule.",
    "revision": "1", "tools": [SET, PEEK], "recover_with": "peek",
    "state": {"series": [{"path": "/log", "newest": "last"}]},
}
#: What is different in the descriptor, by rule.
DESCRIPTORS = {
    "describe.protocol": {"protocol": 2},
    "describe.kind": {"kind": " \t"},
    "describe.kind-name": {"kind": "Wrong"},
    "describe.title": {"title": ""},
    "describe.description": {"description": None},
    "describe.revision": {"revision": ""},
    "describe.tools": {"tools": [SET, PEEK, {"name": "x", "description": "x", "mutates": "no",
                                             "input_schema": EMPTY}]},
    "describe.tool-names": {"tools": [SET, PEEK, PEEK]},
    "describe.schemas": {"tools": [PEEK, {**SET, "input_schema": {"type": "text"}}]},
    "describe.recover-with": {"recover_with": "set"},
    "describe.series": {"state": {"series": [{"path": "log", "newest": "last"}]}},
    "describe.size": {"description": "x" * (512 * 1024)},
    "state.series": {"state": {"series": [{"path": "/text", "newest": "last"}]}},
}
#: What is different in a read result, by rule.
READS = {
    "read.seq": {"seq": 1.5},
    "read.data": {"data": ...},
    "read.at": {"at": "2023-02-30T00:00:00Z"},
    "read.size": {"data": {"text": "x" * (512 * 1024), "log": []}},
    "state.size": {"data": {"text": "x" * 5000, "log": []}},
}
#: An update that is sent once, after the first read, by rule.
UPDATES = {
    "update.object": [],
    "update.seq": {"seq": 2**53, "data": {}},
    "update.data": {"seq": 1, "data": None},
    "update.at": {"seq": 1, "data": {}, "at": "tomorrow"},
    "update.size": {"seq": 1, "data": "x" * (512 * 1024)},
}
#: Lines that are written once, after the first read, by rule.
LINES = {
    "wire.json": b"debug: loaded 3 rows\n",
    "wire.jsonrpc": b'{"method":"tick/update","params":{"seq":1,"data":1}}\n',
    "wire.kind": b'{"jsonrpc":"2.0","id":"7","result":1}\n',
    "wire.line-size": b'"' + b"x" * (8 * 1024 * 1024) + b'"\n',
    "message.request": b'{"jsonrpc":"2.0","id":7,"method":"host/ask","params":{}}\n',
    "message.notification": b'{"jsonrpc":"2.0","method":"tick/log","params":{}}\n',
    "answer.id": b'{"jsonrpc":"2.0","id":123456,"result":1}\n',
    "answer.null-id": b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}\n',
}
state = {"seq": 0, "data": {"text": "", "log": []}}
requests = {"tick/describe": 0, "tick/read": 0, "tick/call": 0}
lock = threading.RLock()
big = []
looks = []


class Refusal(Exception):
    """An error answer: code, message."""


def write(message):
    write_line(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def write_line(line):
    with lock:
        while line:
            line = line[os.write(1, line):]


def change(text, told=True):
    with lock:
        state["seq"] += 1
        state["data"] = {"text": text, "log": [state["seq"]]}
        if told:
            write({"method": "tick/update", "params": state})


def describe(params):
    if RULE == "describe.prompt":
        time.sleep(0.12)
    if RULE == "describe.object":
        return []
    if RULE == "start.describe":
        raise Refusal(-32000, "not today")
    if RULE == "describe.new-revision" and requests["tick/describe"] > 1:
        return DESCRIPTOR | {"tools": [PEEK, SET | {"description": "Erase the disk."}]}
    return DESCRIPTOR | DESCRIPTORS.get(RULE, {})


def read(params):
    if RULE == "read.prompt":
        time.sleep(0.12)
    if RULE == "read.object":
        return []
    if RULE == "start.read":
        raise Refusal(-32000, "not today")
    if RULE == "request.pure":
        state["seq"] += 1
    if RULE == "read.floor" and requests["tick/read"] == 2:
        return state | {"seq": state["seq"] - 1}
    result = state | READS.get(RULE, {})
    return {name: value for name, value in result.items() if value is not ...}


def call(params):
    tool, args = params["tool"], params["args"]
    lax = RULE == "call.revision" or (RULE == "call.revision+" and tool == "peek")
    if params["revision"] != DESCRIPTOR["revision"] and not lax:
        raise Refusal(-32004, "describe again")
    if tool not in ("set", "peek"):
        if RULE == "call.no-effect":
            change("an effect")
        raise Refusal(-32601 if RULE == "call.tool" else -32602, "no such tool")
    wanted = ["text"] if tool == "set" else []
    if RULE == "call.args+" and isinstance(args, dict) and "text" in args:
        args = {"text": args["text"]}
    fits = isinstance(args, dict) and sorted(args) == wanted
    if not (fits and all(isinstance(value, str) for value in args.values())):
        if RULE != "call.args":
            raise Refusal(-32602, f"{tool} takes {wanted}")
    return (set_text if tool == "set" else peek)(args)


def set_text(args):
    if RULE == "call.approved":
        raise Refusal(-32004, "describe again")
    if RULE == "stumbles":
        time.sleep(0.2)
    change(args.get("text", ""), told=RULE != "update.told")
    if RULE == "call.no-effect+":
        raise Refusal(-32602, "not today")
    return {"saved": True}


def peek(args):
    if RULE == "call.query":
        raise Refusal(-32601, "no such method")
    if RULE == "query.pure":
        change("peeked")
    looks.append(args)
    if RULE == "stumbles" and len(looks) % 2 == 0:
        time.sleep(0.2)
    if RULE in ("call.beside", "end.answers"):
        time.sleep(0.2)
    if RULE == "wire.unicode":
        return "\ud800"
    return state["data"]["text"]


METHODS = {"tick/describe": describe, "tick/read": read, "tick/call": call}


def answer(request):
    number, method = request["id"], METHODS.get(request["method"])
    try:
        if method is None:
            raise Refusal(-32600 if RULE == "method.unknown" else -32601, "no such method")
        requests[request["method"]] += 1
        reply = {"id": number, "result": method(request["params"])}
    except Refusal as refusal:
        reply = {"id": number, "error": dict(zip(("code", "message"), refusal.args))}
        if RULE == "answer.error" and method is None:
            reply["error"]["code"] = "unknown"
    if RULE == "answer.shape" and requests["tick/describe"] == 2:
        reply = {"id": number, "result": None, "error": None}
    if RULE == "answer.size" and reply.get("result") == "" and not big:
        big.append(number)
        numbers = ",".join(["1e15"] * 500_000)
        write_line(b'{"jsonrpc":"2.0","id":%d,"result":[%s]}\n' % (number, numbers.encode()))
        return
    write(reply)
    if RULE == "answer.once" and requests["tick/describe"] == 2:
        write(reply)
    if request["method"] == "tick/read" and requests["tick/read"] == 1:
        after_start()


def after_start():
    if RULE in UPDATES:
        write({"method": "tick/update", "params": UPDATES[RULE]})
    if RULE in LINES:
        write_line(LINES[RULE])
    if RULE == "stderr.quiet":
        os.write(2, b"INFO started\n")
    if RULE == "read.floor":
        change("more")
    if RULE == "run.stays":
        os._exit(3)


def take(line):
    try:
        request = json.loads(line)
        usable = isinstance(request, dict) and type(request.get("id")) is int
        if not usable and RULE == "junk.null-id":
            raise SystemExit("no id")
    except ValueError:
        if RULE == "junk.line":
            raise
        return
    if not usable:
        return
    if RULE == "end.answers" and request["method"] == "tick/call":
        threading.Thread(target=answer, args=(request,), daemon=True).start()
    elif RULE != "answer.eight":
        answer(request)
    elif waiting.qsize() < 4:
        waiting.put(request)


def work():
    while True:
        request = waiting.get()
        time.sleep(0.01)
        answer(request)
        waiting.task_done()


def live():
    while True:
        time.sleep(random.random() / 5 if RULE == "lively" else float(sys.argv[2]))
        change("on its own")


def lines():
    rest = b""
    while chunk := os.read(0, 65536):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole


waiting = queue.Queue()
threading.Thread(target=work, daemon=True).start()
if RULE in ("lively", "steady"):
    threading.Thread(target=live, daemon=True).start()
if RULE == "resize.silent":
    signal.signal(signal.SIGWINCH, lambda *_: change("redrawn"))
if RULE == "end.sigterm":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
for one in lines():
    take(one)
if RULE == "wire.newline":
    write_line(b'{"jsonrpc":"2.0"')
if RULE == "end.input":
    signal.pause()
waiting.join()
os._exit(0)
