"""Addresses of the internet are those of a table, whatever the running Python takes for global."""

import ipaddress

import pytest

from treadle.tools.web import GLOBAL_UNICAST, SPECIAL_IPV4, SPECIAL_IPV6, is_of_internet

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
