"""The inspector: its files need no principal, have a strict policy, and load nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.lazily import fastapi
from tests.server.calling import Client, agent, by_name
from treadle import Runner
from treadle.server import Application, OneToken, app
from treadle.server.entrance import code_of
from treadle.server.page import FOLDER

pytestmark = pytest.mark.anyio


def api(*, inspector: bool = True) -> Application:
    return app(Runner("memory:", agents=[agent()]), auth=by_name, inspector=inspector)


def links(page: str) -> list[str]:
    """Return the relative links of the page: its style, its first module, its icon and the libraries."""
    return re.findall(r'"(?:\./)?(inspector/[^"]+)"', page)


async def test_the_page_and_its_files_need_no_principal_and_everything_else_does():
    async with Client(api(), None) as stranger:
        page = await stranger.get("/")
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        for link in links(page.text):
            file = await stranger.get(f"/{link}")
            assert file.status_code == 200, link
            assert file.headers["cache-control"] == "public, max-age=31536000, immutable"
        statuses = [(await stranger.get(path)).status_code for path in ("/v1/tasks", "/inspector", "/other")]
        assert statuses == [401, 401, 401]
        assert (await stranger.post("/")).status_code == 401
        assert (await stranger.get("/inspector/0/../../secret")).status_code in (401, 404)


def mounted() -> Any:
    """Return a site that has the application below a path."""
    inner = api()
    site = fastapi.FastAPI(lifespan=inner.lifespan)
    site.mount("/agents", inner)
    return site


@pytest.mark.parametrize(("site", "path"), [(api, "/"), (mounted, "/agents/")])
async def test_the_page_may_run_only_its_own_files_and_its_import_map(site: Callable[[], Any], path: str):
    async with Client(site(), None) as stranger:
        page = await stranger.get(path)
    import_map = re.search(r'<script type="importmap">(.*?)</script>', page.text, re.DOTALL)
    assert import_map is not None
    digest = base64.b64encode(hashlib.sha256(import_map[1].encode()).digest()).decode()
    assert page.headers["content-security-policy"].split("; ") == [
        "default-src 'none'",
        f"script-src 'self' 'sha256-{digest}'",
        "style-src 'self'",
        "img-src 'self' blob: data:",
        "connect-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    others = (
        "x-content-type-options",
        "referrer-policy",
        "cross-origin-opener-policy",
        "cross-origin-resource-policy",
    )
    assert [page.headers[name] for name in others] == ["nosniff", "no-referrer", "same-origin", "same-origin"]
    assert "style=" not in page.text
    assert len(re.findall(r"<script", page.text)) == 2
    assert not re.search(r'(src|href)="/', page.text), "its links work below any path"


async def test_the_page_is_compared_at_each_visit_and_its_files_have_a_path_for_each_version():
    async with Client(api(), None) as stranger:
        page = await stranger.get("/")
        again = await stranger.get("/", headers={"If-None-Match": page.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert page.headers["cache-control"] == "no-cache"
        old = links(page.text)[0].replace(page.headers["etag"].strip('"'), "0" * 16)
        assert (await stranger.get(f"/{old}")).status_code == 404


async def test_a_mounted_application_has_the_page_below_its_path():
    async with Client(mounted(), None) as stranger:
        page = await stranger.get("/agents/")
        assert page.status_code == 200
        assert {(await stranger.get(f"/agents/{link}")).status_code for link in links(page.text)} == {200}
        assert (await stranger.get("/agents/v1/tasks")).status_code == 401


async def test_the_page_names_all_its_modules_so_that_a_browser_reads_them_at_once():
    async with Client(api(), None) as stranger:
        page = await stranger.get("/")
    named = re.findall(r'<link rel="modulepreload" href="inspector/[0-9a-f]{16}/([^"]+)">', page.text)
    assert named == sorted(file.relative_to(FOLDER).as_posix() for file in FOLDER.rglob("*.js"))
    assert page.text.index("importmap") < page.text.index("modulepreload")


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [("gzip, br", "gzip"), ("br;q=1, gzip;q=0.5", "gzip"), ("gzip;q=0", None), ("identity", None)],
)
async def test_files_are_compressed_for_browsers_that_accept_it(accepted: str, encoding: str | None):
    async with Client(api(), None) as stranger:
        link = next(link for link in links((await stranger.get("/")).text) if link.endswith("style.css"))
        file = await stranger.get(f"/{link}", headers={"Accept-Encoding": accepted})
    assert file.headers.get("content-encoding") == encoding
    assert file.headers["vary"] == "Accept-Encoding"
    assert file.text == (FOLDER / "style.css").read_text()


async def test_a_link_of_another_site_opens_the_page_and_a_page_of_another_site_reads_nothing():
    crossing = {"Sec-Fetch-Site": "cross-site"}
    async with Client(api(), None) as stranger:
        opened = await stranger.get("/", headers={**crossing, "Sec-Fetch-Mode": "navigate"})
        assert opened.status_code == 200
        assert (await stranger.get("/", headers={**crossing, "Sec-Fetch-Mode": "no-cors"})).status_code == 403
        assert (await stranger.get("/", headers={"Host": "evil.example"})).status_code == 421
        reads = await stranger.get("/v1/tasks", headers={**crossing, "Sec-Fetch-Mode": "navigate"})
        assert reads.status_code == 403


async def test_a_server_without_the_inspector_has_no_page():
    async with Client(api(inspector=False), None) as stranger:
        assert (await stranger.get("/")).status_code == 401
    async with Client(api(inspector=False)) as client:
        assert (await client.get("/")).status_code == 404


def test_no_module_of_the_page_writes_recorded_text_as_html_or_names_another_server():
    for file in sorted(FOLDER.glob("*.js")):
        text = file.read_text()
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|dangerously|document\.write|eval\(", text
        ), file
        assert not re.search(r"https?://", text), file
        assert len(text.splitlines()) <= 300, file


async def test_a_one_time_code_is_exchanged_for_the_token_of_the_server():
    token = "t" * 40
    inner = app(Runner("memory:", agents=[agent()]), auth=OneToken(token))
    site = fastapi.FastAPI(lifespan=inner.lifespan)
    site.mount("/agents", inner)
    async with Client(site, None) as stranger:
        code = {"code": code_of(token)}
        entered = await stranger.post("/agents/inspector/enter", json=code)
        assert (entered.status_code, entered.json()) == (200, {"token": token})
        assert entered.headers["cache-control"] == "no-store"
        assert (await stranger.post("/agents/inspector/enter", json=code)).status_code == 403
        for body in ({}, {"code": 1}, ["code"]):
            assert (await stranger.post("/agents/inspector/enter", json=body)).status_code == 422
        crossing = {"Sec-Fetch-Site": "cross-site"}
        fresh = {"code": code_of(token)}
        foreign = await stranger.post("/agents/inspector/enter", json=fresh, headers=crossing)
        assert foreign.status_code == 403
    async with Client(api(), None) as stranger:  # its principals have no single token
        refused = await stranger.post("/inspector/enter", json={"code": code_of(token)})
        assert (refused.status_code, refused.json()["type"]) == (403, "urn:treadle:error:CodeRefused")
