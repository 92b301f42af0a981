"""Authorization by OAuth, as the `mcp` package does it: against its own authorization server, on another port."""

import secrets
import time
from contextlib import contextmanager
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.server import MCPServer as Library
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    ProviderTokenVerifier,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.routes import create_auth_routes
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.shared.auth import OAuthClientMetadata, OAuthToken
from starlette.applications import Starlette

from tests.tools.mcp.serving import listening, served_at
from treadle import MCPServer, Runner
from treadle.errors import ToolsetUnavailable
from treadle.models import call, text

pytestmark = [pytest.mark.anyio, pytest.mark.sampled(2)]

CALLBACK = "http://127.0.0.1:9/callback"
OURS = "made-up-key-of-the-shelf-alone"


class Authorities:
    """The authorization server's part: it knows clients, gives codes to anyone, and tokens for codes."""

    def __init__(self) -> None:
        self.clients, self.codes, self.tokens, self.refreshing = {}, {}, {}, {}
        self.expires_in = 3600

    async def get_client(self, client_id):
        return self.clients.get(client_id)

    async def register_client(self, client):
        self.clients[client.client_id] = client

    async def authorize(self, client, params):
        code = AuthorizationCode(
            code=secrets.token_urlsafe(24),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            **params.model_dump(
                include={
                    "code_challenge",
                    "redirect_uri",
                    "redirect_uri_provided_explicitly",
                    "resource",
                }
            ),
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(self, client, code):
        return self.codes.get(code)

    async def exchange_authorization_code(self, client, code):
        del self.codes[code.code]
        return self._token(client, code.scopes, code.resource)

    async def load_refresh_token(self, client, token):
        return self.refreshing.get(token)

    async def exchange_refresh_token(self, client, token, scopes):
        del self.refreshing[token.token]
        return self._token(client, scopes, token.resource)

    async def load_access_token(self, token):
        return self.tokens.get(token)

    def _token(self, client, scopes, resource):
        access, refresh = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        facts = {"client_id": client.client_id, "scopes": scopes, "resource": resource}
        self.tokens[access] = AccessToken(token=access, **facts)
        self.refreshing[refresh] = RefreshToken(token=refresh, **facts)
        return OAuthToken(access_token=access, refresh_token=refresh, expires_in=self.expires_in)


class Storage:
    """Where a client keeps its tokens: here, for the life of the test."""

    tokens = client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client


def recorded(app, seen: list):
    """Return an application that notes the path and the headers of each request."""

    async def noting(scope, receive, send):
        if scope["type"] == "http":
            seen.append((scope["path"], {name.decode(): value.decode() for name, value in scope["headers"]}))
        await app(scope, receive, send)

    return noting


@contextmanager
def shelf():
    """Serve a shelf that wants tokens, and beside it the authorization server that gives them."""
    authorities = Authorities()
    with listening() as (at_issuer, issuer), listening() as (at_shelf, address):
        settings = AuthSettings(
            issuer_url=issuer,
            resource_server_url=f"{address}/mcp",
            required_scopes=["books"],
            validate_token_resource=True,
        )
        library = Library("shelf", auth=settings, token_verifier=ProviderTokenVerifier(authorities))

        @library.tool()
        def add(title: str) -> str:
            """Add a book."""
            return f"{title} is on the shelf"

        registration = ClientRegistrationOptions(
            enabled=True, valid_scopes=["books"], default_scopes=["books"]
        )
        routes = create_auth_routes(
            authorities, settings.issuer_url, client_registration_options=registration
        )
        told_issuer, told_shelf = [], []
        with (
            served_at(at_issuer, recorded(Starlette(routes=routes), told_issuer)),
            served_at(at_shelf, recorded(library.streamable_http_app(), told_shelf)),
        ):
            yield SimpleNamespace(
                url=f"{address}/mcp", authorities=authorities, told_issuer=told_issuer, told_shelf=told_shelf
            )


def provider(url: str, storage: Storage, visits: list[str], *, declines: bool = False) -> OAuthClientProvider:
    """Return the package's provider, with a person who opens addresses in a browser and agrees, or declines."""

    async def open_in_browser(address: str) -> None:
        visits.append(address)

    async def returned() -> AuthorizationCodeResult:
        if declines:
            return AuthorizationCodeResult(code="", state="never-asked-for")
        async with httpx2.AsyncClient() as browser:
            answer = await browser.get(visits[-1])
        (code,), (state,) = map(parse_qs(urlsplit(answer.headers["location"]).query).get, ("code", "state"))
        return AuthorizationCodeResult(code=code, state=state)

    metadata = OAuthClientMetadata(redirect_uris=[CALLBACK], client_name="clerk", scope="books")
    return OAuthClientProvider(url, metadata, storage, open_in_browser, returned)


async def added(clerk, server, title: str):
    """Run a task that puts a book on the shelf; return its only call."""
    async with Runner("memory:") as runner:
        result = await runner.run(clerk([call("shelf__add", title=title), text("done")], server), "go")
    return result.tool_executions[0]


@pytest.mark.parametrize("protocol", ["auto", "2026-07-28", "legacy"])
async def test_a_person_authorises_once_and_the_token_is_kept(clerk, protocol):
    storage, visits = Storage(), []
    with shelf() as its:
        for title in ("Emma", "Persuasion"):
            auth = provider(its.url, storage, visits)
            server = MCPServer("shelf", url=its.url, auth=auth, protocol=protocol, pins=None)
            execution = await added(clerk, server, title)
            assert execution.output == {"result": f"{title} is on the shelf"}
    assert len(visits) == 1
    assert {"/register", "/authorize", "/token"} <= {path for path, _ in its.told_issuer}


async def test_a_token_that_ran_out_is_refreshed_without_a_person(clerk):
    storage, visits = Storage(), []
    with shelf() as its:
        its.authorities.expires_in = 1
        auth = provider(its.url, storage, visits)
        server = MCPServer("shelf", url=its.url, auth=auth, pins=None)
        async with Runner("memory:") as runner:
            for title in ("Emma", "Persuasion"):
                result = await runner.run(
                    clerk([call("shelf__add", title=title), text("done")], server), "go"
                )
                assert result.tool_executions[0].outcome == "ok"
                time.sleep(1.1)  # noqa: ASYNC251  the package looks at the clock
    assert len(visits) == 1
    assert [path for path, _ in its.told_issuer].count("/token") >= 2


async def test_a_token_that_was_taken_back_is_asked_for_anew_and_the_call_is_made_once(clerk):
    storage, visits = Storage(), []
    with shelf() as its:
        server = MCPServer("shelf", url=its.url, auth=provider(its.url, storage, visits), pins=None)
        async with Runner("memory:") as runner:
            await runner.run(clerk([text("listed")], server), "go")
            its.authorities.tokens.clear()
            result = await runner.run(clerk([call("shelf__add", title="Emma"), text("done")], server), "go")
    assert result.tool_executions[0].output == {"result": "Emma is on the shelf"}
    assert len(visits) == 2


async def test_what_is_for_the_server_is_not_sent_to_its_authorization_server(clerk):
    storage, visits = Storage(), []
    with shelf() as its:
        auth = provider(its.url, storage, visits)
        server = MCPServer("shelf", url=its.url, auth=auth, headers={"X-Key": OURS}, pins=None)
        assert (await added(clerk, server, "Emma")).outcome == "ok"
    assert all(headers.get("x-key") == OURS for path, headers in its.told_shelf if path == "/mcp")
    assert OURS not in str(its.told_issuer)
    assert storage.tokens.access_token not in str(its.told_issuer)


async def test_an_authorization_that_fails_is_told_without_its_secrets(clerk):
    with shelf() as its:
        auth = provider(its.url, Storage(), [], declines=True)
        server = MCPServer("shelf", url=its.url, auth=auth, pins=None)
        with pytest.raises(ToolsetUnavailable, match=r"was not asked: auth= raised OAuthFlowError") as caught:
            await added(clerk, server, "Emma")
    assert "never-asked-for" not in str(caught.value)
