"""Requests to a policy and its verdicts. Plain data: rules and functions are built on it.

    request --> judge --> Allow | Deny | AskPerson | Replace, or None if no rule applies

The strictest of several verdicts holds. From the strictest on, they are: refusal, replacement, question, permission.
Replaced arguments are judged again, so a person is asked about the arguments that run.
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
"""The kinds of effects: a request to a model, a tool call, a call of an agent, or a handoff."""

DEADLINE: Final = 5.0
"""Seconds that a function of a policy, or a guardrail, may take by default."""

MAX_REPLACEMENTS: Final = 8
"""How often a policy may replace the arguments of one call. One more replacement denies the call."""


@frozen(kw_only=True)
class EffectRequest:
    """An effect that the policy judges before it starts.

    Args:
        kind: the kind of the effect.
        name: of the tool, of the model as `provider:model`, or of the agent that a conversation moves to.
        arguments: of a call, as the model, an approver or a rule wrote them.
        taken: the arguments as the tool receives them, as JSON, without defaults; None if they are not known.
        spec: the declaration of the tool that is called, or that moves the conversation; None for a model.
        task_id, thread_id, step, call: where it happens.
        agent: the agent of the task.
        agent_path: the agents on the path to the task, from that of the root task on.
        depth: how many tasks are above it.
        labels: of the task.
        cost: dollars that the task and all tasks below it have spent; None if a model has no known price.
        tool_calls: how many calls the task made before this one, in earlier answers and earlier in the same answer. The
            order in which they end does not matter.
        model_calls, tokens: of the task so far.
        state: the task's `extra_state`, not to be changed.
        context: the `context` that the caller of the run passed.
        exposed: declared effects of the tools whose results the model has seen; `undeclared` for tools without
            declarations.
        untrusted: the origins of untrusted content that the model has read, such as `tool:read_mail`, the first first.
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
    """The effect may start. `rule` is the id of the rule that allows it."""

    rule: str | None = None
    reason: str = ""


@frozen
class Deny:
    """The effect does not start; a model reads the reason as the result of its call.

    If a function failed, `traceback` is that of its error, for people alone.
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
        argument: of a call: the argument that the approver must fill in, such as a reason, or None.
        every_call: whether to ask about every call. An approval for later calls then does not count.
        same: names of arguments. An approval for the task covers only calls in which these are the same.
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
    """The effect gets other arguments and is judged again with them."""

    arguments: dict[str, Json]
    rule: str | None = None
    reason: str = ""


PolicyVerdict: TypeAlias = Allow | Deny | AskPerson | Replace
"""The answer of a policy."""

_STRICTEST_FIRST: Final = (Deny, Replace, AskPerson, Allow)


def strictest(verdicts: Iterable[PolicyVerdict | None]) -> PolicyVerdict | None:
    """Return the strictest verdict, the first of its kind; None if there is none."""
    decided = [verdict for verdict in verdicts if verdict is not None]
    return min(decided, key=lambda verdict: _STRICTEST_FIRST.index(type(verdict)), default=None)


def has_read(untrusted: Sequence[str]) -> str:
    """Return the clause that the model has read untrusted content, with its first three origins."""
    more = f" and {len(untrusted) - 3} more" if len(untrusted) > 3 else ""
    return f"the model has read untrusted content from {', '.join(untrusted[:3])}{more}"


PolicyAnswer: TypeAlias = PolicyVerdict | Awaitable[PolicyVerdict | None] | None


@frozen
class PolicyFunction:
    """A function that judges effects; `id` is journalled as that of the rule."""

    id: str
    function: Callable[[EffectRequest], PolicyAnswer]


class Judge(Protocol):
    """A policy, as the engine uses it. `judge` returns at once; the engine calls the functions before it.

    A function that raises, is late, or returns anything else denies.
    """

    @property
    def deadline(self) -> float:
        """Seconds that each function may take."""
        ...

    def concerns(self, kind: EffectKind, name: str | None, agent: str) -> bool:
        """Return whether effects of an agent are judged at all. An effect without a judgement leaves no event.

        Without a name, return whether any effect of the kind is judged.
        """
        ...

    def functions_for(self, request: EffectRequest) -> Sequence[PolicyFunction]:
        """Return the functions that judge this effect. Async ones run in the event loop, others in a thread."""
        ...

    def judge(
        self, request: EffectRequest, answers: Iterable[PolicyVerdict | None] = ()
    ) -> PolicyVerdict | None:
        """Return the verdict of the rules and of the functions' answers; None if none of them applies.

        Never raises because of the values in a request.
        """
        ...


def checked_judge(where: str, value: Any) -> Judge | None:
    """Return a policy or None; raises `ConfigurationError` for any other value."""
    is_policy = callable(getattr(value, "judge", None)) and callable(getattr(value, "concerns", None))
    if value is not None and (isinstance(value, type) or not is_policy):
        raise ConfigurationError(f"{where} must be a policy, got a {type(value).__name__}")
    return value
