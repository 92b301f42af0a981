"""Ready-made tool middleware: caching, redaction, timing."""

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
"""Default size of a cache, in results."""

_Key = tuple[int, str]


class _Cache:
    """The middleware that `cached` returns."""

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
        # The key has the tool's identity too: bound methods of two objects are two tools with the same definition.
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
            # The entry references the tool, so that its id is not reused for another object.
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
    """Return middleware that caches the results of read-only tools.

    A call is cached by tool, definition and arguments. The result of a tool that takes a `ToolContext` may also depend
    on the user. So it is cached only if `by` is set. The event of a call that the cache answered names `cached` and
    notes the age of the result.

    Args:
        ttl: seconds until an entry expires, more than 0.
        entries: the size of the cache, in results. The least recently used entry is evicted first.
        by: returns a further part of the key as JSON data, such as the user. Tools with a `ToolContext` need it.
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
    """Return middleware that measures a call and notes its seconds on the call's end event.

    Args:
        report: called with the call and its seconds, even if the call failed or was cancelled.
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
"""Patterns that `redacted` accepts by name."""


def redacted(*patterns: str | re.Pattern[str], by: str = "[redacted]") -> ToolMiddleware:
    """Return middleware that replaces matches of patterns in results, errors and progress.

    The matched text reaches neither the journal nor a model nor a watcher. The call's notes count the replacements.

    Args:
        patterns: `email`, `card`, `iban`, `phone`, or regular expressions.
        by: the replacement for a match.

    Raises:
        ConfigurationError: no pattern, or an invalid regular expression.
    """
    if not patterns:
        raise ConfigurationError(
            "redacted: give patterns: 'email', 'card', 'iban', 'phone', or regular expressions"
        )
    ordered = sorted(
        patterns, key=lambda pattern: pattern == "card"
    )  # last: its digits also match part of an IBAN
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
            message = whole_error_text(error)  # whole: a pattern does not match a text that was cut
            if (redacted_message := text(message)) == message:
                raise
            raise ToolError(redacted_message) from None
        finally:
            if count:
                call.note("redacted", count)
        return result

    return redacted
