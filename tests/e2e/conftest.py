"""Fixtures for tests over HTTP: a provider that refuses every invalid request."""

from collections.abc import Iterator
from typing import Any

import pytest

from treadle.testing.provider import ProviderServer


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Start a provider that follows a script; in the end it must not have refused anything."""
    servers: list[ProviderServer] = []

    def start(*script: Any) -> ProviderServer:
        server = ProviderServer(script[0] if callable(script[0]) else list(script))
        server.start()
        servers.append(server)
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_base_url)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.anthropic_base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
        return server

    yield start
    for server in servers:
        server.stop()
        assert server.problems == []
