"""Notifications between the writers of a schema: small enough for PostgreSQL, and nothing is lost by that."""

import pytest

from treadle.stores.postgres.notifications import payloads, read


@pytest.mark.parametrize("count", [0, 1, 2, 200, 243, 244, 5_000])
@pytest.mark.parametrize("mail", [False, True])
def test_what_is_notified_is_what_is_read(count: int, mail: bool) -> None:
    tasks = frozenset(f"01k3zq8r5vexampletask{n:011}" for n in range(count))
    texts = payloads(tasks, mail=mail)
    assert all(len(text.encode()) < 8_000 for text in texts)
    heard = [read(text) for text in texts]
    assert {task for tasks, _ in heard for task in tasks or ()} == tasks
    assert None not in [tasks for tasks, _ in heard]
    assert sum(mail for _, mail in heard) == mail, "mail is told once"


def test_any_task_may_have_changed_where_names_are_not_known_or_too_long() -> None:
    for tasks in (None, frozenset({"t", "é" * 5_000})):
        assert [read(text) for text in payloads(tasks, mail=True)] == [(None, True)]
