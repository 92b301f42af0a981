"""What all public verbs have in common: they are called on an instance, with checked arguments, and awaited."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Coroutine, Generator
from functools import update_wrapper
from types import MethodType, TracebackType
from typing import Any, Final, Generic, ParamSpec, TypeVar, cast

from treadle.drivers.arguments import ArgumentChecks
from treadle.errors import MisusedVerb, TreadleError

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Awaited(Coroutine[Any, Any, R], Generic[R]):
    """The result of a verb that was called: await it. Any other use raises `MisusedVerb` at once."""

    __slots__ = ("_coroutine", "_name")

    def __init__(self, coroutine: Coroutine[Any, Any, R], name: str) -> None:
        self._coroutine = coroutine
        self._name = name

    def __await__(self) -> Generator[Any, Any, R]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        return self._coroutine.send(value)

    def throw(self, typ: Any, val: Any = None, tb: TracebackType | None = None) -> Any:
        return self._coroutine.throw(typ if val is None else val)

    def close(self) -> None:
        self._coroutine.close()

    def __repr__(self) -> str:
        return f"<{self._name}(...), to be awaited>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("__", "cr_", "gi_")):  # Python and asyncio look what kind of awaitable it is
            raise AttributeError(name)
        raise self._misused(f"so it has no {name!r}")

    def __iter__(self) -> Any:
        raise self._misused("so there is nothing to iterate over")

    def __aiter__(self) -> Any:
        raise self._misused("so there is nothing to iterate over")

    def _misused(self, why: str) -> MisusedVerb:
        self._coroutine.close()
        return MisusedVerb(
            f"{self._name}(...) was not awaited, {why}: write `await runner.{self._name}(...)`, "
            f"or `runner.sync.{self._name}(...)` without asyncio"
        )


def verb(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Make an async method a verb: called on the class or used without `await`, it says what to write instead."""
    return cast("Callable[P, Coroutine[Any, Any, R]]", _Verb(function))


def on_instances(function: Callable[P, R]) -> Callable[P, R]:
    """Make a plain method raise an error that says what to write instead when it is called on the class."""
    return cast("Callable[P, R]", _Method(function))


class _Method:
    """A function as Python and its tools see one, bound to its instance when it is taken from one.

    It has what `inspect` asks a function for, its code among it. So a bound verb is a method that shows the signature,
    the docstring and the source of its function, and a coroutine function if that is one.
    """

    __name__: str

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function, self._checks = function, ArgumentChecks(function)
        update_wrapper(cast("Callable[..., Any]", self), function)
        self.__code__ = function.__code__
        self.__defaults__ = function.__defaults__
        self.__kwdefaults__ = function.__kwdefaults__

    def __get__(self, instance: Any, owner: type) -> Callable[..., Any]:
        return _on_the_class(owner, self._function) if instance is None else MethodType(self, instance)

    def __call__(self, instance: Any, /, *args: Any, **kwargs: Any) -> Any:
        self._checks.check(args, kwargs)
        return self._function(instance, *args, **kwargs)


class _Verb(_Method):
    def __call__(self, instance: Any, /, *args: Any, **kwargs: Any) -> Awaited[Any]:
        try:
            self._checks.check(args, kwargs)
        except TreadleError as refusal:
            return Awaited(_refused(refusal), self.__name__)
        return Awaited(self._function(instance, *args, **kwargs), self.__name__)


async def _refused(refusal: TreadleError) -> Any:
    raise refusal


def _on_the_class(owner: type, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], owner):
            return function(*args, **kwargs)
        raise MisusedVerb(
            f"{owner.__name__}.{function.__name__} was called on the class: make a runner first, "
            f"`{owner.__name__}().{function.__name__}(...)`"
        )

    if sys.version_info >= (3, 12) and inspect.iscoroutinefunction(function):
        call = inspect.markcoroutinefunction(call)
    return cast("Callable[..., Any]", update_wrapper(call, function))


_REFERENCE: Final = re.compile(r"See `(\w+)\.(\w+)`(?:\.|;\s+)?")


def documented_by(**sources: type) -> Callable[[type[T]], type[T]]:
    """Make a class decorator that replaces each docstring "See `X.name`." by that of the method it names.

    What follows the reference stays, as the last paragraph. The argument `task` is left out where a method has none.

    Args:
        **sources: the classes by the names that references use.
    """

    def document(cls: type[T]) -> type[T]:
        for member in vars(cls).values():
            described: Any = member.fget if isinstance(member, property) else member
            reference = _REFERENCE.match(getattr(described, "__doc__", None) or "")
            if reference is None:
                continue
            remark = (described.__doc__ or "")[reference.end() :].strip()
            text = inspect.cleandoc(getattr(sources[reference[1]], reference[2]).__doc__ or "")
            if "task" not in inspect.unwrap(described).__code__.co_varnames:
                text = text.replace("    task: the task, or its id.\n", "")
            text = f"{text}\n\n{remark[0].upper()}{remark[1:]}" if remark else text
            described.__doc__ = text
            if isinstance(member, property):
                member.__doc__ = text
        return cls

    return document
