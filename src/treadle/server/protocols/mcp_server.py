"""The MCP server of one principal: its tools are the agents and the served tools of a runner.

    tools/call without handles   submit a task, follow it, and return its result or its requests
    tools/call with handles      submit a task, and return its handle at once
    tasks/get                    read the task
    tasks/update                 answer its requests, and let it go on
    tasks/cancel                 cancel it

No state of calls is here. A handle is a task's id, and so is the `requestState` of a repeated call. So any server of
the store goes on with a call of another one. The id gives no right: each request is checked like the first.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, cast

import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from treadle.agents.agent import Agent
from treadle.core.events import Event, ToolEnded
from treadle.core.messages import File, Image
from treadle.drivers import arguments as checks
from treadle.errors import ConfigurationError, InvalidField, NotFound, TaskConflict, TreadleError
from treadle.results.artifacts import Artifact
from treadle.results.tasks import Task
from treadle.results.wire import plain_wire
from treadle.runner.runner import TaskRunner
from treadle.runner.views import driver_of
from treadle.server.calls import Service, agent_of
from treadle.server.feed import Reader, rests
from treadle.server.principals import Principal
from treadle.server.problems import Problem, log, status_of
from treadle.server.protocols.fold_stream import read_stop
from treadle.server.protocols.mcp import (
    TASKS,
    CallProgress,
    Standing,
    handle_of,
    input_required,
    new_handle,
    refusal,
    result_of,
    task_in,
    waiting,
)
from treadle.server.protocols.mcp_forms import Ask, decision_of
from treadle.server.protocols.mcp_tools import Frame, agent_tool, served_tool
from treadle.server.protocols.stops import waits_for_client
from treadle.server.reading import check_content
from treadle.server.served_tools import served_spec
from treadle.verbs.operation import Scope

INSTRUCTIONS: Final = (
    "Each call is recorded as a task. A result that names a task without an answer is not a failure: the task goes on "
    "or waits for a person. Ask for its result later, as the text says, and do not begin it anew."
)
"""The advice for models that use these tools."""

WORD_SECONDS: Final = 0.25
"""Seconds between two messages of progress with words of a model."""

FAST_SECONDS: Final = 0.5
"""Seconds in which a served tool may end before its call returns a handle."""

MOST_FILES: Final = 16
"""The most files of a result."""

FILE_BYTES: Final = 4 << 20
"""The most bytes of files in a result."""

CANCEL_SECONDS: Final = 2.0
"""Seconds for which `tasks/cancel` waits for the end of the task."""

Context = Any
"""The SDK's `ServerRequestContext`, whose type parameters do not matter here."""


class TaskParams(types.RequestParams):
    """The parameters of `tasks/get` and `tasks/cancel`."""

    task_id: str


class UpdateParams(TaskParams):
    """The parameters of `tasks/update`."""

    input_responses: dict[str, Any]


