"""`StepContext`: what a step that is a function may know and do. What it does is journalled by key.

A function that was cut off (a crash, a pause, a call that waits for a person) is entered again from its top. What it
asks for then is found by key: a call that ended is not made again, its result is served from the journal. Code between
calls runs again; `once`, `now` and `random` keep a value.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, cast

from treadle.agents.subagent import SubagentTool
from treadle.core import events as e
from treadle.core.codec import is_writable
from treadle.core.graph import Graph, MemoEntry, MemoValue, StepNode
from treadle.core.ids import request_id
from treadle.core.messages import Content, Json, Message, ToolCall, content, copied
from treadle.core.model import ModelAnswer
from treadle.core.schedule import seen_by
from treadle.core.state import TaskState
from treadle.core.steps import CallState, ModelCall
from treadle.errors import ModelError, NotReproducible, SubagentFailed, ToolCallFailed, WorkerError
from treadle.ports import C, Tool

if TYPE_CHECKING:
    from treadle.agents.output import OutputType
    from treadle.core.tools import ToolSpec

T = TypeVar("T")


class StepServices(Protocol):
    """What carries out what a function asks for."""

    def request(self, event: e.Event | None, call_id: str) -> Awaitable[None]:
        """Record that something is wanted, unless it is known already; the awaitable is done when it has ended."""
        ...

    def keep(self, event: e.Event) -> Awaitable[None]:
        """Record an event; the awaitable is done when it is recorded."""
        ...

    @property
    def has_unrecorded(self) -> bool:
        """Whether something was handed in that is not recorded yet."""
        ...

    def all_recorded(self) -> Awaitable[None]:
        """Return what is done once all that was handed in is recorded."""
        ...

    def new_lock(self) -> AbstractAsyncContextManager[Any]:
        """Return a lock that one request at a time can hold."""
        ...

    def now(self) -> float:
        """Return seconds since 1970, UTC."""
        ...

    def random(self) -> float:
        """Return a number from 0 up to 1."""
        ...

    def wait(self, awaitable: Awaitable[T]) -> T:
        """Wait for an awaitable in a thread that is not the event loop's."""
        ...

    def in_thread(self, fn: Callable[[], T]) -> Awaitable[T]:
        """Call a function that blocks in a thread of its own."""
        ...


class NamedAgent(Protocol):
    """An agent that a step may run: `Agent`, as far as `StepContext.run_agent` needs it."""

    @property
    def name(self) -> str: ...


