"""Tool calls as effects, with compensations and the reconciliation of lost calls."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from threading import Lock
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, cast

from treadle.agents.middleware import Layer, ToolInvocation
from treadle.core import events as e
from treadle.core.codec import flaw, plain
from treadle.core.cut_outputs import is_offered
from treadle.core.effects import CallTool, Reconcile, UndoCall
from treadle.core.ends import failed_end, not_begun, observe, withheld_end
from treadle.core.hiding import Pieces
from treadle.core.ids import base_call_id
from treadle.core.labels import Label, untrusted_origin
from treadle.core.messages import Content, File, Image, Json, Text, copied
from treadle.core.model_answer import SURPLUS, problem_clause
from treadle.core.observation import as_text, not_offered_text, unknown_tool_text
from treadle.core.permits import digest_of
from treadle.core.questions import AwaitingAnswer
from treadle.core.state import TaskState
from treadle.core.state_view import StateAccess, StateView
from treadle.core.steps import CallState
from treadle.core.tickets import digest_of_ticket, ticket_text
from treadle.core.tools import Happened, NotHappened
from treadle.core.tracebacks import HungThread, stack_of_error
from treadle.engine.abandoned import leave_behind, refuse_if_too_many
from treadle.engine.approval_binding import definition_of, is_void
from treadle.engine.effect_context import AgentRuntime, EffectContext
from treadle.engine.effect_in_flight import EffectInFlight
from treadle.engine.journal_writer import Recorder
from treadle.engine.middleware import Execution, ToolCut
from treadle.engine.output_reader import OUTPUT_READER, BoundReader, OutputReader
from treadle.engine.tree_limits import allows_call
from treadle.errors import MiddlewareError, ToolArgumentsInvalid, ToolError, ToolOutcomeUnknown
from treadle.ports import Background, CallServices, NoServices, Tool, ToolContext, ToolOutput
from treadle.results.artifacts import checked_artifacts, checked_sources

if TYPE_CHECKING:
    from treadle.engine.call_requests import CallRequests

_OPENING: Final = Lock()


class ToolCallInFlight(EffectInFlight[CallTool]):
    """A tool call of the model or of a function."""

    __slots__ = (
        *("_access", "_arguments", "_execution", "_hung", "_left", "_record", "_requests", "_returned"),
        *("_ticket", "_tool"),
    )

    _tool: Tool
    _record: Recorder
    _execution: Execution | None
    """its run through the middleware of its tool, if any"""

    _hung: str
    """the position of its code when its time was up, as a traceback"""

    _access: StateAccess | None
    """the call's access to the task's state, once the tool reads it"""

    _requests: CallRequests | None
    """the questions and kept values of the tool, if any"""

    _ticket: str
    """the ticket by which the call may end later; empty for a tool without background work"""

    _left: Background | None
    """the tool's return value, if it left work in the background"""

    _returned: ToolOutput | None
    """the return value of the tool; its middleware, or a check of the result, may still fail the call"""

    @property
    def name(self) -> str:
        return self.effect.call.name

    def begin(self, record: Recorder) -> bool:
        """Record the begin of the call, or its end if a limit is reached or its arguments are invalid."""
        context, call = self.context, self.effect.call
        if context.subagents is not None and not allows_call(context.subagents, call, record):
            return False
        self._arguments = validated_arguments(context, call, record)
        if self._arguments is None or (call.permit is not None and is_void(context, call, record)):
            return False
        tool = context.runtime.tools[call.name]
        self._tool = tool = BoundReader(context) if isinstance(tool, OutputReader) else tool
        self._access = self._execution = self._requests = self._left = self._returned = None
        self._record, self._hung = record, ""
        spec = tool.spec
        self.timeout = spec.timeout
        self._ticket = issue_ticket(context.state, call, record) if spec.background else ""
        started = e.ToolStarted(call.step, self.effect.id, spec.effect, call.attempt + 1, spec.undoable)
        if spec.trusted or spec.origin:
            started.label = spec.label
        if spec.private:
            started.exposed = ("private",)
        if spec.host is not None:
            started.host = level_of(tool)
        record(started)
        return True

    async def run(self) -> list[e.Event]:
        context, call = self.context, self.effect.call
        ctx = _tool_context(self, call, call.attempt, self._open_state, self._open_requests, self._ticket)
        is_hosted = call.host is not None
        if is_hosted:
            ctx.on_start = self._start_elsewhere
        try:
            refuse_if_too_many()
            if call.effect != "read" or self._ticket:
                # If the answer with the call were lost, another call might get its place and key.
                await context.durable()
            if context.runtime.layers is None:
                if not is_hosted:
                    self.enter()
                if context.enter_call is not None:
                    context.enter_call(call.id, call.attempt)
                result = self._returned = await self._tool.call(self._arguments, ctx)
            else:
                result = await self._through(context.runtime.layers.get(call.name, ()), ctx)
            if self._left is not None and type(result) is not Background:
                # Middleware cannot withdraw it.
                result = Background(result.output, origin=result.origin, expires=self._left.expires)
            if context.vault.hide_in is not None:
                # Hide secrets before the result is cut, since half a secret is hard to recognise.
                result = context.vault.known.hide_data(result)
            if type(result) is Background:
                end: e.ToolEnded | e.CallDeferred = self._deferred(result)
            else:
                end = tool_end(call, result, context.runtime)
            if self._access is not None:
                end.changes = self._access.close()
            if self._execution is not None or self.secrets or not self.entered:
                end.report = self._report(end)
            ends: list[e.Event] = [end]
        except asyncio.CancelledError as cut:
            if self.cancel_reason == "timeout":
                self._hung = self._hang_by(cut)
            ends = self._cancelled()
        except ToolCut as cut:
            ends = self._cut_by_middleware(str(cut), self.traceback_of(cut.__cause__ or cut))
        except ToolOutcomeUnknown as error:
            ends = self._lost(context.vault.error_text(error), self.traceback_of(error))
        except AwaitingAnswer as error:
            ends = self._failed(context.vault.error_text(error))
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001  an error of a tool is the call's error
            ends = self._failed(context.vault.error_text(error), self.traceback_of(error))
        if self._requests is not None and self._requests.pending:
            return [
                *self._requests.pending
            ]  # the tool starts again, and other results of this attempt do not count
        return ends

    def _hang_by(self, cut: asyncio.CancelledError) -> str:
        """Return the position of the call's code when its time was up, in its thread or at its cancellation."""
        where: Any = cut.__cause__
        stack = where.stack if isinstance(where, HungThread) else stack_of_error(cut)
        trace = self.hang_of(stack)
        return trace.replace(self._ticket, "[ticket]") if self._ticket else trace

    def _cancelled(self) -> list[e.Event]:
        """Return the end of a call that was cancelled, by its drive or by its own code."""
        if not self.cancelled_itself():
            return self.cut_off()
        execution = self._execution
        if execution is not None and execution.was_cut and self.effect.call.effect != "read":
            return self._cut_by_middleware("it was cancelled")
        return self._failed("the tool cancelled itself")

    # ----------------------------------------------------------------------------------- middleware

    async def _through(self, layers: Sequence[Layer], ctx: ToolContext[Any]) -> ToolOutput:
        """Run the tool inside its middleware. The timeout counts for both from here."""
        context, call, tool = self.context, self.effect.call, self._tool
        if self.on_entry is not None:
            self.on_entry()
        if context.enter_call is not None:
            context.enter_call(call.id, call.attempt)
        self._execution = Execution(layers, self._reach, self.context.vault.error_text)
        definition = partial(definition_of, context.runtime, call.name)
        return await self._execution.run(ToolInvocation(tool, copied(call.arguments), ctx, definition))

    async def _reach(self, passed: ToolInvocation[Any], by: Sequence[str]) -> ToolOutput:
        """Run the tool with the arguments of its innermost middleware."""
        execution, ctx, arguments = self._execution, passed.context, self._arguments
        assert execution is not None, "middleware runs as one"
        if by:
            written = await rewritten_arguments(self, self._record, passed.arguments, tuple(by))
            arguments = arguments if written is None else written
        if self.cancel_reason is not None or self.ends is not None:
            raise asyncio.CancelledError  # a middleware turned its cancellation into something else
        if (rewrite := passed.on_progress) is not None:

            def progress(value: Any) -> None:
                passed.context.progress(rewrite(value))

            ctx = replace(ctx, on_progress=progress)
        if self._tool.spec.host is None:
            self.entered = execution.reached = True
        elif self.timer is not None:
            self.timer.cancel()  # it may wait for a process, so the timeout restarts when it runs
        result = self._returned = await self._tool.call(arguments, ctx)
        if type(result) is Background:
            self._left = result
        return result

    def _start_elsewhere(self) -> None:
        """Note that the tool's code begins in its own process. Its timeout counts from here."""
        if self._execution is not None:
            self._execution.reached = True
        self.enter()

    def _cut_by_middleware(self, text: str, traceback: str = "") -> list[e.Event]:
        """Return the end of a call whose middleware stopped the tool. Its outcome is unknown."""
        if self.cancel_reason is not None:
            return self.cut_off()
        call = self.effect.call
        text = f"{call.name} was stopped by its middleware: {text}"
        failure = e.Failure("tool", "timeout", text, call.id, traceback=traceback)
        if call.effect != "write" and not self._has_retries() and not self._is_completed():
            end = failed_end(call, failure, cut_off=True)
            end.report = self._report(end)
            return [end]
        return [e.ToolStopped(call.step, call.id, "timeout", failure)]

    def _report(self, end: e.ToolEnded | e.CallDeferred) -> e.CallReport | None:
        """Return the actions and notes of a call's middleware, and whether a tool on a host ran."""
        returned = isinstance(end, e.CallDeferred) or end.outcome == "ok"
        report = None if self._execution is None else self._execution.report(returned=returned)
        ran = self.entered or self.effect.call.host is None
        if ran and not self.secrets:
            return report
        return replace(report or e.CallReport(), secrets=tuple(sorted(self.secrets)), ran=ran)

    def cut_off(self) -> list[e.Event]:
        """Return the end of a stopped call. It can run again, or its outcome is unknown."""
        call, reason = self.effect.call, self.cancel_reason or "interrupted"
        if not self.entered:
            if reason != "interrupted":
                how = "did not stop" if reason == "abandoned" else f"took longer than {self.timeout:g} s"
                return self._failed(
                    f"the middleware of {call.name} {how}, and had not called the tool", self._hung
                )
            stopped = e.ToolStopped(call.step, call.id, reason)
            if call.effect == "read":
                return [stopped]
            # Its begin was journalled and the tool never entered, so its outcome is known.
            return [stopped, e.OutcomeSettled(call.step, call.id, "not_happened", by="runner")]
        if reason == "interrupted":
            return [e.ToolStopped(call.step, call.id, reason)]
        if reason == "timeout":
            text = f"{call.name} took longer than {self._tool.spec.timeout:g} s"
            is_final = call.effect != "write" and not self._has_retries()
        else:
            text = f"{call.name} did not stop when it was cancelled"
            is_final = call.effect != "write"
        is_final = is_final and not self._is_completed()
        failure = e.Failure("tool", reason, text, call.id, traceback=self._hung)
        if is_final:
            return [failed_end(call, failure, cut_off=True)]
        return [e.ToolStopped(call.step, call.id, reason, failure)]

    def broken(self, text: str, traceback: str = "") -> list[e.Event]:
        """Return the failure of the call, which is not repeated."""
        call = self.effect.call
        failure = self._failure("error", text, traceback)
        if self._is_completed():
            return [e.ToolStopped(call.step, call.id, "error", failure)]  # its result has arrived already
        end = failed_end(call, failure)
        end.report = self._report(end)
        if self._returned is not None and call.effect != "read":
            output = self._output_for_undo(self._returned) if call.undo else None
            end.report = replace(end.report or e.CallReport(), took_effect=True, returned=output)
        return [end]

    def _output_for_undo(self, result: ToolOutput) -> Json:
        """Return the tool's output for the compensation of a call that failed after its tool returned."""
        if self.context.vault.hide_in is not None:
            result = self.context.vault.known.hide_data(result)
        return None if flaw(result.output) else result.output

    def _deferred(self, result: Background) -> e.CallDeferred:
        """Return the deferral of a call whose tool left work in the background."""
        call = self.effect.call
        if not self._ticket:
            raise ToolError(f"{call.name} returned Background, and does not declare background=True")
        if (beyond := flaw(result.output)) is not None:
            raise ToolError(f"the details of {call.name} about its work in the background are {beyond}")
        expires = self.context.clock() + int(result.expires * 1e6)
        label = None if result.origin is None else Label(result.origin, "untrusted")
        return e.CallDeferred(call.step, call.id, expires, result.output, label=label)

    def _is_completed(self) -> bool:
        """Whether the ticket of the call was completed while its tool still ran."""
        ticket = self.effect.call.ticket
        return ticket is not None and ticket.completion is not None

    def _open_state(self) -> StateView:
        if self._access is None:
            call = self.effect.call
            refusal = None if call.status == "begun" else "it has ended"
            self._access = StateAccess(self.context.state, call.began, f"tool {call.name!r}", refusal=refusal)
        return StateView(self._access)

    def _has_retries(self) -> bool:
        call = self.effect.call
        return call.attempt - call.attempts_that_asked <= self._tool.spec.retries

    def _open_requests(self) -> CallRequests:
        """Return the services for questions and kept values of this call, from any thread."""
        assert self.task is not None, "it runs"
        with _OPENING:
            if self._requests is None:
                from treadle.engine.call_requests import CallRequests  # most tools ask and keep nothing

                loop, call = self.task.get_loop(), self.effect.call
                self._requests = CallRequests(
                    self.context, call, self._record, lambda: self.ends is not None, loop
                )
            return self._requests

    def _failure(self, kind: str, text: str, traceback: str) -> e.Failure:
        if self._ticket:
            text, traceback = [each.replace(self._ticket, "[ticket]") for each in (text, traceback)]
        return e.Failure("tool", kind, text, self.effect.call.id, traceback=traceback)

    def _lost(self, text: str, traceback: str) -> list[e.Event]:
        """Return the end of an attempt that may have taken effect, as the tool reports."""
        call = self.effect.call
        failure = self._failure("lost", text, traceback)
        if call.effect != "write" and not self._has_retries():
            return [failed_end(call, failure, cut_off=True)]
        return [e.ToolStopped(call.step, call.id, "abandoned", failure)]

    def _failed(self, text: str, traceback: str = "") -> list[e.Event]:
        """Return the end of a failed attempt. The call may have retries left."""
        call = self.effect.call
        if self._has_retries() and call.effect != "write":
            took_effect = self._returned is not None and call.effect != "read"
            failure = self._failure("error", text, traceback)
            return [e.ToolStopped(call.step, call.id, "abandoned" if took_effect else "error", failure)]
        return self.broken(text, traceback)


