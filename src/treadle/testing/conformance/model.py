"""The conformance suite of a `Model`. Run each of `CHECKS` against your own:

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    @pytest.mark.anyio
    async def test_my_model(check):
        await check(scripted)

where `scripted(script)` is a context manager that returns your model with a script as its provider. A model over HTTP
gets the script from a `ProviderServer` with `provider_script(script)`. The checks in `PIECEWISE` are only for models
that stream their answers. Those in `AS_TEXT` are for models that receive the arguments of calls as text, not as an
object. `WIRE_CHECKS` are for models that talk to a server: the content of requests, and the masking of keys. Each
takes a context manager that returns the model and a function. The model has the key `SECRET`. The function returns the
bodies sent so far.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from treadle.core.data import frozen
from treadle.core.messages import (
    IN_WORDS,
    UNSEEN,
    Content,
    File,
    Image,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    user,
)
from treadle.core.model import (
    ModelAnswer,
    ModelDelta,
    ModelRequest,
    ModelSettings,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from treadle.core.tools import ToolSpec
from treadle.errors import ModelError, ModelErrorKind
from treadle.llm.scripted import Fail, Turn, call, call_raw, fail, text, turn
from treadle.ports import Model

if TYPE_CHECKING:
    from treadle.testing.provider.script import Item as ProviderItem
    from treadle.testing.provider.script import Part as ProviderPart

Scripted: TypeAlias = Callable[[Sequence["Turn | Fail"]], AbstractContextManager[Model]]
Check: TypeAlias = Callable[[Scripted], Awaitable[None]]
Recorded: TypeAlias = Callable[
    [Sequence["Turn | Fail"]], AbstractContextManager[tuple[Model, Callable[[], Sequence[str]]]]
]
"""Like `Scripted`, with a function that returns the bodies of the requests so far, as text."""

WireCheck: TypeAlias = Callable[[Recorded], Awaitable[None]]

ADD = ToolSpec(
    name="add",
    description="Add two numbers.",
    parameters={
        "type": "object",
        "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
        "required": ["a", "b"],
    },
    read_only=True,
)
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d4944415478da63fcffff3f0300050201"
    "fe5f4d1c0000000049454e44ae426082"
)
"""An image of one pixel."""
PROMPT_SECONDS = 1.0
"""Seconds in which a cancelled model must end."""


@frozen(kw_only=True)
class BrokenStream(Fail):
    """An answer that breaks off after the text `after`, by a reset, a regular end of the body, or an error event."""

    cut: Literal["reset", "eof", "error"]


# ---------------------------------------------------------------------------------------------- asking


def request(*messages: Message, attempt: int = 1, settings: ModelSettings | None = None) -> ModelRequest:
    """Return a request that offers the tool `add`, over a history; by default one question."""
    history = messages or (user("What is 1 + 2?"),)
    return ModelRequest(
        messages=history,
        instructions="Be precise.",
        tools=(ADD,),
        tool_choice="auto",
        settings=settings or ModelSettings(),
        task_id="task",
        step="step",
        turn=sum(message.role == "assistant" for message in history),
        attempt=attempt,
    )


async def ask(model: Model, request: ModelRequest) -> tuple[list[ModelDelta], ModelAnswer]:
    """Return the deltas and the answer; fail unless the last item is the only answer."""
    items = [item async for item in model.stream(request)]
    answers = [item for item in items if isinstance(item, ModelAnswer)]
    assert len(answers) == 1, f"{len(answers)} answers came, not one"
    assert items[-1] is answers[0], "something came after the answer"
    return [item for item in items if not isinstance(item, ModelAnswer)], answers[0]


def identified(message: Message, step: int = 1) -> Message:
    """Return an answer as the core stores it, in which each call has an id of Treadle from its position."""
    calls = count()
    parts = (
        replace(part, id=f"s{step}.c{next(calls)}") if isinstance(part, ToolCall) else part
        for part in message.parts
    )
    return replace(message, parts=tuple(parts))


def results(message: Message, *contents: Content) -> Message:
    """Return results for all calls of an answer, each with this observation."""
    return Message("tool", tuple(ToolResult(call.id, call.name, contents) for call in message.tool_calls))


# ---------------------------------------------------------------------------------------------- checks


async def deltas_join_to_the_answer(scripted: Scripted) -> None:
    """The streamed text equals the answer's text, and the answer comes once, last."""
    content = "One two three, 你好, naïve 🎉; and so on.\n\nThe end."
    with scripted([text(content, chunk=4)]) as model:
        deltas, answer = await ask(model, request())
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == content
    assert answer.message.role == "assistant"
    assert (answer.message.text, answer.finish) == (content, "stop")


