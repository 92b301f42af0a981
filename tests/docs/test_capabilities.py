"""The comparisons with other libraries say what the code says."""

import re
from pathlib import Path

import pytest

from tests.docs.capabilities import capabilities, found_after_all, made_parts, stale_rows, with_made_parts
from tests.docs.claims import problems_of
from tests.docs.tables import DOCS


def test_every_row_names_what_is_there_or_what_is_missing():
    assert sum(len(table.rows) for table in capabilities()[1].values()) > 250
    assert list(stale_rows()) == []


def test_what_is_said_to_be_missing_is_not_there():
    assert all(each.lacks for each in capabilities()[0].values())
    assert list(found_after_all()) == []


@pytest.mark.parametrize("page", made_parts())
def test_comparisons_are_not_stale(page: str):
    text = (DOCS / page).read_text(encoding="utf-8")
    assert text == with_made_parts(text, made_parts()[page]), "run `python -m tests.docs.tables`"


@pytest.mark.parametrize("page", sorted((DOCS / "coming-from").glob("*.md")), ids=lambda page: page.stem)
def test_the_other_tables_of_a_comparison_name_what_is_there(page: Path):
    rows = re.findall(r"^\|.*\| ([^|]+) \|$", page.read_text(encoding="utf-8"), re.MULTILINE)
    problems = [
        problem for cell in rows for code in re.findall(r"`([^`]+)`", cell) for problem in problems_of(code)
    ]
    assert problems == []


@pytest.mark.parametrize("page", ["../README.md", "../CHANGELOG.md"])
def test_what_a_page_says_is_not_there_yet_is_in_the_list_of_what_is_missing(page: str):
    (said,) = re.findall(r"Not there yet:\W*([^.]+)\.", (DOCS / page).read_text(encoding="utf-8"))
    names = ", ".join(each.name for each in capabilities()[0].values())
    assert [name for name in said.split(", ") if name not in names] == []


@pytest.mark.parametrize(
    "claim",
    [
        "Limits(cost=)",
        "Limits(steps=, tokens=)",
        "await runner.run(agent, text, thread_id=)",
        "async with runner.run_stream(agent, text) as stream",
        "runner.sync.run_step(task)",
        "(await get_completed_steps(task))[-1]",
        "handle = await runner.start(agent, ...)",
        "@tool(read_only=True)",
        "Agent(offer=ToolIndex(top=8))",
        'RunOptions(on_limit="pause")',
        '"openai:..."',
        '"postgresql://..."',
        "thread_id=",
        ".final_text",
        "treadle tasks --limit",
        "--trace console",
        "treadle.telemetry",
        "pip install '/path/to/treadle[openai,otel]'",
        "completed",
    ],
)
def test_a_claim_about_what_is_there_holds(claim: str):
    assert problems_of(claim) == []


@pytest.mark.parametrize(
    ("claim", "problem"),
    [
        ("Limits(dollars=)", "Limits takes no dollars="),
        ("runner.chat(text)", "there is no runner.chat"),
        ("runner.run(agent, deps=)", "runner.run takes no deps="),
        ("RunResult.final_output", "there is no RunResult.final_output"),
        ("Agent(offer=ToolIndex(best=8))", "ToolIndex takes no best="),
        ("worker=Pipe([...])", "there is no Pipe"),
        (
            'RunOptions(on_limit="explode")',
            "on_limit= takes ['fail', 'final_answer', 'pause'], not 'explode'",
        ),
        ('"nonsense:..."', "no provider is called nonsense"),
        ("deps=", "nothing public has a parameter deps"),
        (".final_output", "no public class has .final_output"),
        ("treadle optimise", "there is no command treadle optimise"),
        ("treadle tasks --colour", "treadle tasks --colour: no --colour"),
        ("--colour", "no command has --colour"),
        ("treadle.inspector", "treadle.inspector cannot be imported"),
        ("pip install '/path/to/treadle[a2a]'", "no extra is called a2a"),
        ("telepathy", "telepathy is no public name, parameter or field"),
        ("for code", "'for code' is neither an expression, nor a command"),
    ],
)
def test_a_claim_about_what_is_not_there_is_named(claim: str, problem: str):
    assert problems_of(claim) == [problem]
