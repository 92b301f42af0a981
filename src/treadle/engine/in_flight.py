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
from treadle.engine.effect_context import Cut, EffectInFlight, Stage, StopChild, Subagents
from treadle.engine.journal_writer import Recorder
from treadle.errors import ToolArgumentsInvalid

if TYPE_CHECKING:
    from treadle.core.state import CallState

T = TypeVar("T")

GRACE: Final = 2.0
"""Seconds a cancelled call has to end before it is cancelled again, and soon after that given up as abandoned."""

INSIST: Final = 0.2
"""Seconds between the second cancel and giving up."""

Work = Callable[[], Coroutine[Any, Any, list[e.Event]]]
"""Performs an effect and returns its end."""


class EffectsInFlight:
    """What is in the air; `running_effects` by effect id, `finished_effects` in the order of their ends.

    Args:
        stage: what effects are performed with; None where none will begin.
        record: takes the begin of an effect down.
        wake: is called when something landed.
        carry_on: is called when the task that carries the drive is needed elsewhere: another has to carry it on.
        stop_child: cancels a child of the task.
    """

    def __init__(
        self,
        stage: Stage | None,
        record: Recorder,
        wake: Callable[[], None],
        carry_on: Callable[[], None],
        stop_child: StopChild,
    ) -> None:
        self._stage = stage
        self._stop_child = stop_child
        self._record = record
        self._wake = wake
        self._carry_on = carry_on
        self._loop = asyncio.get_running_loop()
        self._lone: EffectInFlight | None = None
        self.running_effects: dict[str, EffectInFlight] = {}
        self.finished_effects: list[EffectInFlight] = []

    # ---------------------------------------------------------------------------------------- begin

    def start(self, effect: Effect) -> bool:
        """Start one effect in a task of its own; False when it ended without starting."""
        prepared = self.prepare(effect)
        if prepared is None:
            return False
        flight, work = prepared
        self.running_effects[effect.id] = flight
        flight.task = self._loop.create_task(self._carry(flight, work))
        flight.task.add_done_callback(partial(self._land, flight))
        return True

    def prepare(self, effect: Effect) -> tuple[EffectInFlight, Work] | None:
        """Record the begin of an effect and return how to perform it; None when it ended without starting."""
        stage = self._stage
        flight = EffectInFlight(effect)
        record = self._record
        if isinstance(effect, StopAgent):
            return flight, self._stopping(effect)
        assert stage is not None, "other effects are wanted only by those who know the agent"
        if isinstance(effect, CallModel):
            if stage.family is not None and not self._may_ask(stage.family, effect):
                return None
            return flight, self._asking(stage, flight, effect)
        if isinstance(effect, CallTool):
            if stage.family is not None and not self._may_call(stage.family, effect):
                return None
            arguments = self._admitted(stage, effect)
            if arguments is None:
                return None
            call, spec = effect.call, stage.kit.tools[effect.call.name].spec
            record(e.ToolStarted(call.step, effect.id, spec.effect, call.attempt + 1, spec.undoable))
            work = partial(perform.call_tool, stage, flight, effect, arguments)
        elif isinstance(effect, RunAgent):
            return self._sending(stage, flight, effect)
        elif isinstance(effect, (RunFunction, ConsultWorker)):
            from treadle.engine import step_functions

            if isinstance(effect, RunFunction):
                return flight, partial(step_functions.run_function, stage, flight, effect)
            return flight, partial(step_functions.consult_worker, stage, flight, effect)
        elif isinstance(effect, UndoCall):
            call = effect.call
            record(e.ToolStarted(call.step, effect.id, "write", call.undo_attempt + 1, undoes=call.id))
            work = partial(perform.undo_call, stage, flight, effect)
        else:
            work = partial(perform.reconcile, stage, flight, effect)
        tool = stage.kit.tools.get(effect.call.name)
        if tool is not None and tool.spec.timeout is not None:
            flight.on_entry = partial(self._give_time, flight, tool.spec.timeout)
        return flight, work

    def _asking(self, stage: Stage, flight: EffectInFlight, effect: CallModel) -> Work:
        """Record the begin of a request, and which tools it offers; return how to make it."""
        asked, step = effect.asked, effect.step
        call, before = (None, step.model_attempt) if asked is None else (asked.id, asked.attempt)
        offered, failure = tool_selection.choose(stage, effect)
        name = stage.kit.model.name
        self._record(e.ModelStarted(step.id, name, before + 1, effect.final, offered, call))
        if failure is not None:
            return partial(tool_selection.failed, effect, failure)
        return partial(perform.call_model, stage, flight, effect)

    def _may_ask(self, family: Subagents, effect: CallModel) -> bool:
        """Whether the tree may ask a model once more; if not, that is recorded once nothing else is under way."""
        account = family.account
        reached = family.refused if not effect.final else None
        family.refused = None
        reached = reached or account.refuses_request(final=effect.final)
        if reached is not None:
            self._reach(family, reached)
        return reached is None

    def _may_call(self, family: Subagents, effect: CallTool | RunAgent) -> bool:
        """Whether the tree may make one more call; one that began before is counted already."""
        call = effect.call
        reached = family.account.refuses_call() if not call.attempt else None
        if reached is None:
            return True
        if family.state.graph is None:
            family.refused = reached
            self._refuse(call, reached)
        else:
            self._reach(family, reached)
        return False

    def _reach(self, family: Subagents, reached: e.LimitReached) -> None:
        if not (family.state.in_flight() and family.state.graph is not None):
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
        self, stage: Stage, flight: EffectInFlight, effect: RunAgent
    ) -> tuple[EffectInFlight, Work] | None:
        """Record the begin of an agent's call, and return how to run it."""
        call, family = effect.call, stage.family
        if family is None or (call.child is not None and not family.knows(call.name)):
            why = "the agent that called it cannot call it any more"
            return flight, self._stopping(StopAgent(effect.id, call, "cancelled", why))
        if not self._may_call(family, effect):
            return None
        told = self._admitted(stage, effect)
        if told is None:
            return None
        refused = family.account.refuses_child() if call.child is None else None
        if refused is not None:
            self._refuse(call, refused)
            return None
        child = call.child or child_id(stage.state.task_id, call.id)
        self._record(e.ToolStarted(call.step, effect.id, "agent", call.attempt + 1, child=child))
        return flight, partial(agent_calls.run_agent, stage, flight, effect, told)

    def _stopping(self, effect: StopAgent) -> Work:
        return partial(agent_calls.stop_agent, self._stop_child, effect)

    def _give_time(self, flight: EffectInFlight, seconds: float) -> None:
        if flight.cut is None:
            flight.timer = self._loop.call_later(seconds, self.cut, flight, "timeout")

    def _admitted(self, stage: Stage, effect: CallTool | RunAgent) -> Any:
        """Return the arguments of a call as its tool wants them; None when the call ended as invalid."""
        call = effect.call
        tool = stage.kit.tools.get(call.name)
        dialect = stage.kit.agent.dialect
        if call.problem is not None and call.problem.startswith(SURPLUS):
            text = f"{call.name} was not run: {problem_clause(call.problem)}."
        elif call.problem is not None and dialect is not None:
            text = dialect.correction(call.problem)
        elif tool is None:
            text = unknown_tool_text(call.name, stage.kit.tools if call.offered is None else call.offered)
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

    async def alone(
        self, flight: EffectInFlight, work: Work, me: asyncio.Task[Any], on_wait: Callable[[], None]
    ) -> list[e.Event] | None:
        """Await a lone effect in the task that carries the drive; None if another carries it by now.

        `on_wait` is called when the effect first waits, if it does.
        """
        flight.task, self._lone = me, flight
        try:
            ends = await in_own_context(work(), on_wait)
        except BaseException:
            self.detach_inline()
            raise
        if me.cancelling():
            self.detach_inline()
        if self._lone is not flight:
            self._take_down(flight, ends)
            return None
        self._lone = None
        if flight.timer is not None:
            flight.timer.cancel()
        return ends

    def detach_inline(self) -> None:
        """Let another task carry the drive on, if the one that does awaits an effect."""
        flight, self._lone = self._lone, None
        if flight is not None and flight.task is not None and not self._loop.is_closed():
            self.running_effects[flight.effect.id] = flight
            flight.task.add_done_callback(partial(self._land, flight))
            self._carry_on()

    async def _carry(self, flight: EffectInFlight, work: Work) -> None:
        """Carry an effect to its end; the drive hears of it from here, a round of the event loop before `_land`."""
        self._take_down(flight, await work())

    def _land(self, flight: EffectInFlight, task: asyncio.Task[None]) -> None:
        """Take down the end of an effect that has none of its own: cancelled before it began, or broken."""
        if task.cancelled():
            self._take_down(flight, perform.given_up(flight))
        elif (error := task.exception()) is not None:
            self._take_down(flight, perform.broken(flight, error))

    def let_go(self) -> None:
        """Tell nobody any more: the drive is over, and what was abandoned may still end."""
        self._record = self._wake = self._carry_on = _nobody

    def _take_down(self, flight: EffectInFlight, ends: list[e.Event]) -> None:
        if flight.timer is not None:
            flight.timer.cancel()
        if flight.ends is None:
            flight.ends = ends
            self.finished_effects.append(flight)
            self._wake()

    # ------------------------------------------------------------------------------------- stopping

    def cut(self, flight: EffectInFlight, why: Cut) -> None:
        """Stop an effect: cancel, after a grace cancel again, then give it up as abandoned."""
        if flight.cut is not None or flight.task is None or flight.ends is not None:
            return
        if flight is self._lone:
            self.detach_inline()
        flight.cut = why
        flight.task.cancel()
        if flight.timer is not None:
            flight.timer.cancel()
        if type(flight.effect) is RunAgent or type(flight.effect) is StopAgent:
            return  # what runs below has graces of its own
        flight.timer = self._loop.call_later(GRACE, self._insist, flight)

    def _insist(self, flight: EffectInFlight) -> None:
        if flight.task is not None and not flight.task.done():
            flight.task.cancel()
            flight.timer = self._loop.call_later(INSIST, self._abandon, flight)

    def _abandon(self, flight: EffectInFlight) -> None:
        if flight.task is None or flight.task.done() or flight.ends is not None:
            return
        assert self._stage is not None, "nothing flies without one"
        abandoned.give_up(flight.task, flight.name, self._stage.state.task_id, flight.effect.id)
        flight.cut = "abandoned"
        flight.ends = perform.given_up(flight)
        self.finished_effects.append(flight)
        self._wake()


def _nobody(*_: Any, **__: Any) -> None:
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
