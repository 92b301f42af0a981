"""The operators of comparisons, a fixed list. The outcome of each is true, false or unknown."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from posixpath import isabs, normpath
from typing import Any, Final, TypeAlias, cast
from urllib.parse import urlsplit

from treadle.core.data import frozen
from treadle.core.host_names import is_host
from treadle.policy.patterns import matches, texts

Known: TypeAlias = bool | None
"""The outcome of a comparison; None is unknown."""


class Mistake(Exception):
    """A mistake in a rule; the message does not name the rule.

    Args:
        text: the mistake and its fix.
        field: the field of the rule that has it.
    """

    def __init__(self, text: str, field: str = "when") -> None:
        super().__init__(text)
        self.field = field


@frozen
class Operator:
    """One way to compare.

    Args:
        says: how it is written in a sentence.
        compare: compares a value with the operand; None if they cannot be compared.
        check: raises `Mistake` for an operand of another type.
        negative: whether the outcome is inverted.
        whole_lists: whether a list is compared as a whole, not item by item. None: as a whole if the operand is a list
            too.
    """

    says: str
    compare: Callable[[Any, Any], Known]
    check: Callable[[Any], None]
    negative: bool = False
    whole_lists: bool | None = False

    def outcome(self, value: Any, operand: Any) -> Known:
        """Return the outcome of comparing a value, or null, with the operand."""
        if value is None:
            return self.negative
        outcome = self.compare(value, operand)
        return outcome if outcome is None or not self.negative else not outcome


def _is(value: Any, operand: Any) -> Known:
    if _kind(value) != _kind(operand):
        return None
    if isinstance(value, list):
        items = cast("list[Any]", value)
        outcomes = [_is(item, each) for item, each in zip(items, operand, strict=False)]
        if len(items) != len(operand) or False in outcomes:
            return False
        return None if None in outcomes else True
    return value == operand


def _is_in(value: Any, operand: Any) -> Known:
    return _any([_is(value, each) for each in operand])


def _any(outcomes: list[Known]) -> Known:
    return True if True in outcomes else None if None in outcomes else False


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "truth"
    return "number" if isinstance(value, (int, float)) else type(value).__name__


def _by_number(compare: Callable[[float, float], bool]) -> Callable[[Any, Any], Known]:
    def outcome(value: Any, operand: Any) -> Known:
        return compare(value, operand) if _kind(value) == "number" else None

    return outcome


def _matches(value: Any, operand: Any) -> Known:
    return matches(operand, value) if isinstance(value, str) else None


def _contains(value: Any, operand: Any) -> Known:
    parts = cast("list[Any]", operand) if isinstance(operand, list) else [operand]
    if isinstance(value, list):
        items = [item for item in cast("list[Any]", value) if item is not None]
        return _any([_is(item, part) for item in items for part in parts])
    if not isinstance(value, str) or not all(isinstance(part, str) for part in parts):
        return None
    return any(part in value for part in parts)


def _host(value: Any, operand: Any) -> Known:
    """Return whether a web URL leads to one of the hosts. Unknown for URLs that programs parse differently.

    Other schemes are unknown: the host of a `file:` or `javascript:` URL does not tell where it leads.
    """
    if not isinstance(value, str) or "\\" in value or " " in value or not value.isprintable():
        return None
    try:
        url = urlsplit(value)
        host = url.hostname
    except ValueError:
        return None
    if url.scheme not in _WEB or not host or not is_host(host):
        return None
    return matches([pattern.lower() for pattern in texts(operand)], host.removesuffix("."))


def _recipients(value: Any, operand: Any) -> Known:
    """Return whether all addresses in a text match a pattern. Unknown if only some do, and for odd texts."""
    if not isinstance(value, str) or len(value) > _LINE:
        return None
    patterns = [pattern.lower() for pattern in texts(operand)]
    outcomes = set[bool]()
    for part in _SEPARATOR.split(value.strip().rstrip(",;")):
        address = _ADDRESS.fullmatch(part)
        if address is None:
            return None
        outcomes.add(matches(patterns, (address["bare"] or address["named"]).lower()))
    return outcomes.pop() if len(outcomes) == 1 else None


_LINE: Final = 10_000
_SEPARATOR: Final = re.compile(r" *[,;] *")
_ATOM: Final = r"[A-Za-z0-9#$&'+/=?^_`{|}~-]+"
_ATOMS: Final = rf"{_ATOM}(?:\.{_ATOM})*@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*"
_ADDRESS: Final = re.compile(rf"(?P<bare>{_ATOMS})|[\w .'-]*<(?P<named>{_ATOMS})>")
"""An address, alone or after a name. Quoted names, comments and groups are unknown: programs parse them differently.

