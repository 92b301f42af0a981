"""The cost of a task: computed when an answer arrives, journalled, added up, shown, and limited."""

import asyncio
from decimal import Decimal
from typing import Any

import pytest

from tests.cast import look
from tests.runner.acts import assert_journal_makes_sense, assert_well_formed, only
from treadle import (
    Agent,
    Limits,
    Message,
    ModelAnswer,
    NextStep,
    Runner,
    RunOptions,
    ScriptedModel,
    StepContext,
    StepResult,
    Text,
)
from treadle.core import events as e
from treadle.core.model import SideCall, TextDelta, ToolCallDelta, Usage
from treadle.errors import ConfigurationError, ModelError, PriceUnknown
from treadle.llm.layers.cache import Cache
from treadle.llm.layers.fallback import Fallback
from treadle.llm.layers.hedge import Hedge
from treadle.llm.scripted import call, fail, text, turn
from treadle.models import OpenAIChat, Price
from treadle.stores.memory import MemoryStore
from treadle.testing.audit.events import limits as audited_limits
from treadle.testing.provider import ProviderServer
from treadle.testing.provider import turn as provider_turn

pytestmark = pytest.mark.anyio

DOLLAR_A_CALL = {"scripted": Price(500, 500)}
"""A dollar for a thousand tokens of input and of output, which is what a scripted request comes to."""


def looker(turns: int = 99, **options: Any) -> Agent[Any]:
    """An agent that looks so many times and then answers; without tools it answers at once. Each answer is a dollar."""

    def say(request: Any) -> Any:
        if not request.tools or request.turn + 1 >= turns:
            return turn(f"answer {request.turn + 1}", usage=Usage(1_000, 1_000))
        return turn("", [call("look")], usage=Usage(1_000, 1_000))

    options.setdefault("limits", Limits(repeats=0))
    return Agent(ScriptedModel(say), name="looker", tools=[look], **options)


def requests_of(agent: Any) -> int:
    return len(agent.model.requests)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


# --------------------------------------------------------------------------------------- what it costs


async def test_a_result_has_the_cost_of_the_task_its_agents_and_each_step(store: Any) -> None:
    prices = {"scripted": Price(3, 15, cached=0.3, cache_write=3.75)}
    script = [
        turn("", [call("look")], usage=Usage(1_000, 100, cached_tokens=600, cache_write_tokens=300)),
        turn("Done.", usage=Usage(2_000, 50, cached_tokens=900)),
    ]
    async with Runner(store, prices=prices) as runner:
        result = await runner.run(Agent(ScriptedModel(script), name="a", tools=[look]), "go")
        # 100 x 3 + 600 x 0.3 + 300 x 3.75 + 100 x 15, and 1,100 x 3 + 900 x 0.3 + 50 x 15, in millionths.
        first, second = Decimal("0.003105"), Decimal("0.00432")
        assert result.cost == result.usage.cost == first + second
        assert result.usage.per_agent["a"].cost == first + second
        assert result.usage.cache_write_tokens == 300
        assert result.usage.unpriced == ()
        steps = await runner.get_completed_steps(result.task_id)
        assert [step.cost for step in steps] == [first, second]
        returned = await only(runner, result.task_id, "model_returned")
        assert [event.cost for event in returned] == [3_105_000_000, 4_320_000_000]
        assert (await runner.get_task(result.task_id)).usage.cost == result.cost


async def test_costs_stay_the_same_when_prices_change(store: Any) -> None:
    async with Runner(store, prices=DOLLAR_A_CALL) as runner:
        result = await runner.run(looker(2), "go")
    for prices in (None, {"scripted": Price(1, 1)}, lambda model, usage: None):
        async with Runner(store, prices=prices) as later:
            assert (await later.result(result.task_id)).cost == result.cost == 2


async def test_a_price_is_asked_once_for_each_answer(store: Any) -> None:
    priced: list[Any] = []

    def price(model: str, usage: Usage) -> Decimal:
        priced.append((model, usage.total_tokens))
        return Decimal("0.1")

    async with Runner(store, prices=price) as runner:
        result = await runner.run(looker(3), "go")
        for _ in range(3):
            await runner.result(result.task_id)
    assert priced == [("scripted", 2_000)] * 3
    assert result.cost == Decimal("0.3"), "three tenths of a dollar, and not 0.30000000000000004"


