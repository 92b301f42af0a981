"""From our settings to those of pydantic-ai's model classes, and which family of wire format a class speaks."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from treadle.core.model import ModelRequest

if TYPE_CHECKING:
    from pydantic_ai.models import Model as TheirModel


class Family(NamedTuple):
    """What the model classes of one wire format have in common.

    Args:
        name: the prefix of the settings that only this provider has.
        settings: where its settings are declared, `module:class`.
        no_arguments: what stands for none, also where there could be some; elsewhere that is text which got lost.
        parallel: whether the provider can be told to make one call at a time.
    """

    name: str
    settings: str
    no_arguments: tuple[str | None, ...] = ()
    parallel: bool = True


_FAMILIES = {
    "OpenAIChatModel": Family("openai", "pydantic_ai.models.openai:OpenAIChatModelSettings"),
    "OpenAIResponsesModel": Family("openai", "pydantic_ai.models.openai:OpenAIResponsesModelSettings"),
    "AnthropicModel": Family("anthropic", "pydantic_ai.models.anthropic:AnthropicModelSettings", ("",)),
    "GoogleModel": Family("google", "pydantic_ai.models.google:GoogleModelSettings", (None,), parallel=False),
}


def family_of(model: TheirModel) -> Family | None:
    """Return the family of a model class, or None of one that is not known here."""
    return next((_FAMILIES[cls.__name__] for cls in type(model).__mro__ if cls.__name__ in _FAMILIES), None)


def their_settings(family: Family | None, request: ModelRequest) -> dict[str, Any]:
    """Return the settings of a request; names of the provider's own go to where they have an effect."""
    ours = request.settings
    settings: dict[str, Any] = {}
    if ours.temperature is not None:
        settings["temperature"] = ours.temperature
    if ours.max_tokens is not None:
        settings["max_tokens"] = ours.max_tokens
    if request.tools:
        choice = request.tool_choice
        settings["tool_choice"] = choice if choice in ("auto", "none", "required") else [choice]
        if ours.parallel_tool_calls is not None and (family is None or family.parallel):
            settings["parallel_tool_calls"] = ours.parallel_tool_calls
    if family is not None:
        settings["max_retries"] = 0
    known = _names(family)
    body: dict[str, Any] = {}
    for name, value in ours.extra.items():
        if (
            family is not None
            and f"{family.name}_{name}" in known
            and (name not in known or isinstance(value, Mapping))
        ):
            settings[f"{family.name}_{name}"] = value
        elif family is None or name in known:
            settings[name] = value
        else:
            body[name] = value
    if body:
        settings["extra_body"] = {**settings.get("extra_body", {}), **body}
    return settings


def _names(family: Family | None) -> Mapping[str, Any]:
    if family is None:
        return {}
    module, _, name = family.settings.partition(":")
    return getattr(import_module(module), name).__annotations__
