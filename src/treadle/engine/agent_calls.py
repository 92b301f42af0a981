"""Calls of agents as effects, which run or stop the task of a call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Final

from treadle.agents.decide.calls import may_have_acted
from treadle.agents.middleware import Layer, ToolInvocation
from treadle.core import events as e
from treadle.core import origins
from treadle.core.children import SpentBy
from treadle.core.effects import Effect, RunAgent, RunFunction, StopAgent
from treadle.core.ends import failed_end
from treadle.core.ids import child_id
from treadle.core.labels import Label
from treadle.core.messages import copied
from treadle.core.observation import as_text
from treadle.core.state import TaskState
from treadle.core.steps import CallState
from treadle.engine.approval_binding import definition_of, is_void
from treadle.engine.effect_context import AgentRuntime, StopChild, Subagents
from treadle.engine.effect_in_flight import EffectInFlight
from treadle.engine.journal_writer import Recorder
from treadle.engine.middleware import Execution
from treadle.engine.tool_calls import read_only_context, rewritten_arguments, tool_end, validated_arguments
from treadle.engine.tree_limits import allows_call, refuse_call, refused_text
from treadle.errors import StoreError, StoreUnavailable, SubagentFailed, TaskTooNew
from treadle.policy.budget import spent_by
from treadle.ports import ToolOutput
from treadle.results.pending import stop_text
from treadle.results.states import state_at_rest
from treadle.results.steps import all_steps

STOP_SECONDS: Final = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Seconds between tries to stop an agent while the store does not answer. After the last one the drive fails."""


