"""Clients for tools reach the hosts that they are told and no address inside the network, at no hop."""

import asyncio
import gzip
import ipaddress
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import pytest

from treadle.errors import ConfigurationError, ToolError
from treadle.tools.web import (
    GLOBAL_UNICAST,
    SPECIAL_IPV4,
    SPECIAL_IPV6,
    ConnectionRefused,
    Reach,
    _is_same_service,
    http_client,
    http_client_sync,
    is_of_internet,
)

pytestmark = pytest.mark.anyio


class Sink:
    """A listener that no client may reach: it counts those that connect."""

    def __init__(self) -> None:
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.2", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            connection.close()

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def sink() -> Iterator[Sink]:
    sink = Sink()
    yield sink
    assert sink.connections == 0
    sink.close()


class Site(BaseHTTPRequestHandler):
    """A server whose path says what it answers: `/to?URL` redirects, `/long` is long, `/gzip` is packed."""

    def do_GET(self) -> None:
        kind, _, rest = self.path.partition("?")
        data = {"/long": b"x" * 5_000, "/gzip": gzip.compress(b"x" * 5_000)}.get(kind, b"hello")
        self.send_response(302 if kind == "/to" else 200)
        if kind == "/to":
            self.send_header("location", rest)
        if kind == "/gzip":
            self.send_header("content-encoding", "gzip")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


ADDRESSES = [
    "127.0.0.2",
    "127.2",
    "127.0.2",
    "2130706434",
    "0x7f000002",
    "0x7f.0.0.2",
    "0x7f.2",
    "0177.0.0.2",
    "017700000002",
    "0177.2",
    "127.000.000.002",
    "[::ffff:127.0.0.2]",
    "[::ffff:7f00:2]",
    "[0:0:0:0:0:ffff:7f00:0002]",
    "[::127.0.0.2]",
    "[64:ff9b::127.0.0.2]",
    "[64:ff9b::7f00:2]",
    "[2002:7f00:2::]",
    "[2001:0:7f00:2::1]",
    "[2001:0:4136:e378:8000:63bf:80ff:fffd]",
    "[::1]",
    "[::]",
    "0",
    "0.0.0.0",
    "0x0",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "ip6-localhost",
    "10.0.0.1",
    "10.255.255.255",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.0.1",
    "100.64.0.1",
    "100.127.255.255",
    "169.254.169.254",
    "169.254.0.1",
    "[fe80::1]",
    "[fe80::1%25lo]",
    "[fc00::1]",
    "[fd00:ec2::254]",
    "192.0.0.1",
    "192.0.2.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "[ff02::1]",
    "240.0.0.1",
    "255.255.255.255",
    "[100::1]",
    "[2001:db8::1]",
    "2852039166",
    "0xa9fea9fe",
    "0251.0376.0251.0376",
    "user:pass@127.0.0.2",
    "example.com@127.0.0.2",
    "example.com%40127.0.0.2",
    "example.com#@127.0.0.2",
    "\uff11\uff12\uff17.0.0.2",
    "①②⑦.0.0.2",
    "127。0。0。2",
]


def url(host: str, sink: Sink) -> str:
    return f"http://{host}:{sink.port}/x"


@pytest.mark.parametrize("address", ADDRESSES)
async def test_no_address_inside_the_network_is_reached(address: str, sink: Sink) -> None:
    async with http_client("*", timeout=2) as client:
        with pytest.raises((ToolError, httpx2.HTTPError, httpx2.InvalidURL)):
            await client.get(url(address, sink))
    with (
        http_client_sync("*", timeout=2) as client,
        pytest.raises((ToolError, httpx2.HTTPError, httpx2.InvalidURL)),
    ):
        client.get(url(address, sink))


@pytest.mark.parametrize(
    "scheme", ["file", "ftp", "gopher", "dict", "ldap", "unix", "data", "ws", "jar", "HTTPX"]
)
async def test_no_other_scheme_is_asked(scheme: str, sink: Sink) -> None:
    async with http_client("*") as client:
        with pytest.raises((ToolError, httpx2.HTTPError)):
            await client.get(f"{scheme}://127.0.0.2:{sink.port}/etc/passwd")