class StepContext(Generic[C]):
    """A step, as the function that it is sees it.

    `input` is the data it was planned with, `task_input` what the task was given; `results` holds the outputs of the
    steps it waited for, and of the one that planned it, by name (nothing for those that failed or were given up);
    `failures` says of those that failed why. `attempt` counts from 1; `context` is the object given to the run, never
    stored. `instructions` and `tools` are the agent's; `answer_schema` is what its answer has to fit, None for text.
    """

    def __init__(
        self,
        state: TaskState,
        node: StepNode,
        services: StepServices,
        context: C,
        tools: Sequence[Tool],
        output_type: OutputType | None,
    ) -> None:
        step, graph = node.step, state.graph
        assert step is not None, "it has begun"
        assert graph is not None, "it has begun"
        self._state, self._node, self._step, self._services = state, node, step, services
        self.task_id = state.task_id
        self.thread_id = state.thread
        self.agent = state.agent
        self.step_id = step.id
        self.name = node.plan.name
        self.index = step.index
        self.attempt = step.attempt
        self.input: Json = copied(node.plan.input)
        self.task_input: tuple[Content, ...] = state.input
        self.extra_state: Json = copied(state.extra_state)
        self.context: C = context
        self.results: Mapping[str, Json] = _results(graph, node)
        self.failures: Mapping[str, str] = _failures(graph, node)
        self.instructions = state.instructions or ""
        self.tools: tuple[ToolSpec, ...] = tuple([tool.spec for tool in tools])
        self._tool_of_agent = {
            tool.agent_name: tool.spec.name for tool in tools if isinstance(tool, SubagentTool)
        }
        self._typed = output_type
        self._made = node.requests
        self._seen: dict[str, int] = {}
        self._asking = False
        self._over = False
        self._turns: dict[str, AbstractAsyncContextManager[Any]] = {}

    # -------------------------------------------------------------------------------------- looking

    @property
    def messages(self) -> Sequence[Message]:
        """The conversation as this step sees it: what was said before it, and by itself; nothing of its siblings."""
        return seen_by(self._state, self._node)

    @property
    def answer_schema(self) -> Json:
        """A JSON schema that the task's answer has to fit; None if that is text."""
        return None if self._typed is None else self._typed.value_schema

    def check_answer(self, output: Json) -> None:
        """Raise `ValueError`, in words for a model, if this cannot be the task's answer: it is of another type."""
        if self._typed is not None:
            self._typed.read(output)

    def outputs(self, names: Collection[str]) -> Mapping[str, Json]:
        """Return the outputs of steps that this one came after, directly or not, by name: the nearest of each name.

        Without those that failed or were given up, and without what ended after this step had begun.
        """
        graph = self._state.graph
        assert graph is not None, "it has begun"
        wanted, found = set(names), dict[str, Json]()
        for node in graph.above(self._node) if wanted else ():
            if node.plan.name in wanted:
                wanted.remove(node.plan.name)
                found.update(_outputs((node,), self._node))
                if not wanted:
                    break
        return {name: copied(output) for name, output in found.items()}

    # ---------------------------------------------------------------------------------------- doing

    async def call_model(
        self,
        messages: str | Sequence[Message] | None = None,
        *,
        instructions: str | None = None,
        tools: Sequence[str] | Literal["offered"] | None = None,
        after_conversation: bool = False,
        key: str | None = None,
    ) -> ModelAnswer:
        """Ask the agent's model and return its answer.

        Args:
            messages: what it is asked, on the side; by default the conversation as this step sees it, in which the
                answer is said too. A text is a user's words.
            instructions: in place of the agent's.
            tools: names of the agent's tools to offer; or `offered` for what its `offer=` chooses, else all: so it is
                by default in the conversation, while on the side there are none.
            after_conversation: show the model the conversation before these messages; the answer stays on the side.
            key: how the request is known when the function is entered again; by default what is asked, and how often.

        Raises:
            ModelError: the model did not answer.
            NotReproducible: the key was used before with something else.
            WorkerError: the conversation cannot go on: an answer or a result in it is still awaited.
        """
        given = _messages(messages)
        if tools is None:
            tools = "offered" if given is None else ()
        offered = None if tools == "offered" else tuple(tools)
        looks_back = given is None or after_conversation
        asked = [
            None if given is None else [_facts(message) for message in given],
            instructions,
            list(offered) if offered is not None else None,
            *(["after the conversation"] if looks_back and given is not None else ()),
        ]
        digest = _digest("model", asked)
        known, name = self._find(key, digest)
        if known is None:
            if looks_back:
                self._check_conversation()
            call_id = self._next_id("model")
            back = looks_back and given is not None
            before = None if given is None else self._gone_on_from(given)
            fresh = given if given is None or before is None else given[before.side_length + 1 :]
            event = e.ModelRequested(
                self.step_id,
                call_id,
                name,
                digest,
                fresh,
                instructions,
                offered,
                back,
                before.id if before is not None else None,
            )
        else:
            event, call_id = None, str(cast("ModelCall", known.done).id)
        self._asking = self._asking or given is None
        try:
            await self._services.request(event, call_id)
        finally:
            self._asking = self._asking and given is not None
        call = cast("ModelCall", self._node.memo[name].done)
        if call.error is not None:
            error = call.error
            kind = cast("Any", error.kind)
            raise ModelError(error.message, kind=kind, status=error.status, retry_after=error.retry_after)
        assert call.message is not None, "it ended"
        return ModelAnswer(call.message, call.finish, call.usage)

    async def call_tool(
        self, tool: str | ToolCall, arguments: dict[str, Json] | None = None, *, key: str | None = None
    ) -> Json:
        """Call one of the agent's tools and return its output.

        Args:
            tool: its name; or a call that the model asked for in its newest answer in the conversation.
            arguments: as JSON data, with a name.
            key: how the call is known when the function is entered again; by default its name, its arguments, and how
                often they came. One that the model asked for is known by its id.

        Raises:
            ToolCallFailed: the call did not end well: `outcome` says how, `unknown` included.
            NotReproducible: the key was used before with another call.
        """
        call_id, ended = self._call(tool, arguments, key)
        await ended
        call = next(call for call in reversed(self._step.calls) if call.id == call_id)
        if call.outcome != "ok":
            why = call.error.message if call.error is not None else f"{call.name} ended as {call.outcome}"
            failed = SubagentFailed if call.name in self._tool_of_agent.values() else ToolCallFailed
            raise failed(why, tool=call.name, call_id=call.id, outcome=str(call.outcome))
        return copied(call.output)

    async def run_agent(self, agent: NamedAgent | str, input: str, *, key: str | None = None) -> Json:
        """Run one of the agent's subagents on a text, as a task of its own below this one, and return its output.

        Args:
            agent: one of `Agent(subagents=)`, or its name.
            input: all that it is told; it sees nothing of this conversation.
            key: how the run is known when the function is entered again; by default its name, its input, and how often
                they came.

        Raises:
            SubagentFailed: it did not end well: `outcome` says how.
            NotReproducible: the key was used before for something else.
        """
        name = agent if isinstance(agent, str) else agent.name
        tool = self._tool_of_agent.get(name)
        if tool is None:
            raise WorkerError(
                f"step {self.name!r}: {name!r} is not among the agent's subagents: name it in subagents="
            )
        return await self.call_tool(tool, {"input": input}, key=key)

    async def call_tools(self, answer: ModelAnswer) -> tuple[CallState, ...]:
        """Make all calls that an answer asks for, beside each other; those that fail are answers to the model too."""
        wanted = [self._call(call, None, None) for call in answer.message.tool_calls]
        for _, ended in wanted:
            await ended
        made = {call.id: call for call in self._step.calls}
        return tuple([made[call_id] for call_id, _ in wanted])

    async def once(self, key: str, fn: Callable[[], T | Awaitable[T]]) -> T:
        """Return what a function returned when it was called first; it has to be JSON data."""
        self._check_entered()
        name = f"once:{key}"
        async with self._turns.setdefault(name, self._services.new_lock()):
            if name not in self._node.memo:
                await self._keep(key, name, fn)
        return cast("T", copied(cast("MemoValue", self._node.memo[name].done).value))

    async def _keep(self, key: str, name: str, fn: Callable[[], Any]) -> None:
        given: Any = fn()
        value = await cast("Awaitable[Any]", given) if isinstance(given, Awaitable) else given
        if not is_writable(value):
            raise WorkerError(
                f"step {self.name!r}: once({key!r}, ...) must return JSON data, got {value!r:.200}"
            )
        await self._services.keep(e.ValueKept(self.step_id, name, value))

    async def now(self) -> float:
        """Return the time when this was first asked, in seconds since 1970, UTC; each call in a step has its own."""
        return await self.once(f"now:{self._count('now')}", self._services.now)

    async def random(self) -> float:
        """Return a number from 0 up to 1, the same when the function is entered again; each call has its own."""
        return await self.once(f"random:{self._count('random')}", self._services.random)

    def wait(self, awaitable: Awaitable[T]) -> T:
        """Return what an awaitable of this context comes to, in a function that is not `async`."""
        return self._services.wait(awaitable)

    async def in_thread(self, fn: Callable[[], T]) -> T:
        """Return what a function that blocks returned, called in a thread of its own; steps beside this one go on."""
        return await self._services.in_thread(fn)

    async def settled(self) -> None:
        """Return once all that was asked for has ended; from then on nothing may be asked for."""
        while self._services.has_unrecorded or self._step.open or self._node.model_calls:
            if self._services.has_unrecorded:
                await self._services.all_recorded()
            else:
                await self._services.request(None, next(iter((*self._step.open, *self._node.model_calls))))
        self._over = True

    # --------------------------------------------------------------------------------------- keeping

    def _find(self, key: str | None, digest: str) -> tuple[MemoEntry | None, str]:
        self._check_entered()
        name = f"key:{key}" if key is not None else f"{digest}:{self._count(digest)}"
        known = self._node.memo.get(name)
        if known is not None and known.digest != digest:
            raise NotReproducible(
                f"task {self.task_id}, step {self.step_id} ({self.name}): the key {key!r} was used before for something"
                " else; give each request a key of its own"
            )
        return known, name

    def _count(self, what: str) -> int:
        count = self._seen[what] = self._seen.get(what, 0) + 1
        return count

    def _gone_on_from(self, messages: tuple[Message, ...]) -> ModelCall | None:
        """Return the longest request whose words and answer these messages begin with: they are journalled already."""
        longest: ModelCall | None = None
        for entry in self._node.memo.values():
            call = entry.done
            if not isinstance(call, ModelCall) or call.in_conversation or call.message is None:
                continue
            length = call.side_length
            if (longest is not None and length <= longest.side_length) or length >= len(messages):
                continue
            if messages[length] == call.message and list(messages[:length]) == call.side_messages():
                longest = call
        return longest

    def _next_id(self, kind: Literal["model", "tool"]) -> str:
        self._made += 1
        return request_id(self.step_id, kind, self._made)

    def _call(
        self, tool: str | ToolCall, arguments: dict[str, Json] | None, key: str | None
    ) -> tuple[str, Awaitable[None]]:
        """Ask for a call at once, and return its id and what is done when it has ended."""
        asked = isinstance(tool, ToolCall)
        name = tool.name if asked else tool
        given = tool.arguments if asked else (arguments or {})
        if not is_writable(given):
            raise WorkerError(
                f"step {self.name!r}: the arguments of {name} must be JSON data, got {given!r:.200}"
            )
        digest = _digest("tool", [name, given])
        known, found = self._find(f"call:{tool.id}" if asked else key, digest)
        if known is not None:
            call_id = cast("CallState", known.done).id
            return call_id, self._services.request(None, call_id)
        if isinstance(tool, ToolCall) and tool.id.startswith(f"{self.step_id}-"):
            call_id = tool.id
        else:  # what this step was not asked for another may make as well
            call_id = self._next_id("tool")
        problem = tool.problem if asked else None
        is_its_own = asked and tool.id in self._node.newest_calls
        event = e.CallRequested(
            self.step_id, call_id, found, digest, name, copied(given), problem, is_its_own
        )
        return call_id, self._services.request(event, call_id)

    def _check_entered(self) -> None:
        if self._over:
            raise WorkerError(
                f"step {self.name!r} of task {self.task_id} has ended: nothing can be asked for in it"
            )

    def _check_conversation(self) -> None:
        if self._asking:
            raise WorkerError(
                f"step {self.name!r}: the model is being asked here already; to ask it beside that give messages="
            )
        made = [call for call in self._step.open.values() if call.asked]
        if made:
            raise WorkerError(
                f"step {self.name!r}: await the calls of the newest answer ({made[0].name}) before the next request"
            )


