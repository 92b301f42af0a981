"""What answers of models cost: prices that were stated, else those that providers publish, as genai-prices keeps them.

A model nobody knows a price of costs `None`, never 0. The published table is imported when it is first asked, and only
for a model that is named `provider:model`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from functools import cache
from importlib.util import find_spec
from typing import Any, Final, TypeAlias, cast

from treadle.core.data import frozen
from treadle.core.model import Usage
from treadle.errors import ConfigurationError

_LOG = logging.getLogger("treadle.prices")

MILLION: Final = 1_000_000

Dollars: TypeAlias = Decimal | float | str
PriceFunction: TypeAlias = Callable[[str, Usage], Decimal | float | None]
"""From a model's name, `provider:model`, and the tokens of one answer to US dollars; None: nobody knows."""


@frozen
class Price:
    """What a model costs, in US dollars for a million tokens.

    Args:
        input: tokens read.
        output: tokens written, thinking included.
        cached: tokens read from the provider's cache; left open they cost what others do.
        cache_write: tokens written into it, likewise.

    Raises:
        ConfigurationError: a price is no amount of dollars.
    """

    input: Dollars
    output: Dollars
    cached: Dollars | None = None
    cache_write: Dollars | None = None

    def __post_init__(self) -> None:
        for name in ("input", "output", "cached", "cache_write"):
            given = getattr(self, name)
            if given is None and name in ("cached", "cache_write"):
                continue
            dollars = _dollars(given)
            if dollars is None:
                raise ConfigurationError(
                    f"Price.{name} must be US dollars for a million tokens, got {given!r}"
                )
            object.__setattr__(self, name, dollars)

    def of(self, usage: Usage) -> Decimal | None:
        """Return what tokens cost in US dollars; None if their parts are more than the whole."""
        plain = usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens
        if plain < 0:
            return None
        each = cast("Decimal", self.input)
        total = plain * each + usage.output_tokens * cast("Decimal", self.output)
        for tokens, price in (
            (usage.cached_tokens, self.cached),
            (usage.cache_write_tokens, self.cache_write),
        ):
            total += tokens * (each if price is None else cast("Decimal", price))
        return total / MILLION


def pricing(stated: PriceFunction | Mapping[str, Price] | None) -> Callable[[str, Usage], Decimal | None]:
    """Return what tells the cost of an answer.

    Args:
        stated: a function, which then decides alone; or prices by model (`provider:model`, or `provider:*` for all of a
            provider), with the published ones for the others.

    Raises:
        ConfigurationError: it is neither, or a name or a price in it is none.
    """
    if stated is None:
        return published_price
    if isinstance(stated, Mapping):
        table = _checked(cast("Mapping[Any, Any]", stated))
        return lambda model, usage: _from_table(table, model, usage)
    if not callable(stated):
        raise ConfigurationError(
            f"prices must map names of models to Price(...), or be a function, got {stated!r}"
        )
    return lambda model, usage: _asked(stated, model, usage)


def published_price(model: str, usage: Usage) -> Decimal | None:
    """Return what an answer costs in US dollars by the prices its provider publishes; None if they are not known.

    Args:
        model: `provider:model`.
        usage: the tokens of one answer: where a price depends on the length of a request, sums would be priced wrong.
    """
    provider, _, name = model.partition(":")
    if not name or model in _UNKNOWN or (library := _library()) is None:
        return None
    context = {"service_tier": usage.tier} if usage.tier else None
    try:
        found = library.calc_price(
            _their_usage(library, usage), name, provider_id=provider, price_context=context
        )
    except LookupError:
        _UNKNOWN.add(model)  # finding that out takes as long each time
        return None
    except ValueError:
        return None  # counts that make no sense
    price = found.model_price
    # Some models stand in the table without any price: what they cost is not known.
    if (usage.input_tokens and price.input_mtok is None) or (
        usage.output_tokens and price.output_mtok is None
    ):
        return None
    return found.total_price


_UNKNOWN: Final = set[str]()
"""Models that the published prices do not hold."""


def load() -> None:
    """Import the published prices, which takes a moment: call it where nobody waits."""
    published_price("openai:gpt-5", Usage(1, 1))


@cache
def _library() -> Any:
    """Return the library that keeps the published prices, None where it is not installed."""
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


def _asked(function: PriceFunction, model: str, usage: Usage) -> Decimal | None:
    """Return what a function says; an answer is worth more than its price, so one that fails leaves it unknown."""
    try:
        said = function(model, usage)
    except Exception:  # noqa: BLE001  prices are anybody's code, and harm only what they price
        _LOG.exception("the function that prices answers failed for %s: the cost stays unknown", model)
        return None
    dollars = _dollars(said)
    if dollars is None and said is not None:
        _LOG.error("the function that prices answers gave %r for %s: the cost stays unknown", said, model)
    return dollars


def _dollars(given: Any) -> Decimal | None:
    """Return an amount of dollars, None if it is none."""
    if isinstance(given, bool) or not isinstance(given, (int, float, str, Decimal)):
        return None
    try:
        dollars = Decimal(str(given))
    except InvalidOperation:
        return None
    return dollars if dollars.is_finite() and dollars >= 0 else None
