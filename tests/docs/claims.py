"""Tells what of a piece of code in the docs is not there: a name, a parameter, a field, a command, an option.

A claim is written as the docs write it: `Limits(cost=)`, `runner.run(agent, text, thread_id=)`, `RunResult.cost`,
`treadle tasks --label`, `"openai:..."`, `@tool(read_only=True)`, `treadle.server`, `pip install 'treadle[otel]'`.
"""

import ast
import builtins
import inspect
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import typer.main

import treadle.events
from tests.docs.tables import DOCS
from treadle.cli.main import app
from treadle.core.events import EVENTS
from treadle.core.observation import READ_OUTPUT
from treadle.errors import ModelUnknown
from treadle.llm.registry import bare_model
from treadle.results.states import StateWord
from treadle.runner.stream import EventStream, StepStream
from treadle.runner.sync import SyncRunner
from treadle.tools import ToolOptions

HOMES = (
    "treadle",
    "treadle.models",
    "treadle.events",
    "treadle.errors",
    "treadle.telemetry",
    "treadle.tools",
)
VARIABLES: Mapping[str, tuple[type, ...]] = {
    "Path": (Path,),
    "agent": (treadle.Agent,),
    "ctx": (treadle.ToolContext, treadle.StepContext, treadle.NodeContext, treadle.RequestContext),
    "event": (treadle.events.Event,),
    "handle": (treadle.RunHandle,),
    "out": (treadle.TaskStepOutput,),
    "request": (treadle.ModelRequest,),
    "result": (treadle.RunResult,),
    "runner": (treadle.Runner,),
    "stream": (EventStream, StepStream),
    "task": (treadle.Task,),
    "usage": (treadle.TaskUsage,),
}
"""What the variables of the docs are, and what they import besides."""

STORES = {"memory", "postgresql", "sqlite"}


def problems_of(claim: str) -> list[str]:
    """Return what of a claim is not there; nothing if all of it is."""
    claim = claim.strip()
    if "/" in claim and " " not in claim and "(" not in claim:
        return []  # a path, which no code decides
    if claim.startswith("pip install"):
        return problems_of_extras(claim)
    if re.match(r"treadle [a-z-]", claim) or claim.startswith("--"):
        return problems_of_command(claim)
    if re.fullmatch(r"treadle(\.\w+)+", claim):
        return [] if resolved(claim) is not None else [f"{claim} cannot be imported"]
    if claim.startswith("."):
        names = re.findall(r"\.(\w+)", claim)
        return [f"no public class has .{name}" for name in names if name not in members()]
    if re.fullmatch(r"[a-z][a-z-]*:", claim):
        return list(problems_of_text(claim))
    if (parameter := re.match(r"(\w+)=(?!=)", claim)) and parameter[1] not in parameters():
        return [f"nothing public has a parameter {parameter[1]}"]
    if parameter:
        claim = claim[parameter.end() :] or "..."
    return list(problems_of_expression(claim))


def problems_of_extras(claim: str) -> list[str]:
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = re.findall(r"treadle\[([\w,-]+)\]", claim)
    asked = [extra for group in named for extra in group.split(",")]
    return [f"no extra is called {extra}" for extra in asked if extra not in project["optional-dependencies"]]


def problems_of_command(claim: str) -> list[str]:
    command: Any = typer.main.get_command(app())
    words = claim.removeprefix("treadle").split()
    known = {option for parameter in options_of(command) for option in parameter}
    if claim.startswith("--"):
        return [f"no command has {word}" for word in words if word.startswith("--") and word not in known]
    while words and hasattr(command, "commands"):
        if words[0] not in command.commands:
            return [f"there is no command {claim}"]
        command = command.commands[words.pop(0)]
    known = {option for parameter in options_of(command) for option in parameter}
    return [
        f"{claim}: no {word}" for word in words if word.startswith("--") and word.split("=")[0] not in known
    ]


def options_of(command: Any) -> Iterator[list[str]]:
    for parameter in command.params:
        yield [*parameter.opts, *parameter.secondary_opts]
    for inner in getattr(command, "commands", {}).values():
        yield from options_of(inner)


