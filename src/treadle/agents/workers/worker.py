"""Custom workers: one function for all steps, an `AgentWorker`, or a pure `decide`."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Container, Sequence
from typing import Any, Protocol, TypeAlias, cast, runtime_checkable

from treadle.agents.context import ContextNeed, RunContext, type_named_by
from treadle.agents.decide import step_functions
from treadle.agents.decide.lifecycle import DecideFunction
from treadle.agents.workers.step_context import StepContext
from treadle.core.codec import is_writable, storable
from treadle.core.data import frozen
from treadle.core.events import NextStep
from treadle.core.graph import Graph
from treadle.core.messages import File, Json
from treadle.core.refused_uses import can_be_called, no_function
from treadle.core.rules.schedule import InvalidPlan, check, names_before
from treadle.errors import ConfigurationError, WorkerError
from treadle.ports import ContextT

FIRST = "start"
"""The name of the first step of a worker that is a plain function."""


class Quorum(int):
    """A join: `n` of the steps that a step waits for must succeed. Then the others are stopped."""

    def __new__(cls, n: int) -> Quorum:
        if isinstance(n, bool) or n < 1:
            raise ConfigurationError(f"Quorum must be a whole number from 1 up, got {n!r}")
        return super().__new__(cls, n)


@frozen
class StepResult:
    """The result of a step.

    Args:
        output: JSON data: the task's answer if this is the last step, else the input of the following steps.
        is_last: whether the output is the task's answer.
        next_steps: the steps to plan. A step without `after` may begin at once, in parallel with others.
        skipped: why the step skips itself: a text, or the exception with which it failed. After an exception the task
            is degraded, unless other steps replace it. A skipped step has no output, and a join of `any` does not count
            it.
        sources: the sources of the output, each JSON data such as `{"title", "url"}`. Sources of its calls are added.
        artifacts: files that the step made, each a `File` with a name and bytes, or a URL.
    """

    output: Json = None
    is_last: bool = False
    next_steps: Sequence[NextStep] = ()
    skipped: str | Exception | None = None
    sources: Sequence[Json] = ()
    artifacts: Sequence[File] = ()


StepFunction: TypeAlias = Callable[[StepContext[ContextT]], StepResult | Awaitable[StepResult]]
"""A worker that is one function for all steps."""


@runtime_checkable
class AgentWorker(Protocol):
    """A worker in three parts; each may be `async`, or not."""

    def initialize_step(self, task: RunContext[Any]) -> NextStep | Awaitable[NextStep]:
        """Return the first step of a task."""
        ...

    def run_step(self, ctx: StepContext[Any]) -> StepResult | Awaitable[StepResult]:
        """Run a step; its name is `ctx.name`."""
        ...

    def finalize_task(self, task: RunContext[Any], output: Json) -> Json | Awaitable[Json]:
        """Return an answer instead of this one, or None to leave it. Called at least once before the task ends."""
        ...


class Decider:
    """A worker that is one pure function of state and rules, such as `treadle.agents.decide.function_calling`.

    Args:
        decide: called after each event. It returns an event, effects or `Wait`, and has no side effects.
    """

    def __init__(self, decide: DecideFunction) -> None:
        if not can_be_called(decide):
            raise ConfigurationError(
                f"Decider takes a function of state and rules, got {no_function(decide)}"
            )
        self.decide: DecideFunction = decide

    runs_functions = finalizes_answers = False
    context_needs: tuple[ContextNeed, ...] = ()
    first_steps: tuple[NextStep, ...] = ()

    def facts(self) -> Json:
        """Return JSON data that differs between workers, for the fingerprint of an agent."""
        return f"decider:{qualified_name(self.decide)}"


class FunctionWorker:
    """A worker whose steps are functions, as a runner drives it."""

    decide: DecideFunction = staticmethod(step_functions.decide)
    runs_functions = True

    def __init__(self, worker: Any) -> None:
        self.parts: AgentWorker | None = None
        if isinstance(worker, AgentWorker):
            self.parts = worker
            self.run: Callable[[StepContext[Any]], Any] = worker.run_step
        else:
            self.run = worker
        self.blocks = not is_async(self.run)
        """whether its steps run in a thread"""

    @property
    def first_steps(self) -> tuple[NextStep, ...]:
        """The first steps of a task; empty if the worker must be asked for them."""
        return (NextStep(FIRST),) if self.parts is None else getattr(self.parts, "first_steps", ())

    @property
    def needs_model(self) -> bool:
        """Whether an agent of this worker must have a model. A plain function may make no request."""
        return self.parts is not None

    @property
    def context_needs(self) -> tuple[ContextNeed, ...]:
        """The required types of the context, of the step function or of the worker's parts."""
        if self.parts is not None:
            return getattr(self.parts, "context_needs", ())
        return (ContextNeed("its worker", type_named_by(self.run, StepContext)),)

    @property
    def finalizes_answers(self) -> bool:
        """Whether the worker is called with the answer before the task ends."""
        return self.parts is not None and getattr(self.parts, "finalizes_answers", True)

    @property
    def degrades(self) -> bool:
        """Whether skipping a failed step degrades the task. It does not if the worker's model handles failures."""
        return getattr(self.parts, "degrades", True)

    def facts(self) -> Json:
        """Return JSON data that differs between workers, for the fingerprint of an agent."""
        facts = getattr(self.parts, "facts", None)
        if callable(facts):
            return cast("Json", facts())
        return f"function:{qualified_name(self.run if self.parts is None else type(self.parts))}"

    async def initialize(self, task: RunContext[Any]) -> tuple[NextStep, ...]:
        """Return the first steps of a task."""
        assert self.parts is not None, "a plain function is not consulted"
        step = await _awaited(self.parts.initialize_step(task))
        steps = (step,) if isinstance(step, NextStep) else tuple(step)
        return checked_steps("initialize_step", steps, ())

    async def finalize(self, task: RunContext[Any], output: Json) -> Json:
        """Return the answer instead of an output; None leaves it unchanged."""
        assert self.parts is not None, "a plain function is not consulted"
        answer = await _awaited(self.parts.finalize_task(task, output))
        if not is_writable(answer):
            raise WorkerError(f"finalize_task must return JSON data or None, got {answer!r:.200}")
        return answer


