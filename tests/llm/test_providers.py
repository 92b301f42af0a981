"""Requests and answers on the wire formats of all providers."""

import asyncio
import base64
import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from tests.llm.wires import SECRET, WHOLE, WIRES, anthropic, chat, google, responses, scripted
from treadle.core.labels import Label
from treadle.core.messages import File, Image, Message, Text, ToolCall, ToolResult, user
from treadle.core.model import ModelAnswer, ModelRequest, ModelSettings, TextDelta, ToolCallDelta, Usage
from treadle.core.tools import ToolSpec
from treadle.errors import ModelError
from treadle.models import Anthropic, Google, Ollama, OpenAI, OpenAIChat, PydanticAIModel
from treadle.testing.conformance.model import PNG, ask, identified, request, results
from treadle.testing.provider import (
    ProviderServer,
    call,
    fail,
    hang_up,
    raw,
    raw_call,
    reasoning,
    refusal,
    text,
    turn,
)
from treadle.testing.provider.openai_responses import OpenAIResponses
from treadle.testing.provider.wire import sign

NOW = ToolSpec(name="now", parameters={"type": "object", "properties": {}})
LIST = ToolSpec(name="list", parameters={"type": "object", "properties": {"path": {"type": "string"}}})


every = pytest.mark.parametrize("made", WIRES.values(), ids=WIRES)
either = pytest.mark.parametrize("made", (WIRES | WHOLE).values(), ids=WIRES | WHOLE)


async def error_of(model, asked=None):
    with pytest.raises(ModelError) as caught:
        await ask(model, asked or request())
    return caught.value


# -------------------------------------------------------------------------------------- loops and keys


@every
def test_one_model_object_serves_one_event_loop_after_another(made):
    with scripted(made, "Hello.") as (server, model):
        for _ in range(3):
            assert asyncio.run(ask(model, request()))[1].message.text == "Hello."
        assert len(server.requests) == 3


@every
@pytest.mark.anyio
async def test_a_missing_key_fails_the_first_request_and_is_named(made, monkeypatch):
    for name in (
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "ANTHROPIC_API_KEY",
        "GOOGLE_API_KEY",
        "GEMINI_API_KEY",
    ):
        monkeypatch.delenv(name, raising=False)
    kind, variable = {
        chat: (OpenAIChat, "OPENAI_API_KEY"),
        responses: (OpenAI, "OPENAI_API_KEY"),
        anthropic: (Anthropic, "ANTHROPIC_API_KEY"),
        google: (Google, "GOOGLE_API_KEY"),
    }[made]
    error = await error_of(kind("x"))
    assert error.kind == "authentication"
    assert variable in str(error)


@pytest.mark.anyio
async def test_keys_and_addresses_come_from_the_environment(monkeypatch):
    with ProviderServer(["Hello."], api_key=SECRET) as server:
        monkeypatch.setenv("OPENAI_API_KEY", SECRET)
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_base_url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.anthropic_base_url)
        monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
        monkeypatch.setenv("GEMINI_API_KEY", SECRET)
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", server.google_base_url)
        monkeypatch.setenv("OLLAMA_BASE_URL", server.url)
        monkeypatch.setenv("OLLAMA_API_KEY", SECRET)
        models = (
            OpenAIChat("gpt-x"),
            OpenAI("gpt-y"),
            Anthropic("claude-x"),
            Ollama("qwen3:4b"),
            Google("gemini-x"),
        )
        for model in models:
            assert (await ask(model, request()))[1].message.text == "Hello."
        *named, last = server.requests
        assert [request_seen.body["model"] for request_seen in named] == [
            "gpt-x",
            "gpt-y",
            "claude-x",
            "qwen3:4b",
        ]
        assert last.path == "/v1beta/models/gemini-x:streamGenerateContent"


