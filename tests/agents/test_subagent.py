"""Subagents as tools: which values may be a subagent, and the arguments of its calls."""

from datetime import date, timedelta
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, TypeAdapter

from tests.cast import Gate
from tests.drivers.agent_trees import answering
from treadle import (
    Agent,
    Quorum,
    Runner,
    ScriptedModel,
    Subagent,
)
from treadle.agents.subagent import free_text, holds_free_text
from treadle.errors import (
    ConfigurationError,
)
from treadle.llm.scripted import call, text

pytestmark = pytest.mark.anyio


def test_a_value_that_is_not_a_subagent_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match=r"subagents\[0\] must be an Agent"):
        Agent("openai:none", subagents=[3])  # type: ignore[list-item]
    with pytest.raises(ConfigurationError, match="'work' has the name of another of its tools"):
        Agent("openai:none", tools=[Gate("work").tool], subagents=[answering("work")])
    with pytest.raises(ConfigurationError, match="subagents must be a list"):
        Agent("openai:none", subagents="writer")


def test_an_agent_with_other_subagents_is_another_version() -> None:
    model = ScriptedModel([text("hello")])
    alone = Agent(model, name="boss")
    boss = alone.replace(subagents=[answering("writer")])
    assert boss.fingerprint != alone.fingerprint
    assert [spec.spec.name for spec in boss.replace(name="chief").tools] == ["writer"]
    assert boss.replace(subagents=[]).fingerprint == alone.fingerprint


@pytest.mark.parametrize(
    ("terms", "problem"),
    [
        ({"timeout": 0}, "timeout must be a number of seconds above 0"),
        ({"timeout": float("inf")}, "timeout must be"),
        ({"timeout": True}, "timeout must be"),
        ({"retries": -1}, "retries must be a whole number"),
        ({"retries": 1.5}, "retries must be a whole number"),
        ({"context": "tenant"}, "context must be 'all', a list of keys"),
        ({"context": [1]}, "context must be"),
        ({"state": "ticket"}, "state must be a list of keys"),
        ({"on_failure": "ignore"}, "on_failure must be one of continue, fail, degrade, pause"),
    ],
)
def test_terms_that_cannot_be_are_refused_by_name(terms: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"Subagent 'writer': {problem}"):
        Subagent(answering("writer"), **terms)


def test_an_agent_keeps_the_terms_of_its_subagents_when_it_is_changed() -> None:
    terms = Subagent(answering("writer"), timeout=5, retries=2)
    boss = Agent("openai:none", name="boss", subagents=[terms, answering("critic")], join=Quorum(1))
    for agent in (boss, boss.replace(name="chief")):
        assert (agent.subagent_terms, agent.join) == ({"writer": terms}, 1)
        assert [tool.spec.timeout for tool in agent.tools] == [5, None]
    with pytest.raises(ConfigurationError, match=r"subagents\[0\] must be an Agent"):
        Agent("openai:none", subagents=[Subagent(3)])
    for join in ("first", 0, True, None):
        with pytest.raises(ConfigurationError, match="join must be 'all', 'any', 'optional' or Quorum"):
            Agent("openai:none", name="boss", join=join)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("terms", "given"),
    [
        ("all", {"tenant": 1, "secret": 2}),
        (None, None),
        (["tenant"], {"tenant": 1}),
        ([], {}),
        (lambda context: context["tenant"] + 1, 2),
    ],
)
def test_a_subagent_gets_of_the_context_what_its_terms_say(terms: Any, given: Any) -> None:
    assert Subagent("writer", context=terms).context_of({"tenant": 1, "secret": 2}) == given


@pytest.mark.parametrize(
    ("terms", "context", "problem"),
    [
        (["tenant"], None, "context= names keys, and there is none"),
        (["tenant"], object(), "the context is of type object"),
        (["tenant", "user"], {"tenant": 1}, "names user, which the context does not have"),
        (lambda context: context.tenant, {}, "the function of context= failed: .*tenant"),
    ],
)
def test_a_context_that_does_not_fit_the_terms_is_an_error(terms: Any, context: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=f"Subagent 'writer': .*{problem}"):
        Subagent("writer", context=terms).context_of(context)


async def test_a_call_of_an_agent_with_empty_input_creates_no_task(runner: Runner) -> None:
    boss = Agent(
        ScriptedModel([call("writer", input=" "), call("writer", task="x"), text("well")]),
        name="boss",
        subagents=[answering("writer")],
    )
    result = await runner.run(boss, "go")
    assert [one.outcome for one in result.tool_executions] == ["invalid", "invalid"]
    assert not (await runner.list_tasks(parent=result.task_id)).items


# ---- answers without free text: which schemas have room for words of a stranger, and which values hold some


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Line(BaseModel):
    colour: Colour
    amount: float


class Order(BaseModel):
    lines: list[Line]
    due: date | None
    within: timedelta
    pair: tuple[int, bool]


class Tree(BaseModel):
    left: "Tree | None" = None
    note: str = ""


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    n: int


@pytest.mark.parametrize(
    ("annotation", "where"),
    [
        (bool, None),
        (int | None, None),
        (Literal["spam", "ham", 3], None),
        (Colour, None),
        (Order, None),
        (list[date], None),
        (Literal["only"], None),
        (str, "answer"),
        (Annotated[str, "short"], "answer"),
        (list[str], "answer[]"),
        (tuple[int, str], "answer[]"),
        (int | str, "answer"),
        (dict[str, int], "answer"),
        (Any, "answer"),
        (list[Any], "answer[]"),
        (bytes, "answer"),
        (Open, "answer"),
        (Tree, "answer.note"),
    ],
)
def test_only_numbers_truths_dates_and_given_words_are_no_free_text(annotation: Any, where: str | None):
    found = free_text(TypeAdapter(annotation).json_schema())
    assert (
        found is None if where is None else found is not None and found.endswith(where.removeprefix("answer"))
    )


@pytest.mark.parametrize(
    ("value", "holds"),
    [
        ({"colour": "red", "amount": 1.5}, False),
        ({"colour": "red", "amount": 1.5, "note": "dear friend"}, True),
        ({"colour": "red", "amount": 1.5, "dear friend": 1}, True),
        ({"colour": "dear friend", "amount": 1}, True),
    ],
)
def test_a_value_with_a_field_too_many_holds_free_text(value: Any, holds: bool):
    assert holds_free_text(value, Line.model_json_schema()) is holds


def test_dates_are_no_free_text():
    value = Order(lines=[], due=date(2026, 1, 1), within=timedelta(days=1, seconds=3), pair=(1, True))
    assert not holds_free_text(value.model_dump(mode="json"), Order.model_json_schema())