def problems_of_expression(claim: str) -> Iterator[str]:
    code = re.sub(r"^(\w+ = )?(async with |await )?", "", claim.lstrip("@"))
    code = re.sub(r" as \w+$", "", code)
    if code in vocabulary():
        return
    code = re.sub(r"=(?=\s*[,)]|$)", "=...", code)
    try:
        tree = ast.parse(code, mode="eval").body
    except SyntaxError:
        yield f"{claim!r} is neither an expression, nor a command"
        return
    yield from problems_of_node(tree, claim)


def problems_of_node(node: ast.expr, claim: str) -> Iterator[str]:
    match node:
        case ast.Name(id=name):
            if name not in vocabulary():
                yield f"{name} is no public name, parameter or field"
        case ast.Constant(value=str(text)):
            yield from problems_of_text(text)
        case ast.Attribute() | ast.Subscript():
            if not candidates(node):
                yield f"there is no {ast.unparse(node)}"
        case ast.Call(func=func, args=args, keywords=keywords):
            callables = candidates(func)
            if not callables:
                yield f"there is no {ast.unparse(func)}"
            for named in keywords:
                if callables and named.arg and not any(takes(each, named.arg) for each in callables):
                    yield f"{ast.unparse(func)} takes no {named.arg}="
                yield from problems_of_value(callables, named)
            for part in (*args, *(named.value for named in keywords)):
                yield from (problem for inner in calls_in(part) for problem in problems_of_node(inner, claim))
        case _:
            yield from (problem for inner in calls_in(node) for problem in problems_of_node(inner, claim))


def problems_of_text(text: str) -> Iterator[str]:
    """Yield what is wrong with text in quotes, which may name a model or a store."""
    scheme, colon, _ = text.partition(":")
    if colon and scheme not in STORES and not provider_is_known(scheme):
        yield f"no provider is called {scheme}"


def problems_of_value(callables: list[Any], named: ast.keyword) -> Iterator[str]:
    """Yield that a parameter does not take this text, if it takes only certain ones."""
    if isinstance(named.value, ast.Constant) and isinstance(value := named.value.value, str):
        allowed = {word for each in callables for word in literals(hints(each).get(named.arg or ""))}
        if allowed and value not in allowed:
            yield f"{named.arg}= takes {sorted(allowed)}, not {value!r}"


