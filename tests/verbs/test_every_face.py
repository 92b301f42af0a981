"""Every verb of the table on every face, against the async verb of a runner: the result, the error and the events.

A row of `CALLS` is a situation and the arguments of a verb. All faces of a verb that reads read one task. A verb that
changes something gets a task of its own from each face; ids and times are made equal before the comparison.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx2
import pytest

from tests.client.served import TOKEN, ann
from tests.client.served import client as client_of
from tests.server.hosting import hosted
from tests.verbs import situations as s
from tests.verbs.situations import AGENTS, MATH, Prepared
from treadle import Agent, Client, File, Happened, Message, Runner, Text
from treadle.cli.command import CODES
from treadle.cli.main import main
from treadle.client.client import COMPOSED
from treadle.errors import TaskNotFound
from treadle.results.problem_documents import error_from_wire
from treadle.results.wire import to_wire
from treadle.runner.handle import RunHandle
from treadle.runner.runner import TaskRunner
from treadle.server import ServerLimits, app
from treadle.verbs.operation import Operation
from treadle.verbs.table import OPERATIONS

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Call:
    """A situation, the arguments of the verb in it, the command that does the same, and the name of the error."""

    prepare: s.Prepare
    arguments: Callable[[Prepared], dict[str, Any]]
    command: Callable[[Prepared], list[str]] | None = None
    raises: str | None = None


def _of_task(prepare: s.Prepare, *command: str, raises: str | None = None, **arguments: Any) -> Call:
    """Return a call on the task; `command` has the words of its command after the id of the task."""
    return Call(
        prepare,
        lambda it: {"task": it.task, **arguments},
        (lambda it: [command[0], it.task, *command[1:]]) if command else None,
        raises,
    )


def _of_thread(prepare: s.Prepare, **arguments: Any) -> Call:
    return Call(prepare, lambda it: {"thread_id": it.thread, **arguments})


def _of_new_task(prepare: s.Prepare = s.no_task, **more: Any) -> Call:
    """Return a call that makes a task, or finds the one of its id."""
    arguments = {"agent": MATH, "input": "Go", **more}
    return Call(prepare, lambda it: {"task_id": it.task, "thread_id": it.thread, **arguments})


def _labelled(prepare: s.Prepare, **arguments: Any) -> Call:
    """Return a call for all tasks with the label of the case."""
    return Call(prepare, lambda it: {"labels": {"case": it.task}, **arguments})


def _of_ticket(name: str, word: str, **arguments: Any) -> Call:
    return Call(
        s.awaiting_job,
        lambda it: {"ticket": it.ids.get("ticket", "none"), "task": it.task, **arguments},
        lambda it: [name, it.ids["ticket"], word],
    )


MESSAGES = [Message("user", (Text("Hi"),)), Message("assistant", (Text("Hello."),))]

CALLS: dict[str, Call] = {
    "get_agents": Call(s.no_task, lambda it: {}),
    "list_tasks": _labelled(s.talked, limit=2, state=["completed", "failed"], roots=True),
    "count_tasks": _labelled(s.talked),
    "usage": _labelled(s.talked, by="agent"),
    "list_pending": _of_thread(s.awaiting_approval, limit=1),
    "list_threads": Call(s.talked, lambda it: {"limit": 200}),
    "get_thread": _of_thread(s.talked),
    "list_grants": _of_thread(s.granted),
    "diff": Call(s.booked, lambda it: {"a": it.task, "b": it.ids.get("fork", "none")}),
    "get_task": _of_task(s.stepped),
    "get_task of a past": _of_task(s.stepped, at=1),
    "get_result": _of_task(s.ended),
    "list_pending_of_task": _of_task(s.awaiting_answer),
    "get_artifact": _of_task(s.drawn, artifact_id="s1-0-a1"),
    "get_artifact that is unknown": _of_task(s.drawn, artifact_id="s9-0-a1", raises="ArtifactNotFound"),
    "get_events": _of_task(s.stepped, after=2, limit=3, kinds=["step_started", "step_completed"]),
    "get_steps": _of_task(s.ended, after=1, limit=1),
    "get_upcoming_steps": _of_task(s.stepped),
    "get_step": _of_task(s.stepped, step="s1"),
    "get_step that is unknown": _of_task(s.stepped, step="s9", raises="StepNotFound"),
    "get_request": _of_task(s.stepped, step=1),
    "get_lineage": _of_task(s.led, limit=1),
    "verify": _of_task(s.ended),
    "create_task": _of_new_task(extra_state={"n": 1}),
    "create_task that exists": Call(
        s.stepped, lambda it: {"agent": MATH, "input": "Other", "task_id": it.task}, raises="TaskConflict"
    ),
    "run_step": _of_task(s.stepped, input="And?"),
    "run_step that is decided on first": _of_task(s.awaiting_approval, raises="TaskParked"),
    "run_step after a failed one": _of_task(s.failed_step),
    "run_step after another event": _of_task(s.stepped, expect=99, raises="TaskMoved"),
    "resume": _of_task(s.stepped),
    "resume of a failed task": _of_task(s.failed_step),
    "resume after another event": _of_task(s.stepped, expect=99, raises="TaskMoved"),
    "send": _of_task(s.stepped, "send", "And?", message="And?"),
    "send an observation": _of_task(
        s.stepped, "send", "And?", "--role", "observation", message="And?", role="observation"
    ),
    "pause": _of_task(s.stepped, "pause", "--reason", "lunch", reason="lunch"),
    "interrupt": _of_task(s.stepped, "interrupt", "--reason", "lunch", reason="lunch"),
    "cancel": _of_task(s.stepped, "cancel", "--reason", "lunch", reason="lunch"),
    "settle": _of_task(
        s.unknown_outcome, "settle", "s1-0", '"it"', "--happened", request_id="s1-0", verdict=Happened("it")
    ),
    "settle what is known": _of_task(
        s.stepped, request_id="s1-0", verdict=Happened("it"), raises="AlreadyDecided"
    ),
    "approve": _of_task(s.awaiting_approval, "approve", "--scope", "thread", scope="thread"),
    "approve calls with the same argument": _of_task(s.awaiting_approval, scope="task", same=["amount"]),
    "approve other arguments": _of_task(s.awaiting_approval, arguments={"amount": 2}),
    "approve with arguments of another type": _of_task(
        s.awaiting_approval, arguments={"amount": "two"}, raises="ConfigurationError"
    ),
    "approve nothing": _of_task(s.stepped, raises="CallNotFound"),
    "deny": _of_task(s.awaiting_approval, "deny", "--reason", "too much", reason="too much"),
    "answer": _of_task(s.awaiting_answer, "answer", '"this"', value="this"),
    "complete": _of_ticket("complete", '"it"', value="it"),
    "fail": _of_ticket("fail", "no paper", error="no paper"),
    "progress": _of_ticket("progress", "0.5", value=0.5),
    "revoke": Call(s.granted, lambda it: {"grant_id": it.ids.get("grant", "none")}),
    "revoke nothing": Call(s.no_task, lambda it: {"grant_id": "none"}, raises="GrantNotFound"),
    "undo": _of_task(s.booked, "undo", "--step", "1", step=1),
    "undo without a change": _of_task(s.booked, "undo", "--to", "0", "--dry-run", to=0, dry_run=True),
    "undo an unknown step": _of_task(s.booked, step=9, raises="StepNotFound"),
    "fork": Call(s.booked, lambda it: {"task": it.task, "at": 1, "input": "Else", "task_id": f"{it.task}-2"}),
    "finalize": _of_task(s.answered),
    "finalize too early": _of_task(s.stepped, raises="TaskUnfinished"),
    "edit_step": _of_task(s.stepped, "edit", "--input", "And?", input="And?"),
    "edit_call": _of_task(
        s.proposed_call,
        "edit",
        "s1-0",
        '{"a": 1, "b": 2}',
        call_id="s1-0",
        arguments={"a": 1, "b": 2},
    ),
    "skip_step": _of_task(s.failed_step),
    "compact_thread": _of_thread(s.talked, keep=1),
    "import_thread": _of_thread(s.no_task, messages=MESSAGES),
    "run": _of_new_task(),
    "run of a task that exists": _of_new_task(s.ended),
    "run_ready_steps": _of_task(s.stepped),
    "get_completed_steps": _of_task(s.ended),
    "delete_task": _of_task(s.ended),
    "delete_thread": _of_thread(s.talked),
    "prune": _labelled(s.talked, older_than=0.0),
}


SEVERAL_REQUESTS = {
    name: Operation(name=name, method=method, path="", access="run", summary="", verb=name)
    for name, method in (*(("run", "POST"), ("run_ready_steps", "POST"), ("get_completed_steps", "GET")),)
}
"""The verbs without a row that return a result: a client sends several requests."""


def row_of(name: str) -> Operation:
    verb = name.partition(" ")[0]
    return OPERATIONS.get(verb) or SEVERAL_REQUESTS[verb]


def test_every_verb_of_the_table_has_a_call():
    rows = {row.name for row in OPERATIONS.values() if row.verb}
    assert {row_of(name).name for name in CALLS} == rows | set(SEVERAL_REQUESTS)
    others = {"run_stream", "stream_step", "changes", "submit"}  # an adopter goes on with what was submitted
    assert set(COMPOSED) - others - {row.verb for row in OPERATIONS.values()} == set(SEVERAL_REQUESTS)


# ------------------------------------------------------------------------------------------------- faces


@dataclass
class World:
    """A runner, a server over it, and a client of the server."""

    runner: Runner
    http: httpx2.AsyncClient
    client: Client


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def world() -> AsyncIterator[World]:
    async with Runner("memory:", agents=AGENTS) as runner:
        api = app(runner, auth=ann, limits=ServerLimits(requests_per_second=1_000))
        async with api.lifespan(), hosted(api, api.leave) as http:
            http.headers["Authorization"] = f"Bearer {TOKEN}"
            async with client_of(str(http.base_url), agents=AGENTS) as client:
                yield World(runner, http, client)


Face = Callable[[World, Operation, dict[str, Any]], Awaitable[Any]]


def _handled(handle: Any, row: Operation, arguments: dict[str, Any]) -> Callable[[], Any]:
    return partial(
        getattr(handle, row.verb), **{name: value for name, value in arguments.items() if name != "task"}
    )


def _faces_of(name: str, runner_of: Callable[[World], TaskRunner]) -> dict[str, Face]:
    """Return the faces of a runner or of a client."""

    async def by_async(world: World, row: Operation, arguments: dict[str, Any]) -> Any:
        return await getattr(runner_of(world), row.verb)(**arguments)

    async def by_sync(world: World, row: Operation, arguments: dict[str, Any]) -> Any:
        return await asyncio.to_thread(partial(getattr(runner_of(world).sync, row.verb), **arguments))

    async def by_handle(world: World, row: Operation, arguments: dict[str, Any]) -> Any:
        return await _handled(runner_of(world).handle(arguments["task"]), row, arguments)()

    async def by_sync_handle(world: World, row: Operation, arguments: dict[str, Any]) -> Any:
        handle = runner_of(world).sync.handle(arguments["task"])
        return await asyncio.to_thread(_handled(handle, row, arguments))

    return {
        f"{name}": by_async,
        f"{name}.sync": by_sync,
        f"handle of {name}": by_handle,
        f"handle of {name}.sync": by_sync_handle,
    }


async def by_request(world: World, row: Operation, arguments: dict[str, Any]) -> Any:
    """Send the request of a row; return the document of the response, or raise the error in it."""
    named = {
        name: value.name if isinstance(value, Agent) else to_wire(value) for name, value in arguments.items()
    }
    query = {
        name: [f"{key}={text}" for key, text in value.items()] if isinstance(value, dict) else value
        for name, value in named.items()
        if name in row.query
    }
    headers = {"Prefer": "wait=10"} if row.waits is not None else {}
    if "command_id" in named:
        headers["Idempotency-Key"] = str(named["command_id"])
    if "expect" in named:
        headers["If-Match"] = f'"{named["expect"]}"'
    body = None if row.body is None else {name: named[name] for name in row.body if name in named}
    response = await world.http.request(
        row.method, row.path.format(**named), params=query, json=body, headers=headers
    )
    if response.is_error:
        raise error_from_wire(response.json())
    assert response.status_code == row.status
    if row.media != "application/json":
        return response.content
    return response.json() if response.content else None


FACES: dict[str, Face] = {
    **_faces_of("runner", lambda world: world.runner),
    **_faces_of("client", lambda world: world.client),
    "request": by_request,
}


def has_verb(face: str, row: Operation) -> bool:
    if not face.startswith("handle"):
        return face != "request" or row.path != ""
    return row.name == "list_pending_of_task" or (
        "task" in row.parameters and row.verb != "list_pending" and hasattr(RunHandle, row.verb)
    )


# -------------------------------------------------------------------------------------------- comparison

OF_ONE_TASK = re.compile(
    r"\b1[6-9]\d{14}\b|\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b[0-9a-f]{12,64}\b"
)
"""A time in microseconds, an id that was drawn at random, or a digest."""

STORE = re.compile(" in (memory:|this store)$")
"""The address of the store is not shown to strangers."""

MEASURED = {"duration", "latency", "incarnation"}
BY_CALLER = {"may_decide"}
"""The fields that depend on who asks: the clients have names."""


def alike(value: Any, task: str, *left_out: str) -> Any:
    """Return a document in which ids, times and digests of one task are those of any other."""

    def without(document: dict[str, Any]) -> dict[str, Any]:
        return {
            name: each for name, each in document.items() if name not in (*MEASURED, *BY_CALLER, *left_out)
        }

    text = json.dumps(value, sort_keys=True).replace(task, "TASK")
    return json.loads(OF_ONE_TASK.sub("0", text), object_hook=without)


def difference(one: Any, other: Any, path: str = "") -> str:
    """Return the first place in which two documents differ; "" if they are equal."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return next(
            (found for name in one if (found := difference(one[name], other[name], f"{path}.{name}"))), ""
        )
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return next((found for n, pair in pairs if (found := difference(*pair, f"{path}[{n}]"))), "")
    return "" if one == other else f"{path}: {one!r:.300} and {other!r:.300}"


