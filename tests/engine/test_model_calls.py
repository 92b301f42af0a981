"""A failed model call is retried when a layer says so: the engine waits, and the journal holds each attempt."""

import asyncio

import pytest

from tests.cast import look
from tests.engine.timed_models import IN_TIME, SECOND, Again, Timed, asks_or_works
from tests.runner.acts import journal
from treadle import (
    Agent,
    FailurePolicy,
    Limits,
    ModelSettings,
    Runner,
    RunOptions,
    ScriptedModel,
    StepContext,
    StepResult,
    tool,
)
from treadle.core.messages import Message, Text
from treadle.core.model import ModelAnswer, SideCall, TextDelta, Usage
from treadle.errors import ModelError, TaskParked
from treadle.models import Fallback, Retry, call, fail, text
from treadle.testing import clock
from treadle.testing.audit import audit_store

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


def kinds(events):
    return [event.kind for event in events]


async def test_a_failed_question_is_asked_again_after_the_wait_and_each_attempt_is_in_the_journal(
    runner: Runner,
):
    model = Again([fail(503), fail(429), text("Here.")], [2.0, 30.0])
    began = asyncio.get_running_loop().time()
    result = await runner.run(Agent(model), "Where?", task_id="t")
    assert asyncio.get_running_loop().time() - began == pytest.approx(32.0, abs=0.01)
    assert (result.state, result.final_text, result.usage.model_calls) == ("completed", "Here.", 3)
    events = await journal(runner, "t")
    at = [
        kind for kind in kinds(events) if kind.startswith("model") or kind in ("timer_fired", "step_failed")
    ]
    assert at == [
        *("model_started", "model_failed", "timer_fired"),
        *("model_started", "model_failed", "timer_fired"),
        *("model_started", "model_returned"),
    ]
    failed = [event for event in events if event.kind == "model_failed"]
    assert [event.retry_at - event.time for event in failed] == [
        pytest.approx(2 * SECOND, abs=1_000),
        pytest.approx(30 * SECOND, abs=1_000),
    ]
    assert [event.attempt for event in events if event.kind == "model_started"] == [1, 2, 3]
    last = model.requests[-1]
    assert [(f.kind, f.status, f.model) for f in last.failures] == [
        ("overloaded", 503, model.name),
        ("rate_limit", 429, model.name),
    ]
    assert last.asked_at == next(event.time for event in events if event.kind == "model_started")
    assert await audit_store(runner.store) == []


async def test_an_answer_clears_the_failures_before_it(runner: Runner):
    model = Again([fail(503), text("One."), text("Two.")], [1.0])
    task = await runner.create_task(Agent(model), "Go.")
    await runner.run_step(task)
    await runner.run_step(task, input="And?")
    assert [len(request.failures) for request in model.requests] == [0, 1, 0]


async def test_each_driver_makes_a_new_series_of_attempts_and_knows_the_failures_before():
    model = Again([fail(429), fail(503), text("Yes.")], [600.0, 1.0])
    agent = Agent(model, name="a")
    async with clock.runner(agents=[agent], adopt=True) as runner:
        await runner.run(agent, "Now?", task_id="t")
        await asyncio.sleep(700)
        assert (await runner.get_task("t")).state == "completed"
        begun = [event.time for event in await journal(runner, "t") if event.kind == "model_started"]
        assert [request.asked_at for request in model.requests] == [begun[0], begun[1], begun[1]]
        assert [len(request.failures) for request in model.requests] == [0, 1, 2]


async def test_resuming_before_the_time_waits_on_and_near_the_time_waits_for_it(runner: Runner):
    model = Again([fail(429), text("Yes.")], [600.0])
    agent = Agent(model)
    assert (await runner.run(agent, "Now?", task_id="t")).state == "waiting"
    assert (await runner.resume("t", agent=agent)).state == "waiting"
    await asyncio.sleep(570)
    assert (await runner.resume("t", agent=agent)).state == "completed"


async def test_a_paused_task_is_not_driven_on_by_its_timer_and_a_cancelled_one_ends_at_once():
    agent = Agent(Again([fail(429), text("Yes.")], [600.0]), name="a")
    async with clock.runner(agents=[agent], adopt=True) as runner:
        for task_id in ("paused", "cancelled"):
            assert (await runner.run(agent, "Now?", task_id=task_id)).state == "waiting"
        await runner.handle("paused").pause()
        await runner.handle("cancelled").cancel()
        assert (await runner.get_task("cancelled")).state == "cancelled"
        assert (await runner.result("cancelled")).pending == ()
        held = await runner.store.row("paused")
        await asyncio.sleep(1_200)
        assert (await runner.get_task("paused")).state == "paused"
        assert (await runner.store.row("paused")).epoch == held.epoch, "no driver claimed it in between"
        assert (await runner.resume("paused")).state == "completed"


