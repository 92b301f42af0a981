"""One life of a server, from its start to its loss or close: session, listing, calls and elicitation."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, cast

import mcp_types as types
from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, HEADER_MISMATCH, PARSE_ERROR, REQUEST_TIMEOUT
from pydantic import FileUrl, ValidationError

from treadle.core.messages import Json
from treadle.core.observation import whole_error_text
from treadle.core.redaction import hidden_in_logs
from treadle.errors import ToolError, ToolOutcomeUnknown
from treadle.ports import ToolContext, ToolOutput
from treadle.tools.definitions import clean
from treadle.tools.mcp.definitions import (
    ServerLost,
    ToolDefinition,
    WrongDefinition,
    check_names,
    checked_definitions,
    chosen,
)
from treadle.tools.mcp.elicitation import CallQuestions, Suspended
from treadle.tools.mcp.http import ANSWER_LOST, NOT_SENT, ServerAddress, http_transport, sse_transport
from treadle.tools.mcp.results import OPERATIONS, output_of
from treadle.tools.mcp.stdio import ServerProgram, stdio_transport
from treadle.tools.mcp.traffic import hide_in_logs

if TYPE_CHECKING:
    from treadle.tools.mcp.declaration import ServerDeclaration

_log = logging.getLogger("treadle.mcp")

IDEMPOTENCY_KEY: Final = "treadle/idempotencyKey"
"""The key in a call's `_meta` for its idempotency key, for servers that use it."""

MAX_ROUNDS: Final = 8
"""Most rounds of questions before a server carries out a call."""

MAX_PAGES: Final = 100
"""Most pages of one listing."""

MAX_LISTED: Final = 10_000
"""Most tools of one listing."""

CLOSE_SECONDS: Final = 5.0
"""Seconds for a session to close."""

_LOST_ANSWERS: Final = (CONNECTION_CLOSED, REQUEST_TIMEOUT, PARSE_ERROR, ANSWER_LOST)


