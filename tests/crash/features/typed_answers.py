"""A task with typed answers, of which the first is invalid."""

from dataclasses import dataclass

from treadle import Agent, ScriptedModel, tool
from treadle.models import call, text


@dataclass
class Point:
    x: float


@tool
async def mark(n: int) -> str:
    return f"marked {n}"


by_tool = [call("final_answer", x="far"), call("mark", n=1) + call("final_answer"), call("final_answer", x=1)]
in_words = [text('{"x": "far"}'), call("mark", n=1), text('{"x": 1}')]
tool_agent = Agent(ScriptedModel(by_tool), name="typed", tools=[mark], output_type=Point, output_mode="tool")
prompt_agent = Agent(
    ScriptedModel(in_words), name="typed", tools=[mark], output_type=Point, output_mode="prompt"
)
