"""A runner drives the tasks of several tenants: each with a driver of its own, all with the same agents."""

import asyncio
import gc
import weakref
from pathlib import Path
from typing import Any

import pytest

from tests.cast import calculator, sayer
from tests.runner.acts import until
from treadle import Agent, Runner, ScriptedModel, Task, ToolContext, tool
from treadle.core.events import TaskEnded
from treadle.drivers import tenant_drivers
from treadle.errors import (
    ConfigurationError,
    GrantNotFound,
    StoreUnavailable,
    TaskConflict,
    TaskNotFound,
    TicketNotFound,
)
from treadle.llm.scripted import call, text
from treadle.ports import Notice
from treadle.runner.views import driver_of, drivers_of

pytestmark = pytest.mark.anyio


async def test_tenants_have_the_same_ids_and_see_nothing_of_each_other(store: Any) -> None:
    async with Runner(store) as runner:
        both = {name: runner.scoped(tenant=name) for name in ("acme", "bolt")}
        for name, tenant in both.items():
            result = await tenant.run(sayer(f"I am {name}."), "Who?", task_id="t", thread_id="talk")
            assert result.final_text == f"I am {name}."
        for name, tenant in both.items():
            assert [message.text for message in await tenant.get_thread("talk")] == ["Who?", f"I am {name}."]
            (item,) = (await tenant.list_tasks()).items
            assert (item.task_id, item.tenant, (await tenant.get_task("t")).tenant) == ("t", name, name)
            assert [thread.thread_id for thread in (await tenant.list_threads()).items] == ["talk"]
            assert (await tenant.verify()).findings == ()
        assert (await runner.list_tasks()).items == ()
        with pytest.raises(TaskNotFound, match="no task 't' in"):
            await runner.get_task("t")
        await both["acme"].delete_thread("talk")
        assert (await both["bolt"].result("t")).final_text == "I am bolt."
        assert (
            await both["bolt"].run(sayer("Still here."), "And?", thread_id="talk")
        ).final_text == "Still here."


async def test_a_known_id_of_another_tenant_is_no_conflict_and_its_own_is(store: Any) -> None:
    async with Runner(store) as runner:
        await runner.scoped(tenant="acme").create_task(sayer(), "One thing.", task_id="t")
        other = runner.scoped(tenant="bolt")
        await other.create_task(sayer(), "Another thing.", task_id="t")
        with pytest.raises(TaskConflict, match="task t exists with another input"):
            await other.create_task(sayer(), "A third thing.", task_id="t")


@pytest.mark.parametrize("tenant", ["a\x1fb", "it's", 'say "a"', "back\\slash", "a\nb", "x" * 101, 7, None])
def test_a_name_that_would_not_keep_tenants_apart_is_refused(tenant: Any) -> None:
    with pytest.raises(ConfigurationError, match="scoped: tenant must"):
        Runner("memory:").scoped(tenant=tenant)


async def test_no_name_leads_from_the_runner_itself_to_a_tenant(store: Any) -> None:
    async with Runner(store) as runner:
        await runner.scoped(tenant="acme").run(sayer(), "hi", task_id="t", thread_id="talk")
        for verb in (runner.get_task, runner.result, runner.delete_task, runner.cancel, runner.resume):
            with pytest.raises(ConfigurationError, match="unit separator"):
                await verb("acme\x1ft")
        for refused in (
            runner.get_thread("acme\x1ftalk"),
            runner.delete_thread("acme\x1ftalk"),
            runner.run(sayer(), "hi", thread_id="acme\x1ftalk"),
            runner.create_task(sayer(), "hi", task_id="acme\x1ft"),
            runner.list_tasks(parent="acme\x1ft"),
            runner.revoke("acme\x1fg"),
            runner.fork("acme\x1ft"),
        ):
            with pytest.raises(ConfigurationError, match=r"unit separator|control characters"):
                await refused
        with pytest.raises(TicketNotFound):
            await runner.complete("tk_x.acme\x1ft", 1)
        with pytest.raises(GrantNotFound):
            await runner.revoke("g")


async def test_a_scope_within_a_tenant_stays_there() -> None:
    acme = Runner("memory:").scoped(tenant="acme")
    task = await acme.scoped(by="ann").create_task(sayer(), "hi")
    assert task.tenant == "acme"
    with pytest.raises(ConfigurationError, match="scoped: this runner is limited to tenant 'acme'"):
        acme.scoped(tenant="bolt")


