"""What of an event may leave the process: its facts, always; its content, if asked for; secrets, never.

Content is whatever people, models and tools say: words, arguments, results, texts of errors. Facts are the rest: ids,
names, numbers, outcomes. A field that is not listed here as a fact is content.
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
    *("cached_tokens", "call", "calls", "channel", "child", "command", "cost", "covers", "deltas", "depth"),
    *("digest", "direct", "due", "effect", "epoch", "error", "estimated", "events", "final", "fingerprint"),
    *("finish", "follows", "forced", "inbox", "index", "input_tokens", "join", "kept", "kind", "last", "limit"),
    *("model", "name", "next", "next_route", "offered", "outcome", "output_tokens", "parent", "parent_call"),
    *("reasoning_tokens", "retry_after", "retry_at", "role", "route", "seq", "source", "state", "status"),
    *("step", "steps", "tag", "thread", "thread_version", "time", "to", "tool", "tools", "undo", "undoes"),
    *("usage", "used", "verdict", "version"),
})  # fmt: skip
"""Names of fields that are facts; of the fields of what they hold, the same is asked again."""

LONGEST: Final = 32_000
"""Characters of a text that are told at most: looking for secrets takes the interpreter from others meanwhile."""

_MOST: Final = 1_000
"""Items of a list or an object that are told at most."""

_MARGIN: Final = 1_000
"""Characters behind the cut that are looked through too, so that no beginning of a secret is left before it."""


class Redaction:
    """Hides secrets in whatever it is given: by the names of fields, and by values that are known.

    Args:
        secrets: values to hide, beside those of environment variables with such names as `OPENAI_API_KEY`.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = Secrets(named_secrets(os.environ) | set(secrets))

    def text(self, words: str) -> str:
        """Return words without secrets; of very many their beginning."""
        more = len(words) - LONGEST
        if more > 0:
            words = words[: LONGEST + _MARGIN]
        words = hide_named(self._secrets.hide(words))
        return words if more <= 0 else f"{words[:LONGEST]}… ({more} more)"

    def json(self, value: Any, *, content: bool = True) -> Json:
        """Return a value as JSON data without secrets, and without content unless that is asked for.

        Bytes are told by their number, and of long texts, lists and objects the beginning.
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
            pairs = islice(cast("Mapping[Any, Any]", value).items(), _MOST)
            return {self.text(str(name)): self._under(str(name), inner, content) for name, inner in pairs}
        if isinstance(value, (Sequence, set, frozenset)):
            return [
                self.json(inner, content=content) for inner in islice(cast("Sequence[Any]", value), _MOST)
            ]
        return self.text(repr(value)) if content else None

    def event(self, event: Event | Ephemeral, *, content: bool) -> dict[str, Json]:
        """Return an event as JSON data, with its `kind`, and its `seq` and `time` if it is journalled."""
        told: dict[str, Json] = {"kind": event.kind}
        if isinstance(event, Event):
            told |= {"seq": event.seq, "time": event.time}
        told |= self._object(event, content=content)
        if isinstance(event, (ModelStopped, ToolStopped)):
            told["reason"] = event.reason
        return told

    def _object(self, value: Any, *, content: bool) -> dict[str, Json]:
        told: dict[str, Json] = {}
        for item in fields(value):
            inner = getattr(value, item.name)
            if inner is None or inner == () or item.name in ("seq", "time"):
                continue
            if item.name == "error" and isinstance(inner, str) and not content:
                told["error"] = "failed"  # what it says is content
            elif content or item.name in FACTS:
                told[item.name] = self._under(item.name, inner, content)
            elif isinstance(inner, Message):
                told["calls"] = [{"id": call.id, "name": self.text(call.name)} for call in inner.tool_calls]
        return told

    def _under(self, name: str, value: Any, content: bool) -> Json:
        if isinstance(value, (str, Mapping, Sequence)) and is_secret_name(name):
            return SECRET
        return self.json(value, content=content)
