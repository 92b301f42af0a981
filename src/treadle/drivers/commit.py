"""Commit to the store outside of a drive, without a journal writer."""

from __future__ import annotations

import asyncio

from treadle.ports import Commit, Committed, JournalStore


async def commit(store: JournalStore, request: Commit) -> Committed:
    """Commit and return the store's answer once it is durable; raises the store's error."""
    answer: asyncio.Future[Committed] = asyncio.get_running_loop().create_future()

    def done(verdict: Committed | Exception) -> None:
        if answer.done():
            return  # the caller was cancelled
        if isinstance(verdict, Exception):
            answer.set_exception(verdict)
        else:
            answer.set_result(verdict)

    store.commit(request, done)
    return await answer
