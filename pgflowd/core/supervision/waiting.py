"""
Waiting: the time that the first start spends waiting for the database.

Rule 5: while a child waits, its start's clock stands still; the whole first start waits at most
`startup_wait`, then all stop and the exit is 69. Pure.
"""

from __future__ import annotations

from pgflowd.core.supervision.actions import Action
from pgflowd.core.supervision.lifecycle import ChildState, DaemonPhase
from pgflowd.core.supervision.transition import TreeTransition
from pgflowd.core.supervision.tree import Tree

UNREACHABLE = 69


def on_waiting(tree: Tree, id: str, what: str | None, now: float) -> tuple[Tree, list[Action]]:
    """A child waits for the database, so its start's clock stands still; None: it goes on."""
    transition = TreeTransition(tree, now)
    child = tree.child(id)
    if child is None or child.state is not ChildState.STARTING:
        return transition.result()
    count_waiting(transition)
    if what and child.waiting_for is None:
        left = max(0.0, (child.deadline or now) - now)
        transition.change(child, waiting_for=what, left_s=left, deadline=None, heard=now)
    elif not what and child.waiting_for is not None:
        transition.change(child, waiting_for=None, deadline=now + child.left_s, heard=now)
    note_waiting(transition)
    judge_waiting(transition)
    return transition.result()


def count_waiting(transition: TreeTransition) -> None:
    """Add the time that the first start has waited for the database so far."""
    tree = transition.tree
    if tree.waiting_since is not None:
        transition.set(
            waited_s=tree.waited_s + transition.now - tree.waiting_since, waiting_since=None
        )


def note_waiting(transition: TreeTransition) -> None:
    tree = transition.tree
    waiting = any(child.waiting_for for child in tree.children)
    starting = tree.first and tree.phase is DaemonPhase.STARTING
    transition.set(waiting_since=transition.now if waiting and starting else None)


def judge_waiting(transition: TreeTransition) -> None:
    """The first start waits at most `startup_wait`, then the exit is 69 (rule 5)."""
    tree = transition.tree
    if tree.waiting_since is None or tree.phase is not DaemonPhase.STARTING:
        return
    if tree.waited_s + transition.now - tree.waiting_since >= tree.policy.startup_wait_s:
        transition.set(waiting_since=None)
        transition.stop_all(UNREACHABLE)
        transition.settle()
