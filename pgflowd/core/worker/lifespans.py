"""
What a lifespan that fails changes: its runner cannot begin, and no task is to blame.

The tasks of such a runner are given back, their attempts unspent, and no runner is started for a
while that grows with each failure. Until one is ready the worker tells of E433, so its daemon is
degraded; runners that have begun go on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pgflowd.core.backoff import doubled_s
from pgflowd.core.worker.events import RunnerEvent
from pgflowd.core.worker.runner_state import AssignedTask, RunnerPool
from pgflowd.core.worker.transition import WorkerTransition

CODE = "E433"
NEXT = "correct it, then pgflowd reload; see pgflowd logs for the traceback"


@dataclass(slots=True)
class RunnerUnready(RunnerEvent):
    """The lifespan of a runner has failed before its first task."""

    text: str
    traceback: str | None = None


def failed(
    transition: WorkerTransition, tasks: Iterable[AssignedTask], why: str, **fields: Any
) -> None:
    """Give the tasks of a runner back that cannot begin, and pause before the next one."""
    state, pool, options = transition.state, transition.state.runners, transition.state.options
    pool.trouble = f"the lifespan {options.lifespan} failed: {why}"
    reason = f"{CODE} {pool.trouble}"
    for assigned in tasks:
        transition.release(assigned.task, reason)
    for waiting in state.unassigned:
        transition.release(waiting.task, reason)
    state.unassigned = []
    if pool.forks_from:  # it was started before the pause began
        return
    least_s, most_s = options.backoff_min_s, options.backoff_max_s
    pool.fork_delay_s = doubled_s(pool.fork_delay_s, least_s, most_s)
    pool.forks_from = transition.now + pool.fork_delay_s
    fields = {"code": CODE, "wait_s": pool.fork_delay_s, **fields}
    transition.log_problem("error", reason, **fields)


def succeeded(pool: RunnerPool) -> None:
    """A runner is ready."""
    pool.trouble = ""
    pool.fork_delay_s = pool.forks_from = 0.0
