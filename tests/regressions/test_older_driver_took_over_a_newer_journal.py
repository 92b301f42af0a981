"""In a rolling deploy an older driver took over a task with an event that it did not know, and made requests."""

import asyncio
import io
import json
import sys
from pathlib import Path

import pytest

from tests.forked import completed
from tests.regressions.next_version import TASK, agent, parent
from treadle import Runner, errors
from treadle.core import events as e
from treadle.drivers.adoption import Adopter
from treadle.drivers.continuing import commit
from treadle.engine.journal_writer import encode_record
from treadle.ports import Commit, InboxItem

pytestmark = pytest.mark.anyio


KNOWS = getattr(e, "JOURNAL_FORMAT", 1)
EACH = ["sqlite", "postgresql"]


@pytest.fixture
def store(request, tmp_path):
    if request.param == "postgresql":
        return request.getfixturevalue("postgres").in_schema(f"newer_{tmp_path.name[-20:].strip('_')}")
    return str(tmp_path / "journal.db")


async def next_version(mode: str, store: str, folder: Path) -> str:
    command = [sys.executable, "-m", "tests.regressions.next_version", mode, store, str(folder)]
    done = await asyncio.to_thread(completed, command, check=True)
    return done.stdout.strip()


def paid(folder: Path) -> int:
    ledger = folder / "ledger.jsonl"
    lines = ledger.read_text().splitlines() if ledger.exists() else []
    return sum(json.loads(line)["kind"] == "start" for line in lines)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("store", EACH, indirect=True)
async def test_an_older_version_leaves_tasks_of_a_newer_format_alone(store, tmp_path):
    await next_version("leave", store, tmp_path)
    adoptions, told = [], asyncio.Event()

    def tell(adoption):
        adoptions.append(adoption)
        told.set()

    async with Runner(store, agents=[agent(tmp_path)]) as runner:
        adopter = Adopter(runner._drivers, tell=tell)
        await asyncio.wait_for(told.wait(), 20)
        await adopter.stop()
        assert paid(tmp_path) == 0, "the older driver went on over an approval it knows nothing of"
        assert [(adoption.kind, adoption.task_id) for adoption in adoptions] == [("too_new", TASK)]

        for verb in (runner.resume, runner.run_step, runner.undo_step, runner.fork):
            with pytest.raises(
                errors.TaskTooNew, match=f"format {KNOWS + 1}; this version knows format {KNOWS}"
            ) as refused:
                await verb(TASK)
            assert (refused.value.task_id, refused.value.needs, refused.value.knows) == (
                TASK,
                KNOWS + 1,
                KNOWS,
            )
        with pytest.raises(errors.TaskTooNew, match="The send is in the task's inbox"):
            await runner.send(TASK, "Is it paid?")
        assert paid(tmp_path) == 0

        assert (await runner.get_task(TASK)).state == "interrupted"
        assert [event.kind async for event in runner.handle(TASK).events(deltas=False)][-1] == "unknown_event"
        assert (await runner.verify()).findings == ()
        await runner.export_tasks(tmp_path / "export.jsonl", TASK)
        async with Runner("memory:", agents=[agent(tmp_path)]) as other:
            await other.import_tasks(tmp_path / "export.jsonl")
            with pytest.raises(errors.TaskTooNew, match="The cancel is in the task's inbox"):
                await other.cancel(TASK)
            with pytest.raises(errors.TaskTooNew):
                await other.resume(TASK)
            second_export = io.BytesIO()
            await other.export_tasks(second_export, TASK)
            assert f'"format":{KNOWS + 1}'.encode() in second_export.getvalue()

    assert await next_version("drive", store, tmp_path) == "completed All paid."
    assert paid(tmp_path) == 1


@pytest.mark.parametrize("store", EACH, indirect=True)
@pytest.mark.full
async def test_a_parent_is_left_alone_while_a_child_of_it_needs_a_newer_version(store, tmp_path):
    await next_version("leave_child", store, tmp_path)
    async with Runner(store, agents=[parent(tmp_path)]) as runner:
        row = await runner.store.row(TASK)
        assert row.format <= KNOWS, "its own journal holds nothing new"
        with pytest.raises(errors.TaskTooNew, match="its child, task"):
            await runner.resume(TASK)
        assert (await runner.store.row(TASK)).format == KNOWS + 1, "who finds it out says so for all"
        assert paid(tmp_path) == 0
    assert await next_version("drive", store, tmp_path) == "completed Bought."
    assert paid(tmp_path) == 1


async def test_a_row_without_the_mark_gets_it_from_the_first_driver_that_finds_an_unknown_event(tmp_path):
    async with Runner(tmp_path / "journal.db", agents=[agent(tmp_path)]) as runner:
        await runner.create_task(agent(tmp_path), "Pay.", task_id=TASK)
        claim = await runner.store.claim(TASK)
        event = e.UnknownEvent("approval_asked", {"call": "s1-0"})
        event.seq, event.time = claim.head + 1, 4_000_000_000_000_000
        record = encode_record([event], claim.epoch, claim.digest)
        await commit(runner.store, Commit(TASK, claim.epoch, record, release=True))
        await runner.store.post(TASK, InboxItem("i", "send", {}, 1))
        assert ["format" in finding.text for finding in (await runner.verify(TASK)).findings] == [True]
        for why in ("event 2 is of the kind 'approval_asked'", f"needs journal format {KNOWS + 1}"):
            with pytest.raises(errors.TaskTooNew, match=why):
                await runner.resume(TASK)
            row = await runner.store.row(TASK)
            assert (row.driver, row.format, row.epoch) == (None, KNOWS + 1, 3), (
                "it is given back, with its mail unread"
            )
        assert paid(tmp_path) == 0
        assert (await runner.verify(TASK)).findings == ()
