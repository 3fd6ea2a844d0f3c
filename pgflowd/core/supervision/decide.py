"""
Decides what the supervisor does when a child is ready, ends or is silent, and when it is stopped.

Each `on_…` takes the tree, an event and the time, and returns the changed tree and the actions,
in order. docs/background/supervision.md has the rules. The order of starts and stops is in
`transition`; `reload` decides reloads. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from pgflowd.core.backoff import restart_delay_s
from pgflowd.core.supervision.actions import Action, KillChild, LogPark, LogRestart
from pgflowd.core.supervision.exits import EXIT_CANNOT, ChildExit, ExitKind
from pgflowd.core.supervision.lifecycle import ChildState, DaemonPhase
from pgflowd.core.supervision.sleep import WakeCause, fall_asleep, wake
from pgflowd.core.supervision.timeouts import (
    count_waiting,
    deadline_of,
    limit_waiting,
    may_start,
)
from pgflowd.core.supervision.transition import TreeTransition
from pgflowd.core.supervision.tree import Budget, ChildEntry, ChildSpec, Policy, Tree

KEPT_EXITS = 6  # one more than the restarts that a worker has by default
PARKED_RETRY_S = 300.0  # rare enough to cost nothing, and a cause that passes needs nobody

Result = tuple[Tree, list[Action]]


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
    child, delay_s = _count_restart(transition, child, exit, budget, child.spec)
    child = transition.change(child, is_start_over=True, due_at=transition.now + delay_s)
    if delay_s == 0:
        transition.start(child)


def _count_restart(
    transition: TreeTransition,
    child: ChildEntry,
    exit: ChildExit,
    budget: Budget,
    limits: Policy | ChildSpec,
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
