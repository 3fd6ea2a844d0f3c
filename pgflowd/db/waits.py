"""
The queries about what waits: tasks, stalled ones too, signals, limits and schedules.

`process_due` does for the sweeper what is due in the database: it gives signals to who waits for
them, and frees who has waited enough. It computes the ticks of schedules, and `tick` starts their
runs. `arm` and `disarm` put up and take down doorbells (docs/background/doorbells.md, section 4).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from pgflowd.core.definition.schedule import taken_problem
from pgflowd.core.documents.flows import ListedLimit, StalledTask
from pgflowd.core.documents.run_tasks import (
    HeldTask,
    ListedSignal,
    OpenTask,
    SavedCheckpoint,
    Undecided,
)
from pgflowd.core.documents.schedules import ListedSchedule
from pgflowd.core.statuses import TaskStatus
from pgflowd.db.query import Query, Rows, columns_of, document, document_of, documents, only
from pgflowd.errors import Problem


def list_tasks(
    run_id: UUID | None = None,
    flow_slug: str | None = None,
    statuses: Sequence[str] = (),
    most: int = 20,
    needs: Sequence[str] = (),
) -> Query[list[OpenTask]]:
    """Return open tasks, the oldest first; with `needs` those that wait for a worker with these."""
    params = (run_id, flow_slug, list(statuses) or None, most, list(needs) or None)
    return documents(OpenTask, "pgflowd.list_tasks(%s, %s, %s, %s, %s::text[])", params)


def inbox(most: int) -> Query[list[OpenTask]]:
    """Return the tasks that wait for somebody, the oldest first."""
    return documents(OpenTask, "pgflowd.list_inbox(%s)", (most,))


def waits_of(run_id: UUID, most: int) -> Query[list[OpenTask]]:
    """Return the tasks of a run that wait, the oldest first."""
    return list_tasks(run_id, statuses=[TaskStatus.WAITING, TaskStatus.QUARANTINED], most=most)


def list_checkpoints(run_id: UUID) -> Query[list[SavedCheckpoint]]:
    """Return what the tasks of a run have saved."""
    source = "pgflowd.list_checkpoints(%s)"
    return documents(SavedCheckpoint, source, (run_id,), data="data::text")


def waiting_tasks() -> Query[dict[str, dict[str, int]]]:
    """Return how many tasks of each flow wait, by kind of wait, of flows with such tasks."""

    def read(rows: Rows) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for flow, kind, count in rows:
            found.setdefault(flow, {})[kind] = count
        return found

    return Query("select flow_slug, kind, waiting from pgflowd.waiting_tasks()", (), read)


def undecided_tasks() -> Query[list[Undecided]]:
    """Return what waits for a person: tasks in quarantine, and needs that no worker has."""
    return documents(Undecided, "pgflowd.undecided_tasks()", run_id="run_id::text")


def claim(
    flow_slug: str | None, caps: Sequence[str], lease_s: float, actor: str | None
) -> Query[HeldTask | None]:
    """Take a task of a flow, or of any, that needs these caps, or nothing, if there is one."""
    given: tuple[Any, ...] = (list(caps), timedelta(seconds=lease_s), actor)
    source = "pgflowd.task_claim(null, %s::text[], %s, %s) as task"
    if flow_slug is not None:
        source, given = _OLDEST_VERSION, (flow_slug, *given)
    held = documents(HeldTask, source, given, flow_slug="task.flow_slug")
    return held.then(lambda found: found[0] if found else None)


_OLDEST_VERSION = """
unnest(pgflowd.flows_of(%s)) as version (flow_slug)
 cross join lateral pgflowd.task_claim(version.flow_slug, %s::text[], %s, %s) as task
 limit 1
