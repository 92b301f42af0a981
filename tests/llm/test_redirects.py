"""No client of a provider follows a redirect, of any kind, on any wire format: the key stays with its host."""

import socket
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from pydantic import BaseModel

from tests.llm.key_matrix import another_host
from tests.llm.wires import SECRET
from treadle.core.model import ModelRequest
from treadle.core.tools import ToolSpec
from treadle.errors import ModelError
from treadle.llm.other_providers import OTHER_PROVIDERS, ProviderModel
from treadle.models import Anthropic, Google, OpenAI, OpenAIChat
from treadle.testing.conformance.model import ask, request

pytestmark = [
    pytest.mark.anyio,
    # pydantic-ai says of some providers that they are deprecated, or that a header is needed elsewhere.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*deprecated"),
]

STATUSES = (300, 301, 302, 303, 305, 307, 308)
LOCATIONS = {
    "another host": "{elsewhere}/v1",
    "another host, with the key": "{elsewhere}/v1?key={key}",
    "another host in capitals": "HTTP://127.0.0.2:{other_port}/v1",
    "another port": "http://127.0.0.1:{other_port}/v1",
    "another scheme": "https://127.0.0.1:{port}/v1",
    "a subdomain": "http://evil.localhost:{other_port}/v1",
    "the host as a user's name": "http://127.0.0.1:{port}@127.0.0.2:{other_port}/v1",
    "the host as a password": "http://u:127.0.0.1@127.0.0.2:{other_port}/v1",
    "without a scheme": "//127.0.0.2:{other_port}/v1",
    "with backslashes": "\\\\127.0.0.2:{other_port}\\v1",
    "a path": "/v2/elsewhere",
    "a relative path": "elsewhere",
    "itself": "",
    "a file": "file:///etc/passwd",
    "no URL": "http://[::1",
}
"""Where a redirect leads: to a server that keeps what it gets, at another host and port."""

WIRES = {
    "chat": lambda url, **more: OpenAIChat("gpt-x", base_url=f"{url}/v1", api_key=SECRET, **more),
    "responses": lambda url, **more: OpenAI("gpt-x", base_url=f"{url}/v1", api_key=SECRET, **more),
    "anthropic": lambda url, **more: Anthropic("claude-x", base_url=url, api_key=SECRET, **more),
    "google": lambda url, **more: Google("gemini-3-x", base_url=url, api_key=SECRET, **more),
}


