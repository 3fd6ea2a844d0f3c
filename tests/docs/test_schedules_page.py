"""The code of docs/schedules.md: its flows, its test, its clients and its SQL."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from support.pages import ROOT, blocks_of
from support.shop import Shop

from pgflowd.db import flows

PAGE = "docs/schedules.md"


def test_what_the_page_says_can_be_done(database: Any, capsys: Any) -> None:
    page, shop = dict[str, Any](__name__="page"), Shop(database)
    for block in blocks_of(PAGE, "python"):
        exec(block, page)
    for flow in (page["nightly"].flow, page["reports"]):
        assert flow.check() == []
        assert flows.deploy(shop.conn, flow.slug, flow.shape())
    names = [each.name for each in database.client.schedules()]
    assert names == ["nightly", "reports.daily", "reports.quick"]

    page["add_morning"](database.client)
    (sql,) = blocks_of(PAGE, "sql")
    for statement in sql.split(";\n"):
        shop.do(statement)
    page["test_the_report_is_of_its_tick"]()

    assert "morning at 07:00 every day (UTC)" in capsys.readouterr().out
    assert [each.name for each in database.client.schedules()] == names


def test_mypy_strict_accepts_the_page(tmp_path: Any) -> None:
    file = tmp_path / "page.py"
    file.write_text("\n\n".join(blocks_of(PAGE, "python")), "utf-8")

    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(file)],
        capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip

    assert "Success" in checked.stdout, checked.stdout
