"""`pgflowd dev` and `pgflowd demo`: what they run is imported when they run."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict
from uuid import UUID

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.groups import Command
from pgflowd.cli.params import NumberParam
from pgflowd.core.statuses import RunStatus


class DemoRun(TypedDict):
    flow: str
    run_id: UUID
    status: Annotated[RunStatus, "how it ended"]
    took_s: Annotated[float, "how long it took"]
    output: Annotated[Any, "its output"]


class Demo(TypedDict):
    """What the demo did."""

    pgflowd: str
    postgresql: str
    directory: str
    dsn: Annotated[str, "the URL of the database"]
    runs: Annotated[list[DemoRun], "the runs of the examples"]
    tasks: Annotated[int, "how many tasks there were"]
    retries: Annotated[int, "how many attempts were retries"]


@click.command(cls=Command, prints=Demo)
@click.option("--once", is_flag=True, help="End when all runs have ended, not at Ctrl-C.")
@click.option("--keep", is_flag=True, help="Keep the data at the end.")
@pass_app
def demo(app: App, once: bool, keep: bool) -> None:
    """Run example flows on a PostgreSQL of their own.

    \b
    Example: pgflowd demo --once
    """
    from pgflowd.cli.local.demo import run_demo

    run_demo(app, once=once, keep=keep)


@click.command(cls=Command)
@click.option(
    "--port", type=NumberParam(1024, 65535), metavar="PORT", help="The port of PostgreSQL."
)
@click.option("--no-reload", is_flag=True, help="Do not watch the files.")
@click.option("--ephemeral", is_flag=True, help="Delete the data at the end.")
@click.option("--reset", is_flag=True, help="Delete existing data first.")
@pass_app
def dev(app: App, port: int | None, no_reload: bool, ephemeral: bool, reset: bool) -> None:
    """Serve this project while you change it, on a PostgreSQL of its own.

    Prints runs and the output of their handlers; with -v the whole log of the daemon. A change
    of a flow reloads the daemon. A flow whose steps have changed is recreated, and its runs are
    deleted; on a terminal it asks once whether to make it the next version instead. The url of
    the config and variables of libpq such as PGHOST are ignored. With --database-url it serves on
    that database, where it installs the schema, starts no server and recreates no flow.

    \b
    Example: pgflowd dev
             pgflowd dev --database-url postgresql://localhost/shop_dev
    """
    from pgflowd.cli.local.dev import serve_project

    serve_project(app, port, no_reload=no_reload, ephemeral=ephemeral, reset=reset)
