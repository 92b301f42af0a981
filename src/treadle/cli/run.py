"""`run`, `resume` and `step`: commands that drive a task and print its events."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, Final, Literal

import typer

from treadle.agents.agent import Agent
from treadle.cli import agents
from treadle.cli.breakpoints import breakpoints, check_tools, goal_of
from treadle.cli.command import (
    CODES,
    USAGE,
    AgentOption,
    ByOption,
    ModelOption,
    PolicyOption,
    Session,
    command,
    option,
    text_argument,
)
from treadle.cli.filters import (
    ManyArgument,
    TaskOptions,
    YesOption,
    confirmed,
    each,
    find_task,
    selected_tasks,
)
from treadle.cli.outcome import print_outcome
from treadle.cli.remote import CODE_IS_ON_SERVER, FoundTask, events_after, task_of
from treadle.cli.screen import Screen
from treadle.cli.timeline import Timeline
from treadle.cli.tracing import TraceOptions
from treadle.cli.views import events_of
from treadle.client import Client
from treadle.client.client import resume_stream
from treadle.core.data import frozen
from treadle.core.events import END_STATES, Event, ModelStarted
from treadle.core.messages import untrusted
from treadle.engine.options import Breakpoint, RunOptions
from treadle.errors import ConfigurationError, StepFailed, TaskFinished, TaskNotFound
from treadle.policy.limits import Limits
from treadle.ports import OnBusyThread, TaskRow
from treadle.results.problem_documents import error_to_wire
from treadle.results.run_result import RunResult
from treadle.results.tasks import TaskSummary
from treadle.runner.runner import TaskRunner
from treadle.runner.stream import EventStream, StepStream, TaskStream
from treadle.runner.views import driver_of


@frozen(kw_only=True)
class DriveOptions:
    """The options of `run` and `resume`: the task's limits, and its behaviour in its thread."""

    max_steps: Annotated[int | None, typer.Option("--max-steps", help="Limit on steps.")] = None
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", help="Limit on input and output tokens together.")
    ] = None
    max_seconds: Annotated[
        float | None, typer.Option("--max-seconds", help="Limit on the time in which the task is driven.")
    ] = None
    max_model_calls: Annotated[
        int | None, typer.Option("--max-model-calls", help="Limit on model calls.")
    ] = None
    max_tool_calls: Annotated[int | None, typer.Option("--max-tool-calls", help="Limit on tool calls.")] = (
        None
    )
    max_cost: Annotated[float | None, option("DOLLARS", "Limit on cost in US dollars.")] = None
    max_repeats: Annotated[
        int | None, typer.Option("--max-repeats", help="Stop when a call has had the same result this often.")
    ] = None
    on_limit: Annotated[
        Literal["final_answer", "fail", "pause"] | None,
        typer.Option("--on-limit", help="The action at a limit."),
    ] = None
    on_busy_thread: Annotated[
        OnBusyThread | None,
        typer.Option("--on-busy-thread", help="The action while another task of the thread is driven."),
    ] = None
    context_tokens: Annotated[
        int | None, typer.Option("--context-tokens", help="Maximum number of tokens in a request.")
    ] = None
    interaction: Annotated[
        Literal["external", "interactive", "headless"] | None,
        typer.Option(
            "--interaction",
            help="Approvals: wait for them (external), ask here (interactive), or deny (headless).",
        ),
    ] = None
    break_: Annotated[
        list[str] | None,
        typer.Option(
            "--break",
            metavar="tool:NAME|step:N|cost:DOLLARS|event:KIND|none",
            help="Pause there, such as tool:write_*; may be repeated. `none` takes all breakpoints away.",
        ),
    ] = None

    def run_options(self) -> RunOptions | None:
        """Return the run options on the command line; None if there are none."""
        limits: dict[str, Any] = {
            "steps": self.max_steps,
            "tokens": self.max_tokens,
            "seconds": self.max_seconds,
            "model_calls": self.max_model_calls,
            "tool_calls": self.max_tool_calls,
            "cost": self.max_cost,
            "repeats": self.max_repeats,
        }
        is_limited = any(limit is not None for limit in limits.values())
        options: dict[str, Any] = {
            "limits": Limits(**limits) if is_limited else None,
            "on_limit": self.on_limit,
            "on_busy_thread": self.on_busy_thread,
            "context_tokens": self.context_tokens,
            "interaction": self.interaction,
            "break_on": breakpoints(self.break_) if self.break_ else None,
        }
        return RunOptions(**options) if any(value is not None for value in options.values()) else None


