"""
Decides what the supervisor does when a child is ready, ends or is silent, and when it is stopped.

Each `on_…` is an event, and changes a `TreeTransition`: the tree, and the actions in their order.
docs/background/supervision.md has the rules. The order of starts and stops is in `transition`;
`reload` decides reloads. Pure.
"""

from __future__ import annotations

from enum import StrEnum

from pgflowd.core.backoff import restart_delay_s
from pgflowd.core.messages import (
    ConnectionReturned,
    ConnectionWanted,
    FallingAsleep,
    StayingAwake,
)
from pgflowd.core.server_connections import automatic_budget
from pgflowd.core.settings.sections import SupervisorSettings, WorkerSettings
from pgflowd.core.statuses import ChildState
from pgflowd.core.supervision.transition import RESTARTED, KillChild, TreeTransition
from pgflowd.core.supervision.tree import (
    EXIT_CANNOT,
    EXIT_UNREACHABLE,
    Budget,
    ChildEntry,
    ChildExit,
    DaemonPhase,
    ExitKind,
    Tree,
)


# Until when the supervisor waits for each child, and when it has something to do next.
#
# A start may take `start_timeout`, silence `hang_timeout`, and a stop what
# docs/background/supervision.md, rule 29, allows. Rule 5: `start_timeout` does not run while a
# child waits for the database. The whole first start waits at most `startup_wait`; then all stop,
# and the exit is 69.
def next_due(tree: Tree) -> float | None:
    """Return when `on_tick` has something to do next, or None if never."""
    moments = [deadline_of(tree, child)[0] for child in tree.children]
    moments += [child.due_at for child in tree.children if may_start(tree, child)]
    is_stopping = any(c.state.is_alive and c.spec.position >= tree.position for c in tree.children)
    moments += [None if is_stopping else tree.due_at, tree.ask_at if tree.line else None]
    if tree.waiting_from is not None and tree.phase is DaemonPhase.STARTING:
        left = tree.policy.startup_wait_s - tree.waited_s
        moments.append(tree.waiting_from + left)
    return min((moment for moment in moments if moment is not None), default=None)


def may_start(tree: Tree, child: ChildEntry) -> bool:
    return child.due_at is not None and child.spec.position <= tree.free_up_to


def deadline_of(tree: Tree, child: ChildEntry) -> tuple[float | None, str]:
    """Return until when the supervisor waits for a child, and the reason of the kill after it."""
    if not child.state.is_alive or child.kill_reason:
        return None, ""
    hang_timeout_s, end_at = tree.policy.hang_timeout_s, child.deadline_at
    silent_at = child.last_message_at + hang_timeout_s
    silent = silent_at, f"said nothing for {hang_timeout_s:g} s"
    if child.state is ChildState.UP or child.waiting_for:
        return silent
    if child.state is ChildState.STARTING:
        return end_at, f"was not ready within {tree.policy.start_timeout_s:g} s"
    if child.state is ChildState.DRAINING and (end_at is None or silent_at < end_at):
        return silent
    return end_at, "did not end when asked"


def on_waiting(t: TreeTransition, id: str, what: str | None) -> None:
    """A child waits for the database (`what`), or goes on (None)."""
    if (child := t.tree.child(id)) is None:
        return
    child = t.change(child, last_message_at=t.now)
    if child.state is ChildState.STARTING:  # of others no clock runs
        if what and child.waiting_for is None:
            left = max(0.0, (child.deadline_at or t.now) - t.now)
            t.change(child, waiting_for=what, start_left_s=left, deadline_at=None)
        elif not what and child.waiting_for is not None:
            t.change(child, waiting_for=None, deadline_at=t.now + child.start_left_s)
    count_waiting(t)
    limit_waiting(t)


def count_waiting(t: TreeTransition) -> None:
    """Add the time that the first start has waited so far, and count on while a child waits."""
    tree = t.tree
    waited_s = tree.waited_s + (t.now - tree.waiting_from if tree.waiting_from is not None else 0.0)
    is_first = tree.is_first_start and tree.phase is DaemonPhase.STARTING
    is_waiting = is_first and any(child.waiting_for for child in tree.children)
    t.set(waited_s=waited_s, waiting_from=t.now if is_waiting else None)


def limit_waiting(t: TreeTransition) -> None:
    """End a first start that has waited for `startup_wait`."""
    tree = t.tree
    if tree.waiting_from is None or tree.phase is not DaemonPhase.STARTING:
        return
    if tree.waited_s + t.now - tree.waiting_from >= tree.policy.startup_wait_s:
        t.set(waiting_from=None)
        t.stop_all(EXIT_UNREACHABLE)
        t.advance()


