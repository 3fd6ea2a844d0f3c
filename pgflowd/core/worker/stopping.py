"""
How a worker stops: it drains, or ends its runners too, signs off, and leaves.

After a drain or a stop began nothing is claimed, and every claimed task is reported or released.
"""

from __future__ import annotations

from pgflowd.core.messages import Drain, FallingAsleep, QuickStop, SleepIfIdle, StayingAwake
from pgflowd.core.supervision.tree import EXIT_ASKED, EXIT_ASLEEP, EXIT_REPLACE
from pgflowd.core.worker import actions, events, runner_ends, second_connection
from pgflowd.core.worker.actions import WorkerTransition
from pgflowd.core.worker.doorbell import DoorbellRow
from pgflowd.core.worker.state import (
    ConnectionState,
    EndCause,
    NextDueQuestion,
    RunnerPhase,
    WorkerMode,
    WorkerState,
)
from pgflowd.core.worker.task import HEALTHY, NEVER

STOP_EXTRA_S = 3.0  # beyond kill_grace: a quick stop ends whatever is unfinished
CRASH_LIMIT_S = 2.0  # to report what ended with the zygote
SIGN_OFF_LIMIT_S = 2.0
_UNTOLD = (
    "tasks that could not be reported in time: {}; they run again as soon as they are given back,"
    " or their lease has lapsed"
)


def drain_because(
    transition: WorkerTransition, code: int, why: str, failure: tuple[str, str] | None = None
) -> None:
    """Drain without an order, and exit with this code."""
    if transition.state.mode is WorkerMode.WORKING:
        runner_ends.stop_working(transition, WorkerMode.DRAINING)
        transition.will_exit(code, why, failure)


def drain(transition: WorkerTransition, event: Drain) -> None:
    """Claim nothing more, and finish what runs. A second order may shorten the first."""
    state = transition.state
    if state.mode is WorkerMode.WORKING:
        runner_ends.stop_working(transition, WorkerMode.DRAINING)
    if event.within_s is not None:
        state.stop_at = min(state.stop_at, transition.now + event.within_s)


def stop(transition: WorkerTransition, event: QuickStop) -> None:
    """End the runners too; what is unfinished is released."""
    state = transition.state
    state.stop_at = NEVER
    if state.mode not in (WorkerMode.WORKING, WorkerMode.DRAINING):
        return
    runner_ends.stop_working(transition, WorkerMode.STOPPING)
    leave_by = transition.now + state.options.kill_grace_s + STOP_EXTRA_S
    state.leave_at = min(state.leave_at, leave_by)
    for runner in list(state.runners.by_id.values()):
        if runner.phase is RunnerPhase.STARTING:
            runner_ends.kill(transition, runner, EndCause.SURPLUS)
        elif runner.phase is RunnerPhase.BUSY:
            for assigned in runner.tasks.values():
                runner_ends.check(transition, runner, assigned, EndCause.STOP)
                runner = state.runners.by_id[runner.id]


def zygote_ended(transition: WorkerTransition, event: events.ZygoteEnded) -> None:
    """Report what its runners did, and exit 1 (docs/background/supervision.md, rule 39)."""
    state, pool = transition.state, transition.state.runners
    pool.zygote_end = pool.zygote_end or event.text
    transition.log_problem("error", f"the zygote ended: {pool.zygote_end}")
    transition.will_exit(1, f"its zygote ended: {pool.zygote_end}", state.exit.failure)
    if state.mode is WorkerMode.WORKING:
        runner_ends.stop_working(transition, WorkerMode.DRAINING)
    state.leave_at = min(state.leave_at, transition.now + CRASH_LIMIT_S)
    for runner in list(pool.by_id.values()):
        if runner.phase is RunnerPhase.STARTING:  # not forked yet
            runner_ends.forget(pool, runner)


def finish(transition: WorkerTransition) -> None:
    """Sign off once nothing is left to do."""
    state, pool = transition.state, transition.state.runners
    for runner_id in pool.idle[:]:
        runner_ends.retire(transition, pool.by_id[runner_id])
    if any(runner.phase is not RunnerPhase.STUCK for runner in pool.by_id.values()):
        return
    if state.outbox.reports or state.connections.main.state is ConnectionState.BUSY:
        return
    state.mode = WorkerMode.LEAVING
    state.leave_at = min(state.leave_at, transition.now + SIGN_OFF_LIMIT_S)


def leave(transition: WorkerTransition) -> None:
    """
    Exit. A worker that still holds leases has not ended as it was asked to: it exits as one that
    has crashed, so that the sweeper gives them back (docs/background/supervision.md, rule 12).
    """
    state = transition.state
    if count := len(list(state.leases())):
        why = _UNTOLD.format(count)
        transition.log_problem("warning", why, count=count)
        if state.exit.code in (EXIT_ASKED, EXIT_REPLACE, EXIT_ASLEEP):
            transition.will_exit(1, why, state.exit.failure)
    state.mode = WorkerMode.LEFT
    transition.do(actions.Leave(*state.exit))


# When a worker falls asleep: it has had no task for `sleep_after`, and no message becomes visible
# within it. Asked by the supervisor, it sleeps at once unless there is work.
#
# Before it does, it asks the database when the next message is due. If nothing has happened by the
# answer, it claims nothing more, signs off and ends (docs/background/supervision.md, rule 54). Its
# doorbell stays up, so whatever comes after the answer is seen by the supervisor and the sweeper
# (rule 55).
AGAIN_S = 0.25  # to the next look, while a call is under way: most take less
SOON_S = 1.0  # asked to sleep, it stays for a message that is due by then: to start takes as long


def deadline(state: WorkerState) -> float:
    """When to see whether the worker may sleep."""
    return state.sleep_at if state.mode is WorkerMode.WORKING else NEVER


def asked(transition: WorkerTransition, event: SleepIfIdle) -> None:
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
    options = state.options
    every_s = options.poll_max_s if options.is_polling else options.notify_fallback_s
    transition.send(FallingAsleep(every_s, next_due_at))
    drain_because(transition, EXIT_ASLEEP, "asleep")


def _stay(transition: WorkerTransition) -> None:
    """Stay awake for another `sleep_after`; asked for its place, a worker gives what it can."""
    state = transition.state
    if state.is_sleep_asked:
        second_connection.give_back(transition)
        transition.send(StayingAwake())
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
