"""One agent for each kind of function that users write, whose function fails as a fault says; and the faults."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from treadle import (
    Agent,
    FailurePolicy,
    Guardrail,
    NextStep,
    Node,
    Pipeline,
    Policy,
    Rule,
    RunOptions,
    ScriptedModel,
    StepResult,
    Subagent,
    tool,
)
from treadle.llm.scripted import call

SECONDS = 0.1
"""The deadline of the functions that have one."""

SECRET = "tok-9f8e7d6c5b4a3210"
"""The value of a variable that the runner takes for a secret."""


class Boom(BaseException):
    """An error of the user's own that is no ordinary one."""


@dataclass
class Fault:
    """What a function of the user does instead of its work."""

    name: str
    error: type[BaseException] | None = None

    @property
    def raises(self) -> bool:
        return self.error is not None

    def act(self, *_: Any) -> Any:
        """Fail in a thread or at once."""
        return outermost(self)

    async def wait(self, *_: Any) -> Any:
        """Fail in the event loop."""
        if self.name == "hangs":
            await asyncio.Event().wait()
        return outermost(self)


def outermost(fault: Fault) -> Any:
    return innermost(fault, "".join(["value-of-", "a-variable"]))


def innermost(fault: Fault, variable: str) -> Any:
    if fault.error is not None:
        raise fault.error(f"lost, with {SECRET}" if fault.name == "a secret" else "lost")
    return object()


FAULTS = {
    fault.name: fault
    for fault in (
        Fault("an exception", KeyError),
        Fault("a secret", ValueError),
        Fault("an exit", SystemExit),
        Fault("an interrupt", KeyboardInterrupt),
        Fault("an own error", Boom),
        Fault("hangs"),
        Fault("nonsense"),
    )
}


@dataclass
class Case:
    """An agent with a function that fails.

    Args:
        agent: the agent.
        states: the states that its task may stop in.
        says: what the failure says, whatever the fault is.
        hangs: whether the function has a deadline.
    """

    agent: Agent[Any]
    states: tuple[str, ...] = ("failed",)
    says: str = ""
    hangs: bool = False


def scripted(*turns: Any, **more: Any) -> Agent[Any]:
    return Agent(ScriptedModel(list(turns)), name="clerk", **more)


DENIED = ("completed",)
"""A denied call is an answer to the model, which goes on."""

STRICT = RunOptions(on_failure=FailurePolicy(tool="fail", subagent="fail"))


def _tool(fault: Fault) -> Case:
    @tool(read_only=True)
    def work() -> int:
        """Work."""
        return fault.act()

    return Case(scripted(call("work"), "Done.", tools=[work]))


def _async_tool(fault: Fault) -> Case:
    @tool(timeout=SECONDS if fault.name == "hangs" else None)
    async def work() -> int:
        """Work."""
        return await fault.wait()

    states = ("failed", "paused", "waiting") if fault.name == "hangs" else ("failed",)
    return Case(scripted(call("work"), "Done.", tools=[work]), states, hangs=True)


def _middleware(fault: Fault) -> Case:
    async def around(call: Any, next: Any) -> Any:
        return await fault.wait()

    @tool(read_only=True, timeout=SECONDS if fault.name == "hangs" else None)
    def work() -> int:
        """Work."""
        return 1

    return Case(scripted(call("work"), "Done.", tools=[work], middleware=[around]), hangs=True)


def _instructions(fault: Fault) -> Case:
    return Case(scripted("Done.", instructions=fault.act), says="the instructions function of clerk")


def _async_instructions(fault: Fault) -> Case:
    return Case(scripted("Done.", instructions=fault.wait), says="the instructions function of clerk")


def _router(fault: Fault) -> Case:
    helper = Agent(ScriptedModel([]), name="helper")
    agent = scripted("Done.", router=fault.act, subagents=[helper])
    return Case(agent, says="the router of clerk failed")


def _async_router(fault: Fault) -> Case:
    helper = Agent(ScriptedModel([]), name="helper")
    agent = scripted("Done.", router=fault.wait, subagents=[helper])
    return Case(agent, says="the router of clerk failed")


def _offer(fault: Fault) -> Case:
    @tool(read_only=True)
    def work() -> int:
        """Work."""
        return 1

    return Case(scripted("Done.", tools=[work], offer=fault.act), says="the tools to offer")


def _policy(fault: Fault) -> Case:
    @tool(read_only=True)
    def work() -> int:
        """Work."""
        return 1

    policy = Policy(Rule("gate", fault.wait, tool="work"), deadline=SECONDS if fault.name == "hangs" else 60)
    agent = scripted(call("work"), "Done.", tools=[work], policy=policy)
    return Case(agent, DENIED, says="the policy function", hangs=True)


