"""One step of a run: its tasks, a page at a time, and on request one of them with its attempts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pgflowd.core.documents import Hidden, Inline
from pgflowd.core.documents.run_tasks import StepTask, StepTasksPage
from pgflowd.core.documents.runs import Attempt, RunWithStates, StepState, StepTasks
from pgflowd.core.lookup import refuse_unknown_step
from pgflowd.core.statuses import OPEN_TASK_STATUSES, TaskStatus
from pgflowd.db.history import task_attempts, value_part
from pgflowd.db.operations import get_with_states
from pgflowd.db.performing import run_sync
from pgflowd.db.query import execute, execute_together
from pgflowd.db.run_details import run_tasks, step_strip
from pgflowd.db.runs import run_steps
from pgflowd.errors import NotFound
from pgflowd.web.pages.page import Page, PageRequest
from pgflowd.web.pages.values import ShownValue, What

LISTED = 50
MAX_ATTEMPTS = 50  # of one task, the newest
MAX_INDEX = 2**31 - 1
STATUSES = tuple(
    map(str, (TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.SKIPPED, *OPEN_TASK_STATUSES))
)


@dataclass(frozen=True)
class ShownTask:
    """A task with its attempts, the newest first."""

    task: StepTask
    attempts: Sequence[Attempt]
    values: Sequence[ShownValue]  # its input and its output, as far as there are any


@dataclass(frozen=True)
class ShownTasks:
    """A step of a run, some of its tasks, and perhaps one of them in detail."""

    run: Hidden[RunWithStates]
    step: Hidden[StepTasks]
    page: Inline[StepTasksPage]
    chosen: Hidden[ShownTask | None]

    @property
    def state(self) -> StepState | None:
        return self.run.steps.get(self.step.step_slug)

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
    run = run_sync(request.conn, get_with_states(request.run_id()))
    slug = request.path["step"]
    refuse_unknown_step(run, slug)
    statuses = request.some_of("status", STATUSES)
    after = request.number("after", -1, -1, MAX_INDEX)
    page, steps = execute_together(
        request.conn,
        [run_tasks(run.run_id, slug, statuses, after, LISTED), run_steps(run.run_id)],
    )
    step = next(each for each in steps if each.step_slug == slug)
    if step.step_type == "map" and step.tasks > 1:
        page = replace(page, strip=execute(request.conn, step_strip(run.run_id, slug)))
    return ShownTasks(run, step, page, _chosen(request, run, step))


def _chosen(request: PageRequest, run: RunWithStates, step: StepTasks) -> ShownTask | None:
    index = request.number("task", -1, 0, MAX_INDEX)
    if index < 0:
        if step.tasks != 1:
            return None
        index = 0
    queries: list[Any] = [
        run_tasks(run.run_id, step.step_slug, [], index - 1, 1),
        task_attempts(run.run_id, step.step_slug, index, MAX_ATTEMPTS),
    ]
    whats: tuple[What, ...] = ("input", "output")
    queries += [value_part(run.run_id, step.step_slug, index, what) for what in whats]
    page, attempts, *parts = execute_together(request.conn, queries)
    found = [task for task in page.tasks if task.task == index]
    if not found:
        text = f"step {step.step_slug} has no task #{index}"
        raise NotFound(text, next=f"it has {step.tasks}, from #0")
    values = [
        ShownValue(what, step.step_slug, index, part)
        for what, part in zip(whats, parts, strict=True) if part
    ]  # fmt: skip
    return ShownTask(found[0], attempts, values)


def _command(request: PageRequest) -> list[str]:
    words = ["pgflowd", "runs", "tasks", request.path["run"][-8:], request.path["step"]]
    for status in (request.word("status") or "").split(","):
        words += ["--status", status] if status else []
    if after := request.word("after"):
        words += ["--after", after]
    return words


PAGES = (
    Page(
        "/runs/{run}/steps/{step}", "step.html", step_tasks, _command,
        frozenset({"status", "after", "task"}), lists=frozenset({"status"}),
    ),
)  # fmt: skip
