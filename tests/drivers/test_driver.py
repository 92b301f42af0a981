"""Tasks whose caller is cancelled, or whose process ends."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.cast import Gate, gate_agent
from tests.interruptible import interruptible
from tests.runner.acts import assert_journal_makes_sense, kinds, only
from treadle import Agent, Runner, ScriptedModel, tool
from treadle.errors import TaskBusy
from treadle.llm.scripted import call, text
from treadle.ports import Commit, CommitDone
from treadle.replay.recording import journal_of
from treadle.runner.stream import TaskStream
from treadle.stores.memory import MemoryStore
from treadle.stores.postgres.writer import MAIL_CHECK_SECONDS
from treadle.stores.processes import LEASE_SECONDS


def others() -> set[Any]:
    return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}


async def run_out_of_time(runner: Runner, gate: Gate, agent: Agent[Any]) -> None:
    """Run a task until its tool was entered, and let the time of the caller be up then."""

    async def expire(limit: asyncio.Timeout) -> None:
        await gate.entered.wait()
        limit.reschedule(asyncio.get_running_loop().time())

    async with asyncio.timeout(None) as limit:
        expiring = asyncio.ensure_future(expire(limit))
        await runner.run(agent, "go", task_id="mine")
        await expiring


# --------------------------------------------------------------------------------------- the caller


@pytest.mark.anyio
async def test_a_timed_out_run_leaves_its_task_interrupted_and_nothing_running(runner: Runner) -> None:
    gate = Gate(read_only=True)
    before = others()
    with pytest.raises(TimeoutError):
        await run_out_of_time(runner, gate, gate_agent(gate))
    assert gate.cancelled == 1
    assert others() == before
    task = await runner.get_task("mine")
    assert (task.state, task.driven) == ("interrupted", False)
    gate.let_go.set()
    assert (await runner.resume("mine")).state == "completed"
    assert gate.starts == 2
    await assert_journal_makes_sense(runner, "mine")


@pytest.mark.anyio
async def test_run_with_the_same_id_drives_an_interrupted_task_on(runner: Runner) -> None:
    gate = Gate(read_only=True)
    agent = gate_agent(gate)
    with pytest.raises(TimeoutError):
        await run_out_of_time(runner, gate, agent)
    gate.let_go.set()
    assert (await runner.run(agent, "go", task_id="mine")).state == "completed"
    assert (await runner.run(agent, "go", task_id="mine")).state == "completed"
    assert len(agent.model.requests) == 2  # type: ignore[union-attr]


@pytest.mark.anyio
async def test_a_cancelled_caller_sees_cancelled_error_only_once_the_interrupt_is_durable(
    runner: Runner,
) -> None:
    gate = Gate()
    running = asyncio.create_task(runner.run(gate_agent(gate), "go", task_id="mine"))
    await gate.entered.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await runner.get_task("mine")).state == "interrupted"
    assert (await runner.resume("mine")).pending[0].request_id == "s1-0"


@pytest.mark.anyio
async def test_a_caller_cancelled_again_and_again_still_leaves_the_task_at_rest(runner: Runner) -> None:
    gate = Gate(read_only=True)
    running = asyncio.create_task(runner.run(gate_agent(gate), "go", task_id="mine"))
    await gate.entered.wait()
    for _ in range(5):
        running.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await runner.get_task("mine")).state == "interrupted"


@pytest.mark.sampled(8)
@pytest.mark.anyio
@pytest.mark.parametrize("hops", range(12))
async def test_a_run_cancelled_at_any_early_moment_can_be_run_again(runner: Runner, hops: int) -> None:
    agent = Agent(ScriptedModel(lambda request: "Hi."), name="hi")
    running = asyncio.create_task(runner.run(agent, "go", task_id="mine"))
    for _ in range(hops):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    async with asyncio.timeout(20):
        assert (await runner.run(agent, "go", task_id="mine")).state == "completed"
    await assert_journal_makes_sense(runner, "mine")


@pytest.mark.anyio
async def test_two_runs_of_one_id_at_once_are_one_task_that_can_be_cancelled(runner: Runner) -> None:
    gate = Gate(read_only=True)
    agent = gate_agent(gate)
    runs = [asyncio.create_task(runner.run(agent, "go", task_id="mine")) for _ in range(3)]
    await gate.entered.wait()
    async with asyncio.timeout(20):
        assert (await runner.cancel("mine")).state == "cancelled"
        assert [(await run).state for run in runs] == ["cancelled"] * 3
    assert gate.starts == 1


@pytest.mark.anyio
async def test_leaving_a_stream_early_interrupts_the_task(runner: Runner) -> None:
    model = ScriptedModel([text("one two three four", chunk=4, pause=0.5)])
    before = others()
    async with runner.run_stream(Agent(model), "go") as stream:
        async for event in stream:
            if type(event).__name__ == "Delta":
                break
    assert others() == before
    assert stream.result.state == "interrupted"
    assert stream.result.final_text == ""
    assert (await runner.get_task(stream.task_id)).state == "interrupted"
    assert [e.by for e in await only(runner, stream.task_id, "interrupt_requested")] == ["caller"]


@pytest.mark.anyio
async def test_an_error_in_the_block_of_a_stream_interrupts_the_task_and_is_raised(runner: Runner) -> None:
    gate = Gate(read_only=True)

    async def fail_in_the_block() -> None:
        async with runner.run_stream(gate_agent(gate), "go", task_id="mine") as stream:
            async for event in stream:
                if event.kind == "tool_started":
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_in_the_block()
    assert (await runner.get_task("mine")).state == "interrupted"
    assert not gate.starts or gate.cancelled == gate.starts


@pytest.mark.anyio
async def test_a_stream_in_a_timeout_interrupts_the_task(runner: Runner) -> None:
    gate = Gate(read_only=True)
    before = others()

    async def expire(limit: asyncio.Timeout) -> None:
        await gate.entered.wait()
        limit.reschedule(asyncio.get_running_loop().time())

    async def watch() -> None:
        async with asyncio.timeout(None) as limit:
            expiring = asyncio.ensure_future(expire(limit))
            async with runner.run_stream(gate_agent(gate), "go", task_id="mine") as stream:
                async for _ in stream:
                    pass
            await expiring

    with pytest.raises(TimeoutError):
        await watch()
    assert others() == before
    assert (await runner.get_task("mine")).state == "interrupted"


class HeldDisk(MemoryStore):
    """A store whose commits wait until they are let go, and whose reads do not wait for them."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = asyncio.Event()
        self.held: list[tuple[Commit, CommitDone]] | None = []

    def commit(self, commit: Commit, done: CommitDone) -> None:
        self.reached.set()
        if self.held is None:
            super().commit(commit, done)
        else:
            self.held.append((commit, done))

    def let_go(self) -> None:
        held, self.held = self.held or [], None
        for commit, done in held:
            super().commit(commit, done)


