"""How far the undo of a run is, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pgflowd.core.documents import plain


@dataclass(frozen=True)
class StepUndo:
    """A step of which something is, or was, to be undone: its tasks, as the last undo left each."""

    step_slug: str
    tasks: int
    undone: int
    failed: int
    open: int
    error: str | None  # of one that failed

    def to_json(self) -> dict[str, Any]:
        return plain({
            "tasks": self.tasks,
            "undone": self.undone,
            "failed": self.failed,
            "open": self.open,
            "error": self.error,
        })  # fmt: skip

    @property
    def text(self) -> str:
        """How far it is, in few words."""
        of = f"{self.undone} of {self.tasks} " if self.tasks > 1 else ""
        if self.failed:
            return f"{of}undone, {self.failed} failed" if of else "undo failed"
        return f"{of if self.undone < self.tasks else ''}{'undoing' if self.open else 'undone'}"
