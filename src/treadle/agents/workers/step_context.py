"""`StepContext`: the information and requests of a step function. Each request is journalled under a key.

A step function may be stopped at any `await`, by a crash, a pause, or a wait for a person. Later it is entered again
from its top. Its requests are then looked up in the memo of its node, by key:

    first entry                              second entry
    call_tool("search", ...)  -> recorded    call_tool("search", ...)  -> its result, from the memo
    call_model("Sum it up")   -> recorded    call_model("Sum it up")   -> not ended: the step waits for it again
    (crash)                                  once("id", new_id)        -> recorded

The caller may pass the key of a request. By default it is computed from the arguments and how often the step made the
request. So a request that ended is never made twice, and `once`, `now` and `random` return the same value again. Code
between requests runs again. A key that is used with other arguments raises `NotReproducible`.
"""

from __future__ import annotations

import hashlib
import reprlib
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, cast, overload

from treadle.agents.once import is_making, making, nested
from treadle.agents.question import QuestionTerms, due_at, terms_of
from treadle.agents.subagent import SubagentTool
from treadle.agents.workers.step_memo import StepMemo
from treadle.core import events as e
from treadle.core import origins
from treadle.core.codec import is_writable, storable
from treadle.core.ends import not_begun, withheld_end
from treadle.core.framing import without_nonce
from treadle.core.graph import Graph, MemoValue, StepNode
from treadle.core.ids import sleep_id
from treadle.core.messages import Content, Json, Message, Text, ToolCall, content, copied
from treadle.core.model import ModelAnswer
from treadle.core.questions import Question
from treadle.core.rules.schedule import seen_by
from treadle.core.state import TaskState
from treadle.core.state_view import StateAccess, StateView
from treadle.core.steps import CallState, ModelCall
from treadle.core.unknown_names import explains_names
from treadle.errors import (
    ModelError,
    StepHasNoOutput,
    SubagentFailed,
    ToolCallFailed,
    WorkerError,
)
from treadle.ports import NO_DEFAULT, ContextT_co, OutputT, OutputT_co, Tool

if TYPE_CHECKING:
    from treadle.agents.output import OutputType
    from treadle.core.tools import ToolSpec

T = TypeVar("T")


class StepServices(Protocol):
    """The services of the engine for a step function."""

    def request(self, event: e.Event | None, call_id: str) -> Awaitable[None]:
        """Record a request, unless `event` is None because it is recorded already.

        The awaitable is done once the call or the sleep has ended.
        """
        ...

    def keep(self, event: e.Event) -> Awaitable[None]:
        """Record an event. The awaitable is done once it is recorded."""
        ...

    def has_asked(self, call_id: str) -> bool:
        """Whether a function has asked for the repetition of a failed call."""
        ...

    @property
    def has_unrecorded(self) -> bool:
        """Whether an event waits to be recorded."""
        ...

    def all_recorded(self) -> Awaitable[None]:
        """Return an awaitable that is done once all events so far are recorded."""
        ...

    def new_lock(self) -> AbstractAsyncContextManager[Any]:
        """Return a lock that one request at a time can hold."""
        ...

    def now(self) -> float:
        """Return seconds since 1970, UTC."""
        ...

    def expiry(self, seconds: float | None) -> int | None:
        """Return the expiry of a question asked now, in microseconds since 1970, UTC; None for never."""
        ...

    def random(self) -> float:
        """Return a number from 0 up to 1."""
        ...

    def holds_secret(self, text: str) -> bool:
        """Whether a text holds a secret, which the journal would not store."""
        ...

    def wait(self, awaitable: Awaitable[T]) -> T:
        """Wait for an awaitable in a thread that is not the event loop's."""
        ...

    def in_thread(self, fn: Callable[[], T]) -> Awaitable[T]:
        """Call a blocking function in a thread of its own."""
        ...


class NamedAgent(Protocol[OutputT_co]):
    """The part of an agent's interface that `StepContext.run_agent` uses."""

    @property
    def name(self) -> str: ...

    @property
    def typed(self) -> OutputType[OutputT_co] | None: ...


