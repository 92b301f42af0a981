"""The cost of answers, by published and by configured prices; an unknown cost is None, never 0."""

import logging
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.model import Usage
from treadle.errors import ConfigurationError
from treadle.llm import prices
from treadle.llm.prices import Price, pricing, published_price

ANTHROPIC = "https://platform.claude.com/docs/en/about-claude/pricing"
CACHING = "https://platform.claude.com/docs/en/build-with-claude/prompt-caching"
OPENAI = "https://platform.openai.com/docs/guides/prompt-caching"
REASONING = "https://platform.openai.com/docs/guides/reasoning"
FLEX = "https://developers.openai.com/api/docs/pricing"
GEMINI = "https://ai.google.dev/gemini-api/docs/pricing"

PUBLISHED: list[Any] = [
    # "Worked example", tokens alone: 50,000 x $5/M + 15,000 x $25/M.
    (ANTHROPIC, "anthropic:claude-opus-5", Usage(50_000, 15_000), "0.625"),
    # The same with 40,000 cache reads: 10,000 x $5/M + 40,000 x $5/M x 0.1 + 15,000 x $25/M.
    (ANTHROPIC, "anthropic:claude-opus-5", Usage(50_000, 15_000, 40_000), "0.445"),
    # The usage shown there, a book of 188,086 tokens and a question of 21, at $3, $3.75 (written), $0.30 (read), $15:
    # written first: 0.000063 + 0.7053225 + 0.005895; read then: 0.000063 + 0.0564258 + 0.005895.
    (CACHING, "anthropic:claude-sonnet-4-5", Usage(188_107, 393, cache_write_tokens=188_086), "0.7112805"),
    (CACHING, "anthropic:claude-sonnet-4-5", Usage(188_107, 393, 188_086), "0.0623838"),
    # Kept for an hour, the book costs twice its input price: 0.000063 + 188,086 x $6/M + 0.005895.
    (
        CACHING,
        "anthropic:claude-sonnet-4-5",
        Usage(188_107, 393, cache_write_tokens=188_086, cache_write_1h_tokens=188_086),
        "1.134474",
    ),
    # Half of it for an hour and half for five minutes: 0.000063 + 94,043 x ($6/M + $3.75/M) + 0.005895.
    (
        CACHING,
        "anthropic:claude-sonnet-4-5",
        Usage(188_107, 393, cache_write_tokens=188_086, cache_write_1h_tokens=94_043),
        "0.92287725",
    ),
    # The usage shown there, at $2.50, $1.25 (cached), $10: 86 x 2.50 + 1,920 x 1.25 + 300 x 10, in millionths.
    (OPENAI, "openai:gpt-4o", Usage(2_006, 300, 1_920), "0.005615"),
    # The usage shown there, at $1.25, $10: thinking is part of the output. 75 x 1.25 + 1,186 x 10.
    (REASONING, "openai:gpt-5", Usage(75, 1_186, 0, 1_024), "0.01195375"),
    # $0.75, $0.075, $4.50; half of each on flex, twice on priority: 500 x 0.75 + 500 x 0.075 + 100 x 4.50.
    (FLEX, "openai:gpt-5.4-mini", Usage(1_000, 100, 500), "0.0008625"),
    (FLEX, "openai:gpt-5.4-mini", Usage(1_000, 100, 500, tier="flex"), "0.00043125"),
    (FLEX, "openai:gpt-5.4-mini", Usage(1_000, 100, 500, tier="priority"), "0.001725"),
    # Up to 200,000 tokens $1.25 and $10, beyond that $2.50 and $15 for all of them; cached $0.125 and $0.25.
    (GEMINI, "google:gemini-2.5-pro", Usage(200_000, 1_000), "0.26"),
    (GEMINI, "google:gemini-2.5-pro", Usage(200_001, 1_000), "0.5150025"),
    (GEMINI, "google-gla:gemini-2.5-pro", Usage(11_500, 11_000, 10_000, 10_000), "0.113125"),
    (GEMINI, "google:gemini-2.5-pro", Usage(300_000, 1_000, 100_000), "0.54"),
]


@pytest.mark.parametrize(("source", "model", "usage", "dollars"), PUBLISHED)
def test_the_cost_of_an_answer_follows_published_prices(
    source: str, model: str, usage: Usage, dollars: str
) -> None:
    assert published_price(model, usage) == Decimal(dollars)


@pytest.mark.parametrize(
    "model",
    [
        "openai:gpt-99",
        "ollama:qwen3:4b",
        "scripted",
        "",
        "openai:",
        ":gpt-4o",
        "gpt-4o",
        "nobody:gpt-4o",
        "google:gemma-3",  # these two are in the table, without a price
        "github-copilot:gpt-4o",
        "cohere:embed-v4.0",  # and this one has none for output
    ],
)
def test_the_cost_of_a_model_without_a_price_is_unknown(model: str) -> None:
    assert published_price(model, Usage(1_000, 100)) is None


