import hashlib
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import HTTPConnection

from treadle.errors import ConfigurationError
from treadle.server import ADMIN, ALL, OneToken, Principal, ProxyHeader, TokenFile, digest_of, token_in
from treadle.server.principals import authenticated

TOKEN = "t" * 43


def connection(*headers: tuple[str, str], peer: str = "127.0.0.1") -> HTTPConnection:
    raw = [(name.lower().encode(), value.encode()) for name, value in headers]
    return HTTPConnection({"type": "http", "headers": raw, "client": (peer, 1)})


def with_token(token: str) -> HTTPConnection:
    return connection(("Authorization", f"Bearer {token}"))


def test_scopes_without_a_word_are_all_but_admin():
    assert Principal("ann").scopes == ALL == ADMIN - {"admin"}


WRONG_PRINCIPALS: list[dict[str, Any]] = [
    {"name": ""},
    {"name": "a\nb"},
    {"name": "a" * 201},
    {"name": 7},
    {"name": "ann", "tenant": "a\x1fb"},
    {"name": "ann", "tenant": "it's"},
    {"name": "ann", "scopes": ["fly"]},
    {"name": "ann", "scopes": "read"},
    {"name": "ann", "scopes": 5},
    {"name": "ann", "scopes": None},
    {"name": "ann", "scopes": [["read"]]},
    {"name": "ann", "scopes": {"read": True}},
    {"name": "ann", "tenant": None},
    {"name": "ann", "options": {"limits": 1}},
]


def test_a_principal_that_cannot_be_recorded_is_refused():
    for wrong in WRONG_PRINCIPALS:
        with pytest.raises(ConfigurationError, match="Principal: "):
            Principal(**wrong)


def test_one_token_knows_its_holder_and_no_other_request():
    auth = OneToken(TOKEN)
    assert auth(with_token(TOKEN)) == Principal("local", scopes=ADMIN)
    for request in (
        with_token(TOKEN + "x"),
        with_token(TOKEN[:-1]),
        with_token(""),
        connection(),
        connection(("Authorization", f"Basic {TOKEN}")),
        connection(("Authorization", f"Bearer {TOKEN}"), ("Authorization", f"Bearer {TOKEN}")),
        connection(("Cookie", f"token={TOKEN}")),
    ):
        assert auth(request) is None


def test_a_short_token_is_refused():
    with pytest.raises(ConfigurationError, match="32 characters"):
        OneToken("secret")


def token_file(path: Path, *entries: str) -> Path:
    path.write_text("\n".join(f"[[token]]\n{entry}" for entry in entries))
    return path


def test_a_file_of_hashed_tokens_knows_names_tenants_and_scopes(tmp_path: Path):
    entry = f'name = "ci"\ntenant = "acme"\nscopes = ["read", "run"]\nsha256 = "{digest_of(TOKEN)}"'
    auth = TokenFile(token_file(tmp_path / "tokens.toml", entry))
    assert auth(with_token(TOKEN)) == Principal("ci", "acme", ("read", "run"))
    assert auth(with_token(digest_of(TOKEN))) is None
    assert digest_of(TOKEN) == hashlib.sha256(TOKEN.encode()).hexdigest()


def test_a_token_that_was_taken_out_of_the_file_is_refused_at_once(tmp_path: Path):
    file = token_file(tmp_path / "tokens.toml", f'name = "ci"\nsha256 = "{digest_of(TOKEN)}"')
    auth = TokenFile(file)
    assert auth(with_token(TOKEN)) is not None
    token_file(file, f'name = "ci"\nsha256 = "{digest_of("u" * 43)}"')
    os.utime(file, ns=(1, 1))
    assert auth(with_token(TOKEN)) is None
    assert auth(with_token("u" * 43)) is not None


def test_no_token_is_known_while_the_file_cannot_be_read(tmp_path: Path):
    file = token_file(tmp_path / "tokens.toml", f'name = "ci"\nsha256 = "{digest_of(TOKEN)}"')
    auth = TokenFile(file)
    file.write_text("[[token")
    os.utime(file, ns=(1, 1))
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="cannot be read"):
            auth(with_token(TOKEN))


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ('name = "ci"', "sha256 must be 64"),
        ('name = "ci"\nsha256 = "abc"', "sha256 must be 64"),
        (f'name = "ci"\nsha256 = "{"z" * 64}"', "sha256 must be 64"),
        (f'name = "ci"\nsha256 = "{"a" * 64}"\nadmin = true', "no field 'admin'"),
        (f'sha256 = "{"a" * 64}"', "name"),
        (f'name = "ci"\nscopes = ["all"]\nsha256 = "{"a" * 64}"', "scopes must be"),
    ],
)
def test_a_wrong_entry_of_the_file_is_named(tmp_path: Path, entry: str, why: str):
    with pytest.raises(ConfigurationError, match=why):
        TokenFile(token_file(tmp_path / "tokens.toml", entry))


