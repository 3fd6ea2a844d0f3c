"""
One run: its steps and what they wait for, its timeline, attempts, output and values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated
from uuid import UUID

from pgflowd.core.documents import Hidden, Inline, shown
from pgflowd.core.documents.history import EventPage
from pgflowd.core.documents.run_tasks import Branch, branches_of
from pgflowd.core.documents.runs import (
    AttemptOutput,
    FailedAttempt,
    RunDetails,
    RunWithStates,
    StepState,
    StepTasks,
)
from pgflowd.core.documents.waits import OpenTask
from pgflowd.core.graph import Graph, Node
from pgflowd.core.lookup import refuse_unknown_step
from pgflowd.core.run_graph import graph_of_run
from pgflowd.core.statuses import Outcome, StepStatus
from pgflowd.db.history import attempts, event_page, kept_output
from pgflowd.db.operations import get_with_states
from pgflowd.db.performing import run_sync
from pgflowd.db.query import execute
from pgflowd.db.run_details import read_details
from pgflowd.web.pages import values
from pgflowd.web.pages.page import Page, PageRequest, refused

MAX_OUTPUTS = 20  # attempts whose output is shown, as by `runs output`
MAX_ATTEMPTS = 5000  # of a run whose attempts are all read
MAX_EVENTS = 500  # of a page
MAX_TROUBLES = 20  # failed attempts with their tracebacks; a map may have very many
_FIRST = (StepStatus.FAILED, StepStatus.STARTED)  # in a list of steps


@dataclass(frozen=True)
class ShownStep:
    """A step of a run, with all that its row says."""

    tasks: StepTasks
    state: StepState | None
    node: Node

    @property
    def slug(self) -> str:
        return self.tasks.step_slug


@dataclass(frozen=True)
class ShownRun:
    """A run, its steps and what it waits for."""

    details: Inline[RunDetails]

    @property
    def run(self) -> RunWithStates:
        return self.details.run

    @property
    def graph(self) -> Graph:
        details = self.details
        return graph_of_run(details.run, details.steps, details.now, details.undos)

    @property
    def steps(self) -> list[ShownStep]:
        """Those that failed or run come first, then the others in the order of the graph."""
        nodes = {node.slug: node for node in self.graph.nodes}
        shown = [
            ShownStep(each, self.run.steps.get(each.step_slug), nodes[each.step_slug])
            for each in self.details.steps
        ]
        return sorted(shown, key=lambda one: one.state is None or one.state.status not in _FIRST)

    @property
    def troubles(self) -> Sequence[FailedAttempt]:
        """The newest failed attempts, the newest first."""
        kept = [each for each in self.details.failures if each.outcome is not Outcome.RELEASED]
        return kept[: -MAX_TROUBLES - 1 : -1]

    @property
    def waits(self) -> list[tuple[OpenTask, int]]:
        """What tasks wait for; of those of a step that wait for the same the first, and how many
        others there are."""
        alike: dict[tuple[str, str], list[OpenTask]] = {}
        for task in self.details.waits:
            alike.setdefault((task.step_slug, task.waits_for), []).append(task)
        return [(tasks[0], len(tasks) - 1) for tasks in alike.values()]

    @property
    def branches(self) -> list[Branch]:
        return branches_of(self.details.family or ())


@dataclass(frozen=True)
class RunHistory:
    """What happened in a run, in the order of time."""

    details: Hidden[RunDetails]
    page: Inline[EventPage]

    @property
    def run(self) -> RunWithStates:
        return self.details.run


@dataclass(frozen=True)
class RunOutput:
    """What the handlers of a run have printed and logged."""

    run: Hidden[RunWithStates]
    attempts: Annotated[
        Sequence[AttemptOutput],
        "at most the newest twenty of which output is kept, in the order of their ends",
    ]

    @property
    @shown
    def run_id(self) -> UUID:
        return self.run.run_id


def run_page(request: PageRequest) -> ShownRun:
    """A run as `runs show --tree` prints it; `step` is one that the graph shows with others."""
    details = run_sync(request.conn, read_details(request.run_id(), with_family=True))
    refuse_unknown_step(details.run, request.word("step"))
    return ShownRun(details)


def run_attempts(request: PageRequest) -> ShownRun:
    """A run with its checkpoints and, unless there are very many, its attempts."""
    details = run_sync(request.conn, read_details(request.run_id(), with_checkpoints=True))
    if _is_large(details):
        return ShownRun(details)
    found = execute(request.conn, attempts(details.run.run_id))
    return ShownRun(replace(details, attempts=found))


def run_timeline(request: PageRequest) -> RunHistory:
    """What happened last in a run, or before a moment; the bars of very many tasks are left out."""
    details = run_sync(request.conn, read_details(request.run_id()))
    run_id = details.run.run_id
    if not _is_large(details):
        details = replace(details, attempts=execute(request.conn, attempts(run_id)))
    page = execute(request.conn, event_page(run_id, _before(request), MAX_EVENTS))
    return RunHistory(details, page)


def _before(request: PageRequest) -> datetime | None:
    moment = request.moment("before")
    if moment.in_s is not None:
        raise refused("before", request.query["before"], "a moment such as 2026-12-31T08:00Z")
    return moment.at


def _is_large(details: RunDetails) -> bool:
    """Whether its attempts may be too many to be read at once."""
    return sum(step.tasks * max(step.attempts or 1, 1) for step in details.steps) > MAX_ATTEMPTS


def run_output(request: PageRequest) -> RunOutput:
    """What the handlers of a run, or of a step of it, have printed and logged."""
    run, step = _run(request, request.run_id()), request.word("step")
    refuse_unknown_step(run, step)
    query = kept_output(run.run_id, step, None, None, MAX_OUTPUTS)
    found = execute(request.conn, query)
    return RunOutput(run, found)


def _run(request: PageRequest, run_id: UUID) -> RunWithStates:
    return run_sync(request.conn, get_with_states(run_id))


def _command(verb: str, *options: str) -> Callable[[PageRequest], list[str]]:
    return lambda request: ["pgflowd", "runs", verb, request.path["run"][-8:], *options]


def _value_command(request: PageRequest) -> list[str]:
    return _command("show", f"--{request.word('what') or 'output'}")(request)


def _log(request: PageRequest) -> list[str]:
    before = _before(request)
    later = [] if before is None else ["--before", before.isoformat()]
    return _command("log", *later)(request)


_VIEW = frozenset({"view"})
_PATH = "/runs/{run}"
_VIEWS: Mapping[str, Page] = {
    "timeline": Page(_PATH, "run_timeline.html", run_timeline, _log, _VIEW | {"before"}),
    "attempts": Page(
        _PATH, "run_attempts.html", run_attempts, _command("show", "--attempts"), _VIEW
    ),
    "output": Page(_PATH, "run_output.html", run_output, _command("output"), _VIEW | {"step"}),
    "values": Page(_PATH, "run_values.html", values.run_values, _value_command, values.PARAMETERS),
}

PAGES = (
    Page(
        _PATH, "run.html", run_page, _command("show", "--tree"), _VIEW | {"step"}, views=_VIEWS
    ),
)  # fmt: skip
