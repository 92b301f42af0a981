"""Servers for the tests: declared with the definitions pinned in a folder of the test."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, MCPServer, ScriptedModel

PLAIN = Path(__file__).with_name("plain_server.py")


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """The file in which a server of the test keeps what it was told."""
    return tmp_path / "notes.txt"


@pytest.fixture
def server(tmp_path: Path, notes: Path) -> Callable[..., MCPServer]:
    """Declare the plain server, with arguments for it and options of the declaration."""

    def declare(*args: str, name: str = "desk", **options: Any) -> MCPServer:
        options = {"pins": tmp_path / "pins", "start_timeout": 30.0, **options}
        return MCPServer(name, command=sys.executable, args=[str(PLAIN), str(notes), *args], **options)

    return declare


@pytest.fixture
def clerk() -> Callable[..., Agent[Any]]:
    """Make an agent that calls what a script says, with these toolsets."""

    def make(script: list[Any], *toolsets: Any, **options: Any) -> Agent[Any]:
        return Agent(ScriptedModel(script), name="clerk", tools=list(toolsets), **options)

    return make
