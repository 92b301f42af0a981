"""Extract the frames of the user's code from tracebacks, as text without values of variables.

    frames of the error          kept
    Treadle's own                never
    the standard library's       after the first frame of the user, or if there is no such frame
    all others                   always

An error that only Treadle's own frames raised has no traceback here, since its text explains it.

A function that took too long did not raise. The frames of its coroutines or its thread show its position at that
moment. They are inspected only then.
"""

from __future__ import annotations

import sys
import sysconfig
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from os import sep
from pathlib import Path
from traceback import FrameSummary, StackSummary, TracebackException, walk_stack, walk_tb
from types import FrameType
from typing import Any, Final, NamedTuple, TypeAlias, cast
from weakref import ref

from treadle.core.events import Failure
from treadle.core.observation import bounded, scrubbed, whole_error_text
from treadle.core.redaction import SECRET
from treadle.errors import StoredTraceback

TRACEBACK_CHARS: Final = 4_000
"""The most characters that are kept of a traceback, from its end, with the error."""

_PIECE_CHARS: Final = 1_000
"""The most characters that are kept of one frame or message, so that a long message leaves room for frames."""

SEARCHED_CHARS: Final = 8 * _PIECE_CHARS
"""The most characters of a piece that are searched for secrets. The middle of a longer piece is cut first."""

_MOST_PIECES: Final = 60
_NO_MESSAGE: Final = ('File "', "Traceback (", "Exception Group Traceback (")
_CUT: Final = "[... earlier frames cut ...]\n"
_STOPPED: Final = "TimeoutError: it was here when its time was up\n"

Stack: TypeAlias = Iterable[tuple[FrameType, int]]
"""Frames with their lines, the outermost first."""


class StandsForCause(Exception):
    """Raised by a coroutine instead of its cause, if the event loop must not see the cause, such as an exit."""


class HungThread(Exception):
    """The position of a thread when its time was up, as the cause of its waiter's cancellation."""

    def __init__(self, stack: Stack) -> None:
        super().__init__("its time was up")
        self.stack = stack


class RaisedElsewhere(Exception):
    """The report of an error in another process, with the pieces of its traceback."""

    def __init__(self, pieces: Sequence[str]) -> None:
        super().__init__("raised in another process")
        self.pieces = pieces


class UserError(NamedTuple):
    """An error of the user's code, and its traceback in pieces: frames and messages.

    A message and its notes are one piece, since a secret of several lines is only found in a whole. `is_whole` is true
    if no piece was cut or omitted.
    """

    error: BaseException
    pieces: list[str]
    is_whole: bool


def user_error(error: BaseException) -> UserError | None:
    """Return the error or cause that the user's code raised, or None.

    It is also None for an error that raises on inspection, for instance in its `__getattr__`.
    """
    try:
        return _user_error(error)
    except BaseException:  # noqa: BLE001 - even an exit
        return None


def _user_error(error: BaseException) -> UserError | None:
    while isinstance(error, StandsForCause) and error.__cause__ is not None:
        error = error.__cause__
    elsewhere = error.__cause__
    if isinstance(elsewhere, RaisedElsewhere):
        return _bounded(elsewhere, elsewhere.pieces)
    if not _is_raised_outside(error):
        cause, visited = error.__cause__, {id(error)}
        while cause is not None and not any(map(_is_user_file, _files_of(cause))):
            visited.add(id(cause))
            cause = cause.__cause__ if id(cause.__cause__) not in visited else None
        if cause is None:
            return None
        error = cause
    _cut_own_frames(error)
    trace = TracebackException.from_exception(error, compact=True)
    _strip(trace)
    return _bounded(error, list(trace.format()))


def hung_at(stack: Stack) -> UserError | None:
    """Return the position of the user's code when its time was up, as an error, or None without a frame of it."""
    try:
        frames = _frames_of(StackSummary.extract(iter(stack)))
    except BaseException:  # noqa: BLE001 - a file of the code may raise when its lines are read
        return None
    if not any(not _is_standard(frame.filename) for frame in frames):
        return None
    pieces = ["Traceback (most recent call last):\n", *StackSummary.from_list(frames).format(), _STOPPED]
    return _bounded(RaisedElsewhere(pieces), pieces)


def stack_of_error(error: BaseException) -> Stack:
    """Return the frames of an error's traceback, such as the cancellation of a late call."""
    return walk_tb(error.__traceback__)


def stack_of_coroutine(coroutine: Any) -> Iterator[tuple[FrameType, int]]:
    """Yield the exposed frames of a waiting coroutine, and of those that it awaits."""
    while coroutine is not None:
        for kind in ("cr", "gi", "ag"):
            frame = getattr(coroutine, f"{kind}_frame", None)
            if frame is not None:
                yield frame, frame.f_lineno
                coroutine = getattr(coroutine, "gi_yieldfrom" if kind == "gi" else f"{kind}_await", None)
                break
        else:
            return


def stack_of_thread(thread: int) -> Stack:
    """Return the present frames of a running thread, none if it has ended.

    Args:
        thread: its `threading.get_ident()`.
    """
    frame = sys._current_frames().get(thread)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    return [] if frame is None else list(walk_stack(frame))[::-1]


def traceback_text(pieces: Iterable[str]) -> str:
    """Return the end of a traceback as bounded text. Secrets must be masked in the pieces already."""
    newest_first: list[str] = []
    remaining = TRACEBACK_CHARS
    for piece in reversed([bounded(piece.rstrip("\n"), _PIECE_CHARS) + "\n" for piece in pieces]):
        remaining -= len(piece)
        if remaining < 0:
            newest_first.append(_CUT)
            break
        newest_first.append(piece)
    return "".join(reversed(newest_first)).rstrip("\n")


