"""Models of real providers, through pydantic-ai's model classes; nothing of it is imported before the first request."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Mapping
from hashlib import sha256
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast
from urllib.parse import urlsplit

from treadle.core.model import ModelAnswer, ModelDelta, ModelRequest
from treadle.core.redaction import Secrets, named_secrets, secrets_of, url_secrets
from treadle.errors import MissingExtra, ModelError
from treadle.llm import loading, prices
from treadle.llm.errors import model_error
from treadle.llm.hiding import HiddenDeltas, hidden_answer
from treadle.llm.per_loop import PerLoop
from treadle.llm.raw import tapped
from treadle.llm.sdk_logs import hidden_in_logs, watch_logs
from treadle.llm.settings import family_of, their_settings

if TYPE_CHECKING:
    from pydantic_ai.models import Model as TheirModel
    from pydantic_ai.providers.openai import OpenAIProvider

OutputMode = Literal["native", "tool", "prompt"]

CONNECT, SILENCE = 10.0, 300.0
"""Seconds a connection may take and an answer may be silent, when no layer around a model says otherwise."""


class PydanticAIModel:
    """Any model class of pydantic-ai, as a Treadle model.

    Args:
        model: an instance; its HTTP client and the event loop of that are its maker's affair.
        name: `provider:model`; by default what the instance says.
        stream: whether the provider is asked for its answers in pieces; without, each comes whole, at its end.
    """

    def __init__(self, model: TheirModel, *, name: str | None = None, stream: bool = True) -> None:
        self.name = name or f"{model.system}:{model.model_name}"
        self._model = model
        self._streams = stream

    _known: tuple[TheirModel, frozenset[str]] | None = None
    """the model that was asked last, and the secrets it is asked with"""

    _defaults: ClassVar[Mapping[str, Any]] = {}
    """Settings that hold unless a request has others, by pydantic-ai's names."""

    @property
    def output_mode(self) -> OutputMode:
        """How the model is best asked for a typed answer."""
        profile = _profile(self._model)
        if family_of(self._model) is not None and profile.get("supports_json_schema_output"):
            return "native"
        if profile.get("supports_tools", True):
            return "tool"
        return "native" if profile.get("supports_json_schema_output") else "prompt"

    async def _ready(self) -> TheirModel:
        if "genai_prices.data" not in sys.modules:
            await asyncio.to_thread(
                prices.load
            )  # reading a response needs its tables, which take a while to load
        return self._model

    async def prepare(self) -> None:
        """Load what the first request needs, and so does not have to wait for.

        Raises:
            MissingExtra: a package is not installed.
            ModelError: there is no key.
        """
        await self._ready()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelAnswer]:
        model = await self._ready()
        from treadle.llm import mapping

        family = family_of(model)
        native = bool(_profile(model).get("supports_json_schema_output"))
        parameters = mapping.their_parameters(request, native_output=native)
        history = mapping.their_messages(request)
        settings: Any = {**self._defaults, **their_settings(family, request)}
        places: list[int] = []
        secrets = self._secrets(model, request)
        hiding = HiddenDeltas(secrets)
        hidden_in_logs.set(secrets)
        watch_logs()
        try:
            history = model.prepare_messages(history, parameters)
            if self._streams:
                async with model.request_stream(history, settings, parameters) as response:
                    tap = tapped(response) if request.raw else None
                    async for event in response:
                        delta = mapping.our_delta(event, places)
                        for told in hiding.take(delta, tap.take() if tap is not None else ()):
                            yield told
                    for told in hiding.rest(tap.take() if tap is not None else ()):
                        yield told
                    whole = response.get()
                answer = mapping.our_answer(whole, request, family)
            else:
                whole = await model.request(history, settings, parameters)
                answer = mapping.our_answer(whole, request, family, streamed=False)
                for delta in mapping.whole_deltas(whole):
                    for told in (*hiding.take(delta), *hiding.rest()):
                        yield told
            answer = hidden_answer(answer, secrets)
        except Exception as error:  # noqa: BLE001  (SDKs raise whatever a malformed answer makes them stumble over)
            answer = model_error(error, secrets=secrets)
        if isinstance(answer, ModelError):
            raise answer  # outside of `except`, where it would carry along what it hides
        yield answer

    def _secrets(self, model: TheirModel, request: ModelRequest) -> Secrets:
        """Return what no answer and no error of a model may show: keys it is asked with, and those of this process."""
        if self._known is None or self._known[0] is not model:
            values = frozenset(_keys_of(model) | url_secrets(self._address()) | named_secrets(os.environ))
            self._known = (model, values)
        values = self._known[1]
        if request.settings.extra:
            values = values.union(named_secrets(request.settings.extra))
        return secrets_of(values)

    def _address(self) -> str | None:
        """Return where the server is, if it is known here."""
        return None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class NamedModel(PydanticAIModel):
    """A model by its name at a provider: makes its client at the first request, one for each event loop.

    Args:
        name: the model, as its provider calls it.
        base_url: where the server is, when it is not the provider's own.
        api_key: the secret to send; by default from the environment.
        stream: whether the answer is asked for in pieces, which some servers cannot; without, it comes whole, at its
            end, and a limit on silence is one on the whole answer.
    """

    provider: ClassVar[str]
    extra: ClassVar[str]
    """the extra that brings what this model needs"""
    packages: ClassVar[tuple[str, ...]]
    """what has to be installed"""
    home: ClassVar[str]
    """the module of the model class"""
    key_variables: ClassVar[tuple[str, ...]]
    url_variable: ClassVar[str]

    def __init__(
        self, name: str, *, base_url: str | None = None, api_key: str | None = None, stream: bool = True
    ) -> None:
        self.name = f"{self.provider}:{name}"
        self._model_name = name
        self._base_url = base_url
        self._api_key = api_key
        self._streams = stream
        self._models: PerLoop[TheirModel] = PerLoop(self._make, _close)

    @property
    def output_mode(self) -> OutputMode:
        return "tool"

    @property
    def service(self) -> str:
        """The provider, and where its server is when it is not the provider's own: what fails together."""
        url = self._url()
        if url is None:
            return self.provider
        place = urlsplit(url)
        return f"{self.provider} at {place.scheme}://{place.netloc.rpartition('@')[2]}{place.path}"

    @property
    def account(self) -> str:
        """The service, and a digest of the key: what is counted together."""
        return f"{self.service} #{sha256(self._key(optional=True).encode()).hexdigest()[:8]}"

    _connect: float | None = None
    _silence: float = SILENCE

    def limit_waits(self, connect: float | None, silence: float | None) -> None:
        """Say how many seconds a connection may take (of several, the fewest) and an answer be silent (the most).

        Holds for clients that are made from now on; None says nothing.
        """
        if connect is not None:
            self._connect = connect if self._connect is None else min(connect, self._connect)
        if silence is not None:  # whoever says it looks for itself; the client is only not to be faster
            self._silence = max(self._silence, silence + 5.0)

    def require(self) -> None:
        """Raise `MissingExtra` when the packages this model needs are not installed; imports none of them."""
        if not all(map(installed, ("pydantic_ai", *self.packages))):
            raise MissingExtra(self.extra, f"The model {self.name}")

    def preload(self) -> None:
        """Begin to load, in a thread, what the first request needs; what is not installed is said at the request."""
        if not loading.has_begun(self.home) and all(map(installed, ("pydantic_ai", *self.packages))):
            loading.begin(self.home)

    async def _ready(self) -> TheirModel:
        if not loading.has_begun(self.home):
            self.require()
        await loading.until(loading.begin(self.home).requests)
        return await self._models.get()

    async def prepare(self) -> None:
        await self._ready()
        await loading.until(loading.begin(self.home).answers)

    def _make(self) -> TheirModel:
        raise NotImplementedError

    def _key(self, *, optional: bool = False) -> str:
        key = self._api_key or next(filter(None, map(os.environ.get, self.key_variables)), "")
        if not key and not optional:
            raise ModelError(
                f"the model {self.name} needs an API key: set {self.key_variables[0]} or pass api_key=",
                kind="authentication",
            )
        return key or "not-needed"

    def _url(self) -> str | None:
        return self._base_url or os.environ.get(self.url_variable) or None

    def _address(self) -> str | None:
        return self._url()


