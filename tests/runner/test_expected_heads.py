"""`expect=`: a command is carried out only if the task still stands as its caller saw it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.cast import calculator, sayer
from tests.runner.acts import journal, kinds, to_pause
from treadle import Agent, Breakpoint, Happened, NotHappened, Runner, RunOptions, ScriptedModel, tool
from treadle.errors import ConfigurationError, TaskMoved, TaskStateError
from treadle.llm.scripted import call, fail

pytestmark = pytest.mark.anyio

Verb = Callable[[Runner, str, int], Awaitable[Any]]


async def stepped(runner: Runner) -> str:
    """Return a task with one step done, and two to go."""
    task = await runner.create_task(calculator(), "What is (121 * 3) + 42?")
    await runner.run_step(task)
    return task.task_id


async def answered(runner: Runner) -> str:
    """Return a task that has answered."""
    task = await runner.create_task(sayer(), "Hi")
    await runner.run_step(task)
    return task.task_id


async def failed_step(runner: Runner) -> str:
    """Return a task whose step failed."""
    return (await runner.run(sayer(fail(400)), "Hi")).task_id


async def proposed_call(runner: Runner) -> str:
    """Return a task with a call that has not begun."""
    options = RunOptions(break_on=[Breakpoint(tool="multiply")])
    return (await runner.run(calculator(), "What is (121 * 3) + 42?", options=options)).task_id


VERBS: dict[str, tuple[Callable[[Runner], Awaitable[str]], Verb]] = {
    "run_step": (stepped, lambda runner, task, head: runner.run_step(task, expect=head)),
    "run_ready_steps": (stepped, lambda runner, task, head: runner.run_ready_steps(task, expect=head)),
    "resume": (stepped, lambda runner, task, head: runner.resume(task, expect=head)),
    "hand_on": (stepped, lambda runner, task, head: runner.resume(task, expect=head, drive=False)),
    "undo_step": (stepped, lambda runner, task, head: runner.undo_step(task, expect=head)),
    "fork": (stepped, lambda runner, task, head: runner.fork(task, expect=head)),
    "edit_step": (stepped, lambda runner, task, head: runner.edit_step(task, "And?", expect=head)),
    "edit_call": (
        proposed_call,
        lambda runner, task, head: runner.edit_call(task, "s1-0", {"a": 1, "b": 2}, expect=head),
    ),
    "skip_step": (failed_step, lambda runner, task, head: runner.skip_step(task, expect=head)),
    "finalize": (answered, lambda runner, task, head: runner.finalize(task, expect=head)),
}


@pytest.mark.parametrize("name", VERBS)
async def test_a_verb_is_carried_out_only_at_the_event_that_its_caller_saw_last(
    runner: Runner, name: str
) -> None:
    prepare, verb = VERBS[name]
    task_id = await prepare(runner)
    head = (await runner.get_task(task_id)).head
    with pytest.raises(
        TaskMoved, match=rf"event {head} is the last .* event {head - 1} was expected"
    ) as moved:
        await verb(runner, task_id, head - 1)
    assert (moved.value.task_id, moved.value.head) == (task_id, head)
    assert isinstance(moved.value, TaskStateError)
    assert (await runner.get_task(task_id)).head == head, "nothing was recorded"
    assert (await runner.list_tasks(forked_from=task_id)).items == ()
    await verb(runner, task_id, head)


async def test_of_two_who_edit_what_they_saw_one_is_told_that_the_task_has_moved(runner: Runner) -> None:
    task_id = await stepped(runner)
    head = (await runner.get_task(task_id)).head
    edits = [runner.edit_step(task_id, f"edit {number}", expect=head) for number in range(2)]
    outcomes = await asyncio.gather(*edits, return_exceptions=True)
    assert len([each for each in outcomes if isinstance(each, TaskStateError)]) == 1
    assert len([each for each in await journal(runner, task_id) if each.kind == "input_edited"]) == 1
    with pytest.raises(TaskMoved):
        await runner.edit_step(task_id, "edit 3", expect=head)


class Writer:
    """An agent whose tool may write, and waits until it is let go."""

    def __init__(self) -> None:
        self.entered, self.let_go = asyncio.Event(), asyncio.Event()

        @tool
        async def work() -> str:
            """Work."""
            self.entered.set()
            await self.let_go.wait()
            return "worked"

        self.agent = Agent(ScriptedModel([call("work"), "Done."]), name="writer", tools=[work])


async def test_a_settlement_for_a_task_that_moved_settles_nothing(runner: Runner) -> None:
    writer = Writer()
    handle = await runner.start(writer.agent, "Go")
    await writer.entered.wait()
    await handle.interrupt()
    (pending,) = (await handle.resume()).pending
    head = (await runner.get_task(handle.task_id)).head
    with pytest.raises(TaskMoved):
        await handle.settle(pending.request_id, Happened("worked"), expect=head - 1)
    assert (await runner.result(handle.task_id)).pending == (pending,)
    await handle.settle(pending.request_id, Happened("worked"), expect=head)
    assert (await handle.resume()).state == "completed"


async def test_a_settlement_is_refused_by_the_driver_that_moved_the_task_just_before(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer()
    handle = await runner.start(writer.agent, "Go")
    await writer.entered.wait()
    await handle.interrupt()
    (pending,) = (await handle.resume()).pending
    head = (await runner.get_task(handle.task_id)).head
    post = runner.store.post

    async def post_after_a_message(task_id: str, item: Any) -> bool:
        if item.kind == "settle":
            await runner.send(handle.task_id, "Wait!")
        return await post(task_id, item)

    monkeypatch.setattr(runner.store, "post", post_after_a_message)
    with pytest.raises(TaskMoved) as moved:
        await handle.settle(pending.request_id, NotHappened(), expect=head)
    assert moved.value.head == head + 1
    assert (await runner.result(handle.task_id)).pending


async def test_an_undo_is_refused_by_the_driver_of_a_task_that_moved(runner: Runner) -> None:
    writer = Writer()
    handle = await runner.start(writer.agent, "Go")
    await writer.entered.wait()
    undoing = asyncio.ensure_future(handle.undo_step(expect=1))
    await asyncio.sleep(0.05)
    writer.let_go.set()
    with pytest.raises(TaskMoved):
        await undoing
    assert "undo_requested" not in [event.kind for event in await journal(runner, handle.task_id)]


@pytest.mark.parametrize("drive", [True, False], ids=["driving", "handing on"])
@pytest.mark.parametrize("is_paused", [True, False], ids=["paused since", "at work"])
async def test_a_task_that_another_caller_took_up_meanwhile_does_not_go_on_by_an_old_resume(
    runner: Runner, monkeypatch: pytest.MonkeyPatch, drive: bool, is_paused: bool
) -> None:
    """It is taken up, and to be paused, just when the resume has seen that it stands as expected."""
    writer = Writer()
    task = await runner.create_task(writer.agent, "Go")
    inbox = runner.store.inbox
    pausing = list[Any]()

    async def taken_up(task_id: str) -> Any:
        monkeypatch.setattr(runner.store, "inbox", inbox)
        handle = await runner.start(writer.agent, "Go", task_id=task_id)
        await writer.entered.wait()
        if is_paused:
            pausing.append(asyncio.ensure_future(handle.pause()))
            await to_pause(runner, task_id)
        return await inbox(task_id)

    monkeypatch.setattr(runner.store, "inbox", taken_up)
    with pytest.raises(TaskMoved):
        async with asyncio.timeout(5):
            await runner.resume(task, expect=task.head, drive=drive)
    writer.let_go.set()
    stopped = await runner.handle(task.task_id).result()
    assert stopped.state == ("paused" if is_paused else "completed")
    assert "resumed" not in await kinds(runner, task.task_id)
    await asyncio.gather(*pausing)


@pytest.mark.parametrize("drive", [True, False], ids=["driving", "handing on"])
async def test_a_resume_is_refused_by_the_driver_that_moved_the_task_just_before(
    runner: Runner, monkeypatch: pytest.MonkeyPatch, drive: bool
) -> None:
    writer = Writer()
    handle = await runner.start(writer.agent, "Go")
    await writer.entered.wait()
    pausing = asyncio.ensure_future(handle.pause())
    await to_pause(runner, handle.task_id)
    head = (await runner.get_task(handle.task_id)).head
    post = runner.store.post

    async def post_after_a_message(task_id: str, item: Any) -> bool:
        if item.kind == "resume":
            await runner.send(handle.task_id, "Wait!")
        return await post(task_id, item)

    monkeypatch.setattr(runner.store, "post", post_after_a_message)
    with pytest.raises(TaskMoved):
        async with asyncio.timeout(5):
            await handle.resume(expect=head, drive=drive)
    writer.let_go.set()
    assert (await pausing).state == "paused"
    assert "resumed" not in await kinds(runner, handle.task_id)
    head = (await runner.get_task(handle.task_id)).head
    await handle.resume(expect=head, drive=drive)


async def test_what_a_crash_left_open_does_not_move_the_task_for_a_caller_who_saw_it_so(store: Any) -> None:
    """The next owner notes the calls that were cut off, and that is not a move of the task."""
    writer = Writer()
    lost = Runner(store)
    await lost.start(writer.agent, "Go", task_id="t")
    await writer.entered.wait()
    await lost.store.close()
    async with Runner(store, agents=[writer.agent]) as runner:
        head = (await runner.get_task("t")).head
        assert (await runner.resume("t", expect=head)).state == "waiting"


async def test_an_expected_event_is_a_number(runner: Runner) -> None:
    task_id = await stepped(runner)
    for wrong in ("7", -1, True, 1.5):
        with pytest.raises(ConfigurationError, match="run_step: expect must be a whole number"):
            await runner.run_step(task_id, expect=wrong)  # type: ignore[arg-type]


def test_an_event_is_expected_without_asyncio_too(tmp_path: Any) -> None:
    with Runner(tmp_path / "journal.db").sync as runner:
        task = runner.create_task(sayer(), "Hi")
        with pytest.raises(TaskMoved):
            runner.run_step(task, expect=9)
        with pytest.raises(TaskMoved):
            runner.handle(task).resume(expect=9)
        assert runner.run_step(task, expect=1).is_last
