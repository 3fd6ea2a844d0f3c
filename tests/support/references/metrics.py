"""The page of metrics, from their definitions."""

from __future__ import annotations

from pgflowd.core.metrics.definitions import METRICS, Metric, MetricType
from support.references.markdown import MADE, code, page, paragraph, prose, table

_ABOUT = f"""\
`/metrics` of `[http]` answers in OpenMetrics 1.0, or in the classic text format 0.0.4 to those
who do not ask for it; `pgflowd status --metrics` prints the former.
[Observe](../operate/observe.md#prometheus) shows what Prometheus and Grafana need. {MADE}"""
_NOTES = """\
Labels grow with flows and steps only. `process` is `supervisor`, `listener`, `sweeper`, `http`,
`exporter` or `worker FLOW`; `runners FLOW` has its zygote, too. `result` is `undone` or
`undo_failed` of undos, `started` or `failed` of ticks, `sent` or `failed` of spans.
`state` has the words of `pgflowd status`. `kind` of a waiting task is what it waits for."""
_COUNTING = """\
Counters go on when a child is replaced, and begin at 0 with the daemon; processor time is
counted by `http`, and begins anew with it. The numbers of the queue come from the database:
every daemon that serves a flow reports the same, so take `max by (flow)`, never `sum`. Of a
flow with messages that no worker of any daemon serves each daemon reports them, without
`pgflowd_max_concurrency`. A flow with 6 steps has some 200 lines of histograms;
one with more than 100 has one of all its steps, whose `step` is empty."""
_TOPICS = {
    "flow": "Of flows and steps",
    "": "Of the daemon",
}
_SUFFIX = {MetricType.COUNTER: "_total", MetricType.INFO: "_info"}


def metrics_page() -> str:
    parts = [paragraph(_ABOUT)]
    for label, title in _TOPICS.items():
        rows = [_row(each) for each in METRICS if ("flow" in each.labels) == bool(label)]
        parts += [f"## {title}", table(("metric", "type", "labels", "is"), rows)]
    return page("Metrics", *parts, "## How to read them", paragraph(_NOTES), paragraph(_COUNTING))


def _row(metric: Metric) -> list[str]:
    name = f"pgflowd_{metric.name}{_SUFFIX.get(metric.type, '')}"
    labels = ", ".join(map(code, metric.labels))
    return [code(name), metric.type.value, labels, prose(metric.help)]
