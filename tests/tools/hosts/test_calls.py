"""Calls of functions in processes of their own: waiting, spares, retries, middleware, and results that are forged."""

import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.runner.acts import journal, until
from tests.tools.conftest import context
from tests.tools.hosts import hosted
from tests.tools.test_processes import assert_gone, lines
from treadle import Agent, File, NextLayer, Runner, ScriptedModel, ToolInvocation, ToolOutput, tool
from treadle.core.codec import encode_part
from treadle.core.data import frozen
from treadle.core.events import ToolStarted
from treadle.core.messages import ToolCall
from treadle.errors import HostUnavailable, ToolError
from treadle.models import call, text
from treadle.tools import Subprocess
from treadle.tools.hosts import function, spares
from treadle.tools.hosts.declaration import Launch
from treadle.tools.hosts.function import Places
from treadle.tools.hosts.messages import output_from_json, output_to_json, verdict_from_json

pytestmark = pytest.mark.anyio


def agent_with(*tools: Any, script: Any, **options: Any) -> Agent[Any]:
    return Agent(ScriptedModel([script, text("Done.")]), name="desk", tools=list(tools), **options)


# -------------------------------------------------------------------------------------------- places


async def test_places_go_to_those_that_wait_longest_and_a_cancelled_wait_takes_none() -> None:
    places, order = Places(1), list[int]()
    await places.take()

    async def wait(number: int) -> None:
        await places.take()
        order.append(number)
        places.give_back()

    waiting = [asyncio.create_task(wait(number)) for number in range(4)]
    await asyncio.sleep(0)
    assert places.waiting() == 4
    waiting[1].cancel()
    places.give_back()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert order == [0, 2, 3]
    await asyncio.wait_for(places.take(), 10)


async def test_a_place_is_not_lost_by_a_task_that_is_cancelled_as_its_turn_comes() -> None:
    places = Places(1)
    await places.take()
    task = asyncio.create_task(places.take())
    await asyncio.sleep(0)
    places.give_back()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.wait_for(places.take(), 10)


def test_a_place_is_not_lost_by_an_event_loop_that_was_closed() -> None:
    places = Places(1)

    async def leave() -> None:
        await places.take()
        waiting = asyncio.create_task(places.take())
        await asyncio.sleep(0)
        places._waiting.append(asyncio.get_running_loop().create_future())
        waiting.cancel()

    asyncio.run(leave())
    places.give_back()
    asyncio.run(asyncio.wait_for(places.take(), 10))