class Redirecting(BaseHTTPRequestHandler):
    """Answers each request as its server was told."""

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.paths.append(self.path)
        status, headers, body = self.server.answer
        self.send_response(status)
        for name, value in {"content-length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST  # noqa: N815  a name of the library

    def log_message(self, *_):
        pass


@contextmanager
def redirecting():
    with ThreadingHTTPServer(("127.0.0.1", 0), Redirecting) as server:
        server.paths = []
        server.answer = (500, {}, b"")
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


async def refused(model, asked: ModelRequest | None = None) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await ask(model, asked or request())
    assert SECRET not in str(caught.value)
    return caught.value


async def no_redirect_is_followed(make, asked: ModelRequest | None = None, without=()) -> None:
    """Have a model answered by each redirect; no request follows it, and the error says where it led."""
    with redirecting() as server, another_host() as elsewhere:
        port, other_port = server.server_port, elsewhere.url.rpartition(":")[2]
        model = make(f"http://127.0.0.1:{port}")
        cases = [(307, where) for where in LOCATIONS.values()]
        cases += [(status, "{elsewhere}/v1") for status in STATUSES if status != 307]
        cases = [case for case in cases if not {*case} & {*without}]
        for number, (status, where) in enumerate(cases, 1):
            location = where.format(elsewhere=elsewhere.url, port=port, other_port=other_port, key=SECRET)
            server.answer = (status, {"location": location}, b"")
            error = await refused(model, asked)
            assert len(server.paths) == number, (where, str(error))
            assert (error.kind, error.status) == ("not_found", status), (where, str(error))
            assert f"127.0.0.1:{port} answered with HTTP status {status}, a redirect to " in str(error)
            assert "base_url" in str(error)
            if "elsewhere}" in where:
                assert f"a redirect to 127.0.0.2:{other_port}," in str(error)
        assert elsewhere.requests == []


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("wire", WIRES)
async def test_no_redirect_of_a_wire_format_is_followed(wire, stream):
    await no_redirect_is_followed(lambda url: WIRES[wire](url, stream=stream))


PAGE = b'<html><head><meta http-equiv="refresh" content="0;url={there}"><title>Moved</title></head></html>'
HINTS = {
    "a page that refreshes": (200, {"content-type": "text/html"}, PAGE),
    "a page of an error that refreshes": (503, {"content-type": "text/html"}, PAGE),
    "a header that refreshes": (500, {"refresh": "0;url={there}"}, b"{}"),
    "a place of the content": (500, {"content-location": "{there}", "location": "{there}"}, b"{}"),
    "another service": (500, {"alt-svc": 'h2="127.0.0.2:{port}"', "link": "<{there}>; rel=canonical"}, b"{}"),
    "a proxy": (407, {"proxy-authenticate": "Basic", "location": "{there}"}, b"{}"),
    "created elsewhere": (201, {"location": "{there}"}, b"{}"),
}


@pytest.mark.parametrize("wire", WIRES)
async def test_what_only_hints_at_another_host_is_not_followed_either(wire):
    with redirecting() as server, another_host() as elsewhere:
        model = WIRES[wire](f"http://127.0.0.1:{server.server_port}")
        for number, (status, headers, body) in enumerate(HINTS.values(), 1):
            places = {"there": elsewhere.url, "port": elsewhere.url.rpartition(":")[2]}
            shown = {name: value.format(**places) for name, value in headers.items()}
            server.answer = (status, shown, body.replace(b"{there}", elsewhere.url.encode()))
            await refused(model)
            assert len(server.paths) == number
        assert elsewhere.requests == []


class Decision(BaseModel):
    billing: bool


DECIDERS = {"google-decisions", "openai-decisions", "system-one", "typesafe"}
"""Providers whose models only fill in typed answers."""

OVER_GRPC = {"xai"}
OVER_TLS = {"gateway/bedrock"}
"""Amazon's package sends a key of the gateway over TLS alone; else it is the client of `bedrock`."""

OF_A_LOGIN = {"openai-chatgpt", "openai-codex"}
"""Providers that are asked with the credentials of a login on this machine, at their own address."""

OVER_HTTP = sorted(OTHER_PROVIDERS.keys() - OVER_GRPC - OVER_TLS - OF_A_LOGIN)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("provider", [name for name in OVER_HTTP if name not in ("bedrock", "huggingface")])
async def test_no_redirect_of_another_provider_is_followed(provider, monkeypatch):
    await of_provider(provider, monkeypatch)


@pytest.mark.parametrize("provider", ["bedrock", "huggingface"])
async def test_no_redirect_is_followed_by_a_package_with_its_own_client(provider, monkeypatch):
    await of_provider(provider, monkeypatch)


async def of_provider(provider, monkeypatch):
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA-not-a-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("OPENAI_API_VERSION", "2026-01-01")
    key = None if provider == "bedrock" else SECRET  # Amazon's package takes a bearer key only over TLS
    name = "openai.gpt-oss-20b" if provider == "bedrock-mantle" else "acme/some-model"
    asked = request()
    if provider in DECIDERS:
        asked = replace(
            asked, tools=(ToolSpec(name="final_answer", parameters=Decision.model_json_schema()),)
        )
    # Amazon's client fails at these before it asks what to do, and leaves its connection to the garbage collector.
    without = (303, LOCATIONS["no URL"]) if provider == "bedrock" else ()
    await no_redirect_is_followed(
        lambda url: ProviderModel(provider, name, base_url=url, api_key=key), asked, without
    )


async def test_a_redirect_in_the_answer_of_a_grpc_server_is_not_followed():
    """xAI's package speaks gRPC; a proxy may answer its HTTP/2 request with a redirect."""
    with another_host() as elsewhere, socket.create_server(("127.0.0.1", 0)) as listener:
        requests = []
        Thread(target=redirect_over_http2, args=(listener, elsewhere.url, requests), daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        error = await refused(ProviderModel("xai", "grok-4", base_url=url, api_key=SECRET))
        assert len(requests) == 1
        assert SECRET in requests[0].decode("latin-1"), "the request is the one that holds the key"
        assert "307" in str(error)
        assert elsewhere.requests == []


def redirect_over_http2(listener, where, requests):
    """Answer the first request of a connection with a redirect, in the fewest frames."""
    connection, _ = listener.accept()
    with connection:
        connection.sendall(b"\0\0\0\4\0\0\0\0\0")  # no settings
        data = b""
        while b"authorization" not in data:  # written out, since its value must not be compressed
            received = connection.recv(65_536)
            if not received:
                return
            data += received
        requests.append(data)
        location = where.encode()
        block = b"\x08\x03307" + b"\x0f\x1f" + bytes([len(location)]) + location  # :status, location
        connection.sendall(len(block).to_bytes(3, "big") + b"\1\5\0\0\0\1" + block)
        connection.recv(65_536)


async def test_a_key_for_a_provider_that_knows_only_logins_is_a_mistake_that_is_named():
    error = await refused(ProviderModel("openai-codex", "gpt-x", api_key=SECRET))
    assert "openai-codex:gpt-x cannot be used: it takes no api_key=" in str(error)
