"""Deltas as watchers see them: drafts, the final answer, void text, and raw chunks of the provider."""

import asyncio
import io
from typing import Any

import pytest
from rich.console import Console

from treadle import Agent, Limits, Runner, RunOptions, ScriptedModel, StepContext, StepResult, events, tool
from treadle.cli.screen import Screen
from treadle.cli.timeline import Timeline
from treadle.core.events import Delta, ModelRestarted, RawChunk
from treadle.core.model import ModelAnswer, ModelRequest, RawDelta, TextDelta
from treadle.llm.layers.fallback import Fallback
from treadle.llm.layers.retry import Retry
from treadle.llm.scripted import call, fail, text, turn
from treadle.models import OpenAIChat
from treadle.replay.recording import assert_same_journal, journal_of
from treadle.testing import provider

pytestmark = pytest.mark.anyio


@tool(read_only=True)
async def look(n: int) -> str:
    """Look."""
    return f"found {n}"


async def streamed(agent, **how):
    async with Runner("memory:") as runner, runner.run_stream(agent, "Go.", **how) as stream:
        seen = [event async for event in stream]
    return seen, stream.result


def text_of(seen, channel):
    return "".join(e.text for e in seen if isinstance(e, Delta) and e.channel == channel)


SCRIPT = [turn("I look first.", call("look", n=1)), text("It is here.")]


REACT = [
    text('Thought: I look.\nAction: look\nAction Input: {"n": 1}', chunk=5),
    text("Thought: I know.\nAnswer: It is here.", chunk=5),
]


LOOKS = {"arguments": '{"n": 1}'}


@pytest.mark.parametrize(
    ("script", "how", "steps", "channels"),
    [
        (SCRIPT, {"tools": [look]}, None, {"draft": "I look first.It is here.", **LOOKS}),
        (
            [turn("It is here.", reasoning="Hm.", chunk=3)],
            {},
            None,
            {"final": "It is here.", "reasoning": "Hm."},
        ),
        (SCRIPT, {"tools": [look]}, 1, {"draft": "I look first.", "final": "It is here.", **LOOKS}),
        (
            REACT,
            {"tools": [look], "worker": "react"},
            None,
            {"final": "It is here.", "reasoning": "I look.I know.", **LOOKS},
        ),
    ],
    ids=["while the model may call tools", "without tools", "the last answer at a limit", "a dialect"],
)
async def test_the_channel_of_text_says_whether_it_is_final(script, how, steps, channels):
    agent = Agent(ScriptedModel(script), **how)
    seen, _ = await streamed(agent, options=RunOptions(limits=Limits(steps=steps)))
    named = ("draft", "final", "reasoning", "arguments")
    assert {name: told for name in named if (told := text_of(seen, name))} == channels


async def test_deltas_of_a_request_of_a_step_function_are_drafts_that_name_the_request():
    async def twice(ctx: StepContext) -> StepResult:
        first = await ctx.call_model("One?", key="one")
        other = await ctx.call_model("Two?", key="two")
        return StepResult(first.message.text + other.message.text, is_last=True)

    seen, result = await streamed(Agent(ScriptedModel(lambda request: "Yes."), worker=twice))
    assert result.final_text == "Yes.Yes."
    deltas = [e for e in seen if isinstance(e, Delta)]
    assert {e.channel for e in deltas} == {"draft"}
    assert [e.call for e in deltas] == [e.call for e in seen if isinstance(e, events.ModelStarted)]
    assert len({e.call for e in deltas}) == 2


async def test_a_custom_model_may_mark_deltas_as_final():
    class Sure:
        name = "sure"

        async def stream(self, request: ModelRequest):
            yield TextDelta("Perhaps. ")
            yield TextDelta("Yes.", final=True)
            yield ModelAnswer(_message("Perhaps. Yes."))

    seen, _ = await streamed(Agent(Sure(), tools=[look]))
    assert (text_of(seen, "draft"), text_of(seen, "final")) == ("Perhaps. ", "Yes.")


def _message(answer: str) -> Any:
    from treadle.core.messages import Message, Text

    return Message("assistant", (Text(answer),))


# ---------------------------------------------------------------------------------------- void text


def hasty(model):
    """A model with a layer around it that asks again at once."""
    return Retry(model, base=0)


def falling_back(model):
    """A model with another one to fall back on."""
    return Fallback([model, ScriptedModel([text("It is here.")], name="other")], on=["overloaded"])


@pytest.mark.parametrize("around", [hasty, falling_back])
async def test_the_text_of_a_failed_attempt_is_reported_void_before_the_next_attempt(around):
    model = ScriptedModel([fail(503, after="It is th"), turn("It is here.", chunk=3)])
    seen, result = await streamed(Agent(around(model)))
    assert result.final_text == "It is here."
    (at,) = [n for n, e in enumerate(seen) if isinstance(e, ModelRestarted)]
    assert (seen[at].attempt, seen[at].step) == (2, "s1")
    assert (text_of(seen[:at], "final"), text_of(seen[at:], "final")) == ("It is th", "It is here.")
    before = [e.kind for e in seen[:at] if not isinstance(e, Delta)]
    assert "model_failed" in before
    assert before[-1] == "model_started"


