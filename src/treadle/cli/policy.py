"""`policy`: show a policy file, and test it on recorded tasks."""

from __future__ import annotations

import json as json_format
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from treadle.agents.agent import Agent
from treadle.cli import agents
from treadle.cli.command import ByOption, Session, command, option
from treadle.cli.filters import TaskOptions, find_row
from treadle.cli.screen import Screen, short, short_ids, some
from treadle.core.display import clean
from treadle.errors import ConfigurationError
from treadle.policy.fitting import misfits
from treadle.policy.policy import Policy
from treadle.ports import TaskRow
from treadle.replay import record
from treadle.results.displays import moment
from treadle.runner.runner import TaskRunner
from treadle.testing.policies import JudgedEffect, judged

policy = typer.Typer(
    no_args_is_help=True, help="Policies: show one, test one on recorded tasks.", add_completion=False
)

FileArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="[FILE]",
        help="A policy as a TOML file. Default: `policy` of tool.treadle in pyproject.toml, else TREADLE_POLICY.",
    ),
]

_STYLES: Final = {"deny": "red", "ask": "yellow", "replace": "blue", "allow": "green"}
_SAYS: Final = {
    "deny": "denied",
    "ask": "asked about",
    "replace": "changed",
    "allow": "allowed",
    "none": "not concerned",
}
_ARGUMENTS: Final = 200
"""Maximum number of characters of a call's arguments in a line; `--json` prints all of them."""


@policy.command()
@command
def show(session: Session, file: FileArgument = None) -> int:
    """Show the rules of a policy, the strongest first, or all mistakes in its file."""
    file = _file(file)
    loaded = Policy.from_file(file)
    rules = [
        {
            "id": rule.id,
            "verdict": rule.force,
            "concerns": str(rule),
            "reason": rule.reason,
            "enabled": rule.enabled,
        }
        for rule in loaded.rules
    ]
    session.screen.document({"policy": str(file), "default": loaded.default, "rules": rules})
    for line in str(loaded).splitlines():
        session.screen.line(clean(line))
    return 0


@policy.command("test")
@command
async def judge_past(
    session: Session,
    file: FileArgument = None,
    *,
    task: Annotated[
        list[str] | None, option("TASK", "A task of the store; may be repeated. Default: the newest tasks.")
    ] = None,
    agent: Annotated[
        list[str] | None,
        option("AGENT", "An agent, as MODULE:AGENT or by its name in the project; may be repeated."),
    ] = None,
    limit: Annotated[
        int, option("N", "Maximum number of tasks to test the policy on.", min=1, max=10_000)
    ] = 100,
    every: Annotated[
        bool, typer.Option("--all", help="Also list the effects that would have been allowed.")
    ] = False,
    options: TaskOptions,
) -> int:
    """Show which calls of recorded tasks a policy would have asked about, denied or changed. Nothing runs."""
    file = _file(file)
    tested = Policy.from_file(file)
    chosen_agents = _agents(agent or [])
    effects, unknown = list[JudgedEffect](), set[str]()
    async with session.runner() as runner:
        rows = await _rows(runner, task or [], options, limit)
        for row in rows:
            recording = await record(runner, row.task_id)
            effects += await judged(tested, recording, chosen_agents.get(row.agent), labels=row.labels)
            if row.agent not in chosen_agents:
                unknown.add(row.agent)
    _print_report(session.screen, file, tested, effects, len(rows), every)
    tools, handoffs = agents.declared_tools(chosen_agents.values())
    for misfit in misfits(tested, tools, handoffs) if tools or handoffs else ():
        session.screen.note(("note: ", "yellow"), misfit)
    for name in sorted(unknown):
        session.screen.note(
            ("note: ", "yellow"),
            f"the declarations of the tools of {name} are not known, only the journal: --agent names its code",
        )
    return 0


@policy.command()
@command
async def grants(
    session: Session,
    thread: Annotated[str | None, typer.Option("--thread", help="Only those for this thread.")] = None,
    revoked: Annotated[bool, typer.Option("--all", help="Include revoked ones.")] = False,
) -> int:
    """List the approvals for later calls, in a thread or in all tasks."""
    async with session.runner() as runner:
        items = await runner.list_grants(thread_id=thread, revoked=revoked)
    screen = session.screen
    screen.document({"items": items, "cursor": None})
    rows = [
        (
            grant.grant_id,
            grant.tool,
            grant.rule,
            "always" if grant.thread_id is None else f"thread {grant.thread_id}",
            moment(grant.created),
            grant.by or "",
            "" if grant.revoked is None else f"revoked {moment(grant.revoked)}",
        )
        for grant in items
    ]
    if rows:
        screen.table(("id", "tool", "rule", "holds", "given", "by", ""), rows)
    else:
        screen.note("there are no approvals for later calls")
    return 0


