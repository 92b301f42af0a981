"""Performing steps that are functions: entering them, asking the model on their behalf, consulting their worker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Any, cast

from treadle.agents.agent import Agent
from treadle.agents.context import RunContext
from treadle.agents.workers.step_context import StepContext
from treadle.agents.workers.worker import FunctionWorker, checked_result
from treadle.core import events as e
from treadle.core.effects import ConsultWorker, RunFunction
from treadle.core.messages import Json, Message, copied
from treadle.core.model import ModelRequest
from treadle.core.observation import error_text, unknown_tool_text
from treadle.core.schedule import ITSELF, seen_by
from treadle.core.steps import ModelCall
from treadle.engine.artifacts import checked_artifacts, checked_sources
from treadle.engine.effect_context import EffectContext, EffectInFlight, being_cancelled
from treadle.engine.perform import for_layers, standing_instructions
from treadle.engine.step_threads import in_thread
from treadle.errors import ModelError, SubagentFailed, ToolCallFailed, WorkerError


async def run_function(
    context: EffectContext, in_flight: EffectInFlight, effect: RunFunction
) -> list[e.Event]:
    """Enter a step that is a function and return its end; nothing if it was cut off, for then it is entered again."""
    state, worker, node = context.state, context.runtime.agent.custom_worker, effect.node
    assert isinstance(worker, FunctionWorker), "only those have such steps"
    assert context.step_requests is not None, "and a desk for them"
    assert state.graph is not None, "and a graph of them"
    agent = context.runtime.agent
    ctx = StepContext[Any](state, node, context.step_requests, context.user_context, agent.tools, agent.typed)
    in_flight.enter()
    try:
        try:
            result: Any = await in_thread(partial(worker.run, ctx)) if worker.blocks else worker.run(ctx)
            if isinstance(result, Awaitable):
                result = await cast("Awaitable[Any]", result)
            await ctx.settled()
            done = checked_result(ctx, state.graph, result)
            output = _read_output(context.runtime.agent, done.output) if done.is_last else done.output
            sources, artifacts = checked_sources(done.sources), checked_artifacts(done.artifacts)
        except asyncio.CancelledError:
            if in_flight.cancel_reason is not None or being_cancelled():
                raise
            failure = e.Failure("worker", "error", "the step cancelled itself")
            return await _failed(ctx, failure)
        except (Exception, BaseExceptionGroup, SystemExit) as error:  # noqa: BLE001  whatever it raises is its failure
            if in_flight.cancel_reason is not None:
                return []  # it made something else of being cut off
            return await _failed(ctx, _worker_failure(error))
    except asyncio.CancelledError:
        return []
    if done.skipped is not None:
        return [_given_itself_up(node.id, done.skipped)]
    planned = tuple(done.next_steps)
    return [
        e.StepCompleted(node.id, done.is_last, output, next=planned, sources=sources, artifacts=artifacts)
    ]


async def _failed(ctx: StepContext[Any], failure: e.Failure) -> list[e.Event]:
    await ctx.settled()
    return [e.StepFailed(ctx.step_id, failure)]


def _given_itself_up(step: str, why: str | Exception) -> e.StepSkipped:
    if isinstance(why, Exception):
        error = _worker_failure(why)
        return e.StepSkipped(step, ITSELF, reason=f"it failed: {error.message}", error=error)
    return e.StepSkipped(step, ITSELF, reason=str(why))


def _worker_failure(error: BaseException) -> e.Failure:
    while isinstance(error, BaseExceptionGroup):  # a group of tasks says only that something in it failed
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    if isinstance(error, ModelError):
        return e.Failure("model", error.kind, str(error), None, error.status, error.retry_after)
    if isinstance(error, ToolCallFailed):
        source = "subagent" if isinstance(error, SubagentFailed) else "tool"
        return e.Failure(source, error.outcome, str(error), error.call_id)
    return e.Failure("worker", "error", error_text(error))


async def consult_worker(
    context: EffectContext, in_flight: EffectInFlight, effect: ConsultWorker
) -> list[e.Event]:
    """Ask a worker for the first step, or for its last look at the answer."""
    state, worker = context.state, context.runtime.agent.custom_worker
    assert isinstance(worker, FunctionWorker), "only those are asked"
    task = RunContext(state.task_id, state.thread, state.input, context.user_context)
    in_flight.enter()
    try:
        if effect.id == "initialize":
            return [e.StepsPlanned(await worker.initialize(task))]
        return [
            e.AnswerFinalized(
                _read_output(context.runtime.agent, await worker.finalize(task, copied(state.output)))
            )
        ]
    except asyncio.CancelledError:
        if in_flight.cancel_reason is None and not being_cancelled():
            return [consulted_in_vain(effect, "it cancelled itself")]
        return []
    except Exception as error:  # noqa: BLE001  whatever a worker raises is its failure
        return [consulted_in_vain(effect, error_text(error))]


def consulted_in_vain(effect: ConsultWorker, why: str) -> e.Event:
    """Return that a worker could not be asked."""
    method = "initialize_step" if effect.id == "initialize" else "finalize_task"
    return e.WorkerFailed(e.Failure("worker", "error", f"{method} failed: {why}"))


def _read_output(agent: Agent[Any], output: Json) -> Json:
    """Return the answer of a worker of the user's own as the agent's output type; raises `WorkerError`."""
    typed = agent.typed
    if typed is None or output is None:
        return output
    try:
        return typed.read(output)
    except ValueError as error:
        raise WorkerError(f"the answer is not of the agent's output type: {error}") from None


def asked_request(context: EffectContext, call: ModelCall) -> ModelRequest:
    """Return what a function wants the model asked."""
    state, runtime, wanted = context.state, context.runtime, call.request
    assert state.graph is not None, "functions ask in graphs alone"
    assert wanted is not None, "a function's question has one"
    node = state.graph.nodes[wanted.step]
    messages: Sequence[Message] = call.side_messages()
    specs = runtime.offering(call.offered)
    if wanted.tools is not None:
        unknown = [name for name in wanted.tools if name not in runtime.tools]
        if unknown:
            raise ModelError(unknown_tool_text(unknown[0], list(runtime.tools)), kind="invalid_request")
        specs = tuple([runtime.tools[name].spec for name in wanted.tools])
    if call.sees_conversation:
        seen = (
            context.select_messages(specs)
            if node.alone and context.select_messages is not None
            else seen_by(state, node)
        )
        messages = [*seen, *messages] if messages else seen
    request = ModelRequest(
        messages,
        wanted.instructions if wanted.instructions is not None else standing_instructions(runtime, state),
        specs,
        "auto",
        runtime.agent.model_settings,
        state.task_id,
        wanted.step,
        state.turn,
        call.attempt,
        None,
    )
    request.call = call.id
    return for_layers(request, context, call.asked_at, call.tries)
