"""Messages for command lines that the parser refuses: the problem, the likely intention, and the usage."""

from __future__ import annotations

import re
from typing import Any, Final

COMMANDS: Final = {
    "list": "tasks",
    "ls": "tasks",
    "ps": "tasks",
    "status": "show TASK",
    "get": "show TASK",
    "info": "show TASK",
    "logs": "show TASK",
    "history": "show TASK",
    "start": "run AGENT INPUT",
    "exec": "run AGENT INPUT",
    "ask": "run INPUT",
    "continue": "resume TASK",
    "restart": "resume TASK",
    "stop": "interrupt TASK` or `treadle cancel TASK",
    "kill": "cancel TASK",
    "abort": "cancel TASK",
    "rewind": "undo TASK",
    "rollback": "undo TASK",
    "worker": "drive",
    "message": "send TASK TEXT",
    "branch": "fork TASK",
    "compare": "diff A B",
    "backup": "export",
    "check": "verify",
    "delete": "threads delete THREAD` or `treadle prune AGE",
    "rm": "threads delete THREAD` or `treadle prune AGE",
    "clean": "prune AGE",
    "version": "--version",
    "help": "--help",
}
"""Commands that people try, and the arguments of `treadle` to use instead."""

OPTIONS: Final = {
    "--max-turns": "--max-steps",
    "--max-iterations": "--max-steps",
    "--steps": "--max-steps",
    "--timeout": "--max-seconds",
    "--budget": "--max-cost",
    "--thread-id": "--thread",
    "--session": "--thread",
    "--session-id": "--thread",
    "--conversation": "--thread",
    "--id": "--task-id",
    "--db": "--store",
    "--database": "--store",
    "--status": "--state",
    "--verbose": "--trace console",
    "-v": "--trace console",
    "--prompt": "INPUT, as an argument",
    "--input": "INPUT, as an argument",
    "--older-than": "AGE, as an argument",
    "--days": "AGE, as an argument",
    "--format": "--json",
    "--output": "--json",
}
"""Options that people try, and the options to use instead, if the command has them."""

_NO_COMMAND: Final = re.compile(r"No such command '(.+?)'\.")


def usage_message(error: Any) -> str:
    """Return the message for an error of the parser, in one or two lines.

    Args:
        error: click's `UsageError`, with the context of the command it is about.
    """
    message = str(error.format_message())
    ctx: Any = error.ctx
    if ctx is None:
        return message
    unknown = _NO_COMMAND.match(message)
    if unknown is not None and ctx.parent is None:
        message = _unknown_command(unknown[1], message)
    elif (option := getattr(error, "option_name", None)) is not None:
        message = _unknown_option(ctx, option, message)
    pieces = " ".join(ctx.command.collect_usage_pieces(ctx)).replace("{", "").replace("}", "")
    return f"{message}\nusage: {ctx.command_path} {pieces}; more: {ctx.command_path} --help"


def _unknown_command(name: str, message: str) -> str:
    if name in COMMANDS:
        return f"No such command '{name}': write `treadle {COMMANDS[name]}`"
    if ":" in name:
        return f"No such command '{name}': to run an agent, write `treadle run {name} INPUT`"
    return message


def _unknown_option(ctx: Any, option: str, message: str) -> str:
    """Return the message for an unknown option, with its counterpart if the command has one."""
    if option == "--url" and ctx.parent:
        return "No such option: --url: this command works at a store, and not on a server"
    has = {name for parameter in ctx.command.params for name in parameter.opts}
    if not ctx.parent and option in ("--store", "--url", "--tenant", "--json", "--agent", "--model"):
        return f"No such option: {option} before the command: write it behind, as in `treadle tasks {option} ...`"
    instead = OPTIONS.get(option)
    arguments = " ".join(str(parameter.metavar) for parameter in ctx.command.params)
    if instead and (instead.split()[0] in has or (instead[0] != "-" and instead.split(",")[0] in arguments)):
        return f"No such option: {option}: write {instead}"
    return message
