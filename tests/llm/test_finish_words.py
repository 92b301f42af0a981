"""What servers say when an answer ends: whole in all their words, and never whole when it is not."""

import importlib
import sys
from typing import get_args

import pytest

from tests.llm.wires import anthropic, chat, google
from treadle import Agent, Runner, tool
from treadle.core.model import WHOLE, Finish
from treadle.errors import ConfigurationError
from treadle.llm.finish_words import MEANINGS, OF_SERVICE, checked_words, meaning
from treadle.models import Anthropic, Google, Ollama, OpenAI, OpenAIChat, ProviderModel, PydanticAIModel
from treadle.testing.provider import ProviderServer, call, raw_call, turn

STREAMED = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])

DIALECTS = {
    "TGI": ("eos_token", "eos_token"),
    "TGI, stopped by a sequence": ("stop_sequence", "tool_calls"),
    "Together": ("eos", "tool_calls"),
    "sglang, an empty word": ("", ""),
    "sglang, null": ("null", "null"),
    "mlx-lm": ("stop", "tool_call"),
    "mlx-lm, no word": ("absent", "absent"),
    "vLLM": ("stop", "stop"),
    "vLLM, a named tool": ("tool_calls", "stop"),
    "llama.cpp": ("word", "tool_calls"),
    "a gateway to Anthropic": ("end_turn", "tool_use"),
    "a gateway to Google": ("STOP", "FUNCTION_CALL"),
    "the first function calls": ("function_call", "function_call"),
}
"""By server: the word after a text, and the word after a call."""


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def run(model, **options):
    with Runner("memory:").sync as runner:
        return runner.run(Agent(model, tools=[add]), "How much is 1 and 2?", **options)


@pytest.mark.sampled(6)
@STREAMED
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_task_runs_whatever_word_the_server_ends_its_answers_with(dialect, stream):
    after_text, after_call = DIALECTS[dialect]
    script = [turn(call("add", a=1, b=2), finish=after_call), turn("It is 3.", finish=after_text)]
    with ProviderServer(script) as server:
        result = run(chat(server, stream=stream))
    assert (result.state, result.final_text, result.degraded_reasons) == ("completed", "It is 3.", ())
    [execution] = result.tool_executions
    assert (execution.name, execution.output) == ("add", 3)


@STREAMED
def test_a_call_of_google_may_end_with_its_own_word(stream):
    script = [turn(call("add", a=1, b=2), finish="FUNCTION_CALL"), "It is 3."]
    with ProviderServer(script) as server, pytest.warns(UserWarning, match="FUNCTION_CALL is not a valid"):
        assert run(google(server, stream=stream)).final_text == "It is 3."


@STREAMED
@pytest.mark.parametrize("word", ["model_length", "max_tokens", "limit", "LENGTH"])
def test_a_cut_answer_is_cut_in_every_dialect(word, stream):
    script = [turn(call("add", a=1, b=2), finish=word), turn("Half of wh", finish=word)]
    with ProviderServer(script) as server:
        result = run(chat(server, stream=stream))
    assert (result.state, result.degraded_reasons) == (
        "degraded",
        ("the answer was cut off at the longest length the model may write",),
    )
    assert [execution.outcome for execution in result.tool_executions] == ["invalid"]


@STREAMED
@pytest.mark.parametrize("word", ["guardrail_intervened", "sensitive", "SAFETY"])
def test_a_filtered_answer_is_filtered_in_every_dialect(word, stream):
    with ProviderServer([turn("Half of wh", finish=word)]) as server:
        result = run(chat(server, stream=stream))
    assert (result.state, result.degraded_reasons) == ("degraded", ("the provider filtered the answer",))


@STREAMED
@pytest.mark.parametrize("word", ["abort", "network_error", "insufficient_system_resource"])
def test_an_aborted_answer_is_a_failure_that_may_pass(word, stream):
    with ProviderServer([turn("Half of wh", finish=word)]) as server:
        result = run(chat(server, stream=stream))
    assert (result.state, result.error.kind) == ("failed", "server")


@pytest.mark.parametrize("finish", ["absent", "null", ""])
def test_a_stream_that_ends_without_a_word_and_without_done_was_cut(finish):
    script = [turn("Half of wh", finish=finish, cut="eof", cut_after=-1, answers=True)]
    with ProviderServer(script) as server:
        result = run(chat(server))
    assert (result.state, result.error.kind) == ("failed", "connection")
    assert "ended before the answer was complete" in result.error.message


