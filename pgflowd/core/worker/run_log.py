"""
Dispatch, news: what is told of runs and steps.

The database tells in the turn that reports an outcome what became of its run and steps. It is
asked where the log wants to know: at level debug of every run, else of those in which something
went wrong, and of all if conditions may end steps and runs without any failure. So a worker
whose tasks succeed pays nothing and says nothing at level info. That a run starts is seen when
its first task is claimed; that it was cancelled, when a beat says so.

Runs that ended are counted, too. Where no news are asked for, a run of one task ends with it; of
others the next beat asks, off the way that tasks take. Part of `core.worker.decide`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pgflowd.core.worker import actions, events
from pgflowd.core.worker.state import Task, TaskReport, WorkerState
from pgflowd.core.worker.transition import WorkerTransition

MOST_TOLD = 200  # what was told once is remembered so long
MOST_ASKED = 100_000  # runs that wait to be counted; more than end between two beats

_LEVELS = {
    "run.completed": "debug",
    "run.failed": "warning",
    "step.started": "debug",
    "step.completed": "debug",
    "step.skipped": "info",
}


def asked_about(state: WorkerState, reports: Iterable[TaskReport]) -> tuple[str, ...]:
    """The runs whose news are wanted with these reports."""
    all_of_them = state.options.tells_all or state.options.has_conditions
    runs = [
        report.task.run_id
        for report in reports
        if report.outcome != "released" and (all_of_them or report.outcome != "completed")
    ]
    return tuple(dict.fromkeys(runs))


def tell(transition: WorkerTransition, news: tuple[events.RunChange, ...]) -> None:
    """One record for each thing that ended or began; what is for debug only at debug."""
    failed = {each.run_id for each in news if each.step is None and each.status == "failed"}
    for each in news:
        event = f"{'run' if each.step is None else 'step'}.{each.status}"
        ends_run = "warning" if each.run_id in failed else "info"  # or the flow lives on
        level = _LEVELS.get(event, ends_run)
        fields = {"run": each.run_id, "step": each.step, "took_s": each.took_s}
        _say(transition, level, event, {**fields, "error": each.error})


def count(
    transition: WorkerTransition, sent: tuple[TaskReport, ...], event: events.ReportAndClaimDone
) -> None:
    """Count the runs that this turn has ended, or leave those that it may have to a beat."""
    state, options = transition.state, transition.state.options
    for status in ("completed", "failed"):
        _count(transition, status, sum(n.step is None and n.status == status for n in event.news))
    last = [
        report.task.run_id
        for report, answer in zip(sent, event.answers, strict=True)
        if answer.verdict == "completed" and report.task.step in options.ends
    ]
    if state.about:
        last = [run_id for run_id in last if run_id not in state.about]
    if options.is_job:
        _count(transition, "completed", len(last))
    elif last:
        room = max(MOST_ASKED - len(state.perhaps_ended), 0)  # a beat may fail again and again
        state.perhaps_ended = (*state.perhaps_ended, *list(dict.fromkeys(last))[:room])


def counted(transition: WorkerTransition, event: events.LeasesRenewed) -> None:
    transition.state.counting = ()
    _count(transition, "completed", event.completed)


def _count(transition: WorkerTransition, status: str, number: int) -> None:
    if number:
        transition.do(actions.CountRunsEnded(status, number))


def tell_of_refused(
    transition: WorkerTransition, report: TaskReport, news: tuple[events.RunChange, ...], why: str
) -> None:
    """An output of the wrong type has failed its run, which perhaps nobody asked about."""
    run_id = report.task.run_id
    if not any(each.run_id == run_id and each.status == "failed" for each in news):
        _count(transition, "failed", 1)
        _say(transition, "warning", "run.failed", {"run": run_id, "error": why})


def begun(transition: WorkerTransition, tasks: tuple[Task, ...]) -> None:
    """A run has started when the first of its tasks is seen."""
    options = transition.state.options
    if not options.tells_all:
        return
    for task in tasks:
        if task.step in options.roots and task.attempt == 1 and task.task_index == 0:
            if _is_new(transition, f"{task.run_id} started"):
                _say(transition, "debug", "run.started", {"run": task.run_id})
            if _is_new(transition, f"{task.run_id} {task.step} started"):
                fields = {"run": task.run_id, "step": task.step}
                _say(transition, "debug", "step.started", fields)


def cancelled(transition: WorkerTransition, runs: tuple[events.RunCancelled, ...]) -> None:
    for each in runs:
        if _is_new(transition, f"{each.run_id} cancelled"):
            _count(transition, "cancelled", 1)
            why = f"cancelled by {each.by or 'somebody'}" + (f": {each.why}" if each.why else "")
            _say(transition, "info", "run.cancelled", {"run": each.run_id, "error": why})


def _is_new(transition: WorkerTransition, what: str) -> bool:
    state = transition.state
    if what in state.told:
        return False
    state.told = (*state.told[-MOST_TOLD + 1 :], what)
    return True


def _say(transition: WorkerTransition, level: str, event: str, fields: dict[str, Any]) -> None:
    if level != "debug" or transition.state.options.tells_all:
        transition.do(actions.WriteLog(level, event, fields))
