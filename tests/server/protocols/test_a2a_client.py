"""The official client of A2A, of the package `a2a-sdk`, with servers that are killed and started again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskState,
)
from a2a.utils.errors import TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError
from google.protobuf.json_format import MessageToDict

from tests.server.processes import ServerProcess
from tests.server.protocols.test_agui_client import WORKERS

pytestmark = pytest.mark.anyio


class Agent:
    """An agent of a server, as its client sees it."""

    def __init__(self, client: Any, card: Any) -> None:
        self.client, self.card = client, card

    async def send(
        self, words: str, message_id: str, *, task: str = "", context: str = "", **config: Any
    ) -> Any:
        """Return the items that the client yields for a message."""
        message = Message(message_id=message_id, role=Role.ROLE_USER, parts=[Part(text=words)])
        message.task_id, message.context_id = task, context
        request = SendMessageRequest(message=message, configuration=SendMessageConfiguration(**config))
        with anyio.fail_after(30):
            return [item async for item in self.client.send_message(request)]


@asynccontextmanager
async def talking(server: ServerProcess, *, streaming: bool = True) -> AsyncIterator[Agent]:
    """Yield a client of the agent `shop` of a server."""
    headers = {"Authorization": "Bearer ann"}
    async with httpx.AsyncClient(headers=headers, timeout=30, verify=False) as http:
        card = await A2ACardResolver(http, f"{server.url}/a2a/shop").get_agent_card()
        config = ClientConfig(httpx_client=http, streaming=streaming)
        yield Agent(ClientFactory(config).create(card), card)


@pytest.fixture
def store(tmp_path: Path) -> str:
    (tmp_path / "workers.py").write_text(WORKERS)
    return f"sqlite:///{tmp_path}/store.db?lease=0.5"


def state(item: Any) -> str:
    """Return the state in an item, or that of a task."""
    task = item.task if hasattr(item, "task") and item.HasField("task") else item
    status = task.status_update.status if hasattr(task, "status_update") else task.status
    return TaskState.Name(status.state).removeprefix("TASK_STATE_")


def words(items: list[Any]) -> str:
    """Return the answer that a client has after some items."""
    told = ""
    for item in items:
        if item.HasField("task"):
            told = "".join([part.text for each in item.task.artifacts for part in each.parts])
        elif item.HasField("artifact_update"):
            update = item.artifact_update
            text = "".join([part.text for part in update.artifact.parts])
            told = told + text if update.append else text
    return told


def text_of(task: Any) -> str:
    return "".join([part.text for each in task.artifacts for part in each.parts])


async def test_the_official_client_talks_to_servers_that_are_killed(store: str, tmp_path: Path):
    first = ServerProcess(tmp_path, store).begun()
    try:
        async with talking(first) as shop:
            assert (shop.card.name, shop.card.capabilities.streaming) == ("shop", True)

            told = await shop.send("hello to all", "m1")
            assert (words(told), state(told[-1])) == ("hello to all ", "COMPLETED")
            assert len([item for item in told if item.HasField("artifact_update")]) > 2, "it streams"
            context = told[0].task.context_id
            again = await shop.send("hello to all", "m1")
            assert ([state(item) for item in again], words(again)) == (["COMPLETED"], "hello to all ")

            told = await shop.send("look around", "m2", context=context)
            assert state(told[-1]) == "COMPLETED"
            facts = [MessageToDict(item.status_update.metadata) for item in told]
            calls = [each["treadle"] for each in facts if each]
            assert [(each["kind"], each["tool"]) for each in calls] == [("call", "look"), ("result", "look")]

            paying = await shop.send("pay now", "m3")
            assert state(paying[-1]) == "INPUT_REQUIRED"
            task_id = paying[0].task.id
            listed = await shop.client.list_tasks(ListTasksRequest(context_id=context))
            assert len(listed.tasks) == 2

            with pytest.raises(TaskNotFoundError):
                await shop.client.get_task(GetTaskRequest(id="nothing"))
            with pytest.raises(UnsupportedOperationError):
                await shop.send("more", "m4", task=told[0].task.id)

            # A long answer is under way when the server is killed.
            message = Message(message_id="m5", role=Role.ROLE_USER, parts=[Part(text="long talk")])
            request = SendMessageRequest(message=message)
            stream = shop.client.send_message(request)
            async for item in stream:
                if item.HasField("artifact_update"):
                    break
            first.kill()
            await stream.aclose()
    finally:
        first.close()

    later = ServerProcess(tmp_path, store).begun()
    try:
        async with talking(later) as shop:
            again = await shop.send("long talk", "m5")
            assert state(again[-1]) == "COMPLETED"
            assert words(again) == " ".join(("long talk" * 20).split()) + " "

            assert state(await shop.client.get_task(GetTaskRequest(id=task_id))) == "INPUT_REQUIRED"
            paid = await shop.send("yes", "m6", task=task_id)
            assert (state(paid[-1]), words(paid)) == ("COMPLETED", "pay now ")
            assert state((await shop.send("yes", "m6", task=task_id))[-1]) == "COMPLETED", "it is a repeat"
            assert text_of(await shop.client.get_task(GetTaskRequest(id=task_id))) == "pay now "
        async with talking(later, streaming=False) as shop:
            (told,) = await shop.send("long talk", "m7", return_immediately=True)
            running = told.task.id
            assert state(told) in ("SUBMITTED", "WORKING")
        async with talking(later) as shop:
            with anyio.fail_after(30):
                async for item in shop.client.subscribe(SubscribeToTaskRequest(id=running)):
                    if item.HasField("artifact_update"):
                        break
                cancelled = await shop.client.cancel_task(CancelTaskRequest(id=running))
            assert state(cancelled) == "CANCELED"
            with pytest.raises(TaskNotCancelableError):
                await shop.client.cancel_task(CancelTaskRequest(id=running))
        async with talking(later, streaming=False) as shop:
            (told,) = await shop.send("hello again", "m8")
            assert (state(told), text_of(told.task)) == ("COMPLETED", "hello again ")
    finally:
        later.close()
