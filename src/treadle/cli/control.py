"""`pause`, `interrupt`, `cancel`, `send`, `settle`: what a person says to a task, wherever it is driven."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Literal

import typer

from treadle.cli.command import (
    JsonOption,
    StoreOption,
    TaskArgument,
    command_line,
    in_loop,
    json_given,
    row_named,
    runner_on,
)
from treadle.cli.outcome import told
from treadle.cli.run import read
from treadle.cli.screen import Screen
from treadle.core.tools import Happened, NotHappened
from treadle.engine.results import RunResult
from treadle.errors import ConfigurationError
from treadle.ports import TaskRow
from treadle.runner.runner import TaskRunner

ReasonOption = Annotated[str | None, typer.Option("--reason", help="Why; kept with the task.")]
ByOption = Annotated[str | None, typer.Option("--by", help="Who says so; kept with the task.")]


def pause(
    ctx: typer.Context,
    task: TaskArgument,
    reason: ReasonOption = None,
    by: ByOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> int:
    """Let running calls end and start nothing new; returns when the task has stopped (0 if it is paused)."""
    return _stopped(ctx, task, "paused", store, lambda runner, key: runner.pause(key, reason=reason, by=by))


def interrupt(
    ctx: typer.Context,
    task: TaskArgument,
    reason: ReasonOption = None,
    by: ByOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> int:
    """Stop what runs now; returns when the task has stopped (0 if it is interrupted), and it can be resumed."""
    return _stopped(
        ctx, task, "interrupted", store, lambda runner, key: runner.interrupt(key, reason=reason, by=by)
    )


def cancel(
    ctx: typer.Context,
    task: TaskArgument,
    reason: ReasonOption = None,
    by: ByOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> int:
    """End a task for good; returns when its last call has ended (0 if it is cancelled)."""
    return _stopped(
        ctx, task, "cancelled", store, lambda runner, key: runner.cancel(key, reason=reason, by=by)
    )


def _stopped(
    ctx: typer.Context,
    task: str,
    wanted: str,
    store: str | None,
    stop: Callable[[TaskRunner, str], Awaitable[RunResult]],
) -> int:
    """Stop a task and print how it stands; the exit code is 0 if that is what was wanted, else that of its state."""

    async def work(screen: Screen) -> int:
        async with runner_on(store) as runner:
            row = await row_named(runner, task)
            under = await _root(runner, row)
            try:
                result = await stop(runner, row.task_id)
            except asyncio.CancelledError:
                shown = command_line("show", row.task_id, store=store)
                screen.note(
                    f"not waited for; what was asked for is not taken back: {shown} tells how it stands"
                )
                raise
            code = told(screen, result, store=store, agent=None, said=result.final_text, under=under)
            return 0 if result.state == wanted else code

    return in_loop(ctx, work)


def send(
    ctx: typer.Context,
    task: TaskArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="`-` reads standard input.")],
    role: Annotated[
        Literal["user", "observation", "system"],
        typer.Option("--role", help="Whose words; an observation is data from outside."),
    ] = "user",
    by: ByOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> int:
    """Put words before a task's next model call, also while it runs."""

    async def work(screen: Screen) -> int:
        async with runner_on(store) as runner:
            row = await row_named(runner, task)
            await runner.send(row.task_id, read(text), role=role, by=by)
            await _recorded(runner, row, screen, store)
        return 0

    return in_loop(ctx, work)


def settle(
    ctx: typer.Context,
    task: TaskArgument,
    request: Annotated[str, typer.Argument(metavar="REQUEST", help="As `treadle show` names it.")],
    output: Annotated[
        str | None, typer.Argument(metavar="JSON", help="With --happened: what the call returned.")
    ] = None,
    happened: Annotated[bool, typer.Option("--happened", help="The call took effect.")] = False,
    not_happened: Annotated[
        bool, typer.Option("--not-happened", help="It did not: it may start again.")
    ] = False,
    by: ByOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> int:
    """Say whether a call whose outcome is unknown took effect; the task goes on at the next resume."""
    if happened == not_happened or (not_happened and output is not None):
        raise ConfigurationError("settle takes one of --happened [JSON] and --not-happened")
    value = json_given(output, "settle --happened") if output is not None else None
    verdict = Happened(value) if happened else NotHappened()

    async def work(screen: Screen) -> int:
        async with runner_on(store) as runner:
            row = await row_named(runner, task)
            await runner.settle(row.task_id, request, verdict, by=by)
            await _recorded(runner, row, screen, store)
        return 0

    return in_loop(ctx, work)


async def _recorded(runner: TaskRunner, row: TaskRow, screen: Screen, store: str | None) -> None:
    """Print that what was said is durable, and how the task stands."""
    screen.line(("recorded", "green"))
    result = await runner.result(row.task_id)
    driven = (await runner.get_task(row.task_id)).driven
    under = await _root(runner, row)
    told(screen, result, store=store, agent=None, said=result.final_text, driven=driven, under=under)


async def _root(runner: TaskRunner, row: TaskRow) -> str | None:
    """Return the task that a child goes on with, which is nobody's child; None of a task that goes on by itself."""
    under = None
    while row.parent is not None:
        under = row.parent
        row = await runner.store.row(under)
    return under