# Lets a worker without work sleep, and wakes it when there may be work.
#
# A worker that falls asleep says so, signs off and ends. A wake that comes meanwhile is noted, and
# the worker starts again as soon as it has ended. Whether a message came in between that nobody
# announced is for the sweeper to see, which looks at the queue after the worker has ended
# (docs/background/supervision.md, rules 54 and 55).
class WakeCause(StrEnum):
    """Why a sleeping worker is started."""

    NOTIFICATION = "notification"
    DUE = "due"  # a hidden message becomes visible
    FOUND = "found"  # the sweeper saw a message that no notification had announced
    COMMAND = "command"  # `pgflowd wake`


def on_falling_asleep(t: TreeTransition, id: str, message: FallingAsleep) -> None:
    """A worker that is up signs off and ends, since it has nothing to do."""
    child = t.tree.child(id)
    if child is not None and child.state is ChildState.UP:
        t.change(child, sleep=message)


def on_wake(t: TreeTransition, id: str, cause: WakeCause) -> None:
    """There may be work for a worker that sleeps, or is about to."""
    child = t.tree.child(id)
    if child is None or t.tree.is_ending:
        return
    if child.state is ChildState.ASLEEP:
        wake(t, child, cause)
        t.advance()
    elif child.state is ChildState.UP and child.sleep is not None:
        t.change(child, is_woken=True)


def on_next_due(t: TreeTransition, id: str, at: float) -> None:
    """The sweeper has seen when the next message of a sleeping worker becomes visible."""
    child = t.tree.child(id)
    if child is not None and child.state is ChildState.ASLEEP:
        t.change(child, due_at=at)


def wake(t: TreeTransition, child: ChildEntry, cause: WakeCause) -> None:
    """Let a sleeping worker start, as soon as not too many others do."""
    t.change(child, ChildState.IDLE, is_woken=True)
    t.log("info", "child.woken", child, reason=cause)


KEPT_EXITS = 6  # one more than the restarts that a worker has by default
PARKED_RETRY_S = 300.0  # rare enough to cost nothing, and a cause that passes needs nobody


def on_begin(t: TreeTransition) -> None:
    """The daemon begins: its observers start before discovery and all other children."""
    t.advance()


def on_ready(t: TreeTransition, id: str) -> None:
    """A child is up."""
    child = t.tree.child(id)
    if child is not None and child.state is ChildState.STARTING:
        t.change(
            child,
            ChildState.UP,
            is_start_over=True,
            ready_at=t.now,
            last_message_at=t.now,
            deadline_at=None,
            waiting_for=None,
            is_woken=False,
        )
        count_waiting(t)
        t.advance()


def on_message(t: TreeTransition, id: str) -> None:
    """A child sent a message, so it is alive."""
    if child := t.tree.child(id):
        t.change(child, last_message_at=t.now)


def on_exit(t: TreeTransition, id: str, exit: ChildExit) -> None:
    """A child has ended, its Unix session is killed, and its channel is read."""
    tree, child = t.tree, t.tree.child(id)
    if child is None or not child.state.is_alive:
        return
    child = t.change(child, waiting_for=None)
    count_waiting(t)
    stops_anyway = not child.spec.is_observer and (
        tree.phase is DaemonPhase.STOPPING
        or (tree.phase is DaemonPhase.RESTARTING and child.spec.position >= tree.position)
    )
    if stops_anyway or child.state in {ChildState.DRAINING, ChildState.STOPPING}:
        t.end(child)
    else:
        if not exit.is_orderly:
            child = t.change(child, exits=(*child.exits, exit.reason)[-KEPT_EXITS:])
        is_alone = child.spec.is_worker or child.spec.is_observer
        (_on_exit_of_one if is_alone else _on_exit_of_all)(t, child, exit)
    t.advance()


def on_stop(t: TreeTransition, *, drain: bool, within_s: float | None = None) -> None:
    """The daemon is asked to stop. A quick stop overtakes a drain, never the reverse."""
    tree = t.tree
    if tree.is_ending and not (tree.phase is DaemonPhase.STOPPING and tree.is_draining):
        return
    if not tree.is_ending:
        t.stop_all(0, drain=drain, within_s=within_s)
    elif not drain:
        t.set(is_draining=False)
    elif tree.drain_s is None and within_s is not None:
        t.limit_drain(within_s)
    t.advance()


def on_tick(t: TreeTransition) -> None:
    """Time has passed: start the children that are due, kill those past a limit."""
    tree = t.tree
    for child in tree.children:
        until, why = deadline_of(tree, child)
        if until is not None and until <= t.now:
            t.change(child, kill_reason=why)
            t.do(KillChild(child.id, why))
        elif child.due_at is not None and child.due_at <= t.now and may_start(tree, child):
            if child.state is ChildState.ASLEEP:
                wake(t, child, WakeCause.DUE)
                continue
            if child.state is ChildState.PARKED:
                child = t.change(child, is_last_try=True, error=None)
            t.start(child)
    if tree.phase not in {DaemonPhase.DISCOVERING, DaemonPhase.ENDED}:
        t.advance()
    limit_waiting(t)


