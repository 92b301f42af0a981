"""`Pipeline`: a worker whose steps are the nodes of a fixed graph.

Each node is a step. It begins as soon as the nodes it follows have ended, in parallel with others. It is undone,
forked, limited and recovered like any step. Only the outputs of nodes are stored. The context of a node follows from
them, so it does not depend on the order in which nodes ended.
"""

from __future__ import annotations

import heapq
import re
import reprlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, cast

from treadle.agents.agent import Agent
from treadle.agents.context import ContextNeed, RunContext, type_named_by
from treadle.agents.workers.node import (
    TASK_INPUT,
    Ask,
    CallFunction,
    NodeAction,
    NodeContext,
    NodeState,
    names_in,
    node_action,
    same_model,
    tool_name,
)
from treadle.agents.workers.step_context import StepContext, StepOutputs
from treadle.agents.workers.worker import Quorum, StepResult, qualified_name
from treadle.core.codec import is_writable, storable
from treadle.core.events import Join, NextStep
from treadle.core.messages import Json, copied
from treadle.core.refused_uses import can_be_called, no_function
from treadle.core.unknown_names import explains_arguments, explains_names
from treadle.errors import ConfigurationError, WorkerError
from treadle.ports import Model, Tool

ANSWER: Final = "(answer)"
"""The step that builds the answer, in a pipeline whose last node does not return it."""

_FALSE: Final = "its condition is false"


@explains_arguments
class Node:
    """One node of a `Pipeline`.

    Args:
        name: letters, digits, `_` and `-`; unique in the pipeline.
        run: its action: a function of `NodeContext`, a tool of the agent or its name, `Ask(prompt)`, or an `Agent`. A
            function returns JSON data, and runs in a thread unless it is async. An `Agent` has the model and tools of
            the pipeline's agent.
        after: names of the nodes it follows.
        when: a function of `NodeContext`; if it returns False the node is skipped.
        join: how many of the nodes it follows need a value. `all` is all except optional ones. `any` is one; the others
            are then stopped. `Quorum(n)` is `n`. `optional` is none, but the node waits for all. With fewer the node is
            skipped.
        optional: if it fails, the pipeline and the nodes that follow it go on without its value.
        input: JSON data for a function. For a tool, its arguments, or a function of `NodeContext` that returns them;
            their texts are templates as in `Ask`. For an agent, the template of its prompt; the default is the task's
            input.
        update: whether its value, an object, is merged into the shared state of the nodes after it.
        retries: how often the node is tried again after it failed, before its failure counts. A function is entered
            anew, as after a crash, unless one of its writing calls did not succeed. A tool has to be read-only or
            idempotent.

    Raises:
        ConfigurationError: a value is not valid; the text names the node and the field.
    """

    __slots__ = ("action", "after", "input", "join", "name", "optional", "retries", "run", "update", "when")

    def __init__(
        self,
        name: str,
        run: Callable[[NodeContext[Any]], Any] | str | Tool | Ask | Agent[Any],
        *,
        after: str | Sequence[str] = (),
        when: Callable[[NodeContext[Any]], bool] | None = None,
        join: Join = "all",
        optional: bool = False,
        input: Json | Callable[[NodeContext[Any]], Json] = None,
        update: bool = False,
        retries: int = 0,
    ) -> None:
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", name):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"a node's name must be 1 to 64 letters, digits, '_' or '-', first a letter or '_', got {name!r}"
            )
        if name == TASK_INPUT:
            raise ConfigurationError(f"a node cannot be named {name!r}: that is the task's input")
        if when is not None and not can_be_called(when):
            raise ConfigurationError(
                f"node {name!r}: when must be a function of NodeContext, got {no_function(when)}"
            )
        if join not in ("all", "any", "optional") and type(join) not in (int, Quorum):
            raise ConfigurationError(
                f"node {name!r}: join must be 'all', 'any', 'optional' or Quorum(n), got {join!r}"
            )
        if type(retries) is not int or retries < 0:
            raise ConfigurationError(
                f"node {name!r}: retries must be a whole number from 0 up, got {retries!r}"
            )
        self.name = name
        self.run = run
        self.action: NodeAction = node_action(name, run, input)
        self.after: tuple[str, ...] = _names(f"node {name!r}: after", after)
        self.when = when
        self.join: Join = join
        self.optional = bool(optional)
        self.input = input if can_be_called(input) else _plain(name, input)
        self.update = bool(update)
        self.retries = retries
        for tool in self.action.tools:
            if not isinstance(tool, str):
                self.check_repeatable(tool)

    def check_repeatable(self, tool: Tool) -> None:
        """Raise `ConfigurationError` if the node has retries but calls of its tool may not be repeated."""
        if self.retries and not tool.spec.is_repeatable:
            raise ConfigurationError(
                f"node {self.name!r}: retries={self.retries}, but its tool {tool.spec.name!r} may write, so a "
                "call starts at most once: declare the tool read_only=True or idempotent=True, or leave retries out"
            )

    def __repr__(self) -> str:
        after = f", after={list(self.after)}" if self.after else ""
        return f"Node({self.name!r}{after})"

    @property
    def facts(self) -> Json:
        """JSON data that differs between nodes, for the fingerprint of an agent."""
        return [
            self.name,
            self.action.facts,
            list(self.after),
            self.join,
            self.optional,
            self.update,
            None if self.when is None else qualified_name(self.when),
            qualified_name(self.input) if can_be_called(self.input) else self.input,
            *([self.retries] if self.retries else []),
        ]


