"""Decide which parts of an event may leave the process: facts always, content if configured, secrets never.

Content is the text of people, models and tools: messages, arguments, results, error messages. Facts are ids, names,
numbers and outcomes. A field that is not listed here as a fact is content.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import islice
from math import isfinite
from typing import Any, Final, cast

from treadle.core.events import Ephemeral, Event, ModelStopped, ToolStopped
from treadle.core.messages import Json, Message
from treadle.core.redaction import SECRET, Secrets, hide_named, is_secret_name, named_secrets

FACTS: Final = frozenset({
    *("action", "after_conversation", "agent", "allowed", "also", "asked", "attempt", "base", "branch", "by"),
    *("cached_tokens", "call", "calls", "channel", "child", "command", "cost", "covers", "definition", "deltas"),
    *("depth", "digest", "direct", "due", "effect", "epoch", "error", "estimated", "events", "expires", "final"),
    *("answered_by", "report", "secrets", "took_effect"),
    *("fingerprint", "has_default", "place", "rule", "scope"),
    *("finish", "follows", "forced", "inbox", "index", "input_tokens", "join", "kept", "kind", "last", "limit", "lost"),
    *("model", "name", "next", "next_route", "number", "offered", "outcome", "output_tokens", "parent", "parent_call"),
    *("reasoning_tokens", "retry_after", "retry_at", "role", "route", "seq", "source", "state", "status"),
    *("step", "steps", "tag", "thread", "thread_version", "time", "to", "tool", "tools", "undo", "undoes"),
    *("usage", "used", "verdict", "version"),
})  # fmt: skip
"""The names of fields that are facts; the fields of their values are checked in the same way."""

LONGEST: Final = 32_000
"""The most characters of a text that are exported: the search for secrets blocks other threads."""

_ITEMS_MAX: Final = 1_000
"""The most items of a list or an object that are exported."""

_MARGIN: Final = 1_000
"""Characters after the cut that are searched but not exported: so a named secret at the cut is recognised."""


class Redaction:
    """Hides secrets in texts and values: by the names of fields, and by known values.

    Args:
        secrets: values to hide, beside those of environment variables with such names as `OPENAI_API_KEY`.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = Secrets(named_secrets(os.environ) | set(secrets))

    def text(self, text: str) -> str:
        """Return a text without secrets; a very long text is cut."""
        more = len(text) - LONGEST
        if more <= 0:
            return hide_named(self._secrets.hide(text))
        text = self._secrets.hide_undecoded(
            text
        )  # as a whole: half a secret beside a cut would not be recognised
        hidden = hide_named(self._secrets.hide(text[: LONGEST + _MARGIN]))
        if len(text) > LONGEST + _MARGIN:
            hidden = hidden[
                :-_MARGIN
            ]  # it may end with half of a coded secret, or of a value that has a secret's name
        return f"{hidden[:LONGEST]}… ({more} more)"

    def json(self, value: Any, *, content: bool = True) -> Json:
        """Return a value as JSON data without secrets, and without its content unless `content` is true.

        Bytes become their number; long texts, lists and objects are cut.
        """
        if value is None or isinstance(value, (bool, int)):
            return value
        if isinstance(value, float):
            return value if isfinite(value) else None
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, (bytes, bytearray)):
            return {"bytes": len(value)}
        if is_dataclass(value) and not isinstance(value, type):
            return self._object(value, content=content)
        if isinstance(value, Mapping):
            pairs = islice(cast("Mapping[Any, Any]", value).items(), _ITEMS_MAX)
            return {self.text(str(name)): self._under(str(name), inner, content) for name, inner in pairs}
        if isinstance(value, (Sequence, set, frozenset)):
            return [
                self.json(inner, content=content)
                for inner in islice(cast("Sequence[Any]", value), _ITEMS_MAX)
            ]
        return self.text(repr(value)) if content else None

    def event(self, event: Event | Ephemeral, *, content: bool) -> dict[str, Json]:
        """Return an event as JSON data, with its `kind`, and its `seq` and `time` if it is journalled."""
        document: dict[str, Json] = {"kind": event.kind}
        if isinstance(event, Event):
            document |= {"seq": event.seq, "time": event.time}
        document |= self._object(event, content=content)
        if isinstance(event, (ModelStopped, ToolStopped)):
            document["reason"] = event.reason
        return document

    def _object(self, value: Any, *, content: bool) -> dict[str, Json]:
        document: dict[str, Json] = {}
        for item in fields(value):
            inner = getattr(value, item.name)
            if inner is None or inner == () or item.name in ("seq", "time"):
                continue
            if item.name == "error" and isinstance(inner, str) and not content:
                document["error"] = "failed"  # its message is content
            elif content or item.name in FACTS:
                document[item.name] = self._under(item.name, inner, content)
            elif isinstance(inner, Message):
                document["calls"] = [
                    {"id": call.id, "name": self.text(call.name)} for call in inner.tool_calls
                ]
        return document

    def _under(self, name: str, value: Any, content: bool) -> Json:
        if isinstance(value, (str, Mapping, Sequence)) and is_secret_name(name):
            return SECRET
        return self.json(value, content=content)
