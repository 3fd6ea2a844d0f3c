"""
The supervisor's discovery, at the start and for each reload.

It reads the config again, starts a discovery, and passes the result to `core.supervision.reload`.
An error in the config changes nothing (docs/background/supervision.md, rule 43); at the start it
ends the daemon. Keys that cannot be reloaded keep their values and are reported (rule 44).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pgflowd.core.definition.shape import changes_between
from pgflowd.core.definition.versions import Code
from pgflowd.core.json import loads
from pgflowd.core.messages import Found as Part
from pgflowd.core.messages import Message, UnreadableMessage
from pgflowd.core.settings.rules import unserved
from pgflowd.core.settings.sections import Settings
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
    ChildState,
    DaemonPhase,
    ServedFlow,
    Tree,
    with_versions,
)
from pgflowd.core.text import did_you_mean
from pgflowd.errors import ConfigError, Problem
from pgflowd.processes import discovery
from pgflowd.processes.supervisor.children import (
    ChildProcess,
    Children,
    policy_of,
    single_specs,
    worker_spec,
)
from pgflowd.processes.supervisor.discover import Discovered, Discovery

if TYPE_CHECKING:
    from pgflowd.processes.supervisor.loop import SupervisorLoop


# The check whether changed flows can be served, before a reload replaces their workers.
#
# A process of its own asks the database (`processes.discovery`). If it fails, or takes longer than
# a statement may, the flows count as refused: what works goes on.
class DefinitionCheck:
    """One check of flows of a reload: of those whose shape has changed, and of other versions."""

    def __init__(
        self,
        settings: Settings,
        children: Children,
        changed: Sequence[Code],
        others: Sequence[Code],
    ) -> None:
        codes = [*changed, *others]
        self._codes, self._changed, self._children = codes, changed, children
        database = settings.database
        limit_s = database.connect_timeout_s + database.statement_timeout_s
        self.due: float | None = time.monotonic() + limit_s
        self._parts: list[str] = []
        self._process: ChildProcess | None = None
        self._problems: dict[str, Problem | None] | None = None
        self.unserved: dict[str, Problem] = {}  # by flow: versions with open runs
        main = partial(discovery.check_definitions, settings=settings, codes=codes)
        try:
            self._process = children.start(CHECK, "", main)
        except OSError as error:
            self._fail(f"no process could be started: {error}")

    @property
    def is_done(self) -> bool:
        return self._problems is not None

    @property
    def problems(self) -> dict[str, Problem]:
        """Why flows cannot be served, by name."""
        return {name: problem for name, problem in (self._problems or {}).items() if problem}

    def go_on(self) -> None:
        """Kill the process when its time is over."""
        if self.due is not None and self.due <= time.monotonic():
            self.stop("the database did not answer in time")

    def receive(self, process: ChildProcess, message: Message | UnreadableMessage) -> None:
        if process is self._process and isinstance(message, Part):
            self._parts.append(message.part)

    def on_end(self, process: ChildProcess) -> None:
        """The process has ended, with a whole answer or not."""
        if process is not self._process or self.is_done:
            return
        try:
            found, error = loads("".join(self._parts)) if process.status == 0 else (None, None)
            if found is None:
                self._fail(f"the database could not be asked: {error or 'the check has failed'}")
                return
            problems = {code.name: found[code.name] for code in self._codes}
        except (ValueError, TypeError, LookupError):
            self._fail("the check of its definition gave no whole answer")
            return
        self.due = None
        self._problems = {
            name: Problem(**refused) if refused else None for name, (refused, _) in problems.items()
        }
        for _, versions in problems.values():
            self.unserved |= {slug: Problem(**problem) for slug, problem in versions.items()}

    def stop(self, why: str) -> None:
        """End the check: its flows count as refused."""
        if self._process is not None and self._process.id in self._children.alive:
            self._children.kill(self._process, why)
        self._fail(why)

    def _fail(self, why: str) -> None:
        self.due = None
        self._problems = {
            code.name: Problem("E301", f"{code.name}: {why}", None, "pgflowd reload")
            for code in self._changed
        }


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
        self._check: DefinitionCheck | None = None
        self._found = Discovered()  # while they are checked

    def tick(self) -> None:
        """Continue the discovery, and take its result when it is done."""
        if self._is_discovering:
            self.discovery.go_on()
            if self.discovery.is_done:
                self._is_discovering = False
                self._on_discovered()
        elif self._check is not None:
            self._check.go_on()
            if self._check.is_done:
                check, self._check = self._check, None
                self._take(self._found, check.problems, check.unserved)

    @property
    def due(self) -> float | None:
        """When the discovery, or the check behind it, has used up its time."""
        return self._check.due if self._check is not None else self.discovery.due

    def receive(self, process: ChildProcess, message: Message) -> None:
        """A part of the answer of a discovery or check."""
        if self._check is not None and process.kind is CHECK:
            self._check.receive(process, message)
        else:
            self.discovery.receive(process, message)

    def on_check_ended(self, process: ChildProcess) -> None:
        if self._check is not None:
            self._check.on_end(process)

    def begin(self) -> None:
        """Read the config (at a reload), and start a discovery."""
        self._supervisor.restore_directory()
        self._supervisor.control.begin_reload()
        if self._supervisor.tree.phase is not DaemonPhase.DISCOVERING:
            self._supervisor.announcer.reloading()
            try:
                self._next_settings = self._kept(self._reread())
            except ConfigError as error:
                self._refuse(error.problems)
                return
            except Exception as error:  # the daemon goes on, whatever the file holds
                text = f"the config cannot be read: {type(error).__name__}: {error}"
                self._refuse([Problem("E901", text)])
                return
        self.discovery = Discovery(self._next_settings, self._supervisor.children)
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
        if self._supervisor.tree.phase in {DaemonPhase.STOPPING, DaemonPhase.ENDED}:
            return
        found = self.discovery.result()
        known = [
            flow
            for flow in found.flows
            if flow.entry not in found.broken and flow.slug in self._shapes
        ]
        changed = [
            flow.code
            for flow in known
            if changes_between(self._shapes[flow.slug], flow.shape or {})
        ]
        names = {code.name for code in changed}
        others = [flow.code for flow in known if flow.slug in self._versions.keys() - names]
        if (not changed and not others) or self._next_settings.pgflowd.definitions == "recreate":
            self._take(found, {}, {})
            return
        self._found = found
        self._check = DefinitionCheck(
            self._next_settings, self._supervisor.children, changed, others
        )

    def _take(
        self,
        found: Discovered,
        refused: Mapping[str, Problem],
        unserved: Mapping[str, Problem],
    ) -> None:
        """Apply what was found; flows and versions that it cannot serve keep the code they have."""
        if self._supervisor.tree.phase in {DaemonPhase.STOPPING, DaemonPhase.ENDED}:
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
        if self._supervisor.tree.phase is DaemonPhase.DISCOVERING and not broken:
            problems += _all_disabled(self._next_settings, flows)
        fatal = [each for each in problems if each.code in {"E108", "E111", "E415"}]
        if fatal:
            self._refuse(fatal)
            return
        for problem in self._warnings + problems:
            self._supervisor.announcer.log_problem(problem)
        errors = [problem for problem in problems if not problem.is_warning]
        errors += [Problem(each.code, each.text) for each in kept]
        status = self._supervisor.status
        status.warnings = self._warnings + _still_running(self._supervisor.tree, broken)
        status.answer = self._warnings + errors
        self._apply(self._next_settings, flows, broken)

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

    def _apply(
        self, settings: Settings, flows: Sequence[ServedFlow], broken: Sequence[BrokenEntry]
    ) -> None:
        supervisor = self._supervisor
        kept = {each.entry for each in broken}
        self._flows = [*flows, *(flow for flow in self._flows if flow.entry in kept)]
        supervisor.settings = settings
        specs = [spec for spec in self._worker_specs(flows) if spec.id not in kept]
        supervisor.tree = with_policy(supervisor.tree, policy_of(settings))
        supervisor.log.retune(settings.logging)
        wanted = [*single_specs(settings), *specs]
        supervisor.do(on_discovered(supervisor.tree, wanted, broken, supervisor.now()))

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
        if base and supervisor.tree.phase not in {DaemonPhase.STOPPING, DaemonPhase.ENDED}:
            known = [id for id, flow in supervisor.served.items() if flow.name == name]
            wanted = self._worker_specs(base)
            supervisor.do(on_versions(supervisor.tree, known, wanted, supervisor.now()))

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
            supervisor.announcer.log_problem(problem)
        supervisor.announcer.on_reload_refused(problems)
        supervisor.status.warnings = [_refused(problem) for problem in problems]
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
    """Return how the status shows a refused reload."""
    text = f"a reload was refused: {problem.place or ''} {problem.text}".replace("  ", " ")
    return Problem(problem.code, text, None, problem.next or "pgflowd reload")


def _still_running(tree: Tree, broken: Sequence[BrokenEntry]) -> list[Problem]:
    """Return a warning per broken entry whose worker still has the old code."""
    idle = {ChildState.PARKED, ChildState.DISABLED}
    workers = [each for each in tree.workers if each.state not in idle]
    running = {name for each in workers for name in (each.spec.entry, each.id)}
    text = "cannot be served as it is, and its worker has the old code until it ends"
    return [
        Problem(each.code, f"{each.entry} {text}: {each.text}", None, "pgflowd reload")
        for each in broken
        if each.entry in running
    ]


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
