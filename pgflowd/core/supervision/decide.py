"""
Supervision: what to do when a child is ready, ends, or says nothing, and when we are told to stop.

Each `on_…` takes the tree, an event and the time, and returns the changed tree with the
actions to take, in order. The numbered rules are those of the design page "Supervision"; how
starts and stops follow each other is `transition`, reloading is `reload` beside it. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from pgflowd.core.backoff import restart_delay_s
from pgflowd.core.supervision.actions import Action, KillChild, Parked, Restarting
from pgflowd.core.supervision.exits import ChildExit, ExitKind
from pgflowd.core.supervision.lifecycle import ChildState, DaemonPhase
from pgflowd.core.supervision.timeouts import may_try, patience
from pgflowd.core.supervision.transition import TreeTransition
from pgflowd.core.supervision.tree import ChildEntry, Tree
from pgflowd.core.supervision.waiting import count_waiting, judge_waiting, note_waiting

KEPT_EXITS = 6

Result = tuple[Tree, list[Action]]


def on_ready(tree: Tree, id: str, now: float) -> Result:
    """A child is up."""
    transition = TreeTransition(tree, now)
    child = tree.child(id)
    if child is not None and child.state is ChildState.STARTING:
        count_waiting(transition)
        transition.change(
            child,
            ChildState.UP,
            settled=True,
            up_since=now,
            heard=now,
            deadline=None,
            waiting_for=None,
        )
        note_waiting(transition)
        transition.settle()
    return transition.result()


def on_heard(tree: Tree, id: str, now: float) -> Result:
    """A child said something, so it lives."""
    child = tree.child(id)
    return (tree.put(replace(child, heard=now)) if child else tree), []


def on_exit(tree: Tree, id: str, exit: ChildExit, now: float) -> Result:
    """A child has ended, its Unix session is killed, and its pipe is read."""
    transition = TreeTransition(tree, now)
    child = tree.child(id)
    if child is None or not child.state.is_alive:
        return transition.result()
    count_waiting(transition)
    child = transition.change(child, waiting_for=None)
    note_waiting(transition)
    if child.state in {ChildState.DRAINING, ChildState.STOPPING} or _is_taken_along(tree, child):
        transition.bury(child)
    else:
        _end_unasked(transition, child, exit)
    transition.settle()
    return transition.result()


def on_stop(tree: Tree, now: float, *, drain: bool, within_s: float | None = None) -> Result:
    """We are told to stop. A quick stop overtakes a drain, never the other way round."""
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
    transition.settle()
    return transition.result()


def on_tick(tree: Tree, now: float) -> Result:
    """Time has passed: begin what is due, kill whose patience is over."""
    transition = TreeTransition(tree, now)
    for child in tree.children:
        until, why = patience(tree, child)
        if until is not None and until <= now:
            transition.change(child, killed=why)
            transition.do(KillChild(child.id, why))
        elif child.due is not None and child.due <= now:
            _try_again(transition, child)
    if tree.phase not in {DaemonPhase.DISCOVERING, DaemonPhase.ENDED}:
        transition.settle()
    judge_waiting(transition)
    return transition.result()


def _end_unasked(transition: TreeTransition, child: ChildEntry, exit: ChildExit) -> None:
    """Remember why, unless it only wants a successor; then restart it, park it or give up."""
    if exit.kind is not ExitKind.REPLACE:
        child = transition.change(child, exits=(*child.exits, exit.reason)[-KEPT_EXITS:])
    if child.spec.is_worker:
        _end_of_worker(transition, child, exit)
    else:
        _end_of_root(transition, child, exit)


def _is_taken_along(tree: Tree, child: ChildEntry) -> bool:
    """Whether it ended while its position goes down anyway (rules 17, 30)."""
    if tree.phase is DaemonPhase.STOPPING:
        return True
    return tree.phase is DaemonPhase.WINDING and child.spec.position >= tree.at


def _end_of_root(transition: TreeTransition, child: ChildEntry, exit: ChildExit) -> None:
    """Listener or sweeper ended unasked (rules 6, 13, 14, 20)."""
    if transition.tree.first and child.state is ChildState.STARTING and not child.restarts:
        child = transition.change(child, ChildState.IDLE, settled=False)
        if exit.kind is ExitKind.CANNOT:  # it has said why
            transition.stop_all(78)
        else:
            transition.give_up(child, "before the daemon was ready: ")
        return
    policy = transition.tree.policy
    if exit.kind is ExitKind.REPLACE and child.state is ChildState.UP:
        transition.change(child, ChildState.RESTARTING)
        transition.wind_down(child.spec.position, 0.0)
        return
    budget, allowed = transition.tree.budget.spend(transition.now)
    transition.set(budget=budget)
    child = _renewed(transition, child)
    if not allowed:
        child = transition.change(child, ChildState.IDLE, settled=False)
        transition.give_up(child)
        return
    delay_s = restart_delay_s(child.streak, policy.backoff_min_s, policy.backoff_max_s)
    count = budget.count(transition.now)
    transition.change(
        child, ChildState.RESTARTING, streak=child.streak + 1, restarts=child.restarts + 1
    )
    transition.do(Restarting(child.id, exit.reason, count, delay_s))
    transition.wind_down(child.spec.position, delay_s)


def _end_of_worker(transition: TreeTransition, child: ChildEntry, exit: ChildExit) -> None:
    """A worker ended unasked (rules 9, 14, 22 to 25)."""
    if exit.kind is ExitKind.REPLACE and child.state is ChildState.UP:
        child = transition.change(child, ChildState.RESTARTING, settled=True)
        transition.start(child)
        return
    if exit.kind is ExitKind.CANNOT:
        _park(transition, child, "definition", exit, retry_s=0)
        return
    budget, allowed = child.budget.spend(transition.now)
    child = _renewed(transition, transition.change(child, budget=budget))
    if not allowed or child.on_trial:
        _park(transition, child, "crashing", exit, retry_s=child.spec.parked_retry_s)
        return
    delay_s = restart_delay_s(child.streak, child.spec.backoff_min_s, child.spec.backoff_max_s)
    child = transition.change(
        child,
        ChildState.RESTARTING,
        settled=True,
        streak=child.streak + 1,
        restarts=child.restarts + 1,
        due=transition.now + delay_s,
    )
    transition.do(Restarting(child.id, exit.reason, child.budget.count(transition.now), delay_s))
    if delay_s == 0:
        transition.start(child)


def _renewed(transition: TreeTransition, child: ChildEntry) -> ChildEntry:
    """A child that was ready for a whole period begins anew (rule 22)."""
    lived_s = transition.now - child.up_since if child.up_since is not None else 0.0
    if lived_s >= transition.tree.policy.max_period_s:
        return transition.change(child, streak=0, on_trial=False)
    return child


def _park(
    transition: TreeTransition, child: ChildEntry, why: str, exit: ChildExit, retry_s: float
) -> None:
    code = exit.code or ("E412" if why == "crashing" else "E901")
    transition.change(
        child,
        ChildState.PARKED,
        settled=True,
        parked_for=why,
        parked_at=transition.now,
        error=(code, exit.reason),
        due=transition.now + retry_s if retry_s else None,
        deadline=None,
        up_since=None,
    )
    transition.do(Parked(child.id, code, exit.reason))


def _try_again(transition: TreeTransition, child: ChildEntry) -> None:
    """Its delay is over, or its time as a parked one (rule 23)."""
    if not may_try(transition.tree, child):
        return
    if child.state is ChildState.PARKED:
        child = transition.change(child, on_trial=True, parked_for=None, error=None)
    transition.start(child)
