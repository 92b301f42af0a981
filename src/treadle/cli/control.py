"""Commands to a task that any process drives, and to its calls in the background.

`pause`, `interrupt`, `cancel`, `edit` and `settle` take a task; `complete`, `fail` and `progress` take a ticket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Literal, cast

import typer

from treadle.cli.command import (
    USAGE,
    AgentOption,
    ByOption,
    Session,
    command,
    json_argument,
    option,
    text_argument,
)
from treadle.cli.filters import (
    ManyArgument,
    NameOption,
    TaskArgument,
    TaskOptions,
    YesOption,
    confirmed,
    each,
    find_task,
    root_of,
    selected_tasks,
)
from treadle.cli.outcome import print_outcome
from treadle.cli.remote import FoundTask, task_of
from treadle.client import Client
from treadle.core.events import END_STATES
from treadle.core.messages import Json
from treadle.core.tickets import task_of_ticket
from treadle.core.tools import Happened, NotHappened
from treadle.errors import ConfigurationError
from treadle.results.run_result import RunResult
from treadle.runner.runner import TaskRunner
from treadle.runner.views import driver_of

Target = Literal["paused", "interrupted", "cancelled"]
Stop = Callable[..., Awaitable[RunResult]]
ReasonOption = Annotated[str | None, typer.Option("--reason", help="The reason; recorded with the task.")]


def _stopping(verb: str, target: Target, purpose: str) -> Callable[..., int]:
    """Return the command for a verb that stops tasks; its help begins with `purpose`."""

    async def stop(
        session: Session,
        task: ManyArgument = None,
        *,
        which: TaskOptions,
        agent: NameOption = None,
        yes: YesOption = False,
        reason: ReasonOption = None,
        by: ByOption = None,
    ) -> int:
        if task is not None:
            which.refuse_beside(task, agent)
        async with session.runner() as runner:
            act: Stop = partial(getattr(runner, verb), reason=reason, by=by)
            if task is not None:
                return await _stop(session, runner, task, act, target)
            tasks = await selected_tasks(
                runner, which, agent, lambda item: item.state not in (*END_STATES, target)
            )
            if not confirmed(session, verb, tasks, yes=yes):
                return USAGE
            return await each(session, tasks, lambda item: act(item.task_id), lambda state: state == target)

    stop.__name__ = verb
    stop.__doc__ = f"{purpose}\n\nWithout TASK, do that to all unfinished tasks that match the options."
    return command(stop)


pause = _stopping(
    "pause",
    "paused",
    "Let running calls end and start none; return when the task has stopped, with 0 if it is paused.",
)
interrupt = _stopping(
    "interrupt",
    "interrupted",
    "Stop running calls now; return when the task has stopped, with 0 if it is interrupted. `resume` goes on.",
)
cancel = _stopping(
    "cancel",
    "cancelled",
    "End a task for good; return when its last call has ended, with 0 if it is cancelled.",
)


async def _stop(session: Session, runner: TaskRunner, task: str, act: Stop, target: Target) -> int:
    """Stop a task and print its state; return 0 if it reached the wanted state, else the code of its state.

    A completed task exits as wrong usage, since it could not be stopped.
    """
    row = await find_task(runner, task)
    root = await root_of(runner, row)
    try:
        result = await act(row.task_id)
    except asyncio.CancelledError:
        show = session.command_line("show", row.task_id)
        session.screen.note(f"stopped waiting; the command to the task stays, and {show} shows its state")
        raise
    code = print_outcome(session, result, printed=result.final_text, root=root)
    if result.state == target:
        return 0
    if result.state in END_STATES:
        session.screen.note(
            ("error: ", "red"),
            f"task {row.task_id} has ended ({result.state}): it cannot be {target} any more",
        )
    return code or USAGE


@command
async def edit(
    session: Session,
    task: TaskArgument,
    call: Annotated[
        str | None,
        typer.Argument(metavar="[CALL]", help="Id of a call that has not begun, from `treadle show`."),
    ] = None,
    arguments: Annotated[
        str | None, typer.Argument(metavar="[JSON]", help="With CALL: its new arguments, all of them.")
    ] = None,
    input: Annotated[str | None, option("TEXT", "A new input for the next step.")] = None,
    agent: AgentOption = None,
    by: ByOption = None,
) -> int:
    """Change the arguments of a call that has not begun, or the input of the next step.

    Arguments are checked against the tool's schema if the code of the task's agent is found.
    """
    if (call is None) == (input is None) or (call is None) != (arguments is None):
        raise ConfigurationError("edit takes TASK CALL JSON, or TASK --input TEXT")
    async with session.runner() as runner:
        row = await find_task(runner, task)
        if call is not None and arguments is not None:
            value = json_argument(arguments, "edit")
            if not isinstance(value, dict):
                raise ConfigurationError(f"the arguments of a call are a JSON object, not {arguments}")
            await register_agents(session, runner, row, agent)
            await runner.edit_call(row.task_id, call, cast("dict[str, Json]", value), by=by)
        else:
            await runner.edit_step(row.task_id, text_argument(input or ""), by=by)
        await print_recorded(session, runner, row)
    return 0


@command
async def settle(
    session: Session,
    task: TaskArgument,
    request: Annotated[str, typer.Argument(metavar="REQUEST", help="Id of the call, from `treadle show`.")],
    output: Annotated[
        str | None, typer.Argument(metavar="JSON", help="With --happened: the result of the call.")
    ] = None,
    happened: Annotated[bool, typer.Option("--happened", help="The call took effect.")] = False,
    not_happened: Annotated[
        bool, typer.Option("--not-happened", help="The call did not take effect, and may start again.")
    ] = False,
    by: ByOption = None,
) -> int:
    """State whether a call with an unknown outcome took effect; the task goes on at the next resume."""
    if happened == not_happened or (not_happened and output is not None):
        raise ConfigurationError("settle takes one of --happened [JSON] and --not-happened")
    value = json_argument(output, "settle --happened") if output is not None else None
    verdict = Happened(value) if happened else NotHappened()
    async with session.runner() as runner:
        row = await find_task(runner, task)
        await runner.settle(row.task_id, request, verdict, by=by)
        await print_recorded(session, runner, row)
    return 0


async def register_agents(
    session: Session, runner: TaskRunner, row: FoundTask, option: str | None = None
) -> None:
    """Register the project's agents and that of a task, so that the runner checks new arguments."""
    if isinstance(runner, Client):
        return  # the server has its agents
    from treadle.cli import run  # other commands do not need its imports

    for agent in run.agents.listed_agents().agents.values():
        driver_of(runner).agents.register(agent)
    code = await run.agent_of(runner, row, session.screen, option, None)
    if code is not None:
        driver_of(runner).agents.register(code)


