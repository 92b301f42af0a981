"""Translate our settings to those of pydantic-ai's model classes, by the wire format that a class speaks."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from treadle.core.model import ModelRequest

if TYPE_CHECKING:
    from pydantic_ai.models import Model as TheirModel


class WireFormat(NamedTuple):
    """The facts that the model classes of one wire format share.

    Args:
        name: the prefix of the settings that only this provider has.
        settings: the class of its settings, as `module:class`.
        no_arguments: values that mean "no arguments". With other formats, an empty text means that text got lost.
        parallel: whether a setting makes the provider send one call at a time.
        retries: whether the package can be told for each request not to retry it.
        finish_word: whether the response holds the provider's own finish reason.
        files_in_results: whether a result of a tool can hold images and files.
    """

    name: str
    settings: str
    no_arguments: tuple[str | None, ...] = ()
    parallel: bool = True
    retries: bool = True
    finish_word: bool = True
    files_in_results: bool = False


_FORMATS = {
    "OpenAIChatModel": WireFormat("openai", "pydantic_ai.models.openai:OpenAIChatModelSettings"),
    "OpenAIResponsesModel": WireFormat(
        "openai", "pydantic_ai.models.openai:OpenAIResponsesModelSettings", files_in_results=True
    ),
    "AnthropicModel": WireFormat(
        "anthropic", "pydantic_ai.models.anthropic:AnthropicModelSettings", ("",), files_in_results=True
    ),
    "GoogleModel": WireFormat(
        "google", "pydantic_ai.models.google:GoogleModelSettings", (None,), parallel=False
    ),
    "GroqModel": WireFormat("groq", "pydantic_ai.models.groq:GroqModelSettings"),
    "MistralModel": WireFormat("mistral", "pydantic_ai.models.mistral:MistralModelSettings"),
    "CohereModel": WireFormat("cohere", "pydantic_ai.models.cohere:CohereModelSettings", parallel=False),
    "BedrockConverseModel": WireFormat(
        "bedrock",
        "pydantic_ai.models.bedrock:BedrockModelSettings",
        ("",),
        parallel=False,
        retries=False,
    ),
    "HuggingFaceModel": WireFormat(
        "huggingface",
        "pydantic_ai.models.huggingface:HuggingFaceModelSettings",
        parallel=False,
        retries=False,
    ),
    "XaiModel": WireFormat(
        "xai", "pydantic_ai.models.xai:XaiModelSettings", retries=False, finish_word=False
    ),
}


def wire_format_of(model: TheirModel) -> WireFormat | None:
    """Return the wire format of a model class, or None if it is unknown."""
    return next((_FORMATS[cls.__name__] for cls in type(model).__mro__ if cls.__name__ in _FORMATS), None)


def can_stream(model: TheirModel) -> bool:
    """Return whether a model can stream answers. Some classes cannot, nor a `FunctionModel` with only a `function`."""
    from pydantic_ai.models import Model

    while (inner := getattr(model, "wrapped", None)) is not None:
        model = inner
    streams = getattr(model, "stream_function", can_stream) is not None
    return streams and type(model).request_stream is not Model.request_stream


def is_decider(model: TheirModel) -> bool:
    """Return whether a model only fills in typed answers, and writes no text."""
    return any(cls.__name__ == "DecisionModel" for cls in type(model).__mro__)


def their_settings(wire: WireFormat | None, request: ModelRequest) -> dict[str, Any]:
    """Return pydantic-ai's settings for a request. The provider's own names go where they have an effect."""
    own_settings = request.settings
    settings: dict[str, Any] = {}
    if own_settings.temperature is not None:
        settings["temperature"] = own_settings.temperature
    if own_settings.max_tokens is not None:
        settings["max_tokens"] = own_settings.max_tokens
    if own_settings.cache is not None:
        settings["cache"] = own_settings.cache
    if request.tools:
        choice = request.tool_choice
        settings["tool_choice"] = choice if choice in ("auto", "none", "required") else [choice]
        if own_settings.parallel_tool_calls is not None and (wire is None or wire.parallel):
            settings["parallel_tool_calls"] = own_settings.parallel_tool_calls
    if wire is not None and wire.retries:
        settings["max_retries"] = 0
    known_fields = _names(wire)
    body: dict[str, Any] = {}
    for name, value in own_settings.extra.items():
        if (
            wire is not None
            and f"{wire.name}_{name}" in known_fields
            and (name not in known_fields or isinstance(value, Mapping))
        ):
            settings[f"{wire.name}_{name}"] = value
        elif wire is None or name in known_fields:
            settings[name] = value
        else:
            body[name] = value
    if body:
        settings["extra_body"] = {**settings.get("extra_body", {}), **body}
    return settings


def _names(wire: WireFormat | None) -> Mapping[str, Any]:
    if wire is None:
        return {}
    module, _, name = wire.settings.partition(":")
    return getattr(import_module(module), name).__annotations__
