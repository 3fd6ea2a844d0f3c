"""The primary is killed and its synchronous standby promoted: nothing acknowledged is lost."""

from __future__ import annotations

from support.covers import covers
from support.invariants import broken
from support.servers import Starter, completed_runs, open_runs, recorded, reported, url_of

from pgflowd.db import schema
from pgflowd.testing.until import until


@covers("row 69")
def test_the_primary_is_killed_and_the_daemon_continues_with_the_standby(setup, servers):
    primary, standby = servers.pair()
    with primary.connect() as conn:
        schema.migrate(conn)
    setup.dsn = url_of(primary, standby)
    setup.flow("flow")
    daemon = setup.serve()
    before = daemon.pids()
    starter = Starter(setup.dsn)
    starter.has_more_than(40)

    primary.kill()
    conn = standby.connect()
    assert conn.execute("select pg_promote()").fetchone() == (True,)

    starter.has_more_than(len(starter.acknowledged) + 20, within_s=15)
    acknowledged = starter.ended()
    until(lambda: open_runs(conn) == 0, 15)
    assert acknowledged <= completed_runs(conn)
    assert set() < reported(daemon) <= recorded(conn)
    assert broken(conn, setup.oracle) == []
    assert daemon.pids() == before
    assert daemon.ask()["supervisor"]["restarts"] == 0
    conn.close()