@explains_names("StepContext")
class StepContext(Generic[ContextT_co]):
    """A step, as its function sees it.

    Attributes:
        input: the data with which the step was planned.
        task_input: the input of the task: content parts.
        task_text: the texts of `task_input`, a line each.
        results: the outputs of the steps it waited for, and of the step that planned it, by name. Reading the output of
            a step that failed or was skipped raises `StepHasNoOutput`.
        given_up: the reasons of such steps, by name.
        failures: the messages of those that failed, by name.
        state: the task's `extra_state` as it was when the step began, and as its calls left it. Changes by the function
            are stored with the step's end.
        attempt: counts from 1.
        context: the object passed to the run; it is never stored.
        instructions: the agent's instructions.
        tools: the agent's tools.
        answer_schema: the JSON schema of the answer; None for text.
    """

    def __init__(
        self,
        state: TaskState,
        node: StepNode,
        services: StepServices,
        context: ContextT_co,
        tools: Sequence[Tool],
        output_type: OutputType | None,
        access: StateAccess,
    ) -> None:
        step, graph = node.step, state.graph
        assert step is not None, "a step that runs has begun"
        assert graph is not None, "a step function is a node of a graph"
        self._state, self._node, self._step, self._services = state, node, step, services
        self._access = access
        self.task_id = state.task_id
        self.thread_id = state.thread
        self.agent = state.agent
        self.step_id = step.id
        self.name = node.plan.name
        self.index = step.index
        self.attempt = step.attempt
        self.input: Json = copied(node.plan.input)
        self.task_input: tuple[Content, ...] = state.task_input
        self._view = StateView(access)
        self.context: ContextT_co = context
        self.given_up: Mapping[str, str] = _given_up(graph, node)
        self.results: Mapping[str, Json] = StepOutputs(_results(graph, node), node.plan.name, self.given_up)
        self.failures: Mapping[str, str] = _failures(graph, node)
        self.instructions = state.instructions or ""
        self.tools: tuple[ToolSpec, ...] = tuple([tool.spec for tool in tools])
        self._tool_of_agent = {
            tool.agent_name: tool.spec.name for tool in tools if isinstance(tool, SubagentTool)
        }
        self._typed = output_type
        self._memo = StepMemo(state.task_id, step.id, node, services.holds_secret)
        self._asks_in_conversation = False
        self._ended = False
        self._locks: dict[str, AbstractAsyncContextManager[Any]] = {}

    # ---------------------------------------------------------------------------------------- reading

    @property
    def state(self) -> MutableMapping[str, Json]:
        """The task's `extra_state` as it was when the step began, and as its calls left it.

        Changes by the function are stored with the step's end: all of them, or none if the step fails.
        """
        return self._view

    @property
    def task_text(self) -> str:
        """The texts of `task_input`, a line each. Files and pictures are left out."""
        return "\n".join([part.text for part in self.task_input if isinstance(part, Text)])

    @property
    def messages(self) -> Sequence[Message]:
        """The conversation as this step sees it: earlier messages and its own, but none of its siblings'."""
        return seen_by(self._state, self._node)

    @property
    def answer_schema(self) -> Json:
        """The JSON schema of the task's answer; None if the answer is text."""
        return None if self._typed is None else self._typed.value_schema

    def check_answer(self, output: Json) -> None:
        """Raise `ValueError` if this cannot be the task's answer. The message tells a model the wrong fields."""
        if self._typed is not None:
            self._typed.read(output)

    def outputs(self, names: Collection[str]) -> Mapping[str, Json]:
        """Return the outputs of steps that ended before this one, by name, the nearest of each name.

        Only steps that this one waited for count, directly or not. Steps that failed or were skipped have no output.
        """
        graph = self._state.graph
        assert graph is not None, "a step function is a node of a graph"
        missing, outputs = set(names), dict[str, Json]()
        for node in graph.above(self._node) if missing else ():
            if node.plan.name in missing:
                missing.remove(node.plan.name)
                outputs.update(_outputs((node,), self._node))
                if not missing:
                    break
        return {name: copied(output) for name, output in outputs.items()}

    def untrusted_above(self, name: str | None = None) -> tuple[str, ...]:
        """Return the untrusted origins of the task's input and of the content that earlier steps have read.

        Args:
            name: only the nearest step of this name counts, with the steps before it.
        """
        graph = self._state.graph
        assert graph is not None, "a step function is a node of a graph"
        above = list(graph.above(self._node))
        if name is not None:
            nearest = next((node for node in above if node.plan.name == name), None)
            above = [] if nearest is None else [nearest, *graph.above(nearest)]
        steps = [origins.of_step(node.step) for node in above if node.step is not None]
        return origins.merged(origins.of_parts(self.task_input), *steps)

    # ------------------------------------------------------------------------------------- requesting

    async def call_model(
        self,
        messages: str | Sequence[Message] | None = None,
        *,
        instructions: str | None = None,
        tools: Sequence[str] | Literal["offered"] | None = None,
        after_conversation: bool = False,
        key: str | None = None,
    ) -> ModelAnswer:
        """Send a request to the agent's model and return its answer.

        Args:
            messages: the messages of a side request, whose answer stays out of the conversation. A text is one user
                message. By default the request is the conversation as this step sees it, and the answer joins it.
            instructions: replace the agent's.
            tools: names of the agent's tools to offer, or `offered` for those that `offer=` selects, else all. By
                default `offered` in the conversation and none in a side request.
            after_conversation: put the conversation before the messages of a side request.
            key: identifies the request when the function is entered again. By default it is made from the arguments and
                how often the step made the request.

        Raises:
            ModelError: the model did not answer.
            NotReproducible: the key was used before with other arguments.
            WorkerError: the conversation waits for an answer or a result, so no request can follow.
        """
        on_the_side = _as_messages(messages)
        if tools is None:
            tools = "offered" if on_the_side is None else ()
        names = None if tools == "offered" else tuple(tools)
        event, call_id, memo_key = self._model_request(
            on_the_side, instructions, names, key, after_conversation=after_conversation
        )
        in_conversation = on_the_side is None
        self._asks_in_conversation = self._asks_in_conversation or in_conversation
        try:
            await self._services.request(event, call_id)
        finally:
            self._asks_in_conversation = self._asks_in_conversation and not in_conversation
        call = cast("ModelCall", self._node.memo[memo_key].done)
        if call.error is not None:
            error = call.error
            kind = cast("Any", error.kind)
            raise ModelError(error.message, kind=kind, status=error.status, retry_after=error.retry_after)
        assert call.message is not None, "the request has ended"
        return ModelAnswer(call.message, call.finish, call.usage)

    def _model_request(
        self,
        on_the_side: tuple[Message, ...] | None,
        instructions: str | None,
        tools: tuple[str, ...] | None,
        key: str | None,
        *,
        after_conversation: bool,
    ) -> tuple[e.ModelRequested | None, str, str]:
        """Return the event of a model request, its id, and its key in the memo.

        The event is None if the memo has the request.
        """
        needs_conversation = on_the_side is None or after_conversation
        follows_conversation = on_the_side is not None and after_conversation
        digest = _digest(
            "model",
            [
                None if on_the_side is None else [_facts(message) for message in on_the_side],
                instructions,
                list(tools) if tools is not None else None,
                *(["after the conversation"] if follows_conversation else ()),
            ],
        )
        self._check_running()
        entry, memo_key = self._memo.find(key, digest)
        if entry is not None:
            return None, str(cast("ModelCall", entry.done).id), memo_key
        if needs_conversation:
            self._check_conversation()
        call_id = self._memo.next_id("model")
        earlier = None if on_the_side is None else self._memo.continued(on_the_side)
        fresh = on_the_side
        if on_the_side is not None and earlier is not None:
            fresh = on_the_side[earlier.side_length + 1 :]
        event = e.ModelRequested(
            self.step_id,
            call_id,
            memo_key,
            digest,
            fresh,
            instructions,
            tools,
            follows_conversation,
            earlier.id if earlier is not None else None,
        )
        return event, call_id, memo_key

    async def call_tool(
        self, tool: str | ToolCall, arguments: dict[str, Json] | None = None, *, key: str | None = None
    ) -> Json:
        """Call one of the agent's tools and return its output.

        Args:
            tool: its name, or a call in the model's newest answer in the conversation.
            arguments: JSON data, with a name.
            key: identifies the call when the function is entered again. By default it is made from its name, its
                arguments and how often the step made it. A call of the model is identified by its id.

        Raises:
            ToolCallFailed: the call did not succeed; `outcome` is its end, also `unknown`.
            NotReproducible: the key was used before with another call.
        """
        call_id, ended = self._call(tool, arguments, key)
        await ended
        call = next(call for call in reversed(self._step.calls) if call.id == call_id)
        if call.outcome != "ok":
            message = call.error.message if call.error is not None else f"{call.name} ended as {call.outcome}"
            error_type = SubagentFailed if call.name in self._tool_of_agent.values() else ToolCallFailed
            raise error_type(message, tool=call.name, call_id=call.id, outcome=str(call.outcome))
        self._access.see(call)
        return copied(call.output)

    @overload
    async def run_agent(
        self, agent: NamedAgent[OutputT], input: str, *, key: str | None = None
    ) -> OutputT: ...
    @overload
    async def run_agent(self, agent: str, input: str, *, key: str | None = None) -> Json: ...
    async def run_agent(self, agent: NamedAgent[Any] | str, input: str, *, key: str | None = None) -> Any:
        """Run a subagent on a text, as a task of its own below this one, and return its output.

        Args:
            agent: one of `Agent(subagents=)`, or its name. The output is of the agent's output type; with a name it is
                JSON data.
            input: the whole input of its task; it sees nothing of this conversation.
            key: identifies the run when the function is entered again. By default it is made from the agent's name, the
                input and how often the step made it.

        Raises:
            SubagentFailed: its task did not succeed; `outcome` is its end.
            NotReproducible: the key was used before with other arguments.
        """
        name = agent if isinstance(agent, str) else agent.name
        tool = self._tool_of_agent.get(name)
        if tool is None:
            raise WorkerError(
                f"step {self.name!r}: {name!r} is not among the agent's subagents: name it in subagents="
            )
        output = await self.call_tool(tool, {"input": input}, key=key)
        typed = None if isinstance(agent, str) else agent.typed
        return output if typed is None else typed.load(output)

    @overload
    async def ask(
        self, question: str, *, expires: float | None = None, default: str = ..., key: str | None = None
    ) -> str: ...
    @overload
    async def ask(
        self,
        question: str,
        schema: type[T],
        *,
        expires: float | None = None,
        default: T = ...,
        key: str | None = None,
    ) -> T: ...
    @overload
    async def ask(
        self,
        question: str,
        schema: Any,
        *,
        expires: float | None = None,
        default: Any = ...,
        key: str | None = None,
    ) -> Any: ...
    async def ask(
        self,
        question: str,
        schema: Any = str,
        *,
        expires: float | None = None,
        default: Any = NO_DEFAULT,
        key: str | None = None,
    ) -> Any:
        """Return a person's answer to a question, of the type `schema`. The process may exit meanwhile.

        Args:
            question: the text that the person reads.
            schema: the type of the answer, any that pydantic supports. The default is text.
            expires: seconds until the question expires, more than 0; None to wait for any time.
            default: the answer if none comes in time, and in a run with `interaction="headless"`.
            key: identifies the question when the function is entered again. By default it is made from its text, its
                schema and how often the step asked it.

        Raises:
            QuestionUnanswered: the question expired, and has no default.
            NotReproducible: the key was used before for something else.
        """
        where = f"task {self.task_id}, step {self.step_id} ({self.name})"
        terms = terms_of(where, question, schema, expires, () if default is NO_DEFAULT else (default,))
        self._check_running()
        entry, memo_key = self._memo.find(key, terms.digest)
        event = self._question(terms, memo_key, expires, None) if entry is None else None
        while True:
            question_event = cast("Question", self._node.memo[memo_key].done) if event is None else event
            await self._services.request(event, question_event.request_id)
            try:
                return terms.answer_of(cast("Question", self._node.memo[memo_key].done))
            except ValueError as error:  # the answer fits the schema, but a validator of the type refused it
                event = self._question(terms, memo_key, expires, str(error))

    def _question(
        self, terms: QuestionTerms, memo_key: str, expires: float | None, problem: str | None
    ) -> e.QuestionAsked:
        """Return the event of a question that is asked, also again because its answer was not accepted."""
        event = e.QuestionAsked(
            self.step_id,
            "",
            self._memo.next_number(),
            terms.question,
            terms.type.schema,
            terms.digest,
            key=memo_key,
            expires=self._services.expiry(expires),
            default=terms.default,
            has_default=terms.has_default,
            problem=problem,
        )
        terms.check_fit(event)
        return event

    async def call_tools(self, answer: ModelAnswer) -> tuple[CallState, ...]:
        """Make all calls of an answer in parallel. Failed calls are returned like the others."""
        requested = [self._call(call, None, None) for call in answer.message.tool_calls]
        for _, ended in requested:
            await ended
        calls = {call.id: call for call in self._step.calls}
        ended = tuple([calls[call_id] for call_id, _ in requested])
        for call in ended:
            self._access.see(call)
        return ended

    async def once(self, key: str, fn: Callable[[], T | Awaitable[T]]) -> T:
        """Return the value of a function from its first call under this key. It must be JSON data."""
        self._check_running()
        self._memo.check_key(key)
        memo_key = f"once:{key}"
        if is_making(self, key) and memo_key not in self._node.memo:
            raise WorkerError(f"step {self.name!r}: {nested(key)}")
        async with self._locks.setdefault(memo_key, self._services.new_lock()):
            if memo_key not in self._node.memo:
                with making(self, key):
                    value: Any = fn()
                    if isinstance(value, Awaitable):
                        value = await cast("Awaitable[Any]", value)
                try:
                    kept = storable(value)
                except ValueError as error:
                    raise WorkerError(
                        f"step {self.name!r}: once({key!r:.80}, ...) must return JSON data, got "
                        f"{reprlib.repr(value)}: {error}"
                    ) from None
                self._memo.check_key(key)  # its secret may have become known meanwhile
                await self._services.keep(e.ValueKept(self.step_id, memo_key, kept))
        return cast("T", copied(cast("MemoValue", self._node.memo[memo_key].done).value))

    async def now(self) -> float:
        """Return the time of this call's first run, in seconds since 1970, UTC.

        Each call in a step has its own time.
        """
        return await self.once(f"now:{self._memo.count('now')}", self._services.now)

    async def random(self) -> float:
        """Return a number from 0 up to 1. Each call in a step has its own, which it keeps."""
        return await self.once(f"random:{self._memo.count('random')}", self._services.random)

    async def sleep(self, seconds: float | None = None, *, until: datetime | float | None = None) -> None:
        """Sleep for some time, or until a time. The process may exit meanwhile; the task continues at that time.

        The function is then entered again from its top, and finished sleeps return at once.

        Args:
            seconds: the duration.
            until: a `datetime` with its zone, or seconds since 1970, UTC.

        Raises:
            ConfigurationError: not exactly one of both is given, or the time is not possible.
        """
        self._check_running()
        place, node, now = self._memo.count("sleep"), self._node, int(self._services.now() * 1e6)
        due = due_at(f"step {self.name!r}", now, seconds, until)
        if place in node.slept or (place not in node.sleeps and due <= now):
            return
        event = e.SleepStarted(self.step_id, "", due, place) if place not in node.sleeps else None
        await self._services.request(event, sleep_id(self.step_id, place))

    def wait(self, awaitable: Awaitable[T]) -> T:
        """Return the result of an awaitable of this context, in a function that is not `async`."""
        return self._services.wait(awaitable)

    async def in_thread(self, fn: Callable[[], T]) -> T:
        """Return the result of a blocking function, called in a thread of its own. Parallel steps go on meanwhile."""
        return await self._services.in_thread(fn)

    async def settled(self) -> None:
        """Return once all requests of the step have ended. From then on it may make none."""
        node = self._node
        await self._end_repeats()
        while self._services.has_unrecorded or self._step.open or node.model_calls or node.questions:
            if self._services.has_unrecorded:
                await self._services.all_recorded()
            else:
                open_ = (*self._step.open, *node.model_calls, *node.questions)
                await self._services.request(None, next(iter(open_)))
        self._ended = True

    async def _end_repeats(self) -> None:
        """End the repetitions of failed calls that the function did not ask for in this attempt."""
        for call in list(self._step.open.values()) if self.attempt > 1 else ():
            if call.repeats_unasked and not self._services.has_asked(call.id):
                text = f"{not_begun(call)}: its step function did not ask for it again."
                failure = e.Failure("tool", "refused", text, call.id)
                await self._services.keep(withheld_end(call, "refused", failure))

    # ------------------------------------------------------------------------------------- requests

    def _call(
        self, tool: str | ToolCall, arguments: dict[str, Json] | None, key: str | None
    ) -> tuple[str, Awaitable[None]]:
        """Request a call at once. Return its id and an awaitable that is done once it has ended."""
        by_model = isinstance(tool, ToolCall)
        name = tool.name if by_model else tool
        data = tool.arguments if by_model else (arguments or {})
        if not is_writable(data):
            of_task = any(value is self.task_input for value in data.values())
            hint = "; the text of the task's input is ctx.task_text" if of_task else ""
            raise WorkerError(
                f"step {self.name!r}: the arguments of {name} must be JSON data, got {data!r:.200}{hint}"
            )
        digest = _digest("tool", [name, data])
        self._check_running()
        entry, memo_key = self._memo.find(f"call:{tool.id}" if by_model else key, digest)
        if entry is not None:
            call_id = cast("CallState", entry.done).id
            return call_id, self._services.request(None, call_id)
        if isinstance(tool, ToolCall) and tool.id.startswith(f"{self.step_id}-"):
            call_id = tool.id
        else:  # a step may make the calls of another step's answer
            call_id = self._memo.next_id("tool")
        problem = tool.problem if by_model else None
        in_conversation = by_model and tool.id in self._node.newest_calls
        event = e.CallRequested(
            self.step_id, call_id, memo_key, digest, name, copied(data), problem, in_conversation
        )
        return call_id, self._services.request(event, call_id)

    def _check_running(self) -> None:
        if self._ended:
            raise WorkerError(
                f"step {self.name!r} of task {self.task_id} has ended: it can make no more requests"
            )

    def _check_conversation(self) -> None:
        if self._asks_in_conversation:
            raise WorkerError(
                f"step {self.name!r}: a request in the conversation is in flight; pass messages= for one on the side"
            )
        call = next((call for call in self._step.open.values() if call.from_model), None)
        if call is not None:
            raise WorkerError(
                f"step {self.name!r}: await the calls of the newest answer ({call.name}) before the next request"
            )


