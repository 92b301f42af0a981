"""What all public verbs have in common: they are called on an instance, with checked arguments, and awaited."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Coroutine, Generator
from dis import opmap
from functools import update_wrapper, wraps
from types import FrameType, MethodType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, Protocol, TypeVar, cast

from treadle.core.unknown_names import misfit
from treadle.drivers.arguments import ArgumentChecks
from treadle.errors import MisusedVerb, TreadleError, WrongArguments

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Described(Protocol):
    """The called verb or function."""

    __name__: str

    def how(self, *, streams: bool) -> str:
        """Return how it is written; with `streams`, also how its events are seen."""
        ...


class Awaited(Coroutine[Any, Any, R], Generic[R]):
    """The result of a verb that was called: await it. Any other use raises `MisusedVerb` at once.

    Args:
        coroutine: what runs when it is awaited.
        verb: the verb, which knows how it is called.
    """

    __slots__ = ("_coroutine", "_verb")

    def __init__(self, coroutine: Coroutine[Any, Any, R], verb: Described) -> None:
        self._coroutine = coroutine
        self._verb = verb

    def __await__(self) -> Generator[Any, Any, R]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        return self._coroutine.send(value)

    def throw(self, typ: Any, val: Any = None, tb: TracebackType | None = None) -> Any:
        return self._coroutine.throw(typ if val is None else val)

    def close(self) -> None:
        self._coroutine.close()

    def __repr__(self) -> str:
        return f"<{self._verb.__name__}(...), to be awaited>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("__", "cr_", "gi_")):  # Python and asyncio look what kind of awaitable it is
            raise AttributeError(name)
        raise self._misused(f"so it has no {name!r}")

    def __iter__(self) -> Any:
        raise self._misused("so there is nothing to iterate over")

    def __aiter__(self) -> Any:
        raise self._misused("so there is nothing to iterate over")

    if not TYPE_CHECKING:  # type checkers report these uses themselves

        def __getitem__(self, key: Any) -> Any:
            raise self._misused(f"so it has no [{key!r:.80}]")

        def __enter__(self) -> Any:
            raise self._misused("and is no context manager", streams=True)

        __aenter__ = __enter__

        def __exit__(self, *_: object) -> None:
            """Stand beside `__enter__`, which raises: Python looks for both first."""

        __aexit__ = __exit__

    def _misused(self, why: str, *, streams: bool = False) -> MisusedVerb:
        self._coroutine.close()
        verb = self._verb
        return MisusedVerb(f"{verb.__name__}(...) was not awaited, {why}: write {verb.how(streams=streams)}")


_SYNC: Final = {"runner": "runner.sync", "handle": "runner.sync.handle(task)", "client": "client.sync"}
"""What has the same verbs without asyncio."""

_ASYNC: Final = {
    "runner": "runner",
    "client": "client",
    "runner.sync": "runner",
    "runner.sync.handle(task)": "handle",
}
"""The class of the verbs with asyncio, by the class of those without."""

_INSTANCES: Final = {
    "runner": "make a runner first, `Runner()",
    "runner.sync": "make a runner first, `Runner().sync",
    "client": "make a client first, `Client(url)",
    "handle": "make a handle first, `runner.handle(task)",
    "runner.sync.handle(task)": "make a handle first, `runner.sync.handle(task)",
}
"""How to get what has the verbs."""


def called_on(receiver: str) -> Callable[[type[T]], type[T]]:
    """Make a class decorator: all public methods explain wrong arguments, and async ones are verbs.

    They are the methods of an object that passes their arguments on to a runner, which checks the values.

    Args:
        receiver: how messages call an instance, such as `handle`.
    """

    def decorate(cls: type[T]) -> type[T]:
        for name, member in list(vars(cls).items()):
            if isinstance(member, _Method):
                member.receiver = receiver
            elif not name.startswith("_") and inspect.isfunction(member):
                made = _Verb if inspect.iscoroutinefunction(member) else _Method
                setattr(cls, name, made(member, receiver))
        return cls

    return decorate


def awaited(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Make an async function one that says so when it is used without `await`."""
    described = _Function(function.__name__)

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> Awaited[R]:
        return Awaited(function(*args, **kwargs), described)

    return called


class _Function:
    """A function that is awaited, as `Awaited` describes it."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def how(self, *, streams: bool) -> str:
        return f"`await {self.__name__}(...)`"


def verb(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Make an async method a verb: called on the class or used without `await`, it says what to write instead."""
    return cast("Callable[P, Coroutine[Any, Any, R]]", _Verb(function))


def on_instances(function: Callable[P, R]) -> Callable[P, R]:
    """Make a plain method raise an error that says what to write instead when it is called on the class."""
    return cast("Callable[P, R]", _Method(function))


_OF_SCOPE: Final = frozenset(("by", "options"))
"""The keyword arguments that the scope of a runner has a say in; see `runner.scope`."""


