"""Every provider that pydantic-ai knows is reached by its name, in one attempt and with its key."""

import ast
import asyncio
import inspect
import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Literal

import pytest
from pydantic import BaseModel

from treadle import Agent, Runner, tool
from treadle.errors import ConfigurationError, MissingExtra, ModelError, ModelUnknown
from treadle.llm import other_providers, providers
from treadle.llm.other_providers import OTHER_PROVIDERS, ProviderModel
from treadle.llm.providers import PROVIDERS
from treadle.llm.registry import bare_model
from treadle.llm.settings import can_stream
from treadle.models import PydanticAIModel
from treadle.testing.provider import ProviderServer, call, fail

KEY = "sk-test-key-of-another-provider"
NO_CHAT = {"elevenlabs", "sentence-transformers", "voyageai"}
"""Providers of embeddings and speech."""

CHAT = [
    *(
        "alibaba",
        "azure",
        "cerebras",
        "crusoe",
        "deepseek",
        "fireworks",
        "github",
        "github-copilot",
        "heroku",
    ),
    *("litellm", "moonshotai", "nebius", "openrouter", "ovhcloud", "sambanova", "snowflake", "together"),
    *("vercel", "vllm", "zai"),
]
"""Providers that speak the wire format of Chat Completions."""

RESPONSES = ["azure-responses", "meta"]


def known_to_pydantic_ai():
    """Return the names of providers in pydantic-ai's own table."""
    from pydantic_ai import providers as theirs

    tree = ast.parse(inspect.getsource(theirs.infer_provider_class))
    tests = [node for node in ast.walk(tree) if isinstance(node, (ast.match_case, ast.Compare))]
    patterns = [node.pattern if isinstance(node, ast.match_case) else node for node in tests]
    return {
        node.value
        for pattern in patterns
        for node in ast.walk(pattern)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_every_provider_that_pydantic_ai_knows_is_known_here():
    assert known_to_pydantic_ai() - NO_CHAT - PROVIDERS.keys() - OTHER_PROVIDERS.keys() == set()
    assert len(known_to_pydantic_ai()) > 30


def test_every_extra_is_offered_by_the_package():
    from importlib.metadata import metadata

    offered = set(metadata("treadle").get_all("Provides-Extra") or ())
    assert {needs.extra for needs in OTHER_PROVIDERS.values()} - offered == set()


@pytest.mark.parametrize("provider", sorted(OTHER_PROVIDERS))
def test_a_name_reaches_its_provider_and_a_missing_package_names_its_extra(provider, monkeypatch):
    model = bare_model(f"{provider}:some/model:8b")
    assert isinstance(model, ProviderModel)
    assert model.name == f"{provider}:some/model:8b"
    monkeypatch.setattr(providers, "installed", lambda _: False)
    with pytest.raises(
        MissingExtra, match=rf"pip install '/path/to/treadle\[{OTHER_PROVIDERS[provider].extra}\]'"
    ):
        model.require()


@pytest.mark.sampled(8)
@pytest.mark.parametrize("provider", sorted(name for name, needs in OTHER_PROVIDERS.items() if needs.keys))
def test_a_missing_key_is_named(provider, monkeypatch):
    needs = OTHER_PROVIDERS[provider]
    for name in needs.keys:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ModelError, match=f"set {needs.keys[0]} or pass api_key=") as caught:
        asyncio.run(bare_model(f"{provider}:m").prepare())
    assert caught.value.kind == "authentication"


@tool(read_only=True)
def double(number: int) -> int:
    """Double a number."""
    return number * 2


@pytest.mark.sampled(10)
# pydantic-ai says of some providers that they are deprecated, or that a header is needed elsewhere.
@pytest.mark.filterwarnings("ignore::DeprecationWarning:pydantic_ai")
@pytest.mark.filterwarnings("ignore:.*deprecated")
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("provider", [*CHAT, *RESPONSES])
def test_a_task_runs_through_the_provider(provider, stream):
    if provider == "openrouter" and not stream:
        pytest.skip("a whole answer of OpenRouter names its provider: it has a test of its own below")
    with ProviderServer([call("double", number=21), "It is 42."], api_key=KEY) as server:
        model = ProviderModel(
            provider, "acme/some-model", base_url=server.openai_base_url, api_key=KEY, stream=stream
        )
        with Runner("memory:").sync as runner:
            result = runner.run(Agent(model, tools=[double]), "Double 21.")
        assert (result.final_text, result.state) == ("It is 42.", "completed"), result.error
        assert server.problems == []
        assert len(server.requests) == 2


