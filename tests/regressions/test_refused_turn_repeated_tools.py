"""A provider's 400 on a later turn repeated the whole run, and a tool ran twice."""

from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, FailurePolicy, Runner, RunOptions, tool
from treadle.errors import StepFailed
from treadle.testing.provider import ProviderServer, call, fail, text

pytestmark = pytest.mark.anyio


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The second request is refused with 400 until it is mended."""
    state = {"mended": False}

    def answer(request: Any) -> Any:
        if not any(message["role"] == "tool" for message in request.body["messages"]):
            return call("shell", command="make deploy")
        return text("deployed") if state["mended"] else fail(400, "messages: invalid")

    with ProviderServer(answer) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "key")
        yield server, state


def agent_with(ran: list[str]) -> Agent[Any]:
    @tool
    async def shell(command: str) -> str:
        ran.append(command)
        return "done"

    return Agent("openai:scripted", name="deployer", tools=[shell])


@pytest.mark.parametrize(
    ("policy", "state"), [("fail", "failed"), ("pause", "paused"), ("degrade", "degraded")]
)
async def test_calls_before_a_refused_turn_do_not_run_again_under_any_policy(
    provider: Any, tmp_path: Path, policy: Any, state: str
) -> None:
    (server, provides), ran = provider, list[str]()
    options = RunOptions(on_failure=FailurePolicy(model=policy))
    async with Runner(tmp_path / "journal.db") as runner:
        result = await runner.run(agent_with(ran), "deploy", task_id="t", options=options)
    assert (result.state, ran) == (state, ["make deploy"])
    assert len(server.requests) == 2
    provides["mended"] = True
    async with Runner(tmp_path / "journal.db", agents=[agent_with(ran)]) as runner:
        if policy == "degrade":  # the failure was tolerated, and no second attempt follows
            assert (await runner.resume("t")).state == "degraded"
            assert len(server.requests) == 2
        result = await runner.resume("t", options=options if policy == "degrade" else None)
        assert ran == ["make deploy"]
        assert (result.state, result.final_text, len(server.requests)) == ("completed", "deployed", 3)
        assert not (await runner.verify("t")).findings
    assert server.problems == []


async def test_a_stepper_that_goes_on_after_a_refused_turn_repeats_the_turn_and_no_call(
    provider: Any, tmp_path: Path
) -> None:
    (server, provides), ran = provider, list[str]()
    async with Runner(tmp_path / "journal.db") as runner:
        task = await runner.create_task(agent_with(ran), "deploy")
        await runner.run_step(task)
        for _ in range(2):
            with pytest.raises(StepFailed):
                await runner.run_step(task)
        provides["mended"] = True
        assert (await runner.run_step(task)).is_last
        assert (await runner.finalize(task)).final_text == "deployed"
    assert ran == ["make deploy"]
    assert len(server.requests) == 4