class StepOutputs(dict[str, Json]):
    """The outputs of steps, by name; reading a missing output raises `StepHasNoOutput`.

    Args:
        outputs: the outputs, by name.
        reader: the name of the step that reads them.
        given_up: the reasons of steps without an output, by name.
    """

    def __init__(self, outputs: Mapping[str, Json], reader: str, given_up: Mapping[str, str]) -> None:
        super().__init__(outputs)
        self._reader = reader
        self._given_up = given_up

    def __missing__(self, name: str) -> Json:
        if name in self._given_up:
            raise StepHasNoOutput(
                f"step {self._reader!r}: the step {name!r} has no output: {self._given_up[name]}; "
                f"`{name!r} in ctx.results` tells whether it has one"
            )
        names = ", ".join([*self, *self._given_up]) or "none"
        raise StepHasNoOutput(
            f"step {self._reader!r} does not wait for a step {name!r}; it waits for: {names}"
        )


def _results(graph: Graph, node: StepNode) -> Mapping[str, Json]:
    return {name: copied(output) for name, output in _outputs(_above(graph, node), node)}


def _above(graph: Graph, node: StepNode) -> list[StepNode]:
    """Return the step that planned a step, and those that it waits for."""
    step_ids = (*((node.by,) if node.by is not None else ()), *node.after)
    return [graph.nodes[step_id] for step_id in step_ids if step_id in graph.nodes]