def check_breakpoints(agent: Agent[Any] | None, options: RunOptions | None) -> None:
    """Raise `ConfigurationError` for a `--break` at a tool that the agent does not have."""
    if options is not None and options.break_on:
        check_tools([agent], options.break_on, "--break")


@command
def run(
    session: Session,
    arguments: Annotated[
        list[str],
        typer.Argument(metavar="[AGENT] INPUT", help="An agent, and its input; `-` is standard input."),
    ],
    *,
    agent: AgentOption = None,
    model: ModelOption = None,
    policy: PolicyOption = None,
    thread: Annotated[str | None, typer.Option("--thread", help="The thread to continue.")] = None,
    task_id: Annotated[
        str | None, typer.Option("--task-id", help="Id for the task; the same id runs only once.")
    ] = None,
    origin: Annotated[
        str | None,
        typer.Option(
            "--untrusted",
            metavar="ORIGIN",
            help="The origin of an input that a stranger may have written, such as mail or web:HOST.",
        ),
    ] = None,
    by: ByOption = None,
    drive: DriveOptions,
    tracing: TraceOptions,
) -> int:
    """Run an agent on an input until the task stops; without AGENT, run a plain assistant."""
    if session.url is not None:
        return _run_on_server(
            session, arguments, agent or model, thread, task_id, origin, by, drive.run_options()
        )
    name, text = _agent_and_input(arguments, agent)
    message = text if origin is None else untrusted(text, origin=origin)
    options = drive.run_options()
    chosen = agents.to_run(name, agent, model)
    agents.check_model(chosen)
    check_breakpoints(chosen, options)
    observers = tracing.observers()

    async def work() -> int:
        screen = session.screen
        async with session.runner(make=True, drives=True, observers=observers, policy=policy) as runner:
            stream = runner.run_stream(
                chosen, message, thread_id=thread, task_id=task_id, options=options, by=by
            )
            on_model = f" on {chosen.model_name}" if chosen.model else ""
            screen.line(("task ", "dim"), stream.task_id, (f"  {chosen.name}{on_model}", "dim"))
            path = agent or (name if name and ":" in name else None)
            return await _DrivenTask(
                runner, session, Timeline(screen, live=screen.out.is_terminal), path
            ).follow(stream)

    return session.run(work())


def _run_on_server(
    session: Session,
    arguments: list[str],
    code: str | None,
    thread: str | None,
    task_id: str | None,
    origin: str | None,
    by: str | None,
    options: RunOptions | None,
) -> int:
    if len(arguments) != 2 or code is not None:
        raise ConfigurationError(
            "run --url takes AGENT INPUT, where AGENT is the name of an agent of the server. Leave out --agent: "
            "the code is on the server"
        )
    name: Any = arguments[0]
    text = text_argument(arguments[1])
    message = text if origin is None else untrusted(text, origin=origin)

    async def work() -> int:
        screen = session.screen
        async with session.runner() as runner:
            task = await runner.create_task(  # a task is printed only after the server has created it
                name, message, thread_id=thread, task_id=task_id, options=options, by=by
            )
            screen.line(("task ", "dim"), task.task_id, (f"  {name}", "dim"))
            stream = runner.run_stream(
                name, message, thread_id=thread, task_id=task.task_id, options=options, by=by
            )
            timeline = Timeline(screen, live=screen.out.is_terminal)
            return await _DrivenTask(runner, session, timeline, None).follow(stream)

    return session.run(work())


