"""What a task is given: content parts, context, instructions, labels, extra state, breakpoints."""

from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.runner.cases import Ledger, both, calculator, kinds, only, sayer, step_to_answer
from treadle import Agent, Breakpoint, File, Image, Runner, RunOptions, ScriptedModel, ToolContext, tool
from treadle.errors import ConfigurationError
from treadle.llm.scripted import call

pytestmark = pytest.mark.anyio

PICTURE = b"\x89PNG" + bytes(range(256)) * 100


async def test_an_image_is_read_once_stored_once_and_sent_to_the_model(tmp_path: Path) -> None:
    path, database = tmp_path / "cat.png", tmp_path / "journal.db"
    path.write_bytes(PICTURE)
    agent = sayer("A cat.", "Still a cat.")
    async with Runner(database) as runner:
        task = await runner.create_task(agent, ["What is this?", Image(path=str(path))], thread_id="talk")
        path.unlink()
        await runner.run_step(task)
        (_, image) = agent.model.requests[0].messages[0].parts
        assert (image.data, image.media_type, image.path) == (PICTURE, "image/png", None)
        await runner.finalize(task)
        path.write_bytes(PICTURE)
        await runner.run(agent, ["And now?", Image(path=str(path))], thread_id="talk")
        assert agent.model.requests[-1].messages[0].parts[1].data == PICTURE
        fork = await runner.fork(task)
        assert (await runner.get_task(fork)).input[1].data == PICTURE
    connection = apsw.Connection(str(database))
    ((blobs,),) = list(connection.execute("select count(*) from blobs where length(data) > 20000"))
    ((longest,),) = list(connection.execute("select max(length(data)) from records"))
    connection.close()
    assert blobs == 1
    assert longest < 5_000


def database_bytes(folder: Path) -> bytes:
    """All that a closed store left on disk."""
    return b"".join(path.read_bytes() for path in folder.glob("journal.db*"))


