"""`pending`, `approve`, `deny` and `answer`: list open requests and decide them, from any process."""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

import typer

from treadle.cli.command import ByOption, Session, command, json_argument, option
from treadle.cli.control import print_recorded, register_agents
from treadle.cli.decisions import DecidingAgentOption, RequestOptions, decide_each
from treadle.cli.filters import ManyArgument, find_task
from treadle.cli.outcome import print_pending_items
from treadle.core.messages import Json
from treadle.errors import ConfigurationError
from treadle.results.pending import Pending
from treadle.runner.deciding import read_answer, values_of
from treadle.runner.runner import TaskRunner

RequestArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[REQUEST]",
        help="Id of the request in `treadle pending`; needed if several are pending.",
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
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=200, help="Maximum number of requests to list.")
    ] = 100,
    cursor: Annotated[
        str | None, typer.Option("--cursor", help="Continue after the page that ended with this cursor.")
    ] = None,
) -> int:
    """List the open requests of tasks: approvals, questions, unknown outcomes, calls of the caller, open tickets."""
    async with session.runner() as runner:
        if task is not None and thread is not None:
            raise ConfigurationError("pending takes TASK or --thread, not both")
        task_id = (await find_task(runner, task)).task_id if task is not None else None
        page = await runner.list_pending(task_id, thread_id=thread, limit=limit, cursor=cursor)
        own = (await runner.result(task_id)).pending if task_id is not None and not page.items else ()
        sleeps = [item.text for item in own if item.kind == "timer"]
    items = page.items
    session.screen.document({"items": items, "cursor": page.cursor})
    for task_id in dict.fromkeys(item.task_id for item in items):
        session.screen.line(("● ", "yellow"), session.screen.short(task_id))
        print_pending_items(session, [item for item in items if item.task_id == task_id])
    if not items:
        texts = ["nothing is pending", *sleeps]
        session.screen.note("; ".join(texts))
    if page.cursor is not None:
        session.screen.note(f"more: --cursor {page.cursor}")
    return 0


@command
async def approve(
    session: Session,
    task: ManyArgument = None,
    request: RequestArgument = None,
    *,
    which: RequestOptions,
    arguments: Annotated[
        str | None, option("JSON", "Run the call with these arguments, all of them.")
    ] = None,
    scope: Annotated[
        Literal["once", "task", "thread", "always"],
        typer.Option(
            "--scope", help="`task`, `thread`, `always`: also later calls there that this rule asks about."
        ),
    ] = "once",
    same: Annotated[
        list[str] | None, option("ARGUMENT", "With --scope task: only while this argument stays the same.")
    ] = None,
    agent: DecidingAgentOption = None,
    by: ByOption = None,
) -> int:
    """Approve a waiting call; the task goes on at the next resume, or by its driver.

    Arguments are checked against the tool's schema if the code of the task's agent is found. With --all, --tool or
    --agent instead of REQUEST, approve all calls that match these options.
    """
    value: Any = json_argument(arguments, "approve --arguments") if arguments is not None else None
    if arguments is not None and not isinstance(value, dict):
        raise ConfigurationError(f"the arguments of a call are a JSON object, not {arguments}")
    async with session.runner() as runner:
        if which.select_any(task, agent):
            _refuse_beside(request, "REQUEST")
            _refuse_beside(arguments, "--arguments")

            async def act(item: Pending) -> None:
                await runner.approve(item.task_id, item.request_id, scope=scope, same=same or (), by=by)

            items = await which.requests(runner, task, agent, _is_approval)
            return await decide_each(session, "approve", "approved", items, act, yes=which.yes)
        row = await find_task(runner, task or "")
        edited = cast("dict[str, Json] | None", value)
        if edited is not None or agent is not None:
            await register_agents(session, runner, row, agent)
        await runner.approve(row.task_id, request, arguments=edited, scope=scope, same=same or (), by=by)
        await print_recorded(session, runner, row)
    return 0


@command
async def deny(
    session: Session,
    task: ManyArgument = None,
    request: RequestArgument = None,
    *,
    which: RequestOptions,
    reason: Annotated[
        str | None, typer.Option("--reason", help="The reason, for the model and the record.")
    ] = None,
    stop: Annotated[bool, typer.Option("--stop", help="Also cancel the task.")] = False,
    agent: Annotated[str | None, option("NAME", "Only requests of tasks of the agent of this name.")] = None,
    by: ByOption = None,
) -> int:
    """Deny a waiting call; the task goes on at the next resume, or by its driver.

    With --all, --tool or --agent instead of REQUEST, deny all calls that match these options.
    """
    async with session.runner() as runner:
        if which.select_any(task, agent) or agent is not None:
            _refuse_beside(request, "REQUEST")
            _refuse_beside("--stop" if stop else None, "--stop")

            async def act(item: Pending) -> None:
                await runner.deny(item.task_id, item.request_id, reason=reason, by=by)

            items = await which.requests(runner, task, agent, _is_approval)
            return await decide_each(session, "deny", "denied", items, act, yes=which.yes)
        row = await find_task(runner, task or "")
        await runner.deny(row.task_id, request, reason=reason, stop=stop, by=by)
        await print_recorded(session, runner, row)
    return 0


@command
async def answer(
    session: Session,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[TASK] [REQUEST] VALUE",
            help="The task, by its id, a unique end or beginning of it, or `last`; the id of the question, if several "
            "are pending; and the answer: JSON, or the text itself.",
        ),
    ],
    *,
    which: RequestOptions,
    agent: DecidingAgentOption = None,
    by: ByOption = None,
) -> int:
    """Answer a question of a tool or a step; the task goes on at the next resume, or by its driver.

    With --all, --tool or --agent instead of REQUEST, give the same answer to all questions that match these options.
    """
    *before, written = words
    task = before[0] if before else None
    many = which.select_any(task, agent)
    if len(before) > (1 if many else 2):
        takes = "[TASK] VALUE with --all, --tool or --agent" if many else "TASK [REQUEST] VALUE"
        raise ConfigurationError(f"answer takes {takes}: put an answer of several words in quotes")
    async with session.runner() as runner:
        if many:

            async def act(item: Pending) -> None:
                value = read_answer(written, item.schema)
                await runner.answer(item.task_id, item.request_id, value=value, by=by)

            items = await which.requests(runner, task, agent, _is_question)
            return await decide_each(session, "answer", "answered", items, act, yes=which.yes)
        request = before[1] if len(before) == 2 else None
        row = await find_task(runner, before[0])
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


def _is_approval(item: Pending) -> bool:
    return item.kind == "approval"


def _is_question(item: Pending) -> bool:
    return item.kind == "question"


def _refuse_beside(value: str | None, name: str) -> None:
    """Raise `ConfigurationError` for an argument that is valid for a single request only."""
    if value is not None:
        raise ConfigurationError(f"{name} is for one request: leave out --all, --tool and --agent, or {name}")


async def _answer(
    runner: TaskRunner, task_id: str, request: str | None, values: list[Json], by: str | None
) -> None:
    """Answer with the first value that fits; if none does, raise the error of the first one."""
    refusal: ConfigurationError | None = None
    for value in values:
        try:
            return await runner.answer(task_id, request, value=value, by=by)
        except ConfigurationError as error:
            refusal = refusal or error
    assert refusal is not None, "there is a value"
    raise refusal
