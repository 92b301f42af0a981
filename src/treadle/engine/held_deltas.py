"""Held deltas of an answer that guardrails check. Watchers receive text only after it has passed.

    feed --> held --`piece` characters more--> the whole text so far is judged
        passed         the text is sent
        rewritten      the rewritten text is sent, if it begins with the text already sent
        asked about    nothing more is sent before the whole answer has passed
        refused        the request ends

Reasoning, arguments of calls and raw chunks are held until the whole answer has passed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace

from treadle.core import events as e
from treadle.core.deltas import DeltasSoFar
from treadle.core.messages import Message
from treadle.core.observation import as_text
from treadle.core.state import TaskState
from treadle.engine.broadcast import Channel
from treadle.policy.verdicts import Allow, Deny, PolicyVerdict, Replace

JudgeText = Callable[[str], Awaitable[PolicyVerdict | None]]


class HeldDeltas:
    """The deltas of one answer that watchers may receive.

    Args:
        channel: the channel of the watchers.
        state: the state of the task.
        streamed: requests whose answers were in part sent to watchers. This one is added.
        key: the step or the request of the answer.
        label: an empty delta of the answer's text.
        judge: judges the whole text so far. None: no guardrail checks answers.
        piece: number of characters between two judgements. None: judge only the whole answer.
        awaits_input: returns whether the input has not passed yet.
    """

    def __init__(
        self,
        channel: Channel,
        state: TaskState,
        streamed: set[str],
        key: str,
        label: e.Delta,
        judge: JudgeText | None,
        piece: int | None,
        awaits_input: Callable[[], bool],
    ) -> None:
        self._channel = channel
        self._state = state
        self._streamed = streamed
        self._key = key
        self._label = label
        self._judge = judge
        self._piece = piece
        self._awaits_input = awaits_input
        self._held: list[e.Delta | e.RawChunk] = []
        self._shown = ""
        """the text that watchers have received"""

        self._all_shown = DeltasSoFar()
        """all deltas that watchers have received"""

        self._judged = 0
        """number of judged characters of `text`"""

        self._judging: asyncio.Task[None] | None = None
        self._stopped = False
        """whether nothing more is sent before the whole answer has passed"""

        self.text: str = ""
        """the text of the answer so far"""

        self.refusal: Deny | None = None
        """the verdict that refused the text so far"""

    def feed(self, delta: e.Delta | e.RawChunk) -> None:
        """Take a delta of the answer."""
        is_text = False
        if isinstance(delta, e.Delta) and delta.is_text:
            is_text = True
            self.text += delta.text
            self._label = replace(delta, text="")
        if isinstance(delta, e.Delta) or self._channel.raw:
            self._held.append(delta)
        if self._judge is None:
            if not self._stopped and not self._awaits_input():
                self._tell_held()
        elif is_text and self._channel.listeners:  # without watchers, judging would only cost
            self._judge_soon()

    def so_far(self) -> Iterator[e.Delta]:
        """Yield the deltas that watchers have received, one for each part of the answer."""
        return self._all_shown.deltas()

    def close(self) -> None:
        """Stop judging, since the answer is complete or abandoned."""
        self._stopped = True
        if self._judging is not None:
            self._judging.cancel()

    def tell_rest(self) -> None:
        """Send all held deltas of an unchanged answer."""
        if self._channel.listeners:
            self._tell_held()
        self._streamed.discard(self._key)

    def finish(
        self, message: Message, typed: e.TypedAnswer | None, *, changed: bool, restarted: e.ModelRestarted
    ) -> None:
        """Send the held deltas of an answer that has passed.

        Args:
            message: the answer that passed.
            typed: its typed answer, if any.
            changed: whether guardrails rewrote the answer.
            restarted: sent first if the answer does not begin with the text that watchers have.
        """
        if not self._channel.listeners:
            pass
        elif self._judge is None and not changed:
            self._tell_held()
        else:
            text = message.text
            if typed is not None and typed.call is None and changed:
                text = as_text(typed.output)
            if not text.startswith(self._shown):
                self._channel.tell(restarted)
                self._all_shown.clear()
                self._shown = ""
            for delta in self._held:
                if not changed and not (isinstance(delta, e.Delta) and delta.is_text):
                    self._tell(delta)
            if typed is not None and typed.call is not None and changed:
                call = next(call for call in message.tool_calls if call.id == typed.call)
                arguments = as_text(call.arguments)
                written = replace(self._label, channel="arguments", text=arguments, tool=call.name)
                written.at, written.call_id = 0, call.id
                self._tell(written)
            self._show(text)
        self._streamed.discard(self._key)

    # --------------------------------------------------------------------------------------- pieces

    def _judge_soon(self) -> None:
        if self._stopped or self._piece is None or self._judging is not None:
            return
        if len(self.text) - self._judged >= self._piece:
            self._judging = asyncio.get_running_loop().create_task(self._judge_text(self.text))

    async def _judge_text(self, text: str) -> None:
        """Judge the text so far, and send it if it passes."""
        assert self._judge is not None, "text is judged"
        verdict = await self._judge(text)
        self._judging, self._judged = None, len(text)
        if self._stopped:
            return
        if isinstance(verdict, Deny):
            self.refusal, self._stopped = verdict, True
            return
        passed = text
        if isinstance(verdict, Replace):
            passed = as_text(verdict.arguments["text"])
            again = await self._judge(passed)
            if not (again is None or isinstance(again, Allow)) or not passed.startswith(self._shown):
                self._stopped = True
                return
        elif verdict is not None and not isinstance(verdict, Allow):
            self._stopped = True
            return
        if not self._awaits_input() and not self._stopped:
            self._show(passed)
        self._judge_soon()

    # --------------------------------------------------------------------------------------- telling

    def _show(self, text: str) -> None:
        """Send the part of a text that watchers have not received yet."""
        if len(text) > len(self._shown):
            at = self._all_shown.chars(self._label)
            self._tell(replace(self._label, text=text[len(self._shown) :], at=at))
            self._shown = text

    def _tell_held(self) -> None:
        held, self._held = self._held, []
        for delta in held:
            if isinstance(delta, e.Delta) and delta.is_text:
                self._shown += delta.text
            self._tell(delta)

    def _tell(self, delta: e.Delta | e.RawChunk) -> None:
        delta.after = self._state.seq
        self._streamed.add(self._key)
        if isinstance(delta, e.Delta):
            self._all_shown.add(delta)
        self._channel.tell(delta)
