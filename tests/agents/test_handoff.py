"""Handoffs as tools: which values may be a handoff, what the model is offered, and what it may say with a call."""

from typing import Any

import pytest
from pydantic import BaseModel

from treadle import (
    Agent,
    Handoff,
    LastMessages,
    Message,
    Reasoning,
    ScriptedModel,
    StepContext,
    StepResult,
    Text,
    ToolCall,
    ToolResult,
    only_user_messages,
    tool,
    without_tool_calls,
)
from treadle.agents.handoff import HandoffTool, filtered
from treadle.core.messages import faults, user
from treadle.errors import ConfigurationError, ModelError, ToolArgumentsInvalid
from treadle.llm.scripted import text

MODEL = "openai:none"


class Case(BaseModel):
    reason: str
    amount: float


def step(ctx: StepContext[Any]) -> StepResult:
    return StepResult("done", is_last=True)


def tool_of(handoff: Handoff[Any] | Agent[Any] | str) -> HandoffTool:
    made = Agent(MODEL, name="triage", handoffs=[handoff]).tools[0]
    assert isinstance(made, HandoffTool)
    return made


def test_a_handoff_is_offered_as_a_tool_that_is_named_after_its_agent() -> None:
    spec = tool_of(Agent(MODEL, name="billing.eu", description="Knows invoices.")).spec
    assert spec.name == "transfer_to_billing_eu"
    assert "Knows invoices." in spec.description
    assert (spec.read_only, spec.declared) == (True, True)
    assert tool_of("billing").spec.name == "transfer_to_billing"


def test_the_terms_of_a_handoff_name_and_describe_its_tool() -> None:
    spec = tool_of(Handoff("billing", name="to_money", description="For money.")).spec
    assert (spec.name, spec.description) == ("to_money", "For money.")


