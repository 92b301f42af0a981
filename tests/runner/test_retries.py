"""A question that failed is asked again when a layer says so: the engine waits, and the journal knows each attempt."""

import asyncio

import pytest

from treadle import Agent, Limits, Runner, RunOptions, ScriptedModel, StepContext, StepResult
from treadle.core.messages import Message, Text
from treadle.core.model import ModelAnswer, SideCall, TextDelta, Usage
from treadle.errors import ModelError, TaskParked
from treadle.models import fail, text
from treadle.stores.sqlite import SQLiteStore
from treadle.testing import clock
from treadle.testing.audit import audit_store

pytestmark = pytest.mark.anyio

SECOND = 1_000_000


class Again:
    """A layer that wants each failure of its model tried again, after so many seconds each time."""

    def __init__(self, items, waits):
        self.inner, self.waits, self.requests = ScriptedModel(items), waits, []
        self.name = self.inner.name

    async def stream(self, request):
        self.requests.append(request)
        try:
            async for item in self.inner.stream(request):
                yield item
        except ModelError as error:
            if len(request.failures) < len(self.waits):
                error.again_in = self.waits[len(request.failures)]
            raise


def kinds(events):
    return [event.kind for event in events]


async def journal(runner, task_id):
    return [event async for event in runner.handle(task_id).events(deltas=False)]