def checked_result(ctx: StepContext[Any], graph: Graph, result: Any) -> StepResult:
    """Return a step function's result with plain JSON data as its output; raises `WorkerError`."""
    where = f"step {ctx.name!r} ({ctx.step_id})"
    if not isinstance(result, StepResult):
        raise WorkerError(f"{where} must return a StepResult, got {result!r:.200}")
    try:
        output = storable(result.output)
    except ValueError:
        raise WorkerError(f"{where}: output must be JSON data, got {result.output!r:.200}") from None
    node = graph.nodes[ctx.step_id]
    planned: Any = result.next_steps
    if not isinstance(planned, Sequence) or isinstance(planned, str):
        raise WorkerError(f"{where}: next_steps must be a list of NextStep, got {planned!r:.200}")
    steps = checked_steps(where, tuple(cast("Sequence[Any]", planned)), names_before(graph, node))
    others = len(graph.running) > 1 or graph.ready or graph.planned
    has_results = output is not None or result.sources or result.artifacts
    if result.skipped is not None and (result.is_last or steps or has_results):
        raise WorkerError(f"{where} is skipped: it can have no output and no next steps, nor be the last")
    if not (result.is_last or steps or others):
        raise WorkerError(
            f"{where} is neither the last step nor followed by one: say is_last=True or name next_steps"
        )
    return StepResult(output, bool(result.is_last), steps, result.skipped, result.sources, result.artifacts)


def checked_steps(where: str, steps: tuple[Any, ...], names: Container[str]) -> tuple[NextStep, ...]:
    """Return planned steps that can be journalled and run; raises `WorkerError` for others."""
    for step in steps:
        if not isinstance(step, NextStep):
            raise WorkerError(f"{where}: a next step must be a NextStep, got {step!r:.200}")
        if not isinstance(step.name, str) or not step.name:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise WorkerError(f"{where}: a step's name must be text, got {step.name!r}")
        is_join = step.join in ("all", "any", "optional") or isinstance(cast("object", step.join), int)
        if isinstance(step.after, str) or not is_join:
            raise WorkerError(
                f"{where}: step {step.name!r} must have a sequence of names as after=, and as join= 'all', 'any', "
                f"'optional' or Quorum(n), got {step.after!r} and {step.join!r}"
            )
        if type(step.retries) is not int or step.retries < 0:
            raise WorkerError(
                f"{where}: retries of step {step.name!r} must be a whole number from 0 up, got {step.retries!r}"
            )
    checked = tuple([NextStep(s.name, _input(where, s), tuple(s.after), s.join, s.retries) for s in steps])
    try:
        check(checked, names)
    except InvalidPlan as error:
        raise WorkerError(f"{where}: {error}") from None
    return checked


def _input(where: str, step: NextStep) -> Json:
    try:
        return storable(step.input)
    except ValueError:
        raise WorkerError(
            f"{where}: the input of step {step.name!r} must be JSON data, got {step.input!r:.200}"
        ) from None


def is_async(fn: Any) -> bool:
    """Whether a function, or the call method of an object, is `async`."""
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def qualified_name(fn: Any) -> str:
    """Return the name of a function, or of the class of an object, with its module."""
    return f"{getattr(fn, '__module__', '')}.{getattr(fn, '__qualname__', type(fn).__qualname__)}"