async def test_a_task_whose_undo_waits_to_be_settled_does_not_wait_for_its_timer():
    async def unbook(booked, ctx):
        raise RuntimeError("no")

    @tool(undo=unbook)
    def book() -> str:
        return "booked"

    agent = Agent(Again([call("book"), fail(429), call("book")], [600.0]), name="a", tools=[book])
    async with clock.runner(agents=[agent], adopt=True) as runner:
        assert (await runner.run(agent, "Now?", task_id="t")).state == "waiting"
        report = await runner.undo_step("t", to=0)
        assert not report.complete
        held = await runner.store.row("t")
        assert held.due_at == 0
        assert [item.kind for item in (await runner.result("t")).pending] == ["undo"], "no timer"
        await asyncio.sleep(1_200)
        assert (await runner.store.row("t")).epoch == held.epoch, "no driver claimed it in between"
        assert (await runner.undo_step("t", to=0, force=True)).complete
        assert await audit_store(runner.store) == []


async def test_of_a_task_that_waits_only_the_newest_step_is_pending(runner: Runner):
    agent = Agent(Again([call("look"), call("look"), fail(429)], [600.0]), tools=[look])
    result = await runner.run(agent, "Now?")
    assert result.state == "waiting"
    steps = [await runner.get_step(result.task_id, index) for index in (1, 3)]
    assert [len(step.pending) for step in steps] == [0, 1]


async def test_a_message_sent_during_a_long_wait_is_read_after_it():
    model = Again([fail(429), text("Yes.")], [600.0])
    agent = Agent(model, name="a")
    async with clock.runner(agents=[agent], adopt=True) as runner:
        await runner.run(agent, "Now?", task_id="t")
        await runner.handle("t").send("And be brief.")
        await asyncio.sleep(300)
        assert (await runner.get_task("t")).state == "waiting"
        await asyncio.sleep(301)
        assert (await runner.get_task("t")).state == "completed"
        assert [m.text for m in model.requests[-1].messages] == ["Now?", "And be brief."]


async def test_a_task_that_is_stepped_is_left_to_its_stepper():
    agent = Agent(Again([fail(429), text("Yes.")], [600.0]), name="a")
    async with clock.runner(agents=[agent], adopt=True) as runner:
        task = await runner.create_task(agent, "Now?")
        with pytest.raises(TaskParked):
            await runner.run_step(task)
        await asyncio.sleep(1_000)
        assert (await runner.run_step(task)).is_last


async def test_a_function_waits_for_its_request_while_its_siblings_go_on(runner: Runner):
    model = Again([fail(503), text("Yes.")], [45.0])
    result = await runner.run(Agent(model, worker=asks), "Go.", task_id="t")
    assert (result.state, result.final_text) == ("completed", "Yes.")
    assert [len(request.failures) for request in model.requests] == [0, 1]
    assert kinds(await journal(runner, "t")).count("timer_fired") == 1
    assert await audit_store(runner.store) == []


async def test_questions_are_asked_again_in_time_while_another_step_is_at_work(runner: Runner):
    model = Timed()
    assert (await runner.run(Agent(model, worker=asks_or_works), "Go.")).state == "completed"
    assert model.asked == IN_TIME


async def test_a_function_whose_request_waits_long_is_left_and_entered_again():
    entered = []

    async def ask(ctx: StepContext) -> StepResult:
        entered.append(1)
        return await asks(ctx)

    model = Again([fail(429), text("Yes.")], [600.0])
    agent = Agent(model, worker=ask, name="own")
    async with clock.runner(agents=[agent], adopt=True) as runner:
        assert (await runner.run(agent, "Go.", task_id="t")).state == "waiting"
        await asyncio.sleep(700)
        assert (await runner.get_task("t")).state == "completed"
        assert (len(entered), len(model.requests)) == (2, 2)
        assert await audit_store(runner.store) == []


