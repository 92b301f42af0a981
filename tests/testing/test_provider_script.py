"""Scripts as data: the rule that picks a response, scripts in JSON, and the provider as a process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.forked import Forked
from tests.lazily import openai
from treadle.errors import ConfigurationError
from treadle.testing.provider import (
    OutOfScript,
    Script,
    Usage,
    call,
    fail,
    from_json,
    hang_up,
    raw,
    raw_call,
    reasoning,
    refusal,
    text,
    turn,
)


def test_a_failure_belongs_to_the_answer_after_it() -> None:
    script = Script(["one", fail(500), hang_up(), "two", fail(503)])
    assert script.pick(0, 0) == script.pick(0, 5) == turn("one")
    assert [script.pick(1, attempt) for attempt in range(4)] == [
        fail(500),
        hang_up(),
        turn("two"),
        turn("two"),
    ]
    assert script.pick(2, 0) == script.pick(2, 9) == fail(503)
    with pytest.raises(OutOfScript, match="3 turns"):
        script.pick(3, 0)


def test_a_turn_that_is_cut_is_no_answer_unless_it_says_so() -> None:
    script = Script(
        [turn("one", cut="reset"), turn("one", cut="eof", answers=True), raw("x", answers=True), "two"]
    )
    assert [script.pick(0, attempt).answers for attempt in range(2)] == [False, True]
    assert script.pick(1, 0) == raw("x", answers=True)
    assert script.pick(2, 0) == turn("two")


def test_every_kind_of_item_can_be_written_as_json() -> None:
    assert from_json(
        [
            "Hi",
            {"text": "Hi", "finish": "length", "usage": {"input_tokens": 3}},
            ["Well,", {"call": "add", "arguments": {"a": 1}}],
            {"call": "add", "arguments": '{"a', "id": "x", "delay": 0.5},
            {"parts": [{"reasoning": "Hm.", "signature": "s"}, {"refusal": "No."}], "cut": "eof"},
            {"fail": 429, "retry_after": 1},
            {"raw": "x", "status": 502},
            {"hang_up": "close"},
        ]
    ) == [
        turn("Hi"),
        turn(text("Hi"), finish="length", usage=Usage(input_tokens=3)),
        turn("Well,", call("add", a=1)),
        turn(raw_call("add", '{"a', call_id="x"), delay=0.5),
        turn(reasoning("Hm.", signature="s"), refusal("No."), cut="eof"),
        fail(429, retry_after=1),
        raw("x", status=502),
        hang_up("close"),
    ]


@pytest.mark.parametrize(
    "item", [1, {}, {"txt": "Hi"}, {"text": "Hi", "colour": 1}, {"fail": 200}, [{"call": "a", "text": "b"}]]
)
def test_an_invalid_turn_is_named_by_its_position(item: Any) -> None:
    with pytest.raises(ConfigurationError, match="turn 1 of the script"):
        from_json(["Hi", item])


@pytest.mark.parametrize("options", [{"delay": -1}, {"chunk_size": 0}, {"split": 0}, {"cut": "bend"}])
def test_a_delivery_that_cannot_be_is_refused(options: Any) -> None:
    with pytest.raises(ConfigurationError):
        turn("Hi", **options)


def test_the_provider_can_be_a_process(tmp_path: Path) -> None:
    script, record = tmp_path / "script.json", tmp_path / "requests.jsonl"
    script.write_text(json.dumps(["Hi from afar"]))
    command = [sys.executable, "-m", "treadle.testing.provider", "--script", script, "--record", record]
    with Forked(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with openai.OpenAI(base_url=url + "/v1", api_key="k", max_retries=0) as client:
            completion = client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "Hello"}]
            )
        process.send_signal(signal.SIGTERM)
        completed, errors = process.communicate(timeout=10)
    assert completion.choices[0].message.content == "Hi from afar"
    assert (process.returncode, completed, errors) == (0, "", "")
    assert [json.loads(line)["body"]["model"] for line in record.read_text().splitlines()] == ["m"]
