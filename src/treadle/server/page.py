"""The inspector: one page that shows tasks, and its files, served from memory without authentication.

The files have no data: the page reads everything with requests of its own, which need a token. Their path contains a
digest of all of them, so a browser stores them for good and a new version gets another path. Only the page itself is
compared at each visit. The page may load nothing from elsewhere, and runs no script that is not one of these files.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from pathlib import Path
from typing import Any, Final, cast

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from treadle.server.entrance import Entrance
from treadle.server.guard import json_of, read_body
from treadle.server.problems import Problem

FOLDER: Final = Path(__file__).parent / "inspector"
"""The folder of the page: its modules, its style, and the libraries of others."""

TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
"""The media types of the files by the end of their names; other files are not served."""

_FILES: Final = "/inspector/"
_ENTER: Final = "/inspector/enter"
_CODE_BYTES: Final = 1_000
_CODE_SECONDS: Final = 10.0
_MODULES: Final = "<!-- modules -->\n"
_PRELOAD: Final = '<link rel="modulepreload" href="inspector/{}">\n'
"""The page names all its modules; otherwise a browser learns of a module only from the modules that import it."""

_TAKES_GZIP: Final = re.compile(r"\bgzip\b(?!\s*;\s*q=0(\.0*)?\s*(,|$))")
_IMPORT_MAP: Final = re.compile(r'<script type="importmap">(.*?)</script>', re.DOTALL)


class Page:
    """The files of the inspector, read once.

    Args:
        folder: their folder.
        entrance: exchanges one-time codes for the token of the server; None if it has no single token.
    """

    def __init__(self, folder: Path = FOLDER, *, entrance: Entrance | None = None) -> None:
        self._entrance = entrance
        files = sorted(file for file in folder.rglob("*") if file.suffix in TYPES)
        self._files = {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}
        self._compressed: dict[str, bytes] = {}
        text = (folder / "index.html").read_text("utf-8")
        whole = hashlib.sha256(text.encode())
        for name, content in self._files.items():
            whole.update(f"\0{name}\0{len(content)}\0".encode() + content)
        self._digest = whole.hexdigest()[:16]
        modules = [name for name in self._files if name.endswith(".js")]
        text = text.replace(_MODULES, "".join(_PRELOAD.format(name) for name in modules))
        text = text.replace("inspector/", f"inspector/{self._digest}/")
        self._page = text.encode()
        self._policy = _policy(text)

    @property
    def routes(self) -> list[Route]:
        """The routes of the page, of its files and of one-time codes."""
        return [
            Route("/", self._send_page, methods=["GET"]),
            Route(_ENTER, self._exchange, methods=["POST"]),
            Route(f"{_FILES}{{digest}}/{{name:path}}", self._send_file, methods=["GET"]),
        ]

    @staticmethod
    def owns(method: str, path: str) -> bool:
        """Return whether a request is for the page, a file of it or an exchange of a code: they need no principal."""
        if method == "POST":
            return path == _ENTER
        return method in ("GET", "HEAD") and (path in ("", "/") or path.startswith(_FILES))

    async def _exchange(self, request: Request) -> Response:
        """Answer a one-time code with the token."""
        request.state.operation = "inspector"
        body = json_of(await read_body(request, _CODE_BYTES, _CODE_SECONDS))
        code: Any = cast("dict[str, Any]", body).get("code") if isinstance(body, dict) else None
        if not isinstance(code, str):
            raise Problem(422, "InvalidField", "the body needs a code: a text")
        token = self._entrance.exchange(code) if self._entrance is not None else None
        if token is None:
            raise Problem(
                403, "CodeRefused", "the code was used already, has expired, or is of another server"
            )
        return JSONResponse({"token": token})

    async def _send_page(self, request: Request) -> Response:
        request.state.operation = "inspector"
        headers = {
            "Content-Security-Policy": self._policy,
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "ETag": f'"{self._digest}"',
            "Cache-Control": "no-cache",
        }
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(self._page, headers=headers, media_type="text/html; charset=utf-8")

    async def _send_file(self, request: Request) -> Response:
        request.state.operation = "inspector"
        name: str = request.path_params["name"]
        content = self._files.get(name) if request.path_params["digest"] == self._digest else None
        if content is None:
            raise Problem(404, "NoSuchFile", "the page has no such file: reload it")
        headers = {
            "Cache-Control": "public, max-age=31536000, immutable",
            "Content-Security-Policy": "default-src 'none'",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Vary": "Accept-Encoding",
        }
        if _TAKES_GZIP.search(request.headers.get("accept-encoding", "")):
            headers["Content-Encoding"] = "gzip"
            content = self._compressed.get(name)
            if content is None:
                content = self._compressed[name] = gzip.compress(self._files[name], mtime=0)
        return Response(content, headers=headers, media_type=TYPES[Path(name).suffix])


def _policy(text: str) -> str:
    """Return the content security policy of the page, with the hash of its import map."""
    import_map = _IMPORT_MAP.search(text)
    assert import_map is not None, "the page has an import map"
    digest = base64.b64encode(hashlib.sha256(import_map[1].encode()).digest()).decode()
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src 'self' 'sha256-{digest}'",
            "style-src 'self'",
            "img-src 'self' blob: data:",
            "connect-src 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
