"""The values of a run, of its steps and of its tasks, in parts, as they may be very large."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from uuid import UUID

from pgflowd.core.documents import Hidden, Inline, shown
from pgflowd.core.documents.run_tasks import ValuePart
from pgflowd.core.documents.runs import RunWithStates
from pgflowd.core.lookup import refuse_unknown_step
from pgflowd.core.statuses import StepStatus
from pgflowd.core.text import short_id
from pgflowd.db.history import value_part
from pgflowd.db.operations import get_with_states
from pgflowd.db.performing import run_sync
from pgflowd.db.query import execute, execute_together
from pgflowd.errors import NotFound
from pgflowd.web.pages.page import PageRequest, refused
from pgflowd.web.text import JsonBranch, path_of, tree_of

What = Literal["input", "output"]
MAX_STEPS = 20  # whose outputs are shown together
MAX_START = 2**31 - 1
PARAMETERS = frozenset({"view", "step", "task", "what", "path", "start"})


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
class RunValues:
    """Parts of the values of a run: those that its address asks for, or all that it has."""

    run: Hidden[RunWithStates]
    values: Annotated[Sequence[ShownValue], "the values that were asked for"]
    left_out: Hidden[Sequence[str]] = ()  # steps that have outputs, too

    @property
    @shown
    def run_id(self) -> UUID:
        return self.run.run_id


def run_values(request: PageRequest) -> RunValues:
    """One value from a path on, or the input, the output and the outputs of steps."""
    run = run_sync(request.conn, get_with_states(request.run_id()))
    step, what = request.word("step"), request.one_of("what", ("input", "output"))
    refuse_unknown_step(run, step)
    if what is not None:
        return RunValues(
            run, [_asked(request, run, step, "input" if what == "input" else "output")]
        )
    done = [slug for slug, each in run.steps.items() if each.status is StepStatus.COMPLETED]
    wanted: list[tuple[What, str | None]] = [("input", None), ("output", None)]
    wanted += [("output", slug) for slug in done[:MAX_STEPS]]
    queries = [value_part(run.run_id, slug, what=what) for what, slug in wanted]
    parts = execute_together(request.conn, queries)
    found = [
        ShownValue(what, slug, None, part)
        for (what, slug), part in zip(wanted, parts, strict=True) if part
    ]  # fmt: skip
    return RunValues(run, found, done[MAX_STEPS:])


def _asked(request: PageRequest, run: RunWithStates, step: str | None, what: What) -> ShownValue:
    index = request.number("task", -1, 0, MAX_START)
    task = None if index < 0 else index
    path, start = path_of(request.query.get("path", "")), request.number("start", 0, 0, MAX_START)
    query = value_part(run.run_id, step, task, what, path, start)
    part = execute(request.conn, query)
    if part is None:
        whose = f"step {step}" if step else f"run {short_id(run.run_id)}"
        text = f"{whose} has no such {what}"
        raise NotFound(text, next="it has ended without one, or the path leads nowhere")
    return ShownValue(what, step, task, part)


def whole_value(request: PageRequest) -> tuple[str, Any]:
    """An input or output that an address names, and the name of a file for it."""
    run, step = run_sync(request.conn, get_with_states(request.run_id())), request.word("step")
    refuse_unknown_step(run, step)
    what = request.one_of("what", ("input", "output")) or "output"
    if step is not None and what == "input":
        raise refused("what", what, "output, since a step has one input for each task")
    if step is None:
        return f"{short_id(run.run_id)}-{what}.json", run.input if what == "input" else run.output
    return f"{short_id(run.run_id)}-{step}.json", run.steps[step].output
