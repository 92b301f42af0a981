"""The faces of the verbs on one task: a line for each verb and face, typed by the verb; see `verbs`.

`RunHandle`, `SyncHandle` and `SyncRunner` derive from the classes here, and add the methods that are written by hand.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

from treadle.ports import OutputT, OutputT_co
from treadle.results.pages import Page
from treadle.results.read_results import Lineage
from treadle.results.run_result import RunResult
from treadle.runner.background import BackgroundVerbs
from treadle.runner.bridge import BRIDGE, one_by_one
from treadle.runner.history import HistoryVerbs
from treadle.runner.run_and_resume import RunVerbs
from treadle.runner.undo_fork import UndoForkVerbs
from treadle.runner.verbs import face
from treadle.runner.views import Ref

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class TaskVerbs(RunVerbs, BackgroundVerbs, UndoForkVerbs, HistoryVerbs):
    """The verbs on one task."""


def of_task(
    verb: Callable[Concatenate[Any, Ref[T], P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[HandleVerbs[T], P], Coroutine[Any, Any, R]]:
    """Return the method of a handle that calls a verb on the handle's task; see `verbs`."""
    function: Callable[..., Any] = inspect.unwrap(verb)
    name = function.__name__

    def call(handle: HandleVerbs[Any], /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        function(handle, handle.task_id, *args, **kwargs).close()
        return getattr(handle._runner, name)(handle.task_id, *args, **kwargs)  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001  its own

    return face("handle", call, function, knows_task=True)


def of_task_with_agent(
    verb: Callable[Concatenate[Any, Any, P], Coroutine[Any, Any, RunResult[Any]]],
) -> Callable[Concatenate[HandleVerbs[OutputT], P], Coroutine[Any, Any, RunResult[OutputT]]]:
    """Return the same for a verb that may get an agent with any output type: that of the handle stays."""
    return of_task(cast("Any", verb))


def blocking(
    verb: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Any, P], R]:
    """Return the method that waits for a verb of the wrapped object; see `verbs`."""
    return waiting("runner.sync", verb)


