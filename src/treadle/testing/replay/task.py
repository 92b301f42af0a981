"""Recorded tasks as tests: the task is run again with the answers and results that were recorded, and compared.

The model says what it said then, and tools return what they returned then: nothing outside is reached. All else is
today's: instructions, tools and their schemas, workers, limits, and this library. Where a request, a call or an order
is not what it was, that is a drift, told with both values.
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
from treadle.core.messages import Json, Text
from treadle.core.observation import as_text
from treadle.core.schedule import ITSELF, UNNEEDED
from treadle.core.tools import Unknown
from treadle.engine.options import RunOptions, from_json
from treadle.errors import AgentUnknown, StepFailed, TaskFinished, TaskParked, TreadleError
from treadle.llm.default_layers import resolve
from treadle.llm.replay import ReplayModel
from treadle.ports import Tool, ToolContext, ToolOutput
from treadle.runner.bridge import BRIDGE
from treadle.runner.views import Role
from treadle.testing.replay.drift import Drift, compared
from treadle.testing.replay.journals import journal_of
from treadle.testing.replay.recording import Recording, declaration, load, record, save
from treadle.testing.replay.trace import CallTrace, StepTrace, TaskTrace, trace_of
from treadle.wiring import Runner

__all__ = ["Drift", "Recording", "ReplayReport", "assert_replays", "load", "record", "replay", "save"]


@frozen
class ReplayReport:
    """What a replay found: how much of the recording was gone through, and what is not as it was."""

    task_id: str
    agent: str
    steps: int
    requests: int
    calls: int
    drifts: tuple[Drift, ...]

    @property
    def ok(self) -> bool:
        """Whether the task went as it was recorded."""
        return not self.drifts

    def __str__(self) -> str:
        done = f"{self.steps} steps, {self.requests} requests, {self.calls} calls"
        if self.ok:
            return f"task {self.task_id} of {self.agent} goes as it was recorded: {done}"
        told = "\n".join([str(drift) for drift in self.drifts])
        return f"task {self.task_id} of {self.agent} does not go as it was recorded ({done}):\n{told}"


async def replay(
    recording: Recording, agent: Agent[Any], *, context: Any = None, run_tools: bool = False
) -> ReplayReport:
    """Run a recorded task again with an agent as it is today, and say what is not as it was.

    Args:
        recording: the task.
        agent: today's agent; it is given the recorded answers, whatever its model is.
        context: handed to its instructions, if they are a function, and to tools that are run.
        run_tools: run the tools, instead of returning what was recorded; subagents never run.

    Raises:
        AgentUnknown: the task is that of another agent.
    """
    then = trace_of(recording.events)
    if then.created is None:
        raise AgentUnknown(f"task {recording.task_id} holds words from elsewhere: there is nothing to replay")
    if then.created.agent != agent.name and not any(x.kind == "task_forked" for x in recording.events):
        raise AgentUnknown(
            f"task {recording.task_id} is one of the agent {then.created.agent!r}, not of {agent.name!r}"
        )
    model = ReplayModel(recording.events, name=agent.model_name, output_mode=_mode(agent))
    served = _Served(then)
    worker: Any = agent.worker if agent.dialect is None else _Understood(agent.dialect)
    parts = _subagents_served(agent, model, served) if agent.custom_worker is not None else {"subagents": ()}
    tools = [
        tool if run_tools and tool.spec.name not in agent.subagents_by_tool else _Recorded(tool, served)
        for tool in agent.tools
        if not (parts["subagents"] and tool.spec.name in agent.subagents_by_tool)
    ]
    actor = agent.replace(model=model, tools=tools, worker=worker, **parts)
    async with Runner("memory:", agents=[actor]) as runner:
        task_id = await _run(runner, actor, then, recording, context)
        now = trace_of(await journal_of(runner.store, task_id))
    drifts = compared(then, now, recording.declaration, declaration(agent), agent)
    calls = sum(len(step.calls) for step in now.steps.values())
    return ReplayReport(
        recording.task_id, agent.name, len(now.steps), len(model.requests), calls, tuple(drifts)
    )


def assert_replays(
    path: str | os.PathLike[str], agent: Agent[Any], *, context: Any = None, run_tools: bool = False
) -> ReplayReport:
    """Raise `AssertionError` with the drift report unless a recorded task goes as it did; from plain and async code.

    Args:
        path: a recording, as `treadle replay TASK --out FOLDER` or `save` writes it.
        agent: today's agent.
        context: handed to its instructions and to tools that are run.
        run_tools: run the tools, instead of returning what was recorded.
    """

    async def work() -> ReplayReport:
        return await replay(await load(path), agent, context=context, run_tools=run_tools)

    report = BRIDGE.run(work())
    if not report.ok:
        raise AssertionError(str(report))
    return report


def _mode(agent: Agent[Any]) -> str | None:
    """Return how the agent's own model is asked for a typed answer; None if that cannot be known here."""
    try:
        return getattr(resolve(agent.model), "output_mode", "tool")
    except TreadleError:
        return None


