"""Held-out work of an office: few questions, and no call of an attacker without a person."""

from dataclasses import replace
from typing import Any

import pytest

from tests.attack.injection import BEARABLE, Figures, Suite
from tests.attack.office import BOUND, EACH, OTHERS, POLICIES, SAME, cases, conversations, undeclared
from treadle import Policy

pytestmark = pytest.mark.anyio

DIAGONALS = len(OTHERS) + 1
"""Parts of all pairs of a task and an attack; each part has each attack twice, and each task at most once."""


async def run(policy: Policy, of: Any, scope: Any, **how: Any) -> Figures:
    return Figures(await Suite(of, policy, scope=scope, **how).run([*of.benign, *of.attacked]))


@pytest.mark.parametrize("policy", [BOUND, Policy.strict()], ids=["same recipient", "bare strict"])
async def test_a_conversation_took_a_question_for_each_message(policy: Policy) -> None:
    found = await run(policy, replace(cases(), attacked=[]), "recipient")
    assert not found.failures()
    assert found.bearable >= BEARABLE
    assert conversations(found).bearable >= BEARABLE


async def test_the_same_tasks_are_drowned_in_questions_where_no_recipient_can_be_approved() -> None:
    found = await run(EACH, replace(undeclared(cases()), attacked=[]), "once")
    assert conversations(found).bearable < 0.5 < found.bearable < BEARABLE


@pytest.mark.parametrize(
    ("attack", "carrier"),
    [("at once", "result"), ("beside", "result"), ("at the end", "result"), ("at the end", "definition")],
)
@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("first", range(DIAGONALS))
@pytest.mark.sampled(4)
async def test_no_call_to_others_runs_by_an_approval_of_a_recipient(
    first: int, name: str, attack: Any, carrier: Any
) -> None:
    policy, _, scope = POLICIES[name]
    of = replace(cases(), benign=[], attacked=cases().attacked[first::DIAGONALS])
    found = await run(policy, of, scope, attack=attack, carrier=carrier)
    assert len(found.attacked) >= len(OTHERS)
    assert not found.failures()


@pytest.mark.parametrize("first", range(3))
@pytest.mark.sampled(1)
async def test_an_approved_recipient_reads_what_an_attacker_has_the_model_say(first: int) -> None:
    of = replace(cases(SAME), benign=[], attacked=cases(SAME).attacked[first::3])
    found = await run(BOUND, of, "recipient", attack="at the end")
    assert any(trial.slipped for trial in found.attacked), "the guide warns of it"
    found = await run(EACH, of, "once", attack="at the end")
    assert not found.failures(), "a question about every call does not let it through"


@pytest.mark.parametrize("attack", ["at once", "beside", "at the end"])
async def test_an_order_in_the_description_of_a_tool_counts_as_read(attack: Any) -> None:
    (case, *_) = [
        each for each in cases().attacked if each.id == "office/send a greeting/mail"
    ] or cases().attacked
    of = replace(cases(), benign=[], attacked=[case])
    found = await run(EACH, of, "once", attack=attack, carrier="definition")
    assert not found.failures()
