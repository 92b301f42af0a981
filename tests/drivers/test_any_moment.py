"""A command may arrive at any moment: also between two reads of the inbox, or while a task asks for its thread."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.cast import Gate
from tests.runner.acts import until
from treadle import Agent, Breakpoint, Runner, RunOptions, ScriptedModel, Text, tool
from treadle.core.codec import encode_part
from treadle.errors import TaskParked
from treadle.models import call, text, turn
from treadle.ports import Commit, CommitDone, InboxItem, Wake
from treadle.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio


class Listening(MemoryStore):
    """A store in which a caller sends a command after so many operations, and that answers later.

    With `with_message`, a message arrives first, and the command comes while it is read.
    """

    uses: int = 0
    command: str = ""
    with_message: bool = False

    def __init__(self) -> None:
        super().__init__()
        self._turns = asyncio.Lock()

    act: Callable[[], Any] | None = None
    """what is done then, if nothing is said"""

    async def _used(self) -> None:
        self.uses -= 1
        if self.uses == 0 and self.act is not None:
            self.act()
        elif self.uses == 0:
            data = {"parts": [encode_part(Text("Hello?"))]} if self.with_message else {}
            await self.post("t", InboxItem("first", "send" if self.with_message else self.command, data, 0))
        await asyncio.sleep(0)  # so that its driver knows of the unread item

    def commit(self, commit: Commit, done: CommitDone) -> None:
        verdicts: list[Any] = []
        super().commit(commit, verdicts.append)

        async def answer() -> None:
            async with self._turns:
                await self._used()
                done(verdicts[0])

        self.answering = asyncio.ensure_future(answer())

    async def claim(self, *task: Any, **how: Any) -> Any:
        await self._used()
        return await super().claim(*task, **how)  # one that was granted is not lost with a cancelled caller

    async def inbox(self, task_id: str) -> list[InboxItem]:
        items = await super().inbox(task_id)
        if [item.item_id for item in items] == ["first"] and self.with_message:
            await self.post("t", InboxItem("second", self.command, {}, 0))
        await self._used()
        return items

    async def thread(self, *thread: Any, **how: Any) -> Any:
        items = await super().thread(*thread, **how)
        await self._used()
        return items


class Waits:
    """An agent with slow calls."""

    def __init__(self, calls: int) -> None:
        self.begun = asyncio.Event()

        @tool(read_only=True)
        async def wait() -> str:
            """Wait."""
            self.begun.set()
            await asyncio.sleep(60)
            return "waited"

        answer = turn("", [call("wait") for _ in range(calls)]) if calls else text("Late.", delay=60)
        self.agent = Agent(ScriptedModel([answer]), name="waits", tools=[wait])


@pytest.mark.sampled(6)
@pytest.mark.parametrize("command", ["cancel", "interrupt"])
@pytest.mark.parametrize("place", ["model", "call", "calls", "line", "end of the line"])
@pytest.mark.parametrize("with_message", [False, True])
async def test_a_command_is_obeyed_at_once_whenever_it_arrives(
    place: str, command: str, with_message: bool
) -> None:
    for uses in range(1, 100):
        store, waits = Listening(), Waits({"model": 0, "call": 1}.get(place, 2))
        runner = Runner(store, agents=[waits.agent])
        if "line" in place:
            holder = Waits(1)
            await runner.start(holder.agent, "hold", thread_id="talk")
            await holder.begun.wait()
        if place == "end of the line":
            await runner.start(holder.agent, "wait", thread_id="talk")
        await runner.create_task(waits.agent, "go", task_id="t", thread_id="talk")
        store.uses, store.command, store.with_message = uses, command, with_message
        drive = asyncio.ensure_future(runner.resume("t"))
        for _ in range(60):
            await asyncio.sleep(0)
        if store.uses > 0:
            break
        async with asyncio.timeout(20):
            assert (await drive).state == {"cancel": "cancelled", "interrupt": "interrupted"}[command], uses
        await runner.aclose()
    assert uses > 3
    await runner.aclose()


def stepper(steps: int, name: str = "stepper") -> Agent[Any]:
    @tool(read_only=True)
    def look() -> str:
        """Look."""
        return "seen"

    return Agent(
        ScriptedModel([*[call("look") for _ in range(steps)], text("Done.")]), name=name, tools=[look]
    )


@pytest.mark.parametrize("place", ["the same runner", "another runner"])
async def test_pause_returns_once_the_pause_is_carried_out_at_any_moment(place: str) -> None:
    for uses in range(1, 100):
        store, agent = Listening(), stepper(1)
        here = Runner(store, agents=[agent])
        there = here if place == "the same runner" else Runner(store, agents=[agent])
        await here.create_task(agent, "go", task_id="t")
        await here.run_step("t")
        pauses: list[asyncio.Future[Any]] = []
        store.uses, store.act = (
            uses,
            lambda pauses=pauses, there=there: pauses.append(asyncio.ensure_future(there.pause("t"))),
        )
        with suppress(TaskParked):
            await here.run_step("t")
        if not pauses:
            break
        async with asyncio.timeout(5):
            result_of_pause = await pauses[0]
        assert (result_of_pause.state, await store.inbox("t")) == ("paused", []), uses
    assert uses > 3


async def test_a_caller_that_leaves_once_the_task_is_to_pause_leaves_it_paused() -> None:
    options = RunOptions(break_on=[Breakpoint(after_step=1)])
    for uses in range(1, 100):
        store, agent = Listening(), stepper(1)
        runner = Runner(store, agents=[agent])
        await runner.create_task(agent, "go", task_id="t", options=options)
        driven = asyncio.ensure_future(runner.resume("t"))
        data = {"parts": [encode_part(Text("Hello?"))]}

        def leave(store: Any = store, driven: Any = driven, data: Any = data) -> None:
            store.said = asyncio.ensure_future(store.post("t", InboxItem("said", "send", data, 0)))
            driven.cancel()

        store.uses, store.act = uses, leave
        await asyncio.wait([driven])
        kinds = [event.kind async for event in runner.handle("t").events(deltas=False)]
        stops = [kind for kind in kinds if kind in ("pause_requested", "interrupt_requested")]
        assert stops[-1:] != ["interrupt_requested"] or "pause_requested" not in stops, uses
        if not driven.cancelled() and store.uses > 0:
            break
    assert uses > 5


async def test_an_agent_called_while_its_caller_pauses_sends_no_request() -> None:
    reached = 0
    for uses in range(1, 100):
        store, child = Listening(), stepper(5, "child")
        parent = Agent(
            ScriptedModel([call("child", input="go"), text("Done.")]), name="parent", subagents=[child]
        )
        runner = Runner(store, agents=[parent])
        await runner.create_task(parent, "go", task_id="t")
        requests_before: list[int] = []

        def pause(
            store: Any = store, child: Any = child, requests_before: list[int] = requests_before
        ) -> None:
            requests_before.append(len(child.model.requests))
            store.said = asyncio.ensure_future(store.post("t", InboxItem("said", "pause", {}, 0)))

        store.uses, store.act = uses, pause
        async with asyncio.timeout(5):
            result = await runner.resume("t")
        if not requests_before or result.state != "paused":
            break
        reached += 1
        assert len(child.model.requests) <= requests_before[0] + 2, uses
    assert reached > 10


class Deaf(MemoryStore):
    """A store that announces no write of other processes while it is deaf: drivers check for themselves, later."""

    deaf = False

    def watch(self, wake: Wake) -> Callable[[], None]:
        return super().watch(lambda changes: None if self.deaf else wake(changes))


@pytest.mark.parametrize("command", ["pause", "interrupt"])
async def test_a_resume_withdraws_a_stop_request_that_another_driver_has_not_read(
    command: str,
) -> None:
    store, gate = Deaf(), Gate(read_only=True)
    agent = Agent(ScriptedModel([call("work"), text("Done.")]), name="works", tools=[gate.tool])
    here, there = Runner(store, agents=[agent]), Runner(store, agents=[agent])
    handle = await here.start(agent, "go", task_id="t")
    await gate.entered.wait()
    store.deaf = True
    await store.post("t", InboxItem("said", command, {}, 0))
    resumed = asyncio.ensure_future(there.resume("t"))
    await until(lambda: len(store._tables.tasks["t"].waiting) == 2)
    here._driver.owned.read_inbox_soon("t")
    gate.let_go.set()
    async with asyncio.timeout(5):
        assert {(await resumed).state, (await handle.result()).state} == {"completed"}


async def test_an_undo_that_reaches_a_driver_without_the_code_for_it_is_finished_by_its_caller() -> None:
    taken_back: list[str] = []

    @tool(undo=lambda call, ctx: taken_back.append(call.id))
    def book() -> str:
        """Book."""
        return "booked"

    store = Listening()
    agent = Agent(ScriptedModel([call("book"), text("Done.")]), name="booker", tools=[book])
    here, there = Runner(store, agents=[agent]), Runner(store)
    for uses in range(1, 100):
        task_id = (await here.create_task(agent, "go")).task_id
        await here.run_step(task_id)
        undos: list[asyncio.Future[Any]] = []
        store.uses, store.act = (
            uses,
            lambda undos=undos, task_id=task_id: undos.append(asyncio.ensure_future(here.undo_step(task_id))),
        )
        await there.send(task_id, "Hello?")
        if not undos:
            break
        async with asyncio.timeout(5):
            assert (await undos[0]).complete, uses
        assert len(taken_back) == uses
    assert uses > 3
