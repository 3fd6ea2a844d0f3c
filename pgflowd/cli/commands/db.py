"""
Db: `pgflowd db` brings a database to the schema we need, prints the SQL of it, and verifies.

The work is done by `pgflowd.db.schema`; here is what is asked and what is shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.exits import ExitCode
from pgflowd.cli.groups import Group
from pgflowd.cli.params import NumberParam

if TYPE_CHECKING:
    from pgflowd.db.schema import Migrated, Status


@click.group(cls=Group)
def db() -> None:
    """Install, upgrade and verify the schema.

    \b
    Example: pgflowd db migrate --dry-run
    """


@db.command()
@pass_app
def status(app: App) -> None:
    """Print how far the database is; exits with 1 if we cannot work with it.

    \b
    Example: pgflowd db status --json
    """
    from pgflowd.cli.connect import opened
    from pgflowd.cli.problems import complain
    from pgflowd.db import schema

    with opened(app) as conn:
        found = schema.status(conn)
    if app.json:
        app.print_json(_status_json(found))
    else:
        for name, value in _status_lines(found):
            app.print(f"{name:<10}{value}")
    if found.problem:
        if not app.json:
            complain(app, [found.problem])
        app.exit(ExitCode.NO)


@db.command()
@click.option("--to", type=NumberParam(min=1), metavar="N", help="Stop at this version.")
@click.option("--dry-run", is_flag=True, help="Try it in the database, then roll back.")
@pass_app
def migrate(app: App, to: int | None, dry_run: bool) -> None:
    """Bring the database to the newest schema, in one transaction.

    \b
    Example: pgflowd db migrate --dry-run
    """
    from pgflowd.cli.connect import opened
    from pgflowd.db import schema

    with opened(app) as conn:
        conn.add_notice_handler(lambda notice: app.note(f"note: {notice.message_primary}"))
        done = schema.migrate(conn, to, dry_run)
    if app.json:
        app.print_json({"schema_version": 1, **_migrated_json(done)})
        return
    for line in _migrated_lines(done):
        app.print(line)


@db.command()
@click.argument("what", type=click.Choice(["roles"]), required=False)
@click.option(
    "--from", "from_", type=NumberParam(min=0), metavar="N", help="What follows version N."
)
@pass_app
def sql(app: App, what: str | None, from_: int | None) -> None:
    """Print the schema as SQL for another migration program, or the roles.

    Run it in one transaction. Without --from it makes everything in an empty database; `roles`
    prints the least that owner, worker, starter and viewer need.

    \b
    Example: pgflowd db sql | psql -1 -v ON_ERROR_STOP=1 mydb
             pgflowd db sql roles | psql -1 -v ON_ERROR_STOP=1 mydb
    """
    from pgflowd.db import schema

    if what and from_ is not None:
        raise click.UsageError("--from does not go with roles")
    text = schema.roles_sql() if what else schema.sql(from_)
    if app.json:
        app.print_json({"schema_version": 1, "sql": text})
    else:
        app.print(text.rstrip("\n"))


@db.command()
@pass_app
def verify(app: App) -> None:
    """Name the objects that changed since the last migrate; exits with 1 if there are any.

    \b
    Example: pgflowd db verify
    """
    from pgflowd.cli.connect import opened
    from pgflowd.cli.problems import as_json, complain
    from pgflowd.db import schema

    with opened(app) as conn:
        problems = schema.verify(conn)
    if app.json:
        app.print_json({"schema_version": 1, "problems": [as_json(one) for one in problems]})
    elif problems:
        complain(app, problems)
    else:
        app.print("the database is as the last migrate left it")
    if problems:
        app.exit(ExitCode.NO)


def _status_json(found: Status) -> dict[str, Any]:
    from pgflowd.cli.problems import as_json

    record = found.state.record
    return {
        "schema_version": 1,
        "server": found.state.server,
        "pgmq": found.state.pgmq,
        "core": found.state.core,
        "version": found.state.version,
        "needed": found.needed,
        "release": record.release,
        "applied_at": record.applied_at,
        "applied_by": record.applied_by,
        "functions_differ": found.functions_differ,
        "problem": as_json(found.problem) if found.problem else None,
    }


def _status_lines(found: Status) -> list[tuple[str, str]]:
    state, record = found.state, found.state.record
    owners = {"own": "ours", "none": "none", "unknown": "unknown"}
    lines = [
        ("server", f"PostgreSQL {state.server}"),
        ("pgmq", state.pgmq or "none"),
        ("core", owners.get(state.core, f"pgflow {state.core}, which is not ours")),
        ("schema", f"{state.version or 'none'}, and this pgflowd needs {found.needed}"),
    ]
    if record.applied_at:
        lines.append(
            (
                "applied",
                f"{record.applied_at:%Y-%m-%d %H:%M} by {record.applied_by}, "
                f"pgflowd {record.release}",
            )
        )
    if found.functions_differ:
        lines.append(("functions", "of another pgflowd; `pgflowd db migrate` replaces them"))
    return lines


def _migrated_json(done: Migrated) -> dict[str, Any]:
    return {
        "before": done.before,
        "after": done.after,
        "core": done.core,
        "migrations": done.migrations,
        "dry_run": done.dry_run,
    }


def _migrated_lines(done: Migrated) -> list[str]:
    lines = [f"{'would apply' if done.dry_run else 'applied'} {name}" for name in done.migrations]
    if done.dry_run:
        return [*lines, f"schema {done.after} would be there; nothing was changed"]
    if done.before == done.after:
        return [*lines, f"schema {done.after} was there already; functions applied again"]
    return [*lines, f"schema {done.after} is there"]