async def outcome(world: World, face: Face, row: Operation, arguments: dict[str, Any]) -> Any:
    """Return the result of a verb as it is over HTTP, or its error."""
    try:
        async with asyncio.timeout(60):
            result = await face(world, row, arguments)
    except Exception as error:  # noqa: BLE001  whichever it is
        return {"raised": type(error).__name__, "says": STORE.sub("", str(error))}
    if isinstance(result, File):
        return {"returned": repr(result.data)}
    return {"returned": repr(result) if isinstance(result, bytes) else to_wire(result)}


async def commands_to(world: World, task: str) -> Any:
    """Return the events of a task that a caller caused: a driver may go on at once, and writes others."""
    try:
        events = to_wire([event async for event in await world.runner.get_events(task, limit=500)])
    except TaskNotFound:
        return "no such task"
    return [event for event in events if event.get("by") or event.get("inbox")]


async def standing(world: World, task: str) -> Any:
    """Return the last event of a task and whether it is driven, which a verb that is refused does not change."""
    try:
        now = await world.runner.get_task(task)
    except TaskNotFound:
        return None
    return now.head, now.driven


def completed(row: Operation, arguments: dict[str, Any]) -> dict[str, Any]:
    """Add what says by whom a command comes, and that it is one command."""
    more = {"command_id": "c1"} if "command_id" in row.parameters else {}
    by = {"by": "ann"} if "by" in row.parameters and row.method != "GET" else {}
    return {**arguments, **more, **by}


