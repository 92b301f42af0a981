"""Drives Chromium over its debugging pipe: opens pages, runs scripts in them, takes pictures of them.

No library and no port: Chromium reads commands from one pipe and writes answers and events to another.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def chromium() -> str | None:
    """Return the path of an installed Chromium, if there is one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """A headless Chromium with one page.

    Args:
        path: The program of the browser.
        options: Further options of the program.
    """

    def __init__(self, path: str, *options: str) -> None:
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        # --no-sandbox: as root, Chromium refuses to start with one. The pages are our own.
        command = [
            path,
            *options,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            f"--user-data-dir={self._profile.name}",
            "--remote-debugging-pipe",
            "about:blank",
        ]
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "bash", *command],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._commands, self._answers = os.fdopen(ours_out, "wb", 0), os.fdopen(ours_in, "rb")
        self._count = 0
        self._unread = b""
        self._events: list[dict[str, Any]] = []
        self._session: str | None = None
        self._targets: dict[str, str] = {}
        self.requests: list[dict[str, Any]] = []
        """The requests of the pages in which `Network.enable` was called, as the protocol reports them."""
        self.new_tab()

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, cls: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._commands.close()  # Chromium ends when its pipe is closed
        self._answers.close()
        self._process.wait(timeout=60)
        self._profile.cleanup()

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            if not (piece := self._answers.read1(1 << 16)):
                raise RuntimeError("Chromium closed its pipe: it crashed or did not start")
            self._unread += piece
        text, _, self._unread = self._unread.partition(b"\0")
        message = json.loads(text)
        if message.get("method") == "Network.requestWillBeSent":
            self.requests.append(message["params"])
        return message

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Send a command of the DevTools protocol, and return its result."""
        self._count += 1
        session = {"sessionId": self._session} if self._session else {}
        command = {"id": self._count, "method": method, "params": arguments, **session}
        self._commands.write(json.dumps(command).encode() + b"\0")
        while (message := self._read()).get("id") != self._count:
            self._events.append(message)
        if "error" in message:
            raise RuntimeError(f"{method}: {message['error']['message']}")
        return message["result"]

    def new_tab(self) -> str:
        """Open a tab and use it: commands go to it. Return its name for `use_tab`."""
        self._session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._targets[session] = target
        return self.use_tab(session)

    @property
    def tab(self) -> str:
        """The name of the tab that is used."""
        assert self._session is not None
        return self._session

    def close_tab(self, tab: str) -> None:
        """Close a tab; another one has to be used next."""
        self._session = None
        self.call("Target.closeTarget", targetId=self._targets.pop(tab))

    def use_tab(self, tab: str) -> str:
        """Bring a tab to the front, and send commands to it."""
        self._session = tab
        self.call("Page.enable")
        self.call("Page.bringToFront")
        return tab

    def wait_for(self, method: str) -> None:
        """Wait until the page reports an event."""
        while not any(event.get("method") == method for event in self._events):
            self._events.append(self._read())
        self._events.clear()

    def show(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the size of the window, in pixels, and the colour scheme that the reader prefers."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.call("Emulation.setEmulatedMedia", features=[scheme, still])

    def open(self, address: str) -> None:
        """Open a page, and wait until it has loaded."""
        self._events.clear()
        self.call("Page.navigate", url=address)
        self.wait_for("Page.loadEventFired")

    def run(self, script: str, tab: str | None = None) -> Any:
        """Run an expression in the page, wait for its promise, and return its value.

        Args:
            script: the expression.
            tab: another tab than the one that is used.
        """
        used, self._session = self._session, tab or self._session
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        self._session = used
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description"))
        return answer["result"].get("value")

    def type(self, text: str) -> None:
        """Type a text where the cursor is."""
        self.call("Input.insertText", text=text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=text[-1])

    def press(self, key: str, code: int) -> None:
        """Press a key and release it."""
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Write a picture of the window, or of the whole page, as a PNG file."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))
