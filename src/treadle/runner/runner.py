"""`TaskRunner`: every verb on tasks, over ports alone. The public `Runner` only decides which adapters it gets.

Every verb that drives goes one way: own the task, record what the caller said, drive it to the verb's goal, give it
back, and tell from its state what happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence, Set
from typing import Any, Final

from treadle.agents.agent import Agent
from treadle.core.events import END_STATES
from treadle.drivers import arguments
from treadle.drivers.adoption import AT_MOST, Adopter, Tell, log
from treadle.drivers.arguments import parts_of
from treadle.drivers.continuing import change_options, check_not_a_child, lift_stop, reopen, take_from_inbox
from treadle.drivers.driver import Dependencies
from treadle.drivers.new_task import NewRun, new_id
from treadle.drivers.owned_tasks import OwnedTask
from treadle.engine import results
from treadle.engine.abandoned import AbandonedCall, still_running
from treadle.engine.observers import ObserverReport
from treadle.engine.options import RunOptions
from treadle.engine.results import RunResult
from treadle.engine.thread_queue import ENCLOSING_TASKS
from treadle.errors import Fenced, TaskBusy
from treadle.ports import InboxItem, TaskRow
from treadle.runner.bridge import BRIDGE
from treadle.runner.control import ControlVerbs
from treadle.runner.create_and_step import StepVerbs
from treadle.runner.handle import RunHandle
from treadle.runner.maintenance import MaintenanceVerbs
from treadle.runner.stream import EventStream
from treadle.runner.threads import ThreadVerbs
from treadle.runner.undo_fork import UndoForkVerbs
from treadle.runner.verbs import on_instances, verb
from treadle.runner.views import Input, Ref, id_of

UNFINISHED: Final = frozenset({"created", "running", "answered"})
"""At rest, and nothing keeps the task from going on."""


class TaskRunner(StepVerbs, ControlVerbs, UndoForkVerbs, MaintenanceVerbs, ThreadVerbs):
    """Creates, drives, controls and inspects tasks. Holds no state of a run; safe under any concurrency."""

    def __init__(self, parts: Dependencies) -> None:
        super().__init__(parts)
        self._held: set[asyncio.Future[Any]] = set()
        self._adopter: Adopter | None = None

    def hold(self, work: asyncio.Future[Any]) -> None:
        """Keep work in the background from being collected; what it raised is told to whoever asks the handle."""
        self._held.add(work)
        work.add_done_callback(self._held.discard)

    @property
    def abandoned(self) -> tuple[AbandonedCall, ...]:
        """The calls of this process that were given up, since they ignored two cancellations, and still run."""
        return still_running()

    @property
    def observers(self) -> tuple[ObserverReport, ...]:
        """How this runner's observers do: what they were told, what was dropped, and how often they raised."""
        return self.driver.observers.reports() if self.driver.observers is not None else ()

    async def enter(self) -> None:
        """Open the store: what a `with` block begins with."""
        await self.store.open()

    async def aclose(self) -> None:
        """Write what is queued and close the store; tasks still driven here are interrupted, as `drain` does it.

        Observers are told the rest, for at most 2 seconds.
        """
        await self.drain()
        await self.driver.close()
        await self._store.close()
        if self.driver.observers is not None:
            await self.driver.observers.aclose()

    @verb
    async def drain(self, grace: float = 0.0) -> None:
        """Stop driving, since this process is about to end: adopt nothing more, and give back all that is driven here.

        The tasks are `interrupted`; whoever adopts tasks goes on with them at once, and so does `resume`.

        Args:
            grace: seconds for which calls in flight may end, while nothing new starts; then they are stopped.
        """
        arguments.seconds("drain: grace", grace)
        stopping = [
            self.driver.stop(owned, grace)
            for owned in list(self._owned.tasks.values())
            if self._owned.is_owned(owned.state.task_id)
        ]
        if self._adopter is not None:
            stopping.append(self._adopter.stop(grace))
        await asyncio.gather(*stopping)

    def begin_adopting(self, *, at_most: int = AT_MOST, tell: Tell = log) -> None:
        """Adopt tasks that nobody drives and somebody should, in the running event loop, until `drain` or `aclose`.

        Tasks are driven with the agents this runner was given, and the options they were begun with.

        Args:
            at_most: how many are driven at the same time.
            tell: gets what is done and met, in the event loop; by default that goes to the log `treadle.adopting`.
        """
        arguments.count("begin_adopting: at_most", at_most)
        self._adopter = Adopter(self.driver, at_most=at_most, tell=tell)

    @verb
    async def run(
        self,
        agent: Agent[Any],
        input: Input,
        *,
        thread_id: str | None = None,
        task_id: str | None = None,
        options: RunOptions | None = None,
        context: Any = None,
    ) -> RunResult:
        """Run an agent on an input until the task stops, and return how it stands then.

        Args:
            agent: what to run.
            input: text or content parts.
            thread_id: the conversation to go on with; a new one by default.
            task_id: an id of your own. A known one never runs twice: created or interrupted, it is driven on; ended,
                paused or waiting, its stored result is returned; driven elsewhere, its next stop is awaited, and it is
                driven on here if that driver crashes or is shut down.
            options: how to run; what it leaves open is taken from the runner's.
            context: handed to tools and instructions; never stored, never shown to a model.

        Raises:
            TaskConflict: the task id is known with another agent, input or thread.
        """
        new = NewRun(agent, parts_of(input), thread_id, task_id, options)
        return await self._run(new, context)

    @on_instances
    def run_sync(
        self,
        agent: Agent[Any],
        input: Input,
        *,
        thread_id: str | None = None,
        task_id: str | None = None,
        options: RunOptions | None = None,
        context: Any = None,
    ) -> RunResult:
        """Run like `run`, without asyncio; works also inside a running event loop."""
        return BRIDGE.run(
            self.run(agent, input, thread_id=thread_id, task_id=task_id, options=options, context=context)
        )

    async def _run(self, new: NewRun, context: Any) -> RunResult:
        owned = await self._create_or_none(new)
        if owned is None:
            return await self._run_known(new, context)
        return await self._drive_to_end(owned, new.agent, context)

    async def _drive_to_end(
        self, owned: OwnedTask, agent: Agent[Any], context: Any, *, detached: bool = False
    ) -> RunResult:
        if detached:
            ENCLOSING_TASKS.set(())  # whoever started it does not wait for it
        try:
            try:  # no context manager: every run comes this way
                await self.driver.drive(owned, "end", agent, context)
            finally:
                await self._ownership.release(owned)
        except Fenced as refusal:
            row = await self._commands.stopped_elsewhere(owned, refusal)
            if await self._is_left(row):
                return await self._go_on(row.task_id, agent, context, again=False)
            return await self.result(row.task_id)
        return self._result_of(owned.state, results.resting_word(owned.state))

    async def _run_known(self, new: NewRun, context: Any, *, detached: bool = False) -> RunResult:
        if detached:
            ENCLOSING_TASKS.set(())
        task_id = str(new.task_id)
        row = await self._cache.row(task_id)
        if results.word_of(row) in (*UNFINISHED, "interrupted"):
            return await self._go_on(task_id, new.agent, context, new.options, again=False)
        return await self.result(task_id)

    @on_instances
    def run_stream(
        self,
        agent: Agent[Any],
        input: Input,
        *,
        thread_id: str | None = None,
        task_id: str | None = None,
        options: RunOptions | None = None,
        context: Any = None,
        raw: bool = False,
    ) -> EventStream:
        """Run like `run`, with the events on the way: `async with ... as stream: async for event in stream`.

        With `raw`, also what the model's provider sends, as it sends it. Leaving the block early interrupts the task;
        afterwards `stream.result` is what `run` would have returned.
        """
        new = NewRun(agent, parts_of(input), thread_id, new_id() if task_id is None else task_id, options)

        async def work() -> RunResult:
            if task_id is not None:
                return await self._run(new, context)
            # The id was made here, so nobody else can know it.
            owned = await self._creator.create(
                NewRun(agent, new.input, thread_id, None, options), new.task_id
            )
            return await self._drive_to_end(owned, agent, context)

        async def standing() -> RunResult:
            return await self.result(str(new.task_id))

        return EventStream(
            self._owned,
            str(new.task_id),
            work,
            standing,
            lambda: self._agents.typed_of(agent),
            raw=raw,
        )

    @verb
    async def start(
        self,
        agent: Agent[Any],
        input: Input,
        *,
        thread_id: str | None = None,
        task_id: str | None = None,
        options: RunOptions | None = None,
        context: Any = None,
    ) -> RunHandle:
        """Start a task and return a handle at once; it is driven in this event loop and ends with it."""
        new = NewRun(agent, parts_of(input), thread_id, task_id, options)
        owned = await self._create_or_none(new)
        if owned is None:
            handle = RunHandle(self, str(task_id))
            handle.drive_with(self._run_known(new, context, detached=True))
            return handle
        handle = RunHandle(self, owned.state.task_id)
        handle.drive_with(self._drive_to_end(owned, agent, context, detached=True), owned.writer.epoch)
        await owned.writer.durable()
        return handle

    @on_instances
    def handle(self, task: Ref) -> RunHandle:
        """Return a handle on a task, wherever it is driven."""
        return RunHandle(self, id_of(task))

    @verb
    async def resume(
        self,
        task: Ref,
        *,
        agent: Agent[Any] | None = None,
        context: Any = None,
        options: RunOptions | None = None,
        by: str | None = None,
    ) -> RunResult:
        """Drive a task from where it stands to its next stop, and return how it stands then.

        A pause or an interrupt that was recorded before is taken back, also one that no driver has read yet. A
        completed or cancelled task, and a degraded one without new options, is left as it is. One driven elsewhere is
        waited for, and driven on here if that driver crashes or is shut down.

        Raises:
            AgentUnknown: this runner was not given the task's agent.
            ChildTask: the task is a child: it goes on with its parent.
            UndoUnfinished: an undo has begun and not ended.
        """
        task_id = id_of(task)
        arguments.options(options)
        await self._cache.row(task_id)
        before = [item for item in await self._store.inbox(task_id) if item.kind in ("pause", "interrupt")]
        return await self._go_on(task_id, agent, context, options, by, before)

    async def _go_on(
        self,
        task_id: str,
        agent: Agent[Any] | None,
        context: Any,
        options: RunOptions | None = None,
        by: str | None = None,
        before: Sequence[InboxItem] = (),
        *,
        again: bool = True,
    ) -> RunResult:
        """Drive a task to its next stop; what `before` asked for is heard and taken back.

        With `again`, a task that has ended may be taken up in a new attempt, and one that is paused goes on.
        """
        while True:
            row = await self._cache.row(task_id)
            if self._owned.is_driven(row):
                is_here = self._owned.is_owned(task_id)
                paused = await self._commands.paused_below(task_id) if again else set[tuple[str, int]]()
                row = await self._resumed_elsewhere(task_id, by)
                if not await self._is_left(row, is_here=is_here, paused=paused):
                    return await self.result(task_id)
            if _stays(row.state, options, again=again):
                return await self.result(task_id)
            check_not_a_child(task_id, row.parent)
            known = self._agents.of(row.agent, agent, task_id)
            owned = None
            try:
                async with self._ownership.acquire_outside_undo(task_id, enter=True) as owned:
                    if _stays(owned.state.ended, options, again=again) or (owned.state.pausing and not again):
                        # Somebody else ended or paused it just before it was owned here.
                        return self._result_of(owned.state, results.resting_word(owned.state))
                    if before and owned.state.ended is None:
                        await take_from_inbox(self._store, owned, before)
                    return await self._resume(owned, known, agent, context, options, by)
            except Fenced as refusal:
                if owned is None:
                    continue
                row = await self._commands.stopped_elsewhere(owned, refusal)
                if not await self._is_left(row):
                    return await self.result(task_id)
            except TaskBusy:
                now = await self._cache.row(task_id)
                if now.epoch == row.epoch and not self._owned.is_driven(now):
                    raise
                # Somebody else was faster, and may have had it for a moment only.

    async def _is_left(
        self, row: TaskRow, *, is_here: bool = False, paused: Set[tuple[str, int]] = frozenset()
    ) -> bool:
        """Whether a task that another caller drove is to be driven on by the one that waited for it.

        It is, when that driver crashed, was shut down, took one step only, or left mail unread. So it is when it
        stopped for children that were `paused`, with these epochs, before the caller came: a resume lifts that.
        """
        if row.state in END_STATES:
            return False
        if row.driver is not None or row.state in UNFINISHED or await self._store.inbox(row.task_id):
            return True
        if row.state == "interrupted" and not is_here:  # a runner that shuts down drives nothing on
            return (await self._cache.load(row.task_id, row)).state.shutdown
        return bool(paused) and not paused.isdisjoint(await self._commands.paused_below(row.task_id))

    async def _resumed_elsewhere(self, task_id: str, by: str | None) -> TaskRow:
        """Return the row of a task once its driver stops; one that is about to stop since it was asked to goes on."""
        state = (await self._cache.load(task_id)).state
        asked = [item.kind for item in await self._store.inbox(task_id)]
        if state.pausing or state.interrupting or "pause" in asked or "interrupt" in asked:
            await self._commands.send(task_id, "resume", {"by": by})
        return await self._commands.stopped(task_id)

    async def _resume(
        self,
        owned: OwnedTask,
        known: Agent[Any],
        agent: Agent[Any] | None,
        context: Any,
        options: RunOptions | None,
        by: str | None,
    ) -> RunResult:
        state = owned.state
        known = agent or self._agents.version_for(state, known)
        await self._agents.check_prices(known, state, options)
        if state.ended is not None:
            await reopen(self._store, owned, "resume", by)
        change_options(owned, options)
        lift_stop(owned, by)
        await self.driver.drive(owned, "end", known, context)
        return self._result_of(state, results.resting_word(state))


def _stays(state: str | None, options: RunOptions | None, *, again: bool) -> bool:
    """Whether a task in this state has ended and is left as it is."""
    if state == "degraded" and again:
        return options is None
    return state in END_STATES if not again else state in ("completed", "cancelled")
