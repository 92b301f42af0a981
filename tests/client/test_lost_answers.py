"""Answers that are lost, and requests that come again at another server: one task, one fork, one command, one step."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest

from tests.client.served import LosingProxy, client, served
from treadle import Agent, Client, File, Node, Pipeline, RunOptions, ScriptedModel, Text, tool
from treadle.client import connection
from treadle.errors import TaskBusy, TaskMoved
from treadle.events import InputEdited, InputReceived
from treadle.llm.scripted import call, text
from treadle.server import ADMIN, Principal
from treadle.testing.postgres import PostgresServer

pytestmark = pytest.mark.anyio
RAN: Counter[str] = Counter()


@tool
def note(line: str) -> str:
    """Write a line down; nothing undoes that."""
    RAN[line] += 1
    return "noted"


def agent() -> Agent[Any, str]:
    script = [call("note", line="first"), call("note", line="second"), text("Noted."), text("Once more.")]
    return Agent(ScriptedModel(script), name="clerk", tools=[note])


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.full)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that two servers may open."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/journal.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.in_schema(f"s{abs(hash(str(tmp_path))):x}")


@pytest.mark.parametrize(
    "losses", [1, pytest.param(4, marks=pytest.mark.full), pytest.param(9, marks=pytest.mark.full)]
)
async def test_nothing_is_done_twice_when_answers_are_lost(
    losses: int, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(connection, "LONGEST_PAUSE", 0.05)
    RAN.clear()
    with served(agent(), store=store) as one, served(agent(), store=store) as other:
        proxy = LosingProxy(one, other)
        async with proxy as url, client(url, patience=30) as remote:

            def losing() -> None:
                proxy.losses = losses

            name: Any = "clerk"
            losing()
            task = await remote.create_task(name, "Note it.", options=RunOptions(labels={"lost": "answers"}))
            losing()
            await remote.send(task, "And this.", role="observation")
            losing()
            assert (await remote.run_step(task)).step.index == 1
            losing()
            assert (await remote.run_step(task, input="Go on.")).step.index == 2
            losing()
            fork = await remote.fork(task, at=1)
            losing()
            report = await remote.undo_step(task, force=True)
            assert report.steps == ("s2",)
            losing()
            assert (await remote.cancel(task, reason="enough")).state == "cancelled"
            proxy.losses = 0

            assert RAN == {"first": 1, "second": 1}
            ids = {item.task_id async for item in await remote.list_tasks()}
            assert ids == {task.task_id, fork.task_id}
            kinds = Counter([event.kind async for event in await remote.get_events(task.task_id, limit=200)])
            assert (kinds["input_received"], kinds["step_completed"], kinds["rewound"]) == (2, 2, 1)
            assert (kinds["cancel_requested"], kinds["task_ended"], kinds["command_rejected"]) == (1, 1, 0)
    assert proxy.lost == 7 * losses


def by_token(connection: Any) -> Principal | None:
    """Know each principal by its name, which is its token."""
    return Principal(connection.headers.get("authorization", "").removeprefix("Bearer "), scopes=ADMIN)


def losing(monkeypatch: pytest.MonkeyPatch, *, meanwhile: Callable[[], Awaitable[Any]], sent: bool) -> None:
    """Lose the first request of a step, or its answer if it is `sent`; something else is done meanwhile."""
    monkeypatch.setattr(connection, "FIRST_PAUSE", 0.01)
    request, losses = httpx2.AsyncClient.request, [httpx2.ConnectError("the network is away")]

    async def lossy(self: httpx2.AsyncClient, method: str, url: str, **more: Any) -> Any:
        if not (method == "POST" and url.endswith("/steps") and losses):
            return await request(self, method, url, **more)
        error = losses.pop()
        if sent:
            await request(self, method, url, **more)
        await meanwhile()
        raise error

    monkeypatch.setattr(httpx2.AsyncClient, "request", lossy)


@pytest.mark.parametrize(
    ("other", "message", "others_message"),
    [
        ("ben", "Stop.", None),
        ("ben", "Stop.", "Stop."),
        ("ben", None, "Go on."),
        ("ann", "Stop.", None),
        ("ann", "Stop.", "Stop."),
        ("ann", None, "Go on."),
        ("ann", None, None),
    ],
)
async def test_a_step_of_another_caller_is_not_taken_for_the_own_whose_request_was_lost(
    monkeypatch: pytest.MonkeyPatch, other: str, message: str | None, others_message: str | None
) -> None:
    with served(agent(), auth=by_token) as url:
        async with client(url, token="ann") as ann, client(url, token=other) as ben:
            task = (await ann.create_task(cast("Any", "clerk"), "Note it.")).task_id
            losing(monkeypatch, meanwhile=lambda: ben.run_step(task, input=others_message), sent=False)
            assert (await ann.run_step(task, input=message)).step.index == 2
            events = [event async for event in await ann.get_events(task)]
            inputs = [event.parts for event in events if isinstance(event, InputReceived)]
            assert inputs == [(Text(each),) for each in (others_message, message) if each]


async def test_a_step_that_another_caller_ran_meanwhile_is_refused_if_it_was_to_follow_an_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with served(agent(), auth=by_token) as url:
        async with client(url, token="ann") as ann, client(url, token="ben") as ben:
            task = await ann.create_task(cast("Any", "clerk"), "Note it.")
            losing(monkeypatch, meanwhile=lambda: ben.run_step(task.task_id), sent=False)
            with pytest.raises(TaskMoved) as moved:
                await ann.run_step(task.task_id, input="Stop.", expect=task.head)
            assert moved.value.head == (await ann.get_task(task.task_id)).head


async def test_a_step_is_not_taken_for_the_one_beside_it_that_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = [Node(name, "note", input={"line": name}, after=()) for name in ("first", "here", "there")]
    beside = Agent(ScriptedModel([]), name="clerk", tools=[note], worker=Pipeline(nodes))
    with served(beside, auth=by_token) as url:
        async with client(url, token="ann") as ann, client(url, token="ben") as ben:
            task = (await ann.create_task(cast("Any", "clerk"), "Note it.")).task_id
            await ann.run_step(task)  # the others are planned with it
            first, second = [
                step.step_id for step in await ann.get_upcoming_steps(task) if step.status != "blocked"
            ]
            losing(monkeypatch, meanwhile=lambda: ben.run_step(task, step=first), sent=False)
            assert (await ann.run_step(task, step=second)).step.step_id == second


@pytest.mark.parametrize(
    "message",
    [None, "Go on.", [File(data=bytes(range(256)), media_type="application/pdf"), "Read it."]],
    ids=["no input", "text", "file"],
)
async def test_the_own_step_is_known_again_when_its_answer_was_lost(
    monkeypatch: pytest.MonkeyPatch, message: Any
) -> None:
    with served(agent(), auth=by_token) as url:
        async with client(url, token="ann") as ann, client(url, token="ben") as ben:
            task = (await ann.create_task(cast("Any", "clerk"), "Note it.")).task_id
            losing(monkeypatch, meanwhile=lambda: ben.run_step(task, input=message), sent=True)
            assert (await ann.run_step(task, input=message)).step.index == 1
            assert (await ann.get_task(task)).steps == 2


async def edited(remote: Client, task: str, text: str, head: int) -> bool:
    """Edit what the next step reads, unless the task has moved; return whether it was edited."""
    while True:
        try:
            await remote.edit_step(task, text, expect=head, command_id=text)
        except TaskMoved:
            return False
        except TaskBusy:  # the other editor has the task just now
            await asyncio.sleep(0.01)
        else:
            return True


async def test_of_two_editors_at_two_servers_one_wins_each_time_and_hears_so(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "FIRST_PAUSE", 0.01)
    name: Any = "clerk"
    with served(agent(), store=store) as one, served(agent(), store=store) as other:
        proxy = LosingProxy(one, other)
        async with proxy as url, client(url) as ann, client(other) as ben:
            task = (await ann.create_task(name, "Note it.")).task_id
            won = list[str]()
            for turn in range(5):
                head, proxy.losses = (await ben.get_task(task)).head, 1
                both = [(ann, f"by ann {turn}"), (ben, f"by ben {turn}")]
                done = await asyncio.gather(*[edited(remote, task, text, head) for remote, text in both])
                assert sorted(done) == [False, True]
                won.append(both[done.index(True)][1])
            events = await ben.get_events(task)
            edits = [event.parts[0] async for event in events if isinstance(event, InputEdited)]
            assert edits == [Text(line) for line in won]
    assert proxy.lost == 5