async def test_one_answer_without_a_price_leaves_the_cost_unknown_and_names_the_model(store: Any) -> None:
    """Unknown is None and never 0, also when the rest is known."""

    class Two(ScriptedModel):
        async def stream(self, request: Any) -> Any:
            async for item in super().stream(request):
                if isinstance(item, ModelAnswer) and request.turn == 1:
                    item.model = "missing:knows"
                yield item

    used = Usage(1_000, 1_000)
    looks = turn("", [call("look")], usage=used)
    model = Two([looks, looks, turn("Done.", usage=used)])
    async with Runner(store, prices=DOLLAR_A_CALL) as runner:
        result = await runner.run(Agent(model, name="two", tools=[look]), "go")
        assert (result.cost, result.usage.cost) == (None, None)
        assert result.usage.unpriced == ("missing:knows",)
        steps = await runner.get_completed_steps(result.task_id)
        assert [step.cost for step in steps] == [1, None, 1]
        returned = await only(runner, result.task_id, "model_returned")
        assert [event.cost for event in returned] == [10**12, None, 10**12]


async def test_a_model_that_is_free_has_a_price_of_zero(store: Any) -> None:
    async with Runner(store, prices={"scripted": Price(0, 0)}) as runner:
        assert (await runner.run(looker(2), "go")).cost == 0
    async with Runner(store) as runner:
        assert (await runner.run(looker(2), "go")).cost is None


async def test_a_task_that_asked_no_model_cost_nothing(store: Any) -> None:
    async def own(ctx: StepContext) -> StepResult:
        return StepResult("done", is_last=True)

    async with Runner(store) as runner:
        assert (await runner.run(Agent(ScriptedModel([]), name="own", worker=own), "go")).cost == 0


async def test_side_requests_are_counted_and_paid_for(store: Any) -> None:
    class Hedged:
        name = "a:1"

        async def stream(self, request: Any) -> Any:
            if request.attempt == 1:
                lost = SideCall("b:2", Usage(5, 0))
                raise ModelError("busy", kind="overloaded", again_in=0, also=(lost,), usage=Usage(7, 0))
            also = (SideCall("b:2", Usage(20, 0)), SideCall("c:3", error="refused"))
            yield ModelAnswer(Message("assistant", (Text("Hello."),)), usage=Usage(10, 0), also=also)

    def price(model: str, usage: Usage) -> Decimal:
        return usage.input_tokens * {"a:1": Decimal(1), "b:2": Decimal(10)}[model]

    async with Runner(store, prices=price) as runner:
        result = await runner.run(Agent(Hedged(), name="h"), "go")
        assert result.final_text == "Hello."
        assert result.usage.model_calls == 2 + 3
        assert result.usage.input_tokens == 5 + 7 + 10 + 20
        assert result.cost == 7 + 50 + 10 + 200
        (step,) = await runner.get_completed_steps(result.task_id)
        assert step.cost == result.cost
        await assert_journal_makes_sense(runner, result.task_id)


async def test_an_answer_of_a_provider_costs_what_it_publishes(store: Any) -> None:
    used = Usage(1_000, 100, cached_tokens=500)
    with ProviderServer([provider_turn("Hello.", usage=used)]) as server:
        model = OpenAIChat("gpt-5.4-mini", base_url=server.openai_base_url, api_key="made-up")
        async with Runner(store, options=RunOptions(limits=Limits(cost=1))) as runner:
            result = await runner.run(Agent(model, name="a"), "go")
    assert (result.usage.cached_tokens, result.cost) == (500, Decimal("0.0008625"))


async def test_tokens_a_model_does_not_tell_are_estimated_and_flagged(store: Any) -> None:
    class Silent:
        name = "silent"

        def __init__(self, usage: Usage | None = None) -> None:
            self.usage = usage

        async def stream(self, request: Any) -> Any:
            answer = ModelAnswer(Message("assistant", (Text("A word or two."),)))
            if self.usage is not None:
                answer.usage = self.usage
            yield answer

    async with Runner(store, prices={"silent": Price(1, 1)}) as runner:
        result = await runner.run(Agent(Silent(), name="s"), "Say a word or two, please.")
        assert result.usage.estimated
        assert result.usage.input_tokens > 5
        assert result.usage.output_tokens > 3
        assert result.cost == Decimal(result.usage.total_tokens) / 10**6
        none = await runner.run(Agent(Silent(Usage(0, 0)), name="s"), "Say it from memory.")
        assert (none.usage.estimated, none.usage.total_tokens, none.cost) == (False, 0, 0)