async def test_an_adopter_drives_tasks_of_all_tenants_with_the_same_ids(tmp_path: Path) -> None:
    names = ("", "acme", "acme.", "bolt")
    store, told = tmp_path / "journal.db", list[Any]()
    async with Runner(store) as runner:
        for name in names:
            await runner.scoped(tenant=name).submit(calculator(), f"of {name}", task_id="t", thread_id="talk")
    adopting = Runner(store, agents=[calculator()])
    async with adopting:
        adopting.begin_adopting(tell=told.append)
        async with asyncio.timeout(10):
            for name in names:
                result = await adopting.scoped(tenant=name).handle("t").result()
                while result.state != "completed":
                    await asyncio.sleep(0.02)
                    result = await adopting.scoped(tenant=name).result("t")
                assert result.final_text == "405"
                messages = await adopting.scoped(tenant=name).get_thread("talk")
                assert messages[0].text == f"of {name}"
    assert {(each.tenant, each.task_id) for each in told if each.kind == "adopted"} == {
        (name, "t") for name in names
    }
    assert "task t of tenant 'acme' adopted" in [each.text for each in told]


async def test_what_is_driven_for_tenants_is_released_when_the_runner_closes(tmp_path: Path) -> None:
    slow = Agent(ScriptedModel([text("later", delay=30)]), name="slow")
    async with Runner(tmp_path / "journal.db", agents=[slow]) as runner:
        for name in ("acme", "bolt"):
            await runner.scoped(tenant=name).start(slow, "go", task_id="t")
        assert sum(len(driver.owned.tasks) for driver in drivers_of(runner)) == 2
        acme = runner.scoped(tenant="acme")
    for name in ("acme", "bolt"):
        async with Runner(tmp_path / "journal.db") as other:
            assert (await other.scoped(tenant=name).get_task("t")).state == "interrupted"
    with pytest.raises(StoreUnavailable, match="is closed"):
        await acme.get_task("t")
    with pytest.raises(StoreUnavailable, match="is closed"):
        await runner.scoped(tenant="never seen").list_tasks()
    async with runner:
        assert (await acme.get_task("t")).state == "interrupted"


async def test_commands_of_another_process_reach_the_task_of_their_tenant_alone(tmp_path: Path) -> None:
    slow = Agent(ScriptedModel([text("later", delay=30)]), name="slow")
    async with Runner(tmp_path / "j.db", agents=[slow]) as here, Runner(tmp_path / "j.db") as there:
        handles = {
            name: await here.scoped(tenant=name).start(slow, "go", task_id="t")
            for name in ("acme", "bolt", "")
        }
        assert (await there.scoped(tenant="acme").interrupt("t")).state == "interrupted"
        assert (await handles["acme"].result()).state == "interrupted"
        for name in ("bolt", ""):
            assert (await here.scoped(tenant=name).get_task("t")).state == "running"


async def test_context_factories_observers_and_subagents_know_the_tenant(store: Any) -> None:
    seen = list[Notice]()

    @tool(read_only=True)
    async def whose(ctx: ToolContext[str]) -> str:
        """Tell whose context this is."""
        return ctx.context

    def context_of(task: Task[Any]) -> str:
        return f"context of {task.tenant}"

    helper = Agent(ScriptedModel([call("whose"), "asked"]), name="helper", tools=[whose])
    agent = Agent(ScriptedModel([call("helper", input="ask"), "done"]), name="boss", subagents=[helper])
    async with Runner(store, context_factory=context_of, observers=[seen.append]) as runner:
        results = [
            await runner.scoped(tenant=name).run(agent, "go", task_id="t") for name in ("acme", "bolt")
        ]
    for name, result in zip(("acme", "bolt"), results, strict=True):
        (asked,) = [each for each in result.tool_executions if each.name == "whose"]
        assert asked.output == f"context of {name}"
        ended = [each.task for each in seen if isinstance(each.event, TaskEnded) and each.task is not None]
        assert sorted(task.task_id for task in ended if task.tenant == name) == ["t", "t.s1-0"]
    assert len({each.task.full_id for each in seen if each.task is not None}) == 4


