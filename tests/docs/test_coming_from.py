"""The programs of docs/coming-from, before and after: they do the same."""

from __future__ import annotations

import subprocess
import sys
import types
from typing import Any

import pytest
from support.pages import blocks_of

from pgflowd.testing import run_flow

ORDER = {"card": "visa", "lines": ["a", "b"]}


def programs(page: str) -> dict[str, Any]:
    """The Python of a page, as a module."""
    module = types.ModuleType(f"coming_from_{page}")
    sys.modules[module.__name__] = module
    for block in blocks_of(f"docs/coming-from/{page}.md", "python"):
        exec(block, vars(module))
    return vars(module)


def test_a_chord_of_celery_is_a_map(pgflow_db) -> None:
    from celery.contrib.testing.worker import start_worker

    page = programs("celery")
    with start_worker(page["app"], perform_ping_check=False, pool="solo"):
        before = page["place"](ORDER).get(timeout=60)
    pgflow_db.deploy(page["shop"])
    page["place_order"](pgflow_db.client, ORDER)
    [run] = pgflow_db.drain(page["shop"])
    assert before == "packed a, packed b"
    assert run.output == {"ship_all": before}


def test_jobs_of_procrastinate_are_moved_by_a_query(pgflow_db) -> None:
    import asyncio

    from procrastinate import PsycopgConnector

    page = programs("procrastinate")
    app = page["make_app"](pgflow_db.dsn)
    with app.open():
        app.schema_manager.apply_schema()
        page["place"](app, "first@shop")

        async def work() -> None:
            worker = app.with_connector(PsycopgConnector(conninfo=pgflow_db.dsn))
            async with worker.open_async():
                await worker.run_worker_async(wait=False, install_signal_handlers=False)

        asyncio.run(work())
        page["place"](app, "second@shop")
    conn = pgflow_db.connect()
    states = "select status::text from procrastinate_jobs order by id"
    assert conn.execute(states).fetchall() == [("succeeded",), ("todo",)]

    pgflow_db.deploy(page["send_mail"])
    [move] = blocks_of("docs/coming-from/procrastinate.md", "sql")
    for _ in range(2):
        conn.execute(move)
    page["place_mail"](pgflow_db.client, "third@shop")
    runs = pgflow_db.drain(page["send_mail"])
    outputs = sorted(run.output["perform"] for run in runs)
    assert outputs == ["hello to second@shop", "hello to third@shop"]
    assert conn.execute(states).fetchall() == [("succeeded",), ("cancelled",)]


def test_a_workflow_of_dbos_is_a_flow(pgflow_db, monkeypatch: pytest.MonkeyPatch) -> None:
    from dbos import DBOS

    DBOS(config={"name": "shop", "system_database_url": pgflow_db.dsn})
    page = programs("dbos")
    try:
        DBOS.launch()
        before = DBOS.start_workflow(page["order"], ORDER).get_result()
    finally:
        DBOS.destroy()
    pgflow_db.deploy(page["orders"])
    pgflow_db.client.start_flow("orders", ORDER)
    [run] = pgflow_db.drain(page["orders"])
    assert before == {"payment": "charged visa", "parcels": ["packed a", "packed b"]}
    assert run.output == {"answer": before}


def test_a_flow_of_pgflow_has_the_same_steps_here() -> None:
    run = run_flow(programs("pgflow")["analyze"], {"url": "x"})
    assert run.output == {"save": "good day: 0.5"}


def test_a_dag_of_airflow_is_a_flow_with_a_map() -> None:
    run = run_flow(programs("airflow")["report"])
    assert run.output == {"total": 10}


def test_a_skeleton_of_jobs_is_printed_for_the_tasks_of_celery(tmp_path) -> None:
    source, _ = blocks_of("docs/coming-from/celery.md", "python")
    (tmp_path / "shop_tasks.py").write_text(source)

    def migrate(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pgflowd.migrate", *words],
            cwd=tmp_path, capture_output=True, text=True,
        )  # fmt: skip

    done = migrate("celery", "shop_tasks")
    assert done.returncode == 0, done.stderr
    (tmp_path / "flows.py").write_text(done.stdout)
    code = (
        "import flows; from pgflowd.testing import run_flow;"
        "print(run_flow(flows.pack_job, {'line': 'a'}).output, flows.pack_job.flow.slug,"
        " flows.pack_job.flow.shape()['options']['maxAttempts'])"
    )
    tried = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert tried.stdout == "{'perform': 'packed a'} shop_tasks_pack 3\n", tried.stderr
    for words in (("celery",), ("cron", "x"), ("celery", "shop_taks"), ("celery", "json")):
        refused = migrate(*words)
        assert refused.returncode == 2 and "Traceback" not in refused.stderr
