"""The changes of all tasks of a tenant, read once for all interested streams."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

from treadle.runner.runner import TaskRunner
from treadle.server.audience import Audience, Waker
from treadle.server.feed import FeedSettings, tenant_of
from treadle.server.frames import frame

RING: Final = 1_024
"""Maximum number of changes in a feed; above it, the older half is dropped."""

CHUNK: Final = 256
"""Maximum number of changes in one read."""

MISSED: Final = frame("changes_missed", {})
"""Tells a reader that it fell behind and must read the list of tasks again."""

_LOG = logging.getLogger("treadle.server")


class ChangesFeed:
    """Follows the changes of one tenant's tasks.

    Args:
        runner: a runner of that tenant.
        settings: the settings of all feeds.
    """

    def __init__(self, runner: TaskRunner, settings: FeedSettings) -> None:
        self._settings = settings
        self.audience = Audience()
        self.error: BaseException | None = None
        """the error that ended it, if any"""

        self._frames: list[bytes] = []
        self._first = 0
        self._following = asyncio.get_running_loop().create_task(self._follow(runner.changes()))

    @property
    def end(self) -> int:
        """The position after the newest change."""
        return self._first + len(self._frames)

    async def _follow(self, changes: AsyncGenerator[Any, None]) -> None:
        try:
            async with aclosing(changes):
                async for summary in changes:
                    self._frames.append(frame("task_changed", summary, self._settings.hide()))
                    if len(self._frames) > RING:
                        del self._frames[: RING // 2]
                        self._first += RING // 2
                    self.audience.wake_soon(urgent=False)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001  its streams get the error and end
            _LOG.warning("following the changes of tasks failed: %s", error)
            self.error = error
        else:
            self.error = EOFError("the changes of tasks have ended")
        self.audience.wake_soon(urgent=True)

    def take(self, place: int) -> tuple[bytes, int]:
        """Return the frames from a position on, and the position after them."""
        if place < self._first:
            return MISSED, self.end
        frames = self._frames[place - self._first : place - self._first + CHUNK]
        return b"".join(frames), place + len(frames)

    def cancel(self) -> None:
        """Stop following when no stream reads the feed."""
        self._following.cancel()
        self.audience.cancel()


class ChangesReader:
    """The position of a stream in the changes; it begins with the next change.

    Args:
        feed: the feed.
    """

    def __init__(self, feed: ChangesFeed) -> None:
        self.feed = feed
        self._place = feed.end

    def take(self) -> bytes:
        """Return the frames of the changes since the last call."""
        data, self._place = self.feed.take(self._place)
        return data


class ChangesFeeds:
    """The feeds of changes of a server process, one for each tenant that is watched.

    Args:
        settings: the settings of all feeds.
    """

    def __init__(self, settings: FeedSettings | None = None) -> None:
        self._settings = settings or FeedSettings()
        self._feeds: dict[str, ChangesFeed] = {}

    def open(self, runner: TaskRunner, waker: Waker) -> ChangesReader:
        """Return a reader of the changes of a runner's tenant; the stream is woken from now on."""
        tenant = tenant_of(runner)
        feed = self._feeds.get(tenant)
        if feed is None or feed.error is not None:
            feed = self._feeds[tenant] = ChangesFeed(runner, self._settings)
        feed.audience.join(waker, None)
        return ChangesReader(feed)

    def close(self, tenant: str, reader: ChangesReader, waker: Waker) -> None:
        """Remove a stream; the feed stops with its last stream."""
        feed = reader.feed
        feed.audience.leave(waker)
        if not len(feed.audience):
            feed.cancel()
            if self._feeds.get(tenant) is feed:
                del self._feeds[tenant]

    def stop(self) -> None:
        """Stop all feeds when the process ends."""
        for feed in self._feeds.values():
            feed.cancel()
        self._feeds.clear()
