"""The agents that a client knows as objects: their names, their versions, and the types of their answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from treadle.agents.agent import Agent
from treadle.engine.typed_answers import TypedAnswers, typed_answers
from treadle.errors import ConfigurationError
from treadle.results.pages import Page
from treadle.results.run_result import RunResult
from treadle.results.step_outputs import StepOutputs, TaskStepOutput
from treadle.wiring import resolve


class AgentsHere:
    """The agents that a client was given, or that its verbs were, and those that they reach."""

    def __init__(self) -> None:
        self._agents: dict[str, Agent[Any]] = {}

    def add(self, agent: Any) -> None:
        """Remember an agent by its name, and the agents that it reaches where their names are free.

        Raises:
            ConfigurationError: it is no agent.
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
        """Return what tells how answers of an agent are read; without a name those of the agent `name`."""

        def typed_of(other: str | None) -> TypedAnswers | None:
            agent = self._agents.get(other or name)
            if agent is None or agent.typed is None:
                return None
            model = resolve(agent.model) if agent.model else None  # else it is that of the server
            return typed_answers(agent, agent.typed, model)

        return typed_of

    def typed(self, value: Any) -> Any:
        """Return a result whose answer is of its agent's output type, where the agent is known here."""
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
