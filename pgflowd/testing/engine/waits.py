"""
Suspends the tasks of a run and frees them, as `_suspend`, `process_due` and `_deliver_signal` do.

A task that waits has no message. It gets one, and a checkpoint that says how the wait ended, when
its time has come, or a signal for which it waits. Signals come before timers of the same moment.
One that is handed on is freed at once, and its next attempt has the caps that it asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pgflowd.core.statuses import RunStatus, TaskStatus
from pgflowd.core.waiting import Checkpoint, Wait, WaitKind
from pgflowd.testing.engine.state import (
    EndedWait,
    EngineRun,
    QueueMessage,
    SentSignal,
    TaskRow,
    TaskWait,
)


def suspend(run: EngineRun, task: TaskRow, wait: Wait, now: float) -> None:
    """Let a started task wait, its attempt unspent. A signal that came before ends it at once."""
    task.become(TaskStatus.QUEUED)
    task.attempts -= 1
    task.claims -= 1
    task.asked_at = None
    task.message.is_archived = True
    run.suspensions += 1
    due_at = None if wait.in_s is None else now + wait.in_s
    if wait.kind is WaitKind.NEED:  # some worker has it
        task.needs, task.hand_ons, due_at = wait.needs or (), task.hand_ons + 1, now
    name = ",".join(wait.needs) if wait.needs else wait.name
    ended_at = run.ended_at.get(wait.runs or ())
    task.wait = TaskWait(wait.kind, name, wait.checkpoint, due_at, run.suspensions, now, ended_at)
    if wait.kind is WaitKind.SIGNAL:
        _deliver(run, wait.name, now)


def free_due(run: EngineRun, now: float) -> None:
    """Free the tasks whose signal has come, then those whose time has."""
    for signal in _unused(run):
        if signal.sent_at <= now:
            _deliver(run, signal.name, now)
    due = [
        (over_at, wait.nr, task, wait)
        for task, wait in waiting(run)
        if (over_at := _over_at(wait)) is not None and over_at <= now
    ]
    for over_at, _, task, wait in sorted(due, key=lambda each: each[:2]):
        word = "slept" if wait.kind is WaitKind.SLEEP else "timeout"
        word = "ended" if wait.ended_at == over_at else word
        _free(run, task, wait, {word: True}, now)


def next_due_at(run: EngineRun) -> float | None:
    """When the next wait ends; None if nothing will end one."""
    moments = [at for _, wait in waiting(run) if (at := _over_at(wait)) is not None]
    names = {wait.name for _, wait in waiting(run) if wait.kind is WaitKind.SIGNAL}
    moments += [signal.sent_at for signal in _unused(run) if signal.name in names]
    return min(moments, default=None)


def _over_at(wait: TaskWait) -> float | None:
    """When the wait is over, unless a signal comes before; None if nothing else ends it."""
    return min((at for at in (wait.ended_at, wait.due_at) if at is not None), default=None)


def waiting(run: EngineRun) -> Iterator[tuple[TaskRow, TaskWait]]:
    """The tasks that wait, and for what."""
    if run.status is RunStatus.STARTED:
        for state in run.states.values():
            for task in state.tasks:
                if task.wait:
                    yield task, task.wait


def _unused(run: EngineRun) -> list[SentSignal]:
    return [signal for signal in run.signals if signal.receiver is None]


def _deliver(run: EngineRun, name: str | None, now: float) -> None:
    """Give the oldest unused signal of this name to the task that has waited longest for it."""
    sent = (each for each in _unused(run) if each.name == name and each.sent_at <= now)
    receivers = [
        each for each in waiting(run) if each[1].kind is WaitKind.SIGNAL and each[1].name == name
    ]
    signal = next(sent, None)
    if signal and receivers:
        task, wait = min(receivers, key=lambda each: each[1].nr)
        signal.receiver = (task.step_slug, task.index)
        _free(run, task, wait, {"got": signal.payload}, now)


def _free(run: EngineRun, task: TaskRow, wait: TaskWait, end: Any, now: float) -> None:
    if wait.checkpoint is not None:
        task.saved[wait.checkpoint] = Checkpoint(wait.checkpoint, 1, end)
    task.wait = None
    task.message = QueueMessage(now)
    run.waits.append(EndedWait(task.step_slug, str(wait.kind), _name_of(wait), now - wait.since))


def _name_of(wait: TaskWait) -> str | None:
    if wait.kind is not WaitKind.SLEEP:
        return wait.name
    given = (wait.checkpoint or "").removeprefix("sleep ")
    return given if given and not given.isdecimal() else None
