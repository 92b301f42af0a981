"""Threads as a whole: summaries for models, imported messages, deletion and pruning."""

import asyncio
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.cast import calculator, sayer
from tests.runner.acts import assert_well_formed, kinds, roles_and_texts
from treadle import Agent, Message, Runner, RunOptions, ScriptedModel, Text, ToolCall, ToolResult
from treadle.errors import (
    AlreadyFinalized,
    ConfigurationError,
    TaskBusy,
    TaskNotFound,
    ThreadNotFound,
)
from treadle.llm.scripted import call, fail, text, turn
from treadle.runner import threads
from treadle.testing.audit import audit_store

pytestmark = pytest.mark.anyio

FACT = "Her dog is called Bolek."


def summariser(*answers: Any) -> ScriptedModel:
    return ScriptedModel(list(answers) or [FACT])


async def talk(runner: Runner, turns: int, thread: str = "talk") -> list[str]:
    """Run some turns with a tool call each; the first turn holds the fact."""
    ids = []
    for number in range(turns):
        agent = calculator(call("add", a=number, b=1), f"answer {number}", name=f"turn{number}")
        message = "My dog is called Bolek." if number == 0 else f"question {number}"
        ids.append((await runner.run(agent, message, thread_id=thread)).task_id)
    return ids


async def seen(runner: Runner, thread: str = "talk", **how: Any) -> list[tuple[str, str]]:
    """What the model of a new task is shown."""
    agent = sayer("Seen.", name="witness")
    assert (await runner.run(agent, "What do you see?", thread_id=thread, **how)).state == "completed"
    assert_well_formed(agent.model.requests[0].messages)
    return roles_and_texts(agent.model.requests[0].messages)


async def was_asked(model: ScriptedModel) -> None:
    async with asyncio.timeout(5):
        while not model.requests:  # noqa: ASYNC110 (there is nothing to be woken by)
            await asyncio.sleep(0.005)


async def sound(runner: Runner) -> None:
    assert not [str(violation) for violation in await audit_store(runner.store)]


async def test_later_tasks_see_the_summary_and_the_newest_turns(runner: Runner) -> None:
    await talk(runner, 6)
    thread = await runner.get_thread("talk")
    model = summariser()
    report = await runner.compact_thread("talk", keep=2, model=model)
    assert (report.complete, len(report.tasks), report.covers) == (True, 1, 4)
    assert (report.messages_before, report.messages_after) == (24, 1 + 8)
    assert report.tokens_after < report.tokens_before
    assert "My dog is called Bolek." in model.requests[0].messages[0].text
    assert "answer 3" in model.requests[0].messages[0].text
    assert "answer 4" not in model.requests[0].messages[0].text
    assert await runner.get_thread("talk") == thread, "the stored thread keeps the original messages"
    shown = await seen(runner)
    assert FACT in shown[0][1]
    assert shown[0][0] == "user", "a summary has no authority"
    assert shown[1:5] == [
        ("user", "question 4"),
        ("assistant", "add"),
        ("tool", "5"),
        ("assistant", "answer 4"),
    ]
    assert len(shown) == 1 + 8 + 1
    runner._driver.cache.forget(report.tasks[0])
    assert "summary_requested" in await kinds(runner, report.tasks[0])
    await sound(runner)


async def test_the_same_compaction_again_asks_no_model_and_a_later_one_builds_on_it(runner: Runner) -> None:
    await talk(runner, 4)
    first = await runner.compact_thread("talk", keep=1, model=summariser())
    unused = summariser(fail(500))
    again = await runner.compact_thread("talk", keep=1, model=unused)
    assert (again.tasks, again.covers, again.messages_after) == ((), first.covers, first.messages_after)
    assert unused.requests == []
    await talk(runner, 2)
    model = summariser(f"{FACT} And more.")
    second = await runner.compact_thread("talk", keep=1, model=model)
    assert second.covers > first.covers
    was_asked = model.requests[0].messages[0].text
    assert FACT in was_asked
    assert "question 1" not in was_asked
    assert "And more." in (await seen(runner))[0][1]
    await sound(runner)