@pytest.mark.anyio
async def test_a_run_cancelled_while_its_task_is_created_raises_cancelled_error() -> None:
    disk = HeldDisk()
    async with Runner(disk) as runner:
        run = asyncio.ensure_future(runner.run(Agent(ScriptedModel(["Hi."])), "go", task_id="mine"))
        await disk.reached.wait()
        assert runner._driver.owned.is_owned("mine")
        run.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not run.done()
        disk.let_go()
        with pytest.raises(asyncio.CancelledError):
            await run
        task = await runner.get_task("mine")
        assert (task.state, task.driven) == ("created", False)


@pytest.mark.anyio
async def test_a_caller_cancelled_twice_while_it_leaves_a_stream_leaves_no_error_unseen(
    runner: Runner,
) -> None:
    unseen: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            raise OSError("the disk has gone")

    async def leave() -> None:
        async with TaskStream(runner._driver.owned, "mine", work):
            await asyncio.sleep(60)

    before = others()
    leaving = asyncio.ensure_future(leave())
    for _ in range(2):
        await asyncio.sleep(0.001)
        leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert others() <= before, "what the stream began has ended"
    gc.collect()
    assert unseen == []


@pytest.mark.anyio
async def test_a_stream_that_is_entered_and_never_read_runs_to_its_exit_only(runner: Runner) -> None:
    gate = Gate(read_only=True)
    async with runner.run_stream(gate_agent(gate), "go", task_id="mine"):
        await gate.entered.wait()
    assert (await runner.get_task("mine")).state == "interrupted"


# --------------------------------------------------------------------------------------- the runner


@pytest.mark.anyio
async def test_a_task_driven_by_another_runner_is_busy_for_stepping_and_attached_to_by_run(
    store: Any,
) -> None:
    gate = Gate()
    agent = gate_agent(gate)
    async with Runner(store, agents=[agent]) as first, Runner(store, agents=[agent]) as second:
        handle = await first.start(agent, "go", task_id="mine")
        await gate.entered.wait()
        with pytest.raises(TaskBusy):
            await second.run_step("mine")
        attached = asyncio.create_task(second.run(agent, "go", task_id="mine"))
        resumed = asyncio.create_task(second.resume("mine"))
        await asyncio.sleep(0.05)
        assert not attached.done()
        gate.let_go.set()
        async with asyncio.timeout(20):
            assert (await attached).state == (await resumed).state == "completed"
        assert (await handle.result()).state == "completed"
        assert gate.starts == 1


TOLD_SECONDS = 0.9 * MAIL_CHECK_SECONDS
"""Seconds within which a driver is told of a command; one that is not told sees it the next time it looks."""


