"""Watching: the events of a task for any number of consumers, wherever they are and however slow."""

import asyncio
import threading
from typing import Any

import pytest

from tests.cast import Gate
from tests.runner.acts import happened, journal
from treadle import Agent, Runner, ScriptedModel
from treadle.core.events import Delta, Event, ToolProgress
from treadle.core.labels import Label
from treadle.core.messages import Text
from treadle.llm.scripted import call, text, turn
from treadle.runner.watching import watch

pytestmark = pytest.mark.anyio


def talker(length: int = 50, pause: float = 0.0) -> Agent[Any]:
    answer = " ".join(f"w{n}" for n in range(length))
    script = [turn("I look.", call("work"), chunk=3), text(answer, chunk=1, pause=pause)]
    gate = Gate(read_only=True)
    gate.let_go.set()
    return Agent(ScriptedModel(script), name="talker", tools=[gate.tool])


def durable(events: list[Any]) -> list[Event]:
    return [event for event in events if isinstance(event, Event)]


def assert_in_order(events: list[Any], after: int = 0) -> None:
    """Each durable event once, in order; no delta before the event that started its call, or after its end."""
    seqs = [event.seq for event in durable(events)]
    assert seqs == list(range(after + 1, after + 1 + len(seqs)))
    open_steps: set[str] = set()
    for event in events:
        if isinstance(event, Event):
            if event.kind == "model_started":
                open_steps.add(event.step)  # type: ignore[attr-defined]
            elif event.kind in ("model_returned", "model_failed", "model_stopped"):
                open_steps.discard(event.step)  # type: ignore[attr-defined]
        elif isinstance(event, Delta):
            assert event.step in open_steps, f"{event} outside of its call"


