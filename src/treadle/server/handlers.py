"""The handlers of operations. Most operations call the verb of their row; the others have a handler here."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from tempfile import SpooledTemporaryFile
from typing import Any, BinaryIO, Final, TypeAlias, cast
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse

from treadle.core.events import END_STATES
from treadle.drivers import arguments
from treadle.engine.options import RunOptions
from treadle.errors import (
    InvalidField,
    StepFailed,
    StepNotFound,
    ThreadNotFound,
)
from treadle.results.tasks import Task
from treadle.results.threads import ThreadSummary
from treadle.runner.views import driver_of
from treadle.server.calls import Answer, Call, agent_of, at_rest, find_task, never, no_agent, page_link
from treadle.server.live import get_events, get_metrics, get_stream
from treadle.server.problems import Problem
from treadle.server.reading import SEQ, check_content, check_labels, check_model, check_options, is_known

EXPORT_BYTES: Final = 4 << 20
"""Maximum number of bytes of an export in memory; a larger export is written to a temporary file before it is sent."""

Handler: TypeAlias = Callable[[Call], Awaitable[Answer]]


async def by_verb(call: Call) -> Answer:
    """Call the verb of the row with the arguments of the request."""
    operation = call.operation
    verb = partial(getattr(call.runner, operation.verb), **call.arguments, **call.extras())
    if operation.method == "GET":
        value = await verb()
        cursor = getattr(value, "cursor", None)
        link = {"Link": page_link(call, **{operation.turned_by: cursor})} if cursor else {}
        return Answer(value, headers=link)
    if operation.waits is None:
        return Answer(await call.done(verb))
    done, value = await call.in_time(verb)
    return Answer(value) if done else await call.accepted(call.arguments["task"])


# ------------------------------------------------------------------------------------------------ reading


async def get_task(call: Call) -> Answer:
    """Return a task with its head as the ETag; 304 if the client has it."""
    answer = _with_tag(await call.runner.get_task(**call.arguments))
    if is_known(answer.headers["ETag"], call.request.headers):
        return Answer(response=Response(status_code=304, headers=answer.headers))
    return answer


def _with_tag(task: Task[Any]) -> Answer:
    return Answer(task, headers={"ETag": f'"{task.head}"'})


async def get_result(call: Call) -> Answer:
    """Return a task's result, after the task has stopped if the request waits."""
    runner, task_id = call.runner, call.arguments["task"]
    if call.wait and "at" in call.arguments:
        raise InvalidField("asks for an earlier state: a request for that must not wait", field="at")
    if call.wait and not await at_rest(call, task_id, until=never):
        return await call.accepted(task_id)
    return Answer(await runner.result(**call.arguments))


async def get_step(call: Call) -> Answer:
    """Return the output of a step, after the step has ended if the request waits."""
    runner, task_id = call.runner, call.arguments["task"]
    name: str = call.arguments["step"]
    step = _step_named(name)

    async def ended() -> bool:
        try:
            return (await runner.get_step(task_id, step)).step.ended_at is not None
        except StepNotFound:
            return False

    if call.wait and not await at_rest(call, task_id, until=ended):
        return await call.accepted(task_id, f"/steps/{quote(name, safe='')}")
    return Answer(await runner.get_step(task_id, step))


async def get_event(call: Call) -> Answer:
    """Return one event of a task."""
    task_id, seq_text = call.arguments["task"], call.arguments["seq"]
    if re.fullmatch(SEQ, seq_text) is None:
        raise InvalidField("should be the sequence number of an event", field="seq")
    page = await call.runner.get_events(task_id, after=int(seq_text) - 1, limit=1)
    if not page.items:
        raise Problem(
            404, "EventNotFound", f"task {task_id} has no event {seq_text}; its last is {page.head}"
        )
    return Answer(page.items[0])


async def export_task(call: Call) -> Answer:
    """Return the export of a task as a file, which is complete before it is sent."""
    task_id = call.arguments["task"]
    file = await asyncio.to_thread(SpooledTemporaryFile[bytes], EXPORT_BYTES)
    try:
        await call.runner.export_tasks(cast("BinaryIO", file), task_id)
    except BaseException:
        file.close()
        raise
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(task_id, safe='')}.jsonl"}
    return Answer(response=StreamingResponse(_pieces(file), 200, headers, call.operation.media))


def _pieces(file: SpooledTemporaryFile[bytes]) -> Iterator[bytes]:
    with file:
        file.seek(0)
        while piece := file.read(1 << 16):
            yield piece


def _step_named(name: str) -> str | int:
    """Return the index or id of a step in a path."""
    return int(name) if name.isascii() and name.isdigit() and len(name) < 10 else name


async def get_request(call: Call) -> Answer:
    """Return a model request as it was sent."""
    parameters = call.arguments
    return Answer(
        await call.runner.get_request(
            parameters["task"], _step_named(parameters["step"]), call=parameters.get("call")
        )
    )


