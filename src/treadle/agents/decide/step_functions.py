"""The worker whose steps are functions. It runs all ready steps in parallel, until a step has the answer.

state of the graph          decision
no plan                     a request to the worker for the first step
steps not needed any more   their end, once none of their effects is in flight
a step is ready             its start, while fewer than `max_parallel_steps` run
running steps               their functions, and the calls and model requests that these made
a step failed               the failure policy's decision, once no step runs
nothing                     the failure of the task: the plan leads nowhere
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

from treadle.agents.decide.calls import close_calls, wait_for_calls, want_call
from treadle.agents.decide.failures import (
    degrade,
    fail,
    next_attempt,
    pause,
    policy_for,
    repeats_reached,
    steps_reached,
)
from treadle.agents.decide.guardrails import is_input_held
from treadle.agents.decide.lifecycle import give_up
from treadle.agents.decide.rules import Rules
from treadle.core import events as e
from treadle.core.checks import Check
from treadle.core.effects import (
    CallModel,
    ConsultWorker,
    Decision,
    Effect,
    RunFunction,
    Wait,
)
from treadle.core.graph import Graph, StepNode
from treadle.core.state import TaskState
from treadle.core.steps import CallState, StepState
from treadle.policy.limits import forbids_call, spent_before_a_call

NO_STEP_LEFT: Final = (
    "no step is ready and none runs: the last step must say is_last=True, or name next_steps"
)


def decide(state: TaskState, rules: Rules) -> Decision:
    """Return the task's next action."""
    graph = state.graph
    if graph is None:
        return _first(state, rules)
    given_up = give_up(graph)
    if isinstance(given_up, e.Event):
        return given_up
    held = rules.blocks_input and is_input_held(state, rules)
    begins = None if held else _begin(state, rules, graph)
    if begins is not None:
        return begins
    decision = _decide_running(state, rules, graph)
    if given_up is not None:
        return decision if isinstance(decision, e.Event) else (*_effects(decision), *given_up)
    if decision:
        return decision
    if held:
        return Wait("idle")
    if graph.failed:
        return _after_failure(state, rules, next(iter(graph.failed.values())))
    if graph.running:
        return Wait("idle")
    if state.unread and not (graph.planned or graph.ready):
        return _first(state, rules)  # a message that arrived after the answer
    if rules.only_steps is not None:
        return Wait("idle")
    return fail(state, e.Failure("worker", "no_way_on", NO_STEP_LEFT))


def _effects(decision: Decision | None) -> tuple[Effect, ...]:
    return decision if isinstance(decision, tuple) else ()


def _first(state: TaskState, rules: Rules) -> Decision:
    """Return the plan of a task's first steps, or the request for it."""
    if state.error is not None:
        return fail(state, state.error)
    return e.StepsPlanned(rules.first_steps) if rules.first_steps else (ConsultWorker("initialize"),)


def _begin(state: TaskState, rules: Rules, graph: Graph) -> e.Event | None:
    """Return the start of a step. After a resume, a step that failed without retries starts again."""
    if graph.unneeded:
        return None  # the order of later starts must not depend on how fast these steps end
    if graph.failed:
        if state.error is not None and not all(node.has_retries for node in graph.failed.values()):
            return None
        node = next((node for node in graph.failed.values() if _may_run(rules, node)), None)
        return next_attempt(node.step) if node and node.step else None
    if len(graph.running) >= rules.max_parallel_steps:
        return None
    node = next((node for node in graph.ready if _may_run(rules, node)), None)
    if node is None:
        return None
    reached = steps_reached(rules, graph.started)
    if reached is not None:
        return None if graph.running else reached
    return e.StepStarted(node.id, node.index)


def _may_run(rules: Rules, node: StepNode) -> bool:
    return rules.only_steps is None or node.id in rules.only_steps