async def words_come_in_pieces(scripted: Scripted) -> None:
    """Text arrives before the answer is complete."""
    with scripted([text("One two three, and so on.", chunk=4)]) as model:
        deltas, _ = await ask(model, request())
    assert sum(isinstance(delta, TextDelta) for delta in deltas) > 1


async def parallel_calls_come_in_order(scripted: Scripted) -> None:
    """Several calls of one answer keep their order, their arguments and the text before them."""
    with scripted([turn("Let me see.", [call("add", a=n, b=[n]) for n in range(5)])]) as model:
        deltas, answer = await ask(model, request())
    assert [call.arguments for call in answer.message.tool_calls] == [{"a": n, "b": [n]} for n in range(5)]
    assert {call.name for call in answer.message.tool_calls} == {"add"}
    assert all(call.problem is None for call in answer.message.tool_calls)
    assert (answer.message.text, answer.finish) == ("Let me see.", "tool_calls")
    indexes = [delta.index for delta in deltas if isinstance(delta, ToolCallDelta) and delta.name]
    assert indexes == list(range(5))


async def a_truncated_call_never_looks_whole(scripted: Scripted) -> None:
    """A call in a truncated answer is marked, complete or not."""
    script = turn("So", [call("add", a=1, b=2), call_raw("add", '{"a": 1')], finish="length")
    with scripted([script]) as model:
        _, answer = await ask(model, request())
    assert answer.finish == "length"
    calls = answer.message.tool_calls  # one if arguments are objects, since half of one cannot be sent
    assert 0 < len(calls) <= 2
    assert [(call.problem, call.arguments) for call in calls] == [("truncated", {})] * len(calls)


_NO_OBJECT = ('{"a": 1', "[1, 2]", "nonsense", '{"a": NaN}', '{"a": 1}}', "null", "7", "true")


async def what_is_no_object_never_runs(scripted: Scripted) -> None:
    """Arguments other than a complete JSON object are marked or the answer is an error; they are never repaired."""
    for raw in _NO_OBJECT:
        with scripted([turn(calls=[call("add", a=1, b=2), call_raw("add", raw)])]) as model:
            try:
                _, answer = await ask(model, request())
            except ModelError as error:
                if error.kind != "unparsable":
                    raise
                continue
        valid = [call for call in answer.message.tool_calls if call.problem is None]
        assert [call.arguments for call in valid] in ([], [{"a": 1, "b": 2}])
        assert len(valid) < len(answer.message.tool_calls) or (valid, answer.finish) == ([], "error")


async def unparsable_arguments_are_marked(scripted: Scripted) -> None:
    """Arguments other than a complete JSON object are kept as written, and the other calls run."""
    wrong = [*_NO_OBJECT, '"{}"', '{"a": 1, "a": 2}']
    with scripted([turn(calls=[call("add", a=1, b=2), *(call_raw("add", raw) for raw in wrong)])]) as model:
        _, answer = await ask(model, request())
    valid, *broken = answer.message.tool_calls
    assert (valid.problem, valid.arguments) == (None, {"a": 1, "b": 2})
    assert [call.problem for call in broken] == ["unparsable"] * len(wrong)
    assert [call.raw for call in broken] == wrong
    assert all(call.arguments == {} for call in broken)


async def a_history_with_results_is_accepted(scripted: Scripted) -> None:
    """Calls with Treadle's ids are accepted with their results; so are marked calls and errors."""
    opening = turn("Hm.", [call("add", a=1, b=2), call("add", a=1)])
    with scripted([opening, call("add", a=3, b=4), text("Seven.")]) as model:
        history = [user("Add."), identified((await ask(model, request(user("Add."))))[1].message)]
        first, second = history[1].tool_calls
        broken = replace(second, arguments={}, raw='{"a": 1', problem="unparsable")
        parts = (broken if part is second else part for part in history[1].parts)
        history[1] = replace(history[1], parts=tuple(parts))
        parts = (
            ToolResult(first.id, "add", (Text("3"),)),
            ToolResult(second.id, "add", (Text("not JSON"),), is_error=True),
        )
        history += [Message("tool", parts), Message("system", (Text("Be quick."),)), user("Go on.")]
        history.append(identified((await ask(model, request(*history)))[1].message, step=2))
        history.append(results(history[-1], Text("7")))
        _, answer = await ask(model, request(*history))
    assert answer.message.text == "Seven."


