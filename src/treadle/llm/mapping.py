"""Between our messages and those of pydantic-ai, whose model classes speak to the providers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_ai import messages as theirs
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.tools import ToolDefinition
from pydantic_core import PydanticSerializationError, to_jsonable_python

from treadle.core.messages import (
    IN_WORDS,
    UNSEEN,
    File,
    Image,
    Json,
    Message,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from treadle.core.model import (
    Finish,
    ModelAnswer,
    ModelDelta,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from treadle.core.tokens import estimated_usage
from treadle.core.tools import ToolSpec
from treadle.errors import ModelError, ModelErrorKind
from treadle.llm.arguments import parsed_call
from treadle.llm.settings import Family

_RESPONSE_PART: TypeAdapter[theirs.ModelResponsePart] = TypeAdapter(theirs.ModelResponsePart)
_PART_META = ("id", "signature", "provider_name", "provider_details")
_RESPONSE_META = ("provider_name", "canonical_system", "provider_details")
_FINISH: dict[str, Finish] = {
    "stop": "stop",
    "tool_call": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
    "error": "error",
}
_WIRE_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
_RAW_SHOWN = 2_000
"""Characters of unparsable arguments that a model is shown again."""

# --------------------------------------------------------------------------------------------- requests


def their_messages(request: ModelRequest) -> list[theirs.ModelMessage]:
    """Return a request's instructions and history as pydantic-ai wants them."""
    history: list[theirs.ModelMessage] = []
    asked: list[theirs.ModelRequestPart] = []
    ids = _WireIds()
    if request.instructions:
        asked.append(theirs.SystemPromptPart(clean(request.instructions)))
    for message in request.messages:
        if message.role != "assistant":
            asked.extend(_request_parts(message, ids))
            continue
        if asked:
            history.append(theirs.ModelRequest(asked))
            asked = []
        history.append(_response(message, ids))
    if asked:
        history.append(theirs.ModelRequest(asked))
    return history


def their_parameters(request: ModelRequest, *, native_output: bool) -> ModelRequestParameters:
    """Return a request's tools and output schema as pydantic-ai wants them."""
    tools = [_tool(spec) for spec in request.tools]
    if request.output_schema is None:
        return ModelRequestParameters(function_tools=tools)
    return ModelRequestParameters(
        function_tools=tools,
        output_mode="native" if native_output else "prompted",
        output_object=OutputObjectDefinition(json_schema=request.output_schema, name="answer"),
    )


def _tool(spec: ToolSpec) -> ToolDefinition:
    return ToolDefinition(
        name=spec.name,
        description=clean(spec.description) or None,
        parameters_json_schema=cast("dict[str, Any]", clean(spec.parameters)),
        strict=False,
    )


def _request_parts(message: Message, ids: _WireIds) -> Iterable[theirs.ModelRequestPart]:
    if message.role == "system":
        yield theirs.SystemPromptPart(clean(message.text))
        return
    said: list[theirs.UserContent] = []
    for part in message.parts:
        if isinstance(part, ToolResult):
            yield _result(part, ids)
        elif isinstance(part, (Text, Image, File)):
            said.append(_content(part))
    if said:
        only = said[0] if len(said) == 1 else None
        yield theirs.UserPromptPart(only if isinstance(only, str) else said)


def _result(result: ToolResult, ids: _WireIds) -> theirs.ToolReturnPart:
    seen = [_content(part) for part in result.parts]
    words: Any = "".join(cast("list[str]", seen)) if all(isinstance(part, str) for part in seen) else seen
    return theirs.ToolReturnPart(
        tool_name=result.name,
        content=words,
        tool_call_id=ids.of(result.call_id),
        outcome="failed" if result.is_error else "success",
    )


def _content(part: Text | Image | File) -> str | theirs.MultiModalContent:
    if isinstance(part, Text):
        return clean(part.text)
    if part.data is not None:
        fallback = "image/png" if isinstance(part, Image) else "application/octet-stream"
        return theirs.BinaryContent(part.data, media_type=part.media_type or fallback)
    if part.url is None:
        # A path inside a stored message is not followed: whoever wrote it could read any file with it.
        raise ModelError(f"the file {part.path!r} was not read before it was sent", kind="invalid_request")
    if isinstance(part, Image):
        return theirs.ImageUrl(part.url, media_type=part.media_type)
    family = (part.media_type or "").partition("/")[0]
    kinds = {"audio": theirs.AudioUrl, "video": theirs.VideoUrl, "image": theirs.ImageUrl}
    return kinds.get(family, theirs.DocumentUrl)(part.url, media_type=part.media_type)


