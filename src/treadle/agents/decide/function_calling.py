"""The function-calling worker: call the model, run its calls and send it the results, until it answers.

    state of the task          decision
    no step                    the start of a step
    step without an answer     a request to the model
    answer with calls          the calls, in parallel; those that a crash cut off are settled first
    answer without calls       the end of the step, as the last one unless the answer is of the wrong type
    all calls ended            the end of the step, as the last one if a `return_direct` call succeeded
    a call handed over         the end of the step, then a wait until the conversation has moved to the next agent

A step is one answer of the model with its calls. A failed step ends the task, and `resume` runs it again.
"""

from __future__ import annotations

from typing import Final

from treadle.agents.decide.calls import (
    close_calls,
    failure_of,
    failures_that_count,
    is_joined,
    stop_unneeded,
    wait_for_calls,
    want_call,
)
from treadle.agents.decide.failures import (
    degrade,
    fail,
    limit_text,
    next_attempt,
    pause,
    repeats_reached,
    steps_reached,
)
from treadle.agents.decide.handoffs import next_agent_of, want_handoff
from treadle.agents.decide.rules import Rules, ToolFailurePolicy
from treadle.agents.finish_reasons import REASONS
from treadle.core import events as e
from treadle.core.effects import CallModel, ChooseRoute, Decision, Effect, Wait
from treadle.core.ends import not_begun, withheld_end
from treadle.core.ids import route_id, step_id
from treadle.core.messages import Text
from treadle.core.observation import as_text
from treadle.core.rules.fold import INVALID_OUTPUT
from treadle.core.state import TaskState
from treadle.core.steps import CallState, StepState
from treadle.policy.limits import forbids_call, spent_before_a_call
from treadle.policy.progress import newest_calls, was_made_before


def decide(state: TaskState, rules: Rules) -> Decision:
    """Return the task's next action."""
    step = state.step
    if step is None:
        return _begin(state, rules)
    if step.status == "failed":
        return next_attempt(step) if state.error is None else fail(state, state.error)
    if _wants_an_answer(state, step):
        return _ask(state, rules, step)
    if step.open:
        answering = _answering_end(step) if step.typed is not None else None
        if answering is not None:
            return answering
        refused = close_calls(state, "no tool was offered", "refused") if step.model_call.final else None
        return refused or _run_calls(state, rules, step)
    return _complete(state, rules, step)


def _wants_an_answer(state: TaskState, step: StepState) -> bool:
    """Whether the step needs an answer: its first, or a last one after its calls at a limit."""
    status = step.model_call.status
    if status == "proposed" or status == "failed":
        return len(step.calls) == step.answered_calls or state.limit is not None
    return status == "begun"


def _begin(state: TaskState, rules: Rules) -> Decision:
    if state.team is not None and state.team.next is not None:
        return Wait("handoff")
    index = state.steps[-1].index + 1 if state.steps else 1
    return steps_reached(rules, index - 1) or e.StepStarted(step_id(state.branch, index), index)


def _ask(state: TaskState, rules: Rules, step: StepState) -> Decision:
    call = step.model_call
    if step.error is not None and call.status != "begun":
        failed = _model_failed(state, rules, step, step.error)
        if failed is not None:
            return failed
    if call.tries is not None and call.tries.retry_at is not None:
        return Wait("timer")
    if state.unread and step.unasked:
        # Messages that arrived while the step was stopped come before its next request.
        return e.StepStarted(step.id, step.index, step.attempt)
    final = state.limit is not None
    if call.status != "begun" and not final:
        reserve = rules.on_limit == "final_answer" and bool(rules.tools)
        spent = spent_before_a_call(rules.limits, state, reserve=reserve)
        if spent is not None:
            return spent
        if rules.routed and not step.routed and not call.attempt:
            return (ChooseRoute(route_id(step.id), step),)
    return (CallModel(step.id, step, call, final),)


def _model_failed(state: TaskState, rules: Rules, step: StepState, error: e.Failure) -> Decision | None:
    if error.source == "guardrail":
        return e.StepFailed(step.id, error)  # a refusal stops the task, unlike a failure
    if rules.on_model_failure == "pause":
        return pause(step, f"model failed: {error.message}")  # after a resume, the model is called again
    if rules.on_model_failure == "degrade":
        return degrade(state, rules, f"the model failed: {error.message}", error)
    return e.StepFailed(step.id, error)


