"""The memo of a step function: requests get the same keys in each run, and new ones get new ids."""

import pytest

from treadle.agents.workers.step_memo import StepMemo
from treadle.core.events import NextStep
from treadle.core.graph import MemoEntry, StepNode
from treadle.core.steps import CallState
from treadle.errors import ConfigurationError, NotReproducible


def memo_of(node: StepNode) -> StepMemo:
    return StepMemo("t", "s1", node, lambda text: "secret" in text)


@pytest.fixture
def node() -> StepNode:
    return StepNode("s1", 1, (1,), NextStep("collect"), (), None)


def test_a_request_without_a_key_is_found_by_its_digest_and_how_often_it_was_made(node: StepNode) -> None:
    entry = node.memo["d:2"] = MemoEntry("d", CallState("s1-1", "s1", "look", {}))
    memo = memo_of(node)
    assert memo.find(None, "d") == (None, "d:1")
    assert memo.find(None, "d") == (entry, "d:2")
    assert memo_of(node).find(None, "d") == (None, "d:1")


def test_a_key_belongs_to_one_request(node: StepNode) -> None:
    entry = node.memo["key:a"] = MemoEntry("d", CallState("s1-1", "s1", "look", {}))
    assert memo_of(node).find("a", "d") == (entry, "key:a")
    with pytest.raises(NotReproducible, match=r"step s1 \(collect\): the key 'a' was used before"):
        memo_of(node).find("a", "other")


@pytest.mark.parametrize(("key", "defect"), [(1, "a key is a text"), ("a secret", "a key holds a secret")])
def test_a_key_that_the_journal_does_not_store_is_refused(node: StepNode, key: str, defect: str) -> None:
    with pytest.raises(ConfigurationError, match=defect):
        memo_of(node).find(key, "d")


def test_requests_are_numbered_on_from_those_of_earlier_runs(node: StepNode) -> None:
    node.requests = 3
    memo = memo_of(node)
    assert (memo.next_number(), memo.next_number()) == (4, 5)
    assert memo.next_id("tool") != memo.next_id("tool")
