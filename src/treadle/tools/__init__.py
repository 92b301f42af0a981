"""Tools made of Python functions: schema, validation, execution in loop or thread, normalised results.

Importing this imports no pydantic; defining the first tool does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from treadle.core.abandoned import AbandonedCall
from treadle.tools.function import FunctionTool, ToolOptions, tool
from treadle.tools.observe import to_output
from treadle.tools.threads import abandoned

if TYPE_CHECKING:
    from treadle.tools.processes import ProcessResult, run_process, run_process_sync

__all__ = [
    "AbandonedCall",
    "FunctionTool",
    "ProcessResult",
    "ToolOptions",
    "abandoned",
    "run_process",
    "run_process_sync",
    "to_output",
    "tool",
]


if not TYPE_CHECKING:  # for a type checker, a module with this function has every name

    def __getattr__(name: str) -> Any:
        """Import the functions that run programs when they are first used."""
        if name in ("ProcessResult", "run_process", "run_process_sync"):
            from treadle.tools import processes

            return getattr(processes, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
