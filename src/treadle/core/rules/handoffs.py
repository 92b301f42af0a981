"""How a conversation moves from agent to agent, and back when steps are undone. Rules of `fold`.

The agent of the task after each event:

    event                          the task is then with
    StepCompleted, next_agent      the same agent, and the next step cannot begin
    AgentChanged                   the next agent, with its last instructions and version in this task
    Rewound                        the agent after the step that stays
    TaskForked, another agent      that agent; earlier steps are not its own
"""

from __future__ import annotations

from dataclasses import replace

from treadle.core.children import SpentBy
from treadle.core.events import AgentChanged, IllegalEvent, NextAgent, TaskForked
from treadle.core.state import TaskState
from treadle.core.steps import StepState
from treadle.core.team import AgentVersion, Team


def ask(state: TaskState, next_agent: NextAgent) -> None:
    """Record the handoff that the end of a step requested."""
    state.team = replace(state.team or Team(state.agent), next=next_agent)


def step_agent(state: TaskState, team: Team) -> str:
    """Return the agent of a step that begins. Raises `IllegalEvent` while a handoff is pending."""
    if team.next is not None:
        raise IllegalEvent(
            f"task {state.task_id}: a step begins before the conversation moved to {team.next.agent}"
        )
    return team.agent


def agent_of(state: TaskState, step: StepState) -> str:
    """Return the agent of a step."""
    return step.agent or state.created_for


def change(state: TaskState, event: AgentChanged) -> None:
    """Move the conversation to the requested agent."""
    team = state.team
    if team is None or team.next is None or (team.next.agent, team.next.call) != (event.agent, event.call):
        raise IllegalEvent(f"task {state.task_id}: {event.kind} to {event.agent}, and no step ended so")
    turns = {**team.turns, state.agent: state.turn}
    _leave(state, event.agent, event.fingerprint)
    state.turn, state.rejected = turns.get(event.agent, 0), 0
    since = len(state.messages)
    state.team = Team(event.agent, team.handoffs + 1, event.previous, team.next.tool, since, turns)


def go_back(state: TaskState, team: Team | None) -> None:
    """Return to the former agent of the conversation, after an undo."""
    agent = team.agent if team is not None else state.created_for
    if agent != state.agent:
        version = state.versions.get(agent)
        _leave(state, agent, version.fingerprint if version is not None else "")
    state.team = team


def begin_anew(state: TaskState, event: TaskForked) -> None:
    """Give a fork to the agent that its caller chose."""
    state.agent, state.team = event.agent, None
    state.versions.clear()


def spent_by_present(state: TaskState) -> SpentBy:
    """Return the spending of the task's present agent, without tool calls: the total minus that of other agents."""
    others = [version.spent for agent, version in state.versions.items() if agent != state.agent]
    usage, model_calls, cost = state.usage, state.model_calls, state.cost
    unpriced = set(state.unpriced)
    for other in others:
        usage, model_calls, cost = usage - other.usage, model_calls - other.model_calls, cost - other.cost
        unpriced -= set(other.unpriced)
    for step in state.steps:
        if agent_of(state, step) == state.agent:
            unpriced |= set(step.unpriced)
    return SpentBy(state.agent, 0, usage, model_calls, 0, cost, tuple(sorted(unpriced)))


def _leave(state: TaskState, agent: str, fingerprint: str) -> None:
    """Store version and instructions of the present agent, and restore those of another."""
    state.versions[state.agent] = AgentVersion(state.fingerprint, state.instructions, spent_by_present(state))
    stored = state.versions.get(agent)
    is_same = stored is not None and stored.fingerprint == fingerprint
    state.agent, state.fingerprint = agent, fingerprint
    state.instructions = stored.instructions if stored is not None and is_same else None
