"""
`pgflowd db settings` and `db set`: what all daemons on a database share.

The database says which settings there are, and what each takes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.connect import database
from pgflowd.cli.groups import Command
from pgflowd.cli.params import SETTING
from pgflowd.core.documents.daemons import SharedSetting
from pgflowd.core.json import encode
from pgflowd.errors import OutputError


class SharedSettings(TypedDict):
    settings: Annotated[Sequence[SharedSetting], "by their names"]


class ChangedSetting(TypedDict):
    name: str
    value: Annotated[Any, "its value now"]
    old: Annotated[Any, "its value before"]


@click.command(cls=Command, prints=SharedSettings)
@pass_app
def settings(app: App) -> None:
    """Print the settings that all daemons on the database share; with -v what each takes.

    \b
    Example: pgflowd db settings
    """
    from pgflowd.core.text import ago
    from pgflowd.db.daemons import list_settings
    from pgflowd.db.query import database_time, execute

    with database(app) as conn:
        found = execute(conn, list_settings())
        now = execute(conn, database_time())
    if app.json:
        app.print_document(SharedSettings(settings=found))
        return
    rows = []
    for one in found:
        changed = "default"
        if one.changed_at is not None:
            changed = f"{ago(one.changed_at, now)} by {one.changed_by or 'an unknown user'}"
        takes = [one.takes] if app.verbose else []
        rows.append([one.name, _shown(one.value), *takes, changed, one.means])
    titles = ["NAME", "VALUE", *["TAKES"] * app.verbose, "CHANGED", "MEANS"]
    app.print_table(titles, rows, losing=["CHANGED"])


@click.command("set", cls=Command, prints=ChangedSetting)
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
    from pgflowd.db.daemons import set_setting
    from pgflowd.db.query import execute
    from pgflowd.errors import PgflowdError

    wanted = _value(value)
    with database(app) as conn:
        try:
            old = execute(conn, set_setting(name, wanted))
        except PgflowdError as error:
            if error.code != "E105":
                raise
            raise click.UsageError(f"{error.text}; {error.next}") from error
    text = f"{name} is {_shown(wanted)} now; it was {_shown(old)}"
    app.print_result(text, ChangedSetting(name=name, value=wanted, old=old))


def _value(word: str) -> Any:
    """A word that is no JSON is a text; 1e400 is none that the database has."""
    try:
        value = json.loads(word)
        encode(value)
    except (ValueError, RecursionError, OutputError):
        return word
    return value


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
