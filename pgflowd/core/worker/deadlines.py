"""Deadlines: when the state changes by itself, and what changes then."""

from __future__ import annotations

from pgflowd.core.metrics.definitions import WAKES
from pgflowd.core.worker import (
    claiming,
    connections,
    events,
    reporting,
    runner_ends,
    runners,
    sleeping,
    stopping,
    turns,
)
from pgflowd.core.worker.part import NEVER
from pgflowd.core.worker.state import WakeReason, WorkerMode, WorkerState
from pgflowd.core.worker.transition import WorkerTransition


def next_deadline(state: WorkerState) -> float:
    """The next moment at which time alone changes the state; before it, a Tick changes nothing."""
    if state.mode is WorkerMode.LEFT:
        return NEVER
    return min(
        runners.deadline(state.runners),
        claiming.deadline(state),
        reporting.deadline(state),
        connections.deadline(state.connections),
        turns.deadline(state.turns),
        sleeping.deadline(state),
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
        stopping.stop(transition, events.StopAsked())
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
    if now >= sleeping.deadline(state):
        sleeping.time_has_come(transition)
    if now >= state.leave_at:
        stopping.leave(transition)
