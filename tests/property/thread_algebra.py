"""Random lives of a thread: `python -m tests.property.thread_algebra [--runs N] [--seed N] [--store KIND] [--jobs N]`.

Each run makes up to three turns of one thread and up to two forks, and creates, runs, steps, undoes, resumes,
finalizes, forks and deletes them in any order, through two runners with caches of their own; it deletes whole threads
and prunes. What the thread and its tasks say must be what a model of lists says, by both runners, after a restart, and
in an empty store that imports an export of all. `verify` finds nothing, and once all tasks are deleted nothing is left,
in either store. Prints the seed of each run that differs, and ends with 1 if there is one.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from tests.property.thread_model import Refused, Said, ThreadModel, reply
from tests.runner.acts import roles_and_texts
from treadle import Agent, Runner, ScriptedModel, tool
from treadle.errors import AlreadyFinalized, StepNotFound, TaskFinished, TaskNotFound, TaskUnfinished
from treadle.llm.scripted import call
from treadle.stores.memory import MemoryStore
from treadle.testing.postgres import PostgresServer

REFUSALS = (AlreadyFinalized, StepNotFound, TaskFinished, TaskUnfinished)
VERBS = (
    "create",
    "run",
    "step",
    "step",
    "undo",
    "undo",
    "undo",
    "resume",
    "resume",
    "finalize",
    "delete",
    "withdraw",
    "fork",
    "fork",
    "delete_thread",
    "prune",
)
OPERATIONS = 24
"""How many operations a run has at most."""


@tool(read_only=True)
async def look() -> str:
    """Look."""
    return "seen"


def answer(request: Any) -> Any:
    seen = roles_and_texts(request.messages)
    return reply(seen)[1] if seen[-1][0] == "tool" else call("look")


AGENT = Agent(ScriptedModel(answer), name="echo", tools=[look])


async def shown(runner: Runner) -> Any:
    """All that a store shows of its tasks and threads."""
    tasks: list[Any] = []
    for item in (await runner.list_tasks(limit=100)).items:
        task = await runner.get_task(item.task_id)
        tasks.append((task.task_id, task.thread_id, task.state, task.head, task.forked_from, task.forked_at))
    threads = [(item.thread_id, item.turns) for item in (await runner.list_threads(limit=100)).items]
    texts = [roles_and_texts(await runner.get_thread(thread)) for thread, _ in threads]
    return tasks, threads, texts


class Different(AssertionError):
    """What is there is not what the model says."""


class CrashChild:
    """One run: a model, and two runners on one store.

    Args:
        seed: names the run.
        opened: returns a new runner on the store.
        imported: returns a new runner on an empty store, for what the first one exports.
    """

    def __init__(self, seed: int, opened: Callable[[], Runner], imported: Callable[[], Runner]) -> None:
        self.dice = random.Random(seed)
        self.opened = opened
        self.imported = imported
        self.model = ThreadModel()
        self.name = f"r{seed}"
        self.talk = f"{self.name}-talk"
        self.made: list[str] = []
        self.log: list[str] = []
        self.done: Counter[str] = Counter()

    async def live(self) -> None:
        async with self.opened() as first, self.opened() as other:
            for _ in range(self.dice.randrange(OPERATIONS // 2, OPERATIONS + 1)):
                await self.operate(self.dice.choice((first, other)))
                await self.compare_thread(self.talk, self.dice.choice((first, other)))
            for runner in (first, other):
                await self.compare(runner)
        async with self.opened() as runner:
            await self.compare(runner)
            await self.verify(runner)
            async with self.imported() as other:
                await self.carry(runner, other)
                await self.delete_all(other)
            await self.delete_all(runner)

    async def verify(self, runner: Runner) -> None:
        findings = (await runner.verify()).findings
        self.expect("findings", [str(finding) for finding in findings], [])

    async def carry(self, runner: Runner, other: Runner) -> None:
        """Export all to an empty store: both show the same."""
        with tempfile.TemporaryDirectory(prefix="treadle-export-") as folder:
            await runner.export_tasks(Path(folder) / "all.jsonl")
            self.log.append("export and import")
            await other.import_tasks(Path(folder) / "all.jsonl")
        self.expect("what an import shows", await shown(other), await shown(runner))
        await self.compare(other)
        await self.verify(other)

    # ------------------------------------------------------------------------------------- operations

    async def operate(self, runner: Runner) -> None:
        verb = self.dice.choice(VERBS)
        names = list(self.model.turns)
        if verb in ("delete_thread", "prune"):
            if self.dice.random() < 0.4:
                await (self.delete_thread if verb == "delete_thread" else self.prune)(runner)
            return
        if verb in ("create", "run") or not names:
            if len(self.made) < 5 and sum(not turn.root for turn in self.model.turns.values()) < 3:
                await self.create(runner, run=verb == "run")
            return
        name = self.dice.choice(names)
        if verb == "fork":
            if sum(bool(turn.root) for turn in self.model.turns.values()) < 2:
                await self.fork(runner, name)
            return
        verbs: dict[str, Callable[[], Awaitable[Any]]] = {
            "step": lambda: runner.run_step(name),
            "undo": lambda: runner.undo_step(name),
            "resume": lambda: runner.resume(name),
            "finalize": lambda: runner.finalize(name),
            "delete": lambda: runner.delete_task(name),
        }
        # What others began with is at stake where a turn is taken out, and then deleted.
        for operation in ("undo", "delete") if verb == "withdraw" else (verb,):
            await self.both(
                f"{operation} {name}", partial(getattr(self.model, operation), name), verbs[operation]
            )

    async def create(self, runner: Runner, *, run: bool) -> None:
        name, text = self.new_name("turn"), f"words {len(self.made)}"
        await self.both(
            f"create {name}",
            lambda: self.model.create(name, self.talk, text),
            lambda: runner.create_task(AGENT, text, task_id=name, thread_id=self.talk),
        )
        if run:
            await self.both(
                f"run {name}",
                lambda: self.model.resume(name),
                lambda: runner.run(AGENT, text, task_id=name, thread_id=self.talk),
            )

    async def fork(self, runner: Runner, name: str) -> None:
        fork, text = self.new_name("fork"), self.dice.choice([None, f"and {len(self.made)}"])
        thread = self.dice.choice([self.model.turns[name].thread, f"{fork}-thread"])
        # The last steps are the task's own; a fork has those that it shares before them.
        steps = len(self.model.turns[name].steps)
        kept = self.dice.randint(1, steps) if steps else 0
        real = [output.step.step_id for output in await runner.get_completed_steps(name)]
        at = real[len(real) - steps + kept - 1] if steps else None
        task = await runner.fork(name, input=text, thread_id=thread, at=at)
        self.log.append(f"fork {name} at {at} -> {task.task_id} in {thread} with {text!r}")
        self.made[-1] = task.task_id
        self.done["fork"] += 1
        self.model.fork(name, task.task_id, thread, text, kept)

    async def delete_thread(self, runner: Runner) -> None:
        thread = self.dice.choice(sorted({self.talk, *[turn.thread for turn in self.model.turns.values()]}))
        if await runner.get_thread(thread) or thread in {turn.thread for turn in self.model.turns.values()}:
            await runner.delete_thread(thread)
            self.log.append(f"delete_thread {thread}")
            self.done["delete_thread"] += 1
            self.model.delete_thread(thread)

    async def prune(self, runner: Runner) -> None:
        old = self.model.old_tasks()
        while (tasks := set((await runner.prune(0, dry_run=True)).tasks)) < old:
            pass  # the last event is from this very microsecond
        self.expect("the tasks that prune takes", tasks, old)
        await runner.prune(0)
        self.log.append(f"prune {', '.join(sorted(old))}")
        self.done["prune"] += 1
        self.model.prune()

    def new_name(self, kind: str) -> str:
        self.made.append(f"{self.name}-{kind}-{len(self.made)}")
        return self.made[-1]

    async def both(
        self, name: str, in_model: Callable[[], None], in_store: Callable[[], Awaitable[Any]]
    ) -> None:
        """Do something in the model and for real: both do it, or both refuse."""
        refused = None
        try:
            in_model()
        except Refused:
            refused = True
        try:
            await in_store()
        except REFUSALS as error:
            self.log.append(f"{name}: {type(error).__name__}")
            self.expect(name, "refused", "refused" if refused else "done")
        else:
            self.log.append(name)
            self.done[name.split(maxsplit=1)[0]] += 1
            self.expect(name, "done", "refused" if refused else "done")

    # ------------------------------------------------------------------------------------- comparison

    async def compare(self, runner: Runner) -> None:
        for thread in {self.talk, *self.model.threads}:
            await self.compare_thread(thread, runner)
        for name, turn in self.model.turns.items():
            state = (await runner._driver.cache.load(name)).state
            begins = turn.conversation if turn.began or turn.root else turn.made[0]
            self.expect(f"the conversation of {name}", roles_and_texts(state.messages), begins)

    async def compare_thread(self, thread: str, runner: Runner) -> None:
        history = roles_and_texts(await runner.get_thread(thread))
        if not history and all(turn.thread != thread for turn in self.model.turns.values()):
            self.model.threads.pop(thread, None)  # no task is in it any more, and no fork needs it
        self.expect(f"thread {thread}", history, self.model.words(thread))

    async def delete_all(self, runner: Runner) -> None:
        """Delete the tasks that are left, in any order, and then the threads: nothing of them stays."""
        names = list(self.model.turns)
        self.dice.shuffle(names)
        for name in names:
            await runner.delete_task(name)
            self.log.append(f"delete {name}")
        for thread, said in list(self.model.threads.items()):
            await self.compare_thread(thread, runner)
            if said:
                await runner.delete_thread(thread)
                self.log.append(f"delete thread {thread}")
        for name in self.made:
            try:
                records = await runner.store.read(name)
            except TaskNotFound:
                continue
            self.expect(f"the records of {name}", records, [])
        remaining = [item.thread_id for item in (await runner.list_threads()).items]
        self.expect("threads", remaining, [])

    def expect(self, label: str, actual: list[Said] | object, expected: list[Said] | object) -> None:
        if actual != expected:
            raise Different(f"{label}:\n    is        {actual}\n    should be {expected}")


# ------------------------------------------------------------------------------------------- many runs


class Ground:
    """Where runs happen: a store of one kind, used by many runs one after the other."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.failed = 0
        self.server = PostgresServer() if kind == "postgresql" else None
        self.folder = tempfile.TemporaryDirectory(prefix="treadle-threads-")

    def __enter__(self) -> Ground:
        if self.server is not None:
            self.server.__enter__()
        return self

    def __exit__(self, *why: Any) -> None:
        if self.server is not None:
            self.server.__exit__(*why)
        self.folder.cleanup()

    def run(self, seed: int) -> tuple[str | None, Counter[str]]:
        """Return what was different in one run, and how often each verb was carried out."""
        store, other = self.store("threads"), self.store("imported")
        child = CrashChild(seed, lambda: Runner(store, agents=[AGENT]), lambda: Runner(other, agents=[AGENT]))
        try:
            asyncio.run(child.live())
        except Exception as error:  # noqa: BLE001  (reported with the verbs that led to it)
            self.failed += 1
            return "\n  ".join([*child.log, f"{type(error).__name__}: {error}"]), child.done
        return None, child.done

    def store(self, name: str) -> Any:
        """Return where the next run happens: another place after a run that failed, since it left its tasks behind."""
        if self.kind == "memory":
            return MemoryStore()
        if self.server is not None:
            return self.server.in_schema(f"{name}{self.failed}")
        return Path(self.folder.name) / f"{name}{self.failed}.db"


