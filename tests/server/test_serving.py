"""Serving with uvicorn: connections that keep the server waiting, sockets, and how it ends."""

import asyncio
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from starlette.requests import HTTPConnection

from tests.forked import Forked
from tests.runner.acts import until
from treadle import Agent, Client, Runner, ScriptedModel
from treadle.errors import ConfigurationError, ServerUnavailable
from treadle.server import Principal, app
from treadle.server.limits import ServerLimits
from treadle.server.principals import ProxyHeader
from treadle.server.serving import REST_SECONDS, Server, at_unix_path, config, tcp_socket, unix_socket

pytestmark = pytest.mark.anyio

SHORT = ServerLimits(head_seconds=0.2, send_seconds=0.2, connections=5)


async def hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


async def flood(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(400):
        await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})


async def no_leave(grace: float) -> None:
    pass


@asynccontextmanager
async def served(
    site: Any, limits: ServerLimits = SHORT, leave: Any = no_leave, tls: Any = None
) -> AsyncIterator[Any]:
    bound = tcp_socket("127.0.0.1", 0)
    server = Server(config(site, limits=limits, tls=tls), leave, 0.5)
    running = asyncio.ensure_future(server.serve([bound]))
    await until(lambda: server.started)
    try:
        yield server, bound.getsockname()[1]
    finally:
        server.leave()
        await asyncio.wait_for(running, 5)


