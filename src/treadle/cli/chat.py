"""`chat`: a conversation in a thread. Each message is a task, or goes to the task that is not done with the last."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Sequence
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Final

import typer

from treadle.agents.agent import Agent
from treadle.cli import agents
from treadle.cli.command import AgentOption, ModelOption, PolicyOption, Session, command, json_argument
from treadle.cli.outcome import print_state, usage_summary
from treadle.cli.prompting import Prompt, make_prompt
from treadle.cli.run import DriveOptions, ResumeStream, check_breakpoints
from treadle.cli.screen import Screen, dollars, short_ids, some
from treadle.cli.task_lookup import find_task
from treadle.cli.threads import message_text
from treadle.cli.timeline import Timeline, call_arguments, content_text
from treadle.cli.undo_fork import print_report
from treadle.cli.views import events_of
from treadle.core import events as e
from treadle.core.data import frozen
from treadle.core.display import clean
from treadle.core.events import END_STATES
from treadle.core.observation import as_text
from treadle.core.tools import Happened, NotHappened
from treadle.drivers.random_ids import new_id
from treadle.engine.options import RunOptions
from treadle.engine.results import Pending, RunResult, StepInfo
from treadle.errors import ConfigurationError, TaskNotFound, TreadleError
from treadle.runner.runner import TaskRunner
from treadle.runner.stream import EventStream

_MARK: Final = "› "


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
    drive: DriveOptions,
) -> int:
    """Talk with an agent in a thread; /help lists what can be done besides."""
    if session.screen.json:
        raise ConfigurationError("chat is for people: `treadle run --thread ID --json` is for programs")
    if last and thread is not None:
        raise ConfigurationError("give --thread or --last, not both")
    chosen = agents.to_run(agent_name, agent, model)
    agents.check_model(chosen)
    options = drive.run_options()
    check_breakpoints(chosen, options)
    async with session.runner((chosen,), make=True, drives=True, policy=policy) as runner:
        if last:
            thread = (await find_task(runner, "last")).thread_id
        talk = Chat(session.screen, runner, chosen, thread or new_id(), options)
        await talk.open()
        await talk.run(make_prompt([f"/{name}" for name in Chat.COMMANDS], talk.toolbar))
    return 0


class _ChatTimeline(Timeline):
    """The events of an answer: the model's text and the calls. What the person wrote is on the screen already."""

    def show(self, event: e.Event | e.Ephemeral) -> None:
        if isinstance(event, (e.TaskCreated, e.InputReceived, e.TaskReopened, e.Resumed)):
            return
        if isinstance(event, e.StepStarted) and not event.attempt > 1:
            return
        super().show(event)


@frozen
class _Turn:
    """A message and what came of it: in which task, behind how many of its steps."""

    task_id: str
    steps: int


