"""`run`, `resume` and `step`: the commands that drive a task and show what it does."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import Annotated, Any, Literal

import typer

from treadle.agents.agent import Agent
from treadle.cli import agents
from treadle.cli.command import (
    CODES,
    JsonOption,
    StoreOption,
    TaskArgument,
    in_loop,
    row_named,
    runner_on,
)
from treadle.cli.json_output import error_json
from treadle.cli.outcome import told
from treadle.cli.screen import Screen
from treadle.cli.timeline import Timeline
from treadle.cli.tracing import TraceContentOption, TraceOption, observers
from treadle.cli.views import events_of
from treadle.core.events import END_STATES, ModelStarted
from treadle.core.journal import unfold
from treadle.engine.options import RunOptions
from treadle.engine.results import RunResult
from treadle.errors import ConfigurationError, StepFailed, TaskFinished, TaskNotFound
from treadle.policy.limits import Limits
from treadle.ports import OnBusyThread, TaskRow
from treadle.runner.runner import TaskRunner
from treadle.runner.stream import EventStream, StepStream, Stream

AgentOption = Annotated[
    str | None, typer.Option("--agent", metavar="MODULE:AGENT", help="Where the agent is.")
]
ModelOption = Annotated[
    str | None,
    typer.Option("--model", metavar="PROVIDER:NAME", help="Use this model instead of the agent's."),
]
OnLimit = Literal["final_answer", "fail", "pause"]
OnLimitOption = Annotated[OnLimit | None, typer.Option("--on-limit", help="What reaching a limit does.")]
MaxSteps = Annotated[int | None, typer.Option("--max-steps", help="Limit on steps.")]
MaxTokens = Annotated[int | None, typer.Option("--max-tokens", help="Limit on tokens, in and out together.")]
MaxSeconds = Annotated[float | None, typer.Option("--max-seconds", help="Limit on driven time.")]
MaxModelCalls = Annotated[int | None, typer.Option("--max-model-calls", help="Limit on model calls.")]
OnBusyThreadOption = Annotated[
    OnBusyThread | None,
    typer.Option("--on-busy-thread", help="What to do while another task is driven in the thread."),
]
ContextTokens = Annotated[
    int | None, typer.Option("--context-tokens", help="How many tokens a request holds at most.")
]
MaxToolCalls = Annotated[int | None, typer.Option("--max-tool-calls", help="Limit on tool calls.")]
MaxCost = Annotated[float | None, typer.Option("--max-cost", metavar="DOLLARS", help="Limit on cost.")]
MaxRepeats = Annotated[
    int | None, typer.Option("--max-repeats", help="Stop when a call comes to the same so many times.")
]


def run(
    ctx: typer.Context,
    words: Annotated[
        list[str], typer.Argument(metavar="[AGENT] INPUT", help="`-` as INPUT reads standard input.")
    ],
    agent: AgentOption = None,
    model: ModelOption = None,
    thread: Annotated[str | None, typer.Option("--thread", help="The conversation to go on with.")] = None,
    task_id: Annotated[
        str | None, typer.Option("--task-id", help="An id of your own; runs only once.")
    ] = None,
    max_steps: MaxSteps = None,
    max_tokens: MaxTokens = None,
    max_seconds: MaxSeconds = None,
    max_model_calls: MaxModelCalls = None,
    max_tool_calls: MaxToolCalls = None,
    max_cost: MaxCost = None,
    max_repeats: MaxRepeats = None,
    on_limit: OnLimitOption = None,
    on_busy_thread: OnBusyThreadOption = None,
    context_tokens: ContextTokens = None,
    trace: TraceOption = None,
    trace_content: TraceContentOption = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> int:
    """Run an agent on an input until the task stops; without AGENT a plain assistant."""
    word, said = _agent_and_input(words)
    options = limited(
        on_limit,
        steps=max_steps,
        tokens=max_tokens,
        seconds=max_seconds,
        model_calls=max_model_calls,
        tool_calls=max_tool_calls,
        cost=max_cost,
        repeats=max_repeats,
    )
    options = of_thread(options, on_busy_thread, context_tokens)
    known = agents.to_run(word, agent, model)
    agents.check_model(known)

    listening = observers(trace, content=trace_content)

    async def work(screen: Screen) -> int:
        async with runner_on(store, make=True, observers=listening) as runner:
            stream = runner.run_stream(known, said, thread_id=thread, task_id=task_id, options=options)
            screen.line(("task ", "dim"), stream.task_id, (f"  {known.name} on {known.model_name}", "dim"))
            place = agent or (word if word and ":" in word else None)
            timeline = Timeline(screen, live=screen.out.is_terminal)
            return await _driven(runner, stream, screen, timeline, store, place)

    return in_loop(ctx, work)


def resume(
    ctx: typer.Context,
    task: TaskArgument,
    agent: AgentOption = None,
    model: ModelOption = None,
    max_steps: MaxSteps = None,
    max_tokens: MaxTokens = None,
    max_seconds: MaxSeconds = None,
    max_model_calls: MaxModelCalls = None,
    max_tool_calls: MaxToolCalls = None,
    max_cost: MaxCost = None,
    max_repeats: MaxRepeats = None,
    on_limit: OnLimitOption = None,
    on_busy_thread: OnBusyThreadOption = None,
    context_tokens: ContextTokens = None,
    trace: TraceOption = None,
    trace_content: TraceContentOption = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> int:
    """Drive a task from where it stands to its next stop: after a crash, a pause, a failure, a limit."""
    options = limited(
        on_limit,
        steps=max_steps,
        tokens=max_tokens,
        seconds=max_seconds,
        model_calls=max_model_calls,
        tool_calls=max_tool_calls,
        cost=max_cost,
        repeats=max_repeats,
    )
    options = of_thread(options, on_busy_thread, context_tokens)

    listening = observers(trace, content=trace_content)

    async def work(screen: Screen) -> int:
        async with runner_on(store, observers=listening) as runner:
            row = await row_named(runner, task)
            return await drive_on(
                runner, row.task_id, screen, store=store, agent=agent, model=model, options=options
            )

    return in_loop(ctx, work)


def step(
    ctx: typer.Context,
    words: Annotated[list[str], typer.Argument(metavar="TASK | AGENT INPUT")],
    input: Annotated[str | None, typer.Option("--input", help="Words to put before the model call.")] = None,
    agent: AgentOption = None,
    model: ModelOption = None,
    trace: TraceOption = None,
    trace_content: TraceContentOption = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> int:
    """Run exactly one step of a task, or of a new task of AGENT on INPUT."""
    if len(words) > 2:
        raise ConfigurationError("step takes TASK, or AGENT and INPUT (in quotes)")
    first = agents.to_run(words[0], agent, model) if len(words) == 2 else None
    if first is not None:
        agents.check_model(first)

    listening = observers(trace, content=trace_content)

    async def work(screen: Screen) -> int:
        async with runner_on(store, make=first is not None, observers=listening) as runner:
            if first is not None:
                task_id = (await runner.create_task(first, read(words[1]))).task_id
                known, place = first, words[0] if ":" in words[0] else agent
            else:
                try:
                    row = await row_named(runner, words[0])
                except TaskNotFound as error:
                    raise TaskNotFound(f"{error}; a new task is begun with AGENT and INPUT") from None
                task_id, place = row.task_id, agent
                known = await agent_of(runner, row, screen, agent, model)
            stream = runner.stream_step(task_id, input=input, agent=known)
            timeline = await _timeline(runner, screen, task_id, known)
            return await _stepped(runner, stream, screen, timeline, store, place)

    return in_loop(ctx, work)


# ------------------------------------------------------------------------------------------- driving


async def drive_on(
    runner: TaskRunner,
    task_id: str,
    screen: Screen,
    *,
    store: str | None,
    agent: str | None,
    model: str | None,
    options: RunOptions | None = None,
) -> int:
    """Drive a task to its next stop, show it, and return the exit code of how it stands then."""
    row = await runner.store.row(task_id)
    known = await agent_of(runner, row, screen, agent, model)
    timeline = await _timeline(runner, screen, task_id, known)
    stream = ResumeStream(runner, row, known, options)
    return await _driven(runner, stream, screen, timeline, store, agent)


async def _timeline(runner: TaskRunner, screen: Screen, task_id: str, agent: Agent[Any] | None) -> Timeline:
    """Return a timeline that knows what was asked for before, and what steps are called, if they have names."""
    timeline = Timeline(screen, live=screen.out.is_terminal)
    before = await events_of(runner, task_id)
    timeline.recall(before)
    if agent is not None and agent.custom_worker is not None:
        timeline.learn(before)
    return timeline


class ResumeStream(EventStream):
    """A task driven on by `resume`, with the events from where it stood."""

    def __init__(
        self, runner: TaskRunner, row: TaskRow, agent: Agent[Any] | None, options: RunOptions | None
    ) -> None:
        async def work() -> RunResult:
            return await runner.resume(row.task_id, agent=agent, options=options)

        super().__init__(runner.desk, row.task_id, work)
        self._before = row.head

    async def _head(self) -> int:
        return self._before


async def _driven(
    runner: TaskRunner,
    stream: EventStream,
    screen: Screen,
    timeline: Timeline,
    store: str | None,
    agent: str | None,
) -> int:
    """Show a task while it is driven, and how it stands then."""
    if await _watched(runner, stream, timeline):
        code = told(screen, stream.result, store=store, agent=agent, said=timeline.said)
        # Somebody took a step back: the task stands between two steps, which is no success of a run.
        return CODES["interrupted"] if stream.result.state == "running" else code
    try:
        result = await runner.result(stream.task_id)
    except TaskNotFound:
        raise KeyboardInterrupt from None  # before the task was begun
    code = told(screen, result, store=store, agent=agent, said=timeline.said)
    return code if result.state in END_STATES else CODES["interrupted"]


async def _stepped(
    runner: TaskRunner,
    stream: StepStream,
    screen: Screen,
    timeline: Timeline,
    store: str | None,
    agent: str | None,
) -> int:
    """Show one step while it is driven, and how the task stands then."""
    document: Any = None
    code = None
    try:
        if await _watched(runner, stream, timeline):
            document = stream.output
        else:
            code = CODES["interrupted"]
    except StepFailed as error:
        document = error_json(error)
    except TaskFinished as error:
        if error.state != "answered":
            raise
        message = f"task {stream.task_id} has answered: `treadle resume` ends it, --input goes on with it"
        raise TaskFinished(message, task_id=stream.task_id, state="answered") from None
    result = await runner.result(stream.task_id)
    stands = told(screen, result, store=store, agent=agent, said=timeline.said)
    if document is not None:
        screen.document(document)
    return stands if code is None else code


async def _watched(runner: TaskRunner, stream: Stream[Any], timeline: Timeline) -> bool:
    """Show a stream's events to its end; False if Ctrl-C came first: the task is interrupted, durably, by then.

    At SIGTERM the task is given back too, for whoever adopts it, and the stream ends by itself.
    """
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, lambda: runner.hold(asyncio.ensure_future(runner.drain())))
    try:
        async with stream:
            async for event in stream:
                timeline.show(event)
    except asyncio.CancelledError:
        asking = asyncio.current_task()
        if asking is not None:
            asking.uncancel()  # what follows is a report, not the work that was stopped
        return False
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
    return True


async def agent_of(
    runner: TaskRunner, row: TaskRow, screen: Screen, option: str | None, model: str | None
) -> Agent[Any] | None:
    """Return a task's agent, None if this process does not know it: the runner says so, if it is needed."""
    used = await _model_used(runner, row.task_id) if row.agent == agents.ASSISTANT else None
    known = agents.of_task(row.agent, option, model, used)
    if known is None:
        for place, problem in agents.known().problems.items():
            screen.note(("note: ", "yellow"), f"{place}: {problem}")
    return known


