"""Runs of AG-UI on a real server: messages, streams, interrupts, the client's tools, repeats and refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from ag_ui.core import Event
from pydantic import TypeAdapter

from tests.cast import inquire, look, pay, scripted_agent
from tests.server.calling import by_name, waiting_shop
from tests.server.hosting import hosted
from tests.server.sse import frames
from treadle import Agent, Runner, ToolContext, tool
from treadle.errors import ConfigurationError
from treadle.llm.scripted import call, text
from treadle.server import ServerLimits, app
from treadle.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio

EVENTS: TypeAdapter[Any] = TypeAdapter(Event)


class Site:
    """A server under test, and a client of AG-UI that keeps its messages."""

    def __init__(self, api: Any, client: httpx2.AsyncClient) -> None:
        self.api, self.client = api, client
        self.runner = api.service.runner

    @asynccontextmanager
    async def open(
        self, run_id: str, *messages: Any, agent: str = "shop", principal: str = "ann", **more: Any
    ) -> AsyncIterator[AsyncIterator[Any]]:
        body = {"threadId": "t", "runId": run_id, "messages": list(messages), **more}
        headers = {"Authorization": f"Bearer {principal}", "Accept": "text/event-stream"}
        async with self.client.stream("POST", f"/agui/{agent}", json=body, headers=headers) as response:
            assert response.status_code == 200, await response.aread()
            assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
            yield checked(response.aiter_bytes())

    async def run(self, run_id: str, *messages: Any, **more: Any) -> list[Any]:
        """Return the events of a run."""
        async with self.open(run_id, *messages, **more) as events, asyncio.timeout(20):
            return [event async for event in events]

    async def until(self, state: str) -> None:
        """Return once a task has a state."""
        async with asyncio.timeout(20):
            while not (await self.runner.list_tasks(state=state)).items:  # noqa: ASYNC110  it is another loop's
                await asyncio.sleep(0.02)

    async def refused(self, run_id: str, *messages: Any, status: int, principal: str = "ann", **more: Any):
        body = {"threadId": "t", "runId": run_id, "messages": list(messages), **more}
        headers = {"Authorization": f"Bearer {principal}"}
        response = await self.client.post(f"/agui/{more.pop('agent', 'shop')}", json=body, headers=headers)
        assert response.status_code == status, response.text
        return response.json()


async def checked(chunks: AsyncIterator[bytes]) -> AsyncIterator[Any]:
    """Yield the events of a stream, each of which the protocol's own models accept."""
    async for frame in frames(chunks):
        if frame.text is not None:
            EVENTS.validate_python(frame.data)
            yield frame.data


@asynccontextmanager
async def site(
    *agents: Agent[Any], store: Any = "memory:", secrets: Any = None, **settings: Any
) -> AsyncIterator[Site]:
    api = app(Runner(store, agents=agents, secrets=secrets), **{"auth": by_name, **settings})
    async with api.lifespan(), hosted(api, api.leave) as client:
        yield Site(api, client)


def user(words: str, message_id: str = "u1") -> dict[str, Any]:
    return {"id": message_id, "role": "user", "content": words}


def kinds(events: list[Any]) -> list[str]:
    return [event["type"] for event in events]


