"""The `ctx` of a handler that `run_flow` calls: its checkpoints and waits are in the engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pgflowd.core.context import Context
from pgflowd.core.statuses import RunStatus, StepStatus
from pgflowd.core.waiting import Checkpoint, Keep, Wait
from pgflowd.errors import LeaseLost
from pgflowd.testing.child_runs import TestedChildren
from pgflowd.testing.context import PlainContext
from pgflowd.testing.engine import EngineRun, TaskRow

ATTEMPT = "pgflowd_attempt"  # the savepoint to which a failed attempt is undone


@dataclass
class TestedContext(PlainContext):
    """The context of one attempt."""

    __test__ = False  # pytest takes the name for a class of tests

    run: EngineRun = field(kw_only=True)
    tested_children: TestedChildren = field(kw_only=True)
    now: float = 0.0  # virtual time
    moment: datetime = field(kw_only=True)  # by the calendar
    version: int = 1  # the option of the step

    @property
    def _version(self) -> int:
        return self.version

    @property
    def _task(self) -> TaskRow:
        return self.run.states[self.step_slug].tasks[self.task_index]

    def _keep_progress(self, told: dict[str, Any]) -> None:
        self._task.progress = told

    def _read_checkpoints(self) -> list[Checkpoint]:
        return list(self._task.saved.values())

    def _keep(self, checkpoint: Checkpoint) -> None:
        self._refuse_if_over()
        self._room.take(checkpoint)
        self._task.saved[checkpoint.name] = checkpoint

    def _forget(self, name: str) -> None:
        self._refuse_if_over()
        self._room.give_back(name)
        del self._task.saved[name]

    def _refuse_if_over(self) -> None:
        """Raise if a task beside this one has ended the run or the step."""
        step = self.run.states[self.step_slug]
        if self.run.status is not RunStatus.STARTED or step.status is not StepStatus.STARTED:
            raise LeaseLost("the run or the step has ended, so nothing is kept for it")

    def _end_of(self, wait: Wait) -> Any:
        if wait.runs:
            self.run.ended_at[wait.runs] = self.tested_children.ended_at(wait.runs)
        return super()._end_of(self._from_now(wait))

    @property
    def _tested_children(self) -> TestedChildren:
        return self.tested_children

    def _now(self) -> float:
        return self.now

    def _moment(self) -> datetime:
        return self.moment

    @contextmanager
    def _work_of_memo(self) -> Iterator[Keep]:
        """Keep what the function did on the connection with its result, or undo both."""
        if self.connection is None or self.connection.autocommit:
            yield self._keep
            return
        self.connection.execute("savepoint pgflowd_memo")
        try:
            yield self._keep_with_work
        except BaseException:
            with suppress(self.connection.Error):  # the function has ended the transaction
                self.connection.execute("rollback to savepoint pgflowd_memo")
            raise

    def _keep_with_work(self, checkpoint: Checkpoint) -> None:
        self.conn().execute(f"savepoint {ATTEMPT}")  # if the attempt fails, it is undone to here
        self._keep(checkpoint)


_CHECKED_BY_MYPY: type[Context] = TestedContext
