"""Every model passes the conformance suite, over real HTTP where it uses HTTP, streamed and whole."""

from contextlib import contextmanager

import pytest

from tests.llm.wires import WHOLE, WIRES
from treadle.models import ScriptedModel
from treadle.testing.conformance.model import AS_TEXT, CHECKS, PIECEWISE, provider_script
from treadle.testing.provider import ProviderServer


@contextmanager
def in_process(script):
    yield ScriptedModel(script)


def over(make_model):
    @contextmanager
    def scripted(script):
        with ProviderServer(provider_script(script)) as server:
            yield make_model(server)
        assert server.problems == []

    return scripted


ALL = {"in process": in_process} | {name: over(make_model) for name, make_model in {**WIRES, **WHOLE}.items()}
PARSED = {"google", "google whole", "anthropic whole"}
"""The wire formats that carry the arguments of calls as objects."""
CASES = [
    pytest.param(scripted, check, id=f"{name}-{check.__name__}")
    for name, scripted in ALL.items()
    for check in CHECKS
    if not (check in PIECEWISE and name in WHOLE) and not (check in AS_TEXT and name in PARSED)
]


@pytest.mark.anyio
@pytest.mark.parametrize(("scripted", "check"), CASES)
async def test_each_model_passes_the_conformance_suite(scripted, check):
    await check(scripted)