async def _model_used(runner: TaskRunner, task_id: str) -> str | None:
    """Return the model a task asked last: the plain assistant goes on with the one it was begun with."""
    records = await runner.store.read(task_id)
    asked = [event for _, found in unfold(task_id, records) for event in found if type(event) is ModelStarted]
    return asked[-1].model if asked else None


# -------------------------------------------------------------------------------------- what was typed


def read(text: str) -> str:
    """Return an INPUT: what stands there, or standard input for `-`; raises `ConfigurationError` if that is no text."""
    if text != "-":
        return text
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"standard input is not text: {error}") from None


def _agent_and_input(words: list[str]) -> tuple[str | None, str]:
    match words:
        case [text]:
            return None, read(text)
        case [agent, text]:
            return agent, read(text)
        case _:
            raise ConfigurationError(
                "run takes INPUT, or AGENT and INPUT; put an input of several words in quotes"
            )


def of_thread(
    options: RunOptions | None, on_busy_thread: OnBusyThread | None, context_tokens: int | None
) -> RunOptions | None:
    """Return options with those about the thread that were given over them."""
    if on_busy_thread is None and context_tokens is None:
        return options
    return RunOptions(on_busy_thread=on_busy_thread, context_tokens=context_tokens).over(options)


def limited(on_limit: OnLimit | None, **limits: Any) -> RunOptions | None:
    """Return the options that were given, None if none was."""
    given = any(limit is not None for limit in limits.values())
    if not given:
        return RunOptions(on_limit=on_limit) if on_limit is not None else None
    return RunOptions(limits=Limits(**limits), on_limit=on_limit)
