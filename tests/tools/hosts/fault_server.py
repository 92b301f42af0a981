"""An MCP server, of the standard library alone, whose tools are the faults.

python fault_server.py          over stdio
python fault_server.py --http   over HTTP: its first line is the port
"""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from faults import FAULTS

TOOLS = [
    {"name": name, "description": name, "inputSchema": {"type": "object", "properties": {}}}
    for name in (*FAULTS, "fine")
]


def called(name: str) -> dict[str, Any]:
    """Return the result of a call, as a server written without care does."""
    if name == "returns_late":
        time.sleep(2.6)
    try:
        value = "fine" if name == "fine" else FAULTS[name]()
        text = value if isinstance(value, str) else json.dumps(value)
    except BaseException as error:  # noqa: BLE001  servers answer with it
        try:
            text = f"{type(error).__name__}: {error}"
        except RuntimeError:
            text = type(error).__name__
        return {"content": [{"type": "text", "text": text}], "isError": True}
    return {"content": [{"type": "text", "text": text}]}


def answered(message: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a request."""
    method, params = message["method"], message.get("params", {})
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    if method == "initialize":
        info = {"name": "faults", "version": "1"}
        version = params["protocolVersion"]
        return answer | {
            "result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        }
    if method == "tools/list":
        return answer | {"result": {"tools": TOOLS}}
    if method == "tools/call":
        return answer | {"result": called(params["name"])}
    return answer | {"error": {"code": -32601, "message": "no such method"}}


class Handler(BaseHTTPRequestHandler):
    """One request over HTTP."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps(answered(message)).encode() if "id" in message and "method" in message else b""
        self.send_response(200 if body else 202)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.send_response(405)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_DELETE = do_GET  # noqa: N815

    def log_message(self, *args: Any) -> None:
        pass


if __name__ == "__main__":
    if "--http" in sys.argv:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        print(server.server_address[1], flush=True)
        server.serve_forever()
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            print(json.dumps(answered(message)), flush=True)
