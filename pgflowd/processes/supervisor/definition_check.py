"""
The check whether changed flows can be served, before a reload replaces their workers.

A process of its own asks the database (`processes.definition_check`). If it fails, or takes longer
than a statement may, the flows count as refused: what works goes on.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from pgflowd.core.definition.versions import Code
from pgflowd.core.json import loads
from pgflowd.core.messages import Found as Part
from pgflowd.core.messages import Message, UnreadableMessage
from pgflowd.core.settings.sections import Settings
from pgflowd.core.supervision.kinds import CHECK
from pgflowd.errors import Problem
from pgflowd.processes import definition_check
from pgflowd.processes.supervisor.children import ChildProcess, Children


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
        main = partial(definition_check.main, settings=settings, codes=codes)
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
