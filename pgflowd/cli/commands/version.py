"""
`pgflowd version`: print the versions of pgflowd and its dependencies.

It reads the metadata of the installed packages; it imports none of them and needs no database.
"""

from __future__ import annotations

import platform
from typing import TypedDict

import click

from pgflowd import __version__
from pgflowd.cli.app import App, pass_app
from pgflowd.cli.groups import Command


class Versions(TypedDict):
    pgflowd: str
    python: str
    psycopg: str | None
    pgmq: str | None
    click: str | None
    multiprocess: str | None
    setproctitle: str | None
    sdnotify: str | None


@click.command(cls=Command, prints=Versions)
@pass_app
def version(app: App) -> None:
    """Print the versions of pgflowd and its dependencies.

    \b
    Example: pgflowd version --json
    """
    parts = {"pgflowd": __version__, "python": platform.python_version(), **_installed()}
    width = max(map(len, parts))
    lines = [f"{name:<{width}}  {number or 'not installed'}" for name, number in parts.items()]
    app.print_result("\n".join(lines), parts)


def _installed() -> dict[str, str | None]:
    from importlib import metadata

    found: dict[str, str | None] = {}
    for name in list(Versions.__annotations__)[2:]:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found
