"""`complete`, `fail` and `progress`: what the holder of a ticket tells of a call that goes on in the background."""

from __future__ import annotations

from typing import Annotated

import typer

from treadle.cli.command import ByOption, Session, command, json_argument, text_argument
from treadle.cli.control import print_recorded
from treadle.cli.remote import task_of
from treadle.cli.task_lookup import find_task
from treadle.core.tickets import task_of_ticket
from treadle.runner.runner import TaskRunner

TicketArgument = Annotated[
    str, typer.Argument(metavar="TICKET", help="What the tool handed out; `-` reads it from standard input.")
]
TaskOption = Annotated[
    str | None,
    typer.Option(
        "--task",
        metavar="TASK",
        help="The task. With it, TICKET may be the id of a call of a tool that its caller runs.",
    ),
]


@command
async def complete(
    session: Session,
    ticket: TicketArgument,
    value: Annotated[str, typer.Argument(metavar="[JSON]", help="The result of the call.")] = "null",
    task: TaskOption = None,
    by: ByOption = None,
) -> int:
    """Deliver the result of a call in the background; its task goes on at the next resume, or by its driver."""
    result = json_argument(value, "complete")
    async with session.runner() as runner:
        ticket = text_argument(ticket).strip()
        named = await _named(runner, ticket, task)
        await runner.complete(ticket, result, task=named if task is not None else None, by=by)
        await _print(session, runner, named)
    return 0


@command
async def fail(
    session: Session,
    ticket: TicketArgument,
    error: Annotated[str, typer.Argument(metavar="ERROR", help="What went wrong; the model reads it.")],
    task: TaskOption = None,
    by: ByOption = None,
) -> int:
    """Report that a call in the background failed; its task goes on at the next resume, or by its driver."""
    async with session.runner() as runner:
        ticket = text_argument(ticket).strip()
        named = await _named(runner, ticket, task)
        await runner.fail(ticket, error, task=named if task is not None else None, by=by)
        await _print(session, runner, named)
    return 0


@command
async def progress(
    session: Session,
    ticket: TicketArgument,
    value: Annotated[str, typer.Argument(metavar="JSON", help="How far the work is.")],
    by: ByOption = None,
) -> int:
    """Report how far a call in the background is."""
    reached = json_argument(value, "progress")
    async with session.runner() as runner:
        ticket = text_argument(ticket).strip()
        await runner.progress(ticket, reached, by=by)
        await _print(session, runner, str(task_of_ticket(ticket)))
    return 0


async def _named(runner: TaskRunner, ticket: str, task: str | None) -> str:
    """Return the id of the task that was named, else of the one that the ticket names."""
    return str(task_of_ticket(ticket)) if task is None else (await find_task(runner, task)).task_id


async def _print(session: Session, runner: TaskRunner, task_id: str) -> None:
    await print_recorded(session, runner, await task_of(runner, task_id))
