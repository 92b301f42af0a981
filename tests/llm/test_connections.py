"""What is told of servers that are not there, and of pages that come in place of answers."""

import pytest

from tests.llm.wires import WHOLE, WIRES, scripted
from treadle.errors import ModelError
from treadle.models import Anthropic, Google, OpenAI, OpenAIChat
from treadle.testing.conformance.model import ask, request
from treadle.testing.provider import hang_up, raw

pytestmark = pytest.mark.anyio

PAGE = (
    "<!doctype html><html><head><title>Sign in &amp; pay</title></head><body>"
    + "x" * 9_000
    + "</body></html>"
)


async def error_of(model):
    with pytest.raises(ModelError) as caught:
        await ask(model, request())
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    return caught.value


@pytest.mark.parametrize("make", [OpenAIChat, OpenAI, Anthropic, Google])
async def test_a_server_that_is_not_there_is_named_without_the_credentials_in_its_address(make):
    error = await error_of(make("m", base_url="http://ada:pa55word@127.0.0.1:9/v1", api_key="sk-very-secret"))
    assert error.kind == "connection"
    assert str(error).startswith("no connection to http://127.0.0.1:9/v1")
    assert "pa55word" not in str(error)
    assert "sk-very-secret" not in str(error)


async def test_a_host_without_an_address_says_so():
    error = await error_of(OpenAIChat("m", base_url="http://nowhere.invalid/v1"))
    assert str(error).startswith("no connection to http://nowhere.invalid/v1/chat/completions: ")
    assert error.kind == "connection"


@pytest.mark.parametrize("make_model", WIRES.values(), ids=WIRES)
async def test_a_connection_that_breaks_names_its_address(make_model):
    with scripted(make_model, hang_up("close")) as (server, model):
        error = await error_of(model)
    assert error.kind == "connection"
    assert server.url in str(error)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("status", [200, 403, 502])
@pytest.mark.parametrize("make_model", [*WIRES.values(), *WHOLE.values()], ids=[*WIRES, *WHOLE])
async def test_a_page_of_a_proxy_is_summarised(make_model, status):
    with scripted(make_model, raw(PAGE, status=status, content_type="text/html; charset=utf-8")) as (
        server,
        model,
    ):
        error = await error_of(model)
    assert "a page of markup called 'Sign in & pay'" in str(error)
    assert f"HTTP status {status}" in str(error)
    assert len(str(error)) < 300
    assert "xxx" not in str(error)
    if status == 200:
        assert error.kind == "unparsable"
        assert f"is {server.url}" in str(error)


CUT = '{"id": "x", "choices": [{"index": 0, "message": {"content": "hidden wo'


@pytest.mark.parametrize("make_model", WIRES.values(), ids=WIRES)
@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (raw(CUT), "malformed JSON in place of a stream of events: Unterminated string"),
        (raw(CUT, content_type="text/event-stream"), "malformed JSON in place of a stream of events"),
        (
            raw('{"error": {"code": "x"}}'),
            "a JSON document in place of a stream of events; stream=False asks",
        ),
        (raw("hidden words"), "text in place of a stream of events"),
        (raw("data: {hidden words\n\n", content_type="text/event-stream"), "a stream with malformed JSON: "),
        (raw("data: {hidden words\n\n"), "a stream with malformed JSON: "),
    ],
    ids=["cut JSON", "cut JSON as events", "a document", "text", "malformed events", "as JSON"],
)
async def test_a_streamed_answer_with_malformed_json_is_not_told_as_one_without_content(
    make_model, sent, told
):
    with scripted(make_model, sent) as (server, model):
        error = await error_of(model)
    host = server.url.removeprefix("http://")
    assert str(error).startswith(f"{host} sent {told}")
    assert error.kind == "unparsable"
    assert "hidden" not in str(error)


@pytest.mark.parametrize("make_model", WIRES.values(), ids=WIRES)
async def test_a_stream_without_an_event_is_told_as_one_without_content(make_model):
    with scripted(make_model, raw("", content_type="text/event-stream")) as (_, model):
        error = await error_of(model)
    assert error.kind == "unparsable"
    assert "sent" not in str(error)
