"""Steps that depend on each other: planned, ready and running steps, and the messages that each step sees.

Only tasks of step functions have a graph. In other tasks one step follows another. `path` orders steps independently of
the order in which they end. If a step runs alone, the steps that it plans get the next numbers. If it has siblings,
they get numbers below its own. So numbers never depend on the speed of a step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Literal, TypeAlias

from treadle.core.data import frozen, mutable
from treadle.core.events import InputReceived, NextStep
from treadle.core.messages import Json, Message
from treadle.core.questions import Question
from treadle.core.steps import CallState, ModelCall, Sleep, StepState

NodeStatus = Literal["planned", "ready", "running", "completed", "failed", "skipped"]


@frozen
class MemoValue:
    """A value that stays the same each time its function is entered."""

    value: Json


@mutable
class MemoEntry:
    """The result of a function's request under a key, for the next time that the function is entered."""

    digest: str
    done: ModelCall | CallState | MemoValue | Question


StepPath: TypeAlias = tuple[int, ...]


@mutable
class StepNode:
    """One step of a graph, from its plan to its end. `after` are ids, and `by` is the step that planned it."""

    id: str
    index: int
    path: StepPath
    plan: NextStep
    after: tuple[str, ...]
    by: str | None
    round: int = 0
    """the number of the task's restarts when this step, or the first step that led to it, was planned"""

    status: NodeStatus = "planned"
    skipped_by: str | None = None
    """`StepSkipped.by`, if the step was skipped"""

    skip_reason: str | None = None
    """`StepSkipped.reason`, if the step was skipped"""

    unneeded_for: str | None = None
    """the step that made this one unneeded, if any"""

    waits: int = 0
    """the number of steps in `after` that have not ended"""

    won: int = 0
    """how many of them succeeded"""

    passed: int = 0
    """how many of them skipped themselves"""

    needed_by: list[str] = field(default_factory=list[str])
    """ids of the steps that wait for it"""

    step: StepState | None = None
    inherited: bool = False
    """whether a fork inherited it from its parent"""

    overtaken: int | None = None
    """the number of restarts when unread input followed the step's answer; None without such input"""

    alone: bool = False
    """whether no other step can run in parallel, so that its messages join the conversation at once"""

    seen_messages: int = 0
    """the number of messages of the conversation that it sees"""

    unmerged_before: tuple[StepNode, ...] = field(default=(), compare=False, repr=False)
    """the steps whose messages it sees in addition, since they are not in the conversation yet"""

    messages: list[Message] = field(default_factory=list[Message])
    merged: bool = False
    since: int = 0
    """index in the conversation of the first message that was merged together with its own"""

    read: tuple[InputReceived, ...] = ()
    reason: str | None = None
    answers: int = 0
    model_calls: dict[str, ModelCall] = field(default_factory=dict[str, ModelCall])
    """requests to the model that have not ended"""

    newest_calls: tuple[str, ...] = ()
    """ids of the calls in its newest answer"""

    offers: dict[str, tuple[str, ...]] = field(default_factory=dict[str, "tuple[str, ...]"])
    """the tools of a request with calls, by its id, if it offered only a part of the agent's tools"""

    owes_results: bool = False
    """whether its messages lack the results of these calls"""

    requests: int = 0
    """the number of requests and calls of its function"""

    calls: int = 0
    """the number of its calls that limits count"""

    questions: dict[str, Question] = field(default_factory=dict[str, Question])
    """the questions of its function that are not answered, by id"""

    sleeps: dict[int, Sleep] = field(default_factory=dict[int, Sleep])
    """the sleeps of its function that are not over, by place"""

    slept: set[int] = field(default_factory=set[int])
    """the places of finished sleeps"""

    memo: dict[str, MemoEntry] = field(default_factory=dict[str, MemoEntry])
    tried: dict[str, int] = field(default_factory=dict[str, int])
    """the number of earlier attempts of a failed request, by its key, for the next attempt of the step"""

    @property
    def need(self) -> int:
        """The number of the steps in `after` that must succeed before it may start."""
        join = self.plan.join
        if isinstance(join, int):
            return join
        return {"all": len(self.after), "any": min(1, len(self.after)), "optional": 0}[join]

    @property
    def starts_early(self) -> bool:
        """Whether it starts as soon as enough have succeeded, without waiting for the rest."""
        return self.plan.join == "any" or isinstance(self.plan.join, int)

    @property
    def possible(self) -> bool:
        """Whether enough of the steps in `after` can still succeed."""
        return self.won + self.passed + self.waits >= self.need

    @property
    def has_retries(self) -> bool:
        """Whether the failed step will be tried again.

        A refusal of a guardrail prevents it. So does a call that may write and began without success: another attempt
        would repeat that call, which may start at most once.
        """
        step = self.step
        if step is None or step.error is None or step.attempt > self.plan.retries:
            return False
        if step.error.source == "guardrail" or self.unneeded_for is not None:
            return False
        writes = (call for call in step.calls if call.effect == "write" and call.started)
        return all(call.outcome == "ok" for call in writes)

    @property
    def output(self) -> Json:
        """The step's output, or None unless it completed."""
        return self.step.output if self.step is not None and self.status == "completed" else None


