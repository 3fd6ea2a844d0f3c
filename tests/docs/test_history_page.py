"""The code of docs/operate/history.md, in Python and in SQL."""

from __future__ import annotations

from typing import Any

from support.pages import blocks_of
from support.shop import Shop

PAGE = "docs/operate/history.md"


def test_the_page_reads_the_story_of_a_run_and_its_attempts(database) -> None:
    shop, page = Shop(database), dict[str, Any]()
    shop.deploy()
    run = shop.start(input={"url": "https://example.com"})
    while tasks := shop.claim_all():
        for task in tasks.values():
            shop.complete(task)
    (python,), (sql,) = blocks_of(PAGE, "python"), blocks_of(PAGE, "sql")

    exec(python, page)
    story = [line.split()[1] for line in page["story"](database.client, str(run))]

    assert (story[0], story[-1]) == ("run:started", "run:completed")
    assert {row[0] for row in shop.conn.execute(sql.encode()).fetchall()} == {run}
