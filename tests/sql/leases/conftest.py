"""
Fixtures of the leases' tests: `db`, on our own core and on others', with each history.

Cores: `own`; `0.8`, what npm's @pgflow/core carries, migrated beside; and `foreign`, our own
core seen through the adapters for upstream's, since no later release can be had as SQL.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg import sql
from support.leases import LeaseDatabase
from support.upstream import install_upstream

from pgflowd.db import schema
from pgflowd.resources import shipped
from pgflowd.testing.scratch import ScratchDatabase, ScratchServer

CORES = [("own", "all"), ("own", "failures"), ("own", "off"), ("foreign", "all"), ("0.8", "all")]


class Copies:
    """Makes copies of a database that took long to make."""

    def __init__(self, server: ScratchServer, original: str) -> None:
        self._server = server
        self._original = original
        self._made = 0

    @contextmanager
    def copy(self) -> Iterator[str]:
        self._made += 1
        name = sql.Identifier(f"{self._original}_{self._made}")
        original = sql.Identifier(self._original)
        with psycopg.connect(self._server.dsn, autocommit=True) as admin:
            admin.execute(sql.SQL("create database {} template {}").format(name, original))
            try:
                yield self._server.dsn_for(f"{self._original}_{self._made}")
            finally:
                admin.execute(sql.SQL("drop database {} with (force)").format(name))


@pytest.fixture(scope="session")
def upstream_copies(pgflow_server: ScratchServer) -> Iterator[Copies]:
    """Databases with upstream's core, and ours beside it."""
    with pgflow_server.database(schema=False) as scratch:
        with psycopg.connect(scratch.dsn, autocommit=True) as conn:
            install_upstream(conn)
            schema.install(conn)
        yield Copies(pgflow_server, scratch.name)


@pytest.fixture(scope="session")
def foreign_copies(pgflow_server: ScratchServer) -> Iterator[Copies]:
    """Databases with our core, treated as that of another installer."""
    with pgflow_server.database() as scratch:
        with psycopg.connect(scratch.dsn, autocommit=True) as conn:
            adapters = shipped("sql") / "schema/pgflowd/foreign/any/functions"
            conn.execute("set check_function_bodies = off")
            for file in sorted(adapters.glob("*.sql")):
                conn.execute(file.read_bytes())
        yield Copies(pgflow_server, scratch.name)


@pytest.fixture(params=CORES, ids=lambda db: "-".join(db))
def db(request: pytest.FixtureRequest) -> Iterator[LeaseDatabase]:
    """Every core, and every history on ours."""
    yield from _opened(request, *request.param)


@pytest.fixture(params=["own", "foreign", "0.8"])
def any_core(request: pytest.FixtureRequest) -> Iterator[LeaseDatabase]:
    """Every core, with the whole history."""
    yield from _opened(request, request.param, "all")


@pytest.fixture
def own(request: pytest.FixtureRequest) -> Iterator[LeaseDatabase]:
    """Our own core, with the whole history."""
    yield from _opened(request, "own", "all")


@pytest.fixture
def foreign(request: pytest.FixtureRequest) -> Iterator[LeaseDatabase]:
    """Our own core, seen through the adapters for upstream's."""
    yield from _opened(request, "foreign", "all")


def _opened(request: pytest.FixtureRequest, core: str, history: str) -> Iterator[LeaseDatabase]:
    if core == "own":
        database: ScratchDatabase = request.getfixturevalue("pgflow_db")
        yield from _closing(LeaseDatabase(database.dsn, core, history))
    else:
        which = "upstream_copies" if core == "0.8" else "foreign_copies"
        copies: Copies = request.getfixturevalue(which)
        with copies.copy() as dsn:
            yield from _closing(LeaseDatabase(dsn, core, history))


def _closing(db: LeaseDatabase) -> Iterator[LeaseDatabase]:
    yield db
    try:
        db.clean()
    finally:
        db.close()
