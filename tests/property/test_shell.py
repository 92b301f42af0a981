"""Random histories over the pure part alone: any order of ends, crashes anywhere, and the auditor at the end."""

import random
from collections import Counter
from itertools import permutations

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.property.shell import SPECS, Shell
from treadle.agents.decide.rules import Rules
from treadle.core import events as e
from treadle.core.effects import Wait
from treadle.core.messages import Message, Text, ToolCall
from treadle.core.model_answer import with_places
from treadle.policy.limits import Limits

SETUPS = st.builds(
    lambda steps, tool_calls, judged, requests, handed, guarded, **rest: Rules(
        "m",
        SPECS,
        Limits(steps=steps, tool_calls=tool_calls, handoffs=handed),
        judged=frozenset(judged),
        gated=bool(judged) or requests,
        judges_requests=requests,
        guarded=frozenset(guarded),
        guarded_tools=frozenset(SPECS if "result" in guarded else ()),
        blocks_input=rest.pop("blocks_input") and "input" in guarded,
        **rest,
    ),
    judged=st.sampled_from([(), (), (*SPECS, "nobody")]),
    requests=st.sampled_from([False, False, True]),
    handed=st.sampled_from([None, 1, 2]),
    guarded=st.sampled_from(
        [(), (), (), ("input",), ("output",), ("result",), ("input", "output", "result")]
    ),
    blocks_input=st.booleans(),
    on_denied_call=st.sampled_from(["continue", "continue", "fail", "degrade", "pause"]),
    steps=st.sampled_from([None, 0, 1, 2, 3]),
    tool_calls=st.sampled_from([None, None, 0, 1, 3]),
    on_limit=st.sampled_from(["final_answer", "fail", "pause"]),
    on_model_failure=st.sampled_from(["fail", "degrade", "pause"]),
    on_tool_failure=st.sampled_from(["continue", "fail", "degrade", "pause"]),
    on_unknown_outcome=st.sampled_from(["wait", "tell_model", "fail"]),
    max_parallel_tools=st.sampled_from([1, 2, 64]),
    output_retries=st.sampled_from([None, None, 0, 2]),
    at_end=st.sampled_from(["suspend", "wait", "detach", "cancel"]),
)
OPS = {
    "work": 16,
    "land": 3,
    "turn": 1,
    "commit": 1,
    "crash": 2,
    "settle": 2,
    "decide": 3,
    "reply": 3,
    "tell": 4,
    "wait": 1,
    "edit": 1,
    "undo": 2,
    "undo that crashes": 1,
    "resume": 5,
    "raise": 2,
    "skip": 2,
    "send": 3,
    "fork": 1,
    "pause": 1,
    "interrupt": 1,
    "cancel": 0.2,
}
"""What befalls a task, and how often: most of it is work, or nothing but stops would be met."""


def history(seed: int) -> list[tuple[str, int]]:
    """Return what befalls a task under a seed. Lists that hypothesis draws are short, and few of them get anywhere."""
    chance = random.Random(seed)
    ops = chance.choices(list(OPS), list(OPS.values()), k=chance.randint(10, 50))
    return [(op, chance.randrange(2**20)) for op in ops]


HISTORIES = st.integers(0, 2**32).map(history)


