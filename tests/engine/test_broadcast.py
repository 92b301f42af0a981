"""Watchers read one bounded log: those that do not read hold nothing, and slow nothing."""

from __future__ import annotations

import asyncio
import threading
import time
from itertools import pairwise

import pytest

from treadle.core.events import Delta, StepSkipped
from treadle.engine.broadcast import BUFFER, COALESCE_SECONDS, Channel, Stopped

pytestmark = pytest.mark.anyio


def piece(text: str = "x") -> Delta:
    return Delta(step="s1", channel="draft", text=text, after=3)


async def test_a_stalled_watcher_holds_no_deltas_that_it_will_not_see() -> None:
    channel = Channel()
    stalled, other = channel.join(deltas=True), channel.join(deltas=True)
    for _ in range(BUFFER + 500):
        channel.tell(piece())
        assert len(other.take()) == 1
    assert list(stalled.take()) == []
    assert stalled.missed
    stalled.skip()
    channel.publish([Stopped(3)])
    assert [type(item) for item in stalled.take()] == [Stopped]


async def test_a_log_is_bounded_and_empty_without_watchers() -> None:
    channel = Channel()
    watcher = channel.join(deltas=True)
    held = []
    for _ in range(5 * BUFFER):
        channel.tell(piece())
        held.append(len(channel._items))  # pyright: ignore[reportPrivateUsage]
    assert max(held) == BUFFER
    channel.leave(watcher)
    assert channel._items == []  # pyright: ignore[reportPrivateUsage]
    channel.publish([Stopped(3)])
    assert list(channel.join(deltas=True).take()) == []


async def test_a_watcher_without_deltas_is_not_woken_by_them() -> None:
    channel = Channel()
    watcher = channel.join(deltas=False)
    watcher.skip()
    waiting = asyncio.ensure_future(watcher.wait())
    await asyncio.sleep(0)
    assert not channel.listeners
    channel.tell(piece())
    await asyncio.sleep(0.01)
    assert not waiting.done()
    channel.publish([Stopped(3)])
    await asyncio.wait_for(waiting, 10)


async def test_many_watchers_are_woken_for_deltas_now_and_then_and_for_events_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    channel, watchers, milliseconds = Channel(), 100, 0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: milliseconds / 1_000)
    woken: list[int] = []

    async def follow() -> None:
        watcher = channel.join(deltas=True)
        watcher.skip()
        while True:
            await watcher.wait()
            watcher.skip()
            woken.append(milliseconds)

    async def settle() -> None:
        for _ in range(4):
            await asyncio.sleep(0)

    following = [asyncio.ensure_future(follow()) for _ in range(watchers)]
    await settle()
    pause = round(watchers * COALESCE_SECONDS * 1_000)
    for milliseconds in range(4 * pause):  # noqa: B007  the clock of the loop reads it
        channel.tell(piece())
        await settle()
    rounds = woken[::watchers]
    assert len(woken) == len(rounds) * watchers
    assert rounds[0] == 0
    assert [later - earlier for earlier, later in pairwise(rounds)] == [pytest.approx(pause, abs=1)] * 3
    channel.publish([Stopped(3)])
    await settle()
    assert woken[-watchers:] == [milliseconds] * watchers, "long before the pause is over"
    for one in following:
        one.cancel()


async def test_no_wake_up_is_lost_from_any_thread() -> None:
    channel, count = Channel(), 5_000
    watcher = channel.join(deltas=True)
    watcher.skip()
    items: list[object] = []
    given_up = threading.Event()

    def speak() -> None:
        for n in range(count):
            channel.tell(piece(str(n)))
            if n % 50 == 0:
                time.sleep(0.0002)
            while n - len(items) > BUFFER // 4 and not given_up.is_set():
                time.sleep(0.0002)  # the watcher's thread gets no turn: on a busy machine it would miss some
        channel.publish([Stopped(3)])

    speaker = threading.Thread(target=speak)
    speaker.start()
    try:
        async with asyncio.timeout(30):
            while not items or not isinstance(items[-1], Stopped):
                items.extend(watcher.take())
                assert not watcher.missed
                if not items or not isinstance(items[-1], Stopped):
                    await watcher.wait()
    finally:
        given_up.set()
        speaker.join()
    assert [item.text for item in items if isinstance(item, Delta)] == [str(n) for n in range(count)]


async def test_events_that_another_process_wrote_are_shown_once_though_several_looks_read_them() -> None:
    channel = Channel()
    watcher = channel.join(deltas=True)
    channel.shown = 2
    events = [StepSkipped("s1", seq=seq) for seq in range(1, 7)]
    channel.show(events[:4])
    channel.show(events[1:5])
    channel.publish(events[5:])
    channel.show(events)
    assert [item.seq for item in watcher.take()] == [3, 4, 5, 6]
    assert channel.shown == 6


async def test_a_watcher_that_missed_events_is_told_so_until_it_has_read_them() -> None:
    channel = Channel()
    watcher = channel.join(deltas=True)
    channel.look_again(missed=True)
    channel.look_again()
    assert watcher.missed
