"""
Fixtures of the leases' tests: `db`, with each setting of the history, and `own`, with all of it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.leases import LeaseDatabase

from pgflowd.testing.scratch import ScratchDatabase

HISTORIES = ["all", "failures", "off"]


@pytest.fixture(params=HISTORIES)
def db(request: pytest.FixtureRequest, pgflow_db: ScratchDatabase) -> Iterator[LeaseDatabase]:
    """With every history."""
    yield from _closing(LeaseDatabase(pgflow_db.dsn, request.param))


@pytest.fixture
def own(pgflow_db: ScratchDatabase) -> Iterator[LeaseDatabase]:
    """With the whole history."""
    yield from _closing(LeaseDatabase(pgflow_db.dsn, "all"))


def _closing(db: LeaseDatabase) -> Iterator[LeaseDatabase]:
    yield db
    try:
        db.clean()
    finally:
        db.close()
