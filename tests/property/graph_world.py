"""Workers of functions that do, under each name, what a seed says: plan, call, ask, fail, give themselves up."""

import asyncio
import json
import random
from collections.abc import Sequence
from typing import Any

from tests.property.world import FIRED, TOOLS, World
from treadle import (
    Agent,
    Ask,
    NextStep,
    Node,
    NodeContext,
    Pipeline,
    PlanRefine,
    Quorum,
    RunContext,
    ScriptedModel,
    StepContext,
    StepResult,
)
from treadle.core.model import ModelRequest
from treadle.errors import ModelError, ToolCallFailed
from treadle.llm.scripted import Turn, fail, text

KINDS = (
    "function",
    "function",
    "function",
    "three parts",
    "several first steps",
    "pipeline",
    "side by side",
    "plan_refine",
)


class GraphWorld(World):
    """A world whose agent is a worker of functions, of a kind that the seed says."""

    called = TOOLS

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.asks = None
        self.kind = self.chance("kind").choice(KINDS)
        self.looks = 0
        self.seen: dict[tuple[Any, ...], tuple[str, int]] = {}
        """the state that each step function read, by where it was, and the task's last event then"""

        self.answers: dict[tuple[Any, ...], int] = {}
        """by task, step and attempt, how a person answered"""

        self.wrong: list[str] = []
        """what a function saw that it should not have"""

    def agent(self, model: ScriptedModel, version: int = 0) -> Agent[Any]:
        options: dict[str, Any] = {}
        if self.family:
            options["subagents"] = [Agent(model, name="helper", tools=self.tools())]
        worker: Any = {
            "function": self.step,
            "pipeline": self.pipeline,
            "side by side": self.side_by_side,
            "plan_refine": PlanRefine,
        }.get(self.kind, lambda: Dependencies(self))
        if self.kind != "function":
            worker = worker()
        instructions = f"version {version}" if version else ""
        return Agent(
            model, name="any", tools=self.tools(), worker=worker, instructions=instructions, **options
        )

    def says(self, request: ModelRequest) -> Any:
        chance = self.chance("says", request.step, request.call, request.attempt)
        if (request.instructions or "").startswith("You solve a task by planning"):
            return self.plans(request, chance)
        if chance.randrange(10) == 0 and request.attempt < 3:
            return fail(500)
        return self.calls(chance) if chance.randrange(3) == 0 else text(f"words of {request.step}")

    def plans(self, request: ModelRequest, chance: random.Random) -> Turn:
        if chance.randrange(3) == 0 or request.tool_choice == "none":
            return text(json.dumps({"thought": "so", "answer": request.step}))
        names = [f"t{i}" for i in range(chance.randint(1, 3))]
        tasks = [
            {"id": name, "task": "go", "after": [n for n in names[:i] if chance.randrange(3) == 0]}
            for i, name in enumerate(names)
        ]
        return text(json.dumps({"thought": "so", "sub_tasks": tasks}))

    def pipeline(self) -> Pipeline:
        chance, nodes = self.chance("pipeline"), list[Node]()

        async def act(ctx: NodeContext[Any]) -> Any:
            if (
                ctx.step.attempt < 3
                and self.chance("node", ctx.step.step_id, ctx.step.attempt).randrange(9) == 0
            ):
                raise RuntimeError("no luck")
            return await self.do_things(ctx.step)

        for i in range(chance.randint(1, 5)):
            run: Any = chance.choice([act, act, Ask("of {input}"), "look", "save"])
            after = tuple(node.name for node in nodes if chance.randrange(2))
            join: Any = chance.choice(["all", "all", "any", "optional", Quorum(1)]) if after else "all"
            arguments: Any = {"n": i} if isinstance(run, str) else None
            optional = chance.randrange(3) == 0
            nodes.append(Node(f"n{i}", run, after=after, join=join, optional=optional, input=arguments))
        return Pipeline(nodes)

    def side_by_side(self) -> Pipeline:
        """Return nodes that run beside each other, change the same keys and fail, between a first and a last one."""
        chance, inside = self.chance("side by side"), set[str]()

        async def act(ctx: NodeContext[Any]) -> Any:
            state, mine = ctx.step.state, self.chance("beside", ctx.step.step_id, ctx.step.attempt)
            state["who"] = ctx.step.name
            FIRED["steps side by side"] += bool(inside)
            inside.add(ctx.step.step_id)
            try:
                results = await self.do_things(ctx.step)
            finally:
                inside.discard(ctx.step.step_id)
            if state["who"] != ctx.step.name:
                self.wrong.append(f"{ctx.step.step_id} set who and read {state['who']!r}")
            if mine.randrange(9) == 0 and ctx.step.attempt < 3:
                raise RuntimeError("no luck")
            state.setdefault("order", []).append(ctx.step.name)
            if mine.randrange(3) == 0:
                del state["who"]
            return results

        names = [f"n{number}" for number in range(chance.randint(2, 4))]
        middle = [Node(name, act, after="first", optional=chance.randrange(3) == 0) for name in names]
        return Pipeline([Node("first", act), *middle, Node("last", act, after=tuple(names), join="optional")])

    # ----------------------------------------------------------------------------------- a step

    async def step(self, ctx: StepContext) -> StepResult:
        chance = self.chance("step", ctx.step_id, ctx.attempt)
        results = await self.do_things(ctx)
        kind = chance.randrange(24)
        if kind == 0 and ctx.attempt < 3:
            FIRED["step fails"] += 1
            raise RuntimeError("no luck")
        if kind == 1 and ctx.name != "end":
            FIRED["step gives itself up"] += 1
            return StepResult(skipped="no need" if chance.randrange(2) else RuntimeError("no use"))
        if ctx.name == "end" or kind == 2:
            FIRED["answer"] += 1
            return StepResult(f"{ctx.step_id} {results}", is_last=True)
        return StepResult(results, next_steps=self.plan(ctx.name, chance))

    def look_at(self, ctx: StepContext) -> None:
        node = ctx._node
        if node.status != "running":
            self.wrong.append(f"step {ctx.step_id} is entered and is {node.status}")

    def check_answer(self, ctx: StepContext, number: int, answer: int) -> None:
        """Check that each entry of a function gets the one answer that a person gave to this question of it."""
        place = (ctx.task_id, ctx.step_id, ctx.attempt, number)
        if self.answers.setdefault(place, answer) != answer:
            self.wrong.append(f"{place} was answered {self.answers[place]} and now {answer}")

    def look_at_state(self, ctx: StepContext, number: int) -> None:
        """Check that a function reads the same state each time it is entered, unless something was undone meanwhile."""
        state = ctx._state
        place = (ctx.task_id, ctx.step_id, ctx.attempt, number, state.branch, state.undo is None)
        seen = json.dumps(dict(ctx.state), sort_keys=True)
        FIRED["state read again"] += place in self.seen
        before, _ = self.seen.setdefault(place, (seen, state.seq))
        if before != seen:
            self.wrong.append(f"{place} read {before} and now {seen}")

    def lose(self, heads: dict[str, int]) -> None:
        """Forget what functions read of events that a crash lost: what they did after that is lost as well."""
        kept = {place: read for place, read in self.seen.items() if read[1] <= heads.get(place[0], 0)}
        self.seen = kept

    async def do_things(self, ctx: StepContext) -> int:
        """Do what the seed says for this step and attempt; entered again, the same."""
        self.look_at(ctx)
        chance = self.chance("does", ctx.step_id, ctx.attempt)
        hides = chance.randrange(2)
        for number in range(chance.choice([0, 1, 1, 2, 3])):
            self.look_at_state(ctx, number)
            self.change(ctx.state, f"{ctx.step_id} {number}", self.chance("state", ctx.step_id, number))
            try:
                await self.do_one(ctx, chance, number)
            except (ToolCallFailed, ModelError):
                FIRED["call fails a function"] += 1
                if not hides and ctx.attempt < 3:
                    raise
        return len(ctx.messages)

    async def do_one(self, ctx: StepContext, chance: random.Random, number: int) -> None:
        kind, n, tool = chance.randrange(8), chance.randrange(3), chance.choice(TOOLS)
        count = chance.randrange(2)
        match kind:
            case 0 | 1:
                await ctx.call_tool(tool, {"n": n})
            case 2 | 3:
                answer = await ctx.call_model()
                if answer.message.tool_calls and count:
                    await ctx.call_tools(answer)
            case 4:
                await ctx.call_model("on the side")
            case 5:
                both = [ctx.call_tool(name, {"n": n}) for name in (tool, "look", "put")]
                ends = await asyncio.gather(*both, return_exceptions=True)
                for end in ends:
                    if isinstance(end, ToolCallFailed) and count:
                        raise end
                    if isinstance(end, BaseException) and not isinstance(end, ToolCallFailed):
                        raise end
            case 6:
                await ctx.once("once", lambda: n)
                for _ in range(n * 3):
                    await asyncio.sleep(0)
                if n == 2:
                    FIRED["question asked"] += 1
                    answer = await ctx.ask(f"{ctx.step_id}?", int)
                    FIRED["question answered"] += 1
                    self.check_answer(ctx, number, answer)
            case _:
                if self.family:
                    await ctx.run_agent("helper", "go")

    def plan(self, name: str, chance: random.Random) -> list[NextStep]:
        depth = name.count(".")
        if name == "start":
            names = [f"n.{i}" for i in range(chance.randint(1, 3))]
        elif depth < 3 and chance.randrange(3) == 0:
            names = [f"{name}.{i}" for i in range(chance.randint(1, 2))]
        else:
            return []
        steps: list[NextStep] = []
        for i, each in enumerate(names):
            after = tuple(name for name in names[:i] if chance.randrange(3) == 0)
            steps.append(NextStep(each, {"of": name}, after, self.join(after, chance)))
        if name == "start":
            steps.append(NextStep("end", None, tuple(names), self.join(names, chance)))
        return steps

    @staticmethod
    def join(after: Sequence[str], chance: random.Random) -> Any:
        if not after:
            return "all"
        return chance.choice(["all", "all", "any", "optional", Quorum(chance.randint(1, len(after)))])


class Dependencies:
    """The same worker in three parts, asked for its first steps or known to begin with several."""

    def __init__(self, world: GraphWorld) -> None:
        self.world = world
        if world.kind == "several first steps":
            names = ("n.8", "n.9")
            self.first_steps = (*map(NextStep, names), NextStep("end", None, names, "any"))

    async def initialize_step(self, task: RunContext[Any]) -> NextStep:
        self.world.looks += 1
        if self.world.chance("initialize", self.world.looks).randrange(8) == 0:
            FIRED["initialize fails"] += 1
            raise RuntimeError("not yet")
        return NextStep("start")

    async def run_step(self, ctx: StepContext[Any]) -> StepResult:
        return await self.world.step(ctx)

    async def finalize_task(self, task: RunContext[Any], output: Any) -> Any:
        self.world.looks += 1
        chance = self.world.chance("finalize", self.world.looks)
        if chance.randrange(8) == 0:
            FIRED["finalize fails"] += 1
            raise RuntimeError("not like this")
        return {"final": output} if chance.randrange(2) else None
