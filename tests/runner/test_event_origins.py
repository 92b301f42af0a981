"""Every event that is handed out says which task, which agents and which tool it tells of, wherever it was read."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.cast import Ledger
from treadle import Agent, Runner, ScriptedModel, events
from treadle.models import call, text
from treadle.results.wire import from_wire

pytestmark = pytest.mark.anyio

JOURNALS = Path(__file__).parents[1] / "journals"


def family() -> Agent[Any]:
    scout = Agent(
        ScriptedModel([call("look", what="sea"), text("Seen.")]), name="scout", tools=Ledger().tools()
    )
    clerk = Agent(
        ScriptedModel([call("scout", input="look"), text("It says.")]), name="clerk", subagents=[scout]
    )
    return Agent(ScriptedModel([call("clerk", input="go"), text("Done.")]), name="boss", subagents=[clerk])


def of_calls(seen: list[Any]) -> dict[str, set[str]]:
    """The names that the events of calls tell, by kind."""
    named: dict[str, set[str]] = {}
    for event in seen:
        if isinstance(event, events.CallOccurrence):
            named.setdefault(event.kind, set()).add(event.tool)
    return named


def assert_all_of(seen: list[Any], task_id: str, *path: str) -> None:
    own = [event for event in seen if not isinstance(event, events.ChildEvent)]
    assert own
    assert {(event.task_id, event.agent_path) for event in own} == {(task_id, path)}


BOOKED = [call("look", what="sea"), call("book", what="bed"), text("Booked.")]
NAMED = {"tool_started": {"look", "book"}, "tool_ended": {"look", "book"}}


async def test_the_events_and_deltas_of_a_stream_say_where_they_come_from(runner: Runner) -> None:
    async with runner.run_stream(Ledger().agent(*BOOKED), "go") as stream:
        seen = [event async for event in stream]
    assert_all_of(seen, stream.task_id, "clerk")
    assert of_calls(seen) == NAMED
    assert any(isinstance(event, events.Delta) for event in seen)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("after", [0, 5, 8])
async def test_the_events_of_a_journal_say_where_they_come_from_from_any_number_on(
    store: Any, after: int
) -> None:
    async with Runner(store) as runner:
        result = await runner.run(Ledger().agent(*BOOKED), "go")
        every = [event async for event in runner.handle(result.task_id).events()]
        seen = [event async for event in runner.handle(result.task_id).events(after=after)]
    assert_all_of(seen, result.task_id, "clerk")
    assert seen == every[after:]
    assert [events.to_json(event) for event in seen] == [events.to_json(event) for event in every[after:]]
    assert all(event.tool for event in seen if isinstance(event, events.CallOccurrence))


async def test_a_watcher_who_joins_after_the_answer_is_told_the_name_of_the_called_tool(
    runner: Runner,
) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()
    ledger = Ledger()

    async def wait(*_: Any) -> None:
        began.set()
        await go_on.wait()

    agent = ledger.agent(*BOOKED)
    look = next(tool for tool in agent.tools if tool.spec.name == "look")
    original = look.call

    async def slow(*args: Any) -> Any:
        await wait()
        return await original(*args)

    look.call = slow  # type: ignore[method-assign]
    handle = await runner.start(agent, "go")
    await began.wait()
    head = (await runner.get_task(handle.task_id)).head
    watching = asyncio.ensure_future(anext(aiter(handle.events(after=head, deltas=False))))
    await asyncio.sleep(0.01)
    go_on.set()
    first = await watching
    assert isinstance(first, events.ToolEnded)
    assert (first.tool, first.agent_path) == ("look", ("clerk",))
    await handle.result()


async def test_the_events_of_tasks_below_say_the_whole_path(runner: Runner) -> None:
    async with runner.run_stream(family(), "go") as stream:
        seen = [event async for event in stream]
    assert_all_of(seen, stream.task_id, "boss")
    below = {(event.task_id, event.agent_path) for event in seen if isinstance(event, events.ChildEvent)}
    assert {path for _, path in below} == {("boss", "clerk"), ("boss", "clerk", "scout")}
    for event in seen:
        if isinstance(event, events.ChildEvent):
            assert (event.event.task_id, event.event.agent_path) == (event.task_id, event.agent_path)
    scout = next(task_id for task_id, path in below if path[-1] == "scout")
    stored = [event async for event in runner.handle(scout).events()]
    assert_all_of(stored, scout, "boss", "clerk", "scout")
    assert of_calls(stored) == {"tool_started": {"look"}, "tool_ended": {"look"}}


async def test_compensations_say_which_tool_they_take_back(runner: Runner) -> None:
    agent = Ledger().agent(*BOOKED)
    result = await runner.run(agent, "go")
    head = (await runner.get_task(result.task_id)).head
    await runner.undo_step(result.task_id, to=0, agent=agent)
    seen = [event async for event in runner.handle(result.task_id).events(after=head)]
    assert of_calls(seen) == {"tool_started": {"book"}, "tool_ended": {"book"}}


async def test_a_fork_hands_out_the_shared_events_as_its_own(runner: Runner) -> None:
    agent = Ledger().agent(*BOOKED)
    result = await runner.run(agent, "go")
    fork = await runner.fork(result.task_id, at=1)
    seen = [event async for event in runner.handle(fork).events()]
    assert_all_of(seen, fork.task_id, "clerk")


async def test_observers_are_told_where_events_come_from(store: Any) -> None:
    notices: list[Any] = []
    async with Runner(store, observers=[notices.append]) as runner:
        await runner.run(family(), "go")
    told = [notice for notice in notices if isinstance(notice.event, events.Event)]
    assert {(notice.task.task_id, notice.task.agent) for notice in told} == {
        (notice.event.task_id, notice.event.agent_path[-1]) for notice in told
    }
    assert {len(notice.event.agent_path) - 1 - notice.task.depth for notice in told} == {0}
    assert of_calls([notice.event for notice in told]) == {
        "tool_started": {"clerk", "scout", "look"},
        "tool_ended": {"clerk", "scout", "look"},
    }


async def test_nothing_of_it_is_stored(store: Any) -> None:
    async with Runner(store) as runner:
        async with runner.run_stream(Ledger().agent(*BOOKED), "go") as stream:
            _ = [event async for event in stream]
        records = await runner.store.read(stream.task_id)
    for record in records:
        for name in (b"agent_path", b'"tool"', b"tool_name", b"origin", b'"description"'):
            assert name not in record.data


@pytest.mark.parametrize("story", ["waiting_on_an_unknown_outcome", "with_a_child_that_asks_again"])
@pytest.mark.parametrize("folder", ["0.1.0", "fixed", "unreleased"])
async def test_a_stop_says_whether_its_outcome_is_unknown_wherever_it_is_read(
    folder: str, story: str
) -> None:
    file = next((JOURNALS / folder).glob(f"{story}.j*"), None)
    if file is None:
        pytest.skip("that version had no such journal")
    async with Runner("memory:") as runner:
        await runner.import_tasks(file)
        every = [event async for event in runner.handle(story).events()]
        stops = [event for event in every if isinstance(event, events.ToolStopped)]
        later = [await anext(aiter(runner.handle(story).events(after=event.seq - 1))) for event in stops]
    assert stops
    expected = story == "waiting_on_an_unknown_outcome"
    for event in [*stops, *later]:
        assert isinstance(event, events.ToolStopped)
        assert event.unknown is expected
        document = events.to_json(event)
        assert document["unknown"] is expected
        again = from_wire(events.Event, document, strict=True)
        assert isinstance(again, events.ToolStopped)
        assert again.unknown is expected