async def test_a_long_thread_is_summarised_in_parts(runner: Runner) -> None:
    await talk(runner, 6)
    model = ScriptedModel(lambda request: f"Summary of {len(request.messages[0].text)} characters. {FACT}")
    report = await runner.compact_thread("talk", keep=0, model=model, context_tokens=60)
    assert len(report.tasks) > 1
    assert (report.covers, report.messages_after) == (6, 1)
    for request in model.requests[1:]:
        assert request.messages[0].text.startswith("[summary of what came before]")
    assert FACT in (await seen(runner))[0][1]
    await sound(runner)


async def test_a_compaction_that_was_cut_off_goes_on_with_the_same_task(store: Any) -> None:
    async with Runner(store) as runner:
        await talk(runner, 3)
        slow = summariser(text(FACT, delay=60))
        compacting = asyncio.ensure_future(runner.compact_thread("talk", keep=1, model=slow))
        await was_asked(slow)
        compacting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await compacting
        (cut,) = (await runner.list_tasks(agent="summary")).items
        assert cut.state == "interrupted"
        assert (await seen(runner))[0] == ("user", "My dog is called Bolek.")
    async with Runner(store) as runner:
        report = await runner.compact_thread("talk", keep=2, model=summariser())
        assert report.tasks == (cut.task_id,)
        assert FACT in (await seen(runner))[0][1]
        await sound(runner)


async def test_a_summary_that_fails_changes_nothing_and_can_be_tried_again(runner: Runner) -> None:
    await talk(runner, 3)
    report = await runner.compact_thread("talk", keep=1, model=summariser(fail(500)))
    assert (report.complete, report.covers, report.messages_after) == (False, 0, report.messages_before)
    assert (await runner.get_task(report.tasks[0])).state == "failed"
    again = await runner.compact_thread("talk", keep=1, model=summariser())
    assert again.complete
    assert again.tasks != report.tasks
    await sound(runner)


@pytest.mark.virtual_time
async def test_a_running_task_and_a_compaction_do_not_disturb_each_other(runner: Runner) -> None:
    await talk(runner, 4)
    slow = sayer(text("Slow answer.", delay=0.3), name="slow")
    running = await runner.start(slow, "slow question", thread_id="talk")
    report = await runner.compact_thread("talk", keep=1, model=summariser())
    assert report.complete
    assert (await running.result()).state == "completed"
    assert len(slow.model.requests[0].messages) == 17, "it keeps what it began with"
    shown = await seen(runner)
    assert FACT in shown[0][1]
    assert ("assistant", "Slow answer.") in shown
    assert len(await runner.get_thread("talk")) == 4 * 4 + 2 + 2
    await sound(runner)


async def test_resume_fork_and_undo_stay_valid_after_a_compaction(runner: Runner) -> None:
    stepped = calculator()
    task = await runner.create_task(stepped, "?", thread_id="talk")
    await runner.run_step(task)
    ids = await talk(runner, 4)
    await runner.compact_thread("talk", keep=2, model=summariser())
    for name in (task.task_id, *ids):
        runner._driver.cache.forget(name)
    assert (await runner.resume(task)).state == "completed"
    assert len(stepped.model.requests[-1].messages) == 5
    await runner.undo_step(task)
    fork = await runner.fork(ids[1], at="s1")
    agent = sayer("", "Forked.", name="turn1")
    assert (await runner.resume(fork, agent=agent)).state == "completed"
    assert ("user", "My dog is called Bolek.") in roles_and_texts(agent.model.requests[0].messages)
    await runner.undo_step(ids[3])
    with pytest.raises(AlreadyFinalized):
        await runner.undo_step(ids[1])
    shown = await seen(runner)
    assert [message for role, message in shown if role == "user"][1:] == ["question 2", "What do you see?"]
    await sound(runner)


@pytest.mark.virtual_time
async def test_a_turn_undone_meanwhile_is_not_summarised(runner: Runner) -> None:
    ids = await talk(runner, 2)
    model = summariser(text(FACT, delay=0.3))
    compacting = asyncio.ensure_future(runner.compact_thread("talk", keep=0, model=model))
    await was_asked(model)
    await runner.undo_step(ids[1])
    report = await compacting
    assert not report.complete
    assert (await runner.get_task(report.tasks[0])).state == "failed"
    assert await seen(runner) == [
        *roles_and_texts(await runner.get_thread("talk"))[:4],
        ("user", "What do you see?"),
    ]
    await sound(runner)


