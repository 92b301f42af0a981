"""`StateView`: the task's `extra_state` as one call sees it, and may change it.

A view reads the state as it was when its call began, and keeps what the call writes to itself. `close` returns that as
one `StateChange`, for the event that ends the call. So a call changes all that it changed or nothing, and an attempt
that begins again reads what the one before it read.

A list or an object that is read is copied, once: what the call does to the copy is noticed when the view is closed.
Only keys whose values then differ are part of the change.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, MutableMapping
from typing import Any, Final, cast

from treadle.core.codec import exact_copy
from treadle.core.events import StateChange
from treadle.core.extra_state import ExtraState
from treadle.core.messages import Json, copied
from treadle.core.state import TaskState
from treadle.core.steps import CallState

_NOTHING: Final = ExtraState()
_REMOVED: Final[Any] = object()
_ABSENT: Final[Any] = object()


class StateView(MutableMapping[str, Json]):
    """The task's `extra_state` as a call sees it; usable from any thread.

    Args:
        state: the task.
        upto: the event at which the call began.
        owner: whose view it is, for errors, such as "tool 'add'".
        refusal: why it may not be changed; None if it may.
    """

    __slots__ = ("_calls", "_owner", "_refusal", "_state", "_upto", "_written")

    def __init__(self, state: TaskState, upto: int, owner: str, *, refusal: str | None = None) -> None:
        self._state, self._upto, self._owner, self._refusal = state, upto, owner, refusal
        self._written: dict[str, Any] = {}
        """by key: what was set, copies of the lists and objects that were read, and `_REMOVED`"""

        self._calls: set[str] = set()
        """ids of the calls whose changes are seen besides"""

    def __getitem__(self, key: str) -> Json:
        value: Json = self._written.get(key, _ABSENT)
        if value is _REMOVED:
            raise KeyError(key)
        if value is not _ABSENT:
            return value
        before: Json = self._base.read(key, self._upto, self._calls)
        if isinstance(before, (dict, list)):
            return self._written.setdefault(
                key, copied(before)
            )  # two threads that read it first get one copy
        return before

    def __setitem__(self, key: str, value: Json) -> None:
        self._check_writable(key)
        self._written[key] = value

    def __delitem__(self, key: str) -> None:
        self._check_writable(key)
        if key not in self:
            raise KeyError(key)
        self._written[key] = _REMOVED

    def __iter__(self) -> Iterator[str]:
        written = self._written.copy()
        before = list(self._base.keys(self._upto, self._calls))
        keys = dict.fromkeys([*before, *written])
        return iter([key for key in keys if written.get(key) is not _REMOVED])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, key: object) -> bool:
        value = cast("dict[object, Any]", self._written).get(key, _ABSENT)
        return value is not _REMOVED and (value is not _ABSENT or self._began_with(key))

    def __repr__(self) -> str:
        return repr({key: self[key] for key in self})

    def see(self, call: CallState) -> None:
        """Show what a call of the same step changed: it ended, and the step's function goes on after it."""
        if call.changes is not None:
            self._calls.add(call.id)
            for key in (*call.changes.values, *call.changes.removed):
                self._written.pop(key, None)

    def close(self) -> StateChange | None:
        """Return what was changed, None if nothing was; from now on nothing can be.

        Raises:
            TypeError: a value is no JSON data; the message names the owner and the key.
        """
        if not self._written:
            self._refusal = self._refusal or "it has ended"
            return None
        values, removed = dict[str, Json](), list[str]()
        for key, value in self._written.copy().items():
            before = self._base.read(key, self._upto, self._calls) if self._began_with(key) else _ABSENT
            if value is not _REMOVED:
                copy = self._checked(key, value)
                if before is _ABSENT or not _is_same(before, copy):
                    values[key] = copy
            elif before is not _ABSENT:
                removed.append(key)
        self._refusal = self._refusal or "it has ended"
        return StateChange(values, tuple(removed)) if values or removed else None

    def _checked(self, key: str, value: Any) -> Json:
        try:
            return exact_copy({key: value})[key]
        except ValueError as error:
            raise TypeError(f"{self._owner}: ctx.state[{key!r}] {error}, got {value!r:.80}") from None

    @property
    def _base(self) -> ExtraState:
        base = self._state.extra_state or _NOTHING
        if not base.is_object:
            raise TypeError(
                f"{self._owner}: the extra_state of task {self._state.task_id} is a {type(base.initial).__name__}, and "
                "ctx.state needs an object: create the task with extra_state={...}"
            )
        return base

    def _began_with(self, key: Any) -> bool:
        try:
            self._base.read(key, self._upto, self._calls)
        except KeyError:
            return False
        return True

    def _check_writable(self, key: Any) -> None:
        if self._refusal is not None:
            raise TypeError(f"{self._owner}: ctx.state cannot be changed: {self._refusal}")
        if not isinstance(key, str):
            raise TypeError(f"{self._owner}: a key of ctx.state must be text, got {key!r:.80}")
        _ = self._base


def _is_same(before: Json, value: Json) -> bool:
    """Whether two values are written alike: 1, 1.0 and True are not."""
    if type(before) is not type(value) or before != value:
        return False
    return not isinstance(before, (dict, list)) or json.dumps(before) == json.dumps(value)