@pytest.mark.anyio
async def test_a_server_at_another_address_needs_no_key(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with ProviderServer(["Hello."]) as server:
        for kind in (OpenAIChat, OpenAI):
            model = kind("llama", base_url=server.openai_base_url)
            assert (await ask(model, request()))[1].message.text == "Hello."


@every
@pytest.mark.anyio
async def test_a_refused_key_is_reported_and_never_shown(made):
    message = f"Incorrect API key provided: {SECRET}. " + "x" * 2_000
    with scripted(made, fail(401, message)) as (_, model):
        error = await error_of(model)
    assert (error.kind, error.status) == ("authentication", 401)
    assert "Incorrect API key provided: [secret]" in str(error)
    assert len(str(error)) <= 500
    shown = "".join(__import__("traceback").format_exception(error)) + repr(model) + repr(error)
    assert SECRET not in shown


# -------------------------------------------------------------------------------------------- failures


@every
@pytest.mark.anyio
async def test_the_sdk_retries_nothing(made):
    for failure in (fail(500), fail(429), fail(503, headers={"x-should-retry": "true"}), hang_up()):
        with scripted(made, failure, "Hello.") as (server, model):
            await error_of(model)
            assert len(server.requests) == 1


@every
@pytest.mark.anyio
async def test_a_provider_may_ask_for_a_wait_in_seconds_or_as_a_date(made):
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    with scripted(made, fail(429, retry_after=1.5), fail(429, retry_after=later), fail(429)) as (_, model):
        waits_found = [(await error_of(model)).retry_after for _ in range(3)]
    assert waits_found[0] == 1.5
    assert 60 < waits_found[1] <= 90
    assert waits_found[2] is None


@pytest.mark.sampled(16)
@every
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (fail(408), "timeout"),
        (fail(409), "overloaded"),
        (fail(422), "invalid_request"),
        (fail(502), "server"),
        (fail(504), "timeout"),
        (hang_up(), "connection"),
        (hang_up("close"), "connection"),
        (turn("Half of it and", cut="eof"), "connection"),
        (turn("Half of it and", cut="close"), "connection"),
        (turn(call("add", a=1, b=2), cut="eof", cut_after=1), "connection"),
        (turn("Half of it and", cut="error"), None),
        (raw("<html>proxy</html>", content_type="text/html"), None),
        (raw("", content_type="text/event-stream"), None),
        (raw("data: {not json\n\n", content_type="text/event-stream"), None),
        (raw('data: {"choices": 7}\n\n', content_type="text/event-stream"), None),
        (raw("event: message_start\ndata: {}\n\n", content_type="text/event-stream"), None),
        (raw(b"data: \xff\xfe\n\n", content_type="text/event-stream"), None),
    ],
    ids=repr,
)
async def test_every_failure_is_a_model_error(made, failure, kind):
    with scripted(made, failure) as (_, model):
        error = await error_of(model)
    if kind is not None:
        assert error.kind == kind


@every
@pytest.mark.anyio
async def test_a_refused_connection_is_a_connection_error(made):
    with ProviderServer([]) as server:
        model = made(server)
    assert (await error_of(model)).kind == "connection"


@pytest.mark.anyio
async def test_a_machine_readable_code_is_more_precise_than_the_status():
    for code, kind in (("context_length_exceeded", "too_large"), ("content_filter", "refused")):
        with scripted(chat, fail(400, "No.", code=code)) as (_, model):
            assert (await error_of(model)).kind == kind
    with scripted(chat, fail(429, "Pay.", code="insufficient_quota")) as (_, model):
        assert (await error_of(model)).kind == "permission"
    with scripted(google, fail(400, "API key not valid.", code="API_KEY_INVALID")) as (_, model):
        assert (await error_of(model)).kind == "authentication"


@pytest.mark.anyio
async def test_google_states_the_wait_in_the_body():
    detail = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "14.5s"}
    error = {"code": 429, "message": "Slow down.", "status": "RESOURCE_EXHAUSTED", "details": [detail]}
    with scripted(google, raw(json.dumps({"error": error}), status=429)) as (_, model):
        told = await error_of(model)
    assert (told.kind, told.status, told.retry_after) == ("rate_limit", 429, 14.5)


# ------------------------------------------------------------------------------------- how answers end


