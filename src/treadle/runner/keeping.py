"""Keeping journals: the verbs that check them and carry them from store to store, without driving a task."""

from __future__ import annotations

from treadle.runner import verifying
from treadle.runner.verbs import verb
from treadle.runner.verifying import VerifyReport
from treadle.runner.views import Ref, Views, id_of


class Keeping(Views):
    """The verbs for whoever looks after a store."""

    @verb
    async def verify(self, task: Ref | None = None) -> VerifyReport:
        """Read journals anew and check all that can be checked: chains, ends, events, conversations, threads, bases.

        Args:
            task: one task; None for all of the store. Damage in one keeps no other from being checked.

        Raises:
            TaskNotFound: there is no such task.
        """
        if task is None:
            await self._store.open()
            report = await verifying.verify(self._store, None)
        else:
            report = await verifying.verify(self._store, await self._driving.row(id_of(task)))
        for damaged in {finding.task_id for finding in report.findings}:
            self._driving.desk.forget(damaged)
        return report
