"""
Dispatch, news: what is told of runs and steps.

The database tells in the turn that reports an outcome what became of its run and steps. It is
asked where the log wants to know: at level debug of every run, else of those in which something
went wrong, and of all if conditions may end steps and runs without any failure. So a worker
whose tasks succeed pays nothing and says nothing at level info. That a run starts is seen when
its first task is claimed; that it was cancelled, when a beat says so.

Runs that ended are counted, too. Where no news are asked for, a run of one task ends with it; of
others the next beat asks, off the way that tasks take. Part of `core.dispatch`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pgflowd.core import happenings as on
from pgflowd.core.mind import Mind, Report, Task
from pgflowd.core.thought import Thought

MOST_TOLD = 200  # what was told once is remembered so long
MOST_ASKED = 100_000  # runs that wait to be counted; more than end between two beats

_LEVELS = {
    "run.completed": "debug",
    "run.failed": "warning",
    "step.started": "debug",
    "step.completed": "debug",
    "step.skipped": "info",
}


def asked_about(mind: Mind, reports: Iterable[Report]) -> tuple[str, ...]:
    """The runs whose news are wanted with these reports."""
    all_of_them = mind.knobs.tells_all or mind.knobs.has_conditions
    runs = [
        report.task.run_id
        for report in reports
        if report.outcome != "released" and (all_of_them or report.outcome != "completed")
    ]
    return tuple(dict.fromkeys(runs))


def tell(thought: Thought, news: tuple[on.News, ...]) -> None:
    """One record for each thing that ended or began; what is for debug only at debug."""
    failed = {each.run_id for each in news if each.step is None and each.status == "failed"}
    for each in news:
        event = f"{'run' if each.step is None else 'step'}.{each.status}"
        ends_run = "warning" if each.run_id in failed else "info"  # or the flow lives on
        level = _LEVELS.get(event, ends_run)
        fields = {"run": each.run_id, "step": each.step, "took_s": each.took_s}
        _say(thought, level, event, {**fields, "error": each.error})


def count(thought: Thought, sent: tuple[Report, ...], event: on.Turned) -> None:
    """Count the runs that this turn has ended, or leave those that it may have to a beat."""
    mind, knobs = thought.mind, thought.mind.knobs
    for status in ("completed", "failed"):
        _count(thought, status, sum(n.step is None and n.status == status for n in event.news))
    last = [
        report.task.run_id
        for report, answer in zip(sent, event.answers, strict=True)
        if answer.verdict == "completed" and report.task.step in knobs.ends
    ]
    if mind.about:
        last = [run_id for run_id in last if run_id not in mind.about]
    if knobs.is_job:
        _count(thought, "completed", len(last))
    elif last:
        room = max(MOST_ASKED - len(mind.perhaps_ended), 0)  # a beat may fail again and again
        mind.perhaps_ended = (*mind.perhaps_ended, *list(dict.fromkeys(last))[:room])


def counted(thought: Thought, event: on.Beaten) -> None:
    thought.mind.counting = ()
    _count(thought, "completed", event.completed)


def _count(thought: Thought, status: str, number: int) -> None:
    if number:
        thought.do(on.RunsEnded(status, number))


def tell_of_refused(thought: Thought, report: Report, news: tuple[on.News, ...], why: str) -> None:
    """An output of the wrong type has failed its run, which perhaps nobody asked about."""
    run_id = report.task.run_id
    if not any(each.run_id == run_id and each.status == "failed" for each in news):
        _count(thought, "failed", 1)
        _say(thought, "warning", "run.failed", {"run": run_id, "error": why})


def begun(thought: Thought, tasks: tuple[Task, ...]) -> None:
    """A run has started when the first of its tasks is seen."""
    knobs = thought.mind.knobs
    if not knobs.tells_all:
        return
    for task in tasks:
        if task.step in knobs.roots and task.attempt == 1 and task.task_index == 0:
            if _is_new(thought, f"{task.run_id} started"):
                _say(thought, "debug", "run.started", {"run": task.run_id})
            if _is_new(thought, f"{task.run_id} {task.step} started"):
                fields = {"run": task.run_id, "step": task.step}
                _say(thought, "debug", "step.started", fields)


def cancelled(thought: Thought, runs: tuple[on.Cancelled, ...]) -> None:
    for each in runs:
        if _is_new(thought, f"{each.run_id} cancelled"):
            _count(thought, "cancelled", 1)
            why = f"cancelled by {each.by or 'somebody'}" + (f": {each.why}" if each.why else "")
            _say(thought, "info", "run.cancelled", {"run": each.run_id, "error": why})


def _is_new(thought: Thought, what: str) -> bool:
    mind = thought.mind
    if what in mind.told:
        return False
    mind.told = (*mind.told[-MOST_TOLD + 1 :], what)
    return True


def _say(thought: Thought, level: str, event: str, fields: dict[str, Any]) -> None:
    if level != "debug" or thought.mind.knobs.tells_all:
        thought.do(on.Say(level, event, fields))