@mutable
class Graph:
    """All steps of a task's present branch, by id, with indexes of the steps that may act next."""

    nodes: dict[str, StepNode] = field(default_factory=dict[str, StepNode])
    planned: int = 0
    """the number of planned steps"""

    ready: list[StepNode] = field(default_factory=list[StepNode])
    """in order of path"""

    running: dict[str, StepNode] = field(default_factory=dict[str, StepNode])
    failed: dict[str, StepNode] = field(default_factory=dict[str, StepNode])
    """the failed steps that block the task"""

    unneeded: dict[str, StepNode] = field(default_factory=dict[str, StepNode])
    """the running steps that are no longer needed"""

    unmerged: list[StepNode] = field(default_factory=list[StepNode])
    """ended steps whose messages are not in the conversation yet, in order of path"""

    merged: dict[str, str] = field(default_factory=dict[str, str])
    """ids of the steps whose messages are in the conversation, by name; the last of each name"""

    top: int = 0
    """the highest first number of a path"""

    highest: int = 0
    """the highest index of a step"""

    round: int = 0
    """the number of restarts of the task with its first steps"""

    started: int = 0

    def in_order(self, steps: Iterable[StepState]) -> list[StepState]:
        """Return steps in order of path."""
        return sorted(steps, key=lambda step: self.nodes[step.id].path)

    def of(self, step_id: str) -> StepNode | None:
        """Return the step of this id that runs, or has failed and is next."""
        return self.running.get(step_id) or self.failed.get(step_id)

    def needs(self, step_id: str) -> bool:
        """Return whether a step runs and is still needed."""
        return step_id in self.running and step_id not in self.unneeded

    def planned_beside(self, node: StepNode) -> bool:
        """Return whether planned steps exist that do not wait for this one, directly or not."""
        if not self.planned:
            return False
        waiting = list(node.needed_by)
        reached = set[str]()
        while waiting:
            other_id = waiting.pop()
            if other_id not in reached and self.nodes[other_id].status == "planned":
                reached.add(other_id)
                waiting += self.nodes[other_id].needed_by
        return len(reached) < self.planned

    def ancestors(self, node: StepNode) -> set[str]:
        """Return the ids of the unmerged steps that a step waited for, and of those that planned them."""
        unmerged = {other.id: other for other in self.unmerged}
        reached, open_ = set[str](), [*node.after, *((node.by,) if node.by is not None else ())]
        while open_:
            step_id = open_.pop()
            other = unmerged.get(step_id)
            if other is not None and step_id not in reached:
                reached.add(step_id)
                open_ += [*other.after, *((other.by,) if other.by is not None else ())]
        return reached

    def above(self, node: StepNode) -> Iterator[StepNode]:
        """Yield the steps that a step waited for, directly or not, and those that planned them, nearest first."""
        reached, open_ = {node.id}, deque([node])
        while open_:
            current = open_.popleft()
            for step_id in (*current.after, *((current.by,) if current.by is not None else ())):
                other = self.nodes.get(step_id)
                if other is not None and step_id not in reached:
                    reached.add(step_id)
                    open_.append(other)
                    yield other

    def dependents(self, step_ids: set[str]) -> set[str]:
        """Return the ids of some steps and of all their dependents.

        A dependent waited for one of them, was planned by one, or was skipped because of one.
        """
        reached = set(step_ids)
        children: dict[str, list[str]] = {}
        for node in self.nodes.values():
            given_up = node.status == "skipped" or node.id in self.unneeded
            winner = node.unneeded_for if given_up else None
            for above in (*node.after, *[other for other in (node.by, winner) if other is not None]):
                children.setdefault(above, []).append(node.id)
        open_ = list(reached)
        while open_:
            fresh = [child for child in children.get(open_.pop(), ()) if child not in reached]
            reached.update(fresh)
            open_ += fresh
        return reached
