"""A2A on a real server: messages, streams, answers, repeats, lists and refusals."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import pytest
from pydantic import BaseModel

from tests.cast import inquire, look, pay, scripted_agent
from tests.server.calling import by_name, waiting_shop
from tests.server.hosting import hosted
from tests.server.sse import frames
from treadle import Agent, File, Message, ModelAnswer, Runner, ScriptedModel, Text, ToolCall, ToolOutput, tool
from treadle.llm.scripted import call
from treadle.server import ServerLimits, app
from treadle.server.protocols.a2a import REPEATS, TERMINAL

pytestmark = pytest.mark.anyio

USER = {"role": "ROLE_USER"}


def said(words: str, message_id: str = "m1", **more: Any) -> dict[str, Any]:
    return {"messageId": message_id, **USER, "parts": [{"text": words}], **more}


class Reader:
    """Does what the user's last message says."""

    name = "test:reader"

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        last = [message.text for message in request.messages if message.role == "user"][-1]
        calls = [
            ToolCall(f"c{number}", name, {"amount": number + 1})
            for number, name in enumerate(last.split())
            if name == "pay"
        ]
        if request.turn == 0 and calls:
            yield ModelAnswer(Message("assistant", tuple(calls)), "tool_calls")
        else:
            yield ModelAnswer(Message("assistant", (Text(f"{last}!"),)))


def reader() -> Agent[Any]:
    return Agent(Reader(), name="shop", tools=[pay])


class Site:
    """A server under test, and a client of A2A."""

    def __init__(self, api: Any, client: httpx2.AsyncClient) -> None:
        self.api, self.client = api, client
        self.runner = api.service.runner

    def headers(self, principal: str = "ann", version: str | None = "1.0") -> dict[str, str]:
        headers = {"Authorization": f"Bearer {principal}"}
        return headers if version is None else {**headers, "A2A-Version": version}

    async def post(self, body: Any, *, agent: str = "shop", status: int = 200, **headers: Any) -> Any:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {**self.headers(**headers), "Content-Type": "application/json"}
        response = await self.client.post(f"/a2a/{agent}", content=content, headers=sent)
        assert response.status_code == status, response.text
        return response.json()

    async def rpc(self, method: str, agent: str = "shop", **params: Any) -> Any:
        """Return the result of a method."""
        told = await self.post({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}, agent=agent)
        assert told["id"] == 7
        assert "error" not in told, told
        return told["result"]

    async def refused(self, method: str, agent: str = "shop", **params: Any) -> Any:
        """Return the error of a method."""
        body = {"jsonrpc": "2.0", "id": "x", "method": method, "params": params}
        told = await self.post(body, agent=agent)
        assert (told["id"], "result" in told) == ("x", False), told
        return told["error"]

    async def send(self, words: str, message_id: str = "m1", **more: Any) -> Any:
        """Return the task after a message."""
        return (await self.rpc("SendMessage", message=said(words, message_id, **more)))["task"]

    @asynccontextmanager
    async def open(self, method: str, **params: Any) -> AsyncIterator[AsyncIterator[Any]]:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        headers = {**self.headers(), "Accept": "text/event-stream"}
        async with self.client.stream("POST", "/a2a/shop", json=body, headers=headers) as response:
            assert response.headers["content-type"].startswith("text/event-stream"), await response.aread()
            yield results(response.aiter_bytes())

    async def stream(self, method: str, **params: Any) -> list[Any]:
        """Return the items of a stream."""
        async with self.open(method, **params) as items:
            with anyio.fail_after(20):
                return [item async for item in items]


async def results(chunks: AsyncIterator[bytes]) -> AsyncIterator[Any]:
    async for frame in frames(chunks):
        if frame.text is not None:
            yield frame.data.get("result", frame.data)


@asynccontextmanager
async def site(*agents: Agent[Any], store: Any = "memory:", **settings: Any) -> AsyncIterator[Site]:
    api = app(Runner(store, agents=agents), **{"auth": by_name, **settings})
    async with api.lifespan(), hosted(api, api.leave) as client:
        yield Site(api, client)


