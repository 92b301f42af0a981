"""`StateView`: one call's view of the task's `extra_state`, by a `StateAccess`.

An access reads the state from the beginning of its call, and collects the writes of the call. `close` returns these as
one `StateChange`, for the event that ends the call. So the changes of a call are atomic. An attempt that begins again
reads the same values as the one before.

The first read of a list or an object copies it, and `close` detects changes of the copy. Only keys with different
values are part of the change.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, MutableMapping
from typing import Any, Final

from treadle.core.codec import exact_copy
from treadle.core.events import StateChange
from treadle.core.extra_state import ExtraState
from treadle.core.messages import Json, copied
from treadle.core.state import TaskState
from treadle.core.steps import CallState

_NOTHING: Final = ExtraState()
_REMOVED: Final[Any] = object()
_ABSENT: Final[Any] = object()


class StateAccess:
    """The access of one call to the task's `extra_state`. It is safe in any thread.

    Args:
        state: the task.
        upto: the event at which the call began.
        owner: the owner of the access, for errors, such as "tool 'add'".
        refusal: the reason why the state is read-only. None: it can be changed.
    """

    __slots__ = ("_calls", "_owner", "_refusal", "_state", "_upto", "_written")

    def __init__(self, state: TaskState, upto: int, owner: str, *, refusal: str | None = None) -> None:
        self._state, self._upto, self._owner, self._refusal = state, upto, owner, refusal
        self._written: dict[object, Any] = {}
        """by key: set values, copies of the lists and objects that were read, and `_REMOVED`"""

        self._calls: set[str] = set()
        """ids of the calls whose later changes are visible too"""

    def has(self, key: object) -> bool:
        value = self._written.get(key, _ABSENT)
        return value is not _REMOVED and (value is not _ABSENT or self._before(key) is not _ABSENT)

    def read(self, key: str) -> Json:
        """Return the value of a key. Raises `KeyError`."""
        value = self._written.get(key, _ABSENT)
        if value is _ABSENT:
            value = self._before(key)
            if isinstance(value, (dict, list)):
                return self._written.setdefault(
                    key, copied(value)
                )  # two threads that read it first get one copy
        if value is _REMOVED or value is _ABSENT:
            raise KeyError(key)
        return value

    def keys(self) -> list[str]:
        written: dict[Any, Any] = self._written.copy()
        keys = dict.fromkeys([*self._base.keys(self._upto, self._calls), *written])
        return [key for key in keys if written.get(key) is not _REMOVED]

    def write(self, key: str, value: Json) -> None:
        """Set a key. Raises `TypeError` if the state is read-only."""
        self._check_writable(key)
        self._written[key] = value

    def remove(self, key: str) -> None:
        """Remove a key. Raises `KeyError` if it does not exist, and `TypeError` if the state is read-only."""
        self._check_writable(key)
        if not self.has(key):
            raise KeyError(key)
        self._written[key] = _REMOVED

    def see(self, call: CallState) -> None:
        """Show the changes of an ended call to the function of its step."""
        if call.changes is not None:
            self._calls.add(call.id)
            for key in (*call.changes.values, *call.changes.removed):
                self._written.pop(key, None)

    def close(self) -> StateChange | None:
        """Return the changes, or None. The access is read-only from now on.

        Raises:
            TypeError: a value is not JSON data. The message names the owner and the key.
        """
        values, removed = dict[str, Json](), list[str]()
        written: dict[Any, Any] = self._written.copy()
        for key, value in written.items():
            before = self._before(key)
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
            raise TypeError(f"{self._owner}: ctx.state[{key!r}] {error}, got {_in_short(value)}") from None

    @property
    def _base(self) -> ExtraState:
        base = self._state.extra_state or _NOTHING
        if not base.is_object:
            raise TypeError(
                f"{self._owner}: the extra_state of task {self._state.task_id} is a {type(base.initial).__name__}, and "
                "ctx.state needs an object: create the task with extra_state={...}"
            )
        return base

    def _before(self, key: Any) -> Any:
        """Return the value of a key before the call's own changes, or `_ABSENT`."""
        try:
            return self._base.read(key, self._upto, self._calls)
        except KeyError:
            return _ABSENT

    def _check_writable(self, key: Any) -> None:
        if self._refusal is not None:
            raise TypeError(f"{self._owner}: ctx.state cannot be changed: {self._refusal}")
        if not isinstance(key, str):
            raise TypeError(f"{self._owner}: a key of ctx.state must be text, got {key!r:.80}")
        _ = self._base


class StateView(MutableMapping[str, Json]):
    """The task's `extra_state` for a call: JSON data by name. The call's changes are stored with its end."""

    __slots__ = ("_access",)

    def __init__(self, access: StateAccess) -> None:
        self._access = access

    def __getitem__(self, key: str) -> Json:
        return self._access.read(key)

    def __setitem__(self, key: str, value: Json) -> None:
        self._access.write(key, value)

    def __delitem__(self, key: str) -> None:
        self._access.remove(key)

    def __contains__(self, key: object) -> bool:
        return self._access.has(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._access.keys())

    def __len__(self) -> int:
        return len(self._access.keys())

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (self.copy(),)  # any copy is a plain dict, and changes nothing

    def copy(self) -> dict[str, Json]:
        """Return a copy as a dict. Changes of it do not affect the state."""
        return copied(dict(self))


def _is_same(before: Json, value: Json) -> bool:
    """Return whether two values are equal as JSON text: 1, 1.0 and True differ."""
    if type(before) is not type(value) or before != value:
        return False
    return not isinstance(before, (dict, list)) or json.dumps(before) == json.dumps(value)


def _in_short(value: Any) -> str:
    try:
        return f"{value!r:.80}"
    except ValueError:  # Python writes no whole number of more than 4,300 digits
        return f"a value of type {type(value).__name__} that Python cannot write"
