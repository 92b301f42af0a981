"""The layers that a model named as text gets: a deadline for each attempt, and retries around it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.llm.registry import bare_model
from treadle.ports import Model

if TYPE_CHECKING:
    from pydantic_ai.models import Model as TheirModel

    from treadle.llm.layers.retry import Retry


def resolve(model: str | Model | TheirModel) -> Model:
    """Return the model that an agent names.

    Args:
        model: `provider:name`, for the provider's model with deadlines and retries around it. Or a Treadle model, which
            is returned as it is, or an instance of a pydantic-ai model class.

    Raises:
        ModelUnknown: no provider has that name, or the object is not a model.
        MissingExtra: the provider's package is not installed.
    """
    if not isinstance(model, str):
        return bare_model(model)
    layered = with_defaults(model)
    layered.require()
    return layered


def with_defaults(model: str) -> Retry:
    """Return the model that a text names, with the default layers around it."""
    from treadle.llm.layers.retry import Retry
    from treadle.llm.layers.timeout import Timeout

    return Retry(Timeout(bare_model(model)))  # first: its error is not one of the layers


def shown(model: str) -> str:
    """Return the `repr` of the model that a text names."""
    return repr(with_defaults(model))