class McpServer:
    """Answers the requests of one principal's client.

    Args:
        service: the service of the application.
        principal: the author of the requests.
        has_cancel: whether the connection has `notifications/cancelled` for its own calls, as stdio has. It then
            interrupts the task. A lost connection stops nothing.
    """

    def __init__(self, service: Service, principal: Principal, *, has_cancel: bool = False) -> None:
        self._service = service
        self._principal = principal
        self._runner: TaskRunner = service.scoped(principal)
        self._calls: dict[Any, str] = {}
        """the tasks of open calls, by the ids of their requests"""

        self._has_cancel = has_cancel

    def server(self) -> Server[Any]:
        """Return the server of the SDK with the handlers of this one."""
        import treadle

        call_tool: Any = self.call_tool
        server: Server[Any] = Server(
            "treadle",
            version=treadle.__version__,
            title="Treadle",
            instructions=INSTRUCTIONS,
            on_list_tools=self.list_tools,
            on_call_tool=call_tool,
            get_tool_input_schema=lambda name: None,  # no argument is mirrored into a header
        )
        server.extensions = {TASKS: {}}
        server.add_request_handler("tasks/get", TaskParams, self.get_task)
        server.add_request_handler("tasks/update", UpdateParams, self.update_task)
        server.add_request_handler("tasks/cancel", TaskParams, self.cancel_task)
        if self._has_cancel:
            params = types.CancelledNotificationParams
            server.add_notification_handler("notifications/cancelled", params, self.stop_call)
        return server

    # ----------------------------------------------------------------------------------------------- tools

    async def list_tools(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        """Return the agents and the served tools."""
        self._check_scope("read")
        tools: list[Frame] = []
        for info in await self._runner.get_agents():
            spec = served_spec(agent_of(self._runner, info.name))
            tools.append(agent_tool(info) if spec is None else served_tool(spec))
        return types.ListToolsResult.model_validate(self._masked({"tools": tools}))

    async def call_tool(self, ctx: Context, params: types.CallToolRequestParams) -> Frame:
        """Run a tool as a task. A refusal is a result with `isError`, so that a model reads it."""
        self._check_scope("run")
        self._check_scope("read")
        if not driver_of(self._runner).agents.has(params.name):
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name:.80}")
        try:
            result = await self._result(ctx, params)
        except (TreadleError, Problem) as error:
            result = refusal(self._told(error))
        return self._masked(result)

    async def _result(self, ctx: Context, params: types.CallToolRequestParams) -> Frame:
        agent = agent_of(self._runner, params.name)
        if params.request_state is not None:
            task_id, last = task_in(params.request_state)
            standing = await self._read(task_id)
            if standing.task.agent != agent.name:
                raise MCPError(types.INVALID_PARAMS, "requestState belongs to another tool")
            responses = _plain(params.input_responses)
            if responses and not await self._answer(standing, responses):
                return waiting(standing)
            return await self._followed(ctx, task_id, last)
        task = await self._begun(agent, params.arguments or {})
        if not _takes_handles(ctx):
            return await self._followed(ctx, task.task_id)
        if served_spec(agent) is not None:  # most tools are quick, and a handle costs a poll
            with suppress(Problem):
                standing = await self._stopped(_Progress(ctx), task.task_id, FAST_SECONDS)
                if standing.has_ended:
                    return result_of(standing)
        return new_handle(task)

    async def _begun(self, agent: Agent[Any], arguments: dict[str, Any]) -> Task[Any]:
        """Submit the task of a call; with the id of an earlier one, return that one."""
        task_id = thread_id = None
        if served_spec(agent) is None:
            text, thread_id, task_id = _call_arguments(arguments)
        else:
            text = json.dumps(arguments, ensure_ascii=False)
        known = task_id is not None and await self._exists(task_id)
        if not known:
            await self._service.quota.check(self._runner, self._principal.tenant)
        try:
            task: Task[Any] = await self._runner.submit(agent, text, thread_id=thread_id, task_id=task_id)
        except TaskConflict as error:
            raise InvalidField(
                f"is the id of another call: repeat its arguments, or choose a new id ({error})",
                field="task_id",
            ) from None
        if known and task.state == "interrupted" and not task.driven:
            await self._runner.resume(task.task_id, drive=False)
        return task

    async def _exists(self, task_id: str) -> bool:
        try:
            await self._runner.get_task(task_id)
        except NotFound:
            return False
        return True

    # ------------------------------------------------------------------------------------------- following

    async def _followed(self, ctx: Context, task_id: str, last: int = 0) -> Frame:
        """Return the result of a call once its task has stopped, or the requests that its client must answer.

        Args:
            ctx: the context of the request.
            task_id: the task.
            last: the number of the last event that the client knows.
        """
        is_modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        told = _Progress(ctx, last)
        while True:
            try:
                standing = await self._stopped(told, task_id)
            except Problem as problem:  # the task was begun, so a model must not call again
                return waiting(await self._going_on(task_id), problem.detail)
            if standing.has_ended:
                return result_of(standing)
            if standing.stop is None:
                # The server ends. The client repeats the call at another one, which goes on with the task.
                return input_required(standing) if is_modern else waiting(standing)
            if not standing.asks or not self._may_ask(ctx):
                return waiting(standing)
            if is_modern:
                return input_required(standing)
            responses = await self._elicited(ctx, standing.asks)
            if not await self._answer(standing, responses):
                return waiting(standing)

    async def _stopped(self, told: _Progress, task_id: str, seconds: float | None = None) -> Standing:
        """Follow a task with progress until it needs its client, the time is over, or the server ends."""
        service, runner, name = self._service, self._runner, self._principal.name
        hold = await service.holds.holder(runner, task_id) if "control" in self._principal.scopes else None
        self._calls[told.request_id] = task_id
        try:
            async with (
                service.waiting(seconds or service.limits.stream_seconds),
                service.streams.reading(
                    runner, task_id, principal=name, after=told.last, deltas=told.is_asked, hold=hold
                ) as (reader, waker),
            ):
                while not await self._is_done(reader, told):
                    with suppress(TimeoutError):
                        async with asyncio.timeout(told.due()):
                            await waker.wait()
        except (TimeoutError, Problem) as error:
            if isinstance(error, Problem) and not service.draining:
                raise
            return await self._going_on(task_id)
        finally:
            if not _is_cancelled():
                self._calls.pop(told.request_id, None)
        return await self._standing(task_id)

    async def _is_done(self, reader: Reader, told: _Progress) -> bool:
        """Report the progress that is there; return whether the task has stopped and needs its client."""
        while True:
            feed = reader.feed
            if reader.new_stood() is not None:
                continue
            if entries := reader.ready():
                await told.feed([entry.event for entry in entries])
            elif (page := await reader.stored()) is not None and page.entries:
                await told.feed([entry.event for entry in page.entries])
                reader.last = page.entries[-1].after
            elif feed.ended is not None:
                return True
            elif reader.is_at_rest() and await feed.rests(reader.last):
                stop = await read_stop(self._runner, feed.task_id)
                return waits_for_client(stop) and await feed.rests(reader.last)
            else:
                return False

    async def _going_on(self, task_id: str) -> Standing:
        """Return the state of a task that a call no longer follows."""
        task = await self._runner.get_task(task_id)
        return Standing(task, None, {}, self._is_tool_of(task))

    async def _standing(self, task_id: str) -> Standing:
        runner, driver = self._runner, driver_of(self._runner)
        task = await runner.get_task(task_id)
        row = await driver.cache.row(task_id)
        is_tool = self._is_tool_of(task)
        if not rests(row, driver.clock()) or driver.owned.is_owned(task_id):
            return Standing(task, None, {}, is_tool)
        stop = await read_stop(runner, task_id)
        result = await runner.result(task_id)
        document: Any = plain_wire(result)
        files = await self._files_of(task_id, result.artifacts) if result.ended_at is not None else ()
        if is_tool and result.ended_at is not None:
            files = (*await self._shown(task_id), *files)
        return Standing(await runner.get_task(task_id), stop, document, is_tool, files)

    async def _shown(self, task_id: str) -> list[File]:
        """Return the pictures and files that the call of a served tool shows to a model."""
        page = await self._runner.get_events(task_id, kinds="tool_ended")
        parts = [
            part for event in page.items if isinstance(event, ToolEnded) for part in event.observation or ()
        ]
        return [
            File(name="result", data=part.data, media_type=part.media_type)
            for part in parts
            if isinstance(part, (Image, File)) and part.data is not None and len(part.data) <= FILE_BYTES
        ]

    async def _files_of(self, task_id: str, artifacts: Sequence[Artifact]) -> tuple[File, ...]:
        """Return the files of a task, those that are too large without their bytes."""
        files: list[File] = []
        room = FILE_BYTES
        for artifact in artifacts[:MOST_FILES]:
            size = artifact.size or 0
            if size > room:
                files.append(File(name=artifact.name, media_type=artifact.media_type))
                continue
            room -= size
            file = await self._runner.get_artifact(task_id, artifact.artifact_id)
            files.append(replace(file, name=artifact.name, media_type=artifact.media_type))
        return tuple(files)

    def _is_tool_of(self, task: Task[Any]) -> bool:
        agents = driver_of(self._runner).agents
        return agents.has(task.agent) and served_spec(agent_of(self._runner, task.agent)) is not None

    # ------------------------------------------------------------------------------------------- requests

    def _may_ask(self, ctx: Context) -> bool:
        """Return whether requests are sent to the client as forms, and its answers are decisions."""
        capabilities = ctx.session.client_capabilities
        has_forms = capabilities is not None and capabilities.elicitation is not None
        is_reached = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS or ctx.session.can_send_request
        return has_forms and is_reached and "decide" in self._principal.scopes

    async def _elicited(self, ctx: Context, asks: tuple[Ask, ...]) -> dict[str, Any]:
        """Send requests over the connection one by one, as before 2026, and return the answers."""
        responses: dict[str, Any] = {}
        for ask in asks:
            form = self._masked(ask.request)["params"]
            try:
                result = await ctx.session.elicit_form(
                    form["message"], form["requestedSchema"], related_request_id=ctx.request_id
                )
            except MCPError as error:
                log.info("a client of MCP did not take a form: %s", error)
                break
            responses[ask.key] = result.model_dump(by_alias=True, mode="json", exclude_none=True)
        return responses

    async def _answer(self, standing: Standing, responses: Mapping[str, Any]) -> bool:
        """Decide requests, and let the task go on; return whether anything was decided."""
        self._check_scope("decide")
        decided = 0
        for ask in standing.asks:
            response: Any = responses.get(ask.key)
            if not isinstance(response, Mapping):
                continue
            decision = decision_of(ask, cast("Mapping[str, Any]", response))
            if decision is None:
                continue
            decided += 1
            if decision.verb != "resume":
                value = decision.arguments.get("value")
                check_content(ask.key, value, allow_urls=self._service.allow_urls)
                verb: Any = getattr(self._runner, decision.verb)
                digest = hashlib.sha256(ask.key.encode()).hexdigest()
                await verb(task=decision.task_id, command_id=f"mcp-{digest[:40]}", **decision.arguments)
        if decided and decided == len(standing.asks):  # else the task waits for the other answers
            await self._runner.resume(standing.task.task_id, drive=False)
        return decided > 0

    # ------------------------------------------------------------------------------------------- handles

    async def get_task(self, ctx: Context, params: TaskParams) -> Frame:
        """Return the handle of a task, with its result or its open requests."""
        self._check_handles(ctx, "read")
        standing = await self._read(params.task_id)
        return self._masked(handle_of(standing, may_ask=self._may_ask(ctx)))

    async def update_task(self, ctx: Context, params: UpdateParams) -> Frame:
        """Answer open requests of a task; answers to others are ignored."""
        self._check_handles(ctx, "decide")
        standing = await self._read(params.task_id)
        try:
            await self._answer(standing, params.input_responses)
        except (TreadleError, Problem) as error:
            raise MCPError(types.INVALID_PARAMS, self._told(error)) from None
        return {}

    async def cancel_task(self, ctx: Context, params: TaskParams) -> Frame:
        """Cancel a task; it may end a little later."""
        self._check_handles(ctx, "control")
        await self._read(params.task_id)
        await self._stop("cancel", params.task_id)
        return {}

    async def _read(self, task_id: str) -> Standing:
        try:
            return await self._standing(task_id)
        except (NotFound, ConfigurationError):
            raise MCPError(types.INVALID_PARAMS, f"Failed to retrieve task: no task {task_id:.80}") from None
        except (TreadleError, Problem) as error:
            raise MCPError(types.INTERNAL_ERROR, self._told(error)) from None

    async def stop_call(self, ctx: Context, params: types.CancelledNotificationParams) -> None:
        """Interrupt the task of a call that the client cancels; a repeated call with its id goes on."""
        task_id = self._calls.pop(params.request_id, None)
        if task_id is not None:
            await self._stop("interrupt", task_id)

    async def _stop(self, verb: str, task_id: str) -> None:
        stop: Any = getattr(self._runner, verb)
        stopping = asyncio.ensure_future(stop(task_id, reason="the client of MCP cancelled the call"))
        await asyncio.wait([stopping], timeout=CANCEL_SECONDS)
        if not stopping.done():
            self._service.running.add(stopping)
            stopping.add_done_callback(self._service.ended)
        elif (error := stopping.exception()) is not None:
            raise MCPError(types.INVALID_PARAMS, self._told(error)) from None

    # -------------------------------------------------------------------------------------------- checking

    def _check_scope(self, scope: Scope) -> None:
        if scope not in self._principal.scopes:
            raise MCPError(types.INVALID_REQUEST, f"the request needs the scope `{scope}`")

    def _check_handles(self, ctx: Context, scope: Scope) -> None:
        """Raise an error unless the client takes handles, and its principal may do this."""
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            raise MCPError(types.METHOD_NOT_FOUND, "Method not found", ctx.method)
        if not _takes_handles(ctx):
            missing: Frame = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
            code = types.MISSING_REQUIRED_CLIENT_CAPABILITY
            raise MCPError(code, "Missing required client capability", missing)
        _check_name(ctx)
        self._check_scope(scope)

    def _told(self, error: BaseException) -> str:
        """Return the message of an error for clients; that of a fault is in the log alone."""
        if isinstance(error, Problem):
            return error.detail
        status = status_of(error) if isinstance(error, TreadleError) else None
        if status is None or status >= 500:
            log.error("a request of MCP failed: %s", error, exc_info=error)
            return "the server failed; its log tells more"
        return self._service.hide(str(error))

    def _masked(self, frame: Frame) -> Frame:
        hide = self._service.mask()
        return frame if hide is None else cast("Frame", hide(frame))


