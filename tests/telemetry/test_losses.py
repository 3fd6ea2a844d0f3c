"""What is lost when something is killed: each row of the table, and never a task."""

from __future__ import annotations

import os
import re
import signal
from typing import Any

from support.collector import Collector, faults
from support.covers import covers
from support.daemon import DaemonSetup, start_run

from pgflowd.testing.scratch import ScratchDatabase
from pgflowd.testing.until import until

FLOW = """
import os, pathlib, time
from opentelemetry import trace
from pgflowd import Flow

flow = Flow("alpha", max_attempts=3, base_delay=0, timeout=60)
tracer = trace.get_tracer("alpha")

@flow.step
def work(run, ctx):
    with tracer.start_as_current_span("done"):
        pass
    with tracer.start_as_current_span("open"):
        if "mark" in run and not os.path.exists(run["mark"]):
            pathlib.Path(run["mark"]).write_text(str(os.getpid()))
            time.sleep(60)
"""
TOO_LARGE = """begin
  if max_attempts > 10 then
    raise exception 'it takes too long' using errcode = '57014';
  end if;
"""
HIDDEN = """
import os, sys

class Hiding:
    def find_spec(self, name, path=None, target=None):
        if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter")):
            if os.path.exists(os.environ["HIDDEN"]):
                raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Hiding())
"""


def test_who_is_killed_loses_only_its_own_spans(
    setup: DaemonSetup, collector: Collector, database: ScratchDatabase, tmp_path: Any
) -> None:
    hidden, site = tmp_path / "hidden", tmp_path / "site"
    site.mkdir()
    hidden.touch()
    (site / "sitecustomize.py").write_text(HIDDEN)
    setup.environ |= {"PYTHONPATH": str(site), "HIDDEN": str(hidden)}
    setup.module("alpha_flow", FLOW)
    daemon = setup.serve(telemetry={"traces": "on"})

    # without the extra: the exporter is parked, handlers run; a reload finds what was installed
    daemon.until("child.parked", child="exporter", code="E505")
    problem = next(each for each in daemon.ask()["problems"] if each["code"] == "E505")
    assert "install pgflowd[otel]" in problem["text"]
    daemon.until("run.completed", run=str(start_run(database, "alpha")))
    hidden.unlink()
    setup.module("alpha_flow", FLOW + "# changed\n")
    assert daemon.command("reload").returncode == 0
    daemon.until("child.ready", child="exporter")
    daemon.until("child.ready", 2, child="worker alpha")

    def ran(run_id: str) -> Any:
        return until(lambda: [s for s in collector.named("run alpha") if s.trace == run_id], 20)

    def run(**given: Any) -> tuple[str, Any]:
        run_id = start_run(database, "alpha", **given)
        return str(run_id), run_id.hex

    # a runner: what was open; the history has its attempt
    mark = tmp_path / "first"
    _, trace = run(mark=str(mark))
    os.kill(int(until(lambda: mark.exists() and mark.read_text(), 10)), signal.SIGKILL)
    ran(trace)
    until(lambda: len(collector.of_trace(trace)) >= 6, 10)
    spans = collector.of_trace(trace)
    assert faults(spans) == []
    names = {each.name for each in spans}
    assert names == {"attempt 1", "attempt 2", "done", "open", "run alpha", "work"}
    first = next(each for each in spans if each.name == "attempt 1")
    assert (first.is_error, first.attributes["pgflow.exit_signal"]) == (True, signal.SIGKILL)

    # a worker: nothing of the history, since another one takes the task over
    mark = tmp_path / "second"
    _, trace = run(mark=str(mark))
    until(lambda: mark.exists() and mark.read_text(), 10)
    daemon.kill("alpha")
    ran(trace)
    until(lambda: len(collector.of_trace(trace)) >= 6, 10)
    spans = collector.of_trace(trace)
    assert faults(spans) == []
    lost, next_one = sorted(
        (each for each in spans if each.name.startswith("attempt")), key=lambda each: each.start
    )
    assert lost.is_error and lost.attributes["pgflow.outcome"] == "stalled"
    assert next_one.attributes["pgflow.previous"] == "stalled"

    # the exporter, with the collector away: nothing of the history; it comes back alone
    collector.status = 503
    _, trace = run()
    until(lambda: daemon.ask()["exporter"]["queued"], 20)
    before = daemon.pids()
    os.kill(daemon.ask()["exporter"]["pid"], signal.SIGKILL)
    daemon.until("child.ready", 2, child="exporter")
    _, later = run()
    collector.status = 200
    history = {"run alpha", "work", "attempt 1"}
    for each in (trace, later):
        until(lambda each=each: history <= {s.name for s in collector.of_trace(each)}, 25)
    assert daemon.pids() == before

    # what it refuses for good: that, and no more
    collector.status = 400
    _, refused = run()
    until(lambda: counts(daemon)["failed"] >= 3, 20)
    collector.status = 200
    _, trace = run()
    ran(trace)
    assert not [each for each in collector.of_trace(refused) if each.name == "run alpha"]


def counts(daemon: Any) -> dict[str, int]:
    return dict(daemon.ask()["exporter"]["spans"])


