"""Events of a task as a whole."""

from treadle.core import events as e


def test_a_task_whose_calls_have_keys_of_an_incarnation_needs_a_newer_format() -> None:
    assert (e.TaskCreated("a", (), "t").format, e.TaskCreated("a", (), "t", incarnation="x").format) == (1, 2)


def test_an_older_version_cannot_read_the_key_of_frames() -> None:
    assert e.TaskCreated("a", (), "t", incarnation="x", frame_key="y").format == 5
