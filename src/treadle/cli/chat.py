"""`chat`: a conversation in a thread. Each message is a new task, or goes to the unfinished task of the last one."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Annotated, Any, ClassVar, Final

import typer

from treadle.agents.agent import Agent
from treadle.cli import agents
from treadle.cli.command import AgentOption, ByOption, ModelOption, PolicyOption, Session, command
from treadle.cli.event_lines import content_text
from treadle.cli.filters import find_task
from treadle.cli.outcome import print_state, usage_summary
from treadle.cli.prompting import Prompt, make_prompt
from treadle.cli.run import DriveOptions, ResumeStream, check_breakpoints
from treadle.cli.screen import Screen, dollars, short_ids, some
from treadle.cli.steering import Steering
from treadle.cli.threads import message_text
from treadle.cli.timeline import Timeline
from treadle.cli.undo_fork import print_report
from treadle.cli.views import events_of
from treadle.core import events as e
from treadle.core.data import frozen
from treadle.core.display import clean
from treadle.core.events import END_STATES
from treadle.core.ids import approval_id
from treadle.drivers.random_ids import new_id
from treadle.engine.options import RunOptions
from treadle.errors import ConfigurationError, TaskFinished, TaskNotFound, TreadleError
from treadle.results.pending import Pending
from treadle.results.run_result import RunResult
from treadle.results.steps import StepInfo
from treadle.runner.deciding import Dialogue
from treadle.runner.handle import RunHandle
from treadle.runner.runner import TaskRunner
from treadle.runner.stream import EventStream

_MARK: Final = "› "
_CATCH_UP: Final = 100
"""Maximum number of hundredths of a second that a question waits for the printing of its request."""


@command
async def chat(
    session: Session,
    agent_name: Annotated[
        str | None, typer.Argument(metavar="[AGENT]", help="An agent. Default: a plain assistant.")
    ] = None,
    *,
    agent: AgentOption = None,
    model: ModelOption = None,
    policy: PolicyOption = None,
    thread: Annotated[
        str | None, typer.Option("--thread", help="The thread to continue. Default: a new one.")
    ] = None,
    last: Annotated[bool, typer.Option("--last", help="Continue the thread of the newest task.")] = False,
    by: ByOption = None,
    drive: DriveOptions,
) -> int:
    """Talk with an agent in a thread; /help lists further commands."""
    if session.screen.json:
        raise ConfigurationError("chat is for people: `treadle run --thread ID --json` is for programs")
    if last and thread is not None:
        raise ConfigurationError("give --thread or --last, not both")
    chosen = agents.to_run(agent_name, agent, model)
    agents.check_model(chosen)
    options = drive.run_options()
    check_breakpoints(chosen, options)
    if options is not None and options.interaction == "interactive":
        options = replace(options, interaction=None)  # the conversation asks the questions itself
    talks = list[Chat]()

    async def decide(item: Pending, _: RunHandle[Any]) -> None:
        await talks[0].decide(item)

    async with session.runner((chosen,), make=True, drives=True, policy=policy, on_pending=decide) as runner:
        if last:
            thread = (await find_task(runner, "last")).thread_id
        talk = Chat(session.screen, runner, chosen, thread or new_id(), options, by)
        talks.append(talk)
        await talk.open()
        await talk.run(make_prompt([f"/{name}" for name in Chat.COMMANDS], talk.toolbar))
    return 0


class _ChatTimeline(Timeline):
    """Prints the model's text and the calls of an answer; the person's message is already on the screen."""

    def __init__(self, screen: Screen, *, live: bool) -> None:
        super().__init__(screen, live=live)
        self.requests = set[str]()
        """the requests that were shown so far, about which the person is asked in place"""

    def show(self, event: e.Event | e.Ephemeral) -> None:
        if isinstance(event, e.ApprovalRequested):
            self.requests.add(approval_id(event.call, event.number))
            return
        if isinstance(event, e.QuestionAsked):
            self.requests.add(event.request_id)
            return
        if isinstance(event, (e.TaskCreated, e.InputReceived, e.TaskReopened, e.Resumed)):
            return
        if isinstance(event, e.StepStarted) and not event.attempt > 1:
            return
        super().show(event)


@frozen
class _Turn:
    """A message, its task, and the number of the task's steps before it."""

    task_id: str
    steps: int


