"""The cost of answers: by configured prices, else by the published prices of genai-prices.

The cost of a model without a price is `None`, never 0. The published table is imported at its first use, and used only
for a model that is named `provider:model`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from functools import cache
from importlib.util import find_spec
from typing import Any, Final, TypeAlias, cast

from treadle.core.data import frozen, set_field
from treadle.core.model import Usage
from treadle.core.refused_uses import can_be_called, no_function
from treadle.errors import ConfigurationError

_LOG = logging.getLogger("treadle.prices")

MILLION: Final = 1_000_000

Dollars: TypeAlias = Decimal | float | str
PriceFunction: TypeAlias = Callable[[str, Usage], Decimal | float | None]
"""Maps a model's name, `provider:model`, and the usage of one answer to US dollars; None without a price."""


@frozen
class Price:
    """The price of a model, in US dollars for a million tokens.

    Args:
        input: for input tokens.
        output: for output tokens, reasoning included.
        cached: for tokens read from the provider's cache; by default as `input`.
        cache_write: for tokens written to the provider's cache; by default as `input`.

    Raises:
        ConfigurationError: a price is not an amount of dollars.
    """

    input: Dollars
    output: Dollars
    cached: Dollars | None = None
    cache_write: Dollars | None = None

    def __post_init__(self) -> None:
        for name in ("input", "output", "cached", "cache_write"):
            value = getattr(self, name)
            if value is None and name in ("cached", "cache_write"):
                continue
            dollars = _dollars(value)
            if dollars is None:
                raise ConfigurationError(
                    f"Price.{name} must be US dollars for a million tokens, got {value!r}"
                )
            set_field(self, name, dollars)

    def of(self, usage: Usage) -> Decimal | None:
        """Return the cost of a usage in US dollars; None if its parts exceed the whole."""
        uncached = usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens
        if uncached < 0:
            return None
        input_price = cast("Decimal", self.input)
        total = uncached * input_price + usage.output_tokens * cast("Decimal", self.output)
        for tokens, price in (
            (usage.cached_tokens, self.cached),
            (usage.cache_write_tokens, self.cache_write),
        ):
            total += tokens * (input_price if price is None else cast("Decimal", price))
        return total / MILLION


def pricing(stated: PriceFunction | Mapping[str, Price] | None) -> Callable[[str, Usage], Decimal | None]:
    """Return the function that prices an answer.

    Args:
        stated: a function, which is then the only source of prices. Or prices by model: `provider:model`, or
            `provider:*` for all models of a provider. Other models then have published prices.

    Raises:
        ConfigurationError: `stated` is neither, or holds an invalid name or price.
    """
    if stated is None:
        return published_price
    if isinstance(stated, Mapping):
        table = _checked(cast("Mapping[Any, Any]", stated))
        return lambda model, usage: _from_table(table, model, usage)
    if not can_be_called(stated):
        raise ConfigurationError(
            f"prices must map names of models to Price(...), or be a function, got {no_function(stated)}"
        )
    return lambda model, usage: _from_function(stated, model, usage)


def published_price(model: str, usage: Usage) -> Decimal | None:
    """Return the cost of an answer in US dollars by its provider's published prices; None without a price.

    Args:
        model: `provider:model`.
        usage: the tokens of one answer. Some prices depend on the length of a request, so a sum would be wrong.
    """
    provider, _, name = model.partition(":")
    if not name or model in _UNKNOWN or (library := _library()) is None:
        return None
    context = {"service_tier": usage.tier} if usage.tier else None
    try:
        calculation = library.calc_price(
            _their_usage(library, usage), name, provider_id=provider, price_context=context
        )
    except LookupError:
        _UNKNOWN.add(model)  # the search would be repeated for each answer
        return None
    except ValueError:
        return None  # inconsistent counts
    price = calculation.model_price
    # Some models are in the table without a price.
    if (usage.input_tokens and price.input_mtok is None) or (
        usage.output_tokens and price.output_mtok is None
    ):
        return None
    return calculation.total_price


_UNKNOWN: Final = set[str]()
"""Models without a published price."""


def load() -> None:
    """Import the published prices. This is slow, so call it in a thread."""
    published_price("openai:gpt-5", Usage(1, 1))


@cache
def _library() -> Any:
    """Return the library that holds the published prices; None if it is not installed."""
    if find_spec("genai_prices") is None:
        return None
    import genai_prices

    return genai_prices


def _their_usage(library: Any, usage: Usage) -> Any:
    return library.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        cache_write_1h_tokens=usage.cache_write_1h_tokens,
        input_audio_tokens=usage.input_audio_tokens,
        output_audio_tokens=usage.output_audio_tokens,
        output_reasoning_tokens=usage.reasoning_tokens,
    )


def _checked(stated: Mapping[Any, Any]) -> dict[str, Price]:
    for model, price in stated.items():
        if not isinstance(model, str):
            raise ConfigurationError(
                f"prices: a model is named by text such as 'openai:gpt-5', got {model!r}"
            )
        if not isinstance(price, Price):
            raise ConfigurationError(f"prices: {model} needs a Price(input, output), got {price!r}")
    return dict(stated)


def _from_table(table: dict[str, Price], model: str, usage: Usage) -> Decimal | None:
    price = table.get(model) or table.get(f"{model.partition(':')[0]}:*")
    return published_price(model, usage) if price is None else price.of(usage)


def _from_function(function: PriceFunction, model: str, usage: Usage) -> Decimal | None:
    """Return the cost that a function returns. If it fails, the cost is unknown and the answer is kept."""
    try:
        cost = function(model, usage)
    except Exception:  # noqa: BLE001  an error of a user's function must not lose the answer
        _LOG.exception("the function that prices answers failed for %s: the cost stays unknown", model)
        return None
    dollars = _dollars(cost)
    if dollars is None and cost is not None:
        _LOG.error("the function that prices answers gave %r for %s: the cost stays unknown", cost, model)
    return dollars


def _dollars(value: Any) -> Decimal | None:
    """Return a value as an amount of dollars, or None if it is not one."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Decimal)):
        return None
    try:
        dollars = Decimal(str(value))
    except InvalidOperation:
        return None
    return dollars if dollars.is_finite() and dollars >= 0 else None
