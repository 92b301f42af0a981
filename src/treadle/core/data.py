"""Data classes with slots that cost little to define and little to make: `frozen` ones and `mutable` ones.

They do what `dataclass(slots=True)` does, frozen or not. That one compiles up to six methods for each class, which for
ours is a quarter of the time `import treadle` takes, and a frozen one looks every field up by name when it is made.
Here one method is compiled, the constructor; the others are shared.

A slot of a frozen class can be set only through its descriptor, since `__setattr__` refuses; that takes ten times as
long as plain assignment. So the constructor of a class with several fields makes the new object an instance of an open
subclass with the same layout, assigns the fields, and then sets the class of the object back: it is frozen from there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from typing import Any, Final, TypeVar, dataclass_transform, get_origin, overload

T = TypeVar("T")

WORTH_OPENING: Final = 3
"""From how many fields on the two changes of class cost less than setting each field through its descriptor."""


class _OpenClasses(dict[type[Any], type[Any]]):
    """For each frozen class, and each class derived from one, the subclass whose instances can be assigned to."""

    def __missing__(self, cls: type[Any]) -> type[Any]:
        namespace = {"__slots__": (), "__setattr__": object.__setattr__, "__delattr__": object.__delattr__}
        self[cls] = open_class = type(cls.__name__, (cls,), namespace)
        return open_class


_OPEN: Final = _OpenClasses()
_SET_CLASS: Final = object.__dict__["__class__"].__set__


@overload
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]: ...
@overload
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(*, kw_only: bool = False) -> Callable[[type[T]], type[T]]: ...
def frozen(cls: type[Any] | None = None, *, kw_only: bool = False) -> Any:
    """Make a class a value: it does not change once made, and is equal, and hashed, by what it holds.

    Args:
        cls: the class, when the decorator is written without arguments.
        kw_only: whether all fields are given by name.
    """

    def make(cls: type[Any]) -> type[Any]:
        return _made(cls, kw_only, _FROZEN)

    return make if cls is None else make(cls)


@overload
@dataclass_transform(field_specifiers=(field,))
def mutable(cls: type[T]) -> type[T]: ...
@overload
@dataclass_transform(field_specifiers=(field,))
def mutable(*, kw_only: bool = False) -> Callable[[type[T]], type[T]]: ...
def mutable(cls: type[Any] | None = None, *, kw_only: bool = False) -> Any:
    """Make a class a record whose fields may be set; it is equal by what it holds, and has no hash.

    Args:
        cls: the class, when the decorator is written without arguments.
        kw_only: whether all fields are given by name.
    """

    def make(cls: type[Any]) -> type[Any]:
        return _made(cls, kw_only, _MUTABLE)

    return make if cls is None else make(cls)


def _made(cls: type[Any], kw_only: bool, shared: dict[str, Any]) -> type[Any]:
    cls.__doc__ = cls.__doc__ or cls.__name__  # else `dataclass` finds a signature out, which it has not yet
    data_class: Any = dataclass(init=False, repr=False, eq=False, slots=True, kw_only=kw_only)(cls)
    if "__init__" not in cls.__dict__:
        data_class.__init__ = _constructor(data_class, is_frozen=shared is _FROZEN)
    for name, method in shared.items():
        inherited = name == "__repr__" and cls.__repr__ is not object.__repr__
        if name not in cls.__dict__ and not inherited:
            setattr(data_class, name, method)
    data_class._compared = staticmethod(_reading([item.name for item in fields(data_class) if item.compare]))  # noqa: SLF001  ours
    return data_class


def _constructor(cls: type[Any], *, is_frozen: bool) -> Callable[..., None]:
    """Return an `__init__` that takes the fields of a class and sets each of them."""
    namespace = dict[str, Any]()
    items = fields(cls)
    opens = is_frozen and len(items) >= WORTH_OPENING
    positional, keyword, body = ["self"], list[str](), list[str]()
    for item in items:
        parameter, default = _parameter(item, namespace)
        (keyword if item.kw_only is True else positional).append(parameter)
        if is_frozen and not opens:
            namespace[f"_set_{item.name}"] = getattr(cls, item.name).__set__
            body.append(f" _set_{item.name}(self, {default})")
        else:
            body.append(f" self.{item.name} = {default}")
    if opens:
        namespace["_set_class"], namespace["_open"], namespace["_type"] = _SET_CLASS, _OPEN, type
        body = [" cls = _type(self)", " _set_class(self, _open[cls])", *body, " self.__class__ = cls"]
    if hasattr(cls, "__post_init__"):
        body.append(" self.__post_init__()")
    if keyword:
        positional.append("*")
    lines = [f"def __init__({', '.join(positional + keyword)}):", *body, " return None"]
    exec("\n".join(lines), namespace)  # noqa: S102  made of the names of fields alone
    init = namespace["__init__"]
    init.__annotations__ = {item.name: item.type for item in items} | {"return": None}
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__module__ = cls.__module__
    return init


def _parameter(item: Field[Any], namespace: dict[str, Any]) -> tuple[str, str]:
    """Return how a field is written among the parameters, and what is set for it."""
    name = item.name
    if item.default_factory is not MISSING:
        namespace[f"_new_{name}"] = _New(item.default_factory)
        kind: Any = get_origin(item.default_factory) or item.default_factory
        made = _DISPLAYS.get(kind, f"_new_{name}.make()")
        return f"{name}=_new_{name}", f"{made} if {name} is _new_{name} else {name}"
    if item.default is not MISSING:
        namespace[f"_default_{name}"] = item.default
        return f"{name}=_default_{name}", name
    return name, name


_DISPLAYS: Final[dict[Any, str]] = {list: "[]", dict: "{}"}
"""How the values of some default factories are written: a display takes less time than a call."""


class _New:
    """The default of a field that gets a new value each time; a signature shows that value."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    def __repr__(self) -> str:
        return repr(self.make())


