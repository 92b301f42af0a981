"""Models of providers, through pydantic-ai's model classes, which are imported at the first request."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from hashlib import sha256
from importlib.util import find_spec
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast
from urllib.parse import urlsplit

from treadle.core.hiding import HiddenDeltas, hidden_answer
from treadle.core.lazy_pattern import lazy_pattern
from treadle.core.model import Finish, ModelAnswer, ModelDelta, ModelRequest
from treadle.core.redaction import (
    Secrets,
    environment_secrets,
    hidden_in_logs,
    named_secrets,
    secrets_of,
    url_secrets,
)
from treadle.core.unknown_names import explains_arguments
from treadle.errors import ConfigurationError, MissingExtra, ModelError
from treadle.llm import loading, prices
from treadle.llm.errors import model_error
from treadle.llm.finish_words import checked_words
from treadle.llm.first_bytes import FirstBytes, first_bytes
from treadle.llm.per_loop import PerLoop
from treadle.llm.raw import record_chunks
from treadle.llm.sdk_logs import watch_logs
from treadle.llm.settings import WireFormat, can_stream, is_decider, their_settings, wire_format_of

if TYPE_CHECKING:
    from pydantic_ai.models import Model as TheirModel
    from pydantic_ai.providers.openai import OpenAIProvider

    from treadle.ports import OutputMode

CONNECT, SILENCE = 10.0, 300.0
"""Seconds that a connection may take and an answer may be silent, unless a layer sets other limits."""


@explains_arguments
class PydanticAIModel:
    """A model class of pydantic-ai as a Treadle model.

    Args:
        model: an instance. The caller makes and closes its HTTP client.
        name: `provider:model`; by default the name of the instance.
        stream: whether answers are streamed. Otherwise each arrives whole, at its end.
        finish_reasons: see `NamedModel`.
    """

    def __init__(
        self,
        model: TheirModel,
        *,
        name: str | None = None,
        stream: bool = True,
        finish_reasons: Mapping[str, Finish] | None = None,
    ) -> None:
        self.name = name or f"{model.system}:{model.model_name}"
        self._model = model
        self._streams = stream
        self._finish_words = checked_words(type(self).__name__, finish_reasons)

    _api_key: str | None = None
    _idempotency_header: str | None = None

    _model_secrets: tuple[TheirModel, frozenset[str]] | None = None
    """the model used last, and the secrets that its client sends"""

    _defaults: ClassVar[Mapping[str, Any]] = {}
    """Default settings, by pydantic-ai's names."""

    @property
    def output_mode(self) -> OutputMode:
        """The way to ask the model for a typed answer."""
        profile = _profile(self._model)
        if wire_format_of(self._model) is not None and profile.get("supports_json_schema_output"):
            return "native"
        if profile.get("supports_tools", True):
            return "tool"
        return "native" if profile.get("supports_json_schema_output") else "prompt"

    async def _ready(self) -> TheirModel:
        if "genai_prices.data" not in sys.modules:
            await asyncio.to_thread(prices.load)  # reading a response needs the tables, which load slowly
        return self._model

    async def prepare(self) -> None:
        """Load the packages of the first request, so that it does not wait for them.

        Raises:
            MissingExtra: a package is not installed.
            ModelError: there is no key.
        """
        await self._ready()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelAnswer]:
        model = await self._ready()
        from treadle.llm import mapping

        wire = wire_format_of(model)
        native = bool(_profile(model).get("supports_json_schema_output"))
        parameters = mapping.their_parameters(request, native_output=native, decides=is_decider(model))
        history = mapping.their_messages(request, files_in_results=wire is not None and wire.files_in_results)
        settings: Any = self._settings(wire, request)
        if self._idempotency_header is not None:
            key = {self._idempotency_header: idempotency_key(request)}
            settings["extra_headers"] = {**key, **settings.get("extra_headers", {})}
        calls: list[int] = []
        secrets = self._secrets(model, request)
        hiding = HiddenDeltas(secrets)
        hidden_in_logs.set(secrets)
        watch_logs()
        beginning = FirstBytes() if self._streams and can_stream(model) else None
        first_bytes.set(beginning)
        try:
            history = model.prepare_messages(history, parameters)
            if beginning is not None:
                async with model.request_stream(history, settings, parameters) as response:
                    recorder = record_chunks(response) if request.raw else None
                    async for event in response:
                        delta = mapping.our_delta(event, calls)
                        for safe in hiding.take(delta, recorder.take() if recorder is not None else ()):
                            yield safe
                    for safe in hiding.rest(recorder.take() if recorder is not None else ()):
                        yield safe
                    complete = response.get()
                answer = mapping.our_answer(complete, request, wire, words=self._finish_words)
            else:
                complete = await model.request(history, settings, parameters)
                answer = mapping.our_answer(complete, request, wire, streamed=False, words=self._finish_words)
                for delta in mapping.whole_deltas(complete):
                    for safe in (*hiding.take(delta), *hiding.rest()):
                        yield safe
            answer = hidden_answer(answer, secrets)
        except Exception as error:  # noqa: BLE001  (SDKs raise errors of any type for a malformed answer)
            answer = model_error(error, secrets=secrets, beginning=beginning)
        if isinstance(answer, ModelError):
            raise answer  # outside of `except`: a chained error would show the secrets
        yield answer

    def _settings(self, wire: WireFormat | None, request: ModelRequest) -> dict[str, Any]:
        """Return the settings of a request, by pydantic-ai's names."""
        return {**self._defaults, **their_settings(wire, request)}

    def _secrets(self, model: TheirModel, request: ModelRequest) -> Secrets:
        """Return the secrets that no answer and no error may show: the keys of the request and of this process."""
        if self._model_secrets is None or self._model_secrets[0] is not model:
            own = {self._api_key} if self._api_key else set[str]()
            values = frozenset(
                own | _keys_of(model) | url_secrets(self._address()) | environment_secrets(os.environ)
            )
            self._model_secrets = (model, values)
        values = self._model_secrets[1]
        if request.settings.extra:
            values = values.union(named_secrets(request.settings.extra))
        return secrets_of(values)

    def secret_values(self) -> frozenset[str]:
        """Return the keys that the model sends, and those of this process's environment."""
        own = {self._api_key} if self._api_key else set[str]()
        inner = getattr(self, "_model", None)
        own |= _keys_of(inner) if inner is not None else set()
        return frozenset(own | url_secrets(self._address()) | environment_secrets(os.environ))

    def _address(self) -> str | None:
        """Return the address of the server, if it is known here."""
        return None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


