"""Faults of a provider, as the official clients meet them."""

from __future__ import annotations

import email.utils
import gc
import json
import logging
import socket
import threading
import time
from typing import Any

import httpx2
import pytest

from tests.lazily import anthropic, openai
from treadle.testing.provider import ProviderServer, call, fail, hang_up, raw, text, turn

pytestmark = pytest.mark.sampled(16)

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]
LONG = "One two three four five six seven"


class OpenAIWay:
    """What both clients can do, in one vocabulary, so that each fault is met on each wire."""

    sdk: Any = openai

    def ask(self, server: ProviderServer, **options: Any) -> Any:
        with openai.OpenAI(
            base_url=server.openai_base_url, api_key="k", **{"max_retries": 0, **options}
        ) as client:
            completion = client.chat.completions.create(model="m", messages=HELLO)
        return completion.choices[0].message.content

    def stream(self, server: ProviderServer, heard: list[str], **options: Any) -> None:
        with openai.OpenAI(base_url=server.openai_base_url, api_key="k", max_retries=0, **options) as client:
            for chunk in client.chat.completions.create(model="m", messages=HELLO, stream=True):
                heard.extend(choice.delta.content for choice in chunk.choices if choice.delta.content)
                heard.extend(f"<{choice.finish_reason}>" for choice in chunk.choices if choice.finish_reason)


class AnthropicWay:
    sdk: Any = anthropic

    def ask(self, server: ProviderServer, **options: Any) -> Any:
        options = {"max_retries": 0, **options}
        with anthropic.Anthropic(base_url=server.anthropic_base_url, api_key="k", **options) as client:
            return client.messages.create(model="m", max_tokens=100, messages=HELLO).content[0].text

    def stream(self, server: ProviderServer, heard: list[str], **options: Any) -> None:
        url = server.anthropic_base_url
        with anthropic.Anthropic(base_url=url, api_key="k", max_retries=0, **options) as client:
            for event in client.messages.create(model="m", max_tokens=100, messages=HELLO, stream=True):
                if event.type == "content_block_delta":
                    heard.append(event.delta.text)
                if event.type == "message_stop":
                    heard.append("<stop>")


@pytest.fixture(params=[OpenAIWay(), AnthropicWay()], ids=["openai", "anthropic"])
def way(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, "BadRequestError"),
        (401, "AuthenticationError"),
        (403, "PermissionDeniedError"),
        (404, "NotFoundError"),
        (409, "ConflictError"),
        (422, "UnprocessableEntityError"),
        (429, "RateLimitError"),
        (500, "InternalServerError"),
        (529, "InternalServerError"),
    ],
)
def test_a_status_becomes_the_sdks_error(way: Any, status: int, error: str) -> None:
    with ProviderServer([fail(status, "No luck.")]) as server:
        with pytest.raises(getattr(way.sdk, error), match=r"No luck\.") as caught:
            way.ask(server)
        with pytest.raises(getattr(way.sdk, error), match=r"No luck\."):
            way.stream(server, [])
    assert caught.value.status_code == status
    assert caught.value.request_id.startswith("req_")


def test_a_rate_limit_states_the_time_to_retry(way: Any) -> None:
    date = email.utils.formatdate(time.time() + 60, usegmt=True)
    with ProviderServer([fail(429, retry_after=1.5), fail(429, retry_after=date), fail(429), "Hi"]) as server:
        waits_told = []
        for _ in range(3):
            with pytest.raises(way.sdk.RateLimitError) as caught:
                way.ask(server)
            waits_told.append(caught.value.response.headers.get("retry-after"))
        assert way.ask(server) == "Hi"
    assert waits_told == ["1.5", date, None]


def test_the_sdks_own_retries_get_past_the_failures(way: Any) -> None:
    with ProviderServer([fail(503, headers={"retry-after-ms": "1"}), hang_up(), "Hi"]) as server:
        assert way.ask(server, max_retries=2) == "Hi"
    assert [request.attempt for request in server.requests] == [0, 1, 2]


def test_an_error_has_the_envelope_of_its_provider() -> None:
    with ProviderServer(
        [fail(429, "Slow down."), fail(429, "Pay first.", code="insufficient_quota")]
    ) as server:
        with pytest.raises(openai.RateLimitError) as usual:
            OpenAIWay().ask(server)
        with pytest.raises(openai.RateLimitError) as quota:
            OpenAIWay().ask(server)
        with pytest.raises(anthropic.RateLimitError) as other:
            AnthropicWay().ask(server)
    assert usual.value.body == {
        "message": "Slow down.",
        "type": "requests",
        "param": None,
        "code": "rate_limit_exceeded",
    }
    assert quota.value.code == "insufficient_quota"
    assert other.value.body["type"] == "error"
    assert other.value.body["error"] == {"type": "rate_limit_error", "message": "Slow down."}


