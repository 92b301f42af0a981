"""Checks of the arguments of layers: each returns the value, or raises a `ConfigurationError` that names the field."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast, get_args

from treadle.core.refused_uses import can_be_called, no_function
from treadle.errors import ConfigurationError, ModelErrorKind

F = TypeVar("F", bound=Callable[..., Any])


def number(layer: str, field: str, value: Any, *, above: float = 0.0, least: float | None = None) -> float:
    """Return a number above a bound, or of at least `least`."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if least is not None and not (is_number and least <= value < float("inf")):
        raise ConfigurationError(f"{layer}: {field} must be a number, {least:g} or more, got {value!r}")
    if least is None and not (is_number and above < value < float("inf")):
        raise ConfigurationError(f"{layer}: {field} must be a number above {above:g}, got {value!r}")
    return value


def optional_number(layer: str, field: str, value: Any) -> float | None:
    """Return a number above 0, or None."""
    if value is None:
        return None
    try:
        return number(layer, field, value)
    except ConfigurationError as error:
        raise ConfigurationError(str(error).replace(", got", ", or None, got")) from None


def count(layer: str, field: str, value: Any) -> int:
    """Return a whole number of at least 1."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigurationError(f"{layer}: {field} must be a whole number, 1 or more, got {value!r}")
    return value


def function(layer: str, field: str, value: F) -> F:
    """Return a function."""
    if not can_be_called(value):
        raise ConfigurationError(f"{layer}: {field} must be a function, got {no_function(value)}")
    return value


def kinds(layer: str, value: Any) -> frozenset[ModelErrorKind]:
    """Return kinds of `ModelError` as a set."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ConfigurationError(f"{layer}: on must be a list of kinds of failure, got {value!r}")
    chosen, allowed_kinds = frozenset(cast("Iterable[Any]", value)), get_args(ModelErrorKind)
    for kind in chosen:
        if kind not in allowed_kinds:
            raise ConfigurationError(
                f"{layer}: on: no kind of failure is called {kind!r}; known are {', '.join(allowed_kinds)}"
            )
    return chosen
