"""What a process of a mutation run imports instead of a source of Treadle: see `install`.

A map of bytes in a file tells which functions were entered: each process of a test, forked or started, writes to it.
"""

from __future__ import annotations

import ast
import importlib.machinery
import mmap
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

MAP = "TREADLE_MUTANTS_ENTERED"
MUTANT = "TREADLE_MUTANTS_MUTANT"
SIZE = 1 << 20
ROOMS = tuple(f"treadle.{room}." for room in ("core", "engine", "drivers", "stores"))


def place(module: str, function: str) -> int:
    """Return the byte of the map that tells of a function; two in a thousand share one, which costs a few tests."""
    return crc32(f"{module}:{function}".encode()) % SIZE


def functions(node: ast.AST, scope: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield the functions of a tree, with their qualified names."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{scope}{child.name}", child
            yield from functions(child, f"{scope}{child.name}.<locals>.")
        elif isinstance(child, ast.ClassDef):
            yield from functions(child, f"{scope}{child.name}.")
        else:
            yield from functions(child, scope)


def observed(source: bytes, module: str) -> ast.Module:
    """Return the tree of a module whose functions first mark their byte of the map."""
    tree = ast.parse(source)
    for name, function in functions(tree):
        first = function.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            if len(function.body) == 1:
                continue
            first = function.body[1]
        mark = ast.parse(f"_entered_[{place(module, name)}] = 1").body[0]
        for node in ast.walk(mark):
            if hasattr(node, "lineno"):
                ast.copy_location(node, first)
        function.body.insert(function.body.index(first), mark)
    return tree


class Loader(importlib.machinery.SourceFileLoader):
    """Compiles a source with what `install` was asked for, and keeps no bytecode of it."""

    entered: mmap.mmap | None = None
    mutant: str | None = None

    def get_code(self, fullname: str) -> types.CodeType:
        path = self.get_filename(fullname)
        source = self.get_data(path)
        if self.entered is not None:
            return compile(observed(source, fullname), path, "exec", dont_inherit=True)
        from tests.mutants.edits import mutated_by_id

        tree = mutated_by_id(str(self.mutant), source.decode())
        return compile(tree or source, path, "exec", dont_inherit=True)

    def exec_module(self, module: types.ModuleType) -> None:
        if self.entered is not None:
            module.__dict__["_entered_"] = self.entered
        super().exec_module(module)


class Finder(importlib.machinery.PathFinder):
    """Finds the modules that are imported in another way."""

    only: str | tuple[str, ...] = ROOMS

    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> Any:
        if not fullname.startswith(ROOMS) or (isinstance(cls.only, str) and fullname != cls.only):
            return None
        spec = super().find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = Loader(spec.loader.name, spec.loader.path)
        return spec


def install() -> None:
    """Import by what the environment says: a map of entered functions, or a mutant, or neither."""
    if path := os.environ.get(MAP):
        with Path(path).open("r+b") as file:
            Loader.entered = mmap.mmap(file.fileno(), SIZE)
    elif mutant := os.environ.get(MUTANT):
        Loader.mutant = mutant
        Finder.only = mutant.split(":")[0]
    else:
        return
    sys.meta_path.insert(0, Finder)
