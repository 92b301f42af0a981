# ruff: noqa: E501 - a table: a line for each fault
"""Faults of a provider and their expected outcomes, written by hand for each wire format, streamed and whole.

Nothing here is derived from the code under test. `make provider-faults` runs all of it, and so does
`python -m tests.llm.fault_matrix [parts of names]`, which prints each problem as it finds it.
"""

import asyncio
import json
import re
import socket
import time
from collections import Counter, defaultdict
from contextlib import ExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime

from tests.llm.wires import SECRET, WIRES
from treadle import Agent, Runner, tool
from treadle.models import Retry, Timeout
from treadle.testing.audit import audit_store
from treadle.testing.provider import (
    ProviderServer,
    Usage,
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
from treadle.testing.provider.anthropic import AnthropicMessages
from treadle.testing.provider.openai_chat import OpenAIChat
from treadle.testing.provider.openai_responses import OpenAIResponses
from treadle.testing.provider.script import Script

DONE = "Done."
HALF = "Half of what I wanted to say, and then"
ON = frozenset(("rate_limit", "overloaded", "server", "timeout", "connection", "not_sent"))
"""Kinds of failure that are retried."""
SHORT = 1.5
"""Seconds of the deadline of an impatient model."""


@dataclass(frozen=True)
class Want:
    """The expected outcome of a fault.

    Args:
        requests: how many arrive at the server, for the turn with the fault and what follows it.
        kind: of the failure of each attempt that failed, in `ModelFailed`; None if none did.
        state: the task's, at the end.
        runs: how often tools run because of the answer with the fault.
        told: what the model reads of it in its next request.
        text: the answer of the task; None: not checked.
        attempts: how many the journal knows, where that is not the number of requests.
    """

    requests: int
    kind: str | None = None
    state: str = "completed"
    runs: int = 0
    told: str = ""
    text: str | None = DONE
    attempts: int | None = None
    estimated: bool | None = None


NOTHING = Want(3, "empty", "failed", text="")
"""The model says nothing, however often it is asked."""


def retryable(kind):
    """The attempt fails, and the next one answers."""
    return Want(2, kind)


def final(kind):
    """The attempt fails, and with it the task: there is no retry."""
    return Want(1, kind, "failed", text=None)


@dataclass(frozen=True)
class Fault:
    """One fault: the server's answer and its expected outcome; `of` has other outcomes for some wires and ways."""

    name: str
    items: tuple
    want: Want
    of: dict = field(default_factory=dict)
    wires: tuple = tuple(WIRES)
    ways: tuple = ("streamed", "whole")
    impatient: bool = False
    wait: float = 0.0
    forever: bool = False
    """whether it never ends: four attempts, then the task has failed"""
    places: tuple = ("first", "after a tool")

    def wanted(self, wire, way):
        for key in (f"{wire} {way}", wire, way):
            if key in self.of:
                return self.of[key]
        return self.want


def fault(name, *items, want, **options):
    return Fault(name, items, want, **options)


DATE = "a date"
"""Stands for a date in a second or two, as the header has it, when the request arrives."""


def later():
    return format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)