def _run_calls(state: TaskState, rules: Rules, step: StepState) -> Decision:
    effects: list[Effect] = []
    waiting: list[CallState] = []
    calls = [call for call in step.calls if not call.answers] if step.typed is not None else step.calls
    before = state.tool_calls - len(calls)
    unneeded = rules.agents if rules.join != "all" and is_joined(rules, step) else ()
    handoff: CallState | None = None
    for number, call in enumerate(calls):
        if call.status == "ended" or call.status == "deferred":
            continue
        if call.name in unneeded:
            end = stop_unneeded(call, effects)
            if end is not None:
                return end
            continue
        if call.status == "proposed" and forbids_call(rules.limits, before + number):
            text = f"{not_begun(call)}: the limit of {rules.limits.tool_calls} tool calls is reached."
            return withheld_end(call, "refused", e.Failure("limit", "tool_calls", text, call.id))
        if rules.handoffs and call.name in rules.handoffs and call.status == "proposed":
            handoff = handoff or call
            continue
        end = want_call(rules, call, effects, waiting, rules.max_parallel_tools)
        if end is not None:
            return end
    if handoff is not None:
        end = want_handoff(state, rules, step, handoff, effects, waiting)
        if end is not None:
            return end
    return tuple(effects) or (() if state.in_flight() else wait_for_calls(waiting))


def _complete(state: TaskState, rules: Rules, step: StepState) -> Decision:
    if step.model_call.final:
        return _last_answer(state, rules, step)
    if rules.output_retries is not None:
        answered = _typed(state, rules, step, rules.output_retries)
        if answered is not None:
            return answered
    elif not step.calls:
        last = not state.unread
        return e.StepCompleted(step.id, last, step.text, reason=REASONS.get(step.model_call.finish))
    failure = _unreadable(state, rules, step) or _failed_call(rules, step)
    if failure is not None:
        return failure
    for call in step.calls:
        spec = rules.tools.get(call.name)
        if spec is not None and spec.return_direct and call.outcome == "ok":
            output = call.display if call.display is not None else as_text(call.output)
            return e.StepCompleted(step.id, not state.unread, output, True, _tolerated(rules, step))
    next_agent = next_agent_of(rules, step) if rules.handoffs else None
    if state.limit is None:
        reached = _limit_after(state, rules, step) if next_agent is None else None
        if reached is not None:
            return reached
    elif rules.on_limit == "final_answer":
        return (CallModel(step.id, step, step.model_call, True),)
    return e.StepCompleted(step.id, reason=_tolerated(rules, step), next_agent=next_agent)


def _answering_end(step: StepState) -> e.ToolEnded | None:
    """Return the end of the first open call that is the typed answer. It was read already and never runs."""
    typed = step.typed
    call = next((call for call in step.open.values() if call.answers and call.status == "proposed"), None)
    if call is None or typed is None:
        return None
    if typed.call != call.id:
        problem = "The answer was given by another call: call it once."
    elif typed.problem is not None:
        problem = typed.problem
    else:
        return e.ToolEnded(step.id, call.id, "ok", observation=(Text("The answer was taken."),))
    return e.ToolEnded(
        step.id, call.id, "invalid", error=e.Failure("model", INVALID_OUTPUT, problem, call.id)
    )


_OTHER_MODES: Final = (
    'The model was asked to answer by a call (output_mode="tool"). If its answers do not fit the schema, try '
    'output_mode="native", the structured output of the provider, or "prompt".'
)


def _typed(state: TaskState, rules: Rules, step: StepState, retries: int) -> Decision | None:
    """Return the decision on a typed answer; None if the next step must give it."""
    typed = step.typed
    if typed is None:
        why = REASONS.get(step.model_call.finish) if not step.calls else None
        return e.StepCompleted(step.id, not state.unread, reason=why) if why is not None else None
    if typed.problem is None:
        direct = typed.call is not None
        return _failed_call(rules, step) or e.StepCompleted(
            step.id, not state.unread, typed.output, direct, _tolerated(rules, step)
        )
    if state.rejected <= retries:
        return None
    times = "1 answer was" if state.rejected == 1 else f"{state.rejected} answers were"
    text = f"{times} not of the agent's output type, at last because of this: {typed.why_rejected}"
    if rules.asks_by_tool:
        text = f"{text.rstrip('.')}. {_OTHER_MODES}"
    error = e.Failure("model", INVALID_OUTPUT, text, typed.call)
    return _model_failed(state, rules, step, error)


def _last_answer(state: TaskState, rules: Rules, step: StepState) -> e.StepCompleted:
    reason = limit_text(state)
    if rules.output_retries is None:
        return e.StepCompleted(step.id, True, step.text, reason=reason)
    typed = step.typed
    if typed is None or typed.problem is not None:
        return e.StepCompleted(step.id, True, reason=f"{reason}; the last answer was not of the output type")
    return e.StepCompleted(step.id, True, typed.output, typed.call is not None, reason)


