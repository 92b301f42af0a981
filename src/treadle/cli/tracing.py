"""`--trace`: who else is told what happens, beside the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from treadle.errors import ConfigurationError
from treadle.ports import Observer

WAYS: Final = "console, jsonl:PATH or otel"

TraceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--trace", metavar="console|jsonl:PATH|otel", help="Tell what happens there too; repeatable."
    ),
]
TraceContentOption = Annotated[
    bool, typer.Option("--trace-content", help="Traces also hold words, arguments, results; never secrets.")
]


def observers(traces: list[str] | None, *, content: bool) -> tuple[Observer, ...]:
    """Return the observers that a command line asks for.

    Raises:
        ConfigurationError: one of them is not known.
        MissingExtra: what it needs is not installed.
    """
    return tuple([_observer(trace, content) for trace in traces or ()])


def _observer(trace: str, content: bool) -> Observer:
    way, _, rest = trace.partition(":")
    if way == "jsonl" and rest:
        path = Path(rest)
        if path.is_dir() or not path.absolute().parent.is_dir():
            raise ConfigurationError(f"--trace {trace}: there can be no such file")
        from treadle.telemetry.jsonl import JsonLines

        return JsonLines(rest, content=content)
    if trace == "console":
        from treadle.telemetry.console import Console

        return Console(content=content)
    if trace == "otel":
        from treadle.telemetry.otel import OpenTelemetry

        return OpenTelemetry.over_otlp(content=content)
    raise ConfigurationError(f"--trace takes {WAYS}, not {trace!r}")