async def test_a_writing_call_that_is_cancelled_while_it_waits_for_a_place_has_not_happened(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    places = Places(1)
    monkeypatch.setattr(function, "places", places)
    await places.take()
    note = tmp_path / "note"
    async with Runner("memory:") as runner:
        handle = await runner.start(agent_with(hosted.write, script=call("write", note=str(note))), "Go.")
        await until(lambda: places.waiting() == 1)
        await handle.cancel()
        events = await journal(runner, handle.task_id)
    assert [
        event.kind for event in events if event.kind in ("tool_started", "outcome_settled", "tool_ended")
    ] == [
        "tool_started",
        "outcome_settled",
        "tool_ended",
    ]
    (settled,) = [event for event in events if event.kind == "outcome_settled"]
    assert (settled.verdict, settled.by) == ("not_happened", "runner")
    assert not note.exists()


async def passes_on(passed: ToolInvocation, next: NextLayer) -> ToolOutput:
    return await next(passed)


@pytest.mark.full
@pytest.mark.parametrize("layers", [(), (passes_on,)])
async def test_the_wait_for_a_place_counts_for_no_timeout(
    monkeypatch: pytest.MonkeyPatch, layers: Any
) -> None:
    monkeypatch.setattr(function, "places", Places(1))
    rest = tool(hosted.rest, timeout=3.0, middleware=layers)
    async with Runner("memory:") as runner:
        began = time.monotonic()
        result = await runner.run(agent_with(rest, script=[call("rest", seconds=2.0)] * 2), "Go.")
    assert [each.outcome for each in result.tool_executions] == ["ok", "ok"]
    assert time.monotonic() - began > 4.0


# -------------------------------------------------------------------------------------------- spares


@pytest.mark.full
async def test_a_spare_takes_the_next_call_and_no_other() -> None:
    where = tool(hosted.where, host=Subprocess())
    try:
        async with Runner("memory:") as runner:
            first = (
                (await runner.run(agent_with(where, script=call("where")), "Go.")).tool_executions[0].output
            )
            (spare,) = spares.waiting()
            again = [call("where"), call("where")]
            result = await runner.run(agent_with(where, script=again), "Go.")
            second, third = (each.output for each in result.tool_executions)
        assert len({first[0], second[0], third[0]}) == 3
        assert [second[1], third[1]].count(spare) == 1
        assert_gone([*first, *second, *third], within=1)
        left = spares.waiting()
        assert len(left) == 1
    finally:
        await spares.end_spares()
    assert_gone(left, within=1)
    assert spares.waiting() == ()


@pytest.mark.full
def test_spares_of_a_closed_event_loop_do_for_the_next() -> None:
    where = tool(hosted.where, host=Subprocess())
    runner = Runner("memory:")
    pids = [
        asyncio.run(_once(runner, where)),
        asyncio.run(_once(runner, where)),
    ]
    asyncio.run(spares.end_spares())
    assert pids[0] != pids[1]


async def _once(runner: Runner, where: Any) -> int:
    async with runner:
        result = await runner.run(agent_with(where, script=call("where")), "Go.")
        return result.tool_executions[0].output[0]


# ----------------------------------------------------------------------------- attempts, code and secrets


@pytest.mark.full
async def test_a_read_whose_process_ends_is_tried_again(tmp_path: Path) -> None:
    async with Runner("memory:") as runner:
        result = await runner.run(
            agent_with(hosted.second_time, script=call("second_time", note=str(tmp_path / "n"))), "Go."
        )
    (done,) = result.tool_executions
    assert (done.outcome, done.attempt, done.output) == ("ok", 2, 2)


@pytest.mark.full
async def test_a_function_that_has_changed_since_the_driver_began_is_not_run() -> None:
    stale = tool(hosted.add)
    stale.__dict__["code"] = "the digest of other code"
    async with Runner("memory:") as runner:
        result = await runner.run(agent_with(stale, script=call("add", a=1)), "Go.")
    (done,) = result.tool_executions
    assert "add did not run: " in done.error.message
    assert (
        "hosted:add is not the function that the driver has: its file has changed since" in done.error.message
    )


@pytest.mark.full
async def test_a_secret_in_an_error_of_a_process_is_hidden() -> None:
    async with Runner("memory:", secrets={"crm": lambda: "a-secret-of-the-crm"}) as runner:
        result = await runner.run(agent_with(hosted.betray, script=call("betray")), "Go.")
    (done,) = result.tool_executions
    assert done.error.message.startswith("ValueError: the key is ")
    assert "a-secret-of-the-crm" not in repr(done)
    assert done.report.secrets == ("crm",)


@pytest.mark.full
@pytest.mark.parametrize("how", ["cancel", "interrupt", "close"])
async def test_a_call_that_is_stopped_leaves_nothing(how: str, tmp_path: Path) -> None:
    notes = tmp_path / "pids"
    linger = tool(hosted.linger, timeout=None)
    async with Runner("memory:") as runner:
        handle = await runner.start(agent_with(linger, script=call("linger", notes=str(notes))), "Go.")
        await until(lambda: notes.exists() and len(notes.read_text().split()) == 4, 20)
        pids = lines(notes, 4)
        if how == "cancel":
            await handle.cancel()
        elif how == "interrupt":
            await handle.interrupt()
    assert_gone(pids, within=2)


@frozen(kw_only=True)
class Changed(Subprocess):
    """A host that runs some Python before the supervisor, as a launcher does that wraps the command line."""

    before: str = ""

    def launch(self, command: Any, env: Any, folder: Path, **where: Any) -> Launch:
        program = f"import os, runpy, sys; sys.argv = sys.argv[1:]; {self.before}; "
        program += "runpy.run_path(sys.argv[0], run_name='__main__')"
        at = next(index for index, word in enumerate(command) if word.endswith("child.py"))
        return Launch(command=(*command[:at], "-c", program, *command[at:]), env=env)


@pytest.mark.full
@pytest.mark.parametrize("before", ["pass", "del os.waitid"])
async def test_a_launcher_wraps_the_command_line_and_a_system_may_lack_waitid(before: str) -> None:
    tools = [tool(each, host=Changed(before=before, spare=False)) for each in (hosted.add, hosted.crash)]
    async with Runner("memory:") as runner:
        result = await runner.run(
            agent_with(*tools, script=[call("add", a=1), call("crash", how="exit")]), "Go."
        )
    added, crashed = result.tool_executions
    assert added.output == 3
    assert crashed.error.message.startswith("crash: its process ended before it answered: exit code 3")


@pytest.mark.full
async def test_a_host_that_cannot_be_had_runs_nothing() -> None:
    missing = tool(hosted.write, host=Missing())
    async with Runner("memory:") as runner:
        result = await runner.run(agent_with(missing, script=call("write", note="/nowhere")), "Go.")
    (done,) = result.tool_executions
    assert (done.outcome, done.error.message) == (
        "error",
        "write did not run: this machine has no such thing",
    )


class Missing(Subprocess):
    """A host that no machine has."""

    def launch(self, *args: Any, **where: Any) -> Launch:
        raise HostUnavailable("this machine has no such thing")


@pytest.mark.full
def test_a_call_whose_event_loop_is_closed_leaves_nothing(tmp_path: Path) -> None:
    notes = tmp_path / "pids"
    loop = asyncio.new_event_loop()
    work = hosted.linger.call({"notes": str(notes)}, context())
    task = loop.create_task(work)
    deadline = time.monotonic() + 20
    while not notes.exists() or len(notes.read_text().split()) < 4:
        assert time.monotonic() < deadline
        loop.run_until_complete(asyncio.sleep(0.02))
    loop.close()
    del task
    work.close()
    assert_gone(lines(notes, 4), within=3)


def test_a_driver_that_knows_no_hosts_leaves_a_task_with_one_alone() -> None:
    plain, hosted_start = ToolStarted("s1", "s1-0"), ToolStarted("s1", "s1-0", host="subprocess")
    assert (plain.format, hosted_start.format) == (1, 5)


# ------------------------------------------------------------------------------------- forged results


def test_a_result_is_the_same_on_the_other_side() -> None:
    result = ToolOutput(
        {"a": [1, None]},
        "seen",
        "shown",
        [{"title": "t"}],
        [File(data=b"1", media_type="text/plain", name="n")],
    )
    assert output_from_json(output_to_json(result)) == ToolOutput(
        {"a": [1, None]}, "seen", "shown", ({"title": "t"},), tuple(result.artifacts)
    )


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {"display": 1},
        {"sources": {}},
        {"artifacts": "x"},
        {"artifacts": ["text"]},
        {"origin": 1},
        {"observation": 5},
        {"observation": [{"p": "file", "path": 5}]},
        {"artifacts": [encode_part(File(path="/etc/passwd", media_type="text/plain", name="n"))]},
        {"observation": [encode_part(File(path="/etc/passwd", media_type="text/plain", name="n"))]},
        {"observation": [encode_part(ToolCall("c", "n", {}))]},
    ],
)
def test_what_a_process_sends_that_is_no_result_is_refused(document: Any) -> None:
    with pytest.raises(ToolError, match="the tool's process sent"):
        output_from_json(document)


