"""Plans of sub-tasks as a model writes them: read, checked, named, compared, and told of.

{"thought": "...", "sub_tasks": [{"id": "paris", "task": "How many people live in Paris?", "after": []}]}
{"thought": "...", "answer": "Paris has 2.1 million inhabitants."}

A sub-task is known by the number of its plan and the id that it was given there, like `1.paris`: so one of a refined
plan is never taken for an older one, whatever the model calls it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from json import dumps
from typing import Any, Final, cast

from treadle.agents.dialects.lenient_json import single_object, without_thinking
from treadle.core.data import frozen
from treadle.core.messages import Json
from treadle.core.tools import ToolSpec

LONGEST_ID: Final = 64


class UnusablePlan(ValueError):
    """What was written cannot be carried out; the message says why, to the model."""


@frozen
class SubTask:
    """One part of a task. Without `result` and `failure` it has not run.

    Args:
        id: the number of its plan, a dot, and the id it was given there.
        task: what is to be done, in the planning model's words.
        after: ids of the sub-tasks whose results it needs.
        result: what it came to, if it ended well.
        failure: why it did not.
    """

    id: str
    task: str
    after: tuple[str, ...] = ()
    result: str | None = None
    failure: str | None = None

    @property
    def given_id(self) -> str:
        """The id it was given in its plan."""
        return self.id.partition(".")[2]

    def facts(self) -> dict[str, Json]:
        """Return what is planned, and for one that failed why, as JSON data."""
        told: dict[str, Json] = {"id": self.id, "task": self.task, "after": list(self.after)}
        return told if self.failure is None else {**told, "failure": self.failure}


@frozen
class Plan:
    """A plan, and how it differs from what was planned before.

    Args:
        number: 1 for the first, one more for each refinement.
        added: its sub-tasks, none of which has run.
        kept: ids of those that ended well in earlier plans; they are never run again.
        dropped: ids of those of the plan before that did not end well; they are never run again either.
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
    """The answer to the whole task, as it was written."""

    value: Json


