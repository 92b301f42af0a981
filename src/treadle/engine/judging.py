"""Judgements of calls before they start, as effects.

    JudgeCall --> rules and functions of all policies, needs_approval= of the tool --> the strictest verdict
        allow, none    CallJudged: the call starts
        deny           CallJudged: the call ends as denied
        replace        CallJudged: the call has other arguments, and is judged anew
        ask            ApprovalRequested; in a headless run, or where a function raised or was late: denied

The begin of a judgement is not journalled, and an interrupted judgement is repeated. An approval covers the arguments
and the tool that the approver saw. `approval_binding` compares both when the call is to start.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Final, TypeAlias, TypeVar, cast

from treadle.core import events as e
from treadle.core.codec import storable
from treadle.core.effects import JudgeCall
from treadle.core.messages import Json
from treadle.core.observation import whole_error_text
from treadle.core.permits import ABSENT, Grant, Permit, are_same, argument_at, digest_of
from treadle.core.state import TaskState
from treadle.core.steps import CallState
from treadle.core.tracebacks import Stack, StandsForCause, stack_of_coroutine, stack_of_thread
from treadle.engine.approval_binding import definition_of, may_decide
from treadle.engine.effect_context import EffectContext
from treadle.engine.effect_in_flight import EffectInFlight
from treadle.engine.journal_writer import Recorder
from treadle.engine.policy_in_force import judges_of
from treadle.engine.step_threads import in_thread, thread_of
from treadle.engine.tool_calls import read_only_context, validated_arguments
from treadle.engine.vault import NO_VAULT
from treadle.errors import TreadleError
from treadle.policy.requests import Surroundings, call_request, handoff_request
from treadle.policy.verdicts import (
    MAX_REPLACEMENTS,
    Allow,
    AskPerson,
    Deny,
    EffectKind,
    EffectRequest,
    Judge,
    PolicyVerdict,
    Replace,
    strictest,
)
from treadle.ports import Tool

T = TypeVar("T")

Fits: TypeAlias = Callable[[Grant, Collection[str]], bool]

TOOL_SECONDS: Final = 10.0
"""Seconds for `needs_approval=` and for `preview=` of a tool, each."""

APPROVAL_SECONDS: Final = 7 * 24 * 3600.0
"""Seconds until a request for approval expires, unless the options or the rule say otherwise."""

NEEDS_APPROVAL: Final = "needs_approval"
"""The id of the rule for a tool that itself asks for an approval."""


class JudgementInFlight(EffectInFlight[JudgeCall]):
    """The judgement of a call before it starts."""

    __slots__ = ("_arguments", "_policy")

    ends_before_undo: ClassVar[bool] = False

    _arguments: Any
    _policy: str

    @property
    def name(self) -> str:
        return self.effect.call.name

    def begin(self, record: Recorder) -> bool:
        """Begin without an event, or record the end of the call if its arguments are invalid."""
        self._arguments = validated_arguments(self.context, self.effect.call, record)
        return self._arguments is not None

    async def run(self) -> list[e.Event]:
        """Judge the call, and return the event of the decision."""
        try:
            self.enter()
            return [await self.judged_with(self._arguments)]
        except asyncio.CancelledError:
            return self.broken("it cancelled itself") if self.cancelled_itself() else []

    def cut_off(self) -> list[e.Event]:
        """Return no event, since the call is judged again when the task continues."""
        return []

    def broken(self, text: str, traceback: str = "") -> list[e.Event]:
        """Return the denial of the call."""
        return [self._judged(Deny(None, f"it could not be judged: {text}", traceback))]

    def is_overtaken(self, state: TaskState) -> bool:
        """Whether the call has ended, or was edited or judged, meanwhile."""
        call = self.effect.call
        return state.open_call(call.id) is not call or not _is_open_to_judgement(call)

    # ------------------------------------------------------------------------------------- verdicts

    async def judged_with(self, validated: Any) -> e.CallJudged | e.ApprovalRequested:
        """Judge a call whose arguments were validated, and return the event of the decision."""
        self._arguments = validated
        event = await self._event(await self._verdict())
        event.policy = self._policy
        return event

    async def _verdict(self) -> PolicyVerdict | None:
        context, call = self.context, self.effect.call
        tool = context.runtime.tools[call.name]
        verdict: PolicyVerdict | None = None
        in_force = context.policy.in_force
        self._policy = in_force.name
        if judges := judges_of(in_force, context.inherited.judges):
            await context.learn_labels()
            request = self._request(tool)
            verdicts = await asyncio.gather(*[verdict_of(judge, request, context) for judge in judges])
            verdict = strictest([each for each in verdicts if not self._changes_nothing(each)])
            if isinstance(verdict, AskPerson):
                from treadle.policy.composition import one_question

                verdict = one_question([each for each in verdicts if isinstance(each, AskPerson)])
        if tool.spec.needs_approval and (verdict is None or isinstance(verdict, Allow)):
            verdict = await self._verdict_of_tool(tool) or verdict
        elif tool.spec.needs_approval and isinstance(verdict, AskPerson):
            verdict = _with_reason_of(tool, verdict)
        return verdict

    def _request(self, tool: Tool) -> EffectRequest:
        context, call, spec = self.context, self.effect.call, tool.spec
        rules, around = context.runtime.rules, surroundings(context)
        if call.name in rules.handoffs:
            return handoff_request(context.state, call, spec, rules.handoffs[call.name], around)
        kind: EffectKind = "subagent" if call.name in rules.agents else "tool"
        as_taken: Any = getattr(tool, "as_taken", None)
        taken = as_taken(call.arguments) if as_taken is not None else None
        return call_request(context.state, call, spec, kind, around, taken)

    def _changes_nothing(self, verdict: PolicyVerdict | None) -> bool:
        """Whether a verdict replaces the arguments of the call with the same ones."""
        return isinstance(verdict, Replace) and verdict.arguments == self.effect.call.arguments

    async def _verdict_of_tool(self, tool: Tool) -> PolicyVerdict | None:
        """Return the tool's own verdict: ask, deny after a failure of its function, or None."""
        call = self.effect.call
        rule, why = getattr(tool, "asks_as", NEEDS_APPROVAL), getattr(tool, "asks_because", "")
        ask = AskPerson(rule, why or "its tool asks for it")
        decide: Any = getattr(tool, "needs_approval", None)
        if decide is None:
            return ask
        try:
            ctx = read_only_context(self, call, "needs_approval=")
            return ask if await within(TOOL_SECONDS, decide(self._arguments, ctx)) else None
        except Exception as error:  # noqa: BLE001  a gate that fails stays shut
            return self._failed_function(NEEDS_APPROVAL, "needs_approval=", error)

    # --------------------------------------------------------------------------------------- events

    async def _event(self, verdict: PolicyVerdict | None) -> e.CallJudged | e.ApprovalRequested:
        if not isinstance(verdict, AskPerson):
            return self._judged(verdict)
        context, call = self.context, self.effect.call
        definition = definition_of(context.runtime, call.name)
        answered, grant = await answered_for(context, verdict, call.permit, call.name, definition, self._fits)
        if not isinstance(answered, AskPerson):
            judged = self._judged(answered)
            judged.grant = grant
            return judged
        digest = digest_of(call.arguments)
        number, preview, traceback = call.requests + 1, None, ""
        if context.runtime.tools[call.name].spec.previews:
            preview, traceback = await self._preview()
        request = approval_request(context, answered, call.step, call.id, number, definition, digest, preview)
        request.traceback = traceback
        return request

    def _fits(self, grant: Grant, names: Collection[str]) -> bool:
        """Whether the named arguments equal those of the approved call, also in their form for the tool."""
        call = self.effect.call
        if not are_same(names, grant.arguments, call.arguments):
            return False
        as_taken: Any = getattr(self.context.runtime.tools[call.name], "as_taken", None)
        if as_taken is None:
            return True
        one, other = as_taken(grant.arguments), as_taken(call.arguments)
        return one is not None and other is not None and are_same(names, one, other)

    def _judged(self, verdict: PolicyVerdict | None) -> e.CallJudged:
        call = self.effect.call
        if verdict is None or isinstance(verdict, AskPerson):
            return e.CallJudged(call.step, call.id, "allow")
        rule, reason = verdict.rule, verdict.reason
        if not isinstance(verdict, Replace):
            if isinstance(verdict, Deny):
                return e.CallJudged(call.step, call.id, "deny", rule, reason, traceback=verdict.traceback)
            return e.CallJudged(call.step, call.id, "allow", rule, reason)
        if call.replaced >= MAX_REPLACEMENTS:
            reason = f"its arguments were replaced {call.replaced} times, and are not accepted yet"
            return e.CallJudged(call.step, call.id, "deny", rule, reason)
        try:
            stored: Any = storable(verdict.arguments)
            if not isinstance(stored, dict):
                raise ValueError("they are no object")  # noqa: TRY004  one error for all that is refused
        except ValueError as error:
            reason = f"the policy replaced its arguments by data that cannot be stored: {error}"
            return e.CallJudged(call.step, call.id, "deny", rule, reason)
        arguments = cast("dict[str, Json]", stored)
        if self.context.vault.is_in(arguments):
            reason = "the policy put a secret of this process into its arguments"
            return e.CallJudged(call.step, call.id, "deny", rule, reason)
        return e.CallJudged(call.step, call.id, "replace", rule, reason, arguments, call.arguments)

    async def _preview(self) -> tuple[Json, str]:
        """Return the tool's preview of the call. If it fails, return the reason for the approver and the traceback."""
        call = self.effect.call
        tool: Any = self.context.runtime.tools[call.name]
        try:
            ctx = read_only_context(self, call, "preview=")
            return storable(await within(TOOL_SECONDS, tool.preview(self._arguments, ctx))), ""
        except Exception as error:  # noqa: BLE001  the approver sees that there is no preview
            failed = self._failed_function(None, "preview=", error)
            return f"[no preview: {failed.reason.removeprefix('preview= failed: ')}]", failed.traceback

    def _failed_function(self, rule: str | None, function: str, error: Exception) -> Deny:
        """Return the denial for an error of a function of the call's tool."""
        call = self.effect.call
        name = f"{function} of {call.name}"
        return _failed(self.context, rule, function, name, error, TOOL_SECONDS, call.step, call.id)


