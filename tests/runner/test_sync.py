"""Streams, handles and pages without asyncio; tests/verbs/test_every_face.py has the verbs."""

import inspect

import pytest

from tests.cast import adder
from treadle import Agent, Runner, ScriptedModel
from treadle.errors import StepNotFound, TaskUnfinished
from treadle.llm.scripted import text


def test_every_verb_of_the_runner_has_one_of_the_same_name_and_arguments() -> None:
    runner = Runner("memory:")
    verbs = {
        name
        for name, member in inspect.getmembers(type(runner))
        if not name.startswith("_") and (callable(member) or hasattr(member, "__get__"))
    }
    others = {"store", "aclose", "run_sync", "abandoned", "observers", "middleware_of", "log_filter"}
    missing = [name for name in verbs - others if not hasattr(runner.sync, name)]
    assert missing == []
    for name in verbs - others - {"handle"}:
        theirs = inspect.signature(getattr(type(runner), name)).parameters
        ours = inspect.signature(getattr(type(runner.sync), name)).parameters
        assert list(ours) == list(theirs), name


def test_streams_and_handles_without_asyncio() -> None:
    slow = Agent(ScriptedModel([text("later", delay=30)]), name="slow")
    with Runner("memory:").sync as sync:
        with sync.run_stream(adder(), "1 + 2?") as stream:
            seen = [event.kind for event in stream]
        assert stream.result.final_text == "3"
        assert seen[0] == "task_created"
        assert seen[-1] == "task_ended"
        handle = sync.start(adder(), "1 + 2?")
        assert handle.result().final_text == "3"
        assert sync.interrupt(sync.start(slow, "go").task_id).state == "interrupted"


def test_a_plain_for_goes_over_all_pages_without_asyncio() -> None:
    with Runner("memory:").sync as sync:
        task = sync.create_task(adder(), "1 + 2?", thread_id="t")
        sync.run_step(task)
        forks = [sync.fork(task).task_id for _ in range(3)]
        page = sync.list_tasks(limit=2)
        assert len(page.items) == 2
        assert len(list(page)) == 4
        for lineage in (sync.get_lineage(task, limit=1), sync.handle(task).get_lineage(limit=2)):
            assert [each.task_id for each in lineage.forks] == forks[::-1]


def test_a_stream_without_its_block_says_in_sync_words_how_to_open_it() -> None:
    with Runner("memory:").sync as sync:
        task = sync.create_task(adder(), "1 + 2?")
        run, step = sync.run_stream(adder(), "1 + 2?"), sync.stream_step(task)
        reads = [lambda: list(run), lambda: list(run.partials()), lambda: run.result]
        for read in [*reads, lambda: list(step), lambda: step.output]:
            with pytest.raises(TaskUnfinished, match="is not open: write `with ") as told:
                read()
            assert "async" not in str(told.value)


def test_a_streamed_step_is_named_without_asyncio() -> None:
    with Runner("memory:").sync as sync:
        task = sync.create_task(adder(), "1 + 2?")
        with pytest.raises(StepNotFound, match="s2"), sync.stream_step(task, step="s2") as stream:
            list(stream)
        with sync.stream_step(task, step="s1") as stream:
            list(stream)
        assert stream.output.step.step_id == "s1"
