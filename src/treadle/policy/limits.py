"""Limits of a task: how much it may spend, and the arithmetic of reaching them."""

from __future__ import annotations

from dataclasses import fields, replace
from decimal import Decimal
from typing import Any, Final

from treadle.core import events as e
from treadle.core.data import frozen, repr_of_set_fields
from treadle.core.spending import NOTHING_SPENT, Spending, as_dollars, picodollars
from treadle.core.state import TaskState
from treadle.core.unknown_names import explains_arguments
from treadle.errors import ConfigurationError

DEFAULT_STEPS: Final = 200
DEFAULT_DEPTH: Final = 4
DEFAULT_CHILDREN: Final = 20
DEFAULT_REPEATS: Final = 5
DEFAULT_HANDOFFS: Final = 10

_MAX_AMOUNT: Final = 10**300
"""The largest number of seconds or dollars that the arithmetic can handle."""

_KINDS: Final[dict[str, tuple[str, Any]]] = {
    "cost": ("an amount of US dollars", (int, float, Decimal)),
    "seconds": ("a number of seconds", (int, float)),
}
"""The kinds of the limits that are not whole numbers."""

UNKNOWN_COST: Final = "the cost is not known, since a model that was asked has no price"
"""The reason of a limit on cost that counts as reached because the cost is unknown."""


@frozen(kw_only=True)
@explains_arguments
class Limits:
    """Hard limits of a task together with all tasks below it. Steps and repeats are counted for the task alone.

    None means no limit, except for steps, depth, children, repeats and handoffs, which have defaults.

    Args:
        steps: turns of the decision cycle; undone turns are given back. The default is 200.
        model_calls: requests to the model, attempts included.
        tool_calls: calls requested by the model; undone calls are given back.
        tokens: input and output tokens together.
        cost: US dollars, such as 0.5. It needs a price for every model that may be asked.
        seconds: time during which the task is driven, over all attempts.
        depth: how many levels of children there may be below the task. The default is 4.
        children: how many tasks there may be below it, at all depths. The default is 20.
        repeats: how many times the same call may have the same result, with nothing new in between. At least 2; 0 is no
            limit. The default is 5.
        handoffs: how often the conversation may move to another agent; undone handoffs are given back. The default is
            10.
    """

    steps: int | None = None
    model_calls: int | None = None
    tool_calls: int | None = None
    tokens: int | None = None
    cost: float | Decimal | None = None
    seconds: float | None = None
    depth: int | None = None
    children: int | None = None
    repeats: int | None = None
    handoffs: int | None = None

    __repr__ = repr_of_set_fields

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if value is None:
                continue
            kind, types = _KINDS.get(item.name, ("a whole number", int))
            if isinstance(value, bool) or not isinstance(value, types):
                raise ConfigurationError(f"Limits.{item.name} must be {kind} or None, got {value!r}")
            if value != value or value < 0:
                raise ConfigurationError(f"Limits.{item.name} must not be negative, got {value!r}")
            if value == float("inf") or (item.name in _KINDS and value > _MAX_AMOUNT):
                raise ConfigurationError(f"Limits.{item.name} must be finite; None is no limit")
        if self.repeats == 1:
            raise ConfigurationError(
                "Limits.repeats must be 2 or more, or 0 for no limit, got 1: a first call repeats nothing"
            )

    @property
    def allowed_steps(self) -> int:
        """The number of steps that the task may take."""
        return DEFAULT_STEPS if self.steps is None else self.steps

    @property
    def allowed_repeats(self) -> int | None:
        """How many times the same call may have the same result; None for no limit."""
        return DEFAULT_REPEATS if self.repeats is None else self.repeats or None

    @property
    def allowed_handoffs(self) -> int:
        """How often the conversation may move to another agent."""
        return DEFAULT_HANDOFFS if self.handoffs is None else self.handoffs

    def tightest(self, other: Limits) -> Limits:
        """Return the smaller of each limit; a limit on repeats replaces none."""
        smaller: dict[str, Any] = {
            f.name: _smaller(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)
        }
        if smaller["repeats"] == 0:
            smaller["repeats"] = self.repeats or other.repeats or 0
        return Limits(**smaller)

    def with_defaults(self) -> Limits:
        """Return these limits with the default of each that is open and has one."""
        return replace(self, **{name: n for name, n in _DEFAULTS.items() if getattr(self, name) is None})

    def below_defaults(self, requested: Limits) -> Limits:
        """Return these limits without the fields that would raise a default that `requested` leaves."""
        raised: dict[str, Any] = {}
        for name, default in _DEFAULTS.items():
            value: int | None = getattr(self, name)
            is_open = value is not None and (value >= default or (name == "repeats" and not value))
            if is_open and getattr(requested, name) is None:
                raised[name] = None
        return replace(self, **raised)


_DEFAULTS: Final = {
    "steps": DEFAULT_STEPS,
    "depth": DEFAULT_DEPTH,
    "children": DEFAULT_CHILDREN,
    "repeats": DEFAULT_REPEATS,
    "handoffs": DEFAULT_HANDOFFS,
}


