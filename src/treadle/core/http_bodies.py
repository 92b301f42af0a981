"""Decode bodies of HTTP responses in bounded pieces, since a short body may decompress to a huge one.

A gzip stream of 1 MB can hold 1 GB. An HTTP library decodes a chunk when it arrives and joins the pieces. So a bound on
the size on the wire bounds neither memory nor time. `decoded` bounds the decoder's output instead. It yields pieces of
at most `PIECE` bytes and lets the event loop run between them. It stops at the first byte beyond the bound.

    response.stream --> decoded(...) --> pieces --> the HTTP library, which finds no encoding left

Two encodings are offered, one at a time: `gzip` and `deflate`. A response in any other encoding, or in several, is
refused.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from typing import Any, Final

PIECE: Final = 1 << 16
"""The number of bytes that are decoded at a time."""

ACCEPTED: Final = "gzip, deflate"
"""The encodings that a client offers, as a value of the header `Accept-Encoding`."""

_GZIP: Final = zlib.MAX_WBITS | 16
_ZLIB: Final = zlib.MAX_WBITS
_RAW: Final = -zlib.MAX_WBITS


class BodyRefused(Exception):
    """A body is too long, or has an unsupported encoding. The message is about the response."""


def checked_encoding(header: str) -> str:
    """Return the one encoding of a response: `gzip`, `deflate` or an empty string.

    Args:
        header: the values of `Content-Encoding`, joined by commas.

    Raises:
        BodyRefused: there is another encoding, or several.
    """
    names = [name for each in header.lower().split(",") if (name := each.strip()) not in ("", "identity")]
    if not names:
        return ""
    encoding = "gzip" if names[0] == "x-gzip" else names[0]
    if len(names) > 1 or encoding not in ("gzip", "deflate"):
        raise BodyRefused(f"the response is encoded as {header[:80]!r}, which was not offered")
    return encoding


class Decoder:
    """Decodes one body, at most `PIECE` bytes at a time.

    Args:
        encoding: `gzip`, `deflate`, or an empty string for none.
    """

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._inner: Any = None
        self._had_one = False

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the decoded pieces of a chunk of the body. Raises `BodyRefused` if it cannot be decoded."""
        if not self._encoding:
            for start in range(0, len(chunk), PIECE):
                yield chunk[start : start + PIECE]
            return
        # Several gzip streams may follow one another, and zeros after them; a deflate body is one stream.
        rest, has_more = chunk.lstrip(b"\0") if self._had_one and self._inner is None else chunk, False
        while (rest or has_more) and not (self._had_one and self._encoding == "deflate"):
            piece, rest = self._step(rest)
            has_more = len(piece) == PIECE and self._inner is not None
            if piece:
                yield piece

    def check_end(self) -> None:
        """Raise `BodyRefused` if the body ended in the middle of its encoding."""
        if self._inner is not None:
            raise BodyRefused(f"the response ends in the middle of its encoding, {self._encoding}")

    def _step(self, data: bytes) -> tuple[bytes, bytes]:
        """Return the next piece, and the remaining bytes of the body."""
        if self._inner is None:
            wbits = _GZIP if self._encoding == "gzip" else _ZLIB if _has_zlib_head(data) else _RAW
            self._inner = zlib.decompressobj(wbits)
        inner = self._inner
        try:
            piece: bytes = inner.decompress(data, PIECE)
        except zlib.error as error:
            raise BodyRefused(f"the response cannot be decoded as {self._encoding}: {error}") from None
        if not inner.eof:
            return piece, inner.unconsumed_tail
        self._inner, self._had_one = None, True
        return piece, inner.unused_data.lstrip(b"\0")


def _has_zlib_head(data: bytes) -> bool:
    """Return whether a deflate body begins with a zlib header. The standard demands it, but some servers omit it."""
    return data[0] & 0x8F == 8 and (len(data) == 1 or int.from_bytes(data[:2], "big") % 31 == 0)


class _OtherTasks:
    """An awaitable that lets the other tasks of the event loop run once, like `asyncio.sleep(0)`."""

    def __await__(self) -> Generator[None]:
        yield


async def decoded(chunks: Any, encoding: str, most: int | None) -> AsyncIterator[bytes]:
    """Yield the decoded body of a response in pieces.

    Args:
        chunks: the encoded body, an async iterable of bytes.
        encoding: as `checked_encoding` returns it.
        most: the most bytes of the decoded body. None: no bound.

    Raises:
        BodyRefused: the body has more bytes, or cannot be decoded.
    """
    decoder, size = Decoder(encoding), 0
    async for chunk in chunks:
        is_first = True
        for piece in decoder.pieces(chunk):
            if not is_first:
                await _OtherTasks()
            is_first = False
            size += len(piece)
            if most is not None and size > most:
                raise BodyRefused(f"the response has more than {most:,} bytes")
            yield piece
    decoder.check_end()


def bounding(
    library: Any,
    most: Callable[[Any], int | None],
    refusal: Callable[[Any, str], Exception],
    watcher: Callable[[Any], Callable[[bytes], None] | None] | None = None,
) -> Callable[[Any], Awaitable[None]]:
    """Return a response hook for clients of `httpx2` or `httpx` that bounds each body before its first read.

    It must be the first hook of the client.

    Args:
        library: the module `httpx2` or `httpx`.
        most: returns the most bytes of a response's decoded body. None: no bound.
        refusal: returns the error for a refused response, from the response and the reason.
        watcher: returns a function that gets each decoded piece of a response, or None.
    """

    class Body(library.AsyncByteStream):
        def __init__(self, response: Any, encoding: str) -> None:
            self._response, self._inner, self._encoding = response, response.stream, encoding
            self._watch = None if watcher is None else watcher(response)

        async def __aiter__(self) -> AsyncIterator[bytes]:
            watch = self._watch
            try:
                async for piece in decoded(self._inner, self._encoding, most(self._response)):
                    if watch is not None:
                        watch(piece)
                    yield piece
            except BodyRefused as error:
                raise refusal(self._response, str(error)) from None

        async def aclose(self) -> None:
            await self._inner.aclose()

    async def bound(response: Any) -> None:
        try:
            encoding = checked_encoding(response.headers.get("content-encoding", ""))
        except BodyRefused as error:
            raise refusal(response, str(error)) from None
        response.stream = Body(response, encoding)
        response.headers.pop("content-encoding", None)
        response.headers.pop("content-length", None)

    return bound
