"""The cache of threads: that it is used, that it is never older than the store, and that it is bounded."""

from pathlib import Path
from typing import Any

import pytest

from tests.cast import calculator, repeat, sayer
from tests.runner.acts import roles_and_texts
from treadle import Agent, Message, Runner, ScriptedModel, Text
from treadle.core.labels import TAINTED_MODEL
from treadle.drivers.thread_history import ThreadHistory
from treadle.llm.scripted import call
from treadle.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio


class Counting(MemoryStore):
    """A store that counts its reads."""

    def __init__(self) -> None:
        super().__init__()
        self.records = self.members = 0

    async def read(self, task_id: str, **which: Any) -> Any:
        records = await super().read(task_id, **which)
        self.records += len(records)
        return records

    async def thread(self, thread_id: str, **which: Any) -> Any:
        version, members = await super().thread(thread_id, **which)
        self.members += len(members)
        return version, members


async def talk(runner: Runner, *questions: str, thread: str = "talk") -> None:
    for question in questions:
        await runner.run(calculator(), question, thread_id=thread, task_id=f"{thread}-{question}")


async def test_a_turn_reads_as_much_of_its_thread_after_thirty_turns_as_after_three() -> None:
    store = Counting()
    async with Runner(store) as runner:
        read: list[tuple[int, int]] = []
        for number in range(30):
            store.records = store.members = 0
            await talk(runner, f"question {number}")
            read.append((store.records, store.members))
    assert read[-1] == read[3]


async def test_the_cached_history_equals_what_a_fresh_process_reads(store: Any) -> None:
    agent = Agent(ScriptedModel(lambda request: f"{len(request.messages)} heard"), name="heard")
    async with Runner(store) as one, Runner(store) as other:

        async def agree() -> None:
            async with Runner(store) as fresh:
                expected = roles_and_texts(await fresh.get_thread("talk"))
            assert (
                roles_and_texts(await one.get_thread("talk"))
                == roles_and_texts(await other.get_thread("talk"))
                == expected
            )

        await agree()
        for question in ("one", "two", "three"):
            await one.run(agent, question, thread_id="talk", task_id=question)
            await agree()
        await other.undo_step("three")
        await agree()
        await other.import_thread("talk", [Message("user", (Text("From elsewhere."),))])
        await agree()
        await one.resume("three", agent=agent)
        await agree()
        await one.compact_thread("talk", keep=1, model=ScriptedModel(["All of it."]))
        await agree()
        assert (await other.run(agent, "four", thread_id="talk")).final_text == "4 heard"
        assert (await one.run(agent, "five", thread_id="talk")).final_text == "6 heard"
        summary = (await one.list_tasks(agent="summary")).items[0].task_id
        await other.undo_step(summary)
        assert (await one.run(agent, "six", thread_id="talk")).final_text == "12 heard"
        await agree()


async def test_a_thread_made_again_under_the_same_ids_is_another_one(store: Any) -> None:
    async with Runner(store) as one, Runner(store) as other:
        for name in ("a", "b"):
            await one.run(sayer("Before.", name="other"), "?", thread_id="talk", task_id=name)
        assert len(await one.get_thread("talk")) == 4
        await other.delete_thread("talk")
        for name in ("a", "b"):
            await other.run(sayer("After..", name="other"), "?", thread_id="talk", task_id=name)
        version, _ = await one.store.thread("talk")
        assert version == 2
        answers = [
            text for role, text in roles_and_texts(await one.get_thread("talk")) if role == "assistant"
        ]
        assert answers == ["After..", "After.."]


async def test_a_version_is_the_same_however_much_is_kept(store: Any) -> None:
    async with Runner(store) as runner:
        await talk(runner, "one", "two", "three")
        await runner.undo_step("talk-three")
        await runner.import_thread("talk", [Message("user", (Text("Four."),))])
        cached = ThreadHistory(runner.store)
        version, _ = await runner.store.thread("talk")
        for at in [*range(version + 1), *range(version, -1, -1), None, 2, None]:
            fresh = await ThreadHistory(runner.store).messages("talk", at)
            assert roles_and_texts((await cached.messages("talk", at)).messages) == roles_and_texts(
                fresh.messages
            )
            if at is not None:
                assert roles_and_texts((await cached.begin("talk", at)).messages) == roles_and_texts(
                    fresh.messages
                )


async def test_no_more_is_kept_than_a_bound(tmp_path: Path) -> None:
    async with Runner(tmp_path / "journal.db") as runner:
        for thread in "abc":
            await talk(runner, "one", "two", thread=thread)
        size = sum([len(record.data) for t in ("a-one", "a-two") for record in await runner.store.read(t)])
        history = ThreadHistory(runner.store, most=size * 2 + size // 2)
        for thread in "abcba":
            assert len((await history.messages(thread)).messages) == 12
        assert [thread for thread, _ in history._entries] == ["b", "a"]
        assert history._size == sum(entry.size for entry in history._entries.values()) <= size * 2.5
        history.forget("a")
        history.forget("b")
        assert (history._size, len(history._entries)) == (0, 0)


async def test_a_thread_labels_what_a_model_wrote_after_it_had_read_untrusted_content() -> None:
    reader = Agent(ScriptedModel([call("repeat", what="x"), "It says x."]), name="reader", tools=[repeat])
    async with Runner("memory:") as runner:
        await runner.run(reader, "Read it.", thread_id="read")
        await runner.run(sayer("Hello."), "Hi.", thread_id="said")
        for thread, label in (("read", TAINTED_MODEL), ("said", None)):
            messages = await runner.get_thread(thread)
            texts = [
                (each.role, part.label) for each in messages for part in each.parts if type(part) is Text
            ]
            assert texts == [("user", None), ("assistant", label)]