def _smaller(a: float | None, b: float | None) -> float | None:
    if a is None or b is None:
        return b if a is None else a
    return min(a, b)


def forbids_call(limits: Limits, before: int) -> bool:
    """Return whether the limit on tool calls forbids one more call after so many."""
    return limits.tool_calls is not None and before >= limits.tool_calls


def forbidden(limits: Limits, used: Spending, reserved: Spending = NOTHING_SPENT) -> e.LimitReached | None:
    """Return the limit that forbids one more request to a model, if one does.

    A request may start while the used and the reserved amounts together stay below each limit. So a task exceeds a
    limit by at most the requests in flight. An unknown cost counts as too high.

    Args:
        limits: of the task.
        used: the spending so far.
        reserved: the amount kept back for requests in flight, for children, and for a last answer.
    """
    calls = limits.model_calls
    if calls is not None and used.model_calls + reserved.model_calls >= calls:
        return e.LimitReached("model_calls", calls, used.model_calls)
    if limits.tokens is not None and used.tokens + reserved.tokens >= limits.tokens:
        return e.LimitReached("tokens", limits.tokens, used.tokens)
    if limits.cost is None:
        return None
    spent, most = (used + reserved).cost, picodollars(limits.cost)
    if spent is None:
        return e.LimitReached("cost", float(limits.cost), 0.0, UNKNOWN_COST)
    if spent >= most:
        return e.LimitReached("cost", float(limits.cost), float(as_dollars(used.cost or 0)))
    return None


def too_large(
    limits: Limits, used: Spending, reserved: Spending, estimate: Spending
) -> e.LimitReached | None:
    """Return the limit on tokens or cost that a request of an estimated size would exceed, if any.

    Args:
        limits: of the task.
        used: the spending so far.
        reserved: the amount kept back for requests in flight, and for a last answer.
        estimate: of the tokens that the request sends, and of their cost.
    """
    if limits.tokens is not None:
        spare = max(0, limits.tokens - used.tokens - reserved.tokens)
        if estimate.tokens > spare:
            detail = f"about {estimate.tokens:,} tokens would be sent, by an estimate, and {spare:,} are left for it"
            return e.LimitReached("tokens", limits.tokens, used.tokens, detail)
    spent_cost = (used + reserved).cost
    if limits.cost is None or estimate.cost is None or spent_cost is None:
        return None
    spare = max(0, picodollars(limits.cost) - spent_cost)
    if estimate.cost <= spare:
        return None
    request_cost, rest = as_dollars(estimate.cost), as_dollars(spare)
    detail = f"the request would cost about ${request_cost}, by an estimate, and ${rest} are left for it"
    return e.LimitReached("cost", float(limits.cost), float(as_dollars(used.cost or 0)), detail)


def spent(state: TaskState) -> Spending:
    """Return the spending of a task so far."""
    cost = None if state.unpriced else state.cost
    return Spending(state.model_calls, state.tool_calls, state.usage.total_tokens, cost)


def spent_before_a_call(
    limits: Limits, state: TaskState, *, reserve: bool, besides: int = 0
) -> e.LimitReached | None:
    """Return the limit that forbids one more ordinary model call, if one does.

    Each request in flight reserves as much as the newest one spent. So do `besides` further requests about to begin
    and, with `reserve`, a last answer.
    """
    if limits.model_calls is None and limits.tokens is None and limits.cost is None:
        return None
    calls_after = besides + (1 if reserve else 0)
    sized = calls_after + len(state.begun_model_calls())
    reserved = Spending(calls_after, 0, sized * state.last_request_tokens, sized * state.last_request_cost)
    return forbidden(limits, spent(state), reserved)


def spare_calls(limits: Limits, state: TaskState) -> int | None:
    """Return how many requests the limits allow beside those in flight; None for no limit.

    Each counts as much as the newest one. Before the first answer, one more is allowed.
    """
    if limits.model_calls is None and limits.tokens is None and limits.cost is None:
        return None
    spare: list[int] = []
    if limits.model_calls is not None:
        spare.append(limits.model_calls - state.model_calls)
    out = len(state.begun_model_calls())
    if limits.tokens is not None:
        spare.append(
            _requests_within(limits.tokens - state.usage.total_tokens, state.last_request_tokens, out)
        )
    if limits.cost is not None:
        remaining = picodollars(limits.cost) - state.cost
        spare.append(0 if state.unpriced else _requests_within(remaining, state.last_request_cost, out))
    return max(0, min(spare))


def _requests_within(remaining: int, per_call: int, out: int) -> int:
    """Return how many more requests fit into the rest of a limit, beside those in flight."""
    if remaining <= 0:
        return 0
    return -(-remaining // per_call) - out if per_call else 1


def has_room_for_an_answer(limits: Limits, state: TaskState) -> bool:
    """Return whether one last model call fits into the limits."""
    return not state.exhausted and state.limit != "seconds" and forbidden(limits, spent(state)) is None