def blocking_of_task(
    verb: Callable[Concatenate[Any, Ref[T], P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[SyncHandleVerbs[T], P], R]:
    """Return the method that waits for a verb on the task of a handle."""
    return waiting("runner.sync.handle(task)", verb, knows_task=True)


def blocking_of_task_with_agent(
    verb: Callable[Concatenate[Any, Any, P], Coroutine[Any, Any, RunResult[Any]]],
) -> Callable[Concatenate[SyncHandleVerbs[OutputT], P], RunResult[OutputT]]:
    """Return the same for a verb that may get an agent with any output type: that of the handle stays."""
    return blocking_of_task(cast("Any", verb))


def waiting(
    receiver: str,
    verb: Callable[..., Any],
    made: Callable[[Any], Any] = lambda result: result,
    **differences: Any,
) -> Any:
    """Return the method that waits for a verb and converts its result.

    The other arguments are those of `verbs.face`.
    """
    function: Callable[..., Any] = inspect.unwrap(verb)
    name, known = function.__name__, ("the task",) if "knows_task" in differences else ()

    def call(instance: Any, /, *args: Any, **kwargs: Any) -> Any:
        function(instance, *known, *args, **kwargs).close()
        return made(_waited(getattr(instance._inner, name)(*args, **kwargs)))  # noqa: SLF001  that of a class here

    return face(receiver, call, function, **differences)


def _waited(work: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of a verb; a plain `for` over a page then iterates over all pages."""
    result: object = BRIDGE.run(work)
    if isinstance(result, Page):
        cast("Page[Any, Any]", result).followed_by(waits=one_by_one)
    elif isinstance(result, Lineage):
        result.children.followed_by(waits=one_by_one)
        result.forks.followed_by(waits=one_by_one)
    return cast("Any", result)


class HandleVerbs(Generic[OutputT_co]):
    """The verbs of the runner on a handle's task."""

    task_id: str
    _runner: TaskVerbs

    get_events = of_task(TaskVerbs.get_events)
    get_steps = of_task(TaskVerbs.get_steps)
    get_request = of_task(TaskVerbs.get_request)
    get_lineage = of_task(TaskVerbs.get_lineage)
    get_artifact = of_task(TaskVerbs.get_artifact)
    pause = of_task(TaskVerbs.pause)
    resume = of_task_with_agent(TaskVerbs.resume)
    interrupt = of_task(TaskVerbs.interrupt)
    cancel = of_task(TaskVerbs.cancel)
    send = of_task(TaskVerbs.send)
    settle = of_task(TaskVerbs.settle)
    approve = of_task(TaskVerbs.approve)
    deny = of_task(TaskVerbs.deny)
    answer = of_task(TaskVerbs.answer)
    undo_step = of_task(TaskVerbs.undo_step)
    fork = of_task(TaskVerbs.fork)


class SyncHandleVerbs(Generic[OutputT_co]):
    """The verbs of the runner on a handle's task, without asyncio."""

    get_events = blocking_of_task(TaskVerbs.get_events)
    get_steps = blocking_of_task(TaskVerbs.get_steps)
    get_request = blocking_of_task(TaskVerbs.get_request)
    get_lineage = blocking_of_task(TaskVerbs.get_lineage)
    get_artifact = blocking_of_task(TaskVerbs.get_artifact)
    pause = blocking_of_task(TaskVerbs.pause)
    resume = blocking_of_task_with_agent(TaskVerbs.resume)
    interrupt = blocking_of_task(TaskVerbs.interrupt)
    cancel = blocking_of_task(TaskVerbs.cancel)
    send = blocking_of_task(TaskVerbs.send)
    settle = blocking_of_task(TaskVerbs.settle)
    approve = blocking_of_task(TaskVerbs.approve)
    deny = blocking_of_task(TaskVerbs.deny)
    answer = blocking_of_task(TaskVerbs.answer)
    undo_step = blocking_of_task(TaskVerbs.undo_step)
    fork = blocking_of_task(TaskVerbs.fork)


class SyncTaskVerbs:
    """The verbs of `runner.sync` on one task."""

    resume = blocking(TaskVerbs.resume)
    result = blocking(TaskVerbs.result)
    run_step = blocking(TaskVerbs.run_step)
    run_ready_steps = blocking(TaskVerbs.run_ready_steps)
    finalize = blocking(TaskVerbs.finalize)
    get_task = blocking(TaskVerbs.get_task)
    get_request = blocking(TaskVerbs.get_request)
    get_lineage = blocking(TaskVerbs.get_lineage)
    get_upcoming_steps = blocking(TaskVerbs.get_upcoming_steps)
    get_completed_steps = blocking(TaskVerbs.get_completed_steps)
    get_step = blocking(TaskVerbs.get_step)
    get_events = blocking(TaskVerbs.get_events)
    get_steps = blocking(TaskVerbs.get_steps)
    get_artifact = blocking(TaskVerbs.get_artifact)
    delete_task = blocking(TaskVerbs.delete_task)
    send = blocking(TaskVerbs.send)
    edit_step = blocking(TaskVerbs.edit_step)
    edit_call = blocking(TaskVerbs.edit_call)
    skip_step = blocking(TaskVerbs.skip_step)
    pause = blocking(TaskVerbs.pause)
    interrupt = blocking(TaskVerbs.interrupt)
    cancel = blocking(TaskVerbs.cancel)
    settle = blocking(TaskVerbs.settle)
    list_pending = blocking(TaskVerbs.list_pending)
    approve = blocking(TaskVerbs.approve)
    deny = blocking(TaskVerbs.deny)
    answer = blocking(TaskVerbs.answer)
    complete = blocking(TaskVerbs.complete)
    fail = blocking(TaskVerbs.fail)
    progress = blocking(TaskVerbs.progress)
    undo_step = blocking(TaskVerbs.undo_step)
