"""Conformance of a `JournalStore`: lists of tasks, their order, filters, figures and sums."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from treadle.core.events import ForkChange
from treadle.errors import ConfigurationError
from treadle.ports import BETWEEN_STEPS, Commit, TaskFigures, TaskFilter, TaskSums
from treadle.stores.listing import label_key
from treadle.testing.conformance.owner import new_task, send
from treadle.testing.conformance.store_subject import StoreSubject


class ListConformance(StoreSubject):
    """The rules of lists."""

    async def test_rows_are_filtered_by_time_labels_id_and_text(self, tmp_path: Path) -> None:
        long = "x" * 3_000
        labels = {
            "a": {"team": "blue", "n\0": long},
            "b": {"team": "red"},
            "c": {"team": "blue"},
            "d": dict[str, str](),
        }
        texts = {"a": "refund order 7", "b": "100% of_it", "c": "straße"}
        async with self.opened(tmp_path) as store:
            for created, name in enumerate("abcd", 1):
                row = new_task(f"task-{name}", created=10 * created, labels=labels[name])
                figures = TaskFigures(text=texts[name]) if name in texts else None
                await send(store, Commit(row.task_id, 1, create=row, figures=figures))
            cases: list[tuple[dict[str, Any], str]] = [
                ({"until": 20}, "a"),
                ({"since": 20, "until": 40}, "cb"),
                ({"labels": {"team": "blue"}}, "ca"),
                ({"labels": {"team": "blue"}, "since": 15}, "c"),
                ({"labels": {"team": "blue"}, "limit": 1}, "c"),
                ({"labels": {"team": "blue"}, "cursor": (await store.row("task-c")).cursor}, "a"),
                ({"labels": {"team": "blue", "n\0": long}}, "a"),
                ({"labels": {"team": "Blue"}}, ""),
                ({"labels": {"team": "blue"}, "states": ("running",)}, "ca"),
                ({"search": "order"}, "da"),
                ({"search": "0% of_"}, "db"),
                ({"search": "strasse"}, "d"),
                ({"search": "straße"}, "dc"),
                ({"search": "order", "labels": {"team": "blue"}}, "a"),
                ({"beginning": "task-"}, "dcba"),
                ({"beginning": "task-b"}, "b"),
                ({"beginning": "ask-b"}, ""),
                ({"end": "k-b"}, "b"),
                ({"end": "task"}, ""),
            ]
            for fields, expected in cases:
                rows = await store.rows(TaskFilter(**fields))
                assert "".join(row.task_id[-1] for row in rows) == expected, fields
            await send(store, Commit("task-a", 1, state="completed", release=True))
            await store.delete("task-a")
            assert [row.task_id for row in await store.rows(TaskFilter(labels={"team": "blue"}))] == [
                "task-c"
            ]

    async def test_rows_are_listed_by_time_and_then_by_id(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            for name, created in (("z", 1), ("a", 3), ("m", 2), ("n", 2), ("y", 0)):
                await send(store, Commit(name, 1, create=new_task(name, created=created)))
            task_ids: list[str] = []
            page_filter = TaskFilter(limit=2)
            while page := await store.rows(page_filter):
                task_ids += [row.task_id for row in page]
                page_filter = replace(page_filter, cursor=page[-1].cursor)
                if "n" in task_ids and "z" not in task_ids:
                    await send(store, Commit("n", 1, state="completed", release=True))
                    await store.delete("n")  # a page continues after a deleted task
            assert task_ids == ["a", "n", "m", "z", "y"]
            with pytest.raises(ConfigurationError, match="cursor must be the cursor of the previous page"):
                await store.rows(TaskFilter(cursor="a"))

    async def test_figures_stay_until_a_commit_brings_others(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            first = TaskFigures(2, 10, 5, None, 9, 7, 1_000, 'a "line"', "an \U0001f600 answer", "text")
            await send(store, Commit("t", 1, create=new_task("t"), figures=first))
            assert (await store.row("t")).figures == replace(first, text="")
            await send(store, Commit("t", 1, state="running"))
            assert (await store.row("t")).figures == replace(first, text="")
            alone = TaskFigures(2, 15, 5, 4, 20, 4, 1_500)
            await send(store, Commit("t", 1, figures=alone))
            assert (await store.row("t")).figures == alone, "a commit of figures alone"
            changes = (ForkChange("input", 'a "line"'), ForkChange("result", "7", "look", "s1-0"))
            later = TaskFigures(
                3, 20, 6, 5, 26, 5, 2_000, model="provider:large", fork_changes=changes, undos=2
            )
            await send(store, Commit("t", 1, state="paused", release=True, figures=later))
            assert (await store.row("t")).figures == later
            assert [row.figures for row in await store.rows(TaskFilter(states=("paused",)))] == [later]
            assert await store.rows(TaskFilter(search="text")) == []

    async def test_a_running_task_without_a_driver_is_between_steps(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            figures = TaskFigures(own_tokens=5, own_cost=7)
            for name, state, release in (
                ("driven", "running", False),
                ("resting", "running", True),
                ("paused", "paused", True),
            ):
                await send(store, Commit(name, 1, create=new_task(name), figures=figures))
                await send(store, Commit(name, 1, state=state, release=release))
            for states, listed in (
                ((BETWEEN_STEPS,), ["resting"]),
                ((BETWEEN_STEPS, "paused"), ["paused", "resting"]),
                ((BETWEEN_STEPS, "running"), ["driven", "resting"]),
                (("running",), ["driven", "resting"]),
            ):
                rows = await store.rows(TaskFilter(states=states))
                assert sorted(row.task_id for row in rows) == listed, states
                sums = await store.sums(TaskFilter(states=states))
                assert sum(each.tasks for each in sums.values()) == len(listed), states
                assert sum(each.driven for each in sums.values()) == listed.count("driven"), states
            assert await store.sums(TaskFilter(states=(BETWEEN_STEPS,))) == {"running": TaskSums(1, 5, 7, 0)}

    async def test_sums_count_what_tasks_spent_alone_by_state(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            for name, state, figures in (
                ("a", "paused", TaskFigures(own_tokens=5, own_cost=2**50, cost=2**51, text="x")),
                ("b", "paused", TaskFigures(own_tokens=7, own_cost=1)),
                ("c", "completed", TaskFigures(own_tokens=1, own_cost=None)),
                ("d", "completed", None),
            ):
                row = new_task(name, labels={"half": "first" if name in "ac" else "second"})
                await send(store, Commit(name, 1, create=row))
                await send(store, Commit(name, 1, state=state, release=True, figures=figures))
            await send(store, Commit("e", 1, create=new_task("e"), figures=TaskFigures(own_tokens=100)))
            paused, completed = TaskSums(2, 12, 2**50 + 1, 0), TaskSums(2, 1, 0, 2)
            running = TaskSums(1, 100, 0, 0, driven=1)
            everything = {"paused": paused, "completed": completed, "running": running}
            assert await store.sums(TaskFilter(limit=1, cursor="0.x")) == everything
            assert await store.sums(TaskFilter(states=("paused",))) == {"paused": paused}
            assert await store.sums(TaskFilter(search="x")) == {"paused": TaskSums(1, 5, 2**50, 0)}
            assert await store.sums(TaskFilter(labels={"half": "second"})) == {
                "paused": TaskSums(1, 7, 1, 0),
                "completed": TaskSums(1, 0, 0, 1),
            }

    async def test_rows_are_filtered_by_root_by_change_and_by_what_waits(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            for name, parent, figures in (
                ("a", None, TaskFigures(updated=50, pending=0)),
                ("b", "a", TaskFigures(updated=40, pending=2)),
                ("c", None, TaskFigures(updated=30)),
                ("d", "a", None),
                ("e", None, TaskFigures(updated=5, pending=0)),
            ):
                row = new_task(name, created=20, parent=parent)
                await send(store, Commit(name, 1, create=row, figures=figures))
                if name != "e":
                    await send(store, Commit(name, 1, state="paused", release=True))
            cases: list[tuple[dict[str, Any], str]] = [
                ({"roots": True}, "eca"),
                ({"pending": True}, "edcb"),
                ({"pending": True, "roots": True, "states": ("paused",)}, "c"),
                ({"updated_since": 20}, "edcba"),
                ({"updated_since": 21}, "ecba"),
                ({"updated_since": 41, "states": ("running",)}, "e"),
                ({"updated_since": 41, "roots": True}, "ea"),
                ({"updated_since": 41, "limit": 1}, "e"),
            ]
            for fields, expected in cases:
                rows = await store.rows(TaskFilter(**fields))
                assert "".join(row.task_id for row in rows) == expected, fields
                if "limit" not in fields:
                    sums = await store.sums(TaskFilter(**fields))
                    assert sum(each.tasks for each in sums.values()) == len(expected), fields
            assert [row.figures and row.figures.pending for row in await store.rows(TaskFilter())] == [
                *(0, None, None, 2, 0)
            ]

    async def test_usage_is_summed_up_by_agent_day_model_and_label(self, tmp_path: Path) -> None:
        day, long = 86_400_000_000, "x" * 3_000
        async with self.opened(tmp_path) as store:
            for name, created, labels, figures in (
                ("a", 0, {"team": "blue", "long": long}, TaskFigures(own_tokens=5, own_cost=2**50, text="x")),
                ("b", day - 1, {"team": "red"}, TaskFigures(own_tokens=7, own_cost=1, model="m")),
                ("c", day, {"team": "blue"}, TaskFigures(own_tokens=1, own_cost=None)),
                ("d", 1_763_700_000_000_000, dict[str, str](), None),
            ):
                row = replace(
                    new_task(name, created=created, labels=labels), agent="ab" if name in "ab" else name
                )
                await send(store, Commit(name, 1, create=row, figures=figures))
            cases: list[tuple[str, dict[str, Any], dict[str | None, TaskSums]]] = [
                (
                    "agent",
                    {},
                    {
                        "ab": TaskSums(2, 12, 2**50 + 1),
                        "c": TaskSums(1, 1, 0, 1),
                        "d": TaskSums(1, unpriced=1),
                    },
                ),
                (
                    "day",
                    {"search": "y", "limit": 1, "states": ("paused",), "cursor": "0.x"},
                    {
                        "1970-01-01": TaskSums(2, 12, 2**50 + 1),
                        "1970-01-02": TaskSums(1, 1, 0, 1),
                        "2025-11-21": TaskSums(1, unpriced=1),
                    },
                ),
                (
                    "model",
                    {},
                    {"m": TaskSums(1, 7, 1), None: TaskSums(3, 6, 2**50, 2)},
                ),
                (
                    "label:team",
                    {"until": day + 1},
                    {"blue": TaskSums(2, 6, 2**50, 1), "red": TaskSums(1, 7, 1)},
                ),
                ("label:team", {"since": day}, {"blue": TaskSums(1, 1, 0, 1), None: TaskSums(1, unpriced=1)}),
                (
                    "label:long",
                    {"labels": {"team": "blue"}},
                    {label_key(long): TaskSums(1, 5, 2**50), None: TaskSums(1, 1, 0, 1)},
                ),
                ("agent", {"agent": "z"}, {}),
            ]
            for by, fields, expected in cases:
                assert await store.usage(TaskFilter(**fields), by) == expected, (by, fields)
            await send(store, Commit("a", 1, state="completed", release=True))
            await store.delete("a")
            assert await store.usage(TaskFilter(labels={"team": "blue"}), "agent") == {
                "c": TaskSums(1, 1, 0, 1)
            }