class AgentCallInFlight(EffectInFlight[RunAgent]):
    """A call of an agent, whose task runs to its next stop."""

    __slots__ = ("_ended", "_input", "_is_new", "_record", "_stop")

    has_own_grace: ClassVar[bool] = True
    ends_before_undo: ClassVar[bool] = False  # its task is undone as a whole

    _input: str
    """the input of the agent"""

    _ended: TaskState | None
    """the state of the child, once it has ended"""

    _is_new: bool
    """whether the child is still to be created"""

    _record: Recorder
    _stop: StopAgent | None
    """the effect that ends the call if its agent can no longer be called"""

    @property
    def name(self) -> str:
        return self.effect.call.name

    def begin(self, record: Recorder) -> bool:
        """Record the begin of the call, or its end if a limit is reached or its arguments are invalid."""
        context, effect, call = self.context, self.effect, self.effect.call
        subagents, self._stop, self._record = context.subagents, None, record
        if subagents is None or (call.child is not None and not subagents.has_agent(call.name)):
            why = "the agent that called it cannot call it any more"
            self._stop = StopAgent(effect.id, call, "cancelled", why)
            return True
        if not allows_call(subagents, call, record):
            return False
        arguments = validated_arguments(context, call, record)
        if arguments is None or (call.permit is not None and is_void(context, call, record)):
            return False
        self._input = arguments
        refused = subagents.account.refuses_child() if call.child is None else None
        if refused is not None:
            if call.failed_children:
                record(_not_tried_again(call, refused_text(refused)))
            else:
                refuse_call(call, refused, record)
            return False
        spec = context.runtime.tools[call.name].spec
        if spec.timeout is not None:
            self.timeout = max(0.0, spec.timeout - call.ran / 1e6)
        self._is_new = call.child is None
        child = call.child or child_id(context.state.task_id, call.id, len(call.failed_children) + 1)
        record(e.ToolStarted(call.step, effect.id, "agent", call.attempt + 1, child=child))
        return True

    async def run(self) -> list[e.Event]:
        """Run the task of the call. Return the end of the call, or its stop if the task rests."""
        if self._stop is not None:
            return await _stop_agent(self.stop_child, self._stop)
        subagents = self.context.subagents
        assert subagents is not None, "begin asked for them"
        layers = self.context.runtime.layers
        own = layers.get(self.effect.call.name) if layers is not None else None
        self._ended = None
        end = await (self._run(subagents) if own is None else self._through(own, subagents))
        if isinstance(end, e.ToolEnded) and self._ended is not None:
            self._label(end, subagents, self._ended)
        if subagents.unseen:
            end.unseen, subagents.unseen = subagents.unseen, 0
        return [end]

    def _label(self, end: e.ToolEnded, subagents: Subagents, state: TaskState) -> None:
        """Label the end of a call. It is trusted if its task is a sanitiser or read only trusted content."""
        call = self.effect.call
        tool: Any = self.context.runtime.tools[call.name]
        is_sanitised = (
            tool.spec.trusted
            and end.outcome == "ok"
            and state.ended == "completed"
            and end.output == state.output
            and tool.sanitised(state.output)
        )
        if end.label is None:  # otherwise its middleware named another origin
            end.label = child_label(state, is_sanitised=is_sanitised)
        end.exposed = subagents.effects_seen(call, state)

    async def _through(self, layers: Sequence[Layer], subagents: Subagents) -> e.ToolEnded | e.ToolStopped:
        """Run the task of the call inside its middleware, which gets an answer or a failure."""
        context, call = self.context, self.effect.call
        if self.on_entry is not None:
            self.on_entry()
            self.on_entry = None
        ended: list[e.ToolEnded] = []

        async def reach(passed: ToolInvocation[Any], by: Sequence[str]) -> ToolOutput:
            if by and self._is_new:
                written = await rewritten_arguments(self, self._record, passed.arguments, tuple(by))
                self._input = self._input if written is None else written
            if self.cancel_reason is not None or self.ends is not None:
                raise asyncio.CancelledError  # a middleware turned its cancellation into something else
            execution.reached = True
            end = await self._run(subagents)
            if isinstance(end, e.ToolStopped):
                raise _AtRest(end)
            ended.append(end)
            if end.outcome != "ok":
                message = end.error.message if end.error is not None else end.outcome
                raise SubagentFailed(message, tool=call.name, call_id=call.id, outcome=end.outcome)
            return ToolOutput(end.output, end.observation, end.display, end.sources, end.artifacts)

        execution = Execution(layers, reach, context.vault.error_text)
        ctx = read_only_context(self, call, "middleware")
        definition = partial(definition_of, context.runtime, call.name)
        invocation = ToolInvocation(context.runtime.tools[call.name], copied(call.arguments), ctx, definition)
        try:
            result = context.vault.known.hide_data(await execution.run(invocation))
            end = tool_end(call, result, context.runtime)
        except _AtRest as rest:
            return rest.end
        except asyncio.CancelledError:
            if not self.cancelled_itself():
                return self._stopped(subagents.spent_by(call))
            end = _failed(call, "it cancelled itself", "cancelled", ())
        except SubagentFailed as error:
            end = ended[0] if ended else _failed(call, str(error), "error", ())
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001  an error of middleware is the call's error
            text, traceback = context.vault.error_text(error), self.traceback_of(error)
            end = _failed(call, text, "error", (), traceback)
        if ended:
            end.spent, end.harmless = ended[0].spent, ended[0].harmless
        elif not execution.reached:
            end.harmless = True  # its task was not created
        end.report = execution.report(returned=end.outcome == "ok")
        return end

    async def _run(self, subagents: Subagents) -> e.ToolEnded | e.ToolStopped:
        context, call = self.context, self.effect.call
        try:
            # If the answer with the call were lost, another call might get its place, and so the child's name.
            await context.durable()
            self.enter()
            if context.enter_call is not None:
                context.enter_call(call.id, call.attempt)
            state = await subagents.run(call, self._input, context.user_context)
        except asyncio.CancelledError:
            if self.cancelled_itself():
                return _failed(call, "it cancelled itself", "cancelled", ())
            return self._stopped(subagents.spent_by(call))
        except Exception as error:  # noqa: BLE001  an agent that cannot run fails its call
            if not isinstance(error, (StoreError, TaskTooNew)) and not subagents.is_open(call):
                text, traceback = context.vault.error_text(error), self.traceback_of(error)
                return _failed(call, text, "error", subagents.spent_by(call), traceback)
            # The child exists and has not ended, so a later drive continues it.
            subagents.resting.add(call.id)
            text = f"{call.name} cannot go on: {context.vault.error_text(error)}"
            why = e.Failure("subagent", "error", text, call.id)
            return e.ToolStopped(call.step, call.id, "parked", why, subagents.spent_by(call))
        if state.ended is not None:
            self._ended = state
            if state.ended == "failed" and self._may_retry():
                return _retry(call, state, _failure_of(call, state))
            return _end(call, state, context.runtime)
        await subagents.note_resting(call, state)
        return e.ToolStopped(call.step, call.id, "parked", _waits_for(call, state), spent_by(state))

    def _may_retry(self) -> bool:
        call = self.effect.call
        return len(call.failed_children) < self.context.runtime.tools[call.name].spec.retries

    def _stopped(self, spent: tuple[SpentBy, ...] = ()) -> e.ToolStopped:
        call, reason = self.effect.call, self.cancel_reason or "interrupted"
        if reason == "timeout":
            # The task is at rest now. The reason of the stop says that the call is to end.
            text = f"it took longer than {self.context.runtime.tools[call.name].spec.timeout:g} s"
            failure = e.Failure("subagent", reason, text, call.id)
            return e.ToolStopped(call.step, call.id, reason, failure, spent)
        return e.ToolStopped(call.step, call.id, reason, spent=spent)

    def fails_drive(self, error: BaseException) -> bool:
        """Return whether this effect was to stop a child. Then an error means that the child could not be stopped."""
        return self._stop is not None

    def cut_off(self) -> list[e.Event]:
        return [self._stopped()]

    def broken(self, text: str, traceback: str = "") -> list[e.Event]:
        call = self.effect.call
        return [failed_end(call, e.Failure("tool", "error", text, call.id, traceback=traceback))]


