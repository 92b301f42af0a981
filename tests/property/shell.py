"""A tiny synchronous shell over the pure part: it performs what `decide` wants, in any order, and can die anywhere."""

from collections import Counter
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

from treadle.agents.decide import function_calling, lifecycle
from treadle.agents.decide.guardrails import guarded
from treadle.agents.decide.rules import Rules
from treadle.core import codec
from treadle.core import events as e
from treadle.core.checks import Check, is_judged, passed_answer, standing
from treadle.core.effects import (
    CallModel,
    CallTool,
    Decision,
    Effect,
    JudgeCall,
    JudgeContent,
    JudgeRequest,
    Reconcile,
    ReleaseAnswer,
    UndoCall,
    Wait,
)
from treadle.core.ends import failed_end, withheld_end
from treadle.core.ids import answer_place, approval_id, input_place, result_place
from treadle.core.messages import Message, Text, ToolCall
from treadle.core.model import Finish, Usage
from treadle.core.model_answer import with_places
from treadle.core.rules.deferring import is_arrival
from treadle.core.rules.fold import apply
from treadle.core.state import Expiry, TaskState, TicketExpiry, start
from treadle.core.steps import CallState, Sleep
from treadle.core.tools import ToolSpec
from treadle.drivers.owned_tasks import OwnedTask
from treadle.drivers.ownership import recover
from treadle.engine import undo_plan
from treadle.engine.effect_context import idle
from treadle.engine.guarding import ContentJudgementInFlight
from treadle.engine.inbox import as_event
from treadle.errors import IrreversibleStep, StepNotFound, UndoUnfinished
from treadle.ports import InboxItem
from treadle.testing.audit import Evidence, JournalOf, LedgerEntry, audit

SPECS = {
    spec.name: spec
    for spec in (
        ToolSpec(name="look", read_only=True, retries=1),
        ToolSpec(name="put", idempotent=True),
        ToolSpec(name="save"),
        ToolSpec(name="book", undoable=True),
        ToolSpec(name="pay", reconcilable=True),
        ToolSpec(name="reply", read_only=True, return_direct=True),
        ToolSpec(name="render", idempotent=True, background=True),
        ToolSpec(name="ship", undoable=True, background=True),
        *[ToolSpec(name=f"transfer_to_{name}", read_only=True) for name in ("math", "desk", "shop")],
    )
}
HANDOFFS = {f"transfer_to_{name}": name for name in ("math", "desk", "shop")}
ASKED = (*SPECS, "nobody", "book", "book", "render", "ship")
"""Tools a model asks for, most often those that can be undone or go on in the background; one does not exist."""

GIVES = "final_answer"
"""What a model calls to give a typed answer, where answers are to be of a type."""