def hidden_piece(piece: str, hide: Callable[[str], str]) -> str:
    """Return a piece without secrets. A cut piece with secrets becomes `SECRET`, since the cut may split another."""
    hidden = hide(piece)
    return SECRET if len(piece) > SEARCHED_CHARS and hidden != piece else hidden


def pieces_of(error: BaseException) -> list[str]:
    """Return the traceback of an error in pieces, or only its text if the user's code did not raise it."""
    raised = user_error(error)
    return raised.pieces if raised is not None else [bounded(whole_error_text(error), SEARCHED_CHARS)]


def _bounded(error: BaseException, pieces: Sequence[str]) -> UserError:
    joined = _joined(pieces)
    bounded_pieces = [bounded(scrubbed(piece), SEARCHED_CHARS) for piece in joined[-_MOST_PIECES:]]
    is_whole = len(joined) <= _MOST_PIECES and all(len(piece) <= SEARCHED_CHARS for piece in joined)
    return UserError(error, bounded_pieces, is_whole)


def _joined(pieces: Sequence[str]) -> list[str]:
    """Return pieces with the lines of a message and its notes joined into one piece."""
    joined = list[list[str]]()
    is_message = False
    for piece in pieces:
        follows = is_message
        is_message = not piece.lstrip(" |+-").startswith(_NO_MESSAGE)
        if follows and is_message:
            joined[-1].append(piece)
        else:
            joined.append([piece])
    return ["".join(lines) for lines in joined]


def _is_raised_outside(error: BaseException) -> bool:
    """Return whether an error, or an error of its group, has a frame outside of Treadle."""
    if any(not name.startswith(_folders().ours) for name in _files_of(error)):
        return True
    return isinstance(error, BaseExceptionGroup) and any(
        map(_is_raised_outside, cast("BaseExceptionGroup[BaseException]", error).exceptions)
    )


def _files_of(error: BaseException) -> Iterator[str]:
    """Yield the file of each frame of an error."""
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame.f_code.co_filename
        trace = trace.tb_next


def _is_user_file(name: str) -> bool:
    folders = _folders()
    return not name.startswith((folders.ours, *folders.installed)) and not _is_standard(name)


def _cut_own_frames(error: BaseException) -> None:
    """Cut the traceback of an error before the first frame of the user, if it has one."""
    trace = error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if not name.startswith(_folders().ours) and not _is_standard(name):
            error.__traceback__ = trace
            return
        trace = trace.tb_next


def _strip(trace: TracebackException) -> None:
    """Keep only the user's frames in a traceback and in those of its causes."""
    traces, visited = [trace], set[int]()
    while traces:
        each = traces.pop()
        if id(each) in visited:
            continue
        visited.add(id(each))
        frames = _frames(each)
        # Without frames only the message is written, without a title.
        each.stack = StackSummary.from_list(frames) if frames else None  # type: ignore[assignment]
        traces += [
            linked_trace for linked_trace in (each.__cause__, each.__context__) if linked_trace is not None
        ]
        traces += each.exceptions or ()


def _frames(trace: TracebackException) -> list[FrameSummary]:
    return _frames_of(trace.stack or ())


def _frames_of(stack: Iterable[FrameSummary]) -> list[FrameSummary]:
    frames = [frame for frame in stack if not frame.filename.startswith(_folders().ours)]
    first = next((at for at, frame in enumerate(frames) if not _is_standard(frame.filename)), 0)
    return frames[first:]


def _is_standard(name: str) -> bool:
    folders = _folders()
    return name.startswith(("<frozen ", *folders.standard)) and not name.startswith(tuple(folders.installed))


class _Folders(NamedTuple):
    ours: str
    standard: Sequence[str]
    installed: Sequence[str]


@cache
def _folders() -> _Folders:
    def named(*names: str) -> list[str]:
        return [f"{Path(path)}{sep}" for name in names if (path := sysconfig.get_path(name))]

    ours = Path(__file__).parent.parent
    return _Folders(f"{ours}{sep}", named("stdlib", "platstdlib"), named("purelib", "platlib"))


class _Held:
    """An error that can still be chained."""

    __slots__ = ("__weakref__", "error")

    def __init__(self, error: BaseException) -> None:
        self.error = error


_RECENT: Final = deque[_Held](maxlen=32)
"""The last errors of this process. More of them would keep the variables of too many frames in memory."""


class _LinkedText(str):
    """A traceback in the journal's form, with a link to its error while that is recent."""

    __slots__ = ("held",)

    held: ref[_Held]

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)


def linked(text: str, error: BaseException) -> str:
    """Return a traceback as text, with a link to its error while that is one of the last of this process."""
    linked_text, record = _LinkedText(text), _Held(error)
    linked_text.held = ref(record)
    _RECENT.append(record)
    return linked_text


def cause_of(failure: Failure | None) -> BaseException | None:
    """Return the cause of a failure: the error of the user's code, or its text in the journal."""
    return cause(failure.traceback) if failure is not None and failure.traceback else None


def cause(text: str) -> BaseException:
    """Return the error of a traceback if it is still in memory, else an error with the text."""
    record = text.held() if isinstance(text, _LinkedText) else None
    return record.error if record is not None else StoredTraceback(text)
