"""Convert servers' results to results of tools.

Also a server's resources and prompts, as read-only tools.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, Final, cast

import mcp_types as types
from mcp import Client

from treadle.core.messages import Content, File, Image, Json, Text
from treadle.errors import ToolError
from treadle.ports import ToolOutput
from treadle.tools.definitions import cleaned
from treadle.tools.mcp.definitions import WrongDefinition
from treadle.tools.observe import to_output

IMAGES: Final = ("image/gif", "image/jpeg", "image/png", "image/webp")


def output_of(result: types.CallToolResult) -> ToolOutput:
    """Return the result of a call. Raises `ToolError` with the server's text if the call failed."""
    if result.is_error:
        raise ToolError(_text_of(result.content) or "the server reported a failed call without a reason")
    parts = [_part(block) for block in result.content]
    text = "\n".join(part.text for part in parts if isinstance(part, Text))
    only_text = all(isinstance(part, Text) for part in parts)
    if result.structured_content is not None:
        try:
            data = to_output(result.structured_content).output
        except ToolError as error:
            # The call took effect, so it must not fail because the journal cannot store its data.
            text = text or f"[the server's data was left out: {error}]"
        else:
            # The text repeats the structured data, and the model needs only one of them.
            return ToolOutput(data, parts if not only_text else text or None)
    if only_text:
        return ToolOutput(text)
    listed: list[Json] = [_described(part) for part in parts]
    return ToolOutput(listed, parts)


def output_of_resource(result: types.ReadResourceResult) -> ToolOutput:
    """Return the content of a resource."""
    parts = [_resource_part(contents) for contents in result.contents]
    if all(isinstance(part, Text) for part in parts):
        return ToolOutput("\n".join(part.text for part in parts if isinstance(part, Text)))
    return ToolOutput([_described(part) for part in parts], parts)


def output_of_prompt(result: types.GetPromptResult) -> ToolOutput:
    """Return the messages of a prompt."""
    messages: list[Json] = [
        {"role": message.role, "content": _described(_part(message.content))} for message in result.messages
    ]
    return ToolOutput({"description": result.description, "messages": messages})


def _part(block: types.ContentBlock) -> Content:
    match block:
        case types.TextContent(text=text):
            return Text(text)
        case types.ImageContent(data=data, mime_type=kind):
            return _media(data, kind)
        case types.AudioContent(data=data, mime_type=kind):
            return _media(data, kind)
        case types.EmbeddedResource(resource=resource):
            return _resource_part(resource)
        case types.ResourceLink(name=name, uri=uri):
            return Text(f"[resource {name}: {uri}]")


def _resource_part(contents: types.TextResourceContents | types.BlobResourceContents) -> Content:
    if isinstance(contents, types.TextResourceContents):
        return Text(contents.text)
    return _media(contents.blob, contents.mime_type or "application/octet-stream", str(contents.uri))


def _media(data: str, kind: str, name: str = "") -> Content:
    """Return an image that models accept, or a sentence that describes any other data."""
    try:
        size = len(raw := base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return Text(f"[{kind} that is not base64]")
    if kind in IMAGES:
        return Image(data=raw, media_type=kind)
    return Text(f"[{kind}{f' {name}' if name else ''}, {size:,} bytes]")


def _described(part: Content) -> Json:
    if isinstance(part, Text):
        return part.text
    assert isinstance(part, (File, Image))
    return f"[{part.media_type}, {len(part.data or b''):,} bytes]"


def _text_of(blocks: Sequence[Any]) -> str:
    return "\n".join(block.text for block in blocks if isinstance(block, types.TextContent))


MAX_ENTRIES: Final = 1_000
"""Most resources, templates or prompts in a list."""

MAX_PAGES: Final = 20


async def list_resources(client: Client, arguments: dict[str, Json]) -> ToolOutput:
    """Return a server's resources and resource templates."""
    entries = [
        _entry(each, uri=each.uri)
        async for each in _paged(client.list_resources, lambda page: page.resources)
    ]
    entries += [
        _entry(each, uri_template=each.uri_template)
        async for each in _paged(client.list_resource_templates, lambda page: page.resource_templates)
    ]
    return ToolOutput(entries)


async def read_resource(client: Client, arguments: dict[str, Json]) -> ToolOutput:
    """Return the content of a resource."""
    return output_of_resource(await client.read_resource(str(arguments["uri"])))


async def list_prompts(client: Client, arguments: dict[str, Json]) -> ToolOutput:
    """Return a server's prompts with their arguments."""
    return ToolOutput(
        [
            _entry(
                each,
                arguments=[
                    dict(_entry(argument), required=bool(argument.required))
                    for argument in each.arguments or ()
                ],
            )
            async for each in _paged(client.list_prompts, lambda page: page.prompts)
        ]
    )


async def get_prompt(client: Client, arguments: dict[str, Json]) -> ToolOutput:
    """Return the messages of a prompt."""
    texts: Any = cast("Any", arguments.get("arguments") or {})
    if not isinstance(texts, dict) or not all(isinstance(value, str) for value in texts.values()):  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        raise ToolError("arguments must be an object of texts")
    return output_of_prompt(await client.get_prompt(str(arguments["name"]), texts))  # pyright: ignore[reportUnknownArgumentType]


OPERATIONS: Final = {
    "list_resources": list_resources,
    "read_resource": read_resource,
    "list_prompts": list_prompts,
    "get_prompt": get_prompt,
}


def _entry(each: Any, **facts: Json) -> dict[str, Json]:
    """Return the fields of a list's entry that a model sees."""
    entry: dict[str, Any] = {"name": each.name, **facts}
    for field in ("title", "description", "mime_type"):
        if getattr(each, field, None):
            entry[field] = getattr(each, field)
    return cleaned(entry)


async def _paged(
    ask: Callable[..., Awaitable[Any]], entries_of: Callable[[Any], Sequence[Any]]
) -> AsyncGenerator[Any]:
    """Yield the entries of all pages."""
    cursor, count = None, 0
    for _ in range(MAX_PAGES):
        page = await ask(cursor=cursor)
        for entry in entries_of(page):
            count += 1
            if count > MAX_ENTRIES:
                raise WrongDefinition(f"lists more than {MAX_ENTRIES:,} entries")
            yield entry
        cursor = page.next_cursor
        if cursor is None:
            return
    raise WrongDefinition(f"lists on more than {MAX_PAGES} pages")