class CompensationInFlight(EffectInFlight[UndoCall]):
    """The compensation of a finished call: its tool's `undo=`."""

    __slots__ = ("_tool",)

    _tool: Tool | None

    @property
    def name(self) -> str:
        return self.effect.call.name

    def begin(self, record: Recorder) -> bool:
        call = self.effect.call
        self._tool = tool = self.context.tool_of(call)
        started = e.ToolStarted(call.step, self.effect.id, "write", call.undo_attempt + 1, undoes=call.id)
        if tool is not None and tool.spec.host is not None:
            started.host = level_of(tool)
        record(started)
        self.timeout = self._tool.spec.timeout if self._tool is not None else None
        return True

    async def run(self) -> list[e.Event]:
        context, call, call_id, tool = self.context, self.effect.call, self.effect.id, self._tool
        if tool is None or not tool.spec.undoable:
            return self.broken(f"the agent has no tool {call.name} with undo=")
        ctx = _tool_context(
            self, call, call.undo_attempt, _read_only(context.state, call, "undo="), _no_services("undo=")
        )
        ctx = replace(ctx, call_id=call_id, idempotency_key=context.state.key_of(call_id))
        try:
            await context.durable()
            self.enter_by(tool, ctx)
            if context.enter_call is not None:
                context.enter_call(call_id, call.undo_attempt)
            await tool.undo(call.as_tool_call, ctx)
            return [e.ToolEnded(call.step, call_id, "ok")]
        except asyncio.CancelledError:
            if self.cancelled_itself():
                return self.broken("the compensation cancelled itself")
            return self.cut_off()

    def cut_off(self) -> list[e.Event]:
        """Return the stop of the compensation, which did not happen if its tool was not entered."""
        step, call_id = self.effect.call.step, self.effect.id
        stopped = e.ToolStopped(step, call_id, self.cancel_reason or "interrupted")
        if self.entered:
            return [stopped]
        return [stopped, e.OutcomeSettled(step, call_id, "not_happened", by="runner")]

    def broken(self, text: str, traceback: str = "") -> list[e.Event]:
        step, call_id = self.effect.call.step, self.effect.id
        failure = e.Failure("tool", "error", text, call_id, traceback=traceback)
        return [e.ToolEnded(step, call_id, "error", error=failure)]

    def traceback_of(self, error: BaseException, function: str = "") -> str:
        """Log an error of `undo=` and return its traceback, for people."""
        return super().traceback_of(error, function or f"undo= of {self.name}")