def test_a_failed_question_is_asked_again_after_the_wait_and_each_attempt_is_in_the_journal():
    async def story():
        model = Again([fail(503), fail(429), text("Here.")], [2.0, 30.0])
        async with clock.runner() as runner:
            began = asyncio.get_running_loop().time()
            result = await runner.run(Agent(model), "Where?", task_id="t")
            assert asyncio.get_running_loop().time() - began == pytest.approx(32.0, abs=0.01)
            assert (result.state, result.final_text, result.usage.model_calls) == ("completed", "Here.", 3)
            events = await journal(runner, "t")
            at = [
                kind
                for kind in kinds(events)
                if kind.startswith("model") or kind in ("timer_fired", "step_failed")
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

    clock.run(story())


def test_what_failed_before_is_forgotten_with_the_answer():
    async def story():
        model = Again([fail(503), text("One."), text("Two.")], [1.0])
        async with clock.runner() as runner:
            task = await runner.create_task(Agent(model), "Go.")
            await runner.run_step(task)
            await runner.run_step(task, input="And?")
            assert [len(request.failures) for request in model.requests] == [0, 1, 0]

    clock.run(story())


def test_a_long_wait_gives_the_task_back_and_whoever_adopts_drives_it_on_when_its_time_has_come(tmp_path):
    async def story():
        model = Again([fail(429), text("At last.")], [600.0])
        agent = Agent(model, name="patient")
        async with clock.runner(tmp_path / "j.db", agents=[agent]) as one:
            result = await one.run(agent, "Now?", task_id="t")
            assert (result.state, [p.kind for p in result.pending]) == ("waiting", ["timer"])
            assert "asked again at" in result.pending[0].text
            row = await one.store.row("t")
            assert (row.state, row.driver, row.wanted) == ("waiting", None, result.pending[0].due)
            with pytest.raises(TaskParked, match="asked again at"):
                await one.run_step("t")
            assert len(model.requests) == 1, "a server's wait is a lower bound"
        async with clock.runner(tmp_path / "j.db", agents=[agent], adopt=True) as two:
            await asyncio.sleep(580)
            assert len(model.requests) == 1
            await asyncio.sleep(40)
            assert (await two.get_task("t")).state == "completed"
            assert await audit_store(two.store) == []

    clock.run(story())


def test_resuming_before_the_time_waits_on_and_near_the_time_waits_for_it():
    async def story():
        model = Again([fail(429), text("Yes.")], [600.0])
        async with clock.runner() as runner:
            agent = Agent(model)
            assert (await runner.run(agent, "Now?", task_id="t")).state == "waiting"
            assert (await runner.resume("t", agent=agent)).state == "waiting"
            await asyncio.sleep(570)
            assert (await runner.resume("t", agent=agent)).state == "completed"

    clock.run(story())


def test_a_paused_task_is_not_driven_on_by_its_timer_and_a_cancelled_one_ends_at_once():
    async def story():
        agent = Agent(Again([fail(429), text("Yes.")], [600.0]), name="a")
        async with clock.runner(agents=[agent], adopt=True) as runner:
            for task_id in ("paused", "cancelled"):
                assert (await runner.run(agent, "Now?", task_id=task_id)).state == "waiting"
            await runner.handle("paused").pause()
            await runner.handle("cancelled").cancel()
            assert (await runner.get_task("cancelled")).state == "cancelled"
            await asyncio.sleep(1_200)
            assert (await runner.get_task("paused")).state == "paused"
            assert (await runner.resume("paused")).state == "completed"

    clock.run(story())


def test_words_sent_during_a_long_wait_are_read_when_it_is_over():
    async def story():
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

    clock.run(story())


def test_a_task_that_is_stepped_is_left_to_its_stepper():
    async def story():
        agent = Agent(Again([fail(429), text("Yes.")], [600.0]), name="a")
        async with clock.runner(agents=[agent], adopt=True) as runner:
            task = await runner.create_task(agent, "Now?")
            with pytest.raises(TaskParked):
                await runner.run_step(task)
            await asyncio.sleep(1_000)
            assert (await runner.run_step(task)).is_last

    clock.run(story())


def test_a_function_waits_for_its_request_while_its_siblings_go_on():
    async def story():
        said = []

        async def ask(ctx: StepContext) -> StepResult:
            answer = await ctx.call_model(messages=[Message("user", (Text("Now?"),))])
            return StepResult(answer.message.text, is_last=True)

        model = Again([fail(503), text("Yes.")], [45.0])
        async with clock.runner() as runner:
            result = await runner.run(Agent(model, worker=ask), "Go.", task_id="t")
            assert (result.state, result.final_text) == ("completed", "Yes.")
            assert [len(request.failures) for request in model.requests] == [0, 1]
            said.append(kinds(await journal(runner, "t")))
            assert await audit_store(runner.store) == []
        assert said[0].count("timer_fired") == 1

    clock.run(story())


def test_a_function_whose_request_waits_long_is_left_and_entered_again(tmp_path):
    async def story():
        entered = []

        async def ask(ctx: StepContext) -> StepResult:
            entered.append(1)
            answer = await ctx.call_model(messages=[Message("user", (Text("Now?"),))])
            return StepResult(answer.message.text, is_last=True)

        model = Again([fail(429), text("Yes.")], [600.0])
        agent = Agent(model, worker=ask, name="own")
        async with clock.runner(tmp_path / "j.db", agents=[agent], adopt=True) as runner:
            assert (await runner.run(agent, "Go.", task_id="t")).state == "waiting"
            await asyncio.sleep(700)
            assert (await runner.get_task("t")).state == "completed"
            assert (len(entered), len(model.requests)) == (2, 2)
            assert await audit_store(runner.store) == []

    clock.run(story())


def test_each_attempt_is_checked_against_the_limits():
    async def story():
        model = Again([fail(503)] * 9, [1.0] * 9)
        async with clock.runner() as runner:
            options = RunOptions(limits=Limits(model_calls=3), on_limit="fail")
            result = await runner.run(Agent(model), "Go.", options=options)
            assert (result.state, result.error.kind, len(model.requests)) == ("failed", "model_calls", 3)
            assert [request.spare_calls for request in model.requests] == [2, 1, 0]

    clock.run(story())


def test_an_attempt_that_was_held_back_is_no_request():
    async def story():
        held = fail(kind="not_sent")
        model = Again([held, held, text("Yes.")], [1.0] * 9)
        async with clock.runner() as runner:
            options = RunOptions(limits=Limits(model_calls=1), on_limit="fail")
            result = await runner.run(Agent(model), "Go.", options=options)
            assert (result.state, result.usage.model_calls, len(model.requests)) == ("completed", 1, 3)

    clock.run(story())


def test_a_task_taken_up_after_its_failure_begins_a_new_series_of_attempts():
    async def story():
        model = Again([fail(503), fail(503), fail(503), text("Yes.")], [1.0])
        async with clock.runner() as runner:
            agent = Agent(model)
            assert (await runner.run(agent, "Go.", task_id="t")).state == "failed"
            assert (await runner.resume("t", agent=agent)).state == "completed"
            assert [len(request.failures) for request in model.requests] == [0, 1, 0, 1]

    clock.run(story())


class Sides:
    """A model that sends other requests on the way, fails once and names who answers."""

    name = "two:models"

    async def stream(self, request):
        side = SideCall("one:b", Usage(10, 5, estimated=True), "it was slower")
        if not request.failures:
            raise ModelError(
                "down", kind="server", again_in=0.0, route="0", next_route="1", model="one:a", also=(side,)
            )
        yield TextDelta("Hi")
        answer = Message("assistant", (Text("Hi"),))
        yield ModelAnswer(answer, usage=Usage(1, 1), model="one:c", also=(side,))


async def test_who_failed_who_answered_and_what_was_sent_besides_is_in_the_journal_and_counted(
    runner: Runner,
):
    result = await runner.run(Agent(Sides()), "Go.", task_id="t")
    assert (result.usage.model_calls, result.usage.input_tokens, result.usage.estimated) == (4, 21, True)
    events = await journal(runner, "t")
    failed = next(event for event in events if event.kind == "model_failed")
    returned = next(event for event in events if event.kind == "model_returned")
    assert (failed.model, failed.route, failed.next_route, len(failed.also)) == ("one:a", "0", "1", 1)
    assert (returned.model, returned.also[0].error) == ("one:c", "it was slower")
    assert (await runner.get_task("t")).state == "completed"


async def test_a_task_killed_while_it_waits_for_a_timer_waits_on_where_it_is_taken_up(tmp_path):
    path = tmp_path / "j.db"
    model = Again([fail(503), text("Yes.")], [0.6])
    agent = Agent(model, name="a")
    one = Runner(SQLiteStore(path), agents=[agent])
    handle = await one.start(agent, "Now?", task_id="t")
    async for event in handle.events(deltas=False):
        if event.kind == "model_failed":
            due = event.retry_at
            break
    await one.aclose()
    assert len(model.requests) == 1
    async with Runner(SQLiteStore(path), agents=[agent]) as two:
        result = await two.resume("t")
        events = await journal(two, "t")
        assert result.state == "completed"
        assert next(event.time for event in events if event.kind == "timer_fired") >= due
