"""What every test shares: one event loop backend, and property tests that say how to repeat them."""

import random
from collections.abc import Iterator

import pytest
from hypothesis import settings

from treadle.testing.postgres import PostgresServer

settings.register_profile("ci", deadline=None, print_blob=True, derandomize=False)
settings.register_profile("full", settings.get_profile("ci"), max_examples=2_000)
settings.load_profile("ci")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # Chosen here, once, so that the summary can name it; xdist hands it on to its workers.
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = random.randrange(2**32)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    terminalreporter.write_line(
        f"repeat the property tests with --hypothesis-seed={config.option.hypothesis_seed}"
    )


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A real server for the tests of this process; each takes a schema of its own."""
    with PostgresServer() as server:
        yield server
