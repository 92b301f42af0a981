"""Verify journals, and export and import tasks, without driving them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, BinaryIO, cast

from treadle.drivers import arguments
from treadle.runner.verbs import verb
from treadle.runner.views import Ref, ViewVerbs

if TYPE_CHECKING:
    from treadle.transfer.exporting import ExportReport
    from treadle.transfer.importing import ImportReport
    from treadle.transfer.verifying import VerifyReport


class MaintenanceVerbs(ViewVerbs):
    """The verbs for operators of a store."""

    @verb
    async def verify(self, task: Ref | None = None) -> VerifyReport:
        """Read journals again and verify their chains, ends, events, conversations, threads and bases.

        Args:
            task: one task; None for all tasks of the store. Damage in one does not stop the check of the others.

        Raises:
            TaskNotFound: there is no such task.
        """
        from treadle.transfer import verifying

        task_id = None if task is None else await self._existing(task)
        await self._cache.open()
        async with self._store.snapshot() as snapshot:
            report = await verifying.verify(snapshot, task_id)
        for damaged in {finding.task_id for finding in report.findings}:
            self._cache.forget(damaged)
        return report

    @verb
    async def export_tasks(self, to: str | os.PathLike[str] | BinaryIO, *tasks: Ref) -> ExportReport:
        """Write tasks as JSON Lines, with the tasks they were forked from or share a thread with, and all children.

        Args:
            to: a file, which appears once it is complete, or a stream of bytes.
            tasks: the tasks; by default all tasks of the store. A task that is driven is exported up to its last event.

        Raises:
            TaskNotFound: there is no such task.
            JournalCorrupt: a task cannot be read; name the others to leave it out.
        """
        from treadle.transfer import exporting

        file = (
            None
            if hasattr(to, "write")
            else arguments.path("export_tasks: to", to, "a path or a stream of bytes")
        )
        await self._cache.open()
        task_ids = [await self._existing(task) for task in tasks] or None
        async with self._store.snapshot() as snapshot:
            if file is not None:
                return await exporting.export_to_file(snapshot, file, task_ids)
            return await exporting.export(snapshot, cast("BinaryIO", to), task_ids)

    @verb
    async def import_tasks(self, source: str | os.PathLike[str]) -> ImportReport:
        """Import tasks from an export file with unchanged journals, without running any code from the file.

        The whole file is checked first. An equal task that exists already is left unchanged.

        Raises:
            ImportRefused: the file is not an export, or was cut or changed; `line` is the place. Nothing was imported.
            TaskConflict: the store has another task of the same id. Nothing was imported.
        """
        from treadle.transfer import importing

        file = arguments.path("import_tasks: source", source)
        await self._cache.open()
        return await importing.import_tasks(self._store, file)
