"""How far the undo of a run is, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pgflowd.core.documents import Hidden


@dataclass(frozen=True)
class StepUndo:
    """A step of which something is, or was, to be undone: its tasks, as the last undo left each."""

    step_slug: Hidden[str]
    tasks: Annotated[int, "how many tasks are to be undone"]
    undone: Annotated[int, "how many of them are undone"]
    failed: Annotated[int, "how many could not be undone"]
    open: Annotated[int, "how many are still to be undone"]
    error: Annotated[str | None, "of one that could not be undone"]

    @property
    def text(self) -> str:
        """How far it is, in few words."""
        of = f"{self.undone} of {self.tasks} " if self.tasks > 1 else ""
        if self.failed:
            return f"{of}undone, {self.failed} failed" if of else "undo failed"
        return f"{of if self.undone < self.tasks else ''}{'undoing' if self.open else 'undone'}"
