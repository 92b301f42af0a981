"""The text of a ticket, and what the journal holds of it."""

import pytest

from treadle.core.tickets import digest_of_ticket, task_of_ticket, ticket_text


@pytest.mark.parametrize("task_id", ["order-17", "order.s3-0", "a.b.c", "/an/odd id?"])
def test_a_ticket_names_its_task(task_id: str) -> None:
    assert task_of_ticket(ticket_text("secret", task_id)) == task_id


@pytest.mark.parametrize("text", ["", "secret", ".task", "secret.", "."])
def test_other_texts_name_none(text: str) -> None:
    assert task_of_ticket(text) is None


def test_a_digest_tells_two_tickets_apart_and_neither_secret() -> None:
    one, other = digest_of_ticket(ticket_text("a", "t")), digest_of_ticket(ticket_text("b", "t"))
    assert one != other
    assert len(one) == 64
    assert digest_of_ticket("\ud800.t") != digest_of_ticket("?.t")


def test_a_ticket_is_no_option_of_a_command() -> None:
    """A secret that begins with a dash made `treadle complete` say that there is no such option."""
    assert ticket_text("-Uxy", "t").startswith("tk_")
