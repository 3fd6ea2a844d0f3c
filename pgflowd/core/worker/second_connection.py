"""
The second connection: when it is opened and closed (docs/background/supervision.md, rule 57).

It is opened when a task has run, or a turn has taken, for half a `heartbeat_interval`, and when a
handler asks for something while the main connection is busy. It is closed when neither has been so
for as long. A worker looks as often, while it has work; one without work has no second connection.
The supervisor is asked first, which keeps the budget of connections (rule 56), and may never grant
it; when workers wait for their first connection, it asks for it back.
"""

from __future__ import annotations

from pgflowd.core.messages import ConnectionGranted, ConnectionReturned, ConnectionWanted
from pgflowd.core.worker import actions
from pgflowd.core.worker.actions import WorkerTransition
from pgflowd.core.worker.state import (
    CLOSED,
    ConnectionName,
    ConnectionState,
    DatabaseConnection,
    RunnerPhase,
    WorkerConnections,
    WorkerState,
)
from pgflowd.core.worker.task import NEVER

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
    is_wanted = now >= wanted_at or now < connections.second_used_at + half_s
    connection_state = connections.second.state
    if connection_state is ConnectionState.CLOSED and now >= wanted_at:
        _ask(transition)
    elif connection_state in (ConnectionState.FREE, ConnectionState.DOWN) and not is_wanted:
        _close(transition)
    has_none = connections.second.state in (ConnectionState.CLOSED, ConnectionState.WANTED)
    is_later = has_none and now < wanted_at
    connections.look_at = wanted_at if is_later else now + half_s


def open_for_handlers(transition: WorkerTransition) -> None:
    """Open it if a handler waits while the main connection is busy."""
    connections = transition.state.connections
    if not (connections.requests or connections.has_output):
        return
    if connections.main.state is ConnectionState.BUSY:
        connections.second_used_at = transition.now
        _ask(transition)
        look_later(transition.state, transition.now)


def is_output_first(connections: WorkerConnections) -> bool:
    """Whether output is published before the next turn, so that followers get it before the end of
    its task. Where no second connection is to be had it would hold up turns, so they alternate."""
    none_to_be_had = (ConnectionState.DOWN, ConnectionState.WANTED)
    return connections.has_output and connections.second.state not in none_to_be_had


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


def _ask(transition: WorkerTransition) -> None:
    """Ask for it, unless the main connection is lost: then that comes first."""
    connections = transition.state.connections
    if connections.main.is_open:
        connections.second = DatabaseConnection(ConnectionState.WANTED)
        transition.send(ConnectionWanted())


def granted(transition: WorkerTransition, event: ConnectionGranted) -> None:
    """Connect, if it is wanted still."""
    state, connections, now = transition.state, transition.state.connections, transition.now
    half_s = state.options.heartbeat_interval_s / 2
    is_working_long = now >= _working_since(state, now) + half_s
    if not (is_working_long or now < connections.second_used_at + half_s):
        _close(transition)
        return
    until = now + state.options.call_limit_s
    connections.second = DatabaseConnection(ConnectionState.CONNECTING, until)
    connections.look_at = min(connections.look_at, now + half_s)
    transition.do(actions.Connect(SECOND))


def give_back(transition: WorkerTransition) -> None:
    """Others wait for a connection: close it, if nothing is under way on it."""
    second = transition.state.connections.second
    if second.state is ConnectionState.FREE or second.state is ConnectionState.DOWN:
        _close(transition)


def _close(transition: WorkerTransition) -> None:
    connections = transition.state.connections
    if connections.second.state is ConnectionState.FREE:
        transition.do(actions.CloseConnection(SECOND))
    transition.send(ConnectionReturned())
    connections.second = CLOSED