async def reasoning_comes_back(scripted: Scripted) -> None:
    """Thinking is streamed, separate from the text, stored as plain JSON in `meta`, and accepted back."""
    opening = turn("I will add.", call("add", a=1, b=2), reasoning="They want a sum.")
    with scripted([opening, text("Three.")]) as model:
        deltas, answer = await ask(model, request())
        thought = "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta))
        parts = [part for part in answer.message.parts if isinstance(part, Reasoning)]
        assert thought == "They want a sum." == "".join(part.text for part in parts)
        assert answer.message.text == "I will add."
        for part in answer.message.parts:
            meta = getattr(part, "meta", None)
            assert json.loads(json.dumps(meta)) == meta
        message = identified(answer.message)
        _, last = await ask(model, request(user("Add."), message, results(message, Text("3"))))
    assert last.message.text == "Three."


async def usage_is_there(scripted: Scripted) -> None:
    """Tokens are counted, or estimated and flagged."""
    with scripted([text("Hello there.")]) as model:
        _, answer = await ask(model, request())
    assert answer.usage.input_tokens > 0
    assert answer.usage.output_tokens > 0


async def pictures_and_files_are_accepted(scripted: Scripted) -> None:
    """Bytes and URLs in a question, and images in a tool's result, are accepted."""
    contents = (
        Text("Look: "),
        Image(data=PNG, media_type="image/png"),
        Image(url="https://example.com/cat.png"),
        File(data=b"%PDF-1.4 nothing", media_type="application/pdf", name="a.pdf"),
    )
    with scripted([call("add", a=1, b=2), text("A cat.")]) as model:
        first = user(*contents)
        message = identified((await ask(model, request(first)))[1].message)
        results_message = results(message, Text("one pixel"), Image(data=PNG, media_type="image/png"))
        _, answer = await ask(model, request(first, message, results_message))
    assert answer.message.text == "A cat."


async def strange_text_does_not_break_it(scripted: Scripted) -> None:
    """A lone surrogate or NUL in a question is sent in some form and never crashes."""
    with scripted([text("Fine.")]) as model:
        _, answer = await ask(model, request(user("a\ud800b \x00 \ufeff 🎉", "")))
    assert answer.message.text == "Fine."


async def a_failure_is_told_by_its_kind(scripted: Scripted) -> None:
    """Each HTTP failure has its kind, its status, and the wait that the provider requests."""
    kinds: dict[int, ModelErrorKind] = {
        400: "invalid_request",
        401: "authentication",
        403: "permission",
        404: "not_found",
        413: "too_large",
        500: "server",
        529: "overloaded",
    }
    for status, kind in kinds.items():
        error = await _failing(scripted, fail(status, message="The provider's own words."))
        assert (error.kind, error.status, error.retry_after) == (kind, status, None)
        assert "The provider's own words." in str(error)
    error = await _failing(scripted, fail(429, retry_after=7))
    assert (error.kind, error.status, error.retry_after) == ("rate_limit", 429, 7)


_HALF: Final = "Half of the text that the"


async def a_stream_that_breaks_off_is_no_answer(scripted: Scripted) -> None:
    """Text without an end of the stream is an error of kind connection."""
    error = await _failing(scripted, fail(kind="connection", after=_HALF))
    assert error.kind == "connection"


async def a_stream_without_its_terminal_event_is_no_answer(scripted: Scripted) -> None:
    """Text followed by a regular end of the body, or by the provider's error event, is an error."""
    error = await _failing(scripted, BrokenStream(message="", kind="connection", after=_HALF, cut="eof"))
    assert error.kind == "connection", f"a stream that ends too early became {error.kind}"
    error = await _failing(scripted, BrokenStream(message="", kind="server", after=_HALF, cut="error"))
    assert error.kind in ("server", "overloaded"), f"an error event in a stream became {error.kind}"


async def an_ending_has_its_name(scripted: Scripted) -> None:
    """A filtered, truncated or refused answer has that `finish`, and is not complete."""
    for finish in ("length", "content_filter"):
        with scripted([turn("Half of", finish=finish)]) as model:
            _, answer = await ask(model, request())
        endings = ("content_filter", "refusal") if finish == "content_filter" else (finish,)
        assert answer.finish in endings, f"a finish of {finish} became {answer.finish}"