def _with_reason_of(tool: Any, question: AskPerson) -> AskPerson:
    """Return a policy's question with the tool's own reason for an approval, if any."""
    why: str = getattr(tool, "asks_because", "")
    return (
        replace(question, reason=f"{why}; {question.reason}" if question.reason else why) if why else question
    )


async def refusal_of(
    in_flight: EffectInFlight[Any], call: CallState, arguments: dict[str, Json], validated: Any
) -> str | None:
    """Return the reason why a judged call must not run with changed arguments, or None.

    An approval covers only the arguments that the person saw. Policies judge again.

    Args:
        in_flight: the begun call.
        call: its state.
        arguments: the changed arguments.
        validated: the changed arguments in their form for the tool.
    """
    permit = call.permit
    if permit is not None and permit.request is not None:
        return f"a person approved others{f' ({permit.by})' if permit.by else ''}: rewrite them by a policy, before"
    rewritten = replace(call, arguments=arguments, permit=None)
    judgement = JudgementInFlight(JudgeCall(call.id, rewritten), in_flight.context, in_flight.stop_child)
    judged = await judgement.judged_with(validated)
    if isinstance(judged, e.ApprovalRequested):
        return f"these need an approval: {judged.reason or 'a policy asks for it'}"
    return None if judged.verdict == "allow" else judged.reason or f"a policy says {judged.verdict}"


