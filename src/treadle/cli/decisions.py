"""Options that select several requests for one command, and the loop that decides and prints each."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated

import typer

from treadle.cli.command import Session, option
from treadle.cli.filters import find_task
from treadle.cli.screen import short, some
from treadle.core.data import frozen
from treadle.core.display import exact_json, exact_text
from treadle.core.messages import Json
from treadle.errors import ConfigurationError, TreadleError
from treadle.results.pending import Pending
from treadle.runner.runner import TaskRunner

_SHOWN = 20

DecidingAgentOption = Annotated[
    str | None,
    typer.Option(
        "--agent",
        metavar="NAME",
        help="Without TASK, and with --all or --tool: only requests of tasks of the agent of this name. With TASK: "
        "the place to import its agent from, as MODULE:AGENT.",
    ),
]


@frozen(kw_only=True)
class RequestOptions:
    """A selection of requests: all that match every option on the command line."""

    all: Annotated[
        bool,
        typer.Option("--all", help="Decide on all requests, of all tasks or of TASK and those below it."),
    ] = False
    tool: Annotated[
        list[str] | None, option("NAME", "Only requests of calls of this tool; may be repeated.")
    ] = None
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask before deciding on several requests.")
    ] = False

    def select_any(self, task: str | None, agent: str | None) -> bool:
        """Return whether the options select requests; raise `ConfigurationError` if TASK does not either."""
        if self.all or self.tool:
            return True
        if task is None and agent is None:
            raise ConfigurationError(
                "which requests? Name a task (TASK), or several requests by --all, --tool NAME or --agent NAME"
            )
        return task is None

    async def requests(
        self, runner: TaskRunner, task: str | None, agent: str | None, fits: Callable[[Pending], bool]
    ) -> list[Pending]:
        """Return the selected pending requests that a command can decide."""
        task_id = (await find_task(runner, task)).task_id if task is not None else None
        pending = [item async for item in await runner.list_pending(task_id)]
        items = {(item.task_id, item.request_id): item for item in pending if fits(item)}.values()
        if self.tool:
            items = [item for item in items if item.tool in self.tool]
        if agent is not None:
            ids = dict.fromkeys(item.task_id for item in items)
            names = {each: (await runner.get_task(each)).agent for each in ids}
            items = [item for item in items if names[item.task_id] == agent]
        return list(items)


async def decide_each(
    session: Session,
    verb: str,
    done: str,
    items: Sequence[Pending],
    act: Callable[[Pending], Awaitable[None]],
    *,
    yes: bool,
) -> int:
    """Show the requests, ask a person unless `yes`, decide each, and print the decisions.

    Args:
        session: the session of the command.
        verb: the verb of the command, such as `approve`.
        done: its past participle, such as `approved`.
        items: the requests.
        act: decides one request.
        yes: do not ask.

    Returns:
        0 if all were decided, else 1.

    Raises:
        ConfigurationError: no person can be asked, and `yes` is false.
    """
    screen = session.screen
    screen.document({"items": [], "cursor": None})
    if not items:
        screen.note("no request that this command could decide matches")
        return 0
    if not yes and not _is_confirmed(session, verb, items):
        return 1
    decisions = [await _decision(session, done, item, act) for item in items]
    document: list[Json] = [
        {"task_id": item.task_id, "request_id": item.request_id, "state": state}
        for item, state in zip(items, decisions, strict=True)
    ]
    screen.document({"items": document, "cursor": None})
    count = decisions.count(done)
    is_whole = count == len(items)
    screen.note((f"{done} {count} of {some(len(items), 'request')}", "green" if is_whole else "red"))
    return 0 if is_whole else 1


async def _decision(
    session: Session, done: str, item: Pending, act: Callable[[Pending], Awaitable[None]]
) -> str:
    """Decide a request, print the decision, and return `done` or `refused`."""
    state, detail = done, _call(item)
    try:
        await act(item)
    except TreadleError as error:
        state, detail = "refused", str(error)
    style = "green" if state == done else "red"
    label = f"  {session.screen.short(item.task_id)}  {item.request_id}  "
    session.screen.line(("● ", style), (state, style), label, short(detail, 120))
    return state


def _is_confirmed(session: Session, verb: str, items: Sequence[Pending]) -> bool:
    """Show requests, and return whether a person confirms the decision."""
    screen, count = session.screen, some(len(items), "request")
    for item in items[:_SHOWN]:
        label = f"  {item.request_id}  {short(_call(item), 120)}"
        screen.note((screen.short(item.task_id), "bold"), label)
    if len(items) > _SHOWN:
        screen.note((f"and {len(items) - _SHOWN} more", "dim"))
    if not (sys.stdin.isatty() and screen.err.is_terminal):
        raise ConfigurationError(f"to {verb} {count} without being asked, add --yes")
    return typer.confirm(f"{verb} {count}?", err=True)


def _call(item: Pending) -> str:
    """Return a request's call with its exact arguments; for a step's question, its text."""
    return f"{item.tool}({exact_json(item.arguments)})" if item.tool else exact_text(item.text)
