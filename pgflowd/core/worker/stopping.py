"""
How a worker stops: it drains, or ends its runners too, signs off, and leaves.

After a drain or a stop began nothing is claimed, and every claimed task is reported or released.
"""

from __future__ import annotations

from pgflowd.core.supervision.exits import EXIT_ASKED, EXIT_ASLEEP, EXIT_REPLACE
from pgflowd.core.worker import actions, events, runner_ends
from pgflowd.core.worker.part import NEVER
from pgflowd.core.worker.runner_state import EndCause, RunnerPhase
from pgflowd.core.worker.state import ConnectionState, WorkerMode
from pgflowd.core.worker.transition import WorkerTransition

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


def drain(transition: WorkerTransition, event: events.DrainAsked) -> None:
    """Claim nothing more, and finish what runs. A second order may shorten the first."""
    state = transition.state
    if state.mode is WorkerMode.WORKING:
        runner_ends.stop_working(transition, WorkerMode.DRAINING)
    if event.within_s is not None:
        state.stop_at = min(state.stop_at, transition.now + event.within_s)


def stop(transition: WorkerTransition, event: events.StopAsked) -> None:
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


def signed_off(transition: WorkerTransition, event: events.SignedOff) -> None:
    leave(transition)


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
