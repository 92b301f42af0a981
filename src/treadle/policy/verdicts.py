"""What a policy is asked of an effect, and what it may answer. Plain data: rules and functions are built on it.

    request --> judge --> Allow | Deny | AskPerson | Replace, or None where no rule applies

Several answers to one request come down to the strictest: a refusal before a replacement, a replacement before a
question, a question before a permission. Replaced arguments are judged once more, so a question is about what runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Literal, Protocol, TypeAlias

from treadle.core.data import frozen
from treadle.core.messages import Json
from treadle.core.tools import ToolSpec
from treadle.errors import ConfigurationError

EffectKind = Literal["model", "tool", "subagent", "handoff"]
"""What is to be done: a request to a model, a tool call, the call of an agent, or the move of the conversation."""

DEADLINE: Final = 5.0
"""Seconds that a function of a policy, or a guardrail, may take by default."""

MAX_REPLACEMENTS: Final = 8
"""How often the arguments of one call are replaced; a policy that would replace them once more denies the call."""


@frozen(kw_only=True)
class EffectRequest:
    """An effect that is to be judged before it starts.

    Args:
        kind: what it is.
        name: of the tool, of the model as `provider:model`, or of the agent that a conversation moves to.
        arguments: of a call, as a model, an approver or a rule wrote them.
        taken: the same in the form that the tool gets them, as JSON, without defaults; None if that is not known.
        spec: what the tool declares, or the tool by which a conversation moves; None for a model.
        task_id, thread_id, step, call: where it happens.
        agent: the agent of the task.
        agent_path: the agents on the path to the task, from that of the root task on.
        depth: how many tasks are above it.
        labels: of the task.
        cost: dollars that the task has spent with all below it; None if a model has no known price.
        tool_calls: how many calls the task made before this one: those of earlier answers, and of the same answer those
            before it in their order, whichever of them end first.
        model_calls, tokens: of the task so far.
        state: the task's `extra_state`, not to be changed.
        context: what the caller of the run passed as `context`, for functions.
        exposed: declared effects of the tools whose results the model has seen, `undeclared` among them.
        untrusted: the origins of what the model has read that is untrusted, such as `tool:read_mail`, the first first.
    """

    kind: EffectKind
    name: str
    arguments: dict[str, Json] = field(default_factory=dict[str, Json])
    spec: ToolSpec | None = None
    task_id: str = ""
    thread_id: str = ""
    step: str = ""
    call: str = ""
    agent: str = ""
    agent_path: tuple[str, ...] = ()
    depth: int = 0
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    cost: float | None = 0.0
    tool_calls: int = 0
    exposed: frozenset[str] = frozenset()
    untrusted: tuple[str, ...] = ()
    model_calls: int = 0
    tokens: int = 0
    state: Mapping[str, Json] = field(default_factory=dict[str, Json])
    context: Any = field(default=None, repr=False, compare=False)
    taken: Mapping[str, Json] | None = None


@frozen
class Allow:
    """The effect may start. `rule` is the id of the rule that says so."""

    rule: str | None = None
    reason: str = ""


@frozen
class Deny:
    """The effect does not start; a model reads the reason as the result of its call.

    Where a function failed instead of judging, `traceback` is that of its error, for people alone.
    """

    rule: str | None = None
    reason: str = ""
    traceback: str = field(default="", repr=False, compare=False)


@frozen
class AskPerson:
    """A person decides whether the effect starts.

    Args:
        rule: the id of the rule that asks.
        reason: why, for the approver.
        expires: seconds until the request is denied unanswered; None for the runner's `approval_expires`.
        approvers: names that may decide; empty for any.
        excluded: names that may not decide, such as that of the requester.
        argument: of a call: the argument that the approver has to write, such as a reason; None if none.
        every_call: whether every call is asked about: no approval for later calls answers the question.
        same: names of arguments: an approval for the task answers the question only for calls in which these are the
            same as in the call that was approved.
    """

    rule: str | None = None
    reason: str = ""
    expires: float | None = None
    approvers: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    argument: str | None = None
    every_call: bool = False
    same: tuple[str, ...] = ()


@frozen
class Replace:
    """The effect is to have other arguments; with these it is judged anew."""

    arguments: dict[str, Json]
    rule: str | None = None
    reason: str = ""


PolicyVerdict: TypeAlias = Allow | Deny | AskPerson | Replace
"""The answer of a policy."""

_STRICTEST_FIRST: Final = (Deny, Replace, AskPerson, Allow)


def strictest(verdicts: Iterable[PolicyVerdict | None]) -> PolicyVerdict | None:
    """Return the verdict that holds among several, the first of its kind; None if there is none."""
    found = [verdict for verdict in verdicts if verdict is not None]
    return min(found, key=lambda verdict: _STRICTEST_FIRST.index(type(verdict)), default=None)


def has_read(untrusted: Sequence[str]) -> str:
    """Return the clause that the model has read untrusted content, with its origins; the first three by name."""
    more = f" and {len(untrusted) - 3} more" if len(untrusted) > 3 else ""
    return f"the model has read untrusted content from {', '.join(untrusted[:3])}{more}"


PolicyAnswer: TypeAlias = PolicyVerdict | Awaitable[PolicyVerdict | None] | None


@frozen
class PolicyFunction:
    """A function that judges effects; `id` is journalled as that of the rule."""

    id: str
    function: Callable[[EffectRequest], PolicyAnswer]


class Judge(Protocol):
    """What judges effects. It gives a verdict at once; the engine calls the functions before that.

    A function that raises, is late, or returns anything else denies.
    """

    @property
    def deadline(self) -> float:
        """Seconds that each function may take."""
        ...

    def concerns(self, kind: EffectKind, name: str | None, agent: str) -> bool:
        """Return whether such an effect of an agent is to be judged at all; what is not leaves no event.

        Without a name: whether any effect of the kind is.
        """
        ...

    def functions_for(self, request: EffectRequest) -> Sequence[PolicyFunction]:
        """Return the functions that judge this effect: async ones are run in the event loop, others in a thread."""
        ...

    def judge(
        self, request: EffectRequest, answers: Iterable[PolicyVerdict | None] = ()
    ) -> PolicyVerdict | None:
        """Return the verdict of the rules and of what the functions answered; None if none of them applies.

        Never raises for what a request holds.
        """
        ...


def checked_judge(where: str, value: Any) -> Judge | None:
    """Return what judges effects, or None; raises `ConfigurationError` for what cannot judge."""
    is_policy = callable(getattr(value, "judge", None)) and callable(getattr(value, "concerns", None))
    if value is not None and (isinstance(value, type) or not is_policy):
        raise ConfigurationError(f"{where} must be a policy, got a {type(value).__name__}")
    return value
