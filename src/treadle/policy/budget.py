"""Limits that a whole tree of tasks shares. Each running task has an account below that of its parent.

No allowance is handed out in advance. Before a call starts, the account of its task and all accounts above it are
checked. Accounts read the states of all tasks below them, so a started call counts in all of them at once. So siblings
that reserve at the same moment never exceed the limit. Accounts are built from journals each time a tree is driven, and
are never stored. Spending stays counted, and a raised limit holds for the whole tree below it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from treadle.core import events as e
from treadle.core.children import SpentBy, by_agent
from treadle.core.rules.handoffs import agent_of, spent_by_present
from treadle.core.spending import NOTHING_SPENT, Spending
from treadle.core.state import TaskState
from treadle.policy.limits import DEFAULT_CHILDREN, DEFAULT_DEPTH, Limits, forbidden, spent, too_large


class Account:
    """The limits and the spending of a running task and of all tasks below it.

    Args:
        limits: of the task.
        state: of the task.
        keeps: whether to reserve one request for a last answer if a limit is reached.
        above: the account of its parent.
    """

    __slots__ = ("_below", "_reports", "above", "calls", "estimates", "keeps", "limits", "state")

    def __init__(
        self, limits: Limits, state: TaskState, *, keeps: bool, above: Account | None = None
    ) -> None:
        self.limits = limits
        self.state = state
        self.keeps = keeps
        self.above = above
        self.calls = calls_made(state)
        """the calls of the task itself that began or were invalid"""

        self.estimates: dict[str, Spending] = {}
        """the estimated sizes of requests, by call or step"""

        self._below: dict[str, Account] = {}
        self._reports: dict[str, tuple[SpentBy, ...]] = {}

    # ------------------------------------------------------------------------------------- children

    def learn(self, child: str, report: tuple[SpentBy, ...]) -> None:
        """Count the spending of a child that is not in its parent's journal yet."""
        self._reports[child] = report

    def open(self, child: str, account: Account) -> None:
        """Count the spending of a child while it runs."""
        self._below[child] = account

    def close(self, child: str) -> None:
        """Count the final spending of a child that no longer runs."""
        account = self._below.pop(child, None)
        if account is not None:
            self._reports[child] = spent_by(account.state)

    # ------------------------------------------------------------------------------------- counting

    def spent(self) -> Spending:
        """Return the spending of the task and of all tasks below it."""
        total = spent(self.state)
        for child, report in self.state.children.items():
            account = self._below.get(child)
            total = total + (account.spent() if account is not None else summed(self._report(child, report)))
        return total

    def tool_calls(self) -> int:
        """Return how many calls the task and all tasks below it made."""
        below = sum(account.tool_calls() for account in self._below.values())
        return self.calls + below + sum(part.tool_calls for part in self._stopped_reports())

    def tasks(self) -> int:
        """Return how many tasks there are below this one."""
        return sum(
            1 + self._below[child].tasks()
            if child in self._below
            else max(1, sum(part.tasks for part in self._report(child, report)))
            for child, report in self.state.children.items()
        )

    def _report(self, child: str, report: tuple[SpentBy, ...]) -> tuple[SpentBy, ...]:
        return self._reports.get(child, report)

    def _stopped_reports(self) -> Iterator[SpentBy]:
        for child, report in self.state.children.items():
            if child not in self._below:
                yield from self._report(child, report)

    def _levels(self) -> Iterator[Account]:
        level: Account | None = self
        while level is not None:
            yield level
            level = level.above

    def _in_flight(self) -> Spending:
        """Return the expected spending of the requests in flight: see `in_flight`."""
        own_use = in_flight(self.state, self.estimates, _expected_spending(self, 1))
        for account in self._below.values():
            own_use = own_use + account._in_flight()  # noqa: SLF001  of the same kind
        return own_use

    # -------------------------------------------------------------------------------------- asking

    @property
    def is_limited(self) -> bool:
        """Whether a request to a model may be refused."""
        return any(
            level.limits.model_calls is not None
            or level.limits.tokens is not None
            or level.limits.cost is not None
            for level in self._levels()
        )

    def forbids_request(self, *, final: bool, estimate: Spending = NOTHING_SPENT) -> e.LimitReached | None:
        """Return the limit that forbids one more request to a model, of an estimated size, if one does.

        One request is reserved for each task on the way up, so that it can still answer. The task itself reserves none
        if this is its last request.
        """
        allowing: list[Account] = []
        for level in self._levels():
            if level.keeps and not (final and level is self):
                allowing.append(level)
            limits = level.limits
            if limits.model_calls is None and limits.tokens is None and limits.cost is None:
                continue
            reserved = level._in_flight()  # noqa: SLF001  of the same kind
            for account in allowing:
                reserved = reserved + _expected_spending(account, 1) + Spending(model_calls=1)
            used = level.spent()
            reached = forbidden(limits, used, reserved) or too_large(limits, used, reserved, estimate)
            if reached is not None:
                return self._attributed(reached, level)
        return None

    @property
    def all_limits(self) -> list[Limits]:
        """The limits of the task and of those above it."""
        return [level.limits for level in self._levels()]

    def refuses_request(self, *, final: bool) -> e.LimitReached | None:
        """Return the limit that forbids a request. Its `room` is set if a last request would still be allowed."""
        reached = self.forbids_request(final=final)
        if reached is not None:
            reached.room = not final and self.forbids_request(final=True) is None
        return reached

    def refuses_call(self) -> e.LimitReached | None:
        """Return the limit that forbids one more tool call; if none does, count the call from now on."""
        for level in self._levels():
            most = level.limits.tool_calls
            if most is not None and (used := level.tool_calls()) >= most:
                reached = self._attributed(e.LimitReached("tool_calls", most, used), level)
                reached.room = self.forbids_request(final=True) is None
                return reached
        self.calls += 1
        return None

    def refuses_child(self) -> e.LimitReached | None:
        """Return the limit on depth or children that forbids one more task below this one, if one does."""
        depth, levels = self.state.depth + 1, list(self._levels())
        top = levels[-1]
        deep = any(level.limits.depth is not None for level in levels)
        limits_children = any(level.limits.children is not None for level in levels)
        for level in levels:
            most = level.limits.depth if deep or level is not top else DEFAULT_DEPTH
            levels_down = depth - level.state.depth
            if most is not None and levels_down > most:
                return self._attributed(e.LimitReached("depth", most, levels_down - 1), level)
            most = level.limits.children if limits_children or level is not top else DEFAULT_CHILDREN
            if most is not None and (tasks := level.tasks()) >= most:
                return self._attributed(e.LimitReached("children", most, tasks), level)
        return None

    def spare_requests(self) -> int | None:
        """Return how many further requests to models all limits allow; None for no limit."""
        spare = [
            level.limits.model_calls - level.spent().model_calls
            for level in self._levels()
            if level.limits.model_calls is not None
        ]
        return max(0, min(spare)) if spare else None

    def _attributed(self, reached: e.LimitReached, level: Account) -> e.LimitReached:
        if level is not self:
            shared = f"it is shared with task {level.state.task_id}"
            detail = reached.detail
            reached.detail = f"{shared}, which has spent it" if detail is None else f"{detail}; {shared}"
        return reached


