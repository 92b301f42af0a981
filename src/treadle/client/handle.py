"""A handle on a task of a server, with the verbs of the client."""

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
    """A task by its id, with the verbs of the client. Watching never affects the task."""

    def __init__(self, client: TaskVerbs, verbs: RemoteVerbs, task_id: str) -> None:
        self.task_id = task_id
        self._runner = client
        self._verbs = verbs

    def events(
        self, *, after: int = 0, deltas: bool = True, raw: bool = False, follow: bool = False
    ) -> AsyncGenerator[Event | Ephemeral, None]:
        """Yield the task's events with sequence numbers greater than `after`, until it stops; can be called again.

        The stream continues after lost connections and killed servers. If an answer is being written, its text so far
        follows the stored events, as with a runner.

        Args:
            after: sequence number of the last event already seen.
            deltas: also yield the deltas of the model, which are never stored.
            raw: refused, since the provider's raw chunks stay in the process that drives.
            follow: go on when the task stops, until it is deleted. Yield a `TaskStood` first, and whenever its state or
                its driver changes.
        """
        if raw:
            raise ConfigurationError(
                "events: raw= is not available: a provider's raw chunks stay in the process that drives"
            )
        return self._verbs.events(self.task_id, after=after, deltas=deltas, follows=follow)

    async def partials(self, *, checked: bool = False) -> AsyncGenerator[Any, None]:
        """Yield the growing answer each time that it has grown; see `EventStream.partials`.

        The client must know the task's agent as an object: `Client(url, agents=[...])`.
        """
        from treadle.runner.partials import partials

        task = await self._verbs.call("get_task", {"task": self.task_id})
        async with aclosing(self._verbs.events(self.task_id)) as events:
            async for value in partials(events, self._verbs.agents.typed_of(task.agent), checked=checked):
                yield value

    async def result(self) -> RunResult[OutputT_co]:
        """Return the state of the task once it stops; a lost server does not stop it."""
        return await self._verbs.stopped(self.task_id)
