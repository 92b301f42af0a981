"""The connection of a driver process to one server: start it, restart it with back-off, list its tools.

This module does not import the `mcp` package, whose import would block the event loop when a drive begins.

It also holds the event loop for MCP servers, in a thread of its own.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from treadle.core.messages import Json
from treadle.core.tools import ToolSpec
from treadle.errors import ToolError, ToolOutcomeUnknown, ToolsetUnavailable
from treadle.ports import Tool, ToolContext, ToolOutput
from treadle.tools.definitions import clean
from treadle.tools.mcp.definitions import MCPTool, ServerLost, ToolDefinition, reading_specs, spec_of
from treadle.tools.mcp.pins import Difference, pins_of

if TYPE_CHECKING:
    from os import PathLike

    from treadle.tools.mcp.declaration import ServerDeclaration
    from treadle.tools.mcp.live_server import LiveServer


T = TypeVar("T")

_lock = Lock()
_running: tuple[int, asyncio.AbstractEventLoop] | None = None


def _loop() -> asyncio.AbstractEventLoop:
    """Return this process's loop. A forked child makes a new one."""
    global _running  # noqa: PLW0603  one loop for each process, made at its first use
    with _lock:
        if _running is None or _running[0] != os.getpid():
            loop = asyncio.new_event_loop()
            Thread(target=loop.run_forever, name="treadle-mcp", daemon=True).start()
            _running = os.getpid(), loop
        return _running[1]


