"""`pgflowd runs list`: the newest runs that fit, a page at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.connect import database
from pgflowd.cli.groups import Command
from pgflowd.cli.params import FLOW, JSON, LIMIT_OPTION, MOMENT_OR_DURATION, ParamType, label_option
from pgflowd.cli.terminal.run_view import print_runs
from pgflowd.core.documents.run_list import PageKey, RunPage
from pgflowd.core.json import encode
from pgflowd.core.redact import one_line
from pgflowd.core.run_filter import RunFilter, checked_key
from pgflowd.core.statuses import RunStatus
from pgflowd.core.text import ago
from pgflowd.core.wishes import Moment

STATUSES = tuple(map(str, RunStatus))
MAX_SEEN = 100_000  # a person who asks in a terminal waits for half a second


class PageKeyParam(ParamType):
    """Where a page of a list begins, as the page before it says."""

    name = "key"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> PageKey:
        try:
            return value if isinstance(value, PageKey) else PageKey.read(value)
        except ValueError:
            text = f"'{one_line(value, 60)}' is no key of a page; `next` of the list before is one"
            self.fail(text, param, ctx)


@click.command("list", cls=Command, prints=RunPage)
@click.option("--flow", type=FLOW, metavar="SLUG", help="Only runs of this flow.")
@click.option(
    "--status", "statuses", type=click.Choice(STATUSES), multiple=True, metavar="STATUS",
    help=f"{', '.join(STATUSES)}; may be repeated; of the newest 100,000.",
)  # fmt: skip
@click.option(
    "--since", type=MOMENT_OR_DURATION, metavar="T|DUR",
    help="Only runs started within this time, or since then.",
)  # fmt: skip
@click.option(
    "--until", type=MOMENT_OR_DURATION, metavar="T|DUR",
    help="Only runs started up to then, or so long ago.",
)  # fmt: skip
@click.option(
    "--text", default="", metavar="TEXT",
    help="Only runs with this in their error, title or labels, or these first or last digits.",
)  # fmt: skip
@label_option
@click.option("--key", metavar="TEXT", help="Only the run of --flow that has this key.")
@click.option("--input", type=JSON, metavar="JSON", help="Only runs whose input contains this.")
@click.option(
    "--after", type=PageKeyParam(), metavar="KEY", help="Go on behind `next` of the list before."
)
@LIMIT_OPTION
@pass_app
def list_(
    app: App,
    flow: str | None,
    statuses: Sequence[str],
    since: datetime | float | None,
    until: datetime | float | None,
    text: str,
    labels: Sequence[tuple[str, str]],
    key: str | None,
    input: Any,
    after: PageKey | None,
    limit: int,
) -> None:
    """List the newest runs; with -v whole ids and errors, and the runs that undo others.

    \b
    Example: pgflowd runs list --status failed --since 1d
             pgflowd runs list --status scheduled --label customer=42
             pgflowd runs list --text TimeoutError --until 2d
             pgflowd runs list --flow orders --input '{"customer": 42}'
    """
    from pgflowd.db.performing import run_sync
    from pgflowd.db.query import database_time, execute
    from pgflowd.db.run_search import count_runs, find_page

    wanted = RunFilter(
        flow, statuses, _ago(since), _ago(until), dict(labels), text, with_undos=app.verbose,
        input=None if input is None else encode(input), key=checked_key(flow, key),
    )  # fmt: skip
    with database(app) as conn:
        page = run_sync(conn, find_page(wanted, limit, after, MAX_SEEN))
        if app.json:
            page = replace(page, count=execute(conn, count_runs(wanted)))
        now = execute(conn, database_time())
    if app.json:
        app.print_document(page)
    elif not (page.runs or after) and wanted.is_empty:
        app.note("there are no runs yet; `pgflowd runs start FLOW` starts one")
    else:
        print_runs(app, page.runs, now)
        _note_next(app, page, now, is_full=len(page.runs) == limit, is_later=after is not None)


def _ago(time: datetime | float | None) -> Moment:
    if isinstance(time, datetime):
        return Moment(time)
    return Moment(in_s=None if time is None else -time)


def _note_next(app: App, page: RunPage, now: datetime, *, is_full: bool, is_later: bool) -> None:
    """How to go on, for who pages already, or where it has stopped before the list was full."""
    if page.next is None or (is_full and not is_later):
        return
    looked = f"it has looked at {page.seen:,} runs, back to {ago(page.next.at, now)}"
    app.note(f"{looked}; the same with `--after {page.next.text}` goes on")
