"""Takes the pictures of the terminal in docs/pictures: real commands on a real store, in a terminal of their own.

    python -m tests.docs.screenshots

Ids and times are those of the moment, so the pictures change whenever they are taken. `make pictures` takes them anew,
for light and for dark pages.
"""

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sysconfig
import tempfile
import termios
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from tests.docs import diagrams

COLUMNS, ROWS = 96, 40
AGENT = '''
from treadle import Agent, ScriptedModel, tool
from treadle.models import call, text, turn


@tool(read_only=True)
def stock(item: str) -> int:
    """Count what is in stock."""
    return {"tea": 3, "cake": 0}[item]


def cancel_order(call, ctx):
    """Take an order back."""


@tool(undo=cancel_order)
def order(item: str, count: int) -> str:
    """Order goods."""
    return f"{count} x {item}"


def says(request):
    if request.turn == 0:
        return turn("I look first.", [call("stock", item="tea"), call("stock", item="cake")])
    if request.turn == 1:
        return call("order", item="cake", count=12)
    return text("Three tins of tea are left. The cake was gone: I have ordered twelve.")


agent = Agent(ScriptedModel(says), name="shop", tools=[stock, order])
'''
SCREENS = {
    "terminal-run": ['treadle run shop "Is there tea and cake?"'],
    "terminal-undo": ["treadle undo last --to 1", "treadle show last"],
    "terminal-tasks": ["treadle tasks"],
}
BEFORE = {
    "terminal-tasks": [
        'treadle run shop "Is there tea?" --max-steps 1 --on-limit pause',
        'treadle run shop "And cake, for tomorrow?"',
    ]
}
COLOURS = {  # background, foreground, then from black to white, as terminals count them
    "": "fafbfd 10141f 263238 c62828 24762a b35309 1f5fae 6a1b9a 00727f 566076",
    "-dark": "191e29 f1f3f9 4a5266 ff8f8f 7fcf9f f5c97a 8fb1ff dc9be8 6fd0d6 a0a9bc",
}
"""The colours of each theme, by the end of the names of its pictures."""


def theme(colours: str) -> TerminalTheme:
    """Return a theme of colours that are written in hexadecimal digits."""
    background, foreground, *others = [tuple(bytes.fromhex(colour)) for colour in colours.split()]
    return TerminalTheme(background, foreground, others)  # type: ignore[arg-type]


def in_a_terminal(command: str, folder: Path) -> str:
    """Run a command as it runs for a person, and return what the terminal is sent."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "PATH": os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]]),
        "TERM": "xterm-256color",
        "TREADLE_AGENTS": "shop:agent",
    }
    process = subprocess.Popen(
        ["bash", "-c", command], cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    sent = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the terminal is closed: the command has ended
            break
        if not piece:
            break
        sent += piece
    os.close(ours)
    process.wait(timeout=60)
    return sent.decode()


def shown(sent: str) -> str:
    """Return what stays on the screen: without cursor moves, and of a line that was written over, the last writing."""
    text = re.sub(r"\x1b\[\?[0-9;]*[hl]|\x1b\[[0-9]*[ABCDGJ]", "", sent).replace("\r\n", "\n")
    lines = [re.split(r"\r|\x1b\[[0-2]?K", line)[-1] for line in text.split("\n")]
    return "\n".join(lines).rstrip()


def as_pictures(commands: list[str], folder: Path) -> dict[str, str]:
    """Run commands, and return pictures of the terminal with them and what they print, one for each theme."""
    console = Console(
        record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    for command in commands:
        console.print(Text(f"$ {command}", style="bold"))
        console.print(Text.from_ansi(shown(in_a_terminal(command, folder))), soft_wrap=True)
    return {end: as_picture(console, theme(colours)) for end, colours in COLOURS.items()}


def as_picture(console: Console, theme: TerminalTheme) -> str:
    """Return what a console shows, as a picture without a font of another server."""
    svg = console.export_svg(title="", theme=theme, unique_id="t", clear=False)
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    return re.sub(
        r"[ \t]+$", "", svg.replace("Fira Code", "ui-monospace, Menlo, Consolas"), flags=re.MULTILINE
    )


def take() -> None:
    """Take every picture of the terminal, in one folder, one after the other."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "shop.py").write_text(AGENT, encoding="utf-8")
        for name, commands in SCREENS.items():
            for command in BEFORE.get(name, ()):
                in_a_terminal(command, folder)
            for end, picture in as_pictures(commands, folder).items():
                (diagrams.PICTURES / f"{name}{end}.svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    diagrams.write()
    take()
