"""
What can be done with a run, or with many: each verb calls the operation that its command calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from pgflowd.core.documents.runs import Run
from pgflowd.core.statuses import RunStatus
from pgflowd.db import operations
from pgflowd.db.operations import Operation
from pgflowd.web.actions.action import ActionRequest


@dataclass(frozen=True)
class RunVerb:
    """What is done to a run, and the statuses of those to which that has been done."""

    operation: Callable[[ActionRequest, UUID], Operation[Run]]
    already: Sequence[RunStatus]
    options: frozenset[str] = frozenset()  # its fields besides the reason


RUN_VERBS: Mapping[str, RunVerb] = {
    "retry": RunVerb(
        lambda asked, run: operations.retry(
            run, asked.actor, asked.fields.is_set("even_if_cancelled"), asked.reason
        ),
        [RunStatus.STARTED],
        frozenset({"even_if_cancelled"}),
    ),
    "cancel": RunVerb(
        lambda asked, run: operations.cancel(
            run, asked.reason, asked.actor, asked.fields.is_set("undo")
        ),
        [RunStatus.CANCELLED],
        frozenset({"undo"}),
    ),
    "pause": RunVerb(
        lambda asked, run: operations.pause(run, asked.reason, asked.actor), [RunStatus.PAUSED]
    ),
    "resume": RunVerb(
        lambda asked, run: operations.resume(run, asked.reason, asked.actor),
        [RunStatus.STARTED, RunStatus.WAITING, RunStatus.QUARANTINED],
    ),
    "undo": RunVerb(
        lambda asked, run: operations.undo(
            run, asked.reason, asked.actor, asked.fields.is_set("again")
        ),
        [RunStatus.UNDOING, RunStatus.UNDONE],
        frozenset({"again"}),
    ),
}
