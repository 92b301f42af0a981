"""The log `treadle.audit`: a record of each deletion, with the name of its caller.

The events of a task's journal name their callers. A deletion leaves no journal, so it is logged.
"""

from __future__ import annotations

import logging
from typing import Final

from treadle.core.display import one_line
from treadle.runner.scope import Scope

_LOG: Final = logging.getLogger("treadle.audit")


def tell(
    verb: str,
    by: str | None,
    scope: Scope | None,
    *,
    task_id: str | None = None,
    thread_id: str | None = None,
    tasks: int = 1,
) -> None:
    """Log a completed verb as one record of level INFO; its attributes are these arguments and `tenant`.

    Args:
        verb: the name of the verb.
        by: the name of the caller, None if unknown.
        scope: the scope of the runner; its tenant is the owner of the task or thread.
        task_id: the task.
        thread_id: the thread.
        tasks: number of affected tasks.
    """
    tenant = scope.tenant if scope is not None else ""
    subject = f"task {one_line(task_id)}" if task_id is not None else f"thread {one_line(str(thread_id))}"
    owner = f" of tenant {one_line(tenant)}" if tenant else ""
    caller = one_line(by) if by is not None else "a caller without by="
    facts = {
        "verb": verb,
        "by": by,
        "tenant": tenant,
        "task_id": task_id,
        "thread_id": thread_id,
        "tasks": tasks,
    }
    _LOG.info("%s: %s%s, by %s", verb, subject, owner, caller, extra=facts)
