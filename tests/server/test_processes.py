"""Server processes on one store: killed, stopped, and standing beside each other."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.runner.acts import until
from tests.server.client_storm import ClientStorm
from tests.server.processes import WORKERS, ServerProcess, servers, stream
from tests.server.sse import Frame
from tests.server.storm import Storm
from treadle.testing.postgres import PostgresServer

pytestmark = pytest.mark.anyio

LEASE = 1.0


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.full)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that several processes may open."""
    if request.param == "sqlite":
        return str(tmp_path / "journal.db")
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.in_schema(f"s{abs(hash(str(tmp_path))):x}")


@pytest.mark.parametrize(
    ("streams", "kills"), [(6, 1), pytest.param(1_000, 200, marks=pytest.mark.full)], ids=["some", "many"]
)
@pytest.mark.parametrize("kind", [Storm, ClientStorm])
async def test_readers_of_servers_that_are_killed_are_told_every_event_once_and_in_order(
    kind: type[Storm], url: str, tmp_path: Path, streams: int, kills: int, request: pytest.FixtureRequest
):
    seed: int = request.config.option.hypothesis_seed
    storm = kind(tmp_path, url, streams, kills, readers=min(streams, 25), seed=seed)
    await storm.run()
    print(await storm.check())


SLOW = """

agents.append(Agent(Turns(2, 30), name="slow"))  # its calls outlast any grace
"""


@pytest.mark.full
async def test_sigterm_ends_streams_gives_every_task_back_and_exits_with_0(url: str, tmp_path: Path):
    grace, streams, tasks = 0.5, 100, 20
    (tmp_path / "workers.py").write_text(WORKERS + SLOW)
    (first,) = await servers(tmp_path, url, ("--grace", str(grace)))
    try:
        async with first.client() as client:
            posted = [await post(client, ("long", "slow")[n % 2]) for n in range(tasks)]
            read = [
                asyncio.ensure_future(all_of(first.client(f"p{n // 40}"), posted[n % tasks]))
                for n in range(streams)
            ]
            await until(lambda: adopted(first) == tasks)
            text = ""
            while f"treadle_streams {streams}" not in text:
                text = (await client.get("/metrics")).text
        code, seconds, starved = await asyncio.to_thread(ended, first)
        told = await asyncio.gather(*read)
    finally:
        first.close()
    assert code == 0, first.log.read_text()
    assert "Traceback" not in first.log.read_text()
    assert [frames[-1] for frames in told if frames[-1].event != "leaving"] == []
    print(f"ended {seconds:.2f} s after the signal, and had no processor for {starved:.2f} s")
    assert seconds < grace + 1.0 + starved
    (second,) = await servers(tmp_path, url, ())
    try:
        await until(lambda: adopted(second) == tasks)
        async with second.client() as client:
            states = [(await client.get(f"/v1/tasks/{task}")).json() for task in posted]
        assert {(each["state"], each["driven"]) for each in states} == {("running", True)}
    finally:
        second.close()


PAYER = """

@tool
async def pay() -> str:
    await asyncio.sleep(3600)
    return "paid"


class Pays(Turns):
    async def stream(self, request):
        if request.turn == 0:
            yield ModelAnswer(Message("assistant", (ToolCall("p", "pay", {}),)), "tool_calls")
        else:
            yield ModelAnswer(Message("assistant", (Text("It is paid."),)))


agents.append(Agent(Pays(2, 0), name="payer", tools=[pay]))
"""
ELSEWHERE = """
import socket

socket.gethostname = lambda: "elsewhere"  # so only its lease tells others whether a server there is alive
"""