@dataclass
class Shell:
    """One task in a process that may crash; durable events survive it."""

    rules: Rules
    task_id: str = "t"
    durable: list[tuple[int, e.Event]] = field(default_factory=list)
    pending: list[e.Event] = field(default_factory=list)
    flights: dict[str, Effect] = field(default_factory=dict)
    epoch: int = 1
    clock: int = 0
    ledger: list[LedgerEntry] = field(default_factory=list)
    requests: list[list[Message]] = field(default_factory=list)
    fired: Counter[str] = field(default_factory=Counter)
    commands: int = 0
    state: TaskState = field(default_factory=lambda: start("t"))

    # ------------------------------------------------------------------------------------ the journal

    def record(self, event: e.Event, inbox: str | None = None) -> None:
        self.clock += 1
        event.seq, event.time = self.state.seq + 1, self.clock
        apply(self.state, event, self.epoch)
        self.pending.append(event)

    def commit(self) -> None:
        """Write what waits as one record, as bytes."""
        if not self.pending:
            return
        data, blobs = codec.encode(self.pending)
        read = codec.decode(data, blobs, self.pending[-1].seq)
        assert read == self.pending
        self.durable += [(self.epoch, event) for event in read]
        self.pending = []

    def journal(self) -> JournalOf:
        return JournalOf(self.task_id, [*self.durable, *((self.epoch, event) for event in self.pending)])

    def audit(self) -> None:
        seen = Evidence(requests={self.task_id: self.requests}, ledger=self.ledger)
        violations = audit(self.journal(), seen, live=self.state)
        assert violations == [], "\n".join(map(str, violations)) + "\n" + self.told()

    def told(self) -> str:
        return "\n".join(f"{event.seq:3} {event!r}" for event in self.journal().events)

    # ------------------------------------------------------------------------------------ driving

    def turn(self, *, finalize: bool = True, knows: bool = True) -> Decision:
        """Take one decision and do what it says."""
        self.expire()
        work = function_calling.decide if knows and self.state.undo is None else idle
        if work is not idle and (self.rules.guarded or self.state.checks):
            work = guarded(work)
        handoffs = {tool: agent for tool, agent in HANDOFFS.items() if agent != self.state.agent}
        rules = replace(self.rules, handoffs=handoffs)
        decision = lifecycle.decide(self.state, rules, work, finalize=finalize)
        if isinstance(decision, e.Event):
            self.fired[f"record {decision.kind}"] += 1
            if type(decision) is e.StepCompleted:
                self.check_policy()
            self.record(decision)
            if type(decision) is e.TaskEnded:
                self.commit()
        elif type(decision) is Wait and decision.reason == "handoff":
            self.hand_over()
        elif type(decision) is Wait:
            self.fired[f"wait {decision.reason}"] += 1
            self.cut_all()
            self.commit()
        else:
            wanted = {effect.id for effect in cast("tuple[Effect, ...]", decision)}
            for key in set(self.flights) - wanted:
                self.cut(key)
            for effect in cast("tuple[Effect, ...]", decision):
                if effect.id not in self.flights:
                    self.begin(effect)
        return decision

    def hand_over(self) -> None:
        """Move the conversation as a drive does: to the agent in its present version, with its instructions."""
        state = self.state
        assert state.team is not None
        assert state.team.next is not None
        agent, again = state.team.next.agent, state.versions.get(state.team.next.agent) is not None
        self.fired["handed over again" if again else "handed over"] += 1
        self.record(
            e.AgentChanged(state.steps[-1].id, state.team.next.call, agent, state.agent, f"v {agent}")
        )
        if state.instructions is None:
            self.record(e.InstructionsSet(f"you are {agent}"))

    def check_policy(self) -> None:
        """No caller continues after a failure that is to fail the task."""
        step = self.state.step
        if step is not None and self.rules.on_tool_failure == "fail" and not step.model_call.final:
            failed = [call.id for call in step.calls if call.failed]
            assert failed == [] or any(call.outcome == "unknown" for call in step.calls), failed

    @staticmethod
    def goes_on(decision: Decision) -> bool:
        return not isinstance(decision, Wait) or decision.reason == "handoff"

    def begin(self, effect: Effect) -> None:
        state = self.state
        if isinstance(effect, CallModel):
            assert not self.rules.judges_requests or effect.call.permit == "allow", "it was not judged"
            self.check_contents(effect)
            self.record(e.ModelStarted(effect.step.id, "m", effect.call.attempt + 1, effect.final))
            self.requests.append(list(state.view))
        elif isinstance(effect, CallTool):
            call, spec = effect.call, SPECS.get(effect.call.name)
            assert not call.answers, "a call that gives the answer is to run"
            if self.is_invalid(call) or spec is None:
                return
            permit = call.permit
            assert call.name not in self.rules.judged or permit is not None, "it was not judged"
            if permit is not None and permit.status == "approved" and self.clock % 5 == 0:
                self.fired["voided"] += 1
                self.record(e.ApprovalVoided(call.step, call.id, call.requests, "the tool changed"))
                return
            if spec.background:
                self.record(e.TicketIssued(call.step, call.id, f"{call.id} {call.attempt + 1}"))
            self.record(e.ToolStarted(call.step, call.id, spec.effect, call.attempt + 1, spec.undoable))
            if self.clock % 7 == 0 and (permit is None or permit.request is None):
                self.fired["rewritten"] += 1
                self.record(e.ArgumentsRewritten(call.step, call.id, call.attempt, {"n": 9}, ("m",)))
            if spec.effect != "read" or spec.background:
                self.commit()
            self.ledger.append(LedgerEntry(call.id, f"t/{call.id}", spec.effect, attempt=call.attempt))
        elif isinstance(effect, JudgeCall):
            if self.is_invalid(effect.call):
                return
        elif isinstance(effect, ReleaseAnswer):
            self.release(effect)
            return
        elif isinstance(effect, UndoCall):
            call = effect.call
            self.record(e.ToolStarted(call.step, effect.id, "write", call.undo_attempt + 1, undoes=call.id))
            self.commit()
            self.ledger.append(LedgerEntry(effect.id, f"t/{effect.id}", "idempotent"))
        self.flights[effect.id] = effect

    def check_contents(self, effect: CallModel) -> None:
        """No request goes out with input or results that guardrails have not let pass, where they are to come first."""
        checks, rules = self.state.checks, self.rules
        messages = [each for each in effect.step.read if not is_arrival(self.state, each)]
        read = [standing(checks.get(input_place(each.seq))) for each in messages]
        assert not {"refused", "asked"} & set(read), read
        assert not rules.blocks_input or set(read) <= {"passed"}, read
        for call in effect.step.calls:
            check = checks.get(result_place(call.id))
            if is_judged(call) and call.name in rules.guarded_tools:
                used = check is not None and check.permit is not None and check.permit.status == "used"
                assert used or standing(check) == "passed", call.id

    def release(self, effect: ReleaseAnswer) -> None:
        """Let an answer go on, as guardrails left it."""
        call, held = effect.call, effect.call.held
        assert held is not None
        check = self.state.checks.get(answer_place(effect.step.id, call.attempt))
        changed = check is not None and check.changed
        message, typed = passed_answer(held, check.arguments if check is not None and changed else {})
        self.fired["answer released"] += 1
        self.record(e.ModelReturned(effect.step.id, message, held.finish, held.usage, typed))

    def is_invalid(self, call: CallState) -> bool:
        """End a call that cannot start, and tell so."""
        if call.name in SPECS and call.problem is None:
            return False
        self.record(withheld_end(call, "invalid", e.Failure("tool", "invalid", "no", call.id)))
        return True

    def expire(self) -> None:
        """Record that a request to a person expired, as a drive does before it decides."""
        if self.state.ended is None:
            for expiry in list(self.state.timers()):
                if isinstance(expiry, Expiry) and expiry.due <= self.clock:
                    self.fired["question expired" if expiry.is_question else "expired"] += 1
                    kind = e.QuestionExpired if expiry.is_question else e.ApprovalExpired
                    self.record(kind(expiry.step, expiry.call, expiry.number))
                elif isinstance(expiry, TicketExpiry) and expiry.due <= self.clock:
                    self.fired["ticket expired"] += 1
                    self.record(e.TicketExpired(expiry.step, expiry.call))
                elif isinstance(expiry, Sleep) and expiry.due <= self.clock:
                    self.fired["slept"] += 1
                    self.record(e.SleepEnded(expiry.step, expiry.call, expiry.place))

    def cut_all(self) -> None:
        for key in list(self.flights):
            self.cut(key)

    def cut(self, key: str) -> None:
        """Stop an effect that is not wanted any more."""
        effect = self.flights.pop(key)
        if isinstance(effect, CallModel):
            self.record(e.ModelStopped(effect.step.id, "interrupted"))
        elif isinstance(effect, (CallTool, UndoCall)):
            self.record(e.ToolStopped(effect.call.step, effect.id, "interrupted"))

    # ------------------------------------------------------------------------------------ ends

    def land(self, choice: int) -> None:
        """Let one effect in flight end, in one of the ways it may."""
        if not self.flights:
            return
        key = sorted(self.flights)[choice % len(self.flights)]
        effect = self.flights.pop(key)
        choice //= 7
        if isinstance(effect, CallModel):
            self.answer(effect, choice)
        elif isinstance(effect, Reconcile):
            call = effect.call
            verdicts: list[e.Event] = [
                e.OutcomeSettled(call.step, call.id, "happened", "paid", "reconcile"),
                e.OutcomeSettled(call.step, call.id, "not_happened", None, "reconcile"),
                e.OutcomeUnresolved(call.step, call.id),
            ]
            if call.status == "lost":
                self.record(verdicts[choice % 3])
        elif isinstance(effect, JudgeCall):
            self.judge(effect.call, choice)
        elif isinstance(effect, JudgeRequest):
            self.judge_request(effect, choice)
        elif isinstance(effect, JudgeContent):
            self.judge_content(effect, choice)
        elif isinstance(effect, UndoCall):
            self.end_undo(effect, choice)
        else:
            self.end_tool(effect.call, choice)

    def answer(self, effect: CallModel, choice: int) -> None:
        step, kind = effect.step, (0, 1, 1, 2, 2, 2, 3, 4)[choice % 8]
        choice //= 8
        if kind == 4:
            self.record(e.ModelFailed(step.id, e.Failure("model", "server", "down")))
            return
        parts: list[Any] = [Text("words")] if kind in (0, 3) else []
        finish: Finish = "stop"
        if kind:
            for _ in range(1 + choice % 3):
                choice //= 3
                choices = ASKED if self.rules.output_retries is None else (*ASKED, GIVES, GIVES, GIVES)
                parts.append(ToolCall("", choices[choice % len(choices)], {"n": choice % 4}))
            finish = "length" if kind == 3 else "tool_calls"
        message = with_places(Message("assistant", tuple(parts)), step.id, finish, first=len(step.calls))
        returned = e.ModelReturned(step.id, message, finish, Usage(5, 5), self.read(message, choice))
        messages = [each for each in step.read if not is_arrival(self.state, each)]
        read = [standing(self.state.checks.get(input_place(each.seq))) for each in messages]
        guarded = self.rules.guarded
        if effect.call.void or "output" in guarded or ("input" in guarded and set(read) - {"passed"}):
            self.fired["answer held"] += 1
            self.record(e.AnswerHeld(step.id, message, finish, returned.usage, returned.typed))
        else:
            self.record(returned)

    def read(self, message: Message, choice: int) -> e.TypedAnswer | None:
        """Return how an answer reads, where answers are to be of a type: right or wrong, or no answer at all."""
        if self.rules.output_retries is None:
            return None
        giving = next((call for call in message.tool_calls if call.name == GIVES), None)
        if giving is None and message.tool_calls:
            return None
        call_id = giving.id if giving is not None else None
        if choice % 3 or (giving is not None and giving.problem is not None):
            self.fired["wrong answer"] += 1
            return e.TypedAnswer(None, "wrong", call_id)
        self.fired["right answer"] += 1
        return e.TypedAnswer({"right": self.clock}, None, call_id)

    def judge(self, call: CallState, choice: int) -> None:
        """Decide on a call as a policy may; one that was edited or ended meanwhile is left as it is."""
        edited = call.permit is not None and call.permit.status == "edited"
        if self.state.open_call(call.id) is not call or call.status != "proposed":
            return
        if call.permit is not None and not edited:
            return
        verdict = ("allow", "deny", "replace", "ask", "ask", "ask")[choice % 6]
        if verdict == "replace" and call.replaced > 1:
            verdict = "deny"
        if verdict == "ask" and not edited:
            self.fired["asked"] += 1
            expires = self.clock + 5 + choice % 60
            self.record(e.ApprovalRequested(call.step, call.id, call.requests + 1, "d", "a", expires, "rule"))
            return
        how: Any = "allow" if verdict == "ask" else verdict
        arguments: Any = {"n": choice % 4} if how == "replace" else None
        self.fired[f"judged {how}"] += 1
        self.record(e.CallJudged(call.step, call.id, how, "rule", "why", arguments, call.arguments))

    def judge_request(self, effect: JudgeRequest, choice: int) -> None:
        """Decide on a request to the model as a policy may; one that is not wanted any more is left as it is."""
        step, call = effect.step, effect.call
        state = self.state
        stops = state.cancelling or state.interrupting or state.pausing or state.undo is not None
        if stops or all(other is not call for _, other in state.open_model_calls()) or call.status == "begun":
            return
        verdict: Any = ("allow", "allow", "allow", "ask", "deny")[choice % 5]
        self.fired[f"request {verdict}"] += 1
        self.record(e.RequestJudged(step.id, verdict, "m", "rule", "why"))
        if verdict == "ask":
            self.record(e.PauseRequested("policy", "why"))
        elif verdict == "deny":
            self.record(e.ModelStarted(step.id, "m", call.attempt + 1, effect.final))
            self.record(e.ModelFailed(step.id, e.Failure("model", "denied", "no")))

    def ask(self, call: CallState, choice: int) -> None:
        """Have a tool ask a person, or two questions at once, or ask anew what it does not accept."""
        if choice % 3 == 0 and "kept" not in (call.values or ()):
            self.fired["kept"] += 1
            self.record(e.ValueKept(call.step, "kept", choice, call.id))
        first = 1 + len(call.questions)
        if call.questions and choice % 7 == 0:
            self.fired["asked anew"] += 1
            first = 1 + choice % len(call.questions)
        if first == 1 and not call.values and not call.slept:
            # A tool asks before its first effect, also where it asks anew.
            here = call.id, call.attempt
            self.ledger = [entry for entry in self.ledger if (entry.call, entry.attempt) != here]
        count = 2 if choice % 4 == 0 and first > len(call.questions) else 1
        for place in range(first, first + count):
            self.fired["question asked"] += 1
            expires = self.clock + 5 + choice % 40 if choice % 2 else None
            number = call.asked_questions + 1
            self.record(
                e.QuestionAsked(
                    call.step, call.id, number, "n?", {"type": "integer"}, "d", place, expires=expires
                )
            )

    def judge_content(self, effect: JudgeContent, choice: int) -> None:
        """Decide on a content as guardrails may; one that was settled, changed or taken back meanwhile is left."""
        in_flight = cast("ContentJudgementInFlight", SimpleNamespace(effect=effect))
        if ContentJudgementInFlight.is_overtaken(in_flight, self.state):
            self.fired["content overtaken"] += 1
            return
        check = self.state.checks.get(effect.place)
        edited = check is not None and check.permit is not None
        verdict: Any = ("allow", "allow", "allow", "allow", "rewrite", "ask", "deny")[choice % 7]
        if verdict == "rewrite" and check is not None and check.replaced > 1:
            verdict = "deny"
        if verdict == "ask" and edited:
            verdict = "allow"
        self.fired[f"{effect.guards} {verdict}"] += 1
        content: Any = None
        if verdict == "rewrite":
            content = {part: {"right": -1} if part == "answer" else "rewritten" for part in effect.content}
            if content == effect.content:
                verdict, content = "allow", None
        elif verdict == "ask":
            content = effect.content
        previous = effect.content if verdict == "rewrite" else None
        judged = e.GuardrailJudged(
            effect.step, effect.place, effect.guards, verdict, "rule", "why", content, previous
        )
        self.record(judged)
        if verdict == "ask":
            number = self.state.checks[effect.place].requests + 1
            expires = self.clock + 5 + choice % 60
            self.record(e.ApprovalRequested(effect.step, effect.place, number, "d", "a", expires, "rule"))

    def end_tool(self, call: CallState, choice: int) -> None:
        outcome = choice % 4
        if choice // 4 % 3 == 1 and call.effect != "write" and call.asked_questions < 4:
            self.ask(call, choice // 12)
            return
        if choice // 4 % 3 == 2 and call.ticket is not None:
            self.fired["deferred"] += 1
            expires = self.clock + 5 + choice % 80
            self.record(e.CallDeferred(call.step, call.id, expires, {"job": call.id}))
        elif choice // 4 % 6 == 3 and call.effect != "write" and call.slept < 2:
            self.fired["slept halfway" if call.effect != "read" else "slept reading"] += 1
            self.record(e.SleepStarted(call.step, call.id, self.clock + 2 + choice % 30, call.slept + 1))
        elif outcome < 2:
            self.record(e.ToolEnded(call.step, call.id, "ok", {"saved": call.arguments}))
        elif call.ticket is not None and call.ticket.completion is not None:
            self.fired["failed when completed"] += 1
            failure = e.Failure("tool", "error", "broken", call.id)
            self.record(e.ToolStopped(call.step, call.id, "error", failure))
        elif outcome == 2:
            failure = e.Failure("tool", "error", "broken", call.id)
            if call.attempt <= SPECS[call.name].retries and call.effect != "write":
                self.record(e.ToolStopped(call.step, call.id, "error", failure))
            else:
                self.record(failed_end(call, failure))
        else:
            failure = e.Failure("tool", "timeout", "too slow", call.id)
            if call.effect == "write":
                self.record(e.ToolStopped(call.step, call.id, "timeout", failure))
            else:
                self.record(failed_end(call, failure, cut_off=True))

    def end_undo(self, effect: UndoCall, choice: int) -> None:
        step = effect.call.step
        if choice % 3:
            self.record(e.ToolEnded(step, effect.id, "ok"))
        else:
            failure = e.Failure("tool", "error", "cannot", effect.id)
            self.record(e.ToolEnded(step, effect.id, "error", error=failure))

    # ------------------------------------------------------------------------------------ from outside

    def crash(self) -> None:
        """The process crashes: events that are not durable are lost, and another process takes over."""
        between = any(call.status == "begun" for call in self.open_calls())
        self.fired["crash between begin and end" if between else "crash"] += 1
        self.pending, self.flights = [], {}
        self.epoch += 1
        self.state = start(self.task_id)
        for epoch, event in self.durable:
            apply(self.state, event, epoch)
        if self.state.ended is None and self.state.seq:
            recover(cast("OwnedTask", SimpleNamespace(state=self.state, writer=self)))

    def open_calls(self) -> list[CallState]:
        return list(self.state.step.open.values()) if self.state.step is not None else []

    def command(self, kind: str, **data: Any) -> None:
        if self.state.ended is None:
            self.commands += 1
            item = InboxItem(f"i{self.commands}", kind, {"by": "me", "reason": None, **data}, self.clock)
            event = as_event(self.state, item)
            self.fired[f"command {event.kind}"] += 1
            self.record(event)

    def settle(self, choice: int) -> None:
        lost = [call for call in self.open_calls() if call.status in ("lost", "unresolved")]
        ids = [call.id for call in lost]
        if self.state.undo is not None:
            ids += [f"{call.id}-undo" for call in self.state.undo.queue if call.undo_status == "lost"]
        if ids:
            verdict = "happened" if choice % 2 else "not_happened"
            self.command("settle", request_id=ids[choice // 2 % len(ids)], verdict=verdict, output="so")

    def decide(self, choice: int) -> None:
        """Decide on a request for approval, now and then on one that is open no more."""
        asked = list(self.state.open_approvals.values())
        requests = [approval_id(call.id, call.requests) for call in asked] or ["s1-0-ask1"]
        request = requests[choice % len(requests)]
        call = asked[choice % len(requests)] if asked else None
        choice //= 8
        if choice % 3 == 0:
            self.command("deny", request_id=request)
        else:
            edited: Any = {"n": 7}
            if isinstance(call, Check):
                edited = {part: {"right": 7} if part == "answer" else "edited" for part in call.arguments}
            arguments = edited if choice % 3 == 1 else None
            scope = "task" if choice % 5 == 0 else "once"
            self.command("approve", request_id=request, arguments=arguments, scope=scope)

    def reply(self, choice: int) -> None:
        """Answer a question, now and then one that is open no more, or by what does not fit."""
        requests = list(self.state.questions) or ["s1-0-q1"]
        value = "none" if choice % 6 == 0 else choice % 9
        self.command("answer", request_id=requests[choice % len(requests)], value=value)

    def tell(self, choice: int) -> None:
        """Tell of a call by its ticket, also of one that has ended, or by a ticket that is forged."""
        state = self.state
        tickets = [*state.tickets, "forged"]
        digest = tickets[choice % len(tickets)]
        choice //= 64
        kind = ("complete", "complete", "fail", "progress")[choice % 4]
        data = {"error": "broken"} if kind == "fail" else {"value": f"result of {digest}"}
        if state.ended is None:
            self.command(kind, ticket=digest, **data)
            return
        self.commands += 1
        item = InboxItem(f"i{self.commands}", kind, {"by": "me", "ticket": digest, **data}, self.clock)
        event = as_event(state, item)
        if not isinstance(event, (e.CommandRejected, e.TicketProgressed)):
            self.fired["kept after the end"] += 1
            self.record(event)
            self.turn()
            self.commit()

    def tell_all(self) -> None:
        """Complete every ticket that a call waits for."""
        for digest, call in list(self.state.tickets.items()):
            if call.status == "deferred" and call.ticket is not None and call.ticket.completion is None:
                self.command("complete", ticket=digest, value=f"result of {digest}")

    def edit(self, choice: int) -> None:
        """Edit a call that has not begun, as the verb does."""
        calls = [call for call in self.open_calls() if call.status == "proposed" and not call.in_doubt]
        calls = [call for call in calls if not call.answers]
        if calls and not self.flights and self.state.ended is None and self.state.undo is None:
            call = calls[choice % len(calls)]
            if call.questions or call.slept:
                return
            self.fired["edited"] += 1
            self.record(e.CallEdited(call.step, call.id, {"n": choice % 9}, call.arguments))

    def fork(self, choice: int) -> None:
        """Go on as a fork, from any event at which nothing is begun: the fork of a fork, in time."""
        if self.flights:
            return
        self.commit()
        shared, state = self.durable[: 1 + choice % len(self.durable)], start(self.task_id)
        for epoch, event in shared:
            apply(state, event, epoch)
        halfway = state.step is not None and any(call.is_halfway for call in state.step.open.values())
        if state.in_flight() or state.undo is not None or halfway or state.deferred:
            self.fired["fork point busy"] += 1
            return
        self.fired["fork"] += 1
        self.durable, self.state, self.ledger, self.epoch = shared, state, [], self.epoch + 1
        if choice % 4 == 0 and state.agent != "shop":
            self.fired["fork by another agent"] += 1
            self.record(e.TaskForked("p", "shop", "other", "v fork"))
        else:
            self.record(e.TaskForked("p", state.created_for, "other"))
        if choice % 3 == 0:
            self.record(e.InputReceived((Text("else"),)))

    def undo(self, choice: int) -> None:
        """Ask for an undo like the verb does, at rest."""
        state = self.state
        if self.flights or state.ended == "cancelled" or state.cancelling:
            return
        try:
            plan = undo_plan.plan(state, None if choice % 3 else 0, force=choice % 2 == 0, by="me")
        except (StepNotFound, IrreversibleStep, UndoUnfinished) as error:
            self.fired[type(error).__name__] += 1
            return
        self.reopen("undo")
        if state.pausing or state.interrupting:
            self.record(e.Resumed("me"))
        self.fired["undo"] += 1
        self.record(plan.event)

    def reopen(self, reason: str) -> None:
        if self.state.ended is not None:
            self.record(e.TaskReopened(self.state.attempt + 1, reason))

    def resume(self, choice: int) -> None:
        """Go on like the verb does, at rest; now and then with other limits."""
        state = self.state
        if self.flights or state.undo is not None or state.ended in ("completed", "cancelled"):
            return
        if state.ended == "degraded" or choice % 4 == 3:
            self.rules = replace(self.rules, limits=replace(self.rules.limits, steps=50, tool_calls=None))
            self.reopen("resume")
            self.record(e.OptionsChanged({"raised": True}))
        self.reopen("resume")
        if state.pausing or state.interrupting:
            self.record(e.Resumed("me"))
        self.fired["resume"] += 1

    def skip(self) -> None:
        step = self.state.step
        if step is not None and step.status == "failed" and not self.flights and self.state.undo is None:
            self.reopen("skip_step")
            self.fired["skip"] += 1
            self.record(e.StepSkipped(step.id))
