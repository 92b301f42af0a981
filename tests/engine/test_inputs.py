"""Input of a task: content parts, extra state, and breakpoints."""

from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.cast import Ledger, calculator, sayer
from tests.runner.acts import both, kinds, only
from treadle import Breakpoint, File, Image, Runner, RunOptions
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


# ------------------------------------------------------------------------------- labels and extra state


async def test_extra_state_is_kept_with_the_task_and_its_forks(runner: Runner) -> None:
    extra = {"ticket": 7, "tags": ["a", None], "deep": {"x": 1.5}}
    task = await runner.create_task(calculator(), "?", extra_state=extra)
    runner._driver.cache.forget(task.task_id)
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


@pytest.mark.parametrize("where", [{"after_step": 0}, {"event": "tool_ended"}], ids=["each step", "an event"])
async def test_a_breakpoint_after_each_step_or_event_is_stepping_by_resume(
    runner: Runner, where: Any
) -> None:
    options = RunOptions(break_on=[Breakpoint(**where)])
    result = await runner.run(calculator(), "?", options=options)
    before = {"after_step": "step_completed", "event": "tool_ended"}[next(iter(where))]
    stops: list[str] = []
    while result.state == "paused":
        assert (await kinds(runner, result.task_id))[-2:] == [before, "pause_requested"]
        stops.append(result.state)
        result = await runner.resume(result.task_id)
    assert (len(stops), result.state, result.steps) == (2, "completed", 3)


async def test_a_breakpoint_may_be_set_for_a_task_that_goes_on(runner: Runner) -> None:
    task = await runner.create_task(calculator(), "?")
    await runner.run_step(task)
    options = RunOptions(break_on=[Breakpoint(before_tool="add")])
    result = await runner.resume(task, options=options)
    assert (result.state, result.steps) == ("paused", 1)
    result = await runner.resume(task, options=RunOptions(break_on=[]))
    assert result.state == "completed"