async def test_a_person_asked_for_one_tenant_decides_for_that_one(store: Any) -> None:
    @tool(needs_approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    agent = Agent(ScriptedModel([call("pay", amount=3), "done"]), name="payer", tools=[pay])
    asked = list[str]()

    async def decide(pending: Any, handle: Any) -> None:
        asked.append(pending.task_id)
        await handle.approve(pending.request_id, by="ann")

    async with Runner(store, on_pending=decide) as runner:
        for name in ("acme", "bolt"):
            assert (await runner.scoped(tenant=name).run(agent, "go", task_id="t")).final_text == "done"
    assert asked == ["t", "t"]


async def test_an_approval_for_always_holds_in_its_tenant_alone(store: Any) -> None:
    @tool(needs_approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    agent = Agent(ScriptedModel([call("pay", amount=3), "done"]), name="payer", tools=[pay])
    async with Runner(store, agents=[agent]) as runner:
        acme, bolt = runner.scoped(tenant="acme"), runner.scoped(tenant="bolt")
        waiting = await acme.run(agent, "go", task_id="t")
        assert waiting.state == "waiting"
        await acme.approve("t", scope="always", by="ann")
        assert (await acme.resume("t")).state == "completed"
        assert (await acme.run(agent, "go")).state == "completed"
        assert (await bolt.run(agent, "go", task_id="t")).state == "waiting"
        assert len(await acme.list_grants()) == 1
        assert await bolt.list_grants() == await runner.list_grants() == ()


async def test_a_driver_that_nothing_refers_to_is_dropped_and_one_in_use_is_not(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenant_drivers, "MOST_KEPT", 1)
    slow = Agent(ScriptedModel([text("later", delay=30)]), name="slow")
    async with Runner(store, agents=[slow]) as runner:
        busy = await runner.scoped(tenant="busy").start(slow, "go")
        held = runner.scoped(tenant="held")
        idle = weakref.ref(driver_of(runner.scoped(tenant="idle")))
        for number in range(3):
            await runner.scoped(tenant=f"other {number}").list_tasks()
        gc.collect()
        assert idle() is None
        assert {driver.tenant for driver in drivers_of(runner)} == {"", "busy", "held", "other 2"}
        assert driver_of(held) is driver_of(runner.scoped(tenant="held"))
        assert (await busy.interrupt()).state == "interrupted"


async def test_a_tenants_export_is_imported_by_another(store: Any, tmp_path: Path) -> None:
    async with Runner(store) as runner:
        acme, bolt = runner.scoped(tenant="acme"), runner.scoped(tenant="bolt")
        await acme.run(sayer("x" * 9_000), "Who?", task_id="t", thread_id="talk")
        await runner.run(sayer(), "not exported")
        exported = await acme.export_tasks(tmp_path / "export")
        assert exported.tasks == ("t",)
        assert (await bolt.import_tasks(tmp_path / "export")).tasks == ("t",)
        assert (await bolt.result("t")).final_text == "x" * 9_000
        assert (await bolt.verify()).findings == ()
        assert [item.task_id for item in (await runner.list_tasks()).items] != ["t"]


@pytest.mark.parametrize("other_process", [False, True])
async def test_changes_of_a_runner_tell_nothing_of_its_tenants_and_theirs_of_no_other(
    tmp_path: Path, other_process: bool
) -> None:
    async with Runner(tmp_path / "j.db") as watching, Runner(tmp_path / "j.db") as second:
        acting = second if other_process else watching
        told: dict[str, set[tuple[str, str]]] = {}

        async def collect(name: str) -> None:
            async for task in watching.scoped(tenant=name).changes():
                told.setdefault(name, set()).add((task.tenant, task.task_id))

        names = ("", "acme", "acme.")
        collecting = [asyncio.create_task(collect(name)) for name in names]
        await asyncio.sleep(0.1)
        for name in names:
            await acting.scoped(tenant=name).run(sayer(), "hi", task_id=f"of {name}")
        await until(lambda: told == {name: {(name, f"of {name}")} for name in names})
        await asyncio.sleep(0.3)
        assert told == {name: {(name, f"of {name}")} for name in names}
        for task in collecting:
            task.cancel()
        await asyncio.wait(collecting)
