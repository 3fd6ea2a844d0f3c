"""
Shows flows on a terminal: lists, single ones, graphs, how the code differs, and statistics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pgflowd.cli.app import App
from pgflowd.cli.terminal.list_view import schedule_lines
from pgflowd.cli.terminal.run_view import painted, pause_text
from pgflowd.cli.terminal.screen import DASH, TableCell
from pgflowd.cli.terminal.texts import print_list
from pgflowd.core.definition.options import (
    NUMBERS,
    OptionKind,
    OptionValues,
    Owner,
    option_cells,
    option_text,
    options_of,
    used_columns,
)
from pgflowd.core.definition.shape import plan_of
from pgflowd.core.documents.flows import (
    FlowStats,
    ListedFlow,
    ListedLimit,
    Version,
    WorkerCaps,
    unserved_needs,
)
from pgflowd.core.documents.run_tasks import QUARANTINED
from pgflowd.core.graph import Graph, graph_of, mermaid, placed
from pgflowd.core.redact import one_line
from pgflowd.core.statuses import Marks
from pgflowd.core.text import ago, between, counted, duration, short_id

if TYPE_CHECKING:
    from pgflowd.core.documents.schedules import ListedSchedule
    from pgflowd.db.flows import Comparison


def print_flows(app: App, flows: Sequence[ListedFlow], now: datetime) -> None:
    """Flows as a table; one that has work and no worker is marked. Those that undo runs of others
    are in it if they have work."""
    flows = [flow for flow in flows if app.verbose or not flow.undoes or flow.active_runs]
    if not flows:
        app.note("there are no flows in the database; `pgflowd flows deploy` creates them")
        return

    def workers(flow: ListedFlow) -> int | TableCell:
        if flow.paused_at is not None:
            return app.out.cell(Marks.PAUSED, " paused")
        if flow.workers == 0 and flow.is_asleep:
            return app.out.cell(Marks.ASLEEP, " asleep")
        has_none = flow.workers == 0 and flow.active_runs > 0
        return app.out.cell(Marks.WARNING, " 0") if has_none else flow.workers

    print_list(
        app,
        flows,
        "title steps queued waiting planned oldest_queued_at running active_runs workers import_s"
        " last_run_at",
        "steps import_s oldest_queued_at last_run_at active_runs running planned waiting",
        now=now,
        title=lambda flow: _title(flow, is_full=app.verbose),
        oldest_queued_at=lambda flow: between(flow.oldest_queued_at, now),
        workers=workers,
    )


def _title(flow: ListedFlow, *, is_full: bool) -> str:
    """The flow of the database, or what people call it; and whether there are older versions."""
    if not flow.old_versions:
        return flow.flow_slug if is_full else flow.title
    if is_full:
        return f"{flow.flow_slug} is current"
    runs = f", {counted(flow.old_runs, 'run')}" if flow.old_runs else ""
    return f"{flow.title} +{flow.old_versions} old{runs}"


def print_versions(app: App, versions: Sequence[Version], now: datetime) -> None:
    """The versions of a flow, if it has some, newest first."""
    for version in reversed(versions):
        who = f" by {version.deployed_by}" if version.deployed_by else ""
        code = f", {version.code}" if version.code else ""
        mark = ", current" if version.is_current else ""
        text = f"version {version.number} is {version.flow_slug}{mark}, deployed "
        app.print(app.out.folded(f"{text}{ago(version.deployed_at, now)}{who}{one_line(code)}"))


def print_flow(
    app: App,
    flow: ListedFlow,
    shape: Mapping[str, Any],
    workers_with_caps: Sequence[WorkerCaps],
    schedules: Sequence[ListedSchedule],
    now: datetime,
) -> None:
    """A flow: its work, its graph, the options of its steps, and when its runs start."""
    undoes = [f"undoes runs of {flow.undoes}"] if flow.undoes else []
    options = shape.get("options") or {}
    limits = ", ".join(
        f"{each.name} {options.get(each.json_name)}{' s' * (each.kind is OptionKind.SECONDS)}"
        for each in options_of(Owner.FLOW)
        if each.json_name in options or (each.json_name and not each.is_of_runs)
    )
    is_asleep = flow.workers == 0 and flow.is_asleep
    workers = "asleep" if is_asleep else counted(flow.workers, "worker")
    waiting = f", {flow.waiting} waiting" if flow.waiting else ""
    planned = f", {counted(flow.planned, 'planned run')}" if flow.planned else ""
    state = f"{flow.queued} queued, {flow.running} running{waiting}{planned}, {workers}"
    if flow.import_s is not None:
        state += f", imported in {duration(flow.import_s)}"
    last = "no runs yet" if flow.last_run_at is None else f"last run {ago(flow.last_run_at, now)}"
    texts = [flow.title, *undoes, limits, f"{state}, {last}"]
    if flow.paused_at is not None:
        since = pause_text(flow.paused_at, flow.paused_by, flow.pause_reason, now)
        texts.append(one_line(f"paused {since}"))
    app.print_lines(app.out.folded(app.out.shown(text)) for text in texts)
    app.print(painted(graph_of(shape), app.out))
    steps = plan_of(shape).steps.values()
    cells = [option_cells(step.options) for step in steps]
    columns = used_columns(cells)
    absent = {option.column: app.out.sign(DASH) for option in NUMBERS}
    table = app.out.table(
        ("STEP", "TYPE", *columns),
        [
            [step.slug, "map" if step.is_map else "single"]
            + [each[column] or absent.get(column, "") for column in columns]
            for step, each in zip(steps, cells, strict=True)
        ],
        right={option.column for option in NUMBERS if option.column},
        losing=("IF", "START", "DELAY", "EXHAUSTED", "TYPE"),
    )
    app.print(table)
    app.print_lines(map(app.out.folded, schedule_lines(app, schedules, now)))
    for worker in workers_with_caps:
        app.print(app.out.folded(f"worker {worker.name} has {', '.join(worker.caps)}"))
    for name in unserved_needs(steps, workers_with_caps):
        claim = f"`pgflowd tasks claim {flow.flow_slug} --caps {name.replace(', ', ',')}`"
        app.note(f"no living worker has {name}: add it to [worker] caps of one; people use {claim}")
    if not flow.is_watched:
        app.note("W311 its queue has no trigger, so workers poll; run `pgflowd flows deploy`")


def print_limits(app: App, flow: str, limits: Sequence[ListedLimit], now: datetime) -> None:
    """The limits of a flow as a table."""
    if not limits:
        app.print(app.out.folded(f"no step of {flow} has a limit"))
        return
    print_list(
        app,
        limits,
        "key slots taken waiting first_since holders",
        "holders first_since",
        first_since=lambda each: between(each.first_since, now),
        holders=lambda each: ", ".join(map(_short, each.holders)),
    )


def _short(task: str) -> str:
    run, _, rest = task.partition("/")
    return f"{short_id(run)}/{rest}"


def print_graph(app: App, graph: Graph, form: str) -> None:
    """A graph in one of its forms."""
    if form == "json":
        app.print_document(placed(graph))
    else:
        app.print(mermaid(graph) if form == "mermaid" else painted(graph, app.out))


def print_comparison(app: App, flow: str, place: str, found: Comparison) -> None:
    """What `flows diff` says: differences of the shape, and the three values of options."""
    if not found.exists:
        text = f"{flow} is not in the database; `pgflowd flows deploy {flow}` creates it"
        app.print(app.out.folded(text))
        return
    for text in [*found.shape, *found.stale]:
        app.print(app.out.folded(text))
    differing = [each for each in found.values if each.differs]
    if differing:
        rows = [
            [
                f"{each.step}/{each.name}" if each.step else each.name,
                *map(option_text, (each.code, each.deployed, each.database)),
                _what_next(each),
            ]
            for each in differing
        ]
        titles = ("OPTION", "CODE", "DEPLOYED", "DATABASE", "NEXT")
        app.print(app.out.table(titles, rows, losing=("NEXT", "DEPLOYED")))
    if found.shape:
        text = f"so in {place}, not in {found.current}; deploy makes it the next version"
        app.note(text)
    elif any(each.is_tuned for each in differing):
        app.note(f"`pgflowd flows deploy {flow} --take-code` takes tuned options from the code")
    elif not differing and not found.stale:
        version = f" ({found.flow_slug})" if found.flow_slug != flow else ""
        app.print(app.out.folded(f"{flow} is the same in code and database{version}"))
    if not found.shape and found.is_new_version:
        app.note(f"but starts go to {found.current}; `pgflowd flows deploy {flow}` changes that")


def _what_next(values: OptionValues) -> str:
    if not values.is_tuned:
        return "deploy takes the code's"
    if values.tuned_by and values.tuned_at:
        return f"tuned by {values.tuned_by} {values.tuned_at:%Y-%m-%d %H:%M}"
    return "tuned in the database"


def print_stats(app: App, flows: Sequence[FlowStats]) -> None:
    """Each flow with a line of its open work, and a table of its steps, if any have ended."""
    if not flows:
        app.note("there are no flows in the database; `pgflowd flows deploy` creates them")
    for number, flow in enumerate(flows):
        if number:
            app.print("")
        work = flow.work
        oldest = f", the oldest for {duration(work.oldest_ready_s)}" if work.oldest_ready_s else ""
        waits = {kind: count for kind, count in sorted(work.waits.items()) if kind != QUARANTINED}
        kinds = ", ".join(f"{count} {kind}" for kind, count in waits.items())
        words = [work.flow_slug, f"{work.ready} ready{oldest}", f"{work.running} running"]
        words += [f"{work.delayed} delayed"] if work.delayed else []
        words += [f"{sum(waits.values())} waiting: {kinds}"] if waits else []
        words += [f"{work.waits[QUARANTINED]} {QUARANTINED}"] if QUARANTINED in work.waits else []
        app.print_lines(app.out.wrapped("   ".join(words), head="", indent=3))
        rows = [replace(flow.runs, step_slug="runs")] if flow.runs else []
        if rows or flow.steps:
            print_list(
                app,
                [*rows, *flow.steps],
                "step_slug ended per_minute failure_rate ran_p50_s ran_p95_s waited_p50_s"
                " waited_p95_s",
                "waited_p50_s waited_p95_s ran_p95_s ran_p50_s per_minute",
            )
        else:
            app.print(f" nothing ended within {duration(flow.since_s)}")
