"""
The second connection: when it is opened and closed (docs/design/supervision.md, rule 57).

It is opened when a task has run, or a turn has taken, for half a `heartbeat_interval`, and when a
handler asks for something while the main connection is busy. It is closed when neither has been so
for as long. A worker looks as often, while it has work; one without work has no second connection.
"""

from __future__ import annotations

from pgflowd.core.worker import actions
from pgflowd.core.worker.part import NEVER
from pgflowd.core.worker.runner_state import RunnerPhase
from pgflowd.core.worker.state import (
    CLOSED,
    ConnectionName,
    ConnectionState,
    DatabaseConnection,
    WorkerConnections,
    WorkerState,
)
from pgflowd.core.worker.transition import WorkerTransition

SECOND = ConnectionName.SECOND


def look_later(state: WorkerState, now: float) -> None:
    """Tasks were claimed: see in half an interval whether they still run."""
    look_at = now + state.options.heartbeat_interval_s / 2
    state.connections.look_at = min(state.connections.look_at, look_at)


def look(transition: WorkerTransition) -> None:
    """Open the connection if it is wanted, close it if it is not, and choose when to look again."""
    state, connections, now = transition.state, transition.state.connections, transition.now
    if now < connections.look_at:
        return
    half_s = state.options.heartbeat_interval_s / 2
    wanted_at = _working_since(state, now) + half_s
    used_until = connections.second_used_at + half_s
    second = connections.second
    if now >= wanted_at or now < used_until:
        if second.state is ConnectionState.CLOSED and now >= wanted_at:
            _open(transition)
    elif second.state is ConnectionState.FREE or second.state is ConnectionState.DOWN:
        _close(transition)
    is_closed = connections.second.state is ConnectionState.CLOSED
    is_later = is_closed and now < wanted_at
    connections.look_at = wanted_at if is_later else now + half_s


def open_for_handlers(transition: WorkerTransition) -> None:
    """Open it if a handler waits while the main connection is busy."""
    connections = transition.state.connections
    if not (connections.requests or connections.has_output):
        return
    if connections.main.state is ConnectionState.BUSY:
        connections.second_used_at = transition.now
        _open(transition)
        look_later(transition.state, transition.now)


def is_output_first(connections: WorkerConnections) -> bool:
    """Whether output is published before the next turn, so that followers get it before the end of
    its task. Where no second connection is to be had it would hold up turns, so they alternate."""
    return connections.has_output and connections.second.state is not ConnectionState.DOWN


def _working_since(state: WorkerState, now: float) -> float:
    """Since when the oldest task runs, or the outbox is being sent; NEVER if neither is so."""
    outbox, moments = state.outbox, [now] if state.unassigned else []
    for runner in state.runners.by_id.values():
        is_starting = runner.phase is RunnerPhase.STARTING
        moments += [now if is_starting else each.sent_at for each in runner.tasks.values()]
    if outbox.sending:
        moments.append(state.connections.main.since)
    elif outbox.reports:
        moments.append(outbox.waiting_since)
    return min(moments, default=NEVER)


def _open(transition: WorkerTransition) -> None:
    """Connect, unless the main connection is lost too: then that comes first."""
    connections = transition.state.connections
    if connections.main.is_open:
        until = transition.now + transition.state.options.call_limit_s
        connections.second = DatabaseConnection(ConnectionState.CONNECTING, until)
        transition.do(actions.Connect(SECOND))


def _close(transition: WorkerTransition) -> None:
    connections = transition.state.connections
    if connections.second.state is ConnectionState.FREE:
        transition.do(actions.CloseConnection(SECOND))
    connections.second = CLOSED
