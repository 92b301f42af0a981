"""The official client of MCP in this process, over HTTP, and with task handles; `test_mcp_stdio` has the third mode."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client import advertise
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, ConfigDict

from tests.cast import broken, inquire, look, pay, save, scripted_agent
from tests.server.calling import PRINCIPALS, by_name, waiting_shop
from tests.server.hosting import hosted
from treadle import Agent, File, Image, Policy, Rule, Runner, ToolOutput, tool
from treadle.llm.scripted import call, fail
from treadle.server import Principal, ServerLimits, app, tool_agent
from treadle.server.protocols.mcp import TASKS, task_in
from treadle.server.protocols.mcp_server import McpServer
from treadle.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio

HANDLES = [advertise(TASKS)]


class Site:
    """A server under test, and clients of it."""

    def __init__(self, api: Any, url: str) -> None:
        self.api, self.url, self.runner = api, url, api.service.runner

    @asynccontextmanager
    async def client(
        self, kind: str = "http", principal: str = "ann", **settings: Any
    ) -> AsyncIterator[Client]:
        """Yield a client: in this process, or over HTTP."""
        if kind == "in-process":
            server = McpServer(self.api.service, PRINCIPALS[principal]).server()
            async with Client(server, **settings) as connected:
                yield connected
            return
        headers = {"Authorization": f"Bearer {principal}"}
        async with httpx2.AsyncClient(headers=headers, timeout=20, verify=False) as http:
            transport = streamable_http_client(f"{self.url}/mcp", http_client=http)
            async with Client(transport, **settings) as connected:
                yield connected

    async def listed(self, state: str) -> Any:
        """Return the tasks of a state once there are any."""
        async with asyncio.timeout(20):
            while not (items := (await self.runner.list_tasks(state=state)).items):  # noqa: ASYNC110  it is another loop's
                await asyncio.sleep(0.02)
        return items


class Request(types.Request[dict[str, Any], str]):
    """A request that the client has no method for."""


class TaskRequest(Request):
    """A request of the extension; its task is in a header too."""

    name_param = "taskId"


class Answer(types.Result):
    model_config = ConfigDict(extra="allow")


async def ask(client: Client, method: str, **params: Any) -> Any:
    request = TaskRequest(method=method, params=params)
    answer = await client.session.send_request(request, Answer)
    return answer.model_dump(by_alias=True)


async def settled(client: Client, task_id: str, status: str) -> Any:
    """Return a handle once it has a status."""
    async with asyncio.timeout(30):
        while (handle := await ask(client, "tasks/get", taskId=task_id))["status"] != status:
            assert handle["status"] in ("working", "input_required"), handle
            await asyncio.sleep(0.05)
        return handle


async def begun(client: Client, name: str, arguments: dict[str, Any]) -> Any:
    """Return the handle of a call."""
    params = types.CallToolRequestParams(name=name, arguments=arguments)
    request = Request(method="tools/call", params=params.model_dump(by_alias=True, exclude_none=True))
    answer = (await client.session.send_request(request, Answer)).model_dump(by_alias=True)
    assert answer["resultType"] == "task", answer
    return answer


@asynccontextmanager
async def site(*agents: Agent[Any], store: Any = "memory:", **settings: Any) -> AsyncIterator[Site]:
    given = {"auth": by_name, **settings}
    policy = given.pop("policy", None)
    api = app(Runner(store, agents=agents, policy=policy), **given)
    async with api.lifespan(), hosted(api, api.leave) as plain:
        yield Site(api, str(plain.base_url).rstrip("/"))


def answering(action: str = "accept", **content: Any) -> tuple[list[Any], Callable[..., Any]]:
    """Return the forms that a client was shown, and its callback, which answers each alike."""
    shown: list[Any] = []

    async def callback(context: Any, params: Any) -> types.ElicitResult:
        shown.append(params)
        return types.ElicitResult(action=action, content=content or None)  # pyright: ignore[reportArgumentType]

    return shown, callback


def told(result: types.CallToolResult) -> str:
    return "\n".join([block.text for block in result.content if isinstance(block, types.TextContent)])


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("kind", ["in-process", "http"])
async def test_an_agent_is_a_tool_whose_calls_are_tasks(kind: str, mode: str):
    progress: list[Any] = []

    async def tell(count: float, total: float | None, message: str | None) -> None:
        progress.append((count, message))

    agent = scripted_agent(call("look"), "I have seen it.", name="shop", tools=[look])
    async with site(agent) as server, server.client(kind, mode=mode) as client:
        (tool,) = (await client.list_tools()).tools
        assert tool.name == "shop"
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint is True
        result = await client.call_tool("shop", {"input": "Look around"}, progress_callback=tell)
        assert not result.is_error
        assert told(result).startswith("I have seen it.\n[task_id ")
        facts = result.structured_content
        assert (facts["state"], facts["answer"]) == ("completed", "I have seen it.")
        task = await server.runner.get_task(facts["task_id"])
        assert task.thread_id == facts["thread_id"]
        if kind == "http":  # in one process there is no token that asks for it
            assert [count for count, _ in progress] == sorted({count for count, _ in progress})
            assert "look began (s1-0), attempt 1" in [message for _, message in progress]


class Receipt(BaseModel):
    amount: int


async def test_a_typed_answer_is_structured_content_that_fits_the_schema():
    agent = scripted_agent('{"amount": 3}', name="shop", output_type=Receipt, output_mode="prompt")
    async with site(agent) as server, server.client() as client:
        (tool,) = (await client.list_tools()).tools
        assert tool.output_schema is not None
        assert tool.output_schema["properties"]["answer"]["required"] == ["amount"]
        result = await client.call_tool("shop", {"input": "Pay"})
        assert result.structured_content["answer"] == {"amount": 3}


async def test_a_conversation_goes_on_in_its_thread():
    async with site(scripted_agent("One.", name="shop")) as server, server.client() as client:
        first = await client.call_tool("shop", {"input": "a"})
        thread = first.structured_content["thread_id"]
        second = await client.call_tool("shop", {"input": "b", "thread_id": thread})
        assert second.structured_content["thread_id"] == thread
        texts = [message.text for message in await server.runner.get_thread(thread)]
        assert texts == ["a", "One.", "b", "One."]


async def test_a_failed_task_is_an_error_in_the_words_of_treadle():
    async with site(scripted_agent(fail(400, message="the model broke"), name="shop")) as server:
        async with server.client() as client:
            result = await client.call_tool("shop", {"input": "Go"})
        assert result.is_error
        assert "the model broke" in told(result)
        assert result.structured_content["state"] == "failed"


async def test_wrong_arguments_are_errors_that_a_model_reads():
    async with site(scripted_agent(name="shop")) as server, server.client() as client:
        for arguments in ({}, {"input": 3}, {"input": "x", "thread": "t"}, {"input": "x", "task_id": "\n"}):
            result = await client.call_tool("shop", arguments)
            assert result.is_error, arguments
        with pytest.raises(MCPError, match="Unknown tool: nobody"):
            await client.call_tool("nobody", {})
        assert (await server.runner.list_tasks()).items == ()


# ------------------------------------------------------------------------------------------------ requests


async def test_an_approval_is_a_form_and_the_repeated_call_goes_on():
    shown, callback = answering(approved=True)
    agent = scripted_agent(call("pay", amount=3), "Paid.", name="shop", tools=[pay])
    async with site(agent) as server, server.client(elicitation_callback=callback) as client:
        result = await client.call_tool("shop", {"input": "Pay"})
        assert told(result).startswith("Paid.")
        (form,) = shown
        assert 'pay({"amount":3})' in form.message
        assert form.requested_schema["required"] == ["approved"]
        assert len((await server.runner.list_tasks()).items) == 1


@pytest.mark.parametrize("kind", ["http", "in-process"])
async def test_progress_goes_on_after_an_answer(kind: str):
    """In 2026 with the repeated call, and before within the same one."""
    mode = "2026-07-28" if kind == "http" else "legacy"
    told_so_far: list[Any] = []

    async def tell(count: float, total: float | None, message: str | None) -> None:
        told_so_far.append((count, message))

    _, callback = answering(approved=True)
    agent = scripted_agent(call("pay", amount=3), "Paid.", name="shop", tools=[pay])
    async with site(agent) as server, server.client(kind, mode=mode, elicitation_callback=callback) as client:
        await client.call_tool("shop", {"input": "Pay"}, progress_callback=tell)
    messages = [message for _, message in told_so_far if message != "Paid."]
    assert messages == [
        "step 1 began, attempt 1",
        "pay began (s1-0), attempt 1",
        "pay ended (s1-0): ok",
        "step 2 began, attempt 1",
    ]
    if kind == "in-process":
        assert [count for count, _ in told_so_far] == [*range(1, len(told_so_far) + 1)]


async def test_a_declined_approval_is_a_denial():
    _, callback = answering("decline")
    agent = scripted_agent(call("pay", amount=3), "Then not.", name="shop", tools=[pay])
    async with site(agent) as server, server.client(elicitation_callback=callback) as client:
        result = await client.call_tool("shop", {"input": "Pay"})
        assert told(result).startswith("Then not.")
        task = await server.runner.result(result.structured_content["task_id"])
        assert [execution.outcome for execution in task.tool_executions] == ["denied"]


async def test_a_question_without_an_answer_stays_open_and_the_result_names_the_task():
    _, callback = answering("cancel")
    agent = scripted_agent(call("inquire"), "Thanks.", name="shop", tools=[inquire])
    async with site(agent) as server, server.client(elicitation_callback=callback) as client:
        result = await client.call_tool("shop", {"input": "Ask me"})
        assert not result.is_error
        facts = result.structured_content
        assert (facts["state"], facts["waits_for"]) == ("waiting", ["What?"])
        assert f'`task_id` "{facts["task_id"]}"' in told(result)
        await server.runner.answer(facts["task_id"], value="blue")
        again = await client.call_tool("shop", {"input": "Ask me", "task_id": facts["task_id"]})
        assert told(again).startswith("Thanks.")


@pytest.mark.parametrize("kind", ["in-process", "http"])
async def test_before_2026_a_form_needs_a_connection_that_the_server_can_ask_over(kind: str):
    shown, callback = answering(answer="blue")
    agent = scripted_agent(call("inquire"), "Thanks.", name="shop", tools=[inquire])
    async with (
        site(agent) as server,
        server.client(kind, mode="legacy", elicitation_callback=callback) as client,
    ):
        result = await client.call_tool("shop", {"input": "Ask me"})
        if kind == "in-process":
            assert told(result).startswith("Thanks.")
            assert [form.message for form in shown] == ["What?"]
        else:
            assert "has no answer yet: What?" in told(result)
            assert shown == []


async def test_a_principal_that_may_not_decide_is_shown_no_form():
    shown, callback = answering(approved=True)
    PRINCIPALS["clerk"] = Principal("clerk", scopes=("read", "run"))
    agent = scripted_agent(call("pay", amount=3), "Paid.", name="shop", tools=[pay])
    try:
        async with (
            site(agent) as server,
            server.client(principal="clerk", elicitation_callback=callback) as client,
        ):
            result = await client.call_tool("shop", {"input": "Pay"})
            assert "waits for an approval" in told(result)
            assert shown == []
    finally:
        del PRINCIPALS["clerk"]


# ------------------------------------------------------------------------------------------------ handles


async def test_a_call_of_a_client_with_handles_returns_one_at_once():
    gate, agent = waiting_shop()
    async with site(agent) as server, server.client(extensions=HANDLES) as client:
        handle = await begun(client, "shop", {"input": "Wait"})
        assert (handle["status"], handle["ttlMs"]) == ("working", None)
        assert (await ask(client, "tasks/get", taskId=handle["taskId"]))["status"] == "working"
        gate.set()
        done = await settled(client, handle["taskId"], "completed")
        assert done["result"]["structuredContent"]["answer"] == "done"
        assert done["result"]["isError"] is False


async def test_a_handle_asks_by_forms_and_each_answer_counts_once():
    agent = scripted_agent(call("pay", amount=3), "Paid.", name="shop", tools=[pay])
    async with site(agent) as server:
        async with server.client(extensions=HANDLES, elicitation_callback=answering()[1]) as client:
            task_id = (await begun(client, "shop", {"input": "Pay"}))["taskId"]
            handle = await settled(client, task_id, "input_required")
            ((key, form),) = handle["inputRequests"].items()
            assert form["method"] == "elicitation/create"
            accepted = {"action": "accept", "content": {"approved": True}}
            for responses in ({"nothing": accepted}, {key: accepted}, {key: accepted}):
                await ask(client, "tasks/update", taskId=task_id, inputResponses=responses)
            done = await settled(client, task_id, "completed")
            assert done["result"]["content"][0]["text"] == "Paid."
        events = (await server.runner.get_events(task_id)).items
        assert [event.kind for event in events].count("approval_given") == 1


async def test_a_task_waits_for_all_answers_and_each_may_come_by_itself():
    both = [call("pay", amount=3), call("pay", amount=4)]
    agent = scripted_agent(both, "Paid.", name="shop", tools=[pay])
    settings = {"extensions": HANDLES, "elicitation_callback": answering()[1]}
    async with site(agent) as server, server.client(**settings) as client:
        task_id = (await begun(client, "shop", {"input": "Pay"}))["taskId"]
        first, second = (await settled(client, task_id, "input_required"))["inputRequests"]
        accepted = {"action": "accept", "content": {"approved": True}}
        await ask(client, "tasks/update", taskId=task_id, inputResponses={first: accepted})
        handle = await settled(client, task_id, "input_required")
        assert [*handle["inputRequests"]] == [second]
        await ask(client, "tasks/update", taskId=task_id, inputResponses={second: accepted})
        await settled(client, task_id, "completed")


async def test_a_client_without_forms_sees_why_its_task_waits():
    agent = scripted_agent(call("pay", amount=3), "Paid.", name="shop", tools=[pay])
    async with site(agent) as server, server.client(extensions=HANDLES) as client:
        task_id = (await begun(client, "shop", {"input": "Pay"}))["taskId"]
        await server.listed("waiting")
        handle = await ask(client, "tasks/get", taskId=task_id)
        assert (handle["status"], handle["statusMessage"]) == (
            "working",
            "pay waits for an approval: its tool asks for it",
        )


async def test_a_handle_is_cancelled():
    gate, agent = waiting_shop()
    async with site(agent) as server, server.client(extensions=HANDLES) as client:
        task_id = (await begun(client, "shop", {"input": "Wait"}))["taskId"]
        await ask(client, "tasks/cancel", taskId=task_id)
        gate.set()
        handle = await settled(client, task_id, "cancelled")
        assert "result" not in handle
        await ask(client, "tasks/cancel", taskId=task_id)  # once more changes nothing


async def test_handles_of_other_tenants_and_of_clients_without_the_extension_are_refused():
    async with site(scripted_agent(name="shop")) as server:
        async with server.client(extensions=HANDLES) as client:
            task_id = (await begun(client, "shop", {"input": "Hi"}))["taskId"]
            for unknown in ("nobody", "\n", "x" * 999):
                with pytest.raises(MCPError) as refused:
                    await ask(client, "tasks/get", taskId=unknown)
                assert refused.value.error.code == types.INVALID_PARAMS
            with pytest.raises(MCPError, match="Mcp-Name"):  # proxies read it
                await client.session.send_request(
                    Request(method="tasks/get", params={"taskId": task_id}), Answer
                )
        async with server.client(extensions=HANDLES, principal="eve") as client:
            with pytest.raises(MCPError, match="no task"):
                await ask(client, "tasks/cancel", taskId=task_id)
        async with server.client() as client:
            with pytest.raises(MCPError) as refused:
                await ask(client, "tasks/get", taskId=task_id)
            assert refused.value.error.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY
        async with server.client(mode="legacy") as client:
            with pytest.raises(MCPError) as refused:
                await ask(client, "tasks/get", taskId=task_id)
            assert refused.value.error.code == types.METHOD_NOT_FOUND


async def test_a_request_needs_the_scope_of_its_verb():
    async with site(scripted_agent(name="shop")) as server:
        async with server.client(principal="reader") as client:
            assert len((await client.list_tools()).tools) == 1
            with pytest.raises(MCPError, match="scope `run`"):
                await client.call_tool("shop", {"input": "Hi"})
        async with server.client(principal="none", mode="2026-07-28") as client:
            with pytest.raises(MCPError, match="scope `read`"):
                await client.list_tools()


async def test_a_repeated_call_with_its_id_runs_once():
    async with site(scripted_agent("One.", name="shop")) as server, server.client() as client:
        results = [await client.call_tool("shop", {"input": "Hi", "task_id": "mine"}) for _ in range(3)]
        assert {told(result) for result in results} == {told(results[0])}
        other = await client.call_tool("shop", {"input": "Other", "task_id": "mine"})
        assert other.is_error
        assert "repeat its arguments" in told(other)
        assert len((await server.runner.list_tasks()).items) == 1


async def test_a_call_goes_on_at_another_server_when_the_first_ends():
    store = MemoryStore()
    gate, agent = waiting_shop()
    async with site(agent, store=store) as server, server.client() as client:
        calling = asyncio.ensure_future(
            client.session.call_tool("shop", {"input": "Wait"}, allow_input_required=True)
        )
        (task,) = await server.listed("running")
        server.api.begin_leaving()
        result: Any = await calling
        assert result.result_type == "input_required"
        assert task_in(result.request_state)[0] == task.task_id
        gate.set()
    _, again = waiting_shop()
    async with site(again, store=store) as server, server.client() as client:
        gate.set()
        done: Any = await client.session.call_tool(
            "shop", {"input": "Wait"}, request_state=result.request_state, allow_input_required=True
        )
        assert done.structured_content["task_id"] == task.task_id


# ------------------------------------------------------------------------------------------------ served tools


async def test_a_served_tool_is_a_tool_with_its_schema_and_its_effects():
    async with site(tool_agent(look), tool_agent(pay)) as server, server.client() as client:
        seen, paid = (await client.list_tools()).tools
        assert (seen.name, paid.name) == ("look", "pay")
        assert seen.annotations is not None
        assert seen.annotations.read_only_hint is True
        assert paid.annotations is not None
        assert paid.annotations.destructive_hint is None
        assert paid.input_schema["required"] == ["amount"]
        result = await client.call_tool("look", {})
        assert told(result) == "seen"
        (task,) = (await server.runner.list_tasks()).items
        assert (task.agent, task.state) == ("look", "completed")


@tool(read_only=True)
async def slow() -> str:
    """Take longer than the call of a handle waits."""
    await asyncio.sleep(1)
    return "done"


async def test_a_quick_served_tool_needs_no_handle_and_a_slow_one_gets_one():
    async with (
        site(tool_agent(look), tool_agent(slow)) as server,
        server.client(extensions=HANDLES) as client,
    ):
        assert told(await client.call_tool("look", {})) == "seen"
        handle = await begun(client, "slow", {})
        done = await settled(client, handle["taskId"], "completed")
        assert done["result"]["content"][0]["text"] == "done"


@tool(read_only=True)
async def draw() -> ToolOutput:
    """Draw a chart."""
    big = File(data=b"x" * 5_000_000, name="big.bin")
    linked = File(url="https://example.org/a.pdf", name="a.pdf", media_type="application/pdf")
    small = [File(data=b"<svg/>", name="a.svg", media_type="image/svg+xml"), File(data=b"a", name="a.txt")]
    return ToolOutput("drawn", Image(data=b"png", media_type="image/png"), artifacts=[*small, big, linked])


async def test_files_of_a_tool_are_content():
    async with site(tool_agent(draw)) as server, server.client() as client:
        result = await client.call_tool("draw", {})
        kinds = [block.type for block in result.content]
        assert kinds == ["text", "image", "image", "resource", "text", "resource_link"]
        assert "big.bin: too large" in told(result)


async def test_a_served_tool_needs_its_approval():
    _, callback = answering(approved=True)
    async with site(tool_agent(pay)) as server:
        async with server.client() as client:
            assert "pay waits for an approval" in told(await client.call_tool("pay", {"amount": 3}))
        async with server.client(elicitation_callback=callback) as client:
            assert told(await client.call_tool("pay", {"amount": 4})) == "paid 4"


async def test_a_denied_or_failed_call_of_a_served_tool_is_an_error():
    policy = Policy(Rule("no", "deny", tool="save", reason="not today"))
    tools = tool_agent(save), tool_agent(broken), tool_agent(look)
    async with site(*tools, policy=policy) as server, server.client() as client:
        denied = await client.call_tool("save", {"note": "x"})
        assert denied.is_error
        assert "not today" in told(denied)
        failed = await client.call_tool("broken", {})
        assert failed.is_error
        assert "broken" in told(failed)
        wrong = await client.call_tool("look", {"at": "much"})
        assert wrong.is_error


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
async def test_a_lost_connection_stops_nothing_and_leaves_nothing_open(mode: str):
    gate, agent = waiting_shop()
    async with site(agent) as server:
        streams = server.api.service.streams
        for number in range(5):
            async with server.client(mode=mode) as client:
                arguments = {"input": "Wait", "task_id": f"t{number}"}
                calling = asyncio.ensure_future(client.call_tool("shop", arguments))
                async with asyncio.timeout(20):
                    while not streams._count:  # noqa: ASYNC110  another loop's work changes it
                        await asyncio.sleep(0.02)
                calling.cancel()
                await asyncio.wait([calling])
            async with asyncio.timeout(20):
                while streams._count:  # noqa: ASYNC110  the server hears of it a little later
                    await asyncio.sleep(0.02)
        async with asyncio.timeout(60):
            while len((await server.runner.list_tasks(state="running")).items) != 5:  # noqa: ASYNC110
                await asyncio.sleep(0.02)  # a task that was just created is not running yet
        gate.set()
        async with server.client(mode=mode) as client:
            result = await client.call_tool("shop", {"input": "Wait", "task_id": "t0"})
            assert told(result).startswith("done")


async def test_open_calls_count_as_streams():
    gate, agent = waiting_shop()
    limits = ServerLimits(streams_per_principal=1)
    async with site(agent, limits=limits) as server, server.client() as client:
        first = asyncio.ensure_future(client.call_tool("shop", {"input": "a"}))
        async with asyncio.timeout(20):
            while not server.api.service.streams._count:  # noqa: ASYNC110  another loop's work changes it
                await asyncio.sleep(0.02)
        second = await client.call_tool("shop", {"input": "b"})
        assert not second.is_error, "its task was begun"
        assert "has no answer yet: ann has 1 event streams open" in told(second)
        gate.set()
        assert told(await first).startswith("done")