class ReconciliationInFlight(EffectInFlight[Reconcile]):
    """A call of a tool's `reconcile=` about a lost call. Its begin is not journalled."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return self.effect.call.name

    def begin(self, record: Recorder) -> bool:
        """Begin without an event, since asking has no effects."""
        tool = self.context.runtime.tools.get(self.effect.call.name)
        self.timeout = tool.spec.timeout if tool is not None else None
        return True

    async def run(self) -> list[e.Event]:
        """Ask the tool and return its verdict."""
        call = self.effect.call
        tool = self.context.runtime.tools[call.name]
        try:
            view = _read_only(self.context.state, call, "reconcile=")
            ctx = _tool_context(self, call, call.attempt, view, _no_services("reconcile="))
            self.enter_by(tool, ctx)
            verdict = await tool.reconcile(call.as_tool_call, ctx)
        except asyncio.CancelledError:
            if self.cancelled_itself():
                return self.broken("it cancelled itself")
            if self.cancel_reason == "timeout":
                return self.broken(f"it took longer than {tool.spec.timeout:g} s")
            return []
        if isinstance(verdict, Happened):
            return [e.OutcomeSettled(call.step, call.id, "happened", verdict.output, by="reconcile")]
        if isinstance(verdict, NotHappened):
            return [e.OutcomeSettled(call.step, call.id, "not_happened", by="reconcile")]
        return [e.OutcomeUnresolved(call.step, call.id)]

    def cut_off(self) -> list[e.Event]:
        """Return no event, since the tool is asked again. An abandoned question stays unresolved."""
        return self.broken("it did not stop") if self.cancel_reason == "abandoned" else []

    def traceback_of(self, error: BaseException, function: str = "") -> str:
        """Log an error of `reconcile=` and return its traceback, for people."""
        return super().traceback_of(error, function or f"reconcile= of {self.name}")

    def broken(self, text: str, traceback: str = "") -> list[e.Event]:
        """Return the unresolved outcome, with the reason."""
        call = self.effect.call
        text = f"reconcile= of {call.name} failed: {text}"
        failure = e.Failure("tool", "error", text, call.id, traceback=traceback)
        return [e.OutcomeUnresolved(call.step, call.id, failure)]

    def is_overtaken(self, state: TaskState) -> bool:
        """Whether the call was settled while its tool was being asked."""
        return self.effect.call.status != "lost"


def level_of(tool: Tool) -> str | None:
    """Return the isolation of a tool's function for results, at least the declared one."""
    return getattr(tool, "level", tool.spec.host)