async def test_a_truncated_summary_is_not_used_and_made_again(runner: Runner) -> None:
    await talk(runner, 2)
    cut = await runner.compact_thread("talk", keep=0, model=summariser(turn("Her dog is", finish="length")))
    assert (cut.complete, cut.covers) == (False, 0)
    assert (await runner.get_task(cut.tasks[0])).state == "degraded"
    whole = await runner.compact_thread("talk", keep=0, model=summariser())
    assert (whole.complete, whole.covers) == (True, 2)
    assert not set(whole.tasks) & set(cut.tasks)
    await sound(runner)


async def test_a_task_does_not_wait_for_a_summary_that_is_being_made_in_its_thread(runner: Runner) -> None:
    await talk(runner, 1)
    model = summariser(text(FACT, delay=30))
    compacting = asyncio.ensure_future(runner.compact_thread("talk", keep=0, model=model))
    await was_asked(model)
    async with asyncio.timeout(10):
        assert (await runner.run(sayer("Hi."), "Hello", thread_id="talk")).state == "completed"
    compacting.cancel()
    await asyncio.wait([compacting])


async def test_imported_messages_are_a_turn_of_their_thread(runner: Runner) -> None:
    imported = [
        Message("user", (Text("What is 1 + 1?"),)),
        Message("assistant", (ToolCall("x", "add", {"a": 1, "b": 1}),)),
        Message("tool", (ToolResult("x", "add", (Text("2"),)),)),
        Message("assistant", (Text("2."),)),
    ]
    await runner.run(sayer("Hi."), "Hello", thread_id="talk")
    task_id = await runner.import_thread("talk", imported)
    assert roles_and_texts(await runner.get_thread("talk"))[2:] == roles_and_texts(imported)
    assert len(await seen(runner)) == 7
    runner._driver.cache.forget(task_id)
    assert (await runner.get_task(task_id)).state == "completed"
    await runner.import_thread("new", imported[:1])
    assert [(t.thread_id, t.turns) for t in (await runner.list_threads()).items] == [("new", 1), ("talk", 3)]
    page = await runner.list_threads(limit=1)
    assert [t.thread_id for t in (await runner.list_threads(cursor=page.cursor)).items] == ["talk"]
    for wrong in (imported[:2], imported[2:], [imported[1], imported[2], *imported[1:3]], [], ["hello"]):
        with pytest.raises(ConfigurationError, match="import_thread"):
            await runner.import_thread("talk", wrong)
    await sound(runner)


async def test_a_deleted_thread_is_gone_with_its_tasks_and_forks_keep_what_they_began_with(
    runner: Runner,
) -> None:
    ids = await talk(runner, 3)
    fork = await runner.fork(ids[2], at="s1", agent=sayer("", "Forked.", name="forked"))
    await runner.compact_thread("talk", keep=1, model=summariser())
    busy = await runner.start(sayer(text("slow", delay=30)), "?", thread_id="talk")
    with pytest.raises(TaskBusy):
        await runner.delete_thread("talk")
    await busy.cancel()
    await runner.delete_thread("talk")
    assert [item.task_id for item in (await runner.list_tasks()).items] == [fork.task_id]
    with pytest.raises(TaskNotFound):
        await runner.get_task(ids[0])
    with pytest.raises(ThreadNotFound):
        await runner.delete_thread("missing")
    runner._driver.cache.forget(fork.task_id)
    agent = sayer("", "Forked.", name="forked")
    assert (await runner.resume(fork, agent=agent)).state == "completed"
    assert [w for r, w in roles_and_texts(agent.model.requests[0].messages) if r == "user"] == [
        "My dog is called Bolek.",
        "question 1",
        "question 2",
    ]
    await sound(runner)


async def a_moment(runner: Runner) -> int:
    """Return a time that differs from those of all events before and after it."""
    await asyncio.sleep(0.01)
    now: int = runner._clock()
    await asyncio.sleep(0.01)
    return now


