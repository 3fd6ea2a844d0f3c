"""What the events of a timeline add up to: the status of a run, of its steps and of its tasks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from support.database import Row

ENDS = {
    "completed": "completed", "released": "queued", "suspended": "queued", "lost": "queued",
    "failed": "queued", "timed_out": "queued", "crashed": "queued", "stalled": "queued",
}  # fmt: skip


@dataclass
class TaskAtWork:
    status: str = "queued"
    token: int | None = None
    is_open: bool = False


@dataclass
class Replayed:
    """A run as its timeline says it is now."""

    run: str = "planned"
    is_paused: bool = False
    steps: dict[str, str] = field(default_factory=dict)
    tasks: dict[tuple[str, int], TaskAtWork] = field(default_factory=dict)

    @property
    def status(self) -> str:
        return "paused" if self.is_paused and self.run == "started" else self.run

    @property
    def task_statuses(self) -> dict[tuple[str, int], str]:
        return {key: task.status for key, task in self.tasks.items()}


def replay(events: Iterable[Row]) -> Replayed:
    now = Replayed()
    for event in events:
        kind, _, word = event.event.partition(":")
        if kind == "run":
            now.run = word
        elif kind == "step":
            now.steps[event.step_slug] = word
            for index in range(event.detail.get("tasks", 0)):
                now.tasks.setdefault((event.step_slug, index), TaskAtWork())
        elif kind == "task" and word not in ("waiting", "freed"):
            task = now.tasks.setdefault((event.step_slug, event.task_index), TaskAtWork())
            _move(task, word, event)
        elif kind == "action":
            _act(now, word)
    return now


def _move(task: TaskAtWork, word: str, event: Any) -> None:
    if event.token is None:
        task.status = word
    elif word == "started":
        task.status, task.token, task.is_open = "started", event.token, True
    elif event.token == task.token:
        task.is_open = False
        if word == "lost" and task.status != "started":
            return  # it was ended, or queued again, before
        task.status = "failed" if event.detail.get("final") else ENDS.get(word, task.status)


def _act(now: Replayed, verb: str) -> None:
    if verb in ("pause", "resume"):
        now.is_paused = verb == "pause"
    elif verb == "retry":
        now.run, now.is_paused = "started", False
        for task in now.tasks.values():
            if task.status == "failed" or (task.status == "started" and not task.is_open):
                task.status = "queued"
