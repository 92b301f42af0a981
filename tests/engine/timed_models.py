"""Models whose failures ask for a wait, and a step function that asks them."""

import asyncio

from treadle import NextStep, ScriptedModel, StepContext, StepResult
from treadle.core.messages import Message, Text
from treadle.core.model import ModelAnswer
from treadle.errors import ModelError

SECOND = 1_000_000


IN_TIME = [("40", 0.0), ("5", 0.0), ("5", 5.0), ("40", 40.0)]


class Again:
    """A layer that wants each failure of its model tried again, after so many seconds each time."""

    def __init__(self, items, waits):
        self.inner, self.waits, self.requests = ScriptedModel(items), waits, []
        self.name = self.inner.name

    async def stream(self, request):
        self.requests.append(request)
        try:
            async for item in self.inner.stream(request):
                yield item
        except ModelError as error:
            if len(request.failures) < len(self.waits):
                error.again_in = self.waits[len(request.failures)]
            raise


async def asks_or_works(ctx: StepContext) -> StepResult:
    """Ask the model in two steps, work for a minute in a third beside them, and answer in the last."""
    if ctx.name == "start":
        beside = NextStep("40"), NextStep("5"), NextStep("work")
        return StepResult(next_steps=(*beside, NextStep("end", after=("40", "5", "work"))))
    if ctx.name == "work":
        await asyncio.sleep(60)
    elif ctx.name != "end":
        await ctx.call_model(messages=[Message("user", (Text(ctx.name),))])
    return StepResult("done", is_last=ctx.name == "end")


class Timed:
    """A model that fails once for each question, asks for a retry after the seconds in it, and notes the times."""

    name = "timed"

    def __init__(self):
        self.asked = []

    async def stream(self, request):
        word = request.messages[-1].text
        self.asked.append((word, round(asyncio.get_running_loop().time(), 2)))
        if not request.failures:
            raise ModelError("down", kind="server", again_in=float(word))
        yield ModelAnswer(Message("assistant", (Text("Hi"),)))