async def in_background(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the event loop for MCP servers. Cancelling the caller cancels it."""
    loop = _loop()
    if asyncio.get_running_loop() is loop:
        return await work
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))


StrPath: TypeAlias = "str | PathLike[str]"

_log = logging.getLogger("treadle.mcp")

LISTED_AGAIN: Final = 60.0
"""Seconds after which a new drive lists a server again."""

BACKOFF: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Seconds before a lost server is restarted: after one loss, two losses in a row, and so on."""

PATIENCE: Final = 2.0
"""Longest time in seconds that a call waits for the next start. If the start is later, the call fails."""

SHOWN: Final = 2_000
"""Most characters of a reason in a message: half from its beginning, half from its end."""


def specs_of(
    server: ServerDeclaration, definitions: Iterable[ToolDefinition], changed: Collection[str] = ()
) -> Iterator[ToolSpec]:
    """Yield the tools of a server as models see them.

    Args:
        server: its declaration.
        definitions: its pinned definitions.
        changed: the names of the tools that it has changed since.
    """
    for each in definitions:
        yield spec_of(
            server.name,
            each,
            trusted=server.trusted,
            trusted_results=server.trusted_results,
            effects=server.effects,
            timeout=server.call_timeout,
            changed=each.name in changed,
        )


def unmatched(server: ServerDeclaration, names: Sequence[str]) -> Iterator[str]:
    """Yield warnings for patterns of a declaration that match no tool of the server.

    They are not errors: the server may list other tools later.
    """
    for argument in ("only", "effects", "trusted_results"):
        for pattern in getattr(server, argument):
            if not any(fnmatchcase(name, pattern) for name in names):
                yield f"{argument}= has {pattern!r}, and no tool is called so: {', '.join(names) or 'none'}"


class ServerConnection:
    """Keeps one server for one driver process. Its methods may be called from any event loop.

    Args:
        server: its declaration.
        store_file: the store's file, beside which its tools are pinned; None if it has none.
    """

    def __init__(self, server: ServerDeclaration, store_file: StrPath | None = None) -> None:
        self._server = server
        self._secrets = server.secrets()
        self._pins = pins_of(server, store_file)
        self._lock: asyncio.Lock | None = None
        self._live: LiveServer | None = None
        self._losses, self._last_loss, self._restart_at = 0, "", 0.0
        self._closed = False
        self._learn: Callable[[str], None] | None = None
        self.listed: tuple[str, ...] = ()
        """The server's tool names in its latest listing."""
        self._bound: tuple[object, tuple[Tool, ...]] | None = None

    def credentials(self) -> Collection[str]:
        """Return the credentials of the declaration."""
        return self._server.credentials()

    def tell_tokens(self, learn: Callable[[str], None]) -> None:
        """Call `learn` with each token that is sent to the server."""
        self._learn = learn

    async def tools(self) -> Sequence[Tool]:
        """Return the current tools; raises `ToolsetUnavailable` or `ConfigurationError`."""
        return await in_background(self._tools())

    async def differences(self) -> Mapping[str, Difference]:
        """Return the differences from the pinned definitions, by tool name; raises `ToolsetUnavailable`."""
        listed = await in_background(self._definitions())
        self.listed = tuple(each.name for each in listed)
        return self._pins.compare(listed).differences

    def approve(self, differences: Mapping[str, Difference]) -> None:
        """Pin the current definitions of some tools, and keep the pins of the others."""
        self._pins.approve(differences)

    async def close(self) -> None:
        """End the server. Calls in flight fail."""
        await in_background(self._close())

    # ------------------------------------------------------------------------- in the background loop

    async def _tools(self) -> Sequence[Tool]:
        try:
            live = await self._started(fresh=True)
            definitions: object = live.definitions
        except ToolsetUnavailable:
            pinned = self._pins.read()
            if self._server.unavailable == "wait" or pinned is None:
                raise
            _log.warning("MCP server %s is unavailable; its calls fail", self._server.name)
            live, definitions = None, None
        pinned = self._pins.read()
        further = self._reading_tools(live) if live is not None else ()
        if (
            pinned is not None
            and self._bound is not None
            and self._bound[0] == (definitions, pinned, further)
        ):
            return self._bound[1]
        listed = live.definitions if live is not None else tuple((pinned or {}).values())
        tools = self._mcp_tools(listed)
        tool_names = {each.spec.name for each in tools}
        tools += tuple(
            MCPTool(spec, self._reader(name)) for name, spec in further if spec.name not in tool_names
        )
        self._bound = (definitions, self._pins.read(), further), tools
        return tools

    async def _definitions(self) -> Sequence[ToolDefinition]:
        return (await self._started(fresh=True)).definitions

    def _reading_tools(self, live: LiveServer) -> tuple[tuple[str, ToolSpec], ...]:
        server = self._server
        return tuple(
            reading_specs(
                server.name,
                resources=server.resources and live.has_resources,
                prompts=server.prompts and live.has_prompts,
                timeout=server.call_timeout,
            ).items()
        )

    def _mcp_tools(self, listed: Sequence[ToolDefinition]) -> tuple[Tool, ...]:
        server = self._server
        comparison = self._pins.compare(listed)
        for problem in unmatched(server, [each.name for each in listed]):
            _log.warning("MCP server %s: %s", server.name, problem)
        for name, change in comparison.changes.items():
            _log.warning("MCP server %s: its tool %r is %s since it was pinned", server.name, name, change)
        now = {each.name: each for each in listed}
        changed = {pinned.name for pinned, is_changed in comparison.tools if is_changed}
        pinned = [each for each, _ in comparison.tools]
        return tuple(
            MCPTool(spec, self._caller(now[each.name]), each, now[each.name])
            for spec, each in zip(specs_of(server, pinned, changed), pinned, strict=True)
        )

    def _caller(self, definition: ToolDefinition) -> Any:
        async def call(arguments: dict[str, Json], ctx: ToolContext[Any]) -> ToolOutput:
            from treadle.tools.mcp.elicitation import CallQuestions, Suspended  # deferred: imports `mcp`

            questions = CallQuestions(self._server.name, ctx)
            try:
                return await in_background(
                    self._with_server(
                        definition.name, lambda live: live.call(definition, arguments, ctx, questions)
                    )
                )
            except Suspended:
                raise questions.rest() from None

        return call

    def _reader(self, operation: str) -> Any:
        async def call(arguments: dict[str, Json], ctx: ToolContext[Any]) -> ToolOutput:
            return await in_background(
                self._with_server(operation, lambda live: live.read(operation, arguments))
            )

        return call

    async def _with_server(
        self, name: str, work: Callable[[LiveServer], Awaitable[ToolOutput]]
    ) -> ToolOutput:
        try:
            live = await self._started()
        except ToolsetUnavailable as error:
            raise ToolError(f"{name} was not called: {error}") from None
        try:
            output = await work(live)
        except ToolOutcomeUnknown as error:
            raise ToolOutcomeUnknown(self._hidden(str(error))) from None
        except ToolError as error:
            raise ToolError(self._hidden(str(error))) from None
        self._losses = 0
        return output

    async def _started(self, *, fresh: bool = False) -> LiveServer:
        """Return the running server, started if necessary. With `fresh`, list its tools again if that is due."""
        if self._lock is None:
            self._lock = asyncio.Lock()
        async with self._lock:
            if self._closed:
                raise self._unavailable("was closed")
            live = self._live
            if live is not None and live.lost is None:
                await self._ready(live)  # the caller that started it may have been cancelled
                if live.listed_at == 0.0 or (fresh and time.monotonic() > live.listed_at + LISTED_AGAIN):
                    await live.list_again()
                if live.lost is None:
                    return live
            if live is not None:
                self._live = None
                self._note_loss()
                await live.close()
                self._last_loss = live.lost or ""
            if (wait := self._restart_at - time.monotonic()) > PATIENCE:
                raise self._unavailable(f"{self._last_loss}; it is started again in {wait:.1f} s")
            await asyncio.sleep(max(wait, 0.0))
            if self._closed:
                raise self._unavailable("was closed")
            from treadle.tools.mcp.live_server import LiveServer  # the `mcp` package takes a second to import

            self._live = live = LiveServer(self._server, self._learn)
            await self._ready(live)
            return live

    async def _ready(self, live: LiveServer) -> None:
        """Wait until a server is ready; raises `ToolsetUnavailable`."""
        try:
            await live.start()
        except ServerLost as error:
            self._live = None
            self._last_loss = str(error)
            self._note_loss()
            await live.close()
            raise self._unavailable(str(error)) from None

    def _note_loss(self) -> None:
        self._losses += 1
        self._restart_at = time.monotonic() + BACKOFF[min(self._losses, len(BACKOFF)) - 1]

    def _unavailable(self, reason: str) -> ToolsetUnavailable:
        name = self._server.name
        return ToolsetUnavailable(f"the MCP server {name} {self._hidden(reason)}", toolset=name)

    def _hidden(self, text: str) -> str:
        """Return a text of a server or of its failure, shortened, without secrets and hidden characters."""
        # Two cuts, since a cut secret is not recognised. The second removes any half that the first left.
        return _cut(self._secrets.hide(_cut(clean(text), 4 * SHOWN), deep=True), SHOWN)

    async def _close(self) -> None:
        self._closed = True
        live, self._live = self._live, None
        if live is not None:
            await live.close()


def _cut(text: str, most: int) -> str:
    """Return a text without its middle if it is longer than `most` characters."""
    return text if len(text) <= most else f"{text[: most // 2]} ... {text[-most // 2 :]}"
