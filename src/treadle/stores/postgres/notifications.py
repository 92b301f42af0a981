"""The payloads of notifications between the writers of a schema: new mail, and changed tasks.

    mail                   the first line: `mail` if an item was put into an inbox, else nothing
    01k3...                one line for each task that changed; `*` if any may have
    01k4...

PostgreSQL takes payloads of less than 8,000 bytes, so many tasks need several notifications.
"""

from __future__ import annotations

from typing import Final

MAIL: Final = "mail"
ANY: Final = "*"
MOST_BYTES: Final = 7_900


def payloads(tasks: frozenset[str] | None, *, mail: bool) -> list[str]:
    """Return the payloads for changed tasks; None means any task."""
    first = MAIL if mail else ""
    if tasks is None:
        return [f"{first}\n{ANY}"]
    texts: list[str] = []
    lines, size = [first], len(first)
    for task_id in sorted(tasks):
        length = len(task_id.encode()) + 1
        if length > MOST_BYTES - len(MAIL):
            return [f"{first}\n{ANY}"]
        if size + length > MOST_BYTES:
            texts.append("\n".join(lines))
            lines, size = [""], 0
        lines.append(task_id)
        size += length
    return [*texts, "\n".join(lines)]


def read(payload: str) -> tuple[list[str] | None, bool]:
    """Return the changed tasks, None for any, and whether there is mail."""
    first, *tasks = payload.split("\n")
    return (None if ANY in tasks else tasks), first == MAIL
