"""
Shows flows on a terminal: lists, single ones, graphs, how the code differs, and statistics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pgflowd.cli.app import App
from pgflowd.cli.terminal.run_view import painted, pause_text
from pgflowd.cli.terminal.schedule_view import schedule_lines
from pgflowd.cli.terminal.screen import DASH, TableCell
from pgflowd.core.definition.options import (
    FOLLOWING,
    NUMBERS,
    Column,
    OptionKind,
    OptionValues,
    Owner,
    option_cells,
    option_text,
    options_of,
)
from pgflowd.core.definition.shape import StepPlan, plan_of
from pgflowd.core.documents.flows import FlowStats, FlowWork, StepStats, Version, unserved_needs
from pgflowd.core.documents.waits import QUARANTINED
from pgflowd.core.graph import Graph, graph_of, mermaid, placed
from pgflowd.core.redact import one_line
from pgflowd.core.statuses import Marks
from pgflowd.core.text import ago, between, counted, cut, duration, short_id

if TYPE_CHECKING:
    from pgflowd.core.documents.flows import ListedFlow, ListedLimit, WorkerCaps
    from pgflowd.core.documents.schedules import ListedSchedule
    from pgflowd.db.flows import Comparison

_LONG = 60  # characters of a key, or of who has places
_IF_USED = {option.column for option in FOLLOWING}  # shown only where a step has one
_TITLES = (
    "FLOW", "STEPS", "QUEUED", "WAITING", "PLANNED", "OLDEST", "RUNNING", "RUNS", "WORKERS",
    "IMPORT", "LAST RUN",
)  # fmt: skip
_STATS_TITLES = ("STEP", "ENDED", "A MINUTE", "FAILED", "RAN 50%", "95%", "WAITED 50%", "95% ")


def print_flows(app: App, flows: Sequence[ListedFlow], now: datetime) -> None:
    """Flows as a table; one that has work and no worker is marked. Those that undo runs of others
    are in it if they have work."""
    flows = [flow for flow in flows if app.verbose or not flow.undoes or flow.active_runs]
    if not flows:
        app.note("there are no flows in the database; `pgflowd flows deploy` creates them")
        return
    rows = [_flow_row(app, flow, now) for flow in flows]
    zeros = _columns_of_zeros(flows)
    kept = [at for at, title in enumerate(_TITLES) if title not in zeros]
    app.print_table(
        [_TITLES[at] for at in kept],
        [[row[at] for at in kept] for row in rows],
        right=set(_TITLES) - {"FLOW", "LAST RUN"},
        losing=("STEPS", "IMPORT", "OLDEST", "LAST RUN", "RUNS", "RUNNING", "PLANNED", "WAITING"),
    )


def _columns_of_zeros(flows: Sequence[ListedFlow]) -> set[str]:
    """The columns that say nothing, since no task waits, or no run is planned."""
    most = {
        "WAITING": max(flow.waiting for flow in flows),
        "PLANNED": max(flow.planned for flow in flows),
    }
    return {title for title, number in most.items() if number == 0}


def _flow_row(app: App, flow: ListedFlow, now: datetime) -> list[str | TableCell]:
    dash = app.out.sign(DASH)
    oldest_s = between(flow.oldest_queued_at, now)
    workers: str | TableCell = str(flow.workers)
    if flow.paused_at is not None:
        workers = app.out.cell(Marks.PAUSED, " paused")
    elif flow.workers == 0 and flow.is_asleep:
        workers = app.out.cell(Marks.ASLEEP, " asleep")
    elif flow.workers == 0 and flow.active_runs > 0:
        workers = app.out.cell(Marks.WARNING, " 0")
    return [
        _flow_slug(flow) if app.verbose else f"{flow.title}{_old_versions(flow)}",
        str(flow.steps),
        str(flow.queued),
        str(flow.waiting),
        str(flow.planned),
        dash if oldest_s is None else duration(oldest_s),
        str(flow.running),
        str(flow.active_runs),
        workers,
        dash if flow.import_s is None else duration(flow.import_s),
        dash if flow.last_run_at is None else ago(flow.last_run_at, now),
    ]


def _flow_slug(flow: ListedFlow) -> str:
    """The flow of the database, and whether it is the current one of several versions."""
    return f"{flow.flow_slug} is current" if flow.old_versions else flow.flow_slug


def _old_versions(flow: ListedFlow) -> str:
    """How many older versions there are, and how many of their runs are open."""
    if not flow.old_versions:
        return ""
    runs = f", {counted(flow.old_runs, 'run')}" if flow.old_runs else ""
    return f" +{flow.old_versions} old{runs}"


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
    limits = _flow_options(shape.get("options") or {})
    is_asleep = flow.workers == 0 and flow.is_asleep
    workers = "asleep" if is_asleep else counted(flow.workers, "worker")
    waiting = f", {flow.waiting} waiting" if flow.waiting else ""
    planned = f", {counted(flow.planned, 'planned run')}" if flow.planned else ""
    state = f"{flow.queued} queued, {flow.running} running{waiting}{planned}, {workers}"
    if flow.import_s is not None:
        state += f", imported in {duration(flow.import_s)}"
    last = "no runs yet" if flow.last_run_at is None else f"last run {ago(flow.last_run_at, now)}"
    for text in (flow.title, *undoes, limits, f"{state}, {last}", *_pause(flow, now)):
        app.print(app.out.folded(app.out.shown(text)))
    app.print(painted(graph_of(shape), app.out))
    steps = plan_of(shape).steps.values()
    columns = [each for each in Column if each not in _IF_USED or _is_used(each, steps)]
    app.print_table(
        ("STEP", "TYPE", *columns),
        [_step_row(app, step, columns) for step in steps],
        right={option.column for option in NUMBERS if option.column},
        losing=("IF", "START", "DELAY", "EXHAUSTED", "TYPE"),
    )
    for line in schedule_lines(app, schedules, now):
        app.print(app.out.folded(line))
    _print_workers(app, flow, steps, workers_with_caps)


def _print_workers(
    app: App,
    flow: ListedFlow,
    steps: Iterable[StepPlan],
    workers_with_caps: Sequence[WorkerCaps],
) -> None:
    """What the living workers of a flow have, and what is missing."""
    for worker in workers_with_caps:
        app.print(app.out.folded(f"worker {worker.name} has {', '.join(worker.caps)}"))
    for name in unserved_needs(steps, workers_with_caps):
        claim = f"`pgflowd tasks claim {flow.flow_slug} --caps {name.replace(', ', ',')}`"
        app.note(f"no living worker has {name}: add it to [worker] caps of one; people use {claim}")
    if not flow.is_watched:
        app.note("W311 its queue has no trigger, so workers poll; run `pgflowd flows deploy`")


def _flow_options(options: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{each.name} {options.get(each.json_name)}{' s' * (each.kind is OptionKind.SECONDS)}"
        for each in options_of(Owner.FLOW)
        if each.json_name in options or (each.json_name and not each.is_of_runs)
    )


def _pause(flow: ListedFlow, now: datetime) -> list[str]:
    """Since when a flow is paused; nothing if it is not."""
    if flow.paused_at is None:
        return []
    return [
        one_line(f"paused {pause_text(flow.paused_at, flow.paused_by, flow.pause_reason, now)}")
    ]


def print_limits(app: App, flow: str, limits: Sequence[ListedLimit], now: datetime) -> None:
    """The limits of a flow as a table."""
    if not limits:
        app.print(app.out.folded(f"no step of {flow} has a limit"))
        return
    dash = app.out.sign(DASH)
    rows = [
        [
            app.out.shown(cut(app.hide(each.key), _LONG)),
            str(each.slots),
            str(each.taken),
            str(each.waiting),
            dash if each.first_since is None else duration(between(each.first_since, now) or 0),
            app.out.shown(cut(", ".join(map(_short, each.holders)), _LONG)) or dash,
        ]
        for each in limits
    ]
    app.print_table(
        ("KEY", "SLOTS", "TAKEN", "WAITING", "FIRST WAITS", "TAKEN BY"),
        rows,
        right={"SLOTS", "TAKEN", "WAITING", "FIRST WAITS"},
        losing=("TAKEN BY", "FIRST WAITS"),
        cutting=True,
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


def _is_used(column: Column, steps: Iterable[StepPlan]) -> bool:
    return any(option_cells(step.options)[column] for step in steps)


def _step_row(app: App, step: StepPlan, columns: Sequence[Column]) -> list[str]:
    dashed = {option.column for option in NUMBERS}
    return [
        step.slug,
        "map" if step.is_map else "single",
        *(
            app.out.sign(DASH) if not text and column in dashed else text
            for column, text in option_cells(step.options).items()
            if column in columns
        ),
    ]


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
                option_text(each.code),
                option_text(each.deployed),
                option_text(each.database),
                _what_next(each),
            ]
            for each in differing
        ]
        titles = ("OPTION", "CODE", "DEPLOYED", "DATABASE", "NEXT")
        app.print_table(titles, rows, losing=("NEXT", "DEPLOYED"))
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
        words = [flow.work.flow_slug, *_open_work(flow.work)]
        for line in app.out.wrapped("   ".join(words), head="", indent=3):
            app.print(line)
        rows = [_stats_row(app, "runs", flow.runs)] if flow.runs else []
        rows += [_stats_row(app, each.step_slug, each) for each in flow.steps]
        if rows:
            app.print_table(
                _STATS_TITLES,
                rows,
                right=set(_STATS_TITLES) - {"STEP"},
                losing=("WAITED 50%", "95% ", "95%", "RAN 50%", "A MINUTE"),
            )
        else:
            app.print(f" nothing ended within {duration(flow.since_s)}")


def _open_work(work: FlowWork) -> list[str]:
    """The open work, as far as there is some."""
    oldest = f", the oldest for {duration(work.oldest_ready_s)}" if work.oldest_ready_s else ""
    waits = {kind: count for kind, count in sorted(work.waits.items()) if kind != QUARANTINED}
    kinds = ", ".join(f"{count} {kind}" for kind, count in waits.items())
    words = [f"{work.ready} ready{oldest}", f"{work.running} running"]
    words += [f"{work.delayed} delayed"] if work.delayed else []
    words += [f"{sum(waits.values())} waiting: {kinds}"] if waits else []
    words += [f"{work.waits[QUARANTINED]} {QUARANTINED}"] if QUARANTINED in work.waits else []
    return words


def _stats_row(app: App, name: str, one: StepStats) -> list[str | TableCell]:
    dash = app.out.sign(DASH)
    times = (one.ran_p50_s, one.ran_p95_s, one.waited_p50_s, one.waited_p95_s)
    return [
        name,
        str(one.ended),
        f"{one.per_minute:.3g}",
        dash if one.failure_rate is None else f"{one.failure_rate:.1%}",
        *[dash if seconds is None else duration(seconds) for seconds in times],
    ]