`%` and `!` route mail on to another host, as in `eve%evil.com@example.com`, and `*` is a pattern.
"""

_WEB: Final = ("http", "https", "ws", "wss")
"""The schemes whose host is the server that is contacted; `urlsplit` lower-cases them."""


def _within(value: Any, operand: Any) -> Known:
    """Return whether a path stays below one of some folders, as written; links are not followed."""
    if not isinstance(value, str) or "\\" in value or "\0" in value or value.startswith("~") or not value:
        return None
    path = normpath(value)
    folders = [normpath(folder) for folder in texts(operand)]
    comparable = [folder for folder in folders if isabs(folder) == isabs(path)]
    if any(path == folder or path.startswith(f"{folder.rstrip('/')}/") for folder in comparable):
        return True
    if not isabs(path) and "." in comparable and path != ".." and not path.startswith("../"):
        return True
    return False if comparable else None


def _a_number(operand: Any) -> None:
    if _kind(operand) != "number" or operand != operand or operand in (float("inf"), float("-inf")):
        raise Mistake(f"takes a number, not {operand!r}")


def _a_value(operand: Any) -> None:
    values: list[Any] = cast("list[Any]", operand) if isinstance(operand, (list, tuple)) else [operand]
    if any(_kind(each) not in ("truth", "number", "str") for each in values):
        raise Mistake(f"takes a text, a number, true, false or a list of these, not {operand!r:.100}")


def _a_list(operand: Any) -> None:
    if not isinstance(operand, (list, tuple)) or not operand:
        raise Mistake(f"takes a list that is not empty, not {operand!r:.100}")
    for each in cast("Sequence[Any]", operand):
        _a_value(each)


def _some_texts(operand: Any) -> None:
    if not texts(operand):
        raise Mistake(f"takes a text or a list of texts, not {operand!r:.100}")


def _a_truth(operand: Any) -> None:
    if not isinstance(operand, bool):
        raise Mistake(f"takes true or false, not {operand!r:.100}")


OPERATORS: Final[dict[str, Operator]] = {
    "is": Operator("is", _is, _a_value, whole_lists=None),
    "is_not": Operator("is not", _is, _a_value, negative=True, whole_lists=None),
    "in": Operator("is one of", _is_in, _a_list),
    "not_in": Operator("is not one of", _is_in, _a_list, negative=True),
    "above": Operator("is above", _by_number(lambda value, operand: value > operand), _a_number),
    "at_least": Operator("is at least", _by_number(lambda value, operand: value >= operand), _a_number),
    "below": Operator("is below", _by_number(lambda value, operand: value < operand), _a_number),
    "at_most": Operator("is at most", _by_number(lambda value, operand: value <= operand), _a_number),
    "matches": Operator("matches", _matches, _some_texts),
    "not_matches": Operator("does not match", _matches, _some_texts, negative=True),
    "contains": Operator("contains", _contains, _a_value, whole_lists=True),
    "not_contains": Operator("does not contain", _contains, _a_value, negative=True, whole_lists=True),
    "host": Operator("leads to the host", _host, _some_texts),
    "not_host": Operator("does not lead to the host", _host, _some_texts, negative=True),
    "recipients": Operator("goes to recipients like", _recipients, _some_texts),
    "not_recipients": Operator("does not go to recipients like", _recipients, _some_texts, negative=True),
    "within": Operator("is within", _within, _some_texts),
    "not_within": Operator("is not within", _within, _some_texts, negative=True),
    "exists": Operator("exists:", _is, _a_truth, whole_lists=True),
}
"""The operators by name."""
