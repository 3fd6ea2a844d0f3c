"""
Dev log: the daemon's log as the terminal of `pgflowd dev` shows it: short, and by the clock.

The daemon logs JSON into a pipe of ours. Of that, people see what they want to know while they
change a flow: runs, what handlers print and log, what failed and where, and all trouble of the
daemon itself. What is no record of ours is shown as it is.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import IO, Any

from pgflowd.core.text import short_id, spoken

ENVIRON = {"PGFLOWD__LOGGING__FORMAT": "json", "PGFLOWD__LOGGING__LEVEL": "debug"}
PATIENCE_S = 2.0
_OURS = {"time", "level", "event", "process", "pid"}
_WORDS = {"task.log", "task.output"}
_ATTEMPTS = {"task.failed", "task.timed_out", "task.crashed"}
_RUNS = {"run.started", "run.completed", "run.failed", "run.cancelled"}
_AGAIN = {"step.failed", "child.exited"}  # told better by others


@contextmanager
def retold(say: Callable[[str], None]) -> Iterator[IO[bytes]]:
    """Give the end of a pipe for the daemon's log; what is worth it is said, line by line."""
    reading, writing = os.pipe()
    lines = os.fdopen(reading, encoding="utf-8", errors="replace")
    reader = threading.Thread(target=_retell, args=(lines, say), daemon=True)
    reader.start()
    with os.fdopen(writing, "wb") as log:
        yield log
    reader.join(timeout=PATIENCE_S)  # a process that got away may hold the pipe open for ever
    if not reader.is_alive():
        lines.close()


def _retell(lines: IO[str], say: Callable[[str], None]) -> None:
    for line in lines:
        told = line_of(line.rstrip("\n"))
        if told:
            try:
                say(told)
            except OSError:  # nobody reads us; the daemon must not be stopped by that
                continue


def line_of(line: str) -> str | None:
    """A line of the log as it is shown, if it is."""
    try:
        record = json.loads(line)
        if not record.keys() >= _OURS:  # a user's module may write JSON, too
            return line
        at = datetime.fromisoformat(record["time"]).astimezone()
        text = _text(record["event"], record)
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return line
    return f"{at:%H:%M:%S} {text}" if text else None


def _text(event: str, record: dict[str, Any]) -> str | None:
    flow = record.get("flow")
    if event in _WORDS:
        return f"{flow}/{str(record.get('task', '?')).removesuffix('#0')}: {record.get('text')}"
    if event in _ATTEMPTS:
        code = record.get("code")
        return f"{f'{code} ' if code else ''}task {flow}/{record.get('task')} {_error(record)}"
    if event in _RUNS:
        return f"run {short_id(record.get('run', ''))} {flow} {_ended(event, record)}"
    if event == "listener.regained":
        return "the database is back"
    if event in _AGAIN or record.get("level") not in {"warning", "error"}:
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
    return f"{word} {'in' if word == 'completed' else 'after'} {spoken(took_s)}"
