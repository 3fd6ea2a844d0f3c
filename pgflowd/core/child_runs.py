"""
What `start` and `wait` of a handler's `ctx` do: start child runs, wait for the ends of runs.

The id of a child is made of the task that starts it, the flow and a key, or else the number of the
call. So a handler that begins again starts no second one, and is given the first.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Unpack

from pgflowd.core.ids import child_id, run_id_of
from pgflowd.core.statuses import RunStatus
from pgflowd.core.traces import CallerTrace
from pgflowd.core.typed.values import stored_value
from pgflowd.core.waiting import Time, Wait, WaitingContext, WaitKind, seconds_of
from pgflowd.core.wishes import CheckedWishes, Wishes, checked, require_slug
from pgflowd.errors import SignalTimeout

MAX_RUNS = 1000  # of one wait: their ids are in the head of a frame


@dataclass(frozen=True)
class ChildRun:
    """A run for whose end a handler has waited."""

    run_id: str
    status: RunStatus
    output: Any  # by leaf steps; None unless it has completed
    error: str | None


@dataclass(frozen=True)
class ChildStart:
    """A child that is to be started, once."""

    run_id: str
    flow: str
    input: Any
    wishes: CheckedWishes | None

    def in_trace(self, trace: CallerTrace | None) -> ChildStart:
        """The start of a run that belongs to this trace."""
        wishes = self.wishes or CheckedWishes()
        return replace(self, wishes=replace(wishes, trace=trace)) if trace else self

    def as_json(self) -> dict[str, Any]:
        """The start as runners send it."""
        wishes = {} if self.wishes is None else self.wishes.as_json()
        return {"flow": self.flow, "input": self.input, "wishes": wishes}


class StartingContext(WaitingContext):
    """The calls of `ctx` by which a handler starts runs and waits for them."""

    run_id: str
    task_index: int

    @abstractmethod
    def _read_children(self) -> Mapping[str, str]:
        """What the task has started in earlier attempts: for the id of each child the run's, which
        differs where another run was there already; asked once, at the first start."""

    @abstractmethod
    def _start_child(self, child: ChildStart) -> str:
        """Start it unless that was done before, and return the id of the run."""

    @abstractmethod
    def _read_runs(self, run_ids: Sequence[str]) -> list[ChildRun]:
        """These runs as they are now. E409 for one that is unknown, or was deleted."""

    def start(
        self, flow: str, input: Any, *, key: str | None = None, **wishes: Unpack[Wishes]
    ) -> str:
        require_slug(flow)
        given = checked(wishes, key)
        if key is None:
            self._counts[f"start {flow}"] += 1
        name = f"nr {self._counts[f'start {flow}']}" if key is None else f"key {key}"
        new_id = child_id(self.run_id, self.step_slug, self.task_index, flow, name)
        if new_id not in self._children:
            stored = stored_value(input, what=f"the input of flow {flow}")
            self._children[new_id] = self._start_child(ChildStart(new_id, flow, stored, given))
        return self._children[new_id]

    def wait(self, *runs: str, timeout: Time | None = None) -> list[ChildRun]:
        run_ids = [str(run_id_of(each)) for each in runs]
        in_s = None if timeout is None else seconds_of(timeout, "the timeout of a wait for runs")
        if len(run_ids) > MAX_RUNS:
            raise ValueError(f"one ctx.wait takes {MAX_RUNS} runs, not {len(runs)}; call it again")
        if self.run_id in run_ids:
            raise ValueError(f"step {self.step_slug} waits for the end of its own run")
        if not run_ids:
            return []
        self._counts["runs"] += 1
        checkpoint, different = f"runs {self._counts['runs']}", tuple(dict.fromkeys(run_ids))
        wait = Wait(WaitKind.RUNS, None, checkpoint, in_s, why=_named(different), runs=different)
        if "ended" not in self._end_of(wait):
            raise SignalTimeout(f"step {self.step_slug}: {wait.why} did not end in time")
        found = {each.run_id: each for each in self._read_runs(different)}
        if not all(each.status.is_end for each in found.values()):  # one was retried since
            self._suspend(wait)
        return [found[run_id] for run_id in run_ids]

    @cached_property
    def _children(self) -> dict[str, str]:
        return dict(self._read_children())


def _named(run_ids: Sequence[str]) -> str:
    return f"run {run_ids[0]}" if len(run_ids) == 1 else f"{len(run_ids)} runs"
