"""`treadle demo`: a task whose process kills itself, goes on in another, is undone and forked, with evidence.

`Demo.play` is the story. Each part of it looks at the task's journal, the tools' log and the scratch folder for the
work that is left, so the demonstration can be killed at any instant and go on with `--resume`.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import sys
import textwrap
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from rich.prompt import Confirm
from rich.table import Table
from rich.text import Text

from treadle import Happened, NotHappened, Runner, RunOptions, RunResult, Task, ToolCall
from treadle.cli import demo_agent, demo_evidence
from treadle.cli.agents import DEMO, available_model
from treadle.cli.command import CODES, command_line, store_at
from treadle.cli.demo_evidence import Claim, DemoTask
from treadle.cli.screen import STYLES, Screen, short, styled
from treadle.cli.timeline import Timeline
from treadle.cli.views import value_text
from treadle.core import events as e
from treadle.errors import ConfigurationError, TreadleError
from treadle.llm.default_layers import resolve
from treadle.results.tasks import TaskSummary
from treadle.testing.audit import JournalOf, journal_of
from treadle.testing.ledger import Ledger

WIDTH: Final = 80

SCRIPTED: Final = """\
The model is SCRIPTED: no key is needed, its text is fixed. All else is real:
the processes, the files, the tools, the SIGKILL and the journal."""

REAL: Final = "The model is {model}; all else is real, also the SIGKILL."

LOOK_FURTHER: Final = (
    ("show {task} --web", "the task in your browser, with a slider over its time"),
    ("show {task}", "the task, step by step"),
    ("diff {task} {fork}", "where the fork went another way"),
    ("fork {task}", "another path from here; it says how to run it"),
    ("resume {task}", "do again what was undone"),
    ("tasks", "all tasks"),
)


def play(*, resume: bool = False, store: str | None = None, model: str | None = None) -> int:
    """Show a task survive a crash, be undone and forked; return the exit code, 0 if every claim held.

    Args:
        resume: go on with the newest demonstration that was not brought to its end here.
        store: path or URL of the journal; by default TREADLE_STORE, else `.treadle/journal.db`.
        model: `provider:model` to use a real model instead of the script.
    """
    screen = DemoScreen()
    again = command_line("demo", "--resume", store=store)
    try:
        if model is None and not resume and screen.out.is_terminal and sys.stdin.isatty():
            at_hand = available_model()
            if at_hand and Confirm.ask(
                f"Use {at_hand}? It may cost money", console=screen.out, default=False
            ):
                model = at_hand
        if model is not None:
            resolve(model)
        return asyncio.run(_play(screen, resume, store, model))
    except KeyboardInterrupt:
        screen.whole_line(f"\nInterrupted. What was shown is durable; go on with:\n  {again}")
        return CODES["interrupted"]
    except ConfigurationError:
        raise
    except TreadleError as error:
        screen.note(f"{error}\nGo on with: {again}")
        return 1


async def _play(screen: DemoScreen, resume: bool, store: str | None, model: str | None) -> int:
    async with Runner(store_at(screen, store)) as runner:
        if not runner.store.url.startswith("sqlite:"):
            raise ConfigurationError(
                "the demonstration needs a store that outlives a process: give a file's path"
            )
        task = await _unfinished(runner) if resume else None
        if task is not None:
            return await Demo(screen, runner, task, store).play("Treadle demo, taken up again")
        if resume:
            screen.line("There is no demonstration to go on with here, so a new one starts.")
        folder = demo_agent.new_folder()
        _lock(folder)
        options = RunOptions(labels={"folder": folder.name} | ({"model": model} if model else {}))
        wish = demo_agent.CLOSE.format(folder=folder.name)
        task = await runner.create_task(demo_agent.demo_agent(model), wish, options=options)
        return await Demo(screen, runner, task, store).play("Treadle demo")


async def _unfinished(runner: Runner) -> TaskSummary | None:
    """Lock and return the newest demonstration that was not brought to its end here, and that no process plays."""
    for task in (await runner.list_tasks(agent=DEMO)).items:
        folder = demo_agent.FOLDERS / task.labels.get("folder", "?")
        is_open = task.forked_from is None and task.state != "cancelled" and _is_unfinished(folder)
        if is_open and _lock(folder):
            return task
    return None


def _is_unfinished(folder: Path) -> bool:
    """Tell whether a folder holds a demonstration that was not brought to its end."""
    try:
        lines = Ledger(folder / demo_agent.LOG).entries()
    except TypeError:
        return False  # an older version wrote its log
    return folder.is_dir() and all(line.tool != demo_agent.VERIFIED for line in lines)


def _lock(folder: Path) -> bool:
    """Lock a demonstration until this process ends; return False if another process has the lock."""
    try:
        fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class DemoScreen(Screen):
    """Prints the story within 80 columns, slowly for a person, at once for a pipe."""

    def __init__(self) -> None:
        super().__init__(json=False)
        self._pause = 0.1 if self.out.is_terminal else 0.0
        if not self.out.is_terminal:
            self.out.width = WIDTH
        self.timeline = Timeline(self)

    def line(self, *parts: str | tuple[str, str]) -> None:
        """Print a line, cut to the width of the story."""
        self.out.print(styled(parts), soft_wrap=False, no_wrap=True, overflow="ellipsis", width=WIDTH)
        time.sleep(self._pause)  # no task of this process waits

    def whole_line(self, *parts: str | tuple[str, str]) -> None:
        """Print a line that a person may copy: however long, it is neither cut nor wrapped."""
        self.out.print(styled(parts))
        time.sleep(self._pause)

    def part(self, title: str) -> None:
        """Begin a part of the story."""
        self.out.print()
        self.out.rule(Text(title, style="bold"), align="left", style="dim")

    def claims(self, claims: Iterable[Claim]) -> bool:
        """Print claims with whether they hold, and return whether all do."""
        holds = True
        for claim, problems in claims:
            verdict = ("BROKEN", "bold red") if problems else ("holds ", "green")
            text = textwrap.fill("; ".join([claim, *problems]), WIDTH - 10, subsequent_indent=" " * 10)
            self.line("  ", verdict, "  ", text)
            holds = holds and not problems
        return holds

    def calls(self, task: DemoTask) -> None:
        """Print the figures of log and journal for each call of a task, side by side."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2), header_style="dim")
        for name in ("call", "tool", "starts (log)", "ends (journal)", "in process"):
            table.add_column(name, justify="right" if name.endswith(")") else "left")
        for call in task.calls.values():
            starts, ends, pids = task.starts[call.id], len(task.ends[call.id]), task.pids(call.id)
            table.add_row(call.id, call.name, str(starts), str(ends), " ".join(map(str, pids)))
        self.out.print(table)

    def event(self, event: e.Event) -> None:
        """Print an event as every command does; those that the story is about say more."""
        match event:
            case e.ToolStopped(reason="crash"):
                self.line(
                    ("  ? ", "yellow"), f"{event.call} began, and has no end in the journal. Did it happen?"
                )
            case e.OutcomeSettled():
                verdict = {"happened": "it happened; not started again"}.get(
                    event.verdict, "it did not happen"
                )
                self.line(("  ! ", "yellow"), f"{event.by}= looked: {verdict}")
            case e.StepCompleted():
                self.line(("  step completed, durable", "dim"))
            case e.TaskEnded():
                error = f": {event.error.message}" if event.error is not None else ""
                self.line(("● ", STYLES[event.state]), f"{event.state}{error}")
            case _:
                self.timeline.show(event)