@command
def resume(
    session: Session,
    task: ManyArgument = None,
    *,
    agent: AgentOption = None,
    model: ModelOption = None,
    policy: PolicyOption = None,
    which: TaskOptions,
    yes: YesOption = False,
    by: ByOption = None,
    drive: DriveOptions,
    tracing: TraceOptions,
) -> int:
    """Drive a task to its next stop, after a crash, a pause, a failure or a limit.

    Without TASK, resume all tasks that match the options and can go on.
    """
    options, observers = drive.run_options(), tracing.observers()
    if task is not None:
        which.refuse_beside(task)

    async def work() -> int:
        async with session.runner(drives=True, observers=observers, policy=policy) as runner:
            if task is None:
                return await _resume_many(session, runner, which, agent, model, options, by, yes=yes)
            row = await find_task(runner, task)
            return await drive_on(
                session, runner, row.task_id, agent=agent, model=model, options=options, by=by
            )

    return session.run(work())


async def _resume_many(
    session: Session,
    runner: TaskRunner,
    which: TaskOptions,
    agent: str | None,
    model: str | None,
    options: RunOptions | None,
    by: str | None,
    *,
    yes: bool,
) -> int:
    """Resume all selected tasks that can continue; return 0 if all complete, else 1."""
    going_on = {"created", "running", "answered", "failed", "paused", "waiting", "interrupted"}
    if options is not None:
        going_on.add("degraded")
    tasks = await selected_tasks(runner, which, None, lambda item: item.state in going_on and not item.driven)
    if options is not None and options.break_on:
        one_of_each = {item.agent: item for item in tasks}.values()
        rows = [await task_of(runner, item.task_id) for item in one_of_each]
        chosen = [await agent_of(runner, row, session.screen, agent, model) for row in rows]
        check_tools(chosen, options.break_on, "--break")
    if not confirmed(session, "resume", tasks, yes=yes):
        return USAGE

    async def drive_one(item: TaskSummary) -> RunResult:
        row = await task_of(runner, item.task_id)
        chosen = await agent_of(runner, row, session.screen, agent, model)
        return await runner.resume(item.task_id, agent=chosen, options=options, by=by)

    return await each(session, tasks, drive_one, lambda state: state == "completed")


@command
def step(
    session: Session,
    arguments: Annotated[list[str], typer.Argument(metavar="TASK | AGENT INPUT")],
    *,
    input: Annotated[
        str | None, typer.Option("--input", help="A message to add before the model call.")
    ] = None,
    agent: AgentOption = None,
    model: ModelOption = None,
    policy: PolicyOption = None,
    until: Annotated[
        str | None,
        option(
            "N|tool:NAME|cost:DOLLARS|event:KIND", "Run steps until step N has ended, or until this happens."
        ),
    ] = None,
    by: ByOption = None,
    tracing: TraceOptions,
) -> int:
    """Run one step of a task, or several with --until, or the first of a new task of AGENT on INPUT."""
    goal = goal_of(until)
    if len(arguments) > 2:
        raise ConfigurationError("step takes TASK, or AGENT and INPUT (in quotes)")
    is_text = (
        len(arguments) == 1 and agent is not None and len(arguments[0].split()) > 1
    )  # ids have no blanks
    if is_text and session.url is None:
        arguments, agent = [str(agent), *arguments], None
    is_new, first = len(arguments) == 2, None
    if is_new and session.url is None:
        first = agents.to_run(arguments[0], agent, model)
        agents.check_model(first)
        _check_goal(first, goal)
    elif is_new and (agent or model) is not None:
        raise ConfigurationError(CODE_IS_ON_SERVER)
    observers = tracing.observers()

    async def work() -> int:
        async with session.runner(make=is_new, drives=True, observers=observers, policy=policy) as runner:
            if is_new:
                of_server: Any = arguments[0]  # a server finds agents by name
                task = await runner.create_task(first or of_server, text_argument(arguments[1]), by=by)
                task_id, chosen, path = task.task_id, first, arguments[0] if ":" in arguments[0] else agent
            else:
                try:
                    row = await find_task(runner, arguments[0])
                except TaskNotFound as error:
                    raise TaskNotFound(
                        f"{error}; to create a task, give AGENT and INPUT: `treadle step AGENT INPUT`"
                    ) from None
                task_id, path = row.task_id, agent
                chosen = await agent_of(runner, row, session.screen, agent, model)
                _check_goal(chosen, goal)
            timeline = await _timeline_of(runner, session.screen, task_id, chosen)
            driven = _DrivenTask(runner, session, timeline, path)
            if isinstance(goal, Breakpoint):
                if input is not None:
                    await runner.send(task_id, input, by=by)
                row = await task_of(runner, task_id)
                return await driven.follow(_resumed(runner, row, chosen, RunOptions(break_on=[goal]), by))
            return await driven.follow_steps(
                lambda text: runner.stream_step(task_id, input=text, agent=chosen, by=by), input, goal
            )

    return session.run(work())