class _Progress:
    """Reports the progress of a call to its client, if the client asked for it.

    Args:
        ctx: the context of the request.
        last: the number of the last event that the client knows.
    """

    def __init__(self, ctx: Context, last: int = 0) -> None:
        self.request_id = ctx.request_id
        self.last = last
        params: Frame = ctx.params or {}
        meta = params.get("_meta")
        self.is_asked = isinstance(meta, Mapping) and "progressToken" in meta
        self._session = ctx.session
        self._fold = CallProgress()
        self._count = 0
        self._words_at = 0.0

    async def feed(self, items: list[Any]) -> None:
        """Report the progress that some events or ephemeral items are."""
        self.last = max([self.last, *[item.seq for item in items if isinstance(item, Event)]])
        if not self.is_asked:
            return
        for item in items:
            for message in self._fold.feed(item):
                await self._report(message)
        if self.due() == 0:
            self._words_at = asyncio.get_running_loop().time()
            await self._report(self._fold.words())

    def due(self) -> float | None:
        """Return the seconds until words of a model are reported; None if there are none."""
        if not self._fold.has_words:
            return None
        return max(0.0, self._words_at + WORD_SECONDS - asyncio.get_running_loop().time())

    async def _report(self, message: str) -> None:
        if message:
            self._count += 1
            await self._session.report_progress(self._count, message=message)