async def test_each_attempt_is_checked_against_the_limits(runner: Runner):
    model = Again([fail(503)] * 9, [1.0] * 9)
    options = RunOptions(limits=Limits(model_calls=3), on_limit="fail")
    result = await runner.run(Agent(model), "Go.", options=options)
    assert (result.state, result.error.kind, len(model.requests)) == ("failed", "model_calls", 3)
    assert [request.spare_calls for request in model.requests] == [2, 1, 0]


async def test_an_attempt_that_was_held_back_is_no_request(runner: Runner):
    held = fail(kind="not_sent")
    model = Again([held, held, text("Yes.")], [1.0] * 9)
    options = RunOptions(limits=Limits(model_calls=1), on_limit="fail")
    result = await runner.run(Agent(model), "Go.", options=options)
    assert (result.state, result.usage.model_calls, len(model.requests)) == ("completed", 1, 3)


async def test_a_task_resumed_after_its_failure_begins_a_new_series_of_attempts(runner: Runner):
    model = Again([fail(503), fail(503), fail(503), text("Yes.")], [1.0])
    agent = Agent(model)
    assert (await runner.run(agent, "Go.", task_id="t")).state == "failed"
    assert (await runner.resume("t", agent=agent)).state == "completed"
    assert [len(request.failures) for request in model.requests] == [0, 1, 0, 1]


class Sides:
    """A model that sends side requests, fails once, and names the model that answered."""

    name = "two:models"

    async def stream(self, request):
        side = SideCall("one:b", Usage(10, 5, estimated=True), "it was slower")
        if not request.failures:
            raise ModelError(
                "down",
                kind="server",
                again_in=0.0,
                route="0",
                next_route="1",
                model="one:a",
                also=(side, side),
            )
        yield TextDelta("Hi")
        answer = Message("assistant", (Text("Hi"),))
        yield ModelAnswer(answer, usage=Usage(1, 1), model="one:c", also=(side,))


async def asks(ctx: StepContext) -> StepResult:
    """A model request of a step function."""
    answer = await ctx.call_model(messages=[Message("user", (Text("Now?"),))])
    return StepResult(answer.message.text, is_last=True)


BY_WORKER_OR_FUNCTION = pytest.mark.parametrize(
    "worker", ["function_calling", asks], ids=["worker", "function"]
)


@BY_WORKER_OR_FUNCTION
async def test_the_journal_holds_which_model_failed_which_answered_and_side_calls(runner: Runner, worker):
    result = await runner.run(Agent(Sides(), worker=worker), "Go.", task_id="t")
    assert (result.usage.model_calls, result.usage.input_tokens, result.usage.estimated) == (5, 31, True)
    assert (await runner.get_step("t", 1)).usage.input_tokens == 31
    events = await journal(runner, "t")
    failed = next(event for event in events if event.kind == "model_failed")
    returned = next(event for event in events if event.kind == "model_returned")
    assert (failed.model, failed.route, failed.next_route, len(failed.also)) == ("one:a", "0", "1", 2)
    assert (returned.model, returned.also[0].error) == ("one:c", "it was slower")
    assert (await runner.get_task("t")).state == "completed"


@BY_WORKER_OR_FUNCTION
async def test_a_pause_lets_the_request_end_that_is_out_and_it_is_not_sent_again(runner: Runner, worker):
    requests, request_sent, answers = [], asyncio.Event(), asyncio.Event()

    class Slow:
        name = "slow"

        async def stream(self, request):
            requests.append(request)
            request_sent.set()
            await answers.wait()
            yield ModelAnswer(Message("assistant", (Text("Hi"),)))

    agent = Agent(Slow(), worker=worker)
    handle = await runner.start(agent, "Go.", task_id="t")
    await request_sent.wait()
    pausing = asyncio.ensure_future(runner.pause("t"))
    async for event in handle.events(deltas=False):
        if event.kind == "pause_requested":
            answers.set()
    await pausing
    at = kinds(await journal(runner, "t"))
    assert "pause_requested" in at[: at.index("model_returned")]
    assert "model_stopped" not in at
    assert (await runner.resume("t", agent=agent)).final_text == "Hi"
    assert len(requests) == 1


@BY_WORKER_OR_FUNCTION
async def test_a_task_that_paused_after_a_failure_tries_again_when_it_is_resumed(runner: Runner, worker):
    options = RunOptions(on_failure=FailurePolicy(model="pause", tool="fail"))
    agent = Agent(ScriptedModel([fail(400), text("Yes.")]), worker=worker)
    paused = await runner.run(agent, "?", options=options)
    assert paused.state == "paused"
    assert (await runner.resume(paused.task_id, agent=agent)).state == "completed"


