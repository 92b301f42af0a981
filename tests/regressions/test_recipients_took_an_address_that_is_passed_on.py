"""The operator `recipients` took `eve%evil.com@example.com` and `*@example.com` for addresses at example.com."""

from typing import Any

import pytest

from treadle import Agent, Policy, Rule, Runner, ScriptedModel, tool
from treadle.models import call, text

pytestmark = pytest.mark.anyio

INSIDE: Any = {"arguments.to": {"recipients": "*@example.com"}}
OUTSIDE: Any = {"arguments.to": {"not_recipients": "*@example.com"}}
ALLOWED = Policy(Rule("inside", "allow", tool="mail", when=INSIDE), default="deny")
DENIED = Policy(Rule("outside", "deny", tool="mail", when=OUTSIDE, reason="Outside."))


@pytest.mark.parametrize("policy", [ALLOWED, DENIED], ids=["allowed", "denied"])
@pytest.mark.parametrize(
    ("to", "is_sent"),
    [
        ("ann@example.com", True),
        ("eve%evil.com@example.com", False),
        ("evil.com!eve@example.com", False),
        ("*@example.com", False),
    ],
)
async def test_only_an_address_of_the_host_is_sent_to(policy: Policy, to: str, is_sent: bool) -> None:
    sent: list[str] = []

    @tool
    def mail(to: str) -> None:
        """Send a mail."""
        sent.append(to)

    model = ScriptedModel([call("mail", to=to), text("Done.")])
    async with Runner("memory:", policy=policy) as runner:
        await runner.run(Agent(model, tools=[mail]), "Write")
    assert sent == [to] * is_sent
