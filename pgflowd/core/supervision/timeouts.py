"""
Patience: until when the supervisor waits for what, and when it has something to do next.

A start may take `start_timeout`, a stop what rule 29 says, silence `hang_timeout` (rule 42).
Pure.
"""

from __future__ import annotations

from pgflowd.core.supervision.lifecycle import ChildState, DaemonPhase
from pgflowd.core.supervision.tree import ChildEntry, Tree


def next_due(tree: Tree) -> float | None:
    """Return when `on_tick` has something to do next, or None if never."""
    moments = [patience(tree, child)[0] for child in tree.children]
    moments += [child.due for child in tree.children if may_try(tree, child)]
    goes_down = any(c.state.is_alive and c.spec.position >= tree.at for c in tree.children)
    moments.append(None if goes_down else tree.due)
    if tree.waiting_since is not None and tree.phase is DaemonPhase.STARTING:
        left = tree.policy.startup_wait_s - tree.waited_s
        moments.append(tree.waiting_since + left)
    return min((moment for moment in moments if moment is not None), default=None)


def may_try(tree: Tree, child: ChildEntry) -> bool:
    return child.due is not None and child.spec.position <= tree.free_up_to


def patience(tree: Tree, child: ChildEntry) -> tuple[float | None, str]:
    """Until when we wait for a child, and what it then is."""
    if not child.state.is_alive or child.killed:
        return None, ""
    silent = child.heard + tree.policy.hang_timeout_s
    if child.state is ChildState.UP or child.waiting_for:
        return silent, f"said nothing for {tree.policy.hang_timeout_s:g} s"
    if child.state is ChildState.STARTING:
        return child.deadline, f"was not ready within {tree.policy.start_timeout_s:g} s"
    if child.state is ChildState.DRAINING and (child.deadline is None or silent < child.deadline):
        return silent, f"said nothing for {tree.policy.hang_timeout_s:g} s"
    return child.deadline, "did not end when asked"