def issue_ticket(state: TaskState, call: CallState, record: Recorder) -> str:
    """Record that a call has a ticket, and return the ticket's text, which is never stored."""
    from base64 import urlsafe_b64encode  # most processes need none

    ticket = ticket_text(urlsafe_b64encode(os.urandom(32)).decode().rstrip("="), state.task_id)
    record(e.TicketIssued(call.step, call.id, digest_of_ticket(ticket)))
    return ticket


def validated_arguments(context: EffectContext, call: CallState, record: Recorder) -> Any:
    """Return the validated arguments of a call, or None if they are invalid, which also ends the call."""
    tools, dialect = context.runtime.tools, context.runtime.agent.dialect
    tool = tools.get(call.name)
    is_tools, raised = False, None
    if call.problem is not None and call.problem.startswith(SURPLUS):
        text = f"{not_begun(call)}: {problem_clause(call.problem)}."
    elif call.problem is not None and dialect is not None:
        text = dialect.correction(call.problem)
    elif tool is None or (isinstance(tool, OutputReader) and not is_offered(context.state)):
        names = [name for name in tools if tools[name] is not OUTPUT_READER or is_offered(context.state)]
        text = unknown_tool_text(call.name, names if call.offered is None else call.offered)
    elif call.offered is not None and call.name not in call.offered:
        text = not_offered_text(call.name, call.offered)
    elif call.problem is not None:
        text = f"{not_begun(call)}: {problem_clause(call.problem)}."
    else:
        try:
            # A tool may change its arguments, but the journal keeps the model's.
            return tool.validate(copied(call.arguments))
        except ToolArgumentsInvalid as error:
            why = context.vault.error_text(error)
            text, is_tools, raised = f"{not_begun(call)}: {why}", error.is_tools, error
        except BaseException as error:  # noqa: BLE001  an error of a tool fails its own call alone
            why = context.vault.error_text(error)
            text, is_tools, raised = (
                f"{not_begun(call)}: its arguments could not be checked: {why}",
                True,
                error,
            )
    traceback = ""
    if raised is not None:
        from treadle.engine.user_errors import kept

        function = f"the check of the arguments of {call.name}"
        traceback = kept(
            raised, context.state, context.vault, function=function, step=call.step, call=call.id
        )
    end = withheld_end(call, "invalid", e.Failure("tool", "invalid", text, call.id, traceback=traceback))
    if is_tools and tool is not None:
        end.label = tool.spec.label or Label(f"tool:{call.name}", "untrusted")
    elif tool is not None and tool.spec.defined_by:  # the message may quote its schema
        end.label = Label(tool.spec.defined_by, "untrusted")
    record(end)
    return None


