"""What is lost when something is killed: each row of the table, and never a task."""

from __future__ import annotations

import os
import re
import signal
from typing import Any
from uuid import uuid4

from support.collector import CollectedSpan, Collector, faults, read_spans
from support.covers import covers
from support.daemon import DaemonSetup, start_run

from pgflowd.core.traces import attempt_span
from pgflowd.core.worker.spans import Portion
from pgflowd.host.otlp import OtlpExporter
from pgflowd.host.span_socket import SpanSender, listen, read_datagram, socket_path
from pgflowd.processes.exporter import MAX_QUEUE
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
STRANGE: dict[str, Any] = {
    "trace": "2" * 32, "id": "3" * 16, "parent": None, "state": None, "name": "half \ud800",
    "start": 1, "end": 2, "error": None, "links": [["7" * 32, "6" * 16]], "scope": ["one", None],
    "attributes": {"large": 1 << 70, "yes": True, "list": [1, None, 2], "deep": {"a": 1},
                   "none": None},
}  # fmt: skip
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
    conn = database.connect()

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

    # a runner: what was open; its worker writes the attempt
    mark = tmp_path / "first"
    _, trace = run(mark=str(mark))
    os.kill(int(until(lambda: mark.exists() and mark.read_text(), 10)), signal.SIGKILL)
    ran(trace)
    spans = until(lambda: len(collector.of_trace(trace)) == 7 and collector.of_trace(trace), 10)
    assert faults(spans) == []
    names = sorted(each.name for each in spans)
    assert names == ["attempt 1", "attempt 2", "done", "done", "open", "run alpha", "work"]
    first = next(each for each in spans if each.name == "attempt 1")
    assert (first.is_error, first.attributes["pgflow.exit_signal"]) == (True, signal.SIGKILL)

    # a worker: the attempts that it held; the next one says so
    mark = tmp_path / "second"
    run_id, trace = run(mark=str(mark))
    until(lambda: mark.exists() and mark.read_text(), 10)
    daemon.kill("alpha")
    ran(trace)
    spans = until(lambda: len(collector.of_trace(trace)) == 6 and collector.of_trace(trace), 10)
    [token] = conn.execute(
        "select min(token) from pgflowd.attempts where run_id = %s", (run_id,)
    ).fetchone()
    lost = attempt_span(run_id, "work", 0, token)
    assert lost not in [each.id for each in spans]
    assert [each.name for each in spans if each.parent == lost] == ["done"]
    next_one = next(each for each in spans if each.name.startswith("attempt"))
    assert next_one.attributes["pgflow.previous"] == "stalled"

    # the collector: nothing, unless the queue is full; that is counted
    collector.status = 503
    _, trace = run()
    sender = SpanSender(socket_path(str(daemon.control)))
    for each in (STRANGE, STRANGE | {"id": "12"}, STRANGE | {"id": "5" * 16, "attributes": 1}):
        sender.send(each)
    runs = " ".join(f"{uuid4()} {nr}" for nr in range(500))
    some = Portion([["of", 3, "fields"]], [["a", "failed", None, 1, f"{runs} bad bad", []]], {})
    until(lambda: sender.send_portion("alpha", some) or counts(daemon)["dropped"], 20)
    assert MAX_QUEUE - 500 < daemon.ask()["exporter"]["queued"] <= MAX_QUEUE
    failed = counts(daemon)["failed"]
    assert failed >= 2 * (MAX_QUEUE // 500) + 2, "these were no spans"
    collector.status = 200
    until(lambda: len(collector.of_trace(trace)) == 5, 10)
    [strange] = collector.of_trace(STRANGE["trace"])  # beside those that are none
    assert (strange.name, strange.kind, strange.links) == ("half ?", 1, ("6" * 16,))
    known = strange.attributes
    assert (known["large"], known["yes"], known["deep"]) == (str(1 << 70), True, "{'a': 1}")
    assert [each.int_value for each in known["list"].values] == [1, 2] and "none" not in known

    # the exporter: what it had; it comes back alone
    before = daemon.pids()
    os.kill(daemon.ask()["exporter"]["pid"], signal.SIGKILL)
    daemon.until("child.ready", 2, child="exporter")
    _, trace = run()
    until(lambda: len(collector.of_trace(trace)) == 5, 15)
    assert daemon.pids() == before


def counts(daemon: Any) -> dict[str, int]:
    return dict(daemon.ask()["exporter"]["spans"])


@covers("E505")
def test_without_a_sample_there_is_no_datagram_and_bad_settings_park_the_exporter(
    setup: DaemonSetup, database: ScratchDatabase
) -> None:
    setup.environ["OTEL_EXPORTER_OTLP_PROTOCOL"] = "grpc"
    setup.module("alpha_flow", FLOW)
    daemon = setup.serve(telemetry={"traces": "on", "ratio": 0.0})
    daemon.until("child.parked", child="exporter", code="E505")
    assert "E505" in [each["code"] for each in daemon.ask()["problems"]]
    end = listen(socket_path(str(daemon.control)))
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

    spans: list[CollectedSpan] = []

    def read() -> bool:
        try:
            while True:
                found, lost = read_datagram(end.recv(100_000))
                assert not lost
                for each in found:
                    spans.extend(read_spans(OtlpExporter.encode(each)[1].data))
        except BlockingIOError:
            return sum(each.name == "run alpha" for each in spans) == 2

    until(read, 10)
    end.close()
    started, later = (
        {each.name: each for each in spans if each.trace == trace}
        for trace in (caller[3:35], runs[3].hex)
    )
    assert len(spans) == len(started) + len(later) == 10, "the first two were not sampled"
    run = started["run alpha"]
    assert (run.parent, run.state, run.links) == (caller[36:52], "y=2", ())
    assert later["run alpha"].parent == ""
    assert later["run alpha"].links == (caller[36:52],)
    assert "trace_id" in daemon.events("task.completed", run=str(runs[2]))[0]
    assert "trace_id" not in daemon.events("task.completed", run=str(runs[0]))[0]


def test_without_traces_there_is_no_socket_and_no_module(
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
    assert not list(daemon.control.parent.glob("*.span"))