@explains_arguments
class NamedModel(PydanticAIModel):
    """A model of a provider by its name. At the first request it makes its client, one for each event loop.

    Args:
        name: the provider's name for the model.
        base_url: the address of the server, if it is not the provider's own.
        api_key: the secret to send; by default from the environment.
        stream: whether answers are streamed, which some servers do not support. Otherwise each arrives whole, at its
            end, and a limit on silence is a limit on the whole answer.
        idempotency_header: the header in which a gateway takes an idempotency key, such as `Idempotency-Key`. The key
            is the same for each attempt at one question. No provider has such a header for answers.
        finish_reasons: the meanings of finish reasons that only this server uses, such as `{"eot": "stop"}`. An answer
            with an unknown finish reason leads to no action.

    Raises:
        ConfigurationError: an argument is not valid; the message names it.
    """

    provider: ClassVar[str]
    extra: ClassVar[str]
    """the extra that installs the packages"""
    packages: ClassVar[tuple[str, ...]]
    """the packages that have to be installed"""
    home: ClassVar[str]
    """the module of the model class"""
    key_variables: ClassVar[tuple[str, ...]]
    url_variable: ClassVar[str]

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        stream: bool = True,
        finish_reasons: Mapping[str, Finish] | None = None,
        idempotency_header: str | None = None,
    ) -> None:
        if (problem := self._name_problem(name)) is not None:
            raise ConfigurationError(f"{type(self).__name__}: {problem}")
        self.name = f"{self.provider}:{name}"
        self._model_name = name
        if base_url is not None and (problem := url_problem(base_url)) is not None:
            raise ConfigurationError(f"{type(self).__name__}: base_url {problem}")
        self._base_url = base_url
        self._api_key = api_key
        self._streams = stream
        self._finish_words = checked_words(type(self).__name__, finish_reasons)
        if idempotency_header is not None and not is_header(idempotency_header):
            raise ConfigurationError(
                f"{type(self).__name__}: idempotency_header must be the name of a header, got {idempotency_header!r}"
            )
        self._idempotency_header = idempotency_header
        self._models: PerLoop[TheirModel] = PerLoop(self._make, _close)

    def _name_problem(self, name: Any) -> str | None:
        """Return the problem with the name of a model; None if it is valid."""
        if not isinstance(name, str) or not name or name != name.strip():
            return f"name must be the provider's name for the model, got {name!r}"
        prefix, _, rest = name.partition(":")
        if rest and prefix in (self.provider, self.provider.split("-")[0]):
            return f"the name is that of the model alone, {rest!r}, not {name!r}"
        return None

    @property
    def output_mode(self) -> OutputMode:
        return "tool"

    @property
    def service(self) -> str:
        """The service whose failures count together: the provider, and the address unless it is the provider's own."""
        url = self._url()
        if url is None:
            return self.provider
        parts = urlsplit(url)
        return f"{self.provider} at {parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    @property
    def account(self) -> str:
        """The account whose requests count together: the service, and a digest of the key."""
        return f"{self.service} #{sha256(self._key(optional=True).encode()).hexdigest()[:8]}"

    _connect: float | None = None
    _silence: float = SILENCE

    def limit_waits(self, connect: float | None, silence: float | None) -> None:
        """Limit the seconds for a connection and for a silence.

        The shortest limit on a connection counts, and the longest on a silence.

        The limits hold for clients that are made from now on; None sets no limit.
        """
        if connect is not None:
            self._connect = connect if self._connect is None else min(connect, self._connect)
        if silence is not None:  # the layer enforces its limit; the client must not be faster
            self._silence = max(self._silence, silence + 5.0)

    def require(self) -> None:
        """Raise `MissingExtra` if packages of this model are not installed. Imports none of them."""
        if not all(map(installed, ("pydantic_ai", *self.packages))):
            raise MissingExtra(self.extra, f"The model {self.name}")

    def preload(self) -> None:
        """Begin to load the packages of the first request in a thread. The request reports a missing package."""
        if not loading.has_begun(self.home) and all(map(installed, ("pydantic_ai", *self.packages))):
            loading.begin(self.home)

    async def until_loaded(self) -> None:
        """Wait until the packages of the first request and its answer are loaded. The request reports a failure."""
        self.preload()
        if loading.has_begun(self.home):
            with suppress(Exception):
                await loading.until(loading.begin(self.home).answers)

    async def _ready(self) -> TheirModel:
        if self._base_url is None and (url := self._url()) and (problem := url_problem(url)) is not None:
            raise ModelError(f"the model {self.name}: {self.url_variable} {problem}", kind="invalid_request")
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


