"""`treadle demo`: a task whose process kills itself, goes on in another, is undone and forked, with evidence.

Where a demonstration stands is read from its task's journal, the tools' log and the scratch folder alone, so that it
can be killed at any instant and go on with `--resume`.
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

from treadle import Happened, NotHappened, Runner, RunOptions, Task, ToolCall
from treadle.cli import demo_agent, demo_evidence
from treadle.cli.agents import DEMO, available_model
from treadle.cli.command import CODES, command_line, store_at
from treadle.cli.demo_evidence import Claim, DemoTask
from treadle.cli.screen import STYLES, Screen, short, styled
from treadle.cli.timeline import Timeline
from treadle.cli.views import value_text
from treadle.core import events as e
from treadle.core.events import Event
from treadle.errors import ConfigurationError, TreadleError
from treadle.llm.default_layers import resolve
from treadle.results.tasks import TaskSummary
from treadle.testing.audit import JournalOf, journal_of
from treadle.testing.ledger import Ledger

PROCESSES: Final = 12
"""How many processes one run of the demonstration starts at most for a task."""

WIDTH: Final = 80


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
        if model is None and not resume:
            model = _offered_model(screen)
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


def _offered_model(screen: DemoScreen) -> str | None:
    """Return a model that is at hand, if a person at the terminal wants it."""
    model = available_model() if screen.out.is_terminal and sys.stdin.isatty() else None
    if model and Confirm.ask(f"Use {model}? It may cost money", console=screen.out, default=False):
        return model
    return None


async def _play(screen: DemoScreen, resume: bool, store: str | None, model: str | None) -> int:
    async with Runner(store_at(screen, store)) as runner:
        if not runner.store.url.startswith("sqlite:"):
            raise ConfigurationError(
                "the demonstration needs a store that outlives a process: give a file's path"
            )
        for task in (await runner.list_tasks(agent=DEMO)).items if resume else ():
            folder = demo_agent.FOLDERS / task.labels.get("folder", "?")
            is_open = task.forked_from is None and task.state != "cancelled" and _is_unfinished(folder)
            if is_open and _lock(folder):
                return await Demo(screen, runner, task, store).play(again=True)
        if resume:
            screen.line("There is no demonstration to go on with here, so a new one starts.")
        folder = demo_agent.new_folder()
        _lock(folder)
        labels = {"folder": folder.name, **({"model": model} if model is not None else {})}
        wish = demo_agent.CLOSE.format(folder=folder.name)
        agent, options = demo_agent.demo_agent(model), RunOptions(labels=labels)
        task = await runner.create_task(agent, wish, options=options)
        return await Demo(screen, runner, task, store).play(again=False)


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
    """Prints the story within 80 columns, slowly for a person, at once for a pipe.

    It sleeps without leaving the event loop: while a person reads, this process has nothing else to do.
    """

    def __init__(self) -> None:
        super().__init__(json=False)
        self.pace = 0.28 if self.out.is_terminal else 0.0
        if not self.out.is_terminal:
            self.out.width = WIDTH
        self.timeline = Timeline(self)

    def line(self, *parts: str | tuple[str, str]) -> None:
        """Print a line, cut to the width of the story."""
        self.out.print(styled(parts), soft_wrap=False, no_wrap=True, overflow="ellipsis", width=WIDTH)
        time.sleep(self.pace * 0.3)

    def whole_line(self, *parts: str | tuple[str, str]) -> None:
        """Print a line that a person may copy: however long, it is neither cut nor wrapped."""
        self.out.print(styled(parts))
        time.sleep(self.pace * 0.3)

    def part(self, title: str) -> None:
        """Begin a part of the story."""
        self.out.print()
        self.out.rule(Text(title, style="bold"), align="left", style="dim")
        time.sleep(self.pace)

    def claims(self, claims: Iterable[Claim]) -> bool:
        """Print claims with whether they hold, and return whether all do."""
        claims = [*claims]
        for claim, problems in claims:
            verdict = ("BROKEN", "bold red") if problems else ("holds ", "green")
            text = textwrap.fill("; ".join([claim, *problems]), WIDTH - 10, subsequent_indent=" " * 10)
            self.line("  ", verdict, "  ", text)
        return not any(problems for _, problems in claims)

    def calls(self, task: DemoTask) -> None:
        """Print what log and journal say of each call of a task, side by side."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2), header_style="dim")
        for name in ("call", "tool", "starts (log)", "ends (journal)", "in process"):
            table.add_column(name, justify="right" if name.endswith(")") else "left")
        for call in task.calls.values():
            pids = " ".join(map(str, task.pids(call.id)))
            table.add_row(call.id, call.name, str(task.starts[call.id]), str(task.ends[call.id]), pids)
        self.out.print(table)

    def event(self, event: Event) -> None:
        """Print an event as every command does; those that the story is about say more."""
        match event:
            case e.ToolStopped(reason="crash"):
                asked = f"{event.call} began, and has no end in the journal. Did it happen?"
                self.line(("  ? ", "yellow"), asked)
            case e.OutcomeSettled():
                happened = event.verdict == "happened"
                verdict = "it happened; not started again" if happened else "it did not happen"
                self.line(("  ! ", "yellow"), f"{event.by}= looked: {verdict}")
            case e.StepCompleted():
                self.line(("  step completed, durable", "dim"))
            case e.TaskEnded():
                error = f": {event.error.message}" if event.error is not None else ""
                self.line(("● ", STYLES[event.state]), f"{event.state}{error}")
            case _:
                self.timeline.show(event)


