"""
The timeline of the undo of a run, which is another run: its entries, told of the steps undone.

Of the run that undoes, only what it does about the plan is told: who lists the elements of a map,
and who has nothing to undo, is left out. Times count from the beginning of the undo.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pgflowd.core.documents.runs import FailedAttempt, RunWithStates, TimelineEntry
from pgflowd.core.documents.waits import OpenTask
from pgflowd.core.statuses import RunStatus
from pgflowd.core.text import between
from pgflowd.core.timeline import RUN_UNDOING, output_entry, timeline_of, undo_event
from pgflowd.core.undo import FAILURE_MARK, PREFIX


def undo_timeline(
    run: RunWithStates,
    undo: RunWithStates | None,
    failures: Iterable[FailedAttempt] = (),
    waits: Iterable[OpenTask] = (),
) -> list[TimelineEntry]:
    """The entries of the undo of this run so far; `undo` is None while it has not begun."""
    found = []
    for entry in () if undo is None else timeline_of(undo, failures, waits):
        if entry.event == f"run:{RunStatus.STARTED}":
            tasks = sum(map(len, _plan(undo).values()))
            found.append(replace(entry, event=RUN_UNDOING, tasks=tasks))
        elif entry.step is not None and (told := _of_step(entry, undo)):
            found.append(told)
    ended_at = run.undo_wanted_at if undo is None else undo.ended_at
    if run.has_ended and ended_at is not None:
        took_s = between(run.undo_wanted_at, ended_at)
        failed = [each for each in found if each.event == undo_event(RunStatus.UNDO_FAILED)]
        end = TimelineEntry(
            f"run:{run.status}", "", "", ended_at, took_s or 0.0, took_s=took_s,
            error=f"{failed[0].step}: {failed[0].error}" if failed else None,
        )  # fmt: skip
        found.append(end)
    return [replace(each, run_id=str(run.run_id), flow=run.flow_slug) for each in found]


def undo_output(
    run: RunWithStates, undo: RunWithStates, line: Mapping[str, Any]
) -> TimelineEntry | None:
    """A line that a handler printed while it undid something of this run."""
    told = _of_step(output_entry(undo, line), undo)
    return told and replace(told, run_id=str(run.run_id), flow=run.flow_slug)


def _of_step(entry: TimelineEntry, undo: RunWithStates | None) -> TimelineEntry | None:
    step = (entry.step or "").removeprefix(PREFIX)
    indexes = _plan(undo).get(step)
    if step == entry.step or not indexes:
        return None
    at = entry.task
    task = indexes[at] if at is not None and at < len(indexes) else at
    entry = replace(entry, step=step, task=task)
    if entry.event != "step:completed":
        return entry
    outputs = entry.output if isinstance(entry.output, list) else [entry.output]
    errors = [each[FAILURE_MARK].get("message", "") for each in outputs
              if isinstance(each, dict) and isinstance(each.get(FAILURE_MARK), dict)]  # fmt: skip
    status = RunStatus.UNDO_FAILED if errors else RunStatus.UNDONE
    of = f"{len(errors)} of {len(indexes)}: " if len(indexes) > 1 else ""
    error = f"{of}{errors[0]}" if errors else None
    return replace(entry, event=undo_event(status), output=None, error=error)


def _plan(undo: RunWithStates | None) -> dict[str, list[int]]:
    given = undo.input.get("plan") if undo and isinstance(undo.input, dict) else None
    return given if isinstance(given, dict) else {}
