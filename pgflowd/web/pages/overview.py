"""The first page: what flows have to do."""

from __future__ import annotations

from pgflowd.db.flows import list_flows
from pgflowd.db.query import execute
from pgflowd.web.pages.flows import Flows
from pgflowd.web.pages.page import Page, PageRequest


def overview(request: PageRequest) -> Flows:
    """What flows have to do."""
    flows = execute(request.conn, list_flows())
    return Flows(flows)


PAGES = (Page("/", "overview.html", overview, lambda _: ["pgflowd", "status", "--all"]),)
