"""The diagrams of the docs, drawn from the code: a task's life and journal, its drivers, threads, undo and forks.

`make pictures` writes them to docs/pictures, and a test compares them with what would be drawn.
"""

import asyncio
import re
import tomllib
from collections.abc import Callable
from html import escape
from typing import get_args

from tests.docs.tables import DOCS
from treadle import Agent, Runner, ScriptedModel, tool
from treadle.models import call, text
from treadle.results.states import StateWord

PICTURES = DOCS / "pictures"
STYLE = (
    "text{font:14px system-ui,sans-serif;fill:#1f2638;text-anchor:middle;dominant-baseline:central}"
    ".small{font-size:12px;fill:#566076}.left{text-anchor:start}"
    ".box{fill:#eef0fa;stroke:#a3ade4}.end{fill:#dde1fb;stroke:#3f4bc0;stroke-width:2}"
    ".stop{fill:#fdf0eb;stroke:#d9734f}.gone{fill:#fafbfd;stroke:#b6bdcc;stroke-dasharray:4 3}"
    ".line{marker-end:none!important}.arrow{stroke:#6b7590;fill:none;marker-end:url(#head)}"
    ".back{stroke:#c2502c;fill:none;marker-end:url(#back)}"
)
DARK = {
    "#ffffff": "#12161f", "#1f2638": "#e4e8f1", "#566076": "#a0a9bc", "#eef0fa": "#1d2340", "#a3ade4": "#4f5bb0",
    "#dde1fb": "#2b3372", "#3f4bc0": "#a9b4ff", "#fdf0eb": "#35221c", "#d9734f": "#d9825f", "#fafbfd": "#161b25",
    "#b6bdcc": "#525b70", "#6b7590": "#8b95ab", "#c2502c": "#f5977a",
}  # fmt: skip
"""Each colour of a diagram, and the one on a dark page."""
HEADS = "".join(
    f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    f'orient="auto-start-reverse"><path d="M0 0 8 4 0 8z" fill="{colour}"/></marker>'
    for name, colour in (("head", "#6b7590"), ("back", "#c2502c"))
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
    """Return a whole picture, on white."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n<defs>{HEADS}</defs>\n"
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
    return picture(820, height, "The layers of the package", parts)


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


@tool
def book(seat: str) -> str:
    """Book a seat."""
    return seat


async def events_of_a_task() -> list[str]:
    """Return the kinds of the events of a task with two steps and one writing call."""
    model = ScriptedModel([call("book", seat="12A"), text("You have seat 12A.")])
    async with Runner("memory:") as runner:
        result = await runner.run(Agent(model, name="travel", tools=[book]), "Book 12A")
        return [event.kind for event in await runner.get_events(result.task_id)]


def journal() -> str:
    """Return the journal of a task, as it was recorded, with the steps that its events belong to."""
    kinds = asyncio.run(events_of_a_task())
    notes = {
        "model_returned": "the whole answer, with its tokens",
        "tool_started": "on disk before a writing tool runs",
        "tool_ended": "the result of the call, once",
        "step_completed": "from here on, the step never runs again",
        "task_ended": "the state, and the messages for the thread",
    }
    parts: list[str] = []
    for number, kind in enumerate(kinds):
        y = 36 + 28 * number
        looks = "stop" if kind.startswith("tool_") else "end" if kind.startswith("task_") else "box"
        parts += [
            f'<rect class="{looks}" x="70" y="{y - 11}" width="170" height="22" rx="4"/>',
            note(48, y, str(number + 1)),
            f'<text x="155" y="{y}">{kind}</text>',
        ]
        if kind in notes:
            parts.append(note(410, y, notes[kind], " left"))
    begun = [number for number, kind in enumerate(kinds) if kind == "step_started"]
    ended = [number for number, kind in enumerate(kinds) if kind == "step_completed"]
    for index, (first, last) in enumerate(zip(begun, ended, strict=True), 1):
        top, bottom = 28 + 28 * first, 44 + 28 * last
        parts += [
            arrow(f"M252 {top}H264V{bottom}H252", "arrow line"),
            f'<text class="left" x="276" y="{(top + bottom) / 2:g}">step s{index}</text>',
        ]
    height = 46 + 28 * len(kinds)
    return picture(780, height, "The journal of a task: its events, in order, and its steps", parts)


def driver() -> str:
    """Return how a second driver takes a task over, and how the store refuses the first one."""
    lanes = (("driver A", 50), ("store", 140), ("driver B", 230))
    parts = [note(20, y, name, " left") for name, y in lanes]
    parts += [
        box(215, 50, "drives, epoch 7", "box", 210),
        box(405, 50, "hangs", "gone", 170),
        box(630, 50, "wakes, stops its calls", "stop", 190),
        box(265, 140, "lease of A", "box", 310),
        box(595, 140, "lease of B", "end", 310),
        box(595, 230, "adopts the task, drives, epoch 8", "end", 310),
        *[arrow(f"M{x} 68V120") for x in (130, 180, 230, 280)],
        note(330, 95, "heartbeats"),
        arrow("M480 212V160"),
        note(576, 186, "continues from the journal"),
        arrow("M640 68V120", "back"),
        note(702, 95, "refused: epoch 7"),
        arrow("M110 276H750"),
        note(430, 292, "time"),
        arrow("M420 112V168", "back line"),
        note(416, 186, "the lease ends"),
    ]
    return picture(780, 308, "A task changes its driver: the lease of the first one ends", parts)


def thread() -> str:
    """Return how tasks read the messages of a thread, and add theirs to it."""
    parts = [
        note(20, 50, "tasks", " left"),
        box(170, 50, "task 1: completed", "end", 150),
        box(380, 50, "task 2: cancelled", "gone", 150),
        box(590, 50, "task 3: completed", "end", 150),
        note(20, 170, "thread", " left"),
        box(265, 170, "messages of task 1", "box", 150),
        box(680, 170, "messages of task 3", "box", 150),
        arrow("M340 170H600"),
        arrow("M180 68 236 150", "back"),
        note(178, 112, "adds"),
        arrow("M290 152 364 70"),
        note(358, 114, "reads"),
        arrow("M320 152 550 70"),
        note(484, 112, "reads"),
        arrow("M602 68 652 150", "back"),
        note(652, 112, "adds"),
        note(380, 218, "a task adds its messages when it ends well; a cancelled one adds nothing"),
    ]
    return picture(780, 240, "Successive tasks share a thread", parts)


def fork() -> str:
    """Return how a fork shares the journal of its parent."""
    parts = [
        note(20, 50, "task", " left"),
        *[box(150 + 150 * number, 50, f"s{number + 1}") for number in range(4)],
        *[arrow(f"M{208 + 150 * number} 50H{240 + 150 * number}") for number in range(3)],
        note(20, 150, "fork", " left"),
        box(425, 150, "task_forked", "stop"),
        box(575, 150, "s3, anew"),
        arrow("M483 150H515"),
        arrow("M367 150C330 150 312 120 304 70", "back"),
        note(212, 138, "refers to the task,"),
        note(212, 154, "up to the end of s2"),
        note(400, 204, "s1 and s2 are shared: they are read in the first journal, not copied, and do not run again"),
    ]  # fmt: skip
    return picture(780, 226, "A fork refers to the journal of its parent", parts)


DIAGRAMS: dict[str, Callable[[], str]] = {
    "life": life_of_a_task,
    "layers": layers,
    "undo": undo,
    "journal": journal,
    "driver": driver,
    "thread": thread,
    "fork": fork,
}


def dark(diagram: str) -> str:
    """Return a diagram in the colours of a dark page."""
    return re.sub("#[0-9a-f]{6}", lambda colour: DARK[colour.group()], diagram)


def write() -> None:
    """Write every diagram to docs/pictures, for light and for dark pages."""
    PICTURES.mkdir(exist_ok=True)
    for name, draw in DIAGRAMS.items():
        diagram = draw()
        (PICTURES / f"{name}.svg").write_text(diagram, encoding="utf-8")
        (PICTURES / f"{name}-dark.svg").write_text(dark(diagram), encoding="utf-8")
