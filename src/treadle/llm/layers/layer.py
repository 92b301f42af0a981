"""What every layer is: a model around a model, through which goes what it does not change."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast, get_args

from treadle.core.model import ModelDelta
from treadle.errors import ConfigurationError, ModelError, ModelErrorKind
from treadle.llm.registry import bare_model
from treadle.ports import output_mode_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from treadle.core.model import ModelAnswer
    from treadle.ports import Model


class Layer:
    """A model around a model.

    Args:
        model: what is asked: a model object, or `provider:model` for the provider's model without any layer.
    """

    numbers: ClassVar[tuple[str, ...]] = ()
    """the arguments that `repr` shows, by name"""

    def __init__(self, model: Model | str) -> None:
        self.model = inner_model(type(self).__name__, model)

    @property
    def name(self) -> str:
        """`provider:model` of what is inside."""
        return self.model.name

    @property
    def output_mode(self) -> Literal["native", "tool", "prompt"]:
        """How the model inside is best asked for a typed answer."""
        return output_mode_of(self.model)

    @property
    def service(self) -> str:
        """Whose health a failure tells of: the provider, and where its server is."""
        return service_of(self.model)

    @property
    def account(self) -> str:
        """Whose requests are counted together: the service, and a digest of the key."""
        return account_of(self.model)

    def require(self) -> None:
        """Raise `MissingExtra` when the packages that the model inside needs are not installed."""
        require(self.model)

    def preload(self) -> None:
        """Begin to load what the first request needs; returns at once."""
        preload(self.model)

    async def prepare(self) -> None:
        """Load what the first request needs, and so does not have to wait for."""
        await prepare(self.model)

    def ready_in(self) -> float:
        """Return after how many seconds the model would take a request; 0 if it takes one now."""
        return ready_in(self.model)

    def limit_waits(self, connect: float | None, silence: float | None) -> None:
        """Hand down how long a connection may take and an answer be silent, in seconds, to whoever makes clients."""
        limit_waits(self.model, connect, silence)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join([repr(self.model), *self._shown()])})"

    def _shown(self) -> list[str]:
        return [f"{name}={_figure(getattr(self, name))}" for name in self.numbers]


def inner_model(layer: str, model: Any) -> Model:
    """Return the model that a layer is put around; raises `ConfigurationError` when it is none."""
    try:
        return bare_model(model)
    except ConfigurationError as error:
        raise type(error)(f"{layer}: {error}") from None


def service_of(model: Model) -> str:
    """Return what fails together: `service` of the model, else its provider's name."""
    said = getattr(model, "service", None)
    return said if isinstance(said, str) else model.name.partition(":")[0]


def account_of(model: Model) -> str:
    """Return what is counted together: `account` of the model, else its service."""
    said = getattr(model, "account", None)
    return said if isinstance(said, str) else service_of(model)


def ready_in(model: Model) -> float:
    """Return after how many seconds a model would take a request: 0 if it does not say."""
    ready = getattr(model, "ready_in", None)
    return 0.0 if ready is None else ready()


def require(model: Model) -> None:
    """Raise `MissingExtra` when packages that a model needs are not installed, if it can tell."""
    if (check := getattr(model, "require", None)) is not None:
        check()


def preload(model: Model) -> None:
    """Begin to load what the first request to a model needs, if it can; returns at once."""
    if (begin := getattr(model, "preload", None)) is not None:
        begin()


async def prepare(model: Model) -> None:
    """Load what the first request to a model needs, if it can say."""
    if (make_ready := getattr(model, "prepare", None)) is not None:
        await make_ready()


def limit_waits(model: Model, connect: float | None, silence: float | None) -> None:
    """Tell a model that makes its own clients how long these may wait, in seconds."""
    if (limit := getattr(model, "limit_waits", None)) is not None:
        limit(connect, silence)


def common_mode(models: Iterable[Model]) -> Literal["native", "tool", "prompt"]:
    """Return the way of asking for a typed answer that all of these models know."""
    modes = {output_mode_of(model) for model in models}
    return "prompt" if "prompt" in modes else "tool" if "tool" in modes else "native"


def no_answer(name: str) -> ModelError:
    """Return the failure of a model whose stream ended without an answer."""
    return ModelError(f"{name} ended its stream without an answer", kind="connection")


async def closed(stream: AsyncIterator[ModelDelta | ModelAnswer] | None) -> None:
    """Close what a model streams: at once, and not when the garbage collector comes."""
    if (close := getattr(stream, "aclose", None)) is not None:
        await close()


def number(layer: str, field: str, value: Any, *, above: float = 0.0, least: float | None = None) -> float:
    """Return a number that is above a bound, or at least `least`; raises `ConfigurationError` naming the field."""
    given = isinstance(value, (int, float)) and not isinstance(value, bool)
    if least is not None and not (given and least <= value < float("inf")):
        raise ConfigurationError(f"{layer}: {field} must be a number, {least:g} or more, got {value!r}")
    if least is None and not (given and above < value < float("inf")):
        raise ConfigurationError(f"{layer}: {field} must be a number above {above:g}, got {value!r}")
    return value


def optional(layer: str, field: str, value: Any) -> float | None:
    """Return a number above 0, or None; raises `ConfigurationError` naming the field."""
    if value is None:
        return None
    try:
        return number(layer, field, value)
    except ConfigurationError as error:
        raise ConfigurationError(str(error).replace(", got", ", or None, got")) from None


def count(layer: str, field: str, value: Any) -> int:
    """Return a whole number of at least 1; raises `ConfigurationError` naming the field."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigurationError(f"{layer}: {field} must be a whole number, 1 or more, got {value!r}")
    return value


def kinds(layer: str, value: Any) -> frozenset[ModelErrorKind]:
    """Return kinds of failure as a set; raises `ConfigurationError` naming the one that is unknown."""
    known = get_args(ModelErrorKind)
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ConfigurationError(f"{layer}: on must be a list of kinds of failure, got {value!r}")
    given = frozenset(cast("Iterable[Any]", value))
    for kind in given:
        if kind not in known:
            raise ConfigurationError(
                f"{layer}: on: no kind of failure is called {kind!r}; known are {', '.join(known)}"
            )
    return given


def _figure(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else repr(value)
