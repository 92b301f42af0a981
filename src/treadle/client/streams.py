"""Streams of runs and steps that a server drives, and the agents that a client knows as objects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any, Generic, Self, TypeVar, cast

from treadle.agents.agent import Agent
from treadle.client.following import until_done
from treadle.core.data import frozen
from treadle.core.events import Ephemeral, Event
from treadle.engine.typed_answers import TypedAnswers, typed_answers
from treadle.errors import ConfigurationError
from treadle.ports import OutputT_co
from treadle.results.pages import Page
from treadle.results.run_result import RunResult
from treadle.results.step_outputs import StepOutputs, TaskStepOutput
from treadle.runner.stream import EventStream, StepStream, TaskStream
from treadle.wiring import resolve


class AgentsHere:
    """The agents that were passed to a client or to its verbs, and those they can reach."""

    def __init__(self) -> None:
        self._agents: dict[str, Agent[Any]] = {}

    def add(self, agent: Any) -> None:
        """Register an agent by its name, and the agents it can reach whose names are free.

        Raises:
            ConfigurationError: the value is not an agent.
        """
        if not isinstance(agent, Agent):
            raise ConfigurationError(f"agent must be an Agent or the name of an agent, got {agent!r:.100}")
        known = cast("Agent[Any]", agent)
        self._agents[known.name] = known
        handoffs = [cast("Any", handoff.agent) for handoff in known.handoffs_by_tool.values()]
        for other in (*known.subagents_by_tool.values(), *handoffs):
            if not isinstance(other, str) and other.name not in self._agents:
                self.add(other)

    def typed_of(self, name: str) -> Callable[[str | None], TypedAnswers | None]:
        """Return a function that returns the parser of an agent's answers; None names the agent `name`."""

        def typed_of(other: str | None) -> TypedAnswers | None:
            agent = self._agents.get(other or name)
            if agent is None or agent.typed is None:
                return None
            model = resolve(agent.model) if agent.model else None  # else the server chooses the model
            return typed_answers(agent, agent.typed, model)

        return typed_of

    def typed(self, value: Any) -> Any:
        """Return a result whose answer has its agent's output type, if the agent is known here."""
        if isinstance(value, RunResult):
            result = cast("RunResult[Any]", value)
            has_answer = result.state in ("completed", "degraded", "answered")
            return self._with_output(result, result.agent) if has_answer else result
        if isinstance(value, TaskStepOutput):
            step = cast("TaskStepOutput[Any]", value)
            return self._with_output(step, step.step.agent) if step.is_last else step
        if isinstance(value, StepOutputs):
            return StepOutputs([self.typed(each) for each in cast("StepOutputs[Any]", value)])
        if isinstance(value, Page):
            page = cast("Any", value)
            is_of_steps = bool(page.items) and isinstance(page.items[0], TaskStepOutput)
            return (
                replace(page, items=tuple([self.typed(each) for each in page.items])) if is_of_steps else page
            )
        return value

    def _with_output(self, value: Any, name: str) -> Any:
        agent = self._agents.get(name)
        if agent is None or agent.typed is None or value.output is None:
            return value
        return replace(value, output=agent.typed.load(value.output))


R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


@frozen
class Way(Generic[R]):
    """The functions that drive and watch a stream's task.

    Args:
        opened: creates the task if there is none; returns its last event, after which the stream begins.
        events: yields its events after a sequence number.
        head: returns its last event now.
        work: drives it and returns the result; if cancelled, it interrupts the task.
        standing: returns its state if the stream was left before its end.
    """

    opened: Callable[[], Awaitable[int]]
    events: Callable[[int], AsyncGenerator[Event | Ephemeral]]
    head: Callable[[], Awaitable[int]]
    work: Callable[[], Awaitable[R]]
    standing: Callable[[], Awaitable[R]] | None = None


class _Remote(TaskStream[R_co], Generic[R_co]):
    """A task that a server drives while the caller iterates over its events.

    Args:
        task_id: the task.
        way: the functions that drive and watch it.
    """

    def __init__(self, task_id: str, way: Way[R_co]) -> None:
        self.task_id = task_id
        self._way = way
        self._standing = way.standing
        self._watcher = None
        self._left: R_co | None = None
        self._task: asyncio.Task[R_co] | None = None
        self._events: AsyncGenerator[Event | Ephemeral, None] | None = None

    async def __aenter__(self) -> Self:
        after = await self._way.opened()
        events = self._way.events(after)
        first = await anext(events)  # the state of the task: the stream is open, so no delta is missed

        async def all_of_them() -> AsyncGenerator[Event | Ephemeral]:
            yield first
            async for event in events:
                yield event

        async def work() -> R_co:
            return await self._way.work()

        self._task = asyncio.ensure_future(work())
        self._events = until_done(all_of_them(), self._task, self._way.head, after)
        return self

    def __aiter__(self) -> AsyncIterator[Event | Ephemeral]:
        if self._events is None:
            raise self._not_open()
        return self._events


class RemoteRun(_Remote[RunResult[OutputT_co]], EventStream[OutputT_co], Generic[OutputT_co]):
    """A run with its events; `result` when they have ended."""

    def __init__(
        self,
        task_id: str,
        way: Way[RunResult[OutputT_co]],
        typed_of: Callable[[str | None], TypedAnswers | None],
        delivered: Callable[[RunResult[OutputT_co]], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(task_id, way)
        self._typed_of = typed_of
        self._delivered = delivered


class RemoteStep(_Remote[TaskStepOutput[OutputT_co]], StepStream[OutputT_co], Generic[OutputT_co]):
    """One step with its events; `output` when they have ended."""

    def __init__(self, task_id: str, way: Way[TaskStepOutput[OutputT_co]]) -> None:
        super().__init__(task_id, way)
