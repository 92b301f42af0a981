"""A model sees the newest part of a long conversation, within a number of tokens, and always well-formed."""

from typing import Any

import pytest

from tests.runner.acts import assert_well_formed, roles_and_texts
from treadle import Agent, Runner, RunOptions, ScriptedModel, tool
from treadle.context.recall import PART_CHARS, transcript
from treadle.core.messages import Image, Message, Text, ToolCall, ToolResult
from treadle.core.tokens import message_tokens, request_tokens
from treadle.llm.scripted import call, turn

pytestmark = pytest.mark.anyio


@tool(read_only=True)
async def read(page: int, size: int = 600) -> str:
    """Read a page."""
    return f"page {page} " + "x" * size


def reader(pages: int, *, size: int = 600, name: str = "reader") -> Agent[Any]:
    def reply(request: Any) -> Any:
        if request.turn == pages:
            return f"read {pages} pages"
        calls = [call("read", page=request.turn, size=size), call("read", page=-request.turn, size=size)]
        return turn(calls=calls) if request.turn % 3 == 0 else calls[0]

    return Agent(ScriptedModel(reply), name=name, instructions="Read it all.", tools=[read])


def tokens(agent: Agent[Any], request: Any) -> int:
    tools = [tool.spec for tool in agent.tools]
    return request_tokens(request.instructions, tools) + sum(map(message_tokens, request.messages))


async def test_every_request_of_a_long_task_fits_and_is_well_formed(runner: Runner) -> None:
    agent = reader(60)
    result = await runner.run(agent, "Read the book.", options=RunOptions(context_tokens=4_000))
    assert result.final_text == "read 60 pages"
    sizes = [tokens(agent, request) for request in agent.model.requests]
    assert max(sizes) <= 4_000
    assert sorted(sizes)[20] > 2_000, "it shows as much as fits"
    for request in agent.model.requests:
        assert_well_formed(request.messages)
        assert roles_and_texts(request.messages)[0] == ("user", "Read the book."), "the task's input is kept"
        if request.turn:
            assert f"page {request.turn - 1} " in roles_and_texts(request.messages)[-1][1], (
                "and so is the newest result"
            )
    shown = roles_and_texts(agent.model.requests[-1].messages)
    assert "earlier messages of this conversation are not shown" in shown[1][1]
    assert len(result.messages) == 1 + 2 * 60 + 1, "the journal holds them all"
    thread = await runner.get_thread(result.thread_id)
    assert len(thread) == len(result.messages)


async def test_each_message_is_looked_at_once(store: Any) -> None:
    seen: list[Any] = []

    def count(message: Any) -> int:
        seen.append(message)
        return message_tokens(message)

    agent = reader(40)
    async with Runner(store, count_tokens=count) as runner:
        task = await runner.create_task(agent, "Read.", options=RunOptions(context_tokens=4_000))
        await step_to_answer_of(runner, task, 41)
    assert len(seen) <= 1 + 2 * 40 + 5


async def step_to_answer_of(runner: Runner, task: Any, steps: int) -> None:
    for _ in range(steps):
        await runner.run_step(task)


async def test_steps_free_runs_and_resumed_tasks_show_the_same(runner: Runner) -> None:
    options = RunOptions(context_tokens=3_000)
    free, stepped = reader(20), reader(20)
    await runner.run(free, "Read.", options=options)
    task = await runner.create_task(stepped, "Read.", options=options)
    for number in range(21):
        await runner.run_step(task)
        if number % 4 == 0:
            runner._driver.cache.forget(task.task_id)  # as another process would find it
    assert [roles_and_texts(r.messages) for r in free.model.requests] == [
        roles_and_texts(r.messages) for r in stepped.model.requests
    ]


async def test_an_older_conversation_is_cut_between_turns(runner: Runner) -> None:
    options = RunOptions(context_tokens=2_500)
    for number in range(12):
        agent = reader(3, name=f"reader{number}")
        await runner.run(agent, f"Turn {number}.", thread_id="talk", options=options)
        for request in agent.model.requests:
            assert tokens(agent, request) <= 2_500
            assert_well_formed(request.messages)
            roles = [message.role for message in request.messages]
            assert roles[0] == "user"
            notes = [
                at for at, (_, text) in enumerate(roles_and_texts(request.messages)) if "not shown" in text
            ]
            if notes and request.turn == 0:
                assert roles[notes[0] + 1] == "user", "what follows the note is a whole turn"
        assert ("user", f"Turn {number}.") in roles_and_texts(agent.model.requests[-1].messages)
    assert len(await runner.get_thread("talk")) == 12 * 8


