"""The finish reasons of servers, and their meanings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast, get_args

from treadle.core.model import WHOLE, Finish
from treadle.errors import ConfigurationError

NO_WORD: Final = ""
"""The finish reason of a complete answer from a server that sends none: empty, null, or missing before `[DONE]`."""

MEANINGS: Final[Mapping[str, Finish]] = {
    # whole: OpenAI and most servers; TGI, Together and llama.cpp; Anthropic, sglang; Cohere; Responses; `NO_WORD`
    "stop": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "word": "stop",
    "stop_token": "stop",
    "stop_sequence": "stop",
    "end_turn": "stop",
    "end_of_turn": "stop",
    "complete": "stop",
    "completed": "stop",
    NO_WORD: "stop",
    # whole, with calls: OpenAI; its first form; mlx-lm and Cohere; Anthropic; the same through gateways
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "function_calls": "tool_calls",
    "tool_call": "tool_calls",
    "tool_use": "tool_calls",
    # cut off: OpenAI; Mistral; Anthropic and Google; Responses; llama.cpp; Bedrock
    "length": "length",
    "model_length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "max_length": "length",
    "limit": "length",
    "model_context_window_exceeded": "length",
    # filtered or refused: OpenAI; Bedrock; Google; Zhipu; Anthropic
    "content_filter": "content_filter",
    "content_filtered": "content_filter",
    "guardrail_intervened": "content_filter",
    "safety": "content_filter",
    "recitation": "content_filter",
    "blocklist": "content_filter",
    "prohibited_content": "content_filter",
    "spii": "content_filter",
    "sensitive": "content_filter",
    "refusal": "refusal",
    # went wrong: the service, in vLLM, sglang, Responses, Zhipu and DeepSeek; the model, in Google and Bedrock
    "error": "error",
    "abort": "error",
    "failed": "error",
    "cancelled": "error",
    "network_error": "error",
    "insufficient_system_resource": "error",
    "malformed_function_call": "error",
    "malformed_tool_use": "error",
    "malformed_model_output": "error",
}
"""The meanings of finish reasons in lower case. Any other word means `unknown`: no action follows from it."""

OF_SERVICE: Final = frozenset(
    ("error", "abort", "failed", "cancelled", "network_error", "insufficient_system_resource")
)
"""The words for a failure of the service, which may pass. Other errors are those of the model."""


def meaning(word: str, own: Mapping[str, Finish]) -> Finish | None:
    """Return the meaning of a server's finish reason, or None if it is unknown.

    Args:
        word: as the server sent it.
        own: the meanings that the user of the model configured.
    """
    return own.get(word) or MEANINGS.get(word.lower())


def checked_words(where: str, words: Any) -> Mapping[str, Finish]:
    """Return the words of `finish_reasons=`.

    Raises:
        ConfigurationError: a word or its meaning is invalid, or marks incomplete answers as complete.
    """
    if words is None:
        return {}
    if not isinstance(words, Mapping):
        raise ConfigurationError(
            f"{where}: finish_reasons must map a server's words to meanings, such as {{'eot': 'stop'}}, got {words!r}"
        )
    for word, finish in cast("Mapping[Any, Any]", words).items():
        if not isinstance(word, str) or finish not in get_args(Finish):
            raise ConfigurationError(
                f"{where}: finish_reasons[{word!r}] must be one of {', '.join(get_args(Finish))}, got {finish!r}"
            )
        known_finish = MEANINGS.get(word.lower(), "stop")
        if finish in WHOLE and known_finish not in WHOLE:
            raise ConfigurationError(
                f"{where}: finish_reasons[{word!r}] cannot be {finish!r}: the word means {known_finish!r}, "
                "and such an answer is not whole"
            )
    return dict(cast("Mapping[str, Finish]", words))