STATUS = [
    fault("400", fail(400), want=final("invalid_request")),
    fault("401", fail(401, f"Incorrect API key provided: {SECRET}"), want=final("authentication")),
    fault("402", fail(402), want=final("permission")),
    fault("403", fail(403), want=final("permission")),
    fault("404", fail(404), want=final("not_found")),
    fault("408", fail(408), want=retryable("timeout"), forever=True),
    fault("409", fail(409), want=retryable("overloaded"), forever=True),
    fault("413", fail(413), want=final("too_large")),
    fault("418", fail(418), want=final("invalid_request")),
    fault("422", fail(422), want=final("invalid_request")),
    fault("425", fail(425), want=retryable("overloaded")),
    fault("429", fail(429), want=retryable("rate_limit"), forever=True),
    fault("429, seconds", fail(429, retry_after=0.3), want=retryable("rate_limit"), wait=0.3),
    fault("429, milliseconds", fail(429, headers={"retry-after-ms": "200"}), want=retryable("rate_limit"), wait=0.2),
    fault("429, a date", fail(429, retry_after=DATE), want=retryable("rate_limit")),
    fault("429, no date", fail(429, retry_after="soon"), want=retryable("rate_limit")),
    fault("429, in two hours", fail(429, retry_after=7200), want=Want(1, "rate_limit", "waiting", text=None)),
    fault("429, in two days", fail(429, retry_after=172_800), want=final("rate_limit")),
    fault("429 twice", fail(429), fail(429), want=Want(3, "rate_limit")),
    fault("500", fail(500), want=retryable("server"), forever=True),
    fault("502", fail(502), want=retryable("server")),
    fault("503", fail(503), want=retryable("overloaded"), forever=True),
    fault("503, seconds", fail(503, retry_after=0.2), want=retryable("overloaded"), wait=0.2),
    fault("504", fail(504), want=retryable("timeout")),
    fault("529", fail(529), want=retryable("overloaded")),
    fault("599", fail(599), want=retryable("server")),
    fault("a page of a proxy with 502", raw("<html>Bad Gateway</html>", status=502, content_type="text/html"), want=retryable("server")),
    fault("a page of a proxy with 403", raw("<html>No.</html>", status=403, content_type="text/html"), want=final("permission")),
    fault("an error of nobody's shape", raw('["no"]', status=500), want=retryable("server")),
    fault("an error without words", raw("", status=503), want=retryable("overloaded")),
]  # fmt: skip

CODES = [
    fault("no money left", fail(429, code="insufficient_quota"), want=final("permission"), wires=("chat", "responses")),
    fault("too long for the model", fail(400, code="context_length_exceeded"), want=final("too_large"), wires=("chat", "responses")),
    fault("too long for llama.cpp", fail(400, code="exceed_context_size_error"), want=final("too_large"), wires=("chat",)),
    fault("a text too long", fail(400, code="string_above_max_length"), want=final("too_large"), wires=("chat", "responses")),
    fault("filtered with 400", fail(400, code="content_filter"), want=final("refused"), wires=("chat", "responses")),
    fault("no such model with 400", fail(400, code="model_not_found"), want=final("not_found"), wires=("chat", "responses")),
    fault("rate limit with 400", fail(400, code="rate_limit_exceeded"), want=retryable("rate_limit"), wires=("chat", "responses")),
    fault("overloaded with 500", fail(500, code="overloaded_error"), want=retryable("overloaded"), wires=("anthropic",)),
    fault("no money left, of Anthropic", fail(400, code="billing_error"), want=final("permission"), wires=("anthropic",)),
    fault("too large with 400", fail(400, code="request_too_large"), want=final("too_large"), wires=("anthropic",)),
    fault("no key of Google's", fail(400, f"API key not valid: {SECRET}", code="API_KEY_INVALID"), want=final("authentication"), wires=("google",)),
]  # fmt: skip

# After how many pieces, counted from the end, an answer has not said yet why it ends, and after how many it has.
UNSAID = {"chat": -3, "responses": -1, "anthropic": -2, "google": -1}
SAID = {"chat": -1, "anthropic": -1}
BY_HALF = {"chunk_size": 4}


def each(name, make, want, **options):
    """A fault that is made in another way on each wire that `make` knows."""
    return [fault(name, make_fault, want=want, wires=(wire,), **options) for wire, make_fault in make.items()]


