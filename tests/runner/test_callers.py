"""`by=`: the name of the caller stands in the events of what it asked for."""

from typing import Any

import pytest

from tests.cast import calculator, sayer
from tests.runner.acts import journal, only
from treadle import (
    Agent,
    Message,
    NextStep,
    RunContext,
    Runner,
    ScriptedModel,
    StepContext,
    StepResult,
    Text,
)
from treadle.core import codec
from treadle.core import events as e
from treadle.errors import StepFailed
from treadle.llm.scripted import fail

pytestmark = pytest.mark.anyio


async def test_a_started_and_a_streamed_task_name_who_made_them(runner: Runner) -> None:
    handle = await runner.start(sayer(), "Hi", by="ada")
    await handle.result()
    async with runner.run_stream(sayer(), "Hi", by="bob") as stream:
        async for _ in stream:
            pass
    makers = [
        (await only(runner, task, "task_created"))[0].by for task in (handle.task_id, stream.result.task_id)
    ]
    assert makers == ["ada", "bob"]


async def test_a_step_names_who_gave_its_input_and_who_took_up_what_failed(runner: Runner) -> None:
    agent = sayer(fail(400), "Hello.")
    task = await runner.create_task(agent, "Hi")
    with pytest.raises(StepFailed):
        await runner.run_step(task, input="please", by="ada")
    await runner.run_step(task, by="bob")
    assert [event.by for event in await only(runner, task, "input_received")] == ["ada"]
    assert [event.by for event in await only(runner, task, "task_reopened")] == ["bob"]


async def test_a_streamed_step_and_all_ready_steps_name_their_caller(runner: Runner) -> None:
    task = await runner.create_task(calculator(), "?")
    async with runner.stream_step(task, input="please", by="ada") as stream:
        async for _ in stream:
            pass
    assert [event.by for event in await only(runner, task, "input_received")] == ["ada"]
    failed = await runner.run(sayer(fail(400), "Hello."), "Hi")
    await runner.run_ready_steps(failed.task_id, by="bob")
    assert [event.by for event in await only(runner, failed.task_id, "task_reopened")] == ["bob"]


async def test_a_resume_names_its_caller_also_where_there_is_no_stop_to_lift(runner: Runner) -> None:
    task = await runner.create_task(sayer(), "Hi")
    await runner.resume(task, by="ada")
    assert [event.by for event in await only(runner, task, "resumed")] == ["ada"]
    silent = await runner.create_task(sayer(), "Hi")
    await runner.resume(silent)
    assert await only(runner, silent, "resumed") == []


async def test_a_fork_names_who_made_it(runner: Runner) -> None:
    done = await runner.run(sayer(), "Hi")
    fork = await runner.fork(done.task_id, input="And?", by="ada")
    (forked,) = await only(runner, fork, "task_forked")
    assert forked.by == "ada"
    assert (await journal(runner, fork))[-1].by == "ada"  # type: ignore[attr-defined]


class Reviewed:
    """A worker that has a last look at its answer."""

    looks = 0

    def initialize_step(self, task: RunContext[Any]) -> NextStep:
        return NextStep("only")

    async def run_step(self, ctx: StepContext[Any]) -> StepResult:
        return StepResult("draft", is_last=True)

    async def finalize_task(self, task: RunContext[Any], output: Any) -> Any:
        self.looks += 1
        return f"{output}, looked at"


async def test_who_finalizes_a_task_is_named_and_its_worker_has_its_last_look_all_the_same(
    runner: Runner,
) -> None:
    worker = Reviewed()
    task = await runner.create_task(Agent(ScriptedModel([]), worker=worker), "Hi")
    await runner.run_step(task)
    result = await runner.finalize(task, by="ada")
    assert (result.output, worker.looks) == ("draft, looked at", 1)
    finalized = await only(runner, task, "answer_finalized")
    assert [(event.by, event.output) for event in finalized] == [("ada", None), (None, "draft, looked at")]


async def test_who_finalizes_a_plain_task_is_named_before_its_end(runner: Runner) -> None:
    task = await runner.create_task(sayer("Hello."), "Hi")
    await runner.run_step(task)
    assert (await runner.finalize(task, by="ada")).final_text == "Hello."
    *_, finalized, ended = await journal(runner, task)
    assert (finalized.kind, finalized.by, ended.kind) == ("answer_finalized", "ada", "task_ended")  # type: ignore[attr-defined]


async def test_summaries_and_imported_messages_name_their_caller(runner: Runner) -> None:
    agent = sayer("Hello.")
    for _ in range(3):
        await runner.run(agent, "Hi", thread_id="talk")
    report = await runner.compact_thread("talk", keep=1, agent=sayer("They greet.", name="summary"), by="ada")
    imported = await runner.import_thread("talk", [Message("user", (Text("Hi"),))], by="bob")
    makers = [(await only(runner, task, "task_created"))[0].by for task in (report.tasks[0], imported)]
    assert makers == ["ada", "bob"]


def test_a_caller_is_written_only_where_one_is_named_and_older_drivers_leave_such_a_task_alone() -> None:
    for event in (e.TaskForked("p", "a", "t"), e.AnswerFinalized("x"), e.TaskCreated("a", (), "t")):
        event.seq, event.time = 1, 1
        assert b'"by"' not in codec.encode([event])[0]
        assert event.format == 1
        event.by = "ada"
        assert b'"by":"ada"' in codec.encode([event])[0].replace(b" ", b"")
        assert event.format == 5
