"""Options of a run, which are checked at construction and merged field by field."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field, fields
from decimal import Decimal
from functools import cache
from typing import Any, Final, Literal, cast, get_args, get_type_hints

from treadle.agents.agent import Agent
from treadle.agents.decide.rules import (
    AtEnd,
    ModelFailurePolicy,
    OnLimit,
    OnUnknownOutcome,
    Rules,
    ToolFailurePolicy,
)
from treadle.core.codec import flaw
from treadle.core.cut_outputs import SPEC as READER
from treadle.core.data import frozen, repr_of_set_fields
from treadle.core.events import EVENTS
from treadle.core.messages import Json
from treadle.core.model import ModelSettings
from treadle.core.observation import OBSERVATION_CHARS, READ_OUTPUT
from treadle.core.redaction import named_secrets
from treadle.core.tools import ToolSpec
from treadle.core.unknown_names import explains_arguments
from treadle.errors import ConfigurationError
from treadle.policy.limits import Limits
from treadle.ports import OnBusyThread
from treadle.results.caller_tools import CallerTool


@frozen(kw_only=True)
@explains_arguments
class FailurePolicy:
    """Effects of failures on the task, by the source of the failure.

    Args:
        model: `fail`, `degrade` or `pause`. `degrade` ends the task with the results so far.
        tool: `continue`, `fail`, `degrade` or `pause`. With `continue` the model gets the error. `degrade` also reports
            it at the end.
        subagent: the same values, for a called agent.
        denied: the same values, for a call that a policy or a person denied. It applies to steps that call a model.
    """

    model: ModelFailurePolicy = "fail"
    tool: ToolFailurePolicy = "continue"
    subagent: ToolFailurePolicy = "continue"
    denied: ToolFailurePolicy = "continue"

    def __post_init__(self) -> None:
        _check_values(self)


MAX_EXPIRY: Final = 1e10
"""Longest time for an open request for approval, in seconds: some three hundred years."""


LEAST: Final = {
    "max_parallel_tools": 1,
    "max_parallel_steps": 1,
    "tool_output_max_chars": 100,
    "context_tokens": 1_000,
}
"""The smallest values of options that are whole numbers."""

NEVER_PAUSE: Final = frozenset(
    {
        *("task_created", "task_forked", "messages_imported", "summary_requested", "result_replaced"),
        *("thread_awaited", "thread_entered", "instructions_set", "version_changed", "options_changed"),
        *("input_edited", "call_edited", "task_reopened", "task_ended"),
    }
)
"""Events after which breakpoints cannot pause, since they are recorded before or beside a drive, or end the task."""


@frozen(kw_only=True)
@explains_arguments
class Breakpoint:
    """A condition that pauses a task. Give exactly one.

    Args:
        tool: name of a tool, or a pattern such as `write_*` or `*`. Pause when the model has called a matching tool,
            before it starts.
        before_tool: the old name of `tool`.
        after_step: pause after the step of this index. 0: after each step.
        event: the tag of an event of a driven task, such as `tool_ended`. Pause once it is journalled.
        cost: US dollars. Pause once the task and those below it have spent that much. The prices of its models must be
            known, as for a limit on cost.
    """

    before_tool: str | None = None
    after_step: int | None = None
    event: str | None = None
    tool: str | None = None
    cost: Decimal | float | None = None

    __repr__ = repr_of_set_fields

    def __post_init__(self) -> None:
        if sum(getattr(self, item.name) is not None for item in fields(self)) != 1:
            raise ConfigurationError(
                "Breakpoint needs exactly one of before_tool, after_step, event, tool, cost"
            )
        self._check(self.after_step, self.event, self.cost)
        for name in ("before_tool", "tool"):
            tool: Any = getattr(self, name)
            if tool is not None and (not isinstance(tool, str) or not tool):
                raise ConfigurationError(
                    f"Breakpoint.{name} must be the name of a tool or a pattern such as 'write_*', got {tool!r}"
                )

    @property
    def tools(self) -> str | None:
        """The pattern of the names of the tools before which the task pauses."""
        return self.tool if self.tool is not None else self.before_tool

    def _check(self, step: Any, event: Any, cost: Any) -> None:
        is_amount = isinstance(cost, (int, float, Decimal)) and not isinstance(cost, bool)
        is_amount = is_amount and not (isinstance(cost, int) and cost > 10**300) and math.isfinite(cost)
        if cost is not None and not (is_amount and cost > 0):
            raise ConfigurationError(f"Breakpoint.cost must be an amount of US dollars above 0, got {cost!r}")
        if step is not None and (isinstance(step, bool) or not isinstance(step, int) or step < 0):
            raise ConfigurationError(f"Breakpoint.after_step must be a whole number from 0 up, got {step!r}")
        if event is not None and (not isinstance(event, str) or event not in EVENTS or event in NEVER_PAUSE):
            names = ", ".join([kind for kind in EVENTS if kind not in NEVER_PAUSE])
            raise ConfigurationError(f"Breakpoint.event must be one of {names}, got {event!r}")


@frozen(kw_only=True)
@explains_arguments
class RunOptions:
    """Options of a run. A field that is None comes from the runner's options, or has the default named here.

    Args:
        limits: limits besides the agent's. The smallest of several counts.
        on_limit: `final_answer`, `fail` or `pause`. Default: `final_answer`, one last answer without tools, degraded.
        on_failure: the effects of failures.
        on_unknown_outcome: for a writing call: `wait` for a person (default), `tell_model` or `fail`.
        on_version_change: when the agent has changed since the task began: `accept` and record it (default), or
            `refuse`.
        on_busy_thread: when another task is driven in the task's thread: `enqueue` (default) begins after it. `reject`
            raises `ThreadBusy`. `interrupt` interrupts it and begins. `parallel` begins beside it.
        keep_in_thread: when the task's messages join its thread: on `success` (default), or `always`.
        break_on: conditions that pause the task.
        max_parallel_tools: the most calls of one turn that run at a time. Default: 64.
        max_parallel_steps: the most steps that run at a time, if an agent's steps are functions. Default: 64.
        tool_output_max_chars: the most characters of a result that the model sees. Default: 8,000.
        context_tokens: the most estimated tokens of a request. The model sees the newest part of a longer conversation.
            Leave room for the answer. Default: no limit.
        tell_steps_left: add the number of steps left to the instructions.
        model_settings: override the agent's, field by field. They are stored with the task, so `extra` must not have
            keys.
        interaction: the decision on requests for approval. `external` (default) waits for one from any process,
            `interactive` asks on the terminal of this process, and `headless` denies at once.
        approval_expires: seconds until an unanswered request for approval is denied. Default: 604,800, a week.
        at_end: when the task has answered while calls continue in the background. With `suspend` (default) it waits at
            rest, and the process may exit. With `wait` the run stays until they have ended. With `detach` the task
            ends, and later results are stored with it. `cancel` cancels the calls.
        on_disconnect: `continue` (default), `interrupt` or `cancel` the task when the server that holds it (`?hold=1`)
            has no open stream for 15 seconds. Without a server it has no effect.
        caller_tools: tools that the caller of the task runs, besides those of the agent. A call of one rests, with its
            task, until the caller sends the result by `complete` or `fail`. Tasks below do not have these tools.
        delete_on_finish: delete the task once its caller has the result from `run`, `run_sync`, `run_stream` or
            `resume`. The thread keeps its messages. A task stays if it failed or was cancelled, if a fork began with
            it, or if calls continue in the background.
        labels: short texts to find the task by. Tasks below have them too.
    """

    limits: Limits | None = None
    on_limit: OnLimit | None = None
    on_failure: FailurePolicy | None = None
    on_unknown_outcome: OnUnknownOutcome | None = None
    on_version_change: Literal["accept", "refuse"] | None = None
    on_busy_thread: OnBusyThread | None = None
    keep_in_thread: Literal["success", "always"] | None = None
    break_on: Sequence[Breakpoint] | None = None
    max_parallel_tools: int | None = None
    max_parallel_steps: int | None = None
    tool_output_max_chars: int | None = None
    context_tokens: int | None = None
    tell_steps_left: bool | None = None
    model_settings: ModelSettings | None = None
    interaction: Literal["external", "interactive", "headless"] | None = None
    approval_expires: float | None = None
    at_end: AtEnd | None = None
    on_disconnect: Literal["continue", "interrupt", "cancel"] | None = None
    caller_tools: Sequence[CallerTool] | None = None
    delete_on_finish: bool | None = None
    labels: dict[str, str] = field(default_factory=dict[str, str])

    __repr__ = repr_of_set_fields

    def __post_init__(self) -> None:
        _check_values(self)
        for name, cls in (
            ("limits", Limits),
            ("on_failure", FailurePolicy),
            ("model_settings", ModelSettings),
        ):
            value = getattr(self, name)
            if value is not None and not isinstance(value, cls):
                raise ConfigurationError(f"RunOptions.{name} must be {cls.__name__}(...), got {value!r}")
        if self.model_settings is not None:
            _check_stored_settings(self.model_settings)
        for name, least in LEAST.items():
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
                raise ConfigurationError(
                    f"RunOptions.{name} must be a whole number from {least} up, got {value!r}"
                )
        if self.delete_on_finish not in (None, True, False):
            raise ConfigurationError(
                f"RunOptions.delete_on_finish must be True or False, got {self.delete_on_finish!r}"
            )
        seconds: Any = self.approval_expires
        is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
        if seconds is not None and not (is_number and 0 < seconds < MAX_EXPIRY):
            raise ConfigurationError(
                f"RunOptions.approval_expires must be a number of seconds above 0, got {seconds!r}"
            )
        _check_list("break_on", self.break_on, Breakpoint)
        _check_list("caller_tools", self.caller_tools, CallerTool)
        names = [tool.name for tool in self.caller_tools or ()]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ConfigurationError(f"RunOptions.caller_tools: two are named {twice!r}; rename one")
        _check_labels(self.labels)

    def over(self, defaults: RunOptions | None) -> RunOptions:
        """Return these options, with fields that are None from `defaults`. The smaller of two limits counts."""
        if defaults is None:
            return self
        values: dict[str, Any] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            values[item.name] = getattr(defaults, item.name) if value is None else value
        if self.limits is not None and defaults.limits is not None:
            values["limits"] = self.limits.tightest(defaults.limits)
        if self.model_settings is not None and defaults.model_settings is not None:
            values["model_settings"] = self.model_settings.over(defaults.model_settings)
        values["labels"] = {**defaults.labels, **self.labels}
        return RunOptions(**values)


def _check_labels(labels: Any) -> None:
    """Raise `ConfigurationError` unless labels map text to text that can be stored."""
    if not isinstance(labels, dict):
        raise ConfigurationError(f"RunOptions.labels must map text to text, got {labels!r}")
    texts = cast("dict[Any, Any]", labels)
    for key, value in texts.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise ConfigurationError(f"RunOptions.labels must map text to text, got {key!r}: {value!r}")
    if texts and (problem := flaw(texts)) is not None:
        raise ConfigurationError(f"RunOptions.labels cannot be stored: they are {problem}, got {texts!r:.80}")


def _check_list(name: str, value: Any, cls: type[Any]) -> None:
    """Raise `ConfigurationError` unless a field is None, or a list of instances of a class."""
    if value is None:
        return
    if not isinstance(value, (list, tuple)):
        raise ConfigurationError(
            f"RunOptions.{name} must be a list of {cls.__name__}(...), such as {name}=[{cls.__name__}(...)], "
            f"got {value!r}"
        )
    for item in cast("Sequence[Any]", value):
        if not isinstance(item, cls):
            raise ConfigurationError(f"RunOptions.{name} must hold {cls.__name__}(...), got {item!r}")


def _check_stored_settings(settings: ModelSettings) -> None:
    """Raise `ConfigurationError` for settings that a journal cannot hold, or must not."""
    if (problem := flaw(settings.extra)) is not None:
        raise ConfigurationError(f"RunOptions.model_settings cannot be stored: extra is {problem}")
    if named_secrets(settings.extra):
        raise ConfigurationError(
            "RunOptions.model_settings.extra holds a key, and options are stored with the task: "
            "give it to the model (api_key=), or to Agent(model_settings=), which is not stored"
        )


def _check_values(options: Any) -> None:
    """Raise `ConfigurationError` for a value that its field does not allow."""
    for name, allowed in _allowed_values(options.__class__).items():
        value = getattr(options, name)
        if value is not None and value not in allowed:
            listed = ", ".join(map(repr, allowed))
            raise ConfigurationError(
                f"{options.__class__.__name__}.{name} must be one of {listed}, got {value!r}"
            )


@cache
def _allowed_values(cls: type) -> dict[str, list[str]]:
    """Return the allowed texts of each restricted field of a class."""
    allowed = {
        name: [
            value for part in (hint, *get_args(hint)) for value in get_args(part) if isinstance(value, str)
        ]
        for name, hint in get_type_hints(cls).items()
    }
    return {name: values for name, values in allowed.items() if values}


# ----------------------------------------------------------------------------- stored with the task


def to_json(options: RunOptions) -> Json:
    """Return the set options as the JSON that is stored with a task."""
    document: dict[str, Any] = {}
    for name in _STORED_FIELDS:
        value = getattr(options, name)
        if value is None:
            continue
        if name in ("limits", "on_failure", "model_settings"):
            value = {item.name: _number(getattr(value, item.name)) for item in fields(value)}
            if value.get("use_cache", False) is None:  # newer than the format, so absent unless set
                del value["use_cache"]
        elif name == "break_on":
            value = [_conditions(each) for each in value]
        elif name == "caller_tools":
            value = [{item.name: getattr(tool, item.name) for item in fields(tool)} for tool in value]
        document[name] = value
    return document or None


def _conditions(breakpoint_: Breakpoint) -> Json:
    """Return the set fields of a breakpoint, and always the first three fields."""
    values = {item.name: _number(getattr(breakpoint_, item.name)) for item in fields(breakpoint_)}
    return {name: value for name, value in values.items() if value is not None or name in _FIRST_CONDITIONS}


def _number(value: Any) -> Json:
    return float(value) if isinstance(value, Decimal) else value


def from_json(document: Json) -> RunOptions:
    """Return options from the JSON of `to_json`. Fields of later versions are ignored."""
    if not document:
        return _NOTHING_SET
    names = {item.name for item in fields(RunOptions)}
    values: dict[str, Any] = {name: value for name, value in document.items() if name in names}
    if "limits" in values:
        values["limits"] = _from_stored(Limits, values["limits"])
    if "on_failure" in values:
        values["on_failure"] = _from_stored(FailurePolicy, values["on_failure"])
    if "model_settings" in values:
        values["model_settings"] = _from_stored(ModelSettings, values["model_settings"])
    if "break_on" in values:
        # The first release accepted breakpoints that could never pause.
        breakpoints = [item for item in values["break_on"] if item.get("event") not in NEVER_PAUSE]
        values["break_on"] = tuple([_from_stored(Breakpoint, item) for item in breakpoints])
    if "caller_tools" in values:
        values["caller_tools"] = tuple([_from_stored(CallerTool, item) for item in values["caller_tools"]])
    return RunOptions(**values)


_FIRST_CONDITIONS: Final = ("before_tool", "after_step", "event")
_NOTHING_SET = RunOptions()
_STORED_FIELDS = tuple(item.name for item in fields(RunOptions) if item.name != "labels")


def _from_stored(cls: type[Any], document: dict[str, Any]) -> Any:
    names = {item.name for item in fields(cls)}
    return cls(**{name: value for name, value in document.items() if name in names})


def limits_of(agent: Agent[Any], options: RunOptions, *, raised: bool = False) -> Limits:
    """Return the limits of a task: the smaller of each, or those of the options if they were raised."""
    if options.limits is None:
        return agent.limits
    return options.limits if raised else agent.limits.tightest(options.limits)


def was_raised(stored: Json) -> bool:
    """Return whether the limits stored with a task replace those of its agent."""
    return bool(stored and stored.get("raised"))


def _specs(agent: Agent[Any]) -> dict[str, ToolSpec]:
    """Return the tools of an agent by name, with `read_output` if it has any tools."""
    specs = {tool.spec.name: tool.spec for tool in agent.tools}
    return {READ_OUTPUT: READER, **specs} if specs else specs


def rules_for(
    agent: Agent[Any] | None, options: RunOptions, *, raised: bool = False, besides: Limits | None = None
) -> Rules:
    """Return the rules of a drive.

    Args:
        agent: the agent of the task. None: a drive without an agent.
        options: the options of the task.
        raised: whether the limits of the options replace those of the agent.
        besides: the limits of the agent that the task was created for, which apply too.
    """
    if agent is None:
        return Rules(
            limits=options.limits or Limits(),
            on_limit=options.on_limit or "final_answer",
            knows_agent=False,
            at_end=options.at_end or "suspend",
            max_chars=options.tool_output_max_chars or OBSERVATION_CHARS,
        )
    limits = limits_of(agent, options, raised=raised)
    if besides is not None and besides is not agent.limits and not (raised and options.limits is not None):
        limits = limits.tightest(besides)
    failure = options.on_failure or FailurePolicy()
    function_worker = agent.function_worker
    return Rules(
        model=agent.model_name,
        tools=_specs(agent),
        agents=frozenset(agent.subagents_by_tool),
        routed=agent.router is not None,
        handoffs={name: handoff.agent_name for name, handoff in agent.handoffs_by_tool.items()},
        limits=limits,
        on_limit=options.on_limit or "final_answer",
        on_model_failure=failure.model,
        on_tool_failure=failure.tool,
        on_subagent_failure=failure.subagent,
        on_failure_of={
            name: terms.on_failure
            for name, terms in agent.subagent_terms.items()
            if terms.on_failure is not None
        },
        join=agent.join,
        on_denied_call=failure.denied,
        on_unknown_outcome=options.on_unknown_outcome or "wait",
        max_parallel_tools=options.max_parallel_tools or 64,
        max_parallel_steps=options.max_parallel_steps or 64,
        first_steps=function_worker.first_steps if function_worker is not None else (),
        finalizes_answers=function_worker is not None and function_worker.finalizes_answers,
        max_parse_errors=agent.dialect.max_parse_errors if agent.dialect is not None else None,
        at_end=options.at_end or "suspend",
        max_chars=options.tool_output_max_chars or OBSERVATION_CHARS,
        gated=any(tool.spec.needs_approval for tool in agent.tools),
        output_retries=agent.output_retries if agent.typed is not None and function_worker is None else None,
    )
