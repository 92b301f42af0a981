"""What the effects of one drive share: the agent under its options, the task, and the children of the task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol

from treadle.agents.agent import Agent
from treadle.agents.decide.rules import Rules
from treadle.agents.middleware import Layer
from treadle.core import events as e
from treadle.core.children import SpentBy
from treadle.core.cut_outputs import SPEC
from treadle.core.data import frozen, mutable
from treadle.core.effects import CallModel, Effect
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

StopChild = Callable[[CallState, str], Awaitable[TaskState | None]]
"""Cancels the task that a call is, for a reason, and returns its state at its end; None if it was never made."""


RefusalOf = Callable[[Any, CallState, dict[str, Json], Any], Awaitable[str | None]]
"""Returns why a begun call may not run with other arguments than it was judged with; None if it may."""


class Subagents(Protocol):
    """The children of one drive, as the engine needs them; the drivers of a process implement it."""

    account: Account
    """The budget of the parent; its children draw on it."""

    state: TaskState
    """The parent."""

    resting: set[str]
    """Calls whose tasks stopped by themselves in this drive; they are left at rest until a command arrives."""

    unseen: int
    """Microseconds that children were driven for before a crash and that only their own journals tell."""

    refused: e.LimitReached | None
    """Why a call was refused since the last request to the model."""

    def has_agent(self, name: str) -> bool:
        """Return whether a tool of this name is an agent."""
        ...

    def without_resting(self, effects: tuple[Effect, ...]) -> tuple[Effect, ...]:
        """Return the effects without those of children at rest."""
        ...

    def pause(self, effects: Iterable[Effect]) -> None:
        """Pass the pause of the parent on to running children."""
        ...

    async def wait_for_pause(self) -> None:
        """Wait until the pause of the parent has reached every child."""
        ...

    async def run(self, call: CallState, told: str, context: Any) -> TaskState:
        """Drive the task that a call is to its next stop and return its state."""
        ...

    async def note_resting(self, call: CallState, state: TaskState) -> None:
        """Note that the task of a call stopped by itself."""
        ...

    def spent_by(self, call: CallState) -> tuple[SpentBy, ...]:
        """Return what the task of a call has spent so far."""
        ...

    def effects_seen(self, call: CallState, state: TaskState) -> tuple[str, ...]:
        """Return the declared effects of the tools whose results the task of a call has seen."""
        ...

    def is_open(self, call: CallState) -> bool:
        """Return whether the task of a call was driven here and has not ended."""
        ...


@frozen
class JudgedPlace:
    """A content that is to be judged: where it is, what it is, and the tool whose result it is."""

    step: str
    place: str
    guards: e.GuardedContent
    tool: str = ""


class Guards(Protocol):
    """The guardrails of one drive, as other effects need them; `guarding` implements it."""

    def stream(self, step: StepState, call: ModelCall, label: e.Channel) -> HeldDeltas | None:
        """Return what holds the deltas of an answer back; None if nothing has to."""
        ...

    def holds(self, step: StepState, call: ModelCall) -> bool:
        """Return whether an answer that arrived may not go on yet."""
        ...

    def refused_piece(self, step: StepState, call: ModelCall, held: HeldDeltas) -> list[e.Event]:
        """Return the verdict on an answer that was refused while it was being written, and its end."""
        ...

    def release(self, step: StepState, call: ModelCall) -> e.ModelReturned:
        """Return the answer that passed, after watchers were shown what was held back of it."""
        ...

    async def judged(self, place: JudgedPlace, content: dict[str, Json]) -> list[e.Event]:
        """Judge a content and return what was decided."""
        ...

    def denied(
        self, place: JudgedPlace, content: dict[str, Json], why: str, traceback: str = ""
    ) -> list[e.Event]:
        """Return that a content is refused since it could not be judged."""
        ...

    async def judge_final(self, step: str, output: Json) -> tuple[list[e.Event], dict[str, Json] | None]:
        """Judge an answer that no model wrote, and return the verdicts, and what passed; None if nothing did."""
        ...

    async def judge_finalized(self, output: Json) -> list[e.Event]:
        """Judge what a worker made of the answer in its last look."""
        ...


@frozen
class Inherited:
    """What a child takes over from the tasks above it.

    Args:
        judges: the policies of the agents above; that of the runner holds for every task.
        exposed: declared effects of the tools whose results the models of those tasks have seen.
        untrusted: origins of what is untrusted of what these have read.
        conversation: the thread of the task at the root.
    """

    judges: tuple[Judge, ...] = ()
    exposed: frozenset[str] = frozenset()
    untrusted: tuple[str, ...] = ()
    conversation: str | None = None


@frozen
class AgentRuntime:
    """An agent resolved under certain options; computed once for all its tasks.

    `tell_steps` is the limit on steps, if the model is to be told how many are left; `typed` says how answers are asked
    for and read, if they are not text, and `final_specs` are the tools that are there for a last answer. `layers` is
    the middleware of each tool that has any, by name; None if no tool has. `strangers` are who wrote the definitions of
    tools, by name, where that is not the developer.
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
        """Whether the tool `read_output` is Treadle's: the agent has tools, and none of this name."""
        return self.rules.tools.get(READ_OUTPUT) is SPEC

    def offering(self, names: tuple[str, ...] | None, *, reads_on: bool = False) -> tuple[ToolSpec, ...]:
        """Return the tools of a request that offers these of the agent's; None for all.

        With `reads_on`, an output was cut: then `read_output` is one of all.
        """
        if names is None:
            return (*self.specs, SPEC) if reads_on and self.reads_cut_outputs else self.specs
        return tuple([self.tools[name].spec for name in names]) + self.final_specs

    def untrusted_in(self, effect: CallModel, offered: tuple[str, ...] | None) -> tuple[str, ...]:
        """Return who wrote the definitions of the tools that a request offers, where that is not the developer."""
        strangers, wanted = self.strangers, effect.call.request
        if not strangers or effect.final:
            return ()
        names = offered if wanted is None or wanted.tools is None else wanted.tools
        return merged([strangers[name] for name in strangers if names is None or name in names])


