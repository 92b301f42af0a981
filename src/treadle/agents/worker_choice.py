"""The worker of an `Agent(worker=)`: the workers by name, and the checks of custom ones.

A worker's modules are imported by the first agent that uses it. Most agents use `function_calling`, which needs none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from treadle.core.refused_uses import can_be_called, no_function
from treadle.errors import ConfigurationError
from treadle.ports import ContextT, Model, Tool

if TYPE_CHECKING:
    from treadle.agents.dialects.dialect import Dialect
    from treadle.agents.workers.worker import AgentWorker, Decider, FunctionWorker, StepFunction

    WorkerChoice: TypeAlias = "WorkerName | Dialect | StepFunction[ContextT] | AgentWorker | Decider"

WorkerName = Literal["function_calling", "react", "planner", "plan_refine"]


def resolve_worker(
    worker: Any, model: str | Model, tools: Sequence[Tool]
) -> tuple[Dialect | None, FunctionWorker | Decider | None]:
    """Return the dialect of an agent, and its custom worker; each is None if not used.

    Raises:
        ConfigurationError: it is not a worker, or cannot work with this model and these tools.
    """
    if worker == "function_calling":
        return None, None
    if worker == "plan_refine":
        from treadle.agents.workers.plan_refine import PlanRefine

        worker = PlanRefine()
    dialect = _dialect(worker)
    if dialect is not None:
        dialect.check([tool.spec.name for tool in tools])
        return dialect, None
    from treadle.agents.workers.worker import AgentWorker, Decider, FunctionWorker

    if isinstance(worker, Decider):
        return None, worker
    if isinstance(worker, type) or not (can_be_called(worker) or isinstance(worker, AgentWorker)):
        raise ConfigurationError(
            "worker must be 'function_calling', 'react', 'planner', 'plan_refine', a dialect such as React(...), "
            f"PlanRefine(...), a function of StepContext, an AgentWorker, or Decider(...), got "
            f"{no_function(worker)}"
        )
    check = getattr(worker, "check_for", None)
    if callable(check):
        check(model, tools)
    return None, FunctionWorker(worker)


def _dialect(worker: Any) -> Dialect | None:
    from treadle.agents.dialects.dialect import Dialect

    if worker == "react":
        from treadle.agents.dialects.react import React

        return React()
    if worker == "planner":
        from treadle.agents.dialects.planner import Planner

        return Planner()
    return worker if isinstance(worker, Dialect) and not isinstance(worker, type) else None
