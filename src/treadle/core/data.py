"""Data classes that msgspec makes in C: `frozen` ones and `mutable` ones.

Each is a `msgspec.Struct` that behaves like a `dataclass(slots=True)`, frozen or not. `dataclasses.fields`, `replace`
and `asdict` accept its instances, and pydantic accepts it as a type. `import treadle` makes 270 classes, each in a
tenth of the time of `dataclass`. A step makes some 30 instances, each in a third of the time.

A struct has no option to omit a single field from comparisons or the `repr`, or to pass a single field by name. Classes
with such fields get methods in Python, and a base that holds the fields passed by name.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, field, fields
from functools import partial
from operator import attrgetter
from typing import Any, Final, TypeVar, cast, dataclass_transform, get_origin, overload

import msgspec
from msgspec import NODEFAULT, Struct, StructMeta
from msgspec.structs import force_setattr

from treadle.core.unknown_names import misfit

T = TypeVar("T")

set_field: Final[Callable[[Any, str, Any], None]] = force_setattr
"""Set a field of a frozen value in its `__post_init__`."""


class _ExplainsArguments(StructMeta):
    """The metaclass of data classes whose constructors explain unknown arguments."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        try:
            return super().__call__(*args, **kwargs)
        except TypeError:
            if (problem := misfit(cls.__name__, cls, args, kwargs, has_instance=False)) is not None:
                raise problem from None
            raise


class _Fields:
    """The `__dataclass_fields__` of all data classes, computed at their first use."""

    def __init__(self) -> None:
        self._of: dict[type[Any], dict[str, Field[Any]]] = {}

    def __get__(self, _: object, cls: type[Any]) -> dict[str, Field[Any]]:
        if cls not in self._of:
            self._of[cls] = _fields_of(cls)
        return self._of[cls]


class Data(Struct, forbid_unknown_fields=True):
    """The base of all data classes, which the decorators of this module add. msgspec refuses unknown fields."""

    __dataclass_fields__ = _Fields()

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        if isinstance(source, cls):
            raise TypeError(f"{source!r:.80} is an instance, not a type")
        return _pydantic_schema(cls, handler)


@overload
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]: ...
@overload
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(*, kw_only: bool = False) -> Callable[[type[T]], type[T]]: ...
def frozen(cls: type[Any] | None = None, *, kw_only: bool = False) -> Any:
    """Make a class immutable, with equality and hash by its fields.

    Args:
        cls: the class, when the decorator is written without arguments.
        kw_only: whether all fields are given by name.
    """
    make = partial(_made, kw_only=kw_only, is_frozen=True)
    return make if cls is None else make(cls)


@overload
@dataclass_transform(field_specifiers=(field,))
def mutable(cls: type[T]) -> type[T]: ...
@overload
@dataclass_transform(field_specifiers=(field,))
def mutable(*, kw_only: bool = False) -> Callable[[type[T]], type[T]]: ...
def mutable(cls: type[Any] | None = None, *, kw_only: bool = False) -> Any:
    """Make a class a mutable record, with equality by its fields and without a hash.

    Args:
        cls: the class, when the decorator is written without arguments.
        kw_only: whether all fields are given by name.
    """
    make = partial(_made, kw_only=kw_only, is_frozen=False)
    return make if cls is None else make(cls)


def _made(cls: type[Any], kw_only: bool, *, is_frozen: bool) -> type[Any]:
    """Return the struct for a class, with the features that structs lack."""
    names = _own_names(cls)
    namespace = dict(vars(cls))
    metaclass: Any = StructMeta
    if isinstance(cls, StructMeta):  # as its base is one
        defaults = _defaults(cls)
        is_whole = not kw_only and not any(isinstance(defaults.get(name), Field) for name in names)
        if is_whole and "_explains_arguments" not in namespace:
            return _completed(cls, is_frozen)
        namespace |= {name: defaults.get(name, NODEFAULT) for name in names}
        metaclass, bases = type(cls), list(cls.__bases__)
    else:
        bases = [*[base for base in cls.__bases__ if base is not object], Data]
    specified = {name: namespace[name] for name in names if isinstance(namespace.get(name), Field)}
    namespace |= {name: _default(item) for name, item in specified.items()}
    namespace |= {"_specified": specified, "__annotations__": dict(cls.__annotations__)}
    namespace = {name: value for name, value in namespace.items() if not _is_made_with_class(name, value)}
    by_name = [name for name, item in specified.items() if item.kw_only is True]
    if by_name and not kw_only and len(by_name) < len(names):
        place = next(n for n, base in enumerate(bases) if isinstance(base, StructMeta))
        bases[place] = _base_by_name(cls, bases[place], namespace, by_name, is_frozen)
    if namespace.pop("_explains_arguments", False):
        metaclass = _ExplainsArguments
    options: Any = {"kw_only": kw_only or (bool(by_name) and len(by_name) == len(names)), "frozen": is_frozen}
    made: Any = metaclass(cls.__name__, tuple(bases), namespace, **options)
    made.__annotations__ = dict(cls.__annotations__)
    return _completed(made, is_frozen)


_CLASS_VARIABLE: Final = re.compile(r"(typing\.)?ClassVar\b")


def _own_names(cls: Any) -> list[str]:
    return [name for name, hint in cls.__annotations__.items() if not _CLASS_VARIABLE.match(str(hint))]