async def test_a_huge_result_cannot_brick_a_task(runner: Runner) -> None:
    """A result of 2 MB and a model of 32 k tokens."""
    agent = Agent(
        ScriptedModel([call("read", page=1, size=2_000_000), call("read", page=2), "done"]), tools=[read]
    )
    options = RunOptions(context_tokens=32_000, tool_output_max_chars=10_000_000)
    result = await runner.run(agent, "Read.", options=options)
    assert result.state == "completed"
    for request in agent.model.requests:
        assert tokens(agent, request) <= 32_000
        assert_well_formed(request.messages)
    (_, excerpt), *_ = [
        line for line in roles_and_texts(agent.model.requests[1].messages) if line[0] == "tool"
    ]
    assert "characters cut; full output: call s1-0" in excerpt
    assert len(result.tool_executions[0].output) == len("page 1 ") + 2_000_000


async def test_a_huge_message_is_shown_as_an_excerpt(runner: Runner) -> None:
    agent = Agent(ScriptedModel(["done"]))
    text = "größer " * 100_000
    result = await runner.run(agent, text, options=RunOptions(context_tokens=8_000))
    assert result.state == "completed"
    assert tokens(agent, agent.model.requests[0]) <= 8_000
    assert result.messages[0].text == text


async def test_system_messages_stay_and_an_undo_shows_left_out_messages_again(runner: Runner) -> None:
    agent = reader(30)
    task = await runner.create_task(agent, "Read.", options=RunOptions(context_tokens=3_000))
    await runner.run_step(task)
    await runner.send(task, "Never read page 99.", role="system")
    for _ in range(29):
        await runner.run_step(task)
    assert ("system", "Never read page 99.") in roles_and_texts(agent.model.requests[-1].messages)
    await runner.undo_step(task, to=2)
    await runner.run_step(task)
    assert "not shown" not in str(roles_and_texts(agent.model.requests[-1].messages))
    assert_well_formed(agent.model.requests[-1].messages)


async def test_a_repeated_step_does_not_see_the_undone_one(runner: Runner) -> None:
    agent = reader(9)
    task = await runner.create_task(agent, "Read.", options=RunOptions(context_tokens=8_000))
    for _ in range(4):
        await runner.run_step(task)
    await runner.undo_step(task)
    await runner.run_step(task)
    await runner.run_step(task)
    fourth, again, fifth = agent.model.requests[3:]
    assert roles_and_texts(again.messages) == roles_and_texts(fourth.messages)
    assert roles_and_texts(fifth.messages)[: len(fourth.messages)] == roles_and_texts(fourth.messages)
    assert_well_formed(fifth.messages)


async def test_instructions_that_leave_no_room_fail_the_model_call_with_the_reason(runner: Runner) -> None:
    agent = Agent(ScriptedModel(["done"]), instructions="long " * 2_000)
    result = await runner.run(agent, "Hi.", options=RunOptions(context_tokens=1_000))
    assert result.error is not None
    assert (result.state, result.error.kind) == ("failed", "too_large")
    assert "context_tokens=1000" in result.error.message
    resumed = await runner.resume(result.task_id, options=RunOptions(context_tokens=9_000), agent=agent)
    assert resumed.state == "completed"


async def test_without_a_window_the_conversation_is_shared_whole(runner: Runner) -> None:
    agent = reader(20)
    await runner.run(agent, "Read.")
    assert [len(request.messages) for request in agent.model.requests] == list(range(1, 42, 2))


# --------------------------------------------- transcripts: the text of older turns that a model summarises


def exchange(content: str) -> list[Message]:
    return [Message("user", (Text(content),))]


def test_as_many_turns_as_fit_are_included_and_at_least_one() -> None:
    turns = [exchange("x" * 23), exchange("y" * 23), exchange("z" * 23)]  # ten tokens each
    assert transcript(None, turns, 30)[1] == 3
    assert transcript(None, turns, 29)[1] == 2
    assert transcript(None, turns, 1) == ("[user] " + "x" * 23, 1)
    text, held = transcript("Short.", turns, 30)
    assert held == 1, "what came before takes its room"
    assert text == "[summary of what came before]\nShort.\n\n[user] " + "x" * 23
    assert transcript(None, [], 30) == ("", 0)


def test_a_summary_request_shows_calls_and_results_as_text_and_cuts_long_parts() -> None:
    turn = [
        Message("assistant", (Text("Well."), ToolCall("a", "look", {"at": "ü"}))),
        Message("tool", (ToolResult("a", "look", (Text("seen"),)),)),
        Message("user", (Image(url="x"), Text("y" * (PART_CHARS + 1)))),
    ]
    text, _ = transcript(None, [turn], 100)
    assert '[assistant] Well.\ncalls look({"at": "ü"})\n[tool] look returned: seen\n[user] (image)' in text
    assert "y" * PART_CHARS not in text
