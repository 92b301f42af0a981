"""Calls of an agent's router, which chooses how a step continues, as effects.

    ChooseRoute --> the router --> RouteChosen, with the chosen calls or none
        it raises, or names no agent of its own    StepFailed: a resume calls it again

The begin is not journalled. An interrupted call of the router is repeated, a finished one is not.
"""

from __future__ import annotations

import asyncio
import inspect
from functools import partial
from typing import Any, ClassVar

from treadle.agents.context import RequestContext, read_only
from treadle.agents.routing import message_of
from treadle.core import events as e
from treadle.core.effects import ChooseRoute
from treadle.core.model_answer import with_places
from treadle.core.state import TaskState
from treadle.engine.effect_in_flight import EffectInFlight
from treadle.engine.journal_writer import Recorder
from treadle.engine.step_threads import in_thread


class RouteInFlight(EffectInFlight[ChooseRoute]):
    """A call of an agent's router, which chooses how a step continues."""

    __slots__ = ()

    ends_before_undo: ClassVar[bool] = False

    @property
    def name(self) -> str:
        return "the router"

    def begin(self, record: Recorder) -> bool:
        """Begin without an event."""
        return True

    async def run(self) -> list[e.Event]:
        """Call the router, and return its choice."""
        step, agent = self.effect.step, self.context.runtime.agent
        try:
            self.enter()
            answer = await self._answer()
        except asyncio.CancelledError:
            return self.broken("it cancelled itself") if self.cancelled_itself() else []
        try:
            message = message_of(agent, answer)
            if message is not None:
                message = with_places(message, step.id, "tool_calls", first=len(step.calls))
        except ValueError as error:
            return self.broken(str(error))
        return [e.RouteChosen(step.id, message)]

    async def _answer(self) -> Any:
        context, state = self.context, self.context.state
        seen = (
            state.view if context.select_messages is None else context.select_messages(context.runtime.specs)
        )
        ctx: RequestContext[Any] = RequestContext(
            state.task_id,
            state.thread,
            state.input,
            context.user_context,
            self.effect.step.index,
            seen,
            context.runtime.agent.tools,
            state=read_only(state),
        )
        router: Any = context.runtime.agent.router
        called: Any = getattr(router, "__call__", None)  # noqa: B004  an object may have an async method
        if inspect.iscoroutinefunction(router) or inspect.iscoroutinefunction(called):
            return await router(ctx)
        answer = await in_thread(partial(router, ctx), alone=True)
        return await answer if inspect.isawaitable(answer) else answer

    def cut_off(self) -> list[e.Event]:
        """Return no event, since the router is called again when the task continues."""
        return []

    def broken(self, text: str, traceback: str = "") -> list[e.Event]:
        """Return the failure of the step."""
        text = f"the router of {self.context.runtime.agent.name} failed: {text}"
        failure = e.Failure("agent", "router", text, traceback=traceback)
        return [e.StepFailed(self.effect.step.id, failure)]

    def is_overtaken(self, state: TaskState) -> bool:
        """Whether the step no longer waits for its router."""
        step = self.effect.step
        stops = state.cancelling or state.interrupting or state.pausing or state.undo is not None
        return stops or state.step is not step or step.routed or step.status != "running"
