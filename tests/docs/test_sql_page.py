"""The worker of docs/reference/sql.md, on a database."""

from __future__ import annotations

from support.covers import covers
from support.pages import blocks_of

from pgflowd import Flow
from pgflowd.testing.until import until

PAGE = "docs/reference/sql.md"

prices = Flow("prices")


@prices.step(needs=["sql"])
def gross(run): ...


@covers("promise 9")
def test_a_worker_in_sql_hears_of_work_claims_it_and_reports(database) -> None:
    (script,) = blocks_of(PAGE, "sql")
    before, _, loop = script.partition("do $$")
    database.deploy([prices])
    worker, other = database.connect(), database.connect()
    for statement in before.split(";")[:-1]:
        worker.execute(statement.encode())

    run = database.client.start_flow("prices", {"net": 100})
    wrong = database.client.start_flow("prices", {"net": "none"})

    heard = next(worker.notifies(timeout=10, stop_after=1))
    assert (heard.channel, heard.payload) == ("pgflowd", "prices")
    worker.execute(f"do $${loop}".encode())
    ended = [database.client.get_run(each.run_id) for each in (run, wrong)]
    assert [each.status for each in ended] == ["completed", "failed"]
    assert ended[0].output == {"gross": 119.0}
    assert "invalid input syntax" in (ended[1].error or "")
    assert other.execute("select count(*) from pgmq.q_prices").fetchone() == (0,)


def test_a_task_that_was_put_aside_wakes_the_worker_with_its_caps(database) -> None:
    (script,) = blocks_of(PAGE, "sql")
    before, _, loop = script.partition("do $$")
    database.deploy([prices])
    run = database.client.start_flow("prices", {"net": 100})
    worker, other = database.connect(), database.connect()
    for statement in before.split(";")[:-1]:
        worker.execute(statement.encode())

    other.execute("select pgflow.register_worker(gen_random_uuid(), 'prices', 'without caps')")
    claim = "select pgflowd.claim('prices', worker_id, 1) from pgflow.workers"
    assert other.execute(claim + " where function_name = 'without caps'").fetchall() == []

    assert next(worker.notifies(timeout=10, stop_after=1)).payload == "prices"
    worker.execute(f"do $${loop}".encode())
    until(lambda: database.client.get_run(run.run_id).status == "completed", within_s=5)
