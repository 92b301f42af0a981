"""The reference of the runner: the page of each verb, and the parts of these pages that are made from the code.

A page per group of verbs, because one page of all of them is too long to read. `reference/runner.md` lists them all,
and keeps an anchor for every name that was once described there.
"""

import inspect
import re
from pathlib import Path

from treadle import Breakpoint, CallerTool, Client, FailurePolicy, Limits, RunHandle, Runner, RunOptions
from treadle.runner.approvals import ApprovalVerbs
from treadle.runner.background import BackgroundVerbs
from treadle.runner.control import ControlVerbs
from treadle.runner.create_and_step import StepVerbs
from treadle.runner.forking import ForkVerbs
from treadle.runner.history import HistoryVerbs
from treadle.runner.maintenance import MaintenanceVerbs
from treadle.runner.run_and_resume import RunVerbs
from treadle.runner.stream import EventStream, StepStream, TaskStream
from treadle.runner.threads import ThreadVerbs
from treadle.runner.undo_fork import UndoForkVerbs
from treadle.runner.views import ViewVerbs

PAGES = Path(__file__).parents[2] / "docs" / "reference" / "runner"
GROUPS: dict[str, tuple[type, ...]] = {
    "run": (RunVerbs,),
    "steps": (StepVerbs,),
    "control": (ControlVerbs,),
    "approvals": (ApprovalVerbs, BackgroundVerbs),
    "undo-and-fork": (UndoForkVerbs, ForkVerbs),
    "history": (ViewVerbs, HistoryVerbs),
    "threads": (ThreadVerbs,),
    "maintenance": (MaintenanceVerbs,),
}
"""The classes that hold the verbs of each page."""
BESIDE_RUN = ("start", "handle")
"""Verbs of the runner itself that a reader looks for beside `run`."""
OTHER_CLASSES: dict[str, tuple[type, ...]] = {
    "client": (Client,),
    "handle": (RunHandle,),
    "streams": (EventStream, TaskStream, StepStream),
    "options": (RunOptions, Limits, FailurePolicy, Breakpoint, CallerTool),
}
"""The other classes that `reference/runner.md` once described, by their page."""


SCOPE = "scope"
"""The attribute of a runner that its class does not hold."""


def public(cls: type) -> list[str]:
    """Return the public members of a class, with those that it inherits."""
    return [name for name in dir(cls) if not name.startswith("_")]


def verbs(page: str) -> list[str]:
    """Return the verbs of a page, in the order of the source."""
    members = [(name, value) for cls in GROUPS[page] for name, value in vars(cls).items()]
    names = [name for name, value in members if not name.startswith("_") and callable(value)]
    return [*names, *BESIDE_RUN] if page == "run" else names


def about_itself() -> list[str]:
    """Return the members of the runner that are about the runner itself, and so on no page of a group."""
    grouped = {name for page in GROUPS for name in verbs(page)}
    return [SCOPE, *(name for name in public(Runner) if name not in grouped)]


def entries(page: str) -> str:
    """Return what makes the entries of a page: one line for each of its verbs."""
    return "\n" + "\n\n".join(f"::: treadle.Runner.{name}" for name in verbs(page)) + "\n"


def overview() -> str:
    """Return the tables of all verbs and of the classes beside the runner, and the entry of the runner itself."""
    parts: list[str] = []
    for page in GROUPS:
        parts += [f"## {title(page)}\n", "| verb | does |", "|---|---|"]
        parts += [row(page, name, inspect.getattr_static(Runner, name)) for name in verbs(page)]
        parts.append("")
    parts += ["## Beside the runner\n", "| class | is |", "|---|---|"]
    parts += [row(page, cls.__name__, cls) for page, classes in OTHER_CLASSES.items() for cls in classes]
    parts += ["\n## The runner itself\n", "::: treadle.Runner", "    options:", "      heading_level: 3"]
    parts += ["      members:", *(f"        - {name}" for name in about_itself()), ""]
    return "\n".join(parts)


def row(page: str, name: str, described: object) -> str:
    summary = re.sub(r"\s+", " ", (inspect.getdoc(described) or "").split("\n\n")[0]).replace("|", "\\|")
    return f"| [`{name}`](runner/{page}.md) | {summary} |"


def title(page: str) -> str:
    """Return the heading of a page of the runner's reference."""
    return (PAGES / f"{page}.md").read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def with_old_addresses(overview: str) -> str:
    """Return the overview with an anchor for each name that was once described on it, and links to the entries."""

    def link(match: re.Match[str]) -> str:
        name, page = match.groups()
        if page in GROUPS:
            names = [f"treadle.{cls.__name__}.{name}" for cls in (Client, Runner)]
        else:
            (cls,) = (cls for cls in OTHER_CLASSES[page] if cls.__name__ == name)
            home = cls.__module__ if page == "streams" else "treadle"
            inherited = {verb for group in GROUPS for verb in verbs(group)} if cls is Client else set[str]()
            members = [member for member in public(cls) if member not in inherited]
            names = [*(f"{home}.{name}.{member}" for member in members), f"{home}.{name}"]
        anchors = "".join(f'<a id="{each}"></a>' for each in names)
        return f"{anchors}[`{name}`](runner/{page}.md#{names[-1]})"

    return re.sub(r"\[`(\w+)`\]\(runner/([\w-]+)\.md\)", link, overview)
