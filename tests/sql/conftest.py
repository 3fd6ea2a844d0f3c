"""
Fixtures of the contract tests: a `World` in one transaction, with the platform beside it or not.

`suite` is like the environment of the upstream suite: everything in one transaction, which is
rolled back, with recording stand-ins for the platform. `plain` is the same on a plain PostgreSQL.
`shared` is a database of its own, for tests that need several connections and commits.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from contract_scratch import Scratch, create_scratch, drop_scratch
from contract_world import World, stub_platform


@pytest.fixture(scope="session")
def contract_database() -> Iterator[Scratch]:
    """One database with the schema, for all tests that roll back, and the template of others."""
    scratch = create_scratch()
    yield scratch
    drop_scratch(scratch)


@pytest.fixture
def plain(contract_database: Scratch) -> Iterator[World]:
    with psycopg.connect(contract_database.dsn) as conn:
        yield World(conn)
        conn.rollback()


@pytest.fixture
def suite(plain: World) -> World:
    stub_platform(plain.conn)
    return plain


@pytest.fixture
def shared(contract_database: Scratch) -> Iterator[Shared]:
    scratch = create_scratch(template=contract_database)
    world = Shared(scratch)
    yield world
    world.close()
    drop_scratch(scratch)


class Shared(World):
    """A database of one test; the world itself commits each statement."""

    def __init__(self, scratch: Scratch) -> None:
        super().__init__(psycopg.connect(scratch.dsn, autocommit=True))
        self.dsn = scratch.dsn
        self.sessions: list[psycopg.Connection[Any]] = [self.conn]

    def session(self, *, autocommit: bool = False) -> World:
        """Another connection; a transaction opens with its first statement."""
        conn = psycopg.connect(self.dsn, autocommit=autocommit)
        conn.execute("set lock_timeout = '20s'")
        conn.execute("set statement_timeout = '30s'")
        if not autocommit:
            conn.commit()
        self.sessions.append(conn)
        world = World(conn)
        world.workers = self.workers
        return world

    def close(self) -> None:
        for conn in self.sessions:
            conn.close()