@pytest.mark.anyio
async def test_another_runner_cancels_and_pauses_what_this_one_drives(store: Any) -> None:
    async with Runner(store) as first, Runner(store) as second:
        for verb, state in (("cancel", "cancelled"), ("interrupt", "interrupted"), ("pause", "paused")):
            gate = Gate(read_only=True)
            handle = await first.start(gate_agent(gate), "go")
            await gate.entered.wait()
            asking = asyncio.create_task(getattr(second, verb)(handle.task_id))
            if verb == "pause":
                await asyncio.sleep(0.3)
                assert not asking.done()
                gate.let_go.set()
            async with asyncio.timeout(TOLD_SECONDS):
                assert (await asking).state == state
            assert (await handle.result()).state == state


# -------------------------------------------------------------------------------------- the process

ENDS_SECONDS = 25
"""Seconds within which a process ends; what hangs in it takes longer."""

HEADER = """
import asyncio, os, signal, sys, threading, time
from treadle import Agent, Runner, RunOptions, ScriptedModel, tool, Limits
from treadle.llm.scripted import call, text

hangs = threading.Event()

async def until_it_hangs():
    while not hangs.is_set():
        await asyncio.sleep(0.01)

@tool(read_only=True)
async def hang() -> str:
    print("hanging", flush=True)
    hangs.set()
    await asyncio.sleep(60)

@tool(read_only=True)
def hang_in_thread() -> str:
    print("hanging", flush=True)
    time.sleep(60)

@tool(read_only=True)
async def quick() -> str:
    return "quick"

def agent(*script, **more):
    return Agent(ScriptedModel(list(script)), name="worker", tools=[hang, hang_in_thread, quick], **more)
"""


