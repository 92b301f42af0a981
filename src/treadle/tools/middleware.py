"""Ready-made middleware around tools: results that are cached, redacted, and calls that are timed."""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from threading import Lock
from typing import Any, Final

from treadle.agents.middleware import NextLayer, ToolInvocation, ToolMiddleware
from treadle.core.messages import Json, copied
from treadle.core.observation import whole_error_text
from treadle.core.permits import digest_of
from treadle.core.redaction import with_texts
from treadle.errors import ConfigurationError, ToolError
from treadle.ports import Tool, ToolOutput

ENTRIES: Final = 1_000
"""How many results a cache holds unless it is told otherwise."""

_Key = tuple[int, str]


class _Cache:
    """See `cached`."""

    __name__ = "cached"

    def __init__(
        self,
        ttl: float,
        entries: int,
        by: Callable[[ToolInvocation[Any]], Json] | None,
        clock: Callable[[], float],
    ) -> None:
        self._ttl, self._most, self._by, self._clock = ttl, entries, by, clock
        self._entries: OrderedDict[_Key, tuple[float, Tool, ToolOutput]] = OrderedDict()
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"cached(ttl={self._ttl:g}, entries={self._most})"

    async def __call__(self, call: ToolInvocation[Any], next: NextLayer) -> ToolOutput:
        if not call.spec.read_only or (self._by is None and getattr(call.tool, "takes_context", True)):
            return await next(call)
        other = None if self._by is None else self._by(call)
        # A tool is known by its object, too: methods of two objects are two tools with one definition.
        key = (id(call.tool), digest_of([call.definition(), call.arguments, other]))
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None and self._clock() - entry[0] >= self._ttl:
                entry = self._entries.pop(key) and None
            if entry is not None:
                self._entries.move_to_end(key)
        if entry is not None:
            call.note("cached", {"seconds": round(self._clock() - entry[0], 3)})
            return replace(entry[2], output=copied(entry[2].output))
        result = await next(call)
        with self._lock:
            # The entry holds the tool, so that no other object has its id meanwhile.
            self._entries[key] = self._clock(), call.tool, replace(result, output=copied(result.output))
            self._entries.move_to_end(key)
            if len(self._entries) > self._most:
                self._entries.popitem(last=False)
        return result


def cached(
    *,
    ttl: float,
    entries: int = ENTRIES,
    by: Callable[[ToolInvocation[Any]], Json] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> ToolMiddleware:
    """Return middleware that repeats the results of read-only tools from memory.

    Calls are the same if tool, definition and arguments are. Only tools declared `read_only=True` are cached. A tool
    that takes a `ToolContext` may return something else for another user, so it is cached only with `by`. The event of
    a call that is answered so names `cached`, and its notes say how old the result is.

    Args:
        ttl: seconds that a result is repeated for, more than 0.
        entries: how many results are kept; the one not used for longest goes first.
        by: returns what results depend on besides, as JSON data, such as the user; then all read-only tools are cached.
        clock: returns the time in seconds.

    Raises:
        ConfigurationError: an argument is not valid.
    """
    if isinstance(ttl, bool) or not isinstance(ttl, (int, float)) or not 0 < ttl < float("inf"):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"cached: ttl must be a number of seconds above 0, got {ttl!r}")
    if isinstance(entries, bool) or not isinstance(entries, int) or entries < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"cached: entries must be a whole number from 1 up, got {entries!r}")
    return _Cache(ttl, entries, by, clock)


def timed(
    report: Callable[[ToolInvocation[Any], float], object] | None = None,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> ToolMiddleware:
    """Return middleware that measures what is inside of it, and notes the seconds on the end of the call.

    Args:
        report: is called with the call and the seconds it took, also if it failed or was cancelled.
        clock: returns the time in seconds.
    """

    async def timed(call: ToolInvocation[Any], next: NextLayer) -> ToolOutput:
        began = clock()
        try:
            return await next(call)
        finally:
            seconds = clock() - began
            call.note("timed", {"seconds": round(seconds, 6)})
            if report is not None:
                report(call, seconds)

    return timed


PERSONAL: Final = {
    "email": r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
    "card": r"\b(?:\d[ -]?){12,18}\d\b",
    "iban": r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b",
    "phone": r"(?<!\w)\+\d(?:[ ()/.-]?\d){6,14}\b",
}
"""Patterns that `redacted` knows by name."""


def redacted(*patterns: str | re.Pattern[str], by: str = "[redacted]") -> ToolMiddleware:
    """Return middleware that replaces what matches a pattern in results, errors and progress.

    What it replaces is never journalled, and no model and no watcher sees it. The notes of the call say how often it
    replaced something.

    Args:
        patterns: `email`, `card`, `iban`, `phone`, or regular expressions.
        by: what stands in place of a match.

    Raises:
        ConfigurationError: there is no pattern, or one is not a regular expression.
    """
    if not patterns:
        raise ConfigurationError(
            "redacted: give patterns: 'email', 'card', 'iban', 'phone', or regular expressions"
        )
    ordered = sorted(patterns, key=lambda pattern: pattern == "card")  # its digits stand in an IBAN, too
    try:
        compiled = [
            re.compile(PERSONAL.get(each, each) if isinstance(each, str) else each) for each in ordered
        ]
    except (re.error, TypeError) as error:
        raise ConfigurationError(f"redacted: {error}") from None

    async def redacted(call: ToolInvocation[Any], next: NextLayer) -> ToolOutput:
        count = 0

        def text(value: str) -> str:
            nonlocal count
            for pattern in compiled:
                value, times = pattern.subn(by, value)
                count += times
            return value

        def data(value: bytes) -> bytes:
            try:
                return text(value.decode("utf-8")).encode("utf-8")
            except UnicodeDecodeError:
                return value

        try:
            result = await next(call.with_progress(lambda value: with_texts(value, text, data)))
            result = with_texts(result, text, data)
        except Exception as error:
            message = whole_error_text(error)  # a pattern does not find half of its text beside a cut
            if (shown := text(message)) == message:
                raise
            raise ToolError(shown) from None
        finally:
            if count:
                call.note("redacted", count)
        return result

    return redacted
