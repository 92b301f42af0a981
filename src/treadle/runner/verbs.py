"""Public verbs: called on an instance, with checked arguments, and awaited.

Theory of operation. A verb is written once, as an async method of the runner: its signature, its docstring, its checks.
The other faces derive from it, one line a verb:

    face                                 defined as                                      a call
    runner.cancel(task, by=)             @verb async def cancel(...)                     runs the method
    handle.cancel(by=)                   cancel = of_task(TaskVerbs.cancel)              runner.cancel(task_id, by=)
    runner.sync.cancel(task, by=)        cancel = blocking(TaskVerbs.cancel)             waits for runner.cancel
    runner.sync.handle(task).cancel(by=) cancel = blocking_of_task(TaskVerbs.cancel)     waits for handle.cancel
    client.cancel(task, by=)             made by `client.client`                         sends a request

- Types: each function that derives is typed with `Concatenate` and a `ParamSpec`. So a type checker and an editor see
  the parameters, the overloads and the output type of the verb. The lines of the verbs on one task are in `faces`,
  those of all others in `sync`.
- At run time it returns a method made by `face`, which has the metadata of the verb and calls another function. The
  signature without `task` is made when it is first used, not on import.
- A call first binds its arguments to the function of the verb. That function is async, so calling it runs nothing, and
  Python raises TypeError for arguments that do not fit. The error then names this face, before any value is checked.
- The verb is looked up by its name at each call. So the handle and the synchronous face of a client send requests. A
  method that a test or a user's class replaces is called.

Invariant: a face has the parameters, defaults and docstring of its verb, without the task that a handle implies.

Some methods are written by hand.
- Handles: streams, and `result`, `list_pending`, `complete`, `fail` and `progress`, which take a part of the arguments.
- `runner.sync`: `fork`, since pyright does not derive its overloads; `close`, named `aclose` elsewhere; and the methods
  that are not async.
"""

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
        """Return the code that calls it; with `streams`, also the code that streams its events."""
        ...


class Awaited(Coroutine[Any, Any, R], Generic[R]):
    """The awaitable result of a verb. Any other use raises `MisusedVerb` at once.

    Args:
        coroutine: runs when it is awaited.
        verb: the verb, for messages.
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
        if name.startswith(("__", "cr_", "gi_")):  # Python and asyncio check the kind of awaitable
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
            """Exist, since Python looks for both methods before it calls `__enter__`, which raises."""

        __aexit__ = __exit__

    def _misused(self, why: str, *, streams: bool = False) -> MisusedVerb:
        self._coroutine.close()
        verb = self._verb
        return MisusedVerb(f"{verb.__name__}(...) was not awaited, {why}: write {verb.how(streams=streams)}")


_SYNC: Final = {"runner": "runner.sync", "handle": "runner.sync.handle(task)", "client": "client.sync"}
"""The object that has the same verbs without asyncio."""

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
"""The code that makes an object with the verbs."""


def called_on(receiver: str) -> Callable[[type[T]], type[T]]:
    """Return a class decorator: all public methods explain wrong arguments, and async ones become verbs.

    It is for objects that pass their arguments on to a runner, which checks the values.

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
    """Make an async function explain a use without `await`."""
    described = _Function(function.__name__)

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> Awaited[R]:
        return Awaited(function(*args, **kwargs), described)

    return called


class _Function:
    """An async function, described for the messages of `Awaited`."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def how(self, *, streams: bool) -> str:
        return f"`await {self.__name__}(...)`"


def verb(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Make an async method a verb: on the class or without `await`, it raises an error with the correct code."""
    return cast("Callable[P, Coroutine[Any, Any, R]]", _Verb(function))


def on_instances(function: Callable[P, R]) -> Callable[P, R]:
    """Make a plain method that is called on the class raise an error with the correct code."""
    return cast("Callable[P, R]", _Method(function))


_OF_SCOPE: Final = frozenset(("by", "options"))
"""The keyword arguments that the scope of a runner sets or bounds; see `runner.scope`."""


