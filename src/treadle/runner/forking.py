"""Fork tasks: a fork shares another task's journal up to a point, and continues on its own."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any, TypedDict, Unpack, overload

from treadle.agents.agent import Agent
from treadle.core import codec
from treadle.core import events as e
from treadle.core.data import frozen
from treadle.core.journal import check_format, check_known, events_with_epochs, unfold
from treadle.core.messages import Content, Json
from treadle.core.state import TaskState
from treadle.drivers import fork_point
from treadle.drivers.arguments import parts_of
from treadle.drivers.continuing import commit, options_of_fork
from treadle.drivers.ownership import check_unmoved
from treadle.drivers.random_ids import new_id
from treadle.engine.journal_writer import encode_record
from treadle.engine.loading import apply_checked
from treadle.engine.options import RunOptions, from_json
from treadle.errors import TaskConflict
from treadle.ports import Commit, NewTask, OutputT, TaskExists, TaskRow
from treadle.results.tasks import Task
from treadle.results.usage import figures_of
from treadle.runner.verbs import verb
from treadle.runner.views import Input, Ref, ViewVerbs, id_of


class ForkArguments(TypedDict, total=False):
    """The arguments of `Runner.fork` that do not change the type of the output."""

    at: str | int | None
    instructions: str | None
    model: str | None
    input: Input | None
    replace: dict[str, Json] | None
    thread_id: str | None
    task_id: str | None
    options: RunOptions | None
    expect: int | None
    by: str | None


class ForkVerbs(ViewVerbs):
    """The verb that forks tasks."""

    @overload
    async def fork(
        self, task: Ref, *, agent: Agent[Any, OutputT], **others: Unpack[ForkArguments]
    ) -> Task[OutputT]: ...
    @overload
    async def fork(
        self, task: Ref[OutputT], *, agent: None = ..., **others: Unpack[ForkArguments]
    ) -> Task[OutputT]: ...
    @verb
    async def fork(
        self,
        task: Ref,
        *,
        at: str | int | None = None,
        agent: Agent[Any] | None = None,
        instructions: str | None = None,
        model: str | None = None,
        input: Input | None = None,
        replace: dict[str, Json] | None = None,
        thread_id: str | None = None,
        task_id: str | None = None,
        options: RunOptions | None = None,
        expect: int | None = None,
        by: str | None = None,
    ) -> Task[Any]:
        """Create a task that shares another's journal up to a point and repeats none of its effects.

        Args:
            task: the task to fork, or its id; it stays unchanged.
            at: the id of a step, or the sequence number of an event; the fork begins just after it. By default the last
                completed step, or the beginning of a fork that has completed none.
            agent: another agent.
            instructions: replaces the agent's instructions. The text is stored with the fork and stays when the
                agent's code changes.
            model: replaces the agent's model, as `provider:model`; stored likewise.
            input: a user message to continue with.
            replace: other results for calls of one step, by call id; the fork begins at the end of that step. `at` may
                name that place too, and no other.
            thread_id: the thread the fork belongs to; a new one by default.
            task_id: an id of your own for the fork; the same id again returns the same fork.
            options: other options than those of the forked task.
            expect: the last event that the caller saw, `Task.head`. There is no fork unless it is still the last.
            by: the name of the caller, for the record.

        Raises:
            TaskMoved: the task's journal does not end with the event in `expect`.
            TaskConflict: another task has the id in `task_id`.
            ModelUnknown: no provider has the name in `model`.
            ForkPointBusy: a call has begun and not ended at that point, or goes on in the background. A step of an
                ended task can be forked even then: the fork has the results so far, without the work in the background.
            TaskTooNew: a newer version of Treadle wrote events into the task's journal that this one does not know.
            StepNotFound, CallNotFound: there is no such place.
        """
        request = _ForkRequest(
            at,
            agent,
            e.AgentOverride("", instructions, model),
            self._load_parts(parts_of(input)) if input is not None else None,
            replace or {},
            thread_id,
            task_id,
            options,
            expect,
            by,
        )
        row = await self._cache.row(id_of(task))
        if task_id is None:
            return await self.get_task(await self._fork(row, request))
        if await self._cache.row_or_none(task_id) is None:
            with suppress(TaskExists):
                return await self.get_task(await self._fork(row, request))
        return await self._same_fork(row, request, task_id)

    async def _fork(self, row: TaskRow, request: _ForkRequest) -> str:
        """Create a fork and return its id; raise `TaskExists` if there is a task of that id."""
        parent_id, at, agent = row.task_id, request.at, request.agent
        check_format(parent_id, row.format)
        state = (await self._cache.load(parent_id)).state
        check_unmoved(parent_id, state.seq, request.expect)
        check_known(state)
        point = await fork_point.fork_point(self._store, state, at, request.replace)
        if isinstance(at, int):
            await fork_point.check_rest(self._store, parent_id, point.seq)
        elif state.tickets:
            point = await fork_point.at_rest(self._store, state, point, replaced=bool(request.replace))
        if agent is not None:
            self._agents.register(agent)
        if request.override.model is not None:
            self._agents.model_named(request.override.model)
        if request.options is not None or agent is not None:
            kept_tools = from_json(state.options) if request.options is None else request.options
            self._agents.check_caller_tools(agent or state.agent, kept_tools)
        name = agent.name if agent is not None else row.agent
        # After handoffs, the fork continues with the agent that had the task at that point.
        same = "" if state.versions else state.fingerprint
        fingerprint = agent.fingerprint if agent is not None else same
        thread = request.thread_id or new_id()
        kept = self._options_of(request, state.options)
        override = request.override_over(state)
        first: list[e.Event] = [
            e.TaskForked(parent_id, name, thread, fingerprint, kept, request.by, override)
        ]
        first += point.then
        for call_id, value in request.replace.items():
            call = state.find_call(call_id)
            first.append(e.ResultReplaced(call_id, value, call.output if call is not None else None))
        if request.input is not None:
            first.append(e.InputReceived(request.input, by=request.by))
        labels = self._labels_of(request, row)
        new = NewTask(request.task_id or new_id(), name, thread, self._clock(), labels=labels)
        new.base, new.base_seq = parent_id, point.seq
        await self._write_fork(row, new, first)
        return new.task_id

    async def _same_fork(self, row: TaskRow, request: _ForkRequest, task_id: str) -> Task[Any]:
        """Return the fork that was created with an id before; raise `TaskConflict` if that is another task."""
        if await self._cache.row_or_none(task_id) is None:
            message = (
                f"task id {task_id} belonged to a task that was deleted and is read by others; take another"
            )
            raise TaskConflict(message, task_id=task_id, field="task_id")
        state = (await self._cache.load(task_id)).state
        fits = {"task_id": state.forked_from == row.task_id}
        if fits["task_id"]:
            fits |= await self._fits(row, request, state)
        for field, same in fits.items():
            if not same:
                problem = "is no fork of this task" if field == "task_id" else f"exists with another {field}"
                message = f"task {task_id} {problem}; give another task_id, or none"
                raise TaskConflict(message, task_id=task_id, field=field)
        return await self.get_task(task_id)

    async def _fits(self, row: TaskRow, request: _ForkRequest, fork: TaskState) -> dict[str, bool]:
        """Return for each argument whether it fits an existing fork; an argument that was left out fits."""
        seq = fork.fork_seq
        records = await self._store.read(fork.task_id, after=seq - 1, upto=seq + 1)
        events = events_with_epochs(fork.task_id, records, after=seq - 1, previous=None)
        point, made, *then = [event for _, event in events if event.seq >= seq]
        assert isinstance(made, e.TaskForked), "it is the first event of a fork"
        inputs = [event.parts for event in then if isinstance(event, e.InputReceived)]
        results = {event.call: event.output for event in then if isinstance(event, e.ResultReplaced)}
        agent, at, override = request.agent, request.at, made.override or e.AgentOverride()
        parent = (await self._cache.load(row.task_id)).state
        kept = parent.override or e.AgentOverride()
        # With concurrent steps, a fork does not begin at the end of its step.
        is_there = seq == at if isinstance(at, int) else _ends(point, at)
        if results:
            calls = [call for call in map(fork.find_call, results) if call is not None]
            steps = [step for step in parent.steps if calls and step.id == calls[0].step]
            is_there = is_there or any(fork_point.is_end_of(step, at, seq) for step in steps)
        return {
            "at": at is None or is_there or any(isinstance(event, e.Rewound) for event in then),
            "agent": made.agent == (row.agent if agent is None else agent.name),
            "thread": request.thread_id in (None, made.thread),
            "input": inputs[:1] == ([] if request.input is None else [request.input]),
            "replace": results == request.replace,
            "instructions": override.instructions
            in _allowed(request.override.instructions, kept.instructions),
            "model": override.model in _allowed(request.override.model, kept.model),
            "labels": (await self._cache.row(fork.task_id)).labels == self._labels_of(request, row),
            "options": await self._had_options(request, parent, made),
        }

    def _options_of(self, request: _ForkRequest, stored: Json) -> Json:
        """Return the options to store with a fork, given those of the forked task."""
        scope = self.scope
        options = request.options if scope is None else scope.fork_options(request.options, stored)
        return options_of_fork(stored, options)

    def _labels_of(self, request: _ForkRequest, row: TaskRow) -> dict[str, str]:
        options = request.options if self.scope is None else self.scope.fork_options(request.options, None)
        return row.labels if options is None else {**row.labels, **options.labels}

    async def _had_options(self, request: _ForkRequest, parent: TaskState, made: e.TaskForked) -> bool:
        """Whether a fork was created with the options of a request; those of its parent may have changed since."""
        if made.options == self._options_of(request, parent.options):
            return True
        events = events_with_epochs(parent.task_id, await self._store.read(parent.task_id))
        kinds = (e.TaskCreated, e.TaskForked, e.OptionsChanged)
        stored = [event.options for _, event in events if isinstance(event, kinds)]
        return any(made.options == self._options_of(request, each) for each in stored)

    async def _write_fork(self, row: TaskRow, new: NewTask, first: list[e.Event]) -> None:
        """Write a fork's row, with its figures, and its first record. The parent's journal is not copied."""
        seq = new.base_seq
        cut = (await self._store.read(row.task_id, after=seq - 1, upto=seq))[-1]
        ((_, shared),) = unfold(row.task_id, [cut], after=seq - 1, previous=None)
        new.created = max(shared[-1].time, new.created)  # the clock may have been set back since
        for offset, event in enumerate(first, 1):
            if (hide := self._driver.vault.hide_in) is not None:
                hide(event)
            event.seq, event.time = seq + offset, new.created
        state = await self._cache.state_at(row.task_id, seq)
        for event in first:
            apply_checked(state, event, 1)
        record = encode_record(first, 1, codec.branch_digest(cut.digest, seq))
        made = Commit(new.task_id, 1, record, new, "created", release=True)
        made.format, made.figures = max(row.format, *[event.format for event in first]), figures_of(state)
        await commit(self._store, made)
        self._owned.report_created(new.task_id)


@frozen
class _ForkRequest:
    """A caller's request for a fork; see `ForkVerbs.fork`."""

    at: str | int | None
    agent: Agent[Any] | None
    override: e.AgentOverride
    input: tuple[Content, ...] | None
    replace: dict[str, Json]
    thread_id: str | None
    task_id: str | None
    options: RunOptions | None
    expect: int | None
    by: str | None

    def override_over(self, state: TaskState) -> e.AgentOverride | None:
        """Return the caller's overrides of the fork's agent, else those of its parent."""
        requested, kept = self.override, state.override
        nothing = e.AgentOverride()
        if kept is not None and self.agent is None:
            if requested == nothing:
                return kept
            if (
                kept.agent == state.agent
            ):  # else a handoff came between, and the caller means the current agent
                requested = replace(
                    kept,
                    instructions=kept.instructions
                    if requested.instructions is None
                    else requested.instructions,
                    model=kept.model if requested.model is None else requested.model,
                )
        return None if requested == nothing else requested


def _ends(event: e.Event, step: str | int | None) -> bool:
    return isinstance(event, (e.StepCompleted, e.StepSkipped)) and event.step == step


def _allowed(requested: str | None, kept: str | None) -> tuple[str | None, ...]:
    """Return the overrides that a fork may have: the requested one, else none or its parent's."""
    return (None, kept) if requested is None else (requested,)
