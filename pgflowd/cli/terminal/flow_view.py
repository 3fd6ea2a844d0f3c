"""Shows lists of flows, single flows and their graphs on a terminal."""

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
    Owner,
    option_cells,
    options_of,
)
from pgflowd.core.definition.plan import StepPlan, plan_of
from pgflowd.core.documents.flows import unserved_needs
from pgflowd.core.graph import Graph, graph_of, mermaid
from pgflowd.core.redact import one_line
from pgflowd.core.statuses import Marks
from pgflowd.core.text import ago, between, counted, cut, duration, short_id

if TYPE_CHECKING:
    from pgflowd.core.documents.flows import ListedFlow, ListedLimit, WorkerCaps
    from pgflowd.core.documents.schedules import ListedSchedule
    from pgflowd.db.versions import Version


_LONG = 60  # characters of a key, or of who has places
_IF_USED = {option.column for option in FOLLOWING}  # shown only where a step has one
_TITLES = (
    "FLOW", "STEPS", "QUEUED", "WAITING", "PLANNED", "OLDEST", "RUNNING", "RUNS", "WORKERS",
    "IMPORT", "LAST RUN",
)  # fmt: skip


def print_flows(
    app: App, flows: Sequence[ListedFlow], imports: Mapping[str, float | None], now: datetime
) -> None:
    """Flows as a table; one that has work and no worker is marked. Those that undo runs of others
    are in it if they have work."""
    flows = [flow for flow in flows if app.verbose or not flow.undoes or flow.active_runs]
    if not flows:
        app.note("there are no flows in the database; `pgflowd flows deploy` creates them")
        return
    rows = [_flow_row(app, flow, imports.get(flow.flow_slug), now) for flow in flows]
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


def _flow_row(
    app: App, flow: ListedFlow, import_s: float | None, now: datetime
) -> list[str | TableCell]:
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
        dash if import_s is None else duration(import_s),
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
    import_s: float | None,
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
    if import_s is not None:
        state += f", imported in {duration(import_s)}"
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
        app.print_json(graph.to_json())
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
