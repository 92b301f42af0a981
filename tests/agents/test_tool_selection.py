"""Tool selectors of agents: which values may be a selector, and that it is part of the agent's version."""

from typing import Any

import pytest

from tests.cast import Ledger
from tests.engine.selectors import Phases, names
from treadle import (
    Runner,
)
from treadle.core.events import ModelFailed, ModelStarted
from treadle.errors import ConfigurationError
from treadle.replay.recording import journal_of
from treadle.testing.audit import Evidence, audit_store

pytestmark = pytest.mark.anyio


def _raises(ctx: Any) -> Any:
    raise LookupError("no idea")


@pytest.mark.parametrize(
    ("offer", "why"),
    [
        (_raises, "LookupError: no idea"),
        (lambda ctx: ["lok"], "'lok' is no tool of the agent, did you mean 'look'?"),
        (lambda ctx: "look", "an offer returns tools or their names, got 'look'"),
        (lambda ctx: None, "an offer returns tools or their names, got None"),
        (lambda ctx: [5], "among them was 5"),
    ],
)
async def test_an_offer_that_cannot_choose_fails_its_step_and_nothing_is_sent(
    runner: Runner, offer: Any, why: str
) -> None:
    agent = Ledger().agent("Hello.", offer=offer)
    result = await runner.run(agent, "go")
    assert (result.state, agent.model.requests) == ("failed", [])
    assert result.error is not None
    assert (result.error.source, result.error.kind) == ("agent", "offer")
    assert why in result.error.message
    events = await journal_of(runner.store, result.task_id)
    assert [type(event) for event in events if isinstance(event, (ModelStarted, ModelFailed))] == [
        ModelStarted,
        ModelFailed,
    ]
    mended = agent.replace(offer=lambda ctx: ["look"])
    assert (await runner.resume(result.task_id, agent=mended)).state == "completed"
    assert names(agent.model.requests[0]) == ["look"]
    assert await audit_store(runner.store, Evidence(ended=True)) == []


@pytest.mark.parametrize("wrong", [5, "look", Phases, ["look"]])
def test_a_value_that_is_not_a_selector_is_named(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="Agent 'clerk': offer must be"):
        Ledger().agent("Hello.", offer=wrong)


def test_an_async_function_is_refused() -> None:
    async def offer(ctx: Any) -> list[str]:
        return []

    with pytest.raises(ConfigurationError, match="plain function"):
        Ledger().agent("Hello.", offer=offer)


def test_an_offer_makes_another_version_of_an_agent() -> None:
    plain = Ledger().agent("Hello.")
    one, other = plain.replace(offer=_raises), plain.replace(offer=Phases())
    assert len({plain.fingerprint, one.fingerprint, other.fingerprint}) == 3
    assert plain.replace(offer=None).fingerprint == plain.fingerprint
    assert one.replace(name="clerk").offer is _raises
