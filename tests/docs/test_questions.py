"""What docs/guides/questions.md tells users to do works."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

import pytest
from support.covers import covers

from pgflowd import Context, Flow, RunExists
from pgflowd.testing import run_flow
from pgflowd.testing.scratch import ScratchDatabase

PAGE = (Path(__file__).parents[2] / "docs/guides/questions.md").read_text("utf-8")

imports = Flow("import_orders")


@imports.step
def pages(run: dict[str, int], ctx: Context) -> int:
    breakpoint()
    return run["pages"]


@pytest.fixture
def deployed(database: ScratchDatabase) -> ScratchDatabase:
    shape = "select pgflow.create_flow('import_orders'), pgflow.add_step('import_orders', 'pages')"
    database.connect().execute(shape)
    return database


def statement(beginning: str) -> str:
    (found,) = re.findall(rf"`({re.escape(beginning)}[^`]*)`", PAGE)
    return str(found)


@covers("newcomer 23")
def test_a_start_with_the_same_id_raises(deployed: ScratchDatabase) -> None:
    run_id = uuid5(NAMESPACE_URL, "invoice/7")
    deployed.client.start_flow("import_orders", {}, run_id=run_id)

    with pytest.raises(RunExists):
        deployed.client.start_flow("import_orders", {}, run_id=run_id)


@covers("newcomer 23")
def test_a_breakpoint_of_a_handler_stops_in_the_process_of_the_test(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stops: list[str] = []
    monkeypatch.setattr(
        sys, "breakpointhook", lambda: stops.append(sys._getframe(1).f_code.co_name)
    )

    assert run_flow(imports, {"pages": 4}).output == {"pages": 4}
    assert stops == ["pages"]


@covers("newcomer 23")
def test_the_statement_for_old_runs_deletes_them(deployed: ScratchDatabase) -> None:
    conn = deployed.connect()
    old, new = (deployed.client.start_flow("import_orders", {}).run_id for _ in range(2))
    for run_id in (old, new):
        deployed.client.cancel(run_id)
    conn.execute(
        "update pgflow.runs set started_at = started_at - interval '31 days',"
        " failed_at = failed_at - interval '31 days' where run_id = %s",
        (old,),
    )

    conn.execute(statement("select pgflowd.prune").encode())

    assert conn.execute("select run_id from pgflow.runs").fetchall() == [(new,)]