TRANSPORT = [
    fault("hung up", hang_up(), want=retryable("connection"), forever=True),
    fault("closed before an answer", hang_up("close"), want=retryable("connection")),
    fault("reset in the middle", turn(HALF, cut="reset", **BY_HALF), want=retryable("connection"), forever=True),
    fault("closed in the middle", turn(HALF, cut="close", **BY_HALF), want=retryable("connection")),
    fault("ends in the middle", turn(HALF, cut="eof", **BY_HALF), want=retryable("connection"), ways=("streamed",), forever=True),
    fault("half a document", turn(HALF, cut="eof"), want=final("unparsable"), ways=("whole",)),
    fault("reset in a call", turn(call("add", a=1, b=2), cut="reset", chunk_size=2), want=retryable("connection")),
    fault("ends in a call", turn("So:", call("add", a=1, b=2), cut="eof", chunk_size=2), want=retryable("connection"), ways=("streamed",)),
    fault("closed in thoughts", turn(reasoning("Hm, hm, hm."), cut="close", chunk_size=2), want=retryable("connection")),
    fault("nothing arrives", turn(DONE, delay=30, answers=False), want=retryable("timeout"), impatient=True),
    fault("falls silent", turn(HALF, chunk_delay=30, answers=False), want=retryable("timeout"), impatient=True),
    fault("falls silent in a call", turn(call("add", a=1, b=2), chunk_delay=30, answers=False, chunk_size=2), want=retryable("timeout"), impatient=True),
    fault("a page of a proxy with 200", raw("<html>Sign in</html>", content_type="text/html"), want=final("unparsable")),
    *each("ends before it says why", {wire: turn(HALF, cut="eof", cut_after=n, **BY_HALF) for wire, n in UNSAID.items()}, retryable("connection"), ways=("streamed",)),
    *each("a call ends before it is said why", {wire: turn(call("add", a=1, b=2), cut="eof", cut_after=n, **BY_HALF) for wire, n in UNSAID.items()}, retryable("connection"), ways=("streamed",)),
    *each("ends when all is said", {wire: turn(DONE, cut="eof", cut_after=n, answers=True) for wire, n in SAID.items()}, Want(1), ways=("streamed",)),
    fault("an error in the middle", turn(HALF, cut="error", **BY_HALF), want=retryable("overloaded"), ways=("streamed",), of={"chat": retryable("server"), "responses": retryable("server")}),
]  # fmt: skip


def stream(body):
    return raw(body, content_type="text/event-stream")


def broken(wire, code):
    """A stream that begins well and then sends an error with this code, after the status 200."""
    dialects = {"chat": OpenAIChat(), "responses": OpenAIResponses(), "anthropic": AnthropicMessages()}[wire]
    begun = dialects.events(turn(HALF), {"model": "m"})[:2]
    answers_of = {
        "chat": {"error": {"message": "No.", "type": code, "param": None, "code": None}},
        "responses": {"type": "error", "code": code, "message": "No.", "param": None, "sequence_number": 9},
        "anthropic": {"type": "error", "error": {"type": code, "message": "No."}},
    }[wire]
    event = "" if wire == "chat" else "event: error\n"
    return stream(b"".join(begun) + f"{event}data: {json.dumps(answers_of)}\n\n".encode())


def in_the_middle(code, want, *wires):
    return each(
        f"{code} in the middle", {wire: broken(wire, code) for wire in wires}, want, ways=("streamed",)
    )


MIDDLE = [
    *in_the_middle("server_error", retryable("server"), "chat", "responses"),
    *in_the_middle("internal_error", retryable("server"), "chat", "responses"),
    *in_the_middle("internal_server_error", retryable("server"), "chat", "responses"),
    *in_the_middle("rate_limit_exceeded", retryable("rate_limit"), "chat", "responses"),
    *in_the_middle("insufficient_quota", final("permission"), "chat", "responses"),
    *in_the_middle("context_length_exceeded", final("too_large"), "chat", "responses"),
    *in_the_middle("api_error", retryable("server"), "anthropic"),
    *in_the_middle("overloaded_error", retryable("overloaded"), "anthropic"),
    *in_the_middle("rate_limit_error", retryable("rate_limit"), "anthropic"),
    *in_the_middle("timeout_error", retryable("timeout"), "anthropic"),
    *in_the_middle("authentication_error", final("authentication"), "anthropic"),
    *in_the_middle("permission_error", final("permission"), "anthropic"),
    *in_the_middle("not_found_error", final("not_found"), "anthropic"),
    *in_the_middle("invalid_request_error", final("invalid_request"), "anthropic"),
    *in_the_middle("request_too_large", final("too_large"), "anthropic"),
]

