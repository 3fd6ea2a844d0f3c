"""
Discovers the flows of all entries of the config: one process per entry, a few at a time.

The supervisor drives a `Discovery` from its loop; commands call `discover`. A process that crashes,
or exceeds `start_timeout`, breaks only its own entry (docs/background/supervision.md, rule 3).
Errors across entries are found here: a flow defined twice, and slugs that differ only in case.
"""

from __future__ import annotations

import os
import selectors
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any

from pgflowd.core.definition.shape import Code, HandlerFacts, facts_from, has_gates, undoable
from pgflowd.core.json import loads
from pgflowd.core.messages import Found, Message, UnreadableMessage
from pgflowd.core.settings.sections import Settings
from pgflowd.core.supervision.kinds import DISCOVERY
from pgflowd.core.supervision.reload import BrokenEntry
from pgflowd.core.supervision.tree import ServedFlow, describe_status
from pgflowd.errors import Problem
from pgflowd.host.logs import open_log
from pgflowd.processes import discovery
from pgflowd.processes.supervisor.children import KILL_LIMIT_S, ChildProcess, Children

RETRY_S = 0.1  # after a refused start; by then idle runners have made room
MAX_FOUND = 64 * 1024 * 1024  # characters of an entry, so that none can fill the memory


@dataclass(frozen=True)
class DiscoveredFlow:
    """A flow of the code; without a shape if something is wrong with it."""

    served: ServedFlow
    place: str
    shape: dict[str, Any] | None
    problems: tuple[Problem, ...] = ()
    opens_connections: bool = False  # its handlers use `ctx.conn()`
    waits: bool = False  # its handlers keep checkpoints, sleep or wait for signals
    handlers: tuple[HandlerFacts, ...] = ()
    schemas: Mapping[str, Any] = field(default_factory=dict)  # of steps that are decoded

    @property
    def code(self) -> Code:
        """The flow as it is compared with the database."""
        return Code(self.slug, self.shape or {"steps": []}, self.handlers)

    @property
    def has_gates(self) -> bool:
        """Whether not every worker may begin each of its tasks at any time."""
        return self.shape is not None and has_gates(self.shape)

    @property
    def has_undo(self) -> bool:
        """Whether its runs may be undone."""
        return self.shape is not None and bool(undoable(self.shape))

    @property
    def slug(self) -> str:
        return self.served.slug

    @property
    def entry(self) -> str:
        return self.served.entry

    @property
    def undoes(self) -> str | None:
        return self.served.undoes


@dataclass
class Discovered:
    """All flows of the code, and all problems, in the order of the config."""

    flows: list[DiscoveredFlow] = field(default_factory=list)
    broken: dict[str, BrokenEntry] = field(default_factory=dict)  # by entry
    problems: list[Problem] = field(default_factory=list)

    def with_undo_flows(self, flows: Iterable[DiscoveredFlow]) -> list[DiscoveredFlow]:
        """These flows, each with the one that undoes its runs, if it has one."""
        chosen = {flow.slug for flow in flows}
        return [flow for flow in self.flows if {flow.slug, flow.undoes} & chosen]

    def flow(self, slug: str) -> DiscoveredFlow | None:
        return next((flow for flow in self.flows if flow.slug == slug), None)

    @property
    def slugs(self) -> list[str]:
        return [flow.slug for flow in self.flows]

    @property
    def served(self) -> list[ServedFlow]:
        """The flows of the entries that are not broken."""
        return [flow.served for flow in self.flows if flow.entry not in self.broken]


def discover(settings: Settings) -> Discovered:
    """Discover all flows, for a command. What their modules print is dropped."""
    name = settings.pgflowd.name

    def receive(process: ChildProcess, messages: Iterable[Message | UnreadableMessage]) -> None:
        for message in messages:
            if isinstance(message, Found):
                keep_found(children, process, message)

    with selectors.DefaultSelector() as selector:
        log = open_log(settings.logging, process=DISCOVERY.name, name=name)
        children = Children(name, log, selector, receive, adopts=False)
        found = Discovery(settings, children, is_silent=True)
        try:
            while not found.is_done:
                found.go_on()
                for key, _ in selector.select(0.2 if not children.ended else 0.005):
                    key.data()
                children.kill_overdue(time.monotonic())
                for process in children.reap():
                    found.on_end(process)
        finally:
            found.stop()
            children.end_all(within_s=KILL_LIMIT_S)
        return found.result()


def keep_found(children: Children, process: ChildProcess, message: Found) -> None:
    """Keep a part of an answer, but not without end."""
    process.found.append(message.part)
    if sum(map(len, process.found)) > MAX_FOUND:
        process.found.clear()
        if process.id in children.alive:
            children.kill(process, "E210")


