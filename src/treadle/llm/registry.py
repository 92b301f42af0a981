"""The providers by name: `openai:gpt-5.4-mini` to a model without layers, and the models that can be used here."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, cast

from treadle.errors import ModelUnknown
from treadle.llm.providers import (
    Anthropic,
    Google,
    NamedModel,
    Ollama,
    OpenAI,
    OpenAIChat,
    PydanticAIModel,
)
from treadle.ports import Model

if TYPE_CHECKING:
    from pydantic_ai.models import Model as TheirModel

EXAMPLES = "openai:gpt-5.4-mini, anthropic:claude-sonnet-5-5, google:gemini-3.1-flash, ollama:qwen3:4b"

PROVIDERS: Final[Mapping[str, type[NamedModel]]] = {
    "openai": OpenAIChat,
    "openai-chat": OpenAIChat,
    "openai-responses": OpenAI,
    "anthropic": Anthropic,
    "google": Google,
    "ollama": Ollama,
}
"""The classes of models that have names, by the provider in the name."""


def bare_model(model: str | Model | TheirModel) -> Model:
    """Return a model without adding layers; the packages that it needs may be missing.

    Raises:
        ModelUnknown: no provider has that name, or the object is not a model.
    """
    if isinstance(model, str):
        return _named(model)
    if hasattr(model, "request_stream"):
        return PydanticAIModel(cast("TheirModel", model))
    if hasattr(model, "stream") and hasattr(model, "name") and not isinstance(model, type):
        return cast("Model", model)
    raise ModelUnknown(
        f"a model is a name such as {EXAMPLES.split(',', 1)[0]}, or a model object, not {model!r}"
    )


def _named(model: str) -> NamedModel:
    provider, colon, name = model.partition(":")
    if not colon or not name:
        raise ModelUnknown(f"{model!r} does not name a provider: write provider:model, such as {EXAMPLES}")
    make = PROVIDERS.get(provider)
    if make is None:
        closest = get_close_matches(provider, PROVIDERS, n=1)
        hint = (
            f"did you mean {closest[0]}:{name}?" if closest else f"known are {', '.join(sorted(PROVIDERS))}"
        )
        raise ModelUnknown(f"no provider is called {provider!r} (model {model!r}); {hint}")
    return make(name)


def default_model(env: Mapping[str, str] | None = None) -> str | None:
    """Return the name of a model whose API key is in the environment, or None."""
    variables = os.environ if env is None else env
    if variables.get("OPENAI_API_KEY"):
        return "openai:gpt-5.4-mini"
    if variables.get("ANTHROPIC_API_KEY"):
        return "anthropic:claude-sonnet-5-5"
    if variables.get("GOOGLE_API_KEY") or variables.get("GEMINI_API_KEY"):
        return "google:gemini-3.1-flash"
    return None


def local_ollama(timeout: float = 0.25, *, url: str = "http://127.0.0.1:11434") -> list[str]:
    """Return the models of an Ollama on this machine, as `ollama:` names; empty if none runs here.

    Blocks for at most `timeout` seconds.
    """
    try:
        answer = _get(url, "/api/tags", time.monotonic() + timeout)
        models: list[Any] = json.loads(answer)["models"]
        return [f"ollama:{model['name']}" for model in models]
    except (OSError, ValueError, LookupError, TypeError):
        return []  # no server, or not Ollama


def _get(url: str, path: str, deadline: float) -> bytes:
    """Return the body of a GET under one deadline for all of it: the timeout of `urllib` holds for each read."""
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    host, port = parts.hostname or "127.0.0.1", parts.port or 80
    with socket.create_connection((host, port), timeout=max(deadline - time.monotonic(), 0.01)) as connection:
        connection.sendall(f"GET {path} HTTP/1.0\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        received = bytearray()
        while len(received) < 1_000_000:
            connection.settimeout(max(deadline - time.monotonic(), 0.001))
            if not (data := connection.recv(65_536)):
                break
            received += data
    head, _, body = bytes(received).partition(b"\r\n\r\n")
    if b" 200" not in head.partition(b"\r\n")[0]:
        raise ValueError("the server did not answer with status 200")
    return body