def artifacts_of(items: list[Any]) -> dict[str, list[Any]]:
    """Return the artifacts that a client has after the items of a stream."""
    kept: dict[str, list[Any]] = {}
    for item in items:
        for artifact in item.get("task", {}).get("artifacts", ()):
            kept[artifact["artifactId"]] = list(artifact["parts"])
        if (update := item.get("artifactUpdate")) is not None:
            artifact = update["artifact"]
            before = kept.get(artifact["artifactId"], []) if update.get("append") else []
            kept[artifact["artifactId"]] = before + artifact["parts"]
    return kept


def words(parts: list[Any]) -> str:
    return "".join([part["text"] for part in parts])


def states(items: list[Any]) -> list[str]:
    every = [item["task"]["status"]["state"] for item in items if "task" in item]
    every += [item["statusUpdate"]["status"]["state"] for item in items if "statusUpdate" in item]
    return [state.removeprefix("TASK_STATE_") for state in every]


async def test_the_card_describes_the_agent_and_names_its_address():
    skills = [{"id": "sell", "name": "Sell", "description": "Sells.", "tags": ["shop"]}]
    shop = Agent(
        ScriptedModel([]), name="shop", description="Sells things.", metadata={"a2a": {"skills": skills}}
    )
    async with site(shop) as server:
        card = (
            await server.client.get("/a2a/shop/.well-known/agent-card.json", headers=server.headers())
        ).json()
        url = f"{server.client.base_url}".rstrip("/")
        interface = {"url": f"{url}/a2a/shop", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        assert card["supportedInterfaces"] == [interface]
        assert (card["name"], card["description"], card["skills"]) == ("shop", "Sells things.", skills)
        capabilities = {"streaming": True, "pushNotifications": False, "extendedAgentCard": False}
        extension = {"uri": REPEATS, "description": "A repeated message is one task."}
        assert card["capabilities"] == {**capabilities, "extensions": [extension]}
        root = await server.client.get("/.well-known/agent-card.json", headers=server.headers())
        assert root.json() == card
        known = {**server.headers(), "If-None-Match": root.headers["etag"]}
        assert (await server.client.get("/.well-known/agent-card.json", headers=known)).status_code == 304
        assert (await server.client.get("/.well-known/agent-card.json")).status_code == 401


async def test_the_address_in_the_card_is_the_public_one_and_several_agents_have_no_common_card():
    agents = (scripted_agent(name="shop"), scripted_agent(name="payer"))
    async with site(*agents, public_url="https://agents.example/api") as server:
        path = "/a2a/payer/.well-known/agent-card.json"
        card = (await server.client.get(path, headers=server.headers())).json()
        assert card["supportedInterfaces"][0]["url"] == "https://agents.example/api/a2a/payer"
        refusal = await server.client.get("/.well-known/agent-card.json", headers=server.headers())
        assert refusal.status_code == 404
        assert path in refusal.json()["detail"]
        assert (await server.post({}, agent="nobody", status=404))["type"].endswith("AgentUnknown")


async def test_a_server_without_an_address_has_no_card_and_serves_messages():
    api = app(Runner("memory:", agents=[scripted_agent("hi", name="shop")]), auth=by_name)

    async def behind_a_unix_socket(scope: Any, receive: Any, send: Any) -> None:
        await api({**scope, "server": ("/run/treadle.sock", None)}, receive, send)

    async with api.lifespan(), hosted(behind_a_unix_socket, api.leave) as client:
        server = Site(api, client)
        refusal = await client.get("/a2a/shop/.well-known/agent-card.json", headers=server.headers())
        assert (refusal.status_code, "public_url" in refusal.json()["detail"]) == (404, True)
        items = await server.stream("SendStreamingMessage", message=said("x"))
        assert words(artifacts_of(items)["answer"]) == "hi"


async def test_a_message_is_a_task_and_the_same_message_the_same_task():
    async with site(reader()) as server:
        task = await server.send("Is it open")
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        assert [(each["artifactId"], each["parts"]) for each in task["artifacts"]] == [
            ("answer", [{"text": "Is it open!"}])
        ]
        assert [(each["role"], words(each["parts"])) for each in task["history"]] == [
            ("ROLE_USER", "Is it open"),
            ("ROLE_AGENT", "Is it open!"),
        ]
        assert await server.send("Is it open") == task
        assert (await server.refused("SendMessage", message=said("Something else")))["code"] == -32602
        later = await server.send("And now", "m2", contextId=task["contextId"])
        assert (later["contextId"], later["id"] == task["id"]) == (task["contextId"], False)
        got = await server.rpc("GetTask", id=later["id"], historyLength=1)
        assert [words(each["parts"]) for each in got["history"]] == ["And now!"]
        assert "history" not in await server.rpc("GetTask", id=later["id"], historyLength=0)
        thread = await server.runner.get_thread(task["contextId"])
        assert [message.text for message in thread] == [
            "Is it open",
            "Is it open!",
            "And now",
            "And now!",
        ]


async def test_a_stream_begins_with_the_task_and_ends_with_its_answer():
    async with site(scripted_agent(call("look"), "I have seen it.", name="shop", tools=[look])) as server:
        items = await server.stream("SendStreamingMessage", message=said("Look around"))
        assert "task" in items[0]
        assert words(artifacts_of(items)["answer"]) == "I have seen it."
        assert (states(items)[0], states(items)[-1]) == ("SUBMITTED", "COMPLETED")
        calls = [item["statusUpdate"]["metadata"]["treadle"] for item in items if "metadata" in str(item)]
        assert [(each["kind"], each["tool"]) for each in calls] == [("call", "look"), ("result", "look")]
        last = [item["artifactUpdate"].get("lastChunk") for item in items if "artifactUpdate" in item]
        assert (last[-1], last.count(True)) == (True, 1)
        again = await server.stream("SendStreamingMessage", message=said("Look around"))
        assert [list(item) for item in again] == [["task"]]
        assert words(artifacts_of(again)["answer"]) == "I have seen it."


async def test_typed_answers_and_files_are_artifacts_with_data_and_an_address():
    class Price(BaseModel):
        amount: int

    @tool(read_only=True)
    async def draw() -> ToolOutput:
        """Draw."""
        return ToolOutput("drawn", artifacts=[File(data=b"a plan", media_type="text/plain", name="plan.txt")])

    model = ScriptedModel([call("draw"), call("final_answer", amount=3)])
    shop = Agent(model, name="shop", tools=[draw], output_type=Price)
    async with site(shop) as server:
        items = await server.stream("SendStreamingMessage", message=said("What is it?"))
        task = await server.rpc("GetTask", id=items[0]["task"]["id"])
        told = artifacts_of(items)
        assert told == {each["artifactId"]: each["parts"] for each in task["artifacts"]}
        assert told["answer"] == [{"data": {"amount": 3}, "mediaType": "application/json"}]
        (name,) = told.keys() - {"answer"}
        (part,) = told[name]
        file = await server.client.get(part["url"], headers=server.headers())
        assert (part["filename"], file.content) == ("plan.txt", b"a plan")


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ([{"text": "Yes."}], "paid 3"),
        ([{"text": "no, it is too much"}], "too much"),
        ([{"data": {"approved": True, "editedArgs": {"amount": 2}}}], "paid 2"),
    ],
)
async def test_an_approval_is_answered_by_a_message_to_the_task(answer: Any, outcome: str):
    async with site(scripted_agent(call("pay", amount=3), "Done.", name="shop", tools=[pay])) as server:
        items = await server.stream("SendStreamingMessage", message=said("Pay 3"))
        last = items[-1].get("statusUpdate") or items[-1]["task"]  # the task may have been quicker
        status = last["status"]
        assert status["state"] == "TASK_STATE_INPUT_REQUIRED"
        (request,) = status["message"]["parts"][1]["data"]["requests"]
        assert (request["kind"], request["tool"], request["arguments"]) == ("approval", "pay", {"amount": 3})
        task_id = items[0]["task"]["id"]
        got = await server.rpc("GetTask", id=task_id)
        assert got["status"]["message"] == status["message"]
        message = {"messageId": "m2", **USER, "taskId": task_id, "parts": answer}
        task = (await server.rpc("SendMessage", message=message))["task"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        assert words(task["artifacts"][0]["parts"]) == "Done."
        (executed,) = (await server.runner.result(task_id)).tool_executions
        assert outcome in str(executed.output or executed.error or executed.observation)
        again = await server.rpc("SendMessage", message=message)
        assert again["task"] == task
        refusal = await server.refused("SendMessage", message={**message, "messageId": "m3"})
        assert refusal["code"] == -32004
        assert refusal["data"][0]["metadata"] == {"taskId": task_id}


async def test_a_question_is_answered_in_words_and_a_repeat_answers_no_later_question():
    agent = scripted_agent(call("inquire"), call("inquire"), "Thanks.", name="shop", tools=[inquire])
    async with site(agent) as server:
        task = await server.send("Ask me")
        assert words(task["status"]["message"]["parts"][:1]) == "What?"
        first = said("this", "m2", taskId=task["id"])
        task = (await server.rpc("SendMessage", message=first))["task"]
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        task = (await server.rpc("SendMessage", message=first))["task"]
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        task = await server.send("that", "m3", taskId=task["id"], contextId=task["contextId"])
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        outputs = [each.output for each in (await server.runner.result(task["id"])).tool_executions]
        assert outputs == ["this", "that"]


async def test_several_requests_are_answered_by_their_ids():
    async with site(reader()) as server:
        task = await server.send("pay pay")
        requests = task["status"]["message"]["parts"][1]["data"]["requests"]
        ids = [each["request"] for each in requests]
        assert len(ids) == 2
        refusal = await server.refused("SendMessage", message=said("yes", "m2", taskId=task["id"]))
        assert (refusal["code"], refusal["data"][0]["fieldViolations"][0]["field"]) == (
            -32602,
            "message.parts",
        )
        parts = [{"data": {"request": each, "answer": True}} for each in ids]
        message = {"messageId": "m3", **USER, "taskId": task["id"], "parts": parts}
        task = (await server.rpc("SendMessage", message=message))["task"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_a_task_at_work_is_watched_messaged_and_cancelled():
    gate, agent = waiting_shop()
    async with site(agent) as server:
        sent = await server.rpc(
            "SendMessage", message=said("Work"), configuration={"returnImmediately": True}
        )
        task_id = sent["task"]["id"]
        assert sent["task"]["status"]["state"] not in TERMINAL
        async with server.open("SubscribeToTask", id=task_id) as items:
            first = await anext(items)
            assert first["task"]["id"] == task_id
            seen = [first]
            while first["task"]["status"]["state"] == "TASK_STATE_SUBMITTED" and "WORKING" not in states(
                seen
            ):
                seen.append(await anext(items))
            steered = await server.rpc(
                "SendMessage",
                message=said("Hurry", "m2", taskId=task_id),
                configuration={"returnImmediately": True},
            )
            assert steered["task"]["status"]["state"] == "TASK_STATE_WORKING"
            task = await server.rpc("CancelTask", id=task_id)
            gate.set()
            assert task["status"]["state"] == "TASK_STATE_CANCELED"
            rest = [item async for item in items]
        assert states(rest)[-1] == task["status"]["state"].removeprefix("TASK_STATE_")
        assert (await server.refused("CancelTask", id=task_id))["code"] == -32002
        assert (await server.refused("SubscribeToTask", id=task_id))["code"] == -32004


async def test_a_subscriber_stays_while_the_task_waits_for_input():
    async with site(scripted_agent(call("pay", amount=3), "Paid.", name="shop", tools=[pay])) as server:
        task = await server.send("Pay 3")
        async with server.open("SubscribeToTask", id=task["id"]) as items:
            assert (await anext(items))["task"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
            await server.send("yes", "m2", taskId=task["id"])
            with anyio.fail_after(20):
                rest = [item async for item in items]
        assert states(rest)[-1] == "COMPLETED"
        assert words(artifacts_of(rest)["answer"]) == "Paid."


async def test_a_failed_task_says_why_and_a_paused_one_goes_on_with_a_message():
    async with site(scripted_agent(name="shop")) as server:  # its script is empty
        task = await server.send("Go")
        assert task["status"]["state"] == "TASK_STATE_FAILED"
        assert words(task["status"]["message"]["parts"])
    async with site(scripted_agent(call("look"), "Seen.", name="shop", tools=[look])) as server:
        options = {"treadle": {"options": {"break_on": [{"tool": "look"}]}}}
        sent = await server.rpc("SendMessage", message=said("Look"), metadata=options)
        assert sent["task"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        task = await server.send("Go on", "m2", taskId=sent["task"]["id"])
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_tasks_are_listed_by_conversation_and_state_and_those_of_others_are_absent():
    agents = [
        reader(),
        scripted_agent("four", name="other"),
    ]
    async with site(*agents) as server:
        tasks = [await server.send("hi", f"m{number}") for number in range(3)]
        waiting = await server.send("pay", "m9", contextId=tasks[0]["contextId"])
        await server.rpc("SendMessage", agent="other", message=said("hi"))
        page = await server.rpc("ListTasks", pageSize=2)
        assert (len(page["tasks"]), page["totalSize"], page["pageSize"]) == (2, 4, 2)
        rest = await server.rpc("ListTasks", pageSize=2, pageToken=page["nextPageToken"])
        assert rest["nextPageToken"] == ""
        assert "artifacts" not in rest["tasks"][0]
        ids = {task["id"] for task in page["tasks"] + rest["tasks"]}
        assert ids == {task["id"] for task in [*tasks, waiting]}
        asks = await server.rpc("ListTasks", status="TASK_STATE_INPUT_REQUIRED")
        assert [task["id"] for task in asks["tasks"]] == [waiting["id"]]
        rejected = await server.rpc("ListTasks", status="TASK_STATE_REJECTED")
        assert (rejected["tasks"], rejected["totalSize"]) == ([], 0)
        same = await server.rpc("ListTasks", contextId=tasks[0]["contextId"], includeArtifacts=True)
        assert {task["id"] for task in same["tasks"]} == {tasks[0]["id"], waiting["id"]}
        assert any("artifacts" in task for task in same["tasks"])
        assert (await server.refused("GetTask", agent="other", id=waiting["id"]))["code"] == -32001
        for name in ("eve", "reader"):
            body = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": waiting["id"]}}
            told = await server.post(body, principal=name)
            assert ("result" in told) == (name == "reader"), "another tenant has none of them"


REFUSED: dict[str, tuple[Any, int]] = {
    "no JSON": (b"{", -32700),
    "a list": ([], -32600),
    "no version of JSON-RPC": ({"id": 1, "method": "GetTask"}, -32600),
    "no id": ({"jsonrpc": "2.0", "method": "GetTask"}, -32600),
    "no method": ({"jsonrpc": "2.0", "id": 1}, -32600),
    "an unknown method": ({"jsonrpc": "2.0", "id": 1, "method": "message/send"}, -32601),
    "parameters in a list": ({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": [1]}, -32602),
}
CALLS: dict[str, tuple[str, Any, int]] = {
    "no task": ("GetTask", {"id": "nothing"}, -32001),
    "no id": ("GetTask", {}, -32602),
    "an id with a separator": ("GetTask", {"id": "a\x1fb"}, -32602),
    "a message to no task": ("SendMessage", {"message": said("x", taskId="nothing")}, -32001),
    "no message": ("SendMessage", {}, -32602),
    "no parts": ("SendMessage", {"message": {"messageId": "m", **USER, "parts": []}}, -32602),
    "no message id": ("SendMessage", {"message": {**USER, "parts": [{"text": "x"}]}}, -32602),
    "another role": ("SendMessage", {"message": {**said("x"), "role": "ROLE_AGENT"}}, -32602),
    "a part of two kinds": (
        "SendMessage",
        {"message": {**said("x"), "parts": [{"text": "x", "data": 1}]}},
        -32602,
    ),
    "an address": (
        "SendMessage",
        {"message": {**said("x"), "parts": [{"url": "https://x.example"}]}},
        -32005,
    ),
    "bytes that are none": ("SendMessage", {"message": {**said("x"), "parts": [{"raw": "?"}]}}, -32602),
    "a webhook": (
        "SendMessage",
        {"message": said("x"), "configuration": {"taskPushNotificationConfig": {"url": "https://x"}}},
        -32003,
    ),
    "a tenant": ("SendMessage", {"message": said("x"), "tenant": "acme"}, -32602),
    "webhooks": ("CreateTaskPushNotificationConfig", {"taskId": "x", "url": "https://x"}, -32003),
    "an extended card": ("GetExtendedAgentCard", {}, -32004),
    "a page that is too long": ("ListTasks", {"pageSize": 101}, -32602),
    "a state in a list": ("ListTasks", {"status": ["TASK_STATE_WORKING"]}, -32602),
    "a state that is none": ("ListTasks", {"status": "WORKING"}, -32602),
    "a cursor that is none": ("ListTasks", {"pageToken": "?"}, -32602),
}


async def test_what_cannot_be_carried_out_is_an_error_of_the_specification():
    async with site(scripted_agent("hi", name="shop")) as server:
        for name, (body, code) in REFUSED.items():
            assert (await server.post(body))["error"]["code"] == code, name
        for name, (method, params, code) in CALLS.items():
            error = await server.refused(method, **params)
            assert error["code"] == code, (name, error)
        for version, fits in ((None, False), ("0.3", False), ("1.0", True), ("1.0.1", True), ("2.0", False)):
            body = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks"}
            told = await server.post(body, version=version)
            assert told.get("error", {}).get("code") == (None if fits else -32009), version
        assert (await server.runner.count_tasks()).tasks == 0


JUNK: list[Any] = [None, True, -1, 1e300, "", "x", "\x1f", "\0", "a" * 300, [], [1], {}, {"text": "x"}, 2**70]
JUNK += ["TASK_STATE_WORKING", "9999-99-99", {"treadle": 1}, {"treadle": {"options": {"limits": {}}}}, ...]


def mutated(value: Any, rng: random.Random) -> Any:
    """Return JSON data in which one value is another one, or absent."""
    if rng.random() < 0.2 or not isinstance(value, (dict, list)) or not value:
        return rng.choice(JUNK)
    copy: Any = dict(value) if isinstance(value, dict) else dict(enumerate(value))
    name = rng.choice(list(copy))
    copy[name] = mutated(copy[name], rng)
    kept = {name: each for name, each in copy.items() if each is not ...}
    return kept if isinstance(value, dict) else list(kept.values())


async def test_no_request_is_a_fault_of_the_server(request: pytest.FixtureRequest):
    rng = random.Random(request.config.option.hypothesis_seed)
    parts = [
        {"text": "x"},
        {"raw": "eA==", "mediaType": "image/png"},
        {"data": {"request": "a:b", "answer": 1}},
    ]
    metadata = {"treadle": {"options": {}}}
    message = {**said("x"), "parts": parts, "contextId": "c", "taskId": "t", "metadata": metadata}
    listing = {"contextId": "c", "status": "TASK_STATE_WORKING", "pageSize": 5, "historyLength": 1}
    calls = [
        ("SendMessage", {"message": message, "configuration": {"historyLength": 1}}),
        ("SendMessage", {"message": said("x"), "configuration": {"returnImmediately": True}}),
        ("ListTasks", {**listing, "pageToken": "x", "statusTimestampAfter": "2026-01-01T00:00:00Z"}),
        ("GetTask", {"id": "t", "historyLength": 1}),
        ("CancelTask", {"id": "t"}),
    ]
    limits = ServerLimits(requests_per_second=100_000, stream_seconds=0.1)
    async with site(scripted_agent("hi", name="shop"), drive=False, limits=limits) as server:
        for _ in range(200):
            method, params = rng.choice(calls)
            body: Any = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            for _ in range(rng.randint(1, 3)):
                body = mutated(body, rng)
            content = json.dumps(None if body is ... else body).encode()
            headers = {**server.headers(), "Content-Type": "application/json"}
            response = await server.client.post("/a2a/shop", content=content, headers=headers)
            assert response.status_code == 200, (content, response.text)


async def test_each_method_needs_its_scope():
    async with site(scripted_agent(call("pay", amount=3), "Paid.", name="shop", tools=[pay])) as server:
        task = await server.send("Pay 3")
        params = {"SendMessage": {"message": said("x")}, "CancelTask": {"id": task["id"]}}
        for method in ("SendMessage", "CancelTask"):
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params[method]}
            refusal = await server.post(body, principal="reader", status=403)
            assert refusal["type"].endswith("ScopeMissing")
        body = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks"}
        await server.post(body, principal="none", status=403)
        await server.post(body, principal="nobody", status=401)


async def test_a_stream_that_the_server_ends_says_so():
    gate, agent = waiting_shop()
    async with site(agent, limits=ServerLimits(stream_seconds=0.3)) as server:
        items = await server.stream("SendStreamingMessage", message=said("Work"))
        gate.set()
        assert items[-1]["error"]["code"] == -32603
        assert "subscribe" in items[-1]["error"]["message"]
