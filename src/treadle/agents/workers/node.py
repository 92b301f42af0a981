"""The actions of a pipeline's nodes, which call a function, a tool or the model, and their context."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import groupby
from string import Formatter
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, Protocol, cast

from treadle.agents.agent import Agent
from treadle.agents.finish_reasons import early_finish
from treadle.agents.workers.step_context import StepContext
from treadle.agents.workers.worker import is_async, qualified_name
from treadle.core.data import frozen
from treadle.core.labels import Label, untrusted_origin
from treadle.core.messages import Content, Json, Message, Text, content
from treadle.core.model import ModelSettings
from treadle.core.observation import answer_text
from treadle.core.refused_uses import can_be_called, no_function
from treadle.core.render import results
from treadle.errors import ConfigurationError, ModelError, WorkerError
from treadle.policy.limits import Limits
from treadle.ports import ContextT_co, Model, Tool

TASK_INPUT: Final = "input"
"""The name of the task's input in a template."""


class NodeState(dict[str, Json]):
    """The shared state of a pipeline, as one node sees it. It is read-only, since changes would be lost."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(
            "a node cannot change ctx.state: set ctx.step.state[key], which is stored with the task, or use "
            "Node(update=True) and return the changed keys"
        )

    if not TYPE_CHECKING:  # type checkers see a `Mapping` in `NodeContext.state`
        __setitem__ = __delitem__ = __ior__ = _refuse
        clear = pop = popitem = setdefault = update = _refuse


@frozen
class NodeContext(Generic[ContextT_co]):
    """A node of a pipeline, as its function sees it.

    Args:
        name: the name of the node.
        input: the value of `Node(input=)`.
        text: the task's input, as text.
        results: the values of the nodes it follows, by name. Reading the value of a node that failed or was skipped
            raises `StepHasNoOutput`.
        state: the shared state, as the nodes before this one left it.
        step: the step's context: `step.call_model` calls the model, `step.call_tool` a tool, and `step.once` journals a
            value.
    """

    name: str
    input: Json
    text: str
    results: Mapping[str, Json]
    state: Mapping[str, Json]
    step: StepContext[ContextT_co]


@frozen
class Ask:
    """A prompt to the model outside the conversation; the node's value is the text of the answer.

    Args:
        prompt: a template, or a function of `NodeContext` that returns the text. In a template `{name}` is the value of
            a followed node, else of the state. `{name[key]}` is a part of it, and `{input}` is the task's input. `{{`
            and `}}` are braces.
        instructions: replace the agent's.
        tools: the tools of the agent that the model may call before it answers, or their names.
        rounds: how many answers in a row may call tools.
        after_conversation: put the conversation before the prompt: the thread's messages, and the task's input with its
            pictures. The answer stays out of it.
    """

    prompt: str | Callable[[NodeContext[Any]], str]
    instructions: str | None = None
    tools: Sequence[str | Tool] = ()
    rounds: int = 20
    after_conversation: bool = False


class NodeAction(Protocol):
    """The action of a node."""

    @property
    def tools(self) -> Sequence[str | Tool]:
        """Return the tools that it may call."""
        ...

    @property
    def templates(self) -> Sequence[Json]:
        """Return the templates that are filled before the action."""
        ...

    @property
    def facts(self) -> Json:
        """Return JSON data that differs between actions, for the fingerprint of an agent."""
        ...

    async def __call__(self, ctx: NodeContext[Any]) -> Any:
        """Perform the action and return the node's value."""
        ...


@frozen
class CallFunction:
    """Call a function of `NodeContext`, in a thread unless it is async."""

    function: Callable[[NodeContext[Any]], Any]
    tools: tuple[()] = ()
    templates: tuple[()] = ()

    @property
    def facts(self) -> Json:
        """Return JSON data that differs between actions, for the fingerprint of an agent."""
        return f"function:{qualified_name(self.function)}"

    async def __call__(self, ctx: NodeContext[Any]) -> Any:
        """Call the function."""
        function = self.function
        value = function(ctx) if is_async(function) else await ctx.step.in_thread(lambda: function(ctx))
        return await cast("Awaitable[Any]", value) if isinstance(value, Awaitable) else value


