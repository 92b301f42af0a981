"""HTTP clients for tools. They reach the declared hosts on the internet, and no address of the internal network.

A host name does not prove where a connection leads. It resolves to any address, and to a different one a moment later
(DNS rebinding). So the client resolves each name itself and checks all addresses of the answer. It connects to one that
it checked. A redirect is a new request with the same checks.

    search = http_client("api.example.com", "*.example.org")

    @tool(read_only=True, open_world=True)
    async def look_up(word: str) -> str:
        return (await search.get("https://api.example.com/words", params={"q": word})).text

This module needs the extra `http`.

Whether an address is on the internet is decided by a table here, since the tables of Python versions differ.

Its sources are registries of IANA as of 2025: the special-purpose addresses (iana-ipv4-special-registry and its twin of
IPv6), multicast, and the IPv6 address space. Blocks that IANA lists as globally reachable for every host (AS112, AMT)
are left out. A block with mixed entries (192.0.0.0/24, 2001::/23) is refused as a whole.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import AsyncIterator, Iterable, Iterator
from functools import cache
from ssl import SSLContext
from typing import Any, Final, TypeAlias

from treadle.errors import ConfigurationError, MissingExtra, ToolError

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

SPECIAL_IPV4: Final = (
    ("0.0.0.0/8", "this network, RFC 791"),
    ("10.0.0.0/8", "private use, RFC 1918"),
    ("100.64.0.0/10", "shared address space, RFC 6598"),
    ("127.0.0.0/8", "loopback, RFC 1122"),
    ("169.254.0.0/16", "link local, RFC 3927"),
    ("172.16.0.0/12", "private use, RFC 1918"),
    ("192.0.0.0/24", "IETF protocol assignments, RFC 6890"),
    ("192.0.2.0/24", "documentation, RFC 5737"),
    ("192.88.99.0/24", "6to4 relay anycast, deprecated, RFC 7526"),
    ("192.168.0.0/16", "private use, RFC 1918"),
    ("198.18.0.0/15", "benchmarking, RFC 2544"),
    ("198.51.100.0/24", "documentation, RFC 5737"),
    ("203.0.113.0/24", "documentation, RFC 5737"),
    ("224.0.0.0/4", "multicast, RFC 5771"),
    ("240.0.0.0/4", "reserved and limited broadcast, RFC 1112 and RFC 8190"),
)
"""IPv4 blocks outside the internet."""

GLOBAL_UNICAST: Final = ("2000::/3", "global unicast, RFC 4291")
"""The IPv6 block from which addresses of the internet are assigned."""

SPECIAL_IPV6: Final = (
    ("2001::/23", "IETF protocol assignments, with Teredo, benchmarking and ORCHID, RFC 2928"),
    ("2001:db8::/32", "documentation, RFC 3849"),
    ("2002::/16", "6to4, deprecated, RFC 3056 and RFC 7526"),
    ("3fff::/20", "documentation, RFC 9637"),
)
"""Blocks of global unicast outside the internet."""

_IPV4: Final = tuple([ipaddress.IPv4Network(block) for block, _ in SPECIAL_IPV4])
_IPV6: Final = tuple([ipaddress.IPv6Network(block) for block, _ in SPECIAL_IPV6])
_UNICAST: Final = ipaddress.IPv6Network(GLOBAL_UNICAST[0])
_MAPPED: Final = ipaddress.IPv6Network("::ffff:0:0/96")
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")


def is_of_internet(address: Address) -> bool:
    """Return whether an address is on the internet. An IPv6 address with an embedded IPv4 address counts as IPv4."""
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in block for block in _IPV4)
    if address in _MAPPED or address in _NAT64:
        return is_of_internet(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return address in _UNICAST and not any(address in block for block in _IPV6)


try:
    import httpx2
except ImportError as error:
    raise MissingExtra("http", "http_client") from error

MAX_BYTES: Final = 10_000_000
"""Default limit of a response, in bytes."""

MAX_REDIRECTS: Final = 5

SECONDS: Final = 30.0
"""Default time for a connection, or for a silence of the server, in seconds."""

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_SAFE_HEADERS: Final = frozenset(
    {
        *("accept", "accept-encoding", "accept-language", "connection", "content-length", "content-type"),
        *("host", "transfer-encoding", "user-agent"),
    }
)
"""Headers without secrets. A request with any other header is not redirected to another host."""


class ConnectionRefused(ToolError):
    """The request leads to a host or an address that the tool may not reach."""


class ResponseRefused(ConnectionRefused):
    """The client refused a response. The request was sent and may have taken effect."""


class RedirectRefused(ConnectionRefused):
    """The client refused a redirect. The request was answered and may have taken effect."""


class Reach:
    """The hosts and networks that an HTTP client may reach.

    Args:
        hosts: names (`api.example.com`), all subdomains of a name (`*.example.org`), or `*` for every name.
        networks: networks outside the internet that may also be reached, such as `10.1.0.0/16`.

    Raises:
        ConfigurationError: `hosts` is empty, or a host or network is not valid.
    """

    def __init__(self, hosts: Iterable[str], networks: Iterable[str] = ()) -> None:
        self.hosts = tuple(hosts)
        if not self.hosts:
            raise ConfigurationError("http_client: name at least one host; '*' stands for every public one")
        for host in self.hosts:
            if not _HOST.fullmatch(host):
                example = "`api.example.com`, `*.example.org` or `*`"
                raise ConfigurationError(f"http_client: {host!r} is not a host: write {example}")
        try:
            self.networks: tuple[_Network, ...] = tuple([ipaddress.ip_network(each) for each in networks])
        except ValueError as error:
            raise ConfigurationError(f"http_client: networks: {error}") from None

    def check_host(self, url: httpx2.URL) -> None:
        """Raise `ConnectionRefused` unless the scheme and the host of a URL are allowed."""
        _check_scheme(url)
        host = url.host.lower().rstrip(".")
        for allowed in self.hosts:
            name = allowed.lower()
            if name in ("*", host) or (name.startswith("*.") and host.endswith(name[1:])):
                return
        raise ConnectionRefused(f"the host {url.host!r} is not allowed: {', '.join(self.hosts)}")

    def checked(self, host: str, addresses: Iterable[str]) -> str:
        """Return the first address of a host. Raise `ConnectionRefused` unless all its addresses are allowed."""
        ip_addresses = [ipaddress.ip_address(address.partition("%")[0]) for address in addresses]
        for address in ip_addresses:
            if not any(address in network for network in self.networks) and not is_of_internet(address):
                raise ConnectionRefused(
                    f"the host {host!r} has the address {address}, which is not part of the internet"
                )
        if not ip_addresses:
            raise ConnectionRefused(f"the host {host!r} has no address")
        return str(ip_addresses[0])

    def directed(self, request: httpx2.Request, address: str) -> httpx2.Request:
        """Return a request that connects to an address, and verifies the certificate of its host."""
        host = request.url.host
        return httpx2.Request(
            request.method,
            request.url.copy_with(host=address),
            headers=request.headers,
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": host},
        )


_HOST: Final = re.compile(r"\*|(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*|[0-9A-Fa-f:.]+")


def _check_scheme(url: httpx2.URL) -> None:
    if not url.scheme:
        raise ConnectionRefused(f"the URL {str(url)!r} names no scheme: begin it with https://")
    if url.scheme not in ("http", "https"):
        raise ConnectionRefused(f"the scheme {url.scheme!r} is not allowed: only http and https are")


def http_client(
    *hosts: str,
    networks: Iterable[str] = (),
    max_bytes: int = MAX_BYTES,
    timeout: float = SECONDS,
    **more: Any,
) -> httpx2.AsyncClient:
    """Return an HTTP client that reaches only the declared hosts.

    It follows up to 5 redirects, each to an allowed host. If a header of the request may contain a key, a redirect to
    another host or port, or from https to http, is refused. The client uses no proxy and accepts no compressed
    responses.

    Args:
        hosts: names (`api.example.com`), all subdomains of a name (`*.example.org`), or `*` for every name.
        networks: networks outside the internet that may also be reached, such as `10.1.0.0/16`.
        max_bytes: the largest response, in bytes.
        timeout: seconds that a connection, or a silence of the server, may last. The tool's timeout limits the total.
        more: further arguments of `httpx2.AsyncClient`, such as `headers` and `auth`.

    Raises:
        ConfigurationError: a host or a network is not valid, or an argument would bypass the checks.
    """
    transport = _AsyncTransport(Reach(hosts, networks), max_bytes)
    return _AsyncClient(transport=transport, **_arguments(timeout, more))


def http_client_sync(
    *hosts: str,
    networks: Iterable[str] = (),
    max_bytes: int = MAX_BYTES,
    timeout: float = SECONDS,
    **more: Any,
) -> httpx2.Client:
    """Return an `httpx2.Client` with the arguments and checks of `http_client`, for sync tools."""
    transport = _SyncTransport(Reach(hosts, networks), max_bytes)
    return _SyncClient(transport=transport, **_arguments(timeout, more))


def _arguments(timeout: float, more: dict[str, Any]) -> dict[str, Any]:
    if forbidden := sorted({"transport", "mounts", "proxy", "trust_env", "verify", "cert"} & more.keys()):
        raise ConfigurationError(
            f"http_client: {', '.join(forbidden)} would decide where and to whom the client connects"
        )
    headers = {"accept-encoding": "identity", **more.pop("headers", {})}
    more = {"follow_redirects": True, "max_redirects": MAX_REDIRECTS, **more}
    return {"trust_env": False, "timeout": timeout, "headers": headers, **more}


# Without this check, `httpx2` takes a URL without a host, such as `file:///etc/passwd`, as a path of its `base_url`.


class _AsyncClient(httpx2.AsyncClient):
    def build_request(self, method: str, url: httpx2.URL | str, **more: Any) -> httpx2.Request:
        if (absolute_url := httpx2.URL(url)).scheme:
            _check_scheme(absolute_url)
        return super().build_request(method, url, **more)


class _SyncClient(httpx2.Client):
    def build_request(self, method: str, url: httpx2.URL | str, **more: Any) -> httpx2.Request:
        if (absolute_url := httpx2.URL(url)).scheme:
            _check_scheme(absolute_url)
        return super().build_request(method, url, **more)


# Connections are not pooled. httpx2 would reuse a connection for another host at the same address, whose certificate
# was never verified.
_NONE_KEPT: Final = httpx2.Limits(max_keepalive_connections=0)


@cache
def _tls() -> SSLContext:
    """Return the system's TLS context. Loading its certificates takes longer than a request."""
    return httpx2.create_ssl_context()