def _on_exit_of_all(t: TreeTransition, child: ChildEntry, exit: ChildExit) -> None:
    """A child ended without being asked, and those after it restart with it."""
    if t.tree.is_first_start and child.state is ChildState.STARTING and not child.restarts:
        child = t.change(child, ChildState.IDLE, is_start_over=False)
        if exit.kind is ExitKind.CANNOT_START:
            t.stop_all(EXIT_CANNOT)
        else:
            t.give_up(child, "before the daemon was ready: ")
        return
    if exit.kind is ExitKind.REPLACE and child.state is ChildState.UP:
        t.change(child, ChildState.RESTARTING)
        t.restart_from(child.spec.position, 0.0)
        return
    budget, allowed = t.tree.budget.spend(t.now)
    t.set(budget=budget)
    child = _with_reset_delays(t, child)
    if not allowed:
        t.give_up(t.change(child, ChildState.IDLE, is_start_over=False))
        return
    child, delay_s = _count_restart(t, child, exit, budget, t.tree.policy)
    t.restart_from(child.spec.position, delay_s)


def _on_exit_of_one(t: TreeTransition, child: ChildEntry, exit: ChildExit) -> None:
    """A worker or observer ended without being asked, and no other child restarts. An observer has
    no budget, and is tried again whatever it lacks (docs/background/supervision.md, rules 51 and
    52)."""
    is_observer = child.spec.is_observer
    if exit.kind is ExitKind.REPLACE and child.state is ChildState.UP:
        t.start(t.change(child, ChildState.RESTARTING, is_start_over=True))
        return
    if exit.kind is ExitKind.ASLEEP and child.sleep is not None:
        # it has ended as it said it would; one that was woken meanwhile starts again
        asleep = t.change(
            _with_reset_delays(t, child),
            ChildState.ASLEEP,
            is_start_over=True,
            sleep=child.sleep,
            asleep_at=t.now,
            due_at=child.sleep.next_due_at,
        )
        if child.is_woken:
            wake(t, asleep, WakeCause.NOTIFICATION)
        return
    retry_at = t.now + PARKED_RETRY_S
    if exit.kind is ExitKind.CANNOT_START:
        t.park(child, exit, retry_at if is_observer else None)
        return
    budget, allowed = child.budget.spend(t.now)
    child = _with_reset_delays(t, t.change(child, budget=budget))
    if not is_observer and (not allowed or child.is_last_try):
        t.park(child, exit, retry_at)
        return
    child, delay_s = _count_restart(t, child, exit, budget, child.spec.limits)
    child = t.change(child, is_start_over=True, due_at=t.now + delay_s)
    if delay_s == 0:
        t.start(child)


def _count_restart(
    t: TreeTransition,
    child: ChildEntry,
    exit: ChildExit,
    budget: Budget,
    limits: SupervisorSettings | WorkerSettings,
) -> tuple[ChildEntry, float]:
    """Log and count a restart; return the child, and the delay of the restart."""
    earlier = child.restarts_in_row
    delay_s = restart_delay_s(earlier, limits.backoff_min_s, limits.backoff_max_s)
    child = t.change(
        child, ChildState.RESTARTING, restarts_in_row=earlier + 1, restarts=child.restarts + 1
    )
    fields = {"reason": exit.reason, "count": budget.count(t.now), "delay_s": delay_s}
    t.log("warning", RESTARTED, child, **fields)
    return child, delay_s


def _with_reset_delays(t: TreeTransition, child: ChildEntry) -> ChildEntry:
    """Reset the delays of a child that was ready for a whole period."""
    ready_s = t.now - child.ready_at if child.ready_at is not None else 0.0
    if ready_s >= t.tree.policy.max_period_s:
        return t.change(child, restarts_in_row=0, is_last_try=False)
    return child


# What the children say about connections (docs/background/supervision.md, rule 56).
def on_connections_left(t: TreeTransition, left: int) -> None:
    """The server has so many left at the start: that is the budget, if none is set."""
    if t.tree.max_connections is None:
        t.set(max_connections=automatic_budget(left))


def on_connection(
    t: TreeTransition, id: str, message: ConnectionWanted | ConnectionReturned | StayingAwake
) -> None:
    """A worker wants a second connection, has closed it, or stays awake although its place is
    needed. The places that are free are handed out."""
    child = t.tree.child(id)
    if child is None or not child.state.is_alive:
        return
    if isinstance(message, StayingAwake):
        t.change(child, is_asked=False, asked_at=t.now)
    elif isinstance(message, ConnectionWanted):
        t.change(child, wants_second=True)
    else:
        t.change(child, wants_second=False, has_second=False)
    t.start_line()