class _Method:
    """A callable that Python and its tools treat as a function, bound to its instance on access.

    It has all attributes that `inspect` reads, its code among them. So a bound verb is a method with the signature,
    the docstring and the source of its function. If that is a coroutine function, so is the verb.
    """

    __name__: str
    __wrapped__: Callable[..., Any]

    def __init__(
        self,
        function: Callable[..., Any],
        receiver: str = "runner",
        verb: Callable[..., Any] | None = None,
        *,
        knows_task: bool = False,
        returns: str = "",
        remark: str = "",
    ) -> None:
        self.receiver = receiver
        self._function = function
        self._knows_task, self._returns = knows_task, returns
        self._returns_plainly = receiver.startswith("runner.sync") or function.__name__ == "run_sync"
        self._checks = ArgumentChecks(function) if receiver == "runner" else None
        code = function.__code__
        keywords = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
        is_in_scope = (
            receiver == "runner" and "tenant" not in keywords
        )  # a verb that takes a tenant makes a scope itself
        defaults = function.__kwdefaults__ or {}
        of_scope = [name for name in keywords if name in _OF_SCOPE and defaults.get(name, "") is None]
        self._of_scope = frozenset(of_scope if is_in_scope else ())  # `usage(by="day")` has another meaning
        shown = function if verb is None else verb
        update_wrapper(cast("Callable[..., Any]", self), shown)
        self.__code__ = code if self._returns_plainly else shown.__code__
        self.__defaults__ = shown.__defaults__
        self.__kwdefaults__ = shown.__kwdefaults__
        if knows_task:
            self.__doc__ = _TASK.sub("", shown.__doc__ or "")
        if remark:
            self.__doc__ = f"{inspect.cleandoc(shown.__doc__ or '')}\n\n{remark}"

    def __set_name__(self, owner: type, name: str) -> None:
        self.__module__, self.__qualname__ = owner.__module__, f"{owner.__qualname__}.{name}"

    def __get__(self, instance: Any, owner: type) -> Callable[..., Any]:
        if instance is not None:
            return MethodType(self, instance)
        return _on_the_class(owner, self, self._function)

    @property
    def __signature__(self) -> inspect.Signature:
        """Differs from the function's where a handle supplies the task and its output type."""
        if not self._knows_task and not self._returns:
            raise AttributeError("__signature__")
        verb = inspect.signature(self.__wrapped__)
        parameters, returns = list(verb.parameters.values()), self._returns or verb.return_annotation
        if self._knows_task:
            instance, _, *others = parameters
            others = [
                each.replace(annotation=each.annotation.replace(", OutputT]", ", Any]")) for each in others
            ]
            parameters, returns = [instance, *others], returns.replace("OutputT]", "OutputT_co]")
        return inspect.Signature(parameters, return_annotation=returns)

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
        return misfit(name, self, args, kwargs, f"{self.receiver}.{name}")


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
        except TypeError:  # of the call, since the coroutine begins only when it is awaited
            if (problem := self._misfit(args, kwargs)) is not None:
                raise problem from None
            raise


def face(receiver: str, call: Callable[..., Any], verb: Callable[..., Any], **differences: Any) -> Any:
    """Return a method with the signature and the docstring of a verb that calls another function.

    Args:
        receiver: how messages call an instance, such as `handle`; methods of `runner.sync` are not async.
        call: the function.
        verb: the function of the verb, undecorated.
        **differences: `knows_task` if instances supply the task, so that the method has no argument `task`; `returns`,
            another return type; `remark`, a last paragraph of the docstring.
    """
    made = _Method if receiver.startswith("runner.sync") else _Verb
    return made(call, receiver, verb, **differences)


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


def _on_the_class(owner: type, method: _Method, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], owner):
            return function(*args, **kwargs)
        raise MisusedVerb(
            f"{owner.__name__}.{method.__name__} was called on the class: "
            f"{_INSTANCES[method.receiver]}.{method.__name__}(...)`"
        )

    if sys.version_info >= (3, 12) and inspect.iscoroutinefunction(method):
        call = inspect.markcoroutinefunction(call)
    return cast("Callable[..., Any]", update_wrapper(call, cast("Callable[..., Any]", method), updated=()))


_REFERENCE: Final = re.compile(r"See `(\w+)\.(\w+)`(?:\.|;\s+)?")
_TASK: Final = re.compile(r"^ *task: the task, or its id[.;].*\n", re.MULTILINE)


def documented_by(**sources: type) -> Callable[[type[T]], type[T]]:
    """Return a class decorator that replaces each docstring "See `X.name`." by that of the named method.

    Text after the reference becomes the last paragraph. The argument `task` is left out if a method has none.

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
