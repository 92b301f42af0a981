"""Errors for names that do not exist: an attribute of an object, or an argument of a call.

Each error names the object that lacks the name. Its advice is the nearest existing name, or the counterpart of another
library's name. The latter are in `foreign_names`, which is loaded with the first error. Lookups happen only after
Python itself has failed to find a name.
"""

from __future__ import annotations

import re
from abc import ABCMeta
from collections.abc import Callable, Iterable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from treadle.errors import UnknownAttribute, WrongArguments

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

MOST_LISTED: Final = 12
"""The most existing names that an error lists."""


_SURE: Final = 0.7
"""The similarity from which on one name is proposed for an unfamiliar one."""


def near_name(name: str, candidates: Iterable[str], alike: float = 0.6) -> str | None:
    """Return the known name that `name` probably misspells, or None if none is similar.

    Args:
        name: the name.
        candidates: the existing names.
        alike: the least similarity of the two names, from 0 to 1.
    """
    from difflib import get_close_matches

    by_folded = {_folded(other): other for other in candidates}
    matches = get_close_matches(_folded(name[:64]), by_folded, n=1, cutoff=alike)
    return by_folded[matches[0]] if matches else None


def _folded(name: str) -> str:
    return name.lower().replace("-", "_")


# ------------------------------------------------------------------------------------------- attributes


def explains_names(label: str, *, subscript: bool = False) -> Callable[[type[T]], type[T]]:
    """Return a class decorator that makes unknown attributes of an instance raise an error with advice.

    It is invisible to type checkers, and does not change `hasattr`, `copy` and `pickle`.

    Args:
        label: the name of an instance in messages, such as `Agent`, and the key of its names in `foreign_names`.
        subscript: whether to explain `result["name"]` too, for classes that other libraries have as dicts.
    """

    def decorate(cls: type[T]) -> type[T]:
        def missing(self: Any, name: str) -> Any:
            if not name.startswith("_") and not any(name in vars(each) for each in type(self).__mro__):
                raise UnknownAttribute(name, lambda: unknown_attribute(label, name, dir(self)))
            return object.__getattribute__(self, name)  # raises the original error: a property's own

        def item(self: Any, key: Any) -> Any:
            if isinstance(key, str) and not key.startswith("_") and hasattr(self, key):
                raise TypeError(f"{label} has attributes, not items: write .{key}")
            from treadle.core.foreign_names import ITEMS

            advice = ITEMS.get(label)
            if advice is None or isinstance(key, str):
                advice = unknown_attribute(label, str(key), dir(self))
            raise TypeError(f"{label} has attributes, not items: {advice}")

        members: Any = cls
        members.__getattr__ = missing
        members._explained_as = label  # noqa: SLF001  it is ours
        if subscript:
            members.__getitem__ = item
        return cls

    return decorate


def refuses_names(label: str, *names: str) -> Callable[[F], F]:
    """Return a decorator that makes these attributes of a function raise an error with advice when called.

    Args:
        label: the function's name in messages, and the key of its names in `foreign_names`.
        names: names of similar functions in other libraries.
    """

    def refuse(name: str) -> Callable[..., Any]:
        def refused(*_: object, **__: object) -> Any:
            raise UnknownAttribute(name, lambda: unknown_attribute(label, name, ()))

        return refused

    def decorate(function: F) -> F:
        for name in names:
            setattr(function, name, refuse(name))
        return function

    return decorate


def refuses_assignment(*own: str) -> Callable[[type[T]], type[T]]:
    """Return a class decorator that makes setting an unknown attribute raise an error with advice.

    Python would store the attribute without a use. For instance, a policy that was set like this would never judge.
    Tests can still replace methods. A user's subclass may set attributes under names that are not explained.

    Args:
        own: the public attributes that instances set themselves.
    """

    def decorate(cls: type[T]) -> type[T]:
        def assign(self: object, name: str, value: Any) -> None:
            if not name.startswith("_") and name not in own and _is_refused(type(self), name):
                raise UnknownAttribute(name, lambda: _unset_attribute(self, name))
            object.__setattr__(self, name, value)

        members: Any = cls
        members.__setattr__ = assign
        return cls

    return decorate


