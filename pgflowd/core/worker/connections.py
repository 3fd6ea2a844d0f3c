"""
The connections to the database, and the calls on them, one at a time on each.

The main one reports and claims in one round trip; reports and claim are a *turn*. All else is a
*side call*: renewals of leases, what handlers ask for, their output. Side calls go on the main
connection between the turns. While a task has run, or a turn has taken, for half a
`heartbeat_interval`, there is a second connection for them, so that a report which waits for a lock
does not look like the death of the worker (docs/background/supervision.md, rule 57). No side call
waits for a lock: what handlers save is tried again soon if another session has the task. What they
tell of their progress is written at most once a second. A lost connection is opened again after
growing, jittered delays; reports wait meanwhile, in order.
"""

from __future__ import annotations

from functools import partial

from pgflowd.core.backoff import doubled_s
from pgflowd.core.failure import DatabaseFailure
from pgflowd.core.messages import Wake, WorkerStanding
from pgflowd.core.metrics.definitions import DATABASE_ERRORS, MINUTE_S, WAKES
from pgflowd.core.supervision.tree import EXIT_ASLEEP
from pgflowd.core.worker import (
    actions,
    claiming,
    events,
    reporting,
    run_log,
    runner_ends,
    second_connection,
    stopping,
)
from pgflowd.core.worker.actions import SideAction, WorkerTransition
from pgflowd.core.worker.events import LeaseVerdict
from pgflowd.core.worker.state import (
    FREE,
    ConnectionName,
    ConnectionState,
    DatabaseConnection,
    FetchRequest,
    NextDueQuestion,
    RowState,
    RunnerPhase,
    Standing,
    WakeReason,
    WorkerConnections,
    WorkerMode,
    WorkerState,
)
from pgflowd.core.worker.task import HEALTHY, NEVER, Suspect

SOON_S = 0.5  # renewals that wakes ask for are at least so far apart
LOCKED_PAUSE_S = 0.02  # until a request whose task was locked is tried again
_GONE = (RunnerPhase.KILLED, RunnerPhase.STUCK, RunnerPhase.ENDED)
FOREIGN_PAUSE_S = 60.0  # between two records about messages that belong to no open task


def deadline(connections: WorkerConnections) -> float:
    """When the connections change by themselves."""
    main, second = connections.main, connections.second
    is_free = connections.get(connections.for_side_calls).state is ConnectionState.FREE
    renew_at = connections.renew_at if is_free else NEVER
    again_at = connections.refused[0][0] if connections.refused else NEVER
    write_at = min(connections.progress.due_at, connections.minute_ends_at) if is_free else NEVER
    return min(main.until, second.until, renew_at, connections.look_at, again_at, write_at)


def keep_times(transition: WorkerTransition) -> None:
    """Cut calls over their limit, open lost connections again, repeat what met a lock."""
    state = transition.state
    connections, now = state.connections, transition.now
    if due := tuple(request for again_at, request in connections.refused if again_at <= now):
        connections.requests = (*connections.requests, *due)
        connections.refused = connections.refused[len(due) :]
    for name in ConnectionName:
        connection = connections.get(name)
        if now < connection.until:
            continue
        if connection.state is ConnectionState.DOWN:
            until = now + state.options.call_limit_s
            connection = connection._replace(state=ConnectionState.CONNECTING, until=until)
            transition.do(actions.Connect(name))
        else:
            connection = connection._replace(until=NEVER)
            transition.do(actions.CutConnection(name))
        connections.put(name, connection)
    second_connection.look(transition)


def use_free(transition: WorkerTransition) -> None:
    """Start the calls for which a connection is free."""
    state, connections = transition.state, transition.state.connections
    if connections.requests:
        connections.requests = tuple(filter(partial(_is_wanted, state), connections.requests))
    call = _due_side_call(state, transition.now)
    if call and connections.second.state is ConnectionState.FREE:
        _make_side_call(transition, ConnectionName.SECOND, call)
        call = None
    if connections.main.state is ConnectionState.FREE:
        if connections.second.is_open:
            call = None
        # take a turn, or make the side call if there is no need of one or it has waited for one
        is_side_first = connections.is_side_next or second_connection.is_output_first(connections)
        is_turn = not (call and is_side_first) and _take_turn(transition)
        connections.is_side_next = is_turn and call is not None
        if call and not is_turn:
            _make_side_call(transition, ConnectionName.MAIN, call)
    if connections.second.state is ConnectionState.CLOSED:
        second_connection.open_for_handlers(transition)


