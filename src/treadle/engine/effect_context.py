"""The shared context of one drive's effects: the agent under its options, the task and its children.

`DriveSpec` is the specification of a drive: its goal, rules, options and worker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from treadle.agents.agent import Agent
from treadle.agents.decide import lifecycle
from treadle.agents.decide.failures import fail
from treadle.agents.decide.rules import Rules
from treadle.agents.middleware import Layer
from treadle.core import events as e
from treadle.core.children import SpentBy
from treadle.core.cut_outputs import SPEC
from treadle.core.data import frozen, mutable
from treadle.core.effects import CallModel, Decision, Effect, Wait
from treadle.core.messages import Json, Message
from treadle.core.model import ModelSettings
from treadle.core.observation import READ_OUTPUT
from treadle.core.origins import merged
from treadle.core.permits import StandingGrant
from treadle.core.rules.handoffs import agent_of
from treadle.core.spending import Spending
from treadle.core.state import TaskState
from treadle.core.steps import CallState, ModelCall, StepState
from treadle.core.tools import ToolSpec
from treadle.engine.broadcast import Channel
from treadle.engine.metering import Pricing, TokenMeter
from treadle.engine.options import RunOptions
from treadle.engine.policy_in_force import NO_POLICY, RunnerPolicy, judges_of, under_judges
from treadle.engine.vault import NO_VAULT, Vault
from treadle.policy.budget import Account
from treadle.ports import Model, Tool

if TYPE_CHECKING:
    from treadle.engine.held_deltas import HeldDeltas
    from treadle.engine.step_requests import StepRequests
    from treadle.engine.typed_answers import TypedAnswers
    from treadle.policy.requests import Exposure, Seen
    from treadle.policy.verdicts import Judge


Goal = Literal["end", "step", "finalize", "undo", "attend"]
"""The goal of a drive: the task's end, one step, its finalisation, an undo, or only its inbox."""


@mutable
class DriveSpec:
    """The specification of a drive. An undo that arrives during the drive changes the goal."""

    goal: Goal
    rules: Rules
    options: RunOptions
    work: lifecycle.DecideFunction


def failing(failure: e.Failure) -> lifecycle.DecideFunction:
    """Return the `decide` function of a task that must fail before its agent can run."""

    def decide(state: TaskState, rules: Rules) -> Decision:
        return fail(state, failure)

    return decide


def idle(state: TaskState, rules: Rules) -> Decision:
    """Return a wait, as the worker of a drive that only carries out commands."""
    return Wait("idle")


StopChild = Callable[[CallState, str], Awaitable[TaskState | None]]
"""Cancels the task of a call for a reason, and returns its final state, or None if it was never created."""


RefusalOf = Callable[[Any, CallState, dict[str, Json], Any], Awaitable[str | None]]
"""Returns the reason why a begun call must not run with changed arguments, or None."""


class Subagents(Protocol):
    """The engine's interface to the children of one drive. The drivers of a process implement it."""

    account: Account
    """The budget that the parent shares with its children."""

    state: TaskState
    """The parent."""

    resting: set[str]
    """Calls whose tasks stopped by themselves in this drive. They stay at rest until a command arrives."""

    unseen: int
    """Microseconds of driving before a crash that only the children's journals record."""

    refused: e.LimitReached | None
    """The limit that refused a call after the last request to the model."""

    def has_agent(self, name: str) -> bool:
        """Return whether the tool of this name is an agent."""
        ...

    def without_resting(self, effects: tuple[Effect, ...]) -> tuple[Effect, ...]:
        """Return the effects without those of children at rest."""
        ...

    def pause(self, effects: Iterable[Effect]) -> None:
        """Pass the parent's pause on to running children."""
        ...

    async def wait_for_pause(self) -> None:
        """Wait until the parent's pause has reached every child."""
        ...

    async def run(self, call: CallState, input: str, context: Any) -> TaskState:
        """Drive the task of a call to its next stop, and return its state."""
        ...

    async def note_resting(self, call: CallState, state: TaskState) -> None:
        """Note that the task of a call stopped by itself."""
        ...

    def spent_by(self, call: CallState) -> tuple[SpentBy, ...]:
        """Return the spending of a call's task so far."""
        ...

    def effects_seen(self, call: CallState, state: TaskState) -> tuple[str, ...]:
        """Return the declared effects of the tools whose results the call's task has seen."""
        ...

    def is_open(self, call: CallState) -> bool:
        """Return whether the task of a call was driven here and has not ended."""
        ...


