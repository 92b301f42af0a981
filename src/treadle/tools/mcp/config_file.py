"""Read servers from configuration files: `.mcp.json` and the like, shared with other programs, and TOML."""

from __future__ import annotations

import json
import logging
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from treadle.core.unknown_names import near_name
from treadle.errors import ConfigurationError

_log = logging.getLogger("treadle.mcp")

TABLES: Final = ("mcpServers", "servers", "mcp_servers")
"""Keys under which files list servers by name."""

OPTIONS: Final = ("command", "args", "env", "cwd", "url", "headers")
"""Keys of a server that all programs share; other keys in JSON are ignored."""

ADDRESSES: Final = ("httpUrl", "serverUrl")
"""Keys that some programs use for the URL of a streamable HTTP server."""

PROJECT: Final = "pyproject.toml"

_VARIABLE: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_UNKNOWN: Final = re.compile(r"\$\{[^}]*\}")


def read_servers(path: str | os.PathLike[str]) -> dict[str, dict[str, Any]]:
    """Return the options of the enabled servers in a file, by name.

    `${NAME}`, `${NAME:-default}` and `${env:NAME}` are replaced by environment variables. In `pyproject.toml` the
    servers are under `[tool.treadle]`.

    Raises:
        ConfigurationError: the file cannot be read, or an entry is not valid; the text names file and server.
    """
    path = Path(path)
    is_toml = path.suffix == ".toml"
    try:
        text = path.read_text(encoding="utf-8")
        document: Any = tomllib.loads(text) if is_toml else json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigurationError(f"{path} cannot be read: {reason}") from error
    if path.name == PROJECT:
        document = document.get("tool", {}).get("treadle", {})
    tables = cast("dict[str, Any]", document) if isinstance(document, dict) else {}
    server_tables = [tables[name] for name in TABLES if name in tables]
    if len(server_tables) != 1 or not isinstance(server_tables[0], dict):
        label = "[tool.treadle.mcp_servers]" if path.name == PROJECT else f"one of {', '.join(TABLES)}"
        raise ConfigurationError(f"{path} must list servers by name under {label}")
    servers: dict[str, dict[str, Any]] = {}
    for name, entry in cast("dict[str, Any]", server_tables[0]).items():
        label = f"{path}: server {name!r:.80}"
        if not isinstance(entry, dict):
            raise ConfigurationError(f"{label} must be an object with command or url, got {entry!r:.80}")
        facts = cast("dict[str, Any]", entry)
        if facts.get("disabled") is True or facts.get("enabled") is False:
            continue
        plain = re.sub(r"[^A-Za-z0-9-]+", "-", name).strip("-")
        if plain in servers:
            raise ConfigurationError(f"{label}: another server of the file is named {plain!r}, too")
        if plain != name:
            _log.info("%s: its tools are called %s__...", label, plain)
        options = _from_toml(facts) if is_toml else _from_json(facts, label)
        if not is_toml and not {"command", "url", *ADDRESSES} & {*facts}:
            for key in facts:
                if (near := near_name(key, ("command", "url"))) is not None:
                    raise ConfigurationError(f"{label} has {key!r:.80}; did you mean {near!r}?")
        if not is_toml and (other := next((name for name in ADDRESSES if name in facts), None)):
            facts = {**facts, "url": facts[other]}
        servers[plain] = options | {name: _expanded(facts[name], label) for name in OPTIONS if name in facts}
    return servers


def _from_toml(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if name not in ("disabled", "enabled")}


def _from_json(facts: Mapping[str, Any], label: str) -> dict[str, Any]:
    """Return the transport of a server, from the keys that programs use for it."""
    if "envFile" in facts:
        raise ConfigurationError(f"{label} has envFile, which is not read: list its variables in env")
    kind = facts.get("type", facts.get("transport"))
    if kind == "sse":
        return {"transport": "sse"}
    if kind not in (None, "stdio", "http", "streamable-http", "streamableHttp", "streamable_http"):
        raise ConfigurationError(f"{label} has the type {kind!r:.80}; they are stdio, http and sse")
    return {}


def _expanded(value: Any, label: str, *, inside: bool = False) -> Any:
    """Return a value with the environment variables in its texts expanded."""
    if isinstance(value, list) and not inside:
        return [_expanded(each, label, inside=True) for each in cast("list[Any]", value)]
    if isinstance(value, dict) and not inside:
        items = cast("dict[str, Any]", value).items()
        return {name: _expanded(each, label, inside=True) for name, each in items}
    if not isinstance(value, str):
        return cast("Any", value)

    def variable(match: re.Match[str]) -> str:
        name: str = match.group(1)
        default: str | None = match.group(2)
        expansion = os.environ.get(name) or default
        if expansion is None:
            raise ConfigurationError(f"{label} needs the environment variable {name}, which is not set")
        return expansion

    expanded = _VARIABLE.sub(variable, value)
    if (unknown := _UNKNOWN.search(_VARIABLE.sub("", value))) is not None:
        raise ConfigurationError(f"{label} has {unknown.group()}, which stands for nothing here")
    return expanded
