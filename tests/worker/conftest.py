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
from support.worker import PROFILE_T, RunningWorker, end_worker, fork_worker

from pgflowd.core.messages import Ready
from pgflowd.core.settings.sections import DaemonSettings, LoggingSettings, Settings
from pgflowd.core.settings.values import Ref
from pgflowd.core.supervision.served_flow import ServedFlow
from pgflowd.testing.scratch import ScratchDatabase
from pgflowd.testing.until import until

StartWorker = Callable[..., RunningWorker]


@pytest.fixture
def start_worker(
    database: ScratchDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
            database=replace(settings.database, url=Ref(dsn or database.dsn)),
            worker=replace(settings.worker, **worker_keys),
            logging=LoggingSettings(level="debug", format="json"),
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
