"""
What an undo handler gets of the run that it undoes.

The undo of a run is a run of another flow, `undo_<flow>`. Its plan has indexes only, so the worker
reads the output, the run's input and the element of a map as far as the handler takes them: of all
tasks of a claim at once, or, where that is much, when the handler begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

PREFIX, LIST_PREFIX = "undo_", "list_"
FAILURE_MARK = "$undo_failed"  # the key of an undo task's output whose attempts are used up
PARTS = ("output", "run", "item")  # of the task that is undone


class Undo(NamedTuple):
    """What is undone: `ctx.undo` of an undo handler."""

    run_id: str
    task_index: int
    cause: str  # why: the failure of the run, who has cancelled it or asked for the undo
    generation: int  # 1, and one more for each `--again`


class Original(NamedTuple):
    """The task that is undone; `parts` has those that were asked for and exist."""

    undo: Undo
    parts: Mapping[str, Any]


def part_of(parameter: str) -> str:
    """Which part an undo handler means by a parameter: the slug of its step is the output."""
    return parameter if parameter in PARTS[1:] else PARTS[0]


def original_of(answer: Mapping[str, Any] | None) -> Original | None:
    """Read the answer of the database; None if there is nothing to undo."""
    if answer is None:
        return None
    parts = {part: answer[part] for part in PARTS if part in answer}
    return Original(Undo(**answer["undo"]), parts)
