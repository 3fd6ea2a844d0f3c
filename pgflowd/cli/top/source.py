"""
Reads what `pgflowd top` shows: from the daemon here if there is one, and from the database.

Each read has a short limit, so that keys are never ignored for long. What cannot be read leaves the
last numbers in place, with the error and their time. A database that is gone is tried again, ever
less often.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID

import click
import psycopg

from pgflowd.cli.app import App
from pgflowd.cli.daemon_client import NotRunning, ask
from pgflowd.cli.top.flow_rows import FlowFacts
from pgflowd.cli.top.model import Act, State, TopVerb, TopView
from pgflowd.cli.top.seen import MAX_RUNS, Seen
from pgflowd.core import verbs
from pgflowd.core.backoff import doubled_s
from pgflowd.core.redact import one_line
from pgflowd.core.run_filter import RunFilter
from pgflowd.core.statuses import RunStatus
from pgflowd.core.text import short_id
from pgflowd.core.verbs import Target
from pgflowd.db import operations, performing, schema
from pgflowd.db.connection import Limits, connect
from pgflowd.db.flows import list_flows
from pgflowd.db.query import Query, database_time, execute_together
from pgflowd.db.run_details import RunEvents, read_details
from pgflowd.db.run_search import search_runs
from pgflowd.db.statistics import flow_buckets, flow_stats
from pgflowd.errors import NotRetryable, PgflowdError
from pgflowd.processes.service import limited

LIMITS = Limits(connect_s=2.0, statement_s=2.0, tcp_user_s=4.0, lock_s=1.0)
CALL_S = 3.0  # of a read as a whole, if the server says nothing at all
DAEMON_S = 1.0
MIN_RETRY_S, MAX_RETRY_S = 0.5, 5.0  # between two attempts to reach a database that is gone
MAX_EVENTS = 500
PIECES = 10  # of the last hour
_ERRORS = (PgflowdError, psycopg.Error, OSError)
_VERBS: dict[TopVerb, verbs.Verb[Any]] = {
    TopVerb.PAUSE: verbs.PAUSE_FLOW, TopVerb.RESUME: verbs.RESUME_FLOW,
    TopVerb.CANCEL: verbs.CANCEL, TopVerb.RETRY: verbs.RETRY,
}  # fmt: skip
_STATUSES = {str(status) for status in RunStatus}

T = TypeVar("T")


class TopSource:
    """The daemon and the database, and what was read of them."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.seen = Seen()
        self._conn: psycopg.Connection[Any] | None = None
        self._retry_at, self._pause_s = 0.0, MIN_RETRY_S
        self._events: RunEvents | None = None
        self._subjects: dict[TopView, tuple[str | None, ...]] = {}

    def read(self, state: State) -> None:
        """Read what this state shows."""
        self._forget_others(state)
        self._read_daemon()
        if time.monotonic() < self._retry_at:
            return
        try:
            self._call(lambda conn: self._read_database(conn, state))
        except _ERRORS as error:
            self.seen.database_error = self._text(error)
        else:
            self.seen.database_error, self.seen.database_at = None, time.monotonic()

    def act(self, act: Act) -> str:
        """Do what a person wants; return what became of it."""
        slug, verb = act.target, _VERBS[act.verb]
        try:
            operation = operations.perform(verb, slug)
            was_changed = self._call(lambda conn: performing.run_sync(conn, operation))
        except _ERRORS as error:
            if isinstance(error, NotRetryable) and "even_if_cancelled" in (error.next or ""):
                command = f"pgflowd runs retry {short_id(slug)} --even-if-cancelled"
                error.next = f"`{command}` retries it"
            return self._text(error)
        if verb.target is Target.FLOW:
            return one_line(f"flow {slug} {verb.done if was_changed else verb.is_so}")
        return f"run {short_id(slug)} {verb.done}"

    def close(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    def _forget_others(self, state: State) -> None:
        """Forget what was read of something else than is shown now."""
        seen = self.seen
        subject = (state.flow, state.filter) if state.view is TopView.RUNS else (state.run,)
        if state.view is TopView.FLOWS or self._subjects.get(state.view) == subject:
            return
        self._subjects[state.view] = subject
        if state.view is TopView.RUNS:
            seen.runs = None
        elif state.view is TopView.RUN:
            seen.details = None
        else:
            seen.entries, self._events = None, RunEvents(UUID(state.run))

    def _read_daemon(self) -> None:
        seen = self.seen
        try:
            seen.status = ask(self.app, "status", timeout_s=DAEMON_S)
        except NotRunning as error:
            was_there = seen.status is not None or seen.daemon_error is not None
            seen.status = None
            seen.daemon_error = self.app.hide(one_line(error.message)) if was_there else None
        except (click.ClickException, PgflowdError) as error:
            seen.daemon_error = self._text(error)
        else:
            seen.daemon_error, seen.status_at = None, time.monotonic()

    def _read_database(self, conn: psycopg.Connection[Any], state: State) -> None:
        seen = self.seen
        queries: list[Query[Any]] = [database_time(), list_flows()]
        if state.view is TopView.FLOWS:
            queries += [flow_buckets(None, 3600.0, PIECES)]
            queries += [flow_stats(None, 60.0)] if seen.status is None else []
        elif state.view is TopView.RUNS:
            queries.append(search_runs(runs_wanted(state), MAX_RUNS))
        elif state.view is TopView.RUN and state.run is not None:
            trace_url = self.app.settings.telemetry.trace_url
            reading = read_details(UUID(state.run), trace_url=trace_url)
            seen.details = performing.run_sync(conn, reading)
        elif self._events is not None:
            new = performing.run_sync(conn, self._events.read())
            seen.entries = [*(seen.entries or []), *new][-MAX_EVENTS:]
        now, flows, *more = execute_together(conn, queries)
        seen.now = now
        if state.view is TopView.RUNS:
            seen.runs = more[0].runs
        buckets, minute = seen.facts.buckets, seen.facts.minute
        if state.view is TopView.FLOWS:
            buckets, minute = more[0], more[1] if len(more) > 1 else ()
        seen.facts = FlowFacts(flows, now, buckets, minute)

    def _call(self, does: Callable[[psycopg.Connection[Any]], T]) -> T:
        """Use the connection, which is opened where there is none."""
        try:
            if self._conn is None:
                url = self.app.database_url
                name = f"{self.app.settings.pgflowd.name} top"
                self._conn = connect(url, name=name, limits=LIMITS, guard=_limited)
                with _limited(self._conn):
                    schema.refuse_newer(self._conn)
            with _limited(self._conn):
                found = does(self._conn)
        except BaseException:
            self._pause_s = doubled_s(self._pause_s, MIN_RETRY_S, MAX_RETRY_S)
            if self._conn is None or self._conn.broken:
                self.close()
                self._retry_at = time.monotonic() + self._pause_s
            raise
        self._retry_at, self._pause_s = 0.0, MIN_RETRY_S
        return found

    def _text(self, error: BaseException) -> str:
        """An error on one line, with what to do next."""
        if isinstance(error, PgflowdError):
            first = error.problems[0]
            text = f"{first.code} {first.text}" + (f"; {first.next}" if first.next else "")
        else:
            text = error.message if isinstance(error, click.ClickException) else str(error)
        return one_line(self.app.hide(" ".join(text.split())), 400)


def runs_wanted(state: State) -> RunFilter:
    """The runs of the flow; the filter is a status, or a text in their error, labels or ids."""
    word = state.filter.strip()
    if word in _STATUSES:
        return RunFilter(flow=state.flow, statuses=[word], with_undos=True)
    return RunFilter(flow=state.flow, text=word, with_undos=True)


def _limited(conn: psycopg.Connection[Any]) -> Any:
    return limited(conn, CALL_S)