def tool_end(call: CallState, result: ToolOutput, runtime: AgentRuntime) -> e.ToolEnded:
    """Return the end of a call that returned. The model sees a bounded part of its result."""
    _check_output(result)
    seen: str | Sequence[Content]
    origin, is_output = result.origin, result.observation is None
    if result.observation is None:
        seen = as_text(result.output)
    elif isinstance(result.observation, str):
        seen = result.observation
    else:
        seen = tuple([Text(part) if isinstance(part, str) else part for part in result.observation])
        if origin is None and call.label is not None and call.label.integrity == "trusted":
            # An untrusted part makes the whole result untrusted.
            origin = next(filter(None, (untrusted_origin(part.label) for part in seen)), None)
    end = e.ToolEnded(
        call.step,
        call.id,
        "ok",
        result.output,
        display=result.display,
        sources=checked_sources(result.sources) if result.sources else (),
        artifacts=checked_artifacts(result.artifacts) if result.artifacts else (),
        label=None if origin is None else Label(origin, "untrusted"),
    )
    if is_output and len(seen) <= runtime.max_chars:
        return end
    return observe(end, seen, runtime.max_chars, is_output=is_output, reads_on=runtime.reads_cut_outputs)


def _check_output(result: ToolOutput) -> None:
    """Raise `TypeError` for a result that cannot be journalled, since a custom tool class may return any value."""
    if (beyond := flaw(result.output)) is not None:
        raise TypeError(f"the tool's output is {beyond}; it is of type {type(result.output).__name__}")
    if result.display is not None and not isinstance(result.display, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"the tool's display is no text but of type {type(result.display).__name__}")
    if result.origin is not None and (not isinstance(result.origin, str) or not result.origin):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(
            f"the tool's origin must be text, such as 'web:example.org', and is {result.origin!r:.80}"
        )
    seen = result.observation
    if seen is None or isinstance(seen, str):
        return
    for part in seen:
        if not isinstance(part, (str, Text, Image, File)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                "a part of the tool's observation must be text or a content part, and is a "
                f"{type(part).__name__}"
            )
        if not isinstance(part, str) and not isinstance(part.label, (Label, NoneType)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"the label of a part must be a Label, not a {type(part.label).__name__}")


