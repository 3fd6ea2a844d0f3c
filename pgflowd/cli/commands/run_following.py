"""
What the commands have in common that follow runs, or wait for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pgflowd.cli.app import App
from pgflowd.cli.connect import reconnector
from pgflowd.cli.terminal.history_view import TimelineWriter
from pgflowd.cli.terminal.run_view import print_ended
from pgflowd.core.documents.runs import Runs
from pgflowd.core.exit_codes import ExitCode
from pgflowd.core.redact import one_line
from pgflowd.core.statuses import RunStatus
from pgflowd.core.text import short_id
from pgflowd.core.timeline import WAITING

if TYPE_CHECKING:
    from pgflowd.core.documents.runs import RunWithStates, TimelineEntry
    from pgflowd.db.client_connections import Connection
    from pgflowd.db.following import Follower


def follower_of(
    conn: Connection, run_ids: Sequence[UUID], *, with_output: bool = False
) -> Follower[RunWithStates]:
    """A follower that hears of events from now on, and also of the output of handlers."""
    from pgflowd.db.following import Follower
    from pgflowd.db.performing import run_sync
    from pgflowd.db.run_details import RunEvents

    read = [RunEvents(run_id) for run_id in run_ids]
    follower: Follower[RunWithStates] = Follower(read, with_output=with_output)
    run_sync(conn, follower.listen())
    return follower


def skip(conn: Connection, follower: Follower[Any]) -> None:
    """Print nothing of what has happened so far."""
    from pgflowd.db.performing import run_sync

    run_sync(conn, follower.skip())


def entries_of(
    app: App, conn: Connection, follower: Follower[Any], timeout_s: float | None = None
) -> Iterator[TimelineEntry]:
    """What happens until the runs end. Raises WaitTimeout; the runs go on."""
    from pgflowd.db.performing import follow_sync

    follower.limit(timeout_s)
    return follow_sync(follower, reconnector(app), conn)


def print_events(
    app: App,
    conn: Connection,
    follower: Follower[RunWithStates],
    timeout_s: float | None = None,
    good: RunStatus = RunStatus.COMPLETED,
) -> None:
    """Print the events of runs until they end; the exit code is 0 if all end well."""
    writer = TimelineWriter(app, many=len(follower.open) > 1)
    try:
        for entry in entries_of(app, conn, follower, timeout_s):
            writer.write(entry)
    except KeyboardInterrupt:
        for word in map(short_id, follower.open):
            app.note(f"run {word} goes on: `pgflowd runs follow {word}`")
        raise
    for run in follower.ended.values():
        if run.status is RunStatus.UNDO_FAILED:
            word = short_id(run.run_id)
            app.note(f"`pgflowd runs undo {word} --again` undoes what is left")
    _exit_by_status(app, list(follower.ended.values()), good)


def wait_for(app: App, conn: Connection, run_ids: Sequence[UUID], timeout_s: float | None) -> None:
    """Wait until runs end, then print their outputs."""
    follower = follower_of(conn, run_ids)
    for entry in entries_of(app, conn, follower, timeout_s):
        if entry.event == WAITING:
            end = f"; `{entry.ends_by}` ends it" if entry.ends_by else ""
            app.note(one_line(f"run {short_id(entry.run_id)}, {entry.step}: {entry.text}{end}"))
    ended = [follower.ended[run_id] for run_id in run_ids]
    if app.json:
        app.print_document(Runs(runs=ended))
    else:
        print_ended(app, ended)
        for run in ended:
            if run.status_before_undo is RunStatus.FAILED:
                app.note(f"`pgflowd runs show {short_id(run.run_id)}` shows where it failed")
    _exit_by_status(app, ended, RunStatus.COMPLETED)


def _exit_by_status(app: App, ended: Sequence[RunWithStates], good: RunStatus) -> None:
    if any(run.status is not good for run in ended):
        app.exit(ExitCode.NO)
