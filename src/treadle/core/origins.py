"""Collect the origins of the untrusted content that the model of a task has read.

    inherited content            its parent's, its thread's, and imported messages     TaskState.untrusted
    input that a step read       parts that are labelled, and observations
    calls that ran               their results, failed ones too; without a label they are untrusted
    requests of a function       messages that it shows a model beside the conversation
    tools that a request offers  names, descriptions and schemas that a stranger wrote       ToolSpec.defined_by

A task is judged as a whole. Content that one step has read counts for all later and parallel steps. It even counts if a
window, a filter or a summary removes it from the conversation. An undone step does not count any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Final

from treadle.core.events import InputReceived
from treadle.core.labels import OBSERVATION, Label, untrusted_origin
from treadle.core.messages import Message, Part, ToolResult
from treadle.core.state import TaskState
from treadle.core.steps import CallState, StepState

MAX_ORIGINS: Final = 16
"""The number of the first origins that are named."""

FURTHER: Final = "*"
"""Represents the origins that are not named. Labels cannot have an origin with this character."""


def merged(*origins: Iterable[str]) -> tuple[str, ...]:
    """Return origins without duplicates, in order; `FURTHER` replaces those after `MAX_ORIGINS`."""
    if not any(origins):
        return ()
    unique_origins = dict.fromkeys(chain.from_iterable(origins))
    further = unique_origins.pop(FURTHER, FURTHER) is None or len(unique_origins) > MAX_ORIGINS
    named = tuple(islice(unique_origins, MAX_ORIGINS))
    return (*named, FURTHER) if further else named


def of_messages(messages: Iterable[Message]) -> Iterator[str]:
    """Yield the untrusted origins of messages, by the labels of their parts."""
    for message in messages:
        yield from of_parts(message.parts)


def of_parts(parts: Iterable[Part]) -> Iterator[str]:
    """Yield the untrusted origins of the parts of a message."""
    for part in parts:
        if type(part) is ToolResult:
            yield from _of_result(part.name, part.label)
            yield from of_parts(part.parts)
        elif (origin := untrusted_origin(getattr(part, "label", None))) is not None:
            yield origin


def of_input(received: InputReceived) -> Iterator[str]:
    """Yield the untrusted origins of input, for an observation also those of parts without a label."""
    for part in received.parts:
        label = OBSERVATION if part.label is None and received.observation else part.label
        if (origin := untrusted_origin(label)) is not None:
            yield origin


def of_step(step: StepState) -> Iterator[str]:
    """Yield the untrusted origins of the content that a step has read so far."""
    for received in step.read:
        yield from of_input(received)
    yield from step.shown
    for call in step.calls:
        if (call.attempt or call.label is not None) and call.status in ("ended", "deferred"):
            origin = f"tool:{call.name}" if call.label is None else untrusted_origin(call.label)
            if origin is not None:
                yield origin
            if call.observation is not None:
                yield from of_parts(call.observation)


def of_task(state: TaskState) -> tuple[str, ...]:
    """Return the untrusted origins of the content that a task has read, and of its unread input."""
    steps = (*state.steps, *state.under_way())
    return merged(
        of_takeover(state),
        *[of_step(step) for step in steps],
        *[of_input(received) for received in state.unread],
    )


def of_takeover(state: TaskState) -> tuple[str, ...]:
    """Return the untrusted origins of the content that a task inherited from its parent and its thread."""
    return merged(state.untrusted, state.history_untrusted) if state.history_untrusted else state.untrusted


def keep_failed(step: StepState, call: CallState) -> None:
    """Keep the origins and effects of a failed call on its step, because another call replaces it."""
    if call.attempt and call.failed:
        step.shown = merged(step.shown, _of_call(call))
        step.exposed = merged(step.exposed, call.exposed)


def effects_of_step(step: StepState) -> Iterator[str]:
    """Yield the declared effects, from the journal, of the tools whose results a step has seen."""
    yield from step.exposed
    for call in step.calls:
        if call.exposed and call.attempt and call.status in ("ended", "deferred"):
            yield from call.exposed


def effects_of_task(state: TaskState) -> tuple[str, ...]:
    """Return the declared effects for all steps of a task, and for the content that it inherited."""
    steps = [effects_of_step(step) for step in (*state.steps, *state.under_way())]
    return tuple(sorted({*state.exposed, *state.history_exposed, *merged(*steps)}))


def _of_call(call: CallState) -> Iterator[str]:
    yield from _of_result(call.name, call.label)
    if call.observation is not None:
        yield from of_parts(call.observation)


def _of_result(name: str, label: Label | None) -> Iterator[str]:
    origin = f"tool:{name}" if label is None else untrusted_origin(label)
    if origin is not None:
        yield origin