def _threaded_policy(fault: Fault) -> Case:
    @tool(read_only=True)
    def work() -> int:
        """Work."""
        return 1

    policy = Policy(Rule("gate", fault.act, tool="work"), deadline=60)
    agent = scripted(call("work"), "Done.", tools=[work], policy=policy)
    return Case(agent, DENIED, says="the policy function")


def _needs_approval(fault: Fault) -> Case:
    async def decide() -> bool:
        await fault.wait()
        return False

    @tool(read_only=True, needs_approval=decide)
    def work() -> int:
        """Work."""
        return 1

    return Case(scripted(call("work"), "Done.", tools=[work]), DENIED, says="needs_approval= failed")


def _preview(fault: Fault) -> Case:
    async def preview() -> Any:
        return await fault.wait()

    @tool(needs_approval=True, preview=preview)
    def work() -> int:
        """Work."""
        return 1

    agent = scripted(call("work"), "Done.", tools=[work])
    return Case(agent, ("waiting",), says="no preview")


def _guardrail(on: Any) -> Callable[[Fault], Case]:
    def case(fault: Fault) -> Case:
        @tool(read_only=True)
        def work() -> str:
            """Work."""
            return "worked"

        deadline = SECONDS if fault.name == "hangs" else 60
        guardrail = Guardrail(fault.wait, on=on, id="gate", deadline=deadline)
        agent = scripted(call("work"), "Done.", tools=[work], guardrails=[guardrail])
        return Case(agent, says="the guardrail", hangs=True)

    return case


def _model(fault: Fault) -> Case:
    class Own:
        name = "own:model"

        async def stream(self, request: Any) -> Any:
            yield await fault.wait()

    return Case(Agent(Own(), name="clerk"))  # type: ignore[arg-type]


def _step_function(fault: Fault) -> Case:
    return Case(Agent(ScriptedModel([]), name="clerk", worker=Pipeline([Node("only", fault.act)])))


def _async_step_function(fault: Fault) -> Case:
    return Case(Agent(ScriptedModel([]), name="clerk", worker=Pipeline([Node("only", fault.wait)])))


def _worker(method: str) -> Callable[[Fault], Case]:
    def case(fault: Fault) -> Case:
        class Own:
            async def initialize_step(self, task: Any) -> Any:
                return await fault.wait() if method == "initialize_step" else NextStep("only")

            async def run_step(self, ctx: Any) -> Any:
                return await fault.wait() if method == "run_step" else StepResult("done", is_last=True)

            async def finalize_task(self, task: Any, output: Any) -> Any:
                return await fault.wait() if method == "finalize_task" else output

        says = "" if method == "run_step" else f"{method} failed"
        return Case(Agent(ScriptedModel([]), name="clerk", worker=Own()), says=says)  # type: ignore[arg-type]

    return case


def _subagent(fault: Fault) -> Case:
    @tool(read_only=True)
    def work() -> int:
        """Work."""
        return fault.act()

    helper = Agent(ScriptedModel([call("work"), "Done."]), name="helper", tools=[work])
    return Case(scripted(call("helper", input="go"), "Done.", subagents=[helper]))


def _subagent_context(fault: Fault) -> Case:
    helper = Agent(ScriptedModel(["Done."]), name="helper")
    boss = scripted(call("helper", input="go"), "Done.", subagents=[Subagent(helper, context=fault.act)])
    return Case(boss, says="the function of context= failed" if fault.raises else "")


FUNCTIONS: dict[str, Callable[[Fault], Case]] = {
    "tool": _tool,
    "async tool": _async_tool,
    "middleware": _middleware,
    "instructions": _instructions,
    "async instructions": _async_instructions,
    "router": _router,
    "async router": _async_router,
    "offer": _offer,
    "policy": _policy,
    "policy in a thread": _threaded_policy,
    "needs_approval": _needs_approval,
    "preview": _preview,
    "guardrail on input": _guardrail("input"),
    "guardrail on output": _guardrail("output"),
    "guardrail on results": _guardrail("result"),
    "model": _model,
    "step function": _step_function,
    "async step function": _async_step_function,
    "initialize_step": _worker("initialize_step"),
    "run_step": _worker("run_step"),
    "finalize_task": _worker("finalize_task"),
    "tool of a subagent": _subagent,
    "context of a subagent": _subagent_context,
}


def models_of(agent: Agent[Any]) -> list[ScriptedModel]:
    """Return the models of an agent, and of those that it may call."""
    models = [agent.model, *[getattr(helper, "agent", helper).model for helper in agent.subagents]]
    return [model for model in models if isinstance(model, ScriptedModel)]
