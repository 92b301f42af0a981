"""A text was cut before its secrets were hidden: half of a secret beside the cut was not recognised, and stayed."""

import io
import logging
from typing import Annotated, Any

import pytest
from pydantic import BeforeValidator

from tests.runner.acts import journal
from treadle import Agent, Policy, Rule, Runner, ScriptedModel, Subagent, ToolContext, tool
from treadle.core.events import ToolEnded
from treadle.core.redaction import Secrets
from treadle.engine.vault import Vault
from treadle.llm.errors import about_page, shortened
from treadle.llm.scripted import call
from treadle.server.guard import AuthFaults
from treadle.telemetry import Console
from treadle.telemetry.redaction import LONGEST, Redaction

SEARCHED = 16_000
PHRASE = "correct-horse-battery-staple-of-the-old-marquis"
HALVES = (PHRASE[:13], PHRASE[-13:])
LONG = "-".join(["marquis", *["horse-battery"] * 40, "staple"])
"""A secret of which many fill a text, and take little room once they are hidden."""


def many(secret: str, characters: int) -> str:
    return " ".join([secret] * (characters // len(secret) + 1))


def test_an_error_that_repeats_a_secret_showed_half_of_it():
    vault = Vault()
    vault.learn(declared=(LONG,))
    told = vault.error_text(ValueError(many(LONG, SEARCHED + 6_000) + "x" * 20_000))
    assert "battery" not in told


def test_a_long_error_with_a_coded_secret_is_not_shown():
    secrets = Secrets([LONG])
    assert secrets.hide_and_cut(f"{LONG[::-1]} {'x' * SEARCHED}", 2_000) == "[secret]"
    assert secrets.hide_and_cut("x" * SEARCHED * 2, 10).startswith("xxxxx")


def test_an_error_of_auth_that_repeats_a_secret_showed_half_of_it(caplog: pytest.LogCaptureFixture):
    secrets = Secrets([LONG])
    faults = AuthFaults(lambda text: secrets.hide(text, deep=True))
    with caplog.at_level(logging.ERROR):
        faults.note(ValueError(many(LONG, 9_000)), "/x")
        try:
            raise KeyError(many(LONG, 9_000))
        except KeyError as error:
            faults.note(error, "/x")
    assert len(caplog.records) == 2
    assert "battery" not in caplog.text


def test_telemetry_that_cuts_a_content_showed_half_of_a_secret():
    text = Redaction([LONG]).text(many(LONG, LONGEST + 1_000) + "x" * 30)
    assert "battery" not in text
    assert text.endswith(" more)")


@pytest.mark.anyio
async def test_the_console_showed_half_of_a_secret_after_blanks():
    out = io.StringIO()
    observer = Console(file=out, content=True, secrets=[PHRASE])
    async with Runner("memory:", observers=[observer]) as runner:
        await runner.run(Agent(ScriptedModel([" " * 780 + PHRASE])), "Go")
    assert HALVES[0] not in out.getvalue()


def test_a_message_of_a_provider_showed_half_of_a_secret():
    key = "-".join(["marquis", *["horse-battery"] * 180])
    assert "battery" not in shortened(f"{'x' * 200} {key} {key}", Secrets([key]))


def test_the_title_of_a_long_page_showed_half_of_a_secret():
    assert HALVES[0] not in about_page(f"<html><title>{'x ' * 40}{PHRASE}</title></html>", 403)
    assert "'Forbidden'" in about_page("<html><title>Forbidden</title></html>", 403)


def refused(value: str) -> str:
    raise RuntimeError("x " * 60 + PHRASE + " y" * 400)


def of_context(context: dict[str, bool]) -> Any:
    if context:  # the secret is known by now
        raise RuntimeError("x " * 2_000 + PHRASE + " y" * 490)


@tool(read_only=True)
def look(name: Annotated[str, BeforeValidator(refused)]) -> str:
    """Look."""
    return name


def refused_by_value(value: str) -> str:
    raise ValueError("x " * 90 + PHRASE + " y" * 40)


@tool(read_only=True)
def find(name: Annotated[str, BeforeValidator(refused_by_value)]) -> str:
    """Find."""
    return name


@tool(read_only=True)
def made() -> Any:
    """Return what no JSON can hold."""
    return Odd()


class Odd(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError("x " * 60 + PHRASE + " y" * 400)


@tool(read_only=True, secrets=("crm",))
def ask_crm(ctx: ToolContext[Any]) -> str:
    """Ask the CRM."""
    ctx.secret("crm")
    ctx.context["asked"] = True
    return "asked"


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["look", "find", "made", "helper"])
async def test_an_error_that_was_wrapped_in_another_showed_half_of_a_secret(name: str):
    helper = Agent(ScriptedModel(["Done."]), name="helper", description="Help.")
    calls = [
        call("ask_crm"),
        call(
            name,
            **({"name": "x"} if name in ("look", "find") else {"input": "x"} if name == "helper" else {}),
        ),
        "Done.",
    ]
    agent = Agent(
        ScriptedModel(calls),
        tools=[ask_crm, look, find, made],
        subagents=[Subagent(helper, context=of_context)],
        policy=Policy(Rule("all", "allow")),
    )
    async with Runner("memory:", secrets={"crm": lambda: PHRASE}) as runner:
        result = await runner.run(agent, "Go", context={})
        events = await journal(runner, result.task_id)
    assert result.tool_executions[0].outcome == "ok"
    errors = [event.error for event in events if isinstance(event, ToolEnded) and event.error is not None]
    assert "x x x" in errors[0].message
    texts = [text for error in errors for text in (error.message, error.traceback)]
    assert not any(half in text for half in HALVES for text in texts)
