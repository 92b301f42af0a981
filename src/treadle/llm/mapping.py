"""Map messages to those of pydantic-ai, whose model classes call the providers, and back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_ai import messages as theirs
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.tools import ToolDefinition
from pydantic_core import PydanticSerializationError, to_jsonable_python

from treadle.core.framing import files_apart, framed
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
    WHOLE,
    Finish,
    ModelAnswer,
    ModelDelta,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from treadle.core.model_answer import plain_usage
from treadle.core.tokens import estimated_usage
from treadle.core.tools import ToolSpec
from treadle.errors import ModelError, ModelErrorKind
from treadle.llm.arguments import parsed_call
from treadle.llm.finish_words import OF_SERVICE, meaning
from treadle.llm.framed_messages import FRAMED
from treadle.llm.settings import WireFormat

_RESPONSE_PART: TypeAdapter[theirs.ModelResponsePart] = TypeAdapter(theirs.ModelResponsePart)
_PART_META = ("id", "signature", "provider_name", "provider_details")
_RESPONSE_META = ("provider_name", "canonical_system", "provider_details")
_FINISHES: dict[str, Finish] = {
    "stop": "stop",
    "tool_call": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
    "error": "error",
}
_WIRE_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
_RAW_SHOWN = 2_000
"""Characters of unparsable arguments that are sent back to the model."""

# --------------------------------------------------------------------------------------------- requests


def their_messages(request: ModelRequest, *, files_in_results: bool = False) -> list[theirs.ModelMessage]:
    """Return a request's instructions and messages as pydantic-ai's messages, with untrusted content in frames.

    Args:
        request: the request.
        files_in_results: whether a result can hold untrusted images and files. Otherwise they follow the results.
    """
    if (messages := files_apart(request.messages, all_results=not files_in_results)) is not request.messages:
        request = replace(request, messages=messages)
    request = framed(request, frame=FRAMED.of)
    history: list[theirs.ModelMessage] = []
    parts: list[theirs.ModelRequestPart] = []
    ids = _WireIds()
    if request.instructions:
        parts.append(theirs.SystemPromptPart(clean(request.instructions)))
    for message in request.messages:
        if message.role != "assistant":
            parts.extend(_request_parts(message, ids))
            continue
        response = _response(message, ids)
        if response is None:
            continue
        if parts:
            history.append(theirs.ModelRequest(parts))
            parts = []
        history.append(response)
    if parts:
        history.append(theirs.ModelRequest(parts))
    return history


def their_parameters(
    request: ModelRequest, *, native_output: bool, decides: bool = False
) -> ModelRequestParameters:
    """Return a request's tools and output schema as pydantic-ai's parameters.

    Args:
        request: the request.
        native_output: whether the model obeys a schema.
        decides: whether the model only fills in answers. The one tool of its request is then that of the typed answer.
    """
    tools = [_tool(spec) for spec in request.tools]
    if decides and len(tools) == 1:
        output_tool = replace(tools[0], kind="output", strict=None)
        return ModelRequestParameters(output_mode="tool", output_tools=[output_tool], allow_text_output=False)
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
    content: list[theirs.UserContent] = []
    for part in message.parts:
        if isinstance(part, ToolResult):
            yield _result(part, ids)
        elif isinstance(part, (Text, Image, File)):
            content.append(_content(part))
    if content:
        only = content[0] if len(content) == 1 else None
        yield theirs.UserPromptPart(only if isinstance(only, str) else content)


def _result(result: ToolResult, ids: _WireIds) -> theirs.ToolReturnPart:
    parts = [_content(part) for part in result.parts]
    content: Any = "".join(cast("list[str]", parts)) if all(isinstance(p, str) for p in parts) else parts
    return theirs.ToolReturnPart(
        tool_name=result.name,
        content=content,
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
        # A path in a stored message is not read: its author could read any file with it.
        raise ModelError(f"the file {part.path!r} was not read before it was sent", kind="invalid_request")
    if isinstance(part, Image):
        return theirs.ImageUrl(part.url, media_type=part.media_type)
    family = (part.media_type or "").partition("/")[0]
    kinds = {"audio": theirs.AudioUrl, "video": theirs.VideoUrl, "image": theirs.ImageUrl}
    return kinds.get(family, theirs.DocumentUrl)(part.url, media_type=part.media_type)


def _response(message: Message, ids: _WireIds) -> theirs.ModelResponse | None:
    """Return an answer as it is sent back; None for an empty answer, which providers refuse.

    Reasoning alone is empty too: providers accept it only with the text or the call that it led to.
    """
    calls = any(isinstance(part, ToolCall) for part in message.parts)
    mapped = [_response_part(part, ids, calls=calls) for part in message.parts]
    parts = [part for part in mapped if part is not None]
    if all(isinstance(part, theirs.ThinkingPart) for part in parts):
        return None
    return theirs.ModelResponse(parts, **_fields(message.meta, _RESPONSE_META))


def _response_part(part: Part, ids: _WireIds, *, calls: bool) -> theirs.ModelResponsePart | None:
    meta: Json = getattr(part, "meta", None)
    if isinstance(part, Text):
        if not part.text.strip():
            return None
        return theirs.TextPart(clean(part.text), **_fields(meta, ("id", "provider_name", "provider_details")))
    if isinstance(part, Reasoning):
        if meta in (IN_WORDS, UNSEEN):
            # Reasoning that the model wrote as text goes back as text: the provider did not mark it as reasoning.
            return theirs.TextPart(clean(part.text)) if calls and meta == IN_WORDS else None
        if foreign := _fields(meta, ("part",)):
            return _foreign_part(foreign["part"])
        return theirs.ThinkingPart(clean(part.text), **_fields(meta, _PART_META))
    if isinstance(part, ToolCall):
        arguments: Any = clean(part.arguments)
        fields = _fields(meta, ("id", "provider_name", "provider_details"))
        if part.problem is not None:
            fields.pop("provider_details", None)  # a signature signs the original arguments
            arguments = {"unparsable_arguments": clean((part.raw or "")[:_RAW_SHOWN])}
        return theirs.ToolCallPart(part.name, arguments, ids.begin(part), **fields)
    if isinstance(part, Image | File) and part.data is not None:
        content = theirs.BinaryContent(part.data, media_type=part.media_type or "application/octet-stream")
        return theirs.FilePart(content, **_fields(meta, ("id", "provider_name", "provider_details")))
    return None


class _WireIds:
    """The ids under which the calls of a conversation are sent: those of the journal.

    If the items of an answer have ids of their own, a call keeps the provider's call id.
    """

    def __init__(self) -> None:
        self._provider_ids: dict[str, str] = {}
        self._used: set[str] = set()

    def begin(self, call: ToolCall) -> str:
        """Return the id of a call."""
        provider_id = _fields(call.meta, ("call_id",)).get("call_id")
        if (
            not isinstance(provider_id, str)
            or not _WIRE_ID.fullmatch(provider_id)
            or provider_id in self._used
        ):
            return wire_id(call.id)
        self._used.add(provider_id)
        self._provider_ids[call.id] = provider_id
        return provider_id

    def of(self, call_id: str) -> str:
        """Return the id under which a call of the journal is sent."""
        return self._provider_ids.get(call_id) or wire_id(call_id)


def wire_id(call_id: str) -> str:
    """Return a call's id in a form that all providers accept: at most 40 letters, digits, `_` and `-`."""
    if _WIRE_ID.fullmatch(call_id):
        return call_id
    # The digest separates ids that differ only in characters that are replaced or cut.
    digest = blake2b(call_id.encode("utf-8", "replace"), digest_size=5).hexdigest()
    return f"{re.sub(r'[^A-Za-z0-9_-]', '-', call_id)[:29]}-{digest}"


