"""
Turns the daemon's log into the short lines that `pgflowd dev` prints.

The daemon logs JSON into a pipe. Printed are: runs, the output of handlers, failures with their
place, and warnings and errors of the daemon. A line that is not one of our records is printed
unchanged.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import IO, Any

from pgflowd.core.statuses import RunStatus
from pgflowd.core.text import duration, short_id

ENVIRON = {"PGFLOWD__LOGGING__FORMAT": "json", "PGFLOWD__LOGGING__LEVEL": "debug"}
READ_TIMEOUT_S = 2.0  # for the rest of the log, after the daemon has ended
_RECORD_KEYS = {"time", "level", "event", "process", "pid"}
_OUTPUT = {"task.log", "task.output"}
_FAILED_ATTEMPTS = {"task.failed", "task.timed_out", "task.crashed"}
_RUN_EVENTS = {"run.started", "run.completed", "run.failed", "run.cancelled"}
_REDUNDANT = {"step.failed", "child.exited"}  # other records have the same facts and more


@contextmanager
def log_pipe(write: Callable[[str], None]) -> Iterator[IO[bytes]]:
    """Yield a pipe for the daemon's log; its important lines are printed as they come."""
    reading, writing = os.pipe()
    lines = os.fdopen(reading, encoding="utf-8", errors="replace")
    reader = threading.Thread(target=_write_lines, args=(lines, write), daemon=True)
    reader.start()
    with os.fdopen(writing, "wb") as log:
        yield log
    reader.join(timeout=READ_TIMEOUT_S)  # a stray process may keep the pipe open
    if not reader.is_alive():
        lines.close()


def _write_lines(lines: IO[str], write: Callable[[str], None]) -> None:
    for line in lines:
        text = line_of(line.rstrip("\n"))
        if text:
            try:
                write(text)
            except OSError:  # the output is closed; the daemon must go on
                continue


def line_of(line: str) -> str | None:
    """The text to print for a line of the log, if any."""
    try:
        record = json.loads(line)
        if not record.keys() >= _RECORD_KEYS:  # a user's module may also print JSON
            return line
        at = datetime.fromisoformat(record["time"]).astimezone()
        text = _text(record["event"], record)
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return line
    return f"{at:%H:%M:%S} {text}" if text else None


def _text(event: str, record: dict[str, Any]) -> str | None:
    flow = record.get("flow")
    if event in _OUTPUT:
        return f"{flow}/{str(record.get('task', '?')).removesuffix('#0')}: {record.get('text')}"
    if event in _FAILED_ATTEMPTS:
        code = record.get("code")
        return f"{f'{code} ' if code else ''}task {flow}/{record.get('task')} {_error(record)}"
    if event in _RUN_EVENTS:
        return f"run {short_id(record.get('run', ''))} {flow} {_ended(event, record)}"
    if event == "listener.regained":
        return "the database is back"
    if event in _REDUNDANT or record.get("level") not in {"warning", "error"}:
        return None
    where = f"{record['place']}  " if record.get("place") else ""
    text = str(next(filter(None, map(record.get, ("error", "text", "reason"))), event))
    code = record.get("code")
    words = f"{code} {text}" if code and not text.startswith(str(code)) else text
    remedy = f"; {record['next']}" if record.get("next") else ""
    return where + words + remedy


def _error(record: dict[str, Any]) -> str:
    error = str(record.get("error") or "")
    return error if record.get("code") else f"failed: {error}"


def _ended(event: str, record: dict[str, Any]) -> str:
    word, took_s = event.partition(".")[2], record.get("took_s")
    if took_s is None:
        return word
    return f"{word} {'in' if word == RunStatus.COMPLETED else 'after'} {duration(took_s)}"
