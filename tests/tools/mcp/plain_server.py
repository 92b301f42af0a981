"""An MCP server of the standard library alone, which starts fast: a desk that keeps notes in a file.

    python plain_server.py NOTES [--modern] [--slow SECONDS] [--definition FILE] [--die-in-call] [--noise] [--library]

Each call of `add_note` appends a line to the file NOTES: the evidence of what was carried out. `--definition` names a
JSON file whose fields replace those of the definition of `add_note`, read at each listing. `--die-in-call` ends the
process after the line was written and before the answer; with `--noise` much is logged before that. `environment`
logs a line. `--library` adds resources and prompts. `book` asks a person.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("notes", type=Path)
parser.add_argument("--modern", action="store_true")
parser.add_argument("--slow", type=float, default=0.0)
parser.add_argument("--definition", type=Path)
parser.add_argument("--die-in-call", action="store_true")
parser.add_argument("--noise", action="store_true")
parser.add_argument("--library", action="store_true")
options = parser.parse_args()

TEXT = {"type": "string"}
TOOLS = [
    {
        "name": "add_note",
        "description": "Add a note.",
        "inputSchema": {"type": "object", "properties": {"text": TEXT}, "required": ["text"]},
        "annotations": {"readOnlyHint": False, "idempotentHint": False},
    },
    {
        "name": "read_notes",
        "description": "Return all notes.",
        "inputSchema": {"type": "object", "properties": {}},
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": "environment",
        "description": "",
        "inputSchema": {"type": "object", "properties": {"name": TEXT}},
    },
    {"name": "fail", "description": "Fails.", "inputSchema": {"type": "object", "properties": {}}},
    {
        "name": "wish",
        "description": "Asks.",
        "inputSchema": {"type": "object", "properties": {"method": TEXT}},
    },
    {"name": "book", "description": "Books.", "inputSchema": {"type": "object", "properties": {"day": TEXT}}},
]
ASKED = {
    "mode": "form",
    "message": "For how many people?",
    "requestedSchema": {
        "type": "object",
        "properties": {
            "people": {"type": "integer", "description": "How many come"},
            "room": {"type": "string", "enum": ["blue", "red"]},
            "note": {"type": "string"},
        },
        "required": ["people", "room"],
    },
}
SAMPLE = {"messages": [{"role": "user", "content": {"type": "text", "text": "Rhyme."}}], "maxTokens": 9}
WISHES = {"elicitation/create": ASKED, "sampling/createMessage": SAMPLE, "roots/list": {}}
PAGE = {"uri": "note://page/1", "name": "page 1", "mimeType": "text/plain"}
PROMPT = {"name": "greet", "description": "Greets.", "arguments": [{"name": "who", "required": True}]}


def defined():
    tools = json.loads(json.dumps(TOOLS))
    if options.definition is not None and options.definition.exists():
        tools[0].update(json.loads(options.definition.read_text()))
    return tools


def call(name, arguments):
    if name == "add_note":
        time.sleep(options.slow)
        with options.notes.open("a") as file:
            file.write(arguments["text"] + "\n")
        if options.die_in_call:
            if options.noise:
                print("it works on\n" * 2_000, file=sys.stderr)
            print("something broke", file=sys.stderr, flush=True)
            os._exit(3)
        return text("noted")
    if name == "read_notes":
        return text(options.notes.read_text() if options.notes.exists() else "")
    if name == "environment":
        print("this was another call", file=sys.stderr, flush=True)
        return text(os.environ.get(arguments["name"], "-"))
    return {**text("it is broken"), "isError": True}


def asked(method, params):
    """Ask the client for something: as an answer to the call, or in the middle of it."""
    if options.modern:
        if "inputResponses" not in params:
            request = {"method": method, "params": WISHES[method]}
            return {"resultType": "input_required", "inputRequests": {"q": request}, "requestState": "seal"}
        assert params["requestState"] == "seal"
        return text(json.dumps(params["inputResponses"]["q"]))
    print(
        json.dumps({"jsonrpc": "2.0", "id": "q-1", "method": method, "params": WISHES[method]}),
        flush=True,
    )
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("id") == "q-1":
            return text(json.dumps(message.get("result", message.get("error"))))
    return text("gone")


def text(words):
    return {"content": [{"type": "text", "text": words}]}


def read(method, params):
    """Answer what concerns resources and prompts; None for other methods."""
    cached = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    if method == "resources/list":
        return {"resources": [PAGE], **cached}
    if method == "resources/templates/list":
        return {"resourceTemplates": [{"uriTemplate": "note://page/{n}", "name": "pages"}], **cached}
    if method == "resources/read":
        return {"contents": [{"uri": params["uri"], "text": f"what stands in {params['uri']}"}], **cached}
    if method == "prompts/list":
        return {"prompts": [PROMPT], **cached}
    if method == "prompts/get":
        content = {"type": "text", "text": f"Hello {params['arguments']['who']}"}
        return {"messages": [{"role": "user", "content": content}], "resultType": "complete"}
    return None


CAPABILITIES = {"tools": {"listChanged": True}}
if options.library:
    CAPABILITIES |= {"resources": {}, "prompts": {}}


def answered(method, params):
    if options.library and (result := read(method, params)) is not None:
        return result
    if method == "initialize":
        info = {"name": "plain", "version": "1"}
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": CAPABILITIES,
            "serverInfo": info,
        }
    if method == "server/discover" and options.modern:
        known = {"supportedVersions": ["2026-07-28"], "capabilities": CAPABILITIES}
        return {**known, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    if method == "tools/list":
        return {"tools": defined(), "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    if method == "tools/call" and params["name"] == "book":
        return {"resultType": "complete", **asked("elicitation/create", params)}
    if method == "tools/call" and params["name"] == "wish":
        return {"resultType": "complete", **asked(params["arguments"]["method"], params)}
    if method == "tools/call":
        return {**call(params["name"], params.get("arguments", {})), "resultType": "complete"}
    return None


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    result = answered(message["method"], message.get("params", {}))
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    answer |= (
        {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}
    )
    print(json.dumps(answer), flush=True)
