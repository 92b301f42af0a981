"""`Rules`: what a drive of a task goes by, worked out once from agent and options. Plain data for the pure part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from treadle.core.data import frozen
from treadle.core.events import NextStep
from treadle.core.tools import ToolSpec
from treadle.policy.limits import Limits

OnLimit = Literal["final_answer", "fail", "pause"]
ModelFailurePolicy = Literal["fail", "degrade", "pause"]
ToolFailurePolicy = Literal["continue", "fail", "degrade", "pause"]
OnUnknownOutcome = Literal["wait", "tell_model", "fail"]


@frozen
class Rules:
    """What `decide` needs to know besides the state.

    Without an agent (`tools` empty, `knows_agent` false) only what needs no code can be decided.
    """

    model: str = ""
    tools: Mapping[str, ToolSpec] = field(default_factory=dict[str, ToolSpec])
    limits: Limits = Limits()
    on_limit: OnLimit = "final_answer"
    on_model_failure: ModelFailurePolicy = "fail"
    on_tool_failure: ToolFailurePolicy = "continue"
    on_unknown_outcome: OnUnknownOutcome = "wait"
    max_parallel_tools: int = 64
    max_parse_errors: int | None = None
    """how many answers in a row may be unreadable, where the model's words have to be read"""

    output_retries: int | None = None
    """if answers are to be of a type: how many in a row may be wrong before the step fails"""

    max_parallel_steps: int = 64
    only_steps: frozenset[str] | None = None
    """if the task's steps are functions: the ids of those that may run now, if not all"""

    first_steps: tuple[NextStep, ...] = ()
    """what a task whose steps are functions begins with, if its worker need not be asked for that"""

    finalizes_answers: bool = False
    """whether the worker is to have a last look at the answer before the task ends"""

    knows_agent: bool = True

    agents: frozenset[str] = frozenset()
    """which of the tools are agents"""

    on_subagent_failure: ToolFailurePolicy = "continue"
