"""A task whose tools and steps ask is killed at every boundary: what a tool did before a question is done once."""

from collections import Counter
from pathlib import Path

import pytest

from treadle.testing.boundaries import CrashReport, crash_at_every_boundary

AGENT = """
from pathlib import Path
from treadle import Agent, ScriptedModel, StepResult, tool, ToolContext
from treadle.models import call

SERVICE = Path("effects")  # outside: it refuses a second effect under one key, as a payment service does

def effect(ctx, name):
    entry = f"{ctx.task_id} {ctx.idempotency_key}:{name}"
    with SERVICE.open("a") as file:
        file.write(f"{entry}\\n")
    return name

@tool(idempotent=True)
async def reserve(city: str, ctx: ToolContext) -> str:
    held = await ctx.once("hold", lambda: effect(ctx, f"hold {city}"))
    answer = await ctx.ask(f"{held}: go on?")
    confirmed = await ctx.once("confirm", lambda: effect(ctx, f"confirm {city} {answer}"))
    return f"{confirmed} {await ctx.ask('Sure?', bool, default=True)}"

@tool(read_only=True)
def inquire(ctx: ToolContext) -> str:
    return ctx.wait(ctx.ask("What?"))

script = [[call("reserve", city="Rome"), call("reserve", city="Oslo"), call("inquire")], "Done."]
agent = Agent(ScriptedModel(script), name="asking", tools=[reserve, inquire])

async def work(ctx):
    first = await ctx.ask("First?")
    drawn = await ctx.once("drawn", lambda: 7)
    second = await ctx.ask("Second?", int, default=3)
    return StepResult(f"{first} {drawn} {second}", is_last=True)

steps = Agent(ScriptedModel([]), name="steps", worker=work)
"""


def killed(folder: Path, agent: str, *points: str, kills: int = 4) -> CrashReport:
    (folder / "questions_crashes.py").write_text(AGENT)
    return crash_at_every_boundary(
        f"questions_crashes:{agent}",
        "Go.",
        cwd=folder,
        kills_per_task=kills,
        recovery=not points,
        only=lambda point: not points or point.startswith(points),
    )


def effects(folder: Path) -> Counter[str]:
    """Return how often the service was asked for each effect: the same key is the same effect."""
    return Counter((folder / "effects").read_text().splitlines())


def test_an_answer_survives_a_crash_and_its_call_goes_on_from_there(tmp_path: Path) -> None:
    points = ("before question_asked", "after question_asked", "before question_answered")
    report = killed(tmp_path, "agent", *points, "after question_answered", "after value_kept")
    assert (report.broken, report.missed) == ([], [])
    assert report.places
    assert set(effects(tmp_path).values()) == {1}


@pytest.mark.full
@pytest.mark.parametrize("agent", ["agent", "steps"])
def test_a_task_that_asks_survives_a_crash_at_every_boundary(tmp_path: Path, agent: str) -> None:
    report = killed(tmp_path, agent)
    print(report.head)
    assert (report.broken, report.missed) == ([], [])
    if agent == "agent":
        _check_effects(effects(tmp_path), report)


@pytest.mark.full
def test_an_effect_is_asked_for_again_only_if_its_process_died_before_its_value_was_durable(
    tmp_path: Path,
) -> None:
    report = killed(tmp_path, "agent", kills=1)
    print(report.head)
    assert (report.broken, report.missed) == ([], [])
    _check_effects(effects(tmp_path), report, one_kill=True)


def _check_effects(asked: Counter[str], report: CrashReport, *, one_kill: bool = False) -> None:
    names = Counter(entry.partition(" ")[0] for entry in asked)
    assert len(names) == report.tasks
    assert set(names.values()) == {4}, (
        "each task has two effects for each of its two calls, each under one key"
    )
    if one_kill:
        repeated = sum(times > 1 for times in asked.values())
        windows = [
            place for place in report.places if place.startswith(("before value_kept", "inside value_kept"))
        ]
        print(
            f"{len(asked)} effects, {repeated} of them asked for twice, {len(windows)} places before a value is kept"
        )
        assert max(asked.values()) <= 2
        assert repeated <= 2 * len(windows), "a write may hold the values of both calls"