@pytest.mark.parametrize(
    ("handoffs", "problem"),
    [
        ("billing", "handoffs must be a list"),
        ([3], r"handoffs\[0\] must be an Agent, the name of one, or Handoff"),
        ([""], r"handoffs\[0\] must be"),
        (["triage"], r"handoffs\[0\] is the agent itself"),
        (["billing", Handoff("billing")], "has the name of another of its tools, 'transfer_to_billing'"),
    ],
)
def test_a_value_that_is_no_handoff_is_refused_by_name(handoffs: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        Agent(MODEL, name="triage", handoffs=handoffs)


@pytest.mark.parametrize(
    ("terms", "problem"),
    [
        ({"name": "to money"}, "name must be 1 to 64 letters"),
        ({"description": ""}, "description must be a text"),
        ({"filter": 3}, "filter"),
        ({"filter": [3]}, "filter must be a function of messages"),
    ],
)
def test_terms_that_are_not_valid_are_refused_by_name(terms: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        Handoff("billing", **terms)


def test_an_input_type_without_a_schema_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"input_type .* has no JSON schema"):
        tool_of(Handoff("billing", input_type=object()))


@pytest.mark.parametrize("worker", ["plan_refine", step])
def test_agents_whose_steps_are_functions_neither_hand_over_nor_take_over(worker: Any) -> None:
    with pytest.raises(ConfigurationError, match="handoffs= takes a worker whose steps are the answers"):
        Agent(MODEL, name="triage", worker=worker, handoffs=["billing"])
    with pytest.raises(ConfigurationError, match="'planner' cannot take over a conversation"):
        Agent(MODEL, name="triage", handoffs=[Agent(MODEL, name="planner", worker=worker)])


@pytest.mark.parametrize("worker", ["react", "planner"])
def test_agents_that_speak_in_text_hand_over(worker: Any) -> None:
    agent = Agent(MODEL, name="triage", worker=worker, handoffs=["billing"])
    assert list(agent.handoffs_by_tool) == ["transfer_to_billing"]


def test_the_model_may_give_a_reason_and_nothing_else() -> None:
    made = tool_of("billing")
    assert made.validate({}) == {}
    assert made.validate({"reason": "money"}) == {"reason": "money"}
    for wrong in ({"reason": 3}, {"why": "money"}):
        with pytest.raises(ToolArgumentsInvalid, match=r'takes \{"reason": text\}'):
            made.validate(wrong)


def test_the_arguments_of_a_handoff_are_of_its_input_type() -> None:
    made = tool_of(Handoff("billing", input_type=Case))
    assert made.validate({"reason": "x", "amount": "3"}) == {"reason": "x", "amount": 3.0}
    with pytest.raises(ToolArgumentsInvalid, match="amount"):
        made.validate({"reason": "x"})


def test_an_agent_with_other_handoffs_is_another_version() -> None:
    alone = Agent(ScriptedModel([text("hi")]), name="triage")
    versions = [
        alone.replace(handoffs=handoffs).fingerprint
        for handoffs in (
            (),
            ["billing"],
            [Handoff("sales", name="transfer_to_billing", description="x")],
            [Handoff("billing", name="transfer_to_billing", description="x")],
            [Handoff("billing", name="transfer_to_billing", description="x", filter=list)],
        )
    ]
    assert len(set(versions)) == len(versions)
    assert versions[0] == alone.fingerprint
    assert alone.replace(handoffs=["billing"]).replace(name="other").handoffs == ("billing",)


def test_a_tool_and_a_handoff_keep_their_places() -> None:
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    agent = Agent(MODEL, name="triage", tools=[look], handoffs=["billing"])
    assert [each.spec.name for each in agent.tools] == ["look", "transfer_to_billing"]


# ------------------------- what filters of handoffs leave of a conversation: always one that providers take


CALL = ToolCall("s1-0", "look", {})
RESULT = Message("tool", (ToolResult("s1-0", "look", (Text("seen"),)),))
TALK = [
    user("hello"),
    Message("assistant", (Reasoning("hm"), Text("I look."), CALL)),
    RESULT,
    Message("assistant", (Text("There."),)),
    user("more"),
    Message("assistant", (ToolCall("s2-0", "look", {}),)),
    Message("tool", (ToolResult("s2-0", "look", (Text("seen"),)),)),
]


def texts(messages: Any) -> list[str]:
    return [message.text or message.role for message in messages]


def test_a_conversation_without_tool_calls_keeps_what_was_said_beside_them() -> None:
    seen = without_tool_calls(TALK)
    assert texts(seen) == ["hello", "I look.", "There.", "more"]
    assert seen[1].parts == (Text("I look."),)


def test_only_the_messages_of_the_user() -> None:
    assert texts(only_user_messages(TALK)) == ["hello", "more"]


@pytest.mark.parametrize(("count", "kept"), [(1, 3), (2, 3), (3, 3), (4, 7), (5, 7), (6, 7), (7, 7), (99, 7)])
def test_the_last_messages_begin_with_one_of_the_user(count: int, kept: int) -> None:
    seen = LastMessages(count)(TALK)
    assert seen == TALK[len(TALK) - kept :]
    assert seen[0].role == "user"
    assert not list(faults(seen))


@pytest.mark.parametrize("count", [1, 3, 4, 6, 99])
def test_where_no_message_of_the_user_is_before_the_last_messages_they_begin_with_a_later_one(
    count: int,
) -> None:
    greeted = [Message("assistant", (Text("Welcome."),)), Message("assistant", (Text("Well?"),)), *TALK[4:]]
    assert LastMessages(count)(greeted) == TALK[4:]


def test_the_last_messages_of_nothing_are_none() -> None:
    assert LastMessages(3)([]) == []


def test_a_conversation_without_the_user_names_the_filter_that_cannot_begin_it() -> None:
    problem = r"the filter of the handoff failed: .*LastMessages\(2\) finds no message of the user among 3"
    with pytest.raises(ModelError, match=problem):
        filtered(TALK[1:4], [LastMessages(2)], "handoff")


@pytest.mark.parametrize("count", [0, True, "3"])
def test_a_number_of_messages_is_from_one_up(count: Any) -> None:
    with pytest.raises(ConfigurationError, match="from 1 up"):
        LastMessages(count)


def test_filters_are_applied_in_order() -> None:
    assert texts(filtered(TALK, [without_tool_calls, LastMessages(2)], "handoff")) == [
        "hello",
        "I look.",
        "There.",
        "more",
    ]
    assert texts(filtered(TALK, [only_user_messages, LastMessages(1)], "handoff")) == ["more"]


def broken(messages: Any) -> Any:
    raise ValueError("no")


@pytest.mark.parametrize(
    ("filter", "problem"),
    [
        (broken, "the filter of the handoff x failed: ValueError: no"),
        (lambda messages: ["text"], "returned a str among the messages"),
        (lambda messages: messages[2:], "a conversation that no provider takes"),
        (lambda messages: messages[:2], "a conversation that no provider takes"),
        (lambda messages: None, "failed: TypeError"),
    ],
)
def test_a_filter_that_leaves_no_conversation_is_an_error(filter: Any, problem: str) -> None:
    with pytest.raises(ModelError, match=problem):
        filtered(TALK, [filter], "handoff x")