def several(kind: str, seeds: range) -> list[tuple[int, str | None, Counter[str]]]:
    """Run some seeds."""
    with Ground(kind) as ground:
        return [(seed, *ground.run(seed)) for seed in seeds]


def main() -> int:
    parser = ArgumentParser(prog="python -m tests.property.thread_algebra")
    parser.add_argument("--runs", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=None, help="the first seed")
    parser.add_argument("--store", choices=["memory", "sqlite", "postgresql"], default="memory")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    arguments = parser.parse_args()
    first = random.randrange(2**31) if arguments.seed is None else arguments.seed
    print(f"{arguments.store}: seeds {first} to {first + arguments.runs - 1}", flush=True)
    began, done, different = time.monotonic(), Counter[str](), 0
    parts = [
        range(at, min(at + 50, first + arguments.runs)) for at in range(first, first + arguments.runs, 50)
    ]
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for result in pool.map(several, [arguments.store] * len(parts), parts):
            for seed, difference, verbs in result:
                done.update(verbs)
                if difference is not None:
                    different += 1
                    print(f"--seed {seed} --runs 1 --store {arguments.store}\n  {difference}", flush=True)
    print(", ".join([f"{count} {verb}" for verb, count in sorted(done.items())]))
    print(f"{arguments.runs} runs in {time.monotonic() - began:.0f} s, {different} different")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
