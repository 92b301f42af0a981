"""Journals that were changed and chained anew, imported or written into a store, and read by every verb.

    python -m tests.attack.mutated_imports --runs 5000 [--seed N] [--only SEED]

Each run takes the tasks of a recorded journal, or of a story in this module, changes one thing or several in one task,
and computes the digests again, so that only what the events say is wrong. What a verb then raises must be an error that
tells of damage, or of what the task's state forbids; other tasks stay as they are, byte by byte.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import logging
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.journals.stories import AGENTS
from treadle import Agent, NextStep, Runner, ScriptedModel, StepContext, StepResult, tool
from treadle.core import codec
from treadle.core.events import EVENTS
from treadle.core.journal import unfold
from treadle.core.messages import Message, Text
from treadle.errors import (
    ConfigurationError,
    StepFailed,
    StoreUnavailable,
    TaskParked,
    TreadleError,
)
from treadle.llm.scripted import call, fail, text, turn
from treadle.ports import JournalEnd, Record, TaskFilter, TaskRow, ThreadMember
from treadle.results.wire import wire_bytes
from treadle.transfer.export_format import FORMAT, ExportWriter
from treadle.transfer.rules import whole_thread

JOURNALS = Path(__file__).parents[1] / "journals"

# ----------------------------------------------------------------------------------- what is changed


@dataclass
class Journal:
    """A task's row and its own records: of each its epoch, its document and its large values."""

    row: TaskRow
    records: list[tuple[int, dict[str, Any], dict[str, bytes]]]

    @property
    def events(self) -> list[Any]:
        return [event for _, document, _ in self.records for event in document["e"]]


@dataclass
class Export:
    """Tasks that belong together, each after the task it was forked from, and their threads."""

    name: str
    journals: list[Journal]
    threads: list[tuple[str, int, list[ThreadMember]]] = field(default_factory=list[Any])


@tool(read_only=True)
async def weigh(thing: str) -> str:
    """Weigh a thing."""
    return f"{thing}: 3 kg"


async def _worker(ctx: StepContext[Any]) -> StepResult:
    if ctx.name == "start":
        await ctx.once("when", lambda: 7)
        return StepResult(next_steps=[NextStep("a"), NextStep("b"), NextStep("end", after=["a", "b"])])
    if ctx.name == "end":
        return StepResult((await ctx.call_model("Sum up.", key="sum")).message.text, is_last=True)
    return StepResult(await ctx.call_tool("weigh", {"thing": ctx.name}))


class Weighing:
    """A worker whose steps run beside each other."""

    def initialize_step(self, task: Any) -> NextStep:
        return NextStep("start")

    async def run_step(self, ctx: StepContext[Any]) -> StepResult:
        return await _worker(ctx)

    def finalize_task(self, task: Any, output: Any) -> Any:
        return output


WEIGHER = Agent(ScriptedModel(lambda _: text("6 kg")), name="weigher", worker=Weighing(), tools=[weigh])
RETRIED = Agent(
    ScriptedModel(
        [turn(calls=[call("weigh", thing="a"), call("weigh", thing="b")]), fail(429), text("done")]
    ),
    name="retried",
    tools=[weigh],
)
CHILD = Agent(ScriptedModel([call("weigh", thing="x"), text("x is 3 kg")]), name="child", tools=[weigh])
PARENT = Agent(
    ScriptedModel([call("child", input="weigh x"), text("3 kg")]), name="parent", subagents=[CHILD]
)
EVERYBODY = [*AGENTS, WEIGHER, RETRIED, CHILD, PARENT]


async def _weighed(runner: Runner) -> None:
    await runner.run(WEIGHER, "Weigh.", task_id="weighed")


async def _half_weighed(runner: Runner) -> None:
    await runner.create_task(WEIGHER, "Weigh.", task_id="half_weighed")
    await runner.run_step("half_weighed")
    await runner.run_step("half_weighed")


