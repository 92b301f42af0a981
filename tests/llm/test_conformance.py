"""Every model we ship keeps what a model has to keep, over real HTTP where it speaks HTTP."""

from contextlib import contextmanager

import pytest

from treadle.models import Anthropic, OpenAIChat, ScriptedModel
from treadle.testing.conformance.model import CHECKS, provider_script
from treadle.testing.provider import ProviderServer


@contextmanager
def in_process(script):
    yield ScriptedModel(script)


@contextmanager
def openai(script):
    with ProviderServer(provider_script(script)) as server:
        yield OpenAIChat("gpt-x", base_url=server.openai_base_url, api_key="key")
    assert server.problems == []


@contextmanager
def anthropic(script):
    with ProviderServer(provider_script(script)) as server:
        yield Anthropic("claude-x", base_url=server.anthropic_base_url, api_key="key")
    assert server.problems == []


@pytest.mark.anyio
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("scripted", [in_process, openai, anthropic], ids=lambda made: made.__name__)
async def test_it_keeps_what_every_model_keeps(scripted, check):
    await check(scripted)
