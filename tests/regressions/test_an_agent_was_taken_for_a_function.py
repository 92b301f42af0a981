"""An Agent has a call that only says what to write instead: it passed for a function, and failed when it was used."""

from contextlib import suppress
from typing import Any

import pytest

from treadle import (
    Agent,
    Ask,
    Decider,
    Guardrail,
    Handoff,
    Node,
    Policy,
    React,
    Rule,
    Runner,
    ScriptedModel,
    Subagent,
    ToolIndex,
    tool,
)
from treadle.core.refused_uses import can_be_called
from treadle.errors import TreadleError
from treadle.llm.prices import pricing
from treadle.models import Retry
from treadle.server import app

AGENT: Any = Agent(ScriptedModel(["Hi."]), name="helper", instructions="Help.")


def agent(**arguments: Any) -> Any:
    return Agent(ScriptedModel([]), **arguments)


def plain(x: int) -> int:
    """Return x."""
    return x


PLACES = {
    "instructions": lambda: agent(instructions=AGENT),
    "worker": lambda: agent(worker=AGENT),
    "router": lambda: agent(router=AGENT, subagents=[AGENT]),
    "offer": lambda: agent(offer=AGENT),
    "middleware": lambda: agent(tool_middleware=[AGENT]),
    "parser": lambda: React(parser=AGENT),
    "decider": lambda: Decider(AGENT),
    "filter": lambda: Handoff(AGENT, filter=AGENT),
    "filters": lambda: Handoff(AGENT, filter=[AGENT]),
    "context": lambda: Subagent(AGENT, context=AGENT),
    "when": lambda: Node("a", plain, when=AGENT),
    "input": lambda: Node("a", "search", input=AGENT),
    "prompt": lambda: Node("a", Ask(AGENT)),
    "verdict": lambda: Rule("a", AGENT),
    "rule": lambda: Policy(AGENT),
    "guardrail": lambda: Guardrail(AGENT, on="input", id="a"),
    "secret": lambda: Runner("memory:", secrets={"crm": AGENT}),
    "observer": lambda: Runner("memory:", observers=[AGENT]),
    "context_factory": lambda: Runner("memory:", context_factory=AGENT),
    "on_pending": lambda: Runner("memory:", on_pending=AGENT),
    "prices": lambda: pricing(AGENT),
    "embed": lambda: ToolIndex(embed=AGENT),
    "tool": lambda: tool(AGENT),
    "undo": lambda: tool(undo=AGENT)(plain),
    "needs_approval": lambda: tool(needs_approval=AGENT)(plain),
    "script": lambda: ScriptedModel(AGENT),
    "auth": lambda: app(Runner("memory:"), auth=AGENT),
    "layer": lambda: Retry("openai:gpt-5.2", chance=AGENT),
}


def test_an_agent_is_refused_where_a_function_is_expected():
    accepted = list[str]()
    for place, use in PLACES.items():
        with suppress(TreadleError):
            use()
            accepted.append(place)
    assert accepted == []


def test_the_refusal_says_what_to_write():
    with pytest.raises(TreadleError, match=r"got Agent\(.*which is not called: a runner runs agents"):
        agent(router=AGENT, subagents=[AGENT])


def test_the_instructions_of_an_agent_are_a_text_and_no_function():
    assert not can_be_called(AGENT.instructions)
    assert can_be_called(plain)
    assert can_be_called(dict)
    node = Node("a", Ask(AGENT.instructions))
    assert "Help." in str(node.action.templates)
