"""
Large results: how many of them a worker has in memory.

The socket of a runner announces a result of more than 256 KiB and stops there. From that moment
its handler has finished, and no timeout ends it; but its result is read only when what the outbox
has, and what is being read, leaves room for it. Until then it waits in its runner, which gets no
other task. So a worker stays small however long the database takes.
"""

from __future__ import annotations

from pgflowd.core.worker import actions, events, runner_ends
from pgflowd.core.worker.state import NEVER, EndCause, RunnerPhase, WorkerState
from pgflowd.core.worker.transition import WorkerTransition

MAX_HELD_BYTES = 64 * 1024 * 1024  # of outputs; four turns full. A larger one is held alone
READ_LIMIT_S = 30.0  # the runner only writes into a socket; even while the machine swaps


def announced(transition: WorkerTransition, event: events.ResultAnnounced) -> None:
    """A handler has finished; its result waits."""
    pool, now = transition.state.runners, transition.now
    runner = pool.by_id.get(event.id)
    if runner is None or runner.task is None or runner.task.token != event.token:
        return
    if runner.phase is RunnerPhase.TERMINATED:
        runner_ends.kill(transition, runner, runner.cause or EndCause.TIMEOUT)
    elif runner.phase in (RunnerPhase.BUSY, RunnerPhase.CHECKED):
        size = event.size
        runner_ends.move(
            pool, runner, RunnerPhase.FINISHED, NEVER, result_bytes=size, finished_at=now
        )
        pool.finished = (*pool.finished, runner.id)


def read(transition: WorkerTransition) -> None:
    """Read the results for which there is room, the oldest first."""
    pool = transition.state.runners
    while pool.finished:
        runner = pool.by_id.get(pool.finished[0])
        if runner is not None and runner.phase is RunnerPhase.FINISHED:
            held = _held(transition.state)
            if held and held + runner.result_bytes > MAX_HELD_BYTES:
                return
            due_at = transition.now + READ_LIMIT_S
            runner_ends.move(pool, runner, RunnerPhase.SENDING, due_at)
            transition.do(actions.TakeResult(runner.id))
        pool.finished = pool.finished[1:]


def _held(state: WorkerState) -> int:
    """How many bytes of outputs the worker has, or will have read."""
    reports = (*state.outbox.sending, *state.outbox.reports)
    runners = state.runners.by_id.values()
    reading = sum(each.result_bytes for each in runners if each.phase is RunnerPhase.SENDING)
    return reading + sum(len(each.output) for each in reports if each.output)