def _take_turn(transition: WorkerTransition) -> bool:
    """Report and claim, or ask when the next message is due; return whether there is need."""
    state = transition.state
    outbox, schedule = state.outbox, state.schedule
    if outbox.paused_until or state.mode in (WorkerMode.LEAVING, WorkerMode.LEFT):
        return False
    has_due = reporting.is_due(state, transition.now)
    wants_claim = has_due or (schedule.is_due and not claiming.is_stocked(state))
    room = claiming.room(state) if wants_claim and reporting.may_claim(state) else 0
    if has_due or room:
        reporting.begin(state, transition.now, room)
        if room:
            claiming.claim_begins(schedule, outbox.follows_reports)
        changes_of = run_log.runs_of_interest(state.options, outbox.sending)
        bell, kept = state.doorbell, reporting.kept(outbox)
        transition.do(
            actions.ReportAndClaim(outbox.sending, room, changes_of, bell.call, bell.writers, kept)
        )
    elif claiming.may_ask_next_due(state):
        schedule.question = NextDueQuestion.NO
        transition.do(actions.ReadNextDue())
    else:
        return False
    _make_busy(transition, ConnectionName.MAIN)
    return True


def _due_side_call(state: WorkerState, now: float) -> type[SideAction] | None:
    """The most urgent side call."""
    connections = state.connections
    if state.mode is WorkerMode.LEAVING and not connections.has_output:
        return actions.SignOff
    is_free = connections.get(connections.for_side_calls).state is ConnectionState.FREE
    if now >= connections.renew_at and is_free:
        if next(state.leases(), None):
            return actions.RenewLeases
        connections.renew_at = NEVER  # the sweeper renews the row
    may_fetch = bool(connections.requests) and not connections.is_under_way(actions.Fetch)
    may_publish = connections.has_output and not connections.is_under_way(actions.PublishOutput)
    if may_fetch and not (may_publish and connections.is_output_next):
        return actions.Fetch
    if may_publish:
        return actions.PublishOutput
    if now >= connections.progress.due_at:
        return actions.WriteProgress
    return actions.AddMinute if now >= connections.minute_ends_at else None


def _is_wanted(state: WorkerState, request: FetchRequest) -> bool:
    """Whether the runner that asked may live: nothing is saved for one that is gone."""
    runner = state.runners.by_id.get(request.runner_id)
    return runner is not None and runner.phase not in _GONE


def _make_side_call(
    transition: WorkerTransition, name: ConnectionName, call: type[SideAction]
) -> None:
    state, connections, now = transition.state, transition.state.connections, transition.now
    if call is actions.SignOff:
        is_asleep = transition.state.exit.code == EXIT_ASLEEP
        transition.do(actions.SignOff(name, is_asleep))
    elif call is actions.RenewLeases:
        connections.renewed_at = now
        connections.renew_at = now + state.options.heartbeat_interval_s
        tokens = tuple(task.token for task in state.leases())
        transition.do(actions.RenewLeases(name, tokens))
    elif call is actions.Fetch:
        connections.fetching, *others = connections.requests
        connections.requests = tuple(others)
        connections.is_output_next = True
        connections.second_used_at = now
        transition.do(actions.Fetch(name, connections.fetching))
    elif call is actions.AddMinute:
        connections.minute_ends_at = NEVER
        transition.do(actions.AddMinute(name))
    elif call is actions.WriteProgress:
        running = {task.token for task in state.leases()}
        connections.progress = connections.progress.begin(running, now)
        transition.do(actions.WriteProgress(name, connections.progress.writing))
    else:
        connections.has_output = connections.is_output_next = False
        connections.second_used_at = now
        transition.do(actions.PublishOutput(name))
    _make_busy(transition, name, call)


def _make_busy(
    transition: WorkerTransition, name: ConnectionName, call: type[SideAction] | None = None
) -> None:
    connections = transition.state.connections
    until = transition.now + transition.state.options.call_limit_s
    busy = DatabaseConnection(
        ConnectionState.BUSY, until, connections.get(name).delay_s, transition.now, call
    )
    connections.put(name, busy)


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
        reporting.turn_failed(transition, event, was_cut=connections.main.is_cut)
        state.schedule.is_due = True
        state.doorbell = state.doorbell.lost()
    if connections.get(event.connection).side_call is actions.Fetch and connections.fetching:
        connections.requests = (connections.fetching, *connections.requests)
        connections.fetching = None
    if connections.get(event.connection).side_call is actions.WriteProgress:
        connections.progress = connections.progress.written(())
    if connections.get(event.connection).side_call is actions.AddMinute:
        connections.minute_ends_at = transition.now + MINUTE_S
    if event.failure is DatabaseFailure.GONE:
        _leave_for_successor(transition, "its row or its flow is gone from the database")
    elif event.failure is DatabaseFailure.SCHEMA:
        stopping.drain_because(transition, 78, event.text, ("E307", event.text))
    transition.count(DATABASE_ERRORS, event.failure)
    is_for_sign_off = event.connection is connections.for_side_calls
    _connect_later(transition, event, had_claim)
    if state.mode is WorkerMode.LEAVING and is_for_sign_off:
        stopping.leave(transition)


