"""`TaskRunner`: every verb on tasks, over ports alone. The public `Runner` only decides which adapters it gets.

Every verb that drives goes one way: claim the task, record what the caller said, let a `Drive` run to the verb's goal,
give the task back, and tell from its state what happened.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from uuid_utils import uuid7  # noqa: TID251  ids are made here, at the edge

from treadle.agents import function_calling
from treadle.agents.agent import Agent, RunContext
from treadle.agents.setup import Setup
from treadle.core import codec
from treadle.core import events as e
from treadle.core.effects import Decision, Wait
from treadle.core.journal import unfold
from treadle.core.messages import Content, Json, Message, content
from treadle.core.state import StepState, TaskState, start
from treadle.core.tools import Happened, NotHappened
from treadle.errors import (
    AgentUnknown,
    ConfigurationError,
    ForkPointBusy,
    StepFailed,
    StepNotFound,
    TaskBusy,
    TaskConflict,
    TaskFinished,
    TaskParked,
    TaskUnfinished,
    UndoUnfinished,
    VersionRefused,
)
from treadle.policy.limits import Limits
from treadle.ports import (
    Commit,
    Committed,
    InboxItem,
    JournalStore,
    Model,
    NewTask,
    Record,
    TaskExists,
    TaskFilter,
    TaskRow,
    ThreadChange,
)
from treadle.runner import results
from treadle.runner.desk import Desk, Loaded, Owned
from treadle.runner.loop import Drive, Goal, Terms
from treadle.runner.options import RunOptions, from_json, setup_for, to_json
from treadle.runner.perform import Stage
from treadle.runner.results import Difference, RunResult, Task, TaskPage, TaskStepOutput, UndoReport
from treadle.runner.verbs import verb
from treadle.runner.writer import Ownership

__all__ = ["TaskRunner"]
