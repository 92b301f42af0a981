"""Measures the sentences of the docs, the docstrings and the messages, and bounds them.

    python -m tests.docs.prose [--pages | --longest N | --write]

A sentence should have 14 words on average and 25 at most, name things with nouns, and hold none of the phrases that
`PHRASES` lists with their plain counterpart. `tests/docs/prose.toml` holds a figure for each page, and for all
docstrings, arguments and messages: a test fails above it. `--write` lowers figures and never raises one.
"""

import argparse
import ast
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LIMITS = ROOT / "tests" / "docs" / "prose.toml"
MEAN, LONG = 14.0, 25
"""Words of a sentence: on average, and at the 95th percentile."""
RATES = ("clauses", "phrases", "brackets")

CLAUSE = re.compile(r"\b(?:what|whatever|whoever|whichever)\b", re.IGNORECASE)
PHRASES: Mapping[str, str] = {
    r"\bnobody\b": "name the subject",
    r"\bsomebody\b": "name the subject",
    r"\bwho(?:ever)? \w+s \w+ (?:is|has|gets)\b": "name the subject",
    r"\bhow (?:it|things|matters) stands?\b": "its state",
    r"\b(?:stands|stood|stand) (?:in|on|at|behind|beside|where)\b": "is, is stored, is recorded",
    r"\b(?:comes|goes|stays) behind\b": "follows, after",
    r"\bis told\b": "is reported, appears",
    r"\bgoes by\b": "uses",
    r"\bholds? (?:up )?no other\b": "does not block the others",
    r"\bwritten down\b": "recorded",
    r"\bon its own account\b": "by itself",
    r"\bin the place of\b": "instead of",
    r"\bhas its say\b": "decides",
    r"\ball the same\b": "anyway",
    r"\bby hand of\b": "by",
    r"\b(?:such|those) as (?:are|is)\b": "that are",
    r"\bnothing that\b": "say what is so",
    r"\bis no \w+ (?:that|which)\b": "a positive rule",
}
"""Patterns of phrases that a reader stumbles over, and plain words for them."""
PATTERNS = {re.compile(pattern, re.IGNORECASE): instead for pattern, instead in PHRASES.items()}

FENCE = re.compile(r"^\s*(`{3,}|~{3,})")
ITEM = re.compile(r"^\s*(?:[-*+]|\d+\.)\s+")
SECTION = re.compile(r"(?:Args|Attributes|Raises|Returns|Yields):\n")
ITEMS = re.compile(r"^ {4}(?=\S)(?:[^:\n]*: )?", re.MULTILINE)
BULLETS = re.compile(r"^ *(?:[-*]|\d+\.) ", re.MULTILINE)
SPOKEN = re.compile(r"[A-Za-z0-9]")
ENDS = re.compile(r"(?<=[.!?])[\"')\]*_]*\s+(?=[\"'(\[*_`]*[A-Z0-9`])")
SHORT = re.compile(r"\b(e\.g|i\.e|etc|vs|cf|approx|Nr|No|St)\.")


@dataclass
class Prose:
    """The sentences of a page, or of another kind of text."""

    name: str
    sentences: list[str] = field(default_factory=list[str])

    @property
    def lengths(self) -> list[int]:
        return sorted(words(sentence) for sentence in self.sentences)

    def figures(self) -> dict[str, float]:
        """Return the mean and the 95th percentile of words, and each meter as hits in 1,000 words."""
        lengths = self.lengths or [0]
        total = max(1, sum(lengths))
        hits = {
            "clauses": sum(len(CLAUSE.findall(sentence)) for sentence in self.sentences),
            "phrases": sum(1 for sentence in self.sentences for _ in phrases(sentence)),
            "brackets": sum(max(0, without_code(sentence).count("(") - 1) for sentence in self.sentences),
        }
        return {
            "mean": round(sum(lengths) / len(lengths), 1),
            "p95": lengths[ceil(0.95 * len(lengths)) - 1],
            **{name: round(1_000 * count / total, 1) for name, count in hits.items()},
        }


def words(sentence: str) -> int:
    """Return how many words a sentence has; code in back quotes is one."""
    return sum(1 for word in without_code(sentence).split() if SPOKEN.search(word))


def without_code(sentence: str) -> str:
    return re.sub(r"`[^`]*`", "code", sentence)


def phrases(sentence: str) -> Iterator[tuple[str, str]]:
    """Yield each banned phrase of a sentence with its plain counterpart."""
    for pattern, instead in PATTERNS.items():
        for match in pattern.finditer(sentence):
            yield match.group(), instead


def sentences(paragraph: str) -> Iterator[str]:
    """Yield the sentences of a paragraph; a colon or a semicolon ends none."""
    text = SHORT.sub(lambda match: match[1].replace(".", ""), " ".join(paragraph.split()))
    yield from (part for part in ENDS.split(text) if words(part) > 1)


def paragraphs(markdown: str) -> Iterator[str]:
    """Yield the paragraphs, list items and block quotes of a page: no code, table, heading or comment."""
    fence, lines = "", list[str]()
    for line in re.sub(r"<!--.*?-->", "", markdown, flags=re.DOTALL).splitlines():
        opened = FENCE.match(line)
        if fence:
            fence = "" if opened and line.strip() == fence else fence
            continue
        text = line.strip()
        if (
            opened
            or not text
            or ITEM.match(line)
            or text.startswith(("#", "|", "!", "<", "===", "!!!", "```"))
        ):
            if lines:
                yield " ".join(lines)
            lines = []
        if opened:
            fence = opened.group(1)
        elif text and not text.startswith(("#", "|", "![", "<", "===", "!!!")):
            lines.append(ITEM.sub("", line).removeprefix("> ").strip())
    if lines:
        yield " ".join(lines)


