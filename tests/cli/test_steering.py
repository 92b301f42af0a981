"""Whose turn it is on a terminal: what is printed, a question, or what the person writes."""

import asyncio
from contextlib import nullcontext
from typing import Any, cast

import pytest

from treadle.cli.steering import MARK, Steering

pytestmark = pytest.mark.anyio


class Hands:
    """A prompt and a timeline that tell what happens, in order; keys are pressed by the test."""

    is_interactive = True

    def __init__(self) -> None:
        self.key = asyncio.Event()
        self.line: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.seen = list[str]()

    async def typed(self) -> None:
        await self.key.wait()

    async def ask(self, mark: str, default: str = "") -> str:
        assert mark == MARK
        self.key.clear()
        self.seen.append("prompt")
        return await self.line

    async def answer(self, mark: str, default: str = "") -> str:
        raise AssertionError("no question is asked here")

    def interrupt(self) -> bool:
        return False

    def quiet(self) -> nullcontext[None]:
        return nullcontext()

    def show(self, event: Any) -> None:
        self.seen.append(f"show {event}")

    def pause(self) -> None:
        self.seen.append("pause")

    def resume(self) -> None:
        self.seen.append("resume")

    async def send(self, text: str) -> None:
        self.seen.append(f"send {text}")


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def steering(hands: Hands) -> Steering:
    return Steering(hands, cast("Any", hands), hands.send)


async def test_nothing_is_printed_while_a_line_is_written() -> None:
    hands = Hands()
    async with steering(hands) as turns:
        await turns.show(cast("Any", 1))
        hands.key.set()
        await settle()
        later = asyncio.ensure_future(turns.show(cast("Any", 2)))
        await settle()
        assert hands.seen == ["show 1", "pause", "prompt"]
        hands.line.set_result("be brief ")
        await later
        assert hands.seen[3:] == ["send be brief", "resume", "show 2"]


@pytest.mark.parametrize("how", ["", KeyboardInterrupt()])
async def test_a_line_that_is_dropped_is_not_sent(how: str | KeyboardInterrupt) -> None:
    hands = Hands()
    async with steering(hands) as turns:
        hands.key.set()
        await settle()
        hands.line.set_result(how) if isinstance(how, str) else hands.line.set_exception(how)
        await turns.finished()
        assert hands.seen == ["pause", "prompt", "resume"]


async def test_keys_belong_to_a_question_while_it_is_asked() -> None:
    hands = Hands()
    async with steering(hands) as turns:
        await settle()
        async with turns.question():
            hands.key.set()
            await settle()
            assert hands.seen == ["pause"]
            hands.key.clear()  # the question read them
        await settle()
        assert hands.seen == ["pause", "resume"]
        hands.key.set()
        await settle()
        assert hands.seen[2:] == ["pause", "prompt"], "later keys open the prompt again"


async def test_a_question_waits_for_the_line_that_is_being_written() -> None:
    hands = Hands()
    async with steering(hands) as turns:
        hands.key.set()
        await settle()

        async def ask() -> None:
            async with turns.question():
                hands.seen.append("question")

        asking = asyncio.ensure_future(ask())
        await settle()
        assert "question" not in hands.seen
        hands.line.set_result("stop")
        await asking
        assert hands.seen[2:5] == ["send stop", "resume", "pause"]


async def test_a_question_right_behind_another_left_the_keys_to_a_line_of_the_person() -> None:
    hands = Hands()
    async with steering(hands) as turns:
        await settle()
        async with turns.question():
            await settle()
        async with turns.question():
            hands.key.set()
            await settle()
            hands.key.clear()  # the question read them
        await settle()
        assert hands.seen == ["pause", "resume", "pause", "resume"], "no line was begun"