def _reading(names: list[str]) -> Callable[[Any], Any]:
    return attrgetter(*names) if names else lambda _: ()


def _equal(self: Any, other: object) -> bool:
    if self is other:
        return True
    return self._compared(self) == self._compared(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(self._compared(self))


def _repr(self: Any) -> str:
    shown = [f"{item.name}={getattr(self, item.name)!r}" for item in fields(self) if item.repr]
    return f"{type(self).__qualname__}({', '.join(shown)})"


def repr_of_set_fields(self: Any) -> str:
    """Return the `repr` of a value with many optional fields: those that are None, or empty, are left out."""
    shown = [(item.name, getattr(self, item.name)) for item in fields(self)]
    set_fields = [f"{name}={value!r}" for name, value in shown if value is not None and value != {}]
    return f"{type(self).__qualname__}({', '.join(set_fields)})"


def _refuse_to_set(self: Any, name: str, _: Any) -> None:
    raise FrozenInstanceError(
        f"cannot assign to {name!r}: a {type(self).__qualname__} does not change; make another one: "
        f"`dataclasses.replace(..., {name}=...)`"
    )


def _refuse_to_delete(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete {name!r}: a {type(self).__qualname__} does not change")


def _reduce(self: Any) -> tuple[Any, ...]:
    return _restored, (type(self), [getattr(self, item.name) for item in fields(self)])


def _restored(cls: type[Any], values: list[Any]) -> Any:
    instance = object.__new__(cls)
    for item, value in zip(fields(cls), values, strict=True):
        object.__setattr__(instance, item.name, value)
    return instance


_MUTABLE: dict[str, Any] = {"__eq__": _equal, "__hash__": None, "__repr__": _repr}
_FROZEN: dict[str, Any] = {
    "__eq__": _equal,
    "__hash__": _hash,
    "__repr__": _repr,
    "__setattr__": _refuse_to_set,
    "__delattr__": _refuse_to_delete,
    "__reduce__": _reduce,
}
