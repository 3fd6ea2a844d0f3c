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
from pgflowd.core.supervision.actions import Action, Discover, LogPark, ReportReload
from pgflowd.core.supervision.kinds import WORKER
from pgflowd.core.supervision.transition import TreeTransition
from pgflowd.core.supervision.tree import (
    EXIT_CANNOT,
    ChildEntry,
    ChildExit,
    ChildSpec,
    ChildState,
    DaemonPhase,
    ExitKind,
    Policy,
    ReloadState,
    Tree,
)

Result = tuple[Tree, list[Action]]


@dataclass(frozen=True)
class BrokenEntry:
    """An entry of the config that cannot be served."""

    entry: str  # or the id of the worker of one version
    code: str
    text: str


def on_reload(tree: Tree, now: float) -> Result:
    """The daemon is asked to reload."""
    if tree.phase in {DaemonPhase.STOPPING, DaemonPhase.ENDED}:
        return tree, []
    if tree.phase is DaemonPhase.DISCOVERING or tree.reload is not ReloadState.NONE:
        return replace(tree, reload_again=True), []
    return replace(tree, reload=ReloadState.ASKED), [Discover()]


def on_reload_refused(tree: Tree, now: float) -> Result:
    """The config has an error, or discovery failed: nothing changes."""
    transition = TreeTransition(tree, now)
    if tree.reload is ReloadState.ASKED:
        transition.set(reload=ReloadState.APPLIED)
        transition.advance()
    return transition.result()


def on_discovered(
    tree: Tree, wanted: Sequence[ChildSpec], broken: Sequence[BrokenEntry], now: float
) -> Result:
    """Discovery has answered: begin the start, or apply the reload.

    `wanted` may hold children that are not workers, too; a changed one is replaced alone.
    """
    transition = TreeTransition(tree, now)
    workers = [spec for spec in wanted if spec.is_worker]
    if tree.phase is DaemonPhase.DISCOVERING:
        _begin(transition, workers, broken)
    elif tree.reload is ReloadState.ASKED and tree.phase is not DaemonPhase.STOPPING:
        transition.set(reload=ReloadState.APPLIED)
        transition.do(_apply(transition, workers, broken))
        for spec in wanted:
            if not spec.is_worker:
                _update(transition, spec, transition.tree.child(spec.id))
        transition.advance()
    return transition.result()


def on_versions(
    tree: Tree, known: Sequence[str], wanted: Sequence[ChildSpec], now: float
) -> Result:
    """Other versions of a flow are to be served: these workers, of those with the known ids."""
    transition = TreeTransition(tree, now)
    for spec in wanted:
        child = transition.tree.child(spec.id)
        if child is None:
            _insert(transition, transition.new(spec))
        elif child.is_leaving:  # it comes back when it has ended
            transition.change(child, is_leaving=False, next_spec=spec)
    ids = {spec.id for spec in wanted}
    for child in transition.tree.workers:
        if child.id in known and child.id not in ids:
            _let_go(transition, child)
    transition.advance()
    return transition.result()


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


def _begin(
    transition: TreeTransition, wanted: Sequence[ChildSpec], broken: Sequence[BrokenEntry]
) -> None:
    for spec in wanted:
        _insert(transition, transition.new(spec))
    for each in broken:
        _park_entry(transition, each)
    transition.set(phase=DaemonPhase.STARTING, position=0)
    if transition.tree.reload_again:
        transition.set(reload=ReloadState.APPLIED)
    if all(
        child.state in {ChildState.PARKED, ChildState.DISABLED} for child in transition.tree.workers
    ):
        transition.stop_all(EXIT_CANNOT)
    transition.advance()


def _apply(
    transition: TreeTransition, wanted: Sequence[ChildSpec], broken: Sequence[BrokenEntry]
) -> ReportReload:
    entries = {each.entry for each in broken}
    done: dict[str, list[str]] = {each.name: [] for each in fields(ReportReload)}
    for spec in wanted:
        child = transition.tree.child(spec.id)
        done[_update(transition, spec, child)].append(spec.name)
    ids = {spec.id for spec in wanted}
    for child in transition.tree.workers:
        is_kept = (child.spec.entry in entries and child.spec.fingerprint) or child.id in entries
        if child.id not in ids and not is_kept:
            if child.spec.fingerprint:
                done["gone"].append(child.spec.name)
            _let_go(transition, child)
    for each in broken:
        known = [
            child for child in transition.tree.workers if each.entry in (child.spec.entry, child.id)
        ]
        for child in known:
            if child.state is ChildState.ASLEEP:  # no process has the old code
                _park(transition, child, each)
        if not known:
            _park_entry(transition, each)
        done["broken"].append(each.entry)
    return ReportReload(**{name: tuple(names) for name, names in done.items()})


def _let_go(transition: TreeTransition, child: ChildEntry) -> None:
    """Remove a worker, after a drain if it has a process."""
    if child.state.is_alive:
        child = transition.change(child, is_leaving=True)
        transition.drain(child, transition.tree.policy.drain_timeout_s)
    else:
        transition.remove(child)


def _update(transition: TreeTransition, spec: ChildSpec, child: ChildEntry | None) -> str:
    """Give a child its new specification; return the name of the change."""
    if child is None:
        _insert(transition, transition.new(spec))
        return "new"
    if child.state is ChildState.PARKED:
        transition.replace(child, spec)
        return "retried"
    if child.spec == spec:
        transition.change(child, spec=spec)  # its limits count from now on
        return "kept"
    if child.state.is_alive:
        child = transition.change(child, next_spec=spec)
        transition.drain(child, transition.tree.policy.drain_timeout_s)
        return "changed"
    transition.replace(child, spec)
    return "new" if child.state is ChildState.DISABLED and spec.enabled else "changed"


def _park_entry(transition: TreeTransition, broken: BrokenEntry) -> None:
    spec = ChildSpec(WORKER, name=broken.entry, entry=broken.entry)
    child = transition.new(spec)
    _insert(transition, child)
    _park(transition, child, broken)


def _park(transition: TreeTransition, child: ChildEntry, broken: BrokenEntry) -> None:
    exit = ChildExit(ExitKind.CANNOT_START, broken.text, broken.code)
    transition.change(
        child, ChildState.PARKED, is_start_over=True, parked_at=transition.now, error=exit
    )
    transition.do(LogPark(child.id, exit))


def _insert(transition: TreeTransition, child: ChildEntry) -> None:
    """Add a child at the end of its position, in place of one with the same id."""
    others = [each for each in transition.tree.children if each.id != child.id]
    children = sorted([*others, child], key=lambda each: each.spec.position)
    transition.set(children=tuple(children))


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
    error = child.error
    return ReloadedFlow(
        name, ReloadResult.PARKED, error.code if error else None, error.text if error else None
    )


def _worker(tree: Tree, name: str) -> ChildEntry | None:
    return tree.child(WORKER.child_id(name))
