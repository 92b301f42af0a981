"""A wire format of a user's own: a small provider whose conversations are lists of lines."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from treadle.errors import ConfigurationError
from treadle.testing.provider import ProviderServer, Refused, Wire, call, fail, text
from treadle.testing.provider.script import ScriptedCall, ScriptedTurn, Text


class Lines(Wire):
    """`POST /talk` takes `{"lines": [...]}`, every second line from the model, and answers with a line."""

    name = "lines"
    path = "/talk/{model}"

    def check(self, headers: Any, body: dict[str, Any]) -> None:
        if "lines" not in body:
            raise Refused("no lines", "lines")

    def turns(self, body: dict[str, Any]) -> int:
        return len(body["lines"]) // 2

    def document(self, turn: ScriptedTurn, body: dict[str, Any]) -> dict[str, Any]:
        calls = [{"run": part.name, "with": json.loads(part.arguments)} for part in turn.of(ScriptedCall)]
        return {"line": "".join(part.text for part in turn.of(Text)), "calls": calls}


class StreamedLines(Lines):
    path = "/v1/messages"

    def events(self, turn: ScriptedTurn, body: dict[str, Any]) -> list[bytes]:
        return [b"data: " + part.text.encode() + b"\n\n" for part in turn.of(Text)]


def post(server: ProviderServer, path: str, body: dict[str, Any], key: str = "any") -> tuple[int, bytes]:
    request = Request(server.url + path, json.dumps(body).encode(), {"authorization": f"Bearer {key}"})
    try:
        with urlopen(request) as response:
            return response.status, response.read()
    except HTTPError as error:
        return error.code, error.read()


@pytest.fixture
def server() -> Iterator[ProviderServer]:
    script = [fail(429, "slow down"), call("add", a=1, b=2), text("3")]
    with ProviderServer(script, api_key="key", formats=[Lines()]) as server:
        yield server


def test_a_format_of_ones_own_follows_the_script_by_the_turn_of_the_conversation(
    server: ProviderServer,
) -> None:
    first = {"lines": ["1 + 2?"]}
    status, sent = post(server, "/talk/small", first, "key")
    assert (status, json.loads(sent)["error"]["message"]) == (429, "slow down")
    assert json.loads(post(server, "/talk/small", first, "key")[1]) == {
        "line": "",
        "calls": [{"run": "add", "with": {"a": 1, "b": 2}}],
    }
    assert json.loads(post(server, "/talk/small", {"lines": ["1 + 2?", "", "3"]}, "key")[1])["line"] == "3"
    assert [(request.wire, request.turn, request.attempt) for request in server.requests] == [
        ("lines", 0, 0),
        ("lines", 0, 1),
        ("lines", 1, 0),
    ]


def test_failures_belong_to_a_conversation_also_if_its_messages_have_another_name(
    server: ProviderServer,
) -> None:
    statuses = [post(server, "/talk/small", {"lines": [line]}, "key")[0] for line in ("a", "b", "a", "b")]
    assert statuses == [429, 429, 200, 200]


def test_what_the_format_refuses_is_a_problem_of_the_request(server: ProviderServer) -> None:
    assert post(server, "/talk/small", {}, "key") == (
        400,
        b'{"error":{"message":"no lines","code":null,"param":"lines"}}',
    )
    assert post(server, "/talk/small", {"lines": []})[0] == 401
    assert post(server, "/talk", {"lines": []}, "key")[0] == 404
    assert server.problems == ["no lines", "Incorrect API key provided."]


def test_a_format_without_events_refuses_a_stream() -> None:
    with ProviderServer([text("3")], formats=[Lines()]) as server:
        status, sent = post(server, "/talk/small", {"lines": ["?"], "stream": True})
    assert (status, json.loads(sent)["error"]["message"]) == (400, "The format lines does not stream.")


def test_a_format_with_the_path_of_a_built_in_one_replaces_it_and_may_stream() -> None:
    with ProviderServer([text("3")], formats=[StreamedLines()]) as server:
        assert post(server, "/v1/messages", {"lines": ["?"], "stream": True}) == (200, b"data: 3\n\n")
        assert json.loads(post(server, "/v1/messages", {"lines": ["?"]})[1])["line"] == "3"


def test_an_error_of_the_format_is_raised_when_the_block_ends() -> None:
    class Broken(Lines):
        def turns(self, body: dict[str, Any]) -> int:
            return body["missing"]

    with pytest.raises(KeyError, match="missing"), ProviderServer([text("3")], formats=[Broken()]) as server:
        assert post(server, "/talk/small", {"lines": []})[0] == 400


class Nothing:
    name = "nothing"


class Nowhere(Lines):
    path = "talk"


@pytest.mark.parametrize(
    ("wire", "problem"),
    [
        (Nothing(), "it lacks path, key, check, turns"),
        (Lines, "give an object of the class"),
        (Nowhere(), "the path of the format lines must begin with /, got 'talk'"),
    ],
)
def test_what_is_not_a_format_is_refused(wire: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        ProviderServer([], formats=[wire])
