"""Observers by name, as arguments of `Runner(observers=[...])`. Imports nothing until it is used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from treadle.ports import DriveBegan, DriveEnded, Missed, Notice, ObservedTask, Observer
    from treadle.telemetry.callback import Callback
    from treadle.telemetry.console import Console
    from treadle.telemetry.jsonl import JsonLines
    from treadle.telemetry.otel import OpenTelemetry
    from treadle.telemetry.otel_ids import TaskIds

_HOMES = {
    "Callback": "treadle.telemetry.callback",
    "Console": "treadle.telemetry.console",
    "DriveBegan": "treadle.ports",
    "DriveEnded": "treadle.ports",
    "JsonLines": "treadle.telemetry.jsonl",
    "Missed": "treadle.ports",
    "Notice": "treadle.ports",
    "ObservedTask": "treadle.ports",
    "Observer": "treadle.ports",
    "OpenTelemetry": "treadle.telemetry.otel",
    "TaskIds": "treadle.telemetry.otel_ids",
}

__all__ = [
    "Callback",
    "Console",
    "DriveBegan",
    "DriveEnded",
    "JsonLines",
    "Missed",
    "Notice",
    "ObservedTask",
    "Observer",
    "OpenTelemetry",
    "TaskIds",
]


if not TYPE_CHECKING:  # for a type checker, a module with this function has every name

    def __getattr__(name: str) -> Any:
        if (home := _HOMES.get(name)) is None:
            from treadle.core.unknown_names import unknown_in_module

            raise unknown_in_module(__name__, name, __all__)
        return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return __all__
