"""
`pgflowd db`: install, upgrade and print the schema; settings that all daemons share.

`pgflowd.db.schema` does the work; this module parses arguments and prints results. The database
says which settings there are, and what each takes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import click

from pgflowd import db as stored
from pgflowd.cli.app import App, pass_app
from pgflowd.cli.database import database, execute, open_connection, time_of
from pgflowd.cli.groups import Group
from pgflowd.cli.params import SETTING, NumberParam
from pgflowd.cli.problems import ShownProblem, print_problems, problem_json
from pgflowd.core.documents.daemons import Migrated, SharedSetting
from pgflowd.core.exit_codes import ExitCode
from pgflowd.core.json import encode
from pgflowd.core.text import ago
from pgflowd.errors import OutputError, PgflowdError

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
    with open_connection(app) as conn:
        found = stored.schema.status(conn)
    lines = [f"{name:<10}{value}" for name, value in _status_lines(found)]
    state = found.state
    app.print_result(
        "\n".join(lines),
        {
            "server": state.server,
            "pgmq": state.pgmq,
            "core": found.core.edition,
            "version": state.version,
            "needed": found.needed,
            "release": state.release,
            "applied_at": state.applied_at,
            "applied_by": state.applied_by,
            "functions_differ": found.functions_differ,
            "problem": problem_json(app, found.problem) if found.problem else None,
        },
    )
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
    with open_connection(app) as conn:
        conn.add_notice_handler(lambda notice: app.note(f"note: {notice.message_primary}"))
        done = stored.schema.migrate(conn, to, dry_run, adopt=adopt)
    app.print_result("\n".join(_migrated_lines(done)), done)


@db.command(prints=Script)
@click.argument("what", type=click.Choice(["roles"]), required=False)
@click.option(
    "--from", "from_", type=NumberParam(min=0), metavar="N",
    help="Only the changes after version N.",
)  # fmt: skip
@pass_app
def sql(app: App, what: str | None, from_: int | None) -> None:
    """Print the schema as SQL, for another migration program; or the roles.

    Execute it in one transaction. Without --from it creates everything in an empty database.
    `roles` prints the roles owner, worker, starter, viewer and operator with the least rights.

    \b
    Example: pgflowd db sql | psql -1 -v ON_ERROR_STOP=1 mydb
             pgflowd db sql roles | psql -1 -v ON_ERROR_STOP=1 mydb
    """
    if what and from_ is not None:
        raise click.UsageError("--from cannot be used with roles")
    text = stored.schema.roles_sql() if what else stored.schema.sql(from_)
    app.print_result(text.rstrip("\n"), Script(sql=text))


class SharedSettings(TypedDict):
    settings: Annotated[Sequence[SharedSetting], "by their names"]


class ChangedSetting(TypedDict):
    name: str
    value: Annotated[Any, "its value now"]
    old: Annotated[Any, "its value before"]


@db.command(prints=SharedSettings)
@pass_app
def settings(app: App) -> None:
    """Print the settings that all daemons on the database share; with -v what each takes.

    \b
    Example: pgflowd db settings
    """
    with database(app) as conn:
        found, now = execute(conn, stored.daemons.list_settings()), time_of(conn)
    if app.json:
        app.print_document(SharedSettings(settings=found))
        return
    rows = []
    for one in found:
        changed = "default"
        if one.changed_at is not None:
            changed = f"{ago(one.changed_at, now)} by {one.changed_by or 'an unknown user'}"
        takes = [one.takes] if app.verbose else []
        rows.append([one.name, _value_text(one.value), *takes, changed, one.means])
    titles = ["NAME", "VALUE", *["TAKES"] * app.verbose, "CHANGED", "MEANS"]
    app.print(app.out.table(titles, rows, losing=["CHANGED"]))


@db.command("set", prints=ChangedSetting)
@click.argument("name", metavar="NAME", type=SETTING)
@click.argument("value", metavar="VALUE")
@pass_app
def set_(app: App, name: str, value: str) -> None:
    """Change a setting for all daemons on the database, from their next transaction on.

    VALUE is a word, a number, a duration such as 30d, or null.

    \b
    Example: pgflowd db set retention_completed 30d
             pgflowd db set retention_completed null
    """
    wanted: Any = value  # a word that is no JSON is a text; 1e400 is none that the database has
    with suppress(ValueError, RecursionError, OutputError):
        encode(json.loads(value))
        wanted = json.loads(value)
    with database(app) as conn:
        try:
            old = execute(conn, stored.daemons.set_setting(name, wanted))
        except PgflowdError as error:
            if error.code != "E105":
                raise
            raise click.UsageError(f"{error.text}; {error.next}") from error
    text = f"{name} is {_value_text(wanted)} now; it was {_value_text(old)}"
    app.print_result(text, ChangedSetting(name=name, value=wanted, old=old))


def _value_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _status_lines(found: SchemaStatus) -> list[tuple[str, str]]:
    state = found.state
    lines = [
        ("server", f"PostgreSQL {state.server}"),
        ("pgmq", state.pgmq or "none"),
        ("core", _core_words(found)),
        ("schema", f"{state.version or 'none'}; this pgflowd needs {found.needed}"),
    ]
    if state.applied_at:
        by = f"by {state.applied_by}, pgflowd {state.release}"
        lines.append(("applied", f"{state.applied_at:%Y-%m-%d %H:%M} {by}"))
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
