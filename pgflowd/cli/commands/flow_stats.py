"""`pgflowd flows stats`: what flows have to do, and what they did lately, by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypedDict

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.connect import database
from pgflowd.cli.groups import Command
from pgflowd.cli.lookup import flow_slugs
from pgflowd.cli.params import DURATION, FLOW
from pgflowd.cli.terminal.flow_view import print_stats
from pgflowd.core.documents.statistics import FlowStats, stats_of
from pgflowd.core.lookup import unknown_flow


class AllStats(TypedDict):
    flows: Annotated[Sequence[FlowStats], "by their names"]


@click.command(cls=Command, prints=AllStats)
@click.argument("flow", metavar="[FLOW]", type=FLOW, required=False)
@click.option(
    "--since", type=DURATION, default="1h", metavar="DUR", help="Within this time; 1h by default."
)
@pass_app
def stats(app: App, flow: str | None, since: float) -> None:
    """Show what flows have to do, and what they did lately, by step.

    What workers did is known to the minute for two days, and to the hour for ninety.

    \b
    Example: pgflowd flows stats
             pgflowd flows stats analyze_website --since 1d
    """
    from pgflowd.db.query import execute
    from pgflowd.db.statistics import flow_buckets, flow_stats, flow_work

    if since <= 0:
        raise click.UsageError("--since must be longer than 0s")
    with database(app) as conn:
        works = execute(conn, flow_work(flow))
        if flow is not None and not works:
            raise unknown_flow(flow, flow_slugs(conn))
        steps = execute(conn, flow_stats(flow, since))
        buckets = execute(conn, flow_buckets(flow, since)) if app.json else {}
    found = stats_of(works, steps, since, buckets)
    if app.json:
        app.print_document(AllStats(flows=found))
    else:
        print_stats(app, found)