@frozen
class UseTool:
    """Call a tool with the arguments of `Node(input=)`, whose texts are templates."""

    tool: str | Tool
    arguments: Json | Callable[[NodeContext[Any]], Json]

    @property
    def tools(self) -> Sequence[str | Tool]:
        """Return the tool."""
        return (self.tool,)

    @property
    def templates(self) -> Sequence[Json]:
        """Return the arguments."""
        return () if can_be_called(self.arguments) else (self.arguments,)

    @property
    def facts(self) -> Json:
        """Return JSON data that differs between actions, for the fingerprint of an agent."""
        return f"tool:{tool_name(self.tool)}"

    async def __call__(self, ctx: NodeContext[Any]) -> Any:
        """Call the tool under one key. After a crash, other arguments are an error, not a second call."""
        arguments = self.arguments(ctx) if can_be_called(self.arguments) else filled(ctx.input, ctx)
        if not isinstance(arguments, dict | None):
            raise WorkerError(
                f"node {ctx.name!r}: input= must return a tool's arguments, got {arguments!r:.200}"
            )
        return await ctx.step.call_tool(
            tool_name(self.tool), cast("dict[str, Json]", arguments or {}), key="pipeline"
        )


@frozen
class AskModel:
    """Call the model until it answers without calling a tool."""

    ask: Ask

    @property
    def tools(self) -> Sequence[str | Tool]:
        """Return the tools that each request offers."""
        return self.ask.tools

    @property
    def templates(self) -> Sequence[Json]:
        """Return the prompt."""
        return () if can_be_called(self.ask.prompt) else (self.ask.prompt,)

    @property
    def facts(self) -> Json:
        """Return JSON data that differs between actions, for the fingerprint of an agent."""
        ask = self.ask
        prompt = qualified_name(ask.prompt) if can_be_called(ask.prompt) else ask.prompt
        return {
            "ask": prompt,
            "instructions": ask.instructions,
            "tools": [tool_name(tool) for tool in ask.tools],
        }

    async def __call__(self, ctx: NodeContext[Any]) -> Any:
        """Send the prompt, and the results of calls after it, until the model answers."""
        ask = self.ask
        parts = content(ask.prompt(ctx)) if can_be_called(ask.prompt) else filled_prompt(ask.prompt, ctx)
        messages = [Message("user", parts)]
        names = [tool_name(tool) for tool in ask.tools]
        for turn in range(ask.rounds + 1):
            answer = await ctx.step.call_model(
                messages,
                instructions=ask.instructions,
                tools=names,
                after_conversation=ask.after_conversation,
                key=f"pipeline:{turn}",
            )
            early = early_finish(answer.finish, f"node {ctx.name!r}: ")
            if early is not None:
                raise early
            if not answer.message.tool_calls:
                return answer.message.text
            if turn < ask.rounds:
                messages += [answer.message, results(await ctx.step.call_tools(answer))]
        raise ModelError(f"node {ctx.name!r}: the model called tools in {ask.rounds + 1} answers in a row")


# ---------------------------------------------------------------------------------------------- arguments


def node_action(node: str, run: Any, input: Any) -> NodeAction:
    """Return the action of a node with these arguments; raises `ConfigurationError` for wrong ones."""
    if isinstance(run, Agent):
        return node_action(node, _as_ask(node, cast("Agent[Any]", run), input), None)
    if isinstance(run, (str, Tool)):
        tool = cast("str | Tool", run)
        if not (input is None or isinstance(input, dict) or can_be_called(input)):
            raise ConfigurationError(
                f"node {node!r}: input must be the arguments of the tool {tool_name(tool)!r} as an object, or a "
                f"function that returns them, got {no_function(input)}"
            )
        return UseTool(tool, cast("Any", input))
    if isinstance(run, Ask):
        _check_ask(node, run)
        if input is not None:
            raise ConfigurationError(f"node {node!r}: Ask(...) takes no input; write it into the prompt")
        return AskModel(run)
    if isinstance(run, type) or not can_be_called(run):
        raise ConfigurationError(
            f"node {node!r}: run must be a function of NodeContext, a tool or its name, Ask(...) or an Agent, got "
            f"{no_function(run)}"
        )
    if can_be_called(input):
        raise ConfigurationError(f"node {node!r}: input must be JSON data for a function, got {input!r}")
    return CallFunction(run)


def _check_ask(node: str, ask: Ask) -> None:
    if not isinstance(ask.prompt, str) and not can_be_called(ask.prompt):
        raise ConfigurationError(
            f"node {node!r}: a prompt must be text or a function, got {no_function(ask.prompt)}"
        )
    if not isinstance(ask.instructions, str | None):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"node {node!r}: instructions must be text, got {ask.instructions!r}")
    tools = cast("Sequence[Any]", ask.tools)
    if isinstance(tools, str) or not all(isinstance(tool, (str, Tool)) for tool in tools):
        raise ConfigurationError(f"node {node!r}: tools must be a list of tools, got {ask.tools!r}")
    if type(ask.rounds) is not int or ask.rounds < 0:
        raise ConfigurationError(
            f"node {node!r}: rounds must be a whole number from 0 up, got {ask.rounds!r}"
        )