_KNOWS_NO_SCHEMA = lazy_pattern(r"gpt-3|gpt-4(-|$)|chatgpt|o1-(mini|preview)")
"""Models of OpenAI from before its structured outputs."""


class _AtOpenAI(NamedModel):
    """A model with either of OpenAI's wire formats."""

    extra, packages = "openai", ("openai",)
    key_variables, url_variable = ("OPENAI_API_KEY",), "OPENAI_BASE_URL"

    @property
    def output_mode(self) -> OutputMode:
        # Other servers often support tools or a schema, but drop one of them if a request has both.
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
    """A model with OpenAI's Responses API, also of other servers.

    The provider stores nothing: `store` is false unless the agent's settings say otherwise. The journal holds the
    conversation with the model's encrypted reasoning, and each request carries all of it.

    Args:
        name: the model, such as `gpt-5.4-mini`.
        base_url: the address of the server; by default `OPENAI_BASE_URL`, else OpenAI.
        api_key: by default `OPENAI_API_KEY`; a server at another `base_url` may need none.
        stream: see `NamedModel`.
        finish_reasons: see `NamedModel`.
        idempotency_header: see `NamedModel`.
    """

    provider, home = "openai-responses", "treadle.llm.responses_stream"
    _defaults: ClassVar[Mapping[str, Any]] = {"openai_store": False}

    def _make(self) -> TheirModel:
        from treadle.llm.responses_stream import ResponsesModel

        return ResponsesModel(self._model_name, provider=self._provider())


class OpenAIChat(_AtOpenAI):
    """A model with OpenAI's Chat Completions API, also of other servers (Ollama, vLLM, llama.cpp).

    Args:
        name: the model, such as `gpt-5.4-mini`.
        base_url: the address of the server; by default `OPENAI_BASE_URL`, else OpenAI.
        api_key: by default `OPENAI_API_KEY`; a server at another `base_url` may need none.
        stream: see `NamedModel`.
        finish_reasons: see `NamedModel`.
        idempotency_header: see `NamedModel`.
    """

    provider, home = "openai", "treadle.llm.openai_stream"

    def _make(self) -> TheirModel:
        from treadle.llm.openai_stream import ChatModel

        return ChatModel(self._model_name, provider=self._provider())


