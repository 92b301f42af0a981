"""`--break` and `--until`: their forms, and tools that do not exist."""

from itertools import product
from typing import Any

import pytest

from treadle import Agent, ScriptedModel, ToolIndex, tool
from treadle.cli.breakpoints import breakpoints, check_tools, goal_of
from treadle.engine.options import Breakpoint
from treadle.errors import ConfigurationError


@tool(read_only=True)
def write_file(path: str) -> str:
    """Write."""
    return path


@tool(read_only=True)
def pay(amount: int) -> int:
    """Pay."""
    return amount


def agent(name: str, **more: Any) -> Agent[Any]:
    return Agent(ScriptedModel(["Hi."]), name=name, **more)


WRITER, CASHIER = agent("writer", tools=[write_file]), agent("cashier", tools=[pay])


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("tool:write_*", Breakpoint(tool="write_*")),
        ("step:0", Breakpoint(after_step=0)),
        ("cost:0.5", Breakpoint(cost=0.5)),
        ("event:tool_ended", Breakpoint(event="tool_ended")),
    ],
)
def test_each_form_is_a_breakpoint(text: str, meant: Breakpoint) -> None:
    assert breakpoints([text, "none"]) == (meant,)
    assert goal_of(text) == meant


def test_until_also_takes_the_index_of_a_step() -> None:
    assert (goal_of(None), goal_of("3"), goal_of("step:3")) == (0, 3, 3)


WRONG_VALUES = [
    ("tool:", "NAME is missing"),
    ("step:x", "N is the index of a step"),
    ("step:-1", "N is the index of a step"),
    ("step:12345678901", "N is the index of a step"),
    ("cost:much", "an amount above 0"),
    ("cost:-1", "an amount above 0"),
    ("event:tool_endd", "did you mean event:tool_ended?"),
    ("event:task_created", "KIND is one of .*tool_started"),
    ("pay", "write tool:pay"),
    ("write_*", r"write tool:write_\*"),
]


def test_a_wrong_value_is_told_all_forms_and_what_is_wrong_with_its_own() -> None:
    for (text, advice), option in product(WRONG_VALUES, ("--break", "--until")):
        with pytest.raises(ConfigurationError, match=f"not '.*': .*{advice}") as refusal:
            breakpoints([text]) if option == "--break" else goal_of(text)
        for form in (option, "tool:NAME", "step:N", "cost:DOLLARS", "event:KIND"):
            assert form in str(refusal.value)
        assert ("or none" in str(refusal.value)) == (option == "--break")


@pytest.mark.parametrize(
    ("agents", "pattern", "message"),
    [
        ([WRITER], "wirte_file", "no tool of agent 'writer' has that name; did you mean tool:write_file?"),
        ([WRITER], "wirte_*", "did you mean tool:write_file"),
        ([WRITER], "zzz*", r"has that name \(the tools are write_file\)"),
        ([agent("talker")], "*", r"has that name \(it has no tools\)"),
        ([WRITER, CASHIER], "npa", "of agent 'cashier' and 'writer' has that name.*pay, write_file"),
        ([agent("chooser", tools=[pay, write_file], offer=ToolIndex(top=1))], "buy", "pay, write_file"),
    ],
)
def test_a_breakpoint_before_a_tool_that_no_agent_has_is_refused_with_the_tools_there_are(
    agents: list[Agent[Any]], pattern: str, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        check_tools(agents, [Breakpoint(after_step=1), Breakpoint(tool=pattern)], "--break")


@pytest.mark.parametrize(
    ("agents", "pattern"),
    [
        ([WRITER], "write_*"),
        ([WRITER], "*"),
        ([WRITER, CASHIER], "pay"),
        ([agent("boss", subagents=[WRITER])], "writer"),
        ([WRITER, None], "pay"),
        ([], "pay"),
    ],
)
def test_a_tool_that_some_agent_has_or_may_have_is_accepted(
    agents: list[Agent[Any] | None], pattern: str
) -> None:
    check_tools(agents, [Breakpoint(tool=pattern)], "--break")


@pytest.mark.parametrize(
    "command",
    [
        ("run", "math", "1 + 2?", "--break", "tool:ad_*"),
        ("step", "math", "1 + 2?", "--until", "tool:npa"),
        ("chat", "math", "--break", "tool:npa"),
    ],
)
def test_a_wrong_tool_is_named_before_a_task_is_made(treadle: Any, command: tuple[str, ...]) -> None:
    ended = treadle(*command)
    assert ended.code == 2
    assert "no tool of agent 'math' has that name" in ended.err
    assert "there is no store" in treadle("tasks").err


def test_a_wrong_tool_is_named_before_a_task_goes_on(treadle: Any) -> None:
    treadle("run", "steppy", "add", "--break", "step:1", "--task-id", "one")
    treadle("run", "payer", "pay", "--break", "tool:pay", "--task-id", "two")
    head = treadle("show", "one", "--json").document["task"]["head"]
    for command in (
        ("resume", "one", "--break", "tool:npa"),
        ("step", "one", "--until", "tool:npa"),
        ("resume", "--since", "1h", "--yes", "--break", "tool:npa"),
    ):
        ended = treadle(*command)
        assert (ended.code, "has that name" in ended.err) == (2, True), command
    assert treadle("show", "one", "--json").document["task"]["head"] == head
    assert treadle("resume", "--since", "1h", "--yes", "--break", "tool:add").code == 1
    states = {item["task_id"]: item["state"] for item in treadle("tasks", "--json").document["items"]}
    assert states == {"one": "paused", "two": "completed"}
