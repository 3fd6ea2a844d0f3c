"""The status document where no daemon runs, from the database alone. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pgflowd.core.documents import versioned
from pgflowd.core.documents.waits import counted_waits

NOT_RUNNING = "not_running"


def status_without_daemon(
    name: str,
    database: Mapping[str, Any],
    queues: Iterable[tuple[str, int, float | None]],
    waits: Mapping[str, Mapping[str, int]],
    problems: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """The status from the database alone: each flow with its queued messages, and its waits."""
    flows = [
        {
            "slug": slug,
            "state": NOT_RUNNING,
            "queued": queued,
            **counted_waits(waits, slug),
            "oldest_queued_s": oldest_s,
        }
        for slug, queued, oldest_s in queues
    ]
    fields = {"name": name, "state": NOT_RUNNING, "pid": None, "database": database}
    return versioned({**fields, "flows": flows, "problems": list(problems)})