@explains_arguments
@explains_names("Pipeline")
class Pipeline:
    """A worker that runs the nodes of a graph, each as soon as the nodes it follows have ended.

    Args:
        nodes: in any order.
        output: the node whose value is the answer, or several whose values make an object by name. The default is the
            nodes that no other node follows.
        state: the initial shared state. The task's `extra_state` is merged into it when a node begins.

    Raises:
        ConfigurationError: two nodes have one name, a node follows an unknown one, or nodes form a circle.
    """

    finalizes_answers: Final = False

    def __init__(
        self,
        nodes: Sequence[Node],
        *,
        output: str | Sequence[str] | None = None,
        state: Mapping[str, Json] | None = None,
    ) -> None:
        self.nodes: tuple[Node, ...] = _in_order(_checked(nodes))
        self.state: Mapping[str, Json] = _checked_state(state)
        self._by_name = {node.name: node for node in self.nodes}
        self._before = _before(self.nodes)
        followed = {name for node in self.nodes for name in node.after}
        ends = tuple([node.name for node in self.nodes if node.name not in followed])
        single = isinstance(output, str) or (output is None and len(ends) == 1)
        self.output: tuple[str, ...] = ends if output is None else _names("Pipeline: output", output)
        self._single = single
        unknown = [name for name in self.output if name not in self._by_name]
        if unknown or not self.output:
            raise ConfigurationError(
                f"Pipeline: output names {', '.join(unknown) or 'nothing'}: no such node"
            )
        self._check_templates()
        sure = single and self.output == ends and ends[0] not in self._may_be_absent()
        self._last = ends[0] if sure else ANSWER
        self.first_steps: tuple[NextStep, ...] = self._plan(ends)
        """all steps of a task, planned at its beginning"""

    # ------------------------------------------------------------------------------------- as a worker

    @property
    def context_needs(self) -> tuple[ContextNeed, ...]:
        """The required types of the context: those of the functions of the nodes."""
        return tuple(
            [
                ContextNeed(f"its node {node.name!r}", type_named_by(node.action.function, NodeContext))
                for node in self.nodes
                if isinstance(node.action, CallFunction)
            ]
        )

    def initialize_step(self, task: RunContext[Any]) -> Any:
        """Return all steps of a task."""
        return self.first_steps

    async def run_step(self, ctx: StepContext[Any]) -> StepResult:
        """Run the action of a node."""
        if ctx.name == ANSWER:
            values = ctx.outputs(self.output)
            answer = [values.get(name) for name in self.output]
            return StepResult(
                answer[0] if self._single else dict(zip(self.output, answer, strict=True)), is_last=True
            )
        node = self._by_name.get(ctx.name)
        if node is None:
            raise WorkerError(f"the pipeline has no node {ctx.name!r} any more")
        ended = ctx.outputs(node.after)
        values = StepOutputs(
            {name: ended[name] for name in node.after if name in ended}, node.name, ctx.given_up
        )
        unmet = self._unmet(node, values)
        if unmet is not None:
            return StepResult(skipped=unmet)
        context = NodeContext(node.name, ctx.input, ctx.task_text, values, self._state_before(node, ctx), ctx)
        try:
            if node.when is not None and not await ctx.once(
                "pipeline:when", lambda: _condition(node, context)
            ):
                return StepResult(skipped=_FALSE)
            value = await node.action(context)
        except WorkerError:
            raise
        except Exception as error:
            if not node.optional or ctx.attempt <= node.retries:
                raise
            return StepResult(skipped=error)
        return StepResult(
            _checked_update(node, value) if node.update else value, is_last=ctx.name == self._last
        )

    def finalize_task(self, task: RunContext[Any], output: Json) -> Json:
        """Leave the answer unchanged."""
        return None

    def facts(self) -> Json:
        """Return JSON data that differs between pipelines, for the fingerprint of an agent."""
        return {
            "pipeline": [node.facts for node in self.nodes],
            "output": list(self.output),
            "state": dict(self.state),
        }

    def check_for(self, model: str | Model, tools: Sequence[Tool]) -> None:
        """Raise `ConfigurationError` if an agent lacks a tool or the model of a node."""
        by_name = {tool.spec.name: tool for tool in tools}
        for node in self.nodes:
            for tool in node.action.tools:
                name = tool_name(tool)
                if name not in by_name:
                    raise ConfigurationError(
                        f"node {node.name!r} calls the tool {name!r}, which the agent does not have: add it to tools="
                    )
                node.check_repeatable(by_name[name])
                if not isinstance(tool, str) and tool is not by_name[name]:
                    raise ConfigurationError(
                        f"node {node.name!r} calls another tool {name!r} than the agent has"
                    )
            agent = cast("Any", node.run)
            if isinstance(agent, Agent) and not same_model(cast("Agent[Any]", agent), model):
                raise ConfigurationError(
                    f"node {node.name!r}: the agent {agent.name!r} has another model, but nodes use that of the "
                    "pipeline's agent: give both the same model"
                )

    def __repr__(self) -> str:
        return f"Pipeline({list(self.nodes)})"

    # ---------------------------------------------------------------------------------------- the graph

    def _plan(self, ends: tuple[str, ...]) -> tuple[NextStep, ...]:
        steps = [
            NextStep(
                node.name,
                None if can_be_called(node.input) else copied(node.input),
                node.after,
                node.join,
                node.retries,
            )
            for node in self.nodes
        ]
        if self._last == ANSWER:
            steps.append(NextStep(ANSWER, None, tuple(dict.fromkeys((*ends, *self.output)))))
        return tuple(steps)

    def _may_be_absent(self) -> set[str]:
        """Return the nodes that may have no value in a task that continues."""
        absent: set[str] = set()
        for node in self.nodes:
            needed = [name for name in node.after if not self._by_name[name].optional]
            # With any, or a quorum, a node may fail as long as enough others have a value.
            counts = needed if node.join == "all" else node.after if _need(node) else ()
            if any(name in absent for name in counts) or node.optional or node.when is not None:
                absent.add(node.name)
        return absent

    def _unmet(self, node: Node, values: Mapping[str, Json]) -> str | None:
        """Return why too few of the nodes that a node follows have a value; None if enough have."""
        if node.join == "all":
            missing = [name for name in node.after if name not in values and not self._by_name[name].optional]
            return f"it needs {', '.join(missing)}, which was skipped" if missing else None
        need = _need(node)
        if len(values) < need:
            return f"it needs {need} of {', '.join(node.after)}, and {len(values)} came to something"
        return None

    def _state_before(self, node: Node, ctx: StepContext[Any]) -> Mapping[str, Json]:
        """Return the state as the nodes before this one left it. Updates are merged in the order of the nodes."""
        state = cast("dict[str, Json]", copied(dict(self.state)))
        state |= copied(dict(ctx.state))
        updates = [name for name in self._before[node.name] if self._by_name[name].update]
        outputs: Mapping[str, Any] = ctx.outputs(updates) if updates else {}
        for name in updates:
            state |= outputs.get(name) or {}
        return NodeState(state)

    def _check_templates(self) -> None:
        for node in self.nodes:
            for template in node.action.templates:
                try:
                    named = names_in(template)
                except ValueError as error:
                    raise ConfigurationError(
                        f"node {node.name!r}: the template {template!r}: {error}"
                    ) from None
                other = next(
                    (name for name in sorted(named) if name in self._by_name and name not in node.after), None
                )
                if other is not None:
                    raise ConfigurationError(
                        f"node {node.name!r} names {{{other}}}: add {other!r} to its after="
                    )


