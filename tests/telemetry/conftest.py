"""A collector beside the daemon's setup."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.collector import Collector, collecting
from support.daemon import DaemonSetup
from support.invariants import broken

from pgflowd.testing.scratch import ScratchDatabase


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


@pytest.fixture
def setup(tmp_path: Path, database: ScratchDatabase, collector: Collector) -> Iterator[DaemonSetup]:
    setup = DaemonSetup(tmp_path, database.dsn)
    setup.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector.endpoint
    yield setup
    setup.close()
    assert broken(database.connect(), setup.oracle, was_frozen=setup.was_frozen) == []
