"""
Fixtures of the contract tests: a `ContractSession` in one transaction, with or
without the platform.

`suite` is like the environment of the upstream suite: everything in one transaction, which is
rolled back, with recording stand-ins for the platform. `plain` is the same on a plain PostgreSQL.
`shared` is a database of its own, for tests that need several connections and commits.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from support.contract import ContractDatabase, ContractSession, stub_platform

from pgflowd.testing.scratch import ScratchDatabase, ScratchServer


@pytest.fixture(scope="session")
def contract_database(pgflow_server: ScratchServer) -> Iterator[ScratchDatabase]:
    """One database with the schema, for all tests that roll back."""
    with pgflow_server.database() as scratch:
        yield scratch


@pytest.fixture
def plain(contract_database: ScratchDatabase) -> Iterator[ContractSession]:
    with psycopg.connect(contract_database.dsn) as conn:
        yield ContractSession(conn)
        conn.rollback()


@pytest.fixture
def suite(plain: ContractSession) -> ContractSession:
    stub_platform(plain.conn)
    return plain


@pytest.fixture
def shared(pgflow_server: ScratchServer) -> Iterator[ContractDatabase]:
    with pgflow_server.database() as scratch:
        database = ContractDatabase(scratch.dsn)
        yield database
        database.close()
