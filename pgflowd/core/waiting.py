"""
Waiting: the time that the first start spends waiting for the database.

Rule 5: while a child waits, its start's clock stands still; the whole first start waits at most
`startup_wait`, then all stop and the exit is 69. Pure.
"""

from __future__ import annotations

from pgflowd.core.actions import Action
from pgflowd.core.lifecycle import Phase, State
from pgflowd.core.tree import Tree
from pgflowd.core.turn import Turn

UNREACHABLE = 69


def on_waiting(tree: Tree, id: str, what: str | None, now: float) -> tuple[Tree, list[Action]]:
    """A child waits for the database, so its start's clock stands still; None: it goes on."""
    turn = Turn(tree, now)
    child = tree.child(id)
    if child is None or child.state is not State.STARTING:
        return turn.result()
    count_waiting(turn)
    if what and child.waiting_for is None:
        left = max(0.0, (child.deadline or now) - now)
        turn.change(child, waiting_for=what, left_s=left, deadline=None, heard=now)
    elif not what and child.waiting_for is not None:
        turn.change(child, waiting_for=None, deadline=now + child.left_s, heard=now)
    note_waiting(turn)
    judge_waiting(turn)
    return turn.result()


def count_waiting(turn: Turn) -> None:
    """Add the time that the first start has waited for the database so far."""
    tree = turn.tree
    if tree.waiting_since is not None:
        turn.set(waited_s=tree.waited_s + turn.now - tree.waiting_since, waiting_since=None)


def note_waiting(turn: Turn) -> None:
    tree = turn.tree
    waiting = any(child.waiting_for for child in tree.children)
    starting = tree.first and tree.phase is Phase.STARTING
    turn.set(waiting_since=turn.now if waiting and starting else None)


def judge_waiting(turn: Turn) -> None:
    """The first start waits at most `startup_wait`, then the exit is 69 (rule 5)."""
    tree = turn.tree
    if tree.waiting_since is None or tree.phase is not Phase.STARTING:
        return
    if tree.waited_s + turn.now - tree.waiting_since >= tree.policy.startup_wait_s:
        turn.set(waiting_since=None)
        turn.stop_all(UNREACHABLE)
        turn.settle()