def _plain(name: str, input: Any) -> Json:
    try:
        return storable(input)
    except ValueError as error:
        raise ConfigurationError(
            f"node {name!r}: input must be JSON data, got {reprlib.repr(input)}: {error}"
        ) from None


def _need(node: Node) -> int:
    """Return how many of the nodes that a node follows must have a value, unless all must."""
    if isinstance(node.join, int):
        return int(node.join)
    return min(1, len(node.after)) if node.join == "any" else 0


def _condition(node: Node, ctx: NodeContext[Any]) -> bool:
    assert node.when is not None, "a node without when= has no condition"
    value = cast("object", node.when(ctx))
    if not isinstance(value, bool):
        if isinstance(value, Awaitable):
            getattr(cast("Any", value), "close", bool)()
        raise WorkerError(f"node {node.name!r}: when must return True or False, got {value!r:.200}")
    return value


def _checked_update(node: Node, value: Any) -> dict[str, Json]:
    try:
        update = storable(value)
    except ValueError:
        update = None
    if not isinstance(update, dict):
        raise WorkerError(
            f"node {node.name!r} updates the state, so its value must be an object, got {value!r:.200}"
        )
    return cast("dict[str, Json]", update)


# ------------------------------------------------------------------------------------------------ checks


def _names(field: str, value: Any) -> tuple[str, ...]:
    names: tuple[Any, ...] = (value,) if isinstance(value, str) else ()
    if not names and isinstance(value, Sequence):
        names = tuple(cast("Sequence[Any]", value))
    if not all(isinstance(name, str) for name in names) or (not names and value not in ((), [])):
        raise ConfigurationError(f"{field} must be names of nodes, got {value!r}")
    return tuple(dict.fromkeys(names))