def words(events: list[Any]) -> str:
    return "".join([event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT"])


def messages_of(events: list[Any], *before: Any) -> list[Any]:
    """Return the messages that a client has after some events."""
    kept = {message["id"]: dict(message) for message in before}
    for event in events:
        match event["type"]:
            case "TEXT_MESSAGE_START":
                kept.setdefault(event["messageId"], {"id": event["messageId"], "role": event["role"]})
            case "TEXT_MESSAGE_CONTENT":
                message = kept[event["messageId"]]
                message["content"] = message.get("content", "") + event["delta"]
            case "TOOL_CALL_START":
                parent = event.get("parentMessageId", event["toolCallId"])
                message = kept.setdefault(parent, {"id": parent, "role": "assistant"})
                function = {"name": event["toolCallName"], "arguments": ""}
                call = {"id": event["toolCallId"], "type": "function", "function": function}
                message.setdefault("toolCalls", []).append(call)
            case "TOOL_CALL_ARGS":
                for message in kept.values():
                    for call in message.get("toolCalls", ()):
                        if call["id"] == event["toolCallId"]:
                            call["function"]["arguments"] += event["delta"]
            case "TOOL_CALL_RESULT":
                names = ("toolCallId", "content")
                kept[event["messageId"]] = {
                    "id": event["messageId"],
                    "role": "tool",
                    **{name: event[name] for name in names},
                }
            case "MESSAGES_SNAPSHOT":
                kept = {message["id"]: dict(message) for message in event["messages"]}
            case _:
                pass
    return list(kept.values())


async def test_a_run_is_a_task_and_its_events_are_those_of_the_protocol():
    async with site(scripted_agent(call("look"), "I have seen it.", name="shop", tools=[look])) as shop:
        events = await shop.run("r1", user("Look around"))
        assert events[0] | {"metadata": None} == {
            "type": "RUN_STARTED",
            "threadId": "t",
            "runId": "r1",
            "protocolVersion": "1.0",
            "metadata": None,
        }
        (usage,) = events[-1].pop("usage")
        assert (usage["model"], usage["totalTokens"] > 0) == ("scripted", True)
        assert events[-1] == {
            "type": "RUN_FINISHED",
            "threadId": "t",
            "runId": "r1",
            "result": "I have seen it.",
            "outcome": {"type": "success"},
        }
        assert words(events) == "I have seen it."
        (result,) = [event for event in events if event["type"] == "TOOL_CALL_RESULT"]
        assert (result["toolCallId"], result["content"]) == ("r1/s1-0", "seen")
        assert kinds(events).count("STEP_STARTED") == kinds(events).count("STEP_FINISHED") == 2
        task = await shop.runner.get_task("r1")
        assert (task.thread_id, task.agent, task.state) == ("t", "shop", "completed")


async def test_only_new_messages_are_input_since_the_servers_thread_is_the_truth():
    async with site(scripted_agent("one", "two", "three", name="shop")) as shop:
        first = user("first")
        told = messages_of(await shop.run("r1", first), first)
        told = messages_of(await shop.run("r2", *told, user("second", "u2")), *told, user("second", "u2"))
        await shop.run("r3", first, user("second", "u2"), user("third", "u3"))  # it missed all answers
        thread = [(message.role, message.text) for message in await shop.runner.get_thread("t")]
        assert [text for role, text in thread if role == "user"] == ["first", "second", "third"]
        assert [message["role"] for message in told] == ["user", "assistant"] * 2


async def test_a_longer_foreign_history_is_imported_into_a_new_thread():
    history = [
        user("Who are you?"),
        {"id": "a1", "role": "assistant", "content": "Somebody else."},
        user("And now?", "u2"),
    ]
    async with site(scripted_agent("The shop.", name="shop")) as shop:
        await shop.run("r1", *history, context=[{"description": "page", "value": "cart"}])
        thread = [(message.role, message.text) for message in await shop.runner.get_thread("t")]
        assert thread == [
            ("user", "Who are you?"),
            ("assistant", "Somebody else."),
            ("user", "Context from the application:\n- page: cartAnd now?"),
            ("assistant", "The shop."),
        ]


async def test_an_approval_is_an_interrupt_that_a_later_run_answers():
    async with site(scripted_agent(call("pay", amount=3), "Paid.", name="shop", tools=[pay])) as shop:
        asked = user("Pay 3")
        events = await shop.run("r1", asked)
        assert not [kind for kind in kinds(events) if kind == "TOOL_CALL_RESULT"]
        (interrupt,) = events[-1]["outcome"]["interrupts"]
        assert (interrupt["reason"], interrupt["toolCallId"]) == ("tool_call", "r1/s1-0")
        assert interrupt["id"] == "r1:s1-0-ask1"
        assert interrupt["responseSchema"]["required"] == ["approved"]
        known = messages_of(events, asked)
        refusal = await shop.refused("r2", *known, user("Well?", "u2"), status=409)
        assert refusal["interrupts"] == ["r1:s1-0-ask1"]
        answer = [{"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}]
        later = await shop.run("r2", *known, resume=answer)
        assert kinds(later)[:2] == ["RUN_STARTED", "STEP_STARTED"]
        assert (words(later), later[-1]["outcome"]["type"]) == ("Paid.", "success")
        assert "TOOL_CALL_START" not in kinds(later)
        (result,) = [event for event in later if event["type"] == "TOOL_CALL_RESULT"]
        assert (result["toolCallId"], result["content"]) == ("r1/s1-0", "paid 3")
        again = await shop.run("r2", *known, resume=answer)
        assert messages_of(again, *messages_of(later, *known)) == messages_of(later, *known)


@pytest.mark.parametrize(
    ("payload", "status", "expected"),
    [
        ({"approved": False, "reason": "too much"}, "resolved", "denied"),
        (None, "cancelled", "denied"),
        ({"approved": True, "editedArgs": {"amount": 2}}, "resolved", "paid 2"),
    ],
)
async def test_an_approval_is_denied_or_given_for_other_arguments(payload: Any, status: str, expected: str):
    async with site(scripted_agent(call("pay", amount=3), "So be it.", name="shop", tools=[pay])) as shop:
        asked = user("Pay 3")
        known = messages_of(await shop.run("r1", asked), asked)
        answer = {"interruptId": "r1:s1-0-ask1", "status": status}
        if payload is not None:
            answer["payload"] = payload
        later = await shop.run("r2", *known, resume=[answer])
        (result,) = [event for event in later if event["type"] == "TOOL_CALL_RESULT"]
        assert expected in result["content"]
        assert later[-1]["outcome"]["type"] == "success"


async def test_a_question_is_answered_by_its_schema_and_abandoned_with_its_task():
    agent = scripted_agent(call("inquire"), "Thanks.", name="shop", tools=[inquire])
    async with site(agent) as shop:
        events = await shop.run("r1", user("Ask me"))
        (interrupt,) = events[-1]["outcome"]["interrupts"]
        assert (interrupt["reason"], interrupt["message"]) == ("input_required", "What?")
        known = messages_of(events, user("Ask me"))
        answer = {"interruptId": interrupt["id"], "status": "resolved", "payload": "this"}
        later = await shop.run("r2", *known, resume=[answer])
        assert [event["content"] for event in later if event["type"] == "TOOL_CALL_RESULT"] == ["this"]
    async with site(agent) as shop:
        await shop.run("r1", user("Ask me"))
        later = await shop.run(
            "r2", user("Ask me"), resume=[{"interruptId": "r1:s1-0-q1", "status": "cancelled"}]
        )
        assert later[-1]["outcome"] == {"type": "cancelled"}


async def test_the_clients_tool_ends_the_run_and_its_result_comes_with_the_next_one():
    tool = {"name": "where", "description": "Where the user is.", "parameters": {"properties": {}}}
    async with site(scripted_agent(call("where"), "You are in Rome.", name="shop")) as shop:
        asked = user("Where am I?")
        events = await shop.run("r1", asked, tools=[tool])
        assert events[-1]["outcome"] == {"type": "success", "pendingToolCallIds": ["r1/s1-0"]}
        assert "TOOL_CALL_RESULT" not in kinds(events)
        result = {"id": "m1", "role": "tool", "toolCallId": "r1/s1-0", "content": '{"city": "Rome"}'}
        known = [*messages_of(events, asked), result]
        later = await shop.run("r2", *known, tools=[tool])
        assert (words(later), later[-1]["result"]) == ("You are in Rome.", "You are in Rome.")
        assert "TOOL_CALL_RESULT" not in kinds(later)
        again = await shop.run("r1", *known, tools=[tool])
        roles = [message["role"] for message in messages_of(again, *known)]
        assert roles == ["user", "assistant", "tool", "assistant"]


async def test_the_same_run_again_is_sent_from_its_beginning_and_runs_nothing_twice():
    gate, agent = waiting_shop()
    async with site(agent) as shop:
        async with shop.open("r1", user("Work")) as first, asyncio.timeout(20):
            async for event in first:
                if event["type"] == "TOOL_CALL_END":
                    break  # the client leaves, and the task goes on
        again = asyncio.ensure_future(shop.run("r1", user("Work")))
        await asyncio.sleep(0.05)
        gate.set()
        events = await again
        assert (words(events), events[-1]["outcome"]["type"]) == ("done", "success")
        assert kinds(events).count("TOOL_CALL_START") == 1
        twice = await shop.run("r1", *messages_of(events, user("Work")))
        assert messages_of(twice) == messages_of(events, user("Work"))
        assert (await shop.runner.count_tasks()).tasks == 1


async def test_a_task_that_fails_or_is_deleted_ends_its_run_with_an_error():
    async with site(scripted_agent(name="shop")) as shop:  # its script is empty
        events = await shop.run("r1", user("Go"))
        assert events[-1]["type"] == "RUN_ERROR"
        assert events[-1]["code"]


async def test_a_cancelled_task_ends_its_run_as_cancelled():
    gate, agent = waiting_shop()
    async with site(agent) as shop:
        running = asyncio.ensure_future(shop.run("r1", user("Work")))
        await shop.until("running")
        headers = {"Authorization": "Bearer ann"}
        await shop.client.post("/v1/tasks/r1/cancel", json={}, headers=headers)
        gate.set()
        events = await running
        assert events[-1]["outcome"] == {"type": "cancelled"}


async def test_a_paused_task_is_an_interrupt_that_resumes_it():
    async with site(scripted_agent(call("look"), "Seen.", name="shop", tools=[look])) as shop:
        options = {"options": {"break_on": [{"tool": "look"}]}}
        events = await shop.run("r1", user("Look"), forwardedProps={"treadle": options})
        (interrupt,) = events[-1]["outcome"]["interrupts"]
        assert (interrupt["id"], interrupt["reason"]) == ("r1:resume", "treadle:paused")
        answer = [{"interruptId": "r1:resume", "status": "resolved"}]
        later = await shop.run("r2", *messages_of(events, user("Look")), resume=answer)
        assert words(later) == "Seen."


async def test_a_client_that_leaves_stops_a_task_that_asks_for_it():
    _, agent = waiting_shop()
    limits = ServerLimits(hold_seconds=0.05)
    async with site(agent, limits=limits) as shop:
        props = {"treadle": {"options": {"on_disconnect": "cancel"}}}
        async with shop.open("r1", user("Work"), forwardedProps=props) as events:
            async for event in events:
                if event["type"] == "TOOL_CALL_END":
                    break
        await shop.until("cancelled")


async def test_a_request_that_cannot_be_carried_out_is_refused_before_a_stream_begins():
    async with site(scripted_agent(text("one"), name="shop")) as shop:
        refused = shop.refused
        assert (await refused("r1", status=422))["field"] == "messages"
        assert (await refused("r1", {"id": "u"}, status=422))["field"].startswith("messages[0]")
        await refused("r1", user("hi"), principal="none", status=403)
        await refused("r1", user("hi"), principal="reader", status=403)
        tool = {"name": "a b", "description": ""}
        await refused("r1", user("hi"), tools=[tool], status=422)
        props = {"treadle": {"options": {"nonsense": 1}}}
        told = await refused("r1", user("hi"), forwardedProps=props, status=422)
        assert told["field"] == "forwardedProps.treadle.options.nonsense"
        events = await shop.run("r1", user("hi"), unheard_of={"by": "a newer protocol"})
        assert words(events) == "one"
        body = {"threadId": "other", "runId": "r1", "messages": [user("hi")]}
        headers = {"Authorization": "Bearer ann"}
        assert (await shop.client.post("/agui/shop", json=body, headers=headers)).status_code == 409
        assert (await shop.client.post("/agui/nobody", json=body, headers=headers)).status_code == 404


async def test_the_protocol_can_be_left_out():
    async with site(scripted_agent("one", name="shop"), protocols=()) as shop:
        headers = {"Authorization": "Bearer ann"}
        assert (await shop.client.post("/agui/shop", json={}, headers=headers)).status_code == 404
        assert (await shop.client.get("/v1/me", headers=headers)).json()["protocols"] == []
        document = (await shop.client.get("/v1/openapi.json", headers=headers)).json()
        assert "/agui/{agent}" not in document["paths"]
    async with site(scripted_agent("one", name="shop")) as shop:
        assert (await shop.client.get("/v1/me", headers=headers)).json()["protocols"][0] == "agui"
    with pytest.raises(ConfigurationError, match="agui"):
        app(Runner("memory:"), auth=by_name, protocols=["gopher"])


async def test_a_subagent_is_attributed_and_its_request_is_an_interrupt_of_its_own():
    payer = scripted_agent(call("pay", amount=1), "Paid.", name="payer", tools=[pay])
    shop_agent = scripted_agent(call("payer", input="Pay 1"), "All done.", name="shop", subagents=[payer])
    async with site(shop_agent, payer) as shop:
        events = await shop.run("r1", user("Pay"))
        (began,) = [event for event in events if event["type"] == "SUBAGENT_STARTED"]
        assert (began["name"], began["parentToolCallId"]) == ("payer", "r1/s1-0")
        child = began["subagentRunId"]
        (ended,) = [event for event in events if event["type"] == "SUBAGENT_FINISHED"]
        assert (ended["subagentRunId"], ended["outcome"]) == (child, {"type": "suspended"})
        (interrupt,) = events[-1]["outcome"]["interrupts"]
        assert (interrupt["subagentRunId"], interrupt["id"]) == (child, f"{child}:s1-0-ask1")
        answer = [{"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}]
        later = await shop.run("r2", user("Pay"), resume=answer)
        assert later[-1]["result"] == "All done."
        assert [event["outcome"] for event in later if event["type"] == "SUBAGENT_FINISHED"] == [
            {"type": "success"}
        ]


async def test_ids_of_another_tenant_are_unknown():
    async with site(scripted_agent(call("pay", amount=3), "Paid.", name="shop", tools=[pay])) as shop:
        await shop.run("r1", user("Pay"))
        answer = [{"interruptId": "r1:s1-0-ask1", "status": "resolved", "payload": {"approved": True}}]
        refusal = await shop.refused("r2", resume=answer, principal="eve", status=422)
        assert refusal["field"] == "messages"
        await shop.run("r1", user("Pay"), principal="eve")
        events = await shop.run("r2", resume=answer, principal="eve")
        assert events[-1]["outcome"]["type"] == "success"
        assert (await shop.runner.get_task("r1")).state == "waiting"


async def test_a_server_that_ends_says_that_the_run_goes_on():
    gate, agent = waiting_shop()
    async with site(agent) as shop:
        async with shop.open("r1", user("Work")) as events:
            told: list[Any] = []
            async for event in events:
                told.append(event)
                if event["type"] == "TOOL_CALL_END":
                    shop.api.service.streams.leave()
        gate.set()
        assert (told[-1]["type"], told[-1]["code"]) == ("RUN_ERROR", "stream_shutdown")


async def test_a_deleted_task_ends_its_run():
    agent = scripted_agent(call("look"), "Seen.", name="shop", tools=[look])
    async with site(agent, drive=False) as shop:  # nobody drives it
        async with shop.open("r1", user("Work")) as events:
            told = [await anext(events)]
            await shop.runner.delete_task("r1")
            told += [event async for event in events]
        assert (told[-1]["type"], told[-1]["code"]) == ("RUN_ERROR", "stream_deleted")


async def test_a_secret_that_the_process_knows_is_in_no_event():
    secret = "sesame-open-0123456789"

    @tool(read_only=True, secrets=("key",))
    def unlock(ctx: ToolContext[Any]) -> str:
        return ctx.secret("key")[:0]

    agent = scripted_agent(call("unlock"), "It is open.", name="shop", tools=[unlock])
    store = MemoryStore()
    other = scripted_agent(f"It is {secret}.", name="shop")
    await Runner(store).run(other, "Go.", task_id="r1", thread_id="t")
    async with site(agent, store=store, secrets={"key": lambda: secret}) as shop:
        await shop.run("r0", user("Open"), threadId="other")
        events = await shop.run("r1", user("Go."))
        assert words(events) == "It is [secret]."
        assert secret not in str(events)
