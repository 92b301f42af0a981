"""Tasks that share a thread: which task holds it, which tasks wait, and what the next task sees."""

import asyncio
import time
from typing import Any

import pytest

from tests.attack.failing import Failing
from tests.cast import calculator, sayer
from tests.runner.acts import assert_well_formed, kinds, only, roles_and_texts, step_to_answer
from treadle import Agent, Limits, Runner, RunOptions, ScriptedModel, tool
from treadle.core.journal import unfold
from treadle.drivers import ownership
from treadle.errors import StoreUnavailable, ThreadBusy
from treadle.llm.scripted import call
from treadle.stores.memory import MemoryStore
from treadle.testing.audit import audit_store

pytestmark = pytest.mark.anyio

REJECT = RunOptions(on_busy_thread="reject")
INTERRUPT = RunOptions(on_busy_thread="interrupt")
PARALLEL = RunOptions(on_busy_thread="parallel")


class Gate:
    """An agent whose tool call lasts until the gate opens."""

    def __init__(self) -> None:
        self.reached, self.opened = asyncio.Event(), asyncio.Event()

        @tool(read_only=True)
        async def wait() -> str:
            """Wait at the gate."""
            self.reached.set()
            await self.opened.wait()
            return "open"

        self.agent = Agent(ScriptedModel([call("wait"), "through"]), name="gate", tools=[wait])

    async def hold(self, runner: Runner, thread: str = "talk", **how: Any) -> Any:
        """Start a task that has the thread until the gate opens."""
        handle = await runner.start(self.agent, "hold", thread_id=thread, **how)
        await self.reached.wait()
        return handle


async def soon(holds: Any) -> None:
    async with asyncio.timeout(10):
        while not await holds():  # noqa: ASYNC110 (there is nothing to be woken by)
            await asyncio.sleep(0.005)


async def exists(runner: Runner, task_id: str) -> bool:
    return task_id in [item.task_id for item in (await runner.list_tasks()).items]


async def in_line(runner: Runner, task_id: str) -> None:
    async def waits() -> bool:
        return "thread_awaited" in [
            event.kind for _, events in await _journal(runner, task_id) for event in events
        ]

    await soon(waits)


async def _journal(runner: Runner, task_id: str) -> Any:
    return list(unfold(task_id, await runner.store.read(task_id)))


async def sound(runner: Runner, thread: str = "talk") -> None:
    """Nothing is held, the thread is well-formed, and so is every journal."""
    assert_well_formed(await runner.get_thread(thread))
    assert not [str(violation) for violation in await audit_store(runner.store)]
    assert (
        await asyncio.wait_for(runner.run(sayer("Free."), "Free?", thread_id=thread, options=REJECT), 5)
    ).state == "completed"


async def test_the_second_task_of_a_thread_begins_after_the_first_and_sees_its_messages(
    runner: Runner,
) -> None:
    gate, agent = Gate(), sayer("Second.")
    first = await gate.hold(runner)
    second = await runner.start(agent, "next", thread_id="talk")
    await in_line(runner, second.task_id)
    assert agent.model.requests == []
    gate.opened.set()
    result = await asyncio.wait_for(second.result(), 5)
    assert (await first.result()).state == result.state == "completed"
    assert roles_and_texts(agent.model.requests[0].messages)[-2:] == [
        ("assistant", "through"),
        ("user", "next"),
    ]
    assert (await kinds(runner, second.task_id))[:3] == ["task_created", "thread_awaited", "thread_entered"]
    (awaited,) = await only(runner, second.task_id, "thread_awaited")
    (entered,) = await only(runner, second.task_id, "thread_entered")
    (ended,) = await only(runner, second.task_id, "task_ended")
    assert (awaited.holders, entered.base, ended.thread_version) == ((first.task_id,), 1, 2)
    assert [texts for _, texts in roles_and_texts(result.messages)] == ["next", "Second."]
    live = await runner.get_task(second.task_id)
    runner._driver.cache.forget(second.task_id)
    assert await runner.get_task(second.task_id) == live
    await sound(runner)


