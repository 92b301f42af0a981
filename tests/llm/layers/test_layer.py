"""State that layers share: one object for each key, and a bounded number of them."""

from treadle.llm.layers.layer import Shared


def test_a_key_has_one_object():
    shared = Shared[object]()
    first = shared.get(("openai", 1), object)
    assert shared.get(("openai", 1), object) is first
    assert shared.get(("openai", 2), object) is not first
    assert len(shared.values()) == 2


def test_the_least_recently_used_object_is_evicted_at_the_limit():
    shared = Shared[object](limit=2)
    first, second = shared.get(("a",), object), shared.get(("b",), object)
    shared.get(("a",), object)
    third = shared.get(("c",), object)
    assert shared.values() == [first, third]
    assert shared.get(("b",), object) is not second