@covers("E505")
def test_of_those_without_a_sample_there_are_no_spans_and_bad_settings_park_the_exporter(
    setup: DaemonSetup, collector: Collector, database: ScratchDatabase
) -> None:
    setup.flow("alpha")
    daemon = setup.serve(telemetry={"traces": "on", "ratio": 0.0})
    daemon.until("child.ready", child="exporter")
    daemon.until("child.ready", child="worker alpha")
    conn = database.connect()
    caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0"
    query = """
        select run_id from pgflowd.start('alpha', '{}', start_at => %s, traceparent => %s,
                                         tracestate => %s)
    """
    starts = [(None, None, None), (None, f"{caller}0", "x=1"), (None, f"{caller}1", "y=2")]
    runs = [conn.execute(query, each).fetchone()[0] for each in starts]
    later = conn.execute(query.replace("%s", "now() + interval '1 s'", 1), starts[2][1:])
    runs.append(later.fetchone()[0])
    for run_id in runs:
        daemon.until("run.completed", run=str(run_id))

    until(lambda: len(collector.named("run alpha")) == 2, 20)
    started, later = (
        {each.name: each for each in collector.spans if each.trace == trace}
        for trace in (caller[3:35], runs[3].hex)
    )
    assert len(collector.spans) == len(started) + len(later) == 6, "the first two are not sampled"
    run = started["run alpha"]
    assert (run.parent, run.state, run.links) == (caller[36:52], "y=2", ())
    assert later["run alpha"].parent == ""
    assert later["run alpha"].links == (caller[36:52],)
    assert "trace_id" in daemon.events("task.completed", run=str(runs[2]))[0]
    assert "trace_id" not in daemon.events("task.completed", run=str(runs[0]))[0]

    setup.environ["OTEL_EXPORTER_OTLP_PROTOCOL"] = "grpc"
    other = setup.serve("other", telemetry={"traces": "on"})
    other.until("child.parked", child="exporter", code="E505")
    assert "E505" in [each["code"] for each in other.ask()["problems"]]


def test_runs_that_no_report_ends_have_spans_and_one_of_two_daemons_exports(
    setup: DaemonSetup, collector: Collector, database: ScratchDatabase, tmp_path: Any
) -> None:
    setup.module("alpha_flow", FLOW)
    one = setup.serve("one", telemetry={"traces": "on"})
    other = setup.serve("other", telemetry={"traces": "on"})
    for daemon in (one, other):
        daemon.until("child.ready", child="exporter")
    conn = database.connect()
    mark = tmp_path / "mark"
    cancelled = start_run(database, "alpha", mark=str(mark))
    until(mark.exists, 20)
    conn.execute("select pgflowd.cancel(%s, 'enough', 'me')", (cancelled,))
    wished = "select run_id from pgflowd.start('alpha', %s, expires_at => now() + interval '2 s')"
    mark.unlink()
    input_ = f'{{"mark": "{mark}"}}'
    [expired] = conn.execute(wished, (input_,)).fetchone()
    others = [start_run(database, "alpha") for _ in range(10)]

    def ended() -> bool:
        runs = {each.trace for each in collector.named("run alpha")}
        return runs >= {run.hex for run in (cancelled, expired, *others)}

    until(ended, 40)
    by_run = {each.trace: each for each in collector.named("run alpha")}
    assert by_run[cancelled.hex].attributes["pgflow.status"] == "cancelled"
    assert by_run[expired.hex].attributes["pgflow.status"] == "expired"
    assert "cancelled by me: enough" in by_run[cancelled.hex].message
    of_history = [each.id for each in collector.spans if each.name not in ("done", "open")]
    until(lambda: sum(counts(each)["sent"] for each in (one, other)) >= len(of_history), 10)
    assert len(of_history) == len(set(of_history)), "each was sent once"


def test_what_is_too_large_for_a_call_is_exported_by_smaller_ones(
    setup: DaemonSetup, collector: Collector, database: ScratchDatabase
) -> None:
    setup.flow("alpha")
    conn = database.connect()
    query = "select pg_get_functiondef('pgflowd.export_attempts'::regproc)"
    [text] = conn.execute(query).fetchone()
    conn.execute(text.replace("begin\n", TOO_LARGE, 1))
    daemon = setup.serve(telemetry={"traces": "on"})
    daemon.until("child.ready", child="exporter")
    runs = {start_run(database, "alpha").hex for _ in range(25)}

    until(lambda: {each.trace for each in collector.named("run alpha")} >= runs, 40)
    assert daemon.events("exporter.lost"), "its first calls were too large"
    assert "exporter" not in [each.get("child") for each in daemon.events("child.exited")]


def test_without_traces_there_is_no_module(
    setup: DaemonSetup, database: ScratchDatabase, tmp_path: Any
) -> None:
    setup.flow("alpha")
    log = tmp_path / "strace"
    calls = "trace=openat,socket,bind"
    setup.inside = ["strace", "-D", "-f", "-qq", "-s", "200", "-o", str(log), "-e", calls]
    daemon = setup.serve()
    daemon.until("run.completed", run=str(start_run(database, "alpha")))
    daemon.send(signal.SIGTERM)
    assert daemon.process.wait(20) == 0

    seen = log.read_text()
    exporter = r"pgflowd/processes/(__pycache__/)?exporter"
    assert re.search(exporter, seen), "it looks at what is imported"
    assert "opentelemetry" not in seen and "sentry_sdk" not in seen
    of_others = [line for line in seen.splitlines() if not line.startswith(f"{daemon.pid} ")]
    made = "".join(line for line in of_others if "AF_UNIX" in line)
    assert "SOCK_STREAM" in made and "SOCK_DGRAM" not in made
