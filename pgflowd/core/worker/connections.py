"""
The two connections to the database, and the calls on them, one at a time on each.

The main one reports and claims in one round trip. The other renews leases, so that a report
which waits for a lock does not look like the death of the worker; it also reads what handlers ask
for and publishes their output. A lost connection is opened again after growing, jittered delays;
reports wait meanwhile, in order.
"""

from __future__ import annotations

from pgflowd.core.backoff import doubled_s
from pgflowd.core.database_failure import DatabaseFailure
from pgflowd.core.metrics.definitions import DATABASE_ERRORS, WAKES
from pgflowd.core.worker import (
    actions,
    claiming,
    events,
    failed_turns,
    reporting,
    run_log,
    runner_ends,
    stopping,
)
from pgflowd.core.worker.events import LeaseVerdict, RowState
from pgflowd.core.worker.part import NEVER
from pgflowd.core.worker.state import (
    FREE,
    ConnectionName,
    ConnectionState,
    DatabaseConnection,
    NextDueQuestion,
    WakeReason,
    WorkerConnections,
    WorkerMode,
)
from pgflowd.core.worker.transition import WorkerTransition
from pgflowd.core.worker.turns import HEALTHY, Suspect

# A worker without a lease has only its row to renew, which counts as alive for 30 s. So it renews
# three intervals apart, 15 s at most: idle it sends a call once in 10 s at most, fallback included.
IDLE_INTERVALS = 3
IDLE_RENEWAL_S = 15.0
SOON_S = 0.5  # renewals that wakes ask for are at least so far apart
FOREIGN_PAUSE_S = 60.0  # between two records about messages that belong to no open task


def deadline(connections: WorkerConnections) -> float:
    """When the connections change by themselves."""
    leases = connections.leases
    is_free = leases.state is ConnectionState.FREE
    return min(connections.main.until, connections.renew_at if is_free else leases.until)


def keep_times(transition: WorkerTransition) -> None:
    """Cut calls over their limit, and open lost connections again."""
    state = transition.state
    for name in ConnectionName:
        connection = state.connections.get(name)
        if transition.now < connection.until:
            continue
        if connection.state is ConnectionState.DOWN:
            until = transition.now + state.options.call_limit_s
            connection = connection._replace(state=ConnectionState.CONNECTING, until=until)
            transition.do(actions.Connect(name))
        else:
            connection = connection._replace(until=NEVER)
            transition.do(actions.CutConnection(name))
        state.connections.put(name, connection)


def use_free(transition: WorkerTransition) -> None:
    """Start the calls for which a connection is free."""
    connections = transition.state.connections
    if connections.main.state is ConnectionState.FREE:
        _use_main(transition)
    if connections.leases.state is ConnectionState.FREE:
        _use_leases(transition)


def _use_main(transition: WorkerTransition) -> None:
    state = transition.state
    outbox, schedule = state.outbox, state.schedule
    if outbox.paused_until or state.mode in (WorkerMode.LEAVING, WorkerMode.LEFT):
        return
    has_due = reporting.is_due(state, transition.now)
    wants_claim = has_due or (schedule.is_due and not claiming.is_stocked(state))
    room = claiming.room(state) if wants_claim and reporting.may_claim(state) else 0
    if has_due or room:
        reporting.begin(state, room)
        if room:
            claiming.claim_begins(schedule, bool(outbox.sending))
        changes_of = run_log.runs_of_interest(state.options, outbox.sending)
        transition.do(actions.ReportAndClaim(outbox.sending, room, changes_of))
        state.connections.main = _busy(transition, state.connections.main)
    elif claiming.may_ask_next_due(state):
        schedule.question = NextDueQuestion.NO
        transition.do(actions.ReadNextDue())
        state.connections.main = _busy(transition, state.connections.main)


def _use_leases(transition: WorkerTransition) -> None:
    state, connections = transition.state, transition.state.connections
    if state.mode is WorkerMode.LEAVING and not connections.has_output:
        transition.do(actions.SignOff())
    elif transition.now >= connections.renew_at:
        tokens = tuple(task.token for task in state.leases())
        pause_s = state.options.heartbeat_interval_s
        if not tokens:
            pause_s = max(pause_s, min(IDLE_INTERVALS * pause_s, IDLE_RENEWAL_S))
        connections.renewed_at = transition.now
        connections.renew_at = transition.now + pause_s
        transition.do(actions.RenewLeases(tokens))
    elif connections.requests:
        connections.fetching, *others = connections.requests
        connections.requests = tuple(others)
        transition.do(actions.Fetch(connections.fetching))
    elif connections.has_output:
        connections.has_output = False
        transition.do(actions.PublishOutput())
    else:
        return
    connections.leases = _busy(transition, connections.leases)


def _busy(transition: WorkerTransition, connection: DatabaseConnection) -> DatabaseConnection:
    until = transition.now + transition.state.options.call_limit_s
    return DatabaseConnection(ConnectionState.BUSY, until, connection.delay_s, transition.now)