async def test_queued_tasks_begin_in_the_order_of_their_arrival(runner: Runner) -> None:
    gate = Gate()
    await gate.hold(runner)
    agents = [sayer(f"answer {n}") for n in range(8)]
    handles = []
    for number, agent in enumerate(agents):
        handles.append(await runner.start(agent, f"question {number}", thread_id="talk"))
        await in_line(runner, handles[-1].task_id)
    gate.opened.set()
    await asyncio.gather(*(handle.result() for handle in handles))
    texts = [texts for role, texts in roles_and_texts(await runner.get_thread("talk")) if role == "user"]
    assert texts == ["hold", *(f"question {n}" for n in range(8))]
    for number, agent in enumerate(agents):
        assert len(agent.model.requests[0].messages) == 4 + 2 * number + 1
    await sound(runner)


async def test_a_busy_thread_is_named_in_the_error_and_no_task_is_created(runner: Runner) -> None:
    gate = Gate()
    first = await gate.hold(runner)
    before = [item.task_id for item in (await runner.list_tasks()).items]
    for verb in (runner.run, runner.start):
        with pytest.raises(ThreadBusy, match="talk") as refused:
            await verb(sayer(), "next", thread_id="talk", options=REJECT, task_id="mine")
        assert (refused.value.task_id, refused.value.thread_id) == (first.task_id, "talk")
    with pytest.raises(ThreadBusy):
        async with runner.run_stream(sayer(), "next", thread_id="talk", options=REJECT) as stream:
            assert [event async for event in stream] == []
    assert [item.task_id for item in (await runner.list_tasks()).items] == before
    made = await runner.create_task(sayer(), "next", thread_id="talk", options=REJECT)
    for step in (runner.run_step, runner.resume):
        with pytest.raises(ThreadBusy):
            await step(made)
        assert (await runner.get_task(made)).state == "created"
    assert await kinds(runner, made) == ["task_created"]
    gate.opened.set()
    await first.result()
    assert (await runner.resume(made)).state == "completed"
    await sound(runner)


async def test_the_first_is_interrupted_and_the_second_begins(runner: Runner) -> None:
    gate, agent = Gate(), sayer("Second.")
    first = await gate.hold(runner)
    waiting = await runner.start(sayer("Third."), "wait", thread_id="talk")
    await in_line(runner, waiting.task_id)
    result = await asyncio.wait_for(runner.run(agent, "now", thread_id="talk", options=INTERRUPT), 5)
    assert result.state == "completed"
    assert roles_and_texts(agent.model.requests[0].messages) == [("user", "now")]
    assert (await first.result()).state == "interrupted"
    assert (await waiting.result()).state == "completed"
    gate.opened.set()
    assert (await runner.resume(first.task_id)).state == "completed"
    users = [texts for role, texts in roles_and_texts(await runner.get_thread("talk")) if role == "user"]
    assert users == ["now", "wait", "hold"], "a task that ends later is added after newer turns"
    await sound(runner)


async def test_parallel_tasks_begin_beside_each_other_and_queued_tasks_wait(runner: Runner) -> None:
    one, two = Gate(), Gate()
    first = await one.hold(runner)
    second = await two.hold(runner, options=PARALLEL)
    third = await runner.start(sayer("Third."), "third", thread_id="talk")
    one.opened.set()
    await first.result()
    await asyncio.sleep(0.05)
    assert (await runner.get_task(third.task_id)).state == "running"
    assert "step_started" not in [e.kind for _, es in await _journal(runner, third.task_id) for e in es]
    two.opened.set()
    assert (await third.result()).state == "completed"
    (created,) = await only(runner, second.task_id, "task_created")
    (ended,) = await only(runner, second.task_id, "task_ended")
    assert (created.base, ended.thread_version) == (0, 2)
    await sound(runner)