@mutable
class EffectContext:
    """What the effects of one drive are done with."""

    state: TaskState
    runtime: AgentRuntime
    channel: Channel
    user_context: Any
    durable: Callable[[], Awaitable[None]]
    clock: Callable[[], int]
    price: Pricing

    select_messages: Callable[[Sequence[ToolSpec]], Sequence[Message]] | None = None
    """what the model sees of the conversation beside these tools, if not all of it; may raise `ModelError`"""

    step_requests: StepRequests | None = None
    """where steps that are functions hand in what they want"""

    meter: TokenMeter | None = None
    """made when a model first does not say how many tokens it took"""

    limits_size: bool | None = None
    """whether a limit depends on the size of a request; found at the first one"""

    estimates: dict[str, Spending] = field(default_factory=dict[str, Spending])
    """the estimated sizes of requests, by call or step; only where limits need them and no account holds them"""

    streamed: set[str] = field(default_factory=set[str])
    """requests of whose answers watchers were shown a part, and which have no answer yet"""

    subagents: Subagents | None = None
    """the children of the task, if its agent may call others"""

    policy: RunnerPolicy = NO_POLICY
    """that of the runner"""

    inherited: Inherited = Inherited()
    """the policies and the content of the tasks above, with the policies of the agent"""

    guarding: Guards | None = None
    """the guardrails that hold for the task: the runner's, and its agent's"""

    exposure: Exposure | None = None
    """tells which content its model has seen; made at the first question"""

    labels: Mapping[str, str] | None = None
    """of the task; None until something judges"""

    read_labels: Callable[[], Awaitable[Mapping[str, str]]] | None = None

    vault: Vault = NO_VAULT
    """the secrets that tools may ask for, and what hides them"""

    refusal_of: RefusalOf | None = None
    """judges the arguments that middleware wrote for a judged call; only where there is middleware"""

    conversation: str = ""
    """the thread of the task at the root: approvals for a thread hold there, also for the tasks below"""

    standing_grants: Callable[[str], Awaitable[Sequence[StandingGrant]]] | None = None
    """returns the approvals for later calls of a tool"""

    tools_of: Callable[[str], Mapping[str, Tool]] | None = None
    """returns the tools of another agent that the task was with; only after a handoff"""

    specs_of: Callable[[str], Mapping[str, ToolSpec]] | None = None
    """returns the declarations of these tools; nothing, if the agent is not known"""

    def tool_of(self, call: CallState) -> Tool | None:
        """Return the tool of a call of any step: that of the agent that made the call."""
        if self.tools_of is not None:
            step = next((step for step in self.state.steps if step.id == call.step), None)
            agent = agent_of(self.state, step) if step is not None else self.state.agent
            if agent != self.state.agent:
                return self.tools_of(agent).get(call.name)
        return self.runtime.tools.get(call.name)

    def passed_on(self) -> Inherited:
        """Return what a child takes over that is called now."""
        seen = self.seen()
        return Inherited(self.inherited.judges, seen.effects, seen.untrusted, self.conversation)

    def seen(self) -> Seen:
        """Return the content that the model of the task has seen so far, as policies are told it."""
        exposure = self.exposure
        if exposure is None:
            from treadle.policy.requests import Exposure, Seen

            above = Seen(self.inherited.exposed, self.inherited.untrusted)
            self.exposure = exposure = Exposure(self.runtime.rules.tools, above, self.specs_of)
        return exposure.of(self.state)

    def rules_judged(self, rules: Rules) -> Rules:
        """Return the rules of the drive with the subjects of the policies in force now."""
        runtime, judges = self.runtime, judges_of(self.policy.in_force, self.inherited.judges)
        return under_judges(rules, runtime.agent, runtime.model, judges, gated=runtime.rules.gated)

    async def learn_labels(self) -> None:
        """Read the labels of the task, unless they are known."""
        if self.labels is None and self.read_labels is not None:
            self.labels = await self.read_labels()

    enter_call: Callable[[str, int], None] | None = None
    """sets the context variables of observers where the tool of a call is about to run"""
