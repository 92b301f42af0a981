"""What a policy is asked: the facts of a task as it is then, and what its model has seen."""

from typing import Any

import pytest

from tests.agents.stories import answered, began, ended, ran, state_after, step
from treadle import Message, ToolCall, ToolSpec
from treadle.core import events as e
from treadle.core.children import SpentBy
from treadle.core.model import Usage
from treadle.core.state import TaskState
from treadle.policy.requests import Exposure, Seen, Surroundings, call_request, model_request

TOOLS = {
    spec.name: spec
    for spec in (
        ToolSpec(name="look", read_only=True, private=True, declared=True),
        ToolSpec(name="save", open_world=True, declared=True),
        ToolSpec(name="put", idempotent=True, declared=True),
    )
}


def test_a_call_is_asked_about_with_what_its_task_has_done_so_far():
    state = state_after(*ran("look"), e.StepCompleted("s1"), step(2), answered("save", index=2))
    state.unpriced = ()
    state.children = {"t.s1-0": (SpentBy("helper", 1, Usage(5, 5), 1, 2, 2_000_000_000_000),)}
    (call,) = state.under_way()[0].calls
    around = Surroundings(labels={"tier": "gold"}, exposed=frozenset(("private",)), context="ctx")
    request = call_request(state, call, TOOLS["save"], "tool", around)
    assert (request.kind, request.name, request.arguments, request.spec) == (
        "tool",
        "save",
        {"n": 1},
        TOOLS["save"],
    )
    assert (request.task_id, request.thread_id, request.step, request.call) == ("t", "talk", "s2", "s2-0")
    assert (request.agent, request.agent_path, request.labels) == ("math", ("math",), {"tier": "gold"})
    assert (request.tool_calls, request.model_calls, request.tokens, request.cost) == (1, 2, 30, 2.0)
    assert (request.exposed, request.context) == ({"private"}, "ctx")
    assert dict(request.state) == {}


def test_a_repeated_call_is_asked_about_under_the_id_it_was_first_asked_for():
    state = state_after(step(), answered("save"))
    (call,) = state.under_way()[0].calls
    call.id = "s1-0r2"
    assert call_request(state, call, None, "tool", Surroundings()).call == "s1-0"


@pytest.mark.parametrize("unpriced", ["task", "child"])
def test_a_cost_that_is_not_known_is_none_and_not_zero(unpriced: str):
    state = state_after(step())
    if unpriced == "task":
        state.unpriced = ("m",)
    else:
        state.children = {"t.s1-0": (SpentBy("helper", unpriced=("m",)),)}
    request = model_request(state, "openai:gpt-5", "s1", Surroundings(agent_path=("boss", "math")))
    assert (request.kind, request.name, request.step, request.call) == ("model", "openai:gpt-5", "s1", "")
    assert (request.cost, request.agent_path) == (None, ("boss", "math"))


@pytest.mark.parametrize(
    ("events", "seen"),
    [
        ([], []),
        ([step(), answered("look")], []),
        ([step(), answered("look"), began(0, name="look")], []),
        ([step(), answered("look"), began(0, name="look"), ended(0)], ["private", "read_only"]),
        (
            [step(), answered("save"), began(0), ended(0, "error")],
            ["open_world"],
        ),  # the error is text from there too
        ([step(), answered("look"), ended(0, "refused")], []),
        ([*ran("look"), e.StepCompleted("s1"), *ran("put", index=2)], ["idempotent", "private", "read_only"]),
        ([step(), answered("book"), began(0, name="book"), ended(0)], ["undeclared"]),
    ],
)
def test_a_model_has_seen_the_results_of_the_calls_that_ran(events: list[Any], seen: list[str]):
    assert sorted(Exposure(TOOLS).of(state_after(*events)).effects) == seen


def test_what_was_seen_is_counted_on_as_the_task_goes_on_and_anew_after_an_undo():
    story: list[Any] = [*ran("look"), e.StepCompleted("s1"), *ran("save", index=2), e.StepCompleted("s2")]
    exposure = Exposure(TOOLS, Seen(frozenset(("sends",)), ("mail",)))
    first = exposure.of(state_after(*ran("look")))
    assert (first.effects, first.untrusted) == ({"private", "read_only", "sends"}, ("mail", "tool:look"))
    state = state_after(*story)
    for _ in range(2):
        assert exposure.of(state).effects == {"private", "read_only", "open_world", "sends"}
        assert exposure.of(state).untrusted == ("mail", "tool:look", "tool:save")
    del state.steps[0]
    state.branch = 1
    assert exposure.of(state) == Seen(frozenset(("open_world", "sends")), ("mail", "tool:save"))


def test_results_in_the_history_of_the_thread_count():
    state: TaskState = state_after(step())
    state.history = [Message("assistant", (ToolCall("t1-s1-0", "look", {}),))]
    assert Exposure(TOOLS).of(state).effects == {"private", "read_only"}
    assert Exposure({}).of(state).effects == {"undeclared"}, (
        "of a tool that the agent has no more nothing is known"
    )