def _limit_after(state: TaskState, rules: Rules, step: StepState) -> e.LimitReached | None:
    """Return the limit that the end of a step without an answer reaches."""
    limits = rules.limits
    if (
        limits.tool_calls is not None
        and state.tool_calls > limits.tool_calls
        and any(call.outcome == "refused" for call in step.calls)
    ):
        return e.LimitReached("tool_calls", limits.tool_calls, state.tool_calls)
    if rules.on_limit == "final_answer" and step.index >= limits.allowed_steps:
        return e.LimitReached("steps", limits.allowed_steps, step.index)
    if not was_made_before(state, step):
        return None
    if rules.max_parse_errors is not None and step.calls[-1].problem is not None:
        return None  # unreadable answers have a bound of their own
    return repeats_reached(state, rules, newest_calls(state))


def _unreadable(state: TaskState, rules: Rules, step: StepState) -> e.StepFailed | None:
    """Return the failure of a step whose unreadable answer is one too many in a row.

    The next attempt of this step completes, and the next step calls the model again.
    """
    most = rules.max_parse_errors
    if most is None or step.attempt > 1 or not _is_unreadable(step):
        return None
    count, index = 1, len(state.steps)
    while count < most and index > state.floor and _is_unreadable(state.steps[index - 1]):
        if state.steps[index - 1].attempt > 1:
            break
        count, index = count + 1, index - 1
    if count < most:
        return None
    problem = step.calls[-1].problem
    times = f"{count} answers of the model in a row" if count > 1 else "the model's answer"
    text = f"{times} could not be read, at last because {problem}"
    return e.StepFailed(step.id, e.Failure("worker", "unparsable", text))


def _is_unreadable(step: StepState) -> bool:
    """Whether all calls of a step's answer are unreadable."""
    return step.status != "skipped" and bool(step.calls) and all(call.problem for call in step.calls)


def _failed_call(rules: Rules, step: StepState) -> Decision | None:
    """Return the failure policy's decision on the first failed call; None if the model handles it."""
    if rules.on_unknown_outcome == "fail" and step.attempt == 1:
        unknown = next((call for call in step.calls if call.outcome == "unknown"), None)
        if unknown is not None and unknown.error is not None:
            return e.StepFailed(step.id, unknown.error)
    if rules.on_denied_call in _STOPS:
        stopped = _denied_call(rules, step)
        if stopped is not None:
            return stopped
    if (
        rules.on_tool_failure not in _STOPS
        and rules.on_subagent_failure not in _STOPS
        and not rules.on_failure_of
    ):
        return None
    failed = failures_that_count(rules, step)
    call = next((call for call in failed if _policy_for(rules, call) in _STOPS), None)
    if call is None or call.error is None:
        return None
    error = failure_of(rules, step, call, call.error)
    if _policy_for(rules, call) == "fail":
        return e.StepFailed(step.id, error)
    return pause(step, error.message)


def _denied_call(rules: Rules, step: StepState) -> Decision | None:
    """Return the decision on the first denied call; None after a resume, when the model handles it."""
    call = next((call for call in step.calls if call.outcome == "denied"), None)
    if call is None or call.error is None:
        return None
    if rules.on_denied_call == "pause":
        return pause(step, call.error.message)
    return e.StepFailed(step.id, call.error) if step.attempt == 1 else None


_STOPS = ("fail", "pause")
"""The failure policies under which the model does not handle the failure."""


def _policy_for(rules: Rules, call: CallState) -> ToolFailurePolicy:
    if call.child is None:
        return rules.on_tool_failure
    return rules.on_failure_of.get(call.name) or rules.on_subagent_failure


def _tolerated(rules: Rules, step: StepState) -> str | None:
    """Return why the task is degraded from now on: a call failed, and the policy is `degrade`."""
    if rules.on_denied_call == "degrade":
        denied = next((call for call in step.calls if call.outcome == "denied"), None)
        if denied is not None and denied.error is not None:
            return denied.error.message
    if (
        rules.on_tool_failure != "degrade"
        and rules.on_subagent_failure != "degrade"
        and not rules.on_failure_of
    ):
        return None
    failed = failures_that_count(rules, step)
    call = next((call for call in failed if _policy_for(rules, call) == "degrade"), None)
    if call is None or call.error is None:
        return None
    return f"{call.name} failed: {failure_of(rules, step, call, call.error).message}"