def read(text: str, number: int, known: Sequence[SubTask], most: int) -> Plan | Answer:
    """Return what a model wrote: a plan of what is left, or the answer.

    Args:
        text: the model's words.
        number: of the plan, if it is one.
        known: the sub-tasks of earlier plans, all of which have ended.
        most: how many sub-tasks a plan may add.

    Raises:
        UnusablePlan: it is neither, or cannot be carried out.
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
    return _plan(written["sub_tasks"], number, known, most)


def _plan(written: Any, number: int, known: Sequence[SubTask], most: int) -> Plan:
    if not isinstance(written, list) or not written:
        raise UnusablePlan('"sub_tasks" must be a list of at least one sub-task')
    entries = [_entry(entry) for entry in cast("list[Any]", written)]
    ended = {sub_task.id: sub_task for sub_task in known if sub_task.result is not None}
    names = _names(entries, number, known)
    new = [entry for entry in entries if names[entry.id] not in ended]
    if not new:
        raise UnusablePlan(
            "every sub-task of this plan has ended already: write the answer, or what is left to do"
        )
    if len(new) > most:
        raise UnusablePlan(f"the plan has {len(new)} sub-tasks, and {most} are the most it may have")
    added = [SubTask(names[sub.id], sub.task, _waits(sub, names, known)) for sub in new]
    _check_order(added)
    dropped = [sub.id for sub in known if sub.result is None and sub.id.startswith(f"{number - 1}.")]
    return Plan(number, tuple(added), tuple(ended), tuple(dropped))


def _entry(entry: Any) -> SubTask:
    if not isinstance(entry, dict):
        raise UnusablePlan('each of the "sub_tasks" must be a JSON object with the keys id, task and after')
    given = cast("dict[str, Any]", entry)
    name, task, after = given.get("id"), given.get("task"), given.get("after", [])
    if not isinstance(name, str) or not name.strip():
        raise UnusablePlan('a sub-task has no "id" that is text')
    if len(name) > LONGEST_ID or len(name.splitlines()) > 1:
        raise UnusablePlan(f'the "id" {name[:LONGEST_ID]!r} is not one line of at most {LONGEST_ID} letters')
    _check_keys(given, ("id", "task", "after"), f"the sub-task {name!r}")
    if not isinstance(task, str) or not task.strip():
        raise UnusablePlan(f'the sub-task {name!r} has no "task" that says what is to be done')
    names = cast("list[Any]", after)
    if not isinstance(after, list) or not all(isinstance(other, str) for other in names):
        raise UnusablePlan(f'the "after" of the sub-task {name!r} must be a list of ids')
    return SubTask(name.strip(), task.strip(), tuple(dict.fromkeys([other.strip() for other in names])))


def _check_keys(given: Mapping[str, Any], keys: Sequence[str], what: str) -> None:
    unknown = next((key for key in given if key not in keys), None)
    if unknown is not None:
        raise UnusablePlan(f"{what} has a key {unknown[:40]!r}; its keys are {', '.join(keys)}")


def _names(entries: Sequence[SubTask], number: int, known: Sequence[SubTask]) -> dict[str, str]:
    """Return the id of each sub-task by the one it was given: that of an ended one, if it is one told of again."""
    names: dict[str, str] = {}
    before = {sub_task.id: sub_task for sub_task in known}
    for entry in entries:
        same = before.get(entry.id) or next(
            (sub for sub in known if (sub.given_id, sub.task) == (entry.id, entry.task)), None
        )
        if same is not None and same.result is not None:
            name = same.id
        else:
            name = f"{number}.{same.given_id if same is not None else entry.id}"
        if entry.id in names or name in names.values():
            raise UnusablePlan(f"two sub-tasks have the id {entry.id!r}")
        names[entry.id] = name
    return names


def _waits(sub_task: SubTask, names: Mapping[str, str], known: Sequence[SubTask]) -> tuple[str, ...]:
    """Return the ids of those that a sub-task of a new plan waits for, whichever way the plan names them."""
    found: list[str] = []
    for name in sub_task.after:
        before = [sub for sub in known if name in (sub.id, sub.given_id)]
        ended = [sub.id for sub in before if sub.result is not None]
        if name in names:
            found.append(names[name])
        elif ended:
            found.append(ended[-1])
        elif before:
            raise UnusablePlan(
                f"the sub-task {sub_task.id!r} waits for {name!r}, which did not end well: plan it again or not at all"
            )
        else:
            raise UnusablePlan(
                f"the sub-task {sub_task.id!r} waits for {name!r}, and there is no such sub-task"
            )
    return tuple(dict.fromkeys(found))


def _check_order(added: Sequence[SubTask]) -> None:
    try:
        TopologicalSorter({sub_task.id: sub_task.after for sub_task in added}).prepare()
    except CycleError as error:
        circle = [name.partition(".")[2] for name in cast("list[str]", error.args[1])[1:]]
        each = "itself" if len(circle) == 1 else "each other"
        raise UnusablePlan(f"the sub-tasks {', '.join(circle)} wait for {each}") from None


# ------------------------------------------------------------------------------------------ in words


def told_tools(tools: Sequence[ToolSpec]) -> str:
    """Return tools as those need to know them who do not call them themselves."""
    return "\n".join([f"- {tool.name}: {' '.join(tool.description.split())}" for tool in tools]) or "(none)"


def told(number: int, known: Sequence[SubTask], *, last: bool) -> str:
    """Return what the model is told once a plan has run."""
    parts = [f"Plan {number} has run. This is what its sub-tasks and those before came to:"]
    parts += [_told_of(sub_task) for sub_task in known]
    if last:
        parts.append('No further plan is possible. Write the "answer" now, with what you know.')
    else:
        parts.append(
            'Write the "answer" if you know it, else a plan of what is left to do. What ended well is kept and never '
            'run again: name it in "after" where its result is needed.'
        )
    return "\n\n".join(parts)


def _told_of(sub_task: SubTask) -> str:
    if sub_task.result is not None:
        return f"{sub_task.id}: {sub_task.task}\nResult: {sub_task.result}"
    return f"{sub_task.id}: {sub_task.task}\nIt did not end well: {sub_task.failure}"


def told_schema(schema: Json) -> str:
    """Return what the model is told of an answer that has to fit a schema."""
    return f'The value of "answer" must fit this JSON schema:\n{dumps(schema, ensure_ascii=False)}'