GARBAGE = [
    fault("no gzip", raw("data: {}\n\n", content_type="text/event-stream", headers={"content-encoding": "gzip"}), want=retryable("connection"), ways=("streamed",)),
    fault("a document that is no gzip", raw("{}", headers={"content-encoding": "gzip"}), want=retryable("connection"), ways=("whole",)),
    fault("an empty stream", stream(""), want=final("unparsable"), ways=("streamed",)),
    fault("an empty document", raw(""), want=final("unparsable"), ways=("whole",)),
    fault("no JSON", raw("data: {not json\n\n", content_type="text/event-stream"), want=final("unparsable"), ways=("streamed",)),
    fault("half a document in place of a stream", raw('{"id": "x", "choices": [{"mess'), want=final("unparsable"), ways=("streamed",)),
    fault("no JSON at all", raw("{not json"), want=final("unparsable"), ways=("whole",)),
    fault("no UTF-8", stream(b'data: {"x": "\xff\xfe"}\n\n'), want=final("unparsable"), ways=("streamed",)),
    fault("a list", raw("[]"), want=final("unparsable"), ways=("whole",)),
    fault("null", raw("null"), want=final("unparsable"), ways=("whole",)),
    fault("a document of nothing", raw("{}"), want=final("unparsable"), ways=("whole",)),
    *each("a piece of another shape", {
        "chat": stream('data: {"choices": 7}\n\n'),
        "responses": stream('event: response.created\ndata: {"type": "response.created", "response": 7}\n\n'),
        "anthropic": stream('event: message_start\ndata: {"type": "message_start", "message": 7}\n\n'),
        "google": stream('data: {"candidates": 7}\n\n'),
    }, final("unparsable"), ways=("streamed",)),
    *each("a document of another shape", {
        "chat": raw('{"choices": 7}'),
        "responses": raw('{"output": 7}'),
        "anthropic": raw('{"content": 7}'),
        "google": raw('{"candidates": 7}'),
    }, final("unparsable"), ways=("whole",)),
    fault("no choices", raw('{"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": []}'), want=final("unparsable"), wires=("chat",), ways=("whole",)),
]  # fmt: skip


def bad(name, raw_arguments, problem, **options):
    """A call with invalid arguments: the model gets an error, and the sibling call runs."""
    items = (turn(call("add", a=1, b=2), raw_call("add", raw_arguments), answers=True),)
    return Fault(name, items, Want(2, runs=1, told=problem), **options)


# Where arguments travel as an object, what is none cannot be sent: Google says so, and nothing of the answer runs.
MALFORMED = {"google": Want(2, told="not run")}
TWO = (call("add", a=1, b=2), call("add", a=3, b=4))

