"""Event streams through the proxies of `deploy/`, from servers that are processes of their own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.deploy.processes import SHOP, SITE, Program, caddy, nginx, treadle
from tests.server.sse import Frame, frames
from treadle.testing.postgres import PostgresServer

pytestmark = pytest.mark.anyio

LAG = 0.5
"""Seconds after the server's own stream in which an event has to come through a proxy."""

STREAMS = 6
Proxy = Callable[..., AbstractContextManager[str]]
PROXIES = pytest.mark.parametrize("proxy", [nginx, pytest.param(caddy, marks=pytest.mark.full)])


def shop(folder: Path, steps: int, seconds: float = 0.05) -> Path:
    """Make a folder with an agent that takes so many steps, with a call of so many seconds in each."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "shop.py").write_text(SHOP.replace("STEPS", str(steps)).replace("SECONDS", str(seconds)))
    return folder


def serve(folder: Path, token: Path, *more: str, store: object) -> AbstractContextManager[Program]:
    arguments = ["shop:agent", "--port", "0", "--token-file", str(token), "--json"]
    allowed = ["--allow-host", SITE, "--behind-proxy", "127.0.0.1/32"]
    return treadle(folder, "serve", *arguments, *allowed, *more, store=store)


def client_of(address: str, token: Path, site: str = SITE) -> httpx2.AsyncClient:
    port = address.rpartition(":")[2]
    headers = {"Authorization": f"Bearer {token.read_text().strip()}", "Host": f"{site}:{port}"}
    return httpx2.AsyncClient(base_url=f"http://{address}", headers=headers, timeout=20)


async def begin(client: httpx2.AsyncClient, task_id: str) -> None:
    body = {"agent": "shop", "input": "Count.", "task_id": task_id, "run": True}
    response = await client.post("/v1/tasks", json=body)
    assert response.status_code == 201, response.text


async def follow(client: httpx2.AsyncClient, task_id: str, last: int = 0) -> AsyncIterator[Frame]:
    headers = {"Accept": "text/event-stream", "Last-Event-ID": str(last)}
    async with client.stream("GET", f"/v1/tasks/{task_id}/events", headers=headers) as response:
        response.raise_for_status()
        assert response.headers["content-type"].startswith("text/event-stream")
        async for frame in frames(response.aiter_bytes()):
            yield frame


def is_last(frame: Frame) -> bool:
    if frame.event != "task_ended":
        return False
    assert frame.data["state"] == "completed", frame.data
    return True


async def arrivals(client: httpx2.AsyncClient, task_id: str) -> dict[int, float]:
    """Return when each event of a task came, up to its last one."""
    times: dict[int, float] = {}
    async for frame in follow(client, task_id):
        if frame.seq is not None:
            times[frame.seq] = time.monotonic()
        if is_last(frame):
            break
    return times


@PROXIES
async def test_each_event_comes_through_a_proxy_when_it_happens(proxy: Proxy, tmp_path: Path):
    # A proxy that waits for a packet to be full would hold the small event that comes during the call until after it.
    folder, token = shop(tmp_path / "shop", steps=1, seconds=4 * LAG), tmp_path / "token"
    with ExitStack() as stack:
        server = stack.enter_context(serve(folder, token, store=tmp_path / "journal.db"))
        front = stack.enter_context(proxy(tmp_path / "proxy", [server.address]))
        async with client_of(server.address, token) as own, client_of(front, token) as through:
            await begin(through, "t1")
            reading = [asyncio.ensure_future(arrivals(client, "t1")) for client in (own, through)]
            await asyncio.sleep(LAG)
            sent = await through.post("/v1/tasks/t1/send", json={"message": "And coffee."})
            assert sent.status_code == 204, sent.text
            there, here = await asyncio.gather(*reading)
    assert list(here) == list(there) == list(range(1, len(here) + 1))
    late = {seq: round(here[seq] - there[seq], 3) for seq in here if here[seq] - there[seq] > LAG}
    assert late == {}
    assert max(here.values()) - min(here.values()) > LAG, "they came at once, so nothing was shown"


@PROXIES
async def test_a_proxy_tells_the_server_the_name_and_the_scheme_by_which_it_was_called(
    proxy: Proxy, tmp_path: Path
):
    folder, token = shop(tmp_path / "shop", steps=1), tmp_path / "token"
    with ExitStack() as stack:
        server = stack.enter_context(serve(folder, token, store=tmp_path / "journal.db"))
        front = stack.enter_context(proxy(tmp_path / "proxy", [server.address]))
        own = {"Origin": f"http://{SITE}:{front.rpartition(':')[2]}"}
        async with client_of(front, token) as through:
            # An origin is the server's own only if the server knows its scheme, its name and its port.
            assert (await through.get("/v1/me", headers=own)).status_code == 200
            foreign = await through.get("/v1/me", headers={"Origin": "http://elsewhere.example"})
            assert foreign.status_code == 403
            # A slash that is quoted belongs to the id.
            absent = await through.get("/v1/tasks/a%2Fb")
            assert (absent.status_code, absent.json()["type"]) == (404, "urn:treadle:error:TaskNotFound")


@pytest.mark.full
@PROXIES
async def test_streams_go_on_at_another_server_when_theirs_is_killed(
    proxy: Proxy, tmp_path: Path, postgres: PostgresServer
):
    """Two servers on one PostgreSQL, behind a proxy: one is killed while it streams, and while it drives."""
    folder, token = shop(tmp_path / "shop", steps=40), tmp_path / "token"
    store = postgres.in_schema(f"deploy_{proxy.__name__}")
    with ExitStack() as stack:
        first = stack.enter_context(serve(folder, token, store=store))
        first.first("serving")
        second = stack.enter_context(serve(folder, token, store=store))
        front = stack.enter_context(proxy(tmp_path / "proxy", [first.address, second.address]))
        async with client_of(front, token) as through:
            readers = [Reader(through, f"t{number}") for number in range(STREAMS)]
            for reader in readers:
                await begin(through, reader.task_id)
            reading = [asyncio.ensure_future(reader.read_to_the_end()) for reader in readers]
            while not all(len(reader.seen) > 20 for reader in readers):
                assert not any(each.done() for each in reading), "it was over too soon to be interrupted"
                await asyncio.sleep(0.02)
            drove = {line["task_id"] for line in first.lines() if line["kind"] == "adopted"}
            first.kill()
            async with asyncio.timeout(60):
                await asyncio.gather(*reading)
        async with client_of(second.address, token) as own:
            for reader in readers:
                assert reader.seen == [event["seq"] for event in await journal(own, reader.task_id)]
    cut = [reader.task_id for reader in readers if reader.connections > 1]
    assert 0 < len(cut) < STREAMS, "each server had some of the streams"
    assert 0 < len(drove) < STREAMS, "each server drove some of the tasks"


class Reader:
    """Follows a task through all that happens to its stream, as a browser does."""

    def __init__(self, client: httpx2.AsyncClient, task_id: str) -> None:
        self.client, self.task_id = client, task_id
        self.seen: list[int] = []
        self.connections = 0

    async def read_to_the_end(self) -> None:
        while True:
            try:
                self.connections += 1
                async for frame in follow(self.client, self.task_id, self.seen[-1] if self.seen else 0):
                    if frame.seq is not None:
                        self.seen.append(frame.seq)
                    if is_last(frame):
                        return
            except (httpx2.TransportError, httpx2.HTTPStatusError):
                pass
            await asyncio.sleep(0.1)


async def journal(client: httpx2.AsyncClient, task_id: str) -> list[dict[str, Any]]:
    """Return all events of a task, page by page."""
    events: list[dict[str, Any]] = []
    while True:
        after = events[-1]["seq"] if events else 0
        page = await client.get(f"/v1/tasks/{task_id}/events", params={"after": after, "limit": 100})
        page.raise_for_status()
        if not page.json()["items"]:
            return events
        events += page.json()["items"]