async def on_every_face(world: World, name: str, prepare: s.Prepare) -> Any:
    """Assert that a call has one outcome on every face; return it: the result or the error, and the commands."""
    row, expected = row_of(name), None
    prepared: Prepared | None = None
    for number, (face, call) in enumerate(FACES.items()):
        if not has_verb(face, row):
            continue
        if prepared is None or row.method != "GET":
            task = f"case-{prepare.__name__}-{name}-{number}-".replace(" ", "-")
            prepared = await prepare(world.runner, task)
        arguments = completed(row, CALLS[name].arguments(prepared))
        before = await standing(world, prepared.task)
        result = await outcome(world, call, row, arguments)
        if result.get("raised") not in (None, "TaskParked"):  # a step that has to wait was begun
            assert await standing(world, prepared.task) == before, f"{name} by the {face} was refused"
        commands = None if row.method == "GET" else await commands_to(world, prepared.task)
        seen = alike([result, commands], prepared.task)
        expected = seen if expected is None else expected
        if differs := difference(seen, expected):
            pytest.fail(f"{name} by the runner and by the {face} differ: {differs}")
    return expected


OF_OTHER_TASKS = {
    *("fork", "compact_thread", "import_thread", "delete_task", "delete_thread", "prune", "revoke"),
    *("progress", "undo without a change", "run of a task that exists"),
}
"""The calls whose caller no event of the task names."""


