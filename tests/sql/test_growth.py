"""
A database that has grown costs no operation more: five times as many finished runs, made in bulk,
and statistics that were never gathered. `make timing` does the same with a million.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from support.covers import covers

from pgflowd.testing.scratch import ScratchDatabase, ScratchServer

BENCH = Path(__file__).parents[2] / "bench"
DEEPER = 1.5  # each B-tree has one more level, so a look-up reads four pages instead of three


@pytest.fixture
def growth(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BENCH))
    yield importlib.import_module("growth")
    sys.modules.pop("growth", None)


@covers("database 13")
@pytest.mark.parametrize(
    ("some", "more"),
    [(10_000, 50_000), pytest.param(10_000, 1_000_000, marks=pytest.mark.timing)],
)
def test_no_operation_reads_more_pages_when_there_are_many_times_as_many_finished_runs(
    growth: ModuleType, pgflow_db: ScratchDatabase, some: int, more: int
) -> None:
    db = growth.Grown(pgflow_db.dsn)
    db.fill(some)
    few = {name: db.pages(name) for name in growth.OPERATIONS}

    db.fill(more - some)
    many = {name: db.pages(name) for name in growth.OPERATIONS}

    db.conn.close()
    assert {name: (few[name], many[name]) for name in few if many[name] > DEEPER * few[name]} == {}


@pytest.mark.timing
def test_a_prune_takes_less_than_half_of_the_throughput_goes_on_after_a_kill_and_leaves_room(
    growth: ModuleType, server: ScratchServer
) -> None:
    growth.beside_load(server, 10_000, 5.0)
    growth.sizes(server, 10_000)
