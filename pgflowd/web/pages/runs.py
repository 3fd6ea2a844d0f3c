"""The list of runs, whose filter is its address; a run, its values, and each of its steps."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pgflowd.core.documents import Hidden, Inline, runs, shown
from pgflowd.core.documents.run_tasks import (
    Branch,
    EventPage,
    OpenTask,
    StepTask,
    StepTasksPage,
    ValuePart,
    branches_of,
)
from pgflowd.core.documents.runs import PageKey, RunDetails, RunPage, RunWithStates, StepTasks
from pgflowd.core.graph import Graph, Node
from pgflowd.core.lookup import refuse_unknown_step, unknown_flow
from pgflowd.core.run_filter import RunFilter
from pgflowd.core.run_graph import graph_of_run
from pgflowd.core.statuses import OPEN_TASK_STATUSES, Outcome, RunStatus, StepStatus, TaskStatus
from pgflowd.core.text import short_id
from pgflowd.db.query import Query, execute
from pgflowd.db.run_details import (
    count_runs,
    flow_slugs,
    read_details,
    run_tasks,
    runs_by_id,
    search_runs,
    step_strip,
)
from pgflowd.db.runs import attempts, event_page, kept_output, run_steps, task_attempts, value_part
from pgflowd.errors import NotFound
from pgflowd.web.pages.page import Connection, Page, PageRequest, refused
from pgflowd.web.text import JsonBranch, path_of, tree_of

LISTED = 50
_ROW = "run-"  # begins the id of a row's fragment
MAX_TEXT_CHARS = 200  # of what is searched for


@dataclass(frozen=True)
class ShownRuns:
    """A page of the list of runs; and what the form offers."""

    page: Inline[RunPage]
    flows: Hidden[Sequence[str]]
    wanted: Hidden[RunFilter]


def run_list(request: PageRequest) -> ShownRuns:
    """A page of the runs that the address asks for; the first one with their number."""
    wanted, after = filter_of(request), None
    if (text := request.word("after")) is not None:
        try:
            after = PageKey.read(text)
        except ValueError:
            raise refused("after", text, "the `next` of the page before") from None
    flows = flow_slugs(request.conn)
    if wanted.flow and wanted.flow not in flows:
        raise unknown_flow(wanted.flow, flows)
    search = search_runs(wanted, LISTED, after)
    if after is not None or wanted.is_empty:
        return ShownRuns(request.read(search), flows, wanted)
    page, count = request.read_all(search, count_runs(wanted))
    return ShownRuns(replace(page, count=count), flows, wanted)


def filter_of(request: PageRequest) -> RunFilter:
    """The filter that an address has."""
    labels = {}
    if (label := request.word("label")) is not None:
        name, equals, value = label.partition("=")
        if not equals or not name:
            raise refused("label", label, "NAME=VALUE")
        labels = {name: value}
    return RunFilter(
        flow=request.word("flow"),
        statuses=tuple(request.some_of("status", tuple(map(str, RunStatus)))),
        since=request.moment("since"),
        until=request.moment("until"),
        labels=labels,
        text=(request.word("text") or "")[:MAX_TEXT_CHARS],
    )


def with_rows(
    conn: Connection, document: ShownRuns, shown: Collection[str]
) -> tuple[ShownRuns, Collection[str]]:
    """The list with other runs that somebody sees, since they do not fit its filter any more."""
    here, others = {run.run_id for run in document.page.runs}, set()
    for row in shown:
        with suppress(ValueError):
            others.add(UUID(row.removeprefix(_ROW)))
    others -= here
    if not others:
        return document, ()
    found = execute(conn, runs_by_id(sorted(others)))
    more = replace(document, page=replace(document.page, runs=[*document.page.runs, *found]))
    return more, [f"{_ROW}{run.run_id}" for run in found]


# Values, in parts, as they may be very large.
What = Literal["input", "output"]
WHATS: tuple[What, ...] = ("input", "output")
Whose = tuple[What, str | None, int | None]  # and the step and the task, if it is of one


@dataclass(frozen=True)
class _OfRun:
    """What is shown of a run."""

    run: Hidden[RunWithStates]

    @property
    @shown
    def run_id(self) -> UUID:
        return self.run.run_id


MAX_VALUES = 20  # steps whose outputs are shown together
_MAX_INDEX = 2**31 - 1


@dataclass(frozen=True)
class ShownValue:
    """A part of a value, and whose it is."""

    what: What
    step: str | None  # None: the run's
    task: int | None
    part: Inline[ValuePart]

    @property
    def title(self) -> str:
        task = "" if self.task is None else f"#{self.task}"
        return f"{self.what.capitalize()}{f' of {self.step}{task}' if self.step else ''}"

    @property
    def tree(self) -> JsonBranch:
        return tree_of(self.part)

    @property
    def query(self) -> dict[str, Any]:
        """The parameters of its address."""
        return {"view": "values", "what": self.what, "step": self.step, "task": self.task}


@dataclass(frozen=True)
class RunValues(_OfRun):
    """Parts of the values of a run: those that its address asks for, or all that it has."""

    values: Annotated[Sequence[ShownValue], "the values that were asked for"]
    left_out: Hidden[Sequence[str]] = ()  # steps that have outputs, too


def run_values(request: PageRequest) -> RunValues:
    """One value from a path on, or the input, the output and the outputs of steps."""
    run = request.run()
    if what := request.one_of("what", WHATS):
        step, index = request.word("step"), request.number("task", -1, 0, _MAX_INDEX)
        task, path = None if index < 0 else index, path_of(request.query.get("path", ""))
        start = request.number("start", 0, 0, _MAX_INDEX)
        part = request.read(value_part(run.run_id, step, task, what, path, start))
        if part is None:
            whose = f"step {step}" if step else f"run {short_id(run.run_id)}"
            remedy = "it has ended without one, or the path leads nowhere"
            raise NotFound(f"{whose} has no such {what}", next=remedy)
        return RunValues(run, [ShownValue(what, step, task, part)])
    done = [slug for slug, each in run.steps.items() if each.status is StepStatus.COMPLETED]
    wanted: list[Whose] = [("input", None, None), ("output", None, None)]
    wanted += [("output", slug, None) for slug in done[:MAX_VALUES]]
    parts = request.read_all(*_parts(run, wanted))
    return RunValues(run, _values(wanted, parts), done[MAX_VALUES:])


def _parts(run: RunWithStates, wanted: Sequence[Whose]) -> list[Query[ValuePart | None]]:
    return [value_part(run.run_id, step, task, what) for what, step, task in wanted]


def _values(wanted: Sequence[Whose], parts: Sequence[ValuePart | None]) -> list[ShownValue]:
    """Those that there are."""
    found = zip(wanted, parts, strict=True)
    return [ShownValue(*whose, part) for whose, part in found if part]


def whole_value(request: PageRequest) -> tuple[str, Any]:
    """An input or output that an address names, and the name of a file for it."""
    run, step, what = request.run(), request.word("step"), request.one_of("what", WHATS) or "output"
    if step is not None and what == "input":
        raise refused("what", what, "output, since a step has one input for each task")
    if step is None:
        return f"{short_id(run.run_id)}-{what}.json", run.input if what == "input" else run.output
    return f"{short_id(run.run_id)}-{step}.json", run.steps[step].output


MAX_OUTPUTS = 20  # attempts whose output is shown, as by `runs output`
MAX_READ = 5000  # attempts of a run of which all are read
MAX_EVENTS = 500  # of a page
MAX_TROUBLES = 20  # failed attempts with their tracebacks; a map may have very many
_FIRST = (StepStatus.FAILED, StepStatus.STARTED)  # in a list of steps


@dataclass(frozen=True)
class ShownStep:
    """A step of a run, with all that its row says."""

    tasks: StepTasks
    state: runs.StepState | None
    node: Node


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
    def troubles(self) -> Sequence[runs.FailedAttempt]:
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
class RunOutput(_OfRun):
    """What the handlers of a run have printed and logged."""

    attempts: Annotated[
        Sequence[runs.AttemptOutput],
        "at most the newest twenty of which output is kept, in the order of their ends",
    ]


def run_page(request: PageRequest) -> ShownRun:
    """A run as `runs show --tree` prints it; `step` is one that the graph shows with others."""
    details = request.perform(read_details(request.run_id(), with_family=True))
    refuse_unknown_step(details.run, request.word("step"))
    return ShownRun(details)


def run_attempts(request: PageRequest) -> ShownRun:
    """A run with its checkpoints and, unless there are very many, its attempts."""
    return ShownRun(_with_attempts(request, with_checkpoints=True))


def run_timeline(request: PageRequest) -> RunHistory:
    """What happened last in a run, or before a moment; the bars of very many tasks are left out."""
    details = _with_attempts(request)
    page = request.read(event_page(details.run.run_id, _before(request), MAX_EVENTS))
    return RunHistory(details, page)


def _with_attempts(request: PageRequest, *, with_checkpoints: bool = False) -> RunDetails:
    """A run with its attempts, unless they may be too many to be read at once."""
    reading = read_details(request.run_id(), with_checkpoints=with_checkpoints)
    details = request.perform(reading)
    if sum(step.tasks * max(step.attempts or 1, 1) for step in details.steps) > MAX_READ:
        return details
    return replace(details, attempts=request.read(attempts(details.run.run_id)))


def _before(request: PageRequest) -> datetime | None:
    moment = request.moment("before")
    if moment.in_s is not None:
        raise refused("before", request.query["before"], "a moment such as 2026-12-31T08:00Z")
    return moment.at


def run_output(request: PageRequest) -> RunOutput:
    """What the handlers of a run, or of a step of it, have printed and logged."""
    run = request.run()
    query = kept_output(run.run_id, request.word("step"), None, None, MAX_OUTPUTS)
    return RunOutput(run, request.read(query))


# One step of a run: its tasks, a page at a time, and on request one of them with its attempts.
MAX_ATTEMPTS = 50  # of one task, the newest
STATUSES = tuple(
    map(str, (TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.SKIPPED, *OPEN_TASK_STATUSES))
)


@dataclass(frozen=True)
class ShownTask:
    """A task with its attempts, the newest first."""

    task: StepTask
    attempts: Sequence[runs.Attempt]
    values: Sequence[ShownValue]  # its input and its output, as far as there are any


@dataclass(frozen=True)
class ShownTasks:
    """A step of a run, some of its tasks, and perhaps one of them in detail."""

    run: Hidden[RunWithStates]
    step: Hidden[StepTasks]
    page: Inline[StepTasksPage]
    chosen: Hidden[ShownTask | None]

    @property
    def counts(self) -> list[tuple[TaskStatus, int]]:
        """How many tasks it has of each status, without those of which it has none."""
        step = self.step
        found = [
            (TaskStatus.COMPLETED, step.completed), (TaskStatus.FAILED, step.failed),
            (TaskStatus.STARTED, step.running), (TaskStatus.WAITING, step.waiting),
            (TaskStatus.QUEUED, step.queued),
        ]  # fmt: skip
        return [(status, count) for status, count in found if count]


def step_tasks(request: PageRequest) -> ShownTasks:
    """The tasks of a step; one in detail if the address names it, or the step has just one."""
    slug = request.path["step"]
    run = request.run(slug)
    statuses = request.some_of("status", STATUSES)
    after = request.number("after", -1, -1, _MAX_INDEX)
    tasks = run_tasks(run.run_id, slug, statuses, after, LISTED)
    page, steps = request.read_all(tasks, run_steps(run.run_id))
    step = next(each for each in steps if each.step_slug == slug)
    if step.step_type == "map" and step.tasks > 1:
        page = replace(page, strip=request.read(step_strip(run.run_id, slug)))
    return ShownTasks(run, step, page, _chosen(request, run, step))


def _chosen(request: PageRequest, run: RunWithStates, step: StepTasks) -> ShownTask | None:
    index = request.number("task", -1, 0, _MAX_INDEX)
    if index < 0:
        if step.tasks != 1:
            return None
        index = 0
    run_id, slug = run.run_id, step.step_slug
    wanted: list[Whose] = [("input", slug, index), ("output", slug, index)]
    page, attempts, *parts = request.read_all(
        run_tasks(run_id, slug, [], index - 1, 1),
        task_attempts(run_id, slug, index, MAX_ATTEMPTS), *_parts(run, wanted),
    )  # fmt: skip
    found = [task for task in page.tasks if task.task == index]
    if not found:
        remedy = f"it has {step.tasks}, from #0"
        raise NotFound(f"step {slug} has no task #{index}", next=remedy)
    return ShownTask(found[0], attempts, _values(wanted, parts))


def _log(request: PageRequest) -> list[str]:
    before = _before(request)
    later = [] if before is None else ["--before", before.isoformat()]
    return ["runs", "log", request.path["run"][-8:], *later]


def _show_value(request: PageRequest) -> list[str]:
    return ["runs", "show", request.path["run"][-8:], f"--{request.word('what') or 'output'}"]


_VIEWS = {  # a view of a run, with the parameters that its address may have
    name: Page("/runs/{run}", f"run_{name}.html", read, prints, others=frozenset({"view", *others}))
    for name, read, prints, others in (
        ("timeline", run_timeline, _log, ("before",)),
        ("attempts", run_attempts, "runs show {run} --attempts", ()),
        ("output", run_output, "runs output {run}", ("step",)),
        ("values", run_values, _show_value, ("step", "task", "what", "path", "start")),
    )
}

PAGES = (
    Page(
        "/runs", "runs.html", run_list, "runs list",
        options=("flow", "status", "label", "since", "until", "text", "after"),
        lists=frozenset({"status"}), with_rows=with_rows,
    ),
    Page(
        "/runs/{run}", "run.html", run_page, "runs show {run} --tree",
        others=frozenset({"view", "step"}), views=_VIEWS,
    ),
    Page(
        "/runs/{run}/steps/{step}", "step.html", step_tasks, "runs tasks {run} {step}",
        options=("status", "after"), others=frozenset({"task"}), lists=frozenset({"status"}),
    ),
)  # fmt: skip
