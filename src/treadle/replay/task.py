"""Recorded tasks as tests: a task runs again with its recorded answers and results, and is compared.

The model gives its recorded answers, and tools return their recorded results, so providers and tools are not called.
Everything else is current: instructions, tools and their schemas, workers, limits, and this library. A request, a call
or an order that differs from the recording is a drift, which the report shows with both values.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from treadle.agents.agent import Agent
from treadle.agents.workers.step_context import StepContext
from treadle.agents.workers.worker import StepResult
from treadle.core.data import frozen
from treadle.core.events import StepSkipped
from treadle.core.messages import Json, Text, copied
from treadle.core.observation import as_text
from treadle.core.rules.schedule import ITSELF, UNNEEDED
from treadle.core.tools import Unknown
from treadle.drivers import arguments
from treadle.engine.options import RunOptions, from_json
from treadle.errors import AgentUnknown, StepFailed, TaskFinished, TaskParked, TreadleError
from treadle.llm.default_layers import resolve
from treadle.llm.replay import ReplayModel
from treadle.ports import Tool, ToolContext, ToolOutput, has_part
from treadle.replay.decisions import (
    RecordedDecisions,
    RecordedVerdicts,
    ReplayClock,
    on_last_branch,
    recorded_guardrails,
)
from treadle.replay.drift import Drift, compared
from treadle.replay.recording import Recording, declaration, journal_of, load, record, save
from treadle.replay.trace import CallTrace, StepTrace, TaskTrace, trace_of
from treadle.runner.bridge import BRIDGE
from treadle.runner.verbs import awaited
from treadle.runner.views import Role
from treadle.wiring import Runner

__all__ = ["Drift", "Recording", "ReplayReport", "assert_replays", "load", "record", "replay", "save"]


@frozen
class ReplayReport:
    """The result of a replay: its size and its drifts.

    Args:
        task_id: the recorded task.
        agent: the agent's name.
        steps: number of steps of the replay.
        requests: number of its requests.
        calls: number of its calls.
        drifts: the differences from the recording.
    """

    task_id: str
    agent: str
    steps: int
    requests: int
    calls: int
    drifts: tuple[Drift, ...]

    @property
    def ok(self) -> bool:
        """Whether the task went as recorded."""
        return not self.drifts

    def __str__(self) -> str:
        counts = f"{self.steps} steps, {self.requests} requests, {self.calls} calls"
        if self.ok:
            return f"task {self.task_id} of {self.agent} goes as it was recorded: {counts}"
        drifts = "\n".join([str(drift) for drift in self.drifts])
        return f"task {self.task_id} of {self.agent} does not go as it was recorded ({counts}):\n{drifts}"


@awaited
async def replay(
    recording: Recording, agent: Agent[Any], *, context: Any = None, run_tools: bool = False
) -> ReplayReport:
    """Run a recorded task again with the current agent, and return the differences from the recording.

    Args:
        recording: the task.
        agent: the current agent. A model that repeats the recorded answers replaces its own.
        context: passed to its instructions, if they are a function, and to tools that run.
        run_tools: run the tools, instead of returning the recorded results. Subagents never run.

    Raises:
        AgentUnknown: the task belongs to another agent.
    """
    then = trace_of(recording.events)
    if then.created is None:
        raise AgentUnknown(f"task {recording.task_id} holds imported messages: there is nothing to replay")
    if then.created.agent != agent.name and not any(x.kind == "task_forked" for x in recording.events):
        raise AgentUnknown(
            f"task {recording.task_id} belongs to the agent {then.created.agent!r}, not to {agent.name!r}"
        )
    recorded = _RecordedCalls(then)
    actors = [_actor(each, recording, recorded, run_tools=run_tools) for each in _team(agent)]
    decided = on_last_branch(recording.events)
    policy, guardrails = RecordedVerdicts(decided), recorded_guardrails(decided)
    machine = ReplayClock()
    decisions = RecordedDecisions(decided, machine)
    async with Runner(
        "memory:", agents=actors, policy=policy, guardrails=guardrails, clock=machine
    ) as runner:
        task_id = await _run(runner, actors[0], then, recording, context, decisions)
        now = trace_of(await journal_of(runner.store, task_id))
    drifts = compared(then, now, recording.declaration, declaration(agent), agent)
    calls = sum(len(step.calls) for step in now.steps.values())
    requests = sum(len(cast("ReplayModel", actor.model).requests) for actor in actors)
    return ReplayReport(recording.task_id, agent.name, len(now.steps), requests, calls, tuple(drifts))


def _team(agent: Agent[Any]) -> list[Agent[Any]]:
    """Return an agent and all agents that a conversation may move to from it."""
    team = {agent.name: agent}
    for each in (pending := [agent]):
        for handoff in each.handoffs_by_tool.values():
            if not isinstance(handoff.agent, str) and handoff.agent_name not in team:
                team[handoff.agent_name] = cast("Agent[Any]", handoff.agent)
                pending.append(team[handoff.agent_name])
    return list(team.values())


def _actor(
    agent: Agent[Any], recording: Recording, recorded: _RecordedCalls, *, run_tools: bool
) -> Agent[Any]:
    """Return an agent with the recorded answers of its model and, unless tools run, the recorded results."""
    model = ReplayModel(recording.events, name=agent.model_name, output_mode=_mode(agent), agent=agent.name)
    worker: Any = agent.worker if agent.dialect is None else _ParsedDialect(agent.dialect)
    calls_agents = agent.custom_worker is not None or agent.router is not None
    subagents = _recorded_subagents(agent, model, recorded) if calls_agents else ()
    tools = [
        tool if run_tools and tool.spec.name not in agent.subagents_by_tool else _RecordedTool(tool, recorded)
        for tool in agent.tools
        if not (subagents and tool.spec.name in agent.subagents_by_tool)
        and tool.spec.name not in agent.handoffs_by_tool
    ]
    handoffs = [
        replace(handoff, agent=handoff.agent_name, name=name)
        for name, handoff in agent.handoffs_by_tool.items()
    ]
    # Recorded results have already passed through middleware.
    middleware = agent.middleware if run_tools else ()
    return agent.replace(
        model=model,
        tools=tools,
        worker=worker,
        subagents=subagents,
        handoffs=handoffs,
        policy=None,
        guardrails=(),
        middleware=middleware,
    )


def assert_replays(
    path: str | os.PathLike[str], agent: Agent[Any], *, context: Any = None, run_tools: bool = False
) -> ReplayReport:
    """Raise `AssertionError` with the drift report unless a recorded task replays. Works in sync and async code.

    Args:
        path: a recording, as written by `treadle replay TASK --out FOLDER` or `save`.
        agent: the current agent.
        context: passed to its instructions and to tools that run.
        run_tools: run the tools, instead of returning the recorded results.
    """
    arguments.agent("assert_replays: agent", agent)

    async def work() -> ReplayReport:
        return await replay(await load(path), agent, context=context, run_tools=run_tools)

    report = BRIDGE.run(work())
    if not report.ok:
        raise AssertionError(str(report))
    return report


def _mode(agent: Agent[Any]) -> str | None:
    """Return the output mode of the agent's own model, or None if the model cannot be resolved here."""
    try:
        model = resolve(agent.model)
        return model.output_mode if has_part(model, "output_mode") else "tool"
    except TreadleError:
        return None


