"""A request of an application and all that its run does is one trace."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

from support import web
from support.collector import Collector, faults
from support.daemon import Daemon, DaemonSetup
from support.servers import free_port

from pgflowd.core.traces import run_span, step_span
from pgflowd.testing.scratch import ScratchDatabase
from pgflowd.testing.until import until

FLOWS = """
import time
from opentelemetry import trace
from pgflowd import Flow

shop = Flow("shop", max_attempts=2, base_delay=0, timeout=30)
child = Flow("child")
tracer = trace.get_tracer("shop")

@shop.step
def pages(run):
    return [1, 2, 3]

@shop.map(over="pages")
def fetch(item, ctx):
    with tracer.start_as_current_span("fetch page") as span:
        span.set_attribute("page", item)
        ctx.log.warning("fetching")
    return item

@shop.step
def flaky(run, ctx):
    if ctx.attempt == 1:
        raise ValueError("the password=hunter2 was wrong")
    return ctx.traceparent

@shop.step(timeout=1, when_exhausted="skip", max_attempts=1)
def slow(run):
    with tracer.start_as_current_span("ended before"):
        pass
    with tracer.start_as_current_span("still open"):
        time.sleep(60)

@shop.step
def parent(fetch, flaky, ctx):
    with tracer.start_as_current_span("call"):
        ctx.wait(ctx.start("child", {}))
    return 1

@child.step
async def only(run, ctx):
    ctx.conn().execute("create temporary table one ()")
    with tracer.start_as_current_span("in the child"):
        return 1
"""
OF_HANDLERS = ("fetch page", "ended before", "call", "start child", "in the child")
APPLICATION = """
import sys
import uvicorn
from fastapi import FastAPI
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from pgflowd import AsyncClient

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
app, client = FastAPI(), AsyncClient(sys.argv[1])

@app.get("/buy")
async def buy():
    with trace.get_tracer("app").start_as_current_span("GET /buy"):
        return str((await client.start_flow("shop", {})).run_id)

uvicorn.run(app, port=int(sys.argv[2]), log_level="error")
"""


def test_a_request_and_what_its_run_does_are_one_trace(
    setup: DaemonSetup, collector: Collector, database: ScratchDatabase, tmp_path: Path
) -> None:
    setup.module("shop_flows", FLOWS)
    daemon = setup.serve(telemetry={"traces": "on", "service_name": "shop"})
    port = free_port()
    (tmp_path / "app.py").write_text(textwrap.dedent(APPLICATION))
    command = [sys.executable, str(tmp_path / "app.py"), setup.dsn, str(port)]
    application = subprocess.Popen(command, env=setup.environ)
    try:
        until(lambda: web.status_of(port, "/docs") == 200, 30)
        run_id = web.get(port, "/buy").body.strip('"')
    finally:
        application.terminate()
        application.wait(10)
    run = until(lambda: collector.named("run shop"), 30)[0]
    until(lambda: collector.named("in the child") and len(collector.named("call")) == 2, 10)
    sent = until(lambda: sent_by(daemon), 10)
    daemon.send(signal.SIGTERM)
    assert daemon.process.wait(20) == 0

    spans = collector.of_trace(run.trace)
    ours = [each for each in spans if each.service == "shop"]
    assert faults(spans) == []
    of_history = [each for each in ours if each.name not in OF_HANDLERS]
    assert sent == len(of_history)  # each was sent once
    assert Counter(each.name for each in ours) == {
        "run shop": 1, "pages": 1, "fetch": 1, "flaky": 1, "slow": 1, "parent": 1,
        "attempt 1": 9, "attempt 2": 1, "fetch page": 3, "ended before": 1, "call": 2,
        "start child": 1, "run child": 1, "only": 1, "in the child": 1,
    }  # fmt: skip
    by_name = {each.name: each for each in spans}
    assert (run.id, run.parent) == (run_span(run_id), by_name["start shop"].id)
    assert by_name["run child"].parent == by_name["start child"].id
    assert set(by_name["parent"].links) == {step_span(run_id, dep) for dep in ("fetch", "flaky")}
    assert not any(each.is_error for each in collector.named("call"))  # a wait is no error
    failed = [each for each in ours if each.is_error]
    assert sorted(each.attributes["pgflow.outcome"] for each in failed) == ["failed", "timed_out"]
    assert "was wrong" in str(failed) and "hunter2" not in str(failed)
    timed_out = next(each for each in failed if "timed out" in each.message)
    assert timed_out.attributes["pgflow.exit_signal"] == signal.SIGKILL
    second = by_name["attempt 2"]
    assert second.attributes["pgflow.previous"] == "failed"

    conn = database.connect()
    query = "select output from pgflow.step_states where run_id = %s and step_slug = 'flaky'"
    assert conn.execute(query, (run_id,)).fetchone() == (f"00-{run.trace}-{second.id}-01",)
    assert conn.execute("select pgflowd.trace_id(%s)", (run_id,)).fetchone() == (run.trace,)
    logged = daemon.events("task.log", text="fetching")
    assert {each["trace_id"] for each in logged} == {run.trace}
    assert {each["span_id"] for each in logged} == {
        each.id for each in collector.named("fetch page")
    }
    assert {each["trace_id"] for each in daemon.events("task.failed")} == {run.trace}
    setup.config(telemetry={"trace_url": "https://traces.example/{trace_id}"})
    shown = daemon.command("runs", "show", run_id)
    assert f"https://traces.example/{run.trace}" in shown.stdout


def sent_by(daemon: Daemon) -> int | None:
    """How many spans the daemon's exporter has sent, once these are all."""
    exporter = daemon.ask()["exporter"]
    return exporter["spans"]["sent"] if not exporter["queued"] else None