@STREAMED
def test_a_call_whose_arguments_break_off_never_runs_though_no_word_says_so(stream):
    script = [turn(raw_call("add", '{"a": 1, "b'), finish="absent"), "Sorry."]
    with ProviderServer(script) as server:
        result = run(chat(server, stream=stream))
    assert [execution.outcome for execution in result.tool_executions] == ["invalid"]
    assert result.final_text == "Sorry."


@STREAMED
def test_a_tool_call_is_announced_and_neither_call_nor_text_comes(stream):
    with ProviderServer([turn(finish="tool_calls")]) as server:
        result = run(chat(server, stream=stream))
    assert (result.state, result.error.kind) == ("failed", "unparsable")
    assert "calls no tool" in result.error.message


@STREAMED
@pytest.mark.parametrize("made", [chat, anthropic])
def test_a_word_that_only_this_server_uses_is_explained_by_the_user(made, stream):
    script = [turn(call("add", a=1, b=2), finish="eot_id"), turn("It is 3.", finish="eot_id")]
    with ProviderServer(script) as server:
        told = run(made(server, stream=stream, finish_reasons={"eot_id": "stop"}))
        untold = run(made(server, stream=stream))
    assert (told.state, told.final_text) == ("completed", "It is 3.")
    assert untold.state == "degraded"
    assert [execution.outcome for execution in untold.tool_executions] == ["invalid"]


# ------------------------------------------------------------------------------------------ the table


@pytest.mark.full  # it imports the package of every provider
def test_the_table_agrees_with_what_pydantic_ai_knows():
    for module in ("anthropic", "bedrock", "cohere", "google", "groq", "huggingface", "mistral", "openai"):
        importlib.import_module(f"pydantic_ai.models.{module}")
    theirs = {"tool_call": "tool_calls"}
    maps = {
        id(value): value
        for name, module in list(sys.modules.items())
        if name.startswith("pydantic_ai.models")
        for attribute, value in vars(module).items()
        if attribute.endswith("FINISH_REASON_MAP")
    }
    assert len(maps) >= 8
    differing = {
        word: (known, MEANINGS[word.lower()])
        for table in maps.values()
        for word, known in ((getattr(key, "value", key), value) for key, value in table.items())
        if word.lower() in MEANINGS and theirs.get(known, known) != MEANINGS[word.lower()]
    }
    # Anthropic's refusal has a meaning of its own here.
    assert {word: pair for word, pair in differing.items() if pair != ("content_filter", "refusal")} == {}


def test_every_word_has_a_meaning_and_errors_of_services_are_errors():
    assert set(MEANINGS.values()) <= set(get_args(Finish))
    assert all(word == word.lower() for word in MEANINGS)
    assert {MEANINGS[word] for word in OF_SERVICE} == {"error"}


@pytest.mark.parametrize(
    ("word", "own", "means"),
    [
        ("stop", {}, "stop"),
        ("STOP", {}, "stop"),
        ("eot", {}, None),
        ("eot", {"eot": "stop"}, "stop"),
        ("EOT", {"eot": "stop"}, None),
        ("stop", {"stop": "length"}, "length"),
    ],
)
def test_the_user_explains_a_word_before_the_table_does(word, own, means):
    assert meaning(word, own) == means


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["eot"], "must map a server's words"),
        ({"eot": "done"}, "finish_reasons['eot'] must be one of stop, tool_calls"),
        ({3: "stop"}, "finish_reasons[3] must be one of"),
        ({"length": "stop"}, "the word means 'length', and such an answer is not whole"),
        ({"SAFETY": "stop"}, "the word means 'content_filter'"),
    ],
)
@pytest.mark.parametrize("make", [OpenAI, OpenAIChat, Ollama, Anthropic, Google])
def test_words_that_make_no_sense_are_refused_where_they_are_written(make, words, said):
    with pytest.raises(ConfigurationError, match=rf"^{make.__name__}: ") as caught:
        make("m", finish_reasons=words)
    assert said in str(caught.value)


def test_models_of_other_providers_take_words_too():
    from pydantic_ai.models.test import TestModel

    for make in (
        lambda words: ProviderModel("groq", "m", finish_reasons=words),
        lambda words: PydanticAIModel(TestModel(), finish_reasons=words),
    ):
        make({"eot": "stop"})
        with pytest.raises(ConfigurationError, match="such an answer is not whole"):
            make({"max_tokens": "stop"})
    assert checked_words("m", None) == {}
    assert {"stop", "tool_calls"} == set(WHOLE)
