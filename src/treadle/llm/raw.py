"""What a provider sends, noted on its way, for those who want to see it as it comes."""

from __future__ import annotations

from typing import Any

from treadle.core.messages import Json


class Tap:
    """A stream of a provider's chunks that keeps each until it is taken; else it is the stream itself.

    Args:
        source: the stream.
    """

    def __init__(self, source: Any) -> None:
        self._source = source
        self._seen: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def __aiter__(self) -> Tap:
        return self

    async def __anext__(self) -> Any:
        chunk = await anext(self._source)
        self._seen.append(chunk)
        return chunk

    def take(self) -> list[Json]:
        """Return what came since the last time, as JSON data."""
        seen, self._seen = self._seen, []
        return [_as_json(chunk) for chunk in seen]


def tapped(response: Any) -> Tap | None:
    """Put a tap into a streamed response of pydantic-ai; None if this kind of model shows nobody its stream."""
    source = getattr(response, "_response", None)
    if source is None or not hasattr(source, "__anext__"):
        return None
    response._response = tap = Tap(source)  # noqa: SLF001  there is no other way in
    return tap


def _as_json(chunk: Any) -> Json:
    if hasattr(chunk, "model_dump"):
        return chunk.model_dump(mode="json", exclude_unset=True)
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(chunk, fallback=repr)
