"""The search of the documentation site leads to the page that people look for."""

import shutil
from pathlib import Path

import pytest

pytest.importorskip("mkdocs", reason="the site is built with mkdocs: group docs")

from tests.docs.browser import Browser, chromium
from tests.docs.looks import ill_shown, unfocused
from tests.docs.search import QUERIES, WORDS, lost, lost_in_a_browser
from tests.docs.site import ROOT, build
from tests.docs.site_hooks import pages_outside_of_docs

in_chromium = pytest.mark.skipif(chromium() is None, reason="no Chromium is installed")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    site = tmp_path_factory.mktemp("site")
    build(site)
    return site


def test_each_page_that_a_search_should_find_is_there() -> None:
    pages = {*WORDS, *(f"{page}.md" for page in QUERIES.values())}
    outside = pages_outside_of_docs()
    assert [
        page for page in sorted(pages) if page not in outside and not (ROOT / "docs" / page).exists()
    ] == []


@pytest.mark.full
@pytest.mark.skipif(shutil.which("node") is None, reason="the search of the site runs in Node")
def test_each_query_finds_its_page_among_the_first_three(site: Path) -> None:
    assert list(lost(site)) == []


@pytest.mark.full
@in_chromium
def test_who_types_a_query_into_the_search_box_sees_its_page_among_the_first_three(site: Path) -> None:
    with Browser(chromium() or "") as browser:
        assert list(lost_in_a_browser(site, browser)) == []


@pytest.mark.full
@in_chromium
def test_a_page_of_each_type_can_be_read_on_a_screen_and_on_a_phone_in_both_themes(site: Path) -> None:
    with Browser(chromium() or "") as browser:
        assert list(ill_shown(site, browser)) == []


@in_chromium
def test_a_page_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(
        f"""<style>:focus-visible {{ outline: none }}</style><h1 style="width: 2000px">Wide</h1>
        <p style="color: #888">pale</p><p style="color: #666">fine</p><a href="#here">focus</a>
        <style>code {{ display: block; width: 300px }}</style>
        <div class="md-content"><pre><code style="overflow: auto">{"x" * 80}</code></pre>
        <pre><code style="overflow: hidden">{"y" * 99}</code></pre></div>"""
    )
    with Browser(chromium() or "") as browser:
        assert list(ill_shown(tmp_path, browser, ("page.html",), ((1280, 800),), themes=(False,))) == [
            "page.html (1280 pixels, light): the page is 2008 pixels wide in a window of 1280",
            f"page.html (1280 pixels, light): 80 characters do not fit: {'x' * 40}",
            f"page.html (1280 pixels, light): cut, and does not scroll: {'y' * 40}",
            "page.html (1280 pixels, light): contrast 3.54 of p.: pale",
        ]
        assert list(unfocused(tmp_path / "page.html", browser, 1)) == [
            'page.html: the focus is not visible on <a href="#here">focus</a>'
        ]
