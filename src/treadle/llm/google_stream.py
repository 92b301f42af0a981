"""Google's models: one request for each model call, settings with any name, streams read as server-sent events."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from contextvars import ContextVar
from typing import Any, ClassVar, cast

import httpx2
from google.genai import Client
from google.genai.types import GenerateContentConfigDict, HttpOptions
from pydantic_ai.messages import FileUrl, ModelMessage
from pydantic_ai.models import ModelRequestParameters, StreamedResponse
from pydantic_ai.models.google import GoogleModel, GoogleModelSettings
from pydantic_ai.providers.google import GoogleProvider

from treadle.llm.connections import settings, tls

_MILLISECONDS = 1000

NEEDED = ("httpcore", "google.auth.aio.credentials")
"""Modules that the client would import during its first request."""


def prepare_answers() -> None:
    """Do nothing: importing the SDK builds the readers of answers."""


class GeminiModel(GoogleModel):
    """Google's model, without hidden second requests, and with settings unknown to pydantic-ai.

    Args:
        name: the model.
        client: the client of Google's SDK.
        connections: the HTTP client that it uses.
        provider: pydantic-ai's provider object of the client; by default that of the Gemini API.
    """

    unsupported_settings: ClassVar[Any] = GoogleModel.unsupported_settings - {"extra_body"}

    def __init__(
        self, name: str, client: Client, connections: httpx2.AsyncClient, *, provider: Any = None
    ) -> None:
        super().__init__(name, provider=provider or GoogleProvider(client=client))
        self._connections = connections

    @asynccontextmanager
    async def request_stream(self, *args: Any, **options: Any) -> AsyncGenerator[StreamedResponse]:
        """Stream as the parent class does, but close a stream at once if an error left it half read."""
        half_read: list[AsyncGenerator[str]] = []
        _reading.set(half_read)
        try:
            async with super().request_stream(*args, **options) as response:
                yield response
        finally:
            for lines in half_read:
                await lines.aclose()

    async def _build_content_and_config(
        self,
        messages: list[ModelMessage],
        model_settings: GoogleModelSettings,
        model_request_parameters: ModelRequestParameters,
    ) -> tuple[list[Any], GenerateContentConfigDict]:
        contents, config = await super()._build_content_and_config(  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            messages, model_settings, model_request_parameters
        )
        # The SDK would continue a long or broken-off answer with requests of its own.
        config["automatic_continuation"] = False
        if body := model_settings.get("extra_body"):
            cast("dict[str, Any]", config)["http_options"]["extra_body"] = body
        return cast("list[Any]", contents), config

    async def _resolve_file(self, file: Any) -> Any:
        # Google fetches files that have an address. A message must not make this process fetch them.
        if isinstance(file, FileUrl) and not file.force_download:
            return "file", file.url, file.media_type
        return await super()._resolve_file(file)

    async def aclose(self) -> None:
        """Close the connections."""
        self.client.close()
        await self._connections.aclose()


def gemini(name: str, api_key: str, base_url: str | None, *, connect: float, silence: float) -> GeminiModel:
    """Return a model of Google.

    Args:
        name: the model.
        api_key: the secret to send.
        base_url: where the server is, or None for Google.
        connect: seconds a connection may take.
        silence: seconds an answer may be silent.
    """

    async def limit(request: httpx2.Request) -> None:
        # The SDK has one timeout for all phases, but a connection needs a shorter one than an answer.
        request.extensions["timeout"] = httpx2.Timeout(silence, connect=connect).as_dict()

    async def read_as_events(response: httpx2.Response) -> None:
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            lines = _lines(response)
            cast("Any", response).aiter_lines = lambda: lines
            if (half_read := _reading.get(None)) is not None:
                half_read.append(lines)

    hooks = {"request": [limit], "response": [read_as_events]}
    connections = httpx2.AsyncClient(**settings(__name__, event_hooks=hooks))
    options = HttpOptions(
        base_url=base_url,
        httpx_async_client=cast("Any", connections),
        client_args={"verify": tls(), "follow_redirects": False},
        async_client_args={"verify": tls(), "ssl": tls(), "follow_redirects": False},
        timeout=int(silence * _MILLISECONDS),
    )
    return GeminiModel(name, Client(vertexai=False, api_key=api_key, http_options=options), connections)


_reading: ContextVar[list[AsyncGenerator[str]]] = ContextVar("reading")


async def _lines(response: httpx2.Response) -> AsyncGenerator[str]:
    """Yield the lines of a stream of events, as the SDK expects them.

    The SDK reads comments and fields other than `data` as data, and ends lines at Unicode separators inside text.
    """
    partial: list[bytes] = []
    async with aclosing(response.aiter_bytes()) as chunks:
        async for chunk in chunks:
            # A CR at the end of a chunk may be half of a CR LF.
            if b"\n" not in chunk and b"\r" not in chunk and not (partial and partial[-1].endswith(b"\r")):
                partial.append(chunk)
                continue
            *lines, partial_line = _END.split(b"".join((*partial, chunk)))
            partial = [partial_line]
            for line in lines:
                if (data := _data_line(line)) is not None:
                    yield data
    if (data := _data_line(b"".join(partial).removesuffix(b"\r"))) is not None:
        yield data


_END = re.compile(rb"\r\n|\n|\r(?!\Z)")
_NO_DATA = re.compile(rb":|(event|id|retry)(:|\Z)")
_DATA = re.compile(r"data: ?")


def _data_line(line: bytes) -> str | None:
    """Return a line for the SDK, or None if it holds no data."""
    if _NO_DATA.match(line):
        return None
    return _DATA.sub("data: ", line.decode(), count=1) if line.startswith(b"data:") else line.decode()
