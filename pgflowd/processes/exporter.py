"""
Exports the spans of runs that have ended, from the history, by OpenTelemetry.

It is an observer (docs/background/supervision.md, rules 50 to 53), and the only process of a daemon
that imports OpenTelemetry by itself. Each second it reads, in one transaction, attempts and runs
that have ended since, sends their spans, and commits. The cursor is a row of the database, which
it holds meanwhile, so one daemon of a fleet exports. What a collector does not take is read again.
What it refuses for good has failed. No report and no runner waits for it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import psycopg

from pgflowd.core.messages import Failed
from pgflowd.core.metrics.definitions import SPANS
from pgflowd.core.redact import one_line, redact
from pgflowd.core.settings.sections import Settings
from pgflowd.core.supervision.tree import EXIT_ASKED, EXIT_CANNOT
from pgflowd.core.sweeper import whole
from pgflowd.core.traces import EndedSpan, spans_of_attempts, spans_of_parts
from pgflowd.db.query import execute
from pgflowd.db.runs import export_attempts, export_runs
from pgflowd.host.channel import Channel
from pgflowd.host.logs import Log
from pgflowd.processes.service import CONNECTION_ERRORS, DatabaseLink, Service, StopRequested

if TYPE_CHECKING:
    from pgflowd.host.otlp import SpanSender

NICE = 10  # where processors are scarce, tasks go first
MOST = 1000  # attempts and runs of one transaction
MANY_PARTS = 20_000  # runs and steps, of which it should read no more
MOST_SPANS = 512  # of a request
LOOK_S = 1.0  # between two looks, unless there is more
WAIT_S = 0.02  # where there is more, and between two looks at what is under way
PAUSE_S = 5.0  # after the collector has not answered
SAY_AGAIN_S = 60.0  # the same error
MAX_SAID = 2000  # characters of it are looked at


def main(channel: Channel, settings: Settings, log: Log) -> int:
    """Export until the supervisor asks to end."""
    os.nice(NICE)
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    try:
        sender = _sender(settings)
    except _CannotStart as why:
        channel.send(Failed("E505", str(why)))
        channel.flush_all()
        return EXIT_CANNOT
    with contextlib.suppress(StopRequested):
        Exporter(Service(channel, settings, log), settings, log, sender).run()
    return EXIT_ASKED


class _CannotStart(Exception):
    """The settings or what is installed."""


def _sender(settings: Settings) -> SpanSender:
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get(
        "OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"
    )
    if protocol != "http/protobuf":
        text = f"OTEL_EXPORTER_OTLP_PROTOCOL is {one_line(protocol, 60)}; only http/protobuf is"
        raise _CannotStart(f"{text} spoken: unset it, and name an endpoint of that kind")
    try:
        from pgflowd.host.otlp import SpanSender
    except ImportError as error:
        text = f"[telemetry] traces is on, and OpenTelemetry cannot be imported ({error})"
        raise _CannotStart(f"{text}: install pgflowd[otel]") from error
    try:
        sender = SpanSender(settings.service_name)
    except Exception as error:
        text = one_line(redact(f"{type(error).__name__}: {error}"), 300)
        raise _CannotStart(f"a variable OTEL_EXPORTER_OTLP_… is wrong: {text}") from error
    url = urlsplit(sender.endpoint)
    if url.scheme not in ("http", "https") or not url.hostname:
        shown = one_line(redact(sender.endpoint), 100)
        raise _CannotStart(f"OTEL_EXPORTER_OTLP_ENDPOINT is {shown}; it must be a URL of HTTP")
    return sender


class Exporter:
    """The connection, and what became of the spans."""

    def __init__(self, service: Service, settings: Settings, log: Log, sender: SpanSender) -> None:
        self._service, self._log, self._sender = service, log, sender
        self._ratio = settings.telemetry.ratio
        self._link = DatabaseLink(service, settings, log, "exporter", settings.database.url)
        self._counts = Counter({"sent": 0, "failed": 0})
        self._said: dict[str, float] = {}  # when an error was logged last
        self._size = whole(MOST).cut().cut()  # it grows, while runs have few steps
        service.numbers["endpoint"] = redact(sender.endpoint)
        self._note(0)
        _forward_logging(self._say)

    def run(self) -> None:
        self._link.run(lambda conn: None, self._work)

    def _work(self, conn: psycopg.Connection[Any]) -> None:
        while True:
            self._service.wait_until(time.monotonic() + self._export(conn))

    def _export(self, conn: psycopg.Connection[Any]) -> float:
        """Export what has ended since; return when to look again."""
        most = self._size.size
        try:
            with self._link.limited(conn):
                conn.execute("begin")
                attempts = execute(conn, export_attempts(most))
                ended = list(dict.fromkeys(each.run_id for each in attempts if each.ends_run))
                parts = execute(conn, export_runs(ended, most))
        except CONNECTION_ERRORS:  # perhaps it was too large
            self._size = self._size.cut()
            raise
        if len(parts) > MANY_PARTS:
            self._size = self._size.cut()
        elif len(parts) * self._size.factor <= MANY_PARTS:
            self._size = self._size.grown()
        hide = self._log.without_secrets
        spans = spans_of_attempts(attempts, self._ratio, hide)
        spans += spans_of_parts(parts, self._ratio, hide)
        starts = range(0, len(spans), MOST_SPANS)
        has_gone = all(self._send(spans[start : start + MOST_SPANS]) for start in starts)
        with self._link.limited(conn):
            conn.execute("commit" if has_gone else "rollback")
        self._note(0 if has_gone else len(spans))
        if not has_gone:
            return PAUSE_S
        has_more = (
            2 * max(len(attempts), len(parts)) >= most
        )  # attempts that are open fill a call, too
        return WAIT_S if has_more else LOOK_S

    def _send(self, spans: list[EndedSpan]) -> bool:
        """Return whether these are done with. Orders are read meanwhile."""
        answers: list[tuple[bool, bool]] = []
        thread = threading.Thread(
            target=lambda: answers.append(self._sender.send(spans)), name="export", daemon=True
        )
        thread.start()
        while thread.is_alive():
            thread.join(WAIT_S)
            self._service.wait_until(time.monotonic() + 0.001)
        if not answers:  # by a bug; a new process goes on
            raise RuntimeError("the thread that exports spans has ended")
        [(has_gone, is_refused)] = answers
        if has_gone or is_refused:
            self._counts["sent" if has_gone else "failed"] += len(spans)
        return has_gone or is_refused

    def _note(self, waiting: int) -> None:
        numbers: dict[str, Any] = {SPANS.key: dict(self._counts), "queued": waiting}
        if any(self._service.numbers.get(name) != value for name, value in numbers.items()):
            self._service.numbers |= numbers
            self._service.send_heartbeat_soon()

    def _say(self, text: str) -> None:
        """Log an error, if that was not done a moment ago."""
        now, kind = time.monotonic(), text[:40]
        if now >= self._said.get(kind, -SAY_AGAIN_S) + SAY_AGAIN_S:
            self._said = {**dict(list(self._said.items())[-20:]), kind: now}
            self._log.warning("exporter.error", error=one_line(redact(text[:MAX_SAID]), 500))


def _forward_logging(say: Any) -> None:
    """Let what OpenTelemetry logs be records of ours, and nothing else."""

    class Forwarder(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            say(f"{record.name}: {record.getMessage()}")

    logging.root.handlers[:] = [Forwarder(logging.WARNING)]
