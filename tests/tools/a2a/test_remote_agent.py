"""Agents of a server of Treadle as tools: answers, progress, questions, failures, cancels and restarts."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import httpx2
import pytest

from tests.cast import inquire, pay, scripted_agent
from tests.forked import Forked
from tests.server.calling import by_name, waiting_shop
from tests.server.hosting import hosted
from treadle import Agent, RemoteAgent, Runner, ToolContext
from treadle.core import events as e
from treadle.errors import ConfigurationError, ToolOutcomeUnknown, ToolsetUnavailable
from treadle.llm.scripted import call
from treadle.server import app
from treadle.tools.a2a.remote_task import REPEATS

pytestmark = pytest.mark.anyio


class Site:
    """A server with an agent `shop`, and clients of it."""

    def __init__(self, api: Any, http: httpx2.AsyncClient) -> None:
        self.runner = api.service.runner
        self.url = f"{str(http.base_url).rstrip('/')}/a2a/shop"

    def remote(self, principal: str = "ann", **more: Any) -> RemoteAgent:
        return RemoteAgent(self.url, **{"auth": lambda: principal, **more})

    async def tasks(self) -> list[Any]:
        return list((await self.runner.list_tasks()).items)


@asynccontextmanager
async def site(*agents: Agent[Any], **settings: Any) -> AsyncIterator[Site]:
    api = app(Runner("memory:", agents=agents), **{"auth": by_name, **settings})
    async with api.lifespan(), hosted(api, api.leave) as http:
        yield Site(api, http)


def desk(remote: RemoteAgent, *turns: Any, **more: Any) -> Agent[Any]:
    script = turns or (call("shop", message="Is it open?"), "Done.")
    return scripted_agent(*script, name="desk", tools=[remote], **more)


async def test_an_agent_is_called_as_one_task_and_its_answer_is_untrusted():
    async with site(scripted_agent("It is open.", name="shop", description="Sells tea.")) as shop:
        agent = desk(shop.remote())
        async with Runner("memory:", agents=[agent]) as runner:
            handle = await runner.start(agent, "Ask the shop")
            events = [event async for event in handle.events(deltas=True)]
            result = await handle.result()
            (executed,) = result.tool_executions
            (task,) = await shop.tasks()
            assert executed.output == {
                "answer": "It is open.",
                "conversation": task.thread_id,
                "task": task.task_id,
            }
            assert (result.state, task.state) == ("completed", "completed")
            assert "a2a:shop" in result.untrusted
            progress = [event.value for event in events if isinstance(event, e.ToolProgress)]
            assert "".join([each.get("text", "") for each in progress]) == "It is open."
        (listed,) = await shop.remote().connect().tools()
        spec = listed.spec
        assert (spec.name, spec.description) == ("shop", "The agent shop: Sells tea.")
        assert (spec.sends, spec.defined_by, spec.effect) == (True, "a2a:shop", "idempotent")


async def test_a_conversation_continues_and_a_given_description_is_the_developers():
    agent = scripted_agent("one", "two", name="shop")
    async with site(agent) as shop:
        remote = shop.remote(name="tea", description="Ask about tea.")
        assert [spec.defined_by for spec in remote.known_specs() or ()] == [""]
        one = desk(remote, call("tea", message="a"), call("tea", message="b", conversation="c-1"), "Done.")
        async with Runner("memory:", agents=[one]) as runner:
            await runner.run(one, "Go")
        assert "c-1" in [task.thread_id for task in await shop.tasks()]


async def test_a_failed_task_is_an_error_of_the_call_and_a_refused_one_was_not_made():
    async with site(scripted_agent(name="shop")) as shop:  # its script is empty
        agent = desk(shop.remote())
        async with Runner("memory:", agents=[agent]) as runner:
            (executed,) = (await runner.run(agent, "Go")).tool_executions
            assert executed.outcome == "error"
            assert "the task of the agent shop is failed" in executed.error.message
        reader = desk(shop.remote("reader"))
        async with Runner("memory:", agents=[reader]) as runner:
            (executed,) = (await runner.run(reader, "Go")).tool_executions
            assert "was not called: it refused the request with status 403" in executed.error.message
        stranger = desk(shop.remote("nobody"))
        async with Runner("memory:", agents=[stranger]) as runner:
            with pytest.raises(ToolsetUnavailable, match="status 401"):
                await runner.run(stranger, "Go")


async def test_a_request_of_the_remote_task_is_a_question_of_ours_also_in_another_process():
    async with site(scripted_agent(call("pay", amount=3), "Paid.", name="shop", tools=[pay])) as shop:
        agent = desk(shop.remote())
        store: Any = "memory:"
        async with Runner(store, agents=[agent]) as runner:
            result = await runner.run(agent, "Pay")
            (item,) = result.pending
            assert item.kind == "question"
            assert item.text.startswith("The agent shop asks: ")
            assert '{"pay":{"amount":3}}' in item.text
            assert item.schema == {"type": "boolean"}
            await runner.answer(result.task_id, value=True)
            result = await runner.resume(result.task_id)
            (executed,) = result.tool_executions
            assert executed.output["answer"] == "Paid."
        assert [task.state for task in await shop.tasks()] == ["completed"]
        (remote,) = await shop.tasks()
        (paid,) = (await shop.runner.result(remote.task_id)).tool_executions
        assert paid.output == "paid 3"


async def test_questions_in_a_row_are_asked_in_order():
    remote = scripted_agent(call("inquire"), call("inquire"), "Thanks.", name="shop", tools=[inquire])
    async with site(remote) as shop:
        agent = desk(shop.remote())
        async with Runner("memory:", agents=[agent]) as runner:
            result = await runner.run(agent, "Go")
            for value in ("this", "that"):
                assert [item.kind for item in result.pending] == ["question"]
                await runner.answer(result.task_id, value=value)
                result = await runner.resume(result.task_id)
            assert result.tool_executions[0].output["answer"] == "Thanks."
        (task,) = await shop.tasks()
        outputs = [each.output for each in (await shop.runner.result(task.task_id)).tool_executions]
        assert outputs == ["this", "that"]


async def test_a_cancelled_task_cancels_the_remote_one_and_an_interrupted_one_does_not():
    for verb in ("cancel", "interrupt"):
        gate, agent = waiting_shop()
        async with site(agent) as shop:
            ours = desk(shop.remote())
            async with Runner("memory:", agents=[ours]) as runner:
                handle = await runner.start(ours, "Go")
                with anyio.fail_after(20):
                    while not [task for task in await shop.tasks() if task.state == "running"]:  # noqa: ASYNC110
                        await asyncio.sleep(0.02)
                    await getattr(handle, verb)()
                    if verb == "cancel":
                        gate.set()
                        while [task.state for task in await shop.tasks()] != ["cancelled"]:  # noqa: ASYNC110
                            await asyncio.sleep(0.02)
                    else:
                        assert [task.state for task in await shop.tasks()] != ["cancelled"]
                        gate.set()
                        result = await runner.resume(handle.task_id)
                        assert result.tool_executions[0].output["answer"] == "done"
                        assert len(await shop.tasks()) == 1


class Kept:
    """The services of a call: what it keeps is lost with the first attempt, as if its process crashed too early."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    async def once(self, name: str, fn: Any) -> Any:
        if name not in self.values:
            self.values[name] = await fn()
        return self.values[name]


