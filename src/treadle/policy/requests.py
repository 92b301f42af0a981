"""Build policy requests from the state of a task: for calls, handoffs and requests to models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any

from treadle.core import origins
from treadle.core.data import frozen
from treadle.core.ids import base_call_id
from treadle.core.messages import Json, ToolCall
from treadle.core.rules.handoffs import agent_of
from treadle.core.spending import as_dollars
from treadle.core.state import TaskState
from treadle.core.state_view import StateAccess, StateView
from treadle.core.steps import CallState, StepState
from treadle.core.tools import ToolSpec
from treadle.policy.subjects import declared_effects
from treadle.policy.verdicts import EffectKind, EffectRequest


@frozen
class Seen:
    """The effects and untrusted origins that the model of a task has seen.

    Args:
        effects: declared effects of the tools whose results it has read.
        untrusted: origins of the untrusted content that it has read, the first first.
    """

    effects: frozenset[str] = frozenset()
    untrusted: tuple[str, ...] = ()


class Exposure:
    """Collects the declared effects of tools whose results a task's model read, and the untrusted origins.

    It counts the steps on the present branch, and the content that the task took over from its thread and its parent.
    Ended steps are read once, so a judgement costs as much as was added since the last one.

    Args:
        tools: the agent's, by name; any other tool counts as undeclared.
        inherited: the exposure of the parent when it called the task.
        tools_of: returns the tools of an agent that the task was handed over from.
    """

    __slots__ = (
        "_branch",
        "_counted",
        "_effects",
        "_history",
        "_tools",
        "_tools_of",
        "_untrusted",
        "inherited",
    )

    def __init__(
        self,
        tools: Mapping[str, ToolSpec],
        inherited: Seen | None = None,
        tools_of: Callable[[str], Mapping[str, ToolSpec]] | None = None,
    ) -> None:
        self.inherited = inherited or Seen()
        self._tools = tools
        self._tools_of = tools_of
        self._history: frozenset[str] | None = None
        self._branch = 0
        self._counted: set[str] = set()
        self._effects: set[str] = set()
        self._untrusted: tuple[str, ...] = ()

    def of(self, state: TaskState) -> Seen:
        """Return the effects and origins that the model has seen so far. Pass the same task each time."""
        if self._history is None:
            parts = [part for message in state.history for part in message.parts]
            names = {part.name for part in parts if isinstance(part, ToolCall)}
            self._history = frozenset(self._effects_of(names))
        if state.branch != self._branch or len(state.steps) < len(self._counted):
            self._branch, self._untrusted = state.branch, ()
            self._counted.clear()
            self._effects.clear()
        for step in self._new_steps(state):
            agent = agent_of(state, step)
            others = self._tools_of(agent) if self._tools_of is not None and agent != state.agent else None
            self._effects |= self._effects_in(step, others)
            self._untrusted = origins.merged(self._untrusted, origins.of_step(step))
        under_way = state.under_way()
        effects = [self._effects_in(step) for step in under_way]
        return Seen(
            self.inherited.effects.union(
                self._history, state.exposed, state.history_exposed, self._effects, *effects
            ),
            origins.merged(
                self.inherited.untrusted,
                origins.of_takeover(state),
                self._untrusted,
                *[origins.of_step(step) for step in under_way],
            ),
        )

    def _new_steps(self, state: TaskState) -> list[StepState]:
        """Return the ended steps that were not counted yet; parallel steps end in any order."""
        missing, new = len(state.steps) - len(self._counted), list[StepState]()
        for step in reversed(state.steps):
            if len(new) == missing:
                break
            if step.id not in self._counted:
                new.append(step)
        self._counted.update([step.id for step in new])
        return new[::-1]

    def _effects_in(self, step: StepState, tools: Mapping[str, ToolSpec] | None = None) -> set[str]:
        """Return the effects in a step: those that its tools declare and those that its called agents saw."""
        return self._effects_of(_names(step), tools).union(origins.effects_of_step(step))

    def _effects_of(self, names: Iterable[str], tools: Mapping[str, ToolSpec] | None = None) -> set[str]:
        effects, tools = set[str](), self._tools if tools is None else tools
        for name in names:
            spec = tools.get(name)
            effects.update(declared_effects(spec) if spec is not None else ("undeclared",))
        return effects


def _names(step: StepState) -> set[str]:
    """Return the names of a step's calls that ran and returned; a failure tells the model something too."""
    return {call.name for call in step.calls if call.attempt and call.status in ("ended", "deferred")}


@frozen(kw_only=True)
class Surroundings:
    """The parts of a request that the state of the task does not hold.

    Args:
        labels: of the task.
        agent_path: the agents above the task and its own; by default its own.
        exposed, untrusted: as in `Seen`.
        context: the user's own value, for functions.
    """

    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    agent_path: tuple[str, ...] = ()
    exposed: frozenset[str] = frozenset()
    untrusted: tuple[str, ...] = ()
    context: Any = None


def call_request(
    state: TaskState,
    call: CallState,
    spec: ToolSpec | None,
    kind: EffectKind,
    around: Surroundings,
    taken: dict[str, Json] | None = None,
) -> EffectRequest:
    """Return the policy request for an open call, with its present arguments.

    Args:
        state: of the task.
        call: the call.
        spec: the declaration of its tool; None if it is not known.
        kind: `tool`, or `subagent` if it calls an agent.
        around: the parts that the state does not hold.
        taken: the arguments as the tool receives them, as JSON; None if they are not known.
    """
    place = {"step": call.step, "call": base_call_id(call.id)}
    fields: dict[str, Any] = {"name": call.name, "arguments": call.arguments, "taken": taken, "spec": spec}
    return _request(state, around, call.before, kind=kind, **fields, **place)


def handoff_request(
    state: TaskState, call: CallState, spec: ToolSpec | None, agent: str, around: Surroundings
) -> EffectRequest:
    """Return the policy request for a call that moves the conversation to the agent named `agent`."""
    place = {"step": call.step, "call": base_call_id(call.id)}
    fields: dict[str, Any] = {"name": agent, "arguments": call.arguments, "spec": spec}
    return _request(state, around, call.before, kind="handoff", **fields, **place)


def model_request(state: TaskState, model: str, step: str, around: Surroundings) -> EffectRequest:
    """Return the policy request for a step's request to a model, named `provider:model`."""
    return _request(state, around, state.tool_calls, kind="model", name=model, step=step)


def _request(state: TaskState, around: Surroundings, tool_calls: int, **fields: Any) -> EffectRequest:
    children = [part for below in state.children.values() for part in below]
    is_known = not state.unpriced and not any(part.unpriced for part in children)
    spent = as_dollars(state.cost + sum(part.cost for part in children))
    return EffectRequest(
        task_id=state.task_id,
        thread_id=state.thread,
        agent=state.agent,
        agent_path=around.agent_path or (state.agent,),
        depth=state.depth,
        labels=around.labels,
        exposed=around.exposed,
        untrusted=around.untrusted,
        context=around.context,
        cost=float(spent) if is_known else None,
        tool_calls=tool_calls,
        model_calls=state.model_calls,
        tokens=state.usage.total_tokens + sum(part.usage.total_tokens for part in children),
        state=StateView(StateAccess(state, state.seq, "a policy", refusal="a policy only judges")),
        **fields,
    )
