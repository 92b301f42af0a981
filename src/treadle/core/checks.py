"""Contents that guardrails judge, and their decisions: one record for each content of a task.

The statuses of a content:

    (none)      not judged yet, or judged again after a rewrite
    allowed     the guardrails let it pass
    asked       a person must decide; the task may stop meanwhile
    edited      a person rewrote it: it is judged again, without asking a person
    approved    a person let it pass
    denied      by a guardrail, by a person, or by expiry
    used        denied, and its step has failed because of it
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Literal, cast

from treadle.core.data import mutable
from treadle.core.events import AnswerHeld, Failure, GuardedContent, TypedAnswer
from treadle.core.labels import untrusted_origin
from treadle.core.messages import IN_WORDS, UNSEEN, Content, Json, Message, Part, Reasoning, Text, ToolCall
from treadle.core.observation import as_text
from treadle.core.permits import Permit
from treadle.core.steps import CallState
from treadle.errors import ConfigurationError

NAMES: Final[Mapping[GuardedContent, str]] = {
    "input": "the input",
    "output": "the answer",
    "result": "the result",
}
"""Names of the contents, for people."""

JSON_PARTS: Final = ("answer", "result")
"""The parts of contents that are JSON data; the others are texts."""


@mutable
class Check:
    """The decision of guardrails on one content. Approvers see it like a call that has not started."""

    id: str
    step: str
    guards: GuardedContent
    arguments: dict[str, Json]
    """the present content by part: texts or a JSON value"""

    permit: Permit | None = None
    requests: int = 0
    replaced: int = 0
    """how often guardrails rewrote it"""

    changed: bool = False
    """whether guardrails or a person changed it"""

    problem: str | None = None
    status: Literal["proposed"] = "proposed"

    @property
    def name(self) -> str:
        """The name of the content, for people."""
        return NAMES[self.guards]


Standing = Literal["open", "asked", "passed", "refused"]


def standing(check: Check | None) -> Standing:
    """Return the status of a content: still to be judged, waiting for a person, passed or refused."""
    permit = check.permit if check is not None else None
    if permit is None or permit.status == "edited":
        return "open"
    if permit.status == "asked":
        return "asked"
    return "refused" if permit.status in ("denied", "used") else "passed"


def withholds(check: Check | None) -> bool:
    """Return whether the result of a call is still hidden. A result that failed its step is shown as withheld."""
    is_used = check is not None and check.permit is not None and check.permit.status == "used"
    return standing(check) != "passed" and not is_used


def refusal(check: Check) -> Failure:
    """Return the failure of a refused content, with the guardrail or person that refused it."""
    permit = check.permit
    rule, by, reason = (permit.rule, permit.by, permit.reason) if permit is not None else (None, None, "")
    refuser = f"the guardrail {rule}" if rule else "a guardrail"
    text = f"{refuser} refused {check.name}"
    trace = permit.traceback if permit is not None else ""
    return Failure(
        "guardrail", check.guards, f"{text}: {reason}" if reason else text, rule=rule, by=by, traceback=trace
    )


def check_edit(check: Check, arguments: dict[str, Json], verb: str) -> None:
    """Raise `ConfigurationError` unless a person's edit has the same parts as the content."""
    missing = [
        part
        for part in check.arguments
        if part not in arguments or (part not in JSON_PARTS and not isinstance(arguments[part], str))
    ]
    if missing or set(arguments) != set(check.arguments):
        parts = ", ".join([part if part in JSON_PARTS else f"{part} (a text)" for part in check.arguments])
        raise ConfigurationError(
            f"{verb}: {check.name} consists of {parts}; got {', '.join(arguments) or 'nothing'}"
        )


# ---------------------------------------------------------------------------------------- contents


def input_content(parts: tuple[Content, ...]) -> dict[str, Json]:
    """Return the judged content of input: its text."""
    return {"text": "\n".join([part.text for part in parts if isinstance(part, Text)])}


