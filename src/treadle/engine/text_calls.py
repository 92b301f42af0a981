"""Text answers that look like tool calls. They stay answers, and a warning is logged."""

from __future__ import annotations

from treadle.core import events as e
from treadle.core.calls_in_text import calls_in
from treadle.core.messages import Message, Text
from treadle.engine import task_log
from treadle.engine.effect_context import EffectContext


def text_calls_of(context: EffectContext, message: Message, typed: e.TypedAnswer | None) -> tuple[str, ...]:
    """Return the tools that the text of an answer seems to call, and log them.

    A dialect reads calls in text itself, and an accepted typed answer is not a call.
    """
    runtime, parts = context.runtime, message.parts
    if not runtime.tools or not parts or type(parts[-1]) is not Text:
        return ()
    if runtime.agent.dialect is not None or (typed is not None and typed.problem is None):
        return ()
    if parts[-1].text.lstrip()[:1] not in ("{", "[", "<", "`") or message.tool_calls:
        return ()
    tools = tuple([name for name, _ in calls_in(message.text, runtime.tools)])
    if tools:
        task_log.tell_text_calls(context.state, tools)
    return tools
