"""Following a task: its events and how it stands, across rests, drivers and restarts, until it is deleted."""

import asyncio
import gc
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from tests.cast import Gate, add, gate_agent
from tests.runner.acts import until
from treadle import Agent, Message, Runner, ScriptedModel, Text
from treadle.core.events import Delta, Event, ModelReturned, TaskStood
from treadle.core.model import ModelAnswer, ModelRequest, ReasoningDelta, TextDelta, ToolCallDelta
from treadle.errors import TaskNotFound
from treadle.llm.scripted import call, text, turn
from treadle.runner.watching import Subscription, in_event_loop

pytestmark = pytest.mark.anyio


class Followed:
    """What a follower of a task was given, collected in the background."""

    def __init__(self, handle: Any, **how: Any) -> None:
        self.items: list[Any] = []
        self.events = handle.events(follow=True, **how)
        self.task = asyncio.create_task(self._collect())

    async def _collect(self) -> None:
        async for item in self.events:
            self.items.append(item)

    @property
    def stood(self) -> list[tuple[str, bool, bool]]:
        return [(i.state, i.driven, i.live) for i in self.items if isinstance(i, TaskStood)]

    @property
    def seqs(self) -> list[int]:
        return [item.seq for item in self.items if isinstance(item, Event)]

    async def ended(self) -> None:
        async with asyncio.timeout(5):
            await self.task

    async def left(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])
        await self.events.aclose()


async def test_a_follower_is_told_how_the_task_stands_and_of_every_change_in_its_place(
    runner: Runner,
) -> None:
    gate = Gate(read_only=True)
    task = await runner.create_task(gate_agent(gate), "go")
    followed = Followed(runner.handle(task))
    await until(lambda: bool(followed.seqs))
    assert followed.stood == [("created", False, False)]
    running = asyncio.create_task(runner.resume(task))
    await gate.entered.wait()
    await runner.interrupt(task)
    await running
    await until(lambda: len(followed.stood) == 3)
    gate.let_go.set()
    result = await runner.resume(task)
    await until(lambda: len(followed.stood) == 5)
    await followed.left()
    assert followed.stood == [
        ("created", False, False),
        ("running", True, True),
        ("interrupted", False, False),
        ("running", True, True),
        ("completed", False, False),
    ]
    assert result.state == "completed"
    head = (await runner.get_task(task)).head
    assert followed.seqs == list(range(1, head + 1))
    for index, item in enumerate(followed.items):
        if isinstance(item, TaskStood) and not item.driven:
            before = [i.seq for i in followed.items[:index] if isinstance(i, Event)]
            assert item.head == max(before), "a rest comes behind all events before it"
            assert (item.task_id, item.agent_path) == (task.task_id, ("worker",))


async def test_a_follower_ends_when_the_task_is_deleted(runner: Runner) -> None:
    task_id = (await runner.run(Agent(ScriptedModel([text("Hello.")])), "Hi")).task_id
    followed = Followed(runner.handle(task_id))
    await until(lambda: bool(followed.seqs))
    await runner.delete_task(task_id)
    await followed.ended()
    assert followed.stood == [("completed", False, False)]


async def test_a_follower_does_not_go_on_with_another_task_of_the_same_id(runner: Runner) -> None:
    gate = Gate(read_only=True)
    agent = gate_agent(gate)
    handle = await runner.start(agent, "go", task_id="t1")
    await gate.entered.wait()
    await handle.interrupt()
    head = (await runner.get_task("t1")).head
    followed = Followed(handle)
    await until(lambda: len(followed.seqs) == head)
    seen = list(followed.seqs)
    await runner.delete_task("t1")
    await runner.create_task(agent, "go again", task_id="t1")
    await followed.ended()
    assert followed.seqs == seen


async def test_following_a_task_that_is_not_there_raises(runner: Runner) -> None:
    with pytest.raises(TaskNotFound):
        await anext(runner.handle("nothing").events(follow=True))


async def test_a_follower_of_a_task_that_another_runner_drives_is_told_that_no_deltas_come(
    tmp_path: Any,
) -> None:
    gate = Gate()
    async with Runner(tmp_path / "journal.db") as driver, Runner(tmp_path / "journal.db") as watcher:
        handle = await driver.start(gate_agent(gate), "go")
        await gate.entered.wait()
        followed = Followed(watcher.handle(handle.task_id))
        await until(lambda: bool(followed.seqs))
        gate.let_go.set()
        await handle.result()
        await until(lambda: len(followed.stood) == 2)
        await followed.left()
    assert followed.stood == [("running", True, False), ("completed", False, False)]
    assert not [item for item in followed.items if isinstance(item, Delta)]


async def test_deltas_count_from_when_events_is_called_also_if_it_is_iterated_over_later(
    runner: Runner,
) -> None:
    model = Dictated()
    handle = await runner.start(Agent(model), "Hi")
    events = handle.events()
    model.items.put_nowait(TextDelta("Hello."))
    model.items.put_nowait(ModelAnswer(Message("assistant", (Text("Hello."),))))
    await handle.result()
    assert [item.text async for item in events if isinstance(item, Delta)] == ["Hello."]


def test_events_without_asyncio_follow_too(tmp_path: Any) -> None:
    with Runner(tmp_path / "journal.db").sync as runner:
        task_id = runner.run(Agent(ScriptedModel([text("Hello.")])), "Hi").task_id
        events = runner.handle(task_id).events(follow=True)
        head = runner.get_task(task_id).head
        seqs = [next(events).seq for _ in range(head)]  # pyright: ignore[reportAttributeAccessIssue]
        rest = next(events)
        assert isinstance(rest, TaskStood)
        assert (rest.state, rest.head) == ("completed", head)
        runner.delete_task(task_id)
        assert list(events) == []
    assert seqs == list(range(1, head + 1))


