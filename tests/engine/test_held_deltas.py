"""What watchers are shown of answers that guardrails check: nothing that has not passed, in pieces or whole."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runner.acts import until
from treadle import (
    Agent,
    AskPerson,
    Deny,
    Guardrail,
    GuardrailRequest,
    Message,
    ModelAnswer,
    ModelRequest,
    Rewrite,
    Runner,
    ScriptedModel,
    Text,
    TextDelta,
)
from treadle.events import Delta, ModelRestarted
from treadle.llm.scripted import call, text, turn
from treadle.testing import clock

pytestmark = pytest.mark.anyio


def shown_text(events: list[Any]) -> str:
    """Return the text that a watcher was left with: a restart voids what came before."""
    shown = ""
    for event in events:
        if isinstance(event, ModelRestarted):
            shown = ""
        elif isinstance(event, Delta) and event.is_text:
            shown += event.text
    return shown


async def watched(agent: Agent[Any]) -> tuple[Any, list[Any]]:
    async with Runner("memory:") as runner:
        async with runner.run_stream(agent, "Go.") as stream:
            events = [event async for event in stream]
        return stream.result, events


class Dictated:
    """A model that writes the next part of its answer when the part before has been shown."""

    name = "test:dictated"

    def __init__(self, *parts: str) -> None:
        self.parts = parts
        self.shown = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        for number, part in enumerate(self.parts):
            if number:
                await asyncio.wait_for(self.shown.wait(), 20)
                self.shown.clear()
            yield TextDelta(part)
        yield ModelAnswer(Message("assistant", (Text("".join(self.parts)),)))


async def dictated(*parts: str, by: Guardrail) -> tuple[Any, list[Any]]:
    """Return the result and the events of a task whose answer comes part by part."""
    model = Dictated(*parts)
    events: list[Any] = []
    async with Runner("memory:") as runner:
        async with runner.run_stream(Agent(model, name="desk", guardrails=[by]), "Go.") as stream:
            async for event in stream:
                events.append(event)
                if isinstance(event, Delta):
                    model.shown.set()
        return stream.result, events


def agent_of(*script: Any, **more: Any) -> Agent[Any]:
    return Agent(ScriptedModel(list(script)), name="desk", **more)


def clean(request: GuardrailRequest) -> None:
    return None


async def test_without_pieces_nothing_is_shown_before_the_whole_answer_has_passed() -> None:
    told: list[bool] = []

    def note(request: GuardrailRequest) -> None:
        told.append(request.whole)

    result, events = await watched(
        agent_of(text("one two three", chunk=3), guardrails=[Guardrail(note, on="output")])
    )
    assert (told, [e.text for e in events if isinstance(e, Delta)]) == ([True], ["one two three"])
    assert result.final_text == "one two three"


async def test_in_pieces_text_is_shown_as_it_passes() -> None:
    seen: list[tuple[str, bool]] = []

    async def note(request: GuardrailRequest) -> None:
        seen.append((request.text, request.whole))

    _, events = await dictated("one two", " three", " four", by=Guardrail(note, on="output", piece=6))
    assert seen[0] == ("one two", False)
    assert seen[-1] == ("one two three four", True)
    deltas = [e.text for e in events if isinstance(e, Delta)]
    assert (deltas[0], len(deltas) > 2, "".join(deltas)) == ("one two", True, "one two three four")


async def test_a_refused_piece_ends_the_request() -> None:
    def no_threes(request: GuardrailRequest) -> Deny | None:
        return Deny(reason="no threes") if "three" in request.text else None

    words = "one two three " + "more " * 20_000
    agent = agent_of(
        text(words, chunk=4, pause=0.005), guardrails=[Guardrail(no_threes, on="output", piece=4)]
    )
    result, events = await watched(agent)
    assert (result.state, result.error.message) == (
        "failed",
        "the guardrail no_threes refused the answer: no threes",
    )
    assert "one two three".startswith(shown_text(events).rstrip())
    assert result.usage.output_tokens < 20_000


async def test_a_rewrite_of_what_was_shown_voids_it() -> None:
    async def hide(request: GuardrailRequest) -> Rewrite | None:
        return Rewrite(request.text.replace("41 11", "[card]")) if "41 11" in request.text else None

    result, events = await dictated("It is 41", " 11.", by=Guardrail(hide, on="output", piece=8))
    assert result.final_text == "It is [card]."
    assert [e.attempt for e in events if isinstance(e, ModelRestarted)] == [1]
    assert shown_text(events) == "It is [card]."


async def test_reasoning_and_arguments_of_calls_wait_for_the_whole_answer() -> None:
    agent = agent_of(
        turn("I look.", calls=[call("look", name="x")], reasoning="Hm."),
        "Done.",
        guardrails=[Guardrail(clean, on="output", piece=1)],
    )
    _, events = await watched(agent)
    held = next(i for i, e in enumerate(events) if e.kind == "answer_held")
    others = [i for i, e in enumerate(events) if isinstance(e, Delta) and not e.is_text]
    assert others
    assert min(others) > held


async def test_answers_to_input_that_has_not_passed_are_not_shown() -> None:
    passed: list[int] = []

    async def late(request: GuardrailRequest) -> None:
        await asyncio.sleep(0.1)
        passed.append(1)

    agent = agent_of(text("one two", chunk=1), guardrails=[Guardrail(late, on="input")])
    async with Runner("memory:") as runner, runner.run_stream(agent, "Go.") as stream:
        shown = [len(passed) async for event in stream if isinstance(event, Delta)]
    assert (set(shown), stream.result.final_text) == ({1}, "one two")


async def test_a_watcher_that_joins_in_the_middle_of_a_checked_answer_gets_it_from_its_first_letter() -> None:
    """Nothing was judged before: no watcher was there."""
    agent = agent_of(
        text("one two three four five six", chunk=4, pause=0.01),
        guardrails=[Guardrail(clean, on="output", piece=4)],
    )
    async with Runner("memory:") as runner:
        handle = await runner.start(agent, "Go.")
        channel = runner._driver.owned.channels.of(handle.task_id)
        await until(lambda: bool(channel.answers))
        events = [event async for event in handle.events()]
        result = await handle.result()
    deltas = [event for event in events if isinstance(event, Delta)]
    places = [0]
    for delta in deltas:
        places.append(places[-1] + len(delta.text))
    assert [delta.at for delta in deltas] == places[:-1]
    assert shown_text(events) == result.final_text == "one two three four five six"


async def test_a_watcher_that_joins_while_the_input_is_checked_gets_the_answer_from_its_first_letter() -> (
    None
):
    passes, written = asyncio.Event(), asyncio.Event()

    async def late(request: GuardrailRequest) -> None:
        await passes.wait()

    class Dictated:
        name = "test:dictated"

        async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
            yield TextDelta("one ")
            written.set()
            await passes.wait()
            yield TextDelta("two")
            yield ModelAnswer(Message("assistant", (Text("one two"),)))

    agent = Agent(Dictated(), name="desk", guardrails=[Guardrail(late, on="input")])
    async with Runner("memory:") as runner:
        handle = await runner.start(agent, "Go.")
        await asyncio.wait_for(written.wait(), 20)
        watched = handle.events()
        passes.set()
        events = [event async for event in watched]
    assert shown_text(events) == "one two"


BAD = "!"


@settings(max_examples=40, deadline=None)
@given(
    words=st.text(alphabet="ab !", max_size=30).map(lambda words: f"a{words}"),
    chunk=st.integers(1, 7),
    piece=st.one_of(st.none(), st.integers(1, 12)),
    verdict=st.sampled_from(["deny", "rewrite", "ask", "raise", "late"]),
    delays=st.lists(st.sampled_from([0, 0, 0.001, 0.004]), min_size=1, max_size=6),
    late_input=st.sampled_from([None, 0, 0.004]),
    calls=st.booleans(),
)
def test_no_watcher_ever_sees_a_character_that_has_not_passed(
    words: str,
    chunk: int,
    piece: int | None,
    verdict: str,
    delays: list[float],
    late_input: float | None,
    calls: bool,
) -> None:
    """Whatever the pieces are, however late the checks: of a bad text nothing from its first bad sign on is shown."""
    answered: list[str] = []

    async def check(request: GuardrailRequest) -> Any:
        answered.append(request.text)
        await asyncio.sleep(delays[len(answered) % len(delays)])
        if BAD not in request.text:
            return None
        if verdict == "raise":
            raise ValueError("bad")
        if verdict == "late":
            await asyncio.sleep(1)
        return {
            "deny": Deny(reason="bad"),
            "ask": AskPerson(reason="bad"),
            "rewrite": Rewrite(request.text.replace(BAD, "?")),
        }.get(verdict)

    async def look(request: GuardrailRequest) -> None:
        await asyncio.sleep(late_input or 0)

    guardrails = [Guardrail(check, on="output", piece=piece, deadline=0.05)]
    if late_input is not None:
        guardrails.append(Guardrail(look, on="input"))
    said = (
        turn(words, calls=[call("put", n=1)], chunk=chunk)
        if calls
        else text(words, chunk=chunk, pause=0.0005)
    )
    result, events = clock.run(watched(agent_of(said, "ok", guardrails=guardrails)))
    assert BAD not in "".join(e.text for e in events if isinstance(e, Delta))
    assert BAD not in repr([e for e in events if e.kind != "approval_requested"]).replace("!r", "")
    if BAD not in words:
        assert (result.state, shown_text(events[:])) == ("completed", (words + "ok") if calls else words)
    elif verdict == "rewrite":
        assert result.state == "completed"
        assert BAD not in str(result.messages)
    else:
        assert result.state == ("waiting" if verdict == "ask" else "failed")