@pytest.mark.parametrize("hops", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize(
    "target", ["http://127.0.0.2:{}", "http://2130706434:{}/x", "//0x7f.2:{}/", "http://127.2:{}"]
)
async def test_a_redirect_leads_to_no_address_inside_the_network(
    hops: int, target: str, site: str, sink: Sink
) -> None:
    way = target.format(sink.port)
    for _ in range(hops):
        way = f"{site}/to?{way}"
    async with http_client("*", networks=["127.0.0.1/32"]) as client:
        with pytest.raises((ToolError, httpx2.TooManyRedirects)):
            await client.get(way)


async def test_a_name_that_resolves_to_another_address_each_time_is_resolved_once(
    site: str, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second answer of the resolver leads into the network: no one asks for a second."""
    answers = iter(["127.0.0.1"] + ["127.0.0.2"] * 9)

    async def resolve(host: str, port: int, **more: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    port = site.rpartition(":")[2]
    async with http_client("rebinding.example", networks=["127.0.0.1/32"]) as client:
        assert (await client.get(f"http://rebinding.example:{port}/")).text == "hello"
        with pytest.raises(ConnectionRefused, match=r"the address 127\.0\.0\.2"):
            await client.get(f"http://rebinding.example:{sink.port}/")


async def test_a_name_with_one_address_inside_the_network_is_not_reached(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def resolve(host: str, port: int, **more: Any) -> list[Any]:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in ("8.8.8.8", "127.0.0.2")
        ]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    async with http_client("*") as client:
        with pytest.raises(ConnectionRefused, match=r"127\.0\.0\.2, which is not part of the internet"):
            await client.get(f"http://mixed.example:{sink.port}/")


@pytest.mark.parametrize(
    ("allowed", "host", "reached"),
    [
        (("api.example.com",), "api.example.com", True),
        (("api.example.com",), "API.Example.COM.", True),
        (("api.example.com",), "evil.com", False),
        (("api.example.com",), "api.example.com.evil.com", False),
        (("api.example.com",), "xapi.example.com", False),
        (("*.example.org",), "a.b.example.org", True),
        (("*.example.org",), "example.org", False),
        (("*.example.org",), "badexample.org", False),
        (("a.com", "b.com"), "b.com", True),
        (("*",), "any.com", True),
    ],
)
def test_hosts_are_allowed_by_name(allowed: tuple[str, ...], host: str, reached: bool) -> None:
    reach = Reach(allowed)
    if reached:
        reach.check_host(httpx2.URL(f"https://{host}/"))
    else:
        with pytest.raises(ConnectionRefused, match="is not allowed"):
            reach.check_host(httpx2.URL(f"https://{host}/"))


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("file:///etc/passwd", "the scheme 'file' is not allowed"),
        ("ftp://example.com/x", "the scheme 'ftp' is not allowed"),
        ("/etc/passwd", "the URL '/etc/passwd' names no scheme"),
    ],
)
async def test_a_scheme_that_is_refused_is_named_also_where_the_url_has_no_host(url: str, told: str) -> None:
    async with http_client("*") as client:
        with pytest.raises(ConnectionRefused, match=told):
            await client.get(url)
    with http_client_sync("*") as client, pytest.raises(ConnectionRefused, match=told):
        client.get(url)


async def test_a_path_is_one_of_the_base_url(site: str) -> None:
    async with http_client("127.0.0.1", networks=["127.0.0.0/8"], base_url=site) as client:
        assert (await client.get("/")).text == "hello"


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8"]
)
def test_public_addresses_may_be_reached(address: str) -> None:
    assert Reach(["*"]).checked("x", [address]) in (address, "::ffff:808:808")


async def test_an_allowed_network_is_reached_with_the_name_of_the_host(site: str) -> None:
    async with http_client("127.0.0.1", networks=["127.0.0.0/8"]) as client:
        response = await client.get(site)
        assert (response.text, str(response.url)) == ("hello", site)
        assert (await client.get(f"{site}/to?/")).text == "hello"
    with http_client_sync("127.0.0.1", networks=["127.0.0.0/8"]) as client:
        assert client.get(f"{site}/to?/").text == "hello"


async def test_headers_that_may_hold_a_key_do_not_go_to_another_host(site: str, sink: Sink) -> None:
    async with http_client("*", networks=["127.0.0.0/8"], headers={"x-api-key": "sk-1"}) as client:
        assert (await client.get(f"{site}/to?/")).text == "hello"
        with pytest.raises(
            ConnectionRefused,
            match=r"redirects to http://127\.0\.0\.2:\d+, .* \(x-api-key\) that may hold a key",
        ):
            await client.get(f"{site}/to?http://127.0.0.2:{sink.port}/")


@pytest.mark.parametrize(
    ("asked", "target", "is_same"),
    [
        ("https://a.test/x", "https://a.test/y", True),
        ("https://a.test:443/x", "https://a.test/y", True),
        ("http://a.test/", "https://a.test/", True),
        ("https://a.test/", "http://a.test/", False),
        ("https://a.test/", "https://a.test:8443/", False),
        ("http://a.test:8080/", "https://a.test/", False),
        ("https://a.test/", "https://b.test/", False),
        ("https://a.test/", "https://a.test.evil.test/", False),
    ],
)
def test_a_key_stays_with_the_server_that_was_asked(asked: str, target: str, is_same: bool) -> None:
    assert _is_same_service(httpx2.URL(asked), httpx2.URL(target)) is is_same


async def test_headers_that_may_hold_a_key_do_not_go_to_another_port(site: str, sink: Sink) -> None:
    other = f"http://127.0.0.1:{sink.port}/"
    async with http_client("*", networks=["127.0.0.0/8"], headers={"x-api-key": "sk-1"}) as client:
        with pytest.raises(
            ConnectionRefused, match=r"redirects to http://127\.0\.0\.1:\d+, .* may hold a key"
        ):
            await client.get(f"{site}/to?{other}")


async def test_a_long_response_ends_with_an_error(site: str) -> None:
    async with http_client("*", networks=["127.0.0.1/32"], max_bytes=1_000) as client:
        with pytest.raises(ConnectionRefused, match="more than 1000 bytes"):
            await client.get(f"{site}/long")
    client = http_client_sync("*", networks=["127.0.0.1/32"], max_bytes=1_000)
    with client, pytest.raises(ConnectionRefused, match="more than 1000 bytes"):
        client.get(f"{site}/long")


async def test_a_packed_response_is_refused_since_its_length_is_not_known(site: str) -> None:
    async with http_client("*", networks=["127.0.0.1/32"]) as client:
        with pytest.raises(ConnectionRefused, match="encoding 'gzip'"):
            await client.get(f"{site}/gzip")


async def test_no_proxy_of_the_environment_is_used(
    site: str, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.2:{sink.port}")
    monkeypatch.setenv("ALL_PROXY", f"http://127.0.0.2:{sink.port}")
    async with http_client("*", networks=["127.0.0.1/32"]) as client:
        assert (await client.get(site)).text == "hello"


@pytest.mark.parametrize(
    ("hosts", "more", "told"),
    [
        ((), {}, "name at least one host"),
        (("https://x.com",), {}, "is not a host"),
        (("x.com/a",), {}, "is not a host"),
        (("",), {}, "is not a host"),
        (("*",), {"networks": ["10.0.0.1/8"]}, "networks"),
        (("*",), {"proxy": "http://x"}, "proxy would decide where"),
        (("*",), {"trust_env": True}, "trust_env would decide where"),
        (("*",), {"verify": False}, "verify would decide where"),
    ],
)
def test_what_would_reach_further_is_refused(hosts: tuple[str, ...], more: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        http_client(*hosts, **more)
    with pytest.raises(ConfigurationError, match=told):
        http_client_sync(*hosts, **more)


# ------------- addresses of the internet are those of a table, whatever the running Python takes for global


BLOCKS = [ipaddress.ip_network(block) for block, _ in (*SPECIAL_IPV4, *SPECIAL_IPV6)]


def read(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(text)


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_no_address_of_a_special_block_is_of_the_internet_and_its_neighbours_are(block):
    first, last = block[0], block[-1]
    for address in (first, first + 1, block[block.num_addresses // 2], last):
        assert not is_of_internet(address)
        if address.version == 4:
            assert not is_of_internet(read(f"::ffff:{address}"))
            assert not is_of_internet(read(f"64:ff9b::{address}"))
    neighbours = [int(first) - 1, int(last) + 1]
    for number in neighbours:
        if not 0 <= number < 2**block.max_prefixlen:
            continue
        address = type(first)(number)
        of_another = any(address in other for other in BLOCKS if other.version == block.version)
        outside = address.version == 6 and address not in ipaddress.ip_network(GLOBAL_UNICAST[0])
        assert is_of_internet(address) is not (of_another or outside), address


@pytest.mark.parametrize(
    "address",
    ["fec0::1", "feff::1", "192.0.0.9", "192.0.0.170", "192.88.99.1", "3fff::1", "3fff:fff:ffff::1"],
)
def test_a_block_that_some_versions_of_python_call_global_was_reached(address):
    assert not is_of_internet(read(address))


@pytest.mark.parametrize(
    "address",
    [
        *("::", "::1", "::7f00:1", "::ffff:10.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b:1::8.8.8.8", "100::1"),
        *("100:0:0:1::1", "5f00::1", "fc00::1", "fdff::1", "fe80::1", "ff02::1", "4000::1", "1fff::1"),
        *("2001::1", "2001:2::1", "2001:20::1", "2002:808:808::1", "2001:db8::1"),
    ],
)
def test_ipv6_that_is_no_assigned_unicast_is_not_of_the_internet(address):
    assert not is_of_internet(read(address))


@pytest.mark.parametrize(
    "address",
    [
        *("8.8.8.8", "1.1.1.1", "192.0.1.1", "192.88.98.1", "192.88.100.1", "172.32.0.1", "100.128.0.1"),
        *("192.31.196.1", "192.175.48.1", "223.255.255.255", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"),
        *("2606:4700::1111", "2001:4860:4860::8888", "2001:200::1", "2a00:1450::1", "2620:4f:8000::1"),
    ],
)
def test_addresses_of_services_are_of_the_internet(address):
    assert is_of_internet(read(address))


def test_what_the_running_python_takes_for_global_does_not_count(monkeypatch):
    for kind in (ipaddress.IPv4Address, ipaddress.IPv6Address):
        for name in ("is_global", "is_private", "is_reserved", "is_multicast"):
            monkeypatch.setattr(kind, name, property(lambda self: True))
    assert not is_of_internet(read("10.0.0.1"))
    assert is_of_internet(read("8.8.8.8"))