async def _asked_again(runner: Runner) -> None:
    await runner.run(RETRIED, "Go.", task_id="asked_again")


async def _with_a_child(runner: Runner) -> None:
    await runner.run(PARENT, "Go.", task_id="with_a_child")


async def _compacted(runner: Runner) -> None:
    conversation = [Message("user", (Text("hello"),)), Message("assistant", (Text("hi"),))]
    await runner.import_thread("talk", conversation)
    for number in range(2):
        await runner.run(AGENTS[0], "Go.", task_id=f"compacted-{number}", thread_id="talk")
    await runner.compact_thread("talk", keep=1, model=ScriptedModel(lambda _: text("They talked.")))
    await runner.run(AGENTS[0], "Go.", task_id="compacted", thread_id="talk")


async def _held(runner: Runner) -> None:
    await runner.create_task(RETRIED, "Go.", task_id="held")
    await runner.interrupt("held", reason="wait", by="ada")
    await runner.send("held", "and more", by="ada")
    await runner.pause("held")
    await runner.run_step("held")


STORIES = [_weighed, _half_weighed, _asked_again, _with_a_child, _compacted, _held]


async def _read(runner: Runner, name: str) -> Export:
    """Return all that lies in a store."""
    store = runner.store
    rows = {row.task_id: row for row in await store.rows(TaskFilter(limit=1_000))}
    threads: list[tuple[str, int, list[ThreadMember]]] = []
    for thread in sorted({row.thread_id for row in rows.values()}):
        history = await whole_thread(store, thread)
        if history.version:
            threads.append((thread, history.version, history.members))
        for member in history.members:
            rows.setdefault(member.task_id, await store.row(member.task_id, deleted=True))
    for row in list(rows.values()):
        while row.base is not None and row.base not in rows:
            row = await store.row(row.base, deleted=True)
            rows[row.task_id] = row
    ordered: dict[str, TaskRow] = {}
    while len(ordered) < len(rows):
        ordered |= {k: row for k, row in rows.items() if row.base is None or row.base in ordered}
    journals = []
    for row in ordered.values():
        records = await store.read(row.task_id, after=row.base_seq) if row.head > row.base_seq else []
        row.driver = None
        journals.append(Journal(row, [(r.epoch, json.loads(r.data), r.blobs) for r in records]))
    return Export(name, journals, threads)


async def corpus() -> list[Export]:
    """Return all recorded journals, and the journals of the stories in this module."""
    exports: list[Export] = []
    for file in sorted(JOURNALS.glob("*/*.jsonl")):
        async with Runner("memory:") as runner:
            await runner.import_tasks(file)
            exports.append(await _read(runner, f"{file.parent.name} {file.stem}"))
    for history in STORIES:
        async with Runner("memory:", agents=EVERYBODY) as runner:
            with suppress(StepFailed, TaskParked):  # what is left behind is what the story is about
                await history(runner)
            exports.append(await _read(runner, history.__name__))
    return exports


# -------------------------------------------------------------------------------------- how it is changed


