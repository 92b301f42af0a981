"""Fallback models: the order in which models are asked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

from treadle.core.model import FailedAttempt, ModelAnswer, ModelDelta, ModelRequest
from treadle.core.unknown_names import explains_arguments
from treadle.errors import ConfigurationError, ModelError, ModelErrorKind
from treadle.llm.errors import ELSEWHERE
from treadle.llm.layers.layer import Layer, close, kinds, no_answer, number, ready_in
from treadle.ports import Model, chosen_model


@explains_arguments
class Fallback(Layer):
    """The first of several models that is ready; when it fails, the next one.

    Layers around each model come first: a model whose layers want a retry within `patience` seconds is retried. Then
    the request goes to the next model, as an attempt of its own. It does so even after streaming began:
    `ModelRestarted` asks watchers to discard the text. The failure of the last model is the failure of all.

    Args:
        models: the models, in order. Each is a model object, or `provider:model` for a model without layers.
        on: the kinds of failure, as in `ModelError.kind`, after which the next model is asked.
        patience: the longest wait in seconds for a retry while there is another model.
    """

    numbers = ("patience",)

    def __init__(
        self,
        models: Sequence[Model | str],
        *,
        on: Iterable[ModelErrorKind] = ELSEWHERE,
        patience: float = 5.0,
    ) -> None:
        value: Any = models
        if isinstance(value, str) or not isinstance(value, Sequence) or len(cast("Sequence[Any]", value)) < 2:
            raise ConfigurationError(f"Fallback: models must be a list of at least two, got {value!r}")
        super().__init__(*models)
        self.on = kinds("Fallback", on)
        self.patience = number("Fallback", "patience", patience, least=0.0)

    def ready_in(self) -> float:
        return min(map(ready_in, self.models))

    def choose(self, route: str) -> tuple[str, str]:
        index, inner_route = self._route(route)
        name, inner_route = chosen_model(self.models[index], inner_route)
        return name, _joined(index, inner_route)

    def __repr__(self) -> str:
        return f"Fallback({', '.join([repr(list(self.models)), *self._shown()])})"

    def _shown(self) -> list[str]:
        return super()._shown() + ([f"on={sorted(self.on)}"] if self.on != ELSEWHERE else [])

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelAnswer]:
        index, inner_route = self._route(request.route)
        model = self.models[index]
        inner = model.stream(_request_for(request, index, inner_route))
        item: ModelDelta | ModelAnswer | None = None
        try:
            async for item in inner:
                if type(item) is ModelAnswer and not item.model:
                    item.model = model.name
                yield item
            if type(item) is not ModelAnswer:
                raise no_answer(model.name)
        except ModelError as error:
            self._set_route(error, index)
            raise
        finally:
            await close(inner)

    def _route(self, route: str) -> tuple[int, str]:
        """Return the index of the model to ask, and the route inside it."""
        head, _, inner_route = route.partition(".")
        if head.isdecimal() and int(head) < len(self.models):
            return int(head), inner_route
        return self._ready_model(0), ""

    def _ready_model(self, first: int) -> int:
        """Return the index of the first model that is ready, else of the one that is ready soonest."""
        soonest, shortest = first, float("inf")
        for index in range(first, len(self.models)):
            wait = ready_in(self.models[index])
            if wait <= 0.0:
                return index
            if wait < shortest:
                soonest, shortest = index, wait
        return soonest

    def _set_route(self, error: ModelError, index: int) -> None:
        """Set the failed model and the route of the next attempt in a failure."""
        error.model = error.model or self.models[index].name
        error.route = _joined(index, error.route)
        is_last = index + 1 == len(self.models)
        is_retried = error.again_in is not None and (error.again_in <= self.patience or is_last)
        if error.kind in self.on and not is_retried and not is_last:
            error.again_in, error.next_route = 0.0, str(self._ready_model(index + 1))
        elif error.again_in is not None:
            error.next_route = _joined(index, error.next_route)


def _joined(index: int, inner_route: str) -> str:
    return f"{index}.{inner_route}" if inner_route else str(index)


def _request_for(request: ModelRequest, index: int, inner_route: str) -> ModelRequest:
    """Return the request for one of the models, with the failed attempts of that model only."""
    if not request.route and not request.failures:
        return request
    asked_at, own_failures = request.asked_at, list[FailedAttempt]()
    for failed in request.failures:
        head, _, tail = failed.route.partition(".")
        if head == str(index):
            own_failures.append(failed if not tail and not failed.route else replace(failed, route=tail))
        elif not own_failures:
            asked_at = failed.at
    earlier_attempts = len(request.failures) - len(own_failures)
    return replace(
        request,
        route=inner_route,
        failures=tuple(own_failures),
        asked_at=asked_at,
        attempt=max(1, request.attempt - earlier_attempts),
    )
