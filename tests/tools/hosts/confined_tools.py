"""Tools that run in sandboxes: a new process imports this module to find them."""

import socket
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from treadle import tool


@tool(read_only=True)
def inside(read: str = "", write: str = "") -> dict[str, Any]:
    """Read a file, write it again, and tell where this runs."""
    found = Path(read).read_text() if read else ""
    if write:
        Path(write).write_text(found)
    packages = [name for name in ("pydantic", "treadle") if find_spec(name) is not None]
    return {"read": found, "folder": str(Path.cwd()), "packages": packages}


@tool(read_only=True)
def inside_with_network(port: int, name: str) -> list[str]:
    """Connect to a port and to an abstract socket of the machine."""
    with socket.create_connection(("127.0.0.1", port), 5):
        found = ["connected"]
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect("\0" + name)
        found.append("connected")
    except OSError as error:
        found.append(type(error).__name__)
    return found


@tool
def mark(path: str) -> None:
    """Leave a file."""
    Path(path).write_text("ran")


@tool(read_only=True)
def spin() -> None:
    """Never end."""
    while True:
        pass
