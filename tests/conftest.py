"""What every test shares: one event loop backend, and property tests that say how to repeat them."""

import gc
import os
import random
import shutil
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Generator, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

if sys.dont_write_bytecode:
    # Else each worker, and each of the hundreds of processes that tests start, compiles all it imports anew. Still
    # nothing is written beside sources.
    sys.pycache_prefix = str(Path(__file__).parents[1] / ".pytest_cache" / "bytecode")
    sys.dont_write_bytecode = False
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import pytest
from hypothesis import settings

from treadle import Runner
from treadle.stores.memory import MemoryStore
from treadle.stores.sqlite.schema import connect_writer
from treadle.testing import clock
from treadle.testing.postgres import PostgresServer

settings.register_profile("ci", max_examples=40, deadline=None, print_blob=True, derandomize=False)
settings.register_profile("full", settings.get_profile("ci"), max_examples=2_000)
settings.load_profile("ci")


T = TypeVar("T")

MEMORY = Path("/dev/shm")
ENOUGH = 2 << 30
"""Free bytes of a folder in memory that hold the temporary files of a run several times over."""


def is_fit(folder: Path) -> bool:
    """Tell whether temporary files can be in a folder in memory: it may be absent, small, or forbid programs."""
    if not (folder.is_dir() and os.access(folder, os.W_OK) and shutil.disk_usage(folder).free >= ENOUGH):
        return False
    return not os.statvfs(folder).f_flag & os.ST_NOEXEC


def _share_the_rewriting_of_tests(config: pytest.Config) -> None:
    """Let each worker collect the folders of tests in an order of its own, and so find most files compiled by another.

    On a fresh clone pytest rewrites the assertions of every file, which takes a worker longer than all else it does
    before its first test.
    """
    here, workers = Path(__file__).parent, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1 and [Path(argument).absolute() for argument in config.args] == [here]:
        folders = sorted(path for path in here.iterdir() if path.is_dir() or path.name.startswith("test_"))
        begin = len(folders) * int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw")) // workers
        config.args[:] = map(str, folders[begin:] + folders[:begin])


def _is_sampled(config: pytest.Config) -> bool:
    return config.option.markexpr == "not full" and not config.option.keyword


def _chosen(config: pytest.Config, name: str, cases: dict[str, T], count: int) -> list[T]:
    """Return some of the cases: others in each run, the same for the same seed, with any other tests beside them."""
    ids = sorted(cases)
    random.Random(f"{config.option.hypothesis_seed} {name}").shuffle(ids)
    return [cases[each] for each in ids[:count]]


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Generator[None, None, None]:
    """Make no items of cases that do not run, since each worker would make thousands.

    Of the cases of a function these run: those that are not marked `full`; as many as its mark `sampled` says; and one
    store of those that a test runs on.
    """
    yield
    calls: list[Any] = metafunc._calls
    if metafunc.config.option.markexpr != "not full" or len(calls) <= 1:
        return
    # The first one stays if all are `full`: a function without cases would be a test without arguments.
    whole = any(True for _ in metafunc.definition.iter_markers("full"))
    left = [] if whole else [call for call in calls if all(mark.name != "full" for mark in call.marks)]
    calls[:] = left or calls[:1]
    if left and _is_sampled(metafunc.config):
        _sample_cases(metafunc, calls)


def _sample_cases(metafunc: pytest.Metafunc, calls: list[Any]) -> None:
    function = metafunc.definition
    carrier, mark = next(function.iter_markers_with_node("sampled"), (function, None))
    if carrier is not function:
        return  # `_sample` counts the cases of its class or module
    samples: defaultdict[tuple[str, int], dict[str, Any]] = defaultdict(dict)
    for call in calls:
        if mark is not None:
            samples[function.nodeid, mark.args[0]][call.id] = call
        elif call.params.get("store") in STORES:
            others = [(key, at) for key, at in call.indices.items() if key != "store"]
            samples[f"{function.nodeid} {others}", 1][call.id] = call
        else:
            return
    chosen = {
        id(call)
        for (name, count), cases in samples.items()
        for call in _chosen(metafunc.config, name, cases, count)
    }
    calls[:] = [call for call in calls if id(call) in chosen]


