# Made from pgflowd/async_client.py by `make clients`; do not edit.
"""
`Client`, with which applications start runs and follow them.

    client = Client("postgresql://…")
    run = client.start_flow_sync("analyze_website", {"url": url}, timeout=30)

`Client()` uses the libpq environment or, in a handler, the daemon's database.
`Client(conn)` and `conn=` take a connection of psycopg or of another library, or a session
(`db.client_connections`): it is never committed, rolled back or closed, and no run can be waited
for on it, since nothing happens before its commit. A client with a URL keeps a few connections for
the next call. All that it does is to perform operations of `db`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Literal, TypeVar, Unpack

import psycopg

from pgflowd.core import verbs
from pgflowd.core.definition.schedule import Schedule
from pgflowd.core.documents.daemons import ListedDaemon
from pgflowd.core.documents.flows import ListedFlow
from pgflowd.core.documents.run_tasks import OpenTask, RunEvent, StepTask, StepTasksPage
from pgflowd.core.documents.runs import (
    ListedRun,
    PageKey,
    Run,
    RunCount,
    RunPage,
    RunWithStates,
    StepState,
    TimelineEntry,
)
from pgflowd.core.documents.schedules import ListedSchedule
from pgflowd.core.ids import run_id_of
from pgflowd.core.run_filter import (
    RunsWanted,
    checked_limit,
    open_tasks_wanted,
    page_key,
    run_filter,
    statuses_of,
)
from pgflowd.core.statuses import TaskStatus
from pgflowd.core.waiting import Time
from pgflowd.core.wishes import By, Wishes, begins_at, changed, expires_at
from pgflowd.db import operations, run_details
from pgflowd.db.client_connections import (
    NAME,
    ClientConnections,
    Connection,
    Given,
    RunId,
    library_of,
)
from pgflowd.db.connection import connect
from pgflowd.db.daemons import list_daemons
from pgflowd.db.flows import list_flows
from pgflowd.db.following import Follower, Glance
from pgflowd.db.operations import Operation, as_operation, perform
from pgflowd.db.performing import follow_sync, foreign, run_sync
from pgflowd.db.run_details import RunEvents
from pgflowd.db.waits import list_schedules
from pgflowd.errors import Unreachable
from pgflowd.host.open_telemetry import starting

__all__ = [
    "Client",
    "ListedDaemon",
    "ListedFlow",
    "ListedRun",
    "OpenTask",
    "Run",
    "RunCount",
    "RunEvent",
    "RunPage",
    "RunWithStates",
    "StepState",
    "StepTask",
    "StepTasksPage",
]

T = TypeVar("T")


class Client(ClientConnections[Connection]):
    """For plain code and threads."""

    _own = psycopg.Connection

    def __init__(self, database: str | Given = "", *, using: str | None = None) -> None:
        """`using`: in each thread its connection of Django with this name."""
        super().__init__(database, using)

    def start_flow(
        self,
        flow_slug: str,
        input: Any,
        *,
        run_id: RunId | None = None,
        key: str | None = None,
        conn: Given | None = None,
        **wishes: Unpack[Wishes],
    ) -> Run:
        """
        Start a run; with `conn`, at its commit. Raises RunExists, UnknownFlow, MapInput.

        `key`: whoever starts the flow with the same key gets the same run.
        """
        with starting(flow_slug) as trace:
            operation = operations.start(flow_slug, input, run_id, key, wishes, trace)
            return self._perform(operation, conn)

    def start_flows(
        self,
        flow_slug: str,
        inputs: Sequence[Any],
        *,
        run_ids: Sequence[RunId] | None = None,
        conn: Given | None = None,
        **wishes: Unpack[Wishes],
    ) -> list[Run]:
        """Start a run for each input, all or none, in their order."""
        with starting(flow_slug) as trace:
            operation = operations.start_many(flow_slug, inputs, run_ids, wishes, trace)
            return self._perform(operation, conn)

    def start_flow_sync(
        self,
        flow_slug: str,
        input: Any,
        *,
        timeout: float | None = None,
        run_id: RunId | None = None,
        key: str | None = None,
        **wishes: Unpack[Wishes],
    ) -> Run:
        """Start a run and wait for its end. Raises WaitTimeout; the run continues."""
        self._refuse_wait()
        with starting(flow_slug) as trace:
            run = self._perform(
                operations.start(flow_slug, input, run_id, key, wishes, trace, is_awaited=True)
            )
        was_started = not wishes and key is None and trace is None
        follower = Follower([Glance(run.run_id)], timeout, was_started=was_started)
        return run if run.has_ended else self._wait(follower)

    def wait(self, run_id: RunId, *, timeout: float | None = None) -> Run:
        """
        Wait for the end of a run. A failed run is a value. Raises WaitTimeout, NotFound.

        If the database goes away meanwhile, the wait continues when it is back.
        """
        self._refuse_wait()
        return self._wait(Follower([Glance(run_id_of(run_id))], timeout))

    def follow(self, run_id: RunId, *, outputs: bool = True) -> Iterator[TimelineEntry]:
        """
        Yield what happened and happens in a run, as `runs follow` does, until its end. NotFound.

        `outputs=False`: events without outputs, for who may not see them. If the database goes away
        meanwhile, it continues when that is back.
        """
        self._refuse_wait()
        opened = partial(connect, self._own_url(), name=NAME)
        follower = Follower([RunEvents(run_id_of(run_id), outputs=outputs)])
        return follow_sync(follower, opened)

    def get_run(self, run_id: RunId, *, conn: Given | None = None) -> Run:
        """Read a run. Raises NotFound."""
        return self._perform(operations.get(run_id_of(run_id)), conn)

    def get_run_with_states(self, run_id: RunId, *, conn: Given | None = None) -> RunWithStates:
        """Read a run and its steps, as `run.steps["summary"].status`. Raises NotFound."""
        return self._perform(operations.get_with_states(run_id_of(run_id)), conn)

    def runs(
        self,
        *,
        limit: int = 50,
        page: PageKey | str | None = None,
        conn: Given | None = None,
        **wanted: Unpack[RunsWanted],
    ) -> RunPage:
        """
        Read the newest runs that fit, with `page` those behind the `next` of the page before.

        A page may have fewer runs than `limit`, since it examines 20,000. Raises UnknownFlow.
        """
        found = run_details.find_page(run_filter(wanted), checked_limit(limit), page_key(page))
        return self._perform(found, conn)

    def count(self, *, conn: Given | None = None, **wanted: Unpack[RunsWanted]) -> RunCount:
        """Count the runs that fit, at most 1,001, of the newest 20,000. Raises UnknownFlow."""
        return self._perform(run_details.count(run_filter(wanted)), conn)

    def tasks(
        self,
        run_id: RunId | None = None,
        *,
        flow: str | None = None,
        status: str | Sequence[str] = (),
        needs: Sequence[str] = (),
        limit: int = 50,
        conn: Given | None = None,
    ) -> list[OpenTask]:
        """
        Read the open tasks of a run, a flow or all, the oldest first, and what they wait for.

        `needs`: those that wait for a worker with these. Raises UnknownFlow.
        """
        given = open_tasks_wanted(run_id, flow, status, needs)
        found = run_details.find_open_tasks(*given, checked_limit(limit))
        return self._perform(found, conn)

    def step_tasks(
        self,
        run_id: RunId,
        step: str,
        *,
        status: str | Sequence[str] = (),
        limit: int = 50,
        page: int | None = None,
        conn: Given | None = None,
    ) -> StepTasksPage:
        """
        Read the tasks of a step, of any status, in their order, with the last attempt of each.

        `page`: behind the `next` of the page before. Raises NotFound.
        """
        wanted = statuses_of(status, TaskStatus)
        found = run_details.find_tasks(run_id_of(run_id), step, wanted, page, checked_limit(limit))
        return self._perform(found, conn)

    def flows(self, *, with_old: bool = False, conn: Given | None = None) -> list[ListedFlow]:
        """Read all flows, with their open work; `with_old`: also their old versions."""
        return self._perform(as_operation(list_flows(with_old=with_old)), conn)

    def daemons(self, *, conn: Given | None = None) -> list[ListedDaemon]:
        """Read the daemons of all machines, as each has told last."""
        return self._perform(as_operation(list_daemons()), conn)

    def timeline(
        self, run_id: RunId, *, after: datetime | None = None, before: datetime | None = None,
        limit: int | None = None, conn: Given | None = None,
    ) -> list[RunEvent]:  # fmt: skip
        """What happened in a run: from `after`, before `before`, the newest `limit`. NotFound."""
        found = operations.timeline(run_id_of(run_id), after, before, limit)
        return self._perform(found, conn)

    def cancel(
        self, run_id: RunId, *, undo: bool = False, conn: Given | None = None, **by: Unpack[By]
    ) -> Run:
        """
        End a run and its running tasks; a second call changes nothing. Raises RunEnded.

        `undo`: then undo what it has done, whatever its flow says. Raises WrongState.
        """
        return self._perform(perform(verbs.CANCEL, run_id, undo=undo, **by), conn)

    def undo(
        self,
        run_id: RunId,
        *,
        again: bool = False,
        conn: Given | None = None,
        **by: Unpack[By],
    ) -> Run:
        """
        Undo what a run has done, once it has ended. Raises RunEnded, UndoStarted, WrongState.

        `again`: undo what an undo that failed has left.
        """
        return self._perform(perform(verbs.UNDO, run_id, again=again, **by), conn)

    def pause(self, run_id: RunId, *, conn: Given | None = None, **by: Unpack[By]) -> Run:
        """Let no task of a run begin until its resume; its timers stand still. Raises RunEnded."""
        return self._perform(perform(verbs.PAUSE, run_id, **by), conn)

    def resume(self, run_id: RunId, *, conn: Given | None = None, **by: Unpack[By]) -> Run:
        """Let a paused run go on; of another one nothing changes. Raises NotFound."""
        return self._perform(perform(verbs.RESUME, run_id, **by), conn)

    def pause_flow(self, flow_slug: str, *, conn: Given | None = None, **by: Unpack[By]) -> bool:
        """Let no task of a flow begin until its resume; False if it was paused. NotFound."""
        return self._perform(perform(verbs.PAUSE_FLOW, flow_slug, **by), conn)

    def resume_flow(self, flow_slug: str, *, conn: Given | None = None, **by: Unpack[By]) -> bool:
        """Let a paused flow go on; False if it was not paused. Raises NotFound."""
        return self._perform(perform(verbs.RESUME_FLOW, flow_slug, **by), conn)

    def reschedule(
        self,
        run_id: RunId,
        *,
        at: datetime | None = None,
        delay: Time | None = None,
        expires: datetime | Time | None = None,
        after: Sequence[RunId] | None = None,
        after_mode: Literal["completed", "ended"] | None = None,
        singleton: str | None = None,
        conn: Given | None = None,
        **by: Unpack[By],
    ) -> Run:
        """
        Let a planned run begin otherwise, or an open one expire at another time. Raises RunEnded.

        `after`: for which runs it waits instead, none with []; `singleton`: its key, none with "".
        """
        wanted = changed(begins_at(at, delay), expires_at(expires), after, after_mode, singleton)
        return self._perform(perform(verbs.RESCHEDULE, run_id, **wanted, **by), conn)

    def retry(
        self,
        run_id: RunId,
        *,
        even_if_cancelled: bool = False,
        conn: Given | None = None,
        **by: Unpack[By],
    ) -> Run:
        """Start the failed steps of a run again; completed work stays. Raises NotRetryable."""
        operation = perform(verbs.RETRY, run_id, even_if_cancelled=even_if_cancelled, **by)
        return self._perform(operation, conn)

    def delete(self, run_id: RunId, *, actor: str | None = None, conn: Given | None = None) -> int:
        """Delete a run that has ended, and those it started; return how many. Raises WrongState."""
        return self._perform(perform(verbs.DELETE, run_id, actor=actor), conn)

    def signal(
        self,
        run_id: RunId,
        name: str,
        payload: Any = None,
        *,
        dedup: str | None = None,
        actor: str | None = None,
        conn: Given | None = None,
    ) -> None:
        """
        Tell a run something; with `conn`, at its commit. Raises NotFound, RunEnded.

        The first task that waits for this name gets it, now or later. `dedup`: once for each key.
        """
        self._perform(operations.signal(run_id, name, payload, actor, dedup), conn)

    def approve(
        self,
        run_id: RunId,
        step: str,
        *,
        note: str = "",
        dedup: str | None = None,
        actor: str | None = None,
        conn: Given | None = None,
    ) -> None:
        """Approve a step, now or before it asks. Raises NotFound, NotOpen, RunEnded."""
        self._perform(operations.answer(run_id, step, True, note, actor, dedup), conn)

    def reject(
        self,
        run_id: RunId,
        step: str,
        *,
        note: str = "",
        dedup: str | None = None,
        actor: str | None = None,
        conn: Given | None = None,
    ) -> None:
        """Reject a step that is an approval, which fails it. NotFound, NotOpen, RunEnded."""
        self._perform(operations.answer(run_id, step, False, note, actor, dedup), conn)

    def schedules(
        self, flow_slug: str | None = None, *, conn: Given | None = None
    ) -> list[ListedSchedule]:
        """All schedules, or those of one flow, with their next ticks."""
        return self._perform(as_operation(list_schedules(flow_slug)), conn)

    def add_schedule(
        self,
        name: str,
        flow_slug: str,
        schedule: Schedule,
        *,
        actor: str | None = None,
        conn: Given | None = None,
    ) -> bool:
        """Add a schedule under this whole name, or change it; False if it was so. FlowError."""
        added = operations.add_schedule(name, flow_slug, schedule, actor)
        return self._perform(added, conn)

    def remove_schedule(
        self, name: str, *, actor: str | None = None, conn: Given | None = None
    ) -> None:
        """Delete a schedule; one of the code comes back with its next definition. NotFound."""
        self._perform(perform(verbs.REMOVE_SCHEDULE, name, actor=actor), conn)

    def pause_schedule(
        self, name: str, *, actor: str | None = None, conn: Given | None = None
    ) -> bool:
        """Let a schedule have no ticks until its resume; False if it was paused. NotFound."""
        return self._perform(perform(verbs.PAUSE_SCHEDULE, name, actor=actor), conn)

    def resume_schedule(
        self, name: str, *, actor: str | None = None, conn: Given | None = None
    ) -> bool:
        """Let a paused schedule tick from now on; False if it was not paused. NotFound."""
        return self._perform(perform(verbs.RESUME_SCHEDULE, name, actor=actor), conn)

    def fire_schedule(
        self, name: str, *, actor: str | None = None, conn: Given | None = None
    ) -> Run:
        """Start a run of a schedule now, or return the one that has not ended. NotFound."""
        return self._perform(operations.fire_for_run(name, actor), conn)

    def close(self) -> None:
        """Close the connections that are kept; one that was passed in stays open."""
        self._close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self._close()

    def _wait(self, follower: Follower[Run]) -> Run:
        while follower.open:
            try:
                self._perform(follower.wait())
            except Unreachable as error:
                time.sleep(follower.reconnect_s(error))
        (run,) = follower.ended.values()
        return run

    def _perform(self, operation: Operation[T], conn: Given | None = None) -> T:
        given = self._given_or(conn)
        if given is not None:
            library = library_of(given)
            used = foreign(given, library) if library else given
            return run_sync(used, self._checked(used, operation))
        own = self._connections.take() or connect(self._own_url(), name=NAME)
        with self._kept_after(own):
            return run_sync(own, self._checked(self, operation))
