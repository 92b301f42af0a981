"""A driver that learned of a takeover only as it released the task claimed it once more."""

import apsw
import pytest

from treadle import Agent, Runner, ScriptedModel, Text
from treadle.core.events import InputReceived
from treadle.errors import Fenced
from treadle.models import text

pytestmark = pytest.mark.anyio

agent = Agent(ScriptedModel([text("Done.")]), name="worker")


async def test_a_driver_with_a_refused_release_leaves_the_task_to_its_new_owner(tmp_path):
    path = tmp_path / "journal.db"
    async with Runner(path, agents=[agent]) as stalled, Runner(path, agents=[agent]) as other:
        await stalled.create_task(agent, "Work", task_id="t")
        owned = await stalled._driver.ownership.claim("t")
        connection = apsw.Connection(str(path))
        connection.set_busy_timeout(5_000)
        connection.execute("UPDATE drivers SET lease = 1")  # as if it had been stopped for long
        epoch = (await other.store.claim("t")).epoch

        with pytest.raises(Fenced):
            await owned.writer.commit_alone(None, "paused")
        stalled._driver.owned.remove(owned)

        row = await stalled.store.row("t")
        assert row.epoch == epoch
        assert stalled._driver.owned.unreleased == {}, "it would claim the task to give it back"
        assert isinstance(owned.writer.failure, Fenced)


async def test_messages_that_a_driver_recorded_after_a_takeover_are_not_shown(tmp_path):
    path = tmp_path / "journal.db"
    async with Runner(path, agents=[agent]) as stalled, Runner(path, agents=[agent]) as other:
        await stalled.create_task(agent, "Work", task_id="t")
        owned = await stalled._driver.ownership.claim("t")
        connection = apsw.Connection(str(path))
        connection.set_busy_timeout(5_000)
        connection.execute("UPDATE drivers SET lease = 1")  # as if it had been stopped for long
        await other.resume("t")

        owned.writer.record(InputReceived((Text("Never heard."),)))
        with pytest.raises(Fenced):
            async with stalled._driver.ownership.releasing(owned):
                pass

        shown = await stalled.result("t")
        assert [message.text for message in shown.messages] == ["Work", "Done."]
        assert shown == await other.result("t")
