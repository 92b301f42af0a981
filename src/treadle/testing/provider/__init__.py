"""A scripted model provider: a real HTTP server on loopback that replaces paid models in tests.

    from treadle.testing.provider import ProviderServer, call, fail, text

    with ProviderServer([fail(429, retry_after=1), call("add", a=1, b=2), text("It is 3.")]) as server:
        client = openai.OpenAI(base_url=server.openai_base_url, api_key="any")

It speaks OpenAI's Chat Completions and Responses, Anthropic's Messages and Google's Gemini API, streamed and not. It
refuses ill-formed requests as the real providers do, and keeps every request. From a shell: `python -m
treadle.testing.provider --script turns.json`.
"""

from treadle.core.model import Usage
from treadle.testing.provider.script import (
    OutOfScript,
    Script,
    call,
    fail,
    from_json,
    hang_up,
    raw,
    raw_call,
    reasoning,
    refusal,
    text,
    turn,
)
from treadle.testing.provider.server import ProviderRequest, ProviderServer
from treadle.testing.provider.wire import Refused, Wire

__all__ = [
    "OutOfScript",
    "ProviderRequest",
    "ProviderServer",
    "Refused",
    "Script",
    "Usage",
    "Wire",
    "call",
    "fail",
    "from_json",
    "hang_up",
    "raw",
    "raw_call",
    "reasoning",
    "refusal",
    "text",
    "turn",
]