class _AtRest(BaseException):
    """The task of a call is at rest and has not ended, so there is no result for middleware."""

    def __init__(self, end: e.ToolStopped) -> None:
        super().__init__(end.reason)
        self.end = end


class AgentStopInFlight(EffectInFlight[StopAgent]):
    """Cancels the task of a call to stop its agent."""

    __slots__ = ()

    has_own_grace: ClassVar[bool] = True
    survives_cancel: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return self.effect.call.name

    def begin(self, record: Recorder) -> bool:
        """Begin without an event, since `decide` asks again for a lost stop."""
        return True

    def fails_drive(self, error: BaseException) -> bool:
        """Return True, since the user's code does not run here, so an error is not the call's."""
        return True

    async def run(self) -> list[e.Event]:
        """Cancel the task of the call, and return the end of the call."""
        return await _stop_agent(self.stop_child, self.effect)

    def cut_off(self) -> list[e.Event]:
        """Return no event, since `decide` asks for the stop again."""
        return []

    def broken(self, text: str, traceback: str = "") -> list[e.Event]:
        call = self.effect.call
        return [failed_end(call, e.Failure("tool", "error", text, call.id, traceback=traceback))]


async def _stop_agent(stop_child: StopChild, effect: StopAgent) -> list[e.Event]:
    """Cancel the task of a call, and return the end of the call."""
    call = effect.call
    was_cancelled = bool(call.attempt) and effect.outcome != "timeout"
    end = e.ToolEnded(call.step, call.id, "cancelled" if was_cancelled else effect.outcome)
    text = f"{call.name} was stopped: {effect.why}."
    end.error = e.Failure("subagent", effect.outcome, text, call.id)
    try:
        state = await _child_at_end(stop_child, effect)
    except asyncio.CancelledError:
        return []
    if state is None:
        end.harmless = True
    elif effect.retries:
        return [_retry(call, state, end.error)]
    else:
        end.spent, end.harmless = spent_by(state), is_harmless(state)
        end.label = child_label(state)
    return [end]


