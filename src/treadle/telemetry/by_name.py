"""Observers by name, as for `Runner(observers=["console"])` and `--trace console`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from treadle.errors import ConfigurationError

if TYPE_CHECKING:
    from treadle.ports import Observer


def observer_named(label: str, name: str, *, content: bool = False) -> Observer:
    """Return the observer of a name: `console`, `jsonl:PATH`, or `otel` for one that exports over OTLP.

    Args:
        label: where the name was written, for messages.
        name: the name.
        content: whether the observer reports messages, arguments and results.

    Raises:
        ConfigurationError: no observer has this name, or its file cannot exist.
        MissingExtra: a package that it needs is not installed.
    """
    kind, _, target = name.partition(":")
    if kind == "jsonl" and target:
        path = Path(target)
        if path.is_dir() or not path.absolute().parent.is_dir():
            raise ConfigurationError(f"{label} {name}: this file cannot be created")
        from treadle.telemetry.jsonl import JsonLines

        return JsonLines(target, content=content)
    if name == "console":
        from treadle.telemetry.console import Console

        return Console(content=content)
    if name == "otel":
        from treadle.telemetry.otel import OpenTelemetry

        return OpenTelemetry.over_otlp(content=content)
    raise ConfigurationError(f"{label} takes console, jsonl:PATH or otel, not {name!r:.80}")
