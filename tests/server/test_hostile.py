"""A sample of `python -m tests.server.hostile`, and that it notices what a server must not do."""

import argparse
from pathlib import Path
from typing import Any, cast

import pytest

from tests.server.hostile import CANARY, Attack, attack

pytestmark = pytest.mark.anyio


async def test_a_served_store_survives_a_sample_of_all_that_strangers_send(
    tmp_path: Path, request: pytest.FixtureRequest
):
    seed = request.config.option.hypothesis_seed
    given = argparse.Namespace(requests=150, half_open=6, slow=4, store="sqlite", health=5.0, seed=seed)
    made = await attack(given, tmp_path, str(tmp_path / "journal.db"))
    assert not made.faults
    assert sum(made.sent.values()) >= 150
    assert {"credentials", "doors", "bodies", "pairs", "document"} <= made.sent.keys()


@pytest.mark.parametrize(
    ("status", "body", "is_fault"),
    [
        (404, b"{}", False),
        (200, b"{}", True),
        (404, CANARY.encode(), True),
        (500, b"{}", True),
        (503, b'{"type":"urn:treadle:error:StoreUnavailable"}', True),
        (503, b'{"type":"urn:treadle:error:Full"}', False),
    ],
)
def test_an_answer_that_must_not_be_is_a_fault(status: int, body: bytes, is_fault: bool):
    class Server:
        url = "http://127.0.0.1:1"

    made = Attack(cast("Any", Server()), 1)
    made.judge("credentials", "GET /v1/tasks/x", status, body, lambda code: code in (404, 503))
    assert bool(made.faults) == is_fault
