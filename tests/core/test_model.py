"""Sums of tokens; settings of requests: which values are accepted, and how they are merged."""

from typing import Any

import pytest

from treadle.core.model import NO_USAGE, ModelSettings, Usage
from treadle.errors import ConfigurationError


def test_usage_is_added_field_by_field() -> None:
    total = Usage(1, 2, 3, 4, False, 5, 6, 7, 8) + Usage(10, 20, 30, 40, True, 50, 60, 70, 80)
    assert total == Usage(11, 22, 33, 44, True, 55, 66, 77, 88)
    assert total.total_tokens == 33


def test_a_sum_has_a_tier_only_if_all_have_the_same() -> None:
    flex, other = Usage(1, 1, tier="flex"), Usage(1, 1, tier="priority")
    assert (flex + flex).tier == "flex"
    assert (flex + other).tier == ""
    assert (NO_USAGE + flex).tier == (flex + NO_USAGE).tier == "flex"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"temperature": "hot"}, "ModelSettings.temperature must be a number from 0 up, got 'hot'"),
        ({"temperature": -1}, "ModelSettings.temperature"),
        ({"temperature": float("nan")}, "ModelSettings.temperature"),
        ({"temperature": True}, "ModelSettings.temperature"),
        ({"max_tokens": 0}, "ModelSettings.max_tokens must be a whole number from 1 up, got 0"),
        ({"max_tokens": 10.5}, "ModelSettings.max_tokens"),
        ({"max_tokens": "100"}, "ModelSettings.max_tokens"),
        ({"tool_choice": ""}, "ModelSettings.tool_choice"),
        (
            {"tool_choice": ["add"]},
            "ModelSettings.tool_choice must be 'auto', 'none', 'required' or the name",
        ),
        ({"parallel_tool_calls": "no"}, "ModelSettings.parallel_tool_calls must be True or False"),
        ({"cache": "2h"}, "ModelSettings.cache must be True, False or one of 5m, 30m, 1h, 12h, got '2h'"),
        ({"extra": [1]}, "ModelSettings.extra must map names to values"),
        ({"extra": {1: 2}}, "ModelSettings.extra must map names to values"),
        (
            {"extra": {"max_tokens": 5}},
            r"'max_tokens' is a setting of its own: ModelSettings\(max_tokens=...\)",
        ),
    ],
)
def test_a_wrong_setting_is_named_when_it_is_written(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        ModelSettings(**settings)


def test_settings_are_merged_field_by_field_and_extra_by_name() -> None:
    agent = ModelSettings(temperature=0.5, max_tokens=100, cache=True, extra={"seed": 1, "top_p": 0.9})
    run = ModelSettings(temperature=0, parallel_tool_calls=False, cache=False, extra={"seed": 2})
    assert run.over(agent) == ModelSettings(
        temperature=0, max_tokens=100, parallel_tool_calls=False, cache=False, extra={"seed": 2, "top_p": 0.9}
    )
    assert ModelSettings().over(agent) == agent
    assert agent.over(ModelSettings()) == agent