def context(attempt: int, kept: Kept, key: str = "t/s1-0") -> ToolContext[Any]:
    return ToolContext(
        "t", "c", "s1", "s1-0", key, "desk", attempt, None, open_services=lambda: cast("Any", kept)
    )


async def test_a_call_that_was_cut_before_its_task_was_known_is_not_started_twice():
    async with site(scripted_agent("one", name="shop")) as shop:
        for repeats, is_again in ((None, True), (True, True), (False, False)):
            (shop_tool,) = await shop.remote(repeats=repeats).connect().tools()
            arguments = {"message": f"{repeats}"}
            assert (await shop_tool.call(arguments, context(1, Kept(), f"t/{repeats}"))).output[
                "answer"
            ] == "one"
            count = len(await shop.tasks())
            if is_again:
                assert (await shop_tool.call(arguments, context(2, Kept(), f"t/{repeats}"))).output[
                    "answer"
                ] == "one"
            else:
                with pytest.raises(ToolOutcomeUnknown, match="it was not sent again"):
                    await shop_tool.call(arguments, context(2, Kept(), f"t/{repeats}"))
            assert len(await shop.tasks()) == count, repeats


DRIVER = """
import asyncio, sys
from treadle import Agent, RemoteAgent, Runner, ScriptedModel
from treadle.models import call

agent = Agent(
    ScriptedModel([call("shop", message="Work"), "Done."]),
    name="desk",
    tools=[RemoteAgent(sys.argv[2], auth=lambda: "ann")],
)


async def main():
    async with Runner(sys.argv[1], agents=[agent]) as runner:
        await runner.run(agent, "Go", task_id="t1")


asyncio.run(main())
"""


async def test_a_driver_that_is_killed_in_a_call_leaves_one_task_that_another_continues(tmp_path: Path):
    gate, agent = waiting_shop()
    (tmp_path / "driver.py").write_text(DRIVER)
    store = f"sqlite:///{tmp_path}/store.db?lease=0.5"
    async with site(agent) as shop:
        command = [sys.executable, "driver.py", store, shop.url]
        driver = Forked(command, cwd=tmp_path, env={**os.environ})
        with anyio.fail_after(30):
            while not [task for task in await shop.tasks() if task.state == "running"]:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.3)  # until its task is kept
        driver.kill()
        driver.wait()
        ours = desk(shop.remote(), call("shop", message="Work"), "Done.")
        async with Runner(store, agents=[ours]) as runner:
            gate.set()
            result = await runner.resume("t1")
        assert (result.state, result.tool_executions[0].output["answer"]) == ("completed", "done")
        assert len(await shop.tasks()) == 1


async def test_declarations_are_checked_and_equal_ones_are_one():
    remote = RemoteAgent("https://x.example/a2a/shop", headers={"Authorization": "Bearer secret-token-1"})
    assert (remote.name, remote.card_url) == (
        "shop",
        "https://x.example/a2a/shop/.well-known/agent-card.json",
    )
    assert RemoteAgent("https://weather.example/.well-known/agent-card.json").name == "weather"
    assert remote == RemoteAgent("https://x.example/a2a/shop/", headers=dict(remote.headers))
    assert "secret-token-1" in str(remote.credentials())
    assert "secret" not in f"{remote!r} {remote.facts()}"
    for arguments in (
        {"url": "shop"},
        {"url": "https://x", "name": "two words"},
        {"url": "https://x", "headers": {"a": 1}},
        {"url": "https://x", "auth": "token"},
        {"url": "https://x", "effects": ["harmless"]},
        {"url": "https://x", "timeout": 0},
    ):
        with pytest.raises(ConfigurationError):
            RemoteAgent(**arguments)  # pyright: ignore[reportArgumentType]


async def test_our_server_declares_that_repeated_messages_are_one_task():
    from treadle.server.protocols import a2a

    assert a2a.REPEATS == REPEATS
