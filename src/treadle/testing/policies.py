"""Test policies on recorded tasks: compute the verdicts of a policy on calls that were made without it.

    for effect in await judged(Policy.from_file("policy.toml"), recording, agent):
        assert effect.verdict != "deny", effect.text

Each call is judged as it was proposed, with the task's usage and content at that time. Nothing runs, and nothing is
written. With the policy the task would have taken another path after the first refusal, so later verdicts are only
hints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from treadle.agents.agent import Agent
from treadle.core import origins
from treadle.core.data import frozen
from treadle.core.events import ModelStarted, StepCompleted, ToolStarted
from treadle.core.ids import base_call_id
from treadle.core.messages import Json
from treadle.core.rules.fold import apply, begin_with_history
from treadle.core.state import TaskState
from treadle.core.tools import ToolSpec
from treadle.engine.judging import answers_of
from treadle.policy.policy import Policy
from treadle.policy.requests import Exposure, Seen, Surroundings, call_request, handoff_request, model_request
from treadle.policy.verdicts import (
    MAX_REPLACEMENTS,
    Allow,
    AskPerson,
    Deny,
    EffectKind,
    EffectRequest,
    PolicyVerdict,
    Replace,
)
from treadle.replay.recording import Recording

Word = Literal["allow", "ask", "deny", "replace", "none"]


@frozen
class JudgedEffect:
    """A policy's verdict on an effect of a recorded task.

    Args:
        task_id, step, call: the place of the effect; a model request has no call.
        kind: the kind of effect.
        name: the name of the tool or the model.
        arguments: the arguments of the call, as the model wrote them.
        verdict: `allow`, `ask`, `deny`, `replace`, or `none` if no rule applies. `replace` means that the call would
            run with changed arguments. If these are asked about or denied, the verdict is `ask` or `deny`.
        rule: the id of the deciding rule; several are joined by `+`.
        rules: the ids of all rules that apply.
        text: the reason, in one sentence.
        replaced: the policy's replacement for the arguments; None if it leaves them unchanged.
    """

    task_id: str
    step: str
    call: str
    kind: EffectKind
    name: str
    arguments: dict[str, Json]
    verdict: Word
    rule: str
    rules: tuple[str, ...]
    text: str
    replaced: dict[str, Json] | None = None


async def judged(
    policy: Policy,
    recording: Recording,
    agent: Agent[Any] | None = None,
    *,
    labels: Mapping[str, str] | None = None,
) -> list[JudgedEffect]:
    """Return a policy's verdict on each call and each model request of a recorded task, in order.

    Args:
        policy: the policy; its functions are called.
        recording: the task, from `record` or `load`.
        agent: its agent, whose tools declare their effects; without it, only the facts in the journal count.
        labels: the labels of the task.
    """
    state = TaskState(recording.task_id)
    specs, subagents = _tools_of(recording, agent)
    handoffs = _handoffs_of(recording, agent)
    exposure, seen = Exposure(specs), set[str]()
    effects = list[JudgedEffect]()
    for event in recording.events:
        if isinstance(event, ModelStarted):
            around = _surroundings(labels, exposure.of(state))
            request = model_request(state, event.model, event.step, around)
            if policy.concerns("model", request.name, request.agent):
                effects.append(await _judged(policy, request))
        apply(state, event)
        if state.seq == 1 and recording.history:
            untrusted = origins.merged(origins.of_messages(recording.history))
            begin_with_history(state, [*recording.history], summarised=False, untrusted=untrusted)
        for step in state.under_way():
            for call in step.open.values():
                base = base_call_id(call.id)
                if base in seen or call.answers or call.problem is not None:
                    continue
                seen.add(base)
                around = _surroundings(labels, exposure.of(state))
                kind: EffectKind = "subagent" if call.name in subagents else "tool"
                spec, target = specs.get(call.name), handoffs.get(call.name)
                request = (
                    call_request(state, call, spec, kind, around)
                    if target is None
                    else handoff_request(state, call, spec, target, around)
                )
                effects.append(await _judged(policy, request))
    return effects


def _surroundings(labels: Mapping[str, str] | None, seen: Seen) -> Surroundings:
    return Surroundings(labels=labels or {}, exposed=seen.effects, untrusted=seen.untrusted)


async def _judged(policy: Policy, request: EffectRequest) -> JudgedEffect:
    """Judge an effect as a runner would; replaced arguments are judged again."""
    present, texts, by, applied = request, list[str](), list[str](), list[str]()
    verdict: PolicyVerdict | None = None
    for _ in range(MAX_REPLACEMENTS + 1):
        answers = await answers_of(policy, present)
        explained = policy.explain(present, answers)
        verdict = explained.verdict
        applied += [rule for rule in explained.rules if rule not in applied]
        if verdict is None and texts:
            break
        texts.append(explained.text)
        by += [verdict.rule] if verdict is not None and verdict.rule else []
        if not isinstance(verdict, Replace):
            break
        present = replace(present, arguments=verdict.arguments)
    else:
        verdict = Deny(
            by[-1], f"its arguments were replaced {MAX_REPLACEMENTS} times, and are not accepted yet"
        )
        texts.append(f"It is denied: {verdict.reason}.")
    is_replaced = present is not request
    return JudgedEffect(
        request.task_id,
        request.step,
        request.call,
        request.kind,
        request.name,
        request.arguments,
        "replace" if is_replaced and not isinstance(verdict, (AskPerson, Deny)) else _verdict_word(verdict),
        "+".join(dict.fromkeys(by)),
        tuple(applied),
        " ".join(texts),
        present.arguments if is_replaced else None,
    )


def _verdict_word(verdict: PolicyVerdict | None) -> Word:
    words: dict[type, Word] = {Allow: "allow", AskPerson: "ask", Deny: "deny", Replace: "replace"}
    return "none" if verdict is None else words[type(verdict)]


def _handoffs_of(recording: Recording, agent: Agent[Any] | None) -> dict[str, str]:
    """Return the target agents of handoff tools by tool name, for all agents that had the task."""
    ends = [event.next_agent for event in recording.events if isinstance(event, StepCompleted)]
    handoffs = {end.tool: end.agent for end in ends if end is not None}
    if agent is not None:
        handoffs |= {name: handoff.agent_name for name, handoff in agent.handoffs_by_tool.items()}
    return handoffs


def _tools_of(recording: Recording, agent: Agent[Any] | None) -> tuple[dict[str, ToolSpec], frozenset[str]]:
    """Return specifications of tools by name, and the names of agent tools, from the agent or else the journal."""
    if agent is not None:
        return {tool.spec.name: tool.spec for tool in agent.tools}, frozenset(agent.subagents_by_tool)
    state, specs, agents = TaskState(recording.task_id), dict[str, ToolSpec](), set[str]()
    for event in recording.events:
        apply(state, event)
        call = state.open_call(event.call) if isinstance(event, ToolStarted) else None
        if isinstance(event, ToolStarted) and call is not None and event.effect == "agent":
            agents.add(call.name)
        elif isinstance(event, ToolStarted) and call is not None:
            specs[call.name] = ToolSpec(
                name=call.name,
                read_only=event.effect == "read",
                idempotent=event.effect == "idempotent",
                undoable=event.undo,
                declared=event.effect != "write",
            )
    return specs, frozenset(agents)