def in_flight(state: TaskState, estimates: Mapping[str, Spending], usual: Spending) -> Spending:
    """Return the expected spending of a task's requests in flight.

    Each counts as much as the request before it, and at least its own estimate.
    """
    total = NOTHING_SPENT
    for step, call in state.begun_model_calls():
        estimate = estimates.get(call.id or step.id, NOTHING_SPENT)
        total = total + Spending(
            0, 0, max(usual.tokens, estimate.tokens), max(usual.cost or 0, estimate.cost or 0)
        )
    return total


def calls_made(state: TaskState) -> int:
    """Return how many calls of a task's present branch began or were invalid."""
    steps = (*state.steps, *state.under_way())
    return sum(
        1
        for step in steps
        for call in step.calls
        if not call.answers and call.outcome != "refused" and (call.attempt or call.status == "ended")
    )


def spent_by(state: TaskState) -> tuple[SpentBy, ...]:
    """Return the spending of a task and of all tasks below it, by agent, according to its journal."""
    below = [part for parts in state.children.values() for part in parts]
    return by_agent([*own_spending(state, calls_made(state)), *below])


def own_spending(state: TaskState, tool_calls: int) -> list[SpentBy]:
    """Return the spending of a task without its children, by agent, its first agent first.

    Args:
        state: of the task.
        tool_calls: how many tool calls count.
    """
    if not state.versions:
        total = (state.usage, state.model_calls, tool_calls, state.cost, state.unpriced)
        return [SpentBy(state.agent, 1, *total)]
    calls_by_agent = Counter(
        agent_of(state, step) for step in state.steps for call in step.calls if not call.answers
    )
    calls_by_agent[state.agent] += sum(not call.answers for step in state.under_way() for call in step.calls)
    first = state.created_for
    calls_by_agent[first] += tool_calls - calls_by_agent.total()
    spent = {agent: version.spent for agent, version in state.versions.items()}
    spent[state.agent] = spent_by_present(state)
    agents = [first, *[agent for agent in spent if agent != first]]
    return [
        replace(spent[agent], tasks=int(agent == first), tool_calls=calls_by_agent[agent])
        for agent in agents
        if agent in spent
    ]


def summed(parts: Iterable[SpentBy]) -> Spending:
    """Return the spending of all agents together."""
    total = NOTHING_SPENT
    for part in parts:
        cost = None if part.unpriced else part.cost
        total = total + Spending(part.model_calls, part.tool_calls, part.usage.total_tokens, cost)
    return total


def _expected_spending(account: Account, times: int) -> Spending:
    """Return the expected spending of `times` requests. Each is as large as the task's newest, else its parent's."""
    state = account.state
    while not state.last_request_tokens and account.above is not None:
        account = account.above
        state = account.state
    return Spending(0, 0, times * state.last_request_tokens, times * state.last_request_cost)
