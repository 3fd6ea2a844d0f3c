"""
Room for processes: the runners of all flows share what their machine allows.

A worker that cannot fork asks the others for room, through the supervisor. Each ends its idle
runners, or, without any, the next one whose task ends, and forks nothing for a moment. When one
that it ended is gone, it says so, and who was refused tries again.
"""

from __future__ import annotations

from pgflowd.core.worker import events
from pgflowd.core.worker.runner_ends import retire
from pgflowd.core.worker.runner_state import EndCause, RunnerPool, RunnerState
from pgflowd.core.worker.state import WorkerMode
from pgflowd.core.worker.transition import WorkerTransition

PAUSE_S = 0.5  # of our forks, so that the worker that asked forks first


def asked(transition: WorkerTransition, event: events.RoomAsked) -> None:
    """Another process cannot be started: end the idle runners, or owe it the next one."""
    pool = transition.state.runners
    if transition.state.mode is not WorkerMode.WORKING:
        return
    count = len(pool.idle)
    pool.owes_room = not count and len(pool.by_id) > 1
    for id in list(pool.idle):
        _end(transition, pool.by_id[id])
    if count:
        transition.log("info", "worker.made_room", count=count)


def is_owed(pool: RunnerPool) -> bool:
    """Whether the runner whose task has just ended is to end, too; the last one stays."""
    return pool.owes_room and len(pool.by_id) > 1


def repay(transition: WorkerTransition, runner: RunnerState) -> None:
    """End the runner that was owed."""
    transition.state.runners.owes_room = False
    _end(transition, runner)
    transition.log("info", "worker.made_room", count=1)


def made(transition: WorkerTransition, event: events.RoomMade) -> None:
    """Another worker has ended a runner: try again, if forks were refused."""
    pool = transition.state.runners
    if pool.forks_from and pool.fork_delay_s:
        pool.forks_from = transition.now


def _end(transition: WorkerTransition, runner: RunnerState) -> None:
    pool = transition.state.runners
    retire(transition, runner, EndCause.ROOM)
    if not pool.forks_from:
        pool.forks_from = transition.now + PAUSE_S
