"""The golden task whose tools are those of an MCP server, a real program over stdio; it undoes nothing."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import treadle.tools.mcp.live_server  # noqa: F401  imported once, by the process from which trials are forked
from tests.crash.hosts import answer, script
from tests.crash.witness import PAUSES, VARIABLE
from treadle import Agent, MCPServer, ScriptedModel

__all__ = ["script"]

SERVER = Path(__file__).with_name("bank_server.py")

EFFECTS = {"look": ["read_only"], "book": ["idempotent"]}


def bank(**declared: Any) -> MCPServer:
    """Declare the server; its file of effects is that of this process."""
    return MCPServer(
        "bank",
        command=sys.executable,
        args=["-S", "-E", str(SERVER)],
        env={name: os.environ[name] for name in (VARIABLE, PAUSES) if name in os.environ},
        pins=None,
        resources=False,
        prompts=False,
        protocol="legacy",
        start_timeout=60,
        **{"effects": EFFECTS, **declared},
    )


def __getattr__(name: str) -> Agent[None]:
    """Make an agent when it is asked for: a module that trials are forked from knows no file of effects yet."""
    declared: dict[str, Any] = {"lying": {"effects": {**EFFECTS, "pay": ["idempotent"]}}, "served": {}}
    if name not in declared:
        raise AttributeError(name)
    return Agent(
        ScriptedModel(partial(answer, server="bank__")), name="golden", tools=[bank(**declared[name])]
    )