async def rewritten_arguments(
    in_flight: EffectInFlight[Any], record: Recorder, arguments: dict[str, Json], by: tuple[str, ...]
) -> Any:
    """Check, judge and journal the arguments of middleware. Return them validated, or None if unchanged.

    Args:
        in_flight: the begun call.
        record: journals an event.
        arguments: the arguments of the middleware.
        by: the names of the middleware.

    Raises:
        ToolArgumentsInvalid: they do not fit the tool.
        MiddlewareError: they differ from the approved ones, or a policy does not allow them.
    """
    context, call, names = in_flight.context, in_flight.effect.call, ", ".join(by)
    try:
        arguments = plain(arguments)
        if (beyond := flaw(arguments)) is not None:
            raise ValueError(f"they are {beyond}")
        if digest_of(arguments) == digest_of(call.arguments):
            return None
        validated = context.runtime.tools[call.name].validate(copied(arguments))
    except (ToolArgumentsInvalid, ValueError, TypeError) as error:
        text = f"{call.name} was not run: the arguments that its middleware {names} wrote do not fit: {error}"
        raise ToolArgumentsInvalid(text) from None
    if call.permit is not None:
        assert context.refusal_of is not None, "the driver gives it where there is middleware"
        if (why := await context.refusal_of(in_flight, call, arguments, validated)) is not None:
            raise MiddlewareError(
                f"{call.name} was not run: its middleware {names} changed its arguments, and {why}"
            )
    record(e.ArgumentsRewritten(call.step, call.id, call.attempt, arguments, by))
    if call.effect != "read":
        await context.durable()
    return validated


