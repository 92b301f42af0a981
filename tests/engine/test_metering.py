"""Tokens of a model that does not say how many are estimated, at a cost that does not grow with the conversation."""

import pytest

from treadle.core.messages import Message, MessageView, Text, user
from treadle.core.model import ModelRequest, ModelSettings, Usage
from treadle.core.tokens import estimated_usage
from treadle.engine.metering import TokenMeter


def request(messages, instructions="Be brief."):
    return ModelRequest(messages, instructions, (), "auto", ModelSettings(), "t", "s1", 0, 1)


ANSWER = Message("assistant", (Text("So it is."),))


class Looked(str):
    """A text that counts the calls of `len`."""

    times = 0

    def __len__(self):
        Looked.times += 1
        return super().__len__()


def test_a_growing_conversation_is_estimated_as_a_whole_and_each_message_read_once():
    conversation, meter = [user("Where is it?")], TokenMeter()
    for turn in range(20):
        conversation += [ANSWER, user(Looked(f"And {turn}?"))]
        sent = request(MessageView(conversation))
        assert meter.estimated(sent, ANSWER) == estimated_usage(sent, ANSWER)
    Looked.times = 0
    conversation.append(user(Looked("Once more.")))
    meter.estimated(request(MessageView(conversation)), ANSWER)
    assert Looked.times == 1


def test_requests_that_do_not_continue_the_conversation_are_estimated_as_a_whole():
    conversation, meter = [user("Where is it?"), ANSWER, user("And now?")], TokenMeter()
    meter.estimated(request(MessageView(conversation)), ANSWER)
    for sent in (
        request(MessageView(conversation[:1])),
        request(MessageView(conversation, 1)),
        request([user("Aside.")]),
        request(MessageView(conversation), instructions="Be long, and longer than that."),
    ):
        assert meter.estimated(sent, ANSWER) == estimated_usage(sent, ANSWER)


@pytest.mark.parametrize("report", [Usage(0, 7), Usage(900, 7, estimated=True)])
def test_a_report_without_input_tokens_and_an_estimate_teach_nothing(report):
    meter = TokenMeter()
    meter.learn("m", 100, report)
    assert meter.expected("m", 1_000) == TokenMeter().expected("m", 1_000)
