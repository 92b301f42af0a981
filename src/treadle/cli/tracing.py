"""`--trace`: observers that a command adds beside what it prints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from treadle.core.data import frozen
from treadle.errors import ConfigurationError
from treadle.ports import Observer


@frozen(kw_only=True)
class TraceOptions:
    """The options of commands that drive tasks and can trace them."""

    trace: Annotated[
        list[str] | None,
        typer.Option(
            "--trace",
            metavar="console|jsonl:PATH|otel",
            help="Also send what happens to this trace; may be repeated.",
        ),
    ] = None
    trace_content: Annotated[
        bool,
        typer.Option(
            "--trace-content", help="Include messages, arguments and results in traces, never secrets."
        ),
    ] = False

    def observers(self) -> tuple[Observer, ...]:
        """Return the observers that `--trace` names.

        Raises:
            ConfigurationError: a trace has no known kind, or its file cannot exist.
            MissingExtra: a package that it needs is not installed.
        """
        return tuple([_observer(trace, self.trace_content) for trace in self.trace or ()])


def _observer(trace: str, content: bool) -> Observer:
    kind, _, target = trace.partition(":")
    if kind == "jsonl" and target:
        path = Path(target)
        if path.is_dir() or not path.absolute().parent.is_dir():
            raise ConfigurationError(f"--trace {trace}: this file cannot be created")
        from treadle.telemetry.jsonl import JsonLines

        return JsonLines(target, content=content)
    if trace == "console":
        from treadle.telemetry.console import Console

        return Console(content=content)
    if trace == "otel":
        from treadle.telemetry.otel import OpenTelemetry

        return OpenTelemetry.over_otlp(content=content)
    raise ConfigurationError(f"--trace takes console, jsonl:PATH or otel, not {trace!r}")
