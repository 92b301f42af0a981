"""The budget of what work costs: no count exceeds it, and the command that keeps it only lowers it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bench import budget

TEXT = """\
# Counts of work.

[taken]
python = "3.11"

[work]
work = "some work"
calls = 1_000  # more than before, since each answer is checked
bytecodes = 20_000
"""


def test_no_work_costs_more_than_its_budget() -> None:
    taken, _ = budget.read()
    if reason := budget.mismatch(taken):
        pytest.skip(reason)
    if not (budget.REPOSITORY / "uv.lock").exists():
        pytest.skip("the budget holds for the locked versions of the dependencies")
    command = [sys.executable, "-m", "bench.budget"]
    done = subprocess.run(
        command, cwd=budget.REPOSITORY, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, (
        f"{done.stdout}\n{done.stderr}\n"
        "What costs more, and does each task need it? `python -m bench.budget SUBJECT --functions 40` lists functions."
    )


def test_the_file_is_lowered_but_never_raised() -> None:
    text = budget.lowered(TEXT, {"work": {"calls": 900, "bytecodes": 30_000}, "other": {"calls": 1}})
    assert text == TEXT.replace("1_000", "900")


def test_a_count_fails_if_it_is_more_than_two_percent_above_its_budget() -> None:
    allowed = {"work": {"work": "some work", "calls": 1_000, "bytecodes": 20_000}}
    lines = budget.table(allowed, {"work": {"calls": 1_020, "bytecodes": 20_401}}).splitlines()
    assert [line.endswith("TOO MANY") for line in lines] == [False, False, True]


def test_bytecodes_of_another_version_of_python_are_not_compared() -> None:
    reason = budget.mismatch({"python": "3.10"})
    assert reason is not None
    assert "were counted on CPython 3.10, and this is CPython 3." in reason
