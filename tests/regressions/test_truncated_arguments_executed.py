"""R22: arguments cut off in the middle became `{}` and the call ran."""

import pytest

from treadle import Agent, Runner, ScriptedModel, tool
from treadle.llm.scripted import call_raw, text, turn

pytestmark = pytest.mark.anyio
ran: list[str] = []


@tool
async def wipe(path: str = "/") -> str:
    ran.append(path)
    return "wiped"


@pytest.mark.parametrize("finish", ["length", "stop", "unknown", "content_filter"])
@pytest.mark.parametrize("cut", ['{"path": "/tm', "{", '{"path"'])
async def test_a_call_whose_arguments_were_cut_off_does_not_run(finish: str, cut: str) -> None:
    model = ScriptedModel([turn("", call_raw("wipe", cut), finish=finish), text("so")])  # type: ignore[arg-type]
    async with Runner("memory:") as runner:
        result = await runner.run(Agent(model, tools=[wipe]), "go")
    assert ran == []
    assert [execution.outcome for execution in result.tool_executions] in (["invalid"], [])
