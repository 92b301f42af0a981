"""Plans of sub-tasks as a model writes them: how to read, check, name, compare and describe them.

{"thought": "...", "sub_tasks": [{"id": "paris", "task": "How many people live in Paris?", "after": []}]}
{"thought": "...", "answer": "Paris has 2.1 million inhabitants."}

The id of a sub-task is the number of its plan and the id in that plan, like `1.paris`. So sub-tasks of the same name in
two plans differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from json import dumps
from typing import Any, Final, cast

from treadle.agents.dialects.lenient_json import single_object, without_thinking
from treadle.core.data import frozen
from treadle.core.labels import Label
from treadle.core.messages import Json, Message, Text
from treadle.core.tools import ToolSpec

LONGEST_ID: Final = 64


class UnusablePlan(ValueError):
    """The text is not an executable plan; the message for the model says why."""


@frozen
class SubTask:
    """One part of a task. Without `result` and `failure` it has not run.

    Args:
        id: the number of its plan, a dot, and its id in that plan.
        task: its description, as the planning model wrote it.
        after: ids of the sub-tasks whose results it needs.
        result: its result, if it succeeded.
        failure: why it failed.
    """

    id: str
    task: str
    after: tuple[str, ...] = ()
    result: str | None = None
    failure: str | None = None

    @property
    def plan_id(self) -> str:
        """Its id in its plan."""
        return self.id.partition(".")[2]

    def facts(self) -> dict[str, Json]:
        """Return the sub-task as JSON data, with its failure but without its result."""
        data: dict[str, Json] = {"id": self.id, "task": self.task, "after": list(self.after)}
        return data if self.failure is None else {**data, "failure": self.failure}


@frozen
class Plan:
    """A plan, and how it differs from earlier plans.

    Args:
        number: 1 for the first, one more for each refinement.
        added: its sub-tasks, none of which has run.
        kept: ids of the sub-tasks that succeeded in earlier plans; they never run again.
        dropped: ids of the sub-tasks of the previous plan that did not succeed; they never run again.
    """

    number: int
    added: tuple[SubTask, ...]
    kept: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()

    def facts(self) -> dict[str, Json]:
        """Return the plan as JSON data."""
        return {
            "plan": self.number,
            "sub_tasks": [sub_task.facts() for sub_task in self.added],
            "added": [sub_task.id for sub_task in self.added],
            "kept": list(self.kept),
            "dropped": list(self.dropped),
        }


@frozen
class Answer:
    """The answer to the whole task, as the model wrote it."""

    value: Json


def read(text: str, number: int, earlier: Sequence[SubTask], most: int) -> Plan | Answer:
    """Return the plan or the answer in a text of the model.

    Args:
        text: the text.
        number: the number of the plan, if the text is one.
        earlier: the sub-tasks of earlier plans, all of which have ended.
        most: maximum number of sub-tasks that a plan may add.

    Raises:
        UnusablePlan: the text is neither, or the plan cannot be carried out.
    """
    try:
        written = single_object(without_thinking(text))
    except ValueError as error:
        raise UnusablePlan(f"{error}" if text.strip() else "you wrote nothing") from None
    _check_keys(written, ("thought", "sub_tasks", "answer"), "the JSON object")
    if ("sub_tasks" in written) == ("answer" in written):
        both = "both" if "answer" in written else "neither"
        raise UnusablePlan(
            f'the JSON object has {both} "sub_tasks" and "answer", where one of them is asked for'
        )
    if "answer" in written:
        return Answer(written["answer"])
    return _plan(written["sub_tasks"], number, earlier, most)


def _plan(written: Any, number: int, earlier: Sequence[SubTask], most: int) -> Plan:
    if not isinstance(written, list) or not written:
        raise UnusablePlan('"sub_tasks" must be a list of at least one sub-task')
    entries = [_sub_task(entry) for entry in cast("list[Any]", written)]
    ended = {sub_task.id: sub_task for sub_task in earlier if sub_task.result is not None}
    names = _names(entries, number, earlier)
    new = [entry for entry in entries if names[entry.id] not in ended]
    if not new:
        raise UnusablePlan(
            "every sub-task of this plan has ended already: write the answer, or what is left to do"
        )
    if len(new) > most:
        raise UnusablePlan(f"the plan has {len(new)} sub-tasks, and {most} are the most it may have")
    added = [SubTask(names[sub.id], sub.task, _waits(sub, names, earlier)) for sub in new]
    _check_order(added)
    dropped = [sub.id for sub in earlier if sub.result is None and sub.id.startswith(f"{number - 1}.")]
    return Plan(number, tuple(added), tuple(ended), tuple(dropped))


def _sub_task(entry: Any) -> SubTask:
    if not isinstance(entry, dict):
        raise UnusablePlan('each of the "sub_tasks" must be a JSON object with the keys id, task and after')
    data = cast("dict[str, Any]", entry)
    name, task, after = data.get("id"), data.get("task"), data.get("after", [])
    if not isinstance(name, str) or not name.strip():
        raise UnusablePlan('a sub-task has no "id" that is text')
    if len(name) > LONGEST_ID or len(name.splitlines()) > 1:
        raise UnusablePlan(f'the "id" {name[:LONGEST_ID]!r} is not one line of at most {LONGEST_ID} letters')
    _check_keys(data, ("id", "task", "after"), f"the sub-task {name!r}")
    if not isinstance(task, str) or not task.strip():
        raise UnusablePlan(f'the sub-task {name!r} has no "task" that says what is to be done')
    names = cast("list[Any]", after)
    if not isinstance(after, list) or not all(isinstance(other, str) for other in names):
        raise UnusablePlan(f'the "after" of the sub-task {name!r} must be a list of ids')
    return SubTask(name.strip(), task.strip(), tuple(dict.fromkeys([other.strip() for other in names])))


def _check_keys(data: Mapping[str, Any], keys: Sequence[str], owner: str) -> None:
    unknown = next((key for key in data if key not in keys), None)
    if unknown is not None:
        raise UnusablePlan(f"{owner} has a key {unknown[:40]!r}; its keys are {', '.join(keys)}")


def _names(entries: Sequence[SubTask], number: int, earlier: Sequence[SubTask]) -> dict[str, str]:
    """Return the id of each sub-task by its id in the plan. A repeated sub-task that succeeded keeps its id."""
    names: dict[str, str] = {}
    before = {sub_task.id: sub_task for sub_task in earlier}
    for entry in entries:
        same = before.get(entry.id) or next(
            (sub for sub in earlier if (sub.plan_id, sub.task) == (entry.id, entry.task)), None
        )
        if same is not None and same.result is not None:
            name = same.id
        else:
            name = f"{number}.{same.plan_id if same is not None else entry.id}"
        if entry.id in names or name in names.values():
            raise UnusablePlan(f"two sub-tasks have the id {entry.id!r}")
        names[entry.id] = name
    return names


def _waits(sub_task: SubTask, names: Mapping[str, str], earlier: Sequence[SubTask]) -> tuple[str, ...]:
    """Return the ids of the sub-tasks that a new one waits for.

    The plan names them by full id or by the id in their plan.
    """
    ids: list[str] = []
    for name in sub_task.after:
        before = [sub for sub in earlier if name in (sub.id, sub.plan_id)]
        ended = [sub.id for sub in before if sub.result is not None]
        if name in names:
            ids.append(names[name])
        elif ended:
            ids.append(ended[-1])
        elif before:
            raise UnusablePlan(
                f"the sub-task {sub_task.id!r} waits for {name!r}, which did not end well: plan it again or not at all"
            )
        else:
            raise UnusablePlan(
                f"the sub-task {sub_task.id!r} waits for {name!r}, and there is no such sub-task"
            )
    return tuple(dict.fromkeys(ids))


def _check_order(added: Sequence[SubTask]) -> None:
    try:
        TopologicalSorter({sub_task.id: sub_task.after for sub_task in added}).prepare()
    except CycleError as error:
        circle = [name.partition(".")[2] for name in cast("list[str]", error.args[1])[1:]]
        each = "itself" if len(circle) == 1 else "each other"
        raise UnusablePlan(f"the sub-tasks {', '.join(circle)} wait for {each}") from None


# ------------------------------------------------------------------------------------------ in prompts


def describe_tools(tools: Sequence[ToolSpec]) -> str:
    """Return the names and descriptions of tools, a line each, for a model that only plans."""
    return "\n".join([f"- {tool.name}: {' '.join(tool.description.split())}" for tool in tools]) or "(none)"


def describe_ended_plan(
    number: int, earlier: Sequence[SubTask], *, last: bool, label: Label | None
) -> Message:
    """Return the message to the model once a plan has run. `label` is the label of its sub-tasks' results."""
    begin = f"Plan {number} has run. This is what its sub-tasks and those before came to:\n\n"
    ended = "\n\n".join([_describe_ended(sub_task) for sub_task in earlier])
    if last:
        end = 'No further plan is possible. Write the "answer" now, with what you know.'
    else:
        end = (
            'Write the "answer" if you know it, else a plan of what is left to do. What ended well is kept and never '
            'run again: name it in "after" where its result is needed.'
        )
    if label is None:
        return Message("user", (Text(f"{begin}{ended}\n\n{end}"),))
    return Message("user", (Text(begin), Text(ended, label=label), Text(f"\n\n{end}")))


def _describe_ended(sub_task: SubTask) -> str:
    if sub_task.result is not None:
        return f"{sub_task.id}: {sub_task.task}\nResult: {sub_task.result}"
    return f"{sub_task.id}: {sub_task.task}\nIt did not end well: {sub_task.failure}"


def describe_schema(schema: Json) -> str:
    """Return the instructions for an answer that must fit a schema."""
    return f'The value of "answer" must fit this JSON schema:\n{dumps(schema, ensure_ascii=False)}'