def _check_goal(agent: Agent[Any] | None, goal: int | Breakpoint) -> None:
    """Raise `ConfigurationError` for an `--until` at a tool that the agent does not have."""
    if isinstance(goal, Breakpoint):
        check_tools([agent], [goal], "--until")


_AN_AGENT: Final = re.compile(r"[A-Za-z_]\w*(\.\w+)*:[A-Za-z_]\w*")
"""The place of an agent, `module:agent`."""


def _agent_and_input(arguments: list[str], option: str | None) -> tuple[str | None, str]:
    match arguments:
        case [text]:
            if option is None and (_AN_AGENT.fullmatch(text) or text in agents.listed_agents().agents):
                raise ConfigurationError(
                    f"INPUT is missing: write `treadle run {text} INPUT`; to send such text, pass it on standard "
                    "input and write - for INPUT"
                )
            return None, text_argument(text)
        case [agent, text]:
            return agent, text_argument(text)
        case _:
            raise ConfigurationError(
                "run takes INPUT, or AGENT and INPUT; put an input of several words in quotes"
            )


# ------------------------------------------------------------------------------------------- driving


async def drive_on(
    session: Session,
    runner: TaskRunner,
    task_id: str,
    *,
    agent: str | None,
    model: str | None,
    options: RunOptions | None = None,
    by: str | None = None,
) -> int:
    """Drive an existing task to its next stop, print the result and return the exit code."""
    row = await task_of(runner, task_id)
    chosen = await agent_of(runner, row, session.screen, agent, model)
    check_breakpoints(chosen, options)
    stream = _resumed(runner, row, chosen, options, by)
    timeline = await _timeline_of(runner, session.screen, task_id, chosen)
    return await _DrivenTask(runner, session, timeline, agent).follow(stream)


async def agent_of(
    runner: TaskRunner, row: FoundTask, screen: Screen, option: str | None, model: str | None
) -> Agent[Any] | None:
    """Return a task's agent; None if its code is not available here. The runner raises if it needs the code."""
    if isinstance(runner, Client):
        if option is not None or model is not None:
            raise ConfigurationError(CODE_IS_ON_SERVER)
        return None
    used_model = await _model_used(runner, row.task_id) if row.agent == agents.ASSISTANT else None
    agent = agents.of_task(row.agent, option, model, used_model)
    if agent is None:
        for path, problem in agents.listed_agents().problems.items():
            screen.note(("note: ", "yellow"), f"{path}: {problem}")
    return agent


async def _model_used(runner: TaskRunner, task_id: str) -> str | None:
    """Return the model of a task's last request, with which the plain assistant continues."""
    events = await events_of(runner, task_id)
    return next((event.model for event in reversed(events) if isinstance(event, ModelStarted)), None)


async def _timeline_of(
    runner: TaskRunner, screen: Screen, task_id: str, agent: Agent[Any] | None
) -> Timeline:
    """Return a timeline that knows earlier calls and, for a graph, the names of steps."""
    timeline = Timeline(screen, live=screen.out.is_terminal)
    events = await events_of(runner, task_id)
    timeline.learn_calls(events)
    if agent is not None and agent.custom_worker is not None:
        timeline.learn_steps(events)
    return timeline


def _resumed(
    runner: TaskRunner, row: FoundTask, agent: Agent[Any] | None, options: RunOptions | None, by: str | None
) -> EventStream[Any]:
    """Resume a task, and return the stream of its events."""
    if isinstance(row, TaskRow):
        return ResumeStream(runner, row, agent, options, by)
    assert isinstance(runner, Client), "the task is on a server"
    return resume_stream(runner, row.task_id, options, by)


