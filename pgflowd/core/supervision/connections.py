"""
What the children say about connections: how many the server has left, who wants a second one, and
who stays awake although its place is needed (docs/background/supervision.md, rule 56). Pure.
"""

from __future__ import annotations

from typing import Any

from pgflowd.core.server_connections import automatic_budget
from pgflowd.core.supervision.actions import Action
from pgflowd.core.supervision.transition import TreeTransition
from pgflowd.core.supervision.tree import Tree

Result = tuple[Tree, list[Action]]


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