@policy.command()
@command
async def revoke(
    session: Session,
    grant: Annotated[str, typer.Argument(metavar="GRANT", help="Its id, from `treadle policy grants`.")],
    by: ByOption = None,
) -> int:
    """Revoke an approval for later calls, which then ask a person again."""
    async with session.runner() as runner:
        await runner.revoke(grant, by=by)
        (revoked,) = [item for item in await runner.list_grants(revoked=True) if item.grant_id == grant]
    session.screen.document(revoked)
    session.screen.line(f"{grant} is revoked: calls of {revoked.tool} are asked about again")
    return 0


async def _rows(runner: TaskRunner, names: list[str], options: TaskOptions, limit: int) -> list[TaskRow]:
    """Return the named tasks; without names, the newest ones that match the options."""
    if names:
        options.refuse_beside(names[0])
        return [await find_row(runner, name) for name in names]
    filters: dict[str, Any] = await options.filters(runner)
    page = await runner.list_tasks(**filters, limit=min(limit, 1_000))
    ids = [summary.task_id for summary in page.items]
    while page.cursor is not None and len(ids) < limit:
        page = await runner.list_tasks(**filters, limit=min(limit - len(ids), 1_000), cursor=page.cursor)
        ids += [summary.task_id for summary in page.items]
    return [await runner.store.row(task_id) for task_id in ids]


def _file(file: Path | None) -> Path:
    """Return the policy's path: the argument, or else the project's."""
    path = agents.policy_file(str(file) if file is not None else None)
    if path is None:
        raise ConfigurationError(
            "there is no policy to show: name its file, set policy under [tool.treadle] in pyproject.toml, "
            "or set TREADLE_POLICY"
        )
    return path


def _agents(paths: list[str]) -> dict[str, Agent[Any]]:
    named = [agent for path in paths for agent in agents.at_or_named(path)]
    return agents.listed_agents().agents | {agent.name: agent for agent in named}


def _print_report(
    screen: Screen, file: Path, tested: Policy, effects: list[JudgedEffect], tasks: int, every: bool
) -> None:
    counts = Counter(effect.verdict for effect in effects)
    applied = {rule for effect in effects for rule in effect.rules}
    unused = [rule.id for rule in tested.rules if rule.id not in applied]
    listed = [effect for effect in effects if every or effect.verdict in ("deny", "ask", "replace")]
    screen.document(
        {
            "policy": str(file),
            "tasks": tasks,
            "effects": len(effects),
            "counts": {word: counts[word] for word in _SAYS},
            "unused_rules": unused,
            "items": [_as_item(effect) for effect in listed],
        }
    )
    ids = short_ids([effect.task_id for effect in listed]) if screen.out.is_terminal else {}
    for effect in listed:
        arguments = short(json_format.dumps(effect.arguments, ensure_ascii=False), _ARGUMENTS)
        head = f"{ids.get(effect.task_id, effect.task_id)}  {effect.call or effect.step}  {effect.name} "
        screen.line(
            (f"{effect.verdict:<9}", _STYLES.get(effect.verdict, "")), head, (clean(arguments), "dim")
        )
        screen.line((f"         {clean(effect.text)}", "dim"))
        if effect.replaced is not None:
            changed = short(json_format.dumps(effect.replaced, ensure_ascii=False), _ARGUMENTS)
            screen.line((f"         becomes {clean(changed)}", "dim"))
    summary = (
        ", ".join([f"{counts[word]} {says}" for word, says in _SAYS.items() if counts[word]]) or "no effect"
    )
    screen.line(f"{some(tasks, 'task')}, {some(len(effects), 'effect')}: {summary}")
    if unused:
        screen.line(("rules that met nothing: ", "dim"), ", ".join(unused))


def _as_item(effect: JudgedEffect) -> dict[str, Any]:
    return {
        "task_id": effect.task_id,
        "step": effect.step,
        "call": effect.call or None,
        "kind": effect.kind,
        "name": effect.name,
        "arguments": effect.arguments,
        "verdict": effect.verdict,
        "rule": effect.rule or None,
        "rules": list(effect.rules),
        "text": effect.text,
        "replaced": effect.replaced,
    }
