"""Step functions as effects, and the calls of their worker before the first and after the last step."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Any, ClassVar, Final, cast

from treadle.agents.agent import Agent
from treadle.agents.context import RunContext, read_only
from treadle.agents.workers.step_context import StepContext
from treadle.agents.workers.worker import FunctionWorker, checked_result
from treadle.core import events as e
from treadle.core.effects import ConsultWorker, RunFunction
from treadle.core.messages import Json, copied
from treadle.core.rules.schedule import ITSELF
from treadle.core.state import TaskState
from treadle.core.state_view import StateAccess
from treadle.engine.effect_in_flight import EffectInFlight
from treadle.engine.journal_writer import Recorder
from treadle.engine.step_threads import in_thread
from treadle.errors import ModelError, SubagentFailed, ToolCallFailed, WorkerError
from treadle.results.artifacts import checked_artifacts, checked_sources


class StepFunctionInFlight(EffectInFlight[RunFunction]):
    """A step that is a function. It has no begin event, and runs again from its top after a crash."""

    __slots__ = ()

    ends_before_undo: ClassVar[bool] = False  # an undo takes back its calls

    @property
    def name(self) -> str:
        return f"the step {self.effect.node.plan.name}"

    def begin(self, record: Recorder) -> bool:
        """Begin without an event. When the function runs again, the journal answers its finished calls."""
        return True

    async def run(self) -> list[e.Event]:
        """Run the function and return the step's end. A cancelled function has none, since it is run again."""
        context, node = self.context, self.effect.node
        state, agent = context.state, context.runtime.agent
        worker = agent.custom_worker
        assert isinstance(worker, FunctionWorker), "only such workers have these steps"
        assert context.step_requests is not None, "the driver made a queue for the requests of the functions"
        assert state.graph is not None, "and the steps form a graph"
        assert node.step is not None, "a step that runs has begun"
        access = StateAccess(state, node.step.started_seq, f"step {node.plan.name!r}")
        ctx = StepContext[Any](
            state, node, context.step_requests, context.user_context, agent.tools, agent.typed, access
        )
        self.enter()
        try:
            try:
                result: Any = await in_thread(partial(worker.run, ctx)) if worker.blocks else worker.run(ctx)
                if isinstance(result, Awaitable):
                    result = await cast("Awaitable[Any]", result)
                await ctx.settled()
                done = checked_result(ctx, state.graph, result)
                output = _read_output(agent, done.output) if done.is_last else done.output
                sources = checked_sources(done.sources) if done.sources else ()
                artifacts = checked_artifacts(done.artifacts) if done.artifacts else ()
                changes = access.close()
            except asyncio.CancelledError:
                if not self.cancelled_itself():
                    raise
                await ctx.settled()
                return self.broken("the step cancelled itself")
            except GeneratorExit:
                raise
            except BaseException as error:  # noqa: BLE001  a step fails by its error
                if self.cancel_reason is not None:
                    return []  # it turned its cancellation into another error
                await ctx.settled()
                return self._failed(self._failure_of(error))
        except asyncio.CancelledError:
            return []
        if done.skipped is not None:
            return [self._skipped(done.skipped)]
        judged: list[e.Event] = []
        if done.is_last and context.guarding is not None:
            try:
                judged, passed = await context.guarding.judge_final(node.id, output)
            except asyncio.CancelledError:
                return []
            if passed is None:
                return judged
            output = passed["answer"]
        planned = tuple(done.next_steps)
        end = e.StepCompleted(
            node.id, done.is_last, output, next=planned, sources=sources, artifacts=artifacts
        )
        end.changes = changes
        return [*judged, end]

    def cut_off(self) -> list[e.Event]:
        """Return no event, since the function is run again."""
        return []

    def broken(self, text: str, traceback: str = "") -> list[e.Event]:
        return self._failed(e.Failure("worker", "error", text, traceback=traceback))

    def _failure_of(self, error: BaseException) -> e.Failure:
        while isinstance(error, BaseExceptionGroup):  # the group itself does not name a cause
            error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
        traceback = self.traceback_of(error)
        if isinstance(error, ModelError):
            return e.Failure(
                "model", error.kind, str(error), None, error.status, error.retry_after, traceback=traceback
            )
        if isinstance(error, ToolCallFailed):
            source = "subagent" if isinstance(error, SubagentFailed) else "tool"
            return e.Failure(source, error.outcome, str(error), error.call_id, traceback=traceback)
        text = self.context.vault.error_text(error) + _advice(error)
        return e.Failure("worker", "error", text, traceback=traceback)

    def _failed(self, error: e.Failure) -> list[e.Event]:
        node, worker = self.effect.node, self.context.runtime.agent.function_worker
        degrades = bool(node.needed_by) and worker is not None and worker.degrades
        return [e.StepFailed(node.id, error, degrades)]

    def _skipped(self, why: str | Exception) -> e.StepSkipped:
        """Return the event of a step that skips itself."""
        node, worker = self.effect.node, self.context.runtime.agent.function_worker
        if not isinstance(why, Exception):
            return e.StepSkipped(node.id, ITSELF, reason=why)
        error, degrades = self._failure_of(why), worker is not None and worker.degrades
        text = f"it failed: {error.message}"
        return e.StepSkipped(node.id, ITSELF, reason=text, error=error, degrades=degrades)

    def is_overtaken(self, state: TaskState) -> bool:
        """Whether the step was skipped before its end."""
        return state.graph is not None and not state.graph.needs(self.effect.id)


