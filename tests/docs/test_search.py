"""The search of the documentation site leads to the page that people look for."""

import shutil

import pytest

pytest.importorskip("mkdocs", reason="the site is built with mkdocs: group docs")

from tests.docs.search import QUERIES, WORDS, lost
from tests.docs.site import ROOT, SITE, build
from tests.docs.site_hooks import pages_outside_of_docs


def test_each_page_that_a_search_should_find_is_there() -> None:
    pages = {*WORDS, *(f"{page}.md" for page in QUERIES.values())}
    outside = pages_outside_of_docs()
    assert [
        page for page in sorted(pages) if page not in outside and not (ROOT / "docs" / page).exists()
    ] == []


@pytest.mark.full
@pytest.mark.skipif(shutil.which("node") is None, reason="the search of the site runs in Node")
def test_each_query_finds_its_page_among_the_first_three() -> None:
    build()
    assert list(lost(SITE)) == []