def _read_only(state: TaskState, call: CallState, part: str) -> Callable[[], StateView]:
    """Return a function that opens a read-only view of the current state, for `undo=` and the like."""
    owner, refusal = f"{part} of tool {call.name!r}", "an undo restores it, and a question changes nothing"
    return lambda: StateView(StateAccess(state, state.seq, owner, refusal=refusal))


def read_only_context(in_flight: EffectInFlight[Any], call: CallState, part: str) -> ToolContext[Any]:
    """Return the context of a function beside a tool, before the call starts. `part` names the function in errors."""
    state = in_flight.context.state
    return _tool_context(in_flight, call, call.attempt, _read_only(state, call, part), _no_services(part))


def _no_services(part: str) -> Callable[[], CallServices]:
    return lambda: cast("CallServices", NoServices(part))


def _tool_context(
    in_flight: EffectInFlight[Any],
    call: CallState,
    attempt: int,
    open_state: Callable[[], StateView],
    open_services: Callable[[], CallServices],
    ticket: str = "",
) -> ToolContext[Any]:
    context = in_flight.context
    state, channel, vault = context.state, context.channel, context.vault
    pieces: Pieces | None = None

    def secret(name: str) -> str:
        tool = context.tool_of(call)
        value = vault.reveal(name, call.name, tool.spec.secrets if tool is not None else ())
        in_flight.secrets = in_flight.secrets | {name}
        return value

    def progress(value: Any) -> None:
        if channel.listeners:
            if vault.hide_in is not None:
                nonlocal pieces
                pieces = pieces or Pieces()
                value = pieces.hide(vault.known, value)
            event = e.ToolProgress(call.step, call.id, value, state.seq)
            event.tool_name = call.name
            channel.tell(event)

    def left_behind(still_runs: Callable[[], bool]) -> None:
        leave_behind(still_runs, call.name, state.task_id, call.id)
        if in_flight.cancel_reason == "interrupted":
            in_flight.cancel_reason = "abandoned"

    return ToolContext(
        state.task_id,
        state.thread,
        call.step,
        call.id,
        state.key_of(base_call_id(call.id)),
        state.agent,
        attempt,
        context.user_context,
        on_progress=progress,
        cancelled=lambda: in_flight.cancel_reason is not None,
        on_left_behind=left_behind,
        open_state=open_state,
        open_services=open_services,
        issued=ticket,
        open_secret=secret,
    )
