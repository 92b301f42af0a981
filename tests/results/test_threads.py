"""The messages of a thread, with its members that cannot be read."""

from treadle import Message, Text
from treadle.results.threads import DamagedTurn, ThreadMessages


def test_a_thread_is_a_tuple_of_messages_and_names_its_damaged_tasks() -> None:
    messages = (Message("user", (Text("Hi."),)),)
    assert (ThreadMessages(messages), ThreadMessages(messages).damaged) == (messages, ())
    thread = ThreadMessages(messages, (DamagedTurn("job", 7, "event 7 cannot be read"),))
    assert [(turn.task_id, str(turn)) for turn in thread.damaged] == [("job", "event 7 cannot be read")]
    assert "job: event 7 cannot be read" in thread._repr_html_()