def _response(message: Message, ids: _WireIds) -> theirs.ModelResponse:
    calls = any(isinstance(part, ToolCall) for part in message.parts)
    parts = [there for part in message.parts if (there := _response_part(part, ids, calls=calls)) is not None]
    return theirs.ModelResponse(parts, **_known(message.meta, _RESPONSE_META))


def _response_part(part: Part, ids: _WireIds, *, calls: bool) -> theirs.ModelResponsePart | None:
    meta: Json = getattr(part, "meta", None)
    if isinstance(part, Text):
        return theirs.TextPart(clean(part.text), **_known(meta, ("id", "provider_name", "provider_details")))
    if isinstance(part, Reasoning):
        if meta in (IN_WORDS, UNSEEN):
            # What a model wrote before it called a tool, it said: no provider knows that as thinking of its own.
            return theirs.TextPart(clean(part.text)) if calls and meta == IN_WORDS else None
        if kept := _known(meta, ("part",)):
            return _kept(kept["part"])
        return theirs.ThinkingPart(clean(part.text), **_known(meta, _PART_META))
    if isinstance(part, ToolCall):
        arguments: Any = clean(part.arguments)
        known = _known(meta, ("id", "provider_name", "provider_details"))
        if part.problem is not None:
            known.pop("provider_details", None)  # a signature is under what was written, not under this
            arguments = {"unparsable_arguments": clean((part.raw or "")[:_RAW_SHOWN])}
        return theirs.ToolCallPart(part.name, arguments, ids.begin(part), **known)
    if isinstance(part, Image | File) and part.data is not None:
        content = theirs.BinaryContent(part.data, media_type=part.media_type or "application/octet-stream")
        return theirs.FilePart(content, **_known(meta, ("id", "provider_name", "provider_details")))
    return None


class _WireIds:
    """Under which id each call of a conversation goes out: ours, as the journal has it.

    Where an answer was made of items with ids of their own, a call is one of them, and keeps the id it came with.
    """

    def __init__(self) -> None:
        self._kept: dict[str, str] = {}
        self._used: set[str] = set()

    def begin(self, call: ToolCall) -> str:
        """Return the id of a call."""
        given = _known(call.meta, ("call_id",)).get("call_id")
        if not isinstance(given, str) or not _WIRE_ID.fullmatch(given) or given in self._used:
            return wire_id(call.id)
        self._used.add(given)
        self._kept[call.id] = given
        return given

    def of(self, call_id: str) -> str:
        """Return the id of the call that our id stands for."""
        return self._kept.get(call_id) or wire_id(call_id)


def wire_id(call_id: str) -> str:
    """Return a call's id in what every provider takes: letters, digits, `_` and `-`, at most 40; else made so."""
    if _WIRE_ID.fullmatch(call_id):
        return call_id
    # A digest keeps two ids apart that differ only in what has to go.
    digest = blake2b(call_id.encode("utf-8", "replace"), digest_size=5).hexdigest()
    return f"{re.sub(r'[^A-Za-z0-9_-]', '-', call_id)[:29]}-{digest}"


def _kept(dumped: Json) -> theirs.ModelResponsePart | None:
    """Return a part of a kind we have no word for as it came, or nothing when this version does not know it."""
    try:
        return _RESPONSE_PART.validate_python(dumped)
    except ValidationError:
        return None


