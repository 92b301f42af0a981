"""Pinned definitions: what the tools of a server were when they were first listed, or approved since."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from treadle.core.data import frozen
from treadle.errors import ConfigurationError
from treadle.tools.mcp.definitions import ToolDefinition

Change = Literal["changed", "new", "gone"]


@frozen
class Comparison:
    """A listing beside the pinned definitions.

    Args:
        tools: the definitions that models see, each with whether its server defines it differently now.
        changes: what is not as it was pinned, by the server's names of tools.
    """

    tools: tuple[tuple[ToolDefinition, bool], ...]
    changes: Mapping[str, Change]


class Pins:
    """The pinned definitions of one server, in a file that people can read, keep with their code, and compare.

    Args:
        server: the name of the server.
        folder: where its file is; None pins for the life of this object alone.

    Raises:
        ConfigurationError: the file cannot be read or written.
    """

    def __init__(self, server: str, folder: Path | None) -> None:
        self._server = server
        self._path = folder / f"{server}.json" if folder is not None else None
        self._held: dict[str, ToolDefinition] | None = None

    def read(self) -> dict[str, ToolDefinition] | None:
        """Return the pinned definitions by name; None if the server was never listed."""
        if self._path is None:
            return self._held
        try:
            document: Any = json.loads(self._path.read_text(encoding="utf-8"))
            tools = cast("dict[str, dict[str, Any]]", document["tools"])
            return {name: ToolDefinition(name, dict(each.items())) for name, each in tools.items()}
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigurationError(
                f"MCP server {self._server!r}: its pinned definitions in {self._path} cannot be read: {error}"
            ) from error

    def pin(self, definitions: Sequence[ToolDefinition], *, first: bool = False) -> None:
        """Pin definitions instead of those that are pinned; with `first`, only if none are."""
        held = {each.name: each for each in definitions}
        if self._path is None:
            if not first or self._held is None:
                self._held = held
            return
        document = {
            "server": self._server,
            "tools": {name: each.definition for name, each in sorted(held.items())},
        }
        new = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            new.write_text(json.dumps(document, indent=1, ensure_ascii=True) + "\n", encoding="utf-8")
            if first:
                try:
                    os.link(
                        new, self._path
                    )  # unlike a rename, it leaves what another process pinned just then
                except FileExistsError:
                    return
                finally:
                    new.unlink()
            else:
                new.replace(self._path)
        except OSError as error:
            raise ConfigurationError(
                f"MCP server {self._server!r}: its definitions cannot be pinned in {self._path}: {error.strerror}; "
                "name another folder with pins=, or pin them for the life of a process with pins=None"
            ) from error

    def compare(self, listed: Sequence[ToolDefinition]) -> Comparison:
        """Return a listing beside the pinned definitions; a first listing is pinned."""
        pinned = self.read()
        if pinned is None:
            self.pin(listed, first=True)
            pinned = self.read() or {}
        now = {each.name: each for each in listed}
        changes: dict[str, Change] = {name: "new" for name in now if name not in pinned}
        tools: list[tuple[ToolDefinition, bool]] = []
        for name, each in pinned.items():
            if name not in now:
                changes[name] = "gone"
                continue
            if now[name].digest != each.digest:
                changes[name] = "changed"
            tools.append((each, name in changes))
        return Comparison(tuple(tools), changes)