"""  # of the oldest version that has one; of those after it none is asked for


# stalled tasks


def stalled_tasks(stale_threshold_s: float) -> Query[list[StalledTask]]:
    """Return the stalled tasks, oldest first."""
    params = (timedelta(seconds=stale_threshold_s),)
    return documents(StalledTask, "pgflowd.stalled_tasks(%s)", params)


# signals


def list_signals(
    run_id: UUID | None = None, only_open: bool = False, most: int = 20
) -> Query[list[ListedSignal]]:
    """Return the newest signals of a run, or of all."""
    return documents(ListedSignal, "pgflowd.list_signals(%s, %s, %s)", (run_id, only_open, most))


def get_signal(signal_id: int) -> Query[tuple[ListedSignal, bool] | None]:
    """Return a signal, and whether a task waits for one of this name."""

    def read(rows: Rows) -> tuple[ListedSignal, bool] | None:
        return (document_of(ListedSignal, rows[0]), rows[0][-1]) if rows else None

    return Query(_GET, (signal_id,), read)


_GET = f"""
select {columns_of(ListedSignal)}, exists (
         select from pgflowd.waits as wait
          where wait.run_id = signal.run_id and wait.kind = 'signal' and wait.name = signal.name)
  from pgflowd.signals as signal where signal_id = %s
"""


# limits: their places, and who waits for one


def list_limits(flow_slug: str, most: int) -> Query[list[ListedLimit]]:
    """Return the limits of a flow that are in use, those for which most tasks wait first."""
    return documents(ListedLimit, "pgflowd.list_limits(%s, %s)", (flow_slug, most), key="limit_key")


def refill_limits(after_key: str | None, max_keys: int) -> Query[str | None]:
    """Pass on what the dead have left, of some limits; return behind which to go on."""
    return Query("select pgflowd.refill_limits(%s, %s)", (after_key, max_keys), only)


NOT_DONE = "PF013"  # the notice that something due could not be done, and is tried again
UNDO_ENDED = "PF015"  # the notice that the undo of a run has ended
KINDS = ("signals", "limits", "runs", "awaits", "waits")  # of what is due, in their order


class DueLook(NamedTuple):
    """How much was done, None while another sweeper is at it; in how many seconds more is due."""

    done: int | None
    next_s: float | None
    has_ticks: bool  # schedules are due


class NotDone(NamedTuple):
    """A task that could not be freed, or a run that could not begin or end, and why."""

    run_id: str
    step: str | None  # None: the run itself
    task_index: int | None
    error: str
    again_s: float | None  # until it is tried again, where it was postponed; None: a minute


def process_due(max_rows: int = 200, kind: str | None = None) -> Query[DueLook]:
    """Do what is due, of one kind or of all."""
    return document(DueLook, "pgflowd.process_due(%s, %s)", (max_rows, kind))


def postpone_due(kind: str, why: str) -> Query[None]:
    """Postpone what `process_due(1, kind)` could not do; a notice names it."""
    return Query("select pgflowd.postpone_due(%s, %s)", (kind, why), lambda rows: None)


def due_late() -> Query[float]:
    """For how many seconds the first thing has been due that is not done."""
    return Query("select pgflowd.due_late()", (), only)


def sweeper_sleeps(sweeper_id: UUID, for_s: float) -> Query[None]:
    """Let whoever makes something due within this time notify."""
    query = "select pgflowd.sweeper_sleeps(%s, %s)"
    return Query(query, (sweeper_id, for_s), lambda rows: None)


def due_writers(known: Sequence[str] | None) -> Query[tuple[str, ...]]:
    """Return the open transactions that may have missed a sleeper's row; of `known`, if given."""
    query = "select pgflowd.due_writers(%s::text[])"
    return Query(query, (None if known is None else list(known),), lambda rows: tuple(only(rows)))


def not_done(detail: str) -> NotDone:
    """Read the detail of that notice."""
    told = json.loads(detail)
    names = ("step", "task_index", "error", "again_s")
    return NotDone(told["run"], *map(told.get, names))


# doorbells


def arm(queue: str, owner: UUID) -> Query[bool]:
    """Let messages sent to this queue notify; return whether they did not before."""
    return Query("select pgflowd.arm(%s, %s)", (queue, owner), only)