def with_input(parts: tuple[Content, ...], content: dict[str, Json]) -> tuple[Content, ...]:
    """Return input with its text replaced. The new text is as untrusted as the old, and images and files stay."""
    others = [part for part in parts if not isinstance(part, Text)]
    labels = [part.label for part in parts if isinstance(part, Text)]
    label = next((label for label in labels if untrusted_origin(label) is not None), None)
    return (Text(as_text(content["text"]), label=label), *others)


def answer_content(answer: AnswerHeld) -> dict[str, Json]:
    """Return the judged content of a model's answer: text, reasoning, typed answer and scratch text."""
    contents: dict[str, Json] = {}
    if thoughts := _reasoning(answer.message):
        contents["reasoning"] = thoughts
    typed, text = answer.typed, answer.message.text
    if typed is not None and typed.problem is None:
        contents["answer"] = typed.output
        text = text if typed.call is not None else ""
    elif typed is not None and typed.call is not None:
        contents["answer"] = next(
            call.arguments for call in answer.message.tool_calls if call.id == typed.call
        )
    if text:
        contents["text"] = text
    if scratch := "\n".join(
        [call.raw for call in answer.message.tool_calls if _is_scratch(call) and call.raw]
    ):
        contents["scratch"] = scratch
    return contents


def _is_scratch(call: ToolCall) -> bool:
    """Return whether a call holds text of the model that could not be parsed as a call or answer."""
    return call.problem is not None and call.meta == IN_WORDS


def passed_answer(answer: AnswerHeld, content: dict[str, Json]) -> tuple[Message, TypedAnswer | None]:
    """Return a model's message and the typed answer in it, with the changes of guardrails."""
    before, message, typed = answer_content(answer), answer.message, answer.typed
    changed = {key for key, value in content.items() if before.get(key) != value}
    if not changed:
        return message, typed
    parts = list(message.parts)
    if "reasoning" in changed:
        parts = _with_reasoning(parts, as_text(content["reasoning"]))
    if "scratch" in changed:
        raw = as_text(content["scratch"])
        parts = [
            replace(part, raw=raw) if isinstance(part, ToolCall) and _is_scratch(part) else part
            for part in parts
        ]
    new_text = as_text(content["text"]) if "text" in changed else None
    if "answer" in changed and typed is not None:
        value = content["answer"]
        if typed.problem is None:
            typed = replace(typed, output=value)
        if typed.call is None:
            new_text = as_text(value)
        else:
            arguments: dict[str, Json] = (
                cast("dict[str, Json]", value) if isinstance(value, dict) else {"answer": value}
            )
            parts = [
                replace(part, arguments=arguments, raw=None)
                if isinstance(part, ToolCall) and part.id == typed.call
                else part
                for part in parts
            ]
    if new_text is not None:
        place = next((i for i, part in enumerate(parts) if isinstance(part, Text)), len(parts))
        others: list[Part] = [part for part in parts if not isinstance(part, Text)]
        parts = [*others[:place], Text(new_text), *others[place:]] if new_text else others
    return Message(message.role, tuple(parts)), typed


def _with_reasoning(parts: list[Part], text: str) -> list[Part]:
    """Return parts with replaced reasoning. Providers do not get it, since their signatures cover the original."""
    first = next(part for part in parts if isinstance(part, Reasoning))
    others = [part for part in parts if not isinstance(part, Reasoning)]
    meta = IN_WORDS if first.meta == IN_WORDS else UNSEEN
    return [Reasoning(text, meta), *others] if text else [*others]


def _reasoning(message: Message) -> str:
    return "\n".join([part.text for part in message.parts if isinstance(part, Reasoning) and part.text])


def result_content(call: CallState) -> dict[str, Json]:
    """Return the judged content of an ended call: the text for the model."""
    if call.observation is not None:
        return {"result": "\n".join([part.text for part in call.observation if isinstance(part, Text)])}
    return {"result": call.error.message if call.error is not None else call.output}


def is_judged(call: CallState) -> bool:
    """Return whether a call has a result for guardrails to judge: its tool returned or raised it.

    A result that arrives as input, after work in the background, is judged as input.
    """
    if call.ticket is not None and call.ticket.arrival is not None:
        return False
    return call.status == "ended" and call.outcome in ("ok", "error") and bool(call.attempt)