class Demo:
    """One demonstration: its task, its folder, and what is still to be done of the story."""

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

    async def play(self, *, again: bool) -> int:
        """Play what is left of the story and return the exit code."""
        line, whole_line = self.screen.line, self.screen.whole_line
        line((f"Treadle demo{', taken up again' if again else ''}", "bold"))
        if self.model is None:
            line("The model is SCRIPTED: no key is needed, its text is fixed. All else is real:")
            line("the processes, the files, the tools, the SIGKILL and the journal.")
        else:
            whole_line(f"The model is {self.model}; all else is real, also the SIGKILL.")
        line((f"  files    {self.folder}", "dim"))
        whole_line((f"  journal  {self.runner.store.url.removeprefix('sqlite:///')}", "dim"))
        line((f"  task     {self.task_id}", "dim"))
        await self.finish(self.task_id, "1  A process works, dies, and another goes on")
        holds = await self._show_evidence()
        await self.undo()
        holds &= await self._show_undo()
        fork = await self.fork()
        title = f"4  A fork {fork.task_id[-8:]} takes another path after event {fork.forked_at}"
        await self.finish(fork.task_id, title)
        holds &= await self._show_fork(fork)
        self._close(fork, holds)
        return 0 if holds else 1

    async def _journal(self, task_id: str) -> JournalOf:
        """Return the journal of a task; raises `JournalCorrupt` if its chain is broken."""
        return await journal_of(self.runner.store, await self.runner.store.row(task_id))

    async def _evidence(self, task_id: str, parent: JournalOf | None = None) -> DemoTask:
        return DemoTask(await self._journal(task_id), self.folder, parent)

    # -------------------------------------------------------------------------- driven to its end

    async def finish(self, task_id: str, title: str) -> None:
        """Have one process after the other drive a task to its end, and show the events of its journal."""
        task = await self.runner.get_task(task_id)
        events = (await self._journal(task_id)).events
        if _has_ended(task) or (not task.driven and _first(events, e.UndoRequested)):
            return
        self.screen.part(title)
        self.screen.timeline.learn_calls(events)
        self.last_shown = (task.forked_at or 0) if task.state == "created" else task.head
        for _ in range(PROCESSES):
            await self._one_process(task_id)
            task = await self.runner.get_task(task_id)
            if _has_ended(task):
                return
            if task.state in ("failed", "waiting", "paused"):
                break
        result = await self.runner.result(task_id)
        why = result.error.message if result.error else "; ".join(wait.text for wait in result.pending)
        raise TreadleError(f"task {task_id} is {task.state}: {why or 'it made no progress'}")

    async def _one_process(self, task_id: str) -> None:
        """Start a process that drives the task, show what it gets done, and how it ended."""
        was_killed = any(line.tool == demo_agent.KILLED for line in self.log.entries())
        context = "" if was_killed or task_id != self.task_id else demo_agent.SABOTAGE
        options = (self.runner.store.url, task_id, str(self.screen.pace), self.model or "", context)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "treadle.cli.demo_agent", *options), stdin=asyncio.subprocess.DEVNULL
        )
        self.screen.line((f"process {process.pid} drives the task", "cyan"))
        try:
            while process.returncode is None:
                await self._show_events(task_id)
                await asyncio.sleep(0.05)
            await self._show_events(task_id)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode == -signal.SIGKILL:
            await self._show_death(process.pid)
        elif process.returncode != 0:
            self.screen.line((f"process {process.pid} ended with status {process.returncode}", "red"))

    async def _show_events(self, task_id: str) -> None:
        """Show the task's new events until no process drives it."""
        async for event in self.runner.handle(task_id).events(after=self.last_shown, deltas=False):
            if isinstance(event, Event):
                self.last_shown = event.seq
                self.screen.event(event)

    async def _show_death(self, pid: int) -> None:
        self.screen.line((f"process {pid} is dead: exit status {-signal.SIGKILL}, SIGKILL", "bold red"))
        tools = demo_evidence.calls_of((await self._journal(self.task_id)).events)
        for note in self.log.entries():
            if note.tool == demo_agent.KILLED and note.pid == pid:
                call = f"{note.call} {tools[note.call].name}"
                self.screen.line((f"  it died inside {call}: {note.text} was written already,", "red"))
                self.screen.line(("  the end of the call was not recorded yet", "red"))

    async def _show_evidence(self) -> bool:
        task = await self._evidence(self.task_id)
        self.screen.part(f"2  What the journal and the tools' own {demo_agent.LOG} say")
        self.screen.calls(task)
        chain = demo_evidence.the_chain(task, await self.runner.verify(self.task_id))
        crash, books = demo_evidence.the_crash(task), demo_evidence.the_books(task)
        return self.screen.claims([*demo_evidence.nothing_twice(task), crash, books, chain])

    # ------------------------------------------------------------------------------ undone, forked

    async def undo(self) -> None:
        """Take back the last step that wrote something, with all that followed; also one begun before a crash."""
        events = (await self._journal(self.task_id)).events
        if _first(events, e.Rewound):
            return
        requested = _first(events, e.UndoRequested)
        keep = requested.to if requested is not None else _writing_steps(events)[-1].index - 1
        problem = None
        for _ in range(PROCESSES):
            report = await self.runner.undo_step(self.task_id, to=keep, agent=self.agent, by="treadle demo")
            if report.complete:
                return
            problem = report.problem
            await self._settle()
            if _first((await self._journal(self.task_id)).events, e.Rewound):
                return  # the undo waited for nothing but what was settled
        raise TreadleError(f"task {self.task_id}: the undo did not come to its end: {problem}")

    async def _settle(self) -> None:
        """Settle each compensation that a crash cut off by what the files say."""
        for pending in (await self.runner.result(self.task_id)).pending:
            if pending.kind == "settlement":
                assert pending.idempotency_key is not None, "a settlement is about a call"
                call = ToolCall(pending.request_id, pending.tool, pending.arguments)
                is_undone = demo_agent.is_undone(call, pending.idempotency_key)
                verdict = Happened() if is_undone else NotHappened()
                await self.runner.settle(self.task_id, pending.request_id, verdict, by="treadle demo")

    async def _show_undo(self) -> bool:
        task = await self._evidence(self.task_id)
        requested = _first(task.events, e.UndoRequested)
        assert requested is not None, "the undo is done"
        self.screen.part(f"3  Undo: all after step {requested.to} is taken back, though the task had ended")
        self.screen.line(f"  steps {', '.join(requested.steps)}; the journal keeps them, the files do not:")
        return self.screen.claims(demo_evidence.the_undo(task))

    async def fork(self) -> Task:
        """Fork the task before its first step that wrote something, with another wish; the same fork after a crash."""
        forks = (await self.runner.list_tasks(forked_from=self.task_id)).items
        if forks:
            return await self.runner.get_task(forks[-1].task_id)
        first = _writing_steps((await self._journal(self.task_id)).events)[0]
        wish = demo_agent.INSTEAD.format(folder=self.folder.name)
        return await self.runner.fork(self.task_id, at=first.seq - 1, input=wish)

    async def _show_fork(self, fork: Task) -> bool:
        task = await self._evidence(self.task_id)
        other = await self._evidence(fork.task_id, task.journal)
        difference = await self.runner.diff(self.task_id, fork.task_id)
        self.screen.line((f"  first difference: step {difference.index}, {difference.field}", "bold"))
        for name, value in (("task", difference.value_a), ("fork", difference.value_b)):
            self.screen.line(f"    {name}  {short(value_text(value), WIDTH - 11) or 'nothing'}")
        return self.screen.claims(
            [*demo_evidence.the_fork(task, other), demo_evidence.the_books(task, other)]
        )

    def _close(self, fork: Task, holds: bool) -> None:
        self.screen.part("Look further" if holds else "A claim did not hold")
        if not holds:
            self.screen.whole_line((f"See {self.log.path} and the journal.", "bold red"))
        elif _is_unfinished(self.folder):
            self.log.note(demo_agent.VERIFIED, task=self.task_id)
        for arguments, meaning in (
            (("show", self.task_id), "the task, step by step"),
            (("diff", self.task_id, fork.task_id), "where the fork went another way"),
            (("fork", self.task_id), "another path from here; it says how to run it"),
            (("resume", self.task_id), "do again what was undone"),
            (("tasks",), "all tasks"),
        ):
            self.screen.whole_line(f"  {command_line(*arguments, store=self.store)}")
            self.screen.line((f"      {meaning}", "dim"))


EventT = TypeVar("EventT", bound=Event)


def _first(events: Sequence[Event], kind: type[EventT]) -> EventT | None:
    return next((event for event in events if isinstance(event, kind)), None)


def _has_ended(task: Task) -> bool:
    return task.state in ("completed", "degraded", "cancelled") and not task.driven


def _writing_steps(events: Sequence[Event]) -> list[e.StepStarted]:
    """Return the steps that began a writing call; the last step if there is none."""
    steps = [event for event in events if isinstance(event, e.StepStarted)]
    begun = [event for event in events if isinstance(event, e.ToolStarted) and event.effect == "write"]
    writing = {event.step for event in begun if event.undoes is None}
    return [step for step in steps if step.step in writing] or steps[-1:]
