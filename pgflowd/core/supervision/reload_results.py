"""
What a reload did to each flow, as its answer tells it: with how the new workers have started.

A reload is applied at once; drains and starts take their time. `reloaded_flows` reads from the tree
how far each flow is, and `is_open` tells of which one the end is still to come. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from pgflowd.core.supervision.actions import ReportReload
from pgflowd.core.supervision.kinds import WORKER
from pgflowd.core.supervision.lifecycle import ChildState
from pgflowd.core.supervision.tree import ChildEntry, Tree


class ReloadResult(StrEnum):
    """What a flow has become. The last five need a look, or more time."""

    UNCHANGED = "unchanged"
    STARTED = "started"
    RESTARTED = "restarted"  # drained, and started again
    REMOVED = "removed"  # drained
    DISABLED = "disabled"
    PARKED = "parked"
    KEPT_OLD = "kept_old"  # its new code is broken, so the worker has the old one
    RESTARTING = "restarting"  # it crashed, and is tried again
    DRAINING = "draining"
    STARTING = "starting"

    @property
    def is_bad(self) -> bool:
        """Whether the flow is not served as its code says."""
        return self in {ReloadResult.PARKED, ReloadResult.KEPT_OLD, ReloadResult.RESTARTING}


@dataclass(frozen=True)
class ReloadedFlow:
    """A flow, or an entry of which none is known, and what the reload did to it."""

    flow: str
    result: ReloadResult
    code: str | None = None
    text: str | None = None
    is_open: bool = False  # the end of a drain or start is still to come

    def document(self) -> dict[str, Any]:
        """Return it as the answer has it."""
        return {key: value for key, value in asdict(self).items() if key != "is_open"}


def reloaded_flows(tree: Tree, report: ReportReload) -> list[ReloadedFlow]:
    """Return how far each flow of a reload is."""
    found = [_kept(tree, name) for name in report.kept]
    found += [_after(tree, name, ReloadResult.RESTARTED) for name in report.changed]
    for name in (*report.new, *report.retried):
        found.append(_after(tree, name, ReloadResult.STARTED))
    found += [_after(tree, name, ReloadResult.REMOVED) for name in report.gone]
    for child in tree.workers:
        if child.spec.entry in report.broken or child.id in report.broken:
            found.append(_broken(child))
    return found


def is_over(flows: Sequence[ReloadedFlow]) -> bool:
    """Whether every drain and start has ended, well or badly."""
    return not any(flow.is_open for flow in flows)


def _kept(tree: Tree, name: str) -> ReloadedFlow:
    child = _worker(tree, name)
    is_disabled = child is not None and child.state is ChildState.DISABLED
    return ReloadedFlow(name, ReloadResult.DISABLED if is_disabled else ReloadResult.UNCHANGED)


def _broken(child: ChildEntry) -> ReloadedFlow:
    if child.state is ChildState.PARKED:
        return _parked(child.spec.name, child)
    if child.state is ChildState.DISABLED:
        return ReloadedFlow(child.spec.name, ReloadResult.DISABLED)
    return ReloadedFlow(child.spec.name, ReloadResult.KEPT_OLD)


def _after(tree: Tree, name: str, wanted: ReloadResult) -> ReloadedFlow:
    """Return how far a flow is whose worker was to end, to start, or both."""
    child = _worker(tree, name)
    if child is None:
        return ReloadedFlow(name, ReloadResult.REMOVED)
    if child.is_leaving or child.next_spec is not None:
        return ReloadedFlow(name, ReloadResult.DRAINING, is_open=True)
    if child.state is ChildState.PARKED:
        return _parked(name, child)
    if child.state is ChildState.DISABLED:
        return ReloadedFlow(name, ReloadResult.DISABLED)
    if child.state is ChildState.RESTARTING:
        why = child.exits[-1] if child.exits else None
        return ReloadedFlow(name, ReloadResult.RESTARTING, text=why)
    if child.state is not ChildState.UP and child.waiting_for:
        return ReloadedFlow(name, ReloadResult.STARTING, text=f"waits for the {child.waiting_for}")
    if child.state is not ChildState.UP:
        return ReloadedFlow(name, ReloadResult.STARTING, is_open=True)
    return ReloadedFlow(name, wanted)


def _parked(name: str, child: ChildEntry) -> ReloadedFlow:
    error = child.error.document() if child.error else {"code": None, "text": None}
    return ReloadedFlow(name, ReloadResult.PARKED, error["code"], error["text"])


def _worker(tree: Tree, name: str) -> ChildEntry | None:
    return tree.child(WORKER.child_id(name))
