#!/usr/bin/env python3
"""The least that conforms: one line of text, one tool that replaces it, no view, no threads."""
import json
import sys

CATALOGUE = {
    "protocol": 3, "kind": "example.note", "title": "Note", "description": "Keeps one line of text.",
    "revision": "1",
    "tools": [{
        "name": "set_note", "description": "Replace the text.", "mutates": True,
        "input_schema": {"type": "object", "properties": {"text": {"type": "string"}},
                         "required": ["text"], "additionalProperties": False},
    }],
}
state = {"seq": 0, "data": None}


class Refusal(Exception):
    """An error answer: code, message."""


def write(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def call(params):
    if params.get("revision") != CATALOGUE["revision"]:
        raise Refusal(-32004, "the catalogue is another one by now")
    args = params.get("args")
    if params.get("tool") != "set_note":
        raise Refusal(-32602, "there is only set_note")
    if not isinstance(args, dict) or set(args) != {"text"} or not isinstance(args["text"], str):
        raise Refusal(-32602, "set_note takes text, a string, and nothing else")
    state.update(seq=state["seq"] + 1, data={"note": args["text"]})
    write({"method": "tick/update", "params": state})
    return {"saved": True}


METHODS = {"tick/describe": lambda params: CATALOGUE, "tick/read": lambda params: state,
           "tick/call": call}


def answer(line):
    try:
        request = json.loads(line)
    except ValueError:
        return
    if not isinstance(request, dict) or type(request.get("id")) is not int:
        return
    try:
        method = METHODS.get(request.get("method"))
        if method is None:
            raise Refusal(-32601, "no such method")
        write({"id": request["id"], "result": method(request.get("params") or {})})
    except Refusal as refusal:
        code, message = refusal.args
        write({"id": request["id"], "error": {"code": code, "message": message}})


for line in sys.stdin:
    answer(line)