class _Method:
    """A function as Python and its tools see one, bound to its instance when it is taken from one.

    It has what `inspect` asks a function for, its code among it. So a bound verb is a method that shows the signature,
    the docstring and the source of its function, and a coroutine function if that is one.
    """

    __name__: str

    def __init__(self, function: Callable[..., Any], receiver: str = "runner") -> None:
        self.receiver = receiver
        self._function = function
        self._returns_plainly = receiver.startswith("runner.sync") or function.__name__ == "run_sync"
        self._checks = ArgumentChecks(function) if receiver == "runner" else None
        code = function.__code__
        keywords = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
        is_in_scope = (
            receiver == "runner" and "tenant" not in keywords
        )  # what takes a tenant makes a scope itself
        defaults = function.__kwdefaults__ or {}
        of_scope = [name for name in keywords if name in _OF_SCOPE and defaults.get(name, "") is None]
        self._of_scope = frozenset(of_scope if is_in_scope else ())  # `usage(by="day")` has another meaning
        update_wrapper(cast("Callable[..., Any]", self), function)
        self.__code__ = code
        self.__defaults__ = function.__defaults__
        self.__kwdefaults__ = function.__kwdefaults__

    def __get__(self, instance: Any, owner: type) -> Callable[..., Any]:
        if instance is not None:
            return MethodType(self, instance)
        return _on_the_class(owner, self._function, self.receiver)

    def __call__(self, instance: Any, /, *args: Any, **kwargs: Any) -> Any:
        if self._checks is not None:
            self._checks.check(args, kwargs)
        if self._returns_plainly and _is_awaited(sys._getframe(1)):  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
            name = {"close": "aclose"}.get(self.__name__, self.__name__.removesuffix("_sync"))
            raise MisusedVerb(
                f"{self.receiver}.{self.__name__}(...) is not awaited, it waits itself: remove `await`, "
                f"or write `await {_ASYNC[self.receiver]}.{name}(...)`"
            )
        if self._of_scope and instance.scope is not None:
            kwargs = instance.scope.stamped(self.__name__, self._of_scope, args, kwargs)
        try:
            return self._function(instance, *args, **kwargs)
        except TypeError:
            if (problem := self._misfit(args, kwargs)) is not None:
                raise problem from None
            raise

    def _misfit(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> WrongArguments | None:
        name = self.__name__
        return misfit(name, self._function, args, kwargs, f"{self.receiver}.{name}")


class _Verb(_Method):
    def how(self, *, streams: bool) -> str:
        name, receiver = self.__name__, self.receiver
        stream = {"run": "run_stream", "run_step": "stream_step"}.get(name) if streams else None
        return f"`await {receiver}.{name}(...)`, or `{_SYNC[receiver]}.{name}(...)` without asyncio" + (
            f"; to see its events, `async with {receiver}.{stream}(...) as stream`" if stream else ""
        )

    def __call__(self, instance: Any, /, *args: Any, **kwargs: Any) -> Awaited[Any]:
        try:
            if self._checks is not None:
                self._checks.check(args, kwargs)
            if self._of_scope and instance.scope is not None:
                kwargs = instance.scope.stamped(self.__name__, self._of_scope, args, kwargs)
        except TreadleError as refusal:
            return Awaited(_refused(refusal), self)
        try:
            return Awaited(self._function(instance, *args, **kwargs), self)
        except TypeError:  # of the call: what it runs begins when it is awaited
            if (problem := self._misfit(args, kwargs)) is not None:
                raise problem from None
            raise


_AWAIT: Final = opmap["GET_AWAITABLE"]
_CACHE: Final = opmap.get("CACHE", 0)
"""The caches that CPython keeps after an instruction."""


def _is_awaited(frame: FrameType) -> bool:
    """Whether the code of a frame awaits the result of the call that it is in."""
    code, position = frame.f_code.co_code, frame.f_lasti + 2
    while position < len(code) and code[position] == _CACHE:
        position += 2
    return position < len(code) and code[position] == _AWAIT


async def _refused(refusal: TreadleError) -> Any:
    raise refusal


def _on_the_class(owner: type, function: Callable[..., Any], receiver: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], owner):
            return function(*args, **kwargs)
        raise MisusedVerb(
            f"{owner.__name__}.{function.__name__} was called on the class: "
            f"{_INSTANCES[receiver]}.{function.__name__}(...)`"
        )

    if sys.version_info >= (3, 12) and inspect.iscoroutinefunction(function):
        call = inspect.markcoroutinefunction(call)
    return cast("Callable[..., Any]", update_wrapper(call, function))


_REFERENCE: Final = re.compile(r"See `(\w+)\.(\w+)`(?:\.|;\s+)?")


_TASK: Final = re.compile(r"    task: the task, or its id[.;].*\n")


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
                text = _TASK.sub("", text)
            text = f"{text}\n\n{remark[0].upper()}{remark[1:]}" if remark else text
            described.__doc__ = text
            if isinstance(member, property):
                member.__doc__ = text
        return cls

    return document
