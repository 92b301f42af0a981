"""The memo of a step function: the requests of its earlier runs, for a repeated run to find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from treadle.core.codec import is_text
from treadle.core.graph import MemoEntry, StepNode
from treadle.core.ids import request_id
from treadle.core.messages import Message
from treadle.core.steps import ModelCall
from treadle.errors import ConfigurationError, NotReproducible


class StepMemo:
    """The requests of a step function, those of its earlier runs included.

    Args:
        task_id: the task.
        step_id: the step.
        node: its node, with the entries of earlier runs.
        holds_secret: whether a text holds a secret, which the journal does not keep.
    """

    def __init__(
        self, task_id: str, step_id: str, node: StepNode, holds_secret: Callable[[str], bool]
    ) -> None:
        self._step_id, self._node = step_id, node
        self._where = f"task {task_id}, step {step_id} ({node.plan.name})"
        self._holds_secret = holds_secret
        self._requests = node.requests
        self._counts: dict[str, int] = {}

    def find(self, key: str | None, digest: str) -> tuple[MemoEntry | None, str]:
        """Return the entry of a request, None for a new one, and its key.

        Args:
            key: the function's own key of the request; None if it has none.
            digest: the digest of its content.

        Raises:
            ConfigurationError: the key cannot be stored.
            NotReproducible: the key belongs to another request.
        """
        if key is not None:
            self.check_key(key)
        memo_key = f"key:{key}" if key is not None else f"{digest}:{self.count(digest)}"
        entry = self._node.memo.get(memo_key)
        if entry is not None and entry.digest != digest:
            raise NotReproducible(
                f"{self._where}: the key {key!r} was used before for something else; give each request a key of its own"
            )
        return entry, memo_key

    def count(self, request: str) -> int:
        """Return how often this run made a request, this time included."""
        count = self._counts[request] = self._counts.get(request, 0) + 1
        return count

    def continued(self, messages: tuple[Message, ...]) -> ModelCall | None:
        """Return the longest earlier request that these messages continue. The journal holds its messages already."""
        longest: ModelCall | None = None
        for entry in self._node.memo.values():
            call = entry.done
            if not isinstance(call, ModelCall) or call.in_conversation or call.message is None:
                continue
            length = call.side_length
            if (longest is not None and length <= longest.side_length) or length >= len(messages):
                continue
            if messages[length] == call.message and list(messages[:length]) == call.side_messages():
                longest = call
        return longest

    def next_id(self, kind: Literal["model", "tool"]) -> str:
        """Return the id of a new request."""
        return request_id(self._step_id, kind, self.next_number())

    def next_number(self) -> int:
        """Return the number of a new request, from 1, in all runs of the function."""
        self._requests += 1
        return self._requests

    def check_key(self, key: Any) -> None:
        """Raise `ConfigurationError` for a key that the journal would not store, so that no request is lost."""
        if not is_text(key):
            raise ConfigurationError(f"{self._where}: a key is a text, got {key!r:.80}")
        if self._holds_secret(key):
            raise ConfigurationError(
                f"{self._where}: a key holds a secret, which the journal does not keep: give the request a key without"
            )
