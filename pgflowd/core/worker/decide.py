"""
Decides what a worker does next.

    state, actions = decide(state, events, now)

It promises: never more than `max_concurrency` tasks in runners, nor more runners; in each runner
one task, or as many as may share it; every claimed task gets one report or one release, or is
dropped because its lease is lost; what was killed is reported after it was reaped, never before;
after a drain or a stop began nothing is claimed; results are reported in the order in which they
came. Pure: no clock, no sockets, no chance.

What an event changes is written in the module of its part, what time changes in
`pass_deadlines`. See docs/background/runners.md, sections 5 and 6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pgflowd.core import messages
from pgflowd.core.metrics.definitions import WAKES
from pgflowd.core.worker import (
    claiming,
    connections,
    events,
    reporting,
    runner_ends,
    runners,
    second_connection,
    sharing,
    stopping,
)
from pgflowd.core.worker.actions import WorkerAction, WorkerTransition
from pgflowd.core.worker.state import WakeReason, WorkerMode, WorkerState
from pgflowd.core.worker.task import NEVER


# Deadlines: when the state changes by itself, and what changes then.
def next_deadline(state: WorkerState) -> float:
    """The next moment at which time alone changes the state; before it, a Tick changes nothing."""
    if state.mode is WorkerMode.LEFT:
        return NEVER
    return min(
        runners.deadline(state.runners),
        claiming.deadline(state),
        reporting.deadline(state),
        connections.deadline(state.connections),
        state.turns.claims_from or NEVER,
        stopping.deadline(state),
        state.stop_at,
        state.leave_at,
    )


def pass_deadlines(transition: WorkerTransition) -> None:
    """Change what time alone changes."""
    state, now = transition.state, transition.now
    if state.mode is WorkerMode.LEFT:
        return
    for runner in list(state.runners.by_id.values()):
        if now >= runner.due_at:
            runner_ends.time_is_up(transition, runner)
    if state.runners.forks_from and now >= state.runners.forks_from:
        state.runners.forks_from = 0.0
        claiming.check_by(state.schedule, now, WakeReason.DUE)
    claiming.release_overdue(transition)
    if now >= state.stop_at:
        stopping.stop(transition, messages.QuickStop())
    if now >= state.schedule.check_at:
        transition.count(WAKES, state.schedule.reason)
        claiming.time_has_come(state.schedule)
        if state.schedule.is_fallback:  # should there have been a notification?
            state.doorbell = state.doorbell.doubted()
    if now >= state.doorbell.look_at and not state.schedule.is_due:
        transition.count(WAKES, WakeReason.LOOK)
        claiming.claim_now(state.schedule)
    if now >= state.outbox.paused_until:
        state.outbox.paused_until = 0.0
    if state.turns.claims_from and now >= state.turns.claims_from:
        state.turns = state.turns._replace(claims_from=0.0)
    connections.keep_times(transition)
    if now >= stopping.deadline(state):
        stopping.time_has_come(transition)
    if now >= state.leave_at:
        stopping.leave(transition)


def decide(
    state: WorkerState, arrived: Iterable[events.Event], now: float
) -> tuple[WorkerState, list[WorkerAction]]:
    """Return the state after these events, and what to do, in this order."""
    transition = WorkerTransition(state, now)
    state = transition.state
    for event in arrived:
        if state.mode is not WorkerMode.LEFT:
            HANDLERS[type(event)](transition, event)
    if now >= state.due_at:
        pass_deadlines(transition)
    if state.mode is not WorkerMode.LEFT:
        if state.mode is WorkerMode.DRAINING or state.mode is WorkerMode.STOPPING:
            stopping.finish(transition)
        if state.runners.finished:
            runners.read(transition)
        claiming.assign(transition)
        connections.use_free(transition)
    state.due_at = next_deadline(state)
    return state, transition.actions


def _done(transition: WorkerTransition, event: events.Done) -> None:
    report = runners.done(transition, event)
    if report is not None and event.recorded is not None:
        reporting.recorded_by_runner(transition, report, event.recorded)


def _next_due_read(transition: WorkerTransition, event: events.NextDueRead) -> None:
    connections.next_due_read(transition, event)
    stopping.next_due_read(transition, event)


HANDLERS: dict[type, Callable[[WorkerTransition, Any], None]] = {
    events.Tick: lambda transition, event: None,
    messages.Wake: connections.woken_up,
    messages.MakeRoom: runners.asked,
    messages.HaveRoom: runners.made,
    messages.Drain: stopping.drain,
    messages.QuickStop: stopping.stop,
    messages.SleepIfIdle: stopping.asked,
    messages.WorkerStanding: connections.standing_read,
    messages.ConnectionGranted: second_connection.granted,
    events.ZygoteEnded: stopping.zygote_ended,
    events.Forked: runners.forked,
    events.ForkRefused: runners.refused,
    events.RunnerReady: runners.ready,
    runner_ends.RunnerUnready: runner_ends.unready,
    events.Done: _done,
    events.Committing: runners.committing,
    events.ResultAnnounced: runners.announced,
    events.NoResultYet: runner_ends.no_result_yet,
    events.Ponged: sharing.ponged,
    events.BadFrameReceived: runner_ends.bad_frame,
    events.Undelivered: runner_ends.undelivered,
    events.RunnerEnded: runner_ends.ended,
    events.Reaped: runner_ends.reaped,
    events.Connected: connections.connected,
    events.ConnectionLost: connections.connection_lost,
    events.ReportAndClaimDone: reporting.report_and_claim_done,
    events.NextDueRead: _next_due_read,
    events.ForeignMessagesArchived: connections.foreign_messages_archived,
    events.TaskNotStarted: reporting.task_not_started,
    events.LeasesRenewed: connections.leases_renewed,
    events.HandlerAsked: connections.handler_asked,
    events.Fetched: connections.fetched,
    events.ProgressTold: connections.progress_told,
    events.ProgressWritten: connections.progress_written,
    events.SideCallDone: connections.side_call_done,
    events.OutputWaiting: connections.output_waiting,
    events.SignedOff: lambda transition, event: stopping.leave(transition),
}
