"""
`pgflowd db`: install, upgrade and print the schema; settings that all daemons share.

`pgflowd.db.schema` does the work; this module parses arguments and prints results.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, TypedDict

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.commands.db_settings import set_, settings
from pgflowd.cli.connect import open_connection
from pgflowd.cli.groups import Group
from pgflowd.cli.params import NumberParam
from pgflowd.cli.problems import ShownProblem, print_problems, problem_json
from pgflowd.core.documents.daemons import Migrated
from pgflowd.core.exit_codes import ExitCode

if TYPE_CHECKING:
    from pgflowd.db.schema import SchemaStatus


class ShownSchema(TypedDict):
    """The versions of server, pgmq and schema."""

    server: str
    pgmq: str | None
    core: Annotated[
        str | None,
        "the edition of schema `pgflow`: `pgflowd's`, or a release of pgflow; null without one",
    ]
    version: Annotated[int | None, "the version of the schema; null if there is none"]
    needed: Annotated[int, "the version that this pgflowd needs"]
    release: Annotated[str | None, "the pgflowd that installed it"]
    applied_at: Annotated[datetime | None, "when"]
    applied_by: Annotated[str | None, "who"]
    functions_differ: Annotated[bool, "whether functions are not those of this pgflowd"]
    problem: Annotated[ShownProblem | None, "what is wrong; null if nothing is"]


class Script(TypedDict):
    sql: Annotated[str, "the script"]


@click.group(cls=Group)
def db() -> None:
    """Install and upgrade the schema; change settings that all daemons share.

    \b
    Example: pgflowd db migrate --dry-run
    """


@db.command(prints=ShownSchema)
@pass_app
def status(app: App) -> None:
    """Print the versions of server, pgmq and schema; exit code 1 if they do not fit.

    \b
    Example: pgflowd db status --json
    """
    from pgflowd.db import schema

    with open_connection(app) as conn:
        found = schema.status(conn)
    lines = [f"{name:<10}{value}" for name, value in _status_lines(found)]
    app.print_result("\n".join(lines), _shown(app, found))
    if found.problem:
        if not app.json:
            print_problems(app, [found.problem])
        app.exit(ExitCode.NO)


@db.command(prints=Migrated)
@click.option("--to", type=NumberParam(min=1), metavar="N", help="Stop at this version.")
@click.option("--dry-run", is_flag=True, help="Execute it, then roll back.")
@click.option("--adopt", is_flag=True, help="Replace the functions of pgflow's own migrations.")
@pass_app
def migrate(app: App, to: int | None, dry_run: bool, adopt: bool) -> None:
    """Install or upgrade the schema, in one transaction.

    A database in which pgflow's own migrations have put schema pgflow keeps its flows, runs, queues
    and workers with --adopt; without it, the command prints what would be replaced.

    \b
    Example: pgflowd db migrate --dry-run
    """
    from pgflowd.db import schema

    with open_connection(app) as conn:
        conn.add_notice_handler(lambda notice: app.note(f"note: {notice.message_primary}"))
        done = schema.migrate(conn, to, dry_run, adopt=adopt)
    app.print_result("\n".join(_migrated_lines(done)), done)


@db.command(prints=Script)
@click.argument("what", type=click.Choice(["roles"]), required=False)
@click.option(
    "--from",
    "from_",
    type=NumberParam(min=0),
    metavar="N",
    help="Only the changes after version N.",
)
@pass_app
def sql(app: App, what: str | None, from_: int | None) -> None:
    """Print the schema as SQL, for another migration program; or the roles.

    Execute it in one transaction. Without --from it creates everything in an empty database.
    `roles` prints the roles owner, worker, starter, viewer and operator with the least rights.

    \b
    Example: pgflowd db sql | psql -1 -v ON_ERROR_STOP=1 mydb
             pgflowd db sql roles | psql -1 -v ON_ERROR_STOP=1 mydb
    """
    from pgflowd.db import schema

    if what and from_ is not None:
        raise click.UsageError("--from cannot be used with roles")
    text = schema.roles_sql() if what else schema.sql(from_)
    app.print_result(text.rstrip("\n"), Script(sql=text))


for _command in (settings, set_):
    db.add_command(_command)


def _shown(app: App, found: SchemaStatus) -> ShownSchema:
    record = found.state.record
    return {
        "server": found.state.server,
        "pgmq": found.state.pgmq,
        "core": found.core.edition,
        "version": found.state.version,
        "needed": found.needed,
        "release": record.release,
        "applied_at": record.applied_at,
        "applied_by": record.applied_by,
        "functions_differ": found.functions_differ,
        "problem": problem_json(app, found.problem) if found.problem else None,
    }


def _status_lines(found: SchemaStatus) -> list[tuple[str, str]]:
    state, record = found.state, found.state.record
    lines = [
        ("server", f"PostgreSQL {state.server}"),
        ("pgmq", state.pgmq or "none"),
        ("core", _core_words(found)),
        ("schema", f"{state.version or 'none'}; this pgflowd needs {found.needed}"),
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


def _core_words(found: SchemaStatus) -> str:
    """Whose functions schema pgflow has, and the way back from an adoption."""
    core = found.core
    if core.changed:
        return "changed by hand"
    if core.to_replace:
        which = "replaced by another program" if core.edition == "pgflowd's" else core.edition
        return f"{which}; before you adopt it, `pg_dump` the database: it is the way back"
    return core.edition or "none"


def _migrated_lines(done: Migrated) -> list[str]:
    lines = [f"{'would apply' if done.dry_run else 'applied'} {name}" for name in done.migrations]
    if done.adopted:
        verb = "would be replaced" if done.dry_run else "is replaced"
        lines = [*(f"{name} {verb}" for name in done.replaced), *lines]
    if done.dry_run:
        return [*lines, f"schema {done.after} would be installed; nothing was changed"]
    if done.is_repeated:
        return [*lines, f"schema {done.after} was installed already; nothing had changed"]
    if done.before == done.after:
        return [*lines, f"schema {done.after} was installed already; its functions were replaced"]
    return [*lines, f"schema {done.after} is installed"]
