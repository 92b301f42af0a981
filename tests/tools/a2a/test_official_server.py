"""Agents of a server that is made with the official package `a2a-sdk`, as tools."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandlerV2
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Message,
    Part,
    Role,
    Task,
    TaskState,
)
from a2a.types import TaskStatus as Status
from starlette.applications import Starlette

from tests.cast import scripted_agent
from tests.server.hosting import hosted
from tests.tools.a2a.test_remote_agent import Kept, context
from treadle import Agent, RemoteAgent, Runner
from treadle.llm.scripted import call

pytestmark = pytest.mark.anyio


class Weather(AgentExecutor):
    """Does what its message says."""

    def __init__(self) -> None:
        self.begun = 0
        self.cancelled = 0

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        words = context.get_user_input()
        task = TaskUpdater(event_queue, context.task_id, context.context_id)
        if words == "just talk":
            parts = [Part(text="Hello.")]
            await event_queue.enqueue_event(Message(message_id="a", role=Role.ROLE_AGENT, parts=parts))
            return
        if context.current_task is None:
            self.begun += 1
            status = Status(state=TaskState.TASK_STATE_SUBMITTED)
            history = [context.message]
            await event_queue.enqueue_event(
                Task(id=context.task_id, context_id=context.context_id, status=status, history=history)
            )
        await task.update_status(TaskState.TASK_STATE_WORKING)
        if words == "where":
            parts = [Part(text="Which city?")]
            message = Message(message_id="q", role=Role.ROLE_AGENT, parts=parts)
            await task.update_status(TaskState.TASK_STATE_INPUT_REQUIRED, message)
            return
        if words == "forever":
            await asyncio.sleep(60)
        if words == "fail":
            await task.update_status(TaskState.TASK_STATE_FAILED)
            return
        await task.add_artifact([Part(text="It rains"), Part(raw=b"x", filename="a.bin")], artifact_id="1")
        await task.add_artifact([Part(text=f" in {words}.")], artifact_id="1", append=True, last_chunk=True)
        await task.update_status(TaskState.TASK_STATE_COMPLETED)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        self.cancelled += 1
        task = TaskUpdater(event_queue, context.task_id, context.context_id)
        await task.update_status(TaskState.TASK_STATE_CANCELED)


@asynccontextmanager
async def weather(*, streaming: bool) -> AsyncIterator[tuple[Weather, RemoteAgent]]:
    app, executor = Starlette(), Weather()

    async def leave(grace: float) -> None: ...

    async with hosted(app, leave) as http:
        url = str(http.base_url).rstrip("/")
        card = AgentCard(
            name="Weather",
            description="Knows the weather.",
            version="1",
            supported_interfaces=[
                AgentInterface(url=f"{url}/rpc", protocol_binding="JSONRPC", protocol_version="1.0")
            ],
            capabilities=AgentCapabilities(streaming=streaming),
            default_input_modes=["text/plain"],
            default_output_modes=["text/plain"],
            skills=[AgentSkill(id="w", name="w", description="w", tags=["w"])],
        )
        handler = DefaultRequestHandlerV2(executor, InMemoryTaskStore(), card)
        app.routes.extend([*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/rpc")])
        yield executor, RemoteAgent(url, name="weather")


def desk(remote: RemoteAgent, words: str) -> Agent[Any]:
    return scripted_agent(call("weather", message=words), "Done.", name="desk", tools=[remote])


@pytest.mark.parametrize("streaming", [True, False])
async def test_an_agent_of_an_official_server_answers_asks_fails_and_is_cancelled(streaming: bool):
    async with weather(streaming=streaming) as (executor, remote):
        for words, outcome in (("Rome", "ok"), ("just talk", "ok"), ("fail", "error")):
            agent = desk(remote, words)
            async with Runner("memory:", agents=[agent]) as runner:
                result = await runner.run(agent, "Go")
                (executed,) = result.tool_executions
                assert executed.outcome == outcome, executed.error
                if words == "Rome":
                    assert executed.output["answer"] == "It rains\n[file a.bin]\n in Rome."
                    assert [each.name for each in result.artifacts] == ["a.bin"]
                elif words == "just talk":
                    assert executed.output == {"answer": "Hello."}

        agent = desk(remote, "where")
        async with Runner("memory:", agents=[agent]) as runner:
            result = await runner.run(agent, "Go")
            assert [item.text for item in result.pending] == ["The agent weather asks: Which city?"]
            await runner.answer(result.task_id, value="Paris")
            result = await runner.resume(result.task_id)
            assert "in Paris." in result.tool_executions[0].output["answer"]

        agent = desk(remote, "forever")
        begun = executor.begun
        async with Runner("memory:", agents=[agent]) as runner:
            handle = await runner.start(agent, "Go")
            with anyio.fail_after(20):
                while executor.begun == begun:  # noqa: ASYNC110  it is the server's
                    await asyncio.sleep(0.02)
                await asyncio.sleep(0.2)
                await handle.cancel()
        assert executor.cancelled == 1


async def test_a_message_whose_task_is_listed_is_not_sent_again():
    async with weather(streaming=True) as (executor, remote):
        (tool,) = await remote.connect().tools()
        first = await tool.call({"message": "Rome"}, context(1, Kept()))
        again = await tool.call({"message": "Rome"}, context(2, Kept()))
        assert (executor.begun, again.output) == (1, first.output)
