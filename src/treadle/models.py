"""The models that an `Agent` accepts instead of a `"provider:model"` string, and their prices.

Imports nothing until it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from treadle.core.framing import framed
    from treadle.llm.layers.cache import Cache
    from treadle.llm.layers.calls_in_text import CallsInText
    from treadle.llm.layers.circuit_breaker import BreakerState, CircuitBreaker, breakers
    from treadle.llm.layers.fallback import Fallback
    from treadle.llm.layers.hedge import Hedge
    from treadle.llm.layers.rate_limit import RateLimit
    from treadle.llm.layers.retry import Retry
    from treadle.llm.layers.timeout import Timeout
    from treadle.llm.other_providers import ProviderModel
    from treadle.llm.prices import Price, published_price
    from treadle.llm.providers import Anthropic, Google, Ollama, OpenAI, OpenAIChat, PydanticAIModel
    from treadle.llm.replay import ReplayModel
    from treadle.llm.scripted import ScriptedModel, Turn, call, call_raw, fail, text, turn

_HOMES = {
    "Anthropic": "treadle.llm.providers",
    "BreakerState": "treadle.llm.layers.circuit_breaker",
    "Cache": "treadle.llm.layers.cache",
    "CallsInText": "treadle.llm.layers.calls_in_text",
    "CircuitBreaker": "treadle.llm.layers.circuit_breaker",
    "Fallback": "treadle.llm.layers.fallback",
    "Google": "treadle.llm.providers",
    "Hedge": "treadle.llm.layers.hedge",
    "Ollama": "treadle.llm.providers",
    "OpenAI": "treadle.llm.providers",
    "OpenAIChat": "treadle.llm.providers",
    "Price": "treadle.llm.prices",
    "ProviderModel": "treadle.llm.other_providers",
    "PydanticAIModel": "treadle.llm.providers",
    "RateLimit": "treadle.llm.layers.rate_limit",
    "Retry": "treadle.llm.layers.retry",
    "ReplayModel": "treadle.llm.replay",
    "ScriptedModel": "treadle.llm.scripted",
    "Timeout": "treadle.llm.layers.timeout",
    "Turn": "treadle.llm.scripted",
    "breakers": "treadle.llm.layers.circuit_breaker",
    "call": "treadle.llm.scripted",
    "call_raw": "treadle.llm.scripted",
    "fail": "treadle.llm.scripted",
    "framed": "treadle.core.framing",
    "published_price": "treadle.llm.prices",
    "text": "treadle.llm.scripted",
    "turn": "treadle.llm.scripted",
}

__all__ = [
    "Anthropic",
    "BreakerState",
    "Cache",
    "CallsInText",
    "CircuitBreaker",
    "Fallback",
    "Google",
    "Hedge",
    "Ollama",
    "OpenAI",
    "OpenAIChat",
    "Price",
    "ProviderModel",
    "PydanticAIModel",
    "RateLimit",
    "ReplayModel",
    "Retry",
    "ScriptedModel",
    "Timeout",
    "Turn",
    "breakers",
    "call",
    "call_raw",
    "fail",
    "framed",
    "published_price",
    "text",
    "turn",
]


if not TYPE_CHECKING:  # for a type checker, a module with this function has every name

    def __getattr__(name: str) -> Any:
        if (home := _HOMES.get(name)) is None:
            from treadle.core.unknown_names import unknown_in_module

            raise unknown_in_module(__name__, name, __all__)
        return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return __all__
