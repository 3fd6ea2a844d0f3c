"""How large the database is, and what hinders work in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pgflowd.core.documents import versioned
from pgflowd.core.documents.database import DatabaseCondition
from pgflowd.core.pruning import told_retention
from pgflowd.db.health import database_health
from pgflowd.web.pages.page import Page, PageRequest

TABLES = 20


@dataclass(frozen=True)
class ShownDatabase:
    """The database, as `db health` prints it."""

    condition: DatabaseCondition

    @property
    def retention(self) -> str:
        return told_retention(self.condition.kept)

    def to_json(self) -> dict[str, Any]:
        return versioned(self.condition.to_json())


def database_page(request: PageRequest) -> ShownDatabase:
    return ShownDatabase(database_health(request.conn, TABLES))


PAGES = (Page("/database", "database.html", database_page, lambda _: ["pgflowd", "db", "health"]),)
