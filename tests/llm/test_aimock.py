"""An independent provider, aimock of npm: all wire formats, tools, errors and truncation, in one attempt each.

It needs Node and its package, which `make aimock` installs outside of the repository; TREADLE_AIMOCK says where.
"""

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from treadle import Agent, Runner, tool
from treadle.models import Anthropic, Google, Ollama, OpenAI, OpenAIChat, ProviderModel

HOME = Path(os.environ.get("TREADLE_AIMOCK") or Path.home() / ".cache" / "treadle-aimock")
SERVER = HOME / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"
VERSION = json.loads((Path(__file__).parent / "aimock" / "package.json").read_text())["dependencies"][
    "@copilotkit/aimock"
]
KEY = "sk-test-key-of-aimock"

pytestmark = [
    # Google's package says so of the word with which aimock ends an answer with calls.
    pytest.mark.filterwarnings("ignore:FUNCTION_CALL is not a valid FinishReason:UserWarning"),
]

MODELS = {
    "openai": lambda url, **more: OpenAIChat("gpt-4o", base_url=f"{url}/v1", api_key=KEY, **more),
    "openai-responses": lambda url, **more: OpenAI("gpt-4o", base_url=f"{url}/v1", api_key=KEY, **more),
    "anthropic": lambda url, **more: Anthropic("claude-sonnet-5-5", base_url=url, api_key=KEY, **more),
    "google": lambda url, **more: Google("gemini-2.5-flash", base_url=url, api_key=KEY, **more),
    "ollama": lambda url, **more: Ollama("qwen3:4b", base_url=url, **more),
    "azure": lambda url, **more: ProviderModel("azure", "gpt-4o", base_url=f"{url}/v1", api_key=KEY, **more),
    "openrouter": lambda url, **more: ProviderModel(
        "openrouter", "openai/gpt-4o", base_url=f"{url}/api/v1", api_key=KEY, **more
    ),
    "cohere": lambda url, **more: ProviderModel(
        "cohere", "command-r-plus", base_url=url, api_key=KEY, **more
    ),
    "bedrock": lambda url, **more: ProviderModel("bedrock", "amazon.nova-pro-v1:0", base_url=url, **more),
}
EVERY_ERROR = pytest.mark.parametrize(
    ("name", "stream"), [(name, stream) for name in MODELS for stream in (True, False)]
)
# aimock begins a streamed text of Bedrock with a union without members, which Amazon's package refuses.
EVERY = pytest.mark.parametrize(
    ("name", "stream"),
    [(name, stream) for name in MODELS for stream in (True, False) if not (name == "bedrock" and stream)],
)


def _error(status, kind):
    return {"error": {"message": f"no: {kind}", "type": kind}, "status": status}


ERRORS = {
    400: ("invalid_request_error", "invalid_request"),
    401: ("authentication_error", "authentication"),
    404: ("not_found_error", "not_found"),
    429: ("rate_limit_error", "rate_limit"),
    500: ("api_error", "server"),
    503: ("overloaded_error", "overloaded"),
}
SUM = {"name": "add", "arguments": {"a": 1, "b": 2}}
FIXTURES = [
    {"match": {"userMessage": "say hello"}, "response": {"content": "Hello from aimock, in several pieces."}},
    {"match": {"userMessage": "one sum", "hasToolResult": True}, "response": {"content": "It is 3."}},
    {"match": {"userMessage": "one sum"}, "response": {"toolCalls": [SUM]}},
    {
        "match": {"userMessage": "two sums", "hasToolResult": True},
        "response": {"content": "They are 3 and 7."},
    },
    {
        "match": {"userMessage": "two sums"},
        "response": {"toolCalls": [SUM, {"name": "add", "arguments": {"a": 3, "b": 4}}]},
    },
    {"match": {"userMessage": "cut text"}, "response": {"content": "Half of wh", "finishReason": "length"}},
    {"match": {"userMessage": "cut call", "hasToolResult": True}, "response": {"content": "So be it."}},
    {"match": {"userMessage": "cut call"}, "response": {"toolCalls": [SUM], "finishReason": "length"}},
    {
        "match": {"userMessage": "lost"},
        "response": {"content": "This answer is long enough for many pieces, and breaks off."},
        "truncateAfterChunks": 2,
    },
    *(
        {"match": {"userMessage": f"fail {status}"}, "response": _error(status, kind)}
        for status, (kind, _) in ERRORS.items()
    ),
]