class Rerouted:
    """Models of which each fails in turn, and the last answers."""

    name = "many"

    def __init__(self):
        self.requests = []

    async def stream(self, request):
        self.requests.append(request)
        here = len(request.failures)
        if here < 3:
            raise ModelError("down", kind="server", again_in=0.0, route=str(here), next_route=str(here + 1))
        yield ModelAnswer(Message("assistant", (Text("Hi"),)))


@BY_WORKER_OR_FUNCTION
async def test_each_attempt_takes_the_route_of_the_last_one_and_knows_all_attempts(runner: Runner, worker):
    model = Rerouted()
    await runner.run(Agent(model, worker=worker), "Go.", task_id="t")
    assert [request.route for request in model.requests] == ["", "1", "2", "3"]
    failed = [event for event in await journal(runner, "t") if event.kind == "model_failed"]
    assert [(f.route, f.at) for f in model.requests[-1].failures] == [
        (str(place), event.time) for place, event in enumerate(failed)
    ]
    started = next(event for event in await journal(runner, "t") if event.kind == "model_started")
    assert [request.asked_at for request in model.requests] == [started.time] * 4


class Refuses:
    """Fails for good, or reports side requests that cannot be stored."""

    name = "no"

    def __init__(self, **journals):
        self.said = journals

    async def stream(self, request):
        raise ModelError("down", kind="server", route="1", model="one:b", **self.said)
        yield


async def test_the_last_failure_names_its_model_and_the_side_requests(runner: Runner):
    side = SideCall("one:a", Usage(10, 5))
    result = await runner.run(Agent(Refuses(also=(side,))), "Go.", task_id="t")
    failed = next(event for event in await journal(runner, "t") if event.kind == "model_failed")
    assert (failed.model, failed.route, failed.also, failed.retry_at) == ("one:b", "1", (side,), None)
    assert (result.state, result.usage.model_calls, result.usage.input_tokens) == ("failed", 2, 10)


async def test_other_requests_that_cannot_be_kept_are_a_failure_of_their_model(runner: Runner):
    result = await runner.run(Agent(Refuses(also=["one:a"], again_in=0.0)), "Go.", task_id="t")
    assert result.state == "failed"
    assert "must be a tuple of SideCall" in result.error.message
    assert "down" in result.error.message


async def test_a_negative_wait_is_zero_and_a_wait_is_at_most_a_year(runner: Runner):
    assert (await runner.run(Agent(Again([fail(429), text("Yes.")], [-5.0])), "?")).state == "completed"
    result = await runner.run(Agent(Again([fail(429), text("Yes.")], [1e15])), "?")
    assert result.pending[0].due == clock.BEGIN + 366 * 86_400 * SECOND


@pytest.mark.parametrize("forked", [False, True])
async def test_a_task_that_another_version_of_its_agent_takes_up_or_forks_does_not_wait_for_the_one_before(
    runner: Runner, forked
):
    first = Agent(Again([fail(429)], [600.0]), instructions="Be kind.", name="a")
    assert (await runner.run(first, "?", task_id="t")).state == "waiting"
    second, task = Agent(Again([text("Yes.")], []), instructions="Be brief.", name="a"), "t"
    if forked:
        task = await runner.fork("t", at=(await runner.get_task("t")).head, agent=second)
    assert (await runner.resume(task, agent=second)).final_text == "Yes."
    assert asyncio.get_running_loop().time() < 1.0


async def test_a_last_answer_in_the_same_step_does_not_know_earlier_failures(runner: Runner):
    model = Again([fail(503), call("look"), text("So.")], [0.0])
    result = await runner.run(Agent(model, tools=[look]), "?", options=RunOptions(limits=Limits(steps=1)))
    assert (result.state, result.final_text) == ("degraded", "So.")
    assert [len(request.failures) for request in model.requests] == [0, 1, 0]


async def test_a_task_whose_driver_was_killed_during_a_wait_waits_on_when_resumed(tmp_path):
    path = tmp_path / "j.db"
    model = Again([fail(503), text("Yes.")], [30.0])
    agent = Agent(model, name="a")
    one = clock.runner(path, agents=[agent])
    handle = await one.start(agent, "Now?", task_id="t")
    async for event in handle.events(deltas=False):
        if event.kind == "model_failed":
            due = event.retry_at
            break
    await one.aclose()
    assert len(model.requests) == 1
    async with clock.runner(path, agents=[agent]) as two:
        result = await two.resume("t")
        events = await journal(two, "t")
        assert result.state == "completed"
        assert next(event.time for event in events if event.kind == "timer_fired") >= due


