"""Recorded tasks as tests: an unchanged agent passes, and each change is named with both values."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tests.cast import asker
from treadle import (
    Agent,
    AskPerson,
    Deny,
    Guardrail,
    GuardrailRequest,
    Limits,
    NextStep,
    Policy,
    Rewrite,
    Rule,
    Runner,
    RunOptions,
    ScriptedModel,
    StepContext,
    StepResult,
    tool,
)
from treadle.core.events import ApprovalDenied, ApprovalGiven, ModelFailed
from treadle.errors import AgentUnknown, ConfigurationError, ImportRefused, QuestionUnanswered
from treadle.llm.layers.retry import Retry
from treadle.llm.scripted import call, fail, text, turn
from treadle.models import ReplayModel
from treadle.replay import assert_replays, load, record, replay, save
from treadle.replay.recording import journal_of
from treadle.testing import clock

pytestmark = pytest.mark.anyio

RAN: list[str] = []


@tool(read_only=True)
async def stock(item: str) -> dict:
    """Tell how much there is of an item."""
    RAN.append(item)
    if item == "gold":
        raise LookupError("no such item")
    await asyncio.sleep(0.01 if item == "tea" else 0)
    return {"item": item, "left": len(RAN)}


@tool
async def order(item: str, pieces: int) -> str:
    """Order an item."""
    RAN.append(f"order {item}")
    return f"ordered {pieces} {item}"


@tool
async def order_by_weight(item: str, grams: int) -> str:
    """Order an item, by weight."""
    return "never"


SCRIPT = [
    turn("I look.", [call("stock", item="tea"), call("stock", item="gold"), call("stock", item="cake")]),
    fail(503, message="busy"),
    call("order", item="tea", pieces=3),
    call("order", item="tea", pieces="many"),
    text("Three teas are on their way."),
]


def shop(**changes):
    agent = Agent(
        Retry(ScriptedModel(SCRIPT), base=0),
        name="shop",
        instructions="Sell what there is.",
        tools=[stock, order],
    )
    return agent.replace(**changes)


@pytest.fixture
async def recorded(tmp_path):
    """A task as in production: several steps, parallel calls, an error, a retry, a wrong argument, from a thread."""
    async with Runner(tmp_path / "journal.db") as runner:
        await runner.run(Agent(ScriptedModel(["Good day."]), name="greeter"), "Hello", thread_id="ann")
        result = await runner.run(shop(), "Three teas, please.", thread_id="ann")
        assert result.state == "completed"
        assert any(isinstance(e, ModelFailed) for e in await journal_of(runner.store, result.task_id))
        path = tmp_path / "task.jsonl"
        await save(runner, await record(runner, result.task_id, shop()), path)
    RAN.clear()
    return path


async def test_an_agent_that_did_not_change_goes_as_recorded_and_runs_no_tool(recorded):
    report = await replay(await load(recorded), shop())
    assert report.drifts == ()
    assert (report.steps, report.requests, report.calls) == (4, 5, 5)
    assert RAN == []
    assert "goes as it was recorded" in str(report)
    assert assert_replays(recorded, shop()).ok  # also inside a running event loop


async def test_a_changed_prompt_and_a_changed_tool_are_both_named_with_both_values(recorded):
    @tool(name="order")
    async def order_now(item: str, pieces: float, express: bool = False) -> str:
        """Order an item at once."""
        return ""

    today = shop(instructions="Sell dear.", tools=[stock, order_now])
    report = await replay(await load(recorded), today)
    drifts = {drift.what: (drift.kind, drift.recorded, drift.now) for drift in report.drifts}
    assert drifts["the instructions"] == ("instructions", "Sell what there is.", "Sell dear.")
    assert drifts["tools.order.description"] == ("tools", "Order an item.", "Order an item at once.")
    assert drifts["tools.order.parameters.properties.pieces.type"] == ("tools", "integer", "number")
    assert drifts["tools.order.parameters.properties.express"][1] is None
    with pytest.raises(AssertionError, match=r"recorded: Sell what there is\.\n +now: +Sell dear\."):
        assert_replays(recorded, today)


async def test_a_removed_tool_drifts_in_the_request_and_in_the_call(recorded):
    report = await replay(await load(recorded), shop(tools=[stock, order_by_weight]))
    assert {"tools.order", "tools.order_by_weight"} <= {drift.what for drift in report.drifts}
    shown = next(drift for drift in report.drifts if drift.kind == "result")
    assert shown.where == "step 2, call 1"
    assert shown.recorded == "ordered 3 tea"
    assert "no tool 'order'" in str(shown.now)


async def test_a_shorter_observation_of_a_result_is_a_drift(tmp_path):
    @tool(read_only=True)
    async def read() -> str:
        return "word " * 400

    agent = Agent(ScriptedModel([call("read"), text("Long.")]), name="reader", tools=[read])
    async with Runner("memory:") as runner:
        result = await runner.run(agent, "Read.")
        recording = await record(runner, result.task_id, agent)
    assert (await replay(recording, agent)).ok


async def test_tools_that_are_run_may_return_something_else(recorded):
    report = await replay(await load(recorded), shop(), run_tools=True)
    assert "order tea" in RAN
    assert {drift.kind for drift in report.drifts} <= {"result"}


async def test_a_model_a_worker_and_settings_that_changed_are_named(recorded):
    report = await replay(await load(recorded), shop(model="openai:gpt-5.4-mini"))
    (drift,) = report.drifts
    assert (drift.kind, drift.what, drift.recorded, drift.now) == (
        "agent",
        "model",
        "scripted",
        "openai:gpt-5.4-mini",
    )


async def test_without_a_declaration_a_changed_prompt_differs_from_a_changed_agent(recorded):
    recording = await load(recorded)
    bare = type(recording)(recording.task_id, recording.events, recording.history)
    assert (await replay(bare, shop())).ok
    (drift,) = (await replay(bare, shop(instructions="Sell dear."))).drifts
    assert drift.kind == "instructions"
    kinds = [drift.kind for drift in (await replay(bare, shop(tools=[stock, order, order_by_weight]))).drifts]
    assert kinds == ["agent"]


async def test_later_messages_undone_steps_and_failures_are_replayed():
    script = [call("stock", item="tea"), call("order", item="tea", pieces=1), text("Done.")]
    agent = Agent(
        ScriptedModel(lambda request: script[request.turn]),
        name="shop",
        tools=[stock, order],
        instructions="Sell.",
    )
    async with Runner("memory:", agents=[agent]) as runner:
        task = await runner.create_task(agent, "Tea.")
        await runner.run_step(task)
        await runner.run_step(task)
        await runner.undo_step(task, force=True)
        await runner.run_step(task, input="One is enough.")
        await runner.resume(task)
        recording = await record(runner, task.task_id, agent)
    RAN.clear()
    report = await replay(recording, agent)
    assert report.drifts == ()
    assert (report.steps, RAN) == (3, [])


async def test_a_task_that_failed_fails_again_and_a_paused_one_stops_where_it_was():
    agent = Agent(
        ScriptedModel([call("stock", item="tea"), fail(400, message="no")]), name="shop", tools=[stock]
    )
    async with Runner("memory:") as runner:
        failed = await record(runner, (await runner.run(agent, "Tea.")).task_id, agent)
        task = await runner.create_task(agent, "Tea.")
        await runner.run_step(task)
        begun = await record(runner, task.task_id, agent)
    report = await replay(failed, agent)
    assert (report.drifts, report.requests) == ((), 2)
    report = await replay(begun, agent)
    assert (report.drifts, report.requests) == ((), 1)


@pytest.mark.parametrize("worker", ["react", "planner"])
async def test_a_task_of_a_dialect_in_plain_text_replays(worker):
    script = {
        "react": [
            'Action: stock\nAction Input: {"item": "tea"}',
            "Action: stock {",
            "Thought: So.\nAnswer: One.",
        ],
        "planner": [
            '{"thought": "a", "name": "stock", "arguments": {"item": "tea"}}',
            '{"name": "sto',
            '{"thought": "b", "name": "finish", "arguments": {"answer": "One."}}',
        ],
    }[worker]
    agent = Agent(ScriptedModel(script), name="shop", tools=[stock], worker=worker)
    async with Runner("memory:") as runner:
        result = await runner.run(agent, "Tea?")
        assert result.final_text == "One."
        recording = await record(runner, result.task_id, agent)
    assert (await replay(recording, agent)).drifts == ()
    other = await replay(recording, agent.replace(worker="react" if worker == "planner" else "planner"))
    assert {drift.what.partition(".")[0] for drift in other.drifts} >= {"worker"}


async def two_calls(ctx: StepContext) -> StepResult:
    if ctx.name == "look":
        await ctx.call_tool("stock", {"item": "tea"})
        await ctx.call_tool("stock", {"item": "cake"})
        return StepResult(next_steps=[NextStep("say")])
    answer = await ctx.call_model("How much?", key="ask")
    return StepResult(answer.message.text, is_last=True)


async def other_order(ctx: StepContext) -> StepResult:
    if ctx.name == "look":
        await ctx.call_tool("stock", {"item": "cake"})
        await ctx.call_tool("stock", {"item": "tea"})
        return StepResult(next_steps=[NextStep("say")])
    return await two_calls(ctx)


async def other_call(ctx: StepContext) -> StepResult:
    if ctx.name == "look":
        await ctx.call_tool("stock", {"item": "tea"})
        await ctx.call_tool("stock", {"item": "pie"})
        return StepResult(next_steps=[NextStep("say")])
    return await two_calls(ctx)


async def other_words(ctx: StepContext) -> StepResult:
    if ctx.name == "look":
        return await two_calls(ctx)
    answer = await ctx.call_model("How many?", key="ask")
    return StepResult(answer.message.text, is_last=True)


class Walk:
    def __init__(self, run):
        self.run_step = run

    def initialize_step(self, task):
        return NextStep("look")

    def finalize_task(self, task, output):
        return None


async def test_calls_their_order_and_requests_of_a_custom_worker_are_compared():
    def walker(run):
        return Agent(ScriptedModel(lambda r: "Two."), name="walker", tools=[stock], worker=Walk(run))

    async with Runner("memory:") as runner:
        result = await runner.run(walker(two_calls), "Go.")
        assert result.final_text == "Two."
        recording = await record(runner, result.task_id, walker(two_calls))
    RAN.clear()
    assert (await replay(recording, walker(two_calls))).drifts == ()

    async def drift(run, kind):
        report = await replay(recording, walker(run))
        return next(drift for drift in report.drifts if drift.kind == kind)

    drifts = await drift(other_order, "order")
    assert (drifts.recorded, drifts.now) == (
        ["stock(item='tea')", "stock(item='cake')"],
        ["stock(item='cake')", "stock(item='tea')"],
    )
    drifts = await drift(other_call, "call")
    assert (drifts.what, drifts.recorded, drifts.now) == (
        "its arguments",
        "stock(item='cake')",
        "stock(item='pie')",
    )
    drifts = await drift(other_words, "request")
    assert (drifts.recorded, drifts.now) == ("How much?", "How many?")
    assert RAN == []


async def test_the_last_answer_at_a_limit_replays():
    agent = Agent(ScriptedModel([call("stock", item="tea"), text("I stop.")]), name="shop", tools=[stock])
    async with Runner("memory:") as runner:
        result = await runner.run(agent, "Go.", options=RunOptions(limits=Limits(steps=1)))
        assert result.state == "degraded"
        recording = await record(runner, result.task_id, agent)
    assert (await replay(recording, agent)).drifts == ()


async def test_a_replay_model_makes_the_same_journal_and_answers_only_recorded_requests(recorded):
    recording = await load(recorded)
    model = ReplayModel(recording.events)
    agent = shop(model=model)
    async with Runner("memory:") as runner:
        await runner.import_thread("ann", recording.history)
        first = await runner.run(agent, "Three teas, please.", thread_id="ann")
        RAN.clear()
        second = await runner.run(
            shop(model=ReplayModel(recording.events)), "Three teas, please.", thread_id="ann"
        )
        assert first.final_text == second.final_text == "Three teas are on their way."
        journals = [await journal_of(runner.store, r.task_id) for r in (first, second)]
        assert [e.kind for e in journals[0]] == [e.kind for e in recording.events]
        # The second task begins with the messages of the first, and its parallel calls may end in another order.
        assert len(journals[0]) == len(journals[1])
        more = await runner.fork(first.task_id, agent=agent, input="And a cake.")
        result = await runner.resume(more.task_id, agent=agent)
    assert (result.state, result.error.kind) == ("failed", "invalid_request")
    assert "no answer to turn 4" in result.error.message
    assert len(model.requests) == 6
    with pytest.raises(ConfigurationError, match="beginning with its first event"):
        ReplayModel(recording.events[1:])


async def test_a_file_that_is_no_recording_and_a_task_of_another_agent_are_refused(recorded, tmp_path):
    with pytest.raises(AgentUnknown, match="'shop', not to 'other'"):
        await replay(await load(recorded), Agent(ScriptedModel([]), name="other"))
    bad = tmp_path / "bad"
    bad.write_text("{}\n")
    with pytest.raises(ImportRefused, match="is no recording"):
        await load(bad)
    cut = tmp_path / "cut"
    cut.write_bytes(recorded.read_bytes()[:-300])
    with pytest.raises(ImportRefused):
        await load(cut)


async def test_subagents_answer_as_recorded_and_never_run():
    calls_asked = []

    def finds(request):
        calls_asked.append(request)
        return text("It is in the cellar.")

    finder = Agent(ScriptedModel(finds), name="finder", description="Finds things.")
    boss = Agent(
        ScriptedModel(
            [[call("finder", input="the wine"), call("finder", input="the cheese")], text("Found.")]
        ),
        name="boss",
        subagents=[finder],
    )

    async def asks(ctx: StepContext) -> StepResult:
        return StepResult(await ctx.run_agent("finder", "the wine"), is_last=True)

    own = Agent(ScriptedModel([]), name="own", worker=asks, subagents=[finder])
    async with Runner("memory:") as runner:
        recordings = [await record(runner, (await runner.run(a, "Go.")).task_id, a) for a in (boss, own)]
    assert len(calls_asked) == 3
    for agent, recording in zip((boss, own), recordings, strict=True):
        for run_tools in (False, True):
            report = await replay(recording, agent, run_tools=run_tools)
            assert report.drifts == ()
    assert len(calls_asked) == 3
    other = boss.replace(subagents=[finder.replace(description="Finds people.")])
    (drift,) = (await replay(recordings[0], other)).drifts
    assert drift.what == "tools.finder.description"


async def decided_by_people(runner: Runner) -> str:
    """A task of which one call was approved with other arguments, one denied, and one request expired."""
    careful = shop(
        model=ScriptedModel(
            [
                turn(calls=[call("order", item=item, pieces=3) for item in ("tea", "gold", "cake")]),
                text("Some are on their way."),
            ]
        ),
        tools=[stock, tool(order, needs_approval=True)],
    )
    result = await runner.run(careful, "Order.", options=RunOptions(approval_expires=2.0))
    first, second, _ = result.pending
    await runner.approve(result.task_id, first.request_id, arguments={"item": "tea", "pieces": 2}, by="ann")
    await runner.deny(result.task_id, second.request_id, reason="too dear")
    await asyncio.sleep(2.0)
    assert (await runner.resume(result.task_id)).state == "completed"
    return result.task_id


async def test_what_people_decided_is_decided_again_and_a_denied_call_that_is_not_is_a_drift() -> None:
    async def recorded() -> Any:
        async with clock.runner() as runner:
            return await record(runner, await decided_by_people(runner))

    recording = await asyncio.to_thread(clock.run, recorded())
    RAN.clear()
    for tools in ([stock, tool(order, needs_approval=True)], [stock, order]):
        report = await replay(recording, shop(tools=tools))
        assert [drift for drift in report.drifts if drift.kind != "agent"] == [], report
    assert RAN == []
    denied = next(event for event in recording.events if isinstance(event, ApprovalDenied))
    given = ApprovalGiven(denied.step, denied.call, denied.number, seq=denied.seq, time=denied.time)
    events = tuple(given if event is denied else event for event in recording.events)
    drifts = (await replay(replace(recording, events=events), shop())).drifts
    assert [drift.kind for drift in drifts if drift.kind != "agent"] == ["result"]


@pytest.mark.parametrize("model_calls", [1, 2])
@pytest.mark.parametrize("verdict", ["allow", "ask", "deny"])
async def test_what_a_policy_said_of_requests_to_models_is_said_again(verdict: Any, model_calls: int) -> None:
    asked = Rule("later", verdict, model="*", when={"model_calls": model_calls}, reason="It is dear.")
    agent = Agent(
        ScriptedModel([call("stock", item="tea"), call("stock", item="cake"), "Done."]), tools=[stock]
    )
    async with Runner("memory:", policy=Policy(asked)) as runner:
        result = await runner.run(agent, "Go.")
        if verdict == "ask":
            assert result.state == "paused"
            result = await runner.resume(result.task_id)
        assert result.state == ("failed" if verdict == "deny" else "completed")
        recording = await record(runner, result.task_id, agent)
    report = await replay(recording, agent)
    assert report.ok, report


# ------------------------------------------------------------------------------------------- handoffs


def team(reply: str = "You owe 5.", told: str = "You bill.") -> Agent[Any]:
    billing = Agent(
        ScriptedModel([call("transfer_to_triage"), text(reply)]),
        name="billing",
        instructions=told,
        handoffs=["triage"],
    )
    script = [call("transfer_to_billing", reason="money"), call("transfer_to_billing")]
    return Agent(ScriptedModel(script), name="triage", instructions="You sort.", handoffs=[billing])


async def test_a_task_that_was_handed_over_and_back_goes_as_it_was_recorded() -> None:
    async with Runner("memory:") as runner:
        result = await runner.run(team(), "what do I owe?")
        recording = await record(runner, result.task_id, team())
    assert recording.declaration is not None
    report = await replay(recording, team())
    assert report.ok, str(report)
    assert (report.steps, report.requests) == (4, 4)


async def test_other_instructions_of_the_agent_that_took_over_are_a_drift() -> None:
    async with Runner("memory:") as runner:
        recording = await record(runner, (await runner.run(team(), "go")).task_id)
    report = await replay(recording, team(told="You bill well."))
    assert [drift.what for drift in report.drifts] == ["the instructions of billing"]


async def asking_steps(ctx: StepContext[Any]) -> StepResult:
    first = await ctx.ask("First?", int)
    second = await ctx.ask("Second?", bool, expires=5.0, default=True)
    try:
        third = await ctx.ask("Third?", expires=5.0)
    except QuestionUnanswered:
        third = "none"
    return StepResult(f"{first} {second} {third}", is_last=True)


ASKING_STEPS: Agent[Any] = Agent(ScriptedModel([]), name="steps", worker=asking_steps)
INQUIRING = asker()


@pytest.mark.parametrize(
    ("agent", "run_tools"), [(ASKING_STEPS, False), (INQUIRING, False), (INQUIRING, True)]
)
async def test_what_people_answered_is_answered_again_and_what_expired_expires(
    agent: Agent[Any], run_tools: bool
) -> None:
    async def recorded() -> Any:
        async with clock.runner() as runner:
            result = await runner.run(agent, "Go.")
            await runner.answer(result.task_id, value=7 if agent is ASKING_STEPS else "yes")
            result = await runner.resume(result.task_id)
            while result.state == "waiting":
                await asyncio.sleep(6)
                result = await runner.resume(result.task_id)
            assert result.final_text == ("7 True none" if agent is ASKING_STEPS else "Done.")
            return await record(runner, result.task_id)

    recording = await asyncio.to_thread(clock.run, recorded())
    report = await replay(recording, agent, run_tools=run_tools)
    assert report.ok, report


def hide(request: GuardrailRequest) -> Rewrite | None:
    return Rewrite(request.text.replace("4111", "[card]")) if "4111" in request.text else None


def ask_about_money(request: GuardrailRequest) -> AskPerson | None:
    return AskPerson(reason="money") if "EUR" in request.text else None


def no_insults(request: GuardrailRequest) -> Deny | None:
    return Deny(reason="an insult") if "idiot" in request.text else None


@pytest.mark.parametrize("said", ["Card 4111", "idiot", "5 EUR"])
@pytest.mark.parametrize("on", ["input", "output", "result"])
async def test_a_replay_repeats_what_guardrails_decided_and_asks_none_of_them(on: Any, said: str) -> None:
    @tool(read_only=True)
    def read() -> str:
        """Read."""
        return said if on == "result" else "nothing"

    guardrails = [Guardrail(function, on=on) for function in (hide, ask_about_money, no_insults)]
    script = [call("read"), said if on == "output" else "Done."]
    agent = Agent(ScriptedModel(script), name="desk", tools=[read], guardrails=guardrails)
    async with Runner("memory:", agents=[agent]) as runner:
        result = await runner.run(agent, said if on == "input" else "Go.")
        while result.state == "waiting":
            await runner.approve(result.task_id, by="ann")
            result = await runner.resume(result.task_id)
        assert result.state == ("failed" if said == "idiot" else "completed")
        recorded = await record(runner, result.task_id, agent)
    assert str(await replay(recorded, agent.replace(guardrails=[]))).startswith("task")
    assert (await replay(recorded, agent.replace(guardrails=[]))).drifts == ()
