"""
Flows with undos, for tests of the SQL: their shapes, those of the flows that undo them, and what a
worker does with their tasks.

The flow that undoes is the one of the package, but for its handlers: a test has those in
`UndoWorker`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pgflowd.testing.until import until
from support.database import Row
from support.leases import LeaseDatabase

DUE = "select count(*) from pgflowd.runs where due_at <= now() + interval '2 s'"


class Step(NamedTuple):
    """A step of a flow, and whether it has an undo."""

    slug: str
    deps: Sequence[str] = ()
    undo: str | None = "completed"
    is_map: bool = False
    options: dict[str, Any] = {}  # noqa: RUF012


def steps_of(*texts: str) -> list[Step]:
    """`a`, `b:a` after a, `m*:a` a map over a; `b!` has no undo, `b?` one for attempts."""
    found = []
    for text in texts:
        name, _, deps = text.partition(":")
        undo = None if "!" in name else "attempted" if "?" in name else "completed"
        found.append(Step(name.rstrip("!?*"), deps.split("+") if deps else [], undo, "*" in name))
    return found


def nearest(steps: Sequence[Step]) -> dict[str, set[str]]:
    """For each step with an undo those that are undone right before it."""
    below: dict[str, set[str]] = {step.slug: set() for step in steps}
    for step in reversed(steps):
        for dep in step.deps:
            below[dep] |= below[step.slug] | ({step.slug} if step.undo else set())
    return {
        step.slug: {one for one in below[step.slug]
                    if not any(one in below[other] for other in below[step.slug])}
        for step in steps
        if step.undo
    }  # fmt: skip


def undoing(steps: Sequence[Step]) -> list[Step]:
    """The steps of the flow that undoes, in topological order."""
    found = []
    after, by_slug = nearest(steps), {step.slug: step for step in steps}
    settle = {"settle": True, "onCrashLimit": "quarantine"}
    for step in reversed([step for step in steps if step.undo]):
        deps = sorted(f"undo_{other}" for other in after[step.slug])
        options = settle | by_slug[step.slug].options.get("of_undo", {})
        if step.is_map:
            found.append(Step(f"list_{step.slug}", deps, None))
            deps = [f"list_{step.slug}"]
        found.append(Step(f"undo_{step.slug}", deps, None, step.is_map, options))
    return found


def define(db: LeaseDatabase, flow: str, steps: Sequence[Step], **options: Any) -> None:
    """Define a flow by its shape."""
    shape = {
        "options": {"maxAttempts": 1, "baseDelay": 0, "timeout": 60} | options,
        "steps": [
            {
                "slug": step.slug,
                "stepType": "map" if step.is_map else "single",
                "dependencies": sorted(step.deps),
                "whenUnmet": "skip",
                "whenExhausted": step.options.get("exhausted", "fail"),
                "requiredInputPattern": {"defined": False},
                "forbiddenInputPattern": {"defined": False},
                "options": {k: v for k, v in step.options.items() if k not in OF_TESTS}
                | ({"undo": step.undo} if step.undo else {}),
            }
            for step in steps
        ],
    }
    answer = db.value("select pgflowd.define(%s, %s)", flow, json.dumps(shape))
    assert answer["status"] != "mismatch", answer
    db.rows("select pgflowd.watch_queue(%s)", flow)


OF_TESTS = ("of_undo", "exhausted")


@dataclass
class UndoWorld:
    """A flow, the one that undoes it, and their workers."""

    db: LeaseDatabase
    steps: Sequence[Step]
    options: dict[str, Any] = field(default_factory=dict)
    flow: str = field(default_factory=lambda: f"flow_{uuid.uuid4().hex[:8]}")
    undone: list[tuple[str, int]] = field(default_factory=list)  # in the order of their reports
    failing: set[tuple[str, int]] = field(default_factory=set)  # whose undo fails

    def __post_init__(self) -> None:
        define(self.db, self.flow, self.steps, **self.options)
        define(self.db, self.undo_flow, undoing(self.steps))
        self.worker, self.undo_worker = (
            self.db.worker(self.flow), self.db.worker(self.undo_flow)
        )  # fmt: skip

    @property
    def undo_flow(self) -> str:
        return f"undo_{self.flow}"

    def work(self, is_good: Callable[[Row], bool] = lambda task: True) -> None:
        """Execute tasks until there are none; those that are not good fail."""
        while tasks := self.db.claim(self.flow, self.worker, 200):
            for task in tasks:
                if is_good(task):
                    self.db.complete(task, output_of(task))
                else:
                    self.db.fail(task)

    def failed_run(self, *failing: str, input: Any = None) -> uuid.UUID:
        """A run in which these steps fail."""
        run = self.db.start(self.flow, input or {})
        self.work(lambda task: task.step_slug not in failing)
        return run

    def sweep(self) -> None:
        """Sweep until nothing is due, nor soon."""

        def is_quiet() -> bool:
            self.db.rows("select * from pgflowd.process_due()")
            return bool(self.db.value(DUE) == 0)

        until(is_quiet, within_s=10)

    def undo_tasks(self) -> list[Row]:
        return self.db.claim(self.undo_flow, self.undo_worker, 200)

    def undo(self, task: Row) -> None:
        """Execute a task of the flow that undoes."""
        kind, _, slug = task.step_slug.partition("_")
        query = "select input -> 'plan' -> %s from pgflow.runs where run_id = %s"
        plan = self.db.value(query, slug, task.run_id) or []
        if kind == "list":
            self.db.complete(task, plan)
        elif not plan:
            self.db.complete(task, None)
        elif (slug, plan[task.task_index]) in self.failing:
            self.db.fail(task, "no such payment")
        else:
            self.undone.append((slug, plan[task.task_index]))
            self.db.complete(task, "undone")

    def finish(self) -> None:
        """Let all that is to be undone be undone."""
        self.sweep()
        while tasks := self.undo_tasks():
            for task in tasks:
                self.undo(task)
            self.sweep()

    def status(self, run: uuid.UUID) -> str:
        query = "select status from pgflowd.run_status where run_id = %s"
        return str(self.db.value(query, run))

    def ask(self, run: uuid.UUID, again: bool = False, conn: Any = None) -> str:
        query = "select pgflowd.undo(%s, 'withdrawn', 'jane', %s)"
        return str(self.db.value(query, run, again, conn=conn))

    def entry(self, run: uuid.UUID) -> Row:
        return self.db.row("select * from pgflowd.runs where run_id = %s", run)

    def undo_run(self, run: uuid.UUID) -> Row:
        """The run that undoes this one: the last of them."""
        query = """
            select core.* from pgflow.runs as core join pgflowd.run_status as status
                on status.undo_run_id = core.run_id where status.run_id = %s
        """
        return self.db.row(query, run)


def output_of(task: Row) -> Any:
    """A single step's: a list, since a map may follow it."""
    return list(range(3)) if task.task_index == 0 and not isinstance(task.input, int) else 1
