"""What `pgflowd top` has read of the daemon and the database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pgflowd.cli.top.flow_rows import FlowFacts
from pgflowd.core.documents.runs import ListedRun, RunDetails, TimelineEntry

MAX_RUNS = 200  # of a list; the newest


@dataclass
class Seen:
    """What was read last, when, and what went wrong since; times are of a monotonic clock."""

    status: Mapping[str, Any] | None = None
    status_at: float | None = None
    daemon_error: str | None = None
    facts: FlowFacts = field(default_factory=FlowFacts)
    runs: Sequence[ListedRun] | None = None
    details: RunDetails | None = None
    entries: list[TimelineEntry] | None = None
    database_at: float | None = None
    database_error: str | None = None
    now: datetime | None = None  # of the database
