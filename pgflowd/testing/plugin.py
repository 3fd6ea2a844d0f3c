"""
Plugin: the fixtures for testing flows on a real database, found by pytest on its own.

    pgflow_server   the server of the whole run: an embedded one, or that of `--pgflow-dsn`
    pgflow_db       a fresh database with our schema, dropped after the test

The embedded server lives in `.pgflowd/test` below the root of the project. It is shared by
all runs at a time, xdist's workers among them, and stopped by the last one. It gives up
durability for speed. Its data stay, so that the next run need not install the schema again.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pgflowd.testing.scratch import ScratchDatabase, ScratchServer

DIRECTORY = Path(".pgflowd", "test")
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_QUICK = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "max_connections": "300",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("pgflowd")
    group.addoption(
        "--pgflow-dsn",
        metavar="DSN",
        help="a superuser's connection to the server for the tests, instead of an embedded one",
    )


@pytest.fixture(scope="session")
def pgflow_server(request: pytest.FixtureRequest) -> Iterator[ScratchServer]:
    """The server of this run: `dsn`, and `database()` for further databases."""
    dsn = request.config.getoption("--pgflow-dsn")
    chosen = given_server(dsn) if dsn else embedded_server(request.config.rootpath / DIRECTORY)
    with chosen as server:
        yield server


@pytest.fixture
def pgflow_db(pgflow_server: ScratchServer) -> Iterator[ScratchDatabase]:
    """A fresh database with our schema: `dsn`, and `connect()`."""
    with pgflow_server.database() as database:
        yield database


@contextmanager
def given_server(dsn: str) -> Iterator[ScratchServer]:
    """A server that somebody else runs."""
    from pgflowd.testing.scratch import ScratchServer

    server = ScratchServer(dsn)
    try:
        yield server
    finally:
        server.close()


@contextmanager
def embedded_server(directory: Path, binaries: Path | None = None) -> Iterator[ScratchServer]:
    """A quick and careless server of ours."""
    from pgflowd.host.postgres import EmbeddedPostgres

    _forget_after_reboot(directory)
    with (
        EmbeddedPostgres(directory, options=_QUICK, binaries=binaries) as postgres,
        given_server(postgres.dsn) as server,
    ):
        yield server


def _forget_after_reboot(directory: Path) -> None:
    """Remove data that a failure of the machine may have spoiled, as nothing was synced."""
    from pgflowd.host.postgres.leases import locked

    boot = _BOOT.read_text() if _BOOT.exists() else ""
    noted = directory.with_name(f"{directory.name}.boot")
    noted.parent.mkdir(parents=True, exist_ok=True)
    with locked(noted.parent):  # xdist's workers all come here at once
        if noted.exists() and noted.read_text() == boot:
            return
        if directory.exists():
            shutil.rmtree(directory.resolve())
        noted.write_text(boot)