class Chat:
    """A conversation: its thread, its turns, and the unfinished task of the last message.

    Args:
        screen: prints the conversation.
        runner: drives the tasks.
        agent: answers the messages.
        thread: the thread.
        options: options of each task.
        by: the name of the person, for the record.
    """

    def __init__(
        self,
        screen: Screen,
        runner: TaskRunner,
        agent: Agent[Any],
        thread: str,
        options: RunOptions | None,
        by: str | None = None,
    ) -> None:
        self._screen = screen
        self._runner = runner
        self._agent = agent
        self._thread = thread
        self._options = options
        self._by = by
        self._turns: list[_Turn] = []
        self._unfinished: str | None = None
        """the unfinished task of the last message"""

        self._replaces_input = False
        """whether the next message replaces the undone one"""

        self._draft = ""
        """the initial text of the next prompt"""

        self._spent = ""
        self._working: asyncio.Task[Any] | None = None
        self._is_reporting = False
        """whether an answer has ended or was interrupted and its result is being read"""

        self._prompt: Prompt | None = None
        self._timeline: _ChatTimeline | None = None
        self._asking = asyncio.Lock()
        self._steering: Steering | None = None
        self._next = ""
        """a message that came too late for the last turn, and begins the next one"""

        self._is_over = False

    # ------------------------------------------------------------------------------------ the conversation

    async def open(self) -> None:
        """Find the thread's tasks, and print the state of the conversation."""
        page = await self._runner.list_tasks(thread_id=self._thread, limit=100)
        roots = [item for item in reversed(page.items) if item.parent is None and item.state != "cancelled"]
        self._turns = [_Turn(item.task_id, 0) for item in roots]
        line = self._screen.line
        line((f"{self._agent.name} on {self._agent.model_name}", "bold"), ("  /help, Ctrl-D leaves", "dim"))
        if roots:
            about = f"thread {self._thread}: {some(len(roots), 'turn')} so far, /history shows them"
            line((about, "dim"))
        if roots and roots[-1].state not in ("completed", "degraded"):
            self._unfinished = roots[-1].task_id
            self._print_unfinished(roots[-1].state_text)
        await self._count()

    def toolbar(self) -> str:
        """Return the line below the prompt."""
        short_id = short_ids([self._thread])[self._thread]
        return f" {self._agent.name} · thread {short_id} · {self._spent} · Alt-Enter: new line · /help"

    async def run(self, prompt: Prompt) -> None:
        """Converse until the person leaves."""
        self._prompt = prompt
        loop = asyncio.get_running_loop()
        # For the whole conversation: the event loop's own handler would end it at the second Ctrl-C.
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        try:
            while not self._is_over:
                draft, self._draft = self._draft, ""
                text, self._next = self._next, ""
                try:
                    text = text or (await prompt.ask(_MARK, draft)).strip()
                except EOFError:
                    return
                except KeyboardInterrupt:
                    continue
                if text:
                    await self._do(text)
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    def _interrupt(self) -> None:
        if self._prompt is not None and self._prompt.interrupt():
            return
        if self._working is not None and not self._is_reporting:
            self._working.cancel()

    async def _do(self, text: str) -> None:
        """Run a command or send a message. Ctrl-C ends this work but not the conversation."""
        name, _, argument = text.partition(" ")
        if name.startswith("/") and name[1:] in self.COMMANDS:
            work = self.COMMANDS[name[1:]][1](self, argument.strip())
        elif name.startswith("/") and name[1:].isalpha():
            self._screen.line((f"there is no command {name}: /help lists them", "yellow"))
            return
        else:
            work = self._send_message(text)
        self._working = asyncio.ensure_future(work)
        try:
            await self._working
        except asyncio.CancelledError:
            self._screen.line(("interrupted", "yellow"))
        except TreadleError as error:
            self._screen.line(("error: ", "red"), str(error))
        finally:
            self._working = None

    async def _send_message(self, text: str) -> None:
        """Send a message: as a new task, or to the unfinished task of the previous message."""
        task_id = self._unfinished
        if task_id is None:
            stream = self._runner.run_stream(
                self._agent, text, thread_id=self._thread, options=self._options, by=self._by
            )
            self._turns.append(_Turn(stream.task_id, 0))
            self._unfinished = stream.task_id
            try:
                await self._follow(stream)
            finally:
                await self._forget_if_not_made(stream.task_id)
            return
        steps = (await self._runner.get_task(task_id)).steps
        if self._replaces_input:
            await self._runner.edit_step(task_id, text, by=self._by)
        else:
            await self._runner.send(task_id, text, by=self._by)
        self._replaces_input = False
        self._turns.append(_Turn(task_id, steps))
        await self._continue_task("")

    async def _forget_if_not_made(self, task_id: str) -> None:
        """Remove the last turn if it was interrupted or refused before its task was created."""
        try:
            await self._runner.store.row(task_id)
        except TaskNotFound:
            self._turns.pop()
            self._unfinished = None

    async def _continue_task(self, _: str) -> None:
        if self._unfinished is None:
            self._screen.line(("nothing is unfinished", "dim"))
            return
        items = await self._runner.list_pending(self._unfinished)
        pending = [item async for item in items if item.kind != "background"]
        if pending and not await self._dialogue().decide(pending):
            self._print_unfinished("waiting")
            return
        row = await self._runner.store.row(self._unfinished)
        events = await events_of(self._runner, self._unfinished)
        await self._follow(ResumeStream(self._runner, row, self._agent, self._options, self._by), events)

    async def _follow(self, stream: EventStream, before: Sequence[e.Event] = ()) -> None:
        """Print an answer as it arrives, then its result; ask the task's questions."""
        timeline = self._timeline = _ChatTimeline(self._screen, live=self._screen.out.is_terminal)
        timeline.learn_calls(before)
        last_seq, was_cut_off = before[-1].seq if before else 0, False
        assert self._prompt is not None
        try:
            async with Steering(self._prompt, timeline, partial(self._send_now, stream.task_id)) as steering:
                self._steering = steering
                async with stream:
                    async for event in stream:
                        await steering.show(event)
                        last_seq = event.seq if isinstance(event, e.Event) else last_seq
                await steering.finished()
        except asyncio.CancelledError:
            was_cut_off = True
            current = asyncio.current_task()
            while current is not None and current.uncancel():
                pass  # the task has stopped, and the conversation continues
        finally:
            self._steering = None
            timeline.stop()
        self._is_reporting = True
        try:
            for event in await events_of(self._runner, stream.task_id) if was_cut_off else ():
                if event.seq > last_seq:
                    timeline.show(event)  # the ends of the stopped calls
            result = await self._runner.result(stream.task_id)
        except TaskNotFound:
            self._screen.line(("interrupted before it began: write it again", "yellow"))
            return
        finally:
            self._is_reporting = False
            timeline.stop()
        if result.final_text and "".join(result.final_text.split()) != "".join(timeline.last_text.split()):
            self._screen.line(result.final_text)
        await self._print_result(result)

    async def _print_result(self, result: RunResult) -> None:
        self._unfinished = None if result.state in ("completed", "degraded", "cancelled") else result.task_id
        if result.state == "completed":
            self._screen.line((f"  {usage_summary(result.usage)}", "dim"))
        else:
            print_state(self._screen, result)
        await self._count()
        open_items = [
            item for item in result.pending if item.kind not in ("approval", "question", "subagent")
        ]
        if open_items and await self._dialogue().decide(open_items):
            await self._continue_task("")
        elif self._unfinished is not None:
            self._print_unfinished(result.state_text)

    async def _send_now(self, task_id: str, text: str) -> None:
        """Send a message that the person wrote while a task runs."""
        if text.startswith("/"):
            self._screen.line(("commands wait for the end of the answer; Ctrl-C interrupts it", "yellow"))
            return
        try:
            await self._runner.send(task_id, text, by=self._by)
            self._screen.line(("  sent: the model reads it with its next request", "dim"))
        except TaskFinished:
            self._next = text
            self._screen.line(("  the answer has ended: this is the next message", "dim"))
        except TreadleError as error:
            self._screen.line(("  ✗ ", "red"), str(error))

    async def decide(self, item: Pending) -> None:
        """Ask the person about a call of a task that runs here; the decision continues the task at once."""
        async with self._asking:  # in the order of the requests
            shown_requests = self._timeline.requests if self._timeline is not None else ()
            for _ in range(_CATCH_UP):
                if item.request_id in shown_requests or item.task_id != self._unfinished:
                    break
                await asyncio.sleep(0.01)  # print the events before the request first
            if self._steering is None:
                return
            async with self._steering.question():
                await self._dialogue().decide([item])

    def _dialogue(self) -> Dialogue:
        assert self._prompt is not None
        screen = self._screen
        return Dialogue(
            self._runner,
            self._prompt,
            screen.line,
            width=lambda: screen.width,
            by=self._by,
            root=self._unfinished,
        )

    def _print_unfinished(self, state: str) -> None:
        self._screen.line(
            (
                f"  the last turn is {state}: /resume goes on, /undo takes it back, a message changes its course",
                "dim",
            )
        )

    async def _count(self) -> None:
        """Update the conversation's cost for the toolbar."""
        cost, unknown, tokens = await self._sum()
        self._spent = f"{tokens:,} tokens" + (f" · {dollars(cost)}" if cost or not unknown else "")

    async def _sum(self) -> tuple[Decimal, int, int]:
        """Return the spending of the thread's tasks and their children: dollars, tasks of unknown cost, tokens."""
        cost, unknown, tokens, cursor = Decimal(0), 0, 0, None
        while True:
            page = await self._runner.list_tasks(thread_id=self._thread, limit=500, cursor=cursor)
            for item in page.items:
                tokens += (item.input_tokens or 0) + (item.output_tokens or 0)
                cost += item.cost or 0
                unknown += item.cost is None
            if page.cursor is None:
                return cost, unknown, tokens
            cursor = page.cursor

    # ------------------------------------------------------------------------------------------- commands

    async def _help(self, _: str) -> None:
        for name, (text, _act) in self.COMMANDS.items():
            self._screen.line((f"  /{name:<9}", "bold"), text)
        keys = "Enter sends; Alt-Enter, or a backslash at the end, begins a new line. Ctrl-C interrupts."
        self._screen.line((f"  {keys}", "dim"))

    async def _undo(self, how: str) -> None:
        """Undo the last turn: compensate its calls and remove its messages from the thread."""
        if not self._turns:
            self._screen.line(("there is no turn to take back", "dim"))
            return
        turn = self._turns[-1]
        task = await self._runner.get_task(turn.task_id)
        text = next_input(await self._runner.get_upcoming_steps(turn.task_id))
        if task.steps > turn.steps or task.state in END_STATES:
            report = await self._runner.undo_step(
                turn.task_id, to=turn.steps, force=how == "force", agent=self._agent, by=self._by
            )
            print_report(self._screen, report)
            if not report.complete:
                return
            text = next_input(await self._runner.get_upcoming_steps(turn.task_id))
        self._turns.pop()
        self._draft = text
        if turn.steps == 0 and task.forked_from is None:
            await self._runner.cancel(turn.task_id, reason="taken back in a chat", by=self._by)
            self._unfinished = None
        else:
            self._unfinished, self._replaces_input = turn.task_id, True
        self._screen.line(("taken back; write on from there", "dim"))

    async def _fork(self, _: str) -> None:
        """Continue in a new thread that shares this one; this one stays unchanged."""
        if not self._turns:
            self._screen.line(("there is nothing to branch off yet", "dim"))
            return
        task = await self._runner.fork(self._turns[-1].task_id, by=self._by)
        self._screen.line(("in a copy now; the conversation before is thread ", "dim"), self._thread)
        self._thread, self._turns, self._unfinished = task.thread_id, [], task.task_id

    async def _new(self, _: str) -> None:
        self._screen.line(("a new thread; the one before is ", "dim"), self._thread)
        self._thread, self._turns, self._unfinished = new_id(), [], None
        await self._count()

    async def _cost(self, _: str) -> None:
        cost, unknown, tokens = await self._sum()
        count = f"{some(len(self._turns), 'turn')} · {tokens:,} tokens"
        count += f" · {dollars(cost)}" if cost or not unknown else ""
        self._screen.line(
            count, (f" · cost of {some(unknown, 'task')} not known" if unknown else "", "yellow")
        )

    async def _history(self, _: str) -> None:
        messages = [*(await self._runner.get_thread(self._thread))]
        unfinished = None if self._unfinished is None else await self._runner.result(self._unfinished)
        if unfinished is not None:
            messages += unfinished.messages
        for message in messages:
            text = clean(message_text(message)).replace("\n", "\n  ")
            self._screen.line((f"{message.role}: ", "dim"), text)
        if not messages:
            self._screen.line(("nothing was said yet", "dim"))
        if unfinished is not None:
            self._print_unfinished(unfinished.state_text)

    async def _show_thread(self, _: str) -> None:
        self._screen.line(self._thread)

    async def _quit(self, _: str) -> None:
        self._is_over = True

    # ----------------------------------------------------------------------------------------------- table

    COMMANDS: ClassVar[dict[str, tuple[str, Callable[[Chat, str], Coroutine[Any, Any, None]]]]] = {
        "resume": ("go on with a turn that was interrupted, paused or failed", _continue_task),
        "undo": ("take back the last turn; `/undo force` also calls without compensation", _undo),
        "fork": ("go on in a copy of this conversation, from here", _fork),
        "cost": ("what this conversation has spent", _cost),
        "history": ("all that was said", _history),
        "thread": ("the id of this conversation, for --thread", _show_thread),
        "new": ("begin another conversation", _new),
        "help": ("this list", _help),
        "quit": ("leave, like Ctrl-D", _quit),
    }
    """The slash commands, each with its description."""


def next_input(steps: Sequence[StepInfo]) -> str:
    """Return the next step's input as text."""
    return content_text(steps[0].input) if steps else ""