@every
@pytest.mark.anyio
async def test_refused_and_filtered_answers_have_that_finish_and_call_nothing(made):
    with scripted(made, turn(refusal("I will not."))) as (_, model):
        assert (await ask(model, request()))[1].finish in ("refusal", "content_filter")
    with scripted(made, turn(call("add", a=1, b=2), finish="content_filter")) as (_, model):
        answer = (await ask(model, request()))[1]
    assert answer.finish == ("refusal" if made is anthropic else "content_filter")
    assert [call.problem for call in answer.message.tool_calls] == ["truncated"]


@every
@pytest.mark.anyio
@pytest.mark.filterwarnings("ignore:.* is not a valid FinishReason")  # Google's package says so
async def test_an_unknown_finish_reason_leads_to_no_action(made):
    with scripted(made, turn(call("add", a=1, b=2), finish="because")) as (_, model):
        answer = (await ask(model, request()))[1]
    assert answer.finish == "unknown"
    assert [call.problem for call in answer.message.tool_calls] == ["truncated"]


@pytest.mark.anyio
async def test_missing_argument_text_means_no_arguments_only_for_tools_without_parameters():
    asked = request()
    asked.tools = (NOW, LIST)
    script = turn(raw_call("now", ""), raw_call("list", ""))
    for wire in WIRES.values():
        with scripted(wire, script) as (_, model):
            now, listed = (await ask(model, asked))[1].message.tool_calls
        assert (now.problem, now.arguments) == (None, {})
        # Arguments that are an object, or left out for an empty object, lose nothing.
        assert (listed.problem, listed.arguments) == ("unparsable" if wire in (chat, responses) else None, {})


@every
@pytest.mark.anyio
async def test_usage_is_mapped(made):
    expected = Usage(100, 20, cached_tokens=60, reasoning_tokens=0)
    with scripted(made, turn("Hello.", usage=expected)) as (_, model):
        assert (await ask(model, request()))[1].usage == expected


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (anthropic, Usage(1_000, 20, 600, cache_write_tokens=300)),
        (anthropic, Usage(1_000, 20, 600, cache_write_tokens=300, cache_write_1h_tokens=200)),
        (chat, Usage(1_000, 200, 600, 50, input_audio_tokens=100, output_audio_tokens=90)),
    ],
)
@pytest.mark.anyio
async def test_tokens_with_prices_of_their_own_are_mapped(made, told):
    with scripted(made, turn("Hello.", usage=told)) as (_, model):
        assert (await ask(model, request()))[1].usage == told


@either
@pytest.mark.anyio
async def test_missing_usage_is_estimated_and_marked(made):
    with scripted(made, turn("Hello again.", usage="missing")) as (_, model):
        usage = (await ask(model, request()))[1].usage
    assert usage.estimated
    assert usage.input_tokens > 0
    assert usage.output_tokens > 0


@either
@pytest.mark.anyio
async def test_reasoning_tokens_are_counted(made):
    with scripted(made, turn("Hello.", usage=Usage(100, 20, 60, 15))) as (_, model):
        assert (await ask(model, request()))[1].usage == Usage(100, 20, 60, 15)


@pytest.mark.anyio
async def test_arguments_of_parallel_calls_may_alternate():
    parts = [call("add", a=n, b=n * 1000) for n in range(3)]
    for make_model in (chat, responses):
        with scripted(make_model, turn(*parts, interleave=True, chunk_size=3)) as (_, model):
            answer = (await ask(model, request()))[1]
        assert [call.arguments["b"] for call in answer.message.tool_calls] == [0, 1000, 2000]


@pytest.mark.anyio
async def test_a_call_with_a_lost_delta_does_not_run():
    script = turn(call("add", a=1, b=1000), chunk_size=1)
    pieces = OpenAIResponses().events(script, {"model": "m", "input": []})
    zeros = [index for index, event in enumerate(pieces) if b".delta" in event and b'"delta":"0"' in event]
    body = b"".join(pieces[: zeros[0]] + pieces[zeros[0] + 1 :])
    with scripted(responses, raw(body, content_type="text/event-stream")) as (_, model):
        assert (await error_of(model)).kind == "unparsable"


