"""
The supervisor's discovery, at the start and for each reload.

It reads the config again, starts a discovery, and passes the result to `core.supervision.reload`.
An error in the config changes nothing (docs/background/supervision.md, rule 43); at the start it
ends the daemon. Keys that cannot be reloaded keep their values and are reported (rule 44).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pgflowd.core.definition.shape import Code, changes_between
from pgflowd.core.json import loads
from pgflowd.core.settings.load import unserved
from pgflowd.core.settings.sections import Settings
from pgflowd.core.statuses import ChildState
from pgflowd.core.supervision.kinds import CHECK, WORKER
from pgflowd.core.supervision.reload import (
    BrokenEntry,
    needs_restart,
    on_discovered,
    on_reload_refused,
    on_versions,
    with_policy,
)
from pgflowd.core.supervision.tree import (
    EXIT_CANNOT,
    ChildSpec,
    DaemonPhase,
    ServedFlow,
    with_versions,
)
from pgflowd.core.text import did_you_mean
from pgflowd.errors import ConfigError, Problem
from pgflowd.processes import discovery
from pgflowd.processes.supervisor.children import (
    ChildProcess,
    policy_of,
    single_specs,
    worker_spec,
)
from pgflowd.processes.supervisor.discover import Discovered, Discovery

if TYPE_CHECKING:
    from pgflowd.processes.supervisor.loop import SupervisorLoop


MAX_PROBLEMS = 100  # that are logged; `pgflowd check` prints all


class Reloader:
    """One discovery at a time."""

    def __init__(
        self, supervisor: SupervisorLoop, reread: Callable[[], Settings], only: Collection[str]
    ) -> None:
        self._supervisor = supervisor
        self._reread = reread
        self._only = only
        self._next_settings = supervisor.settings
        self.discovery = Discovery(supervisor.settings, supervisor.children)
        self._is_discovering = False
        self._warnings: list[Problem] = []  # of the config that was read last
        self._flows: list[ServedFlow] = []  # of the code that is served
        self._versions: dict[str, dict[str, int | None]] = {}  # by name: see ServeVersions
        self._shapes: dict[str, Any] = {}  # by name: of the code that is served
        self._found = Discovered()  # while the database is asked about `_changed` and `_others`
        self._changed: list[Code] = []
        self._others: list[Code] = []

    def tick(self) -> None:
        """Continue the discovery, and take its result when it is done."""
        if self._is_discovering:
            self.discovery.go_on()
            if self.discovery.is_done:
                self._is_discovering = False
                self._on_discovered()

    def begin(self) -> None:
        """Read the config (at a reload), and start a discovery."""
        supervisor = self._supervisor
        supervisor.restore_directory()
        supervisor.control.begin_reload()
        if supervisor.tree.phase is not DaemonPhase.DISCOVERING:
            supervisor.manager.notifier.reloading()
            try:
                self._next_settings = self._kept(self._reread())
            except ConfigError as error:
                self._refuse(error.problems)
                return
            except Exception as error:  # the daemon goes on, whatever the file holds
                text = f"the config cannot be read: {type(error).__name__}: {error}"
                self._refuse([Problem("E901", text)])
                return
        self.discovery = Discovery(self._next_settings, supervisor.children)
        self.discovery.go_on()
        self._is_discovering = True

    def _kept(self, new: Settings) -> Settings:
        """Keep the values that cannot be reloaded, with a warning for each."""
        old = self._supervisor.settings
        text = "changed, and needs a restart of the daemon"
        changed = needs_restart(old, new)
        self._warnings = [Problem("E113", f"{key} {text}") for key in changed]
        return replace(
            new,
            database=old.database,
            pgflowd=replace(new.pgflowd, name=old.pgflowd.name),
            supervisor=replace(new.supervisor, control=old.supervisor.control),
        )

    def _on_discovered(self) -> None:
        """Take what was found; a reload first has changed flows checked."""
        if self._supervisor.tree.is_ending:
            return
        self._found = found = self.discovery.result()
        known = [
            flow
            for flow in found.flows
            if flow.entry not in found.broken and flow.slug in self._shapes
        ]
        changed = [f for f in known if changes_between(self._shapes[f.slug], f.shape or {})]
        names = {flow.slug for flow in changed}
        others = [flow for flow in known if flow.slug in self._versions.keys() - names]
        self._changed = [flow.code for flow in changed]
        self._others = [flow.code for flow in others]
        if self._next_settings.pgflowd.definitions != "recreate" and (changed or others):
            # ask the database, in a process of its own (`processes.discovery`), whether flows whose
            # shape has changed can be served, and other versions, before workers are replaced
            settings = self._next_settings
            limit_s = settings.database.connect_timeout_s + settings.database.statement_timeout_s
            codes = [*self._changed, *self._others]
            main = partial(discovery.check_definitions, settings=settings, codes=codes)
            try:
                self._supervisor.children.start(CHECK, "", main, limit_s=limit_s)
            except OSError as error:
                self._on_check_failed(f"no process could be started: {error}")
        else:
            self._take({}, {})

    def on_check_ended(self, process: ChildProcess) -> None:
        """The process has ended, with a whole answer or not."""
        if process.kill_reason:
            self._on_check_failed("the database did not answer in time")
            return
        try:
            found, error = loads("".join(process.found)) if process.status == 0 else (None, None)
            if found is None:
                why = error or "the check has failed"
                self._on_check_failed(f"the database could not be asked: {why}")
                return
            answers = {each.name: found[each.name] for each in [*self._changed, *self._others]}
            refused = {
                name: Problem(**problem) for name, (problem, _) in answers.items() if problem
            }
            unserved = {
                slug: Problem(**problem)
                for _, versions in answers.values()
                for slug, problem in versions.items()
            }
        except (ValueError, TypeError, LookupError):
            self._on_check_failed("the check of its definition gave no whole answer")
            return
        self._take(refused, unserved)

    def _on_check_failed(self, why: str) -> None:
        """The changed flows count as refused: what works goes on."""
        names = [code.name for code in self._changed]
        remedy = "pgflowd reload"
        self._take({name: Problem("E301", f"{name}: {why}", None, remedy) for name in names}, {})

    def _take(self, refused: Mapping[str, Problem], unserved: Mapping[str, Problem]) -> None:
        """Apply what was found; flows and versions that it cannot serve keep the code they have."""
        supervisor, found = self._supervisor, self._found
        if supervisor.tree.is_ending:
            return
        for flow in found.flows:
            if problem := refused.get(flow.slug):
                text = f"{problem.text}; {problem.next}" if problem.next else problem.text
                found.broken[flow.entry] = BrokenEntry(flow.entry, problem.code, text)
                found.problems.append(problem)
        self._shapes |= {
            flow.slug: flow.shape for flow in found.flows if flow.entry not in found.broken
        }
        flows, broken = found.served, list(found.broken.values())
        kept = self._kept_versions(unserved, found.broken)
        broken += kept
        problems = sorted(found.problems, key=lambda each: each.is_warning)[:MAX_PROBLEMS]
        if not broken:
            problems += _unknown_flows(self._next_settings, flows, self._only)
        if self._only:
            flows = [flow for flow in flows if flow.slug in self._only]
        if supervisor.tree.phase is DaemonPhase.DISCOVERING and not broken:
            problems += _all_disabled(self._next_settings, flows)
        fatal = [each for each in problems if each.code in {"E108", "E111", "E415"}]
        if fatal:
            self._refuse(fatal)
            return
        for problem in self._warnings + problems:
            supervisor.log_problem(problem)
        errors = [problem for problem in problems if not problem.is_warning]
        errors += [Problem(each.code, each.text) for each in kept]
        status, settings = supervisor.status, self._next_settings
        # a warning per broken entry whose worker still has the old code
        idle = {ChildState.PARKED, ChildState.DISABLED}
        workers = [each for each in supervisor.tree.workers if each.state not in idle]
        running = {name for each in workers for name in (each.spec.entry, each.id)}
        text = "cannot be served as it is, and its worker has the old code until it ends"
        status.warnings = self._warnings + [
            Problem(each.code, f"{each.entry} {text}: {each.text}", None, "pgflowd reload")
            for each in broken
            if each.entry in running
        ]
        status.answer = self._warnings + errors
        without = {each.entry for each in broken}
        self._flows = [*flows, *(flow for flow in self._flows if flow.entry in without)]
        supervisor.settings = settings
        specs = [spec for spec in self._worker_specs(flows) if spec.id not in without]
        supervisor.tree = with_policy(supervisor.tree, policy_of(settings))
        supervisor.log.retune(settings.logging)
        supervisor.happen(on_discovered, [*single_specs(settings), *specs], broken)

    def _kept_versions(
        self, unserved: Mapping[str, Problem], broken: Collection[str]
    ) -> list[BrokenEntry]:
        """Those of these versions whose worker has other code."""
        found = []
        for slug, problem in unserved.items():
            child = self._supervisor.tree.child(WORKER.child_id(slug))
            if child and child.state is not ChildState.PARKED and child.spec.entry not in broken:
                text = f"{problem.text}; {problem.next}"
                found.append(BrokenEntry(child.id, problem.code, text))
        return found

    @property
    def old_versions(self) -> dict[str, tuple[str, int]]:
        """By its flow: the name of each old version that is to be served, and its open runs."""
        return {
            slug: (name, open_runs)
            for name, flows in self._versions.items()
            for slug, open_runs in flows.items()
            if open_runs is not None
        }

    def serve_versions(self, name: str, flows: dict[str, int | None]) -> None:
        """These versions of a flow are to be served from now on."""
        before, self._versions[name] = self._versions.get(name, {}), flows
        if before.keys() == flows.keys():
            return
        supervisor = self._supervisor
        base = [flow for flow in self._flows if flow.slug == name]
        if base and not supervisor.tree.is_ending:
            known = [id for id, flow in supervisor.served.items() if flow.name == name]
            supervisor.happen(on_versions, known, self._worker_specs(base))

    def _worker_specs(self, flows: Sequence[ServedFlow]) -> list[ChildSpec]:
        """The workers of these flows, one for each version that is to be served."""
        found = {}
        for flow in with_versions(flows, self._versions):
            found[worker_spec(self._supervisor.settings, flow)] = flow
        self._supervisor.served |= {spec.id: flow for spec, flow in found.items()}
        return list(found)

    def _refuse(self, problems: Sequence[Problem]) -> None:
        """Change nothing; at the start, end the daemon."""
        supervisor = self._supervisor
        for problem in problems:
            supervisor.log_problem(problem)
        supervisor.control.report_refused(problems)
        shown = [f"a reload was refused: {each.place or ''} {each.text}" for each in problems]
        supervisor.status.warnings = [
            Problem(each.code, text.replace("  ", " "), None, each.next or "pgflowd reload")
            for each, text in zip(problems, shown, strict=True)
        ]
        if supervisor.tree.phase is DaemonPhase.DISCOVERING:
            supervisor.code = EXIT_CANNOT
        else:
            supervisor.happen(on_reload_refused)


def _all_disabled(settings: Settings, flows: Sequence[ServedFlow]) -> list[Problem]:
    """E111 if there are flows, and a daemon that starts would serve none of them."""
    if not flows or any(settings.is_enabled(flow.slug) for flow in flows):
        return []
    text = f"no flow is enabled: {', '.join(flow.slug for flow in flows[:5])}"
    first = f"set enabled = true in [flows.{flows[0].slug}]"
    return [Problem("E111", text, settings.file, first)]


def _unknown_flows(
    settings: Settings, flows: Sequence[ServedFlow], only: Collection[str]
) -> list[Problem]:
    """Return an error for each flow that config or command line name and no entry defines."""
    slugs = [flow.slug for flow in flows]
    known = {slug.lower() for slug in slugs}
    return (unserved(settings, slugs) if not only else []) + [
        Problem("E415", f"there is no flow {slug} to serve", None, did_you_mean(slug, slugs))
        for slug in sorted(only)
        if slug.lower() not in known
    ]
