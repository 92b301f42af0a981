"""`Rules`: the data that `decide` needs of agent and options, derived once per drive. Plain data for the pure part."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import field
from typing import Literal

from treadle.core.data import frozen
from treadle.core.events import GuardedContent, Join, NextStep
from treadle.core.observation import OBSERVATION_CHARS
from treadle.core.tools import ToolSpec
from treadle.policy.limits import Limits

OnLimit = Literal["final_answer", "fail", "pause"]
ModelFailurePolicy = Literal["fail", "degrade", "pause"]
ToolFailurePolicy = Literal["continue", "fail", "degrade", "pause"]
OnUnknownOutcome = Literal["wait", "tell_model", "fail"]
AtEnd = Literal["wait", "suspend", "detach", "cancel"]


@frozen
class Rules:
    """The input of `decide` besides the state.

    Without an agent, `tools` is empty, `knows_agent` is false, and only effects that need no code are decided.
    """

    model: str = ""
    tools: Mapping[str, ToolSpec] = field(default_factory=dict[str, ToolSpec])
    limits: Limits = Limits()
    on_limit: OnLimit = "final_answer"
    on_model_failure: ModelFailurePolicy = "fail"
    on_tool_failure: ToolFailurePolicy = "continue"
    on_unknown_outcome: OnUnknownOutcome = "wait"
    at_end: AtEnd = "suspend"
    max_chars: int = OBSERVATION_CHARS
    """how many characters of a result the model sees"""

    max_parallel_tools: int = 64
    max_parse_errors: int | None = None
    """how many answers in a row may be unreadable, if the agent uses a text protocol with its model"""

    output_retries: int | None = None
    """how many answers of the wrong type in a row are sent back before the step fails; None for text"""

    asks_by_tool: bool = False
    """whether the model gives its typed answer by a call, as with `output_mode="tool"`"""

    max_parallel_steps: int = 64
    only_steps: frozenset[str] | None = None
    """the ids of the step functions that may run now; None for all"""

    asked_again: Container[str] | None = None
    """the ids of repeated calls that their step functions asked for in this drive; None for all"""

    first_steps: tuple[NextStep, ...] = ()
    """the first steps of a task of step functions; empty if its worker is asked for them"""

    finalizes_answers: bool = False
    """whether the worker is called with the answer before the task ends"""

    knows_agent: bool = True

    agents: frozenset[str] = frozenset()
    """the names of the tools that call subagents"""

    join: Join = "all"
    """how many of the agents called in one answer must answer before its step ends"""

    handoffs: Mapping[str, str] = field(default_factory=dict[str, str])
    """the agents that a conversation may move to, by the names of the tools that ask for it"""

    routed: bool = False
    """whether a router is called before the model in each step"""

    on_subagent_failure: ToolFailurePolicy = "continue"
    on_failure_of: Mapping[str, ToolFailurePolicy] = field(default_factory=dict[str, ToolFailurePolicy])
    """the failure policies by tool that replace `on_subagent_failure` for certain subagents"""

    on_denied_call: ToolFailurePolicy = "continue"
    judged: frozenset[str] = frozenset()
    """the names of the tools whose calls a policy judges before they start"""

    gated: bool = False
    """whether any call, or request to a model, may have to be judged before it starts"""

    guarded: frozenset[GuardedContent] = frozenset()
    """the contents that guardrails check"""

    guarded_tools: frozenset[str] = frozenset()
    """the names of the tools whose results guardrails check"""

    blocks_input: bool = False
    """whether input must pass before the step that reads it starts"""

    judges_requests: bool = False
    """whether requests to models are judged before they are sent"""
