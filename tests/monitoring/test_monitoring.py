"""
What `monitoring/` ships: each alert fires when it should and is silent otherwise, and each
expression names metrics that there are.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest

from pgflowd.cli.main import run
from pgflowd.core.metrics.definitions import METRICS, MetricType
from pgflowd.resources import shipped

FILES = shipped("monitoring")
ALERTS = (FILES / "alerts.yml").read_text()
RULES = {
    text.split("\n", 1)[0]: text
    for text in re.split(r"^ +- alert: ", ALERTS, flags=re.MULTILINE)[1:]
}
DASHBOARD = json.loads((FILES / "grafana.json").read_text())
SUFFIXES = {
    MetricType.COUNTER: ("_total",),
    MetricType.GAUGE: ("",),
    MetricType.INFO: ("_info",),
    MetricType.HISTOGRAM: ("_bucket", "_count", "_sum"),
}
KNOWN = {f"pgflowd_{each.name}{suffix}" for each in METRICS for suffix in SUFFIXES[each.type]}
HERE, FLOW = 'job="pgflowd",instance="a"', 'job="pgflowd",instance="a",flow="mail"'

Series = dict[str, str]  # its values, one a minute: "0+2x50" is 0, 2, 4, …
CASES: dict[str, tuple[Series, Series]] = {  # when it fires, and when it is silent
    "PgflowdDown": ({}, {f"pgflowd_build_info{{{HERE}}}": "1x50"}),
    "PgflowdNotReady": (
        {f"pgflowd_ready{{{HERE}}}": "0x50"},
        {f"pgflowd_ready{{{HERE}}}": "1x36 0x2 1x20"},
    ),
    "PgflowdQueueOld": (
        {f"pgflowd_oldest_queued_seconds{{{FLOW}}}": "0+60x50"},
        {f"pgflowd_oldest_queued_seconds{{{FLOW}}}": "299x50"},
    ),
    "PgflowdNobodyServes": (
        {f"pgflowd_queued_tasks{{{FLOW}}}": "3x50"},
        {
            f"pgflowd_queued_tasks{{{FLOW}}}": "3x50",
            'pgflowd_max_concurrency{job="pgflowd",instance="b",flow="mail"}': "10x50",
        },
    ),
    "PgflowdFailing": (
        {
            f'pgflowd_runs_total{{{FLOW},status="failed"}}': "0+1x50",
            f'pgflowd_runs_total{{{FLOW},status="completed"}}': "0+9x50",
        },
        {
            f'pgflowd_runs_total{{{FLOW},status="failed"}}': "0x35 1x20",  # one of two
            f'pgflowd_runs_total{{{FLOW},status="completed"}}': "0x35 1x20",
        },
    ),
    "PgflowdParked": (
        {f"pgflowd_parked_workers{{{HERE}}}": "1x50"},
        {f"pgflowd_parked_workers{{{HERE}}}": "0x50"},
    ),
    "PgflowdRestarting": (
        {f'pgflowd_restarts_total{{{HERE},child="worker mail",reason="x"}}': "0+1x50"},
        {f'pgflowd_restarts_total{{{HERE},child="worker mail",reason="x"}}': "0x35 1x20"},
    ),
    "PgflowdStuckRunners": (
        {f"pgflowd_stuck_runners{{{FLOW}}}": "0x30 1x20"},
        {f"pgflowd_stuck_runners{{{FLOW}}}": "0x50"},
    ),
    "PgflowdStalledTasks": (
        {f"pgflowd_stalled_tasks_total{{{HERE}}}": "4x30 5x20"},
        {f"pgflowd_stalled_tasks_total{{{HERE}}}": "4x50"},
    ),
    "PgflowdQuarantined": (
        {f"pgflowd_quarantined_tasks{{{FLOW}}}": "2x50"},
        {f"pgflowd_quarantined_tasks{{{FLOW}}}": "0x50"},
    ),
    "PgflowdDatabaseLost": (
        {f"pgflowd_database_up{{{HERE}}}": "1x30 0x20"},
        {f"pgflowd_database_up{{{HERE}}}": "1x30 0 1x20"},
    ),
    "PgflowdReconnecting": (
        {f"pgflowd_listener_reconnects_total{{{HERE}}}": "0+1x50"},
        {f"pgflowd_listener_reconnects_total{{{HERE}}}": "0x30 2x20"},
    ),
    "PgflowdClockSkew": (
        {f"pgflowd_clock_skew_seconds{{{HERE}}}": "-6x50"},
        {f"pgflowd_clock_skew_seconds{{{HERE}}}": "0.2x50"},
    ),
    "PgflowdNotificationsBroken": (
        {f"pgflowd_missed_notifications_total{{{FLOW}}}": "0+2x50"},  # and no wake at all
        {
            f"pgflowd_missed_notifications_total{{{FLOW}}}": "0+1x50",
            f'pgflowd_wakes_total{{{FLOW},reason="notification"}}': "0+9x50",
            f'pgflowd_wakes_total{{{FLOW},reason="fallback"}}': "0+99x50",  # they found nothing
        },
    ),
    "PgflowdSpansRefused": (
        {f'pgflowd_spans_total{{{HERE},result="failed"}}': "0x30 9x20"},
        {
            f'pgflowd_spans_total{{{HERE},result="sent"}}': "0+9x50",
            f'pgflowd_spans_total{{{HERE},result="failed"}}': "9x50",
        },
    ),
}


def promtool(*args: str | Path) -> None:
    done = subprocess.run(
        ["promtool", *map(str, args)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def case(alert: str, series: Series, count: int) -> dict[str, Any]:
    """Whether so many of an alert fire after 40 minutes of these series."""
    firing = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)'
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {"expr": firing, "eval_time": "40m", "exp_samples": [{"labels": "{}", "value": count}]}
        ],
    }


def test_each_alert_has_a_firing_and_a_silent_case():
    assert list(CASES) == list(RULES)


def test_each_alert_fires_when_it_should_and_is_silent_otherwise(tmp_path):
    tests = [
        case(alert, series, count)
        for alert, both in CASES.items()
        for series, count in zip(both, (1, 0), strict=True)
    ]
    document = {
        "rule_files": [str(FILES / "alerts.yml")], "evaluation_interval": "1m", "tests": tests,
    }  # fmt: skip
    (tmp_path / "tests.yml").write_text(json.dumps(document))

    promtool("test", "rules", tmp_path / "tests.yml")


def test_the_rules_are_valid_and_the_scraped_file_names_them(tmp_path):
    (tmp_path / "prometheus.yml").write_text((FILES / "scrape.yml").read_text())
    (tmp_path / "alerts.yml").write_text(ALERTS)

    promtool("check", "config", tmp_path / "prometheus.yml")


@pytest.mark.parametrize("alert", RULES)
def test_each_alert_waits_is_weighed_and_says_what_to_do_next(alert, monkeypatch):
    monkeypatch.setattr(click.Command, "invoke", lambda self, ctx: None)
    rule = RULES[alert]
    (command,) = re.findall(r"^ +next: (.+)$", rule, re.MULTILINE)

    assert re.search(r"^ +for: [1-9]", rule, re.MULTILINE)
    assert re.search("severity: (critical|warning|info)}", rule)
    program, *words = shlex.split(command.replace("{{ $labels.flow }}", "mail"))
    assert (program, words[:1]) == ("systemctl", ["status"]) or run(words) == 0


def expressions() -> list[str]:
    return [each["expr"] for panel in DASHBOARD["panels"] for each in panel.get("targets", [])]


def test_each_expression_of_the_dashboard_is_valid(tmp_path):
    rules = []
    for number, expression in enumerate(expressions()):
        filled = re.sub(r"\$__rate_interval", "5m", expression)
        filled = re.sub(r"\$(job|name|flow)\b", ".*", filled)
        assert "$" not in filled
        rules.append({"record": f"panel:{number}", "expr": filled})
    (tmp_path / "panels.yml").write_text(
        json.dumps({"groups": [{"name": "dashboard", "rules": rules}]})
    )

    promtool("check", "rules", tmp_path / "panels.yml")


def test_alerts_and_dashboard_name_metrics_that_there_are():
    named = set(re.findall(r"\bpgflowd_\w+", " ".join([ALERTS, *expressions()])))
    variables = [each["query"]["query"] for each in DASHBOARD["templating"]["list"][1:]]
    named |= set(re.findall(r"\bpgflowd_\w+", " ".join(variables)))

    assert named - {"pgflowd_token"} <= KNOWN
