"""Tools made of Python functions: schema, validation, execution in loop or thread, normalised results.

Importing this imports no pydantic; defining the first tool does.
"""

from treadle.tools.function import FunctionTool, ToolOptions, tool
from treadle.tools.observe import to_output
from treadle.tools.processes import ProcessResult, run_process, run_process_sync
from treadle.tools.threads import AbandonedCall, abandoned

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
