"""What an agent sees of a conversation that moved to it, as that grows and is taken back."""

from collections.abc import Sequence
from dataclasses import replace

from treadle import LastMessages, Message, Text, ToolCall, ToolResult, only_user_messages
from treadle.core.messages import user
from treadle.core.state import TaskState
from treadle.core.team import Team
from treadle.engine.agent_view import AgentView

TRANSFER = ToolCall("s1-0", "transfer_to_b", {"reason": "money"})
BEFORE = [
    user("hello"),
    Message("assistant", (Text("I pass you on."), TRANSFER)),
    Message("tool", (ToolResult("s1-0", "transfer_to_b", (Text("ok"),)),)),
]
TEAM = Team("b", 1, "a", "transfer_to_b", since=3)


def view_of(
    filters: Sequence[object], messages: list[Message], since: int = 3
) -> tuple[TaskState, AgentView]:
    state = TaskState("t", messages=messages)
    return state, AgentView(state, replace(TEAM, since=since), filters)  # type: ignore[arg-type]


def texts(view: AgentView) -> list[str]:
    return [message.text or message.role for message in view.messages]


def test_only_what_was_before_the_handoff_is_filtered() -> None:
    state, view = view_of([LastMessages(2)], [user("old"), *BEFORE, user("and now?")], since=4)
    assert texts(view) == ["hello", "I pass you on.", "tool", "and now?"]
    state.messages.append(Message("assistant", (Text("Well."),)))
    assert texts(view)[-1] == "Well."


def test_an_agent_that_does_not_see_the_call_is_told_what_it_said() -> None:
    _, view = view_of([only_user_messages], list(BEFORE))
    assert texts(view) == ["hello", "[The agent a handed this conversation over: money]"]


def test_a_view_begins_anew_where_the_conversation_was_replaced() -> None:
    state, view = view_of([only_user_messages], [*BEFORE, user("one")])
    first = view.messages
    assert len(first) == 3
    state.messages = [*BEFORE, user("two")]
    assert texts(view)[-1] == "two"
    assert first[-1].text == "one"


def test_a_view_knows_which_of_its_messages_is_the_task_s_first() -> None:
    state, view = view_of([only_user_messages], [user("old"), *BEFORE])
    state.own_from = 1
    view.messages  # noqa: B018  it is read before each request
    assert view.own_from == 1
