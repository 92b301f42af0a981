"""What the documentation site needs of the sources of its pages. `make site` checks the pages themselves."""

import pkgutil
import re
import unicodedata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.docs.diagrams import DIAGRAMS, PICTURES, dark
from tests.docs.inspector_pictures import MOST_BYTES, VIEWS
from tests.docs.public_names import names_in_the_reference, public_names, undescribed
from tests.docs.screenshots import SCREENS, in_a_terminal, shown
from tests.docs.site import problems
from tests.docs.test_code_blocks import DOCUMENTS, ROOT, name, without_code


def anchor_of_the_site(heading: str) -> str:
    letters = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", letters).strip().lower())


def anchor_of_github(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-")


def anchors(document: Path) -> set[str]:
    """The anchors that lead to headings of a page both on the site and on GitHub."""
    headings = re.findall(r"^#+ (.*)$", without_code(document.read_text(encoding="utf-8")), re.MULTILINE)
    texts = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {anchor_of_the_site(text) for text in texts} & {anchor_of_github(text) for text in texts}


def test_links_to_headings_lead_to_headings():
    links = [
        (document, match)
        for document in DOCUMENTS
        for match in re.finditer(
            r"\]\(([^)#:\s]*)#([^)\s]+)\)", without_code(document.read_text(encoding="utf-8"))
        )
    ]
    assert len(links) > 50
    assert [
        f"{name(document)}: {match.group()}"
        for document, match in links
        if match[2] not in anchors((document.parent / match[1]).resolve() if match[1] else document)
    ] == []


def test_each_public_name_is_on_a_page_of_the_reference():
    asked = names_in_the_reference()  # of a module: for all its names
    missing = [name for name in undescribed(public_names(), asked) if name.rpartition(".")[0] not in asked]
    assert missing == [], "write `::: NAME` into the page of docs/reference where a reader looks for it"


def test_the_reference_describes_only_what_is_there():
    assert len(public_names()) > 150
    for described in names_in_the_reference():
        assert resolves(described), described


def resolves(dotted: str) -> bool:
    try:
        return pkgutil.resolve_name(dotted) is not None
    except (AttributeError, ImportError):
        return False


def test_every_page_is_in_the_navigation_of_the_site():
    listed = set(
        re.findall(
            r"^ *- (?:[\w ]+: )?([\w/-]+\.md)$",
            (ROOT / "mkdocs.yml").read_text(encoding="utf-8"),
            re.MULTILINE,
        )
    )
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert {page for page in pages if not page.startswith("decisions/0")} - listed == set()


@pytest.mark.parametrize(("page", "folder"), [("README.md", "docs/guide"), ("docs/index.md", "guide")])
def test_every_page_of_the_guide_is_linked_from_the_readme_and_the_home_page(page: str, folder: str):
    linked = set(re.findall(rf"\]\({folder}/([\w-]+\.md)", (ROOT / page).read_text(encoding="utf-8")))
    assert {path.name for path in (ROOT / "docs" / "guide").glob("*.md")} - linked == set()


def test_the_check_of_a_built_site_reports_what_is_broken(tmp_path: Path):
    (tmp_path / "reference").mkdir()
    (tmp_path / "page.html").write_text(
        """<h1 id="here">A page</h1><a href="#here">fine</a><a href="#gone">x</a><a href="reference/names.html">fine</a>
        <a href="lost.html">x</a><a href="https://example.org/elsewhere">not ours</a><img src="lost.svg" alt="x">
        <script src="https://example.org/script.js"></script><link rel="stylesheet" href="//example.org/font.css">
        <a class="version" href="#here">1.0</a>"""
    )
    (tmp_path / "other.html").write_text('<h1>A page</h1><h3>Too deep</h3><img src="page.html">')
    (tmp_path / "reference" / "names.html").write_text(
        '<a class="version">1.0</a>' + "".join(f'<p id="{n}">' for n in public_names()[1:])
    )
    assert list(problems(tmp_path)) == [
        "other.html: the header shows no version",
        "other.html: page.html has no text",
        "other.html: a heading of level 3 follows one of level 1",
        "page.html: loads https://example.org/script.js",
        "page.html: loads //example.org/font.css",
        "page.html: #gone names no anchor of that page",
        "page.html: lost.html leads nowhere",
        "page.html: lost.svg leads nowhere",
        f"reference: {public_names()[0]} is on no page",
    ]


@pytest.mark.parametrize("diagram", DIAGRAMS)
def test_a_diagram_shows_what_the_code_says_in_both_themes(diagram: str):
    drawn = [(PICTURES / f"{diagram}{end}.svg").read_text(encoding="utf-8") for end in ("", "-dark")]
    assert drawn == [DIAGRAMS[diagram](), dark(DIAGRAMS[diagram]())], "run `make pictures`"


def test_every_picture_is_made_in_both_themes_and_shown_on_a_page():
    names = {f"{name}.svg" for name in (*DIAGRAMS, *SCREENS)}
    names |= {f"inspector-{name}-{size}.png" for name, view in VIEWS.items() for size in view.shown}
    assert {path.name for path in PICTURES.iterdir()} == names | {
        name.replace(".", "-dark.") for name in names
    }
    pages = "".join(document.read_text(encoding="utf-8") for document in DOCUMENTS)
    assert [name for name in names if f"pictures/{name})" not in pages] == []


def test_no_picture_is_large():
    large = [path.name for path in PICTURES.iterdir() if path.stat().st_size > MOST_BYTES]
    assert large == []


def test_a_page_shows_the_picture_of_its_theme():
    pytest.importorskip("mkdocs")
    from tests.docs.site_hooks import with_dark_pictures

    assert with_dark_pictures("![A fork](../pictures/fork.svg) and [a link](../pictures/fork.svg)") == (
        "![A fork](../pictures/fork.svg#only-light)![A fork](../pictures/fork-dark.svg#only-dark)"
        " and [a link](../pictures/fork.svg)"
    )
    assert with_dark_pictures("![A page](pictures/a-phone.png)") == (
        "![A page](pictures/a-phone.png#only-light)![A page](pictures/a-phone-dark.png#only-dark)"
    )


@pytest.mark.parametrize("picture", sorted(PICTURES.glob("*.svg")), ids=lambda path: path.stem)
def test_a_picture_loads_nothing_from_elsewhere(picture: Path):
    svg = picture.read_text(encoding="utf-8")
    assert re.findall(r"(?:href=|src=|url\()[\"']?(?!#)[^\"')]+", svg) == []


def test_a_command_is_shown_as_it_stands_on_the_screen_in_the_end(tmp_path: Path):
    sent = in_a_terminal("printf 'wait\\rdone\\x1b[1m!\\x1b[0m\\n'; tput cols", tmp_path)
    assert shown(sent) == "done\x1b[1m!\x1b[0m\n96"


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        ({}, {}),
        (
            {"Source": "https://code.example/a/treadle"},
            {"repo_url": "https://code.example/a/treadle", "repo_name": "a/treadle"},
        ),
        ({"Documentation": "https://docs.example/treadle"}, {"site_url": "https://docs.example/treadle/"}),
    ],
)
def test_the_site_shows_the_addresses_of_the_project_if_there_are_any(
    addresses: dict[str, str], expected: dict[str, str]
):
    pytest.importorskip("mkdocs")
    from tests.docs.site_hooks import set_addresses

    config: Any = SimpleNamespace()
    set_addresses(config, addresses)
    assert vars(config) == expected
