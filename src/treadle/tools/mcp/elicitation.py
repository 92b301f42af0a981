"""Elicitation: questions that servers ask people during a call, as durable questions of that call.

In the protocol of 2026 a server answers a call with requests. The client then repeats the call with their results. In
the protocol with a handshake the server sends a request while the call waits. In both, `CallQuestions.ask` runs
`ctx.ask` in the task's event loop. A question without an answer ends the attempt. After the answer the call starts
again, the server asks again, and receives the answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Literal, cast
from urllib.parse import urlsplit

import mcp_types as types
from pydantic import BaseModel, Field, create_model

from treadle.core.questions import AwaitingAnswer
from treadle.errors import QuestionUnanswered, ToolError
from treadle.ports import ToolContext
from treadle.tools.definitions import clean

_log = logging.getLogger("treadle.mcp")


class Suspended(Exception):
    """The attempt of a call ends here, because it waits for a person's answer."""


class CallQuestions:
    """The questions of one call; made in its task's event loop.

    Args:
        server: the server's name.
        ctx: the context of the call.
    """

    def __init__(self, server: str, ctx: ToolContext[Any]) -> None:
        self._server, self._ctx = server, ctx
        self._loop = asyncio.get_running_loop()
        self._awaiting: AwaitingAnswer | None = None
        self.suspended = asyncio.Event()
        """set in the event loop of the servers"""

    async def ask(self, params: types.ElicitRequestParams) -> types.ElicitResult:
        """Return a person's answer; raises `Suspended` if there is none yet. Runs in the event loop of the servers."""
        future = asyncio.run_coroutine_threadsafe(self._ask(params), self._loop)
        try:
            return await asyncio.wrap_future(future)
        except Suspended:
            self.suspended.set()
            raise

    def rest(self) -> BaseException:
        """Return the exception that ends the attempt of a suspended call."""
        assert self._awaiting is not None
        return self._awaiting

    async def _ask(self, params: types.ElicitRequestParams) -> types.ElicitResult:
        message = _in_one_line(params.message, 4_000)
        begin = f"The MCP server {self._server} asks: {message}"
        try:
            if isinstance(params, types.ElicitRequestURLParams):
                address = _in_one_line(params.url, 2_000)
                if not _is_of_the_web(address):
                    _log.warning(
                        "MCP server %s: the address that it wants opened is none of the web", self._server
                    )
                    return types.ElicitResult(action="decline")
                question = f"{begin}\nIt wants this address to be opened: {address}\nWas it done?"
                confirmed = await self._ctx.ask(question, bool)
                return types.ElicitResult(action="accept" if confirmed else "decline")
            answer: Any = await self._ctx.ask(begin, answer_type(params.requested_schema) | None)
        except AwaitingAnswer as awaiting:
            self._awaiting = awaiting
            raise Suspended from None
        except QuestionUnanswered:
            return types.ElicitResult(action="cancel")
        except ToolError as error:
            _log.warning("MCP server %s: its question was declined: %s", self._server, error)
            return types.ElicitResult(action="decline")
        if answer is None:
            return types.ElicitResult(action="decline")
        return types.ElicitResult(
            action="accept", content=answer.model_dump(by_alias=True, exclude_none=True)
        )


def _in_one_line(text: str, most: int) -> str:
    """Return a server's text without line breaks, so that no part of it looks like a line of Treadle's."""
    return " ".join(clean(text).split())[:most]


def _is_of_the_web(address: str) -> bool:
    """Return whether a person may be asked to open an address. `javascript:`, `file:` and the like are refused."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and " " not in address


def answer_type(schema: Mapping[str, Any]) -> type[BaseModel]:
    """Return the type of an answer from a server's flat schema; raises `ToolError` for other schemas."""
    properties: Any = schema.get("properties")
    required: Any = schema.get("required") or []
    if (
        not isinstance(properties, dict)
        or not isinstance(required, list)
        or len(cast("Any", properties)) > 50
    ):
        raise ToolError("the server asks for an answer of a type that is not known")
    fields: dict[str, Any] = {}
    for number, (name, described) in enumerate(cast("dict[str, Any]", properties).items()):
        kind = _type_of(described)
        is_required = name in required
        title = _in_one_line(str(described.get("description") or described.get("title") or ""), 500)
        field = Field(... if is_required else None, alias=name, description=title or None)
        fields[f"field_{number}"] = (kind if is_required else kind | None, field)
    model: Any = create_model("Answer", **fields)
    return model


def _type_of(described: Any) -> Any:
    """Return the type of one field, if the protocol knows it."""
    if not isinstance(described, dict):
        raise ToolError("the server asks for an answer of a type that is not known")
    facts = cast("dict[str, Any]", described)
    choices: Any = facts.get("enum") or [
        each["const"]
        for each in cast("list[Any]", facts.get("oneOf") or facts.get("anyOf") or [])
        if isinstance(each, dict) and "const" in each
    ]
    if choices:
        return Literal[tuple(str(choice) for choice in choices)]
    if facts.get("type") == "array":
        return list[_type_of(facts.get("items"))]
    kinds: dict[Any, Any] = {"string": str, "integer": int, "number": float, "boolean": bool}
    kind = kinds.get(facts.get("type"))
    if kind is None:
        raise ToolError("the server asks for an answer of a type that is not known")
    return kind
