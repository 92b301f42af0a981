"""Tools of MCP servers: child processes over stdio, and servers over streamable HTTP.

Theory of operation. An `MCPServer` is a declaration. A driver process makes one `ServerConnection` of it, which keeps
at most one live server. The supervisor task of a live server enters and leaves the transport and the session of the
`mcp` package. All of this runs in one event loop in a thread of its own. So parsing a server's messages does not block
the loops that drive tasks, and a broken server breaks only its own connection.

    MCPServer --connect--> ServerConnection --starts, restarts--> LiveServer --> transport --> the server
        |                        |
        |                        +--lists--> ToolDefinition --compared--> Pins
        +--declares effects-------------------------+----------makes----> MCPTool

Invariants: every wait has a deadline. A server's output is bounded. A tool whose definition differs from the pinned one
is not called until a person approves it. No server process outlives its connection or this process.
"""

from __future__ import annotations

from treadle.tools.mcp.server import MCPServer

__all__ = ["MCPServer"]
