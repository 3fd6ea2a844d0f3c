"""The code of docs/guides/planned-runs.md, in Python and in SQL."""

from __future__ import annotations

from typing import Any

from support.pages import blocks_of
from support.shop import Shop

PAGE = "docs/guides/planned-runs.md"


def test_what_the_page_starts_is_planned(database) -> None:
    shop, page = Shop(database), dict[str, Any]()
    for flow in ("remind", "invoice", "welcome", "sync", "report"):
        shop.do("select pgflow.create_flow(%s)", flow)
        shop.do("select pgflow.add_step(%s, 'step')", flow)
    (python, _), (sql,) = blocks_of(PAGE, "python"), blocks_of(PAGE, "sql")

    exec(python, page)
    page["remind"](database.client, "42")
    shop.do(sql)

    found = "select flow_slug, status, labels from pgflowd.list_runs() order by flow_slug, start_at"
    assert [tuple(row) for row in shop.rows(found)] == [
        ("invoice", "scheduled", None),
        ("remind", "scheduled", {"customer": "42"}),
        ("remind", "scheduled", {"customer": "42"}),
        ("report", "blocked", None),
        ("sync", "started", None),
        ("welcome", "started", None),
    ]
