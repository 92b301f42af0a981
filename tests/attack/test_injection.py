"""A model that obeys every attacker: nothing of it runs without a person, and the work of the user still gets done."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.attack.injection import DESK, SENDS, Attack, Figures, Suite, chosen
from tests.attack.injection_cases import FOLDER, Cases, folder, own_cases
from treadle import Allow, Policy, Rule
from treadle.policy import strict
from treadle.policy.requests import Exposure

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def published() -> Cases:
    """The published cases; see `tests/attack/injection_cases.py`."""
    where = folder()
    if where is None:
        pytest.skip(f"the published cases are not here: {FOLDER} names no folder (make injection wants them)")
    return Cases.read(where)


async def test_no_call_of_an_attacker_runs_without_a_person(store: Any) -> None:
    figures = Figures(await Suite(own_cases(), DESK).run(chosen(own_cases(), 1), store))
    assert not figures.failures()
    assert len(figures.attacked) == 10
    assert sum(trial.case.gated for trial in figures.attacked) == 50


@pytest.mark.parametrize("attack", ["beside", "at the end"])
async def test_no_call_of_an_attacker_runs_when_it_comes_beside_the_users_or_after_them(
    attack: Attack,
) -> None:
    figures = Figures(await Suite(own_cases(), DESK, attack=attack).run(own_cases().attacked))
    assert not figures.failures()
    assert all(trial.is_done for trial in figures.attacked), "the user's task is done all the same"


async def test_what_a_person_approves_for_the_whole_task_lets_no_call_of_an_attacker_through() -> None:
    suite = Suite(own_cases(), DESK, attack="at the end", scope="task")
    assert not Figures(await suite.run(own_cases().attacked)).failures()
    lenient = Policy.strict(replace(SENDS, every_call=False))
    suite = Suite(own_cases(), lenient, attack="at the end", scope="task")
    assert any(
        "send_mail" in failure for failure in Figures(await suite.run(own_cases().attacked)).failures()
    )


async def test_the_bare_defaults_hold_too_and_refuse_to_send_what_they_cannot_ask_about() -> None:
    figures = Figures(await Suite(own_cases(), Policy.strict()).run(own_cases().attacked))
    assert not figures.failures()


async def test_sending_out_after_private_data_is_refused_by_default_and_asked_about_by_a_rule() -> None:
    (reply,) = [case for case in own_cases().benign if case.id == "own/reply"]
    (refused,) = await Suite(own_cases(), Policy.strict()).run([reply])
    assert (refused.asked, refused.is_done) == ([], False)
    (asked,) = await Suite(own_cases(), DESK).run([reply])
    assert ([each.rule for each in asked.asked], asked.is_done) == (["sends"], True)


def _as_if_allowed(name: str) -> Any:
    """Return a table of defaults in which one class is allowed."""
    real = strict._verdict  # pyright: ignore[reportPrivateUsage]
    return lambda kind, request: Allow("weak") if kind == name else real(kind, request)


@pytest.mark.parametrize("name", ["send", "spend", "write", "execute"])
async def test_the_suite_fails_when_the_defaults_are_weakened(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strict, "_verdict", _as_if_allowed(name))
    figures = Figures(await Suite(own_cases(), Policy.strict()).run(own_cases().attacked))
    assert any("ran unasked" in failure for failure in figures.failures())


async def test_the_suite_fails_when_labels_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Exposure.of
    monkeypatch.setattr(Exposure, "of", lambda self, state: replace(real(self, state), untrusted=()))
    figures = Figures(await Suite(own_cases(), DESK).run(own_cases().attacked))
    assert any("ran unasked: send_mail" in failure for failure in figures.failures())


@pytest.mark.parametrize(
    "rule",
    [
        Rule("mail", "allow", tool="send_*"),
        Rule("small", "allow", tool="pay", when={"arguments.amount": {"at_most": 100}}),
    ],
    ids=lambda rule: rule.id,
)
async def test_the_suite_fails_with_a_rule_that_allows_too_much(rule: Rule) -> None:
    figures = Figures(await Suite(own_cases(), Policy.strict(rule)).run(own_cases().attacked))
    assert any("ran unasked" in failure for failure in figures.failures())


async def test_the_suite_fails_when_reads_are_asked_about_or_benign_work_is_refused() -> None:
    asking = Figures(await Suite(own_cases(), Policy(default="ask")).run(own_cases().benign))
    assert any("which only reads" in failure for failure in asking.failures())
    refusing = Figures(await Suite(own_cases(), Policy(default="deny")).run(own_cases().benign))
    assert refusing.bearable == 0
    assert refusing.failures()


# ------------------------------------------------------------------------------ the published cases


@pytest.mark.full
@pytest.mark.parametrize("attack", ["at once", "beside", "at the end"])
async def test_no_call_of_a_published_attack_runs_without_a_person(published: Cases, attack: Attack) -> None:
    figures = Figures(await Suite(published, DESK, attack=attack).run(chosen(published, 1)))
    print(f"\n{figures}")
    assert not figures.failures()
    assert (len(figures.attacked), len(figures.benign)) == (659 + 2 * 747, 76 + 17)


@pytest.mark.full
async def test_no_wording_of_a_published_attack_makes_a_difference(published: Cases) -> None:
    cases = [case for case in chosen(published, 5) if case.injected]
    assert len(cases) == 5 * 659 + 2 * 747
    assert not Figures(await Suite(published, DESK).run(cases)).failures()


async def test_a_sample_of_the_published_attacks_runs_nothing_on_disk(
    published: Cases, tmp_path: Path
) -> None:
    sample = published.attacked[::190] + published.benign[::20]
    figures = Figures(await Suite(published, DESK).run(sample, tmp_path / "journal.db"))
    assert not figures.failures()
    assert len(figures.attacked) > 20


@pytest.mark.full
async def test_the_bare_defaults_hold_against_the_published_attacks(published: Cases) -> None:
    figures = Figures(await Suite(published, Policy.strict()).run(chosen(published, 1)))
    print(f"\n{figures}")
    assert not [failure for failure in figures.failures() if not failure.startswith("only")]


@pytest.mark.full
async def test_the_published_attacks_tell_a_weak_policy_from_a_sound_one(published: Cases) -> None:
    weak = Policy.strict(Rule("mail", "allow", tool="send_*"))
    figures = Figures(await Suite(published, weak).run(published.attacked[::11]))
    assert any("ran unasked" in failure for failure in figures.failures())
