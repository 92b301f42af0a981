"""Names resolve to models, or to an error that says what to write instead."""

import http.server
import json
import subprocess
import sys
import threading
import time
from functools import partial

import pytest

from treadle import Agent
from treadle.errors import ConfigurationError, ModelUnknown
from treadle.llm import registry
from treadle.llm.default_layers import resolve
from treadle.llm.other_providers import OTHER_PROVIDERS
from treadle.llm.providers import PROVIDERS
from treadle.llm.registry import bare_model, default_model, local_ollama
from treadle.models import (
    Anthropic,
    Google,
    Ollama,
    OpenAI,
    OpenAIChat,
    ProviderModel,
    PydanticAIModel,
    ScriptedModel,
)


@pytest.mark.parametrize(
    ("name", "kind", "shown"),
    [
        ("openai:gpt-x", OpenAIChat, "openai:gpt-x"),
        ("openai-chat:gpt-x", OpenAIChat, "openai:gpt-x"),
        ("openai-responses:gpt-x", OpenAI, "openai-responses:gpt-x"),
        ("anthropic:claude-x", Anthropic, "anthropic:claude-x"),
        ("google:gemini-x", Google, "google:gemini-x"),
        ("ollama:qwen3:4b", Ollama, "ollama:qwen3:4b"),
        ("openai:ft:gpt-x:acme", OpenAIChat, "openai:ft:gpt-x:acme"),
    ],
)
def test_a_name_selects_a_provider_and_a_model(name, kind, shown):
    model = resolve(name)
    assert type(bare_model(name)) is kind
    assert model.name == shown


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gpt-x", r"did you mean openai:gpt-x\?"),
        ("gpt-5", r"'gpt-5' does not name a provider and a model; did you mean openai:gpt-5\?"),
        ("claude-sonnet-5-5", "did you mean anthropic:claude-sonnet-5-5"),
        ("llama3", "did you mean ollama:llama3"),
        ("my-model", "write provider:model, such as openai:"),
        ("openai:", "write provider:model"),
        (":gpt-x", "write provider:model"),
        ("openai: gpt-x", r"has white space in it; did you mean openai:gpt-x\?"),
        ("openai/gpt-x", r"did you mean openai:gpt-x\?"),
        ("gemini/gemini-x", r"did you mean google:gemini-x\?"),
        ("together_ai/meta-llama/Llama-3", r"did you mean together:meta-llama/Llama-3\?"),
        ("meta-llama/Llama-3", "write provider:model"),
        ("OpenAI:gpt-x", r"did you mean openai:gpt-x\?"),
        ("Gemini:x", r"did you mean google:x\?"),
        ("opnai:gpt-x", "did you mean openai:gpt-x"),
        ("zzz:gpt-x", "known are alibaba, anthropic, azure, .*, zai"),
        ("nope:x", "known are alibaba"),
        ("gemini:x", "did you mean google:x"),
        ("google-vertex:x", "did you mean google-cloud:x"),
        ("grok:x", "did you mean xai:x"),
        ("mistralai:x", "did you mean mistral:x"),
        ("groqq:x", "did you mean groq:x"),
        ("open-router:x", "did you mean openrouter:x"),
        ("gogle:gemini-x", "did you mean google:gemini-x"),
    ],
)
def test_an_unknown_name_is_refused_with_a_hint(name, said):
    with pytest.raises(ModelUnknown, match=said):
        resolve(name)


@pytest.mark.parametrize("name", ["gpt-5", "nope:x", "groqq:llama"])
def test_an_agent_of_an_unknown_model_is_refused_when_it_is_made(name):
    with pytest.raises(ModelUnknown, match=r"^Agent 'helper': ") as caught:
        Agent(name, name="helper")
    assert "Timeout" not in str(caught.value)
    with pytest.raises(ModelUnknown):
        Agent("openai:gpt-x").replace(model=name)


def test_every_other_name_of_a_provider_stands_for_one_that_is_there():
    known = {*PROVIDERS, *OTHER_PROVIDERS}
    assert set(registry._OTHER_NAMES.values()) | {provider for _, provider in registry._FAMILIES} <= known
    assert set(registry._OTHER_NAMES) & known == set()


def test_an_object_that_is_not_a_model_is_refused():
    with pytest.raises(ModelUnknown, match="not 7"):
        resolve(7)  # pyright: ignore[reportArgumentType]


def test_a_model_object_is_returned_as_it_is():
    model = ScriptedModel(["hi"])
    assert resolve(model) is model


def test_a_model_of_pydantic_ai_is_wrapped():
    from pydantic_ai.models.test import TestModel

    model = resolve(TestModel())
    assert isinstance(model, PydanticAIModel)
    assert model.name == "test:test"


def test_resolving_and_naming_models_imports_no_provider():
    code = (
        "import sys; from treadle.models import OpenAI, OpenAIChat, Anthropic, Google, ScriptedModel, text\n"
        "from treadle.llm.default_layers import resolve; resolve('openai:gpt-x'); resolve('anthropic:claude-x')\n"
        "resolve('openai-responses:gpt-x'); resolve('google:gemini-x')\n"
        "assert not {'pydantic_ai', 'openai', 'anthropic', 'google.genai', 'httpx2'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_default_model_belongs_to_the_key_in_the_environment():
    assert default_model({}) is None
    assert default_model({"OPENAI_API_KEY": ""}) is None
    assert (default_model({"OPENAI_API_KEY": "k"}) or "").startswith("openai:")
    assert (default_model({"ANTHROPIC_API_KEY": "k"}) or "").startswith("anthropic:")
    assert (default_model({"GOOGLE_API_KEY": "k"}) or "").startswith("google:")
    assert (default_model({"GEMINI_API_KEY": "k"}) or "").startswith("google:")


def test_a_local_ollama_is_asked_for_its_models():
    class Tags(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = json.dumps({"models": [{"name": "qwen3:4b"}]}).encode()
            self.send_response(200 if self.path == "/api/tags" else 404)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Tags) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        assert local_ollama(1, url=url) == ["ollama:qwen3:4b"]
        server.shutdown()
    assert local_ollama(1, url=url) == []


def test_a_silent_server_is_abandoned_after_the_timeout():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        assert local_ollama(0.1, url=f"http://127.0.0.1:{silent.getsockname()[1]}") == []
        assert time.monotonic() - began < 10  # without it the server would be listened to for ever


@pytest.mark.parametrize(
    ("make", "name", "said"),
    [
        (OpenAIChat, "", "name must be the provider's name for the model, got ''"),
        (OpenAI, None, "got None"),
        (Anthropic, " claude-x", "got ' claude-x'"),
        (Google, "google:gemini-x", "the name is that of the model alone, 'gemini-x', not 'google:gemini-x'"),
        (Ollama, "ollama:qwen3:4b", "the model alone, 'qwen3:4b'"),
        (OpenAI, "openai:gpt-x", "the model alone, 'gpt-x'"),
        (partial(ProviderModel, "groq"), "groq:llama", "the model alone, 'llama'"),
    ],
)
def test_a_name_that_no_model_can_have_is_refused_where_it_is_written(make, name, said):
    with pytest.raises(ConfigurationError) as caught:
        make(name)
    assert said in str(caught.value)
