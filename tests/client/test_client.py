"""The client against a server: the verbs, results, events and errors of a runner, over HTTP."""

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from tests.client.served import TOKEN, CuttingProxy, client, served
from treadle import Agent, CallerTool, Client, Image, Limits, Runner, RunOptions, ScriptedModel, Text, tool
from treadle import events as e
from treadle.client import connection
from treadle.errors import (
    AgentUnknown,
    ConfigurationError,
    RequestRefused,
    ServerUnavailable,
    StepFailed,
    StepNotFound,
    TaskNotFound,
    TaskParked,
    VersionRefused,
    WrongArguments,
)
from treadle.models import call, fail, text
from treadle.runner.runner import TaskRunner
from treadle.server import ServerLimits
from treadle.verbs.table import ELSEWHERE

pytestmark = pytest.mark.anyio


class Quote(BaseModel):
    cents: int


@tool(read_only=True)
def price(item: str) -> dict[str, Any]:
    """Say what an item costs."""
    return {"cents": 250, "of": item}


@tool(needs_approval=True)
def order(item: str) -> str:
    """Order an item."""
    return f"ordered {item}"


def shop(name: str = "shop") -> Agent[Any, str]:
    script = [call("price", item="tea"), text("It is 2.50, which is cheap for tea.", delay=0.001)]
    return Agent(ScriptedModel(script), name=name, tools=[price], instructions="Sell.")


QUOTING = Agent(
    ScriptedModel(['{"cents": 250}'] * 9), name="quoting", output_type=Quote, output_mode="prompt"
)
DESK = Agent(ScriptedModel([call("order", item="tea"), text("Ordered.")]), name="desk", tools=[order])
BROKEN = Agent(ScriptedModel([fail(400)]), name="broken")
SLOW = Agent(ScriptedModel([text("At last.", delay=60)]), name="slow")
AGENTS = (shop(), QUOTING, DESK, BROKEN, SLOW)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(*AGENTS) as address:
        yield address


@pytest.fixture
async def remote(url: str) -> Any:
    async with client(url, agents=AGENTS) as made:
        yield made


# --------------------------------------------------------------------------------------- completeness


def public_members() -> list[str]:
    return [name for name, _ in inspect.getmembers(TaskRunner) if not name.startswith("_")]


def test_every_verb_of_a_runner_is_one_of_a_client_with_the_same_signature() -> None:
    for name in {*public_members(), "aclose"} - {"scope"}:
        ours, theirs = inspect.getattr_static(Client, name), inspect.getattr_static(TaskRunner, name)
        assert ours is not theirs, f"{name} is the runner's own, which no server knows of"
        if callable(getattr(TaskRunner, name)):
            runner_signature = inspect.signature(getattr(TaskRunner, name))
            assert inspect.signature(getattr(Client, name)) == runner_signature
            assert getattr(Client, name).__doc__


def test_a_verb_that_a_client_lacks_names_where_it_is() -> None:
    made = client("http://127.0.0.1:1")
    for name in ELSEWHERE:
        with pytest.raises(ConfigurationError, match=f"a client has no {name}"):
            getattr(made, name)()


async def test_a_client_works_in_another_tenant_if_its_token_may(remote: Client) -> None:
    acme = remote.scoped(tenant="acme")
    async with acme:
        await acme.create_task(shop(), "Tea?", task_id="of-acme")
        assert [item.task_id for item in await acme.list_tasks()] == ["of-acme"]
        with pytest.raises(TaskNotFound):
            await remote.get_task("of-acme")
    with pytest.raises(ConfigurationError, match="pass only tenant="):
        remote.scoped(by="bob")
    with pytest.raises(ConfigurationError, match="tenant"):
        remote.scoped(tenant='"')


# -------------------------------------------------------------------------------------------- running


async def test_a_run_is_that_of_a_runner(remote: Client) -> None:
    over_http = await remote.run(shop(), ["How much?", Image(data=b"\0", media_type="image/png")])
    async with Runner("memory:") as runner:
        here = await runner.run(shop(), ["How much?", Image(data=b"\0", media_type="image/png")])
    assert (over_http.final_text, over_http.state) == (here.final_text, here.state)
    assert (over_http.messages, over_http.steps, over_http.usage) == (here.messages, here.steps, here.usage)
    assert [each.output for each in over_http.tool_executions] == [
        each.output for each in here.tool_executions
    ]


