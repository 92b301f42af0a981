"""`--trace`: observers that a command adds to its own output."""

from __future__ import annotations

from typing import Annotated

import typer

from treadle.cli.command import option
from treadle.core.data import frozen
from treadle.ports import Observer


@frozen(kw_only=True)
class TraceOptions:
    """The options of commands that drive tasks and can trace them."""

    trace: Annotated[
        list[str] | None,
        option("console|jsonl:PATH|otel", "Also send events to this trace; may be repeated."),
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
            ConfigurationError: the kind of a trace is unknown, or its file cannot exist.
            MissingExtra: a required package is not installed.
        """
        if not self.trace:
            return ()
        from treadle.telemetry.by_name import observer_named

        return tuple([observer_named("--trace", trace, content=self.trace_content) for trace in self.trace])
