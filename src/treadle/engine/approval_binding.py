"""The binding of approvals to tools' definitions and calls' arguments, and the check of approvers."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from typing import Any

from treadle.core import events as e
from treadle.core.permits import digest_of
from treadle.core.steps import CallState
from treadle.core.tools import ToolSpec
from treadle.engine.effect_context import AgentRuntime, EffectContext
from treadle.engine.journal_writer import Recorder
from treadle.policy.verdicts import AskPerson


def definition_of(runtime: AgentRuntime, name: str) -> str:
    """Return the digest of a tool's definition: its declarations, and its code if the code is known.

    Defaults do not count, so approvals survive a version of Treadle with more fields. Neither does the author of the
    definition, since the definition itself counts.
    """
    tool: Any = runtime.tools[name]
    agent = runtime.agent.subagents_by_tool.get(name)
    code = (
        getattr(tool, "code", "") if agent is None else agent if isinstance(agent, str) else agent.fingerprint
    )
    told_by_code: frozenset[str] = getattr(tool, "told_by_code", frozenset())
    declared = {
        item.name: getattr(tool.spec, item.name)
        for item in fields(tool.spec)
        if item.name not in told_by_code and item.name != "defined_by" and not _is_default(tool.spec, item)
    }
    return digest_of([code, declared])


def _is_default(spec: ToolSpec, item: Field[Any]) -> bool:
    default = item.default if item.default_factory is MISSING else item.default_factory()
    return default is not MISSING and getattr(spec, item.name) == default


def is_void(context: EffectContext, call: CallState, record: Recorder) -> bool:
    """Whether the approval of a call that is to start does not hold for it. If so, record that it is void."""
    permit = call.permit
    if permit is None or permit.status != "approved" or permit.request is None:
        return False
    if call.name in context.runtime.tools and permit.request.definition != definition_of(
        context.runtime, call.name
    ):
        why = f"the tool {call.name} has changed since the approval was requested"
    elif permit.digest != digest_of(call.arguments):
        why = "the arguments are not those that were approved"
    else:
        return False
    record(e.ApprovalVoided(call.step, call.id, permit.request.number, why))
    return True


def may_decide(terms: e.ApprovalRequested | AskPerson, by: str | None) -> bool:
    """Whether a person of this name may decide a request with these terms."""
    if terms.approvers and by not in terms.approvers:
        return False
    return not terms.excluded or (by is not None and by not in terms.excluded)
