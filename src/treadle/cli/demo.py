"""`treadle demo`: a task whose process kills itself, goes on in another, is undone and forked, with evidence.

Where a demonstration stands is read from its task's journal, the tools' log and the scratch folder alone, so that it
can be killed at any instant and go on with `--resume`.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import secrets
import signal
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.prompt import Confirm

from treadle import Happened, NotHappened, Runner, RunOptions, Task, ToolSpec
from treadle.cli import demo_agent, demo_evidence
from treadle.cli.command import CODES
from treadle.cli.demo_screen import WIDTH, Stage, command, shown
from treadle.core import events as e
from treadle.core.events import Event
from treadle.errors import ConfigurationError, TreadleError
from treadle.llm.default_layers import resolve
from treadle.llm.registry import default_model, local_ollama

SIGKILLED = -9
PROCESSES = 12
"""How many processes one run of the demonstration starts at most for a task."""

VERIFIED = "verified"
"""The log line that closes a demonstration whose claims held."""


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
    stage = Stage(console, 0.28 if console.is_terminal else 0.0)
    try:
        if model is None and not resume:
            model = _offered(console)
        if model is not None:
            resolve(model)
        return asyncio.run(_demo(stage, resume, store, model))
    except KeyboardInterrupt:
        console.print("\nInterrupted. What was shown is durable; go on with:")
        console.print(f"  {command('demo', '--resume', store=store)}")
        return CODES["interrupted"]
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 2
    except TreadleError as error:
        print(f"{error}\nGo on with: {command('demo', '--resume', store=store)}", file=sys.stderr)
        return 1


def _offered(console: Console) -> str | None:
    """Return a model that is at hand, if a person at the terminal wants it."""
    if not (console.is_terminal and sys.stdin.isatty()):
        return None
    found = default_model() or next(iter(local_ollama()), None)
    if found is not None and Confirm.ask(f"Use {found}? It may cost money", console=console, default=False):
        return found
    return None


async def _demo(stage: Stage, resume: bool, store: str | None, model: str | None) -> int:
    async with Runner(store) as runner:
        if not runner.store.url.startswith("sqlite:"):
            raise ConfigurationError(
                "the demonstration needs a store that outlives a process: give a file's path"
            )
        if resume:
            for summary in (await runner.list_tasks(agent=demo_agent.NAME)).items:
                folder = demo_agent.FOLDERS / summary.labels.get("folder", "?")
                over = summary.forked_from is not None or summary.state == "cancelled"
                if over or not folder.is_dir() or _verified(folder):
                    continue
                with _alone(folder) as alone:
                    if alone:
                        model = summary.labels.get("model")
                        return await Demo(stage, runner, folder, summary.task_id, store, model).play(
                            again=True
                        )
            await stage.say("There is no demonstration to go on with here, so a new one starts.")
        folder = _new_folder()
        with _alone(folder):
            labels = {"folder": folder.name, **({"model": model} if model is not None else {})}
            task = await runner.create_task(
                demo_agent.demo_agent(model),
                demo_agent.CLOSE.format(folder=folder.name),
                options=RunOptions(labels=labels),
            )
            return await Demo(stage, runner, folder, task.task_id, store, model).play(again=False)


def _verified(folder: Path) -> bool:
    return any(line["event"] == VERIFIED for line in demo_agent.read_log(folder))


@contextmanager
def _alone(folder: Path) -> Generator[bool]:
    """Hold a demonstration for this process; false if another process plays it. A dead process holds nothing."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
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
        self, stage: Stage, runner: Runner, folder: Path, task_id: str, store: str | None, model: str | None
    ) -> None:
        self.stage, self.runner, self.folder = stage, runner, folder
        self.task_id, self.store, self.model = task_id, store, model
        self.agent = demo_agent.demo_agent(model)
        self._told = 0

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
        say = self.stage.say
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
        """Return a task's journal; the task is at rest."""
        handle = self.runner.handle(task_id)
        return [event async for event in handle.events(deltas=False) if isinstance(event, Event)]

    @property
    def log(self) -> list[dict[str, Any]]:
        """The tools' own log."""
        return demo_agent.read_log(self.folder)

    # ---------------------------------------------------------------------------- driven to its end

    async def finish(self, task_id: str, title: str) -> None:
        """Have processes drive a task to its end, one after the other, and tell what its journal gets to hold."""
        task = await self.runner.get_task(task_id)
        events = await self.events(task_id) if not task.driven else []
        if self._done(task, events):
            return
        await self.stage.part(title)
        self.stage.know(demo_evidence.calls_of(task_id, events, ()).values())
        self._told = (task.forked_at or 0) if task.state == "created" else task.head
        for _ in range(PROCESSES):
            await self._one_process(task_id)
            task = await self.runner.get_task(task_id)
            if self._done(task, []):
                return
            if task.state in ("failed", "waiting", "paused"):
                break
        result = await self.runner.result(task_id)
        why = result.error.message if result.error else "; ".join(wait.text for wait in result.pending)
        raise Stuck(f"task {task_id} is {task.state}: {why or 'it made no progress'}")

    def _done(self, task: Task, events: list[Event]) -> bool:
        """Whether the task has ended, also if it was undone since."""
        ended = task.state in ("completed", "degraded", "cancelled") and not task.driven
        return ended or any(isinstance(event, e.UndoRequested) for event in events)

    async def _one_process(self, task_id: str) -> None:
        """Start a process that drives the task, tell what it gets done, and how it ended."""
        sabotage = task_id == self.task_id and not any(line["event"] == "kill" for line in self.log)
        options = ["--store", self.runner.store.url, "--task", task_id, "--pace", str(self.stage.pace)]
        options += ["--model", self.model] if self.model is not None else []
        options += ["--sabotage"] if sabotage else []
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "treadle.cli.demo_child", *options, stdin=asyncio.subprocess.DEVNULL
        )
        await self.stage.say(f"process {process.pid} drives the task", style="cyan")
        telling = asyncio.ensure_future(self._tell_on_and_on(task_id))
        try:
            status = await process.wait()
        except asyncio.CancelledError:
            await _stop(process)
            raise
        finally:
            telling.cancel()
            await asyncio.wait([telling])
        await self._tell(task_id)
        if status == SIGKILLED:
            await self._tell_death(process.pid)
        elif status != 0:
            await self.stage.say(f"process {process.pid} ended with status {status}", style="red")

    async def _tell_on_and_on(self, task_id: str) -> None:
        while True:
            await self._tell(task_id)
            await asyncio.sleep(0.05)

    async def _tell(self, task_id: str) -> None:
        """Tell the task's new events until nobody drives it."""
        async for event in self.runner.handle(task_id).events(after=self._told, deltas=False):
            if isinstance(event, Event):
                self._told = event.seq
                await self.stage.tell(event)

    async def _tell_death(self, pid: int) -> None:
        await self.stage.say(f"process {pid} is dead: exit status {SIGKILLED}, SIGKILL", style="bold red")
        for line in self.log:
            if line["event"] == "kill" and line["pid"] == pid:
                where = f"{line['call']} {line['tool']}"
                await self.stage.say(
                    f"  it died inside {where}: {line['what']} was written already,", style="red"
                )
                await self.stage.say("  the end of the call was not recorded yet", style="red")

    # ------------------------------------------------------------------------------------- evidence

    async def _show_evidence(self) -> bool:
        events, log = await self.events(self.task_id), self.log
        await self.stage.part(f"2  What the journal and the tools' own {demo_agent.LOG} say")
        self.stage.calls(list(demo_evidence.calls_of(self.task_id, events, log).values()))
        checked = await self.runner.verify(self.task_id)
        return await self.stage.claims(
            [
                *demo_evidence.nothing_twice(self.task_id, events, log),
                *demo_evidence.the_crash(self.task_id, events, log),
                *demo_evidence.the_ledger([(self.task_id, events)], self.folder),
                demo_evidence.Claim(
                    checked.events == len(events) and not checked.findings,
                    f"the journal's chain of {checked.events} events is unbroken",
                ),
            ]
        )

    # ----------------------------------------------------------------------------------------- undo

    async def undo(self) -> None:
        """Take back the last step that wrote something, with all that followed; also one begun before a crash."""
        events = await self.events(self.task_id)
        if _rewound(events):
            return
        asked = next((event.to for event in events if isinstance(event, e.UndoRequested)), None)
        keep = asked if asked is not None else await self._before_the_last_write()
        problem = None
        for _ in range(PROCESSES):
            report = await self.runner.undo_step(self.task_id, to=keep, agent=self.agent, by="treadle demo")
            if report.complete:
                return
            problem = report.problem
            await self._settle()
            if _rewound(await self.events(self.task_id)):
                return  # what was settled was all that the undo waited for
        raise Stuck(f"task {self.task_id}: the undo did not come to its end: {problem}")

    async def _settle(self) -> None:
        """Say of each compensation that a crash cut off whether it took effect: the files tell."""
        for pending in (await self.runner.result(self.task_id)).pending:
            if pending.kind != "settlement":
                continue
            key = pending.idempotency_key
            assert key is not None, "a settlement is about a call"
            gone = demo_agent.taken_back(pending.tool, pending.arguments, key)
            verdict = Happened() if gone else NotHappened()
            await self.runner.settle(self.task_id, pending.request_id, verdict, by="treadle demo")

    async def _before_the_last_write(self) -> int:
        steps = await self.runner.get_completed_steps(self.task_id)
        wrote = [step.step.index for step in steps if any(_wrote(done.name) for done in step.tool_executions)]
        return (wrote[-1] if wrote else len(steps)) - 1

    async def _show_undo(self) -> bool:
        events = await self.events(self.task_id)
        rewound = next(event for event in events if isinstance(event, e.Rewound))
        asked = next(event for event in events if isinstance(event, e.UndoRequested))
        await self.stage.part(
            f"3  Undo: all after step {rewound.to} is taken back, though the task had ended"
        )
        await self.stage.say(f"  steps {', '.join(asked.steps)}; the journal keeps them, the files do not:")
        return await self.stage.claims(demo_evidence.the_undo(self.task_id, events))

    # ----------------------------------------------------------------------------------------- fork

    async def fork(self) -> Task:
        """Fork the task before its first step that wrote something, with another wish; the same fork after a crash."""
        known = (await self.runner.list_tasks(forked_from=self.task_id)).items
        if known:
            return await self.runner.get_task(known[-1].task_id)
        events = await self.events(self.task_id)
        steps = [event for event in events if isinstance(event, e.StepStarted)]
        writing = {
            event.step for event in events if isinstance(event, e.ToolStarted) and event.effect == "write"
        }
        before = next(step for step in steps if step.step in writing or step is steps[-1]).seq - 1
        wish = demo_agent.INSTEAD.format(folder=self.folder.name)
        return await self.runner.fork(self.task_id, at=before, input=wish)

    async def _show_fork(self, fork: Task) -> bool:
        events, log, say = await self.events(fork.task_id), self.log, self.stage.say
        shared = fork.forked_at or 0
        difference = await self.runner.diff(self.task_id, fork.task_id)
        mine = await self.events(self.task_id)
        answers = [_answer(mine), _answer(events)]
        await say(f"  first difference: step {difference.index}, {difference.field}", style="bold")
        await say(f"    task  {shown(difference.value_a)}")
        await say(f"    fork  {shown(difference.value_b)}")
        return await self.stage.claims(
            [
                *demo_evidence.the_fork(fork.task_id, shared, events, log),
                demo_evidence.Claim(
                    not difference.same and None not in answers and answers[0] != answers[1],
                    "the fork's answer is another one than the task's",
                ),
                *demo_evidence.the_ledger([(self.task_id, mine), (fork.task_id, events)], self.folder),
            ]
        )

    # ------------------------------------------------------------------------------------------ end

    async def _close(self, fork: Task, holds: bool) -> None:
        await self.stage.part("Look further" if holds else "A claim did not hold")
        if holds and not _verified(self.folder):
            demo_agent.append_line(self.folder / demo_agent.LOG, _closing_line(self.task_id))
        if not holds:
            await self.stage.say(f"See {self.folder / demo_agent.LOG} and the journal.", style="bold red")
        for words, what in (
            (("show", self.task_id), "the task, step by step"),
            (("diff", self.task_id, fork.task_id), "where the fork went another way"),
            (("fork", self.task_id), "another path from here; it says how to run it"),
            (("resume", self.task_id), "do again what was undone"),
            (("tasks",), "all tasks"),
        ):
            await self.stage.say(f"  {command(*words, store=self.store)}")
            await self.stage.say(f"      {what}", style="dim")


def _wrote(tool: str) -> bool:
    return _SPECS[tool].effect == "write" if tool in _SPECS else False


def _rewound(events: Sequence[Event]) -> bool:
    return any(isinstance(event, e.Rewound) for event in events)


def _answer(events: list[Event]) -> Any:
    ends = [event.output for event in events if isinstance(event, e.TaskEnded)]
    return ends[-1] if ends else None


def _closing_line(task_id: str) -> str:
    return json.dumps(
        {"event": VERIFIED, "key": f"{task_id}/", "pid": os.getpid(), "time": time.time_ns() // 1000}
    )


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Let a process end: it may have heard the same Ctrl-C; else it is told, and at last killed."""
    for how in (None, signal.SIGINT, signal.SIGKILL):
        if how is not None and process.returncode is None:
            process.send_signal(how)
        try:
            await asyncio.wait_for(process.wait(), 2)
            return
        except TimeoutError:
            continue


_SPECS: dict[str, ToolSpec] = {tool.spec.name: tool.spec for tool in demo_agent.TOOLS}
