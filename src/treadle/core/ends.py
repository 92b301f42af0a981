"""End events of calls without a result. The event follows from the attempts of the call.

    attempts of the call                    reason of the end     outcome
    none began, or none reached the tool    it is not to begin    refused, cancelled or invalid: "was not run"
    the last failed, more were allowed      it is not to begin    error or timeout, as it failed
    one was cut off, the tool only reads    it is not to begin    cancelled: "was stopped"
    the last raised, or took too long       its failure           error or timeout
    one went on in the background           its ticket expires    timeout, if the tool only reads, else unknown
    one went on in the background           it is to stop         cancelled, if the tool only reads, else unknown
    one was cut off, the tool may write     any of these          unknown
    the last asked a person, midway         it is not to begin    unknown

The last rows take precedence. An attempt that was cut off may have taken effect, however later attempts failed. If a
call was ended for an external reason, `Failure.kind` names it.
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.core.events import Failure, Outcome, ToolEnded
from treadle.core.ids import base_call_id
from treadle.core.messages import Content, Text
from treadle.core.observation import observation
from treadle.core.steps import CallState


def observe(
    end: ToolEnded, observed: str | Sequence[Content], limit: int, *, is_output: bool, reads_on: bool
) -> ToolEnded:
    """Return the end of a call that returned, with its observation for the model.

    Args:
        end: the end event; without an observation the model sees the output as text.
        observed: the observation for the model, uncut.
        limit: the most characters that the model sees.
        is_output: whether `observed` is the output as text. Then it is not stored a second time.
        reads_on: whether the model can read the rest with `read_output`.
    """
    texts = (
        [observed]
        if isinstance(observed, str)
        else [part.text for part in observed if isinstance(part, Text)]
    )
    end.cut = sum(map(len, texts)) > limit
    if end.cut and not is_output:
        end.whole = "".join(texts)
    if end.cut or not is_output:
        end.observation = observation(
            observed, call_id=base_call_id(end.call), limit=limit, reads_on=reads_on
        )
    return end


def withheld_end(call: CallState, outcome: Outcome, error: Failure) -> ToolEnded:
    """Return the end of a call that will not begin, or not begin again.

    Args:
        call: a call that is not in flight.
        outcome: its outcome if it never began.
        error: the reason. The end has its `kind`, with any outcome.
    """
    if call.in_doubt or call.is_halfway:
        return unknown_end(call, error.kind)
    if call.stopped is not None:
        outcome = "timeout" if call.stopped.kind == "timeout" else "error"
        error = Failure("tool", error.kind, call.stopped.message, call.id, traceback=call.stopped.traceback)
    elif call.cut_off:
        outcome = "cancelled"
        error = Failure(
            error.source, error.kind, f"{call.name} was stopped after it began. {error.message}", call.id
        )
    return ToolEnded(call.step, call.id, outcome, error=error)


def not_begun(call: CallState) -> str:
    """Return the clause that says that a call does not begin, or does not begin again."""
    return f"{call.name} {'does not begin again' if call.attempt else 'was not run'}"


def failed_end(call: CallState, failure: Failure, *, cut_off: bool = False) -> ToolEnded:
    """Return the end of a call whose last attempt failed. `cut_off`: the tool was stopped before it ended."""
    if call.in_doubt or (cut_off and call.effect != "read"):
        return unknown_end(call, failure.kind, failure.message, failure.traceback)
    kinds: dict[str, Outcome] = {"timeout": "timeout", "abandoned": "abandoned"}
    return ToolEnded(call.step, call.id, kinds.get(failure.kind, "error"), error=failure)


def expired_end(call: CallState) -> ToolEnded:
    """Return the end of a call in the background whose ticket was not completed in time."""
    text = f"{call.name} went on in the background, and was not completed before its ticket expired"
    end = failed_end(call, Failure("tool", "timeout", text, call.id), cut_off=True)
    end.output = call.output
    return end


def withdrawn_end(call: CallState, reason: str) -> ToolEnded:
    """Return the end of a background call whose ticket is withdrawn."""
    reason = f"it went on in the background, and {reason}"
    if call.effect != "read":
        end = unknown_end(call, "cancelled", reason)
    else:
        text = f"{call.name} was stopped after it began: {reason}."
        end = ToolEnded(call.step, call.id, "cancelled", error=Failure("tool", "cancelled", text, call.id))
    end.output = call.output
    return end


def unknown_end(call: CallState, kind: str = "unknown", reason: str = "", traceback: str = "") -> ToolEnded:
    """Return the end of a call with unknown effect, since an attempt of it was cut off."""
    if not reason and call.stopped is not None:
        reason, traceback = call.stopped.message, call.stopped.traceback
    repeated = (
        f"It was begun {call.attempt} times, each time with the same idempotency key."
        if call.effect == "idempotent" and call.attempt > 1
        else "It was not repeated."
    )
    text = (
        f"outcome_unknown: {call.name} began and it is not known whether it took effect"
        f"{f' ({reason})' if reason else ''}. {repeated} Find out before you call it again."
    )
    return ToolEnded(
        call.step, call.id, "unknown", error=Failure("tool", kind, text, call.id, traceback=traceback)
    )
