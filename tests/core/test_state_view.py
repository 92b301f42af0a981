"""`ctx.state`: a mapping that keeps what a call writes until the call ends, and notices what it did to lists."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from treadle.core.events import StateChange
from treadle.core.extra_state import ExtraState, Writer
from treadle.core.state import TaskState, start
from treadle.core.state_view import StateAccess, StateView
from treadle.core.steps import CallState

BEGAN = {"n": 1, "names": ["a"], "deep": {"list": [{"x": 1}]}, "none": None}

State = MutableMapping[str, Any]


def task(initial: Any = BEGAN) -> TaskState:
    state = start("t")
    state.extra_state = None if initial is None else ExtraState(initial)
    return state


class Opened(StateView):
    """What a call has, and what the engine does with it."""

    def __init__(self, access: StateAccess) -> None:
        super().__init__(access)
        self.close, self.see = access.close, access.see


def view(state: TaskState | None = None, **options: Any) -> Opened:
    return Opened(StateAccess(state or task(), 9, "tool 'add'", **options))


def sets(key: str, value: Any) -> Callable[[State], object]:
    return lambda state: state.__setitem__(key, value)


@pytest.mark.parametrize(
    ("act", "values", "removed"),
    [
        (lambda s: None, None, ()),
        (lambda s: (s["n"], s["names"], s["deep"], len(s), list(s), repr(s)), None, ()),
        (sets("n", 2), {"n": 2}, ()),
        (sets("new", [1]), {"new": [1]}, ()),
        (sets("none", None), None, ()),
        (sets("new", None), {"new": None}, ()),
        (lambda s: s["names"].append("b"), {"names": ["a", "b"]}, ()),
        (lambda s: s["deep"]["list"][0].update(x=2), {"deep": {"list": [{"x": 2}]}}, ()),
        (lambda s: s.get("names").clear(), {"names": []}, ()),
        (lambda s: s.setdefault("seen", []).append(1), {"seen": [1]}, ()),
        (lambda s: s.setdefault("names", []).append(1), {"names": ["a", 1]}, ()),
        (lambda s: s.update(n=3, m=4), {"n": 3, "m": 4}, ()),
        (lambda s: s.__delitem__("n"), {}, ("n",)),
        (lambda s: s.pop("names"), {}, ("names",)),
        (lambda s: s.pop("no", None), None, ()),
        (lambda s: s.clear(), {}, ("n", "names", "deep", "none")),
        (lambda s: (s.__setitem__("new", 1), s.__delitem__("new")), None, ()),
        (lambda s: (s.__delitem__("n"), s.__setitem__("n", 1)), None, ()),
        (lambda s: (s.__setitem__("n", 2), s.__setitem__("n", 1)), None, ()),
        (lambda s: (s["names"].append("b"), s["names"].pop()), None, ()),
        (sets("n", 1.0), {"n": 1.0}, ()),
        (sets("n", True), {"n": True}, ()),
        (sets("names", ["a"]), None, ()),
        (sets("deep", {"list": [{"x": True}]}), {"deep": {"list": [{"x": True}]}}, ()),
    ],
)
def test_a_change_holds_the_keys_whose_values_differ_and_no_others(
    act: Callable[[State], object], values: dict[str, Any] | None, removed: tuple[str, ...]
) -> None:
    state = task()
    opened = view(state)
    act(opened)
    change = opened.close()
    assert change == (None if values is None else StateChange(values, removed))
    assert repr(change) == repr(None if values is None else StateChange(values, removed)), "1 is not True"
    assert state.extra_state == ExtraState(BEGAN), "nothing changes but by an event"


def test_what_is_written_is_read_again_before_it_is_stored() -> None:
    opened = view()
    opened["n"] = 5
    del opened["names"]
    opened["more"] = shared = [1]
    shared.append(2)
    assert (opened["n"], opened["more"], "names" in opened, "n" in opened) == (5, [1, 2], False, True)
    assert list(opened) == ["n", "deep", "none", "more"]
    assert len(opened) == 4
    assert dict(opened) == opened == {"n": 5, "deep": {"list": [{"x": 1}]}, "none": None, "more": [1, 2]}
    with pytest.raises(KeyError, match="names"):
        opened["names"]
    with pytest.raises(KeyError, match="names"):
        del opened["names"]
    with pytest.raises(KeyError, match="no"):
        opened["no"]


def test_what_is_stored_is_a_copy_of_what_was_written() -> None:
    opened, mine = view(), [1]
    opened["list"] = mine
    change = opened.close()
    mine.append(2)
    assert change == StateChange({"list": [1]})


def test_a_view_reads_what_was_written_up_to_the_event_at_which_its_call_began() -> None:
    state = task()
    assert state.extra_state is not None
    state.extra_state.write(StateChange({"n": 2}), Writer("s1-0", "s1", ((1,), 0), 4), 9)
    opened = view(state)
    state.extra_state.write(StateChange({"n": 3, "m": 1}, ("names",)), Writer("s1-1", "s1", ((1,), 1), 5), 10)
    assert dict(opened) == {**BEGAN, "n": 2}
    assert dict(StateView(StateAccess(state, 10, "tool"))) == {
        "n": 3,
        "deep": BEGAN["deep"],
        "none": None,
        "m": 1,
    }
    assert dict(StateView(StateAccess(state, 8, "tool"))) == BEGAN


def test_a_task_without_a_state_has_an_empty_one_that_a_call_may_fill() -> None:
    opened = view(task(None))
    assert dict(opened) == {}
    opened["n"] = 1
    assert opened.close() == StateChange({"n": 1})


class Odd:
    def __repr__(self) -> str:
        return "Odd()"


DEEP: list[Any] = []
for _ in range(101):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({1, 2}, "must be JSON data"),
        (Odd(), r"must be JSON data .*, got Odd\(\)"),
        ((1, 2), "must be JSON data"),
        ({1: "a"}, "must be JSON data"),
        (float("nan"), "must be JSON data"),
        pytest.param(
            10**5_000,
            r"must be JSON data .*, got a value of type int that Python cannot write",
            id="a number of 5,001 digits",
        ),
        (b"bytes", "must be JSON data"),
        ([Odd()], "must be JSON data"),
        (DEEP, "cannot be stored: it is nested deeper than 100 levels"),
        ("\ud800", "cannot be stored: it is text with half a character"),
    ],
)
def test_a_value_that_is_no_json_is_named_with_its_tool_and_key(value: Any, says: str) -> None:
    opened = view()
    opened["cart"] = value
    with pytest.raises(TypeError, match=rf"^tool 'add': ctx.state\['cart'\] {says}"):
        opened.close()


def test_a_list_that_was_read_and_spoilt_is_named_too() -> None:
    opened = view()
    opened["names"].append(Odd())
    with pytest.raises(TypeError, match=r"^tool 'add': ctx.state\['names'\] must be JSON data"):
        opened.close()


def test_a_call_has_a_mapping_and_nothing_else() -> None:
    public = {name for name in dir(StateView) if not name.startswith("_")}
    assert public == {"copy", *(name for name in dir(MutableMapping) if not name.startswith("_"))}


def test_a_key_that_is_no_text_is_refused_at_once() -> None:
    opened: Any = view()
    with pytest.raises(TypeError, match=r"tool 'add': a key of ctx\.state must be text, got 3"):
        opened[3] = 1
    assert 3 not in opened
    with pytest.raises(TypeError, match="key"):
        del opened[3]


def test_a_call_that_has_ended_changes_nothing_any_more() -> None:
    opened = view()
    opened["n"] = 2
    assert opened.close() == StateChange({"n": 2})
    with pytest.raises(TypeError, match=r"tool 'add': ctx\.state cannot be changed: it has ended"):
        opened["n"] = 3
    with pytest.raises(TypeError, match="it has ended"):
        del opened["n"]


def test_a_view_that_may_only_be_read_says_why() -> None:
    opened = view(refusal="a question changes nothing")
    assert opened["n"] == 1
    with pytest.raises(TypeError, match="a question changes nothing"):
        opened["n"] = 2
    opened["names"].append("b")
    assert view()["names"] == ["a"]


def test_a_state_of_the_first_release_that_is_no_object_is_refused_with_what_to_do() -> None:
    opened = view(task([1]))
    for act in (lambda: opened["n"], lambda: dict(opened), lambda: opened.__setitem__("n", 1)):
        with pytest.raises(
            TypeError, match=r"extra_state of task t is a list, .* create the task with extra_state="
        ):
            act()


def test_a_function_sees_what_its_calls_changed_once_it_waited_for_them() -> None:
    state = task()
    assert state.extra_state is not None
    opened = view(state)
    opened["n"] = 7
    opened["names"].append("mine")
    call = CallState("s1-0", "s1", "add", {}, changes=StateChange({"n": 2}, ("names",)))
    state.extra_state.write(StateChange({"n": 2}, ("names",)), Writer(call.id, "s1", ((1,), 0), 10), 12)
    assert (opened["n"], opened["names"]) == (7, ["a", "mine"])
    opened.see(call)
    assert (opened["n"], "names" in opened) == (2, False), "the call came later than what the function wrote"
    opened["n"] += 1
    assert opened.close() == StateChange({"n": 3})


def test_threads_that_read_a_list_first_get_the_same_one() -> None:
    for _ in range(50):
        opened = view()
        with ThreadPoolExecutor(4) as pool:
            reads = [pool.submit(opened.__getitem__, "names") for _ in range(4)]
        for number, read in enumerate(reads):
            read.result().append(number)
        change = opened.close()
        assert change is not None
        assert sorted(change.values["names"][1:]) == [0, 1, 2, 3]
