"""
A transaction that has started a run cannot be prepared, which docs/guides/questions.md explains.
"""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from support.covers import covers
from support.own_server import OwnServer

from pgflowd import Client

QUESTIONS = Path(__file__).parents[2] / "docs/guides/questions.md"


@covers("database 26")
def test_a_transaction_that_started_a_run_is_refused_clearly_and_starts_nothing() -> None:
    with (
        OwnServer({"max_prepared_transactions": "2"}) as server,
        psycopg.connect(server.dsn) as ours,
        Client(server.dsn) as client,
    ):
        ours.execute("select pgflow.create_flow('one'), pgflow.add_step('one', 'a')")
        ours.execute("select pgflowd.arm('one', gen_random_uuid())")
        ours.commit()
        client.start_flow("one", {}, conn=ours)
        with pytest.raises(psycopg.errors.FeatureNotSupported) as refused:
            ours.execute("prepare transaction 'ours'")
        ours.rollback()
        assert ours.execute("select count(*) from pgflow.runs").fetchone() == (0,)

    text = refused.value.diag.message_primary or ""
    assert refused.value.sqlstate == "0A000"
    assert text in " ".join(QUESTIONS.read_text().split())