@pytest.mark.parametrize("document", [None, {}, {"verdict": "yes"}, []])
def test_what_a_process_sends_that_is_no_verdict_is_refused(document: Any) -> None:
    with pytest.raises(ToolError, match="the tool's process sent no verdict"):
        verdict_from_json(document)


@pytest.mark.full
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("huge", "the tool's process sent 4,294,967,295 bytes at once, and may send 10,001,000"),
        ("noise", "the tool's process sent invalid JSON: "),
        ("list", "the tool's process sent an invalid message"),
        ("unknown", "its process sent an invalid answer"),
        ("nan", "sent invalid"),
        ("many", "sent more than 100,000 objects and lists at once"),
        ("close", "its process ended before it answered: exit code 0"),
    ],
)
async def test_what_a_function_writes_into_the_channel_itself_harms_its_own_call_alone(
    how: str, message: str
) -> None:
    async with Runner("memory:") as runner:
        result = await runner.run(
            agent_with(hosted.forge, hosted.add, script=[call("forge", how=how), call("add", a=1)]), "Go."
        )
    forged, added = result.tool_executions
    assert forged.outcome == "error"
    assert message in forged.error.message
    assert added.output == 3


@pytest.mark.parametrize("how", ["many", pytest.param("flood", marks=pytest.mark.full)])
async def test_a_flood_of_progress_did_not_let_the_loop_stand_still(how: str) -> None:
    lag = 0.0

    async def tick() -> None:
        nonlocal lag
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.01)
            lag = max(lag, time.monotonic() - began)

    ticking = asyncio.create_task(tick())
    async with Runner("memory:") as runner:
        forge = tool(hosted.forge, timeout=3)
        result = await runner.run(agent_with(forge, script=call("forge", how=how)), "Go.")
    ticking.cancel()
    assert result.tool_executions[0].outcome == {"many": "error", "flood": "timeout"}[how]
    assert lag < 2.0


