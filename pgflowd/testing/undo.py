"""
The undo of a run in `run_flow`: which of its tasks are undone, and what their handlers get.

As in the database, a task is undone if it completed, though the run had failed before; with
`on="attempted"` also if its handler was called at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pgflowd.core.definition.plan import FlowPlan
from pgflowd.core.definition.spec import FlowSpec
from pgflowd.core.json import deep_copy
from pgflowd.core.statuses import RunStatus, TaskStatus
from pgflowd.core.undo import FAILURE_MARK, Original, Undo
from pgflowd.testing.engine import EngineRun, Key, TaskRow, element_of, json_null


@dataclass
class UndoneRun:
    """A run, and what its undo has to know about it."""

    run: EngineRun
    plan: FlowPlan
    begun: set[Key] = field(default_factory=set)  # tasks whose handler was called
    late: dict[Key, Any] = field(default_factory=dict)  # outputs that came when the run had ended

    def undo_input(self, flow: FlowSpec) -> dict[str, Any]:
        """The input of the run that undoes this one."""
        found = {
            undo.step: [
                task.index
                for task in self.run.states[undo.step].tasks
                if self._has_completed(task)
                or (undo.options["on"] == "attempted" and task.key in self.begun)
            ]
            for undo in flow.undos
            if undo.step in self.run.states
        }
        plan = {slug: indexes for slug, indexes in found.items() if indexes}
        cause = next(each.error for each in self.run.events if each.type == "run:failed")
        return {"run_id": self.run.run_id, "generation": 1, "cause": cause, "plan": plan}

    def original(self, given: Mapping[str, Any], step: str, nr: int) -> Original | None:
        """The task that the one with this number undoes, if there is one in the plan."""
        indexes = given["plan"].get(step, [])
        if nr >= len(indexes):
            return None
        task = self.run.states[step].tasks[indexes[nr]]
        parts: dict[str, Any] = {"run": self.run.input}
        if self._has_completed(task):
            output = task.output if task.status is TaskStatus.COMPLETED else self.late[task.key]
            parts["output"] = json_null(output)
        if self.plan.steps[step].is_map:
            parts["item"] = element_of(self.run, self.plan.steps[step], task.index)
        undo = Undo(self.run.run_id, task.index, given["cause"], given["generation"])
        return Original(undo, deep_copy(parts))

    def _has_completed(self, task: TaskRow) -> bool:
        return task.status is TaskStatus.COMPLETED or task.key in self.late


def status_after(undo: EngineRun) -> RunStatus:
    """The status of a run when its undo has ended."""
    outputs = [task.output for state in undo.states.values() for task in state.tasks]
    has_failed = any(isinstance(output, dict) and FAILURE_MARK in output for output in outputs)
    is_undone = undo.status is RunStatus.COMPLETED and not has_failed
    return RunStatus.UNDONE if is_undone else RunStatus.UNDO_FAILED
