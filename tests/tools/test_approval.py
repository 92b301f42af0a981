"""`needs_approval=` and `preview=` of a tool: which arguments they take, and which code an approval is for."""

from functools import partial
from typing import Any

import pytest

from treadle import ToolContext, tool
from treadle.errors import ToolDefinitionError
from treadle.tools.approval import code_digest


def pay(to: str, amount: int = 1) -> str:
    """Pay."""
    return to


def context() -> ToolContext[Any]:
    return ToolContext("t", "talk", "s1", "s1-0", "key", "desk", 1, None)


@pytest.mark.anyio
async def test_the_functions_take_the_arguments_that_they_name_with_defaults_and_the_context() -> None:
    async def preview(ctx: ToolContext[Any], amount: int) -> str:
        return f"{amount} in {ctx.task_id}"

    made = tool(pay, needs_approval=lambda amount: amount > 5, preview=preview)
    assert made.spec.needs_approval
    assert made.spec.previews
    assert await made.needs_approval({"to": "ann", "amount": 9}, context())
    assert not await made.needs_approval({"to": "ann"}, context())
    assert await made.preview({"to": "ann"}, context()) == "1 in t"
    everything = tool(pay, preview=lambda **arguments: arguments)
    assert await everything.preview({"to": "ann"}, context()) == {"to": "ann", "amount": 1}


def test_a_tool_that_says_nothing_of_approvals_needs_none() -> None:
    assert not tool(pay).spec.needs_approval
    assert not tool(pay, needs_approval=False).spec.needs_approval


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"needs_approval": "yes"}, "needs_approval: must be True, False or a function, not 'yes'"),
        ({"needs_approval": lambda total: True}, "takes 'total', which is not an argument of the tool"),
        ({"preview": lambda *values: ""}, "takes 'values' by position"),
        ({"preview": True}, "preview: must be a function"),
    ],
)
def test_a_function_that_cannot_be_called_is_refused_at_the_definition(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ToolDefinitionError, match=message):
        tool(pay, **options)


class Payer:
    def __init__(self, currency: str) -> None:
        self.currency = currency

    def __call__(self, to: str) -> str:
        return f"{to} {self.currency}"

    def pay(self, to: str) -> str:
        return to if to in {"ann", "bob"} else self.currency


def test_the_digest_of_code_is_that_of_what_runs() -> None:
    source = "def f(x):\n    return x in {'a', 'b', 'c'} and (lambda: x + %d)()\n"
    spaces: list[dict[str, Any]] = [{}, {}, {}]
    for space, number, head in zip(spaces, (1, 1, 2), ("", "\n\n", ""), strict=True):
        exec(head + source % number, space)
    digests = [code_digest(space["f"]) for space in spaces]
    assert digests[0] == digests[1] != digests[2]
    assert code_digest(partial(pay, "ann")) == code_digest(pay)
    assert code_digest(Payer("EUR").pay) == code_digest(Payer("USD").pay) == code_digest(Payer.pay)
    assert code_digest(Payer("EUR")) == code_digest(Payer.__call__)
    assert code_digest(len) == ""