def _is_refused(cls: type[Any], name: str) -> bool:
    for each in cls.__mro__:
        if name in vars(each):
            return isinstance(vars(each)[name], property) and vars(each)[name].fset is None
    return cls.__module__.startswith("treadle.") or _assignment_advice(cls, name) is not None


def _assignment_advice(cls: type[Any], name: str) -> str | None:
    from treadle.core.foreign_names import ASSIGNED

    return ASSIGNED.get(getattr(cls, "_explained_as", ""), {}).get(name)


def _unset_attribute(instance: object, name: str) -> str:
    """Return the error message for an attribute that cannot be set."""
    from inspect import signature

    cls = type(instance)
    label: str = getattr(cls, "_explained_as", cls.__name__)
    advice = _assignment_advice(cls, name)
    if advice is None and name in signature(cls).parameters:
        advice = f"write {cls.__name__}({name}=...)"
    if advice is None and hasattr(cls, name):
        advice = "it can only be read"
    if advice is not None:
        return f"{label}.{name} cannot be set: {advice}"
    return f"{label}.{name} cannot be set: {unknown_attribute(label, name, dir(instance))}"


class ExplainsNames(ABCMeta):
    """The metaclass of classes that `explains_names`. It explains unknown attributes of the class itself, too.

    It is an `ABCMeta`, so that a class can derive from such a class and an abstract one.
    """

    if not TYPE_CHECKING:  # for a type checker, a class with this method has every name

        def __getattr__(cls, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")
            label: str = getattr(cls, "_explained_as", cls.__name__)
            raise UnknownAttribute(name, lambda: unknown_attribute(label, name, dir(cls)))


@explains_names("agent.tools")
class Listed(tuple[T, ...]):
    """A tuple. `append` and other methods of lists raise an error with advice."""

    __slots__ = ()


def unknown_attribute(label: str, name: str, existing: Iterable[str]) -> str:
    """Return the error message for an unknown name.

    Args:
        label: the name of the object, as in `foreign_names`.
        name: the name.
        existing: the names that it has.
    """
    from treadle.core.foreign_names import ATTRIBUTES

    advice = ATTRIBUTES.get(label, {}).get(name)
    return (
        f"{label} has no {name!r}: {advice}"
        if advice
        else f"{label} has no {name!r}{_nearest(name, existing)}"
    )


def _nearest(name: str, existing: Iterable[str]) -> str:
    names = [each for each in existing if not each.startswith("_")]
    suggestion = near_name(name, names, _SURE)
    if suggestion is not None:
        return f"; did you mean {suggestion!r}?"
    more = ", ..." if len(names) > MOST_LISTED else ""
    return f"; it has {', '.join(names[:MOST_LISTED])}{more}" if names else "; it has none"


def unknown_in_module(module: str, name: str, existing: Iterable[str]) -> Exception:
    """Return the error for the `__getattr__` of a module, in an import statement or elsewhere.

    Args:
        module: the module.
        name: the name that it does not have.
        existing: the names that it has.
    """
    import sys
    from dis import opname

    if name.startswith("_"):
        return AttributeError(f"module {module!r} has no attribute {name!r}")
    # An import statement would replace the message of an AttributeError by its own.
    frame = sys._getframe(2)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    if opname[frame.f_code.co_code[frame.f_lasti]] == "IMPORT_FROM":
        return ImportError(_unknown_public(module, name, existing), name=module)
    return UnknownAttribute(name, lambda: _unknown_public(module, name, existing))


def _unknown_public(module: str, name: str, existing: Iterable[str]) -> str:
    """Return the error message for an unknown name of a module. Another public module may have it."""
    from importlib import import_module

    from treadle.core.foreign_names import ATTRIBUTES, PUBLIC_MODULES

    if advice := ATTRIBUTES.get(module, {}).get(name) or ATTRIBUTES["treadle"].get(name):
        return f"{module} has no {name!r}: {advice}"
    for other in PUBLIC_MODULES:
        try:
            public = vars(import_module(other))
        except ImportError:  # of an optional package
            continue
        value = public.get(name)
        is_public = name in public.get("__all__", ()) or getattr(value, "__module__", None) == other
        if other != module and is_public:
            return f"{module} has no {name!r}: write `from {other} import {name}`"
    return unknown_attribute(module, name, existing)


# -------------------------------------------------------------------------------------------- arguments


def explains_arguments(cls: type[T]) -> type[T]:
    """Make wrong arguments of a class's constructor raise an error with advice.

    Write it below `frozen` or `mutable`, which make the constructor.
    """
    open_class: Any = cls
    init: Any = vars(cls).get("__init__")
    if "_specified" in vars(cls):
        raise TypeError(f"{cls.__name__}: write explains_arguments below frozen or mutable")
    if init is None:
        open_class._explains_arguments = True  # noqa: SLF001  for `core.data`
        return cls

    @wraps(init)
    def construct(self: Any, /, *args: Any, **kwargs: Any) -> None:
        try:
            init(self, *args, **kwargs)
        except TypeError:
            if (problem := misfit(type(self).__name__, init, args, kwargs)) is not None:
                raise problem from None
            raise

    open_class.__init__ = construct
    return cls


def explains_call(function: F) -> F:
    """Make wrong arguments of a function or classmethod raise an error with advice."""
    name = function.__qualname__.rpartition("<locals>.")[2]
    is_method = "." in name

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError:
            problem = misfit(name, function, args[is_method:], kwargs, has_instance=is_method)
            if problem is not None:
                raise problem from None
            raise

    return cast("F", called)


def misfit(
    label: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    form: str = "",
    *,
    has_instance: bool = True,
) -> WrongArguments | None:
    """Return the error for arguments that do not fit the parameters of a function, or None.

    Args:
        label: the name of the function in messages, and the key of its arguments in `foreign_names`.
        function: a method, or a function.
        args: the arguments by position, without the instance.
        kwargs: the arguments by name.
        form: the text of a call, up to the bracket.
        has_instance: whether the first parameter is the instance.
    """
    from inspect import signature

    parameters = list(signature(function).parameters.values())[int(has_instance) :]
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return None
    takes_any = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    parameters = [each for each in parameters if each.kind is not each.VAR_POSITIONAL]
    names = [each.name for each in parameters]
    positional = [each.name for each in parameters if each.kind is not each.KEYWORD_ONLY]
    for name in kwargs:
        if name not in names:
            return WrongArguments(f"{label} has no argument {name!r}{_advice(label, name, names)}")
    if len(args) > len(positional) and not takes_any:
        by_name = [f"{name}=" for name in names if name not in positional and name not in kwargs]
        listed = ", ".join(by_name[:MOST_LISTED]) + (", ..." if len(by_name) > MOST_LISTED else "")
        order = f"takes {', '.join(positional)}, then the rest by name" if positional else "takes all by name"
        return WrongArguments(
            f"{label} {order}: {args[len(positional)]!r:.80} is one too many by position"
            + (f"; write one of {listed} before it" if by_name else "")
            + (f"; {example}" if (example := _example(label)) else "")
        )
    if twice := [name for name in positional[: len(args)] if name in kwargs]:
        return WrongArguments(f"{label} got {twice[0]} twice: by position and by name")
    required = [each.name for each in parameters if each.default is each.empty]
    missing = [name for name in required if name not in kwargs and name not in positional[: len(args)]]
    if not missing:
        return None
    example = _example(label) or f"write {form or label}({', '.join(required)})"
    return WrongArguments(f"{label} needs {' and '.join(missing)}: {example}")


def _advice(label: str, name: str, names: list[str]) -> str:
    """Return the advice for an unknown argument; it recommends only existing arguments."""
    from treadle.core.foreign_names import ARGUMENTS, VERB_ARGUMENTS

    of_verbs = () if label[:1].isupper() else VERB_ARGUMENTS.get(name, ())
    for advice in (ARGUMENTS.get(label, {}).get(name), *of_verbs):
        recommended = re.match(r"write (\w+)=", advice) if advice else None
        if advice is not None and (recommended is None or recommended[1] in names):
            return f": {advice}"
    return _nearest(name, names)


def _example(label: str) -> str | None:
    from treadle.core.foreign_names import EXAMPLES

    return EXAMPLES.get(label)
