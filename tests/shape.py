"""Measures of the sources, from their syntax trees: imports and their cycles, lengths and callers of functions.

    python -m tests.shape

Every import counts: those at the top of a module, those under `TYPE_CHECKING`, and those inside functions.
"""

from __future__ import annotations

import ast
import gc
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src"
VAGUE = re.compile(r"\b(nobody|somebody|whoever|anybody|whatever)\b", re.IGNORECASE)
"""Subjects that name no part of the system."""
CLAUSE = re.compile(r"\bwhat\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Function:
    module: str
    name: str
    lines: int


@cache
def modules() -> Mapping[str, ast.Module]:
    """Return the syntax tree of each module of the package, by its dotted name."""
    trees = {}
    gc.disable()  # else it looks at the millions of nodes again and again: longer than parsing takes
    try:
        for path in sorted((SOURCES / "treadle").rglob("*.py")):
            name = ".".join(path.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__")
            trees[name] = ast.parse(path.read_text(encoding="utf-8"))
        gc.freeze()  # they stay: no later collection looks at them either
    finally:
        gc.enable()
    return trees


def imported(tree: ast.Module) -> Iterator[str]:
    """Yield the modules of the package that a module imports, anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules())
        elif isinstance(node, ast.ImportFrom) and node.module in modules():
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield submodule if submodule in modules() else node.module


def untested(*packages: str) -> list[str]:
    """Return the modules with functions, of some packages, that have no test file of their name, by their paths."""
    paths = [
        path.relative_to(SOURCES / "treadle")
        for package in packages
        for path in sorted((SOURCES / "treadle" / package).rglob("*.py"))
        if path.name != "__init__.py" and "def " in path.read_text("utf-8")
    ]
    return [str(path) for path in paths if not (ROOT / "tests" / path.parent / f"test_{path.name}").is_file()]


def cycles() -> list[list[str]]:
    """Return the groups of modules that import each other, directly or through each other."""
    graph = {name: set(imported(tree)) - {name} for name, tree in modules().items()}
    reached = {name: reachable(graph, name) for name in graph}
    groups = {
        tuple(sorted(other for other in reached[name] if name in reached[other]))
        for name in graph
        if name in reached[name]
    }
    return sorted(map(list, groups))


def reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    """Return what can be reached from a node by at least one step."""
    seen: set[str] = set()
    ahead = [*graph[start]]
    while ahead:
        name = ahead.pop()
        if name not in seen:
            seen.add(name)
            ahead += graph[name]
    return seen


@cache
def functions() -> list[Function]:
    """Return all functions and methods, the longest first."""
    functions_found = [
        Function(module, node.name, (node.end_lineno or node.lineno) - node.lineno + 1)
        for module, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return sorted(functions_found, key=lambda function: -function.lines)


def percentile(share: float) -> int:
    """Return a length that this share of the functions does not exceed."""
    lengths = sorted(function.lines for function in functions())
    return lengths[int(len(lengths) * share)]


def used_once() -> tuple[list[Function], list[Function]]:
    """Return the private functions whose name is used once in the whole package, and all private functions."""
    uses: Counter[str] = Counter()
    for tree in modules().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                uses[node.id] += 1
            elif isinstance(node, ast.Attribute):
                uses[node.attr] += 1
    private = [
        function
        for function in functions()
        if function.name.startswith("_") and not function.name.startswith("__")
    ]
    return [function for function in private if uses[function.name] == 1], private


def vague_subjects() -> list[str]:
    """Return each place in the sources where a subject names no part of the system, as `file:line: text`."""
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted((SOURCES / "treadle").rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for _ in VAGUE.finditer(line)
    ]


def clauses_per_1000_lines() -> float:
    """Return how often 1,000 lines of the sources say "what", and so mostly a clause instead of a noun."""
    texts = [path.read_text(encoding="utf-8") for path in (SOURCES / "treadle").rglob("*.py")]
    return 1_000 * sum(len(CLAUSE.findall(text)) for text in texts) / sum(text.count("\n") for text in texts)


if __name__ == "__main__":
    once, private = used_once()
    longest = functions()[0]
    print(*(f"cycle: {', '.join(group)}" for group in cycles()), sep="\n")
    print(
        f"longest function: {longest.lines} lines, {longest.module}.{longest.name}; 99 %: {percentile(0.99)}"
    )
    print(f"private functions used once: {len(once)} of {len(private)}, {len(once) / len(private):.0%}")
    print(f"clauses in place of nouns: {clauses_per_1000_lines():.1f} in 1,000 lines")
    print(*vague_subjects(), sep="\n")
