"""Steps that end in the order a test wants."""

import asyncio

from treadle import Runner


class Gates:
    """Lets steps end in the order a test wants, and takes down in which they began and ended."""

    def __init__(self) -> None:
        self.open: dict[str, asyncio.Event] = {}
        self.log: list[str] = []

    async def pass_(self, name: str) -> None:
        self.log.append(f"{name} begins")
        await self.open.setdefault(name, asyncio.Event()).wait()
        self.log.append(f"{name} ends")

    async def until(self, *lines: str) -> None:
        async with asyncio.timeout(5):
            while not set(lines) <= set(self.log):  # noqa: ASYNC110  what it waits for has no event of its own
                await asyncio.sleep(0)

    async def let(self, name: str) -> None:
        await self.until(f"{name} begins")
        self.open.setdefault(name, asyncio.Event()).set()
        await self.until(f"{name} ends")


async def shown(runner: Runner, task_id: str, content: str) -> None:
    """Return once watchers see the end of a step."""
    while content not in str([step.output for step in await runner.get_completed_steps(task_id)]):  # noqa: ASYNC110
        await asyncio.sleep(0)