async def get_artifact(call: Call) -> Answer:
    """Return the bytes of an artifact as a download: a browser must not render it under the server's origin."""
    file = await call.runner.get_artifact(**call.arguments)
    accepted = call.request.headers.get("accept", "")
    if file.data is None or "application/json" in accepted:
        return Answer(file)
    name = quote(file.name or call.arguments["artifact_id"], safe="")
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
        "Content-Security-Policy": "sandbox; default-src 'none'",
    }
    return Answer(response=Response(file.data, 200, headers, "application/octet-stream"))


# ------------------------------------------------------------------------------------------------ running


async def get_agent(call: Call) -> Answer:
    """Return an agent by its name."""
    name = call.arguments["name"]
    for agent in await call.runner.get_agents():
        if agent.name == name:
            return Answer(agent)
    raise no_agent(name)


async def create_task(call: Call) -> Answer:
    """Create a task, or return the existing task with its id; queue it for driving if requested."""
    runner, parameters = call.runner, call.arguments
    task_id = call.new_task_id()
    agent = agent_of(runner, parameters["agent"])
    labels = parameters.get("labels")
    options = parameters.get("options")
    if labels:
        options = options or RunOptions()
        options = replace(options, labels={**options.labels, **labels})
    existed = task_id is not None and await find_task(runner, task_id) is not None
    if not existed:
        await call.service.quota.check(runner, call.tenant)
    runs = parameters.get("run", False)
    make = runner.submit if runs else runner.create_task
    task: Task[Any] = await call.done(
        lambda: make(
            agent,
            parameters["input"],
            thread_id=parameters.get("thread_id"),
            task_id=task_id,
            extra_state=parameters.get("extra_state"),
            options=options,
        )
    )
    location = {"Location": call.task_url(task.task_id)}
    if runs and call.wait:
        if await at_rest(call, task.task_id, until=never):
            return Answer(await runner.result(task.task_id), 200, location)
        return await call.accepted(task.task_id)
    answer = _with_tag(task)
    answer.status = 200 if existed else 201
    answer.headers |= location
    return answer


async def run_step(call: Call) -> Answer:
    """Run one step, or all ready steps; a failed step is a result."""
    runner, parameters, task_id = call.runner, call.arguments, call.arguments["task"]
    if len(driver_of(runner).owned.tasks) >= call.service.limits.driven_per_tenant:
        raise Problem(
            503, "Full", "this server drives as many tasks of the tenant as it may", {"Retry-After": "1"}
        )
    if parameters.get("ready"):
        if "input" in parameters or "step" in parameters:
            raise InvalidField("takes neither input nor step", field="ready")
        done, outputs = await call.in_time(lambda: runner.run_ready_steps(task_id, **call.extras()))
        return Answer(outputs) if done else await call.accepted(task_id)

    async def step() -> Any:
        try:
            return await runner.run_step(
                task_id, input=parameters.get("input"), step=parameters.get("step"), **call.extras()
            )
        except StepFailed as failed:
            return failed.output

    upcoming = await runner.get_upcoming_steps(task_id)
    done, output = await call.in_time(step)
    if done:
        return Answer(output)
    name = parameters.get("step") or (upcoming[0].step_id if upcoming else "")
    return await call.accepted(task_id, f"/steps/{quote(name, safe='')}")


async def resume(call: Call) -> Answer:
    """Queue a task for driving; the process that adopts it drives it."""
    runner, task_id = call.runner, call.arguments["task"]
    options: RunOptions | None = call.arguments.get("options")
    if options is not None and options.limits is not None and "admin" not in call.scopes:
        raise Problem(403, "ScopeMissing", "limits on `resume` replace those of the task: that needs `admin`")
    result = await call.done(lambda: runner.resume(task_id, options=options, drive=False, **call.extras()))
    if result.state in END_STATES and not result.driven:
        return Answer(result)
    if not call.wait or not await at_rest(call, task_id, until=never):
        return await call.accepted(task_id)
    return Answer(await runner.result(task_id))


async def fork(call: Call) -> Answer:
    """Fork a task; the same key returns the same fork."""
    runner, parameters = call.runner, dict(call.arguments)
    check_model(parameters.get("model"), call.service.models)
    name = parameters.pop("agent", None)
    parameters["agent"] = None if name is None else agent_of(runner, name)
    if (task_id := call.new_task_id()) is not None:
        parameters["task_id"] = task_id
    existed = task_id is not None and await find_task(runner, task_id) is not None
    if not existed:
        await call.service.quota.check(runner, call.tenant)
    task: Task[Any] = await call.done(lambda: runner.fork(**parameters, **call.extras()))
    answer = _with_tag(task)
    answer.status = 200 if existed else 201
    answer.headers["Location"] = call.task_url(task.task_id)
    return answer


