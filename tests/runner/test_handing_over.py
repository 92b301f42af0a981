"""A conversation moves from agent to agent in one task: what each of them sees, and where the task stands."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from tests.cast import look
from tests.runner.acts import assert_journal_makes_sense, kinds, only, results_seen
from treadle import (
    Agent,
    Handoff,
    Limits,
    Policy,
    Rule,
    RunContext,
    Runner,
    RunOptions,
    ScriptedModel,
    Usage,
    only_user_messages,
    tool,
)
from treadle.core.events import AgentChanged
from treadle.errors import AgentUnknown, ConfigurationError, VersionRefused
from treadle.llm.scripted import call, text, turn
from treadle.telemetry import Notice

pytestmark = pytest.mark.anyio


class Invoice(BaseModel):
    total: int


def billing(*script: Any, **options: Any) -> Agent[Any]:
    turns = list(script) or [text("You owe 5.")]
    return Agent(ScriptedModel(turns), **{"name": "billing", "instructions": "You bill.", **options})


def triage(*handoffs: Any, script: Any = None, **options: Any) -> Agent[Any]:
    turns = script or [call("transfer_to_billing", reason="money")]
    return Agent(
        ScriptedModel(turns),
        name="triage",
        instructions="You sort.",
        handoffs=handoffs or [billing()],
        **options,
    )


def requests(agent: Agent[Any]) -> list[Any]:
    assert isinstance(agent.model, ScriptedModel)
    return agent.model.requests


async def test_the_next_step_belongs_to_the_agent_that_the_model_names(runner: Runner) -> None:
    other = billing()
    result = await runner.run(triage(other), "what do I owe?")
    assert (result.state, result.final_text, result.agent) == ("completed", "You owe 5.", "billing")
    (moved,) = await only(runner, result.task_id, "agent_changed")
    assert (moved.agent, moved.previous, moved.step, moved.call) == ("billing", "triage", "s1", "s1-0")
    assert moved.fingerprint == other.fingerprint
    asked = requests(other)[0]
    assert (asked.instructions, asked.turn, asked.step) == ("You bill.", 0, "s2")
    assert results_seen(asked.messages) == ["The agent billing goes on with the conversation."]
    await assert_journal_makes_sense(runner, result.task_id)


async def test_a_request_names_the_agent_that_has_the_conversation(runner: Runner) -> None:
    @tool(needs_approval=True)
    def refund() -> str:
        """Pay money back."""
        return "refunded"

    other = billing(call("refund"), "Refunded.", tools=[refund])
    result = await runner.run(triage(other), "refund me")
    (item,) = await runner.list_pending(result.task_id)
    assert (result.pending[0].path, item.path) == (("billing",), ("billing",))


async def test_each_agent_answers_in_its_own_output_type(runner: Runner) -> None:
    other = billing(turn("", [call("final_answer", total=5)]), output_type=Invoice, output_mode="tool")
    result = await runner.run(triage(other), "what do I owe?")
    assert result.output == Invoice(total=5)
    assert (await runner.result(result.task_id)).output == Invoice(total=5)


async def test_a_conversation_comes_back_and_finds_its_agent_as_it_left(runner: Runner) -> None:
    told: list[str] = []

    def instructions(ctx: RunContext[Any]) -> str:
        told.append(ctx.task_id)
        return "You sort."

    other = billing(call("transfer_to_triage", reason="done"), handoffs=["triage"])
    first = triage(other, script=[call("transfer_to_billing"), text("All settled.")]).replace(
        instructions=instructions
    )
    result = await runner.run(first, "go")
    assert (result.final_text, result.agent) == ("All settled.", "triage")
    assert [request.turn for request in requests(first)] == [0, 1]
    assert len(told) == 1
    assert (await kinds(runner, result.task_id)).count("instructions_set") == 2


async def test_agents_that_hand_over_in_circles_are_stopped_by_the_limit(runner: Runner) -> None:
    def back(request: Any) -> Any:
        refused = [each for each in results_seen(request.messages) if "limit of 3 handoffs" in each]
        return text("I stay.") if refused else call("transfer_to_triage")

    def forth(request: Any) -> Any:
        refused = [each for each in results_seen(request.messages) if "limit of 3 handoffs" in each]
        return text("I stay.") if refused else call("transfer_to_billing")

    other = Agent(ScriptedModel(back), name="billing", handoffs=["triage"])
    first = Agent(ScriptedModel(forth), name="triage", handoffs=[other])
    result = await runner.run(first, "go", options=RunOptions(limits=Limits(handoffs=3)))
    assert (result.state, result.final_text, result.agent) == ("completed", "I stay.", "billing")
    assert len(await only(runner, result.task_id, "agent_changed")) == 3
    refused = result.tool_executions[-1]
    assert (refused.outcome, refused.error.source if refused.error else "") == ("refused", "limit")


async def test_a_filter_narrows_what_the_next_agent_sees_and_the_journal_keeps_all(runner: Runner) -> None:
    other = billing(
        call("transfer_to_sales"), handoffs=[Agent(ScriptedModel([text("Bought.")]), name="sales")]
    )
    result = await runner.run(triage(Handoff(other, filter=only_user_messages)), "what do I owe?")
    said = [message.text for message in requests(other)[0].messages]
    assert said == ["what do I owe?", "[The agent triage handed this conversation over: money]"]
    assert len((await runner.result(result.task_id)).messages) > len(said)
    sales = other.handoffs[0]
    assert isinstance(sales, Agent)
    assert len(requests(sales)[0].messages) == 5


async def test_a_filter_that_fails_is_the_failure_of_the_request(runner: Runner) -> None:
    result = await runner.run(triage(Handoff(billing(), filter=lambda messages: messages[1:2])), "go")
    assert result.state == "failed"
    assert "the filter of the handoff transfer_to_billing of agent triage" in str(result.error)


async def test_a_handoff_s_filter_holds_within_a_bounded_context(runner: Runner) -> None:
    other = billing()
    options = RunOptions(context_tokens=1_000)
    await runner.run(triage(Handoff(other, filter=only_user_messages)), "what do I owe?", options=options)
    assert [message.role for message in requests(other)[0].messages] == ["user", "user"]


# ----------------------------------------------------------------------------------- undo, redo and fork


async def test_an_undo_of_the_handoff_returns_to_the_first_agent(runner: Runner) -> None:
    first = triage()
    done = await runner.run(first, "go", task_id="t")
    await runner.undo_step("t", to=0)
    assert (await runner.get_task("t")).agent == "triage"
    again = await runner.resume("t")
    assert (again.final_text, again.agent) == (done.final_text, "billing")
    assert len(requests(first)) == 2
    assert len(await only(runner, "t", "agent_changed")) == 2


async def test_an_undo_after_the_handoff_leaves_the_task_with_the_next_agent(runner: Runner) -> None:
    first = triage()
    await runner.run(first, "go", task_id="t")
    await runner.undo_step("t")
    assert (await runner.get_task("t")).agent == "billing"
    assert (await runner.resume("t")).final_text == "You owe 5."
    assert len(requests(first)) == 1


async def test_calls_of_an_agent_that_handed_over_are_compensated_by_its_own_tools(runner: Runner) -> None:
    undone: list[str] = []

    def booking(owner: str) -> Any:
        async def unbook(call: Any, ctx: Any) -> None:
            undone.append(owner)

        @tool(undo=unbook)
        def book() -> str:
            """Book."""
            return "booked"

        return book

    other = billing(call("book"), text("done"), tools=[booking("billing")])
    first = triage(other, script=[call("book"), call("transfer_to_billing")], tools=[booking("triage")])
    await runner.run(first, "go", task_id="t")
    report = await runner.undo_step("t", to=0)
    assert report.complete
    assert undone == ["billing", "triage"]


async def test_a_fork_goes_on_with_the_agent_of_its_point(runner: Runner) -> None:
    first, other = triage(), billing()
    await runner.run(first, "go", task_id="t")
    after = await runner.fork("t", at="s1")
    assert (after.agent, (await runner.resume(after)).agent) == ("billing", "billing")
    before = await runner.fork("t", at=1)
    assert before.agent == "triage"
    assert (await runner.resume(before)).agent == "billing"
    given = await runner.fork("t", at="s1", agent=other.replace(name="other"))
    assert (given.agent, (await runner.resume(given)).agent) == ("other", "other")


# ------------------------------------------------------------------------------------- step by step


async def test_a_step_that_hands_over_shows_the_next_agent(runner: Runner) -> None:
    task = await runner.create_task(triage(), "go")
    step = await runner.run_step(task)
    assert not step.is_last
    assert (await runner.get_task(task)).agent == "billing"
    assert (await kinds(runner, task.task_id))[-2:] == ["agent_changed", "instructions_set"]
    step = await runner.run_step(task)
    assert step.is_last
    assert (await runner.finalize(task)).agent == "billing"


# -------------------------------------------------------------------------------- other processes


async def test_another_process_goes_on_with_the_agent_that_has_the_task(tmp_path: Path) -> None:
    store = tmp_path / "tasks.db"
    async with Runner(store) as runner:
        task = await runner.create_task(triage(), "go", task_id="t")
        await runner.run_step(task)
    other = billing()
    async with Runner(store, agents=[triage(other)]) as runner:
        result = await runner.resume("t")
    assert (result.agent, result.final_text) == ("billing", "You owe 5.")
    assert len(requests(other)) == 1


async def test_an_agent_that_is_missing_is_named(tmp_path: Path) -> None:
    store = tmp_path / "tasks.db"
    async with Runner(store, agents=[billing()]) as runner:
        await runner.run_step(await runner.create_task(triage("billing"), "go", task_id="t"))
    async with Runner(store) as runner:
        with pytest.raises(AgentUnknown, match="'triage', which this process was not given"):
            await runner.resume("t")
        with pytest.raises(AgentUnknown, match="handed over to or by agent 'billing'"):
            await runner.resume("t", agent=triage("billing"))


async def test_a_new_version_of_the_next_agent_is_recorded(tmp_path: Path) -> None:
    store = tmp_path / "tasks.db"
    async with Runner(store) as runner:
        await runner.run_step(await runner.create_task(triage(), "go", task_id="t"))
    other = billing(instructions="You bill well.")
    async with Runner(store, agents=[triage(other)]) as runner:
        refused = RunOptions(on_version_change="refuse")
        with pytest.raises(VersionRefused, match="of agent 'billing'"):
            await runner.resume("t", options=refused)
        await runner.resume("t")
        (changed,) = await only(runner, "t", "version_changed")
    assert changed.fingerprint == other.fingerprint
    assert requests(other)[0].instructions == "You bill well."


async def test_a_handoff_that_is_gone_does_not_show_what_its_filter_hid(tmp_path: Path) -> None:
    store = tmp_path / "tasks.db"
    async with Runner(store) as runner:
        hidden = triage(Handoff(billing(), filter=only_user_messages))
        await runner.run_step(await runner.create_task(hidden, "go", task_id="t"))
    renamed = triage(Handoff(billing(), name="to_billing"))
    async with Runner(store, agents=[renamed]) as runner:
        with pytest.raises(VersionRefused, match="which no longer has that handoff"):
            await runner.resume("t")


# ----------------------------------------------------------------------------- what holds for the task


async def test_the_limits_of_the_first_agent_hold_after_the_handoff(runner: Runner) -> None:
    @tool(read_only=True)
    def look(n: int) -> int:
        """Look."""
        return n

    other = billing(*[call("look", n=n) for n in range(9)], tools=[look])
    result = await runner.run(triage(other, limits=Limits(steps=3)), "go")
    assert result.state == "degraded"
    assert result.steps == 3


async def test_the_policies_of_the_first_and_the_present_agent_hold(runner: Runner) -> None:
    @tool(read_only=True)
    def peek() -> str:
        """Peek."""
        return "seen"

    other = billing(turn("", [call("look"), call("peek")]), text("ok"), tools=[look, peek])
    other = other.replace(policy=Policy(Rule("no-peek", "deny", tool="peek")))
    result = await runner.run(triage(other, policy=Policy(Rule("no-look", "deny", tool="look"))), "go")
    assert [each.outcome for each in result.tool_executions] == ["ok", "denied", "denied"]


async def test_a_policy_judges_a_handoff_by_the_name_of_the_agent(runner: Runner) -> None:
    script = [call("transfer_to_billing"), text("I stay.")]
    policy = Policy(Rule("no-billing", "deny", handoff="bill*", reason="not today"))
    result = await runner.run(triage(script=script, policy=policy), "go")
    assert (result.agent, result.final_text) == ("triage", "I stay.")
    (judged,) = await only(runner, result.task_id, "call_judged")
    assert (judged.verdict, judged.rule) == ("deny", "no-billing")


async def test_a_handoff_waits_for_the_approval_that_a_policy_asks_for(runner: Runner) -> None:
    policy = Policy(Rule("ask", "ask", handoff="billing"))
    waiting = await runner.run(triage(policy=policy), "go", task_id="t")
    assert waiting.state == "waiting"
    await runner.approve("t", by="ann")
    assert (await runner.resume("t")).agent == "billing"


async def test_a_named_agent_that_cannot_take_over_is_refused_when_it_is_to(runner: Runner) -> None:
    await runner.create_task(
        Agent("openai:none", name="billing", worker="plan_refine"), "so that it is known"
    )
    with pytest.raises(ConfigurationError, match="'billing' cannot take over a conversation"):
        await runner.run(triage("billing"), "go", task_id="t")
    assert (await kinds(runner, "t"))[-1] == "step_completed"


async def test_events_say_which_agent_had_the_task(runner: Runner) -> None:
    async with runner.run_stream(triage(), "go", task_id="t") as stream:
        live = [(event.kind, event.agent_path) async for event in stream if hasattr(event, "seq")]
    stored = [(event.kind, event.agent_path) async for event in runner.handle("t").events()]
    assert live == stored
    at = next(index for index, (kind, _) in enumerate(stored) if kind == AgentChanged.kind)
    assert {path for _, path in stored[:at]} == {("triage",)}
    assert {path for _, path in stored[at:]} == {("billing",)}


async def test_each_agent_s_part_of_the_usage_is_told(runner: Runner) -> None:
    other = billing(turn("5", usage=Usage(7, 3)), turn("6", usage=Usage(9, 1)))
    first = triage(other, script=[turn("", [call("transfer_to_billing")], usage=Usage(20, 5))])
    result = await runner.run(first, "go", task_id="t")
    parts = {
        name: (part.total_tokens, part.model_calls, part.tool_calls)
        for name, part in result.usage.per_agent.items()
    }
    assert parts == {"triage": (25, 1, 1), "billing": (10, 1, 0)}
    await runner.undo_step("t")
    usage = (await runner.resume("t")).usage
    assert (usage.total_tokens, usage.per_agent["billing"].total_tokens) == (45, 20)


async def test_a_child_that_hands_over_counts_as_one_task_of_the_agent_that_was_called(
    runner: Runner,
) -> None:
    child = triage(script=[turn("", [call("transfer_to_billing")], usage=Usage(20, 5))])
    boss = Agent(ScriptedModel([call("triage", input="go"), text("done")]), name="boss", subagents=[child])
    result = await runner.run(boss, "go")
    (called,) = result.subagent_executions
    assert (called.name, called.output, set(called.usage.per_agent)) == (
        "triage",
        "You owe 5.",
        {"triage", "billing"},
    )
    assert {each.path for each in result.tool_executions if each.depth} == {("boss", "triage")}
    assert set(result.usage.per_agent) == {"boss", "triage", "billing"}


async def test_observers_are_told_of_the_agent_that_has_the_task() -> None:
    told: list[Notice] = []
    async with Runner("memory:", observers=[told.append]) as runner:
        await runner.run(triage(), "go")
    agents = [notice.task.agent for notice in told if notice.task is not None]
    at = next(index for index, notice in enumerate(told) if isinstance(notice.event, AgentChanged))
    assert set(agents[:at]) == {"triage"}
    assert set(agents[at:]) == {"billing"}


async def test_partial_answers_are_those_of_the_agent_that_has_the_task(runner: Runner) -> None:
    other = billing(text('{"total": 5}', chunk=4), output_type=Invoice, output_mode="native")
    async with runner.run_stream(triage(other), "go") as stream:
        seen = [value async for value in stream.partials(checked=True)]
    assert seen[-1] == Invoice(total=5)


async def test_what_a_model_has_seen_counts_with_the_tools_of_the_agent_that_called_them(
    runner: Runner,
) -> None:
    @tool(read_only=True, private=True)
    def look() -> str:
        """Look."""
        return "a secret"

    @tool(sends=True)
    def tell() -> str:
        """Tell."""
        return "told"

    other = billing(
        call("tell"), text("ok"), tools=[tell], policy=Policy.strict(Rule("go", "allow", handoff="*"))
    )
    first = triage(other, script=[call("look"), call("transfer_to_billing")], tools=[look])
    result = await runner.run(first, "go")
    assert [each.outcome for each in result.tool_executions] == ["ok", "ok", "denied"]
    assert result.tool_executions[-1].error is not None
    assert "the model has seen private data" in result.tool_executions[-1].error.message


WORDS = {
    "react": (
        'Thought: x\nAction: transfer_to_billing\nAction Input: {"reason": "money"}',
        "Thought: x\nAnswer: 5",
    ),
    "planner": (
        '{"thought": "x", "name": "transfer_to_billing", "arguments": {"reason": "money"}}',
        '{"thought": "x", "name": "finish", "arguments": {"answer": "5"}}',
    ),
    "function_calling": (call("transfer_to_billing", reason="money"), "5"),
}
"""By worker: what a model writes to hand over, and to answer."""


@pytest.mark.parametrize("after", WORDS)
@pytest.mark.parametrize("before", WORDS)
async def test_agents_of_different_workers_hand_over_to_each_other(
    runner: Runner, before: Any, after: Any
) -> None:
    other = Agent(ScriptedModel([WORDS[after][1]]), name="billing", worker=after)
    first = Agent(ScriptedModel([WORDS[before][0]]), name="triage", worker=before, handoffs=[other])
    result = await runner.run(first, "what do I owe?")
    assert (result.state, result.agent, result.final_text) == ("completed", "billing", "5")
    assert "goes on with the conversation" in str(requests(other)[0].messages)


async def test_another_agent_of_the_same_name_does_not_take_the_place_of_the_one_before(
    runner: Runner,
) -> None:
    """A process may hold agents of one name, as when a page or a notebook makes variants of one."""
    first = triage(Handoff(billing(), filter=only_user_messages))
    await runner.run_step(await runner.create_task(first, "go", task_id="t"))
    await runner.create_task(triage(Handoff(billing(), name="escalate")), "so that it is known")
    assert (await runner.resume("t")).agent == "billing"


async def test_the_second_handoff_of_an_answer_does_not_begin_beside_the_first_in_slow_middleware() -> None:
    entered = asyncio.Event()
    sent = asyncio.Event()

    async def slow(call: Any, next: Any) -> Any:
        entered.set()
        await sent.wait()
        return await next(call)

    both = call("transfer_to_billing", reason="money") + call("transfer_to_shop", reason="goods")
    agent = triage(billing(), billing(name="shop"), script=[both])
    async with Runner(middleware=[slow]) as runner:
        handle = await runner.start(agent, "go")
        await entered.wait()
        await handle.send("more")
        async for event in handle.events():
            if event.kind == "input_received":
                break
        sent.set()
        result = await handle.result()
        assert (result.state, result.agent) == ("completed", "billing")
        assert [each.call for each in await only(runner, result.task_id, "tool_started")] == ["s1-0"]
        assert [end.outcome for end in await only(runner, result.task_id, "tool_ended")] == ["ok", "refused"]
        await assert_journal_makes_sense(runner, result.task_id)
