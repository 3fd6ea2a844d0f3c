"""
Flow screen: how lists of flows, single flows and their graphs look.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pgflowd.cli.app import App
from pgflowd.cli.terminal.run_graph import painted
from pgflowd.cli.terminal.screen import TableCell
from pgflowd.core.graph.graph import Graph, as_json, graph_of, mermaid
from pgflowd.core.text import ago, between, counted, lasted

if TYPE_CHECKING:
    from pgflowd.db.overview import FlowRow

SCHEMA_VERSION = 1


def list_screen(app: App, rows: Sequence[FlowRow], now: datetime) -> None:
    """Flows as a table; what nobody serves, and has work, catches the eye."""
    if not rows:
        app.note("there are no flows in the database; `pgflowd flows deploy` creates them")
        return
    titles = ("FLOW", "STEPS", "QUEUED", "OLDEST", "RUNNING", "RUNS", "WORKERS", "LAST RUN")
    app.print_table(
        titles,
        [_line(app, row, now) for row in rows],
        right={"STEPS", "QUEUED", "OLDEST", "RUNNING", "RUNS", "WORKERS"},
        losing=("STEPS", "OLDEST", "LAST RUN", "RUNS", "RUNNING"),
    )


def _line(app: App, row: FlowRow, now: datetime) -> list[str | TableCell]:
    dash = app.out.sign("dash")
    oldest = between(row.oldest_queued_at, now)
    is_left_alone = row.workers == 0 and row.active_runs > 0
    served = f"{app.out.sign('look')} 0" if is_left_alone else str(row.workers)
    return [
        row.flow_slug,
        str(row.steps),
        str(row.queued),
        dash if oldest is None else lasted(oldest),
        str(row.running),
        str(row.active_runs),
        TableCell(served, "yellow" if is_left_alone else None),
        dash if row.last_run_at is None else ago(row.last_run_at, now),
    ]


def show_screen(app: App, row: FlowRow, shape: Mapping[str, Any], now: datetime) -> None:
    """A flow: how it is, its graph, and the options of its steps."""
    options = shape.get("options") or {}
    limits = (
        f"max_attempts {options.get('maxAttempts')}, base_delay {options.get('baseDelay')} s, "
        f"timeout {options.get('timeout')} s"
    )
    state = f"{row.queued} queued, {row.running} running, {counted(row.workers, 'worker')}"
    last = "no runs yet" if row.last_run_at is None else f"last run {ago(row.last_run_at, now)}"
    for text in (row.flow_slug, limits, f"{state}, {last}"):
        for line in _folded(app, text):
            app.print(line)
    app.print(painted(graph_of(shape), app.out))
    titles = ("STEP", "TYPE", "ATTEMPTS", "DELAY", "TIMEOUT", "START", "EXHAUSTED", "IF")
    app.print_table(
        titles,
        [_step(app, step, options) for step in shape["steps"]],
        right={"ATTEMPTS", "DELAY", "TIMEOUT", "START"},
        losing=("IF", "START", "DELAY", "EXHAUSTED", "TYPE"),
    )
    if not row.is_watched:
        app.note("W311 its queue has no trigger, so workers poll; run `pgflowd flows deploy`")


def row_json(row: FlowRow) -> dict[str, Any]:
    """A flow in a list, for programs."""
    return {
        "flow": row.flow_slug,
        "steps": row.steps,
        "queue": row.queue_name,
        "watched": row.is_watched,
        "queued": row.queued,
        "oldest_queued_at": row.oldest_queued_at,
        "running": row.running,
        "active_runs": row.active_runs,
        "workers": row.workers,
        "last_run_at": row.last_run_at,
        "created_at": row.created_at,
    }


def graph_screen(app: App, graph: Graph, form: str) -> None:
    """A graph in one of its forms."""
    if form == "json":
        app.print_json({"schema_version": SCHEMA_VERSION, **as_json(graph)})
    elif form == "mermaid":
        app.print(mermaid(graph))
    else:
        app.print(painted(graph, app.out))


def _step(app: App, step: Mapping[str, Any], flow: Mapping[str, Any]) -> list[str]:
    own = step.get("options") or {}
    limits = [own.get(key, flow.get(key)) for key in ("maxAttempts", "baseDelay", "timeout")]
    conditions = [
        f"{word} {json.dumps(step[key]['value'])}"
        for key, word in (("requiredInputPattern", "if"), ("forbiddenInputPattern", "if not"))
        if (step.get(key) or {}).get("defined")
    ]
    if conditions:
        conditions.append(f"else {step.get('whenUnmet')}")
    attempts, delay, timeout = limits
    return [
        step["slug"],
        step["stepType"],
        str(attempts),
        f"{delay}s",
        f"{timeout}s",
        f"{own['startDelay']}s" if own.get("startDelay") else app.out.sign("dash"),
        str(step.get("whenExhausted")),
        " ".join(conditions),
    ]


def _folded(app: App, text: str) -> list[str]:
    import textwrap

    return [text] if app.out.width is None else textwrap.wrap(text, app.out.width)
