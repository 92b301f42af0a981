"""The page in Chromium, for the tests of its views: a server to open, and a person at the keyboard."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from tests.docs.browser import Browser, chromium
from tests.forked import Forked

PROGRAM = chromium()

IS_REQUIRED = os.environ.get("TREADLE_BROWSER") == "required"
"""Whether the tests fail without Chromium, as `make browser` wants it."""

needs_chromium = pytest.mark.skipif(PROGRAM is None and not IS_REQUIRED, reason="Chromium is not installed")

CODES = {
    "Backspace": 8,
    "Tab": 9,
    "Enter": 13,
    "Escape": 27,
    "PageUp": 33,
    "PageDown": 34,
    "End": 35,
    "Home": 36,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
    "Delete": 46,
}
"""The keys without a character, by their codes."""

MODIFIERS = {"Alt": 1, "Control": 2, "Shift": 8}


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[str]:
    """Start `treadle serve` in a folder, and yield the link that opens its page."""
    command = [sys.executable, "-m", "treadle", "serve", *arguments, "--port", "0", "--json"]
    process = Forked(command, cwd=folder, stdout=PIPE, stderr=PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()
        served = json.loads(line)
        token = (folder / served["token_file"]).read_text().strip()
        yield f"{served['url']}/#token={token}"
    finally:
        process.terminate()
        process.communicate(timeout=30)


def until(browser: Browser, condition: str, seconds: float = 20.0) -> None:
    """Wait until an expression is true in the page."""
    end = time.monotonic() + seconds
    while not browser.run(f"Boolean({condition})"):
        if time.monotonic() > end:
            shown = browser.run("`${location.hash}\\n${document.body.innerText}`")
            pytest.fail(f"never true: {condition}\n{shown}")
        time.sleep(0.05)


def press(browser: Browser, *keys: str) -> None:
    """Press keys as a person does; `Shift+Tab` presses the second one while the first is down."""
    for name in keys:
        *held, key = name.split("+") if len(name) > 1 else [name]
        if key == "Space":
            key = " "
        text = "\r" if key == "Enter" else key if len(key) == 1 else ""
        code = CODES.get(key, ord(key.upper()) if key.isalnum() and len(key) == 1 else 0)
        shared: dict[str, Any] = {
            "key": key,
            "code": key if key in CODES else "",
            "windowsVirtualKeyCode": code,
            "modifiers": sum(MODIFIERS[each] for each in held),
        }
        written = {"text": text} if text and not {"Alt", "Control"} & {*held} else {}
        browser.call("Input.dispatchKeyEvent", type="keyDown", **shared, **written)
        browser.call("Input.dispatchKeyEvent", type="keyUp", **shared)


def write(browser: Browser, text: str) -> None:
    """Write a text into the field that has the focus, in place of its text."""
    browser.run("document.activeElement.select()")
    browser.type(text)


def go(browser: Browser, hash_: str) -> None:
    """Go to a place in the page."""
    browser.run(f"void (location.hash = {json.dumps(hash_)})")
