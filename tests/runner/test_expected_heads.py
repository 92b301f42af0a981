"""`expect=`: a command is carried out only if the task still stands as its caller saw it."""

import asyncio
from typing import Any

import pytest

from tests.cast import Gate, gate_agent
from tests.runner.acts import journal, kinds, to_pause
from tests.verbs import situations as s
from treadle import Happened, NotHappened, Runner
from treadle.errors import ConfigurationError, TaskMoved, TaskStateError

pytestmark = pytest.mark.anyio

VERBS: dict[str, tuple[s.Prepare, str, dict[str, Any]]] = {
    "run_step": (s.stepped, "run_step", {}),
    "run_ready_steps": (s.stepped, "run_ready_steps", {}),
    "resume": (s.stepped, "resume", {}),
    "hand_on": (s.stepped, "resume", {"drive": False}),
    "undo_step": (s.stepped, "undo_step", {}),
    "fork": (s.stepped, "fork", {}),
    "edit_step": (s.stepped, "edit_step", {"input": "And?"}),
    "edit_call": (s.proposed_call, "edit_call", {"call_id": "s1-0", "arguments": {"a": 1, "b": 2}}),
    "skip_step": (s.failed_step, "skip_step", {}),
    "finalize": (s.answered, "finalize", {}),
}


@pytest.mark.parametrize("name", VERBS)
async def test_a_verb_is_carried_out_only_at_the_event_that_its_caller_saw_last(
    runner: Runner, name: str
) -> None:
    prepare, verb, arguments = VERBS[name]
    task_id = (await prepare(runner)).task
    head = (await runner.get_task(task_id)).head
    with pytest.raises(
        TaskMoved, match=rf"event {head} is the last .* event {head - 1} was expected"
    ) as moved:
        await getattr(runner, verb)(task_id, **arguments, expect=head - 1)
    assert (moved.value.task_id, moved.value.head) == (task_id, head)
    assert isinstance(moved.value, TaskStateError)
    assert (await runner.get_task(task_id)).head == head, "nothing was recorded"
    assert (await runner.list_tasks(forked_from=task_id)).items == ()
    await getattr(runner, verb)(task_id, **arguments, expect=head)


async def test_of_two_who_edit_what_they_saw_one_is_told_that_the_task_has_moved(runner: Runner) -> None:
    task_id = (await s.stepped(runner)).task
    head = (await runner.get_task(task_id)).head
    edits = [runner.edit_step(task_id, f"edit {number}", expect=head) for number in range(2)]
    outcomes = await asyncio.gather(*edits, return_exceptions=True)
    assert len([each for each in outcomes if isinstance(each, TaskStateError)]) == 1
    assert len([each for each in await journal(runner, task_id) if each.kind == "input_edited"]) == 1
    with pytest.raises(TaskMoved):
        await runner.edit_step(task_id, "edit 3", expect=head)


async def cut_off(runner: Runner) -> Any:
    """Return the handle of a task, and the request to settle its call that was cut off."""
    handle = runner.handle((await s.unknown_outcome(runner)).task)
    (pending,) = await handle.list_pending()
    return handle, pending


async def test_a_settlement_for_a_task_that_moved_settles_nothing(runner: Runner) -> None:
    handle, pending = await cut_off(runner)
    head = (await runner.get_task(handle.task_id)).head
    with pytest.raises(TaskMoved):
        await handle.settle(pending.request_id, Happened("worked"), expect=head - 1)
    assert (await handle.list_pending()).items == (pending,)
    await handle.settle(pending.request_id, Happened("worked"), expect=head)
    assert (await handle.resume()).state == "completed"


async def test_a_settlement_is_refused_by_the_driver_that_moved_the_task_just_before(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle, pending = await cut_off(runner)
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
    writer = Gate()
    handle = await runner.start(gate_agent(writer), "Go")
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
    writer = Gate()
    task = await runner.create_task(gate_agent(writer), "Go")
    inbox = runner.store.inbox
    pausing = list[Any]()

    async def taken_up(task_id: str) -> Any:
        monkeypatch.setattr(runner.store, "inbox", inbox)
        handle = await runner.start(gate_agent(writer), "Go", task_id=task_id)
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
    writer = Gate()
    handle = await runner.start(gate_agent(writer), "Go")
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
    writer = Gate()
    lost = Runner(store)
    await lost.start(gate_agent(writer), "Go", task_id="t")
    await writer.entered.wait()
    await lost.store.close()
    async with Runner(store, agents=[gate_agent(writer)]) as runner:
        head = (await runner.get_task("t")).head
        assert (await runner.resume("t", expect=head)).state == "waiting"


async def test_an_expected_event_is_a_number(runner: Runner) -> None:
    task_id = (await s.stepped(runner)).task
    for wrong in ("7", -1, True, 1.5):
        with pytest.raises(ConfigurationError, match="run_step: expect must be a whole number"):
            await runner.run_step(task_id, expect=wrong)  # type: ignore[arg-type]
