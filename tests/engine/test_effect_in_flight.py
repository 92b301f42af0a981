"""An effect in flight: it notes when it enters code that acts, and tells its own cancellation from a stop."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from treadle.core import events as e
from treadle.core.effects import ConsultWorker
from treadle.core.state import start
from treadle.engine.effect_in_flight import EffectInFlight
from treadle.engine.journal_writer import Recorder

pytestmark = pytest.mark.anyio


async def unused(call: Any, why: str) -> None:
    raise AssertionError("no child is stopped here")


class Hanging(EffectInFlight[ConsultWorker]):
    """An effect that waits until it is cancelled, or until it cancels itself, and returns which it was."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        context: Any = None
        super().__init__(ConsultWorker("initialize"), context, unused)
        self.waiting = asyncio.Event()

    def begin(self, record: Recorder) -> bool:
        return True

    async def run(self) -> list[e.Event]:
        self.waiting.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return self.broken("cancelled itself") if self.cancelled_itself() else self.cut_off()
        raise AssertionError("it was never cancelled")

    @property
    def name(self) -> str:
        return "hanging"

    def cut_off(self) -> list[e.Event]:
        return [e.StepFailed("s1", e.Failure("worker", "error", "stopped"))]

    def broken(self, text: str) -> list[e.Event]:
        return [e.StepFailed("s1", e.Failure("worker", "error", text))]


def test_the_entry_into_code_that_acts_is_noted_and_announced() -> None:
    entries: list[bool] = []
    effect = Hanging()
    effect.on_entry = lambda: entries.append(effect.entered)
    assert not effect.entered
    effect.enter()
    assert (effect.entered, entries) == (True, [True])


def test_the_end_of_an_effect_is_of_use_unless_its_kind_says_otherwise() -> None:
    assert not Hanging().is_overtaken(start("t"))


class CancelsItself(Hanging):
    """An effect whose code raises `CancelledError` although nothing cancelled it."""

    __slots__ = ()

    async def run(self) -> list[e.Event]:
        try:
            raise asyncio.CancelledError
        except asyncio.CancelledError:
            return self.broken("cancelled itself") if self.cancelled_itself() else self.cut_off()


async def message_of(effect: Hanging, stop: Callable[[asyncio.Task[Any]], object]) -> str:
    """Return why the effect ended, after its asyncio task was stopped in some way."""
    task = asyncio.ensure_future(effect.run())
    await asyncio.sleep(0)
    stop(task)
    (end,) = await task
    assert isinstance(end, e.StepFailed)
    return end.error.message


@pytest.mark.parametrize(
    ("effect", "reason", "ends"),
    [
        (CancelsItself, None, "cancelled itself"),
        *[(CancelsItself, reason, "stopped") for reason in ("interrupted", "timeout", "abandoned")],
        (Hanging, None, "stopped"),
    ],
)
async def test_a_cancellation_without_a_request_is_the_own_doing_of_the_effect(
    effect: Any, reason: Any, ends: str
) -> None:
    made = effect()
    if reason is not None:
        made.cancel_reason = reason
    assert await message_of(made, lambda task: task.cancel() if effect is Hanging else None) == ends