async def test_a_stream_tells_every_event_once_and_every_letter(remote: Client) -> None:
    async with remote.run_stream(shop(), "How much?") as stream:
        seen = [event async for event in stream]
    stored = [event for event in seen if isinstance(event, e.Event)]
    assert [event.seq for event in stored] == list(range(1, len(stored) + 1))
    assert stored[-1].kind == "task_ended"
    written = "".join(event.text for event in seen if isinstance(event, e.Delta) and event.step == "s2")
    assert written == stream.result.final_text == "It is 2.50, which is cheap for tea."
    assert {event.task_id for event in seen} == {stream.task_id}
    page = await remote.get_events(stream.task_id, limit=5)
    assert [event.seq async for event in page] == [event.seq for event in stored]


async def test_a_step_is_streamed_and_one_that_completed_is_not_run_again(remote: Client) -> None:
    task = await remote.create_task(shop(), "How much?")
    async with remote.stream_step(task) as stream:
        kinds = [event.kind async for event in stream if isinstance(event, e.Event)]
    assert kinds[-1] == "step_completed"
    assert not stream.output.is_last
    with pytest.raises(StepNotFound, match="s1"):
        async with remote.stream_step(task, step="s1") as stream:
            _ = [event async for event in stream]
    assert (await remote.run_step(task)).is_last


async def test_the_forks_of_a_lineage_are_on_several_pages(remote: Client) -> None:
    task = await remote.create_task(shop(), "How much?")
    await remote.run_step(task)
    forks = [(await remote.fork(task)).task_id for _ in range(3)]
    lineage = await remote.get_lineage(task, limit=1)
    assert [fork.task_id async for fork in lineage.forks] == forks[::-1]
    assert [child async for child in lineage.children] == []
    without_asyncio = await asyncio.to_thread(remote.sync.get_lineage, task, limit=1)
    assert await asyncio.to_thread(lambda: [fork.task_id for fork in without_asyncio.forks]) == forks[::-1]


async def test_answers_are_of_the_agents_type_where_the_agent_is_known(url: str, remote: Client) -> None:
    result = await remote.run(QUOTING, "How much?")
    assert result.output == Quote(cents=250)
    assert (await remote.result(result.task_id)).output == Quote(cents=250)
    assert (await remote.get_completed_steps(result.task_id))[-1].output == Quote(cents=250)
    async with remote.run_stream(QUOTING, "How much?") as stream:
        partials = [value async for value in stream.partials(checked=True)]
    assert partials[-1] == Quote(cents=250)
    async with client(url) as unknowing:
        assert (await unknowing.result(result.task_id)).output == {"cents": 250}


async def test_an_agent_is_given_by_its_name_too(remote: Client) -> None:
    by_name: Any = "shop"
    handle = await remote.start(by_name, "How much?")
    assert (await handle.result()).state == "completed"
    assert min([event.seq async for event in handle.events(after=3)]) == 4
    submitted = await remote.submit(by_name, "How much?", task_id="by-name")
    assert submitted.task_id == "by-name"
    assert (await remote.handle(submitted).result()).task_id == "by-name"
    assert (await remote.run(by_name, "How much?", task_id="by-name")).steps == 2


async def test_requests_of_several_tasks_are_on_several_pages(remote: Client) -> None:
    waiting, other = [await remote.run(DESK, "Order tea.") for _ in "ab"]
    both = [item.task_id async for item in await remote.list_pending(limit=1)]
    assert both[both.index(other.task_id) :][:2] == [other.task_id, waiting.task_id]
    assert [item.task_id async for item in await remote.list_pending(other, limit=1)] == [other.task_id]
    with pytest.raises(TaskParked) as caught:
        await remote.run_step(waiting.task_id)
    assert caught.value.pending == waiting.pending
    bound = list(waiting.pending[0].arguments)[:1]
    await remote.approve(waiting.task_id, scope="task", same=bound)
    assert (await remote.resume(waiting.task_id)).final_text == "Ordered."
    events = await remote.get_events(waiting.task_id, kinds=["approval_given"])
    assert [event.same for event in events.items] == [tuple(bound)]


async def test_errors_are_those_of_a_runner(remote: Client) -> None:
    unknown: Any = "nobody"
    with pytest.raises(AgentUnknown):
        await remote.run(unknown, "x")
    failing = await remote.create_task(BROKEN, "x")
    with pytest.raises(StepFailed) as caught:
        await remote.run_step(failing)
    assert (caught.value.error.kind, caught.value.output.state) == ("invalid_request", "failed")
    with pytest.raises(TypeError, match="has no argument 'deps'"):
        await remote.run(shop(), "x", deps=3)  # type: ignore[call-arg]
    with pytest.raises(WrongArguments):
        remote.run_stream(shop())  # type: ignore[call-arg]


