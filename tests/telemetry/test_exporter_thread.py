"""An exporter whose thread has ended, by a bug of ours or of a library."""

from __future__ import annotations

from pathlib import Path

from support.collector import Collector
from support.covers import covers
from support.daemon import DaemonSetup, start_run

from pgflowd.testing.scratch import ScratchDatabase
from pgflowd.testing.until import until

FIRST_THREAD_ENDS = """
import os, pathlib, threading

run = threading.Thread.run

def run_or_end(thread):
    ended = pathlib.Path(os.environ["ENDED"])
    if thread.name == "export" and not ended.exists():
        ended.touch()
        raise MemoryError("provoked")
    run(thread)

threading.Thread.run = run_or_end
"""


@covers("rule 51")
def test_it_crashes_and_the_next_one_exports(
    setup: DaemonSetup, collector: Collector, database: ScratchDatabase, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(FIRST_THREAD_ENDS)
    setup.environ |= {"PYTHONPATH": str(site), "ENDED": str(tmp_path / "ended")}
    setup.flow("alpha")
    patient = {"start_timeout": "2m", "hang_timeout": "2m"}  # it imports much
    daemon = setup.serve(telemetry={"traces": "on"}, supervisor=patient)

    daemon.until("child.ready", within_s=120, child="exporter")
    run_id = start_run(database, "alpha")
    daemon.until("child.ready", 2, within_s=120, child="exporter")

    until(lambda: [each for each in collector.named("run alpha") if each.trace == run_id.hex], 60)
    assert len(daemon.events("child.exited", child="exporter")) == 1
    assert len(daemon.events("child.started", child="worker alpha")) == 1