class Ollama(OpenAIChat):
    """A model that Ollama runs on this machine or at `OLLAMA_BASE_URL`. It needs no key.

    Args:
        name: the model, such as `qwen3:4b`.
        base_url: by default `OLLAMA_BASE_URL`, else `http://localhost:11434/v1`.
    """

    provider = "ollama"
    key_variables, url_variable = ("OLLAMA_API_KEY",), "OLLAMA_BASE_URL"

    def _settings(self, wire: WireFormat | None, request: ModelRequest) -> dict[str, Any]:
        settings = super()._settings(wire, request)
        if (longest := settings.pop("max_tokens", None)) is not None:
            # Ollama ignores `max_completion_tokens`, the name that the package sends.
            settings["extra_body"] = {"max_tokens": longest, **settings.get("extra_body", {})}
        return settings

    def _url(self) -> str:
        url = (super()._url() or "http://localhost:11434/v1").rstrip("/")
        return url if url.endswith("/v1") else url + "/v1"


class Anthropic(NamedModel):
    """A model with Anthropic's Messages API.

    Args:
        name: the model, such as `claude-sonnet-5-5`.
        base_url: the address of the server; by default `ANTHROPIC_BASE_URL`, else Anthropic.
        api_key: by default `ANTHROPIC_API_KEY`.
        stream: see `NamedModel`.
        finish_reasons: see `NamedModel`.
        idempotency_header: see `NamedModel`.
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


_TAKES_SCHEMA_WITH_TOOLS = lazy_pattern(r"gemini-([3-9]|\d\d)")
"""Models of Google that take a schema for the answer and tools at once."""


class Google(NamedModel):
    """A model with Google's Gemini API.

    Args:
        name: the model, such as `gemini-3.1-flash`.
        base_url: the address of the server; by default `GOOGLE_GEMINI_BASE_URL`, else Google.
        api_key: by default `GOOGLE_API_KEY`, else `GEMINI_API_KEY`.
        stream: see `NamedModel`.
        finish_reasons: see `NamedModel`.
        idempotency_header: see `NamedModel`.
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
    if isawaitable(closing := close()):
        await closing


def is_header(name: object) -> bool:
    """Return whether something can be the name of an HTTP header."""
    return isinstance(name, str) and re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) is not None


def idempotency_key(request: ModelRequest) -> str:
    """Return the key of a question, which is the same for each attempt at it, in any process."""
    parts = (
        (request.task_id, request.step, request.call, request.turn),
        (list(request.messages), request.instructions, list(request.tools), request.tool_choice),
        (request.settings, request.output_schema),
    )
    return sha256(repr(parts).encode()).hexdigest()[:32]


def url_problem(url: object) -> str | None:
    """Return the problem with the address of a server; None for an HTTP address."""
    if not isinstance(url, str):
        return f"must be text, got {url!r}"
    shown = re.sub(r"//[^/@]*@", "//", url)
    if not re.match(r"https?://", url, re.IGNORECASE):
        local = re.match(r"(localhost|127\.|0\.0\.0\.0|10\.|192\.168\.|[^/.]+(:\d+)?(/|\Z))", url)
        hint = "" if "://" in url else f"; did you mean {'http' if local else 'https'}://{shown}?"
        return f"{shown!r} must begin with http:// or https://{hint}"
    return None if urlsplit(url).hostname else f"{shown!r} names no host"


def installed(package: str) -> bool:
    """Return whether a package can be imported, without importing it."""
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False


def _profile(model: TheirModel) -> Mapping[str, Any]:
    try:
        return cast("Mapping[str, Any]", model.profile)
    except NotImplementedError:
        return {}  # a model that chooses among other models has no profile


def _keys_of(model: TheirModel) -> set[str]:
    """Return the secrets that a model's client sends: its key, and those in its address and headers."""
    client: Any = getattr(model, "client", None)
    inner = getattr(client, "_api_client", None)
    secrets = url_secrets(str(getattr(model, "base_url", None) or ""))
    for source in (client, inner):
        for name in ("api_key", "auth_token"):
            if isinstance(key := getattr(source, name, None), str):
                secrets.add(key)
        if isinstance(headers := getattr(source, "_custom_headers", None), Mapping):
            secrets |= named_secrets(cast("Mapping[str, Any]", headers))
    options = getattr(inner, "_http_options", None)
    headers = getattr(options, "headers", None)
    if isinstance(headers, Mapping):
        secrets |= named_secrets(cast("Mapping[str, Any]", headers))
    return secrets


PROVIDERS: Final[Mapping[str, type[NamedModel]]] = {
    "openai": OpenAIChat,
    "openai-chat": OpenAIChat,
    "openai-responses": OpenAI,
    "anthropic": Anthropic,
    "google": Google,
    "ollama": Ollama,
}
"""The classes of providers that have their own, by the provider in the name."""
