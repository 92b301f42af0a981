"""The base of all layers: a model around a model, which delegates everything that it does not change.

Cancel the current task's wait for a model, and tell that cancellation from any other.

State that all layers of a process share, such as the circuit of a service: one object for each key.

Checks of the arguments of layers: each returns the value, or raises a `ConfigurationError` that names the field.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast, get_args

from treadle.core.refused_uses import can_be_called, no_function
from treadle.errors import ConfigurationError, ModelError, ModelErrorKind
from treadle.llm.registry import bare_model
from treadle.ports import chosen_model, has_part, output_mode_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from treadle.core.model import ModelAnswer, ModelDelta
    from treadle.ports import Model, OutputMode


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


T = TypeVar("T")


class Shared(Generic[T]):
    """One object for each key, for all event loops and threads of the process.

    Args:
        limit: how many objects are held. The least recently used one goes first; a layer that uses it keeps it.
    """

    def __init__(self, limit: int = 1_000) -> None:
        self._limit = limit
        self._objects: OrderedDict[tuple[object, ...], T] = OrderedDict()
        self._lock = Lock()

    def get(self, key: tuple[object, ...], make: Callable[[], T]) -> T:
        """Return the object of a key; made at first use."""
        with self._lock:
            if key not in self._objects:
                self._objects[key] = make()
                if len(self._objects) > self._limit:
                    self._objects.popitem(last=False)
            else:
                self._objects.move_to_end(key)
            return self._objects[key]

    def values(self) -> list[T]:
        """Return all objects."""
        with self._lock:
            return list(self._objects.values())


class CancelScope:
    """Cancels the current task's wait for a model, and takes the cancellation back afterwards.

    The owner makes it in the task that waits, and sets `waiting` only while that task waits for the model. The model
    has to be asked in one task.
    """

    __slots__ = ("_cancelled", "_earlier_requests", "_task", "waiting")

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None, "a model is asked in a task"
        self._task, self._earlier_requests, self._cancelled = task, task.cancelling(), False
        self.waiting = True

    def cancel(self) -> None:
        """Cancel the task if it waits for the model."""
        if self.waiting and not self._cancelled:
            self._cancelled = True
            self._task.cancel()

    def take_back(self) -> bool:
        """Take the scope's cancellation back; return whether it was the only one since the scope was made."""
        if not self._cancelled:
            return False
        self._cancelled = False
        return self._task.uncancel() <= self._earlier_requests


class Layer:
    """A model around a model, or around several; the first has its name, service and account.

    Args:
        models: the models inside. Each is a model object, or `provider:model` for the provider's model without layers.
    """

    numbers: ClassVar[tuple[str, ...]] = ()
    """the arguments that `repr` shows, by name"""

    def __init__(self, *models: Model | str) -> None:
        self.models = tuple([_inner_model(type(self).__name__, model) for model in models])
        self.model = self.models[0]

    @property
    def name(self) -> str:
        """`provider:model` of the model inside."""
        return self.model.name

    @property
    def output_mode(self) -> OutputMode:
        """The output mode that all models inside support."""
        modes = {output_mode_of(model) for model in self.models}
        return "prompt" if "prompt" in modes else "tool" if "tool" in modes else "native"

    @property
    def service(self) -> str:
        """The service whose failures count together: the provider, and where its server is."""
        return service_of(self.model)

    @property
    def account(self) -> str:
        """The account whose requests count together: the service, and a digest of the key."""
        return account_of(self.model)

    def require(self) -> None:
        """Raise `MissingExtra` if packages that a model inside needs are not installed."""
        for model in self.models:
            if has_part(model, "require"):
                model.require()

    def preload(self) -> None:
        """Begin to load the packages of the first request; returns at once."""
        if has_part(self.model, "preload"):
            self.model.preload()

    async def prepare(self) -> None:
        """Load the packages of the first request, so that it does not wait for them."""
        for model in self.models:
            if has_part(model, "prepare"):
                await model.prepare()

    def ready_in(self) -> float:
        """Return the seconds until the model would take a request; 0 if it takes one now."""
        return ready_in(self.model)

    def choose(self, route: str) -> tuple[str, str]:
        """Return the name of the model for a request's route, and the route with all choices made."""
        return chosen_model(self.model, route)

    def limit_waits(self, connect: float | None, silence: float | None) -> None:
        """Limit the seconds of a connection and of a silence in an answer, for clients made inside."""
        for model in self.models:
            if has_part(model, "limit_waits"):
                model.limit_waits(connect, silence)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join([repr(self.model), *self._shown()])})"

    def _shown(self) -> list[str]:
        return [f"{name}={_figure(getattr(self, name))}" for name in self.numbers]


def _inner_model(layer: str, model: Any) -> Model:
    """Return the model that a layer goes around; raises `ConfigurationError` if it is not a model."""
    try:
        return bare_model(model)
    except ConfigurationError as error:
        raise type(error)(f"{layer}: {error}") from None


def service_of(model: Model) -> str:
    """Return the service of a model; without one, the name of its provider."""
    return model.service if has_part(model, "service") else model.name.partition(":")[0]


def account_of(model: Model) -> str:
    """Return the account of a model; without one, its service."""
    return model.account if has_part(model, "account") else service_of(model)


def ready_in(model: Model) -> float:
    """Return the seconds until a model would take a request; 0 for a model without limits."""
    return model.ready_in() if has_part(model, "ready_in") else 0.0


def no_answer(name: str) -> ModelError:
    """Return the failure of a model whose stream ended without an answer."""
    return ModelError(f"{name} ended its stream without an answer", kind="connection")


async def close(stream: AsyncIterator[ModelDelta | ModelAnswer] | None) -> None:
    """Close the stream of a model now, rather than when it is garbage-collected."""
    if (aclose := getattr(stream, "aclose", None)) is not None:
        await aclose()


def _figure(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else repr(value)
