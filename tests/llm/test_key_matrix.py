"""A key that a provider sends back in any form and place is found nowhere, and no other host gets it."""

import random

import pytest

from tests.llm import key_matrix

pytestmark = pytest.mark.anyio


async def test_a_key_that_a_provider_sends_back_is_found_nowhere_and_reaches_no_other_host():
    leaks, elsewhere = await key_matrix.run(random.sample(key_matrix.sample(), 16))
    assert leaks == []
    assert elsewhere.requests == []


@pytest.mark.full
@pytest.mark.parametrize("key", key_matrix.KEYS)
async def test_no_key_leaves_in_any_form_from_any_place_on_any_wire(key):
    leaks, elsewhere = await key_matrix.run([case for case in key_matrix.cases() if case.key == key])
    assert leaks == []
    assert elsewhere.requests == []


@pytest.mark.sampled(40)
@pytest.mark.parametrize("form", key_matrix.FORMS)
@pytest.mark.parametrize("key", key_matrix.KEYS)
def test_the_search_finds_each_key_in_each_form_and_nothing_else(key, form):
    shown = key_matrix.FORMS[form](key)
    assert key_matrix.Haystack(f'{{"message": "a key: {shown}", "n": 1}}').holds(key)
    other_keys = [other for other in key_matrix.KEYS if other != key]
    assert not any(key_matrix.Haystack(shown).holds(other) for other in other_keys[:3])