def _deep(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


HOSTILE: list[Any] = [
    *[
        "text",
        "",
        " ",
        "s1",
        "s2",
        "s1-0",
        "s1-0-undo",
        "\ud800",
        "a\udfffb",
        "\0",
        "x" * 300,
        "NaN",
        "1e400",
    ],
    *[0, 1, 2, 3, 7, -1, -2, 255, 2**31, 2**53, 2**63 - 1, 2**63, -(2**63), 2**70, 10**30, -(10**30)],
    *[0.0, -0.0, 1.5, -1e308, 1e308, float("nan"), float("inf"), float("-inf"), True, False, None],
    *[[], [1], ["text"], [None], [[]], ["s1"], [{}], {}, {"a": 1}, {"text": "x"}, {"p": "call"}, {"p": 5}],
    *[{"$blob": "0" * 64}, {"$blob": 5}, {"input_tokens": "many"}, {"k": "step_started"}, {"limits": 5}],
    *[
        _deep(150),
        _deep(220),
        _deep(260),
        {"on_limit": "explode"},
        {"break_on": [1]},
        "all",
        "any",
        "ok",
        "read",
    ],
]

Slot = tuple[Any, Any]


def _slots(value: Any) -> Iterator[Slot]:
    """Yield every place in a document, as a container and a key."""
    keys: Any = (
        value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    for key in list(keys):
        yield value, key
        yield from _slots(value[key])


def _other(rng: random.Random, events: list[Any], slot: Slot) -> Any:
    """Return a value from elsewhere in the journal, of the same type or not."""
    values = [parent[key] for event in events for parent, key in _slots(event)]
    alike = [value for value in values if type(value) is type(slot[0][slot[1]])]
    return deepcopy(rng.choice(alike if alike and rng.random() < 0.8 else values))


def _change_value(rng: random.Random, journal: Journal, journals: list[Journal]) -> str:
    event = rng.choice(journal.events)
    parent, key = slot = rng.choice(list(_slots(event)))
    chance = rng.random()
    if chance < 0.15:
        parent.pop(key)
        return f"{event.get('k')}.{key} missing"
    value = deepcopy(rng.choice(HOSTILE)) if chance < 0.65 else _other(rng, journal.events, slot)
    if isinstance(parent[key], int) and chance > 0.9:
        value = parent[key] + rng.choice([-2, -1, 1, 2, 1000])
    parent[key] = value
    return f"{event.get('k')}.{key} = {value!r:.40}"


def _add_field(rng: random.Random, journal: Journal, journals: list[Journal]) -> str:
    event = rng.choice(journal.events)
    cls = EVENTS.get(event.get("k") if isinstance(event.get("k"), str) else "")
    names = [*(cls.__dataclass_fields__ if cls else ()), "extra", "__class__", "p", "$x"]
    name = rng.choice(names)
    event[name] = value = deepcopy(rng.choice(HOSTILE))
    return f"{event.get('k')} with {name} = {value!r:.40}"


def _place(rng: random.Random, journal: Journal) -> tuple[list[Any], int]:
    document = rng.choice([document for _, document, _ in journal.records if document["e"]])
    return document["e"], rng.randrange(len(document["e"]))


def _double(rng: random.Random, journal: Journal, journals: list[Journal]) -> str:
    events, index = _place(rng, journal)
    events.insert(index, deepcopy(events[index]))
    return f"{events[index].get('k')} doubled"


def _remove(rng: random.Random, journal: Journal, journals: list[Journal]) -> str:
    events, index = _place(rng, journal)
    return f"{events.pop(index).get('k')} removed"


def _move(rng: random.Random, journal: Journal, journals: list[Journal]) -> str:
    events, index = _place(rng, journal)
    event = events.pop(index)
    source_events, source_index = _place(rng, journal) if journal.events else (events, 0)
    source_events.insert(source_index, event)
    return f"{event.get('k')} moved"


def _insert(rng: random.Random, journal: Journal, journals: list[Journal]) -> str:
    events, index = _place(rng, journal)
    event = deepcopy(rng.choice(rng.choice([other for other in journals if other.events]).events))
    events.insert(index, event)
    return f"{event.get('k')} inserted"


def _rename(rng: random.Random, journal: Journal, journals: list[Journal]) -> str:
    event = rng.choice(journal.events)
    before, event["k"] = event.get("k"), rng.choice([*EVENTS, "os.system", 5, None, ["k"]])
    return f"{before} called {event['k']}"


def _retime(rng: random.Random, journal: Journal, journals: list[Journal]) -> str:
    if rng.random() < 0.5:
        _, document, _ = rng.choice(journal.records)
        document[name] = value = deepcopy(rng.choice(HOSTILE)) if (name := rng.choice(["t", "v", "b"])) else 0
        return f"record.{name} = {value!r:.40}"
    event = rng.choice(journal.events)
    event["d"] = value = deepcopy(rng.choice(HOSTILE))
    return f"{event.get('k')}.d = {value!r:.40}"


MUTATIONS = [*[_change_value] * 8, _add_field, _add_field, _double, _remove, _move, _insert, _rename, _retime]


def mutated(rng: random.Random, exports: list[Export]) -> tuple[Export, Journal, str]:
    """Return tasks, the one of them that was changed, and a description of the change."""
    journals = [journal for export in exports for journal in export.journals]
    while True:
        export = deepcopy(rng.choice(exports))
        journal = rng.choice(export.journals)
        if journal.events:
            break
    done: list[str] = []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        if not [event for event in journal.events if isinstance(event, dict)] or len(journal.events) < 1:
            break
        try:
            done.append(rng.choice(MUTATIONS)(rng, journal, journals))
        except (AttributeError, TypeError, IndexError):
            continue  # an earlier change left nothing there that this one could change
    return export, journal, f"{export.name}, task {journal.row.task_id}: {'; '.join(done)}"


def sealed(
    export: Export,
) -> tuple[list[tuple[TaskRow, list[Record], bytes]], list[tuple[str, int, list[Any]]]]:
    """Return rows and records whose chains fit, the digest that each fork begins with, and the threads."""
    tasks: dict[str, tuple[TaskRow, list[Record], bytes]] = {}
    moved: dict[str, int] = {}
    for journal in export.journals:
        row, base_digest = replace(journal.row), b""
        if row.base is not None:
            parent, records, base_digest = tasks[row.base]
            row.base_seq = min(row.base_seq, parent.head)
            holds = [record for record in records if record.seq >= row.base_seq]
            base_digest = holds[0].digest if holds and row.base_seq > parent.base_seq else base_digest
        seq, previous, sealed_records = row.base_seq, base_digest, list[Record]()
        if row.base is not None:
            previous = codec.branch_digest(previous, seq)
        for epoch, document, blobs in journal.records:
            if not document["e"]:
                continue
            data = json.dumps(document).encode()
            seq, previous = seq + len(document["e"]), codec.chain(previous, data)
            sealed_records.append(Record(seq, len(document["e"]), epoch, data, previous, blobs))
        moved[row.task_id] = seq - row.head
        row.head = seq
        row.mark = None if row.deleted else JournalEnd(seq, previous if sealed_records else base_digest)
        row.state = "interrupted" if row.state == "running" else row.state
        tasks[row.task_id] = row, sealed_records, base_digest
    threads = [
        (name, version, [replace(m, seq=max(1, m.seq + moved.get(m.task_id, 0))) for m in members])
        for name, version, members in export.threads
    ]
    return list(tasks.values()), threads


def write(path: Path, export: Export, changed: Journal, rng: random.Random) -> str:
    """Write an export as a file; sometimes its row is hostile too. Returns what was done to that."""
    tasks, threads = sealed(export)
    summary = ""
    with path.open("wb") as out:
        writer = ExportWriter(out)
        line, spoil = writer.line, rng.random() < 0.15

        def spoiled(document: dict[str, Any]) -> None:
            nonlocal spoil, summary
            if spoil and rng.random() < 0.3:
                spoil = False
                key = rng.choice([key for key in document if key != "check"])
                document = {**document, key: rng.choice([value for value in HOSTILE if value == value])}
                summary = f"; line of {next(iter(document))}: {key} = {document[key]!r:.40}"
            try:
                line(document)
            except ValueError:
                line({"nothing": 1})

        writer.line = spoiled  # type: ignore[method-assign]
        writer.line({"treadle_export": FORMAT, "made": 1})
        for row, records, base_digest in tasks:
            digest = records[-1].digest if records else base_digest
            writer.task(row, row.state, digest, base_digest)
            for record in records:
                writer.record(record)
            writer.end(row)
        for name, version, members in threads:
            writer.thread(name, version, members)
        writer.close()
    return summary


# ------------------------------------------------------------------------------------- what is asked of it

GOOD = Agent(ScriptedModel([call("weigh", thing="y"), text("fine")]), name="good", tools=[weigh])


async def _show(runner: Runner, task: str) -> None:
    from treadle.cli.screen import Screen
    from treadle.cli.timeline import Timeline
    from treadle.cli.views import undone_steps

    records = await runner.store.read(task)
    journal = [event for _, unfolded in unfold(task, records) for event in unfolded]
    snapshot, result = await runner.get_task(task), await runner.result(task)
    wire_bytes({"task": snapshot, "result": result, "events": journal})
    screen = Screen(json=True)
    screen.out.file = io.StringIO()
    timeline = Timeline(screen, undone=undone_steps(journal))
    for event in journal:
        timeline.show(event)


async def _events(runner: Runner, task: str) -> None:
    async for _ in runner.handle(task).events(deltas=False):
        pass


async def _export(runner: Runner, task: str) -> None:
    await runner.export_tasks(io.BytesIO(), task)


def verbs(task: str, thread: str) -> list[tuple[str, Callable[[Runner], Awaitable[Any]]]]:
    """Return every verb that reads a task, and then those that go on with it."""
    return [
        ("get_task", lambda r: r.get_task(task)),
        ("result", lambda r: r.result(task)),
        ("list_tasks", lambda r: r.list_tasks()),
        ("get_upcoming_steps", lambda r: r.get_upcoming_steps(task)),
        ("get_completed_steps", lambda r: r.get_completed_steps(task)),
        ("get_step", lambda r: r.get_step(task, 1)),
        ("get_artifact", lambda r: r.get_artifact(task, "nothing")),
        ("get_thread", lambda r: r.get_thread(thread)),
        ("list_threads", lambda r: r.list_threads()),
        ("events", lambda r: _events(r, task)),
        ("show", lambda r: _show(r, task)),
        ("verify task", lambda r: r.verify(task)),
        ("verify", lambda r: r.verify()),
        ("diff", lambda r: r.diff(task, "good")),
        ("diff the other way", lambda r: r.diff("good", task)),
        ("export", lambda r: _export(r, task)),
        ("fork", lambda r: r.fork(task)),
        ("fork early", lambda r: r.fork(task, at=2)),
        ("run in its thread", lambda r: r.run(GOOD, "go", thread_id=thread, task_id="late")),
        ("resume", lambda r: r.resume(task)),
        ("undo_step", lambda r: r.undo_step(task, force=True)),
        ("run_step", lambda r: r.run_step(task)),
        ("resume again", lambda r: r.resume(task)),
        ("cancel", lambda r: r.cancel(task)),
        ("result at last", lambda r: r.result(task)),
        ("delete", lambda r: r.delete_task(task)),
    ]


WRONG = (StoreUnavailable, ConfigurationError)
"""These tell of a store or a caller, not of a journal."""


@dataclass
class Found:
    """A verb that did not do as it should."""

    seed: int
    what: str
    verb: str
    error: BaseException | str

    def __str__(self) -> str:
        text_of_finding = (
            self.error if isinstance(self.error, str) else f"{type(self.error).__name__}: {self.error!s:.300}"
        )
        return f"seed {self.seed}: {self.verb}: {text_of_finding}\n    {self.what}"


async def _snapshot(runner: Runner) -> Any:
    """Return all that is stored of the tasks that nothing was done to."""
    records = [await runner.store.read(task) for task in ("good", "good too")]
    rows = [replace(await runner.store.row(task), driver=None) for task in ("good", "good too")]
    return records, rows, await runner.store.thread("good thread")


async def _put(runner: Runner, export: Export) -> None:
    tasks, threads = sealed(export)
    for row, records, _ in tasks:
        await runner.store.restore(row, records)
    for name, version, members in threads:
        await runner.store.restore_thread(name, version, members)


async def attack(
    seed: int, exports: list[Export], folder: Path, bound: float = 10.0
) -> tuple[list[Found], str]:
    """Make one case of a seed, and return what went wrong, and how the case went in."""
    rng = random.Random(seed)
    export, changed, change = mutated(rng, exports)
    store = folder / f"{seed}.db" if rng.random() < 0.1 else "memory:"
    by_file = rng.random() < 0.5
    findings: list[Found] = []
    task, thread = changed.row.task_id, changed.row.thread_id
    async with Runner(store, agents=[*EVERYBODY, GOOD]) as runner:
        await runner.run(GOOD, "go", task_id="good", thread_id="good thread")
        await runner.run(GOOD, "go", task_id="good too", thread_id="good thread")
        before = await _snapshot(runner)
        if by_file:
            file = folder / f"{seed}.jsonl"
            change += write(file, export, changed, rng)
            try:
                await runner.import_tasks(file)
            except TreadleError as error:
                if isinstance(error, WRONG):
                    findings.append(Found(seed, change, "import", error))
                rows = [row.task_id for row in await runner.store.rows(TaskFilter())]
                if sorted(rows) != ["good", "good too"]:
                    findings.append(
                        Found(seed, change, "import", f"refused, and left {rows} behind ({error})")
                    )
            except Exception as error:  # noqa: BLE001  this is what is looked for
                findings.append(Found(seed, change, "import", error))
            finally:
                file.unlink()
        else:
            await _put(runner, export)
        taken_in = bool([row for row in await runner.store.rows(TaskFilter()) if row.task_id == task])
        for name, verb in verbs(task, thread) if taken_in or not by_file else ():
            try:
                async with asyncio.timeout(bound):
                    await verb(runner)
            except TreadleError as error:
                if isinstance(error, WRONG):
                    findings.append(Found(seed, change, name, error))
            except TimeoutError:
                findings.append(Found(seed, change, name, f"no end within {bound} s"))
            except Exception as error:  # noqa: BLE001  this is what is looked for
                findings.append(Found(seed, change, name, error))
        if await _snapshot(runner) != before:
            findings.append(Found(seed, change, "all of them", "another task is not what it was"))
        report = await runner.verify("good")
        if report.findings:
            findings.append(Found(seed, change, "verify", f"another task is damaged: {report.findings}"))
    return findings, "refused" if by_file and not taken_in else "imported" if by_file else "in the store"


async def main(arguments: argparse.Namespace) -> int:
    """Attack so many times, tell what was found, and return how often."""
    began = time.monotonic()
    logging.getLogger("treadle").setLevel(logging.CRITICAL)  # it warns of each damaged turn
    exports = await corpus()
    seeds = arguments.only or range(arguments.seed, arguments.seed + arguments.runs)
    print(f"{len(exports)} exports; seeds {seeds[0]} to {seeds[-1]}", flush=True)
    outcomes, kinds, total = Counter[str](), Counter[str](), 0
    with tempfile.TemporaryDirectory() as folder:
        for number, seed in enumerate(seeds, 1):
            findings, outcome = await attack(seed, exports, Path(folder))
            outcomes[outcome] += 1
            total += bool(findings)
            for finding in findings:
                error = finding.error
                frames = traceback.extract_tb(error.__traceback__) if isinstance(error, BaseException) else []
                where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
                kind = f"{finding.verb}: {type(error).__name__} {where}"
                kinds[kind] += 1
                if kinds[kind] <= 2:
                    print(finding, where, flush=True)
                if arguments.only and isinstance(error, BaseException):
                    traceback.print_exception(error)
            if number % 500 == 0:
                print(f"{number} runs, {total} wrong, {dict(outcomes)}", flush=True)
    for kind, times in kinds.most_common():
        print(f"{times:5} {kind}")
    print(f"{len(seeds)} runs, {total} wrong, {dict(outcomes)}, {time.monotonic() - began:.0f} s")
    return 1 if total else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, nargs="*", help="these seeds alone, with the traces of errors")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(_arguments())))
