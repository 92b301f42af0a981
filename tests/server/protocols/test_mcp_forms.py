"""Open requests as forms of MCP, and the answers in them, as tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest
from mcp_types import ElicitRequestFormParams
from pydantic import BaseModel, Field, TypeAdapter

from treadle.core.tools import Happened, NotHappened
from treadle.errors import InvalidField
from treadle.results.pending import Pending
from treadle.server.protocols.mcp_forms import Ask, asks_of, decision_of
from treadle.server.protocols.stops import Stop

PAY = Pending(
    "s1-0-ask1", "approval", "pay", {"amount": 3}, "pay waits for an approval", task_id="t", asked=7
)
QUESTION = Pending("s1-q1", "question", "", {}, "Which?", task_id="t", asked=8)
LOST = Pending(
    "s1-0", "settlement", "pay", {"amount": 3}, "pay began", task_id="t", asked=9, idempotency_key="k"
)


def only(*pending: Pending, state: str = "waiting", reason: str = "") -> Ask:
    (ask,) = asks_of("t", 12, Stop(state, pending, reason))
    params = ask.request["params"]
    ElicitRequestFormParams.model_validate(params)
    return ask


def schema(kind: Any) -> Any:
    return TypeAdapter(kind).json_schema()


class Flat(BaseModel):
    name: str = Field(max_length=9, pattern="[a-z]*")
    count: int | None = None
    size: Literal["s", "m"] = "s"


class Deep(BaseModel):
    flat: Flat


FIELDS: dict[str, tuple[Any, dict[str, Any], list[str]]] = {
    "text": (schema(str), {"answer": {"type": "string"}}, ["answer"]),
    "anything": ({}, {"answer": {"type": "string"}}, ["answer"]),
    "a choice": (schema(Literal["a", "b"]), {"answer": {"type": "string", "enum": ["a", "b"]}}, ["answer"]),
    "a truth value": (schema(bool), {"answer": {"type": "boolean"}}, ["answer"]),
    "perhaps a number": (schema(float | None), {"answer": {"type": "number"}}, ["answer"]),
    "a flat object": (
        schema(Flat),
        {
            "name": {"type": "string", "title": "Name", "maxLength": 9},
            "count": {"type": "integer", "title": "Count"},
            "size": {"type": "string", "title": "Size", "enum": ["s", "m"], "default": "s"},
        },
        ["name"],
    ),
}


@pytest.mark.parametrize(("given", "fields", "required"), FIELDS.values(), ids=FIELDS)
def test_a_question_has_a_flat_form(given: Any, fields: dict[str, Any], required: list[str]):
    form = only(replace(QUESTION, schema=given)).request["params"]["requestedSchema"]
    assert (form["properties"], form["required"]) == (fields, required)


@pytest.mark.parametrize("given", [schema(Deep), schema(list[int]), schema(int | str), schema(Literal[1, 2])])
def test_another_question_asks_for_json(given: Any):
    ask = only(replace(QUESTION, schema=given))
    field = ask.request["params"]["requestedSchema"]["properties"]["answer"]
    assert field["type"] == "string"
    assert "JSON" in field["description"]
    decision = decision_of(ask, {"action": "accept", "content": {"answer": '{"a": [1]}'}})
    assert decision is not None
    assert decision.arguments["value"] == {"a": [1]}
    with pytest.raises(InvalidField, match="JSON"):
        decision_of(ask, {"action": "accept", "content": {"answer": "{"}})


def accept(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


ANSWERS: dict[str, tuple[Pending, Any, Any]] = {
    "approved": (
        PAY,
        accept(approved=True),
        ("approve", {"request_id": "s1-0-ask1", "arguments": None, "scope": "once"}),
    ),
    "approved for a task": (
        PAY,
        accept(approved=True, scope="task", reason=""),
        ("approve", {"request_id": "s1-0-ask1", "arguments": None, "scope": "task"}),
    ),
    "denied with a reason": (
        PAY,
        accept(approved=False, reason="too much", scope="once"),
        ("deny", {"request_id": "s1-0-ask1", "reason": "too much"}),
    ),
    "declined": (
        PAY,
        {"action": "decline"},
        ("deny", {"request_id": "s1-0-ask1", "reason": "the person declined"}),
    ),
    "dismissed": (PAY, {"action": "cancel"}, None),
    "an argument filled in": (
        replace(PAY, argument="amount"),
        accept(approved=True, value="4"),
        ("answer", {"request_id": "s1-0-ask1", "value": 4}),
    ),
    "a question": (
        replace(QUESTION, schema={"type": "string"}),
        accept(answer="blue"),
        ("answer", {"request_id": "s1-q1", "value": "blue"}),
    ),
    "a question with fields": (
        replace(QUESTION, schema=schema(Flat)),
        accept(name="a"),
        ("answer", {"request_id": "s1-q1", "value": {"name": "a"}}),
    ),
    "a declined question": (QUESTION, {"action": "decline"}, None),
    "it happened": (
        LOST,
        accept(verdict="happened", output='{"id": 1}'),
        ("settle", {"request_id": "s1-0", "verdict": Happened({"id": 1})}),
    ),
    "it did not happen": (
        LOST,
        accept(verdict="not_happened"),
        ("settle", {"request_id": "s1-0", "verdict": NotHappened()}),
    ),
    "a declined settlement": (LOST, {"action": "decline"}, None),
}


@pytest.mark.parametrize(("item", "response", "expected"), ANSWERS.values(), ids=ANSWERS)
def test_an_answer_is_a_verb(item: Pending, response: Any, expected: Any):
    decision = decision_of(only(item), response)
    assert (None if decision is None else (decision.verb, decision.arguments)) == expected


def test_an_answer_that_does_not_fit_is_refused():
    for item, content in ((PAY, {}), (QUESTION, {}), (LOST, {"verdict": "perhaps"})):
        with pytest.raises(InvalidField):
            decision_of(only(item), {"action": "accept", "content": content})


def test_a_paused_task_asks_whether_to_go_on():
    ask = only(state="paused", reason="for lunch")
    assert ask.key == "t:resume@12"
    assert ask.request["params"]["message"] == "Task t is paused: for lunch. Continue it?"
    decision = decision_of(ask, {"action": "accept", "content": {"continue": True}})
    assert decision is not None
    assert decision.verb == "resume"
    assert decision_of(ask, {"action": "accept", "content": {"continue": False}}) is None


def test_only_requests_that_the_client_may_decide_are_shown():
    timer = Pending("t1", "timer", "", {}, "later", due=1)
    for stop in (
        Stop("waiting", (timer,)),
        Stop("waiting", (replace(PAY, may_decide=False),)),
        Stop("completed", (PAY,)),
    ):
        assert asks_of("t", 12, stop) == ()


def test_a_message_shows_the_exact_arguments_and_hides_no_character():
    item = replace(PAY, arguments={"to": "a\u202eb"}, preview={"cost": 3}, untrusted=("tool:read_mail",))
    message = only(item).request["params"]["message"]
    assert "\u202e" not in message
    assert message.splitlines() == [
        "pay waits for an approval",
        'pay({"to":"a\\u202eb"})',
        'Preview: {"cost":3}',
        "The model has read untrusted content from tool:read_mail.",
    ]


def test_two_requests_about_one_call_have_different_keys():
    assert only(LOST).key != only(replace(LOST, asked=10)).key
