"""Limits are hard: how many calls reach the model and the tools at each limit, and what the task is then."""

from typing import Any

import pytest

from tests.cast import look
from tests.runner.acts import assert_journal_makes_sense, assert_well_formed, only, results_seen
from treadle import Agent, Breakpoint, Limits, Runner, RunOptions, ScriptedModel, tool
from treadle.core.model import Usage
from treadle.llm.scripted import call, text, turn

pytestmark = pytest.mark.anyio


class World:
    """A model that calls a tool in every request, and answers with text when it is offered no tools."""

    def __init__(self, answers_in_turn: int = 99, calls: int = 1, **options: Any) -> None:
        self.runs = 0

        @tool(read_only=True)
        async def look() -> int:
            self.runs += 1
            return self.runs

        def say(request: Any) -> Any:
            if not request.tools or request.turn + 1 >= answers_in_turn:
                return turn(f"answer {request.turn + 1}", usage=Usage(1_000, 1_000))
            return turn(f"turn {request.turn + 1}", [call("look")] * calls, usage=Usage(1_000, 1_000))

        self.model = ScriptedModel(say)
        self.agent = Agent(self.model, name="looker", tools=[look], **options)

    @property
    def asked(self) -> int:
        return len(self.model.requests)


ON_LIMIT = ["final_answer", "fail", "pause"]
STATES = {"final_answer": "degraded", "fail": "failed", "pause": "paused"}


@pytest.mark.sampled(14)
@pytest.mark.parametrize("on_limit", ON_LIMIT)
@pytest.mark.parametrize("limit", ["steps", "model_calls", "tool_calls"])
@pytest.mark.parametrize("allowed", [0, 1, 2, 5])
async def test_no_more_than_a_limit_allows(runner: Runner, allowed: int, limit: Any, on_limit: Any) -> None:
    world = World(calls=2 if limit == "tool_calls" else 1)
    options = RunOptions(limits=Limits(**{limit: allowed}), on_limit=on_limit)
    result = await runner.run(world.agent, "go", options=options)
    assert result.state == STATES[on_limit]
    is_answered = on_limit == "final_answer" and allowed > 0
    last = world.model.requests[-1] if world.asked else None
    [reached] = await only(runner, result.task_id, "limit_reached")
    assert (reached.limit, reached.allowed) == (limit, allowed)
    if limit == "steps":
        assert (world.runs, result.steps, reached.used) == (allowed, allowed, allowed)
        assert world.asked == allowed + is_answered
        assert last is None or not is_answered or last.step == f"s{allowed}"
    elif limit == "model_calls":
        assert world.asked == result.usage.model_calls == allowed
    else:
        outcomes = [run.outcome for run in result.tool_executions]
        assert world.runs == outcomes.count("ok") == allowed
        assert outcomes == sorted(outcomes), "the first of a batch run, the others are refused"
    if is_answered and limit != "tool_calls":
        assert last is not None
        assert (last.tools, last.tool_choice) == ((), "none")
        assert result.final_text == f"answer {world.asked}"
    if on_limit == "final_answer":
        assert result.degraded_reasons == (f"limit reached: {limit}",)
        assert allowed or limit == "tool_calls" or result.final_text == ""
    if on_limit == "fail":
        assert result.error is not None
        assert (result.error.source, result.error.kind, result.final_text) == ("limit", limit, "")
    assert_well_formed(result.messages)
    await assert_journal_makes_sense(runner, result.task_id)


@pytest.mark.parametrize("on_limit", ON_LIMIT)
@pytest.mark.parametrize("steps", [1, 3])
async def test_an_answer_in_the_last_allowed_turn_completes(
    runner: Runner, steps: int, on_limit: Any
) -> None:
    world = World(answers_in_turn=steps)
    result = await runner.run(
        world.agent, "go", options=RunOptions(limits=Limits(steps=steps), on_limit=on_limit)
    )
    assert (result.state, result.final_text) == ("completed", f"answer {steps}")
    assert world.asked == steps
    assert await only(runner, result.task_id, "limit_reached") == []


