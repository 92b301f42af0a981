"""Routers: functions that say how a step goes on, in place of the model."""

from typing import Any

import pytest

from tests.runner.acts import assert_journal_makes_sense, kinds, only, results_seen
from treadle import Agent, Policy, RequestContext, Route, Rule, Runner, RunOptions, ScriptedModel
from treadle.llm.scripted import text
from treadle.replay import record, replay

pytestmark = pytest.mark.anyio


def answering(name: str) -> Agent[Any]:
    return Agent(ScriptedModel([text(f"{name} is done")]), name=name)


def routed(router: Any, **options: Any) -> Agent[Any]:
    def say(request: Any) -> str:
        return " + ".join(results_seen(request.messages)) or "nothing"

    below = [answering("scout"), answering("clerk")]
    after = [answering("closer")]
    return Agent(ScriptedModel(say), name="boss", subagents=below, handoffs=after, router=router, **options)


def requests(agent: Agent[Any]) -> list[Any]:
    assert isinstance(agent.model, ScriptedModel)
    return agent.model.requests


def first_asks_both(ctx: RequestContext[Any]) -> Any:
    return [Route("scout", input="look"), Route("clerk", input="write")] if ctx.step == 1 else None


async def test_a_router_has_subagents_called_before_the_model_is_asked(runner: Runner) -> None:
    agent = routed(first_asks_both)
    result = await runner.run(agent, "go")
    assert result.final_text == "scout is done + clerk is done"
    assert [each.input for each in result.subagent_executions] == ["look", "write"]
    assert (result.steps, len(requests(agent))) == (2, 1)
    chosen = await only(runner, result.task_id, "route_chosen")
    assert [event.message is None for event in chosen] == [False, True]
    await assert_journal_makes_sense(runner, result.task_id)


async def test_a_router_hands_the_conversation_over(runner: Runner) -> None:
    agent = routed(lambda ctx: "closer")
    result = await runner.run(agent, "go")
    assert (result.agent, result.final_text) == ("closer", "closer is done")
    assert requests(agent) == []


async def test_a_router_may_be_async_and_name_agents_themselves(runner: Runner) -> None:
    async def router(ctx: RequestContext[Any]) -> Any:
        return agent.handoffs[0]

    agent = routed(router)
    assert (await runner.run(agent, "go")).agent == "closer"


async def test_what_a_router_said_is_not_asked_for_again(runner: Runner) -> None:
    asked: list[int] = []

    def router(ctx: RequestContext[Any]) -> Any:
        asked.append(ctx.step)
        return first_asks_both(ctx)

    policy = Policy(Rule("ask", "ask", subagent="scout"))
    await runner.run(routed(router, policy=policy), "go", task_id="t")
    assert (await runner.get_task("t")).state == "waiting"
    await runner.approve("t")
    await runner.resume("t")
    assert asked == [1, 2]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (Route("nobody", input="x"), "it named 'nobody', which is not among the subagents="),
        (Route("scot", input="x"), "did you mean 'scout'"),
        ("scout", "not among the handoffs="),
        (3, "it returned a int, which is nothing that a router may return"),
        (ValueError("no idea"), "no idea"),
    ],
)
async def test_a_router_that_names_no_agent_of_its_own_fails_the_step(
    runner: Runner, answer: Any, problem: str
) -> None:
    def router(ctx: RequestContext[Any]) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    result = await runner.run(routed(router), "go", task_id="t")
    assert result.state == "failed"
    assert result.error is not None
    assert result.error.kind == "router"
    assert problem in result.error.message
    answer = "closer"
    assert (await runner.resume("t")).agent == "closer"


async def test_a_policy_and_a_limit_hold_for_what_a_router_wants(runner: Runner) -> None:
    denied = await runner.run(
        routed(first_asks_both, policy=Policy(Rule("no", "deny", subagent="scout"))), "go"
    )
    assert [each.outcome for each in denied.tool_executions] == ["denied", "ok"]


async def test_steps_of_a_routed_agent_are_undone_and_forked(runner: Runner) -> None:
    await runner.run(routed(first_asks_both), "go", task_id="t")
    fork = await runner.fork("t", at="s1")
    assert (await runner.resume(fork)).final_text == "scout is done + clerk is done"
    await runner.undo_step("t")
    assert (await runner.resume("t")).final_text == "scout is done + clerk is done"
    assert (await kinds(runner, "t")).count("route_chosen") == 3


async def test_a_breakpoint_before_a_tool_stops_what_a_router_wants(runner: Runner) -> None:
    from treadle import Breakpoint

    options = RunOptions(break_on=[Breakpoint(before_tool="scout")])
    assert (await runner.run(routed(first_asks_both), "go", options=options)).state == "paused"


async def test_a_routed_task_replays() -> None:
    async with Runner("memory:") as runner:
        agent = routed(first_asks_both)
        recording = await record(runner, (await runner.run(agent, "go")).task_id, agent)
    report = await replay(recording, routed(first_asks_both))
    assert report.ok, str(report)