@pytest.fixture(scope="module")
def aimock(tmp_path_factory):
    """Yield the address of the server."""
    node = shutil.which("node")
    if node is None or not SERVER.exists():
        missing = "Node is not installed" if node is None else f"no aimock in {HOME}: run `make aimock`"
        if "TREADLE_AIMOCK" in os.environ:
            pytest.fail(missing)
        pytest.skip(missing)
    installed = json.loads((SERVER.parents[1] / "package.json").read_text())["version"]
    assert installed == VERSION, "run `make aimock` again"
    fixtures = tmp_path_factory.mktemp("aimock") / "fixtures.json"
    fixtures.write_text(json.dumps({"fixtures": FIXTURES}))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen(
        [
            node,
            str(SERVER),
            "-p",
            str(port),
            "-f",
            str(fixtures),
            "--strict",
            "--validate-on-load",
            "--log-level",
            "warn",
        ]
    ) as server:
        try:
            _wait_for(f"{url}/ready", server)
            yield url
        finally:
            server.terminate()


def _wait_for(url, server):
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            assert server.poll() is None, "aimock ended at once"
            assert time.monotonic() < deadline, "aimock does not listen"
            time.sleep(0.05)


@pytest.fixture(autouse=True)
def _amazon(monkeypatch):
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA-not-a-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-a-secret-of-anybody")


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def run(model, words):
    with Runner("memory:").sync as runner:
        return runner.run(Agent(model, tools=[add], instructions="Be brief."), words)


def journal_of(url):
    with urllib.request.urlopen(f"{url}/__aimock/journal?limit=5000", timeout=10) as response:
        answer = json.load(response)
    return answer if isinstance(answer, list) else answer["entries"]


@EVERY
def test_text(aimock, name, stream):
    result = run(MODELS[name](aimock, stream=stream), "say hello")
    assert (result.state, result.final_text) == ("completed", "Hello from aimock, in several pieces."), (
        result.error
    )
    assert result.usage.total_tokens > 0


@EVERY
@pytest.mark.parametrize(
    ("words", "sums", "said"), [("one sum", [3], "It is 3."), ("two sums", [3, 7], "They are 3 and 7.")]
)
def test_tools(aimock, name, stream, words, sums, said):
    result = run(MODELS[name](aimock, stream=stream), words)
    assert (result.state, result.final_text) == ("completed", said), result.error
    assert [execution.output for execution in result.tool_executions] == sums


@EVERY_ERROR
@pytest.mark.parametrize("status", ERRORS)
def test_errors_are_of_their_kind_after_one_request(aimock, name, stream, status):
    before = len(journal_of(aimock))
    result = run(MODELS[name](aimock, stream=stream), f"fail {status}")
    assert result.state == "failed"
    assert (result.error.kind, result.error.status) == (ERRORS[status][1], status)
    assert len(journal_of(aimock)) - before == 1


@EVERY
def test_a_cut_text_is_degraded(aimock, name, stream):
    result = run(MODELS[name](aimock, stream=stream), "cut text")
    assert result.state == "degraded", result.error
    # aimock's Responses say `incomplete` without a reason.
    why = "not known" if name == "openai-responses" else "cut off"
    assert why in result.degraded_reasons[0]


@EVERY
def test_a_call_in_a_cut_answer_does_not_run(aimock, name, stream):
    result = run(MODELS[name](aimock, stream=stream), "cut call")
    assert [execution.outcome for execution in result.tool_executions] == ["invalid"], result.error
    assert result.final_text == "So be it."


@pytest.mark.parametrize("name", MODELS)
def test_a_stream_that_breaks_off_is_no_answer(aimock, name):
    result = run(MODELS[name](aimock), "lost")
    assert (result.state, result.final_text) == ("failed", "")
    assert (result.error.kind, result.error.retryable) == ("connection", True)
