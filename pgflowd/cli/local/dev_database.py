"""
The database of `pgflowd dev`: of an embedded server below `.pgflowd/`, or the one that is given.

The schema is installed in either. The embedded server runs during the block.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from pgflowd.cli.app import App
from pgflowd.db import schema
from pgflowd.db.connection import connect
from pgflowd.embedded import EmbeddedPostgres
from pgflowd.host.dev_lock import DevAlreadyRunning, unset_libpq_variables


@dataclass(frozen=True)
class DevDatabase:
    """The database on which a project is served, and what the first line says of it."""

    url: str
    version: str
    about: str


@contextmanager
def dev_database(
    app: App, root: Path, port: int | None, *, ephemeral: bool, reset: bool
) -> Iterator[DevDatabase]:
    """The database that --database-url names, or else one of an embedded server."""
    if app.flag_database_url is None:
        with _embedded_server(root, port, ephemeral=ephemeral, reset=reset) as postgres:
            kept = "deleted at the end" if ephemeral else "kept; --ephemeral deletes it"
            yield _installed(postgres.dsn, f"embedded, .pgflowd/pg, {kept}")
    elif port or ephemeral or reset:
        text = "--port, --ephemeral and --reset are for dev's own PostgreSQL, not --database-url"
        raise click.UsageError(text)
    else:
        yield _installed(app.database_url, "given; a changed shape is refused")


def _installed(url: str, about: str) -> DevDatabase:
    with connect(url, name="pgflowd dev") as connection:
        schema.install(connection)
        version = connection.info.server_version
    return DevDatabase(url, f"{version // 10_000}.{version % 10_000}", about)


@contextmanager
def _embedded_server(
    root: Path, port: int | None, *, ephemeral: bool, reset: bool
) -> Iterator[EmbeddedPostgres]:
    unset_libpq_variables()
    (root / ".pgflowd").mkdir(exist_ok=True)
    directory = root / ".pgflowd" / "pg"
    if ephemeral:
        directory = Path(tempfile.mkdtemp(prefix="pg-", dir=root / ".pgflowd"))
    elif reset and not EmbeddedPostgres(directory).discard():
        raise DevAlreadyRunning(str(root))
    try:
        with EmbeddedPostgres(directory, keep=not ephemeral, port=port or 0) as postgres:
            if port and postgres.port != port:
                text = f"PostgreSQL already runs here on port {postgres.port}"
                raise click.UsageError(f"{text}; stop it, or omit --port")
            yield postgres
    finally:
        if ephemeral:
            shutil.rmtree(directory, ignore_errors=True)
