"""A daemon whose database is behind a transaction pooler."""

from __future__ import annotations

import pytest
from test_supervisor import is_completed, start_run
from transaction_pooler import TransactionPooler

from pgflowd.testing.until import until

RUNS = 60


@pytest.fixture
def pooler(database):
    with TransactionPooler(database.dsn) as pooler:
        yield pooler


def test_behind_a_transaction_pooler_a_daemon_needs_no_session(house, database, pooler):
    """Row 82."""
    house.flow("alpha", attempts=1)
    url = {"url": pooler.url, "listen_url": database.dsn}
    daemon = house.serve(database=url)

    runs = [start_run(database, "alpha", s=0.05) for _ in range(RUNS)]

    until(lambda: all(is_completed(database, run_id) for run_id in runs), 20)
    assert pooler.turns > RUNS / 10
    assert daemon.events("worker.error") == daemon.events("listener.deaf") == []
    assert daemon.events("child.restarted") == []


def test_a_listener_behind_a_transaction_pooler_says_so_and_polls(house, database, pooler):
    """Row 82."""
    house.flow("alpha", attempts=1)
    daemon = house.serve(database={"url": pooler.url}, worker={"poll_max": "200ms"})

    runs = [start_run(database, "alpha") for _ in range(3)]

    until(lambda: all(is_completed(database, run_id) for run_id in runs), 5)
    assert daemon.events("listener.deaf", code="W314")
    assert daemon.events("worker.error") == []
    assert daemon.events("child.restarted") == []