async def is_closed(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(10):
            while await reader.read(65_536):
                pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


async def ask(port: int, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    await writer.drain()
    return reader, writer


@pytest.mark.parametrize("head", [b"", b"GET / HTTP/1.1\r\nHost: a\r\n"])
async def test_a_connection_without_a_whole_head_is_closed_in_time(head: bytes):
    async with served(hello) as (_, port):
        reader, writer = await ask(port, head)
        assert await is_closed(reader)
        writer.close()


async def test_a_second_head_that_stays_half_sent_is_closed_in_time_too():
    async with served(hello) as (_, port):
        reader, writer = await ask(port, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        writer.write(b"GET / HTTP/1.1\r\nHo")
        assert await is_closed(reader)
        writer.close()


async def test_a_connection_that_asks_again_and_again_stays_open():
    async with served(hello, ServerLimits(head_seconds=1.0)) as (_, port):
        reader, writer = await ask(port, b"")
        for _ in range(4):
            await asyncio.sleep(0.3)
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            await reader.readuntil(b"ok")
        writer.close()


async def test_a_body_that_is_never_sent_whole_ends_its_connection_after_the_response(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("treadle.server.serving.REST_SECONDS", 0.05)
    async with served(hello, ServerLimits(head_seconds=60, send_seconds=60)) as (_, port):
        reader, writer = await ask(port, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nxx")
        assert b"200" in await reader.readuntil(b"ok")
        assert await is_closed(reader)
        writer.close()


async def test_a_client_that_was_still_sending_its_body_lost_the_response_that_refused_it():
    """The connection was closed with the response: the rest of the body met a reset, which can overtake it."""
    async with served(hello, ServerLimits(head_seconds=60, send_seconds=60)) as (_, port):
        reader, writer = await ask(port, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 400000\r\n\r\n")
        for _ in range(40):
            await asyncio.sleep(0.005)
            writer.write(b"x" * 10_000)
            await writer.drain()
        assert b"200" in await reader.readuntil(b"ok")
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")  # the connection is as good as before
        assert b"200" in await reader.readuntil(b"ok")
        await asyncio.sleep(REST_SECONDS + 0.1)
        assert not reader.at_eof()
        writer.close()


async def test_a_reader_that_takes_nothing_is_cut_off():
    async with served(flood) as (server, port):
        _, writer = await ask(port, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(0.05)
        assert len(server.server_state.connections) == 1
        await until(lambda: not server.server_state.connections)
        writer.transport.abort()


async def test_a_connection_above_the_cap_is_refused_and_the_others_go_on():
    async with served(hello) as (_, port):
        open_ones = [await ask(port, b"GET / HTTP/1.1\r\nHo") for _ in range(5)]
        reader, writer = await ask(port, b"")
        assert await is_closed(reader)
        open_ones[0][1].write(b"st: a\r\n\r\n")
        assert b"200" in await open_ones[0][0].readuntil(b"ok")
        for _, each in [*open_ones, (reader, writer)]:
            each.close()


async def test_a_head_over_its_bound_is_refused():
    async with served(hello) as (_, port):
        reader, writer = await ask(port, b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 40_000)
        assert b" 400 " in await reader.readline()
        writer.close()


async def test_a_port_that_is_taken_is_reported_with_what_to_do():
    with tcp_socket("127.0.0.1", 0) as taken, pytest.raises(ConfigurationError, match="--port"):
        tcp_socket("127.0.0.1", taken.getsockname()[1])


async def test_a_unix_socket_is_its_owners_alone_and_replaces_one_that_was_left(tmp_path: Path):
    path = tmp_path / "treadle.sock"
    with unix_socket(path):
        assert path.stat().st_mode & 0o777 == 0o600
    # The first was left behind.
    with unix_socket(path), pytest.raises(ConfigurationError, match="another server"):
        unix_socket(path)
    other = tmp_path / "file"
    other.write_text("mine")
    with pytest.raises(ConfigurationError, match="no socket"):
        unix_socket(other)
    assert other.read_text() == "mine"


PROGRAM = """
import asyncio, sys
from treadle.server.serving import serve, tcp_socket

left = []

async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while not left:
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        await asyncio.sleep(0.01)
    await send({"type": "http.response.body", "body": b"leaving"})

async def leave(grace):
    left.append(grace)
    print("leaving", grace, flush=True)
    await asyncio.sleep(grace)

async def main():
    bound = tcp_socket("127.0.0.1", 0)
    print(bound.getsockname()[1], flush=True)
    await serve(app, leave, [bound], grace=float(sys.argv[1]))
    print("ended", flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize(("grace", "signals"), [("0.1", 1), ("60", 2)])
def test_a_signal_ends_streams_then_the_process_with_exit_code_0(grace: str, signals: int):
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), grace]
    with Forked(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            with socket.create_connection(("127.0.0.1", int(process.stdout.readline()))) as client:
                client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                client.recv(100)
                process.send_signal(signal.SIGTERM)
                assert process.stdout.readline().startswith("leaving")
                if signals == 2:
                    process.send_signal(signal.SIGTERM)
                got = b""
                while data := client.recv(65_536):
                    got += data
            out, error = process.communicate(timeout=10)
        finally:
            process.kill()
    assert b"leaving" in got
    assert "ended" in out
    assert (process.returncode, error) == (0, "")


async def test_a_user_whom_a_proxy_signed_in_was_refused_behind_that_proxy():
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        who = ProxyHeader("X-User", ["127.0.0.1"])(HTTPConnection(scope))
        seen.append((who and who.name, scope["client"][0], scope["scheme"]))
        await hello(scope, receive, send)

    settings = config(app, behind_proxy=["127.0.0.1"])
    bound = tcp_socket("127.0.0.1", 0)
    server = Server(settings, no_leave, 0.5)
    running = asyncio.ensure_future(server.serve([bound]))
    await until(lambda: server.started)
    reader, writer = await asyncio.open_connection("127.0.0.1", bound.getsockname()[1])
    writer.write(
        b"GET / HTTP/1.1\r\nHost: a\r\nX-User: ann\r\nX-Forwarded-For: 203.0.113.7\r\n"
        b"X-Forwarded-Proto: https\r\nConnection: close\r\n\r\n"
    )
    await reader.read()
    writer.close()
    server.leave()
    await asyncio.wait_for(running, 5)
    assert seen == [("ann", "203.0.113.7", "https")]


async def test_a_socket_that_another_server_made_at_the_path_was_removed(tmp_path: Path):
    path = tmp_path / "treadle.sock"
    with at_unix_path(path):
        path.unlink()
        other = unix_socket(path)
    with other:
        assert path.is_socket()
    with at_unix_path(path):  # the other has ended
        pass
    assert not path.exists()


async def test_a_response_that_went_on_at_the_end_was_logged_as_a_fault(caplog: pytest.LogCaptureFixture):
    begun = asyncio.Event()

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        begun.set()
        while (await receive())["type"] != "http.disconnect":
            pass

    async with served(endless) as (_, port):
        reader, writer = await ask(port, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await begun.wait()
    assert await is_closed(reader)
    writer.close()
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_where_the_app_outside_takes_up_the_header_of_a_proxy_no_user_is_signed_in():
    scope = {"type": "http", "client": ("203.0.113.7", 1), "headers": [(b"x-user", b"ann")]}
    who = ProxyHeader("X-User", ["127.0.0.1"])
    assert who(HTTPConnection(scope)) is None  # `client` is what `X-Forwarded-For` says
    assert who(HTTPConnection({**scope, "client": ("127.0.0.1", 1)})) is not None  # `--no-proxy-headers`


# ---------------------------------------------------------------------------------------------------------- TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The files of a certificate of this machine, signed by itself, and of its key."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name.from_rfc4514_string("CN=localhost")
    now = datetime.now(UTC)
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))])
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    signed = made.add_extension(names, critical=False).sign(key, hashes.SHA256())
    folder = tmp_path_factory.mktemp("tls")
    files = folder / "cert.pem", folder / "key.pem"
    files[0].write_bytes(signed.public_bytes(Encoding.PEM))
    files[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return files


async def test_the_client_runs_and_follows_a_task_over_https(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
):
    agent = Agent(ScriptedModel(["done"]), name="shop")
    api = app(Runner("memory:", agents=[agent]), auth=lambda _: Principal("ann"))
    async with api.lifespan(), served(api, ServerLimits(), api.leave, certificate) as (_, port):
        async with Client(f"https://localhost:{port}", token="t", patience=0.1) as stranger:
            with pytest.raises(ServerUnavailable, match="certificate"):
                await stranger.get_agents()
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
        monkeypatch.setattr("treadle.llm.connections.tls", httpx2.create_ssl_context)  # which is cached
        async with Client(f"https://localhost:{port}", token="t") as client:
            result = await client.run("shop", "Go.")
            events = [event async for event in client.handle(result.task_id).events()]
    assert result.final_text == "done"
    assert len(events) > 3


@pytest.mark.parametrize("data", [b"", b"\x16\x03\x01"])
async def test_a_peer_that_does_not_come_to_terms_on_tls_kept_its_connection_for_a_minute(
    data: bytes, certificate: tuple[Path, Path]
):
    async with served(hello, tls=certificate) as (_, port):
        reader, writer = await ask(port, data)
        assert await is_closed(reader)
        writer.close()


def test_a_certificate_of_no_use_is_reported_with_its_file(certificate: tuple[Path, Path]):
    with pytest.raises(ConfigurationError, match=r"cert\.pem.*PEM"):
        config(hello, tls=(certificate[1], certificate[0]))


@pytest.fixture
async def guarded() -> AsyncIterator[int]:
    """The port of a server with the whole application."""
    api = app(Runner("memory:", agents=[]), auth=lambda _: Principal("ann"), hosts=["x"], drive=False)
    async with served(api) as (_, port):
        yield port


HEAD = b"POST /v1/tasks HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
NEXT = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"


async def test_a_request_with_two_lengths_kept_its_connection(guarded: int):
    """A proxy that takes the other length would read the rest of the body as a request of another client."""
    both = b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    reader, writer = await ask(guarded, HEAD + both + NEXT)
    answer = await asyncio.wait_for(reader.read(), 10)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1, "the connection is closed, and the next request is not served"
    writer.close()


async def test_a_head_that_came_at_once_was_not_bounded(guarded: int):
    padding = b"".join([b"X-Padding-%d: %s\r\n" % (number, b"x" * 7_000) for number in range(10)])
    reader, writer = await ask(guarded, b"GET /health HTTP/1.1\r\nHost: x\r\n" + padding + b"\r\n")
    status = (await asyncio.wait_for(reader.readline(), 10)).split()[1]
    assert status in (b"400", b"431"), "by h11 if it came in pieces, else by the application"
    writer.close()
