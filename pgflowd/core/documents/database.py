"""How large the tables of a database are, and what hinders work in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pgflowd.core.documents import plain
from pgflowd.core.obstacles import Holder
from pgflowd.core.pruning import Kept


@dataclass(frozen=True)
class TableHealth:
    """A table; its fields are the keys of its document. Rows are estimates of the statistics."""

    table: str  # with its schema
    bytes: int  # with its indexes
    rows: int
    dead: int
    vacuumed_at: datetime | None
    analyzed_at: datetime | None

    def to_json(self) -> dict[str, Any]:
        return plain(vars(self))


@dataclass(frozen=True)
class DatabaseCondition:
    """A database as it was at `now`, by its own clock."""

    now: datetime
    server: str  # the version of PostgreSQL
    name: str
    kept: Kept
    allowed_connections: int
    left_connections: int
    oldest_transaction: Holder | None  # of all databases of the server
    queue_share: float  # of the queue of notifications that is full
    tables: Sequence[TableHealth]  # the largest first

    def to_json(self) -> dict[str, Any]:
        return plain({
            "server": self.server,
            "database": self.name,
            "bytes": self.kept.size,
            "runs": self.kept.runs,
            "oldest_run_at": self.kept.since,
            "retention_completed": self.kept.completed,
            "retention_failed": self.kept.failed,
            "connections_allowed": self.allowed_connections,
            "connections_left": self.left_connections,
            "oldest_transaction": self.oldest_transaction and vars(self.oldest_transaction),
            "notification_queue": self.queue_share,
            "tables": [table.to_json() for table in self.tables],
        })  # fmt: skip
