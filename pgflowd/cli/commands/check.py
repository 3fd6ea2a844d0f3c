"""
`pgflowd check`: prints every problem of config, flows and database at once.

It changes nothing. The problems are its result, so they go to standard output.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

import click

from pgflowd import db
from pgflowd.cli.app import App, pass_app
from pgflowd.cli.database import database, execute
from pgflowd.cli.groups import Command
from pgflowd.cli.problems import ShownProblem, point_to_pages, problem_columns, problem_json
from pgflowd.core import server_connections
from pgflowd.core.definition.shape import undoable
from pgflowd.core.exit_codes import ExitCode
from pgflowd.core.settings.load import unserved
from pgflowd.core.text import counted
from pgflowd.core.ticks import in_words
from pgflowd.errors import ConfigError, PgflowdError, Problem

if TYPE_CHECKING:
    import psycopg

    from pgflowd.processes.supervisor.discover import Discovered, DiscoveredFlow

PLACE = "database"
UNREADABLE = {"E101", "E107", "E109"}  # with these the URL of the database is unknown
INCOMPLETE = {"E210", "E211", "E212"}  # with these some flows of the code are unknown


class CheckedSchedule(TypedDict):
    name: str
    when: Annotated[str, "its expression in words"]


class CheckedFlow(TypedDict):
    """A flow of the code, and how the one of the database differs from it."""

    flow: str
    entry: Annotated[str, "the entry of `[pgflowd] flows` that has it"]
    place: str | None
    database: Annotated[Literal["same", "differs", "missing"] | None, "null if it was not asked"]
    undo: Annotated[list[str], "the steps that have an undo handler"]
    undoes: str | None
    schedules: Annotated[list[CheckedSchedule], "those of its code"]


class CheckedConnections(TypedDict):
    daemon: Annotated[int, "how many the daemon opens at most"]
    handlers: Annotated[int, "how many handlers open at most by `ctx.conn()`"]
    others: Annotated[int | None, "how many others have now"]
    server: Annotated[int | None, "how many the server allows"]


class Checked(TypedDict):
    """What a check has found."""

    ok: Annotated[bool, "whether there is no error"]
    problems: list[ShownProblem]
    flows: Annotated[list[CheckedFlow], "those of the config"]
    connections: Annotated[CheckedConnections, "how many there may be"]


@click.command(cls=Command, prints=Checked)
@click.option("--offline", is_flag=True, help="Do not connect to the database.")
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@pass_app
def check(app: App, offline: bool, strict: bool) -> None:
    """Check config, flows and database, and print all problems at once.

    The exit code is 1 if there are errors.

    \b
    Example: pgflowd check --strict
    """
    from pgflowd.processes.supervisor.discover import discover

    problems = app.check_settings()
    if missing := [problem for problem in problems if problem.code == "E101"]:
        raise ConfigError(missing)  # nothing of what follows would be about this config
    settings = app.settings
    knows_database = not any(problem.code in UNREADABLE for problem in problems)
    discovered = discover(settings)
    problems += discovered.problems
    if not any(problem.code in INCOMPLETE for problem in discovered.problems):
        problems += unserved(settings, discovered.slugs)
    flows = [
        CheckedFlow(
            flow=flow.slug, entry=flow.entry, place=flow.place, database=None,
            undo=undoable(flow.shape or {}), undoes=flow.undoes,
            schedules=[
                CheckedSchedule(name=each["name"], when=in_words(each["cron"], each["timezone"]))
                for each in _schedules(flow)
            ],
        )
        for flow in discovered.flows
    ]  # fmt: skip
    served = [flow for flow in discovered.flows if settings.is_enabled(flow.slug)]
    opening = [settings.worker_for(flow.slug) for flow in served if flow.opens_connections]
    handlers = sum(worker.max_concurrency for worker in opening)
    limit, exports = settings.database.max_connections, settings.telemetry.is_on
    most = server_connections.most_of_daemon(len(served), limit, exports=exports)
    connections = CheckedConnections(daemon=most, handlers=handlers, others=None, server=None)
    if knows_database and not offline:
        problems += _in_database(app, discovered, flows, connections)
    found, ignored = problems, settings.check.ignore
    problems = [problem for problem in found if problem.code not in ignored]
    is_fine = not any(strict or not problem.is_warning for problem in problems)
    told = [problem_json(app, problem) for problem in problems]
    document = Checked(ok=is_fine, problems=told, flows=flows, connections=connections)
    app.print_result(lambda: _print(app, problems, flows, connections), document)
    if left := len(found) - len(problems):
        app.note(f"{counted(left, 'warning')} left out, as ignore in [check] says")
    if not is_fine:
        app.exit(ExitCode.NO)


def _in_database(
    app: App, discovered: Discovered, flows: Sequence[CheckedFlow], connections: CheckedConnections
) -> Iterator[Problem]:
    """Problems of the database; also fills in `flows` and `connections`."""
    from pgflowd.db.query import fetch_value

    try:
        with database(app, any_schema=True) as conn:
            server = execute(conn, db.daemons.server_connections(is_ours=False))
            name, setting = app.settings.pgflowd.name, app.settings.database.max_connections
            held, daemon = server.held_by_daemon(name), connections["daemon"]
            if not setting:
                daemon = min(daemon, server_connections.automatic_budget(server.left + held))
            others = server.allowed - server.left - held
            connections |= {"daemon": daemon, "others": others, "server": server.allowed}
            handlers = connections["handlers"]
            if problem := server_connections.shortage(
                server, daemon=daemon, held=held, handlers=handlers
            ):
                yield problem
            problem = db.schema.status(conn).problem
            if problem is not None:
                yield replace(problem, place=problem.place or PLACE)
                return
            for flow, entry in zip(discovered.flows, flows, strict=True):
                if flow.shape is not None:
                    yield from _compared(app, conn, flow, entry)
            for row in execute(conn, db.flows.list_flows()):
                if discovered.flow(row.flow_slug) is not None and not row.is_watched:
                    slug = row.flow_slug
                    text = f"{slug}: its queue has no notification trigger, so its worker polls"
                    yield Problem("W311", text, PLACE, f"run `pgflowd flows deploy {slug}`")
            workers = execute(conn, db.flows.living_workers())
            for flow in discovered.flows:
                yield from _of_other_runtimes(app, flow, workers)
            yield from _of_schedules(conn, discovered)
            history = "select pgflowd.setting('history') #>> '{}'"
            if app.settings.telemetry.is_on and fetch_value(conn, history) == "off":
                text = "[telemetry] traces is on, and history is off: there are no spans of tasks"
                yield Problem("W333", text, PLACE, "run `pgflowd db set history failures`")
    except PgflowdError as error:
        yield from (replace(problem, place=problem.place or PLACE) for problem in error.problems)


def _compared(
    app: App, conn: psycopg.Connection[Any], flow: DiscoveredFlow, entry: CheckedFlow
) -> Iterator[Problem]:
    """Problems where a flow in the database differs from the code."""
    slug, mode = flow.slug, app.settings.pgflowd.definitions
    compared = db.flows.compare(conn, slug, flow.shape or {})
    yield from db.definitions.unserved_versions(conn, flow.code)
    yield from db.definitions.runs_of_first_version(conn, slug)
    if not compared.exists:
        entry["database"] = "missing"
        if mode == "verify":
            text = f"{slug}: the flow is not in the database, and definitions is 'verify'"
            yield Problem("E308", text, PLACE, f"run `pgflowd flows deploy {slug}`")
        return
    entry["database"] = "differs" if compared.shape else "same"
    if compared.shape:
        more = f" and {len(compared.shape) - 3} more" if len(compared.shape) > 3 else ""
        text = f"{slug}: {'; '.join(compared.shape[:3])}{more}"
        yield Problem("E306", text, PLACE, f"see `pgflowd flows diff {slug}`")
    for text in compared.stale:
        yield Problem("W310", f"{slug}: {text}", PLACE, f"run `pgflowd flows deploy {slug}`")
    for each in compared.values:
        if each.differs:
            yield Problem("W310", f"{slug}: {each.text}", PLACE, each.remedy(slug))


def _schedules(flow: DiscoveredFlow) -> list[dict[str, Any]]:
    return (flow.shape or {}).get("schedules") or []


def _of_schedules(conn: psycopg.Connection[Any], discovered: Discovered) -> Iterator[Problem]:
    """Schedules of the code whose names are taken, and those whose flows no code has."""
    for flow in discovered.flows:
        if names := [each["name"] for each in _schedules(flow)]:
            yield from execute(conn, db.waits.taken_names(flow.slug, names))
    if any(problem.code in INCOMPLETE for problem in discovered.problems):
        return
    for each in execute(conn, db.waits.list_schedules()):
        if each.origin == "code" and each.flow_slug not in discovered.slugs:
            text = f"schedule {each.name} starts runs of {each.flow_slug}, which is not in the code"
            remedy = f"`pgflowd schedules remove {each.name}`, unless another daemon serves it"
            yield Problem("W319", text, PLACE, remedy)


def _of_other_runtimes(
    app: App, flow: DiscoveredFlow, workers: Sequence[tuple[str, str]]
) -> Iterator[Problem]:
    """A warning if others beside pgflowd serve a flow that they cannot serve as we do. Names show
    whose they are."""
    slug, given = flow.slug, app.settings.worker_for(flow.slug).worker_name
    others = [
        name
        for queue, name in workers
        if (flow.waits or flow.has_gates or flow.has_undo)
        and queue == flow.served.queue
        and name != given
        if not name.endswith(f":{slug}")
    ]
    if not others:
        return
    who = f"worker {others[0]} of another runtime"
    if flow.has_gates:
        text = f"{slug}: {who} serves it, and gets no task of a step with needs or a limit"
        remedy = "stop that worker, or leave needs= and limit= out"
    elif flow.has_undo:
        text = f"{slug}: its runs are undone, but {who} serves it"
        remedy = "stop that worker: it may go on with a run that is being undone"
    else:
        text = f"{slug}: its handlers wait, but {who} serves it"
        remedy = "stop that worker: it cannot wait, and knows no checkpoint"
    yield Problem("W318", text, PLACE, remedy)


def _print(
    app: App,
    problems: Sequence[Problem],
    flows: Sequence[CheckedFlow],
    connections: CheckedConnections,
) -> None:
    for each in chain.from_iterable(flow["schedules"] for flow in flows):
        app.print(app.out.folded(f"schedule {each['name']}: {each['when']}"))
    app.print_lines(problem_columns(app, problems, app.out))
    daemon, handlers, others, server = connections.values()
    allowed = "" if server is None else f"; others have {others}, the server allows {server}"
    undos = sum(flow["undoes"] is not None for flow in flows)
    told = counted(len(flows) - undos, "flow") + (f", {undos} with undo" if undos else "")
    app.note(f"{told}; up to {daemon} connections, {handlers} more in handlers{allowed}")
    point_to_pages(app, problems)
    if not problems:
        app.print("no problems found")
