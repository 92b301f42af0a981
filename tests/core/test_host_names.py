import pytest

from treadle.core.host_names import is_host


@pytest.mark.parametrize(
    "text",
    ["localhost", "a_b.example-1.com", "EXAMPLE.com.", "127.0.0.1", "::1", "xn--bcher-kva.example", "a" * 63],
)
def test_names_that_dns_can_hold_and_addresses_are_hosts(text: str) -> None:
    assert is_host(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "a..b",
        "-a.com",
        "a-.com",
        "a b",
        "a,b.com",
        "é.com",
        "a" * 64,
        "a." * 127 + "ab",
        "1",
        "0x7f.1",
        "::x",
    ],
)
def test_other_texts_are_no_hosts(text: str) -> None:
    assert not is_host(text)
