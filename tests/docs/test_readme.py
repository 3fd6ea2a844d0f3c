"""The Python of the README is one program: a flow that comes to its end, and a run with rows."""

from __future__ import annotations

from typing import Any

from support.page_workers import libpq_variables
from support.pages import blocks_of, executed

from pgflowd.testing import run_flow


def test_the_run_starts_with_the_rows_and_the_flow_ends(database, monkeypatch) -> None:
    for name, value in libpq_variables(database.dsn).items():
        monkeypatch.setenv(name, value)
    readme: dict[str, Any] = {}
    exec(blocks_of("README.md", "python")[0], readme)
    database.deploy(readme["flow"])
    with database.connect() as connection:
        connection.execute("create table orders (card text)")

    started = executed("README.md")["run"]

    with database.connect() as connection:
        assert connection.execute("select card from orders").fetchall() == [("visa",)]
    assert database.client.get_run(started.run_id).status == "started"
    run = run_flow(
        readme["flow"], started.input, signals={"approve": {"approved": True, "by": "ann"}}
    )
    assert run.output == {"ship": "2 boxes, card visa: 20, approved by ann"}
