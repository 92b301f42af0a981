"""Parallel calls of one tool were merged if the provider sent no ids, or the same index for all."""

import json
from typing import Any

import pytest

from treadle import Agent, Runner, tool
from treadle.testing.provider import ProviderServer, raw, raw_call, text, turn

pytestmark = pytest.mark.anyio


def streamed(pieces: list[dict[str, Any]]) -> Any:
    """A streamed answer in which each piece is a delta of tool calls, as it is."""
    deltas: list[tuple[dict[str, Any], str | None]] = [({"tool_calls": [piece]}, None) for piece in pieces]
    events = [
        {
            "id": "c",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": "scripted",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        }
        for delta, finish in [({"role": "assistant"}, None), *deltas, ({}, "tool_calls")]
    ]
    body = (
        b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events) + b"data: [DONE]\n\n"
    )
    return raw(body, headers={"content-type": "text/event-stream"}, answers=True)


def one(index: int, call_id: str | None, city: str) -> dict[str, Any]:
    function = {"name": "charge", "arguments": json.dumps({"city": city})}
    return {"index": index, "type": "function", "function": function} | (
        {"id": call_id} if call_id is not None else {}
    )


CITIES = ["Rome", "Oslo", "Lima"]
ANSWERS = {
    "one id for all": turn(*(raw_call("charge", {"city": city}, call_id="same") for city in CITIES)),
    "empty ids": turn(*(raw_call("charge", {"city": city}, call_id="") for city in CITIES)),
    "no ids": streamed([one(n, None, city) for n, city in enumerate(CITIES)]),
    "one index": streamed([one(0, f"call_{city}", city) for city in CITIES]),
    "one index and no ids": streamed([one(0, None, city) for city in CITIES]),
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
async def test_each_call_runs_with_its_own_arguments_and_has_its_own_result(
    answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    @tool
    async def charge(city: str) -> str:
        ran.append(city)
        return f"charged in {city}"

    with ProviderServer([answer, text("so")]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "key")
        async with Runner("memory:") as runner:
            result = await runner.run(Agent("openai:scripted", tools=[charge]), "go")
    print(result.state, result.error, result.tool_executions, server.problems)
    assert sorted(ran) == sorted(CITIES)
    executions = [(execution.arguments, execution.output) for execution in result.tool_executions]
    assert executions == [({"city": city}, f"charged in {city}") for city in CITIES]
    assert len({execution.call_id for execution in result.tool_executions}) == 3
    assert server.problems == []
    sent = server.requests[1].body["messages"]
    ids = [made_call["id"] for message in sent for made_call in message.get("tool_calls") or ()]
    assert [message["tool_call_id"] for message in sent if message["role"] == "tool"] == ids
