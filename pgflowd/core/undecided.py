"""What waits for a person to decide, as problems that `status` shows."""

from __future__ import annotations

from typing import NamedTuple

from pgflowd.core.documents.waits import PAUSED
from pgflowd.core.text import counted, short_id
from pgflowd.core.waiting import WaitKind
from pgflowd.errors import Problem

MOST = 100  # tasks are counted so far
CYCLE = "cycle"
CYCLE_NEXT = "cancel one of them: `pgflowd runs cancel RUN`; see docs/guides/child-runs.md"


class Undecided(NamedTuple):
    """
    A flow that is paused; its tasks in quarantine, or that need what no living worker has; or runs
    that wait for each other.
    """

    flow_slug: str
    kind: str
    name: (
        str | None
    )  # what they need; who has paused it, and why; for which run the first one waits
    run_id: str | None  # of the first
    tasks: int


def problem_of(one: Undecided) -> Problem:
    """The problem, and what to do."""
    if one.kind == PAUSED:
        text = f"flow {one.flow_slug} is paused by {one.name}; none of its tasks begins"
        next = f"`pgflowd flows resume {one.flow_slug}` lets it go on"
        return Problem("W330", text, "database", next)
    if one.kind == CYCLE:
        more = f"; {one.tasks} runs wait so" if one.tasks > 1 else ""
        text = (
            f"run {short_id(str(one.run_id))} of {one.flow_slug} waits for run"
            f" {short_id(str(one.name))}, which waits for it{more}"
        )
        return Problem("W332", text, "database", CYCLE_NEXT)
    tasks = f"{one.flow_slug}: {counted(one.tasks, 'task')}"
    if one.tasks >= MOST:
        tasks = f"{one.flow_slug}: {MOST} tasks or more"
    first = f"the first is of run {short_id(str(one.run_id))}"
    if one.kind == WaitKind.NEED:
        wait = "waits" if one.tasks == 1 else "wait"
        text = f"{tasks} {wait} for a worker with {one.name}, and none that lives has it; {first}"
        next = "give it to a worker ([worker] caps), or do them by hand: `pgflowd tasks claim`"
        return Problem("W328", text, "database", next)
    text = f"{tasks} in quarantine; {first}"
    next = "`pgflowd stalled list` shows them; `stalled requeue` or `stalled fail` decides"
    return Problem("W329", text, "database", next)
