"""
Exports spans by OpenTelemetry, over OTLP/HTTP, as the variables OTEL_… say.

It is an observer (docs/background/supervision.md, rules 50 to 53), and the only process of a daemon
that imports OpenTelemetry by itself. Workers and runners send it spans as datagrams, without
waiting. What a collector does not take is kept and tried again, while there is room in the queue;
what exceeds it is dropped and counted. What the collector refuses for good has failed, and so has
what came as a span and is none.
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
from pgflowd.core.supervision.tree import EXIT_ASKED, EXIT_CANNOT
from pgflowd.host.channel import Channel
from pgflowd.host.config import control_path
from pgflowd.host.logs import Log
from pgflowd.host.span_socket import MAX_DATAGRAM, listen, read_datagram, socket_path

if TYPE_CHECKING:
    from pgflowd.host.otlp import OtlpExporter, ScopedSpans

HEARTBEAT_S = 5.0  # a small part of hang_timeout
NICE = 10  # where processors are scarce, tasks go first; nor does a datagram (SCHED_BATCH)
MAX_QUEUE, MAX_QUEUE_BYTES = 8192, 32_000_000  # spans, and what they take
BATCH_BYTES = 900_000  # of a request; some collectors take no more than a megabyte
ENOUGH = 4096  # spans do not wait for more
PAUSE_S = 5.0  # between two exports, unless there is enough for one
FLUSH_S = 1.5  # at the end
MAX_READS = 64  # datagrams, before anything else is looked at
SAY_AGAIN_S = 60.0  # the same error
MAX_SAID = 2000  # characters of it are looked at


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
        self._changed = threading.Condition()
        self._queue: deque[ScopedSpans] = deque()
        self._queued_bytes = 0
        self._spans = 0  # that are queued or under way
        self._counts = Counter({"sent": 0, "dropped": 0, "failed": 0})
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
            if self._spans:
                self._counts["dropped"] += self._spans
                self._say(f"{self._spans} spans were lost at the end: the collector took no more")
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
            told, lost = read_datagram(datagram)
            for each in told:
                self._add(each)
            with self._changed:
                self._counts["dropped"] += lost
        return True

    def _add(self, told: Any) -> None:
        """Queue what is told; whoever is our user may tell anything."""
        try:
            scope, spans = self._exporter.encode(told)
        except Exception as error:
            self._refuse(1, f"{type(error).__name__}: {error}")
            return
        number, size = spans.number, len(spans.data)
        with self._changed:
            if self._spans + number > MAX_QUEUE or self._queued_bytes + size > MAX_QUEUE_BYTES:
                self._counts["dropped"] += number
            elif number:
                self._queue.append((scope, spans))
                self._spans += number
                self._queued_bytes += size
                if self._is_enough():
                    self._changed.notify()
        if spans.wrong:
            self._refuse(spans.wrong, spans.why)

    def _refuse(self, count: int, why: str) -> None:
        """Count what came as spans and is none."""
        with self._changed:
            self._counts["failed"] += count
        self._say(f"what came as a span is none: {why}")

    def _is_enough(self) -> bool:
        """Whether the thread is to go on at once; it asks when nothing is under way."""
        is_batch = self._spans >= ENOUGH or self._queued_bytes >= BATCH_BYTES
        return is_batch or self._is_closing

    def _heartbeat(self) -> None:
        with self._changed:
            numbers: dict[str, Any] = {
                SPANS.key: dict(self._counts),
                "queued": self._spans,
                "endpoint": redact(self._exporter.endpoint),
                LOG_RECORDS_DROPPED.key: self._log.lost,
            }
        self._channel.send(Heartbeat(numbers))

    # in the thread

    def _export_all(self) -> None:
        while batch := self._next_batch():
            has_gone, is_refused = self._exporter.export(batch)
            with self._changed:
                if has_gone or is_refused:
                    count = sum([spans.number for _, spans in batch])
                    self._spans -= count
                    self._counts["sent" if has_gone else "failed"] += count
                    continue
                self._queue.extendleft(reversed(batch))
                self._queued_bytes += sum([len(spans.data) for _, spans in batch])
                if self._is_closing:
                    return
                self._changed.wait_for(lambda: self._is_closing, PAUSE_S)

    def _next_batch(self) -> list[ScopedSpans]:
        """Wait for spans; none at the end."""
        with self._changed:
            while True:
                self._changed.wait_for(self._is_enough, PAUSE_S)
                if self._queue or self._is_closing:
                    break
            batch: list[ScopedSpans] = []
            room = BATCH_BYTES
            while self._queue and (not batch or len(self._queue[0][1].data) <= room):
                batch.append(self._queue.popleft())
                room -= len(batch[-1][1].data)
            self._queued_bytes -= BATCH_BYTES - room
            return batch

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