@pytest.mark.sampled(6)
@pytest.mark.filterwarnings("ignore:.*deprecated")
@pytest.mark.parametrize("provider", [*CHAT, *RESPONSES])
def test_a_failed_request_is_one_request(provider):
    with ProviderServer([fail(503), fail(503), fail(503), "late"]) as server:
        model = ProviderModel(provider, "acme/some-model", base_url=server.openai_base_url, api_key=KEY)
        with Runner("memory:").sync as runner:
            result = runner.run(Agent(model), "Hi")
        assert result.state == "failed"
        assert (result.error.kind, result.error.status) == ("overloaded", 503)
        assert len(server.requests) == 1


@contextmanager
def listening(status, headers, body):
    """Yield the address of a server that answers every request so, and the paths that were asked for."""
    paths = []

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self):
            paths.append(self.path)
            sent = self.rfile.read(int(self.headers.get("content-length", 0)))
            answer = json.dumps(body(json.loads(sent))).encode() if callable(body) else body
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", paths
        finally:
            server.shutdown()


@pytest.fixture
def aws(monkeypatch):
    """Set what Amazon's package wants; returns the key of a provider. Amazon takes a bearer key only over TLS."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA-not-a-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-a-secret-of-anybody")
    return lambda provider: None if provider == "bedrock" else KEY


OWN_FORMATS = ["groq", "cohere", "bedrock", "mistral"]


@pytest.mark.parametrize("provider", OWN_FORMATS)
def test_a_package_with_its_own_client_makes_one_attempt(provider, aws):
    body = json.dumps({"message": "busy"}).encode()
    with listening(503, {"content-type": "application/json"}, body) as (url, paths):
        model = ProviderModel(provider, "acme/some-model", base_url=url, api_key=aws(provider))
        with Runner("memory:").sync as runner:
            result = runner.run(Agent(model), "Hi")
    assert (result.state, len(paths)) == ("failed", 1), result.error
    assert result.error.status == 503


COMPLETION = {
    "id": "1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
}
OWN_ANSWERS = {
    "groq": COMPLETION,
    "huggingface": COMPLETION,
    "mistral": COMPLETION,
    "openrouter": COMPLETION | {"provider": "Acme"},
    "cohere": {
        "id": "1",
        "finish_reason": "COMPLETE",
        "message": {"role": "assistant", "content": [{"type": "text", "text": "Hello."}]},
        "usage": {"tokens": {"input_tokens": 3, "output_tokens": 2}},
    },
    "bedrock": {
        "output": {"message": {"role": "assistant", "content": [{"text": "Hello."}]}},
        "stopReason": "end_turn",
        "usage": {"inputTokens": 3, "outputTokens": 2, "totalTokens": 5},
        "metrics": {"latencyMs": 1},
    },
}


@pytest.mark.parametrize("provider", OWN_ANSWERS)
def test_a_package_with_its_own_format_answers(provider, aws):
    body = json.dumps(OWN_ANSWERS[provider]).encode()
    with listening(200, {"content-type": "application/json"}, body) as (url, _):
        model = ProviderModel(provider, "acme/some-model", base_url=url, api_key=aws(provider), stream=False)
        with Runner("memory:").sync as runner:
            result = runner.run(Agent(model), "Hi")
    assert (result.final_text, result.state) == ("Hello.", "completed"), result.error
    assert (result.usage.input_tokens, result.usage.output_tokens) == (3, 2)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_model_of_decisions_fills_in_a_typed_answer(stream):
    def decide(sent):
        answers = {
            name: {
                "type": "choice",
                "choice": "billing",
                "confidence": 0.9,
                "probabilities": dict.fromkeys(question["criteria"], 0.5),
            }
            for name, question in sent["questions"].items()
        }
        return {"model": "clm", "answers": answers, "usage": {"input_tokens": 3, "output_tokens": 2}}

    with listening(200, {"content-type": "application/json"}, decide) as (url, paths):
        model = ProviderModel("system-one", "clm-latest", base_url=url, api_key=KEY, stream=stream)
        with Runner("memory:").sync as runner:
            typed = runner.run(Agent(model, output_type=Handling), "My invoice is wrong")
            text = runner.run(Agent(model), "My invoice is wrong")
    assert (typed.state, typed.output) == ("completed", Handling(team="billing")), typed.error
    assert (text.state, len(paths)) == ("failed", 1)
    assert "output_type" in text.error.message


class Handling(BaseModel):
    team: Literal["billing", "support"]


def chunk(delta, finish=None, **more):
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    document = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return f"data: {json.dumps(document | more)}\n\n"


def event(kind, **more):
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **more})}\n\n"


USAGE = {"usage": COMPLETION["usage"]}
COHERE_USAGE = {"tokens": {"input_tokens": 3, "output_tokens": 2}}
COMPLETION_STREAM = (
    chunk({"role": "assistant", "content": "Hel"}),
    chunk({"content": "lo."}),
    chunk({"content": ""}, "stop", **USAGE) + "data: [DONE]\n\n",
)
OWN_STREAMS = {
    "groq": COMPLETION_STREAM,
    "huggingface": COMPLETION_STREAM,
    "mistral": COMPLETION_STREAM,
    "cohere": (
        event("message-start", id="1", delta={"message": {"role": "assistant"}}),
        event("content-start", index=0, delta={"message": {"content": {"type": "text", "text": ""}}}),
        event("content-delta", index=0, delta={"message": {"content": {"text": "Hello."}}}),
        event("content-end", index=0),
        event("message-end", delta={"finish_reason": "COMPLETE", "usage": COHERE_USAGE}),
    ),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("end", ["whole", "cut"])
@pytest.mark.parametrize("provider", OWN_STREAMS)
def test_a_stream_of_its_own_format_is_whole_only_at_its_end(provider, end):
    if not can_stream(asyncio.run(ProviderModel(provider, "m", api_key=KEY)._ready())):
        pytest.skip(f"the installed version of pydantic-ai does not stream {provider}")
    pieces = OWN_STREAMS[provider]
    body = "".join(pieces if end == "whole" else pieces[:-1]).encode()
    with listening(200, {"content-type": "text/event-stream"}, body) as (url, _):
        model = ProviderModel(provider, "acme/some-model", base_url=url, api_key=KEY)
        with Runner("memory:").sync as runner:
            result = runner.run(Agent(model), "Hi")
    if end == "whole":
        assert (result.final_text, result.state) == ("Hello.", "completed"), result.error
    else:
        assert (result.final_text, result.state, result.error.kind) == ("", "failed", "connection")


def test_xai_is_asked_by_its_own_package_without_retries(monkeypatch):
    import xai_sdk

    options = []
    make = xai_sdk.AsyncClient.__init__
    monkeypatch.setattr(
        xai_sdk.AsyncClient, "__init__", lambda self, **given: options.append(given) or make(self, **given)
    )
    asyncio.run(ProviderModel("xai", "grok-4", api_key=KEY).prepare())
    assert [given["channel_options"] for given in options] == [[("grpc.enable_retries", 0)]]
    elsewhere = ProviderModel("xai", "grok-4", base_url="https://eu.api.x.ai", api_key=KEY)
    asyncio.run(elsewhere.prepare())
    assert (options[1]["api_host"], options[1]["use_insecure_channel"]) == ("eu.api.x.ai", False)


def test_what_a_provider_lacks_is_said_by_name(monkeypatch):
    monkeypatch.delenv("AZURE_OPENAI_ENDPOINT", raising=False)
    with pytest.raises(ModelError, match=r"the model azure:gpt-x cannot be used: .*AZURE_OPENAI_ENDPOINT"):
        asyncio.run(ProviderModel("azure", "gpt-x", api_key=KEY).prepare())


def test_a_model_class_that_cannot_stream_is_asked_for_whole_answers():
    from pydantic_ai.messages import ModelResponse, TextPart
    from pydantic_ai.models import Model
    from pydantic_ai.usage import RequestUsage

    class Whole(Model):
        model_name, system, base_url = "whole", "acme", None

        async def request(self, messages, model_settings, model_request_parameters):
            usage = RequestUsage(input_tokens=3, output_tokens=2)
            return ModelResponse([TextPart("Hello.")], usage=usage, finish_reason="stop")

    with Runner("memory:").sync as runner:
        result = runner.run(Agent(PydanticAIModel(Whole())), "Hi")
    assert (result.state, result.final_text) == ("completed", "Hello."), result.error


def test_an_unknown_provider_is_refused():
    with pytest.raises(ModelUnknown, match="provider must be one of alibaba, azure"):
        ProviderModel("nope", "x")


def test_a_provider_that_the_installed_version_does_not_know_is_said(monkeypatch):
    monkeypatch.setitem(OTHER_PROVIDERS, "newest", other_providers.OtherProvider(()))
    with pytest.raises(ModelError, match=r"pydantic-ai-slim \S+ does not know the provider"):
        asyncio.run(ProviderModel("newest", "x").prepare())


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("127.0.0.1:4010", "did you mean http://127.0.0.1:4010?"),
        ("localhost:8000/v1", "did you mean http://localhost:8000/v1?"),
        ("gpu-box:8000", "did you mean http://gpu-box:8000?"),
        ("api.example.com/v1", "did you mean https://api.example.com/v1?"),
        ("ftp://api.example.com", "must begin with http:// or https://"),
        ("https://", "names no host"),
        (8000, "must be text, got 8000"),
    ],
)
def test_an_address_without_a_scheme_is_the_mistake_that_is_named(url, said, monkeypatch):
    with pytest.raises(ConfigurationError, match=r"OpenAIChat: base_url") as caught:
        providers.OpenAIChat("m", base_url=url)
    assert said in str(caught.value)
    if isinstance(url, str):
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        with pytest.raises(ModelError, match="OPENAI_BASE_URL"):
            asyncio.run(providers.OpenAIChat("m", api_key="k").prepare())