async def answered_for(
    context: EffectContext,
    question: AskPerson,
    permit: Permit | None,
    name: str,
    definition: str,
    fits: Fits | None = None,
) -> tuple[Allow | Deny | AskPerson, str | None]:
    """Return the question to a person or the verdict that replaces it, with the id of the answering grant.

    Args:
        context: the context of the drive.
        question: the question of a policy or a guardrail.
        permit: the earlier decision. An approver who wrote the arguments or the content is not asked again.
        name: the name of the tool or of the content.
        definition: the digest of the definition that an approval covers.
        fits: returns whether the named arguments equal those of a grant's call.
    """
    if permit is not None:
        return Allow(question.rule, "its approver wrote the arguments"), None
    # An approver writes a required argument for each call.
    about, single = (name, definition, question.rule), question.every_call or question.argument is not None
    granted = None if single else await _granted(context, question, about, fits)
    if granted is not None:
        return granted
    if context.runtime.options.interaction == "headless":
        return Deny(question.rule, "it needs an approval, and the run is headless"), None
    return question, None


async def _granted(
    context: EffectContext, question: AskPerson, about: tuple[str, str, str | None], fits: Fits | None
) -> tuple[Allow, str] | None:
    """Return the grant that answers a question, for the same tool, definition and rule.

    A grant does not answer a question that its author must not decide.
    """
    for grant in context.state.grants:
        if (grant.tool, grant.definition, grant.rule) != about or not may_decide(question, grant.by):
            continue
        same = tuple(dict.fromkeys((*question.same, *grant.same)))
        if not same or (fits is not None and _is_bound(question, grant) and fits(grant, same)):
            where = f"for the task with the same {', '.join(same)}" if same else "for the task"
            return _lifted(question, grant.request_id, f"approved {where}{_by(grant.by)}")
    if context.standing_grants is None or question.rule is None or question.same:
        return None
    for grant in await context.standing_grants(about[0]):
        if (
            (grant.tool, grant.definition, grant.rule) == about
            and grant.holds_in(context.conversation)
            and may_decide(question, grant.by)
        ):
            where = "for all tasks" if grant.thread_id is None else "for the thread"
            return _lifted(question, grant.grant_id, f"approved {where}{_by(grant.by)}")
    return None


