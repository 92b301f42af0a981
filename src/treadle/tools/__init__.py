"""Tools made of Python functions: schema, validation, execution in loop or thread, normalised results.

Importing this imports no pydantic; defining the first tool does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from treadle.core.abandoned import AbandonedCall
from treadle.tools.function import FunctionTool, ToolOptions, tool
from treadle.tools.observe import to_output
from treadle.tools.threads import abandoned

if TYPE_CHECKING:
    from treadle.tools.code import command_tool, python_tool, shell_tool
    from treadle.tools.commands import Command
    from treadle.tools.folder import Folder, FolderPath, PathRefused
    from treadle.tools.foreign import PydanticAIToolset, langchain_tools, llamaindex_tools, openapi_tools
    from treadle.tools.hosts.declaration import Subprocess
    from treadle.tools.hosts.sandbox import Sandbox
    from treadle.tools.middleware import cached, redacted, timed
    from treadle.tools.processes import ProcessResult, run_process, run_process_sync
    from treadle.tools.web import ConnectionRefused, http_client, http_client_sync

__all__ = [
    "AbandonedCall",
    "Command",
    "ConnectionRefused",
    "Folder",
    "FolderPath",
    "FunctionTool",
    "PathRefused",
    "ProcessResult",
    "PydanticAIToolset",
    "Sandbox",
    "Subprocess",
    "ToolOptions",
    "abandoned",
    "cached",
    "command_tool",
    "http_client",
    "http_client_sync",
    "langchain_tools",
    "llamaindex_tools",
    "openapi_tools",
    "python_tool",
    "redacted",
    "run_process",
    "run_process_sync",
    "shell_tool",
    "timed",
    "to_output",
    "tool",
]


_LATER: Final = {
    **dict.fromkeys(("command_tool", "python_tool", "shell_tool"), "code"),
    "Command": "commands",
    "Sandbox": "hosts.sandbox",
    "Subprocess": "hosts.declaration",
    **dict.fromkeys(("Folder", "FolderPath", "PathRefused"), "folder"),
    **dict.fromkeys(("PydanticAIToolset", "langchain_tools", "llamaindex_tools", "openapi_tools"), "foreign"),
    **dict.fromkeys(("cached", "redacted", "timed"), "middleware"),
    **dict.fromkeys(("ProcessResult", "run_process", "run_process_sync"), "processes"),
    **dict.fromkeys(("ConnectionRefused", "http_client", "http_client_sync"), "web"),
}

if not TYPE_CHECKING:  # for a type checker, a module with this function has every name

    def __getattr__(name: str) -> Any:
        """Import a rarely used name on first access."""
        module = _LATER.get(name)
        if module is not None:
            return getattr(import_module(f"treadle.tools.{module}"), name)
        from treadle.core.unknown_names import unknown_in_module

        raise unknown_in_module(__name__, name, __all__)
