"""
Fixtures of real workers; see support/worker.py.

    worker = start_worker('''...a module with flows...''', max_concurrency=4)
    worker.start_run({"x": 1})

After each test nothing of a worker may be left, and the invariants hold.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import oracle
from support.invariants import broken
from support.pgbouncer import PgBouncer
from support.worker import PROFILE_T, RunningWorker, end_worker, fork_worker

from pgflowd.core.messages import Ready
from pgflowd.core.settings.sections import DaemonSettings, Settings
from pgflowd.core.settings.values import Ref
from pgflowd.core.supervision.tree import ServedFlow
from pgflowd.testing.scratch import ScratchDatabase, ScratchServer
from pgflowd.testing.until import until

StartWorker = Callable[..., RunningWorker]
OWN_WAYS = {"proxy", "empty_database", "humble"}  # fixtures of tests that choose how to connect


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """
    Execute each test once with a direct connection, and once through pgbouncer, except those that
    read or limit the worker's own sessions, or whose handlers hold all sessions of the pool.
    """
    is_free = not OWN_WAYS & set(metafunc.fixturenames)
    if metafunc.definition.get_closest_marker("own_session"):
        is_free = False
    if "start_worker" in metafunc.fixturenames and is_free:
        metafunc.parametrize("way", ["direct", "pgbouncer"], indirect=True)


@pytest.fixture
def way(request: pytest.FixtureRequest) -> str:
    return getattr(request, "param", "direct")


@pytest.fixture(scope="session")
def bouncer(server: ScratchServer) -> Iterator[PgBouncer]:
    with PgBouncer(server.dsn) as running:
        yield running


@pytest.fixture
def way_in(request: pytest.FixtureRequest, database: ScratchDatabase, way: str) -> str:
    """The DSN by which workers reach the test's database."""
    if way == "direct":
        return database.dsn
    bouncer: PgBouncer = request.getfixturevalue("bouncer")
    return bouncer.url(database.dsn)


@pytest.fixture
def start_worker(
    database: ScratchDatabase, way_in: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StartWorker]:
    """Start a worker for a module with flows; the first one unless `flow` names another."""
    started: list[RunningWorker] = []
    written = tmp_path / "oracle"
    monkeypatch.setenv(oracle.VARIABLE, str(written))

    def start(
        module: str,
        flow: str = "flow",
        *,
        settings: Settings = PROFILE_T,
        ready: bool = True,
        dsn: str | None = None,
        definitions: str = "create",
        before: Callable[[], None] = lambda: None,
        **worker_keys: Any,
    ) -> RunningWorker:
        name = f"flows_{len(started)}_{os.getpid()}"
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(module))
        log = tmp_path / f"{name}.log"
        chosen = replace(
            settings,
            pgflowd=DaemonSettings(python_path=(str(tmp_path),), definitions=definitions),
            database=replace(settings.database, url=Ref(dsn or way_in)),
            worker=replace(settings.worker, **worker_keys),
            logging=replace(settings.logging, level="debug", format="json"),
        )
        served = ServedFlow(flow, name, name)
        child = fork_worker(chosen, served, log, before)
        running = RunningWorker(child, database, log, flow)
        started.append(running)
        if ready:
            until(lambda: running.received(Ready) or child.has_ended(), 15)
            assert running.received(Ready), f"it ended: {running.all_received} {log.read_text()}"
        return running

    yield start
    with ExitStack() as ends:  # all of them, even if one cannot be ended
        for running in started:
            ends.callback(end_worker, running)
    if started and started[0].value("select to_regclass('pgmq.q_flow') is not null"):
        was_frozen = any(running.was_frozen for running in started)
        assert broken(started[0].conn, written, was_frozen=was_frozen) == []
