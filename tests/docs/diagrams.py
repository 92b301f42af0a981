"""The diagrams of the docs, drawn from the code: a task's life, the layers of the package, an undo.

`make pictures` writes them to docs/pictures, and a test compares them with what would be drawn.
"""

import re
import tomllib
from collections.abc import Callable
from html import escape
from typing import get_args

from tests.docs.tables import DOCS
from treadle.results.states import StateWord

PICTURES = DOCS / "pictures"
STYLE = (
    "text{font:14px system-ui,sans-serif;fill:#263238;text-anchor:middle;dominant-baseline:central}"
    ".small{font-size:12px;fill:#607d8b}.left{text-anchor:start}"
    ".box{fill:#eceff1;stroke:#90a4ae}.end{fill:#cfd8dc;stroke:#455a64;stroke-width:2}"
    ".stop{fill:#fff3e0;stroke:#fb8c00}.gone{fill:#fafafa;stroke:#b0bec5;stroke-dasharray:4 3}"
    ".line{marker-end:none!important}.arrow{stroke:#607d8b;fill:none;marker-end:url(#head)}.back{stroke:#fb8c00;fill:none;marker-end:url(#head)}"
)
HEAD = (
    '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto-start-reverse"><path d="M0 0 8 4 0 8z" fill="#607d8b"/></marker>'
)

LIFE = {  # where each state of a task stands, and how it looks
    "created": (90, 60, "box"),
    "running": (290, 60, "box"),
    "answered": (490, 60, "box"),
    "completed": (690, 30, "end"),
    "degraded": (690, 90, "end"),
    "paused": (90, 190, "stop"),
    "waiting": (230, 190, "stop"),
    "interrupted": (370, 190, "stop"),
    "failed": (510, 190, "stop"),
    "cancelled": (690, 190, "end"),
}


def box(x: float, y: float, text: str, kind: str = "box", width: float = 116) -> str:
    """Return a box with its middle there."""
    return (
        f'<rect class="{kind}" x="{x - width / 2:g}" y="{y - 18:g}" width="{width:g}" height="36" rx="6"/>'
        f'<text x="{x:g}" y="{y:g}">{escape(text)}</text>'
    )


def note(x: float, y: float, text: str, more: str = "") -> str:
    """Return small text with its middle there."""
    return f'<text class="small{more}" x="{x:g}" y="{y:g}">{escape(text)}</text>'


def arrow(path: str, kind: str = "arrow") -> str:
    return f'<path class="{kind}" d="{path}"/>'


def picture(width: int, height: int, title: str, parts: list[str]) -> str:
    """Return a whole picture, on white, so that it can be read on a dark page too."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n<defs>{HEAD}</defs>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def life_of_a_task() -> str:
    """Return every state that a task may be in, and how it gets there."""
    assert set(LIFE) == set(get_args(StateWord)), "a state of a task has no place in the diagram"
    parts = [box(x, y, state, kind) for state, (x, y, kind) in LIFE.items()]
    parts += [
        arrow("M148 60H230"),
        note(189, 48, "run, step"),
        arrow("M348 60H430"),
        note(389, 48, "last step"),
        arrow("M548 55 630 34"),
        arrow("M548 65 630 86"),
        note(587, 60, "finalize"),
        arrow("M262 80 112 170"),
        arrow("M280 80 240 170"),
        arrow("M300 80 358 170"),
        arrow("M330 80 478 170"),
        arrow("M348 76 634 176"),
        note(500, 112, "cancel"),
        *[arrow(f"M{x} 238V252", "back line") for x in (90, 230, 370, 510)],
        arrow("M90 252H510M300 252V270H16V18H290V40", "back"),
        note(165, 284, "resume, from the last event on disk"),
        note(90, 226, "a pause, a limit"),
        note(230, 226, "for a person, a time"),
        note(370, 226, "a stop, a crash"),
        note(510, 226, "a failure"),
        note(690, 226, "for good: fork it"),
    ]
    return picture(780, 300, "The states of a task, and the verbs between them", parts)


def layers() -> str:
    """Return the layers of the package, as the import contract in pyproject.toml has them."""
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (contract,) = [each for each in contracts if each["id"] == "layers"]
    rows = [re.findall(r"\w+", line) for line in contract["layers"] if line != "(__main__)"]
    there = [
        [name for name in row if any((DOCS.parent / "src" / "treadle").glob(f"{name}*"))] for row in rows
    ]
    meaning = {
        "cli": "what a user sees",
        "runner": "what a user calls",
        "drivers": "the tasks of this process",
        "engine": "one task being driven",
        "llm": "adapters, side by side",
        "agents": "pure: no clock, no network",
        "core": "pure: events, state, rules",
        "ports": "what is asked of the world",
    }
    parts: list[str] = []
    for number, row in enumerate(row for row in there if row):
        y = 40 + 46 * number
        width = min(116, 560 / len(row) - 8)
        left = 340 - (len(row) - 1) * (width + 8) / 2
        parts += [box(left + place * (width + 8), y, name, "box", width) for place, name in enumerate(row)]
        parts += [note(640, y, meaning[name], " left") for name in row if name in meaning]
    height = 40 + 46 * len([row for row in there if row])
    parts.append(arrow(f"M14 24V{height - 30}"))
    parts.append(
        f'<text class="small" transform="translate(32 {height / 2:g}) rotate(-90)">imports go downward only</text>'
    )
    return picture(780, height, "The layers of the package", parts)


def undo() -> str:
    """Return what an undo does to the steps and the journal of a task."""
    parts = [
        note(20, 30, "steps", " left"),
        box(150, 30, "s1"),
        box(300, 30, "s2", "gone"),
        box(450, 30, "s3", "gone"),
        arrow("M450 52C440 84 320 84 304 54", "back"),
        arrow("M300 52C290 84 170 84 154 54", "back"),
        note(300, 92, "undo_step(to=1): undo= of each call runs, the newest first"),
        note(20, 140, "then", " left"),
        box(150, 140, "s1"),
        box(300, 140, "s2, anew"),
        arrow("M208 140H240"),
        note(560, 140, "the model is asked again, and knows of your message"),
        note(20, 210, "journal", " left"),
        *[box(110 + 92 * number, 210, name, kind, 84) for number, (name, kind) in enumerate(
            [("s1", "box"), ("s2", "gone"), ("s3", "gone"), ("undone", "stop"), ("undone", "stop"),
             ("rewound", "stop"), ("s2", "box")]
        )],
        note(380, 246, "nothing is deleted: what was taken back stays readable, and a fork may go on from there"),
    ]  # fmt: skip
    return picture(780, 266, "An undo, as the steps and as the journal see it", parts)


DIAGRAMS: dict[str, Callable[[], str]] = {"life": life_of_a_task, "layers": layers, "undo": undo}


def write() -> None:
    """Write every diagram to docs/pictures."""
    PICTURES.mkdir(exist_ok=True)
    for name, draw in DIAGRAMS.items():
        (PICTURES / f"{name}.svg").write_text(draw(), encoding="utf-8")
