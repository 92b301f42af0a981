"""Event streams of tasks over HTTP: places, resuming, ends, bounds, and that watching affects no task."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.cast import Gate, gate_agent, look, repeat, scripted_agent
from tests.runner.acts import to_pause, until
from tests.server.hosting import hosted
from tests.server.sse import Frame, frames
from treadle import Agent, Runner, RunOptions, ScriptedModel
from treadle.core.journal import unfold
from treadle.errors import TaskNotFound
from treadle.llm.scripted import call
from treadle.runner import stored_events
from treadle.server import feed as feeds
from treadle.server.frames import cursor_of, cut_size, cut_texts, places_of
from treadle.server.holding import Holds
from treadle.server.limits import ServerLimits
from treadle.server.problems import Problem
from treadle.server.streams import Streams, first_place, first_places

pytestmark = pytest.mark.anyio


class Site:
    """A server of streams alone, and a client of it."""

    def __init__(self, runner: Runner, streams: Streams, client: httpx2.AsyncClient) -> None:
        self.runner, self.streams, self.client = runner, streams, client

    @asynccontextmanager
    async def open(
        self, task: str, last: int | None = None, **query: Any
    ) -> AsyncIterator[AsyncIterator[Frame]]:
        headers = {} if last is None else {"Last-Event-ID": str(last)}
        url = f"/v1/tasks/{task}/events"
        async with self.client.stream("GET", url, params=query, headers=headers) as response:
            assert response.status_code == 200, await response.aread()
            assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
            yield frames(response.aiter_bytes())

    async def all(self, task: str, last: int | None = None, **query: Any) -> list[Frame]:
        async with self.open(task, last, **query) as stream:
            return [frame async for frame in stream]


@asynccontextmanager
async def site(runner: Runner, limits: ServerLimits | None = None) -> AsyncIterator[Site]:
    streams = Streams(limits)

    async def events(request: Request) -> Response:
        query = request.query_params
        try:
            after = first_place(request.headers.get("last-event-id"), int(query.get("after", "0")))
            return await streams.of_task(
                runner,
                request.path_params["task"],
                principal=query.get("principal", "me"),
                after=after,
                deltas=query.get("deltas") != "0",
                until_rest=query.get("until") == "rest",
                cut=int(query["cut"]) if "cut" in query else None,
            )
        except Problem as refusal:
            return JSONResponse({"detail": refusal.detail, **refusal.fields}, refusal.status)
        except TaskNotFound as error:
            return JSONResponse({"detail": str(error)}, 404)

    async def stream(request: Request) -> Response:
        query = request.query_params
        last = request.headers.get("last-event-id")
        try:
            places = first_places(last, query.getlist("task"))
            return await streams.of_several(
                runner, places, principal="me", changes="changes" in query, resumes=bool(last)
            )
        except Problem as refusal:
            return JSONResponse({"detail": refusal.detail, **refusal.fields}, refusal.status)
        except TaskNotFound as error:
            return JSONResponse({"detail": str(error)}, 404)

    app = Starlette(routes=[Route("/v1/tasks/{task}/events", events), Route("/v1/stream", stream)])

    async def leave(grace: float) -> None:
        streams.leave()
        await streams.closed(1.0)

    async with hosted(app, leave, limits) as client:
        yield Site(runner, streams, client)
    streams.stop()


def numbers(told: list[Frame]) -> list[int]:
    return [frame.seq for frame in told if frame.seq is not None]


def steps(count: int) -> Agent[Any]:
    return scripted_agent(*[call("look")] * (count - 1), "done", tools=[look])


def gated(turns: int = 2) -> tuple[Gate, Agent[Any]]:
    """Return a gate, and an agent that calls it in each turn but the last."""
    gate = Gate(read_only=True)
    return gate, gate_agent(gate, *[call("work")] * (turns - 1), "the end")


# ------------------------------------------------------------------------------------------------- a whole run


async def test_a_stream_begins_with_retry_and_how_the_task_stands_then_tells_every_event_once(runner: Runner):
    result = await runner.run(steps(3), "Go.")
    head = (await runner.get_task(result.task_id)).head
    async with site(runner) as server:
        told = await server.all(result.task_id, until="rest")
    assert told[0].retry is not None
    assert told[1].event == "task_stood"
    assert told[1].data["head"] == head
    assert not told[1].data["driven"]
    assert numbers(told) == list(range(1, head + 1))
    assert [frame.id for frame in told if frame.event == "task_stood"] == [None]
    assert [frame.event for frame in told if frame.seq == head] == ["task_ended"]
    assert all(frame.data["kind"] == frame.event for frame in told if frame.event)


async def test_every_place_of_a_run_can_be_resumed_from(runner: Runner):
    result = await runner.run(steps(4), "Go.")
    head = (await runner.get_task(result.task_id)).head
    async with site(runner) as server:
        for place in range(head + 1):
            told = await server.all(result.task_id, place, until="rest")
            assert numbers(told) == list(range(place + 1, head + 1))
        assert numbers(await server.all(result.task_id, until="rest", after=head - 2)) == [head - 1, head]


async def test_last_event_id_counts_before_after():
    assert first_place("7", 3) == 7
    assert first_place(None, 3) == 3
    assert first_place("") == 0
    for garbage in ("x", "-1", "1.0", "٣", "1" * 16, "7 "):
        with pytest.raises(Problem) as refused:
            first_place(garbage, 0)
        assert refused.value.status == 400


async def test_a_place_ahead_of_the_journal_is_refused_with_its_head(runner: Runner):
    result = await runner.run(steps(1), "Go.")
    head = (await runner.get_task(result.task_id)).head
    async with site(runner) as server:
        refused = await server.client.get(f"/v1/tasks/{result.task_id}/events", params={"after": head + 1})
        assert (refused.status_code, refused.json()["head"]) == (409, head)
        missing = await server.client.get("/v1/tasks/none/events")
        assert missing.status_code == 404
        assert len(server.streams) == 0


async def test_a_stream_goes_on_over_a_pause_and_tells_that_the_task_rests(runner: Runner):
    gate, agent = gated(3)
    async with site(runner) as server:
        handle = await runner.start(agent, "Go.")
        async with server.open(handle.task_id) as stream:
            await gate.entered.wait()
            pausing = asyncio.ensure_future(runner.pause(handle.task_id))
            await to_pause(runner, handle.task_id)
            gate.let_go.set()
            await pausing
            told: list[Frame] = []
            async for frame in stream:
                told.append(frame)
                if frame.event == "task_stood" and not frame.data["driven"]:
                    break
            assert told[-1].data["state"] == "paused"
            assert numbers(told)[-1] == told[-1].data["head"]
            resuming = asyncio.ensure_future(runner.resume(handle.task_id, agent=agent))
            async for frame in stream:
                told.append(frame)
                if frame.event == "task_stood" and not frame.data["driven"]:
                    break
            await resuming
            head = (await runner.get_task(handle.task_id)).head
            assert numbers(told) == list(range(1, head + 1))


async def test_deltas_are_told_live_without_an_id_and_left_out_on_request(runner: Runner):
    gate, agent = gated(2)
    async with site(runner) as server:
        handle = await runner.start(agent, "Go.")
        await gate.entered.wait()
        with_deltas = asyncio.ensure_future(server.all(handle.task_id, until="rest"))
        without = asyncio.ensure_future(server.all(handle.task_id, until="rest", deltas=0))
        await until(lambda: len(server.streams) == 2)
        gate.let_go.set()
        told, plain = await with_deltas, await without
    text = "".join(frame.data["text"] for frame in told if frame.event == "delta")
    assert text == "the end"
    assert {frame.id for frame in told if frame.event == "delta"} == {None}
    assert "delta" not in [frame.event for frame in plain]
    assert numbers(told) == numbers(plain)


async def test_a_deleted_task_ends_its_streams_with_the_reason(runner: Runner):
    task = await runner.create_task(steps(1), "Go.")
    async with site(runner) as server, server.open(task.task_id) as stream:
        told: list[Frame] = []
        async for frame in stream:
            told.append(frame)
            if frame.seq == task.head:
                await runner.delete_task(task.task_id)
        assert told[-1].event == "leaving"
        assert told[-1].data == {"reason": "deleted"}
        refused = await server.client.get(f"/v1/tasks/{task.task_id}/events")
        assert refused.status_code == 404


# --------------------------------------------------------------------------------------------------- its bounds


async def test_a_reader_that_fell_out_of_the_ring_is_given_the_rest_from_the_journal(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(feeds, "RING_ENTRIES", 8)
    monkeypatch.setattr(feeds, "PAGE", 3)
    gate, agent = gated(2)
    waker = feeds.Waker()
    handle = await runner.start(agent, "Go.")
    await gate.entered.wait()
    registry = feeds.Feeds()
    followed, head = await registry.open(runner, handle.task_id, waker, None)
    place = followed.place_after(head)
    assert place is not None
    gate.let_go.set()
    await handle.result()
    end = (await runner.get_task(handle.task_id)).head
    await until(lambda: followed.newest == end)
    assert followed.take(place, "all") is None or followed.base <= head
    async with site(runner) as server:
        told = await server.all(handle.task_id, until="rest")
    assert numbers(told) == list(range(1, end + 1))
    registry.close("", followed, waker)
    registry.stop()


async def test_streams_of_one_task_share_one_feed_and_leave_nothing_behind(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(feeds, "LINGER_SECONDS", 0.05)
    gate, agent = gated(2)
    async with site(runner) as server:
        handle = await runner.start(agent, "Go.")
        await gate.entered.wait()
        reading = [asyncio.ensure_future(server.all(handle.task_id, until="rest")) for _ in range(20)]
        await until(lambda: len(server.streams) == 20)
        assert len(server.streams.feeds) == 1
        gate.let_go.set()
        told = await asyncio.gather(*reading)
        assert len({tuple(numbers(each)) for each in told}) == 1
        await until(lambda: not len(server.streams) and not len(server.streams.feeds))
    assert not runner._driver.owned.channels._channels  # pyright: ignore[reportPrivateUsage]


async def test_a_stream_that_is_dropped_leaves_nothing_behind_and_the_run_alone(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(feeds, "LINGER_SECONDS", 0.05)
    gate, agent = gated(2)
    async with site(runner) as server:
        handle = await runner.start(agent, "Go.")
        await gate.entered.wait()
        for _ in range(30):
            async with server.open(handle.task_id) as stream:
                await anext(aiter(stream))
        await until(lambda: not len(server.streams) and not len(server.streams.feeds))
        gate.let_go.set()
        assert (await handle.result()).state == "completed"


async def test_streams_are_counted_by_principal_and_in_all(runner: Runner):
    task = await runner.create_task(steps(1), "Go.")
    async with site(runner, ServerLimits(streams_per_principal=2, streams=3)) as server:
        url = f"/v1/tasks/{task.task_id}/events"
        async with server.open(task.task_id), server.open(task.task_id) as stream:
            await anext(aiter(stream))
            assert (await server.client.get(url)).status_code == 429
            async with server.open(task.task_id, principal="another"):
                assert (await server.client.get(url, params={"principal": "a third"})).status_code == 503
        await until(lambda: not len(server.streams))
        async with server.open(task.task_id) as stream:
            await anext(aiter(stream))


async def test_a_quiet_stream_sends_comments_and_ends_after_its_time(runner: Runner):
    task = await runner.create_task(steps(1), "Go.")
    limits = ServerLimits(heartbeat_seconds=0.05, stream_seconds=0.4)
    async with site(runner, limits) as server:
        told = await server.all(task.task_id)
    assert [frame.comment for frame in told].count("still here") >= 2
    assert told[-1].data == {"reason": "time"}
    assert told[-2].retry is not None


async def test_a_server_that_leaves_ends_its_streams_with_a_word(runner: Runner):
    task = await runner.create_task(steps(1), "Go.")
    async with site(runner) as server:
        reading = asyncio.ensure_future(server.all(task.task_id))
        await until(lambda: len(server.streams))
        server.streams.leave()
        async with asyncio.timeout(10):
            told = await reading
        assert told[-1].data == {"reason": "shutdown"}
        refused = await server.client.get(f"/v1/tasks/{task.task_id}/events")
        assert refused.status_code == 503


async def test_a_store_that_fails_ends_the_stream_with_the_error_and_not_with_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("treadle.runner.shared_look.REST_SECONDS", 0.05)
    runner = Runner(tmp_path / "journal.db")
    task = await runner.create_task(steps(1), "Go.")
    async with site(runner) as server, server.open(task.task_id) as stream:
        told: list[Frame] = []
        async for frame in stream:
            told.append(frame)
            if frame.seq == task.head:
                await runner.aclose()
        assert told[-1].event == "leaving"
        assert told[-1].data == {"reason": "error", "error": "StoreUnavailable"}


# ---------------------------------------------------------------------------------------------- several tasks


async def test_one_stream_follows_several_tasks_and_one_id_resumes_them_all(runner: Runner):
    (first, one_agent), (second, other_agent) = gated(), gated()
    async with site(runner) as server:
        one = await runner.start(one_agent, "Go.", task_id="a task: 1")
        two = await runner.start(other_agent, "Go.", task_id="another/2")
        await first.entered.wait()
        await second.entered.wait()
        query = [("task", "a task: 1:0"), ("task", "another/2:0")]
        told: list[Frame] = []
        async with server.client.stream("GET", "/v1/stream", params=query) as response:
            async for frame in frames(response.aiter_bytes()):
                told.append(frame)
                if {each.data["task_id"] for each in told if each.event == "tool_started"} == {
                    one.task_id,
                    two.task_id,
                }:
                    break
        last = next(frame.id for frame in reversed(told) if frame.id is not None)
        first.let_go.set()
        second.let_go.set()
        await one.result()
        await two.result()
        ends: set[str] = set()
        async with server.client.stream("GET", "/v1/stream", headers={"Last-Event-ID": last}) as response:
            async for frame in frames(response.aiter_bytes()):
                told.append(frame)
                if frame.event == "task_ended":
                    ends.add(frame.data["task_id"])
                if len(ends) == 2:
                    break
        for handle in (one, two):
            head = (await runner.get_task(handle.task_id)).head
            mine = [each for each in told if each.id is not None and each.data["task_id"] == handle.task_id]
            assert [each.data["seq"] for each in mine] == list(range(1, head + 1))
        await until(lambda: not len(server.streams))


async def test_a_stream_of_several_goes_on_when_one_of_them_is_deleted(runner: Runner):
    kept, dropped = [await runner.create_task(steps(1), "Go.") for _ in range(2)]
    async with site(runner) as server:
        query = [("task", f"{kept.task_id}:0"), ("task", f"{dropped.task_id}:0")]
        async with server.client.stream("GET", "/v1/stream", params=query) as response:
            async for frame in frames(response.aiter_bytes()):
                if frame.id == cursor_of([(kept.task_id, kept.head), (dropped.task_id, dropped.head)]):
                    await runner.delete_task(dropped.task_id)
                if frame.event == "gone":
                    assert frame.data == {"task_id": dropped.task_id}
                    await runner.cancel(kept.task_id)
                if frame.event == "task_ended":
                    assert frame.data["task_id"] == kept.task_id
                    break


async def test_a_deleted_task_kept_a_reader_of_several_from_going_on(runner: Runner):
    kept, deleted, anew = [await runner.create_task(steps(1), "Go.", task_id=each) for each in "abc"]
    await runner.cancel(anew)  # so that the next task of its id has fewer events
    place = cursor_of([(deleted.task_id, 1), (anew.task_id, 3), (kept.task_id, 0)])
    await runner.delete_task(deleted)
    await runner.delete_task(anew)
    await runner.create_task(steps(1), "Go.", task_id=anew.task_id)
    async with site(runner) as server:
        told: list[Frame] = []
        async with server.client.stream("GET", "/v1/stream", headers={"Last-Event-ID": place}) as response:
            async for frame in frames(response.aiter_bytes()):
                told.append(frame)
                if frame.event == "task_created":
                    break
        assert [frame.data["task_id"] for frame in told if frame.event == "gone"] == ["b", "c"]
        assert (told[-1].data["task_id"], told[-1].id) == ("a", cursor_of([("a", 1)]))
        assert (await server.client.get("/v1/stream", params={"task": "b:1"})).status_code == 404


async def test_a_task_that_was_deleted_while_it_was_read_ended_the_stream_of_several(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
):
    kept, dropped = [await runner.create_task(steps(1), "Go.", task_id=each) for each in "ab"]
    read = feeds.Feed._read

    async def read_late(feed: feeds.Feed, after: int) -> Any:
        if feed.task_id == dropped.task_id:
            await runner.delete_task(dropped)
        return await read(feed, after)

    monkeypatch.setattr(feeds.Feed, "_read", read_late)
    async with site(runner) as server:
        query = [("task", "b:0"), ("task", "a:0")]
        told: list[Frame] = []
        async with server.client.stream("GET", "/v1/stream", params=query) as response:
            async for frame in frames(response.aiter_bytes()):
                told.append(frame)
                if {each.event for each in told} >= {"gone", "task_created"}:
                    break
        assert [frame.data for frame in told if frame.event == "gone"] == [{"task_id": "b"}]
        assert told[-1].event == "gone" or told[-1].data["task_id"] == kept.task_id


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ([], "name a task"),
        ([("task", f"t{number}:0") for number in range(9)], "up to 8 tasks"),
        ([("task", "t:0"), ("task", "t:1")], "is named once"),
    ],
)
async def test_a_stream_of_no_task_of_too_many_or_of_one_twice_is_refused(
    runner: Runner, query: list[tuple[str, str]], says: str
):
    async with site(runner) as server:
        response = await server.client.get("/v1/stream", params=query)
        assert (response.status_code, says in response.json()["detail"]) == (400, True)
        assert len(server.streams) == 0


async def test_a_place_of_several_tasks_is_written_and_read_back():
    places = [("a task: 1", 3), ("another/2", 0), ("ü%20", 7)]
    assert places_of(cursor_of(places)) == places
    assert " " not in cursor_of(places[:1])
    for garbage in ("x", "a:", ":3", "a:-1", "a:1 b"):
        with pytest.raises(ValueError, match="is no"):
            places_of(garbage)


# ---------------------------------------------------------------------------------------------------- holding


@pytest.mark.parametrize(("stop", "state"), [("interrupt", "interrupted"), ("cancel", "cancelled")])
async def test_a_task_stops_once_no_stream_holds_it_any_more_if_its_creator_asked_for_that(
    runner: Runner, stop: Any, state: str
):
    (gate, agent), holds = gated(), Holds(0.1)
    handle = await runner.start(agent, "Go.", options=RunOptions(on_disconnect=stop))
    await gate.entered.wait()
    hold = await holds.holder(runner, handle.task_id)
    assert hold is not None
    first, second = hold(), hold()
    first()
    await asyncio.sleep(0.2)
    second()
    third = hold()  # a reader that came back in time
    await asyncio.sleep(0.2)
    assert (await runner.get_task(handle.task_id)).state == "running"
    third()
    assert (await handle.result()).state == state


async def test_a_hold_on_a_deleted_task_stopped_the_next_task_of_its_id(runner: Runner):
    options, holds = RunOptions(on_disconnect="cancel"), Holds(0.05)
    held = await runner.create_task(steps(1), "Go.", task_id="a", options=options)
    hold = await holds.holder(runner, held.task_id)
    assert hold is not None
    let_go = hold()
    await runner.delete_task(held)
    await runner.create_task(steps(1), "Go.", task_id="a")
    let_go()
    await asyncio.sleep(0.2)
    assert (await runner.get_task("a")).state == "created"


async def test_no_stream_holds_a_task_without_on_disconnect(runner: Runner):
    task = await runner.create_task(steps(1), "Go.")
    other = await runner.create_task(steps(1), "Go.", options=RunOptions(on_disconnect="continue"))
    holds = Holds(0.1)
    assert await holds.holder(runner, task.task_id) is None
    assert await holds.holder(runner, other.task_id) is None
    with pytest.raises(TaskNotFound):
        await holds.holder(runner, "none")


async def test_a_server_that_leaves_stops_no_task(runner: Runner):
    (gate, agent), holds = gated(), Holds(0.05)
    handle = await runner.start(agent, "Go.", options=RunOptions(on_disconnect="cancel"))
    await gate.entered.wait()
    hold = await holds.holder(runner, handle.task_id)
    assert hold is not None
    hold()()
    holds.leave()
    await asyncio.sleep(0.15)
    gate.let_go.set()
    assert (await handle.result()).state == "completed"


# ------------------------------------------------------------------------------------------------------ cutting


async def test_long_texts_are_cut_on_request_and_say_where_all_of_them_is(runner: Runner):
    result = await runner.run(Agent(ScriptedModel(["a" * 5_000])), "b" * 5_000)
    async with site(runner) as server:
        whole = await server.all(result.task_id, until="rest")
        cut = await server.all(result.task_id, until="rest", cut=1_500)
    assert numbers(whole) == numbers(cut)
    assert "a" * 5_000 in "".join(frame.text or "" for frame in whole)
    text = "".join(frame.text or "" for frame in cut)
    assert "a" * 1_025 not in text
    returned = next(frame for frame in cut if frame.event == "model_returned")
    mark = {"chars": 5_000, "head": "a" * 200, "href": f"/v1/tasks/{result.task_id}/events/{returned.seq}"}
    assert json.dumps(mark, separators=(",", ":")) in (returned.text or "")


def test_a_cut_shares_what_it_leaves_and_takes_texts_at_any_depth():
    document = {"a": ["x" * 300, 1, None, {"b": "y" * 256}]}
    cut = {"$cut": {"chars": 300, "head": "x" * 200, "href": "/e"}}
    assert cut_texts(document, 256, "/e") == {"a": [cut, 1, None, {"b": "y" * 256}]}
    assert [cut_size(size) for size in (None, 256, 8_192, 8_200, 1 << 20)] == [
        None,
        256,
        8_192,
        8_192,
        1 << 20,
    ]


async def test_a_late_reader_has_each_record_decoded_once(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page of a stream had 64 events and decoded its whole record: five times in turn for one of 320 events."""
    script = [call("repeat", what=str(n)) for n in range(40)]
    agent = scripted_agent(*script, "Done.", tools=[repeat])
    result = await runner.run(agent, "Look around.")
    head, records = (await runner.get_task(result.task_id)).head, await runner.store.read(result.task_id)
    decoded = list[int]()

    def noted(task_id: str, records: Any, **more: Any) -> Any:
        decoded.extend(record.seq for record in records)
        return unfold(task_id, records, **more)

    monkeypatch.setattr(stored_events, "unfold", noted)
    registry, waker = feeds.Feeds(), feeds.Waker()
    feed, _ = await registry.open(runner, result.task_id, waker, None)
    reader, numbers_read = feeds.Reader(feed, 0, deltas=False, cut=None), list[int]()
    while (page := await reader.stored()) is not None and page.entries:
        assert len(page.entries) <= feeds.PAGE
        numbers_read += [entry.after for entry in page.entries]
        reader.last = numbers_read[-1]
    assert numbers_read == list(range(1, head + 1))
    assert len(decoded) <= len(records) + 1, "and one is searched for the agent"
    registry.close("", feed, waker)
    registry.stop()


async def test_a_stopped_task_is_at_rest_for_a_reader_of_all_its_events_alone():
    async with Runner("memory:") as runner:
        task = (await runner.run(steps(1), "Go.")).task_id
        head = (await runner.get_task(task)).head
        feed = feeds.Feed(runner, task, head, feeds.FeedSettings())
        await feed.began()
        assert await feed.rests(head)
        assert not await feed.rests(head - 1), "it ended before the reader had its events"
        feed.cancel()
