"""The first page: what flows have to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pgflowd.core.documents import versioned
from pgflowd.core.documents.flows import ListedFlow
from pgflowd.db.flows import list_flows
from pgflowd.db.query import execute
from pgflowd.web.pages.page import Page, PageRequest


@dataclass(frozen=True)
class Flows:
    """The flows, and what they have to do."""

    flows: Sequence[ListedFlow]

    def to_json(self) -> dict[str, Any]:
        return versioned({"flows": [flow.to_json(None) for flow in self.flows]})


def overview(request: PageRequest) -> Flows:
    """What flows have to do."""
    flows = execute(request.conn, list_flows())
    return Flows(flows)


PAGES = (Page("/", "overview.html", overview, lambda _: ["pgflowd", "status", "--all"]),)
