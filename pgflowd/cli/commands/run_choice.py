"""
Which runs a verb changes: those that are named, or those that fit the filters of `runs list`.

A run that refuses is reported, and keeps none of the others; what is printed as done has been
committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from uuid import UUID

import click

from pgflowd.cli.app import App
from pgflowd.cli.commands.run_plans import label_option
from pgflowd.cli.connect import database
from pgflowd.cli.lookup import find_runs, flow_slugs
from pgflowd.cli.params import DURATION, FLOW, RUN
from pgflowd.cli.problems import for_each, print_outcomes
from pgflowd.core.lookup import unknown_flow
from pgflowd.core.statuses import RunStatus
from pgflowd.core.text import counted
from pgflowd.errors import PgflowdError

if TYPE_CHECKING:
    import psycopg


F = TypeVar("F", bound=Callable[..., Any])
Done = tuple[str, Mapping[str, Any]]  # a line, and its document
Change = Callable[["psycopg.Connection[Any]", UUID], Done]

MAX_RUNS = 100_000  # at once; `list_runs` looks at no more
OPEN = tuple(one for one in RunStatus if not one.is_end and one is not RunStatus.UNDOING)
ENDED = tuple(one for one in RunStatus if one.is_end)

runs_argument = click.argument("run", metavar="RUN...", type=RUN, nargs=-1, required=True)


class Chosen(NamedTuple):
    """Which runs a command changes: those that are named, or those that fit the filters."""

    words: Sequence[str]
    flow: str | None
    statuses: Sequence[str]
    since_s: float | None
    labels: Sequence[tuple[str, str]]
    is_sure: bool

    @property
    def has_filters(self) -> bool:
        return bool(self.flow or self.statuses or self.since_s is not None or self.labels)


def choosing(*statuses: RunStatus) -> Callable[[F], F]:
    """Runs by name or by filters; these are the statuses that may be asked for."""
    names = [str(status) for status in statuses]

    def decorate(command: F) -> F:
        for option in (
            click.option("--yes", "is_sure", is_flag=True, help="Do not ask about many."),
            label_option,
            click.option("--since", "since_s", type=DURATION, metavar="DUR",
                         help="Runs started within this time."),
            click.option("--status", "statuses", type=click.Choice(names), multiple=True,
                         metavar="STATUS", help=f"{', '.join(names)}; may be repeated."),
            click.option("--flow", type=FLOW, metavar="SLUG", help="Runs of this flow."),
            click.argument("words", metavar="[RUN]...", type=RUN, nargs=-1),
        ):  # fmt: skip
            command = option(command)
        return command

    return decorate


def change_chosen(
    app: App,
    verb: str,
    chosen: Chosen,
    statuses: Sequence[str],
    change: Change,
    asks_always: bool = False,
) -> None:
    """
    Change the runs that were chosen, and print what was done.

    `statuses`: those of a choice without `--status`. `asks_always`: also about runs that are named.
    """
    if bool(chosen.words) == chosen.has_filters:
        text = "name runs, or choose them by --flow, --status, --since or --label"
        raise click.UsageError(f"{text}, and not both" if chosen.words else text)
    with database(app) as conn:
        act = partial(change, conn)
        named = find_runs(conn, chosen.words)
        found = named or _matching(conn, chosen, statuses)
        if found and (chosen.has_filters or asks_always):
            app.confirm(f"{verb} {counted(len(found), 'run')}?", yes=chosen.is_sure)
        if named:
            for_each(app, "runs", named, act)
            return
        if not found:
            app.note("there are no such runs")
        _change_many(app, conn, found, act)


def _matching(conn: psycopg.Connection[Any], chosen: Chosen, statuses: Sequence[str]) -> list[UUID]:
    """The runs that fit the filters, in the order in which their locks are taken."""
    from pgflowd.core.wishes import labels_json
    from pgflowd.db.query import execute
    from pgflowd.db.runs import list_runs

    wanted, labels = chosen.statuses or statuses, labels_json(dict(chosen.labels))
    found = execute(conn, list_runs(chosen.flow, wanted, chosen.since_s, MAX_RUNS, labels))
    if chosen.flow and not found and chosen.flow not in (known := flow_slugs(conn)):
        raise unknown_flow(chosen.flow, known)
    return sorted(run.run_id for run in found)


def _change_many(
    app: App,
    conn: psycopg.Connection[Any],
    run_ids: Sequence[UUID],
    change: Callable[[UUID], Done],
) -> None:
    """Change runs, fifty in a transaction; what is printed as done has been committed."""
    from pgflowd.db.many_runs import change_many

    documents: list[Mapping[str, Any]] = []
    errors: list[PgflowdError] = []
    for _, result in change_many(conn, run_ids, change):
        if isinstance(result, PgflowdError):
            errors.append(result)
            continue
        line, document = result
        documents.append(document)
        if not app.json:
            app.print(line)
    print_outcomes(app, "runs", documents, errors)
