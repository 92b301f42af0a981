"""`Pipeline`: a worker whose steps are the nodes of a graph that is known beforehand.

Each node is a step of its own: it begins as soon as those it follows have ended, beside whatever else runs, and is
undone, forked, limited and taken up after a crash as steps are. Nothing but the nodes' outputs is kept anywhere: what
a node knows follows from the outputs of the nodes before it, so the order in which these ended does not matter.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, cast

from treadle.agents.agent import Agent
from treadle.agents.context import RunContext
from treadle.agents.workers.node import (
    TASK_INPUT,
    Ask,
    NodeContext,
    Run,
    called,
    names_in,
    run_for,
    same_model,
    text_of,
    tool_name,
)
from treadle.agents.workers.step_context import StepContext
from treadle.agents.workers.worker import Quorum, StepResult
from treadle.core.codec import is_writable, plain
from treadle.core.events import Join, NextStep
from treadle.core.messages import Json, copied
from treadle.errors import ConfigurationError, WorkerError
from treadle.ports import Model, Tool

ANSWER: Final = "(answer)"
"""The step that puts the answer together, in a pipeline whose last node does not give it."""

_FALSE: Final = "its condition is false"


class Node:
    """One node of a `Pipeline`.

    Args:
        name: letters, digits, `_` and `-`; no other node has it.
        run: what it does: a function of `NodeContext` (one that is not async runs in a thread) that returns JSON data;
            a tool of the agent, as it is or by name; `Ask(prompt)`; or an `Agent` that shares the model and tools of
            the pipeline's agent, which runs within this node.
        after: names of the nodes it follows.
        when: a function of `NodeContext`; if it returns False the node is skipped.
        join: how many of those it follows have to have a value: `all` but those that are optional, `any` (one; the
            others are stopped), `Quorum(n)`, or `optional` (none; it waits for all). Else it is skipped too.
        optional: the pipeline goes on without it if it fails, and so do the nodes that follow it.
        input: JSON data for the function; or the arguments of the tool, in which texts are templates as in `Ask`, or
            a function of `NodeContext` that returns them; or the template of what an agent is told (the task's input).
        update: its value is an object that is merged into the state which the nodes after it see.

    Raises:
        ConfigurationError: a value is not valid; the text names the node and the field.
    """

    __slots__ = ("after", "does", "input", "join", "name", "optional", "run", "update", "when")

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
    ) -> None:
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", name):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"a node's name must be 1 to 64 letters, digits, '_' or '-', first a letter or '_', got {name!r}"
            )
        if name == TASK_INPUT:
            raise ConfigurationError(f"a node cannot be named {name!r}: that is the task's input")
        if when is not None and not callable(when):
            raise ConfigurationError(f"node {name!r}: when must be a function of NodeContext, got {when!r}")
        if join not in ("all", "any", "optional") and type(join) not in (int, Quorum):
            raise ConfigurationError(
                f"node {name!r}: join must be 'all', 'any', 'optional' or Quorum(n), got {join!r}"
            )
        self.name = name
        self.run = run
        self.does: Run = run_for(name, run, input)
        self.after: tuple[str, ...] = _names(f"node {name!r}: after", after)
        self.when = when
        self.join: Join = join
        self.optional = bool(optional)
        self.input = input if callable(input) else _plain(name, input)
        self.update = bool(update)

    def __repr__(self) -> str:
        after = f", after={list(self.after)}" if self.after else ""
        return f"Node({self.name!r}{after})"

    @property
    def facts(self) -> Json:
        """What tells it from others."""
        return [
            self.name,
            self.does.facts,
            list(self.after),
            self.join,
            self.optional,
            self.update,
            None if self.when is None else called(self.when),
            called(self.input) if callable(self.input) else self.input,
        ]


class Pipeline:
    """A worker that runs the nodes of a graph, each as soon as those it follows have ended.

    Args:
        nodes: in any order.
        output: the node whose value is the answer, or several, which make an object by name; by default those that
            no other node follows.
        state: what the state holds at first; what a task is given as `extra_state`, if an object, is merged into it.

    Raises:
        ConfigurationError: nodes share a name, follow a node that there is not, or each other in a circle.
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
        """what a task begins with: all of it"""

    # ------------------------------------------------------------------------------------- as a worker

    def initialize_step(self, task: RunContext[Any]) -> Any:
        """Return all steps of a task."""
        return self.first_steps

    async def run_step(self, ctx: StepContext[Any]) -> StepResult:
        """Run a node."""
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
        known = {name: ended[name] for name in node.after if name in ended}
        unmet = self._unmet(node, known)
        if unmet is not None:
            return StepResult(skipped=unmet)
        given = NodeContext(
            node.name, ctx.input, text_of(ctx.task_input), known, self._state_before(node, ctx), ctx
        )
        try:
            if node.when is not None and not await ctx.once("pipeline:when", lambda: _wanted(node, given)):
                return StepResult(skipped=_FALSE)
            value = await node.does(given)
        except WorkerError:
            raise
        except Exception as error:
            if not node.optional:
                raise
            return StepResult(skipped=error)
        return StepResult(
            _checked_update(node, value) if node.update else value, is_last=ctx.name == self._last
        )

    def finalize_task(self, task: RunContext[Any], output: Json) -> Json:
        """Leave the answer as it is."""
        return None

    def facts(self) -> Json:
        """Return what tells this pipeline from others."""
        return {
            "pipeline": [node.facts for node in self.nodes],
            "output": list(self.output),
            "state": dict(self.state),
        }

    def check_for(self, model: str | Model, tools: Sequence[Tool]) -> None:
        """Raise `ConfigurationError` if an agent lacks what a node needs."""
        known = {tool.spec.name: tool for tool in tools}
        for node in self.nodes:
            for wanted in node.does.tools:
                name = tool_name(wanted)
                if name not in known:
                    raise ConfigurationError(
                        f"node {node.name!r} calls the tool {name!r}, which the agent does not have: add it to tools="
                    )
                if not isinstance(wanted, str) and wanted is not known[name]:
                    raise ConfigurationError(
                        f"node {node.name!r} calls another tool {name!r} than the agent has"
                    )
            agent = cast("Any", node.run)
            if isinstance(agent, Agent) and not same_model(cast("Agent[Any]", agent), model):
                raise ConfigurationError(
                    f"node {node.name!r}: the agent {agent.name!r} has another model, and a node asks that of the "
                    "pipeline's agent: give both the same"
                )

    def __repr__(self) -> str:
        return f"Pipeline({list(self.nodes)})"

    # ---------------------------------------------------------------------------------------- the graph

    def _plan(self, ends: tuple[str, ...]) -> tuple[NextStep, ...]:
        steps = [
            NextStep(node.name, None if callable(node.input) else copied(node.input), node.after, node.join)
            for node in self.nodes
        ]
        if self._last == ANSWER:
            steps.append(NextStep(ANSWER, None, tuple(dict.fromkeys((*ends, *self.output)))))
        return tuple(steps)

    def _may_be_absent(self) -> set[str]:
        """Return the nodes that may come to have no value in a task that goes on."""
        absent: set[str] = set()
        for node in self.nodes:
            needed = [name for name in node.after if not self._by_name[name].optional]
            # Where not all are needed one may fail as long as another may stand in for it, which then may not.
            counts = needed if node.join == "all" else node.after if _need(node) else ()
            lacks = any(name in absent for name in counts)
            if lacks or node.optional or node.when is not None:
                absent.add(node.name)
        return absent

    def _unmet(self, node: Node, known: Mapping[str, Json]) -> str | None:
        """Return why a node is skipped along with those it follows; None if it is not."""
        if node.join == "all":
            lacks = [name for name in node.after if name not in known and not self._by_name[name].optional]
            return f"it needs {', '.join(lacks)}, which was skipped" if lacks else None
        need = _need(node)
        if len(known) < need:
            return f"it needs {need} of {', '.join(node.after)}, and {len(known)} came to something"
        return None

    def _state_before(self, node: Node, ctx: StepContext[Any]) -> Mapping[str, Json]:
        """Return the state as the nodes before one left it: merged in their order, whichever ended first."""
        state = cast("dict[str, Json]", copied(dict(self.state)))
        given: Any = ctx.extra_state
        if isinstance(given, dict):
            state |= given
        updates = [name for name in self._before[node.name] if self._by_name[name].update]
        known: Mapping[str, Any] = ctx.outputs(updates) if updates else {}
        for name in updates:
            state |= known.get(name) or {}
        return state

    def _check_templates(self) -> None:
        for node in self.nodes:
            for template in node.does.templates:
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


def _plain(name: str, given: Any) -> Json:
    try:
        return plain(given)
    except ValueError:
        raise ConfigurationError(f"node {name!r}: input must be JSON data, got {given!r}") from None


def _need(node: Node) -> int:
    """Return how many of those that a node follows have to have a value, if not all."""
    if isinstance(node.join, int):
        return int(node.join)
    return min(1, len(node.after)) if node.join == "any" else 0


def _wanted(node: Node, ctx: NodeContext[Any]) -> bool:
    assert node.when is not None, "it is asked then"
    found = cast("object", node.when(ctx))
    if not isinstance(found, bool):
        if isinstance(found, Awaitable):
            getattr(cast("Any", found), "close", bool)()
        raise WorkerError(f"node {node.name!r}: when must return True or False, got {found!r:.200}")
    return found


def _checked_update(node: Node, value: Any) -> dict[str, Json]:
    try:
        found = plain(value)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise WorkerError(
            f"node {node.name!r} updates the state, so its value must be an object, got {value!r:.200}"
        )
    return cast("dict[str, Json]", found)


# ------------------------------------------------------------------------------------------------ checks


def _names(what: str, given: Any) -> tuple[str, ...]:
    names: tuple[Any, ...] = (given,) if isinstance(given, str) else ()
    if not names and isinstance(given, Sequence):
        names = tuple(cast("Sequence[Any]", given))
    if not all(isinstance(name, str) for name in names) or (not names and given not in ((), [])):
        raise ConfigurationError(f"{what} must be names of nodes, got {given!r}")
    return tuple(dict.fromkeys(names))


def _checked(nodes: Any) -> tuple[Node, ...]:
    found: tuple[Any, ...] = tuple(cast("Sequence[Any]", nodes)) if isinstance(nodes, Sequence) else ()
    wrong = next((node for node in found if not isinstance(node, Node)), None)
    if wrong is not None or not found:
        raise ConfigurationError(
            f"Pipeline takes a list of Node(...), got {nodes if wrong is None else wrong!r}"
        )
    names = [node.name for node in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigurationError(f"Pipeline: two nodes are named {twice!r}")
    for node in found:
        unknown = next((name for name in node.after if name not in names), None)
        if unknown is not None:
            raise ConfigurationError(f"node {node.name!r} follows {unknown!r}, and there is no such node")
        if isinstance(node.join, int) and not 1 <= node.join <= len(node.after):
            raise ConfigurationError(
                f"node {node.name!r} follows {len(node.after)} nodes, of which {int(node.join)} cannot end well"
            )
    return found


def _in_order(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return nodes so that each comes after those it follows, else as they are listed; raises for a circle."""
    after = {node.name: node.after for node in nodes}
    try:
        TopologicalSorter(after).prepare()
    except CycleError as error:
        circle = " -> ".join(error.args[1])
        raise ConfigurationError(f"Pipeline: nodes follow each other in a circle: {circle}") from None
    waits = {node.name: len(node.after) for node in nodes}
    followers: dict[str, list[int]] = {node.name: [] for node in nodes}
    for place, node in enumerate(nodes):
        for name in node.after:
            followers[name].append(place)
    free = [place for place, node in enumerate(nodes) if not node.after]
    ordered: list[Node] = []
    while free:
        node = nodes[heapq.heappop(free)]
        ordered.append(node)
        for place in followers[node.name]:
            waits[nodes[place].name] -= 1
            if not waits[nodes[place].name]:
                heapq.heappush(free, place)
    return tuple(ordered)


def _before(nodes: tuple[Node, ...]) -> dict[str, tuple[str, ...]]:
    """Return for each node the names of all before it, in order."""
    sets: dict[str, set[str]] = {}
    for node in nodes:
        sets[node.name] = set(node.after).union(*[sets[name] for name in node.after])
    return {name: tuple([node.name for node in nodes if node.name in found]) for name, found in sets.items()}


def _checked_state(state: Any) -> Mapping[str, Json]:
    if state is None:
        return {}
    if not isinstance(state, Mapping) or not is_writable(dict(cast("Mapping[str, Any]", state))):
        raise ConfigurationError(f"Pipeline: state must be an object of JSON data, got {state!r}")
    return dict(cast("Mapping[str, Json]", state))