async def deny(call: Call) -> Answer:
    """Deny a call; `stop` also requires the scope that cancels tasks."""
    if call.arguments.get("stop") and "control" not in call.scopes:
        raise Problem(403, "ScopeMissing", "`stop` cancels the task: that needs `control`", scope="control")
    return await by_verb(call)


async def compact_thread(call: Call) -> Answer:
    """Compact a thread; after the wait, return its summary. A repeated request then waits for the report."""
    thread_id = call.arguments["thread_id"]
    done, report = await call.in_time(partial(call.runner.compact_thread, **call.arguments, **call.extras()))
    if done:
        return Answer(report)
    answer = await get_thread_summary(call)
    answer.status, answer.headers = 202, {"Location": call.url(f"threads/{quote(thread_id, safe='')}")}
    return answer


async def get_thread_summary(call: Call) -> Answer:
    """Return the number of tasks with messages in a thread."""
    thread_id = call.arguments["thread_id"]
    arguments.identifier("thread_id", thread_id)  # an id with a separator could name another tenant's thread
    version, members = await call.runner.store.thread(thread_id)
    if not version:
        raise ThreadNotFound(f"no task was finalized in a thread {thread_id!r:.80}")
    return Answer(ThreadSummary(thread_id, version, len(members)))


# ------------------------------------------------------------------------------------------- the server


@cache
def _version() -> str:
    import treadle

    return treadle.__version__


async def get_me(call: Call) -> Answer:
    """Return the principal of the request and the server's properties; `models` are those that a fork may name.

    `agents` are those whose code the server has: it can run and undo only steps of these. `drives` is whether it
    drives tasks by itself.
    """
    principal = call.principal
    assert principal is not None, "the operation needs a principal"
    return Answer(
        {
            "name": principal.name,
            "tenant": principal.tenant,
            "scopes": sorted(principal.scopes),
            "version": _version(),
            "protocols": list(call.service.protocols),
            "models": list(call.service.models),
            "agents": [agent.name for agent in driver_of(call.runner).agents.registered()],
            "drives": call.service.adopts,
        }
    )


def body_refusal(operation: str, error: Exception) -> Response | None:
    """Return the response of a protocol to a body that it cannot read; None for a problem as of all operations."""
    if operation != "run_a2a":
        return None
    from treadle.server.protocols import a2a_route

    return a2a_route.body_refusal(error)


def _of_protocol(module: str, name: str) -> Handler:
    """Return the handler of an operation of a protocol. Its first call imports it, since its package may take long."""
    loaded: list[Handler] = []

    async def handle(call: Call) -> Answer:
        if not loaded:
            home = await asyncio.to_thread(import_module, f"treadle.server.protocols.{module}")
            loaded.append(getattr(home, name))
        return await loaded[0](call)

    handle.__name__ = name
    return handle


_PROTOCOL_HANDLERS: Final = {
    "agui_route": ("run_agui",),
    "mcp_route": ("call_mcp",),
    "a2a_route": ("run_a2a", "get_a2a_card", "get_a2a_server_card"),
    "responses_route": (
        *("create_response", "get_response", "delete_response"),
        *("cancel_response", "list_input_items"),
    ),
}
"""The handlers of the protocols' operations, by their modules in `protocols`."""


async def get_openapi(call: Call) -> Answer:
    """Return the OpenAPI document."""
    from treadle.server.openapi import openapi

    return Answer(await asyncio.to_thread(openapi, tuple(call.service.protocols)))


async def get_health(call: Call) -> Answer:
    """Answer at once: the process is alive."""
    return Answer({"status": "alive"})


async def get_ready(call: Call) -> Answer:
    """Return whether the server can serve."""
    if call.service.draining:
        raise Problem(503, "Draining", "the server is about to end", {"Retry-After": "5"})
    if not await call.service.readiness.of(call.service.runner):
        raise Problem(503, "StoreUnavailable", "the store cannot be read", {"Retry-After": "5"})
    return Answer({"status": "ready"})


HANDLERS: Final[dict[str, Handler]] = {
    handler.__name__: handler
    for handler in (
        *(deny, compact_thread, get_thread_summary, get_request, get_events, get_stream, get_metrics),
        *(get_agent, get_event, export_task, get_task, get_result, get_step, get_artifact, create_task),
        *(run_step, resume, fork, get_me, get_openapi, get_health, get_ready),
        *[_of_protocol(module, name) for module, names in _PROTOCOL_HANDLERS.items() for name in names],
    )
}
"""The handlers of operations that do more than call a verb."""


def handler_of(name: str) -> Handler:
    """Return the handler of an operation."""
    return HANDLERS.get(name, by_verb)


def check_arguments(call: Call) -> None:
    """Raise `ConfigurationError` for arguments that requests may not set."""
    for name, value in call.arguments.items():
        if isinstance(value, RunOptions):
            check_options(value)
        elif name == "labels" and value:
            check_labels(name, value)
        else:
            check_content(name, value, allow_urls=call.service.allow_urls)