async def test_an_answer_of_no_use_was_paid_for_too(store: Any) -> None:
    class Wrong:
        name = "wrong"

        async def stream(self, request: Any) -> Any:
            yield ModelAnswer(Message("assistant", ("no part",)), usage=Usage(10, 0))  # type: ignore[arg-type]

    async with Runner(store, prices={"wrong": Price(100_000, 0)}) as runner:
        result = await runner.run(Agent(Wrong(), name="w"), "go")
        assert (result.state, result.cost, result.usage.input_tokens) == ("failed", 1, 10)


class BreaksOff:
    """A model that writes 300 characters and then waits for ever, or fails; `wrote` is set by then."""

    name = "breaks_off"

    def __init__(self, *, fails: bool = False) -> None:
        self.fails, self.wrote = fails, asyncio.Event()

    async def stream(self, request: Any) -> Any:
        yield TextDelta("x" * 200)
        yield ToolCallDelta(0, "look", "y" * 96)
        self.wrote.set()
        if self.fails:
            raise ModelError("reset", kind="connection")
        await asyncio.Event().wait()


STOPPED = e.ModelStopped("s1", "interrupted", usage=Usage(10, 5, estimated=True), cost=10**12)
BROKEN_OFF = {"breaks_off": Price(1, 1_000_000)}
"""A dollar for each token of output; the input costs next to nothing."""


@pytest.mark.parametrize("end", ["fail", "pause", "cancel"])
async def test_an_answer_that_broke_off_is_not_recorded_with_no_tokens(store: Any, end: str) -> None:
    model = BreaksOff(fails=end == "fail")
    async with Runner(store, prices=BROKEN_OFF) as runner:
        handle = await runner.start(Agent(model, name="b", tools=[look]), "Write a long letter.", task_id="t")
        await model.wrote.wait()
        if end == "cancel":
            await handle.cancel()
        elif end == "pause":
            await handle.interrupt()
        result = await handle.result()
        [ended] = [
            event
            async for event in handle.events(deltas=False)
            if isinstance(event, (e.ModelFailed, e.ModelStopped))
        ]
        assert isinstance(ended, e.ModelFailed if end == "fail" else e.ModelStopped)
        assert ended.usage.estimated
        assert ended.usage.output_tokens >= 300 // 3
        assert ended.usage.input_tokens > 5
        assert result.usage.estimated
        assert result.usage.output_tokens == ended.usage.output_tokens
        assert result.cost is not None
        assert result.cost >= 100
        total = (await runner.usage()).total
        assert (total.tokens, total.cost) == (ended.usage.total_tokens, result.cost)
        await assert_journal_makes_sense(runner, "t")


async def test_an_answer_that_was_interrupted_counts_against_the_limits(store: Any) -> None:
    model = BreaksOff()
    limits = Limits(tokens=100)
    async with Runner(store) as runner:
        handle = await runner.start(
            Agent(model, name="b"), "go", task_id="t", options=RunOptions(limits=limits, on_limit="fail")
        )
        await model.wrote.wait()
        await handle.interrupt()
        await handle.result()
        result = await runner.resume("t")
        assert result.state == "failed"
        assert [event.limit async for event in handle.events() if isinstance(event, e.LimitReached)] == [
            "tokens"
        ]
        await assert_journal_makes_sense(runner, "t")


async def test_an_attempt_whose_answer_had_not_begun_is_free(store: Any) -> None:
    agent = Agent(ScriptedModel([fail(503)]), name="never")
    async with Runner(store, prices=DOLLAR_A_CALL) as runner:
        result = await runner.run(agent, "go")
        assert (result.state, result.usage.total_tokens, result.usage.estimated) == ("failed", 0, False)