async def test_pruning_deletes_whole_threads_and_tasks_without_messages(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    await talk(runner, 2, "old")
    lost = await runner.run(sayer(fail(500)), "?", thread_id="young")
    now = await a_moment(runner) + 200_000
    monkeypatch.setattr(runner, "_clock", lambda: now)
    await runner.run(sayer("Hi."), "Hello", thread_id="young")
    paused = await runner.create_task(sayer(), "?", thread_id="waiting")
    would = await runner.prune(0.2, dry_run=True)
    assert (would.threads, len(would.tasks)) == (("old",), 3)
    assert lost.task_id in would.tasks
    assert await runner.prune(3_600) == type(would)((), ())
    done = await runner.prune(0.2)
    assert (set(done.threads), set(done.tasks)) == (set(would.threads), set(would.tasks))
    assert len(await runner.get_thread("young")) == 2
    assert (await runner.get_task(paused)).state == "created"
    assert (await runner.prune(0, labels={"a": "b"})).tasks == ()
    await sound(runner)


async def test_a_pruned_file_holds_no_text_of_deleted_tasks(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    big = "x" * 50_000
    async with Runner(path) as runner:
        for number in range(3):
            await runner.run(sayer(f"{number}{big}"), f"{big}{number}", thread_id=f"talk{number % 2}")
        await runner.compact_thread("talk0", keep=1, model=summariser())
        await runner.prune(0)
    connection = apsw.Connection(str(path))
    for table in ("tasks", "records", "blobs", "blob_refs", "threads", "members", "inbox"):
        assert list(connection.execute(f"SELECT count(*) FROM {table}")) == [(0,)], table
    connection.close()


async def test_keep_in_thread_always_is_summarised_with_the_rest(runner: Runner) -> None:
    options = RunOptions(keep_in_thread="always")
    await runner.run(sayer(fail(500)), "Are you there?", thread_id="talk", options=options)
    await talk(runner, 1)
    model = summariser()
    assert (await runner.compact_thread("talk", keep=1, model=model)).complete
    assert "This task failed" in model.requests[0].messages[0].text


async def test_compaction_names_its_missing_or_wrong_arguments(runner: Runner) -> None:
    with pytest.raises(ThreadNotFound):
        await runner.compact_thread("missing")
    await runner.import_thread("talk", [Message("user", (Text("Hello"),))])
    with pytest.raises(ConfigurationError, match="model="):
        await runner.compact_thread("talk", keep=0)
    with pytest.raises(ConfigurationError, match="keep"):
        await runner.compact_thread("talk", keep=-1)
    agent = Agent(summariser(), name="librarian", instructions="Summarise.")
    assert (await runner.compact_thread("talk", keep=0, agent=agent)).complete


async def test_verify_finds_nothing_wrong_with_a_summary(runner: Runner) -> None:
    await talk(runner, 3)
    await runner.compact_thread("talk", keep=1, model=summariser())
    assert (await runner.verify()).findings == ()


async def test_a_summary_stays_in_sight_of_a_long_task(runner: Runner) -> None:
    await talk(runner, 6)
    await runner.compact_thread("talk", keep=2, model=summariser())
    agent = calculator(*(call("add", a=n, b=10**600) for n in range(12)), "done", name="long")
    options = RunOptions(context_tokens=2_500)
    assert (await runner.run(agent, "Go on.", thread_id="talk", options=options)).state == "completed"
    last = roles_and_texts(agent.model.requests[-1].messages)
    assert "not shown" in " ".join(message for _, message in last), "it is long enough to be cut"
    assert FACT in last[0][1]


async def test_pages_of_threads_end_when_there_are_no_more(runner: Runner) -> None:
    for number in range(4):
        await runner.import_thread(f"talk{number}", [Message("user", (Text("hi"),))])
    for limit in (1, 2, 3, 4, 5):
        seen, cursor = [], None
        for _ in range(5):
            page = await runner.list_threads(limit=limit, cursor=cursor)
            assert page.items
            seen += [item.thread_id for item in page.items]
            cursor = page.cursor
            if cursor is None:
                break
        assert seen == [f"talk{number}" for number in range(4)]


async def test_pruning_obeys_every_condition_it_is_given(runner: Runner) -> None:
    """One task for each condition that keeps it, and a task that no condition keeps."""
    labels = {"team": "a", "kind": "test"}
    await runner.run(sayer(), "?", task_id="goes", options=RunOptions(labels=labels))
    await runner.run(sayer(), "?", task_id="other-team", options=RunOptions(labels={**labels, "team": "b"}))
    await runner.run(sayer(fail(400)), "?", task_id="failed", options=RunOptions(labels=labels))
    await runner.create_task(sayer(), "?", task_id="created", options=RunOptions(labels=labels))
    for seconds, goes in ((3600, ()), (0, ("goes",))):
        for dry_run in (True, False):
            states = ["completed", "degraded"]
            gone = await runner.prune(seconds, states=states, labels=labels, dry_run=dry_run)
            assert gone.tasks == goes
            left = {task.task_id for task in (await runner.list_tasks()).items}
            assert left == {"goes", "other-team", "failed", "created"} - set(() if dry_run else goes)


async def test_a_task_that_was_written_to_lately_is_not_pruned_however_old_it_is(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await runner.create_task(calculator(), "?")
    created = await a_moment(runner)
    await runner.cancel(task)
    cancelled = await a_moment(runner)
    monkeypatch.setattr(runner, "_clock", lambda: created + 200_000)
    assert (await runner.prune(0.2)).tasks == ()
    monkeypatch.setattr(runner, "_clock", lambda: cancelled + 200_000)
    assert (await runner.prune(0.2)).tasks == (task.task_id,)


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ([("assistant", [ToolCall("a", "add", {})])], "have no results"),
        ([("tool", [ToolResult("a", "add", (Text("1"),))])], "answers"),
        (
            [
                ("assistant", [ToolCall("a", "add", {}), ToolCall("b", "add", {})]),
                ("tool", [ToolResult("b", "add", (Text("1"),)), ToolResult("a", "add", (Text("1"),))]),
            ],
            "each call needs its result next",
        ),
        ([("assistant", [ToolCall("a", "add", {}), ToolCall("a", "add", {})])], "the id of another call"),
        (
            [
                ("assistant", [ToolCall("a", "add", {})]),
                ("tool", [ToolResult("a", "add", (Text("1"),))]),
                ("assistant", [ToolCall("a", "add", {})]),
            ],
            "the id of another call",
        ),
        ([("user", [Text("")])], "says nothing"),
        ([("user", [])], "says nothing"),
    ],
    ids=["unanswered", "unasked", "other order", "twice at once", "twice", "empty", "nothing"],
)
async def test_messages_that_no_model_could_be_shown_are_not_imported(
    runner: Runner, parts: list[Any], reason: str
) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        await runner.import_thread("talk", [Message(role, tuple(content)) for role, content in parts])
    assert (await runner.list_threads()).items == ()


async def test_a_summariser_is_given_by_agent_or_by_model(runner: Runner) -> None:
    await talk(runner, 2)
    with pytest.raises(ConfigurationError, match="agent= or model=, not both"):
        await runner.compact_thread("talk", keep=0, agent=sayer("x"), model=summariser())


async def test_a_thread_in_use_is_not_pruned(runner: Runner) -> None:
    member = await runner.run(sayer("Hi."), "Hello", thread_id="talk")
    wordless = await runner.run(sayer(fail(400)), "Hello?", thread_id="talk")
    young = await runner.create_task(sayer("Yes."), "Are you there?", thread_id="talk")
    gone = await runner.prune(0)
    assert (gone.threads, gone.tasks) == ((), (wordless.task_id,))
    assert (await runner.result(member.task_id)).state == "completed"
    assert (await runner.resume(young)).state == "completed"
    assert roles_and_texts(await runner.get_thread("talk"))[:2] == [("user", "Hello"), ("assistant", "Hi.")]


async def test_a_store_is_pruned_page_by_page(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "PAGE", 2)
    ids = {(await runner.run(sayer(), "?")).task_id for _ in range(5)}
    assert set((await runner.prune(0)).tasks) == ids


async def test_a_cancelled_summary_can_be_requested_again(runner: Runner) -> None:
    await talk(runner, 2)
    slow = summariser(text(FACT, delay=60))
    compacting = asyncio.ensure_future(runner.compact_thread("talk", keep=0, model=slow))
    await was_asked(slow)
    [task] = (await runner.list_tasks(agent="summary")).items
    await runner.cancel(task.task_id)
    assert not (await compacting).complete
    again = await runner.compact_thread("talk", keep=0, model=summariser())
    assert (again.complete, again.covers) == (True, 2)
    await sound(runner)
