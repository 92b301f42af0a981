"""Pages of a task's events and steps, and its past requests to a model."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from treadle.core.events import EVENTS, Event, ModelStarted
from treadle.core.unknown_names import near_name
from treadle.drivers import arguments
from treadle.engine.time_slice import in_slices
from treadle.errors import ConfigurationError, StepNotFound
from treadle.ports import OutputT
from treadle.results.read_results import EventPage, PastRequest, StepPage
from treadle.results.states import state_at_rest
from treadle.results.step_outputs import TaskStepOutput, step_output
from treadle.results.steps import all_steps
from treadle.runner.stored_events import StoredEvents, events_that_mention, state_if_readable
from treadle.runner.verbs import verb
from treadle.runner.views import Ref, ViewVerbs, id_of

SCANNED: Final = 5_000
"""Maximum number of events that are searched for a page of some kinds."""


class HistoryVerbs(ViewVerbs):
    """The verbs that read the history of a task."""

    @verb
    async def get_events(
        self,
        task: Ref,
        *,
        after: int = 0,
        limit: int = 100,
        kinds: str | Collection[str] | None = None,
    ) -> EventPage:
        """Return a page of the events of a task; those of a fork begin with the ones that it shares with its parent.

        `for` iterates over the events of the page, `async for` over those of later pages too. With `runner.sync` a
        plain `for` iterates over all pages.

        Args:
            task: the task, or its id.
            after: sequence number of the last event already seen.
            limit: the maximum number of events of a page, 1 to 1,000.
            kinds: only events of this kind, or of these kinds, such as `tool_ended`.

        Raises:
            TaskNotFound: there is no such task.
            JournalCorrupt: an event of the page cannot be read.
            ConfigurationError: an argument is not valid.
        """
        arguments.page("get_events", limit, None)
        known_kinds = _known_kinds(kinds)
        row = await self._cache.row(id_of(task))
        stored = StoredEvents(
            self._store, row.task_id, await state_if_readable(self._cache, row) if after else None
        )
        items, last = list[Event](), after
        window = limit if known_kinds is None else arguments.MAX_PAGE
        while len(items) < limit and last < row.head and last - after < SCANNED:
            upto = min(last + window, row.head)
            for event in await stored.after(last, upto):
                if known_kinds is None or event.kind in known_kinds:
                    items.append(event)
            last = upto
        if len(items) > limit:
            del items[limit:]
            last = items[-1].seq
        cursor = last if last < row.head else None
        page = EventPage(tuple(items), cursor, row.head)
        return page.followed_by(
            lambda seen: self.get_events(row.task_id, after=seen, limit=limit, kinds=known_kinds)
        )

    @verb
    async def get_steps(self, task: Ref[OutputT], *, after: int = 0, limit: int = 100) -> StepPage[OutputT]:
        """Return a page of the steps of a task's current branch that have begun, in order.

        `for` iterates over the steps of the page, `async for` over those of later pages too. With `runner.sync` a plain
        `for` iterates over all pages.

        Args:
            task: the task, or its id.
            after: number of steps before the page.
            limit: the maximum number of steps of a page, 1 to 1,000.

        Raises:
            TaskNotFound: there is no such task.
            ConfigurationError: an argument is not valid.
        """
        arguments.page("get_steps", limit, None)
        row = await self._cache.row(id_of(task))
        task_id, end = row.task_id, after + limit
        async with self._cache.reading(task_id, row) as state:
            steps = all_steps(state)
            state_word, typed = state_at_rest(state), self._agents.output_type_of(state)
            each = (step_output(state, step, state_word, (), typed) for step in steps[after:end])
            items: list[TaskStepOutput[OutputT]] = await in_slices(each)
        page = StepPage[OutputT](tuple(items), end if end < len(steps) else None)
        return page.followed_by(lambda seen: self.get_steps(task_id, after=seen, limit=limit))

    @verb
    async def get_request(self, task: Ref, step: str | int, *, call: str | None = None) -> PastRequest:
        """Return a step's last request as the model saw it: messages, instructions, tools, settings.

        A runner that knows the agent rebuilds the request from the journal with its code. `PastRequest.exact` tells
        whether that code is the version that made the request.

        Args:
            task: the task, or its id.
            step: its index on the current branch, from 1, or its id, which may be that of an undone step.
            call: in a step that is a function, the id of one of its requests, as `model_started` names it.

        Raises:
            TaskNotFound: there is no such task.
            StepNotFound: there is no such step, or it sent no such request.
        """
        row = await self._cache.row(id_of(task))
        step_id = step if isinstance(step, str) else (await self.get_step(row.task_id, step)).step.step_id
        started = None
        for event in await events_that_mention(self._store, row.task_id, step_id):
            if isinstance(event, ModelStarted) and event.step == step_id and call in (None, event.call):
                started = event
        if started is None:
            request = f"no request {call!r}" if call is not None else "no request to a model"
            raise StepNotFound(f"step {step_id!r} of task {row.task_id} sent {request}")
        state = await self._cache.state_at(row.task_id, started.seq)
        from treadle.drivers.past_requests import PastRequests

        requests = PastRequests(self._agents, self._memory, self._driver.vault)
        return await asyncio.to_thread(requests.made_again, state, started)


def _known_kinds(kinds: str | Collection[str] | None) -> frozenset[str] | None:
    """Return the kinds of events for a page; None for all. Raises `ConfigurationError`."""
    if kinds is None:
        return None
    names = frozenset((kinds,) if isinstance(kinds, str) else kinds)
    for kind in sorted(names - EVENTS.keys()):
        near = near_name(kind, EVENTS)
        hint = f", did you mean {near!r}?" if near is not None else ""
        raise ConfigurationError(
            f"get_events: kinds: {arguments.shown(kind)} is no kind of a stored event{hint}"
        )
    return names