ANSWERS = [
    fault("a refusal", turn(refusal("I will not.")), want=Want(1, state="degraded", text=None)),
    fault("filtered words", turn("Half", finish="content_filter"), want=Want(1, state="degraded", text=None)),
    fault("a filtered call", turn(call("add", a=1, b=2), finish="content_filter"), want=Want(2, told="not")),
    fault("cut words", turn(HALF, finish="length"), want=Want(1, state="degraded", text=None)),
    fault("a cut call", turn(raw_call("add", '{"a": 1, "b'), finish="length"), want=Want(2, told="truncated"), of={"google": Want(1, state="degraded", text=None)}),
    fault("cut between two calls", turn(TWO[0], raw_call("add", '{"a'), finish="length"), want=Want(2, told="truncated")),
    fault("a whole call in a cut answer", turn(TWO[0], finish="length"), want=Want(2, told="truncated")),
    fault("an unknown end", turn(HALF, finish="because"), want=Want(1, state="degraded", text=None)),
    fault("an unknown end of a call", turn(TWO[0], finish="because"), want=Want(2, told="not")),
    bad("arguments that break off", '{"a": 1, "b": ', "not", of=MALFORMED),
    bad("arguments in words", "one and two", "not", of=MALFORMED),
    bad("arguments in a list", "[1, 2]", "not", of=MALFORMED),
    bad("arguments that are null", "null", "not", of=MALFORMED),
    bad("arguments with NaN", '{"a": NaN, "b": 1}', "not", of=MALFORMED),
    bad("arguments twice", '{"a": 1, "b": 1}{"a": 1, "b": 1}', "not", of=MALFORMED),
    fault("a call of Google's that went wrong", turn(raw_call("add", "one")), want=final("unparsable"), wires=("google",)),
    bad("no arguments", "", ""),
    bad("an argument missing", '{"a": 1}', "b"),
    bad("an argument of another type", '{"a": "one", "b": 1}', "a"),
    bad("an argument nobody asked for", '{"a": 1, "b": 1, "c": 1}', "c"),
    bad("deep arguments", '{"a": 1, "b": ' + "[" * 2000 + "]" * 2000 + "}", "", wires=("chat", "responses", "anthropic")),
    fault("a tool that is not there", turn(TWO[0], call("subtract", a=1, b=2)), want=Want(2, runs=1, told="subtract")),
    fault("a tool in other letters", turn(TWO[0], call("Add", a=1, b=2)), want=Want(2, runs=1, told="add")),
    fault("one id for two calls", turn(*(raw_call("add", c.arguments, call_id="same") for c in TWO)), want=Want(2, runs=2)),
    fault("empty ids", turn(*(raw_call("add", c.arguments, call_id="") for c in TWO)), want=Want(2, runs=2)),
    fault("strange ids", turn(*(raw_call("add", c.arguments, call_id=f"é {n} " * 30) for n, c in enumerate(TWO))), want=Want(2, runs=2)),
    fault("200 calls", turn(*(call("add", a=n, b=n) for n in range(200)), chunk_size=100), want=Want(2, runs=200), places=("first",)),
    fault("5 MB", turn("word " * 1_000_000, chunk_size=200_000), want=Want(1, text="word " * 1_000_000), places=("first",)),
    fault("NUL and half a pair", turn("a\x00b \ud83d c"), want=Want(1, text="a\x00b \ufffd c")),
    fault("half a pair in arguments", turn(raw_call("echo", '{"words": "\\ud83d\\u0000"}')), want=Want(2, runs=1)),
    fault("usage missing", turn(DONE, usage="missing"), want=Want(1, estimated=True)),
    fault("usage below zero", turn(DONE, usage=Usage(-5, -7)), want=Want(1, estimated=True)),
    fault("thoughts and a call", turn(reasoning("Hm."), TWO[0]), want=Want(2, runs=1)),
    fault("nothing said", turn(text("")), want=NOTHING),
    fault("only thoughts", turn(reasoning("Hm.")), want=NOTHING),
]  # fmt: skip

FAULTS = [*STATUS, *CODES, *TRANSPORT, *MIDDLE, *GARBAGE, *ANSWERS]


# ------------------------------------------------------------------------------------------------- cases


@dataclass(frozen=True)
class Case:
    """One fault on one wire, in one way, in the first turn or after a tool; once or always."""

    fault: Fault
    wire: str
    way: str
    place: str
    forever: bool = False

    @property
    def name(self):
        return f"{self.fault.name} | {self.wire} | {self.way} | {self.place}" + " | for ever" * self.forever

    @property
    def want(self):
        want = self.fault.wanted(self.wire, self.way)
        return replace(want, requests=4, state="failed", text=None) if self.forever else want

    def script(self):
        items = [item() if callable(item) else item for item in self.fault.items]
        items = [replace(item, answers=True) if is_answer(item) else item for item in items]
        before = [call("add", a=20, b=22)] if self.place == "after a tool" else []
        return Script([*before, *items, *([] if self.forever else [DONE])])


def is_answer(item):
    return (
        getattr(item, "how", None) is not None and getattr(item, "parts", None) is not None and item.answers
    )


def cases():
    """All cases."""
    cases_found = []
    for fault in FAULTS:
        for wire in fault.wires:
            for way in fault.ways:
                cases_found += [Case(fault, wire, way, point) for point in fault.places]
            if fault.forever:
                cases_found.append(Case(fault, wire, fault.ways[0], "first", forever=True))
    return cases_found


# ----------------------------------------------------------------------------------------------- running