def calls_in(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the calls in an argument, and the classes it names; other names in it stand for values of the reader."""
    for part in ast.walk(node):
        if isinstance(part, ast.Call) or (isinstance(part, ast.Name) and part.id[0].isupper()):
            yield part


def candidates(node: ast.expr) -> list[Any]:
    """Return what an expression may stand for: variables of the docs stand for their classes."""
    match node:
        case ast.Name(id=name) if name in VARIABLES:
            return list(VARIABLES[name])
        case ast.Name(id=name):
            found = [value for home in HOMES if (value := resolved(f"{home}.{name}")) is not None]
            return found or [each for cls in public_classes() if (each := member(cls, name)) is not None]
        case ast.Attribute(value=value, attr=attr):
            if isinstance(value, ast.Name) and value.id in {"asyncio", "treadle"}:
                return [each for each in [resolved(f"{value.id}.{attr}")] if each is not None]
            return [each for owner in candidates(value) if (each := member(owner, attr)) is not None]
        case ast.Subscript(value=value) | ast.Await(value=value):
            return candidates(value)
        case ast.Call(func=func):
            return [result for each in candidates(func) for result in results(each)]
        case _:
            return []


def results(target: Any) -> list[Any]:
    """Return the class of what a call returns."""
    if isinstance(target, type):
        return [target]
    kind = hints(target).get("return")
    return [kind] if isinstance(kind, type) else [get_origin(kind)] if get_origin(kind) is not None else []


def member(owner: Any, name: str) -> Any:
    """Return an attribute of a class, or the type of a field; None if it has none of that name."""
    if name.startswith("_"):
        return None
    if owner is treadle.Runner and name == "sync":
        return SyncRunner
    kind = hints(owner).get(name)
    if isinstance(kind, type) and kind.__module__.startswith("treadle"):
        return kind
    return getattr(owner, name, name if kind is not None else None)


def takes(target: Any, name: str) -> bool:
    """Tell whether a callable takes an argument of that name."""
    if target is treadle.tool:
        return name in ToolOptions.__annotations__
    if target is treadle.Agent.replace:
        return takes(treadle.Agent, name)
    try:
        parameters = inspect.signature(target).parameters
    except (TypeError, ValueError):
        return False
    if name in parameters:
        return True
    passes_on = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    verb = getattr(treadle.Runner, getattr(target, "__name__", ""), None)
    return passes_on and verb is not None and verb is not target and takes(verb, name)


@cache
def resolved(dotted: str) -> Any:
    module, _, name = dotted.rpartition(".")
    with suppress(ImportError):
        return import_module(dotted)
    with suppress(ImportError):
        return getattr(import_module(module), name, None)
    return None


def provider_is_known(name: str) -> bool:
    try:
        bare_model(f"{name}:any")
    except ModelUnknown:
        return False
    return True


def public_of(module: str) -> list[str]:
    """Return the public names of a module, which may have no `__all__`."""
    home = import_module(module)
    return list(getattr(home, "__all__", None) or (name for name in vars(home) if name[0] != "_"))


@cache
def public_classes() -> list[type]:
    names = [(home, name) for home in HOMES for name in public_of(home)]
    found = [resolved(f"{home}.{name}") for home, name in names]
    classes = dict.fromkeys([*(each for each in found if isinstance(each, type)), EventStream, StepStream])
    for cls in [*classes]:  # what their fields hold is public with them
        for kind in hints(cls).values():
            parts = [part for outer in (kind, *get_args(kind)) for part in (outer, *get_args(outer))]
            classes |= dict.fromkeys(
                p for p in parts if isinstance(p, type) and p.__module__.startswith("treadle.")
            )
    return list(classes)


def hints(target: Any) -> Mapping[str, Any]:
    """Return the types of the fields of a class, or of the parameters of a function, as far as they are known here."""
    with suppress(Exception):
        return get_type_hints(target)
    kinds: dict[str, Any] = {}
    for cls in reversed(getattr(target, "__mro__", ())):
        kinds |= getattr(cls, "__annotations__", {})
    return kinds


def literals(kind: Any) -> set[str]:
    """Return the texts that a type allows, if it allows only certain ones."""
    if get_origin(kind) is Literal:
        return {word for word in get_args(kind) if isinstance(word, str)}
    if get_origin(kind) in {Union, UnionType}:
        parts = [part for part in get_args(kind) if part is not type(None)]
        return set().union(*map(literals, parts)) if all(map(literals, parts)) else set()
    return set()


@cache
def members() -> frozenset[str]:
    """Return the names of all attributes and fields of public classes."""
    names = {name for cls in public_classes() for name in (*dir(cls), *hints(cls))}
    return frozenset(name for name in names if not name.startswith("_"))


@cache
def parameters() -> frozenset[str]:
    """Return the names of all parameters of public functions, classes and their methods."""
    targets: list[Callable[..., Any]] = [treadle.tool]
    for cls in public_classes():
        targets += [cls, *(value for name, value in inspect.getmembers(cls, callable) if name[0] != "_")]
    names = set(ToolOptions.__annotations__)
    for target in targets:
        with suppress(TypeError, ValueError):
            names |= set(inspect.signature(target).parameters)
    return frozenset(names)


@cache
def vocabulary() -> frozenset[str]:
    """Return every word that may stand alone: names, members, parameters, events, and values of their fields."""
    words = {name for home in HOMES for name in public_of(home)}
    words |= (
        set(VARIABLES)
        | set(EVENTS)
        | {READ_OUTPUT}
        | set(get_args(StateWord))
        | set(dir(builtins))
        | {"asyncio"}
    )
    for cls in public_classes():
        for kind in hints(cls).values():
            words |= literals(kind)
    return frozenset(words | members() | parameters())