class Demo:
    """A demonstration: its task, its folder, and its story."""

    def __init__(
        self, screen: DemoScreen, runner: Runner, task: Task | TaskSummary, store: str | None
    ) -> None:
        self.screen, self.runner, self.task_id, self.store = screen, runner, task.task_id, store
        self.folder = demo_agent.FOLDERS / task.labels["folder"]
        self.log = Ledger(self.folder / demo_agent.LOG)
        self.model = task.labels.get("model")
        self.agent = demo_agent.demo_agent(self.model)
        self.last_shown = 0
        """the last event on the screen"""

    async def play(self, title: str) -> int:
        """Play the parts of the story that are left and return the exit code."""
        screen = self.screen
        screen.line((title, "bold"))
        screen.whole_line(REAL.format(model=self.model) if self.model else SCRIPTED)
        screen.whole_line((f"  files    {self.folder}", "dim"))
        screen.whole_line((f"  journal  {self.runner.store.url.removeprefix('sqlite:///')}", "dim"))
        screen.whole_line((f"  task     {self.task_id}", "dim"))

        await self.finish(self.task_id, "1  A process works, dies, and another goes on")

        task = await self._evidence(self.task_id)
        once, crash = demo_evidence.nothing_twice(task), demo_evidence.the_crash(task)
        books, chain = demo_evidence.the_books(task), demo_evidence.the_chain(task)
        screen.part(f"2  What the journal and the tools' own {demo_agent.LOG} say")
        screen.calls(task)
        holds = screen.claims([*once, crash, books, chain])

        undo = await self.undo()
        task = await self._evidence(self.task_id)
        screen.part(f"3  Undo: all after step {undo.to} is taken back, though the task had ended")
        screen.line(f"  steps {', '.join(undo.steps)}; the journal keeps them, the files do not:")
        holds &= screen.claims(demo_evidence.the_undo(task))

        fork = await self.fork()
        title = f"4  A fork {fork.task_id[-8:]} takes another path after event {fork.forked_at}"
        await self.finish(fork.task_id, title)
        other = await self._evidence(fork.task_id, task.journal)
        difference = await self.runner.diff(self.task_id, fork.task_id)
        screen.line((f"  first difference: step {difference.index}, {difference.field}", "bold"))
        for name, value in (("task", difference.value_a), ("fork", difference.value_b)):
            screen.line(f"    {name}  {short(value_text(value), WIDTH - 11) or 'nothing'}")
        holds &= screen.claims([*demo_evidence.the_fork(task, other), demo_evidence.the_books(task, other)])

        screen.part("Look further" if holds else "A claim did not hold")
        if not holds:
            screen.whole_line((f"See {self.log.path} and the journal.", "bold red"))
        elif _is_unfinished(self.folder):
            self.log.note(demo_agent.VERIFIED, task=self.task_id)
        for command, meaning in LOOK_FURTHER:
            arguments = command.format(task=self.task_id, fork=fork.task_id).split()
            screen.whole_line(f"  {command_line(*arguments, store=self.store)}")
            screen.line((f"      {meaning}", "dim"))
        return 0 if holds else 1

    async def _journal(self, task_id: str) -> JournalOf:
        """Return the journal of a task; raises `JournalCorrupt` if its chain is broken."""
        return await journal_of(self.runner.store, await self.runner.store.row(task_id))

    async def _evidence(self, task_id: str, parent: JournalOf | None = None) -> DemoTask:
        return DemoTask(await self._journal(task_id), self.folder, parent)

    # -------------------------------------------------------------------------- driven to its end

    async def finish(self, task_id: str, title: str) -> None:
        """Have one process after the other drive a task to its end, and show the events of its journal."""
        task, events = await self.runner.get_task(task_id), (await self._journal(task_id)).events
        if _has_ended(task) or (not task.driven and _first(events, e.UndoRequested)):
            return
        self.screen.part(title)
        self.screen.timeline.learn_calls(events)
        self.last_shown = (task.forked_at or 0) if task.state == "created" else task.head
        while True:
            status = await self._one_process(task_id)
            result = await self.runner.result(task_id)
            if _has_ended(result):
                return
            if status not in (0, -signal.SIGKILL):
                raise TreadleError(f"task {task_id} is {result}")

    async def _one_process(self, task_id: str) -> int:
        """Show the events of a task while a new process drives it, and how that one died; return its exit status."""
        options = (self.runner.store.url, task_id, self.model or "")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", demo_agent.__name__, *options), stdin=asyncio.subprocess.DEVNULL
        )
        self.screen.line((f"process {process.pid} drives the task", "cyan"))
        try:
            while process.returncode is None:
                await self._show_events(task_id)
                await asyncio.sleep(0.05)
        finally:
            if process.returncode is None:
                process.kill()
            status = await process.wait()
        await self._show_events(task_id)
        if status == -signal.SIGKILL:
            self._show_death(process.pid)
        return status

    async def _show_events(self, task_id: str) -> None:
        """Show the task's new events until no process drives it."""
        async for event in self.runner.handle(task_id).events(after=self.last_shown, deltas=False):
            if isinstance(event, e.Event):
                self.last_shown = event.seq
                self.screen.event(event)

    def _show_death(self, pid: int) -> None:
        self.screen.line((f"process {pid} is dead: exit status {-signal.SIGKILL}, SIGKILL", "bold red"))
        for note in self.log.entries():
            if (note.tool, note.pid) == (demo_agent.KILLED, pid):
                call, _, file = note.text.partition(": ")
                self.screen.line((f"  it died inside {note.call} {call}: {file} was written already,", "red"))
                self.screen.line(("  the end of the call was not recorded yet", "red"))

    # ------------------------------------------------------------------------------ undone, forked

    async def undo(self) -> e.UndoRequested:
        """Take back the last step that wrote something, with all that followed; also one begun before a crash."""
        while True:
            events = (await self._journal(self.task_id)).events
            requested = _first(events, e.UndoRequested)
            if requested is not None and _first(events, e.Rewound):
                return requested
            keep = requested.to if requested is not None else _writing_steps(events)[-1].index - 1
            undo = await self.runner.undo_step(self.task_id, to=keep, agent=self.agent, by="treadle demo")
            if not undo.complete:
                await self._settle()

    async def _settle(self) -> None:
        """Settle each compensation that a crash cut off by the state of the files."""
        result = await self.runner.result(self.task_id)
        cut_off = [pending for pending in result.pending if pending.kind == "settlement"]
        if not cut_off:
            raise TreadleError(f"task {self.task_id} cannot be undone: {result}")
        for pending in cut_off:
            call, key = ToolCall(pending.request_id, pending.tool, pending.arguments), pending.idempotency_key
            verdict = Happened() if demo_agent.took_effect(call, key or "", undo=True) else NotHappened()
            await self.runner.settle(self.task_id, pending.request_id, verdict, by="treadle demo")

    async def fork(self) -> Task:
        """Fork the task before its first step that wrote something, with another wish; the same fork after a crash."""
        forks = (await self.runner.list_tasks(forked_from=self.task_id)).items
        if forks:
            return await self.runner.get_task(forks[-1].task_id)
        first = _writing_steps((await self._journal(self.task_id)).events)[0]
        wish = demo_agent.INSTEAD.format(folder=self.folder.name)
        return await self.runner.fork(self.task_id, at=first.seq - 1, input=wish)


EventT = TypeVar("EventT", bound=e.Event)


def _first(events: Sequence[e.Event], kind: type[EventT]) -> EventT | None:
    return next((event for event in events if isinstance(event, kind)), None)


def _has_ended(task: Task | RunResult) -> bool:
    return task.state in ("completed", "degraded", "cancelled") and not task.driven


def _writing_steps(events: Sequence[e.Event]) -> list[e.StepStarted]:
    """Return the steps that began a writing call; the last step if there is none."""
    steps = [event for event in events if isinstance(event, e.StepStarted)]
    begun = [event for event in events if isinstance(event, e.ToolStarted) and event.effect == "write"]
    writing = {event.step for event in begun if event.undoes is None}
    return [step for step in steps if step.step in writing] or steps[-1:]
