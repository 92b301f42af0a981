"""`complete`, `fail` and `progress`: what the holder of a ticket tells of a call that goes on in the background."""

from __future__ import annotations

from typing import Annotated

import typer

from treadle.cli.command import ByOption, Session, command, json_argument, text_argument
from treadle.cli.control import print_recorded
from treadle.cli.remote import task_of
from treadle.cli.task_lookup import find_task
from treadle.core.messages import Json
from treadle.core.tickets import task_of_ticket

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
    return await _report(session, "complete", ticket, json_argument(value, "complete"), task, by)


@command
async def fail(
    session: Session,
    ticket: TicketArgument,
    error: Annotated[str, typer.Argument(metavar="ERROR", help="What went wrong; the model reads it.")],
    task: TaskOption = None,
    by: ByOption = None,
) -> int:
    """Report that a call in the background failed; its task goes on at the next resume, or by its driver."""
    return await _report(session, "fail", ticket, error, task, by)


@command
async def progress(
    session: Session,
    ticket: TicketArgument,
    value: Annotated[str, typer.Argument(metavar="JSON", help="How far the work is.")],
    by: ByOption = None,
) -> int:
    """Report how far a call in the background is."""
    return await _report(session, "progress", ticket, json_argument(value, "progress"), None, by)


async def _report(
    session: Session, verb: str, ticket: str, value: Json, task: str | None, by: str | None
) -> int:
    """Call a verb that takes a ticket and a value, and print how the task stands."""
    async with session.runner() as runner:
        ticket = text_argument(ticket).strip()
        task_id = None if task is None else (await find_task(runner, task)).task_id
        await getattr(runner, verb)(ticket, value, task=task_id, by=by)
        await print_recorded(session, runner, await task_of(runner, task_id or str(task_of_ticket(ticket))))
    return 0
