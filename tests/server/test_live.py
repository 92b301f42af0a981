"""Events and streams of the whole application: what they accept, whom they are for, and what they hide."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from tests.runner.acts import until
from tests.server.calling import agent, by_name
from tests.server.hosting import hosted
from tests.server.sse import Frame, frames
from treadle import Agent, Runner, RunOptions, ScriptedModel, ToolContext, tool
from treadle.llm.scripted import call
from treadle.server import Application, ServerLimits, app

pytestmark = pytest.mark.anyio

STREAM = {"Accept": "text/event-stream"}


@asynccontextmanager
async def site(
    *agents: Agent[Any], limits: ServerLimits | None = None, **settings: Any
) -> AsyncIterator[tuple[Application, httpx2.AsyncClient]]:
    runner = Runner("memory:", agents=agents or [agent()], **settings)
    api = app(runner, auth=by_name, limits=limits)
    headers = {"Authorization": "Bearer ann"}
    async with api.lifespan(), hosted(api, api.leave, limits, headers=headers) as client:
        yield api, client


async def told(client: httpx2.AsyncClient, url: str, headers: dict[str, str] | None = None) -> list[Frame]:
    async with client.stream("GET", url, headers={**STREAM, **(headers or {})}) as response:
        assert response.status_code == 200, await response.aread()
        return [frame async for frame in frames(response.aiter_bytes())]


async def ran(client: httpx2.AsyncClient, text: str = "Go.") -> str:
    body = {"agent": "shop", "input": text, "run": True}
    made = await client.post("/v1/tasks", json=body, headers={"Prefer": "wait=10"})
    assert made.json()["state"] == "completed", made.text
    return made.json()["task_id"]


async def test_a_stream_until_rest_waits_for_the_driver_that_is_to_adopt_the_task():
    runner = Runner("memory:", agents=[agent()])
    api = app(runner, auth=by_name, drive=False)
    headers = {"Authorization": "Bearer ann"}
    async with api.lifespan(), hosted(api, api.leave, headers=headers) as client:
        made = await client.post("/v1/tasks", json={"agent": "shop", "input": "Go.", "run": True})
        task = made.json()["task_id"]
        streaming = asyncio.ensure_future(told(client, f"/v1/tasks/{task}/events?until=rest"))
        await until(lambda: len(api.service.streams))
        await asyncio.sleep(0.2)
        assert not streaming.done()
        runner.begin_adopting()
        seen = await streaming
        assert [frame.event for frame in seen if frame.id][-1] == "task_ended"


async def test_a_task_that_was_posted_is_driven_and_streamed_to_its_end():
    async with site() as (_, client):
        made = await client.post("/v1/tasks", json={"agent": "shop", "input": "Go.", "run": True})
        task = made.json()["task_id"]
        seen: list[Frame] = []
        async with client.stream("GET", f"/v1/tasks/{task}/events", headers=STREAM) as response:
            async for frame in frames(response.aiter_bytes()):
                seen.append(frame)
                if frame.event == "task_ended":
                    break
        assert [frame.seq for frame in seen if frame.id] == list(range(1, int(seen[-1].id or 0) + 1))
        page = (await client.get(f"/v1/tasks/{task}/events")).json()
        assert page["items"] == [frame.data for frame in seen if frame.id]


async def test_pages_are_cut_like_streams_and_say_where_the_whole_is():
    async with site() as (_, client):
        task = await ran(client, "x" * 3_000)
        url = f"/v1/tasks/{task}/events"
        page = (await client.get(url, params={"cut": 1_024})).json()
        streamed = await told(client, f"{url}?cut=1024&until=rest")
        assert page["items"] == [frame.data for frame in streamed if frame.id]
        (cut,) = [part["text"]["$cut"] for part in page["items"][0]["input"]]
        assert cut["chars"] == 3_000
        assert "x" * 3_000 in (await client.get(cut["href"])).text


REFUSED: list[tuple[str, dict[str, str], int]] = [
    ("after=99999", STREAM, 409),
    ("after=-1", STREAM, 422),
    ("cut=10", STREAM, 422),
    ("until=then", STREAM, 422),
    ("limit=5", STREAM, 422),
    ("deltas=0", {}, 422),
    ("", {**STREAM, "Last-Event-ID": "seven"}, 400),
    ("", {**STREAM, "Authorization": "Bearer nobody"}, 401),
    ("hold=1", {**STREAM, "Authorization": "Bearer reader"}, 403),
    ("", {**STREAM, "Authorization": "Bearer none"}, 403),
]


async def test_a_stream_that_cannot_be_is_refused_before_it_begins():
    async with site() as (api, client):
        task = await ran(client)
        for query, headers, status in REFUSED:
            response = await client.get(f"/v1/tasks/{task}/events?{query}", headers=headers)
            assert response.status_code == status, (query, headers, response.text)
            assert response.headers["content-type"] == "application/problem+json"
            assert len(api.service.streams) == 0


async def test_streams_of_another_tenant_are_not_found_and_share_no_feed():
    async with site() as (api, client):
        body = {"agent": "shop", "input": "Secret.", "task_id": "same", "run": True}
        eve = {"Authorization": "Bearer eve"}
        await client.post("/v1/tasks", json=body, headers={**eve, "Prefer": "wait=10"})
        url = "/v1/tasks/same/events?until=rest"
        assert (await client.get(url, headers=STREAM)).status_code == 404
        assert (await client.get("/v1/stream?task=same:0", headers=STREAM)).status_code == 404
        for there in ("same", "absent"):  # as a store keeps the name of another tenant: refused, there or not
            for path in (f"tasks/acme%1F{there}/events", f"stream?task=acme%1F{there}:0"):
                refused = await client.get(f"/v1/{path}", headers=STREAM)
                assert refused.status_code == 422
                held = await client.get(f"/v1/tasks/acme%1F{there}/events?hold=1", headers=STREAM)
                assert held.status_code == 422
        await client.post("/v1/tasks", json={**body, "input": "Mine."}, headers={"Prefer": "wait=10"})
        mine, hers = await told(client, url), await told(client, url, eve)
        assert len(api.service.streams.feeds) == 2
        for seen, own, other in ((mine, "Mine.", "Secret."), (hers, "Secret.", "Mine.")):
            text = "".join(frame.text or "" for frame in seen)
            assert own in text
            assert other not in text
        gauge = (await client.get("/metrics", headers={"Authorization": "Bearer operator"})).text
        assert "treadle_tasks_adopted_total 2" in gauge


async def test_changes_of_all_tasks_are_streamed_and_those_of_other_tenants_are_not():
    async with site() as (api, client):
        async with client.stream("GET", "/v1/stream?changes=1", headers=STREAM) as response:
            stream = frames(response.aiter_bytes())
            assert (await anext(stream)).retry is not None
            await api.service.runner.scoped(tenant="acme", by="eve").create_task(agent(), "Secret.")
            task = await ran(client)
            async for frame in stream:
                assert frame.event == "task_changed"
                assert frame.data["task_id"] == task
                if frame.data["state"] == "completed":
                    break
        await until(lambda: not len(api.service.streams))
        assert not api.service.streams.changes._feeds


async def test_metrics_count_requests_by_operation_and_hold_no_ids():
    async with site() as (_, client):
        task = await ran(client)
        await told(client, f"/v1/tasks/{task}/events?until=rest")
        await client.get("/v1/tasks/none")
        assert (await client.get("/metrics")).status_code == 403
        text = (await client.get("/metrics", headers={"Authorization": "Bearer operator"})).text
    for line in (
        'treadle_requests_total{operation="create_task",status="200"} 1',
        'treadle_requests_total{operation="get_events",status="200"} 1',
        'treadle_requests_total{operation="get_task",status="404"} 1',
        'treadle_requests_total{operation="get_metrics",status="403"} 1',
        "treadle_tasks_adopted_total 1",
        "treadle_tasks_driven 0",
        "treadle_streams 0",
    ):
        assert line in text.splitlines()
    assert task not in text
    assert "ann" not in text


def knowing_shop() -> Agent[Any]:
    """Return an agent whose tool asks for a secret, which its process knows from then on."""

    @tool(read_only=True, secrets=("key",))
    def look(ctx: ToolContext[Any]) -> str:
        return ctx.secret("key")[:0]

    return Agent(ScriptedModel([call("look"), "done"]), tools=[look], name="shop")


async def test_a_secret_that_this_process_knows_is_in_no_frame_of_a_journal_that_another_wrote():
    secret = "sesame-open-0123456789"
    async with site(knowing_shop(), secrets={"key": lambda: secret}) as (api, client):
        other = Runner(api.service.runner.store)
        task = (await other.run(agent(f"It is {secret}."), "Go.")).task_id
        await ran(client)
        for url in (f"/v1/tasks/{task}/events?until=rest", f"/v1/tasks/{task}/events?until=rest&cut=1024"):
            text = "".join(frame.text or "" for frame in await told(client, url))
            assert "It is" in text
            assert secret not in text


async def test_the_creator_of_a_task_may_ask_that_it_stops_without_a_stream_that_holds_it():
    reached, let = asyncio.Event(), asyncio.Event()

    @tool(read_only=True)
    async def wait() -> str:
        loop.call_soon_threadsafe(reached.set)
        await asyncio.sleep(60)
        return "waited"

    loop = asyncio.get_running_loop()
    shop = Agent(ScriptedModel([call("wait"), "done"]), tools=[wait], name="shop")
    async with site(shop, limits=ServerLimits(hold_seconds=0.1)) as (api, client):
        body = {"agent": "shop", "input": "Go.", "run": True, "options": {"on_disconnect": "cancel"}}
        task = (await client.post("/v1/tasks", json=body)).json()["task_id"]
        await reached.wait()
        async with client.stream("GET", f"/v1/tasks/{task}/events?hold=1", headers=STREAM) as response:
            await anext(frames(response.aiter_bytes()))
        result = await client.get(f"/v1/tasks/{task}/result", headers={"Prefer": "wait=10"})
        assert result.json()["state"] == "cancelled"
        await until(lambda: not len(api.service.streams))
    assert not let.is_set()


async def test_a_tool_that_blocks_its_loop_stops_neither_health_nor_streams_nor_commands():
    import threading

    reached, go_on = threading.Event(), threading.Event()

    @tool
    async def block() -> str:
        reached.set()
        return "let go" if go_on.wait(20) else "never let go"  # what no tool should do

    shop = Agent(ScriptedModel([call("block"), "done"]), tools=[block], name="shop")
    async with site(shop) as (_, client):
        task = (await client.post("/v1/tasks", json={"agent": "shop", "input": "Go.", "run": True})).json()
        await asyncio.to_thread(reached.wait)
        assert (await client.get("/health")).status_code == 200
        async with client.stream("GET", f"/v1/tasks/{task['task_id']}/events", headers=STREAM) as response:
            stream = frames(response.aiter_bytes())
            while (await anext(stream)).event != "tool_started":
                pass
        paused = await client.post(
            f"/v1/tasks/{task['task_id']}/pause", json={}, headers={"Prefer": "wait=0"}
        )
        assert paused.status_code == 202
        go_on.set()
        result = await client.get(f"/v1/tasks/{task['task_id']}/result", headers={"Prefer": "wait=10"})
        assert result.json()["state"] == "paused"
        ends = (await client.get(f"/v1/tasks/{task['task_id']}/events")).json()["items"]
        assert [event["output"] for event in ends if event["kind"] == "tool_ended"] == ["let go"]


async def test_an_option_for_streams_is_kept_with_the_task():
    runner = Runner("memory:", agents=[agent()])
    task = await runner.create_task(agent(), "Go.", options=RunOptions(on_disconnect="interrupt"))
    event = (await runner.get_events(task.task_id, limit=1)).items[0]
    assert "on_disconnect" in str(event.options)  # type: ignore[attr-defined]


async def test_a_text_was_cut_in_the_middle_of_a_secret_which_then_stood_in_a_page():
    secret = "sesame-open-0123456789"
    async with site(knowing_shop(), secrets={"key": lambda: secret}) as (api, client):
        other = Runner(api.service.runner.store)
        said = "x " * 95 + secret + " y" * 150
        task = (await other.run(agent(said), "Go.")).task_id
        await ran(client)
        page = await client.get(f"/v1/tasks/{task}/events?cut=256")
        assert "$cut" in page.text
        assert secret[:8] not in page.text


async def test_a_server_that_ended_stopped_the_tasks_that_its_streams_held():
    async with site(limits=ServerLimits(hold_seconds=0.01)) as (api, client):
        body = {"agent": "shop", "input": "Go.", "options": {"on_disconnect": "cancel"}}
        task = (await client.post("/v1/tasks", json=body)).json()["task_id"]
        async with client.stream("GET", f"/v1/tasks/{task}/events?hold=1", headers=STREAM) as response:
            following = frames(response.aiter_bytes())
            await anext(following)
            api.begin_leaving()
            async for _ in following:
                pass
        await until(lambda: not len(api.service.streams))
        await asyncio.sleep(0.05)
        assert (await api.service.runner.get_task(task)).state == "created"


async def test_a_stream_that_was_refused_began_to_stop_the_task_that_it_would_have_held():
    async with site(limits=ServerLimits(hold_seconds=0.01, streams_per_principal=1)) as (api, client):
        body = {"agent": "shop", "input": "Go.", "options": {"on_disconnect": "cancel"}}
        task = (await client.post("/v1/tasks", json=body)).json()["task_id"]
        url = f"/v1/tasks/{task}/events"
        for query, headers, status in (
            ("hold=1", {"Last-Event-ID": "x"}, 400),
            ("hold=1&after=99", {}, 409),
        ):
            refused = await client.get(f"{url}?{query}", headers={**STREAM, **headers})
            assert refused.status_code == status
        async with client.stream("GET", url, headers=STREAM) as response:
            following = frames(response.aiter_bytes())
            await anext(following)
            assert (await client.get(f"{url}?hold=1", headers=STREAM)).status_code == 429
        await asyncio.sleep(0.1)
        assert (await api.service.runner.get_task(task)).state == "created"


async def test_requests_in_flight_at_the_end_were_logged_as_faults(caplog: pytest.LogCaptureFixture):
    class Never:
        async def __call__(self, connection: Any) -> None:
            asked.set()
            await asyncio.sleep(60)

    asked = asyncio.Event()
    runner = Runner("memory:", agents=[agent()])
    api = app(runner, auth=Never(), drive=False)
    async with api.lifespan(), hosted(api, api.leave) as client:
        asking = asyncio.ensure_future(client.get("/v1/me"))
        await asked.wait()
        await api.leave()
        answer = await asking
    assert (answer.status_code, "retry-after" in answer.headers) == (503, True)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