class Discovery:
    """One discovery of everything that the settings name."""

    def __init__(self, settings: Settings, children: Children, *, is_silent: bool = False) -> None:
        self.settings = settings
        self.retry_at: float | None = None  # when a refused process is tried again
        self._children = children
        self._is_silent = is_silent
        self._entries = list(dict.fromkeys(settings.pgflowd.flows))
        self._waiting = deque(self._entries)
        self._running: dict[str, str] = {}  # by child id: the entry
        self._found: dict[str, str] = {}  # by entry: the answer
        self._failures: dict[str, Problem] = {}  # by entry
        self._refused_at: float | None = None  # when the system first refused a process

    @property
    def is_done(self) -> bool:
        return not self._waiting and not self._running

    def go_on(self) -> None:
        """Start as many processes as there are processors."""
        now = time.monotonic()
        most = max(2, os.cpu_count() or 1)
        while self._waiting and len(self._running) < most and (self.retry_at or now) <= now:
            entry = self._waiting.popleft()
            limit_s = self.settings.supervisor.start_timeout_s
            main = partial(
                discovery.main, settings=self.settings, entry=entry, is_silent=self._is_silent
            )
            self.retry_at = None
            try:
                process = self._children.start(DISCOVERY, entry, main, limit_s=limit_s)
            except OSError as error:
                self._refused_at = self._refused_at or now
                if now < self._refused_at + limit_s:
                    self._waiting.appendleft(entry)
                    self.retry_at = now + RETRY_S
                else:
                    text = f"no process could be started: {error}"
                    self._failures[entry] = Problem("E210", text, entry)
                continue
            self._running[process.id] = entry

    def on_end(self, process: ChildProcess) -> None:
        """A process has ended, with a whole answer or not."""
        entry = self._running.pop(process.id, None)
        if entry is None:
            return
        self._found[entry] = "".join(process.found)
        if process.kill_reason == "E211":
            limit_s = self.settings.supervisor.start_timeout_s
            text = f"was not imported within {limit_s:g} s"
            self._failures[entry] = Problem("E211", text, entry, "do less at the top of the module")
        elif process.status != 0 or not process.found:
            text = f"cannot be imported: {describe_status(process.status)}"
            self._failures[entry] = Problem("E210", text, entry)

    def stop(self) -> None:
        """Kill all processes: the result is not needed."""
        self._waiting.clear()
        self.retry_at = None
        for id in self._running:
            if id in self._children.alive:
                self._children.kill(self._children.alive[id], "not needed any more")

    def result(self) -> Discovered:
        """Return the flows, the broken entries, and every problem once."""
        result = Discovered()
        for entry in self._entries:
            flows, problems = self._read(entry)
            problems += [problem for flow in flows for problem in flow.problems]
            problems.sort(key=attrgetter("position"))  # flows may stand among each other
            is_valid = all(problem.is_warning for problem in problems)
            for flow in flows:
                others = [each for each in result.flows if each.slug.lower() == flow.slug.lower()]
                served = [each for each in others if each.entry not in result.broken]
                if is_valid and served:
                    other = served[0]  # the same if a module and one of its flows are both listed
                    if (other.slug, other.place) != (flow.slug, flow.place):
                        problems.append(_conflict(other, flow))
                elif is_valid or not others:
                    result.flows = [each for each in result.flows if each not in others] + [flow]
            if not all(problem.is_warning for problem in problems):
                # all errors of an entry as one: the first, and how many more
                first, *rest = [problem for problem in problems if not problem.is_warning]
                place = f"{first.place} " if first.place and first.place != entry else ""
                more = f" (and {len(rest)} more)" if rest else ""
                result.broken[entry] = BrokenEntry(entry, first.code, f"{place}{first.text}{more}")
            result.problems += problems
        result.problems = list(dict.fromkeys(result.problems))
        self._found.clear()  # it may be large
        return result

    def _read(self, entry: str) -> tuple[list[DiscoveredFlow], list[Problem]]:
        """Return what the process of an entry has found, and the problems of the entry itself."""
        if entry in self._failures:
            return [], [self._failures[entry]]
        try:
            found = loads(self._found.get(entry, ""))
            flows = [_flow(entry, each) for each in found["flows"]]
            return flows, [Problem(**each) for each in found["problems"]]
        except (ValueError, TypeError, LookupError) as error:
            text = f"cannot be imported: its process sent an incomplete answer ({error})"
            return [], [Problem("E210", text, entry)]


def _flow(entry: str, found: dict[str, Any]) -> DiscoveredFlow:
    slug, module, fingerprint, undoes = map(found.pop, ("slug", "module", "fingerprint", "undoes"))
    found["problems"] = tuple(Problem(**each) for each in found["problems"])
    found["handlers"] = tuple(facts_from(found["handlers"]))
    return DiscoveredFlow(ServedFlow(slug, module, entry, fingerprint, undoes), **found)


def _conflict(other: DiscoveredFlow, flow: DiscoveredFlow) -> Problem:
    if flow.slug == other.slug:
        text = f"flow {flow.slug} is defined twice, first at {other.place}"
        return Problem("E213", text, flow.place, "give one of them another slug")
    text = f"flows {other.slug} and {flow.slug} differ only in case, so they would share a queue"
    return Problem("E207", text, flow.place, "give one of them another slug")