async def test_a_stepped_task_that_waits_can_be_stepped_after_a_message():
    agent = Agent(Again([fail(429), text("Yes.")], [600.0]), name="a")
    async with clock.runner(agents=[agent], adopt=True) as runner:
        await runner.create_task(agent, "Now?", task_id="t")
        with pytest.raises(TaskParked):
            await runner.run_step("t")
        await runner.send("t", "Hurry!")
        await asyncio.sleep(1_200)
        assert (await runner.get_task("t")).state == "waiting"
        assert (await runner.run_step("t")).is_last


# ------------------------------------------------------------------------------------- settings of a run


async def test_the_settings_of_a_run_come_before_those_of_the_agent_also_after_a_resume(tmp_path):
    model = Again([call("look"), fail(503), text("Here.")], [])
    agent = Agent(
        model, name="a", tools=[look], model_settings=ModelSettings(temperature=0, max_tokens=90, cache=True)
    )
    options = RunOptions(model_settings=ModelSettings(temperature=1, tool_choice="look"))
    url = str(tmp_path / "journal.db")
    async with clock.runner(url) as runner:
        result = await runner.run(agent, "Where?", task_id="t", options=options)
        assert (result.state, len(model.requests)) == ("failed", 2)
    async with clock.runner(url, agents=[agent]) as runner:
        assert (await runner.resume("t")).final_text == "Here."
    merged = ModelSettings(temperature=1, max_tokens=90, cache=True, tool_choice="look")
    assert [request.settings for request in model.requests] == [merged] * 3
    assert [request.tool_choice for request in model.requests] == ["look", "auto", "auto"]
    assert agent.model_settings.temperature == 0


async def test_the_settings_of_a_run_are_not_those_of_the_agents_it_calls():
    child = Agent(Again([text("a poem")], []), name="writer", model_settings=ModelSettings(max_tokens=7))
    boss = Agent(Again([call("writer", input="go"), text("Done.")], []), name="boss", subagents=[child])
    async with clock.runner() as runner:
        options = RunOptions(model_settings=ModelSettings(temperature=1))
        assert (await runner.run(boss, "go", options=options)).final_text == "Done."
    assert [request.settings for request in child.model.requests] == [ModelSettings(max_tokens=7)]
    assert boss.model.requests[0].settings == ModelSettings(temperature=1)


# ------------------------------------------------------------------------------------- who is asked, who failed


class Named(Again):
    """A model with a name of its own."""

    def __init__(self, name, *script):
        super().__init__(list(script), [])
        self.name = name


async def test_an_error_names_provider_and_model_and_whether_a_retry_makes_sense():
    async with clock.runner() as runner:
        for status, retryable in ((503, True), (429, True), (401, False), (400, False)):
            result = await runner.run(Agent(Named("acme:big", fail(status))), "?")
            error = result.error
            assert (error.provider, error.model, error.retryable) == ("acme", "acme:big", retryable)
        [event] = [x for x in await journal(runner, result.task_id) if x.kind == "model_failed"]
        assert event.error.model == "acme:big"


@pytest.mark.parametrize("ready", [0.0, 9.0])
async def test_model_started_names_the_model_that_is_asked_of_several(ready):
    first, other = Named("a:one", fail(503), text("One.")), Named("b:two", text("Two."))
    first.ready_in = lambda: ready
    async with clock.runner() as runner:
        result = await runner.run(Agent(Retry(Fallback([first, other]))), "?", task_id="t")
        events = await journal(runner, "t")
    asked = [event.model for event in events if event.kind == "model_started"]
    assert (result.final_text, asked) == ("Two.", ["b:two"] if ready else ["a:one", "b:two"])
    assert len(first.requests) + len(other.requests) == len(asked)


async def test_the_error_of_several_models_names_the_last_that_was_asked():
    models = [Named("a:one", fail(503)), Named("b:two", fail(401))]
    async with clock.runner() as runner:
        result = await runner.run(Agent(Fallback(models)), "?")
    assert (result.error.model, result.error.retryable) == ("b:two", False)