async def _run(runner: Runner, agent: Agent[Any], then: TaskTrace, recording: Recording, context: Any) -> str:
    """Run the task as far as it was recorded, with what people said at the places where they said it."""
    created = then.created
    assert created is not None
    thread = None
    if recording.history:
        thread = created.thread
        await runner.import_thread(thread, recording.history)
    steps = list(then.steps.values())
    to_its_end = then.end is not None and then.end.state != "cancelled"
    stepwise = not to_its_end or any(step.inputs or _given_up(step) for step in steps)
    task = await runner.create_task(
        agent,
        list(created.input),
        thread_id=thread,
        extra_state=created.extra_state,
        options=_options(then.options[-1 if stepwise else 0]),
        context=context,
    )
    for step in steps if stepwise else ():
        if not await _stepped(runner, task.task_id, step, context):
            break
    if to_its_end:
        await runner.resume(task.task_id, agent=agent, context=context)
        for later in () if stepwise else then.options[1:]:
            await runner.resume(task.task_id, agent=agent, context=context, options=_options(later))
    return task.task_id


async def _stepped(runner: Runner, task_id: str, step: StepTrace, context: Any) -> bool:
    """Take a step as it was recorded, with what was said before it; False if the task goes no further."""
    for said in step.inputs:
        role = "observation" if said.observation else said.role
        await runner.send(task_id, list(said.parts), role=cast("Role", role), by=said.by)
    try:
        await runner.run_step(task_id, context=context)
    except StepFailed:
        if not _given_up(step):
            return False
        await runner.skip_step(task_id)
    except (TaskParked, TaskFinished):
        return False
    return True


def _given_up(step: StepTrace) -> bool:
    """Whether a person gave the step up."""
    return isinstance(step.end, StepSkipped) and step.end.by not in (ITSELF, UNNEEDED)


def _options(kept: Json) -> RunOptions:
    options = from_json(kept)
    limits = None if options.limits is None else replace(options.limits, seconds=None)
    # Neither a person who looked in, nor the time it took, is part of what is tested.
    return replace(options, break_on=None, limits=limits, on_busy_thread=None)


# ----------------------------------------------------------------------------------------------- tools


class RecordedFailure(TreadleError):
    """A call fails as it was recorded; the message is all of it."""


class _Served:
    """The recorded ends of calls, each to be given once, to a call of the same name and arguments."""

    def __init__(self, then: TaskTrace) -> None:
        self._waiting: dict[str, deque[CallTrace]] = {}
        self._given: dict[str, CallTrace] = {}
        for step in then.steps.values():
            for call in step.calls.values():
                self._waiting.setdefault(_key(call.name, call.arguments), deque()).append(call)

    def of(self, name: str, arguments: Json, call_id: str) -> CallTrace | None:
        """Return what was recorded of a call; each of its tries gets the same."""
        if call_id not in self._given:
            waiting = self._waiting.get(_key(name, arguments))
            if not waiting:
                return None
            self._given[call_id] = waiting.popleft()
        return self._given[call_id]


def _key(name: str, arguments: Json) -> str:
    return f"{name} {json.dumps(arguments, sort_keys=True, default=str)}"


class _Recorded:
    """A tool of today that returns what was recorded; its arguments are checked as today."""

    def __init__(self, tool: Tool, served: _Served) -> None:
        self._tool = tool
        self._served = served
        self.spec = tool.spec

    def validate(self, arguments: dict[str, Json]) -> Any:
        given = json.loads(json.dumps(arguments))
        self._tool.validate(arguments)
        return given

    async def call(self, arguments: Any, ctx: ToolContext[Any]) -> ToolOutput:
        found = self._served.of(self.spec.name, arguments, ctx.call_id)
        if found is None or found.end is None:
            raise RecordedFailure("this call was not recorded, so there is no result to return")
        if ctx.attempt <= len(found.failures):
            raise RecordedFailure(found.failures[ctx.attempt - 1])
        end = found.end
        if end.outcome != "ok":
            raise RecordedFailure(end.error.message if end.error is not None else end.outcome)
        return ToolOutput(end.output, _observation(found), end.display, end.sources, end.artifacts)

    async def undo(self, call: Any, ctx: ToolContext[Any]) -> None:
        raise RecordedFailure("nothing is undone in a replay")

    async def reconcile(self, call: Any, ctx: ToolContext[Any]) -> Unknown:
        return Unknown()


def _subagents_served(agent: Agent[Any], model: ReplayModel, served: _Served) -> dict[str, Any]:
    """Return an agent's subagents, for steps that are functions and run them, such that they answer as recorded."""

    def answering(name: str) -> Any:
        async def answer(ctx: StepContext[Any]) -> StepResult:
            told = "".join([part.text for part in ctx.task_input if isinstance(part, Text)])
            found = served.of(name, {"input": told}, ctx.task_id)
            if found is None or found.end is None:
                raise RecordedFailure("this call was not recorded, so there is no answer to return")
            if found.end.outcome != "ok":
                raise RecordedFailure(found.end.error.message if found.end.error is not None else "it failed")
            return StepResult(found.end.output, is_last=True)

        return answer

    made: list[Agent[Any]] = []
    for tool, subagent in sorted(agent.subagents_by_tool.items()):
        is_name = isinstance(subagent, str)
        name, description = (subagent, "") if is_name else (subagent.name, subagent.description)
        made.append(Agent(model, name=name, description=description, worker=answering(tool)))
    return {"subagents": tuple(made)}


def _observation(call: CallTrace) -> Sequence[Any] | None:
    """Return what the tool itself said the model is to see; None if it only returned a value, cut since or not."""
    assert call.end is not None
    seen = call.end.observation
    if seen is None or (len(seen) == 1 and (call.seen or "")[:100] == as_text(call.end.output)[:100]):
        return None
    return seen


class _Understood:
    """A dialect of which nothing has to be put into words or read: recorded answers are understood already."""

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
