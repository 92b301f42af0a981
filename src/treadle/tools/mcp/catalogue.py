"""A server's resources and prompts, as read-only tools."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, Final, cast

from mcp import Client

from treadle.core.messages import Json
from treadle.errors import ToolError
from treadle.ports import ToolOutput
from treadle.tools.definitions import cleaned
from treadle.tools.mcp.definitions import WrongDefinition
from treadle.tools.mcp.results import output_of_prompt, output_of_resource

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