@pytest.mark.parametrize("name", CALLS)
async def test_a_verb_returns_raises_and_records_the_same_on_every_face(world: World, name: str):
    result, commands = await on_every_face(world, name, CALLS[name].prepare)
    assert result.get("raised") == CALLS[name].raises
    if "by" in completed(row_of(name), {}) and CALLS[name].raises is None and name not in OF_OTHER_TASKS:
        assert "ann" in [command.get("by") for command in commands], "the caller is named"


@pytest.mark.parametrize("name", [name for name in OPERATIONS if "task" in row_of(name).parameters])
async def test_a_verb_on_a_task_that_does_not_exist_is_the_same_error_on_every_face(world: World, name: str):
    result, _ = await on_every_face(world, name, s.no_task)
    of_all_tasks = name == "list_pending"
    assert of_all_tasks or result["raised"] == {"progress": "TicketNotFound"}.get(name, "TaskNotFound")


REFUSED_AT_THE_END = {
    **dict.fromkeys(("run_step", "send", "edit_step", "edit_call"), "TaskFinished"),
    **dict.fromkeys(("approve", "deny", "answer", "complete", "fail"), "CallNotFound"),
    "settle": "AlreadyDecided",
    "progress": "TicketNotFound",
    "skip_step": "StepNotFound",
}
"""The error of each command that a task that has ended does not take."""