def _results(graph: Graph, node: StepNode) -> Mapping[str, Json]:
    above = (*((node.by,) if node.by is not None else ()), *node.after)
    found = [graph.nodes[step_id] for step_id in above if step_id in graph.nodes]
    known = dict(_outputs(found, node))
    return {other.plan.name: copied(known.get(other.plan.name)) for other in found}


def _outputs(nodes: Iterable[StepNode], before: StepNode) -> Iterator[tuple[str, Json]]:
    """Yield what steps came to that ended before another began: a function that is entered again finds no more."""
    began = before.step.started_seq if before.step is not None else 0
    for node in nodes:
        if node.status == "completed" and node.step is not None and node.step.ended_seq < began:
            yield node.plan.name, node.output


def _failures(graph: Graph, node: StepNode) -> Mapping[str, str]:
    steps = [graph.nodes[step_id].step for step_id in node.after if step_id in graph.nodes]
    return {
        graph.nodes[step.id].plan.name: step.error.message
        for step in steps
        if step is not None and step.status in ("failed", "skipped") and step.error is not None
    }


def _messages(given: str | Sequence[Message] | None) -> tuple[Message, ...] | None:
    if given is None:
        return None
    return (Message("user", content(given)),) if isinstance(given, str) else tuple(given)


def _facts(message: Message) -> Any:
    from treadle.core.codec import encode_part

    return [message.role, [encode_part(part) for part in message.parts]]


def _digest(kind: str, asked: Any) -> str:
    from pydantic_core import to_json

    return hashlib.sha256(to_json([kind, _sorted(asked)])).hexdigest()[:16]


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        document = cast("dict[str, Any]", value)
        return {name: _sorted(document[name]) for name in sorted(document)}
    if isinstance(value, (list, tuple)):
        return [_sorted(item) for item in cast("Sequence[Any]", value)]
    return value
