"""Limits of a task: how much it may spend, and the arithmetic of reaching them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

from treadle.core.data import frozen
from treadle.core.state import TaskState
from treadle.errors import ConfigurationError

DEFAULT_STEPS: Final = 200


@frozen(kw_only=True)
class Limits:
    """Hard limits of one task; what is left at None is not limited, but for steps.

    Args:
        steps: turns of the decision cycle; those undone are given back. Left open by everybody, it is 200.
        model_calls: requests to the model, attempts included.
        tool_calls: calls asked for by the model; those undone are given back.
        tokens: input and output tokens together.
        seconds: time during which the task is driven, over all attempts.
    """

    steps: int | None = None
    model_calls: int | None = None
    tool_calls: int | None = None
    tokens: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if value is None:
                continue
            whole = item.name != "seconds"
            if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
                kind = "a whole number" if whole else "a number of seconds"
                raise ConfigurationError(f"Limits.{item.name} must be {kind} or None, got {value!r}")
            if value < 0 or value != value:
                raise ConfigurationError(f"Limits.{item.name} must not be negative, got {value!r}")
            if value == float("inf"):
                raise ConfigurationError(f"Limits.{item.name} must be finite; None is no limit")

    @property
    def allowed_steps(self) -> int:
        """How many steps may be taken."""
        return DEFAULT_STEPS if self.steps is None else self.steps

    def tightest(self, other: Limits) -> Limits:
        """Return the smaller of each limit."""
        smaller: dict[str, Any] = {
            f.name: _smaller(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)
        }
        return Limits(**smaller)


def _smaller(a: float | None, b: float | None) -> float | None:
    if a is None or b is None:
        return b if a is None else a
    return min(a, b)


def spent_before_a_call(
    limits: Limits, state: TaskState, *, reserve: bool, besides: int = 0
) -> tuple[str, float, float] | None:
    """Return the limit that forbids one more ordinary model call: its name, what is allowed and what is used.

    With `reserve`, the last call or the size of one more request is kept back for a final answer; `besides` are calls
    that are about to begin.
    """
    kept = 1 if reserve else 0
    if limits.model_calls is not None and state.model_calls + kept + besides >= limits.model_calls:
        return "model_calls", limits.model_calls, state.model_calls
    used = state.usage.total_tokens
    if limits.tokens is not None and used + kept * state.last_request_tokens >= limits.tokens:
        return "tokens", limits.tokens, used
    return None


def has_room_for_an_answer(limits: Limits, state: TaskState) -> bool:
    """Whether one last model call fits into the limits."""
    if limits.model_calls is not None and state.model_calls >= limits.model_calls:
        return False
    if state.limit == "seconds":
        return False
    return limits.tokens is None or state.usage.total_tokens < limits.tokens
