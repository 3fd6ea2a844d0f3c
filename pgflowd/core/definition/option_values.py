"""
The three values of an option: in the code, when it was last deployed, and in the database.

The database's value counts. The SQL's `compare_options` decides whether somebody has tuned it
there, so that it stays, or the code's is to be written. Here are the texts about it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from pgflowd.core.definition.options import OPTIONS
from pgflowd.core.documents import Hidden, Named, shown
from pgflowd.core.json import dumps

_NAMES = {option.json_name: option.name for option in OPTIONS if option.json_name}
_NAMES |= {"limitName": "name of the limit", "limitPath": "key of the limit"}
TUNABLE = {option.name: option for option in OPTIONS if option.json_name and option.is_tunable}


@dataclass(frozen=True)
class OptionValues:
    """An option of a flow, or of a step of it, whose three values are not all the same."""

    step: Hidden[str]  # empty: of the flow
    key: Hidden[str]  # in a shape
    code: Annotated[Any, "its value in the code"]
    deployed: Annotated[Any, "its value at the last deployment"]
    database: Annotated[Any, "its value in the database, which counts"]
    is_tuned: Annotated[bool, Named("tuned"), "whether somebody has tuned it"]
    tuned_by: str | None = None
    tuned_at: datetime | None = None

    @property
    @shown
    def name(self) -> Annotated[str, Named("option"), "its name"]:
        return _NAMES.get(self.key, self.key)

    @property
    @shown
    def of_step(
        self,
    ) -> Annotated[
        str | None, Named("step"), "the slug of the step; null for an option of the flow"
    ]:
        return self.step or None

    @property
    def differs(self) -> bool:
        """Whether the database has another value than the code."""
        return bool(self.code != self.database)

    @property
    def is_new(self) -> bool:
        """Whether the next deployment changes or notes something."""
        return not self.is_tuned or bool(self.code != self.deployed)

    @property
    def text(self) -> str:
        """What differs, and what applies."""
        code, known = option_text(self.code), option_text(self.database)
        tuned = ""
        if self.is_tuned and self.tuned_by and self.tuned_at:
            tuned = f" (by {self.tuned_by}, {self.tuned_at:%Y-%m-%d %H:%M})"
        values = f"{code} in the code, {known} in the database{tuned}"
        return f"{self._prefix}{self.name} is {values}; the latter applies"

    @property
    def change(self) -> str:
        """What becomes of it where the code's value is written."""
        texts = {"step": self.step, "option": self.key}
        return change_text({**texts, "before": self.database, "after": self.code})

    def remedy(self, flow: str) -> str:
        """What to do about it."""
        if not self.is_tuned:
            return f"run `pgflowd flows deploy {flow}`"
        return f"`pgflowd flows deploy {flow} --take-code` writes that of the code"

    @property
    def _prefix(self) -> str:
        return f"step {self.step}: " if self.step else ""


def change_text(change: dict[str, Any]) -> str:
    """One of the changes that the SQL's `define` returns: `step a: timeout 20 → 25`."""
    before, after = option_text(change["before"]), option_text(change["after"])
    prefix = f"step {change['step']}: " if change["step"] else ""
    return f"{prefix}{_NAMES.get(change['option'], change['option'])} {before} → {after}"


def option_text(value: Any) -> str:
    """The value of an option, as people read it."""
    if value is None:
        return "unset"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return value if isinstance(value, str) else dumps(value)
