"""Events as lines for people."""

from treadle.cli.screen import Screen
from treadle.cli.timeline import Timeline
from treadle.core.events import ModelReturned, ToolEnded
from treadle.core.messages import Message, ToolCall
from treadle.core.model import Usage


def test_the_result_of_an_earlier_call_is_shown_with_the_name_of_its_tool(capsys):
    timeline = Timeline(Screen(json=False))
    message = Message("assistant", (ToolCall("s1-0", "add", {"a": 1, "b": 2}),))
    timeline.learn_calls([ModelReturned("s1", message, "tool_calls", Usage())])
    timeline.show(ToolEnded("s1", "s1-0", "ok", 3))
    assert "add: 3" in capsys.readouterr().out
