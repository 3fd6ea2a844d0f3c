"""
Reads what `pgflowd top` shows, and does what a person asks for there.

A read or an act is done in a thread, one at a time, so no key waits for it; each has a limit. What
cannot be read leaves the last numbers in place, with the error and their time. A database that is
gone is tried again, ever less often.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from threading import Lock, Timer
from typing import Any, NamedTuple
from uuid import UUID

import click
import psycopg

from pgflowd.cli.app import App
from pgflowd.cli.daemon_client import NotRunning, ask
from pgflowd.core.backoff import doubled_s
from pgflowd.core.documents.flows import ListedFlow, RunBucket, StepStats
from pgflowd.core.redact import one_line
from pgflowd.core.run_filter import RunFilter
from pgflowd.core.statuses import RunStatus
from pgflowd.core.text import short_id
from pgflowd.core.verbs import Target, Verb
from pgflowd.db import operations, performing, schema
from pgflowd.db.connection import Limits, connect
from pgflowd.db.flows import flow_buckets, flow_stats, list_flows
from pgflowd.db.query import Query, database_time, execute_together
from pgflowd.db.run_details import RunEvents, read_details, search_runs
from pgflowd.errors import NotRetryable, PgflowdError

LIMITS = Limits(connect_s=2.0, statement_s=2.0, tcp_user_s=4.0, lock_s=1.0)
CALL_S = 3.0  # of a read as a whole, if the server says nothing at all
DAEMON_S = 1.0
MIN_RETRY_S, MAX_RETRY_S = 0.5, 5.0  # between two attempts to reach a database that is gone
MAX_RUNS = 200  # of a list; the newest
MAX_EVENTS = 500
PIECES = 10  # of the last hour
_ERRORS = (PgflowdError, psycopg.Error, OSError)
_STATUSES = {str(status) for status in RunStatus}


class TopView(Enum):
    """The views."""

    FLOWS = "flows"
    RUNS = "runs of"  # a flow
    RUN = "run of"
    EVENTS = "events of"  # a run that is followed


class TopSubject(NamedTuple):
    """What is shown, and therefore read."""

    kind: TopView = TopView.FLOWS
    flow: str = ""
    run: str = ""
    filter: str = ""  # of a list


@dataclass(frozen=True)
class FlowFacts:
    """What the database knows of all flows."""

    flows: Sequence[ListedFlow] = ()
    now: datetime | None = None  # of the database
    buckets: Mapping[str, Sequence[RunBucket]] = field(default_factory=dict)
    minute: Sequence[StepStats] = ()  # what workers did within the last one


@dataclass
class Seen:
    """What was read last, when, and what went wrong since; times are of a monotonic clock."""

    status: Mapping[str, Any] | None = None
    status_at: float | None = None
    daemon_error: str | None = None
    facts: FlowFacts = field(default_factory=FlowFacts)
    found: tuple[TopSubject, Any] | None = None  # runs, the details of a run, or its events
    database_at: float | None = None
    database_error: str | None = None

    def of(self, subject: TopSubject) -> Any:
        """What was read of a subject, maybe with the filter before; None: it was not read yet."""
        is_same = self.found and self.found[0]._replace(filter=subject.filter) == subject
        return self.found[1] if self.found and is_same else None


class TopSource:
    """The daemon and the database, and what was read of them."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.seen = Seen()
        self._lock = Lock()
        self._conn: psycopg.Connection[Any] | None = None
        self._retry_at, self._pause_s = 0.0, MIN_RETRY_S
        self._events: RunEvents | None = None

    def read(self, subject: TopSubject) -> None:
        """Read what this shows."""
        with self._lock:
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
            if time.monotonic() < self._retry_at:
                return
            try:
                with self._connected() as conn:
                    self._read_database(conn, subject)
            except _ERRORS as error:
                self.seen.database_error = self._text(error)
            else:
                self.seen.database_error, self.seen.database_at = None, time.monotonic()

    def act(self, verb: Verb[Any], target: str) -> str:
        """Do what a person wants to a slug or id; return what became of it."""
        operation = operations.perform(verb, target)
        try:
            with self._lock, self._connected() as conn:
                was_changed = performing.run_sync(conn, operation)
        except _ERRORS as error:
            if isinstance(error, NotRetryable) and "even_if_cancelled" in (error.next or ""):
                command = f"pgflowd runs retry {short_id(target)} --even-if-cancelled"
                error.next = f"`{command}` retries it"
            return self._text(error)
        if verb.target is Target.FLOW:
            return one_line(f"flow {target} {verb.done if was_changed else verb.is_so}")
        return f"run {short_id(target)} {verb.done}"

    def close(self) -> None:
        """Close the connection, in the middle of a call too."""
        if self._conn is not None:
            with suppress(OSError, psycopg.Error):
                _shut(os.dup(self._conn.fileno()))

    def _read_database(self, conn: psycopg.Connection[Any], subject: TopSubject) -> None:
        seen = self.seen
        found: Any = None
        queries: list[Query[Any]] = [database_time(), list_flows()]
        if subject.kind is TopView.FLOWS:
            queries += [flow_buckets(None, 3600.0, PIECES)]
            queries += [flow_stats(None, 60.0)] if seen.status is None else []
        elif subject.kind is TopView.RUNS:
            queries.append(search_runs(runs_wanted(subject), MAX_RUNS))
        elif subject.kind is TopView.RUN:
            trace_url = self.app.settings.telemetry.trace_url
            reading = read_details(UUID(subject.run), trace_url=trace_url)
            found = performing.run_sync(conn, reading)
        else:
            before = seen.of(subject)
            if self._events is None or before is None:
                self._events, before = RunEvents(UUID(subject.run)), []
            found = [*before, *performing.run_sync(conn, self._events.read())][-MAX_EVENTS:]
        now, flows, *more = execute_together(conn, queries)
        buckets, minute = seen.facts.buckets, seen.facts.minute
        if subject.kind is TopView.FLOWS:
            buckets, minute = more[0], more[1] if len(more) > 1 else ()
        elif subject.kind is TopView.RUNS:
            found = more[0].runs
        seen.facts = FlowFacts(flows, now, buckets, minute)
        seen.found = (subject, found)

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection[Any]]:
        """The connection, which is opened where there is none."""
        try:
            if self._conn is None:
                name = f"{self.app.settings.pgflowd.name} top"
                self._conn = connect(
                    self.app.database_url, name=name, limits=LIMITS, guard=_limited
                )
                with _limited(self._conn):
                    schema.refuse_newer(self._conn)
            with _limited(self._conn):
                yield self._conn
        except BaseException:
            self._pause_s = doubled_s(self._pause_s, MIN_RETRY_S, MAX_RETRY_S)
            if self._conn is None or self._conn.broken:
                if self._conn is not None:
                    self._conn.close()
                self._conn, self._events = None, None
                self._retry_at = time.monotonic() + self._pause_s
            raise
        self._retry_at, self._pause_s = 0.0, MIN_RETRY_S

    def _text(self, error: BaseException) -> str:
        """An error on one line, with what to do next."""
        if isinstance(error, PgflowdError):
            first = error.problems[0]
            text = f"{first.code} {first.text}" + (f"; {first.next}" if first.next else "")
        else:
            text = error.message if isinstance(error, click.ClickException) else str(error)
        return one_line(self.app.hide(" ".join(text.split())), 400)


def runs_wanted(subject: TopSubject) -> RunFilter:
    """The runs of the flow; the filter is a status, or a text in their error, labels or ids."""
    word = subject.filter.strip()
    if word in _STATUSES:
        return RunFilter(flow=subject.flow, statuses=[word], with_undos=True)
    return RunFilter(flow=subject.flow, text=word, with_undos=True)


@contextmanager
def _limited(conn: psycopg.Connection[Any]) -> Iterator[None]:
    """Shut the connection's socket when the limit has passed; the call then fails at once."""
    number = os.dup(conn.fileno())
    timer = Timer(CALL_S, lambda: _shut(os.dup(number)))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        os.close(number)


def _shut(number: int) -> None:
    with suppress(OSError), socket.socket(fileno=number) as end:
        end.shutdown(socket.SHUT_RDWR)