@every
@pytest.mark.anyio
async def test_half_a_surrogate_pair_in_an_answer_can_be_stored(made):
    with scripted(made, turn(raw_call("add", '{"a": "\\ud800", "b": 1}'))) as (_, model):
        tool_call = (await ask(model, request()))[1].message.tool_calls[0]
    json.dumps(tool_call.arguments, ensure_ascii=False).encode()


# --------------------------------------------------------------------------------------- on the wire


@pytest.mark.anyio
async def test_anthropic_gets_its_thinking_back_verbatim():
    script = [
        turn(reasoning("First thought.", signature="c2lnbmF0dXJl"), text("So."), call("add", a=1, b=2)),
        text("Three."),
    ]
    with scripted(anthropic, *script) as (server, model):
        settings = ModelSettings(
            max_tokens=4000, extra={"thinking": {"type": "enabled", "budget_tokens": 1024}}
        )
        first = identified((await ask(model, request(settings=settings)))[1].message)
        # As after a journal: nothing but plain JSON survives in `meta`.
        parts = tuple(
            part.__class__(part.text, meta=json.loads(json.dumps(part.meta)))
            if hasattr(part, "text")
            else part
            for part in first.parts
        )
        first = Message("assistant", parts)
        await ask(model, request(user("Add."), first, results(first, Text("3")), settings=settings))
        assert server.problems == []
        sent = server.requests[-1].body
    assert sent["thinking"] == {"type": "enabled", "budget_tokens": 1024}
    assert sent["messages"][1]["content"][0] == {
        "type": "thinking",
        "thinking": "First thought.",
        "signature": "c2lnbmF0dXJl",
    }


@pytest.mark.anyio
@pytest.mark.parametrize("made", [responses, WHOLE["responses whole"]], ids=["streamed", "whole"])
async def test_responses_get_their_items_back_verbatim_and_are_not_stored_by_the_provider(made):
    script = [
        turn(reasoning("Add both."), text("So."), call("add", a=1, b=2), call("add", a=3, b=4)),
        "Three.",
    ]
    with ProviderServer(script) as server:
        model = OpenAI("gpt-5.4-mini", base_url=server.openai_base_url, stream=made is responses)
        first = after_a_journal(identified((await ask(model, request()))[1].message))
        await ask(model, request(user("Add."), first, results(first, Text("3"))))
        assert server.problems == []
        body = server.requests[-1].body
    assert (body["store"], body["include"]) == (False, ["reasoning.encrypted_content"])
    thought, message, first_call, two, *answered = body["input"][-6:]
    assert (thought["summary"][0]["text"], thought["encrypted_content"]) == ("Add both.", sign("Add both."))
    assert [item["id"][:3] for item in (thought, message, first_call, two)] == ["rs_", "msg", "fc_", "fc_"]
    assert [item["call_id"] for item in answered] == [first_call["call_id"], two["call_id"]]
    assert all(item["call_id"].startswith("call_") for item in (first_call, two))


@pytest.mark.anyio
async def test_ids_that_a_server_used_twice_are_replaced_by_ours():
    calls = [raw_call("add", {"a": n, "b": 1}, call_id="same") for n in range(2)]
    with scripted(responses, turn(*calls), "Fine.") as (server, model):
        first = identified((await ask(model, request()))[1].message)
        await ask(model, request(user("Add."), first, results(first, Text("3"))))
        assert server.problems == []


@pytest.mark.anyio
async def test_storing_at_the_provider_may_be_switched_on():
    with scripted(responses, "Hello.") as (server, model):
        await ask(model, request(settings=ModelSettings(extra={"store": True})))
        assert server.requests[-1].body["store"] is True


@pytest.mark.anyio
@pytest.mark.parametrize("made", [google, WHOLE["google whole"]], ids=["streamed", "whole"])
async def test_google_gets_its_signatures_back(made):
    script = [
        turn(reasoning("Hm.", signature="c2ln"), text("So."), call("add", a=1, b=2), call("add", a=3, b=4)),
        "Three.",
    ]
    with scripted(made, *script) as (server, model):
        first = after_a_journal(identified((await ask(model, request()))[1].message))
        await ask(model, request(user("Add."), first, results(first, Text("3"))))
        assert server.problems == []  # it refuses a call whose signature is not its own
        message, *calls = server.requests[-1].messages[-2]["parts"][-3:]
    assert base64.b64decode(message["thoughtSignature"]) == b"c2ln"
    assert calls[0]["thoughtSignature"]
    assert "thoughtSignature" not in calls[1]


