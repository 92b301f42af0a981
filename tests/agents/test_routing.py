"""What a router may return, and which agents may have one."""

from typing import Any

import pytest

from treadle import Agent, Handoff, Route
from treadle.agents.routing import message_of
from treadle.errors import ConfigurationError

MODEL = "openai:none"


def boss(**options: Any) -> Agent[Any]:
    return Agent(
        MODEL, name="boss", **{"subagents": [Agent(MODEL, name="scout")], "handoffs": ["closer"], **options}
    )


def calls(routes: Any) -> Any:
    message = message_of(boss(), routes)
    return None if message is None else [(call.name, call.arguments) for call in message.tool_calls]


@pytest.mark.parametrize(
    ("routes", "wanted"),
    [
        (None, None),
        ([], None),
        ("closer", [("transfer_to_closer", {})]),
        (Route("scout", input="look"), [("scout", {"input": "look"})]),
        (Route("closer", arguments={"reason": "done"}), [("transfer_to_closer", {"reason": "done"})]),
        ([Route("scout", input="a"), "closer"], [("scout", {"input": "a"}), ("transfer_to_closer", {})]),
    ],
)
def test_routes_become_calls(routes: Any, wanted: Any) -> None:
    assert calls(routes) == wanted


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"router": 3}, "router must be a function of RequestContext"),
        ({"router": lambda: None}, "router must be a function of one argument"),
        ({"router": lambda ctx: None, "subagents": [], "handoffs": []}, "and there are none"),
        (
            {"router": lambda ctx: None, "worker": "plan_refine", "handoffs": []},
            "router= takes a worker whose steps",
        ),
    ],
)
def test_a_router_without_a_choice_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        boss(**options)


def test_an_agent_with_another_router_is_another_version() -> None:
    def other(ctx: Any) -> Any:
        return None

    versions = {boss().fingerprint, boss(router=lambda ctx: None).fingerprint, boss(router=other).fingerprint}
    assert len(versions) == 3
    assert boss(handoffs=[Handoff("closer")]).fingerprint == boss().fingerprint