@pytest.mark.parametrize("by", ["reset", "close"])
def test_a_connection_can_end_before_any_byte(way: Any, by: Any) -> None:
    with ProviderServer([hang_up(by)]) as server:
        with pytest.raises(way.sdk.APIConnectionError):
            way.ask(server)
        with pytest.raises(way.sdk.APIConnectionError):
            way.stream(server, [])


@pytest.mark.parametrize("cut", ["reset", "close"])
def test_a_stream_can_break_in_the_middle(way: Any, cut: Any) -> None:
    heard: list[str] = []
    with (
        ProviderServer([turn(LONG, cut=cut, chunk_delay=0.01), "never"]) as server,
        pytest.raises((httpx2.TransportError, way.sdk.APIConnectionError)),
    ):
        way.stream(server, heard)
    assert heard
    assert LONG.startswith("".join(heard))
    assert "".join(heard) != LONG


@pytest.mark.parametrize("cut", ["reset", "close"])
def test_a_whole_answer_can_break_in_the_middle(way: Any, cut: Any) -> None:
    with (
        ProviderServer([turn(LONG, cut=cut)]) as server,
        pytest.raises((httpx2.TransportError, way.sdk.APIError)),
    ):
        way.ask(server)


def test_a_reset_is_a_real_one_and_a_close_is_not() -> None:
    body = json.dumps({"model": "m", "messages": HELLO}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer k\r\ncontent-length: "
    ends: list[object] = []
    with ProviderServer([hang_up("reset"), hang_up("close")]) as server:
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as raw_client:
                raw_client.sendall(head + str(len(body)).encode() + b"\r\n\r\n" + body)
                try:
                    ends.append(raw_client.recv(100))
                except ConnectionResetError:
                    ends.append(ConnectionResetError)
    assert ends == [ConnectionResetError, b""]


def test_a_stream_can_end_cleanly_without_its_terminal_event(way: Any) -> None:
    heard: list[str] = []
    with ProviderServer([turn(LONG, cut="eof", cut_after=-2)]) as server:
        way.stream(server, heard)
    assert "".join(heard) == LONG


def test_a_break_after_the_last_event_loses_no_text(way: Any) -> None:
    heard: list[str] = []
    with ProviderServer([turn(LONG, cut="eof", cut_after=10_000)]) as server:
        way.stream(server, heard)
    assert "".join(heard[:-1]) == LONG
    assert heard[-1] == "<stop>"


def test_a_stream_can_report_an_error(way: Any) -> None:
    heard: list[str] = []
    with ProviderServer([turn(LONG, cut="error"), "Hi"]) as server:
        with pytest.raises(way.sdk.APIError, match="breaks this stream off"):
            way.stream(server, heard)
        assert heard
        assert way.ask(server) == "Hi"


def test_a_late_first_byte_meets_the_clients_timeout(way: Any) -> None:
    with ProviderServer([turn("Hi", delay=30)]) as server:
        with pytest.raises(way.sdk.APITimeoutError):
            way.ask(server, timeout=0.1)
        began = time.monotonic()
    assert time.monotonic() - began < 5


def test_a_stalled_stream_meets_the_clients_timeout(way: Any) -> None:
    heard: list[str] = []
    with (
        ProviderServer([turn(LONG, chunk_delay=30)]) as server,
        pytest.raises((httpx2.TimeoutException, way.sdk.APITimeoutError)),
    ):
        way.stream(server, heard, timeout=0.1)
    assert heard == []


@pytest.mark.sampled(4)
@pytest.mark.parametrize("split", [1, 2, 3, 7, 1000])
def test_a_stream_can_be_cut_anew_inside_characters_and_lines(way: Any, split: int) -> None:
    heard: list[str] = []
    with ProviderServer([turn("né 你好 🎉", split=split, crlf=True, comments=True)]) as server:
        way.stream(server, heard)
    assert "".join(heard[:-1]) == "né 你好 🎉"


@pytest.mark.parametrize("body", ["", "not json", '{"cho', "<html>Bad gateway</html>"])
def test_a_body_can_be_anything(body: str) -> None:
    with ProviderServer([raw(body, status=502, content_type="text/html"), "Hi"]) as server:
        with pytest.raises(openai.InternalServerError) as caught:
            OpenAIWay().ask(server)
        assert OpenAIWay().ask(server) == "Hi"
    assert caught.value.response.text == body


def test_bytes_that_are_no_text_arrive_as_they_are() -> None:
    with ProviderServer([raw(b"\xff\xfe\x00", content_type="text/event-stream")]) as server:
        response = httpx2.post(
            server.url + "/v1/chat/completions",
            json={"model": "m", "messages": HELLO},
            headers={"authorization": "Bearer k"},
        )
    assert response.content == b"\xff\xfe\x00"


def test_a_lone_surrogate_is_sent_escaped() -> None:
    with ProviderServer(["\ud800"]) as server:
        assert OpenAIWay().ask(server) == "\ud800"


def test_a_function_can_be_the_script() -> None:
    def script(request: Any) -> Any:
        return fail(500) if request.attempt < 2 else f"{request.wire} {request.messages[0]['content']}"

    with ProviderServer(script) as server:
        for _ in range(2):
            with pytest.raises(openai.InternalServerError):
                OpenAIWay().ask(server)
        assert OpenAIWay().ask(server) == "openai Hello"


def test_an_exception_of_a_script_function_leaves_the_block() -> None:
    def script(request: Any) -> Any:
        assert request.body["model"] == "another", "the wrong model was asked"

    def asking() -> None:
        with ProviderServer(script) as server, pytest.raises(openai.BadRequestError, match="AssertionError"):
            OpenAIWay().ask(server)

    with pytest.raises(AssertionError, match="wrong model"):
        asking()


def test_going_on_after_the_last_turn_is_refused(way: Any) -> None:
    with ProviderServer([]) as server, pytest.raises(way.sdk.BadRequestError, match="has 0 turns"):
        way.ask(server)


def test_failures_are_given_once_for_each_conversation() -> None:
    def ask(question: str) -> Any:
        with openai.OpenAI(base_url=server.openai_base_url, api_key="k", max_retries=0) as client:
            message: Any = {"role": "user", "content": question}
            return client.chat.completions.create(model="m", messages=[message]).choices[0].message.content

    with ProviderServer([fail(500), "Hi"]) as server:
        for question in ("one", "two"):
            with pytest.raises(openai.InternalServerError):
                ask(question)
        assert (ask("one"), ask("two"), ask("one")) == ("Hi", "Hi", "Hi")


def test_many_conversations_at_once_get_their_own_answers() -> None:
    answers: list[str] = []

    def converse() -> None:
        answers.append(OpenAIWay().ask(server))

    with ProviderServer([turn("Hi", delay=0.05)]) as server:
        threads = [threading.Thread(target=converse) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == ["Hi"] * 8
    assert len(server.requests) == 8


def test_everything_sent_is_kept() -> None:
    with ProviderServer([call("add", a=1)], api_key="k") as server:
        began = time.time()
        OpenAIWay().ask(server)
    (request,) = server.requests
    assert (request.wire, request.path, request.problem) == ("openai", "/v1/chat/completions", None)
    assert request.body == {"model": "m", "messages": HELLO}
    assert request.headers["authorization"] == "Bearer k"
    assert began <= request.time <= time.time()


def test_nothing_is_left_and_nothing_is_logged_when_it_stops(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    before = set(threading.enumerate())
    heard: list[str] = []
    with ProviderServer([turn(LONG, chunk_delay=30)]) as server:
        client = threading.Thread(target=_swallow, args=(server, heard))
        client.start()
        while not server.requests:
            time.sleep(0.01)
        began = time.monotonic()
    stopping = time.monotonic() - began
    client.join()
    assert heard == ["cut off"]
    assert stopping < 1
    assert set(threading.enumerate()) == before
    assert caplog.records == []
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=1)


def _swallow(server: ProviderServer, heard: list[str]) -> None:
    try:
        OpenAIWay().stream(server, [])
    except (httpx2.TransportError, openai.APIConnectionError):
        heard.append("cut off")


def test_texts_and_parts_are_the_same_turn() -> None:
    with (
        ProviderServer(["Hi"]) as first,
        ProviderServer([text("Hi")]) as two,
        ProviderServer([turn("Hi")]) as three,
    ):
        assert [OpenAIWay().ask(server) for server in (first, two, three)] == ["Hi"] * 3


def test_a_connection_made_while_a_server_stops_is_closed() -> None:
    """asyncio leaked a connection that was accepted and had no protocol when its server closed."""
    for _ in range(10):
        with ProviderServer(["Hi"]) as server:
            address = server.url.removeprefix("http://").split(":")
            clients = [socket.create_connection((address[0], int(address[1]))) for _ in range(3)]
        for client in clients:
            client.close()
    del clients, client
    gc.collect()  # a leaked socket is an error of this test