def _given_up(graph: Graph, node: StepNode) -> Mapping[str, str]:
    """Return the reasons of earlier steps without an output for a step, by name."""
    above = _above(graph, node)
    with_output = {name for name, _ in _outputs(above, node)}
    return {
        other.plan.name: _why_without_output(other, node)
        for other in above
        if other.plan.name not in with_output
    }


def _why_without_output(node: StepNode, before: StepNode) -> str:
    """Return why a step has no output for a later one. The reason is the same at each entry of its function."""
    step, began = node.step, before.step.started_seq if before.step is not None else 0
    if step is None or not 0 < step.ended_seq < began:
        return "it had not ended when this step began"
    if node.skip_reason is not None:
        return node.skip_reason
    if step.error is not None:
        return f"it failed: {step.error.message}"
    return "no step needed it any more"


def _outputs(nodes: Iterable[StepNode], before: StepNode) -> Iterator[tuple[str, Json]]:
    """Yield the outputs of steps that ended before another began, so that each entry of its function sees the same."""
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


def _as_messages(messages: str | Sequence[Message] | None) -> tuple[Message, ...] | None:
    if messages is None:
        return None
    return (Message("user", content(messages)),) if isinstance(messages, str) else tuple(messages)


def _facts(message: Message) -> Any:
    from treadle.core.codec import encode_part

    parts = message.parts
    if any(type(part) is Text and part.label is not None for part in parts):
        # A prompt is the same request whether or not a version labelled its inserted values.
        parts = tuple(
            part
            for is_text, run in groupby(parts, lambda part: type(part) is Text)
            for part in ([Text("".join([cast("Text", text).text for text in run]))] if is_text else run)
        )
    return [message.role, [encode_part(without_nonce(part)) for part in parts]]


def _digest(kind: str, arguments: Any) -> str:
    from pydantic_core import to_json

    return hashlib.sha256(to_json([kind, _sorted(arguments)])).hexdigest()[:16]


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        document = cast("dict[str, Any]", value)
        return {name: _sorted(document[name]) for name in sorted(document)}
    if isinstance(value, (list, tuple)):
        return [_sorted(item) for item in cast("Sequence[Any]", value)]
    return value