# ------------------------------------------------------------------------------------ the place of a delta


class Dictated:
    """A model that writes what a test hands it, when the test hands it."""

    name = "test:dictated"

    def __init__(self) -> None:
        self.items: asyncio.Queue[Any] = asyncio.Queue()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        while True:
            item = await self.items.get()
            yield item
            if isinstance(item, ModelAnswer):
                return


async def test_a_watcher_that_joins_in_the_middle_of_an_answer_gets_it_from_its_first_letter(
    runner: Runner,
) -> None:
    model = Dictated()
    handle = await runner.start(Agent(model), "Hi")
    for item in (
        ReasoningDelta("Hmm."),
        TextDelta("Good "),
        TextDelta("morn"),
        ToolCallDelta(0, "ad"),
        ToolCallDelta(0, "d", '{"a"'),
    ):
        model.items.put_nowait(item)
    await until(model.items.empty)
    async with aclosing(handle.events()) as events:
        for item in (
            TextDelta("ing, "),
            ReasoningDelta(" Well."),
            ToolCallDelta(0, "", ": 1}"),
            ToolCallDelta(1, "add", "{}"),
            TextDelta("you."),
        ):
            model.items.put_nowait(item)
        items: list[Any] = []
        async for event in events:
            items.append(event)
            if isinstance(event, Delta) and event.text == "you.":
                break
    await handle.cancel()
    deltas = [item for item in items if isinstance(item, Delta)]
    assert [(d.channel, d.text, d.at, d.tool, d.call_id) for d in deltas] == [
        ("reasoning", "Hmm.", 0, "", None),
        ("final", "Good morn", 0, "", None),
        ("arguments", '{"a"', 0, "add", "s1-0"),
        ("final", "ing, ", 9, "", None),
        ("reasoning", " Well.", 4, "", None),
        ("arguments", ": 1}", 4, "", "s1-0"),
        ("arguments", "{}", 0, "add", "s1-1"),
        ("final", "you.", 14, "", None),
    ]
    assert {d.agent_path for d in deltas} == {("agent",)}
    started = next(index for index, item in enumerate(items) if item.kind == "model_started")
    assert started < items.index(deltas[0]), "the events come before the answer so far"


async def test_the_places_of_deltas_join_to_the_answer_and_calls_have_the_ids_of_the_journal(
    runner: Runner,
) -> None:

    script = [
        turn("Let me add.", [call("add", a=1, b=2), call("add", a=3, b=4)], reasoning="Two sums.", chunk=3),
        text("Three and seven.", chunk=3),
    ]
    seen: list[Any] = []
    async with runner.run_stream(Agent(ScriptedModel(script), tools=[add]), "Go.") as stream:
        seen = [event async for event in stream]
    written: dict[Any, str] = {}
    for delta in [item for item in seen if isinstance(item, Delta)]:
        key = (delta.step, delta.channel, delta.call_id)
        assert delta.at == len(written.setdefault(key, "")), "each delta follows the ones before it"
        written[key] += delta.text
    first, last = [event.message for event in seen if isinstance(event, ModelReturned)]
    assert written["s1", "draft", None] == first.text
    assert written["s2", "draft", None] == last.text
    calls = {key[2] for key in written if key[1] == "arguments"}
    assert calls == {call.id for call in first.tool_calls}


# ------- subscriptions begin with the call that makes them, and leave nothing behind if they are never read


def counted(left: list[str]) -> Subscription[int]:
    async def items() -> AsyncGenerator[int, None]:
        try:
            yield 1
            yield 2
        finally:
            left.append("generator")

    return Subscription(items(), lambda: left.append("subscription"))


@pytest.mark.usefixtures("own_garbage")
async def test_a_subscription_that_was_read_is_left_once_by_its_generator() -> None:
    left: list[str] = []
    assert [item async for item in counted(left)] == [1, 2]
    broken_off = counted(left)
    assert await anext(broken_off) == 1
    await broken_off.aclose()
    del broken_off
    gc.collect()
    await asyncio.sleep(0)
    assert left == ["generator", "generator"]


@pytest.mark.usefixtures("own_garbage")
async def test_a_subscription_that_was_never_read_is_left_when_it_is_closed_or_dropped() -> None:
    left: list[str] = []
    await counted(left).aclose()
    counted(left)
    gc.collect()
    await asyncio.sleep(0)
    assert left.count("subscription") >= 2


@pytest.mark.usefixtures("own_garbage")
async def test_events_that_are_never_iterated_over_leave_no_watcher_behind(runner: Runner) -> None:
    task_id = (await runner.run(Agent(ScriptedModel([text("Hello.")])), "Hi")).task_id
    channels: Any = runner._driver.owned.channels  # pyright: ignore[reportPrivateUsage]
    closed, dropped = runner.handle(task_id).events(), runner.handle(task_id).events(follow=True)
    assert len(channels._channels[task_id].watchers) == 2
    await closed.aclose()
    assert len(channels._channels[task_id].watchers) == 1
    del dropped
    gc.collect()
    await until(lambda: task_id not in channels._channels)


@pytest.mark.usefixtures("own_garbage")
async def test_changes_that_are_never_iterated_over_leave_no_subscriber_behind(runner: Runner) -> None:
    changes: Any = runner.changes()
    listening: Any = runner._driver.owned._on_changes  # pyright: ignore[reportPrivateUsage]
    assert len(listening) == 1
    del changes
    gc.collect()
    await until(lambda: not listening)


@pytest.mark.usefixtures("own_garbage")
def test_a_caller_without_an_event_loop_cannot_subscribe() -> None:
    assert not in_event_loop()
