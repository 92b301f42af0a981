"""A server that no page may reach: it counts what arrives.

It stands for every other server. Chromium sends it all requests that leave this machine, since it is their proxy; and
hostile texts name its address, since a proxy sees no requests to this machine.
"""

from __future__ import annotations

import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

VENDOR = re.compile(r" (http://)?([\w-]+\.)*(google|googleapis|gstatic|gvt1)\.com\b")
"""What Chromium asks for itself, in spite of all its options; no page names these servers."""

EMPTY = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
LOCAL = {"127.0.0.1", "localhost", "::1"}


class Outside:
    """A server on a free port of loopback, in a thread."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        """The requests that arrived, each by its method and address."""
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            def handle_one_request(self) -> None:
                self.raw_requestline = self.rfile.readline(65537)
                request = self.raw_requestline.decode("latin-1").rsplit(" ", 1)[0]
                if request:
                    if not VENDOR.search(request):
                        asked.append(request)
                    self.wfile.write(EMPTY)
                self.close_connection = True

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()


def strays(requests: list[dict[str, Any]]) -> list[str]:
    """Return the addresses of requests to other servers than that of their page.

    Args:
        requests: as the DevTools protocol reports them.
    """
    return [
        f"{each['documentURL']} asked for {each['request']['url']}"
        for each in requests
        if not _stays(each["request"]["url"], each["documentURL"], each["initiator"]["type"])
    ]


def _stays(address: str, page: str, initiator: str) -> bool:
    to, at = urlsplit(address), urlsplit(page)
    if to.scheme in ("data", "blob", "about"):
        return True
    if address == page:  # it takes the place of the page, which only tests do
        return initiator == "other" and to.hostname in LOCAL
    return (to.scheme, to.netloc) == (at.scheme, at.netloc)
