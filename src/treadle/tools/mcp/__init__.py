"""Tools of MCP servers: children that speak over stdio, and servers that speak streamable HTTP.

Theory of operation. An `MCPServer` is a declaration. A driver process makes one `ServerConnection` of it, which keeps
at most one live server: a supervisor task enters the transport and the session of the `mcp` package, and leaves both.
All of that runs in one event loop in a thread of its own, so that what a server sends is parsed beside the loops in
which tasks are driven, and a broken server breaks its own connection.

    MCPServer --connect--> ServerConnection --starts, restarts--> LiveServer --> transport --> the server
        |                        |
        |                        +--lists--> ToolDefinition --compared--> Pins
        +--declares effects-------------------------+----------makes----> MCPTool

Invariants: every wait has a deadline; what a server sends is bounded; a tool whose definition is not the one that was
pinned is not called before a person approved it; no process outlives its connection or this process.
"""

from __future__ import annotations

from treadle.tools.mcp.server import MCPServer

__all__ = ["MCPServer"]