async def test_an_argument_that_no_request_carries_is_refused_with_where_it_belongs(
    url: str, remote: Client
) -> None:
    for verb in (
        lambda: remote.run(shop(), "x", context=3),
        lambda: remote.run(shop(), "x", observers=[print]),
        remote.verify,
        lambda: remote.compact_thread("t", model="openai:x"),
        lambda: remote.cancel("known", by="bob"),
    ):
        with pytest.raises(ConfigurationError):
            await verb()
    with pytest.raises(ConfigurationError, match="raw="):
        remote.handle("x").events(raw=True)
    other = Agent(ScriptedModel(["x"]), name="shop", instructions="Else.")
    with pytest.raises(VersionRefused, match="the server has agent 'shop' in version"):
        await remote.run(other, "x", options=RunOptions(on_version_change="refuse"))
    for wrong in ("ftp://x", "127.0.0.1:8700", "http://u:p@x", "http://x#token=1", "http://[::1", 3):
        with pytest.raises(ConfigurationError, match="Client: url"):
            Client(wrong)  # type: ignore[arg-type]
    for wrong in ("", "abc ", "abc\n", 3):
        with pytest.raises(ConfigurationError, match="Client: token"):
            Client("http://x", token=wrong)  # type: ignore[arg-type]


async def test_an_id_that_a_url_drops_asked_for_another_resource(remote: Client) -> None:
    await remote.run(shop(), "x", task_id="result..")
    for dots in (".", ".."):
        for request in (
            remote.result(dots),
            remote.get_task(dots),
            remote.cancel(dots),
            remote.delete_task(dots),
            remote.get_thread(dots),
            remote.get_step("result..", dots),
            remote.run_step(dots),
            anext(remote.handle(dots).events(follow=True)),
        ):
            with pytest.raises(ConfigurationError, match=r"must not be '\.+': no URL can contain that"):
                await request
    assert (await remote.get_task("result..")).state == "completed"


async def test_a_url_that_ends_in_v1_is_refused_with_advice(url: str) -> None:
    async with Client(f"{url}/v1", token=TOKEN) as wrong:
        with pytest.raises(RequestRefused, match="without /v1"):
            await wrong.get_task("t")


async def test_options_reach_the_task(remote: Client) -> None:
    result = await remote.run(shop(), "x", options=RunOptions(limits=Limits(steps=1), on_limit="pause"))
    assert (result.state, result.steps) == ("paused", 1)
    raised = await remote.resume(result.task_id, options=RunOptions(limits=Limits(steps=5)))
    assert raised.state == "completed"


# --------------------------------------------------------------------------------- stopping and leaving


async def test_leaving_a_stream_early_interrupts_the_task_and_watching_does_not(remote: Client) -> None:
    async with remote.run_stream(SLOW, "Go.") as stream:
        async for event in stream:
            if event.kind == "model_started":
                break
    assert stream.result.state == "interrupted"
    handle = await remote.start(SLOW, "Go.")
    async for event in handle.events(follow=True):
        if isinstance(event, e.TaskStood) and event.driven:
            break
    assert (await remote.get_task(handle.task_id)).driven
    assert (await handle.cancel()).state == "cancelled"


async def test_a_run_whose_caller_is_cancelled_is_interrupted(remote: Client) -> None:
    running = asyncio.ensure_future(remote.run(SLOW, "Go.", task_id="cancelled-run"))
    async for event in (
        remote.handle("cancelled-run").events() if await _made(remote, "cancelled-run") else ()
    ):
        if event.kind == "model_started":
            break
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await remote.get_task("cancelled-run")).state == "interrupted"


@pytest.mark.parametrize("after", [0, 3])
async def test_a_rest_that_a_follower_found_was_told_before_the_events_up_to_it(
    remote: Client, after: int
) -> None:
    """A reader that waited for the rest behind the last event waited for ever: the server tells it first of all."""
    result = await remote.run(shop(), "Tea?")
    head = (await remote.get_task(result.task_id)).head
    seqs: list[int] = []
    async with asyncio.timeout(10):
        async for event in remote.handle(result.task_id).events(after=after, follow=True):
            if isinstance(event, e.TaskStood):
                break
            seqs.append(event.seq)  # pyright: ignore[reportAttributeAccessIssue]
    assert (event.state, event.head, seqs) == ("completed", head, list(range(after + 1, head + 1)))


