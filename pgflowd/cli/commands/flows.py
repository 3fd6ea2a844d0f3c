"""
`pgflowd flows`: list, show, draw, compare, deploy, pause and delete flows.

Child processes import the flows' code, this process never does. `cli.terminal.flow_view`
prints flows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.commands.flow_stats import stats
from pgflowd.cli.connect import database
from pgflowd.cli.daemon_client import import_times
from pgflowd.cli.exits import CommandRefused, ExitCode
from pgflowd.cli.groups import Group
from pgflowd.cli.lookup import find_run, flow_slugs, unknown_flow
from pgflowd.cli.params import FLOW, LIMIT_OPTION, REASON_OPTION, RUN, SLOTS
from pgflowd.cli.problems import for_each
from pgflowd.cli.run_details import read_details
from pgflowd.cli.terminal.flow_view import print_flow, print_flows, print_graph, print_limits
from pgflowd.cli.terminal.run_view import graph_of_run
from pgflowd.core.settings.rules import missing_flows
from pgflowd.core.suggest import did_you_mean
from pgflowd.errors import ConfigError, FlowError, NotFound, Problem, UnknownFlow

if TYPE_CHECKING:
    import psycopg

    from pgflowd.db.operations import Operation
    from pgflowd.processes.supervisor.discover import Discovered, DiscoveredFlow

flow_argument = click.argument("flow", metavar="FLOW", type=FLOW)


@click.group(cls=Group)
def flows() -> None:
    """Show flows, compare them with the code, deploy, pause and delete them.

    \b
    Example: pgflowd flows deploy
    """


@flows.command("list")
@pass_app
def list_(app: App) -> None:
    """List the flows in the database, with their queued and running tasks.

    \b
    Example: pgflowd flows list
    """
    from pgflowd.db.flows import list_flows
    from pgflowd.db.query import database_time, execute

    with database(app) as conn:
        found, now = execute(conn, list_flows()), execute(conn, database_time())
    imports = import_times(app)
    if app.json:
        app.print_document(flows=[flow.to_json(imports.get(flow.flow_slug)) for flow in found])
    else:
        print_flows(app, found, imports, now)


@flows.command()
@flow_argument
@pass_app
def show(app: App, flow: str) -> None:
    """Show a flow in the database: its graph and the options of its steps.

    \b
    Example: pgflowd flows show analyze_website
    """
    from pgflowd.db.flows import flow_shape, list_flows, worker_caps
    from pgflowd.db.query import database_time, execute
    from pgflowd.db.schedules import list_schedules

    with database(app) as conn:
        rows, now = execute(conn, list_flows()), execute(conn, database_time())
        row = next((row for row in rows if row.flow_slug == flow), None)
        if row is None:
            raise unknown_flow(flow, [row.flow_slug for row in rows])
        shape = execute(conn, flow_shape(flow)) or {"steps": []}
        caps = execute(conn, worker_caps(flow))
        schedules = execute(conn, list_schedules(flow))
    import_s = import_times(app).get(flow)
    if app.json:
        listed = [worker.to_json() for worker in caps]
        app.print_document(
            **row.to_json(import_s), shape=shape, caps=listed,
            schedules=[each.to_json() for each in schedules],
        )  # fmt: skip
    else:
        print_flow(app, row, shape, import_s, caps, schedules, now)


@flows.command()
@flow_argument
@click.option("--run", "run_word", metavar="RUN", type=RUN, help="Show the status of its steps.")
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
    from pgflowd.core.graph import graph_of

    with database(app) as conn:
        if run_word is None:
            drawn = graph_of(_shape(app, conn, flow))
        else:
            details = read_details(conn, find_run(conn, run_word))
            if details.run.flow_slug != flow:
                raise click.UsageError(f"run {run_word} is a run of {details.run.flow_slug}")
            drawn = graph_of_run(details.run, details.steps, details.now)
    print_graph(app, drawn, "json" if app.json else form)


@flows.command()
@flow_argument
@pass_app
def diff(app: App, flow: str) -> None:
    """Compare a flow in the code with the one in the database.

    The exit code is 1 if their shapes differ. Options may differ: those in the database apply,
    and the exit code is 0.

    \b
    Example: pgflowd flows diff analyze_website
    """
    from pgflowd.db.flows import compare

    code = _in_code(_discover(app), flow)
    with database(app) as conn:
        found = compare(conn, flow, code.shape or {})
    is_same = found.exists and not found.shape
    if app.json:
        app.print_document(
            flow=flow, place=code.place, exists=found.exists, same=is_same,
            differences=found.shape, options=found.options,
        )  # fmt: skip
    elif not found.exists:
        text = f"{flow} is not in the database; `pgflowd flows deploy {flow}` creates it"
        app.print(app.out.folded(text))
    else:
        for text in [*found.shape, *found.options]:
            app.print(app.out.folded(text))
        if is_same and not found.options:
            app.print(app.out.folded(f"{flow} is the same in code and database"))
        if found.shape:
            app.note(f"so in {code.place}, not in the database; a new shape needs a new slug")
    if not is_same:
        app.exit(ExitCode.NO)


@flows.command()
@click.argument("flow", metavar="[FLOW]...", type=FLOW, nargs=-1)
@click.option("--sql", "as_sql", is_flag=True, help="Print the SQL instead of executing it.")
@pass_app
def deploy(app: App, flow: Sequence[str], as_sql: bool) -> None:
    """Create flows in the database: definition, queue and trigger. By default all flows.

    A flow that exists stays unchanged; a flow with another shape is refused. If the role
    pgflow_owner owns the schema, the command acts as this role.

    \b
    Example: pgflowd flows deploy
             pgflowd flows deploy analyze_website --sql | psql -1 mydb
    """
    from pgflowd.db import flows

    discovered = _discover(app)
    chosen = [_in_code(discovered, slug) for slug in dict.fromkeys(flow)]
    if not chosen:
        _raise_errors(discovered.problems)
        chosen = discovered.flows
    chosen = discovered.with_undo_flows(chosen)
    if as_sql:
        texts = {one.slug: flows.script(one.slug, one.shape or {}, one.place) for one in chosen}
        app.print_result("\n\n".join(texts.values()), sql=texts)
        return
    width = max((len(one.slug) for one in chosen), default=0)
    with database(app) as conn:

        def create(one: DiscoveredFlow) -> tuple[str, dict[str, str]]:
            result = "created" if flows.deploy(conn, one.slug, one.shape or {}) else "unchanged"
            return f"{one.slug:<{width}}  {result}", {"flow": one.slug, "result": result}

        for_each(app, "flows", chosen, create)


@flows.command()
@flow_argument
@click.option("--reason", metavar="TEXT", help="Why; `flows show` prints it.")
@pass_app
def pause(app: App, flow: str, reason: str | None) -> None:
    """Pause a flow: none of its tasks begins, on any daemon. Its runs may be started.

    Running tasks end normally; timers go on.

    \b
    Example: pgflowd flows pause send_email --reason "the mail server is down"
    """
    from pgflowd.db import operations

    _change(app, flow, operations.pause_flow(flow, reason, None), "paused", "is paused already")


@flows.command()
@flow_argument
@REASON_OPTION
@pass_app
def resume(app: App, flow: str, reason: str | None) -> None:
    """Let a paused flow go on.

    \b
    Example: pgflowd flows resume send_email
    """
    from pgflowd.db import operations

    _change(app, flow, operations.resume_flow(flow, reason, None), "resumed", "is not paused")


def _change(app: App, flow: str, operation: Operation[bool], done: str, is_so: str) -> None:
    """Perform an operation on a flow, and print what became of it."""
    from pgflowd.db import operations

    with database(app) as conn:
        try:
            was_changed = operations.run_sync(conn, operation)
        except NotFound as error:
            raise unknown_flow(flow, flow_slugs(conn)) from error
    app.print_result(
        f"flow {flow} {done if was_changed else is_so}", flow=flow, changed=was_changed
    )


@flows.command()
@flow_argument
@click.option("--force", is_flag=True, help="Also delete active runs.")
@REASON_OPTION
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_app
def delete(app: App, flow: str, force: bool, reason: str | None, yes: bool) -> None:
    """Delete a flow from the database, with its queue, its runs, their history and their undos.

    \b
    Example: pgflowd flows delete analyze_website --yes
    """
    from pgflowd.core.definition.shape import undoable
    from pgflowd.core.undo import PREFIX
    from pgflowd.db import flows
    from pgflowd.db.query import execute

    with database(app) as conn:
        if (shape := execute(conn, flows.flow_shape(flow))) is None:
            raise unknown_flow(flow, flow_slugs(conn), "see `pgflowd flows list`")
        slugs, undo_flow = [flow], f"{PREFIX}{flow}"
        if undoable(shape) and execute(conn, flows.flow_shape(undo_flow)) is not None:
            slugs.append(undo_flow)
        active = sum(execute(conn, flows.active_runs(slug)) for slug in slugs)
        if active and not force:
            runs = "1 run is" if active == 1 else f"{active} runs are"
            raise CommandRefused(f"{flow}: {runs} active; cancel them, or delete them with --force")
        app.confirm(f"Delete {flow} with all its runs and their history?", yes=yes)
        for slug in slugs:
            flows.delete(conn, slug, reason)
    app.print_result(f"{flow} is deleted", flow=flow, deleted=True)


@flows.command()
@flow_argument
@click.option(
    "--set", "given", type=SLOTS, metavar="STEP=N", multiple=True,
    help="Let N tasks of a step be at work at once; may be repeated.",
)  # fmt: skip
@LIMIT_OPTION
@pass_app
def limits(app: App, flow: str, given: Sequence[tuple[str, int]], limit: int) -> None:
    """List the limits of a flow that are in use, or change how many places they have.

    A change counts from the next claim, and the code does not undo it.

    \b
    Example: pgflowd flows limits crawl
             pgflowd flows limits crawl --set fetch=4
    """
    from pgflowd.db.limits import list_limits, set_limit
    from pgflowd.db.query import database_time, execute

    with database(app) as conn:
        if flow not in (known := flow_slugs(conn)):
            raise unknown_flow(flow, known)
        for step, slots in given:
            execute(conn, set_limit(flow, step, slots))
        found, now = execute(conn, list_limits(flow, limit)), execute(conn, database_time())
    if app.json:
        app.print_document(limits=[each.to_json() for each in found])
    else:
        print_limits(app, flow, found, now)


def _discover(app: App) -> Discovered:
    """The flows in the code. E111 if the config names no modules."""
    from pgflowd.processes.supervisor.discover import discover

    settings = app.settings
    if problems := missing_flows(settings, settings.file or "pgflowd.toml"):
        raise ConfigError(problems)
    return discover(settings)


def _in_code(discovered: Discovered, slug: str) -> DiscoveredFlow:
    """The valid flow with this slug; else raise every problem that keeps it from loading."""
    found = discovered.flow(slug)
    if found is not None and found.shape is not None:
        return found
    _raise_errors(discovered.problems if found is None else found.problems)
    remedy = did_you_mean(slug, discovered.slugs) or "see [pgflowd] flows in the config"
    raise UnknownFlow(f"there is no flow '{slug}' in the configured modules", next=remedy)


def _raise_errors(problems: Iterable[Problem]) -> None:
    if errors := [problem for problem in problems if not problem.is_warning]:
        raise FlowError(errors)


flows.add_command(stats)


def _shape(app: App, conn: psycopg.Connection[Any], slug: str) -> dict[str, Any]:
    """The shape of a flow in the database, else in the code."""
    from pgflowd.db.flows import flow_shape
    from pgflowd.db.query import execute

    shape = execute(conn, flow_shape(slug))
    if shape is not None:
        return shape
    if app.settings.pgflowd.flows:
        code = _discover(app).flow(slug)
        if code is not None and code.shape is not None:
            return code.shape
    raise unknown_flow(slug, flow_slugs(conn))