@pytest.mark.anyio
async def test_google_accepts_answers_of_other_models():
    with scripted(
        anthropic, turn(reasoning("Hm.", signature="c2ln"), text("So."), call("add", a=1, b=2))
    ) as (_, model):
        first = identified((await ask(model, request()))[1].message)
    with scripted(google, "unreached", "Fine.") as (server, model):
        await ask(model, request(user("Add."), first, results(first, Text("3"))))
        assert server.problems == []


def after_a_journal(message):
    """Data that providers want back is plain JSON."""
    parts = (replace(part, meta=json.loads(json.dumps(part.meta))) for part in message.parts)
    return replace(message, parts=tuple(parts), meta=json.loads(json.dumps(message.meta)))


@pytest.mark.anyio
async def test_a_foreign_signature_is_not_sent_to_another_provider():
    with scripted(anthropic, turn(reasoning("Hm.", signature="c2ln"), text("So."))) as (_, model):
        first = (await ask(model, request()))[1].message
    with scripted(chat, "unreached", "Fine.") as (server, model):
        await ask(model, request(user("Add."), first, user("And?")))
        assert server.problems == []
        assert "c2ln" not in json.dumps(server.requests[-1].body)


@every
@pytest.mark.anyio
async def test_calls_are_sent_under_our_ids_with_their_results_in_order(made):
    from treadle.llm.mapping import wire_id

    script = [turn(call("add", a=1, b=2), call("add", a=3, b=4)), text("Done.")]
    with scripted(made, *script) as (server, model):
        first = identified((await ask(model, request()))[1].message)
        first_call, two = first.tool_calls
        shown = Message(
            "tool",
            (
                ToolResult(first_call.id, "add", (Text("3"),), label=Label("clock", "trusted")),
                ToolResult(two.id, "add", (Text("7"),), label=Label("clock", "trusted")),
            ),
        )
        await ask(model, request(user("Add."), first, shown))
        assert server.problems == []
        messages = server.requests[-1].messages
    ids = [wire_id("s1.c0"), wire_id("s1.c1")]
    if made is chat:
        assert [message["id"] for message in messages[2]["tool_calls"]] == ids
        assert [(m["tool_call_id"], m["content"]) for m in messages[3:]] == list(zip(ids, "37", strict=True))
    elif made is anthropic:
        assert [block["id"] for block in messages[1]["content"]] == ids
        assert [block["tool_use_id"] for block in messages[2]["content"]] == ids
    elif made is google:
        assert [part["functionCall"]["id"] for part in messages[1]["parts"]] == ids
        answered = [part["functionResponse"] for part in messages[2]["parts"]]
        assert [result["id"] for result in answered] == ids
        assert "3" in json.dumps(answered[0]["response"])
    else:  # a call is an item of its own here, and keeps the id it came with
        first_call, two, *answered = messages[-4:]
        assert [(m["call_id"], m["output"]) for m in answered] == [
            (first_call["call_id"], "3"),
            (two["call_id"], "7"),
        ]


def test_ids_that_providers_refuse_are_rewritten_and_stay_distinct():
    from treadle.llm.mapping import wire_id

    assert wire_id("s1-c0") == "s1-c0"
    assert wire_id("call_9") == "call_9"
    odd = [wire_id(x) for x in ("a.b", "a:b", "a/b", "", "x" * 41, "x" * 42, "é")]
    assert len(set(odd)) == len(odd)
    assert all(0 < len(x) <= 40 and x.replace("-", "").isalnum() and x.isascii() for x in odd)


