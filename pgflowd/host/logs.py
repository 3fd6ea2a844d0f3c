"""
Writes log records to stderr or the journal, and never waits for the reader.

    log = open_log(settings.logging, process="supervisor")
    log.bind(process="worker", flow="send_email").info("task.completed", took_s=0.2)

The supervisor opens the log once; children inherit its descriptor (`fileno()`) and bind their
own fields. A record that does not fit into the pipe is dropped and counted, and the count is
logged as soon as there is room. `hide` adds secrets that no record may show.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pgflowd.core.logrecord import (
    LEVELS,
    LogRecord,
    as_journal,
    as_json,
    as_lines,
    as_text,
    redacted,
    text_without_secrets,
)
from pgflowd.core.settings.sections import LoggingSettings

JOURNAL = "/run/systemd/journal/socket"


@dataclass
class Sink:
    """The destination of records; shared by all logs of a process."""

    write: Callable[[bytes], bool]  # False: no room
    render: Callable[[LogRecord], bytes]
    number: int  # the descriptor that children must keep
    level: int
    keys: tuple[str, ...]
    levels: Mapping[str, str] = field(default_factory=dict)  # of Python's loggers
    secrets: set[str] = field(default_factory=set)
    dropped: int = 0  # since the count was logged
    lost: int = 0  # in all


class Log:
    """Writes records that all carry the same fields."""

    def __init__(self, sink: Sink, fields: dict[str, Any]) -> None:
        self._sink = sink
        self._fields = fields

    def bind(self, **fields: Any) -> Log:
        """Return a log whose records carry these fields too."""
        return Log(self._sink, {**self._fields, **fields})

    @property
    def lost(self) -> int:
        """How many records this process could not write."""
        return self._sink.lost

    def begin_process(self) -> None:
        """Count only what this process loses: it was forked from one that may have lost some."""
        self._sink.lost = 0

    def fileno(self) -> int:
        return self._sink.number

    def retune(self, settings: LoggingSettings) -> None:
        """Apply other settings; the format stays."""
        self._sink.level = LEVELS[settings.level]
        self._sink.keys = settings.redact
        for name in self._sink.levels.keys() - dict(settings.levels).keys():
            logging.getLogger(name).setLevel(logging.NOTSET)
        self._sink.levels = dict(settings.levels)
        set_levels(self._sink.levels)

    def hide(self, secrets: Iterable[str]) -> None:
        """Never show these texts."""
        self._sink.secrets.update(secret for secret in secrets if secret)

    def info(self, event: str, **fields: Any) -> None:
        self.write("info", event, **fields)

    def warning(self, event: str, **fields: Any) -> None:
        self.write("warning", event, **fields)

    def error(self, event: str, **fields: Any) -> None:
        self.write("error", event, **fields)

    def write(self, level: str, event: str, **fields: Any) -> None:
        """Write one record if its level is enabled; drop it rather than wait."""
        sink = self._sink
        if not self.is_wanted(level):
            return
        if count := sink.dropped:
            lost = f"{count} records of the log were" if count > 1 else "a record of the log was"
            error = f"{lost} lost, since its reader is too slow"
            if self._put("warning", "log.dropped", {"count": count, "error": error}):
                sink.dropped = 0
        if not self._put(level, event, fields):
            sink.dropped += 1
            sink.lost += 1

    def is_wanted(self, level: str) -> bool:
        return LEVELS[level] <= self._sink.level

    def record(self, level: str, event: str, **fields: Any) -> LogRecord:
        """Return the record that `write` would write: short, and without secrets."""
        everything = {**self._fields, "pid": os.getpid(), **fields}
        record = LogRecord(event, level, time.time(), everything)
        return redacted(record, self._sink.keys, self._sink.secrets)

    def without_secrets(self, text: str) -> str:
        """Return a text as a record would show it."""
        return text_without_secrets(text, self._sink.secrets)

    def _put(self, level: str, event: str, fields: dict[str, Any]) -> bool:
        return self._sink.write(self._sink.render(self.record(level, event, **fields)))


def open_log(settings: LoggingSettings, *, process: str, **fields: Any) -> Log:
    """Open the log of this process and its children."""
    form = settings.format if settings.format != "auto" else _format_for_stderr()
    if form == "journal":
        write, number = _to_socket(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM), JOURNAL)
        render: Callable[[LogRecord], bytes] = as_journal
    else:
        write, number = _to_descriptor(2)
        as_read = as_lines if os.isatty(2) else as_text
        render = as_read if form == "text" else as_json
    level = LEVELS[settings.level]
    levels = dict(settings.levels)
    set_levels(levels)
    sink = Sink(write, render, number, level, settings.redact, levels)
    return Log(sink, {"process": process, **fields})


def set_levels(levels: Mapping[str, str]) -> None:
    """Give Python's loggers these levels, in this process and those that it forks."""
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level.upper())


def _format_for_stderr() -> str:
    """Choose the format that suits stderr."""
    with contextlib.suppress(OSError):
        state = os.fstat(2)
        if os.environ.get("JOURNAL_STREAM") == f"{state.st_dev}:{state.st_ino}":
            return "journal"
    return "text" if os.isatty(2) else "json"


def _to_socket(
    end: socket.socket, address: str | None = None
) -> tuple[Callable[[bytes], bool], int]:
    """Write whole records to a socket, whose flags others may share, without waiting."""

    def write(data: bytes) -> bool:
        flags = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
        try:
            return end.sendmsg([data], [], flags, address) == len(data)
        except OSError:
            return False

    return write, end.fileno()


def _to_descriptor(number: int) -> tuple[Callable[[bytes], bool], int]:
    """Write to a descriptor without waiting, and without changing it for others.

    A pipe or terminal is opened again, since O_NONBLOCK on the inherited descriptor would apply to
    every process that shares it. A socket takes a flag with each write. A file never blocks.
    """
    try:
        mode = os.fstat(number).st_mode
    except OSError:
        return (lambda data: True), number
    if stat.S_ISSOCK(mode):
        return _to_socket(socket.socket(fileno=os.dup(number)))
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        with contextlib.suppress(OSError):
            number = os.open(f"/proc/self/fd/{number}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    return (lambda data: _write(number, data)), number


def _write(number: int, data: bytes) -> bool:
    try:
        if not select.select([], [number], [], 0)[1]:
            return False
        return os.write(number, data) == len(data)
    except (OSError, ValueError):
        return False
