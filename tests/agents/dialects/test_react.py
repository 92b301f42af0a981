"""ReAct: its header, its correction, and parsers that take the place of its own."""

from typing import Any

import pytest

from tests.agents.dialects.readings import check_reading
from tests.agents.dialects.texts import REACT, read
from tests.agents.dialects.transcripts import REACT as TEXTS
from tests.agents.dialects.transcripts import Case
from treadle import Agent, React, Reading, Runner, ScriptedModel
from treadle.core import events as e
from treadle.errors import ModelError
from treadle.llm.scripted import text


@pytest.mark.anyio
async def test_a_custom_parser_reads_the_answers_and_its_errors_are_named() -> None:
    def parse(content: str) -> Any:
        return {
            "say": Reading(thought="t", answer="said"),
            "none": None,
            "both": Reading(arguments={}, answer=""),
        }[content]

    async with Runner("memory:") as runner:
        for content, problem in (
            ("say", ""),
            ("none", "must return a Reading"),
            ("both", "a call, an answer"),
            ("x", "KeyError"),
        ):
            agent = Agent(ScriptedModel([text(content, chunk=1)]), worker=React(parser=parse), name=content)
            async with runner.run_stream(agent, "go") as stream:
                deltas = [(d.channel, d.text) async for d in stream if isinstance(d, e.Delta)]
            result = stream.result
            if problem:
                assert result.error is not None
                assert problem in result.error.message
                assert "React" in result.error.message
            else:
                assert (result.final_text, deltas) == ("said", [("reasoning", "t"), ("final", "said")])


def test_a_model_is_reminded_of_the_format_that_its_parser_reads() -> None:
    assert REACT.correction("it was not closed").startswith(
        'Nothing was run: it was not closed. Write "Thought:"'
    )
    other = React(parser=lambda content: Reading(problem=content))
    assert other.correction("write `say WORDS`") == "Nothing was run: write `say WORDS`."


def test_a_broken_parser_is_a_models_error() -> None:
    with pytest.raises(ModelError, match="the parser raised ZeroDivisionError"):
        read(React(parser=lambda content: 1 // 0), "x")  # type: ignore[arg-type, return-value]


# ---------------------------------------------------------- texts in the ReAct protocol, and their readings


@pytest.mark.parametrize("case", TEXTS, ids=str)
def test_a_text_is_read_as_it_is_meant(case: Case) -> None:
    check_reading("react", case)


def test_every_text_of_the_table_has_a_name_of_its_own() -> None:
    assert len(TEXTS) >= 60
    assert len({case.name for case in TEXTS}) == len(TEXTS)
