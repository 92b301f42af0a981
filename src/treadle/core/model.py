"""Requests to models and their answers: plain data shared by the core, the port and its adapters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, Final, Literal, TypeAlias, cast, get_args

from treadle.core.data import frozen, mutable, repr_of_set_fields
from treadle.core.messages import Json, Message
from treadle.core.tools import ToolSpec
from treadle.core.unknown_names import explains_arguments
from treadle.errors import ConfigurationError

Finish = Literal["stop", "tool_calls", "length", "content_filter", "refusal", "error", "unknown"]
"""The reason why a model stopped."""

WHOLE: Final[frozenset[Finish]] = frozenset(("stop", "tool_calls"))
"""The finishes of a complete answer. Only such an answer may lead to an action."""

CacheTime = Literal["5m", "30m", "1h", "12h"]
"""How long a provider caches a prompt."""

ToolChoice: TypeAlias = str
"""`auto`, `none`, `required`, or the name of one tool."""


@frozen
class Usage:
    """Tokens of one or more model calls. `input_tokens` and `output_tokens` are totals, and the others parts of them.

    Args:
        input_tokens: all input.
        output_tokens: all output.
        cached_tokens: part of the input that came from the provider's cache.
        reasoning_tokens: part of the output that was reasoning.
        estimated: whether some number is an estimate, because a provider reported none.
        cache_write_tokens: part of the input that was written into the provider's cache.
        cache_write_1h_tokens: part of `cache_write_tokens`, cached for an hour.
        input_audio_tokens: part of the input that was audio.
        output_audio_tokens: part of the output that was audio.
        tier: the provider's service tier, such as `flex`, if it was reported. For a sum, the common tier.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    estimated: bool = False
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    input_audio_tokens: int = 0
    output_audio_tokens: int = 0
    tier: str = ""

    @property
    def total_tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    def __sub__(self, part: Usage) -> Usage:
        if part is NO_USAGE:
            return self
        return Usage(
            self.input_tokens - part.input_tokens,
            self.output_tokens - part.output_tokens,
            self.cached_tokens - part.cached_tokens,
            self.reasoning_tokens - part.reasoning_tokens,
            self.estimated,
            self.cache_write_tokens - part.cache_write_tokens,
            self.cache_write_1h_tokens - part.cache_write_1h_tokens,
            self.input_audio_tokens - part.input_audio_tokens,
            self.output_audio_tokens - part.output_audio_tokens,
            self.tier,
        )

    def __add__(self, other: Usage) -> Usage:
        if self is NO_USAGE:
            return other
        if other is NO_USAGE:
            return self
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.estimated or other.estimated,
            self.cache_write_tokens + other.cache_write_tokens,
            self.cache_write_1h_tokens + other.cache_write_1h_tokens,
            self.input_audio_tokens + other.input_audio_tokens,
            self.output_audio_tokens + other.output_audio_tokens,
            self.tier if self.tier == other.tier else "",
        )


NO_USAGE: Final = Usage()
"""No tokens: the start of sums."""


@frozen(kw_only=True)
@explains_arguments
class ModelSettings:
    """Settings sent with each request of an agent.

    Args:
        temperature: the provider's own scale, usually 0 to 2.
        max_tokens: the longest answer, in tokens.
        tool_choice: `auto`, `none`, `required` or a tool's name. It is reset to `auto` after a task's first step.
        parallel_tool_calls: whether the model may ask for several calls in one turn.
        cache: for providers that cache the prompt only on request: True, False, or a time. Times are `5m`, `30m`, `1h`
            and `12h`, and the nearest that the provider offers counts. None: only if writing into the cache is free.
        use_cache: if False, a `Cache` around the model asks the model again and stores the new answer. Without such a
            layer it has no effect.
        extra: further settings by the provider's own names.

    Raises:
        ConfigurationError: a value is not valid. The message names the field.
    """

    temperature: float | None = None
    max_tokens: int | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    cache: bool | CacheTime | None = None
    use_cache: bool | None = None
    extra: dict[str, Json] = field(default_factory=dict[str, Json])

    __repr__ = repr_of_set_fields

    def __post_init__(self) -> None:
        for name, (expected, is_valid) in _SETTINGS.items():
            value = getattr(self, name)
            if value is not None and not is_valid(value):
                raise ConfigurationError(f"ModelSettings.{name} must be {expected}, got {value!r}")
        extra: Any = self.extra
        if not isinstance(extra, dict) or not all(isinstance(name, str) for name in cast("Any", extra)):
            raise ConfigurationError(f"ModelSettings.extra must map names to values, got {extra!r}")
        named_twice = self.extra.keys() & _SETTINGS.keys()
        if named_twice:
            twice = min(named_twice)
            raise ConfigurationError(
                f"ModelSettings.extra: {twice!r} is a setting of its own: ModelSettings({twice}=...)"
            )

    def over(self, defaults: ModelSettings) -> ModelSettings:
        """Return these settings, with unset fields taken from `defaults`. `extra` is merged by name."""
        values: dict[str, Any] = {
            name: getattr(defaults, name) if getattr(self, name) is None else getattr(self, name)
            for name in _SETTINGS
        }
        return ModelSettings(**values, extra={**defaults.extra, **self.extra})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")


