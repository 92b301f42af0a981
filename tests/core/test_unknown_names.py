"""Names that do not exist: what an error says, and what stays as it was where nothing is wrong."""

import copy
import inspect
import pickle
import traceback
from typing import Any

import pytest

from treadle.core import unknown_names
from treadle.core.data import frozen
from treadle.core.unknown_names import (
    explains_arguments,
    explains_names,
    misfit,
    near_name,
    unknown_attribute,
)
from treadle.errors import UnknownAttribute, WrongArguments


@explains_names("Agent", subscript=True)
@frozen(kw_only=True)
@explains_arguments
class Value:
    """A value with a property that fails."""

    name: str
    limits: int = 3
    memory_size: int = 0

    @property
    def broken(self) -> str:
        """Fail as code of a user may."""
        return self.name.upcase()  # type: ignore[attr-defined]


VALUE = Value(name="v")


def test_a_name_of_another_library_is_told_its_counterpart() -> None:
    with pytest.raises(AttributeError, match=r"Agent has no 'chat': a runner runs agents"):
        VALUE.chat  # type: ignore[attr-defined]  # noqa: B018


def test_a_name_misspelt_is_told_the_nearest_one() -> None:
    with pytest.raises(AttributeError, match=r"Agent has no 'limit'; did you mean 'limits'\?"):
        VALUE.limit  # type: ignore[attr-defined]  # noqa: B018


def test_a_name_like_no_other_is_told_which_names_there_are() -> None:
    assert unknown_attribute("Agent", "zzz", ["b", "a", "_private"]) == "Agent has no 'zzz'; it has b, a"


def test_a_name_far_from_all_has_no_near_name() -> None:
    assert near_name("quux", ["add", "sub"]) is None
    assert near_name("", ["add"]) is None


def test_an_item_is_told_to_be_an_attribute() -> None:
    with pytest.raises(TypeError, match=r"has attributes, not items: write \.name"):
        VALUE["name"]  # type: ignore[index]
    with pytest.raises(TypeError, match=r"not items: Agent has no 'chat'"):
        VALUE["chat"]  # type: ignore[index]


def test_an_object_still_says_what_it_has() -> None:
    assert not hasattr(VALUE, "chat")
    assert not hasattr(VALUE, "__html__")
    assert getattr(VALUE, "chat", "no") == "no"
    assert "chat" not in dir(VALUE)


def test_an_object_is_copied_and_pickled_as_ever() -> None:
    for other in (copy.copy(VALUE), copy.deepcopy(VALUE), pickle.loads(pickle.dumps(VALUE))):
        assert other == VALUE


def test_the_error_inside_a_property_is_not_replaced() -> None:
    with pytest.raises(AttributeError, match="'str' object has no attribute 'upcase'"):
        VALUE.broken  # noqa: B018


def test_a_name_that_is_only_looked_for_costs_no_search_for_near_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def search(name: str, known: object) -> None:
        raise AssertionError("no message was asked for")

    monkeypatch.setattr(unknown_names, "near_name", search)
    assert not hasattr(VALUE, "limit")


def test_the_error_of_an_attribute_is_pickled_with_its_message() -> None:
    with pytest.raises(UnknownAttribute) as caught:
        VALUE.limit  # type: ignore[attr-defined]  # noqa: B018
    assert isinstance(caught.value, AttributeError)
    copied = pickle.loads(pickle.dumps(caught.value))
    assert (type(copied), str(copied)) == (AttributeError, "Agent has no 'limit'; did you mean 'limits'?")
    assert "Did you mean" not in "".join(traceback.format_exception_only(caught.value))


def test_a_private_name_is_answered_by_python() -> None:
    with pytest.raises(AttributeError, match="'Value' object has no attribute '_chat'"):
        VALUE._chat  # type: ignore[attr-defined]  # noqa: B018


def test_a_constructor_shows_its_own_signature() -> None:
    assert list(inspect.signature(Value).parameters) == ["name", "limits", "memory_size"]


class Verbs:
    """Something with a method."""

    def run(self, agent: str, input: str, *, thread_id: str = "", options: object = None) -> str:
        """Run."""
        return f"{agent}{input}{thread_id}{options}"

    def list(self, *, limit: int = 1) -> int:
        """List."""
        return limit


@pytest.mark.parametrize(
    ("args", "kwargs", "says"),
    [
        (("a", "b"), {"deps": 3}, "run has no argument 'deps'; it has agent, input, thread_id, options"),
        (("a", "b"), {"max_turns": 3}, "'max_turns': write options=RunOptions(limits=Limits(steps=...))"),
        (("a", "b"), {"thread": 3}, "run has no argument 'thread': write thread_id="),
        (("a", "b"), {"optons": 3}, "run has no argument 'optons'; did you mean 'options'?"),
        (
            ("a", "b", "c"),
            {},
            "run takes agent, input, then the rest by name: 'c' is one too many by position",
        ),
        (("a", "b"), {"input": "c"}, "run got input twice: by position and by name"),
        (("a",), {}, "run needs input: write runner.run(agent, input)"),
        ((), {}, "run needs agent and input: write runner.run(agent, input)"),
    ],
)
def test_arguments_that_do_not_fit_are_told_what_to_write(
    args: tuple[Any, ...], kwargs: dict[str, Any], says: str
) -> None:
    problem = misfit("run", Verbs.run, args, kwargs, "runner.run")
    assert isinstance(problem, WrongArguments)
    assert isinstance(problem, TypeError)
    assert says in str(problem)


def test_advice_names_no_argument_that_a_verb_does_not_have() -> None:
    assert (
        str(misfit("list", Verbs.list, (), {"max_turns": 3}))
        == "list has no argument 'max_turns'; it has limit"
    )


def test_arguments_that_fit_are_no_problem() -> None:
    assert misfit("run", Verbs.run, ("a",), {"input": "b"}) is None


def test_an_error_of_the_constructor_itself_is_not_replaced() -> None:
    @explains_arguments
    class Fails:
        """A class whose constructor raises a TypeError of its own."""

        def __init__(self, number: int) -> None:
            self.text = "x" + number  # type: ignore[operator]

    with pytest.raises(TypeError, match="concatenate"):
        Fails(3)
