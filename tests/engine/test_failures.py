"""What failures of models and tools do to a task, under each policy, and what a resume repeats."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from tests.runner.acts import assert_journal_makes_sense, assert_well_formed, kinds, only, results_seen
from treadle import Agent, FailurePolicy, Runner, RunOptions, ScriptedModel, tool
from treadle.errors import TaskFailed
from treadle.llm.scripted import call, call_raw, fail, text, turn
from treadle.testing.audit import audit_store

pytestmark = pytest.mark.anyio


def policy(**sources: Any) -> RunOptions:
    return RunOptions(on_failure=FailurePolicy(**sources))


class Shop:
    """Tools: `look` reads, `charge` writes; `broken` says which calls raise, and how often."""

    def __init__(self, *script: Any, **broken: int) -> None:
        self.ledger: Counter[str] = Counter()
        self.keys: list[tuple[str, str, int]] = []
        self.broken = broken

        @tool(read_only=True)
        async def look() -> str:
            return self.work("look")

        @tool
        async def charge() -> str:
            return self.work("charge")

        @tool(idempotent=True)
        async def order(ctx: Any = None) -> str:
            return self.work("order")

        self.model = ScriptedModel(list(script))
        self.agent = Agent(self.model, name="shop", tools=[look, charge, order])

    def work(self, name: str) -> str:
        self.ledger[name] += 1
        if self.broken.get(name, 0) >= self.ledger[name]:
            raise ConnectionError(f"{name} is down")
        return f"{name} done"


# ------------------------------------------------------------------------------------------ the model

STATUS = [
    (400, "invalid_request"),
    (401, "authentication"),
    (403, "permission"),
    (404, "not_found"),
    (429, "rate_limit"),
    (500, "server"),
    (529, "overloaded"),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("status", "kind"), STATUS)
async def test_a_model_error_fails_the_task_with_its_kind_and_status(
    runner: Runner, status: int, kind: str
) -> None:
    agent = Agent(ScriptedModel([fail(status, retry_after=7, message="no, said the provider"), "Hi."]))
    result = await runner.run(agent, "go")
    assert result.state == "failed"
    error = result.error
    assert error is not None
    assert (error.source, error.kind, error.status, error.retry_after) == ("model", kind, status, 7)
    assert error.message == "no, said the provider"
    assert result.final_text == ""
    assert result.output is None
    with pytest.raises(TaskFailed, match="no, said the provider"):
        result.raise_for_state()
    assert await runner.get_thread(result.thread_id) == ()
    assert len(agent.model.requests) == 1  # type: ignore[union-attr]


async def test_resume_of_a_failed_task_asks_the_model_again_and_repeats_no_tool(runner: Runner) -> None:
    shop = Shop(turn(calls=[call("look"), call("charge")]), fail(500), fail(500), "Done.")
    first = await runner.run(shop.agent, "go")
    assert first.state == "failed"
    second = await runner.resume(first.task_id)
    assert (second.state, second.attempt) == ("failed", 2)
    third = await runner.resume(first.task_id)
    assert (third.state, third.final_text, third.attempt) == ("completed", "Done.", 3)
    assert shop.ledger == {"look": 1, "charge": 1}
    assert third.error is None
    assert [request.attempt for request in shop.model.requests] == [1, 1, 2, 3]
    assert third.usage.model_calls == 4
    assert_well_formed(third.messages)
    await assert_journal_makes_sense(runner, first.task_id)


async def test_a_failed_model_degrades_the_task_to_its_partial_answer(runner: Runner) -> None:
    shop = Shop(turn("So far so good.", call("look")), fail(500, message="down"))
    result = await runner.run(shop.agent, "go", options=policy(model="degrade"))
    assert (result.state, result.final_text) == ("degraded", "So far so good.")
    assert result.degraded_reasons == ("the model failed: down",)
    assert_well_formed(result.messages)
    assert await runner.get_thread(result.thread_id)


async def test_a_failed_model_pauses_the_task_and_a_resume_asks_again(runner: Runner) -> None:
    shop = Shop(call("look"), fail(500, message="down"), fail(500), "Done.")
    paused = await runner.run(shop.agent, "go", options=policy(model="pause"))
    assert paused.state == "paused"
    assert (await runner.resume(paused.task_id)).state == "paused"
    result = await runner.resume(paused.task_id)
    assert (result.state, result.attempt) == ("completed", 1)
    assert shop.ledger == {"look": 1}
    await assert_journal_makes_sense(runner, paused.task_id)


class OddModel:
    """A model that breaks its contract."""

    name = "odd"

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error

    async def stream(self, request: Any) -> Any:
        from treadle import TextDelta

        yield TextDelta("Half an ans")
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize(
    "error",
    [
        None,
        RuntimeError("odd"),
        KeyError("k"),
        GeneratorExit("out"),
        BaseExceptionGroup("g", [ValueError("v")]),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_model_that_raises_anything_or_just_ends_fails_the_task(runner: Runner, error: Any) -> None:
    result = await runner.run(Agent(OddModel(error)), "go")  # type: ignore[arg-type]
    assert result.state == "failed"
    assert result.error is not None
    assert result.error.source == "model"
    assert result.final_text == ""
    assert "Half" not in result.error.message
    await assert_journal_makes_sense(runner, result.task_id)


async def test_a_model_error_after_some_text_discards_the_text(runner: Runner) -> None:
    agent = Agent(ScriptedModel([fail(kind="connection", after="Half an ans"), "A whole answer."]))
    first = await runner.run(agent, "go")
    assert first.error is not None
    assert (first.state, first.error.kind) == ("failed", "connection")
    result = await runner.resume(first.task_id)
    assert [message.text for message in result.messages] == ["go", "A whole answer."]


@pytest.mark.parametrize(
    ("finish", "reason"), [("length", "cut off"), ("content_filter", "filtered"), ("refusal", "refused")]
)
async def test_a_truncated_filtered_or_refused_answer_is_degraded_with_the_reason(
    runner: Runner, finish: Any, reason: str
) -> None:
    result = await runner.run(Agent(ScriptedModel([turn("Well, I", finish=finish)])), "go")
    assert (result.state, result.final_text) == ("degraded", "Well, I")
    assert len(result.degraded_reasons) == 1
    assert reason in result.degraded_reasons[0]


@pytest.mark.parametrize("finish", ["length", "content_filter", "refusal", "error", "unknown"])
async def test_calls_of_a_broken_answer_never_become_actions(runner: Runner, finish: Any) -> None:
    shop = Shop(turn("", [call("charge"), call("look")], finish=finish), "I see.")
    result = await runner.run(shop.agent, "go")
    assert shop.ledger == {}
    assert [run.outcome for run in result.tool_executions] == ["invalid", "invalid"]
    assert "tool_started" not in await kinds(runner, result.task_id)
    assert result.state == "completed"
    assert_well_formed(result.messages)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("raw", ['{"x": 1', "", "[1]", "null", '"text"', '{"x": 1}}', "NaN", "{'x': 1}"])
async def test_arguments_that_are_not_an_object_go_back_to_the_model(runner: Runner, raw: str) -> None:
    seen: list[int] = []

    @tool
    async def take(x: int) -> str:
        seen.append(x)
        return "taken"

    agent = Agent(ScriptedModel([call_raw("take", raw), call("take", x=2), "Done."]), tools=[take])
    result = await runner.run(agent, "go")
    assert result.state == "completed"
    assert seen == [2]
    assert [run.outcome for run in result.tool_executions] == ["invalid", "ok"]
    assert "take was not run" in results_seen(agent.model.requests[1].messages)[0]  # type: ignore[union-attr]
    assert_well_formed(result.messages)


async def test_wrong_arguments_and_unknown_tools_go_back_with_a_hint(runner: Runner) -> None:
    shop = Shop(turn(calls=[call("lok"), call("look", far=True), call("look")]), "Done.")
    result = await runner.run(shop.agent, "go")
    results = results_seen(shop.model.requests[1].messages)
    assert "Did you mean 'look'?" in results[0]
    assert "far" in results[1]
    assert results[2] == "look done"
    assert [run.outcome for run in result.tool_executions] == ["invalid", "invalid", "ok"]
    assert len(await only(runner, result.task_id, "tool_started")) == 1


# ------------------------------------------------------------------------------------------ the tools


async def test_the_model_sees_the_error_of_a_tool_as_an_error(runner: Runner) -> None:
    shop = Shop(call("charge"), "Sorry.", charge=9)
    result = await runner.run(shop.agent, "go")
    assert (result.state, result.degraded_reasons) == ("completed", ())
    (run,) = result.tool_executions
    assert run.outcome == "error"
    assert run.error is not None
    assert run.error.message == "ConnectionError: charge is down"
    part: Any = shop.model.requests[1].messages[-1].parts[0]
    assert part.is_error
    assert part.text == "ConnectionError: charge is down"


async def test_a_tools_failure_may_degrade_the_task(runner: Runner) -> None:
    shop = Shop(call("charge"), "Sorry.", charge=9)
    result = await runner.run(shop.agent, "go", options=policy(tool="degrade"))
    assert (result.state, result.final_text) == ("degraded", "Sorry.")
    assert result.degraded_reasons == ("charge failed: ConnectionError: charge is down",)


async def test_a_tools_failure_may_fail_the_task_and_a_resume_repeats_only_that_call(runner: Runner) -> None:
    shop = Shop(turn(calls=[call("look"), call("charge"), call("order")]), "Done.", order=1)
    first = await runner.run(shop.agent, "go", options=policy(tool="fail"))
    assert first.state == "failed"
    assert first.error is not None
    assert (first.error.source, first.error.message) == ("tool", "ConnectionError: order is down")
    assert len(shop.model.requests) == 1
    result = await runner.resume(first.task_id)
    assert (result.state, result.final_text) == ("completed", "Done.")
    assert shop.ledger == {"look": 1, "charge": 1, "order": 2}
    assert len(shop.model.requests) == 2
    assert results_seen(shop.model.requests[1].messages) == ["look done", "charge done", "order done"]
    assert_well_formed(result.messages)
    await assert_journal_makes_sense(runner, first.task_id)


async def test_a_failed_tool_may_pause_the_task_and_the_model_sees_it_after_the_resume(
    runner: Runner,
) -> None:
    shop = Shop(turn(calls=[call("look"), call("charge")]), "Sorry.", charge=9)
    paused = await runner.run(shop.agent, "go", options=policy(tool="pause"))
    assert paused.state == "paused"
    assert len(shop.model.requests) == 1
    result = await runner.resume(paused.task_id)
    assert result.state == "completed"
    assert shop.ledger == {"look": 1, "charge": 1}


async def test_a_repeated_call_keeps_the_idempotency_key_of_the_one_that_failed(runner: Runner) -> None:
    from treadle import ToolContext

    keys: list[str] = []

    @tool(idempotent=True)
    async def pay(ctx: ToolContext[Any]) -> str:
        keys.append(ctx.idempotency_key)
        if len(keys) < 3:
            raise TimeoutError("no answer; perhaps it was paid")
        return "paid"

    agent = Agent(ScriptedModel([call("pay"), "Done."]), name="payer", tools=[pay])
    first = await runner.run(agent, "go", options=policy(tool="fail"))
    assert (await runner.resume(first.task_id)).state == "failed"
    assert (await runner.resume(first.task_id)).state == "completed"
    assert keys == [f"{first.task_id}/s1-0"] * 3


async def test_the_text_of_a_result_is_never_error_prose(runner: Runner) -> None:
    """However a task ends, `final_text` is text of the model or empty."""
    for script, options in (
        ([fail(500)], RunOptions()),
        ([fail(500)], policy(model="degrade")),
        ([call("charge"), fail(500)], policy(model="degrade")),
        ([call("charge"), "x"], policy(tool="fail")),
    ):
        shop = Shop(*script, charge=9)
        result = await runner.run(shop.agent, "go", options=options)
        assert result.final_text == ""
        assert result.state in ("failed", "degraded")


async def test_a_text_answer_with_delay_still_fails_only_once(runner: Runner) -> None:
    agent = Agent(ScriptedModel([fail(503, delay=0.01), text("Hi.")]))
    first = await runner.run(agent, "go")
    events = await kinds(runner, first.task_id)
    assert events.count("model_failed") == events.count("step_failed") == events.count("task_ended") == 1


async def test_messages_sent_before_a_failed_call_is_retried_follow_its_result(runner: Runner) -> None:
    began, broken = asyncio.Event(), True

    @tool
    async def save() -> str:
        began.set()
        await asyncio.sleep(60)
        return "saved"

    @tool(read_only=True)
    async def look() -> str:
        if broken:
            raise RuntimeError("broken")
        return "seen"

    options = RunOptions(on_failure=FailurePolicy(tool="fail"), on_unknown_outcome="fail")
    agent = Agent(ScriptedModel([turn(calls=[call("save"), call("look")]), "Done."]), tools=[save, look])
    handle = await runner.start(agent, "go", options=options)
    await began.wait()
    await runner.send(handle.task_id, "quick")
    assert (await handle.interrupt()).state == "interrupted"
    assert (await runner.resume(handle.task_id)).state == "failed"  # the outcome of `save` is not known
    assert (await runner.resume(handle.task_id)).state == "failed"  # `look` is broken
    broken = False
    result = await runner.resume(handle.task_id)
    assert [message.role for message in result.messages] == ["user", "assistant", "tool", "user", "assistant"]
    assert result.messages[3].text == "quick"
    assert await audit_store(runner.store) == []


async def test_a_call_of_unknown_outcome_is_not_made_again_with_a_failed_sibling(runner: Runner) -> None:
    entered: list[str] = []

    @tool(timeout=0.05)
    async def pay() -> str:
        entered.append("pay")
        await asyncio.sleep(60)
        return "paid"

    shop = Shop(turn("both", [call("pay"), call("look")]), text("Done."), look=1)
    agent = Agent(shop.model, name="shop", tools=[*shop.agent.tools, pay])
    options = RunOptions(on_failure=FailurePolicy(tool="fail"), on_unknown_outcome="tell_model")
    first = await runner.run(agent, "Buy", options=options, task_id="t")
    assert (first.state, [run.outcome for run in first.tool_executions]) == ("failed", ["unknown", "error"])
    async with asyncio.timeout(20):
        again = await runner.resume("t", agent=agent)
    assert (again.state, entered, shop.ledger["look"]) == ("completed", ["pay"], 2)
    assert [run.outcome for run in again.tool_executions] == ["unknown", "ok"]
    assert await audit_store(runner.store) == []
