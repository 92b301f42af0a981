"""The tools that a request offers: those a selector chose, in its order, and those for the last answer."""

import pytest

from tests.agents.stories import CREATED, numbered
from tests.cast import calculator
from treadle import ModelSettings, RunOptions
from treadle.agents.decide import lifecycle
from treadle.agents.decide.rules import Rules
from treadle.core import events as e
from treadle.core.effects import Decision, Wait
from treadle.core.rules.fold import fold
from treadle.core.state import start
from treadle.core.tools import ToolSpec
from treadle.engine.effect_context import AgentRuntime, idle
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


# ---- the worker of a drive that only carries out commands: it wants nothing, and the task can still be stopped


def decision_after(*events: e.Event) -> Decision:
    """Return what a drive without an agent decides after these events."""
    state = fold(start("t"), numbered(CREATED, *events))
    return lifecycle.decide(state, Rules(knows_agent=False), idle, finalize=False)


def test_a_drive_without_a_worker_starts_no_step() -> None:
    assert decision_after() == Wait("idle")


def test_a_drive_without_a_worker_still_cancels_the_task() -> None:
    ended = decision_after(e.CancelRequested())
    assert isinstance(ended, e.TaskEnded)
    assert ended.state == "cancelled"


def test_a_drive_without_a_worker_still_pauses_the_task() -> None:
    assert decision_after(e.PauseRequested()) == Wait("paused")
