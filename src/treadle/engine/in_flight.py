"""The effects of one drive that are in the air: how they begin, are awaited, cut short, and land.

An effect that flies alone is awaited in the asyncio task that carries the drive, for a task of its own would cost more
than many an effect. As soon as anything else wants attention meanwhile (the inbox, the clock, a cut), that task is
relieved: another carries the drive on, and it is the effect's own from then on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextvars import copy_context
from functools import partial
from types import coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

from treadle.core import events as e
from treadle.core.children import child_id
from treadle.core.effects import (
    CallModel,
    CallTool,
    ConsultWorker,
    Effect,
    RunAgent,
    RunFunction,
    StopAgent,
    UndoCall,
)
from treadle.core.ends import withheld_end
from treadle.core.messages import copied
from treadle.core.model_answer import SURPLUS, problem_clause
from treadle.core.observation import error_text, not_offered_text, unknown_tool_text
from treadle.engine import abandoned, agent_calls, perform, tool_selection
from treadle.engine.effect_context import CancelReason, EffectContext, EffectInFlight, StopChild, Subagents
from treadle.engine.journal_writer import Recorder
from treadle.errors import ToolArgumentsInvalid

if TYPE_CHECKING:
    from treadle.core.steps import CallState

T = TypeVar("T")

GRACE: Final = 2.0
"""Seconds a cancelled call has to end before it is cancelled again, and soon after that given up as abandoned."""

INSIST: Final = 0.2
"""Seconds between the second cancel and giving up."""

Work = Callable[[], Coroutine[Any, Any, list[e.Event]]]
"""Performs an effect and returns its end."""


class EffectsInFlight:
    """What is in the air; `running` by effect id, `finished` in the order of their ends.

    Args:
        context: what effects are performed with; None where none will begin.
        record: takes the begin of an effect down.
        wake: is called when something landed.
        carry_on: is called when the task that carries the drive is needed elsewhere: another has to carry it on.
        stop_child: cancels a child of the task.
    """

    def __init__(
        self,
        context: EffectContext | None,
        record: Recorder,
        wake: Callable[[], None],
        spawn_loop_task: Callable[[], None],
        stop_child: StopChild,
    ) -> None:
        self._stage = context
        self._stop_child = stop_child
        self._record = record
        self._wake = wake
        self._spawn_loop_task = spawn_loop_task
        self._loop = asyncio.get_running_loop()
        self._inline: EffectInFlight | None = None
        self.running: dict[str, EffectInFlight] = {}
        self.finished: list[EffectInFlight] = []

    # ---------------------------------------------------------------------------------------- begin

    def start(self, effect: Effect) -> bool:
        """Start one effect in a task of its own; False when it ended without starting."""
        prepared = self.prepare(effect)
        if prepared is None:
            return False
        in_flight, work = prepared
        self.running[effect.id] = in_flight
        in_flight.task = self._loop.create_task(self._run(in_flight, work))
        in_flight.task.add_done_callback(partial(self._on_done, in_flight))
        return True

    def prepare(self, effect: Effect) -> tuple[EffectInFlight, Work] | None:
        """Record the begin of an effect and return how to perform it; None when it ended without starting."""
        context = self._stage
        in_flight = EffectInFlight(effect)
        record = self._record
        if isinstance(effect, StopAgent):
            return in_flight, self._stopping(effect)
        assert context is not None, "other effects are wanted only by those who know the agent"
        if isinstance(effect, CallModel):
            if context.subagents is not None and not self._may_ask(context.subagents, effect):
                return None
            return in_flight, self._asking(context, in_flight, effect)
        if isinstance(effect, CallTool):
            if context.subagents is not None and not self._may_call(context.subagents, effect):
                return None
            arguments = self._admitted(context, effect)
            if arguments is None:
                return None
            call, spec = effect.call, context.runtime.tools[effect.call.name].spec
            record(e.ToolStarted(call.step, effect.id, spec.effect, call.attempt + 1, spec.undoable))
            work = partial(perform.call_tool, context, in_flight, effect, arguments)
        elif isinstance(effect, RunAgent):
            return self._sending(context, in_flight, effect)
        elif isinstance(effect, (RunFunction, ConsultWorker)):
            from treadle.engine import step_functions

            if isinstance(effect, RunFunction):
                return in_flight, partial(step_functions.run_function, context, in_flight, effect)
            return in_flight, partial(step_functions.consult_worker, context, in_flight, effect)
        elif isinstance(effect, UndoCall):
            call = effect.call
            record(e.ToolStarted(call.step, effect.id, "write", call.undo_attempt + 1, undoes=call.id))
            work = partial(perform.undo_call, context, in_flight, effect)
        else:
            work = partial(perform.reconcile, context, in_flight, effect)
        tool = context.runtime.tools.get(effect.call.name)
        if tool is not None and tool.spec.timeout is not None:
            in_flight.on_entry = partial(self._give_time, in_flight, tool.spec.timeout)
        return in_flight, work

    def _asking(self, context: EffectContext, in_flight: EffectInFlight, effect: CallModel) -> Work:
        """Record the begin of a request, and which tools it offers; return how to make it."""
        call, step = effect.call, effect.step
        offered, failure = tool_selection.choose(context, effect)
        name = context.runtime.model.name
        self._record(e.ModelStarted(step.id, name, call.attempt + 1, effect.final, offered, call.id))
        if failure is not None:
            return partial(tool_selection.failed, effect, failure)
        return partial(perform.call_model, context, in_flight, effect)

    def _may_ask(self, subagents: Subagents, effect: CallModel) -> bool:
        """Whether the tree may ask a model once more; if not, that is recorded once nothing else is under way."""
        account = subagents.account
        reached = subagents.refused if not effect.final else None
        subagents.refused = None
        reached = reached or account.refuses_request(final=effect.final)
        if reached is not None:
            self._reach(subagents, reached)
        return reached is None

    def _may_call(self, subagents: Subagents, effect: CallTool | RunAgent) -> bool:
        """Whether the tree may make one more call; one that began before is counted already."""
        call = effect.call
        reached = subagents.account.refuses_call() if not call.attempt else None
        if reached is None:
            return True
        if subagents.state.graph is None:
            subagents.refused = reached
            self._refuse(call, reached)
        else:
            self._reach(subagents, reached)
        return False

    def _reach(self, subagents: Subagents, reached: e.LimitReached) -> None:
        if not (subagents.state.in_flight() and subagents.state.graph is not None):
            self._record(reached)

    def _refuse(self, call: CallState, reached: e.LimitReached) -> None:
        words = {
            "tool_calls": "tool calls",
            "children": "subagents, with those that they called,",
            "depth": "levels of subagents",
        }
        text = f"{call.name} was not run: the limit of {reached.allowed:g} {words[reached.limit]} is reached."
        self._record(withheld_end(call, "refused", e.Failure("limit", reached.limit, text, call.id)))

    def _sending(
        self, context: EffectContext, in_flight: EffectInFlight, effect: RunAgent
    ) -> tuple[EffectInFlight, Work] | None:
        """Record the begin of an agent's call, and return how to run it."""
        call, subagents = effect.call, context.subagents
        if subagents is None or (call.child is not None and not subagents.has_agent(call.name)):
            why = "the agent that called it cannot call it any more"
            return in_flight, self._stopping(StopAgent(effect.id, call, "cancelled", why))
        if not self._may_call(subagents, effect):
            return None
        told = self._admitted(context, effect)
        if told is None:
            return None
        refused = subagents.account.refuses_child() if call.child is None else None
        if refused is not None:
            self._refuse(call, refused)
            return None
        child = call.child or child_id(context.state.task_id, call.id)
        self._record(e.ToolStarted(call.step, effect.id, "agent", call.attempt + 1, child=child))
        return in_flight, partial(agent_calls.run_agent, context, in_flight, effect, told)

    def _stopping(self, effect: StopAgent) -> Work:
        return partial(agent_calls.stop_agent, self._stop_child, effect)

    def _give_time(self, in_flight: EffectInFlight, seconds: float) -> None:
        if in_flight.cancel_reason is None:
            in_flight.timer = self._loop.call_later(seconds, self.cancel, in_flight, "timeout")

    def _admitted(self, context: EffectContext, effect: CallTool | RunAgent) -> Any:
        """Return the arguments of a call as its tool wants them; None when the call ended as invalid."""
        call = effect.call
        tool = context.runtime.tools.get(call.name)
        dialect = context.runtime.agent.dialect
        if call.problem is not None and call.problem.startswith(SURPLUS):
            text = f"{call.name} was not run: {problem_clause(call.problem)}."
        elif call.problem is not None and dialect is not None:
            text = dialect.correction(call.problem)
        elif tool is None:
            text = unknown_tool_text(
                call.name, context.runtime.tools if call.offered is None else call.offered
            )
        elif call.offered is not None and call.name not in call.offered:
            text = not_offered_text(call.name, call.offered)
        elif call.problem is not None:
            text = f"{call.name} was not run: {problem_clause(call.problem)}."
        else:
            try:
                # A tool may change what it is given; the journal keeps what the model asked for.
                return tool.validate(copied(call.arguments))
            except ToolArgumentsInvalid as error:
                text = f"{call.name} was not run: {error}"
            except Exception as error:  # noqa: BLE001  tools are anybody's code, and harm only their own call
                text = f"{call.name} was not run: its arguments could not be checked: {error_text(error)}"
        self._record(withheld_end(call, "invalid", e.Failure("tool", "invalid", text, call.id)))
        return None

    # ------------------------------------------------------------------------------------------ end

    async def run_inline(
        self, in_flight: EffectInFlight, work: Work, me: asyncio.Task[Any], on_wait: Callable[[], None]
    ) -> list[e.Event] | None:
        """Await a lone effect in the task that carries the drive; None if another carries it by now.

        `on_wait` is called when the effect first waits, if it does.
        """
        in_flight.task, self._inline = me, in_flight
        try:
            ends = await in_own_context(work(), on_wait)
        except BaseException:
            self.detach_inline()
            raise
        if me.cancelling():
            self.detach_inline()
        if self._inline is not in_flight:
            self._finish(in_flight, ends)
            return None
        self._inline = None
        if in_flight.timer is not None:
            in_flight.timer.cancel()
        return ends

    def detach_inline(self) -> None:
        """Let another task carry the drive on, if the one that does awaits an effect."""
        in_flight, self._inline = self._inline, None
        if in_flight is not None and in_flight.task is not None and not self._loop.is_closed():
            self.running[in_flight.effect.id] = in_flight
            in_flight.task.add_done_callback(partial(self._on_done, in_flight))
            self._spawn_loop_task()

    async def _run(self, in_flight: EffectInFlight, work: Work) -> None:
        """Carry an effect to its end; the drive hears of it from here, a round of the event loop before `_on_done`."""
        self._finish(in_flight, await work())

    def _on_done(self, in_flight: EffectInFlight, task: asyncio.Task[None]) -> None:
        """Take down the end of an effect that has none of its own: cancelled before it began, or broken."""
        if task.cancelled():
            self._finish(in_flight, perform.given_up(in_flight))
        elif (error := task.exception()) is not None:
            self._finish(in_flight, perform.broken(in_flight, error))

    def disconnect(self) -> None:
        """Tell nobody any more: the drive is over, and what was abandoned may still end."""
        self._record = self._wake = self._spawn_loop_task = _ignore

    def _finish(self, in_flight: EffectInFlight, ends: list[e.Event]) -> None:
        if in_flight.timer is not None:
            in_flight.timer.cancel()
        if in_flight.ends is None:
            in_flight.ends = ends
            self.finished.append(in_flight)
            self._wake()

    # ------------------------------------------------------------------------------------- stopping

    def cancel(self, in_flight: EffectInFlight, why: CancelReason) -> None:
        """Stop an effect: cancel, after a grace cancel again, then give it up as abandoned."""
        if in_flight.cancel_reason is not None or in_flight.task is None or in_flight.ends is not None:
            return
        if in_flight is self._inline:
            self.detach_inline()
        in_flight.cancel_reason = why
        in_flight.task.cancel()
        if in_flight.timer is not None:
            in_flight.timer.cancel()
        if type(in_flight.effect) is RunAgent or type(in_flight.effect) is StopAgent:
            return  # what runs below has graces of its own
        in_flight.timer = self._loop.call_later(GRACE, self._insist, in_flight)

    def _insist(self, in_flight: EffectInFlight) -> None:
        if in_flight.task is not None and not in_flight.task.done():
            in_flight.task.cancel()
            in_flight.timer = self._loop.call_later(INSIST, self._abandon, in_flight)

    def _abandon(self, in_flight: EffectInFlight) -> None:
        if in_flight.task is None or in_flight.task.done() or in_flight.ends is not None:
            return
        assert self._stage is not None, "nothing flies without one"
        abandoned.give_up(in_flight.task, in_flight.name, self._stage.state.task_id, in_flight.effect.id)
        in_flight.cancel_reason = "abandoned"
        in_flight.ends = perform.given_up(in_flight)
        self.finished.append(in_flight)
        self._wake()


def _ignore(*_: Any, **__: Any) -> None:
    pass


@coroutine
def in_own_context(
    work: Coroutine[Any, Any, T], on_wait: Callable[[], None] | None
) -> Generator[Any, Any, T]:
    """Await a coroutine in this task, but in a copy of its context: what it sets there reaches nobody else.

    `on_wait` is called when the coroutine first waits for something, if it does.
    """
    run = copy_context().run
    resume, value = work.send, None
    while True:
        try:
            waits_for = run(resume, value)
        except StopIteration as end:
            return end.value
        if on_wait is not None:
            on_wait()
            on_wait = None
        try:
            resume, value = work.send, (yield waits_for)
        except GeneratorExit:
            work.close()
            raise
        except BaseException as error:  # noqa: BLE001  it is the coroutine's to deal with
            resume, value = work.throw, error
