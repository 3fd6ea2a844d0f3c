"""
`pgflowd config`: print the settings in force, a JSON Schema of them, and their variables.

The output contains no secrets: a reference is printed as it is, and a password in a URL as ***.
The output of `config show` is a valid config file.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Annotated, Any, TypedDict

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.groups import Group
from pgflowd.core.settings.load import (
    Row,
    Variable,
    json_schema,
    pyproject_schema,
    rows,
    toml_key,
    toml_value,
    variables,
)


class ShownConfig(TypedDict):
    file: Annotated[str | None, "the config file; null if there is none"]
    settings: Annotated[
        dict[str, Any],
        "the keys by their sections; with `--origin` each is an object of `value` and `origin`",
    ]


class Variables(TypedDict):
    variables: Annotated[list[Variable], "one for each key"]


@click.group(cls=Group)
def config() -> None:
    """Show the settings in force, their JSON Schema, and their environment variables.

    \b
    Example: pgflowd config show --origin
    """


@config.command(prints=ShownConfig)
@click.option("--origin", is_flag=True, help="Add the origin of each value.")
@pass_app
def show(app: App, origin: bool) -> None:
    """Print the settings in force, as a config file without secrets.

    \b
    Example: pgflowd config show --origin
    """
    found = list(rows(app.settings))
    file = app.settings.file
    keys = max(len(row.key) for row in found)
    texts = [f"{row.key:<{keys}} = {toml_value(row.value)}" for row in found]
    column = min(max(map(len, texts)), keys + 40)
    lines: list[str] = []
    section: tuple[str, ...] = ()
    for row, text in zip(found, texts, strict=True):
        if row.section != section:
            section = row.section
            lines += ["", f"[{'.'.join(map(toml_key, section))}]"] if lines else [f"[{section[0]}]"]
        lines.append(f"{text:<{column}}  # {row.origin}" if origin else text)
    lines = [*([f"# {file}"] if file else []), *lines]
    app.print_result("\n".join(lines), ShownConfig(file=file, settings=_nested(found, origin)))


@config.command()
@click.option("--pyproject", is_flag=True, help="Of [tool.pgflowd] in a pyproject.toml.")
@pass_app
def schema(app: App, pyproject: bool) -> None:
    """Print a JSON Schema of the config file, for editors.

    They complete and check a pgflowd.toml whose first line names the schema:
    #:schema ./pgflowd.schema.json. `pgflowd new NAME` writes both; write the schema again after an
    upgrade.

    \b
    Example: pgflowd config schema > pgflowd.schema.json
    """
    app.print_json(pyproject_schema() if pyproject else json_schema())


@config.command(prints=Variables)
@pass_app
def env(app: App) -> None:
    """Print the environment variable of each key.

    A variable overrides the file. Lists are JSON. For a text, a variable with _FILE at the end
    of its name can give a file that contains the value. <SLUG> is a flow's slug in capitals.

    \b
    Example: pgflowd config env | grep TIMEOUT
             PGFLOWD__WORKER__MAX_CONCURRENCY=4 pgflowd config show --origin
    """
    listed = list(variables())
    rows = [(each.name, f"{each.section}.{each.key}", toml_value(each.default)) for each in listed]
    table = app.out.table(("VARIABLE", "KEY", "DEFAULT"), rows, losing=("DEFAULT", "KEY"))
    app.print_result(table, Variables(variables=listed))


def _nested(found: list[Row], origin: bool) -> dict[str, Any]:
    nested: dict[str, Any] = defaultdict(dict)
    for row in found:
        inner = nested[row.section[0]]
        if len(row.section) > 1:
            inner = inner.setdefault(row.section[1], {})
        inner[row.key] = {"value": row.value, "origin": str(row.origin)} if origin else row.value
    return nested
