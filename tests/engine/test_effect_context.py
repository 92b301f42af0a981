"""The tools that a request offers: those a selector chose, in its order, and those for the last answer."""

import pytest

from tests.cast import calculator
from treadle import ModelSettings, RunOptions
from treadle.core.tools import ToolSpec
from treadle.engine.effect_context import AgentRuntime
from treadle.engine.options import rules_for

AGENT = calculator()
LAST = ToolSpec(name="final_answer")


def runtime(*final: ToolSpec) -> AgentRuntime:
    tools = {tool.spec.name: tool for tool in AGENT.tools}
    specs = (*[tool.spec for tool in AGENT.tools], *final)
    rules = rules_for(AGENT, RunOptions())
    return AgentRuntime(
        AGENT, RunOptions(), rules, AGENT.model, tools, specs, 8_000, None, ModelSettings(), final_specs=final
    )


@pytest.mark.parametrize(
    ("names", "offered"),
    [
        (None, ["add", "multiply", "final_answer"]),
        (("multiply",), ["multiply", "final_answer"]),
        (("multiply", "add"), ["multiply", "add", "final_answer"]),
        ((), ["final_answer"]),
    ],
    ids=["all", "one", "another order", "none"],
)
def test_a_request_offers_the_selected_tools_and_the_one_for_the_last_answer(
    names: tuple[str, ...] | None, offered: list[str]
) -> None:
    assert [spec.name for spec in runtime(LAST).offering(names)] == offered


def test_without_a_type_of_answers_only_tools_of_the_agent_are_offered() -> None:
    assert [spec.name for spec in runtime().offering(("add",))] == ["add"]
