"""Errors of the user's own code, logged once and stored with their traceback for people. Models never see them.

    a function raises --> kept(error, ...) --> one record of `treadle.tasks`, with `exc_info`
                              |
                              +--> `Failure.traceback` --> journal --> results, `treadle show`, `--json`, HTTP
                                          |
                                          +--> cause_of(failure): the error itself, or its text in the journal

All of them are free of secrets that the runner knows. If a traceback contains one, or could not be searched completely,
its text in the journal replaces the error.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any, Final

from treadle.core.display import one_line
from treadle.core.redaction import Secrets
from treadle.core.state import TaskState
from treadle.core.tracebacks import (
    RaisedElsewhere,
    Stack,
    UserError,
    cause,
    hidden_piece,
    hung_at,
    linked,
    traceback_text,
    user_error,
)
from treadle.engine.task_log import is_heard
from treadle.engine.vault import NO_VAULT, Vault
from treadle.errors import StoredTraceback, TreadleError

_LOG: Final = logging.getLogger("treadle.tasks")


def kept(
    error: BaseException,
    state: TaskState | None,
    vault: Vault = NO_VAULT,
    *,
    function: str,
    step: str = "",
    call: str = "",
) -> str:
    """Log an error, and return its traceback for the journal, empty if the user's code did not raise it.

    An error of Treadle that the user's code raises or passes on, such as `ToolError`, is an answer, and not logged.

    Args:
        error: the error.
        state: the state of the task; None outside of a drive.
        vault: hides secrets.
        function: the name of the function that raised, for people.
        step: the id of the step.
        call: the id of the call.
    """
    raised = user_error(error)
    if raised is None:
        return ""
    text = _text(raised, vault)
    if not isinstance(raised.error, TreadleError) and is_heard():
        _tell(state, function, step, call, cause(text))
    return text


def kept_hang(
    stack: Stack,
    state: TaskState | None,
    vault: Vault = NO_VAULT,
    *,
    function: str,
    step: str = "",
    call: str = "",
) -> str:
    """Log the position of a user's function when its time was up, and return it for the journal, like `kept`.

    Args:
        stack: the frames at the time limit.
        state: the state of the task; None outside of a drive.
        vault: hides secrets.
        function: the name of the function for people.
        step: the id of the step.
        call: the id of the call.
    """
    hung = hung_at(stack)
    if hung is None:
        return ""
    text = _text(hung, vault)
    if is_heard():
        _tell(state, function, step, call, cause(text), "took too long")
    return text


def shown(error: BaseException, vault: Vault) -> BaseException:
    """Return an error for a log, without secrets, and without frames of Treadle above those of the user."""
    raised = user_error(error)
    if raised is not None:
        return cause(_text(raised, vault))
    return StoredTraceback(vault.error_text(error))


def _text(raised: UserError, vault: Vault) -> str:
    """Return the traceback of an error without secrets. If it had none, it links to the error itself."""
    pieces, secrets = raised.pieces, vault.known
    if vault.hide_in is not None and not (raised.is_whole and _is_clean("".join(pieces), secrets)):
        hide = partial(secrets.hide, deep=True)
        text = hide(traceback_text([hidden_piece(piece, hide) for piece in pieces]))
    elif isinstance(raised.error, RaisedElsewhere):
        text = traceback_text(pieces)
    else:
        text = linked(traceback_text(pieces), raised.error)
    return text


def _is_clean(text: str, secrets: Secrets) -> bool:
    return secrets.hide(text, deep=True) == text


def _tell(
    state: TaskState | None,
    function: str,
    step: str,
    call: str,
    error: BaseException,
    problem: str = "raised an error",
) -> None:
    where = f", call {call}" if call else f", step {step}" if step else ""
    event = "user_code_raised" if problem == "raised an error" else "user_code_hung"
    facts: dict[str, Any] = {"event": event, "step": step, "call": call, "function": function}
    if state is None:
        _LOG.warning("%s %s", function, problem, exc_info=error, extra=facts)
        return
    facts |= {"task_id": state.task_id, "agent": state.agent, "thread_id": state.thread}
    _LOG.warning(
        "task %s of %s%s: %s %s",
        *(one_line(state.task_id), state.agent, where, one_line(function), problem),
        exc_info=error,
        extra=facts,
    )
