"""A daemon whose database is behind a transaction pooler."""

from __future__ import annotations

import psycopg
import pytest
from support.covers import covers
from support.daemon import is_completed, start_run
from support.pooler import pooler as session_pooler
from support.transaction_pooler import TransactionPooler

from pgflowd.testing.until import until

RUNS = 60


@pytest.fixture
def pooler(database):
    with TransactionPooler(database.dsn) as pooler:
        yield pooler


@covers("row 82")
def test_behind_a_transaction_pooler_a_daemon_needs_no_session(setup, database, pooler):
    setup.flow("alpha", attempts=1)
    url = {"url": pooler.url, "listen_url": database.dsn}
    daemon = setup.serve(database=url)

    runs = [start_run(database, "alpha", s=0.05) for _ in range(RUNS)]

    until(lambda: all(is_completed(database, run_id) for run_id in runs), 20)
    assert pooler.turns > RUNS / 10
    assert daemon.events("worker.error") == daemon.events("listener.deaf") == []
    assert daemon.events("child.restarted") == []


@covers("row 82", "W314")
def test_a_listener_behind_a_transaction_pooler_reports_it_and_polls(setup, database, pooler):
    setup.flow("alpha", attempts=1)
    daemon = setup.serve(database={"url": pooler.url}, worker={"poll_max": "200ms"})

    runs = [start_run(database, "alpha") for _ in range(3)]

    until(lambda: all(is_completed(database, run_id) for run_id in runs), 5)
    assert daemon.events("listener.deaf", code="W314")
    assert daemon.events("worker.error") == []
    assert daemon.events("child.restarted") == []


@covers("rule 5", "row 82")
@pytest.mark.parametrize("who", ["listener", "worker"])
def test_a_pooler_that_has_no_session_for_us_is_waited_for(setup, database, pooler, who):
    setup.flow("alpha", attempts=1)
    holders = [psycopg.connect(pooler.url) for _ in range(pooler.sessions)]
    for holder in holders:
        holder.execute("select 1")  # and no commit
    limits = {"connect_timeout": "1s", "statement_timeout": "1s"}
    past = {"listen_url": database.dsn} if who == "worker" else {}
    daemon = setup.start(
        database={"url": pooler.url, **past, **limits}, supervisor={"start_timeout": "6s"}
    )

    daemon.until("listener.lost" if who == "listener" else "worker.error", within_s=12)
    for holder in holders:
        holder.close()

    daemon.until("supervisor.ready", within_s=12)
    assert daemon.events("child.restarted") == daemon.events("child.killed") == []


@covers("database 16")
def test_a_listener_that_meets_its_session_again_does_not_believe_that_it_hears(setup, database):
    setup.flow("alpha", attempts=1)
    with TransactionPooler(database.dsn, last_first=True) as pooler:
        daemon = setup.serve(database={"url": pooler.url}, worker={"poll_max": "200ms"})

        assert daemon.events("listener.deaf", code="W314")
        run_id = start_run(database, "alpha")
        until(lambda: is_completed(database, run_id), 5)
        status = until(lambda: with_problem(daemon, "W314"))
        assert status["state"] == "healthy"  # it polls


@covers("database 16")
def test_a_pooler_that_keeps_sessions_apart_is_listened_through(setup, database):
    setup.flow("alpha", attempts=1)
    with session_pooler(database.dsn) as url:
        daemon = setup.serve(database={"listen_url": url})
        run_id = start_run(database, "alpha")

        until(lambda: is_completed(database, run_id), 5)

        assert daemon.events("listener.deaf") == []


def with_problem(daemon, code):
    status = daemon.ask()
    return status if code in {each["code"] for each in status["problems"]} else None