def _known(meta: Json, names: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(meta, dict):
        return {}
    there = cast("dict[str, Any]", meta)
    return {name: there[name] for name in names if there.get(name) is not None}


# ---------------------------------------------------------------------------------------------- answers


def our_answer(
    response: theirs.ModelResponse, request: ModelRequest, family: Family | None, *, streamed: bool = True
) -> ModelAnswer:
    """Return a whole response as our answer; raise `ModelError` when it only broke off.

    Args:
        response: the assembled response.
        request: what it answers.
        family: whose wire it came over, if that is known.
        streamed: whether it came in pieces, of which some may be missing.
    """
    finish = our_finish(response, must_say=family is not None, streamed=streamed)
    if finish == "error" and not any(isinstance(part, theirs.ToolCallPart) for part in response.parts):
        why = (response.provider_details or {}).get("finish_reason")
        raise ModelError(f"the provider says that the answer went wrong: {why}", kind=_went_wrong(why))
    truncated = finish not in ("stop", "tool_calls")
    bare = {spec.name for spec in request.tools if not spec.parameters.get("properties")}
    empty = () if family is None else family.no_arguments
    parts = tuple(_our_part(part, truncated, bare, empty) for part in response.parts)
    message = Message("assistant", parts, meta=_response_meta(response))
    return ModelAnswer(message, finish, our_usage(response) or estimated_usage(request, message))


def _went_wrong(why: object) -> ModelErrorKind:
    """Return whose fault it was: the service's, or the model's own, as Google tells."""
    return "server" if why in ("error", "failed", "cancelled") else "unparsable"


def _response_meta(response: theirs.ModelResponse) -> Json:
    meta: dict[str, Any] = _meta(response, _RESPONSE_META) or {}
    if meta.get("canonical_system") == meta.get("provider_name"):
        meta.pop("canonical_system", None)
    return meta if len(meta) > 1 else None  # each part says itself whose it is


def _our_part(
    part: theirs.ModelResponsePart, truncated: bool, bare: set[str], empty: tuple[str | None, ...] = ()
) -> Part:
    if isinstance(part, theirs.TextPart):
        return Text(clean(part.content), meta=_meta(part, ("id", "provider_name", "provider_details")))
    if isinstance(part, theirs.ThinkingPart):
        return Reasoning(clean(part.content), meta=_meta(part, _PART_META))
    if isinstance(part, theirs.ToolCallPart):
        raw = part.args if isinstance(part.args, str) else ""
        if part.args is not None and not isinstance(part.args, str):
            raw = json.dumps(part.args)
        if part.args in empty or (not raw.strip() and part.tool_name in bare):
            raw = "{}"
        meta = cast("dict[str, Any] | None", _meta(part, ("id", "provider_name", "provider_details")))
        if part.id is not None and meta is not None:
            meta["call_id"] = part.tool_call_id
        asked = parsed_call(part.tool_call_id, part.tool_name, raw, truncated=truncated, meta=meta)
        kept: ToolCall = clean(asked)
        if kept.arguments != asked.arguments and meta is not None:
            meta.pop("provider_details", None)  # a signature is under what was written, not under this
        return kept
    if isinstance(part, theirs.FilePart):
        kind = Image if part.content.is_image else File
        return kind(data=part.content.data, media_type=part.content.media_type, meta=_meta(part, _PART_META))
    # A part we have no word for (a provider's own tools and the like) is carried back to it unread.
    return Reasoning("", meta={"part": _RESPONSE_PART.dump_python(part, mode="json")})


def _meta(source: object, names: tuple[str, ...]) -> Json:
    """Return what a provider wants back, as plain JSON; None when there is nothing but where it came from."""
    found: dict[str, Any] = {}
    for name in names:
        value: Any = getattr(source, name, None)
        if isinstance(value, Mapping):
            details = cast("Mapping[str, Any]", value)
            value = {key: inner for key, inner in details.items() if key not in _UNWANTED}
        if value in (None, {}):
            continue
        try:
            found[name] = clean(to_jsonable_python(value))
        except PydanticSerializationError:
            continue  # not JSON, so no provider sent it
    return found or None


_UNWANTED = (
    "avg_logprobs",
    "finish_reason",
    "logprobs",
    "moderation",
    "prompt_cache_diagnostics",
    "safety_ratings",
    "service_tier",
    "store",
    "timestamp",
    "traffic_type",
)
"""Details of a response that only describe it; no provider wants them back."""


def whole_deltas(response: theirs.ModelResponse) -> Iterable[ModelDelta]:
    """Return what a response that came whole would have been in pieces, one for each part."""
    places: list[int] = []
    for index, part in enumerate(response.parts):
        if (delta := our_delta(theirs.PartStartEvent(index=index, part=part), places)) is not None:
            yield delta


def our_delta(event: object, places: list[int]) -> ModelDelta | None:
    """Return what a stream event adds, or nothing for events that add no words.

    Args:
        event: any event of a streamed response; kinds not known here add nothing.
        places: the indices of the tool calls seen so far; kept by the caller, one list for each stream.
    """
    if isinstance(event, theirs.PartStartEvent):
        part = event.part
        if isinstance(part, theirs.ToolCallPart):
            places.append(event.index)
            return ToolCallDelta(len(places) - 1, clean(part.tool_name), _written(part.args))
        if isinstance(part, theirs.TextPart) and part.content:
            return TextDelta(clean(part.content))
        if isinstance(part, theirs.ThinkingPart) and part.content:
            return ReasoningDelta(clean(part.content))
    elif isinstance(event, theirs.PartDeltaEvent):
        delta = event.delta
        if isinstance(delta, theirs.ToolCallPartDelta) and event.index in places:
            name, more = clean(delta.tool_name_delta or ""), _written(delta.args_delta)
            return ToolCallDelta(places.index(event.index), name, more) if name or more else None
        if isinstance(delta, theirs.TextPartDelta) and delta.content_delta:
            return TextDelta(clean(delta.content_delta))
        if isinstance(delta, theirs.ThinkingPartDelta) and delta.content_delta:
            return ReasoningDelta(clean(delta.content_delta))
    return None


def _written(arguments: Any) -> str:
    if arguments is None:
        return ""
    return clean(arguments if isinstance(arguments, str) else json.dumps(arguments))


def our_finish(response: theirs.ModelResponse, *, must_say: bool, streamed: bool = True) -> Finish:
    """Return why a response ended; raise `ModelError` when it only broke off.

    Args:
        response: the assembled response.
        must_say: this provider always says why; a stream without it was cut.
        streamed: whether it came in pieces; what came whole is not cut, but no answer.
    """
    details = response.provider_details or {}
    said = details.get("finish_reason")
    if "refusal" in details or said == "refusal":
        return "refusal"
    broken = response.state not in ("complete", "suspended")
    if broken or (must_say and said is None and response.finish_reason != "content_filter"):
        if not streamed:
            raise ModelError("what came is not an answer: it does not say why it ends", kind="unparsable")
        raise ModelError("the stream ended before the answer was complete", kind="connection")
    if said == "error":
        return "error"
    called = any(isinstance(part, theirs.ToolCallPart) for part in response.parts)
    if response.finish_reason == "tool_call" and not called:
        wrong = "the answer says it calls tools, and calls none"
        raise ModelError(wrong, kind="unparsable", usage=our_usage(response))
    if response.finish_reason in (None, "stop") and called and said is None:
        return "tool_calls"  # a model class that has no word for the end
    if response.finish_reason is None:
        return "unknown" if said is not None else "stop"
    return "tool_calls" if called and response.finish_reason == "stop" else _FINISH[response.finish_reason]


def our_usage(response: theirs.ModelResponse) -> Usage | None:
    """Return the tokens a response reports, or None when it reports none or nonsense."""
    there: Any = response.usage
    counts = (there.input_tokens, there.output_tokens, there.cache_read_tokens, there.cache_write_tokens)
    if there.output_tokens <= 0 or min(counts) < 0:
        return None
    details = there.details
    thought = getattr(there, "output_reasoning_tokens", 0) or max(details.get(name, 0) for name in _THINKING)
    return Usage(
        there.input_tokens,
        there.output_tokens,
        there.cache_read_tokens,
        max(thought, 0),
        cache_write_tokens=there.cache_write_tokens,
        cache_write_1h_tokens=max(getattr(there, "cache_write_1h_tokens", 0), 0),
        input_audio_tokens=max(there.input_audio_tokens, 0),
        output_audio_tokens=max(there.output_audio_tokens, 0),
        tier=_tier(response),
    )


def _tier(response: theirs.ModelResponse) -> str:
    """Return the tier of service that answered, if it was not the usual one."""
    tier = (response.provider_details or {}).get("service_tier")
    return tier if isinstance(tier, str) and tier not in _USUAL_TIERS else ""


_USUAL_TIERS = ("default", "standard", "on_demand", "auto")


_THINKING = ("reasoning_tokens", "thinking_tokens", "thoughts_tokens")


# ------------------------------------------------------------------------------------------- surrogates


def clean(value: Any) -> Any:
    """Return a value whose text can be encoded: a lone half of a surrogate pair becomes U+FFFD."""
    if isinstance(value, str):
        return (
            value if _encodes(value) else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        )
    if isinstance(value, dict):
        return {clean(key): clean(inner) for key, inner in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [clean(inner) for inner in cast("list[Any]", value)]
    if isinstance(value, ToolCall):
        return ToolCall(
            clean(value.id),
            clean(value.name),
            clean(value.arguments),
            raw=clean(value.raw),
            problem=value.problem,
            meta=value.meta,
        )
    return value


def _encodes(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