def test_the_header_of_a_proxy_counts_only_on_connections_from_it():
    auth = ProxyHeader("X-User", ["10.0.0.0/8"], scopes=("read",), tenant="X-Tenant")
    headers = ("X-User", "ann"), ("X-Tenant", "acme")
    assert auth(connection(*headers, peer="10.1.2.3")) == Principal("ann", "acme", ("read",))
    assert auth(connection(*headers, peer="192.0.2.1")) is None
    assert auth(connection(*headers, peer="testclient")) is None
    assert auth(connection(headers[0], peer="10.1.2.3")) is None
    assert auth(connection(*headers, ("X-User", "eve"), peer="10.1.2.3")) is None


@pytest.mark.parametrize("proxies", [[], ["localhost"], "10.0.0.0/8"])
def test_a_proxy_is_named_by_its_addresses(proxies: Any):
    with pytest.raises(ConfigurationError, match="proxies"):
        ProxyHeader("X-User", proxies)


@pytest.mark.anyio
async def test_the_result_of_a_custom_auth_function_is_awaited_and_checked():
    async def later(_: HTTPConnection) -> Principal:
        return Principal("ann")

    assert await authenticated(later, connection()) == Principal("ann")
    with pytest.raises(ConfigurationError, match="must return a Principal or None, got a str"):
        await authenticated(lambda _: "ann", connection())  # pyright: ignore[reportArgumentType]


def test_a_new_token_is_for_its_owner_alone_and_stays(tmp_path: Path):
    file = tmp_path / "state" / "server-token"
    token = token_in(file)
    assert len(token) == 43
    assert file.stat().st_mode & 0o777 == 0o600
    assert token_in(file) == token
    assert token_in(file, new=True) != token


def test_a_token_that_others_may_read_is_refused(tmp_path: Path):
    file = tmp_path / "server-token"
    token_in(file)
    file.chmod(0o644)
    with pytest.raises(ConfigurationError, match="other users may read"):
        token_in(file)


def test_a_file_without_a_token_is_refused(tmp_path: Path):
    file = tmp_path / "server-token"
    file.touch(0o600)
    with pytest.raises(ConfigurationError, match="holds no token"):
        token_in(file)


def test_an_address_in_a_header_was_taken_for_that_of_the_proxy():
    auth = ProxyHeader("X-User", ["10.0.0.5"])
    claimed = connection(("X-User", "root"), peer="10.0.0.5")  # what `X-Forwarded-For` says
    claimed.scope["treadle.peer"] = ("10.9.9.9", 1)
    assert auth(claimed) is None
    behind = connection(("X-User", "ann"), peer="203.0.113.7")
    behind.scope["treadle.peer"] = ("10.0.0.5", 1)
    assert auth(behind) == Principal("ann")


def test_a_token_file_of_bytes_that_are_no_text_was_a_bug_of_the_library(tmp_path: Path):
    file = tmp_path / "token"
    file.write_bytes(b"\xff\xfe" * 40)
    file.chmod(0o600)
    with pytest.raises(ConfigurationError, match="holds no token"):
        token_in(file)


@pytest.mark.skipif(os.name != "posix", reason="users and modes are those of POSIX")
def test_the_folder_of_a_token_could_be_entered_by_others(tmp_path: Path):
    mask = os.umask(0o022)
    try:
        token_in(tmp_path / ".treadle" / "server-token")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / ".treadle").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / ".treadle" / "server-token").stat().st_mode) == 0o600
    assert (tmp_path / ".treadle" / ".gitignore").read_text() == "*\n"


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="root alone can give a file away")
def test_the_token_of_another_user_was_taken(tmp_path: Path):
    file = tmp_path / "token"
    token_in(file)
    os.chown(file, 12_345, -1)
    with pytest.raises(ConfigurationError, match=r"belongs to another user \(uid 12345\)"):
        token_in(file)
