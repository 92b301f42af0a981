"""The command `treadle`: its commands, the exit codes, and the messages for command lines that the parser refuses."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import re
import signal
import sys
import sysconfig
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from traceback import walk_tb
from typing import Annotated, Any, Final

import typer

from treadle.cli.command import CODES, OUR_BUG, USAGE, StoreOption, interrupted, option
from treadle.cli.screen import Screen
from treadle.core.display import clean
from treadle.errors import (
    ConfigurationError,
    ContextFailed,
    NotFound,
    StepFailed,
    TaskParked,
    TaskStateError,
    TreadleError,
)
from treadle.results.problem_documents import error_to_wire

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
    "terminate": "cancel TASK",
    "signal": "send TASK TEXT` or `treadle answer TASK VALUE",
    "describe": "show TASK",
    "workflow": "tasks",
    "reset": "fork TASK --at STEP",
    "rewind": "undo TASK",
    "rollback": "undo TASK",
    "worker": "drive",
    "web": "inspect",
    "ui": "inspect",
    "gui": "inspect",
    "studio": "inspect",
    "dashboard": "inspect",
    "open": "inspect",
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
        error: click's `UsageError`, with the context of its command.
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
        return "No such option: --url: this command needs a store"
    has = {name for parameter in ctx.command.params for name in parameter.opts}
    if not ctx.parent and option in ("--store", "--url", "--tenant", "--json", "--agent", "--model"):
        return (
            f"No such option: {option} before the command: write it after, as in `treadle tasks {option} ...`"
        )
    instead = OPTIONS.get(option)
    arguments = " ".join(str(parameter.metavar) for parameter in ctx.command.params)
    if instead and (instead.split()[0] in has or (instead[0] != "-" and instead.split(",")[0] in arguments)):
        return f"No such option: {option}: write {instead}"
    return message


_STOPPED = 128 + signal.SIGINT
_UsageError: Any = typer.BadParameter.__base__


def demo(
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an unfinished demonstration.")] = False,
    store: StoreOption = None,
    model: Annotated[str | None, option("PROVIDER:NAME", "A real model; none is needed.")] = None,
) -> int:
    """Watch a task survive a killed process, be undone and forked. Needs no key and no network."""
    from treadle.cli.demo import play  # imports the auditor, which other commands do not need

    return play(resume=resume, store=store, model=model)


def _print_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        typer.echo(f"treadle {version('treadle')}")
        raise typer.Exit


def treadle(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Run LLM agents as durable tasks made of steps: run, watch, pause, undo, fork, resume."""


_COMMANDS: Final[dict[str, str | Callable[..., int]]] = {
    "run": "run.run",
    "chat": "chat.chat",
    "step": "run.step",
    "resume": "run.resume",
    "watch": "watch.watch",
    "drive": "drive.drive",
    "serve": "serving.serve",
    "inspect": "inspector.inspect",
    "tasks": "listing.tasks",
    "show": "views.show",
    "usage": "views.usage",
    "agents": "views.agents",
    "pause": "control.pause",
    "interrupt": "control.interrupt",
    "cancel": "control.cancel",
    "edit": "control.edit",
    "settle": "control.settle",
    "pending": "approvals.pending",
    "approve": "approvals.approve",
    "deny": "approvals.deny",
    "answer": "approvals.answer",
    "complete": "control.complete",
    "fail": "control.fail",
    "progress": "control.progress",
    "undo": "undo_fork.undo",
    "fork": "undo_fork.fork",
    "diff": "views.diff",
    "verify": "maintenance.verify",
    "export": "maintenance.export",
    "replay": "replay.replay",
    "policy": "policy.policy",
    "mcp": "mcp.mcp",
    "doctor": "doctor.doctor",
    "threads": "threads.threads",
    "prune": "threads.prune",
    "import": "maintenance.import_",
    "demo": demo,
}
"""The function of each command, as `module.function` if only this command needs its module.

The table of verbs has the plain commands: see `cli.plain`.
"""


