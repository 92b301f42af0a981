"""The hint for `response_gen` named `partials()`: printed piece by piece, an answer was "It It is It is 42."."""

import pytest

from treadle import Agent, Runner, ScriptedModel, events
from treadle.core.foreign_names import ATTRIBUTES
from treadle.models import text

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("label", ["stream", "sync stream"])
@pytest.mark.parametrize("name", ["stream_text", "response_gen"])
def test_a_hint_for_pieces_of_text_names_the_deltas(label: str, name: str) -> None:
    pieces, whole = ATTRIBUTES[label][name].split("; ")
    assert "events.Delta" in pieces
    assert "`is_text`" in pieces
    assert whole == "`stream.partials()` yields the whole answer so far"


async def test_the_texts_of_the_deltas_join_to_the_answer() -> None:
    agent = Agent(ScriptedModel([text("It is 42.", chunk=3)]))
    async with Runner("memory:") as runner, runner.run_stream(agent, "?") as stream:
        pieces = [event.text async for event in stream if isinstance(event, events.Delta) and event.is_text]
    assert len(pieces) == 3
    assert "".join(pieces) == "It is 42."