def _is_bound(question: AskPerson, grant: Grant) -> bool:
    """Whether the approved call had an argument that the question names. Otherwise the names are misspelt."""
    names = question.same or grant.same
    return any(argument_at(grant.arguments, name) is not ABSENT for name in names)


def _lifted(question: AskPerson, grant: str, why: str) -> tuple[Allow, str]:
    return Allow(question.rule, f"{why} with {grant}"), grant


def approval_request(
    context: EffectContext,
    question: AskPerson,
    step: str,
    call: str,
    number: int,
    definition: str,
    digest: str,
    preview: Json = None,
) -> e.ApprovalRequested:
    """Return the request for approval, with its expiry."""
    seconds = question.expires or context.runtime.options.approval_expires or APPROVAL_SECONDS
    return e.ApprovalRequested(
        step,
        call,
        number,
        definition,
        digest,
        context.clock() + int(seconds * 1e6),
        question.rule,
        question.reason,
        preview,
        question.approvers,
        question.excluded,
        context.conversation if context.conversation != context.state.thread else None,
        question.argument,
        question.every_call,
        context.seen().untrusted,
        same=question.same,
    )


def _by(name: str | None) -> str:
    return f" by {name}" if name else ""


def _is_open_to_judgement(call: CallState) -> bool:
    return call.status == "proposed" and (call.permit is None or call.permit.status == "edited")


def surroundings(context: EffectContext) -> Surroundings:
    """Return a task's surroundings for a policy, such as labels, agents above, origins and the user's context."""
    origin, seen = context.channel.origin, context.seen()
    return Surroundings(
        labels=context.labels or {},
        agent_path=origin.agent_path if origin is not None else (),
        exposed=seen.effects,
        untrusted=seen.untrusted,
        context=context.user_context,
    )


async def verdict_of(judge: Judge, request: EffectRequest, context: EffectContext) -> PolicyVerdict | None:
    """Return the verdict of a policy, including its functions."""
    return judge.judge(request, await answers_of(judge, request, context))


