"""A store of the user's own that left out a method of the port was made, and the method returned None."""

import pytest

from treadle import Runner
from treadle.ports import JournalReader, JournalStore, TaskReader, TaskStore, TenantStores
from treadle.stores.memory import MemoryStore
from treadle.stores.tenants import TenantStore

PORTS = [TaskReader, TaskStore, JournalReader, JournalStore, TenantStores]


@pytest.mark.parametrize("port", PORTS, ids=lambda port: port.__name__)
def test_each_method_of_a_port_of_stores_has_to_be_written(port):
    methods = {name for base in port.__mro__[:2] for name in vars(base) if not name.startswith("_")}
    assert methods - {"Protocol"} <= port.__abstractmethods__


def test_a_store_that_leaves_out_a_method_is_not_made_and_the_error_names_it():
    methods = {name: value for name, value in vars(MemoryStore).items() if name != "claim"}
    methods.pop("__dict__", None)
    methods.pop("__weakref__", None)
    forgetful = type("Forgetful", (JournalStore,), methods)
    with pytest.raises(TypeError, match=r"Forgetful.*claim"):
        forgetful()


@pytest.mark.anyio
async def test_our_stores_leave_out_none():
    assert not TenantStore.__abstractmethods__
    async with Runner(MemoryStore()):
        pass