async def it_makes_one_attempt(scripted: Scripted) -> None:
    """A failure is raised without a retry in the model; the next attempt gets the next item of the script."""
    with scripted([fail(500), fail(503), text("At last.")]) as model:
        failures = [await _error(model, request(attempt=attempt)) for attempt in (1, 2)]
        _, answer = await ask(model, request(attempt=3))
    assert [error.status for error in failures] == [500, 503]
    assert answer.message.text == "At last."


async def cancelling_ends_it_at_once(scripted: Scripted) -> None:
    """A cancellation before the first byte takes effect promptly."""
    await _cancel(scripted, text("late", delay=30), started=False)


async def cancelling_between_pieces_ends_it_at_once(scripted: Scripted) -> None:
    """A cancellation between two deltas takes effect promptly."""
    await _cancel(scripted, text("word " * 200, chunk=5, pause=0.1), started=True)


async def _cancel(scripted: Scripted, script: Turn, *, started: bool) -> None:
    with scripted([script]) as model:
        first_delta = asyncio.Event()
        task = asyncio.create_task(_listen(model, first_delta, started))
        await asyncio.wait_for(first_delta.wait(), 10)
        await asyncio.sleep(0.1)
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=PROMPT_SECONDS)
        assert done, "a cancelled model went on"
        assert task.cancelled(), "a cancel was swallowed"


async def leaving_early_ends_it_at_once(scripted: Scripted) -> None:
    """A stream that is closed after a delta promptly closes the connection, and the model stays usable."""
    with scripted([text("word " * 200, chunk=5, pause=0.1)]) as model:
        stream = cast("AsyncGenerator[ModelDelta | ModelAnswer]", model.stream(request()))
        await anext(stream)
        await asyncio.wait_for(stream.aclose(), PROMPT_SECONDS)


async def requests_at_once_do_not_mix(scripted: Scripted) -> None:
    """Several conversations at the same time over one model object stay separate."""
    with scripted([call("add", a=1, b=2), text("Three, as I said.", chunk=3)]) as model:
        first = identified((await ask(model, request()))[1].message)
        later = request(user("What is 1 + 2?"), first, results(first, Text("3")))
        answers = await asyncio.gather(*(ask(model, question) for question in (request(), later) * 4))
    assert [answer.finish for _, answer in answers] == ["tool_calls", "stop"] * 4
    for deltas, answer in answers[1::2]:
        streamed = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
        assert streamed == answer.message.text == "Three, as I said."


PIECEWISE = frozenset(
    (
        a_stream_without_its_terminal_event_is_no_answer,
        words_come_in_pieces,
        cancelling_between_pieces_ends_it_at_once,
        leaving_early_ends_it_at_once,
    )
)
"""The checks for models that stream their answers."""
AS_TEXT = frozenset((unparsable_arguments_are_marked,))
"""The checks for models that receive the arguments of calls as text."""
CHECKS: tuple[Check, ...] = (
    deltas_join_to_the_answer,
    words_come_in_pieces,
    parallel_calls_come_in_order,
    a_truncated_call_never_looks_whole,
    what_is_no_object_never_runs,
    unparsable_arguments_are_marked,
    a_history_with_results_is_accepted,
    reasoning_comes_back,
    usage_is_there,
    pictures_and_files_are_accepted,
    strange_text_does_not_break_it,
    a_failure_is_told_by_its_kind,
    a_stream_that_breaks_off_is_no_answer,
    a_stream_without_its_terminal_event_is_no_answer,
    an_ending_has_its_name,
    it_makes_one_attempt,
    cancelling_ends_it_at_once,
    cancelling_between_pieces_ends_it_at_once,
    leaving_early_ends_it_at_once,
    requests_at_once_do_not_mix,
)


# ------------------------------------------------------------------------------------ the requests


