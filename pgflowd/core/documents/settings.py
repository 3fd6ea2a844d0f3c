"""A setting that all daemons on a database share, as `pgflowd db settings` shows it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pgflowd.core.documents import plain


@dataclass(frozen=True)
class SharedSetting:
    """`changed_by` and `changed_at` are None for one that has its default."""

    name: str
    value: Any
    takes: str
    means: str
    changed_by: str | None
    changed_at: datetime | None

    def to_json(self) -> dict[str, Any]:
        return plain(vars(self))