async def test_a_waiting_task_can_be_cancelled_paused_and_left(runner: Runner) -> None:
    gate = Gate()
    first = await gate.hold(runner)
    cancelled = await runner.start(sayer(), "cancelled", thread_id="talk")
    paused = await runner.start(sayer("Paused."), "paused", thread_id="talk")
    left = asyncio.ensure_future(runner.run(sayer("Left."), "left", thread_id="talk", task_id="left"))
    last = await runner.start(sayer("Last."), "last", thread_id="talk")
    await soon(lambda: exists(runner, "left"))
    for task_id in (cancelled.task_id, paused.task_id, "left", last.task_id):
        await in_line(runner, task_id)
    assert (await asyncio.wait_for(cancelled.cancel(), 5)).state == "cancelled"
    assert (await asyncio.wait_for(paused.pause(), 5)).state == "paused"
    left.cancel()
    with pytest.raises(asyncio.CancelledError):
        await left
    assert (await runner.get_task("left")).state == "interrupted"
    gate.opened.set()
    assert (await asyncio.wait_for(last.result(), 5)).state == "completed"
    assert (await first.result()).state == "completed"
    for task_id in (paused.task_id, "left"):
        assert (await asyncio.wait_for(runner.resume(task_id), 5)).state == "completed"
    users = [texts for role, texts in roles_and_texts(await runner.get_thread("talk")) if role == "user"]
    assert users == ["hold", "last", "paused", "left"]
    await sound(runner)


async def test_a_message_to_a_waiting_task_is_read_when_the_task_begins(runner: Runner) -> None:
    gate, agent = Gate(), sayer("Second.", "Third.")
    await gate.hold(runner)
    second = await runner.start(agent, "next", thread_id="talk")
    await in_line(runner, second.task_id)
    await second.send("and this")
    gate.opened.set()
    await second.result()
    assert roles_and_texts(agent.model.requests[0].messages)[-2:] == [("user", "next"), ("user", "and this")]
    await sound(runner)


async def test_a_step_has_the_thread_for_its_length_and_no_longer(runner: Runner) -> None:
    gate = Gate()
    task = await runner.create_task(gate.agent, "step", thread_id="talk")
    stepping = asyncio.ensure_future(runner.run_step(task))
    await gate.reached.wait()
    with pytest.raises(ThreadBusy) as refused:
        await runner.run(sayer(), "next", thread_id="talk", options=REJECT)
    assert refused.value.task_id == task.task_id
    gate.opened.set()
    await stepping
    assert (
        await runner.run(sayer("Between."), "next", thread_id="talk", options=REJECT)
    ).state == "completed"
    await step_to_answer(runner, task)
    assert (await runner.finalize(task)).state == "completed"
    assert len(gate.agent.model.requests[1].messages) == 3, "what it began with stays what it was"
    await sound(runner)


async def test_a_resumed_task_waits_for_its_thread_and_keeps_its_messages(runner: Runner) -> None:
    older = calculator()
    task = await runner.create_task(older, "?", thread_id="talk")
    await runner.run_step(task)
    gate = Gate()
    await gate.hold(runner)
    resumed = asyncio.ensure_future(runner.resume(task))
    await in_line(runner, task.task_id)
    gate.opened.set()
    assert (await resumed).state == "completed"
    assert "hold" not in [texts for _, texts in roles_and_texts(older.model.requests[-1].messages)]
    assert [m.text for m in (await runner.get_thread("talk")) if m.role == "user"] == ["hold", "?"]
    await sound(runner)


async def test_waiting_for_a_thread_is_not_driven_time(runner: Runner) -> None:
    gate = Gate()
    await gate.hold(runner)
    began = time.time_ns() // 1_000
    second = await runner.start(sayer("Second."), "next", thread_id="talk")
    await in_line(runner, second.task_id)
    queued = time.time_ns() // 1_000
    await asyncio.sleep(0.2)
    opened = time.time_ns() // 1_000
    gate.opened.set()
    assert (await second.result()).state == "completed"
    state = (await runner._driver.cache.load(second.task_id)).state
    assert state.driven <= queued - began + state.time - opened


