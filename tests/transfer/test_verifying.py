"""`verify` finds damage in a journal, and rows and threads that contradict it."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.cast import calculator, sayer
from treadle import Agent, Message, Runner, ScriptedModel, ToolCall, tool
from treadle.core import events as e
from treadle.drivers.continuing import commit as committed
from treadle.engine.journal_writer import encode_record
from treadle.errors import ForkPointBusy, JournalCorrupt
from treadle.llm.scripted import call, text
from treadle.ports import Commit
from treadle.stores.memory import MemoryStore
from treadle.stores.sqlite import SQLiteStore
from treadle.testing.conformance.owner import Owner
from treadle.transfer import verifying
from treadle.transfer.verifying import pages, size_of

pytestmark = pytest.mark.anyio


@tool(read_only=True)
def page(length: int) -> str:
    """Return a long text."""
    return "word " * length


AGENT = Agent(ScriptedModel([call("page", length=4_000), text("done")]), name="reader", tools=[page])


@pytest.fixture
async def store(tmp_path: Path) -> Path:
    """Two turns of a thread, a fork, and a task that nothing is wrong with."""
    path = tmp_path / "journal.db"
    async with Runner(path) as runner:
        await runner.run(AGENT, "go", task_id="one", thread_id="talk")
        await runner.run(AGENT, "on", task_id="two", thread_id="talk")
        await runner.run(AGENT, "go", task_id="well")
        fork = await runner.fork("two", at="s1")
        assert (await runner.verify()).findings == ()
    rename(path, fork.task_id)
    return path


def rename(path: Path, task_id: str) -> None:
    """Give the fork a name that tests know."""
    sql(path, "UPDATE tasks SET key = 'fork' WHERE key = ?", task_id)


def sql(path: Path, statement: str, *values: Any) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(statement, values)
    connection.close()


RECORD = (
    "(SELECT pos FROM records WHERE task = (SELECT id FROM tasks WHERE key = '{0}') ORDER BY seq {1} LIMIT 1)"
)
DAMAGE: dict[str, tuple[str, str, str]] = {
    "a row of another agent": ("UPDATE tasks SET agent = 'someone' WHERE key = 'two'", "row", "agent"),
    "a row of another state": ("UPDATE tasks SET state = 'paused' WHERE key = 'two'", "row", "state"),
    "a row of another thread": ("UPDATE tasks SET thread = 'other' WHERE key = 'two'", "row", "thread"),
    "an end in the thread that its journal does not have": (
        "UPDATE members SET seq = 99 WHERE version = 2",
        "thread",
        "at event 99",
    ),
    "an epoch that its row does not know": (
        "UPDATE tasks SET epoch = 0 WHERE key = 'two'",
        "journal",
        "epoch",
    ),
    "a place in the thread that is gone": ("DELETE FROM members WHERE version = 2", "thread", "version 2"),
    "a mark of another record": (
        "UPDATE tasks SET mark_digest = x'00' WHERE key = 'two'",
        "journal",
        "was replaced",
    ),
    "a missing tail": (
        f"DELETE FROM records WHERE pos = {RECORD.format('two', 'DESC')}",
        "journal",
        "missing",
    ),
    "a missing beginning": (f"DELETE FROM records WHERE pos = {RECORD.format('two', 'ASC')}", "journal", ""),
    "an epoch is not chained, but a record's place is": (
        f"UPDATE records SET count = count + 1 WHERE pos = {RECORD.format('two', 'DESC')}",
        "journal",
        "",
    ),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("damage", DAMAGE)
async def test_damage_is_found_and_named_and_harms_no_other_task(store: Path, damage: str) -> None:
    statement, problem, fault = DAMAGE[damage]
    sql(store, statement)
    async with Runner(store) as runner:
        report = await runner.verify()
        findings = [finding for finding in report.findings if finding.task_id == "two"]
        assert {finding.problem for finding in findings} == {problem}
        assert any(fault in finding.text for finding in findings)
        assert {task.task_id for task in report.tasks} == {"one", "two", "well", "fork"}
        assert {"one", "well"}.isdisjoint(finding.task_id for finding in report.findings)


async def test_a_changed_record_is_found_wherever_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    pages = Agent(
        ScriptedModel([*[call("page", length=n) for n in range(12)], text("done")]),
        name="reader",
        tools=[page],
    )
    async with Runner(path) as runner:
        task = await runner.create_task(pages, "go", task_id="long")
        for _ in range(13):
            await runner.run_step(task)
        records = await runner.store.read("long")
        assert len(records) > 20
        for record in records:
            # Changed as valid JSON: only the digest shows it.
            forged = record.data.replace(b'"t":1', b'"t":2')
            sql(path, "UPDATE records SET data = ? WHERE seq = ?", forged, record.seq)
            [finding] = (await runner.verify("long")).findings
            assert (finding.problem, finding.seq) == ("journal", record.seq), "wherever a page begins"
            sql(path, "UPDATE records SET data = ? WHERE seq = ?", record.data, record.seq)
        assert (await runner.verify("long")).findings == ()


async def test_a_changed_or_missing_large_value_is_found(store: Path) -> None:
    sql(store, "UPDATE blobs SET data = CAST(replace(CAST(data AS TEXT), 'word word', 'ward word') AS BLOB)")
    async with Runner(store) as runner:
        report = await runner.verify()
        # The value is stored once: every task that refers to it has lost it, and each is named.
        assert {finding.task_id for finding in report.findings} == {"one", "two", "fork", "well"}
        assert all("was changed" in finding.text for finding in report.findings)
    sql(store, "PRAGMA foreign_keys = off")
    sql(
        store,
        "DELETE FROM blob_refs WHERE record IN (SELECT pos FROM records r JOIN tasks t ON t.id = r.task "
        "WHERE t.key = 'well')",
    )
    async with Runner(store) as runner:
        [finding] = (await runner.verify("well")).findings
        assert "large value" in finding.text


async def test_verify_checks_the_messages_of_deleted_tasks_in_a_thread(store: Path) -> None:
    async with Runner(store) as runner:
        await runner.delete_task("one")
        assert "one" in {task.task_id for task in (await runner.verify()).tasks}
        assert (await runner.verify()).findings == ()
    sql(store, f"UPDATE records SET data = x'00' WHERE pos = {RECORD.format('one', 'ASC')}")
    async with Runner(store) as runner:
        findings = {finding.task_id: finding.text for finding in (await runner.verify()).findings}
        assert findings.keys() == {"one", "two", "fork"}, "and those that began with what it said"
        for task in ("two", "fork"):
            assert findings[task].startswith("it began with messages of task one")


async def written(path: Path, event: e.Event, tag: str | None = None) -> None:
    """Write an event behind the task `well`, with a chain that fits."""
    store = SQLiteStore(path)
    await store.open()
    claim = await store.claim("well")
    event.seq = claim.head + 1
    event.time = 2_000_000_000_000_000
    record = encode_record([event], claim.epoch, claim.digest)
    commit = Commit("well", claim.epoch, record, release=True, format=event.format)
    await committed(store, commit)
    await store.close()


async def test_an_event_of_an_unknown_kind_is_counted_and_is_no_damage(store: Path) -> None:
    await written(store, e.UnknownEvent("weather_changed", {"to": "rain"}))
    async with Runner(store) as runner:
        [task] = (await runner.verify("well")).tasks
        assert (task.unknown, task.findings) == (1, ())
        assert (await runner.result("well")).state == "completed"


async def test_an_event_that_makes_no_sense_where_it_stands_is_found_and_is_a_typed_error(
    store: Path,
) -> None:
    await written(store, e.StepCompleted("s9"))
    async with Runner(store, agents=[AGENT]) as runner:
        [finding] = (await runner.verify("well")).findings
        assert finding.problem == "order"
        for verb in (runner.result, runner.resume):
            with pytest.raises(JournalCorrupt) as raised:
                await verb("well")
            assert raised.value.task_id == "well"


async def test_a_long_journal_is_read_some_megabytes_at_a_time() -> None:
    store = MemoryStore()
    owner = await Owner.create(store, "long")
    for number in range(20):
        await owner.write(1, b"{}", {f"blob {number}": bytes(1_000_000)})
    for _ in range(1_000):
        await owner.write()
    findings = [page async for page in pages(store, "long", upto=owner.seq)]
    assert [record for page in findings for record in page] == await store.read("long")
    assert max(map(size_of, findings)) <= 8_100_000
    assert len(findings) < 20


async def test_a_conversation_that_no_provider_would_take_is_found(store: Path) -> None:
    async with Runner(store) as runner:
        owned = await runner._driver.ownership.claim("fork")
        owned.writer.record(e.MessagesImported((Message("assistant", (ToolCall("x", "page", {}),)),)))
        await owned.writer.commit_alone(None, "running")
        runner._driver.owned.remove(owned)
        findings = (await runner.verify()).findings
        assert {(finding.task_id, finding.problem) for finding in findings} == {("fork", "conversation")}
        assert any("no results for ['x']" in finding.text for finding in findings)


async def test_every_task_is_verified_however_many_there_are(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifying, "_ROWS", 2)
    sql(store, "UPDATE tasks SET agent = 'someone' WHERE key = 'fork'")
    async with Runner(store) as runner:
        report = await runner.verify()
        assert [task.task_id for task in report.tasks] == ["fork", "well", "two", "one"]
        assert [finding.task_id for finding in report.findings] == ["fork"]
        with pytest.raises(JournalCorrupt, match="someone") as raised:
            report.raise_for_findings()
        assert raised.value.task_id == "fork"
        (await runner.verify("one")).raise_for_findings()


async def test_a_fork_at_any_event_is_whole(runner: Runner) -> None:
    agent = calculator(call("add", a=1, b=2), call("add", a=3, b=4), "10")
    task = (await runner.run(agent, "Sum up")).task_id
    for at in range(1, (await runner.get_task(task)).head + 1):
        with suppress(ForkPointBusy):
            fork = await runner.fork(task, at=at, input="And now?")
            assert (await runner.verify(fork)).findings == ()
            await runner.pause(fork)
            assert (await runner.verify(fork)).findings == ()


async def test_a_deleted_task_of_a_thread_does_not_miss_an_undone_one_that_it_began_with(
    runner: Runner,
) -> None:
    agent = sayer("Good.", "Good again.")
    for task in ("first", "second"):
        await runner.run(agent, "Hello", task_id=task, thread_id="walk")
    for task in ("second", "first"):
        await runner.undo_step(task)
    await runner.delete_task("first")
    await runner.resume("second", agent=agent)
    assert (await runner.verify()).findings == ()
    await runner.delete_task("second")
    assert (await runner.verify()).findings == ()
