"""
The daemon's house: `house.flow("a")`, `house.serve()`; all of it ends with the test, and then the
invariants hold, unless the test wrote into the tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon import House
from support.invariants import broken
from support.proxy import ProxyProcess

from pgflowd.testing.scratch import ScratchDatabase


@pytest.fixture
def house(tmp_path: Path, database: ScratchDatabase) -> Iterator[House]:
    house = House(tmp_path, database.dsn)
    yield house
    house.close()
    if not house.has_strangers:
        assert broken(database.connect(), house.oracle, was_frozen=house.was_frozen) == []


@pytest.fixture
def proxy(database: ScratchDatabase) -> Iterator[ProxyProcess]:
    with ProxyProcess(database.dsn) as running:
        yield running
