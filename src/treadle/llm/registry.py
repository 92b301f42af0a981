"""The providers by name, which map `openai:gpt-5.4-mini` to a model without layers, and the usable models."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from treadle.errors import ModelUnknown
from treadle.ports import Model

if TYPE_CHECKING:
    from pydantic_ai.models import Model as TheirModel

    from treadle.llm.providers import NamedModel

EXAMPLES = "openai:gpt-5.4-mini, anthropic:claude-sonnet-5-5, google:gemini-3.1-flash, ollama:qwen3:4b"


def bare_model(model: str | Model | TheirModel) -> Model:
    """Return a model without adding layers. The packages that it needs may be missing.

    Raises:
        ModelUnknown: no provider has that name, or the object is not a model.
    """
    if isinstance(model, str):
        return _named(model)
    if hasattr(model, "request_stream"):
        from treadle.llm.providers import PydanticAIModel

        return PydanticAIModel(cast("TheirModel", model))
    if hasattr(model, "stream") and hasattr(model, "name") and not isinstance(model, type):
        return cast("Model", model)
    raise ModelUnknown(
        f"a model is a name such as {EXAMPLES.split(',', 1)[0]}, or a model object, not {model!r}"
    )


def check_name(model: str) -> None:
    """Raise `ModelUnknown` unless a text names a provider and a model. The packages may be missing."""
    _named(model)


def _named(model: str) -> NamedModel:
    provider, colon, name = model.partition(":")
    if not colon or not name.strip() or not provider:
        suggestion = None if colon else _probable_name(model)
        hint = f"did you mean {suggestion}?" if suggestion else f"write provider:model, such as {EXAMPLES}"
        raise ModelUnknown(f"{model!r} does not name a provider and a model; {hint}")
    if name != name.strip():
        raise ModelUnknown(f"{model!r} has white space in it; did you mean {provider}:{name.strip()}?")
    from treadle.llm.providers import PROVIDERS  # a process whose models are objects needs none of them

    if (make := PROVIDERS.get(provider)) is not None:
        return make(name)
    from treadle.llm.other_providers import OTHER_PROVIDERS, ProviderModel

    if provider in OTHER_PROVIDERS:
        return ProviderModel(provider, name)
    from difflib import get_close_matches

    names = (*PROVIDERS, *OTHER_PROVIDERS)
    usual = _usual_name(provider)
    close = [usual] if usual in names else get_close_matches(usual, names, 3, 0.7)
    hint = (
        f"did you mean {' or '.join(f'{near}:{name}' for near in close)}?"
        if close
        else f"known are {', '.join(sorted(names))}"
    )
    raise ModelUnknown(f"no provider is called {provider!r} (model {model!r}); {hint}")


def _usual_name(provider: str) -> str:
    lower = provider.lower()
    return _OTHER_NAMES.get(lower, lower)


def _probable_name(model: str) -> str | None:
    """Return the name that a text without a colon probably means, in another notation or of a known family."""
    from treadle.llm.other_providers import OTHER_PROVIDERS
    from treadle.llm.providers import PROVIDERS

    provider, slash, name = model.partition("/")
    usual = _usual_name(provider)
    if slash and name and (usual in PROVIDERS or usual in OTHER_PROVIDERS):
        return f"{usual}:{name}"
    likely = next((family for pattern, family in _FAMILIES if model.startswith(pattern)), None)
    return f"{likely}:{model}" if likely else None


_FAMILIES: Final = (
    *((pattern, "openai") for pattern in ("gpt-", "o1", "o3", "o4", "chatgpt-")),
    ("claude", "anthropic"),
    ("gemini", "google"),
    ("mistral", "mistral"),
    ("magistral", "mistral"),
    ("codestral", "mistral"),
    ("grok", "xai"),
    ("command", "cohere"),
    ("deepseek", "deepseek"),
    ("kimi", "moonshotai"),
    ("glm", "zai"),
    *((pattern, "ollama") for pattern in ("llama", "qwen", "gemma", "phi")),
)
"""The providers of well-known families of models, by how their names begin."""

_OTHER_NAMES: Final = {
    "aws": "bedrock",
    "azure-openai": "azure",
    "azure_openai": "azure",
    "claude": "anthropic",
    "dashscope": "alibaba",
    "fireworks_ai": "fireworks",
    "gemini": "google",
    "google-gla": "google",
    "google-genai": "google",
    "google-vertex": "google-cloud",
    "google_genai": "google",
    "google_vertexai": "google-cloud",
    "gpt": "openai",
    "grok": "xai",
    "hf": "huggingface",
    "kimi": "moonshotai",
    "lm-studio": "openai",
    "local": "ollama",
    "mistralai": "mistral",
    "moonshot": "moonshotai",
    "openai_chat": "openai-chat",
    "qwen": "alibaba",
    "together_ai": "together",
    "vertex": "google-cloud",
    "vertex_ai": "google-cloud",
    "vertexai": "google-cloud",
    "x-ai": "xai",
    "zhipu": "zai",
}
"""Names that other libraries and people use for providers."""


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
    """Return the body of a GET under one deadline. The timeout of `urllib` holds only for each read."""
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