def app(command: str | None = None) -> typer.Typer:
    """Return the application with one command, with none for `--version`, or else with all.

    A command costs its imports and the reading of its parameters, so `treadle` builds at most one at start.
    """
    application = typer.Typer(
        name="treadle",
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    application.callback()(treadle)
    functions: dict[str, Any] = {}
    if command in _COMMANDS:
        functions = {command: _COMMANDS[command]}
    elif command != "--version":
        from treadle.cli.plain import plain_commands

        plain = plain_commands()
        functions = {command: plain[command]} if command in plain else {**_COMMANDS, **plain}
    for name, function in functions.items():
        if isinstance(function, str):
            module, _, attribute = function.partition(".")
            function = getattr(import_module(f"treadle.cli.{module}"), attribute)
        if isinstance(function, typer.Typer):
            application.add_typer(function, name=name)
        else:
            application.command(name)(function)
    return application


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    0 completed, or done; 1 failed; 2 usage; 3 degraded; 4 waiting; 5 paused; 6 interrupted; 7 cancelled; 70 our bug.
    """
    if arguments is None:
        # The process ends with the command. The system frees its memory, so Python need not visit each object.
        atexit.register(gc.freeze)
    command_arguments = list(sys.argv[1:] if arguments is None else arguments)
    options = (
        command_arguments[: command_arguments.index("--")] if "--" in command_arguments else command_arguments
    )
    _open_closed_streams()
    # The store itself reports a lost session.
    logging.getLogger("psycopg").addHandler(logging.NullHandler())
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_Cleaned())
    screen = Screen(json="--json" in options)
    code = None
    try:
        with screen.one_document():
            code = _run(command_arguments or ["--help"], screen)
        sys.stdout.flush()
        return code
    except OSError as error:
        # The reader of the output has gone or the disk is full, so Python must not write its buffer at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not code and not isinstance(error, BrokenPipeError):
            screen.note(("error: ", "red"), _system_message(error))
        return CODES["failed"]


class _Cleaned(logging.Formatter):
    """Formats log records for a terminal, so that texts of tools and models cannot control it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record, with control characters visible."""
        return clean(super().format(record))


def _open_closed_streams() -> None:
    """Open closed standard streams on the null device, so that files opened later do not get their numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - open until the process ends


def _run(arguments: list[str], screen: Screen) -> int:
    command: Any = typer.main.get_command(app(arguments[0]))
    try:
        code = command.main(arguments, prog_name="treadle", standalone_mode=False, obj=screen) or 0
        # Typer returns a shell's code for Ctrl-C outside of an event loop, such as during imports of agents.
        return interrupted(screen) if code == _STOPPED else code
    except (_UsageError, TreadleError) as error:
        return _failed(error, screen)
    except BrokenPipeError:
        raise
    except Exception as error:
        if os.environ.get("TREADLE_DEBUG"):
            raise
        from treadle.cli.agents import error_without_secrets, without_secrets

        description = error_without_secrets(error)
        screen.document({"error": error_to_wire(error, without_secrets(str(error)))})
        path = _user_code_in(error)
        if path is not None:
            screen.note(
                ("error: ", "red"), f"{description} (from {path}; TREADLE_DEBUG=1 shows the traceback)"
            )
            return CODES["failed"]
        if isinstance(error, OSError):
            screen.note(("error: ", "red"), _system_message(error))
            return CODES["failed"]
        screen.note(("this is a bug in treadle: ", "red"), description)
        screen.note("run it again with TREADLE_DEBUG=1 for the details of a report")
        return OUR_BUG


def _system_message(error: OSError) -> str:
    """Return the operating system's message, with the file's name if there is one."""
    return ": ".join(str(part) for part in (error.filename, error.strerror or error) if part)


def _user_code_in(error: BaseException) -> str | None:
    """Return the last line of user code in a traceback, as `file, line n`; None if it has none."""
    libraries = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    libraries_and_treadle = [
        folder.resolve() for folder in (Path(__file__).parents[1], *map(Path, libraries))
    ]
    path = None
    for frame, line in walk_tb(error.__traceback__):
        file = Path(frame.f_code.co_filename).resolve()
        if file.is_file() and not any(file.is_relative_to(folder) for folder in libraries_and_treadle):
            path = f"{file.name}, line {line}"
    return path


def _failed(error: Any, screen: Screen) -> int:
    message = str(error) if isinstance(error, TreadleError) else usage_message(error)
    if isinstance(error, ContextFailed) and (path := _user_code_in(error.__cause__ or error)) is not None:
        message = f"{message} (from {path})"
    screen.document({"error": error_to_wire(error, message)})
    screen.note(("error: ", "red"), message)
    if isinstance(error, TaskParked):
        return CODES.get(error.state or "", 1)
    if isinstance(error, StepFailed):
        return CODES["failed"]
    misuse = (ConfigurationError, NotFound, TaskStateError, _UsageError)
    return USAGE if isinstance(error, misuse) else CODES["failed"]


if __name__ == "__main__":
    sys.exit(main())