class Chat:
    """A conversation: its thread, its turns, and the task that is not done with the last message.

    Args:
        screen: where to print.
        runner: drives the tasks.
        agent: answers.
        thread: the thread.
        options: options of each task.
    """

    def __init__(
        self,
        screen: Screen,
        runner: TaskRunner,
        agent: Agent[Any],
        thread: str,
        options: RunOptions | None,
    ) -> None:
        self._screen = screen
        self._runner = runner
        self._agent = agent
        self._thread = thread
        self._options = options
        self._turns: list[_Turn] = []
        self._unfinished: str | None = None
        """the task that is not done with the last message"""

        self._replaces_input = False
        """whether the next message replaces the one that was taken back"""

        self._draft = ""
        """what the next prompt begins with"""

        self._spent = ""
        self._working: asyncio.Task[Any] | None = None
        self._is_reporting = False
        """whether an answer has ended, or was interrupted, and what came of it is being read"""

        self._prompt: Prompt | None = None
        self._is_over = False

    # ------------------------------------------------------------------------------------ the conversation

    async def open(self) -> None:
        """Find the thread's tasks, and say how the conversation stands."""
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
            self._tell_unfinished(roots[-1].state_text)
        await self._count()

    def toolbar(self) -> str:
        """Return the line below the prompt."""
        shown = short_ids([self._thread])[self._thread]
        return f" {self._agent.name} · thread {shown} · {self._spent} · Alt-Enter: new line · /help"

    async def run(self, prompt: Prompt) -> None:
        """Talk until the person leaves."""
        self._prompt = prompt
        loop = asyncio.get_running_loop()
        # For the whole conversation: the event loop's own handler ends it at the second Ctrl-C.
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        try:
            while not self._is_over:
                draft, self._draft = self._draft, ""
                try:
                    text = (await prompt.ask(_MARK, draft)).strip()
                except EOFError:
                    return
                except KeyboardInterrupt:
                    continue
                if text:
                    await self._do(text)
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    def _interrupt(self) -> None:
        if self._working is not None and not self._is_reporting:
            self._working.cancel()

    async def _do(self, text: str) -> None:
        """Obey a command or send a message; Ctrl-C ends what this does, and not the conversation."""
        name, _, rest = text.partition(" ")
        if name.startswith("/") and name[1:] in self.COMMANDS:
            work = self.COMMANDS[name[1:]][1](self, rest.strip())
        elif name.startswith("/") and name[1:].isalpha():
            self._screen.line((f"there is no command {name}: /help lists them", "yellow"))
            return
        else:
            work = self._say(text)
        self._working = asyncio.ensure_future(work)
        try:
            await self._working
        except asyncio.CancelledError:
            self._screen.line(("interrupted", "yellow"))
        except TreadleError as error:
            self._screen.line(("error: ", "red"), str(error))
        finally:
            self._working = None

    async def _say(self, text: str) -> None:
        """Send a message: a new task, or a message to the task that is not done with the one before."""
        task_id = self._unfinished
        if task_id is None:
            stream = self._runner.run_stream(self._agent, text, thread_id=self._thread, options=self._options)
            self._turns.append(_Turn(stream.task_id, 0))
            self._unfinished = stream.task_id
            try:
                await self._follow(stream)
            finally:
                await self._forget_if_not_made(stream.task_id)
            return
        steps = (await self._runner.get_task(task_id)).steps
        if self._replaces_input:
            await self._runner.edit_step(task_id, text)
        else:
            await self._runner.send(task_id, text)
        self._replaces_input = False
        self._turns.append(_Turn(task_id, steps))
        await self._go_on("")

    async def _forget_if_not_made(self, task_id: str) -> None:
        """Forget the last turn if it was interrupted, or refused, before its task was made."""
        try:
            await self._runner.store.row(task_id)
        except TaskNotFound:
            self._turns.pop()
            self._unfinished = None

    async def _go_on(self, _: str) -> None:
        if self._unfinished is None:
            self._screen.line(("nothing is unfinished", "dim"))
            return
        row = await self._runner.store.row(self._unfinished)
        events = await events_of(self._runner, self._unfinished)
        await self._follow(ResumeStream(self._runner, row, self._agent, self._options), events)

    async def _follow(self, stream: EventStream, before: Sequence[e.Event] = ()) -> None:
        """Print an answer while it comes, then how it ended; ask what the task waits for."""
        timeline = _ChatTimeline(self._screen, live=self._screen.out.is_terminal)
        timeline.learn_calls(before)
        shown, was_cut_off = before[-1].seq if before else 0, False
        try:
            async with stream:
                async for event in stream:
                    timeline.show(event)
                    shown = event.seq if isinstance(event, e.Event) else shown
        except asyncio.CancelledError:
            was_cut_off = True
            current = asyncio.current_task()
            while current is not None and current.uncancel():
                pass  # the task is at rest, and the conversation goes on
        finally:
            timeline.stop()
        self._is_reporting = True
        try:
            for event in await events_of(self._runner, stream.task_id) if was_cut_off else ():
                if event.seq > shown:
                    timeline.show(event)  # how the calls ended that were stopped
            result = await self._runner.result(stream.task_id)
        except TaskNotFound:
            self._screen.line(("interrupted before it began: write it again", "yellow"))
            return
        finally:
            self._is_reporting = False
            timeline.stop()
        if result.final_text and "".join(result.final_text.split()) != "".join(timeline.last_text.split()):
            self._screen.line(result.final_text)
        await self._ended(result)

    async def _ended(self, result: RunResult) -> None:
        self._unfinished = None if result.state in ("completed", "degraded", "cancelled") else result.task_id
        if result.state == "completed":
            self._screen.line((f"  {usage_summary(result.usage)}", "dim"))
        else:
            print_state(self._screen, result)
        await self._count()
        if result.pending and await self._decide(result):
            await self._go_on("")
        elif self._unfinished is not None:
            self._tell_unfinished(result.state_text)

    async def _decide(self, result: RunResult) -> bool:
        """Ask a person what a task waits for; return whether all of it was decided."""
        for pending in result.pending:
            decide = self.DECISIONS.get(pending.kind)
            if decide is None:
                self._screen.line(("  ? ", "yellow"), pending.text)
            if decide is None or not await decide(self, result.task_id, pending):
                return False
        return True

    def _tell_unfinished(self, state: str) -> None:
        self._screen.line(
            (
                f"  the last turn is {state}: /resume goes on, /undo takes it back, a message changes its course",
                "dim",
            )
        )

    async def _count(self) -> None:
        """Note what the conversation has cost."""
        cost, unknown, tokens = await self._sum()
        self._spent = f"{tokens:,} tokens" + (f" · {dollars(cost)}" if cost or not unknown else "")

    async def _sum(self) -> tuple[Decimal, int, int]:
        """Return what the thread's tasks spent with those below them: dollars, tasks without a known cost, tokens."""
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

    # ----------------------------------------------------------------------------- what a task waits for

    async def _settle(self, task_id: str, pending: Pending) -> bool:
        """Ask whether a call took effect, and record the answer; return False if it was left open."""
        assert self._prompt is not None
        line = self._screen.line
        line(("  ? ", "yellow"), f"{pending.tool}({call_arguments(pending.arguments)}): {pending.text}")
        try:
            answer = (await self._prompt.ask("  did it take effect? [y/n, Enter: later] ")).strip().lower()
            if answer in ("y", "yes"):
                text = await self._prompt.ask("  its result, as JSON [null]: ")
                await self._runner.settle(
                    task_id, pending.request_id, Happened(json_argument(text.strip() or "null", "the result"))
                )
                return True
        except (EOFError, KeyboardInterrupt):
            return False
        if answer in ("n", "no"):
            await self._runner.settle(task_id, pending.request_id, NotHappened())
            return True
        return False

    async def _approve(self, task_id: str, pending: Pending) -> bool:
        """Ask whether a call may start, and record the answer; return False if it was left open."""
        assert self._prompt is not None
        line = self._screen.line
        line(("  ? ", "yellow"), pending.text, (f"  by rule {pending.rule}" if pending.rule else "", "dim"))
        line(("    it would run:  ", "dim"), f"{pending.tool}({as_text(pending.arguments)})")
        if pending.preview is not None:
            line(("    what it does:  ", "dim"), as_text(pending.preview))
        try:
            answer = (await self._prompt.ask("  may it run? [y/n/e(dit), Enter: later] ")).strip().lower()
            if answer in ("e", "edit"):
                written = await self._prompt.ask("  its arguments: ", as_text(pending.arguments))
                arguments: Any = json_argument(written.strip(), "the arguments")
                await self._runner.approve(task_id, pending.request_id, arguments=arguments)
            elif answer in ("n", "no"):
                reason = (await self._prompt.ask("  why not, for the model: ")).strip() or None
                await self._runner.deny(task_id, pending.request_id, reason=reason)
            elif answer in ("y", "yes"):
                await self._runner.approve(task_id, pending.request_id)
            else:
                return False
        except (EOFError, KeyboardInterrupt):
            return False
        except TreadleError as error:
            line(("  ✗ ", "red"), str(error))
            return False
        return True

    async def _decide_below(self, task_id: str, pending: Pending) -> bool:
        """Ask about what a task below waits for; return False if some of it was left open, or there is nothing."""
        items = await self._runner.list_pending(pending.request_id)
        for item in items:
            if not await self.DECISIONS[item.kind](self, item.task_id, item):
                return False
        return bool(items)

    # ------------------------------------------------------------------------------------------- commands

    async def _help(self, _: str) -> None:
        for name, (text, _act) in self.COMMANDS.items():
            self._screen.line((f"  /{name:<9}", "bold"), text)
        keys = "Enter sends; Alt-Enter, or a backslash at the end, begins a new line. Ctrl-C interrupts."
        self._screen.line((f"  {keys}", "dim"))

    async def _undo(self, how: str) -> None:
        """Take back the last turn: its calls are compensated, and its messages leave the thread."""
        if not self._turns:
            self._screen.line(("there is no turn to take back", "dim"))
            return
        turn = self._turns[-1]
        task = await self._runner.get_task(turn.task_id)
        text = next_input(await self._runner.get_upcoming_steps(turn.task_id))
        if task.steps > turn.steps or task.state in END_STATES:
            report = await self._runner.undo_step(
                turn.task_id, to=turn.steps, force=how == "force", agent=self._agent
            )
            print_report(self._screen, report)
            if not report.complete:
                return
            text = next_input(await self._runner.get_upcoming_steps(turn.task_id))
        self._turns.pop()
        self._draft = text
        if turn.steps == 0 and task.forked_from is None:
            await self._runner.cancel(turn.task_id, reason="taken back in a chat")
            self._unfinished = None
        else:
            self._unfinished, self._replaces_input = turn.task_id, True
        self._screen.line(("taken back; write on from there", "dim"))

    async def _fork(self, _: str) -> None:
        """Go on in a new thread that shares this one; this one stays as it is."""
        if not self._turns:
            self._screen.line(("there is nothing to branch off yet", "dim"))
            return
        task = await self._runner.fork(self._turns[-1].task_id)
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
            self._tell_unfinished(unfinished.state_text)

    async def _show_thread(self, _: str) -> None:
        self._screen.line(self._thread)

    async def _quit(self, _: str) -> None:
        self._is_over = True

    # ----------------------------------------------------------------------------------------------- table

    COMMANDS: ClassVar[dict[str, tuple[str, Callable[[Chat, str], Coroutine[Any, Any, None]]]]] = {
        "resume": ("go on with a turn that was interrupted, paused or failed", _go_on),
        "undo": ("take back the last turn; `/undo force` also what cannot be compensated", _undo),
        "fork": ("go on in a copy of this conversation, from here", _fork),
        "cost": ("what this conversation has spent", _cost),
        "history": ("all that was said", _history),
        "thread": ("the id of this conversation, for --thread", _show_thread),
        "new": ("begin another conversation", _new),
        "help": ("this list", _help),
        "quit": ("leave, like Ctrl-D", _quit),
    }
    """What a line that begins with a slash does, and in which words it is listed."""

    DECISIONS: ClassVar[dict[str, Callable[[Chat, str, Pending], Coroutine[Any, Any, bool]]]] = {
        "settlement": _settle,
        "approval": _approve,
        "subagent": _decide_below,
    }
    """What asks a person for a decision of a kind, and records it; it returns False if that was left open."""


def next_input(steps: Sequence[StepInfo]) -> str:
    """Return what the next step would read, as text."""
    return content_text(steps[0].input) if steps else ""