class LiveServer:
    """A server from its start until it is lost or closed. One task enters and leaves its transport and session.

    Args:
        server: its declaration.
        learn: called with each token that is sent to the server.
    """

    def __init__(self, server: ServerDeclaration, learn: Callable[[str], None] | None = None) -> None:
        self._server, self._learn = server, learn
        self._ending = asyncio.Event()
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._supervisor: asyncio.Task[None] | None = None
        self.client: Client
        self.definitions: tuple[ToolDefinition, ...] = ()
        self.listed_at = 0.0
        self.process: subprocess.Popen[bytes] | None = None
        """the server's process, if it is a program"""

        self._questions: list[CallQuestions] = []
        self.lost: str | None = None
        """the reason of its loss"""

    async def start(self) -> None:
        """Start it once, and wait until its tools are listed, up to a deadline; raises `ServerLost`."""
        if self._supervisor is None:
            self._ready.add_done_callback(
                lambda ready: ready.exception()
            )  # the caller may have been cancelled
            self._supervisor = asyncio.create_task(self._supervise())
        await asyncio.shield(self._ready)

    async def close(self) -> None:
        """End it, and return when it has ended, or after `CLOSE_SECONDS`."""
        self.lose("was closed")
        if self._supervisor is not None:
            await asyncio.wait([self._supervisor], timeout=CLOSE_SECONDS + 5)

    def lose(self, reason: str) -> None:
        """Record the reason of its loss, and end it."""
        if self.lost is None:
            self.lost = reason
        self._ending.set()
        supervisor = self._supervisor
        if not self._ready.done() and supervisor is not None and asyncio.current_task() is not supervisor:
            supervisor.cancel()  # the supervisor still waits for the server to be ready

    async def list_again(self) -> None:
        """List its tools again, up to a deadline. If that fails, the server is lost."""
        try:
            async with asyncio.timeout(self._server.start_timeout):
                await self._list()
        except (MCPError, TimeoutError, ValidationError, WrongDefinition) as error:
            self.lose(f"could not be listed again: {self._reason(error)}")

    @property
    def has_resources(self) -> bool:
        """Whether it announces resources."""
        return self.client.server_capabilities.resources is not None

    @property
    def has_prompts(self) -> bool:
        """Whether it announces prompts."""
        return self.client.server_capabilities.prompts is not None

    async def _supervise(self) -> None:
        server = self._server
        hidden_in_logs.set(server.secrets())  # in the context of this task and its child tasks
        hide_in_logs()
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(server.start_timeout):
                    self.client = await stack.enter_async_context(self._new_client())
                    if server.protocol not in ("auto", "legacy"):
                        await self._discover()
                    # Results are not validated, since that could fail a call that took effect.
                    self.client.session.validate_tool_result = _accept
                    await self._list()
                if not self._ready.done():
                    self._ready.set_result(None)
                await self._ending.wait()
                stack.push_async_exit(_bounded_exit(stack.pop_all()))
        except BaseException as error:  # noqa: BLE001  an error of a server ends only its own connection
            self.lose(self._reason(error))
            if not self._ready.done():
                self._ready.set_exception(ServerLost(self.lost or ""))
        finally:
            self.lose("ended")
            if not self._ready.done():
                self._ready.set_exception(ServerLost(self.lost or ""))

    async def _discover(self) -> None:
        """Ask a server of a fixed protocol version for its capabilities. The client would assume them unchecked."""
        session = self.client.session
        discovered = await session.send_discover(self._server.protocol)
        session.adopt(types.DiscoverResult.model_validate(discovered))

    def _reason(self, error: BaseException) -> str:
        if isinstance(error, TimeoutError):
            waited = f"was not ready within {self._server.start_timeout:g} s"
            return f"{waited}; it {self.lost}" if self.lost is not None else waited
        while isinstance(error, BaseExceptionGroup):
            error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
        if isinstance(error, MCPError):
            message = clean(error.message)
            return message if error.code == PARSE_ERROR else f"answered with an error: {message}"
        if isinstance(error, (WrongDefinition, ServerLost)):
            return str(error)
        return f"failed with {whole_error_text(error)}"

    def _new_client(self) -> Client:
        server = self._server
        if server.url is None:
            assert server.command is not None
            program = ServerProgram((server.command, *server.args), server.env, server.cwd)
            transport = stdio_transport(program, self.lose, self._note_process)
        else:
            address = ServerAddress(
                server.url, server.headers, server.auth, server.call_timeout + 5, self._learn
            )
            speak = sse_transport if server.transport == "sse" else http_transport
            transport = speak(address, self.lose, self._note_doubt)
        return Client(
            transport,
            mode="legacy" if server.transport == "sse" and server.protocol == "auto" else server.protocol,
            read_timeout_seconds=max(server.call_timeout, server.start_timeout),
            sampling_callback=self._sample if server.sampling is not None else None,
            elicitation_callback=self._elicit if server.elicitation else None,
            list_roots_callback=self._roots if server.roots else None,
            message_handler=self._on_message,
            client_info=types.Implementation(name="treadle", version=version("treadle")),
            cache=None,
        )

    def _note_process(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    async def _list(self) -> None:
        """List the tools, page by page; raises `WrongDefinition`."""
        if self.client.server_capabilities.tools is None:
            self.definitions, self.listed_at = (), time.monotonic()
            return
        tool_facts: list[dict[str, Any]] = []
        cursor, seen_cursors = None, set[str]()
        for _ in range(MAX_PAGES):
            page = await self.client.list_tools(cursor=cursor)
            tool_facts += [_facts(tool) for tool in page.tools]
            cursor = page.next_cursor
            if cursor is None:
                break
            if cursor in seen_cursors or len(tool_facts) > MAX_LISTED:
                raise WrongDefinition(f"lists tools without end: {len(tool_facts):,} so far")
            seen_cursors.add(cursor)
        else:
            raise WrongDefinition(f"lists tools on more than {MAX_PAGES} pages")
        definitions = chosen(checked_definitions(tool_facts), self._server.only)
        check_names(self._server.name, definitions)
        if definitions != self.definitions:
            self.definitions = definitions
        self.listed_at = time.monotonic()

    async def call(
        self,
        definition: ToolDefinition,
        arguments: dict[str, Json],
        ctx: ToolContext[Any],
        questions: CallQuestions,
    ) -> ToolOutput:
        """Call a tool.

        Raises:
            ToolError: the server answered with an error, or the call was not sent.
            ToolOutcomeUnknown: the call may have taken effect, and there is no response.
            Suspended: a person must answer a question first.
        """
        name = self._server.name
        defined = next((each for each in self.definitions if each.name == definition.name), None)
        if defined is None or defined.digest != definition.digest:
            change = "no longer has" if defined is None else "changed the definition of"
            raise ToolError(f"the MCP server {name} {change} {definition.name}; it was not called")

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            ctx.progress({"progress": progress, "total": total, "message": message})

        async def send(responses: Any = None, state: str | None = None) -> Any:
            return await self.client.session.call_tool(
                definition.name,
                arguments,
                read_timeout_seconds=self._server.call_timeout,
                progress_callback=on_progress,
                input_responses=responses,
                request_state=state,
                meta=cast("types.RequestParamsMeta", {IDEMPOTENCY_KEY: ctx.idempotency_key}),
                allow_input_required=True,
            )

        self._questions.append(questions)
        try:
            result = await _until_suspended(send(), questions)
            for _ in range(MAX_ROUNDS):
                if not isinstance(result, types.InputRequiredResult):
                    return output_of(result)
                responses = await self._input_answers(result.input_requests or {}, questions)
                result = await send(responses, result.request_state)
        except MCPError as error:
            raise self._call_error(definition.name, error) from None
        except ValidationError as error:
            raise self._unreadable(definition.name, error) from None
        finally:
            self._questions.remove(questions)
        raise ToolError(f"the MCP server {name} asked more than {MAX_ROUNDS} times before {definition.name}")

    async def read(self, operation: str, arguments: dict[str, Json]) -> ToolOutput:
        """List or read resources or prompts; raises `ToolError`."""
        try:
            return await OPERATIONS[operation](self.client, arguments)
        except MCPError as error:
            raise self._call_error(operation, error) from None
        except ValidationError as error:
            raise self._unreadable(operation, error) from None
        except WrongDefinition as error:
            raise ToolError(f"the MCP server {self._server.name} {error}") from None

    def _unreadable(self, operation: str, error: ValidationError) -> ToolOutcomeUnknown:
        what = f"with an invalid result ({error.error_count()} mistakes)"
        return ToolOutcomeUnknown(f"the MCP server {self._server.name} answered {operation} {what}")

    async def _input_answers(self, requests: dict[str, types.InputRequest], questions: CallQuestions) -> Any:
        """Return the answers to a server's requests before a call; raises `Suspended`."""
        answers: dict[str, Any] = {}
        suspended: Suspended | None = None
        for key, request in requests.items():
            if isinstance(request, types.ElicitRequest):
                try:
                    answers[key] = await self._elicit_answer(request.params, questions)
                except Suspended as suspension:
                    suspended = suspension  # ask the remaining questions first
                continue
            context = ClientRequestContext(session=self.client.session, request_id=key)
            answer = await self.client.session.dispatch_input_request(context, request)
            if isinstance(answer, types.ErrorData):
                raise ToolError(
                    f"the MCP server {self._server.name} made a request that is refused: {request.method}"
                )
            answers[key] = answer
        if suspended is not None:
            raise suspended
        return answers

    async def _elicit_answer(
        self, params: types.ElicitRequestParams, questions: CallQuestions
    ) -> types.ElicitResult:
        if not self._server.elicitation:
            return types.ElicitResult(action="decline")
        return await questions.ask(params)

    async def _elicit(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        """Answer a question that a server asks during a call, if only one call can have caused it."""
        if len(self._questions) != 1:
            _log.warning("MCP server %s: its question belongs to no single call", self._server.name)
            return types.ElicitResult(action="decline")
        try:
            return await self._elicit_answer(params, self._questions[0])
        except Suspended:
            return types.ElicitResult(action="cancel")

    def _call_error(self, operation: str, error: MCPError) -> Exception:
        name, reason = self._server.name, clean(error.message)
        if error.code == NOT_SENT:
            return ToolError(f"{operation} was not called: the MCP server {name} {reason}")
        if error.code in _LOST_ANSWERS:
            if error.code == CONNECTION_CLOSED:
                self.lose("closed the connection")
            reason = self.lost or reason
            return ToolOutcomeUnknown(f"the MCP server {name} did not answer {operation}: it {reason}")
        if error.code == HEADER_MISMATCH:
            self.listed_at = 0.0
        return ToolError(f"the MCP server {name} answered {operation} with an error: {reason}")

    # ----------------------------------------------------------------------- questions of a server

    async def _on_message(self, message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._note_doubt()

    def _note_doubt(self) -> None:
        """List its tools again before the next call. If that fails, the server is lost."""
        self.listed_at = 0.0

    async def _roots(self, context: Any) -> types.ListRootsResult:
        roots = [types.Root(uri=FileUrl(root.as_uri()), name=root.name) for root in self._server.roots]
        return types.ListRootsResult(roots=roots)

    async def _sample(self, context: Any, params: types.CreateMessageRequestParams) -> Any:
        assert self._server.sampling is not None
        try:
            async with asyncio.timeout(self._server.call_timeout):
                answer: Any = await self._server.sampling(params)
        except Exception as error:  # noqa: BLE001  the server receives the error of the user's function
            _log.warning("MCP server %s: sampling= raised %s", self._server.name, type(error).__name__)
            return types.ErrorData(code=types.INTERNAL_ERROR, message="sampling failed")
        if not isinstance(answer, str):
            return answer
        content = types.TextContent(type="text", text=answer)
        return types.CreateMessageResult(role="assistant", content=content, model="", stop_reason="endTurn")


async def _until_suspended(sending: Coroutine[Any, Any, Any], questions: CallQuestions) -> Any:
    """Return a server's response. Raises `Suspended` when a question of the call is unanswered."""
    call, suspended = asyncio.ensure_future(sending), asyncio.ensure_future(questions.suspended.wait())
    try:
        await asyncio.wait((call, suspended), return_when=asyncio.FIRST_COMPLETED)
        if questions.suspended.is_set():
            raise Suspended
        return call.result()
    finally:
        for future in (call, suspended):
            future.cancel()


async def _accept(name: str, result: types.CallToolResult) -> None: ...


def _bounded_exit(stack: AsyncExitStack) -> Any:
    """Return an exit that closes a stack within `CLOSE_SECONDS`."""

    async def leave(*error: Any) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await stack.aclose()

    return leave


def _facts(tool: types.Tool) -> dict[str, Any]:
    """Return the fields of a server's tool that are pinned."""
    facts = tool.model_dump(by_alias=True, mode="json", exclude_none=True)
    names = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
    return {name: facts[name] for name in names if name in facts}
