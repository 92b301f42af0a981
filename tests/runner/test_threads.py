"""Threads: which messages a task begins with and adds, and that the messages of two tasks never mix."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.cast import Ledger, calculator, sayer
from tests.runner.acts import assert_well_formed, journal, kinds, only, roles_and_texts, step_to_answer
from treadle import Agent, Limits, Message, Runner, RunOptions, ScriptedModel, tool
from treadle.core.messages import Text, ToolCall, ToolResult
from treadle.errors import AlreadyFinalized
from treadle.llm.scripted import call, fail, text
from treadle.ports import ThreadMember
from treadle.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio


async def test_the_second_turn_sees_the_first_with_its_tool_calls(runner: Runner) -> None:
    """Calls and results of a turn are in the requests of the next turn, so that no model repeats them."""
    agent = calculator()
    await runner.run(agent, "What is (121 * 3) + 42?", thread_id="talk")
    second = calculator(call("add", a=405, b=1), "406")
    result = await runner.run(second, "And one more?", thread_id="talk")
    seen = second.model.requests[0].messages
    assert roles_and_texts(seen) == [
        ("user", "What is (121 * 3) + 42?"),
        ("assistant", "multiply"),
        ("tool", "363"),
        ("assistant", "add"),
        ("tool", "405"),
        ("assistant", "405"),
        ("user", "And one more?"),
    ]
    for request in second.model.requests:
        assert_well_formed(request.messages)
    assert [run.call_id for run in result.tool_executions] == ["s1-0"]
    assert roles_and_texts(result.messages)[0] == ("user", "And one more?"), (
        "a result holds the task's own messages"
    )
    thread = await runner.get_thread("talk")
    assert_well_formed(thread)
    assert len(thread) == 10


async def test_without_a_thread_a_new_one_is_made_and_returned(runner: Runner) -> None:
    one = await runner.run(sayer("Hi."), "Hello")
    other = await runner.run(sayer("Hi."), "Hello")
    assert one.thread_id
    assert one.thread_id != other.thread_id
    agent = sayer("Still here.")
    await runner.run(agent, "Are you there?", thread_id=one.thread_id)
    assert roles_and_texts(agent.model.requests[0].messages)[0] == ("user", "Hello")


async def test_two_threads_never_mix(runner: Runner) -> None:
    async def talk(name: str) -> None:
        for number in range(3):
            agent = calculator(call("add", a=number, b=0), f"{name} answer {number}", name=name)
            await runner.run(agent, f"{name} question {number}", thread_id=name)
            for request in agent.model.requests:
                texts = [
                    said_
                    for role, said_ in roles_and_texts(request.messages)
                    if role in ("user", "assistant")
                ]
                assert all(word.startswith((name, "add")) for word in texts)

    await asyncio.gather(*(talk(name) for name in ("ann", "bob", "eve")))
    for name in ("ann", "bob", "eve"):
        thread = await runner.get_thread(name)
        assert len(thread) == 12
        assert_well_formed(thread)


async def test_a_thread_exists_once_a_task_in_it_is_finalized(runner: Runner) -> None:
    task = await runner.create_task(sayer("Hi."), "Hello", thread_id="talk")
    assert await runner.get_thread("talk") == ()
    await runner.run_step(task)
    assert await runner.get_thread("talk") == ()
    await runner.finalize(task)
    assert roles_and_texts(await runner.get_thread("talk")) == [("user", "Hello"), ("assistant", "Hi.")]


async def test_a_task_starts_from_what_its_thread_holds_when_it_begins_not_when_it_was_made(
    runner: Runner,
) -> None:
    agent = calculator()
    task = await runner.create_task(agent, "First?", thread_id="talk")
    await runner.run(sayer("Earlier.", name="other"), "Second?", thread_id="talk")
    await runner.run_step(task)
    await runner.run(sayer("Later.", name="other"), "Third?", thread_id="talk")
    runner._driver.cache.forget(task.task_id)
    await runner.resume(task)
    before = [("user", "Second?"), ("assistant", "Earlier."), ("user", "First?")]
    assert [roles_and_texts(request.messages)[:3] for request in agent.model.requests] == [before] * 3
    assert [len(request.messages) for request in agent.model.requests] == [3, 5, 7]
    (created,) = await only(runner, task, "task_created")
    (entered,) = await only(runner, task, "thread_entered")
    assert (created.base, entered.base) == (0, 1)


@pytest.mark.parametrize("end", ["failed", "cancelled"])
async def test_a_task_that_did_not_end_well_adds_nothing(runner: Runner, end: str) -> None:
    await runner.run(sayer("Hi."), "Hello", thread_id="talk")
    before = await runner.get_thread("talk")
    assert (await ended_badly(runner, end, RunOptions())).state == end
    assert await runner.get_thread("talk") == before


async def ended_badly(runner: Runner, end: str, options: RunOptions) -> Any:
    agent = calculator(call("add", a=1, b=1), fail(500) if end == "failed" else "2")
    task = await runner.create_task(agent, "1 + 1?", thread_id="talk", options=options)
    if end == "failed":
        return await runner.resume(task)
    await runner.run_step(task)
    return await runner.cancel(task)


@pytest.mark.parametrize("end", ["failed", "cancelled"])
async def test_a_task_that_did_not_end_well_may_be_kept_with_a_closing_note(runner: Runner, end: str) -> None:
    options = RunOptions(keep_in_thread="always")
    assert (await ended_badly(runner, end, options)).state == end
    thread = await runner.get_thread("talk")
    assert roles_and_texts(thread)[:-1] == [("user", "1 + 1?"), ("assistant", "add"), ("tool", "2")]
    role, note = roles_and_texts(thread)[-1]
    assert role == "assistant"
    assert ("failed" if end == "failed" else "cancelled") in note
    assert_well_formed(thread)
    agent = sayer("Sorry.")
    await runner.run(agent, "What happened?", thread_id="talk")
    assert roles_and_texts(agent.model.requests[0].messages)[:-1] == roles_and_texts(thread)


async def test_the_input_of_a_task_cancelled_before_its_first_step_is_kept(
    runner: Runner,
) -> None:
    options = RunOptions(keep_in_thread="always")
    task = await runner.create_task(sayer("Hi."), "Hello", thread_id="talk", options=options)
    await runner.send(task, "Anybody there?")
    await runner.cancel(task)
    assert roles_and_texts(await runner.get_thread("talk"))[:-1] == [
        ("user", "Hello"),
        ("user", "Anybody there?"),
    ]


async def test_a_message_sent_while_a_task_is_being_cancelled_is_kept(runner: Runner) -> None:
    entered, stopping, may_stop = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @tool(read_only=True)
    async def slow() -> str:
        """Stop slowly."""
        entered.set()
        try:
            await asyncio.sleep(60)
        finally:
            stopping.set()
            await may_stop.wait()
        return "done"

    agent = sayer(call("slow"), "Hi.").replace(tools=[slow])
    options = RunOptions(keep_in_thread="always")
    handle = await runner.start(agent, "Hello", thread_id="talk", options=options)
    await entered.wait()
    cancelling = asyncio.ensure_future(handle.cancel())
    await stopping.wait()
    await handle.send("Too late?")
    may_stop.set()
    assert (await cancelling).state == "cancelled"
    assert ("user", "Too late?") in roles_and_texts(await runner.get_thread("talk"))


async def test_a_message_sent_during_the_last_answer_at_a_limit_is_kept(runner: Runner) -> None:
    asked, told = asyncio.Event(), asyncio.Event()

    async def script(request: Any) -> Any:
        if request.tool_choice == "none":
            asked.set()
            await told.wait()
            return "That is all."
        return call("add", a=1, b=1)

    agent = calculator().replace(model=ScriptedModel(script), limits=Limits(steps=1))
    handle = await runner.start(agent, "1 + 1?", thread_id="talk")
    await asked.wait()
    await handle.send("And 2 + 2?")
    told.set()
    result = await handle.result()
    assert (result.state, result.final_text) == ("degraded", "That is all.")
    assert roles_and_texts(await runner.get_thread("talk"))[-2:] == [
        ("assistant", "That is all."),
        ("user", "And 2 + 2?"),
    ]
    again = await runner.resume(result.task_id, options=RunOptions(limits=Limits(steps=9, model_calls=3)))
    assert roles_and_texts(again.messages)[:4] == [
        *roles_and_texts(result.messages)[:3],
        ("user", "And 2 + 2?"),
    ]
    assert [message for _, message in roles_and_texts(again.messages)].count("And 2 + 2?") == 1


async def test_a_failed_task_leaves_its_thread_when_it_is_resumed(runner: Runner) -> None:
    agent = sayer(fail(500), "Hi.")
    options = RunOptions(keep_in_thread="always")
    result = await runner.run(agent, "Hello", thread_id="talk", options=options)
    assert (result.state, len(await runner.get_thread("talk"))) == ("failed", 2)
    again = await runner.resume(result.task_id)
    assert (again.state, again.final_text) == ("completed", "Hi.")
    assert roles_and_texts(await runner.get_thread("talk")) == [("user", "Hello"), ("assistant", "Hi.")]


async def test_a_cancel_in_the_middle_of_a_call_leaves_a_well_formed_thread(runner: Runner) -> None:
    begun = asyncio.Event()

    @tool(read_only=True)
    async def wait() -> None:
        """Wait."""
        begun.set()
        await asyncio.sleep(30)

    agent = Agent(ScriptedModel([[call("wait"), call("wait")], "done"]), tools=[wait])
    options = RunOptions(keep_in_thread="always")
    handle = await runner.start(agent, "?", thread_id="talk", options=options)
    await begun.wait()
    await handle.cancel()
    assert_well_formed(await runner.get_thread("talk"))


async def test_an_abandoned_task_leaves_its_thread_unchanged(runner: Runner) -> None:
    await runner.run(sayer("Hi."), "Hello", thread_id="talk")
    before = await runner.get_thread("talk")
    cancelled = await runner.create_task(calculator(), "?", thread_id="talk")
    await runner.run_step(cancelled)
    await runner.cancel(cancelled)
    deleted = await runner.create_task(calculator(), "?", thread_id="talk")
    await runner.run_step(deleted)
    await runner.delete_task(deleted)
    answered = await runner.create_task(calculator(), "?", thread_id="talk")
    await step_to_answer(runner, answered)
    assert await runner.get_thread("talk") == before


async def test_the_end_of_a_task_and_its_thread_change_in_one_transaction(runner: Runner) -> None:
    """A reader that sees the end of the task sees the change of the thread, and the reverse."""
    handle = await runner.start(calculator(), "?", thread_id="talk")
    seen: set[tuple[bool, bool]] = set()
    async for event in handle.events(deltas=False):
        before = await runner.store.row(handle.task_id)
        version, _ = await runner.store.thread("talk")
        after = await runner.store.row(handle.task_id)
        if before.state == after.state:
            seen.add((after.state == "completed", version == 1))
        if event.kind == "task_ended":
            assert event.thread_version == 1
    assert seen <= {(False, False), (True, True)}
    assert (True, True) in seen


async def test_a_finalized_task_is_added_to_its_thread_after_newer_turns(runner: Runner) -> None:
    slow = await runner.create_task(sayer("slow answer"), "slow?", thread_id="talk")
    await runner.run_step(slow)
    await runner.run(sayer("quick answer"), "quick?", thread_id="talk")
    await runner.finalize(slow)
    assert roles_and_texts(await runner.get_thread("talk")) == [
        ("user", "quick?"),
        ("assistant", "quick answer"),
        ("user", "slow?"),
        ("assistant", "slow answer"),
    ]
    (created,) = await only(runner, slow, "task_created")
    (ended,) = await only(runner, slow, "task_ended")
    assert (created.base, ended.thread_version) == (0, 2), "the version it began with and the one it made"


async def test_messages_imported_in_turn_record_their_own_position_in_the_thread() -> None:
    class Slow(MemoryStore):
        meanwhile: Callable[[], Awaitable[object]] | None = None

        async def thread(self, thread_id: str, **which: Any) -> tuple[int, list[ThreadMember]]:
            found = await super().thread(thread_id, **which)
            meanwhile, self.meanwhile = self.meanwhile, None
            if meanwhile is not None:
                await meanwhile()
            return found

    store = Slow()
    async with Runner(store) as runner:
        store.meanwhile = lambda: runner.run(sayer("First."), "1", thread_id="talk")
        task_id = await runner.import_thread("talk", [Message("user", (Text("Second."),))])
        assert roles_and_texts(await runner.get_thread("talk"))[-2:] == [
            ("assistant", "First."),
            ("user", "Second."),
        ]
        (ended,) = await only(runner, task_id, "task_ended")
        assert ended.thread_version == 2
        assert (await runner.verify()).findings == ()


async def test_many_tasks_may_be_finalized_on_one_thread_at_the_same_time(runner: Runner) -> None:
    tasks = []
    for number in range(6):
        task = await runner.create_task(
            calculator(call("add", a=number, b=0), f"answer {number}"), f"question {number}", thread_id="talk"
        )
        await step_to_answer(runner, task)
        tasks.append(task)
    results = await asyncio.gather(*(runner.finalize(task) for task in tasks))
    assert {result.state for result in results} == {"completed"}
    thread = await runner.get_thread("talk")
    assert len(thread) == 4 * 6
    assert_well_formed(thread)
    for at in range(0, 24, 4):
        texts = [w for _, w in roles_and_texts(thread[at : at + 4])]
        assert texts[0].removeprefix("question ") == texts[3].removeprefix("answer "), "never between them"
    versions = [(await only(runner, task, "task_ended"))[0].thread_version for task in tasks]
    assert sorted(versions) == [1, 2, 3, 4, 5, 6]


async def test_only_the_newest_turn_of_a_thread_can_be_undone(runner: Runner) -> None:
    first = await runner.run(sayer(fail(500), "Hi."), "one", thread_id="talk")
    options = RunOptions(keep_in_thread="always")
    failed_task = await runner.run(sayer(fail(500), "Hi."), "two", thread_id="talk", options=options)
    assert (first.state, failed_task.state) == ("failed", "failed")
    await runner.run(sayer("Hi."), "three", thread_id="talk")
    texts = await runner.get_thread("talk")
    before = await kinds(runner, failed_task.task_id)
    for verb in (runner.resume, runner.run_step, runner.skip_step):
        with pytest.raises(AlreadyFinalized, match="fork"):
            await verb(failed_task.task_id)
    for verb in (runner.send, runner.edit_step):
        with pytest.raises(AlreadyFinalized, match="fork"):
            await verb(failed_task.task_id, "again")
    assert await runner.get_thread("talk") == texts
    assert await kinds(runner, failed_task.task_id) == before
    assert (await runner.get_task(failed_task.task_id)).state == "failed"
    assert (await runner.resume(first.task_id)).state == "completed", "it never was in the thread"


async def test_a_reopened_task_leaves_its_thread_in_the_transaction_that_reopens_it(runner: Runner) -> None:
    await runner.run(sayer("Hi."), "Hello", thread_id="talk")
    result = await runner.run(calculator(), "?", thread_id="talk")
    await runner.undo_step(result.task_id)
    assert len(await runner.get_thread("talk")) == 2
    await runner.resume(result.task_id)
    assert len(await runner.get_thread("talk")) == 8
    first, second = await only(runner, result.task_id, "task_ended")
    assert first.thread_version == 2
    assert second.thread_version > 2


async def test_a_new_task_does_not_see_the_undone_turn_of_its_thread(
    runner: Runner,
) -> None:
    await runner.run(sayer("Hi."), "Hello", thread_id="talk")
    taken = await runner.run(calculator(), "?", thread_id="talk")
    await runner.undo_step(taken.task_id)
    agent = sayer("Only you.")
    await runner.run(agent, "Who is here?", thread_id="talk")
    assert roles_and_texts(agent.model.requests[0].messages) == [
        ("user", "Hello"),
        ("assistant", "Hi."),
        ("user", "Who is here?"),
    ]


async def test_a_task_that_began_before_an_undo_in_its_thread_keeps_the_messages_it_saw(
    runner: Runner,
) -> None:
    taken = await runner.run(calculator(), "?", thread_id="talk")
    agent = calculator()
    task = await runner.create_task(agent, "Again?", thread_id="talk")
    await runner.run_step(task)
    await runner.undo_step(taken.task_id)
    runner._driver.cache.forget(task.task_id)
    await runner.run_step(task)
    assert [len(request.messages) for request in agent.model.requests] == [7, 9]
    assert_well_formed(agent.model.requests[1].messages)


async def test_created_parked_and_unfinalized_tasks_hold_no_thread(runner: Runner) -> None:
    await runner.create_task(calculator(), "created", thread_id="talk")
    parked = await runner.create_task(calculator(), "parked", thread_id="talk")
    await runner.run_step(parked)
    await runner.pause(parked)
    result = await asyncio.wait_for(runner.run(sayer("Hi."), "Hello", thread_id="talk"), 5)
    assert result.state == "completed"


async def test_messages_of_a_running_task_are_not_in_its_thread(runner: Runner) -> None:
    handle = await runner.start(sayer(text("slow", delay=30)), "Hello", thread_id="talk")
    assert await runner.get_thread("talk") == ()
    await handle.cancel()


async def test_a_return_direct_answer_is_in_the_thread(runner: Runner) -> None:
    @tool(return_direct=True, read_only=True)
    async def now() -> str:
        """Tell the time."""
        return "noon"

    agent = Agent(ScriptedModel([call("now")]), tools=[now])
    result = await runner.run(agent, "What time is it?", thread_id="talk")
    assert (result.final_text, result.output, result.steps) == ("noon", "noon", 1)
    thread = await runner.get_thread("talk")
    assert roles_and_texts(thread)[-1] == ("assistant", "noon")
    assert_well_formed(thread)


async def test_an_unread_message_at_the_end_is_never_lost(runner: Runner) -> None:
    ledger = Ledger()
    task = await runner.create_task(ledger.agent("first", "second"), "Hello", thread_id="talk")
    await runner.run_step(task)
    await runner.send(task, "Wait!")
    assert (await runner.resume(task)).final_text == "second"
    assert ("user", "Wait!") in roles_and_texts(await runner.get_thread("talk"))
    assert [event.kind for event in await journal(runner, task)].count("task_ended") == 1


async def test_the_next_turn_sees_all_that_a_provider_wants_back_and_which_results_were_errors(
    runner: Runner,
) -> None:
    add_call = ToolCall("a", "add", {"a": 1}, meta={"signature": "call"})
    failed = ToolResult("a", "add", (Text("no"),), is_error=True)
    broken = ToolCall("b", "add", {}, raw='{"a": ', problem="cut off")
    refused = ToolResult("b", "add", (Text("was not run"),), is_error=True)
    texts = [
        Message("user", (Text("go"),), meta={"mark": "cache"}),
        Message("assistant", (Text("well", meta={"mark": 1}), add_call), meta={"reasoning": "encrypted"}),
        Message("tool", (failed,)),
        Message("assistant", (broken,)),
        Message("tool", (refused,)),
    ]
    await runner.import_thread("talk", texts)
    agent = sayer("Seen.")
    await runner.run(agent, "What do you see?", thread_id="talk")
    shown = agent.model.requests[0].messages[:-1]

    def without_ids(message: Message) -> Message:
        parts = [
            replace(part, id="")
            if isinstance(part, ToolCall)
            else replace(part, call_id="")
            if isinstance(part, ToolResult)
            else part
            for part in message.parts
        ]
        return replace(message, parts=tuple(parts))

    assert [without_ids(message) for message in shown] == [without_ids(message) for message in texts]
    assert_well_formed(shown)


async def test_pruning_takes_between_steps_as_a_state(runner: Runner) -> None:
    task = await runner.create_task(calculator(), "What is (121 * 3) + 42?")
    assert (await runner.run_step(task)).state == "running"
    assert (await runner.prune(0, states=["paused"], dry_run=True)).tasks == ()
    assert (await runner.prune(0, states=["between steps"])).tasks == (task.task_id,)