async def test_an_undo_refunds_nothing_and_a_fork_begins_with_the_cost_of_its_past(store: Any) -> None:
    async with Runner(store, prices=DOLLAR_A_CALL) as runner:
        task = await runner.create_task(looker(), "go")
        await runner.run_step(task)
        await runner.run_step(task)
        await runner.undo_step(task)
        assert (await runner.result(task)).cost == 2
        fork = await runner.fork(task)
        assert (await runner.result(fork)).cost == 1, "it begins where its last step had ended"
        assert (await runner.run_step(fork)).cost == 1
        assert (await runner.result(fork)).cost == 2
        assert (await runner.result(task)).cost == 2


async def test_steps_that_run_beside_each_other_add_up(store: Any) -> None:
    async def own(ctx: StepContext) -> StepResult:
        if ctx.name == "start":
            return StepResult(next_steps=[NextStep("a"), NextStep("b"), NextStep("end", after=("a", "b"))])
        answer = await ctx.call_model([Message("user", (Text(ctx.name),))])
        return StepResult(answer.message.text, is_last=ctx.name == "end")

    def say(request: Any) -> Any:
        return turn("x", usage=Usage(1_000, 1_000))

    agent = Agent(ScriptedModel(say), name="own", worker=own)
    async with Runner(store, prices=DOLLAR_A_CALL) as runner:
        result = await runner.run(agent, "go")
        assert (result.state, result.cost) == ("completed", 3)
        steps = await runner.get_completed_steps(result.task_id)
        assert sorted(step.cost or 0 for step in steps) == [0, 1, 1, 1]


# ---------------------------------------------------------------------------------------------- limits

STATES = {"final_answer": "degraded", "fail": "failed", "pause": "paused"}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("on_limit", ["final_answer", "fail", "pause"])
@pytest.mark.parametrize("dollars", [0, 0.5, 1, 1.5, 2, 5])
async def test_a_limit_is_overrun_by_at_most_the_request_in_flight(
    store: Any, dollars: float, on_limit: Any
) -> None:
    agent = looker()
    options = RunOptions(limits=Limits(cost=dollars), on_limit=on_limit)
    async with Runner(store, prices=DOLLAR_A_CALL) as runner:
        result = await runner.run(agent, "go", options=options)
        assert result.state == STATES[on_limit]
        assert result.cost is not None
        assert result.cost == requests_of(agent)
        assert result.cost < dollars + 1
        if on_limit == "final_answer" and dollars > 1:
            assert result.final_text == f"answer {requests_of(agent)}", "the last answer was kept back for"
        reached = await only(runner, result.task_id, "limit_reached")
        assert [(event.limit, event.allowed) for event in reached] == [("cost", dollars)]
        assert_well_formed(result.messages)
        await assert_journal_makes_sense(runner, result.task_id)


async def test_a_raised_limit_lets_the_task_go_on(store: Any) -> None:
    async with Runner(store, prices=DOLLAR_A_CALL) as runner:
        first = await runner.run(looker(4), "go", options=RunOptions(limits=Limits(cost=2)))
        assert first.state == "degraded"
        result = await runner.resume(first.task_id, options=RunOptions(limits=Limits(cost=Decimal("9.5"))))
        assert (result.state, result.degraded_reasons) == ("completed", ())
        await assert_journal_makes_sense(runner, first.task_id)


async def test_parallel_requests_reserve_the_size_of_the_newest_request(store: Any) -> None:
    """A task that knows the cost of a request begins no more requests than the limit pays for."""

    async def own(ctx: StepContext) -> StepResult:
        if ctx.name == "start":
            await ctx.call_model([Message("user", (Text("how much?"),))])
            return StepResult(next_steps=[NextStep(f"n{n}") for n in range(20)])
        await ctx.call_model([Message("user", (Text(ctx.name),))])
        return StepResult(ctx.name)

    model = ScriptedModel(lambda request: turn("x", usage=Usage(1_000, 1_000), delay=0.01))
    async with Runner(store, prices=DOLLAR_A_CALL) as runner:
        options = RunOptions(limits=Limits(cost=5))
        result = await runner.run(Agent(model, name="own", worker=own), "go", options=options)
        assert (result.state, result.degraded_reasons) == ("degraded", ("limit reached: cost",))
        assert (result.cost, len(model.requests)) == (5, 5)