@dataclass
class Seen:
    """The outcome of a case."""

    result: object
    attempts: int
    failures: list
    requests: list
    runs: int
    not_before: float
    words: str


class Bench:
    """A server and a runner for all cases of a run, and the models in front of the server."""

    def __init__(self, server, runner, arrived, not_before):
        self.server, self.runner, self.arrived, self.not_before = server, runner, arrived, not_before
        self._models = {}

    def model(self, wire, way, impatient):
        key = (wire, way, impatient)
        if key not in self._models:
            model = WIRES[wire](self.server, stream=way == "streamed")
            limits = (
                {"first_byte": SHORT, "between": SHORT} if impatient else {"first_byte": 60, "between": 60}
            )
            self._models[key] = Retry(Timeout(model, **limits), base=0.004, on=ON)
        return self._models[key]


def number_of(request):
    """The case that a request belongs to, by the beginning of its text."""
    return int(re.search(r"case (\d+)", json.dumps(request.messages[:3]))[1])


@asynccontextmanager
async def bench(scripts):
    """A server that plays each case's script, and a runner."""
    arrived, not_before = defaultdict(list), {}

    def script(request):
        number = number_of(request)
        item = scripts[number].pick(request.turn, request.attempt)
        if getattr(item, "headers", {}).get("retry-after") != DATE:
            return item
        date = later()
        not_before[number] = parsedate_to_datetime(date).timestamp()
        return replace(item, headers={"retry-after": date})

    def note(request):
        arrived[number_of(request)].append(request)

    with ProviderServer(script, on_request=note, conversation=number_of) as server:
        async with Runner("memory:") as runner:
            yield Bench(server, runner, arrived, not_before)
            assert await audit_store(runner.store) == []


async def play(bench, number, case):
    """Run one case and return its outcome."""
    ran = Counter()

    @tool(idempotent=True)
    def add(a: float, b: float) -> float:
        """Add two numbers."""
        ran["tools"] += 1
        return a + b

    @tool(idempotent=True)
    def echo(words: str) -> str:
        """Repeat it."""
        ran["tools"] += 1
        return words

    agent = Agent(bench.model(case.wire, case.way, case.fault.impatient), tools=[add, echo])
    result = await bench.runner.run(agent, f"case {number}", task_id=f"t{number}")
    events = [event async for event in bench.runner.handle(f"t{number}").events(deltas=False)]
    return Seen(
        result,
        sum(event.kind == "model_started" for event in events),
        [event.error for event in events if event.kind == "model_failed"],
        bench.arrived[number],
        ran["tools"],
        bench.not_before.get(number, 0.0),
        repr(result) + "".join(repr(event) for event in events if event.kind != "model_returned"),
    )


def judge(case, seen):
    """The differences from the expected outcome; empty if there are none."""
    want, result = case.want, seen.result
    before = 1 if case.place == "after a tool" else 0
    wrong = []

    def must(holds, problem):
        if not holds:
            wrong.append(problem)

    must(result.state == want.state, f"state {result.state}, not {want.state} ({result.error})")
    sent = len(seen.requests) - before
    # On a machine that is busy, an answer that is not slow may be too slow for an impatient model as well.
    enough = want.requests <= sent <= 4 if case.fault.impatient else sent == want.requests
    must(enough, f"{sent} requests, not {want.requests}")
    must(
        seen.attempts == len(seen.requests),
        f"{seen.attempts} attempts in the journal, {len(seen.requests)} requests",
    )
    must(seen.runs == want.runs + before, f"{seen.runs - before} tools ran, not {want.runs}")
    kinds = {error.kind for error in seen.failures}
    must(kinds == ({want.kind} if want.kind else set()), f"failures of kind {sorted(kinds)}, not {want.kind}")
    if want.state == "failed" and want.kind:
        must(result.error is not None and result.error.kind == want.kind, f"failed with {result.error}")
    if want.text is not None:
        must(result.final_text == want.text, f"final text {result.final_text[:60]!r}")
    if want.kind is not None:
        must(HALF[:4] not in result.final_text, "half an answer is the final one")
    if want.told and len(seen.requests) > before + 1:
        must(
            want.told in json.dumps(seen.requests[-1].messages[-4:]), f"the model was not told {want.told!r}"
        )
    if want.estimated is not None:
        must(
            result.usage.total.estimated is want.estimated
            if hasattr(result.usage, "total")
            else result.usage.estimated is want.estimated,
            "usage",
        )
    gaps = [
        b.time - a.time for a, b in zip(seen.requests[before:], seen.requests[before + 1 :], strict=False)
    ]
    if case.fault.wait:
        must(gaps and gaps[0] >= case.fault.wait, f"asked again after {gaps} s, not {case.fault.wait}")
    must(seen.not_before <= seen.requests[-1].time, "asked again before the date")
    must(SECRET not in seen.words, "the key is shown")
    problems = [request.problem for request in seen.requests if request.problem]
    must(not problems, f"the server refused {problems[:1]}")
    return wrong


