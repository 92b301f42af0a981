"""What all public verbs have in common: they are called on an instance, with checked arguments, and awaited."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from functools import update_wrapper
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar, cast

from treadle.drivers.arguments import ArgumentChecks
from treadle.errors import MisusedVerb, TreadleError

P = ParamSpec("P")
R = TypeVar("R")


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

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("__", "cr_", "gi_")):  # Python and asyncio look what kind of awaitable it is
            raise AttributeError(name)
        self._coroutine.close()
        raise MisusedVerb(
            f"{self._name}(...) was not awaited, so it has no {name!r}: write `await runner.{self._name}(...)`, "
            f"or `runner.sync.{self._name}(...)` without asyncio"
        )


def verb(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Make an async method a verb: called on the class or used without `await`, it says what to write instead."""
    return cast("Callable[P, Coroutine[Any, Any, R]]", _Verb(function))


def on_instances(function: Callable[P, R]) -> Callable[P, R]:
    """Make a plain method raise an error that says what to write instead when it is called on the class."""
    return cast("Callable[P, R]", _OnInstances(function))


class _OnInstances:
    def __init__(self, function: Callable[..., Any]) -> None:
        self._function, self._checks = function, ArgumentChecks(function)
        update_wrapper(cast("Callable[..., Any]", self), function)

    def __get__(self, instance: Any, owner: type) -> Callable[..., Any]:
        function, checks = self._function, self._checks
        if instance is None:
            return _on_the_class(owner, function)

        def call(*args: Any, **kwargs: Any) -> Any:
            checks.check(args, kwargs)
            return function(instance, *args, **kwargs)

        return call


class _Verb:
    def __init__(self, function: Callable[..., Coroutine[Any, Any, Any]]) -> None:
        self._function, self._checks = function, ArgumentChecks(function)
        update_wrapper(cast("Callable[..., Any]", self), function)

    def __get__(self, instance: Any, owner: type) -> Callable[..., Any]:
        function, checks, name = self._function, self._checks, self._function.__name__
        if instance is None:
            return _on_the_class(owner, function)

        def call(*args: Any, **kwargs: Any) -> Awaited[Any]:
            try:
                checks.check(args, kwargs)
            except TreadleError as refusal:
                return Awaited(_refused(refusal), name)
            return Awaited(function(instance, *args, **kwargs), name)

        return call


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

    return cast("Callable[..., Any]", update_wrapper(call, function))
