"""Run a tool's function in a process of its own. These are the steps of one call:

    wait for a place           not counted in the call's timeout; the call has not started
    take a process             a spare one, or a new one that loads the function's module
    ctx.on_start()             from here on the call may have effects, and its timeout runs
    request --> process
    <-- progress, secrets
    <-- result | error         or the process ended: the call's outcome is unknown
    end the process            with all its children, before the call returns

If a process cannot be started or loaded, nothing has run, and the call fails with a known outcome.

This module also finds the function's name for the process. It limits the tool processes that run at the same time;
further calls queue.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast

from treadle.core.data import frozen
from treadle.core.messages import Json, ToolCall
from treadle.core.tools import Verdict
from treadle.core.tracebacks import RaisedElsewhere
from treadle.errors import (
    HostUnavailable,
    SecretRefused,
    SecretUnavailable,
    ToolDefinitionError,
    ToolError,
    ToolOutcomeUnknown,
)
from treadle.ports import ToolContext, ToolOutput
from treadle.tools.hosts.declaration import Subprocess
from treadle.tools.hosts.messages import call_to_json, context_to_json, output_from_json, verdict_from_json
from treadle.tools.hosts.process import Loaded, ProcessGone, ToolProcess
from treadle.tools.hosts.spares import refill, take

MAX_PROCESSES: Final = max(4, 2 * (os.cpu_count() or 1))
"""Most calls in processes of their own at the same time, across all event loops of this process."""


class Places:
    """A first-in, first-out semaphore for tasks of any event loop."""

    def __init__(self, count: int) -> None:
        self._lock = threading.Lock()
        self._free = count
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> None:
        """Take a place; wait if none is free."""
        with self._lock:
            if self._free:
                self._free -= 1
                return
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            with self._lock:
                had_waited = turn in self._waiting
                if had_waited:
                    self._waiting.remove(turn)
            if not had_waited:
                self.give_back()  # cancelled just after it got the place
            raise

    def give_back(self) -> None:
        """Give the place to the longest waiting task."""
        with self._lock:
            while self._waiting:
                turn = self._waiting.popleft()
                try:
                    turn.get_loop().call_soon_threadsafe(_wake, turn)
                except RuntimeError:
                    continue  # the waiting task's event loop is closed
                return
            self._free += 1

    def waiting(self) -> int:
        """Return how many tasks wait."""
        return len(self._waiting)


def _wake(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


places: Final = Places(MAX_PROCESSES)
if hasattr(os, "register_at_fork"):
    # A forked child has none of its parent's calls.
    os.register_at_fork(after_in_child=lambda: places.__init__(MAX_PROCESSES))


FLOOD: Final = 100
"""Progress values after which reading pauses for `FLOOD_PAUSE` seconds. The process waits meanwhile."""

FLOOD_PAUSE: Final = 0.02

FLOOD_BYTES: Final = 1 << 20
"""Bytes of progress that also cause a pause. A larger value causes a longer one."""

SCRIPT: Final = "__mp_main__"


@frozen
class Reference:
    """A function's name for a new process.

    Args:
        name: `module:qualname`.
        script: the path of the driver's script, if it defines the function.
    """

    name: str
    script: str | None = None

    @property
    def module(self) -> str:
        """The name of the module."""
        return self.name.partition(":")[0]


def reference_to(fn: Any, tool: str, field: str) -> Reference:
    """Return a reference by which a new process finds a function.

    Raises:
        ToolDefinitionError: it is a lambda, a nested function or a bound method, which a process cannot import.
    """
    qualname, module = getattr(fn, "__qualname__", None), getattr(fn, "__module__", None)
    problem = None
    if not inspect.isfunction(fn):
        problem = f"{_kind(fn)} belongs to an object of this process"
    elif "<" in fn.__qualname__:
        kind = (
            "a lambda" if fn.__qualname__.endswith("<lambda>") else f"{fn.__name__}, defined in a function,"
        )
        problem = f"{kind} cannot be found by its name"
    elif module == "__main__" and (script_reference := _script()) is not None:
        return Reference(f"{script_reference.module}:{qualname}", script_reference.script)
    elif module == "__main__":
        problem = f"{qualname} is defined in a session without a file"
    if problem is not None:
        raise ToolDefinitionError(
            f"tool {tool!r}: {field}: host= runs it in a new process, where {problem}: define it with def, at the top "
            "of a module"
        )
    return Reference(f"{module}:{qualname}")


def _kind(fn: Any) -> str:
    return "a method" if inspect.ismethod(fn) else "a partial" if isinstance(fn, functools.partial) else "it"


def _script() -> Reference | None:
    """Return a reference to the module that runs as `__main__`; None in an interactive session."""
    main: Any = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None and not spec.name.endswith("__main__"):
        return Reference(f"{spec.name}:")
    file = getattr(main, "__file__", None)
    return Reference(f"{SCRIPT}:", str(file)) if file else None


class HostedFunction:
    """A tool's function and its options' functions, each call in a process of its own.

    Args:
        host: the host of the process.
        name: the tool's name.
        function: the tool's function.
        code: the digest of its code.
        takes_context: whether it takes a `ToolContext`.

    Raises:
        ToolDefinitionError: a new process cannot import the function.
    """

    def __init__(
        self,
        host: Subprocess,
        name: str,
        function: Callable[..., Any],
        code: Callable[[], str],
        *,
        takes_context: bool,
    ) -> None:
        self.host = host
        self._name = name
        self._reference = reference_to(function, name, "fn")
        self._code = code
        self._takes_context = takes_context

    async def call(self, arguments: dict[str, Json], ctx: ToolContext[Any]) -> ToolOutput:
        """Run the tool's function."""
        return output_from_json(await self._run("call", ctx, arguments=arguments))

    async def undo(self, fn: Any, call: ToolCall, ctx: ToolContext[Any]) -> None:
        """Run `undo=`."""
        await self._run("undo", ctx, fn, call=call_to_json(call))

    async def reconcile(self, fn: Any, call: ToolCall, ctx: ToolContext[Any]) -> Verdict:
        """Run `reconcile=`."""
        return verdict_from_json(await self._run("reconcile", ctx, fn, call=call_to_json(call)))

    async def preview(self, fn: Any, arguments: dict[str, Json], ctx: ToolContext[Any]) -> Json:
        """Run `preview=`."""
        return await self._run("preview", ctx, fn, arguments=arguments)

    async def _run(self, operation: str, ctx: ToolContext[Any], beside: Any = None, **details: Any) -> Any:
        """Run one operation in a process of its own, and return its result unparsed."""
        request = {
            "do": operation,
            "name": self._name,
            "function": self._reference.name,
            "code": self._code(),
            "beside": None if beside is None else reference_to(beside, self._name, operation).name,
            "context": context_to_json(ctx, takes_context=self._takes_context or beside is not None),
            **details,
        }
        await places.take()
        try:
            return await self._converse(request, ctx)
        finally:
            places.give_back()

    async def _converse(self, request: dict[str, Any], ctx: ToolContext[Any]) -> Any:
        try:
            process = take(self._loaded())
        except HostUnavailable as error:
            raise HostUnavailable(f"{self._name} did not run: {error}") from None
        except OSError as error:
            raise ToolError(f"{self._name} did not run: its process could not be started: {error}") from None
        try:
            result = await self._served(process, request, ctx)
        except GeneratorExit:
            process.leave()
            raise
        except BaseException:
            await self._end(process)
            raise
        await self._end(process)
        return result

    async def _served(self, process: ToolProcess, request: dict[str, Any], ctx: ToolContext[Any]) -> Any:
        """Make a process load the function and run it."""
        try:
            await process.load()
        except ToolError as error:
            raise ToolError(f"{self._name} did not run: {error}") from None
        if ctx.on_start is not None:
            ctx.on_start()
        await process.send(request)
        return await self._result(process, ctx)

    async def _end(self, process: ToolProcess) -> None:
        """End a process, and start a spare."""
        await process.end()
        if self.host.spare:
            with suppress(HostUnavailable):  # the next call reports the reason
                refill(self._loaded())

    async def _result(self, process: ToolProcess, ctx: ToolContext[Any]) -> Any:
        """Serve the process until it sends a result.

        Raises:
            ToolOutcomeUnknown: the process ended without a result.
            ToolError: the function raised an error, or did not run.
        """
        reported = paused_at = 0
        while True:
            try:
                message = await process.receive()
            except ProcessGone as gone:
                raise ToolOutcomeUnknown(
                    f"{self._name}: its process ended before it answered: {gone}"
                ) from None
            match message:
                case {"progress": value}:
                    ctx.progress(value)
                    reported += 1
                    unpaused = process.received_bytes - paused_at
                    if reported % FLOOD == 0 or unpaused > FLOOD_BYTES:
                        paused_at = process.received_bytes
                        await asyncio.sleep(FLOOD_PAUSE * max(1, unpaused // FLOOD_BYTES))
                case {"secret": str(name)}:
                    reply = await _secret(ctx, name)
                    process.received_secrets += [reply["secret"]] if "secret" in reply else []
                    await process.send(reply)
                case {"result": result}:
                    return result
                case {"failed": str(text)}:
                    raise ToolError(f"{self._name} did not run: {text}")
                case {"error": str(text), "unknown": True}:
                    raise ToolOutcomeUnknown(text)
                case {"error": str(text), "traceback": [*pieces]}:
                    raise ToolError(text) from RaisedElsewhere(list(map(str, pieces)))
                case {"error": str(text)}:
                    raise ToolError(text)
                case _:
                    raise ToolOutcomeUnknown(f"{self._name}: its process sent an invalid answer")

    def _loaded(self) -> Loaded:
        reference = self._reference
        env = tuple(self.host.environment().items())
        path = tuple([os.path.abspath(entry) for entry in sys.path])  # noqa: PTH100  an empty entry is the folder
        pins = self.host.pins(reference.module, reference.script)
        return Loaded(self.host, reference.module, reference.script, path, env, pins, _version(reference))


def _version(reference: Reference) -> tuple[int, ...]:
    """Return facts of a function's file that differ after it changed."""
    file = reference.script or getattr(sys.modules.get(reference.module), "__file__", None)
    try:
        status = os.stat(file or "")  # noqa: PTH116
    except OSError:
        return ()
    return (status.st_mtime_ns, status.st_size, status.st_ino)


async def _secret(ctx: ToolContext[Any], name: str) -> dict[str, Any]:
    """Return the reply to a process's request for a secret."""
    try:
        return {"secret": await asyncio.to_thread(ctx.secret, name)}
    except (SecretRefused, SecretUnavailable) as error:
        fields: dict[str, Any] = {"name": error.name}
        if isinstance(error, SecretUnavailable):
            fields["where"] = error.where
        return {"refused": str(error), "kind": type(error).__name__, "fields": fields}
    except Exception as error:  # noqa: BLE001  the function is told, as in this process
        return {"refused": f"{type(error).__name__}: {error}", "kind": "ToolError", "fields": cast("Any", {})}
