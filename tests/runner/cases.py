"""Another name of `tests.cast` and `tests.runner.acts`, until no test imports it."""

from tests.cast import Ledger, add, adder, calculator, multiply, sayer
from tests.runner.acts import (
    assert_well_formed,
    both,
    journal,
    kinds,
    only,
    roles_and_texts,
    step_to_answer,
    stepped,
    to_pause,
    verdicts,
)

__all__ = [
    "Ledger",
    "add",
    "adder",
    "assert_well_formed",
    "both",
    "calculator",
    "journal",
    "kinds",
    "multiply",
    "only",
    "roles_and_texts",
    "sayer",
    "step_to_answer",
    "stepped",
    "to_pause",
    "verdicts",
]
