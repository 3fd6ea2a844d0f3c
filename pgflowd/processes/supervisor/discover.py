"""
The supervisor's side of discovery: one process per entry, a few at a time.

When all have answered, `result` returns the flows to serve and the broken entries. A process
that crashes, or exceeds `start_timeout`, breaks only its own entry (docs/design/supervision.md,
rule 3). Errors across entries are found here: a flow defined twice, and slugs that differ only
in case.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Sequence
from functools import partial

from pgflowd.core.messages import Found, Message, UnreadableMessage
from pgflowd.core.settings.sections import Settings
from pgflowd.core.supervision.exits import describe_status
from pgflowd.core.supervision.reload import BrokenEntry
from pgflowd.core.supervision.served_flow import ServedFlow
from pgflowd.errors import Problem
from pgflowd.host.channel import Channel
from pgflowd.host.logs import Log
from pgflowd.processes import discovery
from pgflowd.processes.supervisor.children import ChildProcess, Children

ID = "discovery "


class Discovery:
    """One discovery of everything that the settings name."""

    def __init__(self, settings: Settings, children: Children, log: Log) -> None:
        self.settings = settings
        self.warnings: list[Problem] = []
        self._children = children
        self._log = log
        self._entries = list(dict.fromkeys(settings.pgflowd.flows))
        self._waiting = deque(self._entries)
        self._running: dict[str, float] = {}  # id: until when
        self._found: dict[str, list[Found]] = {entry: [] for entry in self._entries}
        self._broken: dict[str, BrokenEntry] = {}

    @property
    def is_done(self) -> bool:
        return not self._waiting and not self._running

    @property
    def due(self) -> float | None:
        """When the next discovery has used up its time."""
        return min(self._running.values(), default=None)

    def go_on(self) -> None:
        """Start as many as there are processors, and kill whose time is over."""
        now = time.monotonic()
        for id, until in self._running.items():
            process = self._children.alive.get(id)
            if until <= now and process is not None and process.kill_reason is None:
                self._children.kill(process, "E211")
        while self._waiting and len(self._running) < max(2, os.cpu_count() or 1):
            self._start(self._waiting.popleft())

    def receive(self, process: ChildProcess, message: Message | UnreadableMessage) -> None:
        """A discovery has found something."""
        if isinstance(message, Found):
            self._found[_entry_of(process)].append(message)

    def on_end(self, process: ChildProcess) -> None:
        """A discovery is over, well or badly."""
        self._running.pop(process.id, None)
        entry = _entry_of(process)
        if process.kill_reason:
            limit = self.settings.supervisor.start_timeout_s
            text = f"{entry} was not imported within {limit:g} s"
            self._broken[entry] = BrokenEntry(entry, "E211", text)
        elif process.status != 0 or not self._found[entry]:
            text = f"{entry} cannot be imported: {describe_status(process.status)}"
            self._broken[entry] = BrokenEntry(entry, "E210", text)

    def stop(self) -> None:
        """Nobody wants to know any more."""
        self._waiting.clear()
        for id in self._running:
            if id in self._children.alive:
                self._children.kill(self._children.alive[id], "not needed any more")

    def result(self) -> tuple[list[ServedFlow], list[BrokenEntry], list[Problem]]:
        """Return the flows, the broken entries, and every single problem, errors first."""
        flows: dict[str, ServedFlow] = {}
        problems: list[Problem] = []
        for entry in self._entries:
            if entry in self._broken:
                broken = self._broken[entry]
                problems.append(Problem(broken.code, broken.text, entry))
                continue
            for found in self._found[entry]:
                problems += self._add(found, entry, flows)
        good = [each for each in flows.values() if each.entry not in self._broken]
        problems.sort(key=lambda problem: problem.is_warning)
        return good, list(self._broken.values()), problems

    def _add(self, found: Found, entry: str, flows: dict[str, ServedFlow]) -> list[Problem]:
        """Add one finding to the flows; return what is wrong with it."""
        told = [Problem(**each) for each in found.problems]
        if found.slug is None or found.module is None:
            self._broken[entry] = _broken(entry, told)
            return told
        other = flows.get(found.slug.lower())
        if other is None:
            mark = found.fingerprint or ""
            flows[found.slug.lower()] = ServedFlow(found.slug, found.module, entry, mark)
        elif other.module != found.module:  # else a module and one of its flows are both listed
            problem = _conflict(found.slug, other, entry)
            self._broken[entry] = BrokenEntry(entry, problem.code, problem.text)
            told.append(problem)
        return told

    def _start(self, entry: str) -> None:
        id = ID + entry
        main = partial(_run, settings=self.settings, log=self._log, entry=entry)
        name = self.settings.pgflowd.name
        try:
            self._children.start(id, main, f"{name}: discovery {entry}")
        except OSError as error:
            self._broken[entry] = BrokenEntry(
                entry, "E210", f"no process could be started: {error}"
            )
            return
        self._running[id] = time.monotonic() + self.settings.supervisor.start_timeout_s


def _run(channel: Channel, *, settings: Settings, log: Log, entry: str) -> int:
    return discovery.main(channel, settings, log.bind(process="discovery"), entry)


def _entry_of(process: ChildProcess) -> str:
    return process.id.removeprefix(ID)


def _broken(entry: str, problems: Sequence[Problem]) -> BrokenEntry:
    """All errors of an entry in one: the first, and how many more."""
    errors = [problem for problem in problems if not problem.is_warning]
    if not errors:
        return BrokenEntry(entry, "E212", "no flow was found")
    first = errors[0]
    place = f"{first.place} " if first.place else ""
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return BrokenEntry(entry, first.code, f"{place}{first.text}{more}")


def _conflict(slug: str, other: ServedFlow, entry: str) -> Problem:
    if slug == other.slug:
        return Problem("E213", f"flow {slug} is defined in {other.module} too", entry)
    return Problem("E207", f"flow {slug} and {other.slug} differ in case only", entry)
