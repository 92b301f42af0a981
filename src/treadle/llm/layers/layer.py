"""The base of all layers: a model around a model, which passes on everything that it does not change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from treadle.errors import ConfigurationError, ModelError
from treadle.llm.registry import bare_model
from treadle.ports import chosen_model, has_part, output_mode_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from treadle.core.model import ModelAnswer, ModelDelta
    from treadle.ports import Model, OutputMode


class Layer:
    """A model around a model, or around several; the first has its name, service and account.

    Args:
        models: the models inside; each a model object, or `provider:model` for the provider's model without layers.
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
        """Return after how many seconds the model would take a request; 0 if it takes one now."""
        return ready_in(self.model)

    def choose(self, route: str) -> tuple[str, str]:
        """Return the name of the model that a request with a route goes to, and the route with all choices made."""
        return chosen_model(self.model, route)

    def limit_waits(self, connect: float | None, silence: float | None) -> None:
        """Limit how long a connection may take and an answer may be silent, in seconds, for clients made inside."""
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
    """Return after how many seconds a model would take a request; 0 for a model without limits."""
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
