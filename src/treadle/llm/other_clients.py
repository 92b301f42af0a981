"""The clients of other providers. pydantic-ai makes them; here they lose retries and redirects, and get deadlines."""

from __future__ import annotations

from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import infer_model
from pydantic_ai.providers import infer_provider_class

from treadle.errors import ConfigurationError, ModelError
from treadle.llm.connections import refused_redirect, settings, settings_of

if TYPE_CHECKING:
    from pydantic_ai.models import Model as TheirModel

_URL = ("base_url", "azure_endpoint", "api_base", "api_host")
_LEGACY_HTTP = ("groq", "cohere", "github", "huggingface")
"""Providers whose packages take a client of `httpx`, not `httpx2`."""

_OWN_HTTP = ("bedrock", "xai", "gateway/bedrock")
"""Providers whose packages take no HTTP client."""


def make(
    provider: str,
    name: str,
    *,
    home: str,
    key: str | None,
    url: str | None,
    connect: float,
    silence: float,
) -> TheirModel:
    """Return a model of a provider, to be used in the running event loop.

    Args:
        provider: the provider's name, as pydantic-ai knows it.
        name: the model.
        home: the module whose import the responses wait for.
        key: the secret to send. None: the provider's package looks for credentials.
        url: where the server is, or None for the provider's own address.
        connect: seconds a connection may take.
        silence: seconds an answer may be silent.

    Raises:
        ModelError: a requirement of the provider is missing; the message names it.
    """
    connections = _connections(provider, home, connect, silence)
    try:
        client = _provider(provider, key, url, connections, connect, silence)
        model = _with_our_stream(
            infer_model(f"{provider}:{name}", lambda _: client), name, client, connections
        )
    except (UserError, ValueError, ImportError) as error:
        raise ModelError(
            f"the model {provider}:{name} cannot be used: {error}", kind="invalid_request"
        ) from None
    inner: Any = getattr(model, "client", None)
    if hasattr(inner, "max_retries"):
        inner.max_retries = 0
        inner.timeout = connections.timeout
    if connections is not None and not hasattr(model, "aclose"):
        model.aclose = connections.aclose  # not all packages close the client they were given
    return model


def _connections(provider: str, home: str, connect: float, silence: float) -> Any:
    """Return the HTTP client for a provider, or None if its package takes none."""
    if provider in _OWN_HTTP:
        return None
    if provider.removeprefix("gateway/") not in _LEGACY_HTTP:
        return httpx2.AsyncClient(**settings(home, timeout=httpx2.Timeout(silence, connect=connect)))
    import httpx

    timeout = httpx.Timeout(silence, connect=connect)
    # The package of Hugging Face reads the text of an error from a response, which has to be loaded by then.
    hooks = {"response": [_load_error]} if provider == "huggingface" else {}
    return httpx.AsyncClient(**settings_of(httpx, home, timeout=timeout, event_hooks=hooks))


async def _load_error(response: Any) -> None:
    if response.status_code >= 400:
        await response.aread()


def _provider(
    provider: str, key: str | None, url: str | None, connections: Any, connect: float, silence: float
) -> Any:
    """Return pydantic-ai's provider object, with a client that makes one attempt for each request."""
    more: dict[str, Any] = {} if connections is None else {"http_client": connections}
    if provider.startswith("gateway/"):
        from pydantic_ai.providers.gateway import gateway_provider

        made: Any = gateway_provider(provider.removeprefix("gateway/"), api_key=key, base_url=url, **more)
        return _in_one_request(made) if provider == "gateway/bedrock" else made
    if provider == "xai":
        return _xai(key, url, silence)
    if provider == "cohere":
        return _cohere(key, url, connections)
    if provider == "huggingface":
        return _huggingface(key, url, connections)
    try:
        make_provider: Any = infer_provider_class(provider)
    except ValueError:
        from importlib.metadata import version

        installed = version("pydantic-ai-slim")
        raise ConfigurationError(f"pydantic-ai-slim {installed} does not know the provider") from None
    takes = signature(make_provider.__init__).parameters
    if provider == "bedrock":
        more = {"aws_read_timeout": silence, "aws_connect_timeout": connect}
    if key is not None:
        parameter = next((parameter for parameter in ("api_key", "token") if parameter in takes), None)
        if parameter is None:
            raise ConfigurationError("it takes no api_key=, but the credentials of a login")
        more[parameter] = key
    url_parameter = next((parameter for parameter in _URL if parameter in takes), None)
    if url is not None and url_parameter is not None:
        more[url_parameter] = url
    made = make_provider(**more)
    if url is not None and url_parameter is None:
        made.client.base_url = url
    return _in_one_request(made) if provider == "bedrock" else made


def _in_one_request(provider: Any) -> Any:
    """Return a provider of Bedrock that repeats no request. Its package follows no redirect, and names it."""
    events = provider.client.meta.events
    events.unregister("needs-retry.bedrock-runtime", unique_id="retry-config-bedrock-runtime")

    def refuse_redirect(http_response: Any, **_: Any) -> None:
        if 300 <= http_response.status_code < 400:
            url, headers = provider.client.meta.endpoint_url, http_response.headers
            raise refused_redirect(url, headers.get("location", ""), http_response.status_code)

    events.register("after-call.bedrock-runtime", refuse_redirect)
    return provider


def _xai(key: str | None, url: str | None, silence: float) -> Any:
    from pydantic_ai.providers.xai import XaiProvider

    make_client: Any = import_module("xai_sdk").AsyncClient  # the package has no stubs
    where: dict[str, Any] = {}
    if url is not None:
        parts = urlsplit(url)
        where = {"api_host": parts.netloc, "use_insecure_channel": parts.scheme == "http"}
    options = [("grpc.enable_retries", 0)]
    return XaiProvider(xai_client=make_client(api_key=key, timeout=silence, channel_options=options, **where))


def _cohere(key: str | None, url: str | None, connections: Any) -> Any:
    from cohere import AsyncClientV2
    from pydantic_ai.providers.cohere import CohereProvider

    return CohereProvider(
        cohere_client=AsyncClientV2(api_key=key, base_url=url, httpx_client=connections, max_retries=0)
    )


def _huggingface(key: str | None, url: str | None, connections: Any) -> Any:
    from huggingface_hub import AsyncInferenceClient
    from pydantic_ai.providers.huggingface import HuggingFaceProvider

    client: Any = AsyncInferenceClient(api_key=key, base_url=url, timeout=connections.timeout)
    client._async_client = connections  # noqa: SLF001  the client that it would make itself follows redirects
    return HuggingFaceProvider(hf_client=client, api_key=key)


def _with_our_stream(model: Any, name: str, provider: Any, connections: Any) -> Any:
    """Return a model with Treadle's additions to its wire format, unless its provider has a class here."""
    kind = f"{type(model).__module__}:{type(model).__name__}"
    if kind.endswith(":OpenAIChatModel"):
        from treadle.llm.openai_stream import ChatModel

        return ChatModel(name, provider=provider)
    if kind.endswith(":OpenAIResponsesModel"):
        from treadle.llm.responses_stream import ResponsesModel

        return ResponsesModel(name, provider=provider)
    if kind.endswith(":AnthropicModel"):
        from treadle.llm.anthropic_stream import MessagesModel

        return MessagesModel(name, provider=provider)
    if kind.endswith(":GoogleModel"):
        from treadle.llm.google_stream import GeminiModel

        return GeminiModel(name, provider.client, connections, provider=provider)
    return model
