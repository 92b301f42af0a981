"""`ModelSettings(max_tokens=)` was sent to Ollama as `max_completion_tokens`, which it ignores: answers had no end."""

from typing import Any

import pytest

from treadle import Agent, ModelSettings, Runner
from treadle.models import Ollama, OpenAIChat
from treadle.testing.provider import ProviderServer, text

pytestmark = pytest.mark.anyio

THINKING: Any = {"extra_body": {"think": False}}


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(
    ("make", "extra", "sent"),
    [
        (Ollama, {}, {"max_tokens": 99}),
        (Ollama, THINKING, {"max_tokens": 99, "think": False}),
        (Ollama, {"extra_body": {"max_tokens": 7}}, {"max_tokens": 7}),
        (OpenAIChat, {}, {"max_completion_tokens": 99}),
    ],
)
async def test_each_server_is_sent_the_limit_by_a_name_that_it_knows(
    make: Any, extra: Any, sent: dict[str, Any], streamed: bool
) -> None:
    with ProviderServer([text("Hello.")]) as server:
        model = make("local", base_url=server.openai_base_url, api_key="none", stream=streamed)
        agent = Agent(model, model_settings=ModelSettings(max_tokens=99, extra=extra))
        async with Runner("memory:") as runner:
            result = await runner.run(agent, "Hello?")
        assert result.final_text == "Hello."
        body = server.requests[0].body
    names = ("max_tokens", "max_completion_tokens", "think")
    assert {name: body[name] for name in names if name in body} == sent