def arm_sleepers(sleepers: Sequence[tuple[str, str]]) -> Query[tuple[str, ...]]:
    """Keep the doorbells of sleepers (queue, owner) up; return the queues of lost ones."""
    query = """
    select sleeper.queue from unnest(%s::text[], %s::uuid[]) as sleeper (queue, owner)
     where pgflowd.arm(sleeper.queue, sleeper.owner)
    """
    queues, owners = [queue for queue, _ in sleepers], [owner for _, owner in sleepers]
    return Query(query, (queues, owners), lambda rows: tuple(row[0] for row in rows))


def disarm(queue: str, owner: UUID) -> Query[None]:
    """Take the owner's doorbell down."""
    return Query("select pgflowd.disarm(%s, %s)", (queue, owner), lambda rows: None)


def writers(queue: str, known: Sequence[str] | None) -> Query[tuple[str, ...]]:
    """Return the open transactions that may have sent messages unrung; of `known`, if given."""
    params = (queue, None if known is None else list(known))
    query = "select pgflowd.writers(%s, %s::text[])"
    return Query(query, params, lambda rows: tuple(only(rows)))


class DueSchedule(NamedTuple):
    """A schedule whose ticks are to be computed, from `ticks_from` to `read_at`."""

    name: str
    cron: str
    timezone: str
    catchup: str
    due_at: datetime
    ticks_from: datetime
    read_at: datetime


class ScheduleTrouble(NamedTuple):
    """A schedule that does not start its runs, and why."""

    name: str
    error: str


def list_schedules(flow_slug: str | None = None) -> Query[list[ListedSchedule]]:
    """Return all schedules, or those of one flow, by their names."""
    columns = {"input": "input::text", "last_run_id": "last_run_id::text"}
    return documents(ListedSchedule, "pgflowd.list_schedules(%s)", (flow_slug,), **columns)


def taken_names(flow_slug: str, names: Sequence[str]) -> Query[list[Problem]]:
    """Return a problem for each schedule of a flow's code whose name somebody else has."""

    def read(rows: Rows) -> list[Problem]:
        return [taken_problem(name, flow_slug, owner, origin) for name, owner, origin in rows]

    return Query(_TAKEN, (list(names), flow_slug), read)


def due_schedules(max_rows: int) -> Query[list[DueSchedule]]:
    """Return the schedules that are due."""
    return documents(DueSchedule, "pgflowd.due_schedules(%s)", (max_rows,))


class PlannedTicks(NamedTuple):
    """What a schedule is to start, and when it ticks next."""

    due: DueSchedule
    fires: Sequence[datetime]
    next_at: datetime


def tick(planned: Sequence[PlannedTicks]) -> Query[list[PlannedTicks]]:
    """Let some tick, in one transaction; return those that did, as others may be quicker."""
    one = "select %s::int, pgflowd.tick(%s, %s, %s, %s::timestamptz[])"
    params = [
        (at, each.due.name, each.due.due_at, each.next_at, list(each.fires))
        for at, each in enumerate(planned)
    ]
    flat = [value for values in params for value in values]
    query = " union all ".join([one] * len(planned))
    return Query(query, flat, lambda rows: [planned[at] for at, has_ticked in rows if has_ticked])


def postpone(due: DueSchedule, error: str, for_s: float) -> Query[bool]:
    """Look at a schedule again later, since its ticks cannot be computed."""
    query = "select pgflowd.postpone_schedule(%s, %s, %s, %s)"
    return Query(query, (due.name, due.due_at, error, for_s), only)


def schedule_troubles() -> Query[list[ScheduleTrouble]]:
    """Return the schedules that do not start their runs."""
    return documents(ScheduleTrouble, "pgflowd.schedule_troubles()")


_TAKEN = """
select name, flow_slug, origin from pgflowd.list_schedules()
 where name = any (%s) and (flow_slug <> %s or origin <> 'code')
"""
