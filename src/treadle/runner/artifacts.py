"""What calls of tools leave with their task beside results: the sources they rest on, and the artifacts they made."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from treadle.core.codec import is_writable
from treadle.core.data import frozen
from treadle.core.messages import File, Image, Json, copied
from treadle.core.state import CallState, StepState
from treadle.errors import ArtifactNotFound


@frozen
class Artifact:
    """Something a tool made, without its bytes: `Runner.get_artifact` returns them.

    `artifact_id` is its place in the task: the call and a number from 1. `size` is in bytes, None of one that lies at
    `url`.
    """

    artifact_id: str
    name: str
    media_type: str | None
    size: int | None
    url: str | None
    call_id: str
    tool: str
    meta: Json = None


def checked(given: Sequence[File | Image]) -> tuple[File, ...]:
    """Return artifacts as they are journalled; raises `TypeError` for what a tool of an own class may not give."""
    if not given:
        return ()
    for item in given:
        if not isinstance(item, File) or not isinstance(item.name, str):
            raise TypeError("the tool's artifacts must be File(name=...)")
        if type(item.data) is not bytes and item.url is None:
            raise TypeError(f"the tool's artifact {item.name} has neither bytes nor a URL")
        if not is_writable([item.media_type, item.url, item.meta]):
            raise TypeError(f"what the tool's artifact {item.name} says of itself is no JSON data")
    return tuple(given)  # pyright: ignore[reportReturnType]


def sources_of(steps: Iterable[StepState]) -> tuple[Json, ...]:
    """Return the sources of some steps in call order, equal ones once."""
    found: dict[str, Json] = {}
    for call in _calls(steps):
        for source in call.sources:
            found.setdefault(json.dumps(source, sort_keys=True), source)
    return tuple([copied(source) for source in found.values()])


def artifacts_of(steps: Iterable[StepState]) -> tuple[Artifact, ...]:
    """Return the artifacts of some steps in call order."""
    return tuple([_described(call, place, file) for call, place, file in _made(steps)])


def artifact_named(steps: Iterable[StepState], artifact_id: str, task_id: str) -> File:
    """Return what was made at a place; raises `ArtifactNotFound`."""
    for _, place, file in _made(steps):
        if place == artifact_id:
            return file
    raise ArtifactNotFound(f"task {task_id} has no artifact {artifact_id!r} on its present branch")


def _calls(steps: Iterable[StepState]) -> Iterable[CallState]:
    return (call for step in steps for call in step.calls)


def _made(steps: Iterable[StepState]) -> Iterable[tuple[CallState, str, File]]:
    for call in _calls(steps):
        for number, file in enumerate(call.artifacts, 1):
            yield call, f"{call.id}-a{number}", file


def _described(call: CallState, place: str, file: File) -> Artifact:
    size = len(file.data) if file.data is not None else None
    return Artifact(
        place, file.name or "", file.media_type, size, file.url, call.id, call.name, copied(file.meta)
    )
