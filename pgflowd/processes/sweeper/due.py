"""
Does what is due: frees tasks whose wait is over, gives them the signals that have come, and starts
and ends runs whose time has come, and lets schedules tick (`ticks`).

It sleeps until the next moment that the database knows of, or until the listener hears that
something is due earlier; `core.due_looks` decides when it looks, and what its row says meanwhile. A
task or run that cannot go on is tried again by the database; until then it is a problem, E324.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psycopg

from pgflowd.core.due_looks import DueLooks
from pgflowd.core.metrics.counters import Counters
from pgflowd.core.metrics.definitions import SCHEDULE_TICKS, UNDO_RUNS
from pgflowd.core.statuses import RunStatus
from pgflowd.core.text import counted, short_id
from pgflowd.db.due import due_writers, not_done, process_due, sweeper_sleeps
from pgflowd.errors import Problem
from pgflowd.host.logs import Log
from pgflowd.processes.sweeper.ticks import Ticks, is_of_schedule

MAX_ROWS = 200  # waits, signals and runs, of one call
LOCKED_S = 0.05  # until a schedule is looked at again that somebody else has
SHOWN_S = 90.0  # a task that cannot be freed is tried again within this time
TRY_AGAIN = (
    "its flow may have changed, or its queue be missing: see the error; it is tried again each"
    " minute"
)


class DueWork:
    """The looks, and the tasks that could not be freed."""

    def __init__(self, longest_s: float, execute: Callable[..., Any], log: Log) -> None:
        self._execute = execute
        self._log = log
        self._undos: list[dict[str, Any]] = []  # that have ended, by the current call
        self._looks = DueLooks(longest_s)
        self.counters = Counters(SCHEDULE_TICKS, UNDO_RUNS)
        self._ticks = Ticks(execute, self.counters)
        self._sweeper_id = uuid4()
        self._not_done: dict[
            tuple[str, str | None, int | None], tuple[float, str]
        ] = {}  # when, and why

    @property
    def look_at(self) -> float:
        return self._looks.look_at

    def connected(self, now: float) -> None:
        self._looks.connected(now)

    def on_notification(self, now: float) -> None:
        self._looks.rung(now)

    def on_not_done(self, detail: str) -> None:
        """The database could not free a task, start or end a run, or let a schedule tick."""
        if is_of_schedule(detail):
            self._ticks.on_not_started(detail)
            return
        task = not_done(detail)
        self._not_done[task[:3]] = time.monotonic(), task.error

    def on_undo_ended(self, detail: str) -> None:
        """The database has ended the undo of a run."""
        self._undos.append(json.loads(detail))

    def problems(self, now: float) -> list[Problem]:
        """What could not be freed lately, as one problem, and schedules that start no runs."""
        lately = {task: each for task, each in self._not_done.items() if each[0] > now - SHOWN_S}
        self._not_done = lately
        if not lately:
            return self._ticks.problems
        (run_id, step, index), (_, why) = next(reversed(lately.items()))
        name = short_id(run_id) if step is None else f"{short_id(run_id)}/{step}#{index}"
        text = f"{counted(len(lately), 'task or run')} cannot go on although its time has come; the"
        text += f" last one, {name}: {why}"
        return [Problem("E324", text, "database", TRY_AGAIN), *self._ticks.problems]

    def check_schedules(self, conn: psycopg.Connection[Any]) -> None:
        """Note which of them do not start their runs, for `problems`."""
        self._ticks.check(conn)

    def do(self, conn: psycopg.Connection[Any]) -> None:
        """Look, if it is time; then put the row up, take it down, or leave it."""
        looks = self._looks
        began_at = time.monotonic()
        if began_at < looks.look_at:
            return
        if looks.writers:
            looks.still_open(self._execute(conn, due_writers(looks.writers)))
        self._undos.clear()  # notices of a call that was rolled back do not count
        look = self._execute(conn, process_due(MAX_ROWS))
        self._log_undos()
        done, next_s = look.done, look.next_s
        if look.has_ticks:
            ticked = self._ticks.do(conn)
            done = None if done is None else done + ticked
            next_s = 0.0 if ticked else min(LOCKED_S, LOCKED_S if next_s is None else next_s)
        now = time.monotonic()
        looks.looked(began_at, now, done, next_s)
        for_s = looks.next_row_s(now)
        if for_s is None:
            return
        was_awake = looks.sleeps_until <= now
        self._execute(conn, sweeper_sleeps(self._sweeper_id, for_s))
        if was_awake:
            looks.lay_down(now, for_s, self._execute(conn, due_writers(None)))
        else:
            looks.shortened(now, for_s)

    def _log_undos(self) -> None:
        for told in self._undos:
            status = told.pop("status")
            self.counters.count(UNDO_RUNS, told["flow"], status)
            if status == RunStatus.UNDONE:
                self._log.info(f"run.{status}", **told)
            else:
                remedy = f"`pgflowd runs undo {short_id(told['run'])} --again` undoes what is left"
                self._log.warning(f"run.{status}", next=remedy, **told)