def perform(shell: Shell, op: str, choice: int) -> None:
    match op:
        case "turn":
            if shell.state.ended is None:
                shell.turn()
        case "work":
            for turn in range(choice % 5, -1, -1):
                while shell.state.ended is None and not shell.flights and shell.goes_on(shell.turn()):
                    pass
                if turn:  # the last of them is left in the air
                    shell.land(choice // 5**turn)
                if shell.state.pausing or shell.state.interrupting:
                    shell.resume(3 if shell.state.limit is not None else 0)
        case "land":
            shell.land(choice)
        case "commit":
            shell.commit()
        case "crash":
            shell.crash()
        case "settle":
            shell.settle(choice)
        case "decide":
            shell.decide(choice)
        case "reply":
            shell.reply(choice)
        case "tell":
            shell.tell(choice)
        case "wait":
            shell.clock += choice % 40
        case "edit":
            shell.edit(choice)
        case "undo":
            shell.undo(choice)
        case "undo that crashes":
            shell.undo(choice)
            for _ in range(1 + choice % 4):
                shell.turn()
            shell.crash()
        case "resume":
            shell.resume(choice // 4 * 4)
        case "raise":
            shell.resume(3)
        case "skip":
            shell.skip()
        case "fork":
            shell.fork(choice)
        case "send":
            shell.command("send", parts=["more"], role="user")
        case _:
            shell.command(op)


def new(rules: Rules) -> Shell:
    shell = Shell(rules)
    shell.record(e.TaskCreated("math", (Text("go"),), "talk"))
    shell.commit()
    return shell


def finish(shell: Shell) -> None:
    """Bring a task to rest without further trouble: it must come to an end or say what it waits for."""
    for _ in range(400):
        decision = shell.turn()
        if not shell.goes_on(decision):
            assert isinstance(decision, Wait)
            if decision.reason == "ended":
                return
            if decision.reason in ("settlement", "undo_unknown"):
                shell.settle(1)
                shell.decide(16)
                shell.reply(1)
            elif decision.reason in ("approval", "question"):
                shell.decide(16)
                shell.reply(1)
                shell.settle(1)
            elif decision.reason == "background":
                shell.tell_all()
            elif decision.reason == "timer":
                shell.clock = max(shell.clock, shell.state.next_due() or 0)
            elif shell.state.undo is not None:
                shell.undo(4)
            elif decision.reason in ("paused", "interrupted"):
                if shell.state.limit == "repeats":
                    shell.command("send", parts=["something new"], role="user")
                shell.resume(3)
            else:
                shell.resume(0)
        elif shell.flights:
            shell.land(0)
    raise AssertionError("the task does not come to an end\n" + shell.told())


PHASES = [phase for phase in Phase if phase is not Phase.explain]
FIRED: Counter[str] = Counter()


def run(rules: Rules, history: list[tuple[str, int]]) -> None:
    shell = new(rules)
    for op, choice in history:
        perform(shell, op, choice)
    shell.audit()
    shell.cut_all()
    finish(shell)
    shell.audit()
    FIRED.update(shell.fired)


@given(SETUPS, HISTORIES)
@settings(max_examples=80, phases=PHASES)
def test_any_history_of_the_pure_part_passes_the_auditor(
    rules: Rules, history: list[tuple[str, int]]
) -> None:
    run(rules, history)


@pytest.mark.full
def test_many_histories_pass_the_auditor_and_every_rule_was_reached() -> None:
    FIRED.clear()
    settings(max_examples=8_000, phases=PHASES)(given(SETUPS, HISTORIES)(run))()
    reached = {name for name, times in FIRED.items() if times >= 3}
    assert reached >= {
        "crash between begin and end",
        "crash",
        "undo",
        "skip",
        "resume",
        "fork",
        "fork point busy",
        "IrreversibleStep",
        "wait settlement",
        "wait approval",
        "asked",
        "judged allow",
        "judged deny",
        "judged replace",
        "request allow",
        "request ask",
        "request deny",
        "answer held",
        "answer released",
        *[f"{x} {y}" for x in ("input", "output", "result") for y in ("allow", "rewrite", "ask", "deny")],
        "command approval_given",
        "command approval_denied",
        "wait question",
        "deferred",
        "slept halfway",
        "slept reading",
        "slept",
        "ticket expired",
        "wait background",
        "wait timer",
        "command ticket_completed",
        "command ticket_failed",
        "command ticket_progressed",
        "kept after the end",
        "question asked",
        "asked anew",
        "kept",
        "question expired",
        "command question_answered",
        "expired",
        "voided",
        "edited",
        "wait paused",
        "wait interrupted",
        "wait ended",
        "wait undo_failed",
        "wait undo_unknown",
        "record limit_reached",
        "record rewound",
        "handed over",
        "handed over again",
        "fork by another agent",
        "record step_failed",
        "command outcome_settled",
    }, FIRED


def three_calls(order: tuple[str, ...]) -> Shell:
    shell = new(Rules("m", SPECS))
    while not shell.flights:
        shell.turn()
    parts = tuple(ToolCall("", name, {"n": 1}) for name in ("look", "put", "save"))
    message = with_places(Message("assistant", parts), "s1", "tool_calls")
    shell.flights.clear()
    shell.record(e.ModelReturned("s1", message, "tool_calls"))
    shell.turn()
    assert sorted(shell.flights) == ["s1-0", "s1-1", "s1-2"]
    for call_id in order:
        shell.land(7 * 0 + sorted(shell.flights).index(call_id))
    while not shell.flights:
        shell.turn()
    shell.land(0)
    while shell.state.ended is None:
        shell.turn()
    return shell


def test_every_order_of_completion_gives_the_same_conversation() -> None:
    shells = [three_calls(order) for order in permutations(("s1-0", "s1-1", "s1-2"))]
    for shell in shells:
        shell.audit()
        assert shell.state.messages == shells[0].state.messages
        assert shell.requests == shells[0].requests
        assert shell.state.ended == "completed"
