"""`treadle demo`: a task whose process kills itself, goes on in another, is undone and forked, with evidence.

Where a demonstration stands is read from its task's journal, the tools' log and the scratch folder alone, so that it
can be killed at any instant and go on with `--resume`.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
import signal
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.prompt import Confirm

from treadle import Happened, NotHappened, Runner, RunOptions, Task, ToolCall
from treadle.cli import demo_agent, demo_evidence
from treadle.cli.command import CODES, command_line
from treadle.cli.demo_evidence import DemoTask
from treadle.cli.demo_screen import WIDTH, DemoScreen, in_one_line
from treadle.core import events as e
from treadle.core.events import Event
from treadle.errors import ConfigurationError, TreadleError
from treadle.llm.default_layers import resolve
from treadle.llm.registry import default_model, local_ollama
from treadle.testing.ledger import Ledger
from treadle.testing.replay.journals import journal_of

PROCESSES = 12
"""How many processes one run of the demonstration starts at most for a task."""


class Stuck(TreadleError):
    """The demonstration could not go on; the text says why and what to do."""


def demo(*, resume: bool = False, store: str | None = None, model: str | None = None) -> int:
    """Show a task survive a crash, be undone and forked; return the exit code, 0 if every claim held.

    Args:
        resume: go on with the newest demonstration that was not brought to its end here.
        store: path or URL of the journal; by default TREADLE_STORE, else `.treadle/journal.db`.
        model: `provider:model` to use a real model instead of the script.
    """
    console = Console(soft_wrap=False, highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    screen = DemoScreen(console, 0.28 if console.is_terminal else 0.0)
    again = command_line("demo", "--resume", store=store)
    try:
        if model is None and not resume:
            model = _offered_model(console)
        if model is not None:
            resolve(model)
        return asyncio.run(_demo(screen, resume, store, model))
    except KeyboardInterrupt:
        console.print(f"\nInterrupted. What was shown is durable; go on with:\n  {again}")
        return CODES["interrupted"]
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 2
    except TreadleError as error:
        print(f"{error}\nGo on with: {again}", file=sys.stderr)
        return 1


def _offered_model(console: Console) -> str | None:
    """Return a model that is at hand, if a person at the terminal wants it."""
    if not (console.is_terminal and sys.stdin.isatty()):
        return None
    model = default_model() or next(iter(local_ollama()), None)
    if model and Confirm.ask(f"Use {model}? It may cost money", console=console, default=False):
        return model
    return None


async def _demo(screen: DemoScreen, resume: bool, store: str | None, model: str | None) -> int:
    async with Runner(store) as runner:
        if not runner.store.url.startswith("sqlite:"):
            raise ConfigurationError(
                "the demonstration needs a store that outlives a process: give a file's path"
            )
        for task in (await runner.list_tasks(agent=demo_agent.NAME)).items if resume else ():
            folder = demo_agent.FOLDERS / task.labels.get("folder", "?")
            if task.forked_from is None and task.state != "cancelled" and _is_unfinished(folder):
                with _exclusive(folder) as is_ours:
                    if is_ours:
                        model = task.labels.get("model")
                        return await Demo(screen, runner, folder, task.task_id, store, model).play(again=True)
        if resume:
            await screen.say("There is no demonstration to go on with here, so a new one starts.")
        folder = _new_folder()
        with _exclusive(folder):
            labels = {"folder": folder.name, **({"model": model} if model is not None else {})}
            task = await runner.create_task(
                demo_agent.demo_agent(model),
                demo_agent.CLOSE.format(folder=folder.name),
                options=RunOptions(labels=labels),
            )
            return await Demo(screen, runner, folder, task.task_id, store, model).play(again=False)


def _is_unfinished(folder: Path) -> bool:
    """Tell whether a folder holds a demonstration that was not brought to its end."""
    try:
        lines = Ledger(folder / demo_agent.LOG).entries()
    except TypeError:
        return False  # an older version wrote its log
    return folder.is_dir() and all(line.tool != demo_agent.VERIFIED for line in lines)


@contextmanager
def _exclusive(folder: Path) -> Generator[bool]:
    """Lock a demonstration for this process; false if another process has the lock. It ends with its process."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            is_ours = False
        else:
            is_ours = True
        yield is_ours
    finally:
        os.close(handle)


