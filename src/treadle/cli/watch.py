"""`watch`: follow a task that another process or a server drives.

On a terminal a person can decide its requests, steer it and undo steps.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from typing import Any, ClassVar, Final

from treadle.cli import agents
from treadle.cli.command import AgentOption, ByOption, Session, command
from treadle.cli.filters import TaskArgument, find_task, root_of
from treadle.cli.outcome import print_outcome
from treadle.cli.prompting import Prompt, make_prompt
from treadle.cli.remote import CODE_IS_ON_SERVER, FoundTask, has_continued, will_continue
from treadle.cli.steering import Steering
from treadle.cli.timeline import Timeline
from treadle.cli.undo_fork import print_report
from treadle.core import events as e
from treadle.core.events import END_STATES
from treadle.errors import ConfigurationError, TreadleError
from treadle.results.pending import FOR_PEOPLE, Pending
from treadle.results.run_result import RunResult
from treadle.runner.deciding import Dialogue
from treadle.runner.runner import TaskRunner

POLL: Final = 1.0
"""Seconds between two checks for requests of child tasks, which the task's own events do not contain."""

LOOK: Final = 0.05
"""Seconds between two checks whether a driver continues the task."""

PATIENCE: Final = 10.0
"""Seconds after a decision in which a driver must continue the task; then watching ends."""


@command
async def watch(session: Session, task: TaskArgument, agent: AgentOption = None, by: ByOption = None) -> int:
    """Follow a task that another process drives, and decide its requests. Ctrl-C only stops watching."""
    prompt = make_prompt(
        [f"/{name}" for name in Watch.COMMANDS], lambda: " Enter sends it to the task · /help"
    )
    asks = prompt.is_interactive and not session.screen.json
    if agent is not None and session.url is not None:
        raise ConfigurationError(CODE_IS_ON_SERVER)
    known_agents = agents.agents_at(agent) if agent is not None else []
    if asks and agent is None and session.url is None:
        known_agents = [*agents.listed_agents().agents.values()]
    async with session.runner(tuple(known_agents)) as runner:
        found_task = await find_task(runner, task)
        return await Watch(session, runner, found_task, prompt if asks else None, by).run()


