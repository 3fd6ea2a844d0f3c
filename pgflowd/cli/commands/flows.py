"""
`pgflowd flows`: list, show, draw, measure, pause and delete flows.

`cli.commands.flow_definitions` has the commands that compare flows with their code and change them.
`cli.terminal.flow_view` prints flows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypedDict

import click

from pgflowd import db
from pgflowd.cli import params
from pgflowd.cli.app import App, CommandRefused, pass_app
from pgflowd.cli.commands import flow_definitions
from pgflowd.cli.daemon_client import import_times
from pgflowd.cli.database import (
    database,
    execute,
    find_run,
    perform,
    require_flow,
    time_of,
    unknown_flow,
)
from pgflowd.cli.groups import Command, Group
from pgflowd.cli.terminal import flow_view
from pgflowd.cli.verbs import changing
from pgflowd.core.definition.shape import undoable
from pgflowd.core.documents import Inline
from pgflowd.core.documents.flows import (
    FlowGrid,
    FlowStats,
    ListedFlow,
    ListedLimit,
    Version,
    WorkerCaps,
    stats_of,
)
from pgflowd.core.documents.schedules import ListedSchedule
from pgflowd.core.graph import FlowGraph, graph_of
from pgflowd.core.run_graph import graph_of_run
from pgflowd.core.text import did_you_mean
from pgflowd.core.undo import PREFIX
from pgflowd.core.verbs import DELETE_FLOW, PAUSE_FLOW, RESUME_FLOW
from pgflowd.errors import UnknownFlow

if TYPE_CHECKING:
    import psycopg


class StepSchema(TypedDict):
    step: str
    parameters: Annotated[dict[str, Any], "the JSON Schema of what the step takes, by names"]
    output: Annotated[dict[str, Any] | None, "the JSON Schema of what it returns"]


class FlowSchema(TypedDict):
    """The JSON Schemas of a flow. Of types that are not decoded there is none."""

    flow: str
    input: Annotated[dict[str, Any] | None, "the JSON Schema of what runs take, or null"]
    steps: Annotated[list[StepSchema], "its steps"]


@click.command(cls=Command, prints=FlowSchema)
@params.flow_argument
@click.option("--step", metavar="SLUG", type=params.STEP, help="Only this step.")
@pass_app
def schema(app: App, flow: str, step: str | None) -> None:
    """Print the JSON Schema of what runs of a flow take, and of what its steps take and return.

    They are those of the types in the code; null for what has none, or only types of JSON.

    \b
    Example: pgflowd flows schema orders
             pgflowd flows schema orders --step price
    """
    code = flow_definitions.flow_in_code(flow_definitions.flows_in_code(app), flow)
    shape = code.shape or {}
    slugs = [each["slug"] for each in shape.get("steps") or []]
    if step is not None and step not in slugs:
        remedy = did_you_mean(step, slugs) or f"it has {', '.join(slugs)}"
        raise UnknownFlow(f"flow {flow} has no step '{step}'", next=remedy)
    none: dict[str, Any] = {"parameters": {}, "output": None}
    chosen = [step] if step else slugs
    steps: list[Any] = [{"step": slug, **code.schemas.get(slug, none)} for slug in chosen]
    found = FlowSchema(flow=flow, input=shape.get("inputSchema"), steps=steps)
    app.print_result(json.dumps(found, indent=2, ensure_ascii=False), found)


class AllStats(TypedDict):
    flows: Annotated[Sequence[FlowStats], "by their names"]


@click.command(cls=Command, prints=AllStats)
@click.argument("flow", metavar="[FLOW]", type=params.FLOW, required=False)
@click.option(
    "--since", type=params.duration_s, default="1h", metavar="DUR",
    help="Within this time; 1h by default.",
)  # fmt: skip
@pass_app
def stats(app: App, flow: str | None, since: float) -> None:
    """Show what flows have to do, and what they did lately, by step.

    What workers did is known to the minute for two days, and to the hour for ninety.

    \b
    Example: pgflowd flows stats
             pgflowd flows stats analyze_website --since 1d
    """
    if since <= 0:
        raise click.UsageError("--since must be longer than 0s")
    with database(app) as conn:
        works = execute(conn, db.flows.flow_work(flow))
        if flow is not None and not works:
            raise unknown_flow(conn, flow)
        steps = execute(conn, db.flows.flow_stats(flow, since))
        buckets = execute(conn, db.flows.flow_buckets(flow, since)) if app.json else {}
    found = stats_of(works, steps, since, buckets)
    app.print_result(lambda: flow_view.print_stats(app, found), AllStats(flows=found))


class ListedFlows(TypedDict):
    flows: Annotated[Sequence[ListedFlow], "by their names"]


class FlowDetails(NamedTuple):
    """A flow, and what is known of it."""

    flow: Inline[ListedFlow]
    shape: Annotated[Mapping[str, Any], "its definition, as runtimes and database compare flows"]
    caps: Annotated[Sequence[WorkerCaps], "of each living worker that has some"]
    versions: Annotated[Sequence[Version], "all its versions; empty if the shape has never changed"]
    schedules: Annotated[Sequence[ListedSchedule], "as `schedules list` prints them"]
    grid: Annotated[FlowGrid, "its newest 30 runs that have begun"]


class ChangedFlow(TypedDict):
    flow: str
    changed: Annotated[bool, "whether anything changed: false if it was so already"]


class DeletedFlow(TypedDict):
    flow: str
    deleted: Annotated[bool, "whether it was deleted"]


class FlowLimits(TypedDict):
    limits: Annotated[Sequence[ListedLimit], "those of the flow that are in use"]


@click.group(cls=Group)
def flows() -> None:
    """Show flows, compare them with the code, deploy, pause and delete them.

    \b
    Example: pgflowd flows deploy
    """


for command in flow_definitions.COMMANDS:
    flows.add_command(command)


@flows.command("list", prints=ListedFlows)
@pass_app
def list_(app: App) -> None:
    """List the flows in the database, with their queued and running tasks.

    Of a flow with versions the current one, and how many open runs older ones have; with -v all.

    \b
    Example: pgflowd flows list
    """
    with database(app) as conn:
        found, now = execute(conn, db.flows.list_flows(with_old=app.verbose)), time_of(conn)
    imports = import_times(app)
    found = [replace(flow, import_s=imports.get(flow.flow_slug)) for flow in found]
    app.print_result(lambda: flow_view.print_flows(app, found, now), ListedFlows(flows=found))


@flows.command(prints=FlowDetails)
@params.flow_argument
@pass_app
def show(app: App, flow: str) -> None:
    """Show a flow in the database: its graph and the options of its steps.

    \b
    Example: pgflowd flows show analyze_website
    """
    with database(app) as conn:
        now = time_of(conn)
        rows = execute(conn, db.flows.list_flows(with_old=True))
        named = [row for row in rows if flow in (row.name, row.flow_slug)]
        if not named:
            raise unknown_flow(conn, flow)
        row = next((row for row in named if row.name == flow), named[0])
        shape = execute(conn, db.flows.flow_shape(row.flow_slug)) or {"steps": []}
        caps = execute(conn, db.flows.worker_caps(row.flow_slug))
        versions = execute(conn, db.definitions.versions_of(flow))
        schedules = execute(conn, db.waits.list_schedules(flow))
        grid = execute(conn, db.flows.flow_grid(flow)) if app.json else None
    row = replace(row, import_s=import_times(app).get(flow))
    if grid is not None:
        app.print_document(FlowDetails(row, shape, caps, versions, schedules, grid))
    else:
        flow_view.print_flow(app, row, shape, caps, schedules, now)
        flow_view.print_versions(app, versions, now)


@flows.command(prints=FlowGraph)
@params.flow_argument
@click.option(
    "--run", "run_word", metavar="RUN", type=params.RUN, help="Show the status of its steps."
)
@click.option(
    "--format", "form", type=click.Choice(["ascii", "mermaid", "json"]), default="ascii",
    help="ascii: boxes for a terminal; mermaid: for documents; json: for programs.",
)  # fmt: skip
@pass_app
def graph(app: App, flow: str, run_word: str | None, form: str) -> None:
    """Draw the graph of a flow; with --run, the status of each step.

    A flow that is not in the database is read from the code.

    \b
    Example: pgflowd flows graph analyze_website --format mermaid
             pgflowd flows graph analyze_website --run @last
    """
    with database(app) as conn:
        if run_word is None:
            drawn = graph_of(_shape(app, conn, flow))
        else:
            details = perform(conn, db.run_details.read_details(find_run(conn, run_word)))
            if details.run.flow_slug != flow:
                raise click.UsageError(f"run {run_word} is a run of {details.run.flow_slug}")
            drawn = graph_of_run(details.run, details.steps, details.now)
    flow_view.print_graph(app, drawn, "json" if app.json else form)


for verb in (PAUSE_FLOW, RESUME_FLOW):
    flows.add_command(changing(verb, "flow", params.FLOW, unknown_flow, ChangedFlow))


@flows.command(prints=DeletedFlow)
@params.flow_argument
@click.option("--force", is_flag=True, help="Also delete active runs.")
@params.REASON_OPTION
@params.YES_OPTION
@pass_app
def delete(app: App, flow: str, force: bool, reason: str | None, yes: bool) -> None:
    """Delete a flow from the database, with its queue, its runs, their history and their undos.

    \b
    Example: pgflowd flows delete analyze_website --yes
    """
    with database(app) as conn:
        if (shape := execute(conn, db.flows.flow_shape(flow))) is None:
            raise unknown_flow(conn, flow, "see `pgflowd flows list`")
        slugs, undo_flow = [flow], f"{PREFIX}{flow}"
        if undoable(shape) and execute(conn, db.flows.flow_shape(undo_flow)) is not None:
            slugs.append(undo_flow)
        active = sum(execute(conn, db.flows.active_runs(slug)) for slug in slugs)
        if active and not force:
            runs = "1 run is" if active == 1 else f"{active} runs are"
            raise CommandRefused(f"{flow}: {runs} active; cancel them, or delete them with --force")
        app.confirm(f"Delete {flow} with all its runs and their history?", yes=yes)
        for slug in slugs:
            perform(conn, db.operations.perform(DELETE_FLOW, slug, reason=reason))
    app.print_result(f"{flow} is deleted", DeletedFlow(flow=flow, deleted=True))


@flows.command(prints=FlowLimits)
@params.flow_argument
@params.LIMIT_OPTION
@pass_app
def limits(app: App, flow: str, limit: int) -> None:
    """List the limits of a flow that are in use.

    `flows set` changes how many places one has.

    \b
    Example: pgflowd flows limits crawl
    """
    with database(app) as conn:
        require_flow(conn, flow)
        found, now = execute(conn, db.waits.list_limits(flow, limit)), time_of(conn)
    app.print_result(
        lambda: flow_view.print_limits(app, flow, found, now), FlowLimits(limits=found)
    )


flows.add_command(schema)
flows.add_command(stats)


def _shape(app: App, conn: psycopg.Connection[Any], slug: str) -> dict[str, Any]:
    """The shape of a flow in the database, else in the code."""
    shape = execute(conn, db.flows.flow_shape(execute(conn, db.definitions.current_flow(slug))))
    if shape is None and app.settings.pgflowd.flows:
        code = flow_definitions.flows_in_code(app).flow(slug)
        shape = code.shape if code is not None else None
    if shape is None:
        raise unknown_flow(conn, slug)
    return shape
