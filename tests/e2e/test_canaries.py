"""Twenty secrets go through a task and ten faults: they are found in no journal, log, trace, event or output."""

import pytest

from tests.e2e import canaries
from treadle.core.redaction import NO_SECRETS
from treadle.engine.vault import Vault
from treadle.llm.providers import NamedModel

pytestmark = pytest.mark.anyio


@pytest.mark.sampled(1)
@pytest.mark.parametrize("form", canaries.FORMS)
async def test_no_canary_is_found_anywhere(form):
    assert await canaries.leaks_of(form) == []


@pytest.mark.full
async def test_the_search_finds_the_canaries_where_nothing_hides_them(monkeypatch):
    monkeypatch.setattr(Vault, "learn", lambda *_, **__: None)
    monkeypatch.setattr(NamedModel, "_secrets", lambda *_: NO_SECRETS)
    leaks = await canaries.leaks_of("raw")
    assert {leak.partition(" in ")[0] for leak in leaks} == set(canaries.CANARIES)