async def _run(
    runner: Runner,
    agent: Agent[Any],
    then: TaskTrace,
    recording: Recording,
    context: Any,
    decisions: RecordedDecisions,
) -> str:
    """Run the task to its recorded end, with each later message before the step that it preceded."""
    created = then.created
    assert created is not None
    thread = None
    if recording.history:
        thread = created.thread
        await runner.import_thread(thread, recording.history)
    steps = list(then.steps.values())
    to_its_end = then.end is not None and then.end.state != "cancelled"
    stepwise = not to_its_end or any(step.inputs or _was_skipped_by_person(step) for step in steps)
    task = await runner.create_task(
        agent,
        list(created.input),
        thread_id=thread,
        extra_state=created.extra_state,
        options=_options(then.options[-1 if stepwise else 0]),
        context=context,
    )
    for step in steps if stepwise else ():
        if not await _take_step(runner, task.task_id, step, context, decisions):
            break
    for later in (None, *(() if stepwise else then.options[1:])) if to_its_end else ():
        options = None if later is None else _options(later)
        result = await runner.resume(task.task_id, agent=agent, context=context, options=options)
        while await decisions.decide(runner, task.task_id, result):
            result = await runner.resume(task.task_id, agent=agent, context=context)
    return task.task_id


async def _take_step(
    runner: Runner, task_id: str, step: StepTrace, context: Any, decisions: RecordedDecisions
) -> bool:
    """Run a step as recorded, with the messages before it. Return False if the task does not continue."""
    for message in step.inputs:
        role = "observation" if message.observation else message.role
        await runner.send(task_id, list(message.parts), role=cast("Role", role), by=message.by)
    while True:
        try:
            await runner.run_step(task_id, context=context)
        except StepFailed:
            if not _was_skipped_by_person(step):
                return False
            await runner.skip_step(task_id)
        except TaskParked as parked:
            if await decisions.decide_pending(runner, task_id, parked.pending):
                continue
            return False
        except TaskFinished:
            return False
        return True


def _was_skipped_by_person(step: StepTrace) -> bool:
    return isinstance(step.end, StepSkipped) and step.end.by not in (ITSELF, UNNEEDED)


def _options(recorded: Json) -> RunOptions:
    options = from_json(recorded)
    limits = None if options.limits is None else replace(options.limits, seconds=None)
    # Breakpoints of a debugging session and elapsed time are not part of the test.
    return replace(options, break_on=None, limits=limits, on_busy_thread=None)