async def test_a_tool_that_would_wait_for_its_own_thread_gets_an_error(runner: Runner) -> None:
    started: list[Any] = []

    @tool
    async def ask_again() -> str:
        """Ask in the same conversation."""
        started.append(await runner.start(sayer("Afterwards."), "afterwards", thread_id="talk"))
        made = await runner.create_task(sayer("At last."), "at last", thread_id="talk", task_id="known")
        started.append(await runner.start(sayer("At last."), "at last", task_id=made.task_id))
        return (await runner.run(sayer("Inner."), "inner", thread_id="talk")).final_text

    agent = Agent(ScriptedModel([call("ask_again"), "done"]), tools=[ask_again])
    result = await asyncio.wait_for(runner.run(agent, "outer", thread_id="talk"), 5)
    (execution,) = result.tool_executions
    assert execution.error is not None
    assert "would wait for itself" in execution.error.message
    for handle in started:
        assert (await asyncio.wait_for(handle.result(), 5)).state == "completed"


async def test_a_new_task_in_the_thread_of_a_running_one_waits_for_it(runner: Runner) -> None:
    """A thread that was created for a task can be used while the task is driven."""
    gate = Gate()
    handle = await runner.start(gate.agent, "hold")
    await gate.reached.wait()
    thread = (await runner.get_task(handle.task_id)).thread_id
    with pytest.raises(ThreadBusy):
        await runner.run(sayer(), "next", thread_id=thread, options=REJECT)
    gate.opened.set()
    await handle.result()
    await sound(runner, thread)


async def test_two_runners_on_one_store_take_turns(store: Any) -> None:
    async with Runner(store) as one, Runner(store) as two:
        gate = Gate()
        await gate.hold(one)
        agent = sayer("Second.")
        second = await two.start(agent, "next", thread_id="talk")
        await in_line(two, second.task_id)
        gate.opened.set()
        assert (await asyncio.wait_for(second.result(), 5)).state == "completed"
        assert len(agent.model.requests[0].messages) == 5
        await sound(two)


async def test_closing_the_runner_ends_a_wait_and_the_task_can_be_resumed(store: Any) -> None:
    gate = Gate()
    async with Runner(store) as runner:
        await gate.hold(runner)
        waiting = await runner.start(sayer("Second."), "next", thread_id="talk", task_id="next")
        await in_line(runner, waiting.task_id)
    async with Runner(store) as runner:
        assert (await runner.get_task("next")).state == "interrupted"
        gate.opened.set()
        assert (await runner.resume("next", agent=sayer("Second."))).state == "completed"
        await sound(runner)


async def test_turns_of_many_callers_are_neither_lost_nor_mixed(runner: Runner) -> None:
    async def talk(caller: int) -> None:
        for number in range(5):
            texts = f"{caller}.{number}"
            agent = calculator(call("add", a=caller, b=number), f"answer {texts}", name=f"caller{caller}")
            assert (
                await runner.run(agent, f"question {texts}", thread_id=f"talk{caller % 2}")
            ).state == "completed"

    await asyncio.wait_for(asyncio.gather(*(talk(caller) for caller in range(8))), 30)
    for name in ("talk0", "talk1"):
        thread = await runner.get_thread(name)
        assert len(thread) == 4 * 20
        assert_well_formed(thread)
        for at in range(0, len(thread), 4):
            texts = [texts for _, texts in roles_and_texts(thread[at : at + 4])]
            assert texts[0].removeprefix("question ") == texts[3].removeprefix("answer "), (
                "never between them"
            )


