"""Ask a person at a keyboard to decide the requests of tasks, which are shown exactly.

    Pending --> lines that show it --> a question --> a verb: approve, deny, settle

Text of a model, a tool or a policy follows its label on one line. Longer text is shown below the label, with a bar at
the start of each line. Invisible characters are shown as escapes. So no shown text can look like a question, or like
arguments other than those that would run.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Coroutine, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol
from unicodedata import east_asian_width

from treadle.core.display import exact_json, exact_text
from treadle.core.events import ApprovalScope
from treadle.core.json_schema import misfit
from treadle.core.messages import Json
from treadle.core.strict_json import STRICTLY, parse_object
from treadle.core.tools import Happened, NotHappened
from treadle.drivers.terminal import echoing
from treadle.errors import AlreadyDecided, CallNotFound, ConfigurationError, TreadleError
from treadle.policy.verdicts import has_read
from treadle.results.displays import moment
from treadle.results.pending import Pending
from treadle.runner.approvals import ApprovalVerbs

SHOWN: Final = 4_000
"""Characters of a value that are shown before the person asks for all of it."""

UNTRUSTED_PREFIX: Final = "  │ "
"""Prefix of the continuation lines of text from a model, a tool or a policy."""

Part = str | tuple[str, str]


class Keyboard(Protocol):
    """Asks a person and reads the answer."""

    async def answer(self, mark: str, default: str = "") -> str:
        """Return the person's line; `default` can be edited. Input typed before the question is dropped.

        Raises:
            EOFError: the input has ended.
            KeyboardInterrupt: the person leaves the question open.
        """
        ...


def described(item: Pending, width: int | None, most: int | None = SHOWN) -> Iterator[tuple[Part, ...]]:
    """Yield the lines that show a pending request.

    Args:
        item: the request.
        width: columns of the screen; None for lines of any length.
        most: maximum number of characters shown of a value; None for no limit.
    """
    yield ("  ? ", "yellow"), exact_text(_heading(item)).replace("\n", " ")
    if item.kind == "question":
        yield from _labelled("question:", exact_text(item.text), width, most)
        yield from _labelled("an answer is:", exact_json(item.schema), width, most)
        if item.has_default:
            yield from _labelled("without one:", exact_json(item.default), width, most)
    if len(item.path) > 1:
        yield from _labelled("asked by:", exact_text(" > ".join(item.path)), width, most)
    if item.reason:
        yield from _labelled("why:", exact_text(item.reason), width, most)
    if item.rule is not None:
        yield from _labelled("asked by rule:", exact_text(item.rule), width, most)
    if item.untrusted and has_read(item.untrusted) not in item.reason:
        yield from _labelled(
            "it has read:", exact_text(f"untrusted: {', '.join(item.untrusted)}"), width, most
        )
    if item.expires is not None:
        yield ("    expires:         ", "dim"), moment(item.expires)
    if item.idempotency_key is not None:
        yield from _labelled("its key was:", exact_text(item.idempotency_key), width, most)
    if item.tool and item.kind != "subagent":
        call_text = f"{item.tool}({exact_json(item.arguments)})"
        label = "it would run:" if item.kind == "approval" else "the call:"
        yield from _labelled(label, call_text, width, most)
    if item.details is not None:
        yield from _labelled("about it:", exact_json(item.details), width, most)
    if item.progress is not None:
        yield from _labelled("progress:", exact_json(item.progress), width, most)
    if item.argument is not None:
        yield from _labelled("you write:", exact_text(item.argument), width, most)
    if item.same:
        bound = f"--scope task, while {', '.join(item.same)} stay the same"
        yield from _labelled("for later calls:", exact_text(bound), width, most)
    if item.preview is not None:
        preview = item.preview if isinstance(item.preview, str) else exact_json(item.preview)
        yield from _labelled("what it does:", exact_text(preview), width, most)


def _heading(item: Pending) -> str:
    if item.kind == "question":
        return f"{item.tool or 'a step'} asks a person"
    return f"{item.tool} waits for an approval" if item.kind == "approval" else item.text


def _labelled(label: str, text: str, width: int | None, most: int | None) -> Iterator[tuple[Part, ...]]:
    """Yield a text after its label; if it is longer than the line, below the label with a bar."""
    cut = None if most is None or len(text) <= most else len(text)
    shown = text if cut is None else text[:most]
    head = f"    {label:<17}"
    if cut is None and "\n" not in shown and (width is None or cells(head + shown) <= width):
        yield (head, "dim"), shown
        return
    yield ((head.rstrip(), "dim"),)
    for line in shown.split("\n"):
        for piece in _pieces(line, width - len(UNTRUSTED_PREFIX) if width is not None else None):
            yield (UNTRUSTED_PREFIX, "dim"), piece
    if cut is not None:
        yield ((f"    … {cut:,} characters in all: v shows them", "yellow"),)


def cells(text: str) -> int:
    """Return the number of columns of a text."""
    return len(text) if text.isascii() else sum([1 + (east_asian_width(c) in "WF") for c in text])


def _pieces(line: str, width: int | None) -> Iterable[str]:
    """Return a line in pieces that fit the width, broken after a blank if possible; no character is lost."""
    if width is None or cells(line) <= width:
        return [line]
    width = max(width, 2)
    pieces, piece, used = list[str](), list[str](), 0
    for character in line:
        size = cells(character)
        if used + size > width:
            words, rest = _whole_words("".join(piece))
            pieces.append(words)
            piece, used = [*rest], cells(rest)
        piece.append(character)
        used += size
    return [*pieces, "".join(piece)]


def _whole_words(piece: str) -> tuple[str, str]:
    """Split a piece of a line after its last complete word."""
    end = piece.rfind(" ") + 1
    return (piece[:end], piece[end:]) if piece[:end].strip() else (piece, "")


class Dialogue:
    """Asks a person for decisions, and records them.

    Args:
        verbs: the verbs of the runner, which record the decisions.
        keyboard: asks the person.
        line: prints a line of texts, some of them with a style.
        width: returns the columns of the screen, None if lines may be of any length.
        by: the name of the person, for the record.
        root: the task that `stop` cancels, if it is not the requesting one.
    """

    def __init__(
        self,
        verbs: ApprovalVerbs,
        keyboard: Keyboard,
        line: Callable[..., None],
        *,
        width: Callable[[], int | None] = lambda: None,
        by: str | None = None,
        root: str | None = None,
    ) -> None:
        self._verbs = verbs
        self._keyboard = keyboard
        self._line = line
        self._width = width
        self._by = by
        self._root = root

    async def decide(self, items: Iterable[Pending]) -> bool:
        """Ask for a decision on each request; return whether all are decided."""
        decided = True
        for item in items:
            ask = self.KINDS.get(item.kind)
            self._show(item)
            if ask is None or not await self._asked_safely(ask, item):
                decided = False
        return decided

    async def _asked_safely(
        self, ask: Callable[[Dialogue, Pending], Coroutine[Any, Any, bool]], item: Pending
    ) -> bool:
        try:
            return await ask(self, item)
        except (EOFError, KeyboardInterrupt):
            return False
        except (AlreadyDecided, CallNotFound) as error:
            self._line(("  ! ", "yellow"), exact_text(str(error)))
            return True  # another person decided first, or the call has ended
        except TreadleError as error:
            self._refused(error)
            return False

    def _show(self, item: Pending, most: int | None = SHOWN) -> None:
        if item.kind == "subagent":
            return
        for parts in described(item, self._width(), most):
            self._line(*parts)

    def _refused(self, error: Exception) -> None:
        self._line(("  ✗ ", "red"), exact_text(str(error)).replace("\n", " "))

    # --------------------------------------------------------------------------------------- approvals

    async def _approval(self, item: Pending) -> bool:
        while True:
            written = (await self._keyboard.answer("may it run? [y/n/e, ? lists all, Enter: later] ")).strip()
            answer, _, rest = written.partition(" ")
            act = self.ANSWERS.get(answer.lower())
            if not written:
                return False
            if act is None:
                self._line((f"  {answer!a} is no answer: ? lists all", "yellow"))
            elif await act[1](self, item, rest.strip()):
                return True

    async def _allow(self, item: Pending, written: str) -> bool:
        if item.argument is not None:
            return await self._written(item, written)
        await self._verbs.approve(item.task_id, item.request_id, by=self._by)
        return True

    async def _written(self, item: Pending, draft: str) -> bool:
        """Approve with the argument that the approver must write; an empty line returns to the question."""
        while True:
            draft = draft or (await self._keyboard.answer(f"{item.argument}, for this call: ")).strip()
            if not draft:
                return False
            if await self._answered_with(item, draft):
                return True
            draft = ""

    async def _answered_with(self, item: Pending, written: str) -> bool:
        """Answer with JSON, else with the text itself; print a message and return False if neither fits."""
        refusal = None
        for value in values_of(written, item.arguments.get(str(item.argument))):
            try:
                await self._verbs.answer(item.task_id, item.request_id, value=value, by=self._by)
            except ConfigurationError as error:
                refusal = refusal or error
            else:
                return True
        if refusal is not None:
            self._refused(refusal)
        return False

    async def _allow_in_task(self, item: Pending, _: str) -> bool:
        return await self._allow_for(item, "task")

    async def _allow_in_thread(self, item: Pending, _: str) -> bool:
        return await self._allow_for(item, "thread")

    async def _allow_always(self, item: Pending, _: str) -> bool:
        return await self._allow_for(item, "always")

    async def _allow_for(self, item: Pending, scope: ApprovalScope) -> bool:
        if item.every_call:
            self._line((f"  rule {item.rule} asks about every call: y is for this one", "yellow"))
            return False
        if item.same and scope != "task":
            bound = ", ".join(item.same)
            self._line(
                (f"  rule {item.rule} holds to the same {bound}, within the task: task is for that", "yellow")
            )
            return False
        await self._verbs.approve(item.task_id, item.request_id, scope=scope, by=self._by)
        return True

    async def _deny(self, item: Pending, reason: str) -> bool:
        reason = reason or (await self._keyboard.answer("why not, for the model: ")).strip()
        await self._verbs.deny(item.task_id, item.request_id, reason=reason or None, by=self._by)
        return True

    async def _stop(self, item: Pending, reason: str) -> bool:
        reason = reason or (await self._keyboard.answer("why not, for the record: ")).strip()
        root = self._root or item.task_id
        await self._verbs.deny(root, item.request_id, reason=reason or None, stop=True, by=self._by)
        return True

    async def _edit(self, item: Pending, written: str) -> bool:
        """Approve with arguments that the person writes; an empty line returns to the question."""
        draft = exact_json(item.arguments)
        while True:
            written = written or (await self._keyboard.answer("its arguments, as JSON: ", draft)).strip()
            if not written:
                return False
            if await self._approved_with(item, written):
                return True
            draft, written = written, ""

    async def _edit_outside(self, item: Pending, _: str) -> bool:
        """Approve with arguments written in an editor; an empty or unchanged file returns to the question."""
        before = json.dumps(item.arguments, ensure_ascii=False, indent=2) + "\n"
        text = before
        while True:
            edited = await asyncio.to_thread(edited_text, text)
            if not edited.strip() or edited == text:
                self._line(("  not changed", "dim"))
                return False
            text = edited
            if await self._approved_with(item, text):
                return True
            again = (await self._keyboard.answer("open the editor again? [Y/n] ")).strip().lower()
            if again not in ("", "y", "yes"):
                return False

    async def _approved_with(self, item: Pending, written: str) -> bool:
        """Approve with these arguments; print a message and return False if they do not fit."""
        try:
            arguments = parse_object(written)
        except ValueError as error:
            self._refused(ConfigurationError(f"these arguments are no JSON object: {error}"))
            return False
        try:
            await self._verbs.approve(item.task_id, item.request_id, arguments=arguments, by=self._by)
        except ConfigurationError as error:
            self._refused(error)
            return False
        return True

    async def _show_all(self, item: Pending, _: str) -> bool:
        self._show(item, None)
        return False

    async def _list(self, item: Pending, _: str) -> bool:
        for name, (text, _act) in self.ANSWERS.items():
            if text and name not in (_FOR_LATER if item.every_call else _FOR_LATER[1:] if item.same else ()):
                self._line((f"  {name:<9}", "bold"), text)
        self._line(("  Enter    ", "bold"), "leave it open: decide later, here or with `treadle approve`")
        return False

    # ------------------------------------------------------------------------------------------ others

    async def _settlement(self, item: Pending) -> bool:
        while True:
            answer = (await self._keyboard.answer("did it take effect? [y/n, Enter: later] ")).strip().lower()
            if answer in ("y", "yes"):
                verdict = Happened(await self._value("its result, as JSON [null]: "))
            elif answer in ("n", "no"):
                verdict = NotHappened()
            elif not answer:
                return False
            else:
                self._line((f"  {answer!a} is no answer", "yellow"))
                continue
            await self._verbs.settle(item.task_id, item.request_id, verdict, by=self._by)
            return True

    async def _value(self, mark: str) -> Json:
        draft = ""
        while True:
            draft = (await self._keyboard.answer(mark, draft)).strip()
            try:
                return json.loads(draft or "null", **STRICTLY)
            except ValueError:
                self._refused(
                    ConfigurationError(f"{draft} is not JSON; text needs quotes: {json.dumps(draft)}")
                )

    async def _question(self, item: Pending) -> bool:
        """Ask for an answer until it fits; an empty line leaves the question open."""
        draft = ""
        while True:
            draft = (await self._keyboard.answer("the answer, Enter: later: ", draft)).strip()
            if not draft:
                return False
            try:
                value = read_answer(draft, item.schema)
                await self._verbs.answer(item.task_id, item.request_id, value=value, by=self._by)
            except ConfigurationError as error:
                self._refused(error)
                continue
            return True

    async def _below(self, item: Pending) -> bool:
        """Ask for decisions on the requests of a task below; return False if it has none yet."""
        page = await self._verbs.list_pending(item.request_id)
        items = [each async for each in page if each.kind != "background"]
        return bool(items) and await self.decide(items)

    ANSWERS: ClassVar[
        dict[str, tuple[str, Callable[[Dialogue, Pending, str], Coroutine[Any, Any, bool]]]]
    ] = {
        "y": ("let it run", _allow),
        "yes": ("", _allow),
        "task": ("let it run, and later calls in this task that this rule asks about", _allow_in_task),
        "thread": ("the same in all tasks of this conversation", _allow_in_thread),
        "always": ("the same in all tasks of this store; `treadle policy revoke` ends both", _allow_always),
        "n": ("refuse it; `n too much` tells the model why", _deny),
        "no": ("", _deny),
        "stop": ("refuse it, and cancel the task; `stop too much` says why", _stop),
        "e": ("change its arguments, then it runs; `e {...}` writes them at once", _edit),
        "edit": ("", _edit),
        "editor": ("change its arguments in $EDITOR, then it runs", _edit_outside),
        "v": ("show all of it, however long", _show_all),
        "?": ("this list", _list),
    }
    """The actions of the answers, with their descriptions in the list."""

    KINDS: ClassVar[dict[str, Callable[[Dialogue, Pending], Coroutine[Any, Any, bool]]]] = {
        "approval": _approval,
        "question": _question,
        "settlement": _settlement,
        "subagent": _below,
    }
    """Asks for a decision on a request of each kind and records it; returns False if it was left open."""


_FOR_LATER: Final = ("task", "thread", "always")
"""Answers that let later calls run too."""

_YES_OR_NO: Final = {"y": True, "yes": True, "n": False, "no": False}


def values_of(written: str, present: Json) -> list[Json]:
    """Return the possible meanings of a written value, the likeliest first: JSON, or the text itself."""
    try:
        value: Json = json.loads(written, **STRICTLY)
    except ValueError:
        return [written]
    return [written, value] if isinstance(present, str) and not isinstance(value, str) else [value, written]


def read_answer(written: str, schema: Json) -> Json:
    """Return a person's answer: as JSON if that fits the schema, else as the text itself.

    A boolean can also be written `y` or `n`.
    """
    if schema == {"type": "boolean"} and written.lower() in _YES_OR_NO:
        return _YES_OR_NO[written.lower()]
    try:
        value: Json = json.loads(written)
    except ValueError:
        return written
    return written if misfit(value, schema) is not None and misfit(written, schema) is None else value


def edited_text(text: str) -> str:
    """Return a text after a person edited it in `VISUAL`, else `EDITOR`, else vi.

    Raises `ConfigurationError` if the editor does not start or fails.
    """
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix="treadle-") as folder:  # for its owner only
        path = Path(folder) / "arguments.json"
        path.write_text(text, encoding="utf-8")
        try:
            with echoing(True):
                subprocess.run([*shlex.split(editor), str(path)], check=True)
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            raise ConfigurationError(
                f"the editor {editor!r} failed ({error}): set EDITOR to another"
            ) from None
        return path.read_text(encoding="utf-8")