async def test_a_limit_is_overrun_by_parallel_requests_of_unknown_size(store: Any) -> None:
    async def own(ctx: StepContext) -> StepResult:
        if ctx.name == "start":
            return StepResult(next_steps=[NextStep(f"n{n}") for n in range(20)])
        for again in range(3):
            await ctx.call_model([Message("user", (Text(f"{ctx.name} {again}"),))])
        return StepResult(ctx.name)

    model = ScriptedModel(lambda request: turn("x", usage=Usage(1_000, 1_000), delay=0.01))
    async with Runner(store, prices=DOLLAR_A_CALL) as runner:
        options = RunOptions(limits=Limits(cost=5), max_parallel_steps=8)
        result = await runner.run(Agent(model, name="own", worker=own), "go", options=options)
        assert result.state == "degraded"
        assert len(model.requests) == 8, "those in flight when the first price was known, and no more"


@pytest.mark.parametrize("given", ["agent", "runner", "run"])
async def test_a_limit_without_a_price_is_refused_before_there_is_a_task(store: Any, given: str) -> None:
    limits = Limits(cost=1)
    agent = looker(limits=limits) if given == "agent" else looker()
    async with Runner(store, options=RunOptions(limits=limits) if given == "runner" else None) as runner:
        with pytest.raises(PriceUnknown, match=r"'scripted'.*Runner\(prices=\{'scripted': Price\(") as caught:
            await runner.run(agent, "go", options=RunOptions(limits=limits) if given == "run" else None)
        assert isinstance(caught.value, ConfigurationError)
        assert caught.value.model == "scripted"
        assert (await runner.list_tasks()).items == ()
    assert requests_of(agent) == 0


async def test_every_model_inside_needs_a_price(store: Any) -> None:
    class Either:
        name = "a:1"

        def __init__(self, *models: Any) -> None:
            self.models = models

        async def stream(self, request: Any) -> Any:
            raise AssertionError("it is not asked")
            yield

    class Around:
        def __init__(self, model: Any) -> None:
            self.model = model
            self.name = model.name

        stream = Either.stream

    first, second = ScriptedModel([], name="a:1"), ScriptedModel([], name="b:2")
    for inside in (
        Around(Either(Around(first), second)),
        Fallback([first, second]),
        Hedge(first, after=1, other=second),
    ):
        async with Runner(store, prices={"a:1": Price(1, 1)}) as runner:
            with pytest.raises(PriceUnknown, match="'b:2'"):
                await runner.run(Agent(inside, name="x"), "go", options=RunOptions(limits=Limits(cost=1)))


async def test_agents_that_may_be_called_need_a_price_too(store: Any) -> None:
    helper = Agent(ScriptedModel(["Done."], name="other"), name="helper")
    chief = Agent(ScriptedModel([call("helper", input="go"), "Done."]), name="chief", subagents=[helper])
    limited = RunOptions(limits=Limits(cost=5))
    async with Runner(store, prices=DOLLAR_A_CALL) as runner:
        with pytest.raises(PriceUnknown, match="'other'"):
            await runner.run(Agent(ScriptedModel([]), name="top", subagents=[chief]), "go", options=limited)
        task = (await runner.run(chief, "go")).task_id
        await runner.undo_step(task)
    async with Runner(store, agents=[chief], prices={**DOLLAR_A_CALL, "other": Price(1, 1)}) as later:
        with pytest.raises(PriceUnknown, match="from 'other' is unknown"):
            await later.resume(task, options=limited)


async def test_a_cached_answer_costs_nothing_and_is_not_an_estimate(store: Any) -> None:
    agent = Agent(Cache(ScriptedModel(lambda request: turn("Hello.", usage=Usage(1_000, 1_000)))), name="c")
    async with Runner(store, prices=DOLLAR_A_CALL) as runner:
        first, second = await runner.run(agent, "go"), await runner.run(agent, "go")
    assert (first.cost, second.cost) == (1, 0)
    assert (second.usage.total_tokens, second.usage.estimated) == (0, False)


async def test_a_hedge_that_lost_is_paid_for_by_an_estimate(store: Any) -> None:
    slow = ScriptedModel([text("Too late.", delay=30)], name="slow")
    quick = ScriptedModel([turn("Hello.", usage=Usage(10, 0))], name="quick")
    prices = {"slow": Price(1, 1), "quick": Price(100_000, 0)}
    async with Runner(store, prices=prices) as runner:
        result = await runner.run(Agent(Hedge(slow, after=0.01, other=quick), name="h"), "Say hello.")
    assert (result.final_text, result.usage.model_calls, result.usage.estimated) == ("Hello.", 2, True)
    assert result.cost is not None
    assert 1 < result.cost < Decimal("1.001")