@pytest.mark.parametrize(
    "name", [name for name, row in OPERATIONS.items() if "task" in row.parameters and row.method == "POST"]
)
async def test_a_command_to_a_task_that_has_ended_is_the_same_on_every_face(world: World, name: str):
    result, _ = await on_every_face(world, name, s.ended)
    assert result.get("raised") == REFUSED_AT_THE_END.get(name)


@pytest.mark.parametrize("name", [name for name, call in CALLS.items() if call.command is not None])
async def test_a_command_line_records_what_its_verb_does(
    world: World, name: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TREADLE_TOKEN", TOKEN)
    row, call = row_of(name), CALLS[name]

    async def recorded(face: str, act: Callable[[Prepared], Awaitable[object]]) -> Any:
        prepared = await call.prepare(world.runner, f"case-by-{face}-{name}-".replace(" ", "-"))
        await act(prepared)
        return alike(await commands_to(world, prepared.task), prepared.task, "inbox")

    async def by_verb(prepared: Prepared) -> None:
        await getattr(world.runner, row.verb)(**call.arguments(prepared), by="ann")

    async def by_command(prepared: Prepared) -> None:
        assert call.command is not None
        words = [*call.command(prepared), "--url", str(world.http.base_url)]
        assert await asyncio.to_thread(main, words) in (0, CODES["waiting"])

    assert difference(await recorded("verb", by_verb), await recorded("command", by_command)) == ""
