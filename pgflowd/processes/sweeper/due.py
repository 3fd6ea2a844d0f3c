"""
Does what is due: frees tasks whose wait is over, gives them the signals that have come, and starts
and ends runs whose time has come, and lets schedules tick (`ticks`).

It sleeps until the next moment that the database knows of, or until the listener hears that
something is due earlier; `core.sweeper` decides when it looks, and what its row says meanwhile. A
task or run that cannot go on is tried again by the database; until then it is a problem, E324.

All is done in one call, as long as that succeeds. Once it fails, what is due of each kind has a
call and a portion of its own; what fails alone is postponed, and is such a problem, too.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg

from pgflowd.core.metrics.definitions import SCHEDULE_TICKS, UNDO_RUNS, Counters
from pgflowd.core.statuses import RunStatus
from pgflowd.core.sweeper import NEVER, DueLooks, PartState, whole
from pgflowd.core.text import counted, duration, short_id
from pgflowd.core.ticks import planned_ticks
from pgflowd.db.connection import failure_of, sqlstate_of
from pgflowd.db.waits import (
    KINDS,
    DueLook,
    DueSchedule,
    PlannedTicks,
    due_schedules,
    due_writers,
    not_done,
    postpone,
    postpone_due,
    process_due,
    schedule_troubles,
    sweeper_sleeps,
    tick,
)
from pgflowd.errors import PgflowdError, Problem

if TYPE_CHECKING:
    from pgflowd.processes.sweeper.main import Sweeper

# Lets schedules tick: computes their ticks up to the database's time, and has it start the runs.
#
# Several sweepers may do so at once, and die at any moment: the database lets one of them begin,
# and starts each tick's run once. A schedule that starts no run is a problem, E327.
MAX_SCHEDULES = 60  # of one look, so that nothing else that is due waits for long
TOGETHER = 20  # in one transaction: a commit takes longer than a start
UNREADABLE_S = 60.0  # until one that cannot be computed is looked at again: zones may be installed
NEXT = "see `pgflowd schedules list`; `pgflowd schedules fire NAME` starts a run by hand"


class Ticks:
    """The schedules that are due, and those that do not start their runs."""

    def __init__(self, execute: Callable[..., Any], counters: Counters) -> None:
        self._execute = execute
        self._counters = counters
        self._failed: set[str] = set()  # schedules that could not start runs, in this look
        self.problems: list[Problem] = []
        self._together = whole(TOGETHER)

    def do(self, conn: psycopg.Connection[Any]) -> int:
        """Let those tick that are due; return how many have."""
        self._failed.clear()
        due = self._execute(conn, due_schedules(MAX_SCHEDULES))
        planned = [plan for schedule in due if (plan := self._plan(conn, schedule))]
        size = self._together.size
        some = [planned[at : at + size] for at in range(0, len(planned), size)]
        ticked = [plan for each in some for plan in self._tick(conn, each)]
        self._together = self._together.grown()
        for plan in ticked:
            if plan.fires and plan.due.name not in self._failed:
                self._counters.count(SCHEDULE_TICKS, plan.due.name, "started", by=len(plan.fires))
        return len(ticked) + len(due) - len(planned)

    def _tick(self, conn: psycopg.Connection[Any], some: list[PlannedTicks]) -> list[PlannedTicks]:
        """Let these tick together; after a failure fewer, and one that fails alone is postponed."""
        try:
            ticked: list[PlannedTicks] = self._execute(conn, tick(some))
            return ticked
        except (psycopg.Error, PgflowdError) as error:
            if conn.closed or self._together.size > 1:
                self._together = self._together.cut()
                raise
            self._execute(conn, postpone(some[0].due, failure_of(error)[1], UNREADABLE_S))
            return []

    def check(self, conn: psycopg.Connection[Any]) -> None:
        """Note which schedules do not start their runs."""
        found = self._execute(conn, schedule_troubles())
        self.problems = []
        if found:
            name, why = found[0]
            have = f"{counted(len(found), 'schedule')} {'has' if len(found) == 1 else 'have'}"
            text = f"{have} not started a run in time; {name}: {why}"
            self.problems = [Problem("E327", text, "database", NEXT)]

    def _plan(self, conn: psycopg.Connection[Any], due: DueSchedule) -> PlannedTicks | None:
        """What it is to start; one that cannot be read is postponed."""
        try:
            fires, next_at = planned_ticks(
                due.cron, due.timezone, due.ticks_from, due.read_at, due.catchup
            )
        except ValueError as error:
            self._execute(conn, postpone(due, str(error), UNREADABLE_S))
            return None
        return PlannedTicks(due, fires, next_at)

    def on_not_started(self, detail: str) -> None:
        """The database could not start a run of a schedule; its row keeps the error."""
        name = json.loads(detail)["schedule"]
        self._failed.add(name)
        self._counters.count(SCHEDULE_TICKS, name, "failed")


MAX_ROWS = 100  # waits, signals and runs, of one call; of runs, a hundred times as many tasks
PAUSES_S = (0.25, 30.0)  # until a kind is tried again whose call failed
FAILED_S = 0.5  # until schedules are looked at again whose ticks failed
LOCKED_S = 0.05  # until a schedule is looked at again that somebody else has
SHOWN_S = 30.0  # a problem is shown so long after the next try
TRY_AGAIN = (
    "its flow may have changed, or its queue be missing: see the error; it is tried again each"
    " minute"
)
TOO_MUCH = "cancel it, or raise [database] statement_timeout and reload; it is tried again in "


class DueWork:
    """The looks, and the tasks that could not be freed."""

    def __init__(self, sweeper: Sweeper) -> None:
        self._execute, self._log = sweeper.execute, sweeper.log
        self.undos: list[dict[str, Any]] = []  # that have ended, by the current call
        self.looks = DueLooks(sweeper.settings.recovery.recovery_interval_s)
        self.counters = Counters(SCHEDULE_TICKS, UNDO_RUNS)
        self.ticks = Ticks(sweeper.execute, self.counters)
        self._sweeper_id = uuid4()
        self._not_done: dict[
            tuple[str, str | None, int | None], tuple[float, str]
        ] = {}  # until when it is shown, and why
        self._again_s: float | None = None  # until what was postponed last is tried again
        self._kinds: dict[str, PartState] = {}  # those that have a call of their own

    def on_not_done(self, detail: str) -> None:
        """The database could not free a task, start or end a run, or let a schedule tick."""
        if "schedule" in json.loads(detail):
            self.ticks.on_not_started(detail)
            return
        task = not_done(detail)
        self._again_s = task.again_s
        shown_s = SHOWN_S + (60.0 if task.again_s is None else task.again_s)
        self._not_done[task[:3]] = time.monotonic() + shown_s, task.error

    def problems(self, now: float) -> list[Problem]:
        """What could not be freed lately, as one problem, and schedules that start no runs."""
        lately = {task: each for task, each in self._not_done.items() if each[0] > now}
        self._not_done = lately
        if not lately:
            return self.ticks.problems
        (run_id, step, index), (_, why) = next(reversed(lately.items()))
        name = short_id(run_id) if step is None else f"{short_id(run_id)}/{step}#{index}"
        text = f"{counted(len(lately), 'task or run')} cannot go on although its time has come; the"
        text += f" last one, {name}: {why}"
        remedy = TRY_AGAIN if self._again_s is None else TOO_MUCH + duration(self._again_s)
        return [Problem("E324", text, "database", remedy), *self.ticks.problems]

    def do(self, conn: psycopg.Connection[Any]) -> BaseException | None:
        """Look; then put the row up, take it down, or leave it. Return why a kind is not done."""
        looks = self.looks
        began_at = time.monotonic()
        if looks.writers:
            looks.still_open(self._execute(conn, due_writers(looks.writers)))
        self.undos.clear()  # notices of a call that was rolled back do not count
        look, failure = self._process(conn)
        for told in self.undos:
            status = told.pop("status")
            self.counters.count(UNDO_RUNS, told["flow"], status)
            if status == RunStatus.UNDONE:
                self._log.info(f"run.{status}", **told)
            else:
                remedy = f"`pgflowd runs undo {short_id(told['run'])} --again` undoes what is left"
                self._log.warning(f"run.{status}", next=remedy, **told)
        done, next_s = look.done, look.next_s
        if look.has_ticks:
            ticked, again_s = 0, LOCKED_S
            try:
                ticked = self.ticks.do(conn)
            except (psycopg.Error, PgflowdError) as error:
                if conn.closed:
                    raise
                failure, again_s = failure or error, FAILED_S
            done = None if done is None else done + ticked
            next_s = 0.0 if ticked else min(again_s, again_s if next_s is None else next_s)
        now = time.monotonic()
        looks.looked(began_at, now, done, next_s)
        for_s = looks.next_row_s(now)
        if for_s is None:
            return failure
        was_awake = looks.sleeps_until <= now
        self._execute(conn, sweeper_sleeps(self._sweeper_id, for_s))
        if was_awake:
            looks.lay_down(now, for_s, self._execute(conn, due_writers(None)))
        else:
            looks.shortened(now, for_s)
        return failure

    def _process(self, conn: psycopg.Connection[Any]) -> tuple[DueLook, BaseException | None]:
        """Do what is due: all kinds together, or, while one of them fails, each by itself."""
        if not self._kinds:
            try:
                return self._execute(conn, process_due(MAX_ROWS)), None
            except (psycopg.Error, PgflowdError):
                self._kinds = {kind: PartState(0.0, whole(MAX_ROWS).cut()) for kind in KINDS}
                raise
        failure: BaseException | None = None
        found = []
        for kind, state in self._kinds.items():
            if state.retry_at > time.monotonic():
                continue
            try:
                found.append(self._process_kind(conn, kind, state))
            except (psycopg.Error, PgflowdError) as error:
                text = failure_of(error)[1]
                state.failed(time.monotonic(), {"text": text}, sqlstate_of(error), *PAUSES_S)
                if conn.closed:
                    raise
                failure = failure or error
        waits_s = [each.retry_at - time.monotonic() for each in self._kinds.values() if each.error]
        if all(each.portion.is_whole and not each.error for each in self._kinds.values()):
            self._kinds = {}
        known_s = [each.next_s for each in found if each.next_s is not None]
        done = [each.done for each in found if each.done is not None]
        next_s = max(0.0, min([*known_s, *waits_s], default=NEVER))
        is_busy = bool(found) and not done  # another sweeper is at it
        look = DueLook(
            None if is_busy else sum(done),
            None if next_s == NEVER else next_s,
            any(each.has_ticks for each in found),
        )
        return look, failure

    def _process_kind(self, conn: psycopg.Connection[Any], kind: str, state: PartState) -> DueLook:
        if state.put_off:
            self._execute(conn, postpone_due(kind, state.put_off))
            state.put_off = ""
        look: DueLook = self._execute(conn, process_due(state.portion.size, kind))
        state.succeeded(time.monotonic())
        return look
