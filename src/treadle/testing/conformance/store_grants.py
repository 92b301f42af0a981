"""Conformance of a `JournalStore`: approvals for later calls."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from treadle.core.permits import StandingGrant
from treadle.errors import Fenced, GrantNotFound
from treadle.testing.conformance.owner import Owner
from treadle.testing.conformance.store_subject import StoreSubject
from treadle.testing.conformance.store_threads import make_members

FIRST = StandingGrant("g-1", "pay", "digest", "cap", None, "ann", "t", "s1-0-ask1", 10)
"""An approval for all tasks."""

IN_TALK = replace(FIRST, grant_id="g-2", thread_id="talk", by=None, created=20)
"""An approval for one thread."""

OTHER = replace(FIRST, grant_id="g-0", tool="look", created=20)
"""An approval of the same time for another tool."""


class GrantConformance(StoreSubject):
    """An approval for later calls is stored with its event, until it is revoked or its thread is deleted."""

    async def test_a_grant_is_kept_with_the_record_it_comes_with_or_not_at_all(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner = await Owner.create(store, "t")
            await owner.write(grants=(FIRST, IN_TALK))
            await owner.write(grants=(OTHER,))
            assert await store.grants() == [FIRST, OTHER, IN_TALK]
            assert await store.grants(tool="look") == [OTHER]
            assert await store.grants(tool="none") == []
            await owner.release()
            newer = await Owner.claim(store, "t")
            with pytest.raises(Fenced):
                await owner.write(grants=(replace(FIRST, grant_id="g-9"),))
            assert await store.grants() == [FIRST, OTHER, IN_TALK]
            await newer.write(grants=(replace(FIRST, by="eve"),))
            assert await store.grants() == [FIRST, OTHER, IN_TALK], "one that is there stays as it is"

    async def test_a_revoked_grant_is_told_of_only_if_asked_for_and_stays_as_it_is(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            owner = await Owner.create(store, "t")
            await owner.write(grants=(FIRST, IN_TALK))
            async with store.snapshot() as before:
                assert await store.revoke("g-1", 30, "bob")
                assert not await store.revoke("g-1", 40, "eve")
                with pytest.raises(GrantNotFound):
                    await store.revoke("g-none", 40, None)
                assert await store.grants() == [IN_TALK]
                revoked = replace(FIRST, revoked=30, revoked_by="bob")
                assert await store.grants(revoked=True) == [revoked, IN_TALK]
                assert await before.grants() == [FIRST, IN_TALK]
            await owner.write(grants=(FIRST,))
            assert await store.grants() == [IN_TALK], "the commit that gave it does not bring it back"

    async def test_the_grants_of_a_thread_go_with_it(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            in_other = replace(IN_TALK, grant_id="g-3", thread_id="other")
            await make_members(store, "t")
            owner = await Owner.create(store, "u", thread_id="elsewhere")
            await owner.write(grants=(FIRST, IN_TALK, in_other))
            await store.delete("t")
            assert await store.grants() == [FIRST, IN_TALK, in_other], (
                "a member stays when its task is deleted"
            )
            await store.delete_thread("talk")
            assert await store.grants() == [FIRST, in_other]

    async def test_the_grants_of_a_thread_go_with_its_last_task(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            for name in ("t", "u"):
                owner = await Owner.create(store, name, thread_id="talk")
                await owner.write(grants=(IN_TALK,), release=True)
            await store.delete("t")
            assert await store.grants() == [IN_TALK]
            await store.delete("u")
            assert await store.grants() == [], "another conversation of this name is not covered"
