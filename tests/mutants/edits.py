"""The small edits that a mutation run makes in a source: each is found again by its function, kind and text."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
ROOMS = ("core", "engine", "drivers", "stores")

OPPOSITES: dict[type[ast.AST], type[Any]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
SWAPPED_NAMES = {"any": "all", "all": "any", "min": "max", "max": "min"}
UNLIKE = {"isinstance", "issubclass", "getattr", "hasattr", "setattr", "cast"}
"""Functions whose arguments nobody takes for each other: to swap them fails at once."""


@dataclass(frozen=True)
class Mutant:
    """One edit; all but the line are its id, which edits elsewhere in the source leave alone."""

    module: str
    function: str
    kind: str
    text: str
    nth: int
    """How many edits of the same kind and text are before it in its function."""
    line: int

    @property
    def id(self) -> str:
        return f"{self.module}:{self.function} {self.kind} #{self.nth} {self.text}"

    @property
    def room(self) -> str:
        return self.module.split(".")[1]

    @property
    def path(self) -> Path:
        return path_of(self.module)


def path_of(module: str) -> Path:
    path = ROOT / "src" / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def modules(room: str) -> list[str]:
    """Return the names of the modules of a room, which is a folder of `src/treadle`."""
    files = sorted((ROOT / "src" / "treadle" / room).rglob("*.py"))
    return [
        ".".join(file.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
        for file in files
    ]


Put = Callable[[ast.AST], None]
Found = tuple[str, str, ast.AST, Callable[[], None]]
"""The function, the kind, the node, and what makes the edit in the tree."""


def _replacing(parent: ast.AST, field: str, at: int | None) -> Put:
    def put(new: ast.AST) -> None:
        if at is None:
            setattr(parent, field, new)
        else:
            getattr(parent, field)[at] = new

    return put


def _children(node: ast.AST) -> Iterator[tuple[ast.AST, str, Put]]:
    for field, value in ast.iter_fields(node):
        if isinstance(value, ast.AST):
            yield value, field, _replacing(node, field, None)
        elif isinstance(value, list):
            for at, child in enumerate(value):
                if isinstance(child, ast.AST):
                    yield child, field, _replacing(node, field, at)


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _yields(node: ast.AST) -> bool:
    return any(isinstance(inner, ast.Yield | ast.YieldFrom) for inner in ast.walk(node))


def _walk(node: ast.AST, scope: str, function: str | None, put: Put) -> Iterator[Found]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        name = f"{scope}{node.name}"
        for at, statement in enumerate(node.body):
            yield from _walk(statement, f"{name}.<locals>.", name, _replacing(node, "body", at))
        return
    if isinstance(node, ast.ClassDef):
        for at, statement in enumerate(node.body):
            yield from _walk(statement, f"{scope}{node.name}.", None, _replacing(node, "body", at))
        return
    if isinstance(node, ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom) or _is_docstring(node):
        return
    if function is not None:
        for kind, edit in _edits(node, put):
            yield function, kind, node, edit
        if isinstance(node, ast.Raise):
            return  # its words are for people
    for child, field, putting in _children(node):
        if field not in ("annotation", "pattern", "type"):
            yield from _walk(child, scope, function, putting)


def _edits(node: ast.AST, put: Put) -> Iterator[tuple[str, Callable[[], None]]]:
    match node:
        case ast.Compare(ops=ops):
            for at, op in enumerate(ops):
                yield f"compare{at or ''}", lambda at=at, op=op: ops.__setitem__(at, OPPOSITES[type(op)]())
                if isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE):
                    reverse = {ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt}[type(op)]
                    yield f"reverse{at or ''}", lambda at=at, new=reverse: ops.__setitem__(at, new())
        case ast.BoolOp(op=op, values=values):
            yield "boolean", lambda: setattr(node, "op", OPPOSITES[type(op)]())
            yield "operand", lambda: put(values[0])
            yield "operand last", lambda: put(values[-1])
        case ast.BinOp(op=op) if type(op) in OPPOSITES:
            yield "arithmetic", lambda: setattr(node, "op", OPPOSITES[type(op)]())
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "not", lambda: put(operand)
        case ast.Constant(value=bool() as value):
            yield "constant", lambda: setattr(node, "value", not value)
        case ast.Constant(value=int() | float() as value):
            yield "constant", lambda: setattr(node, "value", value + 1)
        case ast.If(test=test) | ast.While(test=test):
            new = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else None
            if new is None:
                yield "negated", lambda: setattr(node, "test", ast.UnaryOp(ast.Not(), test))
            yield "never", lambda: setattr(node, "test", ast.Constant(False))
        case ast.IfExp(body=body, orelse=orelse):
            yield "first branch", lambda: put(body)
            yield "second branch", lambda: put(orelse)
        case ast.comprehension(ifs=[*ifs]) if ifs:
            yield "filter", lambda: setattr(node, "ifs", [])
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant) or value.value:
            yield "return", lambda: setattr(node, "value", ast.Constant(None))
        case ast.Expr(value=ast.Call() | ast.Await() as value) if not _yields(value):
            yield "removed", lambda: put(ast.Pass())
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.AugAssign() | ast.Delete():
            if not _yields(node):
                yield "removed", lambda: put(ast.Pass())
        case ast.Raise():
            yield "removed", lambda: put(ast.Pass())
        case ast.Break():
            yield "loop", lambda: put(ast.Continue())
        case ast.Continue():
            yield "loop", lambda: put(ast.Pass())
        case ast.Call(func=ast.Name(id=name) as called) if name in SWAPPED_NAMES:
            yield "extreme", lambda: setattr(called, "id", SWAPPED_NAMES[name])
        case ast.Call(args=[ast.Name() | ast.Attribute() as one, ast.Name() | ast.Attribute() as two, *_]):
            if ast.unparse(node.func) not in UNLIKE:
                yield "swapped", lambda: node.args.__setitem__(slice(0, 2), [two, one])
        case _:
            pass


def _found(tree: ast.Module, module: str) -> Iterator[tuple[Mutant, Callable[[], None]]]:
    seen: Counter[tuple[str, str, str]] = Counter()
    for child, _, put in _children(tree):
        for function, kind, node, edit in _walk(child, "", None, put):
            text = _text(node)
            key = function, kind, text
            line = getattr(node, "lineno", 0)
            yield Mutant(module, function, kind, text, seen[key], line), edit
            seen[key] += 1


def _text(node: ast.AST) -> str:
    match node:
        case ast.If(test=test) | ast.While(test=test):
            return ast.unparse(test)
        case ast.comprehension():
            return ast.unparse(node).strip()
        case _:
            return ast.unparse(node)


def mutants_of(module: str, source: str | None = None) -> list[Mutant]:
    """Return all edits of the functions of a module."""
    tree = ast.parse(path_of(module).read_text() if source is None else source)
    return [mutant for mutant, _ in _found(tree, module)]


def mutated(mutant: Mutant, source: str | None = None) -> ast.Module | None:
    """Return the tree of the module with one edit made, or nothing if the source has no such place any more."""
    return mutated_by_id(mutant.id, mutant.path.read_text() if source is None else source)


def mutated_by_id(id: str, source: str) -> ast.Module | None:
    """Return the tree of the module that an id names, with its edit made."""
    tree = ast.parse(source)
    for other, edit in _found(tree, id.split(":", maxsplit=1)[0]):
        if other.id == id:
            edit()
            return ast.fix_missing_locations(tree)
    return None


def chosen(seed: int, count: int, rooms: tuple[str, ...] = ROOMS) -> list[Mutant]:
    """Choose mutants, as many of each room as its share of the lines; an edit of a source changes few of the others."""

    def rank(mutant: Mutant) -> bytes:
        return sha256(f"{seed} {mutant.id}".encode()).digest()

    lines = {room: sum(len(path_of(m).read_text().splitlines()) for m in modules(room)) for room in rooms}
    chosen: list[Mutant] = []
    for room in rooms:
        all_of_room = [mutant for module in modules(room) for mutant in mutants_of(module)]
        chosen += sorted(all_of_room, key=rank)[: round(count * lines[room] / sum(lines.values()))]
    return sorted(chosen, key=rank)
