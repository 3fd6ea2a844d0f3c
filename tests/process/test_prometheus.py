"""
A real Prometheus scrapes a daemon, set up by the commands of docs/operate/observe.md, and promtool
reads the other format.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import web
from support.daemon import is_completed, start_run
from support.pages import blocks_of
from support.servers import free_port

from pgflowd.resources import shipped
from pgflowd.testing.until import until

PGFLOWD = f"{sys.executable} -m pgflowd "
INTERVAL = "scrape_interval: 15s"


class Prometheus:
    """The server that the page's commands start, and its API."""

    def __init__(self, directory: Path, daemon: int) -> None:
        self.port = free_port()
        block, *_ = blocks_of("docs/operate/observe.md", "console")
        *before, last = [
            line.removeprefix("$ ").replace("pgflowd ", PGFLOWD)
            for line in block.splitlines()
            if "apt-get" not in line
        ]
        for line in before:
            subprocess.run(line, shell=True, check=True, cwd=directory, capture_output=True)
            config = directory / "prometheus.yml"
            text = config.read_text().replace("7461", str(daemon))
            config.write_text(text.replace(INTERVAL, "scrape_interval: 1s"))
        last = last.replace("9099", str(self.port))
        log = (directory / "prometheus.log").open("wb")
        self.process = subprocess.Popen(last.split(), cwd=directory, stdout=log, stderr=log)

    def ask(self, path: str, **parameters: str) -> Any:
        query = urllib.parse.urlencode(parameters)
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{query}"
        with urllib.request.urlopen(url, timeout=web.TIMEOUT_S) as answer:
            return json.load(answer)["data"]

    def value(self, expression: str) -> float | None:
        """The one value of an expression; None if there is none."""
        found = self.ask("query", query=expression)["result"]
        return float(found[0]["value"][1]) if found else None

    def is_up(self) -> bool:
        try:
            return self.value("up") == 1
        except OSError:  # it does not listen yet
            return False

    def type_of(self, metric: str) -> str:
        (found,) = {each["type"] for each in self.ask("targets/metadata", metric=metric)}
        return str(found)


@pytest.fixture
def prometheus_on(tmp_path) -> Iterator[Any]:
    started: list[Prometheus] = []

    def start(port: int) -> Prometheus:
        directory = tmp_path / "prometheus"
        directory.mkdir()
        started.append(Prometheus(directory, port))
        return started[0]

    yield start
    for each in started:
        each.process.kill()
        each.process.wait()


def test_the_page_leads_to_a_prometheus_that_knows_the_daemon(setup, database, prometheus_on):
    setup.flow("alpha")
    port = free_port()
    daemon = setup.serve(http={"listen": f"127.0.0.1:{port}"})
    runs = [start_run(database, "alpha") for _ in range(5)]
    prometheus = prometheus_on(port)
    until(lambda: all(is_completed(database, run) for run in runs), 10)
    until(prometheus.is_up, 15)
    until(lambda: prometheus.value('pgflowd_runs_total{status="completed"}') == 5, 15)

    assert prometheus.type_of("pgflowd_runs") == "counter"
    assert prometheus.type_of("pgflowd_task_seconds") == "histogram"
    assert prometheus.type_of("pgflowd_ready") == "gauge"
    assert prometheus.type_of("pgflowd_build") == "info"
    assert prometheus.value('pgflowd_state{state="healthy"}') == 1
    assert prometheus.value("sum(pgflowd_state)") == prometheus.value("pgflowd_ready") == 1
    assert prometheus.value("pgflowd_database_up") == 1
    assert prometheus.value('pgflowd_task_seconds_count{flow="alpha",step="work"}') == 5
    resident = prometheus.value('pgflowd_process_resident_bytes{process="worker alpha"}')
    assert resident and resident > 1e6
    rules = prometheus.ask("rules")["groups"][0]["rules"]
    assert len(rules) == (shipped("monitoring") / "alerts.yml").read_text().count("- alert:")
    check_classic(port)

    daemon.kill("alpha")
    daemon.until("child.ready", child="worker alpha", count=2)
    run = start_run(database, "alpha")
    until(lambda: is_completed(database, run), 10)
    until(lambda: prometheus.value('pgflowd_runs_total{status="completed"}') == 6, 15)
    names = prometheus.ask("label/__name__/values")
    counters = [each for each in names if each.endswith(("_total", "_count", "_sum", "_bucket"))]
    resets = {name: prometheus.value(f"sum(resets({name}[5m]))") for name in counters}
    assert [name for name, count in resets.items() if count] == []
    assert "pgflowd_process_cpu_seconds_total" in resets
    assert prometheus.value("sum(pgflowd_restarts_total)") == 1
    until(lambda: len(empty_panels(prometheus)) <= 4, 15)  # nothing has failed, for example


def check_classic(port: int) -> None:
    """The text for those who do not ask for OpenMetrics."""
    answer = web.get(port, "/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=answer.body, capture_output=True, text=True
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def empty_panels(prometheus: Prometheus) -> list[str]:
    """The expressions of the dashboard for which Prometheus has nothing to show; it knows all."""
    board = json.loads((shipped("monitoring") / "grafana.json").read_text())
    expressions = [each["expr"] for panel in board["panels"] for each in panel.get("targets", [])]
    filled = [
        re.sub(r"\$(job|name|flow)", ".*", each.replace("$__rate_interval", "1m"))
        for each in expressions
    ]
    return [each for each in filled if not prometheus.ask("query", query=each)["result"]]