class Watch:
    """Follows a task.

    Args:
        session: the command's session.
        runner: reads the task and sends commands to it.
        task: the task.
        prompt: asks the person; None without a terminal, when the task is only followed.
        by: the name of the person, for the record.
    """

    def __init__(
        self, session: Session, runner: TaskRunner, task: FoundTask, prompt: Prompt | None, by: str | None
    ) -> None:
        self._session = session
        self._screen = session.screen
        self._runner = runner
        self._task = task
        self._task_id = task.task_id
        self._prompt = prompt
        self._by = by
        self._timeline = Timeline(self._screen, live=self._screen.out.is_terminal)
        self._seq = 0
        self._asked_requests = set[tuple[str, str]]()
        self._decided_requests = set[str]()
        self._is_new = asyncio.Event()
        self._steering: Steering | None = None
        self._is_interrupted = False

    async def run(self) -> int:
        """Follow the task to its next stop, print its state and return the exit code."""
        screen = self._screen
        screen.line(("task ", "dim"), self._task_id, (f"  {self._task.agent}", "dim"))
        async with AsyncExitStack() as stack:
            if self._prompt is not None:
                screen.line(("  write to steer it; /help lists the commands", "dim"))
                self._steering = await stack.enter_async_context(
                    Steering(self._prompt, self._timeline, self._handle_line)
                )
                loop = asyncio.get_running_loop()
                current = asyncio.current_task()
                assert current is not None
                loop.add_signal_handler(signal.SIGINT, self._interrupt, current)
                stack.callback(loop.remove_signal_handler, signal.SIGINT)
                asking = asyncio.ensure_future(self._ask_for_decisions())
                stack.push_async_callback(_end_task, asking)
            try:
                result = await self._follow()
            except asyncio.CancelledError:
                raise (KeyboardInterrupt if self._is_interrupted else asyncio.CancelledError) from None
            finally:
                self._timeline.stop()
        root = await root_of(self._runner, self._task)
        limit, printed = self._timeline.limit, self._timeline.last_text
        return print_outcome(self._session, result, printed=printed, root=root, limit=limit)

    def _interrupt(self, watching: asyncio.Task[Any]) -> None:
        if self._prompt is None or not self._prompt.interrupt():
            self._is_interrupted = True
            watching.cancel()

    async def _follow(self) -> RunResult:
        """Print the task's events until it stops and no decision here continues it."""
        while True:
            async for event in self._runner.handle(self._task_id).events(after=self._seq):
                if self._steering is None:
                    self._timeline.show(event)
                elif isinstance(event, (e.ApprovalRequested, e.QuestionAsked)):
                    self._is_new.set()  # the question is asked in place
                else:
                    await self._steering.show(event)
                if isinstance(event, e.Event):
                    self._seq = event.seq
            if self._steering is not None:
                await self._ask()
                await self._steering.finished()
            result = await self._runner.result(self._task_id)
            if self._steering is None:
                return result
            if not await self._has_continued() and (
                result.state in END_STATES or not await self._will_continue()
            ):
                return result

    async def _will_continue(self) -> bool:
        """Return whether a driver will soon continue the task after an unread command or a decision."""
        if not await will_continue(self._runner, self._task_id, self._decided_requests):
            return await self._has_continued()  # the task may have ended since its result was read
        self._screen.spinner.show("waiting for a driver process")
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    if await self._has_continued():
                        return True
                    await asyncio.sleep(LOOK)
        except TimeoutError:
            return False
        finally:
            self._screen.spinner.stop()

    async def _has_continued(self) -> bool:
        return await has_continued(self._runner, self._task_id, self._seq)

    # ------------------------------------------------------------------------------------- decisions

    async def _ask_for_decisions(self) -> None:
        """Ask for decisions on pending requests, including those of child tasks, while the task is followed."""
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_new.wait(), POLL)
            self._is_new.clear()
            with suppress(TreadleError):  # retried at the next check
                await self._ask()

    async def _ask(self) -> None:
        """Ask for decisions on the pending requests that are new here."""
        steering, prompt = self._steering, self._prompt
        if steering is None or prompt is None:
            return
        async for item in await self._runner.list_pending(self._task_id):
            key = item.task_id, item.request_id
            if item.kind not in FOR_PEOPLE or key in self._asked_requests:
                continue
            self._asked_requests.add(key)
            async with steering.question():
                if await self._is_open(item) and await self._dialogue(prompt).decide([item]):
                    self._decided_requests.add(item.request_id)

    async def _is_open(self, item: Pending) -> bool:
        """Return whether a request is still open, since another question may have taken a while."""
        pending = [other.request_id async for other in await self._runner.list_pending(item.task_id)]
        return item.request_id in pending

    def _dialogue(self, prompt: Prompt) -> Dialogue:
        screen = self._screen
        return Dialogue(
            self._runner, prompt, screen.line, width=lambda: screen.width, by=self._by, root=self._task_id
        )

    # -------------------------------------------------------------------------------------- commands

    async def _handle_line(self, text: str) -> None:
        """Run a command, or send a message to the task."""
        name, _, argument = text.partition(" ")
        try:
            if name[:1] != "/":
                await self._runner.send(self._task_id, text, by=self._by)
                self._screen.line(("  sent: the model reads it with its next request", "dim"))
            elif name[1:] in self.COMMANDS:
                await self.COMMANDS[name[1:]][1](self, argument.strip())
            else:
                self._screen.line((f"there is no command {name}: /help lists them", "yellow"))
        except TreadleError as error:
            self._screen.line(("  ✗ ", "red"), str(error))

    async def _decide(self, _: str) -> None:
        self._asked_requests.clear()
        self._is_new.set()

    async def _undo(self, how: str) -> None:
        report = await self._runner.undo_step(self._task_id, force=how == "force", by=self._by)
        print_report(self._screen, report)

    async def _pause(self, _: str) -> None:
        await self._runner.pause(self._task_id, by=self._by)

    async def _cancel(self, reason: str) -> None:
        await self._runner.cancel(self._task_id, reason=reason or None, by=self._by)

    async def _help(self, _: str) -> None:
        self._screen.line(
            ("  any text  ", "bold"), "is sent to the task; the model reads it with its next request"
        )
        for name, (text, _act) in self.COMMANDS.items():
            self._screen.line((f"  /{name:<9}", "bold"), text)
        self._screen.line(("  Ctrl-C stops watching, and nothing else", "dim"))

    COMMANDS: ClassVar[dict[str, tuple[str, Callable[[Watch, str], Coroutine[Any, Any, None]]]]] = {
        "decide": ("ask again about open requests", _decide),
        "undo": ("take back the newest step; `/undo force` also calls without compensation", _undo),
        "pause": ("pause the task", _pause),
        "cancel": ("end the task for good; `/cancel too slow` says why", _cancel),
        "help": ("this list", _help),
    }
    """The slash commands, each with its description."""


async def _end_task(task: asyncio.Future[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
