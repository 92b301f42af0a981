"""A server that is killed under a call and started again: the call goes on with the same task."""

from __future__ import annotations

import asyncio
from pathlib import Path

import anyio
import pytest

from tests.cast import scripted_agent
from tests.server.processes import ServerProcess
from tests.server.protocols.test_agui_client import WORKERS
from treadle import RemoteAgent, Runner
from treadle.core import events as e
from treadle.llm.scripted import call
from treadle.server.serving import tcp_socket

pytestmark = pytest.mark.anyio


async def test_a_call_outlives_the_process_of_its_server(tmp_path: Path):
    (tmp_path / "workers.py").write_text(WORKERS)
    free = tcp_socket("127.0.0.1", 0)
    port = str(free.getsockname()[1])
    free.close()
    store = f"sqlite:///{tmp_path}/store.db?lease=0.5"
    first = await asyncio.to_thread(ServerProcess(tmp_path, store, "--port", port).begun)
    later: ServerProcess | None = None
    remote = RemoteAgent(f"{first.url}/a2a/shop", auth=lambda: "ann")
    agent = scripted_agent(call("shop", message="long talk"), "Done.", name="desk", tools=[remote])
    try:
        async with Runner("memory:", agents=[agent]) as runner:
            handle = await runner.start(agent, "Go")
            with anyio.fail_after(60):
                async for event in handle.events(deltas=True):
                    if isinstance(event, e.ToolProgress) and "text" in event.value:
                        break
                first.kill()
                later = await asyncio.to_thread(ServerProcess(tmp_path, store, "--port", port).begun)
                result = await handle.result()
            answer = " ".join(("long talk" * 20).split()) + " "
            assert result.tool_executions[0].output["answer"] == answer
            async with later.client() as http:
                tasks = (await http.get("/v1/tasks")).json()["items"]
            assert [task["state"] for task in tasks] == ["completed"]
    finally:
        first.close()
        if later is not None:
            later.close()
