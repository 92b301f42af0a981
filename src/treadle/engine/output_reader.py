"""The tool `read_output` of every agent with tools, which reads further parts of cut outputs."""

from __future__ import annotations

from typing import Any, Final, cast

from treadle.core.cut_outputs import SPEC, find_output, page, unknown_output_text, whole_text
from treadle.core.ids import base_call_id
from treadle.core.labels import label_of
from treadle.core.messages import Json, ToolCall, ToolResult
from treadle.core.render import results
from treadle.core.tools import Unknown, Verdict
from treadle.engine.effect_context import EffectContext
from treadle.errors import ToolArgumentsInvalid, ToolError
from treadle.ports import ToolContext, ToolOutput


class OutputReader:
    """The tool in requests. Its calls go to a `BoundReader`."""

    spec = SPEC

    def validate(self, arguments: dict[str, Json]) -> Any:
        """Return the arguments. Raises `ToolArgumentsInvalid`."""
        call_id, offset, limit = arguments.get("call_id"), arguments.get("offset", 0), arguments.get("limit")
        if (
            not isinstance(call_id, str)
            or type(offset) is not int
            or offset < 0
            or (limit is not None and (type(limit) is not int or limit < 1))
            or arguments.keys() - SPEC.parameters["properties"].keys()
        ):
            raise ToolArgumentsInvalid(
                "read_output takes `call_id`, a text, `offset`, a whole number from 0 up, and `limit`, one from 1 up"
            )
        return call_id, offset, limit

    async def call(self, arguments: Any, ctx: ToolContext[Any]) -> ToolOutput:
        """Raise `ToolError`, since only a drive knows the outputs of its task."""
        raise ToolError("read_output reads the outputs of a task, and is called by one")

    async def undo(self, call: ToolCall, ctx: ToolContext[Any]) -> None:
        """Do nothing, since reading has no effects."""

    async def reconcile(self, call: ToolCall, ctx: ToolContext[Any]) -> Verdict:
        """Return `Unknown`, since a read is started again."""
        return Unknown()


OUTPUT_READER: Final = OutputReader()


class BoundReader(OutputReader):
    """The tool within a drive.

    Args:
        context: the context of the drive.
    """

    def __init__(self, context: EffectContext) -> None:
        self._context = context

    async def call(self, arguments: Any, ctx: ToolContext[Any]) -> ToolOutput:
        """Return a page of an output, with the origin of that output."""
        context, (call_id, offset, limit) = self._context, arguments
        call = find_output(context.state, call_id)
        if call is None or not self._is_seen(call_id):
            raise ToolError(unknown_output_text(context.state, call_id))
        label = label_of("tool", cast("ToolResult", results([call]).parts[0]))
        text = page(whole_text(call), offset, limit, context.runtime.max_chars)
        return ToolOutput(text, origin=label.origin if label.integrity == "untrusted" else None)

    def _is_seen(self, call_id: str) -> bool:
        """Whether the agent sees the result of a call, since filters of a handoff may have removed it."""
        context = self._context
        if context.state.team is None or context.select_messages is None:
            return True
        seen = context.select_messages(context.runtime.specs)
        return any(
            type(part) is ToolResult and part.call_id == base_call_id(call_id)
            for message in seen
            for part in message.parts
        )
