"""A handle on a task that a server has: its verbs are those of the client."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Generic

from treadle.client.verbs import RemoteVerbs
from treadle.core.events import Ephemeral, Event
from treadle.errors import ConfigurationError
from treadle.ports import OutputT_co
from treadle.results.run_result import RunResult
from treadle.runner.faces import TaskVerbs
from treadle.runner.handle import RunHandle
from treadle.runner.verbs import called_on


@called_on("handle")
class RemoteHandle(RunHandle[OutputT_co], Generic[OutputT_co]):
    """A task under its id. Watching never affects it; the verbs are those of the client."""

    def __init__(self, client: TaskVerbs, verbs: RemoteVerbs, task_id: str) -> None:
        self.task_id = task_id
        self._runner = client
        self._verbs = verbs

    def events(
        self, *, after: int = 0, deltas: bool = True, raw: bool = False, follow: bool = False
    ) -> AsyncGenerator[Event | Ephemeral, None]:
        """Yield the task's events with sequence numbers greater than `after`, until it stops; can be opened again.

        The stream goes on after lost connections and killed servers. In the middle of an answer, all of
        it so far comes first, as from a runner.

        Args:
            after: sequence number of the last event already seen.
            deltas: also yield what the model is writing just now, which is never stored.
            raw: not over a server: what the provider sends stays with the process that drives.
            follow: go on when the task stops, until it is deleted, and yield a `TaskStood` first of all and whenever
                its state or its driver changes.
        """
        if raw:
            raise ConfigurationError(
                "events: raw= is what a provider sends: it stays with the process that drives"
            )
        return self._verbs.events(self.task_id, after=after, deltas=deltas, follows=follow)

    async def partials(self, *, checked: bool = False) -> AsyncGenerator[Any, None]:
        """Yield the answer that is being written, each time that there is more of it; see `EventStream.partials`.

        The client has to know the task's agent as an object: `Client(url, agents=[...])`.
        """
        from treadle.runner.partials import partials

        task = await self._verbs.call("get_task", {"task": self.task_id})
        async with aclosing(self._verbs.events(self.task_id)) as events:
            async for value in partials(events, self._verbs.agents.typed_of(task.agent), checked=checked):
                yield value

    async def result(self) -> RunResult[OutputT_co]:
        """Return how the task stands once it stops: losing a server does not stop it."""
        return await self._verbs.stopped(self.task_id)