@pytest.mark.parametrize("made", [True, False], ids=["made", "taken up"])
async def test_a_task_that_interrupts_begins_before_queued_tasks(runner: Runner, made: bool) -> None:
    """The holder leaves the thread a while after it was interrupted, when tasks are queued already."""
    urgent = await runner.create_task(sayer("urgent"), "urgent", thread_id="talk", options=INTERRUPT)
    stubborn, entered = asyncio.Event(), asyncio.Event()

    @tool(read_only=True)
    async def cling() -> str:
        """Let go late."""
        entered.set()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            await stubborn.wait()
            raise
        return "never"

    holder = Agent(ScriptedModel([call("cling"), "through"]), tools=[cling])
    first = await runner.start(holder, "hold", thread_id="talk")
    await entered.wait()
    results = []
    for name, options in (("waiting", RunOptions()), ("urgent", INTERRUPT), ("later", RunOptions())):
        if name == "urgent" and not made:
            task_id = urgent.task_id
            results.append(asyncio.ensure_future(runner.resume(urgent)))
        else:
            started = await runner.start(sayer(name), name, thread_id="talk", options=options)
            task_id = started.task_id
            results.append(asyncio.ensure_future(started.result()))
        await in_line(runner, task_id)
    stubborn.set()
    for result in await asyncio.wait_for(asyncio.gather(*results), 5):
        assert result.state == "completed"
    assert (await first.result()).state == "interrupted"
    users = [texts for role, texts in roles_and_texts(await runner.get_thread("talk")) if role == "user"]
    assert users == ["urgent", "waiting", "later"]


async def test_a_task_that_is_resumed_in_parallel_does_not_wait(runner: Runner) -> None:
    task = await runner.create_task(calculator(), "mine", thread_id="talk", options=PARALLEL)
    await runner.run_step(task)
    gate = Gate()
    first = await gate.hold(runner)
    assert (await asyncio.wait_for(runner.resume(task), 5)).state == "completed"
    gate.opened.set()
    assert (await first.result()).state == "completed"


async def test_a_task_that_ran_before_waits_for_its_thread_like_any_other(runner: Runner) -> None:
    """Only from inside of the task it would wait for itself."""
    gate = Gate()
    limited = RunOptions(limits=Limits(steps=0), on_limit="pause")
    held = await runner.run(gate.agent, "hold", thread_id="talk", options=limited)
    assert held.state == "paused"
    going_on = asyncio.ensure_future(runner.resume(held.task_id, options=RunOptions(limits=Limits(steps=9))))
    await gate.reached.wait()
    second = asyncio.ensure_future(runner.run(sayer("Second."), "next", thread_id="talk", task_id="second"))
    await soon(lambda: exists(runner, "second"))
    gate.opened.set()
    assert (await asyncio.wait_for(second, 5)).state == "completed"
    assert (await going_on).state == "completed"


async def test_a_task_that_could_not_be_released_keeps_its_thread_no_longer_than_its_store_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ownership, "RELEASE_SECONDS", (3600.0,))
    failing: Any = Failing(MemoryStore(), lambda k: k >= 2, written=False)
    async with Runner(failing) as runner:
        with pytest.raises(StoreUnavailable):
            await runner.run(sayer("First."), "first", thread_id="talk", task_id="first")
        assert "first" in runner._driver.owned.unreleased
        failing.fails = lambda _: False
        result = await asyncio.wait_for(runner.run(sayer("Second."), "second", thread_id="talk"), 5)
        assert result.state == "completed"


async def test_undo_of_a_task_that_waited_for_its_thread_restores_its_first_messages(runner: Runner) -> None:
    gate, agent = Gate(), calculator(call("add", a=1, b=2), "3", "three")
    await gate.hold(runner)
    second = await runner.start(agent, "next", thread_id="talk")
    await in_line(runner, second.task_id)
    gate.opened.set()
    assert (await asyncio.wait_for(second.result(), 5)).final_text == "3"
    await runner.undo_step(second.task_id, to=0)
    assert (await runner.resume(second.task_id)).state == "completed"
    again = roles_and_texts(agent.model.requests[-2].messages)
    assert again == roles_and_texts(agent.model.requests[0].messages)
    assert [role for role, _ in again] == ["user", "assistant", "tool", "assistant", "user"]


