"""The code and commands of docs/operate/observe.md lead to a trace."""

from __future__ import annotations

import shlex
import subprocess
import sys

from support.collector import collecting, faults
from support.daemon import PGFLOWD, DaemonSetup
from support.pages import blocks_of

from pgflowd.testing.until import until

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