_KNOWS_NO_SCHEMA = re.compile(r"gpt-3|gpt-4(-|$)|chatgpt|o1-(mini|preview)")
"""Models of OpenAI from before its structured outputs."""


class _AtOpenAI(NamedModel):
    """What both of OpenAI's wire formats share."""

    extra, packages = "openai", ("openai",)
    key_variables, url_variable = ("OPENAI_API_KEY",), "OPENAI_BASE_URL"

    @property
    def output_mode(self) -> OutputMode:
        # Other servers often take tools or a schema, and one of them away when they are given both.
        native = self._url() is None and _KNOWS_NO_SCHEMA.match(self._model_name) is None
        return "native" if native else "tool"

    def _provider(self) -> OpenAIProvider:
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient, Timeout
        from pydantic_ai.providers.openai import OpenAIProvider

        from treadle.llm.connections import settings

        url = self._url()
        client = AsyncOpenAI(
            api_key=self._key(optional=url is not None),
            base_url=url,
            max_retries=0,
            timeout=Timeout(self._silence, connect=self._connect or CONNECT),
            http_client=DefaultAsyncHttpxClient(**settings(self.home)),
        )
        return OpenAIProvider(openai_client=client)


class OpenAI(_AtOpenAI):
    """A model behind OpenAI's Responses, or any server that speaks it.

    The provider is asked to keep nothing (`store` is false unless the agent's settings say otherwise): the journal
    has the conversation, with the model's encrypted reasoning, and each request carries all of it.

    Args:
        name: the model, such as `gpt-5.4-mini`.
        base_url: where the server is; by default `OPENAI_BASE_URL`, else OpenAI.
        api_key: by default `OPENAI_API_KEY`; a server at another `base_url` may need none.
        stream: see `NamedModel`.
    """

    provider, home = "openai-responses", "treadle.llm.responses_stream"
    _defaults: ClassVar[Mapping[str, Any]] = {"openai_store": False}

    def _make(self) -> TheirModel:
        from treadle.llm.responses_stream import ResponsesModel

        return ResponsesModel(self._model_name, provider=self._provider())