def _as_ask(node: str, agent: Agent[Any], input: Any) -> Ask:
    """Return the prompt that runs an agent in a node.

    Raises `ConfigurationError` for settings that a node ignores.
    """
    settings = {
        "worker": (agent.worker, "function_calling"),
        "output_type": (agent.output_type, str),
        "offer": (agent.offer, None),
        "limits": (agent.limits, Limits()),
        "model_settings": (agent.model_settings, ModelSettings()),
    }
    changed = next((field for field, (value, default) in settings.items() if value != default), None)
    if changed is not None or not isinstance(agent.instructions, str):
        raise ConfigurationError(
            f"node {node!r}: the agent {agent.name!r} has its own {changed or 'instructions as a function'}, which a "
            "node ignores: it runs within the task of the pipeline's agent. Use Ask(...), or a function that "
            "calls ctx.step.call_model"
        )
    prompt = "{" + TASK_INPUT + "}" if input is None else input
    return Ask(prompt, agent.instructions, agent.tools)


def same_model(agent: Agent[Any], model: str | Model) -> bool:
    """Whether an agent in a node has this model."""
    return agent.model is model or (isinstance(model, str) and agent.model == model)


def tool_name(tool: str | Tool) -> str:
    """Return a tool's name."""
    return tool if isinstance(tool, str) else tool.spec.name


# --------------------------------------------------------------------------------------------- templates


def filled(template: Json, ctx: NodeContext[Any]) -> Json:
    """Return JSON data with its templates filled. A text that is just `{name}` becomes that value."""
    if isinstance(template, dict):
        return {key: filled(item, ctx) for key, item in cast("dict[str, Json]", template).items()}
    if isinstance(template, list):
        return [filled(item, ctx) for item in cast("list[Json]", template)]
    if not isinstance(template, str):
        return template
    pieces = list(Formatter().parse(template))
    if len(pieces) == 1 and pieces[0][1] is not None and not pieces[0][0]:
        return _value(pieces[0][1], ctx)
    return "".join(
        [text + ("" if field is None else answer_text(_value(field, ctx))) for text, field, _, _ in pieces]
    )


def filled_prompt(template: str, ctx: NodeContext[Any]) -> tuple[Content, ...]:
    """Return a prompt with its templates filled. Values with untrusted origins are labelled parts."""
    parts: list[Text] = []
    for text, field, _, _ in Formatter().parse(template):
        parts.append(Text(text))
        if field == TASK_INPUT:
            texts = [part for part in ctx.step.task_input if isinstance(part, Text)]
            for number, part in enumerate(texts):
                parts += [Text("\n" if number else ""), _filled_in(part.text, untrusted_origin(part.label))]
        elif field is not None:
            name = field.partition("[")[0]
            of_state = name not in ctx.results
            origins = ctx.step.untrusted_above(None if of_state else name)
            parts.append(_filled_in(answer_text(_value(field, ctx)), origins[0] if origins else None))
    runs = [(label, list(run)) for label, run in groupby(parts, lambda part: part.label)]
    beside = [Text("".join([part.text for part in run]), label=label) for label, run in runs]
    return tuple([part for part in beside if part.text]) or (Text(""),)


def _filled_in(text: str, origin: str | None) -> Text:
    return Text(text) if origin is None else Text(text, label=Label(origin, "untrusted"))


def names_in(template: Json) -> set[str]:
    """Return the names in a template; raises `ValueError` if a field is not a name."""
    if isinstance(template, dict):
        return {name for item in cast("dict[str, Json]", template).values() for name in names_in(item)}
    if isinstance(template, list):
        return {name for item in cast("list[Json]", template) for name in names_in(item)}
    if not isinstance(template, str):
        return set()
    names: set[str] = set()
    for _, field, spec, conversion in Formatter().parse(template):
        if field is None:
            continue
        name, _, rest = field.partition("[")
        if spec or conversion or not name or "." in name or (rest and not rest.endswith("]")):
            raise ValueError(f"{{{field}}} must be a name, or a name and keys like {{name[key]}}")
        names.add(name)
    return names


def _value(field: str, ctx: NodeContext[Any]) -> Json:
    name, _, rest = field.partition("[")
    if name == TASK_INPUT:
        value: Any = ctx.text
    elif name in ctx.results:
        value = ctx.results[name]
    elif name in ctx.step.given_up:
        return None  # the node was skipped
    elif name in ctx.state:
        value = ctx.state[name]
    else:
        raise WorkerError(f"node {ctx.name!r}: {{{name}}} is neither a node that it follows nor in the state")
    for key in rest.removesuffix("]").split("][") if rest else ():
        try:
            value = value[int(key) if isinstance(value, list) else key]
        except (KeyError, IndexError, TypeError, ValueError):
            raise WorkerError(f"node {ctx.name!r}: {{{field}}} is not there: {value!r:.200}") from None
    return value
