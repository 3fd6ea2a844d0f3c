"""Shows what flows have to do, and what they did lately."""

from __future__ import annotations

from collections.abc import Sequence

from pgflowd.cli.app import App
from pgflowd.cli.terminal.screen import DASH, TableCell
from pgflowd.core.documents.statistics import FlowStats, FlowWork, StepStats
from pgflowd.core.documents.waits import QUARANTINED
from pgflowd.core.text import duration

_TITLES = ("STEP", "ENDED", "A MINUTE", "FAILED", "RAN 50%", "95%", "WAITED 50%", "95% ")


def print_stats(app: App, flows: Sequence[FlowStats]) -> None:
    """Each flow with a line of its open work, and a table of its steps, if any have ended."""
    if not flows:
        app.note("there are no flows in the database; `pgflowd flows deploy` creates them")
    for number, flow in enumerate(flows):
        if number:
            app.print("")
        words = [flow.work.flow_slug, *_open(flow.work)]
        for line in app.out.wrapped("   ".join(words), head="", indent=3):
            app.print(line)
        rows = [_row(app, "runs", flow.runs, flow.since_s)] if flow.runs else []
        rows += [_row(app, each.step_slug, each, flow.since_s) for each in flow.steps]
        if rows:
            app.print_table(
                _TITLES,
                rows,
                right=set(_TITLES) - {"STEP"},
                losing=("WAITED 50%", "95% ", "95%", "RAN 50%", "A MINUTE"),
            )
        else:
            app.print(f" nothing ended within {duration(flow.since_s)}")


def _open(work: FlowWork) -> list[str]:
    """The open work, as far as there is some."""
    oldest = f", the oldest for {duration(work.oldest_ready_s)}" if work.oldest_ready_s else ""
    waits = {kind: count for kind, count in sorted(work.waits.items()) if kind != QUARANTINED}
    kinds = ", ".join(f"{count} {kind}" for kind, count in waits.items())
    words = [f"{work.ready} ready{oldest}", f"{work.running} running"]
    words += [f"{work.delayed} delayed"] if work.delayed else []
    words += [f"{sum(waits.values())} waiting: {kinds}"] if waits else []
    words += [f"{work.waits[QUARANTINED]} {QUARANTINED}"] if QUARANTINED in work.waits else []
    return words


def _row(app: App, name: str, one: StepStats, since_s: float) -> list[str | TableCell]:
    dash = app.out.sign(DASH)
    times = (one.ran_p50_s, one.ran_p95_s, one.waited_p50_s, one.waited_p95_s)
    return [
        name,
        str(one.ended),
        f"{one.per_minute(since_s):.3g}",
        dash if one.failure_rate is None else f"{one.failure_rate:.1%}",
        *[dash if seconds is None else duration(seconds) for seconds in times],
    ]
