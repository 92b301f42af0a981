"""What is counted for limits, and for how long that is remembered."""

import asyncio
from typing import Any

import pytest

from treadle import Runner
from treadle.server import limits
from treadle.server.limits import TaskQuota

pytestmark = pytest.mark.anyio


async def test_the_counts_of_tenants_were_remembered_for_ever(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "COUNT_SECONDS", 0.0)
    quota = TaskQuota(5)
    for number in range(50):
        tenant = f"t{number}"
        await quota.check(runner.scoped(tenant=tenant), tenant)
    remembered: Any = quota
    assert len(remembered._counts) == 1
    assert len(remembered._counting) == 0


async def test_requests_at_the_same_time_count_the_tasks_of_their_tenant_once(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []
    scoped: dict[str, Any] = {tenant: runner.scoped(tenant=tenant) for tenant in ("a", "b")}
    for tenant, each in scoped.items():
        count = each.count_tasks

        async def counting(count: Any = count, tenant: str = tenant, **given: Any) -> Any:
            counted.append(tenant)
            await asyncio.sleep(0.01)
            return await count(**given)

        monkeypatch.setattr(each, "count_tasks", counting)
    quota = TaskQuota(50)
    await asyncio.gather(*[quota.check(scoped[tenant], tenant) for tenant in "ab" * 10])
    assert sorted(counted) == ["a", "b"]
