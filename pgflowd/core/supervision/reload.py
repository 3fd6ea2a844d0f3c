"""
Puts what discovery found into the tree, at the start and at each reload.

docs/background/supervision.md, rule 43, per flow: same fingerprint, kept; changed, drained and
started again; new, added; gone, drained and removed; parked, tried again with a full budget;
broken, the running worker is kept, or the entry is parked under its name. Rule 45: a stop goes
first, and a second reload waits for the first. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Annotated

from pgflowd.core.documents import Hidden
from pgflowd.core.settings.sections import Settings
from pgflowd.core.statuses import ChildState
from pgflowd.core.supervision.kinds import WORKER
from pgflowd.core.supervision.transition import Discover, ReportReload, TreeTransition
from pgflowd.core.supervision.tree import (
    EXIT_CANNOT,
    ChildEntry,
    ChildExit,
    ChildSpec,
    DaemonPhase,
    ExitKind,
    Policy,
    ReloadState,
    Tree,
)


@dataclass(frozen=True)
class BrokenEntry:
    """An entry of the config that cannot be served."""

    entry: str  # or the id of the worker of one version
    code: str
    text: str

    @property
    def exit(self) -> ChildExit:
        return ChildExit(ExitKind.CANNOT_START, self.text, self.code)


def on_reload(t: TreeTransition) -> None:
    """The daemon is asked to reload."""
    if t.tree.is_ending:
        return
    if t.tree.phase is DaemonPhase.DISCOVERING or t.tree.reload is not ReloadState.NONE:
        t.set(reload_again=True)
    else:
        t.set(reload=ReloadState.ASKED)
        t.do(Discover())


def on_reload_refused(t: TreeTransition) -> None:
    """The config has an error, or discovery failed: nothing changes."""
    if t.tree.reload is ReloadState.ASKED:
        t.set(reload=ReloadState.APPLIED)
        t.advance()


def on_discovered(
    t: TreeTransition, wanted: Sequence[ChildSpec], broken: Sequence[BrokenEntry]
) -> None:
    """Discovery has answered: begin the start, or apply the reload.

    `wanted` may hold children that are not workers, too; a changed one is replaced alone.
    """
    workers = [spec for spec in wanted if spec.is_worker]
    if t.tree.phase is DaemonPhase.DISCOVERING:
        for spec in workers:
            _insert(t, t.new(spec))
        for each in broken:
            _park_entry(t, each)
        t.set(phase=DaemonPhase.STARTING, position=0)
        if t.tree.reload_again:
            t.set(reload=ReloadState.APPLIED)
        if all(child.state.is_out for child in t.tree.workers):
            t.stop_all(EXIT_CANNOT)
        t.advance()
    elif t.tree.reload is ReloadState.ASKED and t.tree.phase is not DaemonPhase.STOPPING:
        t.set(reload=ReloadState.APPLIED)
        done: dict[str, list[str]] = {each.name: [] for each in fields(ReportReload)}
        for spec in workers:
            done[_update(t, spec)].append(spec.name)
        ids, entries = {spec.id for spec in workers}, {each.entry for each in broken}
        for child in t.tree.workers:
            is_kept = (
                child.spec.entry in entries and child.spec.fingerprint
            ) or child.id in entries
            if child.id not in ids and not is_kept:
                if child.spec.fingerprint:
                    done["gone"].append(child.spec.name)
                _let_go(t, child)
        for each in broken:
            known = [
                child for child in t.tree.workers if each.entry in (child.spec.entry, child.id)
            ]
            for child in known:
                if child.state is ChildState.ASLEEP:  # no process has the old code
                    t.park(child, each.exit)
            if not known:
                _park_entry(t, each)
            done["broken"].append(each.entry)
        t.do(ReportReload(**{name: tuple(names) for name, names in done.items()}))
        for spec in wanted:
            if not spec.is_worker:
                _update(t, spec)
        t.advance()


def on_versions(t: TreeTransition, known: Sequence[str], wanted: Sequence[ChildSpec]) -> None:
    """Other versions of a flow are to be served: these workers, of those with the known ids."""
    for spec in wanted:
        child = t.tree.child(spec.id)
        if child is None:
            _insert(t, t.new(spec))
        elif child.is_leaving:  # it comes back when it has ended
            t.change(child, is_leaving=False, next_spec=spec)
    ids = {spec.id for spec in wanted}
    for child in t.tree.workers:
        if child.id in known and child.id not in ids:
            _let_go(t, child)
    t.advance()


def with_policy(tree: Tree, policy: Policy) -> Tree:
    """Return the tree with another policy; restarts that were counted stay counted."""
    budget = replace(tree.budget, most=policy.max_restarts, period_s=policy.max_period_s)
    children = tuple(
        replace(child, budget=replace(child.budget, period_s=policy.max_period_s))
        for child in tree.children
    )
    return replace(tree, policy=policy, budget=budget, children=children)


def needs_restart(old: Settings, new: Settings) -> list[str]:
    """
    Return the changed keys that a reload cannot apply (docs/background/supervision.md, rule 44).
    """
    changed = [
        f"[database] {each.name}"
        for each in fields(old.database)
        if getattr(old.database, each.name) != getattr(new.database, each.name)
    ]
    if old.pgflowd.name != new.pgflowd.name:
        changed.append("[pgflowd] name")
    if old.supervisor.control != new.supervisor.control:
        changed.append("[supervisor] control")
    return [key.removesuffix("_s") for key in changed]


def _let_go(t: TreeTransition, child: ChildEntry) -> None:
    """Remove a worker, after a drain if it has a process."""
    if child.state.is_alive:
        t.drain(t.change(child, is_leaving=True), t.tree.policy.drain_timeout_s)
    else:
        t.remove(child)


def _update(t: TreeTransition, spec: ChildSpec) -> str:
    """Give a child its new specification; return the name of the change."""
    child = t.tree.child(spec.id)
    if child is None:
        _insert(t, t.new(spec))
        return "new"
    if child.state is ChildState.PARKED:
        t.replace(child, spec)
        return "retried"
    if child.spec == spec:
        t.change(child, spec=spec)  # its limits count from now on
        return "kept"
    if child.state.is_alive:
        t.drain(t.change(child, next_spec=spec), t.tree.policy.drain_timeout_s)
        return "changed"
    t.replace(child, spec)
    return "new" if child.state is ChildState.DISABLED and spec.enabled else "changed"


def _park_entry(t: TreeTransition, broken: BrokenEntry) -> None:
    child = t.new(ChildSpec(WORKER, name=broken.entry, entry=broken.entry))
    _insert(t, child)
    t.park(child, broken.exit)


def _insert(t: TreeTransition, child: ChildEntry) -> None:
    """Add a child at the end of its position, in place of one with the same id."""
    others = [each for each in t.tree.children if each.id != child.id]
    t.set(children=tuple(sorted([*others, child], key=lambda each: each.spec.position)))


# What a reload did to each flow, as its answer tells it: with how the new workers have started.
#
# A reload is applied at once; drains and starts take their time. `reloaded_flows` reads from the
# tree how far each flow is, and `is_open` tells of which one the end is still to come.
class ReloadResult(StrEnum):
    """
    What a flow has become. The last five need a look, or more time.

    `unchanged`: as it should be; `started`: as it should be; `restarted`: as it should be,
    after a drain; `removed`: as it should be, after a drain; `disabled`: as it should be;
    `parked`: exit code 1: it cannot start; `kept_old`: exit code 1: its new code is broken, and
    its worker goes on with the old code and shape; `restarting`: exit code 1: it crashed and is
    tried again; `draining`: not over; `starting`: not over: it waits for the database, or
    another reload came.
    """

    UNCHANGED = "unchanged"
    STARTED = "started"
    RESTARTED = "restarted"
    REMOVED = "removed"
    DISABLED = "disabled"
    PARKED = "parked"
    KEPT_OLD = "kept_old"
    RESTARTING = "restarting"
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
    text: Annotated[str | None, "more about it"] = None
    is_open: Hidden[bool] = False  # the end of a drain or start is still to come


def reloaded_flows(tree: Tree, report: ReportReload) -> list[ReloadedFlow]:
    """Return how far each flow of a reload is."""
    found = []
    for names, wanted in (
        (report.kept, ReloadResult.UNCHANGED),
        (report.changed, ReloadResult.RESTARTED),
        (report.new + report.retried, ReloadResult.STARTED),
        (report.gone, ReloadResult.REMOVED),
    ):
        for name in names:
            found.append(_reloaded(name, tree.child(WORKER.child_id(name)), wanted))
    for child in tree.workers:
        if child.spec.entry in report.broken or child.id in report.broken:
            found.append(_reloaded(child.spec.name, child, ReloadResult.KEPT_OLD))
    return found


def is_over(flows: Sequence[ReloadedFlow]) -> bool:
    """Whether every drain and start has ended, well or badly."""
    return not any(flow.is_open for flow in flows)


def _reloaded(name: str, child: ChildEntry | None, wanted: ReloadResult) -> ReloadedFlow:
    """Return how far a flow is whose worker was to stay, to end, to start, or both."""
    is_kept = wanted in (ReloadResult.UNCHANGED, ReloadResult.KEPT_OLD)
    if child is None:
        return ReloadedFlow(name, wanted if is_kept else ReloadResult.REMOVED)
    if not is_kept and (child.is_leaving or child.next_spec is not None):
        return ReloadedFlow(name, ReloadResult.DRAINING, is_open=True)
    if child.state is ChildState.DISABLED:
        return ReloadedFlow(name, ReloadResult.DISABLED)
    if child.state is ChildState.PARKED and wanted is not ReloadResult.UNCHANGED:
        code, text = (child.error.code, child.error.text) if child.error else (None, None)
        return ReloadedFlow(name, ReloadResult.PARKED, code, text)
    if is_kept or child.state is ChildState.UP:
        return ReloadedFlow(name, wanted)
    if child.state is ChildState.RESTARTING:
        why = child.exits[-1] if child.exits else None
        return ReloadedFlow(name, ReloadResult.RESTARTING, text=why)
    if child.waiting_for:
        return ReloadedFlow(name, ReloadResult.STARTING, text=f"waits for the {child.waiting_for}")
    return ReloadedFlow(name, ReloadResult.STARTING, is_open=True)