class ConsultationInFlight(EffectInFlight[ConsultWorker]):
    """A call of a worker, for its first steps or to finalise the answer."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return "the worker"

    def begin(self, record: Recorder) -> bool:
        """Begin without an event, since a worker can be called again."""
        return True

    async def run(self) -> list[e.Event]:
        """Call the worker and return the event of its answer."""
        context = self.context
        state, agent = context.state, context.runtime.agent
        worker = agent.custom_worker
        assert isinstance(worker, FunctionWorker), "only such workers are asked"
        task = RunContext(
            state.task_id, state.thread, state.task_input, context.user_context, state=read_only(state)
        )
        self.enter()
        try:
            if self.effect.id == "initialize":
                return [e.StepsPlanned(await worker.initialize(task))]
            output = await worker.finalize(task, copied(state.output))
            output = _read_output(agent, output)
            if context.guarding is not None and output is not None and output != state.output:
                return await context.guarding.judge_finalized(output)
            return [e.AnswerFinalized(output)]
        except asyncio.CancelledError:
            return self.broken("it cancelled itself") if self.cancelled_itself() else []

    def cut_off(self) -> list[e.Event]:
        """Return no event, since the worker is called again."""
        return []

    def broken(self, text: str, traceback: str = "") -> list[e.Event]:
        return [
            e.WorkerFailed(
                e.Failure("worker", "error", f"{self._method} failed: {text}", traceback=traceback)
            )
        ]

    def traceback_of(self, error: BaseException, function: str = "") -> str:
        """Log an error of the worker and return its traceback, for people."""
        return super().traceback_of(error, function or f"{self._method} of {self.name}")

    @property
    def _method(self) -> str:
        return "initialize_step" if self.effect.id == "initialize" else "finalize_task"


def _advice(error: BaseException) -> str:
    """Return advice for a frequent mistake in a step function, to follow the text of the error; empty for others."""
    if isinstance(error, AttributeError):
        name = getattr(error.obj, "__qualname__", "") if inspect.iscoroutine(error.obj) else ""
        if name.startswith("StepContext."):
            verb = f"{name.removeprefix('StepContext.')}(...)"
            return f"; write `await ctx.{verb}`, or `ctx.wait(ctx.{verb})` in a plain function"
    if isinstance(error, TypeError) and str(error).startswith("'StepContext' object "):
        return "; write `ctx.state[...]` for the state of the task"
    return ""


def _read_output(agent: Agent[Any], output: Json) -> Json:
    """Return the answer of a custom worker as the agent's output type. Raises `WorkerError`."""
    typed = agent.typed
    if typed is None or output is None:
        return output
    try:
        return typed.read(output)
    except ValueError as error:
        raise WorkerError(f"the answer is not of the agent's output type: {error}") from None


KINDS: Final[Mapping[type, type[EffectInFlight[Any]]]] = {
    RunFunction: StepFunctionInFlight,
    ConsultWorker: ConsultationInFlight,
}
"""The classes of this module by their effects."""
