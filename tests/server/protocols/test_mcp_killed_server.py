"""Handles of MCP, and calls without them, with servers that are killed and started again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.server.processes import ServerProcess
from tests.server.protocols.test_mcp_server import HANDLES, answering, ask, begun, settled, told

pytestmark = pytest.mark.anyio

WORKERS = '''
import asyncio
from treadle import Agent, Message, ModelAnswer, Text, ToolCall, tool
from treadle.server import ADMIN, Principal


class Payer:
    """Pays once, and answers by the turn alone, so that any process goes on with it."""

    name = "test:payer"

    async def stream(self, request):
        await asyncio.sleep(0.5)
        if request.turn == 0:
            yield ModelAnswer(Message("assistant", (ToolCall("c", "pay", {"amount": 3}),)), "tool_calls")
        else:
            yield ModelAnswer(Message("assistant", (Text("It is paid."),)))


@tool(needs_approval=True)
async def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


agents = [Agent(Payer(), name="shop", tools=[pay])]


def principal_of(connection):
    return Principal("ann", scopes=ADMIN)
'''


@asynccontextmanager
async def client_of(server: ServerProcess, **settings: Any) -> AsyncIterator[Client]:
    async with httpx2.AsyncClient(timeout=30, verify=False) as http:
        transport = streamable_http_client(f"{server.url}/mcp", http_client=http)
        async with Client(transport, **settings) as client:
            yield client


async def test_a_handle_survives_servers_that_are_killed(tmp_path: Path):
    (tmp_path / "workers.py").write_text(WORKERS)
    store = f"sqlite:///{tmp_path}/store.db?lease=0.5"
    settings = {"extensions": HANDLES, "elicitation_callback": answering()[1]}
    first = ServerProcess(tmp_path, store).begun()
    try:
        async with client_of(first, **settings) as client:
            handle = await begun(client, "shop", {"input": "Pay", "task_id": "mine"})
            assert (handle["taskId"], handle["status"]) == ("mine", "working")
            first.kill()
    finally:
        first.close()
    second = ServerProcess(tmp_path, store).begun()
    try:
        async with client_of(second, **settings) as client:
            ((key, _),) = (await settled(client, "mine", "input_required"))["inputRequests"].items()
            second.kill()
    finally:
        second.close()
    third = ServerProcess(tmp_path, store).begun()
    try:
        async with client_of(third, **settings) as client:
            accepted = {key: {"action": "accept", "content": {"approved": True}}}
            await ask(client, "tasks/update", taskId="mine", inputResponses=accepted)
            done = await settled(client, "mine", "completed")
            assert done["result"]["structuredContent"]["answer"] == "It is paid."
            again = await begun(client, "shop", {"input": "Pay", "task_id": "mine"})
            assert again["taskId"] == "mine", "a repeated call is the same task"
        async with client_of(third, mode="legacy") as client:
            result = await client.call_tool("shop", {"input": "Pay", "task_id": "mine"})
            assert told(result).startswith("It is paid.")
    finally:
        third.close()
