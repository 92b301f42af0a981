"""Pages of what happened to a task: events and steps; and what tasks spent."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.cast import calculator, sayer
from tests.runner.acts import step_to_answer
from treadle import (
    Agent,
    Runner,
    RunOptions,
    ScriptedModel,
)
from treadle.core.events import Event
from treadle.errors import ConfigurationError, JournalCorrupt, StepNotFound
from treadle.models import call

pytestmark = pytest.mark.anyio


async def watched(runner: Runner, task_id: str) -> list[Event]:
    return [event async for event in runner.handle(task_id).events() if isinstance(event, Event)]


def told(event: Event) -> tuple[Any, ...]:
    return event.seq, event.kind, event.task_id, event.agent_path, getattr(event, "tool", None), repr(event)


@pytest.mark.parametrize("limit", [1, 3, 7, 1_000])
async def test_pages_of_events_add_up_to_what_a_watcher_is_told(runner: Runner, limit: int) -> None:
    task_id = (await runner.run(calculator(), "?")).task_id
    everything = [told(event) for event in await watched(runner, task_id)]
    listed, after = list[Any](), 0
    while True:
        page = await runner.get_events(task_id, after=after, limit=limit)
        assert page.head == len(everything)
        assert 1 <= len(page.items) <= limit
        listed += [told(event) for event in page]
        if page.cursor is None:
            break
        after = page.cursor
    assert listed == everything
    first = await runner.handle(task_id).get_events(limit=limit)
    assert [told(event) async for event in first] == everything


async def test_a_page_of_kinds_leaves_out_the_others_and_goes_on_behind_them(runner: Runner) -> None:
    task_id = (await runner.run(calculator(), "?")).task_id
    everything = await watched(runner, task_id)
    for kinds in ("tool_ended", ["tool_ended", "step_completed"], ("task_ended",)):
        wanted = [told(each) for each in everything if each.kind in kinds or each.kind == kinds]
        listed = [told(event) async for event in await runner.get_events(task_id, kinds=kinds, limit=1)]
        assert listed == wanted
    assert (await runner.get_events(task_id, kinds="task_ended", limit=1)).cursor is None
    assert (await runner.get_events(task_id, kinds=[], limit=5)).items == ()
    with pytest.raises(
        ConfigurationError, match="'tool_end' is no kind of a stored event, did you mean 'tool_ended'"
    ):
        await runner.get_events(task_id, kinds="tool_end")


async def test_a_page_behind_the_last_event_is_empty(runner: Runner) -> None:
    task = await runner.create_task(calculator(), "?")
    head = (await runner.get_task(task)).head
    page = await runner.get_events(task, after=head)
    assert (page.items, page.cursor, page.head) == ((), None, head)
    assert (await runner.get_events(task, after=head + 5)).items == ()
    await runner.run_step(task)
    assert (await runner.get_events(task, after=head)).items[0].seq == head + 1


async def test_events_of_a_fork_begin_with_those_it_shares(runner: Runner) -> None:
    task_id = (await runner.run(calculator(), "?")).task_id
    fork = await runner.fork(task_id, at="s1")
    await runner.resume(fork, agent=calculator("other"))
    everything = [told(event) for event in await watched(runner, fork.task_id)]
    page = await runner.get_events(fork, limit=2)
    assert [told(event) async for event in page] == everything
    assert {event.task_id for event in page} == {fork.task_id}


async def test_the_events_before_a_damaged_one_can_be_read(tmp_path: Any) -> None:
    import apsw

    async with Runner(tmp_path / "journal.db") as runner:
        task_id = (await runner.run(calculator(), "?")).task_id
        head = (await runner.get_task(task_id)).head
    connection = apsw.Connection(str(tmp_path / "journal.db"))
    connection.execute("UPDATE records SET data = x'00' WHERE seq = ?", (head,))
    connection.close()
    async with Runner(tmp_path / "journal.db") as runner:
        assert [event.seq for event in await runner.get_events(task_id, limit=2)] == [1, 2]
        assert [event.seq for event in await runner.get_events(task_id, after=2, limit=2)] == [3, 4]

        with pytest.raises(JournalCorrupt):
            await runner.get_events(task_id, after=head - 2)


@pytest.mark.parametrize("limit", [1, 2, 1_000])
async def test_pages_of_steps_add_up_to_all_steps(runner: Runner, limit: int) -> None:
    task = await runner.create_task(calculator(), "?")
    assert (await runner.get_steps(task)).items == ()
    await step_to_answer(runner, task)
    steps = list(await runner.get_completed_steps(task))
    page = await runner.get_steps(task, limit=limit)
    assert list(page) == steps[:limit]
    assert page.cursor == (limit if limit < len(steps) else None)
    assert [step async for step in page] == steps
    assert [step async for step in await runner.handle(task.task_id).get_steps(after=1)] == steps[1:]


def test_pages_without_asyncio_go_over_all_pages() -> None:
    sync = Runner("memory:").sync
    task_id = sync.run(calculator(), "?").task_id
    head = sync.get_task(task_id).head
    assert [event.seq for event in sync.get_events(task_id, limit=2)] == list(range(1, head + 1))
    assert [event.seq for event in sync.handle(task_id).get_events(limit=2)] == list(range(1, head + 1))
    assert [step.step.step_id for step in sync.get_steps(task_id, limit=1)] == ["s1", "s2", "s3"]
    assert [step.step.step_id for step in sync.handle(task_id).get_steps(limit=1)] == ["s1", "s2", "s3"]
    assert sync.usage().total.tasks == 1


async def test_usage_is_summed_up_by_agent_day_model_and_label(runner: Runner) -> None:
    def labelled(**labels: str) -> RunOptions:
        return RunOptions(labels=labels)

    blue = await runner.run(sayer("a longer answer", name="one"), "?", options=labelled(team="blue"))
    red = await runner.run(sayer(name="two"), "?", options=labelled(team="red"))
    rest = await runner.run(sayer(name="two"), "?")
    tokens = {each.task_id: each.usage.total_tokens for each in (blue, red, rest)}
    by_agent = await runner.usage()
    assert {line.key: (line.tasks, line.tokens) for line in by_agent.lines} == {
        "one": (1, tokens[blue.task_id]),
        "two": (2, tokens[red.task_id] + tokens[rest.task_id]),
    }
    assert (by_agent.total.tasks, by_agent.total.tokens) == (3, sum(tokens.values()))
    by_label = await runner.usage(by="label:team")
    assert str(by_label).splitlines()[-1].startswith(f"total: {by_label.total.tasks} tasks, ")
    assert {line.key: line.tokens for line in by_label.lines} == {
        "blue": tokens[blue.task_id],
        "red": tokens[red.task_id],
        None: tokens[rest.task_id],
    }
    assert [(line.key, line.tasks) for line in (await runner.usage(by="model")).lines] == [("scripted", 3)]
    created = (await runner.get_task(rest.task_id)).created
    (day,) = (await runner.usage(by="day", labels={"team": "red"})).lines
    assert (day.key, day.tasks) == (datetime.fromtimestamp(created / 1e6, UTC).date().isoformat(), 1)
    assert (await runner.usage(since=created)).total.tasks == 1
    assert (await runner.usage(until=created, agent="two")).total.tokens == tokens[red.task_id]
    with pytest.raises(ConfigurationError, match="by must be 'agent', 'day', 'model' or 'label:NAME', got"):
        await runner.usage(by="week")


async def test_a_task_is_shown_as_it_stood_after_each_of_its_events(runner: Runner) -> None:
    agent = calculator()
    task = await runner.create_task(agent, "?")
    seen = {1: (await runner.get_task(task), await runner.result(task.task_id))}
    for _ in range(3):
        await runner.run_step(task)
        snapshot = await runner.get_task(task)
        seen[snapshot.head] = (snapshot, await runner.result(task))
    await runner.finalize(task)
    head = (await runner.get_task(task)).head
    for seq, (snapshot, result) in seen.items():
        if seq > 1:  # the steps of a task that was made begin later
            assert await runner.get_task(task, at=seq) == snapshot
            assert await runner.result(task, at=seq) == result
    states = [(await runner.get_task(task, at=seq)).state for seq in range(1, head + 1)]
    assert (states[0], states[-2], states[-1]) == ("created", "answered", "completed")
    steps = [(await runner.result(task, at=seq)).steps for seq in range(1, head + 1)]
    assert steps == sorted(steps)
    assert steps[-1] == 3
    for wrong in (0, head + 1):
        with pytest.raises(StepNotFound, match=rf"has events 1 to {head}, not {wrong}"):
            await runner.get_task(task, at=wrong)
        with pytest.raises(StepNotFound, match=rf"has events 1 to {head}, not {wrong}"):
            await runner.result(task, at=wrong)


async def test_what_was_undone_is_there_at_the_time_before(runner: Runner) -> None:
    task = await runner.create_task(calculator(), "?")
    await runner.run_step(task)
    await runner.run_step(task)
    before = await runner.get_task(task)
    await runner.undo_step(task)
    assert (await runner.get_task(task)).steps == 1
    assert (await runner.get_task(task, at=before.head)).steps == 2
    fork = await runner.fork(task, at=before.head)
    assert (await runner.get_task(fork, at=before.head - 1)).task_id == fork.task_id


async def test_the_lineage_of_a_task_names_where_it_comes_from_and_what_came_of_it(runner: Runner) -> None:
    below = sayer(name="below")
    above = Agent(
        ScriptedModel([call("below", input="?"), call("below", input="!"), "done"]),
        name="above",
        subagents=[below],
    )
    root = (await runner.run(above, "?")).task_id
    forks = [(await runner.fork(root, at=at)).task_id for at in ("s1", "s2")]
    lineage = await runner.get_lineage(root)
    assert (lineage.task.task_id, lineage.parent, lineage.forked_from) == (root, None, None)
    assert [each.parent for each in lineage.children] == [root, root]
    assert [each.task_id for each in lineage.forks] == forks[::-1]
    points = [each.forked_at for each in lineage.forks]
    assert points == [(await runner.get_task(each)).forked_at for each in forks[::-1]]
    child = await runner.handle(lineage.children.items[0].task_id).get_lineage()
    assert child.parent == lineage.task
    fork = await runner.get_lineage(forks[0])
    assert (fork.forked_from, fork.task.forked_from, fork.task.forked_at) == (lineage.task, root, points[1])
    paged = await runner.get_lineage(root, limit=1)
    assert [each.task_id async for each in paged.forks] == forks[::-1]
    assert len(paged.children.items) == 1
    await runner.delete_task(root)
    orphan = await runner.get_lineage(forks[0])
    assert (orphan.forked_from, orphan.task.forked_from) == (None, root)
