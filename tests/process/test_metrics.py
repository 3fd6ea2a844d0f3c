"""`pgflowd status --metrics`: every metric, with what really happened."""

from __future__ import annotations

import re
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

from pgflowd.core.metrics.exposition import exposition
from pgflowd.testing.until import until

SOURCE = """
from pgflowd import Flow

good = Flow("good", base_delay=0)

@good.step
def begin(run): return [1, 2, 3]

@good.map(over=begin)
def each(item, ctx):
    if item == 2 and ctx.attempt == 1:
        raise ValueError("not yet")
    return item

@good.step
def end(each): return sum(each)

bad = Flow("bad", max_attempts=1)

@bad.step
def work(run):
    import time
    time.sleep(run)
    raise ValueError("no")
"""
LISTED = """
    tasks task_seconds task_wait_seconds runs running_tasks max_concurrency queued_tasks
    oldest_queued_seconds wakes listener_reconnects restarts parked_workers asleep_workers
    waiting_tasks due_late_seconds
    stalled_tasks database_errors reloads build state ready database_up database_rtt_seconds
    clock_skew_seconds oldest_running_seconds stuck_runners process_cpu_seconds
    process_resident_bytes missed_notifications quarantined_tasks
    schedule_ticks undo_runs log_records_dropped spans waiting_tasks due_late_seconds
"""
SUFFIXES = {
    "counter": {"_total"},
    "gauge": {""},
    "info": {"_info"},
    "histogram": {"_bucket", "_count", "_sum"},
}
SAMPLE = re.compile(r"(?P<name>[a-z_]+)(?:\{(?P<labels>.*)\})? (?P<value>[-+.e0-9]+)")
LABEL = re.compile(r'([a-z]+)="((?:[^"\\]|\\.)*)"')

Labels = tuple[tuple[str, str], ...]


def parsed(text: str) -> dict[str, dict[Labels, float]]:
    """Read OpenMetrics as strictly as the rules are; values by sample name and labels."""
    *lines, last = text.splitlines()
    assert last == "# EOF" and text.endswith("\n")
    values: dict[str, dict[Labels, float]] = defaultdict(dict)
    family = kind = ""
    for line in lines:
        if line.startswith("# "):
            word, name, rest = line[2:].split(" ", 2)
            assert word in {"HELP", "TYPE"}
            family, kind = name, rest if word == "TYPE" else ""
            continue
        match = SAMPLE.fullmatch(line)
        assert match, line
        assert match["name"].removeprefix(family) in SUFFIXES[kind], line
        labels = tuple(LABEL.findall(match["labels"] or ""))
        assert labels not in values[match["name"]], f"twice: {line}"
        values[match["name"]][labels] = float(match["value"])
    return values


def check_histogram(values: dict[str, dict[Labels, float]], name: str) -> dict[Labels, float]:
    """Buckets grow to the count, their bounds are ascending floats; the counts by labels."""
    buckets: dict[Labels, list[tuple[str, float]]] = defaultdict(list)
    for labels, value in values[f"{name}_bucket"].items():
        buckets[labels[:-1]].append((labels[-1][1], value))
    for labels, found in buckets.items():
        bounds = [float(bound) for bound, _ in found]
        assert bounds == sorted(bounds) and found[-1][0] == "+Inf"
        assert all("." in bound for bound, _ in found[:-1])
        counts = [count for _, count in found]
        assert counts == sorted(counts) and counts[-1] == values[f"{name}_count"][labels]
        assert values[f"{name}_sum"][labels] >= 0
    assert buckets.keys() == values[f"{name}_count"].keys() == values[f"{name}_sum"].keys()
    return values[f"{name}_count"]


def metrics(daemon: Any) -> dict[str, dict[Labels, float]]:
    done = daemon.command("status", "--metrics")
    assert done.returncode == 0, done.stderr
    return parsed(done.stdout)


def named(values: dict[Labels, float]) -> dict[tuple[str, ...], float]:
    """By the values of the labels alone."""
    return {tuple(value for _, value in labels): number for labels, number in values.items()}


