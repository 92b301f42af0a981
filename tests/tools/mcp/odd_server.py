"""An MCP server of the standard library alone that answers each call with a text that the call itself brings.

    python odd_server.py

The argument `result` stands in the answer as it is, valid JSON or not.
"""

import json
import sys

SCHEMA = {"type": "object", "properties": {"result": {"type": "string"}}}
RESULTS = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "odd", "version": "1"},
    },
    "tools/list": {"tools": [{"name": "say", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}}]},
}

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    result = json.dumps(RESULTS.get(message["method"], {}))
    if message["method"] == "tools/call":
        result = message["params"]["arguments"]["result"]
    print(f'{{"jsonrpc": "2.0", "id": {json.dumps(message["id"])}, "result": {result}}}', flush=True)