async def test_several_consumers_from_any_number_see_each_event_once(runner: Runner) -> None:
    handle = await runner.start(talker(200, pause=0.0005), "go")

    async def watch(after: int, delay: float) -> list[Any]:
        await asyncio.sleep(delay)
        return [event async for event in handle.events(after=after)]

    seen = await asyncio.gather(
        *(watch(after, delay) for after in (0, 1, 3) for delay in (0, 0.02, 0.05, 0.2))
    )
    whole = await journal(runner, handle.task_id)
    for number, events in enumerate(seen):
        after = (0, 1, 3)[number // 4]
        assert_in_order_from(events, after)
        assert durable(events) == whole[after:]


def assert_in_order_from(events: list[Any], after: int) -> None:
    seqs = [event.seq for event in durable(events)]
    assert seqs == list(range(after + 1, after + 1 + len(seqs)))


async def test_events_can_be_opened_again_at_every_number_after_the_end(runner: Runner) -> None:
    result = await runner.run(talker(), "go")
    whole = await journal(runner, result.task_id)
    handle = runner.handle(result.task_id)
    for after in range(len(whole) + 2):
        async with asyncio.timeout(4):
            assert [event async for event in handle.events(after=after)] == whole[after:]


async def test_a_consumer_that_is_dropped_at_each_event_misses_nothing_when_it_comes_back(
    runner: Runner,
) -> None:
    handle = await runner.start(talker(100, pause=0.0005), "go")
    seen: list[Event] = []
    while True:
        after = seen[-1].seq if seen else 0
        missed = None
        async for event in handle.events(after=after, deltas=False):
            missed = event
            break
        if missed is None:
            break
        assert isinstance(missed, Event)
        seen.append(missed)
    assert seen == await journal(runner, handle.task_id)
    assert (await handle.result()).state == "completed"


async def test_five_thousand_deltas_do_not_slow_the_task_or_grow_a_late_readers_buffer(
    runner: Runner,
) -> None:
    handle = await runner.start(talker(12_000), "go")
    watching = handle.events()
    first = await anext(watching)
    result = await handle.result()
    assert result.state == "completed"
    assert len(result.final_text.split()) == 12_000
    late = [first, *[event async for event in watching]]
    assert durable(late) == await journal(runner, handle.task_id)
    assert sum(isinstance(event, Delta) for event in late) <= 4_096 + 10
    assert_in_order(late)


async def test_a_reader_that_keeps_up_gets_every_delta(runner: Runner) -> None:
    async with runner.run_stream(talker(1_000), "go") as stream:
        deltas = [event.text async for event in stream if isinstance(event, Delta) and event.step == "s2"]
    assert "".join(deltas) == stream.result.final_text


async def test_a_slow_consumer_of_run_stream_does_not_slow_the_run(runner: Runner) -> None:
    read = 0
    async with runner.run_stream(talker(30), "go") as stream:
        async for event in stream:
            read += 1
            while (await runner.get_task(event.task_id)).state != "completed":  # noqa: ASYNC110  until it has ended
                await asyncio.sleep(0.01)
    assert read > 30


async def test_watching_and_leaving_never_affects_a_task(runner: Runner) -> None:
    gate = Gate(read_only=True)
    agent = Agent(ScriptedModel([call("work"), "Done."]), name="w", tools=[gate.tool])
    handle = await runner.start(agent, "go")
    await gate.entered.wait()
    watchers = [asyncio.create_task(drain(handle)) for _ in range(20)]
    await asyncio.sleep(0.02)
    for watcher in watchers[::2]:
        watcher.cancel()
    gate.let_go.set()
    assert (await handle.result()).state == "completed"
    async with asyncio.timeout(4):
        seen = await asyncio.gather(*watchers[1::2])
    assert all(events == seen[0] for events in seen)
    assert not runner._driver.owned.channels._channels.get(handle.task_id, None) or not (
        runner._driver.owned.channels._channels[handle.task_id].watchers
    )


async def drain(handle: Any) -> list[Any]:
    return [event async for event in handle.events(deltas=False)]


@pytest.mark.parametrize("verb", ["pause", "interrupt", "cancel"])
async def test_events_end_when_the_task_stops(runner: Runner, verb: str) -> None:
    gate = Gate(read_only=True)
    agent = Agent(ScriptedModel([call("work"), "Done."]), name="w", tools=[gate.tool])
    handle = await runner.start(agent, "go")
    watching = asyncio.create_task(drain(handle))
    await gate.entered.wait()
    if verb == "pause":
        asyncio.get_running_loop().call_later(0.05, gate.let_go.set)
    await getattr(handle, verb)()
    async with asyncio.timeout(4):
        seen = await watching
    assert seen == await journal(runner, handle.task_id)
    if verb != "cancel":
        gate.let_go.set()
        resumed = asyncio.create_task(handle.resume())
        more = [event async for event in handle.events(after=seen[-1].seq, deltas=False)]
        await resumed
        assert (seen + more)[: len(seen)] == seen


async def test_a_consumer_in_another_thread_and_loop_sees_everything_and_the_result(runner: Runner) -> None:
    gate = Gate(read_only=True)
    agent = Agent(ScriptedModel([call("work"), text("one two three", chunk=4)]), name="w", tools=[gate.tool])
    handle = await runner.start(agent, "go")
    await gate.entered.wait()
    seen: list[Any] = []
    results: list[Any] = []
    ready = threading.Event()

    def consume() -> None:
        async def watch() -> None:
            async def events() -> None:
                async for event in handle.events():
                    ready.set()
                    seen.append(event)

            async with asyncio.timeout(5), asyncio.TaskGroup() as group:
                group.create_task(events())
                results.append(await handle.result())

        asyncio.run(watch())

    thread = threading.Thread(target=consume)
    thread.start()
    while not ready.is_set():  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    gate.let_go.set()
    result = await handle.result()
    while thread.is_alive():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert durable(seen) == await journal(runner, handle.task_id)
    assert [outcome.state for outcome in results] == [result.state] == ["completed"]


async def test_progress_and_deltas_name_their_place(runner: Runner) -> None:
    async with runner.run_stream(talker(), "go") as stream:
        async for event in stream:
            if isinstance(event, (Delta, ToolProgress)):
                assert event.step in ("s1", "s2")
                assert event.after > 0
                assert event.kind in ("delta", "tool_progress")


# -------------------------------------------------------------------------------------------- steering


async def test_a_message_sent_while_the_model_answers_is_read_before_the_next_call(runner: Runner) -> None:
    model = ScriptedModel([text("First answer.", delay=0.1), "Second answer."])
    handle = await runner.start(Agent(model), "go")
    await happened(handle, "model_started")
    await handle.send("and one more thing")
    result = await handle.result()
    assert result.final_text == "Second answer."
    assert [m.text for m in result.messages] == [
        "go",
        "First answer.",
        "and one more thing",
        "Second answer.",
    ]
    assert [
        event.last for event in await journal(runner, handle.task_id) if event.kind == "step_completed"
    ] == [
        False,
        True,
    ]  # type: ignore[attr-defined]


async def test_a_message_sent_while_a_tool_runs_follows_its_result(runner: Runner) -> None:
    gate = Gate(read_only=True)
    agent = Agent(ScriptedModel([call("work"), "Done."]), name="w", tools=[gate.tool])
    handle = await runner.start(agent, "go")
    await gate.entered.wait()
    await handle.send("hurry")
    await handle.send("a page said this", role="observation")
    gate.let_go.set()
    result = await handle.result()
    assert [m.role for m in result.messages] == ["user", "assistant", "tool", "user", "user", "assistant"]
    next_messages = agent.model.requests[1].messages  # type: ignore[union-attr]
    assert next_messages[3].text == "hurry"
    assert next_messages[4].parts == (Text("a page said this", label=Label("observation", "untrusted")),)


async def test_a_stream_yields_deltas_before_their_answer_even_of_a_quick_task():
    agent = Agent(ScriptedModel([text("Hello.")]), name="greeter")
    async with Runner("memory:") as runner, runner.run_stream(agent, "Hi") as stream:
        items = [event.text if isinstance(event, Delta) else event.kind async for event in stream]
    assert items.index("Hello.") < items.index("model_returned")


async def test_a_stream_yields_no_delta_after_the_end_of_its_answer():
    """It was held back for events that the watcher then read from the journal, with the end of its answer."""
    async with Runner("memory:") as runner:
        task_id = (await runner.run(Agent(ScriptedModel([text("Hello.")])), "Hi")).task_id
        head = (await runner.get_task(task_id)).head
        watcher = runner._driver.owned.channels.subscribe(task_id)
        for after in (head - 3, head):
            runner._driver.owned.channels.of(task_id).tell_watchers(Delta("s1", "draft", f"{after}", after))
        watcher.missed = True

        async def over():
            return True

        items = [
            event.text if isinstance(event, Delta) else event.seq
            async for event in watch(runner._driver.owned, task_id, watcher, after=0, deltas=True, over=over)
        ]
    assert items == [*range(1, head + 1), f"{head}"]


async def test_a_stream_yields_no_delta_of_an_answer_it_read_from_the_journal():
    """The journal may hold events that the driver has not published yet: their deltas are taken after them."""
    async with Runner("memory:") as runner:
        task_id = (await runner.run(Agent(ScriptedModel([text("Hello.")])), "Hi")).task_id
        head = (await runner.get_task(task_id)).head
        watcher = runner._driver.owned.channels.subscribe(task_id)
        watcher.missed = True
        looks = 0

        async def over():
            nonlocal looks
            looks += 1
            if looks == 2:
                for after in (head - 3, head):
                    runner._driver.owned.channels.of(task_id).tell_watchers(
                        Delta("s1", "draft", f"{after}", after)
                    )
            watcher.look = True
            return looks > 2

        items = [
            event.text if isinstance(event, Delta) else event.seq
            async for event in watch(runner._driver.owned, task_id, watcher, after=0, deltas=True, over=over)
        ]
    assert items == [*range(1, head + 1), f"{head}"]
