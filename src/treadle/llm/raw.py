"""The chunks that a provider sends, recorded for callers that ask for raw chunks."""

from __future__ import annotations

from typing import Any

from treadle.core.messages import Json


class ChunkRecorder:
    """A provider's stream that records each chunk until `take` is called. Otherwise it acts as the stream itself.

    Args:
        source: the stream.
    """

    def __init__(self, source: Any) -> None:
        self._source = source
        self._chunks: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def __aiter__(self) -> ChunkRecorder:
        return self

    async def __anext__(self) -> Any:
        chunk = await anext(self._source)
        self._chunks.append(chunk)
        return chunk

    def take(self) -> list[Json]:
        """Return the chunks since the last call, as JSON data."""
        chunks, self._chunks = self._chunks, []
        return [_as_json(chunk) for chunk in chunks]


def record_chunks(response: Any) -> ChunkRecorder | None:
    """Record the chunks of a streamed response of pydantic-ai; return None if its stream cannot be reached."""
    source = getattr(response, "_response", None)
    if source is None or not hasattr(source, "__anext__"):
        return None
    response._response = recorder = ChunkRecorder(source)  # noqa: SLF001  pydantic-ai has no public access to it
    return recorder


def _as_json(chunk: Any) -> Json:
    if hasattr(chunk, "model_dump"):
        return chunk.model_dump(mode="json", exclude_unset=True)
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(chunk, fallback=repr)
