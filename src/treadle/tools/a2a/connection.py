"""The connection of a driver process to a remote agent: its card, and the calls of its tool."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, Final, TypeVar

from treadle.core.messages import Json, ToolCall
from treadle.core.tools import ToolSpec, Unknown, Verdict
from treadle.errors import (
    QuestionUnanswered,
    ToolError,
    ToolOutcomeUnknown,
    ToolsetUnavailable,
)
from treadle.ports import Tool, ToolContext, ToolOutput
from treadle.tools.a2a.declaration import AgentDeclaration
from treadle.tools.a2a.remote_task import (
    COMPLETED,
    ENDED,
    INPUT_REQUIRED,
    TYPES,
    WAITS,
    Card,
    RemoteTask,
    Request,
    Update,
    WrongCard,
    answer_parts,
    fields_of,
    items_of,
    output_of,
    output_of_message,
    read_task,
    read_update,
    requests_of,
    text_of,
)
from treadle.tools.a2a.rpc import NOT_FOUND, AnswerLost, NotSent, Refused, RemoteServer
from treadle.tools.definitions import check_arguments

T = TypeVar("T")

CARD_SECONDS: Final = 300.0
"""Seconds after which a new drive reads the card again."""

PAUSES: Final = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds between requests for a task that is not streamed, and after lost connections; the last one repeats."""

CANCEL_SECONDS: Final = 5.0
"""Seconds in which a cancelled call must have cancelled its task."""

PATIENCE: Final = 120.0
"""Seconds without an answer of the server after which a call fails."""


class RemoteConnection:
    """Keeps the card of one remote agent for one driver process.

    Args:
        agent: the declaration.
    """

    def __init__(self, agent: AgentDeclaration) -> None:
        self._agent = agent
        self._card: Card | None = None
        self._read_at = 0.0
        self._tools: tuple[Tool, ...] = ()
        self._learn: Callable[[str], None] | None = None

    def credentials(self) -> Collection[str]:
        """Return the credentials of the declaration."""
        return self._agent.credentials()

    def tell_tokens(self, learn: Callable[[str], None]) -> None:
        """Call `learn` with each token that is sent to the server."""
        self._learn = learn

    async def tools(self) -> Sequence[Tool]:
        """Return the tool; raises `ToolsetUnavailable` if the card was never read and cannot be."""
        if self._card is None or time.monotonic() > self._read_at + CARD_SECONDS:
            await self._read()
        assert self._card is not None
        spec = self._agent.spec(self._card.name, self._card.description)
        if not self._tools or self._tools[0].spec != spec:
            self._tools = (RemoteAgentTool(spec, self),)
        return self._tools

    async def _read(self) -> None:
        try:
            async with self.server() as server:
                card = await server.card()
        except (NotSent, WrongCard) as error:
            if self._card is None or isinstance(error, WrongCard):
                name = self._agent.name
                raise ToolsetUnavailable(f"the remote agent {name} {error}", toolset=name) from None
        else:
            self._card = card
        self._read_at = time.monotonic()

    def server(self) -> RemoteServer:
        """Return the server, for one call."""
        return RemoteServer(self._agent, self._learn)

    async def call(self, arguments: Mapping[str, Json], ctx: ToolContext[Any]) -> ToolOutput:
        """Call the agent: begin a task there or continue it, and return its answer."""
        assert self._card is not None, "the tools were listed"
        async with self.server() as server:
            call = _RemoteCall(self._agent, self._card, server, arguments, ctx)
            return await call.run()

    async def close(self) -> None:
        """Do nothing: calls have connections of their own."""


class RemoteAgentTool:
    """A remote agent as a tool.

    Args:
        spec: the tool as models see it.
        connection: calls the agent.
    """

    def __init__(self, spec: ToolSpec, connection: RemoteConnection) -> None:
        self._spec, self._connection = spec, connection

    def __repr__(self) -> str:
        return f"<remote agent {self._spec.name}>"

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    def validate(self, arguments: dict[str, Json]) -> dict[str, Json]:
        check_arguments(arguments, self._spec.parameters)
        return arguments

    async def call(self, arguments: dict[str, Json], ctx: ToolContext[Any]) -> ToolOutput:
        return await self._connection.call(arguments, ctx)

    async def undo(self, call: ToolCall, ctx: ToolContext[Any]) -> None:
        raise ToolError(f"tool {self._spec.name!r} has no undo=")

    async def reconcile(self, call: ToolCall, ctx: ToolContext[Any]) -> Verdict:
        return Unknown()