def test_each_metric_counts_what_happened(setup, database):
    setup.module("flows", SOURCE)
    setup.module("broken", "import no_such_module\n")
    daemon = setup.serve(
        supervisor={"hang_timeout": "8s"}, logging={"level": "info"}, worker={"max_concurrency": 4}
    )
    for _ in range(5):
        database.client.start_flow_sync("good", {}, timeout=15)
    database.client.start_flow_sync("bad", 0, timeout=15)
    victim = database.client.start_flow("bad", 60)
    until(lambda: is_running(database, victim), 8)
    database.client.cancel(victim.run_id)
    assert daemon.command("reload").returncode == 1  # one module is broken

    until(lambda: is_counted(metrics(daemon)), 15)
    daemon.kill("good")
    daemon.until("child.ready", child="worker good", count=2)
    values = metrics(daemon)

    assert named(values["pgflowd_tasks_total"]) == {
        ("good", "begin", "completed"): 5,
        ("good", "each", "completed"): 15,
        ("good", "each", "failed"): 5,
        ("good", "end", "completed"): 5,
        ("bad", "work", "failed"): 2,
    }
    assert named(values["pgflowd_runs_total"]) == {
        ("good", "completed"): 5,
        ("bad", "failed"): 1,
        ("bad", "cancelled"): 1,
    }
    assert named(check_histogram(values, "pgflowd_task_seconds"))[("good", "each")] == 20
    waits = named(check_histogram(values, "pgflowd_task_wait_seconds"))
    assert waits == {
        ("good", "begin"): 5,
        ("good", "each"): 15,
        ("good", "end"): 5,
        ("bad", "work"): 2,
    }
    flows = {("bad",), ("good",)}
    assert {**named(values["pgflowd_max_concurrency"])}.items() >= {(flow, 4.0) for flow in flows}
    assert {key for key, v in named(values["pgflowd_running_tasks"]).items() if v == 0} >= flows
    wakes = named(values["pgflowd_wakes_total"])
    assert wakes[("good", "notification")] >= 5 and wakes[("good", "completion")] >= 5
    restarts = named(values["pgflowd_restarts_total"])
    assert restarts == {("worker good", "killed by SIGKILL"): 1}
    assert values["pgflowd_parked_workers"] == {(): 1}
    assert named(values["pgflowd_reloads_total"]) == {("done",): 1}
    assert values["pgflowd_listener_reconnects_total"] == {(): 0}
    assert values["pgflowd_stalled_tasks_total"] == {(): 0}
    assert list(values["pgflowd_build_info"].values()) == [1]


LARGE = """
from pgflowd import Flow
import time

flow = Flow("large")

@flow.step
def work(run):
    memory = b"x" * (run["mib"] << 20)
    time.sleep(run["s"])
"""


def test_no_counter_goes_back_while_a_child_is_replaced(setup, database):
    setup.module("large", LARGE)
    daemon = setup.serve(supervisor={"hang_timeout": "8s"})  # so that it renews more often
    database.client.start_flow_sync("large", {"mib": 0, "s": 0}, timeout=15)
    until(lambda: completed(daemon) == 1, 15)
    run = database.client.start_flow("large", {"mib": 256, "s": 30})  # takes a while to be gone
    until(lambda: is_running(database, run), 8)
    until(lambda: resident_mib(daemon) > 256, 8)

    daemon.kill("large")
    counts = [completed(daemon) for _ in range(100)]

    daemon.until("child.ready", child="worker large", count=2)
    database.client.cancel(run.run_id)
    assert set(counts) == {1}


def test_every_metric_that_is_promised_is_declared(setup, database):
    setup.flow("alpha")
    daemon = setup.serve()

    text = daemon.command("status", "--metrics").stdout

    declared = set(re.findall(r"^# TYPE pgflowd_([a-z_]+) ", text, re.M))
    assert declared == set(LISTED.split())


def completed(daemon: Any) -> float:
    """The number of completed tasks of all flows."""
    text = exposition(daemon.ask("metrics"), {})
    tasks = named(parsed(text)["pgflowd_tasks_total"])
    return sum(count for (*_, outcome), count in tasks.items() if outcome == "completed")


def resident_mib(daemon: Any) -> int:
    """The memory of the largest process of the daemon."""
    largest = 0
    for seen in daemon.family():
        with suppress(OSError):  # it has ended meanwhile
            pages = int(Path(f"/proc/{seen.pid}/statm").read_text().split()[1])
            largest = max(largest, pages // 256)
    return largest


def is_counted(values: dict[str, dict[Labels, float]]) -> bool:
    """Whether the workers' numbers have arrived: seven runs, and the end of the killed task."""
    tasks = named(values["pgflowd_tasks_total"])
    killed = tasks.get(("bad", "work", "failed")) == 2
    return killed and sum(values["pgflowd_runs_total"].values()) == 7


def is_running(database: Any, run: Any) -> bool:
    query = "select from pgflow.step_tasks where run_id = %s and status = 'started'"
    return database.connect().execute(query, (run.run_id,)).fetchone() is not None