@frozen
class JudgedPlace:
    """A content to be judged: its step, its place, its kind, and the tool of a result."""

    step: str
    place: str
    guards: e.GuardedContent
    tool: str = ""


class Guards(Protocol):
    """The interface of other effects to the guardrails of one drive. `guarding` implements it."""

    def stream(self, step: StepState, call: ModelCall, label: e.Channel) -> HeldDeltas | None:
        """Return the buffer that holds an answer's deltas back, or None if they need no check."""
        ...

    def holds(self, step: StepState, call: ModelCall) -> bool:
        """Return whether an answer that arrived must wait for guardrails."""
        ...

    def refused_piece(self, step: StepState, call: ModelCall, held: HeldDeltas) -> list[e.Event]:
        """Return the verdict that refused an unfinished answer, and the end of its attempt."""
        ...

    def release(self, step: StepState, call: ModelCall) -> e.ModelReturned:
        """Send the held deltas of an answer that passed to watchers, and return the answer."""
        ...

    async def judged(self, place: JudgedPlace, content: dict[str, Json]) -> list[e.Event]:
        """Judge a content, and return the events of the verdict."""
        ...

    def denied(
        self, place: JudgedPlace, content: dict[str, Json], why: str, traceback: str = ""
    ) -> list[e.Event]:
        """Return the events that refuse a content because it could not be judged."""
        ...

    async def judge_final(self, step: str, output: Json) -> tuple[list[e.Event], dict[str, Json] | None]:
        """Judge a function's answer. Return the verdicts, and the passed content or None."""
        ...

    async def judge_finalized(self, output: Json) -> list[e.Event]:
        """Judge the answer that a worker changed in `finalize_task`."""
        ...


@frozen
class Inherited:
    """Policies and content that a child inherits from the tasks above it.

    Args:
        judges: the policies of the agents above. The runner's policy applies to every task anyway.
        exposed: declared effects of the tools whose results the models of the tasks above have seen.
        untrusted: origins of the untrusted content that those models have read.
        conversation: the thread of the root task.
    """

    judges: tuple[Judge, ...] = ()
    exposed: frozenset[str] = frozenset()
    untrusted: tuple[str, ...] = ()
    conversation: str | None = None


@frozen
class AgentRuntime:
    """An agent resolved under certain options; computed once for all its tasks.

    Attributes:
        tell_steps: the limit on steps, if requests state how many are left.
        typed: how typed answers are requested and read; None for text.
        final_specs: the tools offered for a last answer.
        layers: the middleware of each tool that has any, by name; None if no tool has.
        strangers: the authors of tool definitions that the developer did not write, by tool name.
    """

    agent: Agent[Any]
    options: RunOptions
    rules: Rules
    model: Model
    tools: dict[str, Tool]
    specs: tuple[ToolSpec, ...]
    max_chars: int
    tell_steps: int | None
    settings: ModelSettings
    typed: TypedAnswers | None = None
    final_specs: tuple[ToolSpec, ...] = ()
    layers: Mapping[str, tuple[Layer, ...]] | None = None
    strangers: Mapping[str, str] | None = None

    @property
    def reads_cut_outputs(self) -> bool:
        """Whether the tool `read_output` is Treadle's, since the agent has tools and none of this name."""
        return self.rules.tools.get(READ_OUTPUT) is SPEC

    def offering(self, names: tuple[str, ...] | None, *, reads_on: bool = False) -> tuple[ToolSpec, ...]:
        """Return the tools of a request that offers the named ones, or None for all.

        With `reads_on`, an output was cut, and all tools include `read_output`.
        """
        if names is None:
            return (*self.specs, SPEC) if reads_on and self.reads_cut_outputs else self.specs
        return tuple([self.tools[name].spec for name in names]) + self.final_specs

    def untrusted_in(self, effect: CallModel, offered: tuple[str, ...] | None) -> tuple[str, ...]:
        """Return the authors, other than the developer, of the tool definitions that a request offers."""
        strangers, request = self.strangers, effect.call.request
        if not strangers or effect.final:
            return ()
        names = offered if request is None or request.tools is None else request.tools
        return merged([strangers[name] for name in strangers if names is None or name in names])