async def the_request_holds_all_that_was_asked(recorded: Recorded) -> None:
    """Instructions, tools with their schemas, the output schema, results, errors and images reach the provider."""
    schema = {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}
    with recorded([call("add", a=1, b=2), text('{"total": 3}')]) as (model, bodies):
        first = user(Text("Add up."), Image(data=PNG, media_type="image/png"))
        message = identified((await ask(model, request(first)))[1].message)
        failed = ToolResult(message.tool_calls[0].id, "add", (Text("the adder is broken"),), is_error=True)
        question = request(first, message, Message("tool", (failed,)))
        await ask(model, replace(question, output_schema=schema))
        body = bodies()[-1]
    body = body.replace("-", "+").replace("_", "/")  # base64 for URLs also counts
    picture = b64encode(PNG).decode()
    parts = ("Be precise.", "Add up.", picture, "Add two numbers.", '"b"', "the adder is broken", "total")
    missing = [part for part in parts if part not in body]
    assert missing == [], f"the request lacks {missing}: {body[:2_000]}"


async def reasoning_that_was_not_shown_is_not_sent(recorded: Recorded) -> None:
    """Reasoning marked as unseen is not sent. Reasoning from a turn's text with calls is sent back as text."""
    with recorded([call("add", a=1, b=2), text("Three.")]) as (model, bodies):
        message = identified((await ask(model, request(user("Add."))))[1].message)
        reasoning = (Reasoning("hidden plan", meta=UNSEEN), Reasoning("open plan", meta=IN_WORDS))
        message = replace(message, parts=(*reasoning, *message.parts))
        await ask(model, request(user("Add."), message, results(message, Text("3"))))
        body = bodies()[-1]
    assert "hidden plan" not in body
    assert "open plan" in body


async def a_key_that_comes_back_is_hidden(recorded: Recorded) -> None:
    """The key of the request, `SECRET`, becomes `[secret]` in a text or an error that repeats it."""
    script = [text(f"Your key is {SECRET}, is it not?", chunk=4), fail(400, message=f"No: {SECRET}")]
    with recorded(script) as (model, _):
        deltas, answer = await ask(model, request())
        error = await _error(model, request(user("What?"), answer.message, user("And now?")))
    delta_text = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    for place, content in (("deltas", delta_text), ("answer", answer.message.text), ("error", str(error))):
        assert SECRET not in content, f"the key is in the {place}: {content}"
        assert "[secret]" in content, f"the {place} lack the mark of a hidden key: {content}"


SECRET: Final = "a-very-secret-key-0123456789"  # noqa: S105  not a real key
"""The key of a model under `WIRE_CHECKS`."""
WIRE_CHECKS: tuple[WireCheck, ...] = (
    the_request_holds_all_that_was_asked,
    reasoning_that_was_not_shown_is_not_sent,
    a_key_that_comes_back_is_hidden,
)
"""The checks for models that talk to a server: the content of requests, and the masking of keys."""


async def _failing(scripted: Scripted, failure: Fail) -> ModelError:
    with scripted([failure, text("unreached")]) as model:
        return await _error(model, request())


async def _error(model: Model, question: ModelRequest) -> ModelError:
    try:
        _, answer = await ask(model, question)
    except ModelError as error:
        return error
    raise AssertionError(f"the provider failed, and the model answered {answer}")


async def _listen(model: Model, first_delta: asyncio.Event, started: bool) -> None:
    if not started:
        first_delta.set()
    async for _ in model.stream(request()):
        first_delta.set()


# ------------------------------------------------------------------------------------ over the provider


def provider_script(script: Sequence[Turn | Fail]) -> list[ProviderItem]:
    """Return a script of this suite as one for `ProviderServer`."""
    return [_provider_fail(item) if isinstance(item, Fail) else _provider_turn(item) for item in script]


def _provider_turn(item: Turn) -> ProviderItem:
    from treadle.testing import provider

    parts: list[ProviderPart] = []
    for part in item.parts:
        if isinstance(part, Text):
            parts.append(provider.text(part.text))
        elif isinstance(part, Reasoning):
            parts.append(provider.reasoning(part.text))
        elif isinstance(part, ToolCall):
            raw = part.raw if part.raw is not None else json.dumps(part.arguments)
            parts.append(provider.raw_call(part.name, raw))
    return provider.turn(
        *parts,
        usage=item.usage,
        finish=item.finish,
        delay=item.delay,
        chunk_delay=item.pause,
        chunk_size=item.chunk,
    )


def _provider_fail(item: Fail) -> ProviderItem:
    from treadle.testing import provider

    if item.after:
        cut = item.cut if isinstance(item, BrokenStream) else "reset"
        return provider.turn(item.after, cut=cut, delay=item.delay)
    if item.status is None:
        return provider.hang_up(delay=item.delay)
    return provider.fail(item.status, item.message, retry_after=item.retry_after, delay=item.delay)