class _Stopped(Exception):
    """The task has ended, or waits for something that no person can answer here."""

    def __init__(self, task: RemoteTask) -> None:
        super().__init__(task.state)
        self.task = task


class _RemoteCall:
    """One attempt of one call."""

    def __init__(
        self,
        agent: AgentDeclaration,
        card: Card,
        server: RemoteServer,
        arguments: Mapping[str, Json],
        ctx: ToolContext[Any],
    ) -> None:
        self._agent, self._card, self._server, self._ctx = agent, card, server, ctx
        self._arguments = arguments
        self._repeats = card.repeats if agent.repeats is None else agent.repeats
        self._stream: AsyncGenerator[Json, None] | None = None
        self._task_id = ""
        self._may_be_sent = False

    async def run(self) -> ToolOutput:
        """Begin or continue the task, ask for its input, and return its answer."""
        try:
            return await self._run()
        except asyncio.CancelledError as cut:
            # An interrupted call continues later. That of a cancelled task, or one that took too long, does not.
            if cut.args and cut.args[0] in ("cancelled", "timeout"):
                await self._cancel()
            raise
        except QuestionUnanswered:
            await self._cancel()
            raise
        finally:
            await self._close_stream()

    async def _run(self) -> ToolOutput:
        begun = fields_of(await self._ctx.once("begun", self._begin))
        if "message" in begun:
            return output_of_message(fields_of(begun["message"]))
        self._task_id = text_of(begun.get("task"))
        try:
            for number in range(1, 1_000):
                kept = await self._ctx.once(f"question-{number}", self._question)
                requests = [Request(**fields_of(each)) for each in items_of(kept)]
                answers = [await self._ctx.ask(each.text, TYPES[each.kind]) for each in requests]
                parts = answer_parts(requests, answers)
                await self._ctx.once(f"answer-{number}", lambda p=parts, n=number: self._answer(p, n))
        except _Stopped as stop:
            return self._output(stop.task)
        raise ToolError(f"the agent {self._agent.name} asked too often")

    def _output(self, task: RemoteTask) -> ToolOutput:
        if task.state == COMPLETED:
            return output_of(task)
        word = task.state.removeprefix("TASK_STATE_").lower().replace("_", " ")
        reason = f": {task.status_text}" if task.status_text else ""
        raise ToolError(self._server.hidden(f"the task of the agent {self._agent.name} is {word}{reason}"))

    # ---------------------------------------------------------------------------------------------- begin

    async def _begin(self) -> Json:
        """Send the message, and return the id of its task, or an answer without one."""
        if self._ctx.attempt > 1 and not self._repeats:
            task_id = await self._found()
            if task_id is not None:
                return {"task": task_id}
            raise ToolOutcomeUnknown(
                f"the message to the agent {self._agent.name} may have been sent before a crash, and its task is not "
                "known; it was not sent again"
            )
        failures, since = 0, time.monotonic()
        while True:
            try:
                return await self._send(streams=self._card.streams)
            except (NotSent, Refused) as error:
                raise ToolError(f"the agent {self._agent.name} was not called: it {_said(error)}") from None
            except WrongCard as error:
                raise ToolOutcomeUnknown(f"the agent {self._agent.name} {error}") from None
            except AnswerLost as error:
                failures += 1
                if not self._repeats or time.monotonic() > since + PATIENCE:
                    raise ToolOutcomeUnknown(f"the agent {self._agent.name} {error}") from None
                await asyncio.sleep(_pause(failures))

    async def _send(self, *, streams: bool) -> Json:
        message: dict[str, Json] = {
            "messageId": self._message_id("message"),
            "role": "ROLE_USER",
            "parts": [{"text": self._arguments["message"]}],
        }
        if conversation := self._arguments.get("conversation"):
            message["contextId"] = conversation
        self._may_be_sent = True
        if not streams:
            params = {"message": message, "configuration": {"returnImmediately": True}}
            return self._first(read_update(await self._server.call(self._card, "SendMessage", params)))
        stream = self._server.stream(self._card, "SendStreamingMessage", {"message": message})
        self._stream = stream
        async for item in stream:
            return self._first(read_update(item))
        raise AnswerLost("ended its stream without an answer")

    def _first(self, update: Update) -> Json:
        if update.message is not None:
            return {"message": dict(update.message)}
        if update.task is None:
            raise AnswerLost("answered without a task")
        self._task_id = update.task.task_id
        return {"task": self._task_id}

    async def _found(self) -> str | None:
        """Return the task with the message of an earlier attempt, as far as the server lists it."""
        wanted = self._message_id("message")
        params = {"pageSize": 100, "historyLength": 100}
        try:
            page = fields_of(await self._server.call(self._card, "ListTasks", params))
        except (NotSent, AnswerLost, Refused):
            return None
        for task in map(fields_of, items_of(page.get("tasks"))):
            if any(fields_of(each).get("messageId") == wanted for each in items_of(task.get("history"))):
                return text_of(task.get("id")) or None
        return None

    def _message_id(self, place: str) -> str:
        return f"{self._ctx.idempotency_key}/{place}"

    # --------------------------------------------------------------------------------------------- follow

    async def _question(self) -> Json:
        """Follow the task, and return its requests when it waits for input; raises `_Stopped` at any other stop."""
        task = await self._stop()
        if task.state != INPUT_REQUIRED:
            raise _Stopped(task)
        requests = requests_of(task, self._agent.name)
        return [
            {"text": each.text, "kind": each.kind, "request_id": each.request_id, "approves": each.approves}
            for each in requests
        ]

    async def _answer(self, parts: list[Json], number: int) -> Json:
        message: dict[str, Json] = {
            "messageId": self._message_id(f"answer-{number}"),
            "role": "ROLE_USER",
            "taskId": self._task_id,
            "parts": parts,
        }
        params = {"message": message, "configuration": {"returnImmediately": True}}
        try:
            await self._persistently(lambda: self._server.call(self._card, "SendMessage", params))
        except Refused as error:
            raise ToolError(f"the agent {self._agent.name} did not take the answer: {error}") from None
        return True

    async def _stop(self) -> RemoteTask:
        """Return the task once it has ended or waits for its caller."""
        reads = 0
        while True:
            if self._stream is None:
                task = await self._get()
                if task.has_stopped:
                    return task
                self._ctx.progress({"state": task.state})
                if not self._card.streams:
                    await asyncio.sleep(_pause(reads))
                    reads += 1
                    continue
                params = {"id": self._task_id}
                self._stream = self._server.stream(self._card, "SubscribeToTask", params)
            await self._watch(self._stream)

    async def _watch(self, stream: AsyncGenerator[Json, None]) -> None:
        """Report the updates of a stream until its task stops or the stream ends."""
        try:
            async for item in stream:
                update = read_update(item)
                if update.progress is not None:
                    self._ctx.progress(update.progress)
                if update.state in (*ENDED, *WAITS):
                    return
        except (NotSent, AnswerLost, Refused, WrongCard):
            await asyncio.sleep(PAUSES[0])  # its state is read, and then it is followed again
        finally:
            await self._close_stream()

    async def _get(self) -> RemoteTask:
        params = {"id": self._task_id}
        try:
            result = await self._persistently(lambda: self._server.call(self._card, "GetTask", params))
            return read_task(result)
        except Refused as error:
            lost = (
                "no longer has the task" if error.code == NOT_FOUND else f"refused to show the task: {error}"
            )
            raise ToolError(f"the agent {self._agent.name} {lost}") from None
        except WrongCard as error:
            raise ToolError(f"the agent {self._agent.name} {error}") from None

    async def _persistently(self, send: Callable[[], Awaitable[T]]) -> T:
        """Return the result of a request that may be repeated, after lost connections too."""
        failures, since = 0, time.monotonic()
        while True:
            try:
                return await send()
            except (NotSent, AnswerLost) as error:
                failures += 1
                if time.monotonic() > since + PATIENCE:
                    raise ToolError(f"the agent {self._agent.name} {error}") from None
                await asyncio.sleep(_pause(failures))

    async def _cancel(self) -> None:
        """Cancel the task within a few seconds, and raise no error."""
        with suppress(Exception):
            async with asyncio.timeout(CANCEL_SECONDS):
                if not self._task_id and self._may_be_sent:
                    await self._close_stream()
                    if self._repeats:
                        await self._send(streams=False)
                    else:
                        self._task_id = await self._found() or ""
                if not self._task_id:
                    return
                await self._server.call(self._card, "CancelTask", {"id": self._task_id})

    async def _close_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            async with aclosing(stream):
                pass


def _pause(failures: int) -> float:
    return PAUSES[min(failures, len(PAUSES)) - 1] if failures else PAUSES[0]


def _said(error: Exception) -> str:
    return f"refused the message: {error}" if isinstance(error, Refused) else str(error)
