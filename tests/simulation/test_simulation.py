"""Seeds of the simulation: none breaks a promise, the coverage is complete, and planted defects are found."""

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.coverage import missing
from tests.simulation.run import simulate
from treadle.agents.decide import lifecycle
from treadle.core import events as e
from treadle.core.ids import child_id
from treadle.core.rules import fold
from treadle.drivers import ownership
from treadle.drivers.children import ChildTasks
from treadle.engine import agent_calls
from treadle.engine.tool_calls import ToolCallInFlight
from treadle.stores.memory import MemoryStore

RUNS = 100
MOST = 600
"""Runs within which the rarest moments are met as often as they have to be: nearly always the first 200 are enough."""


def test_no_seed_breaks_a_promise_and_the_coverage_is_complete() -> None:
    first, runs = random.randrange(2**31), 0
    print(f"python -m tests.simulation --seed {first} --runs {MOST}")
    fired: Counter[str] = Counter()
    while runs < RUNS or (runs < MOST and missing(fired, runs)):
        seed, runs = first + runs, runs + 1
        outcome = simulate(seed)
        assert not outcome.violations, f"python -m tests.simulation --seed {seed}\n{outcome.violations}"
        fired.update(outcome.fired)
    assert missing(fired, runs) == []


def test_a_seed_tells_the_same_story_in_every_process() -> None:
    digests = [simulate(seed).digest for seed in (3, 4)]
    assert [simulate(seed).digest for seed in (3, 4)] == digests
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.simulation", "--seed", "4"]
    env = {**os.environ, "PYTHONHASHSEED": "1"}
    output = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=True).stdout
    assert output.splitlines()[-1] == f"digest {digests[1]}"


# ----------------------------------------------------------------------------------------- planted defects


def the_store_takes_a_stale_epoch(patch: pytest.MonkeyPatch) -> None:
    commit = MemoryStore._commit

    def lenient(self: MemoryStore, asked: Any) -> Any:
        task = self._tables.tasks.get(asked.task_id)
        if task is not None and asked.create is None and asked.epoch < task.epoch:
            asked.epoch = task.epoch
            if asked.record is not None:
                asked.record.epoch = task.epoch
        return commit(self, asked)

    patch.setattr(MemoryStore, "_commit", lenient)


def what_a_dead_driver_left_open_is_not_marked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ownership, "recover", lambda owned: None)


def what_a_dead_driver_left_open_is_called_failed(patch: pytest.MonkeyPatch) -> None:
    def recover(owned: ownership.OwnedTask) -> None:
        for call in owned.state.begun_calls():
            if call.undo_status != "begun":
                failure = e.Failure("tool", "error", "the driver died", call.id)
                owned.writer.record(e.ToolEnded(call.step, call.id, "error", error=failure))

    patch.setattr(ownership, "recover", recover)


def a_writing_tool_starts_before_its_begin_is_durable(patch: pytest.MonkeyPatch) -> None:
    run = ToolCallInFlight.run

    async def at_once() -> None:
        """Wait for nothing."""

    async def hasty(in_flight: ToolCallInFlight) -> Any:
        in_flight.context.durable = at_once
        return await run(in_flight)

    patch.setattr(ToolCallInFlight, "run", hasty)


def a_cancel_is_not_looked_at_while_there_is_work(patch: pytest.MonkeyPatch) -> None:
    decide = lifecycle.decide

    def busy(state: Any, rules: Any, work: Any, *, finalize: bool) -> Any:
        if state.cancelling and state.step is not None:
            state.cancelling = False
            try:
                return decide(state, rules, work, finalize=finalize)
            finally:
                state.cancelling = True
        return decide(state, rules, work, finalize=finalize)

    patch.setattr(lifecycle, "decide", busy)


def an_undo_keeps_the_last_message(patch: pytest.MonkeyPatch) -> None:
    rewound = fold._RULES[e.Rewound]

    def sloppy(state: Any, event: e.Rewound) -> None:
        last = state.messages[-1:]
        rewound(state, event)
        state.messages = [*state.messages, *last]

    patch.setitem(fold._RULES, e.Rewound, sloppy)


def results_come_in_the_order_the_calls_ended(patch: pytest.MonkeyPatch) -> None:
    results = fold.results

    def late_first(calls: Any) -> Any:
        message = results(calls)
        order = sorted(calls, key=lambda call: -(call.ended or 0))
        ids = [fold.base_call_id(call.id) for call in order]
        return replace(message, parts=tuple(sorted(message.parts, key=lambda part: ids.index(part.call_id))))

    patch.setattr(fold, "results", late_first)


def a_commit_whose_acknowledgement_is_lost_is_taken_for_refused(patch: pytest.MonkeyPatch) -> None:
    from treadle.engine.journal_writer import JournalWriter

    fail = JournalWriter._fail

    def forgiving(self: JournalWriter, error: Exception) -> None:
        if self._in_flight or self.pending:
            fail(self, error)

    patch.setattr(JournalWriter, "_fail", forgiving)


def a_child_goes_on_when_its_call_is_given_up(patch: pytest.MonkeyPatch) -> None:
    async def leave_alone(self: ChildTasks, call: Any, why: str) -> Any:
        row = await self.cache.row_or_none(str(call.child))
        return None if row is None else (await self.cache.load(row.task_id)).state

    patch.setattr(ChildTasks, "stop", leave_alone)


def a_call_that_is_tried_again_goes_on_with_the_task_that_failed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(agent_calls, "child_id", lambda parent, call, number: child_id(parent, call))


DEFECTS: list[Callable[[pytest.MonkeyPatch], None]] = [
    the_store_takes_a_stale_epoch,
    what_a_dead_driver_left_open_is_not_marked,
    what_a_dead_driver_left_open_is_called_failed,
    a_writing_tool_starts_before_its_begin_is_durable,
    a_cancel_is_not_looked_at_while_there_is_work,
    an_undo_keeps_the_last_message,
    results_come_in_the_order_the_calls_ended,
    a_commit_whose_acknowledgement_is_lost_is_taken_for_refused,
    a_child_goes_on_when_its_call_is_given_up,
    a_call_that_is_tried_again_goes_on_with_the_task_that_failed,
]


@pytest.mark.full
@pytest.mark.parametrize("plant", DEFECTS, ids=lambda plant: plant.__name__)
def test_a_planted_defect_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)

    for seed in range(1_500):
        try:
            problems = simulate(seed).violations
        except Exception as error:  # noqa: BLE001  a defect may break the story itself
            problems = [repr(error)]
        if problems:
            print(f"seed {seed}: {problems[0]}")
            return
    raise AssertionError("not found in 1,500 runs")