@mutable
class EffectContext:
    """The context of one drive's effects."""

    state: TaskState
    runtime: AgentRuntime
    channel: Channel
    user_context: Any
    durable: Callable[[], Awaitable[None]]
    clock: Callable[[], int]
    price: Pricing

    select_messages: Callable[[Sequence[ToolSpec]], Sequence[Message]] | None = None
    """returns the messages for a request with these tools, if not all; may raise `ModelError`"""

    step_requests: StepRequests | None = None
    """the queue in which function steps submit their requests"""

    meter: TokenMeter | None = None
    """created when a model first omits its tokens"""

    limits_size: bool | None = None
    """whether a limit depends on the size of a request; computed at the first request"""

    estimates: dict[str, Spending] = field(default_factory=dict[str, Spending])
    """the estimated sizes of requests, by call or step, if limits need them and no account has them"""

    streamed: set[str] = field(default_factory=set[str])
    """requests whose incomplete answers are in part already sent to watchers"""

    subagents: Subagents | None = None
    """the children of the task, if its agent may call others"""

    policy: RunnerPolicy = NO_POLICY
    """the runner's policy"""

    inherited: Inherited = Inherited()
    """the policies and the content of the tasks above, with the policies of the agent"""

    guarding: Guards | None = None
    """the guardrails of the task: the runner's and its agent's"""

    exposure: Exposure | None = None
    """computes the content that the model has seen; created at its first use"""

    labels: Mapping[str, str] | None = None
    """the labels of the task; None until a judge needs them"""

    read_labels: Callable[[], Awaitable[Mapping[str, str]]] | None = None

    vault: Vault = NO_VAULT
    """the secrets that tools may request, and the masking of their values"""

    refusal_of: RefusalOf | None = None
    """judges the arguments of middleware for a judged call; only set if the agent has middleware"""

    conversation: str = ""
    """the thread of the root task: approvals for a thread hold there, also for the tasks below"""

    standing_grants: Callable[[str], Awaitable[Sequence[StandingGrant]]] | None = None
    """returns the approvals for later calls of a tool"""

    tools_of: Callable[[str], Mapping[str, Tool]] | None = None
    """returns the tools of another agent that had the task; only set after a handoff"""

    specs_of: Callable[[str], Mapping[str, ToolSpec]] | None = None
    """returns the declarations of these tools; empty if the agent is unknown"""

    def tool_of(self, call: CallState) -> Tool | None:
        """Return the tool of a call, from the agent that made the call."""
        if self.tools_of is not None:
            step = next((step for step in self.state.steps if step.id == call.step), None)
            agent = agent_of(self.state, step) if step is not None else self.state.agent
            if agent != self.state.agent:
                return self.tools_of(agent).get(call.name)
        return self.runtime.tools.get(call.name)

    def passed_on(self) -> Inherited:
        """Return the context that a child called now inherits."""
        seen = self.seen()
        return Inherited(self.inherited.judges, seen.effects, seen.untrusted, self.conversation)

    def seen(self) -> Seen:
        """Return the content that the task's model has seen so far, in the form for policies."""
        exposure = self.exposure
        if exposure is None:
            from treadle.policy.requests import Exposure, Seen

            above = Seen(self.inherited.exposed, self.inherited.untrusted)
            self.exposure = exposure = Exposure(self.runtime.rules.tools, above, self.specs_of)
        return exposure.of(self.state)

    def rules_judged(self, rules: Rules) -> Rules:
        """Return the rules of the drive with the subjects of the current policies."""
        runtime, judges = self.runtime, judges_of(self.policy.in_force, self.inherited.judges)
        return under_judges(rules, runtime.agent, runtime.model, judges, gated=runtime.rules.gated)

    async def learn_labels(self) -> None:
        """Read the labels of the task, unless they were read before."""
        if self.labels is None and self.read_labels is not None:
            self.labels = await self.read_labels()

    enter_call: Callable[[str, int], None] | None = None
    """sets the context variables of observers just before the tool of a call runs"""
