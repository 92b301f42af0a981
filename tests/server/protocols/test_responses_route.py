"""Responses on a real server, asked for by the official client `openai`: whole, streamed, answered, refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel

from tests.cast import inquire, look, pay, scripted_agent
from tests.server.calling import by_name, waiting_shop
from tests.server.hosting import hosted
from tests.server.protocols.test_responses import Screen, conforming
from treadle import Agent, Runner, ScriptedModel, ToolContext, tool
from treadle.llm.scripted import call, text
from treadle.server import ServerLimits, app
from treadle.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio

WHERE: Any = {
    "type": "function",
    "name": "where",
    "description": "Where the user is.",
    "parameters": {"type": "object", "properties": {}},
}


class Site:
    """A server under test, and official clients of it."""

    def __init__(self, api: Any, http: Any) -> None:
        self.api, self.http = api, http
        self.runner = api.service.runner
        self.clients: dict[str, AsyncOpenAI] = {}

    def client(self, name: str = "ann") -> Any:
        if name not in self.clients:
            url = f"{str(self.http.base_url).rstrip('/')}/v1"
            self.clients[name] = AsyncOpenAI(base_url=url, api_key=name, max_retries=0)
        return self.clients[name]

    @property
    def responses(self) -> Any:
        """The responses as `ann` has them."""
        return self.client().responses

    async def frames(self, path: str, body: Any = None, **query: Any) -> list[Any]:
        """Return the events of a stream, which ends with `[DONE]`."""
        headers = {"Authorization": "Bearer ann"}
        method = "GET" if body is None else "POST"
        response = await self.http.request(method, path, json=body, params=query, headers=headers)
        assert response.status_code == 200, response.text
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        return parsed(response.text)

    async def until(self, state: str) -> None:
        """Return once a task has a state."""

        async def is_there() -> bool:
            return bool((await self.runner.list_tasks(state=state)).items)

        await eventually(is_there)

    async def completed(self, response_id: str) -> Any:
        """Return a response once it is completed."""

        async def is_completed() -> bool:
            return (await self.responses.retrieve(response_id)).status == "completed"

        await eventually(is_completed)
        return await self.responses.retrieve(response_id)

    async def until_tasks(self, count: int) -> None:
        """Return once there are no more tasks than some."""

        async def are_gone() -> bool:
            return (await self.runner.count_tasks()).tasks <= count

        await eventually(are_gone)


async def eventually(check: Callable[[], Awaitable[bool]]) -> None:
    """Return once a check is true."""
    async with asyncio.timeout(20):
        while not await check():  # noqa: ASYNC110  it is another loop's
            await asyncio.sleep(0.02)


def parsed(body: str) -> list[Any]:
    *blocks, last, end = body.split("\n\n")
    assert (last, end) == ("data: [DONE]", "")
    frames: list[Any] = []
    for block in blocks:
        if block.startswith(":"):
            continue  # a heartbeat
        kind, data = block.split("\n")
        frames.append(json.loads(data.removeprefix("data: ")))
        assert kind == f"event: {frames[-1]['type']}"
    return conforming(frames)


@asynccontextmanager
async def site(
    *agents: Agent[Any], store: Any = "memory:", secrets: Any = None, **settings: Any
) -> AsyncIterator[Site]:
    api = app(Runner(store, agents=agents, secrets=secrets), **{"auth": by_name, **settings})
    async with api.lifespan(), hosted(api, api.leave) as http:
        made = Site(api, http)
        yield made
        for client in made.clients.values():
            await client.close()


def kinds(response: Any) -> list[str]:
    return [item.type for item in response.output]


async def test_a_response_is_a_task_and_its_stream_tells_the_same():
    agent = scripted_agent(call("look"), "Seen.", name="shop", tools=[look])
    async with site(agent) as shop:
        made = await shop.responses.create(
            model="shop", input="Look around", instructions="Be brief.", metadata={"color": "red"}
        )
        assert (made.status, made.output_text, kinds(made)) == ("completed", "Seen.", ["mcp_call", "message"])
        assert (made.instructions, made.metadata, made.model) == ("Be brief.", {"color": "red"}, "shop")
        assert made.usage.total_tokens == made.usage.input_tokens + made.usage.output_tokens > 0
        task = await shop.runner.get_task(made.id.removeprefix("resp_"))
        assert (task.labels, task.state) == ({"color": "red"}, "completed")
        roles = [message.role for message in (await shop.runner.result(task)).messages]
        assert roles[:2] == ["user", "system"]
        assert await shop.responses.retrieve(made.id) == made
        frames = await shop.frames(f"/v1/responses/{made.id}", stream="true")
        screen = Screen()
        screen.read(frames)
        assert screen.final["output"] == list(screen.items.values())
        assert screen.final["id"] == made.id
        for place, frame in enumerate(frames):
            rest = await shop.frames(
                f"/v1/responses/{made.id}", stream="true", starting_after=frame["sequence_number"]
            )
            assert rest == frames[place + 1 :]


async def test_the_official_stream_accumulates_a_response():
    agent = scripted_agent(call("look"), "Seen.", name="shop", tools=[look])
    async with site(agent) as shop:
        async with shop.responses.stream(model="shop", input="Look") as stream:
            types = [event.type async for event in stream]
            final = await stream.get_final_response()
        assert final.output_text == "Seen."
        assert (types[0], types[-1]) == ("response.created", "response.completed")
        assert "response.output_text.delta" in types
        events = await shop.responses.create(model="shop", input="Look", stream=True)
        told = [event async for event in events]
        assert told[-1].response.output_text == "Seen."


async def test_a_response_in_the_background_is_asked_for_until_it_is_there():
    gate, agent = waiting_shop()
    async with site(agent) as shop:
        made = await shop.responses.create(model="shop", input="Work", background=True)
        assert made.status in ("queued", "in_progress")
        assert made.background
        gate.set()
        now = await shop.completed(made.id)
        assert (now.status, now.output_text) == ("completed", "done")


async def test_a_conversation_goes_on_after_its_last_response():
    agent = Agent(ScriptedModel([text("one")]), name="shop")
    async with site(agent) as shop:
        first = await shop.responses.create(model="shop", input="A", conversation="talk")
        assert first.conversation.id == "talk"
        second = await shop.responses.create(model="shop", input="B", previous_response_id=first.id)
        assert (second.conversation.id, second.previous_response_id) == ("talk", first.id)
        third = await shop.responses.create(model="shop", input="C", conversation={"id": "talk"})
        said = [message.text for message in await shop.runner.get_thread("talk")]
        assert said == ["A", "one", "B", "one", "C", "one"]
        assert third.conversation.id == "talk"
        with pytest.raises(openai.BadRequestError) as refused:
            await shop.responses.create(model="shop", input="D", previous_response_id="resp_gone")
        assert refused.value.code == "previous_response_not_found"


async def test_references_to_items_continue_the_conversation_of_the_last_one():
    async with site(Agent(ScriptedModel([text("one")]), name="shop")) as shop:
        asked: list[Any] = [{"role": "user", "content": "A"}]
        first = await shop.responses.create(model="shop", input=asked)
        asked += [{"type": "item_reference", "id": first.output[0].id}, {"role": "user", "content": "B"}]
        second = await shop.responses.create(model="shop", input=asked)
        assert (second.previous_response_id, second.conversation) == (first.id, first.conversation)
        said = [message.text for message in await shop.runner.get_thread(first.conversation.id)]
        assert said == ["A", "one", "B", "one"]


async def test_an_earlier_response_of_a_conversation_branches():
    agents = [
        Agent(ScriptedModel([text("one")]), name="shop"),
        Agent(ScriptedModel([text("x"), text("two")]), name="bank"),
    ]
    async with site(*agents) as shop:
        first = await shop.responses.create(
            model="shop", input="A", conversation="talk", instructions="Brief."
        )
        await shop.responses.create(model="shop", input="B", previous_response_id=first.id)
        key: Any = {"extra_headers": {"Idempotency-Key": "branch"}}
        asked: Any = {
            "model": "bank",
            "input": "C",
            "previous_response_id": first.id,
            "instructions": "Polite.",
        }
        branch = await shop.responses.create(**asked, **key)
        assert (branch.model, branch.output_text, kinds(branch)) == ("bank", "two", ["message"])
        assert (branch.previous_response_id, branch.instructions) == (first.id, "Polite.")
        assert branch.conversation.id != "talk"
        said = [message.text for message in await shop.runner.get_thread(branch.conversation.id)]
        assert said == ["A", "Brief.", "one", "C", "Polite.", "two"]
        assert (await shop.responses.create(**asked, **key)) == branch
        assert (await shop.responses.retrieve(branch.id)) == branch
        items = await shop.responses.input_items.list(branch.id, order="asc")
        assert [item.content[0].text for item in items.data] == ["C", "Polite."]
        frames = await shop.frames(f"/v1/responses/{branch.id}", stream="true")
        assert frames[-1]["response"]["output"] == [item.to_dict() for item in branch.output]
        with pytest.raises(openai.PermissionDeniedError):
            await shop.client("runner").responses.create(
                model="shop", input="C", previous_response_id=first.id
            )


async def test_messages_from_elsewhere_become_the_history_of_a_conversation():
    agent = Agent(ScriptedModel([text("Alice")]), name="shop")
    history = [
        {"role": "user", "content": "I am Alice."},
        {"role": "assistant", "content": "Hello Alice."},
        {"type": "function_call", "call_id": "c1", "name": "find", "arguments": '{"a": 1}'},
        {"type": "function_call_output", "call_id": "c1", "output": "found"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Found."}]},
        {"role": "developer", "content": "Be brief."},
    ]
    async with site(agent) as shop:
        asked = [*history, {"role": "user", "content": [{"type": "input_text", "text": "Who am I?"}]}]
        made = await shop.responses.create(model="shop", input=asked)
        assert made.output_text == "Alice"
        messages = await shop.runner.get_thread(made.conversation.id)
        assert [message.role for message in messages] == [
            *("user", "assistant", "tool", "assistant", "user", "system", "assistant")
        ]
        assert messages[4].text == "Who am I?"
        with pytest.raises(openai.BadRequestError) as refused:
            await shop.responses.create(model="shop", input=asked, conversation=made.conversation.id)
        assert refused.value.param == "input[1]" or refused.value.param == "input[0]"
        with pytest.raises(openai.PermissionDeniedError):
            await shop.client("runner").responses.create(model="shop", input=asked)


async def test_the_clients_function_ends_a_response_and_its_output_begins_the_next_one():
    agent = scripted_agent(call("where"), "You are in Rome.", name="shop")
    async with site(agent) as shop:
        first = await shop.responses.create(model="shop", input="Where am I?", tools=[WHERE])
        (item,) = first.output
        assert (first.status, item.type, item.name, item.arguments) == (
            "completed",
            "function_call",
            "where",
            "{}",
        )
        assert first.tools[0].name == "where"
        with pytest.raises(openai.BadRequestError, match="no tool output") as refused:
            await shop.responses.create(
                model="shop", input="Well?", previous_response_id=first.id, tools=[WHERE]
            )
        assert refused.value.param == "input"
        output = {"type": "function_call_output", "call_id": item.call_id, "output": '{"city": "Rome"}'}
        asked = {"model": "shop", "input": [output], "previous_response_id": first.id, "tools": [WHERE]}
        second = await shop.responses.create(**asked)
        assert (second.status, second.output_text, kinds(second)) == (
            "completed",
            "You are in Rome.",
            ["message"],
        )
        assert second.previous_response_id == first.id != second.id
        again = await shop.responses.create(**asked)
        assert again == second
        assert (await shop.responses.retrieve(first.id)).output == first.output
        frames = await shop.frames(f"/v1/responses/{first.id}", stream="true")
        assert [item["type"] for item in frames[-1]["response"]["output"]] == ["function_call"]
        items = await shop.responses.input_items.list(second.id)
        assert [(each.type, each.output) for each in items.data] == [
            ("function_call_output", '{"city":"Rome"}')
        ]
        other = {**output, "output": "elsewhere"}
        with pytest.raises(openai.BadRequestError, match="no task waits"):
            await shop.responses.create(model="shop", input=[other], previous_response_id=first.id)
        third = await shop.responses.create(
            model="shop", input="Thanks", previous_response_id=second.id, tools=[WHERE]
        )
        assert third.conversation.id == first.conversation.id
        assert (await shop.runner.count_tasks()).tasks == 2


async def test_a_client_without_a_previous_id_answers_by_the_id_of_the_call():
    agent = scripted_agent(call("where"), "You are in Rome.", name="shop")
    async with site(agent) as shop:
        asked: list[Any] = [{"role": "user", "content": "Where am I?"}]
        first = await shop.responses.create(model="shop", input=asked, tools=[WHERE], store=False)
        asked += [item.to_dict() for item in first.output]
        asked.append({"type": "function_call_output", "call_id": first.output[0].call_id, "output": "Rome"})
        second = await shop.responses.create(model="shop", input=asked, tools=[WHERE], store=False)
        assert second.output_text == "You are in Rome."
        await shop.until_tasks(0)


@pytest.mark.parametrize(("approve", "told"), [(True, "paid 3"), (False, "too much")])
async def test_an_approval_is_an_item_that_the_next_request_decides(approve: bool, told: str):
    agent = scripted_agent(call("pay", amount=3), "So be it.", name="shop", tools=[pay])
    async with site(agent) as shop:
        first = await shop.responses.create(model="shop", input="Pay 3")
        (item,) = first.output
        assert (first.status, item.type, item.arguments) == (
            "completed",
            "mcp_approval_request",
            '{"amount": 3}',
        )
        with pytest.raises(openai.BadRequestError) as refused:
            await shop.responses.create(model="shop", input="Well?", previous_response_id=first.id)
        assert refused.value.code == "requests_open"
        decision = {
            "type": "mcp_approval_response",
            "approval_request_id": item.id,
            "approve": approve,
            "reason": None if approve else "too much",
        }
        with pytest.raises(openai.PermissionDeniedError):
            await shop.client("runner").responses.create(
                model="shop", input=[decision], previous_response_id=first.id
            )
        second = await shop.responses.create(model="shop", input=[decision], previous_response_id=first.id)
        ran = second.output[0]
        assert (ran.type, ran.approval_request_id) == ("mcp_call", item.id)
        assert told in str(ran.output or ran.error)
        assert second.output_text == "So be it."
        again = await shop.responses.create(model="shop", input=[decision], previous_response_id=first.id)
        assert again.to_dict() == second.to_dict()


async def test_an_approval_of_a_subagent_is_decided_too():
    payer = scripted_agent(call("pay", amount=1), "Paid.", name="payer", tools=[pay])
    agent = scripted_agent(call("payer", input="Pay 1"), "All done.", name="shop", subagents=[payer])
    async with site(agent, payer) as shop:
        first = await shop.responses.create(model="shop", input="Pay")
        (item,) = [each for each in first.output if each.type == "mcp_approval_request"]
        decision = {"type": "mcp_approval_response", "approval_request_id": item.id, "approve": True}
        second = await shop.responses.create(model="shop", input=[decision], previous_response_id=first.id)
        assert (second.status, second.output_text) == ("completed", "All done.")
        assert second.usage.total_tokens > 0


async def test_a_question_is_named_in_metadata_and_answered_elsewhere():
    agent = scripted_agent(call("inquire"), "Thanks.", name="shop", tools=[inquire])
    async with site(agent) as shop:
        made = await shop.responses.create(model="shop", input="Ask me")
        assert (made.status, made.incomplete_details.reason) == ("incomplete", "question")
        task_id = made.id.removeprefix("resp_")
        assert made.metadata == {"treadle.pending.1": f"question {task_id}:s1-0-q1 What?"}
        await shop.http.post(
            f"/v1/tasks/{task_id}/answer",
            json={"request_id": "s1-0-q1", "value": "this"},
            headers={"Authorization": "Bearer ann"},
        )
        now = await shop.completed(made.id)
        assert now.output_text == "Thanks."


async def test_a_response_that_is_not_stored_is_deleted_at_its_end():
    gate, agent = waiting_shop()
    async with site(agent, scripted_agent("one", name="quick")) as shop:
        made = await shop.responses.create(model="quick", input="Hi", store=False)
        assert (made.store, made.output_text) == (False, "one")
        async with shop.responses.stream(model="shop", input="Hi", store=False) as stream:
            async for event in stream:
                if event.type == "response.mcp_call.in_progress":
                    break  # the client leaves
        kept = await shop.responses.create(model="quick", input="Hi", conversation="talk")
        await shop.responses.create(model="quick", input="Hi", conversation="talk", store=False)
        gate.set()
        await shop.until_tasks(1)
        assert (await shop.responses.retrieve(kept.id)).output_text == "one"
        assert [each.thread_id for each in (await shop.runner.list_threads()).items] == ["talk"]
        with pytest.raises(openai.NotFoundError):
            await shop.responses.retrieve(made.id)
        with pytest.raises(openai.BadRequestError, match="background"):
            await shop.responses.create(model="quick", input="Hi", background=True, store=False)


async def test_a_response_is_cancelled_deleted_and_its_input_listed():
    gate, agent = waiting_shop()
    async with site(agent) as shop:
        made = await shop.responses.create(model="shop", input="Work", background=True, instructions="Fast.")
        frames = asyncio.ensure_future(shop.frames(f"/v1/responses/{made.id}", stream="true"))
        await shop.until("running")
        cancelling = asyncio.ensure_future(shop.responses.cancel(made.id))
        await asyncio.sleep(0.05)
        gate.set()
        assert (await cancelling).status == "cancelled"
        last = (await frames)[-1]
        assert (last["type"], last["response"]["status"]) == ("response.incomplete", "cancelled")
        assert (await shop.responses.cancel(made.id)).status == "cancelled"
        page = await shop.responses.input_items.list(made.id, limit=1)
        assert (page.data[0].role, page.has_more) == ("system", True)
        every = [item async for item in shop.responses.input_items.list(made.id, limit=1, order="asc")]
        assert [item.content[0].text for item in every] == ["Work", "Fast."]
        await shop.responses.delete(made.id)
        with pytest.raises(openai.NotFoundError) as refused:
            await shop.responses.retrieve(made.id)
        assert refused.value.code == "response_not_found"


async def test_a_repeated_request_is_one_response():
    agent = scripted_agent(call("where"), "You are in Rome.", name="shop")
    async with site(agent) as shop:
        key: Any = {"extra_headers": {"Idempotency-Key": "once"}}
        asked = {"model": "shop", "input": "Where?", "tools": [WHERE], "instructions": "Brief."}
        first = await shop.responses.create(**asked, **key)
        assert await shop.responses.create(**asked, **key) == first
        events = await shop.responses.create(**asked, stream=True, **key)
        assert [event async for event in events][-1].response.id == first.id
        output = {"type": "function_call_output", "call_id": first.output[0].call_id, "output": "Rome"}
        later = {"model": "shop", "input": [output], "previous_response_id": first.id}
        answers = await asyncio.gather(*[shop.responses.create(**later) for _ in range(3)])
        assert len({answer.id for answer in answers}) == 1
        assert {answer.output_text for answer in answers} == {"You are in Rome."}
        assert (await shop.runner.count_tasks()).tasks == 1


class City(BaseModel):
    """A city."""

    name: str
    people: int


class Country(BaseModel):
    title: str


async def test_a_typed_answer_is_parsed_if_it_is_the_agents_own_type():
    agent = Agent(
        ScriptedModel([text('{"name": "Rome", "people": 3}')]),
        name="shop",
        output_type=City,
        output_mode="prompt",
    )
    async with site(agent, scripted_agent("one", name="plain")) as shop:
        made = await shop.responses.parse(model="shop", input="Where?", text_format=City)
        assert made.output_parsed == City(name="Rome", people=3)
        for model, form in (("shop", Country), ("plain", City)):
            with pytest.raises(openai.BadRequestError) as refused:
                await shop.responses.parse(model=model, input="Where?", text_format=form)
            assert str(refused.value.param).startswith("text.format")


async def test_refusals_have_the_form_of_the_api():
    async with site(scripted_agent("one", name="shop")) as shop:
        with pytest.raises(openai.AuthenticationError) as refused:
            await shop.client("nobody").responses.create(model="shop", input="Hi")
        assert refused.value.code == "invalid_api_key"
        for name in ("none", "reader"):
            with pytest.raises(openai.PermissionDeniedError) as denied:
                await shop.client(name).responses.create(model="shop", input="Hi")
            assert denied.value.code == "scope_missing"
        with pytest.raises(openai.NotFoundError) as missing:
            await shop.responses.create(model="gone", input="Hi")
        assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
        with pytest.raises(openai.BadRequestError) as bad:
            await shop.responses.create(model="shop", input="Hi", top_p=0.5)
        assert (bad.value.param, bad.value.type) == ("top_p", "invalid_request_error")
        with pytest.raises(openai.BadRequestError) as bad:
            await shop.responses.create(model="shop")
        assert bad.value.param == "input"
        for identifier in ("resp_gone", "nonsense", "resp_gone~0123456789abcdef"):
            with pytest.raises(openai.NotFoundError):
                await shop.responses.retrieve(identifier)
        response = await shop.http.put("/v1/responses/x", headers={"Authorization": "Bearer ann"})
        assert (response.status_code, response.json()["error"]["code"]) == (405, "method_refused")
        response = await shop.http.get("/v1/responses/x", params={"starting_after": -1, "stream": True})
        assert (response.status_code, response.json()["error"]["type"]) == (401, "authentication_error")


async def test_responses_of_another_tenant_are_unknown():
    async with site(scripted_agent("one", name="shop")) as shop:
        made = await shop.responses.create(model="shop", input="Hi")
        other = shop.client("eve").responses
        for asks in (other.retrieve, other.delete, other.cancel):
            with pytest.raises(openai.NotFoundError):
                await asks(made.id)
        with pytest.raises(openai.BadRequestError):
            await other.create(model="shop", input="Hi", previous_response_id=made.id)
        assert (await shop.runner.count_tasks()).tasks == 1


async def test_a_task_that_fails_is_a_failed_response():
    async with site(scripted_agent(name="shop")) as shop:  # its script is empty
        made = await shop.responses.create(model="shop", input="Go")
        assert (made.status, bool(made.error.message)) == ("failed", True)
        frames = await shop.frames(f"/v1/responses/{made.id}", stream="true")
        assert frames[-1]["type"] == "response.failed"


async def test_a_client_that_does_not_wait_or_leaves_stops_nothing():
    gate, agent = waiting_shop()
    async with site(agent) as shop:
        made = await shop.responses.create(model="shop", input="Go", extra_headers={"Prefer": "wait=0"})
        assert made.status in ("queued", "in_progress")
        waiting = asyncio.ensure_future(shop.responses.create(model="shop", input="Go on"))
        await asyncio.sleep(0.3)
        waiting.cancel()
        gate.set()

        async def both() -> bool:
            return len((await shop.runner.list_tasks(state="completed")).items) == 2

        await eventually(both)


async def test_a_server_that_ends_says_that_the_response_goes_on():
    gate, agent = waiting_shop()
    async with site(agent) as shop:
        stream = await shop.responses.create(model="shop", input="Work", stream=True)
        seen: list[Any] = []
        async for event in stream:
            seen.append(event)
            if event.type == "response.mcp_call.in_progress":
                shop.api.service.streams.leave()
        gate.set()
        assert (seen[-1].type, seen[-1].code) == ("error", "stream_shutdown")
        assert seen[-1].sequence_number == seen[-2].sequence_number


async def test_a_stream_of_a_deleted_response_ends_with_an_error():
    agent = scripted_agent(call("look"), "Seen.", name="shop", tools=[look])
    async with site(agent, drive=False) as shop:  # nobody drives it
        made = await shop.responses.create(model="shop", input="Work", background=True)
        stream = await shop.responses.retrieve(made.id, stream=True)
        assert (await anext(stream)).type == "response.created"
        await shop.responses.delete(made.id)
        told = [event async for event in stream]
        assert (told[-1].type, told[-1].code) == ("error", "stream_deleted")


async def test_a_secret_that_the_process_knows_is_in_no_response():
    secret = "sesame-open-0123456789"

    @tool(read_only=True, secrets=("key",))
    def unlock(ctx: ToolContext[Any]) -> str:
        return ctx.secret("key")[:0]

    agent = scripted_agent(call("unlock"), "It is open.", name="shop", tools=[unlock])
    store = MemoryStore()
    other = scripted_agent(f"It is {secret}.", name="shop")
    await Runner(store).run(other, "Go.", task_id="r1")
    async with site(agent, store=store, secrets={"key": lambda: secret}) as shop:
        await shop.responses.create(model="shop", input="Open")
        made = await shop.responses.retrieve("resp_r1")
        assert made.output_text == "It is [secret]."
        frames = await shop.frames("/v1/responses/resp_r1", stream="true")
        assert secret not in str(frames)


async def test_the_protocol_can_be_left_out():
    async with site(scripted_agent("one", name="shop"), protocols=("agui",)) as shop:
        with pytest.raises(openai.NotFoundError):
            await shop.responses.create(model="shop", input="Hi")


async def test_a_principal_with_many_waits_gets_responses_in_progress():
    gate, agent = waiting_shop()
    async with site(agent, limits=ServerLimits(waits_per_principal=1)) as shop:
        first = asyncio.ensure_future(shop.responses.create(model="shop", input="Work"))
        await shop.until("running")
        second = await shop.responses.create(model="shop", input="Work too")
        assert second.status in ("queued", "in_progress")
        gate.set()
        assert (await first).status == "completed"
