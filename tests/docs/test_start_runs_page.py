"""The clients and the SQL of docs/guides/start-runs.md, with the flows of docs/guides/flows.md."""

from __future__ import annotations

from typing import Any

from support.page_workers import Workers, libpq_variables
from support.pages import blocks_of, executed

PAGE = "docs/guides/start-runs.md"


def test_the_clients_and_the_sql_of_the_page_start_runs_that_end(database, monkeypatch) -> None:
    for name, value in libpq_variables(database.dsn).items():
        monkeypatch.setenv(name, value)
    flows, page = executed("docs/guides/flows.md"), dict[str, Any]()
    connection = database.connect()
    connection.execute("create table pages (url text)")

    with Workers(connection, [flows["flow"], flows["orders"]]):
        for block in blocks_of(PAGE, "python"):
            exec(block, page)
        for block in blocks_of(PAGE, "sql"):
            with database.connect() as other:
                for statement in filter(str.strip, block.split(";")):
                    other.execute(statement)

    assert connection.execute("select count(*) from pages").fetchone() == (1,)
    assert connection.execute("select count(*) from pgflow.runs").fetchone() == (5,)