@every
@pytest.mark.anyio
async def test_images_and_files_are_sent(made):
    first = user(
        "Look:", Image(data=PNG, media_type="image/png"), File(data=b"%PDF-", media_type="application/pdf")
    )
    with scripted(made, call("add", a=1, b=2), "Seen.") as (server, model):
        message = identified((await ask(model, request(first)))[1].message)
        shown = results(message, Text("Drawn."), Image(data=PNG[::-1], media_type="image/png"))
        await ask(model, request(first, message, shown))
        assert server.problems == []
        sent = json.dumps(server.requests[-1].body).replace("-", "+").replace("_", "/")
    for data in (PNG, b"%PDF-", PNG[::-1]):
        assert base64.b64encode(data).decode() in sent.replace("%PDF+", "%PDF-")


@pytest.mark.anyio
async def test_google_fetches_images_itself():
    with scripted(google, "Seen.") as (server, model):
        await ask(model, request(user("Look:", Image(url="https://example.com/cat.png"))))
        assert "https://example.com/cat.png" in json.dumps(server.requests[-1].body)


@pytest.mark.anyio
async def test_a_path_in_a_message_is_not_read():
    with scripted(chat, "unreached") as (server, model):
        error = await error_of(model, request(user(Image(path="/etc/passwd"))))
        assert error.kind == "invalid_request"
        assert server.requests == []


@every
@pytest.mark.anyio
async def test_settings_reach_the_provider(made):
    extra = {"service_tier": "auto", "top_p": 0.5}
    extra |= {"generationConfig": {"seed": 7}} if made is google else {"metadata": {"user_id": "u1"}}
    settings = ModelSettings(temperature=0.5, max_tokens=99, parallel_tool_calls=False, extra=extra)
    configured = request(settings=settings)
    configured.tools = (*configured.tools, NOW)
    configured.tool_choice = "add"
    with scripted(made, "Hello.") as (server, model):
        await ask(model, configured)
        assert server.problems == []
        body = server.requests[-1].body
    if made is google:
        config = body["generationConfig"]
        assert (config["temperature"], config["topP"], config["maxOutputTokens"], config["seed"]) == (
            0.5,
            0.5,
            99,
            7,
        )
        assert body["toolConfig"]["functionCallingConfig"] == {"mode": "ANY", "allowedFunctionNames": ["add"]}
        return
    assert (body["temperature"], body["top_p"], body["metadata"]) == (0.5, 0.5, {"user_id": "u1"})
    assert 99 in (body.get(name) for name in ("max_tokens", "max_completion_tokens", "max_output_tokens"))
    assert "add" in json.dumps(body["tool_choice"])
    assert (body.get("parallel_tool_calls") is False) or body["tool_choice"][
        "disable_parallel_tool_use"
    ] is True


@pytest.mark.anyio
async def test_settings_of_a_single_provider_use_its_names():
    with scripted(google, "Hello.") as (server, model):
        await ask(
            model, request(settings=ModelSettings(extra={"thinking_config": {"include_thoughts": True}}))
        )
        assert server.requests[-1].body["generationConfig"]["thinkingConfig"] == {"include_thoughts": True}
    with scripted(responses, "Hello.") as (server, model):
        await ask(
            model, request(settings=ModelSettings(extra={"reasoning_effort": "low", "text_verbosity": "low"}))
        )
        body = server.requests[-1].body
        assert (body["reasoning"]["effort"], body["text"]["verbosity"]) == ("low", "low")


@pytest.mark.anyio
async def test_googles_sdk_continues_no_answer_with_hidden_requests():
    more = {
        "candidates": [
            {"content": {"parts": [{"text": "Half"}], "role": "model"}, "continuationToken": "dG9r"}
        ]
    }
    body = b"data: " + json.dumps(more).encode() + b"\n\n"
    with scripted(google, raw(body, content_type="text/event-stream"), "unreached") as (server, model):
        assert (await error_of(model)).kind == "connection"
        assert len(server.requests) == 1


@pytest.mark.anyio
async def test_answers_that_are_not_streamed_use_the_plain_endpoint():
    for name, make_model in WHOLE.items():
        with scripted(make_model, turn("Hello.", call("add", a=1, b=2))) as (server, model):
            deltas, answer = await ask(model, request())
            assert server.requests[0].body.get("stream") in (None, False), name
            assert server.requests[0].path.endswith("stream") is False
        assert [type(delta) for delta in deltas] == [TextDelta, ToolCallDelta]
        assert answer.message.tool_calls[0].arguments == {"a": 1, "b": 2}