def _takes_handles(ctx: Context) -> bool:
    """Return whether the client declared in this request that it takes task handles."""
    capabilities = ctx.session.client_capabilities
    extensions = capabilities.extensions if capabilities is not None else None
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS and extensions is not None and TASKS in extensions


def _check_name(ctx: Context) -> None:
    """Raise an error unless the header `Mcp-Name` of a request over HTTP names its task, as proxies read it."""
    if ctx.request is None:
        return
    name = ctx.request.headers.get(MCP_NAME_HEADER)
    params: Frame = ctx.params or {}
    if name is None or decode_header_value(name) != params.get("taskId"):
        raise MCPError(types.HEADER_MISMATCH, "the header Mcp-Name must be the taskId of the request")


def _call_arguments(arguments: dict[str, Any]) -> tuple[str, str | None, str | None]:
    """Return the input, the thread and the task's id in the arguments of an agent's call."""
    unknown = [name for name in arguments if name not in ("input", "thread_id", "task_id")]
    if unknown:
        raise InvalidField.unknown(unknown, ("input", "thread_id", "task_id"))
    text = arguments.get("input")
    if not isinstance(text, str) or not text:
        raise InvalidField("should be a text", field="input")
    for name in ("thread_id", "task_id"):
        if arguments.get(name) is not None:
            checks.identifier(name, arguments[name])
    return text, arguments.get("thread_id"), arguments.get("task_id")


def _plain(responses: types.InputResponses | None) -> dict[str, Any]:
    return {
        key: each.model_dump(by_alias=True, mode="json", exclude_none=True)
        for key, each in (responses or {}).items()
    }


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
