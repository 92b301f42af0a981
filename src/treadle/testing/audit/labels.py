"""Invariants of labels: a task that has read untrusted content counts as untrusted, and so do tasks that it feeds.

Pure functions that return violations, like those of `treadle.testing.audit.events`. The content that a task has read
follows from its events alone, and is compared with the engine's own account (`core.origins`). Journals of older
versions without a key of frames do not record inherited content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from treadle.core import events as e
from treadle.core import origins
from treadle.core.ids import base_call_id
from treadle.core.labels import Label, untrusted_origin
from treadle.core.messages import ToolCall
from treadle.core.rules.fold import fold
from treadle.core.state import start
from treadle.testing.audit.events import Violation


def labels(journals: Mapping[str, Sequence[e.Event]]) -> Iterator[Violation]:
    """Yield each loss of the label untrusted: by a task itself, by a task that it called, or by its caller.

    Args:
        journals: the events of each task of a store.
    """
    for task, events in journals.items():
        read = untrusted_calls(events)
        recorded = origins.of_task(fold(start(task), events))
        if read and not recorded:
            yield Violation(
                "labels", task, len(events), f"it has read {', '.join(sorted(read))} and counts as trusted"
            )
        for number, event in enumerate(events):
            if (
                isinstance(event, e.ToolStarted)
                and event.child
                and event.child in journals
                and event.attempt == 1
            ):
                yield from _label_for_child(
                    event, event.child, journals[event.child], untrusted_calls(events[:number])
                )
            elif isinstance(event, e.ToolEnded) and event.outcome == "ok":
                yield from _label_for_caller(task, event, events[:number], journals)


def untrusted_calls(events: Iterable[e.Event]) -> set[str]:
    """Return the calls whose untrusted results a task has read so far and that still count.

    A step whose request offered tools with foreign definitions is named like a call. An undo removes a step. A new
    attempt of a step repeats its failed calls, unless the model has answered the failure. A step function that a limit
    stopped has not seen the results of the refused calls.
    """
    index, running, functions = dict[str, int](), set[str](), False
    declared: dict[str, Label | None] = {}
    answered, newest = dict[str, set[str]](), dict[str, set[str]]()
    """the calls of the model's earlier answers, and those of its newest one, by step"""

    read: dict[str, e.ToolEnded] = {}
    offered = set[str]()

    def forget(gone: Callable[[e.ToolEnded], bool]) -> None:
        for call in [call for call, end in read.items() if gone(end)]:
            del read[call]

    for event in events:
        match event:
            case e.StepsPlanned():
                functions = True
            case e.StepStarted():
                index[event.step] = event.index
                running.add(event.step)
                if event.attempt > 1:
                    kept = answered.get(event.step, ())
                    forget(
                        lambda end, step=event.step, kept=kept: (
                            end.step == step and end.outcome != "ok" and base_call_id(end.call) not in kept
                        )
                    )
            case e.StepCompleted() | e.StepFailed() | e.StepSkipped():
                running.discard(event.step)
            case e.TaskReopened() if functions:
                forget(
                    lambda end: end.step in running and end.error is not None and end.error.kind == "refused"
                )
            case e.ModelStarted() if event.untrusted:
                offered.add(event.step)
            case e.ModelReturned():
                answered.setdefault(event.step, set()).update(newest.get(event.step, ()))
                newest[event.step] = {part.id for part in event.message.parts if isinstance(part, ToolCall)}
            case e.ToolStarted(undoes=None):
                declared[event.call] = event.label
            case e.ToolEnded() if event.call in declared:
                label = event.label or declared[event.call]
                if label is None or untrusted_origin(label) is not None:
                    read[event.call] = event
            case e.Rewound():
                gone = set(event.steps) or {step for step, at in index.items() if at > event.to}
                forget(lambda end, gone=gone: end.step in gone)
                offered -= gone
            case _:
                pass
    return {*read, *[f"the tools of {step}" for step in offered]}


def _label_for_child(
    event: e.ToolStarted, child: str, events: Sequence[e.Event], read: set[str]
) -> Iterator[Violation]:
    created = events[0]
    if read and isinstance(created, e.TaskCreated) and created.frame_key and not created.untrusted:
        text = f"its caller had read {', '.join(sorted(read))} before {event.call}, and it took over nothing untrusted"
        yield Violation("labels", child, 1, text)


def _label_for_caller(
    task: str, event: e.ToolEnded, before: Sequence[e.Event], journals: Mapping[str, Sequence[e.Event]]
) -> Iterator[Violation]:
    """Check that an untrusted task's text answer is untrusted for its caller; a sanitiser answers no text."""
    starts = [each for each in before if isinstance(each, e.ToolStarted) and each.call == event.call]
    name = starts[-1].child if starts else None
    child = journals.get(name or "", ())
    if (
        not child
        or event.label is None
        or event.label.integrity == "untrusted"
        or not isinstance(event.output, str)
    ):
        return
    created = child[0]
    took_over = isinstance(created, e.TaskCreated) and bool(created.untrusted)
    if untrusted_calls(child) or took_over:
        text = f"{event.call} is trusted, and task {name} had read something untrusted"
        yield Violation("labels", task, event.seq, text)
