"""An MCP server of the standard library alone: each call leaves a line with its idempotency key in the file EFFECTS.

With PAUSES it waits up to so many seconds before the line, and again after it, so that a kill hits it there.
"""

import json
import os
import random
import sys
import time

OBJECT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TOOLS = [{"name": name, "inputSchema": OBJECT} for name in ("look", "book", "pay")]
PAUSES = float(os.environ.get("PAUSES", "0"))


def call(params: dict) -> dict:
    name, key = params["name"], params["_meta"]["treadle/idempotencyKey"]
    time.sleep(random.random() * PAUSES)
    file = os.open(os.environ["EFFECTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{name} {key}\n".encode())
    os.close(file)
    time.sleep(random.random() * PAUSES)
    return {"content": [{"type": "text", "text": f"{name} done"}]}


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    params = message.get("params", {})
    result = {
        "initialize": lambda params=params: {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "bank", "version": "1"},
        },
        "tools/list": lambda: {"tools": TOOLS},
        "tools/call": lambda params=params: call(params),
    }[message["method"]]()
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
