"""Pinned definitions: a server's tools as first listed, or as approved since."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff
from itertools import islice
from pathlib import Path
from typing import Any, Literal, cast

from treadle.core.data import frozen
from treadle.core.display import exact_text, seen_json
from treadle.core.messages import Json
from treadle.errors import ConfigurationError
from treadle.tools.mcp.declaration import DEFAULT_PINS, ServerDeclaration
from treadle.tools.mcp.definitions import ToolDefinition

Change = Literal["changed", "new", "gone"]


@frozen
class Difference:
    """A difference between the current listing and a pinned definition.

    Args:
        change: `changed`, `new` or `gone`.
        pinned: the pinned definition; None for a new tool.
        now: the current definition; None for a tool that is gone.
    """

    change: Change
    pinned: ToolDefinition | None
    now: ToolDefinition | None

    def lines(self) -> Iterator[str]:
        """Yield a diff: pinned lines begin with `-`, current lines with `+`."""
        sides = [_lines(each.definition) if each is not None else [] for each in (self.pinned, self.now)]
        compared = unified_diff(sides[0], sides[1], lineterm="", n=1)
        yield from [line for line in islice(compared, 2, None) if not line.startswith("@@")]


def _lines(definition: Mapping[str, Json]) -> list[str]:
    """Return the parts of a definition on separate lines, with every character visible."""
    lines: list[str] = []
    for name, value in sorted(definition.items()):
        if isinstance(value, str):
            lines += [f"{name}: {exact_text(line)}" for line in value.split("\n")]
        else:
            lines += seen_json(f"{name}: {json.dumps(value, indent=1, sort_keys=True)}").split("\n")
    return lines


@frozen
class Comparison:
    """The current listing compared with the pinned definitions.

    Args:
        tools: the definitions for models, each with whether the server has changed it.
        differences: the differences, by the server's tool names.
    """

    tools: tuple[tuple[ToolDefinition, bool], ...]
    differences: Mapping[str, Difference]

    @property
    def changes(self) -> dict[str, Change]:
        """The kinds of the differences, by the server's tool names."""
        return {name: each.change for name, each in self.differences.items()}


def chosen_differences(
    server: str, differences: Mapping[str, Difference], names: Sequence[str]
) -> Mapping[str, Difference]:
    """Return the differences of the named tools, by default all. Raises `ConfigurationError` for unknown names."""
    if (other := next((name for name in names if name not in differences), None)) is not None:
        changed_names = ", ".join(differences) or "none"
        raise ConfigurationError(
            f"MCP server {server!r}: {other!r} is not among the tools that differ from their pins: {changed_names}"
        )
    return {name: differences[name] for name in names} if names else differences


def pins_of(declared: ServerDeclaration, store_file: str | os.PathLike[str] | None = None) -> Pins:
    """Return the pins of a server. By default they are beside the store, which all its drivers share.

    Args:
        declared: the server.
        store_file: the store's file; None if it has none or is unknown.
    """
    if store_file is None or not declared.pins_beside_store:
        return Pins(declared.name, declared.pins)
    folder = Path(store_file).absolute().parent
    beside = folder if folder.name == DEFAULT_PINS.parent.name else folder / DEFAULT_PINS.parent
    return Pins(declared.name, beside / DEFAULT_PINS.name, before=DEFAULT_PINS)


class Pins:
    """The pinned definitions of one server, in a readable text file for comparison and version control.

    Args:
        server: the server's name.
        folder: the folder of the file; None pins only for the life of this object.
        before: a folder whose file is used until one exists in `folder`.

    Raises:
        ConfigurationError: the file cannot be read or written.
    """

    def __init__(self, server: str, folder: Path | None, before: Path | None = None) -> None:
        self._server = server
        self._before = Pins(server, before) if before is not None else None
        self._path = folder / f"{server}.json" if folder is not None else None
        self._pinned: dict[str, ToolDefinition] | None = None

    def read(self) -> dict[str, ToolDefinition] | None:
        """Return the pinned definitions by name; None if the server was never listed."""
        if self._path is None:
            return self._pinned
        try:
            document: Any = json.loads(self._path.read_text(encoding="utf-8"))
            tools = cast("dict[str, dict[str, Any]]", document["tools"])
            return {name: ToolDefinition(name, dict(each.items())) for name, each in tools.items()}
        except FileNotFoundError:
            return self._before.read() if self._before is not None else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigurationError(
                f"MCP server {self._server!r}: its pinned definitions in {self._path} cannot be read: {error}"
            ) from error

    def pin(self, definitions: Sequence[ToolDefinition], *, first: bool = False) -> None:
        """Replace the pinned definitions. With `first`, do so only if there are none."""
        pinned = {each.name: each for each in definitions}
        if self._path is None:
            if not first or self._pinned is None:
                self._pinned = pinned
            return
        document = {
            "server": self._server,
            "tools": {name: each.definition for name, each in sorted(pinned.items())},
        }
        new = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            new.write_text(json.dumps(document, indent=1, ensure_ascii=True) + "\n", encoding="utf-8")
            if first:
                try:
                    os.link(new, self._path)  # unlike a rename, it keeps a concurrent process's pins
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
        """Compare a listing with the pinned definitions. A first listing is pinned."""
        pinned = self.read()
        if pinned is None or (
            self._before is not None and self._path is not None and not self._path.exists()
        ):
            self.pin(listed if pinned is None else tuple(pinned.values()), first=True)
            pinned = self.read() or {}
        now = {each.name: each for each in listed}
        differences = {
            name: Difference("new", None, each) for name, each in now.items() if name not in pinned
        }
        tools: list[tuple[ToolDefinition, bool]] = []
        for name, each in pinned.items():
            if name not in now:
                differences[name] = Difference("gone", each, None)
                continue
            if now[name].digest != each.digest:
                differences[name] = Difference("changed", each, now[name])
            tools.append((each, name in differences))
        return Comparison(tuple(tools), differences)

    def approve(self, differences: Mapping[str, Difference]) -> None:
        """Pin the current definitions of some tools, and keep the pins of the others."""
        pinned = dict(self.read() or {})
        for name, each in differences.items():
            if each.now is None:
                pinned.pop(name, None)
            else:
                pinned[name] = each.now
        self.pin(tuple(pinned.values()))