@pytest.mark.full
async def test_a_server_watches_steps_pauses_undoes_and_settles_what_others_drive_and_its_streams_outlive_them(
    url: str, tmp_path: Path
):
    (tmp_path / "workers.py").write_text(WORKERS + PAYER)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "workers.py").write_text(ELSEWHERE + WORKERS + PAYER)
    lease = ("--lease", str(LEASE))
    (driver,) = await servers(tmp_path / "elsewhere", url, lease)
    (front,) = await servers(tmp_path, url, (*lease, "--no-drive"))
    running = [driver, front]
    try:
        async with front.client() as client:
            task = await post(client, "long")
            read = asyncio.ensure_future(all_of(front.client("reader"), task))
            await until(lambda: adopted(driver) == 1)
            paused = await command(client, task, "pause", {})
            assert paused["state"] == "paused"
            await command(client, task, "resume", {}, wait=0)
            await until(lambda: adopted(driver) == 2)
            assert (await command(client, task, "interrupt", {}))["state"] == "interrupted"
            before = (await client.get(f"/v1/tasks/{task}")).json()["steps"]
            step = await client.post(f"/v1/tasks/{task}/steps", json={}, headers={"Prefer": "wait=20"})
            assert step.json()["step"]["index"] == before + 1, step.text
            assert (await command(client, task, "undo", {}))["steps"]
            await command(client, task, "resume", {}, wait=0)
            await until(lambda: adopted(driver) == 3)

            (heir,) = await servers(tmp_path, url, lease)
            running.append(heir)
            began, before = time.monotonic(), starvation(heir)
            driver.kill()
            await until(lambda: adopted(heir) == 1)
            seconds, starved = time.monotonic() - began, starvation(heir) - before
            print(
                f"adopted {seconds:.2f} s after its driver was killed, with no processor for {starved:.2f} s"
            )
            assert seconds < LEASE + 1.0 + max(starved, 0.0)
            await asyncio.sleep(0.5)
            assert (await command(client, task, "cancel", {}))["state"] == "cancelled"
            told = await asyncio.wait_for(read, 20)
            assert [frame.seq for frame in told if frame.id] == list(range(1, int(told[-1].id or 0) + 1))
            assert {frame.event for frame in told} >= {"task_stood", "resumed", "rewound", "task_ended"}

            paying = await post(client, "payer")
            async for frame in stream(front.client("reader"), paying):
                if frame.event == "tool_started":
                    break
            heir.kill()
            (last,) = await servers(tmp_path, url, lease)
            running.append(last)
            waiting = await client.get(f"/v1/tasks/{paying}/result", headers={"Prefer": "wait=20"})
            (pending,) = waiting.json()["pending"]
            verdict = {"type": "happened", "output": "paid"}
            settle = {"request_id": pending["request_id"], "verdict": verdict}
            assert (await client.post(f"/v1/tasks/{paying}/settle", json=settle)).status_code == 204
            ended = await all_of(front.client("reader"), paying)
            assert ended[-1].event == "task_ended"
            result = (await client.get(f"/v1/tasks/{paying}/result")).json()
            assert (result["state"], result["final_text"]) == ("completed", "It is paid.")
    finally:
        for server in running:
            server.close()


async def post(client: httpx2.AsyncClient, agent: str) -> str:
    made = await client.post("/v1/tasks", json={"agent": agent, "input": "Go.", "run": True})
    assert made.status_code == 201, made.text
    return made.json()["task_id"]


async def command(client: httpx2.AsyncClient, task: str, name: str, body: Any, wait: int = 20) -> Any:
    done = await client.post(f"/v1/tasks/{task}/{name}", json=body, headers={"Prefer": f"wait={wait}"})
    assert done.status_code in (200, 202), done.text
    return done.json()


async def all_of(client: httpx2.AsyncClient, task: str) -> list[Frame]:
    """Return what one connection tells of a task, to its end or the server's."""
    told: list[Frame] = []
    async with client:
        async for frame in stream(client, task):
            told.append(frame)
            if frame.event in ("task_ended", "leaving"):
                break
    return told


def ended(server: ServerProcess) -> tuple[int, float, float]:
    """Return how a server ended that was asked to, after how many seconds, and for how many of them it was starved."""
    began, before, starved = time.monotonic(), starvation(server), 0.0
    server.terminate()
    while (code := server.process.poll()) is None:
        starved = max(starved, starvation(server) - before)
        time.sleep(0.01)
    return code, time.monotonic() - began, starved


def starvation(server: ServerProcess) -> float:
    """Return for how many seconds threads of a server had work and no processor: none if it is not shared."""
    waited = 0
    for thread in Path(f"/proc/{server.process.pid}/task").glob("*/schedstat"):
        with suppress(OSError):  # it has ended
            waited += int(thread.read_text().split()[1])
    return waited / 1e9


def adopted(server: ServerProcess) -> int:
    return sum(line.get("kind") == "adopted" for line in server.lines)
