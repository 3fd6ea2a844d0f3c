"""
`pgflowd config`: print the settings in force, a JSON Schema of them, and their variables.

The output contains no secrets: a reference is printed as it is, and a password in a URL as ***.
The output of `config show` is a valid config file.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.groups import Group

if TYPE_CHECKING:
    from pgflowd.core.settings.show import Row


@click.group(cls=Group)
def config() -> None:
    """Show the settings in force, their JSON Schema, and their environment variables.

    \b
    Example: pgflowd config show --origin
    """


@config.command()
@click.option("--origin", is_flag=True, help="Add where each value comes from.")
@pass_app
def show(app: App, origin: bool) -> None:
    """Print the settings in force, as a config file without secrets.

    \b
    Example: pgflowd config show --origin
    """
    from pgflowd.core.settings.show import rows

    found = list(rows(app.settings))
    if app.json:
        shown = {"schema_version": 1, "file": app.settings.file}
        app.print_json({**shown, "settings": _nested(found, origin)})
        return
    if app.settings.file:
        app.print(f"# {app.settings.file}")
    for line in _toml(found, origin):
        app.print(line)


@config.command()
@pass_app
def schema(app: App) -> None:
    """Print a JSON Schema of the config file, for editors.

    \b
    Example: pgflowd config schema > pgflowd.schema.json
    """
    from pgflowd.core.settings.show import json_schema

    app.print_json(json_schema())


@config.command()
@pass_app
def env(app: App) -> None:
    """Print the environment variable of each key.

    A variable overrides the file. Lists are JSON. For a text, a variable with _FILE at the end
    of its name can give a file that contains the value. <SLUG> is a flow's slug in capitals.

    \b
    Example: pgflowd config env | grep TIMEOUT
             PGFLOWD__WORKER__MAX_CONCURRENCY=4 pgflowd config show --origin
    """
    from pgflowd.core.settings.show import toml_value, variables

    listed = list(variables())
    if app.json:
        app.print_json({"schema_version": 1, "variables": [each._asdict() for each in listed]})
        return
    lines = [(each.name, f"{each.section}.{each.key}", toml_value(each.default)) for each in listed]
    app.print_table(("VARIABLE", "KEY", "DEFAULT"), lines, losing=("DEFAULT", "KEY"))


def _toml(found: list[Row], origin: bool) -> list[str]:
    from pgflowd.core.settings.show import toml_key, toml_value

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
    return lines


def _nested(found: list[Row], origin: bool) -> dict[str, Any]:
    nested: dict[str, Any] = defaultdict(dict)
    for row in found:
        inner = nested[row.section[0]]
        if len(row.section) > 1:
            inner = inner.setdefault(row.section[1], {})
        inner[row.key] = {"value": row.value, "origin": str(row.origin)} if origin else row.value
    return nested