def _new_folder() -> Path:
    """Make a scratch folder with its sales files, all at once under its final name."""
    base = demo_agent.FOLDERS
    if not base.exists():
        base.mkdir(mode=0o700)
        (base / ".gitignore").write_text("*\n")
    name = f"demo-{secrets.token_hex(4)}"
    draft = base / f".{name}"
    draft.mkdir(mode=0o700)
    for region, rows in demo_agent.SALES.items():
        lines = ["product,units,price", *(f"{product},{units},{price}" for product, units, price in rows)]
        (draft / f"sales-{region}.csv").write_text("\n".join(lines) + "\n")
    return draft.rename(base / name)


class Demo:
    """One demonstration: its task, its folder, and what is still to be done of the story."""

    def __init__(
        self,
        screen: DemoScreen,
        runner: Runner,
        folder: Path,
        task_id: str,
        store: str | None,
        model: str | None,
    ) -> None:
        self.screen, self.runner, self.folder = screen, runner, folder
        self.task_id, self.store, self.model = task_id, store, model
        self.agent = demo_agent.demo_agent(model)
        self.log = Ledger(folder / demo_agent.LOG)
        self._shown = 0
        """the last event on the screen"""

    async def play(self, *, again: bool) -> int:
        """Play what is left of the story and return the exit code."""
        await self._open(again)
        await self.finish(self.task_id, "1  A process works, dies, and another goes on")
        holds = await self._show_evidence()
        await self.undo()
        holds &= await self._show_undo()
        fork = await self.fork()
        await self.finish(
            fork.task_id, f"4  A fork {fork.task_id[-8:]} takes another path after event {fork.forked_at}"
        )
        holds &= await self._show_fork(fork)
        await self._close(fork, holds)
        return 0 if holds else 1

    async def _open(self, again: bool) -> None:
        say = self.screen.say
        await say(f"Treadle demo{', taken up again' if again else ''}", style="bold")
        if self.model is None:
            await say("The model is SCRIPTED: no key is needed, its words are fixed. All else is real:")
            await say("the processes, the files, the tools, the SIGKILL and the journal.")
        else:
            await say(f"The model is {self.model}; the files, tools, processes and the SIGKILL are real.")
        await say(f"  files    {self.folder}", style="dim")
        await say(f"  journal  {self.runner.store.url.removeprefix('sqlite:///')}", style="dim")
        await say(f"  task     {self.task_id}", style="dim")

    async def events(self, task_id: str) -> list[Event]:
        """Return the events of a task's journal."""
        return await journal_of(self.runner.store, task_id)

    # -------------------------------------------------------------------------- driven to its end

    async def finish(self, task_id: str, title: str) -> None:
        """Have one process after the other drive a task to its end, and show what its journal gets to hold."""
        task = await self.runner.get_task(task_id)
        events = await self.events(task_id)
        if _has_ended(task) or (not task.driven and _first(events, e.UndoRequested)):
            return
        await self.screen.part(title)
        self.screen.know(demo_evidence.calls_of(events))
        self._shown = (task.forked_at or 0) if task.state == "created" else task.head
        for _ in range(PROCESSES):
            await self._one_process(task_id)
            task = await self.runner.get_task(task_id)
            if _has_ended(task):
                return
            if task.state in ("failed", "waiting", "paused"):
                break
        result = await self.runner.result(task_id)
        why = result.error.message if result.error else "; ".join(wait.text for wait in result.pending)
        raise Stuck(f"task {task_id} is {task.state}: {why or 'it made no progress'}")

    async def _one_process(self, task_id: str) -> None:
        """Start a process that drives the task, show what it gets done, and how it ended."""
        is_killed = task_id != self.task_id or any(
            line.tool == demo_agent.KILLED for line in self.log.entries()
        )
        context = "" if is_killed else demo_agent.SABOTAGE
        options = [self.runner.store.url, task_id, str(self.screen.pace), self.model or "", context]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "treadle.cli.demo_child", *options), stdin=asyncio.subprocess.DEVNULL
        )
        await self.screen.say(f"process {process.pid} drives the task", style="cyan")
        try:
            while True:
                has_ended = process.returncode is not None
                await self._show_events(task_id)
                if has_ended:
                    break
                await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            await _stop(process)
            raise
        if process.returncode == -signal.SIGKILL:
            await self._show_death(process.pid)
        elif process.returncode != 0:
            status = process.returncode
            await self.screen.say(f"process {process.pid} ended with status {status}", style="red")

    async def _show_events(self, task_id: str) -> None:
        """Show the task's new events until no process drives it."""
        async for event in self.runner.handle(task_id).events(after=self._shown, deltas=False):
            if isinstance(event, Event):
                self._shown = event.seq
                await self.screen.tell(event)

    async def _show_death(self, pid: int) -> None:
        say = self.screen.say
        await say(f"process {pid} is dead: exit status {-signal.SIGKILL}, SIGKILL", style="bold red")
        tools = demo_evidence.calls_of(await self.events(self.task_id))
        for line in self.log.entries():
            if line.tool == demo_agent.KILLED and line.pid == pid:
                call = f"{line.call} {tools[line.call].name}"
                await say(f"  it died inside {call}: {line.text} was written already,", style="red")
                await say("  the end of the call was not recorded yet", style="red")

    # ----------------------------------------------------------------------------------- evidence

    async def _show_evidence(self) -> bool:
        task = await DemoTask.read(self.runner, self.task_id, self.folder)
        await self.screen.part(f"2  What the journal and the tools' own {demo_agent.LOG} say")
        self.screen.calls(task)
        return await self.screen.claims(
            [
                *demo_evidence.nothing_twice(task),
                demo_evidence.the_crash(task),
                demo_evidence.the_books([task]),
                demo_evidence.the_chain(task, await self.runner.verify(self.task_id)),
            ]
        )

    # --------------------------------------------------------------------------------------- undo

    async def undo(self) -> None:
        """Take back the last step that wrote something, with all that followed; also one begun before a crash."""
        events = await self.events(self.task_id)
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
            if _first(await self.events(self.task_id), e.Rewound):
                return  # the undo waited for nothing but what was settled
        raise Stuck(f"task {self.task_id}: the undo did not come to its end: {problem}")

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
        task = await DemoTask.read(self.runner, self.task_id, self.folder)
        requested = _first(task.events, e.UndoRequested)
        assert requested is not None, "the undo is done"
        title = f"3  Undo: all after step {requested.to} is taken back, though the task had ended"
        await self.screen.part(title)
        steps = ", ".join(requested.steps)
        await self.screen.say(f"  steps {steps}; the journal keeps them, the files do not:")
        return await self.screen.claims(demo_evidence.the_undo(task))

    # --------------------------------------------------------------------------------------- fork

    async def fork(self) -> Task:
        """Fork the task before its first step that wrote something, with another wish; the same fork after a crash."""
        forks = (await self.runner.list_tasks(forked_from=self.task_id)).items
        if forks:
            return await self.runner.get_task(forks[-1].task_id)
        first = _writing_steps(await self.events(self.task_id))[0]
        wish = demo_agent.INSTEAD.format(folder=self.folder.name)
        return await self.runner.fork(self.task_id, at=first.seq - 1, input=wish)

    async def _show_fork(self, fork: Task) -> bool:
        task = await DemoTask.read(self.runner, self.task_id, self.folder)
        other = await DemoTask.read(self.runner, fork.task_id, self.folder, task.journal)
        difference = await self.runner.diff(self.task_id, fork.task_id)
        say = self.screen.say
        await say(f"  first difference: step {difference.index}, {difference.field}", style="bold")
        await say(f"    task  {in_one_line(difference.value_a)}")
        await say(f"    fork  {in_one_line(difference.value_b)}")
        return await self.screen.claims(
            [
                *demo_evidence.the_fork(other),
                demo_evidence.the_answers(task, other),
                demo_evidence.the_books([task, other]),
            ]
        )

    # ---------------------------------------------------------------------------------------- end

    async def _close(self, fork: Task, holds: bool) -> None:
        await self.screen.part("Look further" if holds else "A claim did not hold")
        if not holds:
            await self.screen.say(f"See {self.log.path} and the journal.", style="bold red")
        elif _is_unfinished(self.folder):
            self.log.note(demo_agent.VERIFIED, task=self.task_id)
        for words, meaning in (
            (("show", self.task_id), "the task, step by step"),
            (("diff", self.task_id, fork.task_id), "where the fork went another way"),
            (("fork", self.task_id), "another path from here; it says how to run it"),
            (("resume", self.task_id), "do again what was undone"),
            (("tasks",), "all tasks"),
        ):
            await self.screen.say(f"  {command_line(*words, store=self.store)}")
            await self.screen.say(f"      {meaning}", style="dim")


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


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Let a process end by the Ctrl-C that it may have got too; else interrupt it, and at last kill it."""
    for number in (None, signal.SIGINT, signal.SIGKILL):
        if number is not None and process.returncode is None:
            process.send_signal(number)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), 2)
            return
