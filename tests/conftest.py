"""
The fixtures of all tests: `server` and `database`, which are those of pgflowd's plugin.

The plugin loads by itself wherever pgflowd is installed; see `pgflowd/testing/plugin.py`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from support.proxy import ProxyProcess

    from pgflowd.testing.scratch import ScratchDatabase, ScratchServer

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's & does that, for children too
    signal.signal(signal.SIGINT, signal.default_int_handler)


# A busy machine takes its time, for any example and for drawing it.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "covers(*references): what of the design a test shows")
    config.addinivalue_line("markers", "own_session: its worker cannot share sessions in a pooler")
    config.addinivalue_line("markers", "timing: measures time; `make timing` runs these alone")


@pytest.fixture(scope="session", autouse=True)
def code_is_read_anew() -> None:
    """Let nobody write bytecode, which children, forked ones too, would take for a flow that is
    rewritten within a second."""
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True


@pytest.fixture(scope="session")
def server(pgflow_server: ScratchServer) -> ScratchServer:
    """The server of the whole run."""
    return pgflow_server


@pytest.fixture
def database(pgflow_db: ScratchDatabase) -> ScratchDatabase:
    """A fresh database with the whole schema: `.dsn`, `.connect()`."""
    return pgflow_db


@pytest.fixture
def empty_database(pgflow_server: ScratchServer) -> Iterator[ScratchDatabase]:
    """A fresh database with nothing in it."""
    with pgflow_server.database(schema=False) as fresh:
        yield fresh


@pytest.fixture
def proxy(database: ScratchDatabase) -> Iterator[ProxyProcess]:
    """A proxy before the database, which fails on demand."""
    from support.proxy import ProxyProcess

    with ProxyProcess(database.dsn) as running:
        yield running


@pytest.fixture(scope="session")
def server_of(request: pytest.FixtureRequest) -> Iterator[Callable[[int], ScratchServer]]:
    """Give a server of a major version: `with server_of(15).database() as database`."""
    from support.postgres_versions import binaries_of

    from pgflowd.testing.plugin import embedded_server

    with ExitStack() as stack:
        running: dict[int, ScratchServer] = {}

        def give(major: int) -> ScratchServer:
            if major not in running:
                started = embedded_server(request.config.rootpath, binaries_of(major))
                running[major] = stack.enter_context(started)
            return running[major]

        yield give