# ----------------------------------------------------------------------------------------------- tools


class RecordedFailure(TreadleError):
    """A call fails as recorded, with the recorded message."""


class _RecordedCalls:
    """The recorded calls, each of which answers one call of the same name and arguments."""

    def __init__(self, then: TaskTrace) -> None:
        self._waiting: dict[str, deque[CallTrace]] = {}
        self._answers: dict[str, CallTrace] = {}
        for step in then.steps.values():
            for call in step.calls.values():
                self._waiting.setdefault(_key(call.name, call.arguments), deque()).append(call)

    def of(self, name: str, arguments: Json, call_id: str) -> CallTrace | None:
        """Return the recorded call that answers a call, the same for each of its attempts, or None."""
        if call_id not in self._answers:
            waiting = self._waiting.get(_key(name, arguments))
            if not waiting:
                return None
            self._answers[call_id] = waiting.popleft()
        return self._answers[call_id]


def _key(name: str, arguments: Json) -> str:
    return f"{name} {json.dumps(arguments, sort_keys=True, default=str)}"


class _RecordedTool:
    """A current tool that returns its recorded results. It validates arguments with current code."""

    def __init__(self, tool: Tool, recorded: _RecordedCalls) -> None:
        self._tool = tool
        self._recorded = recorded
        # Approvals are recorded as well, see `decisions`. Recorded requests for them are not repeated.
        self.spec = replace(tool.spec, needs_approval=False, previews=False)

    def validate(self, arguments: dict[str, Json]) -> Any:
        copy = json.loads(json.dumps(arguments))
        self._tool.validate(arguments)
        return copy

    async def call(self, arguments: Any, ctx: ToolContext[Any]) -> ToolOutput:
        call = self._recorded.of(self.spec.name, arguments, ctx.call_id)
        if call is None or call.end is None:
            raise RecordedFailure("this call was not recorded, so there is no result to return")
        if ctx.attempt <= len(call.failures):
            raise RecordedFailure(call.failures[ctx.attempt - 1])
        end = call.end
        if end.outcome != "ok":
            raise RecordedFailure(end.error.message if end.error is not None else end.outcome)
        if end.changes is not None:
            ctx.state.update(copied(end.changes.values))
            for key in end.changes.removed:
                ctx.state.pop(key, None)
        return ToolOutput(end.output, _observation(call), end.display, end.sources, end.artifacts)

    async def undo(self, call: Any, ctx: ToolContext[Any]) -> None:
        raise RecordedFailure("nothing is undone in a replay")

    async def reconcile(self, call: Any, ctx: ToolContext[Any]) -> Unknown:
        return Unknown()


def _recorded_subagents(
    agent: Agent[Any], model: ReplayModel, recorded: _RecordedCalls
) -> tuple[Agent[Any], ...]:
    """Return an agent's subagents with their recorded answers, for step functions that run them."""

    def answering(name: str) -> Any:
        async def answer(ctx: StepContext[Any]) -> StepResult:
            message = "".join([part.text for part in ctx.task_input if isinstance(part, Text)])
            call = recorded.of(name, {"input": message}, ctx.task_id)
            if call is None or call.end is None:
                raise RecordedFailure("this call was not recorded, so there is no answer to return")
            if call.end.outcome != "ok":
                raise RecordedFailure(call.end.error.message if call.end.error is not None else "it failed")
            return StepResult(call.end.output, is_last=True)

        return answer

    subagents: list[Agent[Any]] = []
    for tool, subagent in sorted(agent.subagents_by_tool.items()):
        is_name = isinstance(subagent, str)
        name, description = (subagent, "") if is_name else (subagent.name, subagent.description)
        subagents.append(Agent(model, name=name, description=description, worker=answering(tool)))
    return tuple(subagents)


def _observation(call: CallTrace) -> Sequence[Any] | None:
    """Return the observation that the tool chose, or None if it returned a plain value, cut or not."""
    assert call.end is not None
    observation = call.end.observation
    if observation is None or (
        len(observation) == 1 and (call.seen or "")[:100] == as_text(call.end.output)[:100]
    ):
        return None
    if call.end.whole is not None and all(isinstance(part, Text) for part in observation):
        return (Text(call.end.whole),)  # it is cut again
    return observation


class _ParsedDialect:
    """A dialect that neither renders requests nor parses answers, since recorded answers are already parsed."""

    def __init__(self, dialect: Any) -> None:
        self._dialect = dialect

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dialect, name)

    def ask(self, request: Any) -> Any:
        return request

    def read(self, answer: Any, request: Any) -> Any:
        return answer

    def delta_reader(self, request: Any) -> Any:
        from treadle.agents.dialects.dialect import WholeAnswerReader

        return WholeAnswerReader()
