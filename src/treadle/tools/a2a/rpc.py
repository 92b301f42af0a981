"""Requests to one A2A server: JSON-RPC over HTTP, to one origin, without redirects, with bounded responses."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncGenerator, Mapping
from functools import cache
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final

import httpx2

from treadle.core.http_bodies import ACCEPTED, bounding
from treadle.core.messages import Json
from treadle.core.redaction import Secrets
from treadle.tools.a2a.remote_task import Card, WrongCard, fields_of, read_card, text_of
from treadle.tools.definitions import clean

if TYPE_CHECKING:
    from collections.abc import Callable

    from treadle.tools.a2a.declaration import AgentDeclaration

MAX_CARD: Final = 256 << 10
"""Most bytes of a card."""

MAX_RESPONSE: Final = 32 << 20
"""Most bytes of a response, or of all events of a stream."""

CONNECT_SECONDS: Final = 10.0
SILENCE: Final = 60.0
"""Seconds without a byte after which a response or a stream counts as lost."""

SHOWN: Final = 2_000
"""Most characters of a server's message."""

NOT_FOUND: Final = -32001


class NotSent(Exception):
    """A request did not reach the server, or the server refused it before any work."""


class AnswerLost(Exception):
    """A request may have been carried out, and its response was lost."""


class Refused(Exception):
    """The server answered with an error of JSON-RPC.

    Args:
        message: the error, cleaned.
        code: its code.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@cache
def _tls() -> ssl.SSLContext:
    """Return the system's TLS context. Loading its certificates takes longer than a request."""
    return httpx2.create_ssl_context()


class RemoteServer:
    """The server of a remote agent, for one call; use it in an `async with` block.

    Args:
        agent: the declaration.
        learn: called with each token before it is sent; None to tell none.
    """

    def __init__(self, agent: AgentDeclaration, learn: Callable[[str], None] | None = None) -> None:
        self._agent = agent
        self._learn = learn
        self._secrets = agent.secrets()
        self._token = ""
        timeout = httpx2.Timeout(SILENCE, connect=CONNECT_SECONDS)
        headers = {**agent.headers, "Accept-Encoding": ACCEPTED, "A2A-Version": "1.0"}
        secure = agent.card_url.startswith("https:")
        self._http = httpx2.AsyncClient(
            headers=headers,
            timeout=timeout,
            follow_redirects=False,
            trust_env=False,
            verify=_tls() if secure else False,
        )
        hook = bounding(httpx2, lambda _: MAX_RESPONSE, lambda _, reason: httpx2.StreamError(reason))
        self._http.event_hooks = {"response": [hook]}

    async def __aenter__(self) -> RemoteServer:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._http.aclose()

    async def _headers(self) -> dict[str, str]:
        auth = self._agent.auth
        if auth is None:
            return {}
        token: Any = auth()
        if isawaitable(token):
            token = await token
        if self._learn is not None and token != self._token:
            self._learn(token)
        self._token = token
        return {"Authorization": f"Bearer {token}"}

    async def card(self) -> Card:
        """Return the agent's card; raises `NotSent` or `WrongCard`."""
        url = self._agent.card_url
        try:
            headers = {**await self._headers(), "Accept": "application/json"}
            async with self._http.stream("GET", url, headers=headers) as response:
                body = await self._whole(response, MAX_CARD)
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            raise NotSent(f"could not be reached: {self.hidden(_reason(error))}") from None
        if response.status_code != 200:
            raise NotSent(f"answered the request for its card with status {response.status_code}")
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            raise WrongCard("has no JSON as its card") from None
        return read_card(document, url)

    async def call(self, card: Card, method: str, params: Mapping[str, Json]) -> Json:
        """Return the result of a method.

        Raises:
            NotSent: it was not carried out.
            AnswerLost: it may have been carried out.
            Refused: the server refused it.
        """
        try:
            async with self._request(card, method, params, await self._headers()) as response:
                self._check_status(response)
                return self._result(await self._whole(response, MAX_RESPONSE))
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            raise self._failure(error) from None

    async def stream(self, card: Card, method: str, params: Mapping[str, Json]) -> AsyncGenerator[Json, None]:
        """Yield the results of a streaming method; raises as `call` does."""
        try:
            async with self._request(card, method, params, await self._headers()) as response:
                self._check_status(response)
                if "text/event-stream" not in response.headers.get("content-type", ""):
                    yield self._result(await self._whole(response, MAX_RESPONSE))
                    return
                data: list[str] = []
                async for line in response.aiter_lines():
                    if line.startswith("data:"):
                        data.append(line[5:].removeprefix(" "))
                    elif not line and data:
                        yield self._result("\n".join(data).encode())
                        data = []
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            raise self._failure(error) from None

    def _request(self, card: Card, method: str, params: Mapping[str, Json], headers: dict[str, str]) -> Any:
        given = {**params, "tenant": card.tenant} if card.tenant else dict(params)
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": given}).encode()
        sent = {
            **headers,
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        return self._http.stream("POST", card.url, content=body, headers=sent)

    async def _whole(self, response: httpx2.Response, most: int) -> bytes:
        pieces: list[bytes] = []
        size = 0
        async for piece in response.aiter_bytes():
            size += len(piece)
            if size > most:
                raise httpx2.StreamError(f"the response has more than {most:,} bytes")
            pieces.append(piece)
        return b"".join(pieces)

    def _check_status(self, response: httpx2.Response) -> None:
        status = response.status_code
        if status == 200:
            return
        if 300 <= status < 400:
            raise NotSent(f"answered with a redirect ({status}), which is not followed")
        if status < 500:
            raise NotSent(f"refused the request with status {status}")
        raise AnswerLost(f"answered with status {status}")

    def _result(self, body: bytes) -> Json:
        try:
            answer = fields_of(json.loads(body))
        except (ValueError, RecursionError):
            raise AnswerLost("answered with something that is no JSON") from None
        if "error" in answer:
            error = fields_of(answer["error"])
            code: Any = error.get("code")
            raise Refused(
                self.hidden(text_of(error.get("message")) or "no reason"), code if type(code) is int else 0
            )
        if "result" not in answer:
            raise AnswerLost("answered with no response of JSON-RPC")
        return answer["result"]

    def _failure(self, error: Exception) -> NotSent | AnswerLost:
        reason = self.hidden(_reason(error))
        if isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.UnsupportedProtocol)):
            return NotSent(f"could not be reached: {reason}")
        return AnswerLost(f"did not answer: {reason}")

    def hidden(self, text: str) -> str:
        """Return a text of the server, shortened, without secrets and hidden characters."""
        secrets = Secrets({self._token}) if self._token else None
        text = self._secrets.hide(clean(text)[: 4 * SHOWN], deep=True)
        return (secrets.hide(text, deep=True) if secrets is not None else text)[:SHOWN]


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
