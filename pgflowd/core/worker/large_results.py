"""
Large results: how many of them a worker has in memory.

The socket of a runner announces a result of more than 256 KiB and stops there. From that moment
its handler has finished, and no timeout ends it; but its result is read only when what the outbox
has, and what is being read, leaves room for it. Until then it waits in its runner, which gets no
other task. So a worker stays small however long the database takes.
"""

from __future__ import annotations

from pgflowd.core.worker import actions, events
from pgflowd.core.worker.part import NEVER
from pgflowd.core.worker.runner_moves import move_task
from pgflowd.core.worker.runner_state import EndCause, RunnerPhase, TaskPhase
from pgflowd.core.worker.state import WorkerState
from pgflowd.core.worker.transition import WorkerTransition

MAX_HELD_BYTES = 64 * 1024 * 1024  # of outputs; four turns full. A larger one is held alone
LAST_LIMIT_S = 0.5  # of one that was announced as its runner was to be killed at its timeout
READ_LIMIT_S = 30.0  # the runner only writes into a socket; even while the machine swaps


def announced(transition: WorkerTransition, event: events.ResultAnnounced) -> None:
    """A handler has finished; its result waits."""
    pool, now = transition.state.runners, transition.now
    runner = pool.by_id.get(event.id)
    assigned = runner.tasks.get(event.token) if runner else None
    if runner is None or assigned is None or runner.phase is not RunnerPhase.BUSY:
        return
    if assigned.phase in (TaskPhase.RUNNING, TaskPhase.CHECKED, TaskPhase.ENDING):
        cause = assigned.cause if assigned.is_asked else None
        due_at = NEVER
        if cause is EndCause.TIMEOUT and not runner.is_shared:  # with all that it has started
            due_at = assigned.due_at if assigned.due_at != NEVER else now + LAST_LIMIT_S
        of_result = {"result_bytes": event.size, "finished_at": now}
        move_task(pool, runner, assigned, TaskPhase.FINISHED, due_at, cause=cause, **of_result)
        pool.finished = (*pool.finished, (runner.id, event.token))


def read(transition: WorkerTransition) -> None:
    """Read the results for which there is room, the oldest first."""
    pool = transition.state.runners
    while pool.finished:
        runner_id, token = pool.finished[0]
        runner = pool.by_id.get(runner_id)
        assigned = runner.tasks.get(token) if runner else None
        if runner and assigned and runner.phase is RunnerPhase.BUSY:
            held = _held(transition.state)
            if held and held + assigned.result_bytes > MAX_HELD_BYTES:
                return
            due_at = min(assigned.due_at, transition.now + READ_LIMIT_S)
            move_task(pool, runner, assigned, TaskPhase.SENDING, due_at)
            transition.do(actions.TakeResult(runner.id, token))
        pool.finished = pool.finished[1:]


def _held(state: WorkerState) -> int:
    """How many bytes of outputs the worker has, or will have read."""
    reports = (*state.outbox.sending, *state.outbox.reports)
    assigned = [each for runner in state.runners.by_id.values() for each in runner.tasks.values()]
    reading = sum(each.result_bytes for each in assigned if each.phase is TaskPhase.SENDING)
    return reading + sum(len(each.output) for each in reports if each.output)