class OpenAIChat(_AtOpenAI):
    """A model behind OpenAI's Chat Completions, or any server that speaks it (Ollama, vLLM, llama.cpp).

    Args:
        name: the model, such as `gpt-5.4-mini`.
        base_url: where the server is; by default `OPENAI_BASE_URL`, else OpenAI.
        api_key: by default `OPENAI_API_KEY`; a server at another `base_url` may need none.
        stream: see `NamedModel`.
    """

    provider, home = "openai", "treadle.llm.openai_stream"

    def _make(self) -> TheirModel:
        from treadle.llm.openai_stream import ChatModel

        return ChatModel(self._model_name, provider=self._provider())


class Ollama(OpenAIChat):
    """A model that runs on this machine, or at `OLLAMA_BASE_URL`, under Ollama; needs no key.

    Args:
        name: the model, such as `qwen3:4b`.
        base_url: by default `OLLAMA_BASE_URL`, else `http://localhost:11434/v1`.
    """

    provider = "ollama"
    key_variables, url_variable = ("OLLAMA_API_KEY",), "OLLAMA_BASE_URL"

    def _url(self) -> str:
        url = (super()._url() or "http://localhost:11434/v1").rstrip("/")
        return url if url.endswith("/v1") else url + "/v1"


class Anthropic(NamedModel):
    """A model behind Anthropic's Messages.

    Args:
        name: the model, such as `claude-sonnet-4-5`.
        base_url: where the server is; by default `ANTHROPIC_BASE_URL`, else Anthropic.
        api_key: by default `ANTHROPIC_API_KEY`.
        stream: see `NamedModel`.
    """

    provider, extra, packages, home = "anthropic", "anthropic", ("anthropic",), "treadle.llm.anthropic_stream"
    key_variables, url_variable = ("ANTHROPIC_API_KEY",), "ANTHROPIC_BASE_URL"

    def _make(self) -> TheirModel:
        from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient, Timeout
        from pydantic_ai.providers.anthropic import AnthropicProvider

        from treadle.llm.anthropic_stream import MessagesModel
        from treadle.llm.connections import settings

        client = AsyncAnthropic(
            api_key=self._key(),
            base_url=self._url(),
            max_retries=0,
            timeout=Timeout(self._silence, connect=self._connect or CONNECT),
            http_client=DefaultAsyncHttpxClient(**settings(self.home)),
        )
        return MessagesModel(self._model_name, provider=AnthropicProvider(anthropic_client=client))


_TAKES_SCHEMA_WITH_TOOLS = re.compile(r"gemini-([3-9]|\d\d)")
"""Models of Google that take a schema for the answer and tools at once."""


class Google(NamedModel):
    """A model behind Google's Gemini API.

    Args:
        name: the model, such as `gemini-3.1-flash`.
        base_url: where the server is; by default `GOOGLE_GEMINI_BASE_URL`, else Google.
        api_key: by default `GOOGLE_API_KEY`, else `GEMINI_API_KEY`.
        stream: see `NamedModel`.
    """

    provider, extra, packages, home = "google", "google", ("google.genai",), "treadle.llm.google_stream"
    key_variables, url_variable = ("GOOGLE_API_KEY", "GEMINI_API_KEY"), "GOOGLE_GEMINI_BASE_URL"

    @property
    def output_mode(self) -> OutputMode:
        return "native" if _TAKES_SCHEMA_WITH_TOOLS.match(self._model_name) else "tool"

    def _make(self) -> TheirModel:
        from treadle.llm.google_stream import gemini

        return gemini(
            self._model_name,
            self._key(),
            self._url(),
            connect=self._connect or CONNECT,
            silence=self._silence,
        )


async def _close(model: TheirModel) -> None:
    close = getattr(model, "aclose", None) or cast("Any", model).client.close
    await close()


def installed(package: str) -> bool:
    """Return whether a package can be imported, without importing it."""
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # not even the package it would be in
        return False


def _profile(model: TheirModel) -> Mapping[str, Any]:
    try:
        return cast("Mapping[str, Any]", model.profile)
    except NotImplementedError:
        return {}  # a model that chooses among others has none of its own


def _keys_of(model: TheirModel) -> set[str]:
    """Return the secrets that a model's client sends: its key, those in its address and in headers of its own."""
    client: Any = getattr(model, "client", None)
    inner = getattr(client, "_api_client", None)
    found = url_secrets(str(getattr(model, "base_url", None) or ""))
    for source in (client, inner):
        for name in ("api_key", "auth_token"):
            if isinstance(key := getattr(source, name, None), str):
                found.add(key)
        if isinstance(headers := getattr(source, "_custom_headers", None), Mapping):
            found |= named_secrets(cast("Mapping[str, Any]", headers))
    options = getattr(inner, "_http_options", None)
    headers = getattr(options, "headers", None)
    return found | (
        named_secrets(cast("Mapping[str, Any]", headers)) if isinstance(headers, Mapping) else set()
    )
