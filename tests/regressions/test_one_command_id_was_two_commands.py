"""The same `command_id` by `Runner` and by `Client` was two commands: the model read the message twice."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest

from tests.client.served import client, served
from treadle import Agent, Runner, ScriptedModel
from treadle.errors import ConfigurationError, TreadleError
from treadle.server import ADMIN, Principal

pytestmark = pytest.mark.anyio

IDS = [
    "order-17",
    "a b",
    " blank at the ends ",
    "жук 🪲",
    '%"looks quoted"',
    '"quoted"',
    "100%",
    "line\r\nSet-Cookie: a=b",
    "é" * 200,
    "c" * 200,
    "\x7f",
]


def sayer() -> Agent[Any, str]:
    return Agent(ScriptedModel(["Hi."] * 9), name="sayer")


def by_token(connection: Any) -> Principal | None:
    """Know each principal by its name, and its tenant, which are its token."""
    name, _, tenant = connection.headers.get("authorization", "").removeprefix("Bearer ").partition("@")
    return Principal(name, tenant, scopes=ADMIN)


async def messages(runner: Any, task: str) -> list[str]:
    """Return the messages that a task received after its first."""
    page = await runner.get_events(task, kinds=["input_received"])
    return [event.parts[0].text async for event in page]


@pytest.mark.parametrize("command_id", IDS, ids=range(len(IDS)))
@pytest.mark.sampled(4)
async def test_a_message_sent_by_runner_and_by_client_under_one_id_is_read_once(
    store: Any, command_id: str
) -> None:
    with served(sayer(), store=store) as url:
        async with Runner(store, agents=[sayer()]) as runner, client(url) as remote:
            task = (await runner.create_task(sayer(), "Hi")).task_id
            senders: Sequence[Any] = (runner, remote, runner, remote)
            for sender in senders:
                await sender.send(task, "Once", command_id=command_id)
            assert await messages(runner, task) == ["Once"]
            for sender in senders:
                with pytest.raises(ConfigurationError, match="belongs to another command"):
                    await sender.send(task, "Other words", command_id=command_id)
                with pytest.raises(ConfigurationError, match="belongs to another command"):
                    await sender.pause(task, command_id=command_id)
            first, *others = [
                await sender.run_step(task, input="Now", command_id=f"{command_id[:190]} step")
                for sender in senders
            ]
            assert [other.step.step_id for other in others] == [first.step.step_id] * 3
            assert await messages(runner, task) == ["Once", "Now"]


async def test_an_id_that_a_runner_refuses_a_client_refuses_too(store: Any) -> None:
    with served(sayer(), store=store) as url:
        async with Runner(store, agents=[sayer()]) as runner, client(url) as remote:
            task = (await runner.create_task(sayer(), "Hi")).task_id
            for sender, command_id in product((runner, remote), ("", "c" * 201, "a\0b", "a\x1fb")):
                with pytest.raises(TreadleError, match=r"command_id|Idempotency-Key"):
                    await sender.send(task, "Once", command_id=command_id)
            assert await messages(runner, task) == []


async def test_principals_of_one_tenant_share_ids_and_those_of_two_tenants_do_not() -> None:
    with served(sayer(), auth=by_token) as url:
        ann, eve, bob = [client(url, token=token) for token in ("ann@a", "eve@a", "bob@b")]
        async with ann, eve, bob:
            agent: Any = "sayer"
            for each in (ann, bob):
                await each.create_task(agent, "Hi", task_id="t")
            await ann.send("t", "From ann", command_id="c1")
            await bob.send("t", "From bob", command_id="c1")
            await eve.send("t", "From ann", command_id="c1")  # a repeat, by another principal
            with pytest.raises(ConfigurationError, match="belongs to another command"):
                await eve.send("t", "From eve", command_id="c1")
            assert await messages(ann, "t") == ["From ann"]
            assert await messages(bob, "t") == ["From bob"]