async def test_a_file_keeps_its_name_and_an_address_is_only_passed_on(runner: Runner, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("milk")
    agent = sayer()
    await runner.run(agent, [File(path=str(path)), Image(url="https://example.com/a.png")])
    file, image = agent.model.requests[0].messages[0].parts
    assert (file.data, file.name, file.media_type) == (b"milk", "notes.txt", "text/plain")
    assert (image.url, image.data) == ("https://example.com/a.png", None)


async def test_one_image_alone_is_an_input(runner: Runner) -> None:
    agent = sayer()
    await runner.run(agent, Image(data=b"x", media_type="image/png"))
    assert agent.model.requests[0].messages[0].parts[0].data == b"x"


async def test_a_known_id_with_the_same_image_is_the_same_task(runner: Runner) -> None:
    picture = Image(data=PICTURE, media_type="image/png")
    first = await runner.run(sayer("A cat."), ["?", picture], task_id="t")
    assert await runner.run(sayer("A cat."), ["?", picture], task_id="t") == first


# ---------------------------------------------------------------------------------------------- context


SECRET = "the-context-never-lies-on-disk"


@tool(read_only=True)
async def whoami(ctx: ToolContext[Any]) -> str:
    """Tell who asks."""
    return f"user {len(ctx.context['secret'])}"


def asker(**more: Any) -> Agent[Any]:
    return Agent(ScriptedModel([call("whoami"), "done"]), name="asker", tools=[whoami], **more)


async def test_the_context_reaches_tools_and_never_the_model_or_the_disk(tmp_path: Path) -> None:
    agent = asker(instructions=lambda ctx: f"Serve {len(ctx.context['secret'])}.")
    context = {"secret": SECRET}
    async with Runner(tmp_path / "journal.db") as runner:
        result = await runner.run(agent, "?", context=context)
        task = await runner.create_task(agent, "?")
        await runner.run_step(task, context=context)
        async with runner.stream_step(task, context=context) as stream:
            async for _ in stream:
                pass
        await runner.finalize(task)
        await runner.fork(task)
        await runner.undo_step(task, to=0, context=context)
    assert result.tool_executions[0].output == f"user {len(SECRET)}"
    assert SECRET not in repr([(r.messages, r.instructions, r.settings) for r in agent.model.requests])
    assert SECRET.encode() not in database_bytes(tmp_path)


async def test_each_drive_takes_its_own_context(runner: Runner) -> None:
    task = await runner.create_task(asker(), "?")
    out = await runner.run_step(task, context={"secret": "abc"})
    assert out.tool_executions[0].output == "user 3"
    await runner.undo_step(task)
    result = await runner.resume(task, context={"secret": "abcde"})
    assert result.tool_executions[0].output == "user 5"


async def test_a_factory_makes_the_context_of_drives_that_are_given_none(store: Any) -> None:
    async with Runner(store, context_factory=lambda: {"secret": "1234"}) as runner:
        result = await runner.run(asker(), "?")
        assert result.tool_executions[0].output == "user 4"
        given = await runner.run(asker(), "?", context={"secret": ""})
        assert given.tool_executions[0].output == "user 0"


# ----------------------------------------------------------------------------------------- instructions


async def test_instructions_of_a_function_are_worked_out_once_per_task(store: Any) -> None:
    asked: list[Any] = []

    def told(ctx: Any) -> str:
        asked.append((ctx.task_id, ctx.thread_id, ctx.input[0].text, ctx.context))
        return f"Version {len(asked)}."

    agent = calculator(instructions=told)
    async with Runner(store) as runner:
        task = await runner.create_task(agent, "?", thread_id="talk")
        assert asked == []
        await runner.run_step(task, context="c")
        assert asked == [(task.task_id, "talk", "?", "c")]
    async with Runner(store, agents=[agent]) as runner:
        await step_to_answer(runner, task)
        (told_once,) = await only(runner, task, "instructions_set")
    assert told_once.text == "Version 1."
    assert {request.instructions for request in agent.model.requests} == {"Version 1."}
    assert len(asked) == 1


async def test_instructions_are_worked_out_at_once_for_a_task_created_with_a_context(runner: Runner) -> None:
    agent = sayer(instructions=lambda ctx: f"Serve {ctx.context}.")
    task = await runner.create_task(agent, "?", context="Ann")
    assert task.state == "created"
    assert await kinds(runner, task) == ["task_created", "instructions_set"]
    await runner.run_step(task, context="Bob")
    assert agent.model.requests[0].instructions == "Serve Ann."


async def test_instructions_that_are_no_text_are_named_and_leave_the_task_as_it_was(runner: Runner) -> None:
    task = await runner.create_task(sayer(instructions=lambda ctx: 42), "?")
    with pytest.raises(ConfigurationError, match="Agent 'sayer': instructions must return text, got 42"):
        await runner.run_step(task)
    assert await kinds(runner, task) == ["task_created"]
    assert (await runner.get_task(task)).driven is False


async def test_instructions_that_raise_reach_the_caller_and_leave_the_task_as_it_was(runner: Runner) -> None:
    def broken(ctx: Any) -> str:
        raise LookupError("no such prompt")

    task = await runner.create_task(sayer(instructions=broken), "?")
    with pytest.raises(LookupError, match="no such prompt"):
        await runner.resume(task)
    now = await runner.get_task(task)
    assert (now.state, now.driven) == ("created", False)


# ------------------------------------------------------------------------------- labels and extra state


async def test_labels_of_the_runner_and_of_the_run_are_joined(store: Any) -> None:
    options = RunOptions(labels={"team": "blue", "stage": "test"})
    async with Runner(store, options=options) as runner:
        task = await runner.create_task(sayer(), "?", options=RunOptions(labels={"stage": "live"}))
        assert task.labels == {"team": "blue", "stage": "live"}
        (listed,) = (await runner.list_tasks()).items
        assert listed.labels == task.labels


async def test_extra_state_is_kept_with_the_task_and_its_forks(runner: Runner) -> None:
    extra = {"ticket": 7, "tags": ["a", None], "deep": {"x": 1.5}}
    task = await runner.create_task(calculator(), "?", extra_state=extra)
    runner.driver.cache.forget(task.task_id)
    assert (await runner.get_task(task)).extra_state == extra
    await runner.run_step(task)
    assert (await runner.fork(task)).extra_state == extra


# ------------------------------------------------------------------------------------- where it pauses


async def test_a_breakpoint_before_a_tool_pauses_before_any_call_of_the_batch_starts(runner: Runner) -> None:
    ledger = Ledger()
    options = RunOptions(break_on=[Breakpoint(before_tool="book")])
    agent = ledger.agent(call("look", what="a"), both(call("look", what="b"), call("book", what="1")), "done")
    result = await runner.run(agent, "?", options=options)
    assert (result.state, ledger.entries) == ("paused", ["look a"])
    (paused,) = await only(runner, result.task_id, "pause_requested")
    assert (paused.by, paused.reason) == ("breakpoint", "before the tool book")
    result = await runner.resume(result.task_id)
    assert (result.state, sorted(ledger.entries)) == ("completed", ["book 1", "look a", "look b"])


async def test_a_breakpoint_after_a_step_pauses_there_only(runner: Runner) -> None:
    agent = calculator(*[call("add", a=n, b=n) for n in range(11)], "done")
    options = RunOptions(break_on=[Breakpoint(after_step=1)])
    result = await runner.run(agent, "?", options=options)
    assert (result.state, result.steps) == ("paused", 1)
    result = await runner.resume(result.task_id)
    assert (result.state, result.steps) == ("completed", 12), "step 10 begins with a 1 too"


async def test_a_breakpoint_after_each_step_is_stepping_by_resume(runner: Runner) -> None:
    options = RunOptions(break_on=[Breakpoint(after_step=0)])
    result = await runner.run(calculator(), "?", options=options)
    stops = [(result.state, result.steps)]
    while result.state == "paused":
        result = await runner.resume(result.task_id)
        stops.append((result.state, result.steps))
    assert stops == [("paused", 1), ("paused", 2), ("completed", 3)]


async def test_a_breakpoint_on_an_event_pauses_once_it_is_journalled(runner: Runner) -> None:
    options = RunOptions(break_on=[Breakpoint(event="tool_ended")])
    result = await runner.run(calculator(), "?", options=options)
    assert result.state == "paused"
    assert (await kinds(runner, result.task_id))[-2:] == ["tool_ended", "pause_requested"]
    result = await runner.resume(result.task_id)
    assert result.state == "paused"
    assert (await runner.resume(result.task_id)).state == "completed"


async def test_a_breakpoint_may_be_set_for_a_task_that_goes_on(runner: Runner) -> None:
    task = await runner.create_task(calculator(), "?")
    await runner.run_step(task)
    options = RunOptions(break_on=[Breakpoint(before_tool="add")])
    result = await runner.resume(task, options=options)
    assert (result.state, result.steps) == ("paused", 1)
    result = await runner.resume(task, options=RunOptions(break_on=[]))
    assert result.state == "completed"


def test_what_an_option_says_counts_also_when_it_says_no() -> None:
    usual = RunOptions(tell_steps_left=True, break_on=[Breakpoint(after_step=1)])
    asked = RunOptions(tell_steps_left=False, break_on=[]).over(usual)
    assert (asked.tell_steps_left, asked.break_on) == (False, [])
