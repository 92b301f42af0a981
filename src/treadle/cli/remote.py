"""Commands on a server, by `--url`: they read from the server instead of a store."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Collection
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from treadle.client import Client
from treadle.core.events import Event
from treadle.drivers.arguments import NEWEST
from treadle.errors import ConfigurationError, TaskNotFound
from treadle.ports import TaskRow
from treadle.results.tasks import Task, TaskSummary
from treadle.runner.runner import TaskRunner
from treadle.runner.stored_events import StoredEvents
from treadle.stores.private_files import TOKEN_FILE, private_token

FoundTask: TypeAlias = TaskRow | Task[Any]
"""A task that a person named: a row of the store, or a task of the server."""

TOKEN: Final = "TREADLE_TOKEN"  # noqa: S105  the name of a variable
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_PAGE: Final = 100
_GOES_ON: Final = frozenset({"created", "running", "waiting"})

CODE_IS_ON_SERVER: Final = "--agent and --model are for the process that drives: leave them out with --url"


def client_of(url: str) -> Client:
    """Return a client of a server.

    Its token is TREADLE_TOKEN; for a server on this machine it defaults to the one in `.treadle/server-token`.

    Raises:
        ConfigurationError: that file belongs to another user, or other users may read it.
    """
    return Client(url, token=token_for(url))


def token_for(url: str) -> str | None:
    """Return the token for a server, if there is one; see `client_of`."""
    token = os.environ.get(TOKEN) or None
    # The whole host name is compared, since a token of this machine must not reach localhost.attacker.example.
    if token is None and _host_of(url) in _LOOPBACK and TOKEN_FILE.is_file():
        token = private_token(TOKEN_FILE, f"write the token of your server to {TOKEN}")
    return token


def _host_of(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:  # not a URL: `Client` reports it
        return None


async def task_of(runner: TaskRunner, task_id: str) -> FoundTask:
    """Return a task by its id."""
    if isinstance(runner, Client):
        return await runner.get_task(task_id)
    return await runner.store.row(task_id)


async def will_continue(runner: TaskRunner, task_id: str, decided: Collection[str]) -> bool:
    """Return whether a driver works or will work on a task: no request is open, or a command is unread.

    Args:
        runner: a runner or a client.
        task_id: the task.
        decided: ids of requests that were decided here; a driver may not have read them yet.
    """
    if isinstance(runner, Client):
        task = await runner.get_task(task_id)
        if task.driven or task.state not in _GOES_ON:
            return task.driven
        items = [item async for item in await runner.list_pending(task_id) if item.kind != "background"]
        return all(item.request_id in decided for item in items)
    row = await runner.store.row(task_id)
    return row.due_at == 1 or row.driver is not None or bool(await runner.store.inbox(task_id))


async def has_continued(runner: TaskRunner, task_id: str, seq: int) -> bool:
    """Return whether a task has events after `seq`, or a driver at work on it."""
    task = await task_of(runner, task_id)
    return task.head > seq or (task.driven if isinstance(task, Task) else task.driver is not None)


async def events_after(runner: TaskRunner, task_id: str, seq: int) -> list[Event]:
    """Return a task's events after `seq`, including those shared with the task it was forked from."""
    if isinstance(runner, Client):
        page = await runner.get_events(task_id, after=seq, limit=500)
        return [event async for event in page]
    return list(await StoredEvents(runner.store, task_id).after(seq))


async def find_on_server(client: Client, name: str, shortest: int) -> Task[Any]:
    """Return the server's task with an id, a unique end or beginning of one, or `last`.

    Raises:
        TaskNotFound: no task matches.
        ConfigurationError: several tasks match.
    """
    if name != NEWEST:
        try:
            return await client.get_task(name)
        except TaskNotFound as error:
            unknown = error
        fitting = [item async for item in _all(client) if _fits(item.task_id, name, shortest)]
        ids = {item.task_id for item in fitting}
        fitting = [item for item in fitting if item.parent not in ids]
        if len(fitting) > 1:
            some = ", ".join([item.task_id for item in fitting[:4]])
            raise ConfigurationError(
                f"{name!r} fits {len(fitting)} tasks: {some}; give more of the end of the id"
            )
        if not fitting:
            raise unknown
        return await client.get_task(fitting[0])
    async for item in _all(client):
        if item.parent is None:
            return await client.get_task(item)
    raise TaskNotFound(f"{client!r} has no task yet")


def _fits(task_id: str, name: str, shortest: int) -> bool:
    return task_id.endswith(name) or (len(name) >= shortest and task_id.startswith(name))


async def _all(client: Client) -> AsyncIterator[TaskSummary]:
    async for item in await client.list_tasks(limit=_PAGE):
        yield item
