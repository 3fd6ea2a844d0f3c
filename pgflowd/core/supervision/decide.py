"""
Decides what the supervisor does when a child is ready, ends or is silent, and when it is stopped.

Each `on_…` takes the tree, an event and the time, and returns the changed tree and the actions,
in order. docs/background/supervision.md has the rules. The order of starts and stops is in
`transition`; `reload` decides reloads. Pure.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import Any

from pgflowd.core.backoff import restart_delay_s
from pgflowd.core.messages import FallingAsleep
from pgflowd.core.server_connections import automatic_budget
from pgflowd.core.settings.sections import SupervisorSettings, WorkerSettings
from pgflowd.core.supervision import places
from pgflowd.core.supervision.actions import Action, KillChild, LogPark, LogRestart, LogWake
from pgflowd.core.supervision.transition import TreeTransition
from pgflowd.core.supervision.tree import (
    EXIT_CANNOT,
    EXIT_UNREACHABLE,
    Budget,
    ChildEntry,
    ChildExit,
    ChildState,
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
    moments += [None if is_stopping else tree.due_at, tree.ask_at if places.line(tree) else None]
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


def on_waiting(tree: Tree, id: str, what: str | None, now: float) -> tuple[Tree, list[Action]]:
    """A child waits for the database (`what`), or goes on (None)."""
    transition = TreeTransition(tree, now)
    child = tree.child(id)
    if child is None:
        return transition.result()
    if child.state is not ChildState.STARTING:  # its clock stands still anyway, and it has spoken
        transition.change(child, last_message_at=now)
    elif what and child.waiting_for is None:
        left = max(0.0, (child.deadline_at or now) - now)
        transition.change(
            child, waiting_for=what, start_left_s=left, deadline_at=None, last_message_at=now
        )
    elif not what and child.waiting_for is not None:
        transition.change(
            child, waiting_for=None, deadline_at=now + child.start_left_s, last_message_at=now
        )
    count_waiting(transition)
    limit_waiting(transition)
    return transition.result()


def count_waiting(transition: TreeTransition) -> None:
    """Add the time that the first start has waited so far, and count on while a child waits."""
    tree, now = transition.tree, transition.now
    waited_s = tree.waited_s + (now - tree.waiting_from if tree.waiting_from is not None else 0.0)
    is_first = tree.is_first_start and tree.phase is DaemonPhase.STARTING
    is_waiting = is_first and any(child.waiting_for for child in tree.children)
    transition.set(waited_s=waited_s, waiting_from=now if is_waiting else None)


def limit_waiting(transition: TreeTransition) -> None:
    """End a first start that has waited for `startup_wait`."""
    tree = transition.tree
    if tree.waiting_from is None or tree.phase is not DaemonPhase.STARTING:
        return
    if tree.waited_s + transition.now - tree.waiting_from >= tree.policy.startup_wait_s:
        transition.set(waiting_from=None)
        transition.stop_all(EXIT_UNREACHABLE)
        transition.advance()


Result = tuple[Tree, list[Action]]


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


def on_falling_asleep(tree: Tree, id: str, message: FallingAsleep, now: float) -> Result:
    """A worker that is up signs off and ends, since it has nothing to do."""
    transition = TreeTransition(tree, now)
    child = tree.child(id)
    if child is not None and child.state is ChildState.UP:
        transition.change(child, sleep=message)
    return transition.result()


def on_wake(tree: Tree, id: str, cause: WakeCause, now: float) -> Result:
    """There may be work for a worker that sleeps, or is about to."""
    transition = TreeTransition(tree, now)
    child = tree.child(id)
    if child is None or tree.phase in {DaemonPhase.STOPPING, DaemonPhase.ENDED}:
        return transition.result()
    if child.state is ChildState.ASLEEP:
        wake(transition, child, cause)
        transition.advance()
    elif child.state is ChildState.UP and child.sleep is not None:
        transition.change(child, is_woken=True)
    return transition.result()


def on_next_due(tree: Tree, id: str, at: float, now: float) -> Result:
    """The sweeper has seen when the next message of a sleeping worker becomes visible."""
    transition = TreeTransition(tree, now)
    child = tree.child(id)
    if child is not None and child.state is ChildState.ASLEEP:
        transition.change(child, due_at=at)
    return transition.result()


def fall_asleep(transition: TreeTransition, child: ChildEntry, message: FallingAsleep) -> None:
    """A worker has ended as it said it would; one that was woken meanwhile starts again."""
    was_woken = child.is_woken
    child = transition.change(
        child,
        ChildState.ASLEEP,
        is_start_over=True,
        sleep=message,
        asleep_at=transition.now,
        due_at=message.next_due_at,
    )
    if was_woken:
        wake(transition, child, WakeCause.NOTIFICATION)


def wake(transition: TreeTransition, child: ChildEntry, cause: WakeCause) -> None:
    """Let a sleeping worker start, as soon as not too many others do."""
    transition.change(child, ChildState.IDLE, is_woken=True)
    transition.do(LogWake(child.id, cause))


KEPT_EXITS = 6  # one more than the restarts that a worker has by default
PARKED_RETRY_S = 300.0  # rare enough to cost nothing, and a cause that passes needs nobody


def on_begin(tree: Tree, now: float) -> Result:
    """The daemon begins: its observers start before discovery and all other children."""
    transition = TreeTransition(tree, now)
    transition.advance()
    return transition.result()


def on_ready(tree: Tree, id: str, now: float) -> Result:
    """A child is up."""
    transition = TreeTransition(tree, now)
    child = tree.child(id)
    if child is not None and child.state is ChildState.STARTING:
        transition.change(
            child,
            ChildState.UP,
            is_start_over=True,
            ready_at=now,
            last_message_at=now,
            deadline_at=None,
            waiting_for=None,
            is_woken=False,
        )
        count_waiting(transition)
        transition.advance()
    return transition.result()


def on_message(tree: Tree, id: str, now: float) -> Result:
    """A child sent a message, so it is alive."""
    child = tree.child(id)
    return (tree.put(replace(child, last_message_at=now)) if child else tree), []


def on_exit(tree: Tree, id: str, exit: ChildExit, now: float) -> Result:
    """A child has ended, its Unix session is killed, and its channel is read."""
    transition = TreeTransition(tree, now)
    child = tree.child(id)
    if child is None or not child.state.is_alive:
        return transition.result()
    child = transition.change(child, waiting_for=None)
    count_waiting(transition)
    if child.state in {ChildState.DRAINING, ChildState.STOPPING} or _stops_anyway(tree, child):
        transition.end(child)
    else:
        if not exit.is_orderly:
            child = transition.change(child, exits=(*child.exits, exit.reason)[-KEPT_EXITS:])
        if child.spec.is_observer:
            _on_observer_exit(transition, child, exit)
        else:
            (_on_worker_exit if child.spec.is_worker else _on_single_exit)(transition, child, exit)
    transition.advance()
    return transition.result()


def on_stop(tree: Tree, now: float, *, drain: bool, within_s: float | None = None) -> Result:
    """The daemon is asked to stop. A quick stop overtakes a drain, never the reverse."""
    transition = TreeTransition(tree, now)
    if tree.phase is DaemonPhase.ENDED or (
        tree.phase is DaemonPhase.STOPPING and not tree.is_draining
    ):
        return transition.result()
    if tree.phase is not DaemonPhase.STOPPING:
        transition.stop_all(0, drain=drain, within_s=within_s)
    elif not drain:
        transition.set(is_draining=False)
    elif tree.drain_s is None and within_s is not None:
        transition.limit_drain(within_s)
    transition.advance()
    return transition.result()


def on_tick(tree: Tree, now: float) -> Result:
    """Time has passed: start the children that are due, kill those past a limit."""
    transition = TreeTransition(tree, now)
    for child in tree.children:
        until, why = deadline_of(tree, child)
        if until is not None and until <= now:
            transition.change(child, kill_reason=why)
            transition.do(KillChild(child.id, why))
        elif child.due_at is not None and child.due_at <= now and may_start(tree, child):
            _on_due(transition, child)
    if tree.phase not in {DaemonPhase.DISCOVERING, DaemonPhase.ENDED}:
        transition.advance()
    limit_waiting(transition)
    return transition.result()


def _on_due(transition: TreeTransition, child: ChildEntry) -> None:
    """Start a child without a process, whose time has come."""
    if child.state is ChildState.ASLEEP:
        wake(transition, child, WakeCause.DUE)
        return
    if child.state is ChildState.PARKED:
        child = transition.change(child, is_last_try=True, error=None)
    transition.start(child)


def _stops_anyway(tree: Tree, child: ChildEntry) -> bool:
    """Whether the child ended while its position is being stopped anyway."""
    if child.spec.is_observer:
        return False
    if tree.phase is DaemonPhase.STOPPING:
        return True
    return tree.phase is DaemonPhase.RESTARTING and child.spec.position >= tree.position


def _on_single_exit(transition: TreeTransition, child: ChildEntry, exit: ChildExit) -> None:
    """A child that is not a worker ended without being asked."""
    if transition.tree.is_first_start and child.state is ChildState.STARTING and not child.restarts:
        child = transition.change(child, ChildState.IDLE, is_start_over=False)
        if exit.kind is ExitKind.CANNOT_START:
            transition.stop_all(EXIT_CANNOT)
        else:
            transition.give_up(child, "before the daemon was ready: ")
        return
    if exit.kind is ExitKind.REPLACE and child.state is ChildState.UP:
        transition.change(child, ChildState.RESTARTING)
        transition.restart_from(child.spec.position, 0.0)
        return
    budget, allowed = transition.tree.budget.spend(transition.now)
    transition.set(budget=budget)
    child = _with_reset_delays(transition, child)
    if not allowed:
        child = transition.change(child, ChildState.IDLE, is_start_over=False)
        transition.give_up(child)
        return
    child, delay_s = _count_restart(transition, child, exit, budget, transition.tree.policy)
    transition.restart_from(child.spec.position, delay_s)


def _on_worker_exit(transition: TreeTransition, child: ChildEntry, exit: ChildExit) -> None:
    """A worker ended without being asked."""
    if exit.kind is ExitKind.REPLACE and child.state is ChildState.UP:
        child = transition.change(child, ChildState.RESTARTING, is_start_over=True)
        transition.start(child)
        return
    if exit.kind is ExitKind.ASLEEP and child.sleep is not None:
        fall_asleep(transition, _with_reset_delays(transition, child), child.sleep)
        return
    if exit.kind is ExitKind.CANNOT_START:
        _park(transition, child, exit, is_tried_again=False)
        return
    budget, allowed = child.budget.spend(transition.now)
    child = _with_reset_delays(transition, transition.change(child, budget=budget))
    if not allowed or child.is_last_try:
        _park(transition, child, exit, is_tried_again=True)
        return
    _restart_alone(transition, child, exit, budget)


def _on_observer_exit(transition: TreeTransition, child: ChildEntry, exit: ChildExit) -> None:
    """An observer ended without being asked: nobody else notices (rules 51 and 52 of
    docs/background/supervision.md)."""
    if exit.kind is ExitKind.CANNOT_START:
        _park(transition, child, exit, is_tried_again=True)
        return
    budget, _ = child.budget.spend(transition.now)
    child = _with_reset_delays(transition, transition.change(child, budget=budget))
    _restart_alone(transition, child, exit, budget)


def _restart_alone(
    transition: TreeTransition, child: ChildEntry, exit: ChildExit, budget: Budget
) -> None:
    """Restart a child after its delay, and no other one."""
    child, delay_s = _count_restart(transition, child, exit, budget, child.spec.limits)
    child = transition.change(child, is_start_over=True, due_at=transition.now + delay_s)
    if delay_s == 0:
        transition.start(child)


def _count_restart(
    transition: TreeTransition,
    child: ChildEntry,
    exit: ChildExit,
    budget: Budget,
    limits: SupervisorSettings | WorkerSettings,
) -> tuple[ChildEntry, float]:
    """Log and count a restart; return the child, and the delay of the restart."""
    earlier = child.restarts_in_row
    delay_s = restart_delay_s(earlier, limits.backoff_min_s, limits.backoff_max_s)
    child = transition.change(
        child, ChildState.RESTARTING, restarts_in_row=earlier + 1, restarts=child.restarts + 1
    )
    transition.do(LogRestart(child.id, exit, budget.count(transition.now), delay_s))
    return child, delay_s


def _with_reset_delays(transition: TreeTransition, child: ChildEntry) -> ChildEntry:
    """Reset the delays of a child that was ready for a whole period."""
    ready_s = transition.now - child.ready_at if child.ready_at is not None else 0.0
    if ready_s >= transition.tree.policy.max_period_s:
        return transition.change(child, restarts_in_row=0, is_last_try=False)
    return child


def _park(
    transition: TreeTransition, child: ChildEntry, exit: ChildExit, *, is_tried_again: bool
) -> None:
    exit = replace(exit, code=exit.code or ("E412" if exit.is_crash else "E901"))
    transition.change(
        child,
        ChildState.PARKED,
        is_start_over=True,
        parked_at=transition.now,
        error=exit,
        due_at=transition.now + PARKED_RETRY_S if is_tried_again else None,
    )
    transition.do(LogPark(child.id, exit))


# What the children say about connections: how many the server has left, who wants a second one, and
# who stays awake although its place is needed (docs/background/supervision.md, rule 56).
def on_connections_left(tree: Tree, left: int, now: float) -> Result:
    """The server has so many left at the start: that is the budget, if none is set."""
    transition = TreeTransition(tree, now)
    if tree.max_connections is None:
        transition.set(max_connections=automatic_budget(left))
    return transition.result()


def on_connection_wanted(tree: Tree, id: str, now: float) -> Result:
    return _changed(tree, id, now, wants_second=True)


def on_connection_returned(tree: Tree, id: str, now: float) -> Result:
    return _changed(tree, id, now, wants_second=False, has_second=False)


def on_staying_awake(tree: Tree, id: str, now: float) -> Result:
    return _changed(tree, id, now, is_asked=False, asked_at=now)


def _changed(tree: Tree, id: str, now: float, **changes: Any) -> Result:
    """Change a worker that has a process, and hand out the places that are free."""
    transition = TreeTransition(tree, now)
    child = tree.child(id)
    if child is not None and child.state.is_alive:
        transition.change(child, **changes)
        transition.start_line()
    return transition.result()