def connected(transition: WorkerTransition, event: events.Connected) -> None:
    state, connections = transition.state, transition.state.connections
    connection = connections.get(event.connection)
    free = DatabaseConnection(ConnectionState.FREE, delay_s=connection.delay_s)
    connections.put(event.connection, free)
    if event.connection is ConnectionName.MAIN:
        claiming.claim_now(state.schedule)
        if state.turns is not HEALTHY:  # with no room for a claim, it shows that all is well
            state.schedule.question = NextDueQuestion.NOW


def connection_lost(transition: WorkerTransition, event: events.ConnectionLost) -> None:
    """Keep what was under way, and connect again later."""
    state, connections = transition.state, transition.state.connections
    had_claim = False
    if event.connection is ConnectionName.MAIN:
        had_claim = bool(state.outbox.claiming)
        failed_turns.turn_failed(transition, event, was_cut=connections.main.is_cut)
        state.schedule.is_due = True
    elif connections.fetching is not None:
        connections.requests = (connections.fetching, *connections.requests)
        connections.fetching = None
    if event.failure is DatabaseFailure.GONE:
        _leave_for_successor(transition, "its row or its flow is gone from the database")
    elif event.failure is DatabaseFailure.SCHEMA:
        stopping.drain_because(transition, 78, event.text, ("E307", event.text))
    transition.count(DATABASE_ERRORS, event.failure)
    _connect_later(transition, event, had_claim)
    if state.mode is WorkerMode.LEAVING and event.connection is ConnectionName.LEASES:
        stopping.leave(transition)


def _connect_later(
    transition: WorkerTransition, event: events.ConnectionLost, had_claim: bool
) -> None:
    options, connections = transition.state.options, transition.state.connections
    connection = connections.get(event.connection)
    is_serious = event.failure in (DatabaseFailure.ALERT, DatabaseFailure.BROKEN)
    is_too_long = connection.is_cut or event.sqlstate == failed_turns.TOO_LONG
    is_first = connection.state is ConnectionState.BUSY and connection.delay_s == 0
    if is_serious or is_too_long or is_first:
        level = "error" if is_serious else "warning"
        transition.log_problem(level, event.text, connection=event.connection.value)
    delay_s = doubled_s(connection.delay_s, options.reconnect_min_s, options.reconnect_max_s)
    if event.failure is DatabaseFailure.BROKEN and not had_claim:  # else the claims pause
        delay_s = options.reconnect_max_s
    until = transition.now + delay_s * (0.5 + event.chance / 2)
    down = DatabaseConnection(ConnectionState.DOWN, until, delay_s)
    connections.put(event.connection, down)


def woken_up(transition: WorkerTransition, event: events.WokenUp) -> None:
    """Claim, and ask soon whether the tasks that run still should."""
    state, connections = transition.state, transition.state.connections
    transition.count(WAKES, WakeReason.NOTIFICATION)
    claiming.claim_now(state.schedule)
    if any(runner.tasks for runner in state.runners.by_id.values()):
        connections.renew_at = min(connections.renew_at, connections.renewed_at + SOON_S)


def leases_renewed(transition: WorkerTransition, event: events.LeasesRenewed) -> None:
    state, standing = transition.state, event.standing
    state.connections.leases, state.connections.answered_at = FREE, transition.now
    run_log.runs_cancelled(transition, event.cancelled)
    for token, verdict in event.verdicts:
        if verdict is not LeaseVerdict.OK:
            runner_ends.lease_refused(transition, token, verdict)
    if standing.row is not RowState.OK:
        _leave_for_successor(transition, f"its row is {standing.row}")
    schedule = state.schedule
    schedule.has_drained = False
    claiming.next_message_due(schedule, state.options, transition.now, standing.due_in_s)
    if standing.queued:  # no wake has announced them
        claiming.claim_now(schedule)


def next_due_read(transition: WorkerTransition, event: events.NextDueRead) -> None:
    state = transition.state
    state.connections.main = FREE
    if state.turns.suspect is Suspect.NOTHING:
        state.turns = HEALTHY
    claiming.next_due_read(state.schedule, state.options, transition.now, event)


def foreign_messages_archived(
    transition: WorkerTransition, event: events.ForeignMessagesArchived
) -> None:
    """Something else writes into the queue: log so now and then."""
    connections = transition.state.connections
    connections.foreign_messages += event.count
    if transition.now < connections.foreign_logged_at + FOREIGN_PAUSE_S:
        return
    text = f"{connections.foreign_messages} messages that belong to no open task were archived"
    transition.log("warning", "worker.strangers", error=text)
    connections.foreign_messages, connections.foreign_logged_at = 0, transition.now


def handler_asked(transition: WorkerTransition, event: events.HandlerAsked) -> None:
    connections = transition.state.connections
    connections.requests = (*connections.requests, event.request)


def fetched(transition: WorkerTransition, event: events.Fetched | events.OutputPublished) -> None:
    transition.state.connections.leases = FREE
    transition.state.connections.fetching = None


def output_waiting(transition: WorkerTransition, event: events.OutputWaiting) -> None:
    transition.state.connections.has_output = True


def _leave_for_successor(transition: WorkerTransition, why: str) -> None:
    """Drain, and exit 10 (docs/design/supervision.md, rule 40)."""
    if transition.state.mode is WorkerMode.WORKING:
        transition.log("info", "worker.deprecated", reason=why)
        stopping.drain_because(transition, 10, why)
