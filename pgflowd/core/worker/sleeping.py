"""
When a worker falls asleep: it has had no task for `sleep_after`, and no message becomes visible
within it. Asked by the supervisor, it sleeps at once unless there is work.

Before it does, it asks the database when the next message is due. If nothing has happened by the
answer, it claims nothing more, signs off and ends (docs/background/supervision.md, rule 54). Its
doorbell stays up, so whatever comes after the answer is seen by the supervisor and the sweeper
(rule 55).
"""

from __future__ import annotations

from pgflowd.core.supervision.exits import EXIT_ASLEEP
from pgflowd.core.worker import actions, events, second_connection, stopping
from pgflowd.core.worker.doorbell import DoorbellRow
from pgflowd.core.worker.part import NEVER
from pgflowd.core.worker.runner_state import RunnerPhase
from pgflowd.core.worker.state import (
    ConnectionState,
    NextDueQuestion,
    WorkerMode,
    WorkerState,
)
from pgflowd.core.worker.transition import WorkerTransition
from pgflowd.core.worker.turns import HEALTHY

AGAIN_S = 0.25  # to the next look, while a call is under way: most take less
SOON_S = 1.0  # asked to sleep, it stays for a message that is due by then: to start takes as long


def deadline(state: WorkerState) -> float:
    """When to see whether the worker may sleep."""
    return state.sleep_at if state.mode is WorkerMode.WORKING else NEVER


def asked(transition: WorkerTransition, event: events.SleepAsked) -> None:
    """The supervisor asks for its place."""
    transition.state.is_sleep_asked = True
    if transition.state.mode is WorkerMode.WORKING:
        time_has_come(transition)


def time_has_come(transition: WorkerTransition) -> None:
    """If there was nothing to do for long enough, ask when the next message is due."""
    state = transition.state
    if _has_tasks(state):
        state.worked_at = transition.now
        _stay(transition)
    elif not _has_rested(transition):
        _stay(transition)
    else:
        state.is_sleep_near = _is_at_rest(state)
        if state.is_sleep_near:
            state.schedule.question = NextDueQuestion.NOW
        state.sleep_at = transition.now + AGAIN_S


def next_due_read(transition: WorkerTransition, event: events.NextDueRead) -> None:
    """Fall asleep, unless there is work or will be soon."""
    state, now = transition.state, transition.now
    if not state.is_sleep_near:
        return
    state.is_sleep_near = False
    may_sleep = state.mode is WorkerMode.WORKING and _has_rested(transition)
    if not may_sleep or not _is_at_rest(state):
        return  # looked at again soon
    within_s = SOON_S if state.is_sleep_asked else state.options.sleep_after_s
    if event.visible or (event.in_s is not None and event.in_s < within_s):
        state.worked_at = now  # it had something to wait for
        _stay(transition)
        return
    next_due_at = None if event.in_s is None else now + event.in_s
    transition.do(actions.AnnounceSleep(next_due_at))
    stopping.drain_because(transition, EXIT_ASLEEP, "asleep")


def _stay(transition: WorkerTransition) -> None:
    """Stay awake for another `sleep_after`; asked for its place, a worker gives what it can."""
    state = transition.state
    if state.is_sleep_asked:
        second_connection.give_back(transition)
        transition.do(actions.StayAwake())
    state.is_sleep_asked = False
    after_s = state.options.sleep_after_s
    state.sleep_at = state.worked_at + after_s if after_s else NEVER


def _has_rested(transition: WorkerTransition) -> bool:
    state, after_s = transition.state, transition.state.options.sleep_after_s
    is_long = bool(after_s) and transition.now >= state.worked_at + after_s
    return is_long or state.is_sleep_asked


def _has_tasks(state: WorkerState) -> bool:
    return any(True for _ in state.leases())


def _is_at_rest(state: WorkerState) -> bool:
    """Whether nothing is under way or due, and all is well."""
    connections = state.connections
    return (
        not (_has_tasks(state) or state.schedule.is_due or state.outbox.paused_until)
        and (state.doorbell.row is DoorbellRow.UP or state.options.is_polling)
        and state.turns is HEALTHY
        and connections.main.state is ConnectionState.FREE
        and connections.second.state not in (ConnectionState.BUSY, ConnectionState.CONNECTING)
        and not (connections.requests or connections.has_output)
        and not any(each.phase is RunnerPhase.STUCK for each in state.runners.by_id.values())
    )