def _connect_later(
    transition: WorkerTransition, event: events.ConnectionLost, had_claim: bool
) -> None:
    options, connections = transition.state.options, transition.state.connections
    connection = connections.get(event.connection)
    is_serious = event.failure in (DatabaseFailure.ALERT, DatabaseFailure.BROKEN)
    is_too_long = connection.is_cut or event.sqlstate == reporting.TOO_LONG
    is_first = connection.state is ConnectionState.BUSY and connection.delay_s == 0
    if is_serious or is_too_long or is_first:
        level = "error" if is_serious else "warning"
        transition.log_problem(level, event.text, connection=event.connection.value)
    database = options.database
    delay_s = doubled_s(connection.delay_s, database.reconnect_min_s, database.reconnect_max_s)
    if event.failure is DatabaseFailure.BROKEN and not had_claim:  # else the claims pause
        delay_s = database.reconnect_max_s
    until = transition.now + delay_s * (0.5 + event.chance / 2)
    down = DatabaseConnection(ConnectionState.DOWN, until, delay_s)
    connections.put(event.connection, down)


def woken_up(transition: WorkerTransition, event: Wake) -> None:
    """Claim, and ask soon whether the tasks that run still should."""
    state, connections = transition.state, transition.state.connections
    transition.count(WAKES, WakeReason.NOTIFICATION)
    claiming.claim_now(state.schedule)
    if event.slug is None:  # notifications may have been lost
        state.doorbell = state.doorbell.doubted()
    if any(runner.tasks for runner in state.runners.by_id.values()):
        connections.renew_at = min(connections.renew_at, connections.renewed_at + SOON_S)


def leases_renewed(transition: WorkerTransition, event: events.LeasesRenewed) -> None:
    state = transition.state
    state.connections.put(event.connection, FREE)
    state.connections.answered_at = transition.now
    run_log.runs_cancelled(transition, event.cancelled)
    for token, verdict in event.verdicts:
        if verdict is not LeaseVerdict.OK:
            runner_ends.lease_refused(transition, token, verdict)
    _note_standing(transition, event.standing)


def standing_read(transition: WorkerTransition, told: WorkerStanding) -> None:
    """The sweeper has renewed the worker's row, and read its queue."""
    numbers = (told.queued, told.oldest_queued_s, told.due_in_s, told.oldest_run)
    _note_standing(transition, Standing(RowState(told.row), *numbers))


def _note_standing(transition: WorkerTransition, standing: Standing) -> None:
    """Leave for a successor if the row says so; claim what waits, or when it is due."""
    state, connections = transition.state, transition.state.connections
    connections.standing, connections.queue_seen_at = standing, transition.now
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


def fetched(transition: WorkerTransition, event: events.Fetched) -> None:
    connections = transition.state.connections
    connections.put(event.connection, FREE)
    if event.is_locked and connections.fetching:
        again_at = transition.now + LOCKED_PAUSE_S
        connections.refused = (*connections.refused, (again_at, connections.fetching))
    connections.fetching = None


def progress_told(transition: WorkerTransition, event: events.ProgressTold) -> None:
    connections = transition.state.connections
    connections.progress = connections.progress.told(event.token, event.value)


def progress_written(transition: WorkerTransition, event: events.ProgressWritten) -> None:
    connections = transition.state.connections
    connections.put(event.connection, FREE)
    connections.progress = connections.progress.written(event.stored)


def side_call_done(transition: WorkerTransition, event: events.SideCallDone) -> None:
    transition.state.connections.put(event.connection, FREE)


def output_waiting(transition: WorkerTransition, event: events.OutputWaiting) -> None:
    transition.state.connections.has_output = True


def _leave_for_successor(transition: WorkerTransition, why: str) -> None:
    """Drain, and exit 10 (docs/background/supervision.md, rule 40)."""
    if transition.state.mode is WorkerMode.WORKING:
        transition.log("info", "worker.deprecated", reason=why)
        stopping.drain_because(transition, 10, why)
