"""
The pytest plugin: fixtures for testing flows on a real database, and pictures of failed runs.

    pgflow_server   the server of the whole test run: an embedded one, or that of `--pgflow-dsn`
    pgflow_db       a fresh database with our schema, dropped after the test, or a shared one
    pgflow_daemon   a daemon that serves in it the flows that the project's config names

The report of a failing test shows the runs that it made with `run_flow`.

The embedded server is shared by all test runs of a project, workers of xdist included; the last
one stops it and removes its data. It gives up durability for speed: it never syncs, and its data
is in memory where there is room, since a database has some hundred files, and creating a file on a
disk can be slow.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pgflowd.testing.run_flow import runs_of_test

if TYPE_CHECKING:
    from pgflowd.testing.scratch import ScratchDatabase, ScratchServer, StartedDaemon

MEMORY = Path("/dev/shm")
ROOM_NEEDED = 1 << 30  # bytes that must be free, so that the data of many tests fits
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


def pytest_configure(config: pytest.Config) -> None:
    text = 'pgflow_db(reset): "truncate" shares a database with other tests, emptied before each'
    config.addinivalue_line("markers", text)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[Any],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "call":
        if report.failed and runs_of_test:
            pictures = "\n\n".join(run.picture() for run in runs_of_test)
            report.sections.append(("runs of flows", pictures))
        runs_of_test.clear()
    return report


@pytest.fixture(scope="session")
def pgflow_server(request: pytest.FixtureRequest) -> Iterator[ScratchServer]:
    """The server of this test run: `dsn`, and `database()` for further databases."""
    dsn = request.config.getoption("--pgflow-dsn")
    chosen = given_server(dsn) if dsn else embedded_server(request.config.rootpath)
    with chosen as server:
        yield server


@pytest.fixture(scope="session")
def pgflow_kept_db(pgflow_server: ScratchServer) -> Iterator[ScratchDatabase]:
    """The database of all tests with `@pytest.mark.pgflow_db(reset="truncate")`."""
    with pgflow_server.database() as database:
        yield database


@pytest.fixture
def pgflow_db(request: pytest.FixtureRequest) -> Iterator[ScratchDatabase]:
    """
    A fresh database with our schema: `dsn`, `client`, `connect()`, `deploy()`, `drain()`.

    `@pytest.mark.pgflow_db(reset="truncate")`: one for all such tests, without rows of others.
    """
    if reset_of(request.node.get_closest_marker("pgflow_db")) == "truncate":
        kept: ScratchDatabase = request.getfixturevalue("pgflow_kept_db")
        kept.truncate()
        yield kept
        return
    server: ScratchServer = request.getfixturevalue("pgflow_server")
    with server.database() as database:
        yield database


def reset_of(marker: pytest.Mark | None) -> str:
    """How the database of a test becomes empty: by "truncate", or as a "new" one."""
    if marker is None:
        return "new"
    reset = marker.kwargs.get("reset")
    if marker.args or marker.kwargs.keys() != {"reset"} or reset not in ("new", "truncate"):
        text = 'write @pytest.mark.pgflow_db(reset="truncate"), or "new" for a database of its own'
        raise pytest.UsageError(text)
    return str(reset)


@pytest.fixture
def pgflow_daemon(
    request: pytest.FixtureRequest, pgflow_db: ScratchDatabase
) -> Iterator[StartedDaemon]:
    """A daemon on `pgflow_db`, ready: its `pid`, and its `log` so far."""
    from pgflowd.testing.scratch import daemon_of

    with daemon_of(request.config.rootpath, pgflow_db.dsn) as daemon:
        yield daemon


def given_server(dsn: str) -> AbstractContextManager[ScratchServer]:
    """A server that was there before the tests."""
    from pgflowd.testing.scratch import ScratchServer

    return closing(ScratchServer(dsn))


@contextmanager
def embedded_server(project: Path, binaries: Path | None = None) -> Iterator[ScratchServer]:
    """A server that never syncs, shared by all test runs of this project with these programs."""
    from pgflowd.embedded import EmbeddedPostgres

    directory = directory_for(project, binaries)
    with (
        EmbeddedPostgres(directory, options=QUICK, binaries=binaries, keep=False) as postgres,
        given_server(postgres.dsn) as server,
    ):
        yield server


def directory_for(project: Path, binaries: Path | None) -> Path:
    """A directory that no other project or user has, nor a test run before the last reboot.

    Data that was never synced may be broken after the machine failed, so it is not used again.
    """
    boot = BOOT.read_text() if BOOT.exists() else ""
    named = f"{project.resolve()} {binaries} {os.getuid()} {boot}"
    name = f"pgflowd-test-{hashlib.sha256(named.encode()).hexdigest()[:12]}"
    return (MEMORY if has_room(MEMORY) else project / ".pgflowd") / name


def has_room(directory: Path) -> bool:
    """Whether the directory can hold the data of a test server."""
    try:
        state = os.statvfs(directory)
    except OSError:
        return False
    return os.access(directory, os.W_OK) and state.f_bavail * state.f_frsize >= ROOM_NEEDED