_SETTINGS: Final[dict[str, tuple[str, Callable[[Any], bool]]]] = {
    "temperature": ("a number from 0 up", _is_number),
    "max_tokens": (
        "a whole number from 1 up",
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 1,
    ),
    "tool_choice": (
        "'auto', 'none', 'required' or the name of a tool",
        lambda value: isinstance(value, str) and bool(value),
    ),
    "parallel_tool_calls": ("True or False", lambda value: isinstance(value, bool)),
    "cache": (
        f"True, False or one of {', '.join(get_args(CacheTime))}",
        lambda value: isinstance(value, bool) or value in get_args(CacheTime),
    ),
    "use_cache": ("True or False", lambda value: isinstance(value, bool)),
}
"""The allowed values of each setting, in words, and the check of it."""


@frozen
class FailedAttempt:
    """A failed attempt at a request that was followed by another attempt.

    `at` is the time of its failure, in microseconds since 1970, UTC. `route` is the choice among several models: the
    positions of the choices, outermost first, such as `1` or `0.2`.
    """

    model: str
    kind: str
    status: int | None
    at: int
    route: str = ""


@frozen
class SideCall:
    """A further request on the way to an answer, such as a hedge that lost. It is counted and paid for.

    Without `usage`, the usage of a successful request is estimated. `cost` is in pico-dollars, computed by the caller.
    """

    model: str
    usage: Usage = NO_USAGE
    error: str | None = None
    cost: int | None = None


@mutable
class Tries:
    """The retry state of a request whose last attempt failed.

    `retry_at` is the earliest time of the next attempt, in microseconds since 1970, UTC. It is None once it has come.
    `route` is the route of the next attempt. `epoch` is the epoch in which the last attempt failed, and `why` its
    message.
    """

    failures: tuple[FailedAttempt, ...] = ()
    retry_at: int | None = None
    route: str = ""
    epoch: int = 0
    why: str = ""


@mutable
class ModelRequest:
    """One request to a model: its complete input, and its place in the task.

    `turn` counts the answers to this task on its present branch so far. `attempt` starts at 1. The rest is for layers
    around models, which have no state of a task. `failures` are the earlier failed attempts at this request. `route` is
    its choice among several models, as in `FailedAttempt`, and empty before a choice. `asked_at` is the time of the
    first attempt, in microseconds since 1970, UTC. `spare_calls` is the number of further requests that the limits
    allow, and None without a limit.
    """

    messages: Sequence[Message]
    instructions: str
    tools: Sequence[ToolSpec]
    tool_choice: ToolChoice
    settings: ModelSettings
    task_id: str
    step: str
    turn: int
    attempt: int
    output_schema: Json = None
    failures: tuple[FailedAttempt, ...] = ()
    route: str = ""
    asked_at: int = 0
    spare_calls: int | None = None
    call: str | None = None
    """the id of the request, if a step function made it"""

    raw: bool = False
    """whether an observer wants the provider's raw data; then `RawDelta` may be yielded too"""


@mutable
class TextDelta:
    """More text of a streamed answer.

    `final` marks text that is certainly the answer, even if tools are offered. Setting it is optional.
    """

    text: str
    final: bool = False


@mutable
class ReasoningDelta:
    """More of the model's reasoning."""

    text: str


@mutable
class ToolCallDelta:
    """More of a streamed tool call: `index` is the call's place in the answer."""

    index: int
    name: str = ""
    arguments: str = ""


@mutable
class ModelAnswer:
    """The complete answer. Ids of its tool calls may be the provider's own, and the core replaces them.

    `model` is the model that answered, as `provider:model`, if it is not the requested one. `also` are further requests
    on the way. Without `usage` it is estimated. An answer that took no tokens has `Usage(0, 0)`.
    """

    message: Message
    finish: Finish = "stop"
    usage: Usage = NO_USAGE
    model: str = ""
    also: tuple[SideCall, ...] = ()


@mutable
class RawDelta:
    """A raw piece of the answer from the provider, as JSON data. It is only yielded if `ModelRequest.raw` is set."""

    data: Json


ModelDelta: TypeAlias = TextDelta | ReasoningDelta | ToolCallDelta | RawDelta
