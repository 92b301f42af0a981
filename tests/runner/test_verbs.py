"""Verbs: called on the class, or used without `await`, they say what to write instead."""

import asyncio
import inspect
import pydoc
from typing import Any

import pytest

from treadle import Runner
from treadle.errors import ConfigurationError, MisusedVerb
from treadle.runner.sync import SyncHandle
from treadle.runner.verbs import on_instances, verb

pytestmark = pytest.mark.anyio


class Counter:
    """A class with one verb and one plain method."""

    def __init__(self) -> None:
        self.total = 0

    @verb
    async def add(self, number: int, *, times: int = 1) -> int:
        """Add a number."""
        await asyncio.sleep(0)
        self.total += number * times
        return self.total

    @verb
    async def forget(self, task_id: str) -> None:
        """Take the id of a task, which every verb checks."""
        self.total = 0

    @on_instances
    def name_of(self, task_id: str) -> str:
        """Return a name of a task, whose id every verb checks."""
        return f"task {task_id}"

    @on_instances
    def double(self, number: int) -> int:
        """Double a number."""
        return 2 * number


async def test_a_verb_is_awaited_and_runs_once() -> None:
    counter = Counter()
    assert await counter.add(2, times=3) == 6
    assert await asyncio.create_task(counter.add(1)) == 7
    assert (counter.total, counter.double(4)) == (7, 8)


async def test_a_verb_runs_only_once_it_is_awaited() -> None:
    counter = Counter()
    adding = counter.add(2)
    assert counter.total == 0
    await adding
    assert counter.total == 2


def test_the_result_of_a_verb_that_was_not_awaited_has_no_attributes() -> None:
    counter = Counter()
    with pytest.raises(MisusedVerb, match=r"await runner\.add\(\.\.\.\).*runner\.sync\.add"):
        counter.add(2).total  # type: ignore[attr-defined]  # noqa: B018


async def test_a_wrong_argument_is_raised_where_the_verb_is_awaited() -> None:
    counter = Counter()
    await counter.add(2)
    refused = counter.forget("")
    with pytest.raises(ConfigurationError, match="forget: task_id must be text"):
        await refused
    assert counter.total == 2


def test_a_wrong_argument_of_a_plain_method_is_raised_at_once() -> None:
    assert Counter().name_of("t") == "task t"
    with pytest.raises(ConfigurationError, match="name_of: task_id must be text"):
        Counter().name_of("")


@pytest.mark.parametrize("name", ["add", "double"])
def test_a_verb_called_on_the_class_says_to_make_a_runner_first(name: str) -> None:
    with pytest.raises(MisusedVerb, match=rf"Counter\.{name} was called on the class"):
        getattr(Counter, name)(2)


async def test_a_verb_called_on_the_class_with_an_instance_is_the_function() -> None:
    add: Any = Counter.add
    assert (Counter.double(Counter(), 4), await add(Counter(), 3)) == (8, 3)


# ---------------------------------------------------------------------- what a REPL and an IDE are shown


INTERNAL = {"desk", "driver", "hold", "enter", "at_rest", "stopped", "typed_of", "drive_with"}
NOT_ASYNC = {
    "changes",
    *("begin_adopting", "events", "handle", "log_filter", "middleware_of", "partials"),
    *("run_stream", "run_sync", "scoped", "set_policy", "stream_step"),
}


def public_objects() -> dict[str, Any]:
    runner = Runner("memory:")
    handle = runner.handle("t")
    return {
        "runner": runner,
        "runner.sync": runner.sync,
        "handle": handle,
        "runner.sync.handle": SyncHandle(handle),
    }


def public_methods(where: str) -> list[tuple[str, Any]]:
    each = public_objects()[where]
    names = [name for name in dir(each) if not name.startswith("_") and name != "sync"]
    return [(name, method) for name in names if callable(method := getattr(each, name))]


@pytest.mark.parametrize("where", public_objects())
def test_a_public_verb_shows_its_signature_its_types_and_its_docstring(where: str) -> None:
    for name, method in public_methods(where):
        assert inspect.ismethod(method), name
        assert method.__name__ == name
        shown = inspect.signature(method)
        assert all(parameter.annotation is not parameter.empty for parameter in shown.parameters.values()), (
            name
        )
        assert shown.return_annotation is not shown.empty, name
        assert "how" not in shown.parameters, "keyword arguments are named one by one"
        assert not any(parameter.kind is parameter.VAR_KEYWORD for parameter in shown.parameters.values())
        documentation = inspect.getdoc(method) or ""
        assert len(documentation) > 20, name
        assert not documentation.startswith("See "), "a reader is not sent on"
        assert inspect.iscoroutinefunction(method) == ("sync" not in where and name not in NOT_ASYNC), name
        helped = pydoc.plain(pydoc.render_doc(method))
        assert f"{name}(" in helped
        assert documentation.splitlines()[0] in helped


def test_help_shows_what_run_takes() -> None:
    helped = pydoc.plain(pydoc.render_doc(Runner("memory:").run))
    for shown in ("async run(agent:", "input:", "thread_id: 'str | None' = None", "Args:", "Raises:"):
        assert shown in helped


def test_a_public_object_shows_no_internals() -> None:
    for each in public_objects().values():
        assert INTERNAL.isdisjoint(dir(each))


async def test_iterating_over_a_verb_that_was_not_awaited_says_to_await_it() -> None:
    runner = Runner("memory:")
    with pytest.raises(MisusedVerb, match=r"await runner\.list_tasks\(\.\.\.\)"):
        list(runner.list_tasks())
    with pytest.raises(MisusedVerb, match=r"await runner\.list_tasks\(\.\.\.\)"):
        async for _ in runner.list_tasks():
            pass