async def test_a_batch_larger_than_the_calls_left_runs_its_first_calls_and_refuses_the_rest(
    runner: Runner,
) -> None:
    world = World(calls=5)
    result = await runner.run(world.agent, "go", options=RunOptions(limits=Limits(tool_calls=3)))
    assert [run.outcome for run in result.tool_executions] == ["ok"] * 3 + ["refused"] * 2
    observations = results_seen(world.model.requests[-1].messages)
    assert observations[:3] == ["1", "2", "3"]
    assert all("limit of 3 tool calls" in observation for observation in observations[3:])
    assert (result.state, result.final_text) == ("degraded", "answer 2")
    assert world.asked == 2


@pytest.mark.sampled(8)
@pytest.mark.parametrize("on_limit", ON_LIMIT)
@pytest.mark.parametrize("tokens", [0, 1, 2_000, 2_001, 6_000, 10_000])
async def test_tokens_are_overrun_by_at_most_the_call_in_flight(
    runner: Runner, tokens: int, on_limit: Any
) -> None:
    world = World()
    result = await runner.run(
        world.agent, "go", options=RunOptions(limits=Limits(tokens=tokens), on_limit=on_limit)
    )
    assert result.state == STATES[on_limit]
    used = result.usage.total_tokens
    assert used < tokens + 2_000
    assert used >= tokens - 2_000
    assert world.asked == used // 2_000
    await assert_journal_makes_sense(runner, result.task_id)


LOOSER = [
    (Limits(steps=1), Limits(steps=9)),
    (Limits(model_calls=1), Limits(model_calls=9)),
    (Limits(tool_calls=1), Limits(tool_calls=9)),
    (Limits(tokens=2_000), Limits(tokens=90_000)),
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("tight", "loose"), LOOSER, ids=["steps", "model_calls", "tool_calls", "tokens"])
@pytest.mark.parametrize("on_limit", ON_LIMIT)
async def test_a_raised_limit_lets_the_task_go_on(
    runner: Runner, tight: Limits, loose: Limits, on_limit: Any
) -> None:
    world = World(answers_in_turn=4)
    first = await runner.run(world.agent, "go", options=RunOptions(limits=tight, on_limit=on_limit))
    assert first.state == STATES[on_limit]
    result = await runner.resume(first.task_id, options=RunOptions(limits=loose))
    assert (result.state, result.error) == ("completed", None)
    assert result.final_text == "answer 4"
    assert_well_formed(result.messages)
    assert result.degraded_reasons == ()
    await assert_journal_makes_sense(runner, first.task_id)
    assert [m.text for m in await runner.get_thread(result.thread_id)][-1] == "answer 4"


@pytest.mark.parametrize("on_limit", ["fail", "pause"])
async def test_a_resume_without_a_raised_limit_stands_where_it_stood(runner: Runner, on_limit: Any) -> None:
    world = World()
    options = RunOptions(limits=Limits(steps=2), on_limit=on_limit)
    first = await runner.run(world.agent, "go", options=options)
    for _ in range(2):
        again = await runner.resume(first.task_id)
        assert again.state == first.state
    assert world.asked == 2
    await assert_journal_makes_sense(runner, first.task_id)


async def test_of_several_limits_the_smallest_counts(runner: Runner) -> None:
    world = World(limits=Limits(steps=3))
    async with Runner("memory:", options=RunOptions(limits=Limits(steps=2, model_calls=50))) as other:
        result = await other.run(world.agent, "go", options=RunOptions(limits=Limits(steps=9)))
    assert result.steps == 2
    assert (await runner.run(world.agent, "go")).steps == 3


async def test_raised_limits_were_lost_when_another_option_was_given_later(runner: Runner) -> None:
    model = ScriptedModel(lambda request: call("look") if request.tools else text("end"))
    agent = Agent(model, name="seeker", tools=[look], limits=Limits(steps=3, repeats=0))
    task = (await runner.run(agent, "Go", options=RunOptions(on_limit="pause"), task_id="t")).task_id
    raised = RunOptions(limits=Limits(steps=6, repeats=0), break_on=[Breakpoint(after_step=4)])
    assert (await runner.resume(task, agent=agent, options=raised)).steps == 4
    other = RunOptions(break_on=[], tell_steps_left=True)
    fork = await runner.fork(task, agent=agent, options=other)
    for raised_task in (task, fork.task_id):
        result = await runner.resume(raised_task, agent=agent, options=other)
        assert (result.state, result.steps) == ("paused", 6)
