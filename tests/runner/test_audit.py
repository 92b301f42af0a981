"""The log `treadle.audit`: what leaves no journal is logged, with the name of the caller."""

import logging

import pytest

from tests.cast import sayer
from tests.runner.acts import only
from treadle import Runner
from treadle.errors import TaskFinished

pytestmark = pytest.mark.anyio


async def test_what_is_deleted_is_logged_with_who_deleted_it(
    runner: Runner, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "treadle.audit")
    agent = sayer()
    await runner.run(agent, "Hi", task_id="t", thread_id="one")
    await runner.delete_task("t", by="ada")
    await runner.run(agent, "Hi", thread_id="two")
    await runner.run(agent, "Hi", thread_id="two")
    await runner.delete_thread("two", by="bob")
    await runner.run(agent, "Hi", thread_id="three")
    await runner.prune(0, by="eve")
    await runner.run(agent, "Hi", task_id="u")
    await runner.delete_task("u")
    told = [
        (each.verb, each.task_id, each.thread_id, each.tasks, each.by, each.tenant)  # type: ignore[attr-defined]
        for each in caplog.records
        if each.name == "treadle.audit"
    ]
    assert told == [
        ("delete_task", "t", None, 1, "ada", ""),
        ("delete_thread", None, "two", 2, "bob", ""),
        ("delete_thread", None, "three", 1, "eve", ""),
        ("delete_task", "u", None, 1, None, ""),
    ]
    texts = [each.getMessage() for each in caplog.records if each.name == "treadle.audit"]
    assert texts[0] == "delete_task: task t, by ada"
    assert texts[-1] == "delete_task: task u, by a caller without by="


async def test_a_deletion_that_was_refused_or_only_tried_is_not_logged(
    runner: Runner, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "treadle.audit")
    done = await runner.run(sayer(), "Hi")
    await runner.prune(0, dry_run=True, by="ada")
    with pytest.raises(LookupError):
        await runner.delete_task("nothing", by="ada")
    with pytest.raises(TaskFinished):
        await runner.run_step(done.task_id)
    assert [each for each in caplog.records if each.name == "treadle.audit"] == []


async def test_a_scoped_runner_names_its_principal_in_the_audit_log(
    runner: Runner, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "treadle.audit")
    scoped = runner.scoped(by="ada")
    done = await scoped.run(sayer(), "Hi")
    (created,) = await only(runner, done.task_id, "task_created")
    await scoped.delete_task(done.task_id)
    deleted = [each for each in caplog.records if each.name == "treadle.audit"]
    assert (created.by, [each.by for each in deleted]) == ("ada", ["ada"])  # type: ignore[attr-defined]
