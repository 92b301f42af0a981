"""Answers that are odd and no attack, and such that are one: each ends its own call, at once, and holds up no other."""

import asyncio
import json
import sys
import time
from pathlib import Path

import pytest
from mcp_types import JSONRPCError, JSONRPCResponse

from treadle import MCPServer, Runner
from treadle.models import call, text
from treadle.tools.flood import MAX_PARTS
from treadle.tools.mcp.traffic import MAX_ENTRIES, Flooded, bounded, parsed

ODD = Path(__file__).with_name("odd_server.py")


def data(value: str) -> str:
    return f'{{"content": [], "structuredContent": {{"v": {value}}}}}'


def block(text: str) -> str:
    return f'{{"content": [{{"type": "text", "text": {text}}}]}}'


LEFT_OUT = "[the server's data was left out: the tool returned something that cannot be stored as JSON: "

CASES = {  # what the server answers to a call; the state of the task, and what it has of the call
    "not a number": (data("NaN"), "completed", f"{LEFT_OUT}nan is not a JSON number at .v]"),
    "infinity": (data("1e400"), "completed", f"{LEFT_OUT}inf is not a JSON number at .v]"),
    "deep": (data("[" * 150 + "]" * 150), "completed", LEFT_OUT),
    "half a pair": (block(r'"cut \ud83d"'), "completed", "cut \ufffd"),
    "a pair": (block(r'"\ud83d\ude00"'), "completed", "\U0001f600"),
    "half a pair in data": (data(r'"cut \udfff"'), "completed", {"v": "cut \ufffd"}),
    "a backslash": (block(r'"\\ud83d"'), "completed", r"\ud83d"),
    "no result": ("null", "waiting", "it sent an answer that is none"),
    "no object": ("[]", "waiting", "it sent an answer that is none"),
    "too deep to parse": (data("[" * 400 + "]" * 400), "waiting", "it sent an answer that is none"),
    "nothing in it": ("{}", "waiting", "answered say with an invalid result"),
    "many parts": (
        json.dumps({"content": [{"type": "text", "text": ""}] * 20_000}),
        "waiting",
        "it sent more than 2,000 entries in 'content'",
    ),
    "more parts": (
        json.dumps({"content": [{"type": "text", "text": ""}] * 150_000}),
        "waiting",
        "it wrote a message of more than 100,000 objects and lists",
    ),
}


@pytest.mark.anyio
@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", CASES)
async def test_an_odd_answer_ends_its_call_at_once(clerk, case):
    answer, state, expected = CASES[case]
    odd = MCPServer("odd", command=sys.executable, args=["-S", "-E", str(ODD)], pins=None, protocol="legacy")
    lags = []

    async def tick() -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.01)
            lags.append(time.monotonic() - began - 0.01)

    async with Runner("memory:") as runner:
        await runner.run(clerk([text("started")], odd), "go")
        ticking = asyncio.create_task(tick())
        began = time.monotonic()
        result = await runner.run(clerk([call("odd__say", result=answer), text("done")], odd), "go")
        assert time.monotonic() - began < 20, "a call may take 60 s"
        ticking.cancel()
        assert (await runner.verify(result.task_id)).findings == ()
    assert result.state == state
    if state == "waiting":
        assert expected in result.pending[0].text
    elif expected == LEFT_OUT:
        assert result.tool_executions[0].output.startswith(LEFT_OUT)
    else:
        assert result.tool_executions[0].output == expected
    assert sorted([0.0, *lags])[len(lags) * 99 // 100] < 0.5, "the loop of the tasks was held up"


def test_a_line_of_too_many_parts_is_not_parsed():
    parts = b'{"jsonrpc": "2.0", "id": 1, "result": {"v": [' + b"[]," * MAX_PARTS + b"[]]}}"
    began = time.process_time()
    with pytest.raises(Flooded, match="objects and lists"):
        parsed(parts)
    assert time.process_time() - began < 0.1


@pytest.mark.parametrize(
    "name", ["content", "tools", "resources", "resourceTemplates", "prompts", "messages"]
)
def test_a_list_of_too_many_entries_becomes_an_error_of_its_request(name):
    full = JSONRPCResponse(jsonrpc="2.0", id=7, result={name: [{}] * MAX_ENTRIES})
    assert bounded(full) is full
    over = bounded(JSONRPCResponse(jsonrpc="2.0", id=7, result={name: [{}] * (MAX_ENTRIES + 1)}))
    assert isinstance(over, JSONRPCError)
    assert over.id == 7


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[]", b"null", b'{"id": 1, "method": 3}', b'{"id": true}', b'{"id": 1.5}', b"\xff"]
)
def test_what_is_no_answer_to_a_request_is_no_message(line):
    assert parsed(line) is None
