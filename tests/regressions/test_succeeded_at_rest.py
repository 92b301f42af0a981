"""A driver learns only when it gives a task back that another had taken it over: it claimed the task once more."""

import apsw
import pytest

from treadle import Agent, Runner, ScriptedModel, Text
from treadle.core.events import InputReceived
from treadle.errors import Fenced
from treadle.models import text

pytestmark = pytest.mark.anyio

agent = Agent(ScriptedModel([text("Done.")]), name="worker")


async def test_who_is_refused_on_giving_a_task_back_knows_that_another_drives_it_and_lets_it_be(tmp_path):
    path = tmp_path / "journal.db"
    async with Runner(path, agents=[agent]) as stalled, Runner(path, agents=[agent]) as other:
        await stalled.create_task(agent, "Work", task_id="t")
        owned = await stalled.driver.ownership.claim("t")
        connection = apsw.Connection(str(path))
        connection.set_busy_timeout(5_000)
        connection.execute("UPDATE drivers SET lease = 1")  # as if it had been stopped for long
        epoch = (await other.store.claim("t")).epoch

        with pytest.raises(Fenced):
            await owned.writer.commit_alone(None, "paused")
        stalled.driver.owned.remove(owned)

        row = await stalled.store.row("t")
        assert row.epoch == epoch
        assert stalled.driver.owned.unreleased == {}, "it would claim the task to give it back"
        assert isinstance(owned.writer.failure, Fenced)


async def test_what_a_driver_recorded_after_it_was_succeeded_is_not_shown_as_said(tmp_path):
    path = tmp_path / "journal.db"
    async with Runner(path, agents=[agent]) as stalled, Runner(path, agents=[agent]) as other:
        await stalled.create_task(agent, "Work", task_id="t")
        owned = await stalled.driver.ownership.claim("t")
        connection = apsw.Connection(str(path))
        connection.set_busy_timeout(5_000)
        connection.execute("UPDATE drivers SET lease = 1")  # as if it had been stopped for long
        await other.resume("t")

        owned.writer.record(InputReceived((Text("Never heard."),)))
        with pytest.raises(Fenced):
            async with stalled.driver.ownership.releasing(owned):
                pass

        shown = await stalled.result("t")
        assert [message.text for message in shown.messages] == ["Work", "Done."]
        assert shown == await other.result("t")