def _checked(nodes: Any) -> tuple[Node, ...]:
    checked: tuple[Any, ...] = tuple(cast("Sequence[Any]", nodes)) if isinstance(nodes, Sequence) else ()
    wrong = next((node for node in checked if not isinstance(node, Node)), None)
    if wrong is not None or not checked:
        raise ConfigurationError(
            f"Pipeline takes a list of Node(...), got {nodes if wrong is None else wrong!r}"
        )
    names = [node.name for node in checked]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigurationError(f"Pipeline: two nodes are named {twice!r}")
    for node in checked:
        unknown = next((name for name in node.after if name not in names), None)
        if unknown is not None:
            raise ConfigurationError(f"node {node.name!r} follows {unknown!r}, and there is no such node")
        if isinstance(node.join, int) and not 1 <= node.join <= len(node.after):
            raise ConfigurationError(
                f"node {node.name!r} follows {len(node.after)} nodes, of which {int(node.join)} cannot end well"
            )
    return checked


def _in_order(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return nodes in their order, but each after the nodes it follows.

    Raises `ConfigurationError` for a circle.
    """
    after = {node.name: node.after for node in nodes}
    try:
        TopologicalSorter(after).prepare()
    except CycleError as error:
        circle = " -> ".join(error.args[1])
        raise ConfigurationError(f"Pipeline: nodes follow each other in a circle: {circle}") from None
    waits = {node.name: len(node.after) for node in nodes}
    followers: dict[str, list[int]] = {node.name: [] for node in nodes}
    for index, node in enumerate(nodes):
        for name in node.after:
            followers[name].append(index)
    free = [index for index, node in enumerate(nodes) if not node.after]
    ordered: list[Node] = []
    while free:
        node = nodes[heapq.heappop(free)]
        ordered.append(node)
        for index in followers[node.name]:
            waits[nodes[index].name] -= 1
            if not waits[nodes[index].name]:
                heapq.heappush(free, index)
    return tuple(ordered)


def _before(nodes: tuple[Node, ...]) -> dict[str, tuple[str, ...]]:
    """Return for each node the names of all before it, in order."""
    sets: dict[str, set[str]] = {}
    for node in nodes:
        sets[node.name] = set(node.after).union(*[sets[name] for name in node.after])
    return {
        name: tuple([node.name for node in nodes if node.name in before]) for name, before in sets.items()
    }


def _checked_state(state: Any) -> Mapping[str, Json]:
    if state is None:
        return {}
    if not isinstance(state, Mapping) or not is_writable(dict(cast("Mapping[str, Any]", state))):
        raise ConfigurationError(f"Pipeline: state must be an object of JSON data, got {state!r}")
    return dict(cast("Mapping[str, Json]", state))