def script(tmp_path: Path, body: str) -> "subprocess.Popen[str]":
    file = tmp_path / "script.py"
    file.write_text(HEADER + textwrap.dedent(body))
    environment = {**os.environ, "TREADLE_STORE": str(tmp_path / "journal.db")}
    with interruptible():
        return subprocess.Popen(
            [sys.executable, "-W", "error", str(file)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )


def state_of(tmp_path: Path, task_id: str) -> tuple[str, list[str]]:
    async def look() -> tuple[str, list[str]]:
        async with Runner(tmp_path / "journal.db") as runner:
            return (await runner.get_task(task_id)).state, await kinds(runner, task_id)

    return asyncio.run(look())


def interrupt_when_it_hangs(process: "subprocess.Popen[str]") -> tuple[str, str]:
    assert process.stdout is not None
    assert process.stdout.readline() == "hanging\n"
    process.send_signal(signal.SIGINT)
    return process.communicate(timeout=ENDS_SECONDS)


@pytest.mark.parametrize("name", ["hang", "hang_in_thread"])
def test_ctrl_c_in_run_sync_interrupts_durably_and_is_raised_again_silently(
    tmp_path: Path, name: str
) -> None:
    process = script(
        tmp_path,
        f"""
        runner = Runner()
        try:
            runner.run_sync(agent(call("{name}"), "x"), "go", task_id="mine")
        except KeyboardInterrupt:
            print(runner.sync.get_task("mine").state, flush=True)
        """,
    )
    out, err = interrupt_when_it_hangs(process)
    assert (out, err, process.returncode) == ("interrupted\n", "", 0)
    state, events = state_of(tmp_path, "mine")
    assert state == "interrupted"
    assert "interrupt_requested" in events


@pytest.mark.full
def test_ctrl_c_that_is_not_caught_ends_the_process_as_usual(tmp_path: Path) -> None:
    process = script(tmp_path, """Runner().run_sync(agent(call("hang"), "x"), "go", task_id="mine")""")
    out, err = interrupt_when_it_hangs(process)
    assert out == ""
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert "Exception ignored" not in err
    assert "never" not in err
    assert process.returncode in (-signal.SIGINT, 130)
    assert state_of(tmp_path, "mine")[0] == "interrupted"


def test_ctrl_c_in_asyncio_run_interrupts_durably(tmp_path: Path) -> None:
    process = script(
        tmp_path,
        """
        try:
            asyncio.run(Runner().run(agent(call("hang"), "x"), "go", task_id="mine"))
        except KeyboardInterrupt:
            print("raised again", flush=True)
        """,
    )
    out, err = interrupt_when_it_hangs(process)
    assert (out, err) == ("raised again\n", "")
    state, events = state_of(tmp_path, "mine")
    assert state == "interrupted"
    assert "interrupt_requested" in events


@pytest.mark.full
def test_ctrl_c_waits_only_for_the_task_of_its_own_thread(tmp_path: Path) -> None:
    process = script(
        tmp_path,
        """
        runner = Runner()
        other = threading.Thread(
            target=lambda: runner.run_sync(agent(text("later", delay=60)), "go", task_id="other"), daemon=True
        )
        other.start()
        time.sleep(0.3)
        began = time.monotonic()
        try:
            runner.run_sync(agent(call("hang"), "x"), "go", task_id="mine")
        except KeyboardInterrupt:
            print(other.is_alive(), runner.sync.get_task("mine").state, flush=True)
        """,
    )
    out, err = interrupt_when_it_hangs(process)
    assert (out, err) == ("True interrupted\n", "")


@pytest.mark.full
def test_a_process_may_end_right_after_run_sync(tmp_path: Path) -> None:
    process = script(
        tmp_path,
        """
        print(Runner().run_sync(agent(call("quick"), "x"), "go", task_id="mine").state, flush=True)
        """,
    )
    out, err = process.communicate(timeout=ENDS_SECONDS)
    assert (out, err, process.returncode) == ("completed\n", "", 0)
    state, events = state_of(tmp_path, "mine")
    assert (state, events[-1]) == ("completed", "task_ended")


def test_a_process_may_end_right_after_asyncio_run_without_closing_the_runner(tmp_path: Path) -> None:
    process = script(
        tmp_path,
        """
        runner = Runner()
        print(asyncio.run(runner.run(agent(call("quick"), "x"), "go", task_id="mine")).state, flush=True)
        """,
    )
    assert process.communicate(timeout=ENDS_SECONDS) == ("completed\n", "")
    assert state_of(tmp_path, "mine")[0] == "completed"


def test_started_tasks_end_with_their_loop_as_interrupted(tmp_path: Path) -> None:
    process = script(
        tmp_path,
        """
        runner = Runner()
        async def main():
            handle = await runner.start(agent(call("hang"), "x"), "go", task_id="mine")
            await until_it_hangs()
        asyncio.run(main())
        print(runner.sync.get_task("mine").state, flush=True)
        """,
    )
    out, err = process.communicate(timeout=ENDS_SECONDS)
    assert (out, err) == ("hanging\ninterrupted\n", "")
    state, events = state_of(tmp_path, "mine")
    assert state == "interrupted"
    assert events[-1] != "task_ended"


def test_a_loop_that_ends_just_when_a_task_changes_hands_leaves_it_interrupted(tmp_path: Path) -> None:
    process = script(
        tmp_path,
        """
        runner = Runner()
        async def main():
            handle = await runner.start(agent(call("hang"), "x"), "go", task_id="mine")
            await until_it_hangs()
            # Who carries the task on from here has not begun when all tasks are cancelled.
            runner._driver.owned.tasks["mine"].drive.read_inbox_soon()
        asyncio.run(main())
        print(runner.sync.get_task("mine").state, flush=True)
        """,
    )
    assert process.communicate(timeout=ENDS_SECONDS) == ("hanging\ninterrupted\n", "")
    assert state_of(tmp_path, "mine")[0] == "interrupted"


def test_a_killed_drivers_task_is_interrupted_and_resumed_at_once(tmp_path: Path) -> None:
    process = script(
        tmp_path,
        """
        Runner().run_sync(agent(call("hang"), "x"), "go", task_id="mine")
        """,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "hanging\n"

    async def until_its_begin_is_durable() -> None:
        async with Runner(tmp_path / "journal.db") as runner:
            while "tool_started" not in [each.kind for each in await journal_of(runner.store, "mine")]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)  # what needs no barrier is durable soon, not at once

    asyncio.run(until_its_begin_is_durable())
    process.kill()
    process.communicate(timeout=ENDS_SECONDS)

    async def go_on() -> None:
        @tool(read_only=True)
        async def hang() -> str:
            return "not this time"

        agent = Agent(ScriptedModel([call("hang"), "x"]), name="worker", tools=[hang])
        async with Runner(tmp_path / "journal.db") as runner:
            assert (await runner.get_task("mine")).state == "interrupted"
            async with asyncio.timeout(LEASE_SECONDS / 3):
                result = await runner.resume("mine", agent=agent)
            assert result.state == "completed"
            stopped = await only(runner, "mine", "tool_stopped")
            assert [event.reason for event in stopped] == ["crash"]

    asyncio.run(go_on())


@pytest.mark.full
def test_a_runner_whose_loop_is_gone_can_still_be_closed_and_used(tmp_path: Path) -> None:
    process = script(
        tmp_path,
        """
        runner = Runner()
        loop = asyncio.new_event_loop()
        handle = loop.run_until_complete(runner.start(agent(call("hang"), "x"), "go", task_id="mine"))
        loop.run_until_complete(until_it_hangs())
        loop.stop()
        print(runner.run_sync(agent("Hi."), "go").state, flush=True)
        os._exit(0)
        """,
    )
    out, err = process.communicate(timeout=ENDS_SECONDS)
    assert (out, err) == ("hanging\ncompleted\n", "")
    assert state_of(tmp_path, "mine")[0] == "interrupted"
