"""The work whose cost is counted, and its counts: `python -m bench.counted HOW SUBJECT...`, each in its own process.

HOW is `bytecodes`, which prints a line of JSON with the counts; `instructions`, under callgrind, which
dumps its counters whenever `getppid` is called; or `none`, which only does the work. Several subjects are counted in
forks of one process that has imported Treadle; so an import is counted alone.

Two runs count the same: one thread does all the work. What a writer or an executor would do in a thread of its own is
done in the next turn of the event loop, so the groups of commits do not depend on timing. No tool sleeps.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import shutil
import sys
import tempfile
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import Empty
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple, NoReturn

WARMED_UP: Final = 2
"""Times that a long subject runs before it is counted."""

SHORT_WARMED_UP: Final = 20
"""Times that a short one does: the interpreter specializes code that runs often."""


class Counts(NamedTuple):
    """How often each function was entered or resumed, how often it called functions in C, and its bytecodes."""

    calls: Counter[CodeType]
    c_calls: Counter[CodeType]
    bytecodes: Counter[CodeType]


class Bytecodes:
    """Counts bytecodes and calls of all functions but those that find and load modules."""

    def __init__(self) -> None:
        self.counts = Counts(Counter(), Counter(), Counter())

    def begin(self) -> None:
        """Count from now on."""
        # Of three counters as local variables, since these two functions run hundreds of thousands of times.
        calls, c_calls, bytecodes = self.counts

        def in_frame(frame: FrameType, event: str, _: Any) -> Any:
            if event == "opcode":
                bytecodes[frame.f_code] += 1
            return in_frame

        def entered(frame: FrameType, *_: Any) -> Any:
            frame.f_trace_opcodes = True
            frame.f_trace_lines = False
            return in_frame

        def called(frame: FrameType, event: str, _: Any) -> None:
            if event == "call":
                calls[frame.f_code] += 1
            elif event == "c_call":
                c_calls[frame.f_code] += 1

        gc.collect()
        gc.disable()  # what it frees may call functions, at a moment that depends on what ran before
        sys.setprofile(called)
        sys.settrace(entered)

    def end(self) -> None:
        """Count no more."""
        sys.settrace(None)
        sys.setprofile(None)
        gc.enable()


class Instructions:
    """Has callgrind, started with `--dump-before=getppid`, write a file at the begin and at the end."""

    def begin(self) -> None:
        """End the file of what ran before."""
        gc.collect()
        gc.disable()  # one full collection more or less would be a tenth of some counts
        os.getppid()

    def end(self) -> None:
        """End the file that holds what is counted."""
        os.getppid()
        gc.enable()


class Nothing:
    """Counts nothing."""

    def begin(self) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""


Meter = Bytecodes | Instructions | Nothing


def figures(counts: Counts, runs: int) -> dict[str, Any]:
    """Return the counts of one run: in total, and by function."""
    functions: dict[str, list[float]] = {}
    for column, counter in enumerate(counts):
        for code, times in counter.items():
            if not code.co_filename.startswith("<frozen importlib"):
                functions.setdefault(name_of(code), [0.0, 0.0, 0.0])[column] += times / runs
    calls, c_calls, bytecodes = (sum(row[column] for row in functions.values()) for column in range(3))
    return {"calls": round(calls + c_calls), "bytecodes": round(bytecodes), "functions": functions}


def name_of(code: CodeType) -> str:
    """Return where a function is defined; the generated constructors and codecs of data classes have no file."""
    _, _, inside = code.co_filename.rpartition("/src/treadle/")
    file = inside or "/".join(code.co_filename.split("/")[-2:])
    # Generated functions have the same names: their first variables tell them apart.
    varied = f" {' '.join(code.co_varnames[:4])}" if file == "<string>" else ""
    return f"{file}:{code.co_qualname}{varied}"


# ------------------------------------------------------------------------------------------------ all in one thread


class InLoop:
    """Takes the place of the thread of a writer, and of its queue: writes in the next turn of the event loop."""

    def __init__(self, *, target: Any, **_: object) -> None:
        self._writer = target.__self__
        self._items: deque[Any] = deque()
        self._is_due = False

    def start(self) -> None:
        """Open the store."""
        self._writer._open()
        self._writer._queue = self
        self._writer.ready.set_result(None)

    def put(self, item: Any) -> None:
        """Queue an item; None is the last one."""
        self._items.append(item)
        if item is None:
            while self._writer._serve():
                pass
            self._writer._close_writer()
            self._writer.stopped.set_result(None)
        elif not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._write)

    def _write(self) -> None:
        self._is_due = False
        while self._items:
            self._writer._serve()

    def get(self, timeout: float | None = None) -> Any:
        """Return the first item."""
        return self.get_nowait()

    def get_nowait(self) -> Any:
        """Return the first item; raises `Empty`."""
        if not self._items:
            raise Empty
        return self._items.popleft()


class AtOnce(ThreadPoolExecutor):
    """An executor that has no threads: it calls a function when it is submitted."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call a function, and return the future that holds its result."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 (as executors do)
            future.set_exception(error)
        return future


# -------------------------------------------------------------------------------------------------------- subjects


class Subject(NamedTuple):
    """A piece of work: `prepared` returns what one run of it is, given a folder for its files."""

    runs: int
    prepared: Callable[[Path], Awaitable[Callable[[], Awaitable[None]]]]
    warmed_up: int = WARMED_UP