async def _child_at_end(stop_child: StopChild, effect: StopAgent) -> TaskState | None:
    """Cancel the task of a call, and return its state. Return None if it was never created.

    The end of the call has the spending and the effects of the task. So the call cannot end while the store does not
    answer.

    Raises:
        StoreUnavailable: the store did not answer any try. A later drive stops the task.
    """
    for seconds in STOP_SECONDS:
        try:
            return await stop_child(effect.call, effect.why)
        except StoreUnavailable:
            await asyncio.sleep(seconds)
    return await stop_child(effect.call, effect.why)


def effects_to_run(
    subagents: Subagents, state: TaskState, effects: tuple[Effect, ...]
) -> tuple[Effect, ...] | None:
    """Return a task's effects without those of children at rest, or None if it only waits for such children.

    A pause of the task is passed on to its running children.
    """
    if state.pausing:
        subagents.pause(effects)
    if not subagents.resting:
        return effects
    active = subagents.without_resting(effects)
    return None if all(type(effect) is RunFunction for effect in active) else active


def _not_tried_again(call: CallState, why: str) -> e.ToolEnded:
    """Return the end of a call whose last task failed and that must not be retried."""
    error = call.failed_children[-1].error
    failed = error.message if error is not None else "its task failed"
    outcome = "timeout" if error is not None and error.kind == "timeout" else "error"
    end = _failed(call, f"{failed.rstrip('.')}; it was not tried again: {why}", outcome, ())
    end.harmless = not call.acted
    return end


def _retry(call: CallState, state: TaskState, error: e.Failure) -> e.ToolStopped:
    """Return the failure of a call's task, after which the call begins again with a new task."""
    stopped = e.ToolStopped(call.step, call.id, "error", error, spent_by(state), failed=state.task_id)
    stopped.harmless = is_harmless(state)
    return stopped


def _end(call: CallState, state: TaskState, runtime: AgentRuntime) -> e.ToolEnded:
    if state.ended in ("completed", "degraded"):
        end = tool_end(call, ToolOutput(state.output, _observation(state)), runtime)
        end.spent = spent_by(state)
    else:
        error = _failure_of(call, state)
        outcome = "error" if state.ended == "failed" else "cancelled"
        end = _failed(call, error.message, outcome, spent_by(state), error.traceback)
    end.harmless = is_harmless(state)
    return end


def _failure_of(call: CallState, state: TaskState) -> e.Failure:
    """Return the failure of a call whose task failed or was cancelled."""
    why = state.error.message if state.error is not None else "no reason was given"
    if state.ended == "failed":
        traceback = state.error.traceback if state.error is not None else ""
        return e.Failure("subagent", "error", f"{call.name} failed: {why}", call.id, traceback=traceback)
    return e.Failure("subagent", "cancelled", f"{call.name} was {why}", call.id)


def _observation(state: TaskState) -> str | None:
    """Return the observation of a degraded answer, with the reasons, or None for the answer alone."""
    if state.ended != "degraded":
        return None
    return f"{as_text(state.output)}\n\n[A best effort: {'; '.join(state.end_reasons)}]"


def _failed(
    call: CallState, text: str, outcome: e.Outcome, spent: tuple[SpentBy, ...], traceback: str = ""
) -> e.ToolEnded:
    error = e.Failure("subagent", outcome, text, call.id, traceback=traceback)
    return e.ToolEnded(call.step, call.id, outcome, error=error, spent=spent)


def _waits_for(call: CallState, state: TaskState) -> e.Failure:
    """Return the reason why a child is at rest."""
    return e.Failure("subagent", state_at_rest(state), stop_text(call.name, state), call.id)


def child_label(state: TaskState, *, is_sanitised: bool = False) -> Label:
    """Return the label of a child's answer. It is untrusted if the child has read untrusted content."""
    is_trusted = is_sanitised or not origins.of_task(state)
    return Label(f"subagent:{state.created_for}", "trusted" if is_trusted else "untrusted")


def is_harmless(state: TaskState) -> bool:
    """Whether a task's calls cannot have had outside effects."""
    return not any(may_have_acted(call) for step in all_steps(state) for call in step.calls)
