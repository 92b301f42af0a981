"""Hooks of the documentation site (`mkdocs.yml`): pages of files that are not in docs/, and links between them.

The examples, the changelog, the contributing page and the list of decisions become pages. A link to a file of the
repository becomes a link to its page. A block that is written to a file shows the file's name.
The addresses of the site and of the repository are those of `[project.urls]` in `pyproject.toml`, if there are any.
A search finds the guide before programs and decisions.
"""

from __future__ import annotations

import ast
import posixpath
import re
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, Files

from tests.docs.reference import with_old_addresses
from tests.docs.search import WORDS

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PICTURE = re.compile(r"!\[([^\]]*)\]\(((?:\.\./)*pictures/[\w-]+)(\.svg|\.png)\)")
LINK = re.compile(r"(\]\()([^)#:\s]+)((?:#[^)\s]*)?\))")
FENCE = re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE)
WRITTEN = re.compile(r"^( *)<!-- file: (\S+) -->\n\1```(\w+)$", re.MULTILINE)


def pages_outside_of_docs() -> dict[str, Path]:
    """Return the files of the repository that are pages of the site, by their address there."""
    examples = sorted((ROOT / "examples").glob("*.py"))
    project = [ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]
    return {
        **{f"examples/{path.stem}.md": path for path in examples},
        **{f"project/{path.stem.lower()}.md": path for path in project},
        "project/license.md": ROOT / "LICENSE",
    }


def title_of_example(path: Path) -> str:
    """Return the first line of the docstring of an example, or its name."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    return (docstring or path.stem).partition("\n")[0].rstrip(".")


def page_of_example(source: str, name: str) -> str:
    """Return an example as a page: its docstring, then the program."""
    title, _, rest = (ast.get_docstring(ast.parse(source)) or name).partition("\n")
    text = rest.strip("\n")
    return f'# {title.rstrip(".")}\n\n{text}\n\n```python title="{name}"\n{source}```\n'


def title_of_decision(path: Path) -> str:
    """Return the heading of a decision without its number."""
    return re.sub(r"^# \d+[.:] ", "", path.read_text(encoding="utf-8").partition("\n")[0])


def list_of_decisions() -> str:
    """Return the page that lists all decisions, newest first."""
    pages = sorted((DOCS / "decisions").glob("0*.md"), reverse=True)
    links = "\n".join(f"- {path.name[:4]} [{title_of_decision(path)}]({path.name})" for path in pages)
    return f"# Decisions\n\nWhat was decided, and why.\n\n{links}\n"


def set_addresses(config: MkDocsConfig, addresses: dict[str, str]) -> None:
    """Set the address of the repository and that of the site, if the project has them."""
    if source := addresses.get("Source", "").removesuffix("/"):
        config.repo_url = source
        config.repo_name = "/".join(source.split("/")[-2:])
    if site := addresses.get("Documentation"):
        config.site_url = f"{site.removesuffix('/')}/"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the examples into the navigation; show the addresses of the project, and its version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    set_addresses(config, project.get("urls", {}))
    config.extra["treadle_version"] = version("treadle")
    for section in config.nav or ():
        if "Examples" in section:
            section["Examples"] += [
                {title_of_example(path).partition(":")[0]: page}
                for page, path in pages_outside_of_docs().items()
                if page.startswith("examples/")
            ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    for uri, path in pages_outside_of_docs().items():
        text = path.read_text(encoding="utf-8")
        is_code = path.suffix == ".py"
        page = page_of_example(text, f"examples/{path.name}") if is_code else text
        page = (
            page
            if path.suffix
            else f"# License\n\nTreadle is licensed under Apache-2.0.\n\n```text\n{text}```\n"
        )
        files.append(File.generated(config, uri, content=page))
    files.append(File.generated(config, "decisions/index.md", content=list_of_decisions()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links to files of the repository into links between pages, and show the names of written files."""
    uri = page.file.src_uri
    if uri in pages_outside_of_docs() or uri.startswith("decisions/"):
        page.meta["search"] = {"boost": 0.2}  # the guide and the reference come first
    if uri == "index.md":
        page.meta["hide"] = ["navigation", "toc"]
    if uri in WORDS:
        page.meta["tags"] = WORDS[uri]
    if uri == "reference/runner.md":
        markdown = with_old_addresses(markdown)
    source = pages_outside_of_docs().get(uri, DOCS / uri)
    titled = WRITTEN.sub(r'\1```\3 title="\2"', with_dark_pictures(markdown))
    parts: list[str] = []
    end = 0
    for fence in FENCE.finditer(titled):
        parts += [with_links_of_the_site(titled[end : fence.start()], source, uri), fence.group()]
        end = fence.end()
    return "".join([*parts, with_links_of_the_site(titled[end:], source, uri)])


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Name the dialog of the search, which the theme leaves without a name."""
    unnamed = 'data-md-component="search" role="dialog"'
    return output.replace(unnamed, f'{unnamed} aria-label="Search"')


def with_dark_pictures(text: str) -> str:
    """Return the text of a page with each picture twice: the theme shows the one for its colours."""
    return PICTURE.sub(r"![\1](\2\3#only-light)![\1](\2-dark\3#only-dark)", text)


def with_links_of_the_site(text: str, source: Path, uri: str) -> str:
    """Return the text of a page with its links to files of the repository as links between pages of the site."""
    moved = {path: page for page, path in pages_outside_of_docs().items()}

    def link(match: re.Match[str]) -> str:
        target = (source.parent / match[2]).resolve()
        if target in moved:
            address = moved[target]
        elif target.is_relative_to(DOCS):
            address = target.relative_to(DOCS).as_posix()
        else:
            return match[0]
        return f"{match[1]}{posixpath.relpath(address, posixpath.dirname(uri) or '.')}{match[3]}"

    return LINK.sub(link, text)