def _subjects() -> dict[str, Subject]:
    from bench import references, subjects
    from treadle import Agent, Breakpoint, Limits, Runner, RunOptions, tool
    from treadle.engine import time_slice
    from treadle.stores import writer_thread
    from treadle.stores.sqlite.store import SQLiteStore

    writer_thread.Thread = InLoop  # type: ignore[misc, assignment]
    time_slice.perf_counter = lambda: 0.0  # a slow machine pauses more often while it reads a journal

    def sqlite(file: Path) -> SQLiteStore:
        return SQLiteStore(file, lease_seconds=86_400)  # so that no heartbeat falls into a slow run

    @tool(read_only=True)
    async def nap(ms: int) -> int:
        """Let others run."""
        await asyncio.sleep(0)
        return ms

    def driving(agent: Agent, store_in: Callable[[Path], Any]) -> Any:
        async def prepared(folder: Path) -> Callable[[], Awaitable[None]]:
            runner = await Runner(store_in(folder)).__aenter__()
            return lambda: subjects.run(runner, agent)

        return prepared

    def in_memory(agent: Agent) -> Any:
        return driving(agent, lambda _: "memory:")

    def in_a_file(agent: Agent) -> Any:
        return driving(agent, lambda folder: sqlite(folder / "runs.db"))

    async def streaming(_: Path) -> Callable[[], Awaitable[None]]:
        agent = subjects.agent(subjects.Fake(1, words=1_000))
        runner = await Runner("memory:").__aenter__()

        async def work() -> None:
            seen = 0
            async with runner.run_stream(agent, references.QUESTION) as stream:
                async for event in stream:
                    seen += type(event).__name__ == "Delta"
            assert seen == 1_000, seen

        return work

    async def reopening(folder: Path) -> Callable[[], Awaitable[None]]:
        turns = 500
        agent = subjects.agent(subjects.Fake(turns + 1))
        async with Runner(sqlite(folder / "long.db")) as runner:
            pause = RunOptions(break_on=[Breakpoint(after_step=turns)])
            task = (await runner.run(agent, references.QUESTION, options=pause)).task_id
        copies = []
        for number in range(WARMED_UP + 1):
            copies.append(folder / f"{number}.db")
            shutil.copy(folder / "long.db", copies[-1])

        async def work() -> None:
            async with Runner(sqlite(copies.pop())) as runner:
                result = await runner.resume(task, agent=agent)
            assert (result.final_text, result.steps) == (references.ANSWER, turns + 1), result

        return work

    def turns(number: int) -> Agent:
        return subjects.agent(subjects.Fake(number))

    fan = Agent(subjects.Fake(2, fan=50), name="fan", tools=[nap], limits=Limits(steps=3))
    return {
        "four_turns_memory": Subject(5, in_memory(turns(4)), SHORT_WARMED_UP),
        "four_turns_sqlite": Subject(5, in_a_file(turns(4)), SHORT_WARMED_UP),
        "hundred_turns_memory": Subject(1, in_memory(turns(100))),
        "hundred_turns_sqlite": Subject(1, in_a_file(turns(100))),
        "fifty_tools": Subject(1, in_memory(fan), SHORT_WARMED_UP),
        "thousand_deltas": Subject(1, streaming),
        "reopen_500_steps": Subject(1, reopening),
    }


IMPORTS: Final = {
    "import": "import treadle",
    "import_agent": "from treadle import Agent, tool",
    "import_runner": "from treadle import Agent, Runner, tool",
}
"""The statements that are counted, each in a process of its own."""


def _import(meter: Meter, statement: str) -> None:
    # Modules that the interpreter or an editable install may or may not have loaded are loaded before.
    import importlib.metadata  # noqa: F401

    code = compile(statement, "<import>", "exec")
    meter.begin()
    exec(code, {})
    meter.end()


async def _count(subject: Subject, meter: Meter, folder: Path) -> None:
    work = await subject.prepared(folder)
    for _ in range(subject.warmed_up):
        await work()
    meter.begin()
    for _ in range(subject.runs):
        await work()
    meter.end()


def main(how: str, *names: str) -> None:
    """Count subjects, each in a process of its own, and print the counts of each as a line of JSON."""
    subjects = {} if IMPORTS.keys() & names else _subjects()
    for name in names[:-1]:
        child = os.fork()
        if child == 0:
            _print_counts(how, name, subjects)
        if os.waitpid(child, 0)[1] != 0:
            sys.exit(f"{name} could not be counted")
    _print_counts(how, names[-1], subjects)


def _print_counts(how: str, name: str, subjects: dict[str, Subject]) -> NoReturn:
    meters: dict[str, Callable[[], Meter]] = {
        "bytecodes": Bytecodes,
        "instructions": Instructions,
        "none": Nothing,
    }
    meter = meters[how]()
    if (statement := IMPORTS.get(name)) is not None:
        runs = 1
        _import(meter, statement)
    else:
        subject = subjects[name]
        runs = subject.runs
        loop = asyncio.new_event_loop()
        loop.set_default_executor(AtOnce())
        with tempfile.TemporaryDirectory(prefix="treadle-budget-") as folder:
            loop.run_until_complete(_count(subject, meter, Path(folder)))
    counted: dict[str, Any] = {"runs": runs}
    if isinstance(meter, Bytecodes):
        counted |= figures(meter.counts, runs)
        counted["modules"] = sum(module.split(".")[0] == "treadle" for module in sys.modules)
    print(json.dumps(counted))
    sys.stdout.flush()
    os._exit(0)  # runners are left open: what a process does at its end is not counted


if __name__ == "__main__":
    main(*sys.argv[1:])