CASE = ContextVar("CASE", default="")
"""The case that is being played."""


async def run(chosen, at_once=12, tell=lambda name, problem: None):
    """Run cases, several at once; return the differences, by the case's name."""
    scripts = {number: case.script() for number, case in enumerate(chosen)}
    wrong = {}
    turnstile = asyncio.Semaphore(at_once)
    async with bench(scripts) as test_bench:

        async def one(number, case):
            async with turnstile:
                CASE.set(case.name)
                try:
                    async with asyncio.timeout(60):
                        problem = judge(case, await play(test_bench, number, case))
                except TimeoutError:
                    problem = ["hangs"]
                if problem:
                    wrong[case.name] = problem
                tell(case.name, problem)

        await asyncio.gather(*(one(number, case) for number, case in enumerate(chosen)))
    return wrong


# -------------------------------------------------------------------------------------- unreachable servers


@contextmanager
def full():
    """An address whose server accepts no connection."""
    with ExitStack() as kept:
        listener = kept.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            waiting = kept.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def closed():
    """An address without a server."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    yield f"http://127.0.0.1:{port}"


@contextmanager
def plain():
    """A server without TLS, asked for TLS."""
    with ProviderServer([DONE]) as server:
        yield server.url.replace("http:", "https:")


@contextmanager
def nowhere():
    """A name that no host has."""
    yield "http://nowhere.invalid"


UNREACHABLE = {
    ("no such host", nowhere): "connection",
    ("connection refused", closed): "connection",
    ("no TLS", plain): "connection",
    ("connecting takes too long", full): "timeout",
}
"""The kind of each of four attempts, with which the task fails."""


@dataclass
class Elsewhere:
    """A stand-in for a server that is unreachable."""

    url: str

    @property
    def openai_base_url(self):
        return self.url + "/v1"

    @property
    def anthropic_base_url(self):
        return self.url

    google_base_url = anthropic_base_url


async def reach(url, wire, way):
    """Run a task with an unreachable model; return its state and the kinds of its failures."""
    model = WIRES[wire](Elsewhere(url), stream=way == "streamed")
    async with Runner("memory:") as runner:
        result = await runner.run(
            Agent(Retry(Timeout(model, connect=0.3), base=0.004)), "Is anybody there?", task_id="t"
        )
        events = [event async for event in runner.handle("t").events(deltas=False)]
        assert sum(event.kind == "model_started" for event in events) == 4
        return result.state, [event.error.kind for event in events if event.kind == "model_failed"]


if __name__ == "__main__":
    import sys

    words = sys.argv[1:]
    every = [case for case in cases() if not words or any(pattern in case.name for pattern in words)]
    done = []

    def tell(name, problem):
        done.append(name)
        if problem:
            print(name, *problem, sep="\n    ", flush=True)
        if len(done) % 50 == 0:
            print(f"-- {len(done)} of {len(every)}, {time.monotonic() - began:.0f} s", flush=True)

    began = time.monotonic()
    told = asyncio.run(run(every, tell=tell))
    print(f"{len(every)} cases, {len(told)} wrong, {time.monotonic() - began:.1f} s")
