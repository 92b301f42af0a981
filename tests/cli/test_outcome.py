"""Usage and cost, as text for people and as numbers for programs."""

from decimal import Decimal
from typing import Any

import pytest

from treadle.cli.outcome import usage_summary
from treadle.cli.screen import dollars
from treadle.results.usage import TaskUsage


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        ("0", "$0.00"),
        ("0.0008625", "$0.000862"),
        ("0.027", "$0.0270"),
        ("1", "$1.00"),
        ("1234.5", "$1,234.50"),
    ],
)
def test_an_amount_has_as_many_digits_as_it_needs(amount: str, text: str) -> None:
    assert dollars(Decimal(amount)) == text


@pytest.mark.parametrize(
    ("spent", "text"),
    [
        ({"cost": Decimal("0.027")}, "1 model call · 0 tool calls · 10 + 5 tokens · $0.0270"),
        (
            {"cost": Decimal("0.027"), "estimated": True},
            "1 model call · 0 tool calls · about 10 + 5 tokens · about $0.0270",
        ),
        ({"unpriced": ("scripted",)}, "1 model call · 0 tool calls · 10 + 5 tokens"),
        (
            {"unpriced": ("scripted", "openai:gpt-99")},
            "1 model call · 0 tool calls · 10 + 5 tokens · cost unknown: no price for openai:gpt-99",
        ),
    ],
)
def test_a_usage_is_shown_with_its_cost_or_the_models_without_price(spent: dict[str, Any], text: str) -> None:
    assert usage_summary(TaskUsage(10, 5, model_calls=1, **spent)) == text


def test_lists_and_results_hold_the_cost_of_tasks(treadle: Any) -> None:
    treadle("run", "math", "1 + 2?")
    (item,) = treadle("tasks", "--json").document["items"]
    assert (item["cost"], item["tokens"] > 0, item["steps"]) == (None, True, 2)
    shown = treadle("show", "last", "--json").document
    assert shown["result"]["cost"] is None
    assert [step["usage"]["cost"] for step in shown["steps"]] == [None, None]
    ended = treadle("run", "math", "1 + 2?", "--max-cost", "1")
    assert ended.code == 2
    assert "that of 'scripted' is unknown" in ended.err