async def answers_of(
    judge: Judge, request: EffectRequest, context: EffectContext | None = None
) -> Sequence[PolicyVerdict | None]:
    """Return the verdicts of a policy's functions, each within the deadline of the policy."""
    functions = judge.functions_for(request)
    if not functions:
        return ()
    kinds = (Allow, AskPerson, Deny, Replace)
    return await asyncio.gather(
        *[
            answer_of(each.id, each.function, request, judge.deadline, kinds, "the policy function", context)
            for each in functions
        ]
    )


async def answer_of(
    rule: str,
    function: Callable[[Any], Any],
    request: Any,
    seconds: float,
    kinds: tuple[type[Any], ...],
    subject: str,
    context: EffectContext | None = None,
) -> Any:
    """Return the verdict of a function. If it raises, is late, or returns another type, it denies.

    Args:
        rule: the id of the function in verdicts.
        function: runs in the event loop if it is async, else in a thread.
        request: its argument.
        seconds: its time limit.
        kinds: the classes of verdicts.
        subject: the name of this kind of function in messages.
        context: the context of the task's effects. None: outside of a drive.
    """
    try:
        verdict = await within(seconds, _called(function, request))
    except Exception as error:  # noqa: BLE001  a gate that fails stays shut
        call: str = getattr(request, "call", "")
        return _failed(context, rule, subject, f"{subject} {rule}", error, seconds, request.step, call)
    if verdict is None or isinstance(verdict, kinds):
        return verdict
    return Deny(rule, f"{subject} returned a {type(verdict).__name__}, which is no verdict")


async def _called(call: Callable[[Any], Any], request: Any) -> Any:
    if inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(getattr(call, "__call__", None)):  # noqa: B004
        verdict: Any = call(request)
    else:
        verdict = await in_thread(partial(call, request), alone=True)
    return await verdict if inspect.isawaitable(verdict) else verdict


async def within(seconds: float, work: Awaitable[T]) -> T:
    """Return the value of an awaitable. Raises `TimeoutError` once the time is up, even if the awaitable continues.

    An exit, such as a `SystemExit`, is raised as an ordinary error instead.
    """
    task = asyncio.ensure_future(_contained(work))
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if done:
        return task.result()
    late = _Late(_stack_of(task))
    task.cancel()
    task.add_done_callback(_collect)
    raise late


def _stack_of(task: asyncio.Task[Any]) -> Stack:
    """Return the frames of a waiting task: of its coroutines, and of the thread that they wait for."""
    stack = list(stack_of_coroutine(task.get_coro()))
    if thread := thread_of(getattr(task, "_fut_waiter", None)):
        stack += stack_of_thread(thread)
    return stack


async def _contained(work: Awaitable[T]) -> T:
    """Return the value of an awaitable. Wraps exits, since the event loop raises a `SystemExit` in all tasks."""
    try:
        return await work
    except (Exception, asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:
        raise _Exit(f"it raised {whole_error_text(error)}") from error


class _Late(TimeoutError):
    """A function exceeded its time limit."""

    def __init__(self, stack: Stack) -> None:
        super().__init__()
        self.stack = stack


class _Exit(StandsForCause, TreadleError):
    """A function raised an exit, such as `SystemExit`."""


def _collect(task: asyncio.Future[Any]) -> None:
    """Retrieve the error of a late function, which was already reported as late."""
    if not task.cancelled():
        task.exception()


def _failed(
    context: EffectContext | None,
    rule: str | None,
    subject: str,
    function: str,
    error: Exception,
    seconds: float,
    step: str,
    call: str,
) -> Deny:
    """Return the denial for an error of a judging function."""
    from treadle.engine.user_errors import kept, kept_hang

    vault = NO_VAULT if context is None else context.vault
    state = None if context is None else context.state
    if isinstance(error, _Late):
        trace = kept_hang(error.stack, state, vault, function=function, step=step, call=call)
        return Deny(rule, f"{subject} failed: it took longer than {seconds:g} s", trace)
    text = vault.error_text(error)
    trace = kept(error, state, vault, function=function, step=step, call=call)
    return Deny(rule, f"{subject} failed: {text}", trace)
