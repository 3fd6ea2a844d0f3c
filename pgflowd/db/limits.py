"""The queries about limits: their places, who waits for one, and how many there are."""

from __future__ import annotations

from itertools import starmap

from pgflowd.core.documents.flows import ListedLimit
from pgflowd.db.query import Query, only


def list_limits(flow_slug: str, most: int) -> Query[list[ListedLimit]]:
    """Return the limits of a flow that are in use, those for which most tasks wait first."""
    return Query(_LIST_LIMITS, (flow_slug, most), lambda rows: list(starmap(ListedLimit, rows)))


def refill_limits(after_key: str | None, max_keys: int) -> Query[str | None]:
    """Pass on what the dead have left, of some limits; return behind which to go on."""
    return Query("select pgflowd.refill_limits(%s, %s)", (after_key, max_keys), only)


_LIST_LIMITS = """
select limit_key, steps, slots, taken, waiting, first_since, holders
  from pgflowd.list_limits(%s, %s)
"""