async def test_changes_of_all_tasks_are_told(remote: Client) -> None:
    changes = remote.changes()
    first = asyncio.ensure_future(anext(changes))
    while not first.done():  # it is told what changes once it is connected
        task = await remote.create_task(shop(), "x")
        await asyncio.wait([first], timeout=0.3)
    changed = await first
    assert (changed.agent, type(changed).__name__) == (task.agent, "TaskSummary")
    await changes.aclose()


async def _changes_of(remote: Client, made: Client, count: int) -> set[str]:
    """Make tasks while their changes are read, and return those that were told once all are."""
    told: set[str] = set()
    changes = remote.changes()

    async def read(upto: set[str]) -> None:
        while not upto <= told:
            told.add((await anext(changes)).task_id)

    async with asyncio.timeout(60):
        first = asyncio.ensure_future(anext(changes))
        while not first.done():
            await made.create_task(shop(), "x")
            await asyncio.wait([first], timeout=0.3)
        tasks = await asyncio.gather(*[made.create_task(shop(), "x") for _ in range(count)])
        await read({task.task_id for task in tasks})
    await changes.aclose()
    return told


async def test_changes_that_a_slow_reader_missed_were_never_told(
    remote: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server said `changes_missed` to the client, which left it out: now it reads the list anew."""
    monkeypatch.setattr("treadle.server.changes.RING", 2)
    assert len(await _changes_of(remote, remote, 20)) >= 20


async def test_changes_while_the_connection_was_lost_were_never_told(remote: Client, url: str) -> None:
    proxy = CuttingProxy(url, seed=1, least=25_000, most=26_000)
    async with proxy as address, client(address, patience=60) as cut:
        assert len(await _changes_of(cut, remote, 90)) >= 90
    assert proxy.cuts


async def test_a_deletion_is_told_over_http(remote: Client) -> None:
    changes = remote.changes()
    first = asyncio.ensure_future(anext(changes))
    while not first.done():
        task = await remote.create_task(shop(), "x")
        await asyncio.wait([first], timeout=0.3)
    await remote.delete_task(task)
    async with asyncio.timeout(60):
        while (changed := await anext(changes)).state_text != "deleted":
            pass
    assert (changed.task_id, changed.deleted) == (task.task_id, True)
    await changes.aclose()


async def _made(remote: Client, task_id: str) -> bool:
    while True:
        try:
            return bool(await remote.get_task(task_id))
        except TaskNotFound:
            await asyncio.sleep(0.01)


def test_a_client_works_without_asyncio(url: str) -> None:
    with client(url).sync as sync:
        result = sync.run(shop(), "How much?")
        assert result.final_text.startswith("It is 2.50")
        with sync.run_stream(shop(), "How much?") as stream:
            assert [event.kind for event in stream][-1] == "task_ended"
        assert stream.result.state == "completed"
        assert sync.handle(result.task_id).result().task_id == result.task_id
        assert len(list(sync.get_events(result.task_id, limit=4))) > 8
        assert result.task_id in [item.task_id for item in sync.list_tasks(limit=2)]


# ------------------------------------------------------------------------------------ lost connections


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(20))
async def test_runs_and_streams_survive_connections_that_are_cut(
    url: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(connection, "LONGEST_PAUSE", 0.1)
    words = " ".join(f"word{number}" for number in range(40))
    proxy = CuttingProxy(url, seed)
    async with proxy as cut_url, client(cut_url) as cut:
        task_id = f"cut-{seed}"
        async with cut.run_stream(shop(), words, task_id=task_id) as stream:
            seen = [event async for event in stream]
        stored = [event.seq for event in seen if isinstance(event, e.Event)]
        assert stored == list(range(1, len(stored) + 1))
        assert stream.result.state == "completed"
        written = "".join(each.text for each in seen if isinstance(each, e.Delta) and each.step == "s2")
        assert written in stream.result.final_text  # a delta that no connection was there for is missed
        assert (await cut.run(shop(), words)).state == "completed"
        task = await cut.create_task(shop(), words)
        while not (await cut.run_step(task)).is_last:
            pass
        assert [step.step.step_id for step in await cut.get_completed_steps(task)] == ["s1", "s2"]
        fork = await cut.fork(task)
        assert (await cut.finalize(task)).state == "completed"
        assert fork.forked_from == task.task_id
    assert proxy.cuts > 1


@pytest.mark.parametrize("steps", [0, 1, 2])
async def test_a_stream_went_on_with_another_task_that_was_made_with_the_id_while_it_was_away(
    steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal of the other task is shorter, as long, or longer."""
    with served(shop(), limits=ServerLimits(stream_seconds=0.3)) as url:
        async with client(url) as remote, asyncio.timeout(15):
            await remote.create_task("shop", "First", task_id="same")
            await remote.run_step("same")
            journal = (await remote.get_events("same")).items

            async def replace(*_: Any) -> None:
                await remote.delete_task("same")
                await remote.create_task("shop", "Second", task_id="same")
                for _ in range(steps):
                    await remote.run_step("same")

            monkeypatch.setattr(connection.Attempts, "failed", replace)
            told = [event async for event in remote.handle("same").events(follow=True)]
            assert (await remote.get_task("same")).input == (Text("Second"),)
    assert [event for event in told if isinstance(event, e.Event)] == list(journal)
    assert [event.head for event in told if isinstance(event, e.TaskStood)] == [len(journal)]


async def test_a_client_gives_up_when_no_server_answers_and_says_so() -> None:
    async with Client("http://127.0.0.1:9", token=TOKEN, patience=0.3) as nobody:
        with pytest.raises(ServerUnavailable, match=r"no server at http://127.0.0.1:9 answered within"):
            await nobody.get_task("t")
        with pytest.raises(ServerUnavailable):
            async for _ in nobody.handle("t").events():
                pass


async def test_a_token_that_is_not_known_is_refused_at_once_and_never_shown(url: str) -> None:
    async with Client(url, token="secret-of-bob") as bob:
        with pytest.raises(RequestRefused) as caught:
            await bob.get_task("t")
        assert caught.value.status == 401
        assert "does not accept the token that was sent: give Client(url, token=...)" in str(caught.value)
        assert "secret-of-bob" not in repr(bob) + str(caught.value)


async def test_a_missing_token_is_asked_for(url: str) -> None:
    async with Client(url) as stranger:
        with pytest.raises(RequestRefused, match=r"needs a token, and none was sent.* TREADLE_TOKEN"):
            await stranger.list_tasks()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (
            b"HTTP/1.1 302 Found\r\nLocation: https://evil.example/\r\nContent-Length: 0\r\n\r\n",
            "redirects to https://evil",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>", "no Treadle server"),
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", "answered 403 Forbidden"),
        (b'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"a": 1} ', "task_id: is missing"),
    ],
)
async def test_another_web_server_is_recognised_and_gets_no_second_token(answer: bytes, says: str) -> None:
    asked = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, client(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as other:
        with pytest.raises((RequestRefused, ConfigurationError), match=says):
            await other.get_task("t")
    assert len(asked) == 1


async def test_a_tool_of_the_caller_is_answered_over_http() -> None:
    guide = Agent(ScriptedModel([call("place"), text("You are in Bonn.")]), name="guide")
    options = RunOptions(caller_tools=[CallerTool("place", "Tell where the user is.")])
    with served(guide) as url:
        async with client(url) as runner:
            waiting = await runner.run(guide, "Where am I?", options=options)
            (item,) = waiting.pending
            assert (waiting.state, item.kind, item.tool) == ("waiting", "call", "place")
            await runner.complete(item.request_id, {"city": "Bonn"}, task=waiting.task_id)
            done = await runner.resume(waiting.task_id)
            assert (done.state, done.final_text) == ("completed", "You are in Bonn.")


async def test_a_closed_client_worked_on(remote: Client) -> None:
    await remote.get_agents()
    await remote.aclose()
    for work in (remote.get_agents(), remote.list_tasks(), anext(aiter(remote.changes()))):
        with pytest.raises(
            ServerUnavailable, match="is closed: make another one, or open it again by `async with"
        ):
            await work
    async with remote:
        await remote.get_agents()


def test_an_unknown_name_of_a_client_is_explained_as_one_of_a_client() -> None:
    with pytest.raises(
        AttributeError, match=r"^Client has no 'invoke': write `await client\.run\(agent, text\)`"
    ):
        _ = Client("http://127.0.0.1:1").invoke  # type: ignore[attr-defined]


def test_a_runner_of_the_address_of_a_server_is_told_of_the_client() -> None:
    with pytest.raises(
        ConfigurationError, match=r"is a server: write Client\(url, token=...\) instead of Runner"
    ):
        Runner("http://127.0.0.1:8700")
