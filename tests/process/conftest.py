"""
The daemon's setup: `setup.flow("a")`, `setup.serve()`; all of it ends with the test, and then the
invariants hold, unless the test wrote into the tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon import DaemonSetup
from support.invariants import broken

from pgflowd.testing.scratch import ScratchDatabase


@pytest.fixture
def setup(tmp_path: Path, database: ScratchDatabase) -> Iterator[DaemonSetup]:
    setup = DaemonSetup(tmp_path, database.dsn)
    yield setup
    setup.close()
    if not setup.breaks_invariants:
        assert broken(database.connect(), setup.oracle, was_frozen=setup.was_frozen) == []