async def test_a_limit_without_a_price_is_refused_when_resuming(store: Any) -> None:
    async with Runner(store, prices=DOLLAR_A_CALL) as runner:
        pause = RunOptions(limits=Limits(cost=1), on_limit="pause")
        task = (await runner.run(looker(), "go", options=pause)).task_id
        plain = await runner.create_task(looker(), "go")
    agent = looker()
    async with Runner(store, agents=[agent]) as runner:
        for one in (task, plain.task_id):
            with pytest.raises(PriceUnknown):
                await runner.resume(one, options=RunOptions(limits=Limits(cost=9)))
        assert requests_of(agent) == 0
        assert (await runner.result(task)).state == "paused"
        tokens = RunOptions(limits=Limits(tokens=40))
        assert (await runner.resume(task, options=tokens)).state == "paused", (
            "a limit on tokens needs no price"
        )


async def test_a_task_that_spent_before_there_was_a_price_cannot_have_a_cost_limit(store: Any) -> None:
    async with Runner(store) as runner:
        task = await runner.create_task(looker(), "go")
        await runner.run_step(task)
    async with Runner(store, agents=[looker()], prices=DOLLAR_A_CALL) as runner:
        with pytest.raises(PriceUnknown, match=r"from 'scripted' is unknown\. .*Limit tokens instead"):
            await runner.resume(task, options=RunOptions(limits=Limits(cost=9)))


async def test_an_answer_whose_cost_turns_out_unknown_reaches_the_limit(store: Any) -> None:
    def price(model: str, usage: Usage) -> Decimal | None:
        return Decimal(1) if usage.total_tokens == 2 else None  # only what is asked beforehand has a price

    agent = looker()
    async with Runner(store, prices=price) as runner:
        result = await runner.run(agent, "go", options=RunOptions(limits=Limits(cost=5)))
        assert (result.state, requests_of(agent), result.cost) == ("degraded", 1, None)
        assert "the cost is not known" in result.degraded_reasons[0]


async def test_a_limit_holds_for_the_last_answer_which_has_a_request_kept_back_for_it(store: Any) -> None:
    agent = looker()
    async with Runner(store, prices=DOLLAR_A_CALL) as runner:
        result = await runner.run(agent, "go", options=RunOptions(limits=Limits(cost=4)))
        assert (result.state, result.final_text, result.cost) == ("degraded", "answer 4", 4)
        spare = [request.spare_calls for request in agent.model.requests]
        assert spare == [1, 2, 1, 0], "how many more fit in beside it, once one has been answered"
        again = await runner.resume(result.task_id)
        assert (again.state, requests_of(agent)) == ("degraded", 4), "nothing was left"


@pytest.mark.parametrize(
    ("end", "limits", "ends", "findings"),
    [
        (e.ModelReturned("s1", Message("assistant", ()), cost=10**12), {"cost": 2.0}, 2, 0),
        (e.ModelReturned("s1", Message("assistant", ()), cost=10**12), {"cost": 2.0}, 3, 1),
        (STOPPED, {"tokens": 30, "cost": 2.0}, 2, 0),
        (STOPPED, {"tokens": 30, "cost": 2.0}, 3, 2),
    ],
)
def test_the_auditor_sees_a_request_beyond_what_may_be_spent_on_whole_and_stopped_answers(
    end: Any, limits: Any, ends: int, findings: int
) -> None:
    events = [
        e.TaskCreated("a", (), "t", options={"limits": limits}),
        *[e.ModelStarted("s1", "m"), end] * ends,
    ]
    assert len(list(audited_limits("t", events))) == findings


async def test_text_alone_needs_no_price(store: Any) -> None:
    agent = Agent(ScriptedModel([text("Hello.")]), name="plain")
    async with Runner(store) as runner:
        result = await runner.run(agent, "go", options=RunOptions(limits=Limits(tokens=100)))
        assert (result.state, result.usage.unpriced) == ("completed", ("scripted",))
