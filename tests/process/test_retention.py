"""The retention in a daemon: it deletes what is older, and says when it cannot."""

from __future__ import annotations

import pytest
from support.covers import covers

from pgflowd.testing.until import until

OLD_RUNS = """
insert into pgflow.runs (run_id, flow_slug, status, input, started_at, completed_at)
select gen_random_uuid(), 'alpha', 'completed', '{}', moment, moment
  from generate_series(1, 4000) as n, (select now() - interval '8 days') as one (moment)
"""
LEFT = "select count(*) from pgflow.runs"
QUICK = {"heartbeat_interval": "500ms"}


@pytest.fixture
def old_runs(setup, database):
    """A flow with 4,000 runs that ended eight days ago."""
    setup.flow("alpha")
    setup.serve(worker=QUICK)  # it defines the flow
    setup.close()
    database.connect().execute(OLD_RUNS)


def left(database):
    return database.connect().execute(LEFT).fetchone()[0]


def retain(database, value):
    query = "select pgflowd.set_setting('retention_completed', %s::jsonb, 'me')"
    database.connect().execute(query, [value])


def test_a_daemon_deletes_what_is_older_than_the_retention_and_goes_on_after_a_kill(
    setup, database, old_runs
):
    retain(database, '"7d"')

    daemon = setup.serve("again", worker=QUICK, supervisor={"max_restarts": 100})
    until(lambda: left(database) < 4_000, 20)
    daemon.kill("sweeper")
    between = left(database)
    until(lambda: left(database) == 0, 30)

    assert 0 < between < 4_000 and between % 100 == 0
    daemon.until("sweeper.pruned")


@covers("E325")
def test_without_a_retention_nothing_is_deleted_and_what_cannot_be_is_a_problem(
    setup, database, old_runs
):
    conn = database.connect()
    conn.execute("""
        create function refuse() returns trigger language plpgsql as
        $$ begin raise exception 'not this one'; end $$
    """)
    conn.execute("create trigger refuse before delete on pgflow.runs execute function refuse()")
    daemon = setup.serve("again", worker=QUICK)
    until(lambda: daemon.ask()["database"]["rtt_s"], 10)
    retain(database, '"7d"')
    daemon.kill("sweeper")  # the next one looks at once

    until(lambda: [one for one in daemon.ask()["problems"] if one["code"] == "E325"], 20)
    [problem] = [one for one in daemon.ask()["problems"] if one["code"] == "E325"]

    assert "cannot be deleted: not this one" in problem["text"]
    assert left(database) == 4_000
    assert daemon.events("supervisor.restarted", child="sweeper") == []
