"""
Exports spans by OpenTelemetry, over OTLP/HTTP, as the variables OTEL_… say.

It is an observer (docs/background/supervision.md, rules 50 to 53), and the only process of a daemon
that imports OpenTelemetry by itself. Workers and runners send it spans as datagrams, without
waiting. What a collector does not take is kept and tried again, while there is room in the queue;
what exceeds it is dropped and counted. A batch that the collector refuses for good has failed.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import select
import socket
import threading
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pgflowd.core.messages import Drain, Failed, Heartbeat, QuickStop, Ready
from pgflowd.core.metrics.definitions import LOG_RECORDS_DROPPED, SPANS
from pgflowd.core.redact import one_line, redact
from pgflowd.core.settings.sections import Settings
from pgflowd.core.supervision.exits import EXIT_ASKED, EXIT_CANNOT
from pgflowd.host.channel import Channel
from pgflowd.host.config import control_path
from pgflowd.host.logs import Log
from pgflowd.host.span_socket import listen, read_spans, socket_path

if TYPE_CHECKING:
    from pgflowd.host.otlp import OtlpExporter

HEARTBEAT_S = 5.0  # a small part of hang_timeout
NICE = 10  # where processors are scarce, tasks go first; nor does a datagram interrupt them (BATCH)
MAX_QUEUE = 8192  # spans; a kilobyte each
BATCH = 2048  # half a megabyte; a request costs as much as 200 spans
PAUSE_S = 5.0  # between two exports, unless there is a whole batch
FLUSH_S = 1.5  # at the end
MAX_DATAGRAM = 256 * 1024
MAX_READS = 64  # datagrams, before anything else is looked at
SAY_AGAIN_S = 60.0  # the same error


def main(channel: Channel, settings: Settings, log: Log) -> int:
    """Export until the supervisor asks to end."""
    os.nice(NICE)
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    try:
        exporter, path = _exporter(settings), socket_path(control_path(settings))
        gc.freeze()  # what is imported is not looked at again for each portion of spans
        end = listen(path)
    except _CannotStart as why:
        return _refuse(channel, str(why))
    except OSError as error:
        return _refuse(channel, f"the socket for spans cannot be made: {error}")
    try:
        SpanExports(channel, settings, log, exporter).run(end)
    finally:
        path.unlink(missing_ok=True)
    return EXIT_ASKED


class _CannotStart(Exception):
    """The settings or what is installed."""


def _exporter(settings: Settings) -> OtlpExporter:
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get(
        "OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"
    )
    if protocol != "http/protobuf":
        text = f"OTEL_EXPORTER_OTLP_PROTOCOL is {one_line(protocol, 60)}; only http/protobuf is"
        raise _CannotStart(f"{text} spoken: unset it, and name an endpoint of that kind")
    try:
        from pgflowd.host.otlp import OtlpExporter
    except ImportError as error:
        text = f"[telemetry] traces is on, and OpenTelemetry cannot be imported ({error})"
        raise _CannotStart(f"{text}: install pgflowd[otel]") from error
    try:
        exporter = OtlpExporter(settings.telemetry.service_name or settings.pgflowd.name)
    except Exception as error:
        text = one_line(redact(f"{type(error).__name__}: {error}"), 300)
        raise _CannotStart(f"a variable OTEL_EXPORTER_OTLP_… is wrong: {text}") from error
    url = urlsplit(exporter.endpoint)
    if url.scheme not in ("http", "https") or not url.hostname:
        shown = one_line(redact(exporter.endpoint), 100)
        raise _CannotStart(f"OTEL_EXPORTER_OTLP_ENDPOINT is {shown}; it must be a URL of HTTP")
    return exporter


def _refuse(channel: Channel, text: str) -> int:
    channel.send(Failed("E505", text))
    channel.flush_all()
    return EXIT_CANNOT


class SpanExports:
    """The queue, and the thread that empties it."""

    def __init__(
        self, channel: Channel, settings: Settings, log: Log, exporter: OtlpExporter
    ) -> None:
        self._channel, self._log, self._exporter = channel, log, exporter
        self._heartbeat_s = min(HEARTBEAT_S, settings.supervisor.hang_timeout_s / 3)
        self._queue: deque[Any] = deque()
        self._changed = threading.Condition()
        self._counts = Counter({"sent": 0, "dropped": 0, "failed": 0})
        self._exporting = 0  # spans that are under way
        self._is_closing = False
        self._said: dict[str, float] = {}  # when an error was logged last

    def run(self, end: socket.socket) -> None:
        _forward_logging(self._say)
        thread = threading.Thread(target=self._export_all, name="export", daemon=True)
        thread.start()
        self._channel.send(Ready())
        self._heartbeat()
        next_at = time.monotonic() + self._heartbeat_s
        poll = select.poll()
        for source in (end, self._channel):
            poll.register(source, select.POLLIN)
        while not self._has_orders():
            if not thread.is_alive():  # by a bug; a new process goes on
                raise RuntimeError("the thread that exports spans has ended")
            poll.poll(max(0.0, next_at - time.monotonic()) * 1000)
            self._read(end)
            self._channel.flush()
            if time.monotonic() >= next_at:
                self._heartbeat()
                next_at = time.monotonic() + self._heartbeat_s
        while self._read(end):
            pass
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        thread.join(FLUSH_S)
        with self._changed:
            if left := len(self._queue) + self._exporting:
                self._counts["dropped"] += left
                self._say(f"{left} spans were lost at the end: the collector took no more")
        self._heartbeat()
        self._channel.flush_all()

    def _has_orders(self) -> bool:
        orders = self._channel.receive()
        return self._channel.at_end or any(isinstance(each, Drain | QuickStop) for each in orders)

    def _read(self, end: socket.socket) -> bool:
        """Read datagrams into the queue; return whether there may be more."""
        for _ in range(MAX_READS):
            try:
                datagram = end.recv(MAX_DATAGRAM)
            except BlockingIOError:
                return False
            spans, lost = read_spans(datagram)
            with self._changed:
                room = max(0, MAX_QUEUE - len(self._queue) - self._exporting)
                self._queue.extend(spans[:room])
                self._counts["dropped"] += lost + len(spans[room:])
                if len(self._queue) >= BATCH:
                    self._changed.notify()
        return True

    def _heartbeat(self) -> None:
        with self._changed:
            numbers: dict[str, Any] = {
                SPANS.key: dict(self._counts),
                "queued": len(self._queue) + self._exporting,
                "endpoint": redact(self._exporter.endpoint),
                LOG_RECORDS_DROPPED.key: self._log.lost,
            }
        self._channel.send(Heartbeat(numbers))

    # in the thread

    def _export_all(self) -> None:
        while batch := self._next_batch():
            spans = []
            for span in batch:
                try:
                    spans.append(self._exporter.span_of(span))
                except Exception as error:  # whoever is our user may send anything
                    self._say(f"what came as a span is none: {type(error).__name__}: {error}")
            has_gone, is_refused = self._exporter.export(spans) if spans else (True, False)
            with self._changed:
                self._exporting = 0
                if has_gone or is_refused:
                    self._counts["sent" if has_gone else "failed"] += len(spans)
                    self._counts["failed"] += len(batch) - len(spans)
                    continue
                self._queue.extendleft(reversed(batch))
                if self._is_closing:
                    return
                self._changed.wait_for(lambda: self._is_closing, PAUSE_S)

    def _next_batch(self) -> list[Any]:
        """Wait for spans; none at the end."""
        with self._changed:
            is_enough = lambda: self._is_closing or len(self._queue) >= BATCH  # noqa: E731
            while True:
                self._changed.wait_for(is_enough, PAUSE_S)
                if self._queue or self._is_closing:
                    break
            batch = [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]
            self._exporting = len(batch)
            return batch

    def _say(self, text: str) -> None:
        """Log an error, if that was not done a moment ago."""
        now, text = time.monotonic(), one_line(redact(text), 500)
        kind = text[:40]
        if now >= self._said.get(kind, -SAY_AGAIN_S) + SAY_AGAIN_S:
            self._said = {**dict(list(self._said.items())[-20:]), kind: now}
            self._log.warning("exporter.error", error=text)


def _forward_logging(say: Any) -> None:
    """Let what OpenTelemetry logs be records of ours, and nothing else."""

    class Forwarder(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            say(f"{record.name}: {record.getMessage()}")

    logging.root.handlers[:] = [Forwarder(logging.WARNING)]
