"""The plain assistant over HTTP, and the model that a command uses."""

import io

import pytest

from treadle.testing.provider import ProviderServer, fail, text


@pytest.fixture
def provider(monkeypatch):
    """A local provider at the address of OpenAI's models; `say` sets its script."""
    servers: list[ProviderServer] = []

    def say(*turns) -> ProviderServer:
        server = ProviderServer(list(turns)).__enter__()
        servers.append(server)
        monkeypatch.setenv("OPENAI_API_KEY", "a-key")
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_base_url)
        return server

    yield say
    for server in servers:
        server.__exit__(None, None, None)


def test_without_agent_a_plain_assistant_uses_the_model_whose_key_is_set(provider, begin, ended_process):
    server = provider(text("Hello there."))
    ended = ended_process(begin("run", "hello"))
    assert ended.code == 0, ended.err
    assert "Hello there." in ended.out
    assert "a-key" not in ended.out + ended.err
    assert server.requests[0].body["model"] == "gpt-5.4-mini"


def test_the_assistant_keeps_the_model_of_its_task(provider, treadle):
    server = provider(fail(400), text("Here I am."))
    assert treadle("run", "hello", "--model", "openai:gpt-other").code == 1
    assert treadle("resume", "last", "--json").document["final_text"] == "Here I am."
    assert [request.body["model"] for request in server.requests] == ["gpt-other", "gpt-other"]


def test_a_model_on_the_command_line_replaces_the_agents_model(provider, treadle):
    server = provider(text("From over the wire."))
    ended = treadle("run", "math", "hi", "--model", "openai:gpt-x", "--json")
    assert ended.document["final_text"] == "From over the wire."
    assert [tool["function"]["name"] for tool in server.requests[0].body["tools"]] == ["add"]


def test_a_model_of_an_unknown_provider_creates_no_task(treadle):
    ended = treadle("run", "math", "hi", "--model", "opnai:gpt-x")
    assert ended.code == 2
    assert "openai:gpt-x" in ended.err
    assert treadle("tasks").code == 2


def test_input_is_read_from_standard_input_for_a_dash(provider, treadle, monkeypatch):
    server = provider(text("Read."))
    monkeypatch.setattr("sys.stdin", io.StringIO("a long text"))
    assert treadle("run", "-").code == 0
    assert server.requests[0].body["messages"][-1]["content"] == "a long text"
