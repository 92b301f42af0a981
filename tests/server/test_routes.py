import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from tests.server.calling import Client, agent, serving
from treadle import Message, Runner, Text
from treadle.core.redaction import Secrets
from treadle.results.step_outputs import StepOutputs
from treadle.results.threads import ThreadMessages
from treadle.results.wire import wire_bytes
from treadle.server.routes import LARGE, content

pytestmark = pytest.mark.anyio

MANY = tuple([Message("user", (Text(f"{number} \u00e9 \ud83d\ude00"),)) for number in range(LARGE + 1)])


async def result() -> Any:
    async with Runner("memory:", agents=[agent()]) as runner:
        return await runner.run(agent(), "hello")


@pytest.mark.parametrize("secrets", [None, Secrets([], ["tok-1234567890"])])
async def test_a_large_value_is_written_as_a_small_one_is(secrets: Secrets | None):
    small = await result()
    large = replace(small, messages=MANY, extra_state={"a": [1, {"b": None}], "c": {}})
    for value in (
        large,
        small,
        ThreadMessages(MANY),
        ThreadMessages(),
        MANY,
        (),
        StepOutputs(()),
        {},
        {"a": []},
        "x",
    ):
        assert json.loads(await content(value, secrets)) == json.loads(wire_bytes(value))


async def test_secrets_are_hidden_in_large_values_too():
    secrets = Secrets([], ["tok-1234567890"])
    told = (*MANY, Message("user", (Text("it is tok-1234567890"),)))
    assert b"tok-1234567890" not in await content(ThreadMessages(told), secrets)


@pytest.mark.parametrize(("count", "goes_on"), [(LARGE, False), (20 * LARGE, True)])
async def test_the_event_loop_goes_on_while_a_large_value_is_written(count: int, goes_on: bool):
    writing = asyncio.create_task(content(ThreadMessages(MANY[:1] * count), None))
    turns = 0
    while not writing.done():
        await asyncio.sleep(0)
        turns += 1
    assert (turns > 2) == goes_on


async def test_a_large_body_is_read_like_a_small_one():
    messages = [{"role": "user", "parts": [{"type": "text", "text": "x" * 50}]}] * 1_000
    async with serving() as api, Client(api) as client:
        await client.json("POST", "/v1/threads/t/import", {"messages": messages}, status=201)
        assert len((await client.json("GET", "/v1/threads/t/messages"))["items"]) == 1_000
        wrong = {"messages": [*messages, {"role": "user", "parts": [{"type": "text"}]}]}
        refused = await client.json("POST", "/v1/threads/t/import", wrong, status=422)
        assert refused["field"] == "messages[1000].parts[0].text"
