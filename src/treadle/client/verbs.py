"""The verbs of a client as requests: most verbs are one request, by their row; the others are composed here.

    undo_step {task, to: 2} --> POST /v1/tasks/{task}/undo {"to": 2}
                                Idempotency-Key: the command's id     If-Match: expect     Prefer: wait=60
    UndoReport <-- from_wire <-- 200;   202: the same request again;   4xx: the error of its class

A verb that drives does not end with its connection. The task goes on, and the repeated request finds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar, cast

from treadle.agents.agent import Agent
from treadle.client.arguments import Given, RemoteArguments, content_of, set_fields
from treadle.client.connection import Attempts, Connection, Reply, path_of
from treadle.client.following import changes, follow, until_rest
from treadle.client.streams import AgentsHere, RemoteRun, RemoteStep, Way
from treadle.core.events import Ephemeral, Event
from treadle.core.header_text import to_header
from treadle.core.messages import Json
from treadle.core.tickets import task_of_ticket
from treadle.core.tracebacks import cause_of
from treadle.drivers.random_ids import new_id
from treadle.engine.options import RunOptions
from treadle.errors import (
    ConfigurationError,
    StepFailed,
    TaskBusy,
    TaskNotFound,
    TaskParked,
    TicketNotFound,
    TreadleError,
)
from treadle.results.pages import Page, TaskPage
from treadle.results.read_results import Lineage
from treadle.results.run_result import RunResult, is_disposable
from treadle.results.step_outputs import StepOutputs, TaskStepOutput
from treadle.results.tasks import Task, TaskSummary
from treadle.results.wire import from_wire, to_wire
from treadle.verbs.operation import Operation
from treadle.verbs.table import OPERATIONS, operation_of

LONGEST_WAIT: Final = 60.0
"""Seconds for which one request waits for a result; then it is sent again."""

_PAGE: Final = 50
"""Number of tasks that are read at once after missed changes."""

INTERRUPTING: Final = 10.0
"""Seconds for which a cancelled verb tries to interrupt its task; without a server the task goes on."""

R = TypeVar("R")


class RemoteVerbs:
    """Carries verbs out by requests to a server.

    Args:
        connection: the connection to the server.
        agents: the agents that are known here.
    """

    def __init__(self, connection: Connection, agents: AgentsHere) -> None:
        self.connection = connection
        self.agents = agents
        self._arguments = RemoteArguments(connection, agents)

    # ------------------------------------------------------------------------------------- one request

    async def call(self, verb: str, given: Given) -> Any:
        """Carry out a verb that is one request, and repeat it with the same key until it is done."""
        await self._arguments.check(verb, given)
        row = _row_of(verb, given)
        if verb == "fork":
            _task_id(given)
        path, body, headers = path_of(row, given), await self._arguments.body(row, given), _headers(given)
        query = [pair for name in row.query for pair in _query(name, given.get(name))]
        # A read returns the present state; `stopped` waits.
        wait = LONGEST_WAIT if row.waits is not None and row.method == "POST" else 0.0
        while True:
            reply = await self.connection.request(
                row.method, path, query=query, body=body, headers=headers, wait=wait
            )
            if reply.status != 202:
                break
            if row.result is RunResult:
                return await self.stopped(given["task"])
        if row.result is None:
            return None
        value = self.agents.typed(from_wire(row.result, reply.document))
        if isinstance(value, Page):
            page = cast("Page[Any, Any]", value)
            return page.followed_by(
                lambda cursor: self.call(verb, {**given, row.turned_by: cursor}), server=self.connection.url
            )
        if isinstance(value, Lineage):
            self._follow(value.children, {"parent": given["task"], "limit": given["limit"]})
            self._follow(value.forks, {"forked_from": given["task"], "limit": given["limit"]})
        return value

    def _follow(self, page: TaskPage, filters: Given) -> None:
        """Continue a page of a lineage with pages of `list_tasks`."""
        page.followed_by(lambda cursor: self.call("list_tasks", {**filters, "cursor": cursor}))

    # ------------------------------------------------------------------------------------ waiting for rest

    async def _waited(self, path: str) -> Reply:
        """Return the reply to a request for a result, once the task has one."""
        while True:
            reply = await self.connection.request("GET", path, wait=LONGEST_WAIT)
            if reply.status != 202:
                return reply

    async def stopped(self, task_id: str) -> RunResult[Any]:
        """Return the state of a task once it has stopped. A task with a lost driver has not: a driver adopts it."""
        reply = await self._waited(path_of(OPERATIONS["get_result"], {"task": task_id}))
        return self.agents.typed(from_wire(RunResult[Any], reply.document))

    async def _rest(self, task_id: str) -> int | None:
        """Return the last event of a task that has stopped; 0 for a deleted task, None for a running one."""
        path = path_of(OPERATIONS["get_result"], {"task": task_id})
        try:
            is_at_rest = (await self.connection.request("GET", path, wait=1.0)).status != 202
            return await self._head(task_id) if is_at_rest else None
        except TaskNotFound:
            return 0

    async def _or_interrupted(self, work: Callable[[], Awaitable[R]], task_id: str) -> R:
        """Return the result of some work; if the caller is cancelled, interrupt the task first."""
        try:
            return await work()
        except asyncio.CancelledError:
            interrupting = asyncio.ensure_future(self._interrupt(task_id))
            while not interrupting.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([interrupting])
            interrupting.result()
            raise

    async def _interrupt(self, task_id: str) -> None:
        """Interrupt a task if it exists and a server answers within `INTERRUPTING` seconds."""
        with suppress(TreadleError, TimeoutError):
            async with asyncio.timeout(INTERRUPTING):
                await self.call("interrupt", {"task": task_id})

    def events(
        self, task_id: str, *, after: int = 0, deltas: bool = True, follows: bool = False
    ) -> AsyncGenerator[Event | Ephemeral, None]:
        """Yield the events of a task until it stops, or with its states until it is deleted."""
        events = follow(self.connection, task_id, after=after, deltas=deltas)
        return events if follows else until_rest(events, lambda: self._rest(task_id), after)

    def changes(self, given: Given) -> AsyncGenerator[TaskSummary, None]:
        """Yield each task that changes."""
        del given  # the verb takes nothing
        return changes(
            self.connection, lambda since: self.call("list_tasks", {"updated_since": since, "limit": _PAGE})
        )

    async def _head(self, task_id: str) -> int:
        return (await self.call("get_task", {"task": task_id})).head

    # ------------------------------------------------------------------------------- making and running tasks

    async def _make(self, verb: str, given: Given, *, run: bool) -> Task[Any]:
        await self._arguments.check(verb, given)
        options: RunOptions | None = given.get("options")
        body: dict[str, Json] = {
            "agent": await self._arguments.name_of(given["agent"], options),
            "input": await content_of(given["input"]),
            "task_id": _task_id(given),
            "run": run,
        }
        body |= {name: given[name] for name in ("thread_id", "extra_state") if given.get(name) is not None}
        if options is not None:
            body["options"] = set_fields(to_wire(options))
        reply = await self.connection.request("POST", OPERATIONS["create_task"].path, body=body)
        return from_wire(Task[Any], reply.document)

    async def create_task(self, given: Given) -> Task[Any]:
        """Create a task; nothing runs."""
        return await self._make("create_task", given, run=False)

    async def submit(self, given: Given) -> Task[Any]:
        """Create a task for the server to drive."""
        return await self._make("submit", given, run=True)

    async def run(self, given: Given) -> RunResult[Any]:
        """Run a task to its next stop; delete it then if its options request that."""
        result = await self._run(given)
        await self._delivered(given, result)
        return result

    async def _run(self, given: Given) -> RunResult[Any]:
        async def work() -> RunResult[Any]:
            task = await self._make("run", given, run=True)
            return await self.stopped(task.task_id)

        return await self._or_interrupted(work, _task_id(given))

    async def _delivered(self, given: Given, result: RunResult[Any]) -> None:
        """Delete a task whose caller has the result, if its options request that and no other task needs it."""
        options: RunOptions | None = given.get("options")
        if options is None or not options.delete_on_finish or not is_disposable(result):
            return
        if (await self.call("list_tasks", {"forked_from": result.task_id, "limit": 1})).items:
            return
        with suppress(TaskBusy, TaskNotFound):
            await self.call("delete_task", {"task": result.task_id})

    def run_stream(self, given: Given) -> RemoteRun[Any]:
        """Return a run with its events. The task is watched before it is driven, so that no delta is missed."""
        task_id, agent = _task_id(given), given["agent"]
        if isinstance(agent, Agent):
            self.agents.add(agent)

        async def opened() -> int:
            await self._make("run_stream", given, run=False)
            return 0

        async def standing() -> RunResult[Any]:
            return await self.call("result", {"task": task_id})

        way = Way(
            opened, self._behind(task_id), partial(self._head, task_id), partial(self._run, given), standing
        )
        name = agent if isinstance(agent, str) else cast("Agent[Any]", agent).name
        return RemoteRun(task_id, way, self.agents.typed_of(name), partial(self._delivered, given))

    def _behind(self, task_id: str) -> Callable[[int], AsyncGenerator[Event | Ephemeral]]:
        """Return a function that yields the events of a task after a sequence number."""

        def events(after: int) -> AsyncGenerator[Event | Ephemeral]:
            return self.events(task_id, after=after, follows=True)

        return events

    async def resume(self, given: Given) -> RunResult[Any]:
        """Resume a task, and wait for its next stop unless `drive` is False."""
        await self._arguments.check("resume", given)
        task_id, drives, row = given["task"], given.get("drive", True), OPERATIONS["resume"]
        body, headers = await self._arguments.body(row, given), _headers(given)

        async def work() -> RunResult[Any]:
            path, wait = path_of(row, given), LONGEST_WAIT if drives else 0.0
            reply = await self.connection.request("POST", path, body=body, headers=headers, wait=wait)
            if reply.status != 202:
                return self.agents.typed(from_wire(RunResult[Any], reply.document))
            return await self.stopped(task_id) if drives else await self.call("result", {"task": task_id})

        return await self._or_interrupted(work, task_id) if drives else await work()

    def resume_stream(self, given: Given) -> RemoteRun[Any]:
        """Resume a task and stream its events from now on."""
        task_id = given["task"]

        async def standing() -> RunResult[Any]:
            return await self.call("result", {"task": task_id})

        head = partial(self._head, task_id)
        way = Way(head, self._behind(task_id), head, partial(self.resume, given), standing)
        return RemoteRun(task_id, way, self.agents.typed_of(""))

    # ------------------------------------------------------------------------------------------------ steps

    async def run_step(self, given: Given) -> TaskStepOutput[Any]:
        """Run one step."""
        await self._arguments.check("run_step", given)
        step = given.get("step")

        async def work() -> TaskStepOutput[Any]:
            reply = await self._step(given, {} if step is None else {"step": step})
            return _done(self.agents.typed(from_wire(TaskStepOutput[Any], reply.document)))

        return await self._or_interrupted(work, given["task"])

    async def run_ready_steps(self, given: Given) -> StepOutputs[Any]:
        """Run all ready steps in parallel."""
        await self._arguments.check("run_ready_steps", given)

        async def work() -> StepOutputs[Any]:
            reply = await self._step(given, {"ready": True})
            return self.agents.typed(from_wire(StepOutputs[Any], reply.document))

        return await self._or_interrupted(work, given["task"])

    async def _step(self, given: Given, body: dict[str, Json]) -> Reply:
        """Send the request of a step, and repeat it with the same key until the step has stopped."""
        if given.get("input") is not None:
            body["input"] = await content_of(given["input"])
        path, headers = path_of(OPERATIONS["run_step"], given), _headers(given)
        attempts = Attempts(self.connection)
        while True:
            try:
                reply = await self.connection.request(
                    "POST", path, body=body, headers=headers, wait=LONGEST_WAIT, attempts=attempts
                )
            except TaskBusy as error:
                if not attempts.failures:
                    raise
                await attempts.failed(error)  # the request with the lost response may be about to begin
                continue
            if reply.status != 202:
                return reply

    def stream_step(self, given: Given) -> RemoteStep[Any]:
        """Return a step with its events."""
        task_id = given["task"]
        head = partial(self._head, task_id)
        return RemoteStep(task_id, Way(head, self._behind(task_id), head, partial(self.run_step, given)))

    async def get_completed_steps(self, given: Given) -> StepOutputs[Any]:
        """Return the steps that have ended and will not be tried again."""
        upcoming = await self.call("get_upcoming_steps", {"task": given["task"]})
        under_way = {step.step_id for step in upcoming}
        steps = await self._all_steps(given["task"])
        return StepOutputs(
            [each for each in steps if each.step.step_id not in under_way and each.step.ended_at]
        )

    async def _all_steps(self, task_id: str) -> list[TaskStepOutput[Any]]:
        page = await self.call("get_steps", {"task": task_id, "after": 0, "limit": 100})
        return [step async for step in page]


# ------------------------------------------------------------------------------------------ parts of requests


def _row_of(verb: str, given: Given) -> Operation:
    """Return the row of a verb with some arguments; raise for a verb that needs the process with the store."""
    if verb in ("complete", "fail", "progress") and given.get("task") is None:
        task_id = task_of_ticket(given["ticket"]) if isinstance(given["ticket"], str) else None
        if task_id is None:
            raise TicketNotFound(
                "this is no ticket: pass the `ToolContext.ticket` that the tool handed out, unchanged"
            )
        given["task"] = task_id
    if verb == "verify" and given.get("task") is None:
        raise ConfigurationError("verify: a server verifies one task; `treadle verify` verifies a store")
    if verb == "compact_thread" and (given.get("agent") is not None or given.get("model") is not None):
        raise ConfigurationError("compact_thread: the server chooses the model: leave out agent= and model=")
    return operation_of(verb, given)


def _task_id(given: Given) -> str:
    """Return the id of a new task, generated here so that the request can be repeated."""
    given["task_id"] = given.get("task_id") or new_id()
    return given["task_id"]


def _headers(given: Given) -> dict[str, str]:
    headers: dict[str, str] = {}
    if given.get("expect") is not None:
        headers["If-Match"] = f'"{given["expect"]}"'
    if "command_id" in given:
        command_id = given["command_id"]
        headers["Idempotency-Key"] = to_header(new_id() if command_id is None else command_id)
    return headers


def _query(name: str, value: Any) -> list[tuple[str, str]]:
    if value is None:
        return []
    if isinstance(value, dict):
        return [(name, f"{key}={text}") for key, text in cast("dict[str, str]", value).items()]
    if isinstance(value, (list, tuple, set, frozenset)):
        return [(name, str(item)) for item in cast("list[Any]", value)]
    if isinstance(value, bool):
        return [(name, "true" if value else "false")]
    if hasattr(value, "task_id"):
        return [(name, value.task_id)]
    return [(name, value.isoformat() if isinstance(value, datetime) else str(value))]


def _done(output: TaskStepOutput[Any]) -> TaskStepOutput[Any]:
    """Return the output of a step, or raise the error that prevented it, as the runner does."""
    task_id, step, error = output.task_id, output.step, output.error
    if step.status == "failed" and output.state == "failed":
        why = error.message if error is not None else "no reason was given"
        message = f"task {task_id}, step {step.step_id} failed: {why}"
        failed = StepFailed(message, task_id=task_id, output=output, error=error)
        raise failed from cause_of(error)
    if output.state in ("paused", "waiting", "interrupted") and step.ended_at is None:
        what = "; ".join([item.text for item in output.pending]) or "call resume to go on"
        message = f"task {task_id} is {output.state}: {what}"
        raise TaskParked(message, task_id=task_id, state=output.state, pending=output.pending)
    return output