def _is_made_with_class(name: str, value: Any) -> bool:
    return name in _MADE_WITH_CLASS or name.startswith("__struct_") or value is NODEFAULT


_MADE_WITH_CLASS: Final = ("__dict__", "__weakref__", "__slots__", "__match_args__", "__annotations_cache__")


def _default(item: Field[Any]) -> Any:
    """Return the default of a specified field, in the form of a struct."""
    if item.default_factory is not MISSING:
        # Structs make empty lists and dicts without a call.
        kind: Any = get_origin(item.default_factory) or item.default_factory
        return msgspec.field(default_factory=kind if kind in (list, dict, set) else item.default_factory)
    return NODEFAULT if item.default is MISSING else item.default


def _base_by_name(
    cls: type[Any], base: type[Any], namespace: dict[str, Any], names: list[str], is_frozen: bool
) -> Any:
    """Move the fields of a class that are passed by name from its namespace into a base, and return the base."""
    annotations = namespace["__annotations__"]
    held = {name: namespace.pop(name) for name in names if name in namespace}
    held |= {"__module__": cls.__module__, "__annotations__": {name: annotations.pop(name) for name in names}}
    metaclass: Any = type(base)
    made: Any = metaclass(f"_{cls.__name__}ByName", (base,), held, kw_only=True, frozen=is_frozen)
    made.__annotations__ = {}
    return made


def _completed(made: Any, is_frozen: bool) -> type[Any]:
    """Add the methods that a struct lacks or has in another form. Those of the class and its bases stay."""
    own = frozenset(cast("dict[str, Any]", vars(made)))
    uncompared = [name for name, item in _all_specified(made).items() if not item.compare]
    if uncompared:
        compared = [name for name in made.__struct_fields__ if name not in uncompared]
        made._compared = staticmethod(attrgetter(*compared) if compared else lambda _: ())  # noqa: SLF001  ours
        if "__eq__" not in own:
            made.__eq__ = _equal
            made.__hash__ = _hash if is_frozen else None
    if made.__repr__ is Struct.__repr__:
        made.__repr__ = _repr
    if is_frozen:
        for name, method in _FROZEN.items():
            if name not in own:
                setattr(made, name, method)
    return made


def _all_specified(cls: type[Any]) -> dict[str, Field[Any]]:
    specified: dict[str, Field[Any]] = {}
    for base in reversed(cls.__mro__):
        specified |= vars(base).get("_specified", {})
    return specified


def _defaults(cls: Any) -> dict[str, Any]:
    """Return the defaults of a struct by field, in the form in which `StructMeta` takes them."""
    names, defaults = cls.__struct_fields__, cls.__struct_defaults__
    by_name = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
    for name, default in by_name.items():
        if type(default) is _FACTORY:
            by_name[name] = msgspec.field(default_factory=default.factory)
    return {name: default for name, default in by_name.items() if default is not NODEFAULT}


class _WithFactory(Struct):
    value: list[Any] = msgspec.field(default_factory=list[Any])


_FACTORY: Final = cast("type[Any]", cast("Any", _WithFactory).__struct_defaults__[0].__class__)
"""The class of the marks for default factories among the defaults of a struct."""


def _fields_of(cls: Any) -> dict[str, Field[Any]]:
    """Return the fields of a class as `dataclasses` has them, those of its bases first."""
    hints: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if isinstance(base, StructMeta):
            hints |= base.__annotations__
    specified, defaults = _all_specified(cls), _defaults(cls)
    plain: Field[Any] = field()
    made: dict[str, Field[Any]] = {}
    for name in [name for name in hints if name in cls.__struct_fields__]:
        item, default = specified.get(name, plain), defaults.get(name, MISSING)
        if item is plain and type(default) is type(msgspec.field()):
            item = field(default_factory=default.default_factory)
        new: Any = field(
            default=MISSING if item.default_factory is not MISSING else default,
            default_factory=item.default_factory,
            repr=item.repr,
            compare=item.compare,
            kw_only=name not in cls.__match_args__,
            metadata=item.metadata,
        )
        new.name, new.type, new._field_type = name, hints[name], _FIELD  # noqa: SLF001
        made[name] = new
    return made


_FIELD: Final = cast("Any", dataclasses)._FIELD  # noqa: SLF001  by which `fields` recognises a field


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
    """Return the `repr` of a value with many optional fields, without those that are None or empty."""
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


_FROZEN: Final[dict[str, Any]] = {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}


def _pydantic_schema(cls: Any, handler: Any) -> Any:
    """Return a schema that accepts an instance of a class, or an object with its fields."""
    from typing import get_type_hints

    from pydantic_core import core_schema

    hints = get_type_hints(cls)
    items = [(item.name, hints[item.name], _copied(item)) for item in fields(cls)]
    twin = handler(dataclasses.make_dataclass(cls.__name__, items, kw_only=True))
    made = core_schema.no_info_after_validator_function(lambda values: cls(**vars(values)), twin)
    return core_schema.union_schema([core_schema.is_instance_schema(cls), made], mode="left_to_right")


def _copied(item: Field[Any]) -> Any:
    return field(default=item.default, default_factory=item.default_factory)  # pyright: ignore[reportArgumentType, reportCallIssue]