@pytest.mark.parametrize("how", ["closed", "none"])
async def test_a_finished_write_became_unknown_by_a_closed_output(how: str) -> None:
    async with Runner("memory:") as runner:
        result = await runner.run(agent_with(hosted.lose_output, script=call("lose_output", how=how)), "Go.")
    assert result.tool_executions[0].outcome == "ok"


async def test_progress_of_a_thread_ran_into_the_answer() -> None:
    async with Runner("memory:") as runner:
        result = await runner.run(agent_with(hosted.report_on, script=call("report_on")), "Go.")
    (done,) = result.tool_executions
    assert (done.outcome, len(done.output)) == ("ok", 1_000_000)


@pytest.mark.parametrize("before", [0, 7_992])
async def test_a_secret_was_cut_before_it_was_looked_for(before: int) -> None:
    value = "TOPSECRET-ABCDEFGH-42"
    after = 2_000 - len(value) + 1 if not before else 16_000 - 7_992 - 3
    script = call("print_secret", before=before, after=after)
    async with Runner("memory:", secrets={"crm": lambda: value}) as runner:
        result = await runner.run(agent_with(hosted.print_secret, script=script), "Go.")
        shown = str(result.tool_executions[0].error)
    assert "it printed" in shown
    assert not any(part in shown for part in ("OPSECRET", "ABCDEFGH", "-42"))


def test_a_forked_child_closed_descriptors_of_its_own() -> None:
    where, runner = tool(hosted.where, host=Subprocess()), Runner("memory:")
    asyncio.run(_once(runner, where))
    assert spares.waiting()
    child = os.fork()
    if child == 0:
        lost = 99
        with suppress(BaseException):
            files = [os.open(os.devnull, os.O_RDONLY) for _ in range(6)]
            asyncio.run(_once(Runner("memory:"), where))
            lost = sum(not _is_open(fd) for fd in files)
        os._exit(lost)
    try:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert spares.waiting()
    finally:
        asyncio.run(spares.end_spares())


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True
