"""Events as JSON lines in a file or a stream, for programs to read: one object a line."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from treadle.core.events import CallOccurrence
from treadle.core.messages import Json
from treadle.errors import ConfigurationError
from treadle.ports import DriveBegan, DriveEnded, Missed, Notice
from treadle.results.wire import FORMAT
from treadle.telemetry.redaction import Redaction


class JsonLines:
    """Writes a line for each event: the head of `treadle.events.to_json`, `agent`, `thread_id`, and its fields.

    The fields are not those of `to_json`: secrets are masked, content is left out, and long values are cut.

    Each line is appended to the file as a whole, so several processes may share it. Only its owner may read it.

    Args:
        target: a path, or a text stream, which is left open.
        content: whether messages, arguments, results and error messages are written too; secrets never are.
        deltas: whether streamed deltas are written too.
        secrets: values to hide, beside those of environment variables with such names as `OPENAI_API_KEY`.
    """

    def __init__(
        self,
        target: str | os.PathLike[str] | IO[str],
        *,
        content: bool = False,
        deltas: bool = False,
        secrets: Iterable[str] = (),
    ) -> None:
        if not isinstance(target, (str, os.PathLike)) and not hasattr(target, "write"):
            raise ConfigurationError(f"JsonLines: target must be a path or a text stream, got {target!r}")
        self._path = Path(target) if isinstance(target, (str, os.PathLike)) else None
        self._stream: Any = None if self._path is not None else target
        self.content = content
        self.deltas = deltas
        self._redaction = Redaction(secrets)

    def observe(self, notice: Notice) -> None:
        line = json.dumps(self._line(notice), ensure_ascii=False, separators=(",", ":")) + "\n"
        if self._path is None:
            self._stream.write(line)
            self._stream.flush()
            return
        if self._stream is None:
            self._stream = os.open(self._path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        data = line.encode(errors="backslashreplace")
        while data:
            data = data[os.write(self._stream, data) :]

    def _line(self, notice: Notice) -> dict[str, Json]:
        event, task, text = notice.event, notice.task, self._redaction.text
        line: dict[str, Json] = {"format": FORMAT, "kind": event.kind}
        if task is not None:
            line |= {"task_id": text(task.task_id), "agent": task.agent, "thread_id": text(task.thread_id)}
            if task.parent is not None:
                line["parent"] = text(task.parent)
            if task.tenant:
                line["tenant"] = text(task.tenant)
        if isinstance(event, DriveBegan):
            return line | {"seq": event.seq, "epoch": event.epoch}
        if isinstance(event, DriveEnded):
            return line | {"seq": event.seq, "state": event.state}
        if isinstance(event, Missed):
            return line | {"events": event.events, "deltas": event.deltas}
        line |= {"agent_path": list(event.agent_path), "description": text(event.description)}
        if isinstance(event, CallOccurrence):
            line["tool"] = text(event.tool)
        return line | self._redaction.event(event, content=self.content)

    def close(self) -> None:
        """Close the file; a later event opens it again."""
        if self._path is not None and self._stream is not None:
            os.close(self._stream)
            self._stream = None

    def __repr__(self) -> str:
        return f"JsonLines({os.fspath(self._path) if self._path is not None else self._stream!r})"