def page(path: Path) -> Prose:
    """Return the prose of a Markdown page, with the text of its links in their place."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return Prose(
        str(path.relative_to(ROOT)), [found for each in paragraphs(text) for found in sentences(each)]
    )


def pages() -> list[Path]:
    """Return the pages that people read from end to end: no decision, changelog or generated reference."""
    folders = ("guide", "how-to", "coming-from", "examples")
    listed = [path for folder in folders for path in sorted((ROOT / "docs" / folder).glob("*.md"))]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")), *listed]


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield a module and its statements, without their expressions, which are 20 times as many."""
    ahead = [tree]
    while ahead:
        node = ahead.pop()
        yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            ahead += getattr(node, name, ())


def docstrings(tree: ast.AST) -> Iterator[tuple[str, bool]]:
    """Yield each paragraph of the docstrings, and whether it describes an argument, an attribute or an error."""
    for node in statements(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = re.sub(r"``([^`]*)``", r"`\1`", ast.get_docstring(node) or "")
            for part in text.split("\n\n") if text else ():
                if SECTION.match(part):
                    yield from ((item, True) for item in ITEMS.split(part)[1:])
                elif not part.startswith("    "):
                    yield from ((item, False) for item in BULLETS.split(part))


def spoken(node: ast.expr) -> str:
    """Return the text of a message, with a word for each value."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(spoken(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return spoken(node.left) + spoken(node.right)
    return "value"


def messages(tree: ast.AST) -> Iterator[str]:
    """Yield the texts of the errors that a module raises."""
    for node in statements(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            for argument in node.exc.args:
                text = spoken(argument)
                if words(text) > 2:
                    yield text


def sources() -> list[Prose]:
    """Return the docstrings, the lists of arguments in them, and the messages of the library."""
    docs, arguments, errors = Prose("docstrings"), Prose("arguments"), Prose("messages")
    for path in sorted((ROOT / "src" / "treadle").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for text, is_argument in docstrings(tree):
            (arguments if is_argument else docs).sentences += sentences(text)
        errors.sentences += [found for text in messages(tree) for found in sentences(text)]
    return [docs, arguments, errors]


@cache
def all_prose() -> list[Prose]:
    return [*map(page, pages()), *sources()]


def whole(name: str, parts: Iterable[Prose]) -> Prose:
    return Prose(name, [sentence for part in parts for sentence in part.sentences])


def limits() -> dict[str, dict[str, Any]]:
    return tomllib.loads(LIMITS.read_text(encoding="utf-8")) if LIMITS.exists() else {}


def exceeded(prose: Prose, limit: Mapping[str, float]) -> Iterator[str]:
    """Yield each figure of a text that is above its limit: its own, or the aim of all texts if that is higher."""
    for name, value in prose.figures().items():
        allowed = max(limit.get(name, 0), aim(name))
        if value > allowed:
            yield f"{prose.name}: {name} {value:g}, allowed {allowed:g}"


def aim(name: str) -> float:
    return {"mean": MEAN, "p95": LONG, "clauses": 4.0}.get(name, 0)


def lowered() -> dict[str, dict[str, float]]:
    """Return the figures above the aims, each no higher than it was."""
    before, after = limits(), dict[str, dict[str, float]]()
    for prose in all_prose():
        old = before.get(prose.name) if before else None
        above = {
            name: value if old is None else min(value, old.get(name, aim(name)))
            for name, value in prose.figures().items()
            if value > aim(name) and (not before or (old and name in old))
        }
        if above:
            after[prose.name] = above
    return after


def write(figures: Mapping[str, Mapping[str, float]]) -> None:
    head = "# The texts whose figures are above the aims of tests/docs/prose.py, with their limits, which only fall.\n"
    tables = (
        f'\n["{name}"]\n' + "".join(f"{key} = {value:g}\n" for key, value in table.items())
        for name, table in figures.items()
    )
    LIMITS.write_text(head + "".join(tables), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.docs.prose")
    parser.add_argument("--pages", action="store_true", help="a row for each page")
    parser.add_argument("--longest", type=int, metavar="N", help="the N longest sentences of each page")
    parser.add_argument("--phrases", action="store_true", help="each banned phrase with its page")
    parser.add_argument("--only", default="", help="texts whose name contains this")
    parser.add_argument("--write", action="store_true", help="lower the limits to what was measured")
    arguments = parser.parse_args()
    if arguments.write:
        write(lowered())
        return
    texts = [prose for prose in all_prose() if arguments.only in prose.name]
    docs = [prose for prose in texts if prose.name.endswith(".md")]
    rows = docs if arguments.pages else []
    rows = [*rows, whole(f"all {len(docs)} pages", docs), *(text for text in texts if text not in docs)]
    print(f"{'':44}{'sentences':>10}{'mean':>7}{'p95':>6}{'clauses':>9}{'phrases':>9}{'brackets':>9}")
    for prose in rows:
        figures = prose.figures()
        print(
            f"{prose.name:44}{len(prose.sentences):10}{figures['mean']:7}{figures['p95']:6}"
            + "".join(f"{figures[name]:9}" for name in RATES)
        )
    for prose in texts:
        for sentence in sorted(prose.sentences, key=words, reverse=True)[: arguments.longest or 0]:
            print(f"{prose.name}: {words(sentence)} words: {sentence}")
        for sentence in prose.sentences if arguments.phrases else ():
            for phrase, instead in phrases(sentence):
                print(f"{prose.name}: {phrase!r} ({instead}): {sentence}")


if __name__ == "__main__":
    main()
