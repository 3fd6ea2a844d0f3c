"""
What every page has around its content: the time, and what the navigation says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from pgflowd.db.query import database_time, execute
from pgflowd.web.pages.page import Connection


@dataclass(frozen=True)
class PageFrame:
    """It was read together with the document of the page."""

    now: datetime  # by the database's clock
    counts: Mapping[str, int] = field(default_factory=dict)  # by the path of a page


def read_frame(conn: Connection) -> PageFrame:
    return PageFrame(execute(conn, database_time()))