def test_the_cost_of_inconsistent_counts_is_unknown() -> None:
    assert published_price("anthropic:claude-opus-5", Usage(10, 1, cached_tokens=20)) is None
    assert Price(1, 1, cached=0).of(Usage(10, 1, cached_tokens=20)) is None


def test_without_the_library_there_are_no_published_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    prices._library.cache_clear()
    monkeypatch.setattr(prices, "find_spec", lambda name: None)
    assert published_price("openai:gpt-4o", Usage(1, 1)) is None
    prices._library.cache_clear()


# ---------------------------------------------------------------------------------------- stated prices


@pytest.mark.parametrize(
    ("price", "usage", "dollars"),
    [
        (Price(3, 15), Usage(1_000_000, 1_000_000), "18"),
        (Price("0.25", 1.5), Usage(1_000, 1_000), "0.00175"),
        (Price(0.1, 0.2), Usage(1, 1), "0.0000003"),
        (Price(3, 15), Usage(1_000, 0, cached_tokens=400, cache_write_tokens=500), "0.003"),
        (
            Price(3, 15, cached=0.3, cache_write=3.75),
            Usage(1_000, 0, 400, cache_write_tokens=500),
            "0.002295",
        ),
        (Price(0, 0), Usage(10**9, 10**9), "0"),
        (Price(Decimal(1), 1, cached=0), Usage(10, 0, 10), "0"),
    ],
)
def test_a_configured_price_is_for_a_million_tokens(price: Price, usage: Usage, dollars: str) -> None:
    assert price.of(usage) == Decimal(dollars)


@pytest.mark.parametrize("wrong", [None, -1, True, "cheap", float("nan"), float("inf"), [1]])
def test_a_price_is_an_amount_of_dollars(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"Price\.input"):
        Price(wrong, 1)


def test_configured_prices_come_before_published_ones() -> None:
    table = {"ollama:*": Price(0, 0), "ollama:big": Price(1, 1), "openai:gpt-4o": Price(1, 1)}
    cost = pricing(table)
    assert cost("ollama:qwen3:4b", Usage(5, 5)) == 0
    assert cost("ollama:big", Usage(500_000, 500_000)) == 1
    assert cost("openai:gpt-4o", Usage(1_000_000, 0)) == 1
    assert cost("openai:gpt-5", Usage(1_000_000, 0)) == Decimal("1.25")
    assert cost("scripted", Usage(5, 5)) is None
    table["scripted"] = Price(1, 1)
    assert cost("scripted", Usage(5, 5)) is None, "what is changed later changes no runner"


def test_a_price_function_is_the_only_source_of_prices() -> None:
    cost = pricing(lambda model, usage: 0.25 if model == "scripted" else None)
    assert cost("scripted", Usage(5, 5)) == Decimal("0.25")
    assert cost("openai:gpt-5", Usage(5, 5)) is None
    assert pricing(None)("openai:gpt-5", Usage(1_000_000, 0)) == Decimal("1.25")


@pytest.mark.parametrize("said", ["much", -1, True, object(), float("nan")])
def test_a_function_that_returns_no_amount_leaves_the_cost_unknown_and_is_logged(
    said: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "treadle.prices"):
        assert pricing(lambda model, usage: said)("m", Usage(1, 1)) is None
    assert "the cost stays unknown" in caplog.text


def test_a_function_that_raises_leaves_the_cost_unknown_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(model: str, usage: Usage) -> Decimal:
        raise ZeroDivisionError("oops")

    assert pricing(broken)("m", Usage(1, 1)) is None
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize(
    "wrong", [5, "openai:gpt-5", {"openai:gpt-5": 3}, {5: Price(1, 1)}, [("openai:gpt-5", Price(1, 1))]]
)
def test_prices_are_a_function_or_a_table(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="prices"):
        pricing(wrong)


@given(st.integers(0, 10**7), st.integers(0, 10**7), st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_price_adds_up_over_parts(plain: int, output: int, cached: int, written: int) -> None:
    price = Price("0.375", "2.25", cached="0.0375", cache_write="0.46875")
    total = price.of(Usage(plain + cached + written, output, cached, cache_write_tokens=written))
    parts = [
        price.of(Usage(plain, output)),
        price.of(Usage(cached, 0, cached)),
        price.of(Usage(written, 0, cache_write_tokens=written)),
    ]
    assert total == sum(part for part in parts if part is not None)


def test_an_unusual_tier_of_service_is_part_of_the_usage() -> None:
    from pydantic_ai.messages import ModelResponse, TextPart
    from pydantic_ai.usage import RequestUsage

    from treadle.llm.mapping import our_usage

    def tier(service_tier: Any) -> str:
        usage = RequestUsage(input_tokens=1, output_tokens=1)
        usage_of = our_usage(
            ModelResponse([TextPart("x")], usage=usage, provider_details={"service_tier": service_tier})
        )
        return usage_of.tier if usage_of is not None else "none"

    assert [tier(service_tier) for service_tier in ("flex", "priority", "default", None, 5)] == [
        "flex",
        "priority",
        "",
        "",
        "",
    ]
