"""
The child runs of a test: for each flow that handlers start, a flow, or a function of its input.

    children={"invoice": invoice_flow, "mail": lambda given: {"send": "sent"}}

A function returns the output of the run, or raises what the run fails with. A flow is executed by
`run_flow`, in virtual time, with the same children. Keys of singletons have no effect.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from pgflowd.core.child_runs import ChildRun, ChildStart
from pgflowd.core.failure import failure_of
from pgflowd.core.json import deep_copy
from pgflowd.core.statuses import RunStatus
from pgflowd.core.suggest import did_you_mean
from pgflowd.core.typed.values import stored_value
from pgflowd.core.wishes import NEVER, Moment
from pgflowd.errors import RunError
from pgflowd.flow import Flow


class StartedChild(NamedTuple):
    """A child run that a handler has started, and how it ended."""

    step: str
    flow: str
    input: Any
    run_id: str
    status: RunStatus
    output: Any
    error: str | None


class TestedChildren:
    """Those that the handlers of a test may start, and those that they have started."""

    __test__ = False  # pytest takes the name for a class of tests

    def __init__(self, given: Mapping[str, Any]) -> None:
        if not isinstance(given, Mapping):
            raise TypeError(f"children must be a dict with slugs of flows as keys, not {given!r}")
        for slug, child in given.items():
            if not isinstance(slug, str) or not (callable(child) or isinstance(child, Flow)):
                raise TypeError(f"children has {child!r} for {slug!r}; give a flow or a function")
        self.given = given
        self.started: dict[str, StartedChild] = {}  # by run id
        self.ends: dict[str, float] = {}  # when they end, likewise

    def start(self, child: ChildStart, step: str, now: float, moment: datetime) -> None:
        """Start a child now, which is this moment, and know at once how it will end."""
        if child.flow not in self.given:
            hint = did_you_mean(child.flow, self.given) or f"give children={{'{child.flow}': …}}"
            text = f"step {step} starts flow {child.flow}, which the test does not know"
            raise RuntimeError(f"{text}; {hint}")
        begins_at = now + _in_s(child.wishes.begins if child.wishes else NEVER, moment, 0.0)
        expires = child.wishes.expires if child.wishes else NEVER
        expires_at = now + _in_s(expires, moment, math.inf)
        end, took_s = _EXPIRED, 0.0
        if begins_at < expires_at:
            found, took_s = self._end_of(child)
            end = found if begins_at + took_s < expires_at else end
        self.ends[child.run_id] = min(begins_at + took_s, expires_at)
        self.started[child.run_id] = StartedChild(step, child.flow, child.input, child.run_id, *end)

    def read(self, run_ids: Sequence[str]) -> list[ChildRun]:
        """The ends of runs that were started."""
        return [
            ChildRun(each.run_id, each.status, deep_copy(each.output), each.error)
            for each in map(self.started.__getitem__, run_ids)
        ]

    def ended_at(self, run_ids: Sequence[str]) -> float:
        """When the last of these runs ends. E409 for one that no handler has started."""
        for run_id in run_ids:
            if run_id not in self.ends:
                text = f"there is no run {run_id}: no handler of this test has started it"
                raise RunError(text, code="E409")
        return max(self.ends[run_id] for run_id in run_ids)

    def _end_of(self, child: ChildStart) -> tuple[_End, float]:
        """How it ends, and after how many seconds."""
        given = self.given[child.flow]
        of_job = getattr(given, "flow", None)
        flow = of_job if isinstance(of_job, Flow) else given
        if isinstance(flow, Flow):
            from pgflowd.testing.run_flow import run_flow  # which has children, too

            run = run_flow(flow, child.input, children=self.given)
            error = next((step.error for step in run.steps.values() if step.error), None)
            return _End(RunStatus(run.status), run.output, error), run.took_s
        try:
            output = stored_value(given(deep_copy(child.input)), what=f"the output of {child.flow}")
        except Exception as error:
            return _End(RunStatus.FAILED, None, failure_of(error).message), 0.0
        return _End(RunStatus.COMPLETED, output, None), 0.0


class _End(NamedTuple):
    """How a run has ended."""

    status: RunStatus
    output: Any
    error: str | None


_EXPIRED = _End(RunStatus.EXPIRED, None, "its time is over")


def _in_s(given: Moment, moment: datetime, default: float) -> float:
    """The seconds from this moment to the given one; the default if none is given."""
    if given.at is not None:
        return max(0.0, (given.at - moment).total_seconds())
    return default if given.in_s is None else given.in_s
