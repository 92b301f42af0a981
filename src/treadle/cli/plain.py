"""Plain commands: a verb on one task and its arguments, made from the row of the command.

    row      body=("message", "role")  command="send"
    verb     send(task, message, *, role="user", by=None, ...)
    command  treadle send TASK TEXT [--role ROLE] [--by NAME]

A required argument is an argument of the command; any other is an option. Text may be `-`, for standard input. Values
of other types than text, numbers, flags and choices are JSON.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Annotated, Any, Final, Literal, get_args, get_origin

import typer

from treadle.cli.command import ByOption, Session, command, json_argument, text_argument
from treadle.cli.control import print_recorded
from treadle.cli.filters import TaskArgument, find_task
from treadle.verbs.operation import Operation, function_of
from treadle.verbs.table import OPERATIONS

_MESSAGES: Final = frozenset(("input", "message"))
"""Arguments that may be content parts, and are text on the command line."""


def plain_commands() -> dict[str, Callable[..., int]]:
    """Return the function of each plain command, by its name."""
    return {row.command: _plain_command(row) for row in OPERATIONS.values() if row.command}


def _plain_command(row: Operation) -> Callable[..., int]:
    names = row.body or ()
    kinds = {name: _kind(name, row.argument_type(name)) for name in names}

    async def call(session: Session, task: str, *, by: str | None = None, **values: Any) -> int:
        for name, kind in kinds.items():
            if kind is str and row.is_required(name):
                values[name] = text_argument(values[name])
            elif kind is None and (text := values.pop(name)) is not None:
                values[name] = json_argument(text, f"{row.command} {name}")
        async with session.runner() as runner:
            found = await find_task(runner, task)
            await getattr(runner, row.verb)(found.task_id, **values, by=by)
            await print_recorded(session, runner, found)
        return 0

    parameters = [
        Parameter("session", Parameter.POSITIONAL_OR_KEYWORD, annotation=Session),
        Parameter("task", Parameter.KEYWORD_ONLY, annotation=TaskArgument),
        *[_parameter(row, name, kinds[name]) for name in names],
        Parameter("by", Parameter.KEYWORD_ONLY, default=None, annotation=ByOption),
    ]
    call.__name__ = row.command.replace("-", "_")
    call.__doc__ = row.summary
    call.__signature__ = Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    return command(call)


def _kind(name: str, hint: Any) -> Any:
    """Return the type of an argument for typer; None for JSON."""
    if name in _MESSAGES:
        return str
    options = [option for option in get_args(hint) if option is not type(None)]
    if len(options) == 1 and get_origin(hint) is not Literal:
        hint = options[0]
    return hint if hint in (str, int, float, bool) or get_origin(hint) is Literal else None


def _parameter(row: Operation, name: str, kind: Any) -> Parameter:
    """Return the parameter of a command for an argument of its verb."""
    about = re.search(rf"^\s*{name}: (.*)$", inspect.getdoc(function_of(row.verb)) or "", re.MULTILINE)
    text = about[1][0].upper() + about[1][1:].rstrip(".") + "." if about is not None else None
    if row.is_required(name):
        metavar = "TEXT" if kind is str else "JSON" if kind is None else name.upper()
        shown = typer.Argument(
            metavar=metavar, help=f"{text or ''} `-` reads standard input." if kind is str else text
        )
        return Parameter(name, Parameter.KEYWORD_ONLY, annotation=Annotated[kind or str, shown])
    default = None if kind is None else row.parameters[name].default
    hint = kind or str
    return Parameter(
        name,
        Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[
            hint if default is not None else hint | None, typer.Option(f"--{name}", help=text)
        ],
    )
