"""Crashing an agent at every boundary: the fixture accepts a correct engine and finds the defect of a broken one."""

from collections.abc import Callable
from pathlib import Path

import pytest

from treadle import Agent, Runner, ScriptedModel
from treadle.errors import ConfigurationError, StoreUnavailable
from treadle.stores.memory import MemoryStore
from treadle.testing import boundaries
from treadle.testing.boundaries import CrashReport
from treadle.testing.crash import Crash, CrashingStore, child
from treadle.testing.wrappers import WrappedStore

pytest_plugins = ["treadle.testing.plugin"]

SHOP = """
from treadle import Agent, ScriptedModel, tool
from treadle.models import call, text

@tool(read_only=True)
async def price(item: str) -> int:
    return 250

@tool
def pay(cents: int) -> str:
    return f"paid {cents}"

agent = Agent(ScriptedModel([call("price", item="tea") + call("pay", cents=250), text("Paid.")]), name="shop",
              tools=[price, pay])
"""
FORGETFUL = """
import treadle.drivers.ownership
treadle.drivers.ownership.recover = lambda owned: None
"""


@pytest.fixture
def shop(tmp_path: Path) -> Callable[[str], Path]:
    def write(more: str) -> Path:
        (tmp_path / "shop_to_crash.py").write_text(more + SHOP)
        return tmp_path

    return write


def test_an_agent_survives_a_kill_at_each_boundary(
    shop: Callable[[str], Path],
    crash_at_every_boundary: Callable[..., CrashReport],
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = crash_at_every_boundary(
        "shop_to_crash:agent", "Tea?", cwd=shop(""), kills_per_task=10, recovery=False
    )
    assert report.answer == ("completed", "Paid.")
    assert not report.missed
    assert sum(report.hits.values()) >= len(report.places) > 50
    assert {"ask s1", "answered s1", "enter pay s1-1", "done pay s1-1", "inside task_ended"} <= {
        *report.places
    }
    assert "kills at" in capsys.readouterr().out


def test_a_broken_engine_is_found(shop: Callable[[str], Path]) -> None:
    report = boundaries.crash_at_every_boundary(
        "shop_to_crash:agent", "Tea?", cwd=shop(FORGETFUL), recovery=False, only=lambda point: "pay" in point
    )
    assert any("tool_started of call s1-1, which is begun" in line for line in report.broken), report


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("agent", "message"),
    [
        ("nomod:agent", r"in {cwd}: nomod cannot be imported: ModuleNotFoundError: No module named 'nomod'"),
        ("shop_to_crash:clerk", "shop_to_crash:clerk is not there: .* has no attribute 'clerk'"),
        ("shop_to_crash", "'shop_to_crash' names no object of a module: write module:name"),
    ],
)
def test_an_agent_that_is_not_there_is_named(shop: Callable[[str], Path], agent: str, message: str) -> None:
    folder = shop("")
    with pytest.raises(ConfigurationError, match=message.format(cwd=folder)):
        boundaries.crash_at_every_boundary(agent, "Tea?", cwd=folder)


def test_an_object_that_is_no_agent_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        child.drive(str(tmp_path), "t", [], "treadle.models:text", "Tea?", "memory:", "") == child.NOT_FOUND
    )
    assert "treadle.models:text is no Agent, but <function text" in capsys.readouterr().err


@pytest.mark.anyio
async def test_a_fault_point_may_raise_instead_of_killing() -> None:
    store = CrashingStore(MemoryStore(), Crash("before task_ended", do="raise"))
    async with Runner(store) as runner:
        with pytest.raises(StoreUnavailable, match="before task_ended"):
            await runner.run(Agent(ScriptedModel(["done"])), "go", task_id="t")
        store._crash.at = frozenset()
        assert (await runner.run(Agent(ScriptedModel(["done"])), "go", task_id="t")).final_text == "done"


def test_a_wrapped_store_passes_other_calls_to_the_store_inside() -> None:
    class Mine(WrappedStore):
        pass

    inside = MemoryStore()
    assert Mine(inside).url == "memory:"
    assert Mine(inside).commit == inside.commit
