"""Reports of undos and of comparisons."""

from treadle.core.events import UndoneCall
from treadle.results.reports import Difference, UndoReport


def test_a_report_of_an_undo_names_the_calls_that_are_not_compensated() -> None:
    calls = tuple(
        [UndoneCall(f"c{n}", "pay", verdict) for n, verdict in enumerate(("compensated", "unknown"))]
    )
    report = UndoReport("job", False, 1, ("s2",), calls, "it failed")
    assert report.left == ("c1",)
    assert "it failed" in report._repr_html_()


def test_a_forecast_of_an_undo_speaks_of_what_would_happen() -> None:
    """A dry run reported calls as compensated that were not."""
    report = UndoReport("job", True, 0, ("s1",), (UndoneCall("c1", "pay", "compensated"),), planned=True)
    assert [report.verdict_of(call) for call in report.calls] == ["would be compensated"]
    assert "would be compensated" in report._repr_html_()


def test_tasks_without_a_field_that_differs_are_the_same() -> None:
    assert Difference("a", "b", 4).same
    assert not Difference("a", "b", 4, 1, field="output", value_a=1, value_b=2).same
