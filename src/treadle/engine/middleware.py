"""One execution of a call through its middleware.

Theory of operation
-------------------

    run --> layer 1 --next--> layer 2 --next--> the tool
                                                  |  returns or raises an error: back through all layers
                                                  |  ends the attempt (a question, a deferral): past all layers
                                                  |  is cancelled: noted, since its effect is unknown

Each layer may call `next` once, as long as the call is not over. A layer may change any result or error, with two
exceptions. An exception that ends the attempt is raised again after the layers. If a tool was cut off, for instance by
a layer's time limit, its outcome is unknown. A result of a layer does not change that.

A layer may run `next` in its own asyncio task. If it ends without awaiting that task, the tool is stopped first, so
that a tool never outlives its call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from treadle.agents.middleware import Layer, ToolInvocation
from treadle.core import events as e
from treadle.core.messages import Json
from treadle.core.observation import error_text
from treadle.core.permits import digest_of
from treadle.core.questions import AwaitingAnswer
from treadle.core.tracebacks import StandsForCause
from treadle.engine.abandoned import give_up
from treadle.errors import MiddlewareError
from treadle.ports import ToolOutput

PATIENCE: Final = (2.0, 0.2)
"""Seconds that an abandoned tool has to end after its first and second cancellation."""

RunTool = Callable[[ToolInvocation[Any], Sequence[str]], Awaitable[ToolOutput]]
"""Runs the tool with the arguments of an invocation. The names are the layers that changed them."""


class ToolCut(Exception):
    """A layer stopped the tool or abandoned it, and the tool may have taken effect."""


class _Exit(StandsForCause, MiddlewareError):
    """A layer raised an error that coroutines must not raise."""


class Execution:
    """One attempt of a call, through the layers of its tool.

    Args:
        layers: the middleware, the outermost first.
        run_tool: runs the tool itself.
        describe: returns the text of an error, in which secrets are hidden before the cut.
    """

    __slots__ = (
        "_control",
        "_layers",
        "_over",
        "_run_tool",
        "_task",
        "_text",
        "answered_by",
        "notes",
        "reached",
        "was_cut",
    )

    def __init__(
        self,
        layers: Sequence[Layer],
        run_tool: RunTool,
        describe: Callable[[BaseException], str] = error_text,
    ) -> None:
        self._layers = layers
        self._run_tool = run_tool
        self._text = describe
        self._over = False
        self._task: asyncio.Task[Any] | None = None
        """the asyncio task in which the tool runs, until it ends"""

        self._control: BaseException | None = None
        """the exception that ended the attempt, if it is neither an error nor a cancellation"""

        self.reached = False
        """whether the tool began"""

        self.was_cut = False
        """whether the tool began and was stopped before its end"""

        self.answered_by: str | None = None
        """the layer that answered without calling the tool"""

        self.notes: dict[str, Json] = {}

    def report(self, *, returned: bool) -> e.CallReport | None:
        """Return the actions and notes of the layers, or None. `returned` says that the call has a result."""
        answered_by = self.answered_by if returned else None
        return e.CallReport(answered_by, dict(self.notes)) if answered_by or self.notes else None

    async def run(self, call: ToolInvocation[Any]) -> ToolOutput:
        """Return the result of the outermost layer, or raise its error.

        Raises:
            ToolCut: the tool was stopped and may have taken effect.
        """
        self.notes = call.notes
        try:
            result = await self._enter(0, call, ())
        except (Exception, asyncio.CancelledError) as error:
            await self._close(call)
            if self._control is not None:
                raise self._control from None
            if self.was_cut and call.effect != "read" and not isinstance(error, asyncio.CancelledError):
                raise ToolCut(self._text(error)) from error
            raise
        except BaseException:
            self._over = True
            raise
        await self._close(call)
        if self._control is not None:
            raise self._control
        if self.was_cut and call.effect != "read":
            raise ToolCut("a middleware returned before the tool had ended")
        return result

    async def _enter(self, at: int, call: ToolInvocation[Any], changed: tuple[str, ...]) -> ToolOutput:
        """Run the layers from index `at` on, and the tool inside them."""
        if at == len(self._layers):
            return await self._reach(call, changed)
        layer, before = self._layers[at], digest_of(call.arguments)
        was_called = False
        inside: list[BaseException] = []

        async def next_layer(passed: ToolInvocation[Any]) -> ToolOutput:
            nonlocal was_called
            self._check_next(layer, passed, was_called)
            was_called = True
            # A layer may only change arguments and progress, not the ids and the key of a call.
            inner = ToolInvocation(
                call.tool, passed.arguments, call.context, call.definition, passed.on_progress, call.notes
            )
            names = changed if _is_same(passed.arguments, before) else (*changed, layer.name)
            try:
                return await self._enter(at + 1, inner, names)
            except BaseException as error:
                inside.append(error)
                raise

        try:
            result = await layer.middleware(call, next_layer)
        except Exception as error:
            if error not in inside:
                _say_where(error, layer, self.reached, bool(inside))
            raise
        except (asyncio.CancelledError, GeneratorExit, AwaitingAnswer):
            raise
        except BaseException as error:
            if error in inside:
                raise
            failure = _Exit(f"the middleware {layer.name} of tool {call.name!r} raised {self._text(error)}")
            _say_where(failure, layer, self.reached, bool(inside))
            raise failure from error
        if not isinstance(result, ToolOutput):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise MiddlewareError(
                f"the middleware {layer.name} of tool {call.name!r} returned a {type(result).__name__}, not a "
                "ToolOutput: return the result of `await next(call)`, or ToolOutput(value)"
            )
        if not self.reached and self.answered_by is None:
            self.answered_by = layer.name
        if inside and self.reached:
            self.notes.setdefault("replaced_error", self._text(inside[0]))
        return result

    def _check_next(self, layer: Layer, passed: Any, was_called: bool) -> None:
        """Raise `MiddlewareError` if a layer must not call `next`, or not with this argument."""
        problem = None
        if self._over:
            problem = "called next after its call had ended"
        elif was_called:
            problem = "called next twice; to try a call again, give a read-only or idempotent tool retries="
        elif not isinstance(passed, ToolInvocation):
            problem = (
                f"called next with a {type(passed).__name__}: pass the call, or call.with_arguments(...)"
            )
        elif not isinstance(passed.arguments, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
            problem = "called next with arguments that are no dict"
        if problem is not None:
            raise MiddlewareError(f"the middleware {layer.name} {problem}")

    async def _reach(self, call: ToolInvocation[Any], changed: tuple[str, ...]) -> ToolOutput:
        """Run the tool, and note its kind of end."""
        self._task = asyncio.current_task()
        try:
            return await self._run_tool(call, changed)
        except asyncio.CancelledError:
            self.was_cut = self.reached
            raise
        except (Exception, GeneratorExit):
            raise
        except BaseException as control:
            self._control = control
            raise
        finally:
            self._task = None

    async def _close(self, call: ToolInvocation[Any]) -> None:
        """Stop accepting calls of `next`, and stop the tool if a layer abandoned it."""
        self._over = True
        task = self._task
        if task is None or task is asyncio.current_task():
            return
        self.was_cut = self.reached
        task.add_done_callback(_collect)
        try:
            for seconds in PATIENCE:
                task.cancel()
                if (await asyncio.wait({task}, timeout=seconds))[0]:
                    return
        finally:
            if not task.done():
                give_up(task, call.name, call.context.task_id, call.context.call_id)


def _is_same(arguments: Any, digest: str) -> bool:
    try:
        return digest_of(arguments) == digest
    except (
        TypeError,
        ValueError,
    ):  # a value that is not JSON counts as different, and is refused before the tool runs
        return False


def _say_where(error: Exception, layer: Layer, reached: bool, failed: bool) -> None:
    """Add a note to an error with the layer that raised it and the state of the tool."""
    when = "before the tool ran"
    if reached:
        when = "after the tool had failed" if failed else "after the tool had run: its result is withheld"
    note = f"(raised by the middleware {layer.name} {when})"
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def _collect(task: asyncio.Future[Any]) -> None:
    """Retrieve the error of a tool whose call is over."""
    if not task.cancelled():
        task.exception()