async def test_no_text_is_void_before_any_text():
    seen, _ = await streamed(Agent(hasty(ScriptedModel([fail(503), text("It is here.")]))))
    assert [e.attempt for e in seen if isinstance(e, events.ModelStarted)] == [1, 2]
    assert not any(isinstance(e, ModelRestarted) for e in seen)


def test_a_terminal_marks_the_text_of_a_failed_attempt_and_shows_the_answer_once():
    model = ScriptedModel([fail(503, after="It is th"), turn("It is here.", chunk=3)])
    out = io.StringIO()
    screen = Screen(json=False)
    screen.out = Console(file=out, force_terminal=True, color_system=None, soft_wrap=True)
    timeline = Timeline(screen, live=True)
    with Runner("memory:").sync as runner, runner.run_stream(Agent(hasty(model)), "Go.") as stream:
        for event in stream:
            timeline.show(event)
    void, _, shown = out.getvalue().partition("from its beginning")
    assert void.count("It is th") == 1
    assert shown.count("It is here.") == 1


async def test_a_task_streamed_is_the_task_not_streamed():
    agent = Agent(ScriptedModel(SCRIPT), tools=[look])
    async with Runner("memory:") as runner:
        plain = await runner.run(agent, "Go.")
        async with runner.run_stream(agent, "Go.", raw=True) as stream:
            async for _ in stream:
                pass
        journals = [await journal_of(runner.store, r.task_id) for r in (plain, stream.result)]
    assert_same_journal(*journals)


# --------------------------------------------------------------------------------------------- chunks


class Chatty:
    """A model that yields the raw chunks of its provider, if requested."""

    name = "chatty"

    def __init__(self) -> None:
        self.asked: list[bool] = []

    async def stream(self, request: ModelRequest):
        self.asked.append(request.raw)
        await asyncio.sleep(0.02)
        if request.raw:
            yield RawDelta({"chunk": 1})
        yield TextDelta("Hi.")
        yield ModelAnswer(_message("Hi."))


async def _all_of(events):
    return [event async for event in events]


async def test_only_watchers_that_ask_for_raw_chunks_get_them():
    model = Chatty()
    async with Runner("memory:") as runner:
        async with runner.run_stream(Agent(model), "Go.", raw=True, task_id="t") as stream:
            seen = [await anext(aiter(stream))]
            plain = asyncio.ensure_future(_all_of(runner.handle("t").events()))
            seen += [event async for event in stream]
            others = await plain
        assert [e.data for e in seen if isinstance(e, RawChunk)] == [{"chunk": 1}]
        assert not any(isinstance(e, RawChunk) for e in others)
        async with runner.run_stream(Agent(model), "Go.") as stream:
            assert not any([isinstance(e, RawChunk) async for e in stream])
        with runner.sync.run_stream(Agent(model), "Go.", raw=True) as plain_stream:
            assert any(isinstance(e, RawChunk) for e in plain_stream)
    assert model.asked == [True, False, True]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("wire", ["openai", "anthropic"])
async def test_raw_chunks_are_what_the_provider_sent_over_http(wire, monkeypatch):
    from treadle.models import Anthropic

    with provider.ProviderServer([provider.text("Hello there.")]) as server:
        model = (
            OpenAIChat("any", base_url=server.openai_base_url, api_key="any-key")
            if wire == "openai"
            else Anthropic("any", base_url=server.anthropic_base_url, api_key="any-key")
        )
        seen, result = await streamed(Agent(model), raw=True)
    assert result.final_text == "Hello there."
    chunks = [e.data for e in seen if isinstance(e, RawChunk)]
    if wire == "openai":
        assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
        texts = [chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"]]
    else:
        assert {"message_start", "message_stop"} <= {chunk["type"] for chunk in chunks}
        texts = [chunk["delta"].get("text", "") for chunk in chunks if chunk["type"] == "content_block_delta"]
    assert "".join(texts) == "Hello there."
    first = next(n for n, e in enumerate(seen) if isinstance(e, RawChunk))
    assert first < next(n for n, e in enumerate(seen) if isinstance(e, Delta))


async def test_a_watcher_sees_when_text_of_a_subagent_is_void():
    child = Agent(hasty(ScriptedModel([fail(503, after="It is th"), text("It is here.")])), name="finder")
    boss = Agent(ScriptedModel([call("finder", input="it"), text("Done.")]), subagents=[child])
    seen, _ = await streamed(boss)
    below = [e.event for e in seen if isinstance(e, events.ChildEvent)]
    (at,) = [n for n, e in enumerate(below) if isinstance(e, ModelRestarted)]
    assert (text_of(below[:at], "final"), text_of(below[at:], "final")) == ("It is th", "It is here.")
