"""What Sentry is told: the exception of the last attempt, once, also by a runner that then ends."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from support.collector import Collector
from support.daemon import DaemonSetup, start_run

from pgflowd.testing.scratch import ScratchDatabase
from pgflowd.testing.until import until

FLOW = """
import os, threading, time
import sentry_sdk
from pgflowd import Flow

names = {{"name": "OtelBatchSpanRecordProcessor", "daemon": True}}
threading.Thread(target=time.sleep, args=(1000,), **names).start()
importer = os.getpid()

sentry_sdk.init("http://key@127.0.0.1:{port}/1", auto_enabling_integrations=False)
flush = sentry_sdk.flush
flow = Flow("alpha", max_attempts=2, base_delay=0, timeout=30)

@flow.step
def work(run, ctx):
    assert importer != os.getpid(), "its zygote has imported it"
    if run.get("dies") and ctx.attempt == 2:  # the runner of the first may live on
        sentry_sdk.flush = lambda timeout: os.kill(os.getpid(), 9)  # its outcome was sent
    if run.get("fails"):
        raise ValueError(f"attempt {{ctx.attempt}} of {{run['fails']}}")

@flow.step
async def shared(run, ctx):
    if run.get("fails") == "shared":
        raise KeyError(f"attempt {{ctx.attempt}} of shared")
"""


def told(collector: Collector) -> list[tuple[str, dict[str, str]]]:
    """The text of each exception that was sent, and its tags."""
    found = []
    for path, body in collector.requests:
        assert path == "/api/1/envelope/"
        text = gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body
        for line in text.splitlines():
            item = json.loads(line)
            if "exception" in item:
                found.append((item["exception"]["values"][-1]["value"], item["tags"]))
    return found


@pytest.mark.parametrize("worker", [{"isolation": "task"}, {"tasks_per_runner": 4}])
def test_the_last_attempt_is_told_once(
    setup: DaemonSetup, collector: Collector, database: ScratchDatabase, worker: dict[str, Any]
) -> None:
    setup.module("alpha_flow", FLOW.format(port=collector.port))
    daemon = setup.serve(worker=worker)
    run_id = start_run(database, "alpha", fails="one")
    daemon.until("run.failed", run=str(run_id))
    [warning] = daemon.events("worker.warning", code="W222")
    assert "OtelBatchSpanRecordProcessor" in warning["text"]
    [(text, tags)] = until(lambda: told(collector), 10)
    assert text == "attempt 2 of one"
    wanted = {"flow": "alpha", "step": "work", "run": str(run_id), "attempt": "2"}
    assert tags.items() >= {f"pgflow.{name}": value for name, value in wanted.items()}.items()
    if "isolation" in worker:
        run_id = start_run(database, "alpha", fails="two", dies=True)
        daemon.until("run.failed", run=str(run_id))
        daemon.until("run.completed", run=str(start_run(database, "alpha")))
        outcomes = daemon.events("task.failed", run=str(run_id))
        assert [each["attempt"] for each in outcomes] == [1, 2], "its outcome counts, and no crash"
        texts = [text for text, _ in told(collector)]  # it may be gone before its runner dies
        assert texts in ([text], [text, "attempt 2 of two"])
        setup.config(worker={"isolation": "reuse"})
        assert daemon.command("reload").returncode == 0
        for fails in ("three", "four"):  # one runner has both; the second is told at once
            run_id = start_run(database, "alpha", fails=fails)
            daemon.until("run.failed", run=str(run_id))
            until(lambda fails=fails: told(collector)[-1][0] == f"attempt 2 of {fails}", 10)
        assert [text for text, _ in told(collector)] == [
            *texts,
            "attempt 2 of three",
            "attempt 2 of four",
        ]
        assert told(collector)[-1][1]["pgflow.run"] == str(run_id)
        pids = {each["pid"] for each in daemon.events("task.failed") if each["run"] == str(run_id)}
        assert len(pids) == 1
        run_id = start_run(database, "alpha", fails="five", dies=True)  # as its runner is told
        daemon.until("run.failed", run=str(run_id))
        run_id_after = start_run(database, "alpha", fails="six")  # by another runner
        daemon.until("run.failed", run=str(run_id_after))
        outcomes = daemon.events("task.failed", run=str(run_id))
        assert [each["attempt"] for each in outcomes] == [1, 2], "its outcome counts, and no crash"
        until(lambda: told(collector)[-1][0] == "attempt 2 of six", 10)
        assert told(collector)[-1][1]["pgflow.run"] == str(run_id_after)
    else:
        setup.config(worker=worker, telemetry={"sentry": "every"})
        assert daemon.command("reload").returncode == 0
        run_id = start_run(database, "alpha", fails="shared")
        daemon.until("run.failed", run=str(run_id))
        until(lambda: len(told(collector)) > 2, 10)
        texts = sorted(text for text, _ in told(collector)[1:])
        assert len(texts) == len(set(texts)) and set(texts) <= {
            f"{quote}attempt {nr} of shared{quote}" for nr in (1, 2) for quote in ("", "'")
        }
