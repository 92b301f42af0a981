"""Decide whether an address is on the internet, by a table of our own: the tables of Python versions differ.

Sources: the special-purpose address registries of IANA (iana-ipv4-special-registry and its twin of IPv6), and its
registries of multicast and of IPv6 address space, as of 2025. Blocks that IANA lists as globally reachable for
every host (AS112, AMT) are left out. A block with mixed entries (192.0.0.0/24, 2001::/23) is refused as a whole.
"""

from __future__ import annotations

import ipaddress
from typing import Final, TypeAlias

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
    """Return whether an address is on the internet; an IPv6 address with an embedded IPv4 address counts as IPv4."""
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in block for block in _IPV4)
    if address in _MAPPED or address in _NAT64:
        return is_of_internet(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return address in _UNICAST and not any(address in block for block in _IPV6)
