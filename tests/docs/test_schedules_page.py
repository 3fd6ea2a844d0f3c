"""The code of docs/guides/schedules.md: its flows, its clients and its SQL."""

from __future__ import annotations

from typing import Any

from support.pages import blocks_of, executed
from support.shop import Shop

from pgflowd.db import flows

PAGE = "docs/guides/schedules.md"


def test_what_the_page_says_can_be_done(database: Any, capsys: Any) -> None:
    page, shop = executed(PAGE), Shop(database)
    for flow in (page["nightly"].flow, page["reports"]):
        assert flow.check() == []
        assert flows.deploy(shop.conn, flow.slug, flow.shape())
    names = [each.name for each in database.client.schedules()]
    assert names == ["nightly", "reports.daily", "reports.quick"]

    page["add_morning"](database.client)
    (sql,) = blocks_of(PAGE, "sql")
    for statement in sql.split(";\n"):
        shop.do(statement)

    assert "morning at 07:00 every day (UTC)" in capsys.readouterr().out
    assert [each.name for each in database.client.schedules()] == names
