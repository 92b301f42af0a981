"""The four wire formats: how each of our models connects to the scripted provider."""

from contextlib import contextmanager
from functools import partial

from treadle.models import Anthropic, Google, OpenAI, OpenAIChat
from treadle.testing.conformance.model import SECRET
from treadle.testing.provider import ProviderServer


def chat(server, **options):
    return OpenAIChat("gpt-x", base_url=server.openai_base_url, **{"api_key": SECRET, **options})


def responses(server, **options):
    return OpenAI("gpt-x", base_url=server.openai_base_url, **{"api_key": SECRET, **options})


def anthropic(server, **options):
    return Anthropic("claude-x", base_url=server.anthropic_base_url, **{"api_key": SECRET, **options})


def google(server, **options):
    return Google("gemini-3-x", base_url=server.google_base_url, **{"api_key": SECRET, **options})


WIRES = {"chat": chat, "responses": responses, "anthropic": anthropic, "google": google}
WHOLE = {f"{name} whole": partial(make_model, stream=False) for name, make_model in WIRES.items()}


@contextmanager
def scripted(make_model, *script, **options):
    with ProviderServer(script, **options) as server:
        yield server, make_model(server)
