"""What reads return: usage in lines, the dearest first or in the order of days."""

from decimal import Decimal

from treadle.ports import TaskSums
from treadle.results.read_results import usage_report

DOLLAR = 10**12


def test_lines_of_agents_and_labels_begin_with_the_dearest() -> None:
    sums: dict[str | None, TaskSums] = {
        "cheap": TaskSums(5, 900, DOLLAR),
        None: TaskSums(1, 5, 0, unpriced=1),
        "dear": TaskSums(1, 10, 3 * DOLLAR),
        "b": TaskSums(1, 1, 0),
        "a": TaskSums(1, 1, 0),
    }
    report = usage_report("label:team", sums)
    assert [line.key for line in report.lines] == ["dear", "cheap", None, "a", "b"]
    assert report.lines[0].cost == Decimal(3)
    total = report.total
    assert (total.tasks, total.tokens, total.cost, total.unpriced) == (9, 917, Decimal(4), 1)


def test_days_are_in_order() -> None:
    sums: dict[str | None, TaskSums] = {"2026-01-02": TaskSums(1, 1, 1), "2026-01-01": TaskSums(1, 5, 9)}
    assert [line.key for line in usage_report("day", sums).lines] == ["2026-01-01", "2026-01-02"]


def test_no_tasks_spend_nothing() -> None:
    report = usage_report("agent", {})
    assert (report.lines, report.total.tasks, report.total.cost) == ((), 0, Decimal(0))
