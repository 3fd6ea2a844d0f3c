"""
`pgflowd check`: prints every problem of config, flows and database at once.

It changes nothing. The problems are its result, so they go to standard output.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.exits import ExitCode
from pgflowd.cli.groups import Command
from pgflowd.cli.problems import problem_columns, problem_json
from pgflowd.core.definition.shape import OPTIONS_NEXT
from pgflowd.errors import PgflowdError, Problem

if TYPE_CHECKING:
    import psycopg

    from pgflowd.core.settings.sections import Settings
    from pgflowd.processes.supervisor.discover import Discovered, DiscoveredFlow

SCHEMA_VERSION = 1
PLACE = "database"
UNREADABLE = {"E101", "E107", "E109"}  # with these the database's URL is not known


@dataclass
class Findings:
    """The results of a check."""

    problems: list[Problem] = field(default_factory=list)
    flows: list[dict[str, Any]] = field(default_factory=list)
    connections: dict[str, int | None] | None = None

    def is_fine(self, strict: bool) -> bool:
        return not any(strict or not problem.is_warning for problem in self.problems)


@click.command(cls=Command)
@click.option("--offline", is_flag=True, help="Do not connect to the database.")
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@pass_app
def check(app: App, offline: bool, strict: bool) -> None:
    """Check config, flows and database, and print all problems at once.

    The exit code is 1 if there are errors.

    \b
    Example: pgflowd check --strict
    """
    found = Findings(app.check_settings())
    knows_database = not any(problem.code in UNREADABLE for problem in found.problems)
    discovered = _flows(app.settings, found)
    _connections(app.settings, discovered, found)
    if knows_database and not offline:
        _database(app, discovered, found)
    fine = found.is_fine(strict)
    if app.json:
        app.print_json(_as_json(app, found, fine))
    else:
        _print(app, found)
    if not fine:
        app.exit(ExitCode.NO)


def _flows(settings: Settings, found: Findings) -> Discovered:
    from pgflowd.core.settings.rules import unserved
    from pgflowd.processes.supervisor.discover import discover

    discovered = discover(settings)
    found.problems += discovered.problems
    if not any(problem.code in ("E210", "E211", "E212") for problem in discovered.problems):
        found.problems += unserved(settings, discovered.slugs)
    found.flows += [
        {"flow": flow.slug, "entry": flow.entry, "place": flow.place, "database": None}
        for flow in discovered.flows
    ]
    return discovered


def _connections(settings: Settings, discovered: Discovered, found: Findings) -> None:
    """A worker has two connections, listener and sweeper one each; handlers may open more."""
    served = [slug for slug in discovered.slugs if settings.is_enabled(slug)]
    runners = sum(settings.worker_for(slug).max_concurrency for slug in served)
    found.connections = {"daemon": 2 * len(served) + 2, "handlers": runners, "server": None}


def _database(app: App, discovered: Discovered, found: Findings) -> None:
    from pgflowd.cli.connect import database
    from pgflowd.db import schema
    from pgflowd.db.flows import list_flows
    from pgflowd.db.query import execute

    try:
        with database(app, any_schema=True) as conn:
            if found.connections is not None:
                found.connections["server"] = _most_connections(conn)
            problem = schema.status(conn).problem
            if problem is not None:
                found.problems.append(_in_database(problem))
                return
            for flow, entry in zip(discovered.flows, found.flows, strict=True):
                if flow.shape is not None:
                    found.problems += _compared(app, conn, flow, entry)
            for row in execute(conn, list_flows()):
                if discovered.flow(row.flow_slug) is not None and not row.is_watched:
                    found.problems.append(_unwatched(row.flow_slug))
    except PgflowdError as error:
        found.problems += [_in_database(problem) for problem in error.problems]


def _compared(
    app: App, conn: psycopg.Connection[Any], flow: DiscoveredFlow, entry: dict[str, Any]
) -> Iterator[Problem]:
    """Problems where a flow in the database differs from the code."""
    from pgflowd.db.flows import compare

    slug, mode = flow.slug, app.settings.pgflowd.definitions
    compared = compare(conn, slug, flow.shape or {})
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
    for text in compared.options:
        yield Problem("W310", f"{slug}: {text}", PLACE, OPTIONS_NEXT)


def _unwatched(slug: str) -> Problem:
    text = f"{slug}: its queue has no notification trigger, so its worker polls"
    return Problem("W311", text, PLACE, f"run `pgflowd flows deploy {slug}`")


def _most_connections(conn: psycopg.Connection[Any]) -> int:
    row = conn.execute(
        "select current_setting('max_connections')::int"
        " - current_setting('superuser_reserved_connections')::int"
    ).fetchone()
    assert row is not None
    return int(row[0])


def _in_database(problem: Problem) -> Problem:
    return Problem(problem.code, problem.text, problem.place or PLACE, problem.next)


def _print(app: App, found: Findings) -> None:
    for line in problem_columns(app, found.problems, app.out):
        app.print(line)
    if found.connections is None:
        return
    daemon, handlers, server = (found.connections[key] for key in ("daemon", "handlers", "server"))
    allowed = "" if server is None else f"; the server allows {server}"
    flows = "1 flow" if len(found.flows) == 1 else f"{len(found.flows)} flows"
    app.note(f"{flows}; {daemon} connections, up to {handlers} more in handlers{allowed}")
    if not found.problems:
        app.print("no problems found")


def _as_json(app: App, found: Findings, fine: bool) -> dict[str, Any]:
    problems = [problem_json(problem, app) for problem in found.problems]
    return {
        "schema_version": SCHEMA_VERSION,
        "ok": fine,
        "problems": problems,
        "flows": found.flows,
        "connections": found.connections,
    }
