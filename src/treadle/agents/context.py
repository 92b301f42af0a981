"""The arguments of user functions outside a step: `RunContext` and `RequestContext`.

Functions of a step get a `StepContext` (`workers/step_context.py`), nodes of a pipeline a `NodeContext`
(`workers/node.py`).

Also the type of context that a function names, as in `ToolContext[Session]`, and the check of an object against it.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import field
from typing import Any, Generic, cast

from treadle.core.data import frozen
from treadle.core.messages import Content, Json, Message
from treadle.core.state import TaskState
from treadle.core.state_view import StateAccess, StateView
from treadle.core.unknown_names import explains_names
from treadle.ports import ContextT_co, Tool


@frozen
class ContextNeed:
    """The required type of a context; `source` names the part that requires it, such as `its tool 'whoami'`."""

    source: str
    type: Any


def named_type(hint: Any, kind: type[Any]) -> Any:
    """Return X of an annotation `kind[X]`, which may be optional or annotated; None if it names no type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is kind:
        return arguments[0] if is_checkable(arguments[0]) else None
    if origin in (typing.Annotated, typing.Union, types.UnionType):
        return next((named for each in arguments if (named := named_type(each, kind)) is not None), None)
    return None


def type_named_by(function: Callable[..., Any], kind: type[Any]) -> Any:
    """Return X of a function's parameter `kind[X]`; None without one, or if its name cannot be looked up."""
    target: Any = inspect.unwrap(function)
    if not inspect.isroutine(target):
        target = getattr(cast("Any", type(target)), "__call__", None)  # noqa: B004
    written = getattr(target, "__annotations__", {})
    for annotation in written.values():
        if kind.__name__ not in str(annotation):
            continue
        try:
            holder = types.SimpleNamespace(__annotations__={"it": annotation})
            names = getattr(target, "__globals__", {})
            hint = typing.get_type_hints(holder, names, _free_names(target), include_extras=True)["it"]
        except Exception:  # noqa: BLE001, S112  a name that exists for type checkers only
            continue
        if (named := named_type(hint, kind)) is not None:
            return named
    return None


def _free_names(target: Any) -> dict[str, Any]:
    code, cells = getattr(target, "__code__", None), getattr(target, "__closure__", None) or ()
    names: dict[str, Any] = {}
    for name, cell in zip(code.co_freevars if code else (), cells, strict=False):
        try:
            names[name] = cell.cell_contents
        except ValueError:
            continue  # not assigned yet
    return names


def is_type(value: Any) -> bool:
    """Whether a value can be the type of a context: a class, a generic, a union or a `NewType`."""
    return isinstance(value, type) or typing.get_origin(value) is not None or hasattr(value, "__supertype__")


def is_checkable(expected: Any) -> bool:
    """Whether some object other than None does not fit a type, and None does not either."""
    return not fits(None, expected) and not fits(_Other(), expected)


class _Other:
    """A class that no user names."""


def fits(context: Any, expected: Any) -> bool:
    """Whether a context may be of a type; True for types without a run-time check."""
    if type(context) is expected:
        return True  # the usual case, in every run
    origin = typing.get_origin(expected)
    if origin in (typing.Union, types.UnionType):
        return any(fits(context, member) for member in typing.get_args(expected))
    if origin is typing.Annotated:
        return fits(context, typing.get_args(expected)[0])
    if expected is None:
        return context is None
    supertype = getattr(expected, "__supertype__", None)
    if supertype is not None:  # a NewType
        return fits(context, supertype)
    cls: Any = origin or expected
    if not isinstance(cls, type) or typing.is_typeddict(cls):
        return not typing.is_typeddict(cls) or isinstance(context, Mapping)
    if cls in _NUMBERS and isinstance(context, _NUMBERS[cls]):
        return True  # as for type checkers
    try:
        return isinstance(context, cls)
    except TypeError:  # a protocol that is not `runtime_checkable`
        return True


_NUMBERS: dict[Any, tuple[type, ...]] = {float: (int,), complex: (int, float)}


def type_name(expected: Any) -> str:
    """Return a type as an error shows it."""
    if isinstance(expected, type) and typing.get_origin(expected) is None:
        return expected.__qualname__.rpartition("<locals>.")[2]
    return str(expected)


@explains_names("RunContext")
@frozen
class RunContext(Generic[ContextT_co]):
    """A task, as an instructions function sees it. The function is called once per task, before its first request.

    `state` is the task's `extra_state`. Instructions may change it; other functions may only read it.
    """

    task_id: str
    thread_id: str
    input: tuple[Content, ...]
    context: ContextT_co
    state: MutableMapping[str, Json] = field(default_factory=dict[str, Json], kw_only=True, compare=False)


def read_only(state: TaskState) -> StateView:
    """Return a task's current `extra_state`, for a function that may not change it."""
    refusal = "tools, steps and instructions may change it"
    return StateView(StateAccess(state, state.seq, "worker or offer=", refusal=refusal))


@frozen
class RequestContext(RunContext[ContextT_co]):
    """A request, as the function that selects its tools sees it. The function is called once for each request.

    Args:
        step: the number of the step that makes the request, from 1.
        messages: the conversation so far with the thread's messages; shared with the task, not copied.
        tools: all tools of the agent, in its order.
    """

    step: int
    messages: Sequence[Message]
    tools: tuple[Tool, ...]
