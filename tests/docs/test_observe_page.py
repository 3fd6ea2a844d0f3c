"""The code, commands and pictures of docs/operate/observe.md are true."""

from __future__ import annotations

import shlex
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from support.collector import collecting, faults
from support.daemon import PGFLOWD, DaemonSetup
from support.pages import blocks_of

from pgflowd.cli.terminal.daemon_view import daemon_lines
from pgflowd.cli.terminal.screen import Screen
from pgflowd.core.documents.daemons import ListedDaemon
from pgflowd.core.statuses import DaemonState
from pgflowd.testing.until import until

ID = UUID(int=1)
PAGE = "docs/operate/observe.md"


def test_the_page_leads_to_a_trace_of_a_request_through_a_flow(tmp_path, database):
    flow, application = blocks_of(PAGE, "python")
    setting, commands = blocks_of(PAGE, "console")[-2:]
    config = next(each for each in blocks_of(PAGE, "toml") if "[telemetry]" in each)
    (tmp_path / "shop.py").write_text(application)
    with collecting() as collector:
        setup = DaemonSetup(tmp_path, database.dsn)
        install, variable = setting.splitlines()
        assert install == "$ pip install 'pgflowd[otel]'"
        name, value = variable.removeprefix("$ export ").split("=")
        assert value == "http://127.0.0.1:4318"
        setup.environ |= {name: collector.endpoint, "DATABASE_URL": database.dsn}
        setup.module("orders", flow)
        telemetry = dict(line.split(" = ") for line in config.splitlines()[1:])
        daemon = setup.serve(telemetry={key: each.strip('"') for key, each in telemetry.items()})
        try:
            shown = [execute(line, setup, daemon) for line in commands.splitlines()]
            assert shown[0] == "completed\n"
            (run,) = until(lambda: collector.named("run order"), 15)
            names = {"POST /orders", "start order", "charge", "attempt 1", "call the bank"}
            until(lambda: names <= {each.name for each in collector.of_trace(run.trace)}, 15)
            assert faults(collector.of_trace(run.trace)) == []
            assert f"http://127.0.0.1:16686/trace/{run.trace}" in shown[1]
            assert "exporter" in shown[2]
        finally:
            setup.close()


def told(host: str, state: str, age_s: float, up: tuple[float, int, int], **more: Any) -> Any:
    """A daemon that has been up so long, with as many restarts, and as many flows that are well."""
    up_s, restarts, well = up
    flow = {"state": "up", "running": more.pop("running", 0) // well, "max_concurrency": 10}
    failed = {"state": "failed", "running": 0, "max_concurrency": 0}
    flows = [flow] * well + [failed] * (state == "degraded")
    status = {
        "up_s": up_s, "flows": flows, "supervisor": {"restarts": restarts, "max_restarts": 20},
        "database": {
            "state": "up",
            "rtt_s": more.pop("rtt_s", None),
            "clock_skew_s": more.pop("skew_s", None),
        },
    }  # fmt: skip
    at = datetime(2026, 1, 1, tzinfo=UTC)
    rest = {"is_silent": False, "living_workers": None, "held_tasks": None, "lapses_in_s": None}
    named = (ID, "shop", host, 812, "0.1.0", at, at, age_s, DaemonState(state))
    return ListedDaemon(*named, **{**rest, **more}, status=status)


def test_the_list_of_all_machines_looks_as_the_page_shows_it():
    found = [
        told("app1", "healthy", 2.0, (273_600.0, 0, 3), running=9, rtt_s=0.0008, skew_s=0.002),
        told("app2", "degraded", 1.0, (7380.0, 1, 2), running=4, rtt_s=0.0009),
        told("app3", "healthy", 240.0, (60.0, 0, 1), is_silent=True, held_tasks=2, lapses_in_s=11),
    ]

    lines = daemon_lines(found, Screen(colour=False, unicode=True, width=None))

    assert lines == blocks_of(PAGE, "text")[0].splitlines()


def execute(line: str, setup: DaemonSetup, daemon) -> str:
    program, *args = shlex.split(line.removeprefix("$ "))
    command = [sys.executable] if program == "python" else PGFLOWD
    options = ["-c", str(daemon.config)] if program == "pgflowd" else []
    done = subprocess.run(
        [*command, *args, *options],
        capture_output=True,
        text=True,
        cwd=setup.directory,
        env=setup.environ,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