async def print_recorded(session: Session, runner: TaskRunner, row: FoundTask) -> None:
    """Print that the command is durable, and the state of the task."""
    session.screen.line(("recorded", "green"))
    result = await runner.result(row.task_id)
    root = await root_of(runner, row)
    print_outcome(session, result, printed=result.final_text, root=root, is_recorded=True)


TicketArgument = Annotated[
    str, typer.Argument(metavar="TICKET", help="The ticket from the tool; `-` reads it from standard input.")
]
TaskOption = Annotated[
    str | None,
    typer.Option(
        "--task",
        metavar="TASK",
        help="The task. With it, TICKET may be the id of a call of a caller tool.",
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
    error: Annotated[str, typer.Argument(metavar="ERROR", help="The error message, which the model reads.")],
    task: TaskOption = None,
    by: ByOption = None,
) -> int:
    """Report that a call in the background failed; its task goes on at the next resume, or by its driver."""
    return await _report(session, "fail", ticket, error, task, by)


@command
async def progress(
    session: Session,
    ticket: TicketArgument,
    value: Annotated[str, typer.Argument(metavar="JSON", help="The progress, such as 0.5 or a text.")],
    by: ByOption = None,
) -> int:
    """Report the progress of a call in the background."""
    return await _report(session, "progress", ticket, json_argument(value, "progress"), None, by)


async def _report(
    session: Session, verb: str, ticket: str, value: Json, task: str | None, by: str | None
) -> int:
    """Call a verb that takes a ticket and a value, and print the state of the task."""
    async with session.runner() as runner:
        ticket = text_argument(ticket).strip()
        task_id = None if task is None else (await find_task(runner, task)).task_id
        await getattr(runner, verb)(ticket, value, task=task_id, by=by)
        await print_recorded(session, runner, await task_of(runner, task_id or str(task_of_ticket(ticket))))
    return 0
