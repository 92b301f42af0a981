"""Other models for when one fails: which is asked first, and which next."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal, cast

from treadle.core.model import FailedAttempt, ModelAnswer, ModelDelta, ModelRequest
from treadle.errors import ConfigurationError, ModelError, ModelErrorKind
from treadle.llm.errors import ELSEWHERE
from treadle.llm.layers.layer import (
    Layer,
    closed,
    common_mode,
    inner_model,
    kinds,
    limit_waits,
    no_answer,
    number,
    prepare,
    ready_in,
    require,
)
from treadle.ports import Model


class Fallback(Layer):
    """The first of several models that is ready; when it fails, the next one.

    Layers around each of the models come first: as long as one of them wants the model asked again, within `patience`,
    it is. Then the question goes to the next model, as an attempt of its own: also after the first words, which whoever
    watches is told to forget (`ModelRestarted`). The last model's failure is the failure of all.

    Args:
        models: what is asked, in this order; each a model object, or `provider:model` for a model without any layer.
        on: the kinds of failure after which the next model is asked; see `ModelError.kind`.
        patience: seconds that are waited for a model while there is another: one that is to be asked again only later
            gives way.
    """

    numbers = ("patience",)

    def __init__(
        self,
        models: Sequence[Model | str],
        *,
        on: Iterable[ModelErrorKind] = ELSEWHERE,
        patience: float = 5.0,
    ) -> None:
        given: Any = models
        if isinstance(given, str) or not isinstance(given, Sequence) or len(cast("Sequence[Any]", given)) < 2:
            raise ConfigurationError(f"Fallback: models must be a list of at least two, got {given!r}")
        self.models = tuple([inner_model("Fallback", model) for model in models])
        self.model = self.models[0]
        self.on = kinds("Fallback", on)
        self.patience = number("Fallback", "patience", patience, least=0.0)

    @property
    def output_mode(self) -> Literal["native", "tool", "prompt"]:
        """What every one of the models can do."""
        return common_mode(self.models)

    def require(self) -> None:
        for model in self.models:
            require(model)

    async def prepare(self) -> None:
        for model in self.models:
            await prepare(model)

    def ready_in(self) -> float:
        return min(map(ready_in, self.models))

    def limit_waits(self, connect: float | None, silence: float | None) -> None:
        for model in self.models:
            limit_waits(model, connect, silence)

    def __repr__(self) -> str:
        return f"Fallback({', '.join([repr(list(self.models)), *self._shown()])})"

    def _shown(self) -> list[str]:
        return super()._shown() + ([f"on={sorted(self.on)}"] if self.on != ELSEWHERE else [])

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelAnswer]:
        place, inside = self._place(request)
        model = self.models[place]
        inner = model.stream(_inside(request, place, inside))
        item: ModelDelta | ModelAnswer | None = None
        try:
            async for item in inner:
                if type(item) is ModelAnswer and not item.model:
                    item.model = model.name
                yield item
            if type(item) is not ModelAnswer:
                raise no_answer(model.name)
        except ModelError as error:
            self._next(error, place)
            raise
        finally:
            await closed(inner)

    def _place(self, request: ModelRequest) -> tuple[int, str]:
        """Return which model is asked, and where inside of it the question goes."""
        head, _, inside = request.route.partition(".")
        if head.isdecimal() and int(head) < len(self.models):
            return int(head), inside
        return self._readiest(0), ""

    def _readiest(self, first: int) -> int:
        """Return the first model from a place on that is ready, else the one that is soonest."""
        soonest, least = first, float("inf")
        for place in range(first, len(self.models)):
            wait = ready_in(self.models[place])
            if wait <= 0.0:
                return place
            if wait < least:
                soonest, least = place, wait
        return soonest

    def _next(self, error: ModelError, place: int) -> None:
        """Say in a failure which model it was, and which is to be asked next."""
        error.model = error.model or self.models[place].name
        error.route = _joined(place, error.route)
        waits = error.again_in is not None and (
            error.again_in <= self.patience or place + 1 == len(self.models)
        )
        if error.kind in self.on and not waits and place + 1 < len(self.models):
            error.again_in, error.next_route = 0.0, str(self._readiest(place + 1))
        elif error.again_in is not None:
            error.next_route = _joined(place, error.next_route)


def _joined(place: int, inside: str) -> str:
    return f"{place}.{inside}" if inside else str(place)


def _inside(request: ModelRequest, place: int, inside: str) -> ModelRequest:
    """Return a question as one of several models sees it: only its own attempts came before."""
    if not request.route and not request.failures:
        return request
    asked_at, mine = request.asked_at, list[FailedAttempt]()
    for failed in request.failures:
        head, _, rest = failed.route.partition(".")
        if head == str(place):
            mine.append(failed if not rest and not failed.route else replace(failed, route=rest))
        elif not mine:
            asked_at = failed.at
    others = len(request.failures) - len(mine)
    return replace(
        request,
        route=inside,
        failures=tuple(mine),
        asked_at=asked_at,
        attempt=max(1, request.attempt - others),
    )