@pytest.mark.anyio
async def test_an_output_schema_is_sent():
    typed = request()
    typed.output_schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    with scripted(chat, '{"n": 1}') as (server, model):
        await ask(model, typed)
        assert server.problems == []
        assert server.requests[-1].body["response_format"]["type"] == "json_schema"
    with scripted(responses, '{"n": 1}') as (server, model):
        await ask(model, typed)
        assert server.problems == []
        assert server.requests[-1].body["text"]["format"]["type"] == "json_schema"
    with scripted(google, '{"n": 1}') as (server, model):
        await ask(model, typed)
        assert server.problems == []
        config = server.requests[-1].body["generationConfig"]
        assert (config["responseMimeType"], config["responseJsonSchema"]["required"]) == (
            "application/json",
            ["n"],
        )


def test_each_model_has_the_output_mode_it_supports_best(monkeypatch):
    for name in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    modes = {"gpt-5.4-mini": "native", "gpt-4": "tool"}
    for kind in (OpenAI, OpenAIChat):
        assert {name: kind(name).output_mode for name in modes} == modes
        assert kind("gpt-5.4-mini", base_url="http://127.0.0.1:1/v1").output_mode == "tool"
    modes = {"gemini-3.1-flash": "native", "gemini-2.5-pro": "tool", "gemini-11": "native"}
    assert {name: Google(name).output_mode for name in modes} == modes


@pytest.mark.anyio
async def test_every_model_class_of_pydantic_ai_can_be_used():
    from pydantic_ai.messages import NativeToolReturnPart
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.models.test import TestModel

    plain = request()
    plain.tools = (NOW,)
    _, answer = await ask(PydanticAIModel(TestModel()), plain)
    assert [called.name for called in answer.message.tool_calls] == ["now"]
    assert answer.finish == "tool_calls"

    seen = []

    async def speak(messages, info):
        seen.append(messages)
        yield "Hello."

    from treadle.llm.mapping import _our_part

    part = NativeToolReturnPart("web_search", [{"url": "x"}], "id1", provider_name="p")
    message = Message("assistant", (Text("a"), _our_part(part, False, set())))
    json.dumps(message.parts[1].meta)
    model = PydanticAIModel(FunctionModel(stream_function=speak))
    await ask(model, request(user("a"), message, user("b")))
    kept = [p for p in seen[0][1].parts if isinstance(p, NativeToolReturnPart)]
    assert [(p.content, p.tool_call_id, p.provider_name) for p in kept] == [([{"url": "x"}], "id1", "p")]


@pytest.mark.anyio
async def test_a_conversation_of_many_tasks_shares_one_client():
    with scripted(chat, "Hello.") as (server, model):
        answers = await asyncio.gather(*(ask(model, request()) for _ in range(20)))
    assert all(isinstance(answer, ModelAnswer) for _, answer in answers)
    assert len(server.requests) == 20


def test_a_request_for_a_call_that_never_parsed_is_well_formed():
    from treadle.llm.mapping import their_messages

    broken = Message("assistant", (ToolCall("s1-c0", "add", {}, raw='{"a": ', problem="unparsable"),))
    model_request = ModelRequest(
        (user("a"), broken), "", (), "auto", ModelSettings(), task_id="t", step="s", turn=1, attempt=1
    )
    assert their_messages(model_request)[1].parts[0].args == {"unparsable_arguments": '{"a": '}


@pytest.mark.full
def test_models_of_all_providers_may_be_used_at_once_in_a_fresh_process():
    code = (
        "import asyncio\n"
        "from treadle.models import OpenAI, OpenAIChat, Anthropic, Google\n"
        "async def main():\n"
        "    kinds = OpenAI, OpenAIChat, Anthropic, Google\n"
        "    models = [kind('x', api_key='k', base_url='http://127.0.0.1:9') for kind in kinds]\n"
        "    await asyncio.gather(*(model._ready() for model in models * 2))\n"
        "asyncio.run(main())"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
