"""
Renewal: the supervisor's discovery, at the start and for each reload.

It reads the file again, surveys what the flows' modules hold, and hands the result to
`core.supervision.reload`. An error in the file changes nothing (rule 43); at the start it ends the
daemon. What cannot be reloaded is kept, and told (rule 44).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pgflowd.core.messages import Found
from pgflowd.core.settings.rules import unserved
from pgflowd.core.settings.sections import Settings
from pgflowd.core.suggest import did_you_mean
from pgflowd.core.supervision.lifecycle import ChildState, DaemonPhase
from pgflowd.core.supervision.reload import (
    BrokenEntry,
    needs_restart,
    on_discovered,
    on_reload_refused,
    with_policy,
)
from pgflowd.core.supervision.served_flow import ServedFlow
from pgflowd.core.supervision.tree import Tree
from pgflowd.errors import ConfigError, Problem
from pgflowd.processes import EXIT_CANNOT
from pgflowd.processes.supervisor.children import ChildProcess
from pgflowd.processes.supervisor.discover import Discover
from pgflowd.processes.supervisor.kinds import policy_of, root_specs, worker_spec

if TYPE_CHECKING:
    from pgflowd.processes.supervisor.loop import SupervisorLoop


class Reload:
    """One discovery at a time."""

    def __init__(
        self, supervisor: SupervisorLoop, reread: Callable[[], Settings], only: Collection[str]
    ) -> None:
        self._supervisor = supervisor
        self._reread = reread
        self._only = only
        self._survey: Discover | None = None
        self._next_settings = supervisor.settings
        self._warnings: list[Problem] = []  # of the file that was read last

    @property
    def due(self) -> float | None:
        """When a discovery has used up its time."""
        return self._survey.due if self._survey else None

    def turn(self) -> None:
        """Start what may be started, and take the result when it is there."""
        if self._survey is not None:
            self._survey.go_on()
            if self._survey.is_done:
                self._on_surveyed(self._survey)

    def stop(self) -> None:
        """Nobody wants to know any more."""
        if self._survey is not None:
            self._survey.stop()

    def hear(self, process: ChildProcess, found: Found) -> None:
        if self._survey is not None:
            self._survey.hear(process, found)

    def ended(self, process: ChildProcess) -> None:
        if self._survey is not None:
            self._survey.ended(process)

    def begin(self) -> None:
        """Read the file (again), and ask what is in the flows' modules."""
        if self._supervisor.tree.phase is not DaemonPhase.DISCOVERING:
            self._supervisor.desk.reloading()
            try:
                self._next_settings = self._kept(self._reread())
            except ConfigError as error:
                self._refuse(error.problems)
                return
            except Exception as error:  # whatever the file does to us, the daemon goes on
                text = f"the config cannot be read: {type(error).__name__}: {error}"
                self._refuse([Problem("E901", text)])
                return
        self._survey = Discover(
            self._next_settings, self._supervisor.offspring, self._supervisor.log
        )
        self._survey.go_on()

    def _kept(self, new: Settings) -> Settings:
        """Keep what cannot be reloaded, and say so (rule 44)."""
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

    def _on_surveyed(self, survey: Discover) -> None:
        self._survey = None
        if self._supervisor.tree.phase in {DaemonPhase.STOPPING, DaemonPhase.ENDED}:
            return
        flows, broken, problems = survey.result()
        if not broken:
            problems += _strangers(self._next_settings, flows, self._only)
        if self._only:
            flows = [flow for flow in flows if flow.slug in self._only]
        if self._supervisor.tree.phase is DaemonPhase.DISCOVERING and not broken:
            problems += _all_disabled(self._next_settings, flows)
        fatal = [each for each in problems if each.code in {"E108", "E111", "E415"}]
        if fatal:
            self._refuse(fatal)
            return
        for problem in self._warnings + problems:
            self._supervisor.desk.complain(problem)
        errors = [problem for problem in problems if not problem.is_warning]
        vitals = self._supervisor.vitals
        vitals.warnings = self._warnings + _kept_as_they_were(self._supervisor.tree, broken)
        vitals.answer = self._warnings + errors
        self._apply(self._next_settings, flows, broken)

    def _apply(
        self, settings: Settings, flows: Sequence[ServedFlow], broken: Sequence[BrokenEntry]
    ) -> None:
        supervisor = self._supervisor
        specs = [worker_spec(settings, flow) for flow in flows]
        supervisor.settings = settings
        supervisor.served |= {spec.id: flow for spec, flow in zip(specs, flows, strict=True)}
        supervisor.tree = with_policy(supervisor.tree, policy_of(settings))
        supervisor.log.retune(settings.logging)
        wanted = [*root_specs(settings), *specs]
        supervisor.do(on_discovered(supervisor.tree, wanted, broken, supervisor.now()))

    def _refuse(self, problems: Sequence[Problem]) -> None:
        """Nothing is changed; at the start, nothing is begun."""
        supervisor = self._supervisor
        for problem in problems:
            supervisor.desk.complain(problem)
        supervisor.desk.refused(problems)
        supervisor.vitals.warnings = [_refused(problem) for problem in problems]
        if supervisor.tree.phase is DaemonPhase.DISCOVERING:
            supervisor.code = EXIT_CANNOT
        else:
            supervisor.do(on_reload_refused(supervisor.tree, supervisor.now()))


def _all_disabled(settings: Settings, flows: Sequence[ServedFlow]) -> list[Problem]:
    """E111 if there are flows, and a daemon that starts would serve none of them."""
    if not flows or any(settings.is_enabled(flow.slug) for flow in flows):
        return []
    text = f"no flow is enabled: {', '.join(flow.slug for flow in flows[:5])}"
    first = f"set enabled = true in [flows.{flows[0].slug}]"
    return [Problem("E111", text, settings.file, first)]


def _refused(problem: Problem) -> Problem:
    """What the status says of a reload that changed nothing."""
    text = f"a reload was refused: {problem.place or ''} {problem.text}".replace("  ", " ")
    return Problem(problem.code, text, None, problem.next or "pgflowd reload")


def _kept_as_they_were(tree: Tree, broken: Sequence[BrokenEntry]) -> list[Problem]:
    """Entries whose worker runs on, with code that is no more; the others' are parked."""
    idle = {ChildState.PARKED, ChildState.DISABLED}
    running = {each.spec.entry for each in tree.workers if each.state not in idle}
    text = "is broken, and its worker has the old code until it ends"
    return [
        Problem(each.code, f"{each.entry} {text}: {each.text}", None, "pgflowd reload")
        for each in broken
        if each.entry in running
    ]


def _strangers(
    settings: Settings, flows: Sequence[ServedFlow], only: Collection[str]
) -> list[Problem]:
    """Flows that somebody names and nobody serves."""
    slugs = [flow.slug for flow in flows]
    known = {slug.lower() for slug in slugs}
    return (unserved(settings, slugs) if not only else []) + [
        Problem("E415", f"there is no flow {slug} to serve", None, did_you_mean(slug, slugs))
        for slug in sorted(only)
        if slug.lower() not in known
    ]