class _AsyncTransport(httpx2.AsyncBaseTransport):
    def __init__(self, reach: Reach, max_bytes: int) -> None:
        self._reach, self._max_bytes = reach, max_bytes
        self._inner = httpx2.AsyncHTTPTransport(verify=_tls(), limits=_NONE_KEPT, trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self._reach.check_host(request.url)
        host, port = request.url.host, request.url.port or 0
        loop = asyncio.get_running_loop()
        try:
            address_infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise httpx2.ConnectError(f"the host {host!r} cannot be resolved: {error}") from None
        address = self._reach.checked(host, [str(each[4][0]) for each in address_infos])
        response = await self._inner.handle_async_request(self._reach.directed(request, address))
        _check_response(request, response)
        response.stream = _Limited(response.stream, self._max_bytes)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _SyncTransport(httpx2.BaseTransport):
    def __init__(self, reach: Reach, max_bytes: int) -> None:
        self._reach, self._max_bytes = reach, max_bytes
        self._inner = httpx2.HTTPTransport(verify=_tls(), limits=_NONE_KEPT, trust_env=False)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self._reach.check_host(request.url)
        host, port = request.url.host, request.url.port or 0
        try:
            address_infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise httpx2.ConnectError(f"the host {host!r} cannot be resolved: {error}") from None
        address = self._reach.checked(host, [str(each[4][0]) for each in address_infos])
        response = self._inner.handle_request(self._reach.directed(request, address))
        _check_response(request, response)
        response.stream = _Limited(response.stream, self._max_bytes)
        return response

    def close(self) -> None:
        self._inner.close()


def _check_response(request: httpx2.Request, response: httpx2.Response) -> None:
    """Refuse an encoded response, whose decoded size is unknown, and a redirect that would leak a key."""
    encoding = response.headers.get("content-encoding", "identity")
    if encoding.lower() not in ("identity", ""):
        raise ResponseRefused(
            f"{request.url.host} sent a response in the encoding {encoding!r}, which was not asked for"
        )
    if not response.has_redirect_location:
        return
    target = request.url.join(response.headers["location"])
    custom_headers = sorted(name for name in request.headers if name.lower() not in _SAFE_HEADERS)
    if custom_headers and not _is_same_service(request.url, target):
        raise RedirectRefused(
            f"{_origin(request.url)} redirects to {_origin(target)}, but the request has headers "
            f"({', '.join(custom_headers)}) that may hold a key: send that host its own request"
        )


def _is_same_service(url: httpx2.URL, target: httpx2.URL) -> bool:
    """Return whether a redirect stays on the same server, or only upgrades it from http to https."""
    if (target.scheme, target.host, target.port) == (url.scheme, url.host, url.port):
        return True
    is_upgrade = (url.scheme, target.scheme) == ("http", "https") and url.port is target.port is None
    return is_upgrade and target.host == url.host


def _origin(url: httpx2.URL) -> str:
    return f"{url.scheme}://{url.netloc.decode().rpartition('@')[2]}"


class _Limited(httpx2.AsyncByteStream, httpx2.SyncByteStream):
    """A response stream that raises `ResponseRefused` above its limit."""

    def __init__(self, stream: Any, most: int) -> None:
        self._stream, self._remaining, self._most = stream, most, most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            yield self._counted(chunk)

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._stream:
            yield self._counted(chunk)

    def _counted(self, chunk: bytes) -> bytes:
        self._remaining -= len(chunk)
        if self._remaining < 0:
            raise ResponseRefused(f"the response has more than {self._most} bytes")
        return chunk

    async def aclose(self) -> None:
        await self._stream.aclose()

    def close(self) -> None:
        self._stream.close()