def _sample(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep as many tests and cases of a class or module as its mark `sampled` says."""
    samples: defaultdict[tuple[str, int], dict[str, pytest.Item]] = defaultdict(dict)
    for item in items:
        if not item.get_closest_marker("full"):
            carrier, mark = next(item.iter_markers_with_node("sampled"), (None, None))
            if carrier is not None and mark is not None and not isinstance(carrier, pytest.Function):
                samples[carrier.nodeid, mark.args[0]][item.nodeid] = item
    left: set[pytest.Item] = set()
    for (name, count), cases in samples.items():
        left.update({*cases.values()} - {*_chosen(config, name, cases, count)})
    config.hook.pytest_deselected(items=[item for item in items if item in left])
    items[:] = [item for item in items if item not in left]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path)  # workers have to agree on the order
    if _is_sampled(config):
        _sample(config, items)


def pytest_collection() -> None:
    gc.disable()  # almost all that is made while tests are collected stays until the end


def pytest_collection_finish() -> None:
    # What was collected stays until the end: no collection of garbage needs to look at it again, not even one now.
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    _share_the_rewriting_of_tests(config)
    # No test cuts the power: those of durability simulate their disk. Waiting for a real one would prove nothing.
    if is_fit(MEMORY):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    # Chosen here, once, so that the summary can name it and all workers agree on the samples.
    if hasattr(config, "workerinput"):
        config.option.hypothesis_seed = config.workerinput["seed"]
    elif config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = random.randrange(2**32)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["seed"] = node.config.option.hypothesis_seed


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    terminalreporter.write_line(
        f"repeat property tests and samples of matrices with --hypothesis-seed={config.option.hypothesis_seed}"
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each worker tests that stand together, which share fixtures and imports; idle workers take from others."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.getoption("dist") == "load" else None


def in_virtual_time(request: pytest.FixtureRequest) -> bool:
    return request.node.get_closest_marker("virtual_time") is not None


@pytest.fixture
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return ("asyncio", {"loop_factory": clock.VirtualTimeLoop}) if in_virtual_time(request) else "asyncio"


@pytest.fixture
def own_garbage() -> Iterator[None]:
    """Collect the garbage of a test at its end: a coroutine that it never awaited fails it, and no later test."""
    gc.freeze()  # of millions of objects of other tests, a collection takes longer than the test
    yield
    gc.collect()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A real server for the tests of this process; each takes a schema of its own.

    It waits for no disk: its data outlives its own crash, and no test cuts the power.
    """
    with PostgresServer(fsync="off", full_page_writes="off", jit="off") as server:
        yield server


@pytest.fixture(scope="session")
def stopped_postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        server.stop()
        yield server


@pytest.fixture
def stoppable_postgres(stopped_postgres: PostgresServer) -> Iterator[PostgresServer]:
    """A server that a test may stop and start: no other test uses it meanwhile. Each takes a schema of its own."""
    stopped_postgres.start()
    yield stopped_postgres
    stopped_postgres.stop(immediate=True)


STORES = ("memory", "sqlite")


@pytest.fixture(scope="session")
def empty_journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal file without tasks, to copy: making one runs every migration, which takes longer than most tests."""
    path = tmp_path_factory.mktemp("store") / "journal.db"
    connect_writer(path).close()
    return path


@pytest.fixture(params=[*STORES, pytest.param("postgresql", marks=pytest.mark.full)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A store that several runners may be made on, one after the other or side by side."""
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        return server.in_schema(f"t{sha256(str(tmp_path).encode()).hexdigest()[:20]}")
    if request.param == "memory":
        return MemoryStore()
    return Path(shutil.copy(request.getfixturevalue("empty_journal"), tmp_path))


@pytest.fixture
async def runner(store: Any, request: pytest.FixtureRequest) -> AsyncIterator[Runner]:
    async with clock.runner(store) if in_virtual_time(request) else Runner(store) as runner:
        yield runner