def _foreign_part(dumped: Json) -> theirs.ModelResponsePart | None:
    """Return a part of a kind that only pydantic-ai has; None if the installed version lacks it."""
    try:
        return _RESPONSE_PART.validate_python(dumped)
    except ValidationError:
        return None


def _fields(meta: Json, names: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(meta, dict):
        return {}
    fields = cast("dict[str, Any]", meta)
    return {name: fields[name] for name in names if fields.get(name) is not None}


# ---------------------------------------------------------------------------------------------- answers


def our_answer(
    response: theirs.ModelResponse,
    request: ModelRequest,
    wire: WireFormat | None,
    *,
    streamed: bool = True,
    words: Mapping[str, Finish] = {},
) -> ModelAnswer:
    """Return a whole response as our answer; raises `ModelError` if it broke off.

    Args:
        response: the assembled response.
        request: the request that it answers.
        wire: the wire format, if it is known.
        streamed: whether it was streamed, so that its end may be missing.
        words: the meanings of finish reasons that only this server uses.
    """
    finish = our_finish(response, wire, streamed=streamed, words=words)
    if finish == "error" and not any(isinstance(part, theirs.ToolCallPart) for part in response.parts):
        reason = (response.provider_details or {}).get("finish_reason")
        raise ModelError(f"the provider reports a failed answer: {reason}", kind=_error_kind(reason))
    truncated = finish not in WHOLE
    without_parameters = {spec.name for spec in request.tools if not spec.parameters.get("properties")}
    no_arguments = () if wire is None else wire.no_arguments
    parts = tuple(_our_part(part, truncated, without_parameters, no_arguments) for part in response.parts)
    message = Message("assistant", parts, meta=_response_meta(response))
    return ModelAnswer(message, finish, our_usage(response) or estimated_usage(request, message))


def _error_kind(reason: object) -> ModelErrorKind:
    """Return `server` for an error of the service; other reasons, such as Google's, are errors of the model."""
    return "server" if str(reason).lower() in OF_SERVICE else "unparsable"


def _response_meta(response: theirs.ModelResponse) -> Json:
    meta: dict[str, Any] = _meta(response, _RESPONSE_META) or {}
    if meta.get("canonical_system") == meta.get("provider_name"):
        meta.pop("canonical_system", None)
    return meta if len(meta) > 1 else None  # each part has the provider's name itself


def _our_part(
    part: theirs.ModelResponsePart,
    truncated: bool,
    without_parameters: set[str],
    no_arguments: tuple[str | None, ...] = (),
) -> Part:
    if isinstance(part, theirs.TextPart):
        return Text(clean(part.content), meta=_meta(part, ("id", "provider_name", "provider_details")))
    if isinstance(part, theirs.ThinkingPart):
        return Reasoning(clean(part.content), meta=_meta(part, _PART_META))
    if isinstance(part, theirs.ToolCallPart):
        raw = part.args if isinstance(part.args, str) else ""
        if part.args is not None and not isinstance(part.args, str):
            raw = json.dumps(part.args)
        if part.args in no_arguments or (not raw.strip() and part.tool_name in without_parameters):
            raw = "{}"
        meta = cast("dict[str, Any] | None", _meta(part, ("id", "provider_name", "provider_details")))
        if part.id is not None and meta is not None:
            meta["call_id"] = part.tool_call_id
        written = parsed_call(part.tool_call_id, part.tool_name, raw, truncated=truncated, meta=meta)
        call: ToolCall = clean(written)
        if call.arguments != written.arguments and meta is not None:
            meta.pop("provider_details", None)  # a signature signs the original arguments
        return call
    if isinstance(part, theirs.FilePart):
        kind = Image if part.content.is_image else File
        return kind(data=part.content.data, media_type=part.content.media_type, meta=_meta(part, _PART_META))
    # A part of an unknown kind, such as a provider's own tools, is sent back as it came.
    return Reasoning("", meta={"part": _RESPONSE_PART.dump_python(part, mode="json")})


def _meta(source: object, names: tuple[str, ...]) -> Json:
    """Return the attributes that a provider wants back, as plain JSON; None if there are none."""
    meta: dict[str, Any] = {}
    for name in names:
        value: Any = getattr(source, name, None)
        if isinstance(value, Mapping):
            details = cast("Mapping[str, Any]", value)
            value = {key: inner for key, inner in details.items() if key not in _UNWANTED}
        if value in (None, {}):
            continue
        try:
            meta[name] = clean(to_jsonable_python(value))
        except PydanticSerializationError:
            continue  # not JSON: pydantic-ai's own data
    return meta or None


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
"""Details that only describe a response; no provider wants them back."""


def whole_deltas(response: theirs.ModelResponse) -> Iterable[ModelDelta]:
    """Return the deltas of a response that was not streamed, one for each part."""
    calls: list[int] = []
    for index, part in enumerate(response.parts):
        if (delta := our_delta(theirs.PartStartEvent(index=index, part=part), calls)) is not None:
            yield delta


def our_delta(event: object, calls: list[int]) -> ModelDelta | None:
    """Return the delta for a stream event, or None if the event adds nothing.

    Args:
        event: any event of a streamed response; unknown kinds add nothing.
        calls: the indices of the tool calls seen so far. The caller makes one list for each stream.
    """
    if isinstance(event, theirs.PartStartEvent):
        part = event.part
        if isinstance(part, theirs.ToolCallPart):
            calls.append(event.index)
            return ToolCallDelta(len(calls) - 1, clean(part.tool_name), _arguments(part.args))
        if isinstance(part, theirs.TextPart) and part.content:
            return TextDelta(clean(part.content))
        if isinstance(part, theirs.ThinkingPart) and part.content:
            return ReasoningDelta(clean(part.content))
    elif isinstance(event, theirs.PartDeltaEvent):
        delta = event.delta
        if isinstance(delta, theirs.ToolCallPartDelta) and event.index in calls:
            name, more = clean(delta.tool_name_delta or ""), _arguments(delta.args_delta)
            return ToolCallDelta(calls.index(event.index), name, more) if name or more else None
        if isinstance(delta, theirs.TextPartDelta) and delta.content_delta:
            return TextDelta(clean(delta.content_delta))
        if isinstance(delta, theirs.ThinkingPartDelta) and delta.content_delta:
            return ReasoningDelta(clean(delta.content_delta))
    return None


def _arguments(arguments: Any) -> str:
    if arguments is None:
        return ""
    return clean(arguments if isinstance(arguments, str) else json.dumps(arguments))


def our_finish(
    response: theirs.ModelResponse,
    wire: WireFormat | None,
    *,
    streamed: bool = True,
    words: Mapping[str, Finish] = {},
) -> Finish:
    """Return why a response ended; raises `ModelError` if it broke off.

    This is the only place that maps finish reasons.

    Args:
        response: the assembled response.
        wire: the wire format, if it is known. A stream without a reason was then cut.
        streamed: whether it was streamed. A whole response without a finish reason is not an answer.
        words: the meanings of finish reasons that only this server uses.
    """
    details = response.provider_details or {}
    finish_word: str | None = details.get("finish_reason")
    if "refusal" in details or finish_word == "refusal":
        return "refusal"
    stated = finish_word is not None or (
        response.finish_reason == "content_filter"
        if wire is None or wire.finish_word
        else response.finish_reason is not None
    )
    if response.state not in ("complete", "suspended") or (wire is not None and not stated):
        if not streamed:
            raise ModelError("the response is not an answer: it states no finish reason", kind="unparsable")
        raise ModelError("the stream ended before the answer was complete", kind="connection")
    finish = meaning(finish_word, words) if finish_word is not None else None
    if finish is None and response.finish_reason is not None:
        finish = _FINISHES[response.finish_reason]
    if finish is None:
        finish = "unknown" if finish_word is not None else "stop"
    if any(isinstance(part, theirs.ToolCallPart) for part in response.parts):
        return "tool_calls" if finish == "stop" else finish
    if finish != "tool_calls":
        return finish
    if any(isinstance(part, theirs.TextPart) and part.content.strip() for part in response.parts):
        return "stop"  # some servers give this reason for every answer to a request with tools
    problem = "the finish reason of the answer is a tool call, but it calls no tool"
    raise ModelError(problem, kind="unparsable", usage=our_usage(response))


def our_usage(response: theirs.ModelResponse) -> Usage | None:
    """Return the tokens that a response reports; None if it reports none or impossible counts."""
    usage: Any = response.usage
    counts = (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens)
    if usage.output_tokens <= 0 or min(counts) < 0:
        return None
    details = usage.details
    thinking = getattr(usage, "output_reasoning_tokens", 0) or max(details.get(name, 0) for name in _THINKING)
    reported = Usage(
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        max(thinking, 0),
        cache_write_tokens=usage.cache_write_tokens,
        cache_write_1h_tokens=max(getattr(usage, "cache_write_1h_tokens", 0), 0),
        input_audio_tokens=max(usage.input_audio_tokens, 0),
        output_audio_tokens=max(usage.output_audio_tokens, 0),
        tier=_tier(response),
    )
    return plain_usage(reported)


def _tier(response: theirs.ModelResponse) -> str:
    """Return the tier of service that answered; an empty text for the usual one."""
    tier = (response.provider_details or {}).get("service_tier")
    return tier if isinstance(tier, str) and tier not in _USUAL_TIERS else ""


_USUAL_TIERS = ("default", "standard", "on_demand", "auto")


_THINKING = ("reasoning_tokens", "thinking_tokens", "thoughts_tokens")


# ------------------------------------------------------------------------------------------- surrogates


def clean(value: Any) -> Any:
    """Return a value whose text can be encoded. A lone half of a surrogate pair becomes U+FFFD."""
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