class ResumeStream(EventStream):
    """The events of a task that `resume` drives, from its state before the resume."""

    def __init__(
        self,
        runner: TaskRunner,
        row: TaskRow,
        agent: Agent[Any] | None,
        options: RunOptions | None,
        by: str | None,
    ) -> None:
        async def work() -> RunResult:
            return await runner.resume(row.task_id, agent=agent, options=options, by=by)

        super().__init__(driver_of(runner).owned, row.task_id, work)
        self._row_head = row.head

    async def _head(self) -> int:
        return self._row_head


async def _leave(runner: TaskRunner) -> None:
    """Release the tasks of this process before it ends; tasks of a server continue."""
    if not isinstance(runner, Client):
        await runner.drain()


class _DrivenTask:
    """Prints the events of a task that this command drives, then its state.

    Args:
        runner: drives the task.
        session: the command's session.
        timeline: prints the events.
        agent: the value of `--agent`, for the command that continues the task.
    """

    def __init__(self, runner: TaskRunner, session: Session, timeline: Timeline, agent: str | None) -> None:
        self._runner = runner
        self._session = session
        self._timeline = timeline
        self._agent = agent

    async def follow(self, stream: EventStream) -> int:
        """Print a task's events to its next stop, then its state; return the exit code."""
        if await self._watch(stream):
            code = self._print(stream.result)
            # After an undo by another process the task is between two steps, so the run did not succeed.
            return CODES["interrupted"] if stream.result.state == "running" else code
        try:
            result = await self._runner.result(stream.task_id)
        except TaskNotFound:
            raise KeyboardInterrupt from None  # the task had not begun
        code = self._print(result)
        return code if result.state in END_STATES else CODES["interrupted"]

    async def follow_steps(
        self, step: Callable[[str | None], StepStream], input: str | None, last: int
    ) -> int:
        """Print the events of one step, or of all steps up to index `last`; return the task's exit code."""
        stream = step(input)
        document: Any = None
        code = None
        try:
            while await self._watch(stream):
                document = stream.output
                if document.is_last or document.step.index >= last:
                    break
                stream = step(None)
            else:
                code = CODES["interrupted"]
        except StepFailed as error:
            document = {"error": error_to_wire(error)}
        except TaskFinished as error:
            if error.state != "answered":
                raise
            message = f"task {stream.task_id} has answered: `treadle resume` ends it, --input goes on with it"
            raise TaskFinished(message, task_id=stream.task_id, state="answered") from None
        state_code = self._print(await self._runner.result(stream.task_id))
        if document is not None:
            self._session.screen.document(document)
        return state_code if code is None else code

    def _print(self, result: RunResult) -> int:
        timeline = self._timeline
        return print_outcome(
            self._session, result, agent=self._agent, printed=timeline.last_text, limit=timeline.limit
        )

    async def _watch(self, stream: TaskStream[Any]) -> bool:
        """Print a stream's events to its end; return False if Ctrl-C interrupted the task, durably.

        SIGTERM releases the task for adoption by another driver, and the stream ends by itself.
        """
        loop, runner = asyncio.get_running_loop(), self._runner
        last_seq = 0
        with suppress(TaskNotFound):
            last_seq = (await task_of(runner, stream.task_id)).head
        draining: list[asyncio.Future[None]] = []
        loop.add_signal_handler(
            signal.SIGTERM, lambda: draining.append(asyncio.ensure_future(_leave(runner)))
        )
        try:
            async with stream:
                async for event in stream:
                    last_seq = event.seq if isinstance(event, Event) else last_seq
                    self._timeline.show(event)
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None:
                current.uncancel()  # the following report must not be cancelled
            with suppress(TaskNotFound):  # the task had not begun
                for event in await events_after(runner, stream.task_id, last_seq):
                    self._timeline.show(event)  # the events of its stop
            return False
        finally:
            self._timeline.stop()
            loop.remove_signal_handler(signal.SIGTERM)
        return True
