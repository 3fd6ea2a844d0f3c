"""
Plugin: the fixtures for testing flows on a real database, found by pytest on its own.

    pgflow_server   the server of the whole run: an embedded one, or that of `--pgflow-dsn`
    pgflow_db       a fresh database with our schema, dropped after the test
    pgflow_daemon   a daemon that serves the project's flows in it, as the config names them

The embedded server is shared by all runs of a project at a time, xdist's workers among them;
the last one stops it and removes its data. It gives up durability for speed: it never syncs,
and lives in memory where there is room, since making a file can be slow on a disk and a
database is some hundred files.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pgflowd.testing.pictures import pytest_runtest_makereport

if TYPE_CHECKING:
    from pgflowd.testing.daemon import StartedDaemon
    from pgflowd.testing.scratch import ScratchDatabase, ScratchServer

__all__ = [
    "pgflow_daemon",
    "pgflow_db",
    "pgflow_server",
    "pytest_addoption",
    "pytest_runtest_makereport",
]

MEMORY = Path("/dev/shm")
ROOM_NEEDED = 1 << 30
BOOT = Path("/proc/sys/kernel/random/boot_id")
QUICK = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "max_connections": "300",
    "max_wal_size": "64MB",
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
    chosen = given_server(dsn) if dsn else embedded_server(request.config.rootpath)
    with chosen as server:
        yield server


@pytest.fixture
def pgflow_db(pgflow_server: ScratchServer) -> Iterator[ScratchDatabase]:
    """A fresh database with our schema: `dsn`, `client`, and `connect()`."""
    with pgflow_server.database() as database:
        yield database


@pytest.fixture
def pgflow_daemon(
    request: pytest.FixtureRequest, pgflow_db: ScratchDatabase
) -> Iterator[StartedDaemon]:
    """A daemon on `pgflow_db`, ready: `pid`, and what it logged so far as `log`."""
    from pgflowd.testing.daemon import daemon_of

    with daemon_of(request.config.rootpath, pgflow_db.dsn) as daemon:
        yield daemon


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
def embedded_server(project: Path, binaries: Path | None = None) -> Iterator[ScratchServer]:
    """A quick and careless server, shared by all who test this project with these programs."""
    from pgflowd.embedded import EmbeddedPostgres

    directory = directory_for(project, binaries)
    with (
        EmbeddedPostgres(directory, options=QUICK, binaries=binaries, keep=False) as postgres,
        given_server(postgres.dsn) as server,
    ):
        yield server


def directory_for(project: Path, binaries: Path | None) -> Path:
    """Name a directory that no other project or user has, nor a run before the last reboot.

    What was never synced may be spoiled when the machine failed, so it is not used again.
    """
    boot = BOOT.read_text() if BOOT.exists() else ""
    named = f"{project.resolve()} {binaries} {os.getuid()} {boot}"
    name = f"pgflowd-test-{hashlib.sha256(named.encode()).hexdigest()[:12]}"
    return (MEMORY if has_room(MEMORY) else project / ".pgflowd") / name


def has_room(directory: Path) -> bool:
    """Tell whether a test server may live there."""
    try:
        state = os.statvfs(directory)
    except OSError:
        return False
    return os.access(directory, os.W_OK) and state.f_bavail * state.f_frsize >= ROOM_NEEDED
