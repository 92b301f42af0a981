"""What the first bytes of a streamed answer tell."""

import json

import pytest

from treadle.llm.first_bytes import FirstBytes


def problem_of(*pieces):
    kept = FirstBytes()
    kept.begin("host")
    for piece in pieces:
        kept.take(piece)
    return kept.problem()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\n\n",
        b": a comment\n\n",
        b"\xef\xbb\xbfdata: {}\n\n",
        b"event: ping\ndata: {}\n\ndata: [DONE]\n\n",
        b"data: [DONE]\n\n",
        b"id\ndata: {}\n\n",
        b"data: words that are no JSON\n\n",
    ],
)
def test_a_stream_of_events_is_no_problem(body):
    assert problem_of(body) is None


def test_the_end_of_what_is_kept_is_no_mistake_of_the_server():
    document = json.dumps({"text": "x" * 40_000}).encode()
    assert problem_of(b"data: " + document) is None
    told = problem_of(document)
    assert told is not None
    assert told.startswith("host sent a JSON document in place of")


def test_a_document_in_pieces_is_read_as_one():
    told = problem_of(b'{"a": ', b"[1, 2], ", b"oops}")
    assert told is not None
    assert told.startswith("host sent malformed JSON")
    assert "oops" not in told
