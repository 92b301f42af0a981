"""`pending`, `approve`, `deny` and `answer`: what waits for a person, and the decision, from any process."""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

import typer

from treadle.cli.command import AgentOption, ByOption, Session, command, json_argument
from treadle.cli.control import print_recorded, register_agents
from treadle.cli.outcome import print_pending_items
from treadle.cli.task_lookup import TaskArgument, find_task
from treadle.core.messages import Json
from treadle.errors import ConfigurationError
from treadle.runner.deciding import read_answer, values_of
from treadle.runner.runner import TaskRunner

RequestArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[REQUEST]",
        help="Id of the request, as `treadle pending` has it; needed if several are pending.",
    ),
]


@command
async def pending(
    session: Session,
    task: Annotated[
        str | None,
        typer.Argument(
            metavar="[TASK]", help="Only this task and those below it: its id, a unique end of it, or `last`."
        ),
    ] = None,
    thread: Annotated[str | None, typer.Option("--thread", help="Only tasks in this thread.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=200, help="The most requests to list.")] = 100,
    cursor: Annotated[
        str | None, typer.Option("--cursor", help="Continue after the page that ended with this cursor.")
    ] = None,
) -> int:
    """List what waits for a person: calls to approve, questions, and calls whose outcome is unknown."""
    async with session.runner() as runner:
        if task is not None and thread is not None:
            raise ConfigurationError("pending takes TASK or --thread, not both")
        task_id = (await find_task(runner, task)).task_id if task is not None else None
        page = await runner.list_pending(task_id, thread_id=thread, limit=limit, cursor=cursor)
    items = page.items
    session.screen.document({"items": items, "cursor": page.cursor})
    for task_id in dict.fromkeys(item.task_id for item in items):
        session.screen.line(("● ", "yellow"), task_id)
        print_pending_items(session, [item for item in items if item.task_id == task_id])
    if not items:
        session.screen.note("nothing waits for a person")
    if page.cursor is not None:
        session.screen.note(f"more: --cursor {page.cursor}")
    return 0


@command
async def approve(
    session: Session,
    task: TaskArgument,
    request: RequestArgument = None,
    arguments: Annotated[
        str | None,
        typer.Option("--arguments", metavar="JSON", help="Run the call with these arguments, all of them."),
    ] = None,
    scope: Annotated[
        Literal["once", "task", "thread", "always"],
        typer.Option(
            "--scope",
            help="`task`, `thread`, `always`: also later calls there that this rule asks about.",
        ),
    ] = "once",
    same: Annotated[
        list[str] | None,
        typer.Option(
            "--same", metavar="ARGUMENT", help="With --scope task: only while this argument stays the same."
        ),
    ] = None,
    agent: AgentOption = None,
    by: ByOption = None,
) -> int:
    """Let a call start that waits for an approval; the task goes on at the next resume, or by its driver.

    Arguments are checked against the tool's schema if the code of the task's agent is found.
    """
    value: Any = json_argument(arguments, "approve --arguments") if arguments is not None else None
    if arguments is not None and not isinstance(value, dict):
        raise ConfigurationError(f"the arguments of a call are a JSON object, not {arguments}")
    async with session.runner() as runner:
        row = await find_task(runner, task)
        edited = cast("dict[str, Json] | None", value)
        if edited is not None or agent is not None:
            await register_agents(session, runner, row, agent)
        await runner.approve(row.task_id, request, arguments=edited, scope=scope, same=same or (), by=by)
        await print_recorded(session, runner, row)
    return 0


@command
async def deny(
    session: Session,
    task: TaskArgument,
    request: RequestArgument = None,
    reason: Annotated[
        str | None, typer.Option("--reason", help="The reason; the model is told, and it is recorded.")
    ] = None,
    stop: Annotated[bool, typer.Option("--stop", help="Also cancel the task.")] = False,
    by: ByOption = None,
) -> int:
    """Refuse a call that waits for an approval; the task goes on at the next resume, or by its driver."""
    async with session.runner() as runner:
        row = await find_task(runner, task)
        await runner.deny(row.task_id, request, reason=reason, stop=stop, by=by)
        await print_recorded(session, runner, row)
    return 0


@command
async def answer(
    session: Session,
    task: TaskArgument,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[REQUEST] VALUE",
            help="The id of the question, if several are pending, and the answer: JSON, or the text itself.",
        ),
    ],
    agent: AgentOption = None,
    by: ByOption = None,
) -> int:
    """Answer a question of a tool or a step; the task goes on at the next resume, or by its driver."""
    if len(words) > 2:
        raise ConfigurationError(
            "answer takes TASK [REQUEST] VALUE: put an answer of several words in quotes"
        )
    request, written = (words[0], words[1]) if len(words) == 2 else (None, words[0])
    async with session.runner() as runner:
        row = await find_task(runner, task)
        items = [item async for item in await runner.list_pending(row.task_id)]
        asked = [item for item in items if item.kind == "question" and request in (None, item.request_id)]
        wanted = [item.arguments.get(item.argument) for item in items if item.argument is not None]
        if wanted or agent is not None:
            await register_agents(session, runner, row, agent)
        values = values_of(written, wanted[0] if wanted else None)
        if asked:
            values = [read_answer(written, asked[0].schema if len(asked) == 1 else True)]
        await _answer(runner, row.task_id, request, values, by)
        await print_recorded(session, runner, row)
    return 0


async def _answer(
    runner: TaskRunner, task_id: str, request: str | None, values: list[Json], by: str | None
) -> None:
    """Answer with the first value that fits; raise what is wrong with the first one if none does."""
    refusal: ConfigurationError | None = None
    for value in values:
        try:
            return await runner.answer(task_id, request, value=value, by=by)
        except ConfigurationError as error:
            refusal = refusal or error
    assert refusal is not None, "there is a value"
    raise refusal