async def test_a_fork_that_waited_for_its_thread_keeps_its_own_messages(runner: Runner) -> None:
    gate, agent = Gate(), calculator(call("add", a=1, b=2), "3", name="forked")
    task = await runner.create_task(agent, "mine")
    await runner.run_step(task)
    first = await gate.hold(runner)
    fork = await runner.fork(task, thread_id="talk")
    resumed = asyncio.ensure_future(runner.resume(fork))
    await in_line(runner, fork.task_id)
    gate.opened.set()
    assert (await first.result()).state == "completed"
    assert (await asyncio.wait_for(resumed, 5)).final_text == "3"
    assert roles_and_texts(agent.model.requests[-1].messages) == [
        ("user", "mine"),
        ("assistant", "add"),
        ("tool", "3"),
    ]


async def test_a_task_that_interrupts_its_thread_interrupts_all_tasks_in_it(runner: Runner) -> None:
    gates = Gate(), Gate()
    handles = [await gate.hold(runner, options=PARALLEL) for gate in gates]
    third = runner.run(sayer("Mine."), "now", thread_id="talk", options=INTERRUPT)
    assert (await asyncio.wait_for(third, 5)).state == "completed"
    assert [(await handle.result()).state for handle in handles] == ["interrupted"] * 2


async def test_an_undo_of_a_task_that_waits_for_its_thread_does_not_wait_for_it(runner: Runner) -> None:
    gate, agent = Gate(), calculator(call("add", a=1, b=2), "3", "three")
    task = await runner.create_task(agent, "mine", thread_id="talk")
    await runner.run_step(task)
    first = await gate.hold(runner)
    resumed = asyncio.ensure_future(runner.resume(task))
    await in_line(runner, task.task_id)
    report = await asyncio.wait_for(runner.undo_step(task), 5)
    assert (report.complete, report.steps) == (True, ("s1",))
    gate.opened.set()
    await first.result()
    await asyncio.wait_for(resumed, 5)
    await sound(runner)


@pytest.mark.virtual_time
async def test_a_task_that_waited_when_it_was_resumed_is_driven_time_again_once_it_came_in(
    runner: Runner,
) -> None:
    gate, own = Gate(), Gate()
    agent = Agent(ScriptedModel([call("wait"), call("wait"), "mine"]), name="own", tools=own.agent.tools)
    own.opened.set()
    task = await runner.create_task(agent, "mine", thread_id="talk")
    await runner.run_step(task)
    own.opened.clear()
    own.reached.clear()
    first = await gate.hold(runner)
    resumed = asyncio.ensure_future(runner.resume(task))
    await in_line(runner, task.task_id)
    before = (await runner._driver.cache.load(task.task_id)).state.driven
    gate.opened.set()
    await first.result()
    await own.reached.wait()
    await asyncio.sleep(0.1)
    own.opened.set()
    assert (await asyncio.wait_for(resumed, 5)).state == "completed"
    assert (await runner._driver.cache.load(task.task_id)).state.driven - before > 90_000


async def test_the_thread_of_a_fork_holds_the_messages_its_parent_waited_for(runner: Runner) -> None:
    gate, agent = Gate(), sayer("Second.", "Third.")
    await gate.hold(runner)
    second = await runner.start(agent, "next", thread_id="talk")
    await in_line(runner, second.task_id)
    gate.opened.set()
    assert (await asyncio.wait_for(second.result(), 5)).state == "completed"
    fork = await runner.fork(second.task_id, input="And then?", thread_id="aside")
    assert (await runner.resume(fork)).state == "completed"
    texts = roles_and_texts(await runner.get_thread("aside"))
    assert texts[: len(roles_and_texts(await runner.get_thread("talk")))] == roles_and_texts(
        await runner.get_thread("talk")
    )
    assert ("user", "And then?") in texts
