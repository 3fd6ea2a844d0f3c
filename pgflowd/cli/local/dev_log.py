"""
Turns the daemon's log into the short lines that `pgflowd dev` prints.

The daemon logs JSON into a pipe. Printed are: runs, the output of handlers, failures with the last
calls in the user's code, changed options, and warnings and errors of the daemon. A line that is not
one of our records is printed unchanged.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import IO, Any

from pgflowd.cli.app import App
from pgflowd.cli.terminal.traceback_view import call_lines, error_lines, folded_lines
from pgflowd.core.statuses import RunStatus
from pgflowd.core.text import duration, short_id
from pgflowd.core.traceback_text import last_calls

ENVIRON = {"PGFLOWD__LOGGING__FORMAT": "json", "PGFLOWD__LOGGING__LEVEL": "debug"}
READ_TIMEOUT_S = 2.0  # for the rest of the log, after the daemon has ended
_RECORD_KEYS = {"time", "level", "event", "process", "pid"}
_OUTPUT = {"task.log", "task.output"}
_FAILED_ATTEMPTS = {"task.failed", "task.timed_out", "task.crashed"}
_RUN_EVENTS = {
    "run.started", "run.completed", "run.failed", "run.cancelled", "run.undone", "run.undo_failed",
}  # fmt: skip
_REDUNDANT = {"step.failed", "child.exited"}  # other records have the same facts and more


@contextmanager
def log_pipe(write: Callable[[str], None]) -> Iterator[IO[bytes]]:
    """Yield a pipe for the daemon's log, whose lines are given to `write` as they come."""
    reading, writing = os.pipe()
    lines = os.fdopen(reading, encoding="utf-8", errors="replace")
    reader = threading.Thread(target=_write_lines, args=(lines, write), daemon=True)
    reader.start()
    try:
        with os.fdopen(writing, "wb") as log:
            yield log
    finally:
        reader.join(timeout=READ_TIMEOUT_S)  # a stray process may keep the pipe open
        if not reader.is_alive():
            lines.close()


def _write_lines(lines: IO[str], write: Callable[[str], None]) -> None:
    for line in lines:
        try:
            write(line.rstrip("\n"))
        except OSError:  # the output is closed; the daemon must go on
            continue


def print_record(app: App, line: str) -> None:
    """Print what is to be seen of a line of the log; further lines of its text are indented."""
    try:
        record = json.loads(line)
        is_ours = record.keys() >= _RECORD_KEYS  # a user's module may also print JSON
        at = datetime.fromisoformat(record["time"]).astimezone() if is_ours else None
        text = _text(record["event"], record) if is_ours else None
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        is_ours = False
    if not is_ours:
        app.print(app.out.folded(app.shorten_paths(app.hide(line))))
        return
    if text is None:
        return
    head = f"{at:%H:%M:%S} "
    room = app.out.width and max(app.out.width - len(head), 20)
    if record["event"] in _FAILED_ATTEMPTS:
        text = "\n".join(error_lines(app, text))
    for folded in folded_lines(app, text, room):
        app.print(f"{head}{folded}")
        head = " " * len(head)
    calls = last_calls(record.get("traceback"), str(record.get("error")))
    for shown in call_lines(app, calls, len(head)):
        app.print(shown)


def _text(event: str, record: dict[str, Any]) -> str | None:
    flow = record.get("flow")
    if event in _OUTPUT:
        return f"{_name(record)}: {record.get('text')}"
    if event in _FAILED_ATTEMPTS:
        code = record.get("code")
        failed = "" if event == "task.timed_out" else "failed: "
        task = f"task {flow}/{_task(record)} {failed}{record.get('error') or ''}"
        return f"{code} {task}" if code else task
    if event in _RUN_EVENTS:
        return f"run {short_id(record.get('run', ''))} {flow} {_ended(event, record)}"
    if event == "flow.changed":  # in the database, by a worker that starts
        return f"{flow}: {record.get('text')}"
    if event == "listener.regained":
        return "the database is back"
    if event in _REDUNDANT or record.get("level") not in {"warning", "error"}:
        return None
    where = f"{record['place']}  " if record.get("place") else ""
    text = str(next(filter(None, map(record.get, ("error", "text", "reason"))), event))
    code = record.get("code")
    text = text.removeprefix(f"{code} ")
    words = f"{f'{code} ' if code else ''}{_subject(record, text)}{text}"
    remedy = f"; {record['next']}" if record.get("next") else ""
    return where + words + remedy


def _subject(record: dict[str, Any], text: str) -> str:
    """The task, step, flow or child that a record is about, unless its text names that."""
    flow = record.get("flow")
    if not flow:
        child = record.get("child")
        return f"{child}: " if child and not text.startswith(f"{child} ") else ""
    return "" if text.startswith(f"{flow}:") else f"{_name(record)}: "


def _name(record: dict[str, Any]) -> str:
    """The task, the step, or the flow; a lifespan prints without a task."""
    inner = _task(record) if record.get("task") else record.get("step")
    return f"{record.get('flow')}/{inner}" if inner else str(record.get("flow"))


def _task(record: dict[str, Any]) -> str:
    return str(record.get("task", "?")).removesuffix("#0")


def _ended(event: str, record: dict[str, Any]) -> str:
    word, took_s = RunStatus(event.partition(".")[2]), record.get("took_s")
    text = word.replace("_", " ")
    if took_s is not None:
        is_good = word in (RunStatus.COMPLETED, RunStatus.UNDONE)
        text += f" {'in' if is_good else 'after'} {duration(took_s)}"
    if word is RunStatus.UNDO_FAILED:
        text += f": {record.get('error')}; {record.get('next')}"
    return text