def _decide_running(state: TaskState, rules: Rules, graph: Graph) -> Decision | None:
    """Return the effects of running steps, those in flight included; None if there are none."""
    effects: list[Effect] = []
    waiting: list[CallState] = []
    over: list[CallState] = []
    runs = [
        node for node in graph.running.values() if node.id not in graph.unneeded and _may_run(rules, node)
    ]
    for node in islice(runs, rules.max_parallel_steps):
        assert node.step is not None, "a running step has begun"
        effects.append(RunFunction(node.id, node))
        ended = _calls(state, rules, node.step, effects, waiting, over)
        if ended is not None:
            return ended
    if over and not state.in_flight() and all(type(effect) is RunFunction for effect in effects):
        most = rules.limits.tool_calls or 0
        return e.LimitReached("tool_calls", most, state.tool_calls)
    reached = _requests(state, rules, runs, effects)
    if reached is not None:
        return reached
    waiting_for = [*waiting, *[check for check in state.open_approvals.values() if isinstance(check, Check)]]
    return _rest(effects, waiting_for) or (tuple(effects) if effects else None)


def _rest(effects: list[Effect], waiting: Sequence[CallState | Check]) -> Wait | None:
    """Return the task's wait if each running step waits for a person, a ticket or a timer; else None."""
    held = {call.step for call in waiting}
    resting = asks = False
    for effect in effects:
        if type(effect) is not RunFunction:
            return None
        rests = bool(effect.node.sleeps) or any(
            call.tries is not None and call.tries.retry_at is not None
            for call in effect.node.model_calls.values()
        )
        if not rests and effect.node.id not in held and not effect.node.questions:
            return None
        asks = asks or bool(effect.node.questions)
        resting = resting or rests
    if resting:
        return Wait("timer")
    if waiting:
        return wait_for_calls(waiting)
    return Wait("question") if asks else None


def _calls(
    state: TaskState,
    rules: Rules,
    step: StepState,
    effects: list[Effect],
    waiting: list[CallState],
    over: list[CallState],
) -> e.Event | None:
    """Add the effects of a step's calls, the calls that wait for a person, and those over the limit.

    Return the end of a call that ends without being performed.
    """
    most = rules.max_parallel_tools + rules.max_parallel_steps
    asked_again = rules.asked_again if step.attempt > 1 else None
    for call in step.open.values():
        if asked_again is not None and call.id not in asked_again and call.repeats_unasked:
            continue
        if call.status == "proposed" and _over(state, rules, call):
            over.append(call)
            continue
        end = want_call(rules, call, effects, waiting, most)
        if end is not None:
            return end
    return None


def _over(state: TaskState, rules: Rules, call: CallState) -> bool:
    """Whether the limit on calls forbids a proposed call."""
    if not forbids_call(rules.limits, state.tool_calls - 1):
        return False
    proposed = [
        other for step in state.under_way() for other in step.open.values() if other.status == "proposed"
    ]
    return forbids_call(rules.limits, state.tool_calls - len(proposed) + proposed.index(call))


def _requests(
    state: TaskState, rules: Rules, runs: list[StepNode], effects: list[Effect]
) -> e.LimitReached | None:
    """Add the model requests of running steps within limits and timers, or return the reached limit."""
    fresh, spent = 0, None
    for node in runs:
        for call_id, call in node.model_calls.items():
            assert node.step is not None, "a running step has begun"
            if call.status == "held" or (call.tries is not None and call.tries.retry_at is not None):
                continue
            if call.status == "proposed":
                spent = spent_before_a_call(rules.limits, state, reserve=False, besides=fresh)
                spent = spent or _repeats_reached(state, rules, node.step)
                if spent is not None:
                    continue
                fresh += 1
            effects.append(CallModel(call_id, node.step, call))
    in_flight = fresh or state.in_flight()
    return None if in_flight else spent


def _repeats_reached(state: TaskState, rules: Rules, step: StepState) -> e.LimitReached | None:
    """Return the limit on repeats if the model's calls in a step reach it."""
    calls = (call for call in reversed(step.calls) if call.from_model and call.status == "ended")
    return repeats_reached(state, rules, calls)


def _after_failure(state: TaskState, rules: Rules, node: StepNode) -> Decision:
    """Return the failure policy's decision on a failed step, now that no step runs."""
    step = node.step
    error = step.error if step is not None else None
    if step is None or error is None:
        return Wait("idle")
    policy = policy_for(rules, error.source)
    reason = f"step {node.plan.name!r} failed: {error.message}"
    if policy == "pause":
        return pause(step, reason) or next_attempt(step)
    # A step that does not run in this drive may have open calls. After a resume, it makes them anew.
    open_call = close_calls(state, f"step {node.plan.name!r} failed", "refused")
    if open_call is not None:
        return open_call
    return degrade(state, rules, reason, error) if policy == "degrade" else fail(state, error)
