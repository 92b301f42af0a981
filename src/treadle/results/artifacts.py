"""The sources that the calls and steps of a task used, and the artifacts (files) that they made."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, Final

from treadle.core.codec import is_writable, storable
from treadle.core.data import frozen
from treadle.core.messages import File, Image, Json, copied
from treadle.core.steps import CallState, StepState
from treadle.errors import ArtifactNotFound


@frozen
class Artifact:
    """A file that a tool or a step made, without its bytes: `Runner.get_artifact` returns them.

    `artifact_id` is the id of the call or step, and a number from 1. `size` is in bytes, None for a file at `url`.
    `call_id` and `tool` are None if the step itself made it.
    """

    artifact_id: str
    name: str
    media_type: str | None
    size: int | None
    url: str | None
    call_id: str | None
    tool: str | None
    meta: Json = None


def checked_sources(sources: Sequence[Json]) -> tuple[Json, ...]:
    """Return sources in their journal form; raises `TypeError` unless they are a list of JSON data."""
    try:
        if isinstance(sources, (list, tuple)):
            return tuple(storable(sources))
    except ValueError as error:
        raise TypeError(f"a source must be JSON data: {error}") from error
    raise TypeError(f"sources must be a list, each of JSON data, got {sources!r:.200}")


def checked_artifacts(artifacts: Sequence[File | Image]) -> tuple[File, ...]:
    """Return artifacts for the journal; raises `TypeError` unless each is a File with a name and bytes or a URL."""
    for item in artifacts:
        if not isinstance(item, File) or not isinstance(item.name, str):
            raise TypeError("an artifact must be a File with a name")
        if type(item.data) is not bytes and item.url is None:
            raise TypeError(f"the artifact {item.name} has neither bytes nor a URL")
        if not is_writable([item.media_type, item.url, item.meta]):
            raise TypeError(f"the media type, URL and metadata of the artifact {item.name} must be JSON data")
    return tuple(artifacts)  # pyright: ignore[reportReturnType]


_CALLS: Final = attrgetter("calls")
_SOURCES: Final = attrgetter("sources")
_ARTIFACTS: Final = attrgetter("artifacts")


def _have_any(steps: Sequence[StepState], field: Callable[[Any], Any]) -> bool:
    """Return whether a field of the steps or of their calls is not empty. In most tasks it is empty."""
    return any(map(field, steps)) or any(map(field, chain.from_iterable(map(_CALLS, steps))))


def sources_of(steps: Sequence[StepState]) -> tuple[Json, ...]:
    """Return the sources of some steps in call order, equal ones once."""
    if not _have_any(steps, _SOURCES):
        return ()
    unique_sources: dict[str, Json] = {}
    for step in steps:
        for owner in (*step.calls, step):
            for source in owner.sources:
                unique_sources.setdefault(json.dumps(source, sort_keys=True), source)
    return tuple([copied(source) for source in unique_sources.values()])


def artifacts_of(steps: Sequence[StepState]) -> tuple[Artifact, ...]:
    """Return the artifacts of some steps in call order."""
    if not _have_any(steps, _ARTIFACTS):
        return ()
    return tuple([_artifact(artifact_id, file, call) for artifact_id, file, call in _each_artifact(steps)])


def artifact_named(steps: Iterable[StepState], artifact_id: str, task_id: str) -> File:
    """Return the artifact of an id; raises `ArtifactNotFound`."""
    for made_id, file, _ in _each_artifact(steps):
        if made_id == artifact_id:
            return file
    raise ArtifactNotFound(f"task {task_id} has no artifact {artifact_id!r} on its present branch")


def _each_artifact(steps: Iterable[StepState]) -> Iterable[tuple[str, File, CallState | None]]:
    """Yield each artifact with its id and the call that made it, None for the step. Calls precede their step."""
    for step in steps:
        for owner in (*step.calls, step):
            for number, file in enumerate(owner.artifacts, 1):
                yield f"{owner.id}-a{number}", file, owner if isinstance(owner, CallState) else None


def _artifact(artifact_id: str, file: File, call: CallState | None) -> Artifact:
    size = len(file.data) if file.data is not None else None
    made_by = (None, None) if call is None else (call.id, call.name)
    return Artifact(
        artifact_id, file.name or "", file.media_type, size, file.url, *made_by, copied(file.meta)
    )
