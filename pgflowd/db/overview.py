"""The query that counts what needs attention."""

from __future__ import annotations

from pgflowd.core.documents.overview import OverviewCounts
from pgflowd.db.query import Query


def overview_counts() -> Query[OverviewCounts]:
    return Query(_COUNTS, (), lambda rows: OverviewCounts(*rows[0]))


_COUNTS = "select failed, people, quarantined, stalled, dead from pgflowd.overview_counts()"
